/* synth_vocab.c: the vocabulary of synthetic models. 256 byte tokens in the usual byte-level alphabet,
 * the results of a few merges, the special tokens of a ChatML model with tools, then padding. */
#include "convert/synth_impl.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"

/* U+0120 is the letter for a space. */
static const char *const merges[] = {
    "\u0120 t", "h e",  "i n",      "\u0120 a", "o n",        "r e", "\u0120t he",
    "e r",      "a t",  "e n",      "o r",      "\u0120 s",   "e s", "\u0120 o",
    "n d",      "in g", "\u0120 w", "\u0120 c", "\u0120a nd", "o u", "l l",
};

enum kind { NORMAL = 1, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5 };

static const struct {
    const char *text;
    enum kind kind;
} specials[] = {
    {"<|endoftext|>", CONTROL},
    {"<|im_start|>", CONTROL},
    {"<|im_end|>", CONTROL},
    {"<think>", USER_DEFINED},
    {"</think>", USER_DEFINED},
    {"<tool_call>", USER_DEFINED},
    {"</tool_call>", USER_DEFINED},
    {"<tool_response>", USER_DEFINED},
    {"</tool_response>", USER_DEFINED},
};

enum {
    N_MERGE = sizeof merges / sizeof merges[0],
    N_SPECIAL = sizeof specials / sizeof specials[0],
    FIRST_SPECIAL = 256 + N_MERGE,
    END_OF_TEXT = FIRST_SPECIAL,
    END_OF_TURN = FIRST_SPECIAL + 2,
    N_REAL = FIRST_SPECIAL + N_SPECIAL,
    PAD_BYTES = 16,
};

static const char chat_template[] =
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";

/* Printable bytes are their own characters; the others are U+0100 onwards, in order. */
static uint32_t letter_of_byte(int byte) {
    uint32_t next = 256;
    for (int b = 0; b < 256; b++) {
        bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        if (b == byte) return printable ? (uint32_t)b : next;
        if (!printable) next++;
    }
    return 0;
}

/* Returns piece i; text: PAD_BYTES of memory that live as long as the piece. */
static struct slice piece(uint32_t i, char *text) {
    if (i < 256) return (struct slice){text, (size_t)utf8_encode(letter_of_byte((int)i), text)};
    if (i < FIRST_SPECIAL) { /* a merge's two halves without the space */
        const char *m = merges[i - 256], *space = strchr(m, ' ');
        int n = snprintf(text, PAD_BYTES, "%.*s%s", (int)(space - m), m, space + 1);
        return (struct slice){text, (size_t)n};
    }
    if (i < N_REAL)
        return (struct slice){specials[i - FIRST_SPECIAL].text,
                              strlen(specials[i - FIRST_SPECIAL].text)};
    return (struct slice){text, (size_t)snprintf(text, PAD_BYTES, "[PAD%u]", i)};
}

int synth_put_vocab(struct gguf_writer *w, uint32_t n_vocab, struct err *e) {
    if (n_vocab < N_REAL)
        return err_set(e, CHIMERE_EINVAL, "vocab: expected at least %d, got %u", N_REAL, n_vocab);
    struct slice *pieces = mem_alloc_array(n_vocab, sizeof *pieces), merge_list[N_MERGE];
    char(*texts)[PAD_BYTES] = mem_alloc_array(n_vocab, PAD_BYTES);
    int32_t *kinds = mem_alloc_array(n_vocab, sizeof *kinds);
    int rc = pieces && texts && kinds ? 0 : err_set(e, CHIMERE_ENOMEM, "vocab: out of memory");
    for (uint32_t i = 0; !rc && i < n_vocab; i++) {
        pieces[i] = piece(i, texts[i]);
        kinds[i] = i < FIRST_SPECIAL ? NORMAL
                   : i < N_REAL      ? specials[i - FIRST_SPECIAL].kind
                                     : UNUSED;
    }
    for (int i = 0; i < N_MERGE; i++) merge_list[i] = (struct slice){merges[i], strlen(merges[i])};
    if (!rc) {
        gguf_put_str(w, "tokenizer.ggml.model", "gpt2", 4);
        gguf_put_str(w, "tokenizer.ggml.pre", "qwen35", 6);
        gguf_put_strings(w, "tokenizer.ggml.tokens", pieces, n_vocab);
        gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, kinds, n_vocab);
        gguf_put_strings(w, "tokenizer.ggml.merges", merge_list, N_MERGE);
        gguf_put_u32(w, "tokenizer.ggml.bos_token_id", END_OF_TEXT);
        gguf_put_u32(w, "tokenizer.ggml.eos_token_id", END_OF_TURN);
        gguf_put_u32(w, "tokenizer.ggml.padding_token_id", END_OF_TEXT);
        gguf_put_bool(w, "tokenizer.ggml.add_bos_token", false);
        gguf_put_str(w, "tokenizer.chat_template", chat_template, sizeof chat_template - 1);
    }
    mem_free(pieces);
    mem_free(texts);
    mem_free(kinds);
    return rc;
}

/* hf_pre.c: recognizes a pre-tokenizer. tokenizer.json contains its steps and expressions; GGUF files contain its
 * name. The steps are written as one line of text and compared with those of known pre-tokenizers:
 *
 *   S<expression>  split at the expression      B  byte level with its own expression
 *   D              digits, one by one           b  byte level, bytes only
 *   d              digits, in groups            P  punctuation
 *
 * steps separated by U+0001. Flags that do not affect splitting (trim_offsets and the like) are ignored. */
#include <string.h>

#include "base/buf.h"
#include "convert/hf_vocab_impl.h"

#define SEP "\001"
#define ABBR "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LETTERS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define PUNCT "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
#define SPACES "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define CASED(abbr)                                                                                \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"     \
    "+" abbr "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}"  \
    "\\p{M}]*" abbr
#define ASCII_PUNCT "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]"
#define HAN_KANA "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
#define HAN_HANGUL "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"

struct known {
    const char *name, *steps;
    int ignore_merges; /* 0, 1, or -1: any */
};

static const struct known table[] = {
    {"qwen2", "S" ABBR LETTERS "|\\p{N}" PUNCT SPACES SEP "b", -1},
    {"qwen35",
     "S" ABBR
     "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" SPACES SEP
     "b",
     -1},
    {"llama-bpe", "S" ABBR LETTERS "|\\p{N}{1,3}" PUNCT SPACES SEP "b", 1},
    {"smaug-bpe", "S" ABBR LETTERS "|\\p{N}{1,3}" PUNCT SPACES SEP "b", 0},
    {"gpt-4o", "S" CASED(ABBR "?") "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" SPACES SEP "b",
     -1},
    {"tekken", "S" CASED("") "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" SPACES SEP "b", -1},
    {"seed-coder", "S" ABBR LETTERS "|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+" SPACES SEP "b", -1},
    {"exaone-moe",
     "S" ABBR "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}| "
     "?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+" SEP "b",
     -1},
    {"bailingmoe",
     "S'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|"
     "\\s*[\\r\\n]|\\s+(?!\\S)|\\s+" SEP "b",
     -1},
    {"deepseek-v3",
     "S\\p{N}{1,3}" SEP "S" HAN_KANA SEP "S" ASCII_PUNCT
     "[A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*" SPACES SEP
     "b",
     -1},
    {"deepseek-coder",
     "S[\\r\\n]" SEP "S\\s?\\p{L}+" SEP "S\\s?\\p{P}+" SEP "S" HAN_HANGUL SEP "D" SEP "b", -1},
    {"minicpm5", "S\\p{N}{1,3}" SEP "S" ABBR LETTERS "|\\p{N}+" PUNCT SPACES SEP "b", -1},
    {"tiny_aya",
     "S\\d{1,3}(?=(?:\\d{3})*\\b)" SEP
     "S" CASED(ABBR "?") "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" SPACES SEP "b",
     -1},
    {"laguna", "S(?:\\r?\\n)+(?!\\r?\\n)" SEP "S" ABBR LETTERS "|\\p{N}" PUNCT SPACES SEP "b", -1},
    {"gpt-2", "B", -1},
    {"gpt-2", "SPLIT-GPT2" SEP "b", -1},
    {"starcoder", "D" SEP "B", -1},
    {"falcon", "P" SEP "B" SEP "d" SEP "S[0-9][0-9][0-9]", -1},
    {"falcon", "P" SEP "B" SEP "S[0-9][0-9][0-9]", -1},
    {"bloom", "S ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+" SEP "b", -1},
};

/* Appends the expression with line ends as escapes, and with one spelling of contractions instead of two. */
static void put_pattern(struct buf *b, const char *p, size_t n) {
    static const char spelt[] = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])";
    static const char gpt2[] =
        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
    if (n == sizeof gpt2 - 1 && memcmp(p, gpt2, n) == 0) {
        buf_cut(b, b->n - 1);
        buf_puts(b, "SPLIT-GPT2");
        return;
    }
    for (size_t i = 0; i < n; i++) {
        if (n - i >= sizeof spelt - 1 && memcmp(p + i, spelt, sizeof spelt - 1) == 0) {
            buf_puts(b, ABBR);
            i += sizeof spelt - 2;
        } else if (p[i] == '\r') {
            buf_puts(b, "\\r");
        } else if (p[i] == '\n') {
            buf_puts(b, "\\n");
        } else {
            buf_putc(b, p[i]);
        }
    }
}

static void step(struct buf *b, const char *text) {
    if (b->n) buf_puts(b, SEP);
    buf_puts(b, text);
}

/* Appends the steps of a pre-tokenizer; returns false for a step that no known pre-tokenizer has. */
static bool describe(struct buf *b, const json_t *pre, int depth) {
    const char *type = json_string_value(json_object_get(pre, "type"));
    if (!type || depth > 8) return false;
    if (strcmp(type, "Sequence") == 0) {
        size_t i;
        json_t *item;
        json_array_foreach(json_object_get(pre, "pretokenizers"), i,
                           item) if (!describe(b, item, depth + 1)) return false;
        return true;
    }
    if (strcmp(type, "Split") == 0) {
        const json_t *p = json_object_get(pre, "pattern"), *text = json_object_get(p, "Regex");
        if (!text) text = json_object_get(p, "String");
        if (!json_is_string(text)) return false;
        step(b, "S");
        put_pattern(b, json_string_value(text), json_string_length(text));
        return true;
    }
    if (strcmp(type, "ByteLevel") == 0) {
        const json_t *own = json_object_get(pre, "use_regex");
        step(b, json_is_false(own) ? "b" : "B");
        return true;
    }
    if (strcmp(type, "Digits") == 0) {
        step(b, json_is_true(json_object_get(pre, "individual_digits")) ? "D" : "d");
        return true;
    }
    if (strcmp(type, "Punctuation") == 0) {
        step(b, "P");
        return true;
    }
    return false;
}

/* The long list of cased letters is recognized by its beginning. */
static bool is_deepseek_llm(const char *steps) {
    return strncmp(steps, "S[\\r\\n]" SEP "S\\s?[A-Za-z\u00b5",
                   sizeof "S[\\r\\n]" SEP "S\\s?[A-Za-z\u00b5" - 1) == 0;
}

int hf_pre_name(const struct hf_vocab *v, const char **name, struct err *e) {
    struct buf b;
    if ((*name = v->pre)) return 0;
    buf_init(&b, 1 << 16);
    bool told = describe(&b, v->pre_tokenizer, 0) && !b.failed && b.n;
    if (told && is_deepseek_llm(b.p)) *name = "deepseek-llm";
    for (size_t i = 0; told && !*name && i < sizeof table / sizeof table[0]; i++)
        if ((table[i].ignore_merges < 0 || table[i].ignore_merges == v->ignore_merges) &&
            strcmp(table[i].steps, b.p) == 0)
            *name = table[i].name;
    int rc = 0;
    if (!*name) {
        rc = err_set(e, CHIMERE_EUNSUPPORTED,
                     "tokenizer.json: pre_tokenizer: not one that is known: %.300s",
                     told ? b.p : "(no expression)");
        err_hint(e, "--pre NAME says which of the names of GGUF files it is");
    }
    buf_fini(&b);
    return rc;
}

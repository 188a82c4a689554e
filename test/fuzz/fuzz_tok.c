/* fuzz_tok.c: bytes as a small tokenizer and a text for it. Layout of an input:
 *   u8 kind of tokenizer | u8 pre-tokenizer | u8 flags | u8 number of tokens | u8 number of merges |
 *   tokens: u8 length (low 4 bits), u8 type, bytes | merges: u8 length (low 4 bits), bytes |
 *   unigram: u16 length of the charsmap, bytes | the rest: the text
 * What loads must encode any text into ids that exist; byte-level tokens must give the text back. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "text/tok/tok_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
    const uint8_t *p;
    size_t n;
};

static uint8_t byte(struct input *in) {
    if (!in->n) return 0;
    in->n--;
    return *in->p++;
}

static struct slice bytes(struct input *in, size_t n) {
    n = n < in->n ? n : in->n;
    struct slice s = {(const char *)in->p, n};
    in->p += n;
    in->n -= n;
    return s;
}

/* Streams the ids; counts what no stream may do. */
static void check_stream(const struct tok *t, const int32_t *ids, size_t n) {
    char *out = mem_alloc(3 * tok_max_piece_bytes(t) + 16);
    struct tok_stream s;
    if (!out) return;
    tok_stream_init(&s, t, true);
    for (size_t i = 0; i < n; i++)
        if (!utf8_is_valid(out, tok_stream_push(&s, ids[i], out))) __builtin_trap();
    if (!utf8_is_valid(out, tok_stream_flush(&s, out))) __builtin_trap();
    mem_free(out);
}

static void check_text(const struct tok *t, struct slice text, bool special, bool bos) {
    int32_t *ids;
    size_t n, at = 0;
    if (tok_encode(t, text.p, text.n, special, bos, &ids, &n, NULL)) __builtin_trap();
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || (uint32_t)ids[i] >= tok_n_vocab(t)) __builtin_trap();
    check_stream(t, ids, n);
    bool has_bytes = t->model == TOK_BPE && !(t->pre->flags & PRE_RAW) && !bos && !t->strips;
    for (int b = 0; has_bytes && b < 256; b++) has_bytes = t->byte_symbol[b] < t->n_vocab;
    for (size_t i = 0; has_bytes && i < n; i++) {
        struct slice p = tok_piece(t, ids[i]);
        if (p.n > text.n - at || memcmp(p.p, text.p + at, p.n) != 0) __builtin_trap();
        at += p.n;
    }
    if (has_bytes && at != text.n) __builtin_trap();
    mem_free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct slice pieces[512], merges[256];
    static uint8_t kinds[512], strips[512];
    static float scores[512];
    static char letters[256][3], pre[64];
    struct input in = {data, size};
    struct tok_spec s = {.pieces = pieces,
                         .merges = merges,
                         .kinds = kinds,
                         .scores = scores,
                         .bos = 0,
                         .eos = 1,
                         .unk = 2,
                         .sep = 1,
                         .pad = -1,
                         .cls = 0,
                         .mask = -1,
                         .eot = -1};
    s.model = (enum tok_model)(byte(&in) % 4);
    size_t n_def = 0, def = byte(&in);
    while (tok_pre_at(n_def)) n_def++;
    const char *names = tok_pre_at(def % n_def)->names;
    memcpy(pre, names, strcspn(names, " "));
    pre[strcspn(names, " ")] = 0;
    s.pre = pre;
    uint8_t flags = byte(&in);
    s.add_bos = flags & 1, s.add_eos = flags >> 1 & 1, s.add_space_prefix = flags >> 2 & 1;
    s.remove_extra_whitespace = flags >> 3 & 1;
    if (flags & 16) s.strips = strips;
    uint32_t n_token = 3 + byte(&in) % 200;
    s.n_merges = byte(&in);
    for (; s.n_vocab < n_token; s.n_vocab++) {
        size_t n = byte(&in) & 15;
        kinds[s.n_vocab] = byte(&in) & 7;
        strips[s.n_vocab] = kinds[s.n_vocab] == TOK_CONTROL ? flags >> 5 & 3 : 0;
        pieces[s.n_vocab] = bytes(&in, n);
        scores[s.n_vocab] = -(float)n;
    }
    for (uint32_t b = 0, next = 256; (flags & 128) && b < 256;
         b++) { /* all bytes, as most models have */
        bool itself = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE);
        letters[b][utf8_encode(itself ? b : next++, letters[b])] = 0;
        kinds[s.n_vocab] = TOK_NORMAL;
        scores[s.n_vocab] = -99;
        pieces[s.n_vocab++] = (struct slice){letters[b], strlen(letters[b])};
    }
    for (uint32_t i = 0; i < s.n_merges; i++) merges[i] = bytes(&in, byte(&in) & 15);
    if (s.model == TOK_UNIGRAM) s.charsmap = bytes(&in, (size_t)byte(&in) << 8 | byte(&in));
    struct tok *t;
    struct err e = {0};
    if (tok_new(&t, &s, &e)) {
        if (!e.text[0]) __builtin_trap();
        return 0;
    }
    struct slice text = {(const char *)in.p, in.n};
    check_text(t, text, false, false);
    check_text(t, text, true, true);
    tok_free(t);
    return 0;
}

/* grammar_walk.h: what the grammar fuzz targets share: a text through a matcher, masks on the way. A
 * token of the mask must be accepted, any other must not, and no state may be without a way on. */
#ifndef CHIMERE_FUZZ_GRAMMAR_WALK_H
#define CHIMERE_FUZZ_GRAMMAR_WALK_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "text/grammar/grammar_mask.h"

enum { WALK_N_VOCAB = 272, WALK_END = 271, WALK_N_STEP = 64 };

static struct grammar_vocab *walk_vocab(void) {
    static char bytes[256];
    static struct slice pieces[WALK_N_VOCAB];
    static uint8_t kinds[WALK_N_VOCAB];
    static const char *const more[] = {"{\"", "\":",      "\",\"",  "\"}",   "ab",
                                       "é",   "\xe6\x97", "\xa5\"", "\\u00", "123",
                                       "0.5", "  ",       "},{",    "true",  "\"a\":1"};
    static struct grammar_vocab *v;
    if (v) return v;
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        pieces[i] = (struct slice){&bytes[i], 1};
    }
    for (int i = 256; i < WALK_END; i++)
        pieces[i] = (struct slice){more[i - 256], strlen(more[i - 256])};
    pieces[WALK_END] = SLICE("<end>");
    kinds[WALK_END] = GRAMMAR_TOKEN_EOG;
    if (grammar_vocab_new(&v, WALK_N_VOCAB, pieces, kinds, NULL)) abort();
    return v;
}

/* The allowed token that `steer` points at; -1 if none is allowed. */
static int walk_pick(const uint64_t *bits, uint8_t steer) {
    int allowed[WALK_N_VOCAB], n = 0;
    for (int i = 0; i < WALK_N_VOCAB; i++)
        if (bits[i / 64] >> i % 64 & 1) allowed[n++] = i;
    return n ? allowed[steer % n] : -1;
}

/* The mask of s, each token tried. False where the automaton outgrows its memory. */
static bool walk_mask(struct grammar_state *s, uint64_t *bits) {
    uint64_t mark = grammar_mark(s);
    if (grammar_mask(s, bits)) return false;
    for (int t = 0; t < WALK_N_VOCAB; t++) {
        int rc = grammar_accept_token(s, t);
        if (rc != CHIMERE_ELIMIT && (rc == 0) != (bits[t / 64] >> t % 64 & 1)) __builtin_trap();
        if (rc == 0 && grammar_rewind(s, mark)) __builtin_trap();
    }
    return true;
}

/* Takes text byte by byte as far as it matches, then as a guide among the allowed tokens. */
static void walk(const struct grammar *g, const char *text, size_t n) {
    struct grammar_matcher *m;
    struct grammar_state *s;
    uint64_t bits[(WALK_N_VOCAB + 63) / 64];
    size_t good;
    if (grammar_matcher_new(&m, g, walk_vocab(), 1, NULL)) return;
    if (grammar_state_new(&s, m, NULL) == 0) {
        for (size_t i = 0; i < n && i < WALK_N_STEP && walk_mask(s, bits); i++)
            if (grammar_accept_bytes(s, text + i, 1, &good)) break;
        grammar_state_free(s);
    }
    if (grammar_state_new(&s, m, NULL) == 0) {
        for (size_t i = 0; i < n && i < WALK_N_STEP && !grammar_mask(s, bits); i++) {
            int id = walk_pick(bits, (uint8_t)text[i]);
            if (id < 0) __builtin_trap();
            int rc = grammar_accept_token(s, id);
            if (rc == CHIMERE_ELIMIT) break;
            if (rc) __builtin_trap();
        }
        grammar_state_free(s);
    }
    grammar_matcher_free(m);
}

typedef int (*walk_compile)(struct grammar **out, const char *text, size_t n,
                            const struct grammar_limits *limits, struct err *e);

/* data: a grammar's text, a NUL, and a text to match. Compiling ends within its limits, and says why. */
static int walk_input(walk_compile compile, const uint8_t *data, size_t size) {
    static const struct grammar_limits limits = {
        .text_bytes = 1 << 14, .depth = 64, .n_rule = 2000, .n_node = 20000, .time_ms = 400};
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    size_t n = nul ? (size_t)(nul - data) : size;
    struct grammar *g;
    struct err e = {0};
    if (compile(&g, (const char *)data, n, &limits, &e)) {
        if (!e.text[0]) __builtin_trap();
        return 0;
    }
    walk(g, nul ? (const char *)nul + 1 : "", nul ? size - n - 1 : 0);
    grammar_free(g);
    return 0;
}

#endif

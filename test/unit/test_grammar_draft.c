/* test_grammar_draft.c: tokens that a grammar forces, against trying every piece of the vocabulary. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/rng.h"
#include "text/grammar/grammar_mask.h"

/* All bytes, pieces that the texts below can be cut into, a special token and an end. */
static const char *const pieces_text[] = {
    "{\"",         "\":",         "\": ",      "\",\"",  "\"}",    "le",      "left",
    "lea",         "leaf",        "leaf\"",    "\"left", "ri",     "right",   "right\":{",
    "null",        "nu",          "eft",       "ight",   " right", "t right", "eft right",
    "\"left\":\"", "\"right\":{", "\"leaf\":", "ul",     "}}",     "der"};
enum { N_PIECE = sizeof pieces_text / sizeof *pieces_text, SPECIAL = 256 + N_PIECE, END, N_SMALL };

static struct grammar_vocab *vocab(void) {
    static char bytes[256];
    static struct slice pieces[N_SMALL];
    static uint8_t kinds[N_SMALL];
    struct grammar_vocab *v;
    struct err e = {0};
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        pieces[i] = (struct slice){&bytes[i], 1};
    }
    for (size_t i = 0; i < N_PIECE; i++)
        pieces[256 + i] = (struct slice){pieces_text[i], strlen(pieces_text[i])};
    pieces[SPECIAL] = SLICE("left"); /* the text of a piece, but never allowed */
    kinds[SPECIAL] = GRAMMAR_TOKEN_SPECIAL;
    pieces[END] = SLICE("<end>");
    kinds[END] = GRAMMAR_TOKEN_EOG;
    assert_int_equal(grammar_vocab_new(&v, N_SMALL, pieces, kinds, &e), 0);
    return v;
}

static const char *piece_text(int id, size_t *n) {
    static char byte;
    if (id < 256) {
        byte = (char)id;
        *n = 1;
        return &byte;
    }
    *n = strlen(pieces_text[id - 256]);
    return pieces_text[id - 256];
}

/* The longest piece that the forced bytes begin with, found by trying every piece; a piece is taken each time, so that
 * texts are cut in odd places too. */
static void forced_tokens_are_the_longest(void **state) {
    (void)state;
    static const char *const schemas[] = {
        "{\"type\":\"object\",\"properties\":{\"left\":{\"enum\":[\"leaf\",\"leader\"]},\"right\":{"
        "\"type\":\"object\",\"properties\":{\"leaf\":{\"const\":null}},\"required\":[\"leaf\"],"
        "\"additionalProperties\":false}},\"required\":[\"left\",\"right\"],"
        "\"additionalProperties\":false}",
        "{\"const\":\"left right left\"}"};
    struct grammar_vocab *v = vocab();
    const struct grammar_limits plain = {.plain = true};
    struct rng r;
    int n_found = 0, n_none = 0;
    rng_seed(&r, 17);
    for (int i = 0; i < 400; i++) {
        struct grammar *g;
        struct grammar_matcher *m;
        struct grammar_state *s;
        const char *schema = schemas[i % 2];
        assert_int_equal(grammar_from_schema(&g, schema, strlen(schema), &plain, NULL), 0);
        assert_int_equal(grammar_matcher_new(&m, g, v, 0, NULL), 0);
        assert_int_equal(grammar_state_new(&s, m, NULL), 0);
        while (!grammar_is_complete(s)) {
            char text[64];
            size_t n = grammar_forced(s, text, sizeof text), best = 0;
            uint64_t mark = grammar_mark(s);
            int32_t got = grammar_forced_token(s);
            assert_int_equal(grammar_mark(s), mark);
            for (int id = 0; id < 256 + (int)N_PIECE; id++) {
                size_t len;
                const char *piece = piece_text(id, &len);
                if (len <= n && len > best && !memcmp(piece, text, len)) best = len;
            }
            size_t len = 0;
            const char *piece = got >= 0 ? piece_text(got, &len) : "";
            assert_int_equal(len, best);
            assert_memory_equal(piece, text, len);
            n_found += got >= 0;
            n_none += got < 0;
            uint64_t bits[(N_SMALL + 63) / 64];
            int32_t ids[N_SMALL], n_id = 0;
            assert_int_equal(grammar_mask(s, bits), 0);
            for (int32_t id = 0; id < N_SMALL; id++)
                if (bits[id / 64] >> id % 64 & 1) ids[n_id++] = id;
            bool follow = got >= 0 && rng_below(&r, 2);
            assert_int_equal(
                grammar_accept_token(s, follow ? got : ids[rng_below(&r, (uint64_t)n_id)]), 0);
        }
        assert_int_equal(grammar_forced_token(s), -1);
        grammar_state_free(s);
        grammar_matcher_free(m);
        grammar_free(g);
    }
    assert_true(n_found > 1000 && n_none > 400);
    grammar_vocab_free(v);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(forced_tokens_are_the_longest)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

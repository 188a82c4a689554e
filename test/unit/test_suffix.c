/* test_suffix.c: the store of suffixes against counts by brute force, its scopes, its file and damaged files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/draft/suffix.h"
#include "scratch.h"

enum { N_TEXT = 3000, VOCAB = 12 };
static const int32_t orders[SUFFIX_N_ORDER] = {1, 2, 3, 5, 8, 13};

static struct suffix *new_store(void) {
    struct suffix *x;
    assert_int_equal(suffix_new(&x, NULL), 0);
    return x;
}

/* A text with long repetitions, so that every order has something to say. */
static void fill_text(int32_t *text, int32_t n, uint64_t seed) {
    struct rng r;
    rng_seed(&r, seed);
    for (int32_t i = 0; i < n; i++) {
        if (i > 100 && rng_below(&r, 40) == 0) {
            int32_t from = (int32_t)rng_below(&r, (uint64_t)i - 60),
                    len = 20 + (int32_t)rng_below(&r, 30);
            for (int32_t k = 0; k < len && i < n; k++) text[i++] = text[from + k];
            i--;
        } else {
            text[i] = (int32_t)rng_below(&r, VOCAB);
        }
    }
}

/* How often each token followed the last `order` tokens of text[0..n) in it. */
static void count_followers(const int32_t *text, int32_t n, int32_t order, int32_t *counts) {
    memset(counts, 0, VOCAB * sizeof *counts);
    for (int32_t end = order; end < n; end++)
        if (memcmp(text + end - order, text + n - order, (size_t)order * sizeof *text) == 0)
            counts[text[end]]++;
}

/* The longest order that occurred is used, but for a few that others displaced; where it has one follower, that follower is named with share 1; else a token that
 * did follow, and at the end mostly the favourite. */
static void proposals_are_what_followed(void **state) {
    (void)state;
    static int32_t text[N_TEXT];
    struct suffix *x = new_store();
    int n_sure = 0, n_long = 0, n_favourite = 0, n_unsure = 0, n_lost = 0;
    fill_text(text, N_TEXT, 3);
    for (int32_t n = 1; n < N_TEXT; n++) {
        struct suffix_next next;
        int32_t counts[VOCAB], want = -1, total = 0, n_kind = 0, most = 0;
        for (int k = SUFFIX_N_ORDER - 1; k >= 0 && want < 0; k--) {
            if (orders[k] >= n) continue;
            count_followers(text, n, orders[k], counts);
            for (int32_t t = 0; t < VOCAB; t++) {
                total += counts[t];
                n_kind += counts[t] > 0;
                if (counts[t] > most) most = counts[t];
            }
            if (total) want = k;
        }
        bool got = suffix_next(x, 7, text, n, &next);
        if (got) assert_true(next.order <= want);               /* no order is made up */
        if (got != (want >= 0) || (got && next.order < want)) { /* displaced by another context */
            n_lost++;
        } else if (got) {
            assert_true(counts[next.token] > 0);
            if (n_kind == 1) assert_true(next.share == 1.0f), n_sure++;
            else n_unsure++, n_favourite += counts[next.token] == most;
            n_long += want >= 3;
            assert_true(next.share > 0 && next.share <= 1);
        }
        assert_false(suffix_next(x, 8, text, n, &next)); /* another scope knows nothing */
        suffix_learn(x, 7, text, n + 1);
    }
    assert_true(n_lost < N_TEXT / 20);
    assert_true(n_sure > 300 && n_long > 500);
    assert_true(3 * n_favourite > 2 * n_unsure);
    suffix_free(x);
}

/* Far more contexts than entries: what came often and lately is known, and nothing breaks. */
static void old_texts_fade(void **state) {
    (void)state;
    static int32_t text[200000];
    static const int32_t often[] = {900001, 900002, 900003, 900004, 900005, 900006};
    struct suffix *x = new_store();
    struct suffix_next next;
    struct rng r;
    rng_seed(&r, 9);
    for (int32_t i = 0; i < 200000; i++) text[i] = (int32_t)rng_below(&r, 100000);
    for (int32_t i = 1; i < 100000; i++) suffix_learn(x, 0, text, i + 1 < 40 ? i + 1 : 40);
    for (int i = 0; i < 30; i++)
        for (int32_t n = 2; n <= 6; n++) suffix_learn(x, 0, often, n);
    for (int32_t i = 40; i < 20000; i++) suffix_learn(x, 0, text + i - 40, 40);
    int n_known = 0;
    for (int32_t n = 1; n < 6; n++)
        n_known += suffix_next(x, 0, often, n, &next) && next.token == often[n];
    assert_true(n_known >= 4);
    suffix_free(x);
}

static void files_are_read_as_they_were_written(void **state) {
    (void)state;
    static int32_t text[N_TEXT];
    char path[512];
    struct err e = {0};
    struct suffix *x = new_store(), *y = new_store();
    struct suffix_next a, b;
    fill_text(text, N_TEXT, 5);
    for (int32_t n = 2; n <= N_TEXT; n++) suffix_learn(x, 1, text, n);
    snprintf(path, sizeof path, "%s/suffix", scratch);
    if (suffix_save(x, path, 77, &e) || suffix_load(y, path, 77, &e)) fail_msg("%s", e.text);
    for (int32_t n = 1; n < N_TEXT; n++) {
        assert_int_equal(suffix_next(x, 1, text, n, &a), suffix_next(y, 1, text, n, &b));
        assert_memory_equal(&a, &b, sizeof a);
    }
    suffix_free(y);
    /* another model's, cut, damaged in the head and in an entry, another file: refused, and nothing is known */
    char *bytes;
    size_t n_byte;
    assert_int_equal(file_read(path, (size_t)1 << 24, &bytes, &n_byte, &e), 0);
    static const struct {
        size_t n_cut, at;
        uint64_t layout;
        int want;
    } bad[] = {{0, SIZE_MAX, 78, CHIMERE_EMISMATCH},
               {1, SIZE_MAX, 77, CHIMERE_EFORMAT},
               {1 << 20, SIZE_MAX, 77, CHIMERE_EFORMAT},
               {0, 0, 77, CHIMERE_EFORMAT},
               {0, 9, 77, CHIMERE_EFORMAT},
               {0, 13, 77, CHIMERE_EFORMAT},
               {0, 100000, 77, CHIMERE_ECHECKSUM}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        y = new_store();
        if (bad[i].at != SIZE_MAX) bytes[bad[i].at] ^= 1;
        assert_int_equal(file_write(path, bytes, n_byte - bad[i].n_cut, &e), 0);
        if (bad[i].at != SIZE_MAX) bytes[bad[i].at] ^= 1;
        assert_int_equal(suffix_load(y, path, bad[i].layout, &e), bad[i].want);
        assert_non_null(strstr(e.text, path));
        for (int32_t n = 1; n < 200; n++) assert_false(suffix_next(y, 1, text, n, &a));
        suffix_free(y);
    }
    mem_free(bytes);
    remove(path);
    y = new_store();
    assert_true(suffix_load(y, path, 77, &e) < 0);
    suffix_free(x);
    suffix_free(y);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(proposals_are_what_followed),
        cmocka_unit_test(old_texts_fade),
        cmocka_unit_test(files_are_read_as_they_were_written),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}

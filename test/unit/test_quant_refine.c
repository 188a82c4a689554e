/* test_quant_refine.c: rounding by correlation against e C e computed here from decoded rows, and against every
 * single change of a code. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "format/quant.h"
#include "format/quant_code.h"
#include "format/quant_ik.h"
#include "format/quant_refine.h"

enum { N = 512, BLOCK = QUANT_REFINE_BLOCK, ROOM = 4096 };

static float row[N], weights[N], correlation[N * BLOCK];

/* A few directions that all inputs share, and noise of their own: positive definite. */
static void fill(int n, uint64_t seed) {
    static float direction[4][N];
    struct rng r;
    rng_seed(&r, seed);
    for (int i = 0; i < n; i++) {
        row[i] = (float)rng_normal(&r) * .02f;
        float size = (float)exp(rng_normal(&r));
        for (int k = 0; k < 4; k++) direction[k][i] = size * (float)rng_normal(&r);
    }
    memset(correlation, 0, sizeof correlation);
    for (int i = 0; i < n; i++)
        for (int j = i / BLOCK * BLOCK; j < n && j < (i / BLOCK + 1) * BLOCK; j++) {
            double sum = 0;
            for (int k = 0; k < 4; k++) sum += (double)direction[k][i] * (double)direction[k][j];
            if (i == j) sum *= 1.3;
            correlation[i * BLOCK + j % BLOCK] = (float)sum;
            if (i == j) weights[i] = (float)sum;
        }
}

static double output_error(uint32_t type, const uint8_t *bytes, int n) {
    float y[N];
    double sum = 0;
    quant_traits(type)->decode(bytes, y, (size_t)n);
    for (int i = 0; i < n; i++)
        for (int j = i / BLOCK * BLOCK; j < n && j < (i / BLOCK + 1) * BLOCK; j++)
            sum += ((double)row[i] - (double)y[i]) * (double)correlation[i * BLOCK + j % BLOCK] *
                   ((double)row[j] - (double)y[j]);
    return sum;
}

static bool is_refined(uint32_t type) {
    return quant_traits(type) && quant_traits(type)->encode && quant_code(type);
}

/* A code that is written changes its own weights alone, and is read again. */
static void codes_are_where_the_decoder_reads_them(void **state) {
    (void)state;
    int n_type = 0;
    fill(BLOCK, 1);
    for (uint32_t type = 0; type < QUANT_N_ID; type++) {
        if (!is_refined(type)) continue;
        const struct quant_traits *t = quant_traits(type);
        uint8_t bytes[ROOM], other[ROOM];
        float y[BLOCK], z[BLOCK];
        n_type++;
        assert_true(t->encode(row, bytes, BLOCK, weights));
        t->decode(bytes, y, BLOCK);
        for (int part = 0; part < QUANT_CODE_PARTS && quant_code(type)->part[part].n; part++) {
            const struct quant_part *p = &quant_code(type)->part[part];
            int count = quant_code_count(p), per_block = (int)t->block_elements / p->n;
            for (int u = 0; u < BLOCK / p->n; u++) {
                size_t at = t->head_bytes + (size_t)(u / per_block) * t->block_bytes;
                uint32_t now = quant_code_read(p, bytes + at, u % per_block);
                assert_true(now < (uint32_t)count);
                memcpy(other, bytes, sizeof other);
                uint32_t to = (now + 1 + (uint32_t)u) % (uint32_t)count;
                quant_code_write(p, other + at, u % per_block, to);
                assert_int_equal(quant_code_read(p, other + at, u % per_block), to);
                t->decode(other, z, BLOCK);
                bool differs = false;
                for (int i = 0; i < BLOCK; i++) {
                    bool own = i / p->n == u, same = !(y[i] < z[i]) && !(y[i] > z[i]);
                    if (!own && !same) fail_msg("%s: unit %d changes weight %d", t->name, u, i);
                    differs |= own && !same;
                }
                bool is_zero = true; /* under a scale of zero all codes are one */
                for (int i = u * p->n; i < (u + 1) * p->n; i++) is_zero &= fabsf(y[i]) <= 0;
                if (to != now && !differs && !is_zero)
                    fail_msg("%s: unit %d: code %u is code %u", t->name, u, to, now);
                quant_code_write(p, other + at, u % per_block, now);
                assert_memory_equal(other, bytes, sizeof other);
            }
        }
    }
    assert_true(n_type >= 24);
}

static void errors_fall_and_never_rise(void **state) {
    (void)state;
    for (uint32_t type = 0; type < QUANT_N_ID; type++) {
        if (!quant_refine_is_possible(type) || !quant_traits(type)->encode) continue;
        double before = 0, after = 0;
        for (uint64_t seed = 1; seed <= 3; seed++) {
            uint8_t plain[ROOM], refined[ROOM];
            fill(N, seed);
            const struct quant_hints hints = {weights, correlation}, none = {weights, NULL};
            assert_true(quant_refine_encode(type, row, plain, N, &none));
            assert_true(quant_refine_encode(type, row, refined, N, &hints));
            double a = output_error(type, plain, N), b = output_error(type, refined, N);
            if (b > a * (1 + 1e-6))
                fail_msg("%s: e C e rises from %g to %g", quant_traits(type)->name, a, b);
            before += a;
            after += b;
        }
        if (after > .8 * before)
            fail_msg("%s: e C e falls from %g to %g only", quant_traits(type)->name, before, after);
    }
}

/* No other code of any unit is better. */
static void no_single_change_helps(void **state) {
    (void)state;
    fill(BLOCK, 5);
    const struct quant_hints hints = {weights, correlation};
    for (uint32_t type = 0; type < QUANT_N_ID; type++) {
        if (!is_refined(type) || quant_code(type)->part[1].n) continue;
        const struct quant_part *p = &quant_code(type)->part[0];
        const struct quant_traits *t = quant_traits(type);
        int count = quant_code_count(p), per_block = (int)t->block_elements / p->n;
        uint8_t bytes[ROOM];
        assert_true(quant_refine_encode(type, row, bytes, BLOCK, &hints));
        double least = output_error(type, bytes, BLOCK);
        for (int u = 0; u < BLOCK / p->n; u += 5)
            for (int c = 0; c < count; c++) {
                uint8_t other[ROOM];
                memcpy(other, bytes, sizeof other);
                quant_code_write(p,
                                 other + t->head_bytes + (size_t)(u / per_block) * t->block_bytes,
                                 u % per_block, (uint32_t)c);
                double error = output_error(type, other, BLOCK);
                if (error < least * (1 - 1e-4))
                    fail_msg("%s: code %d of unit %d gives %g, less than %g", t->name, c, u, error,
                             least);
            }
    }
}

/* iq4_kss: no two codes of a word can change by two steps or fewer, with even parity kept, to a lower error. */
static void no_change_within_a_word_helps(void **state) {
    (void)state;
    fill(BLOCK, 7);
    const struct quant_hints hints = {weights, correlation};
    const struct quant_part *p = &quant_code(QUANT_IQ4_KS)->part[0];
    uint8_t bytes[ROOM], other[ROOM], ks[136], back[128];
    assert_true(quant_refine_encode(QUANT_IQ4_KSS, row, bytes, BLOCK, &hints));
    double least = output_error(QUANT_IQ4_KSS, bytes, BLOCK);
    memcpy(other, bytes, 4);
    quant_ik_kss_open(bytes + 4, ks);
    quant_ik_kss_close(ks, back);
    assert_memory_equal(back, bytes + 4, sizeof back);
    for (int w = 0; w < 64; w += 9)
        for (int change = 0; change < 5 * 5 * 16; change++) {
            int at[2] = {change / 25 % 4, change / 100},
                by[2] = {change % 5 - 2, change / 5 % 5 - 2};
            uint8_t trial[136];
            memcpy(trial, ks, sizeof trial);
            bool fits = at[0] != at[1];
            for (int i = 0; i < 2; i++) {
                int k = w / 8 * 32 + w % 8 * 2 + at[i] % 2 + at[i] / 2 * 16;
                int to = (int)quant_code_read(p, ks, k) + by[i];
                fits &= to >= 0 && to < 16;
                if (fits) quant_code_write(p, trial, k, (uint32_t)to);
            }
            uint32_t word = (uint32_t)(trial[8 + 2 * w] | trial[9 + 2 * w] << 8);
            if (!fits || __builtin_parity(word)) continue;
            quant_ik_kss_close(trial, other + 4);
            double error = output_error(QUANT_IQ4_KSS, other, BLOCK);
            if (error < least * (1 - 1e-4))
                fail_msg("word %d: a change gives %g, less than %g", w, error, least);
        }
}

static void short_rows_end_in_a_part_of_a_block(void **state) {
    (void)state;
    static const uint32_t types[] = {QUANT_Q4_0, QUANT_Q5_1, QUANT_IQ4_NL};
    static const int lengths[] = {32, 96, 288};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
            uint8_t plain[ROOM], refined[ROOM];
            size_t n = (size_t)lengths[k];
            fill(lengths[k], 9);
            const struct quant_hints hints = {weights, correlation};
            memset(refined, 0xa5, sizeof refined);
            assert_true(quant_traits(types[i])->encode(row, plain, n, weights));
            assert_true(quant_refine_encode(types[i], row, refined, n, &hints));
            assert_true(output_error(types[i], refined, lengths[k]) <
                        output_error(types[i], plain, lengths[k]));
            uint64_t bytes;
            assert_true(quant_row_bytes(types[i], n, &bytes));
            for (size_t b = (size_t)bytes; b < sizeof refined; b++)
                assert_int_equal(refined[b], 0xa5);
        }
}

static void errors_are_those_of_outputs(void **state) {
    (void)state;
    uint8_t bytes[ROOM];
    float y[N];
    fill(N, 3);
    const struct quant_hints hints = {weights, correlation}, diagonal = {weights, NULL},
                             none = {NULL, NULL};
    assert_true(quant_traits(QUANT_Q4_K)->encode(row, bytes, N, weights));
    double want = output_error(QUANT_Q4_K, bytes, N), ones = 0, weighted = 0;
    quant_traits(QUANT_Q4_K)->decode(bytes, y, N);
    for (int i = 0; i < N; i++) {
        y[i] = row[i] - y[i];
        ones += (double)y[i] * (double)y[i];
        weighted += (double)weights[i] * (double)y[i] * (double)y[i];
    }
    assert_true(fabs(quant_refine_error(y, N, &hints) - want) < 1e-4 * want);
    assert_true(fabs(quant_refine_error(y, N, &diagonal) - weighted) < 1e-9 * weighted);
    assert_true(fabs(quant_refine_error(y, N, &none) - ones) < 1e-9 * ones);
}

static void other_types_are_encoded_as_before(void **state) {
    (void)state;
    uint8_t plain[ROOM], refined[ROOM];
    fill(N, 4);
    const struct quant_hints hints = {weights, correlation};
    assert_false(quant_refine_is_possible(QUANT_Q8_0));
    assert_true(quant_refine_is_possible(QUANT_Q2_K));
    assert_true(quant_refine_is_possible(QUANT_IQ4_KSS));
    memset(plain, 0, sizeof plain);
    memset(refined, 0, sizeof refined);
    assert_true(quant_traits(QUANT_Q8_0)->encode(row, plain, N, weights));
    assert_true(quant_refine_encode(QUANT_Q8_0, row, refined, N, &hints));
    assert_memory_equal(plain, refined, sizeof plain);
}

static void memory_may_run_out(void **state) {
    (void)state;
    uint8_t bytes[ROOM];
    fill(N, 6);
    const struct quant_hints hints = {weights, correlation};
    int64_t before = mem_alloc_count();
    assert_true(quant_refine_encode(QUANT_IQ3_S, row, bytes, N, &hints));
    int64_t n = mem_alloc_count() - before;
    assert_true(n > 0);
    for (int64_t i = 1; i <= n; i++) {
        mem_fail_nth(i);
        assert_false(quant_refine_encode(QUANT_IQ3_S, row, bytes, N, &hints));
        mem_fail_nth(0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_are_where_the_decoder_reads_them),
        cmocka_unit_test(errors_fall_and_never_rise),
        cmocka_unit_test(no_single_change_helps),
        cmocka_unit_test(no_change_within_a_word_helps),
        cmocka_unit_test(short_rows_end_in_a_part_of_a_block),
        cmocka_unit_test(errors_are_those_of_outputs),
        cmocka_unit_test(other_types_are_encoded_as_before),
        cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

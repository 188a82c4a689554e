/* test_gemm.c: packed products of each instruction set: the same bits for any number of rows and on every
 * instruction set, exact integers at the limits of 16-bit sums, rounding of activations.
 *
 * AVX-VNNI runs through an emulation of its one instruction, so that any processor with AVX2 tests it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/os/features.h"
#include "base/rng.h"
#include "format/quant.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/ref/ref.h"

#if defined(__x86_64__)
#include <immintrin.h>
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif
/* vpdpbusd: per 32-bit lane, four products of unsigned and signed bytes, added without saturation. */
static inline __attribute__((always_inline)) __m256i dpbusd_emulated(__m256i sum, __m256i u,
                                                                     __m256i s) {
    __m256i low = _mm256_set1_epi16(255);
    __m256i even =
        _mm256_madd_epi16(_mm256_and_si256(u, low), _mm256_srai_epi16(_mm256_slli_epi16(s, 8), 8));
    __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(u, 8), _mm256_srai_epi16(s, 8));
    return _mm256_add_epi32(sum, _mm256_add_epi32(even, odd));
}
#define GEMM_DPBUSD dpbusd_emulated
#define GEMM_TABLE gemm_emulated
extern const struct gemm gemm_emulated;
#include "kernels/cpu/simd_avx2.h"

#include "kernels/cpu/gemm/gemm_avx2.h"

#include "kernels/cpu/gemm/gemm_vnni.inc"
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

static const struct gemm *tables[4];
static const char *table_names[4];
static int n_table;
static struct rng rng;

enum { N_OUT = 21, MAX_ROW = GEMM_ROWS, MAX_IN = 1280 };

/* A packed matrix of N_OUT rows, and its values as the codec decodes them. */
struct packed {
    uint8_t *file, *tiles;
    float *values;
    const struct repack_form *form;
    int64_t n_in;
};

static void pack_open(struct packed *p, uint32_t type, int64_t n_in, bool extreme) {
    const struct quant_traits *t = quant_traits(type);
    struct weight w = {.type = type, .n_in = n_in, .n_out = N_OUT, .n_mat = 1};
    uint64_t row_bytes = 0;
    assert_true(quant_row_bytes(type, (uint64_t)n_in, &row_bytes)); /* with the row's head */
    w.row_bytes = (size_t)row_bytes;
    w.mat_bytes = w.row_bytes * N_OUT;
    p->file = mem_alloc(w.mat_bytes);
    p->form = repack_form_of(type);
    p->n_in = n_in;
    for (size_t i = 0; i < w.mat_bytes; i++)
        p->file[i] = extreme ? (uint8_t)(rng_next(&rng) & 1 ? 0x3f : 0x7b)
                             : (uint8_t)(rng_next(&rng) & 0x3f);
    w.data = p->file;
    p->tiles = mem_aligned(64, repack_bytes(&w));
    if (extreme &&
        !repack_tiles(&w, 0, repack_n_tile(N_OUT), p->tiles)) /* its scales became infinite */
        for (size_t i = 0; i < w.mat_bytes; i++) p->file[i] &= 0x3f;
    assert_true(repack_tiles(&w, 0, repack_n_tile(N_OUT), p->tiles));
    p->values = mem_alloc((size_t)n_in * N_OUT * sizeof(float));
    for (int i = 0; i < N_OUT; i++)
        t->decode(p->file + (size_t)i * w.row_bytes, p->values + i * n_in, (size_t)n_in);
}

static void pack_close(struct packed *p) {
    mem_free(p->file);
    mem_free(p->tiles);
    mem_free(p->values);
}

static void multiply(const struct gemm *g, const struct packed *p, const uint8_t *acts,
                     const int32_t *rows, int n_row, float *y) {
    static _Alignas(64) uint8_t room[GEMM_ROOM];
    struct gemm_call c = {.form = p->form, .n_tile = 2, .n_in = p->n_in, .rows = rows};
    gemm_set_acts(&c, acts, p->n_in, 0);
    c.tile[0] = p->tiles;
    c.tile[1] = p->tiles + repack_tile_bytes(p->form, p->n_in);
    c.n_row = n_row;
    c.y = y;
    c.room = room;
    g->tiles(&c);
}

static bool multiple_of_32(uint32_t type) { return quant_traits(type)->block_elements <= 32; }

static void same_bits_for_any_rows_and_isa(void **st) {
    (void)st;
    static const int n_rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 31, 32, 33, 49, 63, 64, 65, 255, 256};
    static const int64_t widths[] = {32, 96, 256, 1056, 1280};
    size_t stride = gemm_act_bytes(MAX_IN);
    uint8_t *acts = mem_aligned(64, stride * MAX_ROW);
    float *x = mem_alloc(MAX_IN * sizeof *x),
          *y = mem_aligned(64, sizeof(float) * MAX_ROW * GEMM_Y);
    float *first = mem_aligned(64, sizeof(float) * MAX_ROW * GEMM_Y);
    for (uint32_t type = 0; type < QUANT_N_ID; type++)
        for (size_t k = 0; repack_form_of(type) && k < sizeof widths / sizeof *widths; k++) {
            if (widths[k] % 256 && !multiple_of_32(type)) continue;
            struct packed p;
            pack_open(&p, type, widths[k], false);
            for (int i = 0; i < n_table; i++) {
                for (int r = 0; r < MAX_ROW; r++) {
                    struct rng each;
                    rng_seed(&each, (uint64_t)r);
                    for (int64_t j = 0; j < p.n_in; j++) x[j] = (float)rng_normal(&each);
                    tables[i]->quantise(x, p.n_in, acts + (size_t)r * gemm_act_bytes(p.n_in));
                }
                int32_t rows[MAX_ROW];
                for (int r = 0; r < MAX_ROW; r++) rows[r] = r * 77 % MAX_ROW;
                for (size_t n = 0; n < sizeof n_rows / sizeof *n_rows; n++) {
                    int first_row = n % 2 ? MAX_ROW - n_rows[n] : 0;
                    multiply(tables[i], &p, acts, n % 2 ? rows + first_row : NULL, n_rows[n], y);
                    if (i == 0 && n == 0) multiply(tables[0], &p, acts, NULL, MAX_ROW, first);
                    for (int r = 0; r < n_rows[n]; r++) {
                        const float *want = first + (n % 2 ? rows[first_row + r] : r) * GEMM_Y;
                        if (memcmp(y + r * GEMM_Y, want, N_OUT * sizeof(float)))
                            fail_msg("%s: %s, %d rows of %d: row %d differs", table_names[i],
                                     quant_traits(type)->name, n_rows[n], (int)p.n_in, r);
                    }
                }
            }
            pack_close(&p);
        }
    mem_free(acts), mem_free(x), mem_free(y), mem_free(first);
}

/* Activations of +-127 against the largest codes: 16-bit sums that overflowed would be off by 65,536. */
static void extremes_do_not_overflow(void **st) {
    (void)st;
    enum { N = 512, ROWS = 6 };
    uint8_t *acts = mem_aligned(64, gemm_act_bytes(N) * ROWS);
    float x[ROWS][N], *y = mem_aligned(64, sizeof(float) * ROWS * GEMM_Y);
    for (uint32_t type = 0; type < QUANT_N_ID; type++) {
        if (!repack_form_of(type)) continue;
        struct packed p;
        pack_open(&p, type, N, true);
        /* values of iq6_k are rounded to integers; a float scale per row becomes f16 */
        double limit = type == QUANT_IQ6_K                               ? 4e-3
                       : quant_traits(type)->head_bytes == sizeof(float) ? 5e-4
                                                                         : 2e-6;
        for (int i = 0; i < n_table; i++) {
            for (int r = 0; r < ROWS;
                 r++) { /* row r follows or opposes the signs of weight row r / 2 */
                for (int j = 0; j < N; j++) {
                    bool up = r == ROWS - 1 || (p.values[r / 2 * N + j] < 0) == (r % 2);
                    x[r][j] = up ? 127.0f : -127.0f;
                }
                tables[i]->quantise(x[r], N, acts + (size_t)r * gemm_act_bytes(N));
            }
            multiply(tables[i], &p, acts, NULL, ROWS, y);
            for (int r = 0; r < ROWS; r++)
                for (int o = 0; o < N_OUT; o++) {
                    double sum = 0, size = 0;
                    for (int j = 0; j < N; j++) {
                        sum += (double)x[r][j] * (double)p.values[o * N + j];
                        size += fabs((double)x[r][j] * (double)p.values[o * N + j]);
                    }
                    if (!(fabs(sum - (double)y[r * GEMM_Y + o]) <= limit * size))
                        fail_msg("%s: %s, row %d, output %d: %g, expected %g", table_names[i],
                                 quant_traits(type)->name, r, o, (double)y[r * GEMM_Y + o], sum);
                }
        }
        pack_close(&p);
    }
    mem_free(acts), mem_free(y);
}

static void check_rounding(const struct gemm *g, const char *name, const float *x) {
    _Alignas(64) uint8_t row[128];
    int8_t q[32];
    struct gemm_act a;
    float d = ref_quantise8(x, q);
    g->quantise(x, 32, row);
    memcpy(&a, row + 32, sizeof a);
    if (memcmp(row, q, 32) || (memcmp(&a.d, &d, 4) && !(isnan(d) && isnan(a.d))))
        fail_msg("%s: rounds %a, %a, ... with scale %a otherwise than the reference (%a)", name,
                 (double)x[0], (double)x[1], (double)a.d, (double)d);
}

static void rounding_is_the_reference(void **st) {
    (void)st;
    for (int t = 0; t < n_table; t++)
        for (int i = 0; i < 100000; i++) {
            float x[32];
            int kind = i % 8;
            float scale = ldexpf(1, (int)(rng_next(&rng) % 253) - 126);
            for (int j = 0; j < 32; j++) {
                x[j] = (float)rng_normal(&rng) * scale;
                if (kind == 1) x[j] = (float)((int)(rng_next(&rng) % 255) - 127) * 0.5f;
                if (kind == 2) x[j] = j % 2 ? -0.0f : 0.0f;
                if (kind == 3) x[j] = ldexpf((float)(rng_next(&rng) % 128), -133);
            }
            if (kind == 1) x[7] = 127;
            if (kind == 4) x[i / 8 % 32] = i % 16 < 8 ? NAN : -INFINITY;
            if (kind == 5) x[i / 8 % 32] = i % 16 < 8 ? 0x1.fffffep127f : -0x1.fffffep127f;
            if (kind == 6) x[i / 8 % 32] = 0x1p-126f * 127;
            check_rounding(tables[t], table_names[t], x);
        }
}

static void add(const struct gemm *g, const char *name) {
    tables[n_table] = g;
    table_names[n_table++] = name;
}

int main(void) {
    rng_seed(&rng, 47);
#if defined(__x86_64__)
    if (features_has("avx2") && features_has("fma")) {
        add(&gemm_avx2, "avx2");
        add(&gemm_emulated, "avxvnni, emulated");
    }
    if (features_has("avx512_vnni") && features_has("avx512bw")) add(&gemm_avx512, "avx512");
#elif defined(__aarch64__)
    add(&gemm_neon, "neon");
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_for_any_rows_and_isa),
        cmocka_unit_test(extremes_do_not_overflow),
        cmocka_unit_test(rounding_is_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

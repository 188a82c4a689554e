/* test_quant.c: block formats against the reference implementation's own blocks and floats; the half
 * and bfloat16 conversions against an oracle made of ldexp; encoders against the errors that the reference
 * encoders reach, and against rows that no model should have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/rng.h"
#include "format/quant.h"

static char *read_data(const char *type, const char *suffix, size_t *n) {
    char path[512], *out = NULL;
    struct err e = {0};
    snprintf(path, sizeof path, "%s/quant/%s%s", TEST_DATA, type, suffix);
    if (file_read(path, 1 << 20, &out, n, &e)) fail_msg("%s", e.text);
    return out;
}

/* Calls fn with each object of a file of one JSON object a line. */
static void each_row(const char *name, void (*fn)(const json_t *row)) {
    size_t n;
    char *text = read_data(name, ".jsonl", &n), *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        json_t *row = json_loads(line, 0, NULL);
        assert_non_null(row);
        fn(row);
        json_decref(row);
    }
    mem_free(text);
}

static int n_decoded;

static void decode_row(const json_t *row) {
    const char *type = json_string_value(json_object_get(row, "type"));
    size_t n = (size_t)json_integer_value(json_object_get(row, "n")), n_blocks, n_floats;
    int id = quant_type_from_name(type);
    assert_int_equal(id, json_integer_value(json_object_get(row, "id")));
    const struct quant_traits *t = quant_traits((uint32_t)id);
    assert_int_equal(t->block_elements, json_integer_value(json_object_get(row, "block_elements")));
    assert_int_equal(t->block_bytes, json_integer_value(json_object_get(row, "block_bytes")));
    char *blocks = read_data(type, ".blocks", &n_blocks);
    char *floats = read_data(type, ".f32", &n_floats);
    uint64_t bytes;
    assert_true(quant_row_bytes((uint32_t)id, n, &bytes));
    assert_int_equal(bytes, n_blocks);
    assert_int_equal(n * sizeof(float), n_floats);
    char *moved = mem_alloc(n_blocks + 1); /* sources need no alignment */
    float *out = mem_alloc(n_floats);
    memcpy(moved + 1, blocks, n_blocks);
    t->decode(moved + 1, out, n);
    for (size_t i = 0; i < n; i++)
        if (memcmp(&out[i], floats + i * 4, 4)) {
            float want;
            memcpy(&want, floats + i * 4, 4);
            fail_msg("%s: element %zu: expected %a, got %a", type, i, want, out[i]);
        }
    n_decoded++;
    mem_free(moved);
    mem_free(out);
    mem_free(blocks);
    mem_free(floats);
}

static void decoding_matches_the_reference_bit_for_bit(void **s) {
    (void)s;
    each_row("types", decode_row);
    assert_int_equal(n_decoded, 24);
}

/* Value of a small float format from its definition; e_bits, f_bits: widths of the fields. */
static double value_of(uint32_t bits, int e_bits, int f_bits) {
    int bias = (1 << (e_bits - 1)) - 1, e = (int)(bits >> f_bits) & ((1 << e_bits) - 1);
    double f = (double)(bits & ((1u << f_bits) - 1)), sign = bits >> (e_bits + f_bits) ? -1 : 1;
    if (e == (1 << e_bits) - 1) return f != 0 ? NAN : sign * INFINITY;
    if (e == 0) return sign * ldexp(f, 1 - bias - f_bits);
    return sign * ldexp(f + ldexp(1, f_bits), e - bias - f_bits);
}

static bool same(float a, double b) {
    return isnan(b) ? isnan(a) : a == b && !signbit(a) == !signbit(b);
}

static void every_half_and_bfloat16_decodes_and_returns(void **s) {
    (void)s;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = quant_f16_to_f32((uint16_t)h), b = quant_bf16_to_f32((uint16_t)h);
        if (!same(f, value_of(h, 5, 10)))
            fail_msg("%04x: %a, expected %a", h, f, value_of(h, 5, 10));
        if (!same(b, value_of(h, 8, 7))) fail_msg("%04x: %a, expected %a", h, b, value_of(h, 8, 7));
        if (isnan(f)) assert_true(isnan(quant_f16_to_f32(quant_f32_to_f16(f))));
        else assert_int_equal(quant_f32_to_f16(f), h);
        if (isnan(b)) assert_true(isnan(quant_bf16_to_f32(quant_f32_to_bf16(b))));
        else assert_int_equal(quant_f32_to_bf16(b), h);
        uint16_t u = (uint16_t)h; /* the loops over rows are other code than the calls */
        float row[2];
        quant_traits(QUANT_F16)->decode(&u, row, 1);
        quant_traits(QUANT_BF16)->decode(&u, row + 1, 1);
        assert_memory_equal(&row[0], &f, 4);
        assert_memory_equal(&row[1], &b, 4);
    }
}

/* Nearest by trial: of the two neighbours of |f| the nearer, the even one on a tie. */
static uint32_t nearest(float f, int e_bits, int f_bits) {
    uint32_t inf = ((1u << e_bits) - 1) << f_bits, lo = 0, hi = inf;
    uint32_t sign = signbit(f) ? 1u << (e_bits + f_bits) : 0;
    double x = fabs((double)f);
    while (hi - lo > 1) {
        uint32_t mid = (lo + hi) / 2;
        if (value_of(mid, e_bits, f_bits) <= x) lo = mid;
        else hi = mid;
    }
    double a = value_of(lo, e_bits, f_bits), b = value_of(hi, e_bits, f_bits);
    /* rounding overflows where the format, had it one more exponent, would round to the next power */
    if (hi == inf) b = ldexp(1, 1 << (e_bits - 1));
    double below = x - a, above = b - x;
    uint32_t m = below < above ? lo : above < below ? hi : lo & 1 ? hi : lo;
    return sign | (x == INFINITY ? inf : m);
}

static void conversion_rounds_to_nearest_even(void **s) {
    (void)s;
    struct rng r;
    rng_seed(&r, 11);
    for (int i = 0; i < 400000; i++) {
        uint32_t bits = (uint32_t)rng_next(&r);
        if (i % 2) { /* where halves live: exponents 2^-27 to 2^17 */
            bits = (bits & 0x807fffff) | (uint32_t)(100 + rng_below(&r, 45)) << 23;
            if (i % 4 == 1) bits &= 0xfffff000; /* ties of f16 */
            if (i % 8 == 3) bits &= 0xffff8000; /* ties of bf16 */
        }
        float f;
        memcpy(&f, &bits, 4);
        if (isnan(f)) continue;
        assert_int_equal(quant_f32_to_f16(f), nearest(f, 5, 10));
        assert_int_equal(quant_f32_to_bf16(f), nearest(f, 8, 7));
    }
}

enum { ROWS = 16, COLUMNS = 4096 };
static float *matrix, *importance; /* [ROWS, COLUMNS], [COLUMNS] */

static int load_matrix(void **s) {
    (void)s;
    size_t n;
    matrix = (float *)(void *)read_data("encode_input", ".f32", &n);
    assert_int_equal(n, ROWS * COLUMNS * sizeof(float));
    importance = (float *)(void *)read_data("encode_imatrix", ".f32", &n);
    assert_int_equal(n, COLUMNS * sizeof(float));
    return 0;
}

static int free_matrix(void **s) {
    (void)s;
    mem_free(matrix);
    mem_free(importance);
    return 0;
}

/* Decodes what encode made of n elements; out must be freed. */
static float *round_trip(uint32_t id, const float *x, size_t n, const float *weights) {
    uint64_t bytes;
    assert_true(quant_row_bytes(id, n, &bytes));
    char *blocks = mem_alloc(bytes);
    float *out = mem_alloc(n * sizeof *out);
    assert_true(quant_traits(id)->encode(x, blocks, n, weights));
    quant_traits(id)->decode(blocks, out, n);
    mem_free(blocks);
    return out;
}

/* Types whose scales are searched by running sums. */
static const char *const searched[] = {"q3_K", "q4_K", "q5_K", "q4_0", "q5_0", "iq4_nl", "iq4_xs"};
static double ratio,
    searched_ratio; /* sums of the squared errors' ratios to the reference's, weighted */
static int n_encoded, n_weighted, n_searched;

static void encode_row(const json_t *row) {
    const char *type = json_string_value(json_object_get(row, "type"));
    bool weighted = json_is_true(json_object_get(row, "imatrix"));
    double want = json_real_value(json_object_get(row, "relative_rmse")), num = 0, den = 0;
    const float *weights = weighted ? importance : NULL;
    for (int r = 0; r < ROWS; r++) {
        const float *x = matrix + r * COLUMNS;
        float *y = round_trip((uint32_t)quant_type_from_name(type), x, COLUMNS, weights);
        for (int i = 0; i < COLUMNS; i++) {
            double w = weighted ? importance[i] : 1, d = (double)y[i] - x[i];
            num += w * d * d;
            den += w * x[i] * (double)x[i];
        }
        mem_free(y);
    }
    double got = sqrt(num / den);
    print_message("%-8s %-8s reference %.6f ours %.6f ratio %.4f\n", type,
                  weighted ? "weighted" : "", want, got, got / want);
    if (!(got <= want * 1.005)) fail_msg("%s: error %f, reference %f", type, got, want);
    n_encoded++;
    n_weighted += weighted;
    ratio += weighted ? got * got / (want * want) : 0;
    for (size_t i = 0; i < sizeof searched / sizeof *searched; i++) {
        if (!weighted || strcmp(type, searched[i]) != 0) continue;
        searched_ratio += got * got / (want * want);
        n_searched++;
    }
}

static void encoding_is_no_worse_than_the_reference(void **s) {
    (void)s;
    each_row("encode_reference", encode_row);
    assert_int_equal(n_encoded, 41);
    assert_int_equal(n_searched, sizeof searched / sizeof *searched);
    print_message("weighted squared errors: %.4f of the reference's, of searched types %.4f\n",
                  ratio / n_weighted, searched_ratio / n_searched);
    assert_true(ratio / n_weighted <= .95 && searched_ratio / n_searched <= .95);
}

/* Whether the type has blocks, in which anything foreign must be contained. */
static bool is_blocked(uint32_t id) {
    const struct quant_traits *t = quant_traits(id);
    return t && t->encode && t->block_elements > 1;
}

static void first_use_from_many_threads(void *arg, int ith, int n_thread) {
    (void)n_thread;
    char(*out)[1024] = arg;
    static const uint32_t types[] = {QUANT_IQ3_S, QUANT_IQ2_XXS, QUANT_IQ1_S};
    for (size_t i = 0; i < 3; i++)
        quant_traits(types[i])->encode(matrix, out[ith] + i * 256, 512, importance);
}

/* Runs before anything else encodes: the neighbour lists are made inside. */
static void threads_agree_on_the_first_blocks(void **s) {
    (void)s;
    static char out[4][1024];
    struct pool *p = pool_new(4);
    assert_non_null(p);
    pool_run(p, first_use_from_many_threads, out);
    pool_free(p);
    for (int i = 1; i < 4; i++) assert_memory_equal(out[0], out[i], sizeof out[0]);
}

static void odd_rows_come_back_finite(void **s) {
    (void)s;
    enum { N = 512 };
    static const float values[] = {0.0f,   0.37f, -1e-3f, 65504, 1e30f,
                                   -1e30f, 3e38f, 1e-40f, 1e-12f};
    static const float odd_weights[] = {0, -1, NAN, INFINITY, 1e-40f, 1e38f};
    for (uint32_t id = 0; id < QUANT_N_ID; id++) {
        if (!is_blocked(id)) continue;
        for (size_t v = 0; v < sizeof values / sizeof *values; v++)
            for (int mix = 0; mix < 3; mix++) { /* constant; alternating signs; one among normals */
                float x[N], w[N];
                for (int i = 0; i < N; i++) {
                    x[i] = mix == 2 && i != 77 ? matrix[i] : values[v];
                    if (mix == 1 && i % 3 == 0) x[i] = -x[i];
                    w[i] = odd_weights[i % 6];
                }
                for (int weighted = 0; weighted < 2; weighted++) {
                    float *y = round_trip(id, x, N, weighted ? w : NULL);
                    for (int i = 0; i < N; i++)
                        if (!isfinite(y[i]) || (values[v] == 0 && mix < 2 && y[i] != 0))
                            fail_msg("%s: %g decodes to %g", quant_traits(id)->name, x[i], y[i]);
                    mem_free(y);
                }
            }
    }
}

/* A constant is within reach of every type; ternary and grid types by their nearest level. */
static void constants_keep_their_value(void **s) {
    (void)s;
    enum { N = 256 };
    for (uint32_t id = 0; id < QUANT_N_ID; id++) {
        if (!is_blocked(id)) continue;
        for (int sign = -1; sign <= 1; sign += 2) {
            float x[N];
            for (int i = 0; i < N; i++) x[i] = (float)sign * 0.7f;
            float *y = round_trip(id, x, N, NULL);
            float most = id == QUANT_MXFP4 ? 0.16f : 0.02f;
            for (int i = 0; i < N; i++)
                if (fabsf(y[i] / x[i] - 1) > most)
                    fail_msg("%s: %g came back as %g", quant_traits(id)->name, x[i], y[i]);
            mem_free(y);
        }
    }
}

static void garbage_stays_in_its_block(void **s) {
    (void)s;
    enum { N = 768 };
    static const float bad[] = {NAN, INFINITY, -INFINITY, 3e38f};
    for (uint32_t id = 0; id < QUANT_N_ID; id++) {
        if (!is_blocked(id) || quant_traits(id)->head_bytes) continue; /* a row shares one scale */
        uint64_t block;
        assert_true(quant_row_bytes(id, 256, &block));
        char clean[4096], dirty[4096];
        assert_true(quant_traits(id)->encode(matrix, clean, N, importance));
        for (size_t k = 0; k < 4; k++) {
            float x[N], y[N];
            memcpy(x, matrix, sizeof x);
            x[300] = bad[k];
            assert_true(quant_traits(id)->encode(x, dirty, N, importance));
            assert_memory_equal(clean, dirty, block);
            assert_memory_equal(clean + 2 * block, dirty + 2 * block, block);
            quant_traits(id)->decode(dirty, y, N);
            for (int i = 0; i < N; i++) assert_true(isfinite(y[i]));
        }
    }
}

/* What is exactly representable, at every scale a half can have. */
static void ternary_and_8_bit_blocks_survive(void **s) {
    (void)s;
    struct rng r;
    rng_seed(&r, 5);
    for (int e = -14; e <= 10; e++) {
        float x[256], z[256];
        for (int i = 0; i < 256; i++) {
            x[i] = ldexpf((float)rng_below(&r, 3) - 1, e);
            z[i] = ldexpf(i % 32 ? (float)rng_below(&r, 255) - 127 : 127, e);
        }
        float *a = round_trip(QUANT_TQ1_0, x, 256, NULL),
              *b = round_trip(QUANT_TQ2_0, x, 256, NULL);
        float *c = round_trip(QUANT_Q8_0, z, 256, NULL);
        for (int i = 0; i < 256; i++) assert_true(a[i] == x[i] && b[i] == x[i] && c[i] == z[i]);
        mem_free(a);
        mem_free(b);
        mem_free(c);
    }
}

static void names_and_sizes_are_checked(void **s) {
    (void)s;
    uint64_t bytes = 7;
    assert_int_equal(quant_type_from_name("IQ3_s"), QUANT_IQ3_S);
    assert_int_equal(quant_type_from_name("q4_k"), QUANT_Q4_K);
    assert_int_equal(quant_type_from_name("q4_9"), -1);
    assert_int_equal(quant_type_from_name(""), -1);
    assert_null(quant_traits(4));
    assert_null(quant_traits(UINT32_MAX));
    assert_false(quant_row_bytes(QUANT_Q4_0, 33, &bytes));
    assert_false(quant_row_bytes(QUANT_I64, UINT64_MAX / 4, &bytes));
    assert_true(quant_row_bytes(QUANT_Q6_K, 512, &bytes));
    assert_int_equal(bytes, 420);
}

/* A scale made NaN or infinite anywhere is seen; what decodes to finite numbers passes. */
static void bad_scales_are_seen(void **state) {
    (void)state;
    enum { N_BLOCK = 5, MAX_BYTES = 300 };
    for (uint32_t id = 0; id < QUANT_N_ID; id++) {
        const struct quant_traits *t = quant_traits(id);
        if (!t || !t->decode) continue;
        static float out[N_BLOCK * 256];
        uint8_t clean[N_BLOCK * MAX_BYTES], block[sizeof clean];
        size_t n = (size_t)N_BLOCK * t->block_elements,
               n_byte = (size_t)N_BLOCK * t->block_bytes + t->head_bytes;
        memset(clean, 0x11, n_byte);
        assert_true(quant_is_finite(id, clean, n));
        /* each pair of bytes, all ones or an exponent of ones: the decoder is the oracle */
        for (size_t at = 0; at + 1 < n_byte; at++) {
            for (int how = 0; how < 2; how++) {
                memcpy(block, clean, n_byte);
                block[at] = how ? 0xff : 0x00;
                block[at + 1] = how ? 0xff : 0x7c;
                t->decode(block, out, n);
                bool finite = true;
                for (size_t i = 0; i < n; i++) finite &= isfinite(out[i]) != 0;
                if ((id == QUANT_MXFP4 || t->head_bytes == 4) && finite)
                    continue; /* huge scales under small codes */
                if (quant_is_finite(id, block, n) != finite)
                    fail_msg("%s: bytes %zu: decoding gives %s numbers", t->name, at,
                             finite ? "finite" : "other");
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_scales_are_seen),
        cmocka_unit_test(threads_agree_on_the_first_blocks),
        cmocka_unit_test(decoding_matches_the_reference_bit_for_bit),
        cmocka_unit_test(every_half_and_bfloat16_decodes_and_returns),
        cmocka_unit_test(conversion_rounds_to_nearest_even),
        cmocka_unit_test(encoding_is_no_worse_than_the_reference),
        cmocka_unit_test(odd_rows_come_back_finite),
        cmocka_unit_test(constants_keep_their_value),
        cmocka_unit_test(garbage_stays_in_its_block),
        cmocka_unit_test(ternary_and_8_bit_blocks_survive),
        cmocka_unit_test(names_and_sizes_are_checked),
    };
    return cmocka_run_group_tests(tests, load_matrix, free_matrix);
}

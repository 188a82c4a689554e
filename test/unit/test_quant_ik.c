/* test_quant_ik.c: ik_llama.cpp's types against the reference's own rows and floats; encoders against the
 * types of llama.cpp with as many bits. Random rows against a second decoder: test/cli/test_quant_ik.sh. */
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
#include "base/rng.h"
#include "format/quant.h"
#include "kernels/cpu/cpu.h"

enum { N = 512, WIDE = 4096 };

static char *read_data(const char *name, const char *suffix, size_t *n) {
    char path[512], *out = NULL;
    struct err e = {0};
    snprintf(path, sizeof path, "%s/quant_ik/%s%s", TEST_DATA, name, suffix);
    if (file_read(path, 1 << 20, &out, n, &e)) fail_msg("%s", e.text);
    return out;
}

static void check_row(const json_t *o) {
    const char *name = json_string_value(json_object_get(o, "type"));
    size_t n_row, n_float;
    int id = quant_type_from_name(name);
    assert_int_equal(id, json_integer_value(json_object_get(o, "id")));
    const struct quant_traits *t = quant_traits((uint32_t)id);
    assert_int_equal(t->head_bytes, json_integer_value(json_object_get(o, "row_meta_bytes")));
    char *row = read_data(name, ".row", &n_row), *want = read_data(name, ".f32", &n_float);
    uint64_t bytes;
    assert_true(quant_row_bytes((uint32_t)id, N, &bytes));
    assert_int_equal(bytes, n_row);
    assert_int_equal(n_float, N * sizeof(float));
    char moved[1024]; /* sources need no alignment */
    float got[N];
    memcpy(moved + 1, row, n_row);
    t->decode(moved + 1, got, N);
    float limit = id == QUANT_IQ6_K ? 2e-7f : 0;
    for (size_t i = 0; i < N; i++) {
        float v;
        memcpy(&v, want + i * sizeof v, sizeof v);
        if (!(fabsf(got[i] - v) <= limit * fabsf(v)))
            fail_msg("%s: element %zu: expected %a, got %a", name, i, (double)v, (double)got[i]);
    }
    mem_free(row);
    mem_free(want);
}

static void rows_decode_as_the_reference_does(void **state) {
    (void)state;
    size_t n;
    int n_type = 0;
    char *text = read_data("types", ".jsonl", &n), *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        json_t *o = json_loads(line, 0, NULL);
        assert_non_null(o);
        check_row(o);
        json_decref(o);
        n_type++;
    }
    mem_free(text);
    assert_int_equal(n_type, 15);
}

static double relative_error(uint32_t id, const float *x, const float *w) {
    static char blocks[1 << 16];
    static float y[WIDE];
    double error = 0, energy = 0;
    assert_true(quant_traits(id)->encode(x, blocks, WIDE, w));
    quant_traits(id)->decode(blocks, y, WIDE);
    for (int i = 0; i < WIDE; i++) {
        double d = (double)x[i] - (double)y[i], weight = w ? (double)w[i] : 1;
        error += weight * d * d;
        energy += weight * (double)x[i] * (double)x[i];
    }
    return error / energy;
}

/* Each encoder must beat a type of llama.cpp by this factor. */
static void encoders_are_worth_their_bits(void **state) {
    (void)state;
    static const struct {
        uint32_t type, other;
        double most;
    } rows[] = {
        {QUANT_IQ2_K, QUANT_IQ2_XS, 1.10}, {QUANT_IQ2_KS, QUANT_IQ2_XXS, 1.12},
        {QUANT_IQ2_KL, QUANT_Q2_K, .80},   {QUANT_IQ3_K, QUANT_Q3_K, .72},
        {QUANT_IQ3_KS, QUANT_Q3_K, 1.0},   {QUANT_IQ4_KSS, QUANT_IQ4_XS, 1.35},
        {QUANT_IQ4_KS, QUANT_IQ4_XS, .93}, {QUANT_IQ4_K, QUANT_Q4_K, .73},
        {QUANT_IQ5_KS, QUANT_Q5_K, 1.0},   {QUANT_IQ5_K, QUANT_Q5_K, .72},
        {QUANT_IQ6_K, QUANT_Q6_K, .66},
    };
    static float x[WIDE], w[WIDE];
    struct rng r;
    rng_seed(&r, 3);
    for (int i = 0; i < WIDE; i++) {
        x[i] = (float)rng_normal(&r) * .02f;
        w[i] = (float)exp(rng_normal(&r));
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double a = relative_error(rows[i].type, x, w), b = relative_error(rows[i].other, x, w);
        if (a > rows[i].most * b)
            fail_msg("%s: error %.5f, expected at most %.2f of %s's %.5f",
                     quant_traits(rows[i].type)->name, a, rows[i].most,
                     quant_traits(rows[i].other)->name, b);
    }
}

static void a_bad_row_scale_is_seen(void **state) {
    (void)state;
    char row[1024] = {0};
    const uint32_t nan32 = 0x7fc00000, types[] = {QUANT_IQ4_KS, QUANT_IQ2_KL};
    for (int i = 0; i < 2; i++) {
        uint64_t bytes;
        assert_true(quant_row_bytes(types[i], 256, &bytes));
        memset(row, 0, sizeof row);
        assert_true(quant_rows_are_finite(types[i], row, 2, 256));
        if (i == 0) memcpy(row + bytes, &nan32, 4);
        else memcpy(row + bytes, "\x00\x7e", 2);
        assert_false(quant_rows_are_finite(types[i], row, 2, 256));
    }
}

/* Random rows: bytes, then scales that decode to numbers near one. */
static struct weight random_weight(uint32_t type, int64_t n_out, struct rng *r) {
    const struct quant_traits *t = quant_traits(type);
    struct weight w = {.type = type, .n_in = N, .n_out = n_out, .n_mat = 1};
    uint64_t bytes;
    assert_true(quant_row_bytes(type, N, &bytes));
    w.row_bytes = bytes;
    w.mat_bytes = bytes * (size_t)n_out;
    uint8_t *p = mem_aligned(64, w.mat_bytes);
    for (size_t i = 0; i < w.mat_bytes; i++) p[i] = (uint8_t)rng_next(r);
    for (int64_t i = 0; i < n_out; i++) {
        uint8_t *row = p + (size_t)i * bytes;
        uint16_t half = quant_f32_to_f16((float)(.001 + .001 * rng_uniform(r)));
        float d = quant_f16_to_f32(half);
        if (t->head_bytes == 4) memcpy(row, &d, 4);
        if (t->head_bytes == 2) memcpy(row, &half, 2);
        for (int k = 0; !t->head_bytes && k < N / 256; k++)
            memcpy(row + (size_t)k * t->block_bytes, &half, 2);
    }
    w.data = p;
    return w;
}

/* Integers up to 127, which they reach in every block of 32: rounding to 8 bits changes nothing. */
static void whole_numbers(float *x, int n, struct rng *r) {
    for (int i = 0; i < n; i++) x[i] = i % 32 == 5 ? 127 : (float)rng_below(r, 255) - 127;
}

static void products_on(struct dev *d, uint32_t type, int32_t n_tok, struct rng *r) {
    enum { OUT = 37, TOK = 24 };
    struct weight w = random_weight(type, OUT, r), w2 = w;
    float *x = mem_alloc(sizeof(float) * N * TOK), *y = mem_alloc(sizeof(float) * OUT * TOK),
          row[N];
    struct err e = {0};
    whole_numbers(x, N * n_tok, r);
    size_t n = d->ops->prepared_bytes(d, &w);
    void *made = n ? d->ops->alloc(d, n) : NULL;
    if (n) assert_int_equal(d->ops->prepare(d, &w, made, &w2), 0);
    struct linear_out o = {&w2, NULL, y, OUT, 1, false};
    d->ops->linear(d, &o, 1, x, N, n_tok);
    assert_int_equal(d->ops->status(d, &e), 0);
    double limit = type == QUANT_IQ6_K && n ? 1e-2 : 2e-6; /* its values are rounded to integers */
    for (int i = 0; i < OUT; i++) {
        quant_traits(type)->decode((const char *)w.data + (size_t)i * w.row_bytes, row, N);
        for (int t = 0; t < n_tok; t++) {
            double sum = 0, size = 0;
            for (int j = 0; j < N; j++) {
                sum += (double)row[j] * (double)x[t * N + j];
                size += fabs((double)row[j] * (double)x[t * N + j]);
            }
            if (!(fabs(sum - (double)y[t * OUT + i]) <= limit * size))
                fail_msg("%s %s: row %d of %d tokens: expected %g, got %g", d->ops->name,
                         quant_traits(type)->name, i, n_tok, sum, (double)y[t * OUT + i]);
        }
    }
    if (made) d->ops->free(d, made);
    mem_free((void *)(uintptr_t)w.data);
    mem_free(x);
    mem_free(y);
}

static void products_are_exact_on_every_device(void **state) {
    (void)state;
    static const enum cpu_isa isas[] = {CPU_ISA_SCALAR, CPU_ISA_AVX2, CPU_ISA_AVXVNNI,
                                        CPU_ISA_AVX512, CPU_ISA_NEON};
    struct rng r;
    rng_seed(&r, 11);
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
        struct dev *d;
        struct err e = {0};
        if (cpu_open(&d, 1, isas[i], &e)) continue;
        const struct dev_need need = {.n_tok = 32, .n_in = N, .n_out = 64, .n_ff = 64};
        assert_int_equal(d->ops->reserve(d, &need, &e), 0);
        for (uint32_t type = QUANT_IQ2_K; type < QUANT_N_ID; type++) {
            if (!quant_traits(type)) continue;
            products_on(d, type, 1, &r);
            products_on(d, type, 24, &r);
        }
        d->ops->close(d);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_decode_as_the_reference_does),
        cmocka_unit_test(encoders_are_worth_their_bits),
        cmocka_unit_test(a_bad_row_scale_is_seen),
        cmocka_unit_test(products_are_exact_on_every_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

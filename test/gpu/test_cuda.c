/* test_cuda.c: every op of the CUDA device against the scalar reference, over types and odd shapes.
 *
 * Built twice: with nvcc, to run on a GPU, and over the emulator (emu/), to run anywhere. Arrays lie in host
 * memory that the device reads in place. Batches of up to 16 rows must give the bits of single rows; larger
 * ones go through the tensor cores in half precision and agree within 2e-3 of the range. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "format/quant.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/ref.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/planes.h"

#include "../unit/select_rows.h"

static struct rng rng;
static struct dev *ref, *ref8, *dev, *precise, *wide; /* ref8: activations rounded to 8 bits */

static const struct dev_need need = {.n_tok = 256,
                                     .n_in = 1024,
                                     .n_out = 1200,
                                     .n_ff = 512,
                                     .n_expert = 32,
                                     .n_used = 8,
                                     .n_head = 8,
                                     .d_head = 256,
                                     .n_v_head = 8,
                                     .d_state = 128 * 128,
                                     .d_rec_k = 128,
                                     .d_rec_v = 128,
                                     .n_conv = 4096,
                                     .n_ctx = 2048};

/* ---- arrays ---- */

static void *kept[512];
static int n_kept;

static void *room(size_t n) {
    assert_true(n_kept < 512);
    void *p = cuda_host_alloc(n);
    assert_non_null(p);
    return kept[n_kept++] = p;
}
static void drop_all(void) {
    while (n_kept) cuda_host_free(kept[--n_kept]);
}
static float *floats(size_t n, double scale) {
    float *x = room(n * sizeof *x);
    for (size_t i = 0; scale != 0 && i < n; i++) x[i] = (float)(rng_normal(&rng) * scale);
    return x;
}
static float *copy_of(const float *x, size_t n) {
    float *y = room(n * sizeof *y);
    memcpy(y, x, n * sizeof *y);
    return y;
}

static void settle(struct dev *d) {
    struct err e = {0};
    if (d->ops->status(d, &e)) fail_msg("%s", e.text);
}

static double apart(const float *a, const float *b, size_t n) {
    double most = 0, range = 1e-30;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(a[i]) || !isfinite(b[i])) return NAN;
        double d = fabs((double)a[i] - b[i]);
        most = d > most ? d : most;
        range = fabs(b[i]) > range ? fabs(b[i]) : range;
    }
    return most / range;
}

#define check_near(a, b, n, tolerance, ...)                                                        \
    do {                                                                                           \
        double apart_ = apart(a, b, n);                                                            \
        if (!(apart_ <= (tolerance))) {                                                            \
            print_error(__VA_ARGS__);                                                              \
            fail_msg(": off by %g, allowed %g", apart_, (double)(tolerance));                      \
        }                                                                                          \
    } while (0)
#define check_same(a, b, n, ...)                                                                   \
    do {                                                                                           \
        if (memcmp(a, b, (n) * sizeof(float))) {                                                   \
            print_error(__VA_ARGS__);                                                              \
            fail_msg(": bits differ");                                                             \
        }                                                                                          \
    } while (0)

/* ---- weights: random numbers through our encoders ---- */

static const uint32_t types[] = {
    QUANT_F32,   QUANT_F16,   QUANT_BF16,    QUANT_Q8_0,    QUANT_Q4_0,
    QUANT_Q4_1,  QUANT_Q5_0,  QUANT_Q5_1,    QUANT_Q2_K,    QUANT_Q3_K,
    QUANT_Q4_K,  QUANT_Q5_K,  QUANT_Q6_K,    QUANT_IQ4_NL,  QUANT_IQ4_XS,
    QUANT_MXFP4, QUANT_IQ3_S, QUANT_IQ3_XXS, QUANT_IQ2_XXS, QUANT_IQ2_XS,
    QUANT_IQ2_S, QUANT_IQ1_S, QUANT_IQ1_M,   QUANT_TQ1_0,   QUANT_TQ2_0,
};
enum { N_TYPE = sizeof types / sizeof *types };

static struct weight weight_of(uint32_t type, int64_t n_in, int64_t n_out, int64_t n_mat,
                               double scale) {
    const struct quant_traits *t = quant_traits(type);
    struct weight w = {.type = type, .n_in = n_in, .n_out = n_out, .n_mat = n_mat};
    w.row_bytes = (size_t)n_in / t->block_elements * t->block_bytes;
    w.mat_bytes = w.row_bytes * (size_t)n_out;
    uint8_t *p = room(w.mat_bytes * (size_t)n_mat);
    float *row = mem_alloc((size_t)n_in * sizeof *row);
    w.data = p;
    for (int64_t r = 0; r < n_out * n_mat; r++) {
        for (int64_t i = 0; i < n_in; i++) row[i] = (float)(rng_normal(&rng) * scale);
        float *importance = mem_alloc((size_t)n_in * sizeof *row);
        for (int64_t i = 0; i < n_in; i++) importance[i] = 1;
        if (!t->encode(row, p + (size_t)r * w.row_bytes, (size_t)n_in, importance))
            fail_msg("cannot encode %s", t->name);
        mem_free(importance);
    }
    mem_free(row);
    return w;
}

static struct weight prepared(struct dev *d, const struct weight *w) {
    struct weight w2 = *w;
    size_t n = d->ops->prepared_bytes(d, w);
    d->ops->prepare(d, w, room(n), &w2);
    return w2;
}

/* ---- linear ---- */

static void linear_agrees(uint32_t type, int64_t n_in, int64_t n_out, int32_t n_tok) {
    const char *name = quant_traits(type)->name;
    struct weight w = weight_of(type, n_in, n_out, 1, 1), w2 = prepared(dev, &w);
    int64_t x_stride = n_in + 16, y_stride = n_out + 3;
    size_t n = (size_t)(y_stride * n_tok);
    float *x = floats((size_t)(x_stride * n_tok), 1), *bias = floats((size_t)n_out, 1);
    float *exact = floats(n, 1), *y0 = copy_of(exact, n), *y1 = copy_of(exact, n),
          *y2 = copy_of(exact, n);
    struct linear_out o = {&w, bias, exact, y_stride, .5f, true};
    ref->ops->linear(ref, &o, 1, x, x_stride, n_tok);
    o.dst = y0;
    ref8->ops->linear(ref8, &o, 1, x, x_stride, n_tok);
    o.w = &w2;
    o.dst = y1;
    dev->ops->linear(dev, &o, 1, x, x_stride, n_tok);
    settle(dev);
    if (n_tok <= STEP_MAX_TOK)
        check_near(y1, y0, n, 1e-5, "linear %s [%ld, %ld] x %d", name, (long)n_out, (long)n_in,
                   n_tok);
    else
        check_near(y1, exact, n, 2e-3, "linear %s [%ld, %ld] x %d in tiles", name, (long)n_out,
                   (long)n_in, n_tok);
    o.dst = y2;
    precise->ops->linear(precise, &o, 1, x, x_stride, n_tok);
    settle(precise);
    check_near(y2, exact, n, 1e-5, "linear %s [%ld, %ld] x %d, precise", name, (long)n_out,
               (long)n_in, n_tok);
    if (n_tok == 1) return;
    float *z = floats(n, 0), *z2 = floats(n, 0);
    struct linear_out some = {&w2, NULL, z, y_stride, 1, false};
    if (n_tok <= STEP_MAX_TOK) { /* one by one, then all */
        for (int32_t t = 0; t < n_tok; t++) {
            some.dst = z2 + t * y_stride;
            dev->ops->linear(dev, &some, 1, x + t * x_stride, x_stride, 1);
        }
        some.dst = z;
        dev->ops->linear(dev, &some, 1, x, x_stride, n_tok);
        settle(dev);
        check_near(z2, z, n, 1e-5, "linear %s [%ld] one by one", name, (long)n_in);
        /* bits do not depend on how many there are, beyond one */
        for (int32_t t = 0; t + 2 <= n_tok; t += 2) {
            some.dst = z2 + t * y_stride;
            dev->ops->linear(dev, &some, 1, x + t * x_stride, x_stride, 2);
        }
        settle(dev);
        for (int32_t t = 0; t < n_tok / 2 * 2; t++)
            check_same(z2 + t * y_stride, z + t * y_stride, (size_t)n_out, "linear %s row %d of 2",
                       name, t);
    } else {
        dev->ops->linear(dev, &some, 1, x, x_stride, n_tok);
        settle(dev);
    }
    int32_t bad = n_tok / 2;
    x[bad * x_stride + n_in / 3] = NAN;
    some.dst = z2;
    dev->ops->linear(dev, &some, 1, x, x_stride, n_tok);
    settle(dev);
    for (int32_t t = 0; t < n_tok; t++) {
        const float *row = z2 + t * y_stride;
        if (t == bad) assert_true(isnan(row[0]) && isnan(row[n_out - 1]));
        else check_same(row, z + t * y_stride, (size_t)n_out, "linear %s row %d", name, t);
    }
}

static void with_wide(void (*test)(void **)) {
    struct dev *outer = dev;
    dev = wide;
    test(NULL);
    dev = outer;
}

/* Of types, those that a layout keeps in a way of its own. */
static void linear_of_every_type(void **s) {
    (void)s;
    for (int t = 0; t < N_TYPE; t++) {
        if (!quant_traits(types[t])->encode) continue;
        if (dev == wide && planes_form(types[t], PLANES_WIDE) == planes_form(types[t], PLANES))
            continue;
        int64_t block = quant_traits(types[t])->block_elements;
        linear_agrees(types[t], block == 1 ? 70 : block, 17, 1);
        linear_agrees(types[t], block == 1 ? 70 : block, 17, 5);
        linear_agrees(types[t], block == 1 ? 133 : block == 32 ? 96 : 512, 33, 16);
        linear_agrees(types[t], block == 1 ? 133 : block == 32 ? 96 : 256, 130, 19);
        drop_all();
    }
    if (dev != wide) with_wide(linear_of_every_type);
}

static void linear_of_several_matrices(void **s) {
    (void)s;
    static const uint32_t kinds[] = {QUANT_Q8_0, QUANT_F32, QUANT_Q6_K, QUANT_F16};
    enum { N = 4, N_IN = 512, N_TOK = 7 };
    struct weight w[N], w2[N];
    struct linear_out o[N], p[N];
    float *x = floats((size_t)N_IN * N_TOK, 1);
    for (int k = 0; k < N; k++) {
        w[k] = weight_of(kinds[k], N_IN, 40 + 9 * k, 1, 1);
        w2[k] = prepared(dev, &w[k]);
        o[k] = (struct linear_out){&w[k], NULL, floats(100 * N_TOK, 0), 100, 1, false};
        p[k] = (struct linear_out){&w2[k], NULL, floats(100 * N_TOK, 0), 100, 1, false};
    }
    ref8->ops->linear(ref8, o, N, x, N_IN, N_TOK);
    dev->ops->linear(dev, p, N, x, N_IN, N_TOK);
    settle(dev);
    for (int k = 0; k < N; k++)
        check_near(p[k].dst, o[k].dst, 100 * N_TOK, 1e-5, "matrix %d of several", k);
    drop_all();
}

/* ---- rows and elements ---- */

static void rows_agree(void **s) {
    (void)s;
    static const int64_t sizes[] = {1, 7, 64, 100, 1000, 2048, 2080, 4096, 5120};
    for (int k = 0; k < 9; k++) {
        int64_t n = sizes[k], n_row = 5;
        size_t all = (size_t)(n * n_row);
        float *x = floats(all, 3), *w = floats((size_t)n, 1), *b = floats((size_t)n, 1);
        float *y0 = floats(all, 0), *y1 = floats(all, 0);
        ref->ops->rms_norm(ref, y0, x, w, n_row, n, 1e-6f);
        dev->ops->rms_norm(dev, y1, x, w, n_row, n, 1e-6f);
        settle(dev);
        check_near(y1, y0, all, 1e-6, "rms_norm %ld", (long)n);
        ref->ops->rms_norm(ref, y0, x, NULL, n_row, n, 1e-6f);
        memcpy(y1, x, all * sizeof *x);
        dev->ops->rms_norm(dev, y1, y1, NULL, n_row, n, 1e-6f);
        settle(dev);
        check_near(y1, y0, all, 1e-6, "rms_norm in place %ld", (long)n);
        ref->ops->layer_norm(ref, y0, x, w, b, n_row, n, 1e-5f);
        dev->ops->layer_norm(dev, y1, x, w, b, n_row, n, 1e-5f);
        settle(dev);
        check_near(y1, y0, all, 1e-6, "layer_norm %ld", (long)n);
        drop_all();
    }
    for (int t = 0; t < N_TYPE; t++) {
        if (!quant_traits(types[t])->encode) continue;
        struct weight w = weight_of(types[t], 512, 9, 1, 1);
        int32_t ids[] = {8, 0, 3, 3};
        float *a = floats(4 * 512, 1), *b = floats(4 * 512, 1);
        ref->ops->embed(ref, a, &w, ids, 4, 1.5f);
        dev->ops->embed(dev, b, &w, ids, 4, 1.5f);
        settle(dev);
        check_same(a, b, 4 * 512, "embed %s", quant_traits(types[t])->name);
        drop_all();
    }
}

static void elements_agree(void **s) {
    (void)s;
    enum { N = 1003 };
    float *a = floats(N, 4), *b = floats(N, 1), *y0 = floats(N, 1), *y1 = copy_of(y0, N);
    a[0] = 80, a[1] = -80, a[2] = 0, a[3] = -0.0f, a[4] = 1e-8f;
    for (enum act act = ACT_SILU; act <= ACT_SIGMOID; act++) {
        ref->ops->act_mul(ref, y0, a, b, N, act);
        dev->ops->act_mul(dev, y1, a, b, N, act);
        settle(dev);
        check_near(y1, y0, N, 1e-6, "act %d", act);
        ref->ops->act_mul(ref, y0, a, NULL, N, act);
        memcpy(y1, a, N * sizeof *a);
        dev->ops->act_mul(dev, y1, y1, NULL, N, act);
        settle(dev);
        check_near(y1, y0, N, 1e-6, "act %d in place", act);
    }
    memcpy(y0, b, N * sizeof *b);
    memcpy(y1, b, N * sizeof *b);
    ref->ops->axpby(ref, y0, .3f, a, -1.7f, N);
    dev->ops->axpby(dev, y1, .3f, a, -1.7f, N);
    settle(dev);
    check_near(y1, y0, N, 1e-6, "axpby");
    int32_t rows[] = {2, 0, 2};
    dev->ops->gather_rows(dev, y1, a, rows, 3, 100);
    dev->ops->copy(dev, y0 + 1, a, 501 * sizeof *a);
    dev->ops->zero(dev, y0 + 600, 7);
    settle(dev);
    check_same(y1, a + 200, 100, "gather_rows");
    check_same(y1 + 100, a, 100, "gather_rows");
    check_same(y0 + 1, a, 501, "copy");
    assert_true(y0[600] == 0);
    drop_all();
}

/* ---- attention ---- */

static const struct attn_case {
    uint32_t k_type, v_type;
    int32_t n_head, n_kv_head, d_k, d_v;
    enum rope_mode rope;
    bool norm, gate, sinks, rotate;
    int32_t window, n_keep;
    float softcap;
} attn_cases[] = {
    {QUANT_F32, QUANT_F32, 4, 2, 64, 64, ROPE_NEOX, true, true, false, false, 0, 0, 0},
    {QUANT_F16, QUANT_F16, 4, 4, 96, 96, ROPE_NORM, false, false, true, false, 70, 0, 0},
    {QUANT_F16, QUANT_F16, 8, 1, 256, 256, ROPE_NEOX, true, true, false, false, 0, 0, 30},
    {QUANT_F32, QUANT_F32, 2, 1, 40, 24, ROPE_NONE, false, false, false, false, 50, 3, 0},
    {QUANT_Q8_0, QUANT_Q8_0, 4, 2, 128, 128, ROPE_NEOX, true, true, false, true, 0, 0, 0},
    {QUANT_Q8_0, QUANT_Q4_0, 6, 2, 64, 64, ROPE_NEOX, true, false, false, true, 0, 0, 0},
    {QUANT_F16, QUANT_F16, 12, 1, 64, 64, ROPE_NORM, false, true, true, false, 100, 0, 0},
    {QUANT_F16, QUANT_F16, 3, 3, 128, 128, ROPE_NEOX, true, false, false, false, 50, 3, 0},
    {QUANT_Q4_0, QUANT_Q4_0, 8, 1, 256, 256, ROPE_NEOX, true, true, false, true, 0, 0, 0},
    {QUANT_Q8_0, QUANT_Q8_0, 2, 2, 256, 256, ROPE_NEOX, true, true, false, true, 0, 0, 20},
};
enum { N_ATTN = sizeof attn_cases / sizeof *attn_cases, ATTN_TOK = 330 };

struct attn_room {
    struct kv_view kv;
    int32_t pages[2][8];
    float *q, *k, *v, *gate, *qn, *kn, *inv, *sinks, *q_out, *out;
};

static void attn_open(const struct attn_case *c, struct attn_room *r) {
    uint64_t kb, vb;
    assert_true(quant_row_bytes(c->k_type, (uint64_t)c->d_k, &kb));
    assert_true(quant_row_bytes(c->v_type, (uint64_t)c->d_v, &vb));
    *r = (struct attn_room){.kv = {.k_type = c->k_type,
                                   .v_type = c->v_type,
                                   .n_kv_head = c->n_kv_head,
                                   .d_k = c->d_k,
                                   .d_v = c->d_v,
                                   .rotate = c->rotate}};
    r->kv.k_page_bytes = kb * KV_PAGE * (size_t)c->n_kv_head;
    r->kv.v_page_bytes = vb * KV_PAGE * (size_t)c->n_kv_head;
    r->kv.k = room(16 * r->kv.k_page_bytes);
    r->kv.v = room(16 * r->kv.v_page_bytes);
    for (int i = 0; i < 16; i++) r->pages[i & 1][i / 2] = 15 - i;
    size_t n = (size_t)ATTN_TOK * (size_t)c->n_head;
    r->q = floats(n * 2 * (size_t)c->d_k, 1);
    r->k = floats((size_t)ATTN_TOK * (size_t)(c->n_kv_head * c->d_k), 1);
    r->v = floats((size_t)ATTN_TOK * (size_t)(c->n_kv_head * c->d_v), 1);
    r->gate = floats(n * (size_t)c->d_v, 1);
    r->qn = floats((size_t)c->d_k, 1), r->kn = floats((size_t)c->d_k, 1);
    r->sinks = floats((size_t)c->n_head, 1);
    r->inv = floats(128, 0);
    for (int i = 0; i < 128; i++) r->inv[i] = powf(10000, -(float)i / 64);
    r->q_out = floats(n * (size_t)c->d_k, 0);
    r->out = floats(n * (size_t)c->d_v, 0);
}

static void attn_run(struct dev *d, const struct attn_case *c, struct attn_room *r,
                     const struct span *s, int32_t n_span, int32_t n_tok, int32_t first) {
    struct qkv_store_args a = {.spans = s, .n_span = n_span, .n_tok = n_tok, .n_head = c->n_head};
    a.q_head_stride = 2 * c->d_k;
    a.q_tok_stride = a.q_head_stride * c->n_head;
    a.k_tok_stride = c->n_kv_head * c->d_k, a.v_tok_stride = c->n_kv_head * c->d_v;
    a.q = r->q + first * a.q_tok_stride;
    a.k = r->k + first * a.k_tok_stride, a.v = r->v + first * a.v_tok_stride;
    a.q_norm = c->norm ? r->qn : NULL, a.k_norm = c->norm ? r->kn : NULL;
    a.eps = 1e-6f;
    a.rope = (struct rope){c->rope, c->d_k / 4 * 2, r->inv, 1.1f};
    a.kv = r->kv;
    a.q_out = r->q_out + (int64_t)first * c->n_head * c->d_k;
    d->ops->qkv_store(d, &a);
    struct attn_args b = {.spans = s,
                          .n_span = n_span,
                          .n_tok = n_tok,
                          .n_head = c->n_head,
                          .q = a.q_out,
                          .kv = r->kv,
                          .scale = 1 / sqrtf((float)c->d_k),
                          .softcap = c->softcap,
                          .window = c->window,
                          .n_keep = c->n_keep,
                          .sinks = c->sinks ? r->sinks : NULL};
    b.gate_head_stride = c->d_v;
    b.gate_tok_stride = (int64_t)c->n_head * c->d_v;
    b.gate = c->gate ? r->gate + first * b.gate_tok_stride : NULL;
    b.out = r->out + (int64_t)first * c->n_head * c->d_v;
    d->ops->attn(d, &b);
}

static void clear_pages(struct attn_room *r) {
    memset(r->kv.k, 0, 16 * r->kv.k_page_bytes);
    memset(r->kv.v, 0, 16 * r->kv.v_page_bytes);
}

static void attention_agrees(void **st) {
    (void)st;
    for (int k = 0; k < N_ATTN; k++) {
        const struct attn_case *c = &attn_cases[k];
        struct attn_room r;
        attn_open(c, &r);
        size_t nq = (size_t)ATTN_TOK * (size_t)(c->n_head * c->d_k);
        size_t no = (size_t)ATTN_TOK * (size_t)(c->n_head * c->d_v);
        /* two sequences of 270 and 45 tokens in one call, then 2 and 13 more */
        struct span s[] = {{.row = 0, .n_tok = 270, .pos = 0, .pages = r.pages[0]},
                           {.row = 270, .n_tok = 45, .pos = 0, .pages = r.pages[1]}};
        struct span more[] = {{.row = 0, .n_tok = 2, .pos = 270, .pages = r.pages[0]},
                              {.row = 2, .n_tok = 13, .pos = 45, .pages = r.pages[1]}};
        attn_run(ref, c, &r, s, 2, 315, 0);
        attn_run(ref, c, &r, more, 2, 15, 315);
        float *q0 = copy_of(r.q_out, nq), *o0 = copy_of(r.out, no);
        clear_pages(&r);
        attn_run(dev, c, &r, s, 2, 315, 0);
        settle(dev);
        attn_run(dev, c, &r, more, 2, 15, 315);
        settle(dev);
        check_near(r.q_out, q0, nq, 1e-5, "qkv_store case %d", k);
        bool coarse = ref_is_quantised(c->k_type) || ref_is_quantised(c->v_type);
        size_t tiled = (size_t)315 * (size_t)(c->n_head * c->d_v);
        /* of 4 bits, a value at a tie is an eighth of the largest away, and what all have besides */
        check_near(r.out, o0, tiled, c->v_type == QUANT_Q4_0 ? 0.129 : 4e-3, "attn case %d, tiles",
                   k);
        check_near(r.out + tiled, o0 + tiled, no - tiled,
                   c->k_type == QUANT_Q4_0   ? 0.25
                   : c->v_type == QUANT_Q4_0 ? 0.129
                   : coarse                  ? 2e-3
                   : c->k_type == QUANT_F16  ? 2e-4
                                             : 1e-5,
                   "attn case %d, steps", k);
        /* the 13 again, one at a time: the same bits */
        float *o1 = copy_of(r.out, no);
        for (int t = 0; t < 13; t++) {
            struct span one = {.row = 0, .n_tok = 1, .pos = 45 + t, .pages = r.pages[1]};
            attn_run(dev, c, &r, &one, 1, 1, 317 + t);
        }
        settle(dev);
        check_same(r.out, o1, no, "attn case %d, one at a time", k);
        drop_all();
    }
}

/* Contexts whose stretches are several steps of a warp: a few written pages stand for all before. What lies behind the
 * last position is NaN. */
static void deep_attention_agrees(void **st) {
    (void)st;
    enum { DEEP = 2, N_PAGES = 400 };
    static const int64_t at[] = {511, 8191, 24575};
    static int32_t pages[N_PAGES];
    for (int k = 0; k < N_ATTN; k++) {
        const struct attn_case *c = &attn_cases[k];
        struct attn_room r;
        attn_open(c, &r);
        struct span s = {.row = 0, .n_tok = 256, .pos = 0, .pages = r.pages[0]};
        attn_run(ref, c, &r, &s, 1, 256, 0);
        size_t kb = r.kv.k_page_bytes, vb = r.kv.v_page_bytes, no = (size_t)c->n_head * DEEP;
        no *= (size_t)c->d_v;
        for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
            if (i == 2 && k != 2 && k != 5) continue; /* slow */
            int32_t own = (int32_t)(at[i] / KV_PAGE), *free_pages = r.pages[0] + 4;
            for (int32_t p = 0; p < own; p++) pages[p] = r.pages[0][p % 4];
            pages[own] = free_pages[0], pages[own + 1] = free_pages[1];
            for (int p = 0; p < 2; p++) {
                uint8_t *key = (uint8_t *)r.kv.k + (size_t)free_pages[p] * kb;
                uint8_t *value = (uint8_t *)r.kv.v + (size_t)free_pages[p] * vb;
                memset(key, 0xff, kb);
                memset(value, 0xff, vb);
                uint64_t k1 = kb / KV_PAGE / (size_t)c->n_kv_head;
                uint64_t v1 = vb / KV_PAGE / (size_t)c->n_kv_head;
                for (int32_t h = 0; p == 0 && h < c->n_kv_head; h++) {
                    size_t from = (size_t)h * KV_PAGE, n = (size_t)(at[i] % KV_PAGE);
                    memcpy(key + from * k1,
                           (uint8_t *)r.kv.k + (size_t)r.pages[0][1] * kb + from * k1, n * k1);
                    memcpy(value + from * v1,
                           (uint8_t *)r.kv.v + (size_t)r.pages[0][1] * vb + from * v1, n * v1);
                }
            }
            s = (struct span){.row = 0, .n_tok = DEEP, .pos = at[i], .pages = pages};
            attn_run(ref, c, &r, &s, 1, DEEP, 256);
            size_t first = (size_t)(256 * c->n_head * c->d_v);
            float *o0 = copy_of(r.out + first, no);
            attn_run(dev, c, &r, &s, 1, DEEP, 256);
            settle(dev);
            bool coarse = ref_is_quantised(c->k_type) || ref_is_quantised(c->v_type);
            check_near(r.out + first, o0, no,
                       c->v_type == QUANT_Q4_0  ? 0.125
                       : coarse                 ? 2e-3
                       : c->k_type == QUANT_F16 ? 2e-4
                                                : 1e-5,
                       "attn case %d at %ld", k, (long)at[i]);
            float *o1 = copy_of(r.out + first, no);
            struct span one = {.row = 0, .n_tok = 1, .pos = at[i] + 1, .pages = pages};
            attn_run(dev, c, &r, &one, 1, 1, 257);
            settle(dev);
            check_same(r.out + first, o1, no, "attn case %d at %ld, one at a time", k, (long)at[i]);
            if (i) continue;
            /* NaN in a key reaches the heads that see it, in a value its element, and no token before */
            for (int of_value = 0; of_value < 2; of_value++) {
                float *x = of_value ? r.v + 257 * c->n_kv_head * c->d_v
                                    : r.k + 257 * c->n_kv_head * c->d_k;
                float old = *x;
                *x = NAN;
                attn_run(dev, c, &r, &s, 1, DEEP, 256);
                settle(dev);
                *x = old;
                check_same(r.out + first, o1, no / DEEP, "attn case %d before NaN", k);
                int32_t group = c->n_head / c->n_kv_head, d = c->d_v;
                for (int32_t e = 0; e < c->n_head * d; e++) {
                    bool bad = isnan(r.out[first + no / DEEP + (size_t)e]);
                    if (e >= group * d) assert_false(bad);
                    else if (!of_value || e % d == 0) assert_true(bad);
                }
            }
            attn_run(precise, c, &r, &s, 1, DEEP, 256);
            settle(precise);
            check_near(r.out + first, o0, no,
                       c->v_type == QUANT_Q4_0 ? 0.125
                       : coarse                ? 2e-3
                                               : 1e-5,
                       "attn case %d at %ld, precise", k, (long)at[i]);
        }
        drop_all();
    }
}

static void full_attention_agrees(void **st) {
    (void)st;
    enum { H = 3, D = 20, N = 57 };
    size_t n = (size_t)H * D * N;
    float *q = floats(n, 1), *k = floats(n, 1), *v = floats(n, 1), *y0 = floats(n, 0),
          *y1 = floats(n, 0);
    struct span s[] = {{.row = 0, .n_tok = 40}, {.row = 40, .n_tok = 17}};
    struct attn_full_args a = {s, 2, N, H, D, q, k, v, .3f, y0};
    ref->ops->attn_full(ref, &a);
    a.out = y1;
    dev->ops->attn_full(dev, &a);
    settle(dev);
    check_near(y1, y0, n, 1e-5, "attn_full");
    drop_all();
}

/* ---- recurrent ops: one description runs them all ---- */

enum { SLOTS = 3, CAP = 16, REC_TOK = 160 };

static const struct rec_case {
    const char *name;
    int32_t kind;                                 /* 0 conv, 1 gdn, 2 ssd, 3 ssm, 4 conv and ssd */
    int32_t n_k_head, n_v_head, d_k, d_v, n_norm; /* n_norm of gdn: its convolution's width, 0: 4 */
    bool flag, gate, bias;
} rec_cases[] = {
    {"conv", 0, 0, 0, 4, 150, 0, true, false, true},
    {"conv raw", 0, 0, 0, 2, 33, 0, false, false, false},
    {"gdn", 1, 2, 4, 128, 128, 0, false, true, false},
    {"gdn grouped", 1, 2, 6, 32, 48, 0, true, true, true},
    {"gdn odd", 1, 3, 3, 20, 12, 0, false, true, true},
    {"gdn of three", 1, 1, 3, 128, 128, 0, true, true, true},
    {"gdn wide", 1, 1, 2, 160, 200, 3, false, true, false},
    {"ssd", 2, 2, 4, 128, 64, 2, false, true, false},
    {"ssd norm first", 2, 1, 3, 32, 48, 1, true, true, false},
    {"ssd bare", 2, 2, 2, 16, 32, 0, false, false, false},
    {"conv and ssd", 4, 2, 6, 128, 64, 2, false, true, true},
    {"conv and ssd of one group", 4, 1, 9, 128, 64, 1, false, true, false},
    {"conv and ssd odd", 4, 1, 3, 20, 72, 1, true, true, true},
    {"ssd wide", 2, 1, 2, 200, 80, 2, false, true, false},
    {"ssm", 3, 0, 80, 16, 1, 0, false, true, false},
    {"ssm wide", 3, 0, 21, 24, 1, 0, false, false, false},
};
enum { N_REC = sizeof rec_cases / sizeof *rec_cases };

struct rec_room {
    const struct rec_case *c;
    int64_t n_x, n_more, n_out; /* floats a token of the two inputs and the output */
    float *x, *more, *z, *w, *bias, *a, *d, *dt_bias, *norm, *conved;
    struct rec_view state;
};

static void rec_open(struct rec_room *r, const struct rec_case *c) {
    *r = (struct rec_room){.c = c};
    int64_t nv = c->n_v_head, dk = c->d_k, dv = c->d_v;
    r->n_out = c->kind == 0 ? dv : c->kind == 3 ? nv : nv * dv;
    r->n_x = c->kind == 0   ? dv
             : c->kind == 1 ? 2 * c->n_k_head * dk + nv * dv
             : c->kind != 3 ? nv * dv + 2 * c->n_k_head * dk
                            : 2 * nv + 2 * dk;
    r->n_more = c->kind == 0 || c->kind == 3 ? 0 : c->kind == 1 ? 2 * nv : nv;
    r->x = floats((size_t)(REC_TOK * r->n_x), 1);
    r->more = floats((size_t)(REC_TOK * r->n_more) + 1, 1);
    r->z = floats((size_t)(REC_TOK * r->n_out), 1);
    r->w = floats((size_t)(r->n_x * 8), .5);
    r->bias = floats((size_t)r->n_x, .3);
    r->a = floats((size_t)(nv * dk) + 1, .4);
    for (int64_t i = 0; i < nv * dk; i++) r->a[i] = -fabsf(r->a[i]) - .02f;
    r->d = floats((size_t)nv + 1, 1);
    r->dt_bias = floats((size_t)nv + 1, .5);
    r->norm = floats((size_t)r->n_out, 1);
    r->conved = floats((size_t)(REC_TOK * r->n_x), 0);
    int64_t d_conv = c->kind == 0 ? dk : c->kind == 1 && c->n_norm ? c->n_norm : 4;
    r->state = (struct rec_view){.s_stride = (size_t)(nv * dk * (c->kind == 3 ? 1 : dv)) + 4,
                                 .conv_stride = (size_t)((d_conv - 1) * r->n_x),
                                 .log_row = (size_t)(r->n_x + r->n_more) +
                                            (c->kind == 4 ? (size_t)r->n_x : 0),
                                 .log_cap = CAP};
    r->state.s = floats(SLOTS * r->state.s_stride, 0);
    r->state.conv = floats(SLOTS * r->state.conv_stride + 1, 0);
    r->state.log = floats(SLOTS * CAP * r->state.log_row, 0);
}

static void rec_clear(struct rec_room *r) {
    memset(r->state.s, 0, SLOTS * r->state.s_stride * sizeof(float));
    memset(r->state.conv, 0, SLOTS * r->state.conv_stride * sizeof(float));
    memset(r->state.log, 0, SLOTS * CAP * r->state.log_row * sizeof(float));
}

static void rec_run(struct dev *d, const struct rec_room *r, const struct span *s, int32_t n_span,
                    int32_t n_tok, int64_t first, float *out) {
    const struct rec_case *c = r->c;
    const float *x = r->x + first * r->n_x, *more = r->more + first * r->n_more;
    const float *z = c->gate ? r->z + first * r->n_out : NULL;
    out += first * r->n_out;
    if (c->kind == 0 || c->kind == 4) {
        struct conv_args a = {.spans = s,
                              .n_span = n_span,
                              .n_tok = n_tok,
                              .d_conv = c->kind == 0 ? c->d_k : 4,
                              .n_conv = r->n_x,
                              .x = x,
                              .x_stride = r->n_x,
                              .w = r->w,
                              .b = c->bias ? r->bias : NULL,
                              .silu = c->flag || c->kind == 4,
                              .state = r->state,
                              .out = c->kind == 0 ? out : r->conved,
                              .out_stride = r->n_x};
        d->ops->conv(d, &a);
        x = r->conved;
    }
    if (c->kind == 1) {
        /* alpha and beta are arrays of their own: the first and second half of `more` */
        struct gdn_args a = {.spans = s,
                             .n_span = n_span,
                             .n_tok = n_tok,
                             .n_k_head = c->n_k_head,
                             .n_v_head = c->n_v_head,
                             .d_k = c->d_k,
                             .d_v = c->d_v,
                             .d_conv = c->n_norm ? c->n_norm : 4,
                             .is_grouped = c->flag,
                             .eps = 1e-6f,
                             .qkv = x,
                             .z = z,
                             .qkv_stride = r->n_x,
                             .z_stride = r->n_out,
                             .alpha = r->more + first * c->n_v_head,
                             .beta = r->more + (REC_TOK + first) * c->n_v_head,
                             .conv_w = r->w,
                             .conv_b = c->bias ? r->bias : NULL,
                             .a = r->a,
                             .dt_bias = r->dt_bias,
                             .norm_w = r->norm,
                             .state = r->state,
                             .out = out};
        d->ops->gdn(d, &a);
    } else if (c->kind == 2 || c->kind == 4) {
        struct ssd_args a = {.spans = s,
                             .n_span = n_span,
                             .n_tok = n_tok,
                             .n_head = c->n_v_head,
                             .n_group = c->n_k_head,
                             .d_head = c->d_v,
                             .d_state = c->d_k,
                             .n_norm = c->n_norm,
                             .xbc = x,
                             .dt = more,
                             .z = z,
                             .xbc_stride = r->n_x,
                             .dt_stride = r->n_more,
                             .z_stride = r->n_out,
                             .a = r->a,
                             .d = r->d,
                             .dt_bias = r->dt_bias,
                             .dt_min = .05f,
                             .dt_max = c->flag ? .9f : INFINITY,
                             .norm_w = c->n_norm ? r->norm : NULL,
                             .norm_first = c->flag,
                             .eps = 1e-6f,
                             .state = r->state,
                             .log_at = c->kind == 4 ? (size_t)r->n_x : 0,
                             .out = out};
        d->ops->ssd(d, &a);
    } else if (c->kind == 3) {
        int64_t n = c->n_v_head;
        struct ssm_args a = {.spans = s,
                             .n_span = n_span,
                             .n_tok = n_tok,
                             .d_state = c->d_k,
                             .n_inner = n,
                             .x = x,
                             .dt = x + n,
                             .b = x + 2 * n,
                             .c = x + 2 * n + c->d_k,
                             .z = z,
                             .x_stride = r->n_x,
                             .dt_stride = r->n_x,
                             .bc_stride = r->n_x,
                             .z_stride = r->n_out,
                             .a = r->a,
                             .d = r->d,
                             .state = r->state,
                             .out = out};
        d->ops->ssm(d, &a);
    }
}

static struct span whole(int32_t row, int32_t n, int32_t slot, int64_t pos) {
    return (struct span){.row = row, .n_tok = n, .slot = slot, .n_commit = n, .pos = pos};
}

static void recurrent_ops_agree(void **st) {
    (void)st;
    for (int k = 0; k < N_REC; k++) {
        struct rec_room r;
        rec_open(&r, &rec_cases[k]);
        size_t n = (size_t)(REC_TOK * r.n_out);
        float *y[2] = {floats(n, 0), floats(n, 0)};
        struct dev *d[] = {ref, dev};
        struct span s[] = {whole(0, 101, 2, 0), whole(101, 30, 0, 0), whole(131, 9, 1, 3)};
        struct span more[] = {whole(0, 2, 2, 101), whole(2, 18, 0, 30)};
        for (int i = 0; i < 2; i++) {
            rec_clear(&r);
            rec_run(d[i], &r, s, 3, 140, 0, y[i]);
            settle(d[i]);
            rec_run(d[i], &r, more, 2, 20, 140, y[i]);
            settle(d[i]);
        }
        check_near(y[1], y[0], n, 1e-4, "%s", rec_cases[k].name);
        drop_all();
    }
}

static void cuts_and_drafts_give_the_bits_of_single_steps(void **st) {
    (void)st;
    for (int k = 0; k < N_REC; k++) {
        const char *name = rec_cases[k].name;
        struct rec_room r;
        rec_open(&r, &rec_cases[k]);
        size_t n = (size_t)(REC_TOK * r.n_out), part = 40 * (size_t)r.n_out;
        float *want = floats(n, 0), *y = floats(n, 0), *exact = floats(n, 0);
        for (int t = 0; t < 40; t++) {
            struct span one = whole(0, 1, 1, t);
            rec_run(dev, &r, &one, 1, 1, t, want);
            settle(dev);
        }
        float *s0 = copy_of(r.state.s, SLOTS * r.state.s_stride);
        rec_clear(&r);
        struct span all = whole(0, 40, 1, 0);
        rec_run(ref, &r, &all, 1, 40, 0, exact);
        check_near(want, exact, part, 1e-5, "%s, steps", name);
        rec_clear(&r);
        for (int t = 0; t < 40; t += 10) {
            struct span ten = whole(0, 10, 1, t);
            rec_run(dev, &r, &ten, 1, 10, t, y);
            settle(dev);
        }
        check_same(y, want, part, "%s, by tens", name);
        rec_clear(&r);
        for (int t = 0; t < 38;
             t++) { /* the rows of its neighbours are written over by the next step */
            struct span three[] = {whole(0, 1, 1, t), whole(1, 1, 2, t), whole(2, 1, 0, t)};
            rec_run(dev, &r, three, 3, 3, t, y);
            settle(dev);
        }
        check_same(y, want, 38 * (size_t)r.n_out, "%s, with neighbours", name);
        /* drafts: 7 deferred of which 3 stay, then 5 of which all stay, and so on to 40 */
        rec_clear(&r);
        memset(y, 0, n * sizeof *y);
        int at = 0, logged = 0;
        while (at < 40) {
            int tries = 40 - at < 7 ? 40 - at : 7, stay = at % 2 ? tries : (tries + 1) / 2;
            struct span draft = {
                .row = 0, .n_tok = tries, .slot = 1, .n_replay = logged, .pos = at};
            rec_run(dev, &r, &draft, 1, tries, at, y);
            settle(dev);
            logged = stay;
            at += stay;
        }
        check_same(y, want, part, "%s, drafted", name);
        struct span rest = whole(0, 1, 1, 40);
        rest.n_replay = logged;
        rec_run(dev, &r, &rest, 1, 1, 40, y);
        settle(dev);
        float *s1 = copy_of(r.state.s, SLOTS * r.state.s_stride);
        memcpy(r.state.s, s0, SLOTS * r.state.s_stride * sizeof(float));
        (void)s1; /* the state behind token 41 is compared through its output */
        drop_all();
    }
}

/* ---- feed-forward ---- */

static void ffn_agrees(void **st) {
    (void)st;
    static const uint32_t kinds[] = {QUANT_F32, QUANT_Q8_0, QUANT_Q5_K, QUANT_BF16};
    for (int k = 0; k < 8; k++) {
        uint32_t type = kinds[k / 2];
        int64_t n = 256, n_ff = type == QUANT_F32 ? 150 : 512, n_tok = k % 2 ? 19 : 2;
        struct weight w[] = {weight_of(type, n, n_ff, 1, .06), weight_of(type, n, n_ff, 1, .06),
                             weight_of(type, n_ff, n, 1, .06)};
        struct weight w2[3];
        for (int j = 0; j < 3; j++) w2[j] = prepared(dev, &w[j]);
        float *x = floats((size_t)(n * n_tok), 1), *b = floats(512, 1);
        float *y0 = floats((size_t)(n * n_tok), 0), *y1 = copy_of(y0, (size_t)(n * n_tok));
        struct ffn_args a = {.n_tok = (int32_t)n_tok,
                             .act = ACT_SILU,
                             .x = x,
                             .up = &w[1],
                             .down = &w[2],
                             .up_b = b,
                             .gate_scale = 1,
                             .down_scale = .5f,
                             .out = y0};
        a.gate = k % 2 ? &w[0] : NULL;
        a.down_b = k % 2 ? b : NULL;
        if (k % 2) ref->ops->ffn(ref, &a);
        else ref8->ops->ffn(ref8, &a);
        a.gate = k % 2 ? &w2[0] : NULL, a.up = &w2[1], a.down = &w2[2], a.out = y1;
        dev->ops->ffn(dev, &a);
        settle(dev);
        check_near(y1, y0, (size_t)(n * n_tok), k % 2 || ref_is_quantised(type) ? 2e-3 : 1e-5,
                   "ffn %s %ld", quant_traits(type)->name, (long)n_tok);
        drop_all();
    }
}

static const struct moe_case {
    uint32_t type, sh_type;
    enum moe_gating gating;
    bool normalise, bias, shared, shared_gate, has_gate;
    enum act act;
    int64_t sh_ff;
} moe_cases[] = {
    {QUANT_F32, QUANT_F32, MOE_SOFTMAX, true, false, true, true, true, ACT_SILU, 256},
    {QUANT_Q8_0, QUANT_F16, MOE_SIGMOID, true, true, true, false, false, ACT_RELU2, 320},
    {QUANT_IQ3_S, QUANT_Q5_K, MOE_SOFTMAX, true, false, true, true, true, ACT_SILU, 512},
    {QUANT_Q4_K, QUANT_Q6_K, MOE_SOFTMAX, false, false, false, false, true, ACT_SILU, 256},
    {QUANT_Q4_0, QUANT_Q8_0, MOE_SOFTMAX_CHOSEN, false, true, true, false, true, ACT_SILU, 32},
};

static void moe_agrees_and_rows_are_independent(void **st) {
    (void)st;
    enum { N = 256, FF = 256, N_EXPERT = 16, N_USED = 3, N_TOK = 70, N_W = 7 };
    for (size_t k = 0; k < sizeof moe_cases / sizeof *moe_cases; k++) {
        const struct moe_case *c = &moe_cases[k];
        if (dev == wide && planes_form(c->type, PLANES_WIDE) == planes_form(c->type, PLANES))
            continue;
        struct weight w[N_W] = {
            weight_of(QUANT_F32, N, N_EXPERT, 1, .1),   weight_of(c->type, N, FF, N_EXPERT, .06),
            weight_of(c->type, N, FF, N_EXPERT, .06),   weight_of(c->type, FF, N, N_EXPERT, .06),
            weight_of(c->sh_type, N, c->sh_ff, 1, .06), weight_of(c->sh_type, N, c->sh_ff, 1, .06),
            weight_of(c->sh_type, c->sh_ff, N, 1, .06)};
        struct weight w2[N_W];
        for (int j = 0; j < N_W; j++) w2[j] = prepared(dev, &w[j]);
        size_t n = (size_t)N * N_TOK;
        float *x = floats(n, 1), *y0 = floats(n, 0), *y1 = floats(n, 0), *y2 = floats(n, 0);
        float *bias = floats(N_EXPERT, .1), *sgw = floats(N, .1);
        int32_t *ids0 = room(N_TOK * N_USED * 4), *ids1 = room(N_TOK * N_USED * 4);
        struct moe_args a = {.n_tok = N_TOK,
                             .n_used = N_USED,
                             .gating = c->gating,
                             .normalise = c->normalise,
                             .scale = 1.25f,
                             .act = c->act,
                             .x = x,
                             .select_bias = c->bias ? bias : NULL,
                             .shared_gate_w = c->shared_gate ? sgw : NULL};
        struct weight *v[] = {w, w2};
        for (int pass = 0; pass < 2;
             pass++) { /* 70 rows in tiles against exact, 9 against rounded */
            struct dev *host = pass ? ref8 : ref;
            a.n_tok = pass ? 9 : N_TOK;
            memset(y0, 0, n * sizeof *y0);
            memset(y1, 0, n * sizeof *y1);
            for (int j = 0; j < 2; j++) {
                a.router = &v[j][0], a.gate = c->has_gate ? &v[j][1] : NULL, a.up = &v[j][2];
                a.down = &v[j][3], a.sh_up = NULL;
                if (c->shared) {
                    a.sh_gate = c->has_gate ? &v[j][4] : NULL;
                    a.sh_up = &v[j][5], a.sh_down = &v[j][6];
                }
                a.out = j ? y1 : y0, a.ids = j ? ids1 : ids0;
                if (j) dev->ops->moe(dev, &a);
                else host->ops->moe(host, &a);
            }
            settle(dev);
            assert_memory_equal(ids0, ids1, (size_t)a.n_tok * N_USED * 4);
            check_near(y1, y0, (size_t)a.n_tok * N, 5e-3, "moe case %zu, %d rows", k, a.n_tok);
        }
        for (int t = 0; t < 13; t++) {
            a.n_tok = 1, a.x = x + (size_t)t * N, a.out = y2 + (size_t)t * N;
            dev->ops->moe(dev, &a);
        }
        settle(dev);
        for (int pass = 0; pass < 2; pass++) { /* y0, then y1 beside a token that is no number */
            if (pass) x[5 * N + 3] = NAN;
            memset(pass ? y1 : y0, 0, n * sizeof *y1);
            a.n_tok = 13, a.x = x, a.out = pass ? y1 : y0, a.ids = NULL;
            dev->ops->moe(dev, &a);
            settle(dev);
        }
        check_near(y0, y2, (size_t)13 * N, 1e-5, "moe case %zu, one by one", k);
        for (int t = 0; t < 13; t++) {
            if (t == 5) assert_true(isnan(y1[t * N]) && isnan(y1[t * N + N - 1]));
            else check_same(y1 + t * N, y0 + t * N, N, "moe case %zu row %d", k, t);
        }
        drop_all();
    }
    if (dev != wide) with_wide(moe_agrees_and_rows_are_independent);
}

static void selected_rows_keep_the_promise(void **s) {
    (void)s;
    static const int32_t sizes[] = {7, 1024, 1200};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        select_check(dev, floats((size_t)sizes[k] * SELECT_KINDS, 0), sizes[k]);
        drop_all();
    }
    /* as large as a vocabulary, the staging made for it */
    enum { N = 20011 };
    struct dev_need larger = need;
    larger.n_out = N;
    struct dev *own;
    const struct cuda_params plain = {0};
    assert_int_equal(cuda_open(&own, &plain, NULL), 0);
    assert_int_equal(own->ops->reserve(own, &larger, NULL), 0);
    select_check(own, floats(N * SELECT_KINDS, 0), N);
    drop_all();
    own->ops->close(own);
}

static int open_all(void **st) {
    (void)st;
    struct err e = {0};
    rng_seed(&rng, 20);
    const struct cuda_params plain = {.layout = PLANES}, exact = {.precise = true},
                             roomy = {.layout = PLANES_WIDE};
    if (cpu_open_ref(&ref, &e) || ref_open_round8(&ref8, &e)) return -1;
    if (cuda_open(&dev, &plain, &e) || cuda_open(&precise, &exact, &e) ||
        cuda_open(&wide, &roomy, &e)) {
        print_message("skip: the CUDA device: %s\n", e.text);
        return -1;
    }
    struct dev *all[] = {ref, ref8, dev, precise, wide};
    for (int i = 0; i < 5; i++)
        if (all[i]->ops->reserve(all[i], &need, &e)) return -1;
    return 0;
}

static int close_all(void **st) {
    (void)st;
    struct dev *all[] = {ref, ref8, dev, precise, wide};
    for (int i = 0; i < 5; i++) all[i]->ops->close(all[i]);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_agree),
        cmocka_unit_test(elements_agree),
        cmocka_unit_test(selected_rows_keep_the_promise),
        cmocka_unit_test(linear_of_every_type),
        cmocka_unit_test(linear_of_several_matrices),
        cmocka_unit_test(ffn_agrees),
        cmocka_unit_test(moe_agrees_and_rows_are_independent),
        cmocka_unit_test(recurrent_ops_agree),
        cmocka_unit_test(cuts_and_drafts_give_the_bits_of_single_steps),
        cmocka_unit_test(attention_agrees),
        cmocka_unit_test(deep_attention_agrees),
        cmocka_unit_test(full_attention_agrees),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}

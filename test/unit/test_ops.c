/* test_ops.c: every op of every CPU device against the scalar reference, over types and odd shapes.
 *
 * Three questions are asked of each op: does it agree with the reference within the tolerance that
 * ops.h names; does a row depend on its neighbours (NaN in one, or how many there are); and for
 * recurrent ops, does replaying a log give the bits that applying at once gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "format/quant.h"
#include "kernels/cpu/cpu.h"
#include "kernels/ref/ref.h"
#include "op_cases.h"
#include "select_rows.h"

static struct rng rng;
static struct dev *ref, *ref8; /* activations as they are, and rounded to 8 bits */
static struct dev *devs[8];
static const char *dev_names[8];
static int n_dev;

static const struct dev_need need = {.n_tok = 320,
                                     .n_in = 1024,
                                     .n_out = 1200,
                                     .n_ff = 768,
                                     .n_expert = 16,
                                     .n_used = 8,
                                     .n_head = 8,
                                     .d_head = 576,
                                     .n_v_head = 8,
                                     .d_state = 128 * 128,
                                     .d_rec_k = 128,
                                     .d_rec_v = 128,
                                     .n_conv = 4096,
                                     .n_ctx = 512};

static float *floats(size_t n, double scale) {
    float *x = mem_aligned(64, n * sizeof *x);
    for (size_t i = 0; scale != 0 && i < n; i++) x[i] = (float)(rng_normal(&rng) * scale);
    return x;
}

static float *copy_of(const float *x, size_t n) {
    float *y = mem_aligned(64, n * sizeof *y);
    memcpy(y, x, n * sizeof *y);
    return y;
}

/* ---- weights of random blocks: every code of every type occurs ---- */

/* Offsets of the half-precision scales of a block, and a value that keeps weights near 1. */
static const struct {
    uint32_t type;
    int n_at, at[2];
    float value;
} scale_fields[] = {
    {QUANT_Q4_0, 1, {0}, .2f},      {QUANT_Q4_1, 2, {0, 2}, .1f},   {QUANT_Q5_0, 1, {0}, .1f},
    {QUANT_Q5_1, 2, {0, 2}, .1f},   {QUANT_Q8_0, 1, {0}, .013f},    {QUANT_Q2_K, 2, {80, 82}, .05f},
    {QUANT_Q3_K, 1, {108}, .02f},   {QUANT_Q4_K, 2, {0, 2}, .005f}, {QUANT_Q5_K, 2, {0, 2}, .003f},
    {QUANT_Q6_K, 1, {208}, .0007f}, {QUANT_IQ2_XXS, 1, {0}, .05f},  {QUANT_IQ2_XS, 1, {0}, .05f},
    {QUANT_IQ3_XXS, 1, {0}, .05f},  {QUANT_IQ1_S, 1, {0}, .1f},     {QUANT_IQ4_NL, 1, {0}, .013f},
    {QUANT_IQ3_S, 1, {0}, .007f},   {QUANT_IQ2_S, 1, {0}, .05f},    {QUANT_IQ4_XS, 1, {0}, .001f},
    {QUANT_TQ1_0, 1, {52}, .7f},    {QUANT_TQ2_0, 1, {64}, .7f},    {QUANT_IQ2_K, 1, {0}, .005f},
    {QUANT_IQ3_K, 1, {0}, .002f},   {QUANT_IQ4_K, 1, {0}, .0005f},  {QUANT_IQ5_K, 1, {0}, .0005f},
    {QUANT_IQ6_K, 1, {0}, .0001f},
};

static void put_scale(uint32_t type, uint8_t *block) {
    for (size_t i = 0; i < sizeof scale_fields / sizeof *scale_fields; i++) {
        if (scale_fields[i].type != type) continue;
        for (int j = 0; j < scale_fields[i].n_at; j++) {
            uint16_t h = quant_f32_to_f16(scale_fields[i].value * (float)(.5 + rng_uniform(&rng)));
            memcpy(block + scale_fields[i].at[j], &h, 2);
        }
    }
    if (type == QUANT_MXFP4) block[0] = (uint8_t)(120 + rng_below(&rng, 8));
    if (type == QUANT_IQ1_M) { /* the four high nibbles make the scale */
        uint16_t h = quant_f32_to_f16(.1f);
        for (int i = 0; i < 4; i++)
            block[48 + 2 * i + 1] =
                (uint8_t)((block[48 + 2 * i + 1] & 15) | (h >> 4 * i & 15) << 4);
    }
}

/* The scale before the blocks of a row, as large as in files: subnormal as f16. */
static void put_head(const struct quant_traits *t, uint8_t *row) {
    float f = 1e-5f * (float)(.5 + rng_uniform(&rng));
    uint16_t h = quant_f32_to_f16(f);
    if (t->head_bytes == sizeof f) memcpy(row, &f, sizeof f);
    if (t->head_bytes == sizeof h) memcpy(row, &h, sizeof h);
}

static struct weight weight_of(uint32_t type, int64_t n_in, int64_t n_out, int64_t n_mat,
                               double scale) {
    const struct quant_traits *t = quant_traits(type);
    struct weight w = {.type = type, .n_in = n_in, .n_out = n_out, .n_mat = n_mat};
    const size_t n_block = (size_t)n_in / t->block_elements;
    w.row_bytes = t->head_bytes + n_block * t->block_bytes;
    w.mat_bytes = w.row_bytes * (size_t)n_out;
    uint8_t *p = mem_aligned(64, w.mat_bytes * (size_t)n_mat);
    w.data = p;
    for (size_t i = 0; i < n_block * (size_t)(n_out * n_mat); i++) {
        uint8_t *row = p + i / n_block * w.row_bytes;
        uint8_t *block = row + t->head_bytes + i % n_block * t->block_bytes;
        if (i % n_block == 0) put_head(t, row);
        float f = (float)(rng_normal(&rng) * scale);
        uint16_t half = type == QUANT_F16 ? quant_f32_to_f16(f) : quant_f32_to_bf16(f);
        if (type == QUANT_F32) memcpy(block, &f, 4);
        else if (t->block_elements == 1) memcpy(block, &half, 2);
        else {
            for (uint32_t j = 0; j < t->block_bytes; j++) block[j] = (uint8_t)rng_next(&rng);
            put_scale(type, block);
        }
    }
    return w;
}

/* w in the device's own form; *made is to be freed. */
static struct weight prepared(struct dev *d, const struct weight *w, void **made) {
    struct weight w2 = *w;
    size_t n = d->ops->prepared_bytes(d, w);
    *made = n ? d->ops->alloc(d, n) : NULL;
    if (n) d->ops->prepare(d, w, *made, &w2);
    return w2;
}

static void drop(const void *p) { mem_free((void *)(uintptr_t)p); }

static void check_status(struct dev *d, const char *name) {
    struct err e = {0};
    if (d->ops->status(d, &e)) fail_msg("%s: %s", name, e.text);
}

static bool has_decode(uint32_t type) { return quant_traits(type)->decode; }

/* ---- linear ---- */

static void linear_agrees(struct dev *d, const char *name, uint32_t type, int64_t n_in,
                          int64_t n_out, int32_t n_tok) {
    void *made;
    struct weight w = weight_of(type, n_in, n_out, 1, 1), w2 = prepared(d, &w, &made);
    int64_t x_stride = n_in + 16, y_stride = n_out + 3;
    float *x = floats((size_t)(x_stride * n_tok), 1), *bias = floats((size_t)n_out, 1);
    size_t n = (size_t)(y_stride * n_tok);
    float *y0 = floats(n, 1), *y1 = copy_of(y0, n), *y2 = copy_of(y0, n);
    struct linear_out o = {&w, bias, y0, y_stride, .5f, true};
    ref->ops->linear(ref, &o, 1, x, x_stride, n_tok);
    o.dst = y1;
    ref8->ops->linear(ref8, &o, 1, x, x_stride, n_tok);
    o.dst = y2;
    o.w = &w2;
    d->ops->linear(d, &o, 1, x, x_stride, n_tok);
    check_status(d, name);
    const char *type_name = quant_traits(type)->name;
    /* CPU devices keep a row's float scale as f16 */
    size_t n_made = (size_t)(n_out * n_tok);
    double near = quant_traits(type)->head_bytes == sizeof(float) ? 5e-4 : 1e-5;
    check_near(y2, y1, n, near + type_rounding(type, n_made), "%s linear %s [%ld, %ld] x %d", name,
               type_name, (long)n_out, (long)n_in, n_tok);
    if (n_out * n_tok > 50) /* few narrow outputs may all cancel */
        check_near(y2, y0, n, ref_is_quantised(type) ? 4e-2 : 1e-5,
                   "%s linear %s, exact activations", name, type_name);
    /* one at a time gives the same bits, and a NaN row changes no other row */
    float *z = floats(n, 1);
    struct linear_out one = {&w2, NULL, z, y_stride, 1, false}, all = one;
    for (int32_t t = 0; t < n_tok; t++) {
        one.dst = z + t * y_stride;
        d->ops->linear(d, &one, 1, x + t * x_stride, x_stride, 1);
    }
    float *z2 = copy_of(z, n);
    int32_t bad = n_tok / 2;
    if (n_tok > 1) x[bad * x_stride + n_in / 3] = NAN;
    all.dst = z2;
    d->ops->linear(d, &all, 1, x, x_stride, n_tok);
    for (int32_t t = 0; t < n_tok; t++) {
        const float *row = z2 + t * y_stride;
        if (n_tok > 1 && t == bad) assert_true(isnan(row[0]) && isnan(row[n_out - 1]));
        else
            check_same(row, z + t * y_stride, (size_t)n_out, "%s linear %s row %d of %d", name,
                       type_name, t, n_tok);
    }
    drop(w.data), drop(made), drop(x), drop(bias), drop(y0), drop(y1), drop(y2), drop(z), drop(z2);
}

static void linear_of_every_type(void **s) {
    (void)s;
    for (int i = 0; i < n_dev; i++)
        for (int t = 0; t < N_TYPE; t++)
            for (int k = 0; k < N_CASES(linear_cases) && has_decode(types[t]); k++) {
                const struct linear_case *c = &linear_cases[k];
                linear_agrees(devs[i], dev_names[i], types[t], linear_n_in(c, types[t]), c->n_out,
                              c->n_tok);
            }
}

static void linear_of_several_matrices(void **s) {
    (void)s;
    enum { N = LINEAR_GROUP, N_IN = 512, N_TOK = 7 };
    for (int i = 0; i < n_dev * N_CASES(linear_groups); i++) {
        int at = i / N_CASES(linear_groups), group = i % N_CASES(linear_groups);
        struct dev *d = devs[at];
        struct weight w[N], w2[N];
        void *made[N];
        struct linear_out o[N], p[N];
        float *x = floats((size_t)N_IN * N_TOK, 1);
        for (int k = 0; k < N; k++) {
            w[k] = weight_of(linear_groups[group][k], N_IN, 40 + 9 * k, 1, 1);
            w2[k] = prepared(d, &w[k], &made[k]);
            o[k] = (struct linear_out){&w[k], NULL, floats(100 * N_TOK, 0), 100, 1, false};
            p[k] = (struct linear_out){&w2[k], NULL, floats(100 * N_TOK, 0), 100, 1, false};
        }
        ref8->ops->linear(ref8, o, N, x, N_IN, N_TOK);
        d->ops->linear(d, p, N, x, N_IN, N_TOK);
        for (int k = 0; k < N; k++) {
            check_near(p[k].dst, o[k].dst, 100 * N_TOK, 1e-5, "%s matrix %d of group %d",
                       dev_names[at], k, group);
            drop(w[k].data), drop(made[k]), drop(o[k].dst), drop(p[k].dst);
        }
        drop(x);
    }
}

#include "ops_tails.h"

static void embedding_rows_are_exact(void **s) {
    (void)s;
    for (int i = 0; i < n_dev; i++)
        for (int t = 0; t < N_TYPE; t++) {
            if (!has_decode(types[t])) continue;
            struct weight w = weight_of(types[t], 512, 9, 1, 1);
            int32_t ids[] = {8, 0, 3, 3};
            float *a = floats(4 * 512, 1), *b = floats(4 * 512, 1);
            ref->ops->embed(ref, a, &w, ids, 4, 1.5f);
            devs[i]->ops->embed(devs[i], b, &w, ids, 4, 1.5f);
            check_same(a, b, 4 * 512, "%s embed %s", dev_names[i], quant_traits(types[t])->name);
            drop(w.data), drop(a), drop(b);
        }
}

/* ---- norms and elementwise ---- */

static void norms_agree(void **s) {
    (void)s;
    for (int i = 0; i < n_dev; i++)
        for (int k = 0; k < N_CASES(norm_sizes); k++) {
            int64_t n = norm_sizes[k], n_row = 5;
            size_t all = (size_t)(n * n_row);
            float *x = floats(all, 3), *w = floats((size_t)n, 1), *b = floats((size_t)n, 1);
            float *y0 = floats(all, 0), *y1 = floats(all, 0);
            const struct ops *f = devs[i]->ops;
            ref->ops->rms_norm(ref, y0, x, w, n_row, n, 1e-6f);
            f->rms_norm(devs[i], y1, x, w, n_row, n, 1e-6f);
            check_near(y1, y0, all, 1e-6, "%s rms_norm %ld", dev_names[i], (long)n);
            ref->ops->rms_norm(ref, y0, x, NULL, n_row, n, 1e-6f);
            memcpy(y1, x, all * sizeof *x);
            f->rms_norm(devs[i], y1, y1, NULL, n_row, n, 1e-6f);
            check_near(y1, y0, all, 1e-6, "%s rms_norm in place %ld", dev_names[i], (long)n);
            ref->ops->layer_norm(ref, y0, x, w, b, n_row, n, 1e-5f);
            f->layer_norm(devs[i], y1, x, w, b, n_row, n, 1e-5f);
            check_near(y1, y0, all, 1e-6, "%s layer_norm %ld", dev_names[i], (long)n);
            drop(x), drop(w), drop(b), drop(y0), drop(y1);
        }
}

static void elementwise_ops_agree(void **s) {
    (void)s;
    enum { N = 1003 };
    for (int i = 0; i < n_dev; i++) {
        const struct ops *f = devs[i]->ops;
        float *a = floats(N, 4), *b = floats(N, 1), *y0 = floats(N, 1), *y1 = copy_of(y0, N);
        memcpy(a, act_edges, sizeof act_edges);
        for (enum act act = ACT_SILU; act <= ACT_NONE; act++) {
            ref->ops->act_mul(ref, y0, a, b, N, act);
            f->act_mul(devs[i], y1, a, b, N, act);
            check_near(y1, y0, N, 1e-6, "%s act %d", dev_names[i], act);
            ref->ops->act_mul(ref, y0, a, NULL, N, act);
            memcpy(y1, a, N * sizeof *a);
            f->act_mul(devs[i], y1, y1, NULL, N, act);
            check_near(y1, y0, N, 1e-6, "%s act %d in place", dev_names[i], act);
        }
        ref->ops->axpby(ref, y0, .3f, a, -1.7f, N);
        memcpy(y1, b, N * sizeof *b);
        memcpy(y0, b, N * sizeof *b);
        ref->ops->axpby(ref, y0, .3f, a, -1.7f, N);
        f->axpby(devs[i], y1, .3f, a, -1.7f, N);
        check_near(y1, y0, N, 1e-6, "%s axpby", dev_names[i]);
        int32_t rows[] = {2, 0, 2};
        f->gather_rows(devs[i], y1, a, rows, 3, 100);
        check_same(y1, a + 200, 100, "%s gather_rows", dev_names[i]);
        check_same(y1 + 100, a, 100, "%s gather_rows", dev_names[i]);
        drop(a), drop(b), drop(y0), drop(y1);
    }
}

static void selected_rows_keep_the_promise(void **s) {
    (void)s;
    static const int32_t sizes[] = {7, 1024, 2049, 20011};
    for (int i = 0; i < n_dev; i++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            float *x = floats((size_t)sizes[k] * SELECT_KINDS, 0);
            select_check(devs[i], x, sizes[k]);
            drop(x);
        }
}

/* ---- attention ---- */

struct attn_room {
    struct kv_view kv;
    int32_t pages[2][8];
    float *q, *k, *v, *gate, *qn, *kn, *inv, *sinks;
    float *q_out, *out;
    int32_t max_tok;
};

static bool attn_open(const struct attn_case *c, struct attn_room *r, int32_t max_tok) {
    uint64_t kb, vb;
    const struct quant_traits *kt = quant_traits(c->k_type), *vt = quant_traits(c->v_type);
    if (!kt->encode || !vt->encode || !kt->decode) return false;
    assert_true(quant_row_bytes(c->k_type, (uint64_t)c->d_k, &kb));
    assert_true(quant_row_bytes(c->v_type, (uint64_t)c->d_v, &vb));
    *r = (struct attn_room){.max_tok = max_tok};
    r->kv = (struct kv_view){.k_type = c->k_type,
                             .v_type = c->v_type,
                             .n_kv_head = c->n_kv_head,
                             .d_k = c->d_k,
                             .d_v = c->d_v,
                             .rotate = c->rotate};
    r->kv.k_page_bytes = kb * KV_PAGE * (size_t)c->n_kv_head;
    r->kv.v_page_bytes = vb * KV_PAGE * (size_t)c->n_kv_head;
    r->kv.k = mem_aligned(64, 16 * r->kv.k_page_bytes);
    r->kv.v = mem_aligned(64, 16 * r->kv.v_page_bytes);
    for (int i = 0; i < 16; i++) r->pages[i & 1][i / 2] = 15 - i; /* interleaved and backwards */
    size_t n = (size_t)max_tok * (size_t)c->n_head;
    r->q = floats(n * 2 * (size_t)c->d_k, 1);
    r->k = floats((size_t)max_tok * (size_t)(c->n_kv_head * c->d_k), 1);
    r->v = floats((size_t)max_tok * (size_t)(c->n_kv_head * c->d_v), 1);
    r->gate = floats(n * (size_t)c->d_v, 1);
    r->qn = floats((size_t)c->d_k, 1), r->kn = floats((size_t)c->d_k, 1);
    r->sinks = floats((size_t)c->n_head, 1);
    r->inv = floats(128, 0);
    for (int i = 0; i < 128; i++) r->inv[i] = powf(10000, -(float)i / 64);
    r->q_out = floats(n * (size_t)c->d_k, 0);
    r->out = floats(n * (size_t)c->d_v, 0);
    return true;
}

static void attn_close(struct attn_room *r) {
    drop(r->kv.k), drop(r->kv.v), drop(r->q), drop(r->k), drop(r->v), drop(r->gate), drop(r->qn);
    drop(r->kn), drop(r->inv), drop(r->sinks), drop(r->q_out), drop(r->out);
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
    attn_case_store(c, &a);
    d->ops->qkv_store(d, &a);
    if (c->queries_again) {
        size_t n = (size_t)n_tok * (size_t)c->n_head * (size_t)c->d_k;
        memset(a.q_out, 0, n * sizeof(float));
        a.k = a.v = NULL;
        d->ops->qkv_store(d, &a);
    }
    struct attn_args b = {.spans = s,
                          .n_span = n_span,
                          .n_tok = n_tok,
                          .n_head = c->n_head,
                          .q = a.q_out,
                          .kv = a.kv,
                          .scale = 1 / sqrtf((float)c->d_k),
                          .softcap = c->softcap,
                          .window = c->window,
                          .n_keep = c->n_keep};
    b.sinks = c->sinks ? r->sinks : NULL;
    b.gate = c->gate ? r->gate + (int64_t)first * c->n_head * c->d_v : NULL;
    b.gate_head_stride = c->d_v, b.gate_tok_stride = c->n_head * c->d_v;
    b.out = r->out + (int64_t)first * c->n_head * c->d_v;
    d->ops->attn(d, &b);
}

static void attention_agrees(void **st) {
    (void)st;
    enum { N_TOK = 200 };
    for (int i = 0; i < n_dev; i++)
        for (int k = 0; k < N_ATTN; k++) {
            const struct attn_case *c = &attn_cases[k];
            struct attn_room r;
            if (!attn_open(c, &r, N_TOK)) continue;
            size_t nq = (size_t)N_TOK * (size_t)(c->n_head * c->d_k);
            size_t no = (size_t)N_TOK * (size_t)(c->n_head * c->d_v);
            /* two sequences, in one call of 131 + 66 tokens, then 2 + 1 more */
            struct span s[] = {{.row = 0, .n_tok = 131, .pos = 0, .pages = r.pages[0]},
                               {.row = 131, .n_tok = 66, .pos = 0, .pages = r.pages[1]}};
            struct span more[] = {{.row = 0, .n_tok = 2, .pos = 131, .pages = r.pages[0]},
                                  {.row = 2, .n_tok = 1, .pos = 66, .pages = r.pages[1]}};
            attn_run(ref, c, &r, s, 2, 197, 0);
            attn_run(ref, c, &r, more, 2, 3, 197);
            float *q0 = copy_of(r.q_out, nq), *o0 = copy_of(r.out, no);
            memset(r.kv.k, 0, 16 * r.kv.k_page_bytes);
            memset(r.kv.v, 0, 16 * r.kv.v_page_bytes);
            attn_run(devs[i], c, &r, s, 2, 197, 0);
            attn_run(devs[i], c, &r, more, 2, 3, 197);
            check_status(devs[i], dev_names[i]);
            check_near(r.q_out, q0, nq, 1e-5, "%s qkv_store case %d", dev_names[i], k);
            bool rounded = ref_is_quantised(c->k_type) || ref_is_quantised(c->v_type);
            check_near(r.out, o0, no,
                       c->k_type == QUANT_Q4_0 ? 2e-2 /* a key of 4 bits at a tie */
                       : rounded               ? 2e-3
                       : c->k_type == QUANT_F16
                           ? 5e-4 /* a half at a tie: 2^-11 of a key's element */
                           : 1e-5,
                       "%s attn case %d", dev_names[i], k);
            drop(q0), drop(o0);
            attn_close(&r);
        }
}

static void attention_steps_do_not_see_their_neighbours(void **st) {
    (void)st;
    enum { N_TOK = 100 };
    for (int i = 0; i < n_dev; i++)
        for (int k = 0; k < N_ATTN; k++) {
            const struct attn_case *c = &attn_cases[k];
            struct attn_room r;
            if (!attn_open(c, &r, N_TOK)) continue;
            struct span s[] = {{.row = 0, .n_tok = 60, .pos = 0, .pages = r.pages[0]},
                               {.row = 60, .n_tok = 3, .pos = 0, .pages = r.pages[1]}};
            attn_run(devs[i], c, &r, s, 2, 63, 0);
            /* sequence 0 continues by 9, one at a time */
            for (int t = 0; t < 9; t++) {
                struct span one = {.n_tok = 1, .pos = 60 + t, .pages = r.pages[0]};
                attn_run(devs[i], c, &r, &one, 1, 1, 63 + t);
            }
            size_t at = (size_t)63 * (size_t)(c->n_head * c->d_v),
                   n = (size_t)9 * (size_t)(c->n_head * c->d_v);
            float *want = copy_of(r.out + at, n);
            /* and again in one call, beside a sequence of NaN */
            float *q = r.q + (int64_t)72 * 2 * c->n_head * c->d_k;
            for (int32_t j = 0; j < 2 * c->n_head * c->d_k; j++) q[j] = NAN;
            struct span two[] = {{.row = 0, .n_tok = 9, .pos = 60, .pages = r.pages[0]},
                                 {.row = 9, .n_tok = 1, .pos = 3, .pages = r.pages[1]}};
            attn_run(devs[i], c, &r, two, 2, 10, 63);
            check_same(r.out + at, want, n, "%s attn case %d", dev_names[i], k);
            drop(want);
            attn_close(&r);
        }
}

static void full_attention_agrees(void **st) {
    (void)st;
    for (int i = 0; i < n_dev * N_CASES(full_cases); i++) {
        const struct full_case *c = &full_cases[i % N_CASES(full_cases)];
        struct dev *d = devs[i / N_CASES(full_cases)];
        struct span s[FULL_SPAN];
        struct attn_full_args a = full_args(c, s);
        size_t n = (size_t)(a.n_tok * FULL_HEAD * c->d);
        float *q = floats(n, 1), *k = floats(n, 1), *v = floats(n, 1), *y0 = floats(n, 0),
              *y1 = floats(n, 0), *bias = floats((2 * FULL_BIAS + 1) * FULL_HEAD, 1);
        a.q = q, a.k = k, a.v = v, a.bias = c->bias ? bias : NULL, a.out = y0;
        ref->ops->attn_full(ref, &a);
        a.out = y1;
        d->ops->attn_full(d, &a);
        check_near(y1, y0, n, 1e-5, "%s attn_full %d", dev_names[i / N_CASES(full_cases)],
                   i % N_CASES(full_cases));
        drop(q), drop(k), drop(v), drop(y0), drop(y1), drop(bias);
    }
}

/* ---- feed-forward ---- */

static void ffn_agrees(void **st) {
    (void)st;
    for (int i = 0; i < n_dev; i++)
        for (int k = 0; k < 2 * N_CASES(ffn_types); k++) {
            struct dev *d = devs[i];
            uint32_t type = ffn_types[k / 2];
            if (!has_decode(type)) continue;
            int64_t n = 256, n_ff = type == QUANT_F32 ? 150 : 512, n_tok = k % 2 ? 19 : 2;
            void *made[3];
            struct weight w[] = {weight_of(type, n, n_ff, 1, .06), weight_of(type, n, n_ff, 1, .06),
                                 weight_of(type, n_ff, n, 1, .06)};
            struct weight w2[3];
            for (int j = 0; j < 3; j++) w2[j] = prepared(d, &w[j], &made[j]);
            float *x = floats((size_t)(n * n_tok), type == QUANT_F32 ? 1 : .05),
                  *b = floats(512, 1);
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
            ref8->ops->ffn(ref8, &a);
            a.gate = k % 2 ? &w2[0] : NULL, a.up = &w2[1], a.down = &w2[2], a.out = y1;
            d->ops->ffn(d, &a);
            check_status(d, dev_names[i]);
            check_near(y1, y0, (size_t)(n * n_tok), ref_is_quantised(type) ? 2e-3 : 1e-5,
                       "%s ffn %s %ld", dev_names[i], quant_traits(type)->name, (long)n_tok);
            for (int j = 0; j < 3; j++) drop(w[j].data), drop(made[j]);
            drop(x), drop(b), drop(y0), drop(y1);
        }
}

#include "ops_moe.h"

static void moe_agrees_and_rows_are_independent(void **st) {
    (void)st;
    enum { N_EXPERT = MOE_EXPERTS, N_TOK = TEST_SLOWNESS > 1 ? 20 : 70 };
    for (int i = 0; i < n_dev; i++)
        for (int k = 0; k < N_CASES(moe_cases); k++) {
            const struct moe_case *c = &moe_cases[k];
            const int64_t n_embd = c->n, n_ff = c->ff, n_sh = c->sh_ff;
            struct dev *d = devs[i];
            if (!has_decode(c->type) || !has_decode(c->sh_type)) continue;
            enum { N_W = 7 };
            struct weight w[N_W] = {weight_of(QUANT_F32, n_embd, N_EXPERT, 1, .1),
                                    weight_of(c->type, n_embd, n_ff, N_EXPERT, .06),
                                    weight_of(c->type, n_embd, n_ff, N_EXPERT, .06),
                                    weight_of(c->type, n_ff, n_embd, N_EXPERT, .06),
                                    weight_of(c->sh_type, n_embd, n_sh, 1, .06),
                                    weight_of(c->sh_type, n_embd, n_sh, 1, .06),
                                    weight_of(c->sh_type, n_sh, n_embd, 1, .06)};
            struct weight w2[N_W];
            void *made[N_W];
            for (int j = 0; j < N_W; j++) w2[j] = prepared(d, &w[j], &made[j]);
            size_t n = (size_t)n_embd * N_TOK;
            float *x = floats(n, 1), *y0 = floats(n, 0), *y1 = floats(n, 0), *y2 = floats(n, 0);
            float *bias = floats(N_EXPERT, .1), *sgw = floats((size_t)n_embd, .1);
            float *own[] = {floats(N_EXPERT, 1), floats((size_t)n_ff * N_EXPERT, 8),
                            floats((size_t)n_ff * N_EXPERT, 8),
                            floats((size_t)n_embd * N_EXPERT, 1)};
            int32_t ids0[N_TOK * MOE_MAX_USED] = {0}, ids1[N_TOK * MOE_MAX_USED] = {0};
            struct moe_args a = {.n_tok = N_TOK,
                                 .n_used = c->n_used,
                                 .n_group = c->n_group,
                                 .n_group_used = c->n_group_used,
                                 .gating = c->gating,
                                 .normalise = c->normalise,
                                 .scale = 1.25f,
                                 .act = c->act,
                                 .x = x,
                                 .select_bias = c->bias ? bias : NULL,
                                 .shared_gate_w = c->shared_gate ? sgw : NULL};
            if (c->expert_bias) a.bias = (struct moe_bias){own[0], own[1], own[2], own[3]};
            struct weight *v[] = {w, w2};
            for (int j = 0; j < 2; j++) {
                a.router = &v[j][0], a.gate = c->has_gate ? &v[j][1] : NULL, a.up = &v[j][2];
                a.down = &v[j][3], a.sh_up = NULL;
                if (c->shared) {
                    a.sh_gate = c->has_gate ? &v[j][4] : NULL;
                    a.sh_up = &v[j][5], a.sh_down = &v[j][6];
                }
                a.out = j ? y1 : y0, a.ids = j ? ids1 : ids0;
                if (j) d->ops->moe(d, &a);
                else ref8->ops->moe(ref8, &a);
            }
            check_status(d, dev_names[i]);
            assert_memory_equal(ids0, ids1, sizeof ids0);
            check_near(y1, y0, n, ref_is_quantised(c->type) ? 5e-3 : 1e-5, "%s moe case %d",
                       dev_names[i], k);
            /* one at a time, then 13 with a NaN among them */
            for (int t = 0; t < 13; t++) {
                a.n_tok = 1, a.x = x + (size_t)t * n_embd, a.out = y2 + (size_t)t * n_embd;
                d->ops->moe(d, &a);
            }
            /* the same where the router's logits are given */
            float *logits = floats((size_t)N_EXPERT * N_TOK, 0);
            struct linear_out route = {a.router, a.bias.router, logits, N_EXPERT, 1, false};
            for (int t = 0; t < N_TOK; t += 13, route.dst += 13 * N_EXPERT)
                d->ops->linear(d, &route, 1, x + (size_t)t * n_embd, n_embd,
                               N_TOK - t < 13 ? N_TOK - t : 13);
            memset(y1, 0, n * sizeof *y1);
            a.n_tok = 13, a.x = x, a.out = y1, a.logits = logits;
            d->ops->moe(d, &a);
            check_same(y1, y2, (size_t)(13 * n_embd), "%s moe case %d, logits given", dev_names[i],
                       k);
            a.n_tok = N_TOK;
            memset(y1, 0, n * sizeof *y1);
            d->ops->moe(d, &a);
            check_near(y1, y0, n, ref_is_quantised(c->type) ? 5e-3 : 1e-5,
                       "%s moe case %d, logits given", dev_names[i], k);
            a.logits = NULL;
            a.n_tok = 13, a.x = x;
            moe_leaves_out(d, dev_names[i], a, logits, ids1);
            drop(logits);
            moe_in_parts(d, dev_names[i], a, y2);
            x[5 * n_embd + 3] = NAN;
            memset(y1, 0, n * sizeof *y1);
            a.n_tok = 13, a.x = x, a.out = y1, a.ids = NULL;
            d->ops->moe(d, &a);
            for (int t = 0; t < 13; t++) {
                if (t == 5)
                    assert_true(isnan(y1[t * n_embd]) && isnan(y1[t * n_embd + n_embd - 1]));
                else
                    check_same(y1 + t * n_embd, y2 + t * n_embd, (size_t)n_embd,
                               "%s moe case %d row %d", dev_names[i], k, t);
            }
            for (int j = 0; j < N_W; j++) drop(w[j].data), drop(made[j]);
            for (int j = 0; j < 4; j++) drop(own[j]);
            drop(x), drop(y0), drop(y1), drop(y2), drop(bias), drop(sgw);
        }
}

/* ---- the reference itself, against formulas written another way ---- */

static void reference_rounds_activations_as_documented(void **st) {
    (void)st;
    float x[32];
    int8_t q[32];
    for (int i = 0; i < 32; i++) x[i] = (float)(i - 16);
    float d = ref_quantise8(x, q);
    assert_true(fabsf(d - 16 / 127.0f) < 1e-9f);
    assert_int_equal(q[0], -127);
    assert_int_equal(q[16], 0);
    assert_int_equal(q[17], 8); /* 127 / 16 = 7.94 */
    x[3] = INFINITY;
    assert_true(isnan(ref_quantise8(x, q)));
    memset(x, 0, sizeof x);
    assert_true(ref_quantise8(x, q) == 0 && q[5] == 0);
}

static void reference_hadamard_is_its_own_inverse(void **st) {
    (void)st;
    float *x = floats(2 * 96, 1), *y = copy_of(x, 2 * 96);
    ref_hadamard_heads(y, 2, 96);
    double before = 0, after = 0;
    for (int i = 0; i < 32; i++) before += x[i] * x[i], after += y[i] * y[i];
    assert_true(fabs(before - after) < 1e-4 * before); /* blocks of 32 keep their length */
    ref_hadamard_heads(y, 2, 96);
    check_near(y, x, 2 * 96, 1e-6, "hadamard twice");
    drop(x), drop(y);
}

static int open_all(void **st) {
    (void)st;
    struct err e = {0};
    static const struct {
        enum cpu_isa isa;
        int n_thread;
        const char *name;
    } want[] = {{CPU_ISA_SCALAR, 1, "scalar"},    {CPU_ISA_AVX2, 2, "avx2"},
                {CPU_ISA_AVXVNNI, 2, "avxvnni"},  {CPU_ISA_AVX512, 1, "avx512"},
                {CPU_ISA_AVX512, 2, "avx512 x2"}, {CPU_ISA_NEON, 2, "neon"}};
    rng_seed(&rng, 20);
    if (cpu_open_ref(&ref, &e) || ref_open_round8(&ref8, &e)) return -1;
    ref->ops->reserve(ref, &need, &e), ref8->ops->reserve(ref8, &need, &e);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        /* under an emulator, only what does not run elsewhere */
        if (TEST_SLOWNESS == 30 && want[i].isa != CPU_ISA_NEON) continue;
        if (cpu_open(&devs[n_dev], want[i].n_thread, want[i].isa, &e)) {
            print_message("skip: %s: %s\n", want[i].name, e.text);
            continue;
        }
        if (devs[n_dev]->ops->reserve(devs[n_dev], &need, &e)) return -1;
        dev_names[n_dev++] = want[i].name;
    }
    return 0;
}

static int close_all(void **st) {
    (void)st;
    for (int i = 0; i < n_dev; i++) devs[i]->ops->close(devs[i]);
    ref->ops->close(ref), ref8->ops->close(ref8);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_rounds_activations_as_documented),
        cmocka_unit_test(reference_hadamard_is_its_own_inverse),
        cmocka_unit_test(linear_of_every_type),
        cmocka_unit_test(linear_of_several_matrices),
        cmocka_unit_test(selected_rows_keep_the_promise),
        cmocka_unit_test(embedding_rows_are_exact),
        cmocka_unit_test(norms_agree),
        cmocka_unit_test(elementwise_ops_agree),
        cmocka_unit_test(attention_agrees),
        cmocka_unit_test(attention_steps_do_not_see_their_neighbours),
        cmocka_unit_test(full_attention_agrees),
        cmocka_unit_test(ffn_agrees),
        cmocka_unit_test(moe_agrees_and_rows_are_independent),
        cmocka_unit_test(matrices_in_two_parts_add_up),
        cmocka_unit_test(blocks_of_matrices_in_two_parts_agree),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}

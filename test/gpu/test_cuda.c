/* test_cuda.c: every op of the CUDA device against the scalar reference, over types and odd shapes.
 *
 * Built twice: with nvcc, to run on a GPU, and over the emulator (emu/), to run anywhere. Arrays lie in host
 * memory that the device reads in place. A row of a batch of up to 16 rows, or 64 if the types allow it, must have the
 * bits of the same row in any other; larger batches go through the tensor cores in half precision and agree within
 * 2e-3 of the range. */
#include "on_device.h"

#include <stdlib.h>

#include "../unit/select_rows.h"
#include "kernels/cuda/card.h"

/* Rows that are multiplied in 8 bits at most. */
enum { BATCH = 64 };
static const uint32_t batch_types[] = {QUANT_Q8_0, QUANT_Q4_0, QUANT_Q4_K, QUANT_Q5_K, QUANT_Q6_K};
enum { N_BATCH_TYPE = sizeof batch_types / sizeof *batch_types };

/* ---- the card ---- */

#ifdef CHIMERE_EMULATE
extern const char *emulate_name; /* of the emulator's cards */
#endif

static uint64_t card_of(const struct cuda_params *p) {
    struct err e = {0};
    struct dev *d;
    if (cuda_open(&d, p, &e)) fail_msg("%s", e.text);
    uint64_t n = cuda_card(d);
    d->ops->close(d);
    return n;
}

/* States are shared only by devices of equal numbers. */
static void a_card_has_the_number_of_its_kind(void **state) {
    (void)state;
    const struct cuda_params plain = {.layout = PLANES}, roomy = {.layout = PLANES_WIDE},
                             exact = {.layout = PLANES, .precise = true};
    assert_int_equal(cuda_card(dev), card_of(&plain));
    assert_int_not_equal(cuda_card(dev), card_of(&roomy));
    assert_int_not_equal(cuda_card(dev), card_of(&exact));
#ifdef CHIMERE_EMULATE
    const char *name = emulate_name;
    uint64_t kind = cuda_card(wide);
    emulate_name = "another card";
    assert_int_not_equal(kind, card_of(&roomy));
    emulate_name = name;
    assert_int_equal(kind, card_of(&roomy));
#endif
}

/* ---- linear ---- */

/* Whether the rows are multiplied in 8 bits. */
static bool is_step(uint32_t type, int64_t n_in, int64_t n_out, int32_t n_tok) {
    bool fits = false;
    for (int t = 0; t < N_BATCH_TYPE; t++) fits |= batch_types[t] == type;
    return n_tok <= STEP_MAX_TOK || (fits && n_in % 256 == 0 && n_out >= 16 && n_tok <= BATCH);
}

/* Products of activations in 8 bits, [n_tok, stride]. An activation halfway between two integers may be rounded to the
 * other one by a card, whose divisions differ from the processor's in the last bit; the row then moves. */
static void check_step(const float *a, const float *b, int64_t stride, int32_t n_tok,
                       double tolerance, const char *name, int64_t n_out, int64_t n_in) {
#ifdef CHIMERE_EMULATE
    int32_t n_most = 0;
#else
    int32_t n_most = 1 + n_tok / 32;
#endif
    size_t n = (size_t)(stride * n_tok);
    double range = 1e-30;
    for (size_t i = 0; i < n; i++) range = fabs(b[i]) > range ? fabs(b[i]) : range;
    int32_t n_moved = 0;
    for (int32_t t = 0; t < n_tok; t++) {
        double most = 0;
        for (int64_t i = t * stride; i < (t + 1) * stride; i++) {
            double d = fabs((double)a[i] - b[i]);
            most = d > most || isnan(d) ? d : most;
        }
        n_moved += !(most <= tolerance * range);
    }
    if (n_moved > n_most)
        fail_msg("linear %s [%ld, %ld] x %d: %d rows moved", name, (long)n_out, (long)n_in, n_tok,
                 n_moved);
    check_near(a, b, n, n_moved ? 2e-3 + tolerance : tolerance, "linear %s [%ld, %ld] x %d", name,
               (long)n_out, (long)n_in, n_tok);
}

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
    bool step = is_step(type, n_in, n_out, n_tok);
    double rounding = type_rounding(type, (size_t)(n_out * n_tok));
    if (step) check_step(y1, y0, y_stride, n_tok, 1e-5 + rounding, name, n_out, n_in);
    else
        check_near(y1, exact, n, 2e-3 + rounding, "linear %s [%ld, %ld] x %d in tiles", name,
                   (long)n_out, (long)n_in, n_tok);
    o.dst = y2;
    precise->ops->linear(precise, &o, 1, x, x_stride, n_tok);
    settle(precise);
    check_near(y2, exact, n, 1e-5 + rounding, "linear %s [%ld, %ld] x %d, precise", name,
               (long)n_out, (long)n_in, n_tok);
    if (n_tok == 1) return;
    float *z = floats(n, 0), *z2 = floats(n, 0);
    struct linear_out some = {&w2, NULL, z, y_stride, 1, false};
    if (step) { /* one by one, then all */
        for (int32_t t = 0; t < n_tok; t++) {
            some.dst = z2 + t * y_stride;
            dev->ops->linear(dev, &some, 1, x + t * x_stride, x_stride, 1);
        }
        some.dst = z;
        dev->ops->linear(dev, &some, 1, x, x_stride, n_tok);
        settle(dev);
        check_near(z2, z, n, 1e-5, "linear %s [%ld, %ld] one by one", name, (long)n_out,
                   (long)n_in);
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

static void linear_of_every_type(void **s) {
    (void)s;
    for (int t = 0; t < N_TYPE; t++) {
        if (!can_make(types[t])) continue;
        if (dev == wide &&
            cuda_repack_form(types[t], PLANES_WIDE) == cuda_repack_form(types[t], PLANES))
            continue;
        for (int k = 0; k < N_CASES(linear_cases); k++) {
            const struct linear_case *c = &linear_cases[k];
            linear_agrees(types[t], linear_n_in(c, types[t]), c->n_out, c->n_tok);
        }
        drop_all();
    }
    /* several rounds of tiles, tiles of several warps, chunks that do not divide among them; a full pass of tokens */
    for (int t = 0; t < N_BATCH_TYPE; t++) {
        linear_agrees(batch_types[t], 2048, 16, 8);
        linear_agrees(batch_types[t], 256, 1930, 3);
        linear_agrees(batch_types[t], 1280, 437, 10);
        linear_agrees(batch_types[t], 512, 213, 17);
        linear_agrees(batch_types[t], 256, 50, BATCH);
        linear_agrees(batch_types[t], 256, 50, BATCH + 1);
        linear_agrees(batch_types[t], 1280, 213, BATCH + 3); /* tiles whose sums are split */
        drop_all();
    }
    if (dev != wide) with_wide(linear_of_every_type);
}

static void linear_of_several_matrices(void **s) {
    (void)s;
    enum { N = LINEAR_GROUP, N_IN = 512, N_TOK = 7 };
    for (int i = 0; i < N_CASES(linear_groups); i++) {
        struct weight w[N], w2[N];
        struct linear_out o[N], p[N];
        float *x = floats((size_t)N_IN * N_TOK, 1);
        for (int k = 0; k < N; k++) {
            w[k] = weight_of(linear_groups[i][k], N_IN, 40 + 9 * k, 1, 1);
            w2[k] = prepared(dev, &w[k]);
            o[k] = (struct linear_out){&w[k], NULL, floats(100 * N_TOK, 0), 100, 1, false};
            p[k] = (struct linear_out){&w2[k], NULL, floats(100 * N_TOK, 0), 100, 1, false};
        }
        ref8->ops->linear(ref8, o, N, x, N_IN, N_TOK);
        dev->ops->linear(dev, p, N, x, N_IN, N_TOK);
        settle(dev);
        for (int k = 0; k < N; k++)
            check_near(p[k].dst, o[k].dst, 100 * N_TOK, 1e-5, "matrix %d of several, %d", k, i);
        drop_all();
    }
}

/* ---- rows and elements ---- */

static void rows_agree(void **s) {
    (void)s;
    for (int k = 0; k < N_CASES(norm_sizes); k++) {
        int64_t n = norm_sizes[k], n_row = 5;
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
        if (!can_make(types[t])) continue;
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
    memcpy(a, act_edges, sizeof act_edges);
    for (enum act act = ACT_SILU; act <= ACT_NONE; act++) {
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

/* A row's product is the same whether all rows go through the matrix or a few, picked before it. */
static void picked_rows_keep_their_bits(void **s) {
    (void)s;
    enum { N_IN = 512, N_OUT = 70, N_ROW = 7, N_PICKED = 3 };
    static const int32_t rows[N_PICKED] = {6, 0, 3};
    struct weight w = weight_of(QUANT_Q6_K, N_IN, N_OUT, 1, 1), w2 = prepared(dev, &w);
    float *x = floats(N_ROW * N_IN, 3), *norm = floats(N_IN, 1), *h = floats(N_ROW * N_IN, 0),
          *all = floats(N_ROW * N_OUT, 0), *few = floats(N_PICKED * N_OUT, 0);
    struct linear_out o = {&w2, NULL, all, N_OUT, 1, false};
    for (int pass = 0; pass < 4; pass++) {
        float *picked = floats(N_PICKED * N_IN, 0), *other = floats(4 * N_IN, 0);
        for (int i = 0; i < pass; i++) /* rows that also have their place in 8 bits, in turn */
            dev->ops->rms_norm(dev, other + i * N_IN, x, norm, 1, N_IN, 1e-6f);
        dev->ops->rms_norm(dev, h, x, norm, N_ROW, N_IN, 1e-6f);
        o.dst = all;
        dev->ops->linear(dev, &o, 1, h, N_IN, N_ROW);
        dev->ops->gather_rows(dev, picked, h, rows, N_PICKED, N_IN);
        o.dst = few;
        dev->ops->linear(dev, &o, 1, picked, N_IN, N_PICKED);
        settle(dev);
        for (int k = 0; k < N_PICKED; k++)
            check_same(few + k * N_OUT, all + rows[k] * N_OUT, N_OUT, "row %d picked", rows[k]);
    }
    drop_all();
}

/* ---- recurrent ops: one description runs them all ---- */

enum { SLOTS = 24, CAP = 16, REC_TOK = 280 };

struct rec_room {
    const struct scan_case *c;
    int64_t n_x, n_more, n_out, n_head; /* floats per token of the two inputs and the output */
    float *x, *more, *z, *w, *bias, *a, *d, *dt_bias, *norm, *conved;
    struct rec_view state;
};

static void rec_open(struct rec_room *r, const struct scan_case *c) {
    *r = (struct rec_room){.c = c};
    int64_t dk = c->d_state, nv = c->d_head ? c->inner / c->d_head : c->inner;
    int64_t bc = 2 * (c->d_head ? c->n_group : 1) * dk;
    r->n_out = c->inner;
    r->n_head = nv;
    r->n_x = c->op == SCAN_CONV ? c->inner : c->op == SCAN_SSM ? 2 * c->inner + bc : c->inner + bc;
    r->n_more = !c->d_head ? 0 : c->op == SCAN_GDN ? 2 * nv : nv;
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
    int64_t d_conv = c->d_conv ? c->d_conv : 4;
    r->state = (struct rec_view){.s_stride = (size_t)(c->inner * dk) + 4,
                                 .conv_stride = (size_t)((d_conv - 1) * r->n_x),
                                 .log_row = (size_t)(r->n_x + r->n_more) +
                                            (c->op == SCAN_CONV_SSD ? (size_t)r->n_x : 0),
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
    const struct scan_case *c = r->c;
    const float *x = r->x + first * r->n_x, *more = r->more + first * r->n_more;
    const float *z = c->gate ? r->z + first * r->n_out : NULL;
    out += first * r->n_out;
    if (c->op == SCAN_CONV || c->op == SCAN_CONV_SSD) {
        struct conv_args a = {.spans = s,
                              .n_span = n_span,
                              .n_tok = n_tok,
                              .d_conv = c->d_conv,
                              .n_conv = r->n_x,
                              .x = x,
                              .x_stride = r->n_x,
                              .w = r->w,
                              .b = c->bias ? r->bias : NULL,
                              .silu = !c->variant || c->op == SCAN_CONV_SSD,
                              .state = r->state,
                              .out = c->op == SCAN_CONV ? out : r->conved,
                              .out_stride = r->n_x};
        d->ops->conv(d, &a);
        x = r->conved;
    }
    if (c->op == SCAN_GDN) {
        /* alpha and beta are arrays of their own: the first and second half of `more` */
        struct gdn_args a = {.spans = s,
                             .n_span = n_span,
                             .n_tok = n_tok,
                             .n_k_head = c->n_group,
                             .n_v_head = (int32_t)r->n_head,
                             .d_k = c->d_state,
                             .d_v = c->d_head,
                             .d_conv = c->d_conv,
                             .is_grouped = c->variant,
                             .eps = 1e-6f,
                             .norm_eps = c->variant ? 1e-2f : 1e-6f,
                             .beta_scale = c->variant ? 2 : 1,
                             .qkv = x,
                             .z = z,
                             .qkv_stride = r->n_x,
                             .z_stride = r->n_out,
                             .alpha = r->more + first * r->n_head,
                             .beta = r->more + (REC_TOK + first) * r->n_head,
                             .conv_w = r->w,
                             .conv_b = c->bias ? r->bias : NULL,
                             .a = r->a,
                             .dt_bias = r->dt_bias,
                             .norm_w = r->norm,
                             .state = r->state,
                             .out = out};
        d->ops->gdn(d, &a);
    } else if (c->op == SCAN_SSD || c->op == SCAN_CONV_SSD) {
        struct ssd_args a = {.spans = s,
                             .n_span = n_span,
                             .n_tok = n_tok,
                             .n_head = (int32_t)r->n_head,
                             .n_group = c->n_group,
                             .d_head = c->d_head,
                             .d_state = c->d_state,
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
                             .dt_min = c->dt_min,
                             .dt_max = c->dt_max,
                             .norm_w = c->n_norm ? r->norm : NULL,
                             .norm_first = c->variant,
                             .eps = 1e-6f,
                             .state = r->state,
                             .log_at = c->op == SCAN_CONV_SSD ? (size_t)r->n_x : 0,
                             .out = out};
        d->ops->ssd(d, &a);
    } else if (c->op == SCAN_SSM) {
        int64_t n = c->inner;
        struct ssm_args a = {.spans = s,
                             .n_span = n_span,
                             .n_tok = n_tok,
                             .d_state = c->d_state,
                             .n_inner = n,
                             .x = x,
                             .dt = x + n,
                             .b = x + 2 * n,
                             .c = x + 2 * n + c->d_state,
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

static void recurrent_ops_agree(void **st) {
    (void)st;
    for (int k = 0; k < N_SCAN; k++) {
        struct rec_room r;
        rec_open(&r, &scan_cases[k]);
        size_t n = (size_t)(REC_TOK * r.n_out);
        float *y[2] = {floats(n, 0), floats(n, 0)};
        struct dev *d[] = {ref, dev};
        struct span s[] = {whole(0, 101, 2, 0), whole(101, 30, 0, 0), whole(131, 9, 1, 3)};
        struct span more[] = {whole(0, 2, 2, 101), whole(2, 18, 0, 30)}, crowd[SLOTS];
        int32_t rows = 0;
        for (int i = 0; i < SLOTS; i++) { /* one long, many short */
            int32_t n_tok = i ? 1 + i % 4 : 60;
            crowd[i] = whole(rows, n_tok, (i + 2) % SLOTS, i ? 0 : 103);
            rows += n_tok;
        }
        assert_true(160 + rows <= REC_TOK);
        for (int i = 0; i < 2; i++) {
            rec_clear(&r);
            rec_run(d[i], &r, s, 3, 140, 0, y[i]);
            settle(d[i]);
            rec_run(d[i], &r, more, 2, 20, 140, y[i]);
            settle(d[i]);
            rec_run(d[i], &r, crowd, SLOTS, rows, 160, y[i]);
            settle(d[i]);
        }
        check_near(y[1], y[0], n, 1e-4, "%s", scan_cases[k].name);
        drop_all();
    }
}

static void cuts_and_drafts_give_the_bits_of_single_steps(void **st) {
    (void)st;
    for (int k = 0; k < N_SCAN; k++) {
        const char *name = scan_cases[k].name;
        struct rec_room r;
        rec_open(&r, &scan_cases[k]);
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
    for (int k = 0; k < 2 * N_CASES(ffn_types); k++) {
        uint32_t type = ffn_types[k / 2];
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
        if (k % 2 && !ref_is_quantised(type)) ref->ops->ffn(ref, &a);
        else ref8->ops->ffn(ref8, &a);
        a.gate = k % 2 ? &w2[0] : NULL, a.up = &w2[1], a.down = &w2[2], a.out = y1;
        dev->ops->ffn(dev, &a);
        settle(dev);
        check_near(y1, y0, (size_t)(n * n_tok), k % 2 || ref_is_quantised(type) ? 2e-3 : 1e-5,
                   "ffn %s %ld", quant_traits(type)->name, (long)n_tok);
        drop_all();
    }
}

/* ---- matrices in two parts ---- */

/* p: the first part, the last, and their forms on the device. */
static void parts_of(const struct tail_case *c, int64_t n_out, int64_t n_mat, struct weight p[4]) {
    p[0] = weight_of(c->type, c->n_in, n_out, n_mat, .06);
    p[1] = weight_of(c->tail, c->n_tail, n_out, n_mat, .06);
    p[2] = prepared(dev, &p[0]), p[3] = prepared(dev, &p[1]);
    p[0].tail = &p[1], p[2].tail = &p[3];
}

static void products_in_two_parts_agree(void **st) {
    (void)st;
    enum { N_W = 6, MOST = 41 };
    static const int32_t sizes[] = {1, 3, MOST};
    for (int i = 0; i < N_CASES(tail_cases) * N_CASES(sizes); i++) {
        const struct tail_case *c = &tail_cases[i / N_CASES(sizes)];
        int32_t n_tok = sizes[i % N_CASES(sizes)];
        int64_t n = c->n_in + c->n_tail;
        size_t all = (size_t)(n * n_tok);
        struct weight p[N_W][4], router = weight_of(QUANT_F32, n, TAIL_EXPERTS, 1, .1);
        struct weight routes = prepared(dev, &router);
        for (int k = 0; k < N_W; k++) parts_of(c, n, k < 3 ? TAIL_EXPERTS : 1, p[k]);
        float *x = floats(all, 1), *y[8];
        for (int k = 0; k < 8; k++) y[k] = floats(all, 0);
        for (int k = 0; k < 8; k++) {
            int own = k % 2 ? 2 : 0;
            struct dev *by = own ? dev : ref8;
            struct moe_args m = {.n_tok = n_tok,
                                 .n_used = TAIL_USED,
                                 .normalise = true,
                                 .scale = 1,
                                 .act = ACT_SILU,
                                 .x = x,
                                 .router = own ? &routes : &router,
                                 .gate = &p[0][own],
                                 .up = &p[1][own],
                                 .down = &p[2][own],
                                 .sh_gate = &p[3][own],
                                 .sh_up = &p[4][own],
                                 .sh_down = &p[5][own],
                                 .out = y[k]};
            struct ffn_args f = {.n_tok = n_tok,
                                 .act = ACT_SILU,
                                 .x = x,
                                 .gate = &p[3][own],
                                 .up = &p[4][own],
                                 .down = &p[5][own],
                                 .gate_scale = 1,
                                 .down_scale = 1,
                                 .out = y[k]};
            struct linear_out o = {&p[4][own], NULL, y[k], n, 1, false};
            int32_t ids[MOST];
            for (int t = 0; t < n_tok; t++) ids[t] = (int32_t)((t * 7) % n);
            if (k < 2) by->ops->moe(by, &m);
            else if (k < 4) by->ops->ffn(by, &f);
            else if (k < 6) by->ops->linear(by, &o, 1, x, n, n_tok);
            else by->ops->embed(by, y[k], &p[4][0], ids, n_tok, 1.5f);
            settle(by);
        }
        static const char *const ops[] = {"moe", "ffn", "linear"};
        for (int k = 0; k < 6; k += 2)
            check_near(y[k + 1], y[k], all, 2e-2, "%s %s + %s x %d", ops[k / 2],
                       quant_traits(c->type)->name, quant_traits(c->tail)->name, n_tok);
        check_near(y[7], y[6], all, 0, "embed %s + %s", quant_traits(c->type)->name,
                   quant_traits(c->tail)->name);
        drop_all();
    }
}

enum { MOE_TOK = 70 };

/* Whether the experts of more rows than a step has are multiplied in 8 bits, each once per 8 rows. */
static bool is_grouped(const struct moe_case *c) {
    bool has_form = c->type == QUANT_Q8_0 || c->type == QUANT_Q4_0 || c->type == QUANT_Q4_K ||
                    c->type == QUANT_Q6_K || (c->type == QUANT_IQ3_S && dev == wide);
    return has_form && !c->expert_bias && c->n % 256 == 0 && c->ff % 256 == 0;
}

/* Whether so many rows of a case are multiplied in 8 bits. */
static bool is_moe_step(const struct moe_case *c, int32_t n_tok) {
    if (is_grouped(c)) return true;
    return n_tok <= STEP_MAX_TOK || (n_tok <= BATCH && ref_is_quantised(c->type) &&
                                     (!c->shared || ref_is_quantised(c->sh_type)));
}

/* Rows that leave experts out: which ones as the reference, in tiles and as steps; the others' rows are those of a
 * mixture without the rule. w: the reference's matrices, w2: the device's. */
static void check_left_out(const struct moe_args *of, const struct moe_case *c, struct weight *w,
                           struct weight *w2, float *y0, float *y1) {
    struct moe_keep *keep = room(MOE_TOK * sizeof *keep);
    int32_t *ids0 = room((size_t)(MOE_TOK * c->n_used) * 4),
            *ids1 = room((size_t)(MOE_TOK * c->n_used) * 4), n_left_out = 0;
    static const float masses[] = {.5f, .8f, .3f, 1, .95f};
    for (int t = 0; t < MOE_TOK; t++) keep[t] = (struct moe_keep){masses[t % 5], 1 + t % 2, 0};
    struct weight *v[] = {w, w2};
    static const int32_t sizes[] = {MOE_TOK, 9, 1, 41};
    for (int pass = 0; pass < 4; pass++) {
        struct moe_args a = *of;
        struct dev *host = is_moe_step(c, sizes[pass]) ? ref8 : ref;
        size_t n = (size_t)(MOE_TOK * w[3].n_out);
        bool alone = sizes[pass] > BATCH && is_grouped(c); /* as in check_moe */
        a.n_tok = sizes[pass], a.keep = keep;
        a.shared_gate_w = alone ? NULL : of->shared_gate_w;
        memset(y0, 0, n * sizeof *y0);
        memset(y1, 0, n * sizeof *y1);
        for (int j = 0; j < 2; j++) {
            a.router = &v[j][0], a.gate = c->has_gate ? &v[j][1] : NULL, a.up = &v[j][2];
            a.down = &v[j][3], a.sh_up = NULL;
            if (c->shared && !alone) {
                a.sh_gate = c->has_gate ? &v[j][4] : NULL;
                a.sh_up = &v[j][5], a.sh_down = &v[j][6];
            }
            a.out = j ? y1 : y0, a.ids = j ? ids1 : ids0;
            if (j) dev->ops->moe(dev, &a);
            else host->ops->moe(host, &a);
        }
        settle(dev);
        assert_memory_equal(ids0, ids1, (size_t)(a.n_tok * c->n_used) * 4);
        for (int i = 0; i < a.n_tok * c->n_used; i++) n_left_out += ids0[i] < -1;
        /* a hidden value between two codes of 8 bits weighs more among fewer experts */
        check_near(y1, y0, (size_t)(a.n_tok * w[3].n_out), 8e-3, "moe of fewer experts, %d rows",
                   a.n_tok);
    }
    assert_true(c->n_used == 1 || n_left_out > 0);
}

static void check_moe(const struct moe_case *cases, size_t n_case) {
    enum { N_EXPERT = MOE_EXPERTS, N_TOK = MOE_TOK, N_W = 7 };
    for (size_t k = 0; k < n_case; k++) {
        const struct moe_case *c = &cases[k];
        const int64_t n_embd = c->n;
        if (dev == wide &&
            cuda_repack_form(c->type, PLANES_WIDE) == cuda_repack_form(c->type, PLANES))
            continue;
        struct weight w[N_W] = {weight_of(QUANT_F32, n_embd, N_EXPERT, 1, .1),
                                weight_of(c->type, n_embd, c->ff, N_EXPERT, .06),
                                weight_of(c->type, n_embd, c->ff, N_EXPERT, .06),
                                weight_of(c->type, c->ff, n_embd, N_EXPERT, .06),
                                weight_of(c->sh_type, n_embd, c->sh_ff, 1, .06),
                                weight_of(c->sh_type, n_embd, c->sh_ff, 1, .06),
                                weight_of(c->sh_type, c->sh_ff, n_embd, 1, .06)};
        struct weight w2[N_W];
        for (int j = 0; j < N_W; j++) w2[j] = prepared(dev, &w[j]);
        size_t n = (size_t)(n_embd * N_TOK);
        float *x = floats(n, 1), *y0 = floats(n, 0), *y1 = floats(n, 0), *y2 = floats(n, 0);
        float *bias = floats(N_EXPERT, .1), *sgw = floats(n_embd, .1);
        int32_t *ids0 = room((size_t)(N_TOK * c->n_used) * 4),
                *ids1 = room((size_t)(N_TOK * c->n_used) * 4);
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
        if (c->expert_bias)
            a.bias = (struct moe_bias){floats(N_EXPERT, 1), floats(c->ff * N_EXPERT, 8),
                                       floats(c->ff * N_EXPERT, 8), floats(n_embd * N_EXPERT, 1)};
        struct weight *v[] = {w, w2};
        static const int32_t sizes[] = {N_TOK, 9, 41};
        for (int pass = 0; pass < 3;
             pass++) { /* in tiles against exact, in 8 bits against rounded */
            struct dev *host = is_moe_step(c, sizes[pass]) ? ref8 : ref;
            /* many rows of the shared expert are not rounded to 8 bits */
            bool alone = sizes[pass] > BATCH && is_grouped(c);
            a.n_tok = sizes[pass];
            a.shared_gate_w = c->shared_gate && !alone ? sgw : NULL;
            memset(y0, 0, n * sizeof *y0);
            memset(y1, 0, n * sizeof *y1);
            for (int j = 0; j < 2; j++) {
                a.router = &v[j][0], a.gate = c->has_gate ? &v[j][1] : NULL, a.up = &v[j][2];
                a.down = &v[j][3], a.sh_up = NULL;
                if (c->shared && !alone) {
                    a.sh_gate = c->has_gate ? &v[j][4] : NULL;
                    a.sh_up = &v[j][5], a.sh_down = &v[j][6];
                }
                a.out = j ? y1 : y0, a.ids = j ? ids1 : ids0;
                if (j) dev->ops->moe(dev, &a);
                else host->ops->moe(host, &a);
            }
            settle(dev);
            assert_memory_equal(ids0, ids1, (size_t)(a.n_tok * c->n_used) * 4);
            check_near(y1, y0, (size_t)(a.n_tok * n_embd), 5e-3, "moe case %zu, %d rows", k,
                       a.n_tok);
        }
        check_left_out(&a, c, w, w2, y0, y1);
        for (int t = 0; t < 13; t++) {
            a.n_tok = 1, a.x = x + t * n_embd, a.out = y2 + t * n_embd;
            dev->ops->moe(dev, &a);
        }
        settle(dev);
        for (int pass = 0; pass < 2; pass++) { /* y0, then y1 beside a token that is no number */
            if (pass) x[5 * n_embd + 3] = NAN;
            memset(pass ? y1 : y0, 0, n * sizeof *y1);
            a.n_tok = 13, a.x = x, a.out = pass ? y1 : y0, a.ids = NULL;
            dev->ops->moe(dev, &a);
            settle(dev);
        }
        /* one value between two codes of 8 bits may have gone to the other one: a token's row moves by a column */
        int n_moved = 0;
        for (int t = 0; t < 13; t++)
            n_moved += !(apart(y0 + t * n_embd, y2 + t * n_embd, (size_t)n_embd) <= 1e-5);
        assert_true(n_moved <= 1);
        check_near(y0, y2, (size_t)(13 * n_embd), n_moved ? 2e-3 : 1e-5, "moe case %zu, one by one",
                   k);
        for (int t = 0; t < 13; t++) {
            if (t == 5) assert_true(isnan(y1[t * n_embd]) && isnan(y1[t * n_embd + n_embd - 1]));
            else check_same(y1 + t * n_embd, y0 + t * n_embd, n_embd, "moe case %zu row %d", k, t);
        }
        memset(y1, 0, n * sizeof *y1);
        a.n_tok = BATCH, a.out = y1;
        bool same = is_moe_step(c, BATCH) && !is_grouped(c); /* groups add in another order */
        if (same) dev->ops->moe(dev, &a);
        settle(dev);
        for (int t = 0; t < 13 && same; t++)
            if (t != 5)
                check_same(y1 + t * n_embd, y0 + t * n_embd, n_embd, "moe case %zu row %d of 64", k,
                           t);
        drop_all();
    }
}

static void moe_agrees_and_rows_are_independent(void **st) {
    (void)st;
    check_moe(moe_cases, sizeof moe_cases / sizeof *moe_cases);
    if (dev != wide) with_wide(moe_agrees_and_rows_are_independent);
}

/* Rows of several steps of a warp, the last one not full; a shared expert of more than 16 units, and one of which a
 * block has more rows than shared memory. */
static void moe_of_long_rows_agrees(void **st) {
    (void)st;
    static const struct moe_case cases[] = {
        {QUANT_IQ3_S, QUANT_Q8_0, MOE_SOFTMAX, true, false, true, true, true, ACT_SILU, 544, 256, 3,
         2304, false, 0, 0},
        {QUANT_Q4_K, QUANT_Q4_0, MOE_SOFTMAX, true, false, true, false, false, ACT_GELU, 64, 256, 3,
         2560, false, 0, 0},
        {QUANT_Q4_0, QUANT_Q8_0, MOE_SOFTMAX, true, false, true, true, true, ACT_SILU, 544, 32, 1,
         2304, false, 0, 0},
    };
    check_moe(cases, sizeof cases / sizeof *cases);
    if (dev != wide) with_wide(moe_of_long_rows_agrees);
}

static void selected_rows_keep_the_promise(void **s) {
    (void)s;
    static const int32_t sizes[] = {7, 1024, 1200};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        select_check(dev, floats((size_t)sizes[k] * SELECT_KINDS, 0), sizes[k]);
        drop_all();
    }
    /* as large as vocabularies, the staging made for them */
    static const int32_t large[] = {20011, 300001};
    for (size_t k = 0; k < sizeof large / sizeof *large; k++) {
        struct dev_need larger = need;
        larger.n_out = large[k];
        struct dev *own;
        const struct cuda_params plain = {0};
        assert_int_equal(cuda_open(&own, &plain, NULL), 0);
        assert_int_equal(own->ops->reserve(own, &larger, NULL), 0);
        select_check(own, floats((size_t)large[k] * SELECT_KINDS, 0), large[k]);
        drop_all();
        own->ops->close(own);
    }
}

int main(void) {
    const struct CMUnitTest products[] = {
        cmocka_unit_test_setup(linear_of_every_type, seed),
        cmocka_unit_test_setup(linear_of_several_matrices, seed),
        cmocka_unit_test_setup(ffn_agrees, seed),
        cmocka_unit_test_setup(moe_agrees_and_rows_are_independent, seed),
        cmocka_unit_test_setup(moe_of_long_rows_agrees, seed),
    };
    const struct CMUnitTest others[] = {
        cmocka_unit_test(a_card_has_the_number_of_its_kind),
        cmocka_unit_test_setup(rows_agree, seed),
        cmocka_unit_test_setup(elements_agree, seed),
        cmocka_unit_test_setup(picked_rows_keep_their_bits, seed),
        cmocka_unit_test_setup(selected_rows_keep_the_promise, seed),
        cmocka_unit_test_setup(products_in_two_parts_agree, seed),
        cmocka_unit_test_setup(recurrent_ops_agree, seed),
        cmocka_unit_test_setup(cuts_and_drafts_give_the_bits_of_single_steps, seed),
    };
    int n_failed = cmocka_run_group_tests(products, open_all, close_all);
    /* the other kernels are the same on every chip */
    if (!getenv("EMULATE_COMPUTE")) n_failed += cmocka_run_group_tests(others, open_all, close_all);
    return n_failed;
}

/* test_ops_ssm.c: the convolution and the recurrent scans on every CPU device: they agree with the scalar reference, however tokens are divided into calls,
 * the bits are those of single steps, deferred tokens leave no trace, and a NaN changes no other sequence. */
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
#include "kernels/cpu/cpu.h"
#include "op_cases.h"

enum { SLOTS = 3, CAP = 16, TOKENS = 200, MAX_DEV = 8 };

static struct rng rng;
static struct dev *ref, *devs[MAX_DEV];
static const char *dev_names[MAX_DEV];
static int n_dev;

struct room {
    const struct scan_case *s;
    float *
        in; /* [TOKENS, width]: x, [x | B | C] or [q | k | v], then dt, z, b and c as the op has them */
    float *alpha, *beta, *conved, *w, *b, *a, *d, *dt_bias, *norm;
    size_t width, n_x;
    struct rec_view state;
};

static float *floats(size_t n, double scale) {
    float *x = mem_aligned(64, (n + 1) * sizeof *x);
    assert_non_null(x);
    memset(x, 0, (n + 1) * sizeof *x);
    for (size_t i = 0; scale > 0 && i < n; i++) x[i] = (float)(rng_normal(&rng) * scale);
    return x;
}

/* Where a scan's part of a log row begins: after the convolution's, if both run, or at an odd place. */
static size_t log_at(const struct room *r) { return r->s->op == SCAN_CONV_SSD ? r->n_x : 5; }

static void room_open(struct room *r, const struct scan_case *s) {
    size_t inner = (size_t)s->inner, heads = s->d_head ? inner / (size_t)s->d_head : 0;
    size_t bc = 2 * (size_t)(s->d_head ? s->n_group : 1) * (size_t)s->d_state;
    size_t step = s->op == SCAN_GDN ? 2 * heads
                  : s->d_head       ? heads
                                    : 0; /* per token, of all heads */
    *r = (struct room){.s = s, .n_x = inner + (s->d_head ? bc : 0)};
    r->width = r->n_x + (s->op == SCAN_SSM ? inner + bc : step) + inner + 3;
    r->in = floats(TOKENS * r->width, 1);
    r->alpha = floats(TOKENS * heads, 1), r->beta = floats(TOKENS * heads, 1);
    r->conved = floats(TOKENS * r->n_x, 0);
    r->w = floats(r->n_x * 8, .5), r->b = floats(r->n_x, .2), r->d = floats(inner, 1);
    r->dt_bias = floats(heads, 1), r->norm = floats(inner, 1);
    r->a = floats(inner * (size_t)(s->d_state + 1), 1);
    for (size_t i = 0; i < inner * (size_t)(s->d_state + 1); i++) r->a[i] = -expf(r->a[i] - 1);
    r->state.s_stride = inner * (size_t)s->d_state;
    r->state.conv_stride = s->op == SCAN_SSD ? 0 : r->n_x * (size_t)(s->d_conv ? s->d_conv - 1 : 0);
    r->state.log_row = log_at(r) + r->n_x + (s->op == SCAN_SSM ? inner + bc : step);
    r->state.log_cap = CAP;
}

static void room_close(struct room *r) {
    mem_free(r->in), mem_free(r->alpha), mem_free(r->beta), mem_free(r->conved);
    mem_free(r->w), mem_free(r->b), mem_free(r->a);
    mem_free(r->d), mem_free(r->dt_bias), mem_free(r->norm);
}

static void state_open(struct room *r) {
    r->state.s = floats(SLOTS * r->state.s_stride, 0);
    r->state.conv = floats(SLOTS * r->state.conv_stride, 0);
    r->state.log = floats((size_t)SLOTS * CAP * r->state.log_row, 0);
}
static void state_close(struct room *r) {
    mem_free(r->state.s), mem_free(r->state.conv), mem_free(r->state.log);
}

static void run_conv(struct dev *d, const struct room *r, const struct span *s, int32_t n_span,
                     int32_t n_tok, const float *in, float *out) {
    struct conv_args a = {.spans = s, .n_span = n_span, .n_tok = n_tok, .d_conv = r->s->d_conv};
    a.n_conv = a.out_stride = (int64_t)r->n_x, a.x = in, a.x_stride = (int64_t)r->width;
    a.w = r->w, a.b = r->s->bias ? r->b : NULL,
    a.silu = r->s->op == SCAN_CONV_SSD || !r->s->variant;
    a.state = r->state, a.out = out;
    d->ops->conv(d, &a);
}

static void run_ssm(struct dev *d, const struct room *r, const struct span *s, int32_t n_span,
                    int32_t n_tok, const float *in, float *out) {
    int64_t inner = r->s->inner, w = (int64_t)r->width;
    struct ssm_args a = {
        .spans = s, .n_span = n_span, .n_tok = n_tok, .d_state = r->s->d_state, .n_inner = inner};
    a.x = in, a.dt = in + inner, a.b = a.dt + inner, a.c = a.b + r->s->d_state;
    a.z = r->s->gate ? a.c + r->s->d_state : NULL;
    a.x_stride = a.dt_stride = a.bc_stride = a.z_stride = w;
    a.a = r->a, a.d = r->d, a.state = r->state, a.log_at = log_at(r), a.out = out;
    d->ops->ssm(d, &a);
}

static void run_ssd(struct dev *d, const struct room *r, const struct span *s, int32_t n_span,
                    int32_t n_tok, const float *in, float *out) {
    const struct scan_case *h = r->s;
    struct ssd_args a = {
        .spans = s, .n_span = n_span, .n_tok = n_tok, .n_head = h->inner / h->d_head};
    a.n_group = h->n_group, a.d_head = h->d_head, a.d_state = h->d_state, a.n_norm = h->n_norm;
    a.xbc = in, a.dt = in + r->n_x, a.z = h->gate ? a.dt + a.n_head : NULL;
    a.xbc_stride = a.dt_stride = a.z_stride = (int64_t)r->width;
    if (h->op == SCAN_CONV_SSD) {
        run_conv(d, r, s, n_span, n_tok, in, r->conved);
        a.xbc = r->conved, a.xbc_stride = (int64_t)r->n_x;
    }
    a.a = r->a, a.d = r->d, a.dt_bias = r->dt_bias, a.dt_min = h->dt_min, a.dt_max = h->dt_max;
    a.norm_w = h->n_norm ? r->norm : NULL, a.norm_first = h->variant, a.eps = 1e-5f;
    a.state = r->state, a.log_at = log_at(r), a.out = out;
    d->ops->ssd(d, &a);
}

static void run_gdn(struct dev *d, const struct room *r, const struct span *s, int32_t n_span,
                    int32_t n_tok, int32_t first, float *out) {
    const struct scan_case *h = r->s;
    struct gdn_args a = {.spans = s, .n_span = n_span, .n_tok = n_tok, .n_k_head = h->n_group};
    a.n_v_head = h->inner / h->d_head, a.d_k = h->d_state, a.d_v = h->d_head;
    a.d_conv = h->d_conv, a.is_grouped = h->variant, a.eps = 1e-6f;
    a.norm_eps = h->variant ? 1e-2f : 1e-6f, a.beta_scale = h->variant ? 2 : 1;
    a.qkv = r->in + (size_t)first * r->width, a.z = a.qkv + r->n_x;
    a.qkv_stride = a.z_stride = (int64_t)r->width;
    a.alpha = r->alpha + first * a.n_v_head, a.beta = r->beta + first * a.n_v_head;
    a.conv_w = r->w, a.conv_b = h->bias ? r->b : NULL, a.a = r->a, a.dt_bias = r->dt_bias;
    a.norm_w = r->norm, a.state = r->state, a.out = out;
    d->ops->gdn(d, &a);
}

/* Tokens first.. of the room's inputs as one call of the given spans. */
static void run(struct dev *d, const struct room *r, const struct span *s, int32_t n_span,
                int32_t n_tok, int32_t first, float *out) {
    const float *in = r->in + (size_t)first * r->width;
    out += (size_t)first * (size_t)r->s->inner;
    switch (r->s->op) {
    case SCAN_CONV: run_conv(d, r, s, n_span, n_tok, in, out); break;
    case SCAN_GDN: run_gdn(d, r, s, n_span, n_tok, first, out); break;
    case SCAN_SSM: run_ssm(d, r, s, n_span, n_tok, in, out); break;
    case SCAN_SSD:
    case SCAN_CONV_SSD: run_ssd(d, r, s, n_span, n_tok, in, out); break;
    }
}

static struct span draft(int32_t n, int32_t n_replay, int64_t pos) {
    return (struct span){.n_tok = n, .slot = 1, .n_replay = n_replay, .pos = pos};
}

/* The slots' states as the reference has them, channel by channel; the device's own are freed. */
static float *take_states(struct dev *d, struct room *r) {
    const struct scan_case *h = r->s;
    size_t n = SLOTS * r->state.s_stride, n_state = (size_t)h->d_state, w = 1;
    if (n && h->op != SCAN_GDN && d->ops->state_lanes)
        w = (size_t)d->ops->state_lanes(h->inner, h->d_head, h->d_state);
    assert_true(w >= 1 && (size_t)h->inner % w == 0 && (w == 1 || w * n_state <= STATE_BLOCK));
    float *out = floats(n, 0);
    for (size_t i = 0; i < n; i++) {
        size_t channel = i / n_state, block = channel / w * w * n_state;
        out[i] = r->state.s[block + i % n_state * w + channel % w];
    }
    state_close(r);
    return out;
}

static void scans_agree(void **st) {
    (void)st;
    for (int i = 0; i < n_dev * N_SCAN; i++) {
        struct room r;
        room_open(&r, &scan_cases[i % N_SCAN]);
        size_t n = TOKENS * (size_t)r.s->inner;
        float *y[2] = {floats(n, 0), floats(n, 0)}, *states[2];
        /* a long scan from position 0, one from an odd position, then steps of both */
        struct span s[] = {whole(0, 131, 2, 0), whole(131, 40, 0, 0), whole(171, 9, 1, 3)};
        struct span more[] = {whole(0, 2, 2, 131), whole(2, 18, 0, 40)};
        for (int k = 0; k < 2; k++) {
            struct dev *d = k ? devs[i / N_SCAN] : ref;
            state_open(&r);
            run(d, &r, s, 3, 180, 0, y[k]);
            run(d, &r, more, 2, 20, 180, y[k]);
            states[k] = take_states(d, &r);
        }
        check_near(y[1], y[0], n, r.s->d_state ? 1e-4 : 1e-5, "%s %s", dev_names[i / N_SCAN],
                   r.s->name);
        if (r.s->op != SCAN_GDN) /* its layout is the device's own */
            check_near(states[1], states[0], SLOTS * r.state.s_stride, 1e-4, "%s %s, state",
                       dev_names[i / N_SCAN], r.s->name);
        mem_free(y[0]), mem_free(y[1]), mem_free(states[0]), mem_free(states[1]);
        room_close(&r);
    }
}

/* Verify 6, accept 4; verify 5 with those replayed, accept none; go on beside a sequence of NaN; accept all
 * of 8 deferred ones. `want`: 40 single steps. */
static void drafts(struct dev *d, const char *dev, struct room *r, const float *want, float *y) {
    size_t n = (size_t)r->s->inner;
    struct span v = draft(6, 0, 0);
    run(d, r, &v, 1, 6, 0, y);
    check_same(y, want, 6 * n, "%s %s deferred", dev, r->s->name);
    v = draft(5, 4, 4);
    run(d, r, &v, 1, 5, 4, y);
    check_same(y, want, 9 * n, "%s %s deferred twice", dev, r->s->name);
    struct span rest[] = {whole(0, 12, 1, 4), whole(12, 1, 0, 0)};
    float *bad = r->in + 16 * r->width, *saved = floats(r->width, 0);
    memcpy(saved, bad, r->width * sizeof *bad);
    for (size_t j = 0; j < r->width; j++) bad[j] = NAN;
    run(d, r, rest, 2, 13, 4, y);
    assert_true(isnan(y[16 * n]));
    memcpy(bad, saved, r->width * sizeof *bad);
    mem_free(saved);
    check_same(y, want, 16 * n, "%s %s after rejection", dev, r->s->name);
    v = draft(8, 0, 16);
    run(d, r, &v, 1, 8, 16, y);
    v = (struct span){.n_tok = 16, .slot = 1, .n_replay = 8, .n_commit = 16, .pos = 24};
    run(d, r, &v, 1, 16, 24, y);
    check_same(y, want, 40 * n, "%s %s after replay", dev, r->s->name);
}

static void cuts_and_drafts_give_the_bits_of_single_steps(void **st) {
    (void)st;
    for (int i = 0; i < n_dev * N_SCAN; i++) {
        struct dev *d = devs[i / N_SCAN];
        const char *dev = dev_names[i / N_SCAN];
        struct room r;
        room_open(&r, &scan_cases[i % N_SCAN]);
        size_t n = 40 * (size_t)r.s->inner, n_s = r.state.s_stride, n_conv = r.state.conv_stride;
        float *want = floats(n, 0), *y = floats(n, 0), *s = floats(n_s, 0),
              *conv = floats(n_conv, 0);
        state_open(&r);
        for (int t = 0; t < 40; t++) {
            struct span one = whole(0, 1, 1, t);
            run(d, &r, &one, 1, 1, t, want);
        }
        memcpy(s, r.state.s + n_s, n_s * sizeof *s); /* of slot 1 */
        memcpy(conv, r.state.conv + n_conv, n_conv * sizeof *conv);
        state_close(&r);
        state_open(&r);
        struct span all = whole(0, 40, 1, 0);
        run(ref, &r, &all, 1, 40, 0, y);
        check_near(want, y, n, 1e-5, "%s %s, steps", dev, r.s->name);
        state_close(&r);
        for (int how = 0; how < 2; how++) {
            state_open(&r);
            struct span cut[] = {whole(0, 16, 1, 0), whole(0, 3, 1, 16), whole(0, 21, 1, 19)};
            for (int k = 0, at = 0; !how && k < 3; at += cut[k++].n_tok)
                run(d, &r, &cut[k], 1, cut[k].n_tok, at, y);
            if (how) drafts(d, dev, &r, want, y);
            check_same(y, want, n, "%s %s in pieces", dev, r.s->name);
            check_same(r.state.s + n_s, s, n_s, "%s %s in the state", dev, r.s->name);
            check_same(r.state.conv + n_conv, conv, n_conv, "%s %s in the window", dev, r.s->name);
            state_close(&r);
        }
        mem_free(want), mem_free(y), mem_free(s), mem_free(conv);
        room_close(&r);
    }
}

static int open_all(void **st) {
    (void)st;
    struct err e = {0};
    static const struct dev_need need = {.n_tok = 320,
                                         .n_in = 1024,
                                         .n_out = 1200,
                                         .n_ff = 512,
                                         .n_expert = 1,
                                         .n_used = 1,
                                         .n_head = 1,
                                         .d_head = 64,
                                         .n_v_head = 9,
                                         .d_state = 200 * 200,
                                         .d_rec_k = 200,
                                         .d_rec_v = 200,
                                         .n_conv = 4096,
                                         .n_ctx = 512};
    static const struct {
        enum cpu_isa isa;
        int n_thread;
        const char *name;
    } want[] = {{CPU_ISA_SCALAR, 1, "scalar"},    {CPU_ISA_AVX2, 2, "avx2"},
                {CPU_ISA_AVXVNNI, 2, "avxvnni"},  {CPU_ISA_AVX512, 1, "avx512"},
                {CPU_ISA_AVX512, 3, "avx512 x3"}, {CPU_ISA_NEON, 2, "neon"}};
    rng_seed(&rng, 21);
    if (cpu_open_ref(&ref, &e) || ref->ops->reserve(ref, &need, &e)) return -1;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
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
    struct err e = {0};
    for (int i = 0; i < n_dev; i++) {
        if (devs[i]->ops->status(devs[i], &e)) fail_msg("%s: %s", dev_names[i], e.text);
        devs[i]->ops->close(devs[i]);
    }
    ref->ops->close(ref);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scans_agree),
        cmocka_unit_test(cuts_and_drafts_give_the_bits_of_single_steps),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}

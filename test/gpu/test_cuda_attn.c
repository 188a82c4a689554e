/* test_cuda_attn.c: attention of the CUDA device against the scalar reference. Built twice, like test_cuda.c. */
#include "on_device.h"

enum { ATTN_TOK = 330 };

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
    r->inv = floats(256, 0);
    for (int i = 0; i < 256; i++) r->inv[i] = powf(10000, -(float)i / 64);
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
    attn_case_store(c, &a);
    d->ops->qkv_store(d, &a);
    if (c->queries_again) {
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

/* From row `from` of the first of two pages on, keys and values are NaN. */
static void forget_from(const struct attn_room *r, const int32_t pages[2], int64_t from) {
    size_t n_head = (size_t)r->kv.n_kv_head;
    size_t k1 = r->kv.k_page_bytes / KV_PAGE / n_head, v1 = r->kv.v_page_bytes / KV_PAGE / n_head;
    for (int p = 0; p < 2; p++) {
        int64_t first = from - p * KV_PAGE;
        first = first < 0 ? 0 : first > KV_PAGE ? KV_PAGE : first;
        for (size_t h = 0; h < n_head; h++) {
            size_t at = ((size_t)pages[p] * n_head + h) * KV_PAGE + (size_t)first;
            memset((uint8_t *)r->kv.k + at * k1, 0xff, (size_t)(KV_PAGE - first) * k1);
            memset((uint8_t *)r->kv.v + at * v1, 0xff, (size_t)(KV_PAGE - first) * v1);
        }
    }
}

/* Contexts whose stretches are several steps of a warp: a few written pages stand for all before. What lies behind the
 * last position is NaN, and what a step writes is until it does: read too early, it shows. */
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
            /* slow; heads of 576 have as many pages per range at 8,191 as at 511 */
            if ((i == 2 && k != 2 && k != 5 && k != 9) || (i && c->d_k > 512)) continue;
            int32_t own = (int32_t)(at[i] / KV_PAGE), *free_pages = r.pages[0] + 4;
            for (int32_t p = 0; p < own; p++) pages[p] = r.pages[0][p % 4];
            pages[own] = free_pages[0], pages[own + 1] = free_pages[1];
            forget_from(&r, free_pages, 0);
            uint64_t k1 = kb / KV_PAGE / (size_t)c->n_kv_head;
            uint64_t v1 = vb / KV_PAGE / (size_t)c->n_kv_head;
            for (int32_t h = 0; h < c->n_kv_head; h++) {
                size_t from = (size_t)h * KV_PAGE, n = (size_t)(at[i] % KV_PAGE);
                memcpy((uint8_t *)r.kv.k + (size_t)free_pages[0] * kb + from * k1,
                       (uint8_t *)r.kv.k + (size_t)r.pages[0][1] * kb + from * k1, n * k1);
                memcpy((uint8_t *)r.kv.v + (size_t)free_pages[0] * vb + from * v1,
                       (uint8_t *)r.kv.v + (size_t)r.pages[0][1] * vb + from * v1, n * v1);
            }
            s = (struct span){.row = 0, .n_tok = DEEP, .pos = at[i], .pages = pages};
            attn_run(ref, c, &r, &s, 1, DEEP, 256);
            size_t first = (size_t)(256 * c->n_head * c->d_v);
            float *o0 = copy_of(r.out + first, no);
            forget_from(&r, free_pages, at[i] % KV_PAGE);
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
            forget_from(&r, free_pages, at[i] % KV_PAGE + 1);
            attn_run(dev, c, &r, &one, 1, 1, 257);
            settle(dev);
            check_same(r.out + first, o1, no, "attn case %d at %ld, one at a time", k, (long)at[i]);
            if (i) continue;
            /* NaN in a key reaches the heads that see it, in a value its element, and no token before */
            for (int of_value = 0; of_value < (c->latent ? 1 : 2); of_value++) {
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
    for (int i = 0; i < N_CASES(full_cases); i++) {
        const struct full_case *c = &full_cases[i];
        struct span s[FULL_SPAN];
        struct attn_full_args a = full_args(c, s);
        size_t n = (size_t)(a.n_tok * FULL_HEAD * c->d);
        float *q = floats(n, 1), *k = floats(n, 1), *v = floats(n, 1), *y0 = floats(n, 0),
              *y1 = floats(n, 0), *bias = floats((2 * FULL_BIAS + 1) * FULL_HEAD, 1);
        a.q = q, a.k = k, a.v = v, a.bias = c->bias ? bias : NULL, a.out = y0;
        ref->ops->attn_full(ref, &a);
        a.out = y1;
        dev->ops->attn_full(dev, &a);
        settle(dev);
        check_near(y1, y0, n, 1e-5, "attn_full %d", i);
        drop_all();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(attention_agrees, seed),
        cmocka_unit_test_setup(deep_attention_agrees, seed),
        cmocka_unit_test_setup(full_attention_agrees, seed),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}

/* test_cuda_pool.c: experts in slots: the same bits as with all experts on the device, for steps, for steps of more
 * experts than slots, and for long batches, also if evicted experts are in records that are emptied now and then; the
 * counters are those of a simulation of the policy. */
#include "on_device.h"

enum { N_EXPERT = 24, MANY = 264, N_EMBD = 256, N_TOK = 70, N_W = 7 };

struct bench {
    struct weight w[N_W];  /* router; gate, up, down; of the shared expert: gate, up, down */
    struct weight host[3]; /* gate, up, down in host memory */
    struct moe_pool pool;
    struct moe_args args; /* without rows */
    float *x;
};

static void make_with(struct bench *b, struct dev *d, uint32_t type, bool gated, int32_t n_slot,
                      int32_t n_used, int32_t n_expert) {
    int64_t n_ff = quant_traits(type)->block_elements > 64 ? 256 : 64; /* whole blocks */
    const int64_t shape[N_W][3] = {{N_EMBD, n_expert, 1},    {N_EMBD, n_ff, n_expert},
                                   {N_EMBD, n_ff, n_expert}, {n_ff, N_EMBD, n_expert},
                                   {N_EMBD, 32, 1},          {N_EMBD, 32, 1},
                                   {32, N_EMBD, 1}};
    memset(b, 0, sizeof *b);
    b->pool.n_slot = n_slot;
    for (int i = 0; i < N_W; i++) {
        bool routed = i >= 1 && i <= 3;
        struct weight w = weight_of(i == 0   ? QUANT_F32
                                    : routed ? type
                                             : QUANT_Q8_0,
                                    shape[i][0], shape[i][1], shape[i][2], .06);
        b->w[i] = prepared(d, &w);
        if (!routed) continue;
        size_t n = d->ops->prepared_bytes(d, &w);
        assert_int_equal(d->ops->pack(d, &w, room(n), &b->host[i - 1]), 0);
        b->pool.stage[i - 1] = b->pool.slot[i - 1] = b->host[i - 1];
        b->pool.stage[i - 1].data = room(n);
        b->pool.slot[i - 1].n_mat = n_slot;
        b->pool.slot[i - 1].data = room(n);
    }
    b->pool.directory = room(d->ops->pool_bytes(n_expert, n_slot));
    b->pool.counts = room(sizeof *b->pool.counts);
    b->pool.uses = room(n_expert * sizeof *b->pool.uses);
    b->x = floats((size_t)N_EMBD * N_TOK, 1);
    b->args = (struct moe_args){.n_used = n_used,
                                .gating = MOE_SOFTMAX,
                                .normalise = true,
                                .scale = 1,
                                .act = ACT_SILU,
                                .router = &b->w[0],
                                .gate = gated ? &b->w[1] : NULL,
                                .up = &b->w[2],
                                .down = &b->w[3],
                                .sh_gate = gated ? &b->w[4] : NULL,
                                .sh_up = &b->w[5],
                                .sh_down = &b->w[6]};
}

static void make(struct bench *b, struct dev *d, uint32_t type, bool gated, int32_t n_slot,
                 int32_t n_used) {
    make_with(b, d, type, gated, n_slot, n_used, N_EXPERT);
}

/* Rows [first, first + n) with all experts on the device, and from the pool: the same bits. */
static void check_rows(struct bench *b, struct dev *d, int32_t first, int32_t n,
                       const int32_t *chosen, const struct moe_keep *keep) {
    float *out[2] = {floats((size_t)N_EMBD * n, 0), floats((size_t)N_EMBD * n, 0)};
    for (int i = 0; i < 2; i++) {
        struct moe_args a = b->args;
        a.n_tok = n, a.x = b->x + (int64_t)first * N_EMBD, a.out = out[i];
        a.chosen = chosen ? chosen + first * a.n_used : NULL;
        a.keep = keep;
        if (i) {
            a.pool = &b->pool;
            a.gate = a.gate ? &b->host[0] : NULL, a.up = &b->host[1], a.down = &b->host[2];
        }
        d->ops->moe(d, &a);
        settle(d);
    }
    for (int32_t t = 0; t < n; t++) {
        const float *a = out[0] + (int64_t)t * N_EMBD, *b1 = out[1] + (int64_t)t * N_EMBD;
        if (isnan(b->x[(int64_t)(first + t) * N_EMBD])) assert_true(isnan(a[7]) && isnan(b1[7]));
        else
            check_same(b1, a, N_EMBD, "%s type %u, %d slots: row %d of %d: %.9g %.9g",
                       d == dev    ? "plain"
                       : d == wide ? "wide"
                                   : "precise",
                       b->pool.slot[1].type, b->pool.n_slot, t, n, a[0], b1[0]);
    }
}

static void slots_give_the_bits_of_all_resident(void **st) {
    (void)st;
    static const struct {
        uint32_t type;
        bool gated;
        int32_t n_slot, n_used;
    } cases[] = {{QUANT_IQ3_S, true, 9, 4},
                 {QUANT_Q4_K, true, 4, 4},
                 {QUANT_Q8_0, false, 24, 5},
                 {QUANT_F16, true, 6, 3}};
    struct dev *const devs[] = {dev, wide, precise};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        for (int i = 0; i < (k < 2 ? 3 : 1); i++) {
            struct bench b;
            make(&b, devs[i], cases[k].type, cases[k].gated, cases[k].n_slot, cases[k].n_used);
            struct moe_keep keep[16];
            for (int t = 0; t < 16; t++) keep[t] = (struct moe_keep){t % 3 ? .6f : 1, 1, 0};
            for (int t = 0; t < 3; t++) check_rows(&b, devs[i], t, 1, NULL, NULL);
            check_rows(&b, devs[i], 3, 16, NULL, NULL);
            check_rows(&b, devs[i], 0, N_TOK, NULL, NULL);
            check_rows(&b, devs[i], 5, 19, NULL, NULL); /* longer than a step, and few */
            struct moe_keep *near = room(sizeof keep);
            memcpy(near, keep, sizeof keep);
            check_rows(&b, devs[i], 20, 7, NULL, near);
            b.x[21 * N_EMBD] = NAN; /* one token's scores are not finite */
            check_rows(&b, devs[i], 20, 3, NULL, NULL);
            assert_true(b.pool.counts->n_pass >= 6);
            drop_all();
        }
}

/* So many experts take another kernel, and are chosen by a kernel of its own. */
static void slots_give_the_same_bits_with_many_experts(void **st) {
    (void)st;
    struct bench b;
    make_with(&b, dev, QUANT_Q8_0, false, MANY - 4, 8, MANY);
    for (int t = 0; t < 2; t++) check_rows(&b, dev, t, 1, NULL, NULL);
    check_rows(&b, dev, 2, 5, NULL, NULL);
    assert_int_equal(b.pool.counts->n_pass, 3);
    drop_all();
}

/* ---- the policy ---- */

struct model { /* of the slots, in plain C */
    int32_t expert[N_EXPERT];
    double count[N_EXPERT];
    long last[N_EXPERT], uses[N_EXPERT], clock;
    uint64_t n_hit, n_miss;
};

static double worth(const struct model *m, int32_t e) {
    double age = (double)(m->clock - m->last[e]);
    return (double)m->last[e] + 4 * log2(1 + m->count[e] * exp2(-age / 256));
}

static void step(struct model *m, const int32_t *ids, int32_t n_used, int32_t n_slot) {
    bool wanted[N_EXPERT] = {false}, in[N_EXPERT] = {false};
    for (int k = 0; k < n_used; k++) wanted[ids[k]] = true;
    for (int s = 0; s < n_slot; s++)
        if (m->expert[s] >= 0) in[m->expert[s]] = true;
    for (int e = 0; e < N_EXPERT; e++)
        if (wanted[e]) {
            m->count[e] = 1 + m->count[e] * exp2(-(double)(m->clock - m->last[e]) / 256);
            m->last[e] = m->clock;
            m->uses[e]++;
        }
    m->clock++;
    for (int e = 0; e < N_EXPERT; e++) {
        if (!wanted[e]) continue;
        m->n_hit += in[e], m->n_miss += !in[e];
        if (in[e]) continue;
        int at = -1;
        for (int s = 0; s < n_slot; s++) {
            if (m->expert[s] >= 0 && wanted[m->expert[s]]) continue;
            if (m->expert[s] < 0) {
                at = s;
                break;
            }
            if (at < 0 || worth(m, m->expert[s]) < worth(m, m->expert[at])) at = s;
        }
        m->expert[at] = e;
    }
}

/* Tokens that mostly repeat recent experts. Scores that differ in the last bits may choose another victim, so the
 * counters may differ a little. */
static void hits_are_those_of_the_policy(void **st) {
    (void)st;
    enum { N_USED = 4, N_SLOT = 9, N_STEP = 150 };
    struct bench b;
    struct model m = {.clock = 0};
    make(&b, dev, QUANT_Q8_0, true, N_SLOT, N_USED);
    for (int s = 0; s < N_EXPERT; s++) m.expert[s] = -1;
    int32_t *ids = room(N_USED * sizeof *ids);
    float *out = floats(N_EMBD, 0);
    for (int t = 0; t < N_STEP; t++) {
        for (int k = 0; k < N_USED; k++)
            for (bool again = true; again;) {
                bool keeps = t && rng_uniform(&rng) < .6;
                if (!keeps) ids[k] = (int32_t)(rng_uniform(&rng) * rng_uniform(&rng) * N_EXPERT);
                again = false;
                for (int j = 0; j < k; j++) again |= ids[j] == ids[k];
                if (again && keeps) ids[k] = (ids[k] + 1) % N_EXPERT;
            }
        step(&m, ids, N_USED, N_SLOT);
        struct moe_args a = b.args;
        a.n_tok = 1, a.x = b.x, a.out = out, a.chosen = ids, a.pool = &b.pool;
        a.gate = &b.host[0], a.up = &b.host[1], a.down = &b.host[2];
        dev->ops->moe(dev, &a);
        settle(dev);
    }
    const struct moe_counts *n = b.pool.counts;
    assert_int_equal(n->n_hit + n->n_miss, N_STEP * N_USED);
    assert_int_equal(n->n_pass, N_STEP);
    for (int e = 0; e < N_EXPERT; e++) assert_int_equal(b.pool.uses[e], m.uses[e]);
    assert_int_equal(n->n_bytes % n->n_miss, 0);
    assert_true(n->n_hit > N_STEP); /* and not all */
    assert_true(n->n_miss > 30);
    assert_true(n->copy_ns > 0);
    int64_t off = (int64_t)n->n_hit - (int64_t)m.n_hit;
    if (off < -6 || off > 6)
        fail_msg("%llu hits, expected %llu", (unsigned long long)n->n_hit,
                 (unsigned long long)m.n_hit);
    drop_all();
}

/* The last tokens of a long batch leave their experts in slots: the next step finds them. */
static void a_long_batch_fills_the_slots(void **st) {
    (void)st;
    enum { N_USED = 3, N_SLOT = 12 };
    struct bench b;
    make(&b, dev, QUANT_Q8_0, true, N_SLOT, N_USED);
    int32_t *chosen = room(N_TOK * N_USED * sizeof *chosen);
    for (int t = 0; t < N_TOK; t++)
        for (int k = 0; k < N_USED; k++) chosen[t * N_USED + k] = (t / 8 + k * 7) % N_EXPERT;
    check_rows(&b, dev, 0, N_TOK, chosen, NULL);
    struct moe_counts before = *b.pool.counts;
    assert_int_equal(before.n_hit, 0);
    assert_int_equal(before.n_pass, 1);
    for (int e = 0; e < N_EXPERT; e++) {
        uint32_t n = 0;
        for (int p = 0; p < N_TOK * N_USED; p++) n += chosen[p] == e;
        assert_int_equal(b.pool.uses[e], n);
    }
    check_rows(&b, dev, N_TOK - 1, 1, chosen, NULL);
    assert_int_equal(b.pool.counts->n_miss, before.n_miss);
    assert_int_equal(b.pool.counts->n_hit, N_USED);
    /* a long batch takes from the slots what they have */
    check_rows(&b, dev, N_TOK - 20, 20, chosen, NULL);
    assert_true(b.pool.counts->n_hit > N_USED);
    drop_all();
}

/* Experts that fill the slots before the first batch are hits, and the first rows are evicted first. */
static void filled_slots_are_hits(void **st) {
    (void)st;
    enum { N_USED = 3, N_SLOT = 12 };
    struct bench b;
    make(&b, dev, QUANT_IQ3_S, true, N_SLOT, N_USED);
    int32_t *fill = room(16 * sizeof *fill), *chosen = room(N_USED * sizeof *chosen);
    for (int i = 0; i < 16; i++) fill[i] = i < 4 ? -1 : i + 6; /* 10 to 21 */
    struct moe_args a = b.args;
    a.n_tok = 16, a.n_used = 1, a.chosen = fill, a.pool = &b.pool;
    a.gate = &b.host[0], a.up = &b.host[1], a.down = &b.host[2];
    dev->ops->pool_fill(dev, &a);
    settle(dev);
    assert_int_equal(b.pool.counts->n_pass, 0);
    for (int e = 0; e < N_EXPERT; e++) assert_int_equal(b.pool.uses[e], 0);
    static const int32_t steps[][N_USED] = {{10, 15, 21}, {0, 1, 2}, {16, 20, 10}, {11, 12, 13}};
    static const int hits[] = {3, 0, 3, 0};
    for (int i = 0; i < 4; i++) {
        uint64_t before = b.pool.counts->n_hit;
        memcpy(chosen, steps[i], sizeof steps[i]);
        check_rows(&b, dev, 0, 1, chosen, NULL);
        assert_int_equal(b.pool.counts->n_hit - before, hits[i]);
    }
    assert_int_equal(b.pool.uses[10], 2);
    drop_all();
}

/* ---- records in idle pages ---- */

/* Gives the pool n records, each a part of their memory, none of them usable yet. Returns this memory. */
static uint8_t *lend(struct bench *b, struct moe_args *a, int32_t n, size_t *record) {
    *record = 0;
    for (int i = 0; i < 3; i++)
        if (i || a->gate) {
            struct weight one = b->host[i];
            one.n_mat = 1, one.layout = 0;
            *record += (dev->ops->prepared_bytes(dev, &one) + 255) & ~(size_t)255;
        }
    uint8_t *memory = room((size_t)n * *record);
    struct moe_spare *table = room((size_t)n * sizeof *table);
    for (int32_t i = 0; i < n; i++)
        table[i] = (struct moe_spare){.at = memory + (size_t)i * *record, .parts = 1u << i};
    b->pool.spare = table, b->pool.n_spare = n;
    a->pool = &b->pool;
    a->gate = a->gate ? &b->host[0] : NULL, a->up = &b->host[1], a->down = &b->host[2];
    dev->ops->pool_lend(dev, a, 0);
    return memory;
}

/* With a record for each expert that has no slot, every expert crosses the bus once. Records in memory that is taken are
 * not read again; steps in between go on, with the same bits. */
static void evicted_experts_stay_in_idle_pages(void **st) {
    (void)st;
    enum { N_USED = 3, N_SLOT = 6, N_SPARE = N_EXPERT - N_SLOT, N_STEP = 36 };
    static const uint32_t kinds[] = {QUANT_Q8_0, QUANT_IQ3_S, QUANT_F16};
    for (int k = 0; k < 3; k++) {
        struct bench b;
        make(&b, dev, kinds[k], k != 1, N_SLOT, N_USED);
        struct moe_args a = b.args;
        size_t record;
        uint8_t *memory = lend(&b, &a, N_SPARE, &record);
        const struct moe_counts *n = b.pool.counts;
        int32_t *chosen = room(N_TOK * N_USED * sizeof *chosen);
        for (int t = 0; t < N_TOK; t++)
            for (int i = 0; i < N_USED; i++)
                chosen[t * N_USED + i] = (t * 5 + i * 9 + t * t) % N_EXPERT;
        dev->ops->pool_lend(dev, &a, UINT32_MAX);
        bool seen[N_EXPERT] = {false};
        uint64_t n_seen = 0;
        for (int t = 0; t < N_STEP; t++) {
            check_rows(&b, dev, t, 1, chosen, NULL);
            for (int i = 0; i < N_USED; i++) {
                n_seen += !seen[chosen[t * N_USED + i]];
                seen[chosen[t * N_USED + i]] = true;
            }
            assert_int_equal(n->n_miss, n_seen);
        }
        assert_true(n_seen > N_SLOT + 4);
        check_rows(&b, dev, 0, N_STEP, chosen, NULL); /* a prompt, too, reads what the device has */
        assert_int_equal(n->n_miss, n_seen);
        /* a sequence takes all of it but four records: what it writes there is never multiplied */
        const uint32_t four = 1u << 2 | 1u << 7 | 1u << 8 | 1u << 17;
        dev->ops->pool_lend(dev, &a, four);
        settle(dev);
        for (size_t i = 0; i < N_SPARE; i++)
            if (!(four >> i & 1)) memset(memory + i * record, 0xff, record);
        for (int t = 0; t < N_STEP; t++) check_rows(&b, dev, t, 1, chosen, NULL);
        uint64_t few = n->n_miss;
        assert_true(few > n_seen);
        /* all of them */
        dev->ops->pool_lend(dev, &a, 0);
        settle(dev);
        memset(memory, 0xff, N_SPARE * record);
        for (int t = 0; t < N_STEP; t++) check_rows(&b, dev, t, 1, chosen, NULL);
        uint64_t none = n->n_miss - few;
        assert_true(none > few - n_seen);
        for (size_t i = 0; i < N_SPARE * record; i++) assert_int_equal(memory[i], 0xff);
        /* and gives them back: what is missing is read once more, at most */
        dev->ops->pool_lend(dev, &a, UINT32_MAX);
        uint64_t before = n->n_miss;
        for (int t = 0; t < N_STEP; t++) check_rows(&b, dev, t, 1, chosen, NULL);
        assert_true(n->n_miss - before <= n_seen);
        before = n->n_miss;
        check_rows(&b, dev, 3, 8, chosen, NULL);
        for (int t = 0; t < N_STEP; t++) check_rows(&b, dev, t, 1, chosen, NULL);
        assert_int_equal(n->n_miss, before);
        drop_all();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(slots_give_the_bits_of_all_resident, seed),
        cmocka_unit_test_setup(slots_give_the_same_bits_with_many_experts, seed),
        cmocka_unit_test_setup(hits_are_those_of_the_policy, seed),
        cmocka_unit_test_setup(a_long_batch_fills_the_slots, seed),
        cmocka_unit_test_setup(filled_slots_are_hits, seed),
        cmocka_unit_test_setup(evicted_experts_stay_in_idle_pages, seed),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}

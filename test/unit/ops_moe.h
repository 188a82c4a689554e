/* ops_moe.h: what test_ops.c asks of a mixture's choice: given back, in parts, with experts left out. */
#ifndef CHIMERE_TEST_OPS_MOE_H
#define CHIMERE_TEST_OPS_MOE_H

/* a: 13 rows whose result is y. Some experts early, whatever is computed early of the rest: the same bits. */
static void moe_early(struct dev *d, const char *name, struct moe_args a, const float *y) {
    enum { N_EXPERT = MOE_EXPERTS, N_TOK = 13 };
    const size_t n = (size_t)a.down->n_out;
    int32_t place[N_EXPERT], early[N_EXPERT];
    float *got = floats(n * N_TOK, 0);
    a.out = got;
    for (int kind = 0; kind < 3; kind++) { /* none, each third, all */
        memset(got, 0, sizeof *got * n * N_TOK);
        for (int e = 0; e < N_EXPERT; e++) {
            place[e] = e;
            early[e] = kind == 2 || (kind == 1 && e % 3 == 1) ? e : -1;
        }
        a.pass = MOE_EARLY, a.place = early, a.early = NULL;
        d->ops->moe(d, &a);
        for (size_t i = 0; i < n * N_TOK; i++) assert_true(got[i] == 0);
        a.pass = MOE_REST, a.place = place, a.early = early;
        d->ops->moe(d, &a);
        check_status(d, name);
        check_same(got, y, n * N_TOK, "%s moe, some experts early", name);
    }
    drop(got);
}

/* a: 13 rows whose result is y. The choice alone, given back, and its experts in two calls from stacks in another
 * order: the same bits. */
static void moe_in_parts(struct dev *d, const char *name, struct moe_args a, const float *y) {
    enum { N_EXPERT = MOE_EXPERTS, N_TOK = 13 };
    const size_t n = (size_t)a.down->n_out, n_id = (size_t)N_TOK * (size_t)a.n_used;
    int32_t ids[N_TOK * MOE_MAX_USED], again[N_TOK * MOE_MAX_USED], place[N_EXPERT];
    float *got = floats(n * N_TOK, 0);
    a.out = got, a.ids = ids, a.logits = NULL;
    a.logits = d->ops->route(d, &a);
    a.chosen = ids, a.ids = again;
    d->ops->moe(d, &a);
    check_same(got, y, n * N_TOK, "%s moe, given its choice", name);
    assert_memory_equal(ids, again, n_id * sizeof *ids);
    memset(got, 0, sizeof *got * n * N_TOK);
    a.place = place;
    const struct weight *sh_up = a.sh_up;
    const float *gate = a.shared_gate_w;
    for (int part = 0; part < 2; part++) {
        for (int e = 0; e < N_EXPERT; e++) place[e] = (e >= 7) == part ? e : -1;
        a.sh_up = part ? sh_up : NULL, a.shared_gate_w = part ? gate : NULL;
        d->ops->moe(d, &a);
    }
    if (strcmp(name, "scalar") == 0) check_near(got, y, n * N_TOK, 1e-6, "%s moe in parts", name);
    else check_same(got, y, n * N_TOK, "%s moe in parts", name);
    moe_early(d, name, a, y);
    /* other experts, the same weights' rule: the place of each is that of another */
    for (int i = 0; i < (int)n_id; i++) again[i] = N_EXPERT - 1 - ids[i];
    for (int e = 0; e < N_EXPERT; e++) place[e] = N_EXPERT - 1 - e;
    a.chosen = again, a.ids = NULL;
    memset(got, 0, sizeof *got * n * N_TOK);
    d->ops->moe(d, &a);
    check_status(d, name);
    bool same = true;
    for (int i = 0; i < (int)n * N_TOK; i++) {
        same &= got[i] == y[i];
        assert_true(isfinite(got[i]));
    }
    assert_true(!same || a.n_used == 1); /* the same matrices with other weights */
    drop(got);
}

/* a: 13 rows whose choice of all is `all`. Those that stay are the likeliest of them that have the mass together, by
 * sums in double; a token's row has the bits of a mixture that chooses no more than so many. */
static void moe_leaves_out(struct dev *d, const char *name, struct moe_args a, const float *logits,
                           const int32_t *all) {
    enum { N_EXPERT = MOE_EXPERTS, N_TOK = 13 };
    const size_t n = (size_t)a.down->n_out, n_id = (size_t)N_TOK * (size_t)a.n_used;
    static const float masses[] = {.5f, .8f, .3f, 1, .95f};
    struct moe_keep keep[N_TOK];
    int32_t ids[N_TOK * MOE_MAX_USED], n_left_out = 0;
    float *got = floats(n * N_TOK, 0), *few = floats(n, 0);
    for (int t = 0; t < N_TOK; t++) keep[t] = (struct moe_keep){masses[t % 5], 1 + t % 2, 0};
    a.keep = keep, a.ids = ids, a.out = got;
    memset(got, 0, sizeof *got * n * N_TOK);
    d->ops->moe(d, &a);
    check_status(d, name);
    for (int t = 0; t < N_TOK; t++) {
        const int32_t *of = all + t * a.n_used, *id = ids + t * a.n_used;
        double w[MOE_MAX_USED], sum = 0;
        int32_t n_stay = 0;
        for (int k = 0; k < a.n_used; k++) {
            double x = logits[t * N_EXPERT + of[k]];
            sum += w[k] = a.gating == MOE_SIGMOID ? 1 / (1 + exp(-x)) : exp(x);
        }
        for (int k = 0; k < a.n_used; k++) {
            double before = 0;
            int rank = 0;
            for (int j = 0; j < a.n_used; j++)
                if (w[j] > w[k]) before += w[j], rank++;
            bool stays = rank < keep[t].n_min || before < (double)keep[t].mass * sum;
            if (fabs(before - (double)keep[t].mass * sum) < 1e-5 * sum) stays = id[k] >= 0;
            assert_int_equal(id[k], stays ? of[k] : -2 - of[k]);
            n_stay += stays;
        }
        n_left_out += a.n_used - n_stay;
        if (a.select_bias || a.gating == MOE_SIGMOID) continue; /* the first n are others */
        struct moe_args one = a;
        one.n_tok = 1, one.n_used = n_stay, one.keep = NULL, one.ids = NULL;
        one.x = a.x + (size_t)t * n, one.out = few;
        if (a.logits) one.logits = a.logits + (size_t)t * N_EXPERT;
        memset(few, 0, sizeof *few * n);
        d->ops->moe(d, &one);
        check_same(got + (size_t)t * n, few, n, "%s moe of %d experts, row %d", name, n_stay, t);
    }
    assert_true(a.n_used == 1 || (n_left_out > 3 && n_left_out <= (a.n_used - 1) * N_TOK));
    /* given back, and its choice alone */
    int32_t again[N_TOK * MOE_MAX_USED];
    float *same = floats(n * N_TOK, 0);
    memset(same, 0, sizeof *same * n * N_TOK);
    a.ids = again;
    a.logits = d->ops->route(d, &a);
    assert_memory_equal(ids, again, n_id * sizeof *ids);
    a.chosen = ids, a.out = same;
    d->ops->moe(d, &a);
    assert_memory_equal(ids, again, n_id * sizeof *ids);
    check_same(same, got, n * N_TOK, "%s moe, given what stays", name);
    drop(got), drop(few), drop(same);
}

#endif

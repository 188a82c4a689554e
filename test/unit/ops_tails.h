/* ops_tails.h: what test_ops.c asks of matrices in two parts (tensor.h). */
#ifndef CHIMERE_TEST_OPS_TAILS_H
#define CHIMERE_TEST_OPS_TAILS_H

/* A stack in two parts, and its form on a device. */
struct two_parts {
    struct weight w, tail, w2, tail2;
    void *made[2];
};

static void parts_open(struct two_parts *p, const struct tail_case *c, struct dev *d, int64_t n_out,
                       int64_t n_mat) {
    p->w = weight_of(c->type, c->n_in, n_out, n_mat, .06);
    p->tail = weight_of(c->tail, c->n_tail, n_out, n_mat, .06);
    p->w2 = prepared(d, &p->w, &p->made[0]);
    p->tail2 = prepared(d, &p->tail, &p->made[1]);
    p->w.tail = &p->tail;
    p->w2.tail = &p->tail2;
}

static void parts_close(struct two_parts *p) {
    drop(p->w.data), drop(p->tail.data), drop(p->made[0]), drop(p->made[1]);
}

/* The product is the sum of the products with both parts, alone and in a call with a whole matrix; a row of a table is
 * the row of one part after that of the other. */
static void matrices_in_two_parts_add_up(void **s) {
    (void)s;
    static const int32_t sizes[] = {1, 7, 33};
    for (int i = 0; i < n_dev * N_CASES(tail_cases) * 3; i++) {
        const struct tail_case *c = &tail_cases[i / 3 % N_CASES(tail_cases)];
        struct dev *d = devs[i / 3 / N_CASES(tail_cases)];
        const char *name = dev_names[i / 3 / N_CASES(tail_cases)];
        int64_t n_in = c->n_in + c->n_tail, stride = n_in + 16, n_out = TAIL_ROWS - 7;
        int32_t n_tok = sizes[i % 3];
        size_t n = (size_t)(n_out * n_tok);
        struct two_parts p;
        void *made;
        parts_open(&p, c, d, n_out, 1);
        struct weight whole = weight_of(QUANT_Q8_0, n_in, n_out, 1, 1);
        struct weight whole2 = prepared(d, &whole, &made), first = p.w2;
        first.tail = NULL;
        float *x = floats((size_t)(stride * n_tok), 1), *y = floats(n, 0), *sum = floats(n, 0);
        float *z = floats(n, 0), *alone = floats(n, 0);
        struct linear_out o[] = {{&p.w2, NULL, y, n_out, 1, false},
                                 {&whole2, NULL, z, n_out, 1, false}};
        d->ops->linear(d, o, 2, x, stride, n_tok);
        o[1].dst = alone;
        d->ops->linear(d, &o[1], 1, x, stride, n_tok);
        struct linear_out part = {&first, NULL, sum, n_out, 1, false};
        d->ops->linear(d, &part, 1, x, stride, n_tok);
        part.w = &p.tail2, part.add = true;
        d->ops->linear(d, &part, 1, x + c->n_in, stride, n_tok);
        check_status(d, name);
        check_near(y, sum, n, 1e-6, "%s linear %s + %s x %d", name, quant_traits(c->type)->name,
                   quant_traits(c->tail)->name, n_tok);
        check_same(z, alone, n, "%s: a whole matrix beside one in two parts", name);
        if (n_tok == 1 && p.w.data) {
            const int32_t ids[] = {3, 0};
            float *rows = floats((size_t)(2 * n_in), 0), *part_rows = floats((size_t)n_in * 2, 0);
            d->ops->embed(d, rows, &p.w, ids, 2, .5f);
            struct weight w = p.w;
            w.tail = NULL;
            ref->ops->embed(ref, part_rows, &w, &ids[1], 1, .5f);
            ref->ops->embed(ref, part_rows + c->n_in, &p.tail, &ids[1], 1, .5f);
            check_same(rows + n_in, part_rows, (size_t)n_in, "%s embed in two parts", name);
            drop(rows), drop(part_rows);
        }
        parts_close(&p);
        drop(whole.data), drop(made), drop(x), drop(y), drop(sum), drop(z), drop(alone);
    }
}

/* All matrices of a block are in two parts, except for the router. */
static void blocks_of_matrices_in_two_parts_agree(void **s) {
    (void)s;
    enum { N_W = 6, MOST = 19 };
    for (int i = 0; i < n_dev * N_CASES(tail_cases) * 2; i++) {
        const struct tail_case *c = &tail_cases[i / 2 % N_CASES(tail_cases)];
        struct dev *d = devs[i / 2 / N_CASES(tail_cases)];
        const char *name = dev_names[i / 2 / N_CASES(tail_cases)];
        int64_t n = c->n_in + c->n_tail; /* of rows, and of hidden rows */
        int32_t n_tok = i % 2 ? MOST : 2;
        size_t all = (size_t)(n * n_tok);
        struct two_parts p[N_W];
        for (int k = 0; k < N_W; k++) parts_open(&p[k], c, d, n, k < 3 ? TAIL_EXPERTS : 1);
        struct weight router = weight_of(QUANT_F32, n, TAIL_EXPERTS, 1, .1);
        float *x = floats(all, 1), *y[4];
        for (int k = 0; k < 4; k++) y[k] = floats(all, 0);
        for (int k = 0; k < 4; k++) {
            bool own = k % 2;
            struct weight *w[N_W];
            for (int j = 0; j < N_W; j++) w[j] = own ? &p[j].w2 : &p[j].w;
            struct dev *by = own ? d : ref8;
            struct moe_args m = {.n_tok = n_tok,
                                 .n_used = TAIL_USED,
                                 .normalise = true,
                                 .scale = 1,
                                 .act = ACT_SILU,
                                 .x = x,
                                 .router = &router,
                                 .gate = w[0],
                                 .up = w[1],
                                 .down = w[2],
                                 .sh_gate = w[3],
                                 .sh_up = w[4],
                                 .sh_down = w[5],
                                 .out = y[k]};
            struct ffn_args f = {.n_tok = n_tok,
                                 .act = ACT_SILU,
                                 .x = x,
                                 .gate = w[3],
                                 .up = w[4],
                                 .down = w[5],
                                 .gate_scale = 1,
                                 .down_scale = 1,
                                 .out = y[k]};
            if (k < 2) by->ops->moe(by, &m);
            else by->ops->ffn(by, &f);
            check_status(by, name);
        }
        /* 5e-4 for types with a float scale per row, as in linear_agrees; hidden values are rounded once more */
        for (int k = 0; k < 4; k += 2)
            check_near(y[k + 1], y[k], all, 1e-2, "%s %s %s + %s", name, k ? "ffn" : "moe",
                       quant_traits(c->type)->name, quant_traits(c->tail)->name);
        for (int k = 0; k < N_W; k++) parts_close(&p[k]);
        for (int k = 0; k < 4; k++) drop(y[k]);
        drop(router.data), drop(x);
    }
}

#endif

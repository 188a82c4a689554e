/* block_dense.c: dense feed-forward. */
#include "model/block/block_impl.h"
#include "model/experts/experts.h"

/* The same product op by op, used if a sequence's adapter changes one of the matrices. */
static void dense_with_lora(struct forward *f, int32_t il) {
    const struct hparams *hp = &f->m->hp;
    const struct layer_weights *l = &f->m->weights.layer[il];
    int64_t n_ff = hp->layer[il].n_ff;
    float *gate = f->ff, *up = f->ff + (int64_t)f->n_tok_max * f->ff_stride;
    const struct linear_out out[2] = {fwd_out(&l->ffn.up, l->ffn.up_b, up, n_ff),
                                      fwd_out(&l->ffn.gate, l->ffn.gate_b, gate, n_ff)};
    fwd_linear(f, out, l->ffn.gate.data ? 2 : 1, f->h, hp->n_embd);
    if (l->ffn.gate.data) f->d->ops->act_mul(f->d, up, gate, up, n_ff * f->n_tok, hp->act);
    else f->d->ops->act_mul(f->d, up, up, NULL, n_ff * f->n_tok, hp->act);
    const struct linear_out res = fwd_add(&l->ffn.down, l->ffn.down_b, f->x, hp->n_embd);
    fwd_linear(f, &res, 1, up, n_ff);
}

static void dense_forward(struct forward *f, int32_t il) {
    const struct layer_weights *l = &f->m->weights.layer[il];
    if (fwd_has_lora(f, &l->ffn.gate) || fwd_has_lora(f, &l->ffn.up) ||
        fwd_has_lora(f, &l->ffn.down)) {
        dense_with_lora(f, il);
        return;
    }
    const struct ffn_args a = {.n_tok = f->n_tok,
                               .act = f->m->hp.act,
                               .x = f->h,
                               .gate = block_or_null(&l->ffn.gate),
                               .up = &l->ffn.up,
                               .down = &l->ffn.down,
                               .gate_b = l->ffn.gate_b,
                               .up_b = l->ffn.up_b,
                               .down_b = l->ffn.down_b,
                               .gate_scale = 1,
                               .down_scale = 1,
                               .out = f->x};
    experts_run_dense(f->experts, il, &a);
}

static bool is_in(const struct layer_shape *l) { return l->ffn & FFN_DENSE; }

static void rows(const struct hparams *hp, int32_t il, struct block_rows *r) {
    block_raise(&r->ff, hp->layer[il].n_ff);
}

static int matrices(struct layer_weights *l, struct weight **out) {
    struct weight *const all[] = {&l->ffn.gate, &l->ffn.up, &l->ffn.down};
    return block_list(out, all, sizeof all / sizeof *all);
}

const struct block block_dense = {.name = "dense feed-forward",
                                  .is_in = is_in,
                                  .within = 1 << JOIN_SHARED | 1 << JOIN_BESIDE,
                                  .rows = rows,
                                  .matrices = matrices,
                                  .forward = dense_forward};

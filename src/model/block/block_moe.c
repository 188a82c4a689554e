/* block_moe.c: mixture of experts; experts.h decides where the experts are and what computes them. */
#include "model/block/block_impl.h"
#include "model/experts.h"

static void moe_forward(struct forward *f, int32_t il) {
    const struct hparams *hp = &f->m->hp;
    const struct layer_weights *l = &f->m->weights.layer[il];
    const struct moe_args a = {.n_tok = f->n_tok,
                               .n_used = hp->moe.n_used,
                               .gating = hp->moe.gating,
                               .normalise = hp->moe.normalise,
                               .scale = hp->moe.scale,
                               .act = hp->act,
                               .x = f->h,
                               .router = &l->moe.router,
                               .select_bias = l->moe.select_b,
                               .gate = block_or_null(&l->moe.gate),
                               .up = &l->moe.up,
                               .down = &l->moe.down,
                               .bias = l->moe.bias,
                               .sh_gate = block_or_null(&l->moe.sh_gate),
                               .sh_up = block_or_null(&l->moe.sh_up),
                               .sh_down = block_or_null(&l->moe.sh_down),
                               .shared_gate_w = l->moe.shared_gate,
                               .out = f->x};
    experts_run(f->experts, il, &a);
}

static bool is_in(const struct layer_shape *l) { return l->ffn == FFN_MOE; }

static void rows(const struct hparams *hp, int32_t il, struct block_rows *r) {
    (void)hp, (void)il, (void)r; /* the op has its own activations */
}

static void need(const struct hparams *hp, int32_t il, struct dev_need *n) {
    (void)il;
    n->n_expert = hp->moe.n_expert;
    n->n_used = hp->moe.n_used;
    block_raise(&n->n_ff, hp->moe.n_ff);
    block_raise(&n->n_ff, hp->moe.n_ff_shared);
}

static int matrices(struct layer_weights *l, struct weight **out) {
    struct weight *const all[] = {&l->moe.router,  &l->moe.gate,  &l->moe.up,     &l->moe.down,
                                  &l->moe.sh_gate, &l->moe.sh_up, &l->moe.sh_down};
    return block_list(out, all, sizeof all / sizeof *all);
}

const struct block block_moe = {.name = "mixture of experts",
                                .is_in = is_in,
                                .within = 1 << JOIN_SHARED,
                                .rows = rows,
                                .need = need,
                                .matrices = matrices,
                                .forward = moe_forward};

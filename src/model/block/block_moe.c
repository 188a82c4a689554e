/* block_moe.c: mixture of experts; experts.h decides where the experts are and what computes them. */
#include "model/block/block_impl.h"
#include "model/experts/experts.h"

/* The routed experts read and write a projection of the rows. The router reads the rows themselves. */
static void latent_forward(struct forward *f, int32_t il, const struct moe_args *all) {
    const struct hparams *hp = &f->m->hp;
    const struct layer_weights *l = &f->m->weights.layer[il];
    int64_t n_in = hp->moe.n_latent, n_tok = f->n_tok;
    float *x = f->proj, *y = x + n_tok * n_in, *logits = y + n_tok * n_in;
    const struct linear_out in[2] = {fwd_out(&l->moe.latent_in, NULL, x, n_in),
                                     fwd_out(&l->moe.router, NULL, logits, hp->moe.n_expert)};
    fwd_linear(f, in, 2, f->h, hp->n_embd);
    f->d->ops->zero(f->d, y, (size_t)(n_tok * n_in) * sizeof *y);
    struct moe_args a = *all;
    a.x = x;
    a.logits = logits;
    a.sh_gate = a.sh_up = a.sh_down = NULL;
    a.shared_gate_w = NULL;
    a.out = y;
    experts_run(f->experts, il, &a);
    const struct linear_out out = fwd_add(&l->moe.latent_out, NULL, f->x, hp->n_embd);
    fwd_linear(f, &out, 1, y, n_in);
    if (!all->sh_up) return;
    const struct ffn_args shared = {.n_tok = f->n_tok,
                                    .act = all->act,
                                    .x = f->h,
                                    .gate = all->sh_gate,
                                    .up = all->sh_up,
                                    .down = all->sh_down,
                                    .gate_scale = 1,
                                    .down_scale = 1,
                                    .row_gate = all->shared_gate_w,
                                    .out = f->x};
    f->d->ops->ffn(f->d, &shared);
}

struct moe_args block_moe_args(struct forward *f, int32_t il) {
    const struct hparams *hp = &f->m->hp;
    const struct layer_weights *l = &f->m->weights.layer[il];
    return (struct moe_args){.n_tok = f->n_tok,
                             .n_used = hp->moe.n_used,
                             .n_group = hp->moe.n_group,
                             .n_group_used = hp->moe.n_group_used,
                             .gating = hp->moe.gating,
                             .normalise = hp->moe.normalise,
                             .scale = hp->moe.scale,
                             .expert_scale = l->moe.expert_scale,
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
}

static void moe_forward(struct forward *f, int32_t il) {
    const struct hparams *hp = &f->m->hp;
    const struct moe_args a = block_moe_args(f, il);
    if (hp->moe.n_latent) latent_forward(f, il, &a);
    else experts_run(f->experts, il, &a);
}

static bool is_in(const struct layer_shape *l) { return l->ffn & FFN_MOE; }

static void rows(const struct hparams *hp, int32_t il, struct block_rows *r) {
    (void)il;
    /* the op has its own activations */
    if (hp->moe.n_latent) block_raise(&r->proj, 2 * (int64_t)hp->moe.n_latent + hp->moe.n_expert);
}

static void need(const struct hparams *hp, int32_t il, struct dev_need *n) {
    (void)il;
    n->n_expert = hp->moe.n_expert;
    n->n_used = hp->moe.n_used;
    block_raise(&n->n_ff, hp->moe.n_ff);
    block_raise(&n->n_ff, hp->moe.n_ff_shared);
}

static int matrices(struct layer_weights *l, struct weight **out) {
    struct weight *const all[] = {&l->moe.router,  &l->moe.gate,      &l->moe.up,
                                  &l->moe.down,    &l->moe.sh_gate,   &l->moe.sh_up,
                                  &l->moe.sh_down, &l->moe.latent_in, &l->moe.latent_out};
    return block_list(out, all, sizeof all / sizeof *all);
}

const struct block block_moe = {.name = "mixture of experts",
                                .is_in = is_in,
                                .within = 1 << JOIN_SHARED | 1 << JOIN_BESIDE,
                                .rows = rows,
                                .need = need,
                                .matrices = matrices,
                                .forward = moe_forward};

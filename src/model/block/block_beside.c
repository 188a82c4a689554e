/* block_beside.c: a dense feed-forward block beside a mixture of experts. Both read the residual stream, each by a norm
 * of its own; the router by a third. The sum of their normalized results is what the layer adds. */
#include <math.h>

#include "model/block/block_impl.h"
#include "model/experts/experts.h"

static void beside_forward(struct forward *f, int32_t il) {
    const struct hparams *hp = &f->m->hp;
    const struct layer_weights *l = &f->m->weights.layer[il];
    const struct ops *ops = f->d->ops;
    int64_t n = hp->n_embd, n_tok = f->n_tok;
    float *routed = f->proj, *logits = routed + n_tok * n;
    block_dense.forward(f, il);
    ops->rms_norm(f->d, f->x, f->x, l->moe.dense_norm, n_tok, n, hp->eps);

    ops->rms_norm(f->d, f->h, f->stream, l->moe.router_norm, n_tok, n, hp->eps);
    struct linear_out router = fwd_out(&l->moe.router, NULL, logits, hp->moe.n_expert);
    router.scale = 1 / sqrtf((float)n);
    ops->linear(f->d, &router, 1, f->h, n, f->n_tok);
    ops->rms_norm(f->d, f->h, f->stream, l->moe.pre_norm, n_tok, n, hp->eps);
    ops->zero(f->d, routed, (size_t)(n_tok * n) * sizeof *routed);
    struct moe_args a = block_moe_args(f, il);
    a.logits = logits;
    a.out = routed;
    experts_run(f->experts, il, &a);
    ops->rms_norm(f->d, routed, routed, l->moe.post_norm, n_tok, n, hp->eps);
    ops->axpby(f->d, f->x, 1, routed, 1, n_tok * n);
}

static bool is_in(const struct layer_shape *l) { return l->join == JOIN_BESIDE; }

static void rows(const struct hparams *hp, int32_t il, struct block_rows *r) {
    (void)il;
    block_raise(&r->proj, (int64_t)hp->n_embd + hp->moe.n_expert);
}

/* The two blocks list their own matrices. */
static int matrices(struct layer_weights *l, struct weight **out) {
    (void)l;
    (void)out;
    return 0;
}

const struct block block_beside = {.name = "dense feed-forward beside experts",
                                   .is_in = is_in,
                                   .rows = rows,
                                   .matrices = matrices,
                                   .forward = beside_forward};

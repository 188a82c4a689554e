/* block_mean.c: attention heads and Mamba-1 heads over the same rows; one projection of the mean of
 * their normalized results (Hymba). */
#include "model/block/block_impl.h"

static void mean_forward(struct forward *f, int32_t il) {
    const struct hparams *hp = &f->m->hp;
    const struct layer_weights *l = &f->m->weights.layer[il];
    const struct ops *ops = f->d->ops;
    int64_t n = hp->ssm.n_inner;
    block_attn_project(f, il, f->h, hp->n_embd);
    block_attn_heads(f, il);
    ops->rms_norm(f->d, f->other, f->mix, l->mean.attn_norm, f->n_tok, n, hp->eps);
    block_mamba1_heads(f, il);
    ops->rms_norm(f->d, f->mix, f->mix, l->mean.ssm_norm, f->n_tok, n, hp->eps);
    ops->axpby(f->d, f->mix, 1, f->other, 1, f->n_tok * n);
    struct linear_out out = fwd_add(&l->ssm.out, l->ssm.out_b, f->x, hp->n_embd);
    out.scale = 0.5f;
    fwd_linear(f, &out, 1, f->mix, n);
}

static bool is_in(const struct layer_shape *l) { return l->join == JOIN_MEAN; }

static void rows(const struct hparams *hp, int32_t il, struct block_rows *r) {
    block_raise(&r->other, arch_dim(hp, D_ATTN_OUT, il));
}

static int matrices(struct layer_weights *l, struct weight **out) {
    (void)l, (void)out;
    return 0;
}

const struct block block_mean = {.name = "mean of attention and Mamba-1",
                                 .is_in = is_in,
                                 .rows = rows,
                                 .matrices = matrices,
                                 .forward = mean_forward};

/* block_mamba2.c: Mamba-2 mixer: one projection to [z | x | B | C | dt], convolution, recurrence, output projection. */
#include "model/block/block_impl.h"

static void mamba2_forward(struct forward *f, int32_t il) {
    const struct hparams *hp = &f->m->hp;
    const struct layer_weights *l = &f->m->weights.layer[il];
    const struct ops *ops = f->d->ops;
    int64_t n_inner = hp->ssm.n_inner, n_in = arch_dim(hp, D_SSM_IN, il),
            n_conv = arch_dim(hp, D_SSM_CONV, il);
    const struct linear_out in = fwd_out(&l->ssm.in, l->ssm.in_b, f->proj, n_in);
    fwd_linear(f, &in, 1, f->h, hp->n_embd);

    const struct conv_args conv = {.spans = f->spans,
                                   .n_span = f->n_span,
                                   .n_tok = f->n_tok,
                                   .d_conv = hp->ssm.d_conv,
                                   .n_conv = n_conv,
                                   .x = f->proj + n_inner,
                                   .x_stride = n_in,
                                   .w = l->ssm.conv,
                                   .b = l->ssm.conv_b,
                                   .silu = true,
                                   .state = f->p->layer[il].rec,
                                   .out = f->z,
                                   .out_stride = n_conv};
    ops->conv(f->d, &conv);

    const struct ssd_args scan = {.spans = f->spans,
                                  .n_span = f->n_span,
                                  .n_tok = f->n_tok,
                                  .n_head = hp->ssm.n_head,
                                  .n_group = hp->ssm.n_group,
                                  .d_head = (int32_t)n_inner / hp->ssm.n_head,
                                  .d_state = hp->ssm.d_state,
                                  .n_norm = hp->ssm.n_norm,
                                  .xbc = f->z,
                                  .xbc_stride = n_conv,
                                  .dt = f->proj + n_inner + n_conv,
                                  .dt_stride = n_in,
                                  .z = f->proj,
                                  .z_stride = n_in,
                                  .a = l->ssm.a,
                                  .d = l->ssm.d,
                                  .dt_bias = l->ssm.dt_b,
                                  .dt_min = hp->ssm.dt_min,
                                  .dt_max = hp->ssm.dt_max,
                                  .norm_w = l->ssm.norm,
                                  .norm_first = hp->ssm.norm_first,
                                  .eps = hp->eps,
                                  .state = f->p->layer[il].rec,
                                  .log_at = (size_t)n_conv,
                                  .out = f->mix};
    ops->ssd(f->d, &scan);

    const struct linear_out out = fwd_add(&l->ssm.out, l->ssm.out_b, f->x, hp->n_embd);
    fwd_linear(f, &out, 1, f->mix, n_inner);
}

static bool is_in(const struct layer_shape *l) { return l->mixer & MIX_MAMBA2; }

static void need(const struct hparams *hp, int32_t il, struct dev_need *n) {
    n->n_conv = arch_dim(hp, D_SSM_CONV, il);
    n->n_v_head = hp->ssm.n_head;
    n->d_rec_k = hp->ssm.d_state;
    n->d_rec_v = hp->ssm.n_inner / hp->ssm.n_head;
    n->d_state = n->d_rec_k * n->d_rec_v;
}

/* A log row holds the convolution's inputs, then the recurrence's inputs. */
static void state(const struct hparams *hp, int32_t il, const struct seq_pool_params *p,
                  struct layer_state *s) {
    size_t n_conv = (size_t)arch_dim(hp, D_SSM_CONV, il), n_head = (size_t)hp->ssm.n_head;
    block_ssm_state(hp, il, p, 2 * n_conv + n_head, hp->ssm.n_inner / hp->ssm.n_head, s);
}

static int matrices(struct layer_weights *l, struct weight **out) {
    struct weight *const all[] = {&l->ssm.in, &l->ssm.out};
    return block_list(out, all, sizeof all / sizeof *all);
}

const struct block block_mamba2 = {.name = "Mamba-2",
                                   .is_in = is_in,
                                   .rows = block_ssm_rows,
                                   .need = need,
                                   .state = state,
                                   .matrices = matrices,
                                   .forward = mamba2_forward};

/* block_gdn.c: gated delta-net mixer: projections, the recurrent op, output projection. */
#include "model/block/block_impl.h"

static void gdn_forward(struct forward *f, int32_t il) {
    const struct hparams *hp = &f->m->hp;
    const struct layer_weights *l = &f->m->weights.layer[il];
    int64_t n_inner = arch_dim(hp, D_GDN_INNER, il), n_v = hp->gdn.n_v_head;
    float *beta = f->ab, *alpha = f->ab + (int64_t)f->n_tok_max * n_v;
    const struct linear_out out[4] = {fwd_out(&l->gdn.qkv, NULL, f->proj, f->proj_stride),
                                      fwd_out(&l->gdn.z, NULL, f->z, n_inner),
                                      fwd_out(&l->gdn.beta, NULL, beta, n_v),
                                      fwd_out(&l->gdn.alpha, NULL, alpha, n_v)};
    fwd_linear(f, out, 4, f->h, hp->n_embd);

    const struct gdn_args args = {.spans = f->spans,
                                  .n_span = f->n_span,
                                  .n_tok = f->n_tok,
                                  .n_k_head = hp->gdn.n_k_head,
                                  .n_v_head = hp->gdn.n_v_head,
                                  .d_k = hp->gdn.d_k,
                                  .d_v = hp->gdn.d_v,
                                  .d_conv = hp->gdn.d_conv,
                                  .is_grouped = hp->gdn.is_grouped,
                                  .eps = hp->gdn.eps,
                                  .norm_eps = hp->gdn.norm_eps,
                                  .beta_scale = hp->gdn.beta_scale,
                                  .qkv = f->proj,
                                  .z = f->z,
                                  .qkv_stride = f->proj_stride,
                                  .z_stride = n_inner,
                                  .alpha = alpha,
                                  .beta = beta,
                                  .conv_w = l->gdn.conv,
                                  .conv_b = l->gdn.conv_b,
                                  .a = l->gdn.a,
                                  .dt_bias = l->gdn.dt_b,
                                  .norm_w = l->gdn.norm,
                                  .state = f->p->layer[il].rec,
                                  .out = f->mix};
    f->d->ops->gdn(f->d, &args);

    const struct linear_out res = fwd_add(&l->gdn.out, NULL, f->x, hp->n_embd);
    fwd_linear(f, &res, 1, f->mix, n_inner);
}

static bool is_in(const struct layer_shape *l) { return l->mixer & MIX_GDN; }

static void rows(const struct hparams *hp, int32_t il, struct block_rows *r) {
    block_raise(&r->proj, arch_dim(hp, D_GDN_CONV, il));
    block_raise(&r->z, arch_dim(hp, D_GDN_INNER, il));
    block_raise(&r->mix, arch_dim(hp, D_GDN_INNER, il));
    block_raise(&r->ab, 2 * (int64_t)hp->gdn.n_v_head);
}

static void need(const struct hparams *hp, int32_t il, struct dev_need *n) {
    n->n_conv = arch_dim(hp, D_GDN_CONV, il);
    n->n_v_head = hp->gdn.n_v_head;
    n->d_state = hp->gdn.d_k * hp->gdn.d_v;
    n->d_rec_k = hp->gdn.d_k;
    n->d_rec_v = hp->gdn.d_v;
}

static void state(const struct hparams *hp, int32_t il, const struct seq_pool_params *p,
                  struct layer_state *s) {
    size_t n_conv = (size_t)arch_dim(hp, D_GDN_CONV, il);
    s->rec.s_stride = (size_t)hp->gdn.n_v_head * (size_t)hp->gdn.d_k * (size_t)hp->gdn.d_v;
    s->rec.conv_stride = (size_t)(hp->gdn.d_conv - 1) * n_conv;
    s->rec.log_row = n_conv + 2 * (size_t)hp->gdn.n_v_head;
    s->rec.log_cap = p->log ? STEP_MAX_TOK : 0;
}

static int matrices(struct layer_weights *l, struct weight **out) {
    struct weight *const all[] = {&l->gdn.qkv, &l->gdn.z, &l->gdn.alpha, &l->gdn.beta, &l->gdn.out};
    return block_list(out, all, sizeof all / sizeof *all);
}

const struct block block_gdn = {.name = "gated delta net",
                                .is_in = is_in,
                                .rows = rows,
                                .need = need,
                                .state = state,
                                .matrices = matrices,
                                .forward = gdn_forward};

/* block_mamba1.c: Mamba-1 mixer: projection to [x | z], convolution of x, projection of that to
 * dt, B and C, selective scan. */
#include "model/block/block_impl.h"

/* Norm of dt, B or C: with weights (Jamba), without (Falcon-Mamba), or none. */
static void norm(struct forward *f, float *x, const float *w, int64_t n) {
    if (w || f->m->hp.ssm.norm_dt_bc) f->d->ops->rms_norm(f->d, x, x, w, f->n_tok, n, f->m->hp.eps);
}

void block_mamba1_heads(struct forward *f, int32_t il) {
    const struct hparams *hp = &f->m->hp;
    const struct layer_weights *l = &f->m->weights.layer[il];
    const struct ops *ops = f->d->ops;
    int64_t n_inner = hp->ssm.n_inner, rank = hp->ssm.dt_rank, n_state = hp->ssm.d_state;
    const struct linear_out in = fwd_out(&l->ssm.in, l->ssm.in_b, f->proj, 2 * n_inner);
    fwd_linear(f, &in, 1, f->h, hp->n_embd);

    const struct conv_args conv = {.spans = f->spans,
                                   .n_span = f->n_span,
                                   .n_tok = f->n_tok,
                                   .d_conv = hp->ssm.d_conv,
                                   .n_conv = n_inner,
                                   .x = f->proj,
                                   .x_stride = 2 * n_inner,
                                   .w = l->ssm.conv,
                                   .b = l->ssm.conv_b,
                                   .silu = true,
                                   .state = f->p->layer[il].rec,
                                   .out = f->z,
                                   .out_stride = n_inner};
    ops->conv(f->d, &conv);

    float *dt_low = f->ab, *b = dt_low + rank * f->n_tok_max, *c = b + n_state * f->n_tok_max,
          *dt = c + n_state * f->n_tok_max;
    const struct linear_out low[3] = {fwd_out(&l->ssm.x_dt, NULL, dt_low, rank),
                                      fwd_out(&l->ssm.x_b, NULL, b, n_state),
                                      fwd_out(&l->ssm.x_c, NULL, c, n_state)};
    fwd_linear(f, low, 3, f->z, n_inner);
    norm(f, dt_low, l->ssm.dt_norm, rank);
    norm(f, b, l->ssm.b_norm, n_state);
    norm(f, c, l->ssm.c_norm, n_state);
    const struct linear_out high = fwd_out(&l->ssm.dt, l->ssm.dt_b, dt, n_inner);
    fwd_linear(f, &high, 1, dt_low, rank);

    const struct ssm_args scan = {.spans = f->spans,
                                  .n_span = f->n_span,
                                  .n_tok = f->n_tok,
                                  .d_state = hp->ssm.d_state,
                                  .n_inner = n_inner,
                                  .x = f->z,
                                  .dt = dt,
                                  .b = b,
                                  .c = c,
                                  .z = f->proj + n_inner,
                                  .x_stride = n_inner,
                                  .dt_stride = n_inner,
                                  .bc_stride = n_state,
                                  .z_stride = 2 * n_inner,
                                  .a = l->ssm.a,
                                  .d = l->ssm.d,
                                  .state = f->p->layer[il].rec,
                                  .log_at = (size_t)n_inner,
                                  .out = f->mix};
    ops->ssm(f->d, &scan);
}

static void mamba1_forward(struct forward *f, int32_t il) {
    const struct layer_weights *l = &f->m->weights.layer[il];
    block_mamba1_heads(f, il);
    const struct linear_out out = fwd_add(&l->ssm.out, l->ssm.out_b, f->x, f->m->hp.n_embd);
    fwd_linear(f, &out, 1, f->mix, f->m->hp.ssm.n_inner);
}

static bool is_in(const struct layer_shape *l) { return l->mixer & MIX_MAMBA1; }

void block_ssm_rows(const struct hparams *hp, int32_t il, struct block_rows *r) {
    block_raise(&r->proj, arch_dim(hp, D_SSM_IN, il));
    block_raise(&r->z, arch_dim(hp, D_SSM_CONV, il));
    block_raise(&r->mix, arch_dim(hp, D_SSM_INNER, il));
}

void block_ssm_state(const struct hparams *hp, int32_t il, const struct seq_pool_params *p,
                     size_t log_row, int32_t d_head, struct layer_state *s) {
    size_t n_conv = (size_t)arch_dim(hp, D_SSM_CONV, il);
    s->rec.s_stride = (size_t)hp->ssm.n_inner * (size_t)hp->ssm.d_state;
    s->rec.conv_stride = (size_t)(hp->ssm.d_conv - 1) * n_conv;
    s->rec.log_row = log_row;
    s->rec.log_cap = p->log ? STEP_MAX_TOK : 0;
    s->n_inner = hp->ssm.n_inner;
    s->d_head = d_head;
    s->d_state = hp->ssm.d_state;
}

static void rows(const struct hparams *hp, int32_t il, struct block_rows *r) {
    block_ssm_rows(hp, il, r);
    block_raise(&r->ab, arch_dim(hp, D_SSM_X, il) + arch_dim(hp, D_SSM_INNER, il));
}

static void need(const struct hparams *hp, int32_t il, struct dev_need *n) {
    n->n_conv = arch_dim(hp, D_SSM_CONV, il);
    n->n_v_head = hp->ssm.n_inner;
    n->d_state = n->d_rec_k = hp->ssm.d_state;
    n->d_rec_v = 1;
}

/* A log row holds the convolution's inputs, then the scan's inputs. */
static void state(const struct hparams *hp, int32_t il, const struct seq_pool_params *p,
                  struct layer_state *s) {
    size_t n_conv = (size_t)arch_dim(hp, D_SSM_CONV, il), n_inner = (size_t)hp->ssm.n_inner;
    block_ssm_state(hp, il, p, n_conv + 2 * n_inner + 2 * (size_t)hp->ssm.d_state, 0, s);
}

static int matrices(struct layer_weights *l, struct weight **out) {
    struct weight *const all[] = {&l->ssm.in,  &l->ssm.x_dt, &l->ssm.x_b,
                                  &l->ssm.x_c, &l->ssm.dt,   &l->ssm.out};
    return block_list(out, all, sizeof all / sizeof *all);
}

const struct block block_mamba1 = {.name = "Mamba-1",
                                   .is_in = is_in,
                                   .within = 1 << JOIN_MEAN,
                                   .rows = rows,
                                   .need = need,
                                   .state = state,
                                   .matrices = matrices,
                                   .forward = mamba1_forward};

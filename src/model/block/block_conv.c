/* block_conv.c: LFM2's gated short convolution: out(c * conv(b * x)), with b, c and x from one projection. */
#include "model/block/block_impl.h"

/* f->proj holds b, c and x, each [n_tok, n_embd]. */
static void conv_forward(struct forward *f, int32_t il) {
    const struct hparams *hp = &f->m->hp;
    const struct layer_weights *l = &f->m->weights.layer[il];
    const struct ops *ops = f->d->ops;
    int64_t d = hp->n_embd, n = d * f->n_tok, step = d * f->n_tok_max;
    float *b = f->proj, *c = b + step, *x = c + step;
    const float *bias = l->ssm.in_b;
    const struct linear_out in[3] = {fwd_out(&l->ssm.x_b, bias, b, d),
                                     fwd_out(&l->ssm.x_c, bias ? bias + d : NULL, c, d),
                                     fwd_out(&l->ssm.x_dt, bias ? bias + 2 * d : NULL, x, d)};
    fwd_linear(f, in, 3, f->h, d);
    ops->act_mul(f->d, x, x, b, n, ACT_NONE);
    const struct conv_args conv = {.spans = f->spans,
                                   .n_span = f->n_span,
                                   .n_tok = f->n_tok,
                                   .d_conv = hp->ssm.d_conv,
                                   .n_conv = d,
                                   .x = x,
                                   .x_stride = d,
                                   .w = l->ssm.conv,
                                   .b = l->ssm.conv_b,
                                   .state = f->p->layer[il].rec,
                                   .out = f->mix,
                                   .out_stride = d};
    ops->conv(f->d, &conv);
    ops->act_mul(f->d, f->mix, f->mix, c, n, ACT_NONE);
    const struct linear_out out = fwd_add(&l->ssm.out, l->ssm.out_b, f->x, d);
    fwd_linear(f, &out, 1, f->mix, d);
}

static bool is_in(const struct layer_shape *l) { return l->mixer & MIX_CONV; }

static void rows(const struct hparams *hp, int32_t il, struct block_rows *r) {
    (void)il;
    block_raise(&r->proj, 3 * (int64_t)hp->n_embd);
    block_raise(&r->mix, hp->n_embd);
}

static void need(const struct hparams *hp, int32_t il, struct dev_need *n) {
    (void)il;
    n->n_conv = hp->n_embd;
}

/* The state is the convolution's last inputs; a log row holds one more input. */
static void state(const struct hparams *hp, int32_t il, const struct seq_pool_params *p,
                  struct layer_state *s) {
    (void)il;
    s->rec.conv_stride = (size_t)(hp->ssm.d_conv - 1) * (size_t)hp->n_embd;
    s->rec.log_row = (size_t)hp->n_embd;
    s->rec.log_cap = p->log ? STEP_MAX_TOK : 0;
}

static int matrices(struct layer_weights *l, struct weight **out) {
    struct weight *const all[] = {&l->ssm.x_b, &l->ssm.x_c, &l->ssm.x_dt, &l->ssm.out};
    return block_list(out, all, sizeof all / sizeof *all);
}

const struct block block_conv = {.name = "short convolution",
                                 .is_in = is_in,
                                 .rows = rows,
                                 .need = need,
                                 .state = state,
                                 .matrices = matrices,
                                 .forward = conv_forward};

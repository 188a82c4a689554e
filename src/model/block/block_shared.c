/* block_shared.c: a transformer block whose weights several layers share (Zamba2).
 *
 * It reads [residual stream | token embedding]. Each layer adds low-rank products of its own to the block's matrices.
 * The result is not added to the residual stream: the layer's other mixer reads the sum of both. */
#include "model/block/block_impl.h"

/* dst += b (a x); uses f->mix, which is free at every call. */
static void add_low_rank(struct forward *f, const struct weight *a, const struct weight *b,
                         const float *x, int64_t x_stride, float *dst, int64_t dst_stride) {
    if (!a->data || !b->data) return;
    const struct linear_out down = fwd_out(a, NULL, f->mix, a->n_out);
    fwd_linear(f, &down, 1, x, x_stride);
    const struct linear_out up = fwd_add(b, NULL, dst, dst_stride);
    fwd_linear(f, &up, 1, f->mix, a->n_out);
}

/* f->h = attention over f->pair, without residual. */
static void attention(struct forward *f, int32_t il) {
    const struct hparams *hp = &f->m->hp;
    const struct layer_weights *own = &f->m->weights.layer[il], *block = block_weights(f, il);
    int64_t d = hp->n_embd, stride = f->proj_stride;
    float *q = f->proj, *k = q + arch_dim(hp, D_Q, il), *v = k + arch_dim(hp, D_K, il);
    block_attn_project(f, il, f->pair, 2 * d);
    add_low_rank(f, &own->shared.q_a, &own->shared.q_b, f->pair, 2 * d, q, stride);
    add_low_rank(f, &own->shared.k_a, &own->shared.k_b, f->pair, 2 * d, k, stride);
    add_low_rank(f, &own->shared.v_a, &own->shared.v_b, f->pair, 2 * d, v, stride);
    block_attn_heads(f, il);
    const struct linear_out out = fwd_out(&block->attn.out, NULL, f->h, d);
    fwd_linear(f, &out, 1, f->mix, arch_dim(hp, D_ATTN_OUT, il));
}

/* f->h = feed-forward of f->h. */
static void feed_forward(struct forward *f, int32_t il) {
    const struct hparams *hp = &f->m->hp;
    const struct layer_weights *own = &f->m->weights.layer[il], *block = block_weights(f, il);
    int64_t d = hp->n_embd, n_ff = hp->layer[il].n_ff;
    float *gate = f->ff, *up = f->ff + (int64_t)f->n_tok_max * f->ff_stride;
    const struct linear_out out[2] = {fwd_out(&block->ffn.gate, NULL, gate, n_ff),
                                      fwd_out(&block->ffn.up, NULL, up, n_ff)};
    fwd_linear(f, out, 2, f->h, d);
    add_low_rank(f, &own->shared.ffn_a, &own->shared.gate_b, f->h, d, gate, n_ff);
    add_low_rank(f, &own->shared.ffn_a, &own->shared.up_b, f->h, d, up, n_ff);
    f->d->ops->act_mul(f->d, up, gate, up, n_ff * f->n_tok, hp->act);
    const struct linear_out res = fwd_out(&block->ffn.down, NULL, f->h, d);
    fwd_linear(f, &res, 1, up, n_ff);
}

/* Stores the other mixer's input in f->h. */
static void shared_forward(struct forward *f, int32_t il) {
    const struct hparams *hp = &f->m->hp;
    const struct ops *ops = f->d->ops;
    const struct layer_weights *own = &f->m->weights.layer[il], *block = block_weights(f, il);
    int64_t d = hp->n_embd;
    size_t row = (size_t)d * sizeof(float);
    for (int32_t t = 0; t < f->n_tok; t++) {
        float *pair = f->pair + (int64_t)t * 2 * d;
        ops->copy(f->d, pair, f->x + (int64_t)t * d, row);
        ops->copy(f->d, pair + d, f->embd + (int64_t)t * d, row);
    }
    ops->rms_norm(f->d, f->pair, f->pair, block->shared.norm, f->n_tok, 2 * d, hp->eps);
    attention(f, il);
    ops->rms_norm(f->d, f->h, f->h, block->ffn_norm, f->n_tok, d, hp->eps);
    feed_forward(f, il);
    /* f->hidden is not used until the last layer is done */
    ops->copy(f->d, f->hidden, f->x, (size_t)f->n_tok * row);
    const struct linear_out sum = fwd_add(&own->shared.out, NULL, f->hidden, d);
    fwd_linear(f, &sum, 1, f->h, d);
    ops->rms_norm(f->d, f->h, f->hidden, own->attn_norm, f->n_tok, d, hp->eps);
}

static bool is_in(const struct layer_shape *l) { return l->join == JOIN_SHARED; }

static void rows(const struct hparams *hp, int32_t il, struct block_rows *r) {
    (void)il;
    block_raise(&r->mix, hp->adapter_rank);
    r->embd = true;
}

static int matrices(struct layer_weights *l, struct weight **out) {
    struct weight *const all[] = {
        &l->shared.q_a, &l->shared.q_b,   &l->shared.k_a,    &l->shared.k_b,  &l->shared.v_a,
        &l->shared.v_b, &l->shared.ffn_a, &l->shared.gate_b, &l->shared.up_b, &l->shared.out};
    return block_list(out, all, sizeof all / sizeof *all);
}

const struct block block_shared = {.name = "shared transformer block",
                                   .is_in = is_in,
                                   .rows = rows,
                                   .matrices = matrices,
                                   .forward = shared_forward};

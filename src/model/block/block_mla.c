/* block_mla.c: multi-head latent attention (DeepSeek-AI, DeepSeek-V2, arXiv:2405.04434) in its absorbed form.
 *
 * The cache has one row per token: the rotary key, which all heads share, then the normalized latent. A head's query is
 * multiplied by the head's matrix for keys before attention, and what attention returns by its matrix for values after
 * it, so the heads' own keys and values never exist. A row is its own value: nothing else is cached. */
#include "format/quant.h"
#include "model/block/block_impl.h"

/* Parts of f->proj, one dense matrix after another. */
struct latent_rows {
    float *q, *kv, *q_low;
    int64_t n_q, n_kv, n_low; /* floats per token */
};

static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

static struct latent_rows latent_rows(const struct hparams *hp, int32_t il, float *at,
                                      int64_t n_tok) {
    const struct layer_shape *l = &hp->layer[il];
    struct latent_rows r = {.n_q = (int64_t)l->n_head * max64(hp->mla.d_k, hp->mla.d_v),
                            .n_kv = l->d_k,
                            .n_low = hp->mla.n_q_rank};
    if (!at) return r;
    r.q = at;
    r.kv = r.q + n_tok * r.n_q;
    r.q_low = r.kv + n_tok * r.n_kv;
    return r;
}

static void project(struct forward *f, int32_t il, const struct latent_rows *r) {
    const struct hparams *hp = &f->m->hp;
    const struct layer_weights *l = &f->m->weights.layer[il];
    const struct linear_out q = fwd_out(&l->mla.q, NULL, r->q, arch_dim(hp, D_MLA_Q, il));
    const struct linear_out in[2] = {fwd_out(&l->mla.kv_a, NULL, r->kv, r->n_kv),
                                     r->n_low ? fwd_out(&l->mla.q_a, NULL, r->q_low, r->n_low) : q};
    fwd_linear(f, in, 2, f->h, hp->n_embd);
    if (!r->n_low) return;
    f->d->ops->rms_norm(f->d, r->q_low, r->q_low, l->mla.q_norm, f->n_tok, r->n_low, hp->eps);
    fwd_linear(f, &q, 1, r->q_low, r->n_low);
}

/* out[t, h] = w[h] x[t, h]; strides between heads, and between tokens. */
static void each_head(struct forward *f, const struct weight *w, int32_t n_head, const float *x,
                      int64_t x_head, int64_t x_tok, float *out, int64_t out_head,
                      int64_t out_tok) {
    for (int32_t h = 0; h < n_head; h++) {
        const struct linear_out o = fwd_out(&w[h], NULL, out + h * out_head, out_tok);
        fwd_linear(f, &o, 1, x + h * x_head, x_tok);
    }
}

static void mla_forward(struct forward *f, int32_t il) {
    const struct hparams *hp = &f->m->hp;
    const struct layer_weights *l = &f->m->weights.layer[il];
    const struct layer_shape *shape = &hp->layer[il];
    struct latent_rows r = latent_rows(hp, il, f->proj, f->n_tok_max);
    int32_t n = shape->n_head;
    int64_t d_q = hp->mla.d_k, d_v = hp->mla.d_v, row = shape->d_k, rank = shape->d_v;
    project(f, il, &r);
    float *q = f->z + hp->n_rot; /* after the place of a head's rotary elements */
    each_head(f, l->mla.heads, n, r.q, d_q, n * d_q, q, row, n * row);
    const struct qkv_store_args store = {.spans = f->spans,
                                         .n_span = f->n_span,
                                         .n_tok = f->n_tok,
                                         .n_head = n,
                                         .q = q,
                                         .k = r.kv,
                                         .q_tok_stride = n * row,
                                         .q_head_stride = row,
                                         .k_tok_stride = row,
                                         .k_norm = l->mla.kv_norm,
                                         .eps = hp->eps,
                                         .rope = block_rope(f->m, il),
                                         .kv = f->p->layer[il].kv,
                                         .q_out = f->z,
                                         .q_lead = r.q + d_q - hp->n_rot,
                                         .k_lead = r.kv + rank,
                                         .q_lead_tok_stride = n * d_q,
                                         .q_lead_head_stride = d_q};
    f->d->ops->qkv_store(f->d, &store);
    const struct attn_args attn = {.spans = f->spans,
                                   .n_span = f->n_span,
                                   .n_tok = f->n_tok,
                                   .n_head = n,
                                   .q = f->z,
                                   .kv = f->p->layer[il].kv,
                                   .scale = hp->attn_scale,
                                   .out = f->mix};
    f->d->ops->attn(f->d, &attn);
    each_head(f, l->mla.heads + n, n, f->mix, rank, n * rank, r.q, d_v, n * d_v);
    const struct linear_out res = fwd_add(&l->mla.out, NULL, f->x, hp->n_embd);
    fwd_linear(f, &res, 1, r.q, n * d_v);
}

static bool is_in(const struct layer_shape *l) { return l->mixer & MIX_MLA; }

static void rows(const struct hparams *hp, int32_t il, struct block_rows *r) {
    const struct layer_shape *l = &hp->layer[il];
    struct latent_rows n = latent_rows(hp, il, NULL, 0);
    block_raise(&r->proj, n.n_q + n.n_kv + n.n_low);
    block_raise(&r->z, (int64_t)l->n_head * l->d_k);
    block_raise(&r->mix, (int64_t)l->n_head * l->d_v);
}

static void need(const struct hparams *hp, int32_t il, struct dev_need *n) {
    if (hp->layer[il].n_head > n->n_head) n->n_head = hp->layer[il].n_head;
}

static void state(const struct hparams *hp, int32_t il, const struct seq_pool_params *p,
                  struct layer_state *s) {
    const struct layer_shape *l = &hp->layer[il];
    uint64_t row = 0, lead = 0;
    quant_row_bytes(p->k_type, (uint64_t)l->d_k, &row);
    quant_row_bytes(p->k_type, (uint64_t)hp->n_rot, &lead);
    s->kv.k_type = s->kv.v_type = p->k_type;
    s->kv.n_kv_head = 1;
    s->kv.d_k = l->d_k;
    s->kv.d_v = l->d_v;
    s->kv.k_page_bytes = s->kv.v_page_bytes = (size_t)row * KV_PAGE;
    s->kv.rotate = p->k_type > QUANT_F16;
    s->kv.v_in_k = true;
    s->v_at = (size_t)lead;
}

static int matrices(struct layer_weights *l, struct weight **out) {
    struct weight *const all[] = {&l->mla.q_a, &l->mla.q, &l->mla.kv_a, &l->mla.out};
    int n = block_list(out, all, sizeof all / sizeof *all);
    for (int32_t h = 0; h < 2 * l->mla.n_head; h++) out[n++] = &l->mla.heads[h];
    return n;
}

const struct block block_mla = {.name = "latent attention",
                                .is_in = is_in,
                                .rows = rows,
                                .need = need,
                                .state = state,
                                .matrices = matrices,
                                .forward = mla_forward};

/* block_attn.c: softmax attention over the sequence's pages, with or without an output gate. */
#include <math.h>

#include "format/quant.h"
#include "model/block/block_impl.h"

struct rope block_rope(const struct model *m, int32_t il) {
    bool local = m->inv_freq_window && m->hp.layer[il].window;
    int32_t n_rot = local && m->hp.n_rot_window ? m->hp.n_rot_window : m->hp.n_rot;
    return (struct rope){m->hp.rope_mode, n_rot, local ? m->inv_freq_window : m->inv_freq,
                         local ? 1 : m->hp.rope_magnitude};
}

/* Where f->proj has the queries, keys and values. */
struct qkv_rows {
    float *q, *k, *v;
    int64_t q_stride, k_stride, v_stride;
};

/* Side by side; or one matrix after another if norms need dense rows. A layer without a matrix of values stores its
 * keys as values, before their norm. */
static struct qkv_rows qkv_rows(const struct forward *f, int32_t il) {
    const struct hparams *hp = &f->m->hp;
    int64_t n_q = arch_dim(hp, D_Q, il), n_k = arch_dim(hp, D_K, il), stride = f->proj_stride;
    bool has_v = block_weights(f, il)->attn.v.data;
    float *q = f->proj, *k = q + n_q;
    if (!hp->has_wide_qk_norm)
        return (struct qkv_rows){q, k, has_v ? k + n_k : k, stride, stride, stride};
    k = q + f->n_tok_max * n_q;
    return (struct qkv_rows){q, k, k + f->n_tok_max * n_k, n_q, n_k, arch_dim(hp, D_V, il)};
}

void block_attn_project(struct forward *f, int32_t il, const float *x, int64_t x_stride) {
    const struct layer_weights *l = block_weights(f, il);
    struct qkv_rows r = qkv_rows(f, il);
    const struct linear_out out[3] = {fwd_out(&l->attn.q, l->attn.q_b, r.q, r.q_stride),
                                      fwd_out(&l->attn.k, l->attn.k_b, r.k, r.k_stride),
                                      fwd_out(&l->attn.v, l->attn.v_b, r.v, r.v_stride)};
    fwd_linear(f, out, f->m->hp.layer[il].kv_back ? 1 : l->attn.v.data ? 3 : 2, x, x_stride);
}

/* [q | gate] per head */
static int64_t q_head_of(const struct hparams *hp, int32_t il) {
    return hp->has_q_gate ? 2 * (int64_t)hp->layer[il].d_k : hp->layer[il].d_k;
}

/* Scales queries of positions after the original context, one row per call: only long contexts have such rows. */
static void scale_queries(struct forward *f, float *q, int64_t n_q, int64_t stride) {
    const struct hparams *hp = &f->m->hp;
    for (int32_t i = 0; i < f->n_span; i++) {
        const struct span *s = &f->spans[i];
        for (int32_t t = 0; t < s->n_tok; t++) {
            int64_t turns = (s->pos + t) / hp->rope_n_ctx_orig;
            if (turns < 1) continue;
            float *row = q + (s->row + t) * stride;
            float scale = 1 + hp->temp_scale * logf(1 + (float)turns);
            f->d->ops->axpby(f->d, row, scale, row, 0, n_q);
        }
    }
}

void block_attn_store(struct forward *f, int32_t il) {
    const struct hparams *hp = &f->m->hp;
    const struct layer_shape *shape = &hp->layer[il];
    const struct layer_weights *l = block_weights(f, il);
    struct qkv_rows r = qkv_rows(f, il);
    bool wide = hp->has_wide_qk_norm;
    if (wide) {
        f->d->ops->rms_norm(f->d, r.q, r.q, l->attn.q_norm, f->n_tok, r.q_stride, hp->eps);
        f->d->ops->rms_norm(f->d, r.k, r.k, l->attn.k_norm, f->n_tok, r.k_stride, hp->eps);
    }
    if (hp->temp_scale > 0 && hp->rope_n_ctx_orig > 0)
        scale_queries(f, r.q, arch_dim(hp, D_Q, il), r.q_stride);
    const struct qkv_store_args store = {.spans = f->spans,
                                         .n_span = f->n_span,
                                         .n_tok = f->n_tok,
                                         .n_head = shape->n_head,
                                         .q = r.q,
                                         .k = shape->kv_back ? NULL : r.k,
                                         .v = shape->kv_back ? NULL : r.v,
                                         .q_tok_stride = r.q_stride,
                                         .q_head_stride = q_head_of(hp, il),
                                         .k_tok_stride = r.k_stride,
                                         .v_tok_stride = r.v_stride,
                                         .q_norm = wide ? NULL : l->attn.q_norm,
                                         .k_norm = wide ? NULL : l->attn.k_norm,
                                         .v_norm = hp->has_v_norm ? f->m->ones : NULL,
                                         .eps = hp->eps,
                                         .rope = block_rope(f->m, il),
                                         .kv = f->p->layer[il].kv,
                                         .q_out = f->z};
    f->d->ops->qkv_store(f->d, &store);
}

void block_attn_heads(struct forward *f, int32_t il) {
    const struct hparams *hp = &f->m->hp;
    const struct layer_shape *shape = &hp->layer[il];
    const struct layer_weights *l = block_weights(f, il);
    block_attn_store(f, il);
    const struct attn_args attn = {.spans = f->spans,
                                   .n_span = f->n_span,
                                   .n_tok = f->n_tok,
                                   .n_head = shape->n_head,
                                   .q = f->z,
                                   .kv = f->p->layer[il].kv,
                                   .scale = hp->attn_scale,
                                   .window = shape->window,
                                   .n_keep = hp->n_meta,
                                   .sinks = l->attn.sinks,
                                   .gate = hp->has_q_gate ? f->proj + shape->d_k : NULL,
                                   .gate_tok_stride = f->proj_stride,
                                   .gate_head_stride = q_head_of(hp, il),
                                   .out = f->mix};
    f->d->ops->attn(f->d, &attn);
}

static void attn_forward(struct forward *f, int32_t il) {
    const struct hparams *hp = &f->m->hp;
    if (!hp->is_causal) {
        block_attn_encode(f, il, f->h);
        return;
    }
    const struct layer_weights *l = block_weights(f, il);
    block_attn_project(f, il, f->h, hp->n_embd);
    block_attn_heads(f, il);
    const struct linear_out res = fwd_add(&l->attn.out, l->attn.out_b, f->x, hp->n_embd);
    fwd_linear(f, &res, 1, f->mix, arch_dim(hp, D_ATTN_OUT, il));
}

static bool is_in(const struct layer_shape *l) { return l->mixer & MIX_ATTN; }

static void rows(const struct hparams *hp, int32_t il, struct block_rows *r) {
    block_raise(&r->proj, arch_dim(hp, D_QKV, il));
    if (!hp->is_causal) {
        /* keys and values once more for each query head; the layers after pooling */
        int64_t n_q = arch_dim(hp, D_Q, il), n_kv = arch_dim(hp, D_K, il) + arch_dim(hp, D_V, il);
        if (2 * n_q != n_kv) block_raise(&r->proj, 3 * n_q + n_kv);
        block_raise(&r->proj, hp->dense.n[0] + hp->dense.n[1]);
    }
    block_raise(&r->z, (int64_t)hp->layer[il].n_head * hp->layer[il].d_k);
    block_raise(&r->mix, arch_dim(hp, D_ATTN_OUT, il));
}

static void need(const struct hparams *hp, int32_t il, struct dev_need *n) {
    if (hp->layer[il].n_head > n->n_head) n->n_head = hp->layer[il].n_head;
}

static size_t page_bytes(uint32_t type, int64_t n_head, int64_t d) {
    uint64_t row = 0;
    quant_row_bytes(type, (uint64_t)d, &row);
    return (size_t)row * (size_t)n_head * KV_PAGE;
}

static void state(const struct hparams *hp, int32_t il, const struct seq_pool_params *p,
                  struct layer_state *s) {
    int32_t n_kv_head = hp->layer[il].n_kv_head;
    int32_t d_k = hp->layer[il].d_k, d_v = hp->layer[il].d_v;
    s->kv.k_type = p->k_type;
    s->kv.v_type = p->v_type;
    s->kv.n_kv_head = n_kv_head;
    s->kv.d_k = d_k;
    s->kv.d_v = d_v;
    s->kv.k_page_bytes = page_bytes(p->k_type, n_kv_head, d_k);
    s->kv.v_page_bytes = page_bytes(p->v_type, n_kv_head, d_v);
    s->kv.rotate = p->k_type > QUANT_F16 || p->v_type > QUANT_F16;
    s->kv_is_other = hp->layer[il].kv_back > 0;
}

static int matrices(struct layer_weights *l, struct weight **out) {
    struct weight *const all[] = {&l->attn.q, &l->attn.k, &l->attn.v, &l->attn.out};
    return block_list(out, all, sizeof all / sizeof *all);
}

const struct block block_attn = {.name = "attention",
                                 .is_in = is_in,
                                 .within = 1 << JOIN_SHARED | 1 << JOIN_MEAN,
                                 .rows = rows,
                                 .need = need,
                                 .state = state,
                                 .matrices = matrices,
                                 .forward = attn_forward};

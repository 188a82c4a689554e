/* encode.c: encoders: embeddings and relevance scores of whole texts.
 *
 * x = norm(token + position + segment); for each layer: x = norm(x + attention(x)); x = norm(x + ffn(x)) (Devlin et
 * al., arXiv:1810.04805), or x += attention(norm(x)); x += ffn(norm(x)) and a last norm, if norm_first is set. Instead
 * of learned positions there may be RoPE or a bias of the scores. */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "format/quant.h"
#include "model/block/block_impl.h"

/* Writes heads for each query head to `to`, normalized and rotated: those of `from`, which may be `to`, or copies of its
 * only head. The op qkv_store is called with queries only, so it writes no cache. */
static void take_heads(struct forward *f, int32_t il, const float *from, int32_t n_from, float *to,
                       const float *norm, struct rope rope) {
    const struct hparams *hp = &f->m->hp;
    const struct qkv_store_args a = {
        .spans = f->spans,
        .n_span = f->n_span,
        .n_tok = f->n_tok,
        .n_head = hp->layer[il].n_head,
        .q = from,
        .q_tok_stride = (int64_t)n_from * hp->d_k,
        .q_head_stride = n_from == hp->layer[il].n_head ? hp->d_k : 0,
        .q_norm = norm,
        .eps = hp->eps,
        .rope = rope,
        .kv = {.d_k = hp->d_k, .d_v = hp->d_v, .k_type = QUANT_F32, .v_type = QUANT_F32},
        .q_out = to};
    if (from != to || norm || rope.mode != ROPE_NONE) f->d->ops->qkv_store(f->d, &a);
}

void block_attn_encode(struct forward *f, int32_t il, const float *from) {
    const struct hparams *hp = &f->m->hp;
    const struct layer_weights *l = &f->m->weights.layer[il];
    int32_t n_head = hp->layer[il].n_head, n_kv = hp->layer[il].n_kv_head;
    int64_t n_q = (int64_t)n_head * hp->d_k, n_k = (int64_t)n_kv * hp->d_k;
    float *q = f->proj, *k = q + f->n_tok * n_q, *v = k + f->n_tok * n_q; /* dense, for attn_full */
    float *own_k = n_kv == n_head ? k : v + f->n_tok * n_q;
    float *own_v = n_kv == n_head ? v : own_k + f->n_tok * n_k;
    const struct linear_out out[3] = {fwd_out(&l->attn.q, l->attn.q_b, q, n_q),
                                      fwd_out(&l->attn.k, l->attn.k_b, own_k, n_k),
                                      fwd_out(&l->attn.v, l->attn.v_b, own_v, n_k)};
    struct rope rope = block_rope(f->m, il), none = {.mode = ROPE_NONE};
    fwd_linear(f, out, 3, from, hp->n_embd);
    take_heads(f, il, q, n_head, q, l->attn.q_norm, rope);
    take_heads(f, il, own_k, n_kv, k, l->attn.k_norm, rope);
    take_heads(f, il, own_v, n_kv, v, NULL, none);
    const struct attn_full_args a = {.spans = f->spans,
                                     .n_span = f->n_span,
                                     .n_tok = f->n_tok,
                                     .n_head = n_head,
                                     .d_head = hp->d_k,
                                     .q = q,
                                     .k = k,
                                     .v = v,
                                     .scale = hp->attn_scale,
                                     .out = f->mix,
                                     .window = hp->layer[il].window,
                                     .bias = f->m->attn_bias,
                                     .n_bias = f->m->n_attn_bias};
    f->d->ops->attn_full(f->d, &a);
    const struct linear_out res = fwd_add(&l->attn.out, l->attn.out_b, f->x, hp->n_embd);
    fwd_linear(f, &res, 1, f->mix, n_q);
}

static void norm(struct forward *f, float *out, const float *w, const float *b) {
    f->d->ops->layer_norm(f->d, out, f->x, w, b, f->n_tok, f->m->hp.n_embd, f->m->hp.eps);
}

static void encoder_layer(struct forward *f, int32_t il) {
    const struct layer_weights *l = &f->m->weights.layer[il];
    if (f->m->hp.has_post_norm) {
        layer_forward(f, il);
        return;
    }
    if (f->m->hp.norm_first) {
        if (l->attn_norm) norm(f, f->h, l->attn_norm, l->attn_norm_b);
        block_attn_encode(f, il, l->attn_norm ? f->h : f->x);
        norm(f, f->h, l->ffn_norm, l->ffn_norm_b);
        fwd_blocks(f, ffn_blocks, il);
        return;
    }
    block_attn_encode(f, il, f->x);
    norm(f, f->x, l->attn_norm, l->attn_norm_b);
    f->d->ops->copy(f->d, f->h, f->x, (size_t)f->n_tok * (size_t)f->m->hp.n_embd * sizeof(float));
    fwd_blocks(f, ffn_blocks, il);
    norm(f, f->x, l->ffn_norm, l->ffn_norm_b);
}

/* Adds to x the rows of an embedding table selected by f->ids. */
static void add_embedding(struct forward *f, const struct weight *w) {
    f->d->ops->embed(f->d, f->h, w, f->ids, f->n_tok, 1);
    f->d->ops->axpby(f->d, f->x, 1, f->h, 1, (int64_t)f->n_tok * f->m->hp.n_embd);
}

static int load_batch(struct forward *f, const struct encode_text *texts, int32_t n_text,
                      struct err *e) {
    const struct hparams *hp = &f->m->hp;
    f->n_tok = 0;
    f->has_zeros = false;
    f->n_span = n_text;
    f->runs = NULL;
    for (int32_t i = 0; i < n_text; i++) {
        const struct encode_text *t = &texts[i];
        if (t->n_tok < 1 || t->n_tok > hp->n_ctx_train)
            return err_set(e, CHIMERE_ELIMIT, "text %d: expected 1 to %d tokens, got %d", i,
                           hp->n_ctx_train, t->n_tok);
        if (f->n_tok > f->n_tok_max - t->n_tok)
            return err_set(e, CHIMERE_ELIMIT, "texts: expected at most %d tokens together",
                           f->n_tok_max);
        f->spans[i] = (struct span){.row = f->n_tok, .n_tok = t->n_tok};
        for (int32_t k = 0; k < t->n_tok; k++) {
            if (t->tokens[k] < 0 || t->tokens[k] >= hp->n_vocab)
                return err_set(e, CHIMERE_EINVAL, "token: expected an id below %d, got %d",
                               hp->n_vocab, t->tokens[k]);
            if (t->types && (t->types[k] < 0 || t->types[k] >= hp->n_token_type))
                return err_set(e, CHIMERE_EINVAL, "segment: expected below %d, got %d",
                               hp->n_token_type, t->types[k]);
            f->ids[f->n_tok++] = t->tokens[k];
        }
    }
    return 0;
}

/* Writes one row per text, of the rows x, to out; both are on the host. */
static void pool_rows(const struct forward *f, enum pooling kind, const float *x, float *out) {
    int64_t d = f->m->hp.n_embd;
    for (int32_t i = 0; i < f->n_span; i++) {
        const struct span *s = &f->spans[i];
        const float *first = x + s->row * d;
        float *o = out + i * d;
        if (kind == POOL_MEAN) {
            for (int64_t j = 0; j < d; j++) {
                double sum = 0;
                for (int32_t t = 0; t < s->n_tok; t++) sum += first[t * d + j];
                o[j] = (float)(sum / s->n_tok);
            }
        } else {
            const float *row = kind == POOL_LAST ? first + (s->n_tok - 1) * d : first;
            memcpy(o, row, (size_t)d * sizeof(float));
        }
    }
}

/* One score per text: the classifier of its pooled row f->picked, after a dense layer and a norm if the model has them. */
static int rank(struct forward *f, int32_t n_text, float *out, struct err *e) {
    const struct global_weights *g = &f->m->weights.global;
    const struct hparams *hp = &f->m->hp;
    const struct ops *ops = f->d->ops;
    int64_t d = hp->n_embd;
    float *rows = f->picked, scores[FORWARD_MAX_RUNS];
    if (!g->cls_out.data)
        return err_set(e, CHIMERE_EUNSUPPORTED, "this model has no relevance head");
    if (g->cls.data) {
        const struct linear_out o = fwd_out(&g->cls, g->cls_b, f->h, d);
        ops->linear(f->d, &o, 1, rows, d, n_text);
        ops->act_mul(f->d, rows, f->h, NULL, n_text * d, hp->rank_act);
    }
    if (g->cls_norm)
        ops->layer_norm(f->d, rows, rows, g->cls_norm, g->cls_norm_b, n_text, d, hp->eps);
    const struct linear_out o = fwd_out(&g->cls_out, g->cls_out_b, f->h, 1);
    ops->linear(f->d, &o, 1, rows, d, n_text);
    ops->download(f->d, scores, f->h, (size_t)n_text * sizeof(float));
    for (int32_t i = 0; i < n_text; i++) out[(int64_t)i * d] = scores[i];
    return 0;
}

/* The layers after pooling, from the rows f->picked to out [n_text, arch_n_vector]. */
static void add_dense(struct forward *f, int32_t n_text, float *out) {
    const struct hparams *hp = &f->m->hp;
    const struct global_weights *g = &f->m->weights.global;
    const float *from = f->picked;
    float *to = f->proj;
    int64_t n_in = hp->n_embd;
    for (int i = 0; i < 2 && hp->dense.n[i]; i++) {
        int64_t n = hp->dense.n[i];
        const struct linear_out o = fwd_out(&g->dense[i], g->dense_b[i], to, n);
        f->d->ops->linear(f->d, &o, 1, from, n_in, n_text);
        if (hp->dense.has_tanh[i]) f->d->ops->act_mul(f->d, to, to, NULL, n_text * n, ACT_TANH);
        from = to;
        to += n_text * n;
        n_in = n;
    }
    f->d->ops->download(f->d, out, from, (size_t)(n_text * n_in) * sizeof(float));
}

/* Computes all rows f->x of the batch. */
static void encode_rows(struct forward *f, const struct encode_text *texts, int32_t n_text) {
    const struct hparams *hp = &f->m->hp;
    const struct global_weights *g = &f->m->weights.global;
    const struct ops *ops = f->d->ops;
    ops->embed(f->d, f->x, &g->token_embd, f->ids, f->n_tok, hp->embd_scale);
    for (int32_t i = 0; i < n_text; i++)
        for (int32_t t = 0; t < texts[i].n_tok; t++) f->ids[f->spans[i].row + t] = t;
    if (g->pos_embd.data) add_embedding(f, &g->pos_embd);
    if (g->type_embd.data) {
        for (int32_t i = 0; i < n_text; i++)
            for (int32_t t = 0; t < texts[i].n_tok; t++)
                f->ids[f->spans[i].row + t] = texts[i].types ? texts[i].types[t] : 0;
        add_embedding(f, &g->type_embd);
    }
    if (g->embd_norm) norm(f, f->x, g->embd_norm, g->embd_norm_b);
    for (int32_t il = 0; il < hp->n_layer; il++) encoder_layer(f, il);
    if (g->output_norm && hp->has_post_norm)
        ops->rms_norm(f->d, f->x, f->x, g->output_norm, f->n_tok, hp->n_embd, hp->eps);
    else if (g->output_norm) norm(f, f->x, g->output_norm, g->output_norm_b);
}

int forward_encode(struct forward *f, const struct encode_text *texts, int32_t n_text, float *out,
                   struct err *e) {
    const struct hparams *hp = &f->m->hp;
    const struct ops *ops = f->d->ops;
    int64_t d = hp->n_embd;
    if (hp->is_causal) return err_set(e, CHIMERE_EUNSUPPORTED, "%s is no encoder", f->m->name);
    if (n_text < 1 || n_text > FORWARD_MAX_RUNS || n_text > f->n_out_max)
        return err_set(e, CHIMERE_ELIMIT, "texts: expected 1 to %d, got %d", f->n_out_max, n_text);
    int rc = load_batch(f, texts, n_text, e);
    if (rc) return rc;
    encode_rows(f, texts, n_text);
    rc = ops->status(f->d, e);
    if (rc) return rc;
    bool ranks = hp->pooling == POOL_RANK;
    if (ranks && hp->rank_pooling == POOL_CLS) {
        for (int32_t i = 0; i < n_text; i++) f->rows[i] = f->spans[i].row;
        ops->gather_rows(f->d, f->picked, f->x, f->rows, n_text, d);
        rc = rank(f, n_text, out, e);
        return rc ? rc : gguf_check(f->m->gguf, e);
    }
    float *host = mem_alloc((size_t)((f->n_tok + n_text) * d) * sizeof(float));
    if (!host) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    float *pooled = host + f->n_tok * d;
    ops->download(f->d, host, f->x, (size_t)(f->n_tok * d) * sizeof(float));
    pool_rows(f, ranks ? hp->rank_pooling : hp->pooling, host, pooled);
    if (ranks || hp->dense.n[0])
        ops->upload(f->d, f->picked, pooled, (size_t)(n_text * d) * sizeof(float));
    if (ranks) rc = rank(f, n_text, out, e);
    else if (hp->dense.n[0]) add_dense(f, n_text, out);
    else memcpy(out, pooled, (size_t)(n_text * d) * sizeof(float));
    mem_free(host);
    if (!rc) rc = gguf_check(f->m->gguf, e);
    return rc ? rc : ops->status(f->d, e);
}

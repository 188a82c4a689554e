#include "model/dflash.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "format/quant.h"
#include "model/block/block_impl.h"

enum { CHUNK = 64 /* observed tokens per pass */ };

struct dflash {
    struct model *m;       /* owned: the drafter */
    struct model *target;  /* borrowed */
    struct forward *from;  /* borrowed: the target's */
    struct seq_pool *pool; /* owned */
    struct seq **seqs;     /* owned [n_slot] */
    int32_t n_slot;
    struct forward *f; /* owned */
    float *joined;     /* owned, device [CHUNK, n_in] */
    float *heads;      /* owned, device: heads_of; NULL: the drafter has none */
};

/* A row of what the heads read [n_embd, n_markov], the confidence [1], what they add to a row of logits [n_vocab]; each
 * begins at a multiple of 32 floats. */
struct heads {
    int64_t sure, add, n;
};
static struct heads heads_of(const struct hparams *hp) {
    int64_t row = ((int64_t)hp->n_embd + hp->dflash.n_markov + 31) / 32 * 32;
    return (struct heads){.sure = row, .add = row + 32, .n = row + 32 + hp->n_vocab};
}
static bool has_heads(const struct hparams *hp) { return hp->dflash.n_markov || hp->dflash.n_sure; }

/* ---- compatibility with the target ---- */

static int same_tokens(const struct model *m, const struct model *target, struct err *e) {
    const struct gguf_kv *a = gguf_find(m->gguf, "tokenizer.ggml.tokens");
    const struct gguf_kv *b = gguf_find(target->gguf, "tokenizer.ggml.tokens");
    uint64_t at = 0, bt = 0;
    struct slice x, y;
    if (!a || !b) return 0;
    if (a->n != b->n)
        return err_set(e, CHIMERE_EMISMATCH, "drafts for %llu tokens, the model has %llu",
                       (unsigned long long)a->n, (unsigned long long)b->n);
    for (uint64_t i = 0; i < a->n && gguf_next_str(a, &at, &x) && gguf_next_str(b, &bt, &y); i++)
        if (x.n != y.n || memcmp(x.p, y.p, x.n) != 0)
            return err_set(e, CHIMERE_EMISMATCH, "its token %llu is another than the model's",
                           (unsigned long long)i);
    return 0;
}

static int check_hparams(const struct hparams *hp, const struct hparams *target, struct err *e) {
    if (hp->n_embd != target->n_embd)
        return err_set(e, CHIMERE_EMISMATCH, "drafts for a width of %d, the model has %d",
                       hp->n_embd, target->n_embd);
    if (hp->dflash.n_in != (int64_t)hp->dflash.n_tap * target->n_embd)
        return err_set(e, CHIMERE_EMISMATCH,
                       "reads %lld values of a token, %d layers of %d are %lld",
                       (long long)hp->dflash.n_in, hp->dflash.n_tap, target->n_embd,
                       (long long)hp->dflash.n_tap * target->n_embd);
    for (int32_t i = 0; i < hp->dflash.n_tap; i++)
        if (hp->dflash.taps[i] >= target->n_layer)
            return err_set(e, CHIMERE_EMISMATCH, "reads layer %d, the model has %d",
                           hp->dflash.taps[i], target->n_layer);
    if (hp->dflash.mask >= target->n_vocab)
        return err_set(e, CHIMERE_EMISMATCH, "its mask is token %d, the model has %d",
                       hp->dflash.mask, target->n_vocab);
    if (target->n_logit != target->n_vocab)
        return err_set(e, CHIMERE_EUNSUPPORTED, "the model's head is in slices on several cards");
    if (hp->n_vocab > target->n_vocab ||
        (hp->dflash.n_vocab && hp->dflash.n_vocab != target->n_vocab))
        return err_set(e, CHIMERE_EMISMATCH, "drafts for %d tokens, the model has %d", hp->n_vocab,
                       target->n_vocab);
    return 0;
}

/* ---- setup ---- */

/* The type of the target's cache if its blocks divide this model's heads, else f16. */
static uint32_t cache_type(uint32_t type, int32_t d_head) {
    uint64_t n;
    return quant_row_bytes(type, (uint64_t)d_head, &n) ? type : QUANT_F16;
}

/* A draft block needs positions beyond the end of the sequence. */
static struct seq_pool_params pool_of(const struct hparams *hp, const struct dflash_params *p) {
    return (struct seq_pool_params){.n_slot = p->n_slot,
                                    .n_ctx = p->n_ctx + 2 * (int64_t)KV_PAGE * p->n_slot,
                                    .n_ctx_seq = p->n_ctx_seq + 2 * KV_PAGE,
                                    .k_type = cache_type(p->k_type, hp->d_k),
                                    .v_type = cache_type(p->v_type, hp->d_v)};
}

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* Reserves scratch for both models: the device has only one. */
static int reserve_both(struct dflash *d, struct err *e) {
    const struct forward *f = d->from;
    int32_t n_row = f->n_tok_max > f->n_out_max ? f->n_tok_max : f->n_out_max;
    struct dev_need n = forward_need(d->target, f->p->params.n_ctx, n_row);
    const struct dev_need o = forward_need(d->m, d->pool->params.n_ctx, CHUNK);
    n.n_tok = (int32_t)most(n.n_tok, o.n_tok);
    n.n_in = most(most(n.n_in, o.n_in), d->m->hp.dflash.n_in);
    n.n_in = most(n.n_in, heads_of(&d->m->hp).sure);
    n.n_out = most(n.n_out, o.n_out);
    n.n_ff = most(n.n_ff, o.n_ff);
    n.n_head = (int32_t)most(n.n_head, o.n_head);
    n.d_head = (int32_t)most(n.d_head, o.d_head);
    n.n_ctx = most(n.n_ctx, o.n_ctx);
    return d->m->dev->ops->reserve(d->m->dev, &n, e);
}

static int open_parts(struct dflash *d, const struct dflash_params *p, struct err *e) {
    struct hparams *hp = &d->m->hp;
    int rc = check_hparams(hp, &p->target->hp, e);
    if (!rc) rc = same_tokens(d->m, p->target, e);
    if (rc) return rc;
    hp->n_vocab = hp->n_logit = p->target->hp.n_vocab;
    const struct seq_pool_params pool = pool_of(hp, p);
    rc = seq_pool_new(&d->pool, d->m, &pool, e);
    d->seqs = mem_alloc_array((size_t)p->n_slot, sizeof *d->seqs);
    d->joined = d->m->dev->ops->alloc(d->m->dev, (size_t)hp->dflash.n_in * CHUNK * sizeof(float));
    if (has_heads(hp))
        d->heads = d->m->dev->ops->alloc(d->m->dev, (size_t)heads_of(hp).n * sizeof(float));
    if (!rc && (!d->seqs || !d->joined || (has_heads(hp) && !d->heads)))
        rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) d->n_slot = p->n_slot;
    for (int32_t i = 0; !rc && i < p->n_slot; i++) rc = seq_new(&d->seqs[i], d->pool, e);
    if (!rc) rc = forward_new(&d->f, d->m, d->pool, CHUNK, STEP_MAX_TOK, e);
    if (!rc) rc = taps_keep(p->f, hp->dflash.taps, hp->dflash.n_tap, e);
    return rc ? rc : reserve_both(d, e);
}

int dflash_open(struct dflash **out, const char *path, const struct dflash_params *p,
                struct err *e) {
    *out = NULL;
    struct dflash *d = mem_zalloc(sizeof *d);
    if (!d) return err_set(e, CHIMERE_ENOMEM, "%s: out of memory", path);
    d->target = p->target;
    d->from = p->f;
    int rc = model_open_drafter(&d->m, path, p->target->dev, e);
    if (!rc && (rc = open_parts(d, p, e))) err_prefix(e, "%s", path);
    if (rc) {
        dflash_close(d);
        return rc;
    }
    *out = d;
    return 0;
}

void dflash_close(struct dflash *d) {
    if (!d) return;
    forward_free(d->f);
    for (int32_t i = 0; i < d->n_slot; i++) seq_free(d->seqs[i]);
    seq_pool_free(d->pool);
    mem_free(d->seqs);
    if (d->joined) d->m->dev->ops->free(d->m->dev, d->joined);
    if (d->heads) d->m->dev->ops->free(d->m->dev, d->heads);
    model_close(d->m);
    mem_free(d);
}

int32_t dflash_n_draft(const struct dflash *d) {
    int32_t n = d->m->hp.dflash.n_block - !d->m->hp.dflash.from_anchor;
    return n < STEP_MAX_TOK - 1 ? n : STEP_MAX_TOK - 1;
}

int32_t dflash_n_logit(const struct dflash *d) {
    const struct model *t = d->target;
    return t->draft_head.data ? (int32_t)t->draft_head.n_out : t->hp.n_vocab;
}

/* ---- observed tokens ---- */

void dflash_reset(struct dflash *d, int32_t slot) { seq_reset(d->seqs[slot]); }

static void one_span(struct dflash *d, const struct seq *s, int32_t n) {
    d->f->runs = NULL;
    d->f->n_tok = n;
    d->f->n_span = 1;
    d->f->spans[0] =
        (struct span){.n_tok = n, .n_commit = n, .slot = s->slot, .pos = s->pos, .pages = s->pages};
}

int dflash_observe(struct dflash *d, int32_t slot, int64_t row, int32_t n, struct err *e) {
    const struct hparams *hp = &d->m->hp;
    const struct ops *ops = d->m->dev->ops;
    struct dev *dev = d->m->dev;
    struct seq *s = d->seqs[slot];
    int64_t width = hp->n_embd;
    int rc = seq_reserve(s, n, e);
    for (int32_t at = 0, k; !rc && at < n; at += k) {
        k = n - at < CHUNK ? n - at : CHUNK;
        for (int32_t t = 0; t < k; t++)
            for (int32_t i = 0; i < hp->dflash.n_tap; i++)
                ops->copy(dev, d->joined + t * hp->dflash.n_in + i * width,
                          taps_kept(d->from, i) + (row + at + t) * width,
                          (size_t)width * sizeof(float));
        one_span(d, s, k);
        const struct linear_out join = fwd_out(&d->m->weights.global.fc, NULL, d->f->h, width);
        ops->linear(dev, &join, 1, d->joined, hp->dflash.n_in, k);
        ops->rms_norm(dev, d->f->h, d->f->h, d->m->weights.global.fc_norm, k, width, hp->eps);
        for (int32_t il = 0; il < hp->n_layer; il++) {
            block_attn_project(d->f, il, d->f->h, width);
            block_attn_store(d->f, il);
        }
        s->pos += k;
        rc = ops->is_host ? 0 : ops->status(dev, e);
    }
    return rc;
}

/* ---- drafting a block ---- */

/* Every row sees all kept tokens and the whole block: attn gets each row as a sequence of one token at the block's
 * last position. A window still counts from the row's true position, so it is widened accordingly. */
static void attend(struct dflash *d, int32_t il, int64_t pos, int32_t n) {
    struct forward *f = d->f;
    const struct hparams *hp = &d->m->hp;
    const struct layer_shape *l = &hp->layer[il];
    struct attn_args a = {.spans = f->spans,
                          .n_span = n,
                          .n_tok = n,
                          .n_head = l->n_head,
                          .q = f->z,
                          .kv = d->pool->layer[il].kv,
                          .scale = hp->attn_scale,
                          .sinks = d->m->weights.layer[il].attn.sinks,
                          .out = f->mix};
    const struct span whole = f->spans[0];
    struct span each[STEP_MAX_TOK];
    for (int32_t i = 0; i < n; i++) {
        each[i] = whole;
        each[i].row = i;
        each[i].n_tok = each[i].n_commit = 1;
        each[i].pos = pos + n - 1;
    }
    a.spans = each;
    if (!l->window || pos + n <= l->window) {
        d->m->dev->ops->attn(d->m->dev, &a);
        return;
    }
    int64_t n_q = (int64_t)l->n_head * hp->d_k, n_o = (int64_t)l->n_head * hp->d_v;
    for (int32_t i = 0; i < n; i++) {
        struct attn_args one = a;
        each[i].row = 0;
        one.spans = &each[i];
        one.n_span = one.n_tok = 1;
        one.q = f->z + i * n_q;
        one.out = f->mix + i * n_o;
        one.window = l->window + n - 1 - i;
        d->m->dev->ops->attn(d->m->dev, &one);
    }
}

static void block_layer(struct dflash *d, int32_t il, int64_t pos, int32_t n) {
    struct forward *f = d->f;
    const struct hparams *hp = &d->m->hp;
    const struct layer_weights *l = &d->m->weights.layer[il];
    const struct ops *ops = d->m->dev->ops;
    ops->rms_norm(f->d, f->h, f->x, l->attn_norm, n, hp->n_embd, hp->eps);
    block_attn_project(f, il, f->h, hp->n_embd);
    block_attn_store(f, il);
    attend(d, il, pos, n);
    const struct linear_out res = fwd_add(&l->attn.out, l->attn.out_b, f->x, hp->n_embd);
    fwd_linear(f, &res, 1, f->mix, arch_dim(hp, D_ATTN_OUT, il));
    ops->rms_norm(f->d, f->h, f->x, l->ffn_norm, n, hp->n_embd, hp->eps);
    fwd_blocks(f, ffn_blocks, il);
}

int dflash_draft(struct dflash *d, int32_t slot, int32_t next, int32_t n, const float **logits,
                 struct err *e) {
    struct forward *f = d->f;
    const struct hparams *hp = &d->m->hp, *to = &d->target->hp;
    const struct model *t = d->target;
    const struct weight *head = t->draft_head.data ? &t->draft_head : &t->weights.global.output;
    const struct ops *ops = d->m->dev->ops;
    struct seq *s = d->seqs[slot];
    int32_t first = !hp->dflash.from_anchor, n_row = n + first;
    if (n < 1 || n > dflash_n_draft(d))
        return err_set(e, CHIMERE_EINVAL, "a block drafts 1 to %d tokens, got %d",
                       dflash_n_draft(d), n);
    int rc = seq_reserve(s, n_row, e);
    if (rc) return rc;
    f->ids[0] = next;
    for (int32_t i = 1; i < n_row; i++) f->ids[i] = hp->dflash.mask;
    one_span(d, s, n_row);
    ops->embed(f->d, f->x, &t->weights.global.token_embd, f->ids, n_row, to->embd_scale);
    for (int32_t il = 0; il < hp->n_layer; il++) block_layer(d, il, s->pos, n_row);
    ops->rms_norm(f->d, f->x, f->x, d->m->weights.global.output_norm, n_row, hp->n_embd, hp->eps);
    struct linear_out o = fwd_out(head, NULL, f->logits, head->n_out);
    o.scale = to->logit_scale;
    ops->linear(f->d, &o, 1, f->x + (int64_t)first * hp->n_embd, hp->n_embd, n);
    *logits = f->logits;
    return ops->status(f->d, e);
}

/* ---- heads ---- */

bool dflash_has_heads(const struct dflash *d) { return d->heads != NULL; }

int dflash_follow(struct dflash *d, int32_t i, int32_t prev, float *sure, struct err *e) {
    const struct hparams *hp = &d->m->hp;
    const struct global_weights *g = &d->m->weights.global;
    const struct heads at = heads_of(hp);
    const struct ops *ops = d->m->dev->ops;
    struct dev *dev = d->m->dev;
    int32_t n = dflash_n_logit(d);
    const float *hidden = d->f->x + (int64_t)(i + !hp->dflash.from_anchor) * hp->n_embd;
    ops->copy(dev, d->heads, hidden, (size_t)hp->n_embd * sizeof *hidden);
    if (g->markov_in.data) {
        struct weight out = g->markov_out;
        if (ops->is_host) out.n_out = n; /* rows are adjacent there */
        const struct linear_out o = fwd_out(&out, NULL, d->heads + at.add, out.n_out);
        ops->embed(dev, d->heads + hp->n_embd, &g->markov_in, &prev, 1, 1);
        ops->linear(dev, &o, 1, d->heads + hp->n_embd, hp->dflash.n_markov, 1);
        ops->axpby(dev, d->f->logits + (int64_t)i * n, 1, d->heads + at.add, 1, n);
    }
    *sure = -1;
    if (!g->sure.data) return ops->status(dev, e);
    float x;
    const struct linear_out o = fwd_out(&g->sure, g->sure_b, d->heads + at.sure, 1);
    ops->linear(dev, &o, 1, d->heads, hp->dflash.n_sure, 1);
    ops->download(dev, &x, d->heads + at.sure, sizeof x);
    *sure = 1 / (1 + expf(-x));
    return ops->status(dev, e);
}

/* ---- memory ---- */

int dflash_plan(const char *path, const struct model *target, const struct dflash_params *p,
                int32_t n_batch, struct dflash_bytes *out, struct err *e) {
    struct model *m = mem_zalloc(sizeof *m);
    struct gguf *g = NULL;
    *out = (struct dflash_bytes){.weights = 0};
    int rc = m ? gguf_open(&g, path, e) : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = hparams_read_drafter(&m->hp, g, e);
    if (!rc) rc = check_hparams(&m->hp, &target->hp, e);
    if (!rc) {
        for (size_t i = 0; i < gguf_n_tensors(g); i++)
            if (arch_reads_tensor(&m->hp, gguf_tensor_at(g, i)->name))
                out->weights += gguf_tensor_at(g, i)->n_bytes;
        m->hp.n_vocab = m->hp.n_logit = target->hp.n_vocab;
        const struct seq_pool_params pool = pool_of(&m->hp, p);
        out->cache = seq_pool_bytes(m, &pool);
        out->scratch = forward_bytes(m, CHUNK, STEP_MAX_TOK) +
                       taps_bytes(target, m->hp.dflash.n_tap, n_batch) +
                       (uint64_t)m->hp.dflash.n_in * CHUNK * sizeof(float);
        if (has_heads(&m->hp)) out->scratch += (uint64_t)heads_of(&m->hp).n * sizeof(float);
    } else if (g) {
        err_prefix(e, "%s", path);
    }
    if (g) gguf_close(g);
    mem_free(m);
    return rc;
}

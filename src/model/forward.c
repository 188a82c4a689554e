/* forward.c: the loop over layers. A request's life: scheduler -> here -> block_*.c -> ops.
 *
 * tokens -> embedding -> for each layer: x += mixer(norm(x)); x += ffn(norm(x)) -> norm -> logits of the
 * rows that somebody wants. */
#include "model/forward.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "model/forward_impl.h"

/* ---- planning ---- */

struct plan {
    int64_t proj, z, ab, mix, ff, other;
    bool embd;
};

static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

static struct plan plan_rows(const struct hparams *hp) {
    struct plan p = {0};
    for (int32_t il = 0; il < arch_n_layer_all(hp); il++) {
        if (hp->layer[il].mixer & MIX_ATTN) {
            p.proj = max64(p.proj, arch_dim(hp, D_QKV, il));
            p.z = max64(p.z, (int64_t)hp->layer[il].n_head * hp->d_k);
            p.mix = max64(p.mix, arch_dim(hp, D_ATTN_OUT, il));
        }
        if (hp->layer[il].mixer & MIX_GDN) {
            p.proj = max64(p.proj, arch_dim(hp, D_GDN_CONV, il));
            p.z = max64(p.z, arch_dim(hp, D_GDN_INNER, il));
            p.mix = max64(p.mix, arch_dim(hp, D_GDN_INNER, il));
            p.ab = max64(p.ab, 2 * (int64_t)hp->gdn.n_v_head);
        }
        if (hp->layer[il].mixer & (MIX_MAMBA1 | MIX_MAMBA2)) {
            p.proj = max64(p.proj, arch_dim(hp, D_SSM_IN, il));
            p.z = max64(p.z, arch_dim(hp, D_SSM_CONV, il));
            p.mix = max64(p.mix, arch_dim(hp, D_SSM_INNER, il));
        }
        if (hp->layer[il].mixer & MIX_MAMBA1)
            p.ab = max64(p.ab, arch_dim(hp, D_SSM_X, il) + arch_dim(hp, D_SSM_INNER, il));
        if (hp->layer[il].join == JOIN_MEAN) p.other = max64(p.other, arch_dim(hp, D_ATTN_OUT, il));
        if (hp->layer[il].join == JOIN_SHARED) p.mix = max64(p.mix, hp->adapter_rank);
        p.embd |= hp->layer[il].join == JOIN_SHARED;
        if (hp->layer[il].ffn == FFN_DENSE) p.ff = max64(p.ff, hp->layer[il].n_ff);
    }
    return p;
}

/* Every activation array: where its pointer lives, floats per token or per output row. */
struct array {
    float **slot;
    int64_t per_tok, per_out;
};

static int list_arrays(struct forward *f, const struct hparams *hp, struct array out[20]) {
    struct plan p = plan_rows(hp);
    int64_t d = hp->n_embd;
    const struct array all[] = {{&f->x, d, 0},
                                {&f->h, d, 0},
                                {&f->proj, p.proj, 0},
                                {&f->z, p.z, 0},
                                {&f->ab, p.ab, 0},
                                {&f->mix, p.mix, 0},
                                {&f->embd, p.embd ? d : 0, 0},
                                {&f->other, p.other, 0},
                                {&f->branch, hp->residual_scale != 1 ? d : 0, 0},
                                {&f->ff, 2 * p.ff, 0},
                                {&f->hidden, d, 0},
                                {&f->pair, hp->n_nextn || p.embd ? 2 * d : 0, 0},
                                {&f->low, LORA_MAX_RANK, 0},
                                {&f->picked, 0, d},
                                {&f->logits, 0, hp->n_vocab}};
    int n = (int)(sizeof all / sizeof *all);
    memcpy(out, all, sizeof all);
    f->proj_stride = p.proj;
    f->z_stride = p.z;
    f->mix_stride = p.mix;
    f->ff_stride = p.ff;
    return n;
}

uint64_t forward_bytes(const struct model *m, int32_t n_tok_max, int32_t n_out_max) {
    struct forward f = {.has_host = m->weights.host != NULL};
    struct array a[20];
    int n = list_arrays(&f, &m->hp, a);
    uint64_t bytes = 0;
    for (int i = 0; i < n; i++)
        bytes += 4u * ((uint64_t)a[i].per_tok * (uint64_t)n_tok_max +
                       (uint64_t)a[i].per_out * (uint64_t)n_out_max);
    return bytes;
}

struct dev_need forward_need(const struct model *m, int64_t n_ctx, int32_t n_tok_max) {
    const struct hparams *hp = &m->hp;
    struct plan r = plan_rows(hp);
    struct dev_need n = {.n_tok = n_tok_max,
                         .n_expert = hp->moe.n_expert,
                         .n_used = hp->moe.n_used,
                         .d_head = hp->d_k > hp->d_v ? hp->d_k : hp->d_v,
                         .n_v_head = hp->gdn.n_v_head,
                         .d_state = hp->gdn.d_k * hp->gdn.d_v,
                         .d_rec_k = hp->gdn.d_k,
                         .d_rec_v = hp->gdn.d_v,
                         .n_ctx = n_ctx > 0 ? n_ctx + hp->n_meta : n_tok_max,
                         .brings = m->weights.places[0] != NULL};
    n.n_in = max64(max64(2 * (int64_t)hp->n_embd, r.mix), r.ff);
    n.n_out = max64(max64(hp->n_vocab, r.proj), r.ff);
    n.n_ff = max64(max64(hp->moe.n_ff, hp->moe.n_ff_shared), r.ff);
    for (int32_t il = 0; il < arch_n_layer_all(hp); il++) {
        if (hp->layer[il].n_head > n.n_head) n.n_head = hp->layer[il].n_head;
        int32_t recurrent = hp->layer[il].mixer & ~MIX_ATTN;
        if (recurrent == MIX_GDN) n.n_conv = arch_dim(hp, D_GDN_CONV, il);
        else if (recurrent) n.n_conv = arch_dim(hp, D_SSM_CONV, il);
        if (recurrent == MIX_MAMBA1) {
            n.n_v_head = hp->ssm.n_inner;
            n.d_state = n.d_rec_k = hp->ssm.d_state;
            n.d_rec_v = 1;
        } else if (recurrent == MIX_MAMBA2) {
            n.n_v_head = hp->ssm.n_head;
            n.d_rec_k = hp->ssm.d_state;
            n.d_rec_v = hp->ssm.n_inner / hp->ssm.n_head;
            n.d_state = n.d_rec_k * n.d_rec_v;
        }
    }
    return n;
}

static int run_meta(struct forward *f, struct err *e);

int forward_new(struct forward **out, struct model *m, struct seq_pool *p, int32_t n_tok_max,
                int32_t n_out_max, struct err *e) {
    *out = NULL;
    if (n_tok_max < 1 || n_out_max < 1)
        return err_set(e, CHIMERE_EINVAL, "forward: expected room for a token");
    struct forward *f = mem_zalloc(sizeof *f);
    if (!f) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    f->m = m;
    f->p = p;
    f->d = m->dev;
    f->n_tok_max = n_tok_max;
    f->n_out_max = n_out_max;
    f->has_host = m->weights.host != NULL;
    struct array a[20];
    int n = list_arrays(f, &m->hp, a);
    struct dev_need need =
        forward_need(m, p ? p->params.n_ctx : 0, n_tok_max > n_out_max ? n_tok_max : n_out_max);
    int rc = f->d->ops->reserve(f->d, &need, e);
    if (!rc && f->has_host) {
        size_t n_bytes = (size_t)n_tok_max * (size_t)m->hp.n_embd * sizeof(float);
        rc = m->weights.host->ops->reserve(m->weights.host, &need, e);
        f->host_x = f->d->ops->host_alloc(f->d, n_bytes);
        f->host_y = f->d->ops->host_alloc(f->d, n_bytes);
        f->host_route = f->d->ops->host_alloc(f->d, (size_t)STEP_MAX_TOK *
                                                        (size_t)m->hp.moe.n_expert * sizeof(float));
        if (!rc && (!f->host_x || !f->host_y || !f->host_route))
            rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    }
    for (int i = 0; !rc && i < n; i++) {
        size_t bytes =
            (size_t)(a[i].per_tok * n_tok_max + a[i].per_out * n_out_max) * sizeof(float);
        if (bytes && !(*a[i].slot = f->d->ops->alloc(f->d, bytes)))
            rc = err_set(e, CHIMERE_ENOMEM, "activations for %d tokens: out of memory", n_tok_max);
    }
    f->rows = mem_alloc_array((size_t)n_out_max, sizeof *f->rows);
    f->ids = mem_alloc_array((size_t)n_tok_max, sizeof *f->ids);
    if (!f->d->ops->is_host)
        f->host_logits =
            f->d->ops->host_alloc(f->d, (size_t)n_out_max * (size_t)m->hp.n_vocab * sizeof(float));
    if (!rc && (!f->rows || !f->ids || (!f->d->ops->is_host && !f->host_logits)))
        rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = run_meta(f, e);
    if (rc) {
        forward_free(f);
        return rc;
    }
    *out = f;
    return 0;
}

void forward_free(struct forward *f) {
    if (!f) return;
    struct array a[20];
    int n = list_arrays(f, &f->m->hp, a);
    for (int i = 0; i < n; i++)
        if (*a[i].slot) f->d->ops->free(f->d, *a[i].slot);
    if (f->host_x) f->d->ops->host_free(f->d, f->host_x);
    if (f->host_y) f->d->ops->host_free(f->d, f->host_y);
    if (f->host_route) f->d->ops->host_free(f->d, f->host_route);
    if (f->host_logits) f->d->ops->host_free(f->d, f->host_logits);
    mem_free(f->rows);
    mem_free(f->ids);
    mem_free(f);
}

/* ---- products with adapters ---- */

bool fwd_has_lora(const struct forward *f, const struct weight *w) {
    const struct weight *a, *b;
    float scale;
    for (int32_t i = 0; f->runs && i < f->n_span; i++)
        for (int32_t k = 0; k < f->runs[i].n_lora; k++)
            if (lora_find(f->runs[i].loras[k].lora, w, &a, &b, &scale)) return true;
    return false;
}

static void add_lora(struct forward *f, const struct linear_out *o, const float *x,
                     int64_t x_stride, const struct span *s, const struct lora_use *use) {
    const struct weight *a, *b;
    float scale;
    if (!lora_find(use->lora, o->w, &a, &b, &scale)) return;
    const float *rows = x + s->row * x_stride;
    struct linear_out down = fwd_out(a, NULL, f->low, a->n_out);
    f->d->ops->linear(f->d, &down, 1, rows, x_stride, s->n_tok);
    struct linear_out up = fwd_add(b, NULL, o->dst + s->row * o->dst_stride, o->dst_stride);
    up.scale = scale * use->scale * o->scale;
    f->d->ops->linear(f->d, &up, 1, f->low, a->n_out, s->n_tok);
}

void fwd_linear(struct forward *f, const struct linear_out *o, int32_t n_o, const float *x,
                int64_t x_stride) {
    f->d->ops->linear(f->d, o, n_o, x, x_stride, f->n_tok);
    for (int32_t i = 0; f->runs && i < f->n_span; i++)
        for (int32_t k = 0; k < f->runs[i].n_lora; k++)
            for (int32_t j = 0; j < n_o; j++)
                add_lora(f, &o[j], x, x_stride, &f->spans[i], &f->runs[i].loras[k]);
}

/* ---- running ---- */

/* A block adds to f->x. Where its result is scaled first, it adds to zeros and those are added scaled. */
static void add_block(struct forward *f, void (*block)(struct forward *f, int32_t il), int32_t il) {
    float scale = f->m->hp.residual_scale, *x = f->x;
    int64_t n = (int64_t)f->n_tok * f->m->hp.n_embd;
    if (scale == 1) {
        block(f, il);
        return;
    }
    f->d->ops->zero(f->d, f->branch, (size_t)n * sizeof *x);
    f->x = f->branch;
    block(f, il);
    f->x = x;
    f->d->ops->axpby(f->d, x, scale, f->branch, 1, n);
}

/* All mixers of a layer read the same normed rows. */
static void mixers_forward(struct forward *f, int32_t il) {
    int32_t mixer = f->m->hp.layer[il].mixer;
    if (f->m->hp.layer[il].join == JOIN_MEAN) {
        layer_mean(f, il);
        return;
    }
    if (f->m->hp.layer[il].join == JOIN_SHARED) layer_shared(f, il);
    else if (mixer & MIX_ATTN) attn_forward(f, il);
    if (mixer & MIX_GDN) gdn_forward(f, il);
    if (mixer & MIX_MAMBA1) mamba1_forward(f, il);
    if (mixer & MIX_MAMBA2) mamba2_forward(f, il);
}

void layer_forward(struct forward *f, int32_t il) {
    const struct hparams *hp = &f->m->hp;
    const struct layer_weights *l = &f->m->weights.layer[il];
    const struct ops *ops = f->d->ops;
    if (hp->layer[il].mixer != MIX_NONE) {
        ops->rms_norm(f->d, f->h, f->x, l->attn_norm, f->n_tok, hp->n_embd, hp->eps);
        add_block(f, mixers_forward, il);
    }
    if (hp->layer[il].ffn != FFN_NONE && hp->layer[il].join != JOIN_SHARED) {
        ops->rms_norm(f->d, f->h, f->x, l->ffn_norm, f->n_tok, hp->n_embd, hp->eps);
        add_block(f, ffn_forward, il);
    }
}

static int check_runs(const struct forward *f, const struct run *runs, int32_t n_run,
                      struct err *e) {
    int64_t n_tok = 0, n_out = 0;
    if (n_run < 1 || n_run > FORWARD_MAX_RUNS)
        return err_set(e, CHIMERE_ELIMIT, "batch: expected 1 to %d sequences, got %d",
                       FORWARD_MAX_RUNS, n_run);
    for (int32_t i = 0; i < n_run; i++) {
        const struct run *r = &runs[i];
        if (r->n_tok < 1) return err_set(e, CHIMERE_EINVAL, "batch: a sequence without tokens");
        if (r->defer && (r->n_tok > STEP_MAX_TOK || !f->p->params.log))
            return err_set(e, CHIMERE_ELIMIT, "batch: expected at most %d tokens to verify, got %d",
                           STEP_MAX_TOK, r->n_tok);
        for (int32_t t = 0; t < r->n_tok; t++)
            if (r->tokens[t] < 0 || r->tokens[t] >= f->m->hp.n_vocab)
                return err_set(e, CHIMERE_EINVAL, "token: expected an id below %d, got %d",
                               f->m->hp.n_vocab, r->tokens[t]);
        n_tok += r->n_tok;
        n_out += r->want == WANT_ALL ? r->n_tok : r->want == WANT_LAST;
    }
    if (n_tok > f->n_tok_max || n_out > f->n_out_max)
        return err_set(e, CHIMERE_ELIMIT,
                       "batch: expected at most %d tokens and %d rows of logits, got %lld and %lld",
                       f->n_tok_max, f->n_out_max, (long long)n_tok, (long long)n_out);
    return 0;
}

static struct span span_of(const struct seq *s, int32_t row, int32_t n_tok, int64_t pos,
                           bool defer) {
    return (struct span){.row = row,
                         .n_tok = n_tok,
                         .slot = s->slot,
                         .n_replay = s->n_log,
                         .n_commit = defer ? 0 : n_tok,
                         .pos = pos,
                         .pages = s->pages};
}

/* Rows f->rows[0..n_out) of `from`, where they are if all are wanted. */
static const float *pick(struct forward *f, const float *from, int32_t n_out) {
    if (!n_out || n_out == f->n_tok) return from;
    f->d->ops->gather_rows(f->d, f->picked, from, f->rows, n_out, f->m->hp.n_embd);
    return f->picked;
}

/* Logits of n_out rows, of the first n_id ids. */
static void head(struct forward *f, const struct weight *w, int32_t n_id, const float *rows,
                 int32_t n_out, const float **logits) {
    const struct hparams *hp = &f->m->hp;
    const struct ops *ops = f->d->ops;
    f->n_out = n_out;
    if (logits) *logits = NULL;
    if (!n_out) return;
    struct weight front = *w; /* rows lie one behind the other there */
    if (n_id < w->n_out) front.n_out = n_id;
    struct linear_out o = fwd_out(n_id < w->n_out ? &front : w, NULL, f->logits, hp->n_vocab);
    o.scale = hp->logit_scale;
    ops->linear(f->d, &o, 1, rows, hp->n_embd, n_out);
    if (!logits) return;
    *logits = f->logits;
    if (!f->host_logits) return;
    ops->download(f->d, f->host_logits, f->logits,
                  (size_t)n_out * (size_t)hp->n_vocab * sizeof(float));
    *logits = f->host_logits;
}

/* A layer's experts cross the bus, or the processor multiplies them. With b bytes a weight, 25 GB/s of the bus
 * and 0.5 T products a second of the processor, the bus is quicker from 20 b rows an expert on: 9 of them at
 * three and a half bits. Fixed, and never for steps: where a batch is computed shows in its last bits. */
bool forward_brings(const struct hparams *hp, int32_t n_tok) {
    return n_tok > STEP_MAX_TOK &&
           (int64_t)n_tok * hp->moe.n_used >= (int64_t)BRING_ROWS * hp->moe.n_expert;
}

/* f->x from embedding to the last layer. A device begins with the first layers while the host records more, and goes on
 * with those while it records the others: 250 launches take the host longer than three layers take a fast GPU. */
enum { FIRST_LAYERS = 2, MORE_LAYERS = 10 };
static void run_layers(struct forward *f) {
    const struct hparams *hp = &f->m->hp;
    f->brings = f->m->weights.places[0] && forward_brings(hp, f->n_tok);
    if (f->brings) ffn_bring_first(f);
    if (f->embd)
        f->d->ops->copy(f->d, f->embd, f->x, (size_t)f->n_tok * (size_t)hp->n_embd * sizeof(float));
    for (int32_t il = 0; il < hp->n_layer; il++) {
        layer_forward(f, il);
        bool begins = il + 1 == FIRST_LAYERS || il + 1 == MORE_LAYERS;
        if (begins && f->d->ops->start) f->d->ops->start(f->d);
    }
}

/* Computes the rows in front of every sequence, once for the pool, by the kernels of single steps: the
 * bits do not depend on the size of batches. */
static int run_meta(struct forward *f, struct err *e) {
    const struct hparams *hp = &f->m->hp;
    if (!f->p || !hp->n_meta || f->p->meta) return 0;
    int rc = seq_new_meta(f->p, e);
    struct seq *s = f->p->meta;
    f->runs = NULL;
    f->n_span = 1;
    while (!rc && s->pos < hp->n_meta) {
        int64_t n = hp->n_meta - s->pos;
        if (n > STEP_MAX_TOK) n = STEP_MAX_TOK;
        if (n > f->n_tok_max) n = f->n_tok_max;
        if (n > f->p->params.n_ctx) n = f->p->params.n_ctx;
        rc = seq_reserve(s, n, e);
        if (rc) break;
        f->n_tok = (int32_t)n;
        f->spans[0] = span_of(s, 0, f->n_tok, s->pos, false);
        for (int32_t i = 0; i < f->n_tok; i++) f->ids[i] = (int32_t)s->pos + i;
        f->d->ops->embed(f->d, f->x, &f->m->weights.global.meta_embd, f->ids, f->n_tok,
                         hp->embd_scale);
        run_layers(f);
        s->pos += n;
        rc = f->d->ops->status(f->d, e);
    }
    return rc;
}

int forward_run(struct forward *f, const struct run *runs, int32_t n_run, const float **logits,
                struct err *e) {
    const struct hparams *hp = &f->m->hp;
    const struct ops *ops = f->d->ops;
    const struct global_weights *g = &f->m->weights.global;
    int rc = check_runs(f, runs, n_run, e);
    for (int32_t i = 0; !rc && i < n_run; i++) rc = seq_reserve(runs[i].seq, runs[i].n_tok, e);
    if (rc) return rc;

    f->runs = runs;
    f->n_span = n_run;
    f->n_tok = 0;
    int32_t n_out = 0;
    for (int32_t i = 0; i < n_run; i++) {
        const struct run *r = &runs[i];
        f->spans[i] = span_of(r->seq, f->n_tok, r->n_tok, r->seq->pos, r->defer);
        memcpy(f->ids + f->n_tok, r->tokens, (size_t)r->n_tok * sizeof *f->ids);
        for (int32_t t = 0; t < r->n_tok; t++)
            if (r->want == WANT_ALL || (r->want == WANT_LAST && t == r->n_tok - 1))
                f->rows[n_out++] = f->n_tok + t;
        f->n_tok += r->n_tok;
    }

    ops->embed(f->d, f->x, &g->token_embd, f->ids, f->n_tok, hp->embd_scale);
    run_layers(f);
    ops->rms_norm(f->d, f->hidden, f->x, g->output_norm, f->n_tok, hp->n_embd, hp->eps);
    head(f, &g->output, hp->n_vocab, pick(f, f->hidden, n_out), n_out, logits);

    for (int32_t i = 0; i < n_run; i++) {
        runs[i].seq->pos += runs[i].n_tok;
        runs[i].seq->n_log = runs[i].defer ? runs[i].n_tok : 0;
    }
    f->runs = NULL;
    struct dev *host = f->m->weights.host;
    if (host && host->ops->status(host, e)) return e ? e->code : CHIMERE_EDEVICE;
    return logits || !n_out ? ops->status(f->d, e) : 0;
}

int forward_select(struct forward *f, struct select_args *a, struct err *e) {
    a->logits = f->logits;
    a->n_row = f->n_out;
    a->n_vocab = f->m->hp.n_vocab;
    f->d->ops->select(f->d, a);
    return f->d->ops->status(f->d, e);
}

const float *forward_row(struct forward *f, int32_t i, struct err *e) {
    size_t at = (size_t)i * (size_t)f->m->hp.n_vocab;
    if (!f->host_logits) return f->logits + at;
    f->d->ops->download(f->d, f->host_logits + at, f->logits + at,
                        (size_t)f->m->hp.n_vocab * sizeof(float));
    return f->d->ops->status(f->d, e) ? NULL : f->host_logits + at;
}

const float *forward_hidden(const struct forward *f) { return f->hidden; }

float *forward_seq_hidden(struct forward *f, struct seq *s) {
    return f->p->hidden ? f->p->hidden + (int64_t)s->slot * f->m->hp.n_embd : NULL;
}

/* ---- multi-token prediction ---- */

int forward_mtp(struct forward *f, const struct mtp_run *runs, int32_t n_run, int32_t n_id,
                const float **logits, const float **hidden, struct err *e) {
    const struct hparams *hp = &f->m->hp;
    const struct ops *ops = f->d->ops;
    int32_t il = hp->n_layer, d = hp->n_embd, n_out = 0;
    if (!hp->n_nextn) return err_set(e, CHIMERE_EUNSUPPORTED, "this model has no prediction block");
    const struct layer_weights *l = &f->m->weights.layer[il];
    const struct global_weights *g = &f->m->weights.global;
    f->runs = NULL;
    f->n_span = n_run;
    f->n_tok = 0;
    for (int32_t i = 0; i < n_run; i++) {
        const struct mtp_run *r = &runs[i];
        if (f->n_tok + r->n_tok > f->n_tok_max || n_out >= f->n_out_max)
            return err_set(e, CHIMERE_ELIMIT, "prediction: batch too large");
        f->spans[i] = span_of(r->seq, f->n_tok, r->n_tok, r->pos, false);
        memcpy(f->ids + f->n_tok, r->tokens, (size_t)r->n_tok * sizeof *f->ids);
        ops->copy(f->d, f->h + (int64_t)f->n_tok * d, r->hidden,
                  (size_t)r->n_tok * (size_t)d * sizeof(float));
        f->n_tok += r->n_tok;
        if (r->want) f->rows[n_out++] = f->n_tok - 1;
    }
    /* x = eh_proj [norm(embedding) | norm(hidden)] as two products into one row */
    ops->embed(f->d, f->x, l->nextn.embd.data ? &l->nextn.embd : &g->token_embd, f->ids, f->n_tok,
               hp->embd_scale);
    ops->rms_norm(f->d, f->x, f->x, l->nextn.enorm, f->n_tok, d, hp->eps);
    ops->rms_norm(f->d, f->h, f->h, l->nextn.hnorm, f->n_tok, d, hp->eps);
    for (int32_t t = 0; t < f->n_tok; t++) {
        float *row = f->pair + (int64_t)t * 2 * d;
        ops->copy(f->d, row, f->x + (int64_t)t * d, (size_t)d * sizeof(float));
        ops->copy(f->d, row + d, f->h + (int64_t)t * d, (size_t)d * sizeof(float));
    }
    const struct linear_out join = fwd_out(&l->nextn.eh_proj, NULL, f->x, d);
    fwd_linear(f, &join, 1, f->pair, 2 * (int64_t)d);
    if (!n_out) { /* nobody reads what the block says: its keys and values are all that later pairs need */
        ops->rms_norm(f->d, f->h, f->x, l->attn_norm, f->n_tok, d, hp->eps);
        attn_project(f, il, f->h, d);
        attn_store(f, il);
        *hidden = NULL;
        if (logits) *logits = NULL;
        return ops->status(f->d, e);
    }
    layer_forward(f, il);
    const float *norm = l->nextn.head_norm ? l->nextn.head_norm : g->output_norm;
    ops->rms_norm(f->d, f->x, f->x, norm, f->n_tok, d, hp->eps);
    *hidden = pick(f, f->x, n_out);
    head(f, l->nextn.head.data ? &l->nextn.head : &g->output, n_id, *hidden, n_out, logits);
    return ops->status(f->d, e);
}

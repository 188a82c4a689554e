/* forward.c: the loop over layers. A request's life: scheduler -> here -> block_*.c -> ops.
 *
 * tokens -> embedding -> for each layer: x += mixer(norm(x)); x += ffn(norm(x)) -> norm ->
 * logits of the requested rows. */
#include "model/forward.h"

#include <string.h>

#include "base/err.h"
#include "kernels/link.h"
#include "model/block/block_impl.h"
#include "model/draft_head.h"

/* ---- products with adapters ---- */

bool fwd_has_lora(const struct forward *f, const struct weight *w) {
    const struct weight *a, *b;
    float scale;
    for (int32_t i = 0; f->runs && i < f->n_span; i++)
        for (int32_t k = 0; k < f->runs[i].n_lora; k++)
            if (lora_find(f->runs[i].loras[k].lora, f->m, w, &a, &b, &scale)) return true;
    return false;
}

static void add_lora(struct forward *f, const struct linear_out *o, const float *x,
                     int64_t x_stride, const struct span *s, const struct lora_use *use) {
    const struct weight *a, *b;
    float scale;
    if (!lora_find(use->lora, f->m, o->w, &a, &b, &scale)) return;
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

/* A block adds to f->x. If its result must first be summed over devices, normalized or scaled, the block adds to
 * zeros instead. block NULL: only other devices have it. A sum leaves zeros for the next block. */
static void add_block(struct forward *f, void (*block)(struct forward *f, int32_t il), int32_t il,
                      const float *post_norm, bool sums) {
    const struct hparams *hp = &f->m->hp;
    float *x = f->stream = f->x;
    int64_t n = (int64_t)f->n_tok * hp->n_embd;
    if (hp->residual_scale == 1 && !post_norm && !sums) {
        block(f, il);
        return;
    }
    if (!f->has_zeros) f->d->ops->zero(f->d, f->branch, (size_t)n * sizeof *x);
    f->has_zeros = sums && !post_norm;
    f->x = f->branch;
    if (block) block(f, il);
    f->x = x;
    if (sums) link_sum(f->link, f->rank, f->branch, n, post_norm ? NULL : x, hp->residual_scale);
    if (f->has_zeros) return;
    if (post_norm)
        f->d->ops->rms_norm(f->d, f->branch, f->branch, post_norm, f->n_tok, hp->n_embd, hp->eps);
    f->d->ops->axpby(f->d, x, hp->residual_scale, f->branch, 1, n);
}

static bool runs_here(const struct block *b, const struct layer_shape *l) {
    return b->is_in(l) && !(b->within >> l->join & 1);
}

void fwd_blocks(struct forward *f, const struct block *const *table, int32_t il) {
    for (; *table; table++)
        if (runs_here(*table, &f->m->hp.layer[il])) (*table)->forward(f, il);
}

/* All mixers of a layer read the same normalized rows. */
static void mixers(struct forward *f, int32_t il) { fwd_blocks(f, mixer_blocks, il); }
static void feed_forward(struct forward *f, int32_t il) { fwd_blocks(f, ffn_blocks, il); }
static void last(struct forward *f, int32_t il) { fwd_blocks(f, last_blocks, il); }

static bool has_block(const struct forward *f, const struct block *const *table, int32_t il) {
    while (*table && !runs_here(*table, &f->m->hp.layer[il])) table++;
    return *table != NULL;
}

/* Runs the mixers or the feed-forward block of a layer, which read the normalized rows. */
static void half(struct forward *f, int32_t il, const struct block *const *table,
                 void (*run)(struct forward *f, int32_t il), uint8_t sum, const float *norm,
                 const float *post_norm) {
    const struct hparams *hp = &f->m->hp;
    bool has = has_block(f, table, il), sums = f->link && hp->layer[il].sums & sum;
    if (has && norm) f->d->ops->rms_norm(f->d, f->h, f->x, norm, f->n_tok, hp->n_embd, hp->eps);
    else if (has)
        f->d->ops->copy(f->d, f->h, f->x, (size_t)f->n_tok * (size_t)hp->n_embd * sizeof *f->h);
    if (has || sums) add_block(f, has ? run : NULL, il, post_norm, sums);
}

void layer_forward(struct forward *f, int32_t il) {
    const struct layer_weights *l = &f->m->weights.layer[il];
    half(f, il, mixer_blocks, mixers, SUM_MIXERS, l->attn_norm, l->attn_post_norm);
    half(f, il, ffn_blocks, feed_forward, SUM_FEED_FORWARD, l->ffn_norm, l->ffn_post_norm);
    const struct layer_shape *shape = &f->m->hp.layer[il];
    if (shape->has_ple) add_block(f, last, il, l->ple.norm, false);
    if (shape->out_scale != 0)
        f->d->ops->axpby(f->d, f->x, shape->out_scale, f->x, 0,
                         (int64_t)f->n_tok * f->m->hp.n_embd);
}

static int check_runs(const struct forward *f, const struct batch_item *runs, int32_t n_run,
                      struct err *e) {
    int64_t n_tok = 0, n_out = 0;
    if (n_run < 1 || n_run > FORWARD_MAX_RUNS)
        return err_set(e, CHIMERE_ELIMIT, "batch: expected 1 to %d sequences, got %d",
                       FORWARD_MAX_RUNS, n_run);
    for (int32_t i = 0; i < n_run; i++) {
        const struct batch_item *r = &runs[i];
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

/* Rows f->rows[0..n_out) of `from`: copied, or in place if all rows are requested. */
static const float *pick(struct forward *f, const float *from, int32_t n_out) {
    if (!n_out || n_out == f->n_tok) return from;
    f->d->ops->gather_rows(f->d, f->picked, from, f->rows, n_out, f->m->hp.n_embd);
    return f->picked;
}

/* Logits of n_out rows, for the first n_id ids. join: where the logits of all slices meet, or NULL. */
static void head(struct forward *f, const struct weight *w, int32_t n_id, const float *rows,
                 int32_t n_out, float *join, const float **logits) {
    const struct hparams *hp = &f->m->hp;
    const struct ops *ops = f->d->ops;
    f->n_out = n_out;
    f->n_logit = n_id;
    if (logits) *logits = NULL;
    if (!n_out) return;
    struct weight front = *w; /* on a host device, rows are adjacent */
    if (n_id < w->n_out) front.n_out = n_id;
    struct linear_out o = fwd_out(n_id < w->n_out ? &front : w, NULL, f->logits, n_id);
    o.scale = hp->logit_scale;
    o.scale /= hp->logit_cap > 0 ? hp->logit_cap : 1;
    ops->linear(f->d, &o, 1, rows, hp->n_embd, n_out);
    if (hp->logit_cap > 0) {
        int64_t n = (int64_t)n_out * n_id;
        ops->act_mul(f->d, f->logits, f->logits, NULL, n, ACT_TANH);
        ops->axpby(f->d, f->logits, hp->logit_cap, f->logits, 0, n);
    }
    if (!logits && join) link_rows(f->link, f->rank, join, f->join_stride, f->logits, n_out, n_id);
    if (!logits) return;
    *logits = f->logits;
    if (!f->host_logits) return;
    ops->download(f->d, f->host_logits, f->logits, (size_t)n_out * (size_t)n_id * sizeof(float));
    *logits = f->host_logits;
}

static bool wants_taps(const struct forward *f) {
    bool wants = !f->runs;
    for (int32_t i = 0; !wants && i < f->n_span; i++) wants = !f->runs[i].no_taps;
    return wants;
}

static void keep_taps(struct forward *f, int32_t il) {
    for (int32_t i = 0; i < f->n_tap && wants_taps(f); i++)
        if (f->tap_layer[i] == il)
            f->d->ops->copy(f->d, (float *)taps_kept(f, i), f->x,
                            (size_t)f->n_tok * (size_t)f->m->hp.n_embd * sizeof(float));
}

/* Computes f->x from the embedding to the last layer. Flushes after layers 2 and 10, so that the GPU starts while the
 * host still records: recording 250 launches takes longer than executing three layers. */
enum { FIRST_LAYERS = 2, MORE_LAYERS = 10 };
static void run_layers(struct forward *f) {
    const struct hparams *hp = &f->m->hp;
    experts_begin(f->experts, f->spans, f->runs ? f->keep : NULL, f->n_span, f->n_tok);
    if (f->embd)
        f->d->ops->copy(f->d, f->embd, f->x, (size_t)f->n_tok * (size_t)hp->n_embd * sizeof(float));
    if (hp->n_ple) block_ple_begin(f);
    for (int32_t il = 0; il < hp->n_layer; il++) {
        layer_forward(f, il);
        keep_taps(f, il);
        bool begins = il + 1 == FIRST_LAYERS || il + 1 == MORE_LAYERS;
        if (begins && f->d->ops->flush) f->d->ops->flush(f->d);
    }
}

/* Computes the rows that precede every sequence, once per pool, with the kernels for single steps: their bits
 * then do not depend on batch sizes. */
int forward_run_meta(struct forward *f, struct err *e) {
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

int forward_run(struct forward *f, const struct batch_item *runs, int32_t n_run,
                const float **logits, struct err *e) {
    return forward_run_part(f, runs, n_run, NULL, NULL, logits, e);
}

int forward_run_part(struct forward *f, const struct batch_item *runs, int32_t n_run,
                     const float *in, float *out, const float **logits, struct err *e) {
    const struct hparams *hp = &f->m->hp;
    const struct ops *ops = f->d->ops;
    const struct global_weights *g = &f->m->weights.global;
    int rc = check_runs(f, runs, n_run, e);
    for (int32_t i = 0; !rc && i < n_run; i++) rc = seq_reserve(runs[i].seq, runs[i].n_tok, e);
    if (rc) return rc;

    f->runs = runs;
    f->n_span = n_run;
    f->n_tok = 0;
    f->has_zeros = false; /* a shorter batch, or one that failed, leaves others */
    int32_t n_out = 0;
    for (int32_t i = 0; i < n_run; i++) {
        const struct batch_item *r = &runs[i];
        f->spans[i] = span_of(r->seq, f->n_tok, r->n_tok, r->seq->pos, r->defer);
        f->keep[i] = r->keep;
        memcpy(f->ids + f->n_tok, r->tokens, (size_t)r->n_tok * sizeof *f->ids);
        for (int32_t t = 0; t < r->n_tok; t++)
            if (r->want == WANT_ALL || (r->want == WANT_LAST && t == r->n_tok - 1))
                f->rows[n_out++] = f->n_tok + t;
        f->n_tok += r->n_tok;
    }

    size_t n_bytes = (size_t)f->n_tok * (size_t)hp->n_embd * sizeof(float);
    if (in) ops->upload(f->d, f->x, in, n_bytes);
    else ops->embed(f->d, f->x, &g->token_embd, f->ids, f->n_tok, hp->embd_scale);
    run_layers(f);
    if (out) {
        ops->download(f->d, out, f->x, n_bytes);
    } else {
        ops->rms_norm(f->d, f->hidden, f->x, g->output_norm, f->n_tok, hp->n_embd, hp->eps);
        head(f, &g->output, hp->n_logit, pick(f, f->hidden, n_out), n_out, f->join, logits);
    }

    for (int32_t i = 0; i < n_run; i++) {
        runs[i].seq->pos += runs[i].n_tok;
        runs[i].seq->n_log = runs[i].defer ? runs[i].n_tok : 0;
    }
    f->runs = NULL;
    rc = experts_status(f->experts, e);
    if (!rc) rc = gguf_check(f->m->gguf, e);
    /* report the cause, not that other ranks are missing */
    if (!rc && f->link) rc = ops->status(f->d, e);
    if (!rc && f->link) rc = link_status(f->link, e);
    if (rc) return rc;
    return logits || !n_out || out ? ops->status(f->d, e) : 0;
}

int forward_select(struct forward *f, struct select_args *a, struct err *e) {
    a->logits = f->logits;
    a->n_row = f->n_out;
    a->n_vocab = f->n_logit;
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

void forward_link(struct forward *f, struct link *l, int32_t rank) {
    f->link = l;
    f->rank = rank;
}

void forward_join(struct forward *f, float *logits, int64_t stride) {
    f->join = logits;
    f->join_stride = stride;
}

const float *forward_hidden(const struct forward *f) { return f->hidden; }

struct experts *forward_experts(struct forward *f) {
    return f->experts;
}

int forward_gather(struct forward *f, const float *own, int32_t n, float *all, struct err *e) {
    int32_t n_all = n * link_n_rank(f->link);
    size_t bytes = (size_t)n_all * sizeof *all;
    if (n_all > f->n_tok_max * f->m->hp.n_embd)
        return err_set(e, CHIMERE_ELIMIT, "gather: %d floats are too many", n_all);
    f->has_zeros = false; /* branch is scratch between runs */
    f->d->ops->zero(f->d, f->branch, bytes);
    f->d->ops->upload(f->d, f->branch + (int64_t)f->rank * n, own, (size_t)n * sizeof *own);
    link_sum(f->link, f->rank, f->branch, n_all, NULL, 1);
    f->d->ops->download(f->d, all, f->branch, bytes);
    int rc = f->d->ops->status(f->d, e);
    return rc ? rc : link_status(f->link, e);
}

/* ---- multi-token prediction ---- */

int forward_mtp(struct forward *f, const struct mtp_item *runs, int32_t n_run, const float **logits,
                const float **hidden, struct err *e) {
    const struct hparams *hp = &f->m->hp;
    const struct ops *ops = f->d->ops;
    int32_t il = hp->n_layer, d = hp->n_embd, n_out = 0;
    if (!hp->n_nextn) return err_set(e, CHIMERE_EUNSUPPORTED, "this model has no prediction block");
    const struct layer_weights *l = &f->m->weights.layer[il];
    const struct global_weights *g = &f->m->weights.global;
    f->runs = NULL;
    f->has_zeros = false;
    f->n_span = n_run;
    f->n_tok = 0;
    for (int32_t i = 0; i < n_run; i++) {
        const struct mtp_item *r = &runs[i];
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
    if (!n_out) { /* logits not needed: later pairs only need this block's keys and values */
        *hidden = NULL;
        if (logits) *logits = NULL;
        if (!(hp->layer[il].mixer & MIX_ATTN)) return 0; /* another slice has them */
        ops->rms_norm(f->d, f->h, f->x, l->attn_norm, f->n_tok, d, hp->eps);
        block_attn_project(f, il, f->h, d);
        block_attn_store(f, il);
        return ops->status(f->d, e);
    }
    layer_forward(f, il);
    const float *norm = l->nextn.head_norm ? l->nextn.head_norm : g->output_norm;
    ops->rms_norm(f->d, f->x, f->x, norm, f->n_tok, d, hp->eps);
    *hidden = pick(f, f->x, n_out);
    const struct weight *out = l->nextn.head.data ? &l->nextn.head : &g->output;
    if (f->m->draft_head.data) out = &f->m->draft_head;
    head(f, out, draft_head_n_id(f->m), *hidden, n_out, NULL, logits);
    if (!logits && !f->link) return 0;
    int rc = ops->status(f->d, e);
    return rc || !f->link ? rc : link_status(f->link, e);
}

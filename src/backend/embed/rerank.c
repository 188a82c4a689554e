/* rerank.c: see rerank.h. */
#include "backend/embed/rerank.h"

#include <math.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "format/quant.h"

enum { DEFAULT_CTX = 512, JUDGE_CTX = 2048, JUDGE_BATCH = 512, LEAST_CTX = 8 };

/* The published form of a question to Qwen3-Reranker, for files without one of their own. */
static const char judge_form[] =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    "the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
    "<|im_start|>user\n<Instruct>: Given a web search query, retrieve relevant passages that "
    "answer "
    "the query\n<Query>: {query}\n<Document>: {document}<|im_end|>\n<|im_start|>assistant\n"
    "<think>\n\n</think>\n\n";

/* A decoder that is asked whether the text answers the question. The form's marks are parsed in its head and tail
 * alone; what is between them, with the question and the text, is encoded as plain text. */
struct judge {
    struct seq_pool *pool; /* owned */
    struct seq *seq;       /* owned */
    int32_t *head, *tail;  /* owned */
    size_t n_head, n_tail;
    struct slice before, between, after; /* views of the form, around {query} and {document} */
    int32_t yes, no;
};

struct rerank {
    struct model *m;       /* borrowed */
    const struct tok *tok; /* borrowed */
    int32_t n_ctx;
    struct forward *f;   /* owned */
    float *out;          /* owned [n_embd]: the first value is the score */
    int32_t *ids;        /* owned [n_ctx] */
    int32_t *types;      /* owned [n_ctx]: segment, 0 for the question, 1 for the text */
    int32_t n_tok;       /* tokens of the last pair */
    struct judge *judge; /* owned; NULL: the model is an encoder */
};

/* ---- decoders ---- */

static void judge_free(struct judge *j) {
    if (!j) return;
    if (j->seq) seq_free(j->seq);
    if (j->pool) seq_pool_free(j->pool);
    mem_free(j->head);
    mem_free(j->tail);
    mem_free(j);
}

/* Splits the form at its two names, at the last mark before them and at the first mark after them. */
static int read_form(struct judge *j, const struct tok *tok, struct slice form, struct err *e) {
    static const char query[] = "{query}", document[] = "{document}";
    const char *end = form.p + form.n, *q = memmem(form.p, form.n, query, sizeof query - 1),
               *d = memmem(form.p, form.n, document, sizeof document - 1);
    if (!q || !d || d < q)
        return err_set(e, CHIMERE_EFORMAT,
                       "key tokenizer.chat_template.rerank: expected {query}, then {document}");
    const char *first = q, *after = d + sizeof document - 1;
    while (first - form.p >= 2 && memcmp(first - 2, "|>", 2) != 0) first--;
    if (first - form.p < 2) first = form.p;
    const char *last = memmem(after, (size_t)(end - after), "<|", 2);
    if (!last) last = end;
    j->before = (struct slice){first, (size_t)(q - first)};
    j->between = (struct slice){q + sizeof query - 1, (size_t)(d - q) - (sizeof query - 1)};
    j->after = (struct slice){after, (size_t)(last - after)};
    int rc =
        tok_encode(tok, form.p, (size_t)(first - form.p), true, false, &j->head, &j->n_head, e);
    if (!rc) rc = tok_encode(tok, last, (size_t)(end - last), true, false, &j->tail, &j->n_tail, e);
    return rc;
}

static int judge_open(struct rerank *r, struct err *e) {
    struct judge *j = r->judge = mem_zalloc(sizeof *j);
    const struct gguf_kv *own = gguf_find(r->m->gguf, "tokenizer.chat_template.rerank");
    struct slice form = {judge_form, sizeof judge_form - 1};
    uint64_t cursor = 0;
    if (!j) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (own && own->type == GGUF_STR) gguf_next_str(own, &cursor, &form);
    j->yes = tok_find(r->tok, "yes", 3);
    j->no = tok_find(r->tok, "no", 2);
    if (j->yes < 0 || j->no < 0)
        return err_set(e, CHIMERE_EUNSUPPORTED, "%s: expected tokens 'yes' and 'no' of a reranker",
                       r->m->name);
    int rc = read_form(j, r->tok, form, e);
    if (!rc && j->n_head + j->n_tail + LEAST_CTX > (size_t)r->n_ctx)
        rc = err_set(e, CHIMERE_EINVAL, "context: expected at least %zu tokens for a pair, got %d",
                     j->n_head + j->n_tail + LEAST_CTX, r->n_ctx);
    const struct seq_pool_params p = {
        .n_slot = 1, .n_ctx = r->n_ctx, .k_type = QUANT_F16, .v_type = QUANT_F16};
    if (!rc) rc = seq_pool_new(&j->pool, r->m, &p, e);
    if (!rc) rc = seq_new(&j->seq, j->pool, e);
    return rc;
}

/* Writes head, question and text, and tail to r->ids; cuts the text if the whole is too long. */
static int judge_join(struct rerank *r, struct slice question, struct slice text, struct err *e) {
    struct judge *j = r->judge;
    struct buf b;
    int32_t *ids = NULL;
    size_t n = 0, room = (size_t)r->n_ctx - j->n_head - j->n_tail;
    buf_init(&b, 1 << 28);
    buf_put(&b, j->before.p, j->before.n);
    buf_put(&b, question.p, question.n);
    buf_put(&b, j->between.p, j->between.n);
    buf_put(&b, text.p, text.n);
    buf_put(&b, j->after.p, j->after.n);
    int rc = b.failed ? err_set(e, CHIMERE_ENOMEM, "rerank: out of memory for a pair") : 0;
    if (!rc) rc = tok_encode(r->tok, b.p, b.n, false, false, &ids, &n, e);
    if (!rc) {
        if (n > room) n = room;
        memcpy(r->ids, j->head, j->n_head * sizeof *ids);
        memcpy(r->ids + j->n_head, ids, n * sizeof *ids);
        memcpy(r->ids + j->n_head + n, j->tail, j->n_tail * sizeof *ids);
        r->n_tok = (int32_t)(j->n_head + n + j->n_tail);
    }
    mem_free(ids);
    buf_fini(&b);
    return rc;
}

static int judge_score(struct rerank *r, float *score, struct err *e) {
    const float *logits = NULL;
    seq_reset(r->judge->seq);
    for (int32_t at = 0; at < r->n_tok; at += JUDGE_BATCH) {
        int32_t n = r->n_tok - at < JUDGE_BATCH ? r->n_tok - at : JUDGE_BATCH;
        const struct batch_item run = {.seq = r->judge->seq,
                                       .tokens = r->ids + at,
                                       .n_tok = n,
                                       .want = at + n == r->n_tok ? WANT_LAST : WANT_NONE};
        int rc = forward_run(r->f, &run, 1, &logits, e);
        if (rc) return rc;
    }
    if (!logits) return err_set(e, CHIMERE_EINVAL, "rerank: expected a pair, got no tokens");
    *score = logits[r->judge->yes] - logits[r->judge->no];
    return 0;
}

/* ---- both ---- */

int rerank_open(struct rerank **out, struct model *m, const struct tok *tok, int32_t n_ctx,
                struct err *e) {
    const struct hparams *hp = &m->hp;
    *out = NULL;
    if (hp->pooling != POOL_RANK) {
        err_set(e, CHIMERE_EUNSUPPORTED, "%s scores no pairs of texts", m->name);
        err_hint(e, "a reranker is expected: BERT, RoBERTa, DistilBERT or ModernBERT for sequence "
                    "classification with one label, or Qwen3-Reranker");
        return CHIMERE_EUNSUPPORTED;
    }
    struct rerank *r = mem_zalloc(sizeof *r);
    if (!r) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    r->m = m;
    r->tok = tok;
    r->n_ctx = n_ctx ? n_ctx : hp->is_causal ? JUDGE_CTX : DEFAULT_CTX;
    if (r->n_ctx > hp->n_ctx_train) r->n_ctx = hp->n_ctx_train;
    int rc = r->n_ctx < LEAST_CTX ? err_set(e, CHIMERE_EINVAL,
                                            "context: expected at least %d tokens for a pair, "
                                            "got %d",
                                            LEAST_CTX, r->n_ctx)
                                  : 0;
    r->out = mem_alloc_array((size_t)hp->n_embd, sizeof *r->out);
    r->ids = mem_alloc_array((size_t)r->n_ctx, sizeof *r->ids);
    r->types = mem_alloc_array((size_t)r->n_ctx, sizeof *r->types);
    if (!rc && (!r->out || !r->ids || !r->types)) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc && hp->is_causal) rc = judge_open(r, e);
    int32_t batch = r->judge && r->n_ctx > JUDGE_BATCH ? JUDGE_BATCH : r->n_ctx;
    if (!rc) rc = forward_new(&r->f, m, r->judge ? r->judge->pool : NULL, batch, 1, e);
    if (rc) rerank_close(r);
    else *out = r;
    return rc;
}

void rerank_close(struct rerank *r) {
    if (!r) return;
    if (r->f) forward_free(r->f);
    judge_free(r->judge);
    mem_free(r->out);
    mem_free(r->ids);
    mem_free(r->types);
    mem_free(r);
}

/* Builds [CLS] question [SEP] text [SEP] from two texts with their marks, without the first mark of the second. Models
 * without segments (RoBERTa and similar) have a second end mark in its place. */
static int32_t join(struct rerank *r, const int32_t *a, size_t n_a, const int32_t *b, size_t n_b) {
    size_t n = 0, room = (size_t)r->n_ctx, most_a = room / 2;
    if (n_a + n_b > room && n_a > most_a) {
        for (; n < most_a - 1; n++) r->ids[n] = a[n];
        r->ids[n++] = a[n_a - 1];
    } else {
        for (; n < n_a; n++) r->ids[n] = a[n];
    }
    size_t first = n;
    for (size_t i = 0; i < n_b && n < room; i++) r->ids[n++] = b[i];
    if (n == room && n_b) r->ids[room - 1] = b[n_b - 1]; /* keep the end mark when cutting */
    bool two = r->m->hp.n_token_type > 1;
    for (size_t i = 0; i < n; i++) r->types[i] = two && i >= first;
    return (int32_t)n;
}

int rerank_score(struct rerank *r, const char *question, size_t n_question, const char *text,
                 size_t n_text, float *score, struct err *e) {
    int32_t *a = NULL, *b = NULL;
    size_t n_a = 0, n_b = 0;
    if (r->judge) {
        int rc =
            judge_join(r, (struct slice){question, n_question}, (struct slice){text, n_text}, e);
        if (!rc) rc = judge_score(r, score, e);
        if (rc) return rc;
        return isfinite(*score) ? 0
                                : err_set(e, CHIMERE_ENUMERIC, "rerank: expected a finite score");
    }
    int rc = tok_encode(r->tok, question, n_question, false, true, &a, &n_a, e);
    if (!rc) rc = tok_encode(r->tok, text, n_text, false, true, &b, &n_b, e);
    if (!rc && (!n_a || n_b < 2)) rc = err_set(e, CHIMERE_EINVAL, "rerank: expected two texts");
    if (!rc) {
        size_t skip = r->m->hp.n_token_type == 1 && tok_eos(r->tok) >= 0 ? 0 : 1;
        if (!skip) b[0] = tok_eos(r->tok);
        const struct encode_text t = {.tokens = r->ids,
                                      .types = r->m->hp.n_token_type ? r->types : NULL,
                                      .n_tok = r->n_tok = join(r, a, n_a, b + skip, n_b - skip)};
        rc = forward_encode(r->f, &t, 1, r->out, e);
    }
    mem_free(a);
    mem_free(b);
    if (rc) return rc;
    *score = r->out[0];
    return isfinite(*score) ? 0 : err_set(e, CHIMERE_ENUMERIC, "rerank: expected a finite score");
}

int32_t rerank_n_tok(const struct rerank *r) { return r->n_tok; }

/* rerank.c: see rerank.h. */
#include "backend/rerank.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

enum { DEFAULT_CTX = 512, LEAST_CTX = 8 };

struct rerank {
    struct model *m;       /* borrowed */
    const struct tok *tok; /* borrowed */
    int32_t n_ctx;
    struct forward *f; /* owned */
    float *out;        /* owned [n_embd]: the first value is the score */
    int32_t *ids;      /* owned [n_ctx] */
    int32_t *types;    /* owned [n_ctx]: segment, 0 for the question, 1 for the text */
    int32_t n_tok;     /* tokens of the last pair */
};

int rerank_open(struct rerank **out, struct model *m, const struct tok *tok, int32_t n_ctx,
                struct err *e) {
    const struct hparams *hp = &m->hp;
    *out = NULL;
    if (hp->pooling != POOL_RANK || hp->is_causal) {
        err_set(e, CHIMERE_EUNSUPPORTED, "%s scores no pairs of texts", m->name);
        err_hint(
            e, "a cross-encoder is wanted: BERT or RoBERTa for sequence classification, one label");
        return CHIMERE_EUNSUPPORTED;
    }
    struct rerank *r = mem_zalloc(sizeof *r);
    if (!r) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    r->m = m;
    r->tok = tok;
    r->n_ctx = n_ctx ? n_ctx : DEFAULT_CTX;
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
    if (!rc) rc = forward_new(&r->f, m, NULL, r->n_ctx, 1, e);
    if (rc) rerank_close(r);
    else *out = r;
    return rc;
}

void rerank_close(struct rerank *r) {
    if (!r) return;
    if (r->f) forward_free(r->f);
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

/* embed.c: see embed.h. */
#include "backend/embed/embed.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/os/topology.h"
#include "format/quant.h"
#include "llama/llama_lib.h"
#include "llama/llama_process.h"

enum { DEFAULT_CTX = 2048, CAUSAL_BATCH = 512 };

struct embed {
    struct model *m; /* borrowed; NULL: libllama has the model */
    const struct llama_shim *shim;
    struct shim_model *foreign; /* owned */
    int32_t n_embd;
    uint64_t hash;
    const struct tok *tok; /* borrowed */
    int32_t n_ctx, batch;
    struct seq_pool *pool; /* this and seq: for causal models */
    struct seq *seq;
    struct forward *f;
    float *rows; /* owned [batch, n_embd], in host memory; for causal models */
};

const struct tok *embed_tok(const struct embed *s) { return s->tok; }

int embed_open(struct embed **out, struct model *m, const struct tok *tok, int32_t n_ctx,
               struct err *e) {
    const struct hparams *hp = &m->hp;
    if (hp->pooling == POOL_RANK)
        return err_set(e, CHIMERE_EUNSUPPORTED, "%s scores pairs of texts and has no embedding",
                       m->name);
    struct embed *s = mem_zalloc(sizeof *s);
    if (!s) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    s->m = m;
    s->n_embd = arch_n_vector(hp);
    s->hash = m->hash;
    s->tok = tok;
    s->n_ctx = n_ctx ? n_ctx : DEFAULT_CTX;
    if (s->n_ctx > hp->n_ctx_train) s->n_ctx = hp->n_ctx_train;
    s->batch = hp->is_causal && s->n_ctx > CAUSAL_BATCH ? CAUSAL_BATCH : s->n_ctx;
    int rc = 0;
    if (hp->is_causal) {
        const struct seq_pool_params p = {
            .n_slot = 1, .n_ctx = s->n_ctx, .k_type = QUANT_F32, .v_type = QUANT_F32};
        rc = seq_pool_new(&s->pool, m, &p, e);
        if (!rc) rc = seq_new(&s->seq, s->pool, e);
        s->rows = mem_alloc_array((size_t)s->batch * (size_t)hp->n_embd, sizeof *s->rows);
        if (!rc && !s->rows) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    }
    if (!rc) rc = forward_new(&s->f, m, s->pool, s->batch, 1, e);
    if (rc) embed_close(s);
    else *out = s;
    return rc;
}

int embed_open_llama(struct embed **out, const struct embed_llama_params *p, struct err *e) {
    char text[LLAMA_SHIM_TEXT] = "";
    struct llama_shim_info info;
    struct embed *s = mem_zalloc(sizeof *s);
    if (!s) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    s->tok = p->tok;
    s->n_ctx = s->batch = p->n_ctx ? p->n_ctx : DEFAULT_CTX;
    s->hash = model_hash_file(p->g);
    struct topology t;
    topology_read(NULL, NULL, -1, &t);
    const struct llama_shim_params params = {.path = p->path,
                                             .n_gpu_layers = -1,
                                             .n_thread = p->n_thread ? p->n_thread : t.n_thread,
                                             .n_ctx = s->n_ctx,
                                             .n_seq = 1,
                                             .n_batch = s->n_ctx,
                                             .n_out = s->n_ctx,
                                             .k_type = QUANT_F16,
                                             .v_type = QUANT_F16,
                                             .embeds = true};
    int rc = p->is_process ? llama_process_open(&s->shim, p->library, e)
                           : llama_lib_open(&s->shim, p->library, NULL, e);
    if (!rc && (rc = s->shim->open(&s->foreign, &params, &info, text)))
        err_set(e, rc, "%s: %s", p->path, text);
    if (rc) {
        mem_free(s);
        return rc;
    }
    s->n_embd = info.n_embd;
    if (info.n_ctx_train > 0 && s->n_ctx > info.n_ctx_train) s->n_ctx = info.n_ctx_train;
    *out = s;
    return 0;
}

void embed_close(struct embed *s) {
    if (!s) return;
    if (s->foreign) s->shim->close(s->foreign);
    forward_free(s->f);
    if (s->seq) seq_free(s->seq);
    if (s->pool) seq_pool_free(s->pool);
    mem_free(s->rows);
    mem_free(s);
}

int32_t embed_size(const struct embed *s) { return s->n_embd; }
uint64_t embed_hash(const struct embed *s) { return s->hash; }

static int causal(struct embed *s, const int32_t *ids, int32_t n, float *out, struct err *e) {
    int32_t d = s->m->hp.n_embd;
    enum pooling pooling = s->m->hp.pooling;
    const struct ops *ops = s->m->dev->ops;
    memset(out, 0, (size_t)d * sizeof *out);
    seq_reset(s->seq);
    for (int32_t at = 0; at < n; at += s->batch) {
        int32_t n_tok = n - at < s->batch ? n - at : s->batch;
        const struct batch_item run = {.seq = s->seq, .tokens = ids + at, .n_tok = n_tok};
        const float *logits;
        int rc = forward_run(s->f, &run, 1, &logits, e);
        if (rc) return rc;
        ops->download(s->m->dev, s->rows, forward_hidden(s->f),
                      (size_t)n_tok * (size_t)d * sizeof *s->rows);
        for (int32_t t = 0; t < n_tok; t++) {
            bool taken = pooling == POOL_LAST  ? at + t == n - 1
                         : pooling == POOL_CLS ? at + t == 0
                                               : true;
            float share = pooling == POOL_LAST || pooling == POOL_CLS ? 1 : 1 / (float)n;
            for (int32_t i = 0; taken && i < d; i++) out[i] += share * s->rows[t * d + i];
        }
    }
    return 0;
}

static int scale_to_one(float *x, int32_t n, bool normalise, struct err *e) {
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    if (!isfinite(sum)) return err_set(e, CHIMERE_ENUMERIC, "embedding: expected finite numbers");
    float scale = normalise && sum > 0 ? (float)(1 / sqrt(sum)) : 1;
    for (int32_t i = 0; i < n; i++) x[i] *= scale;
    return 0;
}

static int evaluate(struct embed *s, const int32_t *ids, int32_t n, float *out, struct err *e) {
    char text[LLAMA_SHIM_TEXT] = "";
    if (s->m && s->m->hp.is_causal) return causal(s, ids, n, out, e);
    if (s->m) {
        const struct encode_text t = {.tokens = ids, .n_tok = n};
        return forward_encode(s->f, &t, 1, out, e);
    }
    int rc = s->shim->embed(s->foreign, ids, n, out, text);
    return rc ? err_set(e, rc, "%s", text) : 0;
}

/* Returns whether the last token is an end mark; a truncated text must end with the mark too. */
static bool has_end(const struct embed *s, int32_t last) {
    if (s->m && !s->m->hp.is_causal) return true;
    return last == tok_eos(s->tok) || (!s->m && tok_kind(s->tok, last) == TOK_CONTROL);
}

int embed_text(struct embed *s, const char *text, size_t n, bool normalise, float *out,
               int32_t *n_tok, bool *cut, struct err *e) {
    int32_t *ids = NULL;
    size_t n_id = 0;
    int rc = tok_encode(s->tok, text, n, false, true, &ids, &n_id, e);
    if (!rc && !n_id) memset(out, 0, (size_t)s->n_embd * sizeof *out);
    *cut = n_id > (size_t)s->n_ctx;
    if (!rc && *cut) { /* keep the end mark */
        if (has_end(s, ids[n_id - 1])) ids[s->n_ctx - 1] = ids[n_id - 1];
        n_id = (size_t)s->n_ctx;
    }
    *n_tok = (int32_t)n_id;
    if (!rc && n_id) rc = evaluate(s, ids, *n_tok, out, e);
    mem_free(ids);
    return rc ? rc : scale_to_one(out, s->n_embd, normalise, e);
}

/* ramp_text.c: see ramp_text.h. */
#include "ramp/ramp_text.h"

#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/rng.h"
#include "format/quant.h"
#include "model/seq/seq.h"
#include "model/vocab.h"

enum { MAX_SEQS = 64 };

int ramp_text_read(struct windows_text *out, const struct model *m, const char *path, size_t n_tok,
                   struct err *e) {
    *out = (struct windows_text){.ctx = RAMP_CTX};
    struct tok *tok = NULL;
    char *text = NULL;
    size_t n = 0;
    int rc = vocab_load(&tok, m->gguf, e);
    if (!rc) rc = file_read(path, WINDOWS_MAX_TEXT, &text, &n, e);
    if (!rc) rc = windows_cut(out, tok, text, n, RAMP_CTX, e);
    if (rc) err_prefix(e, "%s", path);
    mem_free(text);
    tok_free(tok);
    if (rc) return rc;
    size_t want = n_tok / RAMP_CTX ? n_tok / RAMP_CTX : 1, have = out->n_window;
    if (want >= have) return 0;
    for (size_t i = 0; i < want; i++)
        memmove(out->tokens + i * RAMP_CTX, out->tokens + i * have / want * RAMP_CTX,
                RAMP_CTX * sizeof *out->tokens);
    out->n_window = want;
    return 0;
}

int ramp_text_hash(const char *path, uint64_t *hash, struct err *e) {
    struct file_map text;
    int rc = file_map(&text, path, e);
    if (rc) return rc;
    *hash = hash_bytes(text.data, (size_t)text.size, 1);
    file_unmap(&text);
    return 0;
}

static int32_t sample(const float *x, int32_t n, double u) {
    float top = x[0];
    for (int32_t i = 1; i < n; i++) top = x[i] > top ? x[i] : top;
    double sum = 0, at = 0;
    for (int32_t i = 0; i < n; i++) sum += (double)expf(x[i] - top);
    for (int32_t i = 0; i < n; i++)
        if ((at += (double)expf(x[i] - top)) >= u * sum) return i;
    return n - 1;
}

struct writer {
    struct model *m;
    struct forward *f;
    struct seq_pool *pool;
    struct seq *seqs[MAX_SEQS];
    struct pool *threads; /* owned */
    struct rng rng;
    int32_t bos;
    /* the current forward: rows of logits, a uniform number and the token drawn for each */
    const float *rows;
    int32_t n, tokens[MAX_SEQS];
    double uniform[MAX_SEQS];
};

static void draw(void *arg, int ith, int n_thread) {
    struct writer *w = arg;
    int32_t n_vocab = w->m->hp.n_vocab;
    for (int32_t i = ith; i < w->n; i += n_thread)
        w->tokens[i] = sample(w->rows + (int64_t)i * n_vocab, n_vocab, w->uniform[i]);
}

/* Windows [first, first + n) of t, one token of each per forward. */
static int write_group(struct writer *w, struct windows_text *t, size_t first, int32_t n,
                       struct err *e) {
    struct batch_item items[MAX_SEQS];
    int32_t n_vocab = w->m->hp.n_vocab;
    for (int32_t i = 0; i < n; i++) {
        seq_reset(w->seqs[i]);
        t->tokens[(first + (size_t)i) * RAMP_CTX] =
            w->bos >= 0 ? w->bos : (int32_t)rng_below(&w->rng, (uint64_t)n_vocab);
    }
    for (int32_t pos = 0; pos + 1 < RAMP_CTX; pos++) {
        for (int32_t i = 0; i < n; i++)
            items[i] =
                (struct batch_item){.seq = w->seqs[i],
                                    .tokens = t->tokens + (first + (size_t)i) * RAMP_CTX + pos,
                                    .n_tok = 1,
                                    .want = WANT_LAST};
        int rc = forward_run(w->f, items, n, &w->rows, e);
        if (rc) return rc;
        for (int32_t i = 0; i < n; i++) w->uniform[i] = rng_uniform(&w->rng);
        w->n = n;
        pool_run(w->threads, draw, w);
        for (int32_t i = 0; i < n; i++)
            t->tokens[(first + (size_t)i) * RAMP_CTX + (size_t)pos + 1] = w->tokens[i];
    }
    return 0;
}

static int find_bos(const struct model *m, int32_t *bos, struct err *e) {
    struct tok *tok;
    int rc = vocab_load(&tok, m->gguf, e);
    if (rc) return rc;
    *bos = windows_bos(tok);
    tok_free(tok);
    return 0;
}

int ramp_text_generate(struct windows_text *out, struct model *m, size_t n_tok, uint64_t seed,
                       int n_thread, bool quiet, struct err *e) {
    size_t n = n_tok / RAMP_CTX ? n_tok / RAMP_CTX : 1;
    int32_t n_seq = n < MAX_SEQS ? (int32_t)n : MAX_SEQS;
    struct writer w = {.m = m};
    *out = (struct windows_text){.ctx = RAMP_CTX, .n_window = n};
    if (!m->hp.is_causal)
        return err_set(e, CHIMERE_EUNSUPPORTED, "%s predicts no next token", m->name);
    rng_seed(&w.rng, seed);
    out->tokens = mem_alloc_array(n * RAMP_CTX, sizeof *out->tokens);
    w.threads = pool_new(n_thread);
    int rc = out->tokens && w.threads ? find_bos(m, &w.bos, e)
                                      : err_set(e, CHIMERE_ENOMEM, "out of memory");
    const struct seq_pool_params params = {.n_slot = n_seq,
                                           .n_ctx = (int64_t)RAMP_CTX * n_seq,
                                           .k_type = QUANT_F16,
                                           .v_type = QUANT_F16};
    if (!rc) rc = seq_pool_new(&w.pool, m, &params, e);
    for (int32_t i = 0; !rc && i < n_seq; i++) rc = seq_new(&w.seqs[i], w.pool, e);
    if (!rc) rc = forward_new(&w.f, m, w.pool, n_seq, n_seq, e);
    if (!quiet) progress_begin("writing text", n, false);
    for (size_t at = 0; !rc && at < n; at += (size_t)n_seq) {
        int32_t now = n - at < (size_t)n_seq ? (int32_t)(n - at) : n_seq;
        rc = write_group(&w, out, at, now, e);
        if (!quiet) progress_step(at + (size_t)now);
    }
    if (!quiet) progress_end();
    forward_free(w.f);
    for (int32_t i = 0; i < n_seq; i++) seq_free(w.seqs[i]);
    seq_pool_free(w.pool);
    pool_free(w.threads);
    if (rc) windows_text_fini(out);
    return rc;
}

/* ---- as a file: u64 key, u64 n_window, then i32 tokens ---- */

int ramp_text_save(const struct windows_text *t, const char *path, uint64_t key, struct err *e) {
    struct file_writer w;
    int rc = file_writer_open(&w, path, e);
    if (rc) return rc;
    uint64_t head[2] = {key, t->n_window};
    size_t n = t->n_window * RAMP_CTX;
    if (fwrite(head, 1, sizeof head, w.f) != sizeof head ||
        fwrite(t->tokens, sizeof *t->tokens, n, w.f) != n) {
        file_writer_abort(&w);
        return err_set(e, CHIMERE_EIO, "%s: cannot write", path);
    }
    return file_writer_commit(&w, e);
}

int ramp_text_load(struct windows_text *out, const char *path, uint64_t key, int32_t n_vocab) {
    char *data;
    size_t n;
    uint64_t head[2];
    *out = (struct windows_text){.ctx = RAMP_CTX};
    if (file_read(path, WINDOWS_MAX_TEXT, &data, &n, NULL)) return CHIMERE_ENOENT;
    int rc = CHIMERE_ENOENT;
    if (n > sizeof head) {
        memcpy(head, data, sizeof head);
        size_t n_tok = (n - sizeof head) / sizeof *out->tokens;
        if (head[0] == key && n_tok % RAMP_CTX == 0 && head[1] == n_tok / RAMP_CTX && n_tok) {
            out->tokens = mem_alloc(n - sizeof head);
            out->n_window = n_tok / RAMP_CTX;
            if (out->tokens) memcpy(out->tokens, data + sizeof head, n - sizeof head);
            rc = out->tokens ? 0 : CHIMERE_ENOMEM;
            for (size_t i = 0; !rc && i < n_tok; i++)
                if (out->tokens[i] < 0 || out->tokens[i] >= n_vocab) rc = CHIMERE_ENOENT;
        }
    }
    mem_free(data);
    if (rc) windows_text_fini(out);
    return rc;
}

/* windows.c: see windows.h. */
#include "eval/windows.h"

#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"

struct windows {
    struct model *m;       /* borrowed */
    struct seq_pool *pool; /* owned, like the following members */
    struct forward *f;
    struct seq *seqs[WINDOWS_MAX_SEQS];
    struct batch_item runs[WINDOWS_MAX_SEQS];
    int32_t n_seq, longest;
    int32_t chunk; /* tokens per window in one forward pass */
    bool
        adapts; /* the experts to keep depend on the row before, so each of a window's rows is wanted by itself */
    float entropy[WINDOWS_MAX_SEQS]; /* with adapts: of the last row of each window */
    bool whole;
    const char *what; /* borrowed */
    struct moe_keep keep;
    struct experts_kept *kept; /* borrowed, or NULL */
    struct windows_turn turn;
};

/* Makes the next run of every window of the group. A run ends at the window's first scored position, so that
 * either all of its rows are wanted or none. Returns the number of runs; of[] gives the window of each. */
static int32_t next_runs(struct windows *g, const struct window *w, size_t n, const int32_t *done,
                         int32_t *of) {
    int32_t n_run = 0;
    for (size_t i = 0; i < n; i++) {
        int32_t last = w[i].n_tok - (g->whole || w[i].first == w[i].n_tok ? 0 : 1);
        int32_t left = last - done[i];
        if (left <= 0) continue;
        if (done[i] < w[i].first && left > w[i].first - done[i]) left = w[i].first - done[i];
        if (left > g->chunk) left = g->chunk;
        bool wanted = g->adapts || done[i] >= w[i].first;
        g->runs[n_run] = (struct batch_item){.seq = g->seqs[i],
                                             .tokens = w[i].tokens + done[i],
                                             .n_tok = left,
                                             .loras = w[i].loras,
                                             .n_lora = w[i].n_lora,
                                             .keep = experts_keep_after(g->keep, g->entropy[i]),
                                             .want = wanted ? WANT_ALL : WANT_NONE};
        of[n_run++] = (int32_t)i;
    }
    return n_run;
}

/* Of the distribution that a row of logits describes, in nats. */
static float entropy_of(const float *row, int32_t n) {
    double sum = 0, weighted = 0;
    float max = row[0];
    for (int32_t i = 1; i < n; i++) max = row[i] > max ? row[i] : max;
    for (int32_t i = 0; i < n; i++) {
        double x = (double)row[i] - (double)max, p = exp(x);
        sum += p;
        if (p > 0) weighted += p * x;
    }
    return (float)(log(sum) - weighted / sum);
}

static int run_group(struct windows *g, const struct window *w, size_t n, size_t index,
                     int32_t n_vocab, windows_fn *fn, void *ud, struct err *e) {
    int32_t done[WINDOWS_MAX_SEQS] = {0}, of[WINDOWS_MAX_SEQS];
    for (size_t i = 0; i < n; i++) {
        seq_reset(g->seqs[i]);
        g->entropy[i] = g->keep.all_at; /* of a window's first token nothing is known */
    }
    for (;;) {
        int32_t n_run = next_runs(g, w, n, done, of);
        if (!n_run) return 0;
        const float *rows;
        int rc = g->turn.fn ? g->turn.fn(g->turn.ud, e) : 0;
        if (!rc) rc = forward_run(g->f, g->runs, n_run, &rows, e);
        for (int32_t k = 0; !rc && k < n_run; k++) {
            const struct batch_item *r = &g->runs[k];
            if (r->want == WANT_ALL) {
                if (g->adapts) g->entropy[of[k]] = entropy_of(rows, n_vocab);
                if (done[of[k]] >= w[of[k]].first)
                    rc = fn(ud, index + (size_t)of[k], done[of[k]], r->n_tok, rows, e);
                rows += (int64_t)r->n_tok * n_vocab;
            }
            done[of[k]] += r->n_tok;
        }
        if (rc) return rc;
    }
}

static int check(const struct window *w, size_t n, int32_t longest, struct err *e) {
    for (size_t i = 0; i < n; i++) {
        if (w[i].n_tok < 1 || w[i].first < 0 || w[i].first > w[i].n_tok)
            return err_set(e, CHIMERE_EINVAL, "window %zu: expected tokens", i);
        if (w[i].n_tok > longest)
            return err_set(e, CHIMERE_ELIMIT, "window %zu: expected at most %d tokens, got %d", i,
                           longest, w[i].n_tok);
    }
    return 0;
}

int windows_open(struct windows **out, struct model *m, int32_t longest,
                 const struct windows_params *p, struct err *e) {
    *out = NULL;
    if (!m->hp.is_causal)
        return err_set(e, CHIMERE_EUNSUPPORTED, "%s predicts no next token", m->name);
    struct windows *g = mem_zalloc(sizeof *g);
    if (!g) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    g->m = m;
    g->longest = longest;
    g->whole = p->whole;
    g->what = p->what;
    g->keep = p->keep;
    g->adapts = p->keep.all_at > 0 && p->keep.mass > 0 && p->keep.mass < 1;
    g->kept = p->kept;
    g->turn = p->turn;
    g->n_seq = p->n_seq < 1 ? 1 : p->n_seq > WINDOWS_MAX_SEQS ? WINDOWS_MAX_SEQS : p->n_seq;
    /* with a big vocabulary, use only as many rows as there is room for their logits */
    int64_t n_batch = p->n_batch, room = WINDOWS_LOGIT_BYTES / 4 / m->hp.n_vocab;
    if (n_batch > room) n_batch = room;
    g->chunk = (int32_t)(n_batch / g->n_seq);
    if (g->chunk > SCAN_GRID) g->chunk -= g->chunk % SCAN_GRID;
    if (g->chunk < 1 || g->adapts) g->chunk = 1;
    int64_t pages = (longest + KV_PAGE - 1) / KV_PAGE;
    const struct seq_pool_params params = {.n_slot = g->n_seq,
                                           .n_ctx = pages * KV_PAGE * g->n_seq,
                                           .k_type = p->k_type,
                                           .v_type = p->v_type,
                                           .log = false};
    int rc = seq_pool_new(&g->pool, m, &params, e);
    for (int32_t i = 0; !rc && i < g->n_seq; i++) rc = seq_new(&g->seqs[i], g->pool, e);
    if (!rc) rc = forward_new(&g->f, m, g->pool, g->chunk * g->n_seq, g->chunk * g->n_seq, e);
    if (rc) windows_close(g);
    else *out = g;
    return rc;
}

void windows_close(struct windows *g) {
    if (!g) return;
    forward_free(g->f);
    for (int32_t i = 0; i < g->n_seq; i++) seq_free(g->seqs[i]);
    seq_pool_free(g->pool);
    mem_free(g);
}

int windows_pass(struct windows *g, const struct window *w, size_t n, windows_fn *fn, void *ud,
                 struct err *e) {
    int rc = check(w, n, g->longest, e);
    if (rc) return rc;
    if (g->what) progress_begin(g->what, n, false);
    for (size_t at = 0; !rc && at < n; at += (size_t)g->n_seq) {
        size_t n_now = n - at < (size_t)g->n_seq ? n - at : (size_t)g->n_seq;
        rc = run_group(g, w + at, n_now, at, g->m->hp.n_vocab, fn, ud, e);
        if (g->what) progress_step(at + n_now);
    }
    if (g->what) progress_end();
    if (g->kept) experts_kept(forward_experts(g->f), g->kept);
    return rc;
}

int windows_run(struct model *m, const struct window *w, size_t n, const struct windows_params *p,
                windows_fn *fn, void *ud, struct err *e) {
    int32_t longest = 0;
    for (size_t i = 0; i < n; i++) longest = w[i].n_tok > longest ? w[i].n_tok : longest;
    struct windows_params few = *p;
    if (n && (size_t)few.n_seq > n) few.n_seq = (int32_t)n;
    struct windows *g;
    int rc = windows_open(&g, m, longest, &few, e);
    if (!rc) rc = windows_pass(g, w, n, fn, ud, e);
    windows_close(g);
    return rc;
}

/* ---- texts ---- */

int32_t windows_bos(const struct tok *tok) {
    int32_t *ids = NULL, bos = -1;
    size_t n = 0;
    if (tok_bos(tok) >= 0 && tok_encode(tok, "", 0, false, true, &ids, &n, NULL) == 0 && n > 0 &&
        ids[0] == tok_bos(tok))
        bos = ids[0];
    mem_free(ids);
    return bos;
}

int windows_cut(struct windows_text *out, const struct tok *tok, const char *text, size_t n_text,
                int32_t ctx, struct err *e) {
    *out = (struct windows_text){.ctx = ctx};
    if (ctx < WINDOWS_MIN_TOK)
        return err_set(e, CHIMERE_EINVAL, "window: expected at least %d tokens, got %d",
                       WINDOWS_MIN_TOK, ctx);
    int32_t bos = windows_bos(tok);
    size_t n = 0;
    int rc = tok_encode(tok, text, n_text, false, false, &out->tokens, &n, e);
    if (rc) return rc;
    out->n_window = n / (size_t)ctx;
    if (!out->n_window) {
        windows_text_fini(out);
        err_set(e, CHIMERE_EINVAL, "text: expected at least one window of %d tokens, got %zu", ctx,
                n);
        err_hint(e, "give a longer text or a smaller --ctx");
        return CHIMERE_EINVAL;
    }
    for (size_t i = 0; bos >= 0 && i < out->n_window; i++) out->tokens[i * (size_t)ctx] = bos;
    return 0;
}

void windows_text_fini(struct windows_text *t) {
    mem_free(t->tokens);
    *t = (struct windows_text){.tokens = NULL};
}

/* perplexity.c: see perplexity.h. */
#include "eval/perplexity.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/pool.h"
#include "eval/logprob.h"

/* One scored position. */
struct score {
    float nll, base_nll, kl;
    bool same_top;
};

struct scoring {
    const struct windows_text *text;
    const struct kl_base *base;
    struct kl_base_writer *writer;
    struct pool *pool;
    struct score *scores; /* owned [n_window, n_row] */
    double *norms;        /* owned [n_row of one window] */
    float *base_rows;     /* owned [n_thread, n_vocab] */
    int32_t n_vocab, first, n_row;

    /* the rows being scored */
    size_t window;
    int32_t pos, n_now;
    const float *rows;
};

static int32_t largest(const float *x, int32_t n) {
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* Compares one row with the base. The base's row sums to one only up to rounding, so it is normalised here. */
static void compare(const struct scoring *s, struct score *sc, int32_t row, const float *x,
                    double norm, int32_t target, float *b) {
    kl_base_row(s->base, s->window, row, b);
    double sum = 0, dot = 0;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        double p = (double)expf(b[i]);
        sum += p;
        dot += p * ((double)b[i] - (double)x[i]);
    }
    double shift = log(sum), kl = dot / sum - shift + norm;
    sc->kl = (float)(kl > 0 ? kl : 0);
    sc->base_nll = (float)(shift - (double)b[target]);
    sc->same_top = largest(x, s->n_vocab) == largest(b, s->n_vocab);
}

static void score_part(void *arg, int ith, int n) {
    struct scoring *s = arg;
    const int32_t *tokens = s->text->tokens + s->window * (size_t)s->text->ctx;
    for (int32_t k = ith; k < s->n_now; k += n) {
        const float *x = s->rows + (int64_t)k * s->n_vocab;
        int32_t row = s->pos + k - s->first, target = tokens[s->pos + k + 1];
        double norm = logprob_norm(x, s->n_vocab);
        struct score *sc = &s->scores[s->window * (size_t)s->n_row + (size_t)row];
        s->norms[row] = norm;
        sc->nll = (float)(norm - (double)x[target]);
        if (s->base) compare(s, sc, row, x, norm, target, s->base_rows + (int64_t)ith * s->n_vocab);
    }
}

static int on_rows(void *ud, size_t i, int32_t pos, int32_t n_row, const float *rows,
                   struct err *e) {
    struct scoring *s = ud;
    s->window = i;
    s->pos = pos;
    s->n_now = n_row;
    s->rows = rows;
    pool_run(s->pool, score_part, s);
    for (int32_t k = 0; k < n_row; k++) {
        int32_t row = pos + k - s->first;
        if (!isfinite(s->norms[row]))
            return err_set(e, CHIMERE_ENUMERIC,
                           "window %zu, position %d: the logits are no finite numbers", i, pos + k);
        if (!s->writer) continue;
        int rc = kl_base_put(s->writer, i, row, rows + (int64_t)k * s->n_vocab, s->norms[row], e);
        if (rc) return rc;
    }
    return 0;
}

/* ---- figures ---- */

static int by_kl(const void *a, const void *b) {
    float x = ((const struct score *)a)->kl, y = ((const struct score *)b)->kl;
    return (x > y) - (x < y);
}

/* Returns the quantile q of n sorted values, interpolated between neighbours. */
static double quantile(const struct score *s, size_t n, double q) {
    double at = q * (double)(n - 1);
    size_t i = (size_t)at;
    double next = (double)s[i + 1 < n ? i + 1 : i].kl;
    return (double)s[i].kl + (at - (double)i) * (next - (double)s[i].kl);
}

/* Returns the standard error of a mean from the sum of the values and the sum of their squares. */
static double standard_error(double sum, double squares, double n) {
    if (n < 2) return 0;
    double var = (squares - sum * sum / n) / (n - 1);
    return var > 0 ? sqrt(var / n) : 0;
}

static void summarise(struct score *s, size_t n, bool has_base, struct perplexity *out) {
    double sum = 0, squares = 0, count = (double)n, kl = 0, kl2 = 0, same = 0, base = 0;
    for (size_t i = 0; i < n; i++) {
        sum += (double)s[i].nll;
        squares += (double)s[i].nll * (double)s[i].nll;
        kl += (double)s[i].kl;
        kl2 += (double)s[i].kl * (double)s[i].kl;
        same += s[i].same_top;
        base += (double)s[i].base_nll;
    }
    out->n_scored = n;
    out->nll = sum / count;
    out->ppl = exp(out->nll);
    out->ppl_se = out->ppl * standard_error(sum, squares, count);
    if (!has_base) return;
    qsort(s, n, sizeof *s, by_kl);
    double share = same / count;
    out->kl = (struct kl_stats){.mean = kl / count,
                                .mean_se = standard_error(kl, kl2, count),
                                .median = quantile(s, n, 0.5),
                                .p99 = quantile(s, n, 0.99),
                                .p999 = quantile(s, n, 0.999),
                                .max = (double)s[n - 1].kl,
                                .same_top = share,
                                .same_top_se = sqrt(share * (1 - share) / count),
                                .base_ppl = exp(base / count)};
}

/* ---- the run ---- */

static int check_base(const struct model *m, const struct perplexity_params *p, struct err *e) {
    if (p->base->shape.n_vocab != m->hp.n_vocab || p->base->shape.tok_hash != p->tok_hash)
        return err_set(e, CHIMERE_EMISMATCH,
                       "base: expected one of a model with the tokens of %s (%d of them), got "
                       "another vocabulary (%d)",
                       m->name, m->hp.n_vocab, p->base->shape.n_vocab);
    return 0;
}

static int prepare(struct scoring *s, const struct model *m, const struct perplexity_params *p,
                   struct err *e) {
    size_t n;
    s->pool = pool_new(p->n_thread);
    if (!s->pool || !size_mul(s->text->n_window, (size_t)s->n_row, &n))
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    s->scores = mem_alloc_array(n, sizeof *s->scores);
    s->norms = mem_alloc_array((size_t)s->n_row, sizeof *s->norms);
    if (s->base)
        s->base_rows = mem_alloc_array((size_t)pool_n_thread(s->pool) * (size_t)s->n_vocab,
                                       sizeof *s->base_rows);
    if (!s->scores || !s->norms || (s->base && !s->base_rows))
        return err_set(e, CHIMERE_ENOMEM, "scores of %zu positions: out of memory", n);
    if (!p->save_base) return 0;
    const struct kl_base_shape shape = {.n_vocab = m->hp.n_vocab,
                                        .ctx = s->text->ctx,
                                        .first = s->first,
                                        .n_window = s->text->n_window,
                                        .tok_hash = p->tok_hash};
    return kl_base_create(&s->writer, p->save_base, &shape, s->text->tokens, e);
}

int perplexity_run(struct model *m, const struct windows_text *t, const struct perplexity_params *p,
                   struct perplexity *out, struct err *e) {
    struct scoring s = {.text = t, .base = p->base, .n_vocab = m->hp.n_vocab, .first = t->ctx / 2};
    int rc = p->base ? check_base(m, p, e) : 0;
    if (rc) return rc;
    if (p->base) s.first = p->base->shape.first;
    s.n_row = t->ctx - 1 - s.first;
    *out = (struct perplexity){.n_window = t->n_window};
    struct window *w = mem_alloc_array(t->n_window, sizeof *w);
    rc = w ? prepare(&s, m, p, e) : err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (size_t i = 0; !rc && i < t->n_window; i++)
        w[i] = (struct window){
            .tokens = t->tokens + i * (size_t)t->ctx, .n_tok = t->ctx, .first = s.first};
    if (!rc) rc = windows_run(m, w, t->n_window, &p->windows, on_rows, &s, e);
    if (!rc && s.writer) {
        rc = kl_base_commit(s.writer, e);
        s.writer = NULL;
    }
    if (!rc) summarise(s.scores, t->n_window * (size_t)s.n_row, p->base != NULL, out);
    kl_base_abort(s.writer);
    pool_free(s.pool);
    mem_free(s.base_rows);
    mem_free(s.norms);
    mem_free(s.scores);
    mem_free(w);
    return rc;
}

/* ---- bits per byte ---- */

struct bits {
    const struct window *windows;
    int32_t n_vocab;
    double nll;
};

static int on_bits(void *ud, size_t i, int32_t pos, int32_t n_row, const float *rows,
                   struct err *e) {
    struct bits *b = ud;
    for (int32_t k = 0; k < n_row; k++) {
        const float *x = rows + (int64_t)k * b->n_vocab;
        double norm = logprob_norm(x, b->n_vocab);
        if (!isfinite(norm))
            return err_set(e, CHIMERE_ENUMERIC,
                           "window %zu, position %d: the logits are no finite numbers", i, pos + k);
        b->nll += norm - (double)x[b->windows[i].tokens[pos + k + 1]];
    }
    return 0;
}

/* Cuts n ids into half-overlapping windows. Each window scores the tokens that the window before did not score. */
static struct window *overlap(const int32_t *ids, size_t n, int32_t ctx, size_t *n_window) {
    size_t half = (size_t)ctx / 2,
           count = n <= (size_t)ctx ? 1 : 1 + (n - (size_t)ctx + half - 1) / half;
    struct window *w = mem_alloc_array(count, sizeof *w);
    if (!w) return NULL;
    for (size_t i = 0; i < count; i++) {
        size_t at = i * half, n_tok = n - at < (size_t)ctx ? n - at : (size_t)ctx;
        w[i] = (struct window){
            .tokens = ids + at, .n_tok = (int32_t)n_tok, .first = i ? ctx - (int32_t)half - 1 : 0};
    }
    *n_window = count;
    return w;
}

int perplexity_bits(struct model *m, const struct tok *tok, const char *text, size_t n_text,
                    int32_t ctx, const struct windows_params *p, struct text_bits *out,
                    struct err *e) {
    int32_t *ids = NULL, bos = windows_bos(tok);
    size_t n = 0, n_window = 0;
    if (ctx < WINDOWS_MIN_TOK)
        return err_set(e, CHIMERE_EINVAL, "window: expected at least %d tokens", WINDOWS_MIN_TOK);
    int rc = tok_encode(tok, text, n_text, false, true, &ids, &n, e);
    if (!rc && n < 2) rc = err_set(e, CHIMERE_EINVAL, "text: expected at least two tokens");
    struct window *w = rc ? NULL : overlap(ids, n, ctx, &n_window);
    if (!rc && !w) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    struct bits b = {.windows = w, .n_vocab = m->hp.n_vocab};
    if (!rc) rc = windows_run(m, w, n_window, p, on_bits, &b, e);
    if (!rc) {
        size_t unscored = bos >= 0 && ids[0] == bos ? 0 : tok_piece(tok, ids[0]).n;
        out->n_tok = n - 1;
        out->n_bytes = n_text > unscored ? n_text - unscored : 1;
        out->bits_per_byte = b.nll / log(2) / (double)out->n_bytes;
        out->ppl = exp(b.nll / (double)out->n_tok);
    }
    mem_free(w);
    mem_free(ids);
    return rc;
}

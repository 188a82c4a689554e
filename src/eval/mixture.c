#include "eval/mixture.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

const float mixture_former[2] = {0.1f, 0.35f};

enum { N_STEP = 300 };

struct measuring {
    const struct engram_table *t;
    const struct window *windows;
    /* [n_window]: tokens of the document before the first token of each window */
    const int32_t *starts;
    const float *const
        *covers; /* [n_window]: engram_cover before each token of the window's document */
    int32_t n_vocab;
    struct engram_blend blend;
    struct mixture_points *out;
};

/* ---- measured points ---- */

/* ln p(y) after logit[t] += alpha * ln(p_t + 1e-10) over the continuations of the longest context. */
static float former_logprob(const struct engram_hit *h, const float *row, float norm, int32_t y,
                            float alpha) {
    const struct engram_next *next = engram_hit_next(h);
    double sum = 1, bias_y = 0;
    for (uint32_t i = 0; i < h->n_next; i++) {
        double bias = (double)alpha * log((double)next[i].count / (double)h->total + 1e-10);
        double p = exp((double)(row[next[i].token] - norm));
        sum += p * (exp(bias) - 1);
        if ((int32_t)next[i].token == y) bias_y = bias;
    }
    return (float)((double)(row[y] - norm) + bias_y - log(sum));
}

static void make_point(struct measuring *s, const int32_t *ctx, int32_t n_ctx, float cover,
                       const float *logits, int32_t y, struct mixture_point *p) {
    struct engram_hit hits[ENGRAM_N_ORDER];
    struct engram_row row;
    engram_row_scan(logits, s->n_vocab, &row);
    int n_hit = engram_lookup(s->t, ctx, n_ctx, hits);
    *p = (struct mixture_point){.p_model = expf(logits[y] - row.norm), .is_known = n_hit > 0};
    p->former[0] = p->former[1] = logits[y] - row.norm;
    if (!n_hit) return;
    engram_blend_fill(&s->blend, hits, n_hit, s->n_vocab);
    int32_t place = s->blend.place[y];
    p->p_engram = place ? s->blend.p[place - 1] : 0;
    p->left = s->blend.left;
    engram_features(hits, n_hit, &s->blend, &row, logits, cover, p->f);
    for (int k = 0; k < 2; k++)
        p->former[k] = former_logprob(&hits[0], logits, row.norm, y, mixture_former[k]);
}

static int on_rows(void *ud, size_t i, int32_t pos, int32_t n_row, const float *rows,
                   struct err *e) {
    struct measuring *s = ud;
    const struct window *w = &s->windows[i];
    struct mixture_points *out = s->out;
    for (int32_t k = 0; k < n_row; k++) {
        if (out->n == out->cap) {
            size_t cap = out->cap ? 2 * out->cap : 4096;
            struct mixture_point *p = mem_realloc(out->p, cap * sizeof *p);
            if (!p) return err_set(e, CHIMERE_ENOMEM, "out of memory");
            out->p = p;
            out->cap = cap;
        }
        /* tokens before the window are context too, because the document is contiguous in memory */
        int32_t n_ctx = s->starts[i] + pos + k + 1;
        if (n_ctx > ENGRAM_MAX_ORDER) n_ctx = ENGRAM_MAX_ORDER;
        make_point(s, w->tokens + pos + k + 1 - n_ctx, n_ctx,
                   s->covers[i][s->starts[i] + pos + k + 1], rows + (int64_t)k * s->n_vocab,
                   w->tokens[pos + k + 1], &out->p[out->n++]);
    }
    return 0;
}

static size_t cut(const struct mixture_doc *d, int32_t ctx, struct window *w, int32_t *starts) {
    int32_t half = ctx / 2;
    size_t n = 0;
    if (d->n_tok < 2) return 0;
    for (int32_t at = 0;; at += half, n++) {
        int32_t left = d->n_tok - at;
        if (w) {
            w[n] = (struct window){.tokens = d->tokens + at,
                                   .n_tok = left < ctx ? left : ctx,
                                   .first = at ? ctx - half - 1 : 0};
            starts[n] = at;
        }
        if (left <= ctx) return n + 1;
    }
}

/* Computes how much the table knew of the document before each of its tokens: [n_tok]. */
static void fill_cover(const struct engram_table *t, const struct mixture_doc *d, float *cover) {
    struct engram_hit hits[ENGRAM_N_ORDER];
    float c = 0;
    for (int32_t i = 0; i < d->n_tok; i++) {
        int32_t n = i < ENGRAM_MAX_ORDER ? i : ENGRAM_MAX_ORDER;
        if (i) c = engram_cover(c, hits, engram_lookup(t, d->tokens + i - n, n, hits));
        cover[i] = c;
    }
}

int mixture_measure(struct model *m, const struct engram_table *t, const struct mixture_doc *docs,
                    size_t n_doc, int32_t ctx, const struct windows_params *p,
                    struct mixture_points *out, struct err *e) {
    size_t n = 0, at = 0, n_tok = 0;
    for (size_t i = 0; i < n_doc; i++) {
        n += cut(&docs[i], ctx, NULL, NULL);
        n_tok += (size_t)docs[i].n_tok;
    }
    if (!n) return err_set(e, CHIMERE_EINVAL, "expected documents of two tokens or more");
    struct window *w = mem_alloc_array(n, sizeof *w);
    int32_t *starts = mem_alloc_array(n, sizeof *starts);
    float *cover = mem_alloc_array(n_tok, sizeof *cover), *next = cover;
    const float **covers = mem_alloc_array(n, sizeof *covers);
    struct measuring s = {.t = t,
                          .windows = w,
                          .starts = starts,
                          .covers = covers,
                          .n_vocab = m->hp.n_vocab,
                          .out = out};
    bool ready = w && starts && cover && covers;
    int rc = ready ? engram_blend_init(&s.blend, s.n_vocab) : CHIMERE_ENOMEM;
    if (rc) err_set(e, rc, "out of memory");
    for (size_t i = 0; !rc && i < n_doc; next += docs[i++].n_tok) {
        size_t first = at;
        at += cut(&docs[i], ctx, w + at, starts + at);
        fill_cover(t, &docs[i], next);
        while (first < at) covers[first++] = next;
    }
    if (!rc) rc = windows_run(m, w, n, p, on_rows, &s, e);
    if (ready) engram_blend_fini(&s.blend);
    mem_free(cover);
    mem_free(covers);
    mem_free(starts);
    mem_free(w);
    return rc;
}

void mixture_points_fini(struct mixture_points *p) {
    mem_free(p->p);
    *p = (struct mixture_points){.p = NULL};
}

/* ---- figures ---- */

double mixture_nll(const struct mixture_points *p, const float *weights, float alpha) {
    double sum = 0;
    for (size_t i = 0; i < p->n; i++) {
        const struct mixture_point *x = &p->p[i];
        double w = x->is_known ? (double)engram_weight(weights, x->f) : 0;
        if (w > 0.9999) w = 0.9999;
        double odds = (double)alpha * w / (1 - w), model = (double)x->p_model;
        double mixed =
            (model + odds * ((double)x->p_engram + (double)x->left * model)) / (1 + odds);
        sum -= log(mixed > 1e-30 ? mixed : 1e-30);
    }
    return p->n ? sum / (double)p->n : 0;
}

double mixture_former_nll(const struct mixture_points *p, int which) {
    double sum = 0;
    for (size_t i = 0; i < p->n; i++) sum -= (double)p->p[i].former[which];
    return p->n ? sum / (double)p->n : 0;
}

double mixture_known(const struct mixture_points *p) {
    size_t n = 0;
    for (size_t i = 0; i < p->n; i++) n += p->p[i].is_known;
    return p->n ? (double)n / (double)p->n : 0;
}

/* ---- fitting ---- */

/* Adds the gradient over theta of one set's mean nats: d/dw of -log((1 - w) m + w s), s = p_engram + left m. */
static void add_gradient(const struct mixture_points *p, const float *theta, double *g) {
    for (size_t i = 0; i < p->n; i++) {
        const struct mixture_point *x = &p->p[i];
        if (!x->is_known) continue;
        double w = (double)engram_weight(theta, x->f), m = (double)x->p_model + 1e-12;
        double s = (double)x->p_engram + (double)x->left * m;
        double slope = (m - s) / ((1 - w) * m + w * s + 1e-12) * w * (1 - w) / (double)p->n;
        for (int k = 0; k < ENGRAM_N_FEATURE; k++) g[k] += slope * (double)x->f[k];
    }
}

/* Adam over the complete sets: the problem is smooth and has some 20 weights, and the result is deterministic. */
static void descend(const struct mixture_points *domain, const struct mixture_points *other,
                    double importance, float *weights) {
    double first[ENGRAM_N_FEATURE] = {0}, second[ENGRAM_N_FEATURE] = {0};
    for (int step = 1; step <= N_STEP; step++) {
        double g[ENGRAM_N_FEATURE] = {0}, h[ENGRAM_N_FEATURE] = {0};
        double rate = 0.1 * (step < N_STEP / 2 ? 1 : 0.2);
        add_gradient(domain, weights, g);
        add_gradient(other, weights, h);
        for (int k = 0; k < ENGRAM_N_FEATURE; k++) {
            g[k] = (g[k] + importance * h[k]) / (1 + importance) + 2e-5 * (double)weights[k];
            first[k] += 0.1 * (g[k] - first[k]);
            second[k] += 0.01 * (g[k] * g[k] - second[k]);
            double m = first[k] / (1 - pow(0.9, step)), v = second[k] / (1 - pow(0.99, step));
            weights[k] -= (float)(rate * m / (sqrt(v) + 1e-9));
        }
    }
}

int mixture_fit(const struct mixture_points *domain, const struct mixture_points *other,
                float weights[ENGRAM_N_FEATURE], struct err *e) {
    if (!domain->n) return err_set(e, CHIMERE_EINVAL, "fitting needs text of the domain");
    memset(weights, 0, ENGRAM_N_FEATURE * sizeof *weights);
    weights[0] = -1;
    for (int doubling = 0; doubling <= 10; doubling++) {
        descend(domain, other, ldexp(1, doubling), weights);
        if (mixture_nll(other, weights, 1) - mixture_nll(other, weights, 0) <= MIXTURE_LOSS) break;
    }
    return 0;
}

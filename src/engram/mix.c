#include "engram/mix.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engram/recall.h"

/* Fitted with the texts and the command given in docs/engram.md. */
static const float built_in[ENGRAM_N_FEATURE] = {
    -2.531f, -0.2021f, -0.2783f, -0.2239f, -0.0401f, -0.3524f, 0.1566f, 0.01537f,
    0.5146f, -0.3251f, 1.839f,   -1.726f,  0.7121f,  -0.1118f, -1.981f, -0.2413f,
    0.3074f, -0.2112f, 0.2393f,  0.2901f,  2.727f,   -0.1655f};

/* STEP_ROOM: longest draft. DRAFT_ORDER: shortest context to draft from. */
enum { STEP_ROOM = 16, DRAFT_ORDER = 3, COVER_TOKENS = 48, COVER_PROMPT = 256 };

struct engram_mixer {
    struct engram_use use;
    const float *weights[ENGRAM_MAX_TABLES]; /* owned; copied from the tables' headers, or NULL */
    int32_t n_vocab;
    /* the last tokens, newest last, with room for a draft after them */
    int32_t ctx[ENGRAM_MAX_ORDER + STEP_ROOM];
    int32_t n_ctx;
    struct engram_hit hits[ENGRAM_MAX_TABLES][ENGRAM_N_ORDER];
    int n_hit[ENGRAM_MAX_TABLES];
    float cover[ENGRAM_MAX_TABLES];
    bool looked_up;
    struct engram_blend blend;
    float *boost;     /* owned [n_vocab]: sum of odds * p; zero between calls */
    int32_t *touched; /* owned [n_vocab] */
    int32_t n_touched;
    struct engram_follow follow;
};

/* ---- scanning a row of logits ---- */

typedef float f4 __attribute__((vector_size(16), aligned(4)));
typedef int32_t i4 __attribute__((vector_size(16), aligned(4)));

enum {
    BLOCK = 16, /* logits processed together */
    /* In longer rows, only one in eight of the blocks without a likely token is summed. */
    EXACT_ROW = 1 << 15,
    SAMPLE = 8,
};
/* A token is likely if its probability is more than e^-7 times that of the best token. */
static const float likely_nats = 7;

static inline f4 at_least(f4 x, float low) {
    f4 l = {low, low, low, low};
    i4 keep = x > l;
    return (f4)(((i4)x & keep) | ((i4)l & ~keep));
}

/* e^x for -87 <= x <= 0, with an error below 2e-7. */
static inline f4 exp_below(f4 x) {
    f4 n = x * 1.44269504f - 0.5f;
    i4 i = __builtin_convertvector(n, i4); /* rounds towards zero: n is not positive */
    f4 k = __builtin_convertvector(i, f4), r = x - k * 0.693359375f + k * 2.12194440e-4f;
    f4 p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1;
    return p * (f4)((i + 127) << 23);
}

static inline f4 larger(f4 a, f4 b) {
    i4 keep = a > b;
    return (f4)(((i4)a & keep) | ((i4)b & ~keep));
}

static float largest(const float *x, int32_t n) {
    f4 m[4];
    for (int k = 0; k < 4; k++) m[k] = (f4){-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    int32_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK)
        for (int k = 0; k < 4; k++) m[k] = larger(m[k], *(const f4 *)(x + i + 4 * k));
    f4 all = larger(larger(m[0], m[1]), larger(m[2], m[3]));
    float top = all[0];
    for (int k = 1; k < 4; k++) top = all[k] > top ? all[k] : top;
    for (; i < n; i++) top = x[i] > top ? x[i] : top;
    return top;
}

struct sums {
    f4 p, px; /* sums of e^(x - top), and of e^(x - top) * (x - top) */
};

/* Adds a block. Banned tokens are added too; they count as e^-87, which is negligible. */
static inline void add_block(struct sums *s, const float *x, float top) {
    for (int k = 0; k < 4; k++) {
        f4 d = at_least(*(const f4 *)(x + 4 * k) - top, -87), p = exp_below(d);
        s->p += p;
        s->px += p * d;
    }
}

static double total(f4 x) { return (double)x[0] + (double)x[1] + (double)x[2] + (double)x[3]; }

/* Returns true if a logit of the block exceeds low. */
static inline bool exceeds(const float *x, float low) {
    i4 any = *(const f4 *)x > low;
    for (int k = 1; k < 4; k++) any |= *(const f4 *)(x + 4 * k) > low;
    return any[0] | any[1] | any[2] | any[3];
}

void engram_row_scan(const float *logits, int32_t n, struct engram_row *out) {
    float top = largest(logits, n), second = -INFINITY, tail[BLOCK];
    struct sums exact = {0}, sampled = {0};
    int32_t n_far = 0, i = 0;
    bool all = n <= EXACT_ROW;
    out->first = -1;
    for (; i < n; i += BLOCK) {
        const float *x = logits + i;
        if (i + BLOCK > n) { /* the last block is padded with banned tokens */
            for (int32_t k = 0; k < BLOCK; k++) tail[k] = i + k < n ? logits[i + k] : -INFINITY;
            x = tail;
        }
        if (!all && !exceeds(x, top - likely_nats)) {
            if (n_far++ % SAMPLE == 0) add_block(&sampled, x, top);
            continue;
        }
        add_block(&exact, x, top);
        for (int k = 0; k < BLOCK; k++) {
            if (x[k] == top && out->first < 0) out->first = i + k;
            else if (x[k] > second) second = x[k];
        }
    }
    int n_sampled = (n_far + SAMPLE - 1) / SAMPLE;
    double scale = n_far ? (double)n_far / n_sampled : 0;
    double s = total(exact.p) + scale * total(sampled.p);
    double d = total(exact.px) + scale * total(sampled.px);
    out->norm = top + (float)log(s);
    out->entropy = (float)(log(s) - d / s);
    out->p_first = (float)(1 / s);
    out->p_second = second > -INFINITY ? expf(second - out->norm) : 0;
}

/* ---- the distribution p_engram ---- */

int engram_blend_init(struct engram_blend *b, int32_t n_vocab) {
    *b = (struct engram_blend){.cap = ENGRAM_N_ORDER * ENGRAM_MAX_NEXT};
    b->tokens = mem_alloc_array((size_t)b->cap, sizeof *b->tokens);
    b->p = mem_alloc_array((size_t)b->cap, sizeof *b->p);
    b->place = mem_alloc_array((size_t)n_vocab, sizeof *b->place);
    return b->tokens && b->p && b->place ? 0 : CHIMERE_ENOMEM;
}

void engram_blend_fini(struct engram_blend *b) {
    mem_free(b->tokens);
    mem_free(b->p);
    mem_free(b->place);
}

void engram_blend_fill(struct engram_blend *b, const struct engram_hit *hits, int n_hit,
                       int32_t n_vocab) {
    for (int32_t i = 0; i < b->n; i++) b->place[b->tokens[i]] = 0;
    b->n = 0;
    b->left = 1;
    for (int h = 0; h < n_hit; h++) {
        const struct engram_next *next = engram_hit_next(&hits[h]);
        float total = (float)hits[h].total, unit = hits[h].unit;
        float scale = b->left / (total + unit * (float)hits[h].n_next), used = 0;
        for (uint32_t i = 0; i < hits[h].n_next; i++) {
            if (next[i].token >= (uint32_t)n_vocab) continue; /* forged table */
            int32_t *place = &b->place[next[i].token];
            if (!*place) {
                b->tokens[b->n] = (int32_t)next[i].token;
                b->p[b->n] = 0;
                *place = ++b->n;
            }
            float p = scale * (float)next[i].count;
            b->p[*place - 1] += p;
            used += p;
        }
        b->left -= used;
        if (b->left < 0) b->left = 0; /* the counts of a forged table may exceed their total */
    }
}

/* ---- the weight w ---- */

float engram_cover(float cover, const struct engram_hit *hits, int n_hit) {
    float x = n_hit ? (float)(hits[0].order - ENGRAM_MIN_ORDER) / 6 : 0;
    return cover + ((x > 1 ? 1 : x) - cover) / COVER_TOKENS;
}

void engram_features(const struct engram_hit *hits, int n_hit, const struct engram_blend *b,
                     const struct engram_row *row, const float *logits, float cover,
                     float f[ENGRAM_N_FEATURE]) {
    const struct engram_hit *h = &hits[0];
    int order = h->order < ENGRAM_MIN_ORDER   ? ENGRAM_MIN_ORDER
                : h->order > ENGRAM_MAX_ORDER ? ENGRAM_MAX_ORDER
                                              : h->order;
    float best = 0, agree = 0, plausible = 0;
    int32_t favourite = -1;
    for (int32_t i = 0; i < b->n; i++) {
        if (b->p[i] > best) best = b->p[i], favourite = b->tokens[i];
        plausible += b->p[i] * expf(logits[b->tokens[i]] - row->norm);
    }
    for (int i = 0; i < n_hit; i++) agree += (int32_t)engram_hit_next(&hits[i])->token == favourite;
    float p_model = favourite >= 0 ? expf(logits[favourite] - row->norm) : 0;
    memset(f, 0, ENGRAM_N_FEATURE * sizeof *f);
    f[0] = 1;
    if (order > ENGRAM_MIN_ORDER) f[order - ENGRAM_MIN_ORDER] = 1; /* features 1..6: orders 3..8 */
    f[7] = log2f(1 + (float)h->total / h->unit);
    f[8] = log2f(1 + (float)h->n_doc);
    f[9] = log2f((float)h->n_next);
    f[10] = best;
    f[11] = b->left;
    f[12] = agree / (float)n_hit;
    f[13] = row->entropy;
    f[14] = row->p_first;
    f[15] = row->p_first - row->p_second;
    f[16] = log2f(p_model + 1e-6f) / 8;
    f[17] = favourite == row->first;
    f[18] = best * row->entropy;
    f[19] = log2f(plausible + 1e-6f) / 8;
    f[20] = 4 * cover;
    f[21] = 4 * cover * row->entropy;
}

void engram_default_weights(float weights[ENGRAM_N_FEATURE]) {
    memcpy(weights, built_in, sizeof built_in);
}

float engram_weight(const float *weights, const float f[ENGRAM_N_FEATURE]) {
    if (!weights) weights = built_in;
    float x = 0;
    for (int i = 0; i < ENGRAM_N_FEATURE; i++) x += weights[i] * f[i];
    return 1 / (1 + expf(-x));
}

/* ---- the mixer ---- */

int engram_mixer_new(struct engram_mixer **out, const struct engram_use *use, int32_t n_vocab,
                     const int32_t *prompt, int32_t n_prompt, struct err *e) {
    *out = NULL;
    if (use->n_table < 0 || use->n_table > ENGRAM_MAX_TABLES)
        return err_set(e, CHIMERE_ELIMIT, "engram: expected at most %d tables", ENGRAM_MAX_TABLES);
    struct engram_mixer *m = mem_zalloc(sizeof *m);
    int rc = m ? engram_blend_init(&m->blend, n_vocab) : CHIMERE_ENOMEM;
    if (!rc) {
        m->use = *use;
        m->n_vocab = n_vocab;
        m->boost = mem_alloc_array((size_t)n_vocab, sizeof *m->boost);
        m->touched = mem_alloc_array((size_t)n_vocab, sizeof *m->touched);
        if (!m->boost || !m->touched) rc = CHIMERE_ENOMEM;
    }
    for (int32_t i = 0; !rc && i < use->n_table; i++) {
        struct engram_info info;
        engram_table_info(use->tables[i], &info);
        if (info.n_weight != ENGRAM_N_FEATURE) continue;
        float *w = mem_alloc(sizeof info.weights);
        if (!w) rc = CHIMERE_ENOMEM;
        else memcpy(w, info.weights, sizeof info.weights);
        m->weights[i] = w;
    }
    if (rc) {
        engram_mixer_free(m);
        return err_set(e, rc, "engram: out of memory");
    }
    int32_t from = n_prompt > COVER_PROMPT ? n_prompt - COVER_PROMPT : 0;
    for (int32_t i = from; i < n_prompt; i++) {
        engram_mixer_push(m, prompt[i]);
        engram_mixer_wants(m);
    }
    engram_follow_start(&m->follow, use->recall);
    *out = m;
    return 0;
}

void engram_mixer_free(struct engram_mixer *m) {
    if (!m) return;
    for (int32_t i = 0; i < ENGRAM_MAX_TABLES; i++) mem_free((float *)m->weights[i]);
    engram_blend_fini(&m->blend);
    mem_free(m->boost);
    mem_free(m->touched);
    mem_free(m);
}

void engram_mixer_push(struct engram_mixer *m, int32_t token) {
    if (m->n_ctx == ENGRAM_MAX_ORDER) {
        memmove(m->ctx, m->ctx + 1, (ENGRAM_MAX_ORDER - 1) * sizeof *m->ctx);
        m->n_ctx--;
    }
    m->ctx[m->n_ctx++] = token;
    m->looked_up = false;
    engram_follow_push(&m->follow, token);
}

bool engram_mixer_wants(struct engram_mixer *m) {
    if (m->use.alpha <= 0) return false;
    struct engram_query q[ENGRAM_MAX_TABLES];
    int32_t n = m->looked_up ? 0 : m->use.n_table;
    for (int32_t i = 0; i < n; i++)
        q[i] = (struct engram_query){
            .table = m->use.tables[i], .ctx = m->ctx, .n_ctx = m->n_ctx, .hits = m->hits[i]};
    engram_lookup_many(q, (size_t)n);
    for (int32_t i = 0; i < n; i++) {
        m->n_hit[i] = q[i].n_hit;
        m->cover[i] = engram_cover(m->cover[i], m->hits[i], m->n_hit[i]);
    }
    m->looked_up = true;
    for (int32_t i = 0; i < m->use.n_table; i++)
        if (m->n_hit[i]) return true;
    return engram_follow_wants(&m->follow);
}

static void add(struct engram_mixer *m, int32_t token, float odds) {
    if (odds <= 0) return;
    if (m->boost[token] == 0) m->touched[m->n_touched++] = token;
    m->boost[token] += odds;
}

/* Returns the odds of a weight. Bounded, because the logistic function can round to 1 in floats. */
static float odds_of(float w) { return w < 0.9999f ? w / (1 - w) : 9999; }

void engram_mixer_apply(struct engram_mixer *m, float *logits) {
    if (!engram_mixer_wants(m)) return;
    struct engram_row row;
    engram_row_scan(logits, m->n_vocab, &row);
    engram_mixer_apply_few(m, logits, &row);
}

void engram_mixer_apply_few(struct engram_mixer *m, float *logits, const struct engram_row *row) {
    float f[ENGRAM_N_FEATURE], to_model = 1;
    if (!engram_mixer_wants(m)) return;
    for (int32_t t = 0; t < m->use.n_table; t++) {
        if (!m->n_hit[t]) continue;
        struct engram_blend *b = &m->blend;
        engram_blend_fill(b, m->hits[t], m->n_hit[t], m->n_vocab);
        engram_features(m->hits[t], m->n_hit[t], b, row, logits, m->cover[t], f);
        float odds = m->use.alpha * odds_of(engram_weight(m->weights[t], f));
        for (int32_t i = 0; i < b->n; i++) add(m, b->tokens[i], odds * b->p[i]);
        to_model += odds * b->left;
    }
    int32_t n_recalled;
    const struct engram_recalled *r = engram_follow_next(&m->follow, logits, row, &n_recalled);
    for (int32_t i = 0; i < n_recalled; i++)
        if (r[i].token >= 0 && r[i].token < m->n_vocab)
            add(m, r[i].token, m->use.alpha * r[i].odds);
    for (int32_t i = 0; i < m->n_touched; i++) {
        int32_t t = m->touched[i];
        /* p is the model's share of the mixture before the boost; a banned token, -infinity, stays banned */
        float p = expf(logits[t] - row->norm) * to_model;
        if (logits[t] > -INFINITY) {
            if (p > 1e-30f) logits[t] += log1pf(m->boost[t] / p);
            else logits[t] = row->norm + logf(m->boost[t] / to_model);
        }
        m->boost[t] = 0;
    }
    m->n_touched = 0;
}

int32_t engram_mixer_list(struct engram_mixer *m, const int32_t *ahead, int32_t n_ahead,
                          int32_t *out, int32_t cap) {
    struct engram_hit hits[ENGRAM_N_ORDER];
    int32_t n = 0, n_ctx = m->n_ctx;
    if (m->use.alpha <= 0) return 0;
    if (n_ahead > STEP_ROOM) return -1;
    for (int32_t i = 0; i < n_ahead; i++) m->ctx[n_ctx++] = ahead[i];
    int32_t from = n_ctx > ENGRAM_MAX_ORDER ? n_ctx - ENGRAM_MAX_ORDER : 0;
    for (int32_t t = 0; t < m->use.n_table; t++) {
        int n_hit = engram_lookup(m->use.tables[t], m->ctx + from, n_ctx - from, hits);
        for (int h = 0; h < n_hit; h++) {
            const struct engram_next *next = engram_hit_next(&hits[h]);
            for (uint32_t i = 0; i < hits[h].n_next; i++) {
                if (next[i].token >= (uint32_t)m->n_vocab) continue;
                if (n == cap) return -1;
                out[n++] = (int32_t)next[i].token;
            }
        }
    }
    int32_t more = engram_follow_list(&m->follow, n_ahead, out + n, cap - n);
    return more < 0 ? -1 : n + more;
}

int32_t engram_mixer_draft(struct engram_mixer *m, int32_t n_max, int32_t *out) {
    int32_t n = 0, n_ctx = m->n_ctx;
    int32_t *ctx = m->ctx;
    struct engram_hit hits[ENGRAM_N_ORDER];
    if (n_max > STEP_ROOM) n_max = STEP_ROOM;
    for (; n < n_max; n++) {
        const struct engram_next *best = NULL;
        float share = 0;
        for (int32_t i = 0; i < m->use.n_table; i++) {
            int32_t from = n_ctx > ENGRAM_MAX_ORDER ? n_ctx - ENGRAM_MAX_ORDER : 0;
            if (!engram_lookup(m->use.tables[i], ctx + from, n_ctx - from, hits)) continue;
            const struct engram_next *x = engram_hit_next(&hits[0]);
            float s = (float)x->count / (float)hits[0].total * (float)hits[0].order;
            if (hits[0].order < DRAFT_ORDER || 2 * (uint64_t)x->count < hits[0].total ||
                s <= share || x->token >= (uint32_t)m->n_vocab)
                continue;
            share = s;
            best = x;
            out[n] = (int32_t)x->token;
        }
        if (!best) break;
        ctx[n_ctx++] = out[n];
    }
    return n;
}

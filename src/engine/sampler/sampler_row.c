/* sampler_row.c: passes over a row of logits, written so that compilers vectorise them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/sampler/sampler_impl.h"

/* Maps floats to integers in the same order; NaN is outside [key(-inf), key(+inf)]. */
static inline int32_t key_of(float x) {
    int32_t b;
    memcpy(&b, &x, 4);
    return b ^ (int32_t)((uint32_t)(b >> 31) >> 1);
}

bool sampler_max(const float *row, int32_t n, float *max) {
    int32_t high = INT32_MIN, low = INT32_MAX;
    for (int32_t i = 0; i < n; i++) {
        int32_t k = key_of(row[i]);
        high = k > high ? k : high;
        low = k < low ? k : low;
    }
    if (low < key_of(-INFINITY) || high >= key_of(INFINITY) || high <= key_of(-INFINITY))
        return false;
    int32_t b = high ^ (int32_t)((uint32_t)(high >> 31) >> 1);
    memcpy(max, &b, 4);
    return true;
}

int32_t sampler_find(const float *row, int32_t n, float value) {
    int32_t i = 0;
    for (; i + 32 <= n; i += 32) {
        int32_t any = 0;
        for (int32_t k = 0; k < 32; k++) any |= row[i + k] == value;
        if (any) break;
    }
    while (i < n && row[i] != value) i++;
    return i;
}

/* e^x for x <= 0 with a relative error of 2e-4; e^-87 for x below -87. It clamps on integers, because compilers
 * vectorise that. */
static inline float exp_below(float x) {
    /* 1.5 * 2^23: adding it rounds to an integer, which is then in the low bits of the float */
    const float round = 12582912.0f;
    int32_t bits;
    memcpy(&bits, &x, 4);
    bits &= INT32_MAX;
    bits = bits < 0x42ae0000 ? bits : 0x42ae0000; /* the bits of 87.0f */
    memcpy(&x, &bits, 4);
    float y = x * -1.44269504f, high = y + round, f = y - (high - round);
    float part = 1 + f * (0.69315f + f * (0.24023f + f * (0.0558f + f * 0.0096f)));
    memcpy(&bits, &high, 4);
    bits = (int32_t)((uint32_t)(bits + 127) << 23);
    memcpy(&x, &bits, 4);
    return x * part;
}

float sampler_share(const float *row, int32_t n, float max) {
    float lane[16] = {0}, sum = 0;
    int32_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int32_t k = 0; k < 16; k++) lane[k] += exp_below(row[i + k] - max);
    for (; i < n; i++) sum += exp_below(row[i] - max);
    for (int32_t k = 0; k < 16; k++) sum += lane[k];
    return 1 / sum;
}

float sampler_deviation(const float *row, int32_t n) {
    double sum = 0, square = 0;
    int32_t count = 0;
    for (int32_t i = 0; i < n; i++) {
        if (!isfinite(row[i])) continue;
        sum += row[i];
        square += (double)row[i] * row[i];
        count++;
    }
    double mean = count ? sum / count : 0, var = count ? square / count - mean * mean : 0;
    return (float)sqrt(var > 0 ? var : 0);
}

static bool less(const struct cand *a, const struct cand *b) {
    return a->logit < b->logit || (a->logit == b->logit && a->id > b->id);
}

static void sift(struct cand *h, int32_t n, int32_t i) {
    for (;;) {
        int32_t c = 2 * i + 1;
        if (c >= n) return;
        if (c + 1 < n && less(&h[c + 1], &h[c])) c++;
        if (!less(&h[c], &h[i])) return;
        struct cand t = h[i];
        h[i] = h[c];
        h[c] = t;
        i = c;
    }
}

/* Puts c into the heap of the k best so far; once there are k, the smallest is at the top. */
static inline void offer(struct cand *h, int32_t *n, int32_t k, struct cand c, float *least) {
    if (*n < k) {
        h[(*n)++] = c;
        if (*n < k) return;
        for (int32_t j = *n / 2; j-- > 0;) sift(h, *n, j);
        if (h[0].logit > *least) *least = h[0].logit;
    } else if (less(&h[0], &c)) {
        h[0] = c;
        sift(h, *n, 0);
        *least = h[0].logit;
    }
}

int32_t sampler_top(struct sampler *s, const float *row, int32_t k, float cut) {
    int32_t n = 0;
    float least = cut;
    for (int32_t at = 0; at < s->n_vocab; at += 16) {
        int32_t end = at + 16 < s->n_vocab ? at + 16 : s->n_vocab, any = 0;
        for (int32_t i = at; i < end; i++) any |= row[i] >= least;
        for (int32_t i = at; any && i < end; i++)
            if (row[i] >= least && row[i] != -INFINITY)
                offer(s->cand, &n, k, (struct cand){.id = i, .logit = row[i]}, &least);
    }
    return n;
}

int32_t sampler_top_of(struct sampler *s, const int32_t *ids, const float *values, int32_t n_id,
                       int32_t k, float cut) {
    int32_t n = 0;
    float least = cut;
    for (int32_t i = 0; i < n_id; i++) {
        float x = values ? values[i] : s->work[ids[i]];
        if (x >= least && x != -INFINITY)
            offer(s->cand, &n, k, (struct cand){.id = ids[i], .logit = x}, &least);
    }
    return n;
}

int sampler_by_logit(const void *a, const void *b) {
    const struct cand *x = a, *y = b;
    return x->logit > y->logit ? -1 : x->logit < y->logit ? 1 : x->id - y->id;
}

/* Moves the candidates with the largest logits to the front: at least want of them, and few more unless many are equal.
 * Returns how many; no other one is larger than these. */
static int32_t split(struct cand *c, int32_t n, int32_t want) {
    enum { N_BIN = 1024 };
    int32_t bins[N_BIN] = {0}, sum = 0, last = 0, at = 0;
    float high = c[0].logit, low = c[0].logit;
    for (int32_t i = 1; i < n; i++) {
        high = c[i].logit > high ? c[i].logit : high;
        low = c[i].logit < low ? c[i].logit : low;
    }
    if (!(high > low)) return n;
    float scale = (N_BIN - 1) / (high - low);
    for (int32_t i = 0; i < n; i++) bins[(int32_t)((high - c[i].logit) * scale)]++;
    while ((sum += bins[last]) < want) last++;
    for (int32_t i = 0; i < n; i++) {
        if ((int32_t)((high - c[i].logit) * scale) > last) continue;
        struct cand t = c[i];
        c[i] = c[at];
        c[at++] = t;
    }
    return at;
}

void sampler_order(struct sampler *s, int32_t n) {
    if (n > s->n_cand) n = s->n_cand;
    while (s->n_ordered < n) {
        struct cand *rest = s->cand + s->n_ordered;
        int32_t left = s->n_cand - s->n_ordered;
        int32_t want = s->n_ordered < 32 ? 64 : 3 * s->n_ordered;
        if (left / 2 > want) left = split(rest, left, want);
        sampler_sort(rest, left, sampler_by_logit);
        s->n_ordered += left;
    }
}

/* Heap sort: it works in place, so that picking does not allocate (qsort may). */
void sampler_sort(struct cand *c, int32_t n, int (*cmp)(const void *, const void *)) {
    for (int32_t start = n / 2, end = n; end > 1;) {
        if (start > 0) {
            start--;
        } else {
            struct cand t = c[--end];
            c[end] = c[0];
            c[0] = t;
        }
        for (int32_t root = start;;) {
            int32_t child = 2 * root + 1;
            if (child >= end) break;
            if (child + 1 < end && cmp(&c[child], &c[child + 1]) < 0) child++;
            if (cmp(&c[root], &c[child]) >= 0) break;
            struct cand t = c[root];
            c[root] = c[child];
            c[child] = t;
            root = child;
        }
    }
}

void sampler_softmax(struct sampler *s, float temperature) {
    sampler_order(s, 1);
    float max = s->n_cand ? s->cand[0].logit : 0;
    double sum = 0;
    for (int32_t i = 0; i < s->n_cand; i++) {
        s->cand[i].p = expf((s->cand[i].logit - max) / temperature);
        sum += s->cand[i].p;
    }
    for (int32_t i = 0; i < s->n_cand; i++) s->cand[i].p = (float)(s->cand[i].p / sum);
}

bool sampler_is_breaker(const struct sampler *s, int32_t token) {
    struct slice piece = tok_piece(s->tok, token);
    for (size_t i = 0; i < s->p.n_dry_breaker; i++) {
        size_t n = strlen(s->p.dry_breakers[i]);
        if (n && n <= piece.n && memmem(piece.p, piece.n, s->p.dry_breakers[i], n)) return true;
    }
    return false;
}

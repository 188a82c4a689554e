/* classify.c: see classify.h. train/intent/train.py computes the same features. */
#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "odo/decide/classify_impl.h"
#include "retrieval/fold.h"

enum { MAX_BYTES = 16384, MAX_WORDS = 256, MAX_WORD = 32, MIN_GRAM = 3, MAX_GRAM = 5 };

struct features {
    uint64_t seen[CLASSIFY_N_BUCKET / 64];
    int32_t n;
    double sum[CLASSIFY_N_OUT];
};

/* FNV-1a over the kind of feature and its bytes. */
static uint32_t hash(unsigned char kind, const char *p, size_t n) {
    uint32_t h = (2166136261U ^ kind) * 16777619U;
    for (size_t i = 0; i < n; ++i) h = (h ^ (unsigned char)p[i]) * 16777619U;
    return h;
}

static void add(struct features *f, unsigned char kind, const char *p, size_t n) {
    uint32_t b = hash(kind, p, n) % CLASSIFY_N_BUCKET;
    uint64_t bit = (uint64_t)1 << (b % 64);
    if (f->seen[b / 64] & bit) return;
    f->seen[b / 64] |= bit;
    ++f->n;
    for (int k = 0; k < CLASSIFY_N_OUT; ++k) f->sum[k] += classify_weights[b][k];
}

static bool in_word(char c) { return isalnum((unsigned char)c) || (unsigned char)c >= 0x80; }

/* Adds the words, word pairs and n-grams of a folded text in lower case. Returns the number of words. */
static int read_words(struct features *f, const char *p, size_t n) {
    char pair[2 * MAX_WORD + 1], edged[MAX_WORD + 2];
    size_t last = 0; /* bytes of the previous word, which is at the start of pair */
    int n_word = 0;
    for (size_t i = 0; i < n && n_word < MAX_WORDS;) {
        if (!in_word(p[i])) {
            ++i;
            continue;
        }
        size_t from = i;
        while (i < n && in_word(p[i])) ++i;
        size_t len = i - from < MAX_WORD ? i - from : MAX_WORD;
        add(f, 1, p + from, len);
        if (n_word) {
            pair[last] = ' ';
            memcpy(pair + last + 1, p + from, len);
            add(f, 2, pair, last + 1 + len);
        }
        memcpy(pair, p + from, len);
        last = len;
        edged[0] = ' ';
        memcpy(edged + 1, p + from, len);
        edged[len + 1] = ' ';
        for (size_t g = MIN_GRAM; g <= MAX_GRAM; ++g)
            for (size_t k = 0; k + g <= len + 2; ++k) add(f, (unsigned char)g, edged + k, g);
        ++n_word;
    }
    return n_word;
}

static void add_shape(const char *p, size_t n, int n_word, double *level) {
    double marks = 0, ends = 0, asks = 0, words = n_word;
    for (size_t i = 0; i < n; ++i) {
        marks += p[i] == ',' || p[i] == ':' || p[i] == ';';
        ends += p[i] == '.' || p[i] == '?' || p[i] == '!';
        asks += p[i] == '?';
    }
    ends = fmax(ends, 1);
    const double shape[CLASSIFY_N_SHAPE] = {fmin(words, 40) / 40,
                                            fmin(words, 200) / 200,
                                            fmin(marks, 6) / 6,
                                            fmin(ends, 6) / 6,
                                            asks > 0,
                                            fmin(words / ends, 40) / 40};
    for (int i = 0; i < CLASSIFY_N_SHAPE; ++i)
        for (int k = 0; k < CLASSIFY_N_LEVEL; ++k)
            level[k] += shape[i] * (double)classify_shape[i][k];
}

static void softmax(double *v, int n) {
    double most = v[0], sum = 0;
    for (int i = 1; i < n; ++i) most = fmax(most, v[i]);
    for (int i = 0; i < n; ++i) sum += v[i] = exp(v[i] - most);
    for (int i = 0; i < n; ++i) v[i] /= sum;
}

void classify_text(const char *text, size_t n, struct classified *out) {
    struct features f = {0};
    struct buf b;
    buf_init(&b, 4 * MAX_BYTES);
    fold_text(&b, text, n < MAX_BYTES ? n : MAX_BYTES, true);
    for (size_t i = 0; i < b.n; ++i) b.p[i] = (char)tolower((unsigned char)b.p[i]);
    int n_word = read_words(&f, b.n ? b.p : "", b.n);
    double unit = f.n ? 1 / sqrt(f.n) : 0;
    for (int k = 0; k < CLASSIFY_N_OUT; ++k)
        f.sum[k] = f.sum[k] * (double)classify_scale[k >= CLASSIFY_N_ROUTE] * unit +
                   (double)classify_bias[k];
    memcpy(out->route, f.sum, sizeof out->route);
    memcpy(out->level, f.sum + CLASSIFY_N_ROUTE, sizeof out->level);
    add_shape(b.n ? b.p : "", b.n, n_word, out->level);
    softmax(out->route, CLASSIFY_N_ROUTE);
    softmax(out->level, CLASSIFY_N_LEVEL);
    buf_fini(&b);
}

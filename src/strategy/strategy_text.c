/* strategy_text.c: self-consistency of texts that have no single final answer. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "strategy/strategy_check.h"

enum { MAX_WORDS = 2048 };

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static bool is_word(char c) { return isalnum((unsigned char)c) || (unsigned char)c >= 0x80; }

/* Writes the sorted hashes of the words, in lower case. Returns their number. */
static size_t words_of(const char *text, size_t n, uint64_t out[MAX_WORDS]) {
    size_t n_word = 0;
    for (size_t i = 0; i < n && n_word < MAX_WORDS;) {
        uint64_t h = 0;
        size_t from;
        while (i < n && !is_word(text[i])) i++;
        for (from = i; i < n && is_word(text[i]); i++) {
            char c = (char)tolower((unsigned char)text[i]);
            h = hash_bytes(&c, 1, h + 1);
        }
        if (i > from) out[n_word++] = h;
    }
    if (n_word) qsort(out, n_word, sizeof *out, by_value);
    return n_word;
}

static double overlap(const uint64_t *a, size_t n_a, const uint64_t *b, size_t n_b) {
    size_t same = 0;
    for (size_t i = 0, k = 0; i < n_a && k < n_b;) {
        if (a[i] == b[k]) same++, i++, k++;
        else if (a[i] < b[k]) i++;
        else k++;
    }
    return n_a + n_b ? 2.0 * (double)same / (double)(n_a + n_b) : 0;
}

double strategy_overlap(const char *a, size_t n_a, const char *b, size_t n_b) {
    uint64_t *v = mem_alloc_array(2 * (size_t)MAX_WORDS, sizeof *v);
    if (!v) return 0;
    size_t n = words_of(a, n_a, v), m = words_of(b, n_b, v + MAX_WORDS);
    double share = overlap(v, n, v + MAX_WORDS, m);
    mem_free(v);
    return share;
}

/* Sets the score of each candidate to its mean overlap with the others. */
static int compare(struct candidate *c, int32_t n, struct err *e) {
    uint64_t *words = mem_alloc_array((size_t)n * MAX_WORDS, sizeof *words);
    size_t n_word[STRATEGY_MAX_N];
    if (!words) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (int32_t i = 0; i < n; i++)
        n_word[i] = c[i].failed ? 0
                                : words_of(c[i].content.n ? c[i].content.p : "", c[i].content.n,
                                           words + (size_t)i * MAX_WORDS);
    for (int32_t i = 0; i < n; i++) {
        double sum = 0;
        int32_t others = 0;
        for (int32_t k = 0; k < n; k++) {
            if (k == i || c[k].failed) continue;
            sum += overlap(words + (size_t)i * MAX_WORDS, n_word[i], words + (size_t)k * MAX_WORDS,
                           n_word[k]);
            others++;
        }
        c[i].score = c[i].failed ? 0 : others ? sum / others : 1;
    }
    mem_free(words);
    return 0;
}

int strategy_consistent(const struct strategy_use *u, struct strategy_result *r, struct err *e) {
    int32_t n = u->strategy->n;
    struct candidate *c = mem_alloc_array((size_t)n, sizeof *c);
    if (!c) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    int rc = strategy_sample(u, c, n, r, e);
    if (!rc) rc = compare(c, n, e);
    if (!rc) rc = strategy_give(u, c, n, strategy_pick(c, n), r, e);
    strategy_drop(c, n);
    mem_free(c);
    return rc;
}

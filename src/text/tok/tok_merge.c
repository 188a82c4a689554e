/* tok_merge.c: the merging that byte-pair and SentencePiece tokenizers share. Of all adjacent symbols that may
 * merge, the best pair is merged first, of equal ones the leftmost, until no pair can merge.
 *
 * Short words use a simple loop. Long words use a heap of candidates over a linked list whose nodes are byte
 * offsets of the word: sym[i] is the symbol that begins at i, len[i] its length in bytes (0: merged into another),
 * prev[i] the start of the previous symbol; the next one begins at i + len[i]. A candidate consists of its rank
 * and its start. It is stale if the symbol that begins there now merges with another rank or not at all.
 *
 * Words repeat, so a direct-mapped table stores the ids of short words during one call. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "text/tok/tok_merge_impl.h"

enum {
    SHORT_WORD = 32,
    CACHE_SLOTS = 8192,
    CACHE_BYTES = 16,
    CACHE_IDS = 11,
    CACHE_FROM_BYTES = 4096
};
#define NO_RANK UINT32_MAX

struct cached_word {
    uint64_t word[CACHE_BYTES / 8]; /* zero-padded */
    uint8_t len, n;                 /* len 0: empty slot */
    uint32_t ids[CACHE_IDS];
};

/* Returns the result of merging the symbols of s[0..la) and s[la..la+lb); NO_RANK if they do not merge. */
static inline uint32_t merge_of(const struct tok *t, const char *s, uint32_t la, uint32_t lb,
                                uint32_t a, uint32_t b, uint32_t *to) {
    if (t->model == TOK_SPM) {
        *to = tok_match(t, s, (size_t)la + lb);
        return *to == TOK_NO_SYMBOL ? NO_RANK : t->order[*to];
    }
    if (a == TOK_NO_SYMBOL || b == TOK_NO_SYMBOL) return NO_RANK;
    uint32_t i = (uint32_t)hash_mix((uint64_t)a << 32 | b) & t->pair_mask;
    for (; t->pairs[i].left != TOK_NO_SYMBOL; i = (i + 1) & t->pair_mask) {
        if (t->pairs[i].left != a || t->pairs[i].right != b) continue;
        *to = t->pairs[i].to;
        return t->pairs[i].rank;
    }
    return NO_RANK;
}

static int put_symbol(struct enc *c, uint32_t sym, const char *s, uint32_t n) {
    return sym < c->t->n_vocab ? tok_ids_put(&c->out, sym) : tok_put_bytes(c, s, n);
}

/* Returns symbol and length of the character at word[i..n). */
static uint32_t first_symbol(const struct tok *t, const char *word, uint32_t i, uint32_t *len) {
    if (t->model == TOK_BPE && !(t->pre->flags & PRE_RAW))
        return *len = 1, t->byte_symbol[(unsigned char)word[i]];
    size_t next = i;
    tok_next_cp(word, &next);
    *len = (uint32_t)next - i;
    return tok_match(t, word + i, *len);
}

static int reserve(struct tok_ids *a, uint32_t n) {
    a->n = 0;
    return tok_ids_reserve(a, n);
}

/* ---- short words ---- */

/* sym[k] is a symbol, len[k] its start; prev[k] and to[k] are rank and result of merging k with k + 1. */
static int merge_linear(struct enc *c, const char *word, uint32_t n) {
    if (reserve(&c->sym, n) || reserve(&c->len, n + 1) || reserve(&c->prev, n) ||
        reserve(&c->to, n))
        return CHIMERE_ENOMEM;
    uint32_t *sym = c->sym.p, *at = c->len.p, *rank = c->prev.p, *to = c->to.p, n_sym = 0, len;
    for (uint32_t i = 0; i < n; i += len) {
        sym[n_sym] = first_symbol(c->t, word, i, &len);
        at[n_sym++] = i;
    }
    at[n_sym] = n;
#define RANK(k)                                                                                    \
    rank[k] = merge_of(c->t, word + at[k], at[(k) + 1] - at[k], at[(k) + 2] - at[(k) + 1], sym[k], \
                       sym[(k) + 1], &to[k])
    for (uint32_t k = 0; k + 1 < n_sym; k++) RANK(k);
    while (n_sym > 1) {
        uint32_t best = 0;
        for (uint32_t k = 1; k + 1 < n_sym; k++)
            if (rank[k] < rank[best]) best = k;
        if (rank[best] == NO_RANK) break;
        sym[best] = to[best];
        uint32_t tail = n_sym - best - 2; /* symbols after the pair */
        memmove(sym + best + 1, sym + best + 2, tail * sizeof *sym);
        memmove(at + best + 1, at + best + 2, (tail + 1) * sizeof *at);
        if (tail) {
            memmove(rank + best + 1, rank + best + 2, (tail - 1) * sizeof *rank);
            memmove(to + best + 1, to + best + 2, (tail - 1) * sizeof *to);
        }
        n_sym--;
        if (best > 0) RANK(best - 1);
        if (best + 1 < n_sym) RANK(best);
    }
#undef RANK
    for (uint32_t k = 0; k < n_sym; k++)
        if (put_symbol(c, sym[k], word + at[k], at[k + 1] - at[k])) return CHIMERE_ENOMEM;
    return 0;
}

/* ---- long words ---- */

/* A heap with four children per node over rank << 32 | offset: it is less deep than a binary heap, and the
 * children of a node share a cache line. */
static void sift_down(uint64_t *h, size_t n, size_t i) {
    uint64_t x = h[i];
    for (size_t k; (k = 4 * i + 1) < n; i = k) {
        size_t end = k + 4 < n ? k + 4 : n;
        for (size_t c = k + 1; c < end; c++) k = h[c] < h[k] ? c : k;
        if (h[k] >= x) break;
        h[i] = h[k];
    }
    h[i] = x;
}

static int heap_grow(struct enc *c, size_t more) {
    if (c->cap_heap - c->n_heap >= more) return 0;
    size_t cap = c->cap_heap + c->cap_heap / 2 + more + 64, bytes;
    if (!size_mul(cap, sizeof *c->heap, &bytes)) return CHIMERE_ENOMEM;
    uint64_t *h = mem_realloc(c->heap, bytes);
    if (!h) return CHIMERE_ENOMEM;
    c->heap = h;
    c->cap_heap = cap;
    return 0;
}

/* Returns the rank at which the symbol at i merges with the next one; *to is the result. */
static uint32_t rank_at(const struct enc *c, const char *word, uint32_t i, uint32_t n,
                        uint32_t *to) {
    const uint32_t *sym = c->sym.p, *len = c->len.p, j = i + len[i];
    return j < n ? merge_of(c->t, word + i, len[i], len[j], sym[i], sym[j], to) : NO_RANK;
}

static int push(struct enc *c, const char *word, uint32_t i, uint32_t n) {
    uint32_t to, rank = rank_at(c, word, i, n, &to);
    if (rank == NO_RANK) return 0;
    if (heap_grow(c, 1)) return CHIMERE_ENOMEM;
    uint64_t *h = c->heap, item = (uint64_t)rank << 32 | i;
    size_t k = c->n_heap++;
    for (; k && item < h[(k - 1) / 4]; k = (k - 1) / 4) h[k] = h[(k - 1) / 4];
    h[k] = item;
    return 0;
}

static int merge_heap(struct enc *c, const char *word, uint32_t n) {
    if (reserve(&c->sym, n) || reserve(&c->len, n) || reserve(&c->prev, n)) return CHIMERE_ENOMEM;
    uint32_t *sym = c->sym.p, *len = c->len.p, *prev = c->prev.p, before = UINT32_MAX;
    for (uint32_t i = 0; i < n; before = i, i += len[i]) {
        sym[i] = first_symbol(c->t, word, i, &len[i]);
        prev[i] = before;
    }
    c->n_heap = 0;
    for (uint32_t i = 0, to; i < n; i += len[i]) {
        uint32_t rank = rank_at(c, word, i, n, &to);
        if (rank == NO_RANK) continue;
        if (heap_grow(c, 1)) return CHIMERE_ENOMEM;
        c->heap[c->n_heap++] = (uint64_t)rank << 32 | i;
    }
    for (size_t k = c->n_heap / 4 + 1; k-- > 0;)
        if (k < c->n_heap) sift_down(c->heap, c->n_heap, k);
    while (c->n_heap) {
        uint64_t best = c->heap[0];
        c->heap[0] = c->heap[--c->n_heap];
        if (c->n_heap) sift_down(c->heap, c->n_heap, 0);
        uint32_t i = (uint32_t)best, to = TOK_NO_SYMBOL;
        if (!len[i] || rank_at(c, word, i, n, &to) != best >> 32) continue; /* stale */
        uint32_t j = i + len[i];
        sym[i] = to;
        len[i] += len[j];
        len[j] = 0;
        if (i + len[i] < n) prev[i + len[i]] = i;
        if (prev[i] != UINT32_MAX && push(c, word, prev[i], n)) return CHIMERE_ENOMEM;
        if (push(c, word, i, n)) return CHIMERE_ENOMEM;
    }
    for (uint32_t i = 0; i < n; i += len[i])
        if (put_symbol(c, sym[i], word + i, len[i])) return CHIMERE_ENOMEM;
    return 0;
}

int tok_merge_word(struct enc *c, const char *word, uint32_t n, bool linear) {
    if (n == 0) return 0;
    return linear ? merge_linear(c, word, n) : merge_heap(c, word, n);
}

/* ---- words ---- */

static int encode_word(struct enc *c, const char *word, uint32_t n) {
    const struct tok *t = c->t;
    unsigned flags = t->pre ? t->pre->flags : 0;
    if ((flags & PRE_IGNORE_MERGES) || ((flags & PRE_NEWLINE_TOKENS) && word[0] == '\n')) {
        uint32_t id = tok_match(t, word, n);
        if (id < t->n_vocab) return tok_ids_put(&c->out, id);
    }
    return tok_merge_word(c, word, n, n <= SHORT_WORD);
}

static int encode_cached(struct enc *c, const char *word, uint32_t n) {
    uint64_t key[CACHE_BYTES / 8] = {0};
    memcpy(key, word, n);
    struct cached_word *w = &c->cache[hash_mix(key[0] ^ hash_mix(key[1] + n)) % CACHE_SLOTS];
    if (w->len == n && w->word[0] == key[0] && w->word[1] == key[1]) {
        if (tok_ids_reserve(&c->out, w->n)) return CHIMERE_ENOMEM;
        if (w->n) memcpy(c->out.p + c->out.n, w->ids, w->n * sizeof *w->ids);
        c->out.n += w->n;
        return 0;
    }
    size_t n_before = c->out.n;
    int rc = encode_word(c, word, n);
    size_t n_ids = c->out.n - n_before;
    if (rc || n_ids > CACHE_IDS) return rc;
    memcpy(w->word, key, sizeof key);
    w->len = (uint8_t)n;
    w->n = (uint8_t)n_ids;
    if (n_ids) memcpy(w->ids, c->out.p + n_before, n_ids * sizeof *w->ids);
    return 0;
}

int tok_merge_words(struct enc *c, const char *text, uint32_t from, const struct tok_ids *ends) {
    if (!c->cache && ends->n && ends->p[ends->n - 1] - from >= CACHE_FROM_BYTES) {
        c->cache = mem_alloc_array(CACHE_SLOTS, sizeof *c->cache);
        if (!c->cache) return CHIMERE_ENOMEM;
    }
    for (size_t i = 0; i < ends->n; i++) {
        uint32_t n = ends->p[i] - from;
        int rc = c->cache && n <= CACHE_BYTES ? encode_cached(c, text + from, n)
                                              : encode_word(c, text + from, n);
        if (rc) return rc;
        from = ends->p[i];
    }
    return 0;
}

/* ---- splitting at spaces: no merge crosses a space after a character that no string has before a space ---- */

static int by_value(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Returns the character that ends before s[i], i > 0. */
static uint32_t cp_before(const char *s, size_t i) {
    size_t start = i - 1;
    while (start > 0 && i - start < 4 && ((unsigned char)s[start] & 0xC0) == 0x80) start--;
    uint32_t cp;
    return utf8_decode(s + start, i - start, &cp) == (int)(i - start) ? cp : 0xFFFD;
}

int tok_cross_build(struct tok *t) {
    struct tok_ids found = {0};
    for (uint32_t i = 0; i < t->n_symbol; i++) {
        if (i < t->n_vocab && !tok_is_plain(t, i)) continue;
        struct slice s = tok_symbol(t, i);
        for (size_t k = 1; k < s.n; k++) {
            if (s.p[k] != ' ' || s.p[k - 1] == ' ') continue;
            if (tok_ids_put(&found, cp_before(s.p, k))) {
                mem_free(found.p);
                return CHIMERE_ENOMEM;
            }
        }
    }
    if (found.n) qsort(found.p, found.n, sizeof *found.p, by_value);
    for (size_t i = 0; i < found.n; i++)
        if (i == 0 || found.p[i] != t->cross[t->n_cross - 1]) {
            t->cross = found.p;
            found.p[t->n_cross++] = found.p[i];
        }
    t->cross = found.p;
    return 0;
}

int tok_cross_split(const struct tok *t, const char *text, uint32_t from, uint32_t to,
                    struct tok_ids *ends) {
    for (uint32_t i = from + 1; i < to; i++) {
        const char *p = memchr(text + i, ' ', to - i);
        if (!p) break;
        i = (uint32_t)(p - text);
        if (text[i - 1] == ' ') continue;
        if (t->n_cross) {
            uint32_t cp = cp_before(text + from, i - from);
            if (bsearch(&cp, t->cross, t->n_cross, sizeof cp, by_value)) continue;
        }
        if (tok_ids_put(ends, i)) return CHIMERE_ENOMEM;
    }
    return from < to ? tok_ids_put(ends, to) : 0;
}

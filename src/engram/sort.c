/* sort.c: external sort of positions. A run is what fits into memory: a radix sort by the three newest
 * tokens packed into one word, then those that are equal by looking at the text (a third of the time of a sort by
 * comparison alone); runs are merged through a heap. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engram/sort_impl.h"

enum { MAX_RUN = 4096, RUN_BUFFER = 1 << 14, DIGIT = 11, KEY_BITS = 63 };

struct item {
    uint64_t key; /* the three newest tokens, 21 bits each */
    uint32_t pos;
};

struct run {
    uint64_t at, left; /* positions in the spill: next to read, not yet read */
    uint32_t *buffer;  /* owned [RUN_BUFFER] */
    uint32_t n, next;
};

struct engram_sort {
    const uint32_t *text; /* borrowed */
    FILE *spill;          /* borrowed */
    struct item *items;   /* owned; the one run where everything fits */
    struct item *spare;   /* owned, of the same size */
    size_t n_item, next_item;
    struct run *runs; /* owned */
    uint32_t n_run;
    uint32_t *heap; /* owned: runs by their next position's context */
    uint32_t n_heap;
};

int engram_shared(const uint32_t *text, uint32_t a, uint32_t b) {
    int n = 0;
    while (n < ENGRAM_MAX_ORDER) {
        uint32_t x = text[--a];
        if (x == ENGRAM_BOUNDARY || x != text[--b]) break;
        n++;
    }
    return n;
}

/* Order of two contexts, by position where they are equal. Nothing behind a boundary is read. */
static int compare(const uint32_t *text, uint32_t a, uint32_t b) {
    for (uint32_t i = 1; i <= ENGRAM_MAX_ORDER; i++) {
        uint32_t x = text[a - i], y = text[b - i];
        if (x != y) return x < y ? -1 : 1;
        if (x == ENGRAM_BOUNDARY) break;
    }
    return a < b ? -1 : a > b;
}

static int by_context(const void *a, const void *b, void *arg) {
    const struct item *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return compare(arg, x->pos, y->pos);
}

static uint64_t key_of(const uint32_t *text, uint32_t pos) {
    uint64_t key = 0;
    bool ended = false;
    for (uint32_t i = 1; i <= 3; i++) {
        if (!ended && text[pos - i] == ENGRAM_BOUNDARY) ended = true;
        key = key << 21 | (ended ? ENGRAM_MAX_VOCAB : text[pos - i]);
    }
    return key;
}

/* Positions behind a context of at least ENGRAM_MIN_ORDER tokens. */
static bool is_wanted(const uint32_t *text, uint32_t pos) {
    return pos > ENGRAM_MIN_ORDER && text[pos] != ENGRAM_BOUNDARY &&
           text[pos - 1] != ENGRAM_BOUNDARY && text[pos - 2] != ENGRAM_BOUNDARY;
}

/* One pass, stable; false: all have the same digit, nothing moved. */
static bool pass_by_digit(const struct item *from, struct item *to, size_t n, int shift) {
    size_t at[1 << DIGIT] = {0}, sum = 0;
    const uint64_t mask = (1 << DIGIT) - 1;
    for (size_t i = 0; i < n; i++) at[from[i].key >> shift & mask]++;
    if (at[from[0].key >> shift & mask] == n) return false;
    for (size_t d = 0; d <= mask; d++) {
        size_t count = at[d];
        at[d] = sum;
        sum += count;
    }
    for (size_t i = 0; i < n; i++) to[at[from[i].key >> shift & mask]++] = from[i];
    return true;
}

/* Items come by position, and equal contexts stay so. */
static void sort_run(struct engram_sort *s) {
    size_t n = s->n_item;
    for (int shift = 0; n && shift < KEY_BITS; shift += DIGIT) {
        if (!pass_by_digit(s->items, s->spare, n, shift)) continue;
        struct item *swap = s->items;
        s->items = s->spare;
        s->spare = swap;
    }
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && s->items[end].key == s->items[i].key;) end++;
        if (end - i > 1)
            qsort_r(s->items + i, end - i, sizeof *s->items, by_context, (void *)s->text);
    }
}

static int spill_run(struct engram_sort *s, uint64_t *at) {
    if (s->n_run == MAX_RUN) return CHIMERE_ELIMIT;
    struct run *r = &s->runs[s->n_run++];
    *r = (struct run){.at = *at, .left = s->n_item};
    for (size_t i = 0; i < s->n_item; i++)
        if (fwrite(&s->items[i].pos, 4, 1, s->spill) != 1) return CHIMERE_EIO;
    *at += s->n_item;
    s->n_item = 0;
    return 0;
}

static int refill(struct engram_sort *s, struct run *r) {
    r->n = r->left < RUN_BUFFER ? (uint32_t)r->left : RUN_BUFFER;
    r->next = 0;
    if (!r->n) return 0;
    if (fseeko(s->spill, (off_t)(r->at * 4), SEEK_SET) ||
        fread(r->buffer, 4, r->n, s->spill) != r->n)
        return CHIMERE_EIO;
    r->at += r->n;
    r->left -= r->n;
    return 0;
}

static bool before(const struct engram_sort *s, uint32_t a, uint32_t b) {
    const struct run *x = &s->runs[a], *y = &s->runs[b];
    return compare(s->text, x->buffer[x->next], y->buffer[y->next]) < 0;
}

static void sink(struct engram_sort *s, uint32_t i) {
    for (;;) {
        uint32_t c = 2 * i + 1;
        if (c >= s->n_heap) return;
        if (c + 1 < s->n_heap && before(s, s->heap[c + 1], s->heap[c])) c++;
        if (!before(s, s->heap[c], s->heap[i])) return;
        uint32_t t = s->heap[i];
        s->heap[i] = s->heap[c];
        s->heap[c] = t;
        i = c;
    }
}

static int start_merge(struct engram_sort *s) {
    mem_free(s->items);
    mem_free(s->spare);
    s->items = s->spare = NULL;
    s->heap = mem_alloc_array(s->n_run, sizeof *s->heap);
    if (!s->heap) return CHIMERE_ENOMEM;
    for (uint32_t i = 0; i < s->n_run; i++) {
        s->runs[i].buffer = mem_alloc(RUN_BUFFER * sizeof(uint32_t));
        if (!s->runs[i].buffer) return CHIMERE_ENOMEM;
        int rc = refill(s, &s->runs[i]);
        if (rc) return rc;
        s->heap[s->n_heap++] = i;
    }
    for (uint32_t i = s->n_heap / 2; i-- > 0;) sink(s, i);
    return 0;
}

static int fill_runs(struct engram_sort *s, uint32_t n_text, size_t cap) {
    uint64_t at = 0;
    int rc = 0;
    for (uint32_t pos = 1; pos < n_text && !rc; pos++) {
        if (!is_wanted(s->text, pos)) continue;
        if (s->n_item == cap) {
            sort_run(s);
            rc = spill_run(s, &at);
        }
        s->items[s->n_item++] = (struct item){key_of(s->text, pos), pos};
    }
    if (rc) return rc;
    sort_run(s);
    if (!s->n_run) {
        mem_free(s->spare);
        s->spare = NULL;
        return 0;
    }
    rc = s->n_item ? spill_run(s, &at) : 0;
    return rc ? rc : start_merge(s);
}

int engram_sort_new(struct engram_sort **out, const uint32_t *text, uint32_t n_text,
                    size_t memory_bytes, FILE *spill, struct err *e) {
    *out = NULL;
    struct engram_sort *s = mem_zalloc(sizeof *s);
    size_t cap = memory_bytes / 2 / sizeof *s->items; /* sorting takes as much again */
    if (cap > n_text) cap = n_text;
    if (cap < 1) cap = 1;
    int rc = s ? 0 : CHIMERE_ENOMEM;
    if (!rc) {
        s->text = text;
        s->spill = spill;
        s->items = mem_alloc_array(cap, sizeof *s->items);
        s->spare = mem_alloc_array(cap, sizeof *s->spare);
        s->runs = mem_alloc_array(MAX_RUN, sizeof *s->runs);
        rc = s->items && s->spare && s->runs ? fill_runs(s, n_text, cap) : CHIMERE_ENOMEM;
    }
    if (rc) {
        engram_sort_free(s);
        return err_set(e, rc, "sorting %u positions: %s", n_text, err_name(rc));
    }
    *out = s;
    return 0;
}

int engram_sort_next(struct engram_sort *s, uint32_t *pos) {
    if (!s->n_run) {
        if (s->next_item == s->n_item) return 0;
        *pos = s->items[s->next_item++].pos;
        return 1;
    }
    if (!s->n_heap) return 0;
    struct run *r = &s->runs[s->heap[0]];
    *pos = r->buffer[r->next++];
    if (r->next == r->n) {
        int rc = refill(s, r);
        if (rc) return rc;
        if (!r->n) s->heap[0] = s->heap[--s->n_heap];
    }
    sink(s, 0);
    return 1;
}

void engram_sort_free(struct engram_sort *s) {
    if (!s) return;
    for (uint32_t i = 0; i < s->n_run; i++) mem_free(s->runs[i].buffer);
    mem_free(s->runs);
    mem_free(s->heap);
    mem_free(s->items);
    mem_free(s->spare);
    mem_free(s);
}

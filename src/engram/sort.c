/* sort.c: external sort of positions. A run is what fits into memory. It is sorted by radix sort on the three
 * newest tokens, packed into one word, then equal keys by comparing the text: one third of the time of a sort by
 * comparison only. The order of a reused table is also a run. Runs are merged through a heap. */
#include "engram/sort_impl.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { MAX_RUN = 4096, RUN_BUFFER = 1 << 14, DIGIT = 11, KEY_BITS = 63, AHEAD = 12 };

struct item {
    uint64_t key; /* the three newest tokens, 21 bits each */
    uint32_t pos;
};

struct run {
    const struct engram_kept *kept; /* borrowed; NULL: the run is in the spill file */
    uint64_t at, left;              /* positions in the run: next to read, not yet read */
    uint32_t *buffer;               /* owned [RUN_BUFFER] */
    uint32_t n, next;
};

struct engram_sort {
    const uint32_t *text; /* borrowed */
    FILE *spill;          /* borrowed */
    struct item *items;   /* owned; the only run if everything fits */
    struct item *spare;   /* owned, of the same size */
    size_t n_item, next_item, cap;
    uint64_t spilled;
    struct run *runs; /* owned */
    uint32_t n_run;
    uint32_t *heap; /* owned: runs, ordered by the context of their next position */
    uint32_t n_heap;
};

uint32_t *engram_near_new(const struct engram_doc_disk *docs, uint32_t n_doc, uint64_t n_text) {
    uint64_t n = n_text / 64 + 1;
    uint32_t *near = mem_alloc_array(n, sizeof *near), doc = 0;
    for (uint64_t i = 0; near && i < n; i++) {
        while (doc + 1 < n_doc && docs[doc + 1].begin <= i * 64) doc++;
        near[i] = doc;
    }
    return near;
}

static int by_context(const void *a, const void *b, void *arg) {
    const struct item *x = a, *y = b;
    int shared;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return engram_compare(arg, x->pos, y->pos, &shared);
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

/* One stable pass. Returns false if all digits are equal; then nothing was moved. */
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

/* Items are added in order of position, and the sort keeps this order for equal contexts. */
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

static int spill_run(struct engram_sort *s) {
    if (s->n_run == MAX_RUN) return CHIMERE_ELIMIT;
    s->runs[s->n_run++] = (struct run){.at = s->spilled, .left = s->n_item};
    for (size_t i = 0; i < s->n_item; i++)
        if (fwrite(&s->items[i].pos, 4, 1, s->spill) != 1) return CHIMERE_EIO;
    s->spilled += s->n_item;
    s->n_item = 0;
    return 0;
}

/* Reads positions of the old text and converts them to positions of the new text. */
static int refill_kept(struct run *r) {
    const struct engram_table *t = r->kept->t;
    while (r->left && r->n < RUN_BUFFER) {
        uint32_t pos = t->order[r->at++];
        r->left--;
        if (pos >= t->h.n_text) return CHIMERE_EFORMAT;
        uint32_t doc = engram_near_doc(r->kept->near, t->docs, t->h.n_doc, pos);
        uint32_t into = pos - t->docs[doc].begin;
        if (pos < t->docs[doc].begin + ENGRAM_MIN_ORDER || into >= t->docs[doc].n_tok)
            return CHIMERE_EFORMAT;
        if (r->kept->begin[doc]) r->buffer[r->n++] = r->kept->begin[doc] + into;
    }
    return 0;
}

static int refill(struct engram_sort *s, struct run *r) {
    r->next = r->n = 0;
    if (r->kept) return refill_kept(r);
    uint32_t n = r->left < RUN_BUFFER ? (uint32_t)r->left : RUN_BUFFER;
    if (n &&
        (fseeko(s->spill, (off_t)(r->at * 4), SEEK_SET) || fread(r->buffer, 4, n, s->spill) != n))
        return CHIMERE_EIO;
    r->n = n;
    r->at += n;
    r->left -= n;
    return 0;
}

static bool before(const struct engram_sort *s, uint32_t a, uint32_t b) {
    const struct run *x = &s->runs[a], *y = &s->runs[b];
    int shared;
    return engram_compare(s->text, x->buffer[x->next], y->buffer[y->next], &shared) < 0;
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
        if (s->runs[i].n) s->heap[s->n_heap++] = i;
    }
    for (uint32_t i = s->n_heap / 2; i-- > 0;) sink(s, i);
    return 0;
}

int engram_sort_new(struct engram_sort **out, const uint32_t *text, uint64_t n_most,
                    size_t memory_bytes, FILE *spill) {
    *out = NULL;
    struct engram_sort *s = mem_zalloc(sizeof *s);
    if (!s) return CHIMERE_ENOMEM;
    s->text = text;
    s->spill = spill;
    /* half of the memory: sorting needs a second array of the same size */
    s->cap = memory_bytes / 2 / sizeof *s->items;
    if (s->cap > n_most) s->cap = n_most;
    if (s->cap < 1) s->cap = 1;
    s->items = mem_alloc_array(s->cap, sizeof *s->items);
    s->spare = mem_alloc_array(s->cap, sizeof *s->spare);
    s->runs = mem_alloc_array(MAX_RUN, sizeof *s->runs);
    if (!s->items || !s->spare || !s->runs) {
        engram_sort_free(s);
        return CHIMERE_ENOMEM;
    }
    *out = s;
    return 0;
}

int engram_sort_add(struct engram_sort *s, uint32_t from, uint32_t to) {
    int rc = 0;
    for (uint32_t pos = from; pos < to && !rc; pos++) {
        if (!engram_is_wanted(s->text, pos)) continue;
        if (s->n_item == s->cap) {
            sort_run(s);
            rc = spill_run(s);
        }
        s->items[s->n_item++] = (struct item){key_of(s->text, pos), pos};
    }
    return rc;
}

int engram_sort_keep(struct engram_sort *s, const struct engram_kept *k) {
    if (s->n_run == MAX_RUN) return CHIMERE_ELIMIT;
    s->runs[s->n_run++] = (struct run){.kept = k, .left = k->t->h.n_order};
    return 0;
}

int engram_sort_begin(struct engram_sort *s) {
    sort_run(s);
    if (s->n_run) {
        int rc = s->n_item ? spill_run(s) : 0;
        return rc ? rc : start_merge(s);
    }
    mem_free(s->spare);
    s->spare = NULL;
    return 0;
}

/* Prefetches the text before a position that will be compared soon. */
static void ask_for(const struct engram_sort *s, uint32_t pos) {
    __builtin_prefetch(s->text + pos);
    __builtin_prefetch(s->text + pos - (pos < ENGRAM_MAX_ORDER ? pos : ENGRAM_MAX_ORDER));
}

int engram_sort_next(struct engram_sort *s, uint32_t *pos) {
    if (!s->n_run) {
        if (s->next_item == s->n_item) return 0;
        if (s->next_item + AHEAD < s->n_item) ask_for(s, s->items[s->next_item + AHEAD].pos);
        *pos = s->items[s->next_item++].pos;
        return 1;
    }
    if (!s->n_heap) return 0;
    struct run *r = &s->runs[s->heap[0]];
    if (r->next + AHEAD < r->n) ask_for(s, r->buffer[r->next + AHEAD]);
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

/* sort_impl.h: the positions of a text in the order of their contexts, read newest token first.
 *
 * Positions come sorted by a table that they stand in already, or are sorted here; all are merged. */
#ifndef CHIMERE_ENGRAM_SORT_IMPL_H
#define CHIMERE_ENGRAM_SORT_IMPL_H

#include <stdio.h>

#include "engram/table_impl.h"

struct engram_sort;

/* The documents of a table that stand in the new text too, in the same sequence. */
struct engram_kept {
    const struct engram_table
        *t;          /* borrowed, as the others until engram_sort_free; it has its order */
    uint32_t *begin; /* [n_doc] of each in the new text; 0: gone */
    uint32_t *near;  /* of engram_near_new */
};

/* The last document that begins at or before each 64th position, so that the one of any position is a few steps
 * away: [n_text / 64 + 1], by mem_free; NULL: out of memory. */
uint32_t *engram_near_new(const struct engram_doc_disk *docs, uint32_t n_doc, uint64_t n_text);
static inline uint32_t engram_near_doc(const uint32_t *near, const struct engram_doc_disk *docs,
                                       uint32_t n_doc, uint32_t pos) {
    uint32_t i = near[pos / 64];
    while (i + 1 < n_doc && docs[i + 1].begin <= pos) i++;
    return i;
}

/* text is borrowed until engram_sort_free. At most n_most positions will be added; what does not fit
 * memory_bytes goes to `spill`, an empty file open for reading and writing, borrowed too. All of these:
 * CHIMERE_ENOMEM, _EIO, _ELIMIT, _EFORMAT: the order of a table that was kept is no order. */
int engram_sort_new(struct engram_sort **out, const uint32_t *text, uint64_t n_most,
                    size_t memory_bytes, FILE *spill);
/* Those of the documents in text[from..to). */
int engram_sort_add(struct engram_sort *s, uint32_t from, uint32_t to);
int engram_sort_keep(struct engram_sort *s, const struct engram_kept *k);
int engram_sort_begin(struct engram_sort *s); /* after all of these, before the first _next */
/* The next position: 1; 0 at the end. Positions of one context come by position. */
int engram_sort_next(struct engram_sort *s, uint32_t *pos);
void engram_sort_free(struct engram_sort *s);

/* Order of the contexts before two positions, by position where they are equal; *shared: how many tokens
 * they share, up to ENGRAM_MAX_ORDER. Nothing behind a boundary is read. */
static inline int engram_compare(const uint32_t *text, uint32_t a, uint32_t b, int *shared) {
    int n = 0;
    for (; n < ENGRAM_MAX_ORDER; n++) {
        uint32_t x = text[a - 1 - (uint32_t)n], y = text[b - 1 - (uint32_t)n];
        if (x == y && x != ENGRAM_BOUNDARY) continue;
        *shared = n;
        if (x != y) return x < y ? -1 : 1;
        break;
    }
    *shared = n;
    return a < b ? -1 : a > b;
}

/* Whether a position stands behind a context of at least ENGRAM_MIN_ORDER tokens. */
static inline bool engram_is_wanted(const uint32_t *text, uint32_t pos) {
    return pos > ENGRAM_MIN_ORDER && text[pos] != ENGRAM_BOUNDARY &&
           text[pos - 1] != ENGRAM_BOUNDARY && text[pos - 2] != ENGRAM_BOUNDARY;
}

#endif

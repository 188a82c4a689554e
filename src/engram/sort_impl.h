/* sort_impl.h: sorts the positions of a text by their contexts, read newest token first.
 *
 * Positions of a reused table are already sorted; others are sorted here; all are merged. */
#ifndef CHIMERE_ENGRAM_SORT_IMPL_H
#define CHIMERE_ENGRAM_SORT_IMPL_H

#include <stdio.h>

#include "engram/table_impl.h"

struct engram_sort;

/* The documents of a table that are also in the new text, in the same sequence. */
struct engram_kept {
    /* borrowed, like the others, until engram_sort_free; its order must be present */
    const struct engram_table *t;
    uint32_t *begin; /* [n_doc] start of each document in the new text; 0: not in it */
    uint32_t *near;  /* from engram_near_new */
};

/* Returns, for each 64th position, the last document that begins at or before it, so that the document of any
 * position is found in a few steps. [n_text / 64 + 1], freed with mem_free; NULL: out of memory. */
uint32_t *engram_near_new(const struct engram_doc_disk *docs, uint32_t n_doc, uint64_t n_text);
static inline uint32_t engram_near_doc(const uint32_t *near, const struct engram_doc_disk *docs,
                                       uint32_t n_doc, uint32_t pos) {
    uint32_t i = near[pos / 64];
    while (i + 1 < n_doc && docs[i + 1].begin <= pos) i++;
    return i;
}

/* text is borrowed until engram_sort_free. At most n_most positions will be added. Positions that do not fit in
 * memory_bytes are written to `spill`, an empty file open for reading and writing, also borrowed. The functions
 * below return CHIMERE_ENOMEM, _EIO, _ELIMIT, or _EFORMAT if the order of a reused table is invalid. */
int engram_sort_new(struct engram_sort **out, const uint32_t *text, uint64_t n_most,
                    size_t memory_bytes, FILE *spill);
/* Adds the positions of the documents in text[from..to). */
int engram_sort_add(struct engram_sort *s, uint32_t from, uint32_t to);
int engram_sort_keep(struct engram_sort *s, const struct engram_kept *k);
/* call it after all positions are added, before the first _next */
int engram_sort_begin(struct engram_sort *s);
/* Returns 1 and the next position; 0 at the end. Positions with equal contexts are in ascending order. */
int engram_sort_next(struct engram_sort *s, uint32_t *pos);
void engram_sort_free(struct engram_sort *s);

/* Compares the contexts before two positions; equal contexts are ordered by position. *shared: number of equal
 * tokens, up to ENGRAM_MAX_ORDER. Tokens before a document boundary are not read. */
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

/* Returns true if at least ENGRAM_MIN_ORDER tokens of the document precede the position. */
static inline bool engram_is_wanted(const uint32_t *text, uint32_t pos) {
    return pos > ENGRAM_MIN_ORDER && text[pos] != ENGRAM_BOUNDARY &&
           text[pos - 1] != ENGRAM_BOUNDARY && text[pos - 2] != ENGRAM_BOUNDARY;
}

#endif

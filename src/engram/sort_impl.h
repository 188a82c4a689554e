/* sort_impl.h: the positions of a text in the order of their contexts, read newest token first. */
#ifndef CHIMERE_ENGRAM_SORT_IMPL_H
#define CHIMERE_ENGRAM_SORT_IMPL_H

#include <stdio.h>

#include "engram/table.h"

struct engram_sort;

/* text [n_text] is borrowed until engram_sort_free. Runs that do not fit memory_bytes go to `spill`, an
 * empty file open for reading and writing, borrowed too. */
int engram_sort_new(struct engram_sort **out, const uint32_t *text, uint32_t n_text,
                    size_t memory_bytes, FILE *spill, struct err *e);
/* The next position: 1; 0 at the end; CHIMERE_EIO. Positions of one context come by position. */
int engram_sort_next(struct engram_sort *s, uint32_t *pos);
void engram_sort_free(struct engram_sort *s);

/* Tokens that the contexts of two positions share, up to ENGRAM_MAX_ORDER. */
int engram_shared(const uint32_t *text, uint32_t a, uint32_t b);

#endif

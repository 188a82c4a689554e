/* heap.h: included first in base/mem.c: a heap whose blocks are all freed in one way, whatever their alignment. */
#ifndef CHIMERE_BASE_WIN_HEAP_H
#define CHIMERE_BASE_WIN_HEAP_H

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

enum { HEAP_ALIGN = 16 };
#define malloc(n) _aligned_malloc(n, HEAP_ALIGN)
#define calloc(n, size) heap_zeroed((n) * (size)) /* mem.c has checked the product */
#define realloc(p, n) _aligned_realloc(p, n, HEAP_ALIGN)
#define aligned_alloc(align, n) _aligned_malloc(n, align)
#define free(p) _aligned_free(p)

static inline void *heap_zeroed(size_t n) {
    void *p = malloc(n);
    if (p) memset(p, 0, n);
    return p;
}

#endif

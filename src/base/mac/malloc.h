/* malloc.h: what the server calls to return memory. */
#ifndef CHIMERE_BASE_MAC_MALLOC_H
#define CHIMERE_BASE_MAC_MALLOC_H

#include <stddef.h>

enum { M_MMAP_THRESHOLD = -3 };
int malloc_trim(size_t keep);
int mallopt(int what, int value); /* no effect: the setting is of glibc's allocator */

#endif

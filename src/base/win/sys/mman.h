/* mman.h: maps of files and anonymous memory; the subset of POSIX that our code uses. */
#ifndef CHIMERE_BASE_WIN_SYS_MMAN_H
#define CHIMERE_BASE_WIN_SYS_MMAN_H

#include <stddef.h>
#include <sys/types.h>

enum {
    PROT_READ = 1,
    PROT_WRITE = 2,
    MAP_SHARED = 1,
    MAP_PRIVATE = 2,
    MAP_ANONYMOUS = 4,
    MAP_FIXED = 8, /* refused */
    MADV_DONTNEED = 4,
    MADV_WILLNEED = 3,
    MADV_HUGEPAGE = 14,
};
#define MAP_FAILED ((void *)-1)

void *mmap(void *at, size_t n, int access, int kind, int fd, off_t offset);
int mprotect(void *p, size_t n, int access); /* only PROT_READ, as a hint */
int munmap(void *p, size_t n);
int madvise(void *p, size_t n, int advice); /* hints, without effect but for MADV_DONTNEED */
int mincore(void *p, size_t n, unsigned char *out); /* not supported: -1 */

#endif

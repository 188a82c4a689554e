/* posix_mac.c: base/mac/posix.h and malloc.h, except sockets. */
#include <errno.h>
#include <malloc/malloc.h>
#include <stdio.h>
#include <unistd.h>

#include <malloc.h>

#include "base/os/sort_order.h"

#undef qsort_r

ssize_t getrandom(void *out, size_t n, unsigned flags) {
    (void)flags;
    arc4random_buf(out, n);
    return (ssize_t)n;
}

void *memrchr(const void *text, int c, size_t n) {
    const unsigned char *p = text;
    while (n--)
        if (p[n] == (unsigned char)c) return (void *)(uintptr_t)(p + n);
    return NULL;
}

void explicit_bzero(void *p, size_t n) {
    memset(p, 0, n);
    __asm__ volatile("" ::"r"(p)
                     : "memory"); /* p may be read here, for all that the compiler knows */
}

/* BSD's function takes the context first. */
void mac_qsort_r(void *base, size_t n, size_t size,
                 int (*compare)(const void *, const void *, void *), void *context) {
    struct sort_order o = {compare, context};
    if (n) qsort_r(base, n, size, &o, sort_order_compare);
}

int posix_fallocate(int fd, off_t at, off_t n) {
    fstore_t room = {.fst_flags = F_ALLOCATEALL, .fst_posmode = F_PEOFPOSMODE, .fst_length = n};
    if (fcntl(fd, F_PREALLOCATE, &room) < 0 || ftruncate(fd, at + n)) return errno;
    return 0;
}

int memfd_create(const char *name, unsigned flags) {
    char path[32]; /* PSHMNAMLEN is 31 */
    (void)name, (void)flags;
    snprintf(path, sizeof path, "/chimere.%08x", arc4random());
    int fd = shm_open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd >= 0) shm_unlink(path);
    return fd;
}

int malloc_trim(size_t keep) {
    (void)keep;
    return malloc_zone_pressure_relief(NULL, 0) > 0;
}

int mallopt(int what, int value) {
    (void)what, (void)value;
    return 0;
}

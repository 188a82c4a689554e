/* full.c: a disk that is full, or breaks, at a chosen moment: an LD_PRELOAD library for the tests.
 *
 * What reaches a regular file or renames one counts: write, pwrite, writev, fwrite, fflush and fclose of streams, fsync,
 * fdatasync, fallocate, ftruncate that grows, rename. FAULT_NTH=N: the N-th fails, and with FAULT_ERRNO=ENOSPC every later
 * one that needs room does too, as on a full disk; with EIO only that one. FAULT_COUNT=FILE: the number is written there at
 * the end. stdio calls the kernel without passing by here, therefore its functions are replaced as well. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static _Atomic long n_call;
static long nth;
static int code;

__attribute__((constructor)) static void begin(void) {
    const char *n = getenv("FAULT_NTH"), *name = getenv("FAULT_ERRNO");
    nth = n ? strtol(n, NULL, 10) : 0;
    code = name && !strcmp(name, "ENOSPC") ? ENOSPC : EIO;
}

__attribute__((destructor)) static void end(void) {
    const char *path = getenv("FAULT_COUNT");
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (fd < 0) return;
    dprintf(fd, "%ld\n", (long)n_call);
    close(fd);
}

/* Whether this call fails. */
static bool fails(bool needs_room) {
    long n = ++n_call;
    bool now = nth && (n == nth || (n > nth && code == ENOSPC && needs_room));
    if (now) errno = code;
    return now;
}

static bool counts(int fd) {
    struct stat st;
    return fd > 2 && !fstat(fd, &st) && S_ISREG(st.st_mode);
}

#define REAL(type, name, ...)                                                                      \
    static type (*real)(__VA_ARGS__);                                                              \
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, name)

ssize_t write(int fd, const void *p, size_t n) {
    REAL(ssize_t, "write", int, const void *, size_t);
    return counts(fd) && fails(true) ? -1 : real(fd, p, n);
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t at) {
    REAL(ssize_t, "pwrite", int, const void *, size_t, off_t);
    return counts(fd) && fails(true) ? -1 : real(fd, p, n, at);
}

ssize_t pwrite64(int fd, const void *p, size_t n, off_t at) { return pwrite(fd, p, n, at); }

ssize_t writev(int fd, const struct iovec *v, int n) {
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    return counts(fd) && fails(true) ? -1 : real(fd, v, n);
}

int fsync(int fd) {
    REAL(int, "fsync", int);
    return counts(fd) && fails(false) ? -1 : real(fd);
}

int fdatasync(int fd) {
    REAL(int, "fdatasync", int);
    return counts(fd) && fails(false) ? -1 : real(fd);
}

int posix_fallocate(int fd, off_t at, off_t n) {
    REAL(int, "posix_fallocate", int, off_t, off_t);
    return counts(fd) && fails(true) ? code : real(fd, at, n);
}

int ftruncate(int fd, off_t n) {
    REAL(int, "ftruncate", int, off_t);
    struct stat st;
    bool grows = !fstat(fd, &st) && S_ISREG(st.st_mode) && n > st.st_size;
    return grows && fails(true) ? -1 : real(fd, n);
}

int rename(const char *from, const char *to) {
    REAL(int, "rename", const char *, const char *);
    return fails(false) ? -1 : real(from, to);
}

int renameat(int a, const char *from, int b, const char *to) {
    REAL(int, "renameat", int, const char *, int, const char *);
    return fails(false) ? -1 : real(a, from, b, to);
}

size_t fwrite(const void *p, size_t size, size_t n, FILE *f) {
    REAL(size_t, "fwrite", const void *, size_t, size_t, FILE *);
    if (!counts(fileno(f)) || !fails(true)) return real(p, size, n, f);
    f->_flags |= 0x20; /* what ferror() looks at */
    return 0;
}

int fflush(FILE *f) {
    REAL(int, "fflush", FILE *);
    if (!f || !counts(fileno(f)) || !fails(true)) return real(f);
    f->_flags |= 0x20;
    return EOF;
}

int fclose(FILE *f) {
    REAL(int, "fclose", FILE *);
    bool failed =
        counts(fileno(f)) && (fcntl(fileno(f), F_GETFL) & O_ACCMODE) != O_RDONLY && fails(true);
    int rc = real(f);
    if (!failed) return rc;
    errno = code;
    return EOF;
}

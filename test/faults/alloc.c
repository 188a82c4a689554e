/* alloc.c: memory that is short at a chosen moment: an LD_PRELOAD library for the tests.
 *
 * FAULT_FILE names a file of two 64-bit integers, which is mapped: the number of allocations so far, and the number of
 * the one that fails (0: none). The test may change both while the program runs, so that one server meets many faults.
 * Allocations of the program and of its libraries count: malloc, calloc, realloc, reallocarray, posix_memalign,
 * aligned_alloc, memalign and mmap. FAULT_TRACE names a file to which the stack of the failed allocation is appended.
 * FAULT_LEAK makes the library itself lose memory, to see whether a leak check works. Children of the program are not
 * affected. */
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct moment {
    _Atomic int64_t n_call, nth;
};
static struct moment *moment;
static int trace = -1;

static struct {
    void *(*malloc)(size_t), *(*calloc)(size_t, size_t), *(*realloc)(void *, size_t);
    void *(*aligned)(size_t, size_t), *(*mmap)(void *, size_t, int, int, int, off_t);
    int (*posix)(void **, size_t, size_t);
    void (*free)(void *);
} real;

/* What dlsym itself allocates while the real functions are looked up. */
static _Alignas(16) char early[8192];
static size_t n_early;
static bool is_early(const void *p) {
    return (const char *)p >= early && (const char *)p < early + sizeof early;
}

static void *look(const char *name) { return dlsym(RTLD_NEXT, name); }
static void begin(void) {
    static bool begun;
    if (begun) return;
    begun = true;
    *(void **)&real.malloc = look("malloc");
    *(void **)&real.calloc = look("calloc");
    *(void **)&real.realloc = look("realloc");
    *(void **)&real.aligned = look("aligned_alloc");
    *(void **)&real.posix = look("posix_memalign");
    *(void **)&real.mmap = look("mmap");
    *(void **)&real.free = look("free");
}

static void lose(size_t n) {
    char *volatile p = real.malloc(n);
    if (p) *p = 1;
    p = NULL;
}

__attribute__((constructor)) static void start(void) {
    begin();
    const char *path = getenv("FAULT_FILE"), *log = getenv("FAULT_TRACE");
    unsetenv("LD_PRELOAD");
    if (log) {
        void *stack[1];
        backtrace(stack, 1); /* its first call loads a library */
        trace = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    }
    if (getenv("FAULT_LEAK")) lose(100);
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *p = real.mmap(NULL, sizeof *moment, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (p != MAP_FAILED) moment = p;
}

/* Whether this allocation fails. */
static bool fails(void) {
    if (!moment) return false;
    int64_t n = atomic_fetch_add(&moment->n_call, 1) + 1;
    if (n != atomic_load(&moment->nth)) return false;
    if (trace >= 0) {
        void *stack[32];
        backtrace_symbols_fd(stack, backtrace(stack, 32), trace);
        if (write(trace, "\n", 1) != 1) abort();
    }
    errno = ENOMEM;
    return true;
}

void *malloc(size_t n) {
    begin();
    if (real.malloc) return fails() ? NULL : real.malloc(n);
    if (n > sizeof early - n_early - 16) abort();
    void *p = early + n_early;
    n_early += (n + 15) & ~(size_t)15;
    return p;
}

void *calloc(size_t n, size_t size) {
    begin();
    if (!real.calloc) return malloc(n * size); /* zeroed: of the static array */
    return fails() ? NULL : real.calloc(n, size);
}

void *realloc(void *p, size_t n) {
    begin();
    if (p && !n) return real.realloc(p, n); /* frees */
    if (!is_early(p)) return fails() ? NULL : real.realloc(p, n);
    void *q = malloc(n);
    size_t rest = (size_t)(early + sizeof early - (char *)p);
    if (q) memmove(q, p, n < rest ? n : rest);
    return q;
}

void *reallocarray(void *p, size_t n, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(p, bytes);
}

int posix_memalign(void **p, size_t align, size_t n) {
    begin();
    return fails() ? ENOMEM : real.posix(p, align, n);
}

void *aligned_alloc(size_t align, size_t n) {
    begin();
    return fails() ? NULL : real.aligned(align, n);
}

void *memalign(size_t align, size_t n) { return aligned_alloc(align, n); }

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t from) {
    begin();
    return fails() ? MAP_FAILED : real.mmap(at, n, prot, flags, fd, from);
}

void *mmap64(void *at, size_t n, int prot, int flags, int fd, off_t from) {
    return mmap(at, n, prot, flags, fd, from);
}

void free(void *p) {
    begin();
    if (!is_early(p)) real.free(p);
}

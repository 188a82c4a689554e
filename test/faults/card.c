/* card.c: a card that does not answer in time: an LD_PRELOAD library for the tests.
 *
 * FAULT_FILE names a file of one 64-bit integer, which is mapped. If the test sets it to n, the next thread that yields,
 * because it waits for another card's rows (kernels/link.c), reads clocks that are n ns later from then on, and the
 * integer becomes 0. Children of the program are not affected, nor the program that it becomes when it starts again. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static _Atomic int64_t *pending;
static _Thread_local int64_t later;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("FAULT_FILE");
    unsetenv("LD_PRELOAD");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *p = mmap(NULL, sizeof *pending, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (p != MAP_FAILED) pending = p;
}

int sched_yield(void) {
    static int (*real)(void);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "sched_yield");
    int64_t n = pending ? atomic_exchange(pending, 0) : 0;
    later += n;
    return n ? 0 : real(); /* without a pause in which the other card could still answer */
}

int clock_gettime(clockid_t id, struct timespec *ts) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
    int rc = real(id, ts);
    if (rc || !later || id != CLOCK_MONOTONIC) return rc;
    int64_t ns = (int64_t)ts->tv_sec * 1000000000 + ts->tv_nsec + later;
    ts->tv_sec = ns / 1000000000;
    ts->tv_nsec = ns % 1000000000;
    return 0;
}

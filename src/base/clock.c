#include "base/clock.h"

#include <time.h>

static int64_t read_ns(clockid_t id) {
    struct timespec ts;
    clock_gettime(id, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

int64_t clock_ns(void) { return read_ns(CLOCK_MONOTONIC); }
int64_t clock_cpu_ns(void) { return read_ns(CLOCK_THREAD_CPUTIME_ID); }

/* thread.c: condition variables on the monotonic clock. */
#include "base/thread.h"

#include <errno.h>
#include <sched.h>
#include <time.h>

int thread_cond_init(pthread_cond_t *c) {
    pthread_condattr_t attr;
    int rc = pthread_condattr_init(&attr);
    if (rc) return rc;
    rc = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    if (!rc) rc = pthread_cond_init(c, &attr);
    pthread_condattr_destroy(&attr);
    return rc;
}

bool thread_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, int64_t deadline_ns) {
    struct timespec until = {.tv_sec = (time_t)(deadline_ns / 1000000000),
                             .tv_nsec = (long)(deadline_ns % 1000000000)};
    return pthread_cond_timedwait(c, lock, &until) != ETIMEDOUT;
}

void thread_yield(void) { sched_yield(); }

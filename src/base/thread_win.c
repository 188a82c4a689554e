/* thread_win.c: thread.h for Windows, whose condition variables have no monotonic clock but wait for a time. */
#include <errno.h>
#include <sched.h>
#include <time.h>

#include "base/clock.h"
#include "base/thread.h"

int thread_cond_init(pthread_cond_t *c) { return pthread_cond_init(c, NULL); }

bool thread_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, int64_t deadline_ns) {
    int64_t left = deadline_ns - clock_ns();
    if (left <= 0) return false;
    struct timespec wait = {.tv_sec = (time_t)(left / 1000000000),
                            .tv_nsec = (long)(left % 1000000000)};
    return pthread_cond_timedwait_relative_np(c, lock, &wait) != ETIMEDOUT;
}

void thread_yield(void) { sched_yield(); }

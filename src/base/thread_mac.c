/* thread_mac.c: condition variables, whose deadlines on macOS are relative if they should not follow the calendar. */
#include "base/thread.h"

#include <errno.h>
#include <sched.h>
#include <time.h>

#include "base/clock.h"

int thread_cond_init(pthread_cond_t *c) { return pthread_cond_init(c, NULL); }

bool thread_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, int64_t deadline_ns) {
    int64_t left = deadline_ns - clock_ns();
    if (left < 0) left = 0;
    struct timespec limit = {.tv_sec = (time_t)(left / 1000000000),
                             .tv_nsec = (long)(left % 1000000000)};
    return pthread_cond_timedwait_relative_np(c, lock, &limit) != ETIMEDOUT;
}

void thread_yield(void) { sched_yield(); }

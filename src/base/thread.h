/* thread.h: threads, locks and conditions: POSIX threads, and timed waits on the monotonic clock.
 *
 * A wait with a deadline needs a condition of thread_cond_init. The deadline is a value of clock_ns(),
 * so that a step of the wall clock neither cuts a wait short nor holds it for an hour. */
#ifndef CHIMERE_BASE_THREAD_H
#define CHIMERE_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Returns an errno value, as pthread_cond_init. */
int thread_cond_init(pthread_cond_t *c);
/* Waits with the lock held until c is signalled or the deadline is over; wakes without a reason as
 * pthread_cond_wait does. False: the deadline is over. */
bool thread_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, int64_t deadline_ns);

void thread_yield(void); /* lets another thread of this processor run */

#endif

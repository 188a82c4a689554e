/* thread.h: threads, locks and condition variables: POSIX threads, with timed waits on the monotonic clock.
 *
 * A wait with a deadline needs a condition from thread_cond_init. The deadline is a value of clock_ns(), so that a
 * change of the wall clock neither shortens nor prolongs a wait. */
#ifndef CHIMERE_BASE_THREAD_H
#define CHIMERE_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Returns an errno value, like pthread_cond_init. */
int thread_cond_init(pthread_cond_t *c);
/* Waits, with the lock held, until c is signalled or the deadline has passed. It may wake spuriously, like
 * pthread_cond_wait. Returns false if the deadline has passed. */
bool thread_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, int64_t deadline_ns);

void thread_yield(void); /* lets another thread of this processor run */

#endif

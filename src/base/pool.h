/* pool.h: a fixed team of threads that runs one job at a time, the caller being thread 0.
 *
 * A job may run on fewer threads than the pool has (team.h). pool_run blocks until each of them has returned from fn. Workers stay awake for 0.4 ms after a job
 * (the next op of a forward pass, or the next step, usually follows), then sleep in the kernel: an idle
 * pool costs nothing. Only one thread may call pool_run at a time. */
#ifndef CHIMERE_BASE_POOL_H
#define CHIMERE_BASE_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pool;

/* n_thread >= 1 in all, caller included; 0: as topology.h chooses. */
struct pool *pool_new(int n_thread); /* NULL: out of memory or threads */
int pool_default_threads(void);      /* what 0 stands for */
void pool_free(struct pool *p);
int pool_n_thread(const struct pool *p); /* the most that a job runs on */
int pool_team(const struct pool *p);     /* those of the last job, or of this one */
/* Calls fn(arg, ith, n_thread) once on each thread of the team. */
void pool_run(struct pool *p, void (*fn)(void *arg, int ith, int n_thread), void *arg);
/* The same of a job with `work` units of any measure, from which the pool learns its best size. kind < 2: kinds whose
 * rates do not compare. */
void pool_work(struct pool *p, void (*fn)(void *arg, int ith, int n_thread), void *arg, int kind,
               size_t work);
/* Inside fn: waits until all threads of the job are here. */
void pool_barrier(struct pool *p, int ith);
/* Inside fn: takes some of the units [*next, n) of work, fewer towards the end, so that threads of any speed finish
 * together. False: none is left. next: from 0; nothing else reads or writes it meanwhile. */
bool pool_take(int64_t *next, int64_t n, int n_thread, int64_t *first, int64_t *last);

#endif

/* pool.h: a fixed set of threads that run one job at a time; the caller is thread 0.
 *
 * A job may run on fewer threads than the pool has (team.h). pool_run blocks until each of them has returned from fn.
 * Workers stay awake for 0.4 ms after a job, because the next op of a forward pass or the next step usually follows.
 * Then they sleep in the kernel, so that an idle pool uses no processor time. Only one thread may call pool_run at a
 * time. */
#ifndef CHIMERE_BASE_POOL_H
#define CHIMERE_BASE_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pool;

/* n_thread >= 1: threads including the caller; 0: the number from topology.h. */
struct pool *pool_new(int n_thread); /* NULL: out of memory or threads */
int pool_default_threads(void);      /* the number that 0 selects */
void pool_free(struct pool *p);
int pool_n_thread(const struct pool *p); /* largest number of threads of a job */
int pool_team(const struct pool *p);     /* threads of the current or last job */
/* Calls fn(arg, ith, n_thread) once on each thread of the team. */
void pool_run(struct pool *p, void (*fn)(void *arg, int ith, int n_thread), void *arg);
/* Like pool_run, for a job with `work` units of any measure; the pool learns its best team size from it. kind < 2:
 * kinds of work whose rates are not comparable. */
void pool_work(struct pool *p, void (*fn)(void *arg, int ith, int n_thread), void *arg, int kind,
               size_t work);
/* Call inside fn: waits until all threads of the job have called it. */
void pool_barrier(struct pool *p, int ith);
/* Call inside fn: takes some of the units [*next, n) of the work, fewer towards the end, so that fast and slow threads
 * finish together. Returns false if none is left. *next starts at 0; no other code may access it meanwhile. */
bool pool_take(int64_t *next, int64_t n, int n_thread, int64_t *first, int64_t *last);

#endif

/* pool.h: a fixed team of threads that runs one job at a time, the caller being thread 0.
 *
 * pool_run blocks until every thread has returned from fn. Workers stay awake for 0.4 ms after a job
 * (the next op of a forward pass, or the next step, usually follows), then sleep in the kernel: an idle
 * pool costs nothing. Only one thread may call pool_run at a time. */
#ifndef CHIMERE_BASE_POOL_H
#define CHIMERE_BASE_POOL_H

struct pool;

/* n_thread >= 1 in all, caller included; 0: one per physical core available to the
 * process, affinity and container quota respected. */
struct pool *pool_new(int n_thread); /* NULL: out of memory or threads */
int pool_default_threads(void);      /* what 0 stands for */
void pool_free(struct pool *p);
int pool_n_thread(const struct pool *p);
/* Calls fn(arg, ith, n_thread) once on each thread. */
void pool_run(struct pool *p, void (*fn)(void *arg, int ith, int n_thread), void *arg);
/* Inside fn: waits until all threads of the job are here. */
void pool_barrier(struct pool *p);

#endif

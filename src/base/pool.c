#include "base/pool.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cgroup.h"
#include "base/mem.h"

#if defined(__x86_64__)
#define cpu_relax() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define cpu_relax() __asm__ volatile("yield")
#else
#define cpu_relax() ((void)0)
#endif

enum { MAX_THREAD = 512 };

/* A thread that waits keeps its processor: inside a job, whose parts end close together, and longer between
 * two, where the caller samples and hands out tokens (0.1 ms; a worker that slept then cost each step of a
 * server a wake-up, and on a busy machine a slice of somebody else's time). Then it lets others run, then it
 * sleeps. */
enum { JOB_NS = 40 * 1000, GAP_NS = 150 * 1000, AWAKE_NS = 400 * 1000 };

struct pool {
    int n_thread;
    pthread_t *threads; /* owned; n_thread - 1 */
    void (*fn)(void *, int, int);
    void *arg;
    int guard;                           /* the caller's, for the workers */
    _Alignas(64) _Atomic uint32_t epoch; /* bumped per job; workers wait for a change */
    _Alignas(64) _Atomic uint32_t n_sleep;
    _Alignas(64) _Atomic uint32_t n_done;
    _Alignas(64) _Atomic uint32_t bar_count;
    _Atomic uint32_t bar_epoch;
    _Atomic bool quit;
};

struct start {
    struct pool *pool;
    int ith;
};

static void futex_wait(_Atomic uint32_t *a, uint32_t seen) {
    syscall(SYS_futex, a, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}
static void futex_wake(_Atomic uint32_t *a) {
    syscall(SYS_futex, a, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void wait_change(struct pool *p, _Atomic uint32_t *a, uint32_t seen, int64_t spin_ns) {
    int64_t start = 0, waited = 0;
    while (waited < AWAKE_NS) {
        for (int i = 0; i < 64; i++) {
            if (atomic_load_explicit(a, memory_order_acquire) != seen) return;
            cpu_relax();
        }
        if (waited > spin_ns) sched_yield();
        int64_t now = clock_ns();
        if (!start) start = now;
        waited = now - start;
    }
    atomic_fetch_add(&p->n_sleep, 1);
    while (atomic_load(a) == seen) futex_wait(a, seen);
    atomic_fetch_sub(&p->n_sleep, 1);
}

static void *worker(void *opaque) {
    struct start s = *(struct start *)opaque;
    mem_free(opaque);
    struct pool *p = s.pool;
    uint32_t seen = 0;
    for (;;) {
        wait_change(p, &p->epoch, seen, GAP_NS);
        seen++;
        if (atomic_load(&p->quit)) return NULL;
        mem_guard_restore(p->guard);
        p->fn(p->arg, s.ith, p->n_thread);
        mem_guard_lift();
        uint32_t last = (uint32_t)p->n_thread - 2;
        if (atomic_fetch_add(&p->n_done, 1) == last && atomic_load(&p->n_sleep))
            futex_wake(&p->n_done);
    }
}

/* The lowest-numbered hardware thread of cpu's core; cpu itself where the kernel does not say. */
static int first_sibling(int cpu) {
    char path[96];
    int first = cpu;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    FILE *f = fopen(path, "re");
    if (!f) return cpu;
    if (fscanf(f, "%d", &first) != 1) first = cpu;
    fclose(f);
    return first;
}

/* Processors that the quota of a container or unit pays for; a wider pool waits for stragglers. */
static int quota_cores(void) {
    struct cgroup_limits l;
    cgroup_read(NULL, NULL, &l);
    if (!(l.n_cpu > 0) || l.n_cpu >= INT_MAX) return INT_MAX;
    int whole = (int)l.n_cpu;
    return whole + (l.n_cpu > whole);
}

int pool_default_threads(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set)) return 1;
    int n = 0;
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET(i, &set)) continue;
        int first = first_sibling(i);
        n += first == i || first < 0 || first >= CPU_SETSIZE || !CPU_ISSET(first, &set);
    }
    int quota = quota_cores();
    n = n < quota ? n : quota;
    return n > 0 ? n : 1;
}

static void start_epoch(struct pool *p) {
    atomic_fetch_add(&p->epoch, 1);
    if (atomic_load(&p->n_sleep)) futex_wake(&p->epoch);
}

struct pool *pool_new(int n_thread) {
    if (n_thread <= 0) n_thread = pool_default_threads();
    if (n_thread > MAX_THREAD) n_thread = MAX_THREAD;
    struct pool *p = mem_aligned(64, sizeof *p);
    if (!p) return NULL;
    p->n_thread = 1;
    p->threads = mem_alloc_array((size_t)n_thread, sizeof *p->threads);
    for (int i = 1; p->threads && i < n_thread; i++) {
        struct start *s = mem_alloc(sizeof *s);
        if (s) *s = (struct start){p, i};
        if (!s || pthread_create(&p->threads[i - 1], NULL, worker, s)) {
            mem_free(s);
            pool_free(p);
            return NULL;
        }
        p->n_thread++;
    }
    if (!p->threads) {
        pool_free(p);
        return NULL;
    }
    return p;
}

void pool_free(struct pool *p) {
    if (!p) return;
    atomic_store(&p->quit, true);
    start_epoch(p);
    for (int i = 1; i < p->n_thread; i++) pthread_join(p->threads[i - 1], NULL);
    mem_free(p->threads);
    mem_free(p);
}

int pool_n_thread(const struct pool *p) { return p->n_thread; }

void pool_run(struct pool *p, void (*fn)(void *, int, int), void *arg) {
    if (p->n_thread == 1) {
        fn(arg, 0, 1);
        return;
    }
    p->fn = fn;
    p->arg = arg;
    mem_guard_restore(p->guard = mem_guard_lift());
    atomic_store(&p->n_done, 0);
    start_epoch(p);
    fn(arg, 0, p->n_thread);
    uint32_t want = (uint32_t)p->n_thread - 1, n;
    while ((n = atomic_load_explicit(&p->n_done, memory_order_acquire)) != want)
        wait_change(p, &p->n_done, n, JOB_NS);
}

void pool_barrier(struct pool *p) {
    if (p->n_thread == 1) return;
    uint32_t epoch = atomic_load(&p->bar_epoch);
    if (atomic_fetch_add(&p->bar_count, 1) == (uint32_t)p->n_thread - 1) {
        atomic_store(&p->bar_count, 0);
        atomic_fetch_add(&p->bar_epoch, 1);
        if (atomic_load(&p->n_sleep)) futex_wake(&p->bar_epoch);
    } else {
        wait_change(p, &p->bar_epoch, epoch, JOB_NS);
    }
}

#include "base/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/team.h"
#include "base/thread.h"
#include "base/os/os.h"
#include "base/os/topology.h"

#if defined(__x86_64__)
#define cpu_relax() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define cpu_relax() __asm__ volatile("yield")
#else
#define cpu_relax() ((void)0)
#endif

enum { MAX_THREAD = 512, TEAM_BITS = 10, TEAM_MASK = (1 << TEAM_BITS) - 1 };

/* A waiting thread first keeps its processor. Inside a job the wait is short, because the parts end close together.
 * Between jobs it is longer, because the caller samples and sends tokens (0.1 ms). If a worker slept then, each step of
 * a server would pay for a wake-up, and on a busy machine for a time slice of another process. After that the thread
 * yields, and finally it sleeps. */
enum { JOB_NS = 40 * 1000, GAP_NS = 150 * 1000, AWAKE_NS = 400 * 1000 };

struct pool {
    int n_thread;
    struct team team;
    int size;           /* threads of this job, including the caller */
    int64_t barrier_ns; /* time that the caller waited at barriers of this job */
    pthread_t *threads; /* owned [n_thread - 1] */
    void (*fn)(void *, int, int);
    void *arg;
    int guard; /* the caller's allocation guard, for the workers */
    /* Bits from TEAM_BITS on: number of jobs; bits below: threads of the last job. Workers wait for a change. */
    _Alignas(64) _Atomic uint32_t epoch;
    /* incremented if workers outside the team must check again */
    _Alignas(64) _Atomic uint32_t growth;
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

static void wait_change(struct pool *p, _Atomic uint32_t *a, uint32_t seen, int64_t spin_ns) {
    int64_t start = 0, waited = 0;
    while (waited < AWAKE_NS) {
        for (int i = 0; i < 64; i++) {
            if (atomic_load_explicit(a, memory_order_acquire) != seen) return;
            cpu_relax();
        }
        if (waited > spin_ns) thread_yield();
        int64_t now = clock_ns();
        if (!start) start = now;
        waited = now - start;
    }
    atomic_fetch_add(&p->n_sleep, 1);
    while (atomic_load(a) == seen) os_wait_word(a, seen);
    atomic_fetch_sub(&p->n_sleep, 1);
}

/* Waits for a job that includes thread ith. seen: the epoch of this thread's last job. */
static uint32_t next_job(struct pool *p, int ith, uint32_t seen) {
    for (;;) {
        uint32_t growth = atomic_load(&p->growth), epoch = atomic_load(&p->epoch);
        if (atomic_load(&p->quit)) return epoch;
        if ((epoch & TEAM_MASK) <= (uint32_t)ith) { /* outside the team: sleep until it grows */
            /* matches no epoch: the job count may have wrapped around while this thread slept */
            seen = 0;
            while (atomic_load(&p->growth) == growth) os_wait_word(&p->growth, growth);
            continue;
        }
        if (epoch != seen) return epoch;
        wait_change(p, &p->epoch, seen, GAP_NS);
    }
}

static void *worker(void *opaque) {
    struct start s = *(struct start *)opaque;
    mem_free(opaque);
    struct pool *p = s.pool;
    uint32_t seen = 0;
    for (;;) {
        seen = next_job(p, s.ith, seen);
        if (atomic_load(&p->quit)) return NULL;
        mem_guard_restore(p->guard);
        p->fn(p->arg, s.ith, p->size);
        mem_guard_lift();
        uint32_t last = (uint32_t)p->size - 2;
        if (atomic_fetch_add(&p->n_done, 1) == last && atomic_load(&p->n_sleep))
            os_wake_word(&p->n_done);
    }
}

int pool_default_threads(void) {
    struct topology t;
    topology_read(NULL, NULL, -1, &t);
    return t.n_thread;
}

/* Starts a job of p->size threads. */
static void start_epoch(struct pool *p) {
    uint32_t before = atomic_load(&p->epoch), size = (uint32_t)p->size;
    atomic_store(&p->epoch, ((before & ~(uint32_t)TEAM_MASK) + (1u << TEAM_BITS)) | size);
    if (atomic_load(&p->n_sleep)) os_wake_word(&p->epoch);
    if (size <= (before & TEAM_MASK)) return;
    atomic_fetch_add(&p->growth, 1);
    os_wake_word(&p->growth);
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
    team_init(&p->team, p->n_thread);
    p->size = p->n_thread;
    return p;
}

void pool_free(struct pool *p) {
    if (!p) return;
    atomic_store(&p->quit, true);
    p->size = 1; /* epoch and growth must change for all workers */
    start_epoch(p);
    atomic_fetch_add(&p->growth, 1);
    os_wake_word(&p->growth);
    for (int i = 1; i < p->n_thread; i++) pthread_join(p->threads[i - 1], NULL);
    mem_free(p->threads);
    mem_free(p);
}

int pool_n_thread(const struct pool *p) { return p->n_thread; }

int pool_team(const struct pool *p) { return p->size; }

/* Returns how long the caller waited for the others after its own part. */
static int64_t run(struct pool *p, void (*fn)(void *, int, int), void *arg) {
    if (p->size == 1) {
        fn(arg, 0, 1);
        return 0;
    }
    p->fn = fn;
    p->arg = arg;
    mem_guard_restore(p->guard = mem_guard_lift());
    atomic_store(&p->n_done, 0);
    start_epoch(p);
    fn(arg, 0, p->size);
    uint32_t want = (uint32_t)p->size - 1,
             n = atomic_load_explicit(&p->n_done, memory_order_acquire);
    if (n == want) return 0;
    int64_t start = clock_ns();
    while ((n = atomic_load_explicit(&p->n_done, memory_order_acquire)) != want)
        wait_change(p, &p->n_done, n, JOB_NS);
    return clock_ns() - start;
}

void pool_run(struct pool *p, void (*fn)(void *, int, int), void *arg) { run(p, fn, arg); }

void pool_work(struct pool *p, void (*fn)(void *, int, int), void *arg, int kind, size_t work) {
    if (p->n_thread == 1) {
        fn(arg, 0, 1);
        return;
    }
    p->size = p->team.kind[kind].size;
    p->barrier_ns = 0;
    int64_t start = clock_ns(), waited = run(p, fn, arg), now = clock_ns();
    team_report(&p->team, kind, work, now - start, waited + p->barrier_ns, now);
}

bool pool_take(int64_t *next, int64_t n, int n_thread, int64_t *first, int64_t *last) {
    int64_t at = __atomic_load_n(next, __ATOMIC_RELAXED), many;
    do {
        if (at >= n) return false;
        many = (n - at) / (4 * n_thread);
        if (many < 1) many = 1;
    } while (!__atomic_compare_exchange_n(next, &at, at + many, true, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    *first = at;
    *last = at + many;
    return true;
}

void pool_barrier(struct pool *p, int ith) {
    if (p->size == 1) return;
    uint32_t epoch = atomic_load(&p->bar_epoch);
    if (atomic_fetch_add(&p->bar_count, 1) == (uint32_t)p->size - 1) {
        atomic_store(&p->bar_count, 0);
        atomic_fetch_add(&p->bar_epoch, 1);
        if (atomic_load(&p->n_sleep)) os_wake_word(&p->bar_epoch);
        return;
    }
    int64_t start = ith ? 0 : clock_ns();
    wait_change(p, &p->bar_epoch, epoch, JOB_NS);
    if (ith == 0) p->barrier_ns += clock_ns() - start;
}

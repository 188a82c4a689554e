/* link.c: one exchange per sum: every rank writes its rows to memory that all can read, waits for all others, adds the
 * rows.
 *
 * A rank uses two buffers in turn. It overwrites a buffer two sums later. By then every other rank has reached the sum
 * in between, so it has finished reading. */
#include "kernels/link.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"

/* How long a waiting rank spins, then yields, before it sleeps. */
enum { SPIN_NS = 50 * 1000, YIELD_NS = 2 * 1000 * 1000, NAP_NS = 50 * 1000 };

struct rank {
    _Alignas(64) _Atomic uint64_t n_come; /* number of sums for which its rows are written */
    struct dev *dev;                      /* borrowed */
    float *rows[2];                       /* owned by dev [n_max] */
    float *sum; /* owned by dev [n_max]; NULL: dev's memory is the host's */
    uint64_t n_sum, n_bytes;
    int64_t wait_ns, all_ns;
};

struct link {
    struct rank rank[LINK_MAX_RANKS];
    _Atomic int32_t gone; /* the rank that left or is late, plus one; 0: none */
    _Atomic bool is_late; /* it missed the deadline */
    int32_t n, deadline_ms;
    int64_t n_max;
};

static float *take(struct dev *d, size_t n_bytes) {
    return d->ops->host_alloc ? d->ops->host_alloc(d, n_bytes) : mem_aligned(64, n_bytes);
}

static void give(struct dev *d, float *p) {
    if (d->ops->host_free && p) d->ops->host_free(d, p);
    else mem_free(p);
}

int link_new(struct link **out, struct dev *const *devs, int32_t n, int64_t n_max,
             int32_t deadline_ms, struct err *e) {
    *out = NULL;
    if (n < 1 || n > LINK_MAX_RANKS || n_max < 1)
        return err_set(e, CHIMERE_EINVAL, "link: expected 1 to %d devices, got %d", LINK_MAX_RANKS,
                       n);
    struct link *l = mem_aligned(64, sizeof *l);
    if (!l) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    memset(l, 0, sizeof *l);
    l->n = n;
    l->n_max = n_max;
    l->deadline_ms = deadline_ms;
    bool ok = true;
    for (int32_t i = 0; i < n; i++) {
        struct rank *r = &l->rank[i];
        size_t n_bytes = (size_t)n_max * sizeof(float);
        r->dev = devs[i];
        r->rows[0] = take(r->dev, n_bytes);
        r->rows[1] = take(r->dev, n_bytes);
        if (!r->dev->ops->is_host) r->sum = take(r->dev, n_bytes);
        ok = ok && r->rows[0] && r->rows[1] && (r->sum || r->dev->ops->is_host);
    }
    if (!ok) {
        link_free(l);
        return err_set(e, CHIMERE_ENOMEM, "out of memory for what cards exchange");
    }
    *out = l;
    return 0;
}

void link_free(struct link *l) {
    if (!l) return;
    for (int32_t i = 0; i < l->n; i++) {
        struct rank *r = &l->rank[i];
        give(r->dev, r->rows[0]);
        give(r->dev, r->rows[1]);
        give(r->dev, r->sum);
    }
    mem_free(l);
}

void link_begin(struct link *l) {
    atomic_store(&l->gone, 0);
    atomic_store(&l->is_late, false);
    for (int32_t i = 0; i < l->n; i++) atomic_store(&l->rank[i].n_come, 0);
}

void link_leave(struct link *l, int32_t rank) {
    int32_t none = 0;
    atomic_compare_exchange_strong(&l->gone, &none, rank + 1);
}

static void nap(int64_t waited) {
    if (waited < SPIN_NS) return;
    if (waited < YIELD_NS) thread_yield();
    else nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
}

/* Waits until rank i has written its n-th rows; returns false if it never will. */
static bool wait_for(struct link *l, int32_t i, uint64_t n) {
    int64_t start = 0;
    for (int32_t k = 0;; k++) {
        if (atomic_load_explicit(&l->rank[i].n_come, memory_order_acquire) >= n) return true;
        if (atomic_load(&l->gone)) return false;
        if (k < 64) continue;
        int64_t now = clock_ns();
        if (!start) start = now;
        if (now - start > (int64_t)l->deadline_ms * 1000000) {
            int32_t none = 0;
            if (atomic_compare_exchange_strong(&l->gone, &none, i + 1))
                atomic_store(&l->is_late, true);
            return false;
        }
        nap(now - start);
    }
}

/* Adds in the order of ranks, whichever rank calls. */
static void add_all(const struct link *l, int turn, float *out, int64_t n) {
    const float *restrict first = l->rank[0].rows[turn];
    memcpy(out, first, (size_t)n * sizeof *out);
    for (int32_t i = 1; i < l->n; i++) {
        const float *restrict more = l->rank[i].rows[turn];
        for (int64_t k = 0; k < n; k++) out[k] += more[k];
    }
}

void link_sum(struct link *l, int32_t rank, float *x, int64_t n) {
    struct rank *r = &l->rank[rank];
    const struct ops *ops = r->dev->ops;
    size_t n_bytes = (size_t)n * sizeof *x;
    uint64_t own = atomic_load_explicit(&r->n_come, memory_order_relaxed) + 1;
    int turn = (int)(own & 1);
    if (n > l->n_max || atomic_load(&l->gone)) return;
    int64_t start = clock_ns();
    ops->download(r->dev, r->rows[turn], x, n_bytes);
    atomic_store_explicit(&r->n_come, own, memory_order_release);
    int64_t here = clock_ns();
    for (int32_t i = 0; i < l->n; i++)
        if (!wait_for(l, i, own)) return;
    r->wait_ns += clock_ns() - here;
    float *sum = r->sum ? r->sum : x;
    add_all(l, turn, sum, n);
    if (r->sum) ops->upload(r->dev, x, sum, n_bytes);
    r->n_sum++;
    r->n_bytes += (uint64_t)l->n * n_bytes;
    r->all_ns += clock_ns() - start;
}

int link_status(const struct link *l, struct err *e) {
    int32_t gone = atomic_load(&l->gone);
    if (!gone) return 0;
    if (atomic_load(&l->is_late))
        return err_set(e, CHIMERE_ETIMEOUT, "card %d of %d did not answer within %d s", gone, l->n,
                       (l->deadline_ms + 999) / 1000);
    return err_set(e, CHIMERE_EDEVICE, "card %d of %d has failed", gone, l->n);
}

void link_stats(const struct link *l, int32_t rank, struct link_stats *out) {
    const struct rank *r = &l->rank[rank];
    *out = (struct link_stats){r->n_sum, r->n_bytes, (double)r->wait_ns * 1e-3,
                               (double)r->all_ns * 1e-3};
}

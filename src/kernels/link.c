/* link.c: one exchange per sum: every rank writes its rows to memory that all can read, waits for all others, adds the
 * rows. With direct access, kernels do that in the devices' memory (ops.h: peer_sum).
 *
 * Through the host, a rank uses two buffers in turn. It overwrites a buffer two sums later. By then every other rank has
 * reached the sum in between, so it has finished reading. */
#include "kernels/link.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"

/* How long a waiting rank spins, then yields, before it sleeps. */
enum { SPIN_NS = 50 * 1000, YIELD_NS = 2 * 1000 * 1000, NAP_NS = 50 * 1000 };

/* link_measure: floats of a short sum; sums before and during a measurement. */
enum { PROBE_FLOATS = 4096, N_WARM = 3, N_PROBE = 10, PROBE_DEADLINE_MS = 20000 };

struct rank {
    _Alignas(64) _Atomic uint64_t n_come; /* number of sums for which its rows are written */
    struct dev *dev;                      /* borrowed */
    float *rows[2];                       /* owned by dev [n_max] */
    float *sum;     /* owned by dev [n_max]; NULL: dev's memory is the host's */
    void *room;     /* owned by dev, for peer_sum; NULL: no direct access */
    uint32_t epoch; /* of its last peer_sum */
    bool is_wrong;  /* direct access has given a wrong sum */
    float *probe;   /* owned by dev [n_max], until link_choose; NULL: no direct access */
    _Atomic uint64_t n_sum, n_bytes, wait_ns, all_ns;
    double peer_us[2], host_us[2]; /* measured */
};

struct link {
    struct rank rank[LINK_MAX_RANKS];
    enum link_way way;
    bool is_peer;                     /* sums are kernels */
    int32_t n, deadline_ms, limit_ms; /* limit_ms: the deadline now, shorter until link_choose */
    int64_t n_max;
    /* The rank that left, plus one; plus PEER_LATE if it missed the deadline; 0: none. Kernels read and write it. */
    _Atomic uint32_t *gone; /* view of shared */
    uint64_t *peer_ns;      /* [n] time in peer_sum, written by kernels; view of shared */
    uint64_t *shared;       /* owned by the first device */
};

enum link_way link_way_of(const char *name) {
    return strcmp(name, "peer") == 0   ? LINK_PEER
           : strcmp(name, "host") == 0 ? LINK_HOST
                                       : LINK_AUTO;
}

static float *take(struct dev *d, size_t n_bytes) {
    return d->ops->host_alloc ? d->ops->host_alloc(d, n_bytes) : mem_aligned(64, n_bytes);
}

static void give(struct dev *d, float *p) {
    if (d->ops->host_free && p) d->ops->host_free(d, p);
    else mem_free(p);
}

/* Rooms on all devices that access each other's memory; returns false if they cannot, or memory is short. */
static bool open_rooms(struct link *l, struct dev *const *devs) {
    const struct ops *ops = devs[0]->ops;
    bool ok = ops->peer_open && l->n > 1;
    for (int32_t i = 0; ok && i < l->n; i++) ok = ops->peer_open(devs[i], devs, l->n);
    for (int32_t i = 0; ok && i < l->n; i++) {
        struct rank *r = &l->rank[i];
        /* no device may allocate while another one waits for it in a sum: either may hold the driver's locks */
        r->room = ops->alloc(devs[i], ops->peer_bytes(l->n, l->n_max));
        r->probe = ops->alloc(devs[i], (size_t)l->n_max * sizeof *r->probe);
        /* all rooms are zeros before any is written */
        ok = r->room && r->probe && !ops->status(devs[i], NULL);
    }
    return ok;
}

static void close_probes(struct link *l) {
    for (int32_t i = 0; i < l->n; i++) {
        struct rank *r = &l->rank[i];
        if (r->probe) r->dev->ops->free(r->dev, r->probe);
        r->probe = NULL;
    }
}

static void close_rooms(struct link *l) {
    close_probes(l);
    for (int32_t i = 0; i < l->n; i++) {
        struct rank *r = &l->rank[i];
        if (r->room) r->dev->ops->free(r->dev, r->room);
        r->room = NULL;
    }
}

uint64_t link_bytes(const struct dev *d, int32_t n, int64_t n_max) {
    return d->ops->peer_bytes && n > 1 ? d->ops->peer_bytes(n, n_max) : 0;
}

int link_new(struct link **out, struct dev *const *devs, int32_t n, int64_t n_max,
             enum link_way way, int32_t deadline_ms, struct err *e) {
    *out = NULL;
    if (n < 1 || n > LINK_MAX_RANKS || n_max < 1)
        return err_set(e, CHIMERE_EINVAL, "link: expected 1 to %d devices, got %d", LINK_MAX_RANKS,
                       n);
    struct link *l = mem_aligned(64, sizeof *l);
    if (!l) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    memset(l, 0, sizeof *l);
    l->n = n;
    l->n_max = n_max;
    l->way = way;
    l->deadline_ms = deadline_ms;
    l->limit_ms = deadline_ms < PROBE_DEADLINE_MS ? deadline_ms : (int32_t)PROBE_DEADLINE_MS;
    size_t n_shared = (1 + (size_t)n) * sizeof *l->shared;
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
    l->shared = ok ? (uint64_t *)(void *)take(devs[0], n_shared) : NULL;
    if (!l->shared) {
        link_free(l);
        return err_set(e, CHIMERE_ENOMEM, "out of memory for what cards exchange");
    }
    memset(l->shared, 0, n_shared);
    l->gone = (_Atomic uint32_t *)(void *)l->shared;
    l->peer_ns = l->shared + 1;
    l->is_peer = way != LINK_HOST && open_rooms(l, devs);
    if (!l->is_peer) close_rooms(l);
    if (!l->is_peer && way == LINK_PEER) {
        link_free(l);
        return err_set(e, CHIMERE_EUNSUPPORTED,
                       "--link peer: these cards do not access each other's memory directly");
    }
    *out = l;
    return 0;
}

void link_free(struct link *l) {
    if (!l) return;
    close_rooms(l);
    for (int32_t i = 0; i < l->n; i++) {
        struct rank *r = &l->rank[i];
        give(r->dev, r->rows[0]);
        give(r->dev, r->rows[1]);
        give(r->dev, r->sum);
    }
    give(l->rank[0].dev, (float *)(void *)l->shared);
    mem_free(l);
}

int32_t link_n_rank(const struct link *l) { return l->n; }
bool link_is_peer(const struct link *l) { return l->is_peer; }

/* Epochs of all ranks are equal at the beginning of a step, and greater than any that a failed step has used. */
void link_begin(struct link *l) {
    uint32_t most = 0;
    atomic_store(l->gone, 0);
    for (int32_t i = 0; i < l->n; i++)
        if (l->rank[i].epoch > most) most = l->rank[i].epoch;
    if (most > UINT32_MAX / 2)
        most = 0; /* what the rooms hold of the first epochs is long overwritten */
    for (int32_t i = 0; i < l->n; i++) {
        atomic_store(&l->rank[i].n_come, 0);
        l->rank[i].epoch = most;
    }
}

static void end_waits(struct link *l, uint32_t who) {
    uint32_t none = 0;
    atomic_compare_exchange_strong(l->gone, &none, who);
}

void link_leave(struct link *l, int32_t rank) { end_waits(l, (uint32_t)rank + 1); }

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
        if (atomic_load(l->gone)) return false;
        if (k < 64) continue;
        int64_t now = clock_ns();
        if (!start) start = now;
        if (now - start > (int64_t)l->limit_ms * 1000000) {
            end_waits(l, (uint32_t)PEER_LATE + (uint32_t)i + 1);
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

static void sum_by_host(struct link *l, int32_t rank, float *x, int64_t n) {
    struct rank *r = &l->rank[rank];
    const struct ops *ops = r->dev->ops;
    size_t n_bytes = (size_t)n * sizeof *x;
    uint64_t own = atomic_load_explicit(&r->n_come, memory_order_relaxed) + 1;
    int turn = (int)(own & 1);
    int64_t start = clock_ns();
    ops->download(r->dev, r->rows[turn], x, n_bytes);
    atomic_store_explicit(&r->n_come, own, memory_order_release);
    int64_t here = clock_ns();
    for (int32_t i = 0; i < l->n; i++)
        if (!wait_for(l, i, own)) return;
    atomic_fetch_add(&r->wait_ns, (uint64_t)(clock_ns() - here));
    float *sum = r->sum ? r->sum : x;
    add_all(l, turn, sum, n);
    if (r->sum) ops->upload(r->dev, x, sum, n_bytes);
    atomic_fetch_add(&r->n_bytes, (uint64_t)l->n * n_bytes);
    atomic_fetch_add(&r->all_ns, (uint64_t)(clock_ns() - start));
}

static struct peer_args peer_args_of(const struct link *l, int32_t rank) {
    struct peer_args a = {.n_rank = l->n,
                          .rank = rank,
                          .n_max = l->n_max,
                          .gone = (uint32_t *)(void *)l->shared,
                          .deadline_ns = (int64_t)l->limit_ms * 1000000};
    for (int32_t i = 0; i < l->n; i++) a.room[i] = l->rank[i].room;
    return a;
}

static void sum_by_peers(struct link *l, int32_t rank, float *part, int64_t n, float *x,
                         float scale) {
    struct rank *r = &l->rank[rank];
    struct peer_args a = peer_args_of(l, rank);
    a.epoch = ++r->epoch;
    a.part = part;
    a.n = n;
    a.x = x;
    a.scale = scale;
    r->dev->ops->peer_sum(r->dev, &a);
    atomic_fetch_add(&r->n_bytes, 2 * (uint64_t)(l->n - 1) * (uint64_t)n * sizeof *part);
}

void link_sum(struct link *l, int32_t rank, float *part, int64_t n, float *x, float scale) {
    struct rank *r = &l->rank[rank];
    const struct ops *ops = r->dev->ops;
    if (n > l->n_max || atomic_load(l->gone)) return;
    atomic_fetch_add(&r->n_sum, 1);
    if (l->is_peer) {
        sum_by_peers(l, rank, part, n, x, scale);
        return;
    }
    sum_by_host(l, rank, part, n);
    if (!x) return;
    ops->axpby(r->dev, x, scale, part, 1, n);
    ops->zero(r->dev, part, (size_t)n * sizeof *part);
}

void link_rows(struct link *l, int32_t rank, float *dst, int64_t dst_stride, const float *src,
               int32_t n_row, int64_t n) {
    struct rank *r = &l->rank[rank];
    const struct peer_args a = peer_args_of(l, rank);
    r->dev->ops->peer_rows(r->dev, &a, dst, dst_stride, src, n_row, n, &l->peer_ns[rank]);
}

int link_status(const struct link *l, struct err *e) {
    uint32_t gone = atomic_load(l->gone);
    if (!gone) return 0;
    if (gone >= PEER_LATE)
        return err_set(e, CHIMERE_ETIMEOUT, "card %u of %d did not answer within %d s",
                       gone - PEER_LATE, l->n, (l->limit_ms + 999) / 1000);
    return err_set(e, CHIMERE_EDEVICE, "card %u of %d has failed", gone, l->n);
}

/* ---- measurement ---- */

static void probe_sum(struct link *l, int32_t rank, bool by_peers, float *x, int64_t n) {
    if (atomic_load(l->gone)) return;
    if (by_peers) sum_by_peers(l, rank, x, n, NULL, 1);
    else sum_by_host(l, rank, x, n);
}

/* Whether the ranks' sum of integers, which is exact, is right. host: [n] */
static bool is_right(struct link *l, int32_t rank, bool by_peers, float *x, float *host,
                     int64_t n) {
    struct dev *d = l->rank[rank].dev;
    int32_t all = l->n * (l->n + 1) / 2;
    bool ok = true;
    for (int64_t i = 0; i < n; i++) host[i] = (float)((rank + 1) * (i % 1000 + 1));
    d->ops->upload(d, x, host, (size_t)n * sizeof *x);
    probe_sum(l, rank, by_peers, x, n);
    d->ops->download(d, host, x, (size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) ok = ok && host[i] == (float)(all * (i % 1000 + 1));
    return ok;
}

/* Microseconds of a sum of n floats. */
static double time_sums(struct link *l, int32_t rank, bool by_peers, float *x, float *host,
                        int64_t n) {
    struct rank *r = &l->rank[rank];
    int64_t start = 0;
    for (int32_t k = 0; k < N_WARM; k++)
        r->is_wrong = !is_right(l, rank, by_peers, x, host, n) || r->is_wrong;
    r->dev->ops->zero(r->dev, x, (size_t)n * sizeof *x);
    probe_sum(l, rank, by_peers, x, n);
    if (r->dev->ops->status(r->dev, NULL)) link_leave(l, rank);
    start = clock_ns();
    for (int32_t k = 0; k < N_PROBE; k++) probe_sum(l, rank, by_peers, x, n);
    if (r->dev->ops->status(r->dev, NULL)) link_leave(l, rank);
    return (double)(clock_ns() - start) / (1e3 * N_PROBE);
}

void link_measure(struct link *l, int32_t rank) {
    struct rank *r = &l->rank[rank];
    const int64_t n[2] = {l->n_max < PROBE_FLOATS ? l->n_max : PROBE_FLOATS, l->n_max};
    if (!l->is_peer) return;
    float *x = r->probe, *host = mem_alloc((size_t)l->n_max * sizeof *host);
    bool ok = x && host;
    if (!ok) link_leave(l, rank);
    for (int k = 0; ok && k < 2; k++) r->peer_us[k] = time_sums(l, rank, true, x, host, n[k]);
    for (int k = 0; ok && k < 2; k++) r->host_us[k] = time_sums(l, rank, false, x, host, n[k]);
    mem_free(host);
}

int link_choose(struct link *l, struct err *e) {
    bool ok = !atomic_load(l->gone);
    double peer = 0, host = 0;
    l->limit_ms = l->deadline_ms;
    close_probes(l);
    for (int32_t i = 0; i < l->n; i++) {
        struct rank *r = &l->rank[i];
        ok = ok && !r->is_wrong;
        if (r->peer_us[0] > peer) peer = r->peer_us[0];
        if (r->host_us[0] > host) host = r->host_us[0];
        atomic_store(&r->n_bytes, 0);
        atomic_store(&r->wait_ns, 0);
        atomic_store(&r->all_ns, 0);
        if (l->is_peer) r->dev->ops->zero(r->dev, r->room, sizeof(uint64_t)); /* its time */
    }
    if (!l->is_peer || (ok && (l->way == LINK_PEER || peer <= host))) return 0;
    if (l->way == LINK_PEER)
        return err_set(e, CHIMERE_EDEVICE, "--link peer: direct access between these cards fails");
    if (!ok) log_warn("direct access between these cards fails: sums go through the host");
    l->is_peer = false;
    close_rooms(l);
    return 0;
}

void link_stats(const struct link *l, int32_t rank, struct link_stats *out) {
    const struct rank *r = &l->rank[rank];
    double ns = l->is_peer ? (double)__atomic_load_n(&l->peer_ns[rank], __ATOMIC_RELAXED)
                           : (double)atomic_load(&r->all_ns);
    *out = (struct link_stats){.is_peer = l->is_peer,
                               .n_sum = atomic_load(&r->n_sum),
                               .n_bytes = atomic_load(&r->n_bytes),
                               .wait_us = (double)atomic_load(&r->wait_ns) * 1e-3,
                               .us = ns * 1e-3};
    memcpy(out->peer_us, r->peer_us, sizeof out->peer_us);
    memcpy(out->host_us, r->host_us, sizeof out->host_us);
}

#include "backend/queue.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"

struct queue {
    pthread_mutex_t lock;
    int32_t n_slot, n_used, n_running, n_waiting, max_waiting;
    struct queue_item *head, *tail; /* in order of arrival; borrowed from the callers */
    /* indexed by the owner's hash: the turn in which the owner was last served */
    uint64_t served[64];
    uint64_t turn;
    double mean_s; /* mean duration of an item */
};

int queue_new(struct queue **out, int32_t n_slot, int32_t max_waiting, struct err *e) {
    struct queue *g = mem_zalloc(sizeof *g);
    *out = g;
    if (!g) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    pthread_mutex_init(&g->lock, NULL);
    g->n_slot = n_slot;
    g->max_waiting = max_waiting;
    g->mean_s = 1;
    return 0;
}

void queue_free(struct queue *g) {
    if (!g) return;
    pthread_mutex_destroy(&g->lock);
    mem_free(g);
}

static uint64_t *served(struct queue *g, uint64_t owner) { return &g->served[owner % 64]; }

static bool fits(const struct queue *g, const struct queue_item *it) {
    return g->n_used == 0 || g->n_used + it->n_slot <= g->n_slot;
}

static void take(struct queue *g, struct queue_item *it) {
    g->n_used += it->n_slot;
    g->n_running++;
    *served(g, it->owner) = ++g->turn;
    it->waiting = false;
    it->since_ns = clock_ns();
}

static void unlink_item(struct queue *g, struct queue_item *it, struct queue_item *before) {
    if (before) before->next = it->next;
    else g->head = it->next;
    if (g->tail == it) g->tail = before;
    it->next = NULL;
    g->n_waiting--;
}

/* Returns the item whose owner has waited longest for a turn; among equal ones the first to arrive. NULL: it does not
 * fit. */
static struct queue_item *next_item(struct queue *g) {
    struct queue_item *best = NULL, *best_before = NULL, *before = NULL;
    for (struct queue_item *it = g->head; it; before = it, it = it->next)
        if (!best || *served(g, it->owner) < *served(g, best->owner)) {
            best = it;
            best_before = before;
        }
    if (!best || !fits(g, best)) return NULL;
    unlink_item(g, best, best_before);
    take(g, best);
    return best;
}

int queue_enter(struct queue *g, struct queue_item *it, int *retry_s, struct err *e) {
    int rc = 0;
    bool now = false;
    it->next = NULL;
    it->since_ns = clock_ns();
    pthread_mutex_lock(&g->lock);
    if (!g->head && fits(g, it)) {
        take(g, it);
        now = true;
    } else if (g->n_waiting >= g->max_waiting) {
        double wait = g->mean_s * (double)g->n_waiting / (double)g->n_slot;
        *retry_s = wait < 1 ? 1 : wait > 60 ? 60 : (int)wait;
        rc = err_set(e, CHIMERE_EBUSY, "%d requests are waiting already; try again later",
                     g->n_waiting);
    } else {
        it->waiting = true;
        if (g->tail) g->tail->next = it;
        else g->head = it;
        g->tail = it;
        g->n_waiting++;
    }
    pthread_mutex_unlock(&g->lock);
    if (now) it->start(it);
    return rc;
}

bool queue_drop(struct queue *g, struct queue_item *it) {
    pthread_mutex_lock(&g->lock);
    bool was = it->waiting;
    if (was) {
        struct queue_item *before = NULL;
        for (struct queue_item *x = g->head; x != it; x = x->next) before = x;
        unlink_item(g, it, before);
        it->waiting = false;
    }
    pthread_mutex_unlock(&g->lock);
    return was;
}

void queue_leave(struct queue *g, struct queue_item *it) {
    struct queue_item *first = NULL, **at = &first;
    pthread_mutex_lock(&g->lock);
    g->n_used -= it->n_slot;
    g->n_running--;
    g->mean_s += 0.1 * ((double)(clock_ns() - it->since_ns) * 1e-9 - g->mean_s);
    for (struct queue_item *next; (next = next_item(g));) {
        *at = next;
        at = &next->next;
    }
    pthread_mutex_unlock(&g->lock);
    for (struct queue_item *next; first; first = next) {
        next = first->next; /* first may be freed once it is started */
        first->next = NULL;
        first->start(first);
    }
}

int32_t queue_n_waiting(struct queue *g) {
    pthread_mutex_lock(&g->lock);
    int32_t n = g->n_waiting;
    pthread_mutex_unlock(&g->lock);
    return n;
}

int32_t queue_n_running(struct queue *g) {
    pthread_mutex_lock(&g->lock);
    int32_t n = g->n_running;
    pthread_mutex_unlock(&g->lock);
    return n;
}

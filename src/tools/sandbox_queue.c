/* sandbox_queue.c: limits how many sandboxes run at once, per owner and in total. */
#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "tools/sandbox_impl.h"

enum { LOOK_MS = 10 };

/* The running and waiting sandboxes in order of arrival. The limit protects the machine, so there is one list per
 * process. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sandbox_turn *first;

/* Returns true if t may run now. An earlier entry goes first, unless its owner already has the maximum of running
 * programs. */
static bool may_run(const struct sandbox_turn *t) {
    int n_all = 0, n_own = 0;
    for (const struct sandbox_turn *s = first; s; s = s->next) {
        n_all += s->running;
        n_own += s->running && !strcmp(s->owner, t->owner);
    }
    if (n_all >= SANDBOX_MAX_ALL || n_own >= SANDBOX_MAX_EACH) return false;
    for (const struct sandbox_turn *s = first; s != t; s = s->next) {
        int n = 0;
        for (const struct sandbox_turn *k = first; k; k = k->next)
            n += k->running && !strcmp(k->owner, s->owner);
        if (!s->running && n < SANDBOX_MAX_EACH) return false;
    }
    return true;
}

static void leave(struct sandbox_turn *t) {
    struct sandbox_turn **p = &first;
    while (*p != t) p = &(*p)->next;
    *p = t->next;
}

int sandbox_turn_take(struct sandbox_turn *t, const struct sandbox_job *job, struct err *e) {
    int64_t end = clock_ns() + (int64_t)SANDBOX_WAIT_MS * 1000000;
    if (job->deadline_ns && job->deadline_ns < end) end = job->deadline_ns;
    *t = (struct sandbox_turn){.owner = job->owner ? job->owner : ""};
    pthread_mutex_lock(&lock);
    struct sandbox_turn **last = &first;
    while (*last) last = &(*last)->next;
    *last = t;
    int rc = 0;
    while (!(t->running = may_run(t)) && !rc) {
        pthread_mutex_unlock(&lock);
        poll(NULL, 0, LOOK_MS);
        if (job->cancelled && *job->cancelled)
            rc = err_set(e, CHIMERE_ECANCELLED, "cancelled while waiting for a sandbox");
        else if (clock_ns() >= end)
            rc = err_set(e, CHIMERE_ETIMEOUT,
                         "sandbox: %d programs run already, and none ended before the deadline",
                         SANDBOX_MAX_EACH);
        pthread_mutex_lock(&lock);
    }
    if (rc) leave(t);
    pthread_mutex_unlock(&lock);
    return rc;
}

void sandbox_turn_give(struct sandbox_turn *t) {
    pthread_mutex_lock(&lock);
    leave(t);
    pthread_mutex_unlock(&lock);
}

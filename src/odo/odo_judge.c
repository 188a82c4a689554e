/* odo_judge.c: the model names, in one word, what a message is about. The time limit holds whatever the model
 * does: a separate thread asks the model, and odo_judge returns without it if it is late. */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/os/os.h"
#include "odo/odo_impl.h"

enum { MAX_JUDGING = 8, GRACE_MS = 20 }; /* more threads would only wait for a busy model */

struct judging {     /* shared by the judging thread and odo_judge; the later of the two frees it */
    struct odo *odo; /* borrowed: odo_close waits for n_judging */
    struct backend *backend;
    char *system, *grammar, *text; /* owned */
    int64_t deadline_ns;
    _Atomic bool cancelled;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool done, left; /* set by the thread; set by odo_judge when it returns */
    int rc;
    char word[INTENT_MAX_NAME];
};

static void judging_free(struct judging *j) {
    pthread_mutex_destroy(&j->lock);
    pthread_cond_destroy(&j->cond);
    mem_free(j->system);
    mem_free(j->grammar);
    mem_free(j->text);
    mem_free(j);
}

static void *work(void *ud) {
    struct judging *j = ud;
    struct odo *o = j->odo;
    struct call_result out = {0};
    int rc = call_text(j->backend, 0, j->system, j->text, j->grammar, 8, &j->cancelled,
                       j->deadline_ns, &out, NULL);
    pthread_mutex_lock(&j->lock);
    j->rc = rc;
    size_t n = out.content.n < sizeof j->word - 1 ? out.content.n : sizeof j->word - 1;
    if (n) memcpy(j->word, out.content.p, n);
    j->done = true;
    bool last = j->left;
    pthread_cond_signal(&j->cond);
    pthread_mutex_unlock(&j->lock);
    call_fini(&out);
    if (last) judging_free(j);
    --o->n_judging; /* o may be freed from here on */
    return NULL;
}

static int make(struct judging **out, struct odo *o, const char *text, const char *const *names,
                int n, double budget_ms) {
    struct judging *j = mem_zalloc(sizeof *j);
    struct buf system, grammar;
    if (!j) return CHIMERE_ENOMEM;
    buf_init(&system, 4096);
    buf_init(&grammar, 4096);
    buf_puts(&system, "Route the user's message. Categories: ");
    buf_puts(&grammar, "root ::= ");
    for (int i = 0; i < n; ++i) {
        buf_printf(&system, "%s%s", i ? ", " : "", names[i]);
        buf_printf(&grammar, "%s\"%s\"", i ? " | " : "", names[i]);
    }
    buf_puts(&system, ". Reply with one of them.");
    j->odo = o;
    j->backend = o->p.backend;
    j->deadline_ns = clock_ns() + (int64_t)(budget_ms * 1e6);
    pthread_mutex_init(&j->lock, NULL);
    thread_cond_init(&j->cond);
    j->system = buf_take(&system);
    j->grammar = buf_take(&grammar);
    j->text = mem_strdup(text);
    buf_fini(&system);
    buf_fini(&grammar);
    if (j->system && j->grammar && j->text) {
        *out = j;
        return 0;
    }
    judging_free(j);
    return CHIMERE_ENOMEM;
}

/* Call it with the lock held. Waits until the thread is done, at most GRACE_MS past the deadline. */
static void await(struct judging *j) {
    int64_t end = j->deadline_ns + (int64_t)GRACE_MS * 1000000;
    while (!j->done && thread_wait_until(&j->cond, &j->lock, end)) {}
}

int odo_judge(struct odo *o, const char *text, const char *const *names, int n, double budget_ms) {
    struct judging *j;
    pthread_t thread;
    if (++o->n_judging > MAX_JUDGING) {
        --o->n_judging;
        return CHIMERE_EBUSY;
    }
    int rc = make(&j, o, text, names, n, budget_ms);
    if (rc || pthread_create(&thread, NULL, work, j)) {
        if (!rc) judging_free(j);
        --o->n_judging;
        return CHIMERE_ENOMEM;
    }
    pthread_detach(thread);
    ++o->n_model_call;
    pthread_mutex_lock(&j->lock);
    await(j);
    int pick = j->done ? (j->rc ? j->rc : CHIMERE_ENOENT) : CHIMERE_ETIMEOUT;
    for (int i = 0; i < n && j->done && !j->rc; ++i)
        if (!strcmp(j->word, names[i])) pick = i;
    bool last = j->done;
    j->left = true;
    j->cancelled = true;
    pthread_mutex_unlock(&j->lock);
    if (last) judging_free(j);
    return pick;
}

void odo_judge_wait(struct odo *o) {
    while (o->n_judging) os_sleep_ms(2);
}

#include "odo/confirm.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/thread.h"

/* How often a wait looks at the run's cancel flag, which is set without a signal. The user's answer wakes it at
 * once. */
enum { CANCEL_MS = 200 };
enum word { WAITS, ALLOWED, DENIED };

struct waiting {
    char id[CONFIRM_ID_BYTES];      /* "": unused entry */
    char *owner, *tool, *arguments; /* owned */
    enum word word;
};

struct confirms {
    pthread_mutex_t lock;
    pthread_cond_t answered; /* broadcast if the word of any entry changes */
    struct waiting v[CONFIRM_MAX];
};

struct confirms *confirm_new(void) {
    struct confirms *c = mem_zalloc(sizeof *c);
    if (!c) return NULL;
    pthread_mutex_init(&c->lock, NULL);
    thread_cond_init(&c->answered);
    return c;
}

static void clear(struct waiting *w) {
    mem_free(w->owner);
    mem_free(w->tool);
    mem_free(w->arguments);
    *w = (struct waiting){0};
}

void confirm_free(struct confirms *c) {
    if (!c) return;
    for (int i = 0; i < CONFIRM_MAX; ++i) clear(&c->v[i]);
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->answered);
    mem_free(c);
}

/* Call it with the lock held. id "": finds an unused entry. */
static struct waiting *find(struct confirms *c, const char *id) {
    for (int i = 0; i < CONFIRM_MAX; ++i)
        if (!strcmp(c->v[i].id, id)) return &c->v[i];
    return NULL;
}

int confirm_begin(struct confirms *c, const char *owner, const char *tool, const char *arguments,
                  char id[CONFIRM_ID_BYTES], struct err *e) {
    struct waiting own = {
        .owner = mem_strdup(owner), .tool = mem_strdup(tool), .arguments = mem_strdup(arguments)};
    snprintf(own.id, sizeof own.id, "confirm-%016llx", (unsigned long long)rng_entropy());
    int rc = own.owner && own.tool && own.arguments ? 0 : CHIMERE_ENOMEM;
    if (rc) err_set(e, rc, "out of memory");
    pthread_mutex_lock(&c->lock);
    struct waiting *w = rc ? NULL : find(c, "");
    if (w) *w = own;
    pthread_mutex_unlock(&c->lock);
    if (w) {
        memcpy(id, own.id, CONFIRM_ID_BYTES);
        return 0;
    }
    clear(&own);
    return rc ? rc : err_set(e, CHIMERE_EBUSY, "%d calls wait for a confirmation", CONFIRM_MAX);
}

int confirm_wait(struct confirms *c, const char *id, int64_t deadline_ns, _Atomic bool *cancelled,
                 struct err *e) {
    enum word word = WAITS;
    bool late = false, ended = false;
    pthread_mutex_lock(&c->lock);
    for (;;) {
        struct waiting *w = find(c, id);
        int64_t now = clock_ns(), next = now + (int64_t)CANCEL_MS * 1000000;
        word = w ? w->word : DENIED;
        late = now >= deadline_ns;
        ended = cancelled && *cancelled;
        if (w && (word != WAITS || late || ended)) clear(w);
        if (word != WAITS || late || ended) break;
        thread_wait_until(&c->answered, &c->lock, next < deadline_ns ? next : deadline_ns);
    }
    pthread_mutex_unlock(&c->lock);
    if (word == ALLOWED) return 0;
    if (word == DENIED) return err_set(e, CHIMERE_EREFUSED, "the user did not allow it");
    if (ended) return err_set(e, CHIMERE_ECANCELLED, "cancelled");
    return err_set(e, CHIMERE_ETIMEOUT, "the user did not answer in time");
}

int confirm_answer(struct confirms *c, const char *owner, const char *id, bool allow,
                   struct err *e) {
    pthread_mutex_lock(&c->lock);
    struct waiting *w = *id ? find(c, id) : NULL;
    bool good = w && !strcmp(w->owner, owner) && w->word == WAITS;
    if (good) w->word = allow ? ALLOWED : DENIED;
    if (good) pthread_cond_broadcast(&c->answered);
    pthread_mutex_unlock(&c->lock);
    return good ? 0 : err_set(e, CHIMERE_ENOENT, "id: nothing of this name waits: '%.40s'", id);
}

json_t *confirm_list(struct confirms *c, const char *owner) {
    json_t *all = json_array();
    pthread_mutex_lock(&c->lock);
    for (int i = 0; i < CONFIRM_MAX; ++i) {
        const struct waiting *w = &c->v[i];
        if (w->id[0] && !strcmp(w->owner, owner) && w->word == WAITS)
            json_array_append_new(all, json_pack("{s:s, s:s, s:s}", "id", w->id, "name", w->tool,
                                                 "arguments", w->arguments));
    }
    pthread_mutex_unlock(&c->lock);
    return all;
}

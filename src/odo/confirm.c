#include "odo/confirm.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/os/os.h"
#include "base/rng.h"
#include "base/thread.h"

enum { TICK_MS = 10 };
enum word { WAITS, ALLOWED, DENIED };

struct waiting {
    char id[CONFIRM_ID_BYTES];      /* "": unused entry */
    char *owner, *tool, *arguments; /* owned */
    enum word word;
};

struct confirms {
    pthread_mutex_t lock;
    struct waiting v[CONFIRM_MAX];
};

struct confirms *confirm_new(void) {
    struct confirms *c = mem_zalloc(sizeof *c);
    if (c) pthread_mutex_init(&c->lock, NULL);
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
    for (;; os_sleep_ms(TICK_MS)) {
        bool late = clock_ns() >= deadline_ns, ended = cancelled && *cancelled;
        pthread_mutex_lock(&c->lock);
        struct waiting *w = find(c, id);
        enum word word = w ? w->word : DENIED;
        if (w && (word != WAITS || late || ended)) clear(w);
        pthread_mutex_unlock(&c->lock);
        if (word == ALLOWED) return 0;
        if (word == DENIED) return err_set(e, CHIMERE_EREFUSED, "the user did not allow it");
        if (ended) return err_set(e, CHIMERE_ECANCELLED, "cancelled");
        if (late) return err_set(e, CHIMERE_ETIMEOUT, "the user did not answer in time");
    }
}

int confirm_answer(struct confirms *c, const char *owner, const char *id, bool allow,
                   struct err *e) {
    pthread_mutex_lock(&c->lock);
    struct waiting *w = *id ? find(c, id) : NULL;
    bool good = w && !strcmp(w->owner, owner) && w->word == WAITS;
    if (good) w->word = allow ? ALLOWED : DENIED;
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

#include "cli/serve_watch.h"

#include <signal.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"

enum { LOOK_MS = 500, FIRST_PAUSE_MS = 1000 };

struct serve_watch {
    struct engine *engine; /* borrowed; NULL: count as lost */
    int32_t pause_ms;
    pthread_t caller, thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool quit;
};

int32_t serve_watch_pause_ms(int32_t n) { return n < SERVE_RESTARTS ? FIRST_PAUSE_MS << n : -1; }

/* With the lock held; returns false if the watch ends. */
static bool nap(struct serve_watch *w, int32_t ms) {
    int64_t until = clock_ns() + ms * INT64_C(1000000);
    while (!w->quit && thread_wait_until(&w->wake, &w->lock, until)) continue;
    return !w->quit;
}

static bool is_lost(struct serve_watch *w) {
    struct engine_totals t = {.is_lost = true};
    if (w->engine) engine_totals(w->engine, &t);
    return t.is_lost;
}

static void *watch(void *arg) {
    struct serve_watch *w = arg;
    pthread_mutex_lock(&w->lock);
    while (!w->quit && !is_lost(w)) nap(w, LOOK_MS);
    if (!w->quit && w->engine)
        log_error("a card is lost: the server starts again in %d s", w->pause_ms / 1000);
    if (nap(w, w->pause_ms)) pthread_kill(w->caller, SIGUSR1);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

int serve_watch_open(struct serve_watch **out, struct engine *g, int32_t pause_ms, struct err *e) {
    struct serve_watch *w = *out = mem_zalloc(sizeof *w);
    if (!w) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    w->engine = g;
    w->pause_ms = pause_ms;
    w->caller = pthread_self();
    pthread_mutex_init(&w->lock, NULL);
    thread_cond_init(&w->wake);
    if (!pthread_create(&w->thread, NULL, watch, w)) return 0;
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    mem_free(w);
    *out = NULL;
    return err_set(e, CHIMERE_ENOMEM, "cannot start the thread that watches the engine");
}

void serve_watch_close(struct serve_watch *w) {
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->quit = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    mem_free(w);
}

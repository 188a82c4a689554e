#include "serve/keeper.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"

enum { EVERY_S = 3600 };

struct keeper {
    struct store *stores[2]; /* borrowed; may be NULL */
    int32_t days;
    int64_t most_bytes;
    pthread_t thread;
    pthread_mutex_t lock; /* guards quit */
    pthread_cond_t wake;
    bool quit, running;
};

static void *keep(void *arg) {
    struct keeper *k = arg;
    pthread_mutex_lock(&k->lock);
    while (!k->quit) {
        pthread_mutex_unlock(&k->lock);
        for (int i = 0; i < 2; i++) {
            struct err e = {0};
            int64_t n = k->stores[i] ? store_retain(k->stores[i], k->days, k->most_bytes, &e) : 0;
            if (n < 0) log_warn("old records: %s", e.text);
            else if (n) log_info("%lld old records were deleted", (long long)n);
        }
        int64_t until = clock_ns() + EVERY_S * INT64_C(1000000000);
        pthread_mutex_lock(&k->lock);
        while (!k->quit && thread_wait_until(&k->wake, &k->lock, until)) {}
    }
    pthread_mutex_unlock(&k->lock);
    return NULL;
}

int keeper_open(struct keeper **out, struct store *const stores[2], int32_t days,
                int64_t most_bytes, struct err *e) {
    struct keeper *k = *out = mem_zalloc(sizeof *k);
    if (!k) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (int i = 0; i < 2; i++) k->stores[i] = stores[i];
    k->days = days;
    k->most_bytes = most_bytes;
    pthread_mutex_init(&k->lock, NULL);
    thread_cond_init(&k->wake);
    k->running = pthread_create(&k->thread, NULL, keep, k) == 0;
    if (k->running) return 0;
    keeper_close(k);
    *out = NULL;
    return err_set(e, CHIMERE_ENOMEM, "cannot start the thread that deletes old records");
}

void keeper_close(struct keeper *k) {
    if (!k) return;
    pthread_mutex_lock(&k->lock);
    k->quit = true;
    pthread_cond_signal(&k->wake);
    pthread_mutex_unlock(&k->lock);
    if (k->running) pthread_join(k->thread, NULL);
    pthread_mutex_destroy(&k->lock);
    pthread_cond_destroy(&k->wake);
    mem_free(k);
}

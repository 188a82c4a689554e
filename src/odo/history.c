#include "odo/history.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "odo/decide/intent.h"
#include "store/score.h"

enum { N_ROUTE = 16 }; /* routes kept in memory; a further route replaces the oldest entry */

struct kept {
    char route[INTENT_MAX_NAME];
    int64_t until_ns; /* 0: empty */
    double scores[STORE_MAX_SCORES];
    size_t n;
};

struct history {
    struct store *store; /* borrowed; NULL: no scores */
    pthread_mutex_t lock;
    struct kept v[N_ROUTE];
};

int history_new(struct history **out, struct store *s, struct err *e) {
    *out = mem_zalloc(sizeof **out);
    if (!*out) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    (*out)->store = s;
    pthread_mutex_init(&(*out)->lock, NULL);
    return 0;
}

void history_free(struct history *h) {
    if (!h) return;
    pthread_mutex_destroy(&h->lock);
    mem_free(h);
}

size_t history_scores(struct history *h, const char *route, bool judged, double *scores) {
    int64_t now = clock_ns();
    if (!h->store || strlen(route) >= INTENT_MAX_NAME) return 0;
    pthread_mutex_lock(&h->lock);
    struct kept *k = &h->v[0];
    for (int i = 0; i < N_ROUTE; ++i) {
        if (!strcmp(h->v[i].route, route)) {
            k = &h->v[i];
            break;
        }
        if (h->v[i].until_ns < k->until_ns) k = &h->v[i];
    }
    if (strcmp(k->route, route) != 0 || k->until_ns < now) {
        struct err e = {0};
        if (store_score_last(h->store, route, judged, k->scores, &k->n, &e))
            log_warn("odo: scores: %s", e.text);
        memcpy(k->route, route, strlen(route) + 1);
        k->until_ns = now + (int64_t)HISTORY_KEEP_S * 1000000000;
    }
    size_t n = k->n;
    memcpy(scores, k->scores, n * sizeof *scores);
    pthread_mutex_unlock(&h->lock);
    return n;
}

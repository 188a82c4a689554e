#include "base/team.h"

#include <string.h>

enum {
    WINDOW_NS = 40 * 1000 * 1000,   /* several time slices of the scheduler */
    BACKOFF_NS = 250 * 1000 * 1000, /* between trials at first; doubled after each failed trial */
    MAX_BACKOFF_S = 8,              /* limits the cost of failed trials to half a percent */
};

void team_init(struct team *t, int max) {
    memset(t, 0, sizeof *t);
    t->max = max;
    for (int i = 0; i < TEAM_N_KIND; i++) {
        t->kind[i].size = t->kind[i].usual = max;
        t->kind[i].backoff_ns = BACKOFF_NS;
    }
}

static void begin_window(struct team_kind *k) {
    k->work = 0;
    k->busy_ns = k->wait_ns = 0;
}

static void end_trial(struct team_kind *k, double rate, int64_t now_ns) {
    if (rate > k->rate * 1.05) {
        k->usual = k->size;
        k->rate = rate;
        k->backoff_ns = BACKOFF_NS;
        k->next_trial_ns = now_ns; /* a further change may help too */
        return;
    }
    k->size = k->usual;
    k->next_trial_ns = now_ns + k->backoff_ns;
    k->backoff_ns *= 2;
    if (k->backoff_ns > (int64_t)MAX_BACKOFF_S * 1000000000)
        k->backoff_ns = (int64_t)MAX_BACKOFF_S * 1000000000;
}

void team_report(struct team *t, int kind, size_t work, int64_t busy_ns, int64_t wait_ns,
                 int64_t now_ns) {
    struct team_kind *k = &t->kind[kind];
    if (t->max == 1) return;
    k->work += work;
    k->busy_ns += busy_ns;
    k->wait_ns += wait_ns;
    if (k->busy_ns < WINDOW_NS) return;
    double rate = (double)k->work / (double)k->busy_ns;
    bool waits = k->wait_ns > k->busy_ns / 4;
    begin_window(k);
    if (k->size != k->usual) {
        end_trial(k, rate, now_ns);
        return;
    }
    k->rate = rate;
    if (now_ns < k->next_trial_ns) return;
    int step = t->max / 8 + 1;
    if (waits && k->size > 1) k->size = k->size > step ? k->size - step : 1;
    else if (k->size < t->max) k->size = k->size + step < t->max ? k->size + step : t->max;
}

#include "learn/night_clock.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/os/os.h"
#include "base/thread.h"
#include "learn/nights.h"
#include "learn/schedule.h"

enum { TICK_MS = 500, RETRY_S = 60 };

struct night_clock {
    struct night_clock_params p;
    char dir[NIGHTS_MAX_PATH];
    pthread_t thread;
    _Atomic bool quit;
    bool running;
    int64_t retry_s; /* start no night before this time; used by the thread only */
    bool warned;
};

static int64_t now_of(const struct night_clock *c) {
    return c->p.now_s ? c->p.now_s(c->p.ud) : (int64_t)time(NULL);
}

/* Writes the names of the rows that are due, separated by commas; returns their number. */
static size_t list_due(const struct schedule *s, int64_t now, char *out, size_t size) {
    size_t n = 0, at = 0;
    *out = 0;
    for (size_t i = 0; i < s->n; i++)
        if (schedule_is_due(&s->rows[i], now)) {
            int k = snprintf(out + at, size - at, "%s%s", n++ ? "," : "", s->rows[i].step);
            at += k > 0 && (size_t)k < size - at ? (size_t)k : 0;
        }
    return n;
}

static void run_due(struct night_clock *c, const struct schedule *due, const char *steps,
                    int64_t now) {
    struct err e = {0};
    log_info("a night begins: %s", steps);
    int rc = c->p.run(c->p.ud, c, steps, &e);
    if (rc) log_warn("the night of %s: %s", steps, e.text);
    if (rc && c->quit) return; /* interrupted: due again after the next start */
    if (rc == CHIMERE_EBUSY) {
        c->retry_s = now + RETRY_S;
        return;
    }
    struct schedule s;
    rc = schedule_load(&s, c->dir, &e);
    for (size_t i = 0; !rc && i < s.n; i++)
        if (schedule_is_due(&due->rows[i], now)) s.rows[i].ran_s = now;
    if (!rc) rc = schedule_save_ran(&s, c->dir, &e);
    if (!rc) return;
    log_warn("nights: %s", e.text); /* if the disk is full, do not start a night every second */
    c->retry_s = now + RETRY_S;
}

static void tick(struct night_clock *c) {
    struct schedule s;
    struct err e = {0};
    char steps[SCHEDULE_MAX * 34];
    bool changed = false;
    int64_t now = now_of(c);
    if (c->retry_s > now + RETRY_S) c->retry_s = 0; /* the clock was set back */
    int rc = schedule_load(&s, c->dir, &e);
    if (!rc) schedule_settle(&s, now, &changed);
    if (!rc && changed) rc = schedule_save_ran(&s, c->dir, &e);
    if (rc && !c->warned) log_warn("nights: %s", e.text);
    c->warned = rc != 0;
    if (!rc && now >= c->retry_s && list_due(&s, now, steps, sizeof steps))
        run_due(c, &s, steps, now);
}

static void *clock_thread(void *arg) {
    struct night_clock *c = arg;
    while (!c->quit) {
        if (c->p.tick) c->p.tick(c->p.ud);
        tick(c);
        for (int ms = 0; ms < TICK_MS && !c->quit; ms += 20) os_sleep_ms(20);
    }
    return NULL;
}

int night_clock_open(struct night_clock **out, const struct night_clock_params *p, struct err *e) {
    struct schedule s;
    *out = NULL;
    if (strlen(p->dir) >= NIGHTS_MAX_PATH - 64)
        return err_set(e, CHIMERE_ELIMIT, "night folder: the path is too long");
    int rc = schedule_load(&s, p->dir, e);
    if (rc) return rc;
    struct night_clock *c = mem_zalloc(sizeof *c);
    if (!c) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    c->p = *p;
    snprintf(c->dir, sizeof c->dir, "%s", p->dir);
    c->running = !pthread_create(&c->thread, NULL, clock_thread, c);
    if (c->running) {
        *out = c;
        return 0;
    }
    mem_free(c);
    return err_set(e, CHIMERE_ENOMEM, "cannot start the thread of nights");
}

void night_clock_close(struct night_clock *c) {
    if (!c) return;
    c->quit = true;
    if (c->running) pthread_join(c->thread, NULL);
    mem_free(c);
}

bool night_clock_goes_on(const struct night_clock *c) { return !c->quit; }

/* ramp_process.c: messages are a length and JSON: the options to the child; progress and the result from it. */
#include "ramp/ramp_process.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/os/child.h"
#include "base/os/os.h"
#include "base/thread.h"
#include "kernels/device.h"

enum { MAX_MESSAGE = 1 << 16, TICK_MS = 500 };

static bool put(struct child *c, json_t *o) {
    char *text = o ? json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    uint32_t n = text ? (uint32_t)strlen(text) : 0;
    bool ok = n && n <= MAX_MESSAGE && child_write(c, &n, sizeof n) && child_write(c, text, n);
    mem_free(text);
    json_decref(o);
    return ok;
}

static json_t *get(struct child *c) {
    uint32_t n = 0;
    if (!child_read(c, &n, sizeof n) || !n || n > MAX_MESSAGE) return NULL;
    char *text = mem_alloc(n);
    json_t *o = text && child_read(c, text, n) ? json_loadb(text, n, 0, NULL) : NULL;
    mem_free(text);
    return o;
}

/* ---- the child ---- */

static struct {
    struct child parent;
    pthread_mutex_t lock; /* guards the rest, and writing */
    char step[64];
    uint64_t done, total;
} child = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void on_step(const char *what, uint64_t done, uint64_t total) {
    pthread_mutex_lock(&child.lock);
    snprintf(child.step, sizeof child.step, "%s", what);
    child.done = done;
    child.total = total;
    pthread_mutex_unlock(&child.lock);
}

/* Ends the process with its parent. Files under their final names are complete, so nothing needs to be put in order. */
static void *tick(void *unused) {
    for (;; os_sleep_ms(TICK_MS)) {
        pthread_mutex_lock(&child.lock);
        if (!put(&child.parent,
                 json_pack("{s:s, s:I, s:I}", "step", child.step, "done", (json_int_t)child.done,
                           "total", (json_int_t)child.total)))
            _Exit(1);
        pthread_mutex_unlock(&child.lock);
    }
    return unused;
}

static const char *text_of(const json_t *q, const char *name) {
    return json_string_value(json_object_get(q, name));
}

static int make(const json_t *q, struct err *e) {
    struct ramp_options o;
    struct buf text;
    ramp_defaults(&o);
    o.model = text_of(q, "model");
    o.out = text_of(q, "out");
    o.work = text_of(q, "work");
    o.card = text_of(q, "card");
    o.text = text_of(q, "text");
    o.mode = json_is_true(json_object_get(q, "chimere")) ? RAMP_CHIMERE : RAMP_PORTABLE;
    o.predict_only = json_is_true(json_object_get(q, "predict"));
    o.bpw = json_number_value(json_object_get(q, "bpw"));
    o.size_bytes = (uint64_t)json_integer_value(json_object_get(q, "size"));
    o.ctx = json_integer_value(json_object_get(q, "ctx"));
    o.n_thread = (int)json_integer_value(json_object_get(q, "threads"));
    o.cache_bytes = (uint64_t)4 << 30; /* the work folder stays, for a second size */
    const struct device_params cpu = {.name = "cpu", .n_thread = o.n_thread, .isa = CPU_ISA_BEST};
    int rc = ramp_check(&o, e);
    if (!rc && !o.predict_only) rc = device_open(&o.dev, &cpu, e);
    if (!rc) rc = ramp_analyse(&o, e);
    if (!rc) rc = ramp_search(&o, e);
    if (!rc) rc = ramp_build(&o, e);
    if (o.dev) o.dev->ops->close(o.dev);
    o.dev = NULL; /* the pictures show what was predicted */
    buf_init(&text, 1 << 24);
    if (!rc) rc = ramp_report(&o, &text, e);
    buf_fini(&text);
    return rc;
}

int ramp_process_child(void) {
    pthread_t ticker;
    struct err e = {0};
    child_self(&child.parent);
    json_t *q = get(&child.parent);
    if (!q || pthread_create(&ticker, NULL, tick, NULL)) return 1;
    progress_to(on_step);
    int rc = make(q, &e);
    pthread_mutex_lock(&child.lock);
    bool ok =
        put(&child.parent, json_pack("{s:i, s:s, s:s}", "code", rc, "error",
                                     rc ? e.text[0] ? e.text : err_name(rc) : "", "hint", e.hint));
    _Exit(ok ? 0 : 1); /* with the lock held: the ticker must not write after the result */
}

/* ---- the parent ---- */

static json_t *options_of(const struct ramp_options *o) {
    return json_pack("{s:s, s:s, s:s, s:s*, s:s*, s:b, s:b, s:f, s:I, s:I, s:i}", "model", o->model,
                     "out", o->out, "work", o->work, "card", o->card, "text", o->text, "chimere",
                     (int)(o->mode == RAMP_CHIMERE), "predict", (int)o->predict_only, "bpw", o->bpw,
                     "size", (json_int_t)o->size_bytes, "ctx", (json_int_t)o->ctx, "threads",
                     o->n_thread);
}

/* Returns false after the last message; rc is then set, unless the child has ended without a result. */
static bool follow(struct child *c, ramp_process_show *show, void *ud, int *rc, struct err *e) {
    json_t *m = get(c);
    if (!m) return false;
    const json_t *code = json_object_get(m, "code");
    bool goes_on = false;
    if (code) {
        *rc = (int)json_integer_value(code);
        if (*rc) {
            err_set(e, *rc, "%s", text_of(m, "error"));
            err_hint(e, "%s", text_of(m, "hint"));
        }
    } else {
        goes_on =
            show(ud, text_of(m, "step"), (uint64_t)json_integer_value(json_object_get(m, "done")),
                 (uint64_t)json_integer_value(json_object_get(m, "total")));
        if (!goes_on) *rc = err_set(e, CHIMERE_ECANCELLED, "the search was stopped");
    }
    json_decref(m);
    return goes_on;
}

int ramp_process_run(const struct ramp_options *o, ramp_process_show *show, void *ud,
                     struct err *e) {
    struct child c;
    char how[96];
    int rc = child_start(&c, RAMP_PROCESS_COMMAND, e);
    if (rc) return rc;
    rc = 1; /* no result yet */
    if (put(&c, options_of(o)))
        while (follow(&c, show, ud, &rc, e)) {}
    child_end(&c, how, sizeof how);
    return rc == 1 ? err_set(e, CHIMERE_EIO, "the search's process %s", how) : rc;
}

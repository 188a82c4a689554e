/* A backend that answers from a script and keeps what it was asked: what the orchestrator does, without a
 * model. Each reply is content, or "call NAME ARGS" lines; "fail" fails; "hang" waits HANG_MS to be
 * cancelled, "stuck" does not even hear that. */
#ifndef CHIMERE_TEST_ODO_SCRIPT_H
#define CHIMERE_TEST_ODO_SCRIPT_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "backend/backend.h"

enum { HANG_MS = 60000 };

struct script {
    struct backend base;
    pthread_mutex_t lock;
    const char *const *replies; /* [n] */
    int n, at;
    const char *(*choose)(struct script *s, const json_t *messages); /* instead of replies */
    const char *
        stop; /* the stop string that ends each plain answer where the request has any; NULL: none */
    _Atomic bool release; /* ends what is "stuck" */
    json_t *asked;        /* [{messages, tools, max_tokens, temperature, think}] */
};

struct script_run {
    struct generation base;
    const struct request *request;
    struct event_sink sink;
    _Atomic bool cancelled;
    pthread_t thread;
    bool started;
};

static inline void script_chat(struct script_run *r, enum chat_event_kind kind, const char *text,
                               size_t n, int index, const char *name, const char *id) {
    struct chat_event c = {
        .kind = kind, .text = text, .n = n, .index = index, .name = name, .id = id};
    struct backend_event ev = {.kind = EVENT_CHAT, .chat = &c};
    if (r->sink.event(r->sink.ud, &ev)) r->cancelled = true;
}

static inline void *script_work(void *ud) {
    struct script_run *r = ud;
    struct script *s = (struct script *)r->base.backend;
    pthread_mutex_lock(&s->lock);
    json_array_append_new(
        s->asked,
        json_pack("{s:o, s:o*, s:i, s:f, s:b, s:i, s:b, s:i, s:f, s:o*}", "messages",
                  json_deep_copy(r->request->messages), "tools", json_deep_copy(r->request->tools),
                  "max_tokens", (int)r->request->max_tokens, "temperature",
                  (double)r->request->sampling.temperature, "think", r->request->think, "format",
                  (int)r->request->format, "table", r->request->table != NULL, "think_budget",
                  (int)r->request->sampling.think_budget, "top_p",
                  (double)r->request->sampling.top_p, "extra", json_deep_copy(r->request->extra)));
    const char *reply = s->choose      ? s->choose(s, r->request->messages)
                        : s->at < s->n ? s->replies[s->at++]
                                       : "out of script";
    pthread_mutex_unlock(&s->lock);
    int32_t most = r->request->max_tokens;
    struct generation_end end = {
        .finish = FINISH_STOP,
        .stats = {.n_prompt = 10, .n_generated = most > 0 && most < 5 ? most : 5}};
    struct err failed = {0};
    if (!strcmp(reply, "fail")) {
        err_set(&failed, CHIMERE_EDEVICE, "the script says so");
        end = (struct generation_end){.finish = FINISH_ERROR, .err = &failed};
    } else if (!strcmp(reply, "stuck")) { /* does not even hear that it is cancelled */
        for (int i = 0; i < HANG_MS && !s->release; ++i) usleep(1000);
        end.finish = FINISH_CANCELLED;
    } else if (!strcmp(reply, "hang")) {
        for (int i = 0; i < HANG_MS && !r->cancelled; ++i) usleep(1000);
        end.finish = FINISH_CANCELLED;
    } else {
        int n_call = 0;
        char *copy = strdup(reply), *rest = copy, *line;
        while ((line = strsep(&rest, "\n"))) {
            char *name = NULL, *args = NULL;
            if (!strncmp(line, "call ", 5)) {
                name = line + 5;
                args = strchr(name, ' ');
                *args++ = 0;
                char id[16];
                snprintf(id, sizeof id, "call%05d", n_call);
                script_chat(r, CHAT_CALL, "", 0, n_call, name, id);
                script_chat(r, CHAT_ARGS, args, strlen(args), n_call, NULL, NULL);
                script_chat(r, CHAT_CALL_END, "", 0, n_call, NULL, NULL);
                ++n_call;
                end.finish = FINISH_CALLS;
            } else if (*line) {
                script_chat(r, CHAT_CONTENT, line, strlen(line), -1, NULL, NULL);
            }
        }
        free(copy);
        if (s->stop && r->request->n_stop && end.finish == FINISH_STOP) end.stop = s->stop;
    }
    struct backend_event ev = {.kind = EVENT_END, .end = &end};
    r->sink.event(r->sink.ud, &ev);
    struct event_sink sink = r->sink;
    sink.event(sink.ud, &(struct backend_event){.kind = EVENT_DONE});
    return NULL;
}

static inline int script_prepare(struct backend *b, const struct request *a,
                                 const struct event_sink *sink, struct generation **out,
                                 int32_t *n_prompt, struct err *e) {
    (void)e;
    struct script_run *r = mem_zalloc(sizeof *r);
    r->base.backend = b;
    r->request = a;
    r->sink = *sink;
    if (n_prompt) *n_prompt = 10;
    *out = &r->base;
    return 0;
}
static inline int script_start(struct generation *base, struct err *e) {
    (void)e;
    struct script_run *r = (struct script_run *)base;
    r->started = true;
    return pthread_create(&r->thread, NULL, script_work, r);
}
static inline void script_cancel(struct generation *base) {
    ((struct script_run *)base)->cancelled = true;
}
static inline void script_free(struct generation *base) {
    struct script_run *r = (struct script_run *)base;
    if (r->started) pthread_join(r->thread, NULL);
    mem_free(r);
}
static inline int script_render(struct backend *b, const struct request *a, char **text,
                                int32_t **ids, size_t *n, struct err *e) {
    (void)b, (void)a, (void)text, (void)ids, (void)n;
    return err_set(e, CHIMERE_EUNSUPPORTED, "no");
}
static inline void script_close(struct backend *b) { (void)b; }

static const struct backend_ops script_ops = {.prepare = script_prepare,
                                              .start = script_start,
                                              .cancel = script_cancel,
                                              .free = script_free,
                                              .render = script_render,
                                              .close = script_close};

static inline void script_init(struct script *s, const char *const *replies, int n) {
    *s =
        (struct script){.base = {.ops = &script_ops, .name = "script"}, .replies = replies, .n = n};
    pthread_mutex_init(&s->lock, NULL);
    s->asked = json_array();
}
static inline void script_fini(struct script *s) {
    json_decref(s->asked);
    pthread_mutex_destroy(&s->lock);
}
/* The i-th question's text of message m. */
static inline const char *script_text(struct script *s, int i, int m) {
    json_t *messages = json_object_get(json_array_get(s->asked, (size_t)i), "messages");
    if (m < 0) m += (int)json_array_size(messages);
    const char *t =
        json_string_value(json_object_get(json_array_get(messages, (size_t)m), "content"));
    return t ? t : "";
}

#endif

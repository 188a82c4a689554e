/* api_session.c: sessions of chimere.h: one request at a time, whose events go to the caller and into an answer. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "api/api_impl.h"
#include "api/api_question.h"
#include "base/thread.h"

enum { MAX_ANSWER_BYTES = 256 << 20, MAX_CALLS = 128 };

struct chimere_session {
    struct chimere_model *m; /* borrowed until free */
    char name[32];           /* name of its kept state in the engine */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool busy, done, cancelled;
    struct generation *run;          /* owned, while busy */
    const struct chimere_options *o; /* borrowed, while busy */
    struct buf text, reasoning, args;
    json_t *calls; /* owned, while busy */
    json_t *call;  /* view into calls: the call in progress */
    enum finish finish;
    struct engine_stats stats;
    struct err err;
};

void chimere_options_init(struct chimere_options *o) {
    *o = (struct chimere_options){.size = sizeof *o,
                                  .temperature = 0.7f,
                                  .top_k = 20,
                                  .top_p = 0.8f,
                                  .repeat_penalty = 1,
                                  .think_budget = -1};
}

void chimere_answer_free(struct chimere_answer *a) {
    mem_free(a->text);
    mem_free(a->message);
    *a = (struct chimere_answer){.text = NULL};
}

int chimere_session_new(struct chimere_session **out, struct chimere_model *m,
                        struct chimere_error *e) {
    static _Atomic uint64_t count;
    struct chimere_session *s = *out = mem_zalloc(sizeof *s);
    if (!s) return err_set(api_err(e), CHIMERE_ENOMEM, "out of memory");
    s->m = m;
    snprintf(s->name, sizeof s->name, "session %llu", (unsigned long long)++count);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    return 0;
}

void chimere_session_cancel(struct chimere_session *s) {
    pthread_mutex_lock(&s->lock);
    s->cancelled = true;
    if (s->run && !s->done) s->run->backend->ops->cancel(s->run);
    pthread_mutex_unlock(&s->lock);
}

void chimere_session_free(struct chimere_session *s) {
    if (!s) return;
    chimere_session_cancel(s);
    pthread_mutex_lock(&s->lock);
    while (s->busy) pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

/* ---- the answer's pieces ---- */

static void begin_call(struct chimere_session *s, const struct chat_event *ev) {
    buf_clear(&s->args);
    s->call = NULL;
    if (json_array_size(s->calls) >= MAX_CALLS) return;
    s->call = json_pack("{s:s, s:s, s:{s:s}}", "id", ev->id, "type", "function", "function", "name",
                        ev->name);
    if (json_array_append_new(s->calls, s->call)) s->call = NULL;
}

static void end_call(struct chimere_session *s) {
    if (s->call)
        json_object_set_new(json_object_get(s->call, "function"), "arguments",
                            s->args.n ? json_stringn(s->args.p, s->args.n) : json_string("{}"));
    s->call = NULL;
}

/* Removes a call that failed: its text follows as content. */
static void drop_call(struct chimere_session *s) {
    if (s->call) json_array_remove(s->calls, json_array_size(s->calls) - 1);
    s->call = NULL;
}

/* Returns false if the event is not passed to the caller. */
static bool collect(struct chimere_session *s, const struct chat_event *ev,
                    struct chimere_event *out) {
    *out = (struct chimere_event){
        .text = ev->text, .n = ev->n, .index = ev->index, .name = ev->name, .id = ev->id};
    switch (ev->kind) {
    case CHAT_CONTENT:
        out->kind = CHIMERE_TEXT;
        buf_put(&s->text, ev->text, ev->n);
        return true;
    case CHAT_REASONING:
        out->kind = CHIMERE_REASONING;
        buf_put(&s->reasoning, ev->text, ev->n);
        return true;
    case CHAT_CALL:
        out->kind = CHIMERE_CALL;
        begin_call(s, ev);
        return true;
    case CHAT_ARGS:
        out->kind = CHIMERE_ARGUMENTS;
        buf_put(&s->args, ev->text, ev->n);
        return true;
    case CHAT_CALL_END:
        out->kind = CHIMERE_CALL_END;
        end_call(s);
        return true;
    case CHAT_CALL_CUT:
    case CHAT_MALFORMED: drop_call(s); break;
    }
    return false;
}

static int on_event(void *ud, const struct backend_event *ev) {
    struct chimere_session *s = ud;
    struct chimere_event out = {.kind = CHIMERE_PREFILL};
    bool show = false;
    if (ev->kind == EVENT_CHAT) {
        show = collect(s, ev->chat, &out);
    } else if (ev->kind == EVENT_PREFILL) {
        out.n_done = ev->n_done;
        out.n_prompt = ev->n_prompt;
        show = true;
    } else if (ev->kind == EVENT_END) {
        s->finish = ev->end->finish;
        s->stats = ev->end->stats;
        if (ev->end->err) s->err = *ev->end->err;
    } else if (ev->kind == EVENT_DONE) {
        pthread_mutex_lock(&s->lock);
        s->done = true;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
    }
    return show && s->o->on_event ? s->o->on_event(s->o->ud, &out) : 0;
}

/* ---- one request ---- */

static int run(struct chimere_session *s, const struct request *request, struct err *e) {
    struct backend *b = s->m->backend;
    const struct event_sink sink = {.event = on_event, .ud = s};
    struct generation *r = NULL;
    int32_t n_prompt;
    int rc = b->ops->prepare(b, request, &sink, &r, &n_prompt, e);
    if (rc) return rc;
    rc = b->ops->start(r, e);
    pthread_mutex_lock(&s->lock);
    if (!rc) {
        s->run = r;
        if (s->cancelled && !s->done) b->ops->cancel(r);
        while (!s->done) pthread_cond_wait(&s->changed, &s->lock);
        s->run = NULL;
    }
    pthread_mutex_unlock(&s->lock);
    b->ops->free(r);
    if (rc || s->finish != FINISH_ERROR) return rc;
    if (e) *e = s->err;
    return s->err.code ? s->err.code : CHIMERE_EINTERNAL;
}

static char *message_text(const struct chimere_session *s) {
    json_t *m = json_pack("{s:s}", "role", "assistant");
    json_object_set_new(m, "content", json_stringn(s->text.n ? s->text.p : "", s->text.n));
    if (s->reasoning.n)
        json_object_set_new(m, "reasoning_content", json_stringn(s->reasoning.p, s->reasoning.n));
    if (json_array_size(s->calls)) json_object_set(m, "tool_calls", s->calls);
    size_t n = json_dumpb(m, NULL, 0, JSON_COMPACT);
    char *text = n ? mem_alloc(n + 1) : NULL;
    if (text) text[json_dumpb(m, text, n, JSON_COMPACT)] = 0;
    json_decref(m);
    return text;
}

static int fill(struct chimere_session *s, struct chimere_answer *a, struct err *e) {
    *a = (struct chimere_answer){.n_prompt = s->stats.n_prompt,
                                 .n_cached = s->stats.n_cached,
                                 .n_generated = s->stats.n_generated,
                                 .prefill_ms = s->stats.prefill_ms,
                                 .decode_ms = s->stats.decode_ms};
    a->finish = s->finish == FINISH_LENGTH      ? CHIMERE_LENGTH
                : s->finish == FINISH_CALLS     ? CHIMERE_CALLS
                : s->finish == FINISH_CANCELLED ? CHIMERE_CANCELLED
                                                : CHIMERE_FINISHED;
    bool whole = !s->text.failed && !s->reasoning.failed && !s->args.failed;
    if (whole) a->message = message_text(s);
    if (whole) a->text = buf_take(&s->text);
    if (a->message && a->text) return 0;
    chimere_answer_free(a);
    return err_set(e, CHIMERE_ENOMEM, "out of memory for the answer");
}

static bool begin(struct chimere_session *s, const struct chimere_options *o) {
    pthread_mutex_lock(&s->lock);
    bool idle = !s->busy;
    if (idle) {
        s->busy = true;
        s->done = s->cancelled = false;
        s->o = o;
    }
    pthread_mutex_unlock(&s->lock);
    if (!idle) return false;
    buf_init(&s->text, MAX_ANSWER_BYTES);
    buf_init(&s->reasoning, MAX_ANSWER_BYTES);
    buf_init(&s->args, MAX_ANSWER_BYTES);
    s->calls = json_array();
    s->call = NULL;
    s->stats = (struct engine_stats){0};
    s->err = (struct err){0};
    return true;
}

static void end(struct chimere_session *s) {
    buf_fini(&s->text);
    buf_fini(&s->reasoning);
    buf_fini(&s->args);
    json_decref(s->calls);
    pthread_mutex_lock(&s->lock);
    s->busy = false;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static int answer(struct chimere_session *s, const char *messages, const char *text,
                  const struct chimere_options *theirs, struct chimere_answer *a, struct err *e) {
    struct chimere_options o;
    *a = (struct chimere_answer){.text = NULL};
    chimere_options_init(&o);
    if (theirs && !api_take_options(&o, sizeof o, theirs))
        return err_set(e, CHIMERE_EINVAL, "options: call chimere_options_init first");
    if (!begin(s, &o))
        return err_set(e, CHIMERE_EBUSY, "session: it is already generating an answer");
    struct request request;
    request_init(&request);
    int rc = api_question(&request, messages, text, &o, e);
    request.session = request.owner = s->name;
    if (!rc) rc = run(s, &request, e);
    if (!rc) rc = fill(s, a, e);
    request_fini(&request);
    end(s);
    return rc;
}

int chimere_chat(struct chimere_session *s, const char *messages, const struct chimere_options *o,
                 struct chimere_answer *a, struct chimere_error *e) {
    return answer(s, messages ? messages : "", NULL, o, a, api_err(e));
}

int chimere_complete(struct chimere_session *s, const char *text, const struct chimere_options *o,
                     struct chimere_answer *a, struct chimere_error *e) {
    return answer(s, NULL, text ? text : "", o, a, api_err(e));
}

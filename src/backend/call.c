#include "backend/call.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"

enum { POLL_NS = 20000000 }; /* how often the cancelled flag is read */

struct waiting {
    const struct call *call;
    struct call_result *out;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool done, starved; /* starved: memory was short: the result may have gaps */
    struct buf args;    /* arguments of the open call */
    char *name, *id;    /* owned; of the open call */
};

static void begin_call(struct waiting *w, const struct chat_event *ev) {
    mem_free(w->name);
    mem_free(w->id);
    w->name = mem_strdup(ev->name);
    w->id = mem_strdup(ev->id);
    buf_clear(&w->args);
}

static void end_call(struct waiting *w) {
    if (!w->name || !w->id || w->args.failed) return;
    if (json_array_size(w->out->calls) >= CALL_MAX_CALLS) return;
    json_array_append_new(w->out->calls, json_pack("{s:s, s:s, s:s}", "id", w->id, "name", w->name,
                                                   "arguments", w->args.n ? w->args.p : "{}"));
    mem_free(w->name);
    w->name = NULL;
}

static void on_chat(struct waiting *w, const struct chat_event *ev) {
    switch (ev->kind) {
    case CHAT_CONTENT: buf_put(&w->out->content, ev->text, ev->n); break;
    case CHAT_REASONING: buf_put(&w->out->reasoning, ev->text, ev->n); break;
    case CHAT_CALL: begin_call(w, ev); break;
    case CHAT_ARGS: buf_put(&w->args, ev->text, ev->n); break;
    case CHAT_CALL_END: end_call(w); break;
    case CHAT_CALL_CUT:
    case CHAT_MALFORMED: break;
    }
}

static int take(struct waiting *w, const struct backend_event *ev) {
    struct call_result *out = w->out;
    if (ev->kind == EVENT_CHAT) on_chat(w, ev->chat);
    if (ev->kind == EVENT_TOKEN && ev->probs) {
        ++out->n_token;
        if (out->n_token == 1) out->first_entropy = (double)ev->probs->entropy;
        out->entropy += (double)ev->probs->entropy;
    }
    if (ev->kind == EVENT_END) {
        out->finish = ev->end->finish;
        out->stats = ev->end->stats;
        out->n_reasoning = ev->end->n_reasoning;
        if (ev->end->stop) out->stop = mem_strdup(ev->end->stop);
        if (ev->end->err) out->err = *ev->end->err;
        return 0;
    }
    int rc = w->call->on_event ? w->call->on_event(w->call->ud, ev) : 0;
    return rc || (w->call->cancelled && *w->call->cancelled);
}

static int on_event(void *ud, const struct backend_event *ev) {
    struct waiting *w = ud;
    if (ev->kind == EVENT_DONE) {
        pthread_mutex_lock(&w->lock);
        w->done = true;
        pthread_cond_signal(&w->cond);
        pthread_mutex_unlock(&w->lock); /* w may be freed from here on */
        return 0;
    }
    int64_t shortages = mem_shortages();
    int rc = take(w, ev);
    if (mem_shortages() != shortages) w->starved = true;
    return rc || w->starved;
}

/* Waits for the end; at the deadline, cancels once. Returns true if the deadline ended the call. */
static bool await(struct waiting *w, struct generation *run) {
    bool late = false, told = false;
    pthread_mutex_lock(&w->lock);
    while (!w->done) {
        int64_t until = clock_ns() + POLL_NS, deadline = w->call->deadline_ns;
        if (deadline && !told && deadline < until) until = deadline;
        thread_wait_until(&w->cond, &w->lock, until);
        bool over = w->call->deadline_ns && clock_ns() >= w->call->deadline_ns;
        bool stop = over || (w->call->cancelled && *w->call->cancelled);
        if (w->done || !stop || told) continue;
        late = over;
        told = true;
        pthread_mutex_unlock(&w->lock);
        run->backend->ops->cancel(run);
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return late;
}

int call_run(const struct call *c, struct call_result *out, struct err *e) {
    *out = (struct call_result){.calls = json_array(), .finish = FINISH_ERROR};
    buf_init(&out->content, CALL_MAX_TEXT);
    buf_init(&out->reasoning, CALL_MAX_TEXT);
    struct waiting w = {.call = c, .out = out};
    buf_init(&w.args, CALL_MAX_TEXT);
    thread_cond_init(&w.cond);
    pthread_mutex_init(&w.lock, NULL);
    struct event_sink sink = {on_event, &w};
    struct generation *run = NULL;
    bool late = false;
    int64_t shortages = mem_shortages();
    const struct backend_ops *ops = c->backend->ops;
    int rc = out->calls ? ops->prepare(c->backend, c->request, &sink, &run, NULL, e)
                        : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = ops->start(run, e);
    if (!rc) late = await(&w, run);
    if (run) ops->free(run);
    pthread_cond_destroy(&w.cond);
    pthread_mutex_destroy(&w.lock);
    buf_fini(&w.args);
    mem_free(w.name);
    mem_free(w.id);
    if (!rc && (w.starved || mem_shortages() != shortages))
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc && late) return err_set(e, CHIMERE_ETIMEOUT, "the model did not answer in time");
    if (!rc && out->finish == FINISH_ERROR) {
        if (e) *e = out->err;
        rc = out->err.code ? out->err.code : err_set(e, CHIMERE_EINTERNAL, "the model failed");
    }
    return rc;
}

void call_fini(struct call_result *r) {
    buf_fini(&r->content);
    buf_fini(&r->reasoning);
    json_decref(r->calls);
    mem_free((char *)r->stop);
    r->calls = NULL;
    r->stop = NULL;
}

int call_text(struct backend *b, uint64_t scope, const char *system, const char *user,
              const char *gbnf, int32_t max_tokens, _Atomic bool *cancelled, int64_t deadline_ns,
              struct call_result *out, struct err *e) {
    struct request a;
    int64_t shortages = mem_shortages();
    request_init(&a);
    a.messages = json_array();
    if (system)
        json_array_append_new(a.messages,
                              json_pack("{s:s, s:s}", "role", "system", "content", system));
    json_array_append_new(a.messages, json_pack("{s:s, s:s}", "role", "user", "content", user));
    a.sampling.temperature = 0;
    a.max_tokens = max_tokens;
    a.scope = scope;
    if (gbnf) {
        a.format = REQUEST_GBNF;
        a.grammar = gbnf;
    }
    struct call c = {
        .backend = b, .request = &a, .cancelled = cancelled, .deadline_ns = deadline_ns};
    int rc = call_run(&c, out, e);
    if (!rc && mem_shortages() != shortages) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    request_fini(&a);
    return rc;
}

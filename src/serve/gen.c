/* gen.c: a request's life: api_*.c -> here -> gate -> backend; events come back on the engine's thread. */
#include "serve/gen.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "odo/odo.h"
#include "serve/http_impl.h"
#include "serve/json_out.h"

enum { MAX_TEXT = 64 << 20 };

enum gen_state { GEN_NEW, GEN_WAITING, GEN_STARTING, GEN_RUNNING, GEN_OVER };

struct gen_run { /* what only this file sees */
    struct gen g;
    struct gate_item item;
    struct gate *gate;    /* borrowed */
    struct ask_run *run;  /* owned */
    pthread_mutex_t lock; /* state and cancelled */
    enum gen_state state;
    bool in_go, dropped; /* gen_go has not returned; it left the queue unserved */
    bool streaming;
    _Atomic bool cancelled, has_first;
    struct err start_err;
    int64_t ready_ns;
};

static struct gen_run *run_of(struct gen *g) { return (struct gen_run *)g; }

/* ---- the end ---- */

struct ask_end gen_sum(const struct gen *g) {
    struct ask_end sum = {.finish = ASK_STOP};
    for (int i = 0; i < g->ask.n; i++) {
        const struct ask_end *e = &g->choices[i].end;
        if (e->stats.n_prompt > sum.stats.n_prompt) sum.stats.n_prompt = e->stats.n_prompt;
        if (i == 0 || e->stats.n_cached < sum.stats.n_cached)
            sum.stats.n_cached = e->stats.n_cached;
        sum.stats.n_generated += e->stats.n_generated;
        sum.stats.n_drafted += e->stats.n_drafted;
        sum.stats.n_accepted += e->stats.n_accepted;
        sum.n_reasoning += e->n_reasoning;
        if (e->stats.prefill_ms > sum.stats.prefill_ms) sum.stats.prefill_ms = e->stats.prefill_ms;
        if (e->stats.decode_ms > sum.stats.decode_ms) sum.stats.decode_ms = e->stats.decode_ms;
        if (e->stats.queue_ms > sum.stats.queue_ms) sum.stats.queue_ms = e->stats.queue_ms;
    }
    if (!sum.stats.n_prompt) sum.stats.n_prompt = g->n_prompt;
    return sum;
}

static void record(struct gen_run *x, const struct ask_end *sum, const struct err *e) {
    static const char *const finishes[] = {"stop", "length", "tool_calls", "cancelled", "error"};
    struct gen *g = &x->g;
    record_post(g->r->s->record,
                &(struct store_request){.api = g->r->route->path,
                                        .key_id = g->r->key ? auth_id(g->r->key) : 0,
                                        .model = g->backend->name,
                                        .session = g->ask.session,
                                        .finish = x->cancelled ? "cancelled"
                                                  : e          ? "error"
                                                               : finishes[g->choices[0].end.finish],
                                        .status = e ? http_status_of(e->code) : 200,
                                        .n_prompt = sum->stats.n_prompt,
                                        .n_cached = sum->stats.n_cached,
                                        .n_generated = sum->stats.n_generated,
                                        .n_reasoning = sum->n_reasoning,
                                        .queue_ms = sum->stats.queue_ms,
                                        .prefill_ms = sum->stats.prefill_ms,
                                        .decode_ms = sum->stats.decode_ms});
}

static void count(struct gen_run *x, const struct err *e) {
    struct metrics *m = &x->g.r->s->metrics;
    struct ask_end sum = gen_sum(&x->g);
    m->n_prompt += (uint64_t)sum.stats.n_prompt;
    m->n_cached += (uint64_t)sum.stats.n_cached;
    m->n_generated += (uint64_t)sum.stats.n_generated;
    m->n_reasoning += (uint64_t)sum.n_reasoning;
    m->n_drafted += (uint64_t)sum.stats.n_drafted;
    m->n_accepted += (uint64_t)sum.stats.n_accepted;
    if (x->cancelled) m->n_cancelled++;
    metrics_time(&m->answer, (double)(clock_ns() - x->g.r->begin_ns) * 1e-9);
    metrics_time(&m->queue, sum.stats.queue_ms * 1e-3);
    if (sum.stats.n_generated > 1)
        metrics_time(&m->per_token, sum.stats.decode_ms * 1e-3 / sum.stats.n_generated);
    struct http_request *r = x->g.r;
    if (r->key) auth_spend(r->s->auth, r->key, (int64_t)sum.stats.n_prompt + sum.stats.n_generated);
    if (r->s->record) record(x, &sum, e);
}

/* Why the whole answer failed, if it did: the first choice's error, or that it was cut. */
static const struct err *whole_error(struct gen *g) {
    if (g->cut.code) return &g->cut;
    for (int i = 0; i < g->ask.n; i++)
        if (g->choices[i].end.finish == ASK_FAILED && g->choices[i].ended)
            return &g->choices[i].err;
    return NULL;
}

static void finish(struct gen_run *x) {
    struct gen *g = &x->g;
    pthread_mutex_lock(&x->lock);
    x->state = GEN_OVER;
    bool cancelled = x->cancelled;
    pthread_mutex_unlock(&x->lock);
    const struct err *e = whole_error(g);
    if (!e && cancelled)
        e = &g->cut, err_set(&g->cut, CHIMERE_ECANCELLED, "the answer was cancelled");
    count(x, e);
    if (x->streaming) {
        if (e && !g->cut.code) g->cut = *e;
        g->form->end(g);
        http_stream_end(g->r);
    } else if (e) {
        http_fail(g->r, e);
    } else {
        struct buf body;
        buf_init(&body, (size_t)4 * MAX_TEXT);
        g->form->whole(g, &body);
        http_reply(g->r, 200, NULL, &body);
        buf_fini(&body);
    }
    if (!x->dropped) gate_leave(x->gate, &x->item);
    http_job_done(g->r); /* x may be gone from here on */
}

/* ---- events, on the engine's thread ---- */

static struct gen_call *call_of(struct gen_choice *c, int index) {
    for (int i = c->n_call - 1; i >= 0; i--)
        if (c->calls[i].index == index) return &c->calls[i];
    return NULL;
}

static int collect_call(struct gen_choice *c, const struct chat_event *ev) {
    if (c->n_call == GEN_MAX_CALLS) return 1;
    if ((c->n_call & (c->n_call - 1)) == 0) { /* a power of two: full */
        size_t cap = c->n_call ? 2 * (size_t)c->n_call : 1;
        struct gen_call *calls = mem_realloc(c->calls, cap * sizeof *calls);
        if (!calls) return 1;
        c->calls = calls;
    }
    struct gen_call *call = &c->calls[c->n_call++];
    memset(call, 0, sizeof *call);
    buf_init(&call->args, MAX_TEXT);
    call->index = ev->index;
    snprintf(call->id, sizeof call->id, "%.63s", ev->id ? ev->id : "");
    snprintf(call->name, sizeof call->name, "%.127s", ev->name ? ev->name : "");
    return 0;
}

static int collect(struct gen_choice *c, const struct chat_event *ev) {
    struct gen_call *call = ev->kind == CHAT_CALL ? NULL : call_of(c, ev->index);
    switch (ev->kind) {
    case CHAT_CONTENT: return buf_put(&c->content, ev->text, ev->n);
    case CHAT_REASONING: return buf_put(&c->reasoning, ev->text, ev->n);
    case CHAT_CALL: return collect_call(c, ev);
    case CHAT_ARGS: return call ? buf_put(&call->args, ev->text, ev->n) : 0;
    case CHAT_CALL_END:
        if (call) call->is_done = true;
        return 0;
    case CHAT_MALFORMED:
        if (call) call->is_void = true;
        return 0;
    }
    return 0;
}

static void keep_end(struct gen_choice *c, const struct ask_end *end) {
    c->end = *end;
    c->ended = true;
    if (end->stop) snprintf(c->stop, sizeof c->stop, "%s", end->stop);
    if (end->err) c->err = *end->err;
    if (end->finish == ASK_FAILED && !c->err.code)
        err_set(&c->err, CHIMERE_EINTERNAL, "the answer failed");
    c->end.stop = end->stop ? c->stop : NULL;
    c->end.err = &c->err;
}

static void note_first(struct gen_run *x) {
    if (x->has_first) return;
    x->has_first = true;
    metrics_time(&x->g.r->s->metrics.ttft, (double)(clock_ns() - x->g.r->begin_ns) * 1e-9);
}

static int on_event(void *ud, const struct ask_event *ev) {
    struct gen_run *x = ud;
    struct gen *g = &x->g;
    struct gen_choice *c = &g->choices[ev->choice];
    int rc = 0;
    if (ev->kind == ASK_DONE) {
        finish(x);
        return 0;
    }
    if (ev->kind == ASK_END) keep_end(c, ev->end);
    if (ev->kind == ASK_NOTE && !g->stream) {
        buf_clear(&g->note);
        buf_put(&g->note, ev->text, ev->n);
    }
    if (ev->kind == ASK_CHAT) {
        note_first(x);
        bool keep = !g->stream || g->form->collects || ev->chat->kind == CHAT_CALL;
        if (keep) rc = collect(c, ev->chat);
    }
    if (ev->kind == ASK_TOKEN && g->form->probs) g->form->probs(g, c, ev);
    if (g->stream || g->form->always) g->form->event(g, c, ev);
    return rc || x->cancelled;
}

void gen_put(struct gen *g, struct buf *frame) {
    if (!g->stream) {
        buf_clear(frame);
        return;
    }
    if (frame->failed || !http_put(g->r, frame->p ? frame->p : "", frame->n))
        run_of(g)->cancelled = true; /* the next event's return value tells the backend */
    buf_clear(frame);
}

/* ---- beginning ---- */

static void start(struct gate_item *it) {
    struct gen_run *x = (struct gen_run *)(void *)((char *)it - offsetof(struct gen_run, item));
    struct http_request *r = x->g.r;
    struct err e = {0};
    int rc;
    http_ref(r); /* it may be over before start returns */
    pthread_mutex_lock(&x->lock);
    x->state = GEN_STARTING;
    pthread_mutex_unlock(&x->lock);
    if (x->cancelled) rc = err_set(&e, CHIMERE_ECANCELLED, "the answer was cancelled");
    else rc = x->g.backend->ops->start(x->run, &e);
    pthread_mutex_lock(&x->lock);
    bool keep =
        rc && x->in_go; /* gen_go still has the request: an error with a status of its own */
    if (rc) x->start_err = e;
    if (rc && !keep && !x->g.cut.code) x->g.cut = e;
    if (!rc && x->state == GEN_STARTING) x->state = GEN_RUNNING;
    bool cancel = x->cancelled && x->state == GEN_RUNNING;
    pthread_mutex_unlock(&x->lock);
    if (rc && !keep) finish(x);
    if (cancel) x->g.backend->ops->cancel(x->run);
    http_unref(r);
}

/* The client left, or time is up. */
static void gone(void *ud) {
    struct gen_run *x = ud;
    pthread_mutex_lock(&x->lock);
    x->cancelled = true;
    bool late = x->g.r->deadline_ns && clock_ns() > x->g.r->deadline_ns;
    if (late && x->state != GEN_OVER)
        err_set(&x->g.cut, CHIMERE_ETIMEOUT, "the answer took longer than this server allows");
    else if (x->g.r->s->stopping && x->state != GEN_OVER)
        err_set(&x->g.cut, CHIMERE_ECANCELLED, "the server is stopping");
    bool running = x->state == GEN_RUNNING;
    pthread_mutex_unlock(&x->lock);
    if (running) x->g.backend->ops->cancel(x->run);
    else if (x->gate && gate_drop(x->gate, &x->item)) {
        x->dropped = true;
        finish(x);
    }
}

static void free_choice(struct gen_choice *c) {
    buf_fini(&c->content);
    buf_fini(&c->reasoning);
    buf_fini(&c->blocks);
    for (int i = 0; i < c->n_call; i++) buf_fini(&c->calls[i].args);
    mem_free(c->calls);
    for (int i = 0; i < 4; i++) buf_fini(&c->probs[i]);
}

static void free_gen(void *ud) {
    struct gen_run *x = ud;
    if (x->run) x->g.backend->ops->free(x->run);
    ask_fini(&x->g.ask);
    for (int i = 0; i < ASK_MAX_CHOICES; i++) free_choice(&x->g.choices[i]);
    buf_fini(&x->g.frame);
    buf_fini(&x->g.prefix);
    buf_fini(&x->g.note);
    json_decref(x->g.echo);
    mem_free(x->g.model);
    pthread_mutex_destroy(&x->lock);
    mem_free(x);
}

struct gen *gen_new(struct http_request *r, const struct gen_form *form, const char *id_prefix) {
    struct gen_run *x = mem_zalloc(sizeof *x);
    if (!x) {
        http_fail(r, &(struct err){.code = CHIMERE_ENOMEM});
        return NULL;
    }
    struct gen *g = &x->g;
    pthread_mutex_init(&x->lock, NULL);
    g->r = r;
    g->form = form;
    g->created = (int64_t)time(NULL);
    snprintf(g->id, sizeof g->id, "%s%s", id_prefix, r->id);
    ask_init(&g->ask);
    g->ask.think = r->s->p.think;
    g->ask.owner = r->owner;
    g->ask.sampling.seed = hash_mix((uint64_t)clock_ns()) ^ hash_bytes(r->id, strlen(r->id), 1);
    buf_init(&g->frame, MAX_TEXT);
    buf_init(&g->prefix, 1 << 16);
    buf_init(&g->note, MAX_TEXT);
    for (int i = 0; i < ASK_MAX_CHOICES; i++) {
        buf_init(&g->choices[i].content, MAX_TEXT);
        buf_init(&g->choices[i].reasoning, MAX_TEXT);
        for (int k = 0; k < 4; k++) buf_init(&g->choices[i].probs[k], MAX_TEXT);
        g->choices[i].call = -1;
        buf_init(&g->choices[i].blocks, MAX_TEXT);
    }
    if (r->s->p.timeout_s > 0)
        r->deadline_ns = r->begin_ns + (int64_t)r->s->p.timeout_s * 1000000000;
    http_job_begin(r, &(struct http_job){.gone = gone, .free = free_gen, .ping = form->ping}, x);
    return g;
}

void gen_fail(struct gen *g, const struct err *e) {
    http_fail(g->r, e);
    http_job_done(g->r);
}

int32_t gen_n_seq(const struct ask_backend *b) { return b->model ? b->model->n_seq : 16; }

static struct ask_backend *named(const struct serve_params *p, const char *want) {
    for (size_t i = 0; i < p->n_backend; i++)
        if (strcmp(p->backends[i]->name, want) == 0) return p->backends[i];
    return p->odo ? odo_find(p->odo, want) : NULL;
}

/* The place in the queue: all names of the orchestrator share one. */
static struct gate *gate_of(const struct server *s, const struct ask_backend *b) {
    const struct ask_backend *odo = s->p.odo ? odo_find(s->p.odo, "odo") : NULL;
    struct gate *shared = NULL;
    for (size_t i = 0; i < s->p.n_backend; i++) {
        if (s->p.backends[i] == b) return s->gates[i];
        if (s->p.backends[i] == odo) shared = s->gates[i];
    }
    return shared;
}

struct ask_backend *gen_backend(struct http_request *r, const json_t *name, struct err *e) {
    const struct serve_params *p = &r->s->p;
    struct ask_backend *b;
    const char *want = json_string_value(name);
    if (name && !json_is_null(name) && !want) {
        err_set(e, CHIMERE_EINVAL, "model: expected a string");
        return NULL;
    }
    if (!want) return p->backends[0];
    if ((b = named(p, want))) return b;
    for (size_t i = 0; i < p->n_alias; i++) {
        const char *eq = strchr(p->aliases[i], '=');
        size_t n = eq ? (size_t)(eq - p->aliases[i]) : strlen(p->aliases[i]);
        bool any = n == 1 && p->aliases[i][0] == '*';
        if (!any && (strlen(want) != n || memcmp(want, p->aliases[i], n) != 0)) continue;
        if (!eq) return p->backends[0];
        if ((b = named(p, eq + 1))) return b;
    }
    err_set(e, CHIMERE_ENOENT, "model: there is no '%.80s' here", want);
    err_hint(e, "this server has '%.80s'; /v1/models lists all", p->backends[0]->name);
    return NULL;
}

int gen_model(struct gen *g, const json_t *name) {
    struct err e = {0};
    g->backend = gen_backend(g->r, name, &e);
    if (g->backend) {
        const char *want = json_string_value(name);
        g->model = mem_strdup(want ? want : g->backend->name);
        if (g->model) return 0;
        err_set(&e, CHIMERE_ENOMEM, "out of memory");
    }
    gen_fail(g, &e);
    return e.code;
}

static uint64_t owner_of(const struct gen *g) {
    const char *session = g->ask.session, *owner = g->ask.owner;
    uint64_t h = hash_bytes(owner, strlen(owner), 0);
    return session ? hash_bytes(session, strlen(session), h) : h;
}

void gen_go(struct gen *g) {
    struct gen_run *x = run_of(g);
    struct server *s = g->r->s;
    struct err e = {0};
    struct ask_sink sink = {.event = on_event, .ud = x};
    g->ask.progress = g->stream && g->progress;
    int rc = g->backend->ops->prepare(g->backend, &g->ask, &sink, &x->run, &g->n_prompt, &e);
    if (rc) {
        gen_fail(g, &e);
        return;
    }
    if (g->backend->ops->headers) {
        struct buf lines;
        buf_init(&lines, 4096);
        g->backend->ops->headers(x->run, &lines);
        http_headers(g->r, &lines);
    }
    x->gate = gate_of(s, g->backend);
    x->item = (struct gate_item){.start = start, .owner = owner_of(g), .n_slot = g->ask.n};
    if (g->stream) g->form->begin(g);
    pthread_mutex_lock(&x->lock);
    x->state = GEN_WAITING;
    x->streaming = g->stream;
    x->in_go = true;
    pthread_mutex_unlock(&x->lock);
    rc = gate_enter(x->gate, &x->item, &g->r->retry_s, &e);
    pthread_mutex_lock(&x->lock);
    x->in_go = false;
    bool refused = x->start_err.code;
    pthread_mutex_unlock(&x->lock);
    if (refused) {
        gate_leave(x->gate, &x->item);
        e = x->start_err;
    }
    if (rc || refused) gen_fail(g, &e);
    else if (g->stream) http_stream_begin(g->r);
}

/* gen.c: the life of a generating request. It passes from api_*.c to here, to the queue, and to the backend; events
 * return on the engine's thread. */
#include "serve/api/gen.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "engine/load.h"
#include "serve/harvest.h"
#include "serve/http/http_impl.h"
#include "serve/api/resume.h"
#include "serve/api/json_out.h"
#include "serve/resource/conversations_turn.h"
#include "serve/slots.h"

enum { MAX_TEXT = 64 << 20 };

enum gen_state { GEN_NEW, GEN_WAITING, GEN_STARTING, GEN_RUNNING, GEN_OVER };

struct gen_run;
struct gen_part {           /* one prompt of the request; most requests have one */
    struct gen_run *x;      /* view */
    struct request request; /* a copy of the request with this prompt; the backend borrows it */
    struct queue_item item;
    struct generation *run; /* owned */
    enum gen_state state;
};

struct gen_run { /* private to this file */
    struct gen g;
    struct queue *gate;     /* borrowed */
    struct gen_part *parts; /* owned [n_part] */
    int32_t n_part;
    pthread_mutex_t events; /* events of several parts are handled one at a time */
    pthread_mutex_t lock;   /* guards states, cut, n_open; n_part and kept where gen_go sets them */
    int32_t n_open;         /* parts that have not ended, plus one for gen_go while it runs */
    bool is_over;
    bool streaming;    /* the stream has begun */
    bool is_harvested; /* the answer is kept for nightly training */
    /* borrowed until resume_end; NULL: the generation ends if its client leaves */
    struct resume_answer *kept;
    _Atomic bool cancelled, has_first;
    int64_t shortages; /* of memory, on the worker's thread before the request was read */
};

static struct gen_run *run_of(struct gen *g) { return (struct gen_run *)g; }

/* Ends the answer with an error, unless it has one. */
static void cut(struct gen_run *x, const struct err *e) {
    pthread_mutex_lock(&x->lock);
    x->cancelled = true;
    if (!x->is_over && !x->g.cut.code) x->g.cut = *e;
    pthread_mutex_unlock(&x->lock);
}

/* True if an allocation of this thread has failed since mem_shortages() returned `before`: what was built meanwhile may
 * have gaps, and must not be sent as if it were complete. */
static bool is_short(int64_t before, struct err *e) {
    return mem_shortages() != before && err_set(e, CHIMERE_ENOMEM, "out of memory");
}

/* ---- the end ---- */

static struct generation_end sum_part(const struct gen_choice *c, int32_t n) {
    struct generation_end sum = {.finish = FINISH_STOP};
    for (int32_t i = 0; i < n; i++) {
        const struct generation_end *e = &c[i].end;
        if (e->stats.n_prompt > sum.stats.n_prompt) sum.stats.n_prompt = e->stats.n_prompt;
        if (i == 0 || e->stats.n_cached < sum.stats.n_cached)
            sum.stats.n_cached = e->stats.n_cached;
        sum.stats.n_generated += e->stats.n_generated;
        sum.stats.n_drafted += e->stats.n_drafted;
        sum.stats.n_accepted += e->stats.n_accepted;
        draft_stats_add(&sum.stats.drafts, &e->stats.drafts);
        sum.n_reasoning += e->n_reasoning;
        sum.n_repaired += e->n_repaired;
        if (e->stats.prefill_ms > sum.stats.prefill_ms) sum.stats.prefill_ms = e->stats.prefill_ms;
        if (e->stats.decode_ms > sum.stats.decode_ms) sum.stats.decode_ms = e->stats.decode_ms;
        if (e->stats.queue_ms > sum.stats.queue_ms) sum.stats.queue_ms = e->stats.queue_ms;
    }
    return sum;
}

struct generation_end gen_sum(const struct gen *g) {
    struct generation_end sum = {.finish = FINISH_STOP};
    for (int32_t i = 0; i < g->n_choice; i += g->request.n) {
        struct generation_end e = sum_part(&g->choices[i], g->request.n);
        sum.stats.n_prompt += e.stats.n_prompt;
        sum.stats.n_cached += e.stats.n_cached;
        sum.stats.n_generated += e.stats.n_generated;
        sum.stats.n_drafted += e.stats.n_drafted;
        sum.stats.n_accepted += e.stats.n_accepted;
        draft_stats_add(&sum.stats.drafts, &e.stats.drafts);
        sum.n_reasoning += e.n_reasoning;
        sum.n_repaired += e.n_repaired;
        if (e.stats.prefill_ms > sum.stats.prefill_ms) sum.stats.prefill_ms = e.stats.prefill_ms;
        if (e.stats.decode_ms > sum.stats.decode_ms) sum.stats.decode_ms = e.stats.decode_ms;
        if (e.stats.queue_ms > sum.stats.queue_ms) sum.stats.queue_ms = e.stats.queue_ms;
    }
    if (!sum.stats.n_prompt) sum.stats.n_prompt = g->n_prompt;
    return sum;
}

json_t *gen_prompt(const struct gen *g, int32_t choice) {
    return g->prompts ? json_array_get(g->prompts, (size_t)(choice / g->request.n))
                      : g->request.prompt;
}

/* An error on the way to a remote model is reported as a gateway's error, 502. */
static int status_of(const struct gen *g, const struct err *e) {
    bool remote = !g->backend->model;
    return remote && e->code == CHIMERE_EIO ? 502 : http_status_of(e->code);
}

static void record(struct gen_run *x, const struct generation_end *sum, const struct err *e) {
    static const char *const finishes[] = {
        [FINISH_NONE] = "none",        [FINISH_STOP] = "stop",           [FINISH_LENGTH] = "length",
        [FINISH_CALLS] = "tool_calls", [FINISH_CANCELLED] = "cancelled", [FINISH_ERROR] = "error"};
    struct gen *g = &x->g;
    record_post(g->r->s->record,
                &(struct store_request){.api = g->r->route->path,
                                        .key_id = g->r->key ? auth_id(g->r->key) : 0,
                                        .model = g->backend->name,
                                        .session = g->request.session,
                                        .finish = e && e->code == CHIMERE_ECANCELLED ? "cancelled"
                                                  : e                                ? "error"
                                                      : finishes[g->choices[0].end.finish],
                                        .status = e ? status_of(g, e) : 200,
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
    struct generation_end sum = gen_sum(&x->g);
    m->n_prompt += (uint64_t)sum.stats.n_prompt;
    m->n_cached += (uint64_t)sum.stats.n_cached;
    m->n_generated += (uint64_t)sum.stats.n_generated;
    m->n_reasoning += (uint64_t)sum.n_reasoning;
    m->n_drafted += (uint64_t)sum.stats.n_drafted;
    m->n_accepted += (uint64_t)sum.stats.n_accepted;
    metrics_drafts(m, &sum.stats.drafts);
    m->prefill_us += (uint64_t)(sum.stats.prefill_ms * 1e3);
    m->decode_us += (uint64_t)(sum.stats.decode_ms * 1e3);
    if (e && e->code == CHIMERE_ECANCELLED) m->n_cancelled++;
    metrics_time(&m->answer, (double)(clock_ns() - x->g.r->begin_ns) * 1e-9);
    metrics_time(&m->queue, sum.stats.queue_ms * 1e-3);
    if (sum.stats.n_generated > 1)
        metrics_time(&m->per_token, sum.stats.decode_ms * 1e-3 / sum.stats.n_generated);
    struct http_request *r = x->g.r;
    if (r->key) auth_spend(r->s->auth, r->key, (int64_t)sum.stats.n_prompt + sum.stats.n_generated);
    if (r->s->record) record(x, &sum, e);
}

/* Why the whole answer failed: it was cut, or the first choice has an error. NULL: it did not fail. */
static const struct err *whole_error(struct gen *g) {
    if (g->cut.code) return &g->cut;
    for (int32_t i = 0; i < g->n_choice; i++)
        if (g->choices[i].end.finish == FINISH_ERROR && g->choices[i].ended)
            return &g->choices[i].err;
    return NULL;
}

static void keep_no_longer(struct gen_run *x) {
    pthread_mutex_lock(&x->lock);
    struct resume_answer *kept = x->kept;
    x->kept = NULL;
    pthread_mutex_unlock(&x->lock);
    if (kept) resume_end(x->g.r, kept);
}

static void finish(struct gen_run *x) {
    struct gen *g = &x->g;
    pthread_mutex_lock(&x->lock);
    x->is_over = true;
    bool cancelled = x->cancelled;
    pthread_mutex_unlock(&x->lock);
    const struct err *e = whole_error(g);
    if (!e && cancelled) {
        e = &g->cut;
        err_set(&g->cut, CHIMERE_ECANCELLED, "the answer was cancelled");
    }
    count(x, e);
    if (!e && x->is_harvested) harvest_take(g->r->s->harvest, g);
    if (!e && g->request.slot >= 0 && g->backend->ops->tokens)
        slots_put(g->r->s->slots, g, x->parts[0].run);
    if (x->streaming) {
        if (e && !g->cut.code) g->cut = *e;
        g->form->end(g);
        http_stream_end(g->r);
    } else if (e) {
        reply_error(g->r, status_of(g, e), e);
    } else {
        struct buf body;
        buf_init(&body, (size_t)4 * MAX_TEXT);
        int64_t shortages = mem_shortages();
        g->form->whole(g, &body);
        if (is_short(shortages, &g->cut)) reply_error(g->r, status_of(g, &g->cut), &g->cut);
        else http_reply(g->r, 200, NULL, &body);
        buf_fini(&body);
    }
    keep_no_longer(x);
    http_job_done(g->r); /* x may be freed from here on */
}

/* Releases one reference; the last one sends the response, and x may be freed. */
static void leave(struct gen_run *x) {
    pthread_mutex_lock(&x->lock);
    bool last = --x->n_open == 0;
    pthread_mutex_unlock(&x->lock);
    if (last) finish(x);
}

static void part_over(struct gen_part *p, bool has_slot) {
    struct gen_run *x = p->x;
    pthread_mutex_lock(&x->lock);
    p->state = GEN_OVER;
    pthread_mutex_unlock(&x->lock);
    if (has_slot) queue_leave(x->gate, &p->item);
    leave(x);
}

/* ---- events, on the engine's thread ---- */

struct gen_call *gen_call(struct gen_choice *c, int index) {
    for (int i = c->n_call - 1; i >= 0; i--)
        if (c->calls[i].index == index) return &c->calls[i];
    return NULL;
}

static int collect_call(struct gen_choice *c, const struct chat_event *ev) {
    if (c->n_call == GEN_MAX_CALLS) return 1;
    if ((c->n_call & (c->n_call - 1)) == 0) { /* a power of two: the array is full */
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
    struct gen_call *call = ev->kind == CHAT_CALL ? NULL : gen_call(c, ev->index);
    switch (ev->kind) {
    case CHAT_CONTENT: return buf_put(&c->content, ev->text, ev->n);
    case CHAT_REASONING: return buf_put(&c->reasoning, ev->text, ev->n);
    case CHAT_CALL: return collect_call(c, ev);
    case CHAT_ARGS: return call ? buf_put(&call->args, ev->text, ev->n) : 0;
    case CHAT_CALL_END:
        if (call) call->is_done = true;
        return 0;
    case CHAT_CALL_CUT:
        if (call) call->is_cut = true;
        return 0;
    case CHAT_MALFORMED: return 0;
    }
    return 0;
}

static void keep_end(struct gen_choice *c, const struct generation_end *end) {
    c->end = *end;
    c->ended = true;
    if (end->stop) snprintf(c->stop, sizeof c->stop, "%s", end->stop);
    if (end->err) c->err = *end->err;
    if (end->finish == FINISH_ERROR && !c->err.code)
        err_set(&c->err, CHIMERE_EINTERNAL, "the answer failed");
    c->end.stop = end->stop ? c->stop : NULL;
    c->end.err = &c->err;
}

static void note_first(struct gen_run *x) {
    if (x->has_first) return;
    x->has_first = true;
    metrics_time(&x->g.r->s->metrics.ttft, (double)(clock_ns() - x->g.r->begin_ns) * 1e-9);
}

/* Updates the statistics of a choice while it runs. */
static void keep_stats(struct gen_choice *c, const struct engine_stats *stats) {
    int64_t now = clock_ns();
    if (!c->first_ns) c->first_ns = now;
    if (!stats || c->ended) return;
    c->end.stats = *stats;
    c->end.stats.decode_ms = (double)(now - c->first_ns) * 1e-6;
}

static int take_event(struct gen_run *x, struct gen_choice *c, const struct backend_event *ev) {
    struct gen *g = &x->g;
    int rc = 0;
    if (ev->kind == EVENT_END && ev->end->stop && g->request.keep_stop) {
        struct chat_event stop = {
            .kind = CHAT_CONTENT, .text = ev->end->stop, .n = strlen(ev->end->stop)};
        rc = take_event(x, c, &(struct backend_event){.kind = EVENT_CHAT, .chat = &stop});
    }
    if (ev->kind == EVENT_END) keep_end(c, ev->end);
    if (ev->kind == EVENT_NOTE && !g->stream) {
        buf_clear(&g->note);
        buf_put(&g->note, ev->text, ev->n);
    }
    if (ev->kind == EVENT_CHAT) {
        note_first(x);
        if (g->timings) keep_stats(c, ev->stats);
        bool keep = !g->stream || g->form->collects || x->is_harvested ||
                    ev->chat->kind == CHAT_CALL ||
                    (g->request.tool_forms && ev->chat->kind != CHAT_CONTENT);
        if (keep) rc |= collect(c, ev->chat);
    }
    if ((ev->kind == EVENT_TOKEN || ev->kind == EVENT_PROMPT) && g->form->probs)
        g->form->probs(g, c, ev);
    if (g->stream || g->form->always) g->form->event(g, c, ev);
    return rc;
}

static int on_event(void *ud, const struct backend_event *ev) {
    struct gen_part *p = ud;
    struct gen_run *x = p->x;
    if (ev->kind == EVENT_DONE) {
        part_over(p, true);
        return 0;
    }
    int32_t first = (int32_t)(p - x->parts) * x->g.request.n;
    int64_t shortages = mem_shortages();
    struct err e = {0};
    if (x->n_part > 1) pthread_mutex_lock(&x->events);
    int rc = take_event(x, &x->g.choices[first + ev->choice], ev);
    if (x->n_part > 1) pthread_mutex_unlock(&x->events);
    if (is_short(shortages, &e)) cut(x, &e);
    return rc || x->cancelled;
}

void gen_put(struct gen *g, struct buf *frame) {
    if (!g->stream) {
        buf_clear(frame);
        return;
    }
    struct gen_run *x = run_of(g);
    const char *p = frame->p ? frame->p : "";
    bool read = !frame->failed && http_put(g->r, p, frame->n);
    bool kept = !frame->failed && x->kept && resume_put(g->r, x->kept, p, frame->n);
    /* the backend learns it from the return value of the next event */
    if (!read && !kept) x->cancelled = true;
    buf_clear(frame);
}

/* ---- beginning ---- */

/* Removes waiting parts from the queue and cancels running ones. Call without a lock, also while gen_go makes them. */
static void stop_parts(struct gen_run *x) {
    pthread_mutex_lock(&x->lock);
    int32_t n = x->n_part;
    pthread_mutex_unlock(&x->lock);
    for (int32_t i = 0; i < n; i++) {
        struct gen_part *p = &x->parts[i];
        pthread_mutex_lock(&x->lock);
        enum gen_state state = p->state;
        pthread_mutex_unlock(&x->lock);
        if (state == GEN_RUNNING) x->g.backend->ops->cancel(p->run);
        else if (queue_drop(x->gate, &p->item)) part_over(p, false);
    }
}

static void start(struct queue_item *it) {
    struct gen_part *p = (struct gen_part *)(void *)((char *)it - offsetof(struct gen_part, item));
    struct gen_run *x = p->x;
    struct http_request *r = x->g.r;
    struct err e = {0};
    int rc = 0;
    http_ref(r); /* the request may end before start returns */
    pthread_mutex_lock(&x->lock);
    p->state = GEN_STARTING;
    pthread_mutex_unlock(&x->lock);
    if (x->cancelled) rc = err_set(&e, CHIMERE_ECANCELLED, "the answer was cancelled");
    else rc = x->g.backend->ops->start(p->run, &e);
    if (rc) cut(x, &e);
    pthread_mutex_lock(&x->lock);
    if (!rc && p->state == GEN_STARTING) p->state = GEN_RUNNING;
    bool cancel = x->cancelled && p->state == GEN_RUNNING;
    pthread_mutex_unlock(&x->lock);
    if (rc) {
        stop_parts(x); /* a response with one failed part is not sent */
        part_over(p, true);
    }
    if (cancel) x->g.backend->ops->cancel(p->run);
    http_unref(r);
}

/* Called if the client left, or the deadline has passed. */
static void gone(void *ud) {
    struct gen_run *x = ud;
    struct http_request *r = x->g.r;
    http_ref(r);
    pthread_mutex_lock(&x->lock);
    bool late = r->deadline_ns && clock_ns() > r->deadline_ns;
    if (x->kept && !late && !r->s->stopping && resume_is_kept(r, x->kept)) {
        pthread_mutex_unlock(&x->lock);
        pthread_mutex_lock(&r->lock);
        r->told = false; /* later calls must still report the deadline and the server's stop */
        pthread_mutex_unlock(&r->lock);
        http_unref(r);
        return;
    }
    x->cancelled = true;
    if (late && !x->is_over)
        err_set(&x->g.cut, CHIMERE_ETIMEOUT, "the answer took longer than this server allows");
    else if (r->s->stopping && !x->is_over)
        err_set(&x->g.cut, CHIMERE_ECANCELLED, "the server is stopping");
    pthread_mutex_unlock(&x->lock);
    stop_parts(x);
    http_unref(r);
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
    for (int32_t i = 0; i < x->n_part; i++)
        if (x->parts[i].run) x->g.backend->ops->free(x->parts[i].run);
    mem_free(x->parts);
    request_fini(&x->g.request);
    for (int32_t i = 0; i < x->g.n_choice; i++) free_choice(&x->g.choices[i]);
    mem_free(x->g.choices);
    json_decref(x->g.prompts);
    buf_fini(&x->g.frame);
    buf_fini(&x->g.prefix);
    buf_fini(&x->g.note);
    json_decref(x->g.echo);
    mem_free(x->g.model);
    mem_free(x->g.items);
    conversations_turn_free(x->g.turn);
    pthread_mutex_destroy(&x->lock);
    pthread_mutex_destroy(&x->events);
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
    pthread_mutex_init(&x->events, NULL);
    x->shortages = mem_shortages();
    g->r = r;
    g->form = form;
    g->created = (int64_t)time(NULL);
    snprintf(g->id, sizeof g->id, "%s%s", id_prefix, r->id);
    request_init(&g->request);
    g->request.think = r->s->think;
    g->request.owner = r->owner;
    /* The seed is reported as a JSON number; 53 bits are exact in every client's parser. */
    g->request.sampling.seed =
        (hash_mix((uint64_t)clock_ns()) ^ hash_bytes(r->id, strlen(r->id), 1)) & ((1ull << 53) - 1);
    buf_init(&g->frame, MAX_TEXT);
    buf_init(&g->prefix, 1 << 16);
    buf_init(&g->note, MAX_TEXT);
    int timeout_s = r->s->timeout_s;
    if (timeout_s > 0) r->deadline_ns = r->begin_ns + (int64_t)timeout_s * 1000000000;
    http_job_begin(r, &(struct http_job){.gone = gone, .free = free_gen, .ping = form->ping}, x);
    return g;
}

void gen_fail(struct gen *g, const struct err *e) {
    if (g->backend) reply_error(g->r, status_of(g, e), e);
    else http_fail(g->r, e);
    http_job_done(g->r);
}

int32_t gen_n_seq(const struct backend *b) { return b->model ? b->model->n_seq : 16; }

static struct backend *resolve(const struct http_request *r, const json_t *name, size_t *entry,
                               struct err *e) {
    if (!name || json_is_null(name) || json_is_string(name))
        return catalog_resolve(r->s->p.catalog, json_string_value(name), entry, e);
    err_set(e, CHIMERE_EINVAL, "model: expected a string");
    return NULL;
}

struct backend *gen_backend(struct http_request *r, const json_t *name, struct err *e) {
    return resolve(r, name, NULL, e);
}

int gen_model(struct gen *g, const json_t *name) {
    struct err e = {0};
    g->backend = resolve(g->r, name, &g->entry, &e);
    if (g->backend) {
        const char *want = json_string_value(name);
        g->model = mem_strdup(want ? want : g->backend->name);
        const struct backend_model *m = g->backend->model;
        const struct gguf *file = m ? backend_model_file(m) : NULL;
        if (file) load_sampling(file, &g->request.sampling);
        if (g->model) return 0;
        err_set(&e, CHIMERE_ENOMEM, "out of memory");
    }
    gen_fail(g, &e);
    return e.code;
}

/* Sets the scope within which the prompt may use cached states. Otherwise, cached_tokens would reveal what other users
 * asked. */
void gen_scope(struct gen *g) {
    enum serve_scope scope = g->r->s->p.scope;
    bool by_user = scope == SCOPE_USER && g->r->key;
    g->request.scope =
        scope == SCOPE_ALL ? 0 : request_scope(g->request.owner, by_user ? g->request.user : NULL);
    if (g->request.slot >= 0) g->request.scope = slots_scope(g->r->s->slots, g, g->request.scope);
}

static uint64_t owner_of(const struct gen *g) {
    const char *session = g->request.session, *owner = g->request.owner;
    uint64_t h = hash_bytes(owner, strlen(owner), 0);
    return session ? hash_bytes(session, strlen(session), h) : h;
}

static int new_parts(struct gen_run *x, struct err *e) {
    struct gen *g = &x->g;
    int32_t n = g->prompts ? (int32_t)json_array_size(g->prompts) : 1;
    x->parts = mem_alloc_array((size_t)n, sizeof *x->parts);
    g->choices = mem_alloc_array((size_t)n * (size_t)g->request.n, sizeof *g->choices);
    if (!x->parts || !g->choices) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    g->n_choice = n * g->request.n;
    for (int32_t i = 0; i < g->n_choice; i++) {
        struct gen_choice *c = &g->choices[i];
        c->call = -1;
        c->old_calls = g->old_calls;
        struct buf *bufs[] = {&c->content,  &c->reasoning, &c->blocks,  &c->probs[0],
                              &c->probs[1], &c->probs[2],  &c->probs[3]};
        for (size_t k = 0; k < sizeof bufs / sizeof *bufs; k++) buf_init(bufs[k], MAX_TEXT);
    }
    gen_scope(g);
    for (int32_t i = 0; i < n; i++) {
        struct gen_part *p = &x->parts[i];
        p->x = x;
        p->request = g->request;
        if (g->prompts) p->request.prompt = json_array_get(g->prompts, (size_t)i);
        p->item = (struct queue_item){.start = start, .owner = owner_of(g), .n_slot = g->request.n};
    }
    x->gate = g->r->s->gates[g->entry];
    pthread_mutex_lock(&x->lock);
    x->n_part = n; /* from now on the client's leaving stops them */
    pthread_mutex_unlock(&x->lock);
    return 0;
}

static int prepare(struct gen_run *x, struct err *e) {
    struct gen *g = &x->g;
    int rc = new_parts(x, e);
    for (int32_t i = 0; i < x->n_part && !rc; i++) {
        struct event_sink sink = {.event = on_event, .ud = &x->parts[i]};
        int32_t n_prompt = 0;
        rc = g->backend->ops->prepare(g->backend, &x->parts[i].request, &sink, &x->parts[i].run,
                                      &n_prompt, e);
        g->n_prompt += n_prompt;
    }
    return rc;
}

void gen_go(struct gen *g) {
    struct gen_run *x = run_of(g);
    struct err e = {0};
    g->request.progress = g->stream && g->progress;
    g->request.rules = true;
    x->is_harvested = harvest_wants(g->r->s->harvest, g);
    if (prepare(x, &e) || is_short(x->shortages, &e)) {
        gen_fail(g, &e);
        return;
    }
    if (g->backend->ops->headers) {
        struct buf lines;
        buf_init(&lines, 4096);
        g->backend->ops->headers(x->parts[0].run, &lines);
        http_headers(g->r, &lines);
    }
    if (g->backend->ops->night) g->night = g->backend->ops->night(x->parts[0].run);
    if (g->stream) { /* before the first frame */
        struct resume_answer *kept = resume_begin(g->r);
        pthread_mutex_lock(&x->lock);
        x->kept = kept;
        pthread_mutex_unlock(&x->lock);
        g->form->begin(g);
    }
    if (is_short(x->shortages, &e)) cut(x, &e);
    x->n_open = x->n_part + 1;
    for (int32_t i = 0; i < x->n_part; i++) {
        struct gen_part *p = &x->parts[i];
        pthread_mutex_lock(&x->lock);
        p->state = GEN_WAITING;
        pthread_mutex_unlock(&x->lock);
        bool is_in = !x->cancelled;
        if (is_in && queue_enter(x->gate, &p->item, &g->r->retry_s, &e)) {
            is_in = false;
            cut(x, &e);
            stop_parts(x);
        }
        /* a part that was cancelled meanwhile must not wait in the queue */
        if (!is_in || (x->cancelled && queue_drop(x->gate, &p->item))) part_over(p, false);
    }
    pthread_mutex_lock(&x->lock);
    /* else the response is an error with its own status */
    x->streaming = g->stream && !g->cut.code;
    pthread_mutex_unlock(&x->lock);
    if (x->streaming) http_stream_begin(g->r, g->form->type);
    leave(x);
}

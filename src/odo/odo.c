/* odo.c: the orchestrator as a backend. A request passes serve -> this file -> odo_loop.c -> the backend below. */
#include "odo/odo.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/catalog/catalog.h"
#include "backend/images.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "odo/confirm.h"
#include "engram/examples.h"
#include "engram/table.h"
#include "retrieval/docs.h"
#include "odo/odo_context.h"
#include "odo/odo_enrich_impl.h"
#include "odo/odo_impl.h"
#include "odo/odo_quality.h"
#include "odo/odo_steps.h"
#include "odo/quality.h"
#include "store/decision.h"

enum { ODO_MAX_TOKENS = 4096 /* limit of an answer if the request sets none */ };

static struct odo_run *run_of(struct generation *r) { return (struct odo_run *)r; }

/* Writes one row per started request. Arguments of tools are left out, because they may contain the user's own
 * words. */
static void log_decision(struct odo_run *r) {
    if (!r->started || !r->odo->p.store || !r->request->messages) return;
    json_t *t;
    size_t i;
    json_array_foreach(json_object_get(r->record, "tools"), i, t) json_object_del(t, "arguments");
    char *text = json_dumps(r->record, JSON_COMPACT | JSON_REAL_PRECISION(6));
    struct store_decision d = {.route = r->d.intent.route,
                               .how = intent_how_name(r->d.intent.how),
                               .pipeline = r->d.pipeline->name,
                               .mode = difficulty_mode_name(r->d.mode),
                               .ms = clock_ms_since(r->start_ns),
                               .failed = r->failed,
                               .record = text ? text : "{}"};
    struct err e = {0};
    if (store_decision_add(r->odo->p.store, &d, &e)) log_warn("odo: %s", e.text);
    mem_free(text);
}

/* Sends the spans of a started run. */
static void post_trace(struct odo_run *r) {
    if (!r->started || !r->trace.spans) {
        trace_fini(&r->trace);
        return;
    }
    json_t *about =
        json_pack("{s:s, s:s, s:s, s:s, s:i, s:b, s:s}", "odo.route", r->d.intent.route, "odo.how",
                  intent_how_name(r->d.intent.how), "odo.mode", difficulty_mode_name(r->d.mode),
                  "odo.answer", r->answer_name, "odo.model_tokens", (int)r->stats.n_generated,
                  "odo.direct", r->direct != NULL, "gen_ai.request.model",
                  r->odo->p.backend ? r->odo->p.backend->name : "");
    trace_post(r->odo->traces, &r->trace, "odo", r->start_ns, r->failed, about);
}

static void run_fini(struct odo_run *r) {
    if (!r) return;
    if (r->threaded) pthread_join(r->thread, NULL);
    post_trace(r);
    if (r->reads_facts && r->started && !r->tainted && !r->tainted_local)
        facts_post(r->odo->facts, r->owner, r->question);
    log_decision(r);
    if (r->direct) r->direct->backend->ops->free(r->direct);
    pipeline_release(r->set);
    json_decref(r->skill_tool.spec);
    mem_free(r->owner);
    mem_free(r->documents);
    mem_free(r->fact);
    buf_fini(&r->memory);
    mem_free(r->rules);
    mem_free(r->question);
    json_decref(r->messages);
    json_decref(r->sources);
    json_decref(r->ran);
    json_decref(r->shots);
    engram_table_close(r->table);
    json_decref(r->record);
    buf_fini(&r->source_text);
    buf_fini(&r->answer);
    json_decref(r->candidates);
    mem_free(r->draft);
    if (r->sink_lock) pthread_mutex_destroy(r->sink_lock);
    mem_free(r->sink_lock);
    mem_free(r);
}

/* ---- the messages that the model sees ---- */

/* Appends a message's text: its string content, or the text of its parts. A blank line separates it from earlier
 * text. Returns false and appends nothing if the content has no text, or has parts that are not text. */
static bool put_text(struct buf *out, const json_t *message) {
    const json_t *content = json_object_get(message, "content"), *part;
    size_t i, before = out->n;
    if (json_is_string(content)) {
        buf_printf(out, "%s%s", before ? "\n\n" : "", json_string_value(content));
        return true;
    }
    json_array_foreach((json_t *)content, i, part) {
        const char *text = json_string_value(json_object_get(part, "text"));
        if (!text) {
            buf_cut(out, before);
            return false;
        }
        buf_printf(out, "%s%s", i ? "\n" : before ? "\n\n" : "", text);
    }
    return i > 0;
}

/* Puts the pipeline's prompt before the caller's system text. Several system messages become one at the start,
 * because many templates require that. */
static int build_messages(struct odo_run *r, struct err *e) {
    const char *prompt = odo_may(r, ODO_PROMPTS) ? r->d.pipeline->prompt : NULL;
    struct buf system;
    buf_init(&system, (size_t)16 << 20);
    const char *persona = r->persona;
    if (persona) buf_puts(&system, persona);
    if (prompt) buf_printf(&system, "%s%s", persona ? "\n\n" : "", prompt);
    while (system.n && system.p[system.n - 1] == '\n') buf_cut(&system, system.n - 1);
    json_t *all = json_array(), *m;
    size_t i;
    bool plain = true;
    json_array_foreach(r->request->messages, i, m) {
        const char *role = json_string_value(json_object_get(m, "role"));
        if (role && !strcmp(role, "system") && put_text(&system, m)) {
            if (i) plain = false;
        } else {
            json_array_append(all, m);
        }
    }
    odo_put_context(r, &system);
    if (!prompt && !persona && plain &&
        !odo_has_context(r)) { /* nothing to merge: send exactly the caller's messages */
        json_decref(all);
        all = json_copy(r->request->messages);
    } else if (system.n) {
        json_array_insert_new(
            all, 0, json_pack("{s:s, s:s#}", "role", "system", "content", system.p, (int)system.n));
    }
    bool failed = system.failed;
    buf_fini(&system);
    r->messages = all;
    return all && !failed ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
}

/* Asks the model for a short plan and adds it to the prompt of the answer. If this fails, only the plan is
 * missing. */
static void plan(struct odo_run *r) {
    const struct pipeline *p = r->d.pipeline;
    if (!p->plan || r->d.mode == DIFFICULTY_FAST || odo_is_spent(r)) return;
    int64_t start = clock_ns(), deadline = start + (int64_t)p->plan_ms * 1000000;
    if (r->request->deadline_ns && r->request->deadline_ns < deadline)
        deadline = r->request->deadline_ns;
    /* the answer needs at least half of the tokens that the request allows */
    int32_t most = r->n_left / 2 < p->plan_tokens ? r->n_left / 2 : p->plan_tokens;
    if (most <= 0) return;
    struct call_result out;
    ++r->odo->n_model_call;
    int rc = call_text(
        r->odo->p.backend, r->request->scope,
        "Write a plan of three to five short numbered steps for answering. Do not answer.",
        r->question, NULL, most, r->cancelled, deadline, &out, NULL);
    json_t *first = json_array_get(r->messages, 0);
    const char *role = json_string_value(json_object_get(first, "role"));
    if (!rc && out.content.n) {
        struct buf b;
        buf_init(&b, (size_t)1 << 20);
        bool has = role && !strcmp(role, "system") && put_text(&b, first);
        buf_printf(&b, "%sFollow these steps:\n%s", b.n ? "\n\n" : "", out.content.p);
        json_t *m = json_pack("{s:s, s:s}", "role", "system", "content", b.n ? b.p : "");
        if (has) json_array_set_new(r->messages, 0, m);
        else json_array_insert_new(r->messages, 0, m);
        buf_fini(&b);
    }
    odo_spend(r, &out.stats, out.stats.n_generated);
    call_fini(&out);
    odo_count(r->odo, ODO_PLAN, clock_ms_since(start), rc != 0);
    trace_span(&r->trace, "plan", start, rc != 0, NULL);
    json_object_set_new(r->record, "plan", json_boolean(!rc));
}

/* ---- a run ---- */

static int answer(struct odo_run *r, enum finish *finish, struct err *e) {
    json_decref(r->messages);
    r->messages = NULL;
    int rc = build_messages(r, e);
    if (rc) return rc;
    r->tainted |= r->recalled_tainted;
    if (r->choice == 0) odo_enrich(r);
    r->cite.n_source = (int32_t)json_array_size(r->sources);
    rc = odo_place_sources(r);
    if (!rc) rc = odo_place_shots(r);
    if (rc) return err_set(e, rc, "out of memory");
    plan(r);
    if (r->d.has_strategy) return odo_strategy_answer(r, finish, e);
    if (r->d.steps) return odo_steps(r, finish, e);
    struct odo_round round = {
        .tools = r->d.pipeline->tools, .final = true, .messages = r->messages};
    if (odo_wants_reflection(r)) return odo_reflect(r, &round, finish, e);
    return odo_loop(r, &round, NULL, finish, e);
}

static void finish_run(struct odo_run *r, int64_t start_ns) {
    json_object_set_new(r->record, "total_ms", json_real(clock_ms_since(start_ns)));
    json_object_set_new(r->record, "model_tokens", json_integer(r->stats.n_generated));
    if (r->sources) json_object_set(r->record, "sources", r->sources);
    odo_note(r, "done", json_incref(r->record));
}

/* Returns true if the answer was cached; it has then been sent. */
static bool from_cache(struct odo_run *r, const struct cache_place *place, enum finish *finish) {
    double cosine;
    char *text = cache_find(r->odo->cache, place, &cosine);
    ++r->odo->n_cache[!text ? 0 : cosine < 1 ? 2 : 1];
    if (!text) return false;
    json_object_set_new(r->record, "cached", json_true());
    if (cosine < 1) json_object_set_new(r->record, "cached_cosine", json_real(cosine));
    odo_say(r, false, text, strlen(text));
    mem_free(text);
    *finish = FINISH_STOP;
    return true;
}

/* An answer is not cached if a tool or a source took part, because their results may differ next time. */
static bool may_keep(const struct odo_run *r) {
    return !r->n_client_call && !json_array_size(r->sources) && !r->tainted && !r->tainted_local &&
           !json_array_size(json_object_get(r->record, "tools")) &&
           !json_object_get(r->record, "partial");
}

static int answer_or_cache(struct odo_run *r, enum finish *finish, struct err *e) {
    struct cache_place place = {0};
    struct buf context; /* what the prompt contains besides the request */
    buf_init(&context, (size_t)1 << 20);
    odo_put_context(r, &context);
    if (r->wish.cache && !context.failed)
        cache_place(r->odo->cache, r->request, r->d.intent.route, difficulty_mode_name(r->d.mode),
                    context.n ? context.p : "", r->question, r->wish.cache == ODO_CACHE_SEMANTIC,
                    &place);
    buf_fini(&context);
    int rc = 0;
    if (!place.key || !from_cache(r, &place, finish)) {
        rc = answer(r, finish, e);
        bool whole = !rc && *finish == FINISH_STOP && !*r->cancelled;
        if (place.key && whole && may_keep(r) && r->answer.n && !r->answer.failed)
            cache_put(r->odo->cache, &place, r->answer.p, r->answer.n);
        if (whole && r->choice == 0) odo_remember(r);
        if (whole && !r->n_client_call && r->choice == 0) odo_quality_post(r, *finish);
    }
    cache_place_fini(&place);
    return rc;
}

/* Removes citations of sources that do not exist from the stored copy of the answer too, and records their
 * numbers. */
static void tell_citations(struct odo_run *r) {
    struct cite own = {.n_source = r->cite.n_source};
    struct buf clean;
    buf_init(&clean, CACHE_MAX_BYTES);
    cite_feed(&own, r->answer.n ? r->answer.p : "", r->answer.n, &clean);
    cite_flush(&own, &clean);
    if (!clean.failed && clean.n < r->answer.n) {
        buf_clear(&r->answer);
        buf_put(&r->answer, clean.p, clean.n);
    }
    buf_fini(&clean);
    if (!r->cite.n_removed) return;
    json_t *list = json_array();
    for (int32_t i = 0; i < r->cite.n_removed; ++i)
        json_array_append_new(list, json_integer(r->cite.removed[i]));
    json_object_set_new(r->record, "citations_removed", list);
}

static void *work(void *ud) {
    struct odo_run *r = ud;
    int64_t start = clock_ns(), shortages = mem_shortages();
    odo_note(r, "decision", odo_decision_json(r));
    for (r->choice = 0; r->choice < r->request->n; ++r->choice) {
        struct err err = {0};
        enum finish finish = FINISH_ERROR;
        r->stats = (struct engine_stats){0};
        r->n_reasoning = 0;
        r->n_client_call = 0;
        r->cite = (struct cite){0};
        taint_begin(r->odo->taint, &r->said, r->owner ? r->owner : "",
                    r->question ? r->question : "");
        r->n_left = r->request->max_tokens > 0 ? r->request->max_tokens : INT32_MAX;
        int rc = *r->cancelled ? 0 : answer_or_cache(r, &finish, &err);
        taint_mark(r->odo->taint, &r->said,
                   r->tainted         ? TAINT_STRANGERS
                   : r->tainted_local ? TAINT_LOCAL
                                      : TAINT_NONE);
        tell_citations(r);
        if (r->choice == r->request->n - 1) finish_run(r, start);
        if (*r->starved || mem_shortages() != shortages)
            rc = err_set(&err, CHIMERE_ENOMEM, "out of memory");
        if (*r->cancelled && rc != CHIMERE_ENOMEM) finish = FINISH_CANCELLED;
        else if (rc) finish = FINISH_ERROR;
        struct generation_end end = {.finish = finish,
                                     .stats = r->stats,
                                     .n_reasoning = r->n_reasoning,
                                     .err = finish == FINISH_ERROR ? &err : NULL};
        r->failed |= finish == FINISH_ERROR;
        odo_send(r, &(struct backend_event){.kind = EVENT_END, .choice = r->choice, .end = &end});
    }
    --r->odo->n_run;
    struct event_sink sink = r->sink;
    sink.event(sink.ud, &(struct backend_event){.kind = EVENT_DONE});
    return NULL;
}

/* Returns true if the backend can answer the request unchanged: no thread and no second call are needed. */
static bool is_direct(const struct odo_run *r) {
    const struct odo_decision *d = &r->d;
    const struct pipeline *p = d->pipeline;
    if (!r->request->messages || r->request->continue_last) return true;
    if (r->request->search) return false;
    /* the indirect path marks the answer as tainted */
    if (r->tainted || r->tainted_local) return false;
    bool anywhere = false;
    const struct tool *t;
    for (size_t i = 0; (t = tool_at(r->odo->p.tools, i)); ++i) anywhere |= t->flags & TOOL_ANYWHERE;
    bool tools =
        ((p->tools.n && odo_may(r, ODO_TOOLS)) || anywhere || r->skill_tool.spec || d->sum[0]) &&
        r->request->tool_choice == REQUEST_TOOLS_AUTO && r->request->format == REQUEST_TEXT &&
        r->wish.tools != 0 && d->intent.how != INTENT_GREETING;
    if (tools && !anywhere && !r->skill_tool.spec && p->tools.n == 1 &&
        !strcmp(p->tools.v[0], "calculator"))
        tools = d->sum[0] || (d->bare && odo_may(r, ODO_TOOLS));
    bool has_mode = r->wish.mode >= 0 || r->wish.auto_mode;
    return !r->wish.cache && !r->fact && !r->keep_talk && !odo_has_context(r) && !has_mode &&
           !tools && !d->steps && !d->documents && !d->few_shot && !d->has_strategy &&
           !odo_wants_quality(r) && !p->quality_reflect && d->web == PIPELINE_WEB_NEVER &&
           !p->prompt && !r->persona && !p->plan && p->think < 0;
}

/* Forwards events of a direct answer from the backend to the client. Ends an answer that repeats itself. */
static int guard_event(void *ud, const struct backend_event *ev) {
    struct odo_run *r = ud;
    bool text = ev->kind == EVENT_CHAT &&
                (ev->chat->kind == CHAT_CONTENT || ev->chat->kind == CHAT_REASONING);
    if (text && r->request->n == 1)
        r->looped |= repeat_feed(&r->repeat, ev->chat->text, ev->chat->n);
    if (ev->kind == EVENT_END && r->looped) {
        struct generation_end end = *ev->end;
        struct backend_event copy = *ev;
        if (end.finish == FINISH_CANCELLED && !*r->cancelled) end.finish = FINISH_LENGTH;
        copy.end = &end;
        return r->sink.event(r->sink.ud, &copy);
    }
    int rc = r->sink.event(r->sink.ud, ev);
    return rc || (r->looped && text);
}

static int prepare(struct backend *b, const struct request *a, const struct event_sink *sink,
                   struct generation **out, int32_t *n_prompt, struct err *e) {
    const struct odo_front *front = (const struct odo_front *)b;
    struct odo *o = front->odo;
    *out = NULL;
    int rc = o->p.can_see ? 0 : images_refuse(a->messages, e);
    if (rc) return rc;
    struct odo_run *r = mem_zalloc(sizeof *r);
    if (!r) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    r->base.backend = b;
    r->odo = o;
    r->bounded = *a;
    if (a->max_tokens <= 0) r->bounded.max_tokens = ODO_MAX_TOKENS;
    r->request = a = &r->bounded;
    r->sink = *sink;
    r->cancelled = &r->is_cancelled;
    r->starved = &r->is_starved;
    r->all_said = &r->said;
    r->all_cite = &r->cite;
    buf_init(&r->source_text, (size_t)4 << 20);
    buf_init(&r->answer, CACHE_MAX_BYTES);
    buf_init(&r->memory, (size_t)1 << 20);
    r->set = pipeline_hold(o->dir);
    r->record = json_pack("{s:[], s:[]}", "tools", "steps");
    r->sink_lock = mem_zalloc(sizeof *r->sink_lock);
    if (r->sink_lock) pthread_mutex_init(r->sink_lock, NULL);
    rc = r->record && r->sink_lock ? odo_wish_read(&r->wish, a->extra, e)
                                   : err_set(e, CHIMERE_ENOMEM, "out of memory");
    trace_begin(&r->trace, o->traces != NULL);
    int64_t decide_ns = clock_ns();
    if (!rc && a->messages) rc = odo_decide(o, r, front->route, e);
    if (r->trace.spans && r->d.pipeline)
        trace_span(&r->trace, "decide", decide_ns, rc != 0,
                   json_pack("{s:s, s:f, s:s}", "odo.route", r->d.intent.route, "odo.confidence",
                             r->d.intent.confidence, "odo.pipeline", r->d.pipeline->name));
    if (!rc && a->messages) rc = odo_context(r, e);
    if (!rc && a->messages) {
        enum taint_level level = taint_of(o->taint, r->owner, a->messages);
        r->tainted = level == TAINT_STRANGERS;
        r->tainted_local = level == TAINT_LOCAL;
    }
    r->keeps_answer = r->wish.cache || r->keep_talk || odo_wants_quality(r);
    r->score = r->draft_score = NAN;
    snprintf(r->answer_name, sizeof r->answer_name, "odo-%016llx",
             (unsigned long long)rng_entropy());
    json_object_set_new(r->record, "answer", json_string(r->answer_name));
    if (!rc)
        json_object_set_new(r->record, "decision",
                            a->messages ? odo_decision_json(r) : json_null());
    /* The backend reads the prompt here even if the prompt will grow later, so that errors in it are reported now. */
    if (!rc && o->p.backend)
        rc = o->p.backend->ops->prepare(o->p.backend, a, &(struct event_sink){guard_event, r},
                                        &r->direct, n_prompt, e);
    if (!rc && r->direct && !is_direct(r)) {
        o->p.backend->ops->free(r->direct);
        r->direct = NULL;
    }
    ++o->n_request;
    if (rc) run_fini(r);
    else *out = &r->base;
    return rc;
}

static int start(struct generation *base, struct err *e) {
    struct odo_run *r = run_of(base);
    if (!r->odo->p.backend)
        return err_set(e, CHIMERE_EUNSUPPORTED, "odo: there is no model to ask");
    r->start_ns = clock_ns();
    r->started = true;
    if (r->direct) return r->direct->backend->ops->start(r->direct, e);
    if (++r->odo->n_run > ODO_MAX_RUNS) {
        --r->odo->n_run;
        return err_set(e, CHIMERE_EBUSY, "odo: %d requests are under way", ODO_MAX_RUNS);
    }
    if (pthread_create(&r->thread, NULL, work, r)) {
        --r->odo->n_run;
        return err_set(e, CHIMERE_EBUSY, "odo: no thread for the request");
    }
    r->threaded = true;
    return 0;
}

static void cancel(struct generation *base) {
    struct odo_run *r = run_of(base);
    *r->cancelled = true;
    if (r->direct) r->direct->backend->ops->cancel(r->direct);
}

static void free_run(struct generation *base) { run_fini(base ? run_of(base) : NULL); }

static int render(struct backend *b, const struct request *a, char **text, int32_t **ids, size_t *n,
                  struct err *e) {
    struct backend *below = ((struct odo_front *)b)->odo->p.backend;
    return below->ops->render(below, a, text, ids, n, e);
}

static void close_front(struct backend *b) { (void)b; } /* odo_close frees it */

static void headers(struct generation *base, struct buf *out) {
    const struct odo_run *r = run_of(base);
    if (!r->d.pipeline) return;
    buf_printf(out,
               "X-Odo-Route: %s\nX-Odo-How: %s\nX-Odo-Mode: %s\nX-Odo-Pipeline: %s\n"
               "X-Odo-Strategy: %s\nX-Odo-Answer: %s\n",
               r->d.intent.route, intent_how_name(r->d.intent.how), difficulty_mode_name(r->d.mode),
               r->d.pipeline->name, r->d.has_strategy ? strategy_name(&r->d.strategy) : "none",
               r->answer_name);
}

static const struct backend_ops ops = {.prepare = prepare,
                                       .start = start,
                                       .cancel = cancel,
                                       .free = free_run,
                                       .render = render,
                                       .close = close_front,
                                       .headers = headers};

/* ---- opening ---- */

static struct odo_front *front_of(struct odo *o, const char *route) {
    for (int i = 0; i < o->n_front; ++i)
        if (!strcmp(o->fronts[i]->route, route)) return o->fronts[i];
    struct odo_front *f = o->n_front < ODO_MAX_NAMES ? mem_zalloc(sizeof *f) : NULL;
    if (!f) return NULL;
    f->base = (struct backend){.ops = &ops, .model = o->p.backend ? o->p.backend->model : NULL};
    f->odo = o;
    snprintf(f->route, sizeof f->route, "%s", route);
    snprintf(f->base.name, sizeof f->base.name, "odo%s%s", *route ? ":" : "", route);
    return o->fronts[o->n_front++] = f;
}

static int vector_of(void *ud, const char *text, float *out, struct err *e) {
    const struct odo *o = ud;
    return docs_embed(o->p.docs, text, out, e);
}

static bool has_tool(void *odo, const char *name) {
    return tool_find(((const struct odo *)odo)->p.tools, name) != NULL;
}

int odo_open(struct odo **out, const struct odo_params *p, struct err *e) {
    *out = NULL;
    struct odo *o = mem_zalloc(sizeof *o);
    if (!o) {
        tool_set_free(p->tools);
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    }
    o->p = *p;
    pthread_mutex_init(&o->front_lock, NULL);
    char beside[4096];
    const char *path = p->pipelines;
    int rc = 0;
    if (!path) {
        if (file_find_data("pipelines", beside, sizeof beside)) {
            rc = err_set(e, CHIMERE_ENOENT,
                         "pipelines: the folder is not installed with the program");
            err_hint(e, "give it with --pipelines");
        }
        path = beside;
    }
    if (!rc && !o->p.tools) rc = tool_set_new(&o->p.tools, e);
    if (!rc)
        rc = pipeline_dir_open(&o->dir, path, p->watch, &(struct pipeline_names){has_tool, o}, e);
    if (!rc && !p->vectors && p->docs && docs_has_vectors(p->docs)) {
        o->vectors = (struct cache_vectors){docs_n_vec(p->docs), vector_of, o};
        o->p.vectors = &o->vectors;
    }
    if (!rc) rc = cache_new(&o->cache, (int64_t)CACHE_KEEP_S * 1000, o->p.vectors, e);
    if (!rc && (!(o->taint = taint_new()) || !(o->confirms = confirm_new())))
        rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = history_new(&o->history, p->store, e);
    if (!rc && p->store && p->docs && docs_has_vectors(p->docs))
        rc = examples_open(&o->examples, p->store, (uint64_t)docs_embedder(p->docs),
                           docs_n_vec(p->docs), e);
    if (!rc && p->store && p->backend) rc = quality_open(&o->quality, p->backend, p->store, e);
    if (!rc && p->otlp) rc = trace_open(&o->traces, p->otlp, e);
    if (!rc && p->store && p->backend) rc = facts_open(&o->facts, p->backend, p->store, e);
    o->plain = (struct odo_front){.odo = o, .plain = true};
    o->plain.base = (struct backend){.ops = &ops, .model = p->backend ? p->backend->model : NULL};
    if (p->backend) snprintf(o->plain.base.name, sizeof o->plain.base.name, "%s", p->backend->name);
    if (!rc && !front_of(o, "")) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (rc) odo_close(o);
    else *out = o;
    return rc;
}

void odo_close(struct odo *o) {
    if (!o) return;
    odo_judge_wait(o);
    facts_close(o->facts);
    trace_close(o->traces);
    pipeline_dir_close(o->dir);
    tool_set_free(o->p.tools);
    quality_close(o->quality);
    cache_free(o->cache);
    history_free(o->history);
    taint_free(o->taint);
    confirm_free(o->confirms);
    examples_close(o->examples);
    for (int i = 0; i < o->n_front; ++i) mem_free(o->fronts[i]);
    pthread_mutex_destroy(&o->front_lock);
    mem_free(o);
}

struct backend *odo_find(struct odo *o, const char *name) {
    if (!strcmp(name, "odo")) return &o->fronts[0]->base;
    if (strncmp(name, "odo:", 4)) return NULL;
    struct pipeline_set *s = pipeline_hold(o->dir);
    const struct pipeline *p = pipeline_find(s, name + 4);
    pthread_mutex_lock(&o->front_lock);
    struct odo_front *f = p ? front_of(o, p->name) : NULL;
    pthread_mutex_unlock(&o->front_lock);
    pipeline_release(s);
    return f ? &f->base : NULL;
}

struct backend *odo_searching(struct odo *o, struct backend *b) {
    if (!o->p.web || !tool_find(o->p.tools, "web_search")) return NULL;
    if (b->ops == &ops) return b;
    return b == o->p.backend ? &o->plain.base : NULL;
}

static int list_names(void *odo, int (*each)(void *ud, const char *name), void *ud) {
    struct odo *o = odo;
    struct pipeline_set *s = pipeline_hold(o->dir);
    int rc = each(ud, "odo");
    for (int i = 0; !rc && pipeline_at(s, i); ++i) {
        char name[INTENT_MAX_NAME + 8];
        snprintf(name, sizeof name, "odo:%s", pipeline_at(s, i)->name);
        rc = each(ud, name);
    }
    pipeline_release(s);
    return rc;
}

static struct backend *find_name(void *odo, const char *name) { return odo_find(odo, name); }

int odo_register(struct odo *o, struct catalog *c, struct err *e) {
    const struct catalog_names names = {.ud = o, .find = find_name, .list = list_names};
    return catalog_add(c, &o->fronts[0]->base, &names, e);
}

const struct odo_card *odo_card_of(const struct odo *o) { return &o->p.card; }
void odo_set_card(struct odo *o, const struct odo_card *card) { o->p.card = *card; }

struct facts *odo_facts(const struct odo *o) {
    return o->facts;
}

struct tool_set *odo_tools(const struct odo *o) {
    return o->p.tools;
}
struct store *odo_store(const struct odo *o) {
    return o->p.store;
}
struct pipeline_dir *odo_pipelines(const struct odo *o) {
    return o->dir;
}
struct confirms *odo_confirms(const struct odo *o) {
    return o->confirms;
}
struct docs *odo_docs(const struct odo *o) {
    return o->p.docs;
}

json_t *odo_skills(const struct odo *o) {
    struct pipeline_set *s = pipeline_hold(o->dir);
    json_t *all = json_array();
    int n;
    const struct skill *const *v = pipeline_skills(s, &n);
    for (int i = 0; i < n; ++i)
        json_array_append_new(all, json_pack("{s:s, s:s, s:b}", "name", v[i]->name, "about",
                                             v[i]->about, "command", v[i]->command.n > 0));
    pipeline_release(s);
    return all;
}

static int ignore(void *ud, const struct backend_event *ev) {
    (void)ud, (void)ev;
    return 0;
}

int odo_explain(struct odo *o, const struct request *a, const char *route, json_t **out,
                struct err *e) {
    *out = NULL;
    struct odo_front front = {.base = {.ops = &ops}, .odo = o};
    snprintf(front.route, sizeof front.route, "%s", route ? route : "");
    struct event_sink sink = {ignore, NULL};
    struct generation *run;
    int32_t n_prompt = 0;
    int rc = prepare(&front.base, a, &sink, &run, &n_prompt, e);
    if (rc) return rc;
    struct odo_run *r = run_of(run);
    json_t *d = r->request->messages ? odo_decision_json(r) : json_object(), *tools = json_array();
    for (size_t i = 0; r->d.pipeline && i < r->d.pipeline->tools.n; ++i)
        if (tool_find(o->p.tools, r->d.pipeline->tools.v[i]))
            json_array_append_new(tools, json_string(r->d.pipeline->tools.v[i]));
    if (r->skill_tool.spec) json_array_append_new(tools, json_string(r->skill_tool.name));
    json_object_set_new(d, "tools", tools);
    if (json_object_get(r->record, "memory"))
        json_object_set(d, "memory", json_object_get(r->record, "memory"));
    json_object_set_new(d, "direct", json_boolean(r->request->messages && is_direct(r)));
    if (n_prompt) json_object_set_new(d, "prompt_tokens", json_integer(n_prompt));
    if (*pipeline_problem(r->set))
        json_object_set_new(d, "problem", json_string(pipeline_problem(r->set)));
    run_fini(r);
    *out = d;
    return 0;
}

void odo_metrics(void *ud, struct buf *out) {
    struct odo *o = ud;
    static const char *const names[ODO_N_STAGE] = {"decide", "enrich", "plan",
                                                   "model",  "tool",   "memory"};
    buf_printf(out, "# TYPE chimere_odo_requests_total counter\nchimere_odo_requests_total %llu\n",
               (unsigned long long)o->n_request);
    buf_printf(out,
               "# TYPE chimere_odo_model_calls_total counter\nchimere_odo_model_calls_total %llu\n",
               (unsigned long long)o->n_model_call);
    buf_printf(out,
               "# TYPE chimere_odo_tools_refused_total counter\n"
               "chimere_odo_tools_refused_total %llu\n",
               (unsigned long long)o->n_tool_refused);
    buf_printf(
        out,
        "# TYPE chimere_odo_cache_total counter\nchimere_odo_cache_total{found=\"no\"} %llu\n"
        "chimere_odo_cache_total{found=\"same\"} %llu\n"
        "chimere_odo_cache_total{found=\"near\"} %llu\n",
        (unsigned long long)o->n_cache[0], (unsigned long long)o->n_cache[1],
        (unsigned long long)o->n_cache[2]);
    buf_puts(out, "# TYPE chimere_odo_stage_seconds summary\n");
    for (int i = 0; i < ODO_N_STAGE; ++i) {
        const struct odo_counter *c = &o->stage[i];
        buf_printf(out,
                   "chimere_odo_stage_seconds_count{stage=\"%s\"} %llu\n"
                   "chimere_odo_stage_seconds_sum{stage=\"%s\"} %.6f\n"
                   "chimere_odo_stage_failed_total{stage=\"%s\"} %llu\n",
                   names[i], (unsigned long long)c->n, names[i], (double)c->sum_us * 1e-6, names[i],
                   (unsigned long long)c->n_failed);
    }
    if (o->quality) quality_metrics(o->quality, out);
    if (o->traces) trace_metrics(o->traces, out);
}

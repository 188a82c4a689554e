/* odo_loop.c: the model answers, calls tools, reads their results and answers again. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "odo/mode.h"
#include "odo/odo_context.h"
#include "odo/odo_impl.h"
#include "odo/odo_tools.h"

void odo_count(struct odo *o, enum odo_stage s, double ms, bool failed) {
    struct odo_counter *c = &o->stage[s];
    ++c->n;
    c->n_failed += failed;
    c->sum_us += (uint64_t)(ms * 1000);
}

void odo_spend(struct odo_run *r, const struct engine_stats *s, int32_t n_reasoning) {
    r->stats.n_prompt += s->n_prompt;
    r->stats.n_cached += s->n_cached;
    r->stats.n_generated += s->n_generated;
    r->stats.n_drafted += s->n_drafted;
    r->stats.n_accepted += s->n_accepted;
    draft_stats_add(&r->stats.drafts, &s->drafts);
    r->stats.queue_ms += s->queue_ms;
    r->stats.prefill_ms += s->prefill_ms;
    r->stats.decode_ms += s->decode_ms;
    r->n_reasoning += n_reasoning;
    if (r->n_left != INT32_MAX) r->n_left -= s->n_generated;
}

/* Sends a piece of the answer without citations of sources that do not exist. For any other event, text that was
 * held back is sent first. */
static int send_content(struct odo_run *r, const struct backend_event *ev, bool content) {
    struct buf text;
    int rc = 0;
    buf_init(&text, (size_t)64 << 20);
    if (content) cite_feed(r->all_cite, ev->chat->text, ev->chat->n, &text);
    else cite_flush(r->all_cite, &text);
    struct chat_event chat = {.kind = CHAT_CONTENT, .index = -1};
    if (content) chat = *ev->chat;
    chat.text = text.p, chat.n = text.n;
    struct backend_event copy = {.kind = EVENT_CHAT, .choice = ev->choice, .chat = &chat};
    if (text.failed) rc = CHIMERE_ENOMEM;
    else if (text.n) rc = r->sink.event(r->sink.ud, &copy);
    if (!rc) taint_feed(r->all_said, text.n ? text.p : "", text.n);
    buf_fini(&text);
    return rc;
}

int odo_send(struct odo_run *r, const struct backend_event *ev) {
    pthread_mutex_lock(r->sink_lock);
    bool content = ev->kind == EVENT_CHAT && ev->chat->kind == CHAT_CONTENT;
    int rc = content || r->all_cite->n_held ? send_content(r, ev, content) : 0;
    if (!rc && !content) rc = r->sink.event(r->sink.ud, ev);
    pthread_mutex_unlock(r->sink_lock);
    if (rc) *r->cancelled = true;
    return rc;
}

int odo_say(struct odo_run *r, bool thought, const char *text, size_t n) {
    struct chat_event chat = {
        .kind = thought ? CHAT_REASONING : CHAT_CONTENT, .text = text, .n = n, .index = -1};
    return n ? odo_send(
                   r,
                   &(struct backend_event){.kind = EVENT_CHAT, .choice = r->choice, .chat = &chat})
             : 0;
}

int odo_answer(struct odo_run *r, const char *text, size_t n) {
    if (r->keeps_answer) buf_put(&r->answer, text, n);
    return odo_say(r, false, text, n);
}

int odo_note(struct odo_run *r, const char *name, json_t *o) {
    char *text = o ? json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(6)) : NULL;
    json_decref(o);
    if (!text) return 0;
    struct backend_event ev = {
        .kind = EVENT_NOTE, .choice = r->choice, .name = name, .text = text, .n = strlen(text)};
    int rc = odo_send(r, &ev);
    mem_free(text);
    return rc;
}

/* ---- one turn ---- */

struct turn {
    struct odo_run *run;
    bool final;
    bool ours; /* the current call is for an orchestrator tool; the client does not see it */
    int n_client;
    /* a tool call began that cannot be parsed: its raw text is not part of the answer */
    bool malformed;
    bool looped;
    struct repeat repeat;
};

static int forward(struct turn *t, struct chat_event *chat) {
    struct odo_run *r = t->run;
    struct backend_event ev = {.kind = EVENT_CHAT, .choice = r->choice, .chat = chat};
    return odo_send(r, &ev);
}

static int on_event(void *ud, const struct backend_event *ev) {
    struct turn *t = ud;
    struct odo_run *r = t->run;
    if (ev->kind != EVENT_CHAT) {
        if (!t->final || ev->kind == EVENT_NOTE) return 0;
        struct backend_event copy = *ev;
        copy.choice = r->choice;
        return odo_send(r, &copy);
    }
    bool text = ev->chat->kind == CHAT_CONTENT || ev->chat->kind == CHAT_REASONING;
    if (text && repeat_feed(&t->repeat, ev->chat->text, ev->chat->n)) t->looped = true;
    t->malformed |= ev->chat->kind == CHAT_MALFORMED && !json_array_size(r->request->tools);
    if (t->looped) return 1;
    if (r->quiet || (t->malformed && ev->chat->kind == CHAT_CONTENT)) return 0;
    struct chat_event chat = *ev->chat;
    switch (chat.kind) {
    case CHAT_CONTENT:
        /* text before the final answer is sent as thinking, so that the client sees progress on every path */
        if (!t->final) chat.kind = CHAT_REASONING;
        else if (r->keeps_answer) buf_put(&r->answer, chat.text, chat.n);
        break;
    case CHAT_CALL:
        t->ours = odo_tool(r, chat.name) && !odo_tools_has(r->request->tools, chat.name);
        if (!t->ours && !odo_tools_has(r->request->tools, chat.name))
            t->ours = true; /* unknown tool: odo_tools_run reports this to the model */
        if (!t->ours) ++t->n_client;
        break;
    default: break;
    }
    bool of_call = chat.kind == CHAT_CALL || chat.kind == CHAT_ARGS || chat.kind == CHAT_CALL_END ||
                   chat.kind == CHAT_CALL_CUT || (chat.kind == CHAT_MALFORMED && chat.index >= 0);
    if (of_call && t->ours) return 0;
    if (of_call) chat.index = r->n_client_call + t->n_client - 1;
    return forward(t, &chat);
}

static void set_sampling(struct request *a, const struct pipeline_sampling *s) {
    if (!s) return;
    if (s->temperature == s->temperature) {
        a->sampling.temperature = (float)s->temperature;
        a->has_temperature = true;
    }
    if (s->top_p == s->top_p) {
        a->sampling.top_p = (float)s->top_p;
        a->has_top_p = true;
    }
    if (s->min_p == s->min_p) a->sampling.min_p = (float)s->min_p;
    if (s->presence_penalty == s->presence_penalty)
        a->sampling.presence_penalty = (float)s->presence_penalty;
    if (s->top_k != INT32_MIN) a->sampling.top_k = s->top_k;
    if (s->max_tokens != INT32_MIN) a->max_tokens = s->max_tokens;
}

/* Returns the request's extra as a new reference, with the pipeline's Engram table added if the request names
 * none. */
static json_t *with_table(const struct odo_run *r) {
    const struct pipeline *p = r->d.pipeline;
    if (!p->engram || json_object_get(r->request->extra, "engram"))
        return json_incref(r->request->extra);
    json_t *extra = r->request->extra ? json_copy(r->request->extra) : json_object();
    json_object_set_new(extra, "engram",
                        json_pack("{s:[s], s:f, s:b}", "tables", p->engram, "alpha",
                                  p->engram_alpha, "optional", 1));
    return extra;
}

void odo_ask(const struct odo_run *r, const struct pipeline_sampling *own, bool final,
             struct request *a) {
    const struct pipeline *p = r->d.pipeline;
    *a = *r->request; /* shallow copy: its arrays belong to the client's request */
    a->n = 1;
    if (r->table) { /* the fetched texts also influence the sampling of the answer */
        a->table = r->table;
        a->recall = r->question;
    }
    a->extra = with_table(r);
    if (odo_may(r, ODO_PROMPTS)) set_sampling(a, &p->sampling);
    set_sampling(a, own);
    if (p->think >= 0 && final && odo_may(r, ODO_PROMPTS)) a->think = p->think;
    /* a mode set by the request takes precedence over the pipeline */
    if (final && (r->wish.mode >= 0 || r->wish.auto_mode)) mode_apply(r->d.mode, a);
    if (p->think_budget != INT32_MIN) a->sampling.think_budget = p->think_budget;
    if (r->n_left != INT32_MAX && (a->max_tokens <= 0 || a->max_tokens > r->n_left))
        a->max_tokens = r->n_left;
}

static int backend_model(struct odo_run *r, const struct odo_round *round, json_t *tools,
                         struct turn *turn, struct call_result *out, struct err *e) {
    struct request a;
    odo_ask(r, round->sampling, round->final, &a);
    a.messages = round->messages;
    a.tools = tools;
    a.sampling.seed += (uint64_t)r->choice;
    if (!round->final) { /* steps: plain text, whatever format the answer must have */
        a.format = REQUEST_TEXT;
        a.n_stop = 0;
        a.probs = false;
    }
    if (round->schema && !json_array_size(tools)) { /* with tools, the text is checked afterwards */
        a.format = REQUEST_JSON_SCHEMA;
        a.schema = (json_t *)round->schema;
    }
    struct call c = {.backend = r->odo->p.backend,
                     .request = &a,
                     .on_event = on_event,
                     .ud = turn,
                     .cancelled = r->cancelled,
                     .deadline_ns = a.deadline_ns};
    int64_t start = clock_ns();
    ++r->odo->n_model_call;
    int rc = call_run(&c, out, e);
    json_decref(a.extra);
    odo_count(r->odo, ODO_MODEL, clock_ms_since(start), rc != 0);
    odo_spend(r, &out->stats, out->n_reasoning);
    if (r->trace.spans)
        trace_span(&r->trace, "model", start, rc != 0,
                   json_pack("{s:i, s:i, s:i}", "gen_ai.usage.input_tokens",
                             (int)out->stats.n_prompt, "gen_ai.usage.output_tokens",
                             (int)out->stats.n_generated, "odo.calls",
                             (int)json_array_size(out->calls)));
    return rc;
}

/* ---- tools ---- */

static int append_calls(json_t *messages, const struct call_result *out) {
    json_t *calls = json_array(), *c;
    size_t i;
    json_array_foreach(out->calls, i, c) json_array_append_new(
        calls, json_pack("{s:O, s:s, s:{s:O, s:O}}", "id", json_object_get(c, "id"), "type",
                         "function", "function", "name", json_object_get(c, "name"), "arguments",
                         json_object_get(c, "arguments")));
    json_t *m =
        json_pack("{s:s, s:s#, s:o}", "role", "assistant", "content",
                  out->content.n ? out->content.p : "", (int)out->content.n, "tool_calls", calls);
    return m && !json_array_append_new(messages, m) ? 0 : CHIMERE_ENOMEM;
}

/* Runs a tool as if the model had called it, before the model is asked. */
static int call_first(struct odo_run *r, const struct odo_round *round, const char *name,
                      const char *key, const char *value) {
    json_t *arguments = json_pack("{s:s}", key, value);
    char *text = arguments ? json_dumps(arguments, JSON_COMPACT) : NULL;
    json_decref(arguments);
    struct call_result made = {0};
    buf_init(&made.content, 1);
    made.calls =
        text ? json_pack("[{s:s, s:s, s:s}]", "id", "call_first", "name", name, "arguments", text)
             : NULL;
    int rc = made.calls ? append_calls(round->messages, &made) : CHIMERE_ENOMEM;
    if (!rc) rc = odo_tools_run(r, round, made.calls);
    mem_free(text);
    json_decref(made.calls);
    return rc;
}

/* Runs tools before the model is asked: the calculator, if the question is only a calculation. Also runs the search
 * that the request demands. */
static int work_out(struct odo_run *r, const struct odo_round *round) {
    const struct request *a = r->request;
    bool free_choice = a->tool_choice == REQUEST_TOOLS_AUTO && r->wish.tools != 0 &&
                       !a->continue_last && round->final && !r->d.steps;
    if (!free_choice) return 0;
    if (a->search == REQUEST_SEARCH_FIRST)
        return call_first(r, round, "web_search", "query", r->question);
    const struct tool *t = tool_find(r->odo->p.tools, "calculator");
    if (!r->d.sum[0] || json_array_size(a->tools) || !t ||
        !odo_tools_listed(&round->tools, t->name))
        return 0;
    return call_first(r, round, t->name, "expression", r->d.sum);
}

/* Returns the result that work_out computed, if it is the whole answer: one operation with an exact decimal result,
 * and nothing that asks for another form. chimere-mini wrote 800 after it had read "8 * 65 = 520". A view into the
 * messages; NULL: the model answers. */
static const char *whole_answer(const struct odo_run *r, const struct odo_round *round) {
    const struct request *a = r->request;
    const json_t *first = json_array_get(round->messages, 0);
    const json_t *last = json_array_get(round->messages, json_array_size(round->messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    bool plain = r->d.sum[0] && bare_is_single(r->d.sum) && round->final && !round->schema &&
                 a->format == REQUEST_TEXT && !a->n_stop && !a->n_stop_token && !a->probs;
    if (!plain || !role || strcmp(role, "tool") != 0) return NULL;
    role = json_string_value(json_object_get(first, "role"));
    if (role && (!strcmp(role, "system") || !strcmp(role, "developer"))) return NULL;
    const char *text = json_string_value(json_object_get(last, "content"));
    const char *result = text ? strstr(text, " = ") : NULL;
    if (!result || strstr(result + 3, " = ")) return NULL;
    result += 3;
    size_t n = strlen(result); /* a token has at least one byte */
    bool is_decimal = n && strspn(result, "-.0123456789") == n;
    return is_decimal && (int64_t)n <= r->n_left ? result : NULL;
}

static void say_result(struct odo_run *r, const char *text, struct buf *content) {
    if (content) buf_puts(content, text);
    if (!r->quiet) odo_answer(r, text, strlen(text));
    json_object_set_new(r->record, "computed", json_true());
}

/* Adds to the last tool result, which the model reads next, that no more tools can be called. */
static int ask_for_answer(json_t *messages) {
    json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    if (!role || strcmp(role, "tool") != 0) return 0;
    json_t *text = json_sprintf("%s\n\n[No further tool can be called. Answer now.]",
                                json_string_value(json_object_get(last, "content")));
    return text && !json_object_set_new(last, "content", text) ? 0 : CHIMERE_ENOMEM;
}

int odo_loop(struct odo_run *r, const struct odo_round *round, struct buf *content,
             enum finish *finish, struct err *e) {
    int32_t most = round->rounds ? round->rounds : r->d.pipeline->rounds;
    if (work_out(r, round)) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    const char *result = whole_answer(r, round);
    if (result) {
        say_result(r, result, content);
        *finish = FINISH_STOP;
        return 0;
    }
    for (int32_t i = 0;; ++i) {
        /* after the last round no orchestrator tool is offered: the model must answer */
        struct odo_round bare = *round;
        bare.no_tools = i >= most;
        if (bare.no_tools) bare.tools.n = 0;
        if (bare.no_tools && i && ask_for_answer(round->messages))
            return err_set(e, CHIMERE_ENOMEM, "out of memory");
        json_t *tools = odo_tools_offered(r, &bare);
        odo_tools_withheld(r, &bare);
        struct turn turn = {.run = r, .final = round->final};
        struct call_result out;
        int rc = backend_model(r, round, tools, &turn, &out, e);
        json_decref(tools);
        *finish = out.finish;
        if (turn.looped && !*r->cancelled) {
            *finish = FINISH_LENGTH;
            json_object_set_new(r->record, "repeated", json_true());
        }
        if (turn.malformed) json_object_set_new(r->record, "malformed_call", json_true());
        if (!rc && turn.malformed && !bare.no_tools && !*r->cancelled && r->n_left > 0) {
            call_fini(&out);
            i = most - 1; /* ask once more, without tools */
            continue;
        }
        size_t n_call = json_array_size(out.calls);
        bool again = !rc && !*r->cancelled && out.finish == FINISH_CALLS && n_call &&
                     !turn.n_client && i < most && r->n_left > 0;
        if (!rc && content && !again)
            buf_put(content, out.content.n ? out.content.p : "", out.content.n);
        if (again) {
            rc = append_calls(round->messages, &out);
            if (!rc) rc = odo_tools_run(r, round, out.calls);
            if (rc) err_set(e, rc, "out of memory");
        } else if (!rc && out.finish == FINISH_CALLS && !turn.n_client) {
            *finish = FINISH_STOP; /* the call limit is reached; the client has no call to run */
        }
        r->n_client_call += turn.n_client;
        call_fini(&out);
        if (rc || !again) return rc;
    }
}

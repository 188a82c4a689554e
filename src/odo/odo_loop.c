/* odo_loop.c: the model answers, calls tools, reads their results, answers again. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "odo/mode.h"
#include "odo/odo_context.h"
#include "odo/odo_impl.h"

void odo_count(struct odo *o, enum odo_stage s, int64_t start_ns, bool failed) {
    struct odo_counter *c = &o->stage[s];
    ++c->n;
    c->n_failed += failed;
    c->sum_us += (uint64_t)((clock_ns() - start_ns) / 1000);
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

int odo_send(struct odo_run *r, const struct backend_event *ev) {
    pthread_mutex_lock(r->sink_lock);
    if (ev->kind == EVENT_CHAT && ev->chat->kind == CHAT_CONTENT)
        taint_feed(r->all_said, ev->chat->text, ev->chat->n);
    int rc = r->sink.event(r->sink.ud, ev);
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

/* ---- which tools are offered ---- */

static bool listed(const struct yamlfile_list *l, const char *name) {
    for (size_t i = 0; i < l->n; ++i)
        if (!strcmp(l->v[i], name)) return true;
    return false;
}

/* The request offers the search itself: whatever the pipeline names, whatever the model was measured for. */
static bool is_search(const struct odo_run *r, const struct tool *t) {
    return r->request->search && !strcmp(t->name, "web_search");
}

static bool wanted(const struct odo_run *r, const struct odo_round *round, const struct tool *t) {
    const struct odo_front *front = (const struct odo_front *)r->base.backend;
    if (round->no_tools) return false;
    return is_search(r, t) || listed(&round->tools, t->name) ||
           (t->flags & TOOL_ANYWHERE && !front->plain);
}

static bool has_name(const json_t *tools, const char *name) {
    size_t i;
    json_t *t;
    json_array_foreach(tools, i, t) {
        const char *s = json_string_value(json_object_get(json_object_get(t, "function"), "name"));
        if (s && !strcmp(s, name)) return true;
    }
    return false;
}

static struct tool_env run_env(const struct odo_run *r) {
    return (struct tool_env){.cancelled = r->cancelled,
                             .deadline_ns = r->request->deadline_ns,
                             .tainted = r->tainted,
                             .tainted_local = r->tainted_local,
                             .confirmed = r->wish.confirm,
                             .n_confirmed = r->wish.n_confirm,
                             .owner = r->owner};
}

/* Once per run: a tool that was withheld, though the user could allow it. */
static void tell_confirm(struct odo_run *r, const struct odo_round *round) {
    struct tool_env env = run_env(r);
    json_t *names = json_array();
    const struct tool *t;
    for (size_t i = 0; !r->told_confirm && (t = tool_at(r->odo->p.tools, i)); ++i)
        if (wanted(r, round, t) && tool_needs_confirmation(t, &env))
            json_array_append_new(names, json_string(t->name));
    if (json_array_size(names)) {
        odo_note(r, "confirm", json_pack("{s:O}", "tools", names));
        r->told_confirm = true;
    }
    json_decref(names);
}

/* The client's tools, then ours; a name that the client uses is the client's. NULL: none at all. */
static json_t *offered(const struct odo_run *r, const struct odo_round *round, size_t *n_ours) {
    const struct request *a = r->request;
    json_t *all = a->tools ? json_copy(a->tools) : json_array();
    *n_ours = 0;
    bool free_choice = a->tool_choice == REQUEST_TOOLS_AUTO && a->format == REQUEST_TEXT &&
                       r->wish.tools != 0 && !a->continue_last;
    struct tool_env env = run_env(r);
    const struct tool *t = &r->skill_tool;
    if (all && free_choice && t->spec && !round->no_tools && tool_allowed(t, &env, NULL) &&
        !has_name(a->tools, t->name)) {
        json_array_append(all, t->spec);
        ++*n_ours;
    }
    for (size_t i = 0; all && free_choice && (t = tool_at(r->odo->p.tools, i)); ++i) {
        if (!wanted(r, round, t) || !tool_allowed(t, &env, NULL)) continue;
        if (!odo_may(r, ODO_TOOLS) && !(t->flags & TOOL_ANYWHERE) && !is_search(r, t)) continue;
        /* small models call whatever is offered: a calculator beside a word problem cost the shipped one 50 of 60 */
        if (!strcmp(t->name, "calculator") && !r->d.bare) continue;
        if (has_name(a->tools, t->name)) continue;
        json_array_append(all, t->spec);
        ++*n_ours;
    }
    if (json_array_size(all)) return all;
    json_decref(all);
    return NULL;
}

/* ---- one turn ---- */

struct turn {
    struct odo_run *run;
    bool final;
    bool ours; /* the call that is open belongs to us: the client does not see it */
    int n_client;
    bool malformed; /* an unparsable call began: its raw text is not part of the answer */
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
        /* what is not yet the answer is shown as thought, so that every path streams */
        if (!t->final) chat.kind = CHAT_REASONING;
        else if (r->keeps_answer) buf_put(&r->answer, chat.text, chat.n);
        break;
    case CHAT_CALL:
        t->ours = odo_tool(r, chat.name) && !has_name(r->request->tools, chat.name);
        if (!t->ours && !has_name(r->request->tools, chat.name))
            t->ours = true; /* nobody's: told below */
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
    if (s->temperature == s->temperature) a->sampling.temperature = (float)s->temperature;
    if (s->top_p == s->top_p) a->sampling.top_p = (float)s->top_p;
    if (s->min_p == s->min_p) a->sampling.min_p = (float)s->min_p;
    if (s->presence_penalty == s->presence_penalty)
        a->sampling.presence_penalty = (float)s->presence_penalty;
    if (s->top_k != INT32_MIN) a->sampling.top_k = s->top_k;
    if (s->max_tokens != INT32_MIN) a->max_tokens = s->max_tokens;
}

/* The request's extra, with the pipeline's table where it names none itself; a new reference. */
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
    *a = *r->request; /* its arrays stay the maker's */
    a->n = 1;
    if (r->table) { /* what was fetched also sways the words of the answer itself */
        a->table = r->table;
        a->recall = r->question;
    }
    a->extra = with_table(r);
    if (odo_may(r, ODO_PROMPTS)) set_sampling(a, &p->sampling);
    set_sampling(a, own);
    if (p->think >= 0 && final && odo_may(r, ODO_PROMPTS)) a->think = p->think;
    /* what the request itself says about its mode outranks the pipeline */
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
    if (!round->final) { /* steps: plain text, whatever form the answer has */
        a.format = REQUEST_TEXT;
        a.n_stop = 0;
        a.probs = false;
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
    odo_count(r->odo, ODO_MODEL, start, rc != 0);
    odo_spend(r, &out->stats, out->n_reasoning);
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

static int run_tool(struct odo_run *r, const struct odo_round *round, const json_t *call) {
    const char *name = json_string_value(json_object_get(call, "name")),
               *args = json_string_value(json_object_get(call, "arguments"));
    const struct tool *t = odo_tool(r, name);
    if (t && t != &r->skill_tool && !wanted(r, round, t)) t = NULL;
    struct buf text;
    buf_init(&text, (size_t)2 * TOOL_MAX_OUTPUT);
    int64_t start = clock_ns();
    int rc = CHIMERE_ENOENT;
    struct tool_env env = run_env(r);
    env.found = json_array();
    env.collection = r->wish.collection ? r->wish.collection : r->d.pipeline->collection;
    if (t) rc = tool_run(t, args, &env, &text);
    else buf_printf(&text, "error: there is no tool \"%.64s\"", name);
    r->tainted = env.tainted;
    r->tainted_local = env.tainted_local;
    if (rc == CHIMERE_EREFUSED) ++r->odo->n_tool_refused;
    odo_count(r->odo, ODO_TOOL, start, rc != 0);
    json_t *note = json_pack("{s:s, s:s, s:b, s:f, s:i}", "name", name, "arguments", args, "ok",
                             rc == 0, "ms", clock_ms_since(start), "bytes", (int)text.n);
    if (json_array_size(env.found)) json_object_set(note, "found", env.found);
    json_decref(env.found);
    json_t *list = json_object_get(r->record, "tools");
    if (note && list) json_array_append(list, note);
    odo_note(r, "tool", note);
    json_t *m =
        json_pack("{s:s, s:O, s:s#}", "role", "tool", "tool_call_id", json_object_get(call, "id"),
                  "content", text.n ? text.p : "", (int)text.n);
    buf_fini(&text);
    return m && !json_array_append_new(round->messages, m) ? 0 : CHIMERE_ENOMEM;
}

/* Calls a tool in the model's name, before it is asked. */
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
    if (!rc) rc = run_tool(r, round, json_array_get(made.calls, 0));
    mem_free(text);
    json_decref(made.calls);
    return rc;
}

/* A question that is nothing but a calculation: the model then only has to say the result. And the search that the
 * request wants in any case. */
static int work_out(struct odo_run *r, const struct odo_round *round) {
    const struct request *a = r->request;
    bool free_choice = a->tool_choice == REQUEST_TOOLS_AUTO && r->wish.tools != 0 &&
                       !a->continue_last && round->final && !r->d.steps;
    if (!free_choice) return 0;
    if (a->search == REQUEST_SEARCH_FIRST)
        return call_first(r, round, "web_search", "query", r->question);
    const struct tool *t = tool_find(r->odo->p.tools, "calculator");
    if (!r->d.sum[0] || json_array_size(a->tools) || !t || !listed(&round->tools, t->name))
        return 0;
    return call_first(r, round, t->name, "expression", r->d.sum);
}

int odo_loop(struct odo_run *r, const struct odo_round *round, struct buf *content,
             enum finish *finish, struct err *e) {
    int32_t most = round->rounds ? round->rounds : r->d.pipeline->rounds;
    if (work_out(r, round)) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (int32_t i = 0;; ++i) {
        size_t n_ours = 0;
        /* behind the last round no tool of ours is offered: the model must answer */
        struct odo_round bare = *round;
        bare.no_tools = i >= most;
        if (bare.no_tools) bare.tools.n = 0;
        json_t *tools = offered(r, &bare, &n_ours);
        tell_confirm(r, &bare);
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
            i = most - 1; /* once more, without tools */
            continue;
        }
        size_t n_call = json_array_size(out.calls);
        bool again = !rc && !*r->cancelled && out.finish == FINISH_CALLS && n_call &&
                     !turn.n_client && i < most && r->n_left > 0;
        if (!rc && content && !again)
            buf_put(content, out.content.n ? out.content.p : "", out.content.n);
        if (again) {
            rc = append_calls(round->messages, &out);
            for (size_t k = 0; k < n_call && !rc && !*r->cancelled; ++k)
                rc = run_tool(r, round, json_array_get(out.calls, k));
            if (rc) err_set(e, rc, "out of memory");
        } else if (!rc && out.finish == FINISH_CALLS && !turn.n_client) {
            *finish =
                FINISH_STOP; /* calls of ours beyond the limit: the client has nothing to run */
        }
        r->n_client_call += turn.n_client;
        call_fini(&out);
        if (rc || !again) return rc;
    }
}

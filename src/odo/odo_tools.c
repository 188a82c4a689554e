/* odo_tools.c: which tools a round offers, and how calls of the model are run. */
#include "odo/odo_tools.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "odo/confirm.h"
#include "odo/odo_context.h"
#include "odo/odo_impl.h"

/* ---- which tools are offered ---- */

bool odo_tools_listed(const struct yamlfile_list *l, const char *name) {
    for (size_t i = 0; i < l->n; ++i)
        if (!strcmp(l->v[i], name)) return true;
    return false;
}

/* Returns true for web search if the request asks for it. It is offered whatever the pipeline lists and the
 * model's card says. */
static bool is_search(const struct odo_run *r, const struct tool *t) {
    return r->request->search && !strcmp(t->name, "web_search");
}

static bool mcp_may(const struct pipeline *p, const struct tool *t) {
    return !t->server || p->any_mcp || odo_tools_listed(&p->mcp, t->server) ||
           odo_tools_listed(&p->mcp, t->name);
}

static bool wanted(const struct odo_run *r, const struct odo_round *round, const struct tool *t) {
    const struct odo_front *front = (const struct odo_front *)r->base.backend;
    if (round->no_tools) return false;
    return is_search(r, t) || odo_tools_listed(&round->tools, t->name) ||
           (t->flags & TOOL_ANYWHERE && !front->plain && mcp_may(r->d.pipeline, t));
}

bool odo_tools_has(const json_t *tools, const char *name) {
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

/* Returns true if the tool may run now, or after the user allows it. */
static bool may_run(const struct odo_run *r, const struct tool *t, const struct tool_env *env) {
    return tool_allowed(t, env, NULL) || (r->wish.ask && tool_needs_confirmation(t, env));
}

/* Returns true if t is an orchestrator tool that this round may offer, apart from restrictions by untrusted text. */
static bool is_offered(const struct odo_run *r, const struct odo_round *round,
                       const struct tool *t) {
    const struct request *a = r->request;
    if (a->tool_choice != REQUEST_TOOLS_AUTO || a->format != REQUEST_TEXT || r->wish.tools == 0 ||
        a->continue_last || odo_tools_has(a->tools, t->name))
        return false;
    if (t == &r->skill_tool) return !round->no_tools;
    if (!wanted(r, round, t)) return false;
    if (!odo_may(r, ODO_TOOLS) && !(t->flags & TOOL_ANYWHERE) && !is_search(r, t)) return false;
    /* small models call every offered tool: the calculator in word problems cost the shipped model 50 of 60
     * answers */
    return strcmp(t->name, "calculator") != 0 || r->d.bare;
}

/* Lists the tools that this round does not offer only because untrusted text was read. confirmable: only those
 * that the user could allow. */
static json_t *withheld(const struct odo_run *r, const struct odo_round *round, bool confirmable) {
    struct tool_env env = run_env(r);
    json_t *names = json_array();
    const struct tool *t = &r->skill_tool;
    if (t->spec && is_offered(r, round, t) && !may_run(r, t, &env) &&
        (!confirmable || tool_needs_confirmation(t, &env)))
        json_array_append_new(names, json_string(t->name));
    for (size_t i = 0; (t = tool_at(r->odo->p.tools, i)); ++i)
        if (is_offered(r, round, t) && !may_run(r, t, &env) &&
            (!confirmable || tool_needs_confirmation(t, &env)))
            json_array_append_new(names, json_string(t->name));
    return names;
}

void odo_tools_withheld(struct odo_run *r, const struct odo_round *round) {
    json_t *all = withheld(r, round, false), *names = withheld(r, round, true);
    if (json_array_size(names) && !r->told_confirm) {
        odo_note(r, "confirm", json_pack("{s:O}", "tools", names));
        r->told_confirm = true;
    }
    if (json_array_size(all) && !json_object_get(r->record, "tools_withheld")) {
        odo_note(r, "withheld",
                 json_pack("{s:O, s:s}", "tools", all, "why",
                           "text of documents, pages or tools was read"));
        json_object_set(r->record, "tools_withheld", all);
    }
    json_decref(names);
    json_decref(all);
}

json_t *odo_tools_offered(const struct odo_run *r, const struct odo_round *round) {
    const struct request *a = r->request;
    json_t *all = a->tools ? json_copy(a->tools) : json_array();
    struct tool_env env = run_env(r);
    const struct tool *t = &r->skill_tool;
    if (all && t->spec && is_offered(r, round, t) && may_run(r, t, &env))
        json_array_append(all, t->spec);
    for (size_t i = 0; all && (t = tool_at(r->odo->p.tools, i)); ++i)
        if (is_offered(r, round, t) && may_run(r, t, &env)) json_array_append(all, t->spec);
    if (json_array_size(all)) return all;
    json_decref(all);
    return NULL;
}

/* ---- running tools ---- */

struct job {                           /* one call of a round */
    const struct tool *tool;           /* view; NULL: unknown tool */
    const char *id, *name, *arguments; /* views into the call */
    char *key;                         /* owned: the arguments in canonical form */
    struct buf text;
    struct tool_env env;
    const json_t *first;    /* view into run.ran: an earlier identical call */
    const struct job *twin; /* view: an identical call of the same round */
    struct odo_run *run;    /* view */
    size_t n_shown;         /* bytes of progress shown */
    bool asked;             /* the user was asked; if the call ran, the user allowed it */
    int64_t start_ns;
    double ms;
    int rc;
    pthread_t thread;
    bool threaded;
};

enum { MAX_PARALLEL = 8, MOST_PROGRESS = 16 << 10, MOST_SHOWN = 2000 };

/* Writes arguments in a canonical form: compact JSON with sorted keys. */
static char *canonical(const char *arguments) {
    json_t *o = json_loads(arguments, JSON_DECODE_ANY, NULL);
    char *text =
        o ? json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY) : mem_strdup(arguments);
    json_decref(o);
    return text;
}

/* Finds an earlier identical call whose result still holds. A later call with a lasting effect may have changed
 * the result. */
static const json_t *made_before(const struct odo_run *r, const char *name, const char *key) {
    for (size_t i = json_array_size(r->ran); i-- > 0;) {
        const json_t *o = json_array_get(r->ran, i);
        bool same = !strcmp(json_string_value(json_object_get(o, "name")), name) &&
                    !strcmp(json_string_value(json_object_get(o, "arguments")), key);
        if (same) return o;
        if (json_is_true(json_object_get(o, "lasts"))) return NULL;
    }
    return NULL;
}

/* Returns true if the tool changes this machine: another call of the round could see a half-finished change. */
static bool runs_alone(const struct tool *t) {
    return t && (t->flags & TOOL_PERSISTS ||
                 (t->flags & TOOL_EFFECT && !(t->flags & (TOOL_CONFINED | TOOL_SENDS))));
}

static bool lasts(const struct tool *t) {
    return t &&
           (t->flags & TOOL_PERSISTS || (t->flags & TOOL_EFFECT && !(t->flags & TOOL_CONFINED)));
}

/* Returns true if a repeated call would give the same result. Timeouts, I/O errors and refusals may change. */
static bool is_final(int rc) {
    return rc != CHIMERE_ETIMEOUT && rc != CHIMERE_EIO && rc != CHIMERE_EBUSY &&
           rc != CHIMERE_ECANCELLED && rc != CHIMERE_EREFUSED && rc != CHIMERE_ENOMEM;
}

/* Returns the length of the longest prefix of at most n bytes that does not cut a character. The text must end
 * with a NUL. */
static size_t whole(const char *text, size_t n) {
    while (n && ((unsigned char)text[n] & 0xc0) == 0x80) --n;
    return n;
}

static void show_progress(void *ud, const char *text, size_t n) {
    struct job *j = ud;
    size_t left = MOST_PROGRESS - j->n_shown;
    n = whole(text, n < left ? n : left);
    j->n_shown += n;
    if (n)
        odo_note(j->run, "tool_output",
                 json_pack("{s:s, s:s, s:s#}", "id", j->id, "name", j->name, "text", text, (int)n));
}

static int job_begin(struct odo_run *r, const struct odo_round *round, const json_t *call,
                     struct job *j) {
    *j = (struct job){.id = json_string_value(json_object_get(call, "id")),
                      .name = json_string_value(json_object_get(call, "name")),
                      .arguments = json_string_value(json_object_get(call, "arguments")),
                      .env = run_env(r)};
    buf_init(&j->text, (size_t)2 * TOOL_MAX_OUTPUT);
    j->run = r;
    j->env.progress = show_progress;
    j->env.ud = j;
    if (!j->id) j->id = "";
    if (!j->name) j->name = "";
    if (!j->arguments) j->arguments = "";
    const struct tool *t = odo_tool(r, j->name);
    j->tool = t && t != &r->skill_tool && !wanted(r, round, t) ? NULL : t;
    j->env.found = json_array();
    j->env.documents = r->documents;
    if (!(j->key = canonical(j->arguments)) || !j->env.found) return CHIMERE_ENOMEM;
    if (j->tool) j->first = made_before(r, j->name, j->key);
    return 0;
}

/* Asks the user about a call that writes, runs or sends. A call that may never run is not asked about. */
static int ask_user(struct job *j, struct err *e) {
    struct odo_run *r = j->run;
    char id[CONFIRM_ID_BYTES];
    bool effect = j->tool->flags & (TOOL_EFFECT | TOOL_SENDS);
    if (!r->wish.ask || !effect || !may_run(r, j->tool, &j->env)) return 0;
    int64_t deadline = clock_ns() + (int64_t)CONFIRM_S * 1000000000;
    if (r->request->deadline_ns && r->request->deadline_ns < deadline)
        deadline = r->request->deadline_ns;
    int rc = confirm_begin(r->odo->confirms, r->owner, j->name, j->arguments, id, e);
    if (rc) return rc;
    j->asked = true;
    odo_note(r, "confirm",
             json_pack("{s:s, s:s, s:s, s:s, s:f}", "id", id, "call", j->id, "name", j->name,
                       "arguments", j->arguments, "wait_s",
                       (double)(deadline - clock_ns()) * 1e-9));
    rc = confirm_wait(r->odo->confirms, id, deadline, r->cancelled, e);
    j->env.confirmed = &j->name;
    j->env.n_confirmed = rc ? 0 : 1;
    return rc;
}

static void *job_run(void *ud) {
    struct job *j = ud;
    struct err e = {0};
    int64_t start = j->start_ns = clock_ns(), shortages = mem_shortages();
    const json_t *text = json_object_get(j->first, "text");
    if (j->first) {
        buf_put(&j->text, json_string_value(text), json_string_length(text));
        j->rc = (int)json_integer_value(json_object_get(j->first, "rc"));
        j->env.failed = json_is_true(json_object_get(j->first, "failed"));
        j->env.status = (int32_t)json_integer_value(json_object_get(j->first, "status"));
    } else if (j->tool && (j->rc = ask_user(j, &e))) {
        buf_printf(&j->text, "error: %s", e.text);
    } else if (j->tool) {
        odo_note(
            j->run, "tool_start",
            json_pack("{s:s, s:s, s:s}", "id", j->id, "name", j->name, "arguments", j->arguments));
        j->rc = tool_run(j->tool, j->arguments, &j->env, &j->text);
    } else {
        buf_printf(&j->text, "error: there is no tool \"%.64s\"", j->name);
        j->rc = CHIMERE_ENOENT;
    }
    j->ms = clock_ms_since(start);
    if (mem_shortages() != shortages) *j->run->starved = true;
    return NULL;
}

/* Returns true if the tool's results are numbered like sources. After such a call, [n] is no longer checked,
 * because it may refer to either. */
static bool has_numbers(const struct tool *t) {
    return t && (!strcmp(t->name, "documents") || !strcmp(t->name, "web_search"));
}

/* Updates taint and counts, adds the call to the record, and appends the message for the model. */
static int job_end(struct odo_run *r, const struct odo_round *round, struct job *j) {
    if (j->twin) {
        buf_put(&j->text, j->twin->text.n ? j->twin->text.p : "", j->twin->text.n);
        j->rc = j->twin->rc;
        j->env.failed = j->twin->env.failed;
        j->env.status = j->twin->env.status;
    }
    const char *text = j->text.n ? j->text.p : "";
    bool failed = j->rc || j->env.failed, again = j->first || j->twin;
    r->tainted |= j->env.tainted;
    r->tainted_local |= j->env.tainted_local;
    if (j->rc == CHIMERE_EREFUSED) ++r->odo->n_tool_refused;
    if (has_numbers(j->tool)) {
        pthread_mutex_lock(r->sink_lock); /* agents may run concurrently */
        r->all_cite->n_source = 0;
        pthread_mutex_unlock(r->sink_lock);
    }
    odo_count(r->odo, ODO_TOOL, j->ms, failed);
    if (r->trace.spans && j->start_ns)
        trace_span(&r->trace, "tool", j->start_ns, failed,
                   json_pack("{s:s, s:i, s:b}", "gen_ai.tool.name", j->name, "odo.bytes",
                             (int)j->text.n, "odo.repeated", again));
    if (j->tool && !again && is_final(j->rc))
        json_array_append_new(
            r->ran, json_pack("{s:s, s:s, s:s#, s:i, s:b, s:i, s:b}", "name", j->name, "arguments",
                              j->key, "text", text, (int)j->text.n, "rc", j->rc, "failed",
                              j->env.failed, "status", j->env.status, "lasts", lasts(j->tool)));
    json_t *note = json_pack("{s:s, s:s, s:b, s:f, s:i}", "name", j->name, "arguments",
                             j->arguments, "ok", !failed, "ms", j->ms, "bytes", (int)j->text.n);
    if (again) json_object_set_new(note, "repeated", json_true());
    if (j->asked) json_object_set_new(note, "asked", json_true());
    if (j->env.failed) json_object_set_new(note, "status", json_integer(j->env.status));
    if (json_array_size(j->env.found)) json_object_set(note, "found", j->env.found);
    json_t *list = json_object_get(r->record, "tools");
    if (note && list) json_array_append_new(list, note);
    /* copied before results are added, because the record is stored and has none */
    json_t *shown = note ? json_copy(note) : NULL;
    size_t most = j->text.n < MOST_SHOWN ? j->text.n : whole(text, MOST_SHOWN);
    if (!list) json_decref(note);
    json_object_set_new(shown, "id", json_string(j->id));
    json_object_set_new(shown, "result", json_stringn(text, most));
    odo_note(r, "tool", shown);
    json_t *m = json_pack("{s:s, s:s, s:s#}", "role", "tool", "tool_call_id", j->id, "content",
                          text, (int)j->text.n);
    return m && !json_array_append_new(round->messages, m) ? 0 : CHIMERE_ENOMEM;
}

/* Prepares the calls from index `at` that can run together. Returns their number, or CHIMERE_E*. */
static int group_begin(struct odo_run *r, const struct odo_round *round, const json_t *calls,
                       size_t at, struct job *jobs) {
    int n = 0, rc = 0;
    while (n < MAX_PARALLEL && at + (size_t)n < json_array_size(calls) && !rc) {
        const json_t *call = json_array_get(calls, at + (size_t)n);
        const struct tool *t = odo_tool(r, json_string_value(json_object_get(call, "name")));
        if (n && runs_alone(t)) break;
        struct job *j = &jobs[n++];
        rc = job_begin(r, round, call, j);
        for (int k = 0; k < n - 1 && !rc && !j->twin; ++k)
            if (!strcmp(jobs[k].name, j->name) && !strcmp(jobs[k].key, j->key)) j->twin = &jobs[k];
        if (runs_alone(t)) break;
    }
    return rc ? rc : n;
}

static void group_run(struct job *jobs, int n) {
    for (int i = 1; i < n; ++i)
        if (!jobs[i].twin)
            jobs[i].threaded = !pthread_create(&jobs[i].thread, NULL, job_run, &jobs[i]);
    for (int i = 0; i < n; ++i)
        if (!jobs[i].twin && !jobs[i].threaded) job_run(&jobs[i]);
    for (int i = 1; i < n; ++i)
        if (jobs[i].threaded) pthread_join(jobs[i].thread, NULL);
}

int odo_tools_run(struct odo_run *r, const struct odo_round *round, const json_t *calls) {
    struct job *jobs = mem_alloc_array(MAX_PARALLEL, sizeof *jobs);
    int rc = 0;
    if (!r->ran) r->ran = json_array();
    if (!jobs || !r->ran) rc = CHIMERE_ENOMEM;
    for (size_t at = 0; at < json_array_size(calls) && rc >= 0 && !*r->cancelled;) {
        memset(jobs, 0, MAX_PARALLEL * sizeof *jobs);
        int n = rc = group_begin(r, round, calls, at, jobs);
        if (rc > 0) group_run(jobs, n);
        for (int i = 0; i < MAX_PARALLEL && jobs[i].run; ++i) {
            if (rc >= 0) rc = job_end(r, round, &jobs[i]);
            mem_free(jobs[i].key);
            json_decref(jobs[i].env.found);
        }
        for (int i = 0; i < MAX_PARALLEL && jobs[i].run; ++i) buf_fini(&jobs[i].text);
        at += (size_t)(n > 0 ? n : 0);
    }
    mem_free(jobs);
    return rc < 0 ? rc : 0;
}

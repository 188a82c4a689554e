/* odo_steps.c: runs a pipeline's agents, in sequence, concurrently or in loops. Each agent sees the newest result of
 * every other agent. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "odo/confirm.h"
#include "odo/odo_steps.h"
#include "odo/pipeline/pipeline_steps.h"

enum { MOST_SHOWN = 2000 };

struct outcome {
    struct odo_run part;
    const struct pipeline_step *step;
    json_t *messages; /* owned */
    struct buf text;
    enum finish finish;
    struct err err;
    int rc;
    bool final;
    bool held;    /* its text is sent when it is known to be good */
    bool skipped; /* its condition does not hold */
    int attempts;
    int64_t start_ns;
    size_t n_ran; /* number of tool calls made before this agent began */
    pthread_t thread;
    bool threaded;
};

/* Returns the conversation with one more system text at the start and the results of earlier agents after the
 * question. */
static json_t *step_messages(const struct odo_run *r, const char *system,
                             const struct buf *before) {
    json_t *all = json_deep_copy(r->messages), *first = json_array_get(all, 0);
    const char *role = json_string_value(json_object_get(first, "role"));
    if (!all) return NULL;
    if (system) {
        const char *old = json_string_value(json_object_get(first, "content"));
        if (role && !strcmp(role, "system") && old) {
            struct buf b;
            buf_init(&b, (size_t)4 << 20);
            buf_printf(&b, "%s\n\n%s", old, system);
            json_object_set_new(first, "content", json_string(b.n ? b.p : ""));
            buf_fini(&b);
        } else {
            json_array_insert_new(all, 0,
                                  json_pack("{s:s, s:s}", "role", "system", "content", system));
        }
    }
    if (before->n) {
        json_t *last = json_array_get(all, json_array_size(all) - 1);
        const char *old = json_string_value(json_object_get(last, "content"));
        struct buf b;
        buf_init(&b, (size_t)8 << 20);
        buf_printf(&b, "%s\n\nWork of the agents before you:\n%s", old ? old : "", before->p);
        json_object_set_new(last, "content", json_string(b.n ? b.p : ""));
        buf_fini(&b);
    }
    return all;
}

/* Appends what is wrong with an output, for the next attempt. */
static void ask_again(json_t *messages, const struct buf *text, const char *why) {
    json_array_append_new(messages, json_pack("{s:s, s:s#}", "role", "assistant", "content",
                                              text->n ? text->p : "", (int)text->n));
    json_array_append_new(messages,
                          json_pack("{s:s, s:o}", "role", "user", "content",
                                    json_sprintf("%s. Reply with that JSON alone.", why)));
}

/* One attempt. CHIMERE_EFORMAT: the output does not have the form that the step declares. */
static int attempt(struct outcome *o, const json_t *schema) {
    struct odo_round round = {.sampling = &o->step->sampling,
                              .tools = o->step->tools,
                              .rounds = o->step->rounds,
                              .schema = schema,
                              .final = o->final,
                              .messages = o->messages};
    buf_clear(&o->text);
    o->err = (struct err){0};
    int rc = odo_loop(&o->part, &round, &o->text, &o->finish, &o->err);
    if (!rc && o->text.failed) rc = err_set(&o->err, CHIMERE_ENOMEM, "out of memory");
    if (!rc && schema && !*o->part.cancelled &&
        !pipeline_fits(o->step->output, o->text.n ? o->text.p : "", o->text.n, &o->err))
        rc = CHIMERE_EFORMAT;
    return rc;
}

/* Runs one agent's part of the run. The part has its own counts and taint; it shares the run's sink and cancel
 * flag. */
static void *work(void *ud) {
    struct outcome *o = ud;
    int64_t shortages = mem_shortages();
    json_t *schema = o->step->output ? json_loads(o->step->output, 0, NULL) : NULL;
    json_t *first = o->step->retries ? json_deep_copy(o->messages) : NULL;
    o->rc = (o->step->output && !schema) || (o->step->retries && !first)
                ? err_set(&o->err, CHIMERE_ENOMEM, "out of memory")
                : 0;
    for (int i = 0; !o->rc; ++i) {
        o->attempts = i + 1;
        o->rc = attempt(o, schema);
        if (!o->rc || i == o->step->retries || *o->part.cancelled || odo_is_spent(&o->part)) break;
        json_decref(o->messages);
        o->messages = json_deep_copy(first);
        if (!o->messages) break;
        if (o->rc == CHIMERE_EFORMAT) ask_again(o->messages, &o->text, o->err.text);
        o->rc = 0;
    }
    json_decref(schema);
    json_decref(first);
    if (mem_shortages() != shortages) *o->part.starved = true;
    return NULL;
}

/* share: number of agents that run concurrently and share the tokens that are left. */
static void begin(struct odo_run *r, struct outcome *o, int32_t share, const struct buf *before) {
    o->held = o->final && (o->step->retries || o->step->output);
    /* copied field by field, because a run contains atomics and a thread */
    o->part = (struct odo_run){.base = r->base,
                               .odo = r->odo,
                               .request = r->request,
                               .sink = r->sink,
                               .set = r->set,
                               .wish = r->wish,
                               .d = r->d,
                               .question = r->question,
                               .table = r->table,
                               .owner = r->owner,
                               .documents = r->documents,
                               .skill = r->skill,
                               .skill_tool = r->skill_tool,
                               .keep_talk = r->keep_talk,
                               .cancelled = r->cancelled,
                               .starved = r->starved,
                               .sink_lock = r->sink_lock,
                               .quiet = share > 1 || o->held,
                               .tainted = r->tainted,
                               .tainted_local = r->tainted_local,
                               .all_said = r->all_said,
                               .all_cite = r->all_cite,
                               .told_confirm = r->told_confirm,
                               .n_left = r->n_left == INT32_MAX ? INT32_MAX : r->n_left / share,
                               .choice = r->choice,
                               .record = json_pack("{s:[]}", "tools")};
    o->n_ran = json_array_size(r->ran);
    o->start_ns = clock_ns();
    trace_begin_part(&o->part.trace, &r->trace);
    o->part.ran = r->ran ? json_copy(r->ran) : NULL;
    buf_init(&o->text, (size_t)1 << 20);
    buf_init(&o->part.answer, CACHE_MAX_BYTES);
    if (!(o->messages = step_messages(r, o->step->prompt, before)) || !o->part.record)
        o->rc = err_set(&o->err, CHIMERE_ENOMEM, "out of memory");
    odo_note(r, "step",
             json_pack("{s:s, s:s, s:i}", "agent", o->step->agent, "state", "start", "group",
                       o->step->group));
}

/* outputs: {agent: text}, the newest of each; the order is that of their first run. */
static void end(struct odo_run *r, struct outcome *o, bool alone, json_t *outputs) {
    struct odo_run *part = &o->part;
    trace_end_part(&r->trace, &part->trace, "step", o->start_ns, o->rc != 0,
                   r->trace.spans
                       ? json_pack("{s:s, s:i, s:i}", "odo.agent", o->step->agent, "odo.attempts",
                                   o->attempts, "odo.group", o->step->group)
                       : NULL);
    odo_spend(r, &part->stats, o->final ? part->n_reasoning : part->stats.n_generated);
    r->tainted |= part->tainted;
    r->tainted_local |= part->tainted_local;
    if (json_object_get(part->record, "tools_withheld"))
        json_object_set(r->record, "tools_withheld",
                        json_object_get(part->record, "tools_withheld"));
    json_array_extend(json_object_get(r->record, "tools"), json_object_get(part->record, "tools"));
    json_decref(part->record);
    if (!r->ran) r->ran = json_array();
    for (size_t i = o->n_ran; i < json_array_size(part->ran); ++i)
        json_array_append(r->ran, json_array_get(part->ran, i));
    json_decref(part->ran);
    if (o->final && !o->rc && part->answer.n) buf_put(&r->answer, part->answer.p, part->answer.n);
    r->n_client_call += part->n_client_call;
    buf_fini(&part->answer);
    if (o->held && !o->rc && o->text.n) {
        odo_answer(r, o->text.p, o->text.n);
    } else if (!alone && !o->rc) {
        odo_say(r, true, o->text.n ? o->text.p : "", o->text.n);
    }
    if (!o->final && !o->rc && o->text.n) odo_say(r, true, "\n\n", 2);
    json_t *note = json_pack("{s:s, s:s, s:i, s:i, s:i, s:s}", "agent", o->step->agent, "state",
                             o->rc ? "failed" : "done", "bytes", (int)o->text.n, "tokens",
                             (int)part->stats.n_generated, "attempts", o->attempts, "error",
                             o->rc ? o->err.text : "");
    json_array_append(json_object_get(r->record, "steps"), note);
    odo_note(r, "step", note);
    if (!o->rc && o->text.n)
        json_object_set_new(outputs, o->step->agent, json_stringn_nocheck(o->text.p, o->text.n));
}

/* Writes the newest outputs, for the prompt of the next agents. */
static void put_outputs(const json_t *outputs, struct buf *before) {
    const char *agent;
    json_t *text;
    json_object_foreach((json_t *)outputs, agent, text)
        buf_printf(before, "[%s]\n%s\n\n", agent, json_string_value(text));
}

static const char *output_of(const struct odo_run *r, const struct pipeline_cond *c,
                             const json_t *outputs) {
    return c->step ? json_string_value(json_object_get(outputs, c->step)) : r->question;
}

static void note_skipped(struct odo_run *r, const struct pipeline_step *s, const char *why) {
    json_t *note = json_pack("{s:s, s:s, s:s}", "agent", s->agent, "state", "skipped", "why", why);
    json_array_append(json_object_get(r->record, "steps"), note);
    odo_note(r, "step", note);
}

/* Waits until the user allows the step. The user sees what the agents before it wrote. */
static int approve(struct odo_run *r, const struct pipeline_step *s, const struct buf *before,
                   struct err *e) {
    char id[CONFIRM_ID_BYTES], name[128];
    size_t n = before->n < MOST_SHOWN ? before->n : MOST_SHOWN;
    while (n && n < before->n && ((unsigned char)before->p[n] & 0xc0) == 0x80) --n;
    int64_t deadline = clock_ns() + (int64_t)CONFIRM_S * 1000000000;
    if (r->request->deadline_ns && r->request->deadline_ns < deadline)
        deadline = r->request->deadline_ns;
    snprintf(name, sizeof name, "step %.100s", s->agent);
    json_t *seen = json_pack("{s:s, s:s#}", "step", s->agent, "work", n ? before->p : "", (int)n);
    char *text = seen ? json_dumps(seen, JSON_COMPACT) : NULL;
    json_decref(seen);
    int rc = text ? confirm_begin(r->odo->confirms, r->owner, name, text, id, e)
                  : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) {
        odo_note(r, "confirm",
                 json_pack("{s:s, s:s, s:s, s:f}", "id", id, "name", name, "arguments", text,
                           "wait_s", (double)(deadline - clock_ns()) * 1e-9));
        rc = confirm_wait(r->odo->confirms, id, deadline, r->cancelled, e);
    }
    mem_free(text);
    if (rc) err_prefix(e, "%s", name);
    return rc;
}

/* Decides which agents of a group run, in their order. */
static int admit(struct odo_run *r, struct outcome *list, int32_t n, const json_t *outputs,
                 const struct buf *before, int32_t *n_run, struct err *e) {
    int rc = 0;
    *n_run = 0;
    for (int32_t i = 0; i < n && !rc; ++i) {
        const struct pipeline_step *s = list[i].step;
        list[i].skipped = !pipeline_holds(&s->when, output_of(r, &s->when, outputs));
        if (list[i].skipped) note_skipped(r, s, "its condition does not hold");
        else if (s->approve) rc = approve(r, s, before, e);
        *n_run += !list[i].skipped;
    }
    return rc;
}

static int group(struct odo_run *r, struct outcome *list, int32_t n, json_t *outputs,
                 struct err *e) {
    struct buf before;
    int32_t n_run = 0;
    buf_init(&before, (size_t)4 << 20);
    put_outputs(outputs, &before);
    int rc = before.failed ? err_set(e, CHIMERE_ENOMEM, "out of memory")
                           : admit(r, list, n, outputs, &before, &n_run, e);
    /* each agent needs at least one token */
    if (rc || !n_run || (r->n_left != INT32_MAX && r->n_left < n_run)) {
        buf_fini(&before);
        return rc;
    }
    for (int32_t i = 0; i < n; ++i)
        if (!list[i].skipped) begin(r, &list[i], n_run, &before);
    for (int32_t i = 1; i < n; ++i)
        if (!list[i].rc && !list[i].skipped)
            list[i].threaded = !pthread_create(&list[i].thread, NULL, work, &list[i]);
    for (int32_t i = 0; i < n; ++i)
        if (!list[i].rc && !list[i].skipped && !list[i].threaded) work(&list[i]);
    int n_good = 0;
    for (int32_t i = 0; i < n; ++i) {
        struct outcome *o = &list[i];
        if (o->skipped) continue;
        if (o->threaded) pthread_join(o->thread, NULL);
        end(r, o, n_run == 1, outputs);
        if (o->rc) {
            rc = o->rc;
            *e = o->err;
        } else {
            ++n_good;
        }
    }
    buf_fini(&before);
    return n_good ? 0 : rc;
}

bool odo_is_spent(const struct odo_run *r) {
    return r->n_left <= 0 || (r->request->deadline_ns && clock_ns() >= r->request->deadline_ns);
}

/* Returns the step at which to continue after step `last`: the start of a loop that ends there, or the next step. */
static int32_t next_step(const struct odo_run *r, int32_t last, int32_t *n_done,
                         const json_t *outputs) {
    const struct pipeline *p = r->d.pipeline;
    for (int32_t i = 0; i < p->n_loop; ++i) {
        const struct pipeline_loop *l = &p->loops[i];
        if (l->last != last) continue;
        if (++n_done[i] < l->most && !pipeline_holds(&l->until, output_of(r, &l->until, outputs)))
            return l->first;
    }
    return last + 1;
}

/* If the last agent failed, the results of the others are sent, marked as partial. */
static int partial(struct odo_run *r, const struct buf *before, enum finish *finish) {
    json_object_set_new(r->record, "partial", json_true());
    odo_say(r, false, before->p, before->n);
    *finish = FINISH_STOP;
    return 0;
}

/* Runs the group of steps that begins at step i. Returns its number of steps. */
static int32_t run_at(struct odo_run *r, int32_t i, struct outcome *list, json_t *outputs,
                      enum finish *finish, int *rc, struct err *e) {
    const struct pipeline *p = r->d.pipeline;
    int32_t n = 1;
    while (i + n < p->n_step && p->steps[i + n].group == p->steps[i].group) ++n;
    memset(list, 0, (size_t)n * sizeof *list);
    for (int32_t k = 0; k < n; ++k) {
        list[k].step = &p->steps[i + k];
        list[k].final = i + k == p->n_step - 1;
    }
    *rc = group(r, list, n, outputs, e);
    for (int32_t k = 0; k < n; ++k) {
        if (!list[k].skipped && list[k].messages) *finish = list[k].finish;
        json_decref(list[k].messages);
        buf_fini(&list[k].text);
    }
    return n;
}

int odo_steps(struct odo_run *r, enum finish *finish, struct err *e) {
    const struct pipeline *p = r->d.pipeline;
    struct outcome *list = mem_alloc_array(PIPELINE_MAX_STEPS, sizeof *list);
    json_t *outputs = json_object();
    int32_t n_done[PIPELINE_MAX_LOOPS] = {0};
    struct buf before;
    struct err why = {0};
    int rc = list && outputs ? 0 : err_set(&why, CHIMERE_ENOMEM, "out of memory");
    bool spent = odo_is_spent(r);
    for (int32_t i = 0; i < p->n_step && !rc && !spent && !*r->cancelled;) {
        int32_t n = run_at(r, i, list, outputs, finish, &rc, &why);
        if (!rc) i = next_step(r, i + n - 1, n_done, outputs);
        spent = i < p->n_step && odo_is_spent(r);
    }
    buf_init(&before, (size_t)4 << 20);
    put_outputs(outputs, &before);
    if ((rc || spent) && before.n && !*r->cancelled) {
        if (rc) json_object_set_new(r->record, "failed_step", json_string(why.text));
        rc = partial(r, &before, finish);
    } else if (rc && e) {
        *e = why;
    }
    if (!rc && spent) *finish = FINISH_LENGTH;
    buf_fini(&before);
    json_decref(outputs);
    mem_free(list);
    return rc;
}

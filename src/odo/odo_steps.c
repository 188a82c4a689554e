/* odo_steps.c: runs a pipeline's agents, in sequence or concurrently. Each agent sees the earlier results. */
#include <string.h>

#include "base/mem.h"
#include "odo/odo_impl.h"

struct outcome {
    struct odo_run part;
    const struct pipeline_step *step;
    json_t *messages; /* owned */
    struct buf text;
    enum finish finish;
    struct err err;
    int rc;
    bool final;
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

/* Runs one agent's part of the run. The part has its own counts and taint; it shares the run's sink and cancel
 * flag. */
static void *work(void *ud) {
    struct outcome *o = ud;
    struct odo_round round = {.sampling = &o->step->sampling,
                              .tools = o->step->tools,
                              .rounds = o->step->rounds,
                              .final = o->final,
                              .messages = o->messages};
    o->rc = odo_loop(&o->part, &round, &o->text, &o->finish, &o->err);
    return NULL;
}

static void begin(struct odo_run *r, struct outcome *o, bool alone, const struct buf *before) {
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
                               .skill = r->skill,
                               .skill_tool = r->skill_tool,
                               .keep_talk = r->keep_talk,
                               .cancelled = r->cancelled,
                               .sink_lock = r->sink_lock,
                               .quiet = !alone,
                               .tainted = r->tainted,
                               .tainted_local = r->tainted_local,
                               .all_said = r->all_said,
                               .all_cite = r->all_cite,
                               .told_confirm = r->told_confirm,
                               .n_left = r->n_left,
                               .choice = r->choice,
                               .record = json_pack("{s:[]}", "tools")};
    o->n_ran = json_array_size(r->ran);
    o->part.ran = r->ran ? json_copy(r->ran) : NULL;
    buf_init(&o->text, (size_t)1 << 20);
    buf_init(&o->part.answer, CACHE_MAX_BYTES);
    if (!(o->messages = step_messages(r, o->step->prompt, before)) || !o->part.record)
        o->rc = err_set(&o->err, CHIMERE_ENOMEM, "out of memory");
    odo_note(r, "step",
             json_pack("{s:s, s:s, s:i}", "agent", o->step->agent, "state", "start", "group",
                       o->step->group));
}

static void end(struct odo_run *r, struct outcome *o, bool alone, struct buf *before) {
    struct odo_run *part = &o->part;
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
    if (!alone && !o->rc) odo_say(r, true, o->text.n ? o->text.p : "", o->text.n);
    if (!o->final && !o->rc && o->text.n) odo_say(r, true, "\n\n", 2);
    json_t *note = json_pack("{s:s, s:s, s:i, s:i, s:s}", "agent", o->step->agent, "state",
                             o->rc ? "failed" : "done", "bytes", (int)o->text.n, "tokens",
                             (int)part->stats.n_generated, "error", o->rc ? o->err.text : "");
    json_array_append(json_object_get(r->record, "steps"), note);
    odo_note(r, "step", note);
    if (!o->rc && o->text.n) buf_printf(before, "[%s]\n%s\n\n", o->step->agent, o->text.p);
}

static int group(struct odo_run *r, struct outcome *list, int32_t n, struct buf *before) {
    for (int32_t i = 0; i < n; ++i) begin(r, &list[i], n == 1, before);
    for (int32_t i = 1; i < n; ++i)
        if (!list[i].rc) list[i].threaded = !pthread_create(&list[i].thread, NULL, work, &list[i]);
    for (int32_t i = 0; i < n; ++i)
        if (!list[i].rc && !list[i].threaded) work(&list[i]);
    int rc = 0, n_good = 0;
    for (int32_t i = 0; i < n; ++i) {
        struct outcome *o = &list[i];
        if (o->threaded) pthread_join(o->thread, NULL);
        end(r, o, n == 1, before);
        if (o->rc) rc = o->rc;
        else ++n_good;
    }
    return n_good ? 0 : rc;
}

/* If the last agent failed, the results of the others are sent, marked as partial. */
static int partial(struct odo_run *r, const struct buf *before, enum finish *finish) {
    json_object_set_new(r->record, "partial", json_true());
    odo_say(r, false, before->p, before->n);
    *finish = FINISH_STOP;
    return 0;
}

int odo_steps(struct odo_run *r, enum finish *finish, struct err *e) {
    const struct pipeline *p = r->d.pipeline;
    struct outcome *list = mem_alloc_array(PIPELINE_MAX_STEPS, sizeof *list);
    if (!list) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    struct buf before;
    buf_init(&before, (size_t)4 << 20);
    int rc = 0;
    for (int32_t i = 0; i < p->n_step && !rc && !*r->cancelled;) {
        int32_t n = 1;
        while (i + n < p->n_step && p->steps[i + n].group == p->steps[i].group) ++n;
        memset(list, 0, (size_t)n * sizeof *list);
        for (int32_t k = 0; k < n; ++k) {
            list[k].step = &p->steps[i + k];
            list[k].final = i + k == p->n_step - 1;
        }
        rc = group(r, list, n, &before);
        for (int32_t k = 0; k < n; ++k) {
            if (rc && list[k].rc == rc && e) *e = list[k].err;
            *finish = list[k].finish;
            json_decref(list[k].messages);
            buf_fini(&list[k].text);
        }
        i += n;
    }
    if (rc && before.n && !*r->cancelled) rc = partial(r, &before, finish);
    buf_fini(&before);
    mem_free(list);
    return rc;
}

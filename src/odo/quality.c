#include "odo/quality.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "jobs/jobs.h"
#include "strategy/prm.h"
#include "store/quality.h"

enum { JUDGE_MS = 60000 };

struct entry {
    struct quality *q;                                              /* view */
    char *name, *route, *owner, *model, *question, *answer, *draft; /* owned; draft may be NULL */
    int64_t night;
    json_t *candidates; /* owned; or NULL */
    double score, draft_score;
    int32_t winner;
    bool keep;
};

struct quality {
    struct backend *backend; /* borrowed */
    struct store *store;     /* borrowed */
    struct jobs *jobs;       /* owned */
    /* "quality" and the judge's name: processes with the same judge share the answers that may be kept */
    char kind[JOBS_MAX_NAME + 1];
    struct jobs_kind shared;
    _Atomic uint64_t n_judged, n_dropped, n_failed;
};

int quality_grade(double score) {
    return score >= 0.9 ? 5 : score >= 0.7 ? 4 : score >= 0.5 ? 3 : score >= 0.3 ? 2 : 1;
}

static void entry_free(void *entry) {
    struct entry *x = entry;
    if (!x) return;
    mem_free(x->name);
    mem_free(x->route);
    mem_free(x->owner);
    mem_free(x->model);
    mem_free(x->question);
    mem_free(x->answer);
    mem_free(x->draft);
    json_decref(x->candidates);
    mem_free(x);
}

/* ---- judging and writing ---- */

static int judge(struct entry *x, _Atomic bool *cancelled) {
    struct prm_item it = {.problem = x->question, .solution = x->answer};
    const struct prm_use use = {.backend = x->q->backend,
                                .cancelled = cancelled,
                                .deadline_ns = clock_ns() + (int64_t)JUDGE_MS * 1000000};
    int rc = prm_score(&use, &it, 1, NULL);
    if (!rc && it.failed) rc = CHIMERE_EBUSY;
    if (!rc && (it.verdict.n_said || it.verdict.has_whole)) x->score = it.verdict.score;
    if (!rc) prm_drop(&it);
    return rc;
}

static int write_alternative(struct quality *q, const struct entry *x, struct store_quality row,
                             const char *origin, const char *answer, double score, struct err *e) {
    row.name = NULL;
    row.origin = origin;
    row.answer = x->keep ? answer : NULL;
    row.score = score;
    return store_quality_add(q->store, &row, NULL, e);
}

static int write_rows(struct quality *q, const struct entry *x, struct err *e) {
    struct store_quality row = {.name = x->name,
                                .route = x->route,
                                .owner = x->owner,
                                .night = x->night,
                                .model = x->model,
                                .origin = "answer",
                                .question = x->keep ? x->question : NULL,
                                .answer = x->keep ? x->answer : NULL,
                                .score = x->score,
                                .judge = q->backend->name};
    int64_t id = 0;
    int rc = store_quality_add(q->store, &row, &id, e);
    if (!rc && !id) return 0; /* of a process that ended, or lost the job, after it wrote them */
    row.parent = id;
    if (!rc && x->draft) rc = write_alternative(q, x, row, "draft", x->draft, x->draft_score, e);
    json_t *c;
    size_t i;
    json_array_foreach(x->candidates, i, c) {
        const char *text = json_string_value(json_object_get(c, "text"));
        if (rc || (int32_t)i == x->winner || !text || !*text || !strcmp(text, x->answer)) continue;
        rc = write_alternative(q, x, row, "candidate", text,
                               json_number_value(json_object_get(c, "score")), e);
    }
    return rc;
}

static int work(struct jobs_run *run, void *arg, struct err *e) {
    struct entry *x = arg;
    struct quality *q = x->q;
    _Atomic bool *cancelled = jobs_cancel_flag(run);
    bool judges = isnan(x->score) && strlen(x->answer) >= QUALITY_LEAST;
    int rc = judges ? judge(x, cancelled) : 0;
    if (rc) err_set(e, rc, "quality: the model gave no verdict");
    int wrote = *cancelled ? 0 : write_rows(q, x, e);
    if (wrote) {
        log_warn("quality: %s", e->text);
        rc = wrote;
    }
    if (rc) q->n_failed++;
    else q->n_judged++;
    return rc;
}

/* ---- as texts, for other processes ---- */

static json_t *number_or_null(double x) { return isnan(x) ? json_null() : json_real(x); }
static double number_of(const json_t *v) { return json_is_number(v) ? json_number_value(v) : NAN; }

/* Returns NULL if the answer may not be kept, and so not be written to the store, or if memory is short. */
static char *text_of(const struct entry *x) {
    json_t *o =
        !x->keep
            ? NULL
            : json_pack("{s:s, s:s, s:s, s:I, s:s, s:s, s:s*, s:O*, s:o, s:o, s:i}", "route",
                        x->route, "owner", x->owner, "model", x->model, "night",
                        (json_int_t)x->night, "question", x->question, "answer", x->answer, "draft",
                        x->draft, "candidates", x->candidates, "score", number_or_null(x->score),
                        "draft_score", number_or_null(x->draft_score), "winner", x->winner);
    char *text = o ? json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(o);
    return text;
}

static char *string_of(const json_t *o, const char *key) {
    const char *text = json_string_value(json_object_get(o, key));
    return text ? mem_strdup(text) : NULL;
}

static int read_entry(void *ud, const char *name, const char *body, struct jobs_spec *out,
                      struct err *e) {
    json_t *o = json_loads(body, 0, NULL), *c = json_object_get(o, "candidates");
    struct entry *x = mem_zalloc(sizeof *x);
    if (x) {
        *x = (struct entry){.q = ud,
                            .name = mem_strdup(name),
                            .route = string_of(o, "route"),
                            .owner = string_of(o, "owner"),
                            .model = string_of(o, "model"),
                            .question = string_of(o, "question"),
                            .answer = string_of(o, "answer"),
                            .draft = string_of(o, "draft"),
                            .night = json_integer_value(json_object_get(o, "night")),
                            .candidates = json_is_array(c) ? json_incref(c) : NULL,
                            .score = number_of(json_object_get(o, "score")),
                            .draft_score = number_of(json_object_get(o, "draft_score")),
                            .winner = (int32_t)json_integer_value(json_object_get(o, "winner")),
                            .keep = true};
    }
    json_decref(o);
    if (!x || !x->name || !x->route || !x->owner || !x->model || !x->question || !x->answer) {
        entry_free(x);
        return err_set(e, CHIMERE_EFORMAT, "quality: an answer of another version is dropped");
    }
    *out = (struct jobs_spec){.work = work, .drop = entry_free, .arg = x};
    return 0;
}

/* ---- the queue ---- */

int quality_open(struct quality **out, struct backend *backend, struct store *store,
                 struct err *e) {
    *out = NULL;
    struct quality *q = mem_zalloc(sizeof *q);
    if (!q) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    q->backend = backend;
    q->store = store;
    snprintf(q->kind, sizeof q->kind, "quality %.120s", backend->name);
    q->shared = (struct jobs_kind){.kind = q->kind, .read = read_entry, .ud = q};
    const struct jobs_params p = {
        .max_queued = QUALITY_QUEUE, .store = store, .kinds = &q->shared, .n_kind = 1};
    int rc = jobs_open(&q->jobs, &p, e);
    if (rc) mem_free(q);
    else *out = q;
    return rc;
}

void quality_close(struct quality *q) {
    if (!q) return;
    jobs_close(q->jobs);
    mem_free(q);
}

static struct entry *entry_of(struct quality *q, const struct quality_answer *a) {
    struct entry *x = mem_zalloc(sizeof *x);
    if (!x) return NULL;
    x->q = q;
    x->model = mem_strdup(q->backend->name);
    x->name = mem_strdup(a->name);
    x->route = mem_strdup(a->route);
    x->owner = mem_strdup(a->owner ? a->owner : "");
    x->night = a->night;
    x->question = mem_strdup(a->question);
    x->answer = mem_strdup(a->answer);
    x->draft = a->draft ? mem_strdup(a->draft) : NULL;
    x->candidates = a->candidates ? json_deep_copy(a->candidates) : NULL;
    x->score = a->score;
    x->draft_score = a->draft_score;
    x->winner = a->winner;
    x->keep = a->keep;
    if (x->name && x->route && x->owner && x->model && x->question && x->answer) return x;
    entry_free(x);
    return NULL;
}

bool quality_post(struct quality *q, const struct quality_answer *a) {
    size_t n = strlen(a->answer);
    if ((n < QUALITY_LEAST && !a->keep_short) || n > QUALITY_MAX_TEXT ||
        strlen(a->question) > QUALITY_MAX_TEXT)
        return false;
    struct entry *x = entry_of(q, a);
    char *text = x ? text_of(x) : NULL;
    const struct jobs_spec job = {.kind = q->kind,
                                  .name = a->name,
                                  .work = work,
                                  .drop = entry_free,
                                  .arg = x,
                                  .body = text,
                                  .person = a->owner};
    bool ok = x && !jobs_post(q->jobs, &job, NULL, NULL);
    mem_free(text);
    if (ok) return true;
    entry_free(x);
    q->n_dropped++;
    return false;
}

void quality_wait(struct quality *q) { jobs_wait(q->jobs, 0); }

void quality_metrics(struct quality *q, struct buf *out) {
    buf_printf(out,
               "# TYPE chimere_odo_quality_total counter\n"
               "chimere_odo_quality_total{result=\"judged\"} %llu\n"
               "chimere_odo_quality_total{result=\"dropped\"} %llu\n"
               "chimere_odo_quality_total{result=\"failed\"} %llu\n",
               (unsigned long long)q->n_judged, (unsigned long long)q->n_dropped,
               (unsigned long long)q->n_failed);
}

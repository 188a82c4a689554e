#include "odo/quality.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "jobs/jobs.h"
#include "strategy/prm.h"
#include "store/quality.h"

enum { JUDGE_MS = 60000 };

struct entry {
    struct quality *q;                                      /* view */
    char *name, *route, *owner, *question, *answer, *draft; /* owned; draft may be NULL */
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
                                .model = q->backend->name,
                                .origin = "answer",
                                .question = x->keep ? x->question : NULL,
                                .answer = x->keep ? x->answer : NULL,
                                .score = x->score,
                                .judge = q->backend->name};
    int64_t id = 0;
    int rc = store_quality_add(q->store, &row, &id, e);
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

/* ---- the queue ---- */

int quality_open(struct quality **out, struct backend *backend, struct store *store,
                 struct err *e) {
    *out = NULL;
    struct quality *q = mem_zalloc(sizeof *q);
    if (!q) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    q->backend = backend;
    q->store = store;
    const struct jobs_params p = {.max_queued = QUALITY_QUEUE, .store = store};
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

static struct entry *entry_of(const struct quality_answer *a) {
    struct entry *x = mem_zalloc(sizeof *x);
    if (!x) return NULL;
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
    if (x->name && x->route && x->owner && x->question && x->answer) return x;
    entry_free(x);
    return NULL;
}

bool quality_post(struct quality *q, const struct quality_answer *a) {
    size_t n = strlen(a->answer);
    if ((n < QUALITY_LEAST && !a->keep_short) || n > QUALITY_MAX_TEXT ||
        strlen(a->question) > QUALITY_MAX_TEXT)
        return false;
    struct entry *x = entry_of(a);
    if (x) x->q = q;
    const struct jobs_spec job = {
        .kind = "quality", .name = a->name, .work = work, .drop = entry_free, .arg = x};
    if (x && !jobs_post(q->jobs, &job, NULL, NULL)) return true;
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

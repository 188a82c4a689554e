#include "learn/data/judge.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "store/quality.h"
#include "strategy/grade.h"

enum { JUDGE_MS = 120000, MAX_FAILED = 3 }; /* for one answer; failures in a row */

struct task {
    int64_t id;
    bool is_rated;
    char *question, *answer; /* owned */
};
struct tasks {
    struct task *v; /* owned [n] */
    size_t n;
    const char *name;
};

static bool is_judged(const struct store_quality *q, const char *name) {
    return !isnan(q->score) && q->judge && !strcmp(q->judge, name);
}

/* Copies the texts: judging takes long, and the list holds the store. */
static int list_task(void *ud, const struct store_quality *q) {
    struct tasks *t = ud;
    if (!q->question || !q->answer || is_judged(q, t->name) || t->n == JUDGE_MAX_ITEMS) return 0;
    if (strlen(q->question) > PRM_MAX_PROBLEM || strlen(q->answer) > PRM_MAX_SOLUTION) return 0;
    struct task *x = &t->v[t->n];
    *x = (struct task){.id = q->id,
                       .is_rated = q->feedback > 0,
                       .question = mem_strdup(q->question),
                       .answer = mem_strdup(q->answer)};
    t->n++;
    return x->question && x->answer ? 0 : CHIMERE_ENOMEM;
}

/* Returns the score of the steps; NaN: no verdict. */
static double score_steps(const struct task *t, const struct judge *j, struct err *e) {
    struct prm_item it = {.problem = t->question, .solution = t->answer};
    const struct prm_use use = {.reward = j->reward,
                                .backend = j->prover,
                                .deadline_ns = clock_ns() + (int64_t)JUDGE_MS * 1000000};
    int rc = prm_score(&use, &it, 1, e);
    bool has_said = !rc && !it.failed && (it.verdict.n_said || it.verdict.has_whole);
    double score = has_said ? it.verdict.score : NAN;
    prm_drop(&it);
    return score;
}

static double score_whole(const struct task *t, const struct judge *j, struct err *e) {
    const struct grade_ask ask = {.backend = j->grader,
                                  .question = t->question,
                                  .answer = t->answer,
                                  .deadline_ns = clock_ns() + (int64_t)JUDGE_MS * 1000000};
    double grade;
    return grade_answer(&grade, &ask, e) ? NAN : (grade - 1) / 4;
}

static int judge_one(const struct task *t, struct store *s, const struct judge *j, bool *is_done,
                     struct err *failure, struct err *e) {
    bool has_steps = j->reward || j->prover;
    double steps = has_steps ? score_steps(t, j, failure) : NAN,
           whole = j->grader ? score_whole(t, j, failure) : NAN,
           score = !has_steps   ? whole
                   : !j->grader ? steps
                                : (steps + whole) / 2;
    *is_done = isfinite(score);
    return *is_done ? store_quality_judge(s, t->id, score, j->name, e) : 0;
}

struct rated {
    const char *name;
    double *good, *bad; /* owned [JUDGE_MAX_RATED]: scores */
    size_t n_good, n_bad;
};

static int list_rated(void *ud, const struct store_quality *q) {
    struct rated *r = ud;
    if (!is_judged(q, r->name)) return 0;
    if (q->feedback >= 4 && r->n_good < JUDGE_MAX_RATED) r->good[r->n_good++] = q->score;
    if (q->feedback >= 1 && q->feedback <= 2 && r->n_bad < JUDGE_MAX_RATED)
        r->bad[r->n_bad++] = q->score;
    return 0;
}

static int compare(struct judge_report *out, struct store *s, const char *name, struct err *e) {
    struct rated r = {.name = name};
    r.good = mem_alloc_array(JUDGE_MAX_RATED, sizeof *r.good);
    r.bad = mem_alloc_array(JUDGE_MAX_RATED, sizeof *r.bad);
    int rc = r.good && r.bad ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = store_quality_list(s, 0, list_rated, &r, e);
    double sum = 0;
    for (size_t i = 0; i < r.n_good; i++)
        for (size_t k = 0; k < r.n_bad; k++)
            sum += r.good[i] > r.bad[k] ? 1 : r.good[i] < r.bad[k] ? 0 : 0.5;
    out->n_good = r.n_good;
    out->n_bad = r.n_bad;
    out->auc = r.n_good && r.n_bad ? sum / (double)r.n_good / (double)r.n_bad : NAN;
    mem_free(r.good);
    mem_free(r.bad);
    return rc;
}

/* Judges the answers that users rated, or the others, the newest first. */
static int judge_some(struct judge_report *out, struct store *s, const struct judge *j,
                      const struct tasks *t, bool rated, struct err *e) {
    int rc = 0, n_failed = 0;
    for (size_t i = t->n; !rc && i && n_failed < MAX_FAILED; i--) {
        struct err failure = {0};
        bool is_done;
        if (t->v[i - 1].is_rated != rated) continue;
        if (j->goes_on && !j->goes_on(j->ud)) break;
        rc = judge_one(&t->v[i - 1], s, j, &is_done, &failure, e);
        out->n_judged += is_done;
        out->n_failed += !is_done;
        n_failed = is_done ? 0 : n_failed + 1;
        if (n_failed == MAX_FAILED)
            snprintf(out->why, sizeof out->why, "%s",
                     failure.text[0] ? failure.text : "it writes no verdict");
    }
    return rc;
}

static bool users_disagree(const struct judge_report *r) {
    return r->n_good >= JUDGE_LEAST_RATED && r->n_bad >= JUDGE_LEAST_RATED &&
           r->auc < JUDGE_LEAST_AUC;
}

int judge_day(struct judge_report *out, struct store *s, const struct judge *j, struct err *e) {
    struct tasks t = {.name = j->name};
    *out = (struct judge_report){.auc = NAN};
    t.v = mem_alloc_array(JUDGE_MAX_ITEMS, sizeof *t.v);
    int rc = t.v ? store_quality_list(s, 0, list_task, &t, e) : CHIMERE_ENOMEM;
    if (rc == CHIMERE_ENOMEM) err_set(e, rc, "out of memory");
    if (!rc) rc = judge_some(out, s, j, &t, true, e);
    if (!rc) rc = compare(out, s, j->name, e);
    out->is_refused = !rc && users_disagree(out);
    if (!rc && !out->is_refused && !out->why[0]) rc = judge_some(out, s, j, &t, false, e);
    for (size_t i = 0; i < t.n; i++) {
        mem_free(t.v[i].question);
        mem_free(t.v[i].answer);
    }
    mem_free(t.v);
    return rc;
}

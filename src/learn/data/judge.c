#include "learn/data/judge.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "store/quality.h"

struct task {
    int64_t id;
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
    *x = (struct task){
        .id = q->id, .question = mem_strdup(q->question), .answer = mem_strdup(q->answer)};
    t->n++;
    return x->question && x->answer ? 0 : CHIMERE_ENOMEM;
}

static int judge_one(const struct task *t, struct store *s, const struct judge *j, bool *is_done,
                     struct err *e) {
    struct prm_item it = {.problem = t->question, .solution = t->answer};
    const struct prm_use use = {.reward = j->reward};
    int rc = prm_score(&use, &it, 1, e);
    *is_done = !rc && !it.failed && it.verdict.n_said;
    if (*is_done) rc = store_quality_judge(s, t->id, it.verdict.score, j->name, e);
    prm_drop(&it);
    return rc;
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

int judge_day(struct judge_report *out, struct store *s, const struct judge *j, struct err *e) {
    struct tasks t = {.name = j->name};
    *out = (struct judge_report){.auc = NAN};
    t.v = mem_alloc_array(JUDGE_MAX_ITEMS, sizeof *t.v);
    int rc = t.v ? store_quality_list(s, 0, list_task, &t, e) : CHIMERE_ENOMEM;
    if (rc == CHIMERE_ENOMEM) err_set(e, rc, "out of memory");
    for (size_t i = t.n; !rc && i && (!j->goes_on || j->goes_on(j->ud)); i--) { /* newest first */
        bool is_done;
        rc = judge_one(&t.v[i - 1], s, j, &is_done, e);
        out->n_judged += is_done;
    }
    if (!rc) rc = compare(out, s, j->name, e);
    for (size_t i = 0; i < t.n; i++) {
        mem_free(t.v[i].question);
        mem_free(t.v[i].answer);
    }
    mem_free(t.v);
    return rc;
}

/* measure_judge.c: whether a model's grades tell its right answers from its wrong ones. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "odo/measure/measure_impl.h"
#include "odo/quality.h"
#include "strategy/prm.h"

enum { MOST_OF_EACH = 40, LEAST_OF_EACH = 10, JUDGE_MS = 60000 };
#define LEAST_AUC 0.65
#define LEAST_SIGMAS 2.0

/* Returns the probability that a right answer has a higher score than a wrong one; equal scores count half. */
static double auc_of(const double *right, int n_right, const double *wrong, int n_wrong) {
    double sum = 0;
    for (int i = 0; i < n_right; ++i)
        for (int k = 0; k < n_wrong; ++k)
            sum += right[i] > wrong[k] ? 1 : right[i] < wrong[k] ? 0 : 0.5;
    return n_right && n_wrong ? sum / n_right / n_wrong : 0.5;
}

/* Returns false if the judge gave no verdict. */
static bool grade(const struct measure_params *p, const char *question, const char *answer,
                  double *score) {
    struct prm_item it = {.problem = question, .solution = answer};
    const struct prm_use use = {.backend = p->bare,
                                .deadline_ns = clock_ns() + (int64_t)JUDGE_MS * 1000000};
    if (prm_score(&use, &it, 1, NULL)) return false;
    bool said = !it.failed && (it.verdict.n_said || it.verdict.has_whole);
    *score = said ? it.verdict.score : 0.5;
    prm_drop(&it);
    return true;
}

static const json_t *item_of(const json_t *items, const char *id) {
    json_t *item;
    size_t i;
    json_array_foreach((json_t *)items, i, item) {
        const char *own = json_string_value(json_object_get(item, "id"));
        if (own && id && !strcmp(own, id)) return item;
    }
    return NULL;
}

int measure_judge(json_t **out, const json_t *items, const json_t *run,
                  const struct measure_params *p, struct err *e) {
    double v[2][MOST_OF_EACH];
    int n[2] = {0};
    json_t *row;
    size_t i;
    const json_t *rows = json_object_get(run, "items");
    /* a stride spreads the graded answers over all suites */
    size_t step = json_array_size(rows) / (4 * (size_t)MOST_OF_EACH) + 1;
    json_array_foreach((json_t *)rows, i, row) {
        int right = json_is_true(json_object_get(row, "right"));
        const char *text = json_string_value(json_object_get(row, "text"));
        const json_t *item = item_of(items, json_string_value(json_object_get(row, "id")));
        if (i % step || !text || !*text || !item || n[right] == MOST_OF_EACH) continue;
        char *question = request_question(json_object_get(item, "messages"), &(bool){false});
        if (!question) return err_set(e, CHIMERE_ENOMEM, "out of memory");
        if (*question && grade(p, question, text, &v[right][n[right]])) ++n[right];
        mem_free(question);
    }
    double auc = auc_of(v[1], n[1], v[0], n[0]);
    /* standard deviation of the statistic if the grades were independent of the truth (Mann and Whitney) */
    double sigma = n[0] && n[1] ? sqrt((n[0] + n[1] + 1) / (12.0 * n[0] * n[1])) : 1;
    bool good = n[0] >= LEAST_OF_EACH && n[1] >= LEAST_OF_EACH && auc >= LEAST_AUC &&
                auc - 0.5 >= LEAST_SIGMAS * sigma;
    *out =
        json_pack("{s:f, s:i, s:i, s:b}", "auc", auc, "right", n[1], "wrong", n[0], "good", good);
    return *out ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
}

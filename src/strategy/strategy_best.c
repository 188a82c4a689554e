/* strategy_best.c: complete answers scored by a verifier: best of n, and votes weighted by its scores. */
#include <string.h>

#include "base/mem.h"
#include "strategy/prm.h"
#include "strategy/strategy_budget.h"
#include "strategy/strategy_impl.h"

/* Builds the text for the verifier: the answer, preceded by the thinking if the answer alone has no steps. */
static char *solution_of(const struct candidate *c) {
    struct prm_steps steps;
    const char *text = c->content.n ? c->content.p : "";
    prm_split(text, c->content.n, &steps);
    if (steps.n > 1 || !c->reasoning.n) return mem_strndup(text, c->content.n);
    struct buf b;
    buf_init(&b, (size_t)2 * BATCH_MAX_TEXT);
    buf_put(&b, c->reasoning.p, c->reasoning.n);
    /* thinking of one line is split into sentences, so the answer is appended to that line */
    buf_puts(&b, memchr(c->reasoning.p, '\n', c->reasoning.n) ? "\n" : " ");
    buf_put(&b, text, c->content.n);
    return buf_take(&b);
}

static bool is_equal(const struct buf *a, const struct buf *b) {
    return a->n == b->n && (!a->n || !memcmp(a->p, b->p, a->n));
}

static bool is_same(const struct candidate *a, const struct candidate *b) {
    return !a->failed && is_equal(&a->content, &b->content) &&
           is_equal(&a->reasoning, &b->reasoning);
}

int strategy_judge(const struct strategy_use *u, struct candidate *c, int32_t n,
                   struct strategy_result *r, struct err *e) {
    bool has_image;
    char *problem = request_question(u->request->messages, &has_image);
    struct prm_item *items = mem_alloc_array((size_t)n, sizeof *items);
    int32_t *who = mem_alloc_array((size_t)n, sizeof *who), m = 0;
    int rc = problem && items && who ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (int32_t i = 0; i < n && !rc; i++) {
        c[i].score = 0;
        if (c[i].failed) continue;
        c[i].score = 0.5;
        int32_t same = 0; /* equal texts are judged only once */
        while (same < i && !is_same(&c[same], &c[i])) same++;
        c[i].twin = same;
        if (same < i) continue;
        items[m] = (struct prm_item){.problem = problem, .solution = solution_of(&c[i])};
        if (!items[m].solution) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
        who[m++] = i;
    }
    int32_t left = strategy_left(u, r);
    if (!rc && m && left >= m && !strategy_over(u)) {
        const struct prm_use use = {.backend = u->backend,
                                    .reward = u->verifier,
                                    .cancelled = u->cancelled,
                                    .max_tokens = left == INT32_MAX ? 0 : left,
                                    .deadline_ns = strategy_deadline(u)};
        rc = prm_score(&use, items, m, e);
        for (int32_t k = 0; k < m && !rc; k++) {
            c[who[k]].score = items[k].verdict.score;
            strategy_count_check(r, &items[k].stats);
            prm_drop(&items[k]);
        }
    }
    for (int32_t i = 0; i < n && !rc; i++)
        if (!c[i].failed) c[i].score = c[c[i].twin].score;
    for (int32_t k = 0; k < m; k++) mem_free((char *)items[k].solution);
    mem_free(items);
    mem_free(who);
    mem_free(problem);
    return rc;
}

static int run(const struct strategy_use *u, bool votes, struct strategy_result *r, struct err *e) {
    int32_t n = u->strategy->n, winner = -1;
    struct candidate *c = mem_alloc_array((size_t)n, sizeof *c);
    if (!c) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    double share = 0;
    int rc = strategy_sample(u, c, n, r, e);
    if (!rc) rc = strategy_judge(u, c, n, r, e);
    if (!rc) winner = votes ? strategy_vote(c, n, true, &share) : strategy_pick(c, n);
    if (!rc) rc = strategy_give(u, c, n, winner, r, e);
    strategy_drop(c, n);
    mem_free(c);
    return rc;
}

int strategy_best(const struct strategy_use *u, struct strategy_result *r, struct err *e) {
    return run(u, false, r, e);
}

int strategy_weighted(const struct strategy_use *u, struct strategy_result *r, struct err *e) {
    return run(u, true, r, e);
}

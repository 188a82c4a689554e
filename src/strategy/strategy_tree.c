/* strategy_tree.c: answers grown step by step; the verifier chooses among the continuations.
 *
 * dvts: n / width subtrees with one branch each. In a round, every live branch gets `width` continuations of one
 * step, all generated at once. Each subtree keeps the continuation with the best score of the verifier. The result
 * is diverse, because no subtree can displace another (Beeching et al., 2024). beam: the same with one pool, in
 * which the n / width best continuations are kept.
 * A branch is continued as a message that its model has begun. The engine keeps the state before the branch's last
 * token; each continuation forks from that state and evaluates only that token. Every finished answer, kept or
 * not, votes at the end.
 *
 *      question --+-- step --+-- step (kept)        a round: n continuations are generated at once,
 *                 |          '-- step               then all new ones are judged at once
 *                 '-- step --- ...
 */
#include <string.h>

#include "base/mem.h"
#include "strategy/prm.h"
#include "strategy/strategy_budget.h"
#include "strategy/strategy_impl.h"

enum { MAX_DONE = 2 * STRATEGY_MAX_N };

struct branch {
    struct buf text;
    struct prm_verdict verdict; /* verdict on the steps so far */
    struct buf critique;        /* the verifier's text on them */
    double score;
    enum finish finish; /* valid if ended */
    bool alive, ended;
};

struct tree {
    const struct strategy_use *u;
    struct strategy_result *r;
    char *problem;      /* owned */
    const char **stops; /* owned [n_stop]: the request's stops, then step_ends */
    size_t n_stop;
    struct branch *kept;  /* owned [n_kept] */
    struct branch *grown; /* owned [n_kept * width] */
    int32_t n_kept, width;
    struct candidate *done; /* owned [MAX_DONE]: finished answers */
    int32_t n_done;
    int32_t max_tokens; /* limit of an answer */
    int32_t round;
    bool spent; /* no tokens are left */
};

static const char *const step_ends[] = {"\n", ". ", "; "};
enum { N_STEP_END = sizeof step_ends / sizeof *step_ends };

/* ---- branches ---- */

static void branch_init(struct branch *b) {
    *b = (struct branch){.score = 0.5, .finish = FINISH_LENGTH};
    buf_init(&b->text, BATCH_MAX_TEXT);
    buf_init(&b->critique, BATCH_MAX_TEXT);
}

static void branch_fini(struct branch *b) {
    buf_fini(&b->text);
    buf_fini(&b->critique);
}

static int branch_copy(struct branch *to, const struct branch *from) {
    buf_clear(&to->text);
    buf_clear(&to->critique);
    to->verdict = from->verdict;
    to->score = from->score;
    to->finish = from->finish;
    to->alive = from->alive;
    to->ended = from->ended;
    if (from->text.n) buf_put(&to->text, from->text.p, from->text.n);
    if (from->critique.n) buf_put(&to->critique, from->critique.p, from->critique.n);
    return to->text.failed || to->critique.failed ? CHIMERE_ENOMEM : 0;
}

/* ---- continuing ---- */

static json_t *begun(const json_t *messages, const struct buf *text) {
    json_t *all = json_copy((json_t *)messages);
    if (!all || !text->n) return all;
    json_t *m = json_pack("{s:s, s:s#}", "role", "assistant", "content", text->p, (int)text->n);
    if (json_array_append_new(all, m)) {
        json_decref(all);
        return NULL;
    }
    return all;
}

/* Appends the generated step to the branch, or marks the branch as ended. */
static void take_step(const struct tree *t, struct branch *b, const struct batch_request *it) {
    b->alive = it->finish != FINISH_ERROR && !it->has_calls;
    if (!b->alive) return;
    buf_put(&b->text, it->content.n ? it->content.p : "", it->content.n);
    const char *end = it->stop;
    bool ours = false;
    for (size_t i = 0; i < N_STEP_END && end; i++) ours |= !strcmp(end, step_ends[i]);
    for (size_t i = 0; i < t->u->request->n_stop && end; i++)
        ours &= strcmp(end, t->u->request->stops[i]) != 0;
    if (ours) {
        /* leave out the blank, because it belongs to the token of the next word */
        buf_put(&b->text, end, 1);
        return;
    }
    b->ended = it->finish == FINISH_STOP;
    if (it->finish == FINISH_STOP) b->finish = FINISH_STOP;
}

/* Generates `width` continuations, of one step each, of every live branch. */
static int grow(struct tree *t, struct err *e) {
    int32_t n = t->n_kept * t->width, m = 0;
    struct request *asks = mem_alloc_array((size_t)n, sizeof *asks);
    struct batch_request *items = mem_alloc_array((size_t)n, sizeof *items);
    struct branch **who = mem_alloc_array((size_t)n, sizeof *who);
    int rc = asks && items && who ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (int32_t i = 0; i < n && !rc; i++) {
        const struct branch *from = &t->kept[i / t->width];
        struct branch *to = &t->grown[i];
        to->alive = false;
        if (!from->alive || from->ended) continue;
        struct request *a = &asks[m];
        strategy_ask(t->u, t->round * n + i, a);
        a->think = false;
        a->keep_end = true;
        a->messages = begun(t->u->request->messages, &from->text);
        a->continue_last = from->text.n > 0;
        a->stops = t->stops;
        a->n_stop = t->n_stop;
        if (t->u->strategy->step_tokens < a->max_tokens)
            a->max_tokens = t->u->strategy->step_tokens;
        if (!a->messages || branch_copy(to, from)) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
        items[m] = (struct batch_request){.request = a};
        who[m++] = to;
    }
    if (!rc && m && !strategy_limit(t->u, t->r, asks, m)) {
        for (int32_t i = 0; i < m; i++) who[i]->alive = false;
        t->spent = true;
    } else if (!rc && m) {
        struct batch b = {.backend = t->u->backend,
                          .items = items,
                          .n = m,
                          .cancelled = t->u->cancelled,
                          .deadline_ns = strategy_deadline(t->u)};
        rc = batch_run(&b, e);
        for (int32_t k = 0; k < m; k++) {
            strategy_count(t->r, &items[k].stats, items[k].n_reasoning);
            take_step(t, who[k], &items[k]);
        }
        batch_fini(items, m);
    }
    for (int32_t k = 0; k < m; k++) json_decref(asks[k].messages);
    mem_free(asks);
    mem_free(items);
    mem_free(who);
    return rc;
}

/* ---- judging ---- */

static bool same_text(const struct branch *a, const struct branch *b) {
    return a->alive && b->alive && a->text.n == b->text.n &&
           (!a->text.n || !memcmp(a->text.p, b->text.p, a->text.n));
}

/* Judges all new continuations; equal texts are judged once. */
static int judge(struct tree *t, struct err *e) {
    int32_t n = t->n_kept * t->width, m = 0;
    struct prm_item *items = mem_alloc_array((size_t)n, sizeof *items);
    int32_t *who = mem_alloc_array((size_t)n, sizeof *who);
    int rc = items && who ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (int32_t i = 0; i < n && !rc; i++) {
        struct branch *b = &t->grown[i];
        int32_t twin = 0;
        while (twin < i && !same_text(&t->grown[twin], b)) twin++;
        if (!b->alive || twin < i || !b->text.n) continue;
        items[m] = (struct prm_item){.problem = t->problem,
                                     .solution = b->text.p,
                                     .is_part = !b->ended,
                                     .known = &b->verdict,
                                     .before = b->critique.n ? b->critique.p : NULL};
        who[m++] = i;
    }
    int32_t left = strategy_left(t->u, t->r);
    if (!rc && m && left >= m && !strategy_over(t->u)) {
        const struct prm_use use = {.backend = t->u->backend,
                                    .reward = t->u->verifier,
                                    .cancelled = t->u->cancelled,
                                    .max_tokens = left == INT32_MAX ? 0 : left,
                                    .deadline_ns = strategy_deadline(t->u)};
        rc = prm_score(&use, items, m, e);
        for (int32_t k = 0; k < m && !rc; k++) {
            struct branch *b = &t->grown[who[k]];
            strategy_count_check(t->r, &items[k].stats);
            b->verdict = items[k].verdict;
            b->score = items[k].verdict.score;
            buf_clear(&b->critique);
            buf_put(&b->critique, items[k].critique.n ? items[k].critique.p : "",
                    items[k].critique.n);
            prm_drop(&items[k]);
        }
    }
    for (int32_t i = 1; i < n && !rc; i++) {
        int32_t twin = 0;
        while (twin < i && !same_text(&t->grown[twin], &t->grown[i])) twin++;
        if (twin < i && branch_copy(&t->grown[i], &t->grown[twin]))
            rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    }
    mem_free(items);
    mem_free(who);
    return rc;
}

/* ---- selection ---- */

static void finish_branch(struct tree *t, const struct branch *b) {
    if (t->n_done == MAX_DONE || !b->text.n) return;
    struct candidate *c = &t->done[t->n_done++];
    *c = (struct candidate){.finish = b->finish, .score = b->score};
    buf_init(&c->content, BATCH_MAX_TEXT);
    buf_init(&c->reasoning, 0);
    buf_put(&c->content, b->text.p, b->text.n);
    strategy_key(b->text.p, b->text.n, c->key);
}

/* Returns the best of grown[from .. to) that is not taken yet; -1: none left. */
static int32_t best_of(const struct tree *t, int32_t from, int32_t to, const bool *taken) {
    int32_t best = -1;
    for (int32_t i = from; i < to; i++)
        if (t->grown[i].alive && !taken[i] &&
            (best < 0 || t->grown[i].score > t->grown[best].score))
            best = i;
    return best;
}

/* Moves ended continuations to done. Each kept branch takes the best continuation of its own (dvts) or of all
 * branches (beam). */
static int keep(struct tree *t, bool pool, struct err *e) {
    int32_t n = t->n_kept * t->width;
    bool taken[STRATEGY_MAX_N] = {false};
    int rc = 0;
    for (int32_t i = 0; i < n; i++) {
        if (!t->grown[i].alive || !t->grown[i].ended) continue;
        finish_branch(t, &t->grown[i]);
    }
    for (int32_t k = 0; k < t->n_kept && !rc; k++) {
        struct branch *b = &t->kept[k];
        if (!b->alive || b->ended) continue;
        int32_t i =
            pool ? best_of(t, 0, n, taken) : best_of(t, k * t->width, (k + 1) * t->width, taken);
        if (i < 0) { /* every continuation failed: the branch keeps its text and is not continued */
            b->alive = false;
            continue;
        }
        taken[i] = true;
        if (branch_copy(b, &t->grown[i])) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
        /* compares bytes with tokens: the answer does not end */
        if ((int32_t)b->text.n > t->max_tokens * 8) b->alive = false;
    }
    return rc;
}

static bool is_live(const struct tree *t) {
    for (int32_t k = 0; k < t->n_kept; k++)
        if (t->kept[k].alive && !t->kept[k].ended) return true;
    return false;
}

/* ---- a run ---- */

static void tree_fini(struct tree *t) {
    for (int32_t k = 0; t->kept && k < t->n_kept; k++) branch_fini(&t->kept[k]);
    for (int32_t k = 0; t->grown && k < t->n_kept * t->width; k++) branch_fini(&t->grown[k]);
    if (t->done) strategy_drop(t->done, t->n_done);
    mem_free(t->problem);
    mem_free(t->stops);
    mem_free(t->kept);
    mem_free(t->grown);
    mem_free(t->done);
}

static int tree_init(struct tree *t, struct err *e) {
    const struct strategy_use *u = t->u;
    bool has_image;
    t->width = u->strategy->width;
    t->n_kept = u->strategy->n / t->width;
    t->max_tokens = u->request->max_tokens > 0 ? u->request->max_tokens : 1024;
    t->problem = request_question(u->request->messages, &has_image);
    t->kept = mem_alloc_array((size_t)t->n_kept, sizeof *t->kept);
    t->grown = mem_alloc_array((size_t)t->n_kept * (size_t)t->width, sizeof *t->grown);
    t->done = mem_alloc_array(MAX_DONE, sizeof *t->done);
    t->stops = mem_alloc_array(u->request->n_stop + N_STEP_END, sizeof *t->stops);
    for (int32_t k = 0; t->kept && k < t->n_kept; k++) {
        branch_init(&t->kept[k]);
        t->kept[k].alive = true;
    }
    for (int32_t k = 0; t->grown && k < t->n_kept * t->width; k++) branch_init(&t->grown[k]);
    if (!t->problem || !t->kept || !t->grown || !t->done || !t->stops)
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (size_t i = 0; i < u->request->n_stop; i++) t->stops[t->n_stop++] = u->request->stops[i];
    for (size_t i = 0; i < N_STEP_END; i++) t->stops[t->n_stop++] = step_ends[i];
    return 0;
}

/* If no answer was finished, the branches count as far as they were generated. */
static void take_unfinished(struct tree *t) {
    for (int32_t k = 0; k < t->n_kept; k++)
        if (!t->kept[k].ended) finish_branch(t, &t->kept[k]);
    if (t->n_done) return;
    for (int32_t k = 0; k < t->n_kept * t->width; k++) finish_branch(t, &t->grown[k]);
}

static int run(const struct strategy_use *u, bool pool, struct strategy_result *r, struct err *e) {
    struct tree t = {.u = u, .r = r};
    int rc = tree_init(&t, e);
    bool choose = t.width > 1 || pool;
    for (t.round = 0; !rc && t.round < u->strategy->steps && is_live(&t); t.round++) {
        rc = grow(&t, e);
        if (rc && (t.n_done || t.kept[0].text.n)) { /* use what was generated so far */
            rc = 0;
            break;
        }
        if (!rc && (choose || t.n_kept > 1)) rc = judge(&t, e);
        if (!rc) rc = keep(&t, pool, e);
        if (strategy_over(u) || t.spent) break;
    }
    double share = 0;
    if (!rc) take_unfinished(&t);
    int32_t winner = rc ? -1 : strategy_vote(t.done, t.n_done, true, &share);
    if (!rc) rc = strategy_give(u, t.done, t.n_done, winner, r, e);
    tree_fini(&t);
    return rc;
}

int strategy_dvts(const struct strategy_use *u, struct strategy_result *r, struct err *e) {
    return run(u, false, r, e);
}

int strategy_beam(const struct strategy_use *u, struct strategy_result *r, struct err *e) {
    return run(u, true, r, e);
}

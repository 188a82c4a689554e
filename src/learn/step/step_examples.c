/* step_examples.c: keeps the questions and answers whose showing before a similar question helps (backend/shots.h).
 *
 * The pool is the store in use, refilled with accepted answers of the day. Each validation answer is measured without
 * an example and with each of its nearest ones alone; the difference is the help of that example. Examples that do not
 * help are pruned. Examples of the store in use that are near no validation answer stay, as long as there is room. */
#include <stdio.h>
#include <string.h>

#include "backend/shots.h"
#include "base/mem.h"
#include "base/rng.h"
#include "learn/step/arm.h"
#include "learn/step/example_file.h"
#include "learn/step/night_step.h"

enum { LEAST_TRAIN = 16, LEAST_HELD = 6, VALIDATION = 40, TRIED = 4, MAX_KEPT = 40 };

struct pool {
    json_t *store; /* owned; the first n_old examples are those in use */
    size_t n_old;
    double help[SHOTS_MAX]; /* sums, in nats per token */
    int n_use[SHOTS_MAX];
};

/* Measures the loss of answer i with each of n lists of examples (NULL: none), losses [n]. */
static int losses_with(struct night *x, size_t i, json_t *const *lists, size_t n, double *losses,
                       struct err *e) {
    struct fzoo_sample v[TRIED + 1] = {{0}};
    const struct windows_turn turn = night_turn(x);
    int rc = 0;
    for (size_t k = 0; !rc && k < n; k++) {
        rc = night_encode_item(x, i, NULL, lists[k], &v[k], e);
        if (!rc && !v[k].n_tok) rc = err_set(e, CHIMERE_ELIMIT, "examples: too long for a prompt");
    }
    if (!rc) rc = fzoo_losses(losses, x->host->model, NULL, (struct fzoo_samples){v, n}, &turn, e);
    for (size_t k = 0; k < n; k++) mem_free((void *)(uintptr_t)v[k].tokens);
    return rc;
}

/* Adds what each of the nearest examples helps for answer i. */
static int measure_help(struct night *x, struct pool *p, size_t i, struct err *e) {
    size_t near[TRIED], n = shots_near(p->store, x->day.v[i].question, TRIED, near);
    json_t *lists[TRIED + 1] = {NULL};
    double losses[TRIED + 1];
    int rc = 0;
    for (size_t k = 0; k < n; k++) {
        lists[k + 1] = json_pack("[O]", json_array_get(p->store, near[k]));
        if (!lists[k + 1]) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    }
    if (!rc && n) rc = losses_with(x, i, lists, n + 1, losses, e);
    for (size_t k = 0; k < n; k++) {
        json_decref(lists[k + 1]);
        if (rc) continue;
        p->help[near[k]] += losses[0] - losses[k + 1];
        p->n_use[near[k]]++;
    }
    return rc;
}

static double mean_help(const struct pool *p, size_t i) {
    return p->n_use[i] ? p->help[i] / p->n_use[i] : 0;
}

/* Returns the examples that help, or that are in use and were not measured; NULL: out of memory. */
static json_t *kept(const struct pool *p) {
    bool keeps[SHOTS_MAX];
    size_t n = json_array_size(p->store), n_kept = 0;
    json_t *out = json_array();
    for (size_t i = 0; i < n; i++) {
        keeps[i] = p->n_use[i] ? p->help[i] > 0 : i < p->n_old;
        n_kept += keeps[i];
    }
    for (; n_kept > MAX_KEPT; n_kept--) {
        size_t worst = n;
        for (size_t i = 0; i < n; i++)
            if (keeps[i] && (worst == n || mean_help(p, i) < mean_help(p, worst))) worst = i;
        keeps[worst] = false;
    }
    for (size_t i = 0; out && i < n; i++)
        if (keeps[i] && json_array_append(out, json_array_get(p->store, i))) {
            json_decref(out);
            out = NULL;
        }
    return out;
}

/* Measures the held-out answers with the nearest examples of both stores. */
static int compare(struct night *x, json_t *now, json_t *next, const size_t *held, size_t n,
                   struct night_gain *gain, struct err *e) {
    double *losses = mem_alloc_array(2 * n + 1, sizeof *losses);
    json_t *lists[2] = {now, next};
    int rc = losses ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (size_t i = 0; !rc && i < n; i++) {
        double pair[2];
        rc = losses_with(x, held[i], lists, 2, pair, e);
        losses[i] = rc ? 0 : pair[0];
        losses[n + i] = rc ? 0 : pair[1];
    }
    if (!rc) night_gain_of(gain, losses, losses + n, n);
    mem_free(losses);
    return rc;
}

static int search(struct night *x, struct pool *p, const size_t *items, size_t n, size_t n_valid,
                  json_t **next, struct err *e) {
    int rc = 0;
    for (size_t i = n_valid; i < n; i++) { /* a validation question is never its own example */
        const struct learn_item *item = &x->day.v[items[i]];
        example_put(p->store, item->question, item->answer, item->source);
    }
    for (size_t i = 0; !rc && i < n_valid; i++) rc = measure_help(x, p, items[i], e);
    *next = rc ? NULL : kept(p);
    return rc || *next ? rc : err_set(e, CHIMERE_ENOMEM, "out of memory");
}

static int propose(struct night *x, const char *path, struct night_gain *gain, char why[256],
                   struct err *e) {
    char old[NIGHTS_MAX_PATH];
    struct pool p = {.store = NULL};
    size_t *items = NULL, *held = NULL, n = 0, n_held = 0;
    json_t *now = NULL, *next = NULL;
    int rc = night_indexes(x, false, x->params->seed, &items, &n, e);
    if (!rc) rc = night_indexes(x, true, x->params->seed, &held, &n_held, e);
    if (!rc && (n < LEAST_TRAIN || n_held < LEAST_HELD)) {
        snprintf(why, 256,
                 "%zu answers to learn from and %zu held out; at least %d and %d are needed", n,
                 n_held, LEAST_TRAIN, LEAST_HELD);
        rc = CHIMERE_ENOENT;
    }
    size_t n_valid = n / 2 < VALIDATION ? n / 2 : VALIDATION;
    if (!rc && night_live(x, arm_artefacts[ARM_EXAMPLES], old, sizeof old))
        rc = example_load(&now, old, e);
    if (!rc && !now && !(now = json_array())) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc && !(p.store = json_copy(now))) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    p.n_old = json_array_size(now);
    if (!rc) rc = search(x, &p, items, n, n_valid, &next, e);
    if (!rc && json_equal(next, now)) {
        snprintf(why, 256, "%zu of %zu examples help; the store stays as it is",
                 json_array_size(next), json_array_size(p.store));
        rc = CHIMERE_ENOENT;
    }
    if (!rc) rc = compare(x, now, next, held, n_held, gain, e);
    if (!rc) rc = example_save(next, path, e);
    json_decref(now);
    json_decref(next);
    json_decref(p.store);
    mem_free(items);
    mem_free(held);
    return rc;
}

/* Copies a store without the examples of one person. */
static int forget(const char *from, const char *to, const struct night_person *who, size_t *n_gone,
                  bool *is_empty, struct err *e) {
    json_t *store;
    int rc = example_load(&store, from, e);
    if (rc) return rc;
    for (size_t i = json_array_size(store); i-- > 0;) {
        const json_t *example = json_array_get(store, i);
        const char *source = json_string_value(json_object_get(example, "source"));
        if (!night_is_theirs(who, source)) continue;
        json_array_remove(store, i);
        ++*n_gone;
    }
    *is_empty = !json_array_size(store);
    if (*n_gone && !*is_empty) rc = example_save(store, to, e);
    json_decref(store);
    return rc;
}

const struct night_step night_step_examples = {
    .name = "examples",
    .artefact = "examples.json",
    .about = "answers that help when they precede similar questions",
    .time = "05:00",
    .propose = propose,
    .forget = forget};

/* step_prompts.c: searches rules for answers (playbook.h) that make the accepted answers more probable.
 *
 * The search keeps a set of playbooks. Each round takes one that is best on some validation answer (the more answers,
 * the more often), changes it by one operation, and compares both on a few other answers. A change that helps is
 * measured on all validation answers. New bullets are general instructions, demonstrations from the day, and rules
 * that the model itself writes about accepted answers. The best mean wins; each token of a playbook costs a little. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "learn/night_step.h"
#include "learn/playbook.h"

enum {
    LEAST_TRAIN = 16,
    LEAST_HELD = 6,
    VALIDATION = 40,
    MINIBATCH = 4,
    ROUNDS = 32,
    CANDIDATES = 12,
    DEMOS = 12,
    REFLECTIONS = 4,
    PER_REFLECTION = 3,
    MAX_POOL = 32,
    RULE_TOKENS = 48
};
#define TOKEN_COST 1e-4 /* nats per token of an answer, for each token of the playbook */

static const char *const instructions[] = {
    "Answer in one short sentence.",
    "Answer in a complete sentence that repeats the subject of the question.",
    "Answer with the fact alone, without an introduction.",
    "End each answer in the way in which the examples end.",
    "Be friendly and precise.",
};
enum { N_INSTRUCTION = sizeof instructions / sizeof *instructions };

struct candidate {
    json_t *bullets; /* owned */
    double losses[VALIDATION], mean;
};

struct search {
    struct night *x;
    struct rng rng;
    size_t *items, n_item; /* owned: indexes of the day's training answers, shuffled */
    size_t
        n_validation; /* the first of them; the others are for minibatches, demonstrations and rules */
    char *pool[MAX_POOL]; /* owned: texts of new bullets */
    size_t n_pool, n_tried;
    struct candidate v[CANDIDATES];
    size_t n;
};

/* ---- measuring ---- */

/* Measures the loss of answers of the day, losses [n], with a playbook. */
static int measure(struct night *x, const json_t *bullets, const size_t *items, size_t n,
                   double *losses, struct err *e) {
    const struct windows_turn turn = night_turn(x);
    struct fzoo_sample *v = mem_zalloc((n + 1) * sizeof *v);
    char *text = playbook_text(bullets);
    int rc = v && text ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (size_t i = 0; !rc && i < n; i++) rc = night_encode_item(x, items[i], text, NULL, &v[i], e);
    for (size_t i = 0; !rc && i < n; i++)
        if (!v[i].n_tok) rc = err_set(e, CHIMERE_ELIMIT, "playbook: too long for a prompt");
    if (!rc) rc = fzoo_losses(losses, x->host->model, NULL, (struct fzoo_samples){v, n}, &turn, e);
    for (size_t i = 0; v && i < n; i++) mem_free((void *)(uintptr_t)v[i].tokens);
    mem_free(v);
    mem_free(text);
    return rc;
}

static double cost_of(struct night *x, const json_t *bullets) {
    char *text = playbook_text(bullets);
    int32_t *ids = NULL;
    size_t n = 0;
    if (text && tok_encode(x->host->tok, text, strlen(text), false, false, &ids, &n, NULL)) n = 0;
    mem_free(ids);
    mem_free(text);
    return TOKEN_COST * (double)n;
}

/* ---- new bullets ---- */

static void put_text(struct search *s, const char *text) {
    size_t n = strlen(text);
    if (!n || n > PLAYBOOK_MAX_BULLET || s->n_pool == MAX_POOL) return;
    char *copy = mem_strdup(text);
    if (copy) s->pool[s->n_pool++] = copy;
}

static size_t pick(struct search *s) {
    size_t n = s->n_item - s->n_validation;
    return s->items[s->n_validation + rng_below(&s->rng, n)];
}

static void put_demonstrations(struct search *s) {
    for (int i = 0; i < DEMOS; i++) {
        const struct learn_item *item = &s->x->day.v[pick(s)];
        char text[PLAYBOOK_MAX_BULLET + 2];
        int n =
            snprintf(text, sizeof text, "Question: %s Answer: %s", item->question, item->answer);
        if (n <= PLAYBOOK_MAX_BULLET) put_text(s, text);
    }
}

/* The texts that `night playbook import` left. */
static void put_imported(struct search *s) {
    char path[NIGHTS_MAX_PATH + 16];
    json_t *texts = NULL, *row;
    size_t i;
    snprintf(path, sizeof path, "%s/import.json", nights_dir(s->x->nights));
    if (file_exists(path) && playbook_imported(&texts, path, NULL)) return;
    json_array_foreach(texts, i, row) put_text(s, json_string_value(row));
    json_decref(texts);
}

static json_t *reflection(struct search *s, int k) {
    char prompt[4096], id[16];
    size_t n = 0;
    for (int i = 0; i < PER_REFLECTION; i++) {
        const struct learn_item *item = &s->x->day.v[pick(s)];
        n += (size_t)snprintf(prompt + n, sizeof prompt - n, "Question: %.400s\nAnswer: %.400s\n\n",
                              item->question, item->answer);
    }
    snprintf(prompt + n, sizeof prompt - n,
             "Write one rule, in one sentence, for how to answer such questions.");
    snprintf(id, sizeof id, "rule-%d", k);
    return json_pack("{s:s,s:s,s:[{s:s,s:s}],s:b,s:i,s:{s:s,s:[s]}}", "id", id, "skill", "rules",
                     "messages", "role", "user", "content", prompt, "think", 0, "max_tokens",
                     RULE_TOKENS, "check", "kind", "contains", "answer", "");
}

/* Lets the model write rules; the first line of each is used. */
static int put_reflections(struct search *s, struct err *e) {
    json_t *items = json_array(), *run = NULL, *row;
    size_t i;
    for (int k = 0; k < REFLECTIONS; k++) json_array_append_new(items, reflection(s, k));
    int rc = night_answers(s->x, items, &run, e);
    json_array_foreach(json_object_get(run, "items"), i, row) {
        char text[PLAYBOOK_MAX_BULLET + 1];
        const char *said = json_string_value(json_object_get(row, "text"));
        if (!said) continue;
        said += strspn(said, " \n\t-*");
        size_t n = strcspn(said, "\n");
        if (n > PLAYBOOK_MAX_BULLET) continue;
        memcpy(text, said, n);
        text[n] = 0;
        put_text(s, text);
    }
    json_decref(run);
    json_decref(items);
    return rc;
}

/* ---- the search ---- */

/* Chooses a candidate with the number of validation answers on which it is the best as its weight. */
static size_t choose(struct search *s) {
    size_t i = rng_below(&s->rng, s->n_validation), best = 0;
    for (size_t k = 1; k < s->n; k++)
        if (s->v[k].losses[i] < s->v[best].losses[i]) best = k;
    return best;
}

/* Returns the parent changed by one operation; NULL: the operation changes nothing. */
static json_t *change(struct search *s, const json_t *parent) {
    switch (rng_below(&s->rng, 4)) {
    case 0: return playbook_without(parent, rng_below(&s->rng, json_array_size(parent) + 1));
    case 1: return playbook_merge(parent, s->v[choose(s)].bullets);
    default:
        return s->n_pool ? playbook_with(parent, s->pool[rng_below(&s->rng, s->n_pool)]) : NULL;
    }
}

/* Measures a candidate on the validation answers and keeps it; bullets are owned from now on. */
static int keep(struct search *s, json_t *bullets, struct err *e) {
    struct candidate c = {.bullets = bullets};
    int rc = measure(s->x, bullets, s->items, s->n_validation, c.losses, e);
    for (size_t i = 0; i < s->n_validation; i++) c.mean += c.losses[i] / (double)s->n_validation;
    c.mean += cost_of(s->x, bullets);
    size_t worst = s->n;
    if (!rc && s->n == CANDIDATES) { /* the first, which serves now, stays */
        worst = 1;
        for (size_t k = 2; k < s->n; k++)
            if (s->v[k].mean > s->v[worst].mean) worst = k;
        if (s->v[worst].mean <= c.mean) worst = CANDIDATES;
    }
    if (rc || worst == CANDIDATES) {
        json_decref(bullets);
        return rc;
    }
    if (worst < s->n) json_decref(s->v[worst].bullets);
    else s->n++;
    s->v[worst] = c;
    return 0;
}

static int try_change(struct search *s, struct err *e) {
    const json_t *parent = s->v[choose(s)].bullets;
    json_t *child = change(s, parent);
    double a[MINIBATCH], b[MINIBATCH], gain = 0;
    size_t items[MINIBATCH];
    if (!child) return 0;
    if (json_equal(child, parent)) {
        json_decref(child);
        return 0;
    }
    s->n_tried++;
    for (int i = 0; i < MINIBATCH; i++) items[i] = pick(s);
    int rc = measure(s->x, parent, items, MINIBATCH, a, e);
    if (!rc) rc = measure(s->x, child, items, MINIBATCH, b, e);
    for (int i = 0; !rc && i < MINIBATCH; i++) gain += a[i] - b[i];
    if (!rc && gain > 0) return keep(s, child, e);
    json_decref(child);
    return rc;
}

/* *best: a view of the best playbook; NULL: the one in use is. */
static int search(struct search *s, json_t *now, const json_t **best, struct err *e) {
    *best = NULL;
    for (int i = 0; i < N_INSTRUCTION; i++) put_text(s, instructions[i]);
    put_imported(s);
    put_demonstrations(s);
    int rc = put_reflections(s, e);
    if (!rc) rc = keep(s, json_incref(now), e);
    for (int i = 0; !rc && i < ROUNDS; i++) rc = try_change(s, e);
    size_t k = 0;
    for (size_t i = 1; !rc && i < s->n; i++)
        if (s->v[i].mean < s->v[k].mean) k = i;
    if (k) *best = s->v[k].bullets;
    return rc;
}

static void close_search(struct search *s) {
    for (size_t i = 0; i < s->n; i++) json_decref(s->v[i].bullets);
    for (size_t i = 0; i < s->n_pool; i++) mem_free(s->pool[i]);
    mem_free(s->items);
}

static int compare(struct night *x, const json_t *now, const json_t *best, const size_t *held,
                   size_t n, struct night_gain *gain, struct err *e) {
    double *losses = mem_alloc_array(2 * n + 1, sizeof *losses);
    int rc = losses ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = measure(x, now, held, n, losses, e);
    if (!rc) rc = measure(x, best, held, n, losses + n, e);
    if (!rc) night_gain_of(gain, losses, losses + n, n);
    mem_free(losses);
    return rc;
}

static int propose(struct night *x, const char *path, struct night_gain *gain, char why[256],
                   struct err *e) {
    char old[NIGHTS_MAX_PATH];
    struct search s = {.x = x};
    size_t *held = NULL, n_held = 0;
    const json_t *best = NULL;
    json_t *now = NULL;
    rng_seed(&s.rng, x->params->seed);
    int rc = night_indexes(x, false, x->params->seed, &s.items, &s.n_item, e);
    if (!rc) rc = night_indexes(x, true, x->params->seed, &held, &n_held, e);
    if (!rc && (s.n_item < LEAST_TRAIN || n_held < LEAST_HELD)) {
        snprintf(why, 256,
                 "%zu answers to learn from and %zu held out; at least %d and %d are needed",
                 s.n_item, n_held, LEAST_TRAIN, LEAST_HELD);
        rc = CHIMERE_ENOENT;
    }
    s.n_validation = s.n_item / 2 < VALIDATION ? s.n_item / 2 : VALIDATION;
    if (!rc && night_live(x, night_step_prompts.artefact, old, sizeof old))
        rc = playbook_load(&now, old, e);
    if (!rc && !now && !(now = json_array())) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = search(&s, now, &best, e);
    if (!rc && !best) {
        snprintf(why, 256, "none of %zu changes of the playbook made %zu answers more probable",
                 s.n_tried, s.n_validation);
        rc = CHIMERE_ENOENT;
    }
    if (!rc) rc = compare(x, now, best, held, n_held, gain, e);
    if (!rc) rc = playbook_save(best, path, e);
    close_search(&s);
    json_decref(now);
    mem_free(held);
    return rc;
}

const struct night_step night_step_prompts = {.name = "prompts",
                                              .artefact = "playbook.json",
                                              .about = "rules for answers, as a system message",
                                              .time = "mon 02:00",
                                              .propose = propose};

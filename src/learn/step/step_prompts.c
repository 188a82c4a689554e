/* step_prompts.c: searches rules for answers (playbook.h) that make the accepted answers more probable.
 *
 * Two searches can be chosen. GEPA's keeps a set of playbooks. Each round takes one that is best on some validation
 * answer (the more answers, the more often), changes it by one operation, and compares both on a few other answers. A
 * change that helps is measured on all validation answers. MIPROv2's tries combinations of one instruction and one set
 * of demonstrations, and prefers the parts that did well in earlier combinations. New bullets are general
 * instructions, demonstrations from the day, and rules that the model itself writes about accepted answers. The best
 * mean wins; each token of a playbook costs a little. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "learn/step/night_step.h"
#include "learn/step/playbook.h"

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
    RULE_TOKENS = 48,
    /* of MIPROv2: sets of demonstrations; trials, answers of each, and trials between two full measurements */
    SETS = 8,
    SET_DEMOS = 3,
    TRIALS = 32,
    TRIAL_ITEMS = 8,
    FULL_EVERY = 4,
    GUESSES = 3 /* values of which the best one is tried */
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
    size_t first_demo, n_demo; /* demonstrations of the day within the pool */
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
    s->first_demo = s->n_pool;
    for (int i = 0; i < DEMOS; i++) {
        const struct learn_item *item = &s->x->day.v[pick(s)];
        char text[PLAYBOOK_MAX_BULLET + 2];
        int n =
            snprintf(text, sizeof text, "Question: %s Answer: %s", item->question, item->answer);
        if (n <= PLAYBOOK_MAX_BULLET) put_text(s, text);
    }
    s->n_demo = s->n_pool - s->first_demo;
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
    int rc = night_answers(s->x, items, NULL, &run, e);
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

static int search_gepa(struct search *s, struct err *e) {
    int rc = 0;
    for (int i = 0; !rc && i < ROUNDS; i++) rc = try_change(s, e);
    return rc;
}

/* ---- combinations of an instruction and a set of demonstrations ---- */

struct combinations {
    size_t n_rule; /* the last one is: no instruction */
    size_t rules[MAX_POOL + 1];
    size_t n_set;                 /* set 0 is empty */
    size_t sets[SETS][SET_DEMOS]; /* indexes into the pool; MAX_POOL: none */
    /* gains over the playbook in use, in nats per token: sums and numbers of trials */
    double rule_gain[MAX_POOL + 1], set_gain[SETS], gain[MAX_POOL + 1][SETS];
    int rule_n[MAX_POOL + 1], set_n[SETS], n[MAX_POOL + 1][SETS];
    bool is_measured[MAX_POOL + 1][SETS]; /* on all validation answers */
};

static void make_combinations(struct search *s, struct combinations *c) {
    for (size_t i = 0; i < s->n_pool; i++)
        if (i < s->first_demo || i >= s->first_demo + s->n_demo) c->rules[c->n_rule++] = i;
    c->rules[c->n_rule++] = MAX_POOL;
    c->n_set = s->n_demo ? SETS : 1;
    for (size_t i = 0; i < SETS; i++)
        for (size_t k = 0; k < SET_DEMOS; k++)
            c->sets[i][k] = i && s->n_demo && k <= rng_below(&s->rng, SET_DEMOS)
                                ? s->first_demo + rng_below(&s->rng, s->n_demo)
                                : MAX_POOL;
}

/* Returns the best of a few random values; trials that were not made count as one without a gain. */
static size_t guess(struct search *s, const double *gain, const int *n, size_t n_value) {
    size_t best = rng_below(&s->rng, n_value);
    for (int i = 1; i < GUESSES; i++) {
        size_t v = rng_below(&s->rng, n_value);
        if (gain[v] / (n[v] + 1) > gain[best] / (n[best] + 1)) best = v;
    }
    return best;
}

/* Returns the playbook in use with this combination, as far as it fits; NULL: out of memory. */
static json_t *combined(const struct search *s, const struct combinations *c, size_t rule,
                        size_t set) {
    json_t *out = json_copy(s->v[0].bullets);
    for (size_t k = 0; out && k <= SET_DEMOS; k++) {
        size_t at = k ? c->sets[set][k - 1] : c->rules[rule];
        json_t *more = at < MAX_POOL ? playbook_with(out, s->pool[at]) : NULL;
        if (!more) continue;
        json_decref(out);
        out = more;
    }
    return out;
}

static int try_combination(struct search *s, struct combinations *c, struct err *e) {
    double before = 0, losses[TRIAL_ITEMS], gain = 0;
    size_t items[TRIAL_ITEMS], rule = guess(s, c->rule_gain, c->rule_n, c->n_rule),
                               set = guess(s, c->set_gain, c->set_n, c->n_set);
    json_t *bullets = combined(s, c, rule, set);
    if (!bullets) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    bool is_same = json_equal(bullets, s->v[0].bullets);
    for (int i = 0; i < TRIAL_ITEMS; i++) {
        size_t k = rng_below(&s->rng, s->n_validation);
        items[i] = s->items[k];
        before += s->v[0].losses[k];
    }
    int rc = is_same ? 0 : measure(s->x, bullets, items, TRIAL_ITEMS, losses, e);
    json_decref(bullets);
    if (rc || is_same) return rc;
    s->n_tried++;
    gain = before;
    for (int i = 0; i < TRIAL_ITEMS; i++) gain -= losses[i];
    gain /= TRIAL_ITEMS;
    c->rule_gain[rule] += gain, c->rule_n[rule]++;
    c->set_gain[set] += gain, c->set_n[set]++;
    c->gain[rule][set] += gain, c->n[rule][set]++;
    return 0;
}

/* Measures the combination with the best mean so far on all validation answers. */
static int measure_best(struct search *s, struct combinations *c, struct err *e) {
    size_t rule = c->n_rule, set = 0;
    for (size_t i = 0; i < c->n_rule; i++)
        for (size_t k = 0; k < c->n_set; k++) {
            if (!c->n[i][k] || c->is_measured[i][k]) continue;
            if (rule == c->n_rule ||
                c->gain[i][k] / c->n[i][k] > c->gain[rule][set] / c->n[rule][set])
                rule = i, set = k;
        }
    if (rule == c->n_rule) return 0;
    c->is_measured[rule][set] = true;
    json_t *bullets = combined(s, c, rule, set);
    return bullets ? keep(s, bullets, e) : err_set(e, CHIMERE_ENOMEM, "out of memory");
}

static int search_mipro(struct search *s, struct err *e) {
    struct combinations c = {.n_rule = 0};
    int rc = 0;
    make_combinations(s, &c);
    for (int i = 1; !rc && i <= TRIALS; i++) {
        rc = try_combination(s, &c, e);
        if (!rc && i % FULL_EVERY == 0) rc = measure_best(s, &c, e);
    }
    return rc;
}

static const struct {
    const char *name;
    int (*go)(struct search *s, struct err *e);
} searches[] = {{"gepa", search_gepa}, {"mipro", search_mipro}};
enum { N_SEARCH = sizeof searches / sizeof *searches };

int night_prompts_search(const char *name, struct err *e) {
    for (int i = 0; i < N_SEARCH; i++)
        if (!name || !strcmp(name, searches[i].name)) return i;
    return err_set(e, CHIMERE_EINVAL, "prompt search: expected gepa or mipro, got %.40s", name);
}

/* *best: a view of the best playbook; NULL: the one in use is. */
static int search(struct search *s, json_t *now, const json_t **best, struct err *e) {
    *best = NULL;
    for (int i = 0; i < N_INSTRUCTION; i++) put_text(s, instructions[i]);
    put_imported(s);
    put_demonstrations(s);
    int which = night_prompts_search(s->x->params->prompt_search, e);
    int rc = which < 0 ? which : put_reflections(s, e);
    if (!rc) rc = keep(s, json_incref(now), e);
    if (!rc) rc = searches[which].go(s, e);
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

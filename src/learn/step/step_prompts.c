/* step_prompts.c: searches rules for answers (playbook.h) that make the accepted answers more probable.
 *
 * Two searches can be chosen. GEPA's keeps a set of playbooks. Each round takes one that is best on some validation
 * answer (the more answers, the more often), changes it by one operation, and compares both on a few other answers. A
 * change that helps is measured on all validation answers. MIPROv2's tries combinations of one instruction and one set
 * of demonstrations, and prefers the parts that did well in earlier combinations. New bullets are general
 * instructions, demonstrations from the day, and rules that the model itself writes about accepted answers. The best
 * mean wins; each token of a playbook costs a little.
 *
 * Each pipeline of the orchestrator has a list of its own, and so have requests without a pipeline. Each list with
 * enough answers is searched; the calls that the search may make are shared equally. What gains most on validation
 * answers is proposed, alone, so that the held-out answers measure one change. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "learn/step/night_step.h"
#include "learn/step/playbook.h"
#include "odo/pipeline/yamlfile.h"

enum {
    VALIDATION = 40,               /* of fewer answers, noise would choose */
    LEAST_TRAIN = VALIDATION + 16, /* the others are for minibatches, demonstrations and rules */
    LEAST_HELD = 6,
    MAX_PLACES = 16, /* lists that a night searches */
    MAX_CALLS = 2000,
    MAX_TOKENS = 600,
    MINIBATCH = 4,
    ROUNDS = 32,
    CANDIDATES = 12,
    DEMOS = 12,
    REFLECTIONS = 4,
    PER_REFLECTION = 3,
    MAX_POOL = 32,
    MAX_RULES = PLAYBOOK_MAX_BULLETS * (PLAYBOOK_MAX_BULLET + 4), /* bytes of the text of a list */
    RULE_TOKENS = 48,
    /* of MIPROv2: sets of demonstrations; trials, answers of each, and trials between two full measurements */
    SETS = 8,
    SET_DEMOS = 3,
    TRIALS = 32,
    TRIAL_ITEMS = 8,
    FULL_EVERY = 4,
    GUESSES = 3, /* values of which the best one is tried */
    /* the calls of a search that tries one change */
    LEAST_CALLS = REFLECTIONS + 2 * VALIDATION + 2 * MINIBATCH
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

/* Requests that share a list of rules. */
struct place {
    char pipeline[LEARN_PIPELINE]; /* "": requests without a pipeline */
    size_t n_train, n_held;        /* usable answers */
};

struct search {
    struct night *x;
    const struct place *place; /* view */
    char *prompt;              /* owned: of the pipeline; NULL: none */
    struct rng rng;
    size_t *items, n_item; /* owned: indexes of the day's training answers, shuffled */
    size_t n_call, max_calls;
    char *pool[MAX_POOL]; /* owned: texts of new bullets */
    size_t n_pool, n_tried;
    size_t first_demo, n_demo; /* demonstrations of the day within the pool */
    struct candidate v[CANDIDATES];
    size_t n;
};

/* ---- measuring ---- */

/* Returns the system message that a list makes: it follows the prompt of the pipeline. */
static char *system_of(const struct search *s, const json_t *bullets) {
    struct buf b;
    char *text = playbook_text(bullets);
    if (!s->prompt || !text) return text;
    buf_init(&b, YAMLFILE_MAX_BYTES + MAX_RULES);
    buf_printf(&b, "%s%s%s", s->prompt, *text ? "\n\n" : "", text);
    mem_free(text);
    return buf_take(&b);
}

/* Measures the loss of answers of the day, losses [n], with a list. CHIMERE_ELIMIT: a prompt would be too long. */
static int measure(struct search *s, const json_t *bullets, const size_t *items, size_t n,
                   double *losses, struct err *e) {
    struct night *x = s->x;
    const struct windows_turn turn = night_turn(x);
    struct fzoo_sample *v = mem_zalloc((n + 1) * sizeof *v);
    char *text = system_of(s, bullets);
    int rc = v && text ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (size_t i = 0; !rc && i < n; i++) rc = night_encode_item(x, items[i], text, NULL, &v[i], e);
    for (size_t i = 0; !rc && i < n; i++)
        if (!v[i].n_tok) rc = err_set(e, CHIMERE_ELIMIT, "playbook: too long for a prompt");
    if (!rc) rc = fzoo_losses(losses, x->host->model, NULL, (struct fzoo_samples){v, n}, &turn, e);
    for (size_t i = 0; v && i < n; i++) mem_free((void *)(uintptr_t)v[i].tokens);
    mem_free(v);
    mem_free(text);
    s->n_call += n;
    return rc;
}

static bool has_calls(const struct search *s, size_t n) { return s->n_call + n <= s->max_calls; }

static size_t tokens_of(const struct search *s, const json_t *bullets) {
    char *text = playbook_text(bullets);
    int32_t *ids = NULL;
    size_t n = 0;
    if (text && tok_encode(s->x->host->tok, text, strlen(text), false, false, &ids, &n, NULL))
        n = 0;
    mem_free(ids);
    mem_free(text);
    return n;
}

/* Returns a list, or NULL if it has more tokens than the night allows; its reference is then released. */
static json_t *within(const struct search *s, json_t *bullets) {
    int32_t most = s->x->params->prompts.tokens;
    if (!bullets || tokens_of(s, bullets) <= (size_t)(most ? most : MAX_TOKENS)) return bullets;
    json_decref(bullets);
    return NULL;
}

/* ---- new bullets ---- */

static void put_text(struct search *s, const char *text) {
    size_t n = strlen(text);
    if (!n || n > PLAYBOOK_MAX_BULLET || s->n_pool == MAX_POOL) return;
    char *copy = mem_strdup(text);
    if (copy) s->pool[s->n_pool++] = copy;
}

static size_t pick(struct search *s) {
    return s->items[VALIDATION + rng_below(&s->rng, s->n_item - VALIDATION)];
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

/* Writes the path of a pipeline's file; false: there is none. */
static bool pipeline_file(const struct night *x, const char *name, char out[NIGHTS_MAX_PATH]) {
    if (!*name || strchr(name, '/') || !x->host->pipelines) return false;
    int n = snprintf(out, NIGHTS_MAX_PATH, "%s/%s.yaml", x->host->pipelines, name);
    return n < NIGHTS_MAX_PATH && file_exists(out);
}

/* Reads the prompt of the pipeline; *out NULL: it has none, or its file cannot be read, which the server reports. */
static int read_prompt(const struct night *x, const char *pipeline, char **out, struct err *e) {
    char path[NIGHTS_MAX_PATH];
    struct yamlfile *y;
    const char *key, *text = NULL;
    int32_t value;
    *out = NULL;
    if (!pipeline_file(x, pipeline, path) || yamlfile_open(&y, path, NULL, 0, NULL)) return 0;
    for (int32_t i = 0; yamlfile_pair(y, yamlfile_root(y), i, &key, &value); i++)
        if (!strcmp(key, "prompt")) text = yamlfile_text(y, value);
    size_t n = text ? strlen(text) : 0;
    while (n && text[n - 1] == '\n') n--;
    bool failed = n && !(*out = mem_strndup(text, n));
    yamlfile_close(y);
    return failed ? err_set(e, CHIMERE_ENOMEM, "out of memory") : 0;
}

/* The texts that `night playbook import` left. A predictor that has not the name of a pipeline is for requests without
 * one. */
static void put_imported(struct search *s) {
    char path[NIGHTS_MAX_PATH], other[NIGHTS_MAX_PATH];
    const char *name;
    json_t *program = NULL, *texts, *row;
    size_t i, n;
    snprintf(path, sizeof path, "%.4000s/import.json", nights_dir(s->x->nights));
    if (file_exists(path) && playbook_imported(&program, &n, path, NULL)) return;
    json_object_foreach(program, name, texts) {
        bool is_bare = !*s->place->pipeline && !pipeline_file(s->x, name, other);
        if (!is_bare && strcmp(name, s->place->pipeline) != 0) continue;
        json_array_foreach(texts, i, row) put_text(s, json_string_value(row));
    }
    json_decref(program);
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
    s->n_call += REFLECTIONS;
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
    size_t i = rng_below(&s->rng, VALIDATION), best = 0;
    for (size_t k = 1; k < s->n; k++)
        if (s->v[k].losses[i] < s->v[best].losses[i]) best = k;
    return best;
}

/* Returns the parent changed by one operation; NULL: the operation changes nothing, or makes it too long. */
static json_t *change(struct search *s, const json_t *parent) {
    switch (rng_below(&s->rng, 4)) {
    case 0: return playbook_without(parent, rng_below(&s->rng, json_array_size(parent) + 1));
    case 1: return within(s, playbook_merge(parent, s->v[choose(s)].bullets));
    default:
        if (!s->n_pool) return NULL;
        return within(s, playbook_with(parent, s->pool[rng_below(&s->rng, s->n_pool)]));
    }
}

/* Measures a candidate on the validation answers and keeps it; bullets are owned from now on. */
static int keep(struct search *s, json_t *bullets, struct err *e) {
    struct candidate c = {.bullets = bullets};
    int rc = measure(s, bullets, s->items, VALIDATION, c.losses, e);
    for (size_t i = 0; i < VALIDATION; i++) c.mean += c.losses[i] / VALIDATION;
    c.mean += TOKEN_COST * (double)tokens_of(s, bullets);
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
    int rc = measure(s, parent, items, MINIBATCH, a, e);
    if (!rc) rc = measure(s, child, items, MINIBATCH, b, e);
    for (int i = 0; !rc && i < MINIBATCH; i++) gain += a[i] - b[i];
    if (!rc && gain > 0) return keep(s, child, e);
    json_decref(child);
    return rc;
}

/* A list that does not fit is no candidate. */
static int unless_too_long(int rc) { return rc == CHIMERE_ELIMIT ? 0 : rc; }

static int search_gepa(struct search *s, struct err *e) {
    int rc = 0;
    for (int i = 0; !rc && i < ROUNDS && has_calls(s, 2 * MINIBATCH + VALIDATION); i++)
        rc = unless_too_long(try_change(s, e));
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
        json_t *more = at < MAX_POOL ? within(s, playbook_with(out, s->pool[at])) : NULL;
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
        size_t k = rng_below(&s->rng, VALIDATION);
        items[i] = s->items[k];
        before += s->v[0].losses[k];
    }
    int rc = is_same ? 0 : measure(s, bullets, items, TRIAL_ITEMS, losses, e);
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
    for (int i = 1; !rc && i <= TRIALS && has_calls(s, TRIAL_ITEMS + VALIDATION); i++) {
        rc = unless_too_long(try_combination(s, &c, e));
        if (!rc && i % FULL_EVERY == 0) rc = unless_too_long(measure_best(s, &c, e));
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

/* *best: a new reference to the best list; NULL: the one in use is. *gain: on the validation answers. */
static int search(struct search *s, json_t *now, json_t **best, double *gain, struct err *e) {
    *best = NULL;
    for (int i = 0; i < N_INSTRUCTION; i++) put_text(s, instructions[i]);
    put_imported(s);
    put_demonstrations(s);
    int which = night_prompts_search(s->x->params->prompts.search, e);
    int rc = which < 0 ? which : put_reflections(s, e);
    if (!rc) rc = keep(s, json_incref(now), e);
    if (!rc) rc = searches[which].go(s, e);
    size_t k = 0;
    for (size_t i = 1; !rc && i < s->n; i++)
        if (s->v[i].mean < s->v[k].mean) k = i;
    if (!k) return rc;
    *best = json_incref(s->v[k].bullets);
    *gain = s->v[0].mean - s->v[k].mean;
    return rc;
}

/* ---- the places ---- */

/* Collects the indexes of the answers of a place in an order that the seed chooses; free *v with mem_free. */
static int items_of(struct night *x, const struct place *p, bool held_out, size_t **v, size_t *n,
                    struct err *e) {
    size_t n_all, kept = 0;
    int rc = night_indexes(x, held_out, x->params->seed, v, &n_all, e);
    for (size_t i = 0; !rc && i < n_all; i++)
        if (!strcmp(x->day.v[(*v)[i]].pipeline, p->pipeline)) (*v)[kept++] = (*v)[i];
    *n = kept;
    return rc;
}

static int compare_places(const void *a, const void *b) {
    const struct place *x = a, *y = b;
    if (x->n_train != y->n_train) return x->n_train < y->n_train ? 1 : -1;
    return strcmp(x->pipeline, y->pipeline);
}

/* Lists the places of the day, the one with the most answers first; returns their number. */
static size_t places_of(const struct night *x, struct place v[PLAYBOOK_MAX_PIPELINES]) {
    size_t n = 0;
    for (size_t i = 0; i < x->day.n; i++) {
        const struct learn_item *item = &x->day.v[i];
        size_t k = 0;
        if (!x->samples[i].n_tok) continue;
        while (k < n && strcmp(v[k].pipeline, item->pipeline) != 0) k++;
        if (k == PLAYBOOK_MAX_PIPELINES) continue;
        if (k == n) {
            v[n] = (struct place){.n_train = 0};
            snprintf(v[n++].pipeline, sizeof v->pipeline, "%s", item->pipeline);
        }
        if (item->held_out) v[k].n_held++;
        else v[k].n_train++;
    }
    qsort(v, n, sizeof *v, compare_places);
    return n;
}

/* Moves the places with enough answers to the front; returns their number. */
static size_t with_enough(struct place *v, size_t n) {
    size_t kept = 0;
    for (size_t i = 0; i < n && kept < MAX_PLACES; i++)
        if (v[i].n_train >= LEAST_TRAIN && v[i].n_held >= LEAST_HELD) v[kept++] = v[i];
    return kept;
}

struct found {
    const struct place *place; /* view; NULL: nothing is better than what is in use */
    json_t *bullets;           /* owned */
    double gain;               /* of all answers of the place together */
    size_t n_tried, n_call;
};

/* Searches the list of one place, and keeps what it finds if it gains more. */
static int search_place(struct night *x, const struct place *p, json_t *now, size_t max_calls,
                        struct found *f, struct err *e) {
    struct search s = {.x = x, .place = p, .max_calls = max_calls};
    json_t *best = NULL;
    double gain = 0;
    rng_seed(&s.rng, x->params->seed);
    int rc = items_of(x, p, false, &s.items, &s.n_item, e);
    if (!rc) rc = read_prompt(x, p->pipeline, &s.prompt, e);
    if (!rc) rc = unless_too_long(search(&s, now, &best, &gain, e));
    gain *= (double)s.n_item;
    if (!rc && best && gain > f->gain) {
        json_decref(f->bullets);
        f->bullets = json_incref(best);
        f->place = p;
        f->gain = gain;
    }
    f->n_tried += s.n_tried;
    f->n_call += s.n_call;
    json_decref(best);
    for (size_t i = 0; i < s.n; i++) json_decref(s.v[i].bullets);
    for (size_t i = 0; i < s.n_pool; i++) mem_free(s.pool[i]);
    mem_free(s.items);
    mem_free(s.prompt);
    return rc;
}

static int search_places(struct night *x, const struct place *v, size_t n, const json_t *now,
                         struct found *f, struct err *e) {
    int32_t most = x->params->prompts.calls;
    size_t calls = most ? (size_t)most : MAX_CALLS;
    int rc = 0;
    if (n > calls / LEAST_CALLS) n = calls / LEAST_CALLS;
    for (size_t i = 0; !rc && i < n; i++) {
        json_t *list = json_object_get(now, v[i].pipeline);
        list = list ? json_incref(list) : json_array();
        rc = list ? search_place(x, &v[i], list, (calls - f->n_call) / (n - i), f, e)
                  : err_set(e, CHIMERE_ENOMEM, "out of memory");
        json_decref(list);
    }
    return rc;
}

/* Measures what was found on the held-out answers of its place. */
static int compare(struct night *x, const struct found *f, const json_t *now,
                   struct night_gain *gain, struct err *e) {
    struct search s = {.x = x, .place = f->place};
    size_t *held = NULL, n = 0;
    double *losses = NULL;
    const json_t *old = json_object_get(now, f->place->pipeline);
    int rc = items_of(x, f->place, true, &held, &n, e);
    if (!rc) rc = read_prompt(x, f->place->pipeline, &s.prompt, e);
    if (!rc && !(losses = mem_alloc_array(2 * n + 1, sizeof *losses)))
        rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = measure(&s, old, held, n, losses, e);
    if (!rc) rc = measure(&s, f->bullets, held, n, losses + n, e);
    if (!rc) night_gain_of(gain, losses, losses + n, n);
    if (!rc) snprintf(gain->pipeline, sizeof gain->pipeline, "%s", f->place->pipeline);
    gain->n_call = f->n_call;
    gain->n_token = tokens_of(&s, f->bullets);
    mem_free(losses);
    mem_free(held);
    mem_free(s.prompt);
    return rc;
}

static int load_now(const struct night *x, json_t **now, struct err *e) {
    char path[NIGHTS_MAX_PATH];
    if (night_live(x, night_step_prompts.artefact, path, sizeof path))
        return playbook_load(now, path, e);
    *now = json_pack("{s:[]}", "");
    return *now ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
}

static int propose(struct night *x, const char *path, struct night_gain *gain, char why[256],
                   struct err *e) {
    struct place v[PLAYBOOK_MAX_PIPELINES];
    struct found f = {.place = NULL};
    json_t *now = NULL;
    size_t n_all = places_of(x, v);
    const struct place most = n_all ? v[0] : (struct place){.n_train = 0};
    size_t n = with_enough(v, n_all);
    if (!n) {
        snprintf(why, 256,
                 "%zu answers to learn from and %zu held out; at least %d and %d are needed",
                 most.n_train, most.n_held, LEAST_TRAIN, LEAST_HELD);
        return CHIMERE_ENOENT;
    }
    int rc = load_now(x, &now, e);
    if (!rc) rc = search_places(x, v, n, now, &f, e);
    if (!rc && !f.place) {
        snprintf(why, 256, "none of %zu changes of the playbook made %d answers more probable",
                 f.n_tried, VALIDATION);
        rc = CHIMERE_ENOENT;
    }
    if (!rc) rc = compare(x, &f, now, gain, e);
    if (!rc && json_object_set(now, f.place->pipeline, f.bullets))
        rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = playbook_save(now, path, e);
    json_decref(f.bullets);
    json_decref(now);
    return rc;
}

const struct night_step night_step_prompts = {.name = "prompts",
                                              .artefact = "playbook.json",
                                              .about = "rules for answers, as a system message",
                                              .time = "mon 02:00",
                                              .propose = propose};

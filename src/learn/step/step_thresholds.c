/* step_thresholds.c: fits the limits of the orchestrator (backend/limits.h) to scored answers.
 *
 * Each decision compares one value of a question with one or two limits. A scored answer says which side would have been
 * right: a bad direct answer should have been thought about or looked up, a good one not; a good answer of a route shows
 * that the route was right, a bad one that it was not. A table gives the cost of each choice. The limits with the lowest
 * cost on the answers to learn from are proposed if the gain there is larger than chance explains, and are measured on
 * the held-out ones. Values are computed as the orchestrator computes them, except that the entropies are those of the
 * stored answer's tokens, so that nothing is generated. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engram/mix.h"
#include "learn/data/own.h"
#include "learn/data/votes.h"
#include "learn/step/limits_file.h"
#include "learn/step/night_step.h"
#include "odo/decide/classify.h"
#include "odo/decide/difficulty.h"
#include "odo/decide/intent.h"
#include "odo/mode.h"

enum { LEAST_TRAIN = 24, LEAST_HELD = 6, MAX_ROWS = 512, WEB_TOKENS = 48, N_LEVEL = 3 };
#define GOOD 0.75 /* least worth of a good answer */
#define BAD 0.5   /* a bad one is below; answers between say nothing */

enum decision { ROUTE, TEXT, PROBE, WEB, N_DECISION };
static const struct {
    enum limit low, high;       /* LIMIT_N: the decision has only one limit */
    double from, to, step, gap; /* values to try; least distance of the two limits */
    /* cost of each level, in wrong decisions: if the answer was bad, if it was good; a bad answer that nothing helped
     * costs 1. For ROUTE: if the default route was right, if the classifier's was. */
    double cost[2][N_LEVEL];
} decisions[N_DECISION] = {
    [ROUTE] = {LIMIT_ROUTE, LIMIT_N, 0.25, 0.90, 0.05, 0, {{0, 1}, {1, 0}}},
    [TEXT] = {LIMIT_EASY, LIMIT_HARD, 0.05, 0.95, 0.05, 0.1, {{1, 0.4, 0}, {0, 0.15, 0.5}}},
    [PROBE] = {LIMIT_SURE, LIMIT_UNSURE, 0.05, 2.5, 0.05, 0.1, {{1, 0.4, 0}, {0, 0.15, 0.5}}},
    [WEB] = {LIMIT_WEB, LIMIT_N, 0.05, 2.5, 0.05, 0, {{1, 0}, {0, 0.5}}},
};

struct row {
    char *question, *answer; /* owned */
    uint64_t hash;           /* of the question */
    char route[INTENT_MAX_NAME];
    bool is_good, is_held;
    bool knows[N_DECISION],
        side[N_DECISION]; /* whether the answer says something; index into cost */
    double value[N_DECISION];
};

struct fit {
    struct night *x;
    struct intent_rules *rules; /* owned; NULL: none */
    struct row *v;              /* owned */
    size_t n;
    struct limits now, next;
    /* of the pass over the answers' tokens */
    struct fzoo_sample *samples; /* owned [n] */
    struct window *windows;      /* owned [n] */
};

/* ---- reading the scored answers ---- */

static struct row *row_of(struct fit *f, uint64_t hash) {
    for (size_t i = 0; i < f->n; i++)
        if (f->v[i].hash == hash) return &f->v[i];
    return NULL;
}

static int put(struct fit *f, const struct store_quality *q, uint64_t hash, double worth) {
    struct row *r = row_of(f, hash);
    char *question = mem_strdup(q->question), *answer = mem_strdup(q->answer);
    if (!question || !answer) {
        mem_free(question);
        mem_free(answer);
        return CHIMERE_ENOMEM;
    }
    if (!r && f->n == MAX_ROWS) { /* the oldest goes */
        mem_free(f->v[0].question);
        mem_free(f->v[0].answer);
        memmove(f->v, f->v + 1, --f->n * sizeof *f->v);
    }
    if (!r) r = &f->v[f->n++];
    else {
        mem_free(r->question);
        mem_free(r->answer);
    }
    *r = (struct row){
        .question = question, .answer = answer, .hash = hash, .is_good = worth >= GOOD};
    snprintf(r->route, sizeof r->route, "%s", q->route ? q->route : "");
    r->is_held = own_asks(f->x->items, question) ||
                 learn_holds_out(question, votes_first_ms(f->x->day.votes, hash));
    return 0;
}

/* The newest answer to a question counts; a correction says that it was bad. */
static int each(void *ud, const struct store_quality *q) {
    struct fit *f = ud;
    const struct learn_spans hidden = {f->x->hidden, f->x->n_hidden};
    if (!q->question || !q->answer || q->parent || learn_spans_have(hidden, q->at_ms)) return 0;
    if (strlen(q->question) > COLLECT_MAX_TEXT || strlen(q->answer) > COLLECT_MAX_TEXT) return 0;
    uint64_t hash = learn_text_hash(q->question);
    double worth = store_quality_worth(q);
    if (q->origin && !strcmp(q->origin, "correction")) {
        struct row *r = row_of(f, hash);
        if (r) r->is_good = false;
        return 0;
    }
    return *q->answer && (worth >= GOOD || worth < BAD) ? put(f, q, hash, worth) : 0;
}

/* ---- the values that decisions compare ---- */

static void set(struct row *r, enum decision d, double value, bool side) {
    r->knows[d] = true;
    r->value[d] = value;
    r->side[d] = side;
}

/* Only a question that the classifier decides says something about its limit. */
static void read_route(const struct fit *f, struct row *r) {
    const struct limits always = {.v = {[LIMIT_ROUTE] = 1e-9},
                                  .route_of = intent_classifier(f->rules)};
    const struct intent_question q = {
        .text = r->question, .n = strlen(r->question), .limits = &always};
    struct intent out;
    intent_decide(f->rules, &q, NULL, &out);
    bool is_default = !strcmp(r->route, "default");
    if (out.how != INTENT_CLASSIFIER || (!is_default && strcmp(r->route, out.route) != 0)) return;
    set(r, ROUTE, out.confidence, is_default ? !r->is_good : r->is_good);
}

static int add_entropy(void *ud, size_t i, int32_t pos, int32_t n_row, const float *logits,
                       struct err *e) {
    struct fit *f = ud;
    int32_t n_vocab = f->x->host->model->hp.n_vocab, first = f->samples[i].n_prompt - 1;
    for (int32_t k = 0; k < n_row; k++, logits += n_vocab) {
        struct engram_row row;
        int32_t at = pos + k - first;
        engram_row_scan(logits, n_vocab, &row);
        if (!isfinite(row.entropy))
            return err_set(e, CHIMERE_ENUMERIC, "thresholds: expected finite logits");
        if (at < MODE_PROBE_TOKENS) f->v[i].value[PROBE] += (double)row.entropy;
        f->v[i].value[WEB] += (double)row.entropy;
    }
    return 0;
}

/* Sets the mean entropies of the first tokens of each answer. */
static int read_entropies(struct fit *f, struct err *e) {
    int rc = 0;
    size_t n = 0;
    for (size_t i = 0; !rc && i < f->n; i++) {
        struct row *r = &f->v[i];
        struct fzoo_sample *s = &f->samples[i];
        rc = night_encode_text(f->x, r->question, r->answer, NULL, NULL, s, e);
        if (s->n_tok > s->n_prompt + WEB_TOKENS) s->n_tok = s->n_prompt + WEB_TOKENS;
        f->windows[i] =
            (struct window){.tokens = s->tokens, .n_tok = s->n_tok, .first = s->n_prompt - 1};
        n += s->n_tok > 0;
        if (rc || s->n_tok) continue;
        mem_free(r->question); /* too long for the model: says nothing */
        mem_free(r->answer);
        memmove(r, r + 1, (--f->n - i) * sizeof *r);
        i--;
    }
    const struct windows_params p = {.n_seq = 32, .n_batch = 512, .turn = night_turn(f->x)};
    if (!rc && n) rc = windows_run(f->x->host->model, f->windows, f->n, &p, add_entropy, f, e);
    for (size_t i = 0; !rc && i < f->n; i++) {
        struct row *r = &f->v[i];
        int32_t n_tok = f->samples[i].n_tok - f->samples[i].n_prompt;
        int32_t n_probe = n_tok < MODE_PROBE_TOKENS ? n_tok : MODE_PROBE_TOKENS;
        set(r, PROBE, r->value[PROBE] / n_probe, r->is_good);
        set(r, WEB, r->value[WEB] / n_tok, r->is_good);
    }
    return rc;
}

static int read_values(struct fit *f, struct err *e) {
    f->samples = mem_zalloc((f->n + 1) * sizeof *f->samples);
    f->windows = mem_zalloc((f->n + 1) * sizeof *f->windows);
    int rc = f->samples && f->windows ? read_entropies(f, e)
                                      : err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (size_t i = 0; !rc && i < f->n; i++) {
        struct row *r = &f->v[i];
        struct difficulty d;
        difficulty_of(r->question, strlen(r->question), NULL, 0, NULL, &d);
        set(r, TEXT, d.score, r->is_good);
        if (f->rules && intent_classifier(f->rules) > 0) read_route(f, r);
    }
    return rc;
}

/* ---- fitting ---- */

static double cost_of(const struct row *r, enum decision d, const struct limits *l) {
    double value = r->value[d];
    if (!r->knows[d]) return 0;
    enum limit high = decisions[d].high;
    int level = value >= l->v[decisions[d].low];
    /* the limit "sure" itself is still sure */
    if (d == PROBE) level = value > l->v[LIMIT_SURE];
    if (high != LIMIT_N && value >= l->v[high]) level = 2;
    return decisions[d].cost[r->side[d]][level];
}

static double total(const struct fit *f, enum decision d, const struct limits *l) {
    double sum = 0;
    for (size_t i = 0; i < f->n; i++)
        if (!f->v[i].is_held) sum += cost_of(&f->v[i], d, l);
    return sum;
}

/* Returns true if the gain on the answers to learn from is larger than two standard errors. */
static bool is_clear(const struct fit *f, enum decision d, const struct limits *l, double *a) {
    double *b = a + f->n;
    size_t n = 0;
    struct night_gain g;
    for (size_t i = 0; i < f->n; i++) {
        if (f->v[i].is_held || !f->v[i].knows[d]) continue;
        a[n] = cost_of(&f->v[i], d, &f->now);
        b[n++] = cost_of(&f->v[i], d, l);
    }
    night_gain_of(&g, a, b, n);
    return n >= LEAST_TRAIN && g.low > 0;
}

/* Tries every value of a decision's limits. Returns whether it changed them. */
static bool fit_one(struct fit *f, enum decision d, double *scratch) {
    enum limit low = decisions[d].low, high = decisions[d].high;
    struct limits best = f->now;
    double least = total(f, d, &best), step = decisions[d].step;
    int n = (int)lround((decisions[d].to - decisions[d].from) / step);
    int gap = high == LIMIT_N ? 0 : (int)lround(decisions[d].gap / step);
    for (int i = 0; i <= n; i++)
        for (int k = i + gap; k <= (high == LIMIT_N ? i : n); k++) {
            struct limits l = f->now;
            l.v[low] = decisions[d].from + step * i;
            if (high != LIMIT_N) l.v[high] = decisions[d].from + step * k;
            double cost = total(f, d, &l);
            if (cost > least - 1e-9) continue;
            least = cost;
            best = l;
        }
    if (!is_clear(f, d, &best, scratch)) return false;
    f->next.v[low] = best.v[low];
    if (high != LIMIT_N) f->next.v[high] = best.v[high];
    return true;
}

/* Sums the costs of each held-out answer over all decisions. */
static void compare(const struct fit *f, double *a, struct night_gain *gain) {
    double *b = a + f->n;
    size_t n = 0;
    for (size_t i = 0; i < f->n; i++) {
        if (!f->v[i].is_held) continue;
        a[n] = b[n] = 0;
        for (int d = 0; d < N_DECISION; d++) {
            a[n] += cost_of(&f->v[i], (enum decision)d, &f->now);
            b[n] += cost_of(&f->v[i], (enum decision)d, &f->next);
        }
        n++;
    }
    night_gain_of(gain, a, b, n);
}

/* ---- the step ---- */

/* Loads the limits in use, and the rules whose limit LIMIT_ROUTE replaces. */
static int load(struct fit *f, struct err *e) {
    char path[NIGHTS_MAX_PATH];
    const char *folder = f->x->host->pipelines;
    f->now = limits_default();
    int rc = night_live(f->x, LIMITS_FILE, path, sizeof path) ? limits_load(&f->now, path, e) : 0;
    if (!rc && folder) {
        if ((size_t)snprintf(path, sizeof path, "%s/intent.yaml", folder) >= sizeof path)
            return err_set(e, CHIMERE_ELIMIT, "pipelines: the path is too long");
        if (intent_load(&f->rules, path, NULL)) f->rules = NULL; /* the server reports it */
    }
    double of = f->rules ? intent_classifier(f->rules) : 0;
    if (!rc && of > 0) {
        f->now.v[LIMIT_ROUTE] = limits_route(&f->now, of);
        f->now.route_of = of;
    }
    f->next = f->now;
    return rc;
}

static int enough(const struct fit *f, char why[256]) {
    size_t n_held = 0;
    for (size_t i = 0; i < f->n; i++) n_held += f->v[i].is_held;
    if (f->n - n_held >= LEAST_TRAIN && n_held >= LEAST_HELD) return 0;
    snprintf(why, 256,
             "%zu scored answers to learn from and %zu held out; at least %d and %d are needed",
             f->n - n_held, n_held, LEAST_TRAIN, LEAST_HELD);
    return CHIMERE_ENOENT;
}

static void close_fit(struct fit *f) {
    for (size_t i = 0; i < f->n; i++) {
        mem_free(f->v[i].question);
        mem_free(f->v[i].answer);
        if (f->samples) mem_free((void *)(uintptr_t)f->samples[i].tokens);
    }
    mem_free(f->samples);
    mem_free(f->windows);
    mem_free(f->v);
    intent_free(f->rules);
}

static int propose(struct night *x, const char *path, struct night_gain *gain, char why[256],
                   struct err *e) {
    struct fit f = {.x = x};
    double *scratch = mem_alloc_array(2 * MAX_ROWS, sizeof *scratch);
    f.v = mem_alloc_array(MAX_ROWS, sizeof *f.v);
    int rc = scratch && f.v ? load(&f, e) : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = store_quality_list(x->host->store, 0, each, &f, e);
    if (rc == CHIMERE_ENOMEM) err_set(e, rc, "out of memory");
    if (!rc) rc = enough(&f, why);
    if (!rc) rc = read_values(&f, e);
    int n_changed = 0;
    for (int d = 0; !rc && d < N_DECISION; d++) n_changed += fit_one(&f, (enum decision)d, scratch);
    if (!rc && !n_changed) {
        snprintf(why, 256, "no other limits decide clearly better on %zu scored answers", f.n);
        rc = CHIMERE_ENOENT;
    }
    if (!rc) compare(&f, scratch, gain);
    if (!rc) rc = limits_save(&f.next, path, e);
    close_fit(&f);
    mem_free(scratch);
    return rc;
}

const struct night_step night_step_thresholds = {
    .name = "thresholds",
    .artefact = LIMITS_FILE,
    .about = "limits of routing, of looking up and of thinking, fitted to scored answers",
    .time = "sun 02:00",
    .unit = "wrong decisions per question",
    .is_beside = true,
    .reads_all = true,
    .propose = propose};

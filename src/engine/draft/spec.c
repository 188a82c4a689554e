#include "engine/draft/spec.h"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "engine/sampler/sampler_impl.h"
#include "engine/draft/suffix.h"
#include "engram/mix.h"

enum {
    PLAIN_EVERY = 96, /* rounds between plain steps that serve as comparison */
    LOOK_EVERY = 16,
    GUARD_ROUNDS = 64,
    GUARD_SEARCHES = 128, /* rounds that looked for drafts, if fewer than GUARD_ROUNDS had some */
    GUARD_TOKENS = 256,
    GUARD_MAX_TOKENS = 4096,
    /* rounds that an acceptance rate averages over: of all sequences, of one sequence */
    ALL_OF = 64,
    ONE_OF = 16,
    /* weight of the prior in rounds, for these two rates */
    PRIOR_ALL = 2,
    PRIOR_ONE = 4,
    FOLLOW_EVERY = 4,
    MAX_LEARNED = 8192 /* prompt tokens that the suffix store learns: 5 ms */
};
static const float least_product = 0.05f, idle_decay = 1 - 1.0f / 1024;
static const double least_gain = 1.02, look_share = 0.01, guard_gain = 0.98, search_gain = 0.99;

int spec_init(struct spec *s, int32_t n_vocab, bool is_fixed, bool store, struct err *e) {
    *s = (struct spec){.n_vocab = n_vocab, .is_fixed = is_fixed, .n_model_max = 3};
    s->guard.n_stop = GUARD_TOKENS;
    return store && !is_fixed ? suffix_new(&s->store, e) : 0;
}

void spec_fini(struct spec *s) {
    suffix_free(s->store);
    suffix_free(s->learned);
    s->store = s->learned = NULL;
}

/* ---- sequences ---- */

int spec_seq_init(struct spec_seq *q, const int32_t *prompt, int32_t n, int32_t n_more) {
    *q = (struct spec_seq){.n_prompt = n, .cap_history = n + n_more + 1};
    q->history = mem_alloc((size_t)q->cap_history * sizeof *q->history);
    if (!q->history) return CHIMERE_ENOMEM;
    memcpy(q->history, prompt, (size_t)n * sizeof *prompt);
    q->n_history = n;
    return 0;
}

void spec_seq_fini(struct spec_seq *q) {
    mem_free(q->history);
    q->history = NULL;
}

void spec_seq_push(struct spec *s, struct spec_seq *q, int32_t token) {
    if (!q->history || q->n_history == q->cap_history) return;
    q->history[q->n_history++] = token;
    if (s->store && !q->off) suffix_learn(s->store, q->salt, q->history, q->n_history);
}

void spec_seq_read(struct spec_seq *q, struct slice piece) {
    for (size_t i = 0; i < piece.n; i++) {
        q->n_tick = piece.p[i] == '`' ? q->n_tick + 1 : 0;
        if (q->n_tick == 3) q->in_code = !q->in_code;
    }
}

/* ---- acceptance ---- */

static const struct source {
    const char *name;
    float prior,
        per_grade; /* acceptance before any measurement: of grade 0, and its change per grade */
} sources[DRAFT_N_SOURCE] = {
    [DRAFT_GRAMMAR] = {"grammar", 0.95f, -0.15f}, [DRAFT_LOOKUP] = {"lookup", 0.55f, 0.05f},
    [DRAFT_SUFFIX] = {"suffix", 0.35f, 0.05f},    [DRAFT_ENGRAM] = {"engram", 0.7f, 0},
    [DRAFT_MODEL] = {"model", 0.7f, 0},
};

const char *draft_source_name(enum draft_source s) { return sources[s].name; }

void draft_stats_add(struct draft_stats *sum, const struct draft_stats *s) {
    sum->n_round += s->n_round;
    for (int i = 0; i < DRAFT_N_SOURCE; i++)
        for (int k = 0; k < DRAFT_N_SLOT; k++) {
            sum->n_drafted[i][k] += s->n_drafted[i][k];
            sum->n_accepted[i][k] += s->n_accepted[i][k];
        }
}

static float accept_of(const struct spec *s, const struct spec_seq *q, enum draft_source source,
                       int32_t grade) {
    if (grade >= SPEC_N_GRADE) grade = SPEC_N_GRADE - 1;
    const struct source *x = &sources[source];
    const struct spec_rate *all = &s->rates.of[source][q->region][grade];
    const struct spec_rate *one = &q->rates.of[source][q->region][grade];
    float prior = x->prior + x->per_grade * (float)grade;
    float p = (all->n_hit + PRIOR_ALL * prior) / (all->n + PRIOR_ALL);
    return (one->n_hit + PRIOR_ONE * p) / (one->n + PRIOR_ONE);
}

static void learn_rate(struct spec_rate *r, bool hit, float rounds) {
    float keep = 1 - 1 / rounds;
    r->n = r->n * keep + 1;
    r->n_hit = r->n_hit * keep + (float)hit;
}

static void learn_slot(struct spec *s, struct spec_seq *q, int32_t source, int32_t grade,
                       bool hit) {
    if (grade >= SPEC_N_GRADE) grade = SPEC_N_GRADE - 1;
    if (!s->is_fixed) learn_rate(&s->rates.of[source][q->region][grade], hit, ALL_OF);
    learn_rate(&q->rates.of[source][q->region][grade], hit, ONE_OF);
}

void spec_learn(struct spec *s, struct spec_seq *q, const struct spec_draft *d, int32_t n_accepted,
                struct draft_stats *stats) {
    if (stats && d->n) stats->n_round++;
    for (int32_t i = 0; i < d->n; i++) {
        int32_t slot = i < DRAFT_N_SLOT ? i : DRAFT_N_SLOT - 1;
        if (stats) {
            stats->n_drafted[d->source[i]][slot]++;
            stats->n_accepted[d->source[i]][slot] += i < n_accepted;
        }
        if (i <= n_accepted) learn_slot(s, q, d->source[i], d->grade[i], i < n_accepted);
    }
    if (n_accepted == d->n && d->n < d->n_asked) learn_slot(s, q, DRAFT_MODEL, d->n, false);
}

/* Rates that are not measured decay slowly towards the prior, so that their sources are tried again. */
static void forget(struct spec *s) {
    struct spec_rate *r = &s->rates.of[0][0][0];
    int32_t n = DRAFT_N_SOURCE * SPEC_N_REGION * SPEC_N_GRADE, at = (int32_t)(s->n_round % n);
    /* one rate is updated per round, so its decay is n times as strong */
    float keep = 1 - (1 - idle_decay) * (float)n;
    if (keep < 0.5f) keep = 0.5f;
    r[at].n *= keep;
    r[at].n_hit *= keep;
}

/* ---- text that the grammar forces ---- */

enum { CUT_BYTES = 96, CUT_BEFORE = 4 /* tokens before the text that may change its cut */ };

/* Tokenizes the last n_before tokens of q together with the text. Returns false if those tokens would change. */
static bool cut(struct spec_seq *q, const struct tok *tok, int32_t n_before, const char *text,
                size_t n_text) {
    char all[CUT_BYTES * (CUT_BEFORE + 1)];
    const int32_t *before = q->history + q->n_history - n_before;
    int32_t *ids = NULL;
    size_t n = 0, n_id = 0;
    for (int32_t i = 0; i < n_before; i++) {
        struct slice piece = tok_piece(tok, before[i]);
        if (!piece.n || piece.n > CUT_BYTES) return false;
        memcpy(all + n, piece.p, piece.n);
        n += piece.n;
    }
    memcpy(all + n, text, n_text);
    if (tok_encode(tok, all, n + n_text, false, false, &ids, &n_id, NULL)) return false;
    bool same = n_id > (size_t)n_before &&
                (!n_before || !memcmp(ids, before, (size_t)n_before * sizeof *ids));
    if (same) {
        size_t more = n_id - (size_t)n_before;
        q->n_forced = more < STEP_MAX_TOK ? (int32_t)more : STEP_MAX_TOK;
        memcpy(q->forced, ids + n_before, (size_t)q->n_forced * sizeof *ids);
    }
    mem_free(ids);
    return same;
}

void spec_cut_forced(struct spec_seq *q, struct sampler *sampler, const struct tok *tok) {
    char text[CUT_BYTES];
    q->n_forced = 0;
    if (q->off || !q->history || !tok || !sampler_draft_begin(sampler)) return;
    size_t n = sampler_draft_bytes(sampler, text, sizeof text);
    sampler_draft_end(sampler);
    bool is_text = n && !memchr(text, GRAMMAR_MARK_BYTE, n); /* marks are separate tokens */
    for (int32_t before = CUT_BEFORE; is_text && before >= 0; before--)
        if (before <= q->n_history && cut(q, tok, before, text, n)) return;
}

/* ---- drafts from text ---- */

struct candidate {
    int32_t token, grade;
    float accept;
};

/* A draft under construction. */
struct growth {
    struct spec *s;
    struct spec_seq *q;
    struct sampler *sampler; /* NULL: no grammar applies */
    struct spec_draft *out;
    int32_t n_max;
    /* lookup_at: index of the next token in the history; -1: none */
    int32_t lookup_at, lookup_grade;
    int32_t engram[STEP_MAX_TOK], n_engram;
    bool is_cut; /* the draft equals q->forced so far */
};

enum { MIN_MATCH = 3, MAX_MATCH = 8, WINDOW = 8192 };

/* Finds the last earlier occurrence of the longest suffix (3 to 8 tokens) of the history; returns the position after
 * it. */
static int32_t find_earlier(const int32_t *h, int32_t n, int32_t *len) {
    int32_t best_len = 0, best_at = -1;
    int32_t from = n > WINDOW ? n - WINDOW : 0;
    for (int32_t end = n - 1; end > from && best_len < MAX_MATCH; end--) {
        if (h[end - 1] != h[n - 1]) continue;
        int32_t l = 1;
        while (l < MAX_MATCH && end - 1 - l >= 0 && h[end - 1 - l] == h[n - 1 - l]) l++;
        if (l > best_len) best_len = l, best_at = end;
    }
    *len = best_len;
    return best_len < MIN_MATCH ? -1 : best_at;
}

/* While the draft follows q->forced, the next token of that tokenization. Otherwise the longest forced token, which is
 * a less reliable guess. */
static bool next_forced(struct growth *g, struct candidate *c) {
    const struct spec_seq *q = g->q;
    int32_t n = g->out->n;
    if (!g->sampler) return false;
    if (n && n <= q->n_forced && q->forced[n - 1] != g->out->tokens[n - 1]) g->is_cut = false;
    bool is_cut = g->is_cut && n < q->n_forced;
    c->token = is_cut ? q->forced[n] : sampler_draft_forced(g->sampler);
    /* text after the last token may change its tokenization */
    c->grade = is_cut ? n + 1 == q->n_forced : 2;
    return c->token >= 0;
}

static bool next_lookup(struct growth *g, struct candidate *c) {
    const struct spec_seq *q = g->q;
    int32_t n = g->out->n, len;
    if (!n) {
        g->lookup_at = find_earlier(q->history, q->n_history, &len);
        g->lookup_grade = len - MIN_MATCH;
    } else if (g->lookup_at >= 0) { /* continue while the draft matches */
        bool same = q->history[g->lookup_at] == g->out->tokens[n - 1];
        g->lookup_at = same ? g->lookup_at + 1 : -1;
        g->lookup_grade = g->lookup_grade >= MAX_MATCH - MIN_MATCH ? 7 : 6;
    }
    if (g->lookup_at < 0 || g->lookup_at >= q->n_history + n) return false;
    c->grade = g->lookup_grade;
    c->token = q->history[g->lookup_at];
    return true;
}

/* Looks in the texts of this scope and in what a night learned for all scopes; the longer context decides. */
static bool next_suffix(struct growth *g, struct candidate *c) {
    const struct spec_seq *q = g->q;
    const struct spec *s = g->s;
    struct suffix_next next, learned;
    int32_t n = q->n_history + g->out->n;
    if (!s->store) return false; /* drafts must not depend on other texts */
    bool found = suffix_next(s->store, q->salt, q->history, n, &next);
    if (s->learned && suffix_next(s->learned, SUFFIX_ALL, q->history, n, &learned) &&
        (!found || learned.order > next.order)) {
        next = learned;
        found = true;
    }
    if (!found) return false;
    c->grade = 2 * next.order + (next.share >= 0.8f);
    c->token = next.token;
    return c->token >= 0 && c->token < g->s->n_vocab; /* it may come from a damaged file */
}

static bool next_engram(struct growth *g, struct candidate *c) {
    int32_t n = g->out->n;
    if (!n && g->q->engram) g->n_engram = engram_mixer_draft(g->q->engram, g->n_max, g->engram);
    if (n && g->n_engram >= n && g->engram[n - 1] != g->out->tokens[n - 1]) g->n_engram = 0;
    c->grade = n;
    if (n >= g->n_engram) return false;
    c->token = g->engram[n];
    return true;
}

static bool (*const next_of[])(struct growth *g, struct candidate *c) = {
    [DRAFT_GRAMMAR] = next_forced,
    [DRAFT_LOOKUP] = next_lookup,
    [DRAFT_SUFFIX] = next_suffix,
    [DRAFT_ENGRAM] = next_engram,
};
enum { N_TEXT_SOURCE = sizeof next_of / sizeof *next_of };

/* Appends the candidate that is most probably accepted and that the grammar allows. Returns false if the draft ends
 * here. */
static bool grow(struct growth *g, float *product) {
    struct candidate c[N_TEXT_SOURCE];
    bool is_open[N_TEXT_SOURCE];
    struct spec_draft *d = g->out;
    for (int i = 0; i < N_TEXT_SOURCE; i++) {
        is_open[i] = next_of[i](g, &c[i]);
        c[i].accept = is_open[i] ? accept_of(g->s, g->q, (enum draft_source)i, c[i].grade) : 0;
    }
    for (;;) {
        int best = -1;
        for (int i = 0; i < N_TEXT_SOURCE; i++)
            if (is_open[i] && (best < 0 || c[i].accept > c[best].accept)) best = i;
        if (best < 0 || *product * c[best].accept < least_product) return false;
        is_open[best] = false;
        if (g->sampler && !sampler_draft_push(g->sampler, c[best].token)) continue;
        d->tokens[d->n] = c[best].token;
        d->source[d->n] = (uint8_t)best;
        d->grade[d->n] = (uint8_t)(c[best].grade < SPEC_N_GRADE ? c[best].grade : SPEC_N_GRADE - 1);
        d->accept[d->n] = c[best].accept;
        g->q->history[g->q->n_history + d->n] = c[best].token;
        d->n++;
        *product *= c[best].accept;
        return true;
    }
}

void spec_draft_text(struct spec *s, struct spec_seq *q, struct sampler *sampler, int32_t n_max,
                     struct spec_draft *out) {
    float product = 1;
    out->n = 0;
    bool ruled = sampler && sampler_draft_begin(sampler);
    q->region = ruled                                     ? SPEC_RULED
                : sampler && sampler_is_thinking(sampler) ? SPEC_THINKING
                : q->in_code                              ? SPEC_CODE
                                                          : SPEC_ANSWER;
    struct growth g = {.s = s,
                       .q = q,
                       .sampler = ruled ? sampler : NULL,
                       .out = out,
                       .lookup_at = -1,
                       .is_cut = true};
    g.n_max = n_max < STEP_MAX_TOK - 1 ? n_max : STEP_MAX_TOK - 1;
    if (g.n_max > q->cap_history - q->n_history) g.n_max = q->cap_history - q->n_history;
    while (q->history && out->n < g.n_max && grow(&g, &product)) {}
    if (ruled) sampler_draft_end(sampler);
}

/* ---- choice of a draft ---- */

struct choice {
    int32_t n_text[SPEC_MAX_SEQS];
    bool model[SPEC_MAX_SEQS];
    int32_t n_model; /* tokens per sequence asked of the model drafter */
    double rate;     /* tokens per ms */
};

/* Chooses how much of each text draft to verify, for the highest rate over all sequences; a plain step is included.
 * The most probable tokens are added first. */
static struct choice best_text(const struct spec *s, const struct spec_offer *o, int32_t n) {
    const struct spec_costs *c = &s->costs[n - 1];
    struct choice best = {.rate = n / spec_cost_verify(c, n, n) * least_gain}, x = best;
    double next[SPEC_MAX_SEQS], tokens = n, replay = c->replay.ms > 0 ? c->replay.ms : 0;
    for (int32_t i = 0; i < n; i++) next[i] = o[i].text.n ? (double)o[i].text.accept[0] : 0;
    for (int32_t n_row = n + 1; n_row <= SPEC_MAX_ROWS; n_row++) {
        int32_t top = 0;
        for (int32_t i = 1; i < n; i++)
            if (next[i] > next[top]) top = i;
        if (!(next[top] > 0)) break;
        tokens += next[top];
        int32_t k = ++x.n_text[top];
        next[top] = k < o[top].text.n ? next[top] * (double)o[top].text.accept[k] : 0;
        x.rate = tokens / (spec_cost_verify(c, n, n_row) + replay);
        if (x.rate > best.rate) best = x;
    }
    return best;
}

/* Expected number of accepted tokens for q if the model drafter drafts k tokens. */
static double model_gain(const struct spec *s, const struct spec_seq *q, int32_t k) {
    double sum = 0, product = 1;
    for (int32_t j = 0; j < k; j++) sum += product *= (double)accept_of(s, q, DRAFT_MODEL, j);
    return sum;
}

static double text_gain(const struct spec_offer *o, int32_t k) {
    double sum = 0, product = 1;
    for (int32_t j = 0; j < k; j++) sum += product *= (double)o->text.accept[j];
    return sum;
}

/* The choice in which the model drafter drafts k tokens for the sequences to which it gives more than the text drafts
 * in `text`, as if it had observed them. */
static struct choice with_model(const struct spec *s, const struct spec_offer *o, int32_t n,
                                int32_t k, const struct choice *text) {
    const struct spec_costs *c = &s->costs[n - 1];
    struct choice x = *text;
    double tokens = n;
    int32_t n_row = n;
    for (int32_t i = 0; i < n; i++) {
        int32_t want = k < o[i].n_model_max ? k : o[i].n_model_max;
        double own = o[i].q->follows ? model_gain(s, o[i].q, want) : 0;
        double theirs = text_gain(&o[i], x.n_text[i]);
        x.model[i] = own > theirs;
        if (x.model[i]) x.n_model = k, x.n_text[i] = 0;
        tokens += x.model[i] ? own : theirs;
        n_row += x.model[i] ? want : x.n_text[i];
    }
    double ms = spec_cost_verify(c, n, n_row) + spec_cost_draft(c, n, x.n_model) +
                (c->replay.ms > 0 ? c->replay.ms : 0);
    x.rate = x.n_model ? tokens / ms : 0;
    return x;
}

/* Returns a choice that was not best, to measure it: the model drafter at each depth in turn, then all text drafts. */
static struct choice look(struct spec *s, const struct spec_offer *o, int32_t n, int32_t n_model,
                          const struct choice *best) {
    struct choice x = *best, none = {.rate = 0};
    int32_t turn = s->n_turn++ % (n_model + 1);
    if (turn) {
        x = with_model(s, o, n, turn, &none);
        if (x.n_model) return x;
    }
    for (int32_t i = 0; i < n; i++) x.n_text[i] = o[i].text.n, x.model[i] = false;
    x.n_model = 0;
    return x;
}

static bool has_drafts(const struct choice *x, int32_t n) {
    bool has = x->n_model > 0;
    for (int32_t i = 0; i < n; i++) has |= x->n_text[i] > 0;
    return has;
}

/* Whether the model drafter has observed the sequences for which x uses it. */
static bool is_ready(const struct spec_offer *o, int32_t n, const struct choice *x) {
    for (int32_t i = 0; i < n; i++)
        if (x->model[i] && !o[i].q->observed) return false;
    return true;
}

/* All gains are measured against plain steps. So two plain steps are run from time to time, and more often while few
 * have been measured. The first of the two still carries the cost that the draft before it caused; it is not observed,
 * so that the second carries none. */
static bool is_plain_due(struct spec *s, float n_known) {
    int32_t every = 4 * n_known < PLAIN_EVERY ? (int32_t)(4 * n_known) : PLAIN_EVERY;
    if (++s->n_since_plain == every) return true;
    if (s->n_since_plain <= every) return false;
    s->n_since_plain = 0;
    return true;
}

static struct choice choose(struct spec *s, const struct spec_offer *o, int32_t n) {
    const struct spec_costs *c = &s->costs[n - 1];
    const struct choice none = {.rate = 0};
    int32_t n_model = 0, n_tried = s->n_tried;
    double ms = spec_cost_verify(c, n, n), alone = 0;
    double least = s->observes ? 1 : least_gain; /* do not begin and stop to observe all the time */
    s->is_look = s->observes = false;
    s->n_tried = 0;
    if (!(ms > 0) || spec_rests(s)) return none;
    for (int32_t i = 0; i < n; i++)
        if (o[i].q->follows && o[i].n_model_max > n_model) n_model = o[i].n_model_max;
    struct choice text = best_text(s, o, n), best = text;
    for (int32_t k = 1; k <= n_model; k++) {
        struct choice x = with_model(s, o, n, k, &text), only = with_model(s, o, n, k, &none);
        if (x.rate > best.rate) best = x;
        if (only.rate > alone) alone = only.rate;
    }
    s->observes = best.n_model > 0 || alone > least * n / ms;
    if (has_drafts(&best, n) && is_plain_due(s, c->verify[n].n)) {
        s->observes &= !s->n_since_plain; /* the second */
        return none;
    }
    struct choice tried = with_model(s, o, n, n_tried, &none);
    s->is_look = tried.n_model > 0 || (s->n_round % LOOK_EVERY == 0 && s->allowance > 0);
    if (tried.n_model > 0) best = tried;
    else if (s->is_look) best = look(s, o, n, n_model, &best);
    if (is_ready(o, n, &best)) return best;
    if (!tried.n_model && s->is_look) s->n_tried = best.n_model;
    s->observes = true; /* this step, so that it can draft in the next one */
    return text;
}

int32_t spec_choose(struct spec *s, struct spec_offer *o, int32_t n) {
    struct choice c = {.rate = 0};
    s->n_seq = s->is_fixed ? 0 : n;
    s->n_round++;
    forget(s);
    if (s->is_fixed) s->observes = true;
    else c = choose(s, o, n);
    for (int32_t i = 0; s->is_fixed && i < n; i++) {
        c.n_text[i] = o[i].text.n;
        c.model[i] = !o[i].text.n && o[i].q->follows && o[i].n_model_max > 0;
        if (c.model[i] && o[i].n_model_max > c.n_model) c.n_model = o[i].n_model_max;
    }
    for (int32_t i = 0; i < n; i++) {
        o[i].n_text = c.n_text[i];
        o[i].model = c.model[i];
    }
    s->n_spec_round += has_drafts(&c, n);
    return c.n_model;
}

/* Returns true if the model drafter would be chosen for a single new sequence in ordinary text, or if nothing has been
 * measured. */
static bool model_pays(const struct spec *s) {
    const struct spec_costs *c = &s->costs[0];
    const struct choice none = {.rate = 0};
    double plain = spec_cost_verify(c, 1, 1);
    bool is_known = false;
    if (!(plain > 0) || s->is_fixed) return true;
    for (int region = SPEC_THINKING; region <= SPEC_CODE; region++) {
        if (!(s->rates.of[DRAFT_MODEL][region][0].n > 1)) continue;
        is_known = true;
        struct spec_seq q = {.follows = true, .region = (enum spec_region)region};
        struct spec_offer o = {.q = &q, .n_model_max = s->n_model_max};
        for (int32_t k = 1; k <= s->n_model_max; k++)
            if (with_model(s, &o, 1, k, &none).rate > least_gain / plain) return true;
    }
    return !is_known;
}

bool spec_begin(struct spec *s, struct spec_seq *q) {
    if (q->off) return false;
    int32_t from = q->n_history > MAX_LEARNED ? q->n_history - MAX_LEARNED : 0;
    for (int32_t i = from; s->store && i < q->n_history; i++)
        suffix_learn(s->store, q->salt, q->history, i + 1);
    return model_pays(s) || ++s->n_left_out % FOLLOW_EVERY == 0;
}

/* ---- measurement ---- */

/* Compares a round with the time that plain steps would have taken; stops drafting if a window of rounds was slower. A
 * round without drafts only adds what looking for them took. If most rounds are such, the window is all that looked. */
static void guard(struct spec *s, bool drafted, double plain_ms, double ms) {
    s->guard.ms += ms;
    if (drafted) s->guard.plain_ms += plain_ms, s->guard.n_round++;
    else s->guard.idle_ms += plain_ms;
    if (s->guard.n_round < GUARD_ROUNDS && ++s->guard.n_search < GUARD_SEARCHES) return;
    bool is_full = s->guard.n_round >= GUARD_ROUNDS;
    double idle = is_full ? 0 : s->guard.idle_ms, least = is_full ? guard_gain : search_gain;
    if (s->guard.plain_ms + idle < least * (s->guard.ms + idle)) {
        s->guard.n_left = s->guard.n_stop;
        if (!s->guard.was_told) log_info("drafts made decoding slower and stop for a while");
        s->guard.was_told = true;
        if (s->guard.n_stop < GUARD_MAX_TOKENS) s->guard.n_stop *= 2;
    } else {
        s->guard.n_stop = GUARD_TOKENS;
    }
    s->guard.plain_ms = s->guard.ms = s->guard.idle_ms = 0;
    s->guard.n_round = s->guard.n_search = 0;
}

void spec_time(struct spec *s, int32_t n_row, int32_t n_tok, double ms, int32_t n_model,
               double draft_ms) {
    int32_t n = s->n_seq;
    if (!n) return;
    struct spec_costs *c = &s->costs[n - 1];
    bool drafted = n_row > n || n_model > 0;
    double looking_ms = s->text_ms + s->observe_ms; /* plain decoding would not have spent it */
    spec_cost_learn(c, n, n_row, s->after_draft, ms - draft_ms - (n_row > n ? 0 : looking_ms));
    if (n_model) spec_cost_learn_draft(c, n_model, draft_ms);
    double plain = spec_cost_verify(c, n, n) * (c->slowness > 0 ? c->slowness : 1);
    double plain_ms = plain * n_tok / n;
    s->allowance += look_share * ms;
    if (s->allowance > GUARD_ROUNDS * plain) s->allowance = GUARD_ROUNDS * plain;
    double lost = ms - plain_ms + (c->replay.ms > 0 ? c->replay.ms : 0);
    if (s->is_look && (drafted || s->observes) && lost > 0) s->allowance -= lost;
    if (spec_rests(s)) s->guard.n_left -= n_tok;
    else if (plain > 0) guard(s, drafted, plain_ms, drafted ? ms : looking_ms);
    s->after_draft = n_row > n || s->observes;
}

void spec_pause(struct spec *s) {
    s->n_seq = 0;
    s->after_draft = false;
    s->observes = s->is_fixed;
}

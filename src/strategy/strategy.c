/* strategy.c: the table of strategies, their parameters, and the code that all strategies share. */
#include "strategy/strategy.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "backend/call.h"
#include "strategy/strategy_budget.h"
#include "strategy/strategy_check.h"

enum { DEFAULT_TOKENS = 1024 };

/* ---- strategies without a verifier ---- */

struct relay {
    const struct strategy_use *u;
    struct strategy_result *r;
};

static int run_greedy(const struct strategy_use *u, struct strategy_result *r, struct err *e) {
    struct request a;
    strategy_ask(u, 0, &a);
    a.max_tokens = u->strategy->max_tokens ? u->strategy->max_tokens : u->request->max_tokens;
    a.sampling.temperature = 0;
    if (u->strategy->tokens) strategy_limit(u, r, &a, 1);
    struct call c = {.backend = u->backend,
                     .request = &a,
                     .on_event = u->on_event,
                     .ud = u->ud,
                     .cancelled = u->cancelled,
                     .deadline_ns = strategy_deadline(u)};
    struct call_result out;
    int rc = call_run(&c, &out, e);
    r->was_late = rc == CHIMERE_ETIMEOUT;
    strategy_count(r, &out.stats, out.n_reasoning);
    buf_fini(&r->content);
    buf_fini(&r->reasoning);
    r->content = out.content;
    r->reasoning = out.reasoning;
    buf_init(&out.content, 0);
    buf_init(&out.reasoning, 0);
    r->finish = out.finish;
    r->score = 1;
    r->winner = 0;
    call_fini(&out);
    return r->was_late ? 0 : rc;
}

static int run_majority(const struct strategy_use *u, struct strategy_result *r, struct err *e) {
    int32_t n = u->strategy->n;
    struct candidate *c = mem_alloc_array((size_t)n, sizeof *c);
    if (!c) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    int rc = strategy_sample(u, c, n, r, e);
    double share = 0;
    int32_t winner = rc ? -1 : strategy_vote(c, n, false, &share);
    for (int32_t i = 0; i < n && !rc;
         i++) { /* score of a candidate: share of the candidates with the same answer */
        int32_t same = 0;
        for (int32_t k = 0; k < n; k++) same += !c[k].failed && !strcmp(c[k].key, c[i].key);
        c[i].score = c[i].failed ? 0 : (double)same / n;
    }
    if (!rc) rc = strategy_give(u, c, n, winner, r, e);
    r->score = share;
    strategy_drop(c, n);
    mem_free(c);
    return rc;
}

#define TREE .width = 4, .steps = 24, .step_tokens = 128
#define SAMPLED .max_tokens = 0, .temperature = 0.7, .top_p = 0.95
/* clang-format off */
static const struct strategy_row rows[] = {
    {"greedy", "one answer, always the likeliest token", {.n = 1, .top_p = 1}, run_greedy, false},
    {"majority", "n answers, the one that most agree on", {.n = 8, SAMPLED}, run_majority, false},
    {"best_of_n", "n answers, the one that the verifier likes best", {.n = 8, SAMPLED}, strategy_best, false},
    {"dvts", "n / width trees, grown step by step, each keeping the step that the verifier likes best", {.n = 8, TREE, SAMPLED}, strategy_dvts, true},
    {"beam", "n ways at a time, grown step by step, the n / width best of all kept", {.n = 8, TREE, SAMPLED}, strategy_beam, true},
    {"consistent", "n texts, the one that has most in common with the others", {.n = 8, SAMPLED}, strategy_consistent, false},
    {"tested", "n programs, the one that passes most tests", {.n = 8, SAMPLED}, strategy_tested, false},
    {"weighted", "n answers, votes that weigh what the verifier thinks of them", {.n = 8, SAMPLED}, strategy_weighted, false},
};
/* clang-format on */
enum { N_ROW = sizeof rows / sizeof *rows };

/* ---- names and parameters ---- */

struct key {
    const char *name;
    size_t offset;
    bool real, of_trees;
    double min, max;
};

static const struct key keys[] = {
    {"n", offsetof(struct strategy, n), false, false, 1, STRATEGY_MAX_N},
    {"width", offsetof(struct strategy, width), false, true, 1, STRATEGY_MAX_N},
    {"steps", offsetof(struct strategy, steps), false, true, 1, STRATEGY_MAX_STEPS},
    {"step_tokens", offsetof(struct strategy, step_tokens), false, true, 1, 4096},
    {"max_tokens", offsetof(struct strategy, max_tokens), false, false, 1, 1 << 20},
    {"tokens", offsetof(struct strategy, tokens), false, false, 1, INT32_MAX},
    {"temperature", offsetof(struct strategy, temperature), true, false, 0, 2},
    {"top_p", offsetof(struct strategy, top_p), true, false, 0.01, 1},
};

static int set_key(struct strategy *s, const char *key, const char *value, struct err *e) {
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const struct key *k = &keys[i];
        if (strcmp(k->name, key) != 0 || (k->of_trees && !s->row->is_tree)) continue;
        double x;
        int64_t whole;
        if (k->real ? !str_to_f64(value, k->min, k->max, &x)
                    : !str_to_i64(value, (int64_t)k->min, (int64_t)k->max, &whole))
            return err_set(e, CHIMERE_EINVAL, "strategy: %s: expected %g to %g, got \"%.32s\"", key,
                           k->min, k->max, value);
        if (k->real) *(double *)((char *)s + k->offset) = x;
        else *(int32_t *)((char *)s + k->offset) = (int32_t)whole;
        return 0;
    }
    return err_set(e, CHIMERE_EINVAL, "strategy: %s has no parameter \"%.32s\"", s->row->name, key);
}

int strategy_parse(struct strategy *s, const char *text, struct err *e) {
    char copy[STRATEGY_MAX_TEXT];
    if (!text || !*text) text = rows[0].name;
    if (strlen(text) >= sizeof copy)
        return err_set(e, CHIMERE_ELIMIT, "strategy: expected at most %zu bytes", sizeof copy - 1);
    memcpy(copy, text, strlen(text) + 1);
    char *rest = strchr(copy, ':');
    if (rest) *rest++ = 0;
    const struct strategy_row *row = NULL;
    for (size_t i = 0; i < N_ROW && !row; i++)
        if (!strcmp(rows[i].name, copy)) row = &rows[i];
    if (!row) {
        err_set(e, CHIMERE_EINVAL, "strategy: expected a name, got \"%.32s\"", copy);
        char all[120] = "";
        for (size_t i = 0, at = 0; i < N_ROW && at + strlen(rows[i].name) + 3 < sizeof all; i++)
            at += (size_t)snprintf(all + at, sizeof all - at, "%s%s", i ? ", " : "", rows[i].name);
        if (e) err_hint(e, "there are %s", all);
        return CHIMERE_EINVAL;
    }
    *s = row->defaults;
    s->row = row;
    for (char *pair, *next = NULL; rest && *rest; rest = next) {
        pair = rest;
        next = strchr(pair, ',');
        if (next) *next++ = 0;
        char *value = strchr(pair, '=');
        if (!value)
            return err_set(e, CHIMERE_EINVAL, "strategy: expected KEY=VALUE, got \"%.32s\"", pair);
        *value++ = 0;
        int rc = set_key(s, pair, value, e);
        if (rc) return rc;
    }
    if (row->is_tree && s->n % s->width)
        return err_set(e, CHIMERE_EINVAL, "strategy: n: expected a multiple of width %d, got %d",
                       s->width, s->n);
    return 0;
}

const char *strategy_name(const struct strategy *s) { return s->row->name; }

bool strategy_at(int i, const char **name, const char **about) {
    if (i < 0 || i >= N_ROW) return false;
    *name = rows[i].name;
    *about = rows[i].about;
    return true;
}

/* ---- cost ---- */

int64_t strategy_generated(const struct strategy_cost *c) {
    return c->n_thinking + c->n_answer + c->n_check;
}

static void add_stats(struct engine_stats *sum, const struct engine_stats *s) {
    sum->n_prompt += s->n_prompt;
    sum->n_cached += s->n_cached;
    sum->n_generated += s->n_generated;
    sum->n_drafted += s->n_drafted;
    sum->n_accepted += s->n_accepted;
    draft_stats_add(&sum->drafts, &s->drafts);
    sum->queue_ms += s->queue_ms;
    sum->prefill_ms += s->prefill_ms;
    sum->decode_ms += s->decode_ms;
}

void strategy_count(struct strategy_result *r, const struct engine_stats *s, int32_t n_reasoning) {
    add_stats(&r->stats, s);
    r->cost.n_call++;
    r->cost.n_prompt += s->n_prompt;
    r->cost.n_cached += s->n_cached;
    r->cost.n_thinking += n_reasoning;
    r->cost.n_answer += s->n_generated - n_reasoning;
}

void strategy_count_check(struct strategy_result *r, const struct engine_stats *s) {
    add_stats(&r->stats, s);
    r->cost.n_call++;
    r->cost.n_check_prompt += s->n_prompt;
    r->cost.n_check_cached += s->n_cached;
    r->cost.n_check += s->n_generated;
}

json_t *strategy_json(const struct strategy *s, const struct strategy_result *r) {
    const struct strategy_cost *c = &r->cost;
    return json_pack("{s:s, s:i, s:f, s:i, s:b, s:{s:I, s:I, s:I, s:I, s:I, s:I}, s:i, s:f}",
                     "name", s->row->name, "n", s->n, "score", r->score, "candidates",
                     r->candidates ? (int)json_array_size(r->candidates) : 1, "late", r->was_late,
                     "tokens", "prompt", (json_int_t)c->n_prompt, "cached", (json_int_t)c->n_cached,
                     "thinking", (json_int_t)c->n_thinking, "answer", (json_int_t)c->n_answer,
                     "check_prompt", (json_int_t)c->n_check_prompt, "check", (json_int_t)c->n_check,
                     "calls", c->n_call, "ms", r->ms);
}

/* ---- sampling ---- */

int64_t strategy_deadline(const struct strategy_use *u) {
    int64_t own = u->deadline_ns, asks = u->request->deadline_ns;
    return !own || (asks && asks < own) ? asks : own;
}

bool strategy_over(const struct strategy_use *u) {
    int64_t deadline = strategy_deadline(u);
    return (u->cancelled && *u->cancelled) || (deadline && clock_ns() >= deadline);
}

void strategy_ask(const struct strategy_use *u, int32_t i, struct request *out) {
    const struct strategy *s = u->strategy;
    *out = *u->request;
    out->n = 1;
    out->progress = false;
    out->deadline_ns = 0; /* strategies observe the deadline themselves */
    /* the session would keep the state of the last candidate, not of the winner */
    out->session = NULL;
    out->sampling.seed += (uint64_t)i;
    out->sampling.temperature = (float)s->temperature;
    out->sampling.top_p = (float)s->top_p;
    out->has_temperature = out->has_top_p = true;
    if (s->n > 1) {
        out->probs = false; /* tokens of a candidate cannot be shown before it has won */
        out->sampling.n_probs = 0;
        out->sampling.top_k = 0;
    }
    if (s->max_tokens) out->max_tokens = s->max_tokens;
    else if (out->max_tokens <= 0) out->max_tokens = DEFAULT_TOKENS;
}

int32_t strategy_left(const struct strategy_use *u, const struct strategy_result *r) {
    if (!u->strategy->tokens) return INT32_MAX;
    int64_t left = u->strategy->tokens - strategy_generated(&r->cost);
    return left > 0 ? (int32_t)left : 0;
}

bool strategy_limit(const struct strategy_use *u, const struct strategy_result *r,
                    struct request *asks, int32_t n) {
    int32_t share = strategy_left(u, r) / n;
    for (int32_t i = 0; i < n; i++)
        if (asks[i].max_tokens <= 0 || asks[i].max_tokens > share) asks[i].max_tokens = share;
    return share > 0;
}

static void take(struct candidate *c, struct batch_request *it) {
    *c = (struct candidate){.content = it->content,
                            .reasoning = it->reasoning,
                            .finish = it->finish,
                            .failed = it->finish == FINISH_ERROR || it->has_calls,
                            .err = it->err};
    buf_init(&it->content, 0);
    buf_init(&it->reasoning, 0);
    if (!c->failed) strategy_key(c->content.n ? c->content.p : "", c->content.n, c->key);
}

int strategy_sample(const struct strategy_use *u, struct candidate *c, int32_t n,
                    struct strategy_result *r, struct err *e) {
    struct request *asks = mem_alloc_array((size_t)n, sizeof *asks);
    struct batch_request *items = mem_alloc_array((size_t)n, sizeof *items);
    int rc = asks && items ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    memset(c, 0, (size_t)n * sizeof *c);
    for (int32_t i = 0; i < n && !rc; i++) {
        strategy_ask(u, i, &asks[i]);
        items[i] = (struct batch_request){.request = &asks[i]};
    }
    if (!rc && !strategy_limit(u, r, asks, n))
        rc = err_set(e, CHIMERE_EINVAL, "strategy: tokens: expected at least %d, one per candidate",
                     n);
    if (!rc) {
        struct batch b = {.backend = u->backend,
                          .items = items,
                          .n = n,
                          .cancelled = u->cancelled,
                          .deadline_ns = strategy_deadline(u)};
        rc = batch_run(&b, e);
        for (int32_t i = 0; i < n; i++) {
            strategy_count(r, &items[i].stats, items[i].n_reasoning);
            take(&c[i], &items[i]);
        }
        batch_fini(items, n);
    }
    mem_free(items);
    mem_free(asks);
    return rc;
}

/* ---- selection ---- */

/* Smallest weight of a vote. A verifier is wrong about one answer more often than many equal answers are
 * (chimere-nano in 2 bits accepts 58 % of right answers and 31 % of wrong ones). */
static const double DOUBT = 0.2;

static bool may_vote(const struct candidate *c, bool any_whole) {
    return !c->failed && (!any_whole || (c->finish == FINISH_STOP && c->content.n));
}

int32_t strategy_vote(const struct candidate *c, int32_t n, bool weighted, double *share) {
    bool whole = false;
    double all = 0, most = -1;
    int32_t winner = -1;
    for (int32_t i = 0; i < n; i++) whole |= may_vote(&c[i], true);
    for (int32_t i = 0; i < n; i++) {
        if (!may_vote(&c[i], whole)) continue;
        double votes = 0;
        for (int32_t k = 0; k < n; k++)
            if (may_vote(&c[k], whole) && !strcmp(c[i].key, c[k].key))
                votes += weighted ? DOUBT + c[k].score : 1;
        all += weighted ? DOUBT + c[i].score : 1;
        if (votes > most || (votes == most && c[i].score > c[winner].score)) {
            most = votes;
            winner = i;
        }
    }
    *share = all > 0 && winner >= 0 ? most / all : 0;
    return winner;
}

int32_t strategy_pick(const struct candidate *c, int32_t n) {
    bool whole = false;
    int32_t winner = -1, most = 0;
    for (int32_t i = 0; i < n; i++) whole |= may_vote(&c[i], true);
    for (int32_t i = 0; i < n; i++) {
        if (!may_vote(&c[i], whole)) continue;
        int32_t same = 0;
        for (int32_t k = 0; k < n; k++)
            same += may_vote(&c[k], whole) && !strcmp(c[k].key, c[i].key);
        if (winner >= 0 &&
            (c[i].score < c[winner].score || (c[i].score == c[winner].score && same <= most)))
            continue;
        winner = i;
        most = same;
    }
    return winner;
}

static int send(const struct strategy_use *u, enum chat_event_kind kind, const struct buf *text) {
    if (!u->on_event || !text->n) return 0;
    struct chat_event chat = {.kind = kind, .text = text->p, .n = text->n, .index = -1};
    return u->on_event(u->ud, &(struct backend_event){.kind = EVENT_CHAT, .chat = &chat});
}

int strategy_give(const struct strategy_use *u, const struct candidate *c, int32_t n,
                  int32_t winner, struct strategy_result *r, struct err *e) {
    r->winner = winner;
    r->candidates = json_array();
    if (!r->candidates) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    static const char *const names[] = {
        [FINISH_NONE] = "none",   [FINISH_STOP] = "stop",           [FINISH_LENGTH] = "length",
        [FINISH_CALLS] = "calls", [FINISH_CANCELLED] = "cancelled", [FINISH_ERROR] = "failed"};
    for (int32_t i = 0; i < n; i++)
        json_array_append_new(r->candidates,
                              json_pack("{s:s#, s:s, s:f, s:s}", "text",
                                        c[i].content.n ? c[i].content.p : "", (int)c[i].content.n,
                                        "answer", c[i].key, "score", c[i].score, "finish",
                                        names[c[i].failed ? FINISH_ERROR : c[i].finish]));
    if (winner < 0) {
        r->finish = FINISH_CANCELLED;
        return 0;
    }
    const struct candidate *w = &c[winner];
    r->finish = w->finish;
    r->score = w->score;
    buf_put(&r->reasoning, w->reasoning.n ? w->reasoning.p : "", w->reasoning.n);
    buf_put(&r->content, w->content.n ? w->content.p : "", w->content.n);
    if (r->reasoning.failed || r->content.failed)
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (send(u, CHAT_REASONING, &r->reasoning) || send(u, CHAT_CONTENT, &r->content))
        r->finish = FINISH_CANCELLED;
    return 0;
}

void strategy_drop(struct candidate *c, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        buf_fini(&c[i].content);
        buf_fini(&c[i].reasoning);
    }
}

/* ---- a run ---- */

int strategy_run(const struct strategy_use *u, struct strategy_result *r, struct err *e) {
    *r = (struct strategy_result){.finish = FINISH_ERROR, .winner = -1};
    buf_init(&r->content, CALL_MAX_TEXT);
    buf_init(&r->reasoning, CALL_MAX_TEXT);
    if (json_array_size(u->request->tools))
        return err_set(e, CHIMERE_EUNSUPPORTED, "strategy: expected a question without tools");
    int64_t start = clock_ns();
    int rc = u->strategy->row->run(u, r, e);
    if (!rc && strategy_deadline(u) && clock_ns() >= strategy_deadline(u)) r->was_late = true;
    if (u->cancelled && *u->cancelled) r->finish = FINISH_CANCELLED;
    else if (!rc && r->was_late && r->finish == FINISH_CANCELLED) r->finish = FINISH_LENGTH;
    r->ms = clock_ms_since(start);
    return rc;
}

void strategy_fini(struct strategy_result *r) {
    buf_fini(&r->content);
    buf_fini(&r->reasoning);
    json_decref(r->candidates);
    r->candidates = NULL;
}

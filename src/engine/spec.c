#include "engine/spec.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "engram/mix.h"

enum {
    MIN_MATCH = 3,
    MAX_MATCH = 8,
    PROBE_EVERY = 64,
    PROBE_RARELY = 2048,
    SURE_ROUNDS = 8,
    IDLE_ROUNDS = 32,
    FOLLOW_EVERY = 16
};
static const float least_yield = 1.0f / 3;

int spec_seq_init(struct spec_seq *q, const int32_t *prompt, int32_t n, int32_t n_more) {
    *q = (struct spec_seq){.n_prompt = n, .cap_history = n + n_more + 1};
    q->history = mem_alloc((size_t)q->cap_history * sizeof *q->history);
    if (!q->history) return CHIMERE_ENOMEM;
    memcpy(q->history, prompt, (size_t)n * sizeof *prompt);
    q->n_history = n;
    for (int i = 0; i < STEP_MAX_TOK; i++) q->accept[i] = 0.7f; /* a hopeful start, soon replaced */
    for (int i = 0; i < SPEC_N_DRAFTER; i++) q->drafters[i].yield = 0.7f;
    q->drafter = SPEC_N_DRAFTER;
    return 0;
}

void spec_seq_fini(struct spec_seq *q) {
    mem_free(q->history);
    q->history = NULL;
}

void spec_seq_push(struct spec_seq *q, int32_t token) {
    if (q->history && q->n_history < q->cap_history) q->history[q->n_history++] = token;
}

/* The depth that promises the most tokens a second; 0 unless another gains at least 2 %. */
static int32_t best_depth(const struct spec *s, const struct spec_seq *q, int32_t n_max) {
    int32_t best = 0;
    double best_rate = 1 / s->step_ms[0], expected = 1, reach = 1;
    for (int32_t n = 1; n <= n_max; n++) {
        reach *= q->accept[n - 1];
        expected += reach;
        double rate = expected / (s->step_ms[n] + s->after_ms[n]);
        if (rate > best_rate * (best ? 1 : 1.02)) best = n, best_rate = rate;
    }
    return best;
}

bool spec_follows(struct spec *s, struct spec_seq *q, int32_t n_max) {
    if (n_max > STEP_MAX_TOK - 1) n_max = STEP_MAX_TOK - 1;
    if (n_max < 1 || q->off) return false;
    if (s->n_ended) memcpy(q->accept, s->accept, sizeof q->accept);
    for (int32_t n = 0; n <= n_max; n++)
        if (s->n_seen[n] < 2) return true;
    if (best_depth(s, q, n_max) > 0) return true;
    if (++s->n_left_out % FOLLOW_EVERY != 0) return false;
    s->next_probe = s->n_step; /* what it follows for */
    return true;
}

void spec_leave(struct spec *s, const struct spec_seq *q) {
    if (!q->n_round) return;
    s->n_ended++;
    float by = 1.0f / (float)(s->n_ended < SURE_ROUNDS ? s->n_ended : SURE_ROUNDS);
    for (int32_t i = 0; i < STEP_MAX_TOK; i++) s->accept[i] += by * (q->accept[i] - s->accept[i]);
}

int32_t spec_choose(struct spec *s, struct spec_seq *q, int32_t n_max, bool fixed) {
    if (n_max > STEP_MAX_TOK - 1) n_max = STEP_MAX_TOK - 1;
    if (n_max < 1 || q->off) return 0;
    if (fixed) return n_max;
    s->n_step++;
    for (int32_t n = n_max; n >= 0; n--) /* measure what is unknown: each depth twice */
        if (s->n_seen[n] < 2) return n;
    if (s->plain_again) {
        s->plain_again = false;
        return 0;
    }
    int32_t best = best_depth(s, q, n_max);
    if (!s->probe_gap) s->next_probe = s->n_step + (s->probe_gap = PROBE_EVERY);
    if (s->n_step < s->next_probe) return best;
    /* A probe costs up to a step or two; where drafting loses, that must stay below a hundredth. */
    s->probe_gap = best                          ? PROBE_EVERY
                   : s->probe_gap < PROBE_RARELY ? 2 * s->probe_gap
                                                 : PROBE_RARELY;
    s->next_probe = s->n_step + s->probe_gap;
    s->n_probe++;
    if (!best) return 1 + s->n_probe % n_max;
    /* every other look is at plain steps: two, as the first has a draft's state to bring up */
    s->plain_again = s->n_probe % 2 == 0;
    return s->plain_again ? 0 : 1 + s->n_probe / 2 % n_max;
}

void spec_learn(struct spec_seq *q, int32_t n_drafted, int32_t n_accepted) {
    if (q->drafter < SPEC_N_DRAFTER) {
        int32_t n = ++q->drafters[q->drafter].n_round;
        float hit = n_accepted > 0, by = 1.0f / (float)(n < SURE_ROUNDS ? n + 1 : SURE_ROUNDS);
        q->drafters[q->drafter].yield += by * (hit - q->drafters[q->drafter].yield);
    }
    q->n_round++;
    float step = q->n_round < 16 ? 1.0f / (float)(q->n_round + 1) : 1.0f / 16;
    for (int32_t i = 0; i < n_drafted && i <= n_accepted; i++)
        q->accept[i] += step * ((i < n_accepted ? 1.0f : 0.0f) - q->accept[i]);
}

void spec_time(struct spec *s, int32_t n_drafted, double ms) {
    int32_t n = n_drafted, owed = s->owed;
    if (n >= STEP_MAX_TOK) return;
    s->owed = n;
    if (owed > 0 && !n) { /* never a measure of plain steps */
        if (s->n_seen[0] < 2) return;
        double extra = ms > s->step_ms[0] ? ms - s->step_ms[0] : 0, most = 8 * s->step_ms[0];
        double by = ++s->n_after[owed] < 10 ? 1.0 / s->n_after[owed] : 0.1;
        s->after_ms[owed] += by * ((extra < most ? extra : most) - s->after_ms[owed]);
        return;
    }
    if (owed > 0) ms = ms > s->after_ms[owed] ? ms - s->after_ms[owed] : 0;
    /* the first measurement of a depth pays for cold caches: it is replaced by the second */
    if (s->n_seen[n] < 2) s->step_ms[n] = ms;
    else
        s->step_ms[n] += (n ? 0.1 : 0.3) * /* plain steps are seldom seen while drafting pays */
                         ((ms < 4 * s->step_ms[n] ? ms : 4 * s->step_ms[n]) - s->step_ms[n]);
    s->n_seen[n]++;
}

void spec_pause(struct spec *s) { s->owed = 0; }

int32_t spec_ngram(const struct spec_seq *q, int32_t n_max, int32_t *out) {
    const int32_t *h = q->history;
    int32_t n = q->n_history, best_len = 0, best_at = -1;
    if (!h || n < MIN_MATCH + 1) return 0;
    int32_t from = n > 8192 ? n - 8192 : 0;
    for (int32_t end = n - 1; end > from && best_len < MAX_MATCH;
         end--) { /* h[end - 1] would be the last matched */
        if (h[end - 1] != h[n - 1]) continue;
        int32_t len = 1;
        while (len < MAX_MATCH && end - 1 - len >= 0 && h[end - 1 - len] == h[n - 1 - len]) len++;
        if (len > best_len) best_len = len, best_at = end;
    }
    if (best_len < MIN_MATCH) return 0;
    int32_t got = 0;
    while (got < n_max && best_at + got < n) {
        out[got] = h[best_at + got];
        got++;
    }
    return got;
}

/* ---- drafters ---- */

static int32_t draft_engram(const struct spec_seq *q, int32_t n_max, int32_t *out) {
    return q->engram ? engram_mixer_draft(q->engram, n_max, out) : 0;
}

static const struct {
    const char *name;
    int32_t (*draft)(const struct spec_seq *q, int32_t n_max, int32_t *out);
} drafters[SPEC_N_DRAFTER] = {
    [SPEC_PROMPT_LOOKUP] = {"prompt lookup", spec_ngram},
    [SPEC_ENGRAM] = {"engram", draft_engram},
};

int32_t spec_draft(struct spec_seq *q, int32_t n_max, int32_t *out) {
    q->drafter = SPEC_N_DRAFTER;
    for (int i = 0; i < SPEC_N_DRAFTER; i++) {
        bool poor = q->drafters[i].n_round >= SURE_ROUNDS && q->drafters[i].yield < least_yield;
        if (poor && ++q->drafters[i].n_idle % IDLE_ROUNDS != 0) continue;
        int32_t n = drafters[i].draft(q, n_max, out);
        if (n < 1) continue;
        q->drafter = (enum spec_drafter)i;
        return n;
    }
    return 0;
}

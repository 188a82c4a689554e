/* sampler_think.c: applies the thinking control that think.h describes, one token at a time. */
#include <math.h>
#include <string.h>

#include "engine/sampler/sampler_impl.h"

static const float could_end = 14; /* largest distance in nats to the most likely token */

static const struct think_control *control(const struct sampler *s) { return &s->p.think; }

static const struct think_seq *wait_of(const struct sampler *s) {
    return &control(s)->vocab->wait[control(s)->langs & THINK_EN ? 0 : 1];
}

/* Returns token i of the forced sequence; *n is its length. If the line has not ended, the sequence begins with a
 * newline. */
static int32_t forced_at(const struct sampler *s, enum think_force f, size_t i, size_t *n) {
    const struct think_vocab *v = control(s)->vocab;
    size_t n_line = f == FORCE_END ? 0 : v->newline.n;
    const int32_t *rest = f == FORCE_WAIT ? wait_of(s)->ids : s->p.think_end;
    *n = n_line + (f == FORCE_WAIT ? wait_of(s)->n : s->p.n_think_end);
    return i < n_line ? v->newline.ids[i] : rest[i - n_line];
}

static void begin(struct sampler *s, enum think_force f) {
    bool line_ended = s->think.last & THINK_ENDS_LINE;
    s->think.force = f == FORCE_CLOSE && line_ended ? FORCE_END : f;
    s->think.n_forced = f == FORCE_WAIT && line_ended ? control(s)->vocab->newline.n : 0;
}

static bool is_on(const struct sampler *s) {
    return s->think.inside && s->p.n_think_end && think_is_on(control(s));
}

/* Mean certainty over the window; below 0: unknown. */
static float certainty(const struct sampler *s) {
    int32_t n = s->think.n_ring < control(s)->window ? s->think.n_ring : control(s)->window;
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += (double)s->think.ring[i];
    return n ? (float)(sum / n) : -1;
}

/* A full stop ends a step only if the most likely next token begins with a space: the one in "3.5" does not end a
 * step. */
static bool at_step_end(const struct sampler *s, const float *logits, float max) {
    if (!(s->think.last & THINK_ENDS_STEP)) return false;
    if (s->think.last & THINK_ENDS_LINE) return true;
    int32_t next = sampler_find(logits, s->n_vocab, max);
    return next < control(s)->vocab->n_vocab && control(s)->vocab->classes[next] & THINK_BLANK;
}

bool sampler_think_reads(const struct sampler *s) {
    return is_on(s) && sampler_think_forced(s) < 0;
}

void sampler_think_look(struct sampler *s, const float *logits, float max) {
    s->think.look = -1;
    if (!sampler_think_reads(s)) return;
    struct think_look look;
    think_look(logits, s->n_vocab, max, &look);
    s->think.look = look.certainty;
    const struct think_control *c = control(s);
    /* the model ends the block by itself */
    if (c->stop > 1 || s->think.n_inside < c->min_tokens || certainty(s) < c->stop ||
        !at_step_end(s, logits, max) || sampler_find(logits, s->n_vocab, max) == s->p.think_end[0])
        return;
    begin(s, FORCE_CLOSE);
    s->think.stats.end = THINK_SURE;
}

int32_t sampler_think_forced(const struct sampler *s) {
    if (!s->think.inside || !s->p.n_think_end) return -1;
    size_t n;
    if (s->think.force) return forced_at(s, s->think.force, s->think.n_forced, &n);
    if (s->p.think_budget < 0 || s->think.n_inside < s->p.think_budget) return -1;
    return s->p.think_end[0];
}

bool sampler_think_suppresses(const struct sampler *s) {
    const struct think_control *c = control(s);
    return is_on(s) && c->suppress < 1 && s->think.last & THINK_ENDS_STEP &&
           sampler_think_forced(s) < 0 && certainty(s) > c->suppress;
}

void sampler_think_suppress(struct sampler *s) {
    const struct think_vocab *v = control(s)->vocab;
    unsigned langs = control(s)->langs;
    int32_t best = 0;
    for (int32_t i = 1; i < v->n_vocab; i++)
        if (s->work[i] > s->work[best]) best = i;
    s->think.stats.n_suppressed += (v->classes[best] & langs) != 0;
    for (int32_t i = 0; i < v->n_vocab; i++)
        if (v->classes[i] & langs) s->work[i] = -INFINITY;
}

/* If `chosen` ends a step, returns the token that also ends the line, else -1. The block then ends as in the training
 * data. Closing it directly after the full stop tokenizes the text in a way that training never did, and answers became
 * worse. The logit of the line-ending token distinguishes "42." from the start of "42.5". */
static int32_t close_line(struct sampler *s, const float *logits, float max, int32_t chosen) {
    const struct think_control *c = control(s);
    if (c->stop > 1 || s->think.n_inside + 1 < c->min_tokens || certainty(s) < c->stop) return -1;
    for (int i = 0; i < c->vocab->n_pair; i++)
        if (c->vocab->pairs[i].stop == chosen && logits[c->vocab->pairs[i].line] > max - could_end)
            return c->vocab->pairs[i].line;
    return -1;
}

int32_t sampler_think_settle(struct sampler *s, const float *logits, float max, int32_t chosen) {
    const struct think_control *c = control(s);
    if (!is_on(s) || sampler_think_forced(s) >= 0) return chosen;
    int32_t line = close_line(s, logits, max, chosen);
    if (line >= 0) {
        s->think.force = FORCE_END;
        s->think.n_forced = 0;
        s->think.stats.end = THINK_SURE;
        return line;
    }
    if (s->think.n_end || s->p.n_think_end != 1 || chosen != s->p.think_end[0] ||
        s->think.stats.n_extended >= c->extend)
        return chosen;
    float sure = certainty(s);
    size_t n;
    if (sure < 0 || sure >= c->unsure || !wait_of(s)->n) return chosen;
    begin(s, FORCE_WAIT);
    int32_t first = forced_at(s, FORCE_WAIT, s->think.n_forced, &n);
    /* the rest of the budget is too small for more thinking */
    if (s->p.think_budget >= 0 &&
        s->think.n_inside + (int32_t)n + c->min_tokens > s->p.think_budget) {
        s->think.force = FORCE_NONE;
        s->think.n_forced = 0;
        return chosen;
    }
    s->think.stats.n_extended++;
    return first;
}

/* Advances the match of a marker by one token; returns true if the marker is complete. */
static bool advance(const int32_t *marker, size_t n, size_t *at, int32_t token) {
    if (!n) return false;
    if (token == marker[*at]) (*at)++;
    else *at = token == marker[0] ? 1 : 0;
    if (*at < n) return false;
    *at = 0;
    return true;
}

static void enter(struct sampler *s) {
    s->think.inside = true;
    s->think.n_inside = s->think.n_ring = 0;
    s->think.last = 0;
    s->think.stats.end = THINK_NATURAL;
}

static void accept_forced(struct sampler *s, int32_t token) {
    size_t n;
    if (!s->think.force) {
        s->think.force = FORCE_END;
        s->think.stats.end = THINK_BUDGET;
    }
    forced_at(s, s->think.force, s->think.n_forced, &n);
    bool is_mark = s->think.force != FORCE_WAIT && s->think.n_forced + s->p.n_think_end >= n;
    if (!is_mark) s->think.n_inside++;
    if (control(s)->vocab && token < control(s)->vocab->n_vocab)
        s->think.last = control(s)->vocab->classes[token];
    if (++s->think.n_forced < n) return;
    /* the certainty of the earlier thinking no longer counts */
    if (s->think.force == FORCE_WAIT) s->think.n_ring = 0;
    else s->think.inside = false;
    s->think.force = FORCE_NONE;
    s->think.n_forced = s->think.n_end = 0;
}

void sampler_think_accept(struct sampler *s, int32_t token) {
    if (!s->think.inside) {
        if (advance(s->p.think_start, s->p.n_think_start, &s->think.n_start, token)) enter(s);
        return;
    }
    if (sampler_think_forced(s) == token) {
        accept_forced(s, token);
        return;
    }
    s->think.n_inside++;
    if (s->think.look >= 0) s->think.ring[s->think.n_ring++ % control(s)->window] = s->think.look;
    s->think.look = -1;
    if (control(s)->vocab && token < control(s)->vocab->n_vocab)
        s->think.last = control(s)->vocab->classes[token];
    if (advance(s->p.think_end, s->p.n_think_end, &s->think.n_end, token)) s->think.inside = false;
}

void sampler_think_stats(const struct sampler *s, struct think_stats *out) {
    *out = s->think.stats;
}

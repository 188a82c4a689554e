#include "engine/spec.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"

enum {
    BLOCK = 16,       /* steps: two short answers */
    MEAN_OF = 4,      /* blocks */
    PLAIN_EVERY = 32, /* blocks */
    SURE_ROUNDS = 8,
    IDLE_ROUNDS = 32,
    FOLLOW_EVERY = 4
};
static const float least_share = 1.0f / 3, least_beside_own = 0.8f, hopeful = 0.7f;
static const double least_gain = 1.02, look_share = 0.015;

int spec_seq_init(struct spec_seq *q, const int32_t *prompt, int32_t n, int32_t n_more) {
    *q = (struct spec_seq){.n_prompt = n, .cap_history = n + n_more + 1};
    q->history = mem_alloc((size_t)q->cap_history * sizeof *q->history);
    if (!q->history) return CHIMERE_ENOMEM;
    memcpy(q->history, prompt, (size_t)n * sizeof *prompt);
    q->n_history = n;
    for (int i = 0; i < N_TEXT_DRAFTER; i++) q->drafters[i].share = hopeful;
    q->drafter = N_TEXT_DRAFTER;
    return 0;
}

void spec_seq_fini(struct spec_seq *q) {
    mem_free(q->history);
    q->history = NULL;
}

void spec_seq_push(struct spec_seq *q, int32_t token) {
    if (q->history && q->n_history < q->cap_history) q->history[q->n_history++] = token;
}

/* ---- the choice of a depth ---- */

/* Plain steps need no looks: that is worth a little. */
static double rate_of(const struct spec_choice *c, int32_t depth) {
    double rate = c->depth[depth].n_block ? c->depth[depth].tokens / c->depth[depth].cost : 0;
    return depth ? rate : least_gain * rate;
}

static void learn_tokens(struct spec_choice *c, int32_t depth, double tokens, int32_t most) {
    int32_t n = ++c->depth[depth].n_block;
    c->depth[depth].tokens += (tokens - c->depth[depth].tokens) / (n < most ? n : most);
}

/* A block between two of the best is over, and the second of them. */
static void judge_look(struct spec_choice *c) {
    double ms = (c->before.ms + c->block.ms) / 2, tokens = c->depth[c->best].tokens;
    double ratio = c->before.ms / c->block.ms;
    int32_t d = c->look;
    double lost = c->looked.ms - c->looked.tokens / tokens * ms;
    if (lost > 0) c->allowance -= lost;
    if (ratio > 1.25 || ratio < 0.8) return; /* the machine changed its speed */
    double cost = c->depth[c->best].cost * c->looked.ms / ms;
    learn_tokens(c, d, c->looked.tokens, MEAN_OF / 2);
    c->depth[d].cost += (cost - c->depth[d].cost) / (c->depth[d].n_block < 2 ? 1 : 2);
    if (rate_of(c, d) > least_gain * rate_of(c, c->best)) c->best = d;
}

/* What to look at. Plain steps are what all else is measured by: now and then, and at once where they were better when they
 * were last seen. The rest as the allowance lets it: what was better, what is unknown, deepest first, then each in turn. */
static int32_t next_look(struct spec_choice *c, int32_t n_max) {
    int32_t top = c->best;
    double enough = least_gain * rate_of(c, top);
    if (top && (rate_of(c, 0) > enough || c->n_since_plain >= PLAIN_EVERY)) return 0;
    if (c->allowance < 0) return top;
    for (int32_t d = 1; d <= n_max; d++)
        if (rate_of(c, d) > enough) top = d, enough = rate_of(c, d);
    if (top != c->best) return top;
    for (int32_t d = n_max; d >= 0; d--)
        if (!c->depth[d].n_block) return d;
    int32_t d = c->n_turn++ % n_max;
    return d + (d >= c->best);
}

static void next_block(struct spec_choice *c, int32_t n_max) {
    if (c->now != c->best) {
        c->looked = c->block;
        c->look = c->now;
        c->now = c->best;
    } else {
        int32_t was = c->best;
        if (!c->depth[was].n_block) c->depth[was].cost = 1;
        learn_tokens(c, was, c->block.tokens, MEAN_OF);
        if (c->look != was) judge_look(c);
        c->look = c->best;
        c->before = c->block;
        c->n_since_plain++;
        c->now = c->best == was ? next_look(c, n_max) : c->best;
        c->n_look += c->now != c->best;
        if (!c->now) c->n_since_plain = 0;
    }
    c->block = (struct spec_block){.n_step = 0};
}

/* Looks of either kind are paid from the time of both. */
static void pay_in(struct spec_choice *c, double ms) {
    c->allowance += look_share * ms;
    if (c->allowance > ms) c->allowance = ms;
}

int32_t spec_choose(struct spec *s, int32_t n_seq, bool follows, int32_t n_max) {
    struct spec_choice *c = &s->choices[n_seq - 1][follows], *before = s->at;
    if (n_max > STEP_MAX_TOK - 1) n_max = STEP_MAX_TOK - 1;
    s->at = c;
    s->is_second = before == c || !before; /* a prompt leaves nothing to it */
    if (n_max < 1) return 0;
    if (c->block.n_step == BLOCK) {
        int32_t was = c->now;
        for (int kind = 0; kind < 2; kind++) pay_in(&s->choices[n_seq - 1][kind], c->block.ms);
        next_block(c, n_max);
        s->is_second &= c->now == was;
    }
    return c->now;
}

void spec_time(struct spec *s, int32_t n_tok, double ms) {
    struct spec_choice *c = s->at;
    /* the first step of a depth bears what another left to it, and an interruption is no step's own */
    if (!c || !s->is_second) return;
    double most = 4 * (c->block.n_step ? c->block.ms / c->block.n_step : ms);
    c->block.n_step++;
    c->block.tokens += n_tok;
    c->block.ms += ms < most ? ms : most;
}

void spec_pause(struct spec *s) { s->at = NULL; }

bool spec_follows(struct spec *s, struct spec_seq *q, int32_t n_seq) {
    const struct spec_choice *c =
        &s->choices[(n_seq < SPEC_MAX_SEQS ? n_seq : SPEC_MAX_SEQS) - 1][1];
    if (q->off) return false;
    for (int i = 0; i < N_TEXT_DRAFTER; i++)
        if (s->drafters[i].n_round) q->drafters[i] = s->drafters[i];
    return !c->n_look || c->best > 0 || ++s->n_left_out % FOLLOW_EVERY == 0;
}

static void learn_yield(struct spec_yield *y, bool hit) {
    int32_t n = ++y->n_round;
    y->share += 1.0f / (float)(n < SURE_ROUNDS ? n + 1 : SURE_ROUNDS) * ((float)hit - y->share);
}

void spec_learn(struct spec *s, struct spec_seq *q, int32_t n_accepted) {
    if (q->drafter == N_TEXT_DRAFTER) return;
    struct spec_yield *all = &s->drafters[q->drafter];
    if (!all->n_round) all->share = hopeful;
    learn_yield(all, n_accepted > 0);
    learn_yield(&q->drafters[q->drafter], n_accepted > 0);
}

int32_t spec_draft(struct spec_seq *q, int32_t n_max, int32_t *out) {
    q->drafter = N_TEXT_DRAFTER;
    for (int i = 0; i < N_TEXT_DRAFTER; i++) {
        struct spec_yield *y = &q->drafters[i];
        bool poor =
            y->n_round >= SURE_ROUNDS && y->share < (q->follows ? least_beside_own : least_share);
        if (poor && ++y->n_idle % IDLE_ROUNDS != 0) continue;
        struct drafter_request r = {.history = q->history,
                                    .n_history = q->n_history,
                                    .engram = q->engram,
                                    .n_draft = n_max};
        if (text_drafters[i]->draft(NULL, &r, 1, NULL) || r.n_draft < 1) continue;
        memcpy(out, r.tokens, (size_t)r.n_draft * sizeof *out);
        q->drafter = i;
        return r.n_draft;
    }
    return 0;
}

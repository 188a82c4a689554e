/* sampler_impl.h: the sampler's state, and the scans over a row of logits (sampler_row.c). */
#ifndef CHIMERE_ENGINE_SAMPLER_IMPL_H
#define CHIMERE_ENGINE_SAMPLER_IMPL_H

#include "base/mem.h"
#include "base/rng.h"
#include "engine/sampler/sampler.h"
#include "kernels/ops.h"
#include "text/grammar/grammar_mask.h"

struct cand {
    int32_t id;
    float logit, p, key;
};

/* What is being forced. END: the end mark. CLOSE: a newline and the end mark. WAIT: a newline and the word that makes
 * the model reconsider. */
enum think_force { FORCE_NONE, FORCE_END, FORCE_CLOSE, FORCE_WAIT };

struct sampler {
    struct sampler_params p; /* its arrays are in the arena */
    struct arena arena;
    const struct tok *tok; /* borrowed; may be NULL */
    int32_t n_vocab;
    struct rng rng;
    float *work;               /* owned [n_vocab]: the logits, changed by the processors */
    struct cand *cand;         /* owned [n_vocab] */
    int32_t n_cand, n_ordered; /* the first n_ordered are sorted, and none after them is larger */
    /* owned; tokens of prompt and answer, newest last; NULL if no processor reads it */
    int32_t *history;
    uint8_t *breaks; /* owned; whether history[i] ends a repeated sequence (DRY) */
    int32_t *z;      /* owned scratch, as long as the history */
    int32_t *counts; /* owned [n_vocab], zero between calls */
    int32_t n_history, n_taken;
    int32_t *eog; /* in the arena */
    int32_t n_eog;
    struct grammar_state *grammar; /* owned */
    uint64_t *mask;                /* owned [(n_vocab + 63) / 64] */
    bool is_mask_ready;            /* mask is valid for the next pick */
    /* a token was taken that the grammar does not allow: end the generation */
    bool grammar_left;
    uint64_t draft_mark; /* the grammar's state before the draft */
    struct {
        bool is_on; /* a trigger was found: the grammar applies */
        /* tail has the whole text since the start, or since the grammar last ended */
        bool at_start;
        uint32_t n_tail;                /* bytes */
        char tail[SAMPLER_MAX_TRIGGER]; /* end of the text outside thinking, newest last */
    } lazy;
    float mu; /* state of mirostat */
    struct {
        bool inside;
        int32_t n_inside;      /* tokens taken inside the block */
        size_t n_start, n_end; /* tokens of the start and end markers matched so far */
        enum think_force force;
        size_t n_forced; /* tokens of `force` taken so far */
        /* certainty at the position last evaluated; below 0: unknown */
        float look;
        /* certainties of the last n_ring tokens, at n_ring % window */
        float ring[THINK_MAX_WINDOW];
        int32_t n_ring;
        uint8_t last; /* class of the previous token */
        struct think_stats stats;
    } think;
    struct sampler_hook hooks[4];
    int n_hook;
    int failed;
    struct {
        int32_t *ids;    /* owned [SELECT_CAP + SELECT_MAX_IDS]: tokens whose logits are in work */
        uint64_t *known; /* owned [(n_vocab + 63) / 64]: the same set as bits; zero between calls */
        int32_t n;
        float least; /* all other logits are smaller */
        struct sampler_sums sums;
        bool has_sums; /* sums agrees with the row as it is after the processors that have run */
    } few;
};

/* Collects the tokens that a processor touches, or checks that they are known. */
struct sampler_list {
    const int32_t *ahead; /* tokens that will be taken before the pick */
    int32_t n_ahead;
    int32_t *ids; /* NULL: only check that all tokens are in few.known */
    int32_t n;
};
bool sampler_list_add(struct sampler *s, struct sampler_list *l, int32_t id);

/* A processor of the whole row of logits. The chain applies them in the order of the table. */
struct sampler_processor {
    const char *name;
    bool (*on)(const struct sampler *s);
    void (*apply)(struct sampler *s); /* changes work */
    /* Lists the tokens whose logits apply reads or changes; returns false if they are too many to list, or not all
     * known. NULL: none. */
    bool (*list)(struct sampler *s, struct sampler_list *l);
    /* changes few; NULL: call apply, which touches only what it lists */
    void (*apply_few)(struct sampler *s);
};
/* SAMPLER_GRAMMAR: index of the grammar's row */
enum { SAMPLER_GRAMMAR = 3, SAMPLER_N_PROCESSOR = 7 };
extern const struct sampler_processor sampler_processors[SAMPLER_N_PROCESSOR];

/* Draws from n candidates in s->cand, by filters and temperature or by mirostat. */
int32_t sampler_draw(struct sampler *s, int32_t n);
/* Limits of the candidates: logits >= cut, at most k of them. */
float sampler_cut(const struct sampler *s, float max);
int32_t sampler_k(const struct sampler *s);
/* Like sampler_top, for n listed tokens with logits values [n]; values NULL: work[id]. */
int32_t sampler_top_of(struct sampler *s, const int32_t *ids, const float *values, int32_t n,
                       int32_t k, float cut);

/* Largest value; false if the row holds NaN, +infinity, or nothing finite. */
bool sampler_max(const float *row, int32_t n, float *max);
int32_t sampler_find(const float *row, int32_t n, float value); /* first index */
/* Approximate probability of the largest of finite logits, max; relative error 1e-3. */
float sampler_share(const float *row, int32_t n, float max);
float sampler_deviation(const float *row, int32_t n); /* standard deviation of the finite values */
/* Puts the k largest values >= cut into s->cand, unsorted (ties at the cut-off: lower ids). Returns their number. */
int32_t sampler_top(struct sampler *s, const float *row, int32_t k, float cut);
/* Sorts until the first n candidates are in order. A draw mostly needs few of them, and without top-k there are as many
 * as tokens. */
void sampler_order(struct sampler *s, int32_t n);
void sampler_sort(struct cand *c, int32_t n, int (*cmp)(const void *, const void *));
int sampler_by_logit(const void *a, const void *b); /* descending; ties: lower id first */
/* p = softmax(logit / temperature) over the candidates. */
void sampler_softmax(struct sampler *s, float temperature);

/* Before the processors run: computes the certainty, and decides whether to close the thinking block here. */
void sampler_think_look(struct sampler *s, const float *logits, float max);
/* Whether the thinking control needs the whole row now. */
bool sampler_think_reads(const struct sampler *s);
/* The token that is forced now, or -1. */
int32_t sampler_think_forced(const struct sampler *s);
bool sampler_think_suppresses(const struct sampler *s);
void sampler_think_suppress(struct sampler *s); /* changes work */
/* The token to take if `chosen` was drawn. It is another one if the model would stop thinking too early. */
int32_t sampler_think_settle(struct sampler *s, const float *logits, float max, int32_t chosen);
void sampler_think_accept(struct sampler *s, int32_t token);

/* sampler_trigger.c. Returns true if this token would complete a trigger and continue in a way that the grammar does
 * not allow. */
bool sampler_trigger_refuses(struct sampler *s, int32_t token);
/* Call after a token outside thinking that no grammar applied to. */
void sampler_trigger_accept(struct sampler *s, int32_t token);
void sampler_trigger_reset(struct sampler *s); /* call if a text of the grammar is complete */
bool sampler_is_breaker(const struct sampler *s, int32_t token);

/* ---- drafting under the grammar ----
 *
 * sampler_draft_begin returns whether the grammar applies to the next token. If so, call forced and push alternately to
 * advance the grammar past the text; sampler_draft_end returns it to the text. Between begin and end, no other function
 * of s may be called. These functions do not allocate. */
bool sampler_draft_begin(struct sampler *s);
/* The longest token of the text that the grammar forces; -1: the text is not forced, or it ends here. */
int32_t sampler_draft_forced(struct sampler *s);
/* The bytes that the grammar forces next, at most max; 0 if there is a choice; as grammar_forced. */
size_t sampler_draft_bytes(struct sampler *s, char *out, size_t max);
/* Advances over the token if the grammar allows it here; returns whether it does. After a complete call it allows no
 * token, because free text may follow. */
bool sampler_draft_push(struct sampler *s, int32_t token);
void sampler_draft_end(struct sampler *s);
bool sampler_is_thinking(const struct sampler *s); /* at the next token */

#endif

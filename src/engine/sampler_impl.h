/* sampler_impl.h: the sampler's state, and the scans over a row of logits (sampler_row.c). */
#ifndef CHIMERE_ENGINE_SAMPLER_IMPL_H
#define CHIMERE_ENGINE_SAMPLER_IMPL_H

#include "base/mem.h"
#include "base/rng.h"
#include "engine/sampler.h"
#include "kernels/ops.h"
#include "text/grammar/grammar_mask.h"

struct cand {
    int32_t id;
    float logit, p, key;
};

/* What is being forced: the end mark; a newline and the end mark; a newline and the word that makes the
 * model look again. */
enum think_force { FORCE_NONE, FORCE_END, FORCE_CLOSE, FORCE_WAIT };

struct sampler {
    struct sampler_params p; /* arrays in the arena */
    struct arena arena;
    const struct tok *tok; /* borrowed; may be NULL */
    int32_t n_vocab;
    struct rng rng;
    float *work;       /* owned [n_vocab]: the row as the processors leave it */
    struct cand *cand; /* owned [n_vocab] */
    int32_t n_cand;
    int32_t *
        history; /* owned; tokens of prompt and answer, newest last; NULL where nobody looks back */
    uint8_t *breaks; /* owned; history[i] ends a repeated sequence */
    int32_t *z;      /* owned scratch, as long as the history */
    int32_t *counts; /* owned [n_vocab], zero between calls */
    int32_t n_history, n_taken;
    int32_t *eog; /* in the arena */
    int32_t n_eog;
    struct grammar_state *grammar; /* owned */
    uint64_t *mask;                /* owned [(n_vocab + 63) / 64] */
    bool is_mask_ready;            /* mask holds for the next pick */
    bool grammar_left;             /* a token was taken that the grammar does not know: end it */
    uint64_t draft_mark;           /* of the grammar's state where a draft begins */
    struct {
        bool is_on;                     /* a trigger was met: the grammar rules */
        bool at_start;                  /* text in tail is all since the start or the last call */
        uint32_t n_tail;                /* bytes */
        char tail[SAMPLER_MAX_TRIGGER]; /* of the text outside thinking, newest last */
    } lazy;
    float mu; /* mirostat */
    struct {
        bool inside;
        int32_t n_inside;      /* tokens taken inside the block */
        size_t n_start, n_end; /* tokens of the markers matched so far */
        enum think_force force;
        size_t n_forced;              /* of its tokens */
        float look;                   /* certainty of the position last looked at; below 0: none */
        float ring[THINK_MAX_WINDOW]; /* of the last n_ring tokens, at n_ring % window */
        int32_t n_ring;
        uint8_t last; /* class of the token before */
        struct think_stats stats;
    } think;
    struct sampler_hook hooks[4];
    int n_hook;
    int failed;
    struct {
        int32_t *ids;    /* owned [SELECT_CAP + SELECT_MAX_IDS]: whose logits stand in work */
        uint64_t *known; /* owned [(n_vocab + 63) / 64]: the same as bits; zero between calls */
        int32_t n;
        float least; /* all other logits are smaller */
        struct sampler_sums sums;
        bool has_sums; /* they are those of the row as the processors left it so far */
    } few;
};

/* Collects, or checks, the tokens that a processor touches. */
struct sampler_list {
    const int32_t *ahead; /* tokens that are to be taken before the pick */
    int32_t n_ahead;
    int32_t *ids; /* NULL: are all of them in few.known? */
    int32_t n;
};
bool sampler_list_add(struct sampler *s, struct sampler_list *l, int32_t id);

/* The chain's rows over the whole row of logits, in their order. */
struct sampler_processor {
    const char *name;
    bool (*on)(const struct sampler *s);
    void (*apply)(struct sampler *s); /* over work */
    /* Tokens whose logits apply reads or changes; false: too many to list, or not all known. NULL: none. */
    bool (*list)(struct sampler *s, struct sampler_list *l);
    void (*apply_few)(struct sampler *s); /* over few; NULL: apply touches only what it lists */
};
enum { SAMPLER_GRAMMAR = 3, SAMPLER_N_PROCESSOR = 7 }; /* the former: its row */
extern const struct sampler_processor sampler_processors[SAMPLER_N_PROCESSOR];

/* Draws from the sorted candidates by filters and temperature, or mirostat. */
int32_t sampler_draw(struct sampler *s);
/* What a draw keeps: logits >= cut, at most k of them. */
float sampler_cut(const struct sampler *s, float max);
int32_t sampler_k(const struct sampler *s);
/* The k best of n listed tokens whose logits [n] are >= cut, as sampler_top; values NULL: work[id]. */
int32_t sampler_top_of(struct sampler *s, const int32_t *ids, const float *values, int32_t n,
                       int32_t k, float cut);

/* Largest value; false if the row holds NaN, +infinity, or nothing finite. */
bool sampler_max(const float *row, int32_t n, float *max);
int32_t sampler_find(const float *row, int32_t n, float value); /* first index */
/* About the probability of the largest of finite logits, max: to a thousandth of itself. */
float sampler_share(const float *row, int32_t n, float max);
float sampler_deviation(const float *row, int32_t n); /* of the finite values */
/* The k largest values >= cut into s->cand, unsorted (ties at the edge: lower ids); how many. */
int32_t sampler_top(struct sampler *s, const float *row, int32_t k, float cut);
void sampler_sort(struct cand *c, int32_t n, int (*cmp)(const void *, const void *));
int sampler_by_logit(const void *a, const void *b); /* descending, then lower id */
/* p = softmax(logit / temperature) over the candidates. */
void sampler_softmax(struct sampler *s, float temperature);

/* sampler_think.c. Before a row's processors: certainty, and whether the block is closed here. */
void sampler_think_look(struct sampler *s, const float *logits, float max);
bool sampler_think_reads(
    const struct sampler *s); /* the control of thinking looks at whole rows now */
/* The token that must come now, or -1. */
int32_t sampler_think_forced(const struct sampler *s);
bool sampler_think_suppresses(const struct sampler *s);
void sampler_think_suppress(struct sampler *s); /* in work */
/* The token that is taken where `chosen` was drawn: another where the model would stop too early. */
int32_t sampler_think_settle(struct sampler *s, const float *logits, float max, int32_t chosen);
void sampler_think_accept(struct sampler *s, int32_t token);

/* sampler_trigger.c. Would taking this token meet a trigger and go on as the grammar does not? */
bool sampler_trigger_refuses(struct sampler *s, int32_t token);
/* After a token outside thinking that no grammar ruled. */
void sampler_trigger_accept(struct sampler *s, int32_t token);
void sampler_trigger_reset(struct sampler *s); /* a text of the grammar is complete */
bool sampler_is_breaker(const struct sampler *s, int32_t token);

/* ---- drafting under the grammar ----
 *
 * begin: whether the grammar rules the next token; then forced and push, in turn, walk ahead of the text, and end
 * returns to it. Nothing else of s may be called between begin and end. Allocates nothing. */
bool sampler_draft_begin(struct sampler *s);
/* The token that the grammar leaves no choice but how its text is cut; -1: there is a choice, or an end. */
int32_t sampler_draft_forced(struct sampler *s);
/* The bytes that must come next: at most max, 0 if there is a choice; as grammar_forced. */
size_t sampler_draft_bytes(struct sampler *s, char *out, size_t max);
/* Whether the grammar allows the token here. After a complete call it allows none: free text may follow. */
bool sampler_draft_push(struct sampler *s, int32_t token);
void sampler_draft_end(struct sampler *s);
bool sampler_is_thinking(const struct sampler *s); /* at the next token */

#endif

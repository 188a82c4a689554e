/* sampler_impl.h: the sampler's state, and the scans over a row of logits (sampler_row.c). */
#ifndef CHIMERE_ENGINE_SAMPLER_IMPL_H
#define CHIMERE_ENGINE_SAMPLER_IMPL_H

#include "base/mem.h"
#include "base/rng.h"
#include "engine/sampler.h"
#include "text/grammar_mask.h"

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
    bool grammar_left;             /* a token was taken that the grammar does not know: end it */
    float mu;                      /* mirostat */
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
};

/* Largest value; false if the row holds NaN, +infinity, or nothing finite. */
bool sampler_max(const float *row, int32_t n, float *max);
int32_t sampler_find(const float *row, int32_t n, float value); /* first index */
float sampler_deviation(const float *row, int32_t n);           /* of the finite values */
/* The k largest values >= cut into s->cand, unsorted (ties at the edge: lower ids); how many. */
int32_t sampler_top(struct sampler *s, const float *row, int32_t k, float cut);
void sampler_sort(struct cand *c, int32_t n, int (*cmp)(const void *, const void *));
int sampler_by_logit(const void *a, const void *b); /* descending, then lower id */
/* p = softmax(logit / temperature) over the candidates. */
void sampler_softmax(struct sampler *s, float temperature);

/* sampler_think.c. Before a row's processors: certainty, and whether the block is closed here. */
void sampler_think_look(struct sampler *s, const float *logits, float max);
/* The token that must come now, or -1. */
int32_t sampler_think_forced(const struct sampler *s);
bool sampler_think_suppresses(const struct sampler *s);
void sampler_think_suppress(struct sampler *s); /* in work */
/* The token that is taken where `chosen` was drawn: another where the model would stop too early. */
int32_t sampler_think_settle(struct sampler *s, int32_t chosen);
void sampler_think_accept(struct sampler *s, int32_t token);
bool sampler_is_breaker(const struct sampler *s, int32_t token);

#endif

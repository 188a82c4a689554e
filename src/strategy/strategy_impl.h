/* strategy_impl.h: one run of a strategy, shared by its rows. */
#ifndef CHIMERE_STRATEGY_STRATEGY_IMPL_H
#define CHIMERE_STRATEGY_STRATEGY_IMPL_H

#include "backend/batch.h"
#include "strategy/strategy.h"
#include "strategy/strategy_key.h"

struct strategy_row {
    const char *name, *about;
    struct strategy defaults;
    int (*run)(const struct strategy_use *u, struct strategy_result *r, struct err *e);
    bool is_tree; /* width, steps and step_tokens mean something */
};

struct candidate {
    struct buf content, reasoning;
    enum finish finish;
    bool failed;
    double score;                 /* 0..1 */
    char key[STRATEGY_KEY_BYTES]; /* strategy_key of its text */
    int32_t twin;                 /* the first candidate with the same text */
    struct err err;               /* where it failed */
};

/* A copy of the user's request for candidate i: one choice, its own random stream. Borrows everything. */
void strategy_ask(const struct strategy_use *u, int32_t i, struct request *out);
void strategy_count(struct strategy_result *r, const struct engine_stats *s, int32_t n_reasoning);
void strategy_count_check(struct strategy_result *r, const struct engine_stats *s);
int64_t strategy_deadline(const struct strategy_use *u);
bool strategy_over(const struct strategy_use *u); /* cancelled, or late */

/* n answers at once; CHIMERE_E* where all failed. [n] wants strategy_drop. */
int strategy_sample(const struct strategy_use *u, struct candidate *c, int32_t n,
                    struct strategy_result *r, struct err *e);
/* Which answer most votes are for: sum of weights (NULL: 1 each) of candidates with the same key; among
 * its candidates the one with the best score, then the first. Unfinished ones vote only where nobody
 * finished. *share: of all votes. -1: there is none. */
int32_t strategy_vote(const struct candidate *c, int32_t n, bool weighted, double *share);
/* The finished one with the best score; among equals the one whose answer most give, then the first. */
int32_t strategy_pick(const struct candidate *c, int32_t n);
/* Fills r from the winner and sends its events. */
int strategy_give(const struct strategy_use *u, const struct candidate *c, int32_t n,
                  int32_t winner, struct strategy_result *r, struct err *e);
void strategy_drop(struct candidate *c, int32_t n);

/* strategy_best.c. Scores candidates [n] with the verifier, all at once; those that failed get 0, those
 * that it could not judge 0.5. */
int strategy_judge(const struct strategy_use *u, struct candidate *c, int32_t n,
                   struct strategy_result *r, struct err *e);
int strategy_best(const struct strategy_use *u, struct strategy_result *r, struct err *e);
int strategy_weighted(const struct strategy_use *u, struct strategy_result *r, struct err *e);

/* strategy_tree.c */
int strategy_dvts(const struct strategy_use *u, struct strategy_result *r, struct err *e);
int strategy_beam(const struct strategy_use *u, struct strategy_result *r, struct err *e);

#endif

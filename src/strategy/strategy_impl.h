/* strategy_impl.h: one run of a strategy, shared by the source files of the strategies. */
#ifndef CHIMERE_STRATEGY_STRATEGY_IMPL_H
#define CHIMERE_STRATEGY_STRATEGY_IMPL_H

#include "backend/batch.h"
#include "strategy/strategy.h"
#include "strategy/strategy_key.h"

struct strategy_row {
    const char *name, *about;
    struct strategy defaults;
    int (*run)(const struct strategy_use *u, struct strategy_result *r, struct err *e);
    bool is_tree; /* width, steps and step_tokens apply */
};

struct candidate {
    struct buf content, reasoning;
    enum finish finish;
    bool failed;
    double score;                 /* 0..1 */
    char key[STRATEGY_KEY_BYTES]; /* strategy_key of its text */
    int32_t twin;                 /* index of the first candidate with the same text */
    struct err err;               /* the error, if it failed */
};

/* Makes a shallow copy of the user's request for candidate i: one choice, its own random stream. Borrows all
 * members. */
void strategy_ask(const struct strategy_use *u, int32_t i, struct request *out);
void strategy_count(struct strategy_result *r, const struct engine_stats *s, int32_t n_reasoning);
void strategy_count_check(struct strategy_result *r, const struct engine_stats *s);
int64_t strategy_deadline(const struct strategy_use *u);
bool strategy_over(const struct strategy_use *u); /* cancelled, or past the deadline */

/* Generates n answers at once; CHIMERE_E* if all failed. Call strategy_drop on [n] afterwards. */
int strategy_sample(const struct strategy_use *u, struct candidate *c, int32_t n,
                    struct strategy_result *r, struct err *e);
/* Returns the winner of a vote. The answer with the largest sum of weights wins (not weighted: 1 each); candidates
 * with the same key give the same answer. Of its candidates, the one with the best score is returned, then the
 * first. Unfinished candidates vote only if none finished. *share: share of all votes. -1: no candidate. */
int32_t strategy_vote(const struct candidate *c, int32_t n, bool weighted, double *share);
/* Returns the finished candidate with the best score; of equal ones the one whose answer is most frequent, then
 * the first. */
int32_t strategy_pick(const struct candidate *c, int32_t n);
/* Fills r from the winner and sends its events. */
int strategy_give(const struct strategy_use *u, const struct candidate *c, int32_t n,
                  int32_t winner, struct strategy_result *r, struct err *e);
void strategy_drop(struct candidate *c, int32_t n);

/* strategy_best.c. Scores the candidates [n] with the verifier in one batch. A failed candidate gets 0, one that
 * could not be judged gets 0.5. */
int strategy_judge(const struct strategy_use *u, struct candidate *c, int32_t n,
                   struct strategy_result *r, struct err *e);
int strategy_best(const struct strategy_use *u, struct strategy_result *r, struct err *e);
int strategy_weighted(const struct strategy_use *u, struct strategy_result *r, struct err *e);

/* strategy_tree.c */
int strategy_dvts(const struct strategy_use *u, struct strategy_result *r, struct err *e);
int strategy_beam(const struct strategy_use *u, struct strategy_result *r, struct err *e);

#endif

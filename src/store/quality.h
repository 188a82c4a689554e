/* quality.h: answers, what they were worth, and what could have been said instead: what learning reads.
 *
 * One row an answer. Those that were given have a name, by which users rate them; alternatives that were
 * not given (other candidates of a strategy, a draft that a second attempt replaced) point to the one that
 * was. Worth is 0..1: the user's word where there is one, else the verifier's. Texts are there only where
 * the pipeline keeps them. Scores of a route (store/score.h) are read from the same rows, and forgotten with
 * them. */
#ifndef CHIMERE_STORE_QUALITY_H
#define CHIMERE_STORE_QUALITY_H

#include "store/store.h"

struct store_quality {         /* texts are views, each may be NULL */
    int64_t id, at_ms;         /* at_ms 0: now */
    int64_t parent;            /* 0: it was given; else the id of the one that was */
    const char *name;          /* of one that was given, unique */
    const char *route, *model; /* "" for NULL */
    const char *origin;        /* "answer", "candidate", "draft" */
    const char *judge;         /* of the score: a model's name */
    const char *question, *answer;
    double score;     /* by the verifier; NaN: none */
    int32_t feedback; /* by the user, 1..5; 0: none */
    const char *comment;
    const char *owner; /* whose question it was: "KEY" or "KEY\tUSER", "" for NULL: nobody knows */
};

/* What it is worth, 0..1; NaN: nobody said. */
double store_quality_worth(const struct store_quality *q);
int store_quality_add(struct store *s, const struct store_quality *q, int64_t *id, struct err *e);
/* The user's word on an answer, 1..5; a later one replaces it. CHIMERE_ENOENT: no such name. */
int store_quality_feedback(struct store *s, const char *name, int32_t feedback, const char *comment,
                           struct err *e);
/* Answers since from_ms in order of time, alternatives too. Nonzero from each stops, and is returned. */
int store_quality_list(struct store *s, int64_t from_ms,
                       int (*each)(void *ud, const struct store_quality *q), void *ud,
                       struct err *e);
/* Two answers to one question whose worth differs by at least gap, both with their texts. */
int store_quality_pairs(struct store *s, int64_t from_ms, double gap,
                        int (*each)(void *ud, const struct store_quality *better,
                                    const struct store_quality *worse),
                        void *ud, struct err *e);

#endif

/* quality.h: answers, their quality, and alternatives to them: the data that learning reads.
 *
 * One row per answer. An answer that was sent has a name, by which users rate it. Alternatives that were not sent
 * (other candidates of a strategy, a draft that a second attempt replaced) refer to the answer that was. Worth is
 * 0..1: the user's rating if there is one, otherwise the verifier's score. Texts are stored only if the pipeline
 * keeps them. The scores of a route (store/score.h) come from the same rows and are deleted with them. */
#ifndef CHIMERE_STORE_QUALITY_H
#define CHIMERE_STORE_QUALITY_H

#include "store/store.h"

struct store_quality { /* texts are views, each may be NULL */
    int64_t id, at_ms; /* at_ms 0: now */
    /* 0: this answer was sent; otherwise the id of the answer that was */
    int64_t parent;
    const char *name;          /* set for a sent answer, unique */
    const char *route, *model; /* "" for NULL */
    const char *origin;        /* "answer", "candidate", "draft", "correction" */
    const char *judge;         /* name of the model that set the score */
    const char *question, *answer;
    double score;     /* of the verifier; NaN: none */
    int32_t feedback; /* the user's rating, 1..5; 0: none */
    const char *comment;
    const char *owner; /* who asked the question: "KEY" or "KEY\tUSER"; "" (for NULL): not known */
    int64_t night; /* written only: the night whose files the answer used; 0: none, or not known */
};

/* Returns the worth of an answer, 0..1; NaN: not rated. */
double store_quality_worth(const struct store_quality *q);
/* The name of an answer that is stored already: nothing is added, and *id is unchanged. */
int store_quality_add(struct store *s, const struct store_quality *q, int64_t *id, struct err *e);
/* Stores the user's rating of an answer, 1..5, and replaces an earlier one. CHIMERE_ENOENT: no such name. */
int store_quality_feedback(struct store *s, const char *name, int32_t feedback, const char *comment,
                           struct err *e);
/* Stores the score of another judge, 0..1, and replaces that of an earlier one. CHIMERE_ENOENT: no such answer. */
int store_quality_judge(struct store *s, int64_t id, double score, const char *judge,
                        struct err *e);
/* Stores the user's own answer to the question of an answer, with the best rating. at_ms 0: now. CHIMERE_ENOENT: no
 * such name, or its texts are not stored. */
int store_quality_correct(struct store *s, const char *name, const char *correction, int64_t at_ms,
                          struct err *e);
/* Counts the rated answers of a night since from_ms, and how many of them users rejected (a rating of 1 or 2, or a
 * correction). */
int store_quality_votes(struct store *s, int64_t night, int64_t from_ms, int64_t *n_rated,
                        int64_t *n_bad, struct err *e);
/* Lists answers since from_ms in order of time, including alternatives. If `each` returns nonzero, the list stops
 * and returns that value. */
int store_quality_list(struct store *s, int64_t from_ms,
                       int (*each)(void *ud, const struct store_quality *q), void *ud,
                       struct err *e);
/* Lists pairs of answers to the same question whose worth differs by at least gap, both with texts. */
int store_quality_pairs(struct store *s, int64_t from_ms, double gap,
                        int (*each)(void *ud, const struct store_quality *better,
                                    const struct store_quality *worse),
                        void *ud, struct err *e);

#endif

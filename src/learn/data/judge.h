/* judge.h: lets other models score the kept answers of the day, before a night reads them.
 *
 * A process reward model scores the steps of an answer, without words (strategy/reward.h) or in words (strategy/prm.h);
 * a larger model grades the whole answer (strategy/grade.h). The score of both is their mean. It replaces the score of an
 * earlier judge in the store, so each answer is judged once. A user's rating always outweighs it (store/quality.h).
 * Answers that users rated are judged first: if the judge does not agree with users, it judges no others.
 * Blocks; one thread. */
#ifndef CHIMERE_LEARN_DATA_JUDGE_H
#define CHIMERE_LEARN_DATA_JUDGE_H

#include "strategy/prm.h"

struct store;

enum { JUDGE_MAX_ITEMS = 1 << 16, JUDGE_MAX_RATED = 4096, JUDGE_LEAST_RATED = 10 };
/* With JUDGE_LEAST_RATED accepted and rejected answers, a judge must prefer the accepted one in this share of the pairs. */
#define JUDGE_LEAST_AUC 0.7

struct judge {
    struct reward *reward;  /* borrowed; NULL: none */
    struct backend *prover; /* borrowed: judges the steps in words; NULL: none */
    struct backend *grader; /* borrowed: grades the whole answer from 1 to 5; NULL: none */
    const char *name;       /* view; kept with each score */
    /* polled before each answer; false ends the judging; NULL: never */
    bool (*goes_on)(void *ud);
    void *ud;
};
struct judge_report {
    size_t n_judged, n_failed; /* n_failed: no verdict */
    size_t n_good,
        n_bad; /* answers with its score that users accepted (4 or 5) and rejected (1 or 2) */
    /* share of the pairs of an accepted and a rejected answer of which the accepted one has the better score; a tie
     * counts half; NaN: no pair */
    double auc;
    bool is_refused; /* users disagree with it: it does not score the answers without a rating */
    char why[480];   /* the judge failed several times in a row, and stopped; "": it did not */
};
/* A judge that fails is no error: its report names the reason. */
int judge_day(struct judge_report *out, struct store *s, const struct judge *j, struct err *e);

#endif

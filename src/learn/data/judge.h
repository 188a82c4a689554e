/* judge.h: lets a process reward model score the kept answers of the day, before a night reads them.
 *
 * Its score replaces the score of an earlier judge in the store, so each answer is judged once. A user's rating always
 * outweighs it (store/quality.h). Rated answers are judged too, because they show whether the judge agrees with users.
 * Blocks; one thread. */
#ifndef CHIMERE_LEARN_DATA_JUDGE_H
#define CHIMERE_LEARN_DATA_JUDGE_H

#include "strategy/prm.h"

struct store;

enum { JUDGE_MAX_ITEMS = 1 << 16, JUDGE_MAX_RATED = 4096 };

struct judge {
    struct reward *reward; /* borrowed */
    const char *name;      /* view; kept with each score */
    /* polled before each answer; false ends the judging; NULL: never */
    bool (*goes_on)(void *ud);
    void *ud;
};
struct judge_report {
    size_t n_judged;
    size_t n_good,
        n_bad; /* answers with its score that users accepted (4 or 5) and rejected (1 or 2) */
    /* share of the pairs of an accepted and a rejected answer of which the accepted one has the better score; a tie
     * counts half; NaN: no pair */
    double auc;
};
int judge_day(struct judge_report *out, struct store *s, const struct judge *j, struct err *e);

#endif

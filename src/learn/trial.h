/* trial.h: the night that a share of the conversations tries before it becomes current.
 *
 * The file DIR/trial is {"night", "share", "from", "until"}. During the trial, the ratings of users decide: if they
 * reject the answers of the night on trial more often than those of the current night, the trial ends and the current
 * night stays. The limit for p at n ratings of the trial is GATE_ROLLBACK / (n (n + 1)), so that looking after every
 * rating raises no more false alarms than one look. At the end of the time, the night becomes current. One thread. */
#ifndef CHIMERE_LEARN_TRIAL_H
#define CHIMERE_LEARN_TRIAL_H

#include "learn/nights.h"

struct store;

enum { TRIAL_S = 22 * 3600 /* ends before the same step runs again */ };

struct trial {
    int64_t night; /* 0: no trial */
    double share;  /* of the conversations */
    int64_t from_s, until_s;
};

enum trial_end { TRIAL_GOES_ON, TRIAL_PASSED, TRIAL_FAILED };

/* Writes the trial of an existing night; it replaces an earlier one. The caller holds the lock. */
int trial_start(struct nights *n, const struct trial *t, struct err *e);
/* A trial whose file is damaged or whose night is current already does not exist. */
int trial_load(const struct nights *n, struct trial *out, struct err *e);
/* Compares the ratings. *score: a new reference to {"trial": {"rated", "bad"}, "current": the same, "p", "limit"}. */
int trial_look(const struct nights *n, const struct trial *t, struct store *s, int64_t now_s,
               enum trial_end *end, json_t **score, struct err *e);
/* Ends the trial if trial_look says so, and adds the result to the night's record. The caller holds the lock. */
int trial_finish(struct nights *n, struct store *s, int64_t now_s, enum trial_end *end,
                 struct err *e);
/* Ends the trial without a result; the current night stays. The caller holds the lock. */
int trial_drop(struct nights *n, const char *why, struct err *e);

#endif

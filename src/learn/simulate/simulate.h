/* simulate.h: a simulated week of users and nights, to measure what nights improve.
 *
 * The users live in an invented world: its facts are in no training text. They like one form of answer, and use one
 * tool, whose commands they ask for. Each day they ask; the model answers with the files of the current night. They
 * rate a share of the answers and correct those that are wrong. A part of these ratings is wrong: wrong answers are
 * praised, and right ones replaced by wrong corrections. Each day ends with a night (night.h). An exam before and
 * after the week asks for the facts in words that no user used. The same parameters give the same week.
 *
 * One thread; blocks. */
#ifndef CHIMERE_LEARN_SIMULATE_SIMULATE_H
#define CHIMERE_LEARN_SIMULATE_SIMULATE_H

#include "learn/night.h"

enum { SIMULATE_MAX_DAYS = 31, SIMULATE_MAX_QUESTIONS = 2000, SIMULATE_MAX_FACTS = 600 };

struct simulate_params {
    uint64_t seed;
    int32_t days, questions, users, facts;
    int32_t languages;      /* 1: English; 2: every second user asks and is answered in French */
    double feedback, wrong; /* shares: of answers that are rated, of these ratings that are wrong */
    int32_t poison_from;    /* the first day of the attack; 0: none */
    double hostile;         /* share of users who then always rate and correct wrongly */
    int32_t
        documents; /* per day of the attack: pasted documents with wrong facts, that the verifier accepts */
    int32_t flattery;  /* the same: long flattering answers with wrong facts */
    const char *steps; /* as in night_params, like the next */
    struct night_prompts prompts;
    double budget_s;      /* of a night */
    const json_t *gate;   /* items of the shipped suites for each night's gate; borrowed */
    const json_t *suites; /* items for the comparison of the week; borrowed */
    bool (*goes_on)(void *ud);
    void (*say)(void *ud, const char *line);
    void *ud;
};

/* Runs the week in a new folder `dir`, with its own store and nights; host->store is not used. *report: a new
 * reference to {"seed", "days": [{"day", "right", SKILL of the exam: score, "promoted", "read", "steps"}], "exam": compare,
 * "suites": compare, "n_down": skills that are significantly worse, "ablation": {STEP: compare}}, where compare is as
 * in eval/harness.h. CHIMERE_EINVAL: the folder exists. */
int simulate_week(json_t **report, const char *dir, const struct night_host *host,
                  const struct simulate_params *p, struct err *e);

#endif

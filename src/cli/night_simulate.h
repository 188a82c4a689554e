/* night_simulate.h: chimere night simulate: a simulated week of users and nights (learn/simulate/simulate.h). */
#ifndef CHIMERE_CLI_NIGHT_SIMULATE_H
#define CHIMERE_CLI_NIGHT_SIMULATE_H

#include "base/config.h"
#include "learn/simulate/simulate.h"

/* clang-format off */
#define SIMULATE_OPTIONS                                                                           \
    {"week", 0, CFG_BOOL, NULL, "false", 0, 0, NULL, "simulate: seven days, whatever --days says"}, \
    {"days", 0, CFG_INT, "N", "7", 1, SIMULATE_MAX_DAYS, NULL, "simulate: days, each with a night"}, \
    {"questions", 0, CFG_INT, "N", "300", 1, SIMULATE_MAX_QUESTIONS, NULL, "simulate: questions per day"}, \
    {"users", 0, CFG_INT, "N", "10", 1, 1000, NULL, "simulate: users"}, \
    {"facts", 0, CFG_INT, "N", "60", 4, SIMULATE_MAX_FACTS, NULL, "simulate: facts of the users' world"}, \
    {"languages", 0, CFG_STR, "LIST", NULL, 0, 0, NULL, "simulate: en, or en,fr: every second user speaks French (default: en,fr for chimere-mini, else en)"}, \
    {"feedback", 0, CFG_FLOAT, "SHARE", "0.2", 0, 1, NULL, "simulate: share of the answers that users rate"}, \
    {"wrong", 0, CFG_FLOAT, "SHARE", "0.1", 0, 1, NULL, "simulate: share of these ratings that are wrong"}, \
    {"all-items", 0, CFG_INT, "N", "118", 1, EVAL_MAX_ITEMS, NULL, "simulate: items of each skill that compare the week"}, \
    {"poison-from", 0, CFG_INT, "DAY", "0", 0, SIMULATE_MAX_DAYS, NULL, "simulate: first day of an attack; 0: none"}, \
    {"hostile", 0, CFG_FLOAT, "SHARE", "0", 0, 1, NULL, "simulate: share of the users who then rate and correct wrongly"}, \
    {"documents", 0, CFG_INT, "N", "0", 0, SIMULATE_MAX_QUESTIONS, NULL, "simulate: pasted documents with wrong facts per day of the attack"}, \
    {"flattery", 0, CFG_INT, "N", "0", 0, SIMULATE_MAX_QUESTIONS, NULL, "simulate: long flattering answers with wrong facts per day of the attack"}
/* clang-format on */

/* Simulates in the folder --night-dir, which must be new, and prints the report. ask: callbacks of the night. */
int night_simulate(const struct cfg *c, const struct night_params *ask, struct err *e);

#endif

/* eval_strategy.h: answers items of an evaluation with a strategy: "NAME", "MODE" or "MODE+NAME"; parameters of
 * the strategy follow NAME and a colon. MODE is a setting of thinking (think_preset), or "auto": chosen for each
 * item by the orchestrator's probe. */
#ifndef CHIMERE_CLI_EVAL_STRATEGY_H
#define CHIMERE_CLI_EVAL_STRATEGY_H

#include "cli/args/chat_args.h"
#include "eval/harness.h"
#include "strategy/strategy.h"

struct eval_strategy {
    struct strategy strategy;
    const char *mode;        /* view; NULL: as the item states */
    json_t *think;           /* owned: the field "think", or NULL */
    struct backend *request; /* owned */
    struct reward *verifier; /* borrowed; NULL: the model itself */
    uint64_t seed;
    char name[STRATEGY_MAX_TEXT], mode_text[32];
};

/* text: value of --strategy; think: value of --think, JSON or a mode; both may be NULL. rig is borrowed until
 * fini. */
int eval_strategy_init(struct eval_strategy *s, const char *text, const char *think, uint64_t seed,
                       struct err *e);
int eval_strategy_open(struct eval_strategy *s, const struct chat_rig *rig, int32_t n_seq,
                       struct err *e);
void eval_strategy_fini(struct eval_strategy *s);
/* Like eval_host.answer; ud: the strategy. Any number of threads. */
int eval_strategy_answer(void *ud, const json_t *item, size_t index, struct eval_answer *out,
                         struct err *e);

#endif

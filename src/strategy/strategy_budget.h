/* strategy_budget.h: the tokens that the calls of a strategy may generate together. */
#ifndef CHIMERE_STRATEGY_STRATEGY_BUDGET_H
#define CHIMERE_STRATEGY_STRATEGY_BUDGET_H

#include "strategy/strategy.h"

/* Returns the tokens that the strategy may still generate; INT32_MAX: no limit. */
int32_t strategy_left(const struct strategy_use *u, const struct strategy_result *r);
/* Limits n requests that run concurrently to an equal share of these tokens. Returns false if none are left. */
bool strategy_limit(const struct strategy_use *u, const struct strategy_result *r,
                    struct request *asks, int32_t n);

#endif

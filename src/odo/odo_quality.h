/* odo_quality.h: strategies and the quality gate within an orchestrator run. */
#ifndef CHIMERE_ODO_ODO_QUALITY_H
#define CHIMERE_ODO_ODO_QUALITY_H

#include "odo/odo_impl.h"

/* Sets d.strategy: the strategy that the request names, or the pipeline's if the mode asks for it. */
int odo_strategy_decide(struct odo_run *r, struct err *e);
/* Answers r->messages with d.strategy, without tools. */
int odo_strategy_answer(struct odo_run *r, enum finish *finish, struct err *e);
/* Holds an answer back until it is judged. If its score is bad, a second answer is generated and the better one is
 * sent. */
int odo_reflect(struct odo_run *r, const struct odo_round *round, enum finish *finish,
                struct err *e);
bool odo_wants_reflection(const struct odo_run *r);
bool odo_wants_quality(const struct odo_run *r);
/* Queues the answer at the quality gate if the pipeline asks for that. */
void odo_quality_post(struct odo_run *r, enum finish finish);

#endif

/* odo_quality.h: strategies and the quality gate within a run of the orchestrator. */
#ifndef CHIMERE_ODO_ODO_QUALITY_H
#define CHIMERE_ODO_ODO_QUALITY_H

#include "odo/odo_impl.h"

/* Sets d.strategy: the request's own wish, else the pipeline's where the mode asks for it. */
int odo_strategy_decide(struct odo_run *r, struct err *e);
/* Answers r->messages by d.strategy, without tools. */
int odo_strategy_answer(struct odo_run *r, enum finish *finish, struct err *e);
/* An answer that is held back until it is judged; a bad one is written once more, and the better of both is
 * given. */
int odo_reflect(struct odo_run *r, const struct odo_round *round, enum finish *finish,
                struct err *e);
bool odo_wants_reflection(const struct odo_run *r);
bool odo_wants_quality(const struct odo_run *r);
/* Hands the answer to the gate, where the pipeline wants it judged. */
void odo_quality_post(struct odo_run *r, enum finish finish);

#endif

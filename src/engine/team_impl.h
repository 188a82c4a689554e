/* team_impl.h: the interface between engines and their team: engine.c, sched.c, team.c. */
#ifndef CHIMERE_ENGINE_TEAM_IMPL_H
#define CHIMERE_ENGINE_TEAM_IMPL_H

#include "engine/team.h"

/* ---- in team.c ---- */

void team_free(struct team *t);
int team_submit(struct team *t, struct engine_job *j, struct err *e);
struct engine *team_engine_of(struct team *t, const struct engine_job *j);
void team_totals(struct team *t, struct engine_totals *sum);
int64_t team_ctx(const struct team *t); /* the smallest of all members */
/* Called if j belongs to a team: after its prompt is evaluated, and when it ends, before on_done. Once each. */
void team_evaluated(struct engine_job *j);
void team_ended(struct engine_job *j);
/* Called with j->err set, instead of team_ended: if j's member has failed, gives j, whose text so far has n_tok tokens,
 * to another member. If it returns true, that member's thread owns j. */
bool team_move(struct engine_job *j, int32_t n_tok);

/* ---- in engine.c ---- */

/* To g itself, without the team. A job that carries something continues, also if the queue is full. */
int engine_post(struct engine *g, struct engine_job *j, struct err *e);
void engine_own_totals(struct engine *g, struct engine_totals *t);
int64_t engine_own_ctx(const struct engine *g);
int32_t engine_n_seq(const struct engine *g);       /* concurrent sequences of g itself */
void engine_lead(struct engine *g, struct team *t); /* takes ownership of t */
const struct lm *engine_lm(const struct engine *g);
struct team *engine_team(const struct engine *g); /* NULL: g leads no team */

#endif

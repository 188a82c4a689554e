/* team_impl.h: what engines and their team tell each other: engine.c, sched.c, team.c. */
#ifndef CHIMERE_ENGINE_TEAM_IMPL_H
#define CHIMERE_ENGINE_TEAM_IMPL_H

#include "engine/team.h"

/* ---- of team.c ---- */

void team_free(struct team *t);
int team_submit(struct team *t, struct engine_job *j, struct err *e);
struct engine *team_engine_of(const struct team *t, const struct engine_job *j);
void team_totals(struct team *t, struct engine_totals *sum);
int64_t team_ctx(const struct team *t); /* least of all members */
/* Its prompt is evaluated; it ends: where j is a team's. Once each, the latter before on_done. */
void team_evaluated(struct engine_job *j);
void team_ended(struct engine_job *j);

/* ---- of engine.c ---- */

int engine_post(struct engine *g, struct engine_job *j, struct err *e); /* to g itself */
void engine_own_totals(struct engine *g, struct engine_totals *t);
int64_t engine_own_ctx(const struct engine *g);
int32_t engine_n_seq(const struct engine *g);       /* sequences at once of g itself */
void engine_lead(struct engine *g, struct team *t); /* takes t */
struct team *engine_team(const struct engine *g);   /* NULL: none is led */

#endif

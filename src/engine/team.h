/* team.h: engines of one model, one a card, that serve as one.
 *
 * The first leads: engine_submit, engine_cancel and engine_totals of it are the team's. A job goes to the member that
 * is thought to begin it soonest: prompt tokens that it would have to evaluate, those that wait there already, and the
 * answers under way. What a member need not evaluate is estimated from the prompts that it was given, block by block of
 * SCAN_GRID tokens, so that a conversation stays where its state is and moves when that card has much more to do. The
 * estimate is bounded in size and may be wrong: a member that has forgotten a state evaluates the prompt.
 *
 * A member whose device has failed gets no more jobs. Any thread. */
#ifndef CHIMERE_ENGINE_TEAM_H
#define CHIMERE_ENGINE_TEAM_H

#include "engine/engine.h"

enum { TEAM_MAX = 8 };

struct team;

struct team_member {
    char name[16]; /* its device's */
    bool lost;
    int32_t n_open;       /* jobs that it has and that have not ended */
    int64_t n_todo;       /* prompt tokens of these, about, not evaluated yet */
    int64_t n_job;        /* ever given */
    int64_t n_routed_hit; /* prompt tokens that it was thought to know, of all jobs */
};

/* engines [n]: the leader first, all of one model; each outlives the leader's last job and is freed by its owner. No
 * job may have been submitted yet. names [n]: for reports. */
int team_new(struct engine *const *engines, const char *const *names, int32_t n, struct err *e);

/* Members of the team that g leads; 1: it works alone. */
int32_t team_size(const struct engine *g);
/* Member i and what it has done; totals may be NULL. */
void team_at(struct engine *g, int32_t i, struct team_member *m, struct engine_totals *totals);

#endif

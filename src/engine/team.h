/* team.h: several engines of one model, one per card, that serve as one engine.
 *
 * The first engine leads: its engine_submit, engine_cancel and engine_totals apply to the team. A job goes to the
 * member that is expected to start it soonest. The estimate counts the prompt tokens that the member would have to
 * evaluate, those already waiting there, and its running answers. Which tokens a member need not evaluate is estimated
 * from the prompts it has received, in blocks of SCAN_GRID tokens. So a conversation stays on the card that has its
 * state, and moves if that card has much more to do. The estimate has bounded size and may be wrong: a member that has
 * evicted a state evaluates the prompt again.
 *
 * A member whose device has failed gets no more jobs. Its jobs, also those with half an answer, move to other members,
 * which evaluate their text again; their callbacks then run on the thread of the other engine. Any thread may call
 * this. */
#ifndef CHIMERE_ENGINE_TEAM_H
#define CHIMERE_ENGINE_TEAM_H

#include "engine/engine.h"

enum { TEAM_MAX = 8 };

struct team;

struct team_member {
    char name[16]; /* name of its device */
    bool lost;
    int32_t n_open;       /* jobs that it has received and that have not ended */
    int64_t n_todo;       /* estimated prompt tokens of these jobs that are not evaluated yet */
    int64_t n_job;        /* jobs received in total */
    int64_t n_moved;      /* jobs received from members that failed */
    int64_t n_routed_hit; /* prompt tokens that it was expected to have, over all jobs */
};

/* engines [n]: the leader first, all of the same model. Each must outlive the leader's last job, and its owner frees
 * it. Call before any job is submitted. names [n]: for reports. */
int team_new(struct engine *const *engines, const char *const *names, int32_t n, struct err *e);

/* Number of members in the team that g leads; 1: no team. */
int32_t team_size(const struct engine *g);
/* Member i and its totals; totals may be NULL. */
void team_at(struct engine *g, int32_t i, struct team_member *m, struct engine_totals *totals);

/* What each card of one engine has exchanged with the others (link.h), out [TEAM_MAX]; returns the number of cards, 0:
 * they do not add up results. */
struct link_stats;
int32_t team_links(const struct engine *g, struct link_stats *out);

#endif

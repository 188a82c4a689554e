/* team.h: how many of a pool's threads take part, by measured speed.
 *
 * Beside busy processes a thread that the system deschedules holds up every job by its whole time slice, and
 * fewer threads are faster. While the team waits for more than a quarter of its time, a trial of fewer threads
 * is made every now and then; while it is not complete, a trial of more. A trial is one window of about 40 ms of
 * jobs, and the better rate of work stays. On a quiet machine nothing is ever tried.
 *
 * No lock: only the thread that runs the pool's jobs calls this. Time comes from the caller. */
#ifndef CHIMERE_BASE_TEAM_H
#define CHIMERE_BASE_TEAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TEAM_N_KIND = 2 }; /* kinds of work, whose rates do not compare */

struct team {
    int max;
    struct team_kind {
        int size;    /* of the next job */
        int usual;   /* size outside a trial; equal to size if there is none */
        double rate; /* work per ns of the last window outside a trial */
        int64_t next_trial_ns, backoff_ns;
        /* this window */
        size_t work;
        int64_t busy_ns, wait_ns;
    } kind[TEAM_N_KIND];
};

void team_init(struct team *t, int max);
/* One job of `work` units of any measure took busy_ns in all, of which the caller waited wait_ns; now_ns: its end. */
void team_report(struct team *t, int kind, size_t work, int64_t busy_ns, int64_t wait_ns,
                 int64_t now_ns);

#endif

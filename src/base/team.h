/* team.h: chooses how many of a pool's threads run a job, by measured speed.
 *
 * If other processes are busy, the scheduler may suspend one thread for a whole time slice, which delays the entire
 * job; then fewer threads are faster. While the team waits for more than a quarter of its time, fewer threads are tried
 * from time to time. While the team is not complete, more threads are tried. A trial is one window of about 40 ms of
 * jobs, and the size with the better rate is kept. On a quiet machine no trials are made.
 *
 * No lock: only the thread that runs the pool's jobs calls this. The caller passes the time. */
#ifndef CHIMERE_BASE_TEAM_H
#define CHIMERE_BASE_TEAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TEAM_N_KIND = 2 }; /* kinds of work, whose rates are not comparable */

struct team {
    int max;
    struct team_kind {
        int size;    /* of the next job */
        int usual;   /* size outside trials; equal to size if there is no trial */
        double rate; /* work per ns of the last window outside a trial */
        int64_t next_trial_ns, backoff_ns;
        /* values of this window */
        size_t work;
        int64_t busy_ns, wait_ns;
    } kind[TEAM_N_KIND];
};

void team_init(struct team *t, int max);
/* Reports one job of `work` units of any measure. It took busy_ns in total, of which the caller waited wait_ns; now_ns:
 * its end. */
void team_report(struct team *t, int kind, size_t work, int64_t busy_ns, int64_t wait_ns,
                 int64_t now_ns);

#endif

/* link.h: sums over several devices of one process: what tensor parallelism exchanges.
 *
 * Each of n ranks is a device and the thread that drives it. link_sum replaces a rank's rows by the sum of all ranks'
 * rows, added in the order of ranks: every rank gets the same bits, and every run does. The rows go through the host's
 * memory. A rank that does not come within the deadline is an error of all others, never a hang. */
#ifndef CHIMERE_KERNELS_LINK_H
#define CHIMERE_KERNELS_LINK_H

#include "kernels/ops.h"

enum { LINK_MAX_RANKS = 8, LINK_DEADLINE_MS = 60000 };

struct link;

/* devs: [n] borrowed, of one kind; n_max: floats of the longest sum. */
int link_new(struct link **out, struct dev *const *devs, int32_t n, int64_t n_max,
             int32_t deadline_ms, struct err *e);
void link_free(struct link *l); /* no rank is in a sum */

/* Before a step, while no rank is in a sum: forgets the failure of the last one. */
void link_begin(struct link *l);
/* x: [n] on the rank's device. All ranks call it equally often, with the same n, each from a thread of its own.
 * Without effect after a failure; link_status tells. */
void link_sum(struct link *l, int32_t rank, float *x, int64_t n);
/* The rank takes part in no more sums of this step: the others stop waiting. */
void link_leave(struct link *l, int32_t rank);
/* 0, or why the present step's sums are not complete. */
int link_status(const struct link *l, struct err *e);

/* Of one rank since link_new. */
struct link_stats {
    uint64_t n_sum, n_bytes; /* n_bytes: that it gave and that it got */
    double wait_us, us;      /* for other ranks; in all */
};
void link_stats(const struct link *l, int32_t rank, struct link_stats *out);

#endif

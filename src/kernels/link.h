/* link.h: sums over several devices of one process, the exchange of tensor parallelism.
 *
 * Each of n ranks is a device and the thread that drives it. link_sum replaces a rank's rows by the sum of all ranks'
 * rows, added in the order of ranks: every rank gets the same bits, in every run. The rows are exchanged in host
 * memory. A rank that misses the deadline makes the sum fail for all others; they never hang. */
#ifndef CHIMERE_KERNELS_LINK_H
#define CHIMERE_KERNELS_LINK_H

#include "kernels/ops.h"

enum { LINK_MAX_RANKS = 8, LINK_DEADLINE_MS = 60000 };

struct link;

/* devs: [n] borrowed, of one kind; n_max: floats of the longest sum. */
int link_new(struct link **out, struct dev *const *devs, int32_t n, int64_t n_max,
             int32_t deadline_ms, struct err *e);
void link_free(struct link *l); /* no rank may be in a sum */

/* Call before a step, while no rank is in a sum: clears the previous failure. */
void link_begin(struct link *l);
/* x: [n] on the rank's device. All ranks call it equally often, with the same n, each from its own thread. After a
 * failure it has no effect; link_status reports the failure. */
void link_sum(struct link *l, int32_t rank, float *x, int64_t n);
/* The rank will not take part in further sums of this step: the others stop waiting for it. */
void link_leave(struct link *l, int32_t rank);
/* 0, or the reason why the sums of the current step are incomplete. */
int link_status(const struct link *l, struct err *e);

/* Statistics of one rank since link_new. */
struct link_stats {
    uint64_t n_sum, n_bytes; /* n_bytes: sent and received */
    double wait_us, us;      /* waiting for other ranks; total */
};
void link_stats(const struct link *l, int32_t rank, struct link_stats *out);

#endif

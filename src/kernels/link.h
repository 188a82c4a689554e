/* link.h: sums over several devices of one process, the exchange of tensor parallelism.
 *
 * Each of n ranks is a device and the thread that drives it. link_sum adds up the rows of all ranks in the order of
 * ranks: every rank gets the same bits, in every run. If the devices access each other's memory, the sum is a kernel
 * like any other, so a step stays one list (ops.h: peer_sum). Otherwise the rows are exchanged in host memory, and each
 * sum waits. A rank that misses the deadline makes the sum fail for all others; they never hang. */
#ifndef CHIMERE_KERNELS_LINK_H
#define CHIMERE_KERNELS_LINK_H

#include "kernels/ops.h"

enum { LINK_MAX_RANKS = PEERS_MAX, LINK_DEADLINE_MS = 60000 };

/* auto: direct access if it is possible, exact and faster, by measurement. */
enum link_way { LINK_AUTO, LINK_PEER, LINK_HOST };
#define LINK_CHOICES "auto|peer|host"
enum link_way link_way_of(const char *name); /* name is one of LINK_CHOICES */

struct link;

/* devs: [n] borrowed, of one kind; n_max: floats of the longest sum. CHIMERE_EUNSUPPORTED: LINK_PEER, but these
 * devices do not access each other's memory. */
int link_new(struct link **out, struct dev *const *devs, int32_t n, int64_t n_max,
             enum link_way way, int32_t deadline_ms, struct err *e);
void link_free(struct link *l); /* no rank may be in a sum */
int32_t link_n_rank(const struct link *l);
/* Device memory that link_new allocates on each of n devices like d. */
uint64_t link_bytes(const struct dev *d, int32_t n, int64_t n_max);

/* Measures both ways, in a step of its own that every rank calls from its thread; then link_choose, once, from any
 * thread. */
void link_measure(struct link *l, int32_t rank);
int link_choose(struct link *l, struct err *e);
bool link_is_peer(const struct link *l);

/* Call before a step, while no rank is in a sum: clears the previous failure. */
void link_begin(struct link *l);
/* part: [n] on the rank's device. With x: x += scale * sum, and part becomes zeros; x NULL: part becomes the sum. All
 * ranks call it equally often, with the same n, each from its own thread. After a failure the result is undefined;
 * link_status reports the failure. */
void link_sum(struct link *l, int32_t rank, float *part, int64_t n, float *x, float scale);
/* With direct access: copies rows [n_row, n] of the rank's device to dst [n_row, dst_stride] on another one. They are
 * there when this device's ops have ended. */
void link_rows(struct link *l, int32_t rank, float *dst, int64_t dst_stride, const float *src,
               int32_t n_row, int64_t n);
/* The rank will not take part in further sums of this step: the others stop waiting for it. */
void link_leave(struct link *l, int32_t rank);
/* 0, or the reason why the sums of the current step are incomplete. */
int link_status(const struct link *l, struct err *e);

/* Statistics of one rank since link_choose; any thread. */
struct link_stats {
    bool is_peer;
    uint64_t n_sum, n_bytes; /* n_bytes: sent and received */
    double wait_us, us;      /* waiting for other ranks, through the host only; total */
    double peer_us[2],
        host_us[2]; /* measured: a sum of one row, the longest sum; 0: not measured */
};
void link_stats(const struct link *l, int32_t rank, struct link_stats *out);

#endif

/* card_time.h: predicts the time of a step or a prompt on one GPU from the times of its kernels on another.
 *
 * A kernel's time is latency + max(bytes / (0.92 x bandwidth), work / multiprocessors). Two runs, on all and on fewer
 * multiprocessors, give latency and work of every kernel. Both become shorter with a higher clock. Generations of
 * multiprocessors differ in their tensor cores, which do most of the work of a prompt, so a prompt has two predictions:
 * none of its work is on tensor cores, or all of it. */
#ifndef CHIMERE_RAMP_CARD_TIME_H
#define CHIMERE_RAMP_CARD_TIME_H

#include "kernels/ops.h"
#include "ramp/ramp_type.h"

/* A decode step of n_seq sequences, or a prompt of n_prompt tokens, on n_sm multiprocessors: its time, and kernels timed
 * one by one. */
struct card_run {
    int32_t n_sm, n_seq, n_prompt /* 0: a decode step */, n_kernel;
    double us;
    struct op_time kernels[DEV_MAX_TIMES];
};

/* The card of the table with so many multiprocessors and about this measured bandwidth, bytes per second; NULL: none
 * has so many. */
const struct ramp_card *card_of(int32_t n_sm, double bandwidth);

/* What a step or a prompt would take, in us, on a card; a, b: the same run on more and on fewer multiprocessors of a card
 * `here`. is_tensor: as if all work were on tensor cores. */
double card_time(const struct card_run *a, const struct card_run *b, const struct ramp_card *here,
                 const struct ramp_card *card, bool is_tensor);

#endif

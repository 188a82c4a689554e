/* ssm.h: the causal convolution and the recurrences of Mamba on the CPU: tasks and their kernels.
 *
 * A task is a part of the channels (convolution, Mamba-1) or one head (Mamba-2) of one span. The tasks of a span use
 * disjoint parts of its state. ssm_kernel.inc is compiled once per instruction set. */
#ifndef CHIMERE_KERNELS_CPU_SSM_H
#define CHIMERE_KERNELS_CPU_SSM_H

#include "kernels/ops.h"

enum {
    SSM_CHANNELS = 16, /* per task of the convolution and of Mamba-1: one vector */
    SSM_BLOCK = 32,    /* columns of a Mamba-2 state per sweep */
    SSM_MAX_CONV = 8,
    SSM_MAX_STATE = 256,
    SSM_MAX_HEAD = 256,
    SSM_CHUNK = 64, /* tokens whose decays are prepared together */
};

struct ssm_kernels {
    /* Channels [from, to) of span s; both multiples of 16. */
    void (*conv)(const struct conv_args *a, const struct span *s, int64_t from, int64_t to);
    /* Channels [from, from + 16) of span s. */
    void (*ssm)(const struct ssm_args *a, const struct span *s, int64_t from);
    /* Head h of span s. room: d_head * d_state floats. */
    void (*ssd)(const struct ssd_args *a, const struct span *s, int32_t h, float *room);
    /* Gate and norm of part p of token t's row, in place. */
    void (*finish)(const struct ssd_args *a, int64_t t, int32_t p);
};
extern const struct ssm_kernels ssm_avx512, ssm_avx2, ssm_neon, ssm_plain;

#endif

/* ffn_task.h: one feed-forward block and the rows to compute with it. */
#ifndef CHIMERE_KERNELS_CPU_FFN_TASK_H
#define CHIMERE_KERNELS_CPU_FFN_TASK_H

#include "kernels/ops.h"

struct ffn_task {
    const struct weight *gate, *up, *down; /* gate may be NULL */
    const float *gate_b, *up_b, *down_b;
    float gate_scale, down_scale;
    enum act act;         /* of a dense block */
    int64_t mat;          /* index in the stacks */
    int32_t expert;       /* expert index in the model */
    const int32_t *rows;  /* [n_row] tokens, ascending; NULL: all */
    const float *weights; /* [n_row]; NULL: 1 */
    int32_t n_row;
    int64_t hidden0; /* first hidden row */
    bool has_hidden; /* the hidden rows are computed already */
    size_t acts0;    /* offset of its quantized hidden rows, in bytes */
};

#endif

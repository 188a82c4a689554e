/* cuda.h: the CUDA device: one NVIDIA GPU behind the op table.
 *
 * Ops are not launched as they are called: the device writes them into a list and, when somebody waits
 * (download, status) or the list is full, sends the list. A list that was seen before is one CUDA graph
 * with programmatic dependent launch between its kernels: each kernel puts its first weights in flight
 * before it waits for the one before it. What changes from step to step (token rows, positions, page
 * tables) lies in a staging buffer at a fixed address, which the list's first kernel fills, so that the list
 * of a step does not change while the shape of the batch stays. What select finds is written to the host's
 * memory by the last kernel; the host watches a word there.
 *
 * Weights are stored as planes (repack.h). One thread at a time. Failures are sticky (ops.h). */
#ifndef CHIMERE_KERNELS_CUDA_CUDA_H
#define CHIMERE_KERNELS_CUDA_CUDA_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/ops.h"

struct cuda_params {
    int device;
    int n_thread;        /* that rearrange weights; 0: one a core */
    uint64_t vram_bytes; /* take no more than this; 0: what the card has free */
    uint32_t layout; /* of weights: PLANES or PLANES_WIDE (repack.h); 0: as the card's memory is */
    bool precise;    /* activations stay f32 in every product: slow, for comparisons */
    bool no_graph;   /* launch kernels one by one */
};

/* CHIMERE_EUNSUPPORTED where there is no GPU, no driver, or one older than sm_75. */
int cuda_open(struct dev **out, const struct cuda_params *p, struct err *e);

/* Host memory that the device reads and writes in place: for tests, which hand host arrays to ops. */
void *cuda_host_alloc(size_t n);
void cuda_host_free(void *p);

#ifdef __cplusplus
}
#endif

#endif

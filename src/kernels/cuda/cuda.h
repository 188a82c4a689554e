/* cuda.h: the CUDA device: one NVIDIA GPU, accessed through the op table.
 *
 * Ops are recorded, not launched: the device appends them to a list. It sends the list when the host waits (download,
 * status) or when the list is full. A list that was seen before runs as one CUDA graph with programmatic dependent
 * launch between its kernels: each kernel starts loading its first weights before it waits for the previous kernel.
 * Data that changes from step to step (token rows, positions, page tables) is in a staging buffer at a fixed address,
 * which the first kernel of the list fills. So the list stays the same as long as the shape of the batch does. The last
 * kernel writes the result of select to host memory; the host polls a word there.
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
    int n_thread;        /* threads that repack weights; 0: one per core */
    uint64_t vram_bytes; /* upper limit; 0: the free memory of the card */
    uint32_t layout;     /* of weights: PLANES or PLANES_WIDE (repack.h); 0: by the card's memory */
    bool precise;        /* activations stay f32 in every product; slow, for comparisons */
    bool no_graph;       /* launch kernels one by one */
};

/* The number of GPUs. 0 with CHIMERE_EUNSUPPORTED in *e: none, or no driver; with CHIMERE_EDEVICE: the driver is too old. */
int cuda_count(struct err *e);

/* Returns CHIMERE_EUNSUPPORTED if there is no driver or no GPU of sm_75 or newer. */
int cuda_open(struct dev **out, const struct cuda_params *p, struct err *e);

/* Host memory that the device accesses in place: for tests, which pass host arrays to ops. */
void *cuda_host_alloc(size_t n);
void cuda_host_free(void *p);

#ifdef __cplusplus
}
#endif

#endif

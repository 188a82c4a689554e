/* gdn.h: the gated delta net on the CPU: a task is one value head of one span. */
#ifndef CHIMERE_KERNELS_CPU_GDN_H
#define CHIMERE_KERNELS_CPU_GDN_H

#include "kernels/ops.h"

enum {
    GDN_CHUNK = 64,    /* tokens per chunk: 128 KB of scratch at d_k = d_v = 128 */
    GDN_BLOCK = 32,    /* columns of S per sweep */
    GDN_MAX_DIM = 256, /* d_k, d_v */
    GDN_MAX_CONV = 8,
};

struct gdn_head {
    const struct gdn_args *a;
    const struct span *s;
    const float *conv, *log; /* of the span's slot */
    int64_t n_conv;
    int32_t head;
};

/* Floats of scratch per thread. */
static inline size_t gdn_room(int32_t d_k, int32_t d_v) {
    return (size_t)GDN_CHUNK * 2 * (size_t)(d_k + d_v) + (size_t)d_k * (size_t)d_v;
}

void gdn_head_avx512(const struct gdn_head *g, float *room);
void gdn_head_avx2(const struct gdn_head *g, float *room);
void gdn_head_neon(const struct gdn_head *g, float *room);
void gdn_head_plain(const struct gdn_head *g, float *room);

#endif

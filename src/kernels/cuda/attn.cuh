/* attn.cuh: the cache and the job that kernels of few tokens (attn.cu) and of many (attn_many.cu) share. */
#ifndef CHIMERE_KERNELS_CUDA_ATTN_CUH
#define CHIMERE_KERNELS_CUDA_ATTN_CUH

#include "kernels/cuda/cuda_impl.cuh"

extern "C" {
#include "format/quant.h"
}

/* ---- elements of the cache ---- */

struct cache { /* one of keys or values */
    const uint8_t *data;
    size_t page_bytes, row_bytes;
    uint32_t type;
    int32_t d;
};

static cache cache_of(const void *data, uint32_t type, int32_t d, size_t page_bytes) {
    uint64_t row = 0;
    quant_row_bytes(type, (uint64_t)d, &row);
    return cache{(const uint8_t *)data, page_bytes, row, type, d};
}

__device__ __forceinline__ const uint8_t *cache_row(const cache &c, const int32_t *pages,
                                                    int64_t pos, int32_t head) {
    return c.data + (size_t)pages[pos / KV_PAGE] * c.page_bytes +
           ((size_t)head * KV_PAGE + (size_t)(pos % KV_PAGE)) * c.row_bytes;
}

__device__ __forceinline__ float cache_at(const cache &c, const uint8_t *row, int i) {
    if (c.type == QUANT_F16) return to_float(((const uint16_t *)row)[i]);
    if (c.type == QUANT_F32) return ((const float *)row)[i];
    if (c.type == QUANT_Q8_0) {
        const uint8_t *b = row + i / 32 * 34;
        return to_float(*(const uint16_t *)b) * (float)(int8_t)b[2 + i % 32];
    }
    const uint8_t *b = row + i / 32 * 18;
    int q = b[2 + i % 16] >> (i % 32 / 16 * 4) & 15;
    return to_float(*(const uint16_t *)b) * (float)(q - 8);
}

/* 8 elements of a coded row as halves, from element e, a multiple of 8. */
__device__ __forceinline__ uint4 decode8(uint32_t type, const uint8_t *row, int e, bool has) {
    uint32_t w[2], less, d;
    if (type == QUANT_Q8_0) {
        const uint8_t *b = row + e / 32 * 34;
        const uint16_t *q = (const uint16_t *)(b + 2 + e % 32);
        d = *(const uint16_t *)b;
        w[0] = ((uint32_t)q[0] | (uint32_t)q[1] << 16) ^ 0x80808080u;
        w[1] = ((uint32_t)q[2] | (uint32_t)q[3] << 16) ^ 0x80808080u;
        less = 0x64806480u; /* 1024 + 128 */
    } else {
        const uint8_t *b = row + e / 32 * 18;
        const uint16_t *q = (const uint16_t *)(b + 2 + e % 16);
        int shift = e % 32 / 16 * 4;
        d = *(const uint16_t *)b;
        w[0] = ((uint32_t)q[0] | (uint32_t)q[1] << 16) >> shift & 0x0f0f0f0fu;
        w[1] = ((uint32_t)q[2] | (uint32_t)q[3] << 16) >> shift & 0x0f0f0f0fu;
        less = 0x64086408u; /* 1024 + 8 */
    }
    d = has ? d | d << 16 : 0;
    /* the half with the bits 0x6400 + b is 1024 + b */
    auto two = [&](uint32_t from, uint32_t at) {
        return halves_mul(halves_sub(__byte_perm(from, 0x64646464u, at), less), d);
    };
    return make_uint4(two(w[0], 0x4140), two(w[0], 0x4342), two(w[1], 0x4140), two(w[1], 0x4342));
}

__device__ __forceinline__ void hadamard_heads(float *x, int d) {
    int n = d & -d;
    for (int h = 1; h < n; h *= 2) {
        __syncthreads();
        for (int i = (int)threadIdx.x; i < d / 2; i += (int)blockDim.x) {
            int at = i / h * 2 * h + i % h;
            float a = x[at], b = x[at + h];
            x[at] = a + b;
            x[at + h] = a - b;
        }
    }
    __syncthreads();
    float f = 1.0f / sqrtf((float)n);
    for (int i = (int)threadIdx.x; i < d; i += (int)blockDim.x) x[i] *= f;
    __syncthreads();
}

struct attn_job {
    cache k, v;
    const float *q, *sinks, *gate;
    int64_t gate_tok_stride, gate_head_stride;
    int32_t n_head, n_kv_head, window, n_keep, rotate;
    int32_t shift;     /* stretches are multiples of 1 << shift positions */
    int32_t few;       /* so many stretches need no join_kernel */
    uint32_t *arrived; /* [n_row, blocks of heads], zeros */
    float scale, softcap;
    act8 out8;           /* q NULL: none */
    const int32_t *rows; /* [n_row] that split_kernel takes */
    float *part;         /* [n_row, n_head, MAX_SPLIT, part_d(d_v)]: weighted values */
    float2 *stat;        /* [n_row, n_head, MAX_SPLIT]: sum of weights, maximum */
    float *out;
};

__device__ __forceinline__ bool is_seen(const attn_job &j, int64_t pos, int64_t own) {
    return j.window <= 0 || pos > own - j.window || pos < j.n_keep;
}

/* Spans of more than STEP_MAX_TOK tokens. */
void cuda_attn_many(struct cuda *c, const struct attn_args *a, const dspans &b, const attn_job &j);

#endif

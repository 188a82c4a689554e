/* attention.cuh: the cache and the job that the kernels for few tokens (attention.cu) and for many tokens
 * (flash_attention_prefill.cu) share. */
#ifndef CHIMERE_KERNELS_CUDA_ATTENTION_CUH
#define CHIMERE_KERNELS_CUDA_ATTENTION_CUH

#include "kernels/cuda/cuda_impl.cuh"

extern "C" {
#include "format/quant.h"
}

/* ---- elements of the cache ---- */

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

/* An f16 with the bits 0x6400 + b is 1024 + b. Takes two bytes of x, subtracts `less` (1024
 * + the zero point), times d. */
__device__ __forceinline__ uint32_t two_codes(uint32_t x, uint32_t bytes, uint32_t less,
                                              uint32_t d) {
    return halves_mul(halves_sub(__byte_perm(x, 0x64646464u, bytes), less), d);
}
/* Dequantizes 8 elements of a row to f16, starting at element `at` (a multiple of 8) of block `block` of 32. */
__device__ __forceinline__ uint4 decode8(uint32_t type, const uint8_t *row, int block, int at,
                                         bool has) {
    uint32_t w[2], less, d;
    if (type == QUANT_Q8_0) {
        const uint8_t *b = row + block * 34;
        const uint16_t *q = (const uint16_t *)(b + 2 + at);
        d = *(const uint16_t *)b;
        w[0] = ((uint32_t)q[0] | (uint32_t)q[1] << 16) ^ 0x80808080u;
        w[1] = ((uint32_t)q[2] | (uint32_t)q[3] << 16) ^ 0x80808080u;
        less = 0x64806480u; /* 1024 + 128 */
    } else {
        const uint8_t *b = row + block * 18;
        const uint16_t *q = (const uint16_t *)(b + 2 + at % 16);
        int shift = at / 16 * 4;
        d = *(const uint16_t *)b;
        w[0] = ((uint32_t)q[0] | (uint32_t)q[1] << 16) >> shift & 0x0f0f0f0fu;
        w[1] = ((uint32_t)q[2] | (uint32_t)q[3] << 16) >> shift & 0x0f0f0f0fu;
        less = 0x64086408u; /* 1024 + 8 */
    }
    d = has ? d | d << 16 : 0;
    return make_uint4(two_codes(w[0], 0x4140, less, d), two_codes(w[0], 0x4342, less, d),
                      two_codes(w[1], 0x4140, less, d), two_codes(w[1], 0x4342, less, d));
}
__device__ __forceinline__ void hadamard_heads(float *x, int d, int n) {
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

/* ---- one head of one token, computed by a warp ---- */

/* The rotary angles of a position, computed before pdl_wait. Lane l has those of elements l, l + 32 ..., of E. */
template <int E> struct head_angles {
    float sn[E / 2], cs[E / 2];
    __device__ __forceinline__ head_angles(const store_job &j, int64_t pos) {
        int lane = (int)threadIdx.x % 32, half = j.mode == ROPE_NONE ? 0 : j.n_rot / 2;
#pragma unroll
        for (int i = 0; i < E / 2; i++) {
            if (i * 32 >= half) break;
            float angle = i * 32 + lane < half ? (float)pos * j.inv_freq[i * 32 + lane] : 0.0f;
            sn[i] = sinf(angle) * j.magnitude;
            cs[i] = cosf(angle) * j.magnitude;
        }
    }
};

/* Norm and RoPE of one head, in place. x: its elements, w: the norm's weights. mine: this warp's
 * shared memory, 32 * E floats. */
template <int E, bool LEAD = false>
__device__ __forceinline__ void head_make(const store_job &j, const head_angles<E> &a,
                                          const float (&w)[E], float *mine, float (&x)[E]) {
    int lane = (int)threadIdx.x % 32, half = j.mode == ROPE_NONE ? 0 : j.n_rot / 2;
    if (j.norm) {
        int n_lead = LEAD ? j.n_rot : 0;
        float sum = 0;
#pragma unroll
        for (int i = 0; i < E; i++)
            if (!LEAD || i * 32 + lane >= n_lead) sum += x[i] * x[i];
        float f = 1.0f / sqrtf(lanes_sum(sum, 32) / (float)(j.to.d - n_lead) + j.eps);
#pragma unroll
        for (int i = 0; i < E; i++)
            if (!LEAD || i * 32 + lane >= n_lead) x[i] *= f * w[i];
    }
    if (!half) return;
#pragma unroll
    for (int i = 0; i < E; i++)
        if (i * 32 < 2 * half) mine[i * 32 + lane] = x[i];
    __syncwarp();
#pragma unroll
    for (int i = 0; i < E / 2; i++) {
        int p = i * 32 + lane;
        if (p >= half) break;
        int at = j.mode == ROPE_NORM ? 2 * p : p, to = j.mode == ROPE_NORM ? at + 1 : at + half;
        float x0 = mine[at], x1 = mine[to];
        mine[at] = x0 * a.cs[i] - x1 * a.sn[i];
        mine[to] = x0 * a.sn[i] + x1 * a.cs[i];
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < E; i++)
        if (i * 32 < 2 * half) x[i] = mine[i * 32 + lane];
}

/* Few tokens: the cache split into KV ranges ("stretches"; attention.cu, flash_attention_decode.cu). */
enum {
    MAX_SPLIT = 132, /* with two KV heads one wave on an H200: two blocks per multiprocessor */
    SPLIT_SHIFT = 4, /* split_kernel: ranges are multiples of 16 positions, one step of a block */
    PAGE_SHIFT = 6,  /* page_kernel: ranges are multiples of a page */
    MAX_GROUP = 8,   /* query heads of one kv head that a block serves */
    JOIN_FEW = 8,    /* up to so many ranges are merged by the block of them that ends last */
};
/* Floats from the values of one range to those of the next. */
static __host__ __device__ inline int part_d(int d_v) { return (d_v + 3) / 4 * 4; }

/* Positions per range for a token at position own: the smallest length that needs at most MAX_SPLIT ranges. */
__device__ __forceinline__ int32_t stretch_of(int32_t shift, int32_t own) {
    return (own / (MAX_SPLIT << shift) + 1) << shift;
}

struct attn_job {
    cache k, v;
    const float *q, *sinks, *gate;
    int64_t gate_tok_stride, gate_head_stride;
    int32_t n_head, n_kv_head, window, n_keep, rotate;
    int32_t n_range;   /* ranges that a row has room for, MAX_SPLIT at most */
    int32_t shift;     /* range lengths are multiples of 1 << shift positions */
    int32_t few;       /* up to so many ranges are merged without join_kernel */
    int32_t heads;     /* page_kernel: query heads that a block serves, MAX_GROUP at most */
    uint32_t *arrived; /* [n_row, blocks of heads], zeros */
    float scale, softcap;
    act8 out8;           /* q NULL: none */
    const int32_t *rows; /* [n_row]: batch rows that this launch computes */
    float *part;         /* [n_row, n_head, n_range, part_d(d_v)]: weighted values */
    float2 *stat;        /* [n_row, n_head, n_range]: sum of weights, maximum */
    float *out;
};

__device__ __forceinline__ bool is_seen(const attn_job &j, int64_t pos, int64_t own) {
    return j.window <= 0 || pos > own - j.window || pos < j.n_keep;
}

enum {
    HEAD_MAX = 512,
    LATENT_HEAD_MAX = 576, /* of latent attention: a latent of 512 and 64 rotary elements */
};

/* Multiprocessors with 163 KB of shared memory or more: page_kernel takes up to 144 KB for heads of more than 256. */
static inline bool has_wide_room(const struct cuda *c) {
    return c->compute / 10 == 9 || c->compute / 10 == 10 || c->compute == 80;
}

/* Few tokens on the tensor cores (flash_attention_decode.cu). cuda_attn_page_heads returns the head size if
 * there is a kernel for it, else 0. cuda_attn_pages computes n_row rows in n_split ranges; rows with at
 * most j.few ranges are merged already. */
int cuda_attn_page_heads(const struct cuda *c, const cache &k, const cache &v);
void cuda_attn_pages(struct cuda *c, const dspans &b, const attn_job &j, const fresh_job *fresh,
                     int n_split, int n_row);

/* The same for latent attention; cuda_attn_has_latent: whether this kernel can. Nothing is merged. */
bool cuda_attn_has_latent(const struct cuda *c, const attn_job &j);
void cuda_attn_latent(struct cuda *c, const dspans &b, const attn_job &j, int n_split, int n_row);

/* Spans of more than STEP_MAX_TOK tokens. */
void cuda_attn_many(struct cuda *c, const struct attn_args *a, const dspans &b, const attn_job &j);

#endif

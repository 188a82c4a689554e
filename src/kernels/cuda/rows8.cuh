/* rows8.cuh: rows of quantised weights times activations of 8 bits: what decoding consists of.
 *
 * Activations are quantised once, by the kernel that makes them (act8), as ref_quantise8 does it. A group
 * of up to 32 lanes streams pairs of rows: each lane takes every group-th unit and keeps a few steps of
 * loads in flight across the ends of rows, the first of them before it waits for the kernel before it.
 * A lane's order of additions depends on n_in alone, so a token's bits do not depend on how many tokens
 * there are. */
#ifndef CHIMERE_KERNELS_CUDA_ROWS8_CUH
#define CHIMERE_KERNELS_CUDA_ROWS8_CUH

#include "kernels/cuda/portable.cuh"
#include "kernels/cuda/unpack.cuh"

/* Steps of loads in flight: as many as 128 registers hold. */
template <int F> constexpr int ahead_of = F == FORM_I8 || F == FORM_I8X ? 2 : F == FORM_N6K ? 3 : 4;

/* Rows of 32-element units: bytes, and for each unit its scale and the sums of its halves. */
struct act8 {
    const int8_t *q;   /* [n_row][n_in]; NULL: there is none */
    const uint2 *meta; /* [n_row][n_in / 32]: float scale, two int16 sums */
};

static __host__ __device__ inline size_t act8_bytes(int64_t n_row, int64_t n_in) {
    return (size_t)(n_row * n_in + n_row * (n_in / 32) * 8);
}
static __host__ __device__ inline act8 act8_at(void *room, int64_t n_row, int64_t n_in) {
    return act8{(const int8_t *)room, (const uint2 *)((const uint8_t *)room + n_row * n_in)};
}

/* A warp rounds one unit, a value a lane: scale amax / 127, nearest even; a unit that is not finite gets
 * a scale that is not a number. */
__device__ __forceinline__ void act8_put(const act8 &a, int64_t unit, float v) {
    int lane = (int)threadIdx.x % 32;
    float most = lanes_max(fabsf(v), 32);
    bool bad = __ballot_sync(0xffffffffu, !(fabsf(v) <= 3.402823466e38f)) != 0;
    float d = most / 127.0f;
    float inv = d >= 1.17549435e-38f ? 1.0f / d : 0.0f;
    int q = bad ? 1 : (int)fminf(fmaxf(rintf(v * inv), -127.0f), 127.0f), sum = q;
    for (int o = 8; o > 0; o /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, o);
    int high = __shfl_xor_sync(0xffffffffu, sum, 16);
    ((int8_t *)a.q)[unit * 32 + lane] = (int8_t)q;
    float s = bad ? __int_as_float(0x7fc00000) : d >= 1.17549435e-38f ? d : 0.0f;
    if (lane == 0)
        ((uint2 *)a.meta)[unit] = make_uint2((uint32_t)__float_as_int(s),
                                             (uint32_t)(sum & 0xffff) | (uint32_t)high << 16);
}

/* Product of a unit of weights with one of activations. */
template <int F>
__device__ __forceinline__ float unit_dot8(const unpacked &w, uint4 lo, uint4 hi, uint2 meta) {
    int s0 = 0, s1 = 0;
    s0 = dot4((int)w.q[0], (int)lo.x, s0), s0 = dot4((int)w.q[1], (int)lo.y, s0);
    s0 = dot4((int)w.q[2], (int)lo.z, s0), s0 = dot4((int)w.q[3], (int)lo.w, s0);
    s1 = dot4((int)w.q[4], (int)hi.x, s1), s1 = dot4((int)w.q[5], (int)hi.y, s1);
    s1 = dot4((int)w.q[6], (int)hi.z, s1), s1 = dot4((int)w.q[7], (int)hi.w, s1);
    int t0 = (int)(int16_t)(meta.y & 0xffffu), t1 = (int)(int16_t)(meta.y >> 16);
    constexpr int mid = form_traits<F>::mid;
    s0 -= mid * t0, s1 -= mid * t1;
    float sum;
    if constexpr (form_traits<F>::has_halves) sum = w.scale[0] * (float)s0 + w.scale[1] * (float)s1;
    else sum = w.scale[0] * (float)(s0 + s1);
    if constexpr (F == FORM_N2K) sum -= w.offset[0] * (float)t0 + w.offset[1] * (float)t1;
    else if constexpr (form_traits<F>::has_offset) sum -= w.offset[0] * (float)(t0 + t1);
    return sum * __int_as_float((int)meta.x);
}

/* Streams n_pair pairs of rows of n_step steps each:
 *   load(raw, r, pair, step)   issues the loads of row r (0, 1) of a pair; lanes beyond the row load nothing
 *   act(pair, step, t, lo, hi, meta)   a unit of token t; false: this lane has none at this step
 *   sink(pair, out)            out[r][t], the same in every lane of the group
 * ready() waits for the kernel before this one and runs once, after the first loads are under way. */
template <int F, int NT, class Load, class Act, class Ready, class Sink>
__device__ __forceinline__ void stream8(int n_pair, int n_step, int group, const grid_tables &g,
                                        int n_tok, Load load, Act act, Ready ready, Sink sink) {
    constexpr int AHEAD = ahead_of<F>;
    raw<F> ahead[AHEAD][2];
    int pair_in = 0, step_in = 0; /* the next loads */
#pragma unroll
    for (int p = 0; p < AHEAD; p++) {
        if (pair_in < n_pair) {
            load(ahead[p][0], 0, pair_in, step_in);
            load(ahead[p][1], 1, pair_in, step_in);
            if (++step_in == n_step) step_in = 0, pair_in++;
        }
    }
    ready();
    float out[2][NT];
#pragma unroll
    for (int t = 0; t < NT; t++) out[0][t] = out[1][t] = 0.0f;
    int pair = 0, step = 0;
    while (pair < n_pair) {
#pragma unroll
        for (int p = 0; p < AHEAD; p++) {
            if (pair >= n_pair) break;
            unpacked w[2];
            unpack<F, true>(ahead[p][0], g, w[0]);
            unpack<F, true>(ahead[p][1], g, w[1]);
            if (pair_in < n_pair) {
                load(ahead[p][0], 0, pair_in, step_in);
                load(ahead[p][1], 1, pair_in, step_in);
                if (++step_in == n_step) step_in = 0, pair_in++;
            }
#pragma unroll
            for (int t = 0; t < NT; t++) {
                uint4 lo, hi;
                uint2 meta;
                if (t < n_tok && act(pair, step, t, lo, hi, meta)) {
                    out[0][t] += unit_dot8<F>(w[0], lo, hi, meta);
                    out[1][t] += unit_dot8<F>(w[1], lo, hi, meta);
                }
            }
            if (++step < n_step) continue;
#pragma unroll
            for (int t = 0; t < NT; t++) {
                out[0][t] = lanes_sum(out[0][t], group);
                out[1][t] = lanes_sum(out[1][t], group);
            }
            sink(pair, out);
#pragma unroll
            for (int t = 0; t < NT; t++) out[0][t] = out[1][t] = 0.0f;
            step = 0;
            pair++;
        }
    }
}

__device__ __forceinline__ void act8_load(const act8 &a, int64_t unit, uint4 &lo, uint4 &hi,
                                          uint2 &meta) {
    const uint4 *q = (const uint4 *)(a.q + unit * 32);
    lo = q[0];
    hi = q[1];
    meta = a.meta[unit];
}

/* Lanes that share a row: a power of two up to 32, and no more than the row has units. */
static __host__ __device__ inline int lanes_of(const planes &w) {
    int g = 1;
    while (g < 32 && g < w.n_unit) g *= 2;
    return g;
}

/* Grid points in shared memory: lookups of 32 lanes go to 32 banks there, to one cache line after the
 * other in global memory. Every thread of the block calls it, before the table is read. */
static __host__ __device__ inline int grid_words(int form) {
    switch (form) {
    case FORM_G3S: return 512;
    case FORM_G3XXS: return 256;
    case FORM_G2XXS: return 512;
    case FORM_G2XS: return 1024;
    case FORM_G2S: return 2048;
    default: return 0;
    }
}
__device__ __forceinline__ void grid_load(grid_tables &g, int form, uint32_t *room) {
    const uint32_t *from = form == FORM_G3S     ? g.iq3s
                           : form == FORM_G3XXS ? g.iq3xxs
                           : form == FORM_G2XXS ? (const uint32_t *)g.iq2xxs
                           : form == FORM_G2XS  ? (const uint32_t *)g.iq2xs
                                                : (const uint32_t *)g.iq2s;
    int n = grid_words(form);
    if (!n) return;
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) room[i] = from[i];
    g.iq3s = g.iq3xxs = room;
    g.iq2xxs = g.iq2xs = g.iq2s = (const uint2 *)room;
    __syncthreads();
}

#endif

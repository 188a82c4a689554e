/* rows8.cuh: rows of quantised weights times activations of 8 bits: what decoding consists of.
 *
 * Activations are quantised once, by the kernel that makes them (act8), as ref_quantise8 does it. A group
 * of up to 32 lanes streams pairs of rows: each lane takes every group-th unit and keeps a few steps of
 * copies to shared memory in flight across the ends of rows, the first of them before it waits for the
 * kernel before it. They hold no registers, so that blocks of the next kernel can be resident, and copying,
 * while this one computes.
 * A lane's order of additions depends on n_in alone, so a token's bits do not depend on how many tokens
 * there are. */
#ifndef CHIMERE_KERNELS_CUDA_ROWS8_CUH
#define CHIMERE_KERNELS_CUDA_ROWS8_CUH

#include <type_traits>

#include "kernels/cuda/portable.cuh"
#include "kernels/cuda/unpack.cuh"

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

/* The same, four values a lane: lanes 8 k to 8 k + 7 of a warp have a unit; in order of lanes, quad counts the fours
 * of the row. Lanes without a quad bring zeros and has = false. */
__device__ __forceinline__ void act8_put4(const act8 &a, int64_t quad, float4 v, bool has) {
    float most = fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
    /* a maximum forgets NaN: infinity stands for it */
    const float limit = 3.402823466e38f;
    bool bad =
        !(fabsf(v.x) <= limit && fabsf(v.y) <= limit && fabsf(v.z) <= limit && fabsf(v.w) <= limit);
    most = lanes_max(bad ? __int_as_float(0x7f800000) : most, 8);
    bad = !(most <= limit);
    float d = most / 127.0f, inv = d >= 1.17549435e-38f ? 1.0f / d : 0.0f;
    auto code = [&](float x) {
        int q = (int)fminf(fmaxf(rintf(x * inv), -127.0f), 127.0f);
        return (uint32_t)(bad ? 1 : q) & 255u;
    };
    uint32_t q = code(v.x) | code(v.y) << 8 | code(v.z) << 16 | code(v.w) << 24;
    int sum = dot4((int)q, 0x01010101, 0);
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    int high = __shfl_xor_sync(0xffffffffu, sum, 4);
    if (!has) return;
    ((uint32_t *)a.q)[quad] = q;
    float s = bad ? __int_as_float(0x7fc00000) : d >= 1.17549435e-38f ? d : 0.0f;
    if (quad % 8 == 0)
        ((uint2 *)a.meta)[quad / 8] = make_uint2((uint32_t)__float_as_int(s),
                                                 (uint32_t)(sum & 0xffff) | (uint32_t)high << 16);
}

/* A row of n values, a multiple of 32, by all threads of a block: of(quad) makes four. */
template <class Of> __device__ __forceinline__ void act8_row(const act8 &a, int n, Of of) {
#pragma unroll 1
    for (int q = (int)threadIdx.x; q / 32 * 32 < n / 4; q += (int)blockDim.x) {
        bool has = q < n / 4;
        act8_put4(a, q, has ? of(q) : make_float4(0, 0, 0, 0), has);
    }
}

/* One row, y = x / sqrt(mean(x^2) + eps) * w, made where it is needed. */
struct norm_row_job {
    const float *x, *w; /* w NULL: ones */
    float *out;
    float eps;
    int32_t unused;
    act8 a8; /* of out */
};

/* Rows act(gate) * up, made where they are needed. */
struct glu_job {
    const float *up, *gate; /* [n_tok, n]; up NULL: there is none; gate NULL: act(up) */
    int32_t act, unused;
};
__device__ __forceinline__ float4 glu_quad(const glu_job &g, int64_t quad) {
    float4 u = ((const float4 *)g.up)[quad];
    if (!g.gate)
        return make_float4(act_of(g.act, u.x), act_of(g.act, u.y), act_of(g.act, u.z),
                           act_of(g.act, u.w));
    float4 v = ((const float4 *)g.gate)[quad];
    return make_float4(act_of(g.act, v.x) * u.x, act_of(g.act, v.y) * u.y, act_of(g.act, v.z) * u.z,
                       act_of(g.act, v.w) * u.w);
}

enum { NORM_THREADS = 256 };
/* A block of NORM_THREADS gives fours of y to put(quad, y), whole warps at a time (has: whether this lane has one).
 * x, w and n are multiples of 4. The order of additions depends on n alone. room: 32 floats. */
template <class Put>
__device__ __forceinline__ void norm_row(const float *x, const float *w, int n, float eps,
                                         float *room, Put put) {
    constexpr int KEPT = 2; /* fours a thread keeps: rows of up to 2,048 are read once */
    float4 kept[KEPT];
    float sum = 0;
    auto four = [&](int q) { return 4 * q < n ? ((const float4 *)x)[q] : make_float4(0, 0, 0, 0); };
#pragma unroll
    for (int k = 0; k < KEPT; k++) kept[k] = four((int)threadIdx.x + k * NORM_THREADS);
    auto add = [&](float4 v) { sum += v.x * v.x + v.y * v.y + (v.z * v.z + v.w * v.w); };
#pragma unroll
    for (int k = 0; k < KEPT; k++) add(kept[k]);
#pragma unroll 1
    for (int q = (int)threadIdx.x + KEPT * NORM_THREADS; 4 * q < n; q += NORM_THREADS) add(four(q));
    float f = 1.0f / sqrtf(block_sum(sum, room) / (float)n + eps);
#pragma unroll 1
    for (int q = (int)threadIdx.x; q / 32 * 128 < n; q += NORM_THREADS) {
        float4 v = q < NORM_THREADS ? kept[0] : q < 2 * NORM_THREADS ? kept[1] : four(q);
        float4 g = w && 4 * q < n ? ((const float4 *)w)[q] : make_float4(1, 1, 1, 1);
        put(q, make_float4(v.x * f * g.x, v.y * f * g.y, v.z * f * g.z, v.w * f * g.w), 4 * q < n);
    }
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

/* Where the fields of a step's units of one row lie in a warp's ring: a lane copies its own, each field as whole
 * words, so that neighbours may copy the same word. */
template <int F> struct slot {
    static constexpr int codes =
        F == FORM_I8 || F == FORM_I8X                                         ? 32
        : F == FORM_G2XXS || F == FORM_G2S                                    ? 4
        : F == FORM_N3K || F == FORM_N2K || (F >= FORM_G3S && F <= FORM_G2XS) ? 8
                                                                              : 16;
    static constexpr int more = F == FORM_N6K ? 8
                                : F == FORM_N5 || F == FORM_N5M || F == FORM_N5K || F == FORM_N3K ||
                                        F == FORM_G3S || F == FORM_G3XXS || F == FORM_G2XXS ||
                                        F == FORM_G2S
                                    ? 4
                                    : 0;
    static constexpr int sub = F == FORM_N4K || F == FORM_N5K || F == FORM_N6K || F == FORM_N3K ||
                                       F == FORM_N2K || F == FORM_G3S || F == FORM_G2S
                                   ? 2
                               : F == FORM_T4K || F == FORM_TFP4 || F == FORM_G2XS ? 1
                                                                                   : 0;
    static constexpr int top =
        F == FORM_TFP4                                                                      ? 0
        : F == FORM_I8X                                                                     ? 8
        : F == FORM_N4M || F == FORM_N5M || F == FORM_N4K || F == FORM_N5K || F == FORM_N2K ? 4
                                                                                            : 2;
    static constexpr int top_units = F <= FORM_N5M || F == FORM_T4 || F == FORM_TFP4 ? 1 : 8;
    static constexpr int more_at = 32 * codes, sub_at = more_at + 32 * more,
                         top_at = sub_at + (sub ? 128 : 0),
                         bytes = top_at + (top == 8 ? 256
                                           : top    ? 128
                                                    : 0);
    /* steps in flight: as many as 6 KB hold, a warp's share of a quarter of a multiprocessor */
    static constexpr int most = F == FORM_G3S ? 3 : 4; /* its grid takes 32 KB of 99 */
    static constexpr int ahead = 3072 / bytes < 2 ? 2 : 3072 / bytes > most ? most : 3072 / bytes;
    static constexpr int ring = 2 * ahead * bytes; /* of a warp */
};

template <int F>
__device__ __forceinline__ void copy_unit(uint8_t *to, const planes &w, int64_t at) {
    using S = slot<F>;
    int lane = (int)threadIdx.x % 32;
    if constexpr (S::codes == 32) {
        copy_async<16>(to + 16 * lane, w.codes + at * 32);
        copy_async<16>(to + 512 + 16 * lane, w.codes + at * 32 + 16);
    } else copy_async<S::codes>(to + S::codes * lane, w.codes + at * S::codes);
    if constexpr (S::more != 0)
        copy_async<S::more>(to + S::more_at + S::more * lane, w.more + at * S::more);
    if constexpr (S::sub != 0)
        copy_async<4>(to + S::sub_at + 4 * lane, w.sub + (at * S::sub & ~(int64_t)3));
    if constexpr (S::top != 0) {
        constexpr int word = S::top == 8 ? 8 : 4;
        copy_async<word>(to + S::top_at + word * lane,
                         w.top + (at / S::top_units * S::top & ~(int64_t)(word - 1)));
    }
}

template <int F>
__device__ __forceinline__ void read_unit(raw<F> &r, const uint8_t *from, uint32_t at) {
    using S = slot<F>;
    int lane = (int)threadIdx.x % 32;
    if constexpr (S::codes >= 16) {
        uint4 a = *(const uint4 *)(from + 16 * lane);
        r.code[0] = a.x, r.code[1] = a.y, r.code[2] = a.z, r.code[3] = a.w;
        if constexpr (S::codes == 32) {
            a = *(const uint4 *)(from + 512 + 16 * lane);
            r.code[4] = a.x, r.code[5] = a.y, r.code[6] = a.z, r.code[7] = a.w;
        }
    } else if constexpr (S::codes == 8) {
        uint2 a = *(const uint2 *)(from + 8 * lane);
        r.code[0] = a.x, r.code[1] = a.y;
    } else r.code[0] = *(const uint32_t *)(from + 4 * lane);
    if constexpr (S::more == 8) {
        uint2 a = *(const uint2 *)(from + S::more_at + 8 * lane);
        r.more[0] = a.x, r.more[1] = a.y;
    } else if constexpr (S::more == 4)
        r.more[0] = *(const uint32_t *)(from + S::more_at + 4 * lane);
    if constexpr (S::sub != 0) {
        uint32_t v = *(const uint32_t *)(from + S::sub_at + 4 * lane);
        r.sub = S::sub == 2 ? v >> 16 * (at & 1) & 0xffffu : v >> 8 * (at & 3) & 255u;
    }
    if constexpr (S::top == 8) {
        uint2 a = *(const uint2 *)(from + S::top_at + 8 * lane);
        r.top[0] = a.x, r.top[1] = a.y;
    } else if constexpr (S::top != 0) {
        uint32_t v = *(const uint32_t *)(from + S::top_at + 4 * lane);
        r.top[0] = S::top == 4 ? v : v >> 16 * (at / S::top_units & 1) & 0xffffu;
    }
}

/* Streams n_pair pairs of rows of n_step steps each, through the warp's ring (slot<F>::ring bytes):
 *   has(step)            whether this lane has a unit at a step of a row
 *   unit(r, pair, step)  the place of that of row r (0, 1) of a pair in its planes
 *   act(pair, step, t, lo, hi, meta)   a unit of token t, for lanes that have one
 *   sink(pair, out)      out[r][t], the same in every lane of the group
 * source(r): the planes of row r. ready(groups) waits for the kernel before this one and runs once in every
 * thread, after the first groups of copies are under way. */
template <int F, int NT, class Source, class Has, class Unit, class Act, class Ready, class Sink>
__device__ __forceinline__ void stream8(uint8_t *ring, int n_pair, int n_step, int group,
                                        const grid_tables &g, int n_tok, Source source, Has has,
                                        Unit unit, Act act, Ready ready, Sink sink) {
    using S = slot<F>;
    int pair_in = 0, step_in = 0; /* the next copies */
    auto issue = [&](uint8_t *to) {
        if (pair_in < n_pair) {
            if (has(step_in)) {
                copy_unit<F>(to, source(0), unit(0, pair_in, step_in));
                copy_unit<F>(to + S::bytes, source(1), unit(1, pair_in, step_in));
            }
            if (++step_in == n_step) step_in = 0, pair_in++;
        }
        copy_commit();
    };
    /* not unrolled: a kernel's code is cold in every layer, and fetching it took a third of the time */
#pragma unroll 1
    for (int p = 0; p < S::ahead; p++) issue(ring + p * 2 * S::bytes);
    ready(std::integral_constant<int, S::ahead>());
    float out[2][NT];
#pragma unroll
    for (int t = 0; t < NT; t++) out[0][t] = out[1][t] = 0.0f;
    uint8_t *from = ring;
    for (int pair = 0; pair < n_pair; pair++) {
        for (int step = 0; step < n_step; step++) {
            copy_wait<S::ahead - 1>();
            unpacked w[2];
#pragma unroll
            for (int r = 0; r < 2; r++) {
                raw<F> code;
                read_unit<F>(code, from + r * S::bytes, (uint32_t)unit(r, pair, step));
                unpack<F, true>(code, g, w[r]);
            }
            issue(from);
            from = from == ring + (S::ahead - 1) * 2 * S::bytes ? ring : from + 2 * S::bytes;
#pragma unroll
            for (int t = 0; t < NT; t++) {
                uint4 lo, hi;
                uint2 meta;
                if (t < n_tok && has(step)) {
                    act(pair, step, t, lo, hi, meta);
                    out[0][t] += unit_dot8<F>(w[0], lo, hi, meta);
                    out[1][t] += unit_dot8<F>(w[1], lo, hi, meta);
                }
            }
        }
#pragma unroll
        for (int t = 0; t < NT; t++) {
            out[0][t] = lanes_sum(out[0][t], group);
            out[1][t] = lanes_sum(out[1][t], group);
        }
        sink(pair, out);
#pragma unroll
        for (int t = 0; t < NT; t++) out[0][t] = out[1][t] = 0.0f;
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
static __host__ __device__ constexpr int grid_words(int form, bool is_signed = GRID_SIGNED) {
    switch (form) {
    case FORM_G3S: return is_signed ? 8192 : 512;
    case FORM_G3XXS: return 256;
    case FORM_G2XXS: return 512;
    case FORM_G2XS: return 1024;
    case FORM_G2S: return 2048;
    default: return 0;
    }
}
__device__ __forceinline__ void grid_load(grid_tables &g, int form, uint32_t *room) {
    const uint32_t *from = form == FORM_G3S     ? GRID_SIGNED ? g.iq3s_signed : g.iq3s
                           : form == FORM_G3XXS ? g.iq3xxs
                           : form == FORM_G2XXS ? (const uint32_t *)g.iq2xxs
                           : form == FORM_G2XS  ? (const uint32_t *)g.iq2xs
                                                : (const uint32_t *)g.iq2s;
    int n = grid_words(form);
    if (!n) return;
    for (int i = 4 * (int)threadIdx.x; i < n; i += 4 * (int)blockDim.x)
        *(uint4 *)(room + i) = *(const uint4 *)(from + i);
    g.iq3s = g.iq3xxs = room;
    g.iq2xxs = g.iq2xs = g.iq2s = (const uint2 *)room;
    __syncthreads();
}

#endif

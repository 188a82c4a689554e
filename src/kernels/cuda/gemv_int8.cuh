/* gemv_int8.cuh: rows of quantized weights times 8-bit activations: the main work of decoding.
 *
 * The kernel that computes the activations also quantizes them, once (act8), with the rounding of ref_quantise8. A
 * group of up to 32 lanes processes a few rows together. A lane takes every group-th unit, loaded into registers two
 * steps before their use; the first two steps are loaded before pdl_wait. The limit is the number of instructions per
 * unit: a chip of 132 multiprocessors issues about 60 instructions for a warp's unit in the time its memory delivers
 * the unit's bytes. The order of additions in a lane depends on the matrix alone. So the result of a token in a batch
 * does not depend, bit for bit, on the number of tokens; a single token uses other kernels (gemv.cu). */
#ifndef CHIMERE_KERNELS_CUDA_GEMV_INT8_CUH
#define CHIMERE_KERNELS_CUDA_GEMV_INT8_CUH

#include "kernels/cuda/portable.cuh"
#include "kernels/cuda/dequant.cuh"

/* Activation rows in units of 32 elements: bytes and, per unit, its scale and the sums of its two halves. */
struct act8 {
    const int8_t *q;   /* [n_row][n_in]; NULL: none */
    const uint2 *meta; /* [n_row][n_in / 32]: float scale, two int16 sums */
};

static __host__ __device__ inline size_t act8_bytes(int64_t n_row, int64_t n_in) {
    return (size_t)(n_row * n_in + n_row * (n_in / 32) * 8);
}
static __host__ __device__ inline act8 act8_at(void *room, int64_t n_row, int64_t n_in) {
    return act8{(const int8_t *)room, (const uint2 *)((const uint8_t *)room + n_row * n_in)};
}

/* v * inv rounded to the nearest integer, ties to even, in the low byte: adding 1.5 * 2^23 rounds. */
__device__ __forceinline__ uint32_t act8_code(float v, float inv) {
    return (uint32_t)__float_as_int(__fadd_rn(__fmul_rn(v, inv), 12582912.0f));
}
/* Returns the scale amax / 127 of a unit whose largest magnitude has the bits `most`; inv: its inverse. If the unit
 * contains NaN or infinity, the scale is NaN. */
__device__ __forceinline__ float act8_scale(uint32_t most, float &inv) {
    float d = __int_as_float((int)most) * (1.0f / 127.0f);
    bool small = d < 1.17549435e-38f;
    inv = small ? 0.0f : reciprocal(d);
    return most >= 0x7f800000u ? __int_as_float(0x7fc00000) : small ? 0.0f : d;
}

/* A warp quantizes one unit, one value per lane. */
__device__ __forceinline__ void act8_put(const act8 &a, int64_t unit, float v) {
    int lane = (int)threadIdx.x % 32;
    float inv, s = act8_scale(lanes_most((uint32_t)__float_as_int(v) & 0x7fffffffu), inv);
    int q = (int8_t)act8_code(v, inv), sum = q;
    for (int o = 8; o > 0; o /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, o);
    int high = __shfl_xor_sync(0xffffffffu, sum, 16);
    ((int8_t *)a.q)[unit * 32 + lane] = (int8_t)q;
    if (lane == 0)
        ((uint2 *)a.meta)[unit] = make_uint2((uint32_t)__float_as_int(s),
                                             (uint32_t)(sum & 0xffff) | (uint32_t)high << 16);
}

/* The same with four values per lane: lanes 8 k to 8 k + 7 of a warp have one unit. */
struct rounded4 {
    uint32_t codes, sums; /* four bytes; the two sums of the unit (lane 8 k) */
    float scale;
};
__device__ __forceinline__ rounded4 round4(float4 v) {
    uint32_t most = largest4(v);
#pragma unroll
    for (int o = 4; o > 0; o /= 2) most = max(most, __shfl_xor_sync(0xffffffffu, most, o));
    float inv, scale = act8_scale(most, inv);
    uint32_t codes =
        __byte_perm(__byte_perm(act8_code(v.x, inv), act8_code(v.y, inv), 0x0040),
                    __byte_perm(act8_code(v.z, inv), act8_code(v.w, inv), 0x0040), 0x5410);
    int sum = dot4((int)codes, 0x01010101, 0);
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    int high = __shfl_xor_sync(0xffffffffu, sum, 4);
    return rounded4{codes, __byte_perm((uint32_t)sum, (uint32_t)high, 0x5410), scale};
}
/* Quantizes and stores; quad: index of the lane's group of four, consecutive over the lanes. Lanes without a
 * group pass zeros and has = false. */
__device__ __forceinline__ void act8_put4(const act8 &a, int64_t quad, float4 v, bool has) {
    rounded4 r = round4(v);
    if (!has) return;
    ((uint32_t *)a.q)[quad] = r.codes;
    if (quad % 8 == 0)
        ((uint2 *)a.meta)[quad / 8] = make_uint2((uint32_t)__float_as_int(r.scale), r.sums);
}

/* Quantizes a row of n values, a multiple of 32, by all threads of a block; of(quad) computes four values. */
template <class Of> __device__ __forceinline__ void act8_row(const act8 &a, int n, Of of) {
#pragma unroll 1
    for (int q = (int)threadIdx.x; q / 32 * 32 < n / 4; q += (int)blockDim.x) {
        bool has = q < n / 4;
        act8_put4(a, q, has ? of(q) : make_float4(0, 0, 0, 0), has);
    }
}

/* One row, out = x / sqrt(mean(x^2) + eps) * w, computed by the kernel that uses it. */
struct norm_row_job {
    const float *x, *w; /* w NULL: ones */
    float *out;
    float eps, scale; /* scale: 1 / n */
    act8 a8;          /* of out */
};

/* Rows act(gate) * up, computed by the kernel that uses them. */
struct glu_job {
    const float *up, *gate; /* [n_tok, n]; up NULL: none; gate NULL: act(up) */
    int32_t act, unused;
};
__device__ __forceinline__ float4 glu_quad(const glu_job &g, int64_t quad) {
    float4 u = ((const float4 *)g.up)[quad];
    if (!g.gate)
        return make_float4(act_of(g.act, u.x), act_of(g.act, u.y), act_of(g.act, u.z),
                           act_of(g.act, u.w));
    float4 v = ((const float4 *)g.gate)[quad];
    return make_float4(glu_of(g.act, v.x, u.x), glu_of(g.act, v.y, u.y), glu_of(g.act, v.z, u.z),
                       glu_of(g.act, v.w, u.w));
}

/* A unit of activations in registers. */
struct act_unit {
    uint4 lo, hi;
    float scale;   /* scale of the unit's bytes */
    uint32_t sums; /* sum of its first 16 bytes and sum of its last 16: two int16 */
};
__device__ __forceinline__ act_unit act8_load(const act8 &a, uint32_t unit) {
    act_unit v;
    const uint4 *q = (const uint4 *)(a.q + (size_t)unit * 32);
    v.lo = q[0];
    v.hi = q[1];
    uint2 meta = a.meta[unit];
    v.scale = __int_as_float((int)meta.x);
    v.sums = meta.y;
    return v;
}

/* Adds the product of a unit of weights and a unit of activations to sum. */
template <int F>
__device__ __forceinline__ float unit_dot8(const unpacked &w, const act_unit &a, float sum) {
    using T = form_traits<F>;
    int s = 0, s1 = 0;
    s = dot4((int)w.q[0], (int)a.lo.x, s), s = dot4((int)w.q[1], (int)a.lo.y, s);
    s = dot4((int)w.q[2], (int)a.lo.z, s), s = dot4((int)w.q[3], (int)a.lo.w, s);
    if constexpr (!T::has_halves) s1 = s;
    s1 = dot4((int)w.q[4], (int)a.hi.x, s1), s1 = dot4((int)w.q[5], (int)a.hi.y, s1);
    s1 = dot4((int)w.q[6], (int)a.hi.z, s1), s1 = dot4((int)w.q[7], (int)a.hi.w, s1);
    constexpr float mid = (float)T::mid;
    float low = 0, high = 0, both = 0, y; /* sums of activations: of each half, of the unit */
    if constexpr (T::has_halves)
        low = (float)(int16_t)a.sums, high = (float)(int16_t)(a.sums >> 16);
    else both = (float)pair_sum(a.sums);
    if constexpr (T::has_halves) {
        float f = (float)s, f1 = (float)s1;
        if constexpr (T::mid != 0) f -= mid * low, f1 -= mid * high;
        y = w.scale[0] * f + w.scale[1] * f1;
    } else {
        float f = (float)s1;
        if constexpr (T::mid != 0) f -= mid * both;
        y = w.scale[0] * f;
    }
    if constexpr (F == FORM_N2K) y -= w.offset[0] * low + w.offset[1] * high;
    else if constexpr (T::has_offset) y -= w.offset[0] * both;
    return sum + y * a.scale;
}

/* The same for a unit as loaded. Stacked quants need little unpacking: words 4 to 7 are multiplied with their upper
 * bits in place, as unsigned bytes, and the sum of words 0 to 3 is scaled to match. The accumulator starts with the
 * bits of 1.5 * 2^23, so its final bits are a float. All sums are integers below 2^22, so this is exact. */
template <int F>
__device__ __forceinline__ float raw_dot8(const raw<F> &c, const act_unit &a, const grid_tables &g,
                                          float sum) {
    unpacked w; /* of stacked quants only the scales */
    unpack<F, true>(c, g, w);
    if constexpr (stacked_bits(F) == 0 || is_cubic(F)) {
        return unit_dot8<F>(w, a, sum);
    } else {
        using T = form_traits<F>;
        constexpr int START = 0x4b400000, UP = 1 << (8 - stacked_bits(F));
        constexpr float EACH = (F == FORM_O4 ? 2.0f : 1.0f) / UP, MID = (float)T::mid;
        const uint32_t lo[4] = {a.lo.x, a.lo.y, a.lo.z, a.lo.w};
        const uint32_t hi[4] = {a.hi.x, a.hi.y, a.hi.z, a.hi.w};
        int s = 0, s1 = START;
#pragma unroll
        for (int i = 0; i < 4; i++) s = dot4((int)stacked_low<F>(c, i), (int)lo[i], s);
        if constexpr (!T::has_halves) s1 += UP * s;
#pragma unroll
        for (int i = 0; i < 4; i++) s1 = dot4_unsigned(stacked_high<F>(c, i), (int)hi[i], s1);
        /* sums of the activations that s1 covers: of the second half, or all */
        float x1 = T::has_halves ? (float)(int16_t)(a.sums >> 16) : (float)pair_sum(a.sums);
        float y = w.scale[1] * (__int_as_float(s1) * EACH - (MID * x1 + 12582912.0f * EACH));
        if constexpr (T::has_halves) y += w.scale[0] * ((float)s - MID * (float)(int16_t)a.sums);
        if constexpr (T::has_offset) y -= w.offset[1] * x1;
        return sum + y * a.scale;
    }
}

/* Sums v[k], k < V, over the lanes of a group. In each step a lane keeps half of its values and passes the
 * other half to another lane, until one is left. Lane l of a group then has value l * V / group. The order
 * of additions is the same for any V. */
template <int V> __device__ __forceinline__ float lanes_share(float *v, int lane, int group) {
    if constexpr (V == 1) {
        return lanes_sum(v[0], group);
    } else {
        int step = group / 2;
        bool upper = (lane & step) != 0;
#pragma unroll
        for (int k = 0; k < V / 2; k++) {
            float keep = upper ? v[k + V / 2] : v[k], give = upper ? v[k] : v[k + V / 2];
            v[k] = keep + __shfl_xor_sync(0xffffffffu, give, step);
        }
        return lanes_share<V / 2>(v, lane, step);
    }
}

/* Sums of a lane's units over all steps: R rows together, for NT tokens. Two steps of weights are in flight;
 * stream8_begin loads the first two, before pdl_wait. Members of `rows`:
 *   has(step)                 whether this lane has a unit
 *   load(code, task, step, r) loads its unit of row r
 *   done(task)                called by all threads after the block's sums of a task were passed to the sink
 * act(task, step, t): the activations of a step. sink(task, k, y): y is the sum of k = r * NT + t; called by the lane
 * that has it. */
template <int F, int R, class Rows>
__device__ __forceinline__ void stream8_fetch(raw<F> *c, const Rows &rows, int task, int step) {
    if (!rows.has(step)) return;
#pragma unroll
    for (int r = 0; r < R; r++) rows.load(c[r], task, step, r);
}
template <int F, int R, class Rows>
__device__ __forceinline__ void stream8_begin(raw<F> code[2][R], const Rows &rows) {
    stream8_fetch<F, R>(code[0], rows, 0, 0);
    stream8_fetch<F, R>(code[1], rows, 0, 1);
}
template <int F, int R, int NT, class Rows, class Act, class Sink>
__device__ __forceinline__ void stream8_run(raw<F> code[2][R], const Rows &rows, int n_task,
                                            int n_step, int group, const grid_tables &g, int n_tok,
                                            Act act, Sink sink) {
    constexpr int V = R * NT;
    int lane = (int)threadIdx.x % group, each = group / V;
#pragma unroll 1
    for (int task = 0; task < n_task; task++) {
        float sum[V];
#pragma unroll
        for (int k = 0; k < V; k++) sum[k] = 0.0f;
        auto use = [&](const raw<F> *c, int step) {
            if (!rows.has(step)) return;
            unpacked w[R];
#pragma unroll
            for (int r = 0; r < R; r++) unpack<F, true>(c[r], g, w[r]);
#pragma unroll
            for (int t = 0; t < NT; t++) {
                if (t >= n_tok) break;
                act_unit a = act(task, step, t);
#pragma unroll
                for (int r = 0; r < R; r++)
                    sum[r * NT + t] = unit_dot8<F>(w[r], a, sum[r * NT + t]);
            }
        };
#pragma unroll 1
        for (int step = 0; step < n_step; step += 2) {
            bool last = step + 2 >= n_step;
            int next_task = last ? task + 1 : task, next = last ? 0 : step + 2;
            use(code[0], step);
            if (next_task < n_task) stream8_fetch<F, R>(code[0], rows, next_task, next);
            use(code[1], step + 1);
            if (next_task < n_task) stream8_fetch<F, R>(code[1], rows, next_task, next + 1);
        }
        float y = lanes_share<V>(sum, lane, group);
        if ((lane & (each - 1)) == 0) sink(task, lane / each, y);
        rows.done(task);
    }
}

/* Lanes that share a row: at least sixteen, the number of sums that lanes_share distributes. */
static __host__ __device__ inline int lanes_of(const planes &w) { return w.n_unit > 16 ? 32 : 16; }

/* Copies the grid points to shared memory: there, lookups of 32 lanes go to 32 banks; in global memory, to one cache
 * line after another. Every thread of the block must call it before the table is read. g must be a kernel parameter
 * passed by value: nvcc 13.0 drops writes to a copy of a parameter declared __grid_constant__. */
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

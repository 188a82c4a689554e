/* gemv.cu: matrix times one or a few rows. Roofline at decode: the bytes of the weights. A lane has up to 4 units in
 * flight before it waits for the preceding kernel, and a launch has as many blocks as the chip runs at once. A single
 * token has kernels of its own, so its result may differ in the last bits from the result of the same token in a batch.
 * Within a batch, the result does not depend on the number of tokens. Several tokens of common forms: gemv_batch.cu.
 * Prefill: gemm.cu. */
#include "kernels/cuda/gemm.cuh"
#include "kernels/cuda/vectors.cuh"

enum { INPUT_SHARED = 8192, NUMBER_UNITS = 8 /* 16-byte loads in flight per lane */ };
/* One token. ONE_ROWS: rows per group of lanes. ONE_WIDE, ONE_WIDEST: minimum and maximum number of warps per row of
 * an unquantized matrix. BIG_*: threads of the only block of a multiprocessor, if each block normalizes its input:
 * usually fewer than one_bound allows, so that a block of the preceding kernel still fits. */
enum { ONE_ROWS = 4, ONE_WIDE = 2, ONE_WIDEST = 4 };
enum { BIG_THREADS = 512, BIGGEST_THREADS = 768 };
/* more: code for sm_100 and newer takes more registers. */
static __host__ __device__ constexpr int one_bound(int form, bool more) {
    return raw_words(form) > 8 || more ? 2 * VEC_THREADS : 3 * VEC_THREADS;
}
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 1000
#define ONE_MORE true
#else
#define ONE_MORE false
#endif

/* Precise mode: f32 activations, weights of any form. */
__global__ void __launch_bounds__(VEC_THREADS) vector_kernel(linear_job j, grid_tables tables) {
    DYNAMIC_SHARED(uint8_t, room);
    const out_job &o = own_out(j);
    int group = o.group, lane = (int)threadIdx.x % group;
    int64_t rows_block = (VEC_THREADS / group) * VEC_ROWS;
    int64_t first = ((int64_t)blockIdx.x - o.first_block) * rows_block +
                    (int64_t)(threadIdx.x / (unsigned)group) * VEC_ROWS;
    int32_t t0 = (int32_t)blockIdx.y * j.step;
    int32_t n_tok = j.n_tok - t0 < j.step ? j.n_tok - t0 : j.step;
    float out[VEC_ROWS][VEC_TOKS];
    pdl_trigger();
    pdl_wait();
    const float *a = act_load(room, j.x + t0 * j.x_stride, j.x_stride, n_tok, o.w.n_in);
    any_rows<VEC_TOKS>(o.w, 0, first, lane, group, tables, a, n_tok, out);
    if (lane) return;
    for (int r = 0; r < VEC_ROWS && first + r < o.w.n_row; r++)
#pragma unroll
        for (int t = 0; t < VEC_TOKS; t++)
            if (t < n_tok) put(j, o, first + r, t0 + t, out[r][t]);
}

/* ---- rows of 8-bit activations ---- */

/* Rows that a group of lanes processes together. */
enum { ROWS8 = 2 };

/* A block's part of matrix o, with rows of form F; shared by several kinds of blocks. If there are few rows, n_part
 * warps share them, each with a part of the steps. */
template <int F> struct vector8 {
    static constexpr int R = ROWS8, NT = VEC8_TOKS;
    const linear_job &j;
    const out_job &o;
    int group, lane, mine, n_group, n_row, n_unit, n_task, from, n_step; /* from: first unit */
    raw<F> code[2][R];

    __device__ __forceinline__ vector8(const linear_job &j_, const out_job &o_) : j(j_), o(o_) {
        int groups = o.group == 32 ? 1 : 2, warp = (int)threadIdx.x / 32, part = 0;
        int per_block = (int)(blockDim.x / 32) * groups;
        group = o.group, lane = (int)threadIdx.x & (group - 1);
        n_row = (int)o.w.n_row, n_unit = o.w.n_unit;
        n_step = o.n_step;
        if (o.n_part > 1) { /* 2 or 4 */
            int shift = o.n_part / 2;
            part = warp & (o.n_part - 1), warp >>= shift, per_block >>= shift;
        }
        from = part * n_step * 32;
        n_group = o.n_block * per_block;
        int lead = ((int)blockIdx.x - o.first_block) * per_block + warp * groups;
        mine = lead + (groups == 2 ? (int)threadIdx.x / 16 % 2 : 0);
        /* as many tasks as the warp's first group has: the lanes of a warp must not diverge */
        n_task = 0;
#pragma unroll 1
        for (int i = lead; i < (n_row + R - 1) / R; i += n_group) n_task++;
    }
    __device__ __forceinline__ int unit(int step) const { return from + step * group + lane; }
    __device__ __forceinline__ bool has(int step) const {
        return step < n_step && unit(step) < n_unit;
    }
    __device__ __forceinline__ void load(raw<F> &c, int task, int step, int r) const {
        int row = R * (mine + task * n_group) + r;
        load_unit<F>(c, o.w,
                     (uint32_t)(row < n_row ? row : n_row - 1) * (uint32_t)n_unit +
                         (uint32_t)unit(step));
    }
    __device__ __forceinline__ void done(int) const {}
    __device__ __forceinline__ void begin(void) {
        if (n_task) stream8_begin<F, R>(code, *this);
    }
    /* sums: [warps][R * NT], shared by the block */
    __device__ __forceinline__ void run(const grid_tables &g, const input &in, int32_t t0,
                                        int32_t n_tok, float (*sums)[MAX_SUMS]) {
        auto act = [&](int, int step, int t) {
            return act8_load(in.a, (uint32_t)(t * n_unit + unit(step)));
        };
        auto result = [&](int task, int k, float y) {
            int row = R * (mine + task * n_group) + k / NT, t = k % NT;
            if (row < n_row && t < n_tok) put(j, o, row, t0 + t, y);
        };
        auto sink = [&](int task, int k, float y) {
            if (o.n_part == 1) result(task, k, y);
            else sums[threadIdx.x / 32][k] = y;
        };
        stream8_run<F, R, NT>(code, *this, n_task, n_step, group, g, n_tok, act, sink);
        if (o.n_part == 1) return; /* the same in all warps of the block */
        __syncthreads();
        int warp = (int)threadIdx.x / 32;
        if (warp & (o.n_part - 1) || lane >= R * NT || !n_task) return;
        result(0, lane, sum_of_parts(sums + warp, lane, o.n_part));
    }
};

/* Several tokens, with matrices of form F, unquantized ones and Q8_0: the cases for which gemv_batch.cu has no kernel
 * or not enough memory. Shared memory: grid points. */
template <int F>
__global__ void __launch_bounds__(VEC_THREADS, 2)
    vector8_kernel(const __grid_constant__ linear_job j, grid_tables tables) {
    DYNAMIC_SHARED(uint32_t, points);
    __shared__ float sums[VEC_THREADS / 32][MAX_SUMS]; /* per warp */
    const out_job &o = own_out(j);
    int32_t t0 = (int32_t)blockIdx.y * j.step;
    int32_t n_tok = j.n_tok - t0 < j.step ? j.n_tok - t0 : j.step;
    int64_t n_in = o.w.n_in;
    bool is_main = o.w.form == F;
    bool is_bytes = F != FORM_I8 && o.w.form == FORM_I8;
    pdl_trigger();
    vector8<F> rows(j, o);
    float4 numbers[NUMBER_UNITS];
    if (is_main) rows.begin();
    else if (!is_bytes) number_rows<NUMBER_UNITS>(j, o, (int)blockIdx.x).begin(numbers);
    if (grid_words(F) && is_main) grid_load(tables, F, points);
    pdl_wait();
    input in = {
        {j.x8.q + t0 * n_in, j.x8.meta + t0 * (n_in / 32)}, j.x + t0 * j.x_stride, j.x_stride};
    if (is_main) rows.run(tables, in, t0, n_tok, sums);
    else if (is_bytes) {
        vector8<FORM_I8> bytes(j, o);
        bytes.begin();
        bytes.run(tables, in, t0, n_tok, sums);
    } else number_rows<NUMBER_UNITS>(j, o, (int)blockIdx.x).run(numbers, in, t0, n_tok, sums);
}

/* ---- one token ---- */

/* A group of lanes processes four rows together. The registers hold one step of all four and are first loaded before
 * pdl_wait. If there are few rows, n_part warps share them, each with a part of the steps. */
struct one_rows {
    const out_job &o;
    int group, lane, mine, n_group, n_row, end_row; /* n_group: groups per block */
    int n_task, n_step, left;                       /* left: units from the lane's first one on */
    uint32_t from, n_unit;                          /* from: the lane's first unit */

    __device__ __forceinline__ explicit one_rows(const out_job &o_) : o(o_) {}
    __device__ __forceinline__ void begin(void) {
        int both = o.group == 32 ? 0 : 1, warp = (int)(threadIdx.x / 32u), shift = o.n_part / 2;
        int per_block = (int)(blockDim.x / 32u) << both >> shift, part = warp & (o.n_part - 1);
        group = o.group, lane = (int)threadIdx.x & (group - 1);
        n_row = (int)o.w.n_row, n_unit = (uint32_t)o.w.n_unit, n_step = o.n_step;
        int first = part * n_step * group, end = first + n_step * group;
        from = (uint32_t)(first + lane);
        left = (end < (int)n_unit ? end : (int)n_unit) - (int)from;
        n_group = per_block;
        /* the rows of a block are adjacent: few TLB entries */
        int block = (int)blockIdx.x - o.first_block, lead = warp >> shift << both;
        int begin = block * o.n_each + min(block, o.n_more);
        int count = o.n_each + (block < o.n_more ? 1 : 0);
        end_row = min(ONE_ROWS * (begin + count), n_row);
        mine = begin + lead + (both ? (int)(threadIdx.x / 16u) & 1 : 0);
        /* as many tasks as the warp's first group has: the lanes of a warp must not diverge */
        n_task = 0;
#pragma unroll 1
        for (int i = lead; i < count; i += n_group) n_task++;
    }
    /* Loads the lane's units of a task's rows. */
    template <int F>
    __device__ __forceinline__ void fetch(uint32_t *ahead, int task, int step) const {
        if (step * group >= left) return;
        uint32_t unit = from + (uint32_t)(step * group);
#pragma unroll
        for (int r = 0; r < ONE_ROWS; r++) {
            uint32_t row = (uint32_t)min(ONE_ROWS * (mine + task * n_group) + r, n_row - 1);
            raw<F> code;
            load_unit<F>(code, o.w, row * n_unit + unit);
            raw_put<F>(ahead + r * raw_words(F), code);
        }
    }
    /* Instead of the first fetch: prefetches the lane's quants into the L2 cache. */
    template <int F> __device__ __forceinline__ void near(void) const {
        int row = ONE_ROWS * mine;
        for (int r = 0; r < ONE_ROWS && left > 0; r++)
            prefetch_tlb(o.w.codes + (size_t)((uint32_t)min(row + r, n_row - 1) * n_unit + from) *
                                         sizes_of(F).codes);
    }
    /* sink(task, r, y): y is the sum of row r of a task; called by one lane per row */
    template <int F, class Sink>
    __device__ __forceinline__ void run(uint32_t *ahead, const grid_tables &g, const act8 &in,
                                        Sink sink) const {
        int each = group == 32 ? 3 : 2; /* 2^each lanes hold the sum of a row */
#pragma unroll 1
        for (int task = 0; task < n_task; task++) {
            float sum[ONE_ROWS] = {0};
#pragma unroll 1
            for (int step = 0; step < n_step; step++) {
                if (step * group < left) {
                    act_unit a = act8_load(in, from + (uint32_t)(step * group));
#pragma unroll
                    for (int r = 0; r < ONE_ROWS; r++) {
                        raw<F> code = raw_get<F>(ahead + r * raw_words(F));
                        sum[r] = raw_dot8<F>(code, a, g, sum[r]);
                    }
                }
                if (step + 1 < n_step) fetch<F>(ahead, task, step + 1);
                else if (task + 1 < n_task) fetch<F>(ahead, task + 1, 0);
            }
            float y = group == 32 ? lanes_share<ONE_ROWS>(sum, lane, 32)
                                  : lanes_share<ONE_ROWS>(sum, lane, 16);
            if ((lane & ((1 << each) - 1)) == 0) sink(task, lane >> each, y);
        }
    }
    __device__ __forceinline__ int row(int task, int r) const {
        return ONE_ROWS * (mine + task * n_group) + r;
    }
};

/* A row of an unquantized matrix with E bytes per element, by n_part warps: so many that a lane can prefetch its
 * whole part, eight loads of four elements. */
struct one_number {
    const out_job &o;
    int lanes, lane, n_quad, own; /* own: the row */

    __device__ __forceinline__ one_number(const out_job &o_, bool is_aligned) : o(o_) {
        int shift = 5 + o.n_part / 2; /* n_part is 2 or 4 */
        lanes = 1 << shift, lane = (int)threadIdx.x & (lanes - 1);
        own = ((int)blockIdx.x - o.first_block) * (int)(blockDim.x >> shift) +
              (int)(threadIdx.x >> shift);
        n_quad = (int)o.w.n_in % 4 || !is_aligned ? 0 : (int)o.w.n_in / 4;
    }
    __device__ __forceinline__ uint32_t row(void) const {
        return (uint32_t)min(own, (int)o.w.n_row - 1);
    }
    template <int E> __device__ __forceinline__ void fetch(uint32_t *w, int q) const {
        uint32_t at = row() * (uint32_t)n_quad + (uint32_t)q;
        load_field<4 * E, true>(w, o.w.codes + (size_t)at * (4 * E));
    }
    template <int E> __device__ __forceinline__ float4 value(const uint32_t *w) const {
        if constexpr (E == 4)
            return make_float4(__int_as_float((int)w[0]), __int_as_float((int)w[1]),
                               __int_as_float((int)w[2]), __int_as_float((int)w[3]));
        return four_halves(o.w.form, w[0], w[1]);
    }
    template <int E> __device__ __forceinline__ void begin(uint32_t *ahead) const {
#pragma unroll
        for (int i = 0; i < NUMBER_UNITS; i++)
            if (lane + i * lanes < n_quad) fetch<E>(ahead + i * E, lane + i * lanes);
    }
    /* The row's sum, in all lanes. room: shared memory, one element per warp. */
    template <int E>
    __device__ __forceinline__ float run(uint32_t *ahead, const float *x,
                                         float (*room)[MAX_SUMS]) const {
        float sum = 0;
#pragma unroll 1
        for (int q = lane; q < n_quad;) {
#pragma unroll
            for (int i = 0; i < NUMBER_UNITS; i++, q += lanes) {
                int next = q + NUMBER_UNITS * lanes;
                if (q >= n_quad) break;
                float4 v = value<E>(ahead + i * E), u = ((const float4 *)x)[q];
                if (next < n_quad) fetch<E>(ahead + i * E, next);
                sum += v.x * u.x + v.y * u.y + (v.z * u.z + v.w * u.w);
            }
        }
        if (!n_quad)
#pragma unroll 1
            for (int i = lane; i < o.w.n_in; i += lanes)
                sum += number_at(o.w, (int64_t)row() * o.w.n_in + i) * x[i];
        sum = lanes_sum(sum, 32);
        int warp = (int)(threadIdx.x / 32u), first = warp & -o.n_part;
        if (threadIdx.x % 32 == 0) room[warp][0] = sum;
        __syncthreads();
        return sum_of_parts(room + first, 0, o.n_part);
    }
};

/* Computes a block's normalized input: y = x w in 8 bits (a) and as floats (y). Returns the factor by which y must
 * still be multiplied. room: one float per 128 of n. Ends with a barrier. */
enum { NORM_KEPT = 2 };
__device__ __forceinline__ float norm_input(const norm_row_job &job, const act8 &a, float *y, int n,
                                            float *room) {
    int quads = n / 4, chunks = (n + 511) / 512 * 4; /* partial sums, a multiple of four */
    float4 x[NORM_KEPT];                             /* loads in flight; weights are in L1 */
    auto weights = [&](int q) {
        return job.w && q < quads ? __ldg((const float4 *)job.w + q) : make_float4(1, 1, 1, 1);
    };
    auto values = [&](int q) {
        return q < quads ? ((const float4 *)job.x)[q] : make_float4(0, 0, 0, 0);
    };
#pragma unroll
    for (int k = 0; k < NORM_KEPT; k++) {
        int q = (int)(threadIdx.x + k * blockDim.x);
        x[k] = values(q);
    }
    auto make = [&](int q, float4 v, float4 g) {
        float sum = lanes_sum(v.x * v.x + v.y * v.y + (v.z * v.z + v.w * v.w), 32);
        if (threadIdx.x % 32 == 0) room[q / 32] = sum;
        v = make_float4(v.x * g.x, v.y * g.y, v.z * g.z, v.w * g.w);
        if (q < quads) ((float4 *)y)[q] = v;
        act8_put4(a, q, v, q < quads);
    };
    int q = (int)threadIdx.x;
#pragma unroll
    for (int k = 0; k < NORM_KEPT; k++, q += (int)blockDim.x)
        if (q / 32 < chunks) make(q, x[k], weights(q));
#pragma unroll 1
    for (; q / 32 < chunks; q += (int)blockDim.x) make(q, values(q), weights(q));
    __syncthreads();
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 2
    for (int i = 0; i < chunks; i += 4) {
        float4 more = *(const float4 *)(room + i);
        sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
    }
    return rsqrtf((sum.x + sum.y + (sum.z + sum.w)) * job.scale + job.eps);
}
/* The blocks store the normalized row, for later kernels. */
__device__ __forceinline__ void norm_output(const norm_row_job &job, const act8 &a, const float *y,
                                            int n, float f) {
#pragma unroll 1
    for (int k = (int)(blockIdx.x + threadIdx.x * gridDim.x); 4 * k < n;
         k += (int)(blockDim.x * gridDim.x)) {
        float4 v = ((const float4 *)y)[k];
        ((float4 *)job.out)[k] = make_float4(v.x * f, v.y * f, v.z * f, v.w * f);
        ((uint32_t *)job.a8.q)[k] = ((const uint32_t *)a.q)[k];
        if (k % 8) continue;
        uint2 meta = a.meta[k / 8];
        meta.x = (uint32_t)__float_as_int(__int_as_float((int)meta.x) * f);
        ((uint2 *)job.a8.meta)[k / 8] = meta;
    }
}

/* One token, with matrices of form F, unquantized ones and Q8_0 (alpha and beta of a delta net, with its projections).
 * NORMED: every block first normalizes the token. Shared memory: grid points, then the normalized row. */
template <int F, bool NORMED>
__global__ void __launch_bounds__(one_bound(F, ONE_MORE), 1)
    one_kernel(const __grid_constant__ linear_job j, grid_tables tables) {
    DYNAMIC_SHARED(uint32_t, points);
    __shared__ float sums[BIGGEST_THREADS / 32][MAX_SUMS];                /* per warp */
    __shared__ __align__(16) float room[NORMED ? INPUT_SHARED / 128 : 4]; /* for norm_input */
    const out_job &o = own_out(j);
    int n_in = (int)o.w.n_in;
    /* what the rows of a block may be */
    enum { MAIN, BYTES, FLOATS, HALVES } kind = FLOATS;
    if (o.w.form == F) kind = MAIN;
    else if (o.w.form == FORM_I8) kind = BYTES;
    else if (o.w.form != FORM_F32) kind = HALVES;
    bool is_aligned = NORMED || (uintptr_t)j.x % 16 == 0;
    pdl_trigger();
    enum { EACH = raw_words(F) > 8 ? raw_words(F) : 8 };
    uint32_t ahead[ONE_ROWS * EACH]; /* weights loaded before pdl_wait */
    one_rows rows(o);
    if (kind == FLOATS) one_number(o, is_aligned).begin<4>(ahead);
    else if (kind == HALVES) one_number(o, is_aligned).begin<2>(ahead);
    else {
        rows.begin();
        if (rows.n_task && kind == MAIN) rows.fetch<F>(ahead, 0, 0);
        else if (rows.n_task) rows.near<FORM_I8>();
    }
    if (grid_words(F) && kind == MAIN) grid_load(tables, F, points);
    if (threadIdx.x % 32 == 0) {
        prefetch_tlb(NORMED ? j.norm.x : (const void *)j.x8.q);
        prefetch_tlb(o.dst);
    }
    if (NORMED && j.norm.w)
        for (int q = (int)threadIdx.x; 4 * q < n_in; q += (int)blockDim.x)
            if (q % 8 == 0) prefetch_l1(j.norm.w + 4 * q);
    pdl_wait();
    act8 in = j.x8;
    const float *x = j.x;
    float norm = 1.0f;
    if (NORMED) {
        uint8_t *own = (uint8_t *)(points + grid_words(F));
        in = act8_at(own, 1, n_in);
        x = (const float *)(own + act8_bytes(1, n_in));
        norm = norm_input(j.norm, in, (float *)own + act8_bytes(1, n_in) / 4, n_in, room);
        norm_output(j.norm, in, x, n_in, norm);
    }
    auto result = [&](int task, int r, float y) {
        int row = rows.row(task, r);
        if (row < rows.end_row) put(j, o, row, 0, y, norm);
    };
    int warp = (int)(threadIdx.x / 32u), at = (int)threadIdx.x % 32;
    auto sink = [&](int task, int r, float y) {
        if (o.n_part == 1) result(task, r, y);
        else sums[warp][r] = y;
    };
    if (kind == FLOATS || kind == HALVES) {
        one_number numbers(o, is_aligned);
        float y = kind == FLOATS ? numbers.run<4>(ahead, x, sums) : numbers.run<2>(ahead, x, sums);
        if (numbers.lane == 0 && numbers.own < o.w.n_row) put(j, o, numbers.own, 0, y, norm);
        return;
    }
    if (kind == MAIN) rows.run<F>(ahead, tables, in, sink);
    else {
        uint32_t bytes[ONE_ROWS * raw_words(FORM_I8)];
        if (rows.n_task) rows.fetch<FORM_I8>(bytes, 0, 0);
        rows.run<FORM_I8>(bytes, tables, in, sink);
    }
    if (o.n_part == 1) return;
    __syncthreads(); /* the same in all warps of the block, which have at most one task */
    if (warp & (o.n_part - 1) || at >= ONE_ROWS || !rows.n_task) return;
    result(0, at, sum_of_parts(sums + warp, at, o.n_part));
}

__device__ __forceinline__ act8 act8_at_row(const act8 &a, int64_t row, int64_t n) {
    return act8{a.q + row * n, a.meta + row * (n / 32)};
}

__global__ void act8_kernel(const float *x, i64 stride, int32_t n, act8 out) {
    pdl_trigger();
    pdl_wait();
    x += blockIdx.x * stride;
    bool aligned = (uintptr_t)x % 16 == 0;
    act8_row(act8_at_row(out, blockIdx.x, n), n, [&](int q) {
        if (aligned) return ((const float4 *)x)[q];
        return make_float4(x[4 * q], x[4 * q + 1], x[4 * q + 2], x[4 * q + 3]);
    });
}

act8 cuda_act8(struct cuda *c, const float *x, int64_t stride, int32_t n_row, int64_t n) {
    const act8 *made = cuda_shadow_of(c, x, stride, n_row, n);
    if (made) return *made;
    act8 a = act8_at(cuda_take(c, act8_bytes(n_row, n)), n_row, n);
    if (a.q)
        launch(c, act8_kernel, dim3((unsigned)n_row), dim3(n > 1024 ? 512 : 128), 0, x, stride,
               (int32_t)n, a);
    return a;
}

size_t cuda_linear_scratch(const struct dev_need *n) {
    return (size_t)n->n_tok * ((size_t)halves_of(n->n_in) * 2 + 4) +
           act8_bytes(BATCH_TOKS, n->n_in + 32) + (n->n_tok > STEP_TOKS ? SPLIT_BYTES : 0) + 2048;
}

static out_job job_of(const struct linear_out *o) {
    out_job j = {cuda_repack_of(o->w),
                 o->bias,
                 o->dst,
                 o->dst_stride,
                 o->scale,
                 o->add,
                 0,
                 0,
                 0,
                 0,
                 0,
                 0,
                 0};
    return j;
}

static void vectors_precise(struct cuda *c, linear_job &j) {
    int32_t blocks = 0;
    for (int32_t i = 0; i < j.n_o; i++) {
        j.o[i].group = float_lanes_of(j.o[i].w);
        j.o[i].first_block = blocks;
        int64_t rows = (int64_t)(VEC_THREADS / j.o[i].group) * VEC_ROWS;
        blocks += (int32_t)((j.o[i].w.n_row + rows - 1) / rows);
    }
    int64_t n_in = j.o[0].w.n_in;
    j.step = act_room_bytes(n_in, VEC_TOKS) <= 48 << 10 ? VEC_TOKS : 1;
    dim3 grid((unsigned)blocks, (unsigned)((j.n_tok + j.step - 1) / j.step));
    launch(c, vector_kernel, grid, dim3(VEC_THREADS), act_room_bytes(n_in, j.step), j, c->tables);
}

/* Four elements of a row of an unquantized matrix; zeros beyond its end. */
__device__ __forceinline__ float4 four_numbers(const planes &w, int64_t row, int k) {
    int64_t at = row * w.n_in + k;
    if (w.form == FORM_F32 && k + 3 < w.n_in && at % 4 == 0)
        return *(const float4 *)((const float *)w.codes + at);
    float v[4];
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = k + i < w.n_in ? number_at(w, at + i) : 0.0f;
    return make_float4(v[0], v[1], v[2], v[3]);
}

/* Unquantized weights times floats, many tokens (routers): tiles of 64 rows and 32 tokens. Every number is split into a
 * sum of two bfloat16, three products for one; the error is 2^-16 of a term. A warp computes 16 rows and 16 tokens. */
enum { FLOAT_ROWS = 64, FLOAT_COLS = 32, FLOAT_K = 32, FLOAT_STRIDE = FLOAT_K + 8 };
__global__ void __launch_bounds__(256) float_tile_kernel(linear_job j, tile_split split) {
    constexpr int ALL = FLOAT_ROWS + FLOAT_COLS, QUADS = FLOAT_K / 4, EACH = ALL * QUADS / 256;
    __shared__ __align__(16) uint16_t room[2][2][ALL][FLOAT_STRIDE]; /* stage; high, low */
    const out_job &o = j.o[0];
    int tid = (int)threadIdx.x, lane = tid % 32, m = tid / 32 % 4 * 16, n = tid / 128 * 16;
    int64_t row0 = (int64_t)blockIdx.x * FLOAT_ROWS;
    int32_t t0 = (int32_t)blockIdx.y * FLOAT_COLS;
    int first = (int)blockIdx.z * split.each * TILE_GROUP;
    int end = split.sums ? min(first + split.each * TILE_GROUP, (int)o.w.n_in) : (int)o.w.n_in;
    pdl_trigger();
    pdl_wait();
    float4 next[2][EACH];    /* of two rounds; one would not hide the latency */
    float acc[3][2][4] = {}; /* independent accumulators */
    auto fetch = [&](int k0, float4(&to)[EACH]) {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            int r = (tid + 256 * i) / QUADS, k = k0 + tid % QUADS * 4;
            int64_t row = row0 + r, t = t0 + r - FLOAT_ROWS;
            to[i] = make_float4(0, 0, 0, 0);
            if (r < FLOAT_ROWS && row < o.w.n_row) to[i] = four_numbers(o.w, row, k);
            if (r >= FLOAT_ROWS && t < j.n_tok)
                to[i] = four_at(j.x + t * j.x_stride, k, (int)o.w.n_in);
        }
    };
    auto round = [&](int k0, int at) {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            int r = (tid + 256 * i) / QUADS, k = tid % QUADS * 4;
            uint2 high, low;
            split_pair(next[at][i].x, next[at][i].y, high.x, low.x);
            split_pair(next[at][i].z, next[at][i].w, high.y, low.y);
            *(uint2 *)&room[at][0][r][k] = high;
            *(uint2 *)&room[at][1][r][k] = low;
        }
        __syncthreads();
        if (k0 + 2 * FLOAT_K < end) fetch(k0 + 2 * FLOAT_K, next[at]);
#pragma unroll
        for (int k = 0; k < FLOAT_K; k += 16) {
            uint32_t w[2][4], x[2][4];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                first_factor(w[i], &room[at][i][m][k], FLOAT_STRIDE);
                second_factor(x[i], &room[at][i][FLOAT_ROWS + n][k], FLOAT_STRIDE);
            }
#pragma unroll
            for (int i = 0; i < 2; i++) {
                mma_16816_bf16(acc[0][i], w[0], x[0] + 2 * i);
                mma_16816_bf16(acc[1][i], w[0], x[1] + 2 * i);
                mma_16816_bf16(acc[2][i], w[1], x[0] + 2 * i);
            }
        }
    };
    fetch(first, next[0]);
    if (first + FLOAT_K < end) fetch(first + FLOAT_K, next[1]);
    for (int k0 = first; k0 < end; k0 += 2 * FLOAT_K) {
        round(k0, 0);
        if (k0 + FLOAT_K < end) round(k0 + FLOAT_K, 1);
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        int64_t row = row0 + m + lane / 4 + i % 4 / 2 * 8;
        int32_t t = t0 + n + i / 4 * 8 + lane % 4 * 2 + i % 2;
        if (row >= o.w.n_row || t >= j.n_tok) continue;
        float y = acc[0][i / 4][i % 4] + (acc[1][i / 4][i % 4] + acc[2][i / 4][i % 4]);
        if (split.sums) split.sums[((int64_t)blockIdx.z * j.n_tok + t) * split.width + row] = y;
        else put(j, o, row, t, y);
    }
}

/* Warps that share the rows of w, so that every multiprocessor has enough warps; a warp takes `rows` rows at a time. */
static int32_t parts_of(const struct cuda *c, const planes &w, int64_t n_row, int64_t rows) {
    enum { MAX_PARTS = 4, UNITS = 128 }; /* minimum units per task */
    int32_t n = 1;
    while (n < MAX_PARTS && n_row / rows * n * 2 <= (int64_t)c->n_sm * (VEC_THREADS / 32) * 2 &&
           w.n_unit * rows > UNITS * n)
        n *= 2;
    return n;
}

/* Warps per row of an unquantized matrix, one token. */
static int32_t number_parts(const planes &w) {
    int64_t wide = ONE_WIDE;
    while (wide < ONE_WIDEST && w.n_in / 4 > 32 * NUMBER_UNITS * wide) wide *= 2;
    return (int32_t)wide;
}

/* Distributes the matrices of a launch over blocks of `threads` threads: tasks of `rows` rows, equally
 * many for each of the `resident` blocks that run at once. Returns the number of blocks, and the number
 * of rounds if there is one token. */
struct sharing {
    int32_t blocks, rounds;
};
static sharing share_blocks(const struct cuda *c, linear_job &j, int64_t rows, int64_t threads,
                            int64_t resident) {
    int64_t warps = threads / 32, n_row = 0, tasks = 0, rest = resident;
    for (int32_t i = 0; i < j.n_o; i++)
        if (!is_number_form(j.o[i].w.form)) n_row += j.o[i].w.n_row;
    bool shares[MAX_OUTS]; /* whether a block may have several tasks of the matrix */
    for (int32_t i = 0; i < j.n_o; i++) {
        out_job &k = j.o[i];
        bool is_number = is_number_form(k.w.form);
        k.group = lanes_of(k.w);
        if (!is_number) k.n_part = parts_of(c, k.w, n_row, rows);
        else k.n_part = j.n_tok > 1 ? (int32_t)FEW_WIDE : number_parts(k.w);
        int32_t steps = (k.w.n_unit + k.group - 1) / k.group;
        k.n_step = (steps + k.n_part - 1) / k.n_part;
        int64_t each = warps * (32 / k.group) / k.n_part * rows; /* rows per block and task */
        if (is_number) each = warps / k.n_part;
        k.n_block = (int32_t)((k.w.n_row + each - 1) / each);
        shares[i] = !is_number && k.n_part == 1 && k.n_block > 1;
        if (shares[i]) tasks += k.n_block;
        else rest -= k.n_block;
    }
    /* one token: all blocks take the same number of rounds; idle multiprocessors start the next kernel */
    int64_t rounds = rest > 0 ? (tasks + rest - 1) / rest : tasks;
    int32_t blocks = 0;
    for (int32_t i = 0; i < j.n_o; i++) {
        out_job &k = j.o[i];
        int64_t part = k.n_block;
        if (shares[i] && tasks > rest)
            part = j.n_tok == 1 ? (part + rounds - 1) / rounds : part * rest / tasks;
        k.n_block = part > 1 ? (int32_t)part : 1;
        int32_t of_all = (int32_t)((k.w.n_row + rows - 1) / rows);
        k.n_each = of_all / k.n_block, k.n_more = of_all % k.n_block;
        k.first_block = blocks;
        blocks += k.n_block;
    }
    return sharing{blocks, (int32_t)rounds};
}

/* Blocks that normalize their input, one per multiprocessor: number at once, and threads per block. Blocks
 * are as large as possible if they then need one round on seven eighths of the multiprocessors; on the
 * others the next kernel prefetches. */
struct big_blocks {
    int64_t resident, threads;
};
static big_blocks big_blocks_of(const struct cuda *c, linear_job j, int form, int64_t most) {
    enum { SPARED = 8, LIGHT_WORDS = 5 };
    big_blocks large = {c->n_sm - c->n_sm / SPARED, most};
    if (share_blocks(c, j, ONE_ROWS, most, large.resident).rounds == 1) return large;
    if (j.n_o == 1 && raw_words(form) <= LIGHT_WORDS) return big_blocks{c->n_sm, most};
    return big_blocks{c->n_sm, BIG_THREADS};
}

template <int F>
static void vectors_launch(struct cuda *c, const linear_job &j, dim3 grid, dim3 block,
                           size_t room) {
    auto kernel = j.n_tok > 1 ? vector8_kernel<F>
                  : j.norm.x  ? one_kernel<F, true>
                              : one_kernel<F, false>;
    launch(c, kernel, grid, block, room, j, c->tables);
}

/* One launch: matrices of one form, of Q8_0, and unquantized. x8.q NULL: not needed. */
static void vectors8(struct cuda *c, linear_job &j, int form) {
    for (int32_t i = 0; i < j.n_o; i++) cuda_reads_planes(c, j.o[i].w, 1);
    if (j.n_tok > 1 && cuda_few(c, j, form)) return;
    int64_t threads = VEC_THREADS, n_in = j.o[0].w.n_in, units = 0;
    for (int32_t i = 0; i < j.n_o; i++)
        units += is_number_form(j.o[i].w.form) ? 0 : j.o[i].w.n_row * j.o[i].w.n_unit;
    int64_t most = one_bound(form, c->compute >= 100);
    int64_t resident = c->n_sm * (j.n_tok > 1 ? 2 : most / threads);
    if (j.norm.x && units > c->n_sm * most * ONE_ROWS) {
        big_blocks big = big_blocks_of(c, j, form, most);
        threads = big.threads, resident = big.resident;
    }
    int64_t rows = j.n_tok > 1 ? (int)ROWS8 : (int)ONE_ROWS;
    int32_t blocks = share_blocks(c, j, rows, threads, resident).blocks;
    j.step = j.n_tok > 1 ? VEC8_TOKS : 1;
    dim3 grid((unsigned)blocks, (unsigned)((j.n_tok + j.step - 1) / j.step));
    size_t room = grid_bytes(c, form);
    if (j.norm.x) room += act8_bytes(1, n_in) + (size_t)n_in * 4;
    switch (form) {
#define X(F)                                                                                       \
    case F: vectors_launch<F>(c, j, grid, dim3((unsigned)threads), room); break;
        FOR_EACH_FORM(X)
#undef X
    }
}

/* Whether an output overlaps the row that is still to be normalized. */
static bool writes_norm(const struct cuda *c, const struct linear_out *o, int32_t n_o) {
    for (int32_t i = 0; i < n_o; i++)
        if (o[i].dst < c->norm.x + c->norm_n && c->norm.x < o[i].dst + o[i].w->n_out) return true;
    return false;
}

static void vectors(struct cuda *c, const struct linear_out *o, int32_t n_o, const float *x,
                    int64_t x_stride, int32_t n_tok, const float *factor, act8 x8) {
    bool done[MAX_OUTS] = {false};
    linear_job all = {};
    all.n_tok = n_tok;
    all.x = x;
    all.x_stride = x_stride;
    all.factor = factor;
    if (c->params.precise) {
        all.n_o = n_o;
        for (int32_t i = 0; i < n_o; i++) all.o[i] = job_of(&o[i]);
        vectors_precise(c, all);
        return;
    }
    /* the first launch normalizes a row whose norm is pending */
    if (c->norm.x && c->norm.out == x && n_tok == 1 && c->norm_n == o[0].w->n_in &&
        c->norm_n <= INPUT_SHARED && !writes_norm(c, o, n_o)) {
        all.norm = c->norm;
        c->norm.x = NULL;
    } else cuda_norm_now(c);
    for (int32_t left = n_o; left > 0 && !c->err.code;) {
        linear_job j = all;
        all.norm.x = NULL;
        int form = FORM_NONE;
        for (int32_t i = 0; i < n_o; i++) {
            out_job k = job_of(&o[i]);
            bool is_number = is_number_form(k.w.form);
            if (done[i]) continue;
            if (!is_number && k.w.form != FORM_I8) {
                if (form != FORM_NONE && form != FORM_I8 && k.w.form != form) continue;
                form = k.w.form;
            } else if (!is_number && form == FORM_NONE) form = FORM_I8;
            j.o[j.n_o++] = k;
            done[i] = true;
            left--;
        }
        if (form != FORM_NONE && !x8.q) x8 = cuda_act8(c, x, x_stride, n_tok, o[0].w->n_in);
        j.x8 = x8;
        if (!c->err.code) vectors8(c, j, form == FORM_NONE ? FORM_I8 : form);
    }
}

__global__ void glu8_kernel(glu_job g, i64 n, act8 out) {
    pdl_trigger();
    pdl_wait();
    act8_row(act8_at_row(out, blockIdx.x, n), (int)n,
             [&](int q) { return glu_quad(g, blockIdx.x * (n / 4) + q); });
}

void cuda_glu8(struct cuda *c, const glu_job &g, int32_t n_row, int64_t n, const act8 &out) {
    launch(c, glu8_kernel, dim3((unsigned)n_row), dim3(n > 1024 ? 512 : 128), 0, g, n, out);
}

void cuda_linear_glu(struct cuda *c, const struct linear_out *o, const glu_job &g, int32_t n_tok,
                     const float *factor) {
    int64_t n = o->w->n_in;
    cuda_norm_now(c);
    cuda_wrote(c, o->dst,
               ((size_t)(n_tok - 1) * (size_t)o->dst_stride + (size_t)o->w->n_out) * sizeof(float));
    act8 a = act8_at(cuda_take(c, act8_bytes(n_tok, n)), n_tok, n);
    if (!a.q) return;
    cuda_glu8(c, g, n_tok, n, a);
    vectors(c, o, 1, NULL, 0, n_tok, factor, a);
}

/* Many tokens: one launch per form of weights. */
static void tiles(struct cuda *c, const struct linear_out *o, int32_t n_o, const float *x,
                  int64_t x_stride, int32_t n_tok, const float *factor) {
    halves h = c->ready.x == x ? c->ready : cuda_to_halves(c, x, x_stride, n_tok, o[0].w->n_in);
    if (c->err.code) return;
    for (int form = 1; form < N_FORM; form++) {
        tile_job j = {};
        j.mode = TILE_PUT;
        j.n_row = n_tok;
        j.reads = 1;
        j.x = h, j.factor = factor;
        for (int32_t i = 0; i < n_o; i++) {
            planes w = cuda_repack_of(o[i].w);
            if ((is_number_form(w.form) ? (int)FORM_F32 : w.form) != form) continue;
            j.o[j.n_o++] =
                tile_out{w, o[i].bias, o[i].dst, o[i].dst_stride, o[i].scale, o[i].add, 0, 0};
            if (j.n_o == TILE_OUTS) {
                cuda_tiles(c, j);
                j.n_o = 0;
            }
        }
        if (j.n_o) cuda_tiles(c, j);
    }
}

/* If a matrix is in two parts: the same product by part. Returns whether it is done. */
static bool linear_in_parts(struct cuda *c, const struct linear_out *o, int32_t n_o, const float *x,
                            int64_t x_stride, int32_t n_tok, const float *factor, bool exact) {
    bool has_tail = false;
    for (int32_t i = 0; i < n_o; i++) has_tail |= o[i].w->tail != NULL;
    if (!has_tail) return false;
    halves ready = c->ready; /* of whole rows */
    size_t kept = c->scratch_used;
    cuda_norm_now(c);
    for (int32_t i = 0; i < n_o && !c->err.code; i++) {
        struct weight first = *o[i].w;
        first.tail = NULL;
        struct linear_out part = o[i];
        part.w = &first;
        if (o[i].w->tail) c->ready = halves{};
        cuda_linear_rows(c, &part, 1, x, x_stride, n_tok, factor, exact);
        c->scratch_used = kept;
        if (o[i].w->tail) {
            part.w = o[i].w->tail, part.bias = NULL, part.add = true;
            cuda_linear_rows(c, &part, 1, x + first.n_in, x_stride, n_tok, factor, exact);
        }
        c->scratch_used = kept;
        c->ready = ready;
    }
    return true;
}

/* An unquantized matrix times many rows, with the precision of floats. */
static void float_tiles(struct cuda *c, const struct linear_out *o, const float *x,
                        int64_t x_stride, int32_t n_tok, const float *factor) {
    linear_job j = {};
    j.o[0] = job_of(o);
    j.n_tok = n_tok;
    j.x = x;
    j.x_stride = x_stride;
    j.factor = factor;
    dim3 grid((unsigned)((o->w->n_out + FLOAT_ROWS - 1) / FLOAT_ROWS),
              (unsigned)((n_tok + FLOAT_COLS - 1) / FLOAT_COLS));
    tile_job sum = {};
    sum.o[0] = tile_out{j.o[0].w, o->bias, o->dst, o->dst_stride, o->scale, o->add, 0, 0};
    sum.n_o = 1, sum.mode = TILE_PUT, sum.n_row = n_tok, sum.factor = factor;
    size_t kept = c->scratch_used;
    tile_split split =
        cuda_split(c, n_tok, (o->w->n_in + TILE_GROUP - 1) / TILE_GROUP, (int64_t)grid.x * grid.y,
                   (o->w->n_out + TILE_M - 1) / TILE_M * TILE_M, TILE_OUTS);
    if (split.sums) grid.z = (unsigned)split.n;
    cuda_reads_planes(c, j.o[0].w, 1);
    launch(c, float_tile_kernel, grid, dim3(256), 0, j, split);
    if (split.sums) cuda_sum_split(c, sum, split);
    c->scratch_used = kept;
}

void cuda_linear_rows(struct cuda *c, const struct linear_out *o, int32_t n_o, const float *x,
                      int64_t x_stride, int32_t n_tok, const float *factor, bool exact) {
    if (linear_in_parts(c, o, n_o, x, x_stride, n_tok, factor, exact)) return;
    if (n_tok > 1) cuda_norm_now(c);
    for (int32_t i = 0; i < n_o; i++)
        cuda_wrote(c, o[i].dst,
                   ((size_t)(n_tok - 1) * (size_t)o[i].dst_stride + (size_t)o[i].w->n_out) *
                       sizeof(float));
    bool is_batch = cuda_is_batch(c, o, n_o, n_tok);
    if (n_tok > BATCH_TOKS && exact && is_number_form(cuda_repack_of(o->w).form) &&
        o->w->n_out >= FLOAT_ROWS && c->compute >= 80) {
        float_tiles(c, o, x, x_stride, n_tok, factor);
        o++, n_o--;
    }
    if (is_batch || exact || c->params.precise) {
        for (int32_t i = 0; i < n_o; i += MAX_OUTS)
            vectors(c, o + i, n_o - i < MAX_OUTS ? n_o - i : MAX_OUTS, x, x_stride, n_tok, factor,
                    act8{});
        return;
    }
    tiles(c, o, n_o, x, x_stride, n_tok, factor);
}

void cuda_linear(struct dev *d, const struct linear_out *o, int32_t n_o, const float *x,
                 int64_t x_stride, int32_t n_tok) {
    struct cuda *c = (struct cuda *)d;
    if (cuda_begin_product(c)) cuda_linear_rows(c, o, n_o, x, x_stride, n_tok, NULL, false);
}

/* linear.cu: matrices times rows. Roofline at decode: the bytes of the weights; a lane has up to 4 units
 * in flight before it waits for the kernel before it, and blocks are as many as the chip holds at once.
 * Prefill: tile.cu. */
#include <utility>

#include "kernels/cuda/cuda_impl.cuh"
#include "kernels/cuda/linear.cuh"
#include "kernels/cuda/tile.cuh"

enum { MAX_OUTS = 8, NUMBER_WIDE = 1024, INPUT_SHARED = 8192, MAX_SUMS = 16 };

struct out_job {
    planes w;
    const float *bias;
    float *dst;
    int64_t dst_stride;
    float scale;
    int32_t add, first_block, n_block, group, n_part; /* n_part: warps that share a row */
};
struct linear_job {
    out_job o[MAX_OUTS];
    int32_t n_o, n_tok, step, unused; /* step: tokens of one block */
    const float *x;
    int64_t x_stride;
    act8 x8;
    const float *factor; /* [n_tok] or NULL: their logistic function multiplies a row's result */
    norm_row_job norm;   /* x NULL: none; else what makes the one row of x */
};

__device__ __forceinline__ void put(const linear_job &j, const out_job &o, int64_t row, int32_t t,
                                    float sum, float norm = 1.0f) {
    float y = o.scale * norm * sum + (o.bias ? o.bias[row] : 0.0f);
    if (j.factor) y *= logistic(j.factor[t]);
    float *dst = o.dst + t * o.dst_stride + row;
    *dst = o.add ? *dst + y : y;
}

/* Precise mode: floats against any form. */
__global__ void __launch_bounds__(VEC_THREADS) vector_kernel(linear_job j, grid_tables tables) {
    DYNAMIC_SHARED(uint8_t, room);
    int k = 0;
    while (k + 1 < j.n_o && (int)blockIdx.x >= j.o[k + 1].first_block) k++;
    const out_job &o = j.o[k];
    int group = o.group, lane = (int)threadIdx.x % group;
    int64_t rows_block = (VEC_THREADS / group) * VEC_ROWS;
    int64_t first = ((int64_t)blockIdx.x - o.first_block) * rows_block +
                    (int64_t)(threadIdx.x / (unsigned)group) * VEC_ROWS;
    int32_t t0 = (int32_t)blockIdx.y * j.step;
    int32_t n_tok = j.n_tok - t0 < j.step ? j.n_tok - t0 : j.step;
    float out[VEC_ROWS][VEC_TOKS];
    launch_next();
    wait_previous();
    const float *a = act_load(room, j.x + t0 * j.x_stride, j.x_stride, n_tok, o.w.n_in);
    any_rows<VEC_TOKS>(o.w, 0, first, lane, group, tables, a, n_tok, out);
    if (lane) return;
    for (int r = 0; r < VEC_ROWS && first + r < o.w.n_row; r++)
#pragma unroll
        for (int t = 0; t < VEC_TOKS; t++)
            if (t < n_tok) put(j, o, first + r, t0 + t, out[r][t]);
}

/* ---- rows of bytes ---- */

/* What a block multiplies with. */
struct input {
    act8 a;         /* of token 0 of the block */
    const float *x; /* the same as floats, for rows of numbers */
    int64_t x_stride;
    float norm; /* what is still to be multiplied with */
};

/* Rows that a group of lanes takes side by side. */
enum { ROWS8 = 2 };

/* The part of a block in matrix o, through rows of form F: more than one kind of block uses it. Where rows are few,
 * n_part warps share them, each a part of the steps. */
template <int F, int NT> struct vector8 {
    static constexpr int R = ROWS8;
    const linear_job &j;
    const out_job &o;
    int group, lane, mine, n_group, n_row, n_unit, n_task, from, n_step; /* from: first unit */
    raw<F> code[2][R];

    __device__ __forceinline__ vector8(const linear_job &j_, const out_job &o_) : j(j_), o(o_) {
        int groups = o.group == 32 ? 1 : 2, warp = (int)threadIdx.x / 32, part = 0;
        int per_block = (int)(blockDim.x / 32) * groups;
        group = o.group, lane = (int)threadIdx.x & (group - 1);
        n_row = (int)o.w.n_row, n_unit = o.w.n_unit;
        n_step = group == 32 ? (n_unit + 31) / 32 : 1;
        if (o.n_part > 1) { /* of 2 or 4 */
            int shift = o.n_part / 2;
            part = warp & (o.n_part - 1), warp >>= shift, per_block >>= shift;
            n_step = (n_step + o.n_part - 1) >> shift;
        }
        from = part * n_step * 32;
        n_group = o.n_block * per_block;
        int lead = ((int)blockIdx.x - o.first_block) * per_block + warp * groups;
        mine = lead + (groups == 2 ? (int)threadIdx.x / 16 % 2 : 0);
        /* as many tasks as the first group of the warp has: lanes of a warp go together */
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
    /* sums: [warps][R * NT], of the block */
    __device__ __forceinline__ void run(const grid_tables &g, const input &in, int32_t t0,
                                        int32_t n_tok, float (*sums)[MAX_SUMS]) {
        auto act = [&](int, int step, int t) {
            return act8_load(in.a, (uint32_t)(t * n_unit + unit(step)));
        };
        auto result = [&](int task, int k, float y) {
            int row = R * (mine + task * n_group) + k / NT, t = k % NT;
            if (row < n_row && t < n_tok) put(j, o, row, t0 + t, y, in.norm);
        };
        auto sink = [&](int task, int k, float y) {
            if (o.n_part == 1) result(task, k, y);
            else sums[threadIdx.x / 32][k] = y;
        };
        stream8_run<F, R, NT>(code, *this, n_task, n_step, group, g, n_tok, act, sink);
        if (o.n_part == 1) return; /* all warps of the block go together */
        __syncthreads();
        int warp = (int)threadIdx.x / 32;
        if (warp & (o.n_part - 1) || lane >= R * NT || !n_task) return;
        float y = sums[warp][lane];
        for (int i = 1; i < o.n_part; i++) y += sums[warp + i][lane];
        result(0, lane, y);
    }
};

/* Rows of numbers times floats: W warps a row, rows 8 / W of a block. Eight units of 16 bytes a lane are
 * read before the wait, into whatever room there is. */
enum { NUMBER_UNITS = 8 };
/* Warps that share a row: all of it is on its way before the wait. */
static __host__ __device__ inline int number_warps(int64_t n_in, int n_tok) {
    if (n_in < NUMBER_WIDE) return 1;
    return n_tok == 1 && n_in <= 2 * NUMBER_WIDE ? 2 : 4;
}
template <int NT, int W> struct number_rows {
    static constexpr int LANES = 32 * W, ROWS = VEC_THREADS / LANES;
    const linear_job &j;
    const out_job &o;
    int lane, n_quad;
    int64_t own, row;

    __device__ __forceinline__ number_rows(const linear_job &j_, const out_job &o_) : j(j_), o(o_) {
        lane = (int)threadIdx.x % LANES;
        own = ((int64_t)blockIdx.x - o.first_block) * ROWS + (int64_t)threadIdx.x / LANES;
        row = own < o.w.n_row ? own : o.w.n_row - 1;
        bool is_four = ((uintptr_t)j.x | (uintptr_t)(4 * j.x_stride)) % 16 == 0;
        n_quad = o.w.n_in % 4 || !is_four ? 0 : o.w.n_in / 4;
    }
    __device__ __forceinline__ float4 quad(int q) const {
        int64_t at = row * o.w.n_in + 4 * (int64_t)q;
        if (o.w.form == FORM_F32) return __ldcs((const float4 *)((const float *)o.w.codes + at));
        uint2 h = __ldcs((const uint2 *)((const uint16_t *)o.w.codes + at));
        if (o.w.form == FORM_F16)
            return make_float4(to_float((uint16_t)h.x), to_float((uint16_t)(h.x >> 16)),
                               to_float((uint16_t)h.y), to_float((uint16_t)(h.y >> 16)));
        return make_float4(
            __int_as_float((int)(h.x << 16)), __int_as_float((int)(h.x & 0xffff0000u)),
            __int_as_float((int)(h.y << 16)), __int_as_float((int)(h.y & 0xffff0000u)));
    }
    __device__ __forceinline__ void begin(float4 *w) const {
#pragma unroll
        for (int i = 0; i < NUMBER_UNITS; i++)
            if (lane + i * LANES < n_quad) w[i] = quad(lane + i * LANES);
    }
    __device__ __forceinline__ void run(float4 *w, const input &in, int32_t t0, int32_t n_tok,
                                        float (*room)[MAX_SUMS]) const {
        float sum[NT];
#pragma unroll
        for (int t = 0; t < NT; t++) sum[t] = 0.0f;
#pragma unroll 1
        for (int q0 = lane; q0 < n_quad; q0 += NUMBER_UNITS * LANES) {
#pragma unroll
            for (int i = 0; i < NUMBER_UNITS; i++) {
                int q = q0 + i * LANES;
                if (q >= n_quad) break;
                float4 v = w[i];
                if (q + NUMBER_UNITS * LANES < n_quad) w[i] = quad(q + NUMBER_UNITS * LANES);
#pragma unroll
                for (int t = 0; t < NT; t++) {
                    if (t >= n_tok) break;
                    float4 x = *(const float4 *)(in.x + t * in.x_stride + 4 * (int64_t)q);
                    sum[t] += v.x * x.x + v.y * x.y + (v.z * x.z + v.w * x.w);
                }
            }
        }
        if (!n_quad)
#pragma unroll 1
            for (int i = lane; i < o.w.n_in; i += LANES) {
                float v = number_at(o.w, row * o.w.n_in + i);
#pragma unroll
                for (int t = 0; t < NT; t++)
                    if (t < n_tok) sum[t] += v * in.x[t * in.x_stride + i];
            }
#pragma unroll
        for (int t = 0; t < NT; t++) sum[t] = lanes_sum(sum[t], 32);
        if constexpr (W > 1) {
            if (threadIdx.x % 32 == 0)
#pragma unroll
                for (int t = 0; t < NT; t++) room[threadIdx.x / 32][t] = sum[t];
            __syncthreads();
#pragma unroll
            for (int t = 0; t < NT; t++) {
                sum[t] = 0;
                for (int i = 0; i < W; i++) sum[t] += room[threadIdx.x / LANES * W + i][t];
            }
        }
        if (lane || own >= o.w.n_row) return;
#pragma unroll
        for (int t = 0; t < NT; t++)
            if (t < n_tok) put(j, o, row, t0 + t, sum[t], in.norm);
    }
};

/* Makes a block's input out of the row to be normed: y = x w in 8 bits and as floats, in `own`; what y is still to
 * be multiplied with is returned. The blocks write the finished row down for whoever else reads it.
 * w: the first weights of a thread, read before. Ends on a barrier. */
enum { NORM_KEPT = 2 };
__device__ __forceinline__ float norm_input(const norm_row_job &job, const float4 w[NORM_KEPT],
                                            const act8 &a, float *y, int n, float *room) {
    float sum = 0;
    auto make = [&](int q, float4 g) {
        bool has = 4 * q < n;
        float4 v = has ? ((const float4 *)job.x)[q] : make_float4(0, 0, 0, 0);
        sum += v.x * v.x + v.y * v.y + (v.z * v.z + v.w * v.w);
        v = make_float4(v.x * g.x, v.y * g.y, v.z * g.z, v.w * g.w);
        if (has) ((float4 *)y)[q] = v;
        act8_put4(a, q, v, has);
    };
    int q = (int)threadIdx.x;
#pragma unroll
    for (int k = 0; k < NORM_KEPT; k++, q += VEC_THREADS)
        if (q / 32 * 128 < n) make(q, w[k]);
#pragma unroll 1
    for (; q / 32 * 128 < n; q += VEC_THREADS)
        make(q, job.w && 4 * q < n ? ((const float4 *)job.w)[q] : make_float4(1, 1, 1, 1));
    sum = lanes_sum(sum, 32);
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0;
#pragma unroll
    for (int i = 0; i < VEC_THREADS / 32; i++) sum += room[i];
    float f = rsqrtf(sum * job.scale + job.eps);
    /* every block writes a part of the finished row */
#pragma unroll 1
    for (int k = (int)(blockIdx.x + threadIdx.x * gridDim.x); 4 * k < n;
         k += VEC_THREADS * (int)gridDim.x) {
        float4 v = ((const float4 *)y)[k];
        ((float4 *)job.out)[k] = make_float4(v.x * f, v.y * f, v.z * f, v.w * f);
        ((uint32_t *)job.a8.q)[k] = ((const uint32_t *)a.q)[k];
        if (k % 8) continue;
        uint2 meta = a.meta[k / 8];
        meta.x = (uint32_t)__float_as_int(__int_as_float((int)meta.x) * f);
        ((uint2 *)job.a8.meta)[k / 8] = meta;
    }
    return f;
}

/* Matrices of form F, of numbers, and of Q8_0 (alpha and beta of a delta net beside its projections). One token
 * may be normed on the way, in every block. Shared memory: grid points, then the normed row. */
template <int F, int NT>
__global__ void __launch_bounds__(VEC_THREADS, NT == 1 ? 3 : 2)
    vector8_kernel(const __grid_constant__ linear_job j, grid_tables tables) {
    DYNAMIC_SHARED(uint32_t, points);
    __shared__ float sums[VEC_THREADS / 32][MAX_SUMS]; /* a warp's */
    int k = 0;
    while (k + 1 < j.n_o && (int)blockIdx.x >= j.o[k + 1].first_block) k++;
    const out_job &o = j.o[k];
    int32_t t0 = (int32_t)blockIdx.y * j.step;
    int32_t n_tok = j.n_tok - t0 < j.step ? j.n_tok - t0 : j.step;
    int64_t n_in = o.w.n_in;
    bool is_main = o.w.form == F;
    int warps = number_warps(n_in, NT);
    bool is_bytes = F != FORM_I8 && o.w.form == FORM_I8;
    launch_next();
    vector8<F, NT> rows(j, o);
    float4 numbers[NUMBER_UNITS];
    if (is_main) rows.begin();
    else if (!is_bytes && warps == 4) number_rows<NT, 4>(j, o).begin(numbers);
    else if (!is_bytes && NT == 1 && warps == 2) number_rows<NT, 2>(j, o).begin(numbers);
    else if (!is_bytes) number_rows<NT, 1>(j, o).begin(numbers);
    float4 norm_w[NORM_KEPT];
    if (NT == 1 && j.norm.x)
#pragma unroll
        for (int i = 0; i < NORM_KEPT; i++) {
            int q = (int)threadIdx.x + i * VEC_THREADS;
            norm_w[i] = j.norm.w && 4 * q < n_in ? __ldg((const float4 *)j.norm.w + q)
                                                 : make_float4(1, 1, 1, 1);
        }
    if (grid_words(F) && is_main) grid_load(tables, F, points);
    if (NT == 1 && threadIdx.x % 32 == 0) {
        look_up(j.norm.x ? j.norm.x : (const void *)j.x8.q);
        look_up(o.dst);
    }
    wait_previous();
    input in = {{j.x8.q + t0 * n_in, j.x8.meta + t0 * (n_in / 32)},
                j.x + t0 * j.x_stride,
                j.x_stride,
                1.0f};
    if (NT == 1 && j.norm.x) {
        uint8_t *own = (uint8_t *)(points + grid_words(F));
        in.a = act8_at(own, 1, n_in);
        in.x = (const float *)(own + act8_bytes(1, n_in));
        in.norm = norm_input(j.norm, norm_w, in.a, (float *)in.x, (int)n_in, &sums[0][0]);
    }
    if (is_main) rows.run(tables, in, t0, n_tok, sums);
    else if (is_bytes) {
        vector8<FORM_I8, NT> bytes(j, o);
        bytes.begin();
        bytes.run(tables, in, t0, n_tok, sums);
    } else if (warps == 4) number_rows<NT, 4>(j, o).run(numbers, in, t0, n_tok, sums);
    else if (NT == 1 && warps == 2) number_rows<NT, 2>(j, o).run(numbers, in, t0, n_tok, sums);
    else number_rows<NT, 1>(j, o).run(numbers, in, t0, n_tok, sums);
}

__device__ __forceinline__ act8 act8_at_row(const act8 &a, int64_t row, int64_t n) {
    return act8{a.q + row * n, a.meta + row * (n / 32)};
}

__global__ void act8_kernel(const float *x, int64_t stride, int32_t n, act8 out) {
    launch_next();
    wait_previous();
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
           act8_bytes(STEP_TOKS, n->n_in + 32) + 2048;
}

static out_job job_of(const struct linear_out *o) {
    out_job j = {planes_of(o->w), o->bias, o->dst, o->dst_stride, o->scale, o->add, 0, 0, 0, 0};
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

/* Numbers times floats, many tokens, nothing rounded: tiles of 64 x 64, 4 x 4 a thread (routers). */
enum { FLOAT_TILE = 64, FLOAT_K = 32 };
__global__ void __launch_bounds__(256) float_tile_kernel(linear_job j) {
    __shared__ __align__(16) float a[FLOAT_K][FLOAT_TILE + 4], b[FLOAT_K][FLOAT_TILE + 4];
    const out_job &o = j.o[0];
    int tid = (int)threadIdx.x, tx = tid % 16, ty = tid / 16;
    int64_t row0 = (int64_t)blockIdx.x * FLOAT_TILE;
    int32_t t0 = (int32_t)blockIdx.y * FLOAT_TILE;
    launch_next();
    wait_previous();
    constexpr int EACH = FLOAT_TILE * FLOAT_K / 256;
    float acc[4][4] = {}, next_a[EACH], next_b[EACH];
    auto fetch = [&](int k0) {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            int r = (tid + 256 * i) / FLOAT_K, k = k0 + tid % FLOAT_K;
            bool in = k < o.w.n_in;
            next_a[i] = in && row0 + r < o.w.n_row ? number_at(o.w, (row0 + r) * o.w.n_in + k) : 0;
            next_b[i] = in && t0 + r < j.n_tok ? j.x[(t0 + r) * j.x_stride + k] : 0;
        }
    };
    fetch(0);
    for (int k0 = 0; k0 < o.w.n_in; k0 += FLOAT_K) {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            int r = (tid + 256 * i) / FLOAT_K, k = tid % FLOAT_K;
            a[k][r] = next_a[i];
            b[k][r] = next_b[i];
        }
        __syncthreads();
        if (k0 + FLOAT_K < o.w.n_in)
            fetch(k0 + FLOAT_K); /* on its way while these are multiplied */
#pragma unroll
        for (int k = 0; k < FLOAT_K; k++) {
            float4 x = *(const float4 *)&a[k][4 * tx], y = *(const float4 *)&b[k][4 * ty];
            float xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int n = 0; n < 4; n++) acc[i][n] += xs[i] * ys[n];
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int n = 0; n < 4; n++)
            if (row0 + 4 * tx + i < o.w.n_row && t0 + 4 * ty + n < j.n_tok)
                put(j, o, row0 + 4 * tx + i, t0 + 4 * ty + n, acc[i][n]);
}

/* Warps that share the rows of w, so that all multiprocessors have enough of them. A token's sums follow from it: it
 * depends on the matrices of the launch, not on how many tokens there are. */
static int32_t parts_of(const struct cuda *c, const planes &w, int64_t n_row) {
    enum { MAX_PARTS = 4 };
    int32_t n = 1;
    while (n < MAX_PARTS && n_row / ROWS8 * n * 2 <= (int64_t)c->n_sm * (VEC_THREADS / 32) * 2 &&
           w.n_unit > 64 * n)
        n *= 2;
    return n;
}

/* One launch: matrices of one form, of Q8_0, and of numbers. x8.q NULL: none is needed. */
static void vectors8(struct cuda *c, linear_job &j, int form) {
    int64_t tasks = 0, n_row = 0; /* tasks: of a warp */
    int64_t resident = (j.n_tok > 1 ? 2 : 3) * (int64_t)c->n_sm;
    for (int32_t i = 0; i < j.n_o; i++) {
        j.o[i].group = lanes_of(j.o[i].w);
        j.o[i].n_part = 1;
        if (!is_number_form(j.o[i].w.form)) n_row += j.o[i].w.n_row;
    }
    for (int32_t i = 0; i < j.n_o; i++) {
        if (is_number_form(j.o[i].w.form)) continue;
        j.o[i].n_part = parts_of(c, j.o[i].w, n_row);
        tasks += (j.o[i].w.n_row + ROWS8 - 1) / ROWS8 * j.o[i].n_part * j.o[i].group / 32;
    }
    /* all blocks resident at once, and as many tasks each */
    int32_t blocks = 0;
    for (int32_t i = 0; i < j.n_o; i++) {
        out_job &k = j.o[i];
        k.first_block = blocks;
        int64_t rows = VEC_THREADS / 32 / number_warps(k.w.n_in, j.n_tok);
        if (!is_number_form(k.w.form)) rows = ROWS8 * (VEC_THREADS / k.group / k.n_part);
        k.n_block = (int32_t)((k.w.n_row + rows - 1) / rows);
        int64_t own = (k.w.n_row + ROWS8 - 1) / ROWS8 * k.group / 32;
        if (!is_number_form(k.w.form) && k.n_part == 1 && tasks > resident * (VEC_THREADS / 32))
            k.n_block = (int32_t)(own * resident / tasks > 1 ? own * resident / tasks : 1);
        blocks += k.n_block;
    }
    j.step = j.n_tok > 1 ? VEC8_TOKS : 1;
    dim3 grid((unsigned)blocks, (unsigned)((j.n_tok + j.step - 1) / j.step));
    size_t room = grid_bytes(c, form);
    int64_t n_in = j.o[0].w.n_in;
    if (j.norm.x) room += act8_bytes(1, n_in) + (size_t)n_in * 4;
    switch (form) {
#define X(F)                                                                                       \
    case F:                                                                                        \
        if (j.n_tok > 1)                                                                           \
            launch(c, vector8_kernel<F, VEC8_TOKS>, grid, dim3(VEC_THREADS), room, j, c->tables);  \
        else launch(c, vector8_kernel<F, 1>, grid, dim3(VEC_THREADS), room, j, c->tables);         \
        break;
        FOR_EACH_FORM(X)
#undef X
    }
}

/* Whether outputs lie where the row to be normed does. */
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
    /* the first launch makes a row whose norm is still to be done */
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

__global__ void glu8_kernel(glu_job g, int64_t n, act8 out) {
    launch_next();
    wait_previous();
    act8_row(act8_at_row(out, blockIdx.x, n), (int)n,
             [&](int q) { return glu_quad(g, blockIdx.x * (n / 4) + q); });
}

void cuda_linear_glu(struct cuda *c, const struct linear_out *o, const glu_job &g, int32_t n_tok,
                     const float *factor) {
    int64_t n = o->w->n_in;
    cuda_norm_now(c);
    cuda_wrote(c, o->dst,
               ((size_t)(n_tok - 1) * (size_t)o->dst_stride + (size_t)o->w->n_out) * sizeof(float));
    act8 a = act8_at(cuda_take(c, act8_bytes(n_tok, n)), n_tok, n);
    if (!a.q) return;
    launch(c, glu8_kernel, dim3((unsigned)n_tok), dim3(n > 1024 ? 512 : 128), 0, g, n, a);
    vectors(c, o, 1, NULL, 0, n_tok, factor, a);
}

/* Many tokens: a launch for each form of weights. */
static void tiles(struct cuda *c, const struct linear_out *o, int32_t n_o, const float *x,
                  int64_t x_stride, int32_t n_tok, const float *factor) {
    int64_t n_in = o[0].w->n_in;
    uint16_t *h = (uint16_t *)cuda_take(c, (size_t)n_tok * (size_t)halves_of(n_in) * 2);
    float *scale = (float *)cuda_take(c, (size_t)n_tok * sizeof *scale);
    if (!h || !scale) return;
    cuda_to_halves(c, x, x_stride, n_tok, n_in, h, scale);
    for (int form = 1; form < N_FORM; form++) {
        tile_job j = {};
        j.mode = TILE_PUT;
        j.n_row = n_tok;
        j.x = h, j.x_scale = scale, j.factor = factor;
        for (int32_t i = 0; i < n_o; i++) {
            planes w = planes_of(o[i].w);
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

void cuda_linear_rows(struct cuda *c, const struct linear_out *o, int32_t n_o, const float *x,
                      int64_t x_stride, int32_t n_tok, const float *factor, bool exact) {
    if (n_tok > 1) cuda_norm_now(c);
    for (int32_t i = 0; i < n_o; i++)
        cuda_wrote(c, o[i].dst,
                   ((size_t)(n_tok - 1) * (size_t)o[i].dst_stride + (size_t)o[i].w->n_out) *
                       sizeof(float));
    if (n_tok > STEP_TOKS && exact && is_number_form(planes_of(o->w).form) &&
        o->w->n_out >= FLOAT_TILE) {
        linear_job j = {};
        j.o[0] = job_of(o);
        j.n_tok = n_tok;
        j.x = x;
        j.x_stride = x_stride;
        j.factor = factor;
        launch(c, float_tile_kernel,
               dim3((unsigned)((o->w->n_out + FLOAT_TILE - 1) / FLOAT_TILE),
                    (unsigned)((n_tok + FLOAT_TILE - 1) / FLOAT_TILE)),
               dim3(256), 0, j);
        o++, n_o--;
    }
    if (n_tok <= STEP_TOKS || exact || c->params.precise) {
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

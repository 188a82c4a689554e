/* gemm.cu: dequantized weights times f16 activations, accumulated in f32: 2 n_in n_out n_tok operations.
 *
 * A block computes 128 rows of weights times up to 128 columns (tokens). So each weight is dequantized once per 128
 * tokens, directly into the registers that the tensor cores read; only activations use shared memory, copied
 * asynchronously. Of four units of 32 elements, each of the four lanes that share a row dequantizes one. A product sums
 * over 16 elements in an arbitrary order, as long as the activations have the same order (to_halves_kernel permutes
 * them). Step s of eight uses word s of each unit.
 *
 * Dequantization takes about 2 instructions per weight: bytes to f16 by a permutation, minus the zero point, times the
 * scale in f16. Scales are multiplied by TILE_GAIN so that small ones keep their precision.
 *
 * There are two variants. tile_product uses mma.m16n8k16, four warps of 32 rows. On compute capability 9.0,
 * group_product uses products of four warps (wgmma) that run while the next step is dequantized: eight warps of 16 rows
 * with 128 registers, so that 16 warps of a multiprocessor hide each other's latencies. There, two blocks of 128 x 128
 * x 128 products take 2,048 clocks. The tensor cores need 1,024 of them at best; dequantization, copies and addresses
 * need about 900 instructions per scheduler; 75 KB from the L2 cache are 37 bytes per clock.
 *
 * Up to 128 tokens, most matrices have fewer tiles than the card has multiprocessors, and the time is that of one block:
 * 2 us per 128 inputs. cuda_split divides the inputs of such a matrix among several blocks. */
#include <utility>

#include "kernels/cuda/gemv_float.cuh"
#include "kernels/cuda/gemm.cuh"

enum {
    TILE_K = 64, /* f16 elements of a column per stage */
    TILE_STAGES = 3,
    GROUP_STAGES = 5,
    TILE_CHUNKS = TILE_K / 8, /* 16-byte pieces */
    OUT_COLS = 64,            /* columns of a tile that are stored at once */
    OUT_STRIDE = TILE_M + 4,  /* through shared memory; floats per column */
};
#define TILE_GAIN 64.0f

/* Threads of a block whose warps have m fragments of 16 rows each. */
static __host__ __device__ constexpr int tile_threads(int m) { return TILE_M / 16 / m * 32; }

/* The matrices from row `row` on: rows within a block are then indexed with 32 bits. */
template <int F> __device__ __forceinline__ planes rows_from(const planes &w, int64_t row) {
    constexpr plane_sizes s = sizes_of(F);
    planes p = w;
    if (F == FORM_F32) {
        p.codes += row * w.n_in * (w.form == FORM_F32 ? 4 : 2);
        return p;
    }
    int64_t unit = row * w.n_unit;
    p.codes += unit * s.codes;
    p.more += unit * s.more;
    p.sub += unit * s.sub;
    p.top += unit / s.top_units * s.top;
    return p;
}

/* A lane's part of M fragments, two rows of weights each: the current unit of each row, and the loads of the next. */
template <int F, int M> struct tile_rows {
    static constexpr uint32_t flip =
        form_traits<F>::mid || form_traits<F>::has_offset || is_cubic(F) ? 0u : 0x80808080u;
    static constexpr int mid = flip ? 128 : form_traits<F>::mid;
    planes w[M];        /* per fragment, at the next unit, or one before it after the last */
    uint32_t at[2 * M]; /* start of each row, in units */
    int unit;
    raw<F> next[2 * M];
    uint32_t q[2 * M][8], scale[2 * M][2], offset[2 * M]; /* offset of a cubic form: starts */
    bool has;                                             /* the next unit is within the row */

    /* first: which of four units the lane loads. */
    __device__ __forceinline__ void begin(int first) {
        unit = first;
        if (unit < w[0].n_unit) go_on(unit, sizes_of(F).top_units == 1);
    }
    __device__ __forceinline__ void go_on(int units, bool moves_top) {
        constexpr plane_sizes s = sizes_of(F);
#pragma unroll
        for (int m = 0; m < M; m++) {
            w[m].codes += units * s.codes;
            w[m].more += units * s.more;
            w[m].sub += units * s.sub;
            if (moves_top) w[m].top += (s.top_units == 1 ? units : 1) * s.top;
        }
    }
    __device__ __forceinline__ void load(void) {
        has = unit < w[0].n_unit;
#pragma unroll
        for (int i = 0; i < 2 * M; i++) load_unit<F>(next[i], w[i / 2], at[i]);
        unit += 4;
        go_on(unit < w[0].n_unit ? 4 : -(unit & 3), sizes_of(F).top_units == 1 || !(unit & 4));
    }
    __device__ __forceinline__ void open(const grid_tables &g) {
#pragma unroll
        for (int i = 0; i < 2 * M; i++) {
            unpacked v;
            uint32_t place = (uint32_t)(unit + 4) % 8u, start[2] = {}; /* unit is the next one */
            if constexpr (is_cubic(F)) {
                cubic_scales<F>(next[i], place, v.scale, start);
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    v.q[k] = stacked_low<F>(next[i], k);
                    v.q[k + 4] = stacked_high<F>(next[i], k) >> (8 - stacked_bits(F));
                }
                v.offset[0] = v.offset[1] = 0.0f;
            } else unpack<F, true>(next[i], g, v);
            float gain = has ? TILE_GAIN : 0.0f;
#pragma unroll
            for (int k = 0; k < 8; k++) q[i][k] = v.q[k];
#pragma unroll
            for (int k = 0; k < 2; k++) {
                float s = v.scale[k] * gain;
                scale[i][k] = two_halves(s, s);
            }
            offset[i] = is_cubic(F) ? __byte_perm(start[0], start[1], 0x5410)
                                    : two_halves(-v.offset[0] * gain, -v.offset[1] * gain);
        }
    }
    /* f16 values of elements 4 s to 4 s + 3 of row i. */
    __device__ __forceinline__ void word(int i, int s, uint32_t &lo, uint32_t &hi) const {
        uint32_t x = q[i][s] ^ flip, f = scale[i][form_traits<F>::has_halves ? s / 4 : 0];
        constexpr uint32_t middle = (0x6400u + mid) * 0x10001u; /* 1,024 + zero point, twice */
        lo = __byte_perm(x, 0x64646464u, 0x4140);
        hi = __byte_perm(x, 0x64646464u, 0x4342);
        if constexpr (is_cubic(F)) {
            uint32_t start = __byte_perm(offset[i], 0, s < 4 ? 0x1010 : 0x3232);
            lo = halves_sub(cubic<F>::values(lo, start), cubic<F>::rounds(0));
            hi = halves_sub(cubic<F>::values(hi, start), cubic<F>::rounds(0));
        } else {
            lo = halves_sub(lo, middle);
            hi = halves_sub(hi, middle);
        }
        if constexpr (form_traits<F>::has_offset) {
            uint32_t o = offset[i];
            if constexpr (F == FORM_N2K) o = __byte_perm(o, o, s < 4 ? 0x1010 : 0x3232);
            lo = halves_fma(lo, f, o);
            hi = halves_fma(hi, f, o);
        } else {
            lo = halves_mul(lo, f);
            hi = halves_mul(hi, f);
        }
    }
    static __device__ __forceinline__ float gain(void) { return 1.0f / TILE_GAIN; }
};

/* Rows of unquantized matrices are loaded when they are used. */
template <int M> struct tile_rows<FORM_F32, M> {
    planes w[M];
    uint32_t at[2 * M]; /* in elements */
    int unit, next, first;

    __device__ __forceinline__ void begin(int lane) { unit = lane; }
    __device__ __forceinline__ void load(void) {
        next = unit * 32;
        unit += 4;
    }
    __device__ __forceinline__ void open(const grid_tables &) { first = next; }
    __device__ __forceinline__ void word(int i, int s, uint32_t &lo, uint32_t &hi) const {
        const planes &m = w[i / 2];
        int k = first + 4 * s, n = m.n_in;
        int64_t from = (int64_t)at[i] + k;
        if (n % 4 == 0 && m.form != FORM_F32) {
            uint2 v = k < n ? *(const uint2 *)((const uint16_t *)m.codes + from) : make_uint2(0, 0);
            lo = v.x, hi = v.y;
            if (m.form == FORM_F16) return;
            lo = two_halves(__int_as_float((int)(v.x << 16)),
                            __int_as_float((int)(v.x & 0xffff0000u)));
            hi = two_halves(__int_as_float((int)(v.y << 16)),
                            __int_as_float((int)(v.y & 0xffff0000u)));
            return;
        }
        float v[4];
#pragma unroll
        for (int b = 0; b < 4; b++) v[b] = k + b < n ? number_at(m, from + b) : 0.0f;
        lo = two_halves(v[0], v[1]);
        hi = two_halves(v[2], v[3]);
    }
    static __device__ __forceinline__ float gain(void) { return 1.0f; }
};

/* Copies the columns of a block (f16 rows of x) to stages of shared memory, TILE_K elements at a time. A thread
 * copies 16 bytes; eight threads copy a column, and each of them copies its piece of every COLS_AT_ONCE-th column. */
template <int THREADS> struct tile_columns {
    static constexpr int COLS_AT_ONCE = THREADS / TILE_CHUNKS, ROUNDS = TILE_N / COLS_AT_ONCE;
    const uint16_t *x;    /* this thread's next piece of the first row */
    const uint32_t *from; /* [ROUNDS]: start of its columns, in 16 bytes */
    int place;            /* offset in a stage: piece c of a column is at c ^ column % 8 */
    int n, n_group;       /* columns; groups of 2 TILE_K elements */

    /* Copies the next N stages of n columns. */
    template <int N> __device__ __forceinline__ void fetch(uint16_t *const to[N], int n) {
        uint32_t begin[ROUNDS];
#pragma unroll
        for (int i = 0; i < ROUNDS; i += 4)
            if (i * COLS_AT_ONCE < n) *(uint4 *)(begin + i) = *(const uint4 *)(from + i);
#pragma unroll
        for (int i = 0; i < ROUNDS; i++) {
            if (i * COLS_AT_ONCE >= n) break;
            const uint16_t *piece = x + (uint64_t)begin[i] * 8;
#pragma unroll
            for (int k = 0; k < N; k++)
                copy_async16(to[k] + place + i * COLS_AT_ONCE * TILE_K, piece + k * TILE_K, true);
        }
        x += N * TILE_K;
    }
};

/* The M fragments of a warp's rows for step s of eight. */
template <int F, int M>
__device__ __forceinline__ void tile_fragments(const tile_rows<F, M> &rows, int s,
                                               uint32_t a[M][4]) {
#pragma unroll
    for (int m = 0; m < M; m++) {
        rows.word(2 * m, s, a[m][0], a[m][2]);
        rows.word(2 * m + 1, s, a[m][1], a[m][3]);
    }
}

/* acc[m][n]: rows of fragment m times columns 8 n to 8 n + 7, in the layout of mma_16816. */
template <int F>
__device__ __forceinline__ void tile_product(tile_rows<F, 2> &rows,
                                             tile_columns<tile_threads(2)> &x, const grid_tables &g,
                                             uint16_t *shared, float acc[2][TILE_N / 8][4]) {
    int lane = (int)threadIdx.x % 32;
    uint16_t *stages[TILE_STAGES] = {shared, shared + TILE_N * TILE_K,
                                     shared + 2 * TILE_N * TILE_K};
    rows.load();
    x.template fetch<1>(stages, x.n);
    copy_commit();
    x.template fetch<1>(stages + 1, x.n);
    copy_commit();
#pragma unroll 1
    for (int group = 0; group < x.n_group; group++) {
        rows.open(g);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            if (half && group + 1 < x.n_group) rows.load();
            copy_wait<1>();
            __syncthreads();
            if (group + 1 < x.n_group) x.template fetch<1>(stages + 2, x.n);
            copy_commit();
            const uint16_t *from = stages[0] + lane % 8 * TILE_K;
#pragma unroll
            for (int s = 0; s < 4; s += 2) {
                uint32_t a[2][2][4];
                tile_fragments(rows, 4 * half + s, a[0]);
                tile_fragments(rows, 4 * half + s + 1, a[1]);
                const uint16_t *p = from + ((2 * s + lane / 8) ^ lane % 8) * 8;
#pragma unroll
                for (int n = 0; n < TILE_N / 8; n++) {
                    if (n % 2 == 0 && 8 * n >= x.n) break;
                    uint32_t b[4];
                    load_matrix4(b, p + n * 8 * TILE_K);
                    mma_16816(acc[0][n], a[0][0], b);
                    mma_16816(acc[1][n], a[0][1], b);
                    mma_16816(acc[0][n], a[1][0], b + 2);
                    mma_16816(acc[1][n], a[1][1], b + 2);
                }
            }
            uint16_t *read = stages[0];
            stages[0] = stages[1], stages[1] = stages[2], stages[2] = read;
        }
    }
}

/* The same for at most N columns with products of the warp group; a step runs while the next is dequantized. Of five
 * stages, the copy for the next group overwrites two of the three that no product reads any more; the last steps of
 * the previous group may still read the fourth. */
template <int F, int N>
__device__ __forceinline__ void
group_product(tile_rows<F, 1> &rows, tile_columns<tile_threads(1)> &x, const grid_tables &g,
              uint16_t *shared, float acc[1][TILE_N / 8][4]) {
    constexpr bool is_early = raw_words(F) <= 6; /* only if registers suffice */
    int stage = 0;
    uint64_t factor = group_factor(shared);
    uint32_t a[2][1][4];
    auto behind = [](int stage) { return stage == GROUP_STAGES - 1 ? 0 : stage + 1; };
    auto fetch = [&](int stage) {
        uint16_t *const to[2] = {shared + stage * TILE_N * TILE_K,
                                 shared + behind(stage) * TILE_N * TILE_K};
        x.template fetch<2>(to, N);
        copy_commit();
    };
    rows.load();
    fetch(0);
#pragma unroll 1
    for (int group = 0; group < x.n_group; group++) {
        rows.open(g);
        bool is_last = group + 1 == x.n_group;
        if (is_early && !is_last) rows.load();
        copy_wait<0>();
        group_sees();
        __syncthreads();
        int after = behind(stage), next = behind(after);
        if (!is_last) fetch(next);
#pragma unroll
        for (int s = 0; s < 8; s++) {
            uint64_t b = factor + (s < 4 ? stage : after) * (TILE_N * TILE_K / 8) + s % 4 * 2;
            if (s == 0 && !is_early && !is_last) rows.load();
            group_wait<1>();
            tile_fragments(rows, s, a[s % 2]);
            group_begin();
            group_mma<N>(acc[0], a[s % 2][0], b);
            group_commit();
        }
        stage = next;
    }
    group_wait<0>();
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) group_settled(acc[0][n][i]);
}

struct __align__(16) column { /* an output column: destination row, scale, factor of the bias */
    int32_t dst;
    float scale, factor;
};

/* Results and columns reuse the memory of the stages. Two blocks on sm_86 have 50 KB each, of
 * which the system reserves 1 KB. */
static_assert(TILE_STAGES * TILE_N * TILE_K * 2 >=
                      OUT_COLS * OUT_STRIDE * sizeof(float) + TILE_N * sizeof(column) &&
                  TILE_STAGES * TILE_N * TILE_K * 2 + TILE_N * 8 <= 49 << 10,
              "sm_86 and newer");

/* A warp computes M of the block's fragments of 16 rows. With gate and up, they alternate between the two matrices. */
template <int F, int M>
__device__ __forceinline__ void tile_block(const tile_job &j, grid_tables &tables, uint16_t *shared,
                                           int n_stage) {
    constexpr int THREADS = tile_threads(M);
    typedef tile_columns<THREADS> x_columns;
    __shared__ __align__(16) uint32_t from[TILE_N]; /* small: two blocks must fit into 100 KB */
    __shared__ int32_t dsts[TILE_N];
    int tid = (int)threadIdx.x, warp = tid / 32, lane = tid % 32, k = 0;
    bool gated = j.mode == TILE_GATED;
    threads_fit();
    while (!gated && k + 1 < j.n_o && (int)blockIdx.x >= j.o[k + 1].first_block) k++;
    const tile_out &o = j.o[k];
    pdl_trigger();
    if (grid_words(F)) grid_load(tables, F, (uint32_t *)(shared + n_stage * TILE_N * TILE_K));
    pdl_wait();
    int32_t tile = (int32_t)blockIdx.y, mat = 0, n_col = j.n_row - tile * TILE_N, pair_at = 0;
    if (j.list.cap) {
        mat = j.list.expert[tile];
        if (mat < 0) return;
        n_col = j.list.n[tile];
        pair_at = j.list.at[tile];
    }
    n_col = n_col < TILE_N ? n_col : TILE_N;
    int64_t k_halves = halves_of(o.w.n_in);
    auto row_of_x = [&](int32_t dst) { return j.list.cap ? dst / j.per_x : dst; };
    if (tid < TILE_N) {
        int32_t dst = 0;
        if (tid < n_col) dst = j.list.cap ? j.list.pairs[pair_at + tid] : tile * TILE_N + tid;
        dsts[tid] = dst;
        from[tid % x_columns::COLS_AT_ONCE * x_columns::ROUNDS + tid / x_columns::COLS_AT_ONCE] =
            (uint32_t)(row_of_x(dst) * (k_halves / 8));
    }
    __syncthreads();
    int n_out = gated ? TILE_M / 2 : TILE_M; /* output rows per block */
    int64_t first = ((int64_t)blockIdx.x - o.first_block) * n_out, left = o.w.n_row - first;
    int64_t row0 = mat * o.w.n_row + first;
    tile_rows<F, M> rows;
#pragma unroll
    for (int m = 0; m < M; m++) {
        int fragment = warp * M + m;
        rows.w[m] = rows_from<F>(gated && fragment % 2 == 0 ? j.o[1].w : o.w, row0);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int row = (gated ? fragment / 2 : fragment) * 16 + lane / 4 + i * 8;
            row = row < left ? row : (int)left - 1;
            row *= F == FORM_F32 ? o.w.n_in : o.w.n_unit;
            rows.at[2 * m + i] = (uint32_t)unknown(row); /* kept in a register, not recomputed */
        }
    }
    rows.begin(lane % 4);
    float acc[M][TILE_N / 8][4] = {};
    int col = tid / TILE_CHUNKS, chunk = tid % TILE_CHUNKS;
    x_columns x = {j.x.row + o.first_group * TILE_GROUP + chunk * 8, from + col * x_columns::ROUNDS,
                   col * TILE_K + (chunk ^ col % 8) * 8, n_col, o.n_group};
    if constexpr (M == 2) tile_product<F>(rows, x, tables, shared, acc);
    else if (n_col <= 32) group_product<F, 32>(rows, x, tables, shared, acc);
    else if (n_col <= 48) group_product<F, 48>(rows, x, tables, shared, acc);
    else if (n_col <= 64) group_product<F, 64>(rows, x, tables, shared, acc);
    else if (n_col <= 80) group_product<F, 80>(rows, x, tables, shared, acc);
    else if (n_col <= 96) group_product<F, 96>(rows, x, tables, shared, acc);
    else group_product<F, 128>(rows, x, tables, shared, acc);
    float *out = (float *)shared; /* [OUT_COLS][OUT_STRIDE] */
    /* stored after the results, in memory that the stages no longer use */
    column *columns = (column *)(out + OUT_COLS * OUT_STRIDE);
    int row = tid % n_out;
    const float *mine = out + (gated ? row / 16 * 32 + row % 16 : row);
    first += row;
    float bias = 0.0f, scale = tile_rows<F, M>::gain();
    if (j.mode == TILE_PUT) {
        scale *= o.scale;
        if (o.bias && row < left) bias = o.bias[first];
    }
    char *to = (char *)(o.dst + first);
    int32_t stride = (int32_t)(o.dst_stride * sizeof(float));
    column own = {0, 0.0f, 1.0f};
    if (tid < n_col) {
        own.dst = dsts[tid];
        if (j.mode == TILE_PUT && j.factor) own.factor = logistic(j.factor[own.dst]);
        own.scale = j.x.scale[row_of_x(own.dst)] * scale * own.factor;
    }
    __syncthreads(); /* the stages are no longer read */
    if (tid < n_col) columns[tid] = own;
#pragma unroll 1
    for (int col0 = 0; col0 < n_col; col0 += OUT_COLS) {
        __syncthreads();
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int n = 0; n < OUT_COLS / 8; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    out[(n * 8 + 2 * (lane % 4) + i % 2) * OUT_STRIDE + warp * 16 * M + m * 16 +
                        lane / 4 + i / 2 * 8] = col0 ? acc[m][n + OUT_COLS / 8][i] : acc[m][n][i];
        __syncthreads();
        if (row >= left) continue;
        int n = n_col - col0 < OUT_COLS ? n_col - col0 : OUT_COLS;
        auto each_column = [&](auto put) {
#pragma unroll 8
            for (int c = tid / n_out; c < n; c += THREADS / n_out) {
                const column &k = columns[col0 + c];
                put((float *)(to + (int64_t)k.dst * stride), mine + c * OUT_STRIDE, k);
            }
        };
        if (j.mode == TILE_PLAIN || (j.mode == TILE_PUT && !o.add && !o.bias)) {
            each_column([](float *dst, const float *y, const column &k) { *dst = *y * k.scale; });
        } else if (j.mode == TILE_PUT) {
            each_column([&](float *dst, const float *y, const column &k) {
                *dst = (o.add ? *dst : 0.0f) + (*y * k.scale + bias * k.factor);
            });
        } else if (gated) {
            each_column([&](float *dst, const float *y, const column &k) {
                *dst = act_of(j.act, *y * k.scale) * (y[16] * k.scale);
            });
        } else if (j.mode == TILE_ACT) {
            each_column([&](float *dst, const float *y, const column &k) {
                *dst = act_of(j.act, *y * k.scale);
            });
        } else {
            each_column([&](float *dst, const float *y, const column &k) {
                *dst = act_of(j.act, *dst) * (*y * k.scale);
            });
        }
    }
}

template <int F>
__global__ void __launch_bounds__(tile_threads(HAS_GROUP_MMA ? 1 : 2), 2)
    tile_kernel(tile_job j, grid_tables tables) {
    DYNAMIC_SHARED(uint16_t, room); /* stages, then grid points */
    if (HAS_GROUP_MMA) tile_block<F, 1>(j, tables, room + group_gap(room) / 2, GROUP_STAGES);
    else tile_block<F, 2>(j, tables, room, TILE_STAGES);
}

/* A thread adds up one output. Roofline: parts x rows x 4 bytes per token from the L2 cache. */
enum { SUM_TOKS = 2 };
__global__ void __launch_bounds__(TILE_M *SUM_TOKS) sum_split_kernel(tile_job j, tile_split s) {
    int32_t t = (int32_t)(blockIdx.y * SUM_TOKS + threadIdx.x / TILE_M), k = 0;
    int32_t column = (int32_t)(blockIdx.x * TILE_M + threadIdx.x % TILE_M);
    pdl_trigger();
    while (k + 1 < j.n_o && (int)blockIdx.x >= j.o[k + 1].first_block) k++;
    const tile_out &o = j.o[k];
    int64_t row = column - (int64_t)o.first_block * TILE_M;
    pdl_wait();
    if (t >= j.n_row || row >= o.w.n_row) return;
    const float *from = s.sums + (int64_t)t * s.width + column;
    int64_t step = (int64_t)j.n_row * s.width;
    float y = from[0];
#pragma unroll 4
    for (int i = 1; i < s.n; i++) y += from[i * step];
    y = o.scale * y + (o.bias ? o.bias[row] : 0.0f);
    if (j.factor) y *= logistic(j.factor[t]);
    float *dst = o.dst + t * o.dst_stride + row;
    *dst = o.add ? *dst + y : y;
}

/* Numbers the blocks of the first n_o outputs; rows: those of a block. Returns how many there are. */
static int32_t number_blocks(tile_job &j, int32_t n_o, int32_t rows) {
    int32_t blocks = 0;
    for (int32_t i = 0; i < n_o; i++) {
        j.o[i].first_block = blocks;
        blocks += (int32_t)((j.o[i].w.n_row + rows - 1) / rows);
    }
    return blocks;
}

void cuda_sum_split(struct cuda *c, const tile_job &job, const tile_split &s) {
    tile_job j = job;
    int32_t blocks = number_blocks(j, j.n_o, TILE_M);
    dim3 grid((unsigned)blocks, (unsigned)((j.n_row + SUM_TOKS - 1) / SUM_TOKS));
    launch(c, sum_split_kernel, grid, dim3(TILE_M * SUM_TOKS), 0, j, s);
}

/* As many parts as run at once, of at least SPLIT_EACH groups, and an even number of groups, because the fields of 8
 * units (two groups) are stored together. */
enum { SPLIT_EACH = 2, SPLIT_BLOCKS = 144 };
static_assert(SPLIT_BLOCKS * TILE_M * TILE_N * 4 <= SPLIT_BYTES, "scratch of split products");
tile_split cuda_split(struct cuda *c, int32_t n_row, int64_t n_group, int64_t n_block,
                      int64_t width, int64_t most) {
    tile_split s = {};
    int64_t at_once = (c->n_sm < SPLIT_BLOCKS ? c->n_sm : (int64_t)SPLIT_BLOCKS) / n_block;
    if (most > at_once) most = at_once;
    if (most > n_group / SPLIT_EACH) most = n_group / SPLIT_EACH;
    if (n_row > TILE_N || c->params.precise || most < 2) return s;
    s.each = (int32_t)(((n_group + most - 1) / most + 1) & ~(int64_t)1);
    s.n = (int32_t)((n_group + s.each - 1) / s.each), s.width = (int32_t)width;
    size_t bytes = (size_t)s.n * (size_t)n_row * (size_t)width * sizeof(float);
    if (s.n < 2 || bytes > c->n_scratch - c->scratch_used) return tile_split{};
    s.sums = (float *)cuda_take(c, bytes);
    return s;
}

/* Splits the product if it has few tiles. Returns whether it is done. */
static bool tiles_split(struct cuda *c, const tile_job &job) {
    tile_job j = job, part = {};
    int32_t n_unit = j.o[0].w.n_unit, n_group = n_unit / 4;
    if (j.list.cap || j.mode != TILE_PUT || n_unit % 4 || is_number_form(j.o[0].w.form))
        return false;
    int32_t blocks = number_blocks(j, j.n_o, TILE_M);
    size_t kept = c->scratch_used;
    tile_split s =
        cuda_split(c, j.n_row, n_group, blocks, (int64_t)blocks * TILE_M, TILE_OUTS / j.n_o);
    if (!s.sums) return false;
    const plane_sizes size = sizes_of(j.o[0].w.form);
    part.mode = TILE_PLAIN, part.n_row = j.n_row, part.x = j.x, part.reads = j.reads / (float)s.n;
    for (int32_t p = 0; p < s.n; p++)
        for (int32_t i = 0; i < j.n_o; i++) {
            tile_out &o = part.o[part.n_o++];
            int64_t units = (int64_t)p * s.each * 4;
            o.w = j.o[i].w;
            o.w.codes += units * size.codes, o.w.more += units * size.more;
            o.w.sub += units * size.sub, o.w.top += units / size.top_units * size.top;
            o.dst = s.sums + (int64_t)p * j.n_row * s.width + j.o[i].first_block * TILE_M;
            o.dst_stride = s.width, o.first_group = p * s.each;
            o.n_group = p + 1 < s.n ? s.each : n_group - o.first_group;
        }
    cuda_tiles(c, part);
    cuda_sum_split(c, j, s);
    c->scratch_used = kept; /* a kernel that takes it again waits for this one */
    return true;
}

void cuda_tiles(struct cuda *c, const tile_job &job) {
    if (tiles_split(c, job)) return;
    tile_job j = job;
    bool gated = j.mode == TILE_GATED;
    int form = j.o[0].w.form;
    for (int32_t i = 0; i < j.n_o + gated; i++) {
        cuda_reads_planes(c, j.o[i].w, job.reads);
        if (!j.o[i].n_group) j.o[i].n_group = (int32_t)(halves_of(j.o[i].w.n_in) / TILE_GROUP);
    }
    int32_t blocks = number_blocks(j, gated ? 1 : j.n_o, gated ? TILE_M / 2 : TILE_M);
    dim3 grid((unsigned)blocks,
              (unsigned)(j.list.cap ? j.list.cap : (j.n_row + TILE_N - 1) / TILE_N));
    bool group = c->has_group_mma;
    unsigned n_thread = (unsigned)tile_threads(group ? 1 : 2);
    size_t room = (size_t)(group ? GROUP_STAGES : TILE_STAGES) * TILE_N * TILE_K * 2 +
                  (group ? GROUP_ALIGN : 0) + (size_t)grid_words(form) * 4;
    switch (form) {
#define X(F)                                                                                       \
    case F: launch(c, tile_kernel<F>, grid, dim3(n_thread), room, j, c->tables); break;
        FOR_EACH_FORM(X)
#undef X
    default: launch(c, tile_kernel<FORM_F32>, grid, dim3(n_thread), room, j, c->tables);
    }
}

/* ---- conversion to f16 ---- */

/* One block per row. A warp converts groups of 128 elements: lane 4 s + u word s of unit u. A lane keeps the words of
 * its first HALVES_KEPT groups in registers. */
enum { HALVES_KEPT = 4 };
__global__ void to_halves_kernel(const float *x, i64 stride, i64 n, uint16_t *out, float *scale) {
    __shared__ uint32_t room[32];
    threads_fit();
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, n_warp = (int)blockDim.x / 32;
    int n_group = (int)(halves_of(n) / TILE_GROUP), own = lane % 4 * 32 + lane / 4 * 4;
    pdl_trigger();
    pdl_wait();
    x += blockIdx.x * stride;
    out += blockIdx.x * halves_of(n);
    float4 kept[HALVES_KEPT];
    uint32_t most = 0; /* as bits: NaN and infinity are larger than finite values */
#pragma unroll
    for (int i = 0; i < HALVES_KEPT; i++) {
        int group = warp + i * n_warp;
        kept[i] = make_float4(0, 0, 0, 0);
        if (group < n_group) kept[i] = four_at(x, group * TILE_GROUP + own, (int)n);
        most = max(most, largest4(kept[i]));
    }
    for (int group = warp + HALVES_KEPT * n_warp; group < n_group; group += n_warp)
        most = max(most, largest4(four_at(x, group * TILE_GROUP + own, (int)n)));
    most = lanes_most(most);
    if (lane == 0) room[warp] = most;
    __syncthreads();
    for (int i = 0; i < n_warp; i++) most = max(most, room[i]);
    /* Scale 2^(e - 9): values below 1,024. In a row with NaN or infinity all elements become NaN. */
    int e = (int)(most >> 23) - 9;
    bool bad = most >= 0x7f800000u;
    float s = e < 1 ? 1.17549435e-38f : __int_as_float(e << 23), inv = 1.0f / s;
    if (bad) s = __int_as_float(0x7fc00000);
    /* in the order that tile_product reads */
    auto put = [&](int group, float4 v) {
        uint16_t *to = out + group * TILE_GROUP + lane / 4 * 16 + lane % 4 * 2;
        *(uint32_t *)to = bad ? 0 : two_halves(v.x * inv, v.y * inv);
        *(uint32_t *)(to + 8) = bad ? 0 : two_halves(v.z * inv, v.w * inv);
    };
#pragma unroll
    for (int i = 0; i < HALVES_KEPT; i++)
        if (warp + i * n_warp < n_group) put(warp + i * n_warp, kept[i]);
    for (int group = warp + HALVES_KEPT * n_warp; group < n_group; group += n_warp)
        put(group, four_at(x, group * TILE_GROUP + own, (int)n));
    if (threadIdx.x == 0) scale[blockIdx.x] = s;
}

halves cuda_to_halves(struct cuda *c, const float *x, int64_t stride, int32_t n_row, int64_t n) {
    halves h = {x, (uint16_t *)cuda_take(c, (size_t)n_row * (size_t)halves_of(n) * 2),
                (float *)cuda_take(c, (size_t)n_row * sizeof(float))};
    if (!c->err.code)
        launch(c, to_halves_kernel, dim3((unsigned)n_row), dim3(n > 1024 ? 256 : 128), 0, x, stride,
               n, h.row, h.scale);
    return h;
}

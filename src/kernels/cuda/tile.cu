/* tile.cu: decoded weights times halves, accumulated in float: 2 n_in n_out n_tok operations.
 *
 * A warp has 32 rows of weights and all columns (tokens) of its block, so each weight is decoded once per
 * 128 tokens, straight into the registers that mma.m16n8k16 reads; only activations go through shared
 * memory, three stages deep, copied asynchronously. Of four units of 32 elements each of the four lanes
 * that share a row decodes one: mma sums over 16 elements at a time in an order of our choice, as long as
 * activations lie in the same order (to_halves_kernel puts them so). Step s of eight takes word s of each
 * unit.
 *
 * Decoding is about 2 instructions a weight: bytes to halves by a permutation, minus the middle, times the
 * scale in halves. Scales are multiplied by TILE_GAIN so that small ones keep their bits. */
#include <utility>

#include "kernels/cuda/linear.cuh"
#include "kernels/cuda/tile.cuh"

enum {
    TILE_THREADS = 128,
    TILE_K = 64, /* halves of a column in one stage */
    TILE_STAGES = 3,
    TILE_CHUNKS = TILE_K / 8, /* of 16 bytes */
    OUT_COLS = 64,            /* columns of a tile that go out at once, */
    OUT_STRIDE = TILE_M + 4,  /* through shared memory, floats a column */
};
#define TILE_GAIN 64.0f

/* What a lane holds of four rows of weights: a unit of each, and the loads of the next. */
template <int F> struct tile_rows {
    static constexpr uint32_t flip =
        form_traits<F>::mid || form_traits<F>::has_offset ? 0u : 0x80808080u;
    static constexpr int mid = flip ? 128 : form_traits<F>::mid;
    raw<F> next[4];
    uint32_t q[4][8], scale[4][2], offset[4];
    bool has; /* the next unit is one of the row's */

    __device__ __forceinline__ void load(const planes *const w[2], const int64_t at[4], int u) {
        has = u < w[0]->n_unit;
        if (!has) u = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) load_unit<F>(next[i], *w[i / 2], at[i] + u);
    }
    __device__ __forceinline__ void open(const grid_tables &g) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            unpacked v;
            unpack<F, true>(next[i], g, v);
            float gain = has ? TILE_GAIN : 0.0f;
#pragma unroll
            for (int k = 0; k < 8; k++) q[i][k] = v.q[k];
#pragma unroll
            for (int k = 0; k < 2; k++) {
                float s = v.scale[k] * gain;
                scale[i][k] = two_halves(s, s);
            }
            offset[i] = two_halves(-v.offset[0] * gain, -v.offset[1] * gain);
        }
    }
    /* The second half of the unit takes the place of the first. */
    __device__ __forceinline__ void turn(void) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
            for (int k = 0; k < 4; k++) q[i][k] = q[i][k + 4];
            if constexpr (form_traits<F>::has_halves) scale[i][0] = scale[i][1];
            if constexpr (F == FORM_N2K) offset[i] >>= 16;
        }
    }
    /* Elements 4 s .. 4 s + 3 of the half unit of row i. */
    __device__ __forceinline__ void word(int i, int s, uint32_t &lo, uint32_t &hi) const {
        uint32_t x = q[i][s] ^ flip, f = scale[i][0];
        constexpr uint32_t middle = (0x6400u + mid) * 0x10001u; /* 1,024 + mid, twice */
        lo = halves_sub(__byte_perm(x, 0x64646464u, 0x4140), middle);
        hi = halves_sub(__byte_perm(x, 0x64646464u, 0x4342), middle);
        if constexpr (form_traits<F>::has_offset) {
            uint32_t o = offset[i];
            if constexpr (F == FORM_N2K) o = __byte_perm(o, o, 0x1010);
            lo = halves_fma(lo, f, o);
            hi = halves_fma(hi, f, o);
        } else {
            lo = halves_mul(lo, f);
            hi = halves_mul(hi, f);
        }
    }
    static __device__ __forceinline__ float gain(void) { return 1.0f / TILE_GAIN; }
};

/* Rows of numbers are read when they are needed. */
template <> struct tile_rows<FORM_F32> {
    const planes *w[2];
    int64_t at[4];
    int next, first; /* units of 32; element of this half unit */

    __device__ __forceinline__ void load(const planes *const mat[2], const int64_t rows[4], int u) {
        next = u;
        w[0] = mat[0], w[1] = mat[1];
#pragma unroll
        for (int i = 0; i < 4; i++) at[i] = rows[i];
    }
    __device__ __forceinline__ void open(const grid_tables &) { first = next * 32; }
    __device__ __forceinline__ void turn(void) { first += 16; }
    __device__ __forceinline__ void word(int i, int s, uint32_t &lo, uint32_t &hi) const {
        const planes &m = *w[i / 2];
        int k = first + 4 * s, n = m.n_in;
        int64_t from = at[i] + k;
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

/* acc[m][n]: rows of fragment m times columns 8 n ..., as mma_16816 has them. cols: rows of x, below 0: none. */
template <int F>
__device__ __forceinline__ void
tile_product(const planes *const w[2], const int64_t at[4], const uint16_t *x, const int32_t *cols,
             int n_col, const grid_tables &g, uint16_t *shared, float acc[2][TILE_N / 8][4]) {
    int tid = (int)threadIdx.x, lane = tid % 32, quad = lane % 4;
    int64_t k_halves = halves_of(w[0]->n_in);
    int n_half = (int)(k_halves / TILE_K);
    tile_rows<F> rows;
    auto copy = [&](int half, int stage) {
        if (half < n_half) {
            uint16_t *to = shared + stage * TILE_N * TILE_K;
            int chunk = tid % TILE_CHUNKS;
#pragma unroll
            for (int i = 0; i < TILE_N * TILE_CHUNKS / TILE_THREADS; i++) {
                int col = tid / TILE_CHUNKS + i * (TILE_THREADS / TILE_CHUNKS);
                if (i * (TILE_THREADS / TILE_CHUNKS) >= n_col) break;
                int32_t from = cols[col];
                copy_async16(to + col * TILE_K + (chunk ^ col % 8) * 8,
                             x + (from < 0 ? 0 : from) * k_halves + half * TILE_K + chunk * 8,
                             from >= 0);
            }
        }
        copy_commit();
    };
    auto multiply = [&](int stage) {
        const uint16_t *from = shared + stage * TILE_N * TILE_K + lane % 8 * TILE_K;
#pragma unroll
        for (int s = 0; s < 4; s += 2) {
            uint32_t a[2][2][4];
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int m = 0; m < 2; m++) {
                    rows.word(2 * m, s + i, a[i][m][0], a[i][m][2]);
                    rows.word(2 * m + 1, s + i, a[i][m][1], a[i][m][3]);
                }
            const uint16_t *p = from + ((2 * s + lane / 8) ^ lane % 8) * 8;
#pragma unroll
            for (int n = 0; n < TILE_N / 8; n++) {
                if (n % 2 == 0 && 8 * n >= n_col) break;
                uint32_t b[4];
                load_matrix4(b, p + n * 8 * TILE_K);
                mma_16816(acc[0][n], a[0][0], b);
                mma_16816(acc[1][n], a[0][1], b);
                mma_16816(acc[0][n], a[1][0], b + 2);
                mma_16816(acc[1][n], a[1][1], b + 2);
            }
        }
    };
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int n = 0; n < TILE_N / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) acc[m][n][i] = 0.0f;
    rows.load(w, at, quad);
    copy(0, 0);
    copy(1, 1);
    int stage = 0, spare = 2; /* of TILE_STAGES: being read, free for the next copy */
#pragma unroll 1
    for (int half = 0; half < n_half; half++) {
        if (half % 2 == 0) {
            rows.open(g);
        } else {
            rows.turn();
            if (half + 1 < n_half) rows.load(w, at, (half + 1) * (TILE_K / 32) + quad);
        }
        copy_wait<1>();
        __syncthreads();
        copy(half + 2, spare);
        multiply(stage);
        stage = stage + 1 == TILE_STAGES ? 0 : stage + 1;
        spare = spare + 1 == TILE_STAGES ? 0 : spare + 1;
    }
}

template <int F>
__global__ void __launch_bounds__(TILE_THREADS, 2) tile_kernel(tile_job j, grid_tables tables) {
    DYNAMIC_SHARED(uint16_t, shared); /* stages, then grid points */
    __shared__ int32_t cols[TILE_N], dsts[TILE_N];
    int tid = (int)threadIdx.x, warp = tid / 32, lane = tid % 32, k = 0;
    bool gated = j.mode == TILE_GATED;
    while (!gated && k + 1 < j.n_o && (int)blockIdx.x >= j.o[k + 1].first_block) k++;
    const tile_out &o = j.o[k];
    launch_next();
    if (grid_words(F)) grid_load(tables, F, (uint32_t *)(shared + TILE_STAGES * TILE_N * TILE_K));
    wait_previous();
    int32_t tile = (int32_t)blockIdx.y, mat = 0, n_col = j.n_row - tile * TILE_N, pair_at = 0;
    if (j.list.cap) {
        mat = j.list.expert[tile];
        if (mat < 0) return;
        n_col = j.list.n[tile];
        pair_at = j.list.at[tile];
    }
    n_col = n_col < TILE_N ? n_col : TILE_N;
    if (tid < TILE_N) {
        int32_t dst = -1;
        if (tid < n_col) dst = j.list.cap ? j.list.pairs[pair_at + tid] : tile * TILE_N + tid;
        dsts[tid] = dst;
        cols[tid] = dst < 0 || !j.list.cap ? dst : dst / j.per_x;
    }
    __syncthreads();
    int each = gated ? 16 : 32; /* rows of dst of a warp */
    int64_t first = ((int64_t)blockIdx.x - o.first_block) * (4 * each) + warp * each + lane / 4;
    const planes *w[2] = {gated ? &j.o[1].w : &o.w, &o.w};
    bool is_number = F == FORM_F32;
    int64_t at[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int64_t row = first + (gated ? 0 : i / 2 * 16) + i % 2 * 8;
        row = row < o.w.n_row ? row : o.w.n_row - 1;
        at[i] = (mat * o.w.n_row + row) * (is_number ? o.w.n_in : o.w.n_unit);
    }
    float acc[2][TILE_N / 8][4];
    tile_product<F>(w, at, j.x, cols, n_col, tables, shared, acc);
    float *out = (float *)shared; /* [OUT_COLS][OUT_STRIDE] */
    int n_out = 4 * each, row = tid % n_out;
    first = ((int64_t)blockIdx.x - o.first_block) * n_out + row;
#pragma unroll 1
    for (int col0 = 0; col0 < n_col; col0 += OUT_COLS) {
        __syncthreads();
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int n = 0; n < OUT_COLS / 8; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    out[(n * 8 + 2 * (lane % 4) + i % 2) * OUT_STRIDE + warp * 32 + m * 16 +
                        lane / 4 + i / 2 * 8] = col0 ? acc[m][n + OUT_COLS / 8][i] : acc[m][n][i];
        __syncthreads();
        if (first >= o.w.n_row) continue;
#pragma unroll 1
        for (int col = tid / n_out; col < OUT_COLS && col0 + col < n_col;
             col += TILE_THREADS / n_out) {
            int32_t t = dsts[col0 + col];
            float s = j.x_scale[cols[col0 + col]] * tile_rows<F>::gain();
            const float *y = out + col * OUT_STRIDE + (gated ? row / 16 * 32 + row % 16 : row);
            float v = *y * s, *dst = o.dst + t * o.dst_stride + first;
            if (j.mode == TILE_PUT) {
                v = o.scale * v + (o.bias ? o.bias[first] : 0.0f);
                if (j.factor) v *= logistic(j.factor[t]);
                *dst = o.add ? *dst + v : v;
            } else if (j.mode == TILE_PLAIN) {
                *dst = v;
            } else {
                float a = act_of(j.act, j.mode == TILE_TIMES ? *dst : v);
                *dst = j.mode == TILE_ACT ? a : a * (gated ? y[16] * s : v);
            }
        }
    }
}

void cuda_tiles(struct cuda *c, const tile_job &job) {
    tile_job j = job;
    int32_t blocks = 0, rows = j.mode == TILE_GATED ? TILE_M / 2 : TILE_M;
    int form = j.o[0].w.form;
    for (int32_t i = 0; i < (j.mode == TILE_GATED ? 1 : j.n_o); i++) {
        j.o[i].first_block = blocks;
        blocks += (int32_t)((j.o[i].w.n_row + rows - 1) / rows);
    }
    dim3 grid((unsigned)blocks,
              (unsigned)(j.list.cap ? j.list.cap : (j.n_row + TILE_N - 1) / TILE_N));
    size_t room = (size_t)TILE_STAGES * TILE_N * TILE_K * 2 + (size_t)grid_words(form) * 4;
    switch (form) {
#define X(F)                                                                                       \
    case F: launch(c, tile_kernel<F>, grid, dim3(TILE_THREADS), room, j, c->tables); break;
        FOR_EACH_FORM(X)
#undef X
    default: launch(c, tile_kernel<FORM_F32>, grid, dim3(TILE_THREADS), room, j, c->tables);
    }
}

/* ---- halves ---- */

__global__ void to_halves_kernel(const float *x, int64_t stride, int64_t n, uint16_t *out,
                                 float *scale) {
    __shared__ float room[32];
    launch_next();
    wait_previous();
    x += blockIdx.x * stride;
    int64_t padded = halves_of(n);
    out += blockIdx.x * padded;
    float most = 0;
    bool bad = false;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        float a = fabsf(x[i]);
        bad |= !(a <= 3.402823466e38f);
        most = fmaxf(most, a);
    }
    most = lanes_max(bad ? __int_as_float(0x7f800000) : most, 32);
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = most;
    __syncthreads();
    for (int i = 0; i < (int)blockDim.x / 32; i++) most = fmaxf(most, room[i]);
    /* 2^(e - 9): values below 1,024. Rows that are not finite become NaN throughout. */
    int e = (__float_as_int(most) >> 23 & 255) - 9;
    float s = e < 1 ? 1.17549435e-38f : __int_as_float(e << 23);
    float inv = 1.0f / s;
    if (!(most <= 3.402823466e38f)) s = __int_as_float(0x7fc00000), inv = 0.0f;
    /* a pair: two elements of word p / 8 % 8 of unit p % 4 (tile_product's order) */
    for (int64_t p = threadIdx.x; 2 * p < padded; p += blockDim.x) {
        int64_t i = p / 64 * 128 + p % 4 * 32 + p % 64 / 8 * 4 + p / 4 % 2 * 2;
        float a = i < n && inv != 0.0f ? x[i] * inv : 0.0f;
        float b = i + 1 < n && inv != 0.0f ? x[i + 1] * inv : 0.0f;
        *(uint32_t *)(out + 2 * p) = two_halves(a, b);
    }
    if (threadIdx.x == 0) scale[blockIdx.x] = s;
}

void cuda_to_halves(struct cuda *c, const float *x, int64_t stride, int32_t n_row, int64_t n,
                    uint16_t *out, float *scale) {
    launch(c, to_halves_kernel, dim3((unsigned)n_row), dim3(n > 1024 ? 256 : 128), 0, x, stride, n,
           out, scale);
}

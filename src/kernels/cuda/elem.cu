/* elem.cu: norms, elementwise ops and row copies. Each reads and writes every byte once. At decode they cost their
 * launch; at prefill, 8 bytes per float at memory bandwidth. */
#include <utility>

#include "kernels/cuda/cuda_impl.cuh"

enum { ELEM_THREADS = 256 };

static dim3 blocks_of(int64_t n) {
    int64_t b = (n + ELEM_THREADS - 1) / ELEM_THREADS;
    return dim3((unsigned)(b < 4096 ? b : 4096));
}

/* ---- rows ---- */

enum { NORM_THREADS = 256 };

/* One block per row. x, w and out are 16-byte aligned and n is a multiple of 4 (of 32 if there is an a8). The order of
 * additions depends on n alone and differs from that of norm_input (gemv.cu). Quantization does not use the sum, so it is
 * done before the barrier, as in norm_input. FULL: every thread has exactly FULL groups of four, and w is given; 0: any n. */
template <int FULL>
__global__ void __launch_bounds__(NORM_THREADS)
    rms_norm_kernel(float *out, const float *x, const float *w, int32_t n, float eps, float scale,
                    act8 a8) {
    constexpr int KEPT =
        FULL ? FULL : 4; /* groups of four in registers: rows up to 4,096 are read once */
    __shared__ __align__(16) float room[NORM_THREADS / 32];
    int tid = (int)threadIdx.x, first = (int)blockIdx.x * (n / 4) + tid;
    const float4 *x4 = (const float4 *)x + first, *w4 = (const float4 *)w + tid;
    float4 *out4 = (float4 *)out + first;
    float4 v[KEPT], g[KEPT];
    uint2 meta[KEPT];
    float sum = 0;
    auto has = [&](int k) { return FULL || 4 * (tid + k * NORM_THREADS) < n; };
    /* whether any thread has it */
    auto is = [&](int k) { return FULL ? k < FULL : k * 4 * NORM_THREADS < n; };
    auto weight = [&](int k) {
        return FULL || (w && has(k)) ? __ldg(w4 + k * NORM_THREADS) : make_float4(1, 1, 1, 1);
    };
    auto four = [&](int k) { return has(k) ? x4[k * NORM_THREADS] : make_float4(0, 0, 0, 0); };
    auto add = [&](float4 a) { sum += a.x * a.x + a.y * a.y + (a.z * a.z + a.w * a.w); };
    /* stores the quants, which are final */
    auto round = [&](int k, float4 a) {
        rounded4 r = round4(a);
        if (has(k)) ((uint32_t *)a8.q)[first + k * NORM_THREADS] = r.codes;
        return make_uint2((uint32_t)__float_as_int(r.scale), r.sums);
    };
    auto put = [&](int k, float4 a, uint2 m, float f) {
        if (!has(k)) return;
        out4[k * NORM_THREADS] = make_float4(a.x * f, a.y * f, a.z * f, a.w * f);
        m.x = (uint32_t)__float_as_int(__int_as_float((int)m.x) * f);
        if (a8.q && tid % 8 == 0) ((uint2 *)a8.meta)[(first + k * NORM_THREADS) / 8] = m;
    };
#pragma unroll
    for (int k = 0; k < KEPT; k++)
        if (is(k)) g[k] = weight(k);
    pdl_trigger();
    pdl_wait();
#pragma unroll
    for (int k = 0; k < KEPT; k++)
        if (is(k)) v[k] = four(k);
#pragma unroll
    for (int k = 0; k < KEPT; k++)
        if (is(k)) {
            add(v[k]);
            v[k] = make_float4(v[k].x * g[k].x, v[k].y * g[k].y, v[k].z * g[k].z, v[k].w * g[k].w);
        }
#pragma unroll 1
    for (int k = KEPT; is(k); k++) add(four(k));
    sum = lanes_sum(sum, 32);
    if (tid % 32 == 0) room[tid / 32] = sum;
#pragma unroll
    for (int k = 0; k < KEPT; k++)
        if (is(k) && a8.q) meta[k] = round(k, v[k]);
    __syncthreads();
    sum = 0;
#pragma unroll
    for (int i = 0; i < NORM_THREADS / 32; i++) sum += room[i];
    float f = rsqrtf(sum * scale + eps);
#pragma unroll
    for (int k = 0; k < KEPT; k++)
        if (is(k)) put(k, v[k], meta[k], f);
#pragma unroll 1
    for (int k = KEPT; is(k); k++) {
        float4 a = four(k), b = weight(k);
        a = make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
        put(k, a, a8.q ? round(k, a) : make_uint2(0, 0), f);
    }
}

/* Rows that are not 16-byte aligned or whose length is not a multiple of four. */
__global__ void __launch_bounds__(NORM_THREADS)
    rms_norm_odd_kernel(float *out, const float *x, const float *w, int32_t n, float eps) {
    __shared__ float room[32];
    x += blockIdx.x * (int64_t)n;
    out += blockIdx.x * (int64_t)n;
    pdl_trigger();
    pdl_wait();
    float sum = 0;
    for (int i = (int)threadIdx.x; i < n; i += NORM_THREADS) sum += x[i] * x[i];
    float f = 1.0f / sqrtf(block_sum(sum, room) / (float)n + eps);
    for (int i = (int)threadIdx.x; i < n; i += NORM_THREADS) out[i] = x[i] * f * (w ? w[i] : 1.0f);
}

static bool is_fours(const void *a, const void *b, const void *c, int64_t n) {
    return ((uintptr_t)a | (uintptr_t)b | (uintptr_t)c) % 16 == 0 && n % 4 == 0;
}

static void norm_rows(struct cuda *c, const norm_row_job &j, int64_t n_row, int64_t n) {
    dim3 grid((unsigned)n_row), block(NORM_THREADS);
    auto kernel = rms_norm_kernel<0>;
    if (j.w && n == 2048) kernel = rms_norm_kernel<2>;
    if (j.w && n == 4096) kernel = rms_norm_kernel<4>;
    launch(c, kernel, grid, block, 0, j.out, j.x, j.w, (int32_t)n, j.eps, j.scale, j.a8);
}

/* The norm of a single row stays pending: the product that reads it fuses the norm (one_kernel in gemv.cu). */
void cuda_rms_norm(struct dev *d, float *out, const float *x, const float *w, int64_t n_row,
                   int64_t n, float eps) {
    struct cuda *c = (struct cuda *)d;
    if (!cuda_begin(c)) return;
    cuda_wrote(c, out, (size_t)(n_row * n) * sizeof *out);
    if (!is_fours(out, x, w, n)) {
        launch(c, rms_norm_odd_kernel, dim3((unsigned)n_row), dim3(NORM_THREADS), 0, out, x, w,
               (int32_t)n, eps);
        return;
    }
    act8 a8 = {};
    if (n_row <= BATCH_TOKS) a8 = cuda_shadow_new(c, out, (int32_t)n_row, n);
    norm_row_job j = {x, w, out, eps, 1.0f / (float)n, a8};
    if (n_row == 1 && a8.q && out != x) c->norm = j, c->norm_n = n;
    else norm_rows(c, j, n_row, n);
}

void cuda_norm_now(struct cuda *c) {
    norm_row_job j = c->norm;
    c->norm.x = NULL;
    if (!j.x || c->err.code) return;
    enum cuda_op op = c->op;
    c->op = OP_rms_norm;
    norm_rows(c, j, 1, c->norm_n);
    c->op = op;
}

__global__ void layer_norm_kernel(float *out, const float *x, const float *w, const float *b, i64 n,
                                  float eps) {
    __shared__ float room[32];
    pdl_trigger();
    pdl_wait();
    x += blockIdx.x * n;
    out += blockIdx.x * n;
    float sum = 0, var = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += x[i];
    float mean = block_sum(sum, room) / (float)n;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) var += (x[i] - mean) * (x[i] - mean);
    float f = 1.0f / sqrtf(block_sum(var, room) / (float)n + eps);
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
        out[i] = (x[i] - mean) * f * (w ? w[i] : 1.0f) + (b ? b[i] : 0.0f);
}

void cuda_layer_norm(struct dev *d, float *out, const float *x, const float *w, const float *b,
                     int64_t n_row, int64_t n, float eps) {
    struct cuda *c = (struct cuda *)d;
    if (!cuda_begin(c)) return;
    cuda_wrote(c, out, (size_t)(n_row * n) * sizeof *out);
    launch(c, layer_norm_kernel, dim3((unsigned)n_row), dim3(n > 1024 ? 512 : 128), 0, out, x, w, b,
           n, eps);
}

__global__ void gather_rows_kernel(float *out, const float *x, const int32_t *rows, i64 n,
                                   act8 out8, act8 x8) {
    pdl_trigger();
    pdl_wait();
    int64_t from = rows[blockIdx.x], to = blockIdx.x;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) out[to * n + i] = x[from * n + i];
    if (!out8.q) return;
    uint2 *meta = (uint2 *)out8.meta;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
        ((int8_t *)out8.q)[to * n + i] = x8.q[from * n + i];
    for (int64_t i = threadIdx.x; i < n / 32; i += blockDim.x)
        meta[to * (n / 32) + i] = x8.meta[from * (n / 32) + i];
}

/* Gathered rows keep their 8-bit copies. Quantized again, they could differ in the last bit, and a token's logits
 * would depend on whether logits of its neighbours are requested too. */
static act8 gather_shadow(struct cuda *c, const float *out, const float *x, const int32_t *rows,
                          int32_t n_row, int64_t n, act8 *x8) {
    int32_t end = 0;
    for (int32_t i = 0; i < n_row; i++) end = rows[i] >= end ? rows[i] + 1 : end;
    const act8 *whole = cuda_shadow_of(c, x, n, end, n);
    *x8 = act8{};
    if (!whole) return act8{};
    *x8 = *whole;
    /* do not overwrite the copy of x */
    while (c->shadows[c->n_shadow % N_SHADOW].x == x) c->n_shadow++;
    return cuda_shadow_new(c, out, n_row, n);
}

void cuda_gather_rows(struct dev *d, float *out, const float *x, const int32_t *rows, int32_t n_row,
                      int64_t n) {
    struct cuda *c = (struct cuda *)d;
    if (!cuda_begin(c) || n_row < 1) return;
    const int32_t *staged = (const int32_t *)cuda_stage(c, rows, (size_t)n_row * sizeof *rows);
    if (!staged) return;
    cuda_wrote(c, out, (size_t)n_row * (size_t)n * sizeof *out);
    act8 x8, out8 = gather_shadow(c, out, x, rows, n_row, n, &x8);
    launch(c, gather_rows_kernel, dim3((unsigned)n_row), dim3(ELEM_THREADS), 0, out, x, staged, n,
           out8, x8);
}

/* ---- elements ---- */

__global__ void act_mul_kernel(float *out, const float *a, const float *b, i64 n, int act) {
    pdl_trigger();
    pdl_wait();
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        out[i] = act_of(act, a[i]) * (b ? b[i] : 1.0f);
}

void cuda_act_mul(struct dev *d, float *out, const float *a, const float *b, int64_t n,
                  enum act act) {
    struct cuda *c = (struct cuda *)d;
    if (!cuda_begin(c) || n < 1) return;
    cuda_wrote(c, out, (size_t)n * sizeof *out);
    launch(c, act_mul_kernel, blocks_of(n), dim3(ELEM_THREADS), 0, out, a, b, n, (int)act);
}

__global__ void axpby_kernel(float *y, float alpha, const float *x, float beta, i64 n) {
    pdl_trigger();
    pdl_wait();
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        y[i] = alpha * x[i] + beta * y[i];
}

void cuda_axpby(struct dev *d, float *y, float alpha, const float *x, float beta, int64_t n) {
    struct cuda *c = (struct cuda *)d;
    if (!cuda_begin(c) || n < 1) return;
    cuda_wrote(c, y, (size_t)n * sizeof *y);
    launch(c, axpby_kernel, blocks_of(n), dim3(ELEM_THREADS), 0, y, alpha, x, beta, n);
}

/* Copies are kernels, so that they can be recorded in the list. A thread copies 16 bytes if both ends
 * are aligned. Copies and zeros may write data that later kernels read before their pdl_wait (states),
 * so they do not trigger them early. */
__global__ void copy_kernel(uint8_t *dst, const uint8_t *src, u64 n) {
    pdl_wait();
    size_t step = (size_t)gridDim.x * blockDim.x;
    size_t first = (size_t)blockIdx.x * blockDim.x + threadIdx.x, done = 0;
    if (((uintptr_t)dst | (uintptr_t)src) % 16 == 0) {
        for (size_t i = first; i < n / 16; i += step) ((uint4 *)dst)[i] = ((const uint4 *)src)[i];
        done = n / 16 * 16;
    }
    for (size_t i = done + first; i < n; i += step) dst[i] = src[i];
}

void cuda_copy(struct dev *d, void *dst, const void *src, size_t n) {
    struct cuda *c = (struct cuda *)d;
    cuda_pending_now(c);
    if (c->err.code || !n) return;
    cuda_wrote(c, dst, n);
    launch(c, copy_kernel, blocks_of((int64_t)(n + 15) / 16), dim3(ELEM_THREADS), 0, (uint8_t *)dst,
           (const uint8_t *)src, n);
}

__global__ void zero_kernel(uint8_t *dst, u64 n) {
    pdl_wait();
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) dst[i] = 0;
}

void cuda_zero(struct dev *d, void *dst, size_t n) {
    struct cuda *c = (struct cuda *)d;
    cuda_pending_now(c);
    if (c->err.code || !n) return;
    cuda_wrote(c, dst, n);
    launch(c, zero_kernel, blocks_of((int64_t)n), dim3(ELEM_THREADS), 0, (uint8_t *)dst, n);
}

/* linear.cu: matrices times rows. Roofline at decode: the bytes of the weights; a block has
 * VEC_ROWS units a lane in flight before it waits for the kernel before it. At prefill: 2 n_in n_out
 * n_tok operations on the tensor cores; decoding costs about 5 instructions a weight and tile of 128
 * tokens. */
#include <utility>

#include "kernels/cuda/cuda_impl.cuh"
#include "kernels/cuda/linear.cuh"

enum { MAX_OUTS = 8, LINEAR_N = 128 };

struct out_job {
    planes w;
    const float *bias;
    float *dst;
    int64_t dst_stride;
    float scale;
    int32_t add, first_block, group;
};
struct linear_job {
    out_job o[MAX_OUTS];
    int32_t n_o, n_tok, step; /* step: tokens of one block */
    const float *x;
    int64_t x_stride;
    const float *factor; /* [n_tok] or NULL: multiplies a row's result */
    int32_t precise;
};

template <int NT>
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
    float out[VEC_ROWS][NT];
    act_room a;
    bool floats = j.precise || is_number_form(o.w.form);
    launch_next();
    auto ready = [&]() {
        wait_previous();
        a = act_load(room, j.x + t0 * j.x_stride, j.x_stride, n_tok, o.w.n_in, floats);
    };
    any_rows<NT>(o.w, 0, first, lane, group, tables, a, ready, n_tok, out);
    if (lane) return;
#pragma unroll
    for (int r = 0; r < VEC_ROWS; r++) {
        if (first + r >= o.w.n_row) break;
        float bias = o.bias ? o.bias[first + r] : 0.0f;
#pragma unroll
        for (int t = 0; t < NT; t++) {
            if (t >= n_tok) break;
            float *dst = o.dst + (t0 + t) * o.dst_stride + first + r;
            float y = o.scale * out[r][t] + bias;
            if (j.factor) y *= j.factor[t0 + t];
            *dst = o.add ? *dst + y : y;
        }
    }
}

__global__ void __launch_bounds__(TILE_THREADS)
    tile_kernel(out_job o, const uint16_t *x, const float *x_scale, const float *factor,
                int32_t n_tok, grid_tables tables) {
    DYNAMIC_SHARED(uint16_t, shared);
    __shared__ int32_t cols[LINEAR_N];
    launch_next();
    wait_previous();
    int32_t t0 = (int32_t)blockIdx.y * LINEAR_N;
    for (int i = (int)threadIdx.x; i < LINEAR_N; i += TILE_THREADS)
        cols[i] = t0 + i < n_tok ? t0 + i : -1;
    __syncthreads();
    float acc[2][LINEAR_N / 16][4];
    int64_t first = (int64_t)blockIdx.x * TILE_M;
    tile_product<LINEAR_N>(o.w, 0, first, x, halves_of(o.w.n_in), cols, tables, shared, acc);
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int n = 0; n < LINEAR_N / 16; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int64_t row = first + tile_row(m, i);
                int32_t t = t0 + tile_col<LINEAR_N>(n, i);
                if (row >= o.w.n_row || t >= n_tok) continue;
                float y = o.scale * (acc[m][n][i] * x_scale[t]) + (o.bias ? o.bias[row] : 0.0f);
                if (factor) y *= factor[t];
                float *dst = o.dst + t * o.dst_stride + row;
                *dst = o.add ? *dst + y : y;
            }
}

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
    for (int64_t i = 2 * threadIdx.x; i < padded; i += 2 * blockDim.x) {
        float a = i < n && inv != 0.0f ? x[i] * inv : 0.0f;
        float b = i + 1 < n && inv != 0.0f ? x[i + 1] * inv : 0.0f;
        *(uint32_t *)(out + i) = two_halves(a, b);
    }
    if (threadIdx.x == 0) scale[blockIdx.x] = s;
}

void cuda_to_halves(struct cuda *c, const float *x, int64_t stride, int32_t n_row, int64_t n,
                    uint16_t *out, float *scale) {
    launch(c, to_halves_kernel, dim3((unsigned)n_row), dim3(n > 1024 ? 256 : 128), 0, x, stride, n,
           out, scale);
}

size_t cuda_linear_scratch(const struct dev_need *n) {
    return (size_t)n->n_tok * ((size_t)halves_of(n->n_in) * 2 + 4) + 1024;
}

static out_job job_of(const struct linear_out *o) {
    out_job j = {planes_of(o->w), o->bias, o->dst, o->dst_stride, o->scale, o->add, 0, 0};
    j.group = lanes_of(j.w);
    return j;
}

static void vectors(struct cuda *c, const struct linear_out *o, int32_t n_o, const float *x,
                    int64_t x_stride, int32_t n_tok, const float *factor) {
    linear_job j = {};
    int32_t blocks = 0;
    bool floats = c->params.precise;
    j.n_o = n_o;
    j.n_tok = n_tok;
    j.x = x;
    j.x_stride = x_stride;
    j.factor = factor;
    j.precise = floats;
    for (int32_t i = 0; i < n_o; i++) {
        j.o[i] = job_of(&o[i]);
        j.o[i].first_block = blocks;
        int64_t rows = (int64_t)(VEC_THREADS / j.o[i].group) * VEC_ROWS;
        blocks += (int32_t)((j.o[i].w.n_row + rows - 1) / rows);
        floats |= is_number_form(j.o[i].w.form);
    }
    int64_t n_in = o[0].w->n_in;
    bool fits = act_room_bytes(n_in, VEC_TOKS, floats) <= 48 << 10;
    j.step = n_tok > 1 && fits ? VEC_TOKS : 1;
    dim3 grid((unsigned)blocks, (unsigned)((n_tok + j.step - 1) / j.step));
    size_t room = act_room_bytes(n_in, j.step, floats);
    if (j.step == 1) launch(c, vector_kernel<1>, grid, dim3(VEC_THREADS), room, j, c->tables);
    else launch(c, vector_kernel<VEC_TOKS>, grid, dim3(VEC_THREADS), room, j, c->tables);
}

void cuda_linear_rows(struct cuda *c, const struct linear_out *o, int32_t n_o, const float *x,
                      int64_t x_stride, int32_t n_tok, const float *factor, bool exact) {
    if (n_tok <= STEP_TOKS || exact || c->params.precise) {
        for (int32_t i = 0; i < n_o; i += MAX_OUTS)
            vectors(c, o + i, n_o - i < MAX_OUTS ? n_o - i : MAX_OUTS, x, x_stride, n_tok, factor);
        return;
    }
    int64_t n_in = o[0].w->n_in;
    uint16_t *h = (uint16_t *)cuda_take(c, (size_t)n_tok * (size_t)halves_of(n_in) * 2);
    float *scale = (float *)cuda_take(c, (size_t)n_tok * sizeof *scale);
    if (!h || !scale) return;
    cuda_to_halves(c, x, x_stride, n_tok, n_in, h, scale);
    for (int32_t i = 0; i < n_o; i++) {
        out_job j = job_of(&o[i]);
        dim3 grid((unsigned)((j.w.n_row + TILE_M - 1) / TILE_M),
                  (unsigned)((n_tok + LINEAR_N - 1) / LINEAR_N));
        launch(c, tile_kernel, grid, dim3(TILE_THREADS), tile_shared(LINEAR_N), j, h, scale, factor,
               n_tok, c->tables);
    }
}

void cuda_linear(struct dev *d, const struct linear_out *o, int32_t n_o, const float *x,
                 int64_t x_stride, int32_t n_tok) {
    struct cuda *c = (struct cuda *)d;
    if (cuda_begin(c)) cuda_linear_rows(c, o, n_o, x, x_stride, n_tok, NULL, false);
}

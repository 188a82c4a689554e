/* attn_many.cu: attention of many tokens, blocks of 64 queries against pages of 64 keys on the tensor cores; and
 * inside a batch, without a cache (encoders). */
#include <utility>

#include "kernels/cuda/attn.cuh"

enum { FLASH_THREADS = 128, FLASH_Q = 64 };

struct flash_tile {
    int32_t span, first; /* first query of the tile within the span */
};

template <int D> static size_t flash_shared(void) { return 3 * 64 * (size_t)(D + 8) * 2; }

/* 64 rows of the cache as halves, zeros beyond n: halves behind the threads' backs. */
template <int D>
__device__ __forceinline__ void page_to_shared(const cache &c, const int32_t *pages, int64_t pos,
                                               int64_t n, int32_t head, uint16_t *dst) {
    if (c.type == QUANT_F16 && c.d % 8 == 0) { /* rows of halves: 16 bytes at a time */
        for (int i = (int)threadIdx.x; i < 64 * (D / 8); i += FLASH_THREADS) {
            int r = i / (D / 8), e = i % (D / 8) * 8;
            bool has = r < n && e < c.d;
            const uint8_t *row = cache_row(c, pages, has ? pos + r : pos, head);
            copy_async16(dst + r * (D + 8) + e, row + (has ? 2 * e : 0), has);
        }
        return;
    }
    for (int i = (int)threadIdx.x; i < 64 * (D / 2); i += FLASH_THREADS) {
        int r = i / (D / 2), e = i % (D / 2) * 2;
        float a = 0, b = 0;
        if (r < n) {
            const uint8_t *row = cache_row(c, pages, pos + r, head);
            if (e < c.d) a = cache_at(c, row, e);
            if (e + 1 < c.d) b = cache_at(c, row, e + 1);
        }
        *(uint32_t *)(dst + r * (D + 8) + e) = two_halves(a, b);
    }
}

template <int D>
__global__ void __launch_bounds__(FLASH_THREADS)
    flash_kernel(dspans b, attn_job j, const flash_tile *tiles) {
    DYNAMIC_SHARED(uint16_t, shared);
    constexpr int S = D + 8;
    uint16_t *sq = shared, *sk = shared + 64 * S, *sv = shared + 128 * S;
    launch_next();
    wait_previous();
    flash_tile tile = tiles[blockIdx.x];
    dspan s = b.spans[tile.span];
    int32_t h = (int32_t)blockIdx.y, kv = h / (j.n_head / j.n_kv_head);
    int tid = (int)threadIdx.x, lane = tid % 32, warp = tid / 32, gr = lane / 4, tc = lane % 4;
    const int32_t *pages = b.pages + s.page_at;
    for (int i = tid; i < FLASH_Q * (D / 2); i += FLASH_THREADS) {
        int r = i / (D / 2), e = i % (D / 2) * 2;
        int32_t at = tile.first + r;
        float x = 0, y = 0;
        if (at < s.n_tok) {
            const float *q = j.q + ((int64_t)(s.row + at) * j.n_head + h) * j.k.d;
            if (e < j.k.d) x = q[e] * j.scale;
            if (e + 1 < j.k.d) y = q[e + 1] * j.scale;
        }
        *(uint32_t *)(sq + r * S + e) = two_halves(x, y);
    }
    int64_t own[2];
    own[0] = s.pos + tile.first + warp * 16 + gr;
    own[1] = own[0] + 8;
    int64_t end = s.pos + (tile.first + FLASH_Q < s.n_tok ? tile.first + FLASH_Q : s.n_tok);
    int64_t begin = 0;
    if (j.window > 0 && j.n_keep <= 0 && s.pos + tile.first - j.window + 1 > 0)
        begin = (s.pos + tile.first - j.window + 1) / KV_PAGE * KV_PAGE;
    float acc[D / 8][4], most[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) acc[n][i] = 0.0f;
    auto fetch = [&](const cache &of, int64_t pos, uint16_t *to) {
        if (pos < end) page_to_shared<D>(of, pages, pos, end - pos, kv, to);
        copy_commit();
    };
    fetch(j.k, begin, sk);
    for (int64_t pos = begin; pos < end; pos += KV_PAGE) {
        fetch(j.v, pos, sv);
        copy_wait<1>(); /* all but these */
        __syncthreads();
        float dot[8][4] = {};
#pragma unroll
        for (int kk = 0; kk < D; kk += 16) {
            uint32_t a[4], f[4];
            first_factor(a, sq + warp * 16 * S + kk, S);
#pragma unroll
            for (int n8 = 0; n8 < 8; n8 += 2) {
                second_factor(f, sk + n8 * 8 * S + kk, S);
                mma_16816(dot[n8], a, f);
                mma_16816(dot[n8 + 1], a, f + 2);
            }
        }
        __syncthreads();
        fetch(j.k, pos + KV_PAGE, sk);
        /* pages that all queries see have nothing to mask */
        bool all = pos + KV_PAGE - 1 <= s.pos + tile.first && j.window <= 0;
        float m[2] = {most[0], most[1]};
#pragma unroll
        for (int n8 = 0; n8 < 8; n8++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int64_t p = pos + n8 * 8 + 2 * tc + i % 2;
                float v = dot[n8][i];
                if (j.softcap != 0.0f) v = j.softcap * tanhf(v / j.softcap);
                if (!all && (p > own[i / 2] || !is_seen(j, p, own[i / 2]))) v = -INFINITY;
                dot[n8][i] = v;
                m[i / 2] = fmaxf(m[i / 2], v);
            }
#pragma unroll
        for (int r = 0; r < 2; r++) {
            m[r] = lanes_max(m[r], 4);
            float keep = m[r] == most[r] ? 1.0f : quick_exp(most[r] - m[r]);
            most[r] = m[r];
            sum[r] *= keep;
#pragma unroll
            for (int n = 0; n < D / 8; n++) acc[n][2 * r] *= keep, acc[n][2 * r + 1] *= keep;
        }
        uint32_t w[8][2];
#pragma unroll
        for (int n8 = 0; n8 < 8; n8++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float v = most[i / 2] == -INFINITY ? 0.0f : quick_exp(dot[n8][i] - most[i / 2]);
                dot[n8][i] = v;
                sum[i / 2] += v;
            }
            w[n8][0] = two_halves(dot[n8][0], dot[n8][1]);
            w[n8][1] = two_halves(dot[n8][2], dot[n8][3]);
        }
        copy_wait<1>(); /* all but the next keys */
        __syncthreads();
#pragma unroll
        for (int kk = 0; kk < 4; kk++) {
            uint32_t a[4] = {w[2 * kk][0], w[2 * kk][1], w[2 * kk + 1][0], w[2 * kk + 1][1]}, f[4];
#pragma unroll
            for (int n = 0; n < D / 8; n += 2) {
                second_turned(f, sv + kk * 16 * S + n * 8, S);
                mma_16816(acc[n], a, f);
                mma_16816(acc[n + 1], a, f + 2);
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        sum[r] = lanes_sum(sum[r], 4);
        int32_t at = tile.first + warp * 16 + gr + 8 * r;
        if (at >= s.n_tok) continue;
        int64_t t = s.row + at;
        float f = 1.0f / sum[r];
        if (j.sinks) {
            float m = fmaxf(most[r], j.sinks[h]), scale = expf(most[r] - m);
            f = scale / (sum[r] * scale + expf(j.sinks[h] - m));
        }
        float *out = j.out + (t * j.n_head + h) * j.v.d;
        const float *gate = j.gate ? j.gate + t * j.gate_tok_stride + h * j.gate_head_stride : NULL;
#pragma unroll
        for (int n = 0; n < D / 8; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                int e = n * 8 + 2 * tc + i;
                if (e >= j.v.d) continue;
                float y = acc[n][2 * r + i] * f;
                if (gate && !j.rotate) y *= 1.0f / (1.0f + expf(-gate[e]));
                out[e] = y;
            }
    }
}

/* Rotates rows back in place and gates them, for spans that flash_kernel took. */
__global__ void unrotate_kernel(dspans b, attn_job j) {
    DYNAMIC_SHARED(float, x);
    launch_next();
    wait_previous();
    int32_t h = (int32_t)blockIdx.x, t = (int32_t)blockIdx.y;
    if (b.spans[b.of_row[t]].n_tok <= STEP_MAX_TOK) return;
    int d = j.v.d;
    float *out = j.out + ((int64_t)t * j.n_head + h) * d;
    for (int i = (int)threadIdx.x; i < d; i += (int)blockDim.x) x[i] = out[i];
    __syncthreads();
    hadamard_heads(x, d);
    for (int i = (int)threadIdx.x; i < d; i += (int)blockDim.x) {
        float y = x[i];
        if (j.gate)
            y *= 1.0f / (1.0f + expf(-j.gate[t * j.gate_tok_stride + h * j.gate_head_stride + i]));
        out[i] = y;
    }
}

void cuda_attn_many(struct cuda *c, const struct attn_args *a, const dspans &b, const attn_job &j) {
    int32_t n_tile = 0;
    for (int32_t i = 0; i < a->n_span; i++)
        if (a->spans[i].n_tok > STEP_MAX_TOK) n_tile += (a->spans[i].n_tok + FLASH_Q - 1) / FLASH_Q;
    flash_tile *host = (flash_tile *)cuda_stage_room(c, (size_t)n_tile * sizeof *host);
    if (!host) return;
    int32_t k = n_tile; /* the longest, which see most, begin first */
    for (int32_t i = 0; i < a->n_span; i++)
        for (int32_t t = 0; a->spans[i].n_tok > STEP_MAX_TOK && t < a->spans[i].n_tok; t += FLASH_Q)
            host[--k] = flash_tile{i, t};
    const flash_tile *tiles = (const flash_tile *)cuda_staged(c, host);
    int d = j.k.d > j.v.d ? j.k.d : j.v.d;
    dim3 grid((unsigned)n_tile, (unsigned)a->n_head);
    if (d <= 64)
        launch(c, flash_kernel<64>, grid, dim3(FLASH_THREADS), flash_shared<64>(), b, j, tiles);
    else if (d <= 128)
        launch(c, flash_kernel<128>, grid, dim3(FLASH_THREADS), flash_shared<128>(), b, j, tiles);
    else launch(c, flash_kernel<256>, grid, dim3(FLASH_THREADS), flash_shared<256>(), b, j, tiles);
    if (j.rotate)
        launch(c, unrotate_kernel, dim3((unsigned)a->n_head, (unsigned)a->n_tok), dim3(128),
               (size_t)j.v.d * 4, b, j);
}

/* ---- encoders ---- */

__global__ void full_kernel(dspans b, const float *q, const float *k, const float *v,
                            int32_t n_head, int32_t d, float scale, float *out) {
    DYNAMIC_SHARED(float, score); /* of every token of the span */
    __shared__ float room[32];
    launch_next();
    wait_previous();
    int32_t h = (int32_t)blockIdx.x, t = (int32_t)blockIdx.y;
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, n_warp = (int)blockDim.x / 32;
    dspan s = b.spans[b.of_row[t]];
    int64_t row = (int64_t)n_head * d, at = (int64_t)h * d;
    const float *own = q + t * row + at;
    float most = -INFINITY;
    for (int i = warp; i < s.n_tok; i += n_warp) {
        const float *key = k + (int64_t)(s.row + i) * row + at;
        float dot = 0;
        for (int e = lane; e < d; e += 32) dot += own[e] * key[e];
        dot = lanes_sum(dot, 32) * scale;
        if (lane == 0) score[i] = dot;
        most = fmaxf(most, dot);
    }
    if (lane == 0) room[warp] = most;
    __syncthreads();
    for (int i = 0; i < n_warp; i++) most = fmaxf(most, room[i]);
    __syncthreads();
    float sum = 0;
    for (int i = (int)threadIdx.x; i < s.n_tok; i += (int)blockDim.x) {
        score[i] = expf(score[i] - most);
        sum += score[i];
    }
    sum = block_sum(sum, room);
    for (int e = (int)threadIdx.x; e < d; e += (int)blockDim.x) {
        float y = 0;
        for (int i = 0; i < s.n_tok; i++) y += score[i] * v[(int64_t)(s.row + i) * row + at + e];
        out[t * row + at + e] = y / sum;
    }
}

void cuda_attn_full(struct dev *d, const struct attn_full_args *a) {
    struct cuda *c = (struct cuda *)d;
    dspans b;
    if (!cuda_begin(c) || !cuda_spans(c, a->spans, a->n_span, &b)) return;
    int32_t most = 1;
    for (int32_t i = 0; i < a->n_span; i++)
        most = a->spans[i].n_tok > most ? a->spans[i].n_tok : most;
    if ((size_t)most * 4 > 96 << 10) {
        cuda_fail_with(c, CHIMERE_ELIMIT, "encoder input of more than 24,576 tokens");
        return;
    }
    cuda_wrote(c, a->out, (size_t)a->n_tok * (size_t)(a->n_head * a->d_head) * 4);
    launch(c, full_kernel, dim3((unsigned)a->n_head, (unsigned)a->n_tok), dim3(128),
           (size_t)most * 4, b, a->q, a->k, a->v, a->n_head, a->d_head, a->scale, a->out);
}

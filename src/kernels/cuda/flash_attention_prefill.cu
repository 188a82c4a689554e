/* flash_attention_prefill.cu: attention of many tokens: blocks of 64 or 128 queries times pages of 64 keys, on the
 * tensor cores. Also latent attention of few tokens, and bidirectional attention within a batch, without a cache
 * (encoders). */
#include <utility>

#include "kernels/cuda/attention.cuh"

struct flash_tile {
    int32_t span, first; /* first query of the tile within the span */
};

enum {
    ROW_PIECE = 64, /* elements of a row that a wide head is read by */
    WIDE_FROM = 256 /* heads of more elements are read by pieces */
};

/* Shared memory of a block: its queries, then keys and values by pages. With GROUP (products of a warp group), rows
 * are split into pieces of 64 elements, the layout of group_factor, and keys and values have two pages each. Heads of
 * more than 256 have two buffers instead, of a piece of a page each, so that a block fits in the 99 KB of sm_86 and
 * newer. */
template <int D, bool GROUP> struct flash {
    static constexpr int THREADS = GROUP ? 256 : 128, N_QUERY = THREADS / 2, ROW = D + 8;
    static constexpr int QUERIES = N_QUERY * (GROUP ? D : ROW);
    static constexpr int PAGE = KV_PAGE * (D > WIDE_FROM ? ROW_PIECE + 8 : GROUP ? D : ROW);
    static constexpr size_t bytes =
        2 * (size_t)(QUERIES + (GROUP ? 2 : 1) * 2 * PAGE) + (GROUP ? GROUP_ALIGN : 0);

    /* Index of element e of row r, out of n rows. */
    static __device__ __forceinline__ int place(int n, int r, int e) {
        if (!GROUP) return r * ROW + e;
        return (e / 64 * n + r) * 64 + (e % 64 / 8 ^ r % 8) * 8 + e % 8;
    }

    /* Copies a page of the cache, which starts at pos, to dst as f16, from element `from` of each row; rows from n
     * on are zero. An f16 cache is copied asynchronously. */
    static __device__ __forceinline__ void fetch(const cache &c, const int32_t *pages, int64_t pos,
                                                 int64_t n, int32_t head, uint16_t *dst,
                                                 int from = 0) {
        const uint8_t *page = cache_row(c, pages, pos, head);
        if (c.type == QUANT_F16 && c.d % 8 == 0) { /* f16 rows: 16 bytes at a time */
            constexpr int STEP = THREADS / (D / 8);
            static_assert(!GROUP || STEP % 8 == 0, "each at the same place of its row");
            int row = (int)threadIdx.x / (D / 8), e = (int)threadIdx.x % (D / 8) * 8;
            int left = (n < KV_PAGE ? (int)n : KV_PAGE) - row;
            if (from + e >= c.d) e = 0, left = 0;
            page += row * c.row_bytes + 2 * (from + e);
            dst += place(KV_PAGE, row, (int)threadIdx.x % (D / 8) * 8);
#pragma unroll
            for (int k = 0; k < KV_PAGE / STEP; k++)
                copy_async16(dst + k * STEP * (GROUP ? 64 : ROW),
                             page + (size_t)(k * STEP) * c.row_bytes, k * STEP < left);
            return;
        }
        if (c.type == QUANT_Q8_0 || c.type == QUANT_Q4_0) {
#pragma unroll 4
            for (int i = (int)threadIdx.x; i < KV_PAGE * (D / 8); i += THREADS) {
                int r = i / (D / 8), e = i % (D / 8) * 8, at = from + e;
                bool has = r < n && at < c.d;
                *(uint4 *)(dst + place(KV_PAGE, r, e)) =
                    has ? decode8(c.type, page + r * c.row_bytes, at / 32, at % 32, true)
                        : make_uint4(0, 0, 0, 0);
            }
            return;
        }
        for (int i = (int)threadIdx.x; i < KV_PAGE * (D / 2); i += THREADS) {
            int r = i / (D / 2), e = i % (D / 2) * 2;
            float a = 0, b = 0;
            if (r < n) {
                const uint8_t *row = page + r * c.row_bytes;
                if (from + e < c.d) a = cache_at(c, row, from + e);
                if (from + e + 1 < c.d) b = cache_at(c, row, from + e + 1);
            }
            *(uint32_t *)(dst + place(KV_PAGE, r, e)) = two_halves(a, b);
        }
    }
};

/* The state of a lane for its warp's 16 queries: rows lane / 4 and lane / 4 + 8, in the layout of mma_16816. */
template <int D> struct flash_rows {
    float acc[D / 8][4], most[2], sum[2];
    int32_t own[2]; /* positions */

    /* Converts the scores of a page that starts at pos to f16 weights. first: position of the block's first query.
     * With SPLIT, low has what the weights lack for the precision of floats. */
    template <bool SPLIT = false>
    __device__ __forceinline__ void weigh(const attn_job &j, int32_t pos, int32_t first,
                                          float dot[8][4], uint32_t w[4][4],
                                          uint32_t (*low)[4] = NULL) {
        int tc = (int)threadIdx.x % 4;
        /* every query sees the whole page */
        bool all = pos + KV_PAGE - 1 <= first && j.window <= 0;
        if (j.softcap != 0.0f) {
#pragma unroll
            for (int n8 = 0; n8 < 8; n8++)
#pragma unroll
                for (int i = 0; i < 4; i++) dot[n8][i] = j.softcap * tanhf(dot[n8][i] / j.softcap);
        }
        if (!all) {
#pragma unroll
            for (int n8 = 0; n8 < 8; n8++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int32_t p = pos + n8 * 8 + 2 * tc + i % 2;
                    if (p > own[i / 2] || !is_seen(j, p, own[i / 2])) dot[n8][i] = -INFINITY;
                }
        }
        float m[2] = {most[0], most[1]};
#pragma unroll
        for (int n8 = 0; n8 < 8; n8++)
#pragma unroll
            for (int i = 0; i < 4; i++) m[i / 2] = fmaxf(m[i / 2], dot[n8][i]);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            m[r] = lanes_max(m[r], 4);
            float keep = m[r] == most[r] ? 1.0f : quick_exp(most[r] - m[r]);
            most[r] = m[r];
            sum[r] *= keep;
#pragma unroll
            for (int n = 0; n < D / 8; n++) acc[n][2 * r] *= keep, acc[n][2 * r + 1] *= keep;
        }
        float top[2]; /* 0 if no key is visible yet */
#pragma unroll
        for (int r = 0; r < 2; r++) top[r] = most[r] == -INFINITY ? 0.0f : most[r];
#pragma unroll
        for (int n8 = 0; n8 < 8; n8++) {
            float v[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                v[i] = quick_exp(dot[n8][i] - top[i / 2]);
                sum[i / 2] += v[i];
            }
#pragma unroll
            for (int i = 0; i < 2; i++) {
                uint32_t high = two_halves(v[2 * i], v[2 * i + 1]);
                w[n8 / 2][n8 % 2 * 2 + i] = high;
                if (SPLIT)
                    low[n8 / 2][n8 % 2 * 2 + i] =
                        two_halves(v[2 * i] - to_float((uint16_t)high),
                                   v[2 * i + 1] - to_float((uint16_t)(high >> 16)));
            }
        }
    }
};

/* dot += q k^T over N elements: a warp's 16 queries, 64 keys; lengths of rows in elements. */
template <int N>
__device__ __forceinline__ void warp_scores(float dot[8][4], const uint16_t *q, int q_row,
                                            const uint16_t *k, int k_row) {
#pragma unroll
    for (int kk = 0; kk < N; kk += 16) {
        uint32_t a[4], f[4];
        first_factor(a, q + kk, q_row);
#pragma unroll
        for (int n8 = 0; n8 < 8; n8 += 2) {
            second_factor(f, k + n8 * 8 * k_row + kk, k_row);
            mma_16816(dot[n8], a, f);
            mma_16816(dot[n8 + 1], a, f + 2);
        }
    }
}

/* acc += w v: N elements of 64 values. */
template <int N>
__device__ __forceinline__ void warp_values(float (*acc)[4], const uint32_t w[4][4],
                                            const uint16_t *v, int v_row) {
#pragma unroll
    for (int kk = 0; kk < 4; kk++) {
        uint32_t f[4];
#pragma unroll
        for (int n = 0; n < N / 8; n += 2) {
            second_turned(f, v + kk * 16 * v_row + n * 8, v_row);
            mma_16816(acc[n], w[kk], f);
            mma_16816(acc[n + 1], w[kk], f + 2);
        }
    }
}

/* Four warps of 16 queries. The keys of the next page are copied while the values of this one are multiplied. */
template <int D>
__device__ __forceinline__ void flash_pages(const attn_job &j, int32_t first, const int32_t *pages,
                                            int32_t kv, int32_t begin, int32_t end, uint16_t *sq,
                                            flash_rows<D> &rows) {
    typedef flash<D, false> room;
    constexpr int S = room::ROW;
    int warp = (int)threadIdx.x / 32;
    uint16_t *sk = sq + room::QUERIES, *sv = sk + room::PAGE;
    auto fetch_keys = [&](int32_t pos) {
        if (pos < end) room::fetch(j.k, pages, pos, end - pos, kv, sk);
        copy_commit();
    };
    fetch_keys(begin);
    for (int32_t pos = begin; pos < end; pos += KV_PAGE) {
        room::fetch(j.v, pages, pos, end - pos, kv, sv);
        copy_commit();
        copy_wait<1>(); /* all but these values */
        __syncthreads();
        float dot[8][4] = {};
        warp_scores<D>(dot, sq + warp * 16 * S, S, sk, S);
        __syncthreads();
        fetch_keys(pos + KV_PAGE);
        uint32_t w[4][4];
        rows.weigh(j, pos, first, dot, w);
        copy_wait<1>(); /* all but the next keys */
        __syncthreads();
        warp_values<D>(rows.acc, w, sv, S);
        __syncthreads();
    }
}

/* Pages of wide heads in pieces of 64 elements, first those of the keys, then those of V values from v_from on. While
 * one is multiplied, the next is copied. QUERIES: 16-bit words before the two buffers. */
template <int D, int V, int QUERIES> struct piece_reader {
    typedef flash<ROW_PIECE, false> piece;
    static constexpr int N_KEY = D / ROW_PIECE, N_ALL = N_KEY + V / ROW_PIECE;
    const attn_job &j;
    const int32_t *pages;
    uint16_t *shared;
    int32_t kv, end;
    int v_from, turn;

    __device__ __forceinline__ void fetch(int32_t pos, int i, int to) {
        uint16_t *dst = shared + QUERIES + to * (KV_PAGE * piece::ROW);
        if (pos < end && i < N_KEY)
            piece::fetch(j.k, pages, pos, end - pos, kv, dst, i * ROW_PIECE);
        else if (pos < end)
            piece::fetch(j.v, pages, pos, end - pos, kv, dst, v_from + (i - N_KEY) * ROW_PIECE);
        copy_commit();
    }
    /* Waits for piece i of the page at pos, starts the copy of the one after it, and returns its place. */
    __device__ __forceinline__ const uint16_t *next(int32_t pos, int i) {
        copy_wait<0>();
        __syncthreads();
        if (i + 1 < N_ALL) fetch(pos, i + 1, turn ^ 1);
        else fetch(pos + KV_PAGE, 0, turn ^ 1);
        const uint16_t *at = shared + QUERIES + turn * (KV_PAGE * piece::ROW);
        turn ^= 1;
        return at;
    }
};

/* As flash_pages, for wide heads. Between two barriers a warp has 32 products, 512 tensor core clocks of an SM for the
 * four warps of a block. */
template <int D, int V>
__device__ __forceinline__ void flash_pieces(const attn_job &j, int32_t first, const int32_t *pages,
                                             int32_t kv, int32_t begin, int32_t end, int v_from,
                                             uint16_t *sq, flash_rows<V> &rows) {
    typedef flash<D, false> room;
    typedef piece_reader<D, V, room::QUERIES> reader;
    constexpr int ROW = reader::piece::ROW;
    int warp = (int)threadIdx.x / 32;
    reader r = {j, pages, sq, kv, end, v_from, 0};
    r.fetch(begin, 0, 0);
    for (int32_t pos = begin; pos < end; pos += KV_PAGE) {
        float dot[8][4] = {};
#pragma unroll 1
        for (int i = 0; i < reader::N_KEY; i++)
            warp_scores<ROW_PIECE>(dot, sq + warp * 16 * room::ROW + i * ROW_PIECE, room::ROW,
                                   r.next(pos, i), ROW);
        uint32_t w[4][4];
        rows.weigh(j, pos, first, dot, w);
#pragma unroll
        for (int i = 0; i < V / ROW_PIECE; i++)
            warp_values<ROW_PIECE>(rows.acc + i * (ROW_PIECE / 8), w,
                                   r.next(pos, reader::N_KEY + i), ROW);
    }
    copy_wait<0>();
    __syncthreads();
}

/* Two groups of four such warps: one multiplies while the other computes weights. Per page, 128 queries need 2 x 64 x
 * 64 x D products per group; with D = 256 that is 2,048 tensor core clocks for both. The exponentials of a group, and
 * scaling the 128 accumulators of each thread, take about as long. */
template <int D>
__device__ __forceinline__ void group_pages(const attn_job &j, int32_t first, const int32_t *pages,
                                            int32_t kv, int32_t begin, int32_t end, uint16_t *sq,
                                            flash_rows<D> &rows) {
    typedef flash<D, true> room;
    constexpr int N = D < 128 ? D : 128, PIECE = KV_PAGE * 64 * 2 / 16; /* of 16 bytes */
    uint16_t *sk = sq + room::QUERIES, *sv = sk + 2 * room::PAGE;
    auto fetch = [&](int32_t pos, int turn) {
        if (pos < end) {
            room::fetch(j.k, pages, pos, end - pos, kv, sk + turn * room::PAGE);
            room::fetch(j.v, pages, pos, end - pos, kv, sv + turn * room::PAGE);
        }
        copy_commit();
    };
    uint64_t q = group_factor(sq) + threadIdx.x / 128 * PIECE;
    int turn = 0;
    fetch(begin, 0);
    for (int32_t pos = begin; pos < end; pos += KV_PAGE, turn ^= 1) {
        copy_wait<0>();
        group_sees();
        __syncthreads();
        fetch(pos + KV_PAGE, turn ^ 1);
        uint64_t k = group_factor(sk + turn * room::PAGE);
        uint64_t v = group_factor(sv + turn * room::PAGE, KV_PAGE * 64 * 2);
        float dot[8][4] = {};
        group_begin();
#pragma unroll
        for (int e = 0; e < D / 64; e++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                group_mma_shared(dot, q + e * 2 * PIECE + 2 * i, k + e * PIECE + 2 * i);
        group_commit();
        group_wait<0>();
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) group_settled(dot[n][i]);
        uint32_t w[4][4];
        rows.weigh(j, pos, first, dot, w);
        group_begin();
#pragma unroll
        for (int kk = 0; kk < 4; kk++)
#pragma unroll
            for (int e = 0; e < D / N; e++)
                group_mma<N, true>(rows.acc + e * N / 8, w[kk], v + e * 2 * PIECE + kk * 128);
        group_commit();
        group_wait<0>();
#pragma unroll
        for (int n = 0; n < D / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) group_settled(rows.acc[n][i]);
    }
}

/* Computes V elements of the result. With wide heads, two blocks compute the same scores and a part of the values each,
 * because the accumulators of 512 elements do not fit in registers. */
template <int D, bool GROUP, int V = D>
__device__ __forceinline__ void flash_block(const dspans &b, const attn_job &j,
                                            const flash_tile *tiles, uint16_t *sq) {
    typedef flash<D, GROUP> room;
    int v_from = V < D ? (int)blockIdx.z * V : 0;
    constexpr int Q = room::N_QUERY;
    flash_tile tile = tiles[blockIdx.x];
    dspan s = b.spans[tile.span];
    int32_t h = (int32_t)blockIdx.y, kv = h / (j.n_head / j.n_kv_head);
    int tid = (int)threadIdx.x, lane = tid % 32, warp = tid / 32, gr = lane / 4, tc = lane % 4;
    const int32_t *pages = b.pages + s.page_at;
    threads_fit();
    constexpr int AT_ONCE = 8; /* loads in flight */
#pragma unroll 1
    for (int i0 = tid; i0 < Q * (D / 4); i0 += AT_ONCE * room::THREADS) {
        float4 q[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            int i = i0 + k * room::THREADS, at = tile.first + i / (D / 4);
            if (at >= s.n_tok) at = s.n_tok - 1; /* beyond the span; not stored */
            q[k] = four_at(j.q + ((int64_t)(s.row + at) * j.n_head + h) * j.k.d, i % (D / 4) * 4,
                           j.k.d);
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            int i = i0 + k * room::THREADS;
            *(uint2 *)(sq + room::place(Q, i / (D / 4), i % (D / 4) * 4)) =
                make_uint2(two_halves(q[k].x * j.scale, q[k].y * j.scale),
                           two_halves(q[k].z * j.scale, q[k].w * j.scale));
        }
    }
    int32_t own = (int32_t)s.pos + tile.first, begin = 0;
    int32_t end = (int32_t)s.pos + (tile.first + Q < s.n_tok ? tile.first + Q : s.n_tok);
    if (j.window > 0 && j.n_keep <= 0 && own - j.window + 1 > 0)
        begin = (own - j.window + 1) / KV_PAGE * KV_PAGE;
    flash_rows<V> rows = {};
#pragma unroll
    for (int r = 0; r < 2; r++) {
        rows.own[r] = own + warp * 16 + gr + 8 * r;
        rows.most[r] = -INFINITY;
    }
    if constexpr (GROUP) group_pages<D>(j, own, pages, kv, begin, end, sq, rows);
    else if constexpr (D > WIDE_FROM)
        flash_pieces<D, V>(j, own, pages, kv, begin, end, v_from, sq, rows);
    else flash_pages<D>(j, own, pages, kv, begin, end, sq, rows);
    /* each warp transposes through shared memory, so that it stores whole rows */
    constexpr int ROW = V + 8;
    static_assert(room::THREADS / 32 * 16 * ROW * sizeof(float) <=
                      room::bytes - (GROUP ? GROUP_ALIGN : 0),
                  "room");
    __syncthreads();
    float *y = (float *)sq + warp * 16 * ROW;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float sum = lanes_sum(rows.sum[r], 4), f = 1.0f / sum;
        if (j.sinks) {
            float m = fmaxf(rows.most[r], j.sinks[h]), scale = expf(rows.most[r] - m);
            f = scale / (sum * scale + expf(j.sinks[h] - m));
        }
#pragma unroll
        for (int n = 0; n < V / 8; n++)
            *(float2 *)(y + (gr + 8 * r) * ROW + n * 8 + 2 * tc) =
                make_float2(rows.acc[n][2 * r] * f, rows.acc[n][2 * r + 1] * f);
    }
    __syncwarp();
    int32_t first = tile.first + warp * 16;
#pragma unroll 1
    for (int r = 0; r < 16 && first + r < s.n_tok; r++) {
        int64_t t = s.row + first + r;
        float *out = j.out + (t * j.n_head + h) * j.v.d + v_from;
        const float *gate = j.gate && !j.rotate
                                ? j.gate + t * j.gate_tok_stride + h * j.gate_head_stride + v_from
                                : NULL;
#pragma unroll
        for (int i = 0; i < V / 32; i++) {
            int e = i * 32 + lane;
            if (v_from + e >= j.v.d) break;
            float v = y[r * ROW + e];
            if (gate) v *= 1.0f / (1.0f + expf(-gate[e]));
            out[e] = v;
        }
    }
}

template <int D>
__global__ void __launch_bounds__(flash<D, HAS_GROUP_MMA>::THREADS)
    flash_kernel(dspans b, attn_job j, const flash_tile *tiles) {
    DYNAMIC_SHARED(uint16_t, shared);
    pdl_trigger();
    pdl_wait();
    if (HAS_GROUP_MMA) flash_block<D, true>(b, j, tiles, shared + group_gap(shared) / 2);
    else flash_block<D, false>(b, j, tiles, shared);
}

enum { WIDE_V = HEAD_MAX / 2 };
/* Heads of more than 256. The queries of a warp group would take 128 KB of shared memory, so warps multiply alone. */
template <int D>
__global__ void __launch_bounds__(flash<D, false>::THREADS)
    flash_wide_kernel(dspans b, attn_job j, const flash_tile *tiles) {
    DYNAMIC_SHARED(uint16_t, shared);
    pdl_trigger();
    pdl_wait();
    flash_block<D, false, WIDE_V>(b, j, tiles, shared);
}

/* Few tokens of latent attention: the query heads of a token, which share keys and values, are the rows of the products.
 * A block serves 32 heads of a token in one KV range, and half of the values; two of its warps take 16 heads each, for
 * the first half of those values, two for the second. Queries and weights are sums of two f16, so that only the
 * rounding of the cache counts. Roofline: bytes; 8,192 rows of 1,152 bytes, once, are 9.4 MB, 2 us at 4.5 TB/s. */
enum { LATENT_HEADS = 32, LATENT_V = 256 };
template <int D>
__global__ void __launch_bounds__(128)
    latent_kernel(const __grid_constant__ dspans b, const __grid_constant__ attn_job j) {
    typedef flash<D, false> room;
    typedef piece_reader<D, LATENT_V, room::QUERIES> reader;
    static_assert(room::N_QUERY == 2 * LATENT_HEADS, "high and low parts of the queries");
    constexpr int ROW = reader::piece::ROW, OWN_V = LATENT_V / 2;
    DYNAMIC_SHARED(uint16_t, sq);
    pdl_trigger();
    pdl_wait();
    int tid = (int)threadIdx.x, lane = tid % 32, warp = tid / 32, gr = lane / 4, tc = lane % 4;
    int n_half = (j.v.d + LATENT_V - 1) / LATENT_V, v_from = (int)blockIdx.x % n_half * LATENT_V;
    int32_t head0 = (int32_t)blockIdx.x / n_half * LATENT_HEADS, t = j.rows[blockIdx.z];
    dspan s = b.spans[b.of_row[t]];
    int32_t own = (int32_t)s.pos + (t - s.row), length = stretch_of(j.shift, own);
    int32_t begin = (int32_t)blockIdx.y * length;
    if (begin > own) return;
    int32_t end = begin + length <= own ? begin + length : own + 1;
    reader r = {j, b.pages + s.page_at, sq, 0, end, v_from, 0};
    r.fetch(begin, 0, 0);
    for (int i = tid; i < LATENT_HEADS * (D / 2); i += 128) {
        int32_t h = head0 + i / (D / 2), e = i % (D / 2) * 2;
        float2 q = make_float2(0, 0);
        if (h < j.n_head) q = *(const float2 *)(j.q + ((int64_t)t * j.n_head + h) * D + e);
        q.x *= j.scale, q.y *= j.scale;
        uint32_t high = two_halves(q.x, q.y);
        uint16_t *to = sq + i / (D / 2) * room::ROW + e;
        *(uint32_t *)to = high;
        *(uint32_t *)(to + LATENT_HEADS * room::ROW) =
            two_halves(q.x - to_float((uint16_t)high), q.y - to_float((uint16_t)(high >> 16)));
    }
    flash_rows<OWN_V> rows = {};
#pragma unroll
    for (int k = 0; k < 2; k++) rows.own[k] = own, rows.most[k] = -INFINITY;
    const uint16_t *q = sq + warp % 2 * 16 * room::ROW;
    for (int32_t pos = begin; pos < end; pos += KV_PAGE) {
        float dot[8][4] = {};
#pragma unroll 1
        for (int i = 0; i < reader::N_KEY; i++) {
            const uint16_t *k = r.next(pos, i);
            warp_scores<ROW_PIECE>(dot, q + i * ROW_PIECE, room::ROW, k, ROW);
            warp_scores<ROW_PIECE>(dot, q + LATENT_HEADS * room::ROW + i * ROW_PIECE, room::ROW, k,
                                   ROW);
        }
        uint32_t w[4][4], low[4][4];
        rows.template weigh<true>(j, pos, own, dot, w, low);
#pragma unroll
        for (int i = 0; i < LATENT_V / ROW_PIECE; i++) {
            const uint16_t *v = r.next(pos, reader::N_KEY + i);
            float(*acc)[4] = rows.acc + i % (OWN_V / ROW_PIECE) * (ROW_PIECE / 8);
            if (warp / 2 != i / (OWN_V / ROW_PIECE)) continue;
            warp_values<ROW_PIECE>(acc, w, v, ROW);
            warp_values<ROW_PIECE>(acc, low, v, ROW);
        }
    }
    copy_wait<0>();
    int first = v_from + warp / 2 * OWN_V;
#pragma unroll
    for (int k = 0; k < 2; k++) {
        float sum = lanes_sum(rows.sum[k], 4);
        int32_t h = head0 + warp % 2 * 16 + gr + 8 * k;
        if (h >= j.n_head) continue;
        int64_t part = ((int64_t)blockIdx.z * j.n_head + h) * j.n_range + blockIdx.y;
        float *to = j.part + part * part_d(j.v.d) + first;
#pragma unroll
        for (int n = 0; n < OWN_V / 8; n++)
            if (first + n * 8 < j.v.d)
                *(float2 *)(to + n * 8 + 2 * tc) =
                    make_float2(rows.acc[n][2 * k], rows.acc[n][2 * k + 1]);
        if (first == 0 && tc == 0) j.stat[part] = make_float2(sum, rows.most[k]);
    }
}

bool cuda_attn_has_latent(const struct cuda *c, const attn_job &j) {
    return !c->params.precise && c->compute >= 80 && j.n_kv_head == 1 && j.k.d == LATENT_HEAD_MAX &&
           j.v.d % 8 == 0;
}

void cuda_attn_latent(struct cuda *c, const dspans &b, const attn_job &j, int n_split, int n_row) {
    typedef flash<LATENT_HEAD_MAX, false> room;
    int n_block = (j.n_head + LATENT_HEADS - 1) / LATENT_HEADS;
    int n_half = (j.v.d + LATENT_V - 1) / LATENT_V;
    launch(c, latent_kernel<LATENT_HEAD_MAX>,
           dim3((unsigned)(n_block * n_half), (unsigned)n_split, (unsigned)n_row), dim3(128),
           room::bytes, b, j);
}

/* Reverses the rotation of rows in place and applies the gate, for spans that flash_kernel computed. */
__global__ void unrotate_kernel(dspans b, attn_job j) {
    DYNAMIC_SHARED(float, x);
    pdl_trigger();
    pdl_wait();
    int32_t h = (int32_t)blockIdx.x, t = (int32_t)blockIdx.y;
    if (b.spans[b.of_row[t]].n_tok <= STEP_MAX_TOK) return;
    int d = j.v.d;
    float *out = j.out + ((int64_t)t * j.n_head + h) * d;
    for (int i = (int)threadIdx.x; i < d; i += (int)blockDim.x) x[i] = out[i];
    __syncthreads();
    hadamard_heads(x, d, j.rotate);
    for (int i = (int)threadIdx.x; i < d; i += (int)blockDim.x) {
        float y = x[i];
        if (j.gate)
            y *= 1.0f / (1.0f + expf(-j.gate[t * j.gate_tok_stride + h * j.gate_head_stride + i]));
        out[i] = y;
    }
}

template <int D>
static void flash_launch(struct cuda *c, dim3 grid, const dspans &b, const attn_job &j,
                         const flash_tile *tiles) {
    bool group = c->has_group_mma;
    launch(c, flash_kernel<D>, grid,
           dim3(group ? flash<D, true>::THREADS : flash<D, false>::THREADS),
           group ? flash<D, true>::bytes : flash<D, false>::bytes, b, j, tiles);
}

template <int D>
static void wide_launch(struct cuda *c, dim3 grid, const dspans &b, const attn_job &j,
                        const flash_tile *tiles) {
    typedef flash<D, false> room;
    launch(c, flash_wide_kernel<D>, grid, dim3(room::THREADS), room::bytes, b, j, tiles);
}

void cuda_attn_many(struct cuda *c, const struct attn_args *a, const dspans &b, const attn_job &j) {
    int d = j.k.d > j.v.d ? j.k.d : j.v.d;
    bool by_groups = c->has_group_mma && d <= 256;
    int32_t n_tile = 0, each = by_groups ? flash<64, true>::N_QUERY : flash<64, false>::N_QUERY;
    for (int32_t i = 0; i < a->n_span; i++)
        if (a->spans[i].n_tok > STEP_MAX_TOK) n_tile += (a->spans[i].n_tok + each - 1) / each;
    flash_tile *host = (flash_tile *)cuda_stage_room(c, (size_t)n_tile * sizeof *host);
    if (!host) return;
    int32_t k = n_tile; /* the tiles with the longest context start first */
    for (int32_t i = 0; i < a->n_span; i++)
        for (int32_t t = 0; a->spans[i].n_tok > STEP_MAX_TOK && t < a->spans[i].n_tok; t += each)
            host[--k] = flash_tile{i, t};
    const flash_tile *tiles = (const flash_tile *)cuda_staged(c, host);
    dim3 grid((unsigned)n_tile, (unsigned)a->n_head);
    if (d <= 64) flash_launch<64>(c, grid, b, j, tiles);
    else if (d <= 128) flash_launch<128>(c, grid, b, j, tiles);
    else if (d <= 256) flash_launch<256>(c, grid, b, j, tiles);
    else {
        grid.z = (unsigned)(j.v.d + WIDE_V - 1) / WIDE_V;
        if (d <= HEAD_MAX) wide_launch<HEAD_MAX>(c, grid, b, j, tiles);
        else wide_launch<LATENT_HEAD_MAX>(c, grid, b, j, tiles);
    }
    if (j.rotate)
        launch(c, unrotate_kernel, dim3((unsigned)a->n_head, (unsigned)a->n_tok), dim3(128),
               (size_t)j.v.d * 4, b, j);
}

/* ---- encoders ---- */

__global__ void full_kernel(dspans b, attn_full_args a) {
    DYNAMIC_SHARED(float, score); /* for every token of the span */
    __shared__ float room[32];
    pdl_trigger();
    pdl_wait();
    int32_t h = (int32_t)blockIdx.x, t = (int32_t)blockIdx.y;
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, n_warp = (int)blockDim.x / 32;
    dspan s = b.spans[b.of_row[t]];
    int32_t d = a.d_head, pos = t - s.row, first = 0, end = s.n_tok;
    if (a.window > 0) {
        first = pos > a.window ? pos - a.window : 0;
        end = pos + a.window + 1 < s.n_tok ? pos + a.window + 1 : s.n_tok;
    }
    const float *bias = a.bias ? a.bias + (2 * (int64_t)a.n_bias + 1) * h + a.n_bias : NULL;
    int64_t row = (int64_t)a.n_head * d, at = (int64_t)h * d;
    const float *own = a.q + t * row + at;
    float most = -INFINITY;
    for (int i = first + warp; i < end; i += n_warp) {
        const float *key = a.k + (int64_t)(s.row + i) * row + at;
        float dot = 0;
        for (int e = lane; e < d; e += 32) dot += own[e] * key[e];
        dot = lanes_sum(dot, 32) * a.scale;
        int32_t n = i - pos > a.n_bias ? a.n_bias : i - pos < -a.n_bias ? -a.n_bias : i - pos;
        if (bias) dot += bias[n];
        if (lane == 0) score[i] = dot;
        most = fmaxf(most, dot);
    }
    if (lane == 0) room[warp] = most;
    __syncthreads();
    for (int i = 0; i < n_warp; i++) most = fmaxf(most, room[i]);
    __syncthreads();
    float sum = 0;
    for (int i = first + (int)threadIdx.x; i < end; i += (int)blockDim.x) {
        score[i] = expf(score[i] - most);
        sum += score[i];
    }
    sum = block_sum(sum, room);
    for (int e = (int)threadIdx.x; e < d; e += (int)blockDim.x) {
        float y = 0;
        for (int i = first; i < end; i++) y += score[i] * a.v[(int64_t)(s.row + i) * row + at + e];
        a.out[t * row + at + e] = y / sum;
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
           (size_t)most * 4, b, *a);
}

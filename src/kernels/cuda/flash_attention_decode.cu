/* flash_attention_decode.cu: attention of few tokens on the tensor cores.
 *
 * A block processes whole pages of a KV range, one or two at a time; each warp takes 16 positions, a quarter of a page,
 * of up to 8 query heads of one KV head. Scores are Q K^T with heads as rows: rows 0 to 7 are q in f16, rows 8 to 15
 * the residual of q against f32, so that only the rounding of the cache counts. The scores come out in the fragment
 * layout in which P^T enters V^T P^T, whose columns are the 8 heads. The weights P are split into two f16 too. Keys and
 * values arrive in parts of 16 positions through a ring of two or three slots per warp: with an f16 cache 16 KB per
 * warp are in flight, with Q8_0 4 or 9 KB. A warp copies 512 contiguous bytes per instruction. The 16-byte pieces of an
 * f16 row are swizzled, so that neither copies nor reads have bank conflicts. The elements of a key row are used in
 * another order than in memory (q is reordered alike). Of values a lane loads 8 adjacent elements of 4 positions and
 * pairs them by byte permutation; the lanes exchange only scores. If there are few KV ranges, the block that ends last
 * merges them: a fence and a counter cost less than a kernel. The type of the cache is a template parameter: a run-time
 * test for each 8 elements serialized the loads and cost a quarter of the instructions. Roofline: bytes; 32,768
 * positions of 2 heads of 256 f16 are 67 MB, 15 us at 4.5 TB/s. Instructions: with Q8_0 about 1,040 per warp and 16
 * positions of 256 elements, 4,096 times at that depth. More warps hide them, so quantized heads of 256 use 128
 * registers and 16 warps per multiprocessor. */
#include <utility>

#include "kernels/cuda/attention.cuh"

enum {
    PAGE_TURN = 16, /* positions a warp processes at once: a tensor core tile */
    PAGE_PARTS = KV_PAGE / PAGE_TURN,
};
static_assert(KV_PAGE == 1 << PAGE_SHIFT, "stretches of whole pages");

/* Parameters of page_kernel. T: type of keys and values; 0: they differ. W: warps, S: slots of the ring. */
template <int D_, int T_, int W, int S> struct page_form {
    static constexpr int D = D_, T = T_, WARPS = W, SLOTS = S, THREADS = W * 32;
    static constexpr int SLOT = T == QUANT_F16 ? PAGE_TURN * D * 2 : PAGE_TURN * (D / 32 * 34);
    /* 64 registers of queries are kept in shared memory where it suffices, so that twice as many
     * warps fit in the registers */
    static constexpr bool Q_SHARED = D > 256 || (D == 256 && T != QUANT_F16);
    static constexpr int QUERY = D / 16 * 32 * 16, RING = S * W * SLOT;
    static constexpr int SHARED = RING + (Q_SHARED ? QUERY : 0);
    /* per multiprocessor */
    static constexpr int BLOCKS = D < 256 ? 3 : D > 256 || (W > 4 && T == 0) ? 1 : 2;
    static constexpr bool JOINS = D <= 256; /* wider, page_join would need too many registers */
    static_assert(W % PAGE_PARTS == 0, "whole pages");
    static_assert(Q_SHARED || W * SLOT >= QUERY, "the last place has room for the queries");
    static_assert(W * MAX_GROUP * (D + 4) * 4 <= RING, "room to join");
    static constexpr int HEADS = (MAX_GROUP + 2) * D * 4; /* new heads, as floats */
    static_assert(T != QUANT_F16 || W * SLOT >= QUERY + HEADS, "and for fresh heads");
};

/* ---- elements of a row ---- */

/* Loads three words with two loads. AT: offset of p from a multiple of 8 bytes: 0 or 4, or -1 if unknown. */
template <int AT> __device__ __forceinline__ uint3 three_words(const uint8_t *p) {
    const uint32_t *w = (const uint32_t *)p;
    if constexpr (AT < 0) return make_uint3(w[0], w[1], w[2]);
    uint2 two = *(const uint2 *)(AT ? w + 1 : w);
    return AT ? make_uint3(w[0], two.x, two.y) : make_uint3(two.x, two.y, w[2]);
}
/* decode8 for Q8_0 rows of D elements and a block known at compile time, by words. */
template <int D>
__device__ __forceinline__ uint4 decode8_words(const uint8_t *row, int block, int at) {
    const uint8_t *b = row + block * 34;
    uint32_t less = 0x64806480u, d = *(const uint16_t *)b;
    d |= d << 16;
    if (block % 2) {
        uint32_t w0, w1;
        if (D >= 128 && block % 4 == 3) {
            uint2 two = *(const uint2 *)(b + 2 + at);
            w0 = two.x ^ 0x80808080u, w1 = two.y ^ 0x80808080u;
        } else {
            const uint32_t *q = (const uint32_t *)(b + 2 + at);
            w0 = q[0] ^ 0x80808080u, w1 = q[1] ^ 0x80808080u;
        }
        return make_uint4(two_codes(w0, 0x4140, less, d), two_codes(w0, 0x4342, less, d),
                          two_codes(w1, 0x4140, less, d), two_codes(w1, 0x4342, less, d));
    }
    uint3 q = D < 128     ? three_words<-1>(b + at)
              : block % 4 ? three_words<4>(b + at)
                          : three_words<0>(b + at);
    /* the two bytes before the first element are the scale */
    uint32_t w0 = q.x ^ 0x80808080u, w1 = q.y ^ 0x80808080u, w2 = q.z ^ 0x80808080u;
    return make_uint4(two_codes(w0, 0x4342, less, d), two_codes(w1, 0x4140, less, d),
                      two_codes(w1, 0x4342, less, d), two_codes(w2, 0x4140, less, d));
}
/* Dequantizes the lane's 8 elements of two Q8_0 rows: elements 8 (gr % 4) of block gr / 4 of two. The
 * blocks begin AT bytes (three_words) from a multiple of 8. a[m][at] is element 2 m of both rows as
 * f16, a[m][at + 1] the next element. */
template <int AT>
__device__ __forceinline__ void values8_two(const uint8_t *row0, const uint8_t *row1, bool has0,
                                            bool has1, uint32_t (&a)[4][4], int at) {
    int gr = (int)threadIdx.x % 32 / 4, block = gr / 4 * 34;
    uint32_t d0 = *(const uint16_t *)(row0 + block), d1 = *(const uint16_t *)(row1 + block);
    uint32_t d = (has0 ? d0 : 0) | (has1 ? d1 : 0) << 16;
    uint3 q0 = three_words<AT>(row0 + gr * 8), q1 = three_words<AT>(row1 + gr * 8);
    /* the quants of an even block begin in the middle of a word, those of an odd block with the second word */
    uint32_t align = gr / 4 ? 0x7654 : 0x5432;
    const uint32_t x[2] = {__byte_perm(q0.x, q0.y, align), __byte_perm(q0.y, q0.z, align)};
    const uint32_t y[2] = {__byte_perm(q1.x, q1.y, align), __byte_perm(q1.y, q1.z, align)};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t both = __byte_perm(x[i / 2], y[i / 2], i % 2 ? 0x7362 : 0x5140) ^ 0x80808080u;
        a[i][at] = two_codes(both, 0x4140, 0x64806480u, d);
        a[i][at + 1] = two_codes(both, 0x4342, 0x64806480u, d);
    }
}
/* Bytes of a row of D elements; a constant if its type T is known. */
template <int D, int T> __device__ __forceinline__ int page_row(const cache &c) {
    return T == QUANT_Q8_0 ? D / 32 * 34 : T == QUANT_Q4_0 ? D / 32 * 18 : (int)c.row_bytes;
}

/* The residual of two floats against two f16, as f16. */
__device__ __forceinline__ uint32_t rest_of(float lo, float hi, uint32_t halves) {
    return two_halves(lo - to_float((uint16_t)halves), hi - to_float((uint16_t)(halves >> 16)));
}

/* Softmax weights of positions 2 tc, 2 tc + 1, 2 tc + 8 and 2 tc + 9 from their scores, of which each comes in two
 * parts. Returns the factor by which the previous sums must be multiplied. */
__device__ __forceinline__ float page_weights(const attn_job &j, const float (&dot)[2][2][4],
                                              int32_t pos, int32_t last, int32_t own, float &most,
                                              float &sum, float w[4]) {
    int tc = (int)threadIdx.x % 4;
    float m = most;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float(*two)[4] = dot[i / 2];
        int32_t at = pos + tc * 2 + i % 2 + i / 2 * 8;
        float v = (two[0][i % 2] + two[1][i % 2]) + (two[0][i % 2 + 2] + two[1][i % 2 + 2]);
        if (j.softcap != 0.0f) v = j.softcap * tanhf(v / j.softcap);
        if (at > last || !is_seen(j, at, own)) v = -INFINITY;
        w[i] = v;
        m = fmaxf(m, v);
    }
    m = lanes_max(m, 4);
    float keep = most == m || most == -INFINITY ? 1.0f : quick_exp(most - m);
    most = m;
    sum *= keep;
    /* fmaxf drops NaN, but the weight of a NaN is NaN, even if no other position is visible */
#pragma unroll
    for (int i = 0; i < 4; i++) {
        w[i] = w[i] == -INFINITY ? 0.0f : quick_exp(w[i] - m);
        sum += w[i];
    }
    return keep;
}

/* Converts q [n_here, D] to fragments once per block: elements 8 tc ... of each 32, four for each of two products.
 * room: [D / 16][32], in shared memory. */
template <class P, class F>
__device__ __forceinline__ void page_query(const attn_job &j, const float *q, int n_here,
                                           uint4 *room, F meanwhile) {
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, gr = lane / 4, tc = lane % 4;
    constexpr int D = P::D, N = (D / 32 + P::WARPS - 1) / P::WARPS;
    float4 x[N][2];
#pragma unroll
    for (int i = 0; i < N; i++) {
        int c = warp + i * P::WARPS;
        const float4 *src = (const float4 *)(q + gr * D + c * 32 + tc * 8);
        bool has = gr < n_here && c < D / 32;
        x[i][0] = has ? src[0] : make_float4(0, 0, 0, 0);
        x[i][1] = has ? src[1] : make_float4(0, 0, 0, 0);
    }
    meanwhile();
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int k = 0; k < 2; k++) {
            int c = warp + i * P::WARPS;
            float4 f = x[i][k];
            f.x *= j.scale, f.y *= j.scale, f.z *= j.scale, f.w *= j.scale;
            uint32_t lo = two_halves(f.x, f.y), hi = two_halves(f.z, f.w);
            if (c < D / 32)
                room[(2 * c + k) * 32 + lane] =
                    make_uint4(lo, rest_of(f.x, f.y, lo), hi, rest_of(f.z, f.w, hi));
        }
    __syncthreads();
}

/* ---- results ---- */

/* Which head values a thread merges: N heads, every PER_TURN-th from `first` on; four elements of each, from e on. */
template <class P> struct page_share {
    static constexpr int PER_TURN = P::THREADS / (P::D / 4), N = MAX_GROUP / PER_TURN;
    int first, e;
    __device__ __forceinline__ page_share(void)
        : first((int)(threadIdx.x / (P::D / 4u))), e((int)(threadIdx.x % (P::D / 4u)) * 4) {}
    __device__ __forceinline__ int head(int u) const { return first + u * PER_TURN; }
    /* Whether any thread has a u-th head, out of n_here. */
    static __device__ __forceinline__ bool has_turn(int u, int n_here) {
        return u * PER_TURN < n_here;
    }
};

template <class P>
__device__ __forceinline__ void page_gates(const attn_job &j, int32_t t, int head0, int n_here,
                                           float4 *gate) {
    page_share<P> my;
#pragma unroll
    for (int u = 0; u < my.N; u++) {
        if (!my.has_turn(u, n_here)) break;
        gate[u] = my.head(u) < n_here && j.gate
                      ? *(const float4 *)(j.gate + t * j.gate_tok_stride +
                                          (head0 + my.head(u)) * j.gate_head_stride + my.e)
                      : make_float4(0, 0, 0, 0);
    }
}

/* Applies the gate to the values of the thread's u-th head and stores them. All threads must call it. */
template <class P>
__device__ __forceinline__ void page_finish(const attn_job &j, int32_t t, int head0, int n_here,
                                            int u, float4 y, float4 gate) {
    page_share<P> my;
    if (j.gate) {
        y.x *= logistic(gate.x), y.y *= logistic(gate.y);
        y.z *= logistic(gate.z), y.w *= logistic(gate.w);
    }
    bool has = my.head(u) < n_here;
    int64_t to = ((int64_t)t * j.n_head + head0 + my.head(u)) * P::D + my.e;
    if (has) *(float4 *)(j.out + to) = y;
    if (j.out8.q) act8_put4(j.out8, to / 4, has ? y : make_float4(0, 0, 0, 0), has);
}

/* Weight, relative to the maximum m, of a sum that is relative to the maximum `own`. */
__device__ __forceinline__ float weight_of(float own, float m) {
    return own == -INFINITY ? 0.0f : quick_exp(own - m);
}

/* Merges the warps' sums and values of each head in shared memory, in a fixed order. If there is only one KV range,
 * the result is finished here; else it is stored at `part` for the merge. */
template <class P>
__device__ __forceinline__ void page_put(const attn_job &j, float (&acc)[P::D / 64][4][4],
                                         float sum, float most, float *room,
                                         float2 (&stat)[P::WARPS][MAX_GROUP], int64_t part,
                                         bool is_only, int32_t t, int head0, int n_here) {
    constexpr int D = P::D, S = D + 4, N_VALUE = D / 64; /* S avoids bank conflicts */
    int tid = (int)threadIdx.x, lane = tid % 32, warp = tid / 32, gr = lane / 4, tc = lane % 4;
    page_share<P> my;
    float4 gate[my.N];
    sum = lanes_sum(sum, 4);
    if (tc == 0) stat[warp][gr] = make_float2(sum, most);
    copy_wait<0>();
    __syncthreads();
    auto most_of = [&](int g) {
        float m = stat[0][g].y;
#pragma unroll
        for (int w = 1; w < P::WARPS; w++) m = fmaxf(m, stat[w][g].y);
        return m;
    };
    auto total_of = [&](int g, float m) {
        float total = 0;
#pragma unroll
        for (int w = 0; w < P::WARPS; w++) total += stat[w][g].x * weight_of(stat[w][g].y, m);
        return total;
    };
#pragma unroll
    for (int k = 0; k < 2; k++) {
        int g = 2 * tc + k;
        float f = weight_of(stat[warp][g].y, most_of(g));
#pragma unroll
        for (int c = 0; c < N_VALUE; c++)
#pragma unroll
            for (int m = 0; m < 4; m += 2)
                *(float4 *)(room + (warp * MAX_GROUP + g) * S + c * 64 + gr * 8 + m * 2) =
                    make_float4(acc[c][m][k] * f, acc[c][m][k + 2] * f, acc[c][m + 1][k] * f,
                                acc[c][m + 1][k + 2] * f);
    }
    if (is_only) page_gates<P>(j, t, head0, n_here, gate);
    __syncthreads();
    float *to = j.part + (part + (int64_t)my.first * j.n_range) * D + my.e;
#pragma unroll
    for (int u = 0; u < my.N; u++) {
        if (!my.has_turn(u, n_here)) break;
        int g = my.head(u);
        float4 y = make_float4(0, 0, 0, 0);
#pragma unroll
        for (int w = 0; w < P::WARPS; w++) {
            float4 x = *(const float4 *)(room + (w * MAX_GROUP + g) * S + my.e);
            y.x += x.x, y.y += x.y, y.z += x.z, y.w += x.w;
        }
        if (is_only) {
            float own = most_of(g), sink = j.sinks && g < n_here ? j.sinks[head0 + g] : -INFINITY;
            float m = fmaxf(own, sink), f = weight_of(own, m);
            f /= total_of(g, own) * f + weight_of(sink, m);
            y.x *= f, y.y *= f, y.z *= f, y.w *= f;
            page_finish<P>(j, t, head0, n_here, u, y, gate[u]);
        } else if (g < n_here) *(float4 *)(to + u * my.PER_TURN * j.n_range * D) = y;
    }
    if (!is_only && tid < n_here) {
        float m = most_of(tid);
        j.stat[part + (int64_t)tid * j.n_range] = make_float2(total_of(tid, m), m);
    }
}

/* Few KV ranges: the last block merges them; each thread merges the elements it wrote.
 * part: index of the first range. */
template <class P>
__device__ __forceinline__ void page_join(const attn_job &j, int32_t t, int64_t part, int head0,
                                          int n_here, int n_all) {
    __shared__ float factors[MAX_GROUP][JOIN_FEW];
    int tid = (int)threadIdx.x;
    page_share<P> my;
    constexpr int D = P::D, PER_TURN = my.PER_TURN, N = my.N;
    float4 x[N][JOIN_FEW], gate[N];
    float2 mine = make_float2(0.0f, -INFINITY);
    int g = tid / JOIN_FEW % MAX_GROUP, k = tid % JOIN_FEW;
    if (g < n_here && k < n_all) mine = __ldcg(j.stat + part + (int64_t)g * j.n_range + k);
    const float *from = j.part + (part + (int64_t)my.first * j.n_range) * D + my.e;
#pragma unroll
    for (int r = 0; r < JOIN_FEW; r++) {
        if (r >= n_all) break;
#pragma unroll
        for (int u = 0; u < N; u++) {
            if (!my.has_turn(u, n_here)) break;
            x[u][r] = my.head(u) < n_here
                          ? __ldcg((const float4 *)(from + (u * PER_TURN * j.n_range + r) * D))
                          : make_float4(0, 0, 0, 0);
        }
    }
    page_gates<P>(j, t, head0, n_here, gate);
    float sink = j.sinks && g < n_here ? j.sinks[head0 + g] : -INFINITY;
    float m = fmaxf(lanes_max(mine.y, JOIN_FEW), sink), f = weight_of(mine.y, m);
    float total = lanes_sum(mine.x * f, JOIN_FEW) + weight_of(sink, m);
    if (tid < MAX_GROUP * JOIN_FEW) factors[g][k] = f / total;
    __syncthreads();
#pragma unroll
    for (int u = 0; u < N; u++) {
        if (!my.has_turn(u, n_here)) break;
        float4 y = make_float4(0, 0, 0, 0);
#pragma unroll
        for (int r = 0; r < JOIN_FEW; r++) {
            if (r >= n_all) break;
            float c = factors[my.head(u)][r];
            y.x += x[u][r].x * c, y.y += x[u][r].y * c;
            y.z += x[u][r].z * c, y.w += x[u][r].w * c;
        }
        page_finish<P>(j, t, head0, n_here, u, y, gate[u]);
    }
}

/* Whether this block is the last of n_all to arrive; all threads get the same result. Not static: the names of its shared
 * variables would contain a hash of the path, and two builds would differ. */
__device__ __forceinline__ bool is_last(uint32_t *counter, int n_all) {
    __shared__ uint32_t arrived;
    __syncthreads();
    if (threadIdx.x == 0) arrived = atomic_ticket(counter) + 1u;
    __syncthreads();
    bool last = arrived == (uint32_t)n_all;
    if (threadIdx.x == 0 && last) *counter = 0;
    return last;
}

/* ---- positions ---- */

/* acc += V^T P^T for 16 positions from pos on; from: their values in the ring. */
template <int D, int T>
__device__ __forceinline__ void page_values(const attn_job &j, const uint8_t *from, int32_t pos,
                                            int32_t last, const uint32_t p[2],
                                            const uint32_t rest[2], float (&acc)[D / 64][4][4]) {
    int lane = (int)threadIdx.x % 32, gr = lane / 4, tc = lane % 4;
#pragma unroll
    for (int c = 0; c < D / 64; c++) {
        /* two positions together: their quants are interleaved as bytes, then converted to pairs of f16 */
        if constexpr (T == QUANT_Q8_0) {
            uint32_t a[4][4];
#pragma unroll
            for (int pair = 0; pair < 2; pair++) {
                const uint8_t *two = from + (tc * 2 + pair * 8) * page_row<D, T>(j.v) + c * 68;
                bool has = pos + tc * 2 + pair * 8 <= last;
                bool has_next = pos + tc * 2 + pair * 8 + 1 <= last;
                const uint8_t *next = two + page_row<D, T>(j.v);
                if (D < 128) values8_two<-1>(two, next, has, has_next, a, pair * 2);
                else if (c % 2) values8_two<4>(two, next, has, has_next, a, pair * 2);
                else values8_two<0>(two, next, has, has_next, a, pair * 2);
            }
#pragma unroll
            for (int m = 0; m < 4; m++) {
                mma_16816(acc[c][m], a[m], p);
                mma_16816(acc[c][m], a[m], rest);
            }
            continue;
        }
        uint32_t v[4][4];
#pragma unroll
        for (int r = 0; r < 4; r++) {
            uint4 x;
            if constexpr (T == QUANT_F16) /* swizzled by 2 tc (copy_halves) */
                x = *(const uint4 *)(from + tc * 4 * D + (gr ^ tc * 2) * 16 +
                                     (r % 2 + r / 2 * 8) * 2 * D + c * 128);
            else {
                int row = tc * 2 + r % 2 + r / 2 * 8;
                x = decode8(T ? T : j.v.type, from + row * page_row<D, T>(j.v), c * 2 + gr / 4,
                            gr % 4 * 8, pos + row <= last);
            }
            v[r][0] = x.x, v[r][1] = x.y, v[r][2] = x.z, v[r][3] = x.w;
        }
#pragma unroll
        for (int m = 0; m < 4; m++) {
            uint32_t a[4] = {
                __byte_perm(v[0][m], v[1][m], 0x5410), __byte_perm(v[0][m], v[1][m], 0x7632),
                __byte_perm(v[2][m], v[3][m], 0x5410), __byte_perm(v[2][m], v[3][m], 0x7632)};
            mma_16816(acc[c][m], a, p);
            mma_16816(acc[c][m], a, rest);
        }
    }
}

/* The ring of asynchronous copies. A part is 16 positions: in step i the keys are part 2 i, the values part 2 i + 1. */
template <class P> struct page_ring {
    static constexpr int D = P::D, T = P::T, N_KEY = D / 32, N_VALUE = D / 64;
    static constexpr int STEP = P::WARPS * PAGE_TURN, STEP_PAGES = P::WARPS / PAGE_PARTS;
    static constexpr bool H = T == QUANT_F16;
    const attn_job &j;
    const dspans &b;
    uint8_t *ring;             /* [SLOTS][WARPS][SLOT], shared */
    int32_t first_page, begin; /* this warp's, within the range */
    int32_t last, stored;      /* last positions: of the range; in the cache */
    uint32_t at_k, at_v;       /* offset within a page that the lane copies */
    int32_t page, some_pages;  /* of the last part; page of one of 32 steps per lane */

    __device__ __forceinline__ bool has_step(int step) const { return begin + step * STEP <= last; }
    __device__ __forceinline__ uint8_t *slot(int part) const {
        return ring + (part % P::SLOTS * P::WARPS + (int)threadIdx.x / 32) * P::SLOT;
    }
    __device__ __forceinline__ void aim(int kv) {
        int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
        uint32_t at = (uint32_t)(kv * KV_PAGE + warp % PAGE_PARTS * PAGE_TURN);
        at_k = at * (uint32_t)page_row<D, T>(j.k) + (uint32_t)lane * 16;
        at_v = at * (uint32_t)page_row<D, T>(j.v) + (uint32_t)lane * 16;
        page = 0, some_pages = has_step(lane) ? b.pages[first_page + lane * STEP_PAGES] : 0;
    }
    __device__ __forceinline__ void copy(int part) {
        int step = part / 2;
        if (has_step(step)) {
            if (part % 2 == 0) next_page(step);
            const cache &c = part % 2 ? j.v : j.k;
            const uint8_t *from = c.data + (size_t)page * c.page_bytes + (part % 2 ? at_v : at_k);
            uint8_t *to = slot(part);
            int has = stored - (begin + step * STEP) + 1; /* number of stored positions */
            if constexpr (!H) copy_coded(to + threadIdx.x % 32 * 16, from, c);
            else if (part % 2 == 0) copy_halves<false>(to, from, has);
            else copy_halves<true>(to, from, has);
        }
        copy_commit();
    }

    __device__ __forceinline__ void next_page(int step) {
        int lane = (int)threadIdx.x % 32;
        if (step % 32 == 0 && step)
            some_pages =
                has_step(step + lane) ? b.pages[first_page + (step + lane) * STEP_PAGES] : 0;
        page = __shfl_sync(0xffffffffu, some_pages, step % 32);
    }
    __device__ __forceinline__ void copy_coded(uint8_t *to, const uint8_t *from,
                                               const cache &c) const {
        constexpr int MOST = PAGE_TURN * (D / 32 * 34) / 16; /* upper bound for all types */
#pragma unroll
        for (int i = 0; i < MOST; i += 32)
            if (i + (int)threadIdx.x % 32 < page_row<D, T>(c))
                copy_async16(to + i * 16, from + i * 16, true);
    }
    /* Swizzle: the 16-byte piece c of a row is stored at c ^ turn(row). turn() takes the bits of the row number in
     * which lanes that read together differ: for keys they read 64 bytes of two rows, for values 32 bytes of four rows.
     * Both readers compute the swizzle in their own form: as a common function of row and column it added a fifth to
     * the loop's instructions. */
    template <bool IS_VALUES> static __device__ __forceinline__ int turn(int row) {
        return IS_VALUES ? row & 6 : row % 2 * 4;
    }
    template <bool IS_VALUES>
    __device__ __forceinline__ void copy_halves(uint8_t *to, const uint8_t *from, int has) const {
        int lane = unknown((int)threadIdx.x) % 32; /* recomputed, to save registers */
#pragma unroll
        for (int i = 0; i < PAGE_TURN * D * 2; i += 512) {
            int row = (i + lane * 16) / (2 * D);
            copy_async16(to + i + (lane ^ turn<IS_VALUES>(row)) * 16, from + i, row < has);
        }
    }
};

/* ---- heads of the new token ---- */

/* Computes the block's queries as floats in `heads` [MAX_GROUP + 2][D], one warp per head. If the token's own
 * position is in the block's range, also its key and value, as f16 in kv (shared memory); the first block of a KV
 * head stores them in the cache too. */
template <class P>
__device__ __forceinline__ void page_fresh(const fresh_job &f, const head_angles<P::D / 32> &angles,
                                           const int32_t *pages, int32_t t, int32_t own, int head0,
                                           int n_here, int kv_head, bool has_own, bool is_first,
                                           float *heads, uint16_t (&kv)[2][P::D]) {
    constexpr int D = P::D, E = D / 32;
    int lane = (int)threadIdx.x % 32;
#pragma unroll 1
    for (int i = (int)threadIdx.x / 32; i < n_here + (has_own ? 2 : 0); i += P::WARPS) {
        const store_job &s = i < n_here ? f.q : i == n_here ? f.k : f.v;
        const float *src =
            s.src + t * s.tok_stride + (i < n_here ? head0 + i : kv_head) * s.head_stride;
        float w[E], x[E], *mine = heads + i * D;
#pragma unroll
        for (int e = 0; e < E; e++) x[e] = src[e * 32 + lane];
#pragma unroll
        for (int e = 0; e < E; e++) w[e] = s.norm ? s.norm[e * 32 + lane] : 1.0f;
        head_make<E>(s, angles, w, mine, x);
        if (i < n_here) {
#pragma unroll
            for (int e = 0; e < E; e++) mine[e * 32 + lane] = x[e];
            continue;
        }
        uint16_t *row = (uint16_t *)cache_row(s.to, pages, own, kv_head);
#pragma unroll
        for (int e = 0; e < E; e++) {
            uint16_t half = to_half(x[e]);
            kv[i - n_here][e * 32 + lane] = half;
            if (is_first) row[e * 32 + lane] = half;
        }
    }
    __syncthreads();
}

/* FRESH: the step's keys and values are not stored yet; the kernel computes them from f. */
template <class P, bool FRESH>
__global__ void __launch_bounds__(P::THREADS, P::BLOCKS)
    page_kernel(const __grid_constant__ dspans b, const __grid_constant__ attn_job j,
                const __grid_constant__ fresh_job f) {
    constexpr int D = P::D, T = P::T, SLOTS = P::SLOTS, SLOT = P::SLOT;
    constexpr bool H = T == QUANT_F16;
    constexpr int N_KEY = D / 32, N_VALUE = D / 64;
    constexpr int STEP = P::WARPS * PAGE_TURN;
    DYNAMIC_SHARED(uint8_t, ring); /* [SLOTS][WARPS][SLOT]; queries */
    __shared__ float2 stat[P::WARPS][MAX_GROUP];
    if (!FRESH) pdl_trigger();
    int tid = (int)threadIdx.x, lane = tid % 32, warp = tid / 32, gr = lane / 4, tc = lane % 4;
    int32_t t = j.rows[blockIdx.z];
    dspan s = b.spans[b.of_row[t]];
    int32_t own = (int32_t)s.pos + (t - s.row), n = stretch_of(PAGE_SHIFT, own);
    int32_t begin = (int32_t)blockIdx.y * n, last = min(begin + n - 1, own);
    if (begin > own) return;
    /* skip pages before the window */
    if (j.window > 0 && j.n_keep <= begin)
        begin = max(begin, max(own - j.window + 1, 0) / KV_PAGE * KV_PAGE);
    int32_t group = j.n_head / j.n_kv_head, per = (group + j.heads - 1) / j.heads;
    int32_t kv = (int32_t)blockIdx.x / per;
    int32_t head0 = kv * group + (int32_t)blockIdx.x % per * j.heads;
    int32_t n_here = min(kv * group + group - head0, j.heads);
    begin += warp * PAGE_TURN; /* first position of this warp; it advances by STEP */
    bool has_own = FRESH && last == own;
    page_ring<P> parts = {j, b, ring, s.page_at + begin / KV_PAGE, begin, last, last - has_own};
    parts.aim(kv);
    auto slot = [&](int item) { return parts.slot(item); };
    auto copy = [&](int item) { parts.copy(item); };
    /* Only a warp that at once needs data of the preceding kernel waits before its first copies. */
    constexpr int N_FIRST =
        P::Q_SHARED ? SLOTS : SLOTS - 1; /* parts copied while queries are loaded */
    bool is_new = false;                 /* the preceding kernel writes some of these */
#pragma unroll
    for (int i = 0; !FRESH && i < (N_FIRST + 1) / 2; i++)
        is_new |= parts.has_step(i) && min(begin + i * STEP + PAGE_TURN - 1, last) >= s.pos;
    auto copy_first = [&] {
#pragma unroll
        for (int i = 0; i < N_FIRST; i++) copy(i);
    };
    if (!is_new) copy_first();
    __shared__ __align__(16) uint16_t fresh[FRESH ? 2 : 1][FRESH ? D : 8];
    const float *q_rows = j.q + ((int64_t)t * j.n_head + head0) * D;
    if constexpr (FRESH) {
        head_angles<D / 32> angles(f.q, own);
        float *heads = (float *)(ring + (SLOTS - 1) * P::WARPS * SLOT + P::QUERY);
        pdl_wait();
        page_fresh<P>(f, angles, b.pages + s.page_at, t, own, head0, n_here, kv, has_own,
                      (int32_t)blockIdx.x % per == 0, heads, fresh);
        q_rows = heads;
    } else pdl_wait();
    /* in ring slots that are not in use yet */
    uint4 *queries = (uint4 *)(ring + (P::Q_SHARED ? P::RING : (SLOTS - 1) * P::WARPS * SLOT));
    page_query<P>(j, q_rows, n_here, queries, [&] {
        if (is_new) copy_first();
    });
    uint4 q[P::Q_SHARED ? 1 : D / 16];
    if constexpr (!P::Q_SHARED) {
#pragma unroll
        for (int i = 0; i < D / 16; i++) q[i] = queries[i * 32 + lane];
        __syncthreads();
        copy(SLOTS - 1);
    }
    auto query = [&](int i) {
        return P::Q_SHARED ? queries[i * 32 + lane] : q[P::Q_SHARED ? 0 : i];
    };

    /* acc[c][m]: dimension 64 c + 8 gr + 2 m of heads 2 tc and 2 tc + 1, then the next dimension of the same heads */
    float acc[N_VALUE][4][4], most = -INFINITY, sum = 0.0f; /* of head gr */
#pragma unroll
    for (int c = 0; c < N_VALUE; c++)
#pragma unroll
        for (int m = 0; m < 4; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) acc[c][m][i] = 0.0f;
#pragma unroll 1
    for (int step = 0; parts.has_step(step); step++) {
        int32_t pos = begin + step * STEP;
        float dot[2][2][4]; /* 8 positions each; two independent accumulators */
#pragma unroll
        for (int i = 0; i < 16; i++) dot[i / 8][i / 4 % 2][i % 4] = 0.0f;
        copy_wait<SLOTS - 1>();
        __syncwarp();
        /* the token's own row was not in the cache yet when the part was copied */
        bool is_own = FRESH && has_own && own - pos < PAGE_TURN;
        auto put_own = [&](int part, const uint16_t *from, int turn) {
            if (lane < D / 8)
                *(uint4 *)(slot(part) + (own - pos) * 2 * D + (lane ^ turn) * 16) =
                    ((const uint4 *)from)[lane];
            __syncwarp();
        };
        if constexpr (FRESH)
            if (is_own) put_own(2 * step, fresh[0], parts.template turn<false>(own - pos));
        const uint8_t *from = slot(2 * step);
        /* swizzle of copy_halves: in odd rows the two 64-byte halves of each 128 bytes are swapped */
        const int turn = gr % 2 * 64;
#pragma unroll
        for (int c = 0; c < N_KEY; c++) {
            uint4 q_lo = query(2 * c), q_hi = query(2 * c + 1);
            uint32_t a_lo[4] = {q_lo.x, q_lo.y, q_lo.z, q_lo.w};
            uint32_t a_hi[4] = {q_hi.x, q_hi.y, q_hi.z, q_hi.w};
#pragma unroll
            for (int n8 = 0; n8 < 2; n8++) {
                uint4 k;
                if constexpr (H)
                    k = *(const uint4 *)(from + (n8 * 8 + gr) * 2 * D + tc * 16 + c * 64 +
                                         (c % 2 ? -turn : turn));
                else if constexpr (T == QUANT_Q8_0)
                    k = decode8_words<D>(from + (n8 * 8 + gr) * page_row<D, T>(j.k), c, tc * 8);
                else
                    k = decode8(T ? T : j.k.type, from + (n8 * 8 + gr) * page_row<D, T>(j.k), c,
                                tc * 8, true);
                uint32_t lo[2] = {k.x, k.y}, hi[2] = {k.z, k.w};
                mma_16816(dot[n8][0], a_lo, lo);
                mma_16816(dot[n8][1], a_hi, hi);
            }
        }
        __syncwarp();
        copy(2 * step + SLOTS);
        float w[4], keep = page_weights(j, dot, pos, last, own, most, sum, w);
        uint32_t p[2] = {two_halves(w[0], w[1]), two_halves(w[2], w[3])};
        uint32_t rest[2] = {rest_of(w[0], w[1], p[0]), rest_of(w[2], w[3], p[1])};
        if (__ballot_sync(0xffffffffu, keep != 1.0f)) {
            float even = __shfl_sync(0xffffffffu, keep, tc * 8);
            float odd = __shfl_sync(0xffffffffu, keep, tc * 8 + 4);
#pragma unroll
            for (int c = 0; c < N_VALUE; c++)
#pragma unroll
                for (int i = 0; i < 16; i++) acc[c][i / 4][i % 4] *= i % 2 ? odd : even;
        }
        copy_wait<SLOTS - 1>();
        __syncwarp();
        if constexpr (FRESH)
            if (is_own) put_own(2 * step + 1, fresh[1], parts.template turn<true>(own - pos));
        page_values<D, T>(j, slot(2 * step + 1), pos, last, p, rest, acc);
        __syncwarp();
        copy(2 * step + SLOTS + 1);
    }

    if (FRESH) pdl_trigger(); /* not earlier: the next kernel's prefetch would compete */
    int32_t part = ((int32_t)blockIdx.z * j.n_head + head0) * j.n_range + (int32_t)blockIdx.y;
    int n_all = own / stretch_of(PAGE_SHIFT, own) + 1;
    bool is_only = !P::Q_SHARED && n_all == 1 && j.few; /* if Q_SHARED, registers do not suffice */
    page_put<P>(j, acc, sum, most, (float *)ring, stat, part, is_only, t, head0, n_here);
    if (!P::JOINS || is_only || n_all > j.few) return;
    if (is_last(j.arrived + blockIdx.z * gridDim.x + blockIdx.x, n_all))
        page_join<P>(j, t, part - (int32_t)blockIdx.y, head0, n_here, n_all);
}

/* ---- launches ---- */

int cuda_attn_page_heads(const struct cuda *c, const cache &k, const cache &v) {
    bool is_half = k.type == QUANT_F16 && v.type == QUANT_F16;
    auto is_coded = [](const cache &c) { return c.type == QUANT_Q8_0 || c.type == QUANT_Q4_0; };
    if (k.d != v.d || !(is_half || (is_coded(k) && is_coded(v)))) return 0;
    if (k.d == HEAD_MAX && !has_wide_room(c)) return 0;
    return k.d == 64 || k.d == 128 || k.d == 256 || k.d == HEAD_MAX ? k.d : 0;
}

template <class P, bool FRESH = false>
static void page_form_launch(struct cuda *c, dim3 grid, const dspans &b, const attn_job &j,
                             const fresh_job &f = {}) {
    launch(c, page_kernel<P, FRESH>, grid, dim3(P::THREADS), (size_t)P::SHARED, b, j, f);
}

/* Query heads per block. Normally the whole GQA group shares one read of keys and values. If that leaves
 * SMs idle, use fewer heads per block: the warp's serial instruction stream then costs more than reading
 * the cache again. */
static int heads_of_block(const struct cuda *c, const attn_job &j, int n_split, int n_row) {
    enum { FEWEST = 2 };
    int group = j.n_head / j.n_kv_head, heads = group < MAX_GROUP ? group : (int)MAX_GROUP;
    auto blocks = [&](int n) { return j.n_kv_head * ((group + n - 1) / n) * n_split * n_row; };
    while (heads / 2 >= FEWEST && blocks(heads / 2) <= c->n_sm) heads /= 2;
    return heads;
}

/* Quantized heads of 256: twice the warps, and as many ring slots as fit in shared memory. */
template <int D, int T>
static void page_launch_coded(struct cuda *c, dim3 grid, const dspans &b, const attn_job &j) {
    if constexpr (D != 256)
        page_form_launch<page_form<D, T, 4, 3>>(c, grid, b, j); /* 512: 120 KB */
    else if (has_wide_room(c)) page_form_launch<page_form<D, T, 8, 3>>(c, grid, b, j); /* 110 KB */
    else if (c->compute >= 80) page_form_launch<page_form<D, T, 8, 2>>(c, grid, b, j); /* 76 */
    else page_form_launch<page_form<D, T, 4, 3>>(c, grid, b, j);                       /* 59 */
}

template <int D>
static void page_launch(struct cuda *c, const dspans &b, attn_job j, const fresh_job *fresh,
                        int n_split, int n_row) {
    j.heads = heads_of_block(c, j, n_split, n_row);
    int per = (j.n_head / j.n_kv_head + j.heads - 1) / j.heads;
    dim3 grid((unsigned)(j.n_kv_head * per), (unsigned)n_split, (unsigned)n_row);
    uint32_t type = j.k.type == j.v.type ? j.k.type : 0;
    using halves = page_form<D, QUANT_F16, 4, (D > 256 ? 2 : 3)>; /* 512: 144 KB */
    if constexpr (D <= 256)
        if (fresh) {
            page_form_launch<halves, true>(c, grid, b, j, *fresh);
            return;
        }
    if (type == QUANT_F16) page_form_launch<halves>(c, grid, b, j);
    else if (type == QUANT_Q8_0) page_launch_coded<D, QUANT_Q8_0>(c, grid, b, j);
    else if (type == QUANT_Q4_0) page_launch_coded<D, QUANT_Q4_0>(c, grid, b, j);
    else page_launch_coded<D, 0>(c, grid, b, j);
}

void cuda_attn_pages(struct cuda *c, const dspans &b, const attn_job &j, const fresh_job *fresh,
                     int n_split, int n_row) {
    if (j.k.d == 64) page_launch<64>(c, b, j, fresh, n_split, n_row);
    else if (j.k.d == 128) page_launch<128>(c, b, j, fresh, n_split, n_row);
    else if (j.k.d == 256) page_launch<256>(c, b, j, fresh, n_split, n_row);
    else page_launch<HEAD_MAX>(c, b, j, fresh, n_split, n_row);
}

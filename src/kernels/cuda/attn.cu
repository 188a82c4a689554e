/* attn.cu: queries, keys and values into the cache; attention over pages and inside a batch.
 *
 * Few tokens of a sequence: the cache is cut into stretches of positions, a block each; warps take
 * positions in turn and keep running maxima and sums, and a second kernel joins the stretches. Roofline: the
 * bytes of keys and values, read once per group of query heads. The length of a stretch follows from the
 * token's own position alone, so its bits do not depend on its neighbours. Heads of 64, 128 or 256 go through
 * the tensor cores (page_kernel); other sizes, caches of floats and precise mode through split_kernel.
 * Many tokens: attn_many.cu. */
#include <utility>

#include "kernels/cuda/attn.cuh"

enum {
    SPLIT_THREADS = 128,
    MAX_SPLIT = 128,
    SPLIT_SHIFT = 4, /* stretches of split_kernel are multiples of 16: a step of a block */
    PAGE_SHIFT = 6,  /* of page_kernel: of a page */
    MAX_GROUP = 8,   /* query heads of one kv head that a block serves */
    JOIN_FEW = 8,    /* stretches that the last block of them to end joins */
    FEW_ROWS = 32,   /* rows whose stretches have room at once */
};

/* ---- storing ---- */

struct store_job {
    const float *src, *norm;
    int64_t tok_stride, head_stride;
    float eps;
    int32_t n_rot, mode; /* mode ROPE_NONE: values */
    const float *inv_freq;
    float magnitude;
    int32_t rotate, n_head;
    float *out; /* queries: [n_tok, n_head, d]; else NULL */
    cache to;
};

/* A warp writes block b of 32: all lanes hold one value each. */
__device__ __forceinline__ void store_32(uint32_t type, uint8_t *row, int b, float v) {
    int lane = (int)threadIdx.x % 32;
    float a = fabsf(v), most = lanes_max(a, 32);
    bool bad = __ballot_sync(0xffffffffu, !(a <= 3.402823466e38f)) != 0;
    if (type == QUANT_Q8_0) {
        uint8_t *dst = row + b * 34;
        /* codes for the scale as it is kept, in half precision, which must reach the largest value */
        __half half = __float2half(bad ? __int_as_float(0x7fc00000) : most / 127.0f);
        uint16_t bits;
        memcpy(&bits, &half, 2);
        if (!bad && to_float(bits) * 127.5f < most && bits < 0x7bff) bits++;
        float inv = bits ? 1.0f / to_float(bits) : 0.0f;
        if (lane == 0) memcpy(dst, &bits, 2);
        float q = fminf(fmaxf(rintf(v * inv), -127.0f), 127.0f);
        dst[2 + lane] = (uint8_t)(int8_t)(bad ? 1.0f : q);
        return;
    }
    /* q4_0: the value of largest magnitude becomes -8; codes round to nearest */
    uint32_t who = __ballot_sync(0xffffffffu, a == most);
    int first = 0;
    while (first < 31 && !(who >> first & 1)) first++;
    float extreme = __shfl_sync(0xffffffffu, v, first);
    float d = extreme / -8.0f, inv = d != 0.0f ? 1.0f / d : 0.0f;
    int q = bad ? 8 : (int)(v * inv + 8.5f);
    q = q < 0 ? 0 : q > 15 ? 15 : q;
    int high = __shfl_xor_sync(0xffffffffu, q, 16);
    uint8_t *dst = row + b * 18;
    __half half = __float2half(bad ? __int_as_float(0x7fc00000) : d);
    if (lane == 0) memcpy(dst, &half, 2);
    if (lane < 16) dst[2 + lane] = (uint8_t)(q | high << 4);
}

/* A warp a head: lane l has elements l, l + 32 ..., E of them, and nothing waits for other warps. Angles and weights of
 * the norm are ready before the wait. Roofline: latencies; one read, a norm of 5 shuffles, a turn through shared
 * memory, 8 x 5 shuffles of the rotation where there is one, one write: about 350 instructions of a lone warp. */
enum { STORE_WARPS = 4 }; /* at most: as many as blockDim says */
template <int E>
__global__ void __launch_bounds__(STORE_WARPS * 32)
    store_kernel(const __grid_constant__ dspans b, const __grid_constant__ store_job jq,
                 const __grid_constant__ store_job jk, const __grid_constant__ store_job jv,
                 int32_t n_q, int32_t n_kv) {
    __shared__ float turned[STORE_WARPS][E * 32];
    launch_next();
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    int32_t h = (int32_t)(blockIdx.y * (blockDim.x / 32)) + warp, t = (int32_t)blockIdx.x;
    if (h >= n_q + 2 * n_kv) return;
    const store_job &j = h < n_q ? jq : h < n_q + n_kv ? jk : jv;
    h = h < n_q ? h : (h - n_q) % n_kv;
    int d = j.to.d, half = j.mode == ROPE_NONE ? 0 : j.n_rot / 2;
    dspan s = b.spans[b.of_row[t]];
    int64_t pos = s.pos + (t - s.row);
    uint8_t *row = j.out ? NULL : (uint8_t *)cache_row(j.to, b.pages + s.page_at, pos, h);
    float sn[E / 2], cs[E / 2], w[E], x[E], sum = 0;
#pragma unroll
    for (int i = 0; i < E / 2; i++) {
        if (i * 32 >= half) break;
        float angle = i * 32 + lane < half ? (float)pos * j.inv_freq[i * 32 + lane] : 0.0f;
        sn[i] = sinf(angle) * j.magnitude;
        cs[i] = cosf(angle) * j.magnitude;
    }
#pragma unroll
    for (int i = 0; i < E; i++) w[i] = j.norm && i * 32 + lane < d ? j.norm[i * 32 + lane] : 1.0f;
    wait_previous();
    const float *src = j.src + t * j.tok_stride + h * j.head_stride;
#pragma unroll
    for (int i = 0; i < E; i++) x[i] = i * 32 + lane < d ? src[i * 32 + lane] : 0.0f;
    if (j.norm) {
#pragma unroll
        for (int i = 0; i < E; i++) sum += x[i] * x[i];
        float f = 1.0f / sqrtf(lanes_sum(sum, 32) / (float)d + j.eps);
#pragma unroll
        for (int i = 0; i < E; i++) x[i] *= f * w[i];
    }
    if (half) {
        float *mine = turned[warp];
#pragma unroll
        for (int i = 0; i < E; i++)
            if (i * 32 < 2 * half) mine[i * 32 + lane] = x[i];
        __syncwarp();
#pragma unroll
        for (int i = 0; i < E / 2; i++) {
            int p = i * 32 + lane;
            if (p >= half) break;
            int a = j.mode == ROPE_NORM ? 2 * p : p, c = j.mode == ROPE_NORM ? a + 1 : a + half;
            float x0 = mine[a], x1 = mine[c];
            mine[a] = x0 * cs[i] - x1 * sn[i];
            mine[c] = x0 * sn[i] + x1 * cs[i];
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < E; i++)
            if (i * 32 < 2 * half) x[i] = mine[i * 32 + lane];
    }
    if (j.rotate) {
        int n = d & -d;
        for (int o = 1; o < 32 && o < n; o *= 2)
#pragma unroll
            for (int i = 0; i < E; i++) {
                float y = __shfl_xor_sync(0xffffffffu, x[i], o);
                x[i] = lane & o ? y - x[i] : x[i] + y;
            }
#pragma unroll
        for (int o = 1; o < E; o *= 2) {
            if (o * 32 >= n) break;
#pragma unroll
            for (int i = 0; i < E; i++) {
                if (i & o) continue;
                float y = x[i], z = x[i | o];
                x[i] = y + z;
                x[i | o] = y - z;
            }
        }
        float f = 1.0f / sqrtf((float)n);
#pragma unroll
        for (int i = 0; i < E; i++) x[i] *= f;
    }
    float *out = j.out + ((int64_t)t * j.n_head + h) * d;
#pragma unroll
    for (int i = 0; i < E; i++) {
        int e = i * 32 + lane;
        if (i * 32 >= d) break;
        if (j.out) {
            if (e < d) out[e] = x[i];
        } else if (j.to.type == QUANT_F16) {
            if (e < d) ((uint16_t *)row)[e] = to_half(x[i]);
        } else if (j.to.type == QUANT_F32) {
            if (e < d) ((float *)row)[e] = x[i];
        } else store_32(j.to.type, row, i, x[i]);
    }
}

void cuda_qkv_store(struct dev *d, const struct qkv_store_args *a) {
    struct cuda *c = (struct cuda *)d;
    dspans b;
    if (!cuda_begin(c) || !cuda_spans(c, a->spans, a->n_span, &b)) return;
    const struct kv_view *kv = &a->kv;
    store_job q = {a->q,
                   a->q_norm,
                   a->q_tok_stride,
                   a->q_head_stride,
                   a->eps,
                   a->rope.n_rot,
                   (int32_t)a->rope.mode,
                   a->rope.inv_freq,
                   a->rope.magnitude,
                   kv->rotate,
                   a->n_head,
                   a->q_out,
                   {}};
    q.to.d = kv->d_k;
    store_job k = q, v = {};
    k.src = a->k;
    k.norm = a->k_norm;
    k.tok_stride = a->k_tok_stride;
    k.head_stride = kv->d_k;
    k.out = NULL;
    k.to = cache_of(kv->k, kv->k_type, kv->d_k, kv->k_page_bytes);
    v.src = a->v;
    v.tok_stride = a->v_tok_stride;
    v.head_stride = kv->d_v;
    v.mode = ROPE_NONE;
    v.rotate = kv->rotate;
    v.to = cache_of(kv->v, kv->v_type, kv->d_v, kv->v_page_bytes);
    int widest = kv->d_k > kv->d_v ? kv->d_k : kv->d_v;
    int32_t n_kv = a->k ? kv->n_kv_head : 0;
    if (a->q_out) cuda_wrote(c, a->q_out, (size_t)a->n_tok * (size_t)(a->n_head * kv->d_k) * 4);
    /* few tokens: a warp a block, so that each has a scheduler */
    int n_all = a->n_head + 2 * n_kv, n_warp = a->n_tok > STEP_MAX_TOK ? STORE_WARPS : 1;
    dim3 grid((unsigned)a->n_tok, (unsigned)((n_all + n_warp - 1) / n_warp));
    dim3 block((unsigned)n_warp * 32);
    if (widest <= 64) launch(c, store_kernel<2>, grid, block, 0, b, q, k, v, a->n_head, n_kv);
    else if (widest <= 128) launch(c, store_kernel<4>, grid, block, 0, b, q, k, v, a->n_head, n_kv);
    else if (widest <= 256) launch(c, store_kernel<8>, grid, block, 0, b, q, k, v, a->n_head, n_kv);
    else cuda_fail_with(c, CHIMERE_EUNSUPPORTED, "attention heads wider than 256");
}

/* ---- few tokens ---- */

/* Floats from one stretch's values to the next's. */
static __host__ __device__ inline int part_d(int d_v) { return (d_v + 3) / 4 * 4; }

/* Positions of a stretch for a token at position own: the fewest that need no more than MAX_SPLIT. */
__device__ __forceinline__ int32_t stretch_of(const attn_job &j, int32_t own) {
    return (own / (MAX_SPLIT << j.shift) + 1) << j.shift;
}

/* Lane l holds elements l * E .. of a row. T: the cache's type where rows are whole and loads can be wide, else 0. */
template <int E, int T>
__device__ __forceinline__ void load_lane(const cache &c, const uint8_t *row, float *x) {
    int at = (int)threadIdx.x % 32 * E;
    if constexpr (T == QUANT_F16) {
        uint32_t w[E / 2];
        if constexpr (E == 8) {
            uint4 v = *(const uint4 *)(row + 2 * at);
            w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
        } else if constexpr (E == 4) {
            uint2 v = *(const uint2 *)(row + 2 * at);
            w[0] = v.x, w[1] = v.y;
        } else w[0] = *(const uint32_t *)(row + 2 * at);
#pragma unroll
        for (int i = 0; i < E / 2; i++) {
            x[2 * i] = to_float((uint16_t)w[i]);
            x[2 * i + 1] = to_float((uint16_t)(w[i] >> 16));
        }
    } else if constexpr (T == QUANT_Q8_0) { /* a block of 34 bytes holds 32 / E lanes */
        const uint8_t *b = row + at / 32 * 34;
        float d = to_float(*(const uint16_t *)b);
        const uint16_t *q = (const uint16_t *)(b + 2 + at % 32);
#pragma unroll
        for (int i = 0; i < E / 2; i++) {
            uint32_t two = q[i];
            x[2 * i] = d * (float)(int8_t)two;
            x[2 * i + 1] = d * (float)(int8_t)(two >> 8);
        }
    } else {
#pragma unroll
        for (int i = 0; i < E; i++) x[i] = at + i < c.d ? cache_at(c, row, at + i) : 0.0f;
    }
}

/* Positions that a warp takes together. Of their G * AT_ONCE products with the queries each lane ends up with one
 * (or several lanes with the same), and makes its exponential. */
template <int G, int E, int T>
__global__ void __launch_bounds__(SPLIT_THREADS)
    split_kernel(const __grid_constant__ dspans b, const __grid_constant__ attn_job j) {
    constexpr int AT_ONCE = G * E <= 32 ? 4 : T ? 2 : 1; /* as registers allow */
    constexpr int V = G * AT_ONCE, EACH = 32 / V, WARPS = SPLIT_THREADS / 32;
    static_assert(V <= 32, "a lane a product");
    DYNAMIC_SHARED(float, room); /* per warp: G * (2 + d_v) */
    __shared__ float factor[WARPS][G];
    launch_next();
    int32_t t = j.rows[blockIdx.z], lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    dspan s = b.spans[b.of_row[t]];
    int64_t own = s.pos + (t - s.row), n = stretch_of(j, (int32_t)own);
    int64_t first = (int64_t)blockIdx.y * n, last = first + n - 1 < own ? first + n - 1 : own;
    if (first > own) return;
    int32_t group = j.n_head / j.n_kv_head, per = (group + G - 1) / G;
    int32_t kv = (int32_t)blockIdx.x / per, head0 = kv * group + (int32_t)blockIdx.x % per * G;
    int32_t head_end = kv * group + group;
    const int32_t *pages = b.pages + s.page_at;
    float q[G][E], acc[G][E];
    /* of the query of this lane's product */
    float most = -INFINITY, sum = 0.0f;
    /* positions of the span itself are written just now: their block waits at once, others after their first loads */
    bool is_new = last >= s.pos, is_first = true;
    if (is_new) wait_previous();
#pragma unroll 1
    for (int64_t at = first + warp * AT_ONCE; at <= last || is_first; at += WARPS * AT_ONCE) {
        float k[AT_ONCE][E], v[AT_ONCE][E];
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            int64_t pos = at + u <= last ? at + u : last;
            load_lane<E, T>(j.k, cache_row(j.k, pages, pos, kv), k[u]);
            load_lane<E, T>(j.v, cache_row(j.v, pages, pos, kv), v[u]);
        }
        if (is_first) {
            is_first = false;
            if (!is_new) wait_previous();
#pragma unroll
            for (int g = 0; g < G; g++) {
                const float *src = j.q + ((int64_t)t * j.n_head + head0 + g) * j.k.d + lane * E;
                bool has = head0 + g < head_end;
                if constexpr (T != 0 && E % 4 == 0) {
#pragma unroll
                    for (int i = 0; i < E; i += 4) {
                        float4 x = has ? *(const float4 *)(src + i) : make_float4(0, 0, 0, 0);
                        q[g][i] = x.x * j.scale, q[g][i + 1] = x.y * j.scale;
                        q[g][i + 2] = x.z * j.scale, q[g][i + 3] = x.w * j.scale;
                    }
                } else {
#pragma unroll
                    for (int i = 0; i < E; i++)
                        q[g][i] = has && lane * E + i < j.k.d ? src[i] * j.scale : 0.0f;
                }
#pragma unroll
                for (int i = 0; i < E; i++) acc[g][i] = 0.0f;
            }
        }
        float y[V];
#pragma unroll
        for (int g = 0; g < G; g++)
#pragma unroll
            for (int u = 0; u < AT_ONCE; u++) {
                float dot = 0;
#pragma unroll
                for (int i = 0; i < E; i++) dot += q[g][i] * k[u][i];
                y[g * AT_ONCE + u] = dot;
            }
        float mine = lanes_share<V>(y, lane, 32);
        int64_t pos = at + lane / EACH % AT_ONCE;
        if (j.softcap != 0.0f) mine = j.softcap * tanhf(mine / j.softcap);
        if (pos > last || !is_seen(j, pos, own)) mine = -INFINITY;
        float m = mine;
#pragma unroll
        for (int o = 1; o < AT_ONCE; o *= 2)
            m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, o * EACH));
        m = fmaxf(m, most);
        /* a maximum forgets NaN: one makes all of them NaN, and stays */
        if (__ballot_sync(0xffffffffu, !(mine == mine) || !(most == most)))
            m = __int_as_float(0x7fc00000);
        float keep = most == m ? 1.0f : expf(most - m), w = m == -INFINITY ? 0.0f : expf(mine - m);
        most = m;
        float total = w;
#pragma unroll
        for (int o = 1; o < AT_ONCE; o *= 2) total += __shfl_xor_sync(0xffffffffu, total, o * EACH);
        sum = sum * keep + total;
#pragma unroll
        for (int g = 0; g < G; g++) {
            float f = __shfl_sync(0xffffffffu, keep, g * AT_ONCE * EACH);
#pragma unroll
            for (int i = 0; i < E; i++) acc[g][i] *= f;
#pragma unroll
            for (int u = 0; u < AT_ONCE; u++) {
                f = __shfl_sync(0xffffffffu, w, (g * AT_ONCE + u) * EACH);
#pragma unroll
                for (int i = 0; i < E; i++) acc[g][i] += f * v[u][i];
            }
        }
    }
    /* warps join in shared memory, in order */
    int d_v = j.v.d, row = d_v + 2;
    float *own_room = room + (int64_t)warp * G * row;
    if (lane % (AT_ONCE * EACH) == 0) {
        own_room[lane / (AT_ONCE * EACH) * row] = sum;
        own_room[lane / (AT_ONCE * EACH) * row + 1] = most;
    }
#pragma unroll
    for (int g = 0; g < G; g++)
#pragma unroll
        for (int i = 0; i < E; i++)
            if (lane * E + i < d_v) own_room[g * row + 2 + lane * E + i] = acc[g][i];
    __syncthreads();
    auto most_of = [&](int g) {
        float m = -INFINITY;
        for (int w = 0; w < WARPS; w++) {
            float mw = room[(w * G + g) * row + 1];
            if (!(mw == mw)) return mw;
            m = fmaxf(m, mw);
        }
        return m;
    };
    if ((int)threadIdx.x < WARPS * G) {
        int w = (int)threadIdx.x / G, g = (int)threadIdx.x % G;
        float mw = room[(w * G + g) * row + 1];
        factor[w][g] = mw == -INFINITY ? 0.0f : expf(mw - most_of(g));
    }
    __syncthreads();
    int64_t part = ((int64_t)blockIdx.z * j.n_head + head0) * MAX_SPLIT + blockIdx.y;
#pragma unroll 1
    for (int g = 0; g < G && head0 + g < head_end; g++, part += MAX_SPLIT)
        for (int e = (int)threadIdx.x; e < d_v + 1; e += SPLIT_THREADS) {
            float total = 0;
#pragma unroll
            for (int w = 0; w < WARPS; w++)
                total += room[(w * G + g) * row + (e < d_v ? e + 2 : 0)] * factor[w][g];
            if (e < d_v) j.part[part * part_d(d_v) + e] = total;
            else j.stat[part] = make_float2(total, most_of(g));
        }
}

/* ---- few tokens, on the tensor cores ---- */

/* A block takes whole pages of a stretch, a warp a quarter of each: 16 positions. Up to 8 query heads of a kv
 * head: scores are Q K^T with heads as rows, halves of q in rows 0 to 7 and what they lack of the floats in
 * rows 8 to 15, so that only the cache's own rounding counts; they leave the product as the fragments in which
 * P^T goes into V^T P^T, whose columns are the 8 heads. Weights too go in as two halves each.
 * Keys and values come in parts of 16 positions through a ring of three places of the warp, so about 16 KB a
 * warp are on their way. Halves lie in the ring as the lane that copies them reads them: elements of a row of
 * keys in another order than in the product (q is reordered alike), and of values so that a lane holds 4 positions
 * of 8 neighbours, which it pairs by byte permutation; nothing is exchanged but scores.
 * Of few stretches, the block that ends last joins them: a fence and a counter cost less than a kernel.
 * Roofline: bytes; 32,768 positions of 2 heads of 256 halves are 67 MB, 15 us at 4.5 TB/s. Instructions: about 300
 * a warp and 16 positions, 2,400 for each scheduler, 2 us. */
enum {
    PAGE_WARPS = 4,
    PAGE_TURN = KV_PAGE / PAGE_WARPS, /* positions a warp takes at once */
    PAGE_SLOTS = 3,
};
static_assert(PAGE_TURN == 16 && KV_PAGE == 1 << PAGE_SHIFT, "a tile of the tensor cores");

/* What two halves lack of two floats, as halves. */
__device__ __forceinline__ uint32_t rest_of(float lo, float hi, uint32_t halves) {
    return two_halves(lo - to_float((uint16_t)halves), hi - to_float((uint16_t)(halves >> 16)));
}

/* q in fragments, made once: elements 8 tc ... of 32, four for each of two products. room: [D / 16][32], shared. */
template <int D, class F>
__device__ __forceinline__ void page_query(const attn_job &j, int32_t t, int head0, int n_here,
                                           uint4 *room, uint32_t (&q)[D / 16][4], F meanwhile) {
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, gr = lane / 4, tc = lane % 4;
    constexpr int N = (D / 32 + PAGE_WARPS - 1) / PAGE_WARPS;
    float4 x[N][2];
#pragma unroll
    for (int i = 0; i < N; i++) {
        int c = warp + i * PAGE_WARPS;
        const float4 *src =
            (const float4 *)(j.q + ((int64_t)t * j.n_head + head0 + gr) * D + c * 32 + tc * 8);
        bool has = gr < n_here && c < D / 32;
        x[i][0] = has ? src[0] : make_float4(0, 0, 0, 0);
        x[i][1] = has ? src[1] : make_float4(0, 0, 0, 0);
    }
    meanwhile();
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int k = 0; k < 2; k++) {
            int c = warp + i * PAGE_WARPS;
            float4 f = x[i][k];
            f.x *= j.scale, f.y *= j.scale, f.z *= j.scale, f.w *= j.scale;
            uint32_t lo = two_halves(f.x, f.y), hi = two_halves(f.z, f.w);
            if (c < D / 32)
                room[(2 * c + k) * 32 + lane] =
                    make_uint4(lo, rest_of(f.x, f.y, lo), hi, rest_of(f.z, f.w, hi));
        }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        uint4 f = room[i * 32 + lane];
        q[i][0] = f.x, q[i][1] = f.y, q[i][2] = f.z, q[i][3] = f.w;
    }
    __syncthreads();
}

/* Weights of positions 2 tc, 2 tc + 1, then 8 further on, from their scores in two parts each; what sums so far are to
 * be multiplied with is returned. */
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
    /* a maximum forgets NaN, but its weight does not, even where nothing else is seen */
#pragma unroll
    for (int i = 0; i < 4; i++) {
        w[i] = w[i] == -INFINITY ? 0.0f : quick_exp(w[i] - m);
        sum += w[i];
    }
    return keep;
}

/* The stretch's sums and values of each head: warps join in shared memory, in order. */
template <int D>
__device__ __forceinline__ void
page_put(const attn_job &j, float (&acc)[D / 64][4][4], float sum, float most, float *room,
         float2 (&stat)[PAGE_WARPS][MAX_GROUP], int64_t part, int n_here) {
    constexpr int S = D + 4, N_VALUE = D / 64; /* S: fewer conflicts of banks */
    int tid = (int)threadIdx.x, lane = tid % 32, warp = tid / 32, gr = lane / 4, tc = lane % 4;
    static_assert(MAX_GROUP * S * 4 <= PAGE_SLOTS * PAGE_TURN * D * 2, "room to join");
    sum = lanes_sum(sum, 4);
    if (tc == 0) stat[warp][gr] = make_float2(sum, most);
    copy_wait<0>();
    __syncthreads();
    auto most_of = [&](int g) {
        float m = stat[0][g].y;
#pragma unroll
        for (int w = 1; w < PAGE_WARPS; w++) m = fmaxf(m, stat[w][g].y);
        return m;
    };
    auto factor = [&](int w, int g, float m) {
        return stat[w][g].y == -INFINITY ? 0.0f : quick_exp(stat[w][g].y - m);
    };
#pragma unroll
    for (int k = 0; k < 2; k++) {
        int g = 2 * tc + k;
        float f = factor(warp, g, most_of(g));
#pragma unroll
        for (int c = 0; c < N_VALUE; c++)
#pragma unroll
            for (int m = 0; m < 4; m += 2)
                *(float4 *)(room + (warp * MAX_GROUP + g) * S + c * 64 + gr * 8 + m * 2) =
                    make_float4(acc[c][m][k] * f, acc[c][m][k + 2] * f, acc[c][m + 1][k] * f,
                                acc[c][m + 1][k + 2] * f);
    }
    __syncthreads();
#pragma unroll
    for (int i = tid; i < MAX_GROUP * D / 4; i += PAGE_WARPS * 32) {
        int g = i / (D / 4), e = i % (D / 4) * 4;
        float4 y = make_float4(0, 0, 0, 0);
#pragma unroll
        for (int w = 0; w < PAGE_WARPS; w++) {
            float4 x = *(const float4 *)(room + (w * MAX_GROUP + g) * S + e);
            y.x += x.x, y.y += x.y, y.z += x.z, y.w += x.w;
        }
        if (g < n_here) *(float4 *)(j.part + (part + (int64_t)g * MAX_SPLIT) * D + e) = y;
    }
    if (tid < n_here) {
        float m = most_of(tid), total = 0;
#pragma unroll
        for (int w = 0; w < PAGE_WARPS; w++) total += stat[w][tid].x * factor(w, tid, m);
        j.stat[part + (int64_t)tid * MAX_SPLIT] = make_float2(total, m);
    }
}

/* Few stretches: the last block joins them, each thread what it made of its own. part: of the first stretch. */
template <int D>
__device__ __forceinline__ void page_join(const attn_job &j, int32_t t, int64_t part, int head0,
                                          int n_here, int n_all) {
    __shared__ float factors[MAX_GROUP][JOIN_FEW];
    int tid = (int)threadIdx.x;
    constexpr int N = MAX_GROUP * D / 4 / (PAGE_WARPS * 32);
    float4 x[N][JOIN_FEW], gate[N];
    float2 mine = make_float2(0.0f, -INFINITY);
    int g = tid / JOIN_FEW % MAX_GROUP, k = tid % JOIN_FEW;
    if (g < n_here && k < n_all) mine = __ldcg(j.stat + part + (int64_t)g * MAX_SPLIT + k);
#pragma unroll
    for (int u = 0; u < N; u++) {
        int i = tid + u * PAGE_WARPS * 32, head = i / (D / 4), e = i % (D / 4) * 4;
        const float *from = j.part + (part + (int64_t)head * MAX_SPLIT) * D + e;
#pragma unroll
        for (int r = 0; r < JOIN_FEW; r++)
            x[u][r] = head < n_here && r < n_all ? __ldcg((const float4 *)(from + r * D))
                                                 : make_float4(0, 0, 0, 0);
        gate[u] = head < n_here && j.gate
                      ? *(const float4 *)(j.gate + t * j.gate_tok_stride +
                                          (head0 + head) * j.gate_head_stride + e)
                      : make_float4(0, 0, 0, 0);
    }
    float sink = j.sinks && g < n_here ? j.sinks[head0 + g] : -INFINITY;
    float m = fmaxf(lanes_max(mine.y, JOIN_FEW), sink);
    auto weight = [&](float a) { return a == -INFINITY ? 0.0f : quick_exp(a - m); };
    float f = weight(mine.y), total = lanes_sum(mine.x * f, JOIN_FEW) + weight(sink);
    if (tid < MAX_GROUP * JOIN_FEW) factors[g][k] = f / total;
    __syncthreads();
#pragma unroll
    for (int u = 0; u < N; u++) {
        int i = tid + u * PAGE_WARPS * 32, head = i / (D / 4), e = i % (D / 4) * 4;
        float4 y = make_float4(0, 0, 0, 0);
#pragma unroll
        for (int r = 0; r < JOIN_FEW; r++) {
            float c = factors[head][r];
            y.x += x[u][r].x * c, y.y += x[u][r].y * c;
            y.z += x[u][r].z * c, y.w += x[u][r].w * c;
        }
        if (j.gate) {
            y.x *= logistic(gate[u].x), y.y *= logistic(gate[u].y);
            y.z *= logistic(gate[u].z), y.w *= logistic(gate[u].w);
        }
        bool has = head < n_here;
        int64_t to = ((int64_t)t * j.n_head + head0 + head) * D + e;
        if (has) *(float4 *)(j.out + to) = y;
        if (j.out8.q) act8_put4(j.out8, to / 4, has ? y : make_float4(0, 0, 0, 0), has);
    }
}

/* acc += V^T P^T of 16 positions from pos on; from: their values in the ring. */
template <int D, bool H>
__device__ __forceinline__ void page_values(const attn_job &j, const uint8_t *from, int32_t pos,
                                            int32_t last, const uint32_t p[2],
                                            const uint32_t rest[2], float (&acc)[D / 64][4][4]) {
    int lane = (int)threadIdx.x % 32, gr = lane / 4, tc = lane % 4;
#pragma unroll
    for (int c = 0; c < D / 64; c++) {
        uint32_t v[4][4];
#pragma unroll
        for (int r = 0; r < 4; r++) {
            uint4 x;
            if constexpr (H) x = *(const uint4 *)(from + ((c * 4 + r) * 32 + lane) * 16);
            else {
                int row = tc * 2 + r % 2 + r / 2 * 8;
                x = decode8(j.v.type, from + row * (int)j.v.row_bytes, c * 64 + gr * 8,
                            pos + row <= last);
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

/* H: keys and values are halves; else coded. */
template <int D, bool H>
__global__ void __launch_bounds__(PAGE_WARPS * 32, D == 256 ? 2 : 3)
    page_kernel(const __grid_constant__ dspans b, const __grid_constant__ attn_job j) {
    constexpr int SLOT = PAGE_TURN * D * 2, N_KEY = D / 32, N_VALUE = D / 64;
    DYNAMIC_SHARED(uint8_t, ring); /* [PAGE_SLOTS][PAGE_WARPS][SLOT] */
    __shared__ float2 stat[PAGE_WARPS][MAX_GROUP];
    launch_next();
    int tid = (int)threadIdx.x, lane = tid % 32, warp = tid / 32, gr = lane / 4, tc = lane % 4;
    int32_t t = j.rows[blockIdx.z];
    dspan s = b.spans[b.of_row[t]];
    int32_t own = (int32_t)s.pos + (t - s.row), n = stretch_of(j, own);
    int32_t begin = (int32_t)blockIdx.y * n, last = min(begin + n - 1, own);
    if (begin > own) return;
    /* pages before the window */
    if (j.window > 0 && j.n_keep <= begin)
        begin = max(begin, max(own - j.window + 1, 0) / KV_PAGE * KV_PAGE);
    int32_t group = j.n_head / j.n_kv_head, per = (group + MAX_GROUP - 1) / MAX_GROUP;
    int32_t kv = (int32_t)blockIdx.x / per;
    int32_t head0 = kv * group + (int32_t)blockIdx.x % per * MAX_GROUP;
    int32_t n_here = min(kv * group + group - head0, (int32_t)MAX_GROUP);
    const int32_t *pages = b.pages + s.page_at + begin / KV_PAGE;
    begin += warp * PAGE_TURN; /* of this warp; it goes on by pages */
    int32_t n_step = begin <= last ? (last - begin) / KV_PAGE + 1 : 0;

    /* where the warp's positions begin within a page; of halves, what this lane copies */
    uint32_t at = (uint32_t)(kv * KV_PAGE + warp * PAGE_TURN);
    uint32_t at_k = at * (uint32_t)j.k.row_bytes + (H ? (uint32_t)(gr * D * 2 + tc * 16) : 0);
    uint32_t at_v = at * (uint32_t)j.v.row_bytes + (H ? (uint32_t)(tc * D * 4 + gr * 16) : 0);
    /* the page of the part copied last; those of 32 steps, one a lane */
    int32_t page = 0, some_pages = lane < n_step ? pages[lane] : 0;
    auto slot = [&](int item) { return ring + (item % PAGE_SLOTS * PAGE_WARPS + warp) * SLOT; };
    /* copies the keys of a step where even, its values where odd */
    auto copy = [&](int item) {
        int step = item / 2;
        if (step < n_step) {
            if (item % 2 == 0) {
                if (step % 32 == 0 && step)
                    some_pages = step + lane < n_step ? pages[step + lane] : 0;
                page = __shfl_sync(0xffffffffu, some_pages, step % 32);
            }
            const cache &c = item % 2 ? j.v : j.k;
            const uint8_t *from = c.data + (size_t)page * c.page_bytes + (item % 2 ? at_v : at_k);
            uint8_t *to = slot(item) + lane * 16;
            int has = last - (begin + step * KV_PAGE) + 1; /* positions */
            if constexpr (!H) {
                for (int i = lane; i < (int)c.row_bytes; i += 32, to += 512)
                    copy_async16(to, from + i * 16, true);
            } else if (item % 2 == 0) {
#pragma unroll
                for (int i = 0; i < 2 * N_KEY; i++)
                    copy_async16(to + i * 512, from + (i / N_KEY * 8 * D * 2 + i % N_KEY * 64),
                                 gr + i / N_KEY * 8 < has);
            } else {
#pragma unroll
                for (int i = 0; i < 4 * N_VALUE; i++) {
                    constexpr int ROW[4] = {0, 1, 8, 9};
                    copy_async16(to + i * 512, from + (ROW[i % 4] * D * 2 + i / 4 * 128),
                                 tc * 2 + ROW[i % 4] < has);
                }
            }
        }
        copy_commit();
    };
    /* what the kernel before writes is waited for, by the warp that needs it at once */
    bool is_new = min(begin + PAGE_TURN - 1, last) >= s.pos;
    if (!is_new) copy(0), copy(1);
    wait_previous();
    uint32_t q[D / 16][4];
    /* in a place where nothing is copied yet */
    page_query<D>(j, t, head0, n_here, (uint4 *)(ring + 2 * PAGE_WARPS * SLOT), q, [&] {
        if (is_new) copy(0), copy(1);
    });
    copy(2);

    /* acc[c][m]: dimensions 64 c + 8 gr + 2 m, heads 2 tc and 2 tc + 1; the next dimension, the same */
    float acc[N_VALUE][4][4], most = -INFINITY, sum = 0.0f; /* of head gr */
#pragma unroll
    for (int c = 0; c < N_VALUE; c++)
#pragma unroll
        for (int m = 0; m < 4; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) acc[c][m][i] = 0.0f;
#pragma unroll 1
    for (int step = 0; step < n_step; step++) {
        int32_t pos = begin + step * KV_PAGE;
        float dot[2][2][4]; /* 8 positions each; two chains of products */
#pragma unroll
        for (int i = 0; i < 16; i++) dot[i / 8][i / 4 % 2][i % 4] = 0.0f;
        copy_wait<2>();
        if constexpr (!H) __syncwarp();
        const uint8_t *from = slot(2 * step);
#pragma unroll
        for (int c = 0; c < N_KEY; c++)
#pragma unroll
            for (int n8 = 0; n8 < 2; n8++) {
                uint4 k;
                if constexpr (H) k = *(const uint4 *)(from + ((n8 * N_KEY + c) * 32 + lane) * 16);
                else
                    k = decode8(j.k.type, from + (n8 * 8 + gr) * (int)j.k.row_bytes,
                                c * 32 + tc * 8, true);
                uint32_t lo[2] = {k.x, k.y}, hi[2] = {k.z, k.w};
                mma_16816(dot[n8][0], q[2 * c], lo);
                mma_16816(dot[n8][1], q[2 * c + 1], hi);
            }
        if constexpr (!H) __syncwarp();
        copy(2 * step + 3);
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
        copy_wait<2>();
        if constexpr (!H) __syncwarp();
        page_values<D, H>(j, slot(2 * step + 1), pos, last, p, rest, acc);
        if constexpr (!H) __syncwarp();
        copy(2 * step + 4);
    }

    int64_t part = ((int64_t)blockIdx.z * j.n_head + head0) * MAX_SPLIT + blockIdx.y;
    page_put<D>(j, acc, sum, most, (float *)ring, stat, part, n_here);
    int n_all = own / n + 1;
    if (n_all > j.few) return;

    __shared__ uint32_t arrived;
    __syncthreads();
    uint32_t *counter = j.arrived + blockIdx.z * gridDim.x + blockIdx.x;
    if (tid == 0) {
        __threadfence();
        arrived = atomicAdd(counter, 1u) + 1u;
    }
    __syncthreads();
    if (arrived < (uint32_t)n_all) return;
    __threadfence();
    if (tid == 0) *counter = 0;
    page_join<D>(j, t, part - blockIdx.y, head0, n_here, n_all);
}

/* ---- joining stretches ---- */

/* Stretches of a head of a token, the sink, the rotation back, the gate. A block makes JOIN_D dimensions of a head,
 * all of them where they must be rotated: a thread adds four dimensions of every so many stretches, and asks for all
 * it needs (of 128 stretches, 8 times 16 bytes) before it knows their factors; each warp makes these for itself, so
 * the block waits once. Roofline: latencies; 16 heads of 256 and 103 stretches are 1.7 MB, 26 KB a block of 64. */
enum { JOIN_THREADS = 256, JOIN_D = 64, JOIN_AHEAD = 8 };
static int join_parts(const attn_job &j) { return j.rotate || j.v.d % JOIN_D ? 1 : j.v.d / JOIN_D; }
__global__ void __launch_bounds__(JOIN_THREADS)
    join_kernel(const __grid_constant__ dspans b, const __grid_constant__ attn_job j) {
    DYNAMIC_SHARED(float, x); /* rotated: d_v floats */
    __shared__ float4 room[JOIN_THREADS];
    launch_next();
    int32_t n_part = (int32_t)gridDim.x / j.n_head, h = (int32_t)blockIdx.x / n_part;
    int32_t t = j.rows[blockIdx.y];
    dspan s = b.spans[b.of_row[t]];
    int32_t own = (int32_t)s.pos + (t - s.row);
    int n = own / stretch_of(j, own) + 1, d_v = j.v.d, d = d_v / n_part;
    if (n <= j.few) return;
    int first_e = (int32_t)blockIdx.x % n_part * d;
    int64_t at = ((int64_t)blockIdx.y * j.n_head + h) * MAX_SPLIT;
    const float2 *stat = j.stat + at;
    const float4 *part = (const float4 *)(j.part + at * part_d(d_v) + first_e);
    int row = part_d(d_v) / 4, n_quad = (d + 3) / 4, n_team = JOIN_THREADS / n_quad;
    int tid = (int)threadIdx.x, lane = tid % 32, quad = tid % n_quad, team = tid / n_quad;
    if (team >= n_team) team = n; /* has nothing to add */
    wait_previous();
    float4 v[JOIN_AHEAD];
    float2 own_stat[JOIN_AHEAD], some[MAX_SPLIT / 32];
#pragma unroll
    for (int u = 0; u < MAX_SPLIT / 32; u++)
        some[u] = lane + u * 32 < n ? stat[lane + u * 32] : make_float2(0.0f, -INFINITY);
#pragma unroll
    for (int u = 0; u < JOIN_AHEAD; u++) {
        int k = team + u * n_team;
        v[u] = k < n ? part[(int64_t)k * row + quad] : make_float4(0, 0, 0, 0);
        own_stat[u] = k < n ? stat[k] : make_float2(0.0f, -INFINITY);
    }
    float gate[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int e = first_e + quad * 4 + i;
        gate[i] = j.gate && tid < n_quad && e < d_v
                      ? j.gate[t * j.gate_tok_stride + h * j.gate_head_stride + e]
                      : 0.0f;
    }
    /* NaN: a maximum forgets it, its factor does not */
    float sink = j.sinks ? j.sinks[h] : -INFINITY, m = -INFINITY, sum = 0.0f;
#pragma unroll
    for (int u = 0; u < MAX_SPLIT / 32; u++) m = fmaxf(m, some[u].y);
    m = fmaxf(lanes_max(m, 32), sink);
    auto factor = [&](float most) { return most == -INFINITY ? 0.0f : quick_exp(most - m); };
#pragma unroll
    for (int u = 0; u < MAX_SPLIT / 32; u++) sum += some[u].x * factor(some[u].y);
    sum = lanes_sum(sum, 32) + factor(sink);
    float4 y = make_float4(0, 0, 0, 0);
    auto add = [&](float4 from, float f) {
        y.x += from.x * f, y.y += from.y * f, y.z += from.z * f, y.w += from.w * f;
    };
#pragma unroll
    for (int u = 0; u < JOIN_AHEAD; u++) add(v[u], factor(own_stat[u].y));
#pragma unroll 4
    for (int k = team + JOIN_AHEAD * n_team; k < n; k += n_team)
        add(part[(int64_t)k * row + quad], factor(stat[k].y));
    room[tid] = y;
    __syncthreads();
    if (!j.rotate && tid / 32 * 32 >= n_quad) return;
    bool has = tid < n_quad;
    if (has) {
        y = room[tid];
        for (int k = 1; k < n_team; k++) add(room[tid + k * n_quad], 1.0f);
        float f = 1.0f / sum;
        y.x *= f, y.y *= f, y.z *= f, y.w *= f;
    }
    if (j.rotate) {
        float *mine = (float *)&y;
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (has && quad * 4 + i < d) x[quad * 4 + i] = mine[i];
        __syncthreads();
        hadamard_heads(x, d);
#pragma unroll
        for (int i = 0; i < 4; i++) mine[i] = has && quad * 4 + i < d ? x[quad * 4 + i] : 0.0f;
        if (tid / 32 * 32 >= n_quad) return;
    }
    if (j.gate) {
        y.x *= logistic(gate[0]), y.y *= logistic(gate[1]);
        y.z *= logistic(gate[2]), y.w *= logistic(gate[3]);
    }
    int64_t to = ((int64_t)t * j.n_head + h) * d_v + first_e + quad * 4;
    const float all[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (has && quad * 4 + i < d) j.out[to + i] = all[i];
    if (j.out8.q) act8_put4(j.out8, to / 4, has ? y : make_float4(0, 0, 0, 0), has);
}

template <int G, int E>
static void split_launch(struct cuda *c, const dspans &b, const attn_job &j, int n_split,
                         int n_row) {
    int group = j.n_head / j.n_kv_head;
    dim3 grid((unsigned)(j.n_kv_head * ((group + G - 1) / G)), (unsigned)n_split, (unsigned)n_row),
        block(SPLIT_THREADS);
    size_t shared = (size_t)(SPLIT_THREADS / 32) * G * (size_t)(j.v.d + 2) * 4;
    bool is_whole = j.k.type == j.v.type && j.k.d == 32 * E && j.v.d == 32 * E;
    if (is_whole && j.k.type == QUANT_F16)
        launch(c, split_kernel<G, E, QUANT_F16>, grid, block, shared, b, j);
    else if (is_whole && j.k.type == QUANT_Q8_0)
        launch(c, split_kernel<G, E, QUANT_Q8_0>, grid, block, shared, b, j);
    else launch(c, split_kernel<G, E, 0>, grid, block, shared, b, j);
}

template <int E>
static void split_group(struct cuda *c, const dspans &b, const attn_job &j, int n_split,
                        int n_row) {
    int group = j.n_head / j.n_kv_head;
    if (group == 1) split_launch<1, E>(c, b, j, n_split, n_row);
    else if (group <= 4) split_launch<4, E>(c, b, j, n_split, n_row);
    else split_launch<MAX_GROUP, E>(c, b, j, n_split, n_row);
}

/* The size of heads that page_kernel has a form for; 0: it has none. */
static int page_heads(const attn_job &j) {
    bool is_half = j.k.type == QUANT_F16 && j.v.type == QUANT_F16;
    auto is_coded = [](const cache &c) { return c.type == QUANT_Q8_0 || c.type == QUANT_Q4_0; };
    if (j.k.d != j.v.d || !(is_half || (is_coded(j.k) && is_coded(j.v)))) return 0;
    return j.k.d == 64 || j.k.d == 128 || j.k.d == 256 ? j.k.d : 0;
}

template <int D>
static void page_launch(struct cuda *c, const dspans &b, const attn_job &j, int n_split,
                        int n_row) {
    int per = (j.n_head / j.n_kv_head + MAX_GROUP - 1) / MAX_GROUP;
    dim3 grid((unsigned)(j.n_kv_head * per), (unsigned)n_split, (unsigned)n_row);
    size_t shared = (size_t)PAGE_SLOTS * PAGE_WARPS * PAGE_TURN * D * 2;
    if (j.k.type == QUANT_F16)
        launch(c, page_kernel<D, true>, grid, dim3(PAGE_WARPS * 32), shared, b, j);
    else launch(c, page_kernel<D, false>, grid, dim3(PAGE_WARPS * 32), shared, b, j);
}

/* ---- ops ---- */

size_t cuda_attn_scratch(const struct dev_need *n) {
    size_t n_row = (size_t)(n->n_tok < FEW_ROWS ? n->n_tok : FEW_ROWS);
    return n_row * (size_t)n->n_head * MAX_SPLIT * (size_t)(part_d(n->d_head) * 4 + 8) + 2048;
}

/* Rows of short spans, or of all, through stretches, FEW_ROWS at a time. */
static void stretches(struct cuda *c, const struct attn_args *a, const dspans &b, attn_job j,
                      bool all) {
    int32_t n_row = 0;
    int64_t longest = 1;
    for (int32_t i = 0; i < a->n_span; i++) {
        const struct span *s = &a->spans[i];
        if (s->n_tok > STEP_MAX_TOK && !all) continue;
        n_row += s->n_tok;
        longest = s->pos + s->n_tok > longest ? s->pos + s->n_tok : longest;
    }
    if (!n_row) return;
    int32_t *rows = (int32_t *)cuda_stage_room(c, (size_t)n_row * sizeof *rows), k = 0;
    if (!rows) return;
    for (int32_t i = 0; i < a->n_span; i++)
        for (int32_t t = 0; t < a->spans[i].n_tok; t++)
            if (a->spans[i].n_tok <= STEP_MAX_TOK || all) rows[k++] = a->spans[i].row + t;
    const int32_t *staged = (const int32_t *)cuda_staged(c, rows);
    int n_few = n_row < FEW_ROWS ? n_row : FEW_ROWS;
    size_t n_part = (size_t)n_few * (size_t)a->n_head * MAX_SPLIT;
    j.part = (float *)cuda_take(c, n_part * (size_t)part_d(j.v.d) * sizeof *j.part);
    j.stat = (float2 *)cuda_take(c, n_part * sizeof *j.stat);
    if (!j.part || !j.stat) return;
    int d = page_heads(j);
    bool pages = !all && d;
    j.shift = pages ? PAGE_SHIFT : SPLIT_SHIFT;
    j.arrived = c->arrived;
    bool is_wide = ((uintptr_t)j.gate | (uintptr_t)j.out) % 16 == 0 &&
                   (j.gate_tok_stride | j.gate_head_stride) % 4 == 0;
    j.few = pages && !j.rotate && is_wide && n_few * a->n_head <= CUDA_N_ARRIVED ? JOIN_FEW : 0;
    int n_split = 1; /* as many as the longest may need, in powers of two so that graphs repeat */
    while (n_split < MAX_SPLIT && (int64_t)n_split << j.shift < longest) n_split *= 2;
    int d_most = j.k.d > j.v.d ? j.k.d : j.v.d;
    for (int32_t at = 0; at < n_row; at += FEW_ROWS) {
        int n = n_row - at < FEW_ROWS ? n_row - at : FEW_ROWS;
        j.rows = staged + at;
        if (pages && d == 64) page_launch<64>(c, b, j, n_split, n);
        else if (pages && d == 128) page_launch<128>(c, b, j, n_split, n);
        else if (pages) page_launch<256>(c, b, j, n_split, n);
        else if (d_most <= 64) split_group<2>(c, b, j, n_split, n);
        else if (d_most <= 128) split_group<4>(c, b, j, n_split, n);
        else split_group<8>(c, b, j, n_split, n);
        if (longest <= (int64_t)j.few << j.shift) continue; /* joined already */
        launch(c, join_kernel, dim3((unsigned)(a->n_head * join_parts(j)), (unsigned)n),
               dim3(JOIN_THREADS), j.rotate ? (size_t)j.v.d * 4 : 0, b, j);
    }
}

void cuda_attn(struct dev *d, const struct attn_args *a) {
    struct cuda *c = (struct cuda *)d;
    dspans b;
    if (!cuda_begin(c) || !cuda_spans(c, a->spans, a->n_span, &b)) return;
    const struct kv_view *kv = &a->kv;
    attn_job j = {};
    j.k = cache_of(kv->k, kv->k_type, kv->d_k, kv->k_page_bytes);
    j.v = cache_of(kv->v, kv->v_type, kv->d_v, kv->v_page_bytes);
    j.q = a->q, j.sinks = a->sinks, j.gate = a->gate;
    j.gate_tok_stride = a->gate_tok_stride, j.gate_head_stride = a->gate_head_stride;
    j.n_head = a->n_head, j.n_kv_head = kv->n_kv_head;
    j.window = a->window, j.n_keep = a->n_keep, j.rotate = kv->rotate;
    j.scale = a->scale, j.softcap = a->softcap;
    j.out = a->out;
    int d_most = j.k.d > j.v.d ? j.k.d : j.v.d;
    if (d_most > 256) {
        cuda_fail_with(c, CHIMERE_EUNSUPPORTED, "attention heads wider than 256");
        return;
    }
    bool many = false;
    for (int32_t i = 0; i < a->n_span; i++) many |= a->spans[i].n_tok > STEP_MAX_TOK;
    int64_t n_out = (int64_t)a->n_head * j.v.d;
    cuda_wrote(c, a->out, (size_t)(a->n_tok * n_out) * 4);
    if (!many && j.v.d % 32 == 0) j.out8 = cuda_shadow_new(c, a->out, a->n_tok, n_out);
    /* tiles round to halves; of heads of 256 they take 99 KB of shared memory, and sm_75 has 64 */
    bool tiles = !c->params.precise && (d_most <= 128 || c->compute >= 80);
    if (many && tiles) cuda_attn_many(c, a, b, j);
    stretches(c, a, b, j, !tiles);
}

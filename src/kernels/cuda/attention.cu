/* attention.cu: stores keys and values in the cache (with norm and rotation, also of the queries); attention of spans
 * with few tokens.
 *
 * Flash decoding: the cached positions of a token are split into KV ranges ("stretches"), one thread block each. The
 * warps of a block take positions in turn and keep running maxima and sums; join_kernel then merges the ranges.
 * Roofline: the bytes of keys and values, read once per group of query heads. The length of a range depends on the
 * token's own position alone, so the result does not depend, bit for bit, on the other rows of the batch. Heads of 64,
 * 128, 256 or 512 use the tensor cores (page_kernel); split_kernel serves other sizes, f32 caches and precise mode.
 * Spans with many tokens: flash_attention_prefill.cu. */
#include <utility>

#include "kernels/cuda/attention.cuh"

enum {
    SPLIT_THREADS = 128,
    FEW_ROWS = 32, /* rows that have scratch for MAX_SPLIT ranges at once */
};

/* ---- storing ---- */

/* A warp quantizes block b of 32 elements: lane l holds element l in v. */
__device__ __forceinline__ void store_32(uint32_t type, uint8_t *row, int b, float v) {
    int lane = (int)threadIdx.x % 32;
    float a = fabsf(v), most = lanes_max(a, 32);
    bool bad = __ballot_sync(0xffffffffu, !(a <= 3.402823466e38f)) != 0;
    if (type == QUANT_Q8_0) {
        uint8_t *dst = row + b * 34;
        /* The scale is stored in half precision: quantize for the stored value. It must be large enough
         * for the largest element. */
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

/* One warp per head: lane l holds elements l, l + 32 ..., E of them, and no warp waits for another. Rotary angles and
 * norm weights are computed before pdl_wait. Roofline: latencies. A lone warp executes about 350 instructions: one
 * read, a norm of 5 shuffles, RoPE through shared memory, 8 x 5 shuffles of the Hadamard rotation if there is one, and
 * one write. */
enum { STORE_WARPS = 4 /* maximum; blockDim sets the number */, READ_AHEAD = 4096 };
template <int E, bool LEAD>
__global__ void __launch_bounds__(STORE_WARPS * 32)
    store_kernel(const __grid_constant__ dspans b, const __grid_constant__ store_job jq,
                 const __grid_constant__ store_job jk, const __grid_constant__ store_job jv,
                 int32_t n_q, int32_t n_kv) {
    __shared__ float turned[STORE_WARPS][E * 32];
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    int32_t h = (int32_t)(blockIdx.y * (blockDim.x / 32)) + warp, t = (int32_t)blockIdx.x;
    if (h >= n_q + 2 * n_kv) return;
    const store_job &j = h < n_q ? jq : h < n_q + n_kv ? jk : jv;
    h = h < n_q ? h : (h - n_q) % n_kv;
    if (LEAD && !j.src) return; /* values in keys */
    int d = j.to.d, n_lead = LEAD ? j.n_rot : 0;
    dspan s = b.spans[b.of_row[t]];
    int64_t pos = s.pos + (t - s.row);
    uint8_t *row = j.out ? NULL : (uint8_t *)cache_row(j.to, b.pages + s.page_at, pos, h);
    head_angles<E> angles(j, pos);
    float w[E], x[E];
#pragma unroll
    for (int i = 0; i < E; i++) {
        int e = i * 32 + lane - n_lead;
        w[i] = j.norm && e >= 0 && e < d - n_lead ? j.norm[e] : 1.0f;
    }
    /* If the cache is long, attention starts early and prefetches it. If it is short, its loads would only
     * compete with those of the projections. */
    if (pos >= READ_AHEAD) pdl_trigger();
    pdl_wait();
    if (pos < READ_AHEAD) pdl_trigger();
    const float *src = j.src + t * j.tok_stride + h * j.head_stride;
    const float *lead = LEAD ? j.lead + t * j.lead_tok_stride + h * j.lead_head_stride : NULL;
#pragma unroll
    for (int i = 0; i < E; i++) {
        int e = i * 32 + lane;
        x[i] = LEAD && e < n_lead ? lead[e] : e < d ? src[e - n_lead] : 0.0f;
    }
    head_make<E, LEAD>(j, angles, w, turned[warp], x);
    if (j.rotate) {
        int n = j.rotate;
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
                if (i & o || (i | o) >= E) continue;
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

/* Launches the store that attention did not fuse. */
static void store(struct cuda *c, const struct pending_store &p) {
    const struct kv_view *kv = &p.kv;
    const store_job &q = p.f.q, &k = p.f.k, &v = p.f.v;
    int widest = kv->d_k > kv->d_v ? kv->d_k : kv->d_v;
    int32_t n_kv = k.src ? kv->n_kv_head : 0;
    /* few tokens: one warp per block, so that each warp has a scheduler to itself */
    int n_all = p.n_head + 2 * n_kv, n_warp = p.n_tok > STEP_MAX_TOK ? STORE_WARPS : 1;
    dim3 grid((unsigned)p.n_tok, (unsigned)((n_all + n_warp - 1) / n_warp));
    dim3 block((unsigned)n_warp * 32);
    auto run = [&](auto kernel) {
        launch(c, kernel, grid, block, 0, p.b, q, k, v, p.n_head, n_kv);
    };
    if (q.lead && widest <= 64) run(store_kernel<2, true>);
    else if (q.lead && widest <= LATENT_HEAD_MAX) run(store_kernel<18, true>);
    else if (q.lead) cuda_fail_with(c, CHIMERE_EUNSUPPORTED, "attention heads wider than 576");
    else if (widest <= 64) run(store_kernel<2, false>);
    else if (widest <= 128) run(store_kernel<4, false>);
    else if (widest <= 256) run(store_kernel<8, false>);
    else if (widest <= HEAD_MAX) run(store_kernel<16, false>);
    else cuda_fail_with(c, CHIMERE_EUNSUPPORTED, "attention heads wider than 512");
}

void cuda_store_now(struct cuda *c) {
    struct pending_store p = c->store;
    c->store.f.q.src = NULL;
    if (!p.f.q.src || c->err.code) return;
    enum cuda_op op = c->op;
    c->op = OP_qkv_store;
    store(c, p);
    c->op = op;
}

/* Whether attention of many tokens can use the tensor cores. For heads of 256 and more the kernels take up to 99 KB
 * of shared memory; sm_75 has 64 KB. */
static bool by_tiles(const struct cuda *c, const cache &k, const cache &v) {
    int widest = k.d > v.d ? k.d : v.d;
    return !c->params.precise && (widest <= 128 || c->compute >= 80);
}

/* Whether the store can be fused into page_kernel: one token per sequence and an f16 cache that page_kernel reads.
 * Wide heads have no room for the new heads. */
static bool can_wait(const struct cuda *c, const struct qkv_store_args *a, const cache &k,
                     const cache &v) {
    bool one = a->k && a->v && a->q_out && !a->kv.rotate && k.type == QUANT_F16;
    one &= by_tiles(c, k, v) && cuda_attn_page_heads(c, k, v) && k.d <= 256;
    for (int32_t i = 0; i < a->n_span; i++) one &= a->spans[i].n_tok == 1 && a->spans[i].row == i;
    return one && a->n_span == a->n_tok;
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
                   kv->rotate ? tensor_rotation(kv, kv->d_k) : 0,
                   a->n_head,
                   a->q_out,
                   {},
                   a->q_lead,
                   a->q_lead_tok_stride,
                   a->q_lead_head_stride};
    q.to.d = kv->d_k;
    store_job k = q, v = {};
    k.lead = a->k_lead, k.lead_tok_stride = a->k_tok_stride, k.lead_head_stride = 0;
    k.src = a->k;
    k.norm = a->k_norm;
    k.tok_stride = a->k_tok_stride;
    k.head_stride = kv->d_k;
    k.out = NULL;
    k.to = cache_of(kv->k, kv->k_type, kv->d_k, kv->k_page_bytes);
    v.src = a->v;
    v.norm = a->v_norm, v.eps = a->eps;
    v.tok_stride = a->v_tok_stride;
    v.head_stride = kv->d_v;
    v.mode = ROPE_NONE;
    v.rotate = kv->rotate ? tensor_rotation(kv, kv->d_v) : 0;
    v.to = cache_of(kv->v, kv->v_type, kv->d_v, kv->v_page_bytes);
    if (a->q_out) cuda_wrote(c, a->q_out, (size_t)a->n_tok * (size_t)(a->n_head * kv->d_k) * 4);
    struct pending_store p = {{q, k, v}, b, a->spans, *kv, a->q_out, a->n_tok, a->n_head};
    if (can_wait(c, a, k.to, v.to)) c->store = p;
    else store(c, p);
}

/* ---- few tokens ---- */

/* Lane l loads elements l * E .. of a row. T: the cache's type if rows have 32 * E elements
 * and loads can be wide, else 0. */
template <int E, int T>
__device__ __forceinline__ void load_lane(const cache &c, const uint8_t *row, float *x) {
    int at = (int)threadIdx.x % 32 * E;
    if constexpr (T == QUANT_F16) {
        uint32_t w[E / 2];
        if constexpr (E % 8 == 0) {
#pragma unroll
            for (int i = 0; i < E / 2; i += 4) {
                uint4 v = *(const uint4 *)(row + 2 * at + 4 * i);
                w[i] = v.x, w[i + 1] = v.y, w[i + 2] = v.z, w[i + 3] = v.w;
            }
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

/* A warp processes AT_ONCE positions together. Of their G * AT_ONCE products with the queries, each lane receives one
 * and computes its exponential. If there are fewer products than lanes, several lanes receive the same product. */
template <int G, int E, int T>
__global__ void __launch_bounds__(SPLIT_THREADS)
    split_kernel(const __grid_constant__ dspans b, const __grid_constant__ attn_job j) {
    constexpr int AT_ONCE = E > 8 ? 1 : G * E <= 32 ? 4 : T ? 2 : 1; /* limited by registers */
    constexpr int V = G * AT_ONCE, EACH = 32 / V, WARPS = SPLIT_THREADS / 32;
    static_assert(V <= 32, "a lane a product");
    DYNAMIC_SHARED(float, room); /* per warp: G * (2 + d_v) */
    __shared__ float factor[WARPS][G];
    pdl_trigger();
    int32_t t = j.rows[blockIdx.z], lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    dspan s = b.spans[b.of_row[t]];
    int64_t own = s.pos + (t - s.row), n = stretch_of(j.shift, (int32_t)own);
    int64_t first = (int64_t)blockIdx.y * n, last = first + n - 1 < own ? first + n - 1 : own;
    if (first > own) return;
    int32_t group = j.n_head / j.n_kv_head, per = (group + G - 1) / G;
    int32_t kv = (int32_t)blockIdx.x / per, head0 = kv * group + (int32_t)blockIdx.x % per * G;
    int32_t head_end = kv * group + group;
    const int32_t *pages = b.pages + s.page_at;
    float q[G][E], acc[G][E];
    /* of the query head whose product this lane holds */
    float most = -INFINITY, sum = 0.0f;
    /* The preceding kernel writes the positions of the span itself: a block that reads them waits at once. The other
     * blocks wait after their first loads. */
    bool is_new = last >= s.pos, is_first = true;
    if (is_new) pdl_wait();
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
            if (!is_new) pdl_wait();
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
        /* fmaxf drops NaN: if one lane has a NaN, set the maximum of all lanes to NaN; it stays NaN */
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
    /* merge the warps through shared memory, in a fixed order */
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
    int64_t part = ((int64_t)blockIdx.z * j.n_head + head0) * j.n_range + blockIdx.y;
#pragma unroll 1
    for (int g = 0; g < G && head0 + g < head_end; g++, part += j.n_range)
        for (int e = (int)threadIdx.x; e < d_v + 1; e += SPLIT_THREADS) {
            float total = 0;
#pragma unroll
            for (int w = 0; w < WARPS; w++)
                total += room[(w * G + g) * row + (e < d_v ? e + 2 : 0)] * factor[w][g];
            if (e < d_v) j.part[part * part_d(d_v) + e] = total;
            else j.stat[part] = make_float2(total, most_of(g));
        }
}

/* ---- merging the KV ranges ---- */

/* Merges the KV ranges of one head of one token, adds the sink, reverses the rotation, applies the gate. A block
 * computes JOIN_D dimensions of a head, or all of them if they must be rotated. A thread adds four dimensions of every
 * n_team-th range. It loads all that it needs (of 128 ranges, 8 times 16 bytes) before it knows their factors. Each
 * warp computes the factors for itself, so the block has one barrier. Roofline: latencies; 16 heads of 256 and 103
 * ranges are 1.7 MB, 26 KB per block of 64 dimensions. */
enum { JOIN_THREADS = 256, JOIN_D = 64, JOIN_AHEAD = 8 };
static int join_parts(const attn_job &j) { return j.rotate || j.v.d % JOIN_D ? 1 : j.v.d / JOIN_D; }
__global__ void __launch_bounds__(JOIN_THREADS)
    join_kernel(const __grid_constant__ dspans b, const __grid_constant__ attn_job j) {
    DYNAMIC_SHARED(float, x); /* if rotated: d_v floats */
    __shared__ float4 room[JOIN_THREADS];
    pdl_trigger();
    int32_t n_part = (int32_t)gridDim.x / j.n_head, h = (int32_t)blockIdx.x / n_part;
    int32_t t = j.rows[blockIdx.y];
    dspan s = b.spans[b.of_row[t]];
    int32_t own = (int32_t)s.pos + (t - s.row);
    int n = own / stretch_of(j.shift, own) + 1, d_v = j.v.d, d = d_v / n_part;
    /* merged already; if no block waited, this kernel would end before the preceding one */
    if (n <= j.few) {
        pdl_wait();
        return;
    }
    int first_e = (int32_t)blockIdx.x % n_part * d;
    int64_t at = ((int64_t)blockIdx.y * j.n_head + h) * j.n_range;
    const float2 *stat = j.stat + at;
    const float4 *part = (const float4 *)(j.part + at * part_d(d_v) + first_e);
    int row = part_d(d_v) / 4, n_quad = (d + 3) / 4, n_team = JOIN_THREADS / n_quad;
    int tid = (int)threadIdx.x, lane = tid % 32, quad = tid % n_quad, team = tid / n_quad;
    if (team >= n_team) team = n; /* this thread adds no range */
    pdl_wait();
    float4 v[JOIN_AHEAD];
    float2 own_stat[JOIN_AHEAD], some[(MAX_SPLIT + 31) / 32];
#pragma unroll
    for (int u = 0; u < (MAX_SPLIT + 31) / 32; u++)
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
    /* fmaxf drops NaN in the maximum, but the factor of that range is NaN and so is the result */
    float sink = j.sinks ? j.sinks[h] : -INFINITY, m = -INFINITY, sum = 0.0f;
#pragma unroll
    for (int u = 0; u < (MAX_SPLIT + 31) / 32; u++) m = fmaxf(m, some[u].y);
    m = fmaxf(lanes_max(m, 32), sink);
    auto factor = [&](float most) { return most == -INFINITY ? 0.0f : quick_exp(most - m); };
#pragma unroll
    for (int u = 0; u < (MAX_SPLIT + 31) / 32; u++) sum += some[u].x * factor(some[u].y);
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
        hadamard_heads(x, d, j.rotate);
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
    if constexpr (E > 16) split_launch<1, E>(c, b, j, n_split, n_row); /* as registers allow */
    else if constexpr (E > 8) split_launch<2, E>(c, b, j, n_split, n_row);
    else if (group == 1) split_launch<1, E>(c, b, j, n_split, n_row);
    else if (group <= 4) split_launch<4, E>(c, b, j, n_split, n_row);
    else split_launch<MAX_GROUP, E>(c, b, j, n_split, n_row);
}

/* ---- ops ---- */

size_t cuda_attn_scratch(const struct dev_need *n) {
    size_t n_row = (size_t)(n->n_tok < FEW_ROWS ? n->n_tok : FEW_ROWS);
    return n_row * (size_t)n->n_head * MAX_SPLIT * (size_t)(part_d(n->d_head) * 4 + 8) + 2048;
}

/* Attention by KV ranges for the rows of short spans, or of all spans; as many rows at a time as have scratch. */
static void stretches(struct cuda *c, const struct attn_args *a, const dspans &b, attn_job j,
                      const fresh_job *fresh, bool all) {
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
    bool pages = !all && cuda_attn_page_heads(c, j.k, j.v);
    bool latent = !all && !pages && cuda_attn_has_latent(c, j);
    j.shift = pages || latent ? PAGE_SHIFT : SPLIT_SHIFT;
    int n_split = 1; /* as the longest span needs; a power of two, so that CUDA graphs repeat */
    while (n_split < MAX_SPLIT && (int64_t)n_split << j.shift < longest) n_split *= 2;
    j.n_range = n_split = n_split < MAX_SPLIT ? n_split : MAX_SPLIT;
    int few_rows = FEW_ROWS * MAX_SPLIT / n_split, n_few = n_row < few_rows ? n_row : few_rows;
    if (n_few * a->n_head > CUDA_N_ARRIVED && n_few > FEW_ROWS) n_few = FEW_ROWS;
    size_t n_part = (size_t)n_few * (size_t)a->n_head * (size_t)n_split;
    j.part = (float *)cuda_take(c, n_part * (size_t)part_d(j.v.d) * sizeof *j.part);
    j.stat = (float2 *)cuda_take(c, n_part * sizeof *j.stat);
    if (!j.part || !j.stat) return;
    j.arrived = c->arrived;
    bool is_wide = ((uintptr_t)j.gate | (uintptr_t)j.out) % 16 == 0 &&
                   (j.gate_tok_stride | j.gate_head_stride) % 4 == 0;
    bool joins = pages && j.k.d <= 256 && !j.rotate && is_wide;
    j.few = joins && n_few * a->n_head <= CUDA_N_ARRIVED ? JOIN_FEW : 0;
    int d_most = j.k.d > j.v.d ? j.k.d : j.v.d;
    int16_t carve = c->carve;
    for (int32_t at = 0; at < n_row; at += n_few) {
        int n = n_row - at < n_few ? n_row - at : n_few;
        j.rows = staged + at;
        /* room for two blocks per multiprocessor, and for join_kernel after them */
        if (pages && carve >= 0 && j.n_kv_head * n_split * n > c->n_sm) c->carve = CARVE_ALL;
        if (pages) cuda_attn_pages(c, b, j, fresh, n_split, n);
        else if (latent) cuda_attn_latent(c, b, j, n_split, n);
        else if (d_most <= 64) split_group<2>(c, b, j, n_split, n);
        else if (d_most <= 128) split_group<4>(c, b, j, n_split, n);
        else if (d_most <= 256) split_group<8>(c, b, j, n_split, n);
        else if (d_most <= HEAD_MAX) split_group<16>(c, b, j, n_split, n);
        else split_group<LATENT_HEAD_MAX / 32>(c, b, j, n_split, n);
        if (longest <= (int64_t)j.few << j.shift) continue; /* page_kernel has merged all */
        launch(c, join_kernel, dim3((unsigned)(a->n_head * join_parts(j)), (unsigned)n),
               dim3(JOIN_THREADS), j.rotate ? (size_t)j.v.d * 4 : 0, b, j);
    }
    c->carve = carve;
}

void cuda_attn(struct dev *d, const struct attn_args *a) {
    struct cuda *c = (struct cuda *)d;
    dspans b;
    struct pending_store p = c->store;
    const fresh_job *fresh = NULL;
    if (p.f.q.src && p.q_out == a->q && p.spans == a->spans && p.n_tok == a->n_tok &&
        p.n_head == a->n_head && p.kv.k == a->kv.k && p.kv.v == a->kv.v) {
        fresh = &p.f;
        c->store.f.q.src = NULL;
    }
    if (!cuda_begin(c) || !cuda_spans(c, a->spans, a->n_span, &b)) return;
    const struct kv_view *kv = &a->kv;
    attn_job j = {};
    j.k = cache_of(kv->k, kv->k_type, kv->d_k, kv->k_page_bytes);
    j.v = cache_of(kv->v, kv->v_type, kv->d_v, kv->v_page_bytes);
    j.q = a->q, j.sinks = a->sinks, j.gate = a->gate;
    j.gate_tok_stride = a->gate_tok_stride, j.gate_head_stride = a->gate_head_stride;
    j.n_head = a->n_head, j.n_kv_head = kv->n_kv_head;
    if (kv->v_in_k) j.v.row_bytes = j.k.row_bytes;
    j.window = a->window, j.n_keep = a->n_keep;
    j.rotate = kv->rotate ? tensor_rotation(kv, kv->d_v) : 0;
    j.scale = a->scale, j.softcap = a->softcap;
    j.out = a->out;
    int d_most = j.k.d > j.v.d ? j.k.d : j.v.d;
    if (d_most > LATENT_HEAD_MAX) {
        cuda_fail_with(c, CHIMERE_EUNSUPPORTED, "attention heads wider than 576");
        return;
    }
    bool many = false;
    for (int32_t i = 0; i < a->n_span; i++) many |= a->spans[i].n_tok > STEP_MAX_TOK;
    int64_t n_out = (int64_t)a->n_head * j.v.d;
    cuda_wrote(c, a->out, (size_t)(a->n_tok * n_out) * 4);
    if (!many && j.v.d % 32 == 0) j.out8 = cuda_shadow_new(c, a->out, a->n_tok, n_out);
    bool tiles = by_tiles(c, j.k, j.v);
    if (many && tiles) cuda_attn_many(c, a, b, j);
    stretches(c, a, b, j, fresh, !tiles);
}

/* gemv_batch.cuh: 16 rows of weights times 8 rows of activations, by one warp, with int8 tensor core products: for
 * dense matrices (gemv_batch.cu) and for the experts of many tokens (moe_batch.cu). gemv_batch.cu describes it. */
#ifndef CHIMERE_KERNELS_CUDA_GEMV_BATCH_CUH
#define CHIMERE_KERNELS_CUDA_GEMV_BATCH_CUH

#include "kernels/cuda/cuda_impl.cuh"
#include "kernels/cuda/gemv_float.cuh"

enum {
    FEW_WARPS = VEC_THREADS / 32,
    FEW_ROWS = 16,                   /* per warp */
    FEW_PLACES = 2,                  /* chunk buffers per warp in shared memory */
    FEW_SUMS = FEW_ROWS * VEC8_TOKS, /* per warp */
    FEW_FILL = 128,  /* units that a block loads at once: one pass for rows of 4,096 */
    FEW_NUMBERS = 4, /* loads of four unquantized weights in flight per lane */
    SUMS_ROOM = 2 * FEW_WARPS * FEW_SUMS * 4,
};
/* Blocks per multiprocessor, if shared memory suffices. Code for newer chips takes more registers; chips before sm_90
 * do not have the shared memory for three. */
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ == 900
#define FEW_BLOCKS 3
#else
#define FEW_BLOCKS 2
#endif
#define FEW_MIDDLE 12582912.0f /* its bits plus an integer below 2^22 are a float */

/* Offsets of the fields of a chunk in its buffer. */
template <int F> struct chunk {
    static constexpr plane_sizes size = sizes_of(F);
    static constexpr int units = F == FORM_I8 ? 4 : 8;
    static constexpr int line = units * size.codes, more_line = units * size.more;
    static constexpr int top_line = size.top_units == 1 ? units * size.top : 4;
    static constexpr int more = FEW_ROWS * line, sub = more + FEW_ROWS * more_line;
    static constexpr int sub_line = units * size.sub; /* of O4 8 bytes, else 16 or none */
    static constexpr int top = sub + FEW_ROWS * sub_line;
    static constexpr int bytes = top + FEW_ROWS * top_line;
    static_assert(line == 128 && (sub_line == 16 || sub_line % 8 == 0), "rows of a chunk");
};
/* Offset of segment `part`, out of `parts`, of the upper bits of a row; swizzled so that 8 rows use different banks. */
__device__ __forceinline__ int more_at(int row, int part, int parts) {
    return (part ^ (row * parts / 8 & (parts - 1))) * 16;
}

/* Starts the copy of a chunk of 16 rows from row0 on. The 16-byte segments of a row are swizzled, so that
 * those of 8 rows are in different banks. */
template <int F>
__device__ __forceinline__ void chunk_fetch(uint8_t *place, const planes &w, int row0, int at) {
    using C = chunk<F>;
    int lane = (int)threadIdx.x % 32;
    uint32_t n_unit = (uint32_t)w.n_unit;
    uint32_t first = (uint32_t)row0 * n_unit + (uint32_t)(at * C::units);
    int r = lane / 8, segment = lane % 8;
    int to = r * 128 + (segment ^ r) * 16;
    const uint8_t *from =
        w.codes + (size_t)(first + (uint32_t)r * n_unit) * C::size.codes + segment * 16;
#pragma unroll
    for (int i = 0; i < FEW_ROWS; i += 4)
        copy_async16(place + (to ^ (i & 4) * 16) + i * 128,
                     from + (uint32_t)i * n_unit * C::size.codes, true);
    if constexpr (C::size.more > 0) {
        constexpr int PARTS = C::more_line / 16, ROWS = 32 / PARTS;
        int part = lane % PARTS, row = lane / PARTS;
        from = w.more + (size_t)(first + (uint32_t)row * n_unit) * C::size.more + part * 16;
#pragma unroll
        for (int i = 0; i < FEW_ROWS; i += ROWS)
            copy_async16(place + C::more + (row + i) * C::more_line + more_at(row, part, PARTS),
                         from + (uint32_t)i * n_unit * C::size.more, true);
    }
    r = lane % FEW_ROWS;
    uint32_t own = first + (uint32_t)r * n_unit;
    if (lane < FEW_ROWS) {
        if constexpr (C::sub_line == 16)
            copy_async16(place + C::sub + r * 16, w.sub + (size_t)own * C::size.sub, true);
        if constexpr (C::sub_line == 8)
            copy_async<8>(place + C::sub + r * 8, w.sub + (size_t)own * C::size.sub);
    } else if constexpr (C::top_line == 16)
        copy_async16(place + C::top + r * 16, w.top + (size_t)own * C::size.top, true);
    else if constexpr (C::top_line == 8)
        copy_async<8>(place + C::top + r * 8, w.top + (size_t)own * C::size.top);
    else /* the word that contains the field */
        copy_async<4>(place + C::top + r * 4,
                      w.top + ((size_t)(own / C::units) * C::size.top & ~(size_t)3));
}

/* Unpacks word t of a unit's quants to 4 bytes of its first half and 4 of its second half. more,
 * more_high: words of upper bits. */
template <int F>
__device__ __forceinline__ void few_bytes(uint32_t code, uint32_t more, uint32_t more_high, int t,
                                          uint32_t &lo, uint32_t &hi) {
    if constexpr (F == FORM_O4) { /* 8 (2 q - 15) */
        lo = (code << 4 & 0xf0f0f0f0u) ^ 0x88888888u;
        hi = (code & 0xf0f0f0f0u) ^ 0x88888888u;
    } else if constexpr (F == FORM_N4) { /* 16 (q - 8) */
        lo = (code << 4 & 0xf0f0f0f0u) ^ 0x80808080u;
        hi = (code & 0xf0f0f0f0u) ^ 0x80808080u;
    } else if constexpr (F == FORM_N6K) { /* 4 (q - 32) */
        uint32_t rest = (t < 2 ? more : more_high) >> t % 2 * 4;
        lo = (code << 2 & 0xfcfcfcfcu) ^ 0x80808080u;
        hi = (code & 0xc0c0c0c0u) ^ 0x80808080u ^ (rest << 2 & 0x3c3c3c3cu);
    } else if constexpr (F == FORM_N5K) {
        lo = code & 0x1f1f1f1fu;
        /* one shift for both: with two, a register would spill */
        hi = ((code & 0xe0e0e0e0u) | (more >> 2 * t & 0x03030303u) << 3) >> 3;
    } else {
        lo = code & 0x0f0f0f0fu;
        hi = code >> 4 & 0x0f0f0f0fu;
    }
}

/* The activations of 8 tokens in shared memory: rows of quants, with segments swizzled like those of weights; scales,
 * interleaved for two units and two tokens; scaled sums of four units and eight tokens. own: offset of the segment
 * whose address the lane passes to load_matrix4, of two segments per unit. */
struct few_input {
    const uint8_t *codes;
    const float4 *scales;
    const float *sums;
    int own;
    static __host__ __device__ constexpr int bytes(int n_unit) { return VEC8_TOKS * n_unit * 40; }
    __device__ __forceinline__ few_input(const uint8_t *room, int n_unit) {
        int lane = (int)threadIdx.x % 32, token = lane % 8;
        codes = room;
        own = token * n_unit * 32 + ((lane / 8) ^ token) * 16;
        scales = (const float4 *)(room + VEC8_TOKS * n_unit * 32) + lane % 4;
        sums = (const float *)(room + VEC8_TOKS * n_unit * 36) + lane;
    }
    /* The quants of units unit + 2 pair and unit + 2 pair + 1, as second factors; unit: a multiple of four. */
    __device__ __forceinline__ void pair_codes(uint32_t b[4], int unit, int pair) const {
        load_matrix4(b, codes + ((own + unit * 32) ^ (pair % 2 * 64)) + pair / 2 * 128);
    }
};
/* Fills the buffer; each warp copies the quants of one token. row_of(k): row of token k, k < 8. */
template <class Row>
__device__ __forceinline__ void few_fill(uint8_t *room, const act8 &a, int n_unit, Row row_of) {
    int warp = (int)(threadIdx.x / 32u), lane = (int)threadIdx.x % 32, token = (int)threadIdx.x % 8;
    const uint4 *q = (const uint4 *)a.q + (size_t)row_of(warp) * n_unit * 2 + lane;
    const uint2 *meta = a.meta + (size_t)row_of(token) * n_unit;
    uint4 *codes = (uint4 *)room + warp * n_unit * 2 + (lane ^ warp);
    float *scales = (float *)(room + VEC8_TOKS * n_unit * 32) + token / 2 * 4 + token % 2;
    float *sums = (float *)(room + VEC8_TOKS * n_unit * 36) + token * 4;
#pragma unroll 1
    for (int first = 0; first < n_unit; first += FEW_FILL) {
        uint4 code[FEW_FILL / 16];
        uint2 m[FEW_FILL / 32];
#pragma unroll
        for (int k = 0; k < FEW_FILL / 16; k++)
            if (lane + 32 * k < 2 * (n_unit - first)) code[k] = q[2 * first + 32 * k];
        int own = first + (int)(threadIdx.x / 8u);
#pragma unroll
        for (int k = 0; k < FEW_FILL / 32; k++)
            if (own + 32 * k < n_unit) m[k] = meta[own + 32 * k];
#pragma unroll
        for (int k = 0; k < FEW_FILL / 16; k++)
            if (lane + 32 * k < 2 * (n_unit - first)) codes[2 * first + 32 * k] = code[k];
#pragma unroll
        for (int k = 0; k < FEW_FILL / 32; k++) {
            int u = own + 32 * k;
            if (u >= n_unit) break;
            float scale = __int_as_float((int)m[k].x);
            scales[u / 2 * 16 + u % 2 * 2] = scale;
            sums[u / 4 * 32 + u % 4] = scale * (float)pair_sum(m[k].y);
        }
    }
}

/* The minima of 16 rows times the tokens' sums, over 8 units; to be subtracted. sub: scales and minima. */
__device__ __forceinline__ void chunk_least(const uint8_t *sub, const float *sums, float low[4]) {
    int lane = (int)threadIdx.x % 32;
    const uint8_t *at = sub + lane / 4 * 16 + lane % 4 * 2 + 1;
    float a[4] = {(float)at[0], (float)at[128], (float)at[8], (float)at[136]};
    float b[2] = {sums[0], sums[32]};
    mma_1688(low, a, b);
}

/* Adds the products of a unit to part: rows g and g + 8 times two tokens with scales x0 and x1. s: the
 * unit's scale in each row, as stored. */
template <int F>
__device__ __forceinline__ void unit_products(const uint32_t a[4], uint32_t b0, uint32_t b1,
                                              const uint32_t s[2], float x0, float x1,
                                              const int middle[4], float part[4]) {
    if constexpr (F == FORM_N6K) {
        const int none[4] = {0, 0, 0, 0};
        int dot[4], high[4];
        mma_16816_s8(dot, a[0], a[1], b0, none);
        mma_16816_s8(high, a[2], a[3], b1, none);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            int both = (int)(int8_t)s[k / 2] * dot[k] + (int)(int8_t)(s[k / 2] >> 8) * high[k];
            part[k] += (float)both * (k % 2 ? x1 : x0);
        }
    } else {
        int dot[4];
        mma_16832_s8(dot, a, b0, b1, middle);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            float scale = F == FORM_N4K || F == FORM_N5K ? (float)(s[k / 2] & 255u)
                          : F == FORM_O4                 ? (float)(2 * (s[k / 2] & 255u) + 1)
                                                         : to_float((uint16_t)s[k / 2]);
            part[k] += (__int_as_float(dot[k]) - FEW_MIDDLE) * (scale * (k % 2 ? x1 : x0));
        }
    }
}

/* Adds the products of a chunk to sum: rows g, g + 8 times tokens 2 t, 2 t + 1. unit: the chunk's first unit. */
template <int F>
__device__ __forceinline__ void chunk_dot(const uint8_t *place, const few_input &in, int unit,
                                          bool is_odd, float sum[4]) {
    using C = chunk<F>;
    constexpr bool has_least = F == FORM_N4K || F == FORM_N5K, is_k = C::size.top_units == 8;
    constexpr int FIELDS = is_k ? C::sub : C::top, LINE = is_k ? C::sub_line : C::top_line;
    constexpr int PARTS = C::more_line / 16;
    int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
    int line = (lane & 15) * 128 + ((lane / 16) ^ (lane & 7)) * 16;
    float part[4] = {0, 0, 0, 0};
    int middle[4];
#pragma unroll
    for (int k = 0; k < 4; k++) middle[k] = __float_as_int(FEW_MIDDLE);
    uint2 field[2];     /* scales of four units, rows g and g + 8 */
    uint4 more[2] = {}; /* upper bits of two units */
#pragma unroll
    for (int pair = 0; pair < C::units / 2; pair++) {
        uint32_t b[4], m[4];
        in.pair_codes(b, unit, pair);
        float4 x = in.scales[(unit / 2 + pair) * 4];
        if constexpr (F != FORM_I8) load_matrix4(m, place + (line ^ pair * 32));
#pragma unroll
        for (int r = 0; r < 2; r++) {
            if (pair % (F == FORM_O4 ? 4 : 2) == 0)
                field[r] = *(const uint2 *)(place + FIELDS + (g + 8 * r) * LINE + pair * 4);
            const uint8_t *at = place + C::more + (g + 8 * r) * C::more_line;
            if constexpr (PARTS == 4) more[r] = *(const uint4 *)(at + more_at(g, pair, 4));
            if constexpr (PARTS == 2) {
                uint2 bits = *(const uint2 *)(at + more_at(g, pair / 2, 2) + pair % 2 * 8);
                more[r].x = bits.x, more[r].z = bits.y;
            }
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint32_t a[4], s[2];
            if constexpr (F == FORM_I8) load_matrix4(a, place + (line ^ (2 * pair + i) * 32));
#pragma unroll
            for (int r = 0; r < 2; r++) {
                if constexpr (F == FORM_O4)
                    s[r] = (pair / 2 ? field[r].y : field[r].x) >> (pair % 2 * 2 + i) * 8;
                else s[r] = (pair % 2 ? field[r].y : field[r].x) >> i * 16;
                if constexpr (F != FORM_I8)
                    few_bytes<F>(m[2 * i + r], i ? more[r].z : more[r].x, i ? more[r].w : more[r].y,
                                 t, a[r], a[r + 2]);
            }
            unit_products<F>(a, b[2 * i], b[2 * i + 1], s, i ? x.z : x.x, i ? x.w : x.y, middle,
                             part);
        }
    }
    float low[4] = {0, 0, 0, 0};
    if constexpr (has_least) chunk_least(place + C::sub, in.sums + unit * 8, low);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float d = F == FORM_N4 ? 1.0f / 16 : 1.0f, least = 0;
        constexpr bool is_half = C::size.top_units == 8 && C::size.top == 2;
        if constexpr (is_k) {
            uint32_t top = *(const uint32_t *)(place + C::top + (g + 8 * r) * 4);
            if (is_half && is_odd) top >>= 16;
            d = to_float((uint16_t)top);
            if constexpr (F == FORM_N6K) d *= 0.25f;
            if constexpr (F == FORM_O4) d *= 0.125f;
            if constexpr (has_least) least = to_float((uint16_t)(top >> 16));
        }
#pragma unroll
        for (int k = 2 * r; k < 2 * r + 2; k++) {
            sum[k] += d * part[k];
            if constexpr (has_least) sum[k] -= least * low[k];
        }
    }
}

/* Blocks with this much shared memory that fit on a multiprocessor, which reserves 1 KB per block. */
static inline int32_t blocks_of(const struct cuda *c, size_t bytes) {
    bool is_large = c->compute == 90 || c->compute / 10 == 10 || c->compute / 10 == 11;
    size_t all = is_large                               ? 228
                 : c->compute == 80 || c->compute == 87 ? 164
                 : c->compute >= 80                     ? 100
                                                        : 64;
    int32_t n = (int32_t)((all << 10) / (bytes + 1024)), most = c->compute == 90 ? 3 : 2;
    return n < most ? n : most;
}

#endif

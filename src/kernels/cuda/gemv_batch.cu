/* gemv_batch.cu: matrices times 2 to 64 tokens, with int8 tensor core products. A block multiplies 8 tokens; adjacent
 * blocks multiply the same rows by other tokens, so that only the first reads the rows from memory.
 *
 * A warp computes 16 rows, or a part of their chunks of 4 or 8 units. Chunks are copied into two buffers of the warp in
 * shared memory; the first copies start before pdl_wait. A unit of 16 rows is one product: word t of a unit's nibbles
 * is what lane t of a group of four lanes needs: elements 4 t to 4 t + 3 in the low nibbles, and 16 + 4 t to
 * 16 + 4 t + 3 in the high ones. Quants with a zero point are shifted to the top of a byte, where flipping the highest
 * bit subtracts the zero point. Integer accumulators start with the bits of 1.5 * 2^23, so that one subtraction turns
 * them into floats. These floats, times the scales of unit and token, are summed. The minima of 8 units are subtracted
 * by a tensor core product too; the factors that 8 units share are applied last. The sums of warps that share rows are
 * added in a fixed order. No order of additions depends on the tokens. */
#include "kernels/cuda/vectors.cuh"

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

struct few_plan {
    int32_t n_tile, n_block; /* tiles of 16 rows of all quantized matrices; their blocks */
    int32_t n_main, shift;   /* matrices that have tiles; 2^shift warps share a tile */
    uint32_t sums_at, places_at, place_bytes;
    divisor n_group; /* groups of 8 tokens */
};

/* Offsets of the fields of a chunk in its buffer. */
template <int F> struct chunk {
    static constexpr plane_sizes size = sizes_of(F);
    static constexpr int units = F == FORM_I8 ? 4 : 8;
    static constexpr int line = units * size.codes, more_line = units * size.more;
    static constexpr int top_line = size.top_units == 1 ? units * size.top : 4;
    static constexpr int more = FEW_ROWS * line, sub = more + FEW_ROWS * more_line;
    static constexpr int top = sub + (size.sub ? FEW_ROWS * 16 : 0);
    static constexpr int bytes = top + FEW_ROWS * top_line;
    static_assert(line == 128 && (!size.sub || units * size.sub == 16), "rows of a chunk");
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
        if constexpr (C::size.sub > 0)
            copy_async16(place + C::sub + r * 16, w.sub + (size_t)own * C::size.sub, true);
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
    if constexpr (F == FORM_N4) { /* 16 (q - 8) */
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
/* Fills the buffer; each warp copies the quants of one token. If there are fewer than 8
 * tokens, the last is repeated. */
__device__ __forceinline__ void few_fill(uint8_t *room, const act8 &a, int n_unit, int n_tok) {
    int warp = (int)(threadIdx.x / 32u), lane = (int)threadIdx.x % 32, token = (int)threadIdx.x % 8;
    const uint4 *q = (const uint4 *)a.q + (size_t)min(warp, n_tok - 1) * n_unit * 2 + lane;
    const uint2 *meta = a.meta + (size_t)min(token, n_tok - 1) * n_unit;
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
    constexpr int FIELDS = is_k ? C::sub : C::top, LINE = is_k ? 16 : C::top_line;
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
            if (pair % 2 == 0)
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
                s[r] = (pair % 2 ? field[r].y : field[r].x) >> i * 16;
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
        if constexpr (is_k) {
            uint32_t top = *(const uint32_t *)(place + C::top + (g + 8 * r) * 4);
            if (F == FORM_N6K && is_odd) top >>= 16;
            d = to_float((uint16_t)top);
            if constexpr (F == FORM_N6K) d *= 0.25f;
            if constexpr (has_least) least = to_float((uint16_t)(top >> 16));
        }
#pragma unroll
        for (int k = 2 * r; k < 2 * r + 2; k++) {
            sum[k] += d * part[k];
            if constexpr (has_least) sum[k] -= least * low[k];
        }
    }
}

/* Maps tiles to matrices and rows. A Q8_0 matrix in a launch of another form has chunks of 4 units instead of 8. */
template <int F> struct few_tiles {
    const linear_job &j;
    const few_plan &p;
    __device__ __forceinline__ const out_job &matrix(int tile) const {
        int k = 0;
        while (k + 1 < p.n_main && tile >= j.o[k + 1].first_block) k++;
        return j.o[k];
    }
    /* the last tile of a matrix starts earlier if it would exceed it; the tile before it stores the common rows */
    __device__ __forceinline__ int first_row(const out_job &o, int tile) const {
        return min((tile - o.first_block) * FEW_ROWS, (int)o.w.n_row - FEW_ROWS);
    }
    __device__ __forceinline__ bool is_main(const out_job &o) const {
        return F == FORM_I8 || o.w.form == F;
    }
    __device__ __forceinline__ int n_chunk(const out_job &o) const {
        return o.w.n_unit >> (chunk<F>::units == 8 && is_main(o) ? 3 : 2);
    }
    /* Stores the results of a round's tiles: a thread sums, over the warps of a tile, one row times one token. */
    __device__ __forceinline__ void finish(const float *sums, int first, int round, int32_t t0,
                                           int32_t n_tok) const {
        int n_part = 1 << p.shift;
#pragma unroll 1
        for (int i = (int)threadIdx.x ^ (round & 1) * 128; i < 128 << (3 - p.shift);
             i += VEC_THREADS) {
            int of = i / 128, slot = i / 16 % 8, token = slot % 4 * 2 + slot / 4, r = i % 16;
            int tile = first + of * p.n_block;
            if (token >= n_tok || tile >= p.n_tile) continue;
            const float *from =
                sums + (of << p.shift) * FEW_SUMS + slot * 16 + (r ^ (slot / 2 % 2 * 8));
            float y = from[0];
#pragma unroll
            for (int k = 1; k < FEW_WARPS; k++)
                if (k < n_part) y += from[k * FEW_SUMS];
            const out_job &o = matrix(tile);
            int row = first_row(o, tile) + r;
            if (row >= (tile - o.first_block) * FEW_ROWS) put(j, o, row, t0 + token, y);
        }
    }
};

/* Matrices of form F, of Q8_0 and, in the last blocks, unquantized ones. */
template <int F>
__global__ void __launch_bounds__(VEC_THREADS, FEW_BLOCKS)
    few_kernel(const __grid_constant__ linear_job j, const __grid_constant__ few_plan p) {
    DYNAMIC_SHARED(uint8_t, room);
    int block = (int)(blockIdx.x / p.n_group);
    int32_t t0 = (int32_t)(blockIdx.x - (uint32_t)block * p.n_group.n) * VEC8_TOKS;
    int32_t n_tok = min(j.n_tok - t0, (int)VEC8_TOKS);
    int64_t n_in = j.o[0].w.n_in;
    input from = {
        {j.x8.q + t0 * n_in, j.x8.meta + t0 * (n_in / 32)}, j.x + t0 * j.x_stride, j.x_stride};
    pdl_trigger();
    if (block >= p.n_block) {
        int k = p.n_main;
        while (k + 1 < j.n_o && block >= j.o[k + 1].first_block) k++;
        number_rows<FEW_NUMBERS> rows(j, j.o[k], block);
        float4 numbers[FEW_NUMBERS];
        rows.begin(numbers);
        pdl_wait();
        rows.run(numbers, from, t0, n_tok, (float(*)[MAX_SUMS])room);
        return;
    }
    few_tiles<F> tiles = {j, p};
    int warp = (int)(threadIdx.x / 32u), lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
    int n_unit = j.o[0].w.n_unit, n_part = 1 << p.shift;
    int part = warp & (n_part - 1), stride = p.n_block * (FEW_WARPS >> p.shift);
    /* offset from the block's first tile of a round to the warp's tile */
    int own = (warp >> p.shift) * p.n_block;
    uint8_t *place = room + p.places_at + (uint32_t)warp * FEW_PLACES * p.place_bytes;
    int next_tile = block + own, next = part; /* the next chunk to copy */
    auto fetch = [&](int at) {
        if (next_tile < p.n_tile) {
            const out_job &o = tiles.matrix(next_tile);
            int row0 = tiles.first_row(o, next_tile);
            uint8_t *to = place + (uint32_t)at * p.place_bytes;
            if (tiles.is_main(o)) chunk_fetch<F>(to, o.w, row0, next);
            else chunk_fetch<FORM_I8>(to, o.w, row0, next);
            next += n_part;
            if (next >= tiles.n_chunk(o)) next = part, next_tile += stride;
        }
        copy_commit();
    };
#pragma unroll 1
    for (int i = 0; i < FEW_PLACES; i++) fetch(i);
    if (lane == 0) prefetch_tlb(from.a.q);
    pdl_wait();
    few_fill(room, from.a, n_unit, n_tok);
    __syncthreads();
    few_input in(room, n_unit);
    int at = 0, round = 0;
#pragma unroll 1
    for (int first = block; first < p.n_tile; first += stride, round ^= 1) {
        int tile = first + own;
        float *sums = (float *)(room + p.sums_at) + round * FEW_WARPS * FEW_SUMS;
        if (tile < p.n_tile) {
            const out_job &o = tiles.matrix(tile);
            bool is_main = tiles.is_main(o);
            int n_chunk = tiles.n_chunk(o);
            int odd = (tiles.first_row(o, tile) + g) * n_chunk; /* for rows g and g + 8 */
            float sum[4] = {0, 0, 0, 0};
#pragma unroll 1
            for (int c = part; c < n_chunk; c += n_part) {
                copy_wait<FEW_PLACES - 1>();
                __syncwarp();
                const uint8_t *chunk_at = place + (uint32_t)at * p.place_bytes;
                /* which half of its word contains a field of two bytes */
                bool is_odd = ((odd + c) & 1) != 0;
                if (is_main) chunk_dot<F>(chunk_at, in, c * chunk<F>::units, is_odd, sum);
                else chunk_dot<FORM_I8>(chunk_at, in, c * chunk<FORM_I8>::units, is_odd, sum);
                __syncwarp();
                fetch(at);
                at = at + 1 < FEW_PLACES ? at + 1 : 0;
            }
            float *to = sums + warp * FEW_SUMS + t * 16;    /* even tokens before odd ones */
            int upper = g ^ (t / 2 * 8), lower = upper ^ 8; /* no bank conflicts */
            to[upper] = sum[0], to[upper + 64] = sum[1];
            to[lower] = sum[2], to[lower + 64] = sum[3];
        }
        __syncthreads(); /* round + 1 writes other sums than finish() reads */
        tiles.finish(sums, first, round, t0, n_tok);
    }
}

/* Blocks with this much shared memory that fit on a multiprocessor, which reserves 1 KB per block. */
static int32_t blocks_of(const struct cuda *c, size_t bytes) {
    bool is_large = c->compute == 90 || c->compute / 10 == 10 || c->compute / 10 == 11;
    size_t all = is_large                               ? 228
                 : c->compute == 80 || c->compute == 87 ? 164
                 : c->compute >= 80                     ? 100
                                                        : 64;
    int32_t n = (int32_t)((all << 10) / (bytes + 1024)), most = c->compute == 90 ? 3 : 2;
    return n < most ? n : most;
}

/* clang-format off */
#define FEW_FORMS(X) X(FORM_I8) X(FORM_N4) X(FORM_N4K) X(FORM_N5K) X(FORM_N6K)
/* clang-format on */

/* Units and bytes per chunk of a form; zeros: none of these. */
struct chunk_size {
    int32_t units, bytes;
};
static chunk_size chunk_of(int form) {
    switch (form) {
#define X(F)                                                                                       \
    case F: return chunk_size{chunk<F>::units, chunk<F>::bytes};
        FEW_FORMS(X)
#undef X
    }
    return chunk_size{0, 0};
}
static size_t few_bytes(int32_t n_unit, uint32_t place_bytes) {
    return (size_t)few_input::bytes(n_unit) + SUMS_ROOM +
           (size_t)FEW_WARPS * FEW_PLACES * place_bytes;
}

bool cuda_is_batch(const struct cuda *c, const struct linear_out *o, int32_t n_o, int32_t n_tok) {
    enum { NUMBERS = 512 }; /* unquantized rows at most: a router, factors of a delta net */
    int64_t n_number = 0;
    bool has_rows = false;
    if (n_tok <= STEP_TOKS) return true;
    if (n_tok > BATCH_TOKS) return false;
    for (int32_t i = 0; i < n_o; i++) {
        planes w = cuda_repack_of(o[i].w);
        if (is_number_form(w.form)) {
            n_number += w.n_row;
            continue;
        }
        chunk_size size = chunk_of(w.form), bytes = chunk_of(FORM_I8);
        size_t place = (size_t)(size.bytes > bytes.bytes ? size.bytes : bytes.bytes);
        if (!size.units || w.n_unit % 8 || w.n_row < FEW_ROWS ||
            !blocks_of(c, few_bytes(w.n_unit, (uint32_t)place)))
            return false;
        has_rows = true;
    }
    return has_rows && n_number <= NUMBERS;
}

bool cuda_few(struct cuda *c, const linear_job &all, int form) {
    linear_job j = all;
    few_plan p = {};
    bool has_bytes = false;
    int32_t n_unit = 0, units = 0, numbers = 0; /* units per chunk; unquantized blocks */
    for (int32_t i = 0; i < all.n_o; i++) {     /* unquantized matrices last */
        const planes &w = all.o[i].w;
        if (is_number_form(w.form)) {
            numbers += (int32_t)((w.n_row * FEW_WIDE + FEW_WARPS - 1) / FEW_WARPS);
            continue;
        }
        if (w.n_row < FEW_ROWS) return false;
        out_job &o = j.o[p.n_main++] = all.o[i];
        o.first_block = p.n_tile;
        p.n_tile += (int32_t)((w.n_row + FEW_ROWS - 1) / FEW_ROWS);
        has_bytes = has_bytes || w.form == FORM_I8;
        n_unit = w.n_unit;
    }
    p.place_bytes = (uint32_t)chunk_of(form).bytes, units = chunk_of(form).units;
    if (!p.n_main || !units || n_unit % units) return false;
    if (has_bytes && p.place_bytes < chunk<FORM_I8>::bytes) p.place_bytes = chunk<FORM_I8>::bytes;
    p.sums_at = (uint32_t)few_input::bytes(n_unit);
    p.places_at = p.sums_at + SUMS_ROOM;
    size_t bytes = few_bytes(n_unit, p.place_bytes);
    int32_t resident = c->n_sm * blocks_of(c, bytes), n_chunk = n_unit / units;
    if (!resident) return false;
    if (numbers < resident) resident -= numbers;
    /* the fewest chunks in sequence; among equals, the fewest warps per tile */
    int64_t least = INT64_MAX;
    for (int32_t shift = 0; shift <= 3 && 1 << shift <= n_chunk; shift++) {
        int64_t places = (int64_t)resident * (FEW_WARPS >> shift);
        int64_t rounds = (p.n_tile + places - 1) / places;
        int64_t chunks = rounds * ((n_chunk + (1 << shift) - 1) >> shift);
        if (chunks >= least) continue;
        least = chunks;
        p.shift = shift;
    }
    /* shift, and so the order of additions, does not depend on the number of tokens */
    int32_t n_group = (j.n_tok + VEC8_TOKS - 1) / VEC8_TOKS;
    p.n_group = divisor_of(n_group);
    resident = resident > n_group ? resident / n_group : 1;
    p.n_block = (p.n_tile + (FEW_WARPS >> p.shift) - 1) / (FEW_WARPS >> p.shift);
    if (p.n_block > resident) p.n_block = resident;
    int32_t blocks = p.n_block, k = p.n_main;
    for (int32_t i = 0; i < all.n_o; i++) {
        if (!is_number_form(all.o[i].w.form)) continue;
        out_job &o = j.o[k++] = all.o[i];
        o.first_block = blocks;
        blocks += (int32_t)((o.w.n_row * FEW_WIDE + FEW_WARPS - 1) / FEW_WARPS);
    }
    dim3 grid((unsigned)(blocks * n_group));
    switch (form) {
#define X(F)                                                                                       \
    case F: launch(c, few_kernel<F>, grid, dim3(VEC_THREADS), bytes, j, p); break;
        FEW_FORMS(X)
#undef X
    }
    return true;
}

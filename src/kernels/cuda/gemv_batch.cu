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
#include "kernels/cuda/gemm.cuh"
#include "kernels/cuda/gemv_batch.cuh"
#include "kernels/cuda/vectors.cuh"

struct few_plan {
    int32_t n_tile, n_block; /* tiles of 16 rows of all quantized matrices; their blocks */
    int32_t n_main, shift;   /* matrices that have tiles; 2^shift warps share a tile */
    uint32_t sums_at, places_at, place_bytes;
    divisor n_group; /* groups of 8 tokens */
};

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
    few_fill(room, from.a, n_unit, [&](int k) { return min(k, n_tok - 1); });
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
    int64_t n_number = 0, n_row = 0;
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
        has_rows = true, n_row += w.n_row;
    }
    /* Each group of 8 tokens unpacks the weights again, a tile of gemm.cu once. Tiles pay where there are enough of
     * them for the card: from 33 tokens on, or from 17 if each multiprocessor has several. */
    int64_t tiles = n_row / TILE_M;
    if (n_tok > 32 && tiles >= c->n_sm / 2) return false;
    if (n_tok > STEP_TOKS && tiles >= 4 * (int64_t)c->n_sm) return false;
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

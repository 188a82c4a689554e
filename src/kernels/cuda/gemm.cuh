/* gemm.cuh: matrices times many rows on the tensor cores: prefill of linear, ffn and mixture of experts. */
#ifndef CHIMERE_KERNELS_CUDA_GEMM_CUH
#define CHIMERE_KERNELS_CUDA_GEMM_CUH

#include "kernels/cuda/cuda_impl.cuh"

enum {
    TILE_M = 128,    /* rows of weights per block */
    TILE_N = 128,    /* rows of activations per block */
    TILE_GROUP = 128 /* f16 rows are padded to a multiple of this and permuted within it */
};

static __host__ __device__ inline int64_t halves_of(int64_t n) {
    return (n + TILE_GROUP - 1) / TILE_GROUP * TILE_GROUP;
}

/* Converts rows to f16 in scratch. Each row is divided by a power of two that makes its largest value just below
 * 1,024: [n_row][halves_of(n)], zero-padded, elements in the order that tiles read. */
halves cuda_to_halves(struct cuda *c, const float *x, int64_t stride, int32_t n_row, int64_t n);

enum tile_mode {
    TILE_PUT,   /* dst = (dst +) (scale w x + bias) logistic(factor) */
    TILE_PLAIN, /* dst = w x */
    TILE_ACT,   /* dst = act(w x) */
    TILE_GATED, /* dst = act(o[1].w x) * (o[0].w x); same form and shape */
    TILE_TIMES, /* dst = act(dst) * (w x) */
};
enum { TILE_OUTS = 16 };

struct tile_out {
    planes w;
    const float *bias; /* [n_row] or NULL */
    float *dst;
    int64_t dst_stride;
    float scale;
    int32_t add, first_block;     /* first_block: set by cuda_tiles */
    int32_t first_group, n_group; /* groups of TILE_GROUP inputs to multiply; n_group 0: all */
};

/* Pairs (token, expert) sorted by expert, in tiles of TILE_N pairs. */
struct tile_list {
    int32_t *pairs;  /* [n_pair] */
    int32_t *expert; /* [cap]; -1: no tile */
    int32_t *at, *n; /* [cap]: index of the tile's first pair, number of pairs */
    int32_t *start;  /* [n_expert]: first pair of an expert */
    int32_t cap, unused;
};

struct tile_job {
    tile_out o[TILE_OUTS]; /* all of one form, or all unquantized */
    int32_t n_o, mode, act, n_row;
    halves x;            /* [n_row][halves_of(n_in)] */
    const float *factor; /* [n_row] or NULL */
    tile_list list;      /* cap 0: row r of x gives row r of dst, with matrix 0 */
    int32_t per_x;       /* with a list: pair p reads row p / per_x of x, writes row p of dst */
    float reads;         /* matrices of a stack that it is expected to read */
};

/* Records one launch, or two for a product with too few tiles for the card, whose sums are split over blocks. */
void cuda_tiles(struct cuda *c, const tile_job &j);

/* Sums over the inner dimension that are split over blocks: partial sums, which a kernel of its own adds in order. */
struct tile_split {
    float *sums;           /* [n][n_row][width]; NULL: not split */
    int32_t n, each;       /* parts; groups of TILE_GROUP elements per part, an even number */
    int32_t width, unused; /* columns: the padded rows of all outputs */
};
enum { SPLIT_BYTES = 10 << 20 };

/* How to split products of n_row rows and n_group groups that have n_block blocks, into at most `most` parts. Takes
 * scratch; not split if that is short, if there are enough blocks, or if there are more rows than a tile has. */
tile_split cuda_split(struct cuda *c, int32_t n_row, int64_t n_group, int64_t n_block,
                      int64_t width, int64_t most);

/* Adds up the parts; j: the whole product, TILE_PUT. Output i has the columns after the padded rows of those before. */
void cuda_sum_split(struct cuda *c, const tile_job &j, const tile_split &s);

#endif

/* top_k.cu: the most likely tokens of rows of logits, their sums, and the logits of listed tokens. That is what a
 * sampler needs, so that 16 KB are copied to the host instead of a row (1 MB for 248,320 tokens).
 *
 * Three launches of SELECT_PARTS blocks per row, each reading the row from the L2 cache, and one of a block per row:
 *   sums       largest value of a part of the row, and sums of exponentials relative to it
 *   histogram  of the distance to the row's largest value, in steps of 1/32
 *   collect    all tokens of the first bins that together hold SELECT_TOP, in any order
 *   back       copies the collected tokens to host memory, then sets a word there that the host polls
 * Nothing is sorted: a sampler that keeps 20 finds them among 1,100 candidates faster than a block sorts those.
 * Roofline: L2 cache latency, 0.7 us per access, not bytes: a thread loads all its values (SELECT_EACH of them at a
 * time) before it uses one. */
#include <stddef.h>
#include <utility>

#include "kernels/cuda/cuda_impl.cuh"

enum {
    SELECT_PARTS = 64,
    SELECT_THREADS = 512,
    SELECT_WARPS = SELECT_THREADS / 32,
    SELECT_EACH = 8, /* values a thread loads at once: all of a row of 262,144 */
    SELECT_BINS = 2048,
    SELECT_ROWS = 16, /* rows per launch */
};

struct part_sum {
    double sum, weighted;
    float max;
    int32_t n_finite, any_bad, any_finite;
};

struct select_job {
    const float *logits;     /* [n_row, n_vocab] */
    const uint64_t *mask;    /* [n_row, n_word]; NULL: all tokens are allowed */
    const int32_t *ids, *at; /* [at[n_row]], [n_row + 1]; at NULL: no listed tokens */
    part_sum *parts;         /* [n_row, SELECT_PARTS] */
    int32_t *bins;           /* [n_row, SELECT_BINS] */
    select_row *rows;        /* [n_row] */
    float *id_logits;
    int32_t n_vocab, n_word;
};

struct slice {
    int32_t from, to;
};

static __device__ __forceinline__ slice slice_of(const select_job &j) {
    int32_t each = (j.n_vocab + SELECT_PARTS - 1) / SELECT_PARTS;
    int32_t from = (int32_t)blockIdx.x * each, to = from + each;
    return slice{from < j.n_vocab ? from : j.n_vocab, to < j.n_vocab ? to : j.n_vocab};
}

static __device__ __forceinline__ bool is_candidate(const select_job &j, int32_t i, float x) {
    if (!(fabsf(x) <= 3.402823466e38f)) return false;
    return !j.mask || (j.mask[(int64_t)blockIdx.y * j.n_word + i / 64] >> (i % 64) & 1);
}

/* Loads a thread's values of a chunk of slice s: x[k] is the logit of token `first` + k SELECT_THREADS. Beyond the
 * end of the slice x[k] is -infinity, which is not a candidate. */
static __device__ __forceinline__ void chunk_load(const float *row, slice s, int32_t first,
                                                  float *x) {
#pragma unroll
    for (int k = 0; k < SELECT_EACH; k++) {
        int32_t i = first + k * SELECT_THREADS;
        x[k] = i < s.to ? row[i] : -INFINITY;
    }
}

static __device__ __forceinline__ double lanes_sum_double(double x) {
    for (int o = 16; o > 0; o /= 2) x += __shfl_xor_sync(0xffffffffu, x, o);
    return x;
}

/* x - most, clamped to a finite value: x may be the lowest float, and infinity times 0 would be NaN. */
static __device__ __forceinline__ float distance(float x, float most) {
    return fmaxf(x - most, -1e30f);
}

/* A thread's sums of e^(x - most) and of (x - most) e^(x - most). */
struct own_sum {
    float most, sum, weighted;
};
/* Makes the sums relative to `most`, which is at least s.most. */
static __device__ __forceinline__ void own_move(own_sum &s, float most) {
    if (s.sum > 0) {
        float d = distance(s.most, most), f = expf(d);
        s.weighted = f * (s.weighted + d * s.sum);
        s.sum *= f;
    }
    s.most = most;
}

__global__ void __launch_bounds__(SELECT_THREADS) select_sums_kernel(select_job j) {
    __shared__ float most_of[SELECT_WARPS], n_of[SELECT_WARPS];
    __shared__ double sum_of[SELECT_WARPS], weighted_of[SELECT_WARPS];
    __shared__ int32_t any_bad, any_finite;
    pdl_trigger();
    int tid = (int)threadIdx.x, warp = tid / 32;
    const float *row = j.logits + (int64_t)blockIdx.y * j.n_vocab;
    slice s = slice_of(j);
    if (tid == 0) any_bad = any_finite = 0;
    __syncthreads();
    pdl_wait();
    for (int i = (int)blockIdx.x * SELECT_THREADS + tid; i < SELECT_BINS;
         i += SELECT_PARTS * SELECT_THREADS)
        j.bins[(int64_t)blockIdx.y * SELECT_BINS + i] = 0;
    own_sum own = {-INFINITY, 0, 0};
    int32_t n = 0, bad = 0, finite = 0;
#pragma unroll 1
    for (int32_t first = s.from + tid; first < s.to; first += SELECT_EACH * SELECT_THREADS) {
        float x[SELECT_EACH], most = own.most;
        chunk_load(row, s, first, x);
#pragma unroll
        for (int k = 0; k < SELECT_EACH; k++) {
            if (fabsf(x[k]) <= 3.402823466e38f) finite = 1;
            else if (!(x[k] < 0)) bad = 1; /* NaN, +infinity */
            if (!is_candidate(j, first + k * SELECT_THREADS, x[k])) x[k] = -INFINITY;
            else n++;
            most = fmaxf(most, x[k]);
        }
        own_move(own, most);
#pragma unroll
        for (int k = 0; k < SELECT_EACH; k++) {
            if (!(x[k] > -INFINITY)) continue;
            float d = distance(x[k], most), p = expf(d);
            own.sum += p;
            own.weighted += p * d;
        }
    }
    if (bad) any_bad = 1;
    if (finite) any_finite = 1;
    float most = lanes_max(own.most, 32), all = lanes_sum((float)n, 32); /* below 2^24: exact */
    if (tid % 32 == 0) most_of[warp] = most, n_of[warp] = all;
    __syncthreads();
    for (int i = 0; i < SELECT_WARPS; i++) most = fmaxf(most, most_of[i]);
    own_move(own, most);
    double sum = lanes_sum_double((double)own.sum);
    double weighted = lanes_sum_double((double)own.weighted);
    if (tid % 32 == 0) sum_of[warp] = sum, weighted_of[warp] = weighted;
    __syncthreads();
    if (tid) return;
    part_sum p = {0, 0, most, 0, any_bad, any_finite};
    for (int i = 0; i < SELECT_WARPS; i++) {
        p.sum += sum_of[i], p.weighted += weighted_of[i];
        p.n_finite += (int32_t)n_of[i];
    }
    j.parts[(int64_t)blockIdx.y * SELECT_PARTS + blockIdx.x] = p;
}

static __device__ __forceinline__ float row_max(const select_job &j) {
    const part_sum *p = j.parts + (int64_t)blockIdx.y * SELECT_PARTS;
    float most = -INFINITY;
    for (int i = (int)threadIdx.x % 32; i < SELECT_PARTS; i += 32) most = fmaxf(most, p[i].max);
    return lanes_max(most, 32);
}

/* A larger value never gets a later bin. */
static __device__ __forceinline__ int bin_of(float max, float x) {
    return (int)fminf((max - x) * 32.0f, (float)(SELECT_BINS - 1));
}

__global__ void __launch_bounds__(SELECT_THREADS) select_histogram_kernel(select_job j) {
    __shared__ int32_t bins[SELECT_BINS];
    pdl_trigger();
    const float *row = j.logits + (int64_t)blockIdx.y * j.n_vocab;
    int32_t *all = j.bins + (int64_t)blockIdx.y * SELECT_BINS;
    int tid = (int)threadIdx.x;
    for (int i = tid; i < SELECT_BINS; i += SELECT_THREADS) bins[i] = 0;
    slice s = slice_of(j);
    __syncthreads();
    pdl_wait();
    float max = row_max(j);
#pragma unroll 1
    for (int32_t first = s.from + tid; first < s.to; first += SELECT_EACH * SELECT_THREADS) {
        float x[SELECT_EACH];
        chunk_load(row, s, first, x);
#pragma unroll
        for (int k = 0; k < SELECT_EACH; k++)
            if (is_candidate(j, first + k * SELECT_THREADS, x[k]))
                atomicAdd(&bins[bin_of(max, x[k])], 1);
    }
    __syncthreads();
    for (int i = tid; i < SELECT_BINS; i += SELECT_THREADS)
        if (bins[i]) atomicAdd(&all[i], bins[i]);
    if (blockIdx.x == 0 && tid == 0) j.rows[blockIdx.y].n = 0;
}

/* Merges the sums of a row's parts, by one warp: each lane adds its parts in order, then the lanes are added. */
static __device__ void finish_row(const select_job &j, float max, bool too_many) {
    const part_sum *p = j.parts + (int64_t)blockIdx.y * SELECT_PARTS;
    select_row *row = j.rows + blockIdx.y;
    double sum = 0, weighted = 0;
    int32_t n = 0;
    bool bad = false, finite = false;
    for (int i = (int)threadIdx.x % 32; i < SELECT_PARTS; i += 32) {
        n += p[i].n_finite;
        bad |= p[i].any_bad != 0;
        finite |= p[i].any_finite != 0;
        if (!p[i].n_finite) continue;
        double d = (double)p[i].max - (double)max, f = exp(d);
        sum += f * p[i].sum;
        weighted += f * (p[i].weighted + d * p[i].sum);
    }
    sum = lanes_sum_double(sum), weighted = lanes_sum_double(weighted);
    for (int o = 16; o > 0; o /= 2) n += __shfl_xor_sync(0xffffffffu, n, o);
    bool is_finite = __ballot_sync(0xffffffffu, finite) && !__ballot_sync(0xffffffffu, bad);
    if (threadIdx.x % 32) return;
    row->log_sum = log(sum);
    row->entropy = row->log_sum - weighted / sum;
    row->max = max;
    row->n_finite = n;
    row->is_finite = is_finite;
    if (too_many) row->n = -1;
}

/* Inclusive prefix sum over the lanes. */
static __device__ __forceinline__ int32_t lanes_upto(int32_t x) {
    int lane = (int)threadIdx.x % 32;
    for (int o = 1; o < 32; o *= 2) {
        int32_t before = __shfl_sync(0xffffffffu, x, lane >= o ? lane - o : lane);
        if (lane >= o) x += before;
    }
    return x;
}

/* The bin in which the cumulated count reaches SELECT_TOP, and that count; if none does, the last bin and -1. Not static,
 * like is_last in flash_attention_decode.cu. */
struct last_bin {
    int32_t bin, n;
};
__device__ __forceinline__ last_bin last_bin_of(const select_job &j) {
    enum { EACH = SELECT_BINS / SELECT_THREADS };
    __shared__ int32_t of_warp[SELECT_WARPS];
    __shared__ last_bin found;
    int tid = (int)threadIdx.x;
    const int32_t *bins = j.bins + (int64_t)blockIdx.y * SELECT_BINS + tid * EACH;
    int32_t own[EACH], sum = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) own[i] = bins[i];
#pragma unroll
    for (int i = 0; i < EACH; i++) sum += own[i];
    int32_t n = lanes_upto(sum);
    if (tid % 32 == 31) of_warp[tid / 32] = n;
    if (tid == 0) found = last_bin{SELECT_BINS - 1, -1};
    __syncthreads();
    n -= sum;
    for (int i = 0; i < tid / 32; i++) n += of_warp[i];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        int32_t with = n + own[i];
        if (n < SELECT_TOP && with >= SELECT_TOP) found = last_bin{tid * EACH + i, with};
        n = with;
    }
    __syncthreads();
    return found;
}

__global__ void __launch_bounds__(SELECT_THREADS) select_collect_kernel(select_job j) {
    pdl_trigger();
    const float *row = j.logits + (int64_t)blockIdx.y * j.n_vocab;
    select_row *to = j.rows + blockIdx.y;
    int tid = (int)threadIdx.x, lane = tid % 32;
    slice s = slice_of(j);
    pdl_wait();
    float max = row_max(j);
    last_bin last = last_bin_of(j);
    bool too_many = last.n > SELECT_CAP;
    if (blockIdx.x == SELECT_PARTS && tid < 32) finish_row(j, max, too_many);
#pragma unroll 1
    for (int32_t first = s.from + tid; !too_many && first - tid < s.to;
         first += SELECT_EACH * SELECT_THREADS) {
        float x[SELECT_EACH];
        chunk_load(row, s, first, x);
        uint32_t taken = 0;
#pragma unroll
        for (int k = 0; k < SELECT_EACH; k++)
            if (is_candidate(j, first + k * SELECT_THREADS, x[k]) && bin_of(max, x[k]) <= last.bin)
                taken |= 1u << k;
        int32_t upto = lanes_upto(__popc(taken)), all = __shfl_sync(0xffffffffu, upto, 31), at = 0;
        if (!all) continue;
        if (lane == 0) at = atomicAdd(&to->n, all);
        at = __shfl_sync(0xffffffffu, at, 0) + upto - __popc(taken);
#pragma unroll
        for (int k = 0; k < SELECT_EACH; k++) {
            if (!(taken >> k & 1)) continue;
            to->ids[at] = first + k * SELECT_THREADS;
            to->logits[at++] = x[k];
        }
    }
    if (!j.at) return;
    int32_t end = j.at[blockIdx.y + 1];
    for (int32_t i = j.at[blockIdx.y] + (int32_t)blockIdx.x * SELECT_THREADS + tid; i < end;
         i += (int32_t)gridDim.x * SELECT_THREADS)
        j.id_logits[i] = row[j.ids[i]];
}

/* ---- results to the host ---- */

/* In host memory: no copy engine is needed, and the host does not wait for the end of the stream. */
struct select_back {
    select_row rows[SELECT_ROWS];
    float id_logits[SELECT_ROWS * SELECT_MAX_IDS];
    uint32_t done[SELECT_ROWS]; /* 1: the row's results are complete */
};

enum { SELECT_HEAD = offsetof(select_row, ids) };
static_assert(SELECT_HEAD % 16 == 0 && SELECT_CAP % 4 == 0 && sizeof(select_row) % 16 == 0,
              "rows go back sixteen bytes at a time");

/* Candidates of a row in groups of four; the unused elements of the last group exist in both buffers. */
static __host__ __device__ inline int fours_of(int32_t n) { return n > 0 ? (n + 3) / 4 : 0; }

__global__ void __launch_bounds__(SELECT_THREADS)
    select_back_kernel(select_job j, select_back *to) {
    pdl_trigger();
    pdl_wait();
    int tid = (int)threadIdx.x, y = (int)blockIdx.x;
    const select_row *row = j.rows + y;
    select_row *out = to->rows + y;
    int n = fours_of(row->n);
    if (tid < SELECT_HEAD / 16) ((uint4 *)out)[tid] = ((const uint4 *)row)[tid];
    for (int i = tid; i < n; i += SELECT_THREADS) {
        ((uint4 *)out->ids)[i] = ((const uint4 *)row->ids)[i];
        ((uint4 *)out->logits)[i] = ((const uint4 *)row->logits)[i];
    }
    int32_t end = j.at ? j.at[y + 1] : 0;
    for (int32_t i = j.at ? j.at[y] + tid : 0; i < end; i += SELECT_THREADS)
        to->id_logits[i] = j.id_logits[i];
    __threadfence_system();
    __syncthreads();
    if (tid == 0) *(volatile uint32_t *)(to->done + y) = 1;
}

/* Copies the valid part of the results to the caller. */
static void take_rows(const struct select_back *b, struct select_row *rows, int32_t n_row) {
    for (int32_t i = 0; i < n_row; i++) {
        size_t n = (size_t)fours_of(b->rows[i].n) * 16;
        memcpy(&rows[i], &b->rows[i], SELECT_HEAD);
        memcpy(rows[i].ids, b->rows[i].ids, n);
        memcpy(rows[i].logits, b->rows[i].logits, n);
    }
}

/* ---- the op ---- */

size_t cuda_select_back(void) { return sizeof(struct select_back); }
size_t cuda_select_scratch(const struct dev_need *n) {
    (void)n;
    return SELECT_ROWS * (sizeof(select_row) + SELECT_MAX_IDS * sizeof(float)) +
           SELECT_ROWS * (SELECT_PARTS * sizeof(part_sum) + SELECT_BINS * sizeof(int32_t)) + 1024;
}
size_t cuda_select_stage(const struct dev_need *n) {
    return SELECT_ROWS * ((size_t)n->n_out / 8 + 8 + (SELECT_MAX_IDS + 1) * sizeof(int32_t)) + 256;
}

/* Stages masks, bounds and ids of n rows from `first` on in one piece. What a list refers to has the same addresses
 * in every step; only the last part, the ids, varies in length. */
static bool stage_rows(struct cuda *c, const struct select_args *a, int32_t first, int32_t n,
                       select_job *j) {
    bool masked = false;
    for (int32_t i = first; i < first + n; i++) masked |= a->masks && a->masks[i];
    size_t n_word = masked ? (size_t)j->n_word : 0;
    int32_t from = a->id_at ? a->id_at[first] : 0;
    int32_t n_id = a->id_at ? a->id_at[first + n] - from : 0;
    if (!masked && !n_id) return true;
    size_t at_bytes = (size_t)n * n_word * 8, ids_bytes = at_bytes + ((size_t)n + 1) * 4;
    uint8_t *host = (uint8_t *)cuda_stage_room(c, ids_bytes + (size_t)n_id * 4);
    if (!host) return false;
    uint64_t *mask = (uint64_t *)host;
    int32_t *at = (int32_t *)(host + at_bytes), *ids = (int32_t *)(host + ids_bytes);
    for (int32_t i = 0; i < n; i++) {
        if (n_word && a->masks[first + i])
            memcpy(mask + (size_t)i * n_word, a->masks[first + i], n_word * 8);
        else if (n_word) memset(mask + (size_t)i * n_word, 0xff, n_word * 8);
    }
    for (int32_t i = 0; i <= n; i++) at[i] = a->id_at ? a->id_at[first + i] - from : 0;
    if (n_id) memcpy(ids, a->ids + from, (size_t)n_id * 4);
    const uint8_t *dev = (const uint8_t *)cuda_staged(c, host);
    j->mask = masked ? (const uint64_t *)dev : NULL;
    j->at = (const int32_t *)(dev + at_bytes);
    j->ids = (const int32_t *)(dev + ids_bytes);
    return true;
}

static void select_rows(struct cuda *c, const struct select_args *a, int32_t first, int32_t n) {
    select_job j = {};
    j.logits = a->logits + (int64_t)first * a->n_vocab;
    j.n_vocab = a->n_vocab;
    j.n_word = (a->n_vocab + 63) / 64;
    int32_t from = a->id_at ? a->id_at[first] : 0;
    int32_t n_id = a->id_at ? a->id_at[first + n] - from : 0;
    if (n_id > n * SELECT_MAX_IDS) {
        cuda_fail_with(c, CHIMERE_EINTERNAL, "more logits wanted than select has room for");
        return;
    }
    struct select_back *back = (struct select_back *)c->back;
    j.rows = (select_row *)cuda_take(c, (size_t)n * sizeof *j.rows);
    j.id_logits = (float *)cuda_take(c, (size_t)n_id * sizeof *j.id_logits);
    j.parts = (part_sum *)cuda_take(c, (size_t)n * SELECT_PARTS * sizeof *j.parts);
    j.bins = (int32_t *)cuda_take(c, (size_t)n * SELECT_BINS * sizeof *j.bins);
    if (c->err.code || !stage_rows(c, a, first, n, &j)) return;
    dim3 grid(SELECT_PARTS, (unsigned)n), block(SELECT_THREADS);
    memset(back->done, 0, sizeof back->done);
    launch(c, select_sums_kernel, grid, block, 0, j);
    launch(c, select_histogram_kernel, grid, block, 0, j);
    dim3 one_more(SELECT_PARTS + 1, (unsigned)n); /* the additional block finishes the row's sums */
    launch(c, select_collect_kernel, one_more, block, 0, j);
    launch(c, select_back_kernel, dim3((unsigned)n), block, 0, j, back);
    cuda_send(c);
    cuda_wait_done(c, back->done, n);
    if (c->err.code) return;
    take_rows(back, a->rows + first, n);
    if (n_id) memcpy(a->id_logits + from, back->id_logits, (size_t)n_id * sizeof(float));
}

void cuda_select(struct dev *d, const struct select_args *a) {
    struct cuda *c = (struct cuda *)d;
    for (int32_t first = 0; first < a->n_row; first += SELECT_ROWS) {
        int32_t n = a->n_row - first < SELECT_ROWS ? a->n_row - first : SELECT_ROWS;
        if (!cuda_begin(c)) return;
        select_rows(c, a, first, n);
    }
}

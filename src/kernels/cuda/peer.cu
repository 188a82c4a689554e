/* peer.cu: sums over several GPUs that access each other's memory, as kernels of a step's list.
 *
 * Each rank owns a room that all ranks write to. A sum has a number, its epoch, which all ranks count equally. Waits
 * poll the rank's own memory, which the others write. A rank that leaves, or that misses the deadline, sets *gone; then
 * every wait ends, and the result is undefined.
 *
 * Short sums: a rank sends each pair of floats with the epoch beside either, in one store of 16 bytes. The receiver
 * waits for the epoch in the words themselves, so no fence is needed. Two parts of the room are used in turn: a rank
 * that starts sum e + 2 has finished e + 1, so every other rank has started e + 1 and has finished reading e.
 *
 * Long sums: each rank adds up the region of the rows that it owns and sends the result to all others, so each float
 * crosses the bus twice, whatever the number of ranks. Blocks of the same index on all ranks work together: they
 * send, set a flag, wait for the others' flags. A rank sends sum e + 1 when it has the results of e, for which every
 * other rank has read what it sent; it sends results of e + 1 when the others have begun e + 1. */
#include "kernels/cuda/cuda_impl.cuh"

enum {
    SMALL_THREADS = 256,
    SMALL_FLOATS = 1 << 17, /* of the longest short sum */
    BIG_THREADS = 512,
    BIG_BLOCKS = 128,
    HEAD_BYTES = 256, /* nanoseconds spent in sums */
};

struct peers {                  /* as kernels see them */
    uint4 *words[PEERS_MAX];    /* [2, n_rank, n_pair]: short sums, by sender */
    float *parts[PEERS_MAX];    /* [n_rank, n_own]: region to add up, by sender */
    float *sums[PEERS_MAX];     /* [n_rank, n_own]: results, by owner */
    uint32_t *flags[PEERS_MAX]; /* [2, n_rank, BIG_BLOCKS]: parts sent, results sent */
    uint64_t *ns;               /* of this rank */
    uint32_t *gone;
    uint64_t deadline_ns;
    int64_t n_pair, n_own;
    int32_t n_rank, rank;
};

static int64_t small_floats(int64_t n_max) { return n_max < SMALL_FLOATS ? n_max : SMALL_FLOATS; }
static size_t room_up(size_t n) { return (n + 255) & ~(size_t)255; }

/* Floats of a region: whole groups of four. */
static int64_t region_of(int64_t n, int32_t n_rank) {
    return ((n + n_rank - 1) / n_rank + 3) & ~(int64_t)3;
}

static size_t words_bytes(int32_t n_rank, int64_t n_max) {
    return room_up(2 * (size_t)n_rank * (size_t)((small_floats(n_max) + 1) / 2) * sizeof(uint4));
}
static size_t big_bytes(int32_t n_rank, int64_t n_max) {
    return room_up((size_t)n_rank * (size_t)region_of(n_max, n_rank) * sizeof(float));
}

size_t cuda_peer_bytes(int32_t n_rank, int64_t n_max) {
    return HEAD_BYTES + words_bytes(n_rank, n_max) + 2 * big_bytes(n_rank, n_max) +
           room_up(2 * (size_t)n_rank * BIG_BLOCKS * sizeof(uint32_t));
}

/* Whether a wait should continue. Looks at host memory and the clock now and then. */
struct patience {
    uint64_t start;
    uint32_t n_poll;
};
__device__ __forceinline__ bool waits_on(const peers &p, patience *w, int32_t r) {
    peer_pause();
    if (++w->n_poll % PEER_POLLS) return true;
    uint64_t now = peer_clock_ns();
    if (!w->start) w->start = now;
    if (peer_load(p.gone)) return false;
    if (now - w->start < p.deadline_ns) return true;
    peer_store(p.gone, (uint32_t)PEER_LATE + (uint32_t)r + 1);
    return false;
}

__device__ __forceinline__ void add_time(const peers &p, uint64_t start) {
    if (blockIdx.x == 0 && threadIdx.x == 0) *p.ns += peer_clock_ns() - start;
}

__global__ void __launch_bounds__(SMALL_THREADS)
    peer_small_kernel(peers p, const uint32_t *epoch, float *part, float *x, float scale,
                      int32_t n) {
    pdl_trigger();
    uint32_t e = *epoch;
    int64_t i = (int64_t)blockIdx.x * SMALL_THREADS + threadIdx.x;
    bool pair = 2 * i + 1 < n;
    pdl_wait();
    if (2 * i >= n) return;
    uint64_t start = peer_clock_ns();
    float a = part[2 * i], b = pair ? part[2 * i + 1] : 0.0f, sum_a = 0, sum_b = 0;
    uint4 word = {(uint32_t)__float_as_int(a), e, (uint32_t)__float_as_int(b), e};
    int64_t turn = (int64_t)(e & 1) * p.n_rank;
    for (int32_t r = 0; r < p.n_rank; r++)
        if (r != p.rank) peer_store4(p.words[r] + (turn + p.rank) * p.n_pair + i, word);
    patience w = {0, 0};
    for (int32_t r = 0; r < p.n_rank; r++) {
        float more_a = a, more_b = b;
        if (r != p.rank) {
            const uint4 *from = p.words[p.rank] + (turn + r) * p.n_pair + i;
            uint4 v = peer_load4(from);
            while ((v.y != e || v.w != e) && waits_on(p, &w, r)) v = peer_load4(from);
            more_a = __int_as_float((int)v.x), more_b = __int_as_float((int)v.z);
        }
        sum_a = r ? sum_a + more_a : more_a, sum_b = r ? sum_b + more_b : more_b;
    }
    if (x) {
        x[2 * i] = fmaf(scale, sum_a, x[2 * i]);
        if (pair) x[2 * i + 1] = fmaf(scale, sum_b, x[2 * i + 1]);
    }
    part[2 * i] = x ? 0.0f : sum_a;
    if (pair) part[2 * i + 1] = x ? 0.0f : sum_b;
    add_time(p, start);
}

/* All threads: what the block wrote is visible to the others before their flag. */
__device__ __forceinline__ void set_flags(const peers &p, int phase, uint32_t e) {
    __threadfence_system();
    __syncthreads();
    int32_t r = (int32_t)threadIdx.x;
    if (r < p.n_rank && r != p.rank)
        peer_release(p.flags[r] + (phase * p.n_rank + p.rank) * BIG_BLOCKS + blockIdx.x, e);
    __syncthreads(); /* no thread waits before all flags are set */
}
__device__ __forceinline__ void wait_flags(const peers &p, int phase, uint32_t e) {
    int32_t r = (int32_t)threadIdx.x;
    patience w = {0, 0};
    if (r < p.n_rank && r != p.rank) {
        const uint32_t *flag = p.flags[p.rank] + (phase * p.n_rank + r) * BIG_BLOCKS + blockIdx.x;
        while (peer_acquire(flag) != e && waits_on(p, &w, r)) continue;
    }
    __syncthreads();
}

__device__ __forceinline__ float4 four_of(const float *x, int64_t at, int64_t n) {
    if (at + 4 <= n) return *(const float4 *)(x + at);
    return make_float4(x[at], at + 1 < n ? x[at + 1] : 0.0f, at + 2 < n ? x[at + 2] : 0.0f, 0.0f);
}

/* The sum of a group of four replaces the summand, or is added to x. */
__device__ __forceinline__ void finish_four(float *part, float *x, float scale, int64_t at,
                                            int64_t n, float4 sum) {
    float s[4] = {sum.x, sum.y, sum.z, sum.w};
    if (at + 4 <= n) {
        if (x) {
            float4 v = *(float4 *)(x + at);
            *(float4 *)(x + at) = make_float4(fmaf(scale, s[0], v.x), fmaf(scale, s[1], v.y),
                                              fmaf(scale, s[2], v.z), fmaf(scale, s[3], v.w));
        }
        *(float4 *)(part + at) = x ? make_float4(0, 0, 0, 0) : sum;
        return;
    }
    for (int k = 0; at + k < n; k++) {
        if (x) x[at + k] = fmaf(scale, s[k], x[at + k]);
        part[at + k] = x ? 0.0f : s[k];
    }
}

__global__ void __launch_bounds__(BIG_THREADS)
    peer_big_kernel(peers p, const uint32_t *epoch, float *part, float *x, float scale, i64 n,
                    i64 n_own) {
    pdl_trigger();
    uint32_t e = *epoch;
    pdl_wait();
    uint64_t start = peer_clock_ns();
    int64_t step = (int64_t)gridDim.x * BIG_THREADS * 4;
    int64_t first = ((int64_t)blockIdx.x * BIG_THREADS + threadIdx.x) * 4;
    for (int32_t r = 0; r < p.n_rank; r++) {
        float *to = p.parts[r] + p.rank * p.n_own;
        int64_t base = r * n_own;
        if (r != p.rank)
            for (int64_t i = first; i < n_own && base + i < n; i += step)
                *(float4 *)(to + i) = four_of(part, base + i, n);
    }
    set_flags(p, 0, e);
    wait_flags(p, 0, e);
    int64_t base = p.rank * n_own;
    for (int64_t i = first; i < n_own && base + i < n; i += step) {
        float4 own = four_of(part, base + i, n), sum = make_float4(0, 0, 0, 0);
        for (int32_t r = 0; r < p.n_rank; r++) {
            float4 v =
                r == p.rank ? own : __ldcg((const float4 *)(p.parts[p.rank] + r * p.n_own + i));
            sum = r ? make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w) : v;
        }
        for (int32_t r = 0; r < p.n_rank; r++)
            if (r != p.rank) *(float4 *)(p.sums[r] + p.rank * p.n_own + i) = sum;
        finish_four(part, x, scale, base + i, n, sum);
    }
    set_flags(p, 1, e);
    wait_flags(p, 1, e);
    for (int32_t r = 0; r < p.n_rank; r++) {
        const float *from = p.sums[p.rank] + r * p.n_own;
        int64_t at = r * n_own;
        if (r != p.rank)
            for (int64_t i = first; i < n_own && at + i < n; i += step)
                finish_four(part, x, scale, at + i, n, __ldcg((const float4 *)(from + i)));
    }
    add_time(p, start);
}

static peers peers_of(const struct peer_args *a) {
    peers p = {};
    size_t n_words = words_bytes(a->n_rank, a->n_max), n_big = big_bytes(a->n_rank, a->n_max);
    for (int32_t r = 0; r < a->n_rank; r++) {
        uint8_t *room = (uint8_t *)a->room[r] + HEAD_BYTES;
        p.words[r] = (uint4 *)room;
        p.parts[r] = (float *)(room + n_words);
        p.sums[r] = (float *)(room + n_words + n_big);
        p.flags[r] = (uint32_t *)(room + n_words + 2 * n_big);
    }
    p.ns = (uint64_t *)a->room[a->rank];
    p.gone = a->gone;
    p.deadline_ns = (uint64_t)a->deadline_ns;
    p.n_pair = (small_floats(a->n_max) + 1) / 2;
    p.n_own = region_of(a->n_max, a->n_rank);
    p.n_rank = a->n_rank;
    p.rank = a->rank;
    return p;
}

void cuda_peer_sum(struct dev *d, const struct peer_args *a) {
    struct cuda *c = (struct cuda *)d;
    if (!cuda_begin(c) || a->n < 1) return;
    const uint32_t *epoch = (const uint32_t *)cuda_stage(c, &a->epoch, sizeof a->epoch);
    if (!epoch) return;
    cuda_wrote(c, a->part, (size_t)a->n * sizeof *a->part);
    if (a->x) cuda_wrote(c, a->x, (size_t)a->n * sizeof *a->x);
    peers p = peers_of(a);
    if (a->n <= small_floats(a->n_max)) {
        int64_t n_block = ((a->n + 1) / 2 + SMALL_THREADS - 1) / SMALL_THREADS;
        launch(c, peer_small_kernel, dim3((unsigned)n_block), dim3(SMALL_THREADS), 0, p, epoch,
               a->part, a->x, a->scale, (int32_t)a->n);
        return;
    }
    launch(c, peer_big_kernel, dim3(BIG_BLOCKS), dim3(BIG_THREADS), 0, p, epoch, a->part, a->x,
           a->scale, a->n, region_of(a->n, a->n_rank));
}

/* Rows into another GPU's memory; the first thread also copies this rank's time in sums to the host. */
__global__ void peer_rows_kernel(float *dst, i64 dst_stride, const float *src, i64 n, const u64 *ns,
                                 u64 *host_ns) {
    pdl_trigger();
    pdl_wait();
    dst += blockIdx.y * dst_stride;
    src += blockIdx.y * n;
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        dst[i] = src[i];
    if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) *host_ns = *ns;
}

void cuda_peer_rows(struct dev *d, const struct peer_args *a, float *dst, int64_t dst_stride,
                    const float *src, int32_t n_row, int64_t n, uint64_t *host_ns) {
    struct cuda *c = (struct cuda *)d;
    if (!cuda_begin(c) || n_row < 1 || n < 1) return;
    int64_t n_block = (n + SMALL_THREADS - 1) / SMALL_THREADS;
    launch(c, peer_rows_kernel, dim3((unsigned)(n_block < 128 ? n_block : 128), (unsigned)n_row),
           dim3(SMALL_THREADS), 0, dst, dst_stride, src, n, (const uint64_t *)a->room[a->rank],
           host_ns);
}

bool cuda_peer_open(struct dev *d, struct dev *const *devs, int32_t n) {
    struct cuda *c = (struct cuda *)d;
    cuda_use(c);
    for (int32_t i = 0; i < n; i++) {
        int other = ((struct cuda *)devs[i])->params.device, can = 0;
        if (other == c->params.device) continue;
        if (cudaDeviceCanAccessPeer(&can, c->params.device, other) != cudaSuccess || !can)
            return false;
        cudaError_t rc = cudaDeviceEnablePeerAccess(other, 0);
        cudaGetLastError(); /* an access that is enabled already is reported as an error */
        if (rc != cudaSuccess && rc != cudaErrorPeerAccessAlreadyEnabled) return false;
    }
    return true;
}

/* expert_pool.cu: experts that the device holds in slots, while all are in pinned host memory (moe_pool in tensor.h).
 *
 * The directory is in device memory and the kernels of a step decide everything, so the host never waits for a layer
 * and the step stays one CUDA graph. In a step, place_kernel chooses the experts, finds their slots, and evicts for
 * those that are missing; copy_kernel then reads them from host memory, 16 bytes per lane. A longer batch copies all
 * experts that it uses to a stage: from their slots, or from host memory.
 *
 * Evicted is the expert with the lowest last use + COUNT_WEIGHT log2(1 + decayed count of uses), as in model/tier.c. */
#include "kernels/cuda/moe.cuh"

enum {
    POOL_THREADS = 512, /* of place_kernel: at least one per expert and per slot */
    POOL_WARPS = POOL_THREADS / 32,
    COPY_THREADS = 256,
    COPY_EACH = 2, /* groups of 16 bytes per thread and chunk */
    COPY_BYTES = COPY_THREADS * COPY_EACH * 16,
    COPY_BLOCKS = 2,  /* per multiprocessor: 2 MB of reads in flight, the bus needs some 100 KB */
    WARM_PASSES = 4,  /* steps at the end of a long batch that fill the slots */
    MAX_SEGMENTS = 12 /* four planes of gate, up and down */
};
static_assert((int)POOL_THREADS >= (int)MAX_EXPERTS, "a thread per expert");
#define COUNT_WEIGHT 4.0f
#define COUNT_HALF 256.0f

struct pool_head {
    struct moe_counts counts;
    uint32_t clock; /* tokens of all steps */
    int32_t n_list;
};

struct pool_copy {    /* one matrix of each part */
    int32_t from, to; /* from: the expert in host memory, or ~slot if below 0 */
};

struct pool_dir { /* all in device memory, except shown */
    pool_head *head;
    int32_t *slot;   /* [n_expert]: 1 + its slot; 0: none */
    uint32_t *last;  /* [n_expert]: clock of the last use */
    float *count;    /* [n_expert]: uses, as of `last` */
    uint32_t *uses;  /* [n_expert]: tokens that used it */
    int32_t *expert; /* [n_slot]: 1 + its expert; 0: none */
    pool_copy *list; /* [head->n_list]: what copy_experts_kernel copies */
    int32_t n_expert, n_slot;
    uint64_t record; /* bytes of an expert */
    struct moe_counts *shown;
    uint32_t *shown_uses;
};

/* ---- the directory ---- */

/* How long an expert that was used n times, `age` tokens ago, should stay. */
static __device__ __forceinline__ float pool_score(float count, uint32_t age) {
    return COUNT_WEIGHT * log2f(1.0f + count * exp2f((float)age * (-1.0f / COUNT_HALF))) -
           (float)age;
}

/* Publishes the counters. One thread. */
static __device__ __forceinline__ void pool_count(const pool_dir &d, int n_hit, int n_miss) {
    struct moe_counts n = d.head->counts;
    n.n_hit += (uint64_t)n_hit, n.n_miss += (uint64_t)n_miss, n.n_pass++;
    n.n_bytes += (uint64_t)n_miss * d.record;
    d.head->counts = n;
    *d.shown = n;
}

/* Adds n tokens that used expert e; the host sees the sum. */
static __device__ __forceinline__ void pool_add_uses(const pool_dir &d, int e, int n) {
    uint32_t sum = d.uses[e] + (uint32_t)n;
    d.uses[e] = d.shown_uses[e] = sum;
}

/* The number of threads before this one, in the block, for which is_in is set; *all: of all threads. */
static __device__ __forceinline__ int pool_rank(bool is_in, int32_t *room, int *all) {
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, before = 0, sum = 0;
    uint32_t mine = __ballot_sync(0xffffffffu, is_in);
    if (lane == 0) room[warp] = __popc(mine);
    __syncthreads();
    for (int w = 0; w < POOL_WARPS; w++) {
        before += w < warp ? room[w] : 0;
        sum += room[w];
    }
    *all = sum;
    return before + __popc(mine & ((1u << lane) - 1u));
}

/* The thread with the largest value of a block, the first of several; room: [POOL_WARPS]. One barrier. */
static __device__ __forceinline__ int pool_largest(uint32_t value, uint2 *room) {
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    uint32_t most = lanes_most(value);
    uint32_t all = __ballot_sync(0xffffffffu, value == most);
    if (lane == __ffs((int)all) - 1) room[warp] = make_uint2(most, threadIdx.x);
    __syncthreads();
    uint2 v = room[lane % POOL_WARPS];
    all = __ballot_sync(0xffffffffu, v.x == lanes_most(v.x));
    return (int)__shfl_sync(0xffffffffu, v.y, __ffs((int)all) - 1);
}

/* One block. Chooses the experts of n_tok tokens (if c has logits, at most CHOOSE_FEW; otherwise ids are given),
 * assigns a slot to each, and lists those that must be copied. slots: ids with each expert
 * replaced by its slot; may be NULL. */
__global__ void __launch_bounds__(POOL_THREADS)
    place_experts_kernel(choice_job c, int32_t n_tok, int32_t *ids, float *weights, int32_t *slots,
                         pool_dir d, int32_t is_counted) {
    __shared__ int32_t chosen[STEP_TOKS * MAX_USED], missing[MAX_EXPERTS], room[2][POOL_WARPS];
    __shared__ uint2 largest[2][POOL_WARPS];
    __shared__ bool wanted[MAX_EXPERTS];
    int tid = (int)threadIdx.x, lane = tid % 32, warp = tid / 32, n_pair = n_tok * c.n_used;
    pdl_trigger();
    pdl_wait();
    if (c.logits) {
#pragma unroll 1
        for (int t = warp; t < n_tok; t += POOL_WARPS) {
            int32_t id = warp_keep(c, t, warp_choose<CHOOSE_FEW / 32>(c, t));
            float weight = warp_weight(c, t, id);
            if (lane >= c.n_used) continue;
            chosen[t * c.n_used + lane] = ids[t * c.n_used + lane] = id;
            weights[t * c.n_used + lane] = weight;
        }
    } else {
        for (int p = tid; p < n_pair; p += POOL_THREADS) chosen[p] = ids[p];
    }
    uint32_t clock = d.head->clock, used_at = 0;
    bool is_expert = tid < d.n_expert, has = is_expert && d.slot[tid] != 0;
    __syncthreads();
    int uses = 0;
    for (int p = 0, t = 0, k = 0; p < n_pair; p++) {
        if (chosen[p] == tid) uses++, used_at = clock + (uint32_t)t;
        if (++k == c.n_used) k = 0, t++;
    }
    bool is_wanted = is_expert && uses > 0;
    if (is_wanted) {
        float decay = exp2f((float)(clock - d.last[tid]) * (-1.0f / COUNT_HALF));
        d.count[tid] = (float)uses + d.count[tid] * decay;
        d.last[tid] = used_at;
        if (is_counted) pool_add_uses(d, tid, uses);
    }
    wanted[tid] = is_wanted;
    int n_miss, n_all, at = pool_rank(is_wanted && !has, room[0], &n_miss);
    if (is_wanted && !has) missing[at] = tid;
    pool_rank(is_wanted, room[1], &n_all); /* its barrier: missing and the uses are stored */
    if (n_miss) {
        uint32_t rank = 0; /* the slot of the greatest is evicted; 0: must stay */
        int32_t x = tid < d.n_slot ? d.expert[tid] - 1 : -1;
        if (tid < d.n_slot && x < 0) rank = 0xffffffffu;
        else if (x >= 0 && !wanted[x]) {
            float s = pool_score(d.count[x], clock + (uint32_t)n_tok - d.last[x]) + 0.0f;
            uint32_t u = (uint32_t)__float_as_int(s);
            rank = ~(u ^ ((uint32_t)((int32_t)u >> 31) | 0x80000000u));
        }
#pragma unroll 1
        for (int m = 0; m < n_miss; m++) {
            if (pool_largest(rank, largest[m % 2]) != tid) continue;
            if (x >= 0) d.slot[x] = 0;
            d.expert[tid] = missing[m] + 1;
            d.slot[missing[m]] = tid + 1;
            d.list[m] = pool_copy{missing[m], tid};
            rank = 0;
        }
    }
    __syncthreads();
    for (int p = tid; slots && p < n_pair; p += POOL_THREADS)
        slots[p] = chosen[p] < 0 ? chosen[p] : d.slot[chosen[p]] - 1;
    if (tid) return;
    d.head->n_list = n_miss;
    d.head->clock = clock + (uint32_t)n_tok;
    if (is_counted) pool_count(d, n_all - n_miss, n_miss);
}

/* One block. Lists the experts of a long batch: each is copied to its own place, from its slot if it has one. */
__global__ void __launch_bounds__(POOL_THREADS)
    list_experts_kernel(const int32_t *ids, int32_t n_pair, pool_dir d) {
    __shared__ int32_t used[MAX_EXPERTS], room[2][POOL_WARPS];
    int tid = (int)threadIdx.x, n_all, n_miss;
    pdl_trigger();
    pdl_wait();
    used[tid] = 0;
    __syncthreads();
    for (int p = tid; p < n_pair; p += POOL_THREADS)
        if (ids[p] >= 0) atomicAdd(&used[ids[p]], 1);
    __syncthreads();
    bool is_used = used[tid] != 0;
    int32_t slot = is_used ? d.slot[tid] : 0;
    int at = pool_rank(is_used, room[0], &n_all);
    if (is_used) d.list[at] = pool_copy{slot ? ~(slot - 1) : tid, tid};
    if (is_used) pool_add_uses(d, tid, used[tid]);
    pool_rank(is_used && !slot, room[1], &n_miss);
    if (tid) return;
    d.head->n_list = n_all;
    pool_count(d, n_all - n_miss, n_miss);
}

/* ---- copies ---- */

struct copy_job {
    const uint8_t *host[MAX_SEGMENTS], *slots[MAX_SEGMENTS]; /* expert 0, slot 0 */
    uint8_t *to[MAX_SEGMENTS];                               /* copy 0 */
    uint32_t bytes[MAX_SEGMENTS];                            /* of one expert */
    int32_t first[MAX_SEGMENTS +
                  1]; /* index of a segment's first chunk; at the end: chunks per expert */
    int32_t n_segment;
    const pool_head *head;
    const pool_copy *list;
};

/* Copies what the list names. A block takes every gridDim.x-th chunk. */
__global__ void __launch_bounds__(COPY_THREADS)
    copy_experts_kernel(const __grid_constant__ copy_job j) {
    pdl_wait();
    pdl_trigger(); /* not earlier: a kernel must not start, and cache a slot, before the last reader has ended */
    int per = j.first[j.n_segment], n = j.head->n_list * per;
#pragma unroll 1
    for (int b = (int)blockIdx.x; b < n; b += (int)gridDim.x) {
        pool_copy one = j.list[b / per];
        int chunk = b % per, s = 0;
        while (chunk >= j.first[s + 1]) s++;
        uint32_t bytes = j.bytes[s], at = (uint32_t)(chunk - j.first[s]) * COPY_BYTES;
        const uint8_t *from = one.from < 0 ? j.slots[s] + (uint64_t)~one.from * bytes
                                           : j.host[s] + (uint64_t)one.from * bytes;
        uint8_t *to = j.to[s] + (uint64_t)one.to * bytes;
        uint32_t end = min(at + COPY_BYTES, bytes);
        if (bytes % 16) { /* small models only */
            for (uint32_t i = at + threadIdx.x; i < end; i += COPY_THREADS) to[i] = from[i];
            continue;
        }
        uint4 v[COPY_EACH];
        at += 16 * threadIdx.x;
#pragma unroll
        for (int i = 0; i < COPY_EACH; i++)
            if (at + i * 16 * COPY_THREADS < end)
                v[i] = *(const uint4 *)(from + at + i * 16 * COPY_THREADS);
#pragma unroll
        for (int i = 0; i < COPY_EACH; i++)
            if (at + i * 16 * COPY_THREADS < end)
                *(uint4 *)(to + at + i * 16 * COPY_THREADS) = v[i];
    }
}

/* ---- recording ---- */

static size_t pool_align(size_t n) { return (n + 15) & ~(size_t)15; }

size_t cuda_pool_bytes(int32_t n_expert, int32_t n_slot) {
    size_t n = (size_t)n_expert;
    return pool_align(sizeof(pool_head)) + 4 * pool_align(4 * n) + pool_align(4 * (size_t)n_slot) +
           pool_align(sizeof(pool_copy) * n);
}

static pool_dir pool_dir_of(const struct moe_args *a, uint64_t record) {
    const struct moe_pool *p = a->pool;
    size_t n = (size_t)a->router->n_out;
    pool_dir d = {};
    uint8_t *at = (uint8_t *)p->directory;
    d.head = (pool_head *)at, at += pool_align(sizeof *d.head);
    d.slot = (int32_t *)at, at += pool_align(4 * n);
    d.last = (uint32_t *)at, at += pool_align(4 * n);
    d.count = (float *)at, at += pool_align(4 * n);
    d.uses = (uint32_t *)at, at += pool_align(4 * n);
    d.expert = (int32_t *)at, at += pool_align(4 * (size_t)p->n_slot);
    d.list = (pool_copy *)at;
    d.n_expert = (int32_t)n, d.n_slot = p->n_slot, d.record = record;
    d.shown = p->counts, d.shown_uses = p->uses;
    return d;
}

/* The copies from host memory and from the slots to `to`, stacks of gate, up and down. */
static copy_job copy_job_of(const struct moe_args *a, const struct weight *to, uint64_t *record) {
    const struct weight *host[3] = {a->gate, a->up, a->down};
    copy_job j = {};
    *record = 0;
    for (int i = 0; i < 3; i++) {
        if (!host[i]) continue;
        const struct weight *slot = &a->pool->slot[i];
        struct plane_part in[3][4];
        cuda_repack_parts(host[i], in[0]);
        cuda_repack_parts(slot, in[1]);
        cuda_repack_parts(&to[i], in[2]);
        for (int k = 0; k < 4; k++) {
            uint32_t bytes = (uint32_t)(in[0][k].row_bytes * (size_t)host[i]->n_out);
            int s = j.n_segment;
            if (!bytes) continue;
            j.host[s] = (const uint8_t *)host[i]->data + in[0][k].at;
            j.slots[s] = (const uint8_t *)slot->data + in[1][k].at;
            j.to[s] = (uint8_t *)to[i].data + in[2][k].at;
            j.bytes[s] = bytes;
            j.first[s + 1] = j.first[s] + (int32_t)((bytes + COPY_BYTES - 1) / COPY_BYTES);
            *record += bytes;
            j.n_segment++;
        }
    }
    return j;
}

static void copy_listed(struct cuda *c, copy_job &j, const pool_dir &d) {
    j.head = d.head, j.list = d.list;
    launch(c, copy_experts_kernel, dim3((unsigned)(COPY_BLOCKS * c->n_sm)), dim3(COPY_THREADS), 0,
           j);
}

static void place(struct cuda *c, const choice_job &choice, int32_t n_tok, int32_t *ids,
                  float *weights, int32_t *slots, const pool_dir &d, bool is_counted) {
    launch(c, place_experts_kernel, dim3(1), dim3(POOL_THREADS), 0, choice, n_tok, ids, weights,
           slots, d, (int32_t)is_counted);
}

void cuda_pool_step(struct cuda *c, const struct moe_args *a, int32_t n_tok,
                    const choice_job &choice, int32_t *ids, float *weights, int32_t *slots) {
    uint64_t record;
    copy_job j = copy_job_of(a, a->pool->slot, &record);
    pool_dir d = pool_dir_of(a, record);
    place(c, choice, n_tok, ids, weights, slots, d, true);
    copy_listed(c, j, d);
}

void cuda_pool_stage(struct cuda *c, const struct moe_args *a, int32_t *ids) {
    uint64_t record;
    copy_job to_slots = copy_job_of(a, a->pool->slot, &record),
             to_stage = copy_job_of(a, a->pool->stage, &record);
    pool_dir d = pool_dir_of(a, record);
    launch(c, list_experts_kernel, dim3(1), dim3(POOL_THREADS), 0, (const int32_t *)ids,
           a->n_tok * a->n_used, d);
    copy_listed(c, to_stage, d);
    /* the last tokens' experts are those that the next step most likely needs */
    int32_t each = a->pool->n_slot / a->n_used, n = 0;
    each = each < STEP_TOKS ? each : STEP_TOKS;
    choice_job given = {};
    given.n_expert = d.n_expert, given.n_used = a->n_used;
    for (int32_t pass = WARM_PASSES; pass > 0; pass--) {
        int32_t first = a->n_tok - pass * each;
        n = first < 0 ? each + first : each;
        if (n <= 0) continue;
        place(c, given, n, ids + (first < 0 ? 0 : first) * a->n_used, NULL, NULL, d, false);
        copy_listed(c, to_slots, d);
    }
}

/* Tokens in ascending order of use give the experts ages by which they are evicted, the least used first. */
void cuda_pool_fill(struct dev *d, const struct moe_args *a) {
    struct cuda *c = (struct cuda *)d;
    uint64_t record;
    if (!cuda_begin(c)) return;
    copy_job j = copy_job_of(a, a->pool->slot, &record);
    pool_dir dir = pool_dir_of(a, record);
    choice_job given = {};
    given.n_expert = dir.n_expert, given.n_used = a->n_used;
    place(c, given, a->n_tok, (int32_t *)a->chosen, NULL, NULL, dir, false);
    copy_listed(c, j, dir);
}

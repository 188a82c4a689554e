/* expert_pool.cu: experts that the device holds in slots, while all are in pinned host memory (moe_pool in tensor.h).
 *
 * The directory is in device memory and the kernels of a step decide everything, so the host never waits for a layer
 * and the step stays one CUDA graph. In a step, one kernel chooses the experts, finds their slots, evicts for those
 * that are missing, and reads these from host memory, 16 bytes per lane. All its blocks decide the same, so they
 * exchange nothing: the last block alone writes the directory, if experts are missing after all blocks have read it. A
 * longer batch copies all experts that it uses to a stage: from their slots, or from host memory.
 *
 * Idle pages of keys and values hold experts too, as records (moe_pool.spare). An expert that is evicted is written to
 * one, and a missing one is read from there; the copy that fills a slot does both. The records are overwritten in turn.
 * When a sequence needs pages, lend_pool_kernel empties the records in them before it writes.
 *
 * Evicted is the expert with the lowest last use + COUNT_WEIGHT log2(1 + decayed count of uses), as in model/experts/tier.c. */
#include "kernels/cuda/moe.cuh"

enum {
    POOL_THREADS = 512, /* of a block that decides: at least one per expert and per slot */
    POOL_FEW = 256,     /* the same for fewer experts: its barriers are shorter */
    POOL_BLOCKS = 64,   /* of a step: 512 KB of reads in flight, the bus needs some 100 KB */
    COPY_THREADS = 256,
    COPY_BYTES = 8192, /* of a chunk */
    COPY_BLOCKS = 2,   /* per multiprocessor, of copies to the stage */
    WARM_PASSES = 4,   /* steps at the end of a long batch that fill the slots */
    MAX_SEGMENTS = 12  /* four planes of gate, up and down */
};
static_assert((int)POOL_THREADS >= (int)MAX_EXPERTS, "a thread per expert");
#define COUNT_WEIGHT 4.0f
#define COUNT_HALF 256.0f

struct pool_head {
    struct moe_counts counts;
    uint32_t clock;     /* tokens of all steps */
    uint32_t n_arrived; /* blocks that have read the directory; 0 between kernels */
    int32_t n_list;
    int32_t next_spare; /* the record that is overwritten next, if it may be */
    uint32_t lent;      /* parts of memory that hold records */
};

struct pool_copy {      /* one matrix of each part */
    int32_t from, to;   /* from: the expert in host memory, or ~slot if below 0 */
    int32_t have, save; /* records: the source instead of from; where to's content goes; -1: none */
};

struct pool_pair {
    int32_t a, b;
};

struct pool_dir { /* all in device memory, except shown */
    pool_head *head;
    int32_t *slot;   /* [n_expert]: 1 + its slot; 0: none */
    uint32_t *last;  /* [n_expert]: clock of the last use */
    float *count;    /* [n_expert]: uses, as of `last` */
    uint32_t *uses;  /* [n_expert]: tokens that used it */
    int32_t *expert; /* [n_slot]: 1 + its expert; 0: none */
    int32_t *held;   /* [n_spare]: 1 + the expert in the record; 0: none */
    pool_copy *list; /* [head->n_list]: what copy_experts_kernel copies */
    const moe_spare *spare;
    int32_t n_expert, n_slot, n_spare, unused;
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

/* Publishes the counters n, with those of one more batch. One thread. */
static __device__ __forceinline__ void pool_count(const pool_dir &d, struct moe_counts n, int n_hit,
                                                  int n_miss) {
    n.n_hit += (uint64_t)n_hit, n.n_miss += (uint64_t)n_miss, n.n_pass++;
    n.n_bytes += (uint64_t)n_miss * d.record;
    d.head->counts = n;
    *d.shown = n;
}

/* The number of threads before this one, in the block, for which is_in is set; *all: of all threads. */
template <int T>
static __device__ __forceinline__ int pool_rank(bool is_in, int32_t *room, int *all) {
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, before = 0, sum = 0;
    uint32_t mine = __ballot_sync(0xffffffffu, is_in);
    if (lane == 0) room[warp] = __popc(mine);
    __syncthreads();
    for (int w = 0; w < T / 32; w++) {
        before += w < warp ? room[w] : 0;
        sum += room[w];
    }
    *all = sum;
    return before + __popc(mine & ((1u << lane) - 1u));
}

/* The thread with the largest value of a block, the first of several; room: [T / 32]. One barrier. */
template <int T> static __device__ __forceinline__ int pool_largest(uint32_t value, uint2 *room) {
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    uint32_t most = lanes_most(value);
    uint32_t all = __ballot_sync(0xffffffffu, value == most);
    if (lane == __ffs((int)all) - 1) room[warp] = make_uint2(most, threadIdx.x);
    __syncthreads();
    uint2 v = room[lane % (T / 32)];
    all = __ballot_sync(0xffffffffu, v.x == lanes_most(v.x));
    return (int)__shfl_sync(0xffffffffu, v.y, __ffs((int)all) - 1);
}

/* The expert in this thread's record, of those that may be used; -1: none. *is_lent: it may be used. */
static __device__ __forceinline__ int32_t pool_held(const pool_dir &d, bool *is_lent) {
    int tid = (int)threadIdx.x;
    *is_lent = tid < d.n_spare && !(d.spare[tid].parts & ~__ldcg(&d.head->lent));
    return *is_lent ? __ldcg(d.held + tid) - 1 : -1;
}

/* Finds missing experts in records. of: [T], by expert: 1 + its record; 0: none, or the expert is not missing. at: [T],
 * the records that may be overwritten, in turn. Returns their number. */
template <int T>
static __device__ __forceinline__ int pool_records(const pool_dir &d, const bool *wanted,
                                                   const int32_t *slot_of, int32_t *of, int32_t *at,
                                                   int32_t (&room)[2][T / 32]) {
    int tid = (int)threadIdx.x, next = __ldcg(&d.head->next_spare), n, n_before;
    bool is_lent;
    int32_t x = pool_held(d, &is_lent);
    bool is_found = x >= 0 && wanted[x] && !slot_of[x], is_free = is_lent && !is_found;
    of[tid] = 0;
    __syncthreads();
    if (is_found) of[x] = tid + 1;
    int rank = pool_rank<T>(is_free, room[0], &n);
    pool_rank<T>(is_free && tid < next, room[1], &n_before);
    if (is_free) at[rank >= n_before ? rank - n_before : rank - n_before + n] = tid;
    __syncthreads();
    return n;
}

/* One block. Lists the experts of a long batch: each is copied to its own place, from its slot or record if it has one. */
__global__ void __launch_bounds__(POOL_THREADS)
    list_experts_kernel(const int32_t *ids, int32_t n_pair, pool_dir d) {
    __shared__ int32_t used[MAX_EXPERTS], of[MAX_EXPERTS], room[2][POOL_THREADS / 32];
    int tid = (int)threadIdx.x, n_all, n_miss;
    bool is_lent;
    pdl_trigger();
    pdl_wait();
    int32_t x = pool_held(d, &is_lent);
    used[tid] = of[tid] = 0;
    __syncthreads();
    if (x >= 0) of[x] = tid + 1;
    for (int p = tid; p < n_pair; p += POOL_THREADS)
        if (ids[p] >= 0) atomicAdd(&used[ids[p]], 1);
    __syncthreads();
    bool is_used = used[tid] != 0;
    int32_t slot = is_used ? d.slot[tid] : 0;
    int at = pool_rank<POOL_THREADS>(is_used, room[0], &n_all);
    if (is_used) d.list[at] = pool_copy{slot ? ~(slot - 1) : tid, tid, slot ? -1 : of[tid] - 1, -1};
    if (is_used) d.uses[tid] = d.shown_uses[tid] = d.uses[tid] + (uint32_t)used[tid];
    pool_rank<POOL_THREADS>(is_used && !slot && !of[tid], room[1], &n_miss);
    if (tid) return;
    d.head->n_list = n_all;
    pool_count(d, d.head->counts, n_all - n_miss, n_miss);
}

/* ---- copies ---- */

struct copy_job {
    const uint8_t *host[MAX_SEGMENTS], *slots[MAX_SEGMENTS]; /* expert 0, slot 0 */
    uint8_t *to[MAX_SEGMENTS];                               /* copy 0 */
    uint32_t bytes[MAX_SEGMENTS];                            /* of one expert */
    uint32_t at[MAX_SEGMENTS];                               /* offset in a record */
    int32_t first[MAX_SEGMENTS +
                  1]; /* index of a segment's first chunk; at the end: chunks per expert */
    int32_t n_segment;
};

/* A block of T threads copies a chunk of an expert. What it replaces is saved by the same thread, also if both are in
 * one record. Slots and records are read past the L1 cache. */
template <int T, bool LENDS>
static __device__ __forceinline__ void copy_chunk(const copy_job &j, const pool_dir &d,
                                                  pool_copy one, int chunk) {
    enum { EACH = COPY_BYTES / 16 / T }; /* groups of 16 bytes per thread */
    int s = 0;
    while (chunk >= j.first[s + 1]) s++;
    uint32_t bytes = j.bytes[s], at = (uint32_t)(chunk - j.first[s]) * COPY_BYTES;
    const uint8_t *from = one.from < 0 ? j.slots[s] + (uint64_t)~one.from * bytes
                                       : j.host[s] + (uint64_t)one.from * bytes;
    uint8_t *to = j.to[s] + (uint64_t)one.to * bytes;
    uint8_t *save = one.save < 0 ? NULL : (uint8_t *)d.spare[one.save].at + j.at[s];
    uint32_t end = min(at + COPY_BYTES, bytes);
    if (one.have >= 0) from = (const uint8_t *)d.spare[one.have].at + j.at[s];
    if (bytes % 16) { /* small models only */
        for (uint32_t i = at + threadIdx.x; i < end; i += T) {
            uint8_t in = __ldcg(from + i);
            if (save) save[i] = __ldcg(to + i);
            to[i] = in;
        }
        return;
    }
    uint4 v[EACH];
    at += 16 * threadIdx.x;
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (at + i * 16 * T < end) {
            const uint4 *p = (const uint4 *)(from + at + i * 16 * T);
            v[i] = LENDS ? __ldcg(p) : *p;
        }
#pragma unroll
    for (int i = 0; save && i < EACH; i++)
        if (at + i * 16 * T < end)
            *(uint4 *)(save + at + i * 16 * T) = __ldcg((const uint4 *)(to + at + i * 16 * T));
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (at + i * 16 * T < end) *(uint4 *)(to + at + i * 16 * T) = v[i];
}

/* Adds the time of copies, as one block sees it. All threads of that block. */
static __device__ __forceinline__ void copies_end(const pool_dir &d, uint64_t start) {
    __syncthreads();
    if (threadIdx.x) return;
    d.head->counts.copy_ns += peer_clock_ns() - start;
    d.shown->copy_ns = d.head->counts.copy_ns;
}

/* Copies what the directory's list names. A block takes every gridDim.x-th chunk. */
__global__ void __launch_bounds__(COPY_THREADS)
    copy_experts_kernel(const __grid_constant__ copy_job j, pool_dir d) {
    pdl_wait();
    pdl_trigger(); /* not earlier: a kernel must not start, and cache a slot, before the last reader has ended */
    uint64_t start = peer_clock_ns();
    int per = j.first[j.n_segment], n = d.head->n_list * per;
#pragma unroll 1
    for (int b = (int)blockIdx.x; b < n; b += (int)gridDim.x)
        copy_chunk<COPY_THREADS, true>(j, d, d.list[b / per], b % per);
    if (blockIdx.x + 1 == gridDim.x) copies_end(d, start);
}

/* ---- a step ---- */

/* Before the last block writes the directory: waits until all other blocks have read it. */
static __device__ __forceinline__ void pool_await(const pool_dir &d, bool is_last) {
    if (threadIdx.x == 0 && !is_last) atomic_ticket(&d.head->n_arrived);
    if (!is_last) return;
    if (threadIdx.x == 0) {
        while (peer_acquire(&d.head->n_arrived) + 1 < gridDim.x) {} /* they wait for nothing */
        d.head->n_arrived = 0;
    }
    __syncthreads();
}

/* Chooses the experts of n_tok tokens (if c has logits, at most CHOOSE_FEW; otherwise ids are given), assigns a slot to
 * each, and copies those that are missing. slots: ids with each expert replaced by its slot; may be NULL. The directory
 * is read past the L1 cache, which may have a line of an earlier kernel. LENDS: records hold experts too. With their
 * code alone, a step of the 35B model took 3 % longer. */
template <int T, bool LENDS>
__global__ void __launch_bounds__(T, 2)
    pool_step_kernel(choice_job c, int32_t n_tok, int32_t *ids, float *weights, int32_t *slots,
                     pool_dir d, int32_t is_counted, const __grid_constant__ copy_job j) {
    __shared__ int32_t chosen[STEP_TOKS * MAX_USED], missing[T], slot_of[T], room[2][T / 32];
    __shared__ int32_t record_of[LENDS ? T : 1], records[LENDS ? T : 1];
    __shared__ pool_pair by_record[LENDS ? T : 1]; /* have, save */
    __shared__ uint2 largest[2][T / 32];
    __shared__ pool_pair list[T]; /* from, to */
    __shared__ bool wanted[T];
    int tid = (int)threadIdx.x, lane = tid % 32, warp = tid / 32, n_pair = n_tok * c.n_used;
    bool is_last = blockIdx.x + 1 == gridDim.x, is_expert = tid < d.n_expert;
    struct moe_counts counts = {};
    uint32_t last = 0, all_uses = 0;
    float count = 0;
    pdl_wait();
    pdl_trigger(); /* not earlier: a kernel must not start, and cache a slot, before the last reader has ended */
    uint32_t clock = __ldcg(&d.head->clock);
    slot_of[tid] = is_expert ? __ldcg(d.slot + tid) : 0;
    if (is_last && is_expert) {
        last = __ldcg(d.last + tid), count = __ldcg(d.count + tid);
        all_uses = __ldcg(d.uses + tid);
    }
    if (is_last && tid == 0) counts = d.head->counts;
    if (c.logits) {
#pragma unroll 1
        for (int t = warp; t < n_tok; t += T / 32) {
            int32_t id = warp_keep(c, t, warp_choose<CHOOSE_FEW / 32>(c, t));
            float weight = is_last ? warp_weight(c, t, id) : 0.0f;
            if (lane >= c.n_used) continue;
            chosen[t * c.n_used + lane] = id;
            if (is_last) ids[t * c.n_used + lane] = id, weights[t * c.n_used + lane] = weight;
        }
    } else {
        for (int p = tid; p < n_pair; p += T) chosen[p] = ids[p];
    }
    __syncthreads();
    int uses = 0;
    uint32_t used_at = 0;
    for (int p = 0, t = 0, k = 0; p < n_pair; p++) {
        if (chosen[p] == tid) uses++, used_at = clock + (uint32_t)t;
        if (++k == c.n_used) k = 0, t++;
    }
    bool is_wanted = is_expert && uses > 0, is_missing = is_wanted && slot_of[tid] == 0;
    wanted[tid] = is_wanted;
    int n_miss, n_all, at = pool_rank<T>(is_missing, room[0], &n_miss);
    if (is_missing) missing[at] = tid;
    pool_rank<T>(is_wanted, room[1], &n_all); /* its barrier: missing and wanted are stored */
    if (!n_miss && !is_last) return;
    int32_t taken = -1, record = -1, stored = 0; /* stored: for d.held[record] */
    int n_found = 0, n_saved = 0;
    if (n_miss) {
        int n_free = 0;
        if constexpr (LENDS) n_free = pool_records<T>(d, wanted, slot_of, record_of, records, room);
        uint32_t rank = 0; /* the slot of the greatest is evicted; 0: must stay */
        int32_t x = tid < d.n_slot ? __ldcg(d.expert + tid) - 1 : -1;
        if (tid < d.n_slot && x < 0) rank = 0xffffffffu;
        else if (x >= 0 && !wanted[x]) {
            uint32_t age = clock + (uint32_t)n_tok - __ldcg(d.last + x);
            uint32_t u = (uint32_t)__float_as_int(pool_score(__ldcg(d.count + x), age) + 0.0f);
            rank = ~(u ^ ((uint32_t)((int32_t)u >> 31) | 0x80000000u));
        }
#pragma unroll 1
        for (int m = 0; m < n_miss; m++) {
            int have = -1, save = -1;
            if constexpr (LENDS) {
                have = record_of[missing[m]] - 1;
                save = have >= 0 ? have : n_saved < n_free ? records[n_saved] : -1;
                n_found += have >= 0;
                n_saved += have < 0 && save >= 0;
            }
            if (pool_largest<T>(rank, largest[m % 2]) != tid) continue;
            if (x >= 0) slot_of[x] = 0;
            taken = missing[m];
            slot_of[taken] = tid + 1;
            record = x >= 0 || have >= 0 ? save : -1, stored = x + 1;
            list[m] = pool_pair{taken, tid};
            if constexpr (LENDS) by_record[m] = pool_pair{have, x >= 0 ? save : -1};
            rank = 0;
        }
        __syncthreads();
        pool_await(d, is_last);
    }
    if (is_last) {
        if (is_wanted) {
            float decay = exp2f((float)(clock - last) * (-1.0f / COUNT_HALF));
            d.count[tid] = (float)uses + count * decay;
            d.last[tid] = used_at;
            if (is_counted) d.uses[tid] = d.shown_uses[tid] = all_uses + (uint32_t)uses;
        }
        if (taken >= 0) d.expert[tid] = taken + 1;
        if constexpr (LENDS) {
            if (record >= 0) d.held[record] = stored;
            if (tid == 0 && n_saved) d.head->next_spare = records[n_saved - 1] + 1;
        }
        if (n_miss && is_expert) d.slot[tid] = slot_of[tid];
        for (int p = tid; slots && p < n_pair; p += T)
            slots[p] = chosen[p] < 0 ? chosen[p] : slot_of[chosen[p]] - 1;
        if (tid == 0) d.head->clock = clock + (uint32_t)n_tok;
        int n_read = n_miss - n_found; /* from host memory */
        if (tid == 0 && is_counted) pool_count(d, counts, n_all - n_read, n_read);
    }
    int per = j.first[j.n_segment];
    uint64_t start = n_miss ? peer_clock_ns() : 0;
#pragma unroll 1
    for (int b = (int)blockIdx.x; b < n_miss * per; b += (int)gridDim.x) {
        pool_pair pair = list[b / per], by = {-1, -1};
        if constexpr (LENDS) by = by_record[b / per];
        copy_chunk<T, LENDS>(j, d, pool_copy{pair.a, pair.b, by.a, by.b}, b % per);
    }
    if (n_miss && is_last && is_counted) copies_end(d, start);
}

/* Empties the records that are not all in `lent`. One block. */
__global__ void __launch_bounds__(POOL_THREADS) lend_pool_kernel(pool_dir d, uint32_t lent) {
    int tid = (int)threadIdx.x;
    pdl_wait();
    pdl_trigger();
    if (tid < d.n_spare && d.spare[tid].parts & ~lent) d.held[tid] = 0;
    if (tid == 0) d.head->lent = lent;
}

/* ---- recording ---- */

static size_t pool_align(size_t n) { return (n + 15) & ~(size_t)15; }

size_t cuda_pool_bytes(int32_t n_expert, int32_t n_slot) {
    size_t n = (size_t)n_expert;
    return pool_align(sizeof(pool_head)) + 5 * pool_align(4 * n) + pool_align(4 * (size_t)n_slot) +
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
    d.held = (int32_t *)at, at += pool_align(4 * n);
    d.list = (pool_copy *)at;
    d.n_expert = (int32_t)n, d.n_slot = p->n_slot, d.record = record;
    d.spare = p->spare, d.n_spare = p->n_spare;
    d.shown = p->counts, d.shown_uses = p->uses;
    return d;
}

/* The copies from host memory and from the slots to `to`, stacks of gate, up and down. */
static copy_job copy_job_of(const struct moe_args *a, const struct weight *to, uint64_t *record) {
    const struct weight *host[3] = {a->gate, a->up, a->down};
    copy_job j = {};
    uint32_t at = 0;
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
            j.at[s] = at;
            at += (bytes + 15) & ~15u;
            j.first[s + 1] = j.first[s] + (int32_t)((bytes + COPY_BYTES - 1) / COPY_BYTES);
            *record += bytes;
            j.n_segment++;
        }
    }
    return j;
}

static void copy_listed(struct cuda *c, const copy_job &j, const pool_dir &d) {
    launch(c, copy_experts_kernel, dim3((unsigned)(COPY_BLOCKS * c->n_sm)), dim3(COPY_THREADS), 0,
           j, d);
}

static void step(struct cuda *c, const choice_job &choice, int32_t n_tok, int32_t *ids,
                 float *weights, int32_t *slots, const pool_dir &d, bool is_counted,
                 const copy_job &j) {
    bool is_few = d.n_expert <= POOL_FEW;
    dim3 grid((unsigned)(c->n_sm < POOL_BLOCKS ? c->n_sm : POOL_BLOCKS));
    auto few = d.n_spare ? pool_step_kernel<POOL_FEW, true> : pool_step_kernel<POOL_FEW, false>;
    auto many =
        d.n_spare ? pool_step_kernel<POOL_THREADS, true> : pool_step_kernel<POOL_THREADS, false>;
    launch(c, is_few ? few : many, grid, dim3(is_few ? POOL_FEW : POOL_THREADS), 0, choice, n_tok,
           ids, weights, slots, d, (int32_t)is_counted, j);
}

void cuda_pool_step(struct cuda *c, const struct moe_args *a, int32_t n_tok,
                    const choice_job &choice, int32_t *ids, float *weights, int32_t *slots) {
    uint64_t record;
    copy_job j = copy_job_of(a, a->pool->slot, &record);
    pool_dir d = pool_dir_of(a, record);
    step(c, choice, n_tok, ids, weights, slots, d, true, j);
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
        step(c, given, n, ids + (first < 0 ? 0 : first) * a->n_used, NULL, NULL, d, false,
             to_slots);
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
    step(c, given, a->n_tok, (int32_t *)a->chosen, NULL, NULL, dir, false, j);
}

void cuda_pool_lend(struct dev *d, const struct moe_args *a, uint32_t lent) {
    struct cuda *c = (struct cuda *)d;
    uint64_t record;
    if (!cuda_begin(c)) return;
    copy_job_of(a, a->pool->slot, &record);
    launch(c, lend_pool_kernel, dim3(1), dim3(POOL_THREADS), 0, pool_dir_of(a, record), lent);
}

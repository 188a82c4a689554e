/* cuda.cu: the device: memory, the list of launches, CUDA graphs, the staging buffer, the op table. */
#include <stdint.h>
#include <utility>

#include "kernels/cuda/card.h"
#include "kernels/cuda/cuda_impl.cuh"

extern "C" {
#include "base/hash.h"
#include "base/mem.h"
#include "format/quant.h"
#include "format/quant_codebook.h"
#include "format/quant_ik.h"
}

/* ---- failures ---- */

void cuda_fail_with(struct cuda *c, int code, const char *what) {
    if (!c->err.code) err_set(&c->err, code, "gpu: %s", what);
}

void cuda_fail(struct cuda *c, cudaError_t rc, const char *what) {
    if (rc == cudaSuccess || c->err.code) return;
    err_set(&c->err, rc == cudaErrorMemoryAllocation ? CHIMERE_ENOMEM : CHIMERE_EDEVICE,
            "gpu: %s: %s", what, cudaGetErrorString(rc));
    cudaGetLastError(); /* clears an error that is not sticky in the driver */
}

/* ---- memory ---- */

/* Ensures space to record one more allocation. */
static bool piece_room(struct cuda *c) {
    if (c->n_piece < c->cap_piece) return true;
    uint32_t cap = c->cap_piece ? 2 * c->cap_piece : 256;
    void *grown = mem_realloc(c->pieces, cap * sizeof *c->pieces);
    if (!grown) return false;
    c->pieces = (cuda::piece *)grown;
    c->cap_piece = cap;
    return true;
}

static void *dev_alloc(struct dev *d, size_t n) {
    struct cuda *c = (struct cuda *)d;
    void *p = NULL;
    if (!n) n = 256;
    if (c->err.code) return NULL;
    if (c->params.vram_bytes && c->used_bytes + n > c->params.vram_bytes) return NULL;
    if (!piece_room(c)) return NULL;
    cuda_use(c);
    cudaError_t rc = cudaMalloc(&p, n);
    if (rc != cudaSuccess) {
        cudaGetLastError();
        return NULL;
    }
    c->pieces[c->n_piece++] = {p, n};
    c->used_bytes += n;
    cuda_send(c);
    c->busy = true;
    cuda_fail(c, cudaMemsetAsync(p, 0, n, c->stream), "clearing memory");
    return p;
}

static void dev_free(struct dev *d, void *p) {
    struct cuda *c = (struct cuda *)d;
    if (!p) return;
    cuda_use(c);
    cuda_send(c);
    memset(c->shadows, 0, sizeof c->shadows); /* the address may be allocated again */
    cudaStreamSynchronize(c->stream);
    cudaFree(p);
    for (uint32_t i = c->n_piece; i-- > 0;) {
        if (c->pieces[i].p != p) continue;
        c->used_bytes -= c->pieces[i].n;
        c->pieces[i] = c->pieces[--c->n_piece];
        break;
    }
}

static void dev_upload(struct dev *d, void *dst, const void *src, size_t n) {
    struct cuda *c = (struct cuda *)d;
    if (c->err.code || !n) return;
    cuda_use(c);
    cuda_wrote(c, dst, n);
    cuda_send(c);
    cuda_fail(c, cudaMemcpyAsync(dst, src, n, cudaMemcpyHostToDevice, c->stream), "upload");
    cuda_fail(c, cudaStreamSynchronize(c->stream), "upload");
}

/* Everything sent has finished: the staging buffer restarts at its beginning, so that addresses, and so
 * lists, repeat from step to step. */
static void settled(struct cuda *c) {
    c->busy = false;
    c->stage_used = c->stage_sent = 0;
    c->last_spans = NULL;
}

/* The same at the end of a step: its copies in 8 bits are not read again, and the next step's have the same addresses. */
static void step_ended(struct cuda *c) {
    settled(c);
    c->n_shadow = 0;
    memset(c->shadows, 0, sizeof c->shadows);
}

/* Sends the list and waits. If nothing was sent since the last wait, this costs nothing. */
static void settle(struct cuda *c, const char *what) {
    cuda_send(c);
    if (c->busy) cuda_fail(c, cudaStreamSynchronize(c->stream), what);
    settled(c);
}

static void dev_download(struct dev *d, void *dst, const void *src, size_t n) {
    struct cuda *c = (struct cuda *)d;
    cuda_use(c);
    cuda_send(c);
    if (c->err.code || !n) return;
    c->busy = true;
    cuda_fail(c, cudaMemcpyAsync(dst, src, n, cudaMemcpyDeviceToHost, c->stream), "download");
    settle(c, "download");
}

static void spin_pause(void) {
#if defined(__x86_64__)
    __asm__ volatile("pause");
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Polls the words in memory; queries the stream only now and then, for failures, because
 * that takes the driver's lock. */
void cuda_wait_done(struct cuda *c, const uint32_t *done, int32_t n) {
    enum { SPINS = 4096 }; /* about 0.1 ms */
    if (c->err.code) return;
    for (int32_t i = 0; i < n; i++) {
        for (uint32_t k = 1; !__atomic_load_n(&done[i], __ATOMIC_ACQUIRE); k++) {
            spin_pause();
            if (k % SPINS) continue;
            cudaError_t rc = cudaStreamQuery(c->stream);
            if (rc == cudaErrorNotReady) continue;
            if (rc == cudaSuccess && __atomic_load_n(&done[i], __ATOMIC_ACQUIRE)) break;
            cuda_fail(c, rc, "running");
            cuda_fail_with(c, CHIMERE_EDEVICE, "running: a result is missing");
            return;
        }
    }
    step_ended(c);
}

/* For a few rows: copied by a kernel, which costs less than a copy engine. */
static void dev_download_async(struct dev *d, void *dst, const void *src, size_t n) {
    struct cuda *c = (struct cuda *)d;
    cuda_use(c);
    c->op = OP_copy;
    cuda_copy(d, dst, src, n);
    c->op = OP_other;
    cuda_send(c);
    cuda_fail(c, cudaEventRecord(c->fetched, c->stream), "event");
}

static void dev_download_wait(struct dev *d) {
    struct cuda *c = (struct cuda *)d;
    cuda_fail(c, cudaEventSynchronize(c->fetched), "download");
}

void *cuda_host_alloc(size_t n) {
    void *p = NULL;
    if (cudaMallocHost(&p, n ? n : 1) != cudaSuccess) return NULL;
    memset(p, 0, n);
    return p;
}

void cuda_host_free(void *p) {
    if (p) cudaFreeHost(p);
}

static void *dev_host_alloc(struct dev *d, size_t n) {
    cuda_use((const struct cuda *)d);
    return cuda_host_alloc(n);
}
static void dev_host_free(struct dev *d, void *p) {
    (void)d;
    cuda_host_free(p);
}

/* ---- the list ---- */

enum {
    STAGE_THREADS = 64,
    STAGE_LEAST = STAGE_THREADS * 16,
    STAGE_MOST = 32 << 10, /* larger amounts are copied by a copy engine */
};

/* The first kernel of a list copies what the host staged, from host memory. It is part of the CUDA graph; a copy by a
 * copy engine before the graph cost 3 to 5 us. Later kernels read spans and pages before their pdl_wait. So none may
 * start before all blocks of this kernel have ended and their writes are in the L2 cache: no pdl_trigger. */
__global__ void __launch_bounds__(STAGE_THREADS) stage_kernel(uint4 *dst, const uint4 *src) {
    pdl_wait();
    uint32_t i = blockIdx.x * STAGE_THREADS + threadIdx.x;
    dst[i] = src[i];
    __threadfence();
}

/* Records the staging kernel as the first launch; how much it copies is set when the list is sent. */
static void list_begin(struct cuda *c) {
    enum cuda_op op = c->op;
    c->list.has_first = true;
    c->op = OP_other;
    launch(c, stage_kernel, dim3(1), dim3(STAGE_THREADS), 0, (uint4 *)(c->stage + c->stage_sent),
           (const uint4 *)(c->stage_host + c->stage_sent));
    c->op = op;
}

/* A multiprocessor changes the split between shared memory and L1 cache only when it is idle. If consecutive kernels
 * want different splits, no block of the next kernel can start before all blocks of this one have ended. So all kernels
 * of a step ask for the same split: with one token 132 KB, so that a block of page_kernel fits beside others; with
 * several tokens, a measured value. The best split is known only for chips with 228 KB. */
void cuda_batch_begin(struct cuda *c, int32_t n_tok) {
    bool known = c->compute / 10 == 9 || c->compute / 10 == 10;
    c->carve = CARVE_ANY;
    if (known && n_tok <= BATCH_TOKS) c->carve = n_tok == 1 ? 57 : 72;
}

struct launch *cuda_launch_new(struct cuda *c, size_t n_bytes) {
    struct list *l = &c->list;
    n_bytes = (n_bytes + 15) & ~(size_t)15;
    if (l->n_launch == CUDA_MAX_LAUNCHES || l->n_args_bytes + n_bytes > l->cap_args) cuda_send(c);
    if (c->err.code) return NULL;
    if (!l->has_first) list_begin(c);
    struct launch *a = &l->launches[l->n_launch++];
    memset((void *)a, 0, sizeof *a); /* padding bytes are hashed too */
    a->op = (uint16_t)c->op;
    a->carve = c->carve;
    a->bytes = c->reads;
    c->reads = 0;
    a->args_at = l->n_args_bytes;
    memset(l->args + l->n_args_bytes, 0, n_bytes);
    l->n_args_bytes += (uint32_t)n_bytes;
    return a;
}

/* The first kernel of a list waits until all earlier kernels have ended. So a kernel may read data before its
 * pdl_wait if no kernel of its own list writes that data. */
void cuda_launch_one(struct cuda *c, const struct launch *l, bool depends) {
    void *args[CUDA_MAX_ARGS];
    for (int i = 0; i < l->n_arg; i++) args[i] = c->list.args + l->args_at + l->arg_at[i];
#ifdef CHIMERE_EMULATE
    (void)depends;
    cuda_fail(
        c,
        emulate_launch(l->invoke, l->kernel, l->grid, l->block, l->shared_bytes, args, c->stream),
        "launch");
#else
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute;
    config.gridDim = l->grid;
    config.blockDim = l->block;
    config.dynamicSmemBytes = l->shared_bytes;
    config.stream = c->stream;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = c->dependent && depends ? 1 : 0;
    if (l->shared_bytes > 24 << 10) /* static shared memory is added to this */
        cuda_fail(c,
                  cudaFuncSetAttribute(l->kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       (int)l->shared_bytes),
                  "shared memory");
    cuda_fail(
        c,
        cudaFuncSetAttribute(l->kernel, cudaFuncAttributePreferredSharedMemoryCarveout, l->carve),
        "share of shared memory");
    cuda_fail(c, cudaLaunchKernelExC(&config, l->kernel, args), "launch");
#endif
}

static void launch_all(struct cuda *c) {
    const struct list *l = &c->list;
    for (uint32_t i = l->from; i < l->n_launch; i++)
        cuda_launch_one(c, &l->launches[i], i > l->from);
}

static bool was_seen(struct cuda *c, uint64_t key) {
    for (uint32_t i = 0; i < 128; i++)
        if (c->seen[i] == key) return true;
    c->seen[c->n_seen++ % 128] = key;
    return false;
}

#ifndef CHIMERE_EMULATE
/* The CUDA graph of the list: an existing one or a new one. NULL: launch one by one. */
static struct graph *graph_of(struct cuda *c, uint64_t key) {
    struct graph *oldest = &c->graphs[0];
    for (int i = 0; i < CUDA_MAX_GRAPHS; i++) {
        struct graph *g = &c->graphs[i];
        if (g->exec && g->key == key && g->n_launch == c->list.n_launch) return g;
        if (g->used < oldest->used) oldest = g;
    }
    if (!was_seen(c, key)) return NULL;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    if (cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal) != cudaSuccess) {
        cudaGetLastError();
        return NULL;
    }
    launch_all(c);
    cudaError_t rc = cudaStreamEndCapture(c->stream, &graph);
    if (rc == cudaSuccess) rc = cudaGraphInstantiate(&exec, graph, 0);
    if (graph) cudaGraphDestroy(graph);
    cuda_fail(c, rc, "recording a graph");
    if (rc != cudaSuccess) return NULL;
    if (oldest->exec) cudaGraphExecDestroy(oldest->exec);
    *oldest = (struct graph){exec, key, 0, c->list.n_launch};
    return oldest;
}
#endif

/* What was staged since the last list is copied with this one. The staging kernel copies a power of two of bytes, so
 * that lists repeat; the excess bytes are unused space in both buffers. */
static void send_staged(struct cuda *c) {
    size_t n = c->stage_used - c->stage_sent, rounded = STAGE_LEAST;
    while (rounded < n) rounded *= 2;
    c->list.from = n && n <= STAGE_MOST ? 0 : 1;
    c->list.launches[0].grid.x = (unsigned)(rounded / STAGE_LEAST);
    if (n > STAGE_MOST)
        cuda_fail(c,
                  cudaMemcpyAsync(c->stage + c->stage_sent, c->stage_host + c->stage_sent, n,
                                  cudaMemcpyHostToDevice, c->stream),
                  "staging");
    c->stage_sent = c->stage_used;
}

/* The host may overwrite staged data that kernels still read only after a wait: waits if the buffer is full. */
static void stage_make_room(struct cuda *c, size_t n) {
    if (c->stage_used + n > c->stage_cap) settle(c, "waiting");
}

void *cuda_stage_room(struct cuda *c, size_t n) {
    n = (n + 15) & ~(size_t)15;
    if (n > c->stage_cap)
        cuda_fail_with(c, CHIMERE_EINTERNAL, "batch larger than reserve() was told of");
    else stage_make_room(c, n);
    if (c->err.code) return NULL;
    uint8_t *p = c->stage_host + c->stage_used;
    c->stage_used += n;
    return p;
}

/* Hash of a list, 100 KB per step, in four independent chains that the processor computes in parallel. */
static uint64_t list_hash(const void *data, size_t n, uint64_t seed) {
    const uint8_t *p = (const uint8_t *)data;
    uint64_t h[4] = {seed, seed + 1, seed + 2, seed + 3};
    for (; n >= 32; p += 32, n -= 32)
        for (int i = 0; i < 4; i++) {
            uint64_t w;
            memcpy(&w, p + 8 * i, 8);
            h[i] = (h[i] ^ w) * 0x9e3779b97f4a7c15ULL;
            h[i] ^= h[i] >> 29;
        }
    uint64_t end = hash_bytes(p, n, seed);
    return hash_bytes(h, sizeof h, end);
}

void cuda_send(struct cuda *c) {
    struct list *l = &c->list;
    cuda_pending_now(c);
    if (c->err.code) l->n_launch = 0;
    if (l->n_launch) {
        cuda_use(c);
        send_staged(c);
        c->busy = true;
        bool sent = false;
        if (!c->timing && !c->params.no_graph && l->n_launch >= CUDA_GRAPH_LAUNCHES) {
            const struct launch *first = &l->launches[l->from];
            uint64_t key = list_hash(first, (l->n_launch - l->from) * sizeof *first, 1) ^
                           list_hash(l->args + first->args_at, l->n_args_bytes - first->args_at, 2);
#ifdef CHIMERE_EMULATE
            c->stats.n_graph += was_seen(c, key); /* has no graphs: counts the lists that repeat */
#else
            struct graph *g = graph_of(c, key);
            if (g) {
                cuda_fail(c, cudaGraphLaunch(g->exec, c->stream), "graph");
                g->used = ++c->clock;
                c->stats.n_graph++;
                sent = true;
            }
#endif
        }
        if (c->timing) cuda_time_list(c);
        else if (!sent) launch_all(c);
        c->stats.n_launch += l->n_launch - l->from;
        c->stats.n_list++;
    }
    l->n_launch = l->n_args_bytes = 0;
    l->has_first = false;
}

void *cuda_take(struct cuda *c, size_t n) {
    n = (n + 255) & ~(size_t)255;
    if (c->err.code) return NULL;
    if (n > c->n_scratch - c->scratch_used) {
        cuda_fail_with(c, CHIMERE_EINTERNAL, "op needs more scratch than reserve() was told of");
        return NULL;
    }
    void *p = c->scratch + c->scratch_used;
    c->scratch_used += n;
    return p;
}

void *cuda_stage(struct cuda *c, const void *data, size_t n) {
    void *host = cuda_stage_room(c, n);
    if (!host) return NULL;
    memcpy(host, data, n);
    return cuda_staged(c, host);
}

act8 cuda_shadow_new(struct cuda *c, const float *x, int32_t n_row, int64_t n) {
    act8 none = {};
    if (c->params.precise || n % 32 || n_row > BATCH_TOKS || act8_bytes(n_row, n) > c->shadow_bytes)
        return none;
    int at = -1;
    for (int i = 0; i < N_SHADOW; i++)
        if (c->shadows[i].x == x) at = i;
    if (at < 0) at = (int)(c->n_shadow++ % N_SHADOW);
    act8 a = act8_at(c->shadow_room + (size_t)at * c->shadow_bytes, n_row, n);
    c->shadows[at] = shadow{x, n, n_row, true, a};
    return a;
}

const act8 *cuda_shadow_of(struct cuda *c, const float *x, int64_t stride, int32_t n_row,
                           int64_t n) {
    for (int i = 0; i < N_SHADOW; i++) {
        const struct shadow *s = &c->shadows[i];
        if (s->is_valid && s->x == x && s->n == n && s->n_row >= n_row &&
            (stride == n || n_row == 1))
            return &s->a;
    }
    return NULL;
}

void cuda_wrote(struct cuda *c, const void *p, size_t n_bytes) {
    const uint8_t *from = (const uint8_t *)p, *to = from + n_bytes;
    for (int i = 0; i < N_SHADOW; i++) {
        struct shadow *s = &c->shadows[i];
        const uint8_t *x = (const uint8_t *)s->x;
        if (x < to && from < x + (size_t)s->n_row * (size_t)s->n * 4) s->is_valid = false;
    }
}

static uint64_t spans_hash(const struct span *s, int32_t n) {
    uint64_t h = 0;
    for (int32_t i = 0; i < n; i++) {
        h = hash_bytes(&s[i].pos, sizeof s[i].pos, h + (uint64_t)(uint32_t)s[i].row);
        int32_t more[5] = {s[i].n_tok, s[i].slot, s[i].n_replay, s[i].n_commit, i};
        h = hash_bytes(more, sizeof more, h);
        h ^= (uint64_t)(uintptr_t)s[i].pages;
    }
    return h;
}

bool cuda_spans(struct cuda *c, const struct span *spans, int32_t n_span, struct dspans *out) {
    uint64_t h = spans_hash(spans, n_span);
    if (c->last_spans == spans && c->last_hash == h) {
        *out = c->last;
        return true;
    }
    int32_t most = 1, n_tok = 0;
    for (int32_t i = 0; i < n_span; i++) {
        int64_t end = spans[i].pos + spans[i].n_tok;
        int32_t n_page = (int32_t)((end + KV_PAGE - 1) / KV_PAGE);
        most = n_page > most ? n_page : most;
        n_tok = spans[i].row + spans[i].n_tok > n_tok ? spans[i].row + spans[i].n_tok : n_tok;
    }
    int32_t cap = 1;
    while (cap < most) cap *= 2;
    size_t n_bytes = (size_t)n_span * sizeof(struct dspan) + 4 * (size_t)n_tok + 64 +
                     4 * (size_t)n_span * (size_t)cap;
    /* an op stages its own tables after its spans; both must be in the buffer together */
    stage_make_room(c, n_bytes + 16 * (size_t)n_tok + 4096);
    uint8_t *host = (uint8_t *)cuda_stage_room(c, n_bytes);
    if (!host) return false;
    const uint8_t *dev = (const uint8_t *)cuda_staged(c, host);
    memset(host, 0, n_bytes);
    size_t rows_at = (size_t)n_span * sizeof(struct dspan);
    size_t pages_at = (rows_at + 4 * (size_t)n_tok + 15) & ~(size_t)15;
    struct dspan *ds = (struct dspan *)host;
    int32_t *rows = (int32_t *)(host + rows_at), *pages = (int32_t *)(host + pages_at);
    for (int32_t i = 0; i < n_span; i++) {
        const struct span *s = &spans[i];
        ds[i] =
            (struct dspan){s->row, s->n_tok, s->slot, s->n_replay, s->n_commit, i * cap, s->pos};
        for (int32_t t = 0; t < s->n_tok; t++) rows[s->row + t] = i;
        int64_t n_page = (s->pos + s->n_tok + KV_PAGE - 1) / KV_PAGE;
        if (s->pages) memcpy(pages + (size_t)i * (size_t)cap, s->pages, (size_t)n_page * 4);
    }
    *out = (struct dspans){(const struct dspan *)dev,
                           (const int32_t *)(dev + rows_at),
                           (const int32_t *)(dev + pages_at),
                           n_span,
                           n_tok,
                           (int64_t)cap * KV_PAGE};
    c->last = *out;
    c->last_spans = spans;
    c->last_hash = h;
    return true;
}

/* ---- setup ---- */

static size_t op_bytes(const struct dev_need *need) {
    size_t parts[] = {cuda_linear_scratch(need), cuda_moe_scratch(need), cuda_attn_scratch(need),
                      cuda_recurrent_scratch(need), cuda_select_scratch(need)};
    size_t n = 1 << 16;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) n = parts[i] > n ? parts[i] : n;
    return n;
}

/* Bytes for the embeddings of a batch as floats, and for spans with page tables, padded to powers of two. */
static size_t stage_bytes(const struct dev_need *need) {
    size_t n_page = (size_t)need->n_ctx / KV_PAGE + 2;
    return (size_t)need->n_tok * ((size_t)need->n_in * 4 + 128) + 512 * 64 +
           (2 * n_page + 1024) * 8 * 4 + cuda_select_stage(need) + (1 << 20) + STAGE_MOST;
}

/* Bytes of one activation in 8 bits. */
static size_t shadow_bytes(const struct dev_need *need) {
    return (act8_bytes(BATCH_TOKS, need->n_in + 32) + 255) & ~(size_t)255;
}

static size_t dev_scratch_bytes(struct dev *d, const struct dev_need *need) {
    (void)d;
    return op_bytes(need) + stage_bytes(need) + N_SHADOW * shadow_bytes(need);
}

static uint64_t dev_free_bytes(struct dev *d) {
    struct cuda *c = (struct cuda *)d;
    size_t n_free = 0, n_total = 0;
    cuda_use(c);
    if (c->err.code || cudaMemGetInfo(&n_free, &n_total) != cudaSuccess) return 1;
    uint64_t cap = c->params.vram_bytes;
    uint64_t left = cap > c->used_bytes ? cap - c->used_bytes : 1;
    return cap && left < n_free ? left : n_free;
}

static void dev_flush(struct dev *d) { cuda_send((struct cuda *)d); }

static int dev_reserve(struct dev *d, const struct dev_need *need, struct err *e) {
    struct cuda *c = (struct cuda *)d;
    cuda_use(c);
    cuda_send(c);
    if (!need->stages) cuda_loader_free(c);
    else if (!cuda_loader_open(c)) return *e = c->err, c->err.code;
    size_t n = op_bytes(need), n_stage = stage_bytes(need), n_shadow = shadow_bytes(need);
    uint8_t *scratch = (uint8_t *)dev_alloc(d, n), *stage = (uint8_t *)dev_alloc(d, n_stage);
    uint8_t *shadow_room = (uint8_t *)dev_alloc(d, N_SHADOW * n_shadow);
    void *host = cuda_host_alloc(n_stage);
    if (!c->back) c->back = (uint8_t *)cuda_host_alloc(cuda_select_back());
    if (!scratch || !stage || !shadow_room || !host || !c->back) {
        dev_free(d, scratch);
        dev_free(d, shadow_room);
        dev_free(d, stage);
        cuda_host_free(host);
        return err_set(e, CHIMERE_ENOMEM, "gpu: no room for %zu bytes of scratch", n + n_stage);
    }
    dev_free(d, c->scratch);
    dev_free(d, c->shadow_room);
    dev_free(d, c->stage);
    cuda_host_free(c->stage_host);
    c->scratch = scratch;
    c->shadow_room = shadow_room;
    c->shadow_bytes = n_shadow;
    memset(c->shadows, 0, sizeof c->shadows);
    c->n_scratch = n;
    c->stage = stage;
    c->stage_host = (uint8_t *)host;
    c->stage_cap = n_stage - STAGE_MOST; /* the rest: excess of the staging kernel's copy */
    c->stage_used = c->stage_sent = 0;
    return 0;
}

static int dev_status(struct dev *d, struct err *e) {
    struct cuda *c = (struct cuda *)d;
    settle(c, "running");
    step_ended(c);
    if (c->err.code && e) *e = c->err;
    return c->err.code;
}

static void dev_close(struct dev *d) {
    struct cuda *c = (struct cuda *)d;
    if (!c) return;
    cuda_use(c);
    if (c->stream) cudaStreamSynchronize(c->stream);
    cuda_limit_end(c); /* destroys the graphs too */
    cuda_timing_free(c);
    cuda_loader_free(c);
    cudaFree(c->scratch);
    cudaFree(c->shadow_room);
    cudaFree(c->stage);
    cudaFree(c->table_block);
    cuda_host_free(c->stage_host);
    cuda_host_free(c->back);
    if (c->fetched) cudaEventDestroy(c->fetched);
    if (c->whole) cudaStreamDestroy(c->whole);
    mem_free(c->pieces);
    mem_free(c->list.launches);
    mem_free(c->list.args);
    mem_free(c);
}

static void dev_stats_of(const struct dev *d, struct dev_stats *s) {
    const struct cuda *c = (const struct cuda *)d;
    *s = c->stats;
    s->bytes_used = c->used_bytes;
}

/* Wraps an op so that the launches it records carry its name. */
template <enum cuda_op OP, auto F> struct named;
template <enum cuda_op OP, class... A, void (*F)(struct dev *, A...)> struct named<OP, F> {
    static void call(struct dev *d, A... args) {
        struct cuda *c = (struct cuda *)d;
        c->op = OP;
        F(d, args...);
        c->op = OP_other;
    }
};

static const struct ops cuda_ops = {
    .name = "cuda",
    .is_host = false,
    .alloc = dev_alloc,
    .free = dev_free,
    .upload = dev_upload,
    .download = dev_download,
    .download_async = dev_download_async,
    .download_wait = dev_download_wait,
    .copy = named<OP_copy, cuda_copy>::call,
    .zero = named<OP_zero, cuda_zero>::call,
    .flush = dev_flush,
    .free_bytes = dev_free_bytes,
    .scratch_bytes = dev_scratch_bytes,
    .host_alloc = dev_host_alloc,
    .host_free = dev_host_free,
    .reserve = dev_reserve,
    .status = dev_status,
    .close = dev_close,
    .read_bandwidth = cuda_read_bandwidth,
    .stats = dev_stats_of,
    .time_ops = cuda_time_ops,
    .limit = cuda_limit,
    .prepared_bytes = cuda_prepared_bytes,
    .prepare = cuda_prepare,
    .stage = cuda_stage,
    .stage_fence = cuda_stage_fence,
    .pack = cuda_pack,
    .pool_bytes = cuda_pool_bytes,
    .pool_fill = named<OP_moe, cuda_pool_fill>::call,
    .pool_lend = named<OP_moe, cuda_pool_lend>::call,
    .embed = named<OP_embed, cuda_embed>::call,
    .rms_norm = named<OP_rms_norm, cuda_rms_norm>::call,
    .layer_norm = named<OP_layer_norm, cuda_layer_norm>::call,
    .linear = named<OP_linear, cuda_linear>::call,
    .qkv_store = named<OP_qkv_store, cuda_qkv_store>::call,
    .attn = named<OP_attn, cuda_attn>::call,
    .attn_full = named<OP_attn_full, cuda_attn_full>::call,
    .gdn = named<OP_gdn, cuda_gdn>::call,
    .conv = named<OP_conv, cuda_conv>::call,
    .ssm = named<OP_ssm, cuda_ssm>::call,
    .ssd = named<OP_ssd, cuda_ssd>::call,
    .ffn = named<OP_ffn, cuda_ffn>::call,
    .moe = named<OP_moe, cuda_moe>::call,
    .act_mul = named<OP_act_mul, cuda_act_mul>::call,
    .axpby = named<OP_axpby, cuda_axpby>::call,
    .gather_rows = named<OP_gather_rows, cuda_gather_rows>::call,
    .select = named<OP_select, cuda_select>::call,
    .peer_open = cuda_peer_open,
    .peer_bytes = cuda_peer_bytes,
    .peer_sum = named<OP_peer_sum, cuda_peer_sum>::call,
    .peer_rows = named<OP_peer_rows, cuda_peer_rows>::call,
};

static bool open_tables(struct cuda *c) {
    static uint32_t iq3s_signed[16][512]; /* every call writes the same contents */
    for (uint32_t i = 0; i < 16 * 512; i++) {
        const uint8_t *point = (const uint8_t *)&quant_grid_iq3s[i % 512];
        uint32_t word = 0;
        for (int k = 0; k < 4; k++)
            word |= (uint32_t)(uint8_t)(i / 512 >> k & 1 ? -point[k] : point[k]) << 8 * k;
        iq3s_signed[i / 512][i % 512] = word;
    }
    static const struct part {
        const void *host;
        size_t n;
    } parts[] = {{quant_grid_iq3s, sizeof quant_grid_iq3s},
                 {quant_grid_iq3xxs, sizeof quant_grid_iq3xxs},
                 {quant_grid_iq2xxs, sizeof quant_grid_iq2xxs},
                 {quant_grid_iq2xs, sizeof quant_grid_iq2xs},
                 {quant_grid_iq2s, sizeof quant_grid_iq2s},
                 {iq3s_signed, sizeof iq3s_signed}};
    size_t total = 0, at[6];
    for (int i = 0; i < 6; i++) {
        at[i] = total;
        total += (parts[i].n + 255) & ~(size_t)255;
    }
    size_t counters = CUDA_N_ARRIVED * sizeof *c->arrived;
    c->table_block = (uint8_t *)dev_alloc(&c->dev, total + counters); /* zeroed */
    if (!c->table_block) return false;
    c->arrived = (uint32_t *)(c->table_block + total);
    for (int i = 0; i < 6; i++)
        dev_upload(&c->dev, c->table_block + at[i], parts[i].host, parts[i].n);
    const uint8_t *p = c->table_block;
    c->tables = (struct grid_tables){(const uint32_t *)(p + at[0]),
                                     (const uint32_t *)(p + at[1]),
                                     (const uint32_t *)(p + at[5]),
                                     (const uint2 *)(p + at[2]),
                                     (const uint2 *)(p + at[3]),
                                     (const uint2 *)(p + at[4]),
                                     {},
                                     {}};
    memcpy(c->tables.iq4, quant_values_iq4, sizeof c->tables.iq4);
    memcpy(c->tables.fp4, quant_values_mxfp4, sizeof c->tables.fp4);
    memcpy(c->tables.ik4, quant_ik_4, sizeof c->tables.ik4);
    memcpy(c->tables.ik3, quant_ik_3, sizeof c->tables.ik3);
    memcpy(c->tables.ik2, quant_ik_2, sizeof c->tables.ik2);
    return true;
}

/* The layout is chosen by memory bandwidth per multiprocessor. A data center card has 10 to 30 bytes per
 * cycle, and its kernels are limited by instructions. A consumer card has 3 to 5, and its kernels are limited
 * by bytes; it also has little memory. */
static uint32_t best_layout(const struct cuda_params *p, int n_sm) {
    enum { WIDE_BYTES = 8 }; /* bytes per cycle and multiprocessor */
    if (p->layout) return p->layout;
    int clock = 0, mem_clock = 0, bits = 0; /* kHz, kHz */
    cudaDeviceGetAttribute(&clock, cudaDevAttrClockRate, p->device);
    cudaDeviceGetAttribute(&mem_clock, cudaDevAttrMemoryClockRate, p->device);
    cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, p->device);
    double bytes = 2.0 * mem_clock * bits / 8;
    return !p->vram_bytes && bytes > (double)WIDE_BYTES * clock * n_sm ? PLANES_WIDE : PLANES;
}

int cuda_count(struct err *e) {
    int n = 0;
    cudaError_t rc = cudaGetDeviceCount(&n);
    if (rc == cudaSuccess && n > 0) return n;
    cudaGetLastError();
    int driver = 0; /* the runtime reports a driver that is missing like one that is old */
    if (rc == cudaErrorInsufficientDriver && !cudaDriverGetVersion(&driver) && driver)
        err_set(e, CHIMERE_EDEVICE,
                "gpu: NVIDIA's driver is older than this build needs: update it");
    else err_set(e, CHIMERE_EUNSUPPORTED, "gpu: no NVIDIA GPU with a working driver found");
    return 0;
}

int cuda_open(struct dev **out, const struct cuda_params *p, struct err *e) {
    *out = NULL;
    int n_device = cuda_count(e);
    if (!n_device) return e->code;
    if (p->device < 0 || p->device >= n_device)
        return err_set(e, CHIMERE_EUNSUPPORTED, "gpu: expected a number below %d, got %d", n_device,
                       p->device);
    cudaDeviceProp prop;
    cudaError_t rc = cudaSetDevice(p->device);
    if (rc == cudaSuccess) rc = cudaGetDeviceProperties(&prop, p->device);
    if (rc != cudaSuccess)
        return err_set(e, CHIMERE_EUNSUPPORTED, "gpu %d: %s", p->device, cudaGetErrorString(rc));
    if (prop.major * 10 + prop.minor < 75)
        return err_set(e, CHIMERE_EUNSUPPORTED,
                       "gpu %d: expected compute capability 7.5 or newer, got %d.%d", p->device,
                       prop.major, prop.minor);
    struct cuda *c = (struct cuda *)mem_zalloc(sizeof *c);
    if (!c) return err_set(e, CHIMERE_ENOMEM, "gpu: out of memory");
    c->dev.ops = &cuda_ops;
    c->params = *p;
    c->compute = prop.major * 10 + prop.minor;
    c->dependent = c->compute >= 90;
#if defined CHIMERE_CUDA_90A || defined CHIMERE_EMULATE
    c->has_group_mma = c->compute == 90;
#endif
    c->carve = CARVE_ANY;
    c->n_sm = c->all_sm = prop.multiProcessorCount;
    c->layout = best_layout(p, c->n_sm);
    c->stats.bytes_total = prop.totalGlobalMem;
    c->list.launches =
        (struct launch *)mem_alloc_array(CUDA_MAX_LAUNCHES, sizeof *c->list.launches);
    c->list.cap_args = CUDA_MAX_LAUNCHES * 512;
    c->list.args = (uint8_t *)mem_alloc(c->list.cap_args);
    rc = cudaStreamCreateWithFlags(&c->whole, cudaStreamNonBlocking);
    c->stream = c->whole;
    if (rc == cudaSuccess) rc = cudaEventCreateWithFlags(&c->fetched, cudaEventDisableTiming);
    bool ok = c->list.launches && c->list.args && rc == cudaSuccess && open_tables(c);
    if (!ok || c->err.code) {
        if (rc != cudaSuccess) err_set(e, CHIMERE_EDEVICE, "gpu: %s", cudaGetErrorString(rc));
        else if (c->err.code) *e = c->err;
        else err_set(e, CHIMERE_ENOMEM, "gpu: out of memory");
        dev_close(&c->dev);
        return e->code;
    }
    *out = &c->dev;
    return 0;
}

uint64_t cuda_card(const struct dev *d) {
    const struct cuda *c = (const struct cuda *)d;
    cudaDeviceProp prop;
    if (cudaGetDeviceProperties(&prop, c->params.device) != cudaSuccess) prop.name[0] = 0;
    const uint64_t form[] = {(uint64_t)c->compute, (uint64_t)c->all_sm, c->layout,
                             c->params.precise};
    return hash_bytes(prop.name, strlen(prop.name), hash_bytes(form, sizeof form, 0));
}

/* measure.cu: measures the read bandwidth of device memory and the time per op. */
#include <stdio.h>
#include <stdlib.h>
#include <utility>
#ifndef CHIMERE_EMULATE
#include <cuda.h>
#endif

#include "kernels/cuda/cuda_impl.cuh"

extern "C" {
#include "base/hash.h"
#include "base/mem.h"
}

/* ---- bandwidth ---- */

enum { READ_THREADS = 512, READ_BLOCKS = 4, READ_SWEEPS = 8 }; /* READ_BLOCKS: per multiprocessor */

/* Reads all of x, which contains zeros. The sum is used, so that the compiler cannot remove a read. */
__global__ void __launch_bounds__(READ_THREADS) read_kernel(uint4 *x, u64 n) {
    pdl_trigger();
    size_t step = (size_t)gridDim.x * blockDim.x, i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t sum = 0;
    for (; i + 3 * step < n; i += 4 * step) {
        uint4 a = __ldcs(x + i), b = __ldcs(x + i + step), c = __ldcs(x + i + 2 * step),
              d = __ldcs(x + i + 3 * step);
        sum |= a.x | a.y | a.z | a.w | b.x | b.y | b.z | b.w;
        sum |= c.x | c.y | c.z | c.w | d.x | d.y | d.z | d.w;
    }
    for (; i < n; i += step) sum |= x[i].x;
    pdl_wait();
    if (sum) x[0].x = sum;
}

/* Reads at most 1 GiB, twenty times the caches of current cards. */
double cuda_read_bandwidth(struct dev *d) {
    struct cuda *c = (struct cuda *)d;
    cuda_use(c);
#ifdef CHIMERE_EMULATE
    size_t n = 1 << 20;
#else
    size_t n = (size_t)1 << 30, least = (size_t)128 << 20;
    while (n > least && n > d->ops->free_bytes(d) / 2) n /= 2;
#endif
    uint4 *x = (uint4 *)d->ops->alloc(d, n);
    cudaEvent_t from = NULL, to = NULL;
    double best = 0;
    if (x && cudaEventCreate(&from) == cudaSuccess && cudaEventCreate(&to) == cudaSuccess) {
        for (int k = 0; k < 5; k++) {
            float ms = 0;
            cuda_send(c);
            cuda_fail(c, cudaEventRecord(from, c->stream), "event");
            for (int i = 0; i < READ_SWEEPS; i++)
                launch(c, read_kernel, dim3((unsigned)(READ_BLOCKS * c->n_sm)), dim3(READ_THREADS),
                       0, x, n / sizeof *x);
            cuda_send(c);
            cuda_fail(c, cudaEventRecord(to, c->stream), "event");
            cuda_fail(c, cudaEventSynchronize(to), "running");
            if (c->err.code || cudaEventElapsedTime(&ms, from, to) != cudaSuccess) break;
            double rate = (double)READ_SWEEPS * (double)n / (1e-3 * (double)ms);
            best = rate > best ? rate : best;
        }
    }
    if (from) cudaEventDestroy(from);
    if (to) cudaEventDestroy(to);
    d->ops->free(d, x);
    return best;
}

/* ---- fewer multiprocessors ---- */

void cuda_limit_end(struct cuda *c) {
    if (c->limit.stream) cudaStreamDestroy(c->limit.stream);
#ifndef CHIMERE_EMULATE
    void *destroy = NULL;
    cudaDriverEntryPointQueryResult found;
    if (c->limit.context &&
        cudaGetDriverEntryPointByVersion("cuGreenCtxDestroy", &destroy, 12040, cudaEnableDefault,
                                         &found) == cudaSuccess &&
        destroy)
        ((CUresult(*)(CUgreenCtx))destroy)((CUgreenCtx)c->limit.context);
    for (int i = 0; i < CUDA_MAX_GRAPHS; i++)
        if (c->graphs[i].exec) cudaGraphExecDestroy(c->graphs[i].exec);
    memset((void *)c->graphs, 0, sizeof c->graphs); /* they were recorded on that stream */
#endif
    memset(c->seen, 0, sizeof c->seen);
    c->limit = limit{};
    c->stream = c->whole;
}

#ifndef CHIMERE_EMULATE
/* The functions of the driver for green contexts, which came with version 12.4. */
struct green_calls {
    CUresult (*resource)(CUdevice, CUdevResource *, CUdevResourceType);
    CUresult (*split)(CUdevResource *, unsigned *, const CUdevResource *, CUdevResource *, unsigned,
                      unsigned);
    CUresult (*describe)(CUdevResourceDesc *, CUdevResource *, unsigned);
    CUresult (*create)(CUgreenCtx *, CUdevResourceDesc, CUdevice, unsigned);
    CUresult (*stream)(CUstream *, CUgreenCtx, unsigned, int);
};
static bool green_find(green_calls *g) {
    const struct {
        const char *name;
        void **to;
    } calls[] = {{"cuDeviceGetDevResource", (void **)&g->resource},
                 {"cuDevSmResourceSplitByCount", (void **)&g->split},
                 {"cuDevResourceGenerateDesc", (void **)&g->describe},
                 {"cuGreenCtxCreate", (void **)&g->create},
                 {"cuGreenCtxStreamCreate", (void **)&g->stream}};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        /* the version in which each of them is complete */
        int version = calls[i].to == (void **)&g->stream ? 12050 : 12040;
        cudaDriverEntryPointQueryResult found;
        *calls[i].to = NULL;
        if (cudaGetDriverEntryPointByVersion(calls[i].name, calls[i].to, (unsigned)version,
                                             cudaEnableDefault, &found) != cudaSuccess ||
            !*calls[i].to) {
            cudaGetLastError();
            return false;
        }
    }
    return true;
}

/* Makes a stream whose kernels run on n_sm multiprocessors or a few more. Returns their number, 0: not possible. */
static int green_open(struct cuda *c, int n_sm, const char **why) {
    green_calls g;
    CUdevResource all, part;
    CUdevResourceDesc desc;
    CUgreenCtx context = NULL;
    CUstream stream = NULL;
    CUdevice device = c->params.device; /* drivers number devices as the runtime does */
    unsigned n = 1;
    *why = "the driver has no green contexts";
    if (!green_find(&g)) return 0;
    *why = "the driver does not separate so many";
    if (g.resource(device, &all, CU_DEV_RESOURCE_TYPE_SM) ||
        g.split(&part, &n, &all, NULL, 0, (unsigned)n_sm) || !n || g.describe(&desc, &part, 1))
        return 0;
    *why = "the driver opens no green context";
    if (g.create(&context, desc, device, CU_GREEN_CTX_DEFAULT_STREAM)) return 0;
    c->limit.context = context;
    if (g.stream(&stream, context, CU_STREAM_NON_BLOCKING, 0)) return 0;
    c->limit.stream = stream;
    return (int)part.sm.smCount;
}
#endif

int32_t cuda_limit(struct dev *d, int32_t n_sm, struct err *e) {
    struct cuda *c = (struct cuda *)d;
    const char *why = "";
    if (d->ops->status(d, e)) return 0; /* waits */
    cuda_use(c);
    cuda_limit_end(c);
    c->n_sm = c->all_sm;
    if (!n_sm || n_sm >= c->all_sm) return c->n_sm;
#ifdef CHIMERE_EMULATE
    c->n_sm = n_sm;
#else
    c->n_sm = green_open(c, n_sm, &why);
    if (!c->n_sm) {
        cuda_limit_end(c);
        c->n_sm = c->all_sm;
        err_set(e, CHIMERE_EUNSUPPORTED, "gpu: %d of %d multiprocessors: %s", n_sm, c->all_sm, why);
        return 0;
    }
    c->stream = c->limit.stream;
#endif
    return c->n_sm;
}

/* ---- time by op or by kernel ---- */

struct timing {
    cudaEvent_t events[CUDA_MAX_LAUNCHES + 1]; /* owned, created on demand; NULL from n_event on */
    uint32_t n_event;
    enum time_by by;
    struct op_time times[DEV_MAX_TIMES];
    int32_t n_time;
};

void cuda_timing_free(struct cuda *c) {
    struct timing *t = c->timing;
    c->timing = NULL;
    for (uint32_t i = 0; t && i < t->n_event; i++) cudaEventDestroy(t->events[i]);
    mem_free(t);
}

static void record(struct cuda *c, uint32_t i) {
    struct timing *t = c->timing;
    if (i == t->n_event) {
        cudaError_t rc = cudaEventCreate(&t->events[i]);
        cuda_fail(c, rc, "event");
        if (rc != cudaSuccess) return;
        t->n_event++;
    }
    cuda_fail(c, cudaEventRecordWithFlags(t->events[i], c->stream, cudaEventRecordExternal),
              "event");
}

static const char *const op_names[N_OP] = {"other",
#define X(name) #name,
                                           CUDA_OPS(X)
#undef X
};

/* The name of a kernel, "page_kernel 9": the function's and a number for its parameters of templates. */
static void kernel_name(const struct launch *l, char *out, size_t n) {
    const char *name = op_names[l->op], *at;
    size_t len = strlen(name);
#ifndef CHIMERE_EMULATE
    const char *mangled = NULL;
    if (cudaFuncGetName(&mangled, l->kernel) == cudaSuccess && mangled) {
        /* _Z, perhaps namespaces, then the length of the name in digits, the name, the parameters */
        for (at = mangled; *at; at++) {
            size_t digits = strspn(at, "0123456789"), size = (size_t)strtoul(at, NULL, 10);
            if (!digits) continue;
            at += digits;
            if (size > strlen(at)) break;
            if (size > 7 && !memcmp(at + size - 7, "_kernel", 7)) {
                name = at, len = size;
                break;
            }
            at += size - 1;
        }
        uint64_t rest = 0;
        const char *args = name + len;
        if (name != op_names[l->op] && *args == 'I') rest = hash_bytes(args, strlen(args), 1) % 997;
        if (rest) {
            snprintf(out, n, "%.*s/%llu", (int)len, name, (unsigned long long)rest);
            return;
        }
    }
#else
    (void)at;
#endif
    snprintf(out, n, "%.*s", (int)len, name);
}

/* The row of what a launch belongs to; NULL: there is no room for another. */
static struct op_time *row_of(struct timing *t, const struct launch *l, uint64_t bytes) {
    char name[DEV_TIME_NAME];
    if (t->by == TIME_BY_KERNEL) kernel_name(l, name, sizeof name);
    else snprintf(name, sizeof name, "%s", op_names[l->op]);
    for (int32_t i = 0; i < t->n_time; i++)
        if (!strcmp(t->times[i].name, name) && (t->by == TIME_BY_OP || t->times[i].bytes == bytes))
            return &t->times[i];
    if (t->n_time == DEV_MAX_TIMES) return NULL;
    struct op_time *to = &t->times[t->n_time++];
    memcpy(to->name, name, sizeof name);
    to->bytes = t->by == TIME_BY_KERNEL ? bytes : 0;
    return to;
}

/* An event separates launches of different ops, or all. All are in one CUDA graph, so that the host's launch time is
 * not measured. Kernels between two events overlap as usual; others do not. */
void cuda_time_list(struct cuda *c) {
    const struct launch *l = c->list.launches;
    bool each = c->timing->by == TIME_BY_KERNEL;
    uint32_t from = c->list.from, n = c->list.n_launch, n_part = 0;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    cudaError_t rc = cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal);
    cuda_fail(c, rc, "recording a graph");
    if (rc != cudaSuccess) return;
    for (uint32_t i = from; i < n && !c->err.code; i++) {
        bool begins = each || i == from || l[i].op != l[i - 1].op;
        if (begins) record(c, n_part++);
        cuda_launch_one(c, &l[i], !begins);
    }
    if (!c->err.code) record(c, n_part);
    rc = cudaStreamEndCapture(c->stream, &graph);
    if (rc == cudaSuccess && !c->err.code) rc = cudaGraphInstantiate(&exec, graph, 0);
    cuda_fail(c, rc, "recording a graph");
    if (!c->err.code) cuda_fail(c, cudaGraphLaunch(exec, c->stream), "graph");
    cuda_fail(c, cudaStreamSynchronize(c->stream), "running");
    if (exec) cudaGraphExecDestroy(exec);
    if (graph) cudaGraphDestroy(graph);
    for (uint32_t i = from, part = 0; i < n && !c->err.code; i++) {
        struct op_time *t = row_of(c->timing, &l[i], l[i].bytes);
        if (t) t->n_launch++;
        if (!each && i > from && l[i].op == l[i - 1].op) continue;
        float ms = 0;
        cuda_fail(c,
                  cudaEventElapsedTime(&ms, c->timing->events[part], c->timing->events[part + 1]),
                  "event");
        if (t) t->us += 1e3 * (double)ms;
        part++;
    }
}

int32_t cuda_time_ops(struct dev *d, enum time_by by, struct op_time *out) {
    struct cuda *c = (struct cuda *)d;
    cuda_use(c);
    cuda_send(c);
    cuda_fail(c, cudaStreamSynchronize(c->stream), "running");
    if (!out) {
        if (!c->timing) c->timing = (struct timing *)mem_zalloc(sizeof *c->timing);
        if (!c->timing) cuda_fail_with(c, CHIMERE_ENOMEM, "out of memory for timing");
        else c->timing->by = by;
        return 0;
    }
    int32_t n = c->timing ? c->timing->n_time : 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t at = i;
        for (; at > 0 && out[at - 1].us < c->timing->times[i].us; at--) out[at] = out[at - 1];
        out[at] = c->timing->times[i];
    }
    cuda_timing_free(c);
    return n;
}

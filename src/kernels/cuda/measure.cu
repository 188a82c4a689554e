/* measure.cu: measures the read bandwidth of device memory and the time per op. */
#include <utility>

#include "kernels/cuda/cuda_impl.cuh"

extern "C" {
#include "base/mem.h"
}

/* ---- bandwidth ---- */

enum { READ_THREADS = 512, READ_BLOCKS = 4, READ_SWEEPS = 8 }; /* READ_BLOCKS: per multiprocessor */

/* Reads all of x, which contains zeros. The sum is used, so that the compiler cannot remove a read. */
__global__ void __launch_bounds__(READ_THREADS) read_kernel(uint4 *x, size_t n) {
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

/* ---- time by op ---- */

struct timing {
    cudaEvent_t events[CUDA_MAX_LAUNCHES + 1]; /* owned, created on demand; NULL from n_event on */
    uint32_t n_event;
    struct op_time ops[N_OP];
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

/* An event separates launches of different ops. All are in one CUDA graph, so that the host's launch time is not
 * measured. Kernels of one op overlap as usual; kernels of different ops do not. */
void cuda_time_list(struct cuda *c) {
    const struct launch *l = c->list.launches;
    uint32_t from = c->list.from, n = c->list.n_launch, n_part = 0;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    cudaError_t rc = cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal);
    cuda_fail(c, rc, "recording a graph");
    if (rc != cudaSuccess) return;
    for (uint32_t i = from; i < n && !c->err.code; i++) {
        bool begins = i == from || l[i].op != l[i - 1].op;
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
        struct op_time *t = &c->timing->ops[l[i].op];
        t->n_launch++;
        if (i > from && l[i].op == l[i - 1].op) continue;
        float ms = 0;
        cuda_fail(c,
                  cudaEventElapsedTime(&ms, c->timing->events[part], c->timing->events[part + 1]),
                  "event");
        t->us += 1e3 * (double)ms;
        part++;
    }
}

static const char *const op_names[N_OP] = {"other",
#define X(name) #name,
                                           CUDA_OPS(X)
#undef X
};
static_assert((int)N_OP <= (int)DEV_MAX_OPS, "room for every op");

int32_t cuda_time_ops(struct dev *d, struct op_time *out) {
    struct cuda *c = (struct cuda *)d;
    cuda_use(c);
    cuda_send(c);
    cuda_fail(c, cudaStreamSynchronize(c->stream), "running");
    if (!out) {
        if (!c->timing) c->timing = (struct timing *)mem_zalloc(sizeof *c->timing);
        if (!c->timing) cuda_fail_with(c, CHIMERE_ENOMEM, "out of memory for timing");
        return 0;
    }
    int32_t n = 0;
    for (int op = 0; c->timing && op < N_OP; op++) {
        struct op_time t = c->timing->ops[op];
        int32_t at = n;
        if (!t.n_launch) continue;
        t.op = op_names[op];
        for (; at > 0 && out[at - 1].us < t.us; at--) out[at] = out[at - 1];
        out[at] = t;
        n++;
    }
    cuda_timing_free(c);
    return n;
}

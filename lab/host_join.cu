/* host_join.cu: what a layer waits for one missing expert, within a captured step: if the device copies it from pinned
 * memory, and if the processor reads it instead and the device waits for the result.
 *
 *     nvcc -O3 -arch native -Xcompiler -mavx2,-pthread lab/host_join.cu -o host_join
 *     ./host_join THREADS [KB per expert, default 1376]
 *
 * A step is a graph of LAYERS layers. Each writes a row of N_EMBD floats to pinned memory and raises a flag; the
 * processor's threads, which spin, read the expert in two passes with a barrier between them (gate and up, down), and
 * answer with a row and a flag. The threads only add the bytes up: a product takes at least as long. Each layer has
 * another expert of N_EXPERT, so that no cache holds it. "half" divides the expert between device and processor. */
#include <immintrin.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    LAYERS = 40,
    N_EXPERT = 400,
    N_EMBD = 2048,
    STEPS = 60,
    BLOCKS = 64,
    LANES = 256,
    MOST = 64
};

#define CHECK(call)                                                                                \
    do {                                                                                           \
        cudaError_t rc = (call);                                                                   \
        if (rc != cudaSuccess) {                                                                   \
            printf("%s: %s\n", #call, cudaGetErrorString(rc));                                     \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static uint32_t load(uint32_t *p) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }
static void store(uint32_t *p, uint32_t v) { __atomic_store_n(p, v, __ATOMIC_SEQ_CST); }

struct flags { /* pinned */
    volatile uint32_t asked, pad[31], answered;
};

static struct {
    int n_thread;
    size_t bytes; /* of an expert that the processor reads */
    const uint8_t *experts;
    struct flags *f;
    float *row, *answer;               /* pinned [N_EMBD] */
    uint32_t begun, arrived[2], quits; /* atomic */
    uint64_t sums[MOST][8];
} h;

/* ---- the device ---- */

/* The part of an expert that the device copies, as the kernel that fills slots does. */
__global__ void __launch_bounds__(LANES) copy_kernel(uint4 *to, const uint4 *from, size_t n) {
    size_t i = blockIdx.x * (size_t)LANES + threadIdx.x, step = (size_t)gridDim.x * LANES;
    uint4 v[4];
    for (; i < n; i += 4 * step) {
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (i + k * step < n) v[k] = from[i + k * step];
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (i + k * step < n) to[i + k * step] = v[k];
    }
}

__global__ void __launch_bounds__(LANES) ask_kernel(float *row, const float *x, struct flags *f) {
    for (int i = threadIdx.x; i < N_EMBD; i += LANES) row[i] = x[i];
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0) f->asked = f->asked + 1;
}

__global__ void __launch_bounds__(LANES)
    join_kernel(float *x, const float *answer, struct flags *f) {
    if (threadIdx.x == 0)
        for (int i = 0; i < 1 << 20 && f->answered != f->asked; i++) {}
    __syncthreads();
    __threadfence_system();
    for (int i = threadIdx.x; i < N_EMBD; i += LANES) x[i] += ((const volatile float *)answer)[i];
}

/* ---- the processor ---- */

static void read_share(int ith, size_t from, size_t n) {
    const uint8_t *p = h.experts + from + n / 64 * (size_t)ith / (size_t)h.n_thread * 64,
                  *end = h.experts + from + n / 64 * (size_t)(ith + 1) / (size_t)h.n_thread * 64;
    __m256i a = _mm256_setzero_si256(), b = a;
    for (; p < end; p += 64) {
        a = _mm256_add_epi64(a, _mm256_load_si256((const __m256i *)p));
        b = _mm256_add_epi64(b, _mm256_load_si256((const __m256i *)(p + 32)));
    }
    h.sums[ith][0] += (uint64_t)_mm256_extract_epi64(_mm256_add_epi64(a, b), 0);
}

static void meet(int which, uint32_t turn) {
    __atomic_fetch_add(&h.arrived[which], 1, __ATOMIC_SEQ_CST);
    while (load(&h.arrived[which]) < turn * (uint32_t)h.n_thread) _mm_pause();
}

static void *work(void *arg) {
    int ith = (int)(intptr_t)arg;
    for (uint32_t turn = 1;; turn++) {
        if (ith == 0) {
            while (h.f->asked < turn && !load(&h.quits)) _mm_pause();
            store(&h.begun, turn);
        }
        while (load(&h.begun) < turn && !load(&h.quits)) _mm_pause();
        if (load(&h.quits)) return NULL;
        size_t at = turn % N_EXPERT * (size_t)(4 << 20), two = h.bytes / 3 * 2 / 64 * 64;
        read_share(ith, at, two);
        meet(0, turn);
        read_share(ith, at + two, h.bytes - two);
        meet(1, turn);
        if (ith) continue;
        for (int i = 0; i < N_EMBD; i++) h.answer[i] = h.row[i] * 0.5f;
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        h.f->answered = turn;
    }
}

/* ---- a step ---- */

/* Microseconds per layer. copied: bytes that the device copies of each expert; read: that the processor reads; joins: if
 * the device waits for the processor. */
static double layer_us(size_t copied, size_t read, bool joins, float *x, uint8_t *slot) {
    cudaStream_t s;
    cudaGraph_t g;
    cudaGraphExec_t run;
    cudaEvent_t from, to;
    pthread_t threads[MOST];
    *h.f = (struct flags){};
    h.bytes = read;
    store(&h.begun, 0);
    store(&h.arrived[0], 0);
    store(&h.arrived[1], 0);
    store(&h.quits, 0);
    for (int i = 0; joins && i < h.n_thread; i++)
        pthread_create(&threads[i], NULL, work, (void *)(intptr_t)i);
    CHECK(cudaStreamCreate(&s));
    CHECK(cudaEventCreate(&from));
    CHECK(cudaEventCreate(&to));
    CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    for (int il = 0; il < LAYERS; il++) {
        const uint8_t *at = h.experts + (size_t)(il * 7 % N_EXPERT) * (4 << 20) + read / 64 * 64;
        if (joins) ask_kernel<<<1, LANES, 0, s>>>(h.row, x, h.f);
        if (copied)
            copy_kernel<<<BLOCKS, LANES, 0, s>>>((uint4 *)slot, (const uint4 *)at, copied / 16);
        if (joins) join_kernel<<<1, LANES, 0, s>>>(x, h.answer, h.f);
    }
    CHECK(cudaStreamEndCapture(s, &g));
    CHECK(cudaGraphInstantiate(&run, g, 0));
    float best = 1e9f, ms = 0;
    for (int i = 0; i < STEPS; i++) {
        CHECK(cudaEventRecord(from, s));
        CHECK(cudaGraphLaunch(run, s));
        CHECK(cudaEventRecord(to, s));
        CHECK(cudaStreamSynchronize(s));
        CHECK(cudaEventElapsedTime(&ms, from, to));
        if (i > 4 && ms < best) best = ms;
    }
    store(&h.quits, 1);
    for (int i = 0; joins && i < h.n_thread; i++) pthread_join(threads[i], NULL);
    if (joins && h.f->answered != h.f->asked) printf("the processor answered too late\n");
    CHECK(cudaGraphExecDestroy(run));
    CHECK(cudaGraphDestroy(g));
    CHECK(cudaStreamDestroy(s));
    return 1e3 * best / LAYERS;
}

int main(int argc, char **argv) {
    size_t n = (size_t)(argc > 2 ? atoi(argv[2]) : 1376) << 10;
    float *x;
    uint8_t *slot;
    h.n_thread = argc > 1 ? atoi(argv[1]) : 16;
    if (h.n_thread < 1 || h.n_thread > MOST || n > 4 << 20) return 1;
    CHECK(cudaMallocHost((void **)&h.experts, (size_t)N_EXPERT * (4 << 20)));
    CHECK(cudaMallocHost((void **)&h.f, sizeof *h.f));
    CHECK(cudaMallocHost((void **)&h.row, N_EMBD * sizeof *h.row));
    CHECK(cudaMallocHost((void **)&h.answer, N_EMBD * sizeof *h.answer));
    CHECK(cudaMalloc((void **)&x, N_EMBD * sizeof *x));
    CHECK(cudaMalloc((void **)&slot, 4 << 20));
    CHECK(cudaMemset(x, 0, N_EMBD * sizeof *x));
    double copy = layer_us(n, 0, false, x, slot), join = layer_us(0, 0, true, x, slot);
    double read = layer_us(0, n, true, x, slot), half = layer_us(n / 2, n / 2, true, x, slot);
    printf("%d threads, expert of %zu KB, us per layer: device copies it %.1f; an empty join %.1f; "
           "processor reads it %.1f; half each %.1f\n",
           h.n_thread, n >> 10, copy, join, read, half);
    return 0;
}

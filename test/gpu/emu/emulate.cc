/* emulate.cc: fibres, barriers, and the tensor cores' product. */
#include "emulate.h"

#include <cuda_fp16.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <mutex>
#include <vector>

dim3 emulate_thread, emulate_block, emulate_block_dim, emulate_grid_dim;
unsigned char *emulate_shared;
int inject_fail_nth, inject_lose_nth, inject_lose_device = -1;
thread_local int emulate_device;
uint64_t emulate_n_launch;
static int asked_compute(void) {
    const char *asked = getenv("EMULATE_COMPUTE");
    return asked ? atoi(asked) : 90;
}
const int emulate_compute = asked_compute();

namespace {

enum {
    STACK = 64 << 10,
    MAX_THREADS = 1024,
};
enum wait { RUNNING, AT_BLOCK, AT_SOME, AT_WARP, DONE };

struct fibre {
    ucontext_t first;
    jmp_buf at;
    bool begun;
    wait state;
    int some; /* AT_SOME: the barrier */
    dim3 id;
    std::vector<char> stack;
};

fibre fibres[MAX_THREADS];
jmp_buf scheduler;
ucontext_t home;
int current, n_thread;
uint32_t exchanged[MAX_THREADS / 32][2][32][8];
int turn[MAX_THREADS / 32];
int some_wanted[16], some_arrived[16]; /* threads of a barrier; those that came, waiting or not */
void (*the_invoke)(const void *, void **);
const void *the_kernel;
void **the_args;

/* Bytes of shared memory that a block may have. */
size_t most_shared(void) {
    return (size_t)(emulate_compute == 90 ? 227 : emulate_compute == 75 ? 64 : 99) << 10;
}

void enter() {
    the_invoke(the_kernel, the_args);
    fibres[current].state = DONE;
    longjmp(scheduler, 1);
}

void yield(wait why) {
    fibres[current].state = why;
    if (!setjmp(fibres[current].at)) longjmp(scheduler, 1);
}

void resume(int i) {
    current = i;
    emulate_thread = fibres[i].id;
    if (setjmp(scheduler)) return;
    if (fibres[i].begun) longjmp(fibres[i].at, 1);
    fibres[i].begun = true;
    getcontext(&fibres[i].first);
    fibres[i].stack.resize(STACK);
    fibres[i].first.uc_stack.ss_sp = fibres[i].stack.data();
    fibres[i].first.uc_stack.ss_size = STACK;
    fibres[i].first.uc_link = &home;
    makecontext(&fibres[i].first, enter, 0);
    setcontext(&fibres[i].first);
}

/* Warps whose live threads all wait go on; then the block's barrier. False: all are done. */
bool release() {
    bool any = false, all_at_block = true;
    for (int w = 0; w < n_thread; w += 32) {
        bool all = true, some = false;
        int end = w + 32 < n_thread ? w + 32 : n_thread;
        for (int i = w; i < end; i++) {
            if (fibres[i].state == AT_WARP) some = true;
            else if (fibres[i].state != DONE) all = false;
        }
        if (some && !all) {
            fprintf(stderr, "emulator: threads of one warp wait at different places\n");
            abort();
        }
        for (int i = w; some && i < end; i++)
            if (fibres[i].state == AT_WARP) fibres[i].state = RUNNING, any = true;
        if (some) turn[w / 32] ^= 1;
        if (some) all_at_block = false;
    }
    if (any) return true;
    for (int i = 0; i < n_thread; i++) {
        int k = fibres[i].some;
        if (fibres[i].state != AT_SOME || some_arrived[k] != some_wanted[k]) continue;
        for (int o = i; o < n_thread; o++)
            if (fibres[o].state == AT_SOME && fibres[o].some == k) fibres[o].state = RUNNING;
        some_arrived[k] = 0;
        any = true;
    }
    if (any) return true;
    for (int i = 0; all_at_block && i < n_thread; i++)
        if (fibres[i].state == AT_BLOCK) fibres[i].state = RUNNING, any = true;
    return any;
}

void run_block() {
    memset(some_arrived, 0, sizeof some_arrived);
    for (int i = 0; i < n_thread; i++) {
        fibres[i].begun = false;
        fibres[i].state = RUNNING;
    }
    do {
        for (int i = 0; i < n_thread; i++)
            if (fibres[i].state == RUNNING) resume(i);
    } while (release());
}

} // namespace

void emulate_block_barrier(void) { yield(AT_BLOCK); }
void emulate_some_barrier(int id, int n, bool waits) {
    some_wanted[id] = n;
    some_arrived[id]++;
    fibres[current].some = id;
    if (waits) yield(AT_SOME);
}

const uint32_t (*emulate_exchange(const uint32_t mine[8]))[8] {
    int w = current / 32, half = turn[w];
    memcpy(exchanged[w][half][current % 32], mine, sizeof exchanged[w][half][0]);
    yield(AT_WARP);
    return exchanged[w][half];
}

cudaError_t emulate_launch(void (*invoke)(const void *, void **), const void *kernel, dim3 grid,
                           dim3 block, size_t shared_bytes, void **args, cudaStream_t stream) {
    static std::mutex one; /* shared memory and fibres are the process's */
    std::lock_guard<std::mutex> hold(one);
    if (stream->device != emulate_device) return cudaErrorInvalidResourceHandle;
    n_thread = (int)(block.x * block.y * block.z);
    if (n_thread > MAX_THREADS || block.y != 1 || block.z != 1 || shared_bytes > most_shared())
        abort();
    emulate_n_launch++;
    if (emulate_lost()) return cudaSuccess;
    the_invoke = invoke;
    the_kernel = kernel;
    the_args = args;
    emulate_block_dim = block;
    emulate_grid_dim = grid;
    emulate_shared = (unsigned char *)aligned_alloc(256, (shared_bytes + 511) & ~(size_t)255);
    for (int i = 0; i < n_thread; i++) fibres[i].id = dim3((unsigned)i, 0, 0);
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x++) {
                memset(emulate_shared, 0xff, shared_bytes); /* NaN where nothing was written */
                emulate_block = dim3(x, y, z);
                run_block();
            }
    free(emulate_shared);
    return cudaSuccess;
}

static float half_at(const uint32_t *words, int i) {
    return __half2float(__half{(uint16_t)(words[i / 2] >> i % 2 * 16)});
}
static float bf16_at(const uint32_t *words, int i) {
    return quant_bf16_to_f32((uint16_t)(words[i / 2] >> i % 2 * 16));
}

/* Lane 4 g + t holds a[g][2t..], a[g + 8][2t..], a[g][2t + 8..], a[g + 8][2t + 8..]; b[2t..][g],
 * b[2t + 8..][g]; d[g][2t..], d[g + 8][2t..]. */
template <float element(const uint32_t *, int)>
static void mma_16816_of(float d[4], const uint32_t a[4], const uint32_t b[2]) {
    uint32_t mine[8] = {a[0], a[1], a[2], a[3], b[0], b[1], 0, 0};
    int lane = emulate_lane, g = lane / 4, t = lane % 4;
    const uint32_t(*all)[8] = emulate_exchange(mine);
    for (int i = 0; i < 4; i++) {
        int row = g + i / 2 * 8, col = 2 * t + i % 2;
        float sum = d[i];
        for (int k = 0; k < 16; k++) {
            const uint32_t *la = all[row % 8 * 4 + k % 8 / 2], *lb = all[col * 4 + k % 8 / 2];
            sum += element(la + row / 8 + k / 8 * 2, k % 2) * element(lb + 4 + k / 8, k % 2);
        }
        d[i] = sum;
    }
}
void mma_16816(float d[4], const uint32_t a[4], const uint32_t b[2]) {
    mma_16816_of<half_at>(d, a, b);
}
void mma_16816_bf16(float d[4], const uint32_t a[4], const uint32_t b[2]) {
    mma_16816_of<bf16_at>(d, a, b);
}

/* Lane 4 g + t holds a[g][4t..], a[g + 8][4t..]; b[4t..][g]; d[g][2t..], d[g + 8][2t..]. */
void mma_16816_s8(int d[4], uint32_t a0, uint32_t a1, uint32_t b, const int c[4]) {
    uint32_t mine[8] = {a0, a1, b};
    int lane = emulate_lane, g = lane / 4, t = lane % 4;
    const uint32_t(*all)[8] = emulate_exchange(mine);
    for (int i = 0; i < 4; i++) {
        int col = 2 * t + i % 2;
        d[i] = c[i];
        for (int k = 0; k < 4; k++)
            d[i] = dot4((int)all[4 * g + k][i / 2], (int)all[4 * col + k][2], d[i]);
    }
}

/* The first 11 significant bits. */
static float first_bits(float x) {
    return __int_as_float((int)((uint32_t)__float_as_int(x) & 0xffffe000u));
}

/* Lane 4 g + t holds a[g][t], a[g + 8][t], a[g][t + 4], a[g + 8][t + 4]; b[t][g], b[t + 4][g]. */
void mma_1688(float d[4], const float a[4], const float b[2]) {
    uint32_t mine[8];
    memcpy(mine, a, 4 * sizeof *a);
    memcpy(mine + 4, b, 2 * sizeof *b);
    int lane = emulate_lane, g = lane / 4, t = lane % 4;
    const uint32_t(*all)[8] = emulate_exchange(mine);
    for (int i = 0; i < 4; i++) {
        int col = 2 * t + i % 2;
        for (int k = 0; k < 8; k++) {
            float x = __int_as_float((int)all[4 * g + k % 4][i / 2 + k / 4 * 2]);
            float y = __int_as_float((int)all[4 * col + k % 4][4 + k / 4]), high = first_bits(y);
            d[i] += first_bits(x) * (high + first_bits(y - high));
        }
    }
}

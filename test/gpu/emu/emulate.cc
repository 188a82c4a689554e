/* emulate.cc: fibres, barriers, and the tensor cores' product. */
#include "emulate.h"

#include <cuda_fp16.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <memory>
#include <mutex>
#include <vector>

constinit thread_local dim3 emulate_thread, emulate_block, emulate_block_dim, emulate_grid_dim;
constinit thread_local unsigned char *emulate_shared;
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

/* Of the thread that launches: another may launch while this one's kernel waits for it. */
struct machine {
    fibre fibres[MAX_THREADS];
    jmp_buf scheduler;
    ucontext_t home;
    int current, n_thread;
    uint32_t exchanged[MAX_THREADS / 32][2][32][8];
    int turn[MAX_THREADS / 32];
    int some_wanted[16],
        some_arrived[16]; /* threads of a barrier; those that came, waiting or not */
    void (*invoke)(const void *, void **);
    const void *kernel;
    void **args;
};
thread_local std::unique_ptr<machine> owned;
constinit thread_local machine *own;
std::mutex one; /* shared memory is the process's */

/* Bytes of shared memory that a block may have. */
size_t most_shared(void) {
    return (size_t)(emulate_compute == 90 ? 227 : emulate_compute == 75 ? 64 : 99) << 10;
}

void enter() {
    own->invoke(own->kernel, own->args);
    own->fibres[own->current].state = DONE;
    longjmp(own->scheduler, 1);
}

void yield(wait why) {
    own->fibres[own->current].state = why;
    if (!setjmp(own->fibres[own->current].at)) longjmp(own->scheduler, 1);
}

void resume(int i) {
    own->current = i;
    emulate_thread = own->fibres[i].id;
    if (setjmp(own->scheduler)) return;
    if (own->fibres[i].begun) longjmp(own->fibres[i].at, 1);
    own->fibres[i].begun = true;
    getcontext(&own->fibres[i].first);
    own->fibres[i].stack.resize(STACK);
    own->fibres[i].first.uc_stack.ss_sp = own->fibres[i].stack.data();
    own->fibres[i].first.uc_stack.ss_size = STACK;
    own->fibres[i].first.uc_link = &own->home;
    makecontext(&own->fibres[i].first, enter, 0);
    setcontext(&own->fibres[i].first);
}

/* Warps whose live threads all wait go on; then the block's barrier. False: all are done. */
bool release() {
    bool any = false, all_at_block = true;
    for (int w = 0; w < own->n_thread; w += 32) {
        bool all = true, some = false;
        int end = w + 32 < own->n_thread ? w + 32 : own->n_thread;
        for (int i = w; i < end; i++) {
            if (own->fibres[i].state == AT_WARP) some = true;
            else if (own->fibres[i].state != DONE) all = false;
        }
        if (some && !all) {
            fprintf(stderr, "emulator: threads of one warp wait at different places\n");
            abort();
        }
        for (int i = w; some && i < end; i++)
            if (own->fibres[i].state == AT_WARP) own->fibres[i].state = RUNNING, any = true;
        if (some) own->turn[w / 32] ^= 1;
        if (some) all_at_block = false;
    }
    if (any) return true;
    for (int i = 0; i < own->n_thread; i++) {
        int k = own->fibres[i].some;
        if (own->fibres[i].state != AT_SOME || own->some_arrived[k] != own->some_wanted[k])
            continue;
        for (int o = i; o < own->n_thread; o++)
            if (own->fibres[o].state == AT_SOME && own->fibres[o].some == k)
                own->fibres[o].state = RUNNING;
        own->some_arrived[k] = 0;
        any = true;
    }
    if (any) return true;
    for (int i = 0; all_at_block && i < own->n_thread; i++)
        if (own->fibres[i].state == AT_BLOCK) own->fibres[i].state = RUNNING, any = true;
    return any;
}

void run_block() {
    memset(own->some_arrived, 0, sizeof own->some_arrived);
    for (int i = 0; i < own->n_thread; i++) {
        own->fibres[i].begun = false;
        own->fibres[i].state = RUNNING;
    }
    do {
        for (int i = 0; i < own->n_thread; i++)
            if (own->fibres[i].state == RUNNING) resume(i);
    } while (release());
}

} // namespace

void emulate_block_barrier(void) { yield(AT_BLOCK); }
void emulate_some_barrier(int id, int n, bool waits) {
    own->some_wanted[id] = n;
    own->some_arrived[id]++;
    own->fibres[own->current].some = id;
    if (waits) yield(AT_SOME);
}

void emulate_pause(void) {
    const struct timespec some = {0, 20000};
    one.unlock();
    nanosleep(&some, NULL);
    one.lock();
}

const uint32_t (*emulate_exchange(const uint32_t mine[8]))[8] {
    int w = own->current / 32, half = own->turn[w];
    memcpy(own->exchanged[w][half][own->current % 32], mine, sizeof own->exchanged[w][half][0]);
    yield(AT_WARP);
    return own->exchanged[w][half];
}

cudaError_t emulate_launch(void (*invoke)(const void *, void **), const void *kernel, dim3 grid,
                           dim3 block, size_t shared_bytes, void **args, cudaStream_t stream) {
    if (!owned) owned.reset(new machine()), own = owned.get();
    std::lock_guard<std::mutex> hold(one);
    if (stream->device != emulate_device) return cudaErrorInvalidResourceHandle;
    own->n_thread = (int)(block.x * block.y * block.z);
    if (own->n_thread > MAX_THREADS || block.y != 1 || block.z != 1 || shared_bytes > most_shared())
        abort();
    emulate_n_launch++;
    if (emulate_lost()) return cudaSuccess;
    own->invoke = invoke;
    own->kernel = kernel;
    own->args = args;
    emulate_block_dim = block;
    emulate_grid_dim = grid;
    emulate_shared = (unsigned char *)aligned_alloc(256, (shared_bytes + 511) & ~(size_t)255);
    for (int i = 0; i < own->n_thread; i++) own->fibres[i].id = dim3((unsigned)i, 0, 0);
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

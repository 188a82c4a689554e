/* emulate.cc: fibres, barriers, and the tensor cores' product. */
#include "emulate.h"

#include <cuda_fp16.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifndef __x86_64__
#include <ucontext.h>
#endif

#include <memory>
#include <mutex>

constinit thread_local dim3 emulate_thread, emulate_block, emulate_block_dim, emulate_grid_dim;
constinit thread_local unsigned char *emulate_shared;
int inject_fail_nth, inject_lose_nth, inject_lose_device = -1;
thread_local int emulate_device;
uint64_t emulate_n_launch;
const char *emulate_name = "emulated";
static int asked_compute(void) {
    const char *asked = getenv("EMULATE_COMPUTE");
    return asked ? atoi(asked) : 90;
}
const int emulate_compute = asked_compute();

/* Puts the registers that a call keeps onto the stack, its end into *from, and goes on at `to`.
 * swapcontext would do, with two system calls per switch: half of the time of every test. */
#ifdef __x86_64__
typedef void *place;
extern "C" void emulate_switch(place *from, place to);
asm(R"(.text
.type emulate_switch, @function
emulate_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size emulate_switch, . - emulate_switch
)");
static void go(place *from, place *to) { emulate_switch(from, *to); }
static place begin_at(char *stack, size_t n, void (*entry)(void)) {
    void **top = (void **)(stack + n); /* aligned; below it no return address, then the entry */
    top[-1] = NULL;
    top[-2] = (void *)entry;
    return top - 8;
}
#else
typedef ucontext_t place;
static void go(place *from, place *to) { swapcontext(from, to); }
static place begin_at(char *stack, size_t n, void (*entry)(void)) {
    place p;
    getcontext(&p);
    p.uc_stack.ss_sp = stack;
    p.uc_stack.ss_size = n;
    makecontext(&p, entry, 0);
    return p;
}
#endif

namespace {

enum {
    STACK = 64 << 10,
    STRIDE =
        STACK + 7 * 64, /* not a power of two: the ends in use would share one set of the cache */
    MAX_THREADS = 1024,
};
enum wait { RUNNING, AT_BLOCK, AT_SOME };

struct fibre {
    place at;
    bool begun;
    wait state;
    int some; /* AT_SOME: the barrier */
    dim3 id;
};

/* What the lanes of a warp show each other, in turns. */
struct warp {
    uint64_t shown[2][32];
    uint32_t words[2][32][8];
    int turn;
    emulate_product *product; /* of the exchange that the lanes wait in, or NULL */
    uint32_t live, running,
        at_warp; /* lanes, a bit for each: neither running nor at_warp, another barrier */
};

/* Of the thread that launches: another may launch while this one's kernel waits for it. */
struct machine {
    fibre fibres[MAX_THREADS];
    warp warps[MAX_THREADS / 32];
    std::unique_ptr<char, decltype(&free)> stacks{
        (char *)aligned_alloc(64, (size_t)MAX_THREADS *STRIDE), &free};
    place scheduler;
    int current, n_thread;
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

void enter();

/* Goes on with lane i of the block; where this one was is kept in *from. */
void resume(place *from, int i) {
    fibre *f = own->fibres + i;
    own->current = i;
    emulate_thread = f->id;
    if (!f->begun) f->at = begin_at(own->stacks.get() + (size_t)i * STRIDE, STACK, enter);
    f->begun = true;
    go(from, &f->at);
}

/* To the next lane of the warp that runs, or to the scheduler. */
void leave(warp *all) {
    place *from = &own->fibres[own->current].at;
    if (all->running) resume(from, own->current / 32 * 32 + __builtin_ctz(all->running));
    else go(from, &own->scheduler);
}

void yield(wait why) {
    warp *all = own->warps + own->current / 32;
    own->fibres[own->current].state = why;
    all->running &= ~(1u << own->current % 32);
    leave(all);
}

void enter() {
    own->invoke(own->kernel, own->args);
    warp *all = own->warps + own->current / 32;
    all->running &= ~(1u << own->current % 32);
    all->live &= ~(1u << own->current % 32);
    leave(all);
}

/* Lets the lanes that wait for each other go on, if all do. */
void exchanged(warp *all) {
    if (all->at_warp != all->live) {
        fprintf(stderr, "emulator: threads of one warp wait at different places\n");
        abort();
    }
    if (all->product) all->product(all->words[all->turn]);
    all->product = NULL;
    all->turn ^= 1;
    all->running = all->at_warp;
    all->at_warp = 0;
}

/* Waits for the warp's live lanes. The last one to come does not leave. */
void meet(warp *all, emulate_product *product) {
    uint32_t mine = 1u << own->current % 32;
    all->running &= ~mine;
    all->at_warp |= mine;
    all->product = product;
    if (all->running) leave(all);
    else exchanged(all);
}

/* Runs a warp until its live threads wait for others than each other. */
void run_warp(int w) {
    warp *all = own->warps + w;
    while (all->running) {
        resume(&own->scheduler, 32 * w + __builtin_ctz(all->running));
        if (!all->running && all->at_warp) exchanged(all); /* the last one ended */
    }
}

void run_again(int i) {
    own->fibres[i].state = RUNNING;
    own->warps[i / 32].running |= 1u << i % 32;
}

/* Threads whose barrier is complete go on; then those of the block's. False: all are done. */
bool release() {
    bool any = false;
    for (int i = 0; i < own->n_thread; i++) {
        int k = own->fibres[i].some;
        if (own->fibres[i].state != AT_SOME || own->some_arrived[k] != own->some_wanted[k])
            continue;
        for (int o = i; o < own->n_thread; o++)
            if (own->fibres[o].state == AT_SOME && own->fibres[o].some == k) run_again(o);
        own->some_arrived[k] = 0;
        any = true;
    }
    if (any) return true;
    for (int i = 0; i < own->n_thread; i++)
        if (own->fibres[i].state == AT_BLOCK) run_again(i), any = true;
    return any;
}

void run_block() {
    memset(own->some_arrived, 0, sizeof own->some_arrived);
    for (int i = 0; i < own->n_thread; i++) {
        own->fibres[i].begun = false;
        own->fibres[i].state = RUNNING;
    }
    int n_warp = (own->n_thread + 31) / 32;
    for (int w = 0; w < n_warp; w++) {
        int n = own->n_thread - 32 * w;
        own->warps[w].live = own->warps[w].running = n < 32 ? (1u << n) - 1 : ~0u;
        own->warps[w].at_warp = 0;
    }
    do {
        for (int w = 0; w < n_warp; w++) run_warp(w);
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

const uint64_t *emulate_show(uint64_t mine) {
    warp *all = own->warps + own->current / 32;
    uint64_t *shown = all->shown[all->turn];
    shown[own->current % 32] = mine;
    meet(all, NULL);
    return shown;
}

const uint32_t (*emulate_exchange(const uint32_t mine[8], emulate_product *product))[8] {
    warp *all = own->warps + own->current / 32;
    uint32_t(*words)[8] = all->words[all->turn];
    memcpy(words[own->current % 32], mine, sizeof words[0]);
    meet(all, product);
    return words;
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

/* Exact, and vectorisable. */
static inline float half_float(uint16_t h) {
    uint32_t bits = (uint32_t)(h & 0x7fff) << 13;
    float scaled = __int_as_float((int)bits) * 0x1p112f; /* the bias of 15 becomes 127 */
    bits = (h & 0x7c00) == 0x7c00 ? bits | 0x7f800000u : (uint32_t)__float_as_int(scaled);
    return __int_as_float((int)(bits | (uint32_t)(h & 0x8000) << 16));
}
static inline float bf16_float(uint16_t h) { return __int_as_float((int)((uint32_t)h << 16)); }

/* Lane 4 g + t holds a[g][2t..], a[g + 8][2t..], a[g][2t + 8..], a[g + 8][2t + 8..]; b[2t..][g],
 * b[2t + 8..][g]; the product's d[g][2t..], d[g + 8][2t..] replace its first four words. */
template <float element(uint16_t)> static void product_16816(uint32_t words[32][8]) {
    uint16_t bits[16][16];
    float a[16][16], b[16][8], d[16][8] = {};
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++)
            memcpy(&bits[lane / 4 + i % 2 * 8][lane % 4 * 2 + i / 2 * 8], words[lane] + i, 4);
    for (int i = 0; i < 256; i++) a[i / 16][i % 16] = element(bits[i / 16][i % 16]);
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++)
            b[lane % 4 * 2 + i % 2 + i / 2 * 8][lane / 4] =
                element((uint16_t)(words[lane][4 + i / 2] >> i % 2 * 16));
    for (int row = 0; row < 16; row++)
        for (int k = 0; k < 16; k++)
            for (int col = 0; col < 8; col++) d[row][col] += a[row][k] * b[k][col];
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 2; i++)
            memcpy(words[lane] + 2 * i, &d[lane / 4 + 8 * i][lane % 4 * 2], 8);
}
template <float element(uint16_t)>
static void mma_16816_of(float d[4], const uint32_t a[4], const uint32_t b[2]) {
    uint32_t mine[8] = {a[0], a[1], a[2], a[3], b[0], b[1], 0, 0};
    const uint32_t(*all)[8] = emulate_exchange(mine, product_16816<element>);
    float sum[4];
    memcpy(sum, all[emulate_lane], sizeof sum);
    for (int i = 0; i < 4; i++) d[i] += sum[i];
}
void mma_16816(float d[4], const uint32_t a[4], const uint32_t b[2]) {
    mma_16816_of<half_float>(d, a, b);
}
void mma_16816_bf16(float d[4], const uint32_t a[4], const uint32_t b[2]) {
    mma_16816_of<bf16_float>(d, a, b);
}

/* Lane 4 g + t holds a[g][4t..], a[g + 8][4t..]; b[4t..][g]; d[g][2t..], d[g + 8][2t..]. */
static void product_16816_s8(uint32_t words[32][8]) {
    int8_t a[16][16], b[8][16]; /* b turned */
    int d[16][8];
    for (int lane = 0; lane < 32; lane++) {
        for (int i = 0; i < 2; i++) memcpy(&a[lane / 4 + 8 * i][lane % 4 * 4], words[lane] + i, 4);
        memcpy(&b[lane / 4][lane % 4 * 4], words[lane] + 2, 4);
    }
    for (int row = 0; row < 16; row++)
        for (int col = 0; col < 8; col++) {
            int sum = 0;
            for (int k = 0; k < 16; k++) sum += a[row][k] * b[col][k];
            d[row][col] = sum;
        }
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 2; i++)
            memcpy(words[lane] + 2 * i, &d[lane / 4 + 8 * i][lane % 4 * 2], 8);
}
void mma_16816_s8(int d[4], uint32_t a0, uint32_t a1, uint32_t b, const int c[4]) {
    uint32_t mine[8] = {a0, a1, b};
    const uint32_t(*all)[8] = emulate_exchange(mine, product_16816_s8);
    for (int i = 0; i < 4; i++) d[i] = c[i] + (int)all[emulate_lane][i];
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

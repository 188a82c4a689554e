/* emulate.h: runs CUDA kernels on the CPU, to test what they compute where there is no GPU.
 *
 * Each thread of a block is a fibre; blocks run one after the other. A barrier (of the block, or of a
 * warp for shuffles and tensor products) hands over to the next fibre until all have arrived. Neither
 * races nor speed show here: that is what a GPU is for. */
#ifndef EMULATE_EMULATE_H
#define EMULATE_EMULATE_H

#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <time.h>

extern constinit thread_local dim3 emulate_thread, emulate_block, emulate_block_dim,
    emulate_grid_dim;
extern constinit thread_local unsigned char *emulate_shared;
#define threadIdx emulate_thread
#define blockIdx emulate_block
#define blockDim emulate_block_dim
#define gridDim emulate_grid_dim
#define DYNAMIC_SHARED(type, name) type *name = (type *)emulate_shared

/* Into a stream of the device that the thread has named; one launch at a time, of all threads. */
cudaError_t emulate_launch(void (*invoke)(const void *, void **), const void *kernel, dim3 grid,
                           dim3 block, size_t shared_bytes, void **args, cudaStream_t stream);
void emulate_block_barrier(void);
/* Barrier `id` of n threads of the block, whole warps; waits: until all have come. */
void emulate_some_barrier(int id, int n, bool waits);
/* Lets kernels of other devices run while this one waits for them; a kernel with shared memory may not call it. */
void emulate_pause(void);
/* Puts 8 words of this lane, waits for the warp, and returns all lanes' words [32][8]. Valid until the
 * second next exchange. A product, the same for all lanes, first computes on them in place. */
typedef void emulate_product(uint32_t words[32][8]);
const uint32_t (*emulate_exchange(const uint32_t mine[8], emulate_product *product = NULL))[8];
const uint64_t *emulate_show(uint64_t mine); /* one word, likewise: [32] */

enum { PEER_POLLS = 1 };
static inline void peer_store4(uint4 *p, uint4 v) { *p = v; }
static inline uint4 peer_load4(const uint4 *p) { return *p; }
static inline void peer_store(uint32_t *p, uint32_t v) { __atomic_store_n(p, v, __ATOMIC_SEQ_CST); }
static inline uint32_t peer_load(const uint32_t *p) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }
static inline void peer_release(uint32_t *p, uint32_t v) { peer_store(p, v); }
static inline uint32_t peer_acquire(const uint32_t *p) { return peer_load(p); }
static inline void peer_pause(void) { emulate_pause(); }
static inline uint64_t peer_clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static inline void __syncthreads(void) { emulate_block_barrier(); }
static inline void __syncwarp(uint32_t = 0xffffffffu) { emulate_show(0); }
static inline void threads_fit(void) {}
static inline void prefetch_tlb(const void *) {}
static inline void prefetch_l1(const void *) {}
static inline void named_barrier_sync(int id, int n) { emulate_some_barrier(id, n, true); }
static inline void named_barrier_arrive(int id, int n) { emulate_some_barrier(id, n, false); }
static inline void pdl_trigger(void) {}
static inline void pdl_wait(void) {}

template <class T> static inline T emulate_shuffle(T x, int from) {
    static_assert(sizeof(T) <= 8, "a register or two");
    uint64_t mine = 0;
    memcpy(&mine, &x, sizeof x);
    memcpy(&x, emulate_show(mine) + (from & 31), sizeof x);
    return x;
}
#define emulate_lane ((int)(threadIdx.x % 32))
template <class T> static inline T __shfl_xor_sync(uint32_t, T x, int mask) {
    return emulate_shuffle(x, emulate_lane ^ mask);
}
template <class T> static inline T __shfl_sync(uint32_t, T x, int from) {
    return emulate_shuffle(x, from);
}
static inline uint32_t __ballot_sync(uint32_t, bool p) {
    const uint64_t *all = emulate_show(p);
    uint32_t r = 0;
    for (int i = 0; i < 32; i++) r |= (uint32_t)all[i] << i;
    return r;
}
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline uint32_t __umulhi(uint32_t a, uint32_t b) {
    return (uint32_t)((uint64_t)a * b >> 32);
}
static inline int __popc(uint32_t x) { return __builtin_popcount(x); }
template <class T> static inline T __ldcs(const T *p) { return *p; }
template <class T> static inline T __ldcg(const T *p) { return *p; }
template <class T> static inline T __ldg(const T *p) { return *p; }
static inline void __threadfence(void) {}
static inline void __threadfence_system(void) {}
template <class T> static inline T atomicAdd(T *p, T x) {
    T old = *p;
    *p += x;
    return old;
}
static inline uint32_t atomic_ticket(uint32_t *counter) { return (*counter)++; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
static inline float __int_as_float(int i) {
    float f;
    memcpy(&f, &i, 4);
    return f;
}
static inline int __float_as_int(float f) {
    int i;
    memcpy(&i, &f, 4);
    return i;
}
static inline int min(int a, int b) { return a < b ? a : b; }
static inline int max(int a, int b) { return a > b ? a : b; }

static inline uint32_t lanes_most(uint32_t x) {
    for (int o = 16; o > 0; o /= 2) {
        uint32_t y = __shfl_xor_sync(0xffffffffu, x, o);
        x = y > x ? y : x;
    }
    return x;
}
static inline void copy_commit(void) {}
template <int K> static inline void copy_wait(void) {}

static inline float quick_exp(float x) { return expf(x); }
static inline float quick_log(float x) { return logf(x); }
static inline float quotient(float a, float b) { return a / b; }
static inline float reciprocal(float x) { return 1 / x; }
static inline uint32_t largest4(float4 v) {
    uint32_t most = 0;
    float all[4] = {v.x, v.y, v.z, v.w};
    for (int i = 0; i < 4; i++) {
        uint32_t bits = (uint32_t)__float_as_int(all[i]) & 0x7fffffffu;
        most = bits > most ? bits : most;
    }
    return most;
}
static inline int dot4(int a, int b, int c) {
    for (int i = 0; i < 4; i++) c += (int8_t)(a >> 8 * i) * (int8_t)(b >> 8 * i);
    return c;
}
static inline int dot4_unsigned(uint32_t a, int b, int c) {
    for (int i = 0; i < 4; i++) c += (int)(a >> 8 * i & 255) * (int8_t)(b >> 8 * i);
    return c;
}
static inline uint32_t sub4(uint32_t a, uint32_t b) {
    uint32_t r = 0;
    for (int i = 0; i < 4; i++)
        r |= (uint32_t)(uint8_t)((a >> 8 * i & 255) - (b >> 8 * i & 255)) << 8 * i;
    return r;
}
static inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t at) {
    uint64_t both = (uint64_t)b << 32 | a;
    uint32_t r = 0;
    for (int i = 0; i < 4; i++) r |= (uint32_t)(both >> (at >> 4 * i & 7) * 8 & 255) << 8 * i;
    return r;
}
void mma_16816(float d[4], const uint32_t a[4], const uint32_t b[2]);
void mma_16816_bf16(float d[4], const uint32_t a[4], const uint32_t b[2]);
static inline uint32_t bf16_pair(float first, float second) {
    return quant_f32_to_bf16(first) | (uint32_t)quant_f32_to_bf16(second) << 16;
}
void mma_16816_s8(int d[4], uint32_t a0, uint32_t a1, uint32_t b, const int c[4]);
static inline void mma_16832_s8(int d[4], const uint32_t a[4], uint32_t b0, uint32_t b1,
                                const int c[4]) {
    int first[4];
    mma_16816_s8(first, a[0], a[1], b0, c);
    mma_16816_s8(d, a[2], a[3], b1, first);
}
void mma_1688(float d[4], const float a[4], const float b[2]);

static inline void copy_async16(void *to, const void *from, bool has) {
    if (has) memcpy(to, from, 16);
    else memset(to, 0, 16);
}
template <int N> static inline void copy_async(void *to, const void *from) { memcpy(to, from, N); }
static inline void load_matrix4(uint32_t m[4], const void *row) {
    uint32_t mine[8];
    memcpy(mine, row, 16);
    const uint32_t(*all)[8] = emulate_exchange(mine);
    for (int i = 0; i < 4; i++) m[i] = all[8 * i + emulate_lane / 4][emulate_lane % 4];
}
static inline void load_matrix4_turned(uint32_t m[4], const void *row) {
    uint32_t mine[8];
    memcpy(mine, row, 16);
    const uint32_t(*all)[8] = emulate_exchange(mine);
    int r = emulate_lane / 4, k = emulate_lane % 4;
    for (int i = 0; i < 4; i++)
        m[i] = (all[8 * i + 2 * k][r / 2] >> r % 2 * 16 & 0xffff) |
               (all[8 * i + 2 * k + 1][r / 2] >> r % 2 * 16 & 0xffff) << 16;
}

#define HAS_GROUP_MMA (emulate_compute == 90)
/* Addresses in units of 16 bytes; above them, what 64 more columns of a turned factor are away. */
static inline uint64_t group_factor(const void *shared, uint32_t next = 16) {
    return (uint64_t)(uintptr_t)shared >> 4 | (uint64_t)(next >> 4) << 46;
}
/* What lies `at` bytes from where a factor begins. */
template <class T> static inline T group_at(uint64_t factor, uintptr_t at) {
    T x;
    at += (uintptr_t)(factor << 4 & (((uint64_t)1 << 50) - 1));
    at ^= (at >> 7 & 7) << 4;
    memcpy(&x, (const char *)at, sizeof x);
    return x;
}
static inline size_t __cvta_generic_to_shared(const void *p) { return (size_t)p; }
static inline void group_sees(void) {}
static inline void group_begin(void) {}
static inline void group_commit(void) {}
template <int K> static inline void group_wait(void) {}
static inline void group_settled(float &) {}
/* Lane 4 g + t of mma_16816 holds elements 2 t and 2 t + 1 of row and column g. */
template <int N, bool TURNED = false>
static inline void group_mma(float (*d)[4], const uint32_t a[4], uint64_t b) {
    int g = emulate_lane / 4, t = emulate_lane % 4;
    for (int n = 0; n < N / 8; n++) {
        uint32_t f[2];
        for (int i = 0; i < 2; i++) {
            if (!TURNED) {
                f[i] = group_at<uint32_t>(b, (uintptr_t)((8 * n + g) * 128 + 16 * i + 4 * t));
                continue;
            }
            uintptr_t at =
                n / 8 * (b >> 46) * 16 + (uintptr_t)((8 * i + 2 * t) * 128 + (n % 8 * 8 + g) * 2);
            f[i] = group_at<uint16_t>(b, at) | (uint32_t)group_at<uint16_t>(b, at + 128) << 16;
        }
        mma_16816(d[n], a, f);
    }
}
static inline void group_mma_shared(float (*d)[4], uint64_t a, uint64_t b) {
    int row = (int)threadIdx.x / 32 % 4 * 16 + emulate_lane / 4;
    uint32_t f[4];
    for (int i = 0; i < 4; i++)
        f[i] = group_at<uint32_t>(
            a, (uintptr_t)((row + i % 2 * 8) * 128 + i / 2 * 16 + emulate_lane % 4 * 4));
    group_mma<64>(d, f, b);
}

#endif

/* portable.cuh: the instructions that kernels use beyond C++: shuffles, dot products of bytes, tensor core products,
 * programmatic dependent launch. With CHIMERE_EMULATE they are C++ for the CPU (test/gpu/emu). */
#ifndef CHIMERE_KERNELS_CUDA_PORTABLE_CUH
#define CHIMERE_KERNELS_CUDA_PORTABLE_CUH

#ifdef CHIMERE_DRIVER
#include "kernels/cuda/driver/runtime.cuh"
#else
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#endif
#include <stdint.h>

/* 64-bit parameters of kernels. int64_t is long on Linux and long long on Windows; a kernel's name contains the type. */
typedef long long i64;
typedef unsigned long long u64;

#ifdef CHIMERE_EMULATE
#include <emulate.h>
#else

#define DYNAMIC_SHARED(type, name) extern __shared__ __align__(16) type name[]

/* pdl_trigger lets the next kernel of the stream start. pdl_wait waits until the previous kernel has finished and its
 * writes are visible. Every kernel calls both; the wait precedes every access to data that a kernel writes. */
__device__ __forceinline__ void pdl_trigger(void) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ __forceinline__ void pdl_wait(void) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* A barrier of n threads (whole warps); the other threads of the block do not wait. id: 1 to 15;
 * concurrent barriers need different ids. */
__device__ __forceinline__ void named_barrier_sync(int id, int n) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n) : "memory");
}
/* Counts towards the same barrier without waiting at it. */
__device__ __forceinline__ void named_barrier_arrive(int id, int n) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(n) : "memory");
}

/* Adds one and returns the previous value. What a block wrote before a barrier that precedes its call is visible to
 * every block that reads it after a barrier that follows a later call on the same counter. */
__device__ __forceinline__ uint32_t atomic_ticket(uint32_t *counter) {
    uint32_t before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
                 : "=r"(before)
                 : "l"(__cvta_generic_to_global(counter))
                 : "memory");
    return before;
}

/* Words that another GPU or the host writes or reads while this kernel runs. Each half of a peer_store4 arrives at
 * once. What precedes a release is visible after the acquire that reads it. */
enum { PEER_POLLS = 1024 }; /* between looks at the clock, about half a millisecond */
__device__ __forceinline__ void peer_store4(uint4 *p, uint4 v) {
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x), "r"(v.y),
                 "r"(v.z), "r"(v.w)
                 : "memory");
}
__device__ __forceinline__ uint4 peer_load4(const uint4 *p) {
    uint4 v;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p)
                 : "memory");
    return v;
}
__device__ __forceinline__ void peer_store(uint32_t *p, uint32_t v) { *(volatile uint32_t *)p = v; }
__device__ __forceinline__ uint32_t peer_load(const uint32_t *p) {
    return *(const volatile uint32_t *)p;
}
__device__ __forceinline__ void peer_release(uint32_t *p, uint32_t v) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
__device__ __forceinline__ uint32_t peer_acquire(const uint32_t *p) {
    uint32_t v;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
__device__ __forceinline__ uint64_t peer_clock_ns(void) {
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}
__device__ __forceinline__ void peer_pause(void) {}

/* A fact the compiler does not know: threadIdx.x is below 1024, so signed index arithmetic
 * needs no code for negative values. */
__device__ __forceinline__ void threads_fit(void) { __builtin_assume(threadIdx.x < 1024); }

/* TLB warm-up: touches an address that is read right after pdl_wait, because streaming weights evicts its
 * translation. No data is consumed. */
__device__ __forceinline__ void prefetch_tlb(const void *p) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

/* Prefetches constant data into the L1 cache. */
__device__ __forceinline__ void prefetch_l1(const void *p) {
    asm volatile("prefetch.global.L1 [%0];" ::"l"(p));
}

/* Asynchronous copies from global to shared memory (copy_async16) are counted in groups. copy_commit ends a group;
 * copy_wait<K> waits for all groups of this thread except the last K. */
__device__ __forceinline__ void copy_commit(void) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int K> __device__ __forceinline__ void copy_wait(void) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(K) : "memory");
#endif
}

/* The largest x of the warp, in every lane. */
__device__ __forceinline__ uint32_t lanes_most(uint32_t x) {
#if __CUDA_ARCH__ >= 800
    return __reduce_max_sync(0xffffffffu, x);
#else
    for (int o = 16; o > 0; o /= 2) x = max(x, __shfl_xor_sync(0xffffffffu, x, o));
    return x;
#endif
}

__device__ __forceinline__ float quotient(float a, float b) { return __fdividef(a, b); }
__device__ __forceinline__ float quick_exp(float x) { return __expf(x); }
__device__ __forceinline__ float quick_log(float x) { return __logf(x); }
/* 1 / x for a normal x, accurate to one unit in the last place. */
__device__ __forceinline__ float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
/* The bits of the largest magnitude; greater than those of infinity if an element is NaN. */
__device__ __forceinline__ uint32_t largest4(float4 v) {
#if __CUDA_ARCH__ >= 800
    float x, y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(x) : "f"(fabsf(v.x)), "f"(fabsf(v.y)));
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(fabsf(v.z)), "f"(fabsf(v.w)));
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(x) : "f"(x), "f"(y));
    return (uint32_t)__float_as_int(x);
#else
    uint32_t x = (uint32_t)__float_as_int(v.x) & 0x7fffffffu;
    uint32_t y = (uint32_t)__float_as_int(v.y) & 0x7fffffffu;
    uint32_t z = (uint32_t)__float_as_int(v.z) & 0x7fffffffu;
    uint32_t w = (uint32_t)__float_as_int(v.w) & 0x7fffffffu;
    return max(max(x, y), max(z, w));
#endif
}
__device__ __forceinline__ int dot4(int a, int b, int c) { return __dp4a(a, b, c); }
/* The same with unsigned bytes in a. */
__device__ __forceinline__ int dot4_unsigned(uint32_t a, int b, int c) {
    int d;
    asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}
/* Bytewise a - b, without borrows. */
__device__ __forceinline__ uint32_t sub4(uint32_t a, uint32_t b) { return __vsub4(a, b); }

/* d[16, 8] += a[16, 16] b[16, 8], f16 inputs, f32 sums; fragments as in PTX's mma.m16n8k16. */
__device__ __forceinline__ void mma_16816(float d[4], const uint32_t a[4], const uint32_t b[2]) {
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                 "{%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b[0]));
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[2]), "r"(a[3]), "r"(b[1]));
#endif
}

/* The same for bfloat16; sm_80 and newer. */
__device__ __forceinline__ void mma_16816_bf16(float d[4], const uint32_t a[4],
                                               const uint32_t b[2]) {
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    __trap();
#endif
}
/* Rounds two floats to the nearest bfloat16; the first is in the lower half of the word. */
__device__ __forceinline__ uint32_t bf16_pair(float first, float second) {
    uint32_t r = 0;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(second), "f"(first));
#endif
    return r;
}

/* d[16, 8] = a[16, 16] b[16, 8] + c, signed bytes, int32 sums. Lane 4 g + t holds bytes 4 t to 4 t + 3 of rows g and
 * g + 8 of a, the same bytes of column g of b, and columns 2 t and 2 t + 1 of rows g and g + 8 of d. */
__device__ __forceinline__ void mma_16816_s8(int d[4], uint32_t a0, uint32_t a1, uint32_t b,
                                             const int c[4]) {
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
                 "{%7,%8,%9,%10};"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(a0), "r"(a1), "r"(b), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
#else
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%4,%5};"
                 : "=r"(d[0]), "=r"(d[1])
                 : "r"(a0), "r"(b), "r"(c[0]), "r"(c[1]));
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%4,%5};"
                 : "=r"(d[2]), "=r"(d[3])
                 : "r"(a1), "r"(b), "r"(c[2]), "r"(c[3]));
#endif
}
/* The same with 32 columns in a: a[2], a[3] and b1 hold bytes 16 + 4 t to 16 + 4 t + 3. */
__device__ __forceinline__ void mma_16832_s8(int d[4], const uint32_t a[4], uint32_t b0,
                                             uint32_t b1, const int c[4]) {
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                 "{%8,%9}, {%10,%11,%12,%13};"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(c[0]),
                   "r"(c[1]), "r"(c[2]), "r"(c[3]));
#else
    int first[4];
    mma_16816_s8(first, a[0], a[1], b0, c);
    mma_16816_s8(d, a[2], a[3], b1, first);
#endif
}
/* d[16, 8] += a[16, 8] b[8, 8] of floats: a is used with 11 bits of mantissa, b with 22. Lane 4 g + t holds columns t
 * and t + 4 of rows g (a[0], a[2]) and g + 8 of a, and rows t and t + 4 of column g of b; d as above. */
__device__ __forceinline__ void mma_1688(float d[4], const float a[4], const float b[2]) {
#if __CUDA_ARCH__ >= 800
    float high[2];
#pragma unroll
    for (int i = 0; i < 2; i++)
        high[i] = __int_as_float((int)((uint32_t)__float_as_int(b[i]) & 0xffffe000u));
#pragma unroll
    for (int part = 0; part < 2; part++)
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, "
                     "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(__float_as_int(a[0])), "r"(__float_as_int(a[1])),
                       "r"(__float_as_int(a[2])), "r"(__float_as_int(a[3])),
                       "r"(__float_as_int(part ? high[0] : b[0] - high[0])),
                       "r"(__float_as_int(part ? high[1] : b[1] - high[1])));
#else
    int lane = (int)threadIdx.x % 32, row = lane & -4, column = lane % 4 * 8;
    for (int k = 0; k < 8; k++)
        for (int i = 0; i < 4; i++) {
            float x = __shfl_sync(0xffffffffu, a[i / 2 + k / 4 * 2], row + k % 4);
            d[i] += x * __shfl_sync(0xffffffffu, b[k / 4], column + i % 2 * 4 + k % 4);
        }
#endif
}

/* Copies 16 bytes from global to shared memory; writes zeros if !has. */
__device__ __forceinline__ void copy_async16(void *to, const void *from, bool has) {
#if __CUDA_ARCH__ >= 800
    uint32_t at = (uint32_t)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from),
                 "r"(has ? 16 : 0)
                 : "memory");
#else
    *(uint4 *)to = has ? *(const uint4 *)from : make_uint4(0, 0, 0, 0);
#endif
}
/* Copies N bytes, 4 or 8. */
template <int N> __device__ __forceinline__ void copy_async(void *to, const void *from) {
#if __CUDA_ARCH__ >= 800
    uint32_t at = (uint32_t)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(at), "l"(from), "n"(N)
                 : "memory");
#else
    for (int i = 0; i < N / 4; i++) ((uint32_t *)to)[i] = ((const uint32_t *)from)[i];
#endif
}
/* Loads four matrices of 8 rows of 8 f16. Lane 8 m + r passes the address of row r of matrix m in shared memory; lane
 * 4 r + k receives elements 2 k and 2 k + 1 of row r of each. */
__device__ __forceinline__ void load_matrix4(uint32_t m[4], const void *row) {
    uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(at)
                 : "memory");
}
/* The same, each matrix transposed: lane 4 r + k receives element r of rows 2 k and 2 k + 1. */
__device__ __forceinline__ void load_matrix4_turned(uint32_t m[4], const void *row) {
    uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(at)
                 : "memory");
}

/* The matrix product of a group of four warps (wgmma, compute capability 9.0 only). It is asynchronous: the warps can
 * do other work meanwhile. Its second factor b is in shared memory with 128-byte swizzle: N rows of 64 f16, one row per
 * column of the product; in row r the 16-byte piece p is stored at place p ^ r % 8. The first row is at a multiple of
 * GROUP_ALIGN. */
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define HAS_GROUP_MMA 1
#else
#define HAS_GROUP_MMA 0
#endif
/* The wgmma descriptor of a factor in shared memory. Descriptor + 2 s: from column 16 s on. Transposed: rows
 * are elements of the sum and the f16 of a row are columns; the next 64 columns are `next` bytes later.
 * Descriptor + 128 s: from row 16 s on. */
__device__ __forceinline__ uint64_t group_factor(const void *shared, uint32_t next = 16) {
    uint64_t at = (uint32_t)__cvta_generic_to_shared(shared);
    return at >> 4 | (uint64_t)(next >> 4) << 16 | (uint64_t)64 << 32 | (uint64_t)1 << 62;
}
/* Fence: products that start later see what this thread wrote to shared memory. If all threads call this before a
 * barrier, products after the barrier see what all of them wrote. */
__device__ __forceinline__ void group_sees(void) {
#if HAS_GROUP_MMA
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
/* Fence before a product: the registers that it reads have been written. */
__device__ __forceinline__ void group_begin(void) {
#if HAS_GROUP_MMA
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void group_commit(void) {
#if HAS_GROUP_MMA
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
/* Waits for all committed groups except the last K. */
template <int K> __device__ __forceinline__ void group_wait(void) {
#if HAS_GROUP_MMA
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(K) : "memory");
#endif
}
/* d[16, N] += a[16, 16] b[16, N] in each warp; a and d as in mma_16816; d[n] holds columns 8 n to 8 n + 7. */
template <int N, bool TURNED = false>
__device__ __forceinline__ void group_mma(float (*d)[4], const uint32_t a[4], uint64_t b) {
    static_assert(N % 16 == 0 && N >= 32 && N <= 128 && N != 112, "written out");
#if HAS_GROUP_MMA
#define EIGHT(n)                                                                                   \
    "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3]), "+f"(d[n + 1][0]),                 \
        "+f"(d[n + 1][1]), "+f"(d[n + 1][2]), "+f"(d[n + 1][3])
#define PRODUCT(n, rows, factors, turned, ...)                                                     \
    if constexpr (N == n)                                                                          \
    asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n" #n        \
                 "k16.f32.f16.f16 {" rows "}, " factors ", p, 1, 1, %" turned ";}"                 \
                 : __VA_ARGS__                                                                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"((int)TURNED))
#define R0 "%0,%1,%2,%3,%4,%5,%6,%7"
#define R1 R0 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define R2 R1 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define R3 R2 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define R4 R3 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define R5 R4 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define R6 R5 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define R7 R6 ",%56,%57,%58,%59,%60,%61,%62,%63"
    PRODUCT(32, R1, "{%16,%17,%18,%19}, %20", "21", EIGHT(0), EIGHT(2));
    PRODUCT(48, R2, "{%24,%25,%26,%27}, %28", "29", EIGHT(0), EIGHT(2), EIGHT(4));
    PRODUCT(64, R3, "{%32,%33,%34,%35}, %36", "37", EIGHT(0), EIGHT(2), EIGHT(4), EIGHT(6));
    PRODUCT(80, R4, "{%40,%41,%42,%43}, %44", "45", EIGHT(0), EIGHT(2), EIGHT(4), EIGHT(6),
            EIGHT(8));
    PRODUCT(96, R5, "{%48,%49,%50,%51}, %52", "53", EIGHT(0), EIGHT(2), EIGHT(4), EIGHT(6),
            EIGHT(8), EIGHT(10));
    PRODUCT(128, R7, "{%64,%65,%66,%67}, %68", "69", EIGHT(0), EIGHT(2), EIGHT(4), EIGHT(6),
            EIGHT(8), EIGHT(10), EIGHT(12), EIGHT(14));
#endif
}
/* d[16, 64] += a[16, 16] b[16, 64] in each warp, both factors in shared memory; warp i uses
 * rows 16 i to 16 i + 15 of a. */
__device__ __forceinline__ void group_mma_shared(float (*d)[4], uint64_t a, uint64_t b) {
#if HAS_GROUP_MMA
    asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n64"
                 "k16.f32.f16.f16 {" R3 "}, %32, %33, p, 1, 1, 0, 0;}"
                 : EIGHT(0), EIGHT(2), EIGHT(4), EIGHT(6)
                 : "l"(a), "l"(b));
#endif
}
#undef EIGHT
#undef PRODUCT
#undef R0
#undef R1
#undef R2
#undef R3
#undef R4
#undef R5
#undef R6
#undef R7
/* Prevents the compiler from moving reads of a product before the wait for it. */
__device__ __forceinline__ void group_settled(float &x) { asm volatile("" : "+f"(x)::"memory"); }

#endif

/* Alignment of group_mma's factors in shared memory; group_gap: bytes up to the next aligned address. */
enum { GROUP_ALIGN = 1024 };
__device__ __forceinline__ uint32_t group_gap(const void *shared) {
    return -(uint32_t)__cvta_generic_to_shared(shared) % GROUP_ALIGN;
}

/* Returns x, opaque to the compiler, which then does not keep values computed from x in registers for later. */
__device__ __forceinline__ int unknown(int x) {
    asm volatile("" : "+r"(x));
    return x;
}

/* Division of x by a number that the host knows, for x below 2^32 / n: one multiplication
 * instead of 20 instructions. */
struct divisor {
    uint32_t n, magic; /* 2^32 / n, rounded up; 0: n is 1 */
};
static inline struct divisor divisor_of(int64_t n) {
    uint64_t magic = (((uint64_t)1 << 32) + (uint64_t)n - 1) / (uint64_t)n;
    return divisor{(uint32_t)n, n > 1 ? (uint32_t)magic : 0};
}
__device__ __forceinline__ uint32_t operator/(uint32_t x, const divisor &d) {
    return d.magic ? __umulhi(x, d.magic) : x;
}

/* Sum over groups of `width` lanes, a power of two. Every lane receives it; the order of
 * additions is the same in all. */
__device__ __forceinline__ float lanes_sum(float x, int width) {
    for (int o = width / 2; o > 0; o /= 2) x += __shfl_xor_sync(0xffffffffu, x, o);
    return x;
}
__device__ __forceinline__ float lanes_max(float x, int width) {
    for (int o = width / 2; o > 0; o /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, o));
    return x;
}

/* Sum over a block of whole warps; room: 32 floats of shared memory. Ends with a barrier. */
__device__ __forceinline__ float block_sum(float x, float *room) {
    int n_warp = (int)blockDim.x / 32;
    x = lanes_sum(x, 32);
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = x;
    __syncthreads();
    x = (int)threadIdx.x % 32 < n_warp ? room[threadIdx.x % 32] : 0.0f;
    x = lanes_sum(x, 32);
    __syncthreads();
    return x;
}

/* The sum of two int16. */
__device__ __forceinline__ int pair_sum(uint32_t a) {
    return (int)(int16_t)(a & 0xffffu) + ((int32_t)a >> 16);
}

__device__ __forceinline__ float to_float(uint16_t bits) {
    __half h;
    memcpy(&h, &bits, 2);
    return __half2float(h);
}
__device__ __forceinline__ uint16_t to_half(float x) {
    __half h = __float2half_rn(x);
    uint16_t bits;
    memcpy(&bits, &h, 2);
    return bits;
}
__device__ __forceinline__ uint32_t word_of(__half2 h) {
    uint32_t u;
    memcpy(&u, &h, 4);
    return u;
}
__device__ __forceinline__ uint32_t two_halves(float lo, float hi) {
    return word_of(__floats2half2_rn(lo, hi));
}

/* Accurate to a few units in the last place, in few instructions. */
__device__ __forceinline__ float logistic(float x) { return quotient(1.0f, 1.0f + quick_exp(-x)); }

/* Operations on two f16 in a word: a - b, a * b, a * b + c. */
__device__ __forceinline__ __half2 halves_in(uint32_t u) {
    __half2 h;
    memcpy(&h, &u, 4);
    return h;
}
__device__ __forceinline__ uint32_t halves_sub(uint32_t a, uint32_t b) {
    return word_of(__hsub2(halves_in(a), halves_in(b)));
}
__device__ __forceinline__ uint32_t halves_mul(uint32_t a, uint32_t b) {
    return word_of(__hmul2(halves_in(a), halves_in(b)));
}
__device__ __forceinline__ uint32_t halves_fma(uint32_t a, uint32_t b, uint32_t c) {
    return word_of(__hfma2(halves_in(a), halves_in(b), halves_in(c)));
}

__device__ __forceinline__ float act_of(int act, float x) {
    switch (act) {
    case 0: return x * logistic(x);
    case 1: return 0.5f * x * (1.0f + tanhf(0.79788456080286535588f * (x + 0.044715f * x * x * x)));
    case 2: return 0.5f * x * (1.0f + erff(x * 0.70710678118654752440f));
    case 3: return x < 0.0f ? 0.0f : x;
    case 4: return x < 0.0f ? 0.0f : x * x;
    case 5: return logistic(x);
    case 8: return tanhf(x); /* ACT_TANH */
    default: return x;
    }
}
/* act(gate) * up; act 7 is ACT_CLAMPED. NaN propagates. */
__device__ __forceinline__ float glu_of(int act, float gate, float up) {
    if (act != 7) return act_of(act, gate) * up;
    gate = gate > 7.0f ? 7.0f : gate;
    up = up > 7.0f ? 7.0f : up < -7.0f ? -7.0f : up;
    return gate * logistic(1.702f * gate) * (1.0f + up);
}

/* Loads four of n floats from index `at` (a multiple of 4); zeros for indices >= n. */
__device__ __forceinline__ float4 four_at(const float *x, int at, int n) {
    if (at + 3 < n && (uintptr_t)(x + at) % 16 == 0) return *(const float4 *)(x + at);
    return make_float4(at < n ? x[at] : 0.0f, at + 1 < n ? x[at + 1] : 0.0f,
                       at + 2 < n ? x[at + 2] : 0.0f, at + 3 < n ? x[at + 3] : 0.0f);
}

__device__ __forceinline__ void four_put(float *x, int at, int n, float4 v) {
    if (at + 3 < n && (uintptr_t)(x + at) % 16 == 0) {
        *(float4 *)(x + at) = v;
        return;
    }
    if (at < n) x[at] = v.x;
    if (at + 1 < n) x[at + 1] = v.y;
    if (at + 2 < n) x[at + 2] = v.z;
    if (at + 3 < n) x[at + 3] = v.w;
}

/* Splits each of two floats into a sum of two bfloat16, accurate to 2^-16. */
__device__ __forceinline__ void split_pair(float x0, float x1, uint32_t &high, uint32_t &low) {
    high = bf16_pair(x0, x1);
    low = bf16_pair(x0 - __int_as_float((int)(high << 16)),
                    x1 - __int_as_float((int)(high & 0xffff0000u)));
}

/* Fragments for mma_16816, from f16 rows in shared memory that are `row` elements apart: 16 rows and 16 columns.
 * first_factor loads one first factor. second_factor loads two second factors whose columns are the rows in memory;
 * second_turned, two whose rows are the rows in memory. */
__device__ __forceinline__ void first_factor(uint32_t a[4], const uint16_t *at, int row) {
    int lane = (int)threadIdx.x % 32;
    load_matrix4(a, at + lane % 16 * row + lane / 16 * 8);
}
__device__ __forceinline__ void second_factor(uint32_t b[4], const uint16_t *at, int row) {
    int lane = (int)threadIdx.x % 32;
    load_matrix4(b, at + (lane / 16 * 8 + lane % 8) * row + lane / 8 % 2 * 8);
}
__device__ __forceinline__ void second_turned(uint32_t b[4], const uint16_t *at, int row) {
    int lane = (int)threadIdx.x % 32;
    load_matrix4_turned(b, at + lane % 16 * row + lane / 16 * 8);
}

#endif

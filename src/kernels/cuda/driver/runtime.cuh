/* runtime.cuh: as much of the CUDA runtime as the backend uses, over the functions of NVIDIA's driver (driver.c), for
 * systems whose compiler cannot link NVIDIA's runtime library.
 *
 * clang reads this before a .cu file and compiles its host part alone (--cuda-host-only): kernels become addresses that
 * __cudaRegisterFunction connects with the names in the fat binary, which nvcc made of the same file. Device functions
 * are parsed, never compiled, so here they need no body. Numbers are those of the driver, which NVIDIA's runtime shares. */
#ifndef CHIMERE_KERNELS_CUDA_DRIVER_RUNTIME_CUH
#define CHIMERE_KERNELS_CUDA_DRIVER_RUNTIME_CUH

#ifdef __CUDA__
#pragma clang force_cuda_host_device begin /* device functions call some of theirs */
#endif
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __cplusplus
#include <utility>
#endif
#ifdef __CUDA__
#pragma clang force_cuda_host_device end
#endif

/* ---- types ---- */

#define cudaSuccess 0
enum {
    cudaErrorMemoryAllocation = 2,
    cudaErrorInsufficientDriver = 35,
    cudaErrorNoDevice = 100,
    cudaErrorSymbolNotFound = 500,
    cudaErrorNotReady = 600,
    cudaErrorPeerAccessAlreadyEnabled = 704,
};
enum { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2 };
enum {
    cudaStreamNonBlocking = 1,
    cudaEventDisableTiming = 2,
    cudaEventRecordExternal = 1,
    cudaStreamCaptureModeThreadLocal = 1,
    cudaEnableDefault = 0,
};
enum {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9,
    cudaLaunchAttributeProgrammaticStreamSerialization = 6,
};
enum {
    cudaDevAttrClockRate = 13,
    cudaDevAttrMemoryClockRate = 36,
    cudaDevAttrGlobalMemoryBusWidth = 37,
};

typedef int cudaError_t; /* CUresult */
typedef int cudaDriverEntryPointQueryResult;
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;

typedef struct dim3 {
    unsigned x, y, z;
#ifdef __cplusplus
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
#endif
} dim3;
typedef struct cudaDeviceProp {
    char name[256];
    int major, minor, multiProcessorCount;
    size_t totalGlobalMem; /* bytes */
} cudaDeviceProp;
typedef struct cudaLaunchAttribute {
    int id;
    struct {
        int programmaticStreamSerializationAllowed;
    } val;
} cudaLaunchAttribute;
typedef struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute *attrs;
    unsigned numAttrs; /* at most 1 */
} cudaLaunchConfig_t;

/* ---- what the host calls ---- */

#ifdef __cplusplus
extern "C" {
#endif
cudaError_t cudaDriverGetVersion(int *version); /* 12080: of CUDA 12.8; 0: no driver */
cudaError_t cudaGetDeviceCount(int *n);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device);
cudaError_t cudaDeviceGetAttribute(int *value, int attribute, int device);
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer);
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags);
const char *cudaGetErrorString(cudaError_t rc);
cudaError_t cudaGetLastError(void); /* none is kept: every call returns its own */
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult *found);

cudaError_t cudaMalloc(void **p, size_t n);
cudaError_t cudaFree(void *p);
cudaError_t cudaMallocHost(void **p, size_t n);
cudaError_t cudaFreeHost(void *p);
cudaError_t cudaMemGetInfo(size_t *n_free, size_t *n_total);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, int kind, cudaStream_t s);
cudaError_t cudaMemsetAsync(void *p, int byte, size_t n, cudaStream_t s);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaStreamSynchronize(cudaStream_t s);
cudaError_t cudaStreamQuery(cudaStream_t s);
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags);
cudaError_t cudaStreamBeginCapture(cudaStream_t s, int mode);
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g);

cudaError_t cudaEventCreate(cudaEvent_t *e);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t e);
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s);
cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned flags);
cudaError_t cudaEventSynchronize(cudaEvent_t e);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to);

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s);
cudaError_t cudaGraphDestroy(cudaGraph_t g);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x);

cudaError_t cudaFuncGetName(const char **name, const void *kernel);
cudaError_t cudaFuncSetAttribute(const void *kernel, int attribute, int value);
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel, void **args);

/* ---- what the compiler calls: before main(), and in the bodies of kernels, which nothing calls ---- */

void **__cudaRegisterFatBinary(void *wrapper);
void __cudaUnregisterFatBinary(void **binary);
int __cudaRegisterFunction(void **binary, const char *address, char *device_address,
                           const char *name, int n_thread, void *thread, void *block,
                           void *block_dim, void *grid_dim, int *warp);
cudaError_t cudaLaunch(const void *kernel);
cudaError_t cudaSetupArgument(const void *arg, size_t n, size_t at);
#ifdef __cplusplus
}
#endif

/* ---- what kernels are made of ---- */

#ifdef __CUDA__
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))

struct alignas(8) uint2 {
    unsigned x, y;
};
struct uint3 {
    unsigned x, y, z;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(2) __half {
    uint16_t bits;
};
struct alignas(4) __half2 {
    __half x, y;
};

extern const __device__ uint3 threadIdx, blockIdx;
extern const __device__ dim3 blockDim, gridDim;

/* glibc has others of these names. */
#define rsqrtf device_rsqrtf
#define __expf device_expf
#define __logf device_logf

#define D __device__
#define HD __host__ __device__
HD static inline float2 make_float2(float x, float y) { return float2{x, y}; }
HD static inline float4 make_float4(float x, float y, float z, float w) {
    return float4{x, y, z, w};
}
HD static inline uint2 make_uint2(unsigned x, unsigned y) { return uint2{x, y}; }
HD static inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return uint3{x, y, z}; }
HD static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
    return uint4{x, y, z, w};
}
D void __syncthreads();
D void __syncwarp(unsigned mask = ~0u);
D void __threadfence();
D void __threadfence_system();
D void __trap();
template <class T> D T __shfl_sync(unsigned mask, T x, int from, int width = 32);
template <class T> D T __shfl_xor_sync(unsigned mask, T x, int bits, int width = 32);
D unsigned __ballot_sync(unsigned mask, int p);
D unsigned __reduce_max_sync(unsigned mask, unsigned x);
template <class T> D T __ldcs(const T *p);
template <class T> D T __ldcg(const T *p);
template <class T> D T __ldg(const T *p);
template <class T> D T atomicAdd(T *p, T x);
D size_t __cvta_generic_to_shared(const void *p);
D size_t __cvta_generic_to_global(const void *p);
D int __ffs(int x);
D int __popc(unsigned x);
D unsigned __umulhi(unsigned a, unsigned b);
D unsigned __byte_perm(unsigned a, unsigned b, unsigned at);
D int __dp4a(int a, int b, int c);
D unsigned __vsub4(unsigned a, unsigned b);
D int min(int a, int b);
D int max(int a, int b);
D unsigned min(unsigned a, unsigned b);
D unsigned max(unsigned a, unsigned b);
D float rsqrtf(float x);
D float __fmul_rn(float a, float b);
D float __fadd_rn(float a, float b);
D float __fsub_rn(float a, float b);
D float __fdividef(float a, float b);
D float __expf(float x);
D float __logf(float x);
D float __int_as_float(int x);
D int __float_as_int(float x);
D float __half2float(__half x);
D __half __float2half(float x);
D __half __float2half_rn(float x);
D __half2 __floats2half2_rn(float a, float b);
D __half2 __hsub2(__half2 a, __half2 b);
D __half2 __hmul2(__half2 a, __half2 b);
D __half2 __hfma2(__half2 a, __half2 b, __half2 c);
#undef D
#undef HD
#endif

#endif

/* cuda_runtime.h: as much of the CUDA runtime as the backend uses, on the CPU: device memory is host
 * memory, a stream does everything at once. */
#ifndef EMULATE_CUDA_RUNTIME_H
#define EMULATE_CUDA_RUNTIME_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define __restrict__
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct uint2 {
    uint32_t x, y;
};
struct uint3 {
    uint32_t x, y, z;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
struct float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
static inline float2 make_float2(float x, float y) { return float2{x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return float4{x, y, z, w}; }
static inline uint2 make_uint2(uint32_t x, uint32_t y) { return uint2{x, y}; }
static inline uint3 make_uint3(uint32_t x, uint32_t y, uint32_t z) { return uint3{x, y, z}; }
static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) {
    return uint4{x, y, z, w};
}

enum cudaError_t {
    cudaSuccess,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInsufficientDriver = 35,
    cudaErrorInvalidDevice = 101,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorPeerAccessAlreadyEnabled = 704,
    cudaErrorLaunchFailure = 719
};
typedef struct emulate_stream { /* of the device that was named when it was made */
    int device;
} * cudaStream_t;
typedef struct emulate_event { /* time: kernels launched before it */
    uint64_t at;
    int device;
} * cudaEvent_t;
/* As on a machine with so many GPUs, each thread has named one of them, the first at its beginning. */
enum { EMULATE_N_DEVICE = 8 };
extern thread_local int emulate_device;
typedef struct emulate_graph *cudaGraphExec_t, *cudaGraph_t;
enum { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
enum {
    cudaStreamNonBlocking = 1,
    cudaEventDisableTiming = 2,
    cudaEventRecordExternal = 1,
    cudaStreamCaptureModeThreadLocal = 1
};
/* Compute capability, 90 or what the environment's EMULATE_COMPUTE says. */
extern const int emulate_compute;
extern const char *emulate_name; /* of every card, set by tests */
struct cudaDeviceProp {
    char name[256];
    int major, minor, multiProcessorCount;
    size_t totalGlobalMem;
};

/* Fails the n-th allocation from now; 0: none. */
extern int inject_fail_nth;
static inline bool emulate_short(void) { return inject_fail_nth && --inject_fail_nth == 0; }

/* Copies and waits from the n-th on fail, launches among them do nothing, as on a device that is lost; 0: none. Of
 * inject_lose_device alone, or of all if that is below 0. */
extern int inject_lose_nth, inject_lose_device;
static inline cudaError_t emulate_lost(void) {
    if (inject_lose_device >= 0 && inject_lose_device != emulate_device) return cudaSuccess;
    if (inject_lose_nth > 1) inject_lose_nth--;
    return inject_lose_nth == 1 ? cudaErrorLaunchFailure : cudaSuccess;
}

static inline const char *cudaGetErrorString(cudaError_t e) {
    return e == cudaErrorLaunchFailure           ? "unspecified launch failure"
           : e == cudaErrorInvalidDevice         ? "invalid device ordinal"
           : e == cudaErrorInvalidResourceHandle ? "invalid resource handle"
           : e                                   ? "out of memory"
                                                 : "none";
}
static inline cudaError_t cudaGetLastError(void) { return cudaSuccess; }
static inline cudaError_t cudaDriverGetVersion(int *v) { return *v = 13000, cudaSuccess; }
static inline cudaError_t cudaGetDeviceCount(int *n) { return *n = EMULATE_N_DEVICE, cudaSuccess; }
static inline cudaError_t cudaSetDevice(int d) {
    if (d < 0 || d >= EMULATE_N_DEVICE) return cudaErrorInvalidDevice;
    return emulate_device = d, cudaSuccess;
}
/* Every device can access the memory of every other. */
static inline cudaError_t cudaDeviceCanAccessPeer(int *can, int, int) {
    return *can = 1, cudaSuccess;
}
static inline cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }
static inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int) {
    *p = cudaDeviceProp{"", emulate_compute / 10, emulate_compute % 10, 5, (size_t)1 << 34};
    snprintf(p->name, sizeof p->name, "%s", emulate_name);
    return cudaSuccess;
}
enum cudaDeviceAttr {
    cudaDevAttrClockRate,
    cudaDevAttrMemoryClockRate,
    cudaDevAttrGlobalMemoryBusWidth
};
static inline cudaError_t cudaDeviceGetAttribute(int *v, cudaDeviceAttr, int) {
    return *v = 128, cudaSuccess;
}
static inline cudaError_t cudaMalloc(void **p, size_t n) {
    *p = emulate_short() ? NULL : aligned_alloc(256, (n + 255) & ~(size_t)255);
    return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}
static inline cudaError_t cudaMemGetInfo(size_t *n_free, size_t *n_total) {
    return *n_free = *n_total = (size_t)1 << 34, cudaSuccess;
}
static inline cudaError_t cudaFree(void *p) { return free(p), cudaSuccess; }
static inline cudaError_t cudaMallocHost(void **p, size_t n) { return cudaMalloc(p, n); }
static inline cudaError_t cudaFreeHost(void *p) { return cudaFree(p); }
static inline cudaError_t cudaMemcpyAsync(void *d, const void *s, size_t n, int, cudaStream_t) {
    cudaError_t rc = emulate_lost();
    if (!rc) memcpy(d, s, n);
    return rc;
}
static inline cudaError_t cudaMemsetAsync(void *d, int v, size_t n, cudaStream_t) {
    return memset(d, v, n), cudaSuccess;
}
static inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, int) {
    *s = emulate_short() ? NULL : (cudaStream_t)malloc(sizeof **s);
    if (!*s) return cudaErrorMemoryAllocation;
    (*s)->device = emulate_device;
    return cudaSuccess;
}
static inline cudaError_t cudaStreamDestroy(cudaStream_t s) { return free(s), cudaSuccess; }
static inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return emulate_lost(); }
/* Who asks what a kernel has not told yet learns of a loss at the second time. */
static inline cudaError_t cudaStreamQuery(cudaStream_t) {
    static int n_asked;
    return n_asked++ % 2 ? emulate_lost() : cudaErrorNotReady;
}
extern uint64_t emulate_n_launch;
static inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, int) {
    *e = emulate_short() ? NULL : (cudaEvent_t)malloc(sizeof **e);
    if (!*e) return cudaErrorMemoryAllocation;
    (*e)->device = emulate_device;
    return cudaSuccess;
}
static inline cudaError_t cudaEventCreate(cudaEvent_t *e) { return cudaEventCreateWithFlags(e, 0); }
static inline cudaError_t cudaEventDestroy(cudaEvent_t e) { return free(e), cudaSuccess; }
static inline cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    if (e->device != s->device) return cudaErrorInvalidResourceHandle;
    return e->at = emulate_n_launch, cudaSuccess;
}
static inline cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, int) {
    return cudaEventRecord(e, s);
}
static inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
static inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) {
    return cudaSuccess;
}
static inline cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
    return *ms = 1e-3f * (float)(to->at - from->at), cudaSuccess; /* a kernel takes 1 us */
}

/* What is captured runs at once; the graph of it is empty. */
static inline cudaError_t cudaStreamBeginCapture(cudaStream_t, int) { return cudaSuccess; }
static inline cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t *g) {
    return *g = NULL, cudaSuccess;
}
static inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t *x, cudaGraph_t, int) {
    return *x = NULL, cudaSuccess;
}
static inline cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return emulate_lost(); }
static inline cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }
static inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }

#endif

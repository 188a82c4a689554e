/* inject.c: calls of the CUDA runtime that fail when a test says so. The linker puts them before the runtime's own
 * (--wrap, see cmake/tests.cmake), so that a GPU can run out of memory, or be lost, without either. */
#include <cuda_runtime_api.h>
#include <stdbool.h>

/* Fails the n-th allocation from now; 0: none. */
int inject_fail_nth;
static bool is_short(void) { return inject_fail_nth && --inject_fail_nth == 0; }

/* Copies, launches and waits from the n-th on fail, as on a device that is lost; 0: none. */
int inject_lose_nth, inject_lose_device = -1; /* of that device alone; below 0: of all */
static bool is_lost(void) {
    int device;
    if (inject_lose_device >= 0 &&
        (cudaGetDevice(&device) != cudaSuccess || device != inject_lose_device))
        return false;
    if (inject_lose_nth > 1) inject_lose_nth--;
    return inject_lose_nth == 1;
}

#define WRAP(condition, rc, name, parameters, arguments)                                           \
    cudaError_t __real_##name parameters;                                                          \
    cudaError_t __wrap_##name parameters;                                                          \
    cudaError_t __wrap_##name parameters { return condition() ? rc : __real_##name arguments; }
#define ALLOCATES(name, parameters, arguments)                                                     \
    WRAP(is_short, cudaErrorMemoryAllocation, name, parameters, arguments)
#define USES(name, parameters, arguments)                                                          \
    WRAP(is_lost, cudaErrorLaunchFailure, name, parameters, arguments)

ALLOCATES(cudaMalloc, (void **p, size_t n), (p, n))
ALLOCATES(cudaMallocHost, (void **p, size_t n), (p, n))
ALLOCATES(cudaEventCreate, (cudaEvent_t * e), (e))
ALLOCATES(cudaEventCreateWithFlags, (cudaEvent_t * e, unsigned flags), (e, flags))
ALLOCATES(cudaStreamCreateWithFlags, (cudaStream_t * s, unsigned flags), (s, flags))

USES(cudaMemcpyAsync,
     (void *to, const void *from, size_t n, enum cudaMemcpyKind kind, cudaStream_t s),
     (to, from, n, kind, s))
USES(cudaMemsetAsync, (void *to, int value, size_t n, cudaStream_t s), (to, value, n, s))
USES(cudaLaunchKernelExC, (const cudaLaunchConfig_t *config, const void *kernel, void **args),
     (config, kernel, args))
USES(cudaGraphLaunch, (cudaGraphExec_t g, cudaStream_t s), (g, s))
USES(cudaStreamSynchronize, (cudaStream_t s), (s))
USES(cudaStreamQuery, (cudaStream_t s), (s))

/* driver.c: the functions of runtime.cuh, over those of NVIDIA's driver, which is loaded when the first device is asked
 * for; without it there is no GPU. */
#include "kernels/cuda/driver/runtime.cuh"

#include <cuda.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/os/library.h"
#include "base/thread.h"

#ifdef _WIN32
#define DRIVER "nvcuda.dll"
#else
#define DRIVER "libcuda.so.1"
#endif

/* ---- the driver's functions, by the names of their versions ---- */

#define CALLS(X)                                                                                   \
    X(cuInit)                                                                                      \
    X(cuDriverGetVersion)                                                                          \
    X(cuGetErrorString)                                                                            \
    X(cuGetProcAddress)                                                                            \
    X(cuDeviceGetCount)                                                                            \
    X(cuDeviceGetName)                                                                             \
    X(cuDeviceTotalMem)                                                                            \
    X(cuDeviceGetAttribute)                                                                        \
    X(cuDeviceCanAccessPeer)                                                                       \
    X(cuDevicePrimaryCtxRetain)                                                                    \
    X(cuCtxSetCurrent)                                                                             \
    X(cuCtxGetDevice)                                                                              \
    X(cuCtxEnablePeerAccess)                                                                       \
    X(cuMemAlloc)                                                                                  \
    X(cuMemFree)                                                                                   \
    X(cuMemHostAlloc)                                                                              \
    X(cuMemFreeHost)                                                                               \
    X(cuMemGetInfo)                                                                                \
    X(cuMemcpyAsync)                                                                               \
    X(cuMemsetD8Async)                                                                             \
    X(cuStreamCreate)                                                                              \
    X(cuStreamDestroy)                                                                             \
    X(cuStreamSynchronize)                                                                         \
    X(cuStreamQuery)                                                                               \
    X(cuStreamWaitEvent)                                                                           \
    X(cuStreamBeginCapture)                                                                        \
    X(cuStreamEndCapture)                                                                          \
    X(cuEventCreate)                                                                               \
    X(cuEventDestroy)                                                                              \
    X(cuEventRecord)                                                                               \
    X(cuEventRecordWithFlags)                                                                      \
    X(cuEventSynchronize)                                                                          \
    X(cuEventElapsedTime)                                                                          \
    X(cuGraphInstantiate)                                                                          \
    X(cuGraphLaunch)                                                                               \
    X(cuGraphDestroy)                                                                              \
    X(cuGraphExecDestroy)                                                                          \
    X(cuLibraryLoadData)                                                                           \
    X(cuLibraryGetKernel)                                                                          \
    X(cuKernelSetAttribute)                                                                        \
    X(cuLaunchKernelEx)

#define NAME_OF(name) #name
static struct {
#define X(name) __typeof__(name) *name;
    CALLS(X)
#undef X
} cu;

enum { MAX_DEVICES = 64 };
static CUcontext contexts[MAX_DEVICES]; /* their primary ones, until the process ends */
static int n_device, driver_version;
static cudaError_t why_none = cudaErrorNoDevice;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock =
    PTHREAD_MUTEX_INITIALIZER; /* of contexts and of binaries' libraries */

static void driver_load(void) {
    static const struct {
        const char *name;
        void **to;
    } calls[] = {
#define X(name) {NAME_OF(name), (void **)&cu.name},
        CALLS(X)
#undef X
    };
    struct err e = {0};
    struct library *l = NULL;
    if (library_open_system(&l, DRIVER, &e)) return;
    why_none = cudaErrorInsufficientDriver;
    bool has_all = true;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        has_all &= (*calls[i].to = library_symbol(l, calls[i].name)) != NULL;
    if (cu.cuDriverGetVersion) cu.cuDriverGetVersion(&driver_version);
    /* a driver runs what toolkits of its major version compiled, and older ones */
    if (!has_all || driver_version < CUDA_VERSION / 1000 * 1000) return;
    CUresult rc = cu.cuInit(0);
    if (!rc) rc = cu.cuDeviceGetCount(&n_device);
    why_none = rc ? (cudaError_t)rc : cudaErrorNoDevice;
    if (rc || n_device < 0) n_device = 0;
    if (n_device > MAX_DEVICES) n_device = MAX_DEVICES;
}

/* ---- kernels ---- */

struct fat_wrapper { /* as the compiler writes it */
    int magic, version;
    const void *data;
    void *unused;
};
struct binary {
    const void *data;
    CUlibrary
        library; /* of all devices; the driver loads what a device needs when that launches it */
    cudaError_t failed;
};
struct kernel {
    const void *address; /* that the host knows it by */
    const char *name;
    struct binary *binary;
    CUkernel found; /* NULL: not asked for yet */
};
enum { MAX_BINARIES = 64 };
static struct binary binaries[MAX_BINARIES];
static int n_binary;
static struct kernel *kernels; /* owned; sorted by address once the first is looked for */
static size_t n_kernel, cap_kernel;
static bool sorted;

void **__cudaRegisterFatBinary(void *wrapper) {
    if (n_binary == MAX_BINARIES) abort(); /* one for each .cu file */
    binaries[n_binary].data = ((const struct fat_wrapper *)wrapper)->data;
    return (void **)&binaries[n_binary++];
}

void __cudaUnregisterFatBinary(void **binary) { (void)binary; } /* the process ends */

int __cudaRegisterFunction(void **binary, const char *address, char *device_address,
                           const char *name, int n_thread, void *thread, void *block,
                           void *block_dim, void *grid_dim, int *warp) {
    (void)device_address, (void)n_thread, (void)thread, (void)block;
    (void)block_dim, (void)grid_dim, (void)warp;
    if (n_kernel == cap_kernel) {
        cap_kernel = cap_kernel ? 2 * cap_kernel : 1024;
        kernels = mem_realloc(kernels, cap_kernel * sizeof *kernels);
        if (!kernels) abort(); /* before main() */
    }
    kernels[n_kernel++] =
        (struct kernel){.address = address, .name = name, .binary = (struct binary *)binary};
    return 0;
}

cudaError_t cudaLaunch(const void *kernel) {
    (void)kernel;
    return cudaErrorSymbolNotFound;
}

cudaError_t cudaSetupArgument(const void *arg, size_t n, size_t at) {
    (void)arg, (void)n, (void)at;
    return cudaErrorSymbolNotFound;
}

static int by_address(const void *a, const void *b) {
    const char *x = ((const struct kernel *)a)->address, *y = ((const struct kernel *)b)->address;
    return x < y ? -1 : x > y;
}

/* Finds a kernel, and its code at the first time. */
static cudaError_t kernel_of(const void *address, struct kernel **out) {
    cudaError_t rc = cudaSuccess;
    pthread_mutex_lock(&lock);
    if (!sorted) qsort(kernels, n_kernel, sizeof *kernels, by_address);
    sorted = true;
    const struct kernel key = {.address = address};
    struct kernel *k =
        n_kernel ? bsearch(&key, kernels, n_kernel, sizeof *kernels, by_address) : NULL;
    if (!k) {
        rc = cudaErrorSymbolNotFound;
    } else if (!k->found) {
        struct binary *b = k->binary;
        if (!b->library && !b->failed)
            b->failed = (cudaError_t)cu.cuLibraryLoadData(&b->library, b->data, NULL, NULL, 0, NULL,
                                                          NULL, 0);
        rc = b->failed;
        if (!rc) rc = (cudaError_t)cu.cuLibraryGetKernel(&k->found, b->library, k->name);
    }
    pthread_mutex_unlock(&lock);
    *out = rc ? NULL : k;
    return rc;
}

cudaError_t cudaFuncGetName(const char **name, const void *kernel) {
    struct kernel *k;
    cudaError_t rc = kernel_of(kernel, &k);
    *name = rc ? NULL : k->name;
    return rc;
}

cudaError_t cudaFuncSetAttribute(const void *kernel, int attribute, int value) {
    struct kernel *k;
    CUdevice device;
    cudaError_t rc = kernel_of(kernel, &k);
    if (!rc) rc = (cudaError_t)cu.cuCtxGetDevice(&device);
    if (!rc)
        rc = (cudaError_t)cu.cuKernelSetAttribute((CUfunction_attribute)attribute, value, k->found,
                                                  device);
    return rc;
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *kernel, void **args) {
    struct kernel *k;
    cudaError_t rc = kernel_of(kernel, &k);
    if (rc) return rc;
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    attribute.value.programmaticStreamSerializationAllowed = 1;
    const CUlaunchConfig config = {
        .gridDimX = c->gridDim.x,
        .gridDimY = c->gridDim.y,
        .gridDimZ = c->gridDim.z,
        .blockDimX = c->blockDim.x,
        .blockDimY = c->blockDim.y,
        .blockDimZ = c->blockDim.z,
        .sharedMemBytes = (unsigned)c->dynamicSmemBytes,
        .hStream = c->stream,
        .attrs = &attribute,
        .numAttrs = c->numAttrs,
    };
    return (cudaError_t)cu.cuLaunchKernelEx(&config, (CUfunction)k->found, args, NULL);
}

/* ---- devices ---- */

cudaError_t cudaDriverGetVersion(int *version) {
    pthread_once(&once, driver_load);
    *version = driver_version;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *n) {
    pthread_once(&once, driver_load);
    *n = n_device;
    return n_device ? cudaSuccess : why_none;
}

static cudaError_t context_of(int device, CUcontext *out) {
    int n;
    cudaError_t rc = cudaGetDeviceCount(&n);
    if (rc) return rc;
    if (device < 0 || device >= n) return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&lock);
    if (!contexts[device]) rc = (cudaError_t)cu.cuDevicePrimaryCtxRetain(&contexts[device], device);
    *out = contexts[device];
    pthread_mutex_unlock(&lock);
    return rc;
}

cudaError_t cudaSetDevice(int device) {
    CUcontext context;
    cudaError_t rc = context_of(device, &context);
    return rc ? rc : (cudaError_t)cu.cuCtxSetCurrent(context);
}

cudaError_t cudaDeviceGetAttribute(int *value, int attribute, int device) {
    return (cudaError_t)cu.cuDeviceGetAttribute(value, (CUdevice_attribute)attribute, device);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device) {
    CUresult rc = cu.cuDeviceGetName(p->name, sizeof p->name, device);
    if (!rc) rc = cu.cuDeviceTotalMem(&p->totalGlobalMem, device);
    if (!rc)
        rc = cu.cuDeviceGetAttribute(&p->major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                     device);
    if (!rc)
        rc = cu.cuDeviceGetAttribute(&p->minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                                     device);
    if (!rc)
        rc = cu.cuDeviceGetAttribute(&p->multiProcessorCount,
                                     CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    return (cudaError_t)rc;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    return (cudaError_t)cu.cuDeviceCanAccessPeer(can, device, peer);
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    CUcontext context;
    cudaError_t rc = context_of(peer, &context);
    return rc ? rc : (cudaError_t)cu.cuCtxEnablePeerAccess(context, flags);
}

const char *cudaGetErrorString(cudaError_t rc) {
    const char *text = NULL;
    if (!n_device) return "no device";
    return cu.cuGetErrorString((CUresult)rc, &text) || !text ? "unknown error" : text;
}

cudaError_t cudaGetLastError(void) { return cudaSuccess; }

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult *found) {
    CUdriverProcAddressQueryResult result;
    CUresult rc = cu.cuGetProcAddress(name, function, (int)version, flags, &result);
    *found = (cudaDriverEntryPointQueryResult)result;
    return (cudaError_t)rc;
}

/* ---- memory ---- */

cudaError_t cudaMalloc(void **p, size_t n) {
    CUdeviceptr at = 0;
    CUresult rc = cu.cuMemAlloc(&at, n);
    *p = (void *)(uintptr_t)at;
    return (cudaError_t)rc;
}

cudaError_t cudaFree(void *p) {
    return p ? (cudaError_t)cu.cuMemFree((CUdeviceptr)(uintptr_t)p) : cudaSuccess;
}

cudaError_t cudaMallocHost(void **p, size_t n) {
    return (cudaError_t)cu.cuMemHostAlloc(p, n, CU_MEMHOSTALLOC_PORTABLE);
}

cudaError_t cudaFreeHost(void *p) { return p ? (cudaError_t)cu.cuMemFreeHost(p) : cudaSuccess; }

cudaError_t cudaMemGetInfo(size_t *n_free, size_t *n_total) {
    return (cudaError_t)cu.cuMemGetInfo(n_free, n_total);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, int kind, cudaStream_t s) {
    (void)kind; /* an address says where it is */
    return (cudaError_t)cu.cuMemcpyAsync((CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from,
                                         n, s);
}

cudaError_t cudaMemsetAsync(void *p, int byte, size_t n, cudaStream_t s) {
    return (cudaError_t)cu.cuMemsetD8Async((CUdeviceptr)(uintptr_t)p, (unsigned char)byte, n, s);
}

/* ---- streams, events, graphs ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags) {
    return (cudaError_t)cu.cuStreamCreate(s, flags);
}
cudaError_t cudaStreamDestroy(cudaStream_t s) { return (cudaError_t)cu.cuStreamDestroy(s); }
cudaError_t cudaStreamSynchronize(cudaStream_t s) { return (cudaError_t)cu.cuStreamSynchronize(s); }
cudaError_t cudaStreamQuery(cudaStream_t s) { return (cudaError_t)cu.cuStreamQuery(s); }
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags) {
    return (cudaError_t)cu.cuStreamWaitEvent(s, e, flags);
}
cudaError_t cudaStreamBeginCapture(cudaStream_t s, int mode) {
    return (cudaError_t)cu.cuStreamBeginCapture(s, (CUstreamCaptureMode)mode);
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g) {
    return (cudaError_t)cu.cuStreamEndCapture(s, g);
}

cudaError_t cudaEventCreate(cudaEvent_t *e) { return cudaEventCreateWithFlags(e, 0); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags) {
    return (cudaError_t)cu.cuEventCreate(e, flags);
}
cudaError_t cudaEventDestroy(cudaEvent_t e) { return (cudaError_t)cu.cuEventDestroy(e); }
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    return (cudaError_t)cu.cuEventRecord(e, s);
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned flags) {
    return (cudaError_t)cu.cuEventRecordWithFlags(e, s, flags);
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) { return (cudaError_t)cu.cuEventSynchronize(e); }
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
    return (cudaError_t)cu.cuEventElapsedTime(ms, from, to);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long flags) {
    return (cudaError_t)cu.cuGraphInstantiate(x, g, flags);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s) {
    CUresult rc = cu.cuGraphLaunch(x, s);
#ifdef _WIN32
    /* Windows may collect launches until something asks for their state; the backend polls memory before it does. */
    if (!rc) cu.cuStreamQuery(s);
#endif
    return (cudaError_t)rc;
}
cudaError_t cudaGraphDestroy(cudaGraph_t g) { return (cudaError_t)cu.cuGraphDestroy(g); }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x) {
    return (cudaError_t)cu.cuGraphExecDestroy(x);
}

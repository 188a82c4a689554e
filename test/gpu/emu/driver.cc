/* driver.cc: a library of the name of NVIDIA's driver whose GPU is the emulator, to try src/kernels/cuda/driver: kernels
 * are found by their names, as in a fat binary, and run with the arguments that the driver was given.
 *
 * Only the types of a kernel's parameters say how it is called. They are part of its name; so a kernel runs through the
 * launcher (cuda_impl.cuh) of the same types. What is captured runs when its graph is launched, with the arguments that
 * are then at the same addresses: the backend launches a graph only for the list that it was made of. */
#include <emulate.h>

#include <cuda.h>
#include <cxxabi.h>
#include <dlfcn.h>
#include <link.h>

#include <map>
#include <mutex>
#include <string>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

typedef void invoke_fn(const void *, void **);

/* "A, B" of "void f<1>(A, B)". */
std::string parameters_of(const std::string &text) {
    int depth = 0;
    for (size_t i = text.size(); i-- > 0;) {
        depth += (text[i] == ')') - (text[i] == '(');
        if (!depth) return text.substr(i + 1, text.size() - i - 2);
    }
    return "";
}

std::string readable(const char *mangled) {
    int rc;
    char *text = abi::__cxa_demangle(mangled, NULL, NULL, &rc);
    std::string s = text ? text : "";
    free(text);
    return s;
}

/* The launchers by the parameters of their kernels, from the symbols of this library (linked with --hash-style=sysv). */
const std::map<std::string, invoke_fn *> &launchers() {
    static const std::map<std::string, invoke_fn *> all = [] {
        std::map<std::string, invoke_fn *> out;
        Dl_info me;
        struct link_map *map;
        dladdr1((const void *)parameters_of, &me, (void **)&map, RTLD_DL_LINKMAP);
        const ElfW(Sym) *symbols = NULL;
        const char *names = NULL;
        const uint32_t *hash = NULL;
        for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++) {
            if (d->d_tag == DT_SYMTAB) symbols = (const ElfW(Sym) *)d->d_un.d_ptr;
            if (d->d_tag == DT_STRTAB) names = (const char *)d->d_un.d_ptr;
            if (d->d_tag == DT_HASH) hash = (const uint32_t *)d->d_un.d_ptr;
        }
        for (uint32_t i = 0; hash && i < hash[1]; i++) {
            const char *name = names + symbols[i].st_name;
            if (strncmp(name, "_ZN8launcherI", 13) || !strstr(name, "6invokeEPKvPPv")) continue;
            std::string text = readable(name); /* launcher<A, B>::invoke(void const*, void**) */
            size_t from = strlen("launcher<"), to = text.rfind(">::invoke");
            out[text.substr(from, to - from)] = (invoke_fn *)(map->l_addr + symbols[i].st_value);
        }
        return out;
    }();
    return all;
}

struct kernel {
    const void *function;
    invoke_fn *invoke;
    int max_dynamic; /* bytes of shared memory, as set by the attribute */
};
struct recorded {
    const kernel *k;
    dim3 grid, block;
    unsigned shared;
    std::vector<void *> args;
};
struct graph {
    std::vector<recorded> launches;
};
std::mutex lock;
std::map<std::string, kernel> kernels;
thread_local graph *capture;
enum { MOST_ARGS = 24 };

CUresult result(cudaError_t rc) { return (CUresult)rc; }

CUresult run(const recorded &r, CUstream s) {
    return result(emulate_launch(r.k->invoke, r.k->function, r.grid, r.block, r.shared,
                                 const_cast<void **>(r.args.data()), (cudaStream_t)s));
}

} // namespace

EXPORT CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
EXPORT CUresult cuDriverGetVersion(int *version) {
    const char *asked = getenv("EMULATE_DRIVER"); /* 12080: of CUDA 12.8 */
    return *version = asked ? atoi(asked) : CUDA_VERSION, CUDA_SUCCESS;
}
EXPORT CUresult cuGetErrorString(CUresult rc, const char **text) {
    return *text = cudaGetErrorString((cudaError_t)rc), CUDA_SUCCESS;
}
EXPORT CUresult cuGetProcAddress(const char *, void **to, int, cuuint64_t,
                                 CUdriverProcAddressQueryResult *found) {
    *to = NULL;
    *found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_ERROR_NOT_FOUND;
}

/* ---- devices ---- */

EXPORT CUresult cuDeviceGetCount(int *n) { return result(cudaGetDeviceCount(n)); }
EXPORT CUresult cuDeviceGetName(char *name, int n, CUdevice) {
    return snprintf(name, (size_t)n, "%s", emulate_name), CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceTotalMem(size_t *n, CUdevice) { return *n = (size_t)1 << 34, CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute a, CUdevice d) {
    cudaDeviceProp p;
    cudaGetDeviceProperties(&p, d);
    *value = a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? p.major
             : a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? p.minor
             : a == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT     ? p.multiProcessorCount
                                                                 : 128;
    return CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceCanAccessPeer(int *can, CUdevice, CUdevice) {
    return *can = 1, CUDA_SUCCESS;
}
EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) {
    return *c = (CUcontext)(uintptr_t)(d + 1), CUDA_SUCCESS;
}
EXPORT CUresult cuCtxSetCurrent(CUcontext c) {
    return result(cudaSetDevice((int)(uintptr_t)c - 1));
}
EXPORT CUresult cuCtxGetDevice(CUdevice *d) { return *d = emulate_device, CUDA_SUCCESS; }
EXPORT CUresult cuCtxEnablePeerAccess(CUcontext, unsigned) { return CUDA_SUCCESS; }

/* ---- memory ---- */

EXPORT CUresult cuMemAlloc(CUdeviceptr *p, size_t n) { return result(cudaMalloc((void **)p, n)); }
EXPORT CUresult cuMemFree(CUdeviceptr p) { return result(cudaFree((void *)p)); }
EXPORT CUresult cuMemHostAlloc(void **p, size_t n, unsigned) {
    return result(cudaMallocHost(p, n));
}
EXPORT CUresult cuMemFreeHost(void *p) { return result(cudaFreeHost(p)); }
EXPORT CUresult cuMemGetInfo(size_t *n_free, size_t *n_total) {
    return result(cudaMemGetInfo(n_free, n_total));
}
EXPORT CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s) {
    return result(cudaMemcpyAsync((void *)to, (const void *)from, n, 0, (cudaStream_t)s));
}
EXPORT CUresult cuMemsetD8Async(CUdeviceptr p, unsigned char byte, size_t n, CUstream s) {
    return result(cudaMemsetAsync((void *)p, byte, n, (cudaStream_t)s));
}

/* ---- streams, events, graphs ---- */

EXPORT CUresult cuStreamCreate(CUstream *s, unsigned flags) {
    return result(cudaStreamCreateWithFlags((cudaStream_t *)s, (int)flags));
}
EXPORT CUresult cuStreamDestroy(CUstream s) { return result(cudaStreamDestroy((cudaStream_t)s)); }
EXPORT CUresult cuStreamSynchronize(CUstream s) {
    return result(cudaStreamSynchronize((cudaStream_t)s));
}
EXPORT CUresult cuStreamQuery(CUstream s) { return result(cudaStreamQuery((cudaStream_t)s)); }
EXPORT CUresult cuStreamWaitEvent(CUstream, CUevent, unsigned) { return CUDA_SUCCESS; }
EXPORT CUresult cuStreamBeginCapture(CUstream, CUstreamCaptureMode) {
    if (capture) return CUDA_ERROR_ILLEGAL_STATE;
    return capture = new graph, CUDA_SUCCESS;
}
EXPORT CUresult cuStreamEndCapture(CUstream, CUgraph *g) {
    *g = (CUgraph)capture;
    capture = NULL;
    return *g ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_STATE;
}
EXPORT CUresult cuEventCreate(CUevent *e, unsigned flags) {
    return result(cudaEventCreateWithFlags((cudaEvent_t *)e, (int)flags));
}
EXPORT CUresult cuEventDestroy(CUevent e) { return result(cudaEventDestroy((cudaEvent_t)e)); }
EXPORT CUresult cuEventRecord(CUevent e, CUstream s) {
    return result(cudaEventRecord((cudaEvent_t)e, (cudaStream_t)s));
}
EXPORT CUresult cuEventRecordWithFlags(CUevent e, CUstream s, unsigned) {
    return cuEventRecord(e, s);
}
EXPORT CUresult cuEventSynchronize(CUevent) { return CUDA_SUCCESS; }
EXPORT CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to) {
    return result(cudaEventElapsedTime(ms, (cudaEvent_t)from, (cudaEvent_t)to));
}
EXPORT CUresult cuGraphInstantiate(CUgraphExec *x, CUgraph g, unsigned long long) {
    return *x = (CUgraphExec) new graph(*(graph *)g), CUDA_SUCCESS;
}
EXPORT CUresult cuGraphLaunch(CUgraphExec x, CUstream s) {
    for (const recorded &r : ((graph *)x)->launches) {
        CUresult rc = run(r, s);
        if (rc) return rc;
    }
    return CUDA_SUCCESS;
}
EXPORT CUresult cuGraphDestroy(CUgraph g) { return delete (graph *)g, CUDA_SUCCESS; }
EXPORT CUresult cuGraphExecDestroy(CUgraphExec x) { return delete (graph *)x, CUDA_SUCCESS; }

/* ---- kernels ---- */

EXPORT CUresult cuLibraryLoadData(CUlibrary *l, const void *code, CUjit_option *, void **, unsigned,
                                  CUlibraryOption *, void **, unsigned) {
    return *l = (CUlibrary)code, code ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}
EXPORT CUresult cuLibraryGetKernel(CUkernel *out, CUlibrary, const char *name) {
    std::lock_guard<std::mutex> held(lock);
    auto at = launchers().find(parameters_of(readable(name)));
    Dl_info me;
    dladdr((const void *)parameters_of, &me);
    void *self = dlopen(me.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    void *function = self ? dlsym(self, name) : NULL;
    if (!function || at == launchers().end()) {
        fprintf(stderr, "emulated driver: no kernel %s\n", name);
        return CUDA_ERROR_NOT_FOUND;
    }
    kernel *k = &kernels[name];
    *k = kernel{function, at->second, 48 << 10};
    return *out = (CUkernel)k, CUDA_SUCCESS;
}
EXPORT CUresult cuKernelSetAttribute(CUfunction_attribute a, int value, CUkernel k, CUdevice) {
    if (a == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) ((kernel *)k)->max_dynamic = value;
    else if (a != CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}
EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **args, void **) {
    const kernel *k = (const kernel *)f;
    if ((int)c->sharedMemBytes > k->max_dynamic) return CUDA_ERROR_INVALID_VALUE;
    recorded r = {k, dim3(c->gridDimX, c->gridDimY, c->gridDimZ),
                  dim3(c->blockDimX, c->blockDimY, c->blockDimZ), c->sharedMemBytes,
                  std::vector<void *>(args, args + MOST_ARGS)};
    if (!capture) return run(r, c->hStream);
    capture->launches.push_back(r);
    return CUDA_SUCCESS;
}

/* The functions of NVIDIA's runtime over those of its driver (src/kernels/cuda/driver), over a driver whose GPU is the
 * emulator (emu/driver.cc). Kernels are registered here as the compiler does it, by an address and a name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format off */
#include <cmocka.h>
/* clang-format on */

#include "kernels/cuda/driver/runtime.cuh"

static const char axpby, missing, unregistered; /* their addresses stand for the host's kernels */

/* y = alpha x + beta y, in three blocks. */
static void axpby_on(cudaStream_t s, float *y, float alpha, const float *x, float beta, long long n,
                     cudaError_t expected) {
    void *args[24] = {&y, &alpha, &x, &beta, &n};
    const cudaLaunchConfig_t config = {
        .gridDim = {3, 1, 1}, .blockDim = {32, 1, 1}, .stream = s, .dynamicSmemBytes = 0};
    assert_int_equal(cudaLaunchKernelExC(&config, &axpby, args), expected);
}

static void test_devices(void **state) {
    (void)state;
    int n = 0, value = 0, can = 0;
    cudaDeviceProp p = {0};
    assert_int_equal(cudaGetDeviceCount(&n), cudaSuccess);
    assert_int_equal(n, 8); /* of the emulator */
    assert_int_equal(cudaSetDevice(8), 101);
    assert_string_equal(cudaGetErrorString(101), "invalid device ordinal");
    assert_int_equal(cudaSetDevice(1), cudaSuccess);
    assert_int_equal(cudaGetDeviceProperties(&p, 1), cudaSuccess);
    assert_string_equal(p.name, "emulated");
    assert_int_equal(p.major, 9);
    assert_int_equal(p.multiProcessorCount, 5);
    assert_true(p.totalGlobalMem == (size_t)1 << 34);
    assert_int_equal(cudaDeviceGetAttribute(&value, cudaDevAttrGlobalMemoryBusWidth, 1), 0);
    assert_int_equal(value, 128);
    assert_int_equal(cudaDeviceCanAccessPeer(&can, 0, 1), cudaSuccess);
    assert_int_equal(cudaDeviceEnablePeerAccess(0, 0), cudaSuccess);
    assert_int_equal(cudaDeviceEnablePeerAccess(9, 0), 101);
    assert_int_equal(cudaSetDevice(0), cudaSuccess);
}

static void test_launch(void **state) {
    (void)state;
    float x[100], y[100], *dx = NULL, *dy = NULL;
    cudaStream_t s = NULL;
    cudaEvent_t from, to;
    float ms = -1;
    for (int i = 0; i < 100; i++) x[i] = (float)i, y[i] = 1000;
    assert_int_equal(cudaMalloc((void **)&dx, sizeof x), cudaSuccess);
    assert_int_equal(cudaMalloc((void **)&dy, sizeof y), cudaSuccess);
    assert_int_equal(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), cudaSuccess);
    assert_int_equal(cudaEventCreate(&from), cudaSuccess);
    assert_int_equal(cudaEventCreateWithFlags(&to, 0), cudaSuccess);
    assert_int_equal(cudaMemcpyAsync(dx, x, sizeof x, cudaMemcpyHostToDevice, s), cudaSuccess);
    assert_int_equal(cudaMemcpyAsync(dy, y, sizeof y, cudaMemcpyHostToDevice, s), cudaSuccess);
    assert_int_equal(cudaEventRecord(from, s), cudaSuccess);
    axpby_on(s, dy, 2, dx, 1, 90, cudaSuccess);
    assert_int_equal(cudaEventRecord(to, s), cudaSuccess);
    assert_int_equal(cudaMemcpyAsync(y, dy, sizeof y, cudaMemcpyDeviceToHost, s), cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(s), cudaSuccess);
    assert_int_equal(cudaEventElapsedTime(&ms, from, to), cudaSuccess);
    assert_true(ms > 0);
    for (int i = 0; i < 100; i++) assert_true(y[i] == (i < 90 ? 1000 + 2 * (float)i : 1000));

    /* what is captured runs once for each launch of its graph */
    cudaGraph_t g = NULL;
    cudaGraphExec_t exec = NULL;
    float one = 1, zero = 0;
    long long n = 100;
    void *args[24] = {&dy, &one, &dx, &one, &n};
    const cudaLaunchConfig_t config = {.gridDim = {1, 1, 1}, .blockDim = {64, 1, 1}, .stream = s};
    axpby_on(s, dy, 0, dx, 0, 100, cudaSuccess);
    assert_int_equal(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    assert_int_equal(cudaLaunchKernelExC(&config, &axpby, args), cudaSuccess);
    assert_int_equal(cudaStreamEndCapture(s, &g), cudaSuccess);
    assert_int_equal(cudaGraphInstantiate(&exec, g, 0), cudaSuccess);
    assert_int_equal(cudaGraphDestroy(g), cudaSuccess);
    for (int i = 0; i < 3; i++) assert_int_equal(cudaGraphLaunch(exec, s), cudaSuccess);
    assert_int_equal(cudaGraphExecDestroy(exec), cudaSuccess);
    assert_int_equal(cudaMemcpyAsync(y, dy, sizeof y, cudaMemcpyDeviceToHost, s), cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(s), cudaSuccess);
    for (int i = 0; i < 100; i++) assert_true(y[i] == 3 * (float)i);
    assert_int_equal(cudaMemsetAsync(dy, 0, sizeof y, s), cudaSuccess);
    assert_int_equal(cudaMemcpyAsync(y, dy, sizeof y, cudaMemcpyDeviceToHost, s), cudaSuccess);
    assert_true(y[99] == zero);
    cudaEventDestroy(from);
    cudaEventDestroy(to);
    cudaStreamDestroy(s);
    cudaFree(dx);
    cudaFree(dy);
}

static void test_kernels(void **state) {
    (void)state;
    const char *name = NULL;
    void *args[24] = {0};
    const cudaLaunchConfig_t config = {.gridDim = {1, 1, 1}, .blockDim = {32, 1, 1}};
    assert_int_equal(cudaFuncGetName(&name, &axpby), cudaSuccess);
    assert_string_equal(name, "_Z12axpby_kernelPffPKffx");
    assert_int_equal(
        cudaFuncSetAttribute(&axpby, cudaFuncAttributePreferredSharedMemoryCarveout, 50),
        cudaSuccess);
    assert_int_not_equal(cudaFuncSetAttribute(&axpby, 77, 0), cudaSuccess);
    /* a kernel that the binary lacks, and an address that no compiler registered */
    assert_int_equal(cudaLaunchKernelExC(&config, &missing, args), 500);
    assert_int_equal(cudaLaunchKernelExC(&config, &unregistered, args), 500);
    assert_int_equal(cudaFuncGetName(&name, &unregistered), 500);
    assert_null(name);
}

int main(void) {
    static const char code[] = "the emulated driver knows the kernels itself";
    struct {
        int magic, version;
        const void *data;
        void *unused;
    } wrapper = {0x466243b1, 1, code, NULL};
    void **binary = __cudaRegisterFatBinary(&wrapper);
    __cudaRegisterFunction(binary, &missing, NULL, "_Z10no_kernelv", -1, NULL, NULL, NULL, NULL,
                           NULL);
    __cudaRegisterFunction(binary, &axpby, NULL, "_Z12axpby_kernelPffPKffx", -1, NULL, NULL, NULL,
                           NULL, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_devices),
        cmocka_unit_test(test_launch),
        cmocka_unit_test(test_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

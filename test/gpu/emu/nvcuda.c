/* nvcuda.c: nvcuda.dll for Wine, a bridge to the libcuda.so.1 of driver.cc: each function passes nine words on, as many as
 * any takes, from the registers of Windows to those of Linux. CALLS lists the functions (script/release-check-windows-cuda). */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

static void *find(const char *name) {
    static void *library;
    if (!library) library = dlopen(getenv("EMULATED_DRIVER"), RTLD_NOW | RTLD_LOCAL);
    return library ? dlsym(library, name) : NULL;
}

#define X(name)                                                                                    \
    __attribute__((ms_abi, visibility("default"))) uint64_t name(                                  \
        uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g,        \
        uint64_t h, uint64_t i) {                                                                  \
        typedef uint64_t fn(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,  \
                            uint64_t, uint64_t);                                                   \
        fn *to = (fn *)find(#name);                                                                \
        return to ? to(a, b, c, d, e, f, g, h, i) : 999;                                           \
    }
CALLS(X)

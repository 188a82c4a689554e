/* self_mac.c: what os.h takes from macOS: waiting for a word, the size of the cache, the running program. */
#include <limits.h>
#include <mach-o/dyld.h>
#include <stdlib.h>
#include <sys/sysctl.h>
#include <unistd.h>

#include "base/os/os.h"

/* Of libSystem since macOS 10.12, without a header; os_sync_wait_on_address does the same since 14.4. */
int __ulock_wait(uint32_t operation, void *a, uint64_t value, uint32_t timeout_us);
int __ulock_wake(uint32_t operation, void *a, uint64_t value);
enum { COMPARE_AND_WAIT = 1, WAKE_ALL = 0x100, NO_ERRNO = 0x1000000 };

void os_wait_word(_Atomic uint32_t *a, uint32_t seen) {
    __ulock_wait(COMPARE_AND_WAIT | NO_ERRNO, (void *)a, seen, 0);
}

void os_wake_word(_Atomic uint32_t *a) {
    __ulock_wake(COMPARE_AND_WAIT | WAKE_ALL | NO_ERRNO, (void *)a, 0);
}

/* Apple's processors share their second level. */
int64_t os_l3_bytes(void) {
    int64_t bytes = 0;
    size_t n = sizeof bytes;
    return sysctlbyname("hw.perflevel0.l2cachesize", &bytes, &n, NULL, 0) ? 0 : bytes;
}

bool os_program(char *out, size_t out_size) {
    char path[4096], real[PATH_MAX];
    uint32_t n = sizeof path;
    if (_NSGetExecutablePath(path, &n) || !realpath(path, real)) return false;
    return (size_t)snprintf(out, out_size, "%s", real) < out_size;
}

void os_run_again(char *const *argv) {
    char path[4096];
    if (os_program(path, sizeof path)) execv(path, argv);
}

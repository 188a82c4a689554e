/* self_posix.c: what os.h takes from Linux: waiting for a word, the size of the cache, the running program. */
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/os/os.h"

int64_t os_l3_bytes(void) {
    long n = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return n > 0 ? n : 0;
}

void os_wait_word(_Atomic uint32_t *a, uint32_t seen) {
    syscall(SYS_futex, a, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

void os_wake_word(_Atomic uint32_t *a) {
    syscall(SYS_futex, a, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

bool os_program(char *out, size_t out_size) {
    ssize_t n = readlink("/proc/self/exe", out, out_size - 1);
    if (n <= 0 || (size_t)n == out_size - 1) return false;
    out[n] = 0;
    return true;
}

enum { CLOSE_ON_EXEC = 4 }; /* CLOSE_RANGE_CLOEXEC; older headers lack it */

void os_run_again(char *const *argv) {
    char path[4096];
    if (!os_program(path, sizeof path)) return;
#ifdef SYS_close_range
    syscall(SYS_close_range, 3U, ~0U,
            CLOSE_ON_EXEC); /* before Linux 5.11, libraries' files stay open */
#endif
    execv(path, argv);
}

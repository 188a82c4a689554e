/* random_win.c: sys/random.h. */
#include <sys/random.h>

#include <windows.h>

#include <ntsecapi.h> /* needs windows.h */

ssize_t getrandom(void *out, size_t n, unsigned flags) {
    (void)flags;
    return n <= ULONG_MAX && RtlGenRandom(out, (ULONG)n) ? (ssize_t)n : -1;
}

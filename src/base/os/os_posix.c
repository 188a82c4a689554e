/* os_posix.c: os.h for POSIX. */
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/os/os.h"

long os_cores(void) { return sysconf(_SC_NPROCESSORS_ONLN); }

uint64_t os_memory_bytes(void) {
    return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

size_t os_page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

uint64_t os_allow_files(uint64_t n) {
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l)) return n;
    if (l.rlim_cur < n) {
        l.rlim_cur = l.rlim_max < n ? l.rlim_max : n;
        setrlimit(RLIMIT_NOFILE, &l);
    }
    return l.rlim_cur;
}

void os_host_name(char *out, size_t out_size) {
    out[0] = 0;
    if (out_size > 1 && gethostname(out, out_size - 1)) out[0] = 0;
    out[out_size - 1] = 0;
}

void os_version(char *out, size_t out_size) {
    struct utsname u;
    if (uname(&u)) snprintf(out, out_size, "unknown");
    else snprintf(out, out_size, "%s %s %s", u.sysname, u.release, u.machine);
}

bool os_is_terminal(FILE *f) { return isatty(fileno(f)) != 0; }

void os_sleep_ms(int32_t ms) {
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    while (nanosleep(&left, &left)) {}
}

/* The descriptor that replaces standard output cannot be written to, so that writing fails as with a full disk. */
bool os_hold_streams(void) {
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 2 ? O_WRONLY : O_RDONLY) != fd)
            return false;
    return true;
}

bool os_is_absolute(const char *path) { return *path == '/'; }

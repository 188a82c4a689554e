/* sandbox_memory.c: measures the memory of a sandbox. A limit on address space would stop programs that only
 * reserve addresses, such as JavaScript engines. Only a cgroup limits resident memory, and that needs a delegated
 * cgroup. */
#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "tools/sandbox_impl.h"

static const char *const quick[] = {"RssAnon:", "RssShmem:", "VmSwap:", NULL},
                         *const exact[] = {"Pss_Anon:", "Pss_Shmem:", "SwapPss:", NULL};

static uint64_t sum_rows(int dir, const char *path, const char *const *rows) {
    char text[8192];
    int fd = openat(dir, path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    uint64_t kib = 0;
    if (fd >= 0) close(fd);
    text[n > 0 ? n : 0] = 0;
    for (; *rows; ++rows) {
        const char *at = strstr(text, *rows);
        if (at) kib += strtoull(at + strlen(*rows), NULL, 10);
    }
    return kib << 10;
}

/* Opens the /proc inside the sandbox, which shows only its processes. If it could not be mounted, the program may
 * have put something else there: a link, or pipes that would block the reader. */
static DIR *open_proc(int pid) {
    char path[64];
    struct statfs fs;
    snprintf(path, sizeof path, "/proc/%d/root/proc", pid);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd >= 0 && !fstatfs(fd, &fs) && fs.f_type == PROC_SUPER_MAGIC ? fdopendir(fd) : NULL;
    if (!d && fd >= 0) close(fd);
    return d;
}

static bool has_namespace(int dir, const char *process, const char *space) {
    char path[300], link[64];
    snprintf(path, sizeof path, "%s/ns/pid", process);
    ssize_t n = readlinkat(dir, path, link, sizeof link - 1);
    if (n < 0) return false;
    link[n] = 0;
    return !strcmp(link, space);
}

/* Sums the rows of `file` over the processes in PID namespace `space`; NULL: over all processes. */
static uint64_t sum_all(DIR *d, const char *space, const char *file, const char *const *rows) {
    uint64_t sum = 0;
    rewinddir(d);
    for (const struct dirent *t; (t = readdir(d));) {
        char path[300];
        if (t->d_name[0] < '1' || t->d_name[0] > '9') continue;
        if (space && !has_namespace(dirfd(d), t->d_name, space)) continue;
        snprintf(path, sizeof path, "%s/%s", t->d_name, file);
        sum += sum_rows(dirfd(d), path, rows);
    }
    return sum;
}

bool sandbox_exceeds(int pid, bool has_namespaces, uint64_t most) {
    char path[64], link[64] = "";
    if (!has_namespaces) { /* without namespaces there is only one process */
        snprintf(path, sizeof path, "/proc/%d/status", pid);
        return sum_rows(AT_FDCWD, path, quick) > most;
    }
    const char *space = NULL;
    DIR *d = open_proc(pid);
    if (!d && (d = opendir("/proc"))) { /* no /proc inside, as in a container: use the system's */
        snprintf(path, sizeof path, "/proc/%d/ns/pid", pid);
        ssize_t n = readlink(path, link, sizeof link - 1);
        link[n > 0 ? n : 0] = 0;
        space = link;
    }
    uint64_t sum = d ? sum_all(d, space, "status", quick) : 0;
    /* status counts pages shared by forked processes once per process; smaps_rollup does not */
    if (sum > most) {
        uint64_t shared = sum_all(d, space, "smaps_rollup", exact);
        if (shared) sum = shared;
    }
    if (d) closedir(d);
    return sum > most;
}

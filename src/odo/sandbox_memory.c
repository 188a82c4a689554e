/* sandbox_memory.c: how much memory a sandbox holds. An address-space limit would stop programs that only reserve
 * addresses, as JavaScript engines do; there is no resident limit but a cgroup's, which needs a delegated one. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "odo/sandbox_impl.h"

static const char *const quick[] = {"RssAnon:", "RssShmem:", "VmSwap:", NULL},
                         *const exact[] = {"Pss_Anon:", "Pss_Shmem:", "SwapPss:", NULL};

static uint64_t sum_rows(int dir, const char *path, const char *const *rows) {
    char text[8192];
    int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
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

/* Processes of a /proc that shows the sandbox alone. */
static uint64_t sum_all(const char *proc, const char *file, const char *const *rows) {
    DIR *d = opendir(proc);
    uint64_t sum = 0;
    for (const struct dirent *t; d && (t = readdir(d));) {
        char path[300];
        if (t->d_name[0] < '1' || t->d_name[0] > '9') continue;
        snprintf(path, sizeof path, "%s/%s", t->d_name, file);
        sum += sum_rows(dirfd(d), path, rows);
    }
    if (d) closedir(d);
    return sum;
}

bool sandbox_exceeds(int pid, bool has_namespaces, uint64_t most) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/root/proc", pid);
    uint64_t sum = has_namespaces ? sum_all(path, "status", quick) : 0;
    if (sum > most) { /* pages shared by forked processes were counted for each of them */
        uint64_t shared = sum_all(path, "smaps_rollup", exact);
        return !shared || shared > most;
    }
    if (sum) return false;
    snprintf(path, sizeof path, "/proc/%d/status", pid); /* no /proc inside */
    return sum_rows(AT_FDCWD, path, quick) > most;
}

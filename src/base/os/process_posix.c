#include "base/os/process.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Start time of a process; 0 without /proc. Program names may contain spaces and parentheses, so fields are counted
 * from the last ')'. */
static unsigned long long start_of(long pid) {
    char path[32], text[1024];
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *f = fopen(path, "re");
    if (!f) return 0;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    const char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
    unsigned long long start = 0;
    return at && sscanf(at, " %llu", &start) == 1 ? start : 0;
}

void process_self(char out[PROCESS_MAX_NAME]) {
    long pid = getpid();
    snprintf(out, PROCESS_MAX_NAME, "%ld/%llu", pid, start_of(pid));
}

bool process_is_alive(const char *name) {
    long pid;
    unsigned long long start;
    char end;
    if (sscanf(name, "%ld/%llu%c", &pid, &start, &end) != 2 || pid <= 0) return false;
    if (kill((pid_t)pid, 0) && errno != EPERM) return false;
    return start_of(pid) == start;
}

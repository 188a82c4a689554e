/* topology_posix.c: the processors of this process, on Linux. */
#include "base/os/topology.h"

#include <limits.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os/cgroup.h"
#include "base/os/topology_impl.h"

/* Reads the first line of a file in sysfs. */
__attribute__((format(printf, 4, 5))) static bool read_line(const char *sysfs, char *line, size_t n,
                                                            const char *format, ...) {
    char path[512];
    int at = snprintf(path, sizeof path, "%s/", sysfs);
    if (at < 0 || (size_t)at >= sizeof path) return false;
    va_list args;
    va_start(args, format);
    vsnprintf(path + at, sizeof path - (size_t)at, format, args);
    va_end(args);
    FILE *f = fopen(path, "re");
    bool ok = f && fgets(line, (int)n, f);
    if (f) fclose(f);
    return ok;
}

/* Parses a list like "0-3,8"; stops at the first unknown character. */
static void parse_list(const char *s, cpu_set_t *set) {
    CPU_ZERO(set);
    while (*s >= '0' && *s <= '9') {
        char *end;
        long from = strtol(s, &end, 10), to = from;
        if (*end == '-') to = strtol(end + 1, &end, 10);
        for (long i = from; i <= to && i < CPU_SETSIZE; i++) CPU_SET((size_t)i, set);
        if (*end != ',') return;
        s = end + 1;
    }
}

/* Returns the lowest-numbered hardware thread of cpu's core. */
static int first_sibling(const char *sysfs, int cpu) {
    char line[256];
    if (!read_line(sysfs, line, sizeof line,
                   "devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu))
        return cpu;
    long first = strtol(line, NULL, 10);
    return first >= 0 && first < CPU_SETSIZE ? (int)first : cpu;
}

static long speed_of(const char *sysfs, int cpu, const char *file) {
    char line[64];
    if (!read_line(sysfs, line, sizeof line, "devices/system/cpu/cpu%d/%s", cpu, file)) return 0;
    return strtol(line, NULL, 10);
}

/* Counts the performance cores among `cores`: those that the kernel lists (Intel), else those with at least four fifths
 * of the highest capacity (ARM) or frequency. Turbo frequencies of equal cores differ by less. */
static int performance_cores(const char *sysfs, const cpu_set_t *cores, int n_core) {
    char line[1024];
    cpu_set_t fast;
    if (read_line(sysfs, line, sizeof line, "devices/cpu_core/cpus")) {
        parse_list(line, &fast);
        CPU_AND(&fast, &fast, cores);
        return CPU_COUNT(&fast);
    }
    static const char *const files[] = {"cpu_capacity", "cpufreq/cpuinfo_max_freq"};
    for (size_t k = 0; k < sizeof files / sizeof *files; k++) {
        long speed[CPU_SETSIZE], most = 0;
        int n = 0, known = 0;
        for (int i = 0; i < CPU_SETSIZE; i++) {
            speed[i] = CPU_ISSET((size_t)i, cores) ? speed_of(sysfs, i, files[k]) : 0;
            known += speed[i] > 0;
            most = speed[i] > most ? speed[i] : most;
        }
        if (known < n_core) continue;
        for (int i = 0; i < CPU_SETSIZE; i++) n += speed[i] > 0 && speed[i] >= most / 5 * 4;
        return n;
    }
    return n_core;
}

static int numa_nodes(const char *sysfs) {
    char line[256];
    cpu_set_t nodes;
    if (!read_line(sysfs, line, sizeof line, "devices/system/node/online")) return 1;
    parse_list(line, &nodes);
    return CPU_COUNT(&nodes) > 0 ? CPU_COUNT(&nodes) : 1;
}

void topology_read(const char *sysfs, const char *cpus, double quota, struct topology *out) {
    cpu_set_t allowed, cores;
    CPU_ZERO(&cores);
    if (!sysfs) sysfs = "/sys";
    if (cpus) parse_list(cpus, &allowed);
    else if (sched_getaffinity(0, sizeof allowed, &allowed)) parse_list("0", &allowed);
    if (quota < 0) {
        struct cgroup_limits l;
        cgroup_read(NULL, NULL, &l);
        quota = l.n_cpu < INT_MAX ? l.n_cpu : 0;
    }
    *out = (struct topology){
        .n_cpu = CPU_COUNT(&allowed), .n_node = numa_nodes(sysfs), .quota = quota};
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET((size_t)i, &allowed)) continue;
        int first = first_sibling(sysfs, i);
        if (first == i || !CPU_ISSET((size_t)first, &allowed)) CPU_SET((size_t)i, &cores);
    }
    out->n_core = CPU_COUNT(&cores);
    out->n_fast = performance_cores(sysfs, &cores, out->n_core);
    out->n_thread = topology_choose(out);
}

#include "base/os/cgroup.h"

#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 4096 };

/* Files of one version's controllers, in a group's folder. */
struct cpu_files {
    const char *quota, *period; /* period NULL: it is the second number in the file quota */
};
struct memory_files {
    const char *limit, *used, *stat, *cache; /* cache: name of the field in the file stat */
};
static const struct cpu_files cpu_v2 = {"cpu.max", NULL};
static const struct cpu_files cpu_v1 = {"cpu.cfs_quota_us", "cpu.cfs_period_us"};
static const struct memory_files memory_v2 = {"memory.max", "memory.current", "memory.stat",
                                              "file"};
static const struct memory_files memory_v1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                              "memory.stat", "total_cache"};

/* Reads up to two numbers at the beginning of DIR/NAME; returns how many there are. "max" is not a number. */
static int numbers(const char *dir, const char *name, unsigned long long out[2]) {
    char path[PATH_BYTES];
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path) return 0;
    FILE *f = fopen(path, "re");
    if (!f) return 0;
    long long a = -1, b = -1;
    int n = fscanf(f, "%lld %lld", &a, &b);
    fclose(f);
    if (n < 1 || a < 0) return 0; /* -1: no limit (version 1) */
    out[0] = (unsigned long long)a;
    out[1] = b > 0 ? (unsigned long long)b : 0;
    return n;
}

static unsigned long long field(const char *dir, const char *name, const char *key) {
    char path[PATH_BYTES], line[256], word[64];
    unsigned long long v, found = 0;
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path) return 0;
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "%63s %llu", word, &v) == 2 && strcmp(word, key) == 0) found = v;
    if (f) fclose(f);
    return found;
}

static void see_cpu(const char *dir, const struct cpu_files *f, struct cgroup_limits *out) {
    unsigned long long quota[2], period[2];
    if (!numbers(dir, f->quota, quota)) return;
    if (f->period && !numbers(dir, f->period, period)) return;
    unsigned long long per = f->period ? period[0] : quota[1];
    if (!quota[0] || !per) return;
    double n = (double)quota[0] / (double)per;
    if (!out->n_cpu || n < out->n_cpu) out->n_cpu = n;
}

static void see_memory(const char *dir, const struct memory_files *f, struct cgroup_limits *out) {
    unsigned long long most[2], used[2] = {0, 0};
    if (!numbers(dir, f->limit, most)) return;
    numbers(dir, f->used, used);
    unsigned long long cache = field(dir, f->stat, f->cache);
    used[0] -= cache < used[0] ? cache : used[0];
    uint64_t left = most[0] > used[0] ? most[0] - used[0] : 0;
    if (left < out->memory_bytes) out->memory_bytes = left;
}

/* Reads every group from the mount's root down to path. If path does not exist (in a container without its own
 * namespace), at least the root is read. */
static void see_groups(const char *mount, const char *path, const struct cpu_files *cpu,
                       const struct memory_files *memory, struct cgroup_limits *out) {
    char dir[PATH_BYTES];
    size_t n = strlen(mount);
    if (snprintf(dir, sizeof dir, "%s%s", mount, path) >= (int)sizeof dir) return;
    for (;;) {
        if (cpu) see_cpu(dir, cpu, out);
        if (memory) see_memory(dir, memory, out);
        char *slash = strrchr(dir, '/');
        if (!slash || slash < dir + n) return;
        *slash = 0;
    }
}

static bool has_controller(const char *list, const char *name) {
    size_t n = strlen(name);
    for (const char *p = list; p && *p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (strncmp(p, name, n) == 0 && (p[n] == ',' || !p[n])) return true;
    return false;
}

/* Reads one line of /proc/self/cgroup: "ID:CONTROLLERS:PATH"; version 2 has no controllers in it. */
static void see_line(char *line, const char *root, struct cgroup_limits *out) {
    char mount[PATH_BYTES];
    char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
    if (!path) return;
    *path++ = 0;
    list++;
    path[strcspn(path, "\n")] = 0;
    if (strcmp(path, "/") == 0 || strstr(path, "..")) path[0] = 0;
    if (!*list) {
        see_groups(root, path, &cpu_v2, &memory_v2, out);
        snprintf(mount, sizeof mount, "%s/unified", root);
        see_groups(mount, path, &cpu_v2, &memory_v2, out);
        return;
    }
    bool cpu = has_controller(list, "cpu"), memory = has_controller(list, "memory");
    if (!cpu && !memory) return;
    snprintf(mount, sizeof mount, "%s/%s", root, list);
    see_groups(mount, path, cpu ? &cpu_v1 : NULL, memory ? &memory_v1 : NULL, out);
    snprintf(mount, sizeof mount, "%s/%s", root, cpu ? "cpu" : "memory");
    see_groups(mount, path, cpu ? &cpu_v1 : NULL, memory ? &memory_v1 : NULL, out);
}

void cgroup_read(const char *self, const char *root, struct cgroup_limits *out) {
    char line[PATH_BYTES];
    *out = (struct cgroup_limits){.memory_bytes = UINT64_MAX};
    if (!root) root = "/sys/fs/cgroup";
    FILE *f = fopen(self ? self : "/proc/self/cgroup", "re");
    while (f && fgets(line, sizeof line, f)) see_line(line, root, out);
    if (f) fclose(f);
}

/* cgroup.h: the limits that control groups set for this process: processors and memory.
 *
 * Supports version 2 (unified and nested: systemd units, containers) and version 1. Every group from the process's
 * group up to the root applies, so the smallest limit counts. No state; any thread. */
#ifndef CHIMERE_BASE_CGROUP_H
#define CHIMERE_BASE_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

struct cgroup_limits {
    double n_cpu; /* processors that the quota allows; 0: no limit */
    /* memory that may still be allocated, counting page cache as free; UINT64_MAX: no limit */
    uint64_t memory_bytes;
};

/* self: contents as in /proc/self/cgroup; root: mount point of the hierarchies; NULL: the system's. */
void cgroup_read(const char *self, const char *root, struct cgroup_limits *out);

#endif

/* cgroup.h: what the control groups that this process is in leave it of processors and memory.
 *
 * Reads version 2 (unified and nested: systemd units, containers) and version 1. A limit of any group on the
 * way from the process's own up to the root holds, so the tightest one counts. No state; any thread. */
#ifndef CHIMERE_BASE_CGROUP_H
#define CHIMERE_BASE_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

struct cgroup_limits {
    double n_cpu; /* processors that the quota pays for; 0: no limit */
    uint64_t
        memory_bytes; /* that may still be taken, page cache counted as free; UINT64_MAX: no limit */
};

/* self: as /proc/self/cgroup; root: where the hierarchies are mounted; NULL: the system's own. */
void cgroup_read(const char *self, const char *root, struct cgroup_limits *out);

#endif

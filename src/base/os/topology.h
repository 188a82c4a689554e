/* topology.h: the processors that this process may use, and how many threads should compute on them.
 *
 * Each call reads sysfs, the affinity mask and the quota of the control group; no state, any thread. For data that
 * cannot be read, the common case is assumed: cores without siblings, all alike, one node, no quota. */
#ifndef CHIMERE_BASE_TOPOLOGY_H
#define CHIMERE_BASE_TOPOLOGY_H

#include <stddef.h>

struct topology {
    int n_cpu;    /* hardware threads in the affinity mask */
    int n_core;   /* their physical cores */
    int n_fast;   /* performance cores among these; n_core if all are alike */
    int n_node;   /* NUMA nodes of the machine */
    double quota; /* processors that the control group's quota allows; 0: no limit */
    int n_thread; /* chosen number of threads */
};

/* sysfs: NULL for /sys. cpus: the affinity mask as a list like "0-3,8"; NULL for the process's mask. quota < 0: the
 * control group's quota. */
void topology_read(const char *sysfs, const char *cpus, double quota, struct topology *out);
/* "6: one per performance core (8 efficiency cores and SMT siblings unused)" */
void topology_explain(const struct topology *t, char *out, size_t n);

#endif

/* topology_mac.c: the processors of this machine, on macOS, which limits no process to some of them. */
#include <sys/sysctl.h>

#include "base/os/topology.h"
#include "base/os/topology_impl.h"

static int count(const char *name) {
    int n = 0;
    size_t size = sizeof n;
    return sysctlbyname(name, &n, &size, NULL, 0) || n < 1 ? 1 : n;
}

void topology_read(const char *sysfs, const char *cpus, double quota, struct topology *out) {
    (void)sysfs, (void)cpus, (void)quota;
    *out = (struct topology){.n_cpu = count("hw.logicalcpu"),
                             .n_core = count("hw.physicalcpu"),
                             .n_fast = count("hw.perflevel0.physicalcpu"),
                             .n_node = 1};
    out->n_thread = topology_choose(out);
}

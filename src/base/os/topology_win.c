/* topology_win.c: the processors of this process, on Windows. */
#include <windows.h>

#include "base/os/topology.h"
#include "base/os/topology_impl.h"

enum { MAX_INFO = 1 << 16 };

void topology_read(const char *sysfs, const char *cpus, double quota, struct topology *out) {
    (void)sysfs, (void)cpus, (void)quota;
    static _Alignas(8) char info[MAX_INFO]; /* the same for all callers */
    DWORD n = sizeof info;
    int n_cpu = 0, n_core = 0, n_fast = 0, n_node = 0, fastest = 0;
    if (!GetLogicalProcessorInformationEx(RelationAll, (void *)info, &n)) n = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (DWORD at = 0; at < n;) {
            const SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX *x = (const void *)(info + at);
            at += x->Size;
            if (pass == 0 && x->Relationship == RelationNumaNode) n_node++;
            if (x->Relationship != RelationProcessorCore) continue;
            if (pass) {
                n_fast += x->Processor.EfficiencyClass == fastest;
                continue;
            }
            n_core++;
            if (x->Processor.EfficiencyClass > fastest) fastest = x->Processor.EfficiencyClass;
            for (WORD g = 0; g < x->Processor.GroupCount; g++)
                n_cpu += __builtin_popcountll(x->Processor.GroupMask[g].Mask);
        }
    }
    if (!n_core) n_core = n_fast = n_cpu = (int)GetActiveProcessorCount(ALL_PROCESSOR_GROUPS);
    *out = (struct topology){
        .n_cpu = n_cpu, .n_core = n_core, .n_fast = n_fast, .n_node = n_node ? n_node : 1};
    out->n_thread = topology_choose(out);
}

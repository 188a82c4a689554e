#include "base/os/topology.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/os/topology_impl.h"

/* Chooses the number of threads. Slow cores are excluded unless they are most of the machine, because with equal shares
 * all threads would run at their speed. */
int topology_choose(const struct topology *t) {
    int n = t->n_fast > 0 && t->n_core - t->n_fast <= 2 * t->n_fast ? t->n_fast : t->n_core;
    /* more threads than the quota allows would wait for each other */
    if (t->quota > 0 && t->quota < n) {
        int whole = (int)t->quota;
        n = whole + (t->quota > whole);
    }
    return n > 0 ? n : 1;
}

void topology_explain(const struct topology *t, char *out, size_t n) {
    bool quota = t->quota > 0 && t->n_thread == (int)t->quota + (t->quota > (int)t->quota);
    bool fast = t->n_fast < t->n_core && t->n_thread == t->n_fast;
    if (quota)
        snprintf(out, n, "%d: the control group's quota of %.3g processors (%d cores)", t->n_thread,
                 t->quota, t->n_core);
    else if (fast)
        snprintf(out, n, "%d: one per performance core (%d efficiency cores unused)", t->n_thread,
                 t->n_core - t->n_fast);
    else snprintf(out, n, "%d: one per core", t->n_thread);
    size_t at = strlen(out);
    if (t->n_cpu > t->n_core)
        at += (size_t)snprintf(out + at, n - at, ", %d SMT siblings unused", t->n_cpu - t->n_core);
    if (at < n && t->n_node > 1) snprintf(out + at, n - at, ", %d NUMA nodes", t->n_node);
}

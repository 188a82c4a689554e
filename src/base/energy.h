/* energy.h: energy that processors, their memory and NVIDIA GPUs have used, in joules since the reader was opened.
 *
 * Processors and memory by RAPL, from the powercap folder of sysfs (on most systems only root may read it); GPUs by
 * the energy counter of NVML, which is loaded at run time if it is installed. What cannot be read is absent: no
 * error. The counters are the machine's, not the process's. A RAPL counter wraps after about 260 kJ, an hour of a busy
 * desktop: read at least that often. Any thread. */
#ifndef CHIMERE_BASE_ENERGY_H
#define CHIMERE_BASE_ENERGY_H

#include <stdbool.h>
#include <stddef.h>

struct energy;

struct energy_joules {
    bool has_cpu, has_memory, has_gpu; /* readable here */
    double cpu, memory, gpu;           /* of all packages, of all memory domains, of all GPUs */
};

/* powercap: NULL for /sys/class/powercap. nvml: library to load, NULL for libnvidia-ml.so.1, "" for none.
 * NULL: out of memory. */
struct energy *energy_open(const char *powercap, const char *nvml);
void energy_close(struct energy *g); /* NULL is allowed */
/* False: nothing is readable. */
bool energy_read(struct energy *g, struct energy_joules *out);
double energy_total(const struct energy_joules *j); /* of what is readable */

/* The process's reader, opened by the first call and never closed; so that bench, serve and night share one. */
bool energy_now(struct energy_joules *out);
/* Why nothing is readable, or what is: "2 RAPL domains, 1 GPU". */
void energy_about(char *out, size_t n);

#endif

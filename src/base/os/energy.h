/* energy.h: energy used by processors, their memory and NVIDIA GPUs, in joules since the reader was opened.
 *
 * Processors and memory are read by RAPL, from the powercap folder of sysfs (on most systems only root may read it).
 * GPUs are read by the energy counter of NVML, which is loaded at run time if it is installed. What cannot be read is
 * reported as absent, not as an error. The counters include all processes of the machine. A RAPL counter wraps after
 * about 260 kJ, an hour of a busy desktop: read at least that often. Any thread may call this. */
#ifndef CHIMERE_BASE_ENERGY_H
#define CHIMERE_BASE_ENERGY_H

#include <stdbool.h>
#include <stddef.h>

struct energy;

struct energy_joules {
    bool has_cpu, has_memory, has_gpu; /* whether the counter can be read */
    double cpu, memory, gpu;           /* sums over all packages, all memory domains, all GPUs */
};

/* powercap: NULL for /sys/class/powercap. nvml: library to load; NULL for libnvidia-ml.so.1, "" for none. Returns NULL
 * if out of memory. */
struct energy *energy_open(const char *powercap, const char *nvml);
void energy_close(struct energy *g); /* g may be NULL */
/* Returns false if no counter can be read. */
bool energy_read(struct energy *g, struct energy_joules *out);
double energy_total(const struct energy_joules *j); /* sum of the values that can be read */

/* Reads with a reader that is shared by the whole process. The first call opens it; it is never closed. bench, serve
 * and night share it. */
bool energy_now(struct energy_joules *out);
/* Describes which counters can be read ("2 RAPL domains, 1 GPU"), or why none can. */
void energy_about(char *out, size_t n);

#endif

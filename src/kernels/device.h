/* device.h: the device a command runs on: the processor, or a GPU if this build supports
 * one and the machine has one. */
#ifndef CHIMERE_KERNELS_DEVICE_H
#define CHIMERE_KERNELS_DEVICE_H

#include "kernels/cpu/cpu.h"

struct device_params {
    /* "auto", "cpu", "cuda" or "cuda:N". auto: the first GPU if this build and this machine have one that works, else cpu.
     * NULL: auto */
    const char *name;
    int n_thread; /* of the processor; 0: one per core */
    enum cpu_isa isa;
    uint64_t vram_bytes; /* upper limit for a GPU; 0: its free memory */
};

/* Returns CHIMERE_EUNSUPPORTED if the requested device does not exist; the error message says why. */
int device_open(struct dev **out, const struct device_params *p, struct err *e);

/* Whether auto tries a GPU. */
bool device_has_gpu(void);

/* A number of what the last bits of results depend on: of a processor its level of SIMD, of a GPU card.h's number. */
uint64_t device_kind(const struct dev *d);

#endif

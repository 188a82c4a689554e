/* device.h: which device a command runs on: the processor, or a GPU where this build and machine have one. */
#ifndef CHIMERE_KERNELS_DEVICE_H
#define CHIMERE_KERNELS_DEVICE_H

#include "kernels/cpu/cpu.h"

struct device_params {
    const char *name; /* "auto", "cpu", "cuda" or "cuda:N"; NULL: auto, which is cpu until the GPU's
                         kernels have been measured on one */
    int n_thread;     /* of the processor; 0: one a core */
    enum cpu_isa isa;
    uint64_t vram_bytes; /* take no more of a GPU than this; 0: what is free */
};

/* CHIMERE_EUNSUPPORTED where a device is asked for that is not there; the sentence says why. */
int device_open(struct dev **out, const struct device_params *p, struct err *e);

#endif

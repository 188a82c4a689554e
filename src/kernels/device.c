/* device.c: opens a device by name. */
#include "kernels/device.h"

#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/str.h"

#ifdef CHIMERE_CUDA
#include "kernels/cuda/card.h"
#include "kernels/cuda/cuda.h"

static int open_gpu(struct dev **out, const struct device_params *p, int number, struct err *e) {
    const struct cuda_params c = {
        .device = number, .n_thread = p->n_thread, .vram_bytes = p->vram_bytes};
    return cuda_open(out, &c, e);
}

static int count_gpus(struct err *e) { return cuda_count(e); }

static uint64_t gpu_kind(const struct dev *d) {
    return strcmp(d->ops->name, "cuda") ? 0 : cuda_card(d);
}
#else
static int open_gpu(struct dev **out, const struct device_params *p, int number, struct err *e) {
    (void)p;
    (void)number;
    *out = NULL;
    err_set(e, CHIMERE_EUNSUPPORTED, "gpu: this build has no CUDA kernels");
    err_hint(e,
             "build with cmake --preset cuda where a CUDA toolkit of 12.8 or newer is installed");
    return CHIMERE_EUNSUPPORTED;
}

static int count_gpus(struct err *e) {
    *e = (struct err){0};
    return 0;
}

static uint64_t gpu_kind(const struct dev *d) {
    (void)d;
    return 0;
}
#endif

int device_open(struct dev **out, const struct device_params *p, struct err *e) {
    const char *name = p->name ? p->name : "auto";
    int number = 0;
    if (strcmp(name, "auto") == 0) {
        struct err why = {0};
        int n = count_gpus(&why);
        if (n && !open_gpu(out, p, 0, &why)) return 0;
        if (n || why.code == CHIMERE_EDEVICE) log_warn("%s; using the processor instead", why.text);
        name = "cpu";
    }
    if (strcmp(name, "cpu") == 0) return cpu_open(out, p->n_thread, p->isa, e);
    if (str_starts(name, "cuda:") && name[5] >= '0' && name[5] <= '9' && !name[6])
        number = name[5] - '0';
    else if (strcmp(name, "cuda") != 0)
        return err_set(e, CHIMERE_EINVAL, "device: expected auto, cpu, cuda or cuda:N, got '%s'",
                       name);
    return open_gpu(out, p, number, e);
}

bool device_has_gpu(void) {
    struct err why;
    return count_gpus(&why) > 0;
}

uint64_t device_kind(const struct dev *d) {
    const char *name = d->ops->name, *isa = strcmp(name, "cpu") ? "" : cpu_isa_name(d);
    return hash_bytes(isa, strlen(isa), hash_bytes(name, strlen(name), gpu_kind(d)));
}

#include "base/os/energy.h"

#include <dirent.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "base/os/library.h"

enum { MAX_DOMAINS = 64, MAX_GPUS = 64, PATH_BYTES = 1024 };

struct domain {
    char path[PATH_BYTES]; /* path of its file energy_uj */
    bool is_memory;
    uint64_t last, range; /* in microjoules; range: the counter wraps to 0 after this value */
    double joules;
};

/* The five NVML functions in use, by the names of its ABI. */
struct nvml {
    struct library *library; /* NULL: none */
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *n);
    int (*handle)(unsigned i, void **device);
    int (*energy)(void *device, unsigned long long *millijoules);
    void *devices[MAX_GPUS]; /* NVML's handles */
    unsigned long long first[MAX_GPUS];
    size_t n;
};

struct energy {
    pthread_mutex_t lock;
    struct domain domains[MAX_DOMAINS];
    size_t n_domain, n_refused; /* n_refused: domains whose counter may not be read */
    struct nvml nvml;
};

static bool read_number(const char *path, uint64_t *out) {
    unsigned long long v;
    FILE *f = fopen(path, "re");
    bool ok = f && fscanf(f, "%llu", &v) == 1;
    if (f) fclose(f);
    if (ok) *out = v;
    return ok;
}

static bool read_name(const char *dir, const char *entry, char name[32]) {
    char path[PATH_BYTES];
    name[0] = 0;
    if (snprintf(path, sizeof path, "%s/%s/name", dir, entry) >= (int)sizeof path) return false;
    FILE *f = fopen(path, "re");
    bool ok = f && fgets(name, 32, f);
    if (f) fclose(f);
    name[strcspn(name, "\n")] = 0;
    return ok;
}

/* Adds packages and their memory. Cores and graphics are parts of a package, psys contains packages, and
 * intel-rapl-mmio repeats them; including these would count energy twice. */
static void add_domain(struct energy *g, const char *dir, const char *entry) {
    char name[32], path[PATH_BYTES];
    struct domain *d = &g->domains[g->n_domain];
    if (g->n_domain == MAX_DOMAINS || !str_starts(entry, "intel-rapl:")) return;
    if (!read_name(dir, entry, name)) return;
    bool is_memory = strcmp(name, "dram") == 0;
    if (!is_memory && !str_starts(name, "package")) return;
    if (snprintf(d->path, sizeof d->path, "%s/%s/energy_uj", dir, entry) >= (int)sizeof d->path)
        return;
    if (!read_number(d->path, &d->last)) {
        g->n_refused++;
        return;
    }
    if (snprintf(path, sizeof path, "%s/%s/max_energy_range_uj", dir, entry) < (int)sizeof path)
        read_number(path, &d->range);
    d->is_memory = is_memory;
    g->n_domain++;
}

static void open_rapl(struct energy *g, const char *dir) {
    DIR *d = opendir(dir);
    for (struct dirent *entry; d && (entry = readdir(d));) add_domain(g, dir, entry->d_name);
    if (d) closedir(d);
}

static void close_nvml(struct nvml *v) {
    if (!v->library) return;
    v->shutdown();
    *v = (struct nvml){0};
}

static bool load(struct nvml *v, const char *name) {
    static const char *const names[] = {"nvmlInit_v2", "nvmlShutdown", "nvmlDeviceGetCount_v2",
                                        "nvmlDeviceGetHandleByIndex_v2",
                                        "nvmlDeviceGetTotalEnergyConsumption"};
    void *found[5];
    if (library_open_system(&v->library, name, NULL)) return false;
    for (int i = 0; i < 5; i++) {
        found[i] = library_symbol(v->library, names[i]);
        if (!found[i]) goto none;
    }
    /* ISO C has no cast from object to function pointer */
    memcpy(&v->init, &found[0], sizeof found[0]);
    memcpy(&v->shutdown, &found[1], sizeof found[1]);
    memcpy(&v->count, &found[2], sizeof found[2]);
    memcpy(&v->handle, &found[3], sizeof found[3]);
    memcpy(&v->energy, &found[4], sizeof found[4]);
    if (v->init() == 0) return true;
none:
    v->library = NULL;
    return false;
}

/* GPUs older than Volta have no such counter and are skipped. */
static void open_nvml(struct nvml *v, const char *name) {
    unsigned n = 0;
    if (!*name || !load(v, name)) return;
    if (v->count(&n) != 0) n = 0;
    for (unsigned i = 0; i < n && v->n < MAX_GPUS; i++)
        if (v->handle(i, &v->devices[v->n]) == 0 &&
            v->energy(v->devices[v->n], &v->first[v->n]) == 0)
            v->n++;
    if (!v->n) close_nvml(v);
}

struct energy *energy_open(const char *powercap, const char *nvml) {
    struct energy *g = mem_alloc_array(1, sizeof *g);
    if (!g) return NULL;
    pthread_mutex_init(&g->lock, NULL);
    open_rapl(g, powercap ? powercap : "/sys/class/powercap");
    if (nvml) open_nvml(&g->nvml, nvml);
    else open_nvml(&g->nvml, "libnvidia-ml.so.1");
    if (!nvml && !g->nvml.n) open_nvml(&g->nvml, "nvml.dll");
    return g;
}

void energy_close(struct energy *g) {
    if (!g) return;
    close_nvml(&g->nvml);
    pthread_mutex_destroy(&g->lock);
    mem_free(g);
}

/* Adds the increase of the counter. If it decreased and its range is unknown, the increase is unknown and is not
 * counted. */
static void advance(struct domain *d) {
    uint64_t now;
    if (!read_number(d->path, &now)) return;
    if (now >= d->last) d->joules += (double)(now - d->last) * 1e-6;
    else if (d->range >= d->last) d->joules += (double)(d->range - d->last + now) * 1e-6;
    d->last = now;
}

bool energy_read(struct energy *g, struct energy_joules *out) {
    *out = (struct energy_joules){.has_gpu = g->nvml.n > 0};
    pthread_mutex_lock(&g->lock);
    for (size_t i = 0; i < g->n_domain; i++) {
        struct domain *d = &g->domains[i];
        advance(d);
        *(d->is_memory ? &out->memory : &out->cpu) += d->joules;
        *(d->is_memory ? &out->has_memory : &out->has_cpu) = true;
    }
    for (size_t i = 0; i < g->nvml.n; i++) {
        unsigned long long now;
        if (g->nvml.energy(g->nvml.devices[i], &now) == 0 && now >= g->nvml.first[i])
            out->gpu += (double)(now - g->nvml.first[i]) * 1e-3;
    }
    pthread_mutex_unlock(&g->lock);
    return out->has_cpu || out->has_memory || out->has_gpu;
}

double energy_total(const struct energy_joules *j) { return j->cpu + j->memory + j->gpu; }

static struct energy *shared;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void open_shared(void) { shared = energy_open(NULL, NULL); }

bool energy_now(struct energy_joules *out) {
    *out = (struct energy_joules){0};
    pthread_once(&once, open_shared);
    return shared && energy_read(shared, out);
}

void energy_about(char *out, size_t n) {
    pthread_once(&once, open_shared);
    if (shared && (shared->n_domain || shared->nvml.n))
        snprintf(out, n, "%zu RAPL domains, %zu GPUs", shared->n_domain, shared->nvml.n);
    else if (shared && shared->n_refused)
        snprintf(out, n, "RAPL counters exist, but this user may not read them; no GPU with NVML");
    else snprintf(out, n, "no RAPL counters in /sys/class/powercap, no GPU with NVML");
}

/* bench_ops.c: matrix products and the mixture of experts alone, against the memory and the multiplier.
 *
 * Inside the window: whole op calls on prepared weights, best of several; each call walks through more
 * matrices than the last-level cache holds when --cold is given, as a decode step does. GB/s are of the bytes that the
 * device reads; the two widths give those of the file.
 * Usage: bench_ops [--threads N] [--isa NAME] [--cold] [--device NAME] [--shape OUT IN COPIES] [TYPE ...] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "format/quant.h"
#include "kernels/device.h"

/* Processor time of this thread where it is the only one, so that a busy machine disturbs less. */
static bool alone;
static int64_t now_ns(void) {
    if (!alone) return clock_ns();
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

enum { N_MAT_COLD = 24, MOST_TOK = 256 };
static int64_t n_in = 1024, n_out = 4096;

static struct rng rng;

static struct weight random_weight(uint32_t type) {
    const struct quant_traits *t = quant_traits(type);
    struct weight w = {.type = type, .n_in = n_in, .n_out = n_out, .n_mat = 1};
    w.row_bytes = t->head_bytes + (size_t)n_in / t->block_elements * t->block_bytes;
    w.mat_bytes = w.row_bytes * (size_t)n_out;
    uint8_t *p = mem_alloc(w.mat_bytes);
    for (size_t i = 0; i < w.mat_bytes; i++) p[i] = (uint8_t)(rng_next(&rng) & 0x3f);
    w.data = p;
    return w;
}

static double best_s(struct dev *d, struct weight *w, int n_w, const float *x, float *y,
                     int n_tok) {
    double best = 1e9;
    for (int rep = 0; rep < 5; rep++) {
        int64_t start = now_ns();
        int n = 0;
        do {
            for (int i = 0; i < n_w; i++) {
                struct linear_out o = {&w[i], NULL, y, w->n_out, 1, false};
                d->ops->linear(d, &o, 1, x, w->n_in, n_tok);
            }
            float done;
            d->ops->download(d, &done, y, sizeof done); /* waits */
            n += n_w;
        } while (now_ns() - start < 30000000);
        double s = (double)(now_ns() - start) * 1e-9 / n;
        best = s < best ? s : best;
    }
    return best;
}

static void bench_type(struct dev *d, uint32_t type, int n_w) {
    static const int n_toks[] = {1, 2, 3, 4, 8, 16, 64, 256};
    struct weight file[N_MAT_COLD], w[N_MAT_COLD];
    size_t bytes = 0;
    char *block = NULL;
    double repack_s = 0, file_bytes = 0;
    for (int i = 0; i < n_w; i++) {
        w[i] = file[i] = random_weight(type);
        bytes = d->ops->prepared_bytes(d, &file[i]);
        file_bytes += (double)file[i].mat_bytes;
        if (bytes && !block) block = d->ops->alloc(d, bytes * (size_t)n_w); /* as models have it */
        if (bytes) {
            void *dst = block + (size_t)i * bytes;
            int64_t start = now_ns();
            d->ops->prepare(d, &file[i], dst, &w[i]);
            repack_s += (double)(now_ns() - start) * 1e-9;
        } else bytes = file[i].mat_bytes;
    }
    size_t n_x = (size_t)n_in * MOST_TOK;
    float *from = mem_alloc_array(n_x, sizeof *from), *x = d->ops->alloc(d, n_x * sizeof *x),
          *y = d->ops->alloc(d, (size_t)n_out * MOST_TOK * sizeof *y);
    for (size_t i = 0; i < n_x; i++) from[i] = (float)rng_normal(&rng);
    d->ops->upload(d, x, from, n_x * sizeof *x);
    mem_free(from);
    printf("%-8s %5.3f bpw, file %5.3f, pack %4.2f GB/s", quant_traits(type)->name,
           8.0 * (double)bytes / (double)(n_in * n_out),
           8.0 * file_bytes / n_w / (double)(n_in * n_out),
           repack_s > 0 ? file_bytes / repack_s * 1e-9 : 0.0);
    for (size_t k = 0; k < sizeof n_toks / sizeof *n_toks; k++) {
        double s = best_s(d, w, n_w, x, y, n_toks[k]);
        double gmac = (double)(n_in * n_out) * n_toks[k] / s * 1e-9;
        if (n_toks[k] <= 4) printf(" | %d: %5.1f GB/s", n_toks[k], (double)bytes / s * 1e-9);
        else printf(" | %d: %5.1f GMAC/s", n_toks[k], gmac);
    }
    printf("\n");
    fflush(stdout);
    for (int i = 0; i < n_w; i++) mem_free((void *)(uintptr_t)file[i].data);
    d->ops->free(d, block);
    d->ops->free(d, x), d->ops->free(d, y);
}

int main(int argc, char **argv) {
    int n_type = 0, n_w = 1;
    struct device_params p = {.name = "cpu", .isa = CPU_ISA_BEST};
    uint32_t types[QUANT_N_ID];
    rng_seed(&rng, 1);
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--cold")) n_w = N_MAT_COLD;
        else if (!strcmp(argv[i], "--threads") && i + 1 < argc)
            p.n_thread = (int)strtol(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "--isa") && i + 1 < argc) p.isa = cpu_isa_of(argv[++i]);
        else if (!strcmp(argv[i], "--device") && i + 1 < argc) p.name = argv[++i];
        else if (!strcmp(argv[i], "--shape") && i + 3 < argc) {
            n_out = strtol(argv[++i], NULL, 10);
            n_in = strtol(argv[++i], NULL, 10);
            n_w = (int)strtol(argv[++i], NULL, 10);
            n_w = n_w < 1 ? 1 : n_w < N_MAT_COLD ? n_w : N_MAT_COLD;
        } else if (quant_type_from_name(argv[i]) >= 0)
            types[n_type++] = (uint32_t)quant_type_from_name(argv[i]);
        else {
            fprintf(stderr, "bench_ops: unknown argument %s\n", argv[i]);
            return 2;
        }
    }
    if (!n_type) {
        static const uint32_t all[] = {QUANT_F32,    QUANT_BF16,  QUANT_Q8_0,  QUANT_Q4_0,
                                       QUANT_Q4_K,   QUANT_Q5_K,  QUANT_Q6_K,  QUANT_Q3_K,
                                       QUANT_IQ4_XS, QUANT_IQ3_S, QUANT_IQ2_XS};
        n_type = sizeof all / sizeof *all;
        memcpy(types, all, sizeof all);
    }
    bool is_cpu = !strcmp(p.name, "cpu");
    alone = p.n_thread == 1 && is_cpu;
    struct dev *d;
    struct err e;
    struct dev_need need = {.n_tok = MOST_TOK, .n_in = n_in, .n_out = n_out, .n_ff = n_in};
    if (device_open(&d, &p, &e) || d->ops->reserve(d, &need, &e)) {
        fprintf(stderr, "bench_ops: %s\n", e.text);
        return 1;
    }
    printf("%s, [%lld, %lld], %s\n", is_cpu ? cpu_isa_name(d) : p.name, (long long)n_out,
           (long long)n_in, n_w > 1 ? "cold" : "warm");
    for (int i = 0; i < n_type; i++) bench_type(d, types[i], n_w);
    d->ops->close(d);
    return 0;
}

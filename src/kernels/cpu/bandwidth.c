/* bandwidth.c: measures the read bandwidth of memory with the threads of the device. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kernels/cpu/cpu_impl.h"

struct sweep {
    const uint64_t *data;
    size_t n;
    uint64_t *sums; /* [n_thread] */
};

static void sweep_part(void *arg, int ith, int n) {
    struct sweep *s = arg;
    size_t from = s->n / (size_t)n * (size_t)ith,
           to = ith == n - 1 ? s->n : s->n / (size_t)n * (size_t)(ith + 1);
    uint64_t a = 0, b = 0, c = 0, d = 0;
    for (size_t i = from; i + 32 <= to; i += 32)
        for (size_t k = 0; k < 32; k += 4) {
            a += s->data[i + k];
            b += s->data[i + k + 1];
            c += s->data[i + k + 2];
            d += s->data[i + k + 3];
        }
    s->sums[ith] = a + b + c + d;
}

double cpu_read_bandwidth(struct dev *d) {
    struct cpu *c = (struct cpu *)d;
    size_t bytes = (size_t)256 << 20;
    uint64_t *data = mem_alloc(bytes), *sums = mem_alloc_array((size_t)c->n_thread, sizeof *sums);
    double best = 0;
    if (data && sums) {
        struct sweep s = {data, bytes / sizeof *data, sums};
        memset(data, 1, bytes);
        for (int i = 0; i < 7; i++) {
            int64_t start = clock_ns();
            pool_run(c->pool, sweep_part, &s);
            double rate = (double)bytes / ((double)(clock_ns() - start) * 1e-9);
            if (rate > best) best = rate;
        }
    }
    mem_free(data);
    mem_free(sums);
    return best;
}

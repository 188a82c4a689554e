/* bench_codec.c: million elements a second that one thread decodes and encodes, per block type.
 *
 * Inside the window: the codec alone, over rows of 4,096 normal values that stay in the second-level
 * cache, in processor time; each row of the table is the best of repeated passes within 0.2 s. Encoding is timed without
 * and with importance weights. Arguments: names of types; all of them by default. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"
#include "format/quant.h"

enum { N_ROW = 16, N_COLUMN = 4096 };

struct engine_job {
    const struct quant_traits *t;
    float *x, *y, *weights;
    unsigned char *blocks;
    size_t row_bytes;
};

static void encode(const struct engine_job *j, const float *weights) {
    for (int r = 0; r < N_ROW; r++)
        j->t->encode(j->x + r * N_COLUMN, j->blocks + (size_t)r * j->row_bytes, N_COLUMN, weights);
}

static void decode(const struct engine_job *j, const float *weights) {
    (void)weights;
    for (int r = 0; r < N_ROW; r++)
        j->t->decode(j->blocks + (size_t)r * j->row_bytes, j->y + r * N_COLUMN, N_COLUMN);
}

static double rate(void (*fn)(const struct engine_job *, const float *), const struct engine_job *j,
                   const float *weights) {
    int64_t begin = clock_cpu_ns();
    double best = 0;
    do {
        int64_t start = clock_cpu_ns();
        fn(j, weights);
        double m = N_ROW * N_COLUMN * 1e3 / (double)(clock_cpu_ns() - start + 1);
        best = m > best ? m : best;
    } while (clock_cpu_ns() - begin < 200000000);
    return best;
}

static bool is_wanted(const char *name, int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (str_eq_nocase(argv[i], name)) return true;
    return argc < 2;
}

int main(int argc, char **argv) {
    struct engine_job j = {.x = mem_alloc_array(N_ROW * N_COLUMN, sizeof(float)),
                           .y = mem_alloc_array(N_ROW * N_COLUMN, sizeof(float)),
                           .weights = mem_alloc_array(N_COLUMN, sizeof(float)),
                           .blocks = mem_alloc_array(N_ROW * N_COLUMN, sizeof(double))};
    if (!j.x || !j.y || !j.weights || !j.blocks) return 1;
    struct rng r;
    rng_seed(&r, 1);
    for (int i = 0; i < N_ROW * N_COLUMN; i++) j.x[i] = (float)rng_normal(&r) * 0.02f;
    for (int i = 0; i < N_COLUMN; i++) j.weights[i] = expf((float)rng_normal(&r));
    printf("type       bits/weight  decode M/s  encode M/s  weighted M/s  relative RMSE\n");
    for (uint32_t id = 0; id < QUANT_N_ID; id++) {
        const struct quant_traits *t = quant_traits(id);
        if (!t || !t->encode || !is_wanted(t->name, argc, argv)) continue;
        j.t = t;
        j.row_bytes = (size_t)N_COLUMN / t->block_elements * t->block_bytes;
        encode(&j, NULL); /* lists of neighbours are made here */
        double e = rate(encode, &j, NULL), w = rate(encode, &j, j.weights);
        encode(&j, NULL);
        double d = rate(decode, &j, NULL), num = 0, den = 0;
        for (int i = 0; i < N_ROW * N_COLUMN; i++) {
            num += ((double)j.y[i] - j.x[i]) * ((double)j.y[i] - j.x[i]);
            den += (double)j.x[i] * j.x[i];
        }
        printf("%-10s %11.4f %11.0f %11.1f %13.1f %14.6f\n", t->name,
               8.0 * t->block_bytes / t->block_elements, d, e, w, sqrt(num / den));
        fflush(stdout);
    }
    mem_free(j.x);
    mem_free(j.y);
    mem_free(j.weights);
    mem_free(j.blocks);
    return 0;
}

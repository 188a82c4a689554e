/* on_device.h: what the tests of the CUDA device share: the devices, arrays they read in place, comparisons,
 * weights through our encoders. One file of tests includes it. */
#ifndef CHIMERE_TEST_GPU_ON_DEVICE_H
#define CHIMERE_TEST_GPU_ON_DEVICE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "format/quant.h"
#include "kernels/cpu/cpu.h"
#include "kernels/ref/ref.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/repack.h"
#include "../unit/op_cases.h"

static struct rng rng;
static struct dev *ref, *ref8, *dev, *precise, *wide; /* ref8: activations rounded to 8 bits */

static const struct dev_need need = {.n_tok = 256,
                                     .n_in = 1024,
                                     .n_out = 1200,
                                     .n_ff = 512,
                                     .n_expert = 32,
                                     .n_used = 8,
                                     .n_head = 8,
                                     .d_head = 256,
                                     .n_v_head = 8,
                                     .d_state = 128 * 128,
                                     .d_rec_k = 128,
                                     .d_rec_v = 128,
                                     .n_conv = 4096,
                                     .n_ctx = 2048};

/* ---- arrays ---- */

static void *kept[512];
static int n_kept;

static void *room(size_t n) {
    assert_true(n_kept < 512);
    void *p = cuda_host_alloc(n);
    assert_non_null(p);
    return kept[n_kept++] = p;
}
/* Frees the arrays. The next ones may have the same addresses, of whose contents a device forgets what it knows when it
 * frees memory of its own. */
static void drop_all(void) {
    struct dev *all[] = {dev, wide};
    for (int i = 0; i < 2; i++) all[i]->ops->free(all[i], all[i]->ops->alloc(all[i], 16));
    while (n_kept) cuda_host_free(kept[--n_kept]);
}
static float *floats(size_t n, double scale) {
    float *x = room(n * sizeof *x);
    for (size_t i = 0; scale != 0 && i < n; i++) x[i] = (float)(rng_normal(&rng) * scale);
    return x;
}
static float *copy_of(const float *x, size_t n) {
    float *y = room(n * sizeof *y);
    memcpy(y, x, n * sizeof *y);
    return y;
}

static void settle(struct dev *d) {
    struct err e = {0};
    if (d->ops->status(d, &e)) fail_msg("%s", e.text);
}

/* ---- weights: random numbers through our encoders ---- */

/* Rows of a weight that are encoded: a search per block, slow for most types. */
enum { ENCODED = 24 };

/* Puts a row together of blocks that were encoded, in another order. */
static void shuffle_row(const struct weight *w, uint8_t *to) {
    const struct quant_traits *t = quant_traits(w->type);
    const uint8_t *rows = w->data;
    size_t n_block = (size_t)w->n_in / t->block_elements;
    memcpy(to, rows + rng_below(&rng, ENCODED) * w->row_bytes, t->head_bytes);
    for (size_t i = 0; i < n_block; i++) {
        const uint8_t *from = rows + rng_below(&rng, ENCODED) * w->row_bytes + t->head_bytes;
        memcpy(to + t->head_bytes + i * t->block_bytes,
               from + rng_below(&rng, n_block) * t->block_bytes, t->block_bytes);
    }
}

/* Rows can be encoded, or any codes are finite numbers after a scale of the row. */
static bool can_make(uint32_t type) {
    return quant_traits(type)->encode || quant_traits(type)->head_bytes == sizeof(float);
}

static struct weight weight_of(uint32_t type, int64_t n_in, int64_t n_out, int64_t n_mat,
                               double scale) {
    const struct quant_traits *t = quant_traits(type);
    struct weight w = {.type = type, .n_in = n_in, .n_out = n_out, .n_mat = n_mat};
    assert_int_equal(n_in % t->block_elements, 0); /* a row of less than a block has no bytes */
    w.row_bytes = t->head_bytes + (size_t)n_in / t->block_elements * t->block_bytes;
    w.mat_bytes = w.row_bytes * (size_t)n_out;
    uint8_t *p = room(w.mat_bytes * (size_t)n_mat);
    float *row = mem_alloc((size_t)n_in * sizeof *row);
    float *importance = mem_alloc((size_t)n_in * sizeof *row);
    for (int64_t i = 0; i < n_in; i++) importance[i] = 1;
    w.data = p;
    for (int64_t r = 0; r < n_out * n_mat; r++) {
        uint8_t *to = p + (size_t)r * w.row_bytes;
        if (!t->encode) { /* random codes */
            float d = 1e-5f;
            for (size_t i = 0; i < w.row_bytes; i++) to[i] = (uint8_t)rng_next(&rng);
            memcpy(to, &d, sizeof d);
            continue;
        }
        if (r >= ENCODED) {
            shuffle_row(&w, to);
            continue;
        }
        for (int64_t i = 0; i < n_in; i++) row[i] = (float)(rng_normal(&rng) * scale);
        if (!t->encode(row, to, (size_t)n_in, importance)) fail_msg("cannot encode %s", t->name);
    }
    mem_free(importance);
    mem_free(row);
    return w;
}

static struct weight prepared(struct dev *d, const struct weight *w) {
    struct weight w2 = *w;
    size_t n = d->ops->prepared_bytes(d, w);
    d->ops->prepare(d, w, room(n), &w2);
    return w2;
}

/* ---- devices ---- */

/* Each test has random data of its own: a case more in one changes no other. */
static int seed(void **st) {
    (void)st;
    rng_seed(&rng, 20);
    return 0;
}

static int open_all(void **st) {
    (void)st;
    struct err e = {0};
    const struct cuda_params plain = {.layout = PLANES}, exact = {.precise = true},
                             roomy = {.layout = PLANES_WIDE};
    if (cpu_open_ref(&ref, &e) || ref_open_round8(&ref8, &e)) return -1;
    if (cuda_open(&dev, &plain, &e) || cuda_open(&precise, &exact, &e) ||
        cuda_open(&wide, &roomy, &e)) {
        print_message("skip: the CUDA device: %s\n", e.text);
        return -1;
    }
    struct dev *all[] = {ref, ref8, dev, precise, wide};
    for (int i = 0; i < 5; i++)
        if (all[i]->ops->reserve(all[i], &need, &e)) return -1;
    return 0;
}

static int close_all(void **st) {
    (void)st;
    struct dev *all[] = {ref, ref8, dev, precise, wide};
    for (int i = 0; i < 5; i++) all[i]->ops->close(all[i]);
    return 0;
}

static void with_wide(void (*test)(void **)) {
    struct dev *outer = dev;
    dev = wide;
    test(NULL);
    dev = outer;
}

#endif

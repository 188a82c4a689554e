/* ssm.c: the causal convolution and the recurrences of Mamba: distributes parts of all spans over the threads. */
#include <string.h>

#include "kernels/cpu/simd_plain.h"

#include "kernels/cpu/ssm_kernel.inc"

#include "kernels/cpu/cpu_impl.h"

struct job {
    const struct cpu *c;
    const struct ssm_kernels *k;
    const void *args;
    int64_t n_part; /* per span */
};

static const struct ssm_kernels *kernels_of(const struct cpu *c) {
#if defined(__x86_64__)
    if (c->isa == CPU_ISA_AVX512) return &ssm_avx512;
    if (c->isa == CPU_ISA_AVX2 || c->isa == CPU_ISA_AVXVNNI) return &ssm_avx2;
#elif defined(__aarch64__)
    if (c->isa == CPU_ISA_NEON) return &ssm_neon;
#endif
    (void)c;
    return &ssm_plain;
}

/* ---- convolution ---- */

/* Each thread takes a range of channel vectors, which is split at span boundaries. */
static void conv_thread(void *arg, int ith, int n_thread) {
    const struct job *j = arg;
    const struct conv_args *a = j->args;
    int64_t all = a->n_span * j->n_part, at = all * ith / n_thread,
            end = all * (ith + 1) / n_thread;
    while (at < end) {
        int64_t span = at / j->n_part, stop = (span + 1) * j->n_part;
        if (stop > end) stop = end;
        j->k->conv(a, &a->spans[span], (at - span * j->n_part) * SSM_CHANNELS,
                   (stop - span * j->n_part) * SSM_CHANNELS);
        at = stop;
    }
}

void cpu_conv(struct dev *d, const struct conv_args *a) {
    struct cpu *c = (struct cpu *)d;
    if (a->n_conv % SSM_CHANNELS || a->d_conv > SSM_MAX_CONV) {
        ref_conv(d, a);
        return;
    }
    struct job j = {c, kernels_of(c), a, a->n_conv / SSM_CHANNELS};
    pool_run(c->pool, conv_thread, &j);
}

/* Returns 1 for shapes that the reference computes. */
int32_t cpu_state_lanes(int64_t n_channel, int32_t d_head, int32_t d_state) {
    _Static_assert(SSM_MAX_STATE * SSM_BLOCK <= STATE_BLOCK, "a block of state");
    if (d_state > SSM_MAX_STATE) return 1;
    if (!d_head) return n_channel % SSM_CHANNELS ? 1 : SSM_CHANNELS;
    if (d_head % SSM_CHANNELS || d_head > SSM_MAX_HEAD || d_state % 2) return 1;
    return d_head % SSM_BLOCK ? SSM_CHANNELS : SSM_BLOCK;
}

/* ---- Mamba-1 ---- */

static void ssm_thread(void *arg, int ith, int n_thread) {
    const struct job *j = arg;
    const struct ssm_args *a = j->args;
    int64_t all = a->n_span * j->n_part;
    for (int64_t i = all * ith / n_thread; i < all * (ith + 1) / n_thread; i++)
        j->k->ssm(a, &a->spans[i / j->n_part], i % j->n_part * SSM_CHANNELS);
}

/* Stores the inputs of deferred tokens in the log. Called after all parts have read the log. */
static void log_ssm(const struct ssm_args *a, const struct span *s) {
    size_t n_inner = (size_t)a->n_inner, n_state = (size_t)a->d_state;
    for (int32_t i = 0; !s->n_commit && i < s->n_tok; i++) {
        float *row = (float *)(uintptr_t)log_row(&a->state, s, i) + a->log_at;
        int64_t t = s->row + i;
        memcpy(row, a->x + t * a->x_stride, n_inner * sizeof *row);
        memcpy(row + n_inner, a->dt + t * a->dt_stride, n_inner * sizeof *row);
        memcpy(row + 2 * n_inner, a->b + t * a->bc_stride, n_state * sizeof *row);
        memcpy(row + 2 * n_inner + n_state, a->c + t * a->bc_stride, n_state * sizeof *row);
    }
}

void cpu_ssm(struct dev *d, const struct ssm_args *a) {
    struct cpu *c = (struct cpu *)d;
    if (cpu_state_lanes(a->n_inner, 0, a->d_state) == 1) {
        ref_ssm(d, a);
        return;
    }
    struct job j = {c, kernels_of(c), a, a->n_inner / SSM_CHANNELS};
    pool_run(c->pool, ssm_thread, &j);
    for (int32_t i = 0; i < a->n_span; i++) log_ssm(a, &a->spans[i]);
}

/* ---- Mamba-2 ---- */

static void ssd_thread(void *arg, int ith, int n_thread) {
    const struct job *j = arg;
    const struct ssd_args *a = j->args;
    int64_t all = a->n_span * j->n_part;
    for (int64_t i = all * ith / n_thread; i < all * (ith + 1) / n_thread; i++)
        j->k->ssd(a, &a->spans[i / j->n_part], (int32_t)(i % j->n_part), j->c->threads[ith].room_f);
    if (!a->z && !a->norm_w) return;
    pool_barrier(j->c->pool, ith);
    all = (int64_t)a->n_tok * a->n_norm;
    for (int64_t i = all * ith / n_thread; i < all * (ith + 1) / n_thread; i++)
        j->k->finish(a, i / a->n_norm, (int32_t)(i % a->n_norm));
}

static void log_ssd(const struct ssd_args *a, const struct span *s) {
    size_t n_xbc =
        (size_t)a->n_head * (size_t)a->d_head + 2 * (size_t)a->n_group * (size_t)a->d_state;
    for (int32_t i = 0; !s->n_commit && i < s->n_tok; i++) {
        float *row = (float *)(uintptr_t)log_row(&a->state, s, i) + a->log_at;
        int64_t t = s->row + i;
        memcpy(row, a->xbc + t * a->xbc_stride, n_xbc * sizeof *row);
        memcpy(row + n_xbc, a->dt + t * a->dt_stride, (size_t)a->n_head * sizeof *row);
    }
}

void cpu_ssd(struct dev *d, const struct ssd_args *a) {
    struct cpu *c = (struct cpu *)d;
    if (cpu_state_lanes((int64_t)a->n_head * a->d_head, a->d_head, a->d_state) == 1) {
        ref_ssd(d, a);
        return;
    }
    struct ssd_args own = *a;
    if (!a->norm_w) own.n_norm = a->n_head; /* one part of the gate per head */
    struct job j = {c, kernels_of(c), &own, a->n_head};
    pool_run(c->pool, ssd_thread, &j);
    for (int32_t i = 0; i < a->n_span; i++) log_ssd(a, &a->spans[i]);
}

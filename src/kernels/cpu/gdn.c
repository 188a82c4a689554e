/* gdn.c: the gated delta net: distributes the heads of all spans over the threads, then
 * updates convolution state and logs. */
#include <string.h>

#include "kernels/cpu/simd_plain.h"

#include "kernels/cpu/gdn_kernel.inc"

#include "kernels/cpu/cpu_impl.h"

struct job {
    const struct cpu *c;
    const struct gdn_args *a;
    void (*head)(const struct gdn_head *g, float *room);
    int64_t n_conv;
};

/* Stores the last inputs that the state includes, and appends deferred inputs to the log. Called after all
 * heads of the span have read both. */
static void remember(const struct gdn_args *a, const struct span *s, int64_t n_conv) {
    const struct rec_view *r = &a->state;
    float *conv = r->conv + (size_t)s->slot * r->conv_stride;
    float *log = r->log ? r->log + (size_t)s->slot * (size_t)r->log_cap * r->log_row : NULL;
    struct gdn_head g = {.a = a, .s = s, .conv = conv, .log = log, .n_conv = n_conv};
    int32_t seen = s->n_replay + s->n_commit;
    for (int32_t j = 0; seen && j < a->d_conv - 1; j++)
        memmove(conv + j * n_conv, row_of(&g, seen - (a->d_conv - 1) + j),
                (size_t)n_conv * sizeof(float));
    if (s->n_commit) return;
    for (int32_t i = 0; i < s->n_tok; i++) {
        float *row = log + (size_t)i * r->log_row;
        int64_t t = s->row + i;
        memcpy(row, a->qkv + t * a->qkv_stride, (size_t)n_conv * sizeof(float));
        memcpy(row + n_conv, a->alpha + t * a->n_v_head, (size_t)a->n_v_head * sizeof(float));
        memcpy(row + n_conv + a->n_v_head, a->beta + t * a->n_v_head,
               (size_t)a->n_v_head * sizeof(float));
    }
}

/* The first head, counted over all spans, of thread ith. */
static int32_t first_head(const struct gdn_args *a, int ith, int n_thread) {
    return (int32_t)((int64_t)a->n_span * a->n_v_head * ith / n_thread);
}

/* Prefetches, for one head, its share of the next span's convolution state. Each head reads a few scattered cache
 * lines of it, which the hardware prefetcher does not predict. */
static void fetch_next(const struct gdn_args *a, int64_t i) {
    int64_t next = i / a->n_v_head + 1, head = i % a->n_v_head, n = (int64_t)a->state.conv_stride;
    if (next >= a->n_span) return;
    const float *conv = a->state.conv + (size_t)a->spans[next].slot * a->state.conv_stride;
    for (int64_t k = n * head / a->n_v_head; k < n * (head + 1) / a->n_v_head; k += 16)
        __builtin_prefetch(conv + k);
}

static void run_part(void *arg, int ith, int n_thread) {
    const struct job *j = arg;
    const struct gdn_args *a = j->a;
    int32_t from = first_head(a, ith, n_thread), to = first_head(a, ith + 1, n_thread);
    for (int32_t i = from; i < to; i++) {
        const struct span *s = &a->spans[i / a->n_v_head];
        const struct rec_view *r = &a->state;
        struct gdn_head g = {
            .a = a,
            .s = s,
            .conv = r->conv + (size_t)s->slot * r->conv_stride,
            .n_conv = j->n_conv,
            .log = r->log ? r->log + (size_t)s->slot * (size_t)r->log_cap * r->log_row : NULL,
            .head = i % a->n_v_head};
        fetch_next(a, i);
        j->head(&g, j->c->threads[ith].room_f);
        if (g.head == a->n_v_head - 1 && i - g.head >= from) remember(a, s, j->n_conv);
    }
}

void cpu_gdn(struct dev *d, const struct gdn_args *a) {
    struct cpu *c = (struct cpu *)d;
    if (a->d_k % 16 || a->d_v % 16 || a->d_k > GDN_MAX_DIM || a->d_v > GDN_MAX_DIM ||
        a->d_conv > GDN_MAX_CONV) {
        ref_gdn(d, a);
        return;
    }
    struct job j = {.c = c, .a = a, .head = gdn_head_plain};
    j.n_conv = 2 * (int64_t)a->n_k_head * a->d_k + (int64_t)a->n_v_head * a->d_v;
#if defined(__x86_64__)
    if (c->isa == CPU_ISA_AVX512) j.head = gdn_head_avx512;
    if (c->isa == CPU_ISA_AVX2 || c->isa == CPU_ISA_AVXVNNI) j.head = gdn_head_avx2;
#elif defined(__aarch64__)
    if (c->isa == CPU_ISA_NEON) j.head = gdn_head_neon;
#endif
    pool_run(c->pool, run_part, &j);
    /* spans whose heads were shared by several threads */
    int n_thread = pool_team(c->pool);
    for (int ith = 1, last = -1; ith < n_thread; ith++) {
        int32_t cut = first_head(a, ith, n_thread), i = cut / a->n_v_head;
        if (cut % a->n_v_head == 0 || i == last) continue;
        remember(a, &a->spans[i], j.n_conv);
        last = i;
    }
}

/* cpu.c: the CPU device; selects the kernels for this processor. */
#include "kernels/cpu/cpu.h"

#include <string.h>

#include "base/mem.h"
#include "base/os/features.h"
#include "kernels/cpu/cpu_impl.h"
#include "kernels/cpu/ffn_task.h"
#include "kernels/cpu/gdn.h"

static const char *const isa_names[CPU_N_ISA] = {
    [CPU_ISA_BEST] = "best",       [CPU_ISA_SCALAR] = "scalar", [CPU_ISA_AVX2] = "avx2",
    [CPU_ISA_AVXVNNI] = "avxvnni", [CPU_ISA_AVX512] = "avx512", [CPU_ISA_NEON] = "neon"};

/* What the files of a level are compiled for. */
static const char *const isa_needs[CPU_N_ISA][8] = {
    [CPU_ISA_SCALAR] = {NULL},
    [CPU_ISA_AVX2] = {"avx2", "fma", "f16c"},
    [CPU_ISA_AVXVNNI] = {"avx2", "fma", "f16c", "avx_vnni"},
    [CPU_ISA_AVX512] = {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512dq",
                        "avx512_vnni"},
    [CPU_ISA_NEON] = {"asimddp", "asimdhp"}, /* not a Cortex-A72 */
};

static bool has_isa(enum cpu_isa isa) {
    for (size_t i = 0; i < sizeof *isa_needs / sizeof **isa_needs && isa_needs[isa][i]; i++)
        if (!features_has(isa_needs[isa][i])) return false;
    return true;
}

static enum cpu_isa best_isa(void) {
    static const enum cpu_isa order[] = {CPU_ISA_AVX512, CPU_ISA_AVXVNNI, CPU_ISA_AVX2,
                                         CPU_ISA_NEON};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        if (has_isa(order[i])) return order[i];
    return CPU_ISA_SCALAR;
}

static size_t rounded(size_t n) { return (n + 63) & ~(size_t)63; }

/* Assigns the parts of one allocation; with base NULL it only computes the total size. */
struct carver {
    uint8_t *base;
    size_t used;
};

static void *carve(struct carver *v, size_t n) {
    void *p = v->base ? v->base + v->used : NULL;
    v->used += rounded(n);
    return p;
}

static void carve_all(struct cpu *c, const struct dev_need *n, struct carver *v) {
    size_t n_tok = (size_t)n->n_tok, n_used = (size_t)n->n_used;
    int64_t n_in = n->n_in > n->n_ff ? n->n_in : n->n_ff;
    c->n_pair = n_tok * (n_used + 1);
    c->n_acts = n_tok * gemm_act_bytes(n_in);
    c->n_hidden_acts = c->n_pair * gemm_act_bytes(n->n_ff);
    c->n_hidden = c->n_pair * (size_t)n->n_ff;
    c->acts = carve(v, c->n_acts);
    c->hidden_acts = carve(v, c->n_hidden_acts);
    c->hidden = carve(v, c->n_hidden * sizeof(float));
    c->logits = carve(v, n_tok * (size_t)n->n_expert * sizeof(float));
    c->shared_gate = carve(v, n_tok * sizeof(float));
    c->ids = carve(v, n_tok * n_used * sizeof(int32_t));
    c->weights = carve(v, n_tok * n_used * sizeof(float));
    c->threads = carve(v, (size_t)c->n_thread * sizeof *c->threads);
    for (int i = 0; i < c->n_thread; i++) {
        struct cpu_thread t;
        t.y = carve(v, GEMM_ROWS * GEMM_Y * sizeof(float));
        t.tail_y = carve(v, GEMM_ROWS * GEMM_Y * sizeof(float));
        t.room = carve(v, GEMM_ROOM);
        /* up to CPU_OWN_ACTS elements in rows of at least 32, each rounded up to 64 bytes */
        t.acts = carve(v, 4 * CPU_OWN_ACTS);
        t.ids = carve(v, 2 * c->n_pair * sizeof(int32_t));
        t.weights = carve(v, 2 * c->n_pair * sizeof(float));
        t.tasks = carve(v, ((size_t)n->n_expert + 2) * sizeof(struct ffn_task));
        t.room_f = carve(v, gdn_room(n->d_rec_k, n->d_rec_v) * sizeof(float));
        t.attn = carve(v, simd_attn_room(n->d_head) * sizeof(float));
        if (v->base) c->threads[i] = t;
    }
}

size_t cpu_scratch_bytes(const struct dev_need *need, int n_thread) {
    struct cpu c = {.n_thread = n_thread > 0 ? n_thread : pool_default_threads()};
    struct carver v = {0};
    carve_all(&c, need, &v);
    return v.used + ref_scratch(need) * sizeof(float);
}

static size_t own_scratch_bytes(struct dev *d, const struct dev_need *need) {
    return cpu_scratch_bytes(need, pool_n_thread(((struct cpu *)d)->pool));
}

int cpu_reserve(struct dev *d, const struct dev_need *need, struct err *e) {
    struct cpu *c = (struct cpu *)d;
    struct carver v = {0};
    carve_all(c, need, &v);
    uint8_t *block = mem_aligned(64, v.used);
    if (!block) return err_set(e, CHIMERE_ENOMEM, "scratch of %zu bytes: out of memory", v.used);
    mem_free(c->block);
    c->block = block;
    v = (struct carver){.base = block};
    carve_all(c, need, &v);
    return ref_reserve(d, need, e);
}

static void cpu_close(struct dev *d) {
    struct cpu *c = (struct cpu *)d;
    if (!c) return;
    pool_free(c->pool);
    mem_free(c->block);
    mem_free(c->ref.scratch);
    mem_free(c);
}

#define USE_KERNELS(c, products, isa)                                                              \
    do {                                                                                           \
        (c)->gemm = &gemm_##products;                                                              \
        (c)->simd.elem = &simd_elem_##isa;                                                         \
        (c)->simd.attn = &simd_attn_##isa;                                                         \
    } while (0)

static void set_ops(struct cpu *c) {
    c->ops = ref_ops;
    c->ops.name = "cpu";
    c->ops.close = cpu_close;
    c->ops.read_bandwidth = cpu_read_bandwidth;
    c->ops.reserve = cpu_reserve;
    c->ops.scratch_bytes = own_scratch_bytes;
    c->ref.dev.ops = &c->ops;
    c->ref.round8 = true; /* as all SIMD levels do, so that results are the same */
#if defined(__x86_64__)
    if (c->isa == CPU_ISA_AVX512) USE_KERNELS(c, avx512, avx512);
    if (c->isa == CPU_ISA_AVXVNNI) USE_KERNELS(c, avxvnni, avx2);
    if (c->isa == CPU_ISA_AVX2) USE_KERNELS(c, avx2, avx2);
#elif defined(__aarch64__)
    if (c->isa == CPU_ISA_NEON) USE_KERNELS(c, neon, neon);
#endif
    c->ops.gdn = cpu_gdn;
    c->ops.conv = cpu_conv;
    c->ops.ssm = cpu_ssm;
    c->ops.ssd = cpu_ssd;
    c->ops.state_lanes = cpu_state_lanes;
    if (!c->gemm) return;
    c->ops.prepared_bytes = cpu_prepared_bytes;
    c->ops.prepare = cpu_prepare;
    c->ops.linear = cpu_linear;
    c->ops.ffn = cpu_ffn;
    c->ops.moe = cpu_moe;
    c->ops.route = cpu_route;
    c->ops.qkv_store = cpu_qkv_store;
    c->ops.attn = cpu_attn;
    c->ops.attn_full = cpu_attn_full;
    c->ops.rms_norm = cpu_rms_norm;
    c->ops.layer_norm = cpu_layer_norm;
    c->ops.act_mul = cpu_act_mul;
    c->ops.axpby = cpu_axpby;
}

int cpu_open(struct dev **out, int n_thread, enum cpu_isa isa, struct err *e) {
    if (isa == CPU_ISA_BEST) isa = best_isa();
    if (!has_isa(isa))
        return err_set(e, CHIMERE_EUNSUPPORTED, "this processor has no %s", isa_names[isa]);
    struct cpu *c = mem_zalloc(sizeof *c);
    if (!c) return err_set(e, CHIMERE_ENOMEM, "cpu device: out of memory");
    c->isa = isa;
    c->pool = pool_new(n_thread);
    if (!c->pool) {
        mem_free(c);
        return err_set(e, CHIMERE_ENOMEM, "cpu device: no memory for %d threads", n_thread);
    }
    c->n_thread = pool_n_thread(c->pool);
    set_ops(c);
    *out = &c->ref.dev;
    return 0;
}

const char *cpu_isa_best_name(void) { return isa_names[best_isa()]; }

enum cpu_isa cpu_isa_of(const char *name) {
    for (int i = 0; i < CPU_N_ISA; i++)
        if (strcmp(isa_names[i], name) == 0) return (enum cpu_isa)i;
    return CPU_ISA_BEST;
}

const char *cpu_isa_name(const struct dev *d) { return isa_names[((const struct cpu *)d)->isa]; }

void cpu_observe(struct dev *d,
                 void (*fn)(void *ud, const struct weight *w, int32_t mat, const float *x,
                            int64_t x_stride, int32_t n_row),
                 void *ud) {
    struct cpu *c = (struct cpu *)d;
    c->observe = fn;
    c->observe_ud = ud;
}

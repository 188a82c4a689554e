/* ref.c: the reference device: its ops table, memory, scratch and sticky status. */
#include "kernels/ref/ref.h"

#include <string.h>

#include "base/mem.h"
#include "kernels/cpu/cpu.h"

void *ref_alloc(struct dev *d, size_t n) {
    (void)d;
    return mem_aligned(64, n);
}

void ref_free(struct dev *d, void *p) {
    (void)d;
    mem_free(p);
}

void ref_copy(struct dev *d, void *dst, const void *src, size_t n) {
    (void)d;
    if (n) memcpy(dst, src, n);
}

void ref_zero(struct dev *d, void *dst, size_t n) {
    (void)d;
    if (n) memset(dst, 0, n);
}

static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

size_t ref_scratch(const struct dev_need *need) {
    int64_t widest = max64(max64(need->n_in, need->n_out), max64(need->n_ff, need->n_conv));
    widest = max64(widest, (int64_t)need->n_head * need->d_head);
    /* the ops that need most: gdn (window, mixed row, state copy) and attn (scores in double, one head) */
    return (size_t)widest * 12 + (size_t)need->n_v_head * (size_t)need->d_state +
           (size_t)need->n_ctx * 2 + (size_t)need->n_tok * 2 + (size_t)need->n_expert * 4 +
           (size_t)need->d_head * 8 + 4096;
}

int ref_reserve(struct dev *d, const struct dev_need *need, struct err *e) {
    struct ref *r = (struct ref *)d;
    size_t n = ref_scratch(need);
    float *p = mem_aligned(64, n * sizeof *p);
    if (!p) return err_set(e, CHIMERE_ENOMEM, "scratch of %zu bytes: out of memory", n * sizeof *p);
    mem_free(r->scratch);
    r->scratch = p;
    r->n_scratch = n;
    r->need = *need;
    return 0;
}

float *ref_take(struct ref *r, size_t n) {
    n = (n + 15) & ~(size_t)15;
    if (n > r->n_scratch - r->used) {
        ref_fail(r, CHIMERE_EINTERNAL, "op needs more scratch than reserve() was told of");
        return NULL;
    }
    float *p = r->scratch + r->used;
    r->used += n;
    return p;
}

void ref_fail(struct ref *r, int code, const char *what) {
    if (!r->err.code) err_set(&r->err, code, "%s", what);
}

int ref_status(struct dev *d, struct err *e) {
    struct ref *r = (struct ref *)d;
    if (r->err.code && e) *e = r->err;
    return r->err.code;
}

static void ref_close(struct dev *d) {
    struct ref *r = (struct ref *)d;
    if (!r) return;
    mem_free(r->scratch);
    mem_free(r);
}

static void ref_flush(struct dev *d) { (void)d; }
static uint64_t ref_free_bytes(struct dev *d) {
    (void)d;
    return 0;
}
static size_t ref_scratch_bytes(struct dev *d, const struct dev_need *need) {
    (void)d;
    return ref_scratch(need) * sizeof(float);
}

static size_t ref_prepared_bytes(struct dev *d, const struct weight *w) {
    (void)d;
    (void)w;
    return 0;
}

static int ref_prepare(struct dev *d, const struct weight *w, void *dst, struct weight *w2) {
    (void)d;
    (void)dst;
    *w2 = *w;
    return 0;
}

const struct ops ref_ops = {
    .name = "reference",
    .is_host = true,
    .alloc = ref_alloc,
    .free = ref_free,
    .upload = ref_copy,
    .download = ref_copy,
    .copy = ref_copy,
    .zero = ref_zero,
    .flush = ref_flush,
    .free_bytes = ref_free_bytes,
    .scratch_bytes = ref_scratch_bytes,
    .reserve = ref_reserve,
    .status = ref_status,
    .close = ref_close,
    .prepared_bytes = ref_prepared_bytes,
    .prepare = ref_prepare,
    .embed = ref_embed,
    .rms_norm = ref_rms_norm,
    .layer_norm = ref_layer_norm,
    .linear = ref_linear,
    .qkv_store = ref_qkv_store,
    .attn = ref_attn,
    .attn_full = ref_attn_full,
    .gdn = ref_gdn,
    .conv = ref_conv,
    .ssm = ref_ssm,
    .ssd = ref_ssd,
    .ffn = ref_ffn,
    .moe = ref_moe,
    .route = ref_route,
    .act_mul = ref_act_mul,
    .axpby = ref_axpby,
    .gather_rows = ref_gather_rows,
    .select = ref_select,
};

static int open_ref(struct dev **out, bool round8, struct err *e) {
    struct ref *r = mem_zalloc(sizeof *r);
    if (!r) return err_set(e, CHIMERE_ENOMEM, "reference device: out of memory");
    r->dev.ops = &ref_ops;
    r->round8 = round8;
    *out = &r->dev;
    return 0;
}

int cpu_open_ref(struct dev **out, struct err *e) { return open_ref(out, false, e); }
int ref_open_round8(struct dev **out, struct err *e) { return open_ref(out, true, e); }

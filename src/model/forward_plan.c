/* forward_plan.c: memory of a forward pass: activations, device scratch, host staging; all allocated once. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "model/block/block.h"
#include "model/forward_impl.h"

static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

static struct block_rows plan_rows(const struct hparams *hp) {
    struct block_rows r = {0};
    for (int32_t il = 0; il < arch_n_layer_all(hp); il++) block_rows_of(hp, il, &r);
    return r;
}

/* Every activation array: address of its pointer, floats per token or per output row. */
struct array {
    float **slot;
    int64_t per_tok, per_out;
};

static bool is_sum(const struct hparams *hp) {
    for (int32_t il = 0; il < hp->n_layer; il++)
        if (hp->layer[il].sums) return true;
    return false;
}

static int list_arrays(struct forward *f, const struct hparams *hp, struct array out[24]) {
    struct block_rows p = plan_rows(hp);
    int64_t d = hp->n_embd;
    const struct array all[] = {
        {&f->x, d, 0},
        {&f->h, d, 0},
        {&f->proj, p.proj, 0},
        {&f->z, p.z, 0},
        {&f->ab, p.ab, 0},
        {&f->mix, p.mix, 0},
        {&f->embd, p.embd ? d : 0, 0},
        {&f->other, p.other, 0},
        {&f->branch, hp->residual_scale != 1 || hp->has_post_norm || is_sum(hp) ? d : 0, 0},
        {&f->ff, 2 * p.ff, 0},
        {&f->hidden, d, 0},
        {&f->pair, hp->n_nextn || p.embd ? 2 * d : 0, 0},
        {&f->ple, p.ple, 0},
        {&f->ple_row, p.ple, 0},
        {&f->low, LORA_MAX_RANK, 0},
        {&f->picked, 0, d},
        {&f->logits, 0, hp->n_logit}};
    int n = (int)(sizeof all / sizeof *all);
    memcpy(out, all, sizeof all);
    f->proj_stride = p.proj;
    f->z_stride = p.z;
    f->mix_stride = p.mix;
    f->ff_stride = p.ff;
    return n;
}

uint64_t forward_bytes(const struct model *m, int32_t n_tok_max, int32_t n_out_max) {
    struct forward f = {.m = NULL};
    struct array a[24];
    int n = list_arrays(&f, &m->hp, a);
    uint64_t bytes = 0;
    for (int i = 0; i < n; i++)
        bytes += 4u * ((uint64_t)a[i].per_tok * (uint64_t)n_tok_max +
                       (uint64_t)a[i].per_out * (uint64_t)n_out_max);
    if (m->hp.moe.n_expert) bytes += sizeof(struct moe_keep) * (uint64_t)n_tok_max;
    return bytes;
}

struct dev_need forward_need(const struct model *m, int64_t n_ctx, int32_t n_tok_max) {
    const struct hparams *hp = &m->hp;
    struct block_rows r = plan_rows(hp);
    struct dev_need n = {.n_tok = n_tok_max,
                         .d_head = hp->d_k > hp->d_v ? hp->d_k : hp->d_v,
                         .n_ctx = n_ctx > 0 ? n_ctx + hp->n_meta : n_tok_max,
                         .stages = m->weights.experts.staging[0] != NULL};
    n.n_in = max64(max64(2 * (int64_t)hp->n_embd, r.mix), max64(r.ff, hp->dense.n[0]));
    n.n_out = max64(max64(hp->n_vocab, r.proj),
                    max64(r.ff, r.ple)); /* select reads whole rows, also of slices */
    n.n_ff = r.ff;
    for (int32_t il = 0; il < arch_n_layer_all(hp); il++) block_need_of(hp, il, &n);
    return n;
}

#define WIDEN(field)                                                                               \
    if (need->field > all->field) all->field = need->field

/* Adds the need of another forward: while one exists, the device's scratch must not shrink. */
static void widen(struct dev_need *all, const struct dev_need *need) {
    WIDEN(n_tok);
    WIDEN(n_in);
    WIDEN(n_out);
    WIDEN(n_ff);
    WIDEN(n_expert);
    WIDEN(n_used);
    WIDEN(n_head);
    WIDEN(d_head);
    WIDEN(n_v_head);
    WIDEN(d_state);
    WIDEN(d_rec_k);
    WIDEN(d_rec_v);
    WIDEN(n_conv);
    WIDEN(n_ctx);
    WIDEN(stages);
}

int forward_new(struct forward **out, struct model *m, struct seq_pool *p, int32_t n_tok_max,
                int32_t n_out_max, struct err *e) {
    *out = NULL;
    if (n_tok_max < 1 || n_out_max < 1)
        return err_set(e, CHIMERE_EINVAL, "forward: expected room for a token");
    struct forward *f = mem_zalloc(sizeof *f);
    if (!f) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    f->m = m;
    f->p = p;
    f->d = m->dev;
    f->n_tok_max = n_tok_max;
    f->n_out_max = n_out_max;
    struct array a[24];
    int n = list_arrays(f, &m->hp, a);
    struct dev_need need =
        forward_need(m, p ? p->params.n_ctx : 0, n_tok_max > n_out_max ? n_tok_max : n_out_max);
    struct dev_need all = need;
    if (m->n_forward++) widen(&all, &m->need);
    int rc = f->d->ops->reserve(f->d, &all, e);
    if (!rc) m->need = all;
    if (!rc) rc = experts_new(&f->experts, m, &need, n_tok_max, e);
    for (int i = 0; !rc && i < n; i++) {
        size_t bytes =
            (size_t)(a[i].per_tok * n_tok_max + a[i].per_out * n_out_max) * sizeof(float);
        if (bytes && !(*a[i].slot = f->d->ops->alloc(f->d, bytes)))
            rc = err_set(e, CHIMERE_ENOMEM, "activations for %d tokens: out of memory", n_tok_max);
    }
    f->rows = mem_alloc_array((size_t)n_out_max, sizeof *f->rows);
    f->ids = mem_alloc_array((size_t)n_tok_max, sizeof *f->ids);
    f->ple_at = mem_alloc_array((size_t)n_tok_max, sizeof *f->ple_at);
    if (!f->d->ops->is_host)
        f->host_logits =
            f->d->ops->host_alloc(f->d, (size_t)n_out_max * (size_t)m->hp.n_logit * sizeof(float));
    if (!rc && (!f->rows || !f->ids || !f->ple_at || (!f->d->ops->is_host && !f->host_logits)))
        rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = forward_run_meta(f, e);
    if (rc) {
        forward_free(f);
        return rc;
    }
    *out = f;
    return 0;
}

void forward_free(struct forward *f) {
    if (!f) return;
    if (f->taps) f->d->ops->free(f->d, f->taps);
    struct array a[24];
    int n = list_arrays(f, &f->m->hp, a);
    for (int i = 0; i < n; i++)
        if (*a[i].slot) f->d->ops->free(f->d, *a[i].slot);
    experts_free(f->experts);
    f->m->n_forward--;
    if (f->host_logits) f->d->ops->host_free(f->d, f->host_logits);
    mem_free(f->rows);
    mem_free(f->ids);
    mem_free(f->ple_at);
    mem_free(f);
}

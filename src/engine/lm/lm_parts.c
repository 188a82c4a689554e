/* lm_parts.c: an implementation of lm.h for a model on several devices: parts of the layers that run one after another,
 * or slices of every layer that run concurrently (lm_tensor.c). */
#include "engine/lm/lm_parts.h"

#include <string.h>

#include "base/mem.h"
#include "engine/draft/drafter.h"
#include "kernels/link.h"
#include "model/seq/checkpoint.h"

static struct part_seq *of(struct seq *s) { return (struct part_seq *)(void *)s; }

/* ---- turns ---- */

int lm_turns_new(struct lm_turns **out, int32_t n, struct err *e) {
    struct lm_turns *t = *out = mem_zalloc(sizeof *t);
    if (!t) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (t->n = 0; t->n < n; t->n++) pthread_mutex_init(&t->of[t->n], NULL);
    return 0;
}

void lm_turns_free(struct lm_turns *t) {
    for (int32_t i = 0; t && i < t->n; i++) pthread_mutex_destroy(&t->of[i]);
    mem_free(t);
}

void lm_parts_begin(struct parts *x, int32_t i) {
    if (x->turns && !(x->is_held && i == x->n - 1)) pthread_mutex_lock(&x->turns->of[i]);
}

void lm_parts_end(struct parts *x, int32_t i) {
    if (x->turns && !(x->is_held && i == x->n - 1)) pthread_mutex_unlock(&x->turns->of[i]);
}

/* ---- sequences ---- */

static void parts_seq_free(struct lm *l, struct seq *s) {
    struct parts *x = (struct parts *)l;
    for (int32_t i = 0; s && i < x->n; i++) {
        lm_parts_begin(x, i);
        seq_free(of(s)->part[i]);
        lm_parts_end(x, i);
    }
    mem_free(s);
}

static int parts_seq_new(struct lm *l, struct seq **out, struct err *e) {
    struct parts *x = (struct parts *)l;
    struct part_seq *s = mem_zalloc(sizeof *s);
    *out = NULL;
    if (!s) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    int rc = 0;
    for (int32_t i = 0; !rc && i < x->n; i++) {
        lm_parts_begin(x, i);
        rc = seq_new(&s->part[i], x->part[i].pool, e);
        lm_parts_end(x, i);
    }
    if (rc) parts_seq_free(l, (struct seq *)(void *)s);
    else *out = (struct seq *)(void *)s;
    if (!rc && l->drafter) l->drafter->ops->rewind(l->drafter, *out);
    return rc;
}

static int64_t parts_seq_pos(struct lm *l, const struct seq *s) {
    (void)l;
    return seq_pos(((const struct part_seq *)(const void *)s)->part[0]);
}

static void parts_seq_drop(struct lm *l, struct seq *s, int32_t n) {
    struct parts *x = (struct parts *)l;
    for (int32_t i = 0; i < x->n; i++) {
        lm_parts_begin(x, i);
        seq_drop(of(s)->part[i], n);
        lm_parts_end(x, i);
    }
}

static struct forward *last(struct lm *l) {
    struct parts *x = (struct parts *)l;
    return x->part[x->n - 1].f;
}

void lm_parts_items(struct part *p, int32_t i, const struct batch_item *runs, int32_t n_run) {
    for (int32_t k = 0; k < n_run && k < ENGINE_MAX_SEQS; k++) {
        p->items[k] = runs[k];
        p->items[k].seq = of(runs[k].seq)->part[i];
    }
}

/* Logits that stay on the last device belong to this engine until it has selected from them: the turn ends then. */
static int run_layers(struct lm *l, const struct batch_item *runs, int32_t n_run,
                      const float **logits, struct err *e) {
    struct parts *x = (struct parts *)l;
    int rc = 0;
    for (int32_t i = 0; !rc && i < x->n; i++) {
        struct part *p = &x->part[i];
        bool ends = i == x->n - 1;
        lm_parts_items(p, i, runs, n_run);
        lm_parts_begin(x, i);
        rc = forward_run_part(p->f, p->items, n_run, i ? x->rows : NULL, ends ? NULL : x->rows,
                              ends ? logits : NULL, e);
        if (rc || !ends || logits) lm_parts_end(x, i);
        else x->is_held = x->turns != NULL;
    }
    return rc;
}

static int run_slices(struct lm *l, const struct batch_item *runs, int32_t n_run,
                      const float **logits, struct err *e) {
    return lm_tensor_run(((struct parts *)l)->tensor, runs, n_run, logits, e);
}

static int parts_select(struct lm *l, struct select_args *a, struct err *e) {
    struct parts *x = (struct parts *)l;
    lm_parts_begin(x, x->n - 1);
    int rc = forward_select(last(l), a, e);
    x->is_held = false;
    lm_parts_end(x, x->n - 1);
    return rc;
}
static const float *parts_row(struct lm *l, int32_t i, struct err *e) {
    struct parts *x = (struct parts *)l;
    lm_parts_begin(x, x->n - 1);
    const float *row = forward_row(last(l), i, e);
    lm_parts_end(x, x->n - 1);
    return row;
}

static int slices_select(struct lm *l, struct select_args *a, struct err *e) {
    return lm_tensor_select(((struct parts *)l)->tensor, a, e);
}
static const float *slices_row(struct lm *l, int32_t i, struct err *e) {
    return lm_tensor_row(((struct parts *)l)->tensor, i, e);
}

static int32_t slices_links(const struct lm *l, struct link_stats *out) {
    const struct parts *x = (const struct parts *)l;
    for (int32_t i = 0; i < x->n; i++) lm_tensor_stats(x->tensor, i, &out[i]);
    return x->n;
}

static void parts_close(struct lm *l) {
    struct parts *x = (struct parts *)l;
    const struct dev *first = x->part[0].m->dev;
    if (!lm_tensor_free(x->tensor)) return; /* a device may still use the memory: leak it instead */
    if (l->drafter) l->drafter->ops->close(l->drafter);
    if (x->rows && first->ops->host_free) first->ops->host_free(x->part[0].m->dev, x->rows);
    else mem_free(x->rows);
    for (int32_t i = 0; i < x->n; i++) {
        lm_parts_begin(x, i);
        forward_free(x->part[i].f);
        seq_pool_free(x->part[i].pool);
        lm_parts_end(x, i);
        mem_free(x->part[i].items);
    }
    seq_pool_free(x->shape);
    mem_free(x->whole);
    mem_free(x);
}

static const struct lm_ops parts_ops = {.seq_new = parts_seq_new,
                                        .seq_free = parts_seq_free,
                                        .seq_pos = parts_seq_pos,
                                        .seq_drop = parts_seq_drop,
                                        .run = run_layers,
                                        .close = parts_close,
                                        .marks = &lm_parts_marks};

static int open_part(struct part *t, struct model *m, const struct engine_params *p,
                     struct err *e) {
    const struct seq_pool_params pool = lm_pool_params(p);
    t->m = m;
    t->items = mem_alloc_array(ENGINE_MAX_SEQS, sizeof *t->items);
    if (!t->items) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    int rc = seq_pool_new(&t->pool, m, &pool, e);
    return rc ? rc : forward_new(&t->f, m, t->pool, p->n_batch, lm_n_out_max(p), e);
}

/* Allocates the buffer for rows that pass from one part to the next. */
static int take_rows(struct parts *x, int32_t n_batch, struct err *e) {
    struct model *m = x->part[0].m;
    size_t bytes = (size_t)n_batch * (size_t)m->hp.n_embd * sizeof *x->rows;
    x->rows = m->dev->ops->host_alloc ? m->dev->ops->host_alloc(m->dev, bytes) : mem_alloc(bytes);
    return x->rows ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
}

int lm_open_parts(struct lm **out, struct model *const *parts, int32_t n, struct lm_turns *turns,
                  const struct engine_params *p, struct err *e) {
    *out = NULL;
    const struct model *end = parts[n - 1];
    bool is_sliced = end->slice != NULL;
    struct parts *x = mem_zalloc(sizeof *x);
    if (!x) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    x->ops = parts_ops;
    x->turns = turns;
    bool select = end->dev->ops->select && (p->select || !end->dev->ops->is_host) && !is_sliced;
    if (select) x->ops.select = parts_select, x->ops.row = parts_row;
    if (is_sliced) x->ops.run = run_slices, x->ops.links = slices_links;
    x->lm = (struct lm){.ops = &x->ops,
                        .n_vocab = end->hp.n_vocab,
                        .n_row_max = lm_n_out_max(p),
                        .n_ctx = p->n_ctx,
                        .is_split = n > 1};
    x->part[0].m = parts[0];
    int rc = is_sliced ? 0 : take_rows(x, p->n_batch, e);
    for (int32_t i = 0; !rc && i < n; i++) {
        x->n = i + 1;
        lm_parts_begin(x, i);
        rc = open_part(&x->part[i], parts[i], p, e);
        lm_parts_end(x, i);
        if (rc) break;
        x->lm.page_bytes += checkpoint_page_bytes(x->part[i].pool);
        x->lm.checkpoint_bytes += checkpoint_state_bytes(x->part[i].pool);
    }
    if (!rc) rc = lm_parts_shape(x, p, e);
    if (!rc) x->lm.layout = lm_layout(x->whole, x->shape, p);
    if (!rc) x->lm.device = lm_device(parts, n);
    if (!rc && is_sliced) rc = lm_tensor_new(&x->tensor, x, p, e);
    if (!rc && is_sliced && lm_tensor_selects(x->tensor))
        x->ops.select = slices_select, x->ops.row = slices_row;
    if (!rc && p->speculate) rc = lm_parts_draft(&x->lm.drafter, x, p, e);
    if (rc) parts_close(&x->lm);
    else *out = &x->lm;
    return rc;
}

/* lm_parts_draft.c: drafts by the prediction block of a model on several devices. With parts of the layers, the last
 * part has the block and drafts, in its turn. With slices, each device has a slice of the block and a drafter of its
 * own; all of them propose the same tokens (drafter_mtp.c). */
#include "base/mem.h"
#include "engine/draft/drafter.h"
#include "engine/draft/spec.h"
#include "engine/lm/lm_parts.h"

struct split_drafter {
    struct drafter drafter;
    struct drafter_ops ops;
    struct parts *x;                         /* borrowed */
    int32_t first;                           /* parts [first, x->n) have a drafter */
    struct drafter *of[GPUS_MAX];            /* owned */
    struct drafter_request *asked[GPUS_MAX]; /* owned [SPEC_MAX_SEQS]: with the part's sequences */

    /* arguments of the current call, views */
    const struct batch_item *runs;
    const int32_t *n_kept;
    const bool *follow;
    const struct drafter_request *wanted;
    int32_t n;
};

static struct seq *part_of(const struct seq *s, int32_t i) {
    return ((const struct part_seq *)(const void *)s)->part[i];
}

/* Slices draft concurrently, each on its device's thread. */
static int for_each(struct split_drafter *d, lm_part_fn *task, struct err *e) {
    struct parts *x = d->x;
    if (x->tensor) return lm_tensor_each(x->tensor, task, d, e);
    lm_parts_begin(x, d->first);
    int rc = task(x, d->first, d, e);
    lm_parts_end(x, d->first);
    return rc;
}

static int observe_part(struct parts *x, int32_t i, void *arg, struct err *e) {
    struct split_drafter *d = arg;
    struct batch_item *items = x->part[i].items;
    for (int32_t k = 0; k < d->n; k++) {
        items[k] = d->runs[k];
        /* sequences that are not followed may have been freed */
        items[k].seq = d->follow[k] ? part_of(d->runs[k].seq, i) : NULL;
    }
    return d->of[i]->ops->observe(d->of[i], items, d->n_kept, d->follow, d->n, e);
}

static int split_observe(struct drafter *drafter, const struct batch_item *runs,
                         const int32_t *n_kept, const bool *follow, int32_t n_run, struct err *e) {
    struct split_drafter *d = (struct split_drafter *)drafter;
    d->runs = runs;
    d->n_kept = n_kept;
    d->follow = follow;
    d->n = n_run < ENGINE_MAX_SEQS ? n_run : ENGINE_MAX_SEQS;
    return for_each(d, observe_part, e);
}

static int draft_part(struct parts *x, int32_t i, void *arg, struct err *e) {
    struct split_drafter *d = arg;
    struct drafter_request *asked = d->asked[i];
    (void)x;
    for (int32_t k = 0; k < d->n; k++) {
        asked[k] = d->wanted[k];
        asked[k].seq = part_of(d->wanted[k].seq, i);
    }
    return d->of[i]->ops->draft(d->of[i], asked, d->n, e);
}

static int split_draft(struct drafter *drafter, struct drafter_request *wanted, int32_t n,
                       struct err *e) {
    struct split_drafter *d = (struct split_drafter *)drafter;
    d->wanted = wanted;
    d->n = n < SPEC_MAX_SEQS ? n : SPEC_MAX_SEQS;
    int rc = for_each(d, draft_part, e);
    for (int32_t k = 0; k < n; k++) {
        struct seq *s = wanted[k].seq;
        if (k < d->n) wanted[k] = d->asked[d->first][k];
        wanted[k].seq = s;
        if (rc || k >= d->n) wanted[k].n_draft = 0;
    }
    return rc;
}

static void split_rewind(struct drafter *drafter, const struct seq *s) {
    struct split_drafter *d = (struct split_drafter *)drafter;
    for (int32_t i = d->first; i < d->x->n; i++) d->of[i]->ops->rewind(d->of[i], part_of(s, i));
}

static void split_close(struct drafter *drafter) {
    struct split_drafter *d = (struct split_drafter *)drafter;
    for (int32_t i = d->first; i < d->x->n; i++) {
        lm_parts_begin(d->x, i);
        if (d->of[i]) d->of[i]->ops->close(d->of[i]);
        lm_parts_end(d->x, i);
        mem_free(d->asked[i]);
    }
    mem_free(d);
}

int lm_parts_draft(struct drafter **out, struct parts *x, const struct engine_params *p,
                   struct err *e) {
    *out = NULL;
    struct split_drafter *d = mem_zalloc(sizeof *d);
    if (!d) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    d->x = x;
    d->first = x->tensor ? 0 : x->n - 1;
    int rc = 0;
    for (int32_t i = d->first; !rc && i < x->n; i++) {
        const struct part *t = &x->part[i];
        bool select = t->m->dev->ops->select && (p->select || !t->m->dev->ops->is_host);
        const struct drafter_params params = {.m = t->m,
                                              .f = t->f,
                                              .n_seq = p->n_seq,
                                              .select = select,
                                              .n_head = p->n_draft_head,
                                              .n_rank = x->tensor ? x->n : 1};
        lm_parts_begin(x, i);
        rc = drafter_open(&d->of[i], &params, e);
        lm_parts_end(x, i);
        d->asked[i] = mem_alloc_array(SPEC_MAX_SEQS, sizeof *d->asked[i]);
        if (!rc && !d->asked[i]) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    }
    if (rc || !d->of[d->first]) { /* an error, or the model has no prediction block */
        split_close(&d->drafter);
        return rc;
    }
    const struct drafter *one = d->of[d->first];
    d->ops = (struct drafter_ops){.name = one->ops->name,
                                  .observe = split_observe,
                                  .draft = split_draft,
                                  .rewind = split_rewind,
                                  .close = split_close};
    d->drafter = (struct drafter){.ops = &d->ops, .n_max = one->n_max};
    *out = &d->drafter;
    return 0;
}

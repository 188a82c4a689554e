/* swap.c: see swap.h. */
#include "model/seq/swap.h"

#include <string.h>

#include "base/mem.h"
#include "format/quant.h"

enum {
    MAX_SLOTS = 16
}; /* views of one tensor: fused projections have four, a tied embedding two */

struct part {
    struct weight form;
    void *memory; /* owned by the device; NULL: form is used in place */
};

struct swap {
    struct dev *dev; /* borrowed */
    int n;
    struct weight *slots[MAX_SLOTS]; /* views */
    struct part parts[MAX_SLOTS], tails[MAX_SLOTS];
    size_t n_bytes;
};

static bool is_source(const struct weight_source *s, const char *tensor) {
    return strcmp(s->tensor->name, tensor) == 0;
}

bool swap_is_possible(const struct model *m, const char *tensor) {
    int n = 0;
    if (m->weights.experts.host || m->weights.experts.slots) return false;
    for (size_t i = 0; i < m->weights.n_source; i++) n += is_source(&m->weights.sources[i], tensor);
    return n > 0 && n <= MAX_SLOTS;
}

/* The rows of the tensor that `from` has, n columns of them in the new encoding. */
static struct weight view_of(const struct weight_source *from, uint32_t type, uint64_t n,
                             const void *data) {
    uint64_t row_bytes = 0;
    quant_row_bytes(type, n, &row_bytes);
    size_t row = (size_t)((const unsigned char *)from->file.data - from->tensor->data) /
                 from->file.row_bytes;
    struct weight w = from->file;
    w.data = (const char *)data + row * row_bytes;
    w.type = type;
    w.n_in = (int64_t)n;
    w.row_bytes = row_bytes;
    w.mat_bytes = row_bytes * from->tensor->ne[1];
    return w;
}

static int prepare(struct swap *s, struct part *p, const struct weight_source *from,
                   struct weight w, struct err *e) {
    struct dev *d = s->dev;
    size_t n = from->is_table ? 0 : d->ops->prepared_bytes(d, &w);
    p->form = w;
    if (!n) return 0;
    p->memory = d->ops->alloc(d, n);
    if (!p->memory)
        return err_set(e, CHIMERE_ENOMEM, "tensor %s: out of memory", from->tensor->name);
    s->n_bytes += n;
    int rc = d->ops->prepare(d, &w, p->memory, &p->form);
    if (!rc) return 0;
    return d->ops->status(d, e) ? e->code
                                : err_set(e, rc, "tensor %s: as %s: not finite", from->tensor->name,
                                          quant_traits(w.type)->name);
}

static int add_slot(struct swap *s, const struct weight_source *from, const struct swap_form *form,
                    struct err *e) {
    struct part *p = &s->parts[s->n], *tail = &s->tails[s->n];
    uint64_t n_last = from->tensor->ne[0] - form->n_first;
    s->slots[s->n++] = from->slot;
    int rc = prepare(s, p, from, view_of(from, form->type, form->n_first, form->data), e);
    if (rc || !n_last) return rc;
    rc = prepare(s, tail, from, view_of(from, form->tail, n_last, form->tail_data), e);
    p->form.tail = &tail->form;
    return rc;
}

int swap_new(struct swap **out, struct model *m, const char *tensor, const struct swap_form *form,
             struct err *e) {
    *out = NULL;
    if (!swap_is_possible(m, tensor))
        return err_set(e, CHIMERE_EUNSUPPORTED, "tensor %s: cannot be exchanged", tensor);
    struct swap *s = mem_zalloc(sizeof *s);
    if (!s) return err_set(e, CHIMERE_ENOMEM, "tensor %s: out of memory", tensor);
    s->dev = m->dev;
    int rc = 0;
    for (size_t i = 0; i < m->weights.n_source && !rc; i++)
        if (is_source(&m->weights.sources[i], tensor))
            rc = add_slot(s, &m->weights.sources[i], form, e);
    if (rc) swap_free(s);
    else *out = s;
    return rc;
}

void swap_free(struct swap *s) {
    if (!s) return;
    for (int i = 0; i < s->n; i++) {
        if (s->parts[i].memory) s->dev->ops->free(s->dev, s->parts[i].memory);
        if (s->tails[i].memory) s->dev->ops->free(s->dev, s->tails[i].memory);
    }
    mem_free(s);
}

size_t swap_bytes(const struct swap *s) { return s->n_bytes; }

void swap_apply(const struct swap *s) {
    for (int i = 0; i < s->n; i++) *s->slots[i] = s->parts[i].form;
}

void swap_restore(struct model *m, const char *tensor) {
    for (size_t i = 0; i < m->weights.n_source; i++) {
        const struct weight_source *s = &m->weights.sources[i];
        if (is_source(s, tensor)) *s->slot = s->ready;
    }
}

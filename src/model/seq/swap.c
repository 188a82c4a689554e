/* swap.c: see swap.h. */
#include "model/seq/swap.h"

#include <string.h>

#include "base/mem.h"
#include "format/quant.h"

enum {
    MAX_SLOTS = 16
}; /* views of one tensor: fused projections have four, a tied embedding two */

struct swap {
    struct dev *dev; /* borrowed */
    int n;
    struct weight *slots[MAX_SLOTS]; /* views */
    struct weight forms[MAX_SLOTS];
    void *memory[MAX_SLOTS]; /* owned by the device; NULL: forms[i] is used in place */
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

/* The rows of the tensor that `from` has, in the new encoding. */
static struct weight view_of(const struct weight_source *from, uint32_t type, const void *data) {
    uint64_t row_bytes = 0;
    quant_row_bytes(type, from->tensor->ne[0], &row_bytes);
    size_t row = (size_t)((const unsigned char *)from->file.data - from->tensor->data) /
                 from->file.row_bytes;
    struct weight w = from->file;
    w.data = (const char *)data + row * row_bytes;
    w.type = type;
    w.row_bytes = row_bytes;
    w.mat_bytes = row_bytes * from->tensor->ne[1];
    return w;
}

static int add_slot(struct swap *s, const struct weight_source *from, uint32_t type,
                    const void *data, struct err *e) {
    struct weight w = view_of(from, type, data);
    struct dev *d = s->dev;
    size_t n = from->is_table ? 0 : d->ops->prepared_bytes(d, &w);
    s->slots[s->n] = from->slot;
    s->forms[s->n] = w;
    if (n) {
        void *p = s->memory[s->n] = d->ops->alloc(d, n);
        if (!p) return err_set(e, CHIMERE_ENOMEM, "tensor %s: out of memory", from->tensor->name);
        int rc = d->ops->prepare(d, &w, p, &s->forms[s->n]);
        s->n_bytes += n;
        if (rc) {
            s->n++;
            return d->ops->status(d, e) ? e->code
                                        : err_set(e, rc, "tensor %s: as %s: not finite",
                                                  from->tensor->name, quant_traits(type)->name);
        }
    }
    s->n++;
    return 0;
}

int swap_new(struct swap **out, struct model *m, const char *tensor, uint32_t type,
             const void *data, struct err *e) {
    *out = NULL;
    if (!swap_is_possible(m, tensor))
        return err_set(e, CHIMERE_EUNSUPPORTED, "tensor %s: cannot be exchanged", tensor);
    struct swap *s = mem_zalloc(sizeof *s);
    if (!s) return err_set(e, CHIMERE_ENOMEM, "tensor %s: out of memory", tensor);
    s->dev = m->dev;
    int rc = 0;
    for (size_t i = 0; i < m->weights.n_source && !rc; i++)
        if (is_source(&m->weights.sources[i], tensor))
            rc = add_slot(s, &m->weights.sources[i], type, data, e);
    if (rc) swap_free(s);
    else *out = s;
    return rc;
}

void swap_free(struct swap *s) {
    if (!s) return;
    for (int i = 0; i < MAX_SLOTS; i++)
        if (s->memory[i]) s->dev->ops->free(s->dev, s->memory[i]);
    mem_free(s);
}

size_t swap_bytes(const struct swap *s) { return s->n_bytes; }

void swap_apply(const struct swap *s) {
    for (int i = 0; i < s->n; i++) *s->slots[i] = s->forms[i];
}

void swap_restore(struct model *m, const char *tensor) {
    for (size_t i = 0; i < m->weights.n_source; i++) {
        const struct weight_source *s = &m->weights.sources[i];
        if (is_source(s, tensor)) *s->slot = s->ready;
    }
}

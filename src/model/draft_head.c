#include "model/draft_head.h"

#include <stdatomic.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/pool.h"
#include "format/quant.h"

enum { ROW_UNIT = 32, BLOCK = 32 };

int32_t draft_head_rows(const struct hparams *hp, int32_t wanted) {
    if (hp->no_head || hp->n_logit != hp->n_vocab || hp->n_embd % BLOCK) return 0;
    if (!wanted && hp->n_vocab < DRAFT_HEAD_LEAST_VOCAB) return 0;
    int32_t n = wanted ? wanted : DRAFT_HEAD_ROWS;
    n = n < hp->n_vocab ? (n + ROW_UNIT - 1) / ROW_UNIT * ROW_UNIT : hp->n_vocab;
    return n < hp->n_vocab ? n : 0;
}

int32_t draft_head_n_id(const struct model *m) {
    return m->n_draft_id ? m->n_draft_id : m->hp.n_logit;
}

/* The copy in the form of a file, without data. */
static struct weight shape_of(const struct hparams *hp, int32_t n_row) {
    uint64_t row = 0;
    quant_row_bytes(QUANT_Q4_0, (uint64_t)hp->n_embd, &row);
    return (struct weight){.type = QUANT_Q4_0,
                           .n_in = hp->n_embd,
                           .n_out = n_row,
                           .n_mat = 1,
                           .row_bytes = row,
                           .mat_bytes = row * (uint64_t)n_row};
}

uint64_t draft_head_bytes(const struct hparams *hp, struct dev *d, int32_t wanted) {
    struct weight w = shape_of(hp, draft_head_rows(hp, wanted));
    uint64_t n = d && w.n_out ? d->ops->prepared_bytes(d, &w) : 0;
    return n ? n : w.mat_bytes;
}

/* ---- encoding ---- */

struct copying {
    const struct weight
        *from[2]; /* the head's columns, and its tail's or NULL; in the file's form */
    const struct weight *to;
    uint8_t *data;
    float *rows; /* [n_thread, n_in] */
    _Atomic bool is_bad;
};

static void copy_rows(void *arg, int ith, int n_thread) {
    struct copying *c = arg;
    const struct weight *to = c->to;
    float *row = c->rows + (int64_t)ith * to->n_in;
    int64_t end = to->n_out * (ith + 1) / n_thread;
    for (int64_t i = to->n_out * ith / n_thread; i < end; i++) {
        int64_t at = 0;
        for (int k = 0; k < 2 && c->from[k]; at += c->from[k++]->n_in) {
            const struct weight *w = c->from[k];
            quant_traits(w->type)->decode((const char *)w->data + (size_t)i * w->row_bytes,
                                          row + at, (size_t)w->n_in);
        }
        if (!quant_traits(to->type)->encode(row, c->data + (size_t)i * to->row_bytes,
                                            (size_t)to->n_in, NULL))
            c->is_bad = true;
    }
}

/* Writes the rows to data, [n_out] rows of `to`. */
static int encode(struct copying *c, struct err *e) {
    struct pool *pool = pool_new(0);
    if (pool)
        c->rows = mem_alloc_array((size_t)pool_n_thread(pool), (size_t)c->to->n_in * sizeof(float));
    if (c->rows) pool_run(pool, copy_rows, c);
    bool ok = c->rows && !c->is_bad;
    mem_free(c->rows);
    pool_free(pool);
    return ok ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory for the head of drafts");
}

/* The matrix in slot as the file has it; NULL: its rows were gathered. */
static const struct weight *in_file(const struct weights *w, const struct weight *slot) {
    for (size_t i = 0; slot && i < w->n_source; i++)
        if (w->sources[i].slot == slot && !w->sources[i].is_table) return &w->sources[i].file;
    return NULL;
}

/* Moves the rows to memory of the device, in its form. */
static int place(struct model *m, struct weight *w, void *rows, struct err *e) {
    struct dev *d = m->dev;
    size_t n = d->ops->prepared_bytes(d, w);
    void *p = d->ops->alloc(d, n ? n : w->mat_bytes);
    if (!p) return err_set(e, CHIMERE_ENOMEM, "out of memory for the head of drafts");
    m->draft_head_memory = p;
    w->data = rows;
    if (!n) {
        d->ops->upload(d, p, rows, w->mat_bytes);
        w->data = p;
        return d->ops->status(d, e);
    }
    struct weight ready;
    int rc = d->ops->prepare(d, w, p, &ready);
    if (rc) return d->ops->status(d, e) ? e->code : err_set(e, rc, "preparing the head of drafts");
    *w = ready;
    return d->ops->status(d, e);
}

int draft_head_add(struct model *m, int32_t wanted, bool is_block, struct err *e) {
    int32_t n_row = draft_head_rows(&m->hp, wanted);
    if (!n_row || m->draft_head.data) return 0;
    const struct weight *slot = &m->weights.global.output;
    if (is_block && m->weights.layer[m->hp.n_layer].nextn.head.data)
        slot = &m->weights.layer[m->hp.n_layer].nextn.head;
    const struct weight *from = in_file(&m->weights, slot);
    if (!from) return 0;
    struct weight w = shape_of(&m->hp, n_row);
    struct copying c = {.from = {from, in_file(&m->weights, from->tail)}, .to = &w};
    if (from->tail && !c.from[1]) return 0;
    c.data = mem_alloc(w.mat_bytes);
    int rc = c.data ? encode(&c, e) : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = place(m, &w, c.data, e);
    mem_free(c.data);
    if (!rc) m->draft_head = w, m->n_draft_id = n_row;
    else if (m->draft_head_memory) m->dev->ops->free(m->dev, m->draft_head_memory);
    if (rc) m->draft_head_memory = NULL;
    return rc;
}

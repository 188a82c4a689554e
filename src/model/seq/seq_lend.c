/* seq_lend.c: see seq_lend.h. */
#include "model/seq/seq_lend.h"

#include "base/err.h"
#include "base/mem.h"

/* Lists the arrays of pages in out, if it is not NULL. Returns their number. */
static int32_t list_arrays(const struct seq_pool *p, struct page_array *out) {
    int32_t n = 0;
    for (int32_t il = 0; il < arch_n_layer_all(&p->m->hp); il++) {
        const struct layer_state *l = &p->layer[il];
        const struct kv_view *kv = &l->kv;
        if (!kv->n_kv_head || l->kv_is_other) continue;
        if (out) out[n] = (struct page_array){.at = kv->k, .page_bytes = kv->k_page_bytes};
        n++;
        if (kv->v_in_k) continue;
        if (out) out[n] = (struct page_array){.at = kv->v, .page_bytes = kv->v_page_bytes};
        n++;
    }
    return n;
}

int seq_lend_open(struct seq_pool *p, struct err *e) {
    struct seq_lend *l = &p->lend;
    const struct expert_store *s = &p->m->weights.experts;
    int32_t n = s->slots || s->tier ? list_arrays(p, NULL) : 0;
    if (!n || !p->n_page) return 0;
    l->part = (p->n_page + EXPERTS_LEND_PARTS - 1) / EXPERTS_LEND_PARTS;
    l->n_part = (p->n_page + l->part - 1) / l->part;
    l->arrays = mem_alloc_array((size_t)n, sizeof *l->arrays);
    if (!l->arrays) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    l->n_array = list_arrays(p, l->arrays);
    for (int32_t i = 0; i < n; i++) {
        struct page_array *a = &l->arrays[i];
        a->part_bytes = (size_t)l->part * a->page_bytes;
        a->bytes = (size_t)p->n_page * a->page_bytes;
    }
    l->lends = experts_lend_begin(s, p, l->arrays, n);
    return 0;
}

static size_t rounded(size_t n) { return (n + 63) & ~(size_t)63; }

void seq_lend_reserve(struct seq_pool *p) {
    size_t n = 0;
    for (int32_t il = 0; il < arch_n_layer_all(&p->m->hp); il++) {
        const struct layer_state *l = &p->layer[il];
        if (!l->kv.n_kv_head || l->kv_is_other) continue;
        n += rounded((size_t)p->n_page * l->kv.k_page_bytes);
        if (!l->kv.v_in_k) n += rounded((size_t)p->n_page * l->kv.v_page_bytes);
    }
    p->lend.room = n ? experts_lend_room(&p->m->weights.experts, p, n) : NULL;
}

void *seq_lend_alloc(struct seq_pool *p, size_t n) {
    if (!p->lend.room) return p->m->dev->ops->alloc(p->m->dev, n);
    char *at = p->lend.room + p->lend.n_room;
    p->lend.n_room += rounded(n);
    return at;
}

void seq_lend_free(struct seq_pool *p, void *at) {
    if (!p->lend.room) p->m->dev->ops->free(p->m->dev, at);
}

void seq_lend_close(struct seq_pool *p) {
    experts_lend_end(&p->m->weights.experts, p);
    mem_free(p->lend.arrays);
}

/* A page's last positions may be read, with weight 0, before they are written: they must be numbers. */
static void clear(struct seq_pool *p, int32_t part) {
    for (int32_t i = 0; i < p->lend.n_array; i++) {
        const struct page_array *a = &p->lend.arrays[i];
        size_t at = (size_t)part * a->part_bytes, left = a->bytes - at;
        p->m->dev->ops->zero(p->m->dev, a->at + at, left < a->part_bytes ? left : a->part_bytes);
    }
}

void seq_lend_take(struct seq_pool *p, int32_t page) {
    struct seq_lend *l = &p->lend;
    if (!l->lends) return;
    int32_t part = page / l->part;
    uint32_t bit = UINT32_C(1) << part;
    l->n_used[part]++;
    if (!(l->lent & bit)) return;
    l->lent &= ~bit;
    experts_lend_parts(&p->m->weights.experts, l->lent);
    clear(p, part);
}

void seq_lend_drop(struct seq_pool *p, int32_t page) {
    if (p->lend.lends) p->lend.n_used[page / p->lend.part]--;
}

/* Keeps one idle part, so that a sequence at its border does not move it back and forth. */
void seq_lend_idle(struct seq_pool *p) {
    struct seq_lend *l = &p->lend;
    uint32_t lent = l->lent;
    bool keeps = false;
    for (int32_t i = 0; l->lends && i < l->n_part; i++) {
        if (l->n_used[i]) continue;
        if (keeps) lent |= UINT32_C(1) << i;
        keeps = true;
    }
    if (lent == l->lent) return;
    l->lent = lent;
    experts_lend_parts(&p->m->weights.experts, lent);
}

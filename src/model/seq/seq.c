/* seq.c: page tables, slots, forks. Checkpoints are in checkpoint.c. */
#include "model/seq/seq.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "format/quant.h"
#include "model/block/block.h"
#include "model/seq/seq_copy.h"
#include "model/seq/seq_impl.h"
#include "model/seq/seq_lend.h"
#include "model/seq/seq_parts.h"

static size_t rec_layer_bytes(const struct layer_state *l) {
    return (l->rec.s_stride + l->rec.conv_stride + l->rec.log_row * (size_t)l->rec.log_cap) *
           sizeof(float);
}

int32_t seq_n_pages_for(int64_t n_ctx) { return (int32_t)((n_ctx + KV_PAGE - 1) / KV_PAGE); }

/* The rows that precede every sequence have pages and a slot of their own. If they do not fill the last page, every
 * sequence starts with a copy of that page. */
static bool has_split_page(const struct model *m) { return m->hp.n_meta % KV_PAGE != 0; }
static int32_t n_slots_all(const struct model *m, const struct seq_pool_params *p) {
    return p->n_slot + (m->hp.n_meta > 0);
}
static int32_t n_pages_all(const struct model *m, const struct seq_pool_params *p) {
    return seq_n_pages_for(p->n_ctx) + seq_n_pages_for(m->hp.n_meta) +
           (has_split_page(m) ? p->n_slot : 0);
}

/* The recurrent states of all slots and layers share one allocation: it is large enough for 2 MB
 * pages, a single state is not. */
static size_t place(float *block, size_t at, size_t n, float **part) {
    if (block && n) *part = block + at;
    return at + (n + 63) / 64 * 64;
}

/* Assigns layer l's states from float `at` on; block NULL: only counts. Returns the end. */
static size_t place_layer(struct layer_state *l, size_t n_slot, float *block, size_t at) {
    at = place(block, at, n_slot * l->rec.s_stride, &l->rec.s);
    at = place(block, at, n_slot * l->rec.conv_stride, &l->rec.conv);
    return place(block, at, n_slot * l->rec.log_row * (size_t)l->rec.log_cap, &l->rec.log);
}

/* Bytes of a page of values that are not in their keys. */
static size_t v_bytes(const struct kv_view *kv) { return kv->v_in_k ? 0 : kv->v_page_bytes; }

uint64_t seq_pool_bytes(const struct model *m, const struct seq_pool_params *p) {
    uint64_t n = 0;
    size_t rec = 0;
    for (int32_t il = 0; il < arch_n_layer_all(&m->hp); il++) {
        struct layer_state l;
        block_state_of(&m->hp, il, p, &l);
        if (!l.kv_is_other) n += (uint64_t)n_pages_all(m, p) * (l.kv.k_page_bytes + v_bytes(&l.kv));
        rec = place_layer(&l, (size_t)n_slots_all(m, p), NULL, rec);
    }
    n += rec * sizeof(float);
    if (m->hp.n_nextn) n += (uint64_t)p->n_slot * (uint64_t)m->hp.n_embd * sizeof(float);
    return n;
}

static int alloc_states(struct seq_pool *p, struct err *e) {
    struct dev *d = p->m->dev;
    int32_t n_all = arch_n_layer_all(&p->m->hp);
    size_t n_page = (size_t)p->n_page, n_slot = (size_t)n_slots_all(p->m, &p->params), n = 0,
           at = 0;
    bool ok = true;
    seq_lend_reserve(p);
    for (int32_t il = 0; il < n_all; il++) n = place_layer(&p->layer[il], n_slot, NULL, n);
    if (n) ok = (p->rec = d->ops->alloc(d, n * sizeof(float))) != NULL;
    for (int32_t il = 0; ok && il < n_all; il++) {
        struct layer_state *l = &p->layer[il];
        at = place_layer(l, n_slot, p->rec, at);
        p->rec_bytes += rec_layer_bytes(l);
        if (l->kv_is_other) l->kv = p->layer[il - p->m->hp.layer[il].kv_back].kv;
        else if (l->kv.n_kv_head) {
            l->kv.k = seq_lend_alloc(p, n_page * l->kv.k_page_bytes);
            if (!l->kv.v_in_k) l->kv.v = seq_lend_alloc(p, n_page * l->kv.v_page_bytes);
            else if (l->kv.k) l->kv.v = (char *)l->kv.k + l->v_at;
            ok = l->kv.k && l->kv.v;
        }
    }
    return ok ? 0
              : err_set(e, CHIMERE_ENOMEM,
                        "sequence state: out of memory for %d slots and %lld positions",
                        p->params.n_slot, (long long)p->params.n_ctx);
}

static int check_types(const struct model *m, const struct seq_pool_params *p, struct err *e) {
    const uint32_t types[2] = {p->k_type, p->v_type};
    const int32_t dims[2] = {m->hp.d_k, m->hp.d_v};
    for (int i = 0; i < 2; i++) {
        uint32_t t = types[i];
        if (t != QUANT_F32 && t != QUANT_F16 && t != QUANT_Q8_0 && t != QUANT_Q4_0)
            return err_set(e, CHIMERE_EUNSUPPORTED, "cache type: expected f32, f16, q8_0 or q4_0");
        if (t > QUANT_F16 && dims[i] % 32)
            return err_set(e, CHIMERE_EUNSUPPORTED,
                           "cache type: heads of %d elements cannot be quantised in blocks of 32",
                           dims[i]);
    }
    return 0;
}

int seq_pool_new(struct seq_pool **out, struct model *m, const struct seq_pool_params *params,
                 struct err *e) {
    *out = NULL;
    if (params->n_slot < 1 || params->n_ctx < 1 || params->n_ctx > (int64_t)1 << 32)
        return err_set(e, CHIMERE_EINVAL,
                       "sequence state: expected at least one slot and position");
    int rc = check_types(m, params, e);
    if (rc) return rc;
    struct seq_pool *p = mem_zalloc(sizeof *p);
    if (!p) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    p->m = m;
    p->params = *params;
    p->n_page = n_pages_all(m, params);
    int32_t n_all = arch_n_layer_all(&m->hp);
    p->layer = mem_alloc_array((size_t)n_all, sizeof *p->layer);
    p->page_refs = mem_alloc_array((size_t)p->n_page, sizeof *p->page_refs);
    p->free_slots = mem_alloc_array((size_t)params->n_slot, sizeof *p->free_slots);
    p->twin = mem_alloc_array((size_t)p->n_page, sizeof *p->twin);
    if (!p->layer || !p->page_refs || !p->free_slots || !p->twin)
        rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (int32_t i = 0; !rc && i < params->n_slot; i++) p->free_slots[i] = params->n_slot - 1 - i;
    p->n_free_page = p->n_page;
    p->n_free_slot = params->n_slot;
    for (int32_t il = 0; !rc && il < n_all; il++) block_state_of(&m->hp, il, params, &p->layer[il]);
    if (!rc) rc = alloc_states(p, e);
    if (!rc && m->hp.n_nextn) {
        p->hidden = m->dev->ops->alloc(m->dev, (size_t)n_slots_all(m, params) *
                                                   (size_t)m->hp.n_embd * sizeof(float));
        if (!p->hidden) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
        p->rec_bytes += (size_t)m->hp.n_embd * sizeof(float);
    }
    if (!rc) rc = seq_copy_open(p, e);
    if (!rc) rc = seq_lend_open(p, e);
    if (rc) {
        seq_pool_free(p);
        return rc;
    }
    *out = p;
    return 0;
}

int seq_shape_new(struct seq_pool **out, struct model *m, const struct seq_pool_params *params,
                  struct err *e) {
    int32_t n_all = arch_n_layer_all(&m->hp);
    struct seq_pool *p = *out = mem_zalloc(sizeof *p);
    if (p) p->layer = mem_alloc_array((size_t)n_all, sizeof *p->layer);
    if (!p || !p->layer) {
        mem_free(p);
        *out = NULL;
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    }
    p->m = m;
    p->params = *params;
    for (int32_t il = 0; il < n_all; il++) {
        block_state_of(&m->hp, il, params, &p->layer[il]);
        p->rec_bytes += rec_layer_bytes(&p->layer[il]);
    }
    if (m->hp.n_nextn) p->rec_bytes += (size_t)m->hp.n_embd * sizeof(float);
    return 0;
}

void seq_pool_free(struct seq_pool *p) {
    if (!p) return;
    struct dev *d = p->m->dev;
    if (p->meta) mem_free(p->meta->pages);
    mem_free(p->meta);
    for (int32_t il = 0; p->layer && il < arch_n_layer_all(&p->m->hp); il++) {
        struct layer_state *l = &p->layer[il];
        if (l->kv.k && !l->kv_is_other) seq_lend_free(p, l->kv.k);
        if (l->kv.v && !l->kv_is_other && !l->kv.v_in_k) seq_lend_free(p, l->kv.v);
    }
    seq_lend_close(p);
    if (p->rec) d->ops->free(d, p->rec);
    if (p->hidden) d->ops->free(d, p->hidden);
    mem_free(p->layer);
    mem_free(p->page_refs);
    mem_free(p->free_slots);
    mem_free(p->twin);
    mem_free(p->spare_rec);
    seq_copy_close(p);
    mem_free(p);
}

int64_t seq_pool_free_ctx(const struct seq_pool *p) {
    int32_t n = p->n_free_page - (has_split_page(p->m) ? p->n_free_slot : 0);
    return n > 0 ? (int64_t)n * KV_PAGE : 0;
}

bool seq_pool_lends(const struct seq_pool *p) { return p->lend.lends; }

/* ---- pages ---- */

void seq_page_changes(struct seq_pool *p, int32_t page) {
    if (!p->twin[page]) return;
    p->twin[page]->page = -1;
    p->twin[page] = NULL;
}

void seq_page_unref(struct seq_pool *p, int32_t page) {
    if (--p->page_refs[page]) return;
    seq_page_changes(p, page);
    seq_lend_drop(p, page);
    if (page < p->first_free) p->first_free = page;
    p->n_free_page++;
}

int32_t seq_page_take(struct seq_pool *p) {
    if (!p->n_free_page) return -1;
    int32_t page = p->first_free;
    while (p->page_refs[page]) page++;
    p->first_free = page + 1;
    p->n_free_page--;
    p->page_refs[page] = 1;
    seq_lend_take(p, page);
    return page;
}

static void page_copy(struct seq_pool *p, int32_t dst, int32_t src) {
    struct dev *d = p->m->dev;
    for (int32_t il = 0; il < arch_n_layer_all(&p->m->hp); il++) {
        struct kv_view *kv = &p->layer[il].kv;
        if (!kv->n_kv_head || p->layer[il].kv_is_other) continue;
        d->ops->copy(d, (char *)kv->k + (size_t)dst * kv->k_page_bytes,
                     (char *)kv->k + (size_t)src * kv->k_page_bytes, kv->k_page_bytes);
        if (kv->v_in_k) continue;
        d->ops->copy(d, (char *)kv->v + (size_t)dst * kv->v_page_bytes,
                     (char *)kv->v + (size_t)src * kv->v_page_bytes, kv->v_page_bytes);
    }
}

void seq_drop_pages(struct seq *s, int32_t keep) {
    while (s->n_page > keep) seq_page_unref(s->pool, s->pages[--s->n_page]);
}

int seq_grow_table(struct seq *s, int32_t n, struct err *e) {
    if (n <= s->cap_page) return 0;
    int32_t cap = s->cap_page ? s->cap_page : 16;
    while (cap < n) cap *= 2;
    int32_t *pages = mem_realloc(s->pages, (size_t)cap * sizeof *pages);
    if (!pages) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    s->pages = pages;
    s->cap_page = cap;
    return 0;
}

int seq_reserve(struct seq *s, int64_t n, struct err *e) {
    struct seq_pool *p = s->pool;
    if (n < 0 || n > p->params.n_ctx || seq_pos(s) > p->params.n_ctx - n)
        return err_set(e, CHIMERE_ELIMIT, "context: expected at most %lld positions, got %lld",
                       (long long)p->params.n_ctx, (long long)(seq_pos(s) + n));
    int rc = seq_begin(s, e);
    if (rc) return rc;
    int32_t want = seq_n_pages_for(s->pos + n), first = (int32_t)(s->pos / KV_PAGE);
    rc = seq_grow_table(s, want, e);
    if (rc) return rc;
    bool shared = first < s->n_page && p->page_refs[s->pages[first]] > 1;
    if (want - s->n_page + (shared ? 1 : 0) > p->n_free_page)
        return err_set(e, CHIMERE_ELIMIT,
                       "context memory is full: %lld positions wanted, %lld free", (long long)n,
                       (long long)seq_pool_free_ctx(p));
    if (shared) {
        int32_t page = seq_page_take(p);
        if (s->pos % KV_PAGE) page_copy(p, page, s->pages[first]);
        seq_page_unref(p, s->pages[first]);
        s->pages[first] = page;
    }
    for (int32_t i = first; i < s->n_page; i++) seq_page_changes(p, s->pages[i]);
    while (s->n_page < want) s->pages[s->n_page++] = seq_page_take(p);
    seq_lend_idle(p);
    return 0;
}

/* ---- sequences ---- */

/* Parts are the state, convolution and log of every layer, then the hidden row; layers without
 * them have parts of 0 floats. */
bool seq_rec_part(const struct seq_pool *p, int32_t i, struct rec_part *out) {
    const struct hparams *hp = &p->m->hp;
    int32_t n_all = arch_n_layer_all(hp);
    *out = (struct rec_part){.lanes = 1, .d_state = hp->ssm.d_state};
    if (i == 3 * n_all) {
        if (hp->n_nextn) out->at = p->hidden, out->n = out->block = (size_t)hp->n_embd;
        return true;
    }
    if (i > 3 * n_all) return false;
    const struct rec_view *r = &p->layer[i / 3].rec;
    if (i % 3 == 1) out->at = r->conv, out->n = r->conv_stride;
    if (i % 3 == 2) out->at = r->log, out->n = r->log_row * (size_t)r->log_cap;
    if (i % 3 == 0) out->at = r->s, out->n = r->s_stride;
    out->block = out->n;
    if (i % 3) return true;
    const struct layer_state *l = &p->layer[i / 3];
    const struct dev *d = p->m->dev; /* NULL: a shape (seq_parts.h) */
    int32_t (*lanes)(int64_t, int32_t, int32_t) = d ? d->ops->state_lanes : NULL;
    if (lanes && l->n_inner) out->lanes = lanes(l->n_inner, l->d_head, l->d_state);
    if (out->lanes > 1) out->block = (size_t)out->lanes * (size_t)out->d_state;
    return true;
}

static void rec_copy(struct seq_pool *p, int32_t dst, int32_t src) {
    struct dev *d = p->m->dev;
    struct rec_part part;
    for (int32_t i = 0; seq_rec_part(p, i, &part); i++)
        if (part.n)
            d->ops->copy(d, part.at + (size_t)dst * part.n, part.at + (size_t)src * part.n,
                         part.n * sizeof(float));
}

static void rec_zero(struct seq_pool *p, int32_t slot) {
    struct dev *d = p->m->dev;
    for (int32_t il = 0; il < arch_n_layer_all(&p->m->hp); il++) {
        struct rec_view *r = &p->layer[il].rec;
        if (!r->conv) continue;
        if (r->s) d->ops->zero(d, r->s + (size_t)slot * r->s_stride, r->s_stride * sizeof(float));
        d->ops->zero(d, r->conv + (size_t)slot * r->conv_stride, r->conv_stride * sizeof(float));
    }
    size_t n = (size_t)p->m->hp.n_embd;
    if (p->hidden) d->ops->zero(d, p->hidden + (size_t)slot * n, n * sizeof(float));
}

int seq_alloc(struct seq **out, struct seq_pool *p, struct err *e) {
    *out = NULL;
    if (!p->n_free_slot)
        return err_set(e, CHIMERE_EBUSY, "all %d sequence slots are taken", p->params.n_slot);
    struct seq *s = mem_zalloc(sizeof *s);
    if (!s) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    s->pool = p;
    s->slot = p->free_slots[--p->n_free_slot];
    int64_t n = p->params.n_ctx_seq;
    if (n > 0) n += p->m->hp.n_meta;
    int rc = n > 0 ? seq_grow_table(s, seq_n_pages_for(n) + 1, e) : 0; /* 1: for prefetching */
    if (rc) {
        seq_free(s);
        return rc;
    }
    *out = s;
    return 0;
}

int seq_new(struct seq **out, struct seq_pool *p, struct err *e) {
    int rc = seq_alloc(out, p, e);
    if (!rc) rec_zero(p, (*out)->slot);
    return rc;
}

void seq_free(struct seq *s) {
    if (!s) return;
    seq_drop_pages(s, 0);
    s->pool->free_slots[s->pool->n_free_slot++] = s->slot;
    mem_free(s->pages);
    mem_free(s);
}

void seq_reset(struct seq *s) {
    seq_drop_pages(s, 0);
    rec_zero(s->pool, s->slot);
    s->pos = 0;
    s->n_log = 0;
}

int64_t seq_tokens_at(const struct seq_pool *p, int64_t pos) {
    return pos > p->m->hp.n_meta ? pos - p->m->hp.n_meta : 0;
}
int64_t seq_pos(const struct seq *s) { return seq_tokens_at(s->pool, s->pos); }
int32_t seq_n_deferred(const struct seq *s) { return s->n_log; }
int32_t seq_slot(const struct seq *s) { return s->slot; }

void seq_drop(struct seq *s, int32_t n) {
    if (n > s->n_log) n = s->n_log;
    s->n_log -= n;
    s->pos -= n;
}

/* Makes f, which has no pages, a copy of s. */
static int become(struct seq *f, const struct seq *s, struct err *e) {
    int32_t n_page = seq_n_pages_for(s->pos);
    int rc = seq_grow_table(f, n_page, e);
    if (rc) return rc;
    for (int32_t i = 0; i < n_page; i++) s->pool->page_refs[f->pages[i] = s->pages[i]]++;
    f->n_page = n_page;
    f->pos = s->pos;
    f->n_log = s->n_log;
    rec_copy(s->pool, f->slot, s->slot);
    return 0;
}

int seq_fork(struct seq *s, struct seq **out, struct err *e) {
    int rc = seq_alloc(out, s->pool, e);
    if (rc) return rc;
    rc = become(*out, s, e);
    if (!rc) return 0;
    seq_free(*out);
    *out = NULL;
    return rc;
}

int seq_new_meta(struct seq_pool *p, struct err *e) {
    p->meta = mem_zalloc(sizeof *p->meta);
    if (!p->meta) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    p->meta->pool = p;
    p->meta->slot = p->params.n_slot;
    return 0;
}

int seq_begin(struct seq *s, struct err *e) {
    struct seq_pool *p = s->pool;
    if (s->pos > 0 || p->m->hp.n_meta == 0 || s == p->meta) return 0;
    if (!p->meta || p->meta->pos != p->m->hp.n_meta)
        return err_set(e, CHIMERE_EINVAL, "sequence: its model's first rows are not computed yet");
    seq_drop_pages(s, 0);
    return become(s, p->meta, e);
}

/* ---- for checkpoint.c and seq_file.c ---- */

size_t seq_page_bytes(const struct seq_pool *p) {
    size_t n = 0;
    for (int32_t il = 0; il < arch_n_layer_all(&p->m->hp); il++)
        if (!p->layer[il].kv_is_other)
            n += p->layer[il].kv.k_page_bytes + v_bytes(&p->layer[il].kv);
    return n;
}

/* Copies one page of all layers between device and host: keys then values, in the order of layers. */
void seq_page_transfer(struct seq_pool *p, int32_t page, char *host, bool to_host) {
    struct seq_copy c = {.p = p, .to_host = to_host};
    for (int32_t il = 0; il < arch_n_layer_all(&p->m->hp); il++) {
        struct kv_view *kv = &p->layer[il].kv;
        if (!kv->n_kv_head || p->layer[il].kv_is_other) continue;
        void *part[2] = {(char *)kv->k + (size_t)page * kv->k_page_bytes,
                         (char *)kv->v + (size_t)page * kv->v_page_bytes};
        size_t n[2] = {kv->k_page_bytes, v_bytes(kv)};
        for (int i = 0; i < 2; i++) {
            seq_copy_add(&c, part[i], host, n[i]);
            host += n[i];
        }
    }
    seq_copy_end(&c);
}

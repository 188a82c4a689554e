/* seq_parts.c: which bytes of a whole state each device has, and copies between both. */
#include "model/seq/seq_parts.h"

#include <string.h>

#include "base/mem.h"
#include "model/seq/seq_impl.h"
#include "model/slice.h"

/* A row of a state array is a sequence of pieces, each with a dimension that slices divide. */
struct piece {
    enum arch_dim dim;
    int64_t unit;  /* elements of the dimension that stay together */
    size_t n_byte; /* per unit */
};
enum { MAX_PIECES = 3 };

struct array {
    size_t n_row;
    int n_piece; /* 0: one device has the whole array */
    struct piece piece[MAX_PIECES];
};

struct mover {
    const struct hparams *hp;        /* of the whole model */
    const struct model_slice *slice; /* of the part; NULL: it has whole layers */
    bool joins;                      /* from the part to the whole; else the other way */
};

static void move(const struct mover *m, char *whole, char *own, size_t n) {
    memcpy(m->joins ? whole : own, m->joins ? own : whole, n);
}

/* Moves an array; own_bytes: the part's share of its bytes. */
static void move_array(const struct mover *m, int32_t il, const struct array *a, char *whole,
                       size_t whole_bytes, char *own, size_t own_bytes) {
    static const struct tensor_row any = {.where = AT_LAYER, .slot = SIZE_MAX};
    struct slice_part part[SLICE_MAX_PARTS];
    if (!own_bytes) return; /* on other devices */
    if (!a->n_piece || own_bytes == whole_bytes) {
        move(m, whole, own, whole_bytes);
        return;
    }
    for (size_t r = 0; r < a->n_row; r++)
        for (int i = 0; i < a->n_piece; i++) {
            const struct piece *p = &a->piece[i];
            int32_t n = slice_parts(m->slice, &any, p->dim, il, part);
            for (int32_t k = 0; k < n; k++) {
                size_t bytes = (size_t)(part[k].n / p->unit) * p->n_byte;
                move(m, whole + (size_t)(part[k].first / p->unit) * p->n_byte, own, bytes);
                own += bytes;
            }
            whole += (size_t)(arch_dim(m->hp, p->dim, il) / p->unit) * p->n_byte;
        }
}

static bool is_cut(const struct mover *m, enum slice_kind kind) {
    return m->slice && slice_is_cut(m->slice, kind);
}

/* Array `which` of the recurrent state of a layer: 0 state, 1 convolution, 2 log. */
static struct array rec_array(const struct mover *m, int32_t il, int which,
                              const struct rec_view *rec) {
    const struct hparams *hp = m->hp;
    bool gdn = hp->layer[il].mixer & MIX_GDN, mamba2 = hp->layer[il].mixer & MIX_MAMBA2;
    struct array a = {.n_row = 1};
    if (!(gdn && is_cut(m, SLICE_GDN)) && !(mamba2 && is_cut(m, SLICE_MAMBA2))) return a;
    enum arch_dim conv = gdn ? D_GDN_CONV : D_SSM_CONV, head = gdn ? D_GDN_V_HEAD : D_SSM_HEAD;
    int64_t per_head = gdn ? (int64_t)hp->gdn.d_k * hp->gdn.d_v
                           : (int64_t)hp->ssm.n_inner / hp->ssm.n_head * hp->ssm.d_state;
    const struct piece row = {conv, 1, sizeof(float)}, one = {head, 1, sizeof(float)};
    a.n_piece = 1;
    a.piece[0] = row;
    if (which == 0) a.piece[0] = (struct piece){head, 1, (size_t)per_head * sizeof(float)};
    if (which == 1) a.n_row = (size_t)(gdn ? hp->gdn.d_conv : hp->ssm.d_conv) - 1;
    if (which != 2) return a;
    a.n_row =
        (size_t)rec
            ->log_cap; /* inputs of the convolution; of a delta net, alpha and beta; of Mamba-2, the scan's
                                       inputs and dt */
    a.n_piece = 3;
    a.piece[1] = gdn ? one : row;
    a.piece[2] = one;
    return a;
}

/* rec: the whole state's and the part's recurrent bytes, channel by channel. */
static void move_rec(const struct mover *m, const struct seq_pool *whole,
                     const struct seq_pool *own, char *w, char *o) {
    struct rec_part wp, op;
    int32_t n_all = arch_n_layer_all(m->hp), n_own = arch_n_layer_all(&own->m->hp);
    for (int32_t i = 0; seq_rec_part(whole, i, &wp); i++) {
        int32_t il = i / 3;
        size_t bytes = wp.n * sizeof(float), own_bytes = 0;
        int32_t at = il < n_all ? i : 3 * n_own; /* after the layers: the hidden row */
        if (il == n_all || il < n_own) {
            seq_rec_part(own, at, &op);
            own_bytes = op.n * sizeof(float);
        }
        struct array a = {.n_row = 1};
        if (il < n_all) a = rec_array(m, il, i % 3, &whole->layer[il].rec);
        move_array(m, il, &a, w, bytes, o, own_bytes);
        w += bytes;
        o += own_bytes;
    }
}

/* The keys and values of a page. */
static void move_page(const struct mover *m, const struct seq_pool *whole,
                      const struct seq_pool *own, char *w, char *o) {
    int32_t n_own = arch_n_layer_all(&own->m->hp);
    for (int32_t il = 0; il < arch_n_layer_all(m->hp); il++) {
        const struct kv_view *kv = &whole->layer[il].kv;
        const struct kv_view none = {.k_page_bytes = 0}, *part = &none;
        if (il < n_own) part = &own->layer[il].kv;
        if (!kv->n_kv_head) continue;
        size_t n[2] = {kv->k_page_bytes, kv->v_in_k ? 0 : kv->v_page_bytes};
        size_t n_part[2] = {part->k_page_bytes, part->v_in_k ? 0 : part->v_page_bytes};
        for (int i = 0; i < 2; i++) {
            size_t per_head = n[i] / (size_t)kv->n_kv_head;
            struct array a = {.n_row = 1, .n_piece = is_cut(m, SLICE_ATTN)};
            a.piece[0] =
                i ? (struct piece){D_V, kv->d_v, per_head} : (struct piece){D_K, kv->d_k, per_head};
            move_array(m, il, &a, w, n[i], o, n_part[i]);
            w += n[i];
            o += n_part[i];
        }
    }
}

/* Converts a slot's recurrent bytes between the device's order and channel by channel. */
static void reorder(const struct seq_pool *p, float *own, float *plain, bool to_plain) {
    struct rec_part part;
    for (int32_t i = 0; seq_rec_part(p, i, &part); i++) {
        size_t n = part.block;
        for (size_t at = 0; at < part.n; at += n)
            seq_rec_lanes(&part, own + at, plain + at, to_plain);
        own += part.n;
        plain += part.n;
    }
}

/* plain: [part's rec_bytes], scratch. */
static void move_part(struct mover *m, const struct checkpoint *whole, const struct checkpoint *own,
                      float *plain) {
    m->hp = &whole->pool->m->hp;
    m->slice = own->pool->m->slice;
    if (m->joins) reorder(own->pool, (float *)(void *)own->rec, plain, true);
    move_rec(m, whole->pool, own->pool, whole->rec, (char *)plain);
    if (!m->joins) reorder(own->pool, (float *)(void *)own->rec, plain, false);
    for (int32_t i = 0; i < own->n_page; i++)
        move_page(m, whole->pool, own->pool, whole->pages[i].host->data, own->pages[i].host->data);
}

int seq_parts_join(struct checkpoint **out, struct seq_pool *whole,
                   const struct checkpoint *const *part, int32_t n, struct err *e) {
    struct mover m = {.joins = true};
    *out = NULL;
    for (int32_t i = 0; i < n; i++)
        if (checkpoint_n_pooled(part[i]) || part[i]->pos != part[0]->pos)
            return err_set(e, CHIMERE_EINVAL, "state: expected all pages in host memory");
    struct checkpoint *w = checkpoint_alloc_host(whole, part[0]->pos, part[0]->n_log);
    int rc = w ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (int32_t i = 0; !rc && i < n; i++) {
        float *plain = mem_alloc(part[i]->pool->rec_bytes + 1);
        if (plain) move_part(&m, w, part[i], plain);
        else rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
        mem_free(plain);
    }
    if (rc) checkpoint_free_host(w);
    else *out = w;
    return rc;
}

int seq_parts_divide(const struct checkpoint *whole, struct seq_pool *const *pools, int32_t n,
                     struct checkpoint **part, struct err *e) {
    struct mover m = {.joins = false};
    int rc = 0;
    for (int32_t i = 0; i < n; i++) part[i] = NULL;
    for (int32_t i = 0; !rc && i < n; i++) {
        float *plain = mem_alloc(pools[i]->rec_bytes + 1);
        part[i] = checkpoint_alloc_host(pools[i], whole->pos, whole->n_log);
        if (plain && part[i]) move_part(&m, whole, part[i], plain);
        else rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
        mem_free(plain);
    }
    for (int32_t i = 0; rc && i < n; i++) {
        checkpoint_free_host(part[i]);
        part[i] = NULL;
    }
    return rc;
}

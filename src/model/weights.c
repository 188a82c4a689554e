/* weights.c: iterates over the family's tensor rows and layers, checks every shape, fills the slots. */
#include "model/weights.h"

#include <stdio.h>
#include <string.h>

#include "base/ahead.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "format/quant.h"
#include "model/block/block.h"
#include "model/slice.h"
#include "model/experts/expert_slots.h"
#include "model/experts/tier.h"

enum { MAX_VECTOR = 1 << 24, MAX_MATRICES = 80 + 2 * MLA_MAX_HEAD, MAX_GATHERED = 4096 };

struct binder {
    struct weights *w;
    const struct hparams *hp;
    const struct gguf *g;
    struct dev *dev;
    const struct model_slice *slice; /* NULL: the whole tensors */
    size_t cap_owned, cap_source, cap_tail;
    bool out_of_tails;
    struct err *e;
    void **gathered; /* owned [MAX_GATHERED] */
    size_t n_gathered;
};

int32_t gdn_source_head(int32_t j, int32_t n_k_head, int32_t n_v_head) {
    int32_t per_key = n_v_head / n_k_head;
    return (j % n_k_head) * per_key + j / n_k_head;
}

static int own(struct binder *b, void *p) {
    if (!p) return err_set(b->e, CHIMERE_ENOMEM, "out of memory for weights");
    struct weights *w = b->w;
    if (w->n_owned == b->cap_owned) {
        size_t cap = b->cap_owned ? b->cap_owned * 2 : 256;
        void **grown = mem_realloc(w->owned, cap * sizeof *grown);
        if (!grown) {
            b->dev->ops->free(b->dev, p);
            return err_set(b->e, CHIMERE_ENOMEM, "out of memory for weights");
        }
        w->owned = grown;
        b->cap_owned = cap;
    }
    w->owned[w->n_owned++] = p;
    return 0;
}

static int bad_shape(struct binder *b, const struct gguf_tensor *t, const int64_t want[3]) {
    return err_set(b->e, CHIMERE_EFORMAT,
                   "tensor %s: expected shape [%lld, %lld, %lld], got [%llu, %llu, %llu]", t->name,
                   (long long)want[0], (long long)want[1], (long long)want[2],
                   (unsigned long long)t->ne[0], (unsigned long long)t->ne[1],
                   (unsigned long long)t->ne[2]);
}

static bool shape_is(const struct gguf_tensor *t, const int64_t want[3]) {
    return t->ne[0] == (uint64_t)want[0] && t->ne[1] == (uint64_t)want[1] &&
           t->ne[2] == (uint64_t)want[2] && t->ne[3] == 1;
}

static int not_finite(struct binder *b, const char *name) {
    return err_set(b->e, CHIMERE_ENUMERIC,
                   "tensor %s: expected finite numbers, got NaN or infinity", name);
}

/* Moves the slice's elements of v [want[2], want[1], want[0]] to its front; returns their number. */
static int cut_vector(struct binder *b, const struct tensor_row *row, int32_t il,
                      const int64_t want[3], float **v, uint64_t *n) {
    struct weight all = {.data = *v,
                         .type = QUANT_F32,
                         .n_in = want[0],
                         .n_out = want[1],
                         .n_mat = want[2],
                         .row_bytes = (size_t)want[0] * sizeof **v};
    struct weight own;
    all.mat_bytes = all.row_bytes * (size_t)want[1];
    if (!slice_weight(b->slice, row, il, &all, NULL, &own)) return 0;
    float *cut = mem_alloc(own.mat_bytes * (size_t)own.n_mat);
    if (!cut) return err_set(b->e, CHIMERE_ENOMEM, "out of memory for weights");
    slice_weight(b->slice, row, il, &all, cut, &own);
    mem_free(*v);
    *v = cut;
    *n = (uint64_t)(own.n_in * own.n_out * own.n_mat);
    return 0;
}

/* Vectors of every kind: decoded to f32, checked for NaN, uploaded. Shapes may have additional dimensions of
 * 1 in any position, as in old files. */
static int bind_vector(struct binder *b, const struct tensor_row *row, int32_t il,
                       const struct gguf_tensor *t, const int64_t want[3], const float **slot) {
    uint64_t n = (uint64_t)(want[0] * want[1] * want[2]);
    bool free_size = row->dims[0] == D_NONE; /* any length */
    if (free_size) n = t->n_elements;
    if (t->n_elements != n || n > MAX_VECTOR) return bad_shape(b, t, want);
    const struct quant_traits *q = quant_traits(t->type);
    if (!q->decode || q->head_bytes || n % q->block_elements)
        return err_set(b->e, CHIMERE_EUNSUPPORTED, "tensor %s: expected a float type, got %s",
                       t->name, q->name);
    float *tmp = mem_alloc(n * sizeof *tmp);
    if (!tmp) return err_set(b->e, CHIMERE_ENOMEM, "out of memory for weights");
    q->decode(t->data, tmp, n);
    int rc = quant_is_finite(QUANT_F32, tmp, n) ? 0 : not_finite(b, t->name);
    if (!rc && b->slice && !free_size) rc = cut_vector(b, row, il, want, &tmp, &n);
    void *p = rc ? NULL : b->dev->ops->alloc(b->dev, n * sizeof *tmp);
    if (!rc) rc = own(b, p);
    if (!rc) {
        b->dev->ops->upload(b->dev, p, tmp, n * sizeof *tmp);
        *slot = p;
    }
    mem_free(tmp);
    return rc;
}

static struct weight view_of(const struct gguf_tensor *t) {
    uint64_t row_bytes = 0;
    quant_row_bytes(t->type, t->ne[0], &row_bytes);
    return (struct weight){.data = t->data,
                           .type = t->type,
                           .layout = 0,
                           .n_in = (int64_t)t->ne[0],
                           .n_out = (int64_t)t->ne[1],
                           .n_mat = (int64_t)t->ne[2],
                           .row_bytes = row_bytes,
                           .mat_bytes = row_bytes * t->ne[1]};
}

/* A copy of tail that the weights own. */
static const struct weight *own_tail(struct binder *b, const struct weight *tail) {
    struct weights *w = b->w;
    if (!tail) return NULL;
    if (w->n_tail == b->cap_tail) {
        size_t cap = b->cap_tail ? b->cap_tail * 2 : 64;
        struct weight **grown = mem_realloc(w->tails, cap * sizeof *grown);
        b->out_of_tails |= !grown;
        if (!grown) return NULL;
        w->tails = grown;
        b->cap_tail = cap;
    }
    struct weight *own = w->tails[w->n_tail] = mem_alloc(sizeof *own);
    b->out_of_tails |= !own;
    if (!own) return NULL;
    *own = *tail;
    w->n_tail++;
    return own;
}

static int check_tails(const struct binder *b) {
    return b->out_of_tails ? err_set(b->e, CHIMERE_ENOMEM, "out of memory for weights") : 0;
}

static int keep_gathered(struct binder *b, void *p) {
    if (b->n_gathered == MAX_GATHERED) {
        mem_free(p);
        return err_set(b->e, CHIMERE_ELIMIT, "more fused matrices than expected");
    }
    b->gathered[b->n_gathered++] = p;
    return 0;
}

/* Allocates host memory for rows. If the device uses host memory, the weights own it; else it is freed once the
 * device has the rows in its form. */
static int take_rows(struct binder *b, size_t bytes, char **out) {
    bool is_host = b->dev->ops->is_host;
    *out = is_host ? b->dev->ops->alloc(b->dev, bytes) : mem_alloc(bytes);
    if (!*out) return err_set(b->e, CHIMERE_ENOMEM, "out of memory for weights");
    if (is_host) b->w->prepared_bytes += bytes;
    return is_host ? own(b, *out) : keep_gathered(b, *out);
}

/* The device's rows and columns: a view if they are contiguous. */
static int cut_matrix(struct binder *b, const struct tensor_row *row, int32_t il,
                      struct weight *m) {
    const struct weight all = *m;
    char *p;
    if (!slice_weight(b->slice, row, il, &all, NULL, m) || m->data) return 0;
    int rc = take_rows(b, m->mat_bytes * (size_t)m->n_mat, &p);
    if (!rc) slice_weight(b->slice, row, il, &all, p, m);
    return rc;
}

static int view_matrix(struct binder *b, const struct gguf_tensor *t, const int64_t want[3],
                       struct weight *slot) {
    if (!shape_is(t, want)) return bad_shape(b, t, want);
    const struct quant_traits *q = quant_traits(t->type);
    if (!q->decode)
        return err_set(b->e, CHIMERE_EUNSUPPORTED, "tensor %s: expected a number type, got %s",
                       t->name, q->name);
    *slot = view_of(t);
    return 0;
}

/* The last columns of a matrix in two parts are in the tensor NAME.tail. Both parts are whole blocks of activations. */
static int bind_matrix(struct binder *b, const struct tensor_row *row, int32_t il,
                       const struct gguf_tensor *t, const int64_t want[3], struct weight *slot) {
    char name[GGUF_MAX_NAME + 8];
    snprintf(name, sizeof name, "%s%s", t->name, WEIGHT_TAIL);
    const struct gguf_tensor *last = gguf_find_tensor(b->g, name);
    if (!last) {
        int rc = view_matrix(b, t, want, slot);
        return !rc && b->slice ? cut_matrix(b, row, il, slot) : rc;
    }
    if (b->slice)
        return err_set(b->e, CHIMERE_EUNSUPPORTED,
                       "tensor %s: has two parts, so one device must hold the model", t->name);
    uint64_t n = t->ne[0];
    if (n % WEIGHT_TAIL_BLOCK || last->ne[0] % WEIGHT_TAIL_BLOCK || n >= (uint64_t)want[0])
        return err_set(b->e, CHIMERE_EFORMAT,
                       "tensor %s: expected two parts of multiples of %d columns, got %llu and "
                       "%llu of %lld",
                       t->name, WEIGHT_TAIL_BLOCK, (unsigned long long)n,
                       (unsigned long long)last->ne[0], (long long)want[0]);
    const int64_t first_shape[3] = {(int64_t)n, want[1], want[2]};
    const int64_t last_shape[3] = {want[0] - (int64_t)n, want[1], want[2]};
    struct weight tail;
    int rc = view_matrix(b, t, first_shape, slot);
    if (!rc) rc = view_matrix(b, last, last_shape, &tail);
    if (rc) return rc;
    slot->tail = own_tail(b, &tail);
    return check_tails(b);
}

static int bind_row(struct binder *b, const struct tensor_row *row, int32_t il) {
    char name[GGUF_MAX_NAME];
    arch_tensor_name(row, il, name, sizeof name);
    char *base = il < 0 ? (char *)&b->w->global : (char *)&b->w->layer[il];
    const struct gguf_tensor *t = gguf_find_tensor(b->g, name);
    if (!t) {
        if (row->flags & TS_TIED) {
            struct weight *tied = (struct weight *)(void *)(base + row->slot);
            *tied = b->w->global.token_embd;
            tied->tail = own_tail(b, tied->tail);
            if (check_tails(b)) return CHIMERE_ENOMEM;
            return b->slice ? cut_matrix(b, row, il, tied) : 0;
        }
        if (row->flags & (TS_OPTIONAL | TS_OR_FUSED)) return 0;
        return err_set(b->e, CHIMERE_EFORMAT, "tensor %s: expected in a %s model, got nothing",
                       name, b->hp->arch->name);
    }
    int64_t want[3];
    const struct hparams *whole = b->slice ? slice_whole(b->slice) : b->hp;
    for (int i = 0; i < 3; i++) want[i] = arch_dim(whole, (enum arch_dim)row->dims[i], il);
    void *slot = base + row->slot;
    if (b->slice && slice_is_elsewhere(b->slice, row)) return 0;
    if (row->is_vector) return bind_vector(b, row, il, t, want, slot);
    return bind_matrix(b, row, il, t, want, slot);
}

/* Rows [first, first + n) of w as a separate matrix. */
static struct weight part_rows(const struct weight *w, int64_t first, int64_t n) {
    struct weight v = *w;
    v.data = (const char *)w->data + (size_t)first * w->row_bytes;
    v.n_out = n;
    return v;
}
static struct weight rows_of(struct binder *b, const struct weight *w, int64_t first, int64_t n) {
    struct weight v = part_rows(w, first, n);
    if (!w->tail) return v;
    struct weight tail = part_rows(w->tail, first, n);
    v.tail = own_tail(b, &tail);
    return v;
}

/* Every head's matrices are prepared on their own, since a device may need them one by one. */
static int split_latent(struct binder *b, int32_t il) {
    struct layer_weights *l = &b->w->layer[il];
    const struct weight *const stacks[] = {&l->mla.k_b, &l->mla.v_b};
    int32_t n = b->hp->layer[il].n_head;
    if (l->mla.k_b.tail || l->mla.v_b.tail)
        return err_set(b->e, CHIMERE_EUNSUPPORTED,
                       "tensors blk.%d.attn_k_b and attn_v_b: expected one part, got two", il);
    l->mla.heads = mem_alloc_array(2 * (size_t)n, sizeof *l->mla.heads);
    if (!l->mla.heads) return err_set(b->e, CHIMERE_ENOMEM, "out of memory for weights");
    l->mla.n_head = n;
    for (int32_t i = 0; i < 2 * n; i++) {
        struct weight *w = &l->mla.heads[i];
        *w = *stacks[i / n];
        w->data = (const char *)w->data + (size_t)(i % n) * w->mat_bytes;
        w->n_mat = 1;
    }
    return 0;
}

/* Files may fuse q|k|v and gate|up: split them into views. */
static int split_fused(struct binder *b, int32_t il) {
    const struct hparams *hp = b->hp;
    struct layer_weights *l = &b->w->layer[il];
    if (arch_has(hp, AT_ATTN, il)) {
        if (l->attn.qkv.data) {
            int64_t nq = arch_dim(hp, D_Q, il), nk = arch_dim(hp, D_K, il),
                    nv = arch_dim(hp, D_V, il);
            l->attn.q = rows_of(b, &l->attn.qkv, 0, nq);
            l->attn.k = rows_of(b, &l->attn.qkv, nq, nk);
            l->attn.v = rows_of(b, &l->attn.qkv, nq + nk, nv);
            if (l->attn.qkv_b) {
                l->attn.q_b = l->attn.qkv_b;
                l->attn.k_b = l->attn.qkv_b + nq;
                l->attn.v_b = l->attn.qkv_b + nq + nk;
            }
        }
        bool may_share = hp->has_v_norm && !hp->layer[il].window; /* values that are keys */
        bool has_kv = l->attn.k.data && (l->attn.v.data || may_share);
        if (!l->attn.q.data || (arch_has(hp, AT_ATTN_KV, il) && !has_kv))
            return err_set(b->e, CHIMERE_EFORMAT,
                           "tensor blk.%d.attn_q.weight (or attn_k, attn_v): expected, "
                           "got nothing",
                           il);
    }
    if (hp->layer[il].mixer & MIX_MLA) {
        int rc = split_latent(b, il);
        if (rc) return rc;
    }
    if (hp->is_up_fused && l->ffn.up.data) {
        int64_t n_ff = hp->layer[il].n_ff;
        l->ffn.gate = rows_of(b, &l->ffn.up, 0, n_ff);
        l->ffn.up = rows_of(b, &l->ffn.up, n_ff, n_ff);
        l->ffn.gate_b = l->ffn.up_b;
        if (l->ffn.up_b) l->ffn.up_b += n_ff;
    }
    if (hp->layer[il].mixer & MIX_CONV) { /* gate before, gate after, values */
        int64_t d = hp->n_embd;
        l->ssm.x_b = rows_of(b, &l->ssm.in, 0, d);
        l->ssm.x_c = rows_of(b, &l->ssm.in, d, d);
        l->ssm.x_dt = rows_of(b, &l->ssm.in, 2 * d, d);
    }
    if (l->ssm.x.data) {
        int64_t rank = hp->ssm.dt_rank, n_state = hp->ssm.d_state;
        l->ssm.x_dt = rows_of(b, &l->ssm.x, 0, rank);
        l->ssm.x_b = rows_of(b, &l->ssm.x, rank, n_state);
        l->ssm.x_c = rows_of(b, &l->ssm.x, rank + n_state, n_state);
    }
    if (hp->layer[il].ffn & FFN_MOE) {
        if (l->moe.gate_up.data) {
            l->moe.gate = rows_of(b, &l->moe.gate_up, 0, hp->moe.n_ff);
            l->moe.up = rows_of(b, &l->moe.gate_up, hp->moe.n_ff, hp->moe.n_ff);
        }
        if (!l->moe.up.data)
            return err_set(b->e, CHIMERE_EFORMAT,
                           "tensor blk.%d.ffn_up_exps.weight: expected, got nothing", il);
    }
    return check_tails(b);
}

/* Copies the listed rows of src, in that order, into a new matrix. */
static int gather_rows(struct binder *b, const struct weight *src, const int32_t *rows, int64_t n,
                       struct weight *dst) {
    size_t bytes = (size_t)n * src->row_bytes;
    char *p;
    if (src->tail)
        return err_set(b->e, CHIMERE_EUNSUPPORTED, "fused matrices in two parts are not supported");
    int rc = take_rows(b, bytes, &p);
    if (rc) return rc;
    for (int64_t i = 0; i < n; i++)
        memcpy(p + (size_t)i * src->row_bytes,
               (const char *)src->data + (size_t)rows[i] * src->row_bytes, src->row_bytes);
    *dst = *src;
    dst->data = p;
    dst->n_out = n;
    dst->mat_bytes = bytes;
    return 0;
}

/* Qwen3-Next fuses projections by key head: [q | k | v.. | z..] and [beta.. | alpha..] per group. */
static int unfuse_gdn(struct binder *b, int32_t il) {
    const struct hparams *hp = b->hp;
    struct layer_weights *l = &b->w->layer[il];
    if (!(hp->layer[il].mixer & MIX_GDN)) return 0;
    int32_t nk = hp->gdn.n_k_head, nv = hp->gdn.n_v_head, dk = hp->gdn.d_k, dv = hp->gdn.d_v,
            per = nv / nk;
    int64_t n_conv = arch_dim(hp, D_GDN_CONV, il), n_z = arch_dim(hp, D_GDN_INNER, il);
    int32_t *rows = mem_alloc((size_t)(n_conv + n_z) * sizeof *rows);
    if (!rows) return err_set(b->e, CHIMERE_ENOMEM, "out of memory for weights");
    int rc = 0;
    if (l->gdn.qkvz.data) {
        int32_t group = 2 * dk + 2 * per * dv;
        int64_t n = 0;
        for (int32_t h = 0; h < nk; h++)
            for (int32_t i = 0; i < dk; i++) rows[n++] = h * group + i;
        for (int32_t h = 0; h < nk; h++)
            for (int32_t i = 0; i < dk; i++) rows[n++] = h * group + dk + i;
        for (int32_t h = 0; h < nk; h++)
            for (int32_t i = 0; i < per * dv; i++) rows[n++] = h * group + 2 * dk + i;
        for (int32_t h = 0; h < nk; h++)
            for (int32_t i = 0; i < per * dv; i++) rows[n++] = h * group + 2 * dk + per * dv + i;
        rc = gather_rows(b, &l->gdn.qkvz, rows, n_conv, &l->gdn.qkv);
        if (!rc) rc = gather_rows(b, &l->gdn.qkvz, rows + n_conv, n_z, &l->gdn.z);
    }
    if (!rc && l->gdn.ba.data) {
        for (int32_t h = 0; h < nk; h++)
            for (int32_t i = 0; i < per; i++) {
                rows[h * per + i] = h * 2 * per + i;
                rows[nv + h * per + i] = h * 2 * per + per + i;
            }
        rc = gather_rows(b, &l->gdn.ba, rows, nv, &l->gdn.beta);
        if (!rc) rc = gather_rows(b, &l->gdn.ba, rows + nv, nv, &l->gdn.alpha);
    }
    mem_free(rows);
    if (!rc && (!l->gdn.qkv.data || !l->gdn.z.data || !l->gdn.beta.data))
        rc = err_set(b->e, CHIMERE_EFORMAT,
                     "tensor blk.%d.attn_qkv.weight (or attn_gate, ssm_in): expected, got "
                     "nothing",
                     il);
    return rc;
}

/* ---- device forms ---- */

static bool on_host(const struct weights *w, int32_t il) {
    return il >= 0 && w->experts.host && w->experts.layer[il].on_host;
}

/* Gate, up and down of what can be in host memory: the experts, or the dense feed-forward (experts_can_move). */
static void movable(struct weights *w, const struct hparams *hp, int32_t il,
                    struct weight *out[3]) {
    struct layer_weights *l = &w->layer[il];
    bool is_moe = hp->layer[il].ffn & FFN_MOE;
    out[0] = is_moe ? &l->moe.gate : &l->ffn.gate;
    out[1] = is_moe ? &l->moe.up : &l->ffn.up;
    out[2] = is_moe ? &l->moe.down : &l->ffn.down;
}

/* Whether m holds routed experts of the trunk. */
static bool is_routed(const struct weights *w, const struct hparams *hp, const struct weight *m,
                      int32_t il) {
    if (il < 0 || il >= hp->n_layer) return false;
    const struct layer_weights *l = &w->layer[il];
    return m == &l->moe.gate || m == &l->moe.up || m == &l->moe.down;
}

/* Whether m is read from the file on demand, or is in slots; nothing is prepared on the device for it. */
static bool is_on_disk(const struct weights *w, const struct hparams *hp, const struct weight *m,
                       int32_t il) {
    return w->experts.tier && is_routed(w, hp, m, il) && (!w->experts.host || on_host(w, il));
}
static bool is_in_slots(const struct weights *w, const struct hparams *hp, const struct weight *m,
                        int32_t il) {
    return w->experts.slots && is_routed(w, hp, m, il);
}

/* Every matrix of one layer, or of the model, that is used in products, without tails. */
static int whole_matrices(struct weights *w, const struct hparams *hp, int32_t il,
                          struct weight *out[MAX_MATRICES]) {
    int n = 0;
    if (il < 0) {
        out[n++] = &w->global.output;
        out[n++] = &w->global.cls;
        out[n++] = &w->global.cls_out;
        out[n++] = &w->global.dense[0];
        out[n++] = &w->global.dense[1];
        out[n++] = &w->global.fc;
        out[n++] = &w->global.markov_out;
        out[n++] = &w->global.sure;
        out[n++] = &w->global.ple_proj;
        return n;
    }
    struct layer_weights *l = &w->layer[il];
    n = block_matrices_of(hp, il, l, out);
    if (on_host(w, il)) out[n++] = &w->experts.layer[il].router;
    if (hp->layer[il].is_nextn) {
        out[n++] = &l->nextn.eh_proj;
        out[n++] = &l->nextn.head;
    }
    return n;
}

/* The same with their tails. */
static int matrices(struct weights *w, const struct hparams *hp, int32_t il,
                    struct weight *out[MAX_MATRICES]) {
    int n = whole_matrices(w, hp, il, out), n_all = n;
    for (size_t k = 0; k < w->n_tail; k++)
        for (int i = 0; i < n && n_all < MAX_MATRICES; i++)
            if (out[i]->tail == w->tails[k]) out[n_all++] = w->tails[k];
    return n_all;
}

/* The device that multiplies m. */
static struct dev *home_of(const struct binder *b, const struct weight *m, int32_t il) {
    if (!on_host(b->w, il)) return b->dev;
    struct weight *part[3];
    movable(b->w, b->hp, il, part);
    bool moves = m == part[0] || m == part[1] || m == part[2];
    return moves || m == &b->w->experts.layer[il].router ? b->w->experts.host : b->dev;
}

static size_t weight_bytes(const struct weight *m) {
    return m->row_bytes * (size_t)m->n_out * (size_t)m->n_mat;
}

/* Bytes of m's device form within the common allocation. */
static size_t prepared_share(struct dev *d, const struct weight *m) {
    return m->data ? (d->ops->prepared_bytes(d, m) + 255) & ~(size_t)255 : 0;
}

/* The tensor of the file that contains m's rows; NULL: they were gathered (unfuse_gdn). */
static const struct gguf_tensor *tensor_of(const struct binder *b, const struct weight *m) {
    const char *at = m->data;
    for (size_t i = 0; i < gguf_n_tensors(b->g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(b->g, i);
        const char *data = (const char *)t->data;
        if (at >= data && at < data + t->n_bytes) return t;
    }
    return NULL;
}

/* Reports a matrix with NaN or infinity, by its name. */
static int matrix_not_finite(struct binder *b, const struct weight *m, int32_t il) {
    const struct gguf_tensor *t = tensor_of(b, m);
    if (t) return not_finite(b, t->name);
    char name[32];
    snprintf(name, sizeof name, "blk.%d.ssm_in.weight", il); /* rows gathered by unfuse_gdn */
    return not_finite(b, name);
}

/* For matrices that the device uses as they are. */
static bool matrix_is_finite(const struct weight *m) {
    return quant_rows_are_finite(m->type, m->data, (uint64_t)(m->n_out * m->n_mat),
                                 (uint64_t)m->n_in);
}

/* file: the slot's content before prepare. */
static int note_source(struct binder *b, struct weight *slot, const struct weight *file,
                       bool is_table) {
    struct weights *w = b->w;
    const struct gguf_tensor *t = b->slice ? NULL : tensor_of(b, file);
    if (!t) return 0;
    if (w->n_source == b->cap_source) {
        size_t cap = b->cap_source ? b->cap_source * 2 : 256;
        struct weight_source *grown = mem_realloc(w->sources, cap * sizeof *grown);
        if (!grown) return err_set(b->e, CHIMERE_ENOMEM, "out of memory for weights");
        w->sources = grown;
        b->cap_source = cap;
    }
    w->sources[w->n_source++] = (struct weight_source){slot, t, *file, *slot, is_table};
    return 0;
}

/* For models on the processor with experts on disk: copies the other matrices to memory. So the file may be truncated
 * while such a model runs, and the file's pages do not count as the program's memory. */
static bool copies_all(const struct binder *b) {
    return b->w->experts.tier && b->dev->ops->is_host;
}
static int copy_matrix(struct binder *b, struct weight *m) {
    size_t n = weight_bytes(m);
    char *p = b->dev->ops->alloc(b->dev, n);
    if (own(b, p)) return CHIMERE_ENOMEM;
    memcpy(p, m->data, n);
    b->w->prepared_bytes += n;
    gguf_release(b->g, m->data, n);
    m->data = p;
    return 0;
}

static int copy_table(struct binder *b, struct weight *table) {
    struct weight *tied = &b->w->global.output;
    bool is_tied = tied->data == table->data;
    int rc = copy_matrix(b, table);
    if (is_tied) tied->data = table->data;
    return rc;
}

/* bytes: those of m, in the mapping or in memory that is used again. */
static int prepare_one(struct binder *b, struct weight *m, const void *bytes, int32_t il,
                       struct dev *d, char **at) {
    const struct weight file = *m;
    struct weight from = file, ready;
    from.data = bytes;
    if (is_in_slots(b->w, b->hp, m, il)) {
        m->data = bytes;
        int rc = expert_slots_pack(b->w->experts.slots, il, m);
        if (rc) *m = file;
        else gguf_release(b->g, file.data, weight_bytes(&file));
        if (rc == CHIMERE_ENUMERIC) return matrix_not_finite(b, m, il);
        return rc ? err_set(b->e, rc, "preparing experts") : 0;
    }
    size_t n = prepared_share(d, m);
    if (!n) {
        if (!matrix_is_finite(m)) return matrix_not_finite(b, m, il);
        int rc = note_source(b, m, m, false);
        return !rc && copies_all(b) && tensor_of(b, m) ? copy_matrix(b, m) : rc;
    }
    int rc = d->ops->prepare(d, &from, *at, &ready);
    if (rc == CHIMERE_ENUMERIC) return matrix_not_finite(b, m, il);
    if (rc) return d->ops->status(d, b->e) ? b->e->code : err_set(b->e, rc, "preparing weights");
    *m = ready;
    *at += n;
    if (b->w->experts.tier) gguf_release(b->g, file.data, weight_bytes(&file));
    return note_source(b, m, &file, false);
}

/* Checks the tables in which rows are looked up. */
static int check_tables(struct binder *b) {
    struct global_weights *w = &b->w->global;
    struct weight *tables[] = {&w->token_embd, &w->pos_embd, &w->type_embd,
                               &w->meta_embd,  &w->ple_embd, &w->markov_in};
    int rc = 0;
    for (size_t i = 0; i < sizeof tables / sizeof *tables && !rc; i++) {
        if (!tables[i]->data) continue;
        rc = matrix_is_finite(tables[i]) ? note_source(b, tables[i], tables[i], true)
                                         : matrix_not_finite(b, tables[i], -1);
        const struct weight *tail = tables[i]->tail;
        if (!rc && tail && !matrix_is_finite(tail)) rc = matrix_not_finite(b, tail, -1);
        if (!rc && copies_all(b)) rc = copy_table(b, tables[i]);
    }
    return rc;
}

/* Bytes that layer il reads of a block stored in an earlier layer. */
static uint64_t shared_bytes(const struct binder *b, int32_t il) {
    int32_t back = b->hp->layer[il].share_back;
    const struct layer_weights *l = &b->w->layer[il - back];
    const struct weight *m[] = {&l->attn.q,   &l->attn.k, &l->attn.v,  &l->attn.out,
                                &l->ffn.gate, &l->ffn.up, &l->ffn.down};
    uint64_t n = 0;
    for (size_t i = 0; back && i < sizeof m / sizeof *m; i++)
        if (m[i]->data) n += weight_bytes(m[i]);
    return n;
}

/* Allocates two device buffers, through which the layers' experts are streamed in turn. */
static int alloc_staging(struct binder *b) {
    struct expert_store *s = &b->w->experts;
    size_t most = 0;
    for (int32_t il = 0; il < b->hp->n_layer; il++) {
        size_t n = 0;
        for (int i = 0; s->layer[il].on_host && i < 3; i++)
            n += prepared_share(b->dev, &s->layer[il].file[i]);
        most = n > most ? n : most;
    }
    char *at = b->dev->ops->alloc(b->dev, 2 * most);
    if (own(b, at)) return CHIMERE_ENOMEM;
    s->staging[0] = at;
    s->staging[1] = at + most;
    return 0;
}

/* Copies the vectors of layer il that the host needs to `at` (NULL: only counts): biases of the choice, of the router
 * and of the experts or of the dense feed-forward. Returns the bytes. */
static size_t copy_vectors(struct binder *b, int32_t il, char *at) {
    const struct layer_weights *l = &b->w->layer[il];
    struct expert_layer *to = &b->w->experts.layer[il];
    bool is_moe = b->hp->layer[il].ffn & FFN_MOE;
    size_t n_expert = is_moe ? (size_t)b->hp->moe.n_expert : 1, done = 0;
    size_t n_ff = is_moe ? (size_t)b->hp->moe.n_ff : (size_t)b->hp->layer[il].n_ff;
    const struct {
        const float *from, **to;
        size_t n; /* per expert */
    } all[] = {{is_moe ? NULL : l->ffn.gate_b, &to->bias.gate, n_ff},
               {is_moe ? NULL : l->ffn.up_b, &to->bias.up, n_ff},
               {is_moe ? NULL : l->ffn.down_b, &to->bias.down, (size_t)b->hp->n_embd},
               {l->moe.select_b, &to->select_b, 1},
               {l->moe.bias.router, &to->bias.router, 1},
               {l->moe.bias.gate, &to->bias.gate, n_ff},
               {l->moe.bias.up, &to->bias.up, n_ff},
               {l->moe.bias.down, &to->bias.down, (size_t)b->hp->n_embd}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        size_t bytes = n_expert * all[i].n * sizeof(float);
        if (!all[i].from) continue;
        if (at) {
            b->dev->ops->download(b->dev, at + done, all[i].from, bytes);
            *all[i].to = (const float *)(void *)(at + done);
        }
        done += bytes;
    }
    return done;
}

/* Marks the layers whose experts stay in host memory; the host gets a copy of their routers. */
static int place_experts(struct binder *b, const struct expert_placement *where, size_t *bytes) {
    struct expert_store *s = &b->w->experts;
    int32_t n = 0; /* layers */
    *bytes = 0;
    if (!where || !where->host || !where->n_layer || b->dev->ops->is_host) return 0;
    s->layer = mem_alloc_array((size_t)arch_n_layer_all(b->hp), sizeof *s->layer);
    if (!s->layer) return err_set(b->e, CHIMERE_ENOMEM, "out of memory for weights");
    for (int32_t il = 0; il < b->hp->n_layer && n < where->n_layer; il++) {
        struct weight *part[3];
        if (!experts_can_move(b->hp, il)) continue;
        movable(b->w, b->hp, il, part);
        s->layer[il] = (struct expert_layer){.on_host = true,
                                             .router = b->w->layer[il].moe.router,
                                             .file = {*part[0], *part[1], *part[2]}};
        *bytes += copy_vectors(b, il, NULL);
        n++;
    }
    if (n) s->host = where->host;
    return n && where->streams ? alloc_staging(b) : 0;
}

/* Opens the pool of experts that the device or the processor uses: slots over host memory, or memory over the disk;
 * beside a device, for the layers whose experts the host multiplies. */
static int open_pool(struct binder *b, const struct expert_placement *where) {
    struct expert_store *s = &b->w->experts;
    struct dev *home = b->dev->ops->is_host ? b->dev : s->host;
    bool is_disk = home && where->pool_bytes;
    if ((!is_disk && (b->dev->ops->is_host || !where->slot_bytes)) || !b->hp->moe.n_expert)
        return 0;
    struct tier_layer_weights *l = mem_alloc_array((size_t)b->hp->n_layer, sizeof *l);
    if (!l) return err_set(b->e, CHIMERE_ENOMEM, "out of memory for weights");
    for (int32_t il = 0; il < b->hp->n_layer; il++) {
        struct layer_weights *w = &b->w->layer[il];
        if ((b->hp->layer[il].ffn & FFN_MOE) && (!s->host || on_host(b->w, il)))
            l[il] = (struct tier_layer_weights){{&w->moe.gate, &w->moe.up, &w->moe.down}};
    }
    int rc = is_disk ? tier_new(&s->tier, b->hp, b->g, home, l, b->hp->n_layer, where->pool_bytes,
                                where->room_bytes, b->e)
                     : expert_slots_new(&s->slots, b->hp, b->dev, l, b->hp->n_layer,
                                        where->slot_bytes, b->e);
    mem_free(l);
    return rc;
}

static int take_blocks(struct binder *b, size_t block, size_t host_block, char **at, char **host) {
    struct weights *w = b->w;
    if (block) {
        *at = b->dev->ops->alloc(b->dev, block);
        if (own(b, *at)) return CHIMERE_ENOMEM;
        w->prepared_bytes += block;
    }
    struct expert_store *s = &w->experts;
    if (!s->host || !host_block) return 0;
    s->block = *host = s->host->ops->alloc(s->host, host_block);
    s->bytes = host_block;
    return *host ? 0 : err_set(b->e, CHIMERE_ENOMEM, "out of memory for experts on the host");
}

/* Whether the model uses m's bytes in the file only to prepare it. */
static bool is_read_once(struct binder *b, const struct weight *m, int32_t il) {
    if (m->data == b->w->global.token_embd.data || home_of(b, m, il) != b->dev) return false;
    return is_in_slots(b->w, b->hp, m, il) || prepared_share(b->dev, m) > 0;
}

static struct ahead_part part_of(struct binder *b, const struct weight *m, int32_t il) {
    struct ahead_part p = {.at = m->data, .n = weight_bytes(m)};
    bool is_whole = m->n_mat == 1 || m->mat_bytes == m->row_bytes * (uint64_t)m->n_out;
    const struct gguf_tensor *t = is_whole && is_read_once(b, m, il) ? tensor_of(b, m) : NULL;
    if (!t) return p;
    p.is_once = true;
    p.file = t->file;
    p.offset = t->offset + (uint64_t)((const unsigned char *)m->data - t->data);
    return p;
}

/* Lists what prepare_all reads, in its order: the table of tokens, then every matrix. Returns the number. */
static size_t list_read(struct binder *b, struct ahead_part *out) {
    struct weight *m[MAX_MATRICES];
    const struct weight *table = &b->w->global.token_embd;
    size_t n = 0;
    if (out)
        out[n] = (struct ahead_part){.at = table->data, .n = table->data ? weight_bytes(table) : 0};
    n++;
    for (int32_t il = -1; il < arch_n_layer_all(b->hp); il++) {
        int n_here = matrices(b->w, b->hp, il, m);
        for (int i = 0; i < n_here; i++) {
            if (!m[i]->data || is_on_disk(b->w, b->hp, m[i], il)) continue;
            if (out) out[n] = part_of(b, m[i], il);
            n++;
        }
    }
    return n;
}

static int prepare_each(struct binder *b, char *at, char *host, struct ahead *ahead, bool quiet) {
    struct weight *m[MAX_MATRICES];
    size_t n_read = 0;
    uint64_t done = 0;
    int rc = 0;
    for (int32_t il = -1; !rc && il < arch_n_layer_all(b->hp); il++) {
        int n = matrices(b->w, b->hp, il, m);
        for (int i = 0; i < n; i++) {
            if (!m[i]->data) continue;
            uint64_t bytes = weight_bytes(m[i]);
            bool routed =
                (b->hp->layer[il < 0 ? 0 : il].ffn & FFN_MOE) && m[i]->n_mat > 1 && il >= 0;
            uint64_t read =
                routed ? bytes / (uint64_t)m[i]->n_mat * (uint64_t)b->hp->moe.n_used : bytes;
            if (il < b->hp->n_layer) b->w->bytes_per_tok += read;
            if (is_on_disk(b->w, b->hp, m[i], il)) continue;
            struct dev *d = home_of(b, m[i], il);
            if (d != b->dev) b->w->host_bytes_per_tok += read;
            const void *from = ahead_use(ahead, ++n_read);
            rc = prepare_one(b, m[i], from, il, d, d == b->dev ? &at : &host);
            if (rc) break;
            done += bytes;
            if (!quiet) progress_step(done);
        }
    }
    return rc;
}

/* Prepares everything while the next matrices are read; read_bytes: as in expert_placement. */
static int read_all(struct binder *b, char *at, char *host, uint64_t read_bytes, bool quiet) {
    size_t n = list_read(b, NULL);
    uint32_t n_file = gguf_n_files(b->g);
    struct ahead *ahead = NULL;
    struct ahead_part *part = mem_alloc_array(n, sizeof *part);
    struct ahead_file *file = mem_alloc_array(n_file, sizeof *file);
    int rc = part && file ? 0 : err_set(b->e, CHIMERE_ENOMEM, "out of memory for weights");
    if (!rc) list_read(b, part);
    for (uint32_t i = 0; !rc && i < n_file; i++)
        file[i] = (struct ahead_file){gguf_path(b->g, i), gguf_file_bytes(b->g, i)};
    const struct ahead_params p = {
        .part = part, .n = n, .file = file, .n_file = n_file, .room_bytes = (size_t)read_bytes};
    if (!rc) rc = ahead_new(&ahead, &p, b->e);
    if (!rc) rc = check_tables(b);
    if (!rc) rc = prepare_each(b, at, host, ahead, quiet);
    if (!rc) b->w->direct_bytes = ahead_direct_bytes(ahead);
    if (b->w->direct_bytes)
        log_info("weights: %llu MB read without the page cache",
                 (unsigned long long)b->w->direct_bytes >> 20);
    ahead_free(ahead);
    mem_free(part);
    mem_free(file);
    return rc;
}

static int prepare_all(struct binder *b, const struct expert_placement *where, bool quiet) {
    struct weight *m[MAX_MATRICES];
    uint64_t total = 0;
    /* bytes of the device's and of the host's forms; one allocation each, so that the CPU reads
     * them through few huge pages */
    size_t block = 0, host_block = 0;
    int rc = place_experts(b, where, &host_block);
    if (!rc && where) rc = open_pool(b, where);
    const struct expert_store *s = &b->w->experts;
    if (!rc && b->w->n_tail && (s->host || s->tier || s->slots))
        rc = err_set(b->e, CHIMERE_EUNSUPPORTED,
                     "the file has tensors in two parts (*%s), so the device must hold all experts",
                     WEIGHT_TAIL);
    if (rc) return rc;
    size_t vector_bytes = host_block = (host_block + 255) & ~(size_t)255;
    int32_t n_all = arch_n_layer_all(b->hp);
    for (int32_t il = -1; il < n_all; il++) {
        int n = matrices(b->w, b->hp, il, m);
        for (int i = 0; i < n; i++)
            if (m[i]->data) {
                struct dev *d = home_of(b, m[i], il);
                if (is_on_disk(b->w, b->hp, m[i], il)) continue;
                total += weight_bytes(m[i]);
                if (is_in_slots(b->w, b->hp, m[i], il)) continue;
                *(d == b->dev ? &block : &host_block) += prepared_share(d, m[i]);
            }
    }
    char *at = NULL, *host = NULL;
    rc = take_blocks(b, block, host_block, &at, &host);
    if (rc) return rc;
    if (host) {
        char *end = host;
        for (int32_t il = 0; il < b->hp->n_layer; il++)
            if (on_host(b->w, il)) end += copy_vectors(b, il, end);
        host += vector_bytes;
    }
    if (!quiet) progress_begin("preparing weights", total, true);
    rc = read_all(b, at, host, where ? where->read_bytes : 0, quiet);
    if (!quiet) progress_end();
    for (int32_t il = 0; il < b->hp->n_layer; il++) b->w->bytes_per_tok += shared_bytes(b, il);
    return rc;
}

int weights_bind(struct weights *w, const struct hparams *hp, const struct gguf *g, struct dev *dev,
                 const struct expert_placement *where, const struct model_slice *slice, bool quiet,
                 struct err *e) {
    *w = (struct weights){.dev = dev};
    struct binder b = {.w = w, .hp = hp, .g = g, .dev = dev, .slice = slice, .e = e};
    int32_t n_all = arch_n_layer_all(hp);
    w->layer = mem_alloc_array((size_t)n_all, sizeof *w->layer);
    w->n_layer = n_all;
    b.gathered = mem_alloc_array(MAX_GATHERED, sizeof *b.gathered);
    int rc = w->layer && b.gathered ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory for weights");
    for (const struct tensor_row *const *table = hp->arch->tensors; !rc && *table; table++) {
        for (const struct tensor_row *row = *table; !rc && row->gguf; row++) {
            if (row->where == AT_GLOBAL) rc = bind_row(&b, row, -1);
            for (int32_t il = 0; !rc && il < n_all && row->where != AT_GLOBAL; il++)
                if (arch_has(hp, (enum tensor_where)row->where, il)) rc = bind_row(&b, row, il);
        }
    }
    for (int32_t il = 0; !rc && il < n_all; il++) {
        rc = split_fused(&b, il);
        if (!rc) rc = unfuse_gdn(&b, il);
    }
    if (hp->no_head) w->global.output.data = NULL;
    if (!rc) rc = prepare_all(&b, where, quiet);
    if (!rc) rc = dev->ops->status(dev, e);
    for (size_t i = 0; i < b.n_gathered; i++) mem_free(b.gathered[i]);
    mem_free(b.gathered);
    if (rc) weights_release(w);
    return rc;
}

void weights_release(struct weights *w) {
    for (size_t i = 0; i < w->n_owned; i++) w->dev->ops->free(w->dev, w->owned[i]);
    if (w->experts.block) w->experts.host->ops->free(w->experts.host, w->experts.block);
    tier_free(w->experts.tier);
    expert_slots_free(w->experts.slots);
    mem_free(w->experts.layer);
    for (size_t i = 0; i < w->n_tail; i++) mem_free(w->tails[i]);
    mem_free(w->tails);
    for (int32_t il = 0; w->layer && il < w->n_layer; il++) mem_free(w->layer[il].mla.heads);
    mem_free(w->owned);
    mem_free(w->sources);
    mem_free(w->layer);
    *w = (struct weights){.layer = NULL};
}

/* slice.c: which heads, columns and rows each device has, and the resulting parts of each tensor dimension. */
#include "model/slice.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "format/quant.h"
#include "model/arch/arch_impl.h"

/* Kernels multiply tiles of 32 rows and columns. */
enum { TILE = 32, MAX_TILES = SLICE_MAX_PARTS - 2 };

struct range {
    int64_t first, end;
};

struct model_slice {
    struct hparams whole;
    struct hparams own; /* view of the device's hyperparameters; complete after slice_new */
    int32_t rank, n;
    int32_t n_layer; /* layers that are divided: of the trunk, or prediction blocks too */
    int64_t block[SLICE_N_KIND]; /* largest block of the kind's last matrices, in elements */
    int64_t block_shared;        /* of the shared expert */
    bool cut[SLICE_N_KIND], has[SLICE_N_KIND], cut_shared, has_norm;
};

static const struct kind {
    const char *text;
    uint8_t mixer, ffn;
    const char *last; /* the matrix whose rows are divided */
} kinds[SLICE_N_KIND] = {
    [SLICE_ATTN] = {"attention", MIX_ATTN, FFN_NONE, "attn_output.weight"},
    [SLICE_GDN] = {"delta-net heads", MIX_GDN, FFN_NONE, "ssm_out.weight"},
    [SLICE_MAMBA1] = {"Mamba-1", MIX_MAMBA1, FFN_NONE, "ssm_out.weight"},
    [SLICE_MAMBA2] = {"Mamba-2 heads", MIX_MAMBA2, FFN_NONE, "ssm_out.weight"},
    [SLICE_CONV] = {"short convolutions", MIX_CONV, FFN_NONE, "shortconv.out_proj.weight"},
    [SLICE_MLA] = {"latent attention", MIX_MLA, FFN_NONE, "attn_output.weight"},
    [SLICE_DENSE] = {"feed-forward blocks", MIX_NONE, FFN_DENSE, "ffn_down.weight"},
    [SLICE_MOE] = {"experts", MIX_NONE, FFN_MOE, "ffn_down_exps.weight"},
};

static bool layer_has(const struct layer_shape *l, int kind) {
    return l->mixer & kinds[kind].mixer || (kinds[kind].ffn && l->ffn == kinds[kind].ffn);
}

/* ---- ranges ---- */

static int64_t lcm(int64_t a, int64_t b) {
    int64_t x = a, y = b;
    while (y) {
        int64_t r = x % y;
        x = y;
        y = r;
    }
    return a / x * b;
}

/* Smallest number of units, a multiple of `size`, whose elements (`width` each) end at a block boundary. */
static int64_t aligned(int64_t size, int64_t width, int64_t block) {
    return lcm(size * width, block) / width;
}

/* Part `rank` of n of [0, total) in whole units; returns false if there are fewer units than parts. */
static bool share(int64_t total, int64_t unit, int32_t rank, int32_t n, struct range *r) {
    int64_t k = total / unit;
    if (total % unit || k < n) return false;
    *r = (struct range){k * rank / n * unit, k * (rank + 1) / n * unit};
    return true;
}

/* A share of columns: in tiles if there are enough tiles, else in blocks. */
static bool columns(int64_t total, int64_t block, int32_t rank, int32_t n, struct range *r) {
    return share(total, block < TILE ? lcm(block, TILE) : block, rank, n, r) ||
           share(total, block, rank, n, r);
}

/* A share of query heads, and of the key heads that they read. If there are fewer key heads than devices,
 * several devices have the same key head. */
static bool attn_share(const struct model_slice *s, int32_t il, int32_t rank, struct range *q,
                       struct range *kv) {
    const struct layer_shape *l = &s->whole.layer[il];
    int64_t per = l->n_head / l->n_kv_head, d = s->whole.d_v, block = s->block[SLICE_ATTN];
    if (l->n_kv_head >= s->n) {
        if (!share(l->n_head, aligned(per, d, block), rank, s->n, q)) return false;
        *kv = (struct range){q->first / per, q->end / per};
        return true;
    }
    int32_t per_kv = s->n / l->n_kv_head, group = rank / per_kv;
    if (s->n % l->n_kv_head || !share(per, aligned(1, d, block), rank % per_kv, per_kv, q))
        return false;
    if (per * d % block) return false;
    *q = (struct range){group * per + q->first, group * per + q->end};
    *kv = (struct range){group, group + 1};
    return true;
}

/* A share of key heads; each has the value heads that read it. */
static bool gdn_share(const struct model_slice *s, int32_t rank, struct range *k) {
    const struct hparams *hp = &s->whole;
    int64_t n_k = hp->gdn.n_k_head, per = hp->gdn.n_v_head / n_k, d = hp->gdn.d_v;
    int64_t block = s->block[SLICE_GDN];
    if (!hp->gdn.is_grouped && (per > MAX_TILES || (per > 1 && n_k * d % block))) return false;
    return share(n_k, aligned(1, hp->gdn.is_grouped ? per * d : d, block), rank, s->n, k);
}

/* A share of heads, and of the groups of B and C that they read. A part of a norm is never divided. */
static bool mamba2_share(const struct model_slice *s, int32_t rank, struct range *h,
                         struct range *g) {
    const struct hparams *hp = &s->whole;
    int64_t n = hp->ssm.n_head, per_group = n / hp->ssm.n_group, d = hp->ssm.n_inner / n, unit = 1;
    if (s->has_norm && hp->ssm.n_norm) unit = n / hp->ssm.n_norm;
    if (hp->ssm.n_group >= s->n) unit = lcm(unit, per_group);
    if (!share(n, aligned(unit, d, s->block[SLICE_MAMBA2]), rank, s->n, h)) return false;
    *g = (struct range){h->first / per_group, (h->end - 1) / per_group + 1};
    bool is_one = g->end - g->first == 1;
    return is_one || (h->first % per_group == 0 && h->end % per_group == 0);
}

static bool can_cut(const struct model_slice *s, int kind) {
    const struct hparams *hp = &s->whole;
    bool ok = s->has[kind];
    for (int32_t rank = 0; ok && rank < s->n; rank++) {
        struct range a, b;
        for (int32_t il = 0; ok && il < s->n_layer; il++) {
            if (!layer_has(&hp->layer[il], kind)) continue;
            if (kind == SLICE_ATTN) ok = attn_share(s, il, rank, &a, &b);
            if (kind == SLICE_DENSE)
                ok = columns(hp->layer[il].n_ff, s->block[kind], rank, s->n, &a);
        }
        if (kind == SLICE_GDN) ok = gdn_share(s, rank, &a);
        if (kind == SLICE_MAMBA2) ok = mamba2_share(s, rank, &a, &b);
        if (kind == SLICE_MOE) ok = columns(hp->moe.n_ff, s->block[kind], rank, s->n, &a);
    }
    if (kind == SLICE_ATTN && hp->has_wide_qk_norm) ok = false;
    return ok && kind != SLICE_MAMBA1 && kind != SLICE_CONV && kind != SLICE_MLA;
}

/* ---- the device's shape ---- */

/* A kind that is not divided goes to the devices in turn, layer by layer. */
static bool is_owner(const struct model_slice *s, int kind, int32_t il) {
    int32_t k = 0;
    for (int32_t i = 0; i < il; i++) k += layer_has(&s->whole.layer[i], kind);
    return k % s->n == s->rank;
}

static void cut_layer(const struct model_slice *s, struct layer_shape *l, int32_t il) {
    struct range a, b;
    l->sums = (uint8_t)((l->mixer != MIX_NONE ? SUM_MIXERS : 0) |
                        (l->ffn != FFN_NONE ? SUM_FEED_FORWARD : 0));
    const struct layer_shape *whole = &s->whole.layer[il];
    for (int kind = 0; kind < SLICE_N_KIND; kind++) {
        if (!layer_has(whole, kind) || s->cut[kind] || is_owner(s, kind, il)) continue;
        l->mixer &= (uint8_t)~kinds[kind].mixer;
        if (kinds[kind].ffn) l->ffn = FFN_NONE;
    }
    if (layer_has(l, SLICE_ATTN) && s->cut[SLICE_ATTN] && attn_share(s, il, s->rank, &a, &b)) {
        l->n_head = (int32_t)(a.end - a.first);
        l->n_kv_head = (int32_t)(b.end - b.first);
    }
    if (layer_has(l, SLICE_DENSE) && s->cut[SLICE_DENSE] &&
        columns(whole->n_ff, s->block[SLICE_DENSE], s->rank, s->n, &a))
        l->n_ff = (int32_t)(a.end - a.first);
}

static void head_share(const struct model_slice *s, struct range *r) {
    if (!columns(s->whole.n_vocab, 1, s->rank, s->n, r)) *r = (struct range){0, 0};
}

static void cut_shape(const struct model_slice *s, struct hparams *hp) {
    struct range a, b;
    for (int32_t il = 0; il < s->n_layer; il++) cut_layer(s, &hp->layer[il], il);
    for (int32_t il = s->n_layer; il < arch_n_layer_all(&s->whole); il++)
        hp->layer[il] = (struct layer_shape){.mixer = 0};
    hp->n_nextn = s->n_layer - hp->n_layer;
    if (s->cut[SLICE_GDN] && gdn_share(s, s->rank, &a)) {
        hp->gdn.n_v_head = (int32_t)(a.end - a.first) * (hp->gdn.n_v_head / hp->gdn.n_k_head);
        hp->gdn.n_k_head = (int32_t)(a.end - a.first);
    }
    if (s->cut[SLICE_MAMBA2] && mamba2_share(s, s->rank, &a, &b)) {
        int32_t n = (int32_t)(a.end - a.first);
        hp->ssm.n_inner = hp->ssm.n_inner / hp->ssm.n_head * n;
        if (s->has_norm) hp->ssm.n_norm = (int32_t)((int64_t)hp->ssm.n_norm * n / hp->ssm.n_head);
        hp->ssm.n_head = n;
        hp->ssm.n_group = (int32_t)(b.end - b.first);
    }
    if (s->cut[SLICE_MOE] && columns(hp->moe.n_ff, s->block[SLICE_MOE], s->rank, s->n, &a)) {
        hp->moe.n_ff = (int32_t)(a.end - a.first);
        if (s->cut_shared) {
            columns(hp->moe.n_ff_shared, s->block_shared, s->rank, s->n, &a);
            hp->moe.n_ff_shared = (int32_t)(a.end - a.first);
        } else if (s->rank) {
            hp->moe.n_ff_shared = 0;
        }
    }
    head_share(s, &a);
    hp->n_logit = (int32_t)(a.end - a.first);
    hp->first_logit = (int32_t)a.first;
}

/* ---- creation ---- */

static void raise(int64_t *block, const struct gguf_tensor *t) {
    int64_t n = quant_traits(t->type)->block_elements;
    *block = lcm(*block, n);
}

static void read_blocks(struct model_slice *s, const struct gguf *g) {
    for (int k = 0; k < SLICE_N_KIND; k++) s->block[k] = 1;
    s->block_shared = 1;
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        const char *name = strncmp(t->name, "blk.", 4) ? NULL : strchr(t->name + 4, '.');
        if (!name) continue;
        for (int k = 0; k < SLICE_N_KIND; k++)
            if (strcmp(name + 1, kinds[k].last) == 0) raise(&s->block[k], t);
        if (strcmp(name + 1, "ffn_down_shexp.weight") == 0) raise(&s->block_shared, t);
        s->has_norm |= strcmp(name + 1, "ssm_norm.weight") == 0;
    }
}

static int check_heads(const struct model_slice *s, const struct hparams *hp, struct err *e) {
    for (int32_t il = 0; il < s->n_layer; il++) {
        const struct layer_shape *l = &hp->layer[il];
        bool reads_more = l->join != JOIN_SUM || l->share_back || l->kv_back || hp->n_meta;
        if (reads_more)
            return err_set(e, CHIMERE_EUNSUPPORTED,
                           "layers of a %s model read of each other and cannot be cut into slices",
                           hp->arch->name);
        int32_t n_head = l->mixer & MIX_ATTN     ? l->n_head
                         : l->mixer & MIX_GDN    ? hp->gdn.n_v_head
                         : l->mixer & MIX_MAMBA2 ? hp->ssm.n_head
                                                 : s->n;
        if (n_head < s->n)
            return err_set(e, CHIMERE_ELIMIT,
                           "--split tensor: %d cards, but layer %d of the model has %d heads", s->n,
                           il, n_head);
    }
    return hp->n_vocab < s->n ? err_set(e, CHIMERE_ELIMIT, "more cards than tokens") : 0;
}

static void choose_kinds(struct model_slice *s) {
    for (int k = 0; k < SLICE_N_KIND; k++) {
        s->has[k] = false;
        for (int32_t il = 0; il < s->n_layer; il++) s->has[k] |= layer_has(&s->whole.layer[il], k);
        s->cut[k] = can_cut(s, k);
    }
}

/* Prediction blocks are divided like layers. If they have fewer heads or other blocks than the trunk, so that layers of
 * the trunk could not be divided with them, no device has them: drafts save less time than slices. */
static void add_nextn(struct model_slice *s) {
    struct model_slice trunk = *s;
    struct err ignored;
    s->n_layer = arch_n_layer_all(&s->whole);
    bool ok = !check_heads(s, &s->whole, &ignored);
    if (ok) choose_kinds(s);
    for (int k = 0; k < SLICE_N_KIND; k++) ok = ok && (s->cut[k] || !trunk.cut[k]);
    if (!ok) *s = trunk;
}

int slice_new(struct model_slice **out, struct hparams *hp, const struct gguf *g, int32_t rank,
              int32_t n, struct err *e) {
    *out = NULL;
    if (n < 1 || rank < 0 || rank >= n)
        return err_set(e, CHIMERE_EINVAL, "slices: expected one of %d, got %d", n, rank);
    struct model_slice *s = mem_zalloc(sizeof *s);
    if (!s) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    s->whole = *hp;
    s->rank = rank;
    s->n = n;
    s->n_layer = hp->n_layer;
    int rc = check_heads(s, hp, e);
    if (rc) {
        mem_free(s);
        return rc;
    }
    read_blocks(s, g);
    choose_kinds(s);
    if (hp->n_nextn) add_nextn(s);
    struct range r;
    s->cut_shared = true;
    for (int32_t i = 0; i < n; i++)
        s->cut_shared &= columns(hp->moe.n_ff_shared, s->block_shared, i, n, &r);
    cut_shape(s, hp);
    s->own = *hp;
    *out = s;
    return 0;
}

void slice_free(struct model_slice *s) { mem_free(s); }

const struct hparams *slice_whole(const struct model_slice *s) { return &s->whole; }
bool slice_is_cut(const struct model_slice *s, enum slice_kind kind) { return s->cut[kind]; }

void slice_whole_kinds(const struct model_slice *s, char *text, size_t size) {
    size_t at = 0;
    if (size) *text = 0;
    for (int k = 0; k < SLICE_N_KIND && at < size; k++)
        if (s->has[k] && !s->cut[k])
            at += (size_t)snprintf(text + at, size - at, "%s%s", at ? ", " : "", kinds[k].text);
}

/* ---- dimensions ---- */

struct list {
    struct slice_part *out;
    int32_t n;
};

static void put(struct list *l, int64_t base, struct range r, int64_t width) {
    l->out[l->n++] = (struct slice_part){base + r.first * width, (r.end - r.first) * width};
}

static void attn_parts(const struct model_slice *s, enum arch_dim d, int32_t il, struct list *l) {
    const struct hparams *hp = &s->whole;
    struct range q = {0, 0}, kv = {0, 0};
    int32_t d_k = hp->layer[il].d_k, d_v = hp->layer[il].d_v;
    int64_t d_q = (int64_t)d_k * (hp->has_q_gate ? 2 : 1), n_q = arch_dim(hp, D_Q, il);
    if (!attn_share(s, il, s->rank, &q, &kv)) return;
    if (d == D_HEAD) put(l, 0, q, 1);
    if (d == D_ATTN_OUT) put(l, 0, q, d_v);
    if (d == D_Q || d == D_QKV) put(l, 0, q, d_q);
    if (d == D_K || d == D_QKV) put(l, d == D_K ? 0 : n_q, kv, d_k);
    if (d == D_V || d == D_QKV) put(l, d == D_V ? 0 : n_q + arch_dim(hp, D_K, il), kv, d_v);
}

/* The value heads of key heads k, from element base on, width elements each. */
static void value_parts(const struct model_slice *s, struct range k, int64_t base, int64_t width,
                        struct list *l) {
    int64_t n_k = s->whole.gdn.n_k_head, per = s->whole.gdn.n_v_head / n_k;
    if (s->whole.gdn.is_grouped) put(l, base, k, per * width);
    else
        for (int64_t t = 0; t < per; t++) put(l, base + t * n_k * width, k, width);
}

static void gdn_parts(const struct model_slice *s, enum arch_dim d, struct list *l) {
    const struct hparams *hp = &s->whole;
    struct range k = {0, 0};
    int64_t n_k = hp->gdn.n_k_head, per = hp->gdn.n_v_head / n_k, d_k = hp->gdn.d_k,
            d_v = hp->gdn.d_v;
    if (!gdn_share(s, s->rank, &k)) return;
    if (d == D_GDN_QKVZ) put(l, 0, k, 2 * d_k + 2 * per * d_v);
    if (d == D_GDN_BA) put(l, 0, k, 2 * per);
    if (d == D_GDN_V_HEAD) value_parts(s, k, 0, 1, l);
    if (d == D_GDN_INNER) value_parts(s, k, 0, d_v, l);
    if (d != D_GDN_CONV) return;
    put(l, 0, k, d_k);
    put(l, n_k * d_k, k, d_k);
    value_parts(s, k, 2 * n_k * d_k, d_v, l);
}

static void mamba2_parts(const struct model_slice *s, enum arch_dim d, struct list *l) {
    const struct hparams *hp = &s->whole;
    struct range h = {0, 0}, g = {0, 0};
    int64_t n = hp->ssm.n_head, inner = hp->ssm.n_inner, d_head = inner / n,
            d_state = hp->ssm.d_state, bc = hp->ssm.n_group * d_state, at = 0;
    if (!mamba2_share(s, s->rank, &h, &g)) return;
    if (d == D_SSM_HEAD) put(l, 0, h, 1);
    if (d == D_SSM_INNER) put(l, 0, h, d_head);
    if (d == D_SSM_NORM && s->has_norm && hp->ssm.n_norm) {
        int64_t per = n / hp->ssm.n_norm;
        put(l, 0, (struct range){h.first / per, h.end / per}, 1);
    }
    if (d != D_SSM_IN && d != D_SSM_CONV) return;
    if (d == D_SSM_IN) {
        put(l, 0, h, d_head);
        at = inner;
    }
    put(l, at, h, d_head);
    put(l, at + inner, g, d_state);
    put(l, at + inner + bc, g, d_state);
    if (d == D_SSM_IN) put(l, at + inner + 2 * bc, h, 1);
}

static void column_parts(const struct model_slice *s, int64_t total, int64_t block, int n_times,
                         struct list *l) {
    struct range r;
    if (!columns(total, block, s->rank, s->n, &r)) return;
    for (int i = 0; i < n_times; i++) put(l, i * total, r, 1);
}

static bool is_head(const struct tensor_row *row) {
    return row->where == AT_GLOBAL && row->slot == offsetof(struct global_weights, output) &&
           !row->is_vector;
}

int32_t slice_parts(const struct model_slice *s, const struct tensor_row *row, enum arch_dim d,
                    int32_t il, struct slice_part out[SLICE_MAX_PARTS]) {
    const struct hparams *hp = &s->whole;
    struct list l = {out, 0};
    if (row->where == AT_GLOBAL) {
        if (d == D_VOCAB && is_head(row)) column_parts(s, hp->n_vocab, 1, 1, &l);
        return l.n;
    }
    switch (d) {
    case D_VOCAB:
        if (row->slot == offsetof(struct layer_weights, nextn.head))
            column_parts(s, hp->n_vocab, 1, 1, &l);
        break;
    case D_HEAD:
    case D_Q:
    case D_K:
    case D_V:
    case D_ATTN_OUT:
    case D_QKV:
        if (s->cut[SLICE_ATTN]) attn_parts(s, d, il, &l);
        break;
    case D_FF:
        if (s->cut[SLICE_DENSE] && row->where != AT_FFN_MOE && row->where != AT_FFN_SHARED)
            column_parts(s, hp->layer[il].n_ff, s->block[SLICE_DENSE], 1, &l);
        break;
    case D_FF_EXP:
    case D_FF_EXP2:
        if (s->cut[SLICE_MOE])
            column_parts(s, hp->moe.n_ff, s->block[SLICE_MOE], d == D_FF_EXP ? 1 : 2, &l);
        break;
    case D_FF_SHARED:
        if (s->cut[SLICE_MOE] && s->cut_shared)
            column_parts(s, hp->moe.n_ff_shared, s->block_shared, 1, &l);
        break;
    case D_GDN_CONV:
    case D_GDN_INNER:
    case D_GDN_V_HEAD:
    case D_GDN_QKVZ:
    case D_GDN_BA:
        if (s->cut[SLICE_GDN]) gdn_parts(s, d, &l);
        break;
    case D_SSM_IN:
    case D_SSM_INNER:
    case D_SSM_CONV:
    case D_SSM_HEAD:
    case D_SSM_NORM:
        if (s->cut[SLICE_MAMBA2] && hp->layer[il].mixer & MIX_MAMBA2) mamba2_parts(s, d, &l);
        break;
    default: break;
    }
    return l.n;
}

bool slice_is_elsewhere(const struct model_slice *s, const struct tensor_row *row) {
    if (!s->rank || row->where == AT_GLOBAL) return false;
    return (row->slot == offsetof(struct layer_weights, attn.out_b) && s->cut[SLICE_ATTN]) ||
           (row->slot == offsetof(struct layer_weights, ssm.out_b) && s->cut[SLICE_MAMBA2]) ||
           (row->slot == offsetof(struct layer_weights, ffn.down_b) && s->cut[SLICE_DENSE]) ||
           (row->slot == offsetof(struct layer_weights, moe.bias.down) && s->cut[SLICE_MOE]);
}

/* ---- copies ---- */

static int64_t sum_of(const struct slice_part *part, int32_t n) {
    int64_t sum = 0;
    for (int32_t k = 0; k < n; k++) sum += part[k].n;
    return sum;
}

/* Copies the parts of one row; blocks stay whole. A scale at the start of a row stays there. */
static void copy_row(const struct weight *w, const char *row, const struct slice_part *part,
                     int32_t n, char *dst) {
    const struct quant_traits *q = quant_traits(w->type);
    if (!n) {
        memcpy(dst, row, w->row_bytes);
        return;
    }
    memcpy(dst, row, q->head_bytes);
    dst += q->head_bytes;
    for (int32_t k = 0; k < n; k++) {
        size_t at = (size_t)part[k].first / q->block_elements * q->block_bytes;
        size_t bytes = (size_t)part[k].n / q->block_elements * q->block_bytes;
        memcpy(dst, row + q->head_bytes + at, bytes);
        dst += bytes;
    }
}

bool slice_weight(const struct model_slice *s, const struct tensor_row *row, int32_t il,
                  const struct weight *all, void *dst, struct weight *out) {
    struct slice_part in[SLICE_MAX_PARTS], rows[SLICE_MAX_PARTS];
    int32_t n_in = slice_parts(s, row, (enum arch_dim)row->dims[0], il, in);
    int32_t n_rows = slice_parts(s, row, (enum arch_dim)row->dims[1], il, rows);
    struct slice_part every = {0, all->n_out};
    uint64_t row_bytes = 0;
    char *to = dst;
    *out = *all;
    if (!n_in && !n_rows) return false;
    if (n_in) out->n_in = sum_of(in, n_in);
    if (n_rows) out->n_out = sum_of(rows, n_rows);
    quant_row_bytes(all->type, (uint64_t)out->n_in, &row_bytes);
    out->row_bytes = row_bytes;
    out->mat_bytes = row_bytes * (size_t)out->n_out;
    out->data = dst;
    if (!n_in && n_rows == 1 && all->n_mat == 1)
        out->data = (const char *)all->data + (size_t)rows[0].first * all->row_bytes;
    if (!dst) return true;
    out->data = dst;
    for (int64_t m = 0; m < all->n_mat; m++)
        for (int32_t k = 0; k < (n_rows ? n_rows : 1); k++) {
            const struct slice_part *p = n_rows ? &rows[k] : &every;
            const char *from = (const char *)all->data + (size_t)m * all->mat_bytes +
                               (size_t)p->first * all->row_bytes;
            for (int64_t r = 0; r < p->n; r++, to += row_bytes)
                copy_row(all, from + (size_t)r * all->row_bytes, in, n_in, to);
        }
    return true;
}

/* ---- tensors of the file ---- */

static const struct tensor_row *row_of(const struct model_slice *s, const char *name, int32_t *il) {
    char own[GGUF_MAX_NAME];
    int n = -1;
    if (sscanf(name, "blk.%d.", &n) != 1) n = -1;
    *il = n;
    if (n < -1 || n >= arch_n_layer_all(&s->own)) return NULL;
    for (const struct tensor_row *const *table = s->own.arch->tensors; *table; table++)
        for (const struct tensor_row *row = *table; row->gguf; row++) {
            if (!arch_has(&s->own, (enum tensor_where)row->where, n)) continue;
            arch_tensor_name(row, n, own, sizeof own);
            if (strcmp(own, name) == 0) return row;
        }
    return NULL;
}

static void measure(struct gguf_tensor *t) {
    uint64_t row = 0;
    quant_row_bytes(t->type, t->ne[0], &row);
    t->n_elements = t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
    t->n_bytes = row * t->ne[1] * t->ne[2] * t->ne[3];
}

bool slice_tensor(const struct model_slice *s, const struct gguf_tensor *t,
                  struct gguf_tensor *out) {
    struct slice_part part[SLICE_MAX_PARTS];
    int32_t il;
    *out = *t;
    const struct tensor_row *row = row_of(s, t->name, &il);
    if (!row) return il < 0;
    if (slice_is_elsewhere(s, row)) return false;
    for (int i = 0; i < 3; i++) {
        int32_t n = slice_parts(s, row, (enum arch_dim)row->dims[i], il, part);
        if (n && t->ne[i] > 1) out->ne[i] = (uint64_t)sum_of(part, n);
    }
    measure(out);
    return true;
}

void slice_head(const struct model_slice *s, const struct gguf_tensor *embd,
                struct gguf_tensor *out) {
    *out = *embd;
    out->ne[1] = (uint64_t)s->own.n_logit;
    measure(out);
}

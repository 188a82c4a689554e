/* lora.c: adapters in GGUF form, bound to the base weights that they change. */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "model/forward_impl.h"
#include "model/lora_impl.h"
#include "model/slice.h"

/* Finds the row of a tensor name, if adapters may change the tensor, and its layer. hp: of the whole model. */
static const struct tensor_row *find_row(const struct hparams *hp, const char *name,
                                         int32_t *layer) {
    for (const struct tensor_row *const *table = hp->arch->tensors; *table; table++) {
        for (const struct tensor_row *row = *table; row->gguf; row++) {
            if (row->is_vector || row->where == AT_GLOBAL || row->where == AT_FFN_MOE ||
                row->where == AT_FFN_SHARED)
                continue;
            for (int32_t il = 0; il < arch_n_layer_all(hp); il++) {
                char full[GGUF_MAX_NAME];
                if (!arch_has(hp, (enum tensor_where)row->where, il)) continue;
                arch_tensor_name(row, il, full, sizeof full);
                if (strcmp(full, name) != 0) continue;
                *layer = il;
                return row;
            }
        }
    }
    return NULL;
}

/* A fused tensor is multiplied through views of its rows, in order; returns 0 if it is
 * multiplied through reordered copies. */
static int parts_of(const struct layer_weights *l, const struct weight *base,
                    const struct weight *out[3]) {
    if (base == &l->ssm.x) {
        out[0] = &l->ssm.x_dt, out[1] = &l->ssm.x_b, out[2] = &l->ssm.x_c;
        return 3;
    }
    if (base == &l->ssm.in && l->ssm.x_b.data && !l->ssm.x.data) { /* short convolution */
        out[0] = &l->ssm.x_b, out[1] = &l->ssm.x_c, out[2] = &l->ssm.x_dt;
        return 3;
    }
    if (base == &l->attn.qkv) {
        out[0] = &l->attn.q, out[1] = &l->attn.k, out[2] = &l->attn.v;
        return 3;
    }
    if (base == &l->gdn.qkvz || base == &l->gdn.ba) return 0;
    out[0] = base;
    return 1;
}

static void drop_cuts(struct lora *l) {
    for (size_t i = 0; i < l->n_cut; i++) mem_free(l->cuts[i]);
    l->n_cut = 0;
}

/* Whether base is of a dense feed-forward that the processor multiplies for a GPU (experts.h). */
static bool is_on_host(const struct model *m, int32_t il, const struct weight *base) {
    const struct expert_store *x = &m->weights.experts;
    const struct layer_weights *l = &m->weights.layer[il];
    return x->host && il < m->hp.n_layer && x->layer[il].on_host && !x->layer[il].router.data &&
           (base == &l->ffn.gate || base == &l->ffn.up || base == &l->ffn.down);
}

static struct weight view(const struct gguf_tensor *t) {
    size_t row_bytes = (size_t)(t->n_bytes / (t->ne[1] ? t->ne[1] : 1));
    return (struct weight){.data = t->data,
                           .type = t->type,
                           .n_in = (int64_t)t->ne[0],
                           .n_out = (int64_t)t->ne[1],
                           .n_mat = 1,
                           .row_bytes = row_bytes,
                           .mat_bytes = (size_t)t->n_bytes};
}

/* Reduces w to the rows or columns that the device has of the base matrix. row: the base's, with D_ONE for the other
 * dimension of w. */
static int cut(struct lora *l, const struct model *m, const struct tensor_row *row, int32_t il,
               struct weight *w, struct err *e) {
    const struct weight all = *w;
    if (!m->slice || !slice_weight(m->slice, row, il, &all, NULL, w) || w->data) return 0;
    void *p = mem_alloc(w->mat_bytes);
    if (!p) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    l->cuts[l->n_cut++] = p;
    slice_weight(m->slice, row, il, &all, p, w);
    return 0;
}

/* Stores the pair of a base matrix, or one per view through which it is multiplied. */
static int add_pair(struct lora *l, const struct model *m, const struct tensor_row *row, int32_t il,
                    const struct weight *const *part, int n_part, struct weight a, struct weight b,
                    float scale, struct err *e) {
    struct tensor_row of_a = *row, of_b = *row;
    of_a.dims[1] = of_b.dims[0] = D_ONE;
    int rc = cut(l, m, &of_a, il, &a, e);
    if (!rc) rc = cut(l, m, &of_b, il, &b, e);
    for (int i = 0; !rc && i < n_part; i++) {
        b.n_out = n_part > 1 ? part[i]->n_out : b.n_out;
        b.mat_bytes = (size_t)b.n_out * b.row_bytes;
        l->pairs[l->n_pair++] = (struct lora_pair){part[i], a, b, scale};
        b.data = (const char *)b.data + b.mat_bytes;
    }
    return rc;
}

/* whole: the hyperparameters of all layers; m may have a part of them. */
static int bind_pair(struct lora *l, const struct model *m, const struct hparams *whole,
                     const struct gguf_tensor *ta, float alpha, struct err *e) {
    char name[GGUF_MAX_NAME + 8];
    size_t n = strlen(ta->name) - strlen(".lora_a");
    snprintf(name, sizeof name, "%.*s.lora_b", (int)n, ta->name);
    const struct gguf_tensor *tb = gguf_find_tensor(l->gguf, name);
    if (!tb)
        return err_set(e, CHIMERE_EFORMAT, "tensor %s: expected beside %s, got nothing", name,
                       ta->name);
    name[n] = 0;
    int32_t il = 0;
    const struct tensor_row *row = find_row(whole, name, &il);
    const struct layer_weights *layer =
        row && il < m->weights.n_layer ? &m->weights.layer[il] : NULL;
    const struct weight *base = NULL, *part[3];
    if (layer) base = (const struct weight *)(const void *)((const char *)layer + row->slot);
    bool is_here = base && base->data, is_fused = row && row->dims[1] == D_FF_UP;
    int n_part = is_here ? parts_of(layer, base, part) : 0;
    if (!row || (is_fused && whole->is_up_fused) ||
        (is_here ? !n_part : !gguf_find_tensor(m->gguf, name)))
        return err_set(e, CHIMERE_EMISMATCH,
                       "tensor %s: the model has no such matrix that adapters may change", name);
    if (is_here && is_on_host(m, il, base))
        return err_set(e, CHIMERE_EUNSUPPORTED,
                       "tensor %s: adapters cannot change a matrix that is on the processor beside "
                       "the GPU",
                       name);
    int64_t n_in = arch_dim(whole, (enum arch_dim)row->dims[0], il),
            n_out = arch_dim(whole, (enum arch_dim)row->dims[1], il);
    if (ta->ne[0] != (uint64_t)n_in || tb->ne[1] != (uint64_t)n_out || ta->ne[1] != tb->ne[0] ||
        ta->ne[1] < 1 || ta->ne[1] > LORA_MAX_RANK || ta->n_dims > 2 || tb->n_dims > 2)
        return err_set(e, CHIMERE_EMISMATCH,
                       "tensor %s: expected [%lld, r] and [r, %lld] with r up to %d, got "
                       "[%llu, %llu] and [%llu, %llu]",
                       name, (long long)n_in, (long long)n_out, LORA_MAX_RANK,
                       (unsigned long long)ta->ne[0], (unsigned long long)ta->ne[1],
                       (unsigned long long)tb->ne[0], (unsigned long long)tb->ne[1]);
    if ((ta->type > 1 && ta->type != 30) || (tb->type > 1 && tb->type != 30))
        return err_set(e, CHIMERE_EUNSUPPORTED, "tensor %s: expected f32, f16 or bf16", ta->name);
    if (!is_here) return 0; /* on another device */
    return add_pair(l, m, row, il, part, n_part, view(ta), view(tb), alpha / (float)ta->ne[1], e);
}

static bool key_is(const struct gguf *g, const char *key, const char *want) {
    const struct gguf_kv *kv = gguf_find(g, key);
    uint64_t cursor = 0;
    struct slice s;
    return kv && gguf_next_str(kv, &cursor, &s) && s.n == strlen(want) &&
           memcmp(s.p, want, s.n) == 0;
}

int lora_to_device(struct lora *l, struct dev *d, struct err *e) {
    if (d->ops->is_host) return 0;
    l->dev = d;
    l->blocks = mem_alloc_array(2 * l->n_pair + 1, sizeof *l->blocks);
    if (!l->blocks) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (size_t i = 0; i < 2 * l->n_pair; i++) {
        struct weight *w = i % 2 ? &l->pairs[i / 2].b : &l->pairs[i / 2].a, ready;
        void *p = d->ops->alloc(d, d->ops->prepared_bytes(d, w));
        if (!p) return err_set(e, CHIMERE_ENOMEM, "gpu: no room for the adapter");
        l->blocks[l->n_block++] = p;
        int rc = d->ops->prepare(d, w, p, &ready);
        if (rc)
            return err_set(e, rc,
                           rc == CHIMERE_ENUMERIC ? "expected finite numbers, got NaN or infinity"
                                                  : "gpu: the adapter could not be prepared");
        *w = ready;
    }
    drop_cuts(l);
    return 0;
}

static int bind_pairs(struct lora *l, const struct model *m, float alpha, struct err *e) {
    size_t n = gguf_n_tensors(l->gguf);
    struct hparams *whole = mem_zalloc(sizeof *whole);
    l->pairs = mem_alloc_array(n / 2 * 3 + 3, sizeof *l->pairs);
    l->cuts = mem_alloc_array(2 * n + 1, sizeof *l->cuts);
    int rc = whole && l->pairs && l->cuts ? hparams_read(whole, m->gguf, e)
                                          : err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (size_t i = 0; !rc && i < n; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(l->gguf, i);
        size_t len = strlen(t->name);
        if (len > 7 && strcmp(t->name + len - 7, ".lora_a") == 0) {
            if (l->n_pair > n / 2 * 3)
                rc = err_set(e, CHIMERE_EFORMAT, "more .lora_a than .lora_b tensors");
            else rc = bind_pair(l, m, whole, t, alpha, e);
        } else if (!(len > 7 && strcmp(t->name + len - 7, ".lora_b") == 0)) {
            rc = err_set(e, CHIMERE_EFORMAT,
                         "tensor %s: expected a name ending in .lora_a or .lora_b", t->name);
        }
    }
    mem_free(whole);
    return rc;
}

int lora_open(struct lora **out, struct model *m, const char *path, struct err *e) {
    *out = NULL;
    struct lora *l = mem_zalloc(sizeof *l);
    if (!l) return err_set(e, CHIMERE_ENOMEM, "%s: out of memory", path);
    int rc = gguf_open(&l->gguf, path, e);
    double alpha = 0;
    if (!rc &&
        (!key_is(l->gguf, "general.type", "adapter") || !key_is(l->gguf, "adapter.type", "lora")))
        rc = err_set(e, CHIMERE_EFORMAT,
                     "expected a LoRA adapter (general.type \"adapter\", adapter.type \"lora\")");
    if (!rc && !key_is(l->gguf, "general.architecture", m->hp.arch->name))
        rc = err_set(e, CHIMERE_EMISMATCH, "expected an adapter for %s, got another architecture",
                     m->hp.arch->name);
    const struct gguf_kv *kv = rc ? NULL : gguf_find(l->gguf, "adapter.lora.alpha");
    if (!rc && (!kv || !gguf_item_f64(kv, 0, &alpha)))
        rc = err_set(e, CHIMERE_EFORMAT, "key adapter.lora.alpha: expected a number");
    if (!rc) rc = bind_pairs(l, m, (float)alpha, e);
    if (!rc) rc = lora_to_device(l, m->dev, e);
    if (rc) {
        err_prefix(e, "%s", path);
        lora_close(l);
        return rc;
    }
    l->hash = model_hash_file(l->gguf);
    l->of = m;
    *out = l;
    return 0;
}

void lora_join(struct lora *l, struct lora *copy) {
    copy->next = l->next;
    l->next = copy;
}

uint64_t lora_hash(const struct lora *l) { return l->hash; }
void *lora_handle(const struct lora *l) { return l->handle; }

int lora_foreign(struct lora **out, void *handle, uint64_t hash, struct err *e) {
    struct lora *l = *out = mem_zalloc(sizeof *l);
    if (!l) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    l->handle = handle;
    l->hash = hash;
    return 0;
}

void lora_close(struct lora *l) {
    if (!l) return;
    for (size_t i = 0; i < l->n_block; i++) l->dev->ops->free(l->dev, l->blocks[i]);
    mem_free(l->blocks);
    drop_cuts(l);
    mem_free(l->cuts);
    if (l->gguf) gguf_close(l->gguf);
    mem_free(l->a);
    mem_free(l->b);
    mem_free(l->pairs);
    mem_free(l);
}

bool lora_find(const struct lora *l, const struct model *m, const struct weight *base,
               const struct weight **a, const struct weight **b, float *scale) {
    while (l->next && l->of != m) l = l->next;
    for (size_t i = 0; i < l->n_pair; i++) {
        if (l->pairs[i].base != base) continue;
        *a = &l->pairs[i].a;
        *b = &l->pairs[i].b;
        *scale = l->pairs[i].scale;
        return true;
    }
    return false;
}

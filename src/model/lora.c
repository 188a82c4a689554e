/* lora.c: adapters in GGUF form, bound to the base weights that they change. */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "model/forward_impl.h"
#include "model/lora_impl.h"

/* Finds the weight of a tensor name, if adapters may change it, and its layer. */
static const struct weight *find_base(const struct model *m, const char *name, int32_t *layer) {
    for (const struct tensor_row *const *table = m->hp.arch->tensors; *table; table++) {
        for (const struct tensor_row *row = *table; row->gguf; row++) {
            if (row->is_vector || row->where == AT_GLOBAL || row->where == AT_FFN_MOE ||
                row->where == AT_FFN_SHARED)
                continue;
            for (int32_t il = 0; il < arch_n_layer_all(&m->hp); il++) {
                char full[GGUF_MAX_NAME];
                if (!arch_has(&m->hp, (enum tensor_where)row->where, il)) continue;
                arch_tensor_name(row, il, full, sizeof full);
                if (strcmp(full, name) != 0) continue;
                *layer = il;
                return (const struct weight *)(const void *)((const char *)&m->weights.layer[il] +
                                                             row->slot);
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
    if (base == &l->attn.qkv) {
        out[0] = &l->attn.q, out[1] = &l->attn.k, out[2] = &l->attn.v;
        return 3;
    }
    if (base == &l->gdn.qkvz || base == &l->gdn.ba) return 0;
    out[0] = base;
    return 1;
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

static int bind_pair(struct lora *l, const struct model *m, const struct gguf_tensor *ta,
                     float alpha, struct err *e) {
    char name[GGUF_MAX_NAME + 8];
    size_t n = strlen(ta->name) - strlen(".lora_a");
    snprintf(name, sizeof name, "%.*s.lora_b", (int)n, ta->name);
    const struct gguf_tensor *tb = gguf_find_tensor(l->gguf, name);
    if (!tb)
        return err_set(e, CHIMERE_EFORMAT, "tensor %s: expected beside %s, got nothing", name,
                       ta->name);
    name[n] = 0;
    int32_t il = 0;
    const struct weight *base = find_base(m, name, &il), *part[3];
    int n_part = base && base->data ? parts_of(&m->weights.layer[il], base, part) : 0;
    if (!n_part)
        return err_set(e, CHIMERE_EMISMATCH,
                       "tensor %s: the model has no such matrix that adapters may change", name);
    if (ta->ne[0] != (uint64_t)tensor_n_in(base) || tb->ne[1] != (uint64_t)base->n_out ||
        ta->ne[1] != tb->ne[0] || ta->ne[1] < 1 || ta->ne[1] > LORA_MAX_RANK || ta->n_dims > 2 ||
        tb->n_dims > 2)
        return err_set(e, CHIMERE_EMISMATCH,
                       "tensor %s: expected [%lld, r] and [r, %lld] with r up to %d, got "
                       "[%llu, %llu] and [%llu, %llu]",
                       name, (long long)tensor_n_in(base), (long long)base->n_out, LORA_MAX_RANK,
                       (unsigned long long)ta->ne[0], (unsigned long long)ta->ne[1],
                       (unsigned long long)tb->ne[0], (unsigned long long)tb->ne[1]);
    if (ta->type > 1 && ta->type != 30)
        return err_set(e, CHIMERE_EUNSUPPORTED, "tensor %s: expected f32, f16 or bf16", ta->name);
    struct weight b = view(tb);
    for (int i = 0; i < n_part; i++) {
        b.n_out = n_part > 1 ? part[i]->n_out : b.n_out;
        b.mat_bytes = (size_t)b.n_out * b.row_bytes;
        l->pairs[l->n_pair++] = (struct lora_pair){part[i], view(ta), b, alpha / (float)ta->ne[1]};
        b.data = (const char *)b.data + b.mat_bytes;
    }
    return 0;
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
    return 0;
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
    size_t n = rc ? 0 : gguf_n_tensors(l->gguf);
    l->pairs = mem_alloc_array(n / 2 * 3 + 3, sizeof *l->pairs);
    if (!rc && !l->pairs) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (size_t i = 0; !rc && i < n; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(l->gguf, i);
        size_t len = strlen(t->name);
        if (len > 7 && strcmp(t->name + len - 7, ".lora_a") == 0) {
            if (l->n_pair > n / 2 * 3)
                rc = err_set(e, CHIMERE_EFORMAT, "more .lora_a than .lora_b tensors");
            else rc = bind_pair(l, m, t, (float)alpha, e);
        } else if (!(len > 7 && strcmp(t->name + len - 7, ".lora_b") == 0)) {
            rc = err_set(e, CHIMERE_EFORMAT,
                         "tensor %s: expected a name ending in .lora_a or .lora_b", t->name);
        }
    }
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

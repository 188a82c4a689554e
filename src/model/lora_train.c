/* lora_train.c: adapters that change while the model runs: A is fixed, B is trained. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "model/forward_impl.h"
#include "model/lora_impl.h"

/* Whether w is a matrix whose results are added to the residual stream. */
static bool is_target(const struct layer_weights *l, const struct weight *w) {
    return w->data && w->n_mat == 1 &&
           (w == &l->attn.out || w == &l->gdn.out || w == &l->ssm.out || w == &l->ffn.down);
}

/* Calls f for every target in the order of the family's table and of layers. */
typedef void target_fn(void *ud, const char *name, const struct weight *w);
static void each_target(const struct model *m, target_fn *f, void *ud) {
    for (const struct tensor_row *const *table = m->hp.arch->tensors; *table; table++)
        for (const struct tensor_row *row = *table; row->gguf; row++)
            for (int32_t il = 0; il < m->hp.n_layer; il++) {
                if (row->is_vector || row->where == AT_GLOBAL ||
                    !arch_has(&m->hp, (enum tensor_where)row->where, il))
                    continue;
                const struct layer_weights *l = &m->weights.layer[il];
                const struct weight *w =
                    (const struct weight *)(const void *)((const char *)l + row->slot);
                char name[GGUF_MAX_NAME];
                arch_tensor_name(row, il, name, sizeof name);
                if (is_target(l, w)) f(ud, name, w);
            }
}

struct sizes {
    size_t n_pair, n_in, n_out;
};
static void measure(void *ud, const char *name, const struct weight *w) {
    struct sizes *s = ud;
    (void)name;
    s->n_pair++;
    s->n_in += (size_t)tensor_n_in(w);
    s->n_out += (size_t)w->n_out;
}

static struct weight floats(float *data, int64_t n_in, int64_t n_out) {
    return (struct weight){.data = data,
                           .type = 0,
                           .n_in = n_in,
                           .n_out = n_out,
                           .n_mat = 1,
                           .row_bytes = (size_t)n_in * sizeof(float),
                           .mat_bytes = (size_t)(n_in * n_out) * sizeof(float)};
}

struct binding {
    struct lora *l;
    float *a, *b;
};
static void bind(void *ud, const char *name, const struct weight *w) {
    struct binding *x = ud;
    struct lora *l = x->l;
    (void)name;
    l->pairs[l->n_pair++] = (struct lora_pair){.base = w,
                                               .a = floats(x->a, tensor_n_in(w), l->rank),
                                               .b = floats(x->b, l->rank, w->n_out),
                                               .scale = 1};
    x->a += tensor_n_in(w) * l->rank;
    x->b += w->n_out * l->rank;
}

static void draw_a(struct lora *l, uint64_t seed) {
    struct rng r;
    rng_seed(&r, seed);
    for (size_t i = 0; i < l->n_pair; i++) {
        struct weight *w = &l->pairs[i].a;
        float *to = (float *)(uintptr_t)w->data, bound = sqrtf(3.0f / (float)w->n_in);
        for (int64_t k = 0; k < w->n_in * w->n_out; k++)
            to[k] = bound * (float)(2 * rng_uniform(&r) - 1);
    }
}

/* Allocates values and pairs; A is that of `from`, or its own. */
static int make(struct lora **out, struct model *m, int32_t rank, const struct lora *from,
                struct err *e) {
    *out = NULL;
    struct sizes s = {0};
    each_target(m, measure, &s);
    if (!s.n_pair)
        return err_set(e, CHIMERE_EUNSUPPORTED,
                       "%s: expected a matrix that adapters may change, found none", m->name);
    struct lora *l = mem_zalloc(sizeof *l);
    if (!l) return err_set(e, CHIMERE_ENOMEM, "out of memory for an adapter");
    l->m = m;
    l->rank = rank;
    l->n_b = s.n_out * (size_t)rank;
    l->pairs = mem_alloc_array(s.n_pair, sizeof *l->pairs);
    l->b = mem_alloc_array(l->n_b, sizeof *l->b);
    if (!from) l->a = mem_alloc_array(s.n_in * (size_t)rank, sizeof *l->a);
    if (!l->pairs || !l->b || (!from && !l->a)) {
        lora_close(l);
        return err_set(e, CHIMERE_ENOMEM, "out of memory for an adapter");
    }
    float *a = l->a ? l->a : from->a;
    struct binding x = {.l = l, .a = a, .b = l->b};
    l->a_of = a;
    each_target(m, bind, &x);
    *out = l;
    return 0;
}

int lora_new(struct lora **out, struct model *m, int32_t rank, uint64_t seed, struct err *e) {
    *out = NULL;
    if (rank < 1 || rank > LORA_MAX_RANK)
        return err_set(e, CHIMERE_EINVAL, "rank: expected 1 to %d, got %d", LORA_MAX_RANK, rank);
    struct lora *l;
    int rc = make(&l, m, rank, NULL, e);
    if (rc) return rc;
    draw_a(l, seed);
    rc = lora_to_device(l, m->dev, e);
    if (rc) lora_close(l);
    else *out = l;
    return rc;
}

int lora_twin(struct lora **out, const struct lora *l, struct err *e) {
    struct lora *x;
    int rc = make(&x, l->m, l->rank, l, e);
    if (rc) return rc;
    memcpy(x->b, l->b, l->n_b * sizeof *l->b);
    rc = lora_to_device(x, l->m->dev, e);
    if (rc) lora_close(x);
    else *out = x;
    return rc;
}

float *lora_b(struct lora *l, size_t *n) {
    *n = l->n_b;
    return l->b;
}

int lora_commit(struct lora *l, struct err *e) {
    struct dev *d = l->dev;
    const float *b = l->b;
    for (size_t i = 0; d && i < l->n_pair; i++) {
        struct weight *w = &l->pairs[i].b, ready;
        struct weight file = floats((float *)(uintptr_t)b, w->n_in, w->n_out);
        int rc = d->ops->prepare(d, &file, (void *)(uintptr_t)w->data, &ready);
        if (rc) return err_set(e, rc, "the adapter could not be copied to the device");
        *w = ready;
        b += w->n_in * w->n_out;
    }
    return 0;
}

/* ---- writing ---- */

struct writing {
    struct gguf_writer *w;
    const struct lora *l;
    const float *a, *b;
    bool values; /* second walk */
    int rc;
    struct err *e;
};
static void write_pair(void *ud, const char *name, const struct weight *w) {
    struct writing *x = ud;
    uint64_t r = (uint64_t)x->l->rank, n_in = (uint64_t)tensor_n_in(w), n_out = (uint64_t)w->n_out;
    if (!x->values) {
        char part[GGUF_MAX_NAME + 8];
        const uint64_t ne_a[] = {n_in, r}, ne_b[] = {r, n_out};
        snprintf(part, sizeof part, "%s.lora_a", name);
        gguf_add_tensor(x->w, part, 0, 2, ne_a);
        snprintf(part, sizeof part, "%s.lora_b", name);
        gguf_add_tensor(x->w, part, 0, 2, ne_b);
        return;
    }
    if (!x->rc) x->rc = gguf_write_data(x->w, x->a, n_in * r * sizeof(float), x->e);
    if (!x->rc) x->rc = gguf_write_data(x->w, x->b, n_out * r * sizeof(float), x->e);
    x->a += n_in * r;
    x->b += n_out * r;
}

int lora_save(const struct lora *l, const char *path, struct err *e) {
    struct writing x = {.l = l, .a = l->a_of, .b = l->b, .e = e};
    int rc = gguf_writer_new(&x.w, path, 0, 0, e);
    if (rc) return rc;
    const char *arch = l->m->hp.arch->name;
    gguf_put_str(x.w, "general.type", "adapter", 7);
    gguf_put_str(x.w, "general.architecture", arch, strlen(arch));
    gguf_put_str(x.w, "adapter.type", "lora", 4);
    gguf_put_f32(x.w, "adapter.lora.alpha", (float)l->rank);
    each_target(l->m, write_pair, &x);
    x.values = true;
    each_target(l->m, write_pair, &x);
    if (x.rc) {
        gguf_writer_abort(x.w);
        return x.rc;
    }
    return gguf_writer_close(x.w, e);
}

/* expert_slots.c: the memory of experts in slots: pinned records, slots, the shared stage, directories. */
#include "model/experts/expert_slots.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"
#include "format/quant.h"
#include "model/experts/experts_share.h"

enum { ALIGN = 256, LEAST_SPARE = 4 /* records of a layer in idle pages */ };

struct slot_layer {
    struct moe_pool pool;
    struct weight *part[3]; /* views: gate, up, down of the model */
    char *host;             /* owned by the device: all experts, its pinned memory */
    size_t host_at[3];
    void *memory; /* owned by the device: slots, directory and the table of spare records */
    struct moe_spare *spare; /* view of memory, [n_expert] */
    size_t record;           /* bytes of one expert */
    int32_t n_spare; /* pool.n_spare is 0 while nothing is lent: steps then need not look there */
};

struct expert_slots {
    struct dev *d; /* borrowed */
    int32_t n_layer, n_expert, n_used;
    struct slot_layer *layers; /* owned [n_layer] */
    struct moe_counts *counts; /* owned by d, pinned [n_layer] */
    uint32_t *uses;            /* owned by d, pinned [n_layer, n_expert] */
    void *stage;               /* owned by d */
    uint64_t n_slot, n_all;    /* of all layers */
    uint64_t bytes;            /* of the slots */
    const void *owner;         /* of the pages that hold records; NULL: none do */
};

static size_t aligned(size_t n) { return (n + ALIGN - 1) / ALIGN * ALIGN; }

bool expert_slots_are_possible(const struct dev *d, const struct hparams *hp) {
    return d->ops->pack && hp->moe.n_expert > 0;
}

static int32_t slots_of(const struct hparams *hp, double share) {
    int32_t n = (int32_t)(share * hp->moe.n_expert);
    return n > hp->moe.n_used ? n : hp->moe.n_used;
}

/* Bytes of a slot, of a layer whose experts take in_form bytes. */
static uint64_t slot_bytes(uint64_t in_form, int32_t n_expert) {
    uint64_t n = (uint64_t)n_expert;
    return (in_form + n - 1) / n;
}

/* Each part of a layer's slots is aligned, and so is its directory; hence a bound on the bytes per layer. */
static uint64_t layer_bytes(const struct hparams *hp, uint64_t in_form, int32_t n_slot) {
    return slot_bytes(in_form, hp->moe.n_expert) * (uint64_t)n_slot +
           64 * (uint64_t)hp->moe.n_expert + 16 * (uint64_t)ALIGN;
}

uint64_t expert_slots_bytes(const struct hparams *hp, const uint64_t *in_form, int32_t n_layer,
                            double share) {
    uint64_t n = 0, most = 0;
    for (int32_t i = 0; i < n_layer; i++) {
        if (in_form[i]) n += layer_bytes(hp, in_form[i], slots_of(hp, share));
        most = in_form[i] > most ? in_form[i] : most;
    }
    return n + most; /* with the stage */
}

static struct weight stack_of(const struct weight *w, int32_t n) {
    struct weight s = *w;
    s.n_mat = n;
    return s;
}

/* The bytes of n_mat matrices of each part, in the device's form; at[i]: offset of part i. */
static size_t place(struct dev *d, struct weight *const part[3], int32_t n_mat, size_t at[3]) {
    size_t n = 0;
    for (int i = 0; i < 3; i++) {
        at[i] = n;
        if (!part[i] || !part[i]->data) continue;
        struct weight w = stack_of(part[i], n_mat);
        n += aligned(d->ops->prepared_bytes(d, &w));
    }
    return n;
}

static int add_slots(struct expert_slots *s, struct slot_layer *l, int32_t n_slot, struct err *e) {
    const struct ops *ops = s->d->ops;
    size_t at[3], bytes = place(s->d, l->part, n_slot, at);
    size_t directory = ops->pool_bytes(s->n_expert, n_slot);
    size_t spare = (size_t)s->n_expert * sizeof *l->spare;
    l->memory = ops->alloc(s->d, bytes + directory + spare);
    if (!l->memory) return err_set(e, CHIMERE_ENOMEM, "experts: no memory for their slots");
    l->pool.n_slot = n_slot;
    l->pool.directory = (char *)l->memory + bytes;
    l->spare = (struct moe_spare *)((char *)l->pool.directory + directory);
    for (int i = 0; i < 3; i++)
        if (l->part[i] && l->part[i]->data) {
            l->pool.slot[i] = stack_of(l->part[i], n_slot);
            l->pool.slot[i].data = (char *)l->memory + at[i];
        }
    s->n_slot += (uint64_t)n_slot;
    s->bytes += bytes;
    return 0;
}

static int add_layer(struct expert_slots *s, struct slot_layer *l, int32_t n_slot, struct err *e) {
    l->host = s->d->ops->host_alloc(s->d, place(s->d, l->part, s->n_expert, l->host_at));
    if (!l->host)
        return err_set(e, CHIMERE_ENOMEM, "experts: the machine refused pinned memory for them");
    l->record = place(s->d, l->part, 1, (size_t[3]){0});
    s->n_all += (uint64_t)s->n_expert;
    return add_slots(s, l, n_slot, e);
}

/* The stage has room for the largest layer; a layer places its parts there as in host memory. */
static int add_stage(struct expert_slots *s, struct err *e) {
    size_t most = 0, at[3];
    for (int32_t il = 0; il < s->n_layer; il++) {
        size_t n = place(s->d, s->layers[il].part, s->n_expert, at);
        most = n > most ? n : most;
    }
    s->stage = s->d->ops->alloc(s->d, most);
    if (!s->stage) return err_set(e, CHIMERE_ENOMEM, "experts: no memory for their stage");
    for (int32_t il = 0; il < s->n_layer; il++) {
        struct slot_layer *l = &s->layers[il];
        for (int i = 0; i < 3; i++)
            if (l->part[i] && l->part[i]->data) {
                l->pool.stage[i] = stack_of(l->part[i], s->n_expert);
                l->pool.stage[i].data = (char *)s->stage + l->host_at[i];
            }
    }
    return 0;
}

/* The largest share of the experts whose slots take at most device_bytes; below 0: none. */
static double largest_share(const struct expert_slots *s, const struct hparams *hp,
                            const uint64_t *form, uint64_t device_bytes) {
    if (expert_slots_bytes(hp, form, s->n_layer, 0) > device_bytes) return -1;
    for (int32_t n = hp->moe.n_expert; n > 0; n--) {
        double share = (n + 0.5) / hp->moe.n_expert;
        if (expert_slots_bytes(hp, form, s->n_layer, share) <= device_bytes) return share;
    }
    return 0;
}

static int fill(struct expert_slots *s, const struct hparams *hp,
                const struct tier_layer_weights *layer, uint64_t device_bytes, struct err *e) {
    uint64_t *form = mem_alloc_array((size_t)s->n_layer, sizeof *form);
    s->layers = mem_alloc_array((size_t)s->n_layer, sizeof *s->layers);
    size_t n_use = (size_t)s->n_layer * (size_t)s->n_expert;
    s->counts = s->d->ops->host_alloc(s->d, (size_t)s->n_layer * sizeof *s->counts);
    s->uses = s->d->ops->host_alloc(s->d, n_use * sizeof *s->uses);
    int rc =
        form && s->layers && s->counts && s->uses ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (int32_t il = 0; !rc && il < s->n_layer; il++) {
        size_t at[3];
        for (int i = 0; i < 3; i++) s->layers[il].part[i] = layer[il].part[i];
        form[il] = place(s->d, s->layers[il].part, s->n_expert, at);
    }
    double share = rc ? 0 : largest_share(s, hp, form, device_bytes);
    if (share < 0)
        rc = err_set(e, CHIMERE_ELIMIT,
                     "experts: expected device memory of at least %llu bytes for them, got %llu",
                     (unsigned long long)expert_slots_bytes(hp, form, s->n_layer, 0),
                     (unsigned long long)device_bytes);
    for (int32_t il = 0; !rc && il < s->n_layer; il++) {
        s->layers[il].pool.counts = &s->counts[il];
        s->layers[il].pool.uses = s->uses + (size_t)il * (size_t)s->n_expert;
        if (form[il]) rc = add_layer(s, &s->layers[il], slots_of(hp, share), e);
    }
    mem_free(form);
    return rc ? rc : add_stage(s, e);
}

int expert_slots_new(struct expert_slots **out, const struct hparams *hp, struct dev *d,
                     const struct tier_layer_weights *layer, int32_t n_layer, uint64_t device_bytes,
                     struct err *e) {
    struct expert_slots *s = *out = mem_zalloc(sizeof *s);
    if (!s) return err_set(e, CHIMERE_ENOMEM, "out of memory for experts");
    *s = (struct expert_slots){
        .d = d, .n_layer = n_layer, .n_expert = hp->moe.n_expert, .n_used = hp->moe.n_used};
    int rc = fill(s, hp, layer, device_bytes, e);
    if (rc) {
        expert_slots_free(s);
        *out = NULL;
    }
    return rc;
}

void expert_slots_free(struct expert_slots *s) {
    if (!s) return;
    const struct ops *ops = s->d->ops;
    if (s->stage) ops->free(s->d, s->stage);
    for (int32_t il = 0; s->layers && il < s->n_layer; il++) {
        if (s->layers[il].memory) ops->free(s->d, s->layers[il].memory);
        if (s->layers[il].host) ops->host_free(s->d, s->layers[il].host);
    }
    if (s->counts) ops->host_free(s->d, s->counts);
    if (s->uses) ops->host_free(s->d, s->uses);
    mem_free(s->layers);
    mem_free(s);
}

int expert_slots_pack(struct expert_slots *s, int32_t il, struct weight *m) {
    struct slot_layer *l = &s->layers[il];
    for (int i = 0; i < 3; i++) {
        if (l->part[i] != m) continue;
        struct weight ready;
        int rc = s->d->ops->pack(s->d, m, l->host + l->host_at[i], &ready);
        if (rc) return rc;
        *m = ready;
        l->pool.slot[i].layout = l->pool.stage[i].layout = ready.layout;
        return 0;
    }
    return CHIMERE_EINTERNAL;
}

const struct moe_pool *expert_slots_pool(const struct expert_slots *s, int32_t il) {
    return il < s->n_layer && s->layers[il].memory ? &s->layers[il].pool : NULL;
}

void expert_slots_stats(const struct expert_slots *s, struct tier_stats *out) {
    *out = (struct tier_stats){
        .n_slot = s->n_slot, .n_expert = s->n_all, .pool_bytes = s->bytes, .is_device = true};
    for (int32_t il = 0; il < s->n_layer; il++) {
        const struct moe_counts *n = &s->counts[il];
        out->n_hit += __atomic_load_n(&n->n_hit, __ATOMIC_RELAXED);
        out->n_miss += __atomic_load_n(&n->n_miss, __ATOMIC_RELAXED);
        out->n_pass += __atomic_load_n(&n->n_pass, __ATOMIC_RELAXED);
        out->n_bytes += __atomic_load_n(&n->n_bytes, __ATOMIC_RELAXED);
        out->busy_ns += (int64_t)__atomic_load_n(&n->copy_ns, __ATOMIC_RELAXED);
    }
    out->wait_ns = out->busy_ns;
}

/* ---- idle pages ---- */

bool expert_slots_borrow(struct expert_slots *s, const void *owner, const struct page_array *a,
                         int32_t n) {
    size_t n_expert = (size_t)s->n_expert;
    struct moe_spare *table = mem_alloc_array((size_t)s->n_layer * n_expert, sizeof *table);
    struct lend_layer *l = mem_alloc_array((size_t)s->n_layer, sizeof *l);
    bool ok = !s->owner && table && l;
    for (int32_t il = 0; ok && il < s->n_layer; il++)
        l[il] = (struct lend_layer){.record = s->layers[il].record,
                                    .most = s->n_expert - s->layers[il].pool.n_slot,
                                    .to = table + (size_t)il * n_expert};
    if (ok) experts_lend_divide(l, s->n_layer, a, n);
    for (int32_t il = 0; ok && il < s->n_layer; il++) /* fewer cost more than they save */
        ok = !l[il].record || l[il].n >= LEAST_SPARE || l[il].n == l[il].most;
    for (int32_t il = 0; ok && il < s->n_layer; il++) {
        struct slot_layer *to = &s->layers[il];
        s->d->ops->upload(s->d, to->spare, l[il].to, (size_t)l[il].n * sizeof *table);
        to->pool.spare = to->spare;
        to->n_spare = l[il].n;
    }
    mem_free(l);
    mem_free(table);
    if (!ok) return false;
    s->owner = owner;
    expert_slots_lend(s, 0);
    return true;
}

void expert_slots_lend(struct expert_slots *s, uint32_t parts) {
    const struct weight router = {.n_out = s->n_expert};
    for (int32_t il = 0; il < s->n_layer; il++) {
        struct slot_layer *l = &s->layers[il];
        if (!l->n_spare) continue;
        l->pool.n_spare = l->n_spare;
        const struct moe_args a = {.router = &router,
                                   .gate = l->part[0]->data ? l->part[0] : NULL,
                                   .up = l->part[1],
                                   .down = l->part[2],
                                   .pool = &l->pool};
        s->d->ops->pool_lend(s->d, &a, parts);
        if (!parts) l->pool.n_spare = 0;
    }
}

void expert_slots_return(struct expert_slots *s, const void *owner) {
    if (s->owner != owner) return;
    expert_slots_lend(s, 0);
    for (int32_t il = 0; il < s->n_layer; il++) s->layers[il].n_spare = 0;
    s->owner = NULL;
}

/* ---- filling the slots at the start ---- */

const uint32_t *expert_slots_uses(const struct expert_slots *s) { return s->uses; }

static int by_use(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Writes the most used experts of a layer to ids [STEP_MAX_TOK, each] in ascending order of use; at the start of ids,
 * -1 for those that are missing. order: room for n_expert. */
static void most_used(const uint32_t *uses, int32_t n_expert, int32_t n_slot, int32_t each,
                      uint64_t *order, int32_t *ids) {
    int32_t n = STEP_MAX_TOK * each, first = n - n_slot;
    for (int32_t x = 0; x < n_expert; x++) order[x] = (uint64_t)uses[x] << 32 | (uint32_t)x;
    qsort(order, (size_t)n_expert, sizeof *order, by_use);
    for (int32_t i = 0; i < n; i++) {
        uint64_t one = i < first ? 0 : order[n_expert - n + i];
        ids[i] = one >> 32 ? (int32_t)(one & UINT32_MAX) : -1;
    }
}

/* Divides the memory of the slots anew, as earlier uses suggest. */
static int share_again(struct expert_slots *s, const uint32_t *uses, struct err *e) {
    struct share_layer *share = mem_alloc_array((size_t)s->n_layer, sizeof *share);
    uint64_t bytes = 0;
    int rc = share ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory for experts");
    for (int32_t il = 0; !rc && il < s->n_layer; il++) {
        struct slot_layer *l = &s->layers[il];
        size_t at[3];
        share[il] = (struct share_layer){.uses = uses + (size_t)il * (size_t)s->n_expert};
        if (!l->memory) continue;
        share[il].record = slot_bytes(place(s->d, l->part, s->n_expert, at), s->n_expert);
        bytes += share[il].record * (uint64_t)l->pool.n_slot;
        s->d->ops->free(s->d, l->memory);
        l->memory = NULL;
    }
    if (!rc) experts_share(share, s->n_layer, s->n_expert, s->n_used, s->n_used, bytes);
    s->n_slot = s->bytes = 0;
    for (int32_t il = 0; !rc && il < s->n_layer; il++)
        if (share[il].record) rc = add_slots(s, &s->layers[il], share[il].n, e);
    mem_free(share);
    return rc;
}

int expert_slots_fill(struct expert_slots *s, const uint32_t *uses, struct err *e) {
    const struct ops *ops = s->d->ops;
    int rc = share_again(s, uses, e);
    if (rc) return rc;
    size_t n_expert = (size_t)s->n_expert, row = n_expert + STEP_MAX_TOK;
    size_t bytes = (size_t)s->n_layer * row * sizeof(int32_t);
    int32_t *ids = mem_alloc(bytes), *ids_dev = ids ? ops->alloc(s->d, bytes) : NULL;
    uint64_t *order = mem_alloc_array(n_expert, sizeof *order);
    rc = ids_dev && order ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory for experts");
    const struct weight router = {.n_out = s->n_expert};
    for (int pass = 0; !rc && pass < 2; pass++) { /* lists all experts, then copies them */
        if (pass) ops->upload(s->d, ids_dev, ids, bytes);
        for (int32_t il = 0; il < s->n_layer; il++) {
            struct slot_layer *l = &s->layers[il];
            if (!l->memory) continue;
            int32_t n_slot = l->pool.n_slot, each = (n_slot + STEP_MAX_TOK - 1) / STEP_MAX_TOK;
            const struct moe_args a = {.n_tok = STEP_MAX_TOK,
                                       .n_used = each,
                                       .router = &router,
                                       .gate = l->part[0]->data ? l->part[0] : NULL,
                                       .up = l->part[1],
                                       .down = l->part[2],
                                       .chosen = ids_dev + (size_t)il * row,
                                       .pool = &l->pool};
            if (pass) ops->pool_fill(s->d, &a);
            else
                most_used(uses + (size_t)il * n_expert, s->n_expert, n_slot, each, order,
                          ids + (size_t)il * row);
        }
    }
    if (!rc) rc = ops->status(s->d, e);
    if (ids_dev) ops->free(s->d, ids_dev);
    mem_free(ids);
    mem_free(order);
    return rc;
}

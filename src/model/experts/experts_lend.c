/* experts_lend.c: see experts_lend.h. */
#include "model/experts/experts_lend.h"

#include "model/experts/expert_slots.h"
#include "model/experts/experts.h"
#include "model/experts/tier.h"

/* Beside a device, its pages cannot hold the host's experts. */
static struct tier *tier_of(const struct expert_store *s) { return s->host ? NULL : s->tier; }

void *experts_lend_room(const struct expert_store *s, const void *owner, size_t n) {
    return tier_of(s) ? tier_lend_room(s->tier, owner, n) : NULL;
}

bool experts_lend_begin(const struct expert_store *s, const void *owner, const struct page_array *a,
                        int32_t n) {
    if (tier_of(s)) return tier_lend_begin(s->tier, owner, a, n);
    return s->slots && expert_slots_borrow(s->slots, owner, a, n);
}

void experts_lend_parts(const struct expert_store *s, uint32_t parts) {
    if (tier_of(s)) tier_lend_parts(s->tier, parts);
    else expert_slots_lend(s->slots, parts);
}

void experts_lend_end(const struct expert_store *s, const void *owner) {
    if (tier_of(s)) tier_lend_end(s->tier, owner);
    else if (s->slots) expert_slots_return(s->slots, owner);
}

/* Places records of the layers il = first, first + step, ..., from the end of the array down: sequences take pages from
 * its start. */
static void divide(struct lend_layer *l, int32_t n_layer, const struct page_array *a, int32_t first,
                   int32_t step) {
    size_t end = a->bytes;
    for (bool placed = true; placed;) {
        placed = false;
        for (int32_t il = first; il < n_layer; il += step) {
            if (!l[il].record || l[il].n == l[il].most || end < l[il].record) continue;
            size_t at = (end - l[il].record) / 64 * 64;
            struct moe_spare *one = &l[il].to[l[il].n++];
            *one = (struct moe_spare){.at = a->at + at};
            for (size_t p = at / a->part_bytes; p * a->part_bytes < at + l[il].record; p++)
                one->parts |= UINT32_C(1) << p;
            end = at;
            placed = true;
        }
    }
}

void experts_lend_divide(struct lend_layer *l, int32_t n_layer, const struct page_array *a,
                         int32_t n) {
    int32_t step = n < n_layer ? n : n_layer;
    for (int32_t i = 0; i < n; i++) divide(l, n_layer, &a[i], i % step, step);
}

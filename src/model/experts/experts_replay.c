/* experts_replay.c: a recorded or generated routing that replaces the routers' choice, and the observer of choices. */
#include "base/err.h"
#include "base/mem.h"
#include "model/experts/experts_impl.h"

enum { SLOT_DISTANCE = 997 }; /* distance in the stream between concurrent sequences, in tokens */

int experts_replay(struct experts *x, const struct routing *r, int32_t n_slot, struct err *e) {
    size_t n = (size_t)x->shape.n_mixture * (size_t)x->n_tok_max * (size_t)x->shape.n_used;
    x->chosen = mem_alloc_array(n, sizeof *x->chosen);
    x->at = mem_alloc_array((size_t)n_slot, sizeof *x->at);
    if (!x->d->ops->is_host) x->chosen_dev = x->d->ops->alloc(x->d, n * sizeof *x->chosen);
    if (!x->chosen || !x->at || (!x->d->ops->is_host && !x->chosen_dev))
        return err_set(e, CHIMERE_ENOMEM, "routing: out of memory");
    for (int32_t i = 0; i < n_slot; i++) x->at[i] = (int64_t)i * SLOT_DISTANCE;
    x->n_slot = n_slot;
    x->replay = r;
    return 0;
}

int experts_alloc_ids(struct experts *x) {
    size_t n = (size_t)x->n_tok_max * (size_t)x->shape.n_used;
    if (!x->ids) x->ids = mem_alloc_array(n, sizeof *x->ids);
    return x->ids ? 0 : CHIMERE_ENOMEM;
}

int experts_observe(struct experts *x,
                    void (*fn)(void *ud, int32_t mixture, const int32_t *ids, int32_t n_tok),
                    void *ud, struct err *e) {
    if (!x->d->ops->is_host || x->m->weights.experts.host)
        return err_set(e, CHIMERE_EUNSUPPORTED, "trace: expected --device cpu");
    if (experts_alloc_ids(x)) return err_set(e, CHIMERE_ENOMEM, "trace: out of memory");
    x->observe = fn;
    x->observe_ud = ud;
    return 0;
}

const int32_t *experts_chosen(const struct experts *x, int32_t il, bool on_host) {
    const int32_t *from = on_host || !x->chosen_dev ? x->chosen : x->chosen_dev;
    return from + (int64_t)x->mixture[il] * x->n_tok * x->shape.n_used;
}

/* Prepares all layers of a batch at once, so that a device receives them in one copy. */
void experts_replay_begin(struct experts *x, const struct span *spans, int32_t n_span,
                          int32_t n_tok) {
    x->n_tok = n_tok;
    if (!x->replay) return;
    int32_t *to = x->chosen, n_used = x->shape.n_used;
    for (int32_t m = 0; m < x->shape.n_mixture; m++)
        for (int32_t i = 0; i < n_span; i++) {
            int64_t at = x->at[spans[i].slot % x->n_slot];
            for (int32_t t = 0; t < spans[i].n_tok; t++) {
                const uint16_t *ids = routing_at(x->replay, m, at + t);
                for (int32_t k = 0; k < n_used; k++) *to++ = ids[k];
            }
        }
    for (int32_t i = 0; i < n_span; i++) x->at[spans[i].slot % x->n_slot] += spans[i].n_tok;
    if (x->chosen_dev)
        x->d->ops->upload(x->d, x->chosen_dev, x->chosen, (size_t)(to - x->chosen) * sizeof *to);
}

void experts_replay_free(struct experts *x) {
    if (x->chosen_dev) x->d->ops->free(x->d, x->chosen_dev);
    mem_free(x->chosen);
    mem_free(x->at);
    mem_free(x->ids);
}

/* bench_card.c: see bench_card.h. */
#include "cli/cmd/bench_card.h"

#include <stdio.h>

#include "base/mem.h"

int bench_card_add(struct bench_card_runs *r, const struct card_run *run, struct err *e) {
    if (r->n_run == r->cap) {
        int32_t cap = r->cap ? 2 * r->cap : 8;
        struct card_run *grown = mem_realloc(r->runs, (size_t)cap * sizeof *grown);
        if (!grown) return err_set(e, CHIMERE_ENOMEM, "out of memory");
        r->runs = grown;
        r->cap = cap;
    }
    r->runs[r->n_run++] = *run;
    return 0;
}

void bench_card_free(struct bench_card_runs *r) {
    mem_free(r->runs);
    r->runs = NULL;
    r->n_run = r->cap = 0;
}

int32_t bench_card_sms(const struct bench_card_runs *r) {
    int32_t n = 0;
    for (int32_t i = 0; i < r->n_run; i++) n = r->runs[i].n_sm > n ? r->runs[i].n_sm : n;
    return n;
}

/* The run of n_seq sequences on the most or the fewest multiprocessors. */
static const struct card_run *outermost(const struct bench_card_runs *r, int32_t n_seq, bool most) {
    const struct card_run *best = NULL;
    for (int32_t i = 0; i < r->n_run; i++) {
        const struct card_run *x = &r->runs[i];
        if (x->n_seq == n_seq && (!best || (most ? x->n_sm > best->n_sm : x->n_sm < best->n_sm)))
            best = x;
    }
    return best;
}

static void put(json_t *array, const struct ramp_card *card, const char *name, int32_t n_seq,
                double us, double measured) {
    double rate = 1e6 * n_seq / us;
    if (array) {
        json_t *o =
            json_pack("{s:s, s:s, s:i, s:i, s:f}", "test", "card", "card", name, "multiprocessors",
                      (int)card->n_sm, "n_seq", (int)n_seq, "predicted_tok_s", rate);
        if (measured > 0) json_object_set_new(o, "tok_s", json_real(1e6 * n_seq / measured));
        json_array_append_new(array, o);
        return;
    }
    printf("%-20s %4d multiprocessors, %3d sequences: predicted %9.1f tok/s", name, card->n_sm,
           n_seq, rate);
    if (measured > 0)
        printf(", measured %9.1f, %+.1f %%", 1e6 * n_seq / measured, 100 * (measured / us - 1));
    putchar('\n');
}

void bench_card_print(const struct bench_card_runs *r, const struct ramp_card *here,
                      const struct ramp_card *card, json_t *array) {
    for (int32_t i = 0; i < r->n_run; i++) {
        const struct card_run *x = &r->runs[i];
        const struct card_run *a = outermost(r, x->n_seq, true), *b = outermost(r, x->n_seq, false);
        if (a->n_sm == b->n_sm) continue;
        if (x == a) put(array, card, card->name, x->n_seq, card_time(a, b, here, card), 0);
        struct ramp_card part = *here;
        part.n_sm = x->n_sm;
        put(array, &part, "this card", x->n_seq, card_time(a, b, here, &part), x->us);
    }
}

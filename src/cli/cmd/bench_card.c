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

static bool is_same_test(const struct card_run *a, const struct card_run *b) {
    return a->n_seq == b->n_seq && a->n_prompt == b->n_prompt;
}

/* The run of x's test on the most or the fewest multiprocessors. */
static const struct card_run *outermost(const struct bench_card_runs *r, const struct card_run *x,
                                        bool most) {
    const struct card_run *best = x;
    for (int32_t i = 0; i < r->n_run; i++) {
        const struct card_run *y = &r->runs[i];
        if (is_same_test(x, y) && (most ? y->n_sm > best->n_sm : y->n_sm < best->n_sm)) best = y;
    }
    return best;
}

/* least: with all work on tensor cores; 0 for steps. measured: 0 if the card is another one. All in tokens per second. */
struct guess {
    double least, rate, measured;
};

static void put(json_t *array, const struct ramp_card *card, const char *name,
                const struct card_run *x, const struct guess *g) {
    if (array) {
        json_t *o =
            json_pack("{s:s, s:s, s:i, s:i, s:f}", "test", "card", "card", name, "multiprocessors",
                      (int)card->n_sm, "n_seq", (int)x->n_seq, "predicted_tok_s", g->rate);
        if (x->n_prompt) json_object_set_new(o, "n_prompt", json_integer(x->n_prompt));
        if (g->least > 0) json_object_set_new(o, "predicted_least_tok_s", json_real(g->least));
        if (g->measured > 0) json_object_set_new(o, "tok_s", json_real(g->measured));
        json_array_append_new(array, o);
        return;
    }
    printf("%-20s %4d multiprocessors, ", name, card->n_sm);
    if (x->n_prompt) printf("prompt of %5d: predicted ", x->n_prompt);
    else printf("%3d sequences: predicted ", x->n_seq);
    if (g->least > 0) printf("%.1f to ", g->least);
    printf("%9.1f tok/s", g->rate);
    if (g->measured > 0)
        printf(", measured %9.1f, %+.1f %%", g->measured, 100 * (g->rate / g->measured - 1));
    putchar('\n');
}

void bench_card_print(const struct bench_card_runs *r, const struct ramp_card *here,
                      const struct ramp_card *card, json_t *array) {
    for (int32_t i = 0; i < r->n_run; i++) {
        const struct card_run *x = &r->runs[i];
        const struct card_run *a = outermost(r, x, true), *b = outermost(r, x, false);
        double tokens = 1e6 * (x->n_prompt ? x->n_prompt : x->n_seq);
        if (a->n_sm == b->n_sm) continue;
        if (x == a) {
            struct guess g = {.rate = tokens / card_time(a, b, here, card, false)};
            if (x->n_prompt && here->tensor != card->tensor)
                g.least = tokens / card_time(a, b, here, card, true);
            put(array, card, card->name, x, &g);
        }
        struct ramp_card part = *here;
        part.n_sm = x->n_sm;
        put(array, &part, "this card", x,
            &(struct guess){.rate = tokens / card_time(a, b, here, &part, false),
                            .measured = tokens / x->us});
    }
}

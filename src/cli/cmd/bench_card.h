/* bench_card.h: bench --card: the speed of another GPU (ramp/card_time.h), from runs on this one. */
#ifndef CHIMERE_CLI_BENCH_CARD_H
#define CHIMERE_CLI_BENCH_CARD_H

#include <jansson.h>

#include "base/err.h"
#include "ramp/card_time.h"

struct bench_card_runs {
    struct card_run *runs; /* owned */
    int32_t n_run, cap;
};

int bench_card_add(struct bench_card_runs *r, const struct card_run *run, struct err *e);
void bench_card_free(struct bench_card_runs *r);
/* The largest number of multiprocessors of a run. */
int32_t bench_card_sms(const struct bench_card_runs *r);

/* For each number of sequences and each prompt: the prediction for the card, and as a check what the model says of the
 * runs here. Prints, or appends objects to array if it is not NULL. */
void bench_card_print(const struct bench_card_runs *r, const struct ramp_card *here,
                      const struct ramp_card *card, json_t *array);

#endif

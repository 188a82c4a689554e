/* bench_speculate.h: measures the cost of verification, and the gain that speculation would have.
 *
 * The table: time of a step that verifies n tokens per sequence, relative to a step of one token. The simulation:
 * rounds in which drafts are accepted at given rates instead of by the model, so that a model with random weights
 * gives the speed that a trained one would reach. A round includes all the work of a real one: the model's own
 * drafter if it has one, verification, selection, and the replay of recurrent states. */
#ifndef CHIMERE_CLI_BENCH_SPECULATE_H
#define CHIMERE_CLI_BENCH_SPECULATE_H

#include <jansson.h>

#include "engine/plan.h"
#include "model/model.h"

enum { BENCH_MAX_RATES = STEP_MAX_TOK - 1, BENCH_MAX_VERIFY = 8, BENCH_MAX_BATCH = 8 };

struct bench_speculate {
    struct model *m; /* borrowed */
    uint32_t k_type, v_type;
    int32_t depth, n_gen, n_repeat, batch;
    int32_t n_head; /* rows of draft_head.h; 0: choose */
    double rates[BENCH_MAX_RATES];
    int32_t n_rate; /* 0: no simulation */
    bool has_table;
    const int32_t *parallel; /* [n_parallel] for the simulation; borrowed */
    int32_t n_parallel;
};

/* Parses a list such as "0.88,0.8"; each value is from 0 to 1. */
int bench_speculate_rates(struct bench_speculate *b, const char *list, struct err *e);
/* Returns how many positions each sequence needs; the next function returns how many sequences. */
int64_t bench_speculate_ctx(const struct bench_speculate *b);
int32_t bench_speculate_seqs(const struct bench_speculate *b);
/* Prints the results, or appends objects to array if it is not NULL. */
int bench_speculate_run(const struct bench_speculate *b, json_t *array, struct err *e);

#endif

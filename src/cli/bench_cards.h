/* bench_cards.h: a model in slices on several devices, for measurements: opened as serve opens it, run without its
 * engine. */
#ifndef CHIMERE_CLI_BENCH_CARDS_H
#define CHIMERE_CLI_BENCH_CARDS_H

#include <jansson.h>

#include "base/config.h"
#include "engine/load.h"
#include "engine/lm.h"
#include "kernels/link.h"

/* clang-format off */
#define CARDS_OPTIONS                                                                              \
    {"gpus", 0, CFG_STR, "LIST", NULL, 0, 0, NULL, "a slice of every layer on each of these GPUs, such as 0,1, instead of --device"}, \
    {"link", 0, CFG_ENUM, "HOW", "auto", 0, 0, LINK_CHOICES, "how they exchange results, as in serve"}
/* clang-format on */

struct bench_cards {
    struct loaded loaded; /* owned */
    struct lm *lm;        /* view */
};

/* What the first device has exchanged during a measurement. */
struct bench_link {
    bool is_peer;
    int32_t n_pass;
    double n_sum, n_bytes, us; /* per pass */
};

/* want: context and sequences. On failure nothing is open. */
int bench_cards_open(struct bench_cards *b, const struct cfg *c, const struct plan_params *want,
                     struct err *e);
void bench_cards_close(struct bench_cards *b); /* *b may be all zero */

void bench_cards_stats(const struct bench_cards *b, struct link_stats *out);
struct bench_link bench_cards_link(const struct link_stats *before, const struct link_stats *after,
                                   int32_t n_pass);
void bench_cards_print(const struct bench_link *x, double pass_us);
json_t *bench_cards_report(const struct bench_link *x);

#endif

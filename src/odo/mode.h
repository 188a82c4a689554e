/* mode.h: how much to think about one question: fast (not at all), quality, ultra.
 *
 * What a caller or pipeline does not settle is settled by two looks: how hard the text looks
 * (difficulty.h), and how sure the model is when it begins to answer without thinking: the mean entropy
 * of the first tokens of such an answer, in nats, asked with a deadline and a few tokens. A probe that fails
 * leaves the text's own mode. No state; any thread. */
#ifndef CHIMERE_ODO_MODE_H
#define CHIMERE_ODO_MODE_H

#include <stdatomic.h>

#include "backend/backend.h"
#include "odo/difficulty.h"

enum { MODE_PROBE_TOKENS = 8 };

struct mode_probe {
    double first, mean; /* entropy of the first token; mean of all that were looked at; nats */
    int32_t n_token;    /* 0: nothing is known */
    struct engine_stats stats;
};

/* Asks the request's messages without thinking. CHIMERE_E*: nothing is known. */
int mode_probe(struct backend *b, const struct request *a, _Atomic bool *cancelled,
               int64_t deadline_ns, struct mode_probe *out, struct err *e);
/* What a text's difficulty and a probe (NULL: none) ask for together. */
enum difficulty_mode mode_choose(const struct difficulty *d, const struct mode_probe *p);
/* Sets the request's thinking as the mode wants it. */
void mode_apply(enum difficulty_mode m, struct request *a);

#endif

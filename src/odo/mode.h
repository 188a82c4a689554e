/* mode.h: how much to think about one question: fast (not at all), quality, ultra.
 *
 * If neither the caller nor the pipeline sets the mode, two values decide: how difficult the text looks
 * (difficulty.h), and how sure the model is when it begins to answer without thinking. The second value is the
 * mean entropy, in nats, of the first few tokens of such an answer, generated with a deadline. If this probe
 * fails, the mode follows from the text alone. No state; any thread. */
#ifndef CHIMERE_ODO_MODE_H
#define CHIMERE_ODO_MODE_H

#include <stdatomic.h>

#include "backend/backend.h"
#include "odo/decide/difficulty.h"

enum { MODE_PROBE_TOKENS = 8 };

struct mode_probe {
    double first, mean; /* entropy of the first token, mean over all probed tokens; nats */
    int32_t n_token;    /* probed tokens; 0: the probe gave no result */
    struct engine_stats stats;
};

/* Sends the request's messages without thinking. CHIMERE_E*: no result. */
int mode_probe(struct backend *b, const struct request *a, _Atomic bool *cancelled,
               int64_t deadline_ns, struct mode_probe *out, struct err *e);
/* Combines the text's difficulty with a probe (NULL: no probe). limits NULL: the defaults. */
enum difficulty_mode mode_choose(const struct difficulty *d, const struct mode_probe *p,
                                 const struct limits *limits);
/* Sets the request's thinking options for the mode. */
void mode_apply(enum difficulty_mode m, struct request *a);

#endif

/* night.h: one night: read the day, propose, measure, promote or refuse, record.
 *
 * Steps are rows of a table (night_step.h). Each proposes an artefact and measures its own target on held-out
 * questions. Proposals that gain are tried together on the general suites against what serves now, paired; if
 * a skill falls, each is tried alone. What passes is promoted in one move (nights.h); what does not is recorded
 * with the reason. Blocking; one thread. */
#ifndef CHIMERE_LEARN_NIGHT_H
#define CHIMERE_LEARN_NIGHT_H

#include <jansson.h>

#include "engine/engine.h"
#include "learn/nights.h"
#include "model/model.h"
#include "text/tok/tok.h"

struct store;

/* The system that learns. All borrowed. */
struct night_host {
    struct model *model;
    struct engine *engine;
    bool is_shared; /* others submit to the engine meanwhile, and go first (engine/lease.h) */
    const struct tok *tok;
    int32_t n_seq; /* of the engine */
    /* Prompt ids of messages, by mem_free. */
    int (*encode)(void *ud, json_t *messages, json_t *tools, bool think, int32_t **ids, size_t *n,
                  struct err *e);
    void *ud;
    struct store *store;
};

struct night_params {
    const char *steps;   /* names, comma-separated; NULL: all */
    const json_t *items; /* of the general suites, as eval/harness.h reads them */
    double budget_s;     /* of all steps; 0: 1800 */
    double least_worth;  /* of answers that are learned; 0: 0.75 */
    bool dry_run;        /* nothing is promoted or recorded */
    uint64_t seed;
    int64_t now_s;             /* seconds since 1970; 0: the clock's */
    bool (*goes_on)(void *ud); /* polled at least every second or step; NULL: always */
    void (*say)(void *ud, const char *line); /* progress for people; NULL: none */
    void *ud;
};

/* *record, a new reference: what the night read, measured and did. CHIMERE_ECANCELLED leaves no trace. */
int night_run(json_t **record, struct nights *n, const struct night_host *h,
              const struct night_params *p, struct err *e);

#endif

/* night.h: runs one night: reads the day's answers, makes proposals, measures them, promotes or refuses them, and
 * writes a record.
 *
 * Steps are rows of a table (night_step.h). Each step proposes an artefact and measures it on held-out questions.
 * Proposals that gain are tested together on the general suites against the current artefacts, with paired items.
 * If a skill gets worse, each proposal is tested alone. What passes is promoted in one step (nights.h); what does
 * not is recorded with the reason. Blocking; one thread. */
#ifndef CHIMERE_LEARN_NIGHT_H
#define CHIMERE_LEARN_NIGHT_H

#include <jansson.h>

#include "engine/engine.h"
#include "learn/nights.h"
#include "model/model.h"
#include "text/tok/tok.h"

struct docs;
struct judge;
struct store;

/* The system that the night improves. All members are borrowed. */
struct night_host {
    struct model *model;
    struct engine *engine;
    bool is_shared; /* others also submit jobs to the engine, and have priority (engine/lease.h) */
    const struct tok *tok;
    int32_t n_seq; /* number of sequences of the engine */
    /* Renders and tokenizes messages; free *ids with mem_free. */
    int (*encode)(void *ud, json_t *messages, json_t *tools, bool think, int32_t **ids, size_t *n,
                  struct err *e);
    void *ud;
    struct store *store;
    /* folder of the orchestrator's pipelines; NULL: the limit of routing is not fitted, and rules are measured without
     * the prompts of pipelines */
    const char *pipelines;
    /* file of a drafter with weights that the engine uses, for the report: a night cannot train it; NULL: none */
    const char *drafter;
    struct docs *docs; /* NULL: documents are read without an embedding model */
};

/* How the step prompts searches. A call is one answer whose probability the model computes, or one rule that it
 * writes. */
struct night_prompts {
    const char *search; /* "gepa", or "mipro"; NULL: gepa */
    int32_t calls;      /* at most, of a night; 0: 2000 */
    int32_t tokens;     /* of the rules of one pipeline, at most; 0: 600 */
};
enum { NIGHT_LEAST_CALLS = 100, NIGHT_MAX_CALLS = 1000000, NIGHT_MAX_TOKENS = 4096 };

struct night_params {
    const char *steps; /* names, comma-separated; NULL: all */
    struct night_prompts prompts;
    /* how the step lora trains: "fzoo", "mezo" or "es" (step/zo.h); NULL: fzoo */
    const char *lora_rule;
    /* scores the day's answers first, except in a dry run, for at most half of the time budget; its goes_on is not used;
     * NULL: none */
    const struct judge *judge;
    const char *judge_why; /* why a judge that the user named is not used; NULL: it is used */
    const json_t *items;   /* items of the general suites, in the format of eval/harness.h */
    double budget_s;       /* time budget of all steps; 0: 1800 */
    /* energy budget of the whole night, of all processes of the machine; 0: no limit. If it is spent, the step that
     * runs is stopped, and the record has the key "stopped". */
    double max_joules;
    double least_worth; /* smallest worth of an answer that is learned; 0: 0.75 */
    bool dry_run;       /* nothing is promoted or recorded */
    /* share of the conversations that try what is promoted before it becomes current (trial.h); 0: no trial */
    double canary;
    double kwh_price;     /* money per kilowatt-hour, for the report */
    const char *currency; /* "": not named; NULL: no price is known */
    uint64_t seed;
    int64_t now_s; /* seconds since 1970; 0: the clock's */
    /* polled at least once per second or step; false stops the night; NULL: never stops */
    bool (*goes_on)(void *ud);
    void (*say)(void *ud, const char *line); /* shows progress to the user; NULL: none */
    void *ud;
};

/* CHIMERE_EUNSUPPORTED: the energy budget is above 0, and the machine has no counter of energy that can be read. */
int night_can_measure(double max_joules, struct err *e);
/* Returns true if a night of these steps needs no answers (night_step.h). */
bool night_is_upkeep(const char *steps);
/* *record: a new reference; what the night read, measured and did. Without "read": only upkeep (night_step.h). CHIMERE_ECANCELLED: nothing was changed. */
int night_run(json_t **record, struct nights *n, const struct night_host *h,
              const struct night_params *p, struct err *e);

#endif

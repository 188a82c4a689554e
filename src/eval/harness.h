/* harness.h: exact-match evaluation: items through an engine, greedily, several at a time.
 *
 * Items are the lines of eval/X.jsonl (eval/README.md). A run is a JSON object that can be saved, shown and
 * compared with another one:
 *   {"model", "skills": [{"skill", "n", "right", "score", "low", "high", "valid"}], "total": {...},
 *    "items": [{"id", "skill", "right", "valid", "yes", "n_tokens", "text"}]}
 * "score" is the share right, for verdicts the mean of the shares among yes and no ("yes" of an item);
 * "low", "high" its 95 % interval; "valid" the share of answers in a valid form, where the kind has one. */
#ifndef CHIMERE_EVAL_HARNESS_H
#define CHIMERE_EVAL_HARNESS_H

#include <jansson.h>

#include "engine/engine.h"
#include "engine/memory.h"

enum { EVAL_MAX_ITEMS = 1 << 20, EVAL_MAX_FILE = 256 << 20 };

/* Appends the first n_max lines of a file (0: all) to items; every one is checked for the fields that a run
 * reads. */
int eval_load(json_t *items, const char *path, size_t n_max, struct err *e);

struct eval_host {
    struct engine *engine;
    const struct tok *tok;
    /* Prompt of messages (tools may be NULL); *ids by mem_free. */
    int (*encode)(void *ud, json_t *messages, json_t *tools, bool think, int32_t **ids, size_t *n,
                  struct err *e);
    /* The n-gram memory of an item, or NULL; forgotten when it is answered. May be NULL. */
    int (*remember)(void *ud, const json_t *messages, struct memory **out, struct err *e);
    void *ud;
    int32_t n_seq;    /* of the engine */
    const char *what; /* title of the progress bar; NULL: none */
};

/* *run is a new reference. An item that fails in the engine ends the run with its error. */
int eval_run(json_t **run, const json_t *items, const struct eval_host *h, const char *model,
             struct err *e);

/* {"pairs", "skills": [{"skill", "n", "a", "b", "only_a", "only_b", "p"}], "total": {...}} over the items
 * that both runs have; shares right (a, b), and McNemar's exact p. New reference. */
int eval_compare(json_t **out, const json_t *a, const json_t *b, struct err *e);

#endif

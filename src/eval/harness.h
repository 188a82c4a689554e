/* harness.h: exact-match evaluation: items through an engine, greedily, several at a time.
 *
 * Items are the lines of eval/X.jsonl (eval/README.md). A run is a JSON object that can be saved, shown and
 * compared with another one:
 *   {"model", "skills": [{"skill", "n", "right", "score", "low", "high", "valid"}], "total": {...},
 *    "items": [{"id", "skill", "right", "valid", "yes", "n_tokens", "text"}]}
 * A run through a strategy also has "n_thinking", "n_check" (the verifier's; both of n_tokens) and "ms" of each
 * item, and in "total" their means, "strategy" and "seconds" of it all.
 * "score" is the share right, for verdicts the mean of the shares among yes and no ("yes" of an item);
 * "low", "high" its 95 % interval; "valid" the share of answers in a valid form, where the kind has one. */
#ifndef CHIMERE_EVAL_HARNESS_H
#define CHIMERE_EVAL_HARNESS_H

#include <jansson.h>

#include "base/buf.h"
#include "engine/engine.h"
#include "engine/ngram_memory.h"

enum { EVAL_MAX_ITEMS = 1 << 20, EVAL_MAX_FILE = 256 << 20 };

/* Appends the first n_max lines of a file (0: all) to items. check refuses an item that it cannot use; NULL: one
 * without the fields that eval_run reads. */
int eval_load(json_t *items, const char *path, size_t n_max,
              int (*check)(const json_t *item, struct err *e), struct err *e);
/* The same of each file of items of a folder, in the order of their names. */
int eval_load_folder(json_t *items, const char *dir, size_t n_max,
                     int (*check)(const json_t *item, struct err *e), struct err *e);
int eval_check_item(const json_t *item, struct err *e);

struct eval_answer {
    struct buf text;
    int64_t n_thinking, n_answer, n_check;
    double ms;
    bool is_judged, right; /* somebody else scored it; else score_answer does */
};

struct eval_host {
    /* Another way to answer than greedily by the engine, from n_worker threads; blocks. index: of the item.
     * NULL: the engine, and what follows here. */
    int (*answer)(void *ud, const json_t *item, size_t index, struct eval_answer *out,
                  struct err *e);
    int32_t n_worker;
    const char *strategy; /* view: its name */
    struct engine *engine;
    const struct tok *tok;
    /* Prompt of messages (tools may be NULL); *ids by mem_free. */
    int (*encode)(void *ud, json_t *messages, json_t *tools, bool think, int32_t **ids, size_t *n,
                  struct err *e);
    /* The n-gram memory of an item, or NULL; forgotten when it is answered. May be NULL. */
    int (*remember)(void *ud, const json_t *messages, struct ngram_memory **out, struct err *e);
    void *ud;
    /* Whether the program in a text passes the item's tests (kind "python"); any thread, blocks. NULL: such items
     * are refused. */
    int (*judge)(const json_t *item, const char *text, size_t n, bool *right, struct err *e);
    const struct lora_use *loras; /* borrowed [n_lora]: of every answer of the engine */
    int32_t n_lora;
    int32_t n_seq; /* of the engine */
    /* Called while none of the run's answers is under way: a place to wait while others need the engine. Nonzero ends
     * the run with that code. NULL: the next item starts as soon as there is room. */
    int (*turn)(void *ud, struct err *e);
    const char *what; /* title of the progress bar; NULL: none */
};

/* *run is a new reference. An item that fails in the engine ends the run with its error. */
int eval_run(json_t **run, const json_t *items, const struct eval_host *h, const char *model,
             struct err *e);

/* {"skills": [{"skill", "n", "a", "b", "only_a", "only_b", "p", "gain", "low", "high"}], "total": {...}} over
 * the items that both runs have; shares right (a, b), McNemar's exact p, and b - a with its paired 95 % interval.
 * "total" of runs through strategies also has "tokens" and "thinking", each {"a", "b", "saved", "low", "high"}:
 * means an item, and 1 - b/a with its paired 95 % interval. New reference. */
int eval_compare(json_t **out, const json_t *a, const json_t *b, struct err *e);

#endif

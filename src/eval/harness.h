/* harness.h: evaluation by exact match: sends items through an engine, greedily, several at a time.
 *
 * Items are the lines of eval/X.jsonl (eval/README.md). A run is a JSON object that can be saved, shown and
 * compared with another run:
 *   {"model", "skills": [{"skill", "n", "right", "score", "low", "high", "valid"}], "total": {...},
 *    "items": [{"id", "skill", "right", "valid", "yes", "n_tokens", "text"}]}
 * A run through a strategy also has, for each item, "n_thinking", "n_check" (tokens of the verifier; n_tokens
 * includes both) and "ms". Its "total" has their means, "strategy", and "seconds" for the whole run. "score" is
 * the share of right answers; for verdicts it is the mean of the shares among yes and among no ("yes" of an item).
 * "low" and "high" are its 95 % interval. "valid" is the share of answers in a valid form, if the kind of item has
 * one. */
#ifndef CHIMERE_EVAL_HARNESS_H
#define CHIMERE_EVAL_HARNESS_H

#include <jansson.h>

#include "base/buf.h"
#include "engine/engine.h"
#include "engine/ngram_memory.h"

enum { EVAL_MAX_ITEMS = 1 << 20, EVAL_MAX_FILE = 256 << 20 };

/* Appends the first n_max lines of a file (0: all) to items. check refuses an item that it cannot use; NULL:
 * refuses items without the fields that eval_run reads. */
int eval_load(json_t *items, const char *path, size_t n_max,
              int (*check)(const json_t *item, struct err *e), struct err *e);
/* Does the same for each item file of a folder, in the order of their names. */
int eval_load_folder(json_t *items, const char *dir, size_t n_max,
                     int (*check)(const json_t *item, struct err *e), struct err *e);
int eval_check_item(const json_t *item, struct err *e);

struct eval_answer {
    struct buf text;
    int64_t n_thinking, n_answer, n_check;
    double ms;
    bool is_judged, right; /* is_judged: the callback set `right`; otherwise score_answer does */
};

struct eval_host {
    /* Answers an item in another way than greedily by the engine. Called from n_worker threads; may block. index:
     * index of the item. NULL: the engine answers, with the members below. */
    int (*answer)(void *ud, const json_t *item, size_t index, struct eval_answer *out,
                  struct err *e);
    int32_t n_worker;
    const char *strategy; /* view: name of the strategy */
    struct engine *engine;
    const struct tok *tok;
    /* Renders and tokenizes messages; tools may be NULL. Free *ids with mem_free. */
    int (*encode)(void *ud, json_t *messages, json_t *tools, bool think, int32_t **ids, size_t *n,
                  struct err *e);
    /* Opens the n-gram memory of an item; *out may be NULL. It is closed after the answer. May be NULL. */
    int (*remember)(void *ud, const json_t *messages, struct ngram_memory **out, struct err *e);
    void *ud;
    /* Returns whether the program in a text passes the item's tests (kind "python"). Any thread; blocks. NULL:
     * such items are refused. */
    int (*judge)(const json_t *item, const char *text, size_t n, bool *right, struct err *e);
    const struct lora_use *loras; /* borrowed [n_lora]: used for every answer of the engine */
    int32_t n_lora;
    int32_t n_seq; /* number of sequences of the engine */
    /* Called while no answer of the run is in progress, so that it can wait while others need the engine. A
     * nonzero result ends the run with that code. NULL: the next item starts as soon as a slot is free. */
    int (*turn)(void *ud, struct err *e);
    const char *what; /* title of the progress bar; NULL: none */
};

/* *run is a new reference. If an item fails in the engine, the run ends with its error. */
int eval_run(json_t **run, const json_t *items, const struct eval_host *h, const char *model,
             struct err *e);

/* Compares the items that both runs have. *out is a new reference to {"skills": [{"skill", "n", "a", "b",
 * "only_a", "only_b", "p", "gain", "low", "high"}], "total": {...}}: shares of right answers (a, b), McNemar's
 * exact p, and b - a with its paired 95 % interval. For runs through strategies, "total" also has "tokens" and
 * "thinking", each {"a", "b", "saved", "low", "high"}: means per item, and 1 - b/a with its paired 95 % interval. */
int eval_compare(json_t **out, const json_t *a, const json_t *b, struct err *e);

#endif

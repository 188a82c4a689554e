/* measure.h: runs labelled items through the orchestrator, part by part, and through the model alone.
 *
 * An item is a line of eval/X.jsonl (eval/README.md). It may state what should happen before the answer:
 *   "expect": {"route", "difficulty": "low|medium|high", "source": [parts of paths], "passage": [texts],
 *              "tools": [names]}
 * source and passage: at least one retrieved passage must come from such a file and contain such a text.
 * An item without "check" measures decisions only. Answers with the check kind "judge" {"answer": reference} are
 * scored by another model. The result is one JSON object:
 *   {"decisions": {"total", "skills": [{"n", "route", "low", "medium", "high", "hit", "ms"}], "items"},
 *    "arms": [{"name", "run": as in harness.h, "against": eval_compare with the first arm,
 *              "hit", "citation", "tools": {"n", "right"}, "n_wrong_citation"}]}
 * Arms: the model alone; odo; and, if ablation is set, odo without each part that was used in at least one answer. */
#ifndef CHIMERE_ODO_MEASURE_H
#define CHIMERE_ODO_MEASURE_H

#include <jansson.h>

#include "backend/backend.h"
#include "odo/odo.h"

struct measure_params { /* all borrowed */
    struct odo *odo;
    struct backend *bare;  /* the model alone */
    struct backend *judge; /* NULL: items that need a judge are refused */
    const char *route;     /* NULL: decided for each item */
    const char *collection;
    bool ablate;
    int32_t n_worker;
    bool quiet; /* no progress bar */
};

/* Appends the first n_max items (0: all) of a file, or of each file of a folder. Every item is checked. */
int measure_load(json_t *items, const char *path, size_t n_max, struct err *e);
/* *out is a new reference. */
int measure_run(json_t **out, const json_t *items, const struct measure_params *p, struct err *e);
/* Measures with the same items which parts help the model. A part is allowed if all items together lose at most
 * half a point by it and no suite gets worse with p < 0.10 (exact McNemar test). Also measures whether the model finds
 * facts in messages, and whether its grades tell right answers from wrong ones. *out: {"arms": as above, "facts",
 * "judge"}; a new reference. The odo itself keeps its card. */
int measure_card(struct odo_card *card, json_t **out, const json_t *items,
                 const struct measure_params *p, struct err *e);

#endif

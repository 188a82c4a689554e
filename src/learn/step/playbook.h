/* playbook.h: rules for answers that a night learned: lists of bullets, and the operations that change them.
 *
 * A list is a JSON array of {"id", "text"}. It changes only by adding or removing one bullet, never as a whole, so that
 * a rule that was measured once is not lost by rewriting. A playbook is an object with one list for each pipeline of the
 * orchestrator, and the list "" of requests without a pipeline. Such a request gets its list as its system message if it
 * has none (backend/learned.h); a pipeline's list follows the pipeline's prompt. The file is
 * {"version": 1, "bullets": [...], "pipelines": {NAME: [...]}}. Pure functions, except load, save and read. */
#ifndef CHIMERE_LEARN_STEP_PLAYBOOK_H
#define CHIMERE_LEARN_STEP_PLAYBOOK_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
    PLAYBOOK_MAX_BULLETS = 12,
    PLAYBOOK_MAX_BULLET = 300, /* bytes of its text */
    PLAYBOOK_MAX_PIPELINES = 64
};
/* of a DSPy program, for requests without a pipeline */
#define PLAYBOOK_PREDICTOR "answer"

/* *out: a new reference to a playbook. CHIMERE_EFORMAT: the file is none. */
int playbook_load(json_t **out, const char *path, struct err *e);
int playbook_save(const json_t *playbook, const char *path, struct err *e);
/* Returns a new reference to a list with one more bullet; NULL: it is full, has a bullet of the same text, or the text
 * is empty, too long or not UTF-8. */
json_t *playbook_with(const json_t *bullets, const char *text);
/* Returns a new reference to a list without the bullet at index i; NULL: there is none. */
json_t *playbook_without(const json_t *bullets, size_t i);
/* Returns a new reference to the bullets of a, followed by those of b that it lacks, as many as fit. */
json_t *playbook_merge(const json_t *a, const json_t *b);
/* Reads a file into *texts, a new reference to {PIPELINE: text of its list}, without empty lists. */
int playbook_read(json_t **texts, const char *path, struct err *e);
/* Returns the text of a list for a system message; free it with mem_free. NULL: out of memory. "": no bullets. */
char *playbook_text(const json_t *bullets);
/* Returns a new reference to the playbook as a DSPy program with a predictor for each list; NULL: out of memory. The
 * list "" is the predictor "answer". */
json_t *playbook_to_dspy(const json_t *playbook);
/* Returns a new reference to {PREDICTOR: texts of bullets} that a DSPy program suggests: the lines of its instructions,
 * and its demonstrations that have a question and an answer. */
json_t *playbook_from_dspy(const json_t *program);
/* Reads a DSPy program from a file; *texts: a new reference, as of playbook_from_dspy. *n_text: how many. */
int playbook_imported(json_t **texts, size_t *n_text, const char *path, struct err *e);

#endif

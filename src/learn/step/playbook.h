/* playbook.h: rules for answers that a night learned: a list of bullets, and the operations that change it.
 *
 * A playbook is a JSON array of {"id", "text"}. It changes only by adding or removing one bullet, never as a whole, so
 * that a rule that was measured once is not lost by rewriting. Its file is {"version": 1, "bullets": [...]}. A request
 * without a system message of its own gets the playbook as its system message (backend/learned.h). Pure functions,
 * except load and save. */
#ifndef CHIMERE_LEARN_STEP_PLAYBOOK_H
#define CHIMERE_LEARN_STEP_PLAYBOOK_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { PLAYBOOK_MAX_BULLETS = 12, PLAYBOOK_MAX_BULLET = 300 /* bytes of its text */ };

/* *out: a new reference. CHIMERE_EFORMAT: the file is not a playbook. */
int playbook_load(json_t **out, const char *path, struct err *e);
int playbook_save(const json_t *bullets, const char *path, struct err *e);
/* Returns a new reference to a playbook with one more bullet; NULL: it is full, has a bullet of the same text, or the
 * text is empty, too long or not UTF-8. */
json_t *playbook_with(const json_t *bullets, const char *text);
/* Returns a new reference to a playbook without the bullet at index i; NULL: there is none. */
json_t *playbook_without(const json_t *bullets, size_t i);
/* Returns a new reference to the bullets of a, followed by those of b that it lacks, as many as fit. */
json_t *playbook_merge(const json_t *a, const json_t *b);
/* Reads a file into *text, the text of its system message; free it with mem_free. */
int playbook_read(char **text, const char *path, struct err *e);
/* Returns the text of the system message; free it with mem_free. NULL: out of memory. "": no bullets. */
char *playbook_text(const json_t *bullets);
/* Returns a new reference to the playbook as a DSPy program with the predictor "answer"; NULL: out of memory. */
json_t *playbook_to_dspy(const json_t *bullets);
/* Returns a new reference to the texts of bullets that a DSPy program suggests: the lines of its instructions, and its
 * demonstrations that have a question and an answer. */
json_t *playbook_from_dspy(const json_t *program);
/* Reads a DSPy program from a file; *texts: a new reference, as of playbook_from_dspy. */
int playbook_imported(json_t **texts, const char *path, struct err *e);

#endif

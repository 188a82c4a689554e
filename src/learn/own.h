/* own.h: the owner's own held-out items: what a night must not harm, and never trains on.
 *
 * own.jsonl in the folder of nights, a line per item as eval/harness.h reads them, of skill "own". An answer is right
 * if it contains the expected text. */
#ifndef CHIMERE_LEARN_OWN_H
#define CHIMERE_LEARN_OWN_H

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"

enum { OWN_MAX_ITEMS = 4096, OWN_MAX_TEXT = 8 << 10 };

/* Appends the items of the folder to items; none: nothing. */
int own_load(json_t *items, const char *dir, struct err *e);
/* Adds one, or replaces the one that asks the same. */
int own_add(const char *dir, const char *question, const char *answer, struct err *e);
/* CHIMERE_ENOENT: none has this id. */
int own_remove(const char *dir, const char *id, struct err *e);
const char *own_question(const json_t *item); /* view */
const char *own_answer(const json_t *item);   /* view */
/* Whether one of items, of skill "own", asks this question in other case or punctuation. */
bool own_asks(const json_t *items, const char *question);

#endif

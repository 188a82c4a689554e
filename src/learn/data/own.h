/* own.h: the owner's own held-out items. A night must not make them worse, and never trains on them.
 *
 * Stored in own.jsonl in the folder of the nights: one item per line in the format of eval/harness.h, with the
 * skill "own". An answer is right if it contains the expected text. */
#ifndef CHIMERE_LEARN_DATA_OWN_H
#define CHIMERE_LEARN_DATA_OWN_H

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"

enum { OWN_MAX_ITEMS = 4096, OWN_MAX_TEXT = 8 << 10 };

/* Appends the items of the folder to items; appends nothing if there is no file. */
int own_load(json_t *items, const char *dir, struct err *e);
/* Adds an item, or replaces the item with the same question. */
int own_add(const char *dir, const char *question, const char *answer, struct err *e);
/* CHIMERE_ENOENT: no item has this id. */
int own_remove(const char *dir, const char *id, struct err *e);
const char *own_question(const json_t *item); /* view */
const char *own_answer(const json_t *item);   /* view */
/* Returns true if an item of skill "own" asks this question, ignoring case and punctuation. */
bool own_asks(const json_t *items, const char *question);

#endif

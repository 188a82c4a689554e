/* slots.h: what the conversations that requests name by id_slot consist of, for POST /slots/N?action=...
 *
 * Requests are not bound to slots here: a number is a name. What is kept of it are the tokens of its last request and
 * answer. Saving writes those to a file of the owner's; restoring evaluates them, or finds their state in the prefix
 * cache, so that the next prompt continues from there. Erasing gives the number a scope of its own, in which nothing is
 * cached. Any thread. */
#ifndef CHIMERE_SERVE_SLOTS_H
#define CHIMERE_SERVE_SLOTS_H

#include "serve/gen.h"

struct slots;

struct slots *slots_new(void); /* NULL: out of memory */
void slots_free(struct slots *s);
/* After an answer whose request named a slot. */
void slots_put(struct slots *s, const struct gen *g, const struct generation *run);
/* The scope that g's requests have under its slot's number. */
uint64_t slots_scope(struct slots *s, const struct gen *g, uint64_t scope);

void slots_post(struct http_request *r); /* POST /slots/N */

#endif

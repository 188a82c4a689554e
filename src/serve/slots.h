/* slots.h: the conversations that requests name by id_slot, for POST /slots/N?action=...
 *
 * In this server, requests are not bound to slots: a slot number is only a name. For each number, the tokens of its
 * last request and answer are stored. Saving writes them to a file of the owner. Restoring evaluates them, or finds
 * their state in the prefix cache, so that the next prompt continues from there. Erasing gives the number a new scope,
 * in which nothing is cached. Any thread may call this. */
#ifndef CHIMERE_SERVE_SLOTS_H
#define CHIMERE_SERVE_SLOTS_H

#include "serve/api/gen.h"

struct slots;

struct slots *slots_new(void); /* NULL: out of memory */
void slots_free(struct slots *s);
/* Call after an answer whose request named a slot. */
void slots_put(struct slots *s, const struct gen *g, const struct generation *run);
/* Returns the scope for g's request, given its slot number. */
uint64_t slots_scope(struct slots *s, const struct gen *g, uint64_t scope);

void slots_post(struct http_request *r); /* POST /slots/N */

#endif

/* odo_context.h: persona, learned rules, skill and memory of a run whose route is decided, and what the run stores in the memory. */
#ifndef CHIMERE_ODO_ODO_CONTEXT_H
#define CHIMERE_ODO_ODO_CONTEXT_H

#include "odo/odo_impl.h"

int odo_context(struct odo_run *r, struct err *e); /* call it after odo_decide */
bool odo_has_context(const struct odo_run *r);     /* true if the run adds text to the prompt */
void odo_put_context(const struct odo_run *r, struct buf *system);
const struct tool *odo_tool(const struct odo_run *r, const char *name); /* NULL: unknown */
void odo_remember(struct odo_run *r); /* stores what a complete answer adds to the memory */

#endif

/* odo_context.h: persona, skill and memory of a decided run, and what it leaves in the memory. */
#ifndef CHIMERE_ODO_ODO_CONTEXT_H
#define CHIMERE_ODO_ODO_CONTEXT_H

#include "odo/odo_impl.h"

int odo_context(struct odo_run *r, struct err *e); /* after odo_decide */
bool odo_has_context(const struct odo_run *r);     /* the prompt grows by it */
void odo_put_context(const struct odo_run *r, struct buf *system);
const struct tool *odo_tool(const struct odo_run *r, const char *name); /* NULL: nobody's */
void odo_remember(struct odo_run *r); /* what a whole answer leaves */

#endif

/* odo_eval.h: chimere odo eval: labelled items through the orchestrator, as a table. */
#ifndef CHIMERE_CLI_ODO_EVAL_H
#define CHIMERE_CLI_ODO_EVAL_H

#include "backend/backend.h"
#include "base/config.h"
#include "odo/odo.h"

/* Files and folders of items are the command's arguments from the second on. */
int odo_eval(const struct cfg *c, struct odo *o, struct backend *bare, int32_t n_worker,
             struct err *e);
/* `odo calibrate`: measures what the model gains from, by the items of the arguments or else the shipped suites, and
 * keeps its card. */
int odo_calibrate(const struct cfg *c, struct odo *o, struct backend *bare, int32_t n_worker,
                  struct err *e);

#endif

/* odo_eval.h: chimere odo eval: runs labelled items through the orchestrator and prints a table. */
#ifndef CHIMERE_CLI_ODO_EVAL_H
#define CHIMERE_CLI_ODO_EVAL_H

#include "backend/backend.h"
#include "base/config.h"
#include "odo/odo.h"

/* The command's arguments from the second on are files and folders of items. */
int odo_eval(const struct cfg *c, struct odo *o, struct backend *bare, int32_t n_worker,
             struct err *e);
/* `odo calibrate`: measures which parts help the model, with the items of the arguments or else the shipped
 * suites, and stores its card. */
int odo_calibrate(const struct cfg *c, struct odo *o, struct backend *bare, int32_t n_worker,
                  struct err *e);

#endif

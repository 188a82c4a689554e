/* odo_args.h: the orchestrator behind a command: its options, and what they open. */
#ifndef CHIMERE_CLI_ODO_ARGS_H
#define CHIMERE_CLI_ODO_ARGS_H

#include "cli/cli.h"
#include "odo/docs.h"
#include "odo/odo.h"
#include "store/store.h"

/* clang-format off */
#define ODO_OPTIONS                                                                                \
    {"pipelines", 0, CFG_STR, "DIR", NULL, 0, 0, NULL, "folder of pipelines (default: the one beside the program)"}, \
    {"db", 0, CFG_STR, "FILE", NULL, 0, 0, NULL, "documents, decisions, memory (default: chimere.db of the user)"}, \
    {"intent-ms", 0, CFG_INT, "N", "300", -1, 60000, NULL, "time the model may take to judge a message; -1: rules alone"}
/* clang-format on */

struct odo_rig {
    struct store *store;
    struct docs *docs;
    struct odo *odo;
};

/* backend NULL: decisions alone. */
int odo_rig_open(struct odo_rig *r, const struct cfg *c, struct ask_backend *backend,
                 struct err *e);
/* Store and documents, without the orchestrator. */
int odo_rig_store(struct odo_rig *r, const struct cfg *c, struct err *e);
void odo_rig_close(struct odo_rig *r);

#endif

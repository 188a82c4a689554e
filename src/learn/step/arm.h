/* arm.h: answers items with a given set of learned files: one arm of a comparison. */
#ifndef CHIMERE_LEARN_STEP_ARM_H
#define CHIMERE_LEARN_STEP_ARM_H

#include "eval/windows.h"
#include "learn/night.h"

enum { ARM_TABLE, ARM_ADAPTER, ARM_PLAYBOOK, ARM_EXAMPLES, ARM_N_FILE };
extern const char *const arm_artefacts[ARM_N_FILE]; /* their file names */
struct night_arm {
    const char *path[ARM_N_FILE]; /* NULL: none */
    const char *pipeline; /* whose rules of the playbook are used; "": of requests without one */
};

/* *run: a new reference, as of eval_run. turn is called between groups of items; NULL: no waiting. Blocks. */
int arm_run(json_t **run, const struct night_host *h, const json_t *items,
            const struct night_arm *arm, const struct windows_turn *turn, struct err *e);

#endif

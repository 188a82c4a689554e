/* arm.h: answers items with a given set of learned files: one arm of a comparison. */
#ifndef CHIMERE_LEARN_ARM_H
#define CHIMERE_LEARN_ARM_H

#include "eval/windows.h"
#include "learn/night.h"

enum { ARM_N_FILE = 3 };
struct night_arm { /* paths of artefacts; NULL: none */
    const char *table, *adapter, *playbook;
};

/* *run: a new reference, as of eval_run. turn is called between groups of items; NULL: no waiting. Blocks. */
int arm_run(json_t **run, const struct night_host *h, const json_t *items,
            const struct night_arm *arm, const struct windows_turn *turn, struct err *e);

#endif

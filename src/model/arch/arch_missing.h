/* arch_missing.h: families that are known by name and not implemented, and what each lacks. README.md lists the same
 * families. Constant data; any thread. */
#ifndef CHIMERE_MODEL_ARCH_MISSING_H
#define CHIMERE_MODEL_ARCH_MISSING_H

#include "model/arch/arch.h"

struct arch_missing {
    /* model_type of checkpoints and general.architecture of files, separated by spaces; "NAME*": with any ending */
    const char *names;
    const char *title;                   /* of the published models */
    const char *lacks;                   /* continues "it needs" */
    bool (*suits)(const json_t *config); /* NULL: every configuration of these names */
};

/* The row of a name, NULL if there is none. config: of the checkpoint, NULL for a file. */
const struct arch_missing *arch_missing_find(struct slice name, const json_t *config);

#endif

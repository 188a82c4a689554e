/* limits_file.h: the file of the orchestrator's limits (backend/limits.h) that a night keeps. */
#ifndef CHIMERE_LEARN_STEP_LIMITS_FILE_H
#define CHIMERE_LEARN_STEP_LIMITS_FILE_H

#include "backend/limits.h"

#define LIMITS_FILE "limits.json"

/* CHIMERE_EFORMAT: the file has no limits, or one is outside of its range. */
int limits_load(struct limits *out, const char *path, struct err *e);
int limits_save(const struct limits *l, const char *path, struct err *e);

#endif

/* pipeline_steps.h: reads the steps of a pipeline file: agents, parallel groups, loops, conditions, output schemas. */
#ifndef CHIMERE_ODO_PIPELINE_STEPS_H
#define CHIMERE_ODO_PIPELINE_STEPS_H

#include "odo/pipeline/pipeline.h"

/* node: the list of steps. Strings are copied into the arena. */
int pipeline_steps_bind(struct pipeline *p, struct yamlfile *y, int32_t node, struct arena *a,
                        struct err *e);
int pipeline_bind_sampling(struct yamlfile *y, int32_t node, struct pipeline_sampling *s,
                           struct arena *a, struct err *e);
/* Returns true if the text, without blanks and a code fence around it, is JSON of the schema. If it is not, *why
 * says so. */
bool pipeline_fits(const char *schema, const char *text, size_t n, struct err *why);
/* Returns whether the condition holds. text: the question, or the output of its step; NULL: the step has not run. */
bool pipeline_holds(const struct pipeline_cond *c, const char *text);

#endif

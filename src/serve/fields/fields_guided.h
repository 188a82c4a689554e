/* fields_guided.h: fields for the answer's format and for the sampler chain, with the names of vLLM and
 * llama-server. */
#ifndef CHIMERE_SERVE_FIELDS_GUIDED_H
#define CHIMERE_SERVE_FIELDS_GUIDED_H

#include "serve/fields/fields.h"

int fields_guided(struct fields *f, json_t *v, const char *name, struct err *e);
int fields_structured(struct fields *f, json_t *v, const char *name, struct err *e);
int fields_samplers(struct fields *f, json_t *v, const char *name, struct err *e);
/* call after all fields: disables the samplers that were not named */
void fields_apply_samplers(struct fields *f);

#endif

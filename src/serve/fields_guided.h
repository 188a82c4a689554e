/* fields_guided.h: the form of the answer and the chain of samplers as vLLM and llama-server name them. */
#ifndef CHIMERE_SERVE_FIELDS_GUIDED_H
#define CHIMERE_SERVE_FIELDS_GUIDED_H

#include "serve/fields.h"

int fields_guided(struct fields *f, json_t *v, const char *name, struct err *e);
int fields_structured(struct fields *f, json_t *v, const char *name, struct err *e);
int fields_samplers(struct fields *f, json_t *v, const char *name, struct err *e);
void fields_apply_samplers(struct fields *f); /* after all fields: those not named are off */

#endif

/* fields_impl.h: shared by the readers of request fields. */
#ifndef CHIMERE_SERVE_FIELDS_IMPL_H
#define CHIMERE_SERVE_FIELDS_IMPL_H

#include "serve/fields/fields.h"

/* ---- values (fields_read.c) ---- */
int fields_expected(struct err *e, const char *name, const char *what);
int fields_bool(const json_t *v, const char *name, bool *out, struct err *e);
int fields_int(const json_t *v, const char *name, double low, double high, int64_t *out,
               struct err *e);
/* Reads a text of 1 to max bytes into the arena. */
int fields_str(struct fields *f, const json_t *v, const char *name, size_t max, const char **out,
               struct err *e);

int fields_messages(struct request *a, json_t *messages, struct err *e); /* OpenAI chat form */
int fields_schema(struct request *a, json_t *schema, const char *where, struct err *e);
/* Passes a value to the model's template. */
int fields_context(struct request *a, const char *name, json_t *v, struct err *e);
int fields_effort(struct fields *f, const json_t *v, const char *name, struct err *e);

/* fields_responses.c, fields_anthropic.c: convert the messages of these APIs to OpenAI's chat form. */
int fields_input(struct fields *f, json_t *v, struct err *e);
int fields_instructions(struct fields *f, json_t *v, struct err *e);
int fields_anthropic_messages(struct fields *f, json_t *v, struct err *e);
int fields_anthropic_system(struct fields *f, json_t *v, struct err *e);

#endif

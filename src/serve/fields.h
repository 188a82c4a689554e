/* fields.h: request JSON -> struct ask, field by field.
 *
 * One table says for every field which APIs have it and how it is read. What stands in no row is refused by
 * its name, and so is a value that cannot be honoured; nothing is dropped in silence but what is a hint
 * without effect on the answer (service_tier "auto", store, metadata, ...). Errors begin "FIELD: ". */
#ifndef CHIMERE_SERVE_FIELDS_H
#define CHIMERE_SERVE_FIELDS_H

#include "engine/ask.h"

enum fields_api { FIELDS_CHAT = 1, FIELDS_TEXT = 2, FIELDS_RESPONSES = 4, FIELDS_MESSAGES = 8 };

enum {
    FIELDS_MAX_MESSAGES = 8192,
    FIELDS_MAX_PARTS = 4096,
    FIELDS_MAX_BIAS = 4096,
    FIELDS_MAX_PROMPTS = 256, /* times n */
};

struct fields { /* what a request says beside its ask */
    struct ask *ask;
    bool stream, usage, progress;
    bool obfuscate_off;
    int32_t n_probs;     /* top_logprobs; -1: not named */
    int32_t best_of;     /* 0: not named */
    bool think_named;    /* the request said whether to think */
    json_t *format_name; /* view: json_schema's name */
    json_t *prompts;     /* view: a list of several prompts, or NULL */
};

/* Reads every member of the request. Members named model are skipped (the server finds it). */
int fields_read(struct fields *f, json_t *request, enum fields_api api, struct err *e);

/* ---- shared by the readers ---- */
int fields_tools(struct ask *a, json_t *tools,
                 struct err *e); /* OpenAI chat form; steals nothing */
int fields_add_tool(struct ask *a, const char *where, const json_t *name, const json_t *description,
                    json_t *parameters, struct err *e);
int fields_messages(struct ask *a, json_t *messages, struct err *e); /* OpenAI chat form */
int fields_schema(struct ask *a, json_t *schema, const char *where, struct err *e);
int fields_effort(struct fields *f, const json_t *v, const char *name, struct err *e);
int fields_think(struct fields *f, json_t *v, const char *name, struct err *e);
/* Content of a message as a string or a list of text parts; *out is new. */
int fields_text(const json_t *content, const char *where, json_t **out, struct err *e);

/* fields_responses.c, fields_anthropic.c: messages of the other APIs, in OpenAI's chat form. */
int fields_input(struct fields *f, json_t *v, struct err *e);
int fields_instructions(struct fields *f, json_t *v, struct err *e);
int fields_anthropic_messages(struct fields *f, json_t *v, struct err *e);
int fields_anthropic_system(struct fields *f, json_t *v, struct err *e);

#endif

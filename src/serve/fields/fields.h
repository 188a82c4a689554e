/* fields.h: reads request JSON into struct request, field by field.
 *
 * One table defines, for each field, which APIs have it and how it is read. A field without a row is refused by its
 * name, and so is a value that the server cannot support. Fields are ignored silently only if they are hints without
 * effect on the answer (service_tier "auto", store, metadata, ...). Errors begin with "FIELD: ". */
#ifndef CHIMERE_SERVE_FIELDS_H
#define CHIMERE_SERVE_FIELDS_H

#include <stdatomic.h>

#include "backend/backend.h"

enum fields_api { FIELDS_CHAT = 1, FIELDS_TEXT = 2, FIELDS_RESPONSES = 4, FIELDS_MESSAGES = 8 };

enum {
    FIELDS_MAX_MESSAGES = 8192,
    FIELDS_MAX_PARTS = 4096,
    FIELDS_MAX_BIAS = 4096,
    FIELDS_MAX_PROMPTS = 256, /* number of prompts times n */
    FIELDS_MAX_ROWS = 256,    /* equal to METRICS_MAX_FIELDS */
};

struct left_out {
    const char *type, *name; /* name may be NULL */
    struct left_out *next;
};

struct fields { /* what a request contains besides struct request */
    struct request *request;
    bool stream, usage, progress;
    const struct tok *tok; /* the model's tokenizer; NULL: unknown */
    int opens_answer;      /* add_generation_prompt: 1; -1 for false; 0: not set */
    bool timings;          /* timings_per_token */
    bool verbose;          /* include __verbose */
    bool obfuscate_off;
    bool can_search;       /* in: the server can search the web for this request */
    int32_t n_probs;       /* top_logprobs; -1: not set */
    int32_t best_of;       /* 0: not set */
    uint32_t samplers;     /* bits of the samplers that the request names; 0: not set */
    int32_t keep_thinking; /* number of assistant turns that keep their thinking; 0: not set */
    uint64_t ignored[FIELDS_MAX_ROWS / 64]; /* bit: the request has this field, and it is ignored */
    /* in the arena: built-in tools that this server does not offer to the model */
    struct left_out *left_out;
    json_t *allowed; /* view: tool_choice's list of allowed tools, or NULL */
    /* the request has "functions", the form before "tools"; calls are written likewise */
    bool old_calls;
    bool think_named;    /* the request says whether to think */
    json_t *format_name; /* view: json_schema's name */
    json_t *prompts;     /* view: a list of several prompts, or NULL */
};

/* Reads the server's default fields, of any API. Call before fields_read. */
int fields_defaults(struct fields *f, json_t *defaults, struct err *e);
/* Reads every member of the request, except model, which the server reads. */
int fields_read(struct fields *f, json_t *request, enum fields_api api, struct err *e);

/* Reads the field "think" (fields_think.c). */
int fields_think(struct fields *f, json_t *v, const char *name, struct err *e);
/* Writes the tokens that each reasoning effort allows, as a JSON object; efforts without a limit are absent. */
void fields_put_budgets(struct buf *out);
/* Writes the fields of an API as a JSON Schema. */
void fields_put_schema(enum fields_api api, struct buf *out);
/* Writes the counts of ignored fields in Prometheus' format; counts [FIELDS_MAX_ROWS]. */
void fields_put_ignored(const _Atomic uint64_t *counts, struct buf *out);
/* Writes the table as Markdown: field, APIs, values. */
void fields_put_reference(struct buf *out);

#endif

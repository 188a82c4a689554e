/* fields.h: request JSON -> struct request, field by field.
 *
 * One table says for every field which APIs have it and how it is read. What stands in no row is refused by
 * its name, and so is a value that cannot be honoured; nothing is dropped in silence but what is a hint
 * without effect on the answer (service_tier "auto", store, metadata, ...). Errors begin "FIELD: ". */
#ifndef CHIMERE_SERVE_FIELDS_H
#define CHIMERE_SERVE_FIELDS_H

#include <stdatomic.h>

#include "backend/backend.h"

enum fields_api { FIELDS_CHAT = 1, FIELDS_TEXT = 2, FIELDS_RESPONSES = 4, FIELDS_MESSAGES = 8 };

enum {
    FIELDS_MAX_MESSAGES = 8192,
    FIELDS_MAX_PARTS = 4096,
    FIELDS_MAX_BIAS = 4096,
    FIELDS_MAX_PROMPTS = 256, /* times n */
    FIELDS_MAX_ROWS = 256,    /* as METRICS_MAX_FIELDS */
};

struct left_out {
    const char *type, *name; /* name may be NULL */
    struct left_out *next;
};

struct fields { /* what a request says beside its request */
    struct request *request;
    bool stream, usage, progress;
    const struct tok *tok; /* of the model, or NULL: its tokens are not known */
    int opens_answer;      /* add_generation_prompt: 1, or -1 for false; 0: not said */
    bool timings;          /* timings_per_token */
    bool verbose;          /* __verbose is wanted */
    bool obfuscate_off;
    bool can_search;       /* in: the server can search the web for this request */
    int32_t n_probs;       /* top_logprobs; -1: not named */
    int32_t best_of;       /* 0: not named */
    uint32_t samplers;     /* bits of the named ones, 0: not said */
    int32_t keep_thinking; /* assistant turns that keep their thinking; 0: not said */
    uint64_t ignored[FIELDS_MAX_ROWS / 64]; /* bit: a field of that row came and has no effect */
    struct left_out *left_out; /* in the arena: built-in tools that are not the model's to call */
    json_t *allowed;           /* view: tool_choice's list of allowed tools, or NULL */
    bool old_calls;            /* functions, as before tools: calls are written in that form */
    bool think_named;          /* the request said whether to think */
    json_t *format_name;       /* view: json_schema's name */
    json_t *prompts;           /* view: a list of several prompts, or NULL */
};

/* The same for what a request does not say: fields of any API, by the server's own options. Before fields_read. */
int fields_defaults(struct fields *f, json_t *defaults, struct err *e);
/* Reads every member of the request. Members named model are skipped (the server finds it). */
int fields_read(struct fields *f, json_t *request, enum fields_api api, struct err *e);

/* The field "think" alone (fields_think.c). */
int fields_think(struct fields *f, json_t *v, const char *name, struct err *e);
/* The members of an API's requests as a JSON Schema. */
void fields_put_schema(enum fields_api api, struct buf *out);
/* The counts of ignored fields, in Prometheus' form; [FIELDS_MAX_ROWS]. */
void fields_put_ignored(const _Atomic uint64_t *counts, struct buf *out);
/* The table as rows of Markdown: field, APIs, values. */
void fields_put_reference(struct buf *out);

#endif

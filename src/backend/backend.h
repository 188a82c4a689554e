/* backend.h: who serves a request, and the events of the answer.
 *
 * The first backend is the local engine (local.c); a remote server (remote.c) and an orchestrator are
 * others: an orchestrator receives the same request, sends requests to backends of its own, and reports
 * the same events.
 *
 *   prepare --start--> (waiting) --> events ... --> EVENT_END of each choice --> EVENT_DONE --> free
 *
 * Events are views that are valid during the call. They arrive in order, from one thread at a time (the
 * engine's), and the sink must not block. Nothing arrives after EVENT_DONE. Errors that a client can fix
 * begin with the request field's name and a colon ("max_tokens: expected ..."). */
#ifndef CHIMERE_BACKEND_BACKEND_H
#define CHIMERE_BACKEND_BACKEND_H

#include "backend/answer.h"
#include "backend/request.h"

enum backend_event_kind {
    EVENT_PREFILL, /* n_done of n_prompt prompt tokens */
    EVENT_TOKEN, /* only with request.probs: token, text[n] its bytes, probs; before its EVENT_CHAT */
    EVENT_PROMPT, /* only with request.prompt_probs: a token of the prompt as in EVENT_TOKEN; probs NULL for
                     the first */
    EVENT_CHAT, /* chat: text, reasoning, a call and its arguments */
    EVENT_NOTE, /* an orchestrator's step: name, text[n] is a JSON object */
    EVENT_END,  /* choice ended: end */
    EVENT_DONE, /* all choices ended: the last event */
};

struct generation_end {
    enum finish finish;
    const char *stop;          /* view: the stop string that ended it, or NULL */
    struct engine_stats stats; /* an orchestrator sums its calls */
    int32_t n_reasoning;       /* of stats.n_generated */
    int32_t n_repaired;        /* calls whose text was not quite of the model's form */
    const struct err *err;     /* view, FINISH_ERROR */
};

struct backend_event {
    enum backend_event_kind kind;
    int32_t choice;
    int32_t n_done, n_prompt, n_cached;
    int32_t token;
    const struct sampler_probs *probs; /* view */
    const struct chat_event *chat;     /* view */
    const struct generation_end *end;  /* view */
    const struct engine_stats *stats;  /* view: so far, with EVENT_CHAT; NULL: not known */
    const char *name, *text;           /* views */
    size_t n;
};

struct event_sink {
    int (*event)(void *ud, const struct backend_event *ev); /* nonzero: no more, as cancel */
    void *ud;                                               /* borrowed until EVENT_DONE */
};

struct backend_model;
struct backend;

struct generation { /* first member of each backend's own */
    struct backend *backend;
};

struct backend {
    const struct backend_ops *ops;
    char name[128]; /* the model's name in the API */
    struct backend_model
        *model; /* borrowed until free; what tokens and templates mean; an orchestrator gives
                                the model that it asks */
};

struct backend_ops {
    /* Everything that takes time and can be refused: template, tokens, grammar. Any thread, many at once.
     * *n_prompt: tokens of the prompt. sink is copied. */
    int (*prepare)(struct backend *b, const struct request *a, const struct event_sink *sink,
                   struct generation **out, int32_t *n_prompt, struct err *e);
    /* Quick; any thread, also from within a sink. On error nothing was sent and nothing will be. */
    int (*start)(struct generation *r, struct err *e);
    /* Takes effect within one step; events go on to EVENT_DONE. Any thread, once start has returned. */
    void (*cancel)(struct generation *r);
    void (*free)(struct generation
                     *r); /* never started, or after EVENT_DONE (waits for it); not in a sink */
    /* Prompt text and ids without answering; each out may be NULL. *text, *ids by mem_free. */
    int (*render)(struct backend *b, const struct request *a, char **text, int32_t **ids, size_t *n,
                  struct err *e);
    void (*close)(struct backend *b);
    /* May be NULL. Ids of the prompt and of the first choice's answer, end token included, after its EVENT_END;
     * views that live as long as r. */
    void (*tokens)(const struct generation *r, const int32_t **prompt, int32_t *n_prompt,
                   const int32_t **answer, int32_t *n_answer);
    /* May be NULL. Lines "Name: value" for the response's head, of a prepared run. */
    void (*headers)(struct generation *r, struct buf *out);
};

/* What a local answer needs; everything borrowed until close. */
struct backend_model {
    struct model *m;         /* NULL over a weightless engine, and where libllama runs the model */
    const struct gguf *gguf; /* of the latter */
    struct engine *engine;
    struct vision *vision; /* NULL: it sees no images */
    const struct tok *tok;
    const struct chat_template *template; /* NULL: raw prompts only */
    const struct lora_use *loras;         /* [n_lora] as loaded */
    int32_t n_lora, n_seq;
    const json_t
        *template_context;  /* further variables of the template, a request's come on top; NULL */
    const char *engram_dir; /* folder of n-gram tables; NULL: the user's own */
};

/* Its file's keys and directory, whoever runs it; NULL: there is none. */
const struct gguf *backend_model_file(const struct backend_model *m);

/* The backend over one engine; close frees it, not what it borrows. */
int backend_local_new(struct backend **out, const struct backend_model *m, const char *name,
                      struct err *e);

#endif

/* backend.h: the interface of everything that serves a request, and the events of an answer.
 *
 * The first backend is the local engine (local.c); a remote server (remote.c) and an orchestrator are others. The
 * orchestrator receives the same request, sends requests to its own backends, and reports the same events.
 *
 *    prepare --start--> (waiting) --> events ... --> EVENT_END of each choice --> EVENT_DONE --> free
 *
 * Events are views that are valid during the call. They arrive in order, from one thread at a time (the engine's), and
 * the sink must not block. EVENT_DONE is the last event. Errors that a client can fix begin with the name of the
 * request field and a colon ("max_tokens: expected ..."). */
#ifndef CHIMERE_BACKEND_BACKEND_H
#define CHIMERE_BACKEND_BACKEND_H

#include "backend/answer.h"
#include "backend/request.h"

enum backend_event_kind {
    EVENT_PREFILL, /* n_done of n_prompt prompt tokens */
    /* only with request.probs: token, its bytes text[n], probs; sent before its EVENT_CHAT */
    EVENT_TOKEN,
    /* only with request.prompt_probs: a prompt token, as in EVENT_TOKEN; probs NULL for the first */
    EVENT_PROMPT,
    EVENT_CHAT, /* chat: text, reasoning, a call and its arguments */
    EVENT_NOTE, /* a step of an orchestrator: name; text[n] is a JSON object */
    EVENT_END,  /* a choice ended: end */
    EVENT_DONE, /* all choices have ended: the last event */
};

struct generation_end {
    enum finish finish;
    const char *stop;          /* view: the stop string that ended the choice, or NULL */
    struct engine_stats stats; /* an orchestrator reports the sum of its calls */
    int32_t n_reasoning;       /* part of stats.n_generated */
    int32_t n_repaired;        /* tool calls whose text deviated slightly from the model's form */
    int64_t night;             /* number of the night whose files were used (learned.h); 0: none */
    const struct err *err;     /* view; set if finish is FINISH_ERROR */
};

struct backend_event {
    enum backend_event_kind kind;
    int32_t choice;
    int32_t n_done, n_prompt, n_cached;
    int32_t token;
    const struct sampler_probs *probs; /* view */
    const struct chat_event *chat;     /* view */
    const struct generation_end *end;  /* view */
    const struct engine_stats *stats;  /* view: statistics so far, with EVENT_CHAT; NULL: unknown */
    const char *name, *text;           /* views */
    size_t n;
};

struct event_sink {
    int (*event)(void *ud, const struct backend_event *ev); /* nonzero: stop, like cancel */
    void *ud;                                               /* borrowed until EVENT_DONE */
};

struct backend_model;
struct backend;

struct generation { /* the first member of each backend's generation struct */
    struct backend *backend;
};

struct backend {
    const struct backend_ops *ops;
    char name[128]; /* the model's name in the API */
    /* borrowed until free; defines tokens and templates; for an orchestrator, the model that it calls */
    struct backend_model *model;
};

struct backend_ops {
    /* Does everything that takes time or can be refused: template, tokens, grammar. Any thread, concurrently.
     * *n_prompt: tokens of the prompt. sink is copied. */
    int (*prepare)(struct backend *b, const struct request *a, const struct event_sink *sink,
                   struct generation **out, int32_t *n_prompt, struct err *e);
    /* Fast; any thread, also from a sink. If it fails, no event is sent. */
    int (*start)(struct generation *r, struct err *e);
    /* Takes effect within one step; events continue until EVENT_DONE. Any thread, after start has returned. */
    void (*cancel)(struct generation *r);
    /* Call if r was not started, or after EVENT_DONE (waits for it); not from a sink. */
    void (*free)(struct generation *r);
    /* Returns the prompt as text and as ids without answering; each output may be NULL. Free *text and *ids with
     * mem_free. */
    int (*render)(struct backend *b, const struct request *a, char **text, int32_t **ids, size_t *n,
                  struct err *e);
    void (*close)(struct backend *b);
    /* May be NULL. Returns the ids of the prompt and of the first choice's answer, including the end token. Call after
     * that choice's EVENT_END; the views are valid as long as r. */
    void (*tokens)(const struct generation *r, const int32_t **prompt, int32_t *n_prompt,
                   const int32_t **answer, int32_t *n_answer);
    /* May be NULL. Writes lines "Name: value" for the response's header; call after prepare. */
    void (*headers)(struct generation *r, struct buf *out);
    /* May be NULL. Returns the night whose files the answer uses (learned.h); 0: none. Call after prepare. */
    int64_t (*night)(const struct generation *r);
};

/* What the local backend needs; everything is borrowed until close. */
struct backend_model {
    /* NULL if the engine has no weights (tests) or libllama runs the model */
    struct model *m;
    const struct gguf *gguf; /* the file that libllama runs */
    struct engine *engine;
    struct vision *vision; /* NULL: the model cannot process images */
    const struct tok *tok;
    const struct chat_template *template; /* NULL: only raw prompts */
    const struct lora_use *loras;         /* [n_lora], as loaded at the start */
    int32_t n_lora, n_seq;
    /* default variables of the template; those of a request override them; or NULL */
    const json_t *template_context;
    const char *engram_dir;  /* folder of n-gram tables; NULL: in the user's data directory */
    struct learned *learned; /* what nights learned (learned.h); NULL: nothing */
    const char *shared_dir;  /* for the tokens of answers (replay_shared.h); NULL: not shared */
};

/* The model file's metadata and tensor directory, no matter who runs it; NULL: none. */
const struct gguf *backend_model_file(const struct backend_model *m);

/* Creates a backend over one engine. close frees the backend, not what it borrows. */
int backend_local_new(struct backend **out, const struct backend_model *m, const char *name,
                      struct err *e);

#endif

/* ask.h: one parsed request in model terms, who answers it, and the events of the answer.
 *
 * The server turns each API's JSON into a struct ask and each event back into that API's frames; what
 * stands between is a struct ask_backend. The first is the local engine (ask_local.c); an orchestrator
 * is another: it receives the same ask, asks backends of its own, and reports the same events.
 *
 *   prepare --start--> (waiting) --> events ... --> ASK_END of each choice --> ASK_DONE --> free
 *
 * Who owns what: the ask is its maker's, unchanged from prepare until run free; strings and arrays in it
 * live in its arena. Events are views that are valid during the call. They arrive in order, from one
 * thread at a time (the engine's), and the sink must not block. After ASK_DONE nothing arrives. Errors that
 * a client can mend begin with the request field's name and a colon ("max_tokens: expected ..."). */
#ifndef CHIMERE_ENGINE_ASK_H
#define CHIMERE_ENGINE_ASK_H

#include "base/mem.h"
#include "engine/answer.h"

struct engram_table;

enum { ASK_MAX_CHOICES = 16, ASK_MAX_TOOLS = 256, ASK_MAX_LORAS = 16 };

enum ask_choice { ASK_TOOLS_AUTO, ASK_TOOLS_NONE, ASK_TOOLS_REQUIRED, ASK_TOOLS_NAMED };
enum ask_format { ASK_TEXT, ASK_JSON_OBJECT, ASK_JSON_SCHEMA, ASK_GBNF };

struct ask_lora { /* of the adapters that were loaded at start, by place */
    int32_t id;
    float scale;
};

struct ask {
    struct arena arena; /* owns strings and arrays below */

    /* the question: messages, or a raw prompt */
    json_t
        *messages;  /* owned; [{role, content: text or text parts, reasoning_content?, tool_calls?,
                         tool_call_id?}] as OpenAI writes them, arguments as JSON text; NULL: raw */
    json_t *prompt; /* owned; raw: a string or a list of token ids, NULL beside messages */
    json_t *tools;  /* owned; OpenAI tool list, or NULL */
    json_t *
        tool_forms; /* owned; of tools that the client named in another form: name -> {"custom": true}
                           or {"namespace", "name"}; for the server that writes their calls; or NULL */
    enum ask_choice tool_choice;
    const char *tool_name;    /* ASK_TOOLS_NAMED */
    bool one_call;            /* parallel_tool_calls false: the answer ends behind its first call */
    bool continue_last;       /* the last message is an assistant's, to be continued */
    bool think;               /* let the model think first */
    json_t *template_context; /* owned; further variables of the template, or NULL */

    /* the answer's form */
    enum ask_format format;
    json_t *schema;      /* owned; ASK_JSON_SCHEMA */
    const char *grammar; /* ASK_GBNF */
    const char **stops;  /* [n_stop] */
    size_t n_stop;
    const int32_t *stop_tokens; /* [n_stop_token]; they end the answer as an end token does */
    size_t n_stop_token;
    bool keep_stop;     /* the stop text that ended it is part of the answer */
    bool no_answer;     /* the prompt alone is evaluated; max_tokens is 1 */
    int32_t max_ms;     /* of generating; 0: no limit */
    int32_t max_tokens; /* <= 0: up to the context */
    int32_t n;          /* choices, 1..ASK_MAX_CHOICES; choice i takes seed + i */
    bool echo;          /* raw: the prompt comes first */
    bool probs;         /* ASK_TOKEN events with sampling.n_probs alternatives */
    /* Arrays in the arena; thinking marks and the grammar are filled by the backend. */
    struct sampler_params sampling;

    /* how it is served */
    const char *
        session; /* a conversation's name (`user` or a session header), or NULL: its state is kept */
    const char *user; /* the person behind the owner, as the client names them (`user`), or NULL */
    const char
        *owner;     /* the caller's identity: of an API key or an address; NULL: the local user */
    uint64_t scope; /* requests of one scope share cached states and answers; 0: the default one */
    bool no_cache;  /* cache_prompt false: evaluate the whole prompt */
    bool keep_end;  /* the answer will be continued from its very end, maybe in several ways */
    int32_t slot;   /* id_slot, -1: any */
    int64_t deadline_ns;          /* on clock_ns; 0: none. The server cancels behind it */
    const struct ask_lora *loras; /* [n_lora] */
    int32_t n_lora;               /* -1: all as they were loaded */
    bool progress;                /* ASK_PREFILL events are wanted */

    /* What the request says to the n-gram memory and the orchestrator: {"engram": .., "odo": ..}, each
     * checked by its reader; owned, or NULL. */
    json_t *extra;
    /* An orchestrator's: a table for this request alone, mixed in beside those of extra.engram; borrowed until
     * run free, or NULL. recall: the question that it is asked; NULL: the last message. */
    const struct engram_table *table;
    const char *recall;
};

void ask_init(struct ask *a);
uint64_t ask_owner_hash(const struct ask *a); /* 0: the local user */
/* The scope of one caller, or of one user of that caller; never 0. */
uint64_t ask_scope(const char *owner, const char *user);
void ask_fini(struct ask *a);

enum ask_finish { ASK_STOP, ASK_LENGTH, ASK_CALLS, ASK_CANCELLED, ASK_FAILED };

enum ask_event_kind {
    ASK_PREFILL, /* n_done of n_prompt prompt tokens */
    ASK_TOKEN,   /* only with ask.probs: token, text[n] its bytes, probs; before its ASK_CHAT */
    ASK_CHAT,    /* chat: text, reasoning, a call and its arguments */
    ASK_NOTE,    /* an orchestrator's step: name, text[n] is a JSON object */
    ASK_END,     /* choice ended: end */
    ASK_DONE,    /* all choices ended: the last event */
};

struct ask_end {
    enum ask_finish finish;
    const char *stop;          /* view: the stop string that ended it, or NULL */
    struct engine_stats stats; /* an orchestrator sums its calls */
    int32_t n_reasoning;       /* of stats.n_generated */
    const struct err *err;     /* view, ASK_FAILED */
};

struct ask_event {
    enum ask_event_kind kind;
    int32_t choice;
    int32_t n_done, n_prompt, n_cached;
    int32_t token;
    const struct sampler_probs *probs; /* view */
    const struct chat_event *chat;     /* view */
    const struct ask_end *end;         /* view */
    const char *name, *text;           /* views */
    size_t n;
};

struct ask_sink {
    int (*event)(void *ud, const struct ask_event *ev); /* nonzero: no more, as cancel */
    void *ud;                                           /* borrowed until ASK_DONE */
};

struct ask_model;
struct ask_backend;

struct ask_run { /* first member of each backend's own */
    struct ask_backend *backend;
};

struct ask_backend {
    const struct ask_ops *ops;
    char name[128]; /* the model's name in the API */
    struct ask_model
        *model; /* borrowed until free; what tokens and templates mean; an orchestrator gives
                                the model that it asks */
};

struct ask_ops {
    /* Everything that takes time and can be refused: template, tokens, grammar. Any thread, many at once.
     * *n_prompt: tokens of the prompt. sink is copied. */
    int (*prepare)(struct ask_backend *b, const struct ask *a, const struct ask_sink *sink,
                   struct ask_run **out, int32_t *n_prompt, struct err *e);
    /* Quick; any thread, also from within a sink. On error nothing was sent and nothing will be. */
    int (*start)(struct ask_run *r, struct err *e);
    /* Takes effect within one step; events go on to ASK_DONE. Any thread, once start has returned. */
    void (*cancel)(struct ask_run *r);
    void (*free)(
        struct ask_run *r); /* never started, or after ASK_DONE (waits for it); not in a sink */
    /* Prompt text and ids without answering; each out may be NULL. *text, *ids by mem_free. */
    int (*render)(struct ask_backend *b, const struct ask *a, char **text, int32_t **ids, size_t *n,
                  struct err *e);
    void (*close)(struct ask_backend *b);
    /* May be NULL. Lines "Name: value" for the response's head, of a prepared run. */
    void (*headers)(struct ask_run *r, struct buf *out);
};

/* What a local answer needs; everything borrowed until close. */
struct ask_model {
    struct model *m; /* NULL over a weightless engine */
    struct engine *engine;
    const struct tok *tok;
    const struct chat_template *template; /* NULL: raw prompts only */
    const struct lora_use *loras;         /* [n_lora] as loaded */
    int32_t n_lora, n_seq;
    const json_t
        *template_context;  /* further variables of the template, a request's come on top; NULL */
    const char *engram_dir; /* folder of n-gram tables; NULL: the user's own */
};

/* The backend over one engine; close frees it, not what it borrows. */
int ask_local_new(struct ask_backend **out, const struct ask_model *m, const char *name,
                  struct err *e);

#endif

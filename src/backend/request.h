/* request.h: one parsed request in terms of the model: the question, the format of the answer, how to execute it.
 *
 * The server converts each API's JSON to a struct request, and a backend (backend.h) serves it. The creator owns it and
 * must not change it from prepare until the generation is freed. Its strings and arrays are in its arena. */
#ifndef CHIMERE_BACKEND_REQUEST_H
#define CHIMERE_BACKEND_REQUEST_H

#include "base/mem.h"
#include "backend/answer.h"

struct engram_table;

enum { REQUEST_MAX_CHOICES = 16, REQUEST_MAX_TOOLS = 256, REQUEST_MAX_LORAS = 16 };

enum request_tool_choice {
    REQUEST_TOOLS_AUTO,
    REQUEST_TOOLS_NONE,
    REQUEST_TOOLS_REQUIRED,
    REQUEST_TOOLS_NAMED
};
enum request_search { REQUEST_NO_SEARCH, REQUEST_MAY_SEARCH, REQUEST_SEARCH_FIRST };
enum request_format { REQUEST_TEXT, REQUEST_JSON_OBJECT, REQUEST_JSON_SCHEMA, REQUEST_GBNF };

struct request_lora { /* an adapter that was loaded at the start, by index */
    int32_t id;
    float scale;
};

struct request {
    struct arena arena; /* owns strings and arrays below */

    /* the question: messages, or a raw prompt */
    /* owned; [{role, content: text or parts, reasoning_content?, tool_calls?, tool_call_id?}] in OpenAI's form,
     * arguments as JSON text; NULL: raw prompt */
    json_t *messages;
    json_t *prompt; /* owned; raw prompt: a string or a list of token ids; NULL with messages */
    json_t *tools;  /* owned; OpenAI tool list, or NULL */
    /* owned; for tools that the client declared in another form: name -> {"custom": true} or {"namespace", "name"}. The
     * server uses it to write their calls; or NULL */
    json_t *tool_forms;
    enum request_tool_choice tool_choice;
    const char *tool_name;      /* for REQUEST_TOOLS_NAMED */
    enum request_search search; /* search the web with the orchestrator's tool */
    bool one_call;             /* parallel_tool_calls false: the answer ends after its first call */
    bool no_generation_prompt; /* the template does not start an answer */
    bool continue_last;        /* the last message is the assistant's and is to be continued */
    bool think;                /* let the model think before it answers */
    json_t *template_context;  /* owned; additional template variables, or NULL */

    /* the format of the answer */
    enum request_format format;
    json_t *schema;      /* owned; REQUEST_JSON_SCHEMA */
    const char *grammar; /* REQUEST_GBNF */
    const char **stops;  /* [n_stop] */
    size_t n_stop;
    const int32_t *stop_tokens; /* [n_stop_token]; each ends the answer like an end token */
    size_t n_stop_token;
    bool keep_stop;     /* the stop string that ended the answer is part of it */
    bool no_answer;     /* only evaluate the prompt; max_tokens is 1 */
    int32_t max_ms;     /* limit of the generation time; 0: none */
    int32_t max_tokens; /* <= 0: as many as the context allows */
    int32_t n;          /* choices, 1..REQUEST_MAX_CHOICES; choice i uses seed + i */
    bool echo;          /* raw prompt: the answer begins with the prompt */
    bool probs;         /* EVENT_TOKEN events with sampling.n_probs alternatives */
    bool prompt_probs;  /* raw prompt: also send EVENT_PROMPT events; no state is reused */
    /* Arrays are in the arena; the backend sets thinking marks and the grammar. */
    struct sampler_params sampling;
    /* The client or a pipeline chose these members of sampling. Otherwise a remote server uses its own defaults. */
    bool has_temperature, has_top_p;

    /* how to execute it */
    /* name of a conversation whose state is kept (`user` or a session header), or NULL */
    const char *session;
    const char *user; /* the user of the owner's key, as the client names them (`user`), or NULL */
    /* identity of the caller's API key or address; NULL: the local user */
    const char *owner;
    /* only requests of the same scope share cached states and answers; 0: default */
    uint64_t scope;
    bool rules;    /* a user's request: it gets the rules of a night (learned.h) */
    bool no_cache; /* cache_prompt false: evaluate the whole prompt */
    bool keep_end; /* the answer will be continued from its exact end, possibly several times */
    int32_t slot;  /* id_slot, -1: any */
    int64_t deadline_ns;              /* on clock_ns; 0: none. The server cancels after it */
    const struct request_lora *loras; /* [n_lora] */
    int32_t n_lora;                   /* -1: all adapters, as loaded */
    struct moe_keep keep;             /* `experts`; mass 0: the server's setting */
    bool progress;                    /* send EVENT_PREFILL events */

    /* Fields for the n-gram memory and the orchestrator: {"engram": .., "odo": ..}. Their readers check them; owned, or
     * NULL. */
    json_t *extra;
    /* Set by an orchestrator. table: for this request only, in addition to those of extra.engram; borrowed until the
     * generation is freed, or NULL. recall: the question for it; NULL: the last message. */
    const struct engram_table *table;
    const char *recall;
};

void request_init(struct request *a);
/* Sets a float of sampling, by its offset in struct sampler_params, as chosen by the client. */
void request_choose(struct request *a, size_t at, float value);
uint64_t request_owner_hash(const struct request *a); /* 0: the local user */
/* Returns the scope of a caller, or of one user of that caller; never 0. */
uint64_t request_scope(const char *owner, const char *user);
void request_fini(struct request *a);
/* Returns the text of the last user message; free it with mem_free. NULL: out of memory. */
char *request_question(const json_t *messages, bool *has_image);
/* Returns the text of the only message, if it is a user's plain text: a question that stands alone. NULL: its answer
 * also depends on other messages. */
const char *request_lone_question(const json_t *messages);

#endif

/* request.h: one parsed request in model terms: the question, the form of the answer, how it is served.
 *
 * The server turns each API's JSON into a struct request; a backend (backend.h) serves it. Its maker owns
 * it and leaves it unchanged from prepare until the generation is freed; strings and arrays in it live in
 * its arena. */
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

struct request_lora { /* of the adapters that were loaded at start, by place */
    int32_t id;
    float scale;
};

struct request {
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
    enum request_tool_choice tool_choice;
    const char *tool_name;      /* REQUEST_TOOLS_NAMED */
    enum request_search search; /* the web, by the orchestrator's tool */
    bool one_call;             /* parallel_tool_calls false: the answer ends after its first call */
    bool no_generation_prompt; /* the template does not open an answer */
    bool continue_last;        /* the last message is an assistant's, to be continued */
    bool think;                /* let the model think first */
    json_t *template_context;  /* owned; further variables of the template, or NULL */

    /* the answer's form */
    enum request_format format;
    json_t *schema;      /* owned; REQUEST_JSON_SCHEMA */
    const char *grammar; /* REQUEST_GBNF */
    const char **stops;  /* [n_stop] */
    size_t n_stop;
    const int32_t *stop_tokens; /* [n_stop_token]; they end the answer as an end token does */
    size_t n_stop_token;
    bool keep_stop;     /* the stop text that ended it is part of the answer */
    bool no_answer;     /* the prompt alone is evaluated; max_tokens is 1 */
    int32_t max_ms;     /* of generating; 0: no limit */
    int32_t max_tokens; /* <= 0: up to the context */
    int32_t n;          /* choices, 1..REQUEST_MAX_CHOICES; choice i takes seed + i */
    bool echo;          /* raw: the prompt comes first */
    bool probs;         /* EVENT_TOKEN events with sampling.n_probs alternatives */
    bool prompt_probs;  /* raw: EVENT_PROMPT events, too; no state is reused then */
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
    int64_t deadline_ns;              /* on clock_ns; 0: none. The server cancels behind it */
    const struct request_lora *loras; /* [n_lora] */
    int32_t n_lora;                   /* -1: all as they were loaded */
    struct moe_keep keep;             /* `experts`; mass 0: as the server was told */
    bool progress;                    /* EVENT_PREFILL events are wanted */

    /* What the request says to the n-gram memory and the orchestrator: {"engram": .., "odo": ..}, each
     * checked by its reader; owned, or NULL. */
    json_t *extra;
    /* An orchestrator's: a table for this request alone, mixed in beside those of extra.engram; borrowed until
     * run free, or NULL. recall: the question that it is asked; NULL: the last message. */
    const struct engram_table *table;
    const char *recall;
};

void request_init(struct request *a);
uint64_t request_owner_hash(const struct request *a); /* 0: the local user */
/* The scope of one caller, or of one user of that caller; never 0. */
uint64_t request_scope(const char *owner, const char *user);
void request_fini(struct request *a);
/* Text of the last user message, by mem_free; NULL: out of memory. */
char *request_question(const json_t *messages, bool *has_image);

#endif

/* chimere.h: language models in your program. Model, session, chat and server; everything else is private.
 *
 *   model    an open file: weights, tokenizer, and an engine that answers many sessions at once
 *   session  one conversation or text; the engine keeps its state, so continuing needs no new prefill
 *   chat     takes messages and returns an answer, in pieces while it is generated
 *   server   serves the same models with the OpenAI and Anthropic HTTP APIs
 *
 *     struct chimere_model_options o;
 *     chimere_model_options_init(&o);
 *     o.path = "model.gguf";
 *     struct chimere_model *m;
 *     struct chimere_error e;
 *     if (chimere_model_open(&m, &o, &e)) ... e.text is the error, e.hint what to do
 *
 * Functions return 0 or a negative CHIMERE_E* code (chimere_strerror) and fill *e, which may be NULL. Strings are
 * UTF-8. Any thread may call any function. One session answers one request at a time (CHIMERE_EBUSY); different
 * sessions of a model run concurrently. The caller closes what it opened: sessions and servers first, then models.
 * Free returned memory with chimere_free. Options structs begin with their size: initialise them with their _init
 * function, so that the program also works with later versions of the library. */
#ifndef CHIMERE_H
#define CHIMERE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CHIMERE_API __attribute__((visibility("default")))
#else
#define CHIMERE_API
#endif

#define CHIMERE_VERSION "0.1.0"
CHIMERE_API const char *chimere_version(void); /* version of the loaded library */

/* ---- errors ---- */

struct chimere_error {
    int code;       /* 0 or CHIMERE_E* */
    char text[480]; /* one sentence */
    char hint[160]; /* what to do next; may be empty */
};

#ifndef CHIMERE_BASE_ERR_H /* the library's own sources define it there */
enum chimere_code {
    CHIMERE_OK = 0,
    CHIMERE_EINVAL = -1,
    CHIMERE_ENOMEM = -2,
    CHIMERE_EIO = -3,
    CHIMERE_ENOENT = -4,
    CHIMERE_EFORMAT = -5,
    CHIMERE_EUNSUPPORTED = -6,
    CHIMERE_ELIMIT = -7,
    CHIMERE_ECHECKSUM = -8,
    CHIMERE_EMISMATCH = -9,
    CHIMERE_ECANCELLED = -10,
    CHIMERE_EBUSY = -11,
    CHIMERE_EDEVICE = -12,
    CHIMERE_ENUMERIC = -13,
    CHIMERE_EREFUSED = -14,
    CHIMERE_ETIMEOUT = -15,
    CHIMERE_EINTERNAL = -16
};
#endif
CHIMERE_API const char *chimere_strerror(int code); /* short, static text */
CHIMERE_API void chimere_free(void *p);

/* ---- model ---- */

struct chimere_model;

struct chimere_model_options { /* pointers: borrowed during the call */
    size_t size;
    const char *path; /* GGUF file; for a split model the first part */
    int32_t threads;  /* 0: one per core */
    int64_t context;  /* limit of tokens per session; 0: the model's, or what fits in memory */
    int32_t parallel; /* sessions that answer concurrently; 0: 4, or fewer if memory is short */
    /* limit; 0: the free memory. If more is needed, opening fails and states the numbers */
    uint64_t memory_bytes;
    const char *cache_type;   /* of keys and values: "f32", "f16", "q8_0", "q4_0"; NULL: "f16" */
    const char *const *loras; /* [n_lora] adapters, "FILE" or "FILE:SCALE" */
    size_t n_lora;
    bool progress; /* show a progress bar on standard error while loading */
};
CHIMERE_API void chimere_model_options_init(struct chimere_model_options *o);

CHIMERE_API int chimere_model_open(struct chimere_model **out,
                                   const struct chimere_model_options *o, struct chimere_error *e);
CHIMERE_API void chimere_model_close(struct chimere_model *m);

CHIMERE_API const char *chimere_model_name(const struct chimere_model *m); /* lives as long as m */
CHIMERE_API int64_t chimere_model_context(const struct chimere_model *m);
CHIMERE_API bool chimere_model_has_chat(const struct chimere_model *m); /* a chat template */
/* Returns its memory use, as a few lines of text. */
CHIMERE_API int chimere_model_plan(const struct chimere_model *m, char **text);

/* Converts text to token ids and back. control: text such as <|im_end|> becomes the control token. */
CHIMERE_API int chimere_tokenize(const struct chimere_model *m, const char *text, size_t n,
                                 bool control, int32_t **ids, size_t *n_ids,
                                 struct chimere_error *e);
CHIMERE_API int chimere_detokenize(const struct chimere_model *m, const int32_t *ids, size_t n_ids,
                                   char **text, size_t *n, struct chimere_error *e);

/* ---- session ---- */

struct chimere_session;

CHIMERE_API int chimere_session_new(struct chimere_session **out, struct chimere_model *m,
                                    struct chimere_error *e);
CHIMERE_API void chimere_session_free(struct chimere_session *s); /* also ends its answer */
/* From any thread: ends the current answer within one step, with finish = CHIMERE_CANCELLED. */
CHIMERE_API void chimere_session_cancel(struct chimere_session *s);

/* ---- chat ---- */

enum chimere_event_kind {
    CHIMERE_TEXT,      /* text[n]: a piece of the answer, in whole characters */
    CHIMERE_REASONING, /* text[n]: a piece of the model's thinking before the answer */
    CHIMERE_CALL,      /* call `index` begins: name, id */
    CHIMERE_ARGUMENTS, /* text[n]: a piece of the arguments of call `index`; together JSON */
    CHIMERE_CALL_END,  /* call `index` is complete */
    CHIMERE_PREFILL    /* n_done of n_prompt prompt tokens were read */
};

struct chimere_event { /* valid during the callback */
    enum chimere_event_kind kind;
    const char *text;
    size_t n;
    int index;
    const char *name, *id;
    int32_t n_done, n_prompt;
};

enum chimere_tool_choice { CHIMERE_TOOLS_AUTO, CHIMERE_TOOLS_NONE, CHIMERE_TOOLS_REQUIRED };

struct chimere_options { /* pointers: borrowed during the call */
    size_t size;
    int32_t max_tokens;                                        /* 0: limited only by the context */
    uint64_t seed;                                             /* 0: a new one each time */
    float temperature;                                         /* 0: always the likeliest token */
    int32_t top_k;                                             /* 0: off */
    float top_p, min_p;                                        /* 1, 0: off */
    float repeat_penalty, presence_penalty, frequency_penalty; /* 1, 0, 0: off */
    const char *const *stops; /* [n_stop] texts that end the answer and are not part of it */
    size_t n_stop;
    bool think;           /* the model may think before the answer, if it can */
    int32_t think_budget; /* limit of thinking tokens; -1: no limit */
    const char *tools;    /* JSON: a list of tools in OpenAI's format; NULL: none */
    enum chimere_tool_choice tool_choice;
    /* the answer is JSON with this schema; "{}": any object; NULL: free text */
    const char *json_schema;
    const char *grammar; /* or the answer matches this GBNF grammar */
    const char *more; /* JSON object: other fields of OpenAI's request, {"logit_bias": ..}; NULL */
    /* Called for each piece, on a thread of the library; must not block. Nonzero ends the answer. */
    int (*on_event)(void *ud, const struct chimere_event *ev);
    void *ud;
};
CHIMERE_API void chimere_options_init(struct chimere_options *o);

enum chimere_finish {
    CHIMERE_FINISHED, /* the model ended the answer, or a stop text occurred */
    CHIMERE_LENGTH,   /* max_tokens was reached, or the context is full */
    CHIMERE_CALLS,    /* the model calls tools: answer them with messages of role "tool" */
    CHIMERE_CANCELLED
};

struct chimere_answer {
    enum chimere_finish finish;
    char *text; /* owned: the text of the answer */
    char *
        message; /* owned: JSON, the assistant's message with reasoning and calls, for the history */
    int32_t n_prompt, n_cached,
        n_generated; /* tokens; n_cached of n_prompt were not evaluated again */
    double prefill_ms, decode_ms;
};
CHIMERE_API void chimere_answer_free(struct chimere_answer *a);

/* messages: JSON, the whole conversation in OpenAI's format: [{"role": "user", "content": "Hi"}]. Blocks until the
 * answer has ended. On success *a is set; free it with chimere_answer_free. o may be NULL. */
CHIMERE_API int chimere_chat(struct chimere_session *s, const char *messages,
                             const struct chimere_options *o, struct chimere_answer *a,
                             struct chimere_error *e);
/* The same without a template: continues the text. The options think and tools do not apply. */
CHIMERE_API int chimere_complete(struct chimere_session *s, const char *text,
                                 const struct chimere_options *o, struct chimere_answer *a,
                                 struct chimere_error *e);

/* ---- server ---- */

struct chimere_server;

struct chimere_server_options { /* pointers: borrowed until chimere_server_close */
    size_t size;
    const char *host; /* NULL: 127.0.0.1 */
    int port;         /* 0: any free port */
    const char *keys; /* text with one API key per line; NULL: no key is required */
};
CHIMERE_API void chimere_server_options_init(struct chimere_server_options *o);

/* Serves the models under their names; the first is the default. Returns immediately. */
CHIMERE_API int chimere_server_open(struct chimere_server **out,
                                    struct chimere_model *const *models, size_t n_model,
                                    const struct chimere_server_options *o,
                                    struct chimere_error *e);
CHIMERE_API int chimere_server_port(const struct chimere_server *s);
CHIMERE_API void chimere_server_close(struct chimere_server *s); /* cuts the current answers */

#ifdef __cplusplus
}
#endif
#endif

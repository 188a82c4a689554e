/* chat.h: converts a conversation to a prompt, and generated text to content, reasoning and tool calls.
 *
 * Prompt: the model's template is rendered with provenance (jinja.h). chat_encode recognises a control token only
 * where every byte comes from the template, so that no content can forge one. Plain text is encoded across these
 * borders as if it were one string.
 *
 * Output: a parser receives text in pieces of any size. The same text gives the same events for any pieces, once
 * adjacent deltas of one kind are joined. Text that begins like a call but is not a call is reported as content.
 * The parser never completes a call: the last brace of the arguments is reported only with CHAT_CALL_END. So the
 * reported part of a call that was cut or is wrong is never valid JSON.
 *
 * A chat_template is immutable and shared; a chat_parser belongs to one answer and one thread. */
#ifndef CHIMERE_TEXT_CHAT_CHAT_H
#define CHIMERE_TEXT_CHAT_CHAT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/err.h"
#include "text/jinja/jinja.h"
#include "text/tok/tok.h"

/* How a model writes tool calls, detected from the text of its template. The table is in chat_form.c. */
enum chat_calls {
    CHAT_CALLS_NONE,
    CHAT_CALLS_QWEN_XML, /* <tool_call><function=N><parameter=K>\nV\n</parameter></function></tool_call> */
    CHAT_CALLS_HERMES, /* <tool_call>{"name":..,"arguments":{..}}</tool_call> (Qwen3, Granite 4) */
    CHAT_CALLS_NEMOTRON, /* <TOOLCALL>[{..},..]</TOOLCALL> */
    CHAT_CALLS_GRANITE,  /* <|tool_call|>[{..},..] */
    CHAT_CALLS_LLAMA, /* without a mark: {"name":..,"parameters":{..}}, [{..},..] or [f(a=1), ..] */
    CHAT_CALLS_MISTRAL,  /* [TOOL_CALLS][{..},..] and [TOOL_CALLS]name[ARGS]{..} */
    CHAT_CALLS_DEEPSEEK, /* <|tool_calls_begin|><|tool_call_begin|>... with the model's wide bars */
    CHAT_CALLS_GLM,      /* <tool_call>N<arg_key>K</arg_key><arg_value>V</arg_value></tool_call> */
    CHAT_CALLS_HUNYUAN,  /* the same as GLM, with :opensource in its tags */
    CHAT_CALLS_LONGCAT,  /* <longcat_tool_call>, JSON or keys and values */
    CHAT_CALLS_SOLAR,    /* <|tool_call:start|>N, <|tool_arg:start|>K<|tool_arg:value|>V */
    CHAT_CALLS_MINIMAX,  /* <invoke name="N"><parameter name="K">V</parameter></invoke> */
    CHAT_CALLS_DSML,     /* DeepSeek V3.2 and V4: as MiniMax, with DSML in its tags */
    CHAT_CALLS_STEP,
    CHAT_CALLS_ATEM,
    CHAT_CALLS_MINICPM,     /* <function name="N"><param name="K">V</param></function> */
    CHAT_CALLS_KIMI,        /* <|tool_call_begin|>functions.N:0<|tool_call_argument_begin|>{..} */
    CHAT_CALLS_SOLAR_JSON,  /* <|tool_call:begin|>ID<|tool_call:name|>N<|tool_call:args|>{..} */
    CHAT_CALLS_STEP_AUDIO,  /* <|CALL_START|>function\nN\n{..} */
    CHAT_CALLS_FUNCTIONARY, /* >>>N\n{..}, >>>all\ncontent */
    CHAT_CALLS_GEMMA,       /* <|tool_call>call:N{k:<|"|>v<|"|>}<tool_call|> */
    CHAT_CALLS_LFM,         /* <|tool_call_start|>[f(a=1), ..]<|tool_call_end|> */
    CHAT_CALLS_OLMO,        /* <function_calls>f(a=1)\ng()</function_calls> */
    CHAT_CALLS_TOOL_CALLS,  /* <tool_calls>[{..},..]</tool_calls> */
    CHAT_CALLS_COHERE,      /* <|START_ACTION|>[{"tool_name":..,"parameters":{..}},..] */
    CHAT_CALLS_APERTUS,     /* <|tools_prefix|>[{"N":{..}},..] */
    CHAT_CALLS_GIGACHAT,    /* <|function_call|>{..} */
    CHAT_CALLS_INTERN,      /* <|action_start|><|plugin|>{..}<|action_end|> */
    CHAT_CALLS_HARMONY, /* <|channel|>commentary to=functions.N <|constrain|>json<|message|>{..} */
    CHAT_CALLS_COUNT,
};
struct chat_think {
    const char *open, *close; /* static */
};
const char *chat_calls_name(enum chat_calls c); /* "qwen-xml", "hermes", ... */
bool chat_calls_from_name(const char *name, enum chat_calls *c);

/* Capabilities of a template, found from its text and from small test renders. */
struct chat_caps {
    enum chat_calls calls;
    bool has_system;                /* renders system messages */
    bool has_tools;                 /* renders the tools given */
    bool has_reasoning;             /* contains marks of reasoning */
    const struct chat_think *think; /* the marks of reasoning, static; NULL: none */
    bool takes_enable_thinking;
    bool wants_json_args; /* expects tool call arguments as JSON text, not as an object */
    bool wants_parts;     /* expects content as a list of typed parts, not as a string */
};

struct chat_template;

int chat_template_new(struct chat_template **out, const char *text, size_t n, struct err *e);
void chat_template_free(struct chat_template *t);
/* view; lives as long as t */
const struct chat_caps *chat_template_caps(const struct chat_template *t);
/* Returns the form that the template uses for every message, not only for calls; CHAT_CALLS_NONE if there is none,
 * also without a template. */
enum chat_calls chat_template_frames(const struct chat_template *t);

struct chat_prompt {
    struct jinja_output out; /* the text and its runs of provenance */
    bool in_think;           /* the prompt ends inside an opened reasoning block */
};

/* Renders `context` (messages, tools, add_generation_prompt, enable_thinking, bos_token, eos_token, and other
 * values from the caller). as_is: uses exactly the given context. Otherwise a copy is first adapted to the
 * template: reasoning fields under all their names, tool call arguments as object or text, content parts joined or
 * made, null content. Trusted strings of the context: *_token at the top level, and message roles that are known
 * names. Call chat_prompt_fini on prompt also after an error. */
int chat_render(const struct chat_template *t, json_t *context, bool as_is, const struct tm *now,
                struct chat_prompt *prompt, struct err *e);
void chat_prompt_fini(struct chat_prompt *p);

/* Encodes a prompt. Adds the BOS that the tokenizer's files ask for, unless the prompt begins with it. Free *ids
 * with mem_free. */
int chat_encode(const struct tok *tok, const struct chat_prompt *p, int32_t **ids, size_t *n,
                struct err *e);
/* Encodes the bytes from..to of a prompt. The range must begin and end at control tokens; BOS is only added at
 * byte 0. */
int chat_encode_range(const struct tok *tok, const struct chat_prompt *p, size_t from, size_t to,
                      int32_t **ids, size_t *n, struct err *e);

/* Returns an upper bound of the memory for the values of a JSON text. The text is scanned, not parsed. */
size_t chat_json_cost(const char *text, size_t n);
enum { CHAT_JSON_MAX_COST = 128 << 20 };
/* Parses a JSON object of at most CHAT_JSON_MAX_COST; NULL on error, with an error message. Numbers beyond 64 bits
 * or double precision become the nearest double; NUL and lone surrogates become U+FFFD. */
json_t *chat_json_object(const char *text, size_t n, const char *what, struct err *e);
/* Parses the same object, but each integer beyond 64 bits becomes a string: a NUL, then its text. NULL if the text
 * has no such integer, or on error. */
json_t *chat_json_exact(const char *text, size_t n);

enum chat_event_kind {
    CHAT_CONTENT,   /* text[n] */
    CHAT_REASONING, /* text[n] */
    CHAT_CALL,      /* call `index` begins: name and id are set */
    /* text[n] continues the arguments of call `index`; they are a JSON object after CHAT_CALL_END */
    CHAT_ARGS,
    CHAT_CALL_END, /* call `index` is complete and valid */
    /* reason is set; the text ended inside call `index`; no more text of the call follows */
    CHAT_CALL_CUT,
    /* reason is set; index of the begun call, which is now void, or -1. The raw text follows as CHAT_CONTENT (as
     * CHAT_REASONING inside a reasoning block). */
    CHAT_MALFORMED,
};

struct chat_event { /* pointers are valid during the callback */
    enum chat_event_kind kind;
    const char *text; /* view; also NUL-terminated */
    size_t n;
    /* calls are numbered from 0 in order of appearance; void ones keep their number */
    int index;
    const char *name;   /* view, CHAT_CALL */
    const char *id;     /* view, CHAT_CALL: the model's id, or 9 generated letters and digits */
    const char *reason; /* view, CHAT_CALL_CUT and CHAT_MALFORMED */
};

struct chat_parse_spec {
    enum chat_calls calls;
    const struct chat_think *think; /* NULL: <think> */
    /* report reasoning separately; false: <think> is plain content */
    bool reasoning;
    /* the prompt has already opened the block (chat_prompt.in_think) */
    bool in_think;
    /* frames are parsed, but calls remain text; for forms that frame every message (harmony) */
    bool no_calls;
    bool hold; /* report a call only when it has ended: no argument deltas */
    json_t *
        tools; /* borrowed until chat_parser_free: OpenAI tool list, for types and names; or NULL */
    uint64_t id_seed;
    /* A nonzero result stops the parse; push and finish return it. */
    int (*on_event)(void *arg, const struct chat_event *ev);
    void *arg;
};

struct chat_parser;

int chat_parser_new(struct chat_parser **out, const struct chat_parse_spec *spec, struct err *e);
void chat_parser_free(struct chat_parser *p);
int chat_parser_push(struct chat_parser *p, const char *text, size_t n);
/* Ends the text: reports what was held back; an open call is cut. is_cut: the text was cut by a limit or a stop
 * string and not ended by the model. An unfinished mark, or a call whose name is not complete, is then dropped;
 * otherwise it is content. */
int chat_parser_finish(struct chat_parser *p, bool is_cut);

struct chat_result {
    int n_call;      /* complete calls */
    int n_cut;       /* calls cut by the end of the text */
    int n_malformed; /* attempted calls that became text */
    int n_repaired;  /* of n_call: calls whose text did not have exactly the expected form */
    char reason[96]; /* reason of the first malformed call, otherwise "" */
};
void chat_parser_result(const struct chat_parser *p, struct chat_result *r);
/* Returns {"role":"assistant","content":..,"reasoning_content":..,"tool_calls":[..]} of the complete parts so far,
 * with arguments as JSON text; it can be added to a history. New reference; NULL: out of memory. */
json_t *chat_parser_message(const struct chat_parser *p);

#endif

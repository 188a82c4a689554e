/* chat.h: conversation -> prompt, and generated text -> content, reasoning and tool calls.
 *
 * Prompt: the model's template is rendered with provenance (jinja.h); chat_encode then recognises
 * control tokens only where every byte comes from the template, so that no content can forge one,
 * while plain text is encoded across the borders exactly as if it were one string.
 *
 * Output: a parser fed with text in any pieces. The same text gives the same events, whatever the
 * pieces, once neighbouring deltas of one kind are joined. Text that begins like a call and is not one
 * becomes content again. The parser never completes a call: the arguments' last brace is reported only
 * with CHAT_CALL_END, so what was reported of a call that is cut or goes wrong is never valid JSON.
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

/* How a model writes tool calls; found in the template's own text. chat_form.c has the table. */
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
    CHAT_CALLS_HUNYUAN,  /* the same with :opensource in its tags */
    CHAT_CALLS_LONGCAT,  /* <longcat_tool_call>, JSON or keys and values */
    CHAT_CALLS_SOLAR,    /* <|tool_call:start|>N, <|tool_arg:start|>K<|tool_arg:value|>V */
    CHAT_CALLS_MINIMAX,  /* <invoke name="N"><parameter name="K">V</parameter></invoke> */
    CHAT_CALLS_DSML,     /* DeepSeek V3.2 and V4: the same with DSML in its tags */
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

/* What a template can do, learned from its text and from small test renders. */
struct chat_caps {
    enum chat_calls calls;
    bool has_system;                /* renders system messages */
    bool has_tools;                 /* renders the tools given */
    bool has_reasoning;             /* knows marks of reasoning */
    const struct chat_think *think; /* its marks, static; NULL: none */
    bool takes_enable_thinking;
    bool wants_json_args; /* tool call arguments as JSON text, not as an object */
    bool wants_parts;     /* content as a list of typed parts, not as a string */
};

struct chat_template;

int chat_template_new(struct chat_template **out, const char *text, size_t n, struct err *e);
void chat_template_free(struct chat_template *t);
const struct chat_caps *chat_template_caps(const struct chat_template *t); /* view, lives as t */
/* The form that the template frames every message in, not only calls; none, also without a template. */
enum chat_calls chat_template_frames(const struct chat_template *t);

struct chat_prompt {
    struct jinja_output out; /* text and its runs */
    bool in_think;           /* the prompt ends inside an opened reasoning block */
};

/* Renders `context` (messages, tools, add_generation_prompt, enable_thinking, bos_token, eos_token,
 * and what else the caller passes on). as_is: exactly the context given; otherwise a copy is first
 * fitted to the template: reasoning fields under all their names, tool call arguments as object or
 * text, content parts joined or made, null content. Trusted context strings: *_token at the top, and
 * message roles that are known names. prompt is released by chat_prompt_fini also after an error. */
int chat_render(const struct chat_template *t, json_t *context, bool as_is, const struct tm *now,
                struct chat_prompt *prompt, struct err *e);
void chat_prompt_fini(struct chat_prompt *p);

/* Prompt to ids; adds the BOS that the tokenizer's files ask for unless the prompt begins with it.
 * *ids is freed with mem_free. */
int chat_encode(const struct tok *tok, const struct chat_prompt *p, int32_t **ids, size_t *n,
                struct err *e);
/* The same for bytes from..to of it, cut where control tokens stand; BOS only before byte 0. */
int chat_encode_range(const struct tok *tok, const struct chat_prompt *p, size_t from, size_t to,
                      int32_t **ids, size_t *n, struct err *e);

/* Bytes of memory that the values of a JSON text take at most once it is read: counted, not read. */
size_t chat_json_cost(const char *text, size_t n);
enum { CHAT_JSON_MAX_COST = 128 << 20 };
/* Reads a JSON object of at most CHAT_JSON_MAX_COST; NULL on error, with one clear sentence. Numbers beyond 64 bits or
 * double precision become the nearest double; NUL and lone surrogates become U+FFFD. */
json_t *chat_json_object(const char *text, size_t n, const char *what, struct err *e);
/* The same object with the text of each integer beyond 64 bits, as a string that begins with NUL; NULL if there may be
 * none, or on error. */
json_t *chat_json_exact(const char *text, size_t n);

enum chat_event_kind {
    CHAT_CONTENT,   /* text[n] */
    CHAT_REASONING, /* text[n] */
    CHAT_CALL,      /* call `index` begins: name, id */
    CHAT_ARGS, /* text[n] continues the arguments of call `index`, a JSON object after CHAT_CALL_END */
    CHAT_CALL_END, /* call `index` is complete and valid */
    CHAT_CALL_CUT, /* reason; the text ended inside call `index`; no text of the call follows */
    CHAT_MALFORMED, /* reason; index of the call that was begun, now void, or -1. The raw text follows as
                       CHAT_CONTENT (CHAT_REASONING inside a reasoning block). */
};

struct chat_event { /* pointers valid during the callback */
    enum chat_event_kind kind;
    const char *text; /* view; NUL-terminated too */
    size_t n;
    int index;          /* calls count from 0 in order of appearance; void ones keep their number */
    const char *name;   /* view, CHAT_CALL */
    const char *id;     /* view, CHAT_CALL: the model's own, or 9 letters and digits */
    const char *reason; /* view, CHAT_CALL_CUT and CHAT_MALFORMED */
};

struct chat_parse_spec {
    enum chat_calls calls;
    const struct chat_think *think; /* NULL: <think> */
    bool reasoning;                 /* split reasoning off; false: <think> is plain content */
    bool in_think;                  /* the prompt has opened the block (chat_prompt.in_think) */
    bool no_calls; /* the form frames all messages: frames are read, a call is text (harmony) */
    bool hold;     /* report a call only when it has ended: no argument deltas */
    json_t *
        tools; /* borrowed until chat_parser_free: OpenAI tool list, for types and names; or NULL */
    uint64_t id_seed;
    /* Nonzero stops the parse: push and finish return it. */
    int (*on_event)(void *arg, const struct chat_event *ev);
    void *arg;
};

struct chat_parser;

int chat_parser_new(struct chat_parser **out, const struct chat_parse_spec *spec, struct err *e);
void chat_parser_free(struct chat_parser *p);
int chat_parser_push(struct chat_parser *p, const char *text, size_t n);
/* The text has ended: flushes what was held back; a call that is open now is cut. is_cut: the text was cut
 * by a limit or a stop string rather than ended by the model: an unfinished mark, or a call without a
 * name so far, is dropped then; otherwise it is content. */
int chat_parser_finish(struct chat_parser *p, bool is_cut);

struct chat_result {
    int n_call;      /* complete calls */
    int n_cut;       /* calls that the end of the text cut */
    int n_malformed; /* attempts that became text */
    int n_repaired;  /* of n_call: calls whose text was not quite of the form */
    char reason[96]; /* of the first malformed one, else "" */
};
void chat_parser_result(const struct chat_parser *p, struct chat_result *r);
/* {"role":"assistant","content":..,"reasoning_content":..,"tool_calls":[..]} of the complete parts so
 * far, arguments as JSON text; safe to put into a history. New reference; NULL: out of memory. */
json_t *chat_parser_message(const struct chat_parser *p);

#endif

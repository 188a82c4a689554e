/* call_forms.h: the forms of calls that are forced, with a tokenizer for each: bytes, an end, and the form's
 * marks as control tokens. */
#ifndef CHIMERE_TEST_CALL_FORMS_H
#define CHIMERE_TEST_CALL_FORMS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "text/chat/chat.h"
#include "text/tok/tok.h"

enum { N_BYTE = 256, END = N_BYTE, FIRST_MARK, MAX_MARK = 12 };

/* Bytes, an end, and marks, all of them control tokens. */
static inline struct tok *toy_tok(const char *const *marks) {
    static char text[N_BYTE][4];
    struct slice pieces[FIRST_MARK + MAX_MARK] = {{0}};
    uint8_t kinds[FIRST_MARK + MAX_MARK];
    uint32_t n_moved = 0, n = FIRST_MARK;
    for (uint32_t b = 0; b < N_BYTE; b++) {
        bool own = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        int k = utf8_encode(own ? b : 256 + n_moved++, text[b]);
        pieces[b] = (struct slice){text[b], (size_t)k};
        kinds[b] = TOK_NORMAL;
    }
    pieces[END] = SLICE("<|end|>");
    kinds[END] = TOK_CONTROL;
    for (; *marks; marks++, n++) {
        pieces[n] = (struct slice){*marks, strlen(*marks)};
        kinds[n] = TOK_CONTROL;
    }
    struct tok_spec spec = {.model = TOK_BPE,
                            .pre = "qwen2",
                            .n_vocab = n,
                            .pieces = pieces,
                            .kinds = kinds,
                            .bos = -1,
                            .eos = END,
                            .unk = -1,
                            .sep = -1,
                            .pad = -1,
                            .cls = -1,
                            .mask = -1,
                            .eot = -1};
    struct tok *t = NULL;
    struct err e = {0};
    if (tok_new(&t, &spec, &e)) {
        fprintf(stderr, "%s\n", e.text);
        abort();
    }
    return t;
}

#define BAR "\xef\xbd\x9c"
#define LOW "\xe2\x96\x81"
#define DSML BAR "DSML" BAR
#define DS(words) "<" BAR "tool" LOW words BAR ">"
static const struct {
    enum chat_calls calls;
    const char *marks[MAX_MARK];
    const char *begins; /* as the models' own templates render a call */
} forms[] = {
    {CHAT_CALLS_QWEN_XML, {NULL}, "<tool_call>\n<function="},
    {CHAT_CALLS_HERMES, {"<tool_call>", "</tool_call>", NULL}, "<tool_call>\n{\"name\": \""},
    {CHAT_CALLS_NEMOTRON, {NULL}, "<TOOLCALL>[{\"name\": \""},
    {CHAT_CALLS_GRANITE, {"<|tool_call|>", NULL}, "<|tool_call|>[{\"name\": \""},
    {CHAT_CALLS_LLAMA, {NULL}, "{\"name\": \""},
    {CHAT_CALLS_MISTRAL, {"[TOOL_CALLS]", NULL}, "[TOOL_CALLS][{\"name\": \""},
    {CHAT_CALLS_MISTRAL, {"[TOOL_CALLS]", "[ARGS]", NULL}, "[TOOL_CALLS]"},
    {CHAT_CALLS_DEEPSEEK,
     {DS("calls" LOW "begin"), DS("call" LOW "begin"), DS("sep"), DS("call" LOW "end"),
      DS("calls" LOW "end"), NULL},
     DS("calls" LOW "begin") DS("call" LOW "begin") "function" DS("sep")},
    {CHAT_CALLS_KIMI,
     {"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>",
      "<|tool_call_argument_begin|>", "<|tool_call_end|>", NULL},
     "<|tool_calls_section_begin|><|tool_call_begin|>functions."},
    {CHAT_CALLS_SOLAR_JSON,
     {"<|tool_calls|>", "<|tool_call:begin|>", "<|tool_call:name|>", "<|tool_call:args|>",
      "<|tool_call:end|>", NULL},
     "<|tool_calls|><|tool_call:begin|>0<|tool_call:name|>"},
    {CHAT_CALLS_STEP_AUDIO, {"<|CALL_START|>", "<|CALL_END|>", NULL}, "<|CALL_START|>function\n"},
    {CHAT_CALLS_FUNCTIONARY, {NULL}, ""},
    {CHAT_CALLS_LFM,
     {"<|tool_call_start|>", "<|tool_call_end|>", NULL},
     "<|tool_call_start|>[{\"name\": \""},
    {CHAT_CALLS_OLMO, {NULL}, "<function_calls>[{\"name\": \""},
    {CHAT_CALLS_TOOL_CALLS, {NULL}, "<tool_calls>[{\"name\": \""},
    {CHAT_CALLS_COHERE,
     {"<|START_ACTION|>", "<|END_ACTION|>", NULL},
     "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \""},
    {CHAT_CALLS_APERTUS, {"<|tools_prefix|>", "<|tools_suffix|>", NULL}, "<|tools_prefix|>[{\""},
    {CHAT_CALLS_GIGACHAT, {"<|function_call|>", NULL}, "<|function_call|>{\"name\": \""},
    {CHAT_CALLS_INTERN,
     {"<|action_start|>", "<|plugin|>", "<|action_end|>", NULL},
     "<|action_start|><|plugin|>{\"name\": \""},
    {CHAT_CALLS_GLM, {NULL}, "<tool_call>"},
    {CHAT_CALLS_HUNYUAN, {NULL}, "<tool_call:opensource>"},
    {CHAT_CALLS_LONGCAT, {NULL}, "<longcat_tool_call>"},
    {CHAT_CALLS_MINIMAX, {NULL}, "<minimax:tool_call>\n<invoke name=\""},
    {CHAT_CALLS_STEP, {NULL}, "<steptml:invoke name=\""},
    {CHAT_CALLS_ATEM, {NULL}, "<atem:function_calls>\n<atem:invoke name=\""},
    {CHAT_CALLS_MINICPM, {NULL}, "<function name=\""},
    {CHAT_CALLS_DSML, {NULL}, "<" DSML "function_calls>\n<" DSML "invoke name=\""},
    {CHAT_CALLS_DSML, {DSML, NULL}, "<" DSML "function_calls>\n<" DSML "invoke name=\""},
    {CHAT_CALLS_SOLAR,
     {"<|tool_call:start|>", "<|tool_call:end|>", "<|tool_arg:start|>", NULL},
     "<|tool_call:start|>"},
    {CHAT_CALLS_GEMMA, {"<|tool_call>", "<tool_call|>", NULL}, "<|tool_call>call:"},
    {CHAT_CALLS_GEMMA,
     {"<start_function_call>", "<end_function_call>", NULL},
     "<start_function_call>call:"},
    {CHAT_CALLS_HARMONY,
     {"<|channel|>", "<|constrain|>", "<|message|>", NULL},
     "<|channel|>commentary to=functions."},
};
enum { N_FORM = sizeof forms / sizeof *forms };

#endif

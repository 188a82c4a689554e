/* chat_form.c: the table of the forms of tool calls. A form is detected by words in the model's template. */
#include <string.h>

#include "text/chat/chat_impl.h"

#define BAR "\xef\xbd\x9c" /* U+FF5C */
#define LOW "\xe2\x96\x81" /* U+2581 */
#define DS(words) "<" BAR "tool" LOW words BAR ">"
#define DSML "<" BAR "DSML" BAR
#define DSML_END "</" BAR "DSML" BAR

/* <function=NAME><parameter=KEY>VALUE</parameter></function> */
static const struct chat_tags qwen_tags = {
    .open = {"<function=", "<function name="},
    .name_end = {">"},
    .key_open = {"<parameter=", "<parameter name="},
    .key_end = ">",
    .value_end = {"</parameter>"},
    .call_end = {"</function>"},
    .outer_end = {"</tool_call>", "</seed:tool_call>", "</zyphra_tool_call>"},
    .lines = true,
};
static const struct chat_tags invoke_tags = {
    .open = {"<invoke name="},
    .name_end = {">"},
    .key_open = {"<parameter name="},
    .key_end = ">",
    .value_end = {"</parameter>"},
    .call_end = {"</invoke>"},
    .outer_end = {"</minimax:tool_call>"},
    .lines = true,
};
static const struct chat_tags dsml_tags = {
    .open = {DSML "invoke name="},
    .name_end = {">"},
    .key_open = {DSML "parameter name="},
    .key_end = ">",
    .value_end = {DSML_END "parameter>"},
    .call_end = {DSML_END "invoke>"},
    .outer_end = {DSML_END "function_calls>", DSML_END "tool_calls>"},
};
static const struct chat_tags step_tags = {
    .open = {"<steptml:invoke name="},
    .name_end = {">"},
    .key_open = {"<steptml:parameter name="},
    .key_end = ">",
    .value_end = {"</steptml:parameter>"},
    .call_end = {"</steptml:invoke>"},
};
static const struct chat_tags atem_tags = {
    .open = {"<atem:invoke name="},
    .name_end = {">"},
    .key_open = {"<atem:parameter name="},
    .key_end = ">",
    .value_end = {"</atem:parameter>"},
    .call_end = {"</atem:invoke>"},
    .outer_end = {"</atem:function_calls>"},
};
static const struct chat_tags param_tags = {
    .open = {"<function name="},
    .name_end = {">"},
    .key_open = {"<param name="},
    .key_end = ">",
    .value_end = {"</param>"},
    .call_end = {"</function>"},
};
/* MARK NAME <arg_key>KEY</arg_key><arg_value>VALUE</arg_value> END */
static const struct chat_tags glm_tags = {
    .name_end = {"\n", "<arg_key>", "</tool_call>", "<tool_sep>"},
    .key_open = {"<arg_key>"},
    .key_end = "</arg_key>",
    .value_open = "<arg_value>",
    .value_end = {"</arg_value>"},
    .call_end = {"</tool_call>"},
};
static const struct chat_tags hunyuan_tags = {
    .name_end = {"<tool_sep:opensource>", "\n"},
    .key_open = {"<arg_key:opensource>"},
    .key_end = "</arg_key:opensource>",
    .value_open = "<arg_value:opensource>",
    .value_end = {"</arg_value:opensource>"},
    .call_end = {"</tool_call:opensource>"},
};
static const struct chat_tags longcat_tags = {
    .name_end = {"\n", "<longcat_arg_key>", "</longcat_tool_call>"},
    .key_open = {"<longcat_arg_key>"},
    .key_end = "</longcat_arg_key>",
    .value_open = "<longcat_arg_value>",
    .value_end = {"</longcat_arg_value>"},
    .call_end = {"</longcat_tool_call>"},
};
static const struct chat_tags solar_tags = {
    .name_end = {"\n", "<|tool_arg:start|>", "<|tool_call:end|>"},
    .key_open = {"<|tool_arg:start|>"},
    .key_end = "<|tool_arg:value|>",
    .value_end = {"<|tool_arg:end|>"},
    .call_end = {"<|tool_call:end|>"},
};

/* Indexed by enum chat_calls. `detect`: all words of the row must be in the template. */
static const struct chat_form forms[CHAT_CALLS_COUNT] = {
    [CHAT_CALLS_NONE] = {.name = "none"},
    [CHAT_CALLS_QWEN_XML] = {.name = "qwen-xml",
                             .marks = {"<tool_call>", "<function=", "<function name=",
                                       "<seed:tool_call>", "<zyphra_tool_call>"},
                             .ends = {"</tool_call>", "</seed:tool_call>", "</zyphra_tool_call>"},
                             .tags = &qwen_tags},
    [CHAT_CALLS_HERMES] = {.name = "hermes",
                           .marks = {"<tool_call>"},
                           .ends = {"</tool_call>"},
                           .tags = &qwen_tags},
    [CHAT_CALLS_NEMOTRON] = {.name = "nemotron", .marks = {"<TOOLCALL>"}, .ends = {"</TOOLCALL>"}},
    [CHAT_CALLS_GRANITE] = {.name = "granite",
                            .marks = {"<|tool_call|>", "<tool_call>"},
                            .ends = {"</tool_call>", "<|/tool_call|>", "<|tool_call_end|>"}},
    [CHAT_CALLS_LLAMA] = {.name = "llama",
                          .reader = CHAT_READ_BARE,
                          .marks = {"<|python_tag|>"},
                          .ends = {";"},
                          .skip = {"<|python_start|>", "<|python_end|>"}},
    [CHAT_CALLS_MISTRAL] = {.name = "mistral",
                            .reader = CHAT_READ_MISTRAL,
                            .marks = {"[TOOL_CALLS]"}},
    [CHAT_CALLS_DEEPSEEK] = {.name = "deepseek",
                             .reader = CHAT_READ_DEEPSEEK,
                             .marks = {DS("calls" LOW "begin"), DS("call" LOW "begin")},
                             .ends = {DS("call" LOW "end"), DS("calls" LOW "end"), "```"}},
    [CHAT_CALLS_GLM] = {.name = "glm",
                        .marks = {"<tool_call>"},
                        .ends = {"</tool_call>"},
                        .skip = {"<tool_calls>", "</tool_calls>"},
                        .tags = &glm_tags},
    [CHAT_CALLS_HUNYUAN] = {.name = "hunyuan",
                            .marks = {"<tool_call:opensource>"},
                            .ends = {"</tool_call:opensource>"},
                            .skip = {"<tool_calls:opensource>", "</tool_calls:opensource>"},
                            .tags = &hunyuan_tags},
    [CHAT_CALLS_LONGCAT] = {.name = "longcat",
                            .marks = {"<longcat_tool_call>"},
                            .ends = {"</longcat_tool_call>"},
                            .tags = &longcat_tags},
    [CHAT_CALLS_SOLAR] = {.name = "solar",
                          .marks = {"<|tool_call:start|>"},
                          .ends = {"<|tool_call:end|>"},
                          .tags = &solar_tags},
    [CHAT_CALLS_MINIMAX] = {.name = "minimax",
                            .marks = {"<minimax:tool_call>", "<invoke name="},
                            .ends = {"</minimax:tool_call>"},
                            .tags = &invoke_tags},
    [CHAT_CALLS_DSML] = {.name = "deepseek-dsml",
                         .marks = {DSML "function_calls>", DSML "tool_calls>", DSML "invoke name="},
                         .ends = {DSML_END "function_calls>", DSML_END "tool_calls>"},
                         .tags = &dsml_tags},
    [CHAT_CALLS_STEP] = {.name = "step",
                         .marks = {"<steptml:invoke name="},
                         .skip = {"<" BAR "tool_calls_begin" BAR ">",
                                  "<" BAR "tool_calls_end" BAR ">",
                                  "<" BAR "tool_call_begin" BAR ">",
                                  "function<" BAR "tool_sep" BAR ">",
                                  "<" BAR "tool_call_end" BAR ">"},
                         .tags = &step_tags},
    [CHAT_CALLS_ATEM] = {.name = "atem",
                         .marks = {"<atem:function_calls>", "<atem:invoke name="},
                         .ends = {"</atem:function_calls>"},
                         .tags = &atem_tags},
    [CHAT_CALLS_MINICPM] = {.name = "minicpm", .marks = {"<function name="}, .tags = &param_tags},
    [CHAT_CALLS_KIMI] = {.name = "kimi",
                         .reader = CHAT_READ_HEAD,
                         .marks = {"<|tool_call_begin|>"},
                         .ends = {"<|tool_call_end|>", "<|tool_calls_section_end|>"},
                         .skip = {"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"},
                         .head = {"<|tool_call_argument_begin|>"}},
    [CHAT_CALLS_SOLAR_JSON] = {.name = "solar-json",
                               .reader = CHAT_READ_HEAD,
                               .marks = {"<|tool_call:begin|>"},
                               .ends = {"<|tool_call:end|>", "<|calls|>"},
                               .skip = {"<|tool_calls|>"},
                               .head = {"<|tool_call:args|>", "<|tool_call:name|>"}},
    [CHAT_CALLS_STEP_AUDIO] = {.name = "step-audio",
                               .reader = CHAT_READ_HEAD,
                               .marks = {"<|CALL_START|>"},
                               .ends = {"<|CALL_END|>"},
                               .head = {"\n", "function\n"}},
    [CHAT_CALLS_FUNCTIONARY] = {.name = "functionary",
                                .reader = CHAT_READ_HEAD,
                                .marks = {">>>"},
                                .head = {"\n"}},
    [CHAT_CALLS_GEMMA] = {.name = "gemma",
                          .reader = CHAT_READ_GEMMA,
                          .marks = {"<|tool_call>", "<start_function_call>"},
                          .ends = {"<tool_call|>", "<end_function_call>"}},
    [CHAT_CALLS_LFM] = {.name = "lfm",
                        .marks = {"<|tool_call_start|>"},
                        .ends = {"<|tool_call_end|>"}},
    [CHAT_CALLS_OLMO] = {.name = "olmo",
                         .marks = {"<function_calls>"},
                         .ends = {"</function_calls>"}},
    [CHAT_CALLS_TOOL_CALLS] = {.name = "tool-calls",
                               .marks = {"<tool_calls>"},
                               .ends = {"</tool_calls>"}},
    [CHAT_CALLS_COHERE] = {.name = "cohere",
                           .marks = {"<|START_ACTION|>"},
                           .ends = {"<|END_ACTION|>"},
                           .skip = {"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>",
                                    "<|END_TEXT|>"}},
    [CHAT_CALLS_APERTUS] = {.name = "apertus",
                            .marks = {"<|tools_prefix|>"},
                            .ends = {"<|tools_suffix|>"},
                            .is_keyed = true},
    [CHAT_CALLS_GIGACHAT] = {.name = "gigachat", .marks = {"<|function_call|>"}},
    [CHAT_CALLS_INTERN] = {.name = "intern",
                           .marks = {"<|action_start|><|plugin|>"},
                           .ends = {"<|action_end|>"}},
    [CHAT_CALLS_HARMONY] = {.name = "harmony",
                            .reader = CHAT_READ_HARMONY,
                            .marks = {"<|channel|>", "<|start|>"},
                            .ends = {"<|call|>", "<|end|>", "<|return|>"},
                            .skip = {"<|end|>", "<|return|>", "<|call|>", "<|message|>"}},
};

/* Strongest first: the first row whose words are all in the template decides the form. */
static const struct {
    enum chat_calls calls;
    const char *word, *word2;
} detect[] = {
    {CHAT_CALLS_HARMONY, "<|channel|>", NULL},
    {CHAT_CALLS_LONGCAT, "<longcat_tool_call>", NULL},
    {CHAT_CALLS_HUNYUAN, "<tool_call:opensource>", NULL},
    {CHAT_CALLS_HUNYUAN, "<arg_key", ":opensource"},
    {CHAT_CALLS_GLM, "<arg_key>", NULL},
    {CHAT_CALLS_MINIMAX, "<minimax:tool_call>", NULL},
    {CHAT_CALLS_DSML, "DSML", NULL},
    {CHAT_CALLS_STEP, "<steptml:invoke", NULL},
    {CHAT_CALLS_ATEM, "<atem:invoke", NULL},
    {CHAT_CALLS_SOLAR, "<|tool_arg:start|>", NULL},
    {CHAT_CALLS_SOLAR_JSON, "<|tool_call:args|>", NULL},
    {CHAT_CALLS_MINICPM, "<param name=", NULL},
    {CHAT_CALLS_QWEN_XML, "<function=", NULL},
    {CHAT_CALLS_NEMOTRON, "<TOOLCALL>", NULL},
    {CHAT_CALLS_DEEPSEEK, DS("calls" LOW "begin"), NULL},
    {CHAT_CALLS_DEEPSEEK, DS("call" LOW "begin"), NULL},
    {CHAT_CALLS_MISTRAL, "[TOOL_CALLS]", NULL},
    {CHAT_CALLS_KIMI, "<|tool_call_begin|>", "<|tool_call_argument_begin|>"},
    {CHAT_CALLS_STEP_AUDIO, "<|CALL_START|>", NULL},
    {CHAT_CALLS_GEMMA, "<|tool_call>", NULL},
    {CHAT_CALLS_GEMMA, "<start_function_call>", NULL},
    {CHAT_CALLS_LFM, "<|tool_call_start|>", NULL},
    {CHAT_CALLS_GRANITE, "<|tool_call|>", NULL},
    {CHAT_CALLS_HERMES, "<tool_call>", NULL},
    {CHAT_CALLS_OLMO, "<function_calls>", NULL},
    {CHAT_CALLS_TOOL_CALLS, "<tool_calls>", NULL},
    {CHAT_CALLS_COHERE, "<|START_ACTION|>", NULL},
    {CHAT_CALLS_APERTUS, "<|tools_prefix|>", NULL},
    {CHAT_CALLS_GIGACHAT, "<|function_call|>", NULL},
    {CHAT_CALLS_INTERN, "<|action_start|>", NULL},
    {CHAT_CALLS_FUNCTIONARY, ">>>", "recipient"},
    {CHAT_CALLS_LLAMA, "<|python_tag|>", NULL},
    {CHAT_CALLS_LLAMA, "\"parameters\": ", NULL},
};

/* How templates mark reasoning. The first pair is also used for a template without marks. */
static const struct chat_think thinks[] = {
    {"<think>", "</think>"},
    {"[THINK]", "[/THINK]"},
    {"<|channel>thought", "<channel|>"},
    {"<seed:think>", "</seed:think>"},
    {"<|START_THINKING|>", "<|END_THINKING|>"},
    {"<longcat_think>", "</longcat_think>"},
    {"<think:opensource>", "</think:opensource>"},
    {"<mm:think>", "</mm:think>"},
    {"<|start_think|>", "<|end_think|>"},
    {"<|think:start|>", "<|think:end|>"},
};
#define N_THINK (sizeof thinks / sizeof *thinks)
/* Its closing mark ends messages of every kind, and also turns of other models. */
static const struct chat_think harmony_think = {"<|channel|>analysis<|message|>", "<|end|>"};

const struct chat_form *chat_form_of(enum chat_calls calls) { return &forms[calls]; }

const char *chat_calls_name(enum chat_calls c) {
    return (unsigned)c < CHAT_CALLS_COUNT ? forms[c].name : "none";
}

bool chat_calls_from_name(const char *name, enum chat_calls *c) {
    for (int i = 0; i < CHAT_CALLS_COUNT; i++)
        if (strcmp(forms[i].name, name) == 0) {
            *c = (enum chat_calls)i;
            return true;
        }
    return false;
}

struct find_word {
    const char *word;
    bool found;
};
static void look_for(void *arg, const char *s, size_t n) {
    struct find_word *f = arg;
    if (n && memmem(s, n, f->word, strlen(f->word))) f->found = true;
}
bool chat_form_has(const struct jinja *j, const char *word) {
    struct find_word f = {word, false};
    if (word) jinja_literals(j, look_for, &f);
    return !word || f.found;
}

enum chat_calls chat_form_find(const struct jinja *j) {
    for (size_t i = 0; i < sizeof detect / sizeof *detect; i++)
        if (chat_form_has(j, detect[i].word) && chat_form_has(j, detect[i].word2))
            return detect[i].calls;
    return CHAT_CALLS_NONE;
}

const struct chat_think *chat_think_find(const struct jinja *j) {
    if (chat_form_has(j, harmony_think.open)) return &harmony_think;
    for (size_t i = N_THINK; i-- > 0;)
        if (chat_form_has(j, thinks[i].open) || chat_form_has(j, thinks[i].close))
            return &thinks[i];
    return NULL;
}

const struct chat_think *chat_think_default(void) { return &thinks[0]; }

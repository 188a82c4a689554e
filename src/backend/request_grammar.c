#include "backend/request_grammar.h"

#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/thread.h"

enum { MAX_KEPT = 16, CACHE_BYTES = 16 << 20 };

struct request_grammar {
    uint64_t key[2];
    struct arena arena;               /* for the triggers and the note */
    struct sampler_trigger *triggers; /* in the arena; for calls that are allowed, not forced */
    size_t n_trigger;
    /* in the arena: which tools are not enforced; NULL: all are enforced */
    const char *note;
    struct grammar *grammar;         /* owned */
    struct grammar_matcher *matcher; /* owned */
    int n_user;
    uint64_t used; /* value of n_take when it was last taken */
    struct request_grammar *next;
};

struct request_grammars {
    pthread_mutex_t lock;
    const struct tok *tok; /* borrowed */
    /* owned; built on first use; [1]: marks of calls count as text */
    struct grammar_vocab *vocab[2];
    struct request_grammar *list; /* owned */
    uint64_t n_take;
};

int request_grammars_new(struct request_grammars **out, const struct tok *tok, struct err *e) {
    struct request_grammars *g = mem_zalloc(sizeof *g);
    *out = g;
    if (!g) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    pthread_mutex_init(&g->lock, NULL);
    g->tok = tok;
    return 0;
}

static void free_one(struct request_grammar *m) {
    if (!m) return;
    grammar_matcher_free(m->matcher);
    grammar_free(m->grammar);
    arena_fini(&m->arena);
    mem_free(m);
}

void request_grammars_free(struct request_grammars *g) {
    if (!g) return;
    for (struct request_grammar *m = g->list, *next; m; m = next) {
        next = m->next;
        free_one(m);
    }
    for (int i = 0; i < 2; i++) grammar_vocab_free(g->vocab[i]);
    pthread_mutex_destroy(&g->lock);
    mem_free(g);
}

/* ---- the grammar that a request needs ---- */

enum need { NEED_NOTHING, NEED_OBJECT, NEED_SCHEMA, NEED_GBNF, NEED_CALLS, NEED_LAZY_CALLS };

static bool is_calls(enum need need) { return need == NEED_CALLS || need == NEED_LAZY_CALLS; }

static enum need need_of(const struct request *a, enum chat_calls calls) {
    if (a->tool_choice == REQUEST_TOOLS_REQUIRED || a->tool_choice == REQUEST_TOOLS_NAMED)
        return NEED_CALLS;
    switch (a->format) {
    case REQUEST_JSON_OBJECT: return NEED_OBJECT;
    case REQUEST_JSON_SCHEMA: return NEED_SCHEMA;
    case REQUEST_GBNF: return NEED_GBNF;
    case REQUEST_TEXT: break;
    }
    bool may_call = a->messages && a->tool_choice == REQUEST_TOOLS_AUTO &&
                    json_array_size(a->tools) > 0 && calls != CHAT_CALLS_NONE;
    return may_call ? NEED_LAZY_CALLS : NEED_NOTHING;
}

#define BAR "\xef\xbd\x9c" /* U+FF5C */
#define LOW "\xe2\x96\x81" /* U+2581 */
#define DEEPSEEK(words) "<" BAR "tool" LOW words BAR ">"
#define DS_CALLS DEEPSEEK("calls" LOW "begin")
#define DS_CALLS_END DEEPSEEK("calls" LOW "end")
#define DS_CALL DEEPSEEK("call" LOW "begin")
#define DS_CALL_END DEEPSEEK("call" LOW "end")
#define DS_SEP DEEPSEEK("sep")

/* Tags of parameters. A text parameter must not contain any tag of its form, because the following text decides which
 * of them would end the call. */
#define PLAIN_NAME                                                                                 \
    "[^<>\"'\\u0000-\\u0020](?:[^<>\"'\\u0000-\\u001f]{0,120}[^<>\"'\\u0000-\\u0020])?"
#define KEYED(prefix, suffix)                                                                      \
    {                                                                                              \
        .begin = "<" prefix "arg_key" suffix, .name_open = '>', .name_close = '<',                 \
        .between = "/" prefix "arg_key" suffix ">\n<" prefix "arg_value" suffix,                   \
        .value_open = '>', .value_close = '<', .end = "/" prefix "arg_value" suffix ">\n",         \
        .name = PLAIN_NAME,                                                                        \
        .ends = "</?" prefix "(?:arg_key|arg_value|tool_call|tool_calls|tool_sep)" suffix          \
                ">|^\\n|\\u0000"                                                                   \
    }
#define ATTRIBUTE(tag, outer)                                                                      \
    {                                                                                              \
        .begin = "<" tag " name=", .name_open = '"', .name_close = '"', .between = "",             \
        .value_open = '>', .value_close = '<', .end = "/" tag ">\n", .name = PLAIN_NAME,           \
        .ends = "</?(?:" tag "|" outer ")[ >]|^[\\r\\n]|[\\r\\n]$|\\u0000"                         \
    }
static const struct grammar_tags glm_tags = KEYED("", ""), hunyuan_tags = KEYED("", ":opensource"),
                                 longcat_tags = KEYED("longcat_", ""),
                                 invoke_tags = ATTRIBUTE("parameter", "invoke|minimax:tool_call"),
                                 step_tags = ATTRIBUTE("steptml:parameter", "steptml:invoke"),
                                 atem_tags =
                                     ATTRIBUTE("atem:parameter", "atem:invoke|atem:function_calls"),
                                 param_tags = ATTRIBUTE("param", "function");
/* DeepSeek V3.2 and V4 mark each parameter as text or not. */
#define DSML BAR "DSML" BAR
static const struct grammar_tags dsml_tags = {
    .begin = "<" DSML "parameter name=",
    .name_open = '"',
    .name_close = '"',
    .between = " string=\"false\"",
    .between_text = " string=\"true\"",
    .value_open = '>',
    .value_close = '<',
    .end = "/" DSML "parameter>\n",
    .name = PLAIN_NAME,
    .ends = "</?" DSML "(?:parameter|invoke|function_calls|tool_calls)[ >]|\\u0000",
};

/* How models write calls. If the model may begin a call, all rows of its form are alternatives. A forced call uses the
 * first row, among rows whose `only` is a single token of the tokenizer. */
static const struct form {
    enum chat_calls calls;
    const char *only;  /* NULL: any tokenizer */
    const char *again; /* text between blocks of calls; NULL: only one block */
    struct grammar_call_form f;
    bool forced; /* only for forced calls: models write another form by themselves */
} forms[] = {
#define NAMED "{\"name\": \""
#define ARGS "\", \"arguments\": "
#define PARAMS "\", \"parameters\": "
#define TYPED "{\"type\": \"function\", \"name\": \""
#define FUNCTION "function" DS_SEP
    {CHAT_CALLS_QWEN_XML,
     NULL,
     "\n",
     {"<tool_call>", "\n", "<function=", ">", "</function>\n", NULL, "</tool_call>",
      &grammar_tags_qwen},
     false},
    {CHAT_CALLS_QWEN_XML,
     NULL,
     NULL,
     {"<function=", "", "", ">", "</function>", NULL, "", &grammar_tags_qwen},
     false},
    {CHAT_CALLS_HERMES,
     NULL,
     "\n",
     {"<tool_call>", "\n", NAMED, ARGS, "}", NULL, "\n</tool_call>", NULL},
     false},
    {CHAT_CALLS_NEMOTRON,
     NULL,
     NULL,
     {"<TOOLCALL>", "[", NAMED, ARGS, "}", ", ", "]</TOOLCALL>", NULL},
     false},
    {CHAT_CALLS_GRANITE,
     NULL,
     NULL,
     {"<|tool_call|>", "[", NAMED, ARGS, "}", ", ", "]", NULL},
     false},
    {CHAT_CALLS_GRANITE,
     NULL,
     NULL,
     {"<tool_call>", "[", NAMED, ARGS, "}", ", ", "]", NULL},
     false},
    {CHAT_CALLS_LLAMA, NULL, NULL, {"", "", NAMED, PARAMS, "}", NULL, "", NULL}, false},
    {CHAT_CALLS_LLAMA,
     NULL,
     NULL,
     {"", "", "{\"name\":\"", "\",\"parameters\":", "}", NULL, "", NULL},
     false},
    {CHAT_CALLS_LLAMA, NULL, NULL, {"", "", TYPED, PARAMS, "}", NULL, "", NULL}, false},
    {CHAT_CALLS_LLAMA,
     NULL,
     NULL,
     {"<|python_tag|>", "", NAMED, PARAMS, "}", NULL, "", NULL},
     false},
    {CHAT_CALLS_MISTRAL,
     "[ARGS]",
     "",
     {"[TOOL_CALLS]", "", "", "[ARGS]", "", NULL, "", NULL},
     false},
    {CHAT_CALLS_MISTRAL,
     NULL,
     NULL,
     {"[TOOL_CALLS]", "[", NAMED, ARGS, "}", ", ", "]", NULL},
     false},
    {CHAT_CALLS_DEEPSEEK,
     NULL,
     NULL,
     {DS_CALLS, "", DS_CALL FUNCTION, "\n```json\n", "\n```" DS_CALL_END, "\n", DS_CALLS_END, NULL},
     false},
    {CHAT_CALLS_DEEPSEEK,
     NULL,
     NULL, /* V3.1 */
     {DS_CALLS, "", DS_CALL, DS_SEP, DS_CALL_END, "", DS_CALLS_END, NULL},
     false},
    {CHAT_CALLS_DEEPSEEK,
     NULL,
     NULL,
     {DS_CALL, "", FUNCTION, "\n```json\n", "\n```" DS_CALL_END, NULL, "", NULL},
     false},
    {CHAT_CALLS_DEEPSEEK,
     NULL,
     NULL,
     {DS_CALL, "", "", DS_SEP, DS_CALL_END, NULL, "", NULL},
     false},
    {CHAT_CALLS_KIMI,
     NULL,
     NULL,
     {"<|tool_calls_section_begin|>", "", "<|tool_call_begin|>functions.",
      ":0<|tool_call_argument_begin|>", "<|tool_call_end|>", "", "<|tool_calls_section_end|>",
      NULL},
     false},
    {CHAT_CALLS_SOLAR_JSON,
     NULL,
     NULL,
     {"<|tool_calls|>", "", "<|tool_call:begin|>0<|tool_call:name|>", "<|tool_call:args|>",
      "<|tool_call:end|>", "", "", NULL}, /* <|calls|> ends the text */
     false},
    {CHAT_CALLS_STEP_AUDIO,
     NULL,
     NULL,
     {"<|CALL_START|>", "", "function\n", "\n", "<|CALL_END|>", NULL, "", NULL},
     false},
    /* the prompt already ends with >>> */
    {CHAT_CALLS_FUNCTIONARY, NULL, NULL, {"", "", "", "\n", "", NULL, "", NULL}, true},
    {CHAT_CALLS_LFM,
     NULL,
     NULL,
     {"<|tool_call_start|>", "[", NAMED, ARGS, "}", ", ", "]<|tool_call_end|>", NULL},
     true},
    {CHAT_CALLS_OLMO,
     NULL,
     NULL,
     {"<function_calls>", "[", NAMED, ARGS, "}", ", ", "]</function_calls>", NULL},
     true},
    {CHAT_CALLS_TOOL_CALLS,
     NULL,
     NULL,
     {"<tool_calls>", "[", NAMED, ARGS, "}", ", ", "]</tool_calls>", NULL},
     false},
    {CHAT_CALLS_COHERE,
     NULL,
     NULL,
     {"<|START_ACTION|>", "[\n    ", "{\"tool_call_id\": \"0\", \"tool_name\": \"",
      "\", \"parameters\": ", "}", ",\n    ", "\n]<|END_ACTION|>", NULL},
     false},
    {CHAT_CALLS_APERTUS,
     NULL,
     NULL,
     {"<|tools_prefix|>", "[", "{\"", "\": ", "}", ", ", "]<|tools_suffix|>", NULL},
     false},
    {CHAT_CALLS_GIGACHAT,
     NULL,
     NULL,
     {"<|function_call|>", "", NAMED, ARGS, "}", NULL, "", NULL},
     false},
    {CHAT_CALLS_INTERN,
     NULL,
     NULL,
     {"<|action_start|><|plugin|>", "", NAMED, PARAMS, "}", NULL, "<|action_end|>", NULL},
     false},
    {CHAT_CALLS_GLM,
     NULL,
     "\n",
     {"<tool_call>", "", "", "", "</tool_call>", NULL, "", &glm_tags},
     false},
    {CHAT_CALLS_HUNYUAN,
     NULL,
     "\n",
     {"<tool_call:opensource>", "", "", "<tool_sep:opensource>", "</tool_call:opensource>", NULL,
      "", &hunyuan_tags},
     false},
    {CHAT_CALLS_LONGCAT,
     NULL,
     "\n",
     {"<longcat_tool_call>", "", "", "", "</longcat_tool_call>", NULL, "", &longcat_tags},
     false},
    {CHAT_CALLS_MINIMAX,
     NULL,
     NULL,
     {"<minimax:tool_call>", "\n", "<invoke name=\"", "\">", "</invoke>\n", "",
      "</minimax:tool_call>", &invoke_tags},
     false},
    {CHAT_CALLS_STEP,
     NULL,
     "\n",
     {"<steptml:invoke name=", "", "\"", "\">", "</steptml:invoke>", NULL, "", &step_tags},
     false},
    {CHAT_CALLS_ATEM,
     NULL,
     NULL,
     {"<atem:function_calls>", "\n", "<atem:invoke name=\"", "\">", "</atem:invoke>\n", "",
      "</atem:function_calls>", &atem_tags},
     false},
    {CHAT_CALLS_MINICPM,
     NULL,
     "\n",
     {"<function name=", "", "\"", "\">", "</function>", NULL, "", &param_tags},
     false},
    {CHAT_CALLS_DSML,
     NULL,
     NULL,
     {"<" DSML "function_calls>", "\n", "<" DSML "invoke name=\"", "\">", "</" DSML "invoke>\n", "",
      "</" DSML "function_calls>", &dsml_tags},
     false},
    {CHAT_CALLS_DSML,
     NULL,
     NULL, /* V4 */
     {"<" DSML "tool_calls>", "\n", "<" DSML "invoke name=\"", "\">", "</" DSML "invoke>\n", "",
      "</" DSML "tool_calls>", &dsml_tags},
     false},
    /* these models write arguments in tags, or between marks that are tokens; a forced call has JSON arguments, which
     * their parsers also read */
    {CHAT_CALLS_SOLAR,
     NULL,
     "\n",
     {"<|tool_call:start|>", "", "", "\n", "<|tool_call:end|>", NULL, "", NULL},
     true},
    {CHAT_CALLS_GEMMA,
     "<start_function_call>",
     "",
     {"<start_function_call>", "", "call:", "", "<end_function_call>", NULL, "", NULL},
     true},
    {CHAT_CALLS_GEMMA,
     NULL,
     "",
     {"<|tool_call>", "", "call:", "", "<tool_call|>", NULL, "", NULL},
     true},
    {CHAT_CALLS_HARMONY,
     NULL,
     NULL,
     {"", "", "<|channel|>commentary to=functions.", " <|constrain|>json<|message|>", "", NULL, "",
      NULL}, /* <|call|> ends the text */
     true},
#undef NAMED
#undef ARGS
#undef PARAMS
#undef TYPED
#undef FUNCTION
};
enum { N_FORM = sizeof forms / sizeof *forms };

/* Control tokens of some of these models; without this list a grammar would not allow them. */
static const char *const marks[] = {"<tool_call>",
                                    "</tool_call>",
                                    "<TOOLCALL>",
                                    "</TOOLCALL>",
                                    "<|tool_call|>",
                                    "<|python_tag|>",
                                    "[TOOL_CALLS]",
                                    "[ARGS]",
                                    DS_CALLS,
                                    DS_CALLS_END,
                                    DS_CALL,
                                    DS_CALL_END,
                                    DS_SEP,
                                    "<|tool_calls_section_begin|>",
                                    "<|tool_calls_section_end|>",
                                    "<|tool_call_begin|>",
                                    "<|tool_call_argument_begin|>",
                                    "<|tool_call_end|>",
                                    "<|tool_calls|>",
                                    "<|tool_call:begin|>",
                                    "<|tool_call:name|>",
                                    "<|tool_call:args|>",
                                    "<|tool_call:end|>",
                                    "<|CALL_START|>",
                                    "<|CALL_END|>",
                                    "<|tool_call_start|>",
                                    "<|START_ACTION|>",
                                    "<|END_ACTION|>",
                                    "<|tools_prefix|>",
                                    "<|tools_suffix|>",
                                    "<|function_call|>",
                                    "<|action_start|>",
                                    "<|plugin|>",
                                    "<|action_end|>",
                                    (DSML), /* consists of two string literals */
                                    "<|tool_call:start|>",
                                    "<|tool_call>",
                                    "<tool_call|>",
                                    "<start_function_call>",
                                    "<end_function_call>",
                                    "<|channel|>",
                                    "<|constrain|>",
                                    "<|message|>",
                                    NULL};

/* Limits white space to a line end and ten levels of two spaces: a model that has lost track cannot fill the answer
 * with spaces. */
static const struct grammar_limits limits = {.space = 21, .plain = true};

static bool is_token(const struct tok *tok, const char *text) {
    return tok_find(tok, text, strlen(text)) >= 0;
}

static const char *name_of(const json_t *tool) {
    return json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
}

/* Returns whether a tool has a name that models run as code after <|python_tag|>. */
static bool has_code_tool(const json_t *tools) {
    static const char *const names[] = {"ipython", "python", "code_interpreter", "brave_search",
                                        "wolfram_alpha"};
    const json_t *tool;
    size_t i;
    json_array_foreach(tools, i, tool) {
        const char *name = name_of(tool);
        for (size_t k = 0; name && k < sizeof names / sizeof *names; k++)
            if (strcmp(names[k], name) == 0) return true;
    }
    return false;
}

/* Replaces the marks in a text by their form in the vocabulary; NULL: out of memory. */
static const char *with_marks(struct arena *arena, const struct tok *tok, const char *text) {
    char *out = arena_alloc(arena, 2 * strlen(text) + 1), *to = out;
    while (out && *text) {
        size_t n = 0;
        for (size_t i = 0; marks[i] && !n; i++)
            if (strncmp(text, marks[i], strlen(marks[i])) == 0 && is_token(tok, marks[i]))
                n = strlen(marks[i]);
        if (n) *to++ = GRAMMAR_MARK_BYTE;
        else n = 1;
        memcpy(to, text, n);
        to += n, text += n;
    }
    if (out) *to = 0;
    return out;
}

/* Replaces the marks in a form's texts. With `lazy`, f->mark stays text, because the sampler passes it to the grammar
 * as text. */
static bool mark_form(struct arena *arena, const struct tok *tok, bool lazy,
                      struct grammar_call_form *f) {
    const char **texts[] = {&f->head,    &f->open,  &f->middle, &f->end,
                            &f->between, &f->close, &f->mark};
    bool ok = true;
    for (size_t i = 0; i < sizeof texts / sizeof *texts - lazy; i++)
        if (*texts[i]) ok &= (*texts[i] = with_marks(arena, tok, *texts[i])) != NULL;
    if (f->tags != &dsml_tags || !is_token(tok, DSML)) return ok;
    struct grammar_tags *t = arena_alloc(arena, sizeof *t); /* its tags contain a mark */
    if (!t) return false;
    *t = *f->tags;
    t->begin = with_marks(arena, tok, t->begin);
    t->end = with_marks(arena, tok, t->end);
    f->tags = t;
    return ok && t->begin && t->end;
}

/* Lists the forms of a call: the first one, or with `lazy` all that a model may begin. Returns their number. */
static size_t list_forms(const struct request *a, enum chat_calls calls, const struct tok *tok,
                         bool lazy, struct grammar_calls *c, struct grammar_call_form *out) {
    size_t n = 0;
    for (size_t i = 0; i < N_FORM; i++) {
        const struct form *row = &forms[i];
        if (row->calls != calls || (n && !lazy) || (lazy && row->forced)) continue;
        if (row->only && !is_token(tok, row->only)) continue;
        if (lazy && strcmp(row->f.mark, "<|python_tag|>") == 0 && has_code_tool(a->tools)) continue;
        if (!lazy && c->many) c->again = row->again;
        out[n++] = row->f;
    }
    return n;
}

/* Adds triggers for a form without a mark: `open` followed by the name of a tool. `open` alone could be any JSON. */
static int add_named_triggers(struct request_grammar *m, const struct grammar_call_form *f,
                              const json_t *tools) {
    const json_t *tool;
    size_t i;
    json_array_foreach(tools, i, tool) {
        const char *name = name_of(tool);
        char *text = name ? arena_alloc(&m->arena, strlen(f->open) + strlen(name) + 2) : NULL;
        if (!text) return CHIMERE_ENOMEM;
        stpcpy(stpcpy(stpcpy(text, f->open), name), "\"");
        if (strlen(text) <= SAMPLER_MAX_TRIGGER)
            m->triggers[m->n_trigger++] = (struct sampler_trigger){text, true};
    }
    return 0;
}

static int add_triggers(struct request_grammar *m, const struct grammar_calls *c, struct err *e) {
    int rc = 0;
    m->triggers =
        arena_alloc(&m->arena, c->n_form * (json_array_size(c->tools) + 1) * sizeof *m->triggers);
    if (!m->triggers) rc = CHIMERE_ENOMEM;
    for (size_t i = 0; i < c->n_form && !rc; i++) {
        const struct grammar_call_form *f = &c->forms[i];
        if (*f->mark) m->triggers[m->n_trigger++] = (struct sampler_trigger){f->mark, false};
        else rc = add_named_triggers(m, f, c->tools);
    }
    return rc ? err_set(e, rc, "out of memory") : 0;
}

/* Copies the tools; a schema that cannot be enforced is replaced by any arguments, and the note names the tool. For a
 * strict tool, this is an error instead. */
static int loosen(struct request_grammar *m, const json_t *tools, bool all, json_t **out,
                  struct err *e) {
    struct buf note;
    json_t *copy = json_deep_copy(tools), *tool;
    size_t i;
    int rc = copy ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    buf_init(&note, 4096);
    json_array_foreach(copy, i, tool) {
        json_t *f = json_object_get(tool, "function");
        struct grammar *g = NULL;
        struct err why = {0};
        bool strict = json_is_true(json_object_get(f, "strict"));
        if (rc || (all && strict)) continue;
        int bad = all ? CHIMERE_ELIMIT
                      : grammar_from_json(&g, json_object_get(f, "parameters"), &limits, &why);
        grammar_free(g);
        if (!bad) continue;
        if (bad == CHIMERE_ENOMEM || (strict && !all)) {
            rc = bad;
            if (e) *e = why, err_prefix(e, "tools: %s", name_of(tool));
            continue;
        }
        json_object_set_new(f, "parameters", json_pack("{s:s}", "type", "object"));
        buf_printf(&note, "%s%.64s: %.160s", note.n ? "; " : "", name_of(tool),
                   all ? "too large beside the other tools" : why.text);
    }
    if (!rc && note.n) m->note = arena_strndup(&m->arena, note.p, note.n);
    buf_fini(&note);
    if (rc) json_decref(copy), copy = NULL;
    *out = copy;
    return rc;
}

static int compile_calls(struct request_grammar *m, const struct request *a, bool lazy,
                         enum chat_calls calls, const struct tok *tok, struct err *e) {
    struct grammar_call_form list[N_FORM];
    struct grammar_calls c = {.tools = a->tools,
                              .only = a->tool_choice == REQUEST_TOOLS_NAMED ? a->tool_name : NULL,
                              .many = a->tool_choice != REQUEST_TOOLS_NAMED && !a->one_call,
                              .forms = list};
    c.n_form = list_forms(a, calls, tok, lazy, &c, list);
    if (!c.n_form)
        return lazy ? 0
                    : err_set(e, CHIMERE_EUNSUPPORTED,
                              "tool_choice: calls in this model's form (%s) cannot be forced; "
                              "use auto",
                              chat_calls_name(calls));
    for (size_t i = 0; i < c.n_form; i++)
        if (!mark_form(&m->arena, tok, lazy, &list[i]))
            return err_set(e, CHIMERE_ENOMEM, "out of memory");
    int rc = grammar_from_calls(&m->grammar, &c, &limits, e);
    json_t *loose = NULL;
    for (int all = 0; lazy && rc && rc != CHIMERE_ENOMEM && all < 2; all++) {
        json_decref(loose);
        if ((rc = loosen(m, a->tools, all, &loose, e))) return rc;
        c.tools = loose;
        rc = grammar_from_calls(&m->grammar, &c, &limits, e);
    }
    if (rc && e) err_prefix(e, "tools");
    if (!rc && lazy) rc = add_triggers(m, &c, e);
    json_decref(loose);
    return rc;
}

static int compile(struct request_grammar *m, const struct request *a, enum need need,
                   enum chat_calls calls, const struct tok *tok, struct err *e) {
    struct grammar **out = &m->grammar;
    int rc = 0;
    switch (need) {
    case NEED_OBJECT:
        return grammar_from_schema(out, "{\"type\":\"object\"}", strlen("{\"type\":\"object\"}"),
                                   &limits, e);
    case NEED_SCHEMA:
        rc = grammar_from_json(out, a->schema, &limits, e);
        if (rc && e) err_prefix(e, "response_format");
        return rc;
    case NEED_GBNF:
        rc = grammar_from_gbnf(out, a->grammar, strlen(a->grammar), NULL, e);
        if (rc && e && strncmp(e->text, "grammar", 7) != 0) err_prefix(e, "grammar");
        return rc;
    default: return compile_calls(m, a, need == NEED_LAZY_CALLS, calls, tok, e);
    }
}

static int hash_text(const char *s, size_t n, void *arg) {
    uint64_t *h = arg;
    h[0] = hash_bytes(s, n, h[0]);
    h[1] = hash_bytes(s, n, h[1] ^ 0x5bd1e995);
    return 0;
}

static void key_of(const struct request *a, enum need need, enum chat_calls calls,
                   uint64_t key[2]) {
    int head[3] = {(int)need, (int)calls, is_calls(need) && a->one_call};
    key[0] = 1, key[1] = 2;
    hash_text((char *)head, sizeof head, key);
    if (need == NEED_SCHEMA) json_dump_callback(a->schema, hash_text, key, JSON_ENCODE_ANY);
    if (need == NEED_GBNF) hash_text(a->grammar, strlen(a->grammar), key);
    if (!is_calls(need)) return;
    json_dump_callback(a->tools, hash_text, key, 0);
    if (a->tool_name) hash_text(a->tool_name, strlen(a->tool_name), key);
}

/* ---- cache ---- */

static struct request_grammar *find(struct request_grammars *g, const uint64_t key[2]) {
    for (struct request_grammar *m = g->list; m; m = m->next)
        if (m->key[0] == key[0] && m->key[1] == key[1]) {
            m->n_user++;
            m->used = ++g->n_take;
            return m;
        }
    return NULL;
}

/* Call with the lock held. Removes unused entries, least recently used first, until at most MAX_KEPT are left; returns
 * the removed ones. */
static struct request_grammar *prune(struct request_grammars *g) {
    struct request_grammar *gone = NULL;
    for (;;) {
        struct request_grammar **oldest = NULL;
        int n = 0;
        for (struct request_grammar **at = &g->list; *at; at = &(*at)->next, n++)
            if (!(*at)->n_user && (!oldest || (*at)->used < (*oldest)->used)) oldest = at;
        if (n <= MAX_KEPT || !oldest) return gone;
        struct request_grammar *m = *oldest;
        *oldest = m->next;
        m->next = gone;
        gone = m;
    }
}

static void free_all(struct request_grammar *list) {
    for (struct request_grammar *next; list; list = next) {
        next = list->next;
        free_one(list);
    }
}

static int need_vocab(struct request_grammars *g, bool calls, struct err *e) {
    pthread_mutex_lock(&g->lock);
    struct grammar_vocab **v = &g->vocab[calls];
    int rc = *v ? 0 : grammar_vocab_from_tok(v, g->tok, calls ? marks : NULL, e);
    pthread_mutex_unlock(&g->lock);
    return rc;
}

int request_grammar_take(struct request_grammars *g, const struct request *a, enum chat_calls calls,
                         struct request_grammar **out, struct err *e) {
    enum need need = need_of(a, calls);
    uint64_t key[2];
    *out = NULL;
    if (need == NEED_NOTHING) return 0;
    key_of(a, need, calls, key);
    pthread_mutex_lock(&g->lock);
    *out = find(g, key);
    pthread_mutex_unlock(&g->lock);
    if (*out) return 0;
    struct request_grammar *m = mem_zalloc(sizeof *m);
    if (!m) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    arena_init(&m->arena, 4 << 20);
    int rc = compile(m, a, need, calls, g->tok, e);
    if (!rc && !m->grammar) { /* no grammar exists for this form of calls */
        free_one(m);
        return 0;
    }
    if (!rc) rc = need_vocab(g, is_calls(need), e);
    if (!rc)
        rc = grammar_matcher_new(&m->matcher, m->grammar, g->vocab[is_calls(need)], CACHE_BYTES, e);
    if (rc) {
        free_one(m);
        return rc;
    }
    memcpy(m->key, key, sizeof key);
    pthread_mutex_lock(&g->lock);
    m->n_user = 1;
    m->used = ++g->n_take;
    m->next = g->list;
    g->list = m; /* two threads may add the same grammar; this is harmless */
    struct request_grammar *gone = prune(g);
    pthread_mutex_unlock(&g->lock);
    free_all(gone);
    *out = m;
    return 0;
}

void request_grammar_drop(struct request_grammars *g, struct request_grammar *m) {
    if (!m) return;
    pthread_mutex_lock(&g->lock);
    m->n_user--;
    struct request_grammar *gone = prune(g);
    pthread_mutex_unlock(&g->lock);
    free_all(gone);
}

struct grammar_matcher *request_grammar_matcher(struct request_grammar *m) {
    return m->matcher;
}

size_t request_grammar_triggers(const struct request_grammar *m,
                                const struct sampler_trigger **out) {
    *out = m->triggers;
    return m->n_trigger;
}

const char *request_grammar_note(const struct request_grammar *m) { return m->note; }

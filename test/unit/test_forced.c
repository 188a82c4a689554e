/* test_forced.c: forced tool calls in every form that models write: whatever the sampler takes out of what
 * the grammar allows, the parser of answers finds calls of the tools, with arguments by their schema. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "backend/request_grammar.h"
#include "call_forms.h"
#include "engine/sampler/sampler_impl.h"
#include "text/chat/chat.h"

enum { N_WALK = 200 };

static const char tools[] = "[{\"type\":\"function\",\"function\":{\"name\":\"weather\","
                            "\"parameters\":{\"type\":\"object\","
                            "\"properties\":{\"unit\":{\"enum\":[\"c\",\"f\"]},\"day\":{\"type\":"
                            "\"integer\",\"minimum\":0,\"maximum\":9}},"
                            "\"required\":[\"unit\",\"day\"],\"additionalProperties\":false}}},"
                            "{\"type\":\"function\",\"function\":{\"name\":\"stop_all\","
                            "\"parameters\":{\"type\":\"object\","
                            "\"properties\":{},\"additionalProperties\":false}}}]";

static int ignore_event(void *ud, const struct chat_event *ev) {
    (void)ud, (void)ev;
    return 0;
}

static void check_call(json_t *call, const char *only) {
    json_t *f = json_object_get(call, "function");
    const char *name = json_string_value(json_object_get(f, "name"));
    json_t *args = json_loads(json_string_value(json_object_get(f, "arguments")), 0, NULL);
    assert_non_null(name);
    assert_true(json_is_object(args));
    if (only) assert_string_equal(name, only);
    if (strcmp(name, "stop_all") == 0) {
        assert_int_equal(json_object_size(args), 0);
    } else {
        const char *unit = json_string_value(json_object_get(args, "unit"));
        json_t *day = json_object_get(args, "day");
        assert_string_equal(name, "weather");
        assert_int_equal(json_object_size(args), 2);
        assert_true(unit && (strcmp(unit, "c") == 0 || strcmp(unit, "f") == 0));
        assert_true(json_is_integer(day)); /* written as one: no 7.0 */
        assert_in_range(json_integer_value(day), 0, 9);
    }
    json_decref(args);
}

/* A random text of the grammar; marks wherever they may stand, as a model would have it. */
static size_t walk(struct grammar_matcher *m, const struct tok *tok, struct rng *r, char *out,
                   size_t max) {
    struct grammar_state *s;
    struct err e = {0};
    uint32_t n_vocab = tok_n_vocab(tok);
    uint64_t bits[(FIRST_MARK + MAX_MARK + 63) / 64];
    size_t n = 0;
    assert_int_equal(grammar_state_new(&s, m, &e), 0);
    for (;;) {
        int32_t ids[FIRST_MARK + MAX_MARK], n_id = 0, n_text = 0, pick = -1;
        assert_int_equal(grammar_mask(s, bits), 0);
        for (uint32_t id = 0; id < n_vocab; id++)
            if (bits[id / 64] >> id % 64 & 1) {
                ids[n_id++] = (int32_t)id;
                if (id < FIRST_MARK) n_text = n_id;
            }
        assert_true(n_id > 0);
        bool may_end = bits[END / 64] >> END % 64 & 1;
        if (may_end && rng_below(r, 2)) pick = END;
        else if (n_id > n_text && (!n_text || rng_below(r, 4)))
            pick = ids[n_text + (int32_t)rng_below(r, (uint64_t)(n_id - n_text))];
        else pick = ids[rng_below(r, (uint64_t)n_id)];
        assert_int_equal(grammar_accept_token(s, pick), 0);
        if (pick == END) break;
        struct slice piece = tok_piece(tok, pick);
        assert_true(n + piece.n < max);
        memcpy(out + n, piece.p, piece.n);
        n += piece.n;
    }
    grammar_state_free(s);
    return n;
}

/* A request, and the grammars of a toy tokenizer. */
struct rig {
    struct tok *tok;
    struct request_grammars *g;
    struct request a;
};

static void rig_open(struct rig *r, const char *const *marks) {
    struct err e = {0};
    r->tok = toy_tok(marks);
    request_init(&r->a);
    if (request_grammars_new(&r->g, r->tok, &e)) fail_msg("%s", e.text);
}

static void rig_close(struct rig *r) {
    request_fini(&r->a);
    request_grammars_free(r->g);
    tok_free(r->tok);
}

static const char *const no_marks[] = {NULL};

static void forced_calls_parse(void **state) {
    (void)state;
    struct rng r;
    rng_seed(&r, 5);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct tok *tok = toy_tok(forms[i].marks);
        struct request_grammars *g;
        struct err e = {0};
        assert_int_equal(request_grammars_new(&g, tok, &e), 0);
        for (int named = 0; named < 2; named++) {
            struct request a;
            struct request_grammar *m;
            request_init(&a);
            a.tools = json_loads(tools, 0, NULL);
            a.tool_choice = named ? REQUEST_TOOLS_NAMED : REQUEST_TOOLS_REQUIRED;
            a.tool_name = named ? "weather" : NULL;
            if (request_grammar_take(g, &a, forms[i].calls, &m, &e))
                fail_msg("%s: %s", chat_calls_name(forms[i].calls), e.text);
            for (int k = 0; k < N_WALK; k++) {
                char text[20000];
                struct chat_parser *p;
                struct chat_result result;
                struct chat_parse_spec spec = {
                    .calls = forms[i].calls, .tools = a.tools, .on_event = ignore_event};
                size_t n = walk(request_grammar_matcher(m), tok, &r, text, sizeof text);
                if (n < strlen(forms[i].begins) ||
                    memcmp(text, forms[i].begins, strlen(forms[i].begins)))
                    fail_msg("%s: %.*s", chat_calls_name(forms[i].calls), (int)n, text);
                assert_int_equal(chat_parser_new(&p, &spec, &e), 0);
                assert_int_equal(chat_parser_push(p, text, n), 0);
                assert_int_equal(chat_parser_finish(p, false), 0);
                chat_parser_result(p, &result);
                if (result.n_call < 1 || result.n_malformed)
                    fail_msg("%s: %s: %.*s", chat_calls_name(forms[i].calls), result.reason, (int)n,
                             text);
                json_t *message = chat_parser_message(p), *call;
                size_t c;
                json_array_foreach(json_object_get(message, "tool_calls"), c, call)
                    check_call(call, named ? "weather" : NULL);
                if (named) assert_int_equal(c, 1);
                const char *content = json_string_value(json_object_get(message, "content"));
                assert_true(!content || !*content);
                json_decref(message);
                chat_parser_free(p);
            }
            request_grammar_drop(g, m);
            request_fini(&a);
        }
        request_grammars_free(g);
        tok_free(tok);
    }
}

static bool takes(struct grammar_matcher *m, const char *text) {
    struct grammar_state *s;
    struct err e = {0};
    size_t at;
    assert_int_equal(grammar_state_new(&s, m, &e), 0);
    bool ok = !grammar_accept_bytes(s, text, strlen(text), &at) && grammar_is_complete(s);
    grammar_state_free(s);
    return ok;
}

/* ---- calls that the model begins ---- */

static const char *const begun[] = {[CHAT_CALLS_QWEN_XML] = "<tool_call>",
                                    [CHAT_CALLS_HERMES] = "<tool_call>",
                                    [CHAT_CALLS_NEMOTRON] = "<TOOLCALL>",
                                    [CHAT_CALLS_GRANITE] = "<|tool_call|>",
                                    [CHAT_CALLS_LLAMA] = "{\"name\": \"weather\"",
                                    [CHAT_CALLS_MISTRAL] = "[TOOL_CALLS]",
                                    [CHAT_CALLS_DEEPSEEK] = DS("calls" LOW "begin"),
                                    [CHAT_CALLS_KIMI] = "<|tool_calls_section_begin|>",
                                    [CHAT_CALLS_SOLAR_JSON] = "<|tool_calls|>",
                                    [CHAT_CALLS_STEP_AUDIO] = "<|CALL_START|>",
                                    [CHAT_CALLS_TOOL_CALLS] = "<tool_calls>",
                                    [CHAT_CALLS_COHERE] = "<|START_ACTION|>",
                                    [CHAT_CALLS_APERTUS] = "<|tools_prefix|>",
                                    [CHAT_CALLS_GIGACHAT] = "<|function_call|>",
                                    [CHAT_CALLS_INTERN] = "<|action_start|><|plugin|>",
                                    [CHAT_CALLS_GLM] = "<tool_call>",
                                    [CHAT_CALLS_HUNYUAN] = "<tool_call:opensource>",
                                    [CHAT_CALLS_LONGCAT] = "<longcat_tool_call>",
                                    [CHAT_CALLS_MINIMAX] = "<minimax:tool_call>",
                                    [CHAT_CALLS_STEP] = "<steptml:invoke name=",
                                    [CHAT_CALLS_ATEM] = "<atem:function_calls>",
                                    [CHAT_CALLS_MINICPM] = "<function name=",
                                    [CHAT_CALLS_DSML] = "<" DSML "function_calls>"};
/* Forms that models write in another way on their own. */
static const enum chat_calls forced_alone[] = {CHAT_CALLS_FUNCTIONARY, CHAT_CALLS_LFM,
                                               CHAT_CALLS_OLMO,        CHAT_CALLS_SOLAR,
                                               CHAT_CALLS_GEMMA,       CHAT_CALLS_HARMONY};

/* The mark's token, or the next byte of its text. */
static int32_t next_of(const struct tok *tok, const char *text, size_t *at) {
    int32_t id = *at ? -1 : tok_find(tok, text, strlen(text));
    if (id >= 0) *at = strlen(text);
    return id >= 0 ? id : (unsigned char)text[(*at)++];
}

/* Free text, two calls, an end: what a model likes, but for the grammar. Returns bytes in out. */
static size_t answer(struct sampler *s, const struct tok *tok, const char *mark, bool first,
                     struct rng *r, char *out, size_t max, int *n_free) {
    float logits[FIRST_MARK + MAX_MARK];
    size_t n = 0, at = 0;
    int n_wait = first ? 0 : 3 + (int)rng_below(r, 9), n_begun = 0;
    bool was_on = false;
    for (;;) {
        for (uint32_t i = 0; i < tok_n_vocab(tok); i++)
            logits[i] = (float)rng_uniform(r) * 4 + (i == '}' || i == '"' || i == '\n' ? 2.0f : 0);
        bool on = s->lazy.is_on;
        if (was_on && !on) n_wait = first ? 0 : 3, at = 0, n_begun++;
        was_on = on;
        if (!on && n_begun == 2) break;
        if (!on && n_wait > 0) logits['a' + rng_below(r, 26)] = 60, n_wait--, (*n_free)++;
        else if (!on && mark[at]) logits[next_of(tok, mark, &at)] = 60;
        int32_t id = sampler_pick(s, logits, NULL);
        assert_true(id >= 0);
        sampler_accept(s, id);
        assert_false(sampler_is_done(s));
        struct slice piece = tok_piece(tok, id);
        if (id == END || n + piece.n >= max) break;
        memcpy(out + n, piece.p, piece.n);
        n += piece.n;
    }
    return n;
}

static void begun_calls_are_valid(void **state) {
    (void)state;
    struct rng r;
    rng_seed(&r, 11);
    int n_call = 0, n_free = 0;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct tok *tok = toy_tok(forms[i].marks);
        struct request_grammars *g;
        struct request a;
        struct request_grammar *m;
        struct err e = {0};
        request_init(&a);
        a.tools = json_loads(tools, 0, NULL);
        a.messages = json_array();
        assert_int_equal(request_grammars_new(&g, tok, &e), 0);
        if (request_grammar_take(g, &a, forms[i].calls, &m, &e)) fail_msg("%s", e.text);
        bool alone = false;
        for (size_t k = 0; k < sizeof forced_alone / sizeof *forced_alone; k++)
            alone |= forms[i].calls == forced_alone[k];
        assert_int_equal(alone, m == NULL);
        if (alone) {
            request_fini(&a);
            request_grammars_free(g);
            tok_free(tok);
            continue;
        }
        assert_null(request_grammar_note(m));
        for (int k = 0; k < 40; k++) {
            static char text[40000];
            struct sampler_params p;
            struct sampler *s;
            struct chat_parser *parser;
            struct chat_result result;
            struct chat_parse_spec spec = {
                .calls = forms[i].calls, .tools = a.tools, .on_event = ignore_event};
            sampler_defaults(&p);
            p.temperature = k % 2 ? 1 : 0;
            p.top_k = 0;
            p.seed = (uint64_t)k;
            p.grammar = request_grammar_matcher(m);
            p.n_trigger = request_grammar_triggers(m, &p.triggers);
            assert_true(p.n_trigger > 0);
            assert_int_equal(sampler_new(&s, &p, (int32_t)tok_n_vocab(tok), tok, &e), 0);
            size_t n = answer(s, tok, begun[forms[i].calls], forms[i].calls == CHAT_CALLS_LLAMA, &r,
                              text, sizeof text, &n_free);
            assert_int_equal(chat_parser_new(&parser, &spec, &e), 0);
            assert_int_equal(chat_parser_push(parser, text, n), 0);
            assert_int_equal(chat_parser_finish(parser, false), 0);
            chat_parser_result(parser, &result);
            if (result.n_call < 1 || result.n_malformed)
                fail_msg("%s: %s: %.*s", chat_calls_name(forms[i].calls), result.reason, (int)n,
                         text);
            json_t *message = chat_parser_message(parser), *call;
            size_t c;
            json_array_foreach(json_object_get(message, "tool_calls"), c, call)
                check_call(call, NULL),
                n_call++;
            json_decref(message);
            chat_parser_free(parser);
            sampler_free(s);
        }
        request_grammar_drop(g, m);
        request_fini(&a);
        request_grammars_free(g);
        tok_free(tok);
    }
    assert_true(n_call > 400 && n_free > 1000);
}

/* Marks inside thinking start no grammar; a token that completes a mark and continues badly is rejected. */
static void triggers_wait_and_refuse(void **state) {
    (void)state;
    static const char *const pieces_marks[] = {"<think>", "</think>", NULL};
    static const struct sampler_trigger triggers[] = {{"[c]", false}, {"{x", true}};
    struct tok *tok = toy_tok(pieces_marks);
    struct grammar *g;
    struct grammar_vocab *v;
    struct grammar_matcher *m;
    struct sampler_params p;
    struct sampler *s;
    struct err e = {0};
    static const char gbnf[] = "root ::= \"[c]\" [0-9] \".\" | \"{x\" [0-9] \"}\"";
    int32_t n_vocab = (int32_t)tok_n_vocab(tok), start = FIRST_MARK, end = FIRST_MARK + 1;
    float logits[FIRST_MARK + MAX_MARK];
    assert_int_equal(grammar_from_gbnf(&g, gbnf, strlen(gbnf), NULL, &e), 0);
    assert_int_equal(grammar_vocab_from_tok(&v, tok, NULL, &e), 0);
    assert_int_equal(grammar_matcher_new(&m, g, v, 1 << 20, &e), 0);
    sampler_defaults(&p);
    p.temperature = 0;
    p.grammar = m;
    p.triggers = triggers;
    p.n_trigger = 2;
    p.think_start = &start, p.n_think_start = 1;
    p.think_end = &end, p.n_think_end = 1;
    /* what the model wants (~: the start, ^: the end of thinking), and what it gets */
    static const struct {
        const char *wants, *gets;
    } x[] = {{"a[c]zz.b", "a[c]0.b"}, /* z is not allowed: the first digit */
             {"~[c]zz^[c]z.", "~[c]zz^[c]0."},
             {" {xz}a{xz", " {x0}a{xz"}, /* at the start alone, and after a call */
             {"{xz};{xz}", "{x0};{x0}"},
             {"[[cc][c]z.[c]z.", "[[cc][c]0.[c]0."}};
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) {
        char got[64] = "";
        assert_int_equal(sampler_new(&s, &p, n_vocab, tok, &e), 0);
        size_t n = 0;
        for (const char *w = x[i].wants; *w; w++) {
            for (int32_t k = 0; k < n_vocab; k++) logits[k] = k >= '0' && k <= '9' ? '9' - k : -50;
            logits[*w == '~' ? start : *w == '^' ? end : (unsigned char)*w] = 60;
            int32_t id = sampler_pick(s, logits, NULL);
            sampler_accept(s, id);
            got[n++] = id == start ? '~' : id == end ? '^' : (char)id;
            if (s->lazy.is_on && got[n - 1] == '0' && w[1] == 'z') w++;
        }
        sampler_free(s);
        assert_string_equal(got, x[i].gets);
    }
    grammar_matcher_free(m), grammar_vocab_free(v), grammar_free(g);
    tok_free(tok);
}

/* In auto such a tool takes any arguments, and is named; a strict one is an error. */
static void unenforced_tools_are_named(void **state) {
    (void)state;
    struct rig r;
    struct request_grammar *m;
    struct err e = {0};
    rig_open(&r, no_marks);
    r.a.messages = json_array();
    r.a.tools = json_loads("[{\"type\":\"function\",\"function\":{\"name\":\"tag_all\","
                           "\"parameters\":{\"type\":\"object\",\"properties\":{\"tags\":{\"type\":"
                           "\"array\",\"uniqueItems\":true}}}}}]",
                           0, NULL);
    if (request_grammar_take(r.g, &r.a, CHAT_CALLS_HERMES, &m, &e)) fail_msg("%s", e.text);
    assert_non_null(strstr(request_grammar_note(m), "tag_all: "));
    assert_non_null(strstr(request_grammar_note(m), "'uniqueItems' at #/properties/tags"));
    assert_true(takes(request_grammar_matcher(m),
                      "<tool_call>\n{\"name\": \"tag_all\", \"arguments\": {\"tags\": [1, 1]}}\n"
                      "</tool_call>"));
    request_grammar_drop(r.g, m);
    json_object_set_new(json_object_get(json_array_get(r.a.tools, 0), "function"), "strict",
                        json_true());
    assert_int_equal(request_grammar_take(r.g, &r.a, CHAT_CALLS_HERMES, &m, &e),
                     CHIMERE_EUNSUPPORTED);
    assert_non_null(strstr(e.text, "tag_all"));
    r.a.tool_choice = REQUEST_TOOLS_NONE;
    assert_int_equal(request_grammar_take(r.g, &r.a, CHAT_CALLS_HERMES, &m, &e), 0);
    assert_null(m);
    rig_close(&r);
}

/* ---- values of XML calls ---- */

struct xml_example {
    const char *schema; /* of the one parameter, v */
    struct {
        const char *value, *json; /* as it stands; as the parser reads it */
    } yes[5];
    const char *no[6];
};

static const struct xml_example xml_examples[] = {
    {"{\"type\":\"string\",\"const\":\"fixed\"}", {{"fixed", "\"fixed\""}}, {"\"fixed\"", "x", ""}},
    {"{\"type\":\"string\",\"pattern\":\"^\\\\d{3}$\"}",
     {{"123", "\"123\""}},
     {"12", "1234", "abc"}},
    {"{\"type\":\"string\",\"minLength\":3,\"maxLength\":3}",
     {{"abc", "\"abc\""}, {"\n\xc3\xa9\n", "\"\\n\\u00e9\\n\""}},
     {"ab", "abcd", ""}},
    {"{\"type\":\"string\",\"maxLength\":9000,\"minLength\":1}", {{"abc", "\"abc\""}}, {""}},
    {"{\"type\":\"string\",\"format\":\"date\"}",
     {{"2026-02-28", "\"2026-02-28\""}},
     {"2026-02-29", "today"}},
    {"{\"type\":\"string\"}",
     {{"", "\"\""},
      {"5", "\"5\""},
      {"a \"b\" \\u00e9", "\"a \\\"b\\\" \\\\u00e9\""},
      {"x</parameter> y", "\"x</parameter> y\""}},
     {"a</parameter></function>", "\n</parameter>\nz", "</parameter>", "a\n<parameter=w>",
      "</function> </tool_call>", "a\r"}},
    {"{\"anyOf\":[{\"type\":\"string\",\"maxLength\":4},{\"type\":\"null\"}]}",
     {{"null", "null"}, {"abcd", "\"abcd\""}, {"\"a\"", "\"\\\"a\\\"\""}},
     {"abcde", "None", " null"}},
    {"{\"type\":[\"string\",\"integer\"],\"minimum\":3}",
     {{"3", "3"}, {"a3", "\"a3\""}, {"3 4", "\"3 4\""}},
     {"2", "2.0", " 2"}},
    {"{\"type\":[\"string\",\"boolean\",\"array\",\"object\"],\"items\":{\"type\":\"integer\"}}",
     {{"true", "true"}, {"[1]", "[1]"}, {"{\"a\":1}", "{\"a\":1}"}, {"truer", "\"truer\""}},
     {"True", "[\"a\"]", "[x", "{x"}},
    {"{\"$ref\":\"#/$defs/u\"}", {{"c", "\"c\""}, {"7", "7"}}, {"d", "8", "\"c\""}},
    {"{\"type\":\"array\",\"items\":{\"enum\":[\"a/b\",\"\xc3\xa9\"]},\"maxItems\":2}",
     {{"[\"a/b\", \"\xc3\xa9\"]", "[\"a/b\",\"\\u00e9\"]"}, {"[]", "[]"}},
     {"[\"a\\/b\"]", "[\"\\u00e9\"]", "[1]"}},
    {"{\"type\":\"string\",\"nullable\":true}", {{"null", "null"}, {"x", "\"x\""}}, {NULL}},
    {"{}", {{"5", "\"5\""}, {"{", "\"{\""}}, {NULL}},
    {"{\"type\":\"integer\"}",
     {{"1234567890123456", "1234567890123456"}, {"-1", "-1"}},
     {"12345678901234567", "1.0", "1e3", "x"}},
    {"{\"type\":\"number\"}", {{"1.5", "1.5"}, {"-2", "-2"}}, {"0.12345678901234567", "x"}},
};

static json_t *parsed(json_t *tools_list, const char *text) {
    struct chat_parser *p;
    struct err e = {0};
    struct chat_parse_spec spec = {
        .calls = CHAT_CALLS_QWEN_XML, .tools = tools_list, .on_event = ignore_event};
    assert_int_equal(chat_parser_new(&p, &spec, &e), 0);
    assert_int_equal(chat_parser_push(p, text, strlen(text)), 0);
    assert_int_equal(chat_parser_finish(p, false), 0);
    json_t *message = chat_parser_message(p);
    json_t *call = json_array_get(json_object_get(message, "tool_calls"), 0);
    const char *args =
        json_string_value(json_object_get(json_object_get(call, "function"), "arguments"));
    json_t *out = args ? json_loads(args, JSON_ALLOW_NUL, NULL) : NULL;
    json_decref(message);
    chat_parser_free(p);
    return out;
}

static void xml_values_keep_the_schema(void **state) {
    (void)state;
    struct tok *tok = toy_tok(no_marks);
    struct request_grammars *g;
    struct err e = {0};
    assert_int_equal(request_grammars_new(&g, tok, &e), 0);
    for (size_t i = 0; i < sizeof xml_examples / sizeof *xml_examples; i++) {
        const struct xml_example *x = &xml_examples[i];
        struct request a;
        struct request_grammar *m;
        char text[400];
        request_init(&a);
        a.tools = json_pack("[{s:s,s:{s:s,s:{s:s,s:{s:o},s:[s],s:{s:{s:[s,i]}}}}}]", "type",
                            "function", "function", "name", "f", "parameters", "type", "object",
                            "properties", "v", json_loads(x->schema, 0, NULL), "required", "v",
                            "$defs", "u", "enum", "c", 7);
        a.tool_choice = REQUEST_TOOLS_REQUIRED;
        assert_non_null(a.tools);
        if (request_grammar_take(g, &a, CHAT_CALLS_QWEN_XML, &m, &e))
            fail_msg("%s: %s", x->schema, e.text);
        static const char form[] = "<tool_call>\n<function=f>\n<parameter=v>\n%s\n</parameter>\n"
                                   "</function>\n</tool_call>";
        for (int k = 0; k < 5 && x->yes[k].value; k++) {
            snprintf(text, sizeof text, form, x->yes[k].value);
            json_t *read = parsed(a.tools, text),
                   *want = json_loads(x->yes[k].json, JSON_DECODE_ANY, NULL);
            if (!takes(request_grammar_matcher(m), text))
                fail_msg("%s does not allow %s", x->schema, x->yes[k].value);
            assert_non_null(want);
            if (!json_equal(json_object_get(read, "v"), want))
                fail_msg("%s: %s is not read as %s", x->schema, x->yes[k].value, x->yes[k].json);
            json_decref(read), json_decref(want);
        }
        for (int k = 0; k < 6 && x->no[k]; k++) {
            snprintf(text, sizeof text, form, x->no[k]);
            if (takes(request_grammar_matcher(m), text))
                fail_msg("%s allows %s", x->schema, x->no[k]);
        }
        request_grammar_drop(g, m);
        request_fini(&a);
    }
    request_grammars_free(g);
    tok_free(tok);
}

/* Any order, and every keyword of the object itself. */
static void xml_parameters_are_an_object(void **state) {
    (void)state;
    static const char schema[] =
        "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"allOf\":[{"
        "\"properties\":{\"a\":{\"type\":\"integer\"}}}],\"properties\":{\"b\":{\"enum\":[\"x\"]},"
        "\"a>\":{}},\"patternProperties\":{\"^n_\":{\"type\":\"integer\"}},"
        "\"additionalProperties\":false,\"minProperties\":1,"
        "\"dependentRequired\":{\"a\":[\"b\"]}}}}]";
#define P(name, value) "<parameter=" name ">\n" value "\n</parameter>\n"
    static const struct {
        const char *params;
        bool ok;
    } x[] = {{P("b", "x"), true},
             {P("b", "x") P("n_1", "5") P("n_2", "6"), true},
             {"", false},
             {P("c", "x"), false},
             {P("n_1", "x"), false},
             {P("b", "x") P("b", "x"), false},
             {P("a>", "x"), false}};
    struct rig r;
    struct request_grammar *m;
    struct err e = {0};
    rig_open(&r, no_marks);
    r.a.tools = json_loads(schema, 0, NULL);
    r.a.tool_choice = REQUEST_TOOLS_REQUIRED;
    if (request_grammar_take(r.g, &r.a, CHAT_CALLS_QWEN_XML, &m, &e)) fail_msg("%s", e.text);
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) {
        char text[400];
        snprintf(text, sizeof text, "<tool_call>\n<function=f>\n%s</function>\n</tool_call>",
                 x[i].params);
        if (takes(request_grammar_matcher(m), text) != x[i].ok) fail_msg("%s", text);
    }
    request_grammar_drop(r.g, m);
    rig_close(&r);
}

/* Plain JSON answers still contain no control token. */
static void marks_stay_out_of_texts(void **state) {
    (void)state;
    static const char *const marks[] = {"[TOOL_CALLS]", NULL};
    struct rig r;
    struct request_grammar *m;
    struct grammar_state *s;
    struct err e = {0};
    uint64_t bits[(FIRST_MARK + MAX_MARK + 63) / 64];
    rig_open(&r, marks);
    r.a.format = REQUEST_JSON_SCHEMA;
    r.a.schema = json_pack("{s:s}", "type", "string");
    if (request_grammar_take(r.g, &r.a, CHAT_CALLS_MISTRAL, &m, &e)) fail_msg("%s", e.text);
    assert_int_equal(grammar_state_new(&s, request_grammar_matcher(m), &e), 0);
    assert_int_equal(grammar_accept_token(s, '"'), 0);
    assert_int_equal(grammar_mask(s, bits), 0);
    assert_true(bits['[' / 64] >> '[' % 64 & 1);
    assert_false(bits[FIRST_MARK / 64] >> FIRST_MARK % 64 & 1);
    grammar_state_free(s);
    request_grammar_drop(r.g, m);
    rig_close(&r);
}

/* What cannot be enforced is refused by the tool's and the keyword's name. */
static void refusals_name_tool_and_keyword(void **state) {
    (void)state;
    struct rig r;
    struct request_grammar *m;
    struct err e = {0};
    rig_open(&r, no_marks);
    r.a.tools = json_loads("[{\"type\":\"function\",\"function\":{\"name\":\"tag_all\","
                           "\"parameters\":{\"type\":\"object\",\"properties\":{\"tags\":{\"type\":"
                           "\"array\",\"uniqueItems\":true}}}}}]",
                           0, NULL);
    r.a.tool_choice = REQUEST_TOOLS_REQUIRED;
    assert_int_equal(request_grammar_take(r.g, &r.a, CHAT_CALLS_HERMES, &m, &e),
                     CHIMERE_EUNSUPPORTED);
    assert_non_null(strstr(e.text, "tag_all"));
    assert_non_null(strstr(e.text, "'uniqueItems' at #/properties/tags"));
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forced_calls_parse),
        cmocka_unit_test(begun_calls_are_valid),
        cmocka_unit_test(triggers_wait_and_refuse),
        cmocka_unit_test(unenforced_tools_are_named),
        cmocka_unit_test(xml_values_keep_the_schema),
        cmocka_unit_test(xml_parameters_are_an_object),
        cmocka_unit_test(marks_stay_out_of_texts),
        cmocka_unit_test(refusals_name_tool_and_keyword),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

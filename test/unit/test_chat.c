/* test_chat.c: the output parser: every form of call, what goes wrong, and all ways to cut the text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/str.h"
#include "text/chat/chat.h"

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{\"type\":"
    "\"object\",\"properties\":{"
    "\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"},\"opts\":{\"type\":\"object\"},"
    "\"flag\":{\"type\":\"boolean\"},\"note\":{\"type\":[\"string\",\"null\"]},"
    "\"unit\":{\"anyOf\":[{\"$ref\":\"#/$defs/U\"},{\"type\":\"number\"}]}},"
    "\"$defs\":{\"U\":{\"enum\":[\"c\",\"f\"]}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"python\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{}}}}]";

#define DS_BAR "\xef\xbd\x9c"
#define DS_LOW "\xe2\x96\x81"
#define DS_BEGIN "<" DS_BAR "tool" DS_LOW "calls" DS_LOW "begin" DS_BAR ">"
#define DS_END "<" DS_BAR "tool" DS_LOW "calls" DS_LOW "end" DS_BAR ">"
#define DS_CALL "<" DS_BAR "tool" DS_LOW "call" DS_LOW "begin" DS_BAR ">"
#define DS_CALL_END "<" DS_BAR "tool" DS_LOW "call" DS_LOW "end" DS_BAR ">"
#define DS_SEP "<" DS_BAR "tool" DS_LOW "sep" DS_BAR ">"

/* Events as text: C(..) content, R(..) reasoning, [n name ..args..] calls, [n name ..! void, M(reason);
 * [n name ..| cut. */
struct rec {
    struct buf log;
    int last; /* kind of the delta that may be continued, -1 none */
    struct buf args[8];
};

static void rec_close(struct rec *r) {
    if (r->last == CHAT_CONTENT || r->last == CHAT_REASONING) buf_puts(&r->log, ")");
    r->last = -1;
}

static int on_event(void *arg, const struct chat_event *ev) {
    struct rec *r = arg;
    if (ev->kind == CHAT_CONTENT || ev->kind == CHAT_REASONING || ev->kind == CHAT_ARGS) {
        assert_true(ev->n > 0);
        assert_int_equal(ev->text[ev->n], 0);
    }
    switch (ev->kind) {
    case CHAT_CONTENT:
    case CHAT_REASONING:
        if (r->last != (int)ev->kind) {
            rec_close(r);
            buf_puts(&r->log, ev->kind == CHAT_CONTENT ? "C(" : "R(");
            r->last = (int)ev->kind;
        }
        buf_put(&r->log, ev->text, ev->n);
        break;
    case CHAT_CALL:
        rec_close(r);
        assert_true(strlen(ev->id) > 0 && strlen(ev->name) > 0);
        buf_printf(&r->log, "[%d %s ", ev->index, ev->name);
        break;
    case CHAT_ARGS:
        rec_close(r);
        buf_put(&r->log, ev->text, ev->n);
        if (ev->index < 8) buf_put(&r->args[ev->index], ev->text, ev->n);
        break;
    case CHAT_CALL_END:
    case CHAT_CALL_CUT:
    case CHAT_MALFORMED:
        rec_close(r);
        if (ev->index >= 0 && ev->index < 8) { /* a JSON object if complete, else no JSON */
            const struct buf *args = &r->args[ev->index];
            assert_true(args->n > 0);
            json_t *j = json_loadb(args->p, args->n, JSON_DECODE_INT_AS_REAL, NULL);
            assert_true(json_is_object(j) == (ev->kind == CHAT_CALL_END));
            json_decref(j);
        }
        if (ev->kind == CHAT_CALL_END) buf_puts(&r->log, "]");
        else if (ev->kind == CHAT_CALL_CUT) buf_puts(&r->log, "|");
        else buf_printf(&r->log, "%sM(%s)", ev->index >= 0 ? "!" : "", ev->reason);
        break;
    }
    return 0;
}

struct setup {
    enum chat_calls calls;
    bool in_think, hold, no_tools, is_cut;
};

/* Parses with cuts at a and b; the events as text. */
static char *run(const struct setup *s, const char *text, size_t n, size_t a, size_t b,
                 bool bytes) {
    struct rec r = {.last = -1};
    buf_init(&r.log, 1 << 24);
    for (int i = 0; i < 8; i++) buf_init(&r.args[i], 1 << 24);
    json_t *tools = s->no_tools ? NULL : json_loads(tools_text, 0, NULL);
    struct chat_parse_spec spec = {.calls = s->calls,
                                   .reasoning = true,
                                   .in_think = s->in_think,
                                   .hold = s->hold,
                                   .tools = tools,
                                   .id_seed = 7,
                                   .on_event = on_event,
                                   .arg = &r};
    struct chat_parser *p;
    assert_int_equal(chat_parser_new(&p, &spec, NULL), 0);
    if (bytes) {
        for (size_t i = 0; i < n; i++) assert_int_equal(chat_parser_push(p, text + i, 1), 0);
    } else {
        assert_int_equal(chat_parser_push(p, text, a), 0);
        assert_int_equal(chat_parser_push(p, text + a, b - a), 0);
        assert_int_equal(chat_parser_push(p, text + b, n - b), 0);
    }
    assert_int_equal(chat_parser_finish(p, s->is_cut), 0);
    rec_close(&r);
    json_t *m = chat_parser_message(p);
    assert_non_null(m);
    size_t i;
    json_t *call;
    json_array_foreach(json_object_get(m, "tool_calls"), i, call) {
        const char *args =
            json_string_value(json_object_get(json_object_get(call, "function"), "arguments"));
        json_t *j = json_loads(args, JSON_DECODE_INT_AS_REAL, NULL);
        assert_true(json_is_object(j));
        json_decref(j);
    }
    struct chat_result res;
    chat_parser_result(p, &res);
    assert_int_equal(json_array_size(json_object_get(m, "tool_calls")), (size_t)res.n_call);
    json_decref(m);
    chat_parser_free(p);
    json_decref(tools);
    for (int k = 0; k < 8; k++) buf_fini(&r.args[k]);
    char *out = buf_take(&r.log);
    assert_non_null(out);
    return out;
}

static void check(const struct setup *s, const char *text, const char *expected) {
    size_t n = strlen(text);
    char *whole = run(s, text, n, n, n, false);
    assert_string_equal(whole, expected);
    char *bytes = run(s, text, n, 0, 0, true);
    assert_string_equal(bytes, expected);
    mem_free(bytes);
    size_t step = n > 160 ? n / 80 : 1;
    for (size_t a = 0; a <= n; a++)
        for (size_t b = a; b <= n; b += step) {
            char *cut = run(s, text, n, a, b, false);
            if (strcmp(cut, expected) != 0)
                fail_msg("cut at %zu, %zu: %s\nexpected %s", a, b, cut, expected);
            mem_free(cut);
        }
    mem_free(whole);
}

static const struct setup xml = {CHAT_CALLS_QWEN_XML, false, false, false, false};
static const struct setup xml_think = {CHAT_CALLS_QWEN_XML, true, false, false, false};
static const struct setup xml_hold = {CHAT_CALLS_QWEN_XML, false, true, false, false};
static const struct setup hermes = {CHAT_CALLS_HERMES, false, false, false, false};
static const struct setup nemotron = {CHAT_CALLS_NEMOTRON, false, false, false, false};
static const struct setup granite = {CHAT_CALLS_GRANITE, false, false, false, false};
static const struct setup llama = {CHAT_CALLS_LLAMA, false, false, false, false};
static const struct setup llama_no_tools = {CHAT_CALLS_LLAMA, false, false, true, false};
static const struct setup mistral = {CHAT_CALLS_MISTRAL, false, false, false, false};
static const struct setup deepseek = {CHAT_CALLS_DEEPSEEK, true, false, false, false};
static const struct setup none = {CHAT_CALLS_NONE, false, false, false, false};

#include "chat_harmony.h"

static void test_text_and_reasoning(void **state) {
    (void)state;
    check(&none, "Hello  world \n", "C(Hello  world \n)");
    check(&none, "", "");
    check(&none, "<think>\nhm\n</think>\n\nYes.", "R(hm)C(Yes.)");
    check(&none, "<think>\n\n</think>\n\nYes.", "C(Yes.)");
    check(&xml_think, "thinking a < b\n\n</think>\n\nDone </think> and <think>",
          "R(thinking a < b)C(Done </think> and <think>)");
    check(&xml_think, "<think>\nagain</think>ok", "R(again)C(ok)");
    check(&xml_think, "cut short \n", "R(cut short)");
    check(&none, "a <thin", "C(a <thin)");
    check(&none, "x <tool_call>{}</tool_call>", "C(x <tool_call>{}</tool_call>)");
    struct setup s = mistral;
    check(&s, "[THINK]why[/THINK]so", "R(why)C(so)");
    check(&none, "bad \xff\xc3 bytes \xe2\x82",
          "C(bad \xef\xbf\xbd\xef\xbf\xbd bytes \xef\xbf\xbd\xef\xbf\xbd)");
}

#define XML_CALL                                                                                   \
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nPau\n</parameter>\n</function>\n</"    \
    "tool_call>"

static void test_xml(void **state) {
    (void)state;
    check(&xml, "Let me look.\n\n" XML_CALL, "C(Let me look.)[0 get_weather {\"city\":\"Pau\"}]");
    check(&xml_hold, "A " XML_CALL "\n", "C(A)[0 get_weather {\"city\":\"Pau\"}]");
    check(&xml, XML_CALL "\n" XML_CALL "\nand more",
          "[0 get_weather {\"city\":\"Pau\"}][1 get_weather {\"city\":\"Pau\"}]C(\nand more)");
    check(&xml, "<tool_call><function=get_weather></function></tool_call>", "[0 get_weather {}]");
    /* types come from the schema: strings stay strings */
    check(&xml,
          "<tool_call>\n<function=get_weather>\n<parameter=city>\n64000\n</"
          "parameter>\n<parameter=days>\n3\n</parameter>\n"
          "<parameter=opts>\n{\"a\": [1, "
          "2.50]}\n</parameter>\n<parameter=flag>\nTrue\n</parameter>\n<parameter=note>\nnull\n"
          "</parameter>\n<parameter=unit>\nf\n</parameter>\n<parameter=other>\n12\n</parameter>\n</"
          "function>\n</tool_call>",
          "[0 get_weather "
          "{\"city\":\"64000\",\"days\":3,\"opts\":{\"a\":[1,2.50]},\"flag\":true,\"note\":null,"
          "\"unit\":\"f\","
          "\"other\":\"12\"}]");
    check(&xml,
          "<tool_call><function=get_weather><parameter=days>\nmany\n</parameter></function></"
          "tool_call>",
          "[0 get_weather {\"days\":\"many\"}]");
    /* lines, quotes, blank edges and markup inside a value */
    check(&xml,
          "<tool_call>\n<function=get_weather>\n<parameter=city>\n\n "
          "a\"b\\\n</div>\n\n</parameter>\n</function>\n</tool_call>",
          "[0 get_weather {\"city\":\"\\n a\\\"b\\\\\\n</div>\\n\"}]");
    check(&xml,
          "<tool_call>\n<function=get_weather>\n<parameter=city>\nsay </parameter> "
          "here\n</parameter>\n</function>\n</tool_call>",
          "[0 get_weather {\"city\":\"say </parameter> here\"}]");
    /* tolerated: doubled and missing end tags */
    check(&xml,
          "<tool_call>\n<function=get_weather>\n<parameter=city>\nPau\n</parameter>\n</"
          "parameter>\n</function>\n</tool_call>",
          "[0 get_weather {\"city\":\"Pau\"}]");
    check(&xml,
          "<tool_call>\n<function=get_weather>\n<parameter=city>\nPau\n<parameter=days>\n2\n</"
          "function>\n</tool_call>",
          "[0 get_weather {\"city\":\"Pau\",\"days\":2}]");
    check(&xml, "<function=get_weather>\n<parameter=city>\nPau\n</parameter>\n</function>",
          "[0 get_weather {\"city\":\"Pau\"}]");
    /* the other form behind the same mark */
    check(&xml,
          "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
          "\"Pau\"}}\n</tool_call>",
          "[0 get_weather {\"city\":\"Pau\"}]");
}

static void test_xml_in_reasoning(void **state) {
    (void)state;
    check(&xml_think, "I will call.\n" XML_CALL "\n",
          "R(I will call.)[0 get_weather {\"city\":\"Pau\"}]");
    check(&xml_think, "I use <tool_call> then.</think>Hi", "R(I use <tool_call> then.)C(Hi)");
    check(&xml_think, "Like <tool_call>\n<function=f>\n<parameter=x>\n1</think>\n" XML_CALL,
          "R(Like <tool_call>\n<function=f>\n<parameter=x>\n1)[0 get_weather {\"city\":\"Pau\"}]");
}

static void test_xml_malformed(void **state) {
    (void)state;
    check(&xml, "See <tool_call> in the docs.",
          "C(See)M(no call behind the mark)C( <tool_call> in the docs.)");
    check(&xml, "<tool_call>\n<function=get_weather>\n<parameter=city>\nPa",
          "[0 get_weather {\"city\":\"Pa|");
    check(&xml, "<tool_call>\n<function=get_weather>\n<parameter=days>\n1",
          "[0 get_weather {\"days\":|");
    check(&xml_hold, "<tool_call>\n<function=get_weather>\n<parameter=city>\nPa",
          "[0 get_weather {\"city\":\"Pa|");
    check(&xml, "<tool_call>\n<function=get_weather>\nnonsense " XML_CALL,
          "[0 get_weather {!M(text between the parameters of a "
          "call)C(<tool_call>\n<function=get_weather>\nnonsense)"
          "[1 get_weather {\"city\":\"Pau\"}]");
    check(&xml, "a <tool_ca", "C(a <tool_ca)");
    check(&xml, "<tool_call>\n<function=>\n</function>",
          "M(a function without a valid name)C(<tool_call>\n<function=>\n</function>)");
}

/* A call that is cut anywhere, by a limit or a stop string: never valid (rec asserts it), never completed,
 * no markup as text; whole and held alike. */
static void test_cut_anywhere(void **state) {
    (void)state;
    static const struct {
        enum chat_calls calls;
        const char *text;
        int n_after; /* bytes of end marks after the call's end */
    } rows[] = {
        {CHAT_CALLS_QWEN_XML,
         "<tool_call>\n<function=get_weather>\n<parameter=city>\na} </parameter> b}\n</parameter>\n"
         "<parameter=opts>\n{\"a\": {}}\n</parameter>\n</function>\n</tool_call>",
         13},
        {CHAT_CALLS_QWEN_XML, "<tool_call>\n<function=get_weather>\n</function>\n</tool_call>", 13},
        {CHAT_CALLS_HERMES,
         "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": {\"b\": \"}\"}}}\n</tool_call>",
         13},
        {CHAT_CALLS_HERMES, "<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"f\"}</tool_call>",
         12},
        {CHAT_CALLS_NEMOTRON, "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]</TOOLCALL>",
         12},
        {CHAT_CALLS_GRANITE, "<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]", 1},
        {CHAT_CALLS_LLAMA, "<|python_tag|>{\"name\": \"f\", \"parameters\": {\"a\": [1, 2]}}", 0},
        {CHAT_CALLS_MISTRAL, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}}]", 1},
        {CHAT_CALLS_MISTRAL, "[TOOL_CALLS]f[ARGS]{\"a\": 1}", 0},
        {CHAT_CALLS_DEEPSEEK, DS_BEGIN DS_CALL "f" DS_SEP "{\"a\": 1}" DS_CALL_END DS_END, 51},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t n = strlen(rows[i].text);
        for (size_t k = 1; k <= n; k++)
            for (int hold = 0; hold < 2; hold++) {
                struct setup s = {rows[i].calls, false, hold, false, true};
                char *log = run(&s, rows[i].text, k, 0, 0, true);
                bool is_end = log[0] && log[strlen(log) - 1] == ']';
                bool is_text = strstr(log, "C(") != NULL;
                if (is_end != (k >= n - (size_t)rows[i].n_after) || (is_text && k > 20))
                    fail_msg("%.*s: %s", (int)k, rows[i].text, log);
                mem_free(log);
            }
    }
    /* ended by the model: a mark that opens no call stays text; a call that was begun is cut all the same */
    check(&xml, "a <tool_ca", "C(a <tool_ca)");
    struct setup s = xml;
    s.is_cut = true;
    check(&s, "a <tool_ca", "C(a )");
    check(&s, "a <", "C(a <)");
    check(&s, "a <tool_call>\n<func", "C(a)");
}

/* Calls without a mark of their own, cut after every byte: nothing of them is text, and none is valid before its end.
 * JSON that cannot become a call is text. */
static void test_cut_bare(void **state) {
    (void)state;
    static const struct {
        enum chat_calls calls;
        const char *text;
        size_t begun; /* bytes after which a call is reported */
        size_t ended; /* and after which it is complete */
    } rows[] = {
        {CHAT_CALLS_LLAMA, "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"a}\"}}", 22,
         53},
        {CHAT_CALLS_LLAMA, "{\"parameters\": {\"city\": {}}, \"name\": \"get_weather\"}", 50, 51},
        {CHAT_CALLS_LLAMA,
         "{\"type\": \"function\", \"name\": \"get_weather\", \"parameters\": {}}", 42, 61},
        {CHAT_CALLS_LLAMA, "{\"name\": \"get_weather\", \"id\": \"x\", \"parameters\": \"{}\"}", 22,
         54},
        {CHAT_CALLS_LLAMA,
         "{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"parameters\": {}}}",
         55, 75},
        {CHAT_CALLS_LLAMA, "[{\"name\": \"get_weather\", \"parameters\": {\"days\": 3}}]", 23, 51},
        {CHAT_CALLS_LLAMA, "[get_weather(city=\"a)\", days=3)]", 13, 31},
        {CHAT_CALLS_FUNCTIONARY, "get_weather\n{\"city\": \"a}\"}", 12, 26},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t k = 0, n = strlen(rows[i].text); k <= n; k++)
            for (int hold = 0; hold < 2; hold++) {
                struct setup s = {rows[i].calls, false, hold, false, true};
                char *log = run(&s, rows[i].text, k, 0, 0, true);
                bool is_end = log[0] && log[strlen(log) - 1] == ']', is_begun = log[0] != 0;
                if (is_end != (k >= rows[i].ended) || is_begun != (k >= rows[i].begun) ||
                    strchr(log, 'C') || strchr(log, 'M'))
                    fail_msg("%.*s: %s", (int)k, rows[i].text, log);
                mem_free(log);
            }
    struct setup s = {CHAT_CALLS_LLAMA, false, false, false, true};
    static const char *const plain[] = {"{\"city\"",
                                        "{\"id\": 12",
                                        "{\"name\": \"Pau",
                                        "{\"name\": \"get_weather\", \"of",
                                        "{\"type\": \"obj",
                                        "[1",
                                        "[Pau",
                                        "{\"na\": "};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        char expected[64];
        snprintf(expected, sizeof expected, "C(%s)", plain[i]);
        char *log = run(&s, plain[i], strlen(plain[i]), 0, 0, true);
        size_t n_log = strlen(log); /* blanks at the end may be dropped */
        if (strncmp(log, expected, n_log - 1) != 0 || n_log < 4) fail_msg("%s: %s", plain[i], log);
        mem_free(log);
    }
}

static void test_json(void **state) {
    (void)state;
    check(&hermes,
          "Ok.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Pau\", "
          "\"days\": 1.50}}\n</tool_call>",
          "C(Ok.)[0 get_weather {\"city\":\"Pau\",\"days\":1.50}]");
    check(&hermes,
          "<tool_call>{\"arguments\": {\"city\": \"\\u00e9\\ud83d\\ude00\"}, \"name\": "
          "\"get_weather\"}</tool_call>",
          "[0 get_weather {\"city\":\"\\u00e9\\ud83d\\ude00\"}]");
    check(&hermes, "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>",
          "[0 f {\"a\":1}]");
    check(&hermes, "<tool_call>{\"name\": \"f\"}</tool_call>", "[0 f {}]");
    check(&hermes, "<tool_call>{\"name\": \"f\", \"arguments\": null, \"id\": \"x\", \"n\": 12}",
          "[0 f {}]");
    check(&hermes,
          "<tool_call>{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": "
          "{}}}</tool_call>",
          "[0 f {}]");
    /* raw line breaks, NUL and lone surrogates become what every reader takes */
    check(
        &hermes,
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"x\ny\\u0000\\ud800z\"}}</tool_call>",
        "[0 f {\"a\":\"x\\ny\\ufffd\\ufffdz\"}]");
    check(&hermes, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": tru}}</tool_call> x",
          "[0 f {\"a\":!M(JSON that is not valid)C(<tool_call>{\"name\": \"f\", "
          "\"arguments\": {\"a\": tru}}</tool_call> x)");
    check(&hermes,
          "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [1, 99999999999999999999]}}",
          "[0 f {\"a\":[1,99999999999999999999]}]");
    check(&hermes, "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
          "[0 f {!M(arguments that are no JSON object)C(<tool_call>{\"name\": \"f\", "
          "\"arguments\": [1]}</tool_call>)");
    check(&hermes, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": {\"b\": \"c",
          "[0 f {\"a\":{\"b\":\"c|");
    check(&hermes, "<tool_call>{\"nam", "M(the text ends inside a call)C(<tool_call>{\"nam)");
    check(&hermes, "<tool_call>{\"a\": <tool_call>{\"name\": \"f\"}</tool_call>",
          "M(JSON that is not valid)C(<tool_call>{\"a\":)[0 f {}]");
}

static void test_lists(void **state) {
    (void)state;
    check(&nemotron,
          "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", "
          "\"arguments\": {}}]</TOOLCALL>\n",
          "[0 f {\"a\":1}][1 g {}]");
    check(&granite, "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]",
          "[0 f {\"a\":1}]");
    check(&granite, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>",
          "[0 f {\"a\":1}]");
    check(&nemotron, "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {}}, oops]</TOOLCALL>",
          "[0 f {}]M(no call behind the mark)C(, oops]</TOOLCALL>)");
    check(&nemotron, "<TOOLCALL>[]</TOOLCALL>nothing", "C(nothing)");
}

static void test_llama(void **state) {
    (void)state;
    check(&llama, "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Pau\"}}",
          "[0 get_weather {\"city\":\"Pau\"}]");
    check(&llama,
          "<|python_tag|>{\"type\": \"function\", \"name\": \"get_weather\", \"parameters\": {}}",
          "[0 get_weather {}]");
    check(&llama,
          "{\"name\": \"get_weather\", \"parameters\": {}}; {\"name\": \"python\", \"parameters\": "
          "{\"code\": \"1\"}}",
          "[0 get_weather {}][1 python {\"code\":\"1\"}]");
    check(&llama, "<|python_tag|>print(1)\n", "[0 python {\"code\":\"print(1)\"}]");
    check(&llama, "<|python_tag|>brave_search.call(query=\"a \\\"b\\\", c\", n=2)",
          "[0 brave_search {\"query\":\"a \\\"b\\\", c\",\"n\":2}]");
    /* JSON that is no call is an answer */
    check(&llama, "{\"name\": \"Ada\", \"parameters\": {}}",
          "C({\"name\": \"Ada\", \"parameters\": {}})");
    check(&llama, "{\"temperature\": 21}", "C({\"temperature\": 21})");
    check(&llama, "{\"name\": \"get_weather\"}", "C({\"name\": \"get_weather\"})");
    check(&llama, "Use {\"name\": \"get_weather\", \"parameters\": {}}",
          "C(Use {\"name\": \"get_weather\", \"parameters\": {}})");
    check(&llama_no_tools, "{\"name\": \"get_weather\", \"parameters\": {}}",
          "C({\"name\": \"get_weather\", \"parameters\": {}})");
}

static void test_mistral(void **state) {
    (void)state;
    check(&mistral,
          "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"id\": \"abcDEF123\"}, "
          "{\"name\": \"g\", \"arguments\": {}}]",
          "[0 f {\"a\":1}][1 g {}]");
    check(&mistral, "Sure. [TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g[CALL_ID]abc123xyz[ARGS]{}",
          "C(Sure.)[0 f {\"a\":1}][1 g {}]");
    check(&mistral, "[TOOL_CALLS]get_weather{\"city\": \"Pau\"}",
          "[0 get_weather {\"city\":\"Pau\"}]");
    check(&mistral, "[TOOL_CALLS]f[ARGS]{\"a\"", "[0 f {\"a\"|");
}

static void test_deepseek(void **state) {
    (void)state;
    check(&deepseek,
          "hm</think>" DS_BEGIN DS_CALL "function" DS_SEP "f\n```json\n{\"a\": 1}\n```" DS_CALL_END
          "\n" DS_CALL "function" DS_SEP "g\n```json\n{}\n```" DS_CALL_END DS_END,
          "R(hm)[0 f {\"a\":1}][1 g {}]");
    check(&deepseek, "</think>x" DS_BEGIN DS_CALL "f" DS_SEP "{\"a\": 1}" DS_CALL_END DS_END,
          "C(x)[0 f {\"a\":1}]");
    check(&deepseek, "</think>" DS_BEGIN "text", "M(no call behind the mark)C(" DS_BEGIN "text)");
}

/* Calls as the published templates of each family render them. */
#define WEATHER "{\"city\":\"Pau \\\"x\\\"\",\"days\":2,\"opts\":{\"a\":true,\"n\":null}}"
#define JSON_ARGS "{\"city\": \"Pau \\\"x\\\"\", \"days\": 2, \"opts\": {\"a\": true, \"n\": null}}"
#define DSML                                                                                       \
    "<\xef\xbd\x9c"                                                                                \
    "DSML\xef\xbd\x9c"
#define DSML_END                                                                                   \
    "</\xef\xbd\x9c"                                                                               \
    "DSML\xef\xbd\x9c"
static const char both[] = "C(Ok.)[0 get_weather " WEATHER "][1 python {}]",
                  alone[] = "C(Ok.)[0 get_weather " WEATHER "]";
static const struct {
    enum chat_calls calls;
    const char *text, *expected;
} forms[] = {
    {CHAT_CALLS_GLM,
     "Ok.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Pau \"x\"</arg_value>\n"
     "<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n<arg_key>opts</arg_key>\n<arg_value>"
     "{\"a\": true, \"n\": null}</arg_value>\n</tool_call>\n<tool_call>python\n</tool_call>",
     both},
    {CHAT_CALLS_GLM,
     "Ok.<tool_call>get_weather<arg_key>city</arg_key><arg_value>Pau \"x\"</arg_value><arg_key>"
     "days</arg_key><arg_value>2</arg_value><arg_key>opts</arg_key><arg_value>{\"a\": true, "
     "\"n\": null}</arg_value></tool_call><tool_call>python</tool_call>",
     both},
    {CHAT_CALLS_GLM,
     "Ok.<tool_calls>\n<tool_call>get_weather<tool_sep>\n<arg_key>city</"
     "arg_key>\n<arg_value>Pau "
     "\"x\"</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n<arg_key>opts</"
     "arg_key>\n<arg_value>{\"a\": true, \"n\": null}</arg_value>\n</tool_call>\n<tool_call>"
     "python<tool_sep>\n</tool_call>\n</tool_calls>",
     both},
    {CHAT_CALLS_HUNYUAN,
     "Ok.<tool_calls:opensource>\n<tool_call:opensource>get_weather<tool_sep:opensource>\n"
     "<arg_key:opensource>city</arg_key:opensource>\n<arg_value:opensource>Pau \"x\"</"
     "arg_value:opensource>\n<arg_key:opensource>days</arg_key:opensource>\n<arg_value:"
     "opensource>2</arg_value:opensource>\n<arg_key:opensource>opts</arg_key:opensource>\n"
     "<arg_value:opensource>{\"a\": true, \"n\": null}</arg_value:opensource>\n</tool_call:"
     "opensource>\n<tool_call:opensource>python<tool_sep:opensource>\n</tool_call:opensource>\n"
     "</tool_calls:opensource>",
     both},
    {CHAT_CALLS_LONGCAT,
     "Ok.<longcat_tool_call>\n{\"name\": \"get_weather\", \"arguments\": " JSON_ARGS
     "}\n</longcat_tool_call><longcat_tool_call>\n{\"name\": \"python\", \"arguments\": {}}\n"
     "</longcat_tool_call>",
     both},
    {CHAT_CALLS_LONGCAT,
     "Ok.<longcat_tool_call>get_weather\n<longcat_arg_key>city</longcat_arg_key>\n"
     "<longcat_arg_value>Pau "
     "\"x\"</longcat_arg_value>\n<longcat_arg_key>days</longcat_arg_key>\n"
     "<longcat_arg_value>2</longcat_arg_value>\n<longcat_arg_key>opts</longcat_arg_key>\n"
     "<longcat_arg_value>{\"a\": true, \"n\": null}</longcat_arg_value>\n</longcat_tool_call>",
     alone},
    {CHAT_CALLS_SOLAR,
     "Ok.<|tool_call:start|>get_weather\n<|tool_arg:start|>city<|tool_arg:value|>Pau "
     "\"x\"<|tool_arg:end|>\n<|tool_arg:start|>days<|tool_arg:value|>2<|tool_arg:end|>\n"
     "<|tool_arg:start|>opts<|tool_arg:value|>{\"a\": true, \"n\": null}<|tool_arg:end|>\n"
     "<|tool_call:end|>\n<|tool_call:start|>python\n<|tool_call:end|>\n",
     both},
    {CHAT_CALLS_MINIMAX,
     "Ok.\n<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Pau "
     "\"x\"</parameter>\n<parameter name=\"days\">2</parameter>\n<parameter name=\"opts\">"
     "{\"a\": true, \"n\": null}</parameter>\n</invoke>\n<invoke name=\"python\">\n</invoke>\n"
     "</minimax:tool_call>",
     both},
    {CHAT_CALLS_DSML,
     "Ok.\n\n" DSML "function_calls>\n" DSML "invoke name=\"get_weather\">\n" DSML
     "parameter name=\"city\" string=\"true\">Pau \"x\"" DSML_END "parameter>\n" DSML
     "parameter name=\"days\" string=\"false\">2" DSML_END "parameter>\n" DSML
     "parameter name=\"opts\" string=\"false\">{\"a\": true, \"n\": null}" DSML_END
     "parameter>\n" DSML_END "invoke>\n" DSML "invoke name=\"python\">\n" DSML_END
     "invoke>\n" DSML_END "function_calls>",
     both},
    {CHAT_CALLS_MINICPM,
     "Ok.\n<function name=\"get_weather\"><param name=\"city\">Pau \"x\"</param><param "
     "name=\"days\">2</param><param name=\"opts\">{'a': True, 'n': None}</param></function>\n"
     "<function name=\"python\"></function>",
     both},
    {CHAT_CALLS_QWEN_XML,
     "Ok.<function=get_weather>" JSON_ARGS "</function><function=python>{}</function>", both},
    {CHAT_CALLS_QWEN_XML,
     "Ok.\n\n<seed:tool_call>\n<function=get_weather>\n<parameter=city>Pau "
     "\"x\"</parameter>\n<parameter=days>2</parameter>\n<parameter=opts>{'a': True, 'n': None}"
     "</parameter>\n</function>\n</seed:tool_call>",
     alone},
    {CHAT_CALLS_KIMI,
     "Ok.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_"
     "argument_begin|>" JSON_ARGS "<|tool_call_end|><|tool_call_begin|>functions.python:1<|tool_"
     "call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
     both},
    {CHAT_CALLS_SOLAR_JSON,
     "Ok.<|tool_calls|><|tool_call:begin|>a1<|tool_call:name|>get_weather<|tool_call:args|"
     ">" JSON_ARGS
     "<|tool_call:end|><|tool_call:begin|>a2<|tool_call:name|>python<|tool_call:args|>"
     "{}<|tool_call:end|><|calls|>",
     both},
    {CHAT_CALLS_STEP_AUDIO,
     "Ok.<|CALL_START|>function\nget_weather\n" JSON_ARGS "<|CALL_END|><|CALL_START|>function\n"
     "python\n{}<|CALL_END|>",
     both},
    {CHAT_CALLS_FUNCTIONARY, "all\nOk.>>>get_weather\n" JSON_ARGS ">>>python\n{}", both},
    {CHAT_CALLS_GEMMA,
     "Ok.<|tool_call>call:get_weather{city:<|\"|>Pau \"x\"<|\"|>,days:2,opts:{a:true,n:None}}"
     "<tool_call|><|tool_call>call:python{}<tool_call|>",
     both},
    {CHAT_CALLS_GEMMA,
     "Ok.<start_function_call>call:get_weather{city:<escape>Pau \"x\"<escape>,days:2,opts:{a:"
     "true,n:null}}<end_function_call><start_function_call>call:python{}<end_function_call>",
     both},
    {CHAT_CALLS_LFM,
     "Ok.<|tool_call_start|>[get_weather(city='Pau \"x\"', days=2, opts={\"a\": true, \"n\": "
     "null}), python()]<|tool_call_end|>",
     both},
    {CHAT_CALLS_LFM,
     "Ok.<|tool_call_start|>\n```python\nget_weather(city=\"Pau "
     "\\\"x\\\"\",days=2,opts={\"a\": "
     "True, \"n\": None})\npython()\n```\n<|tool_call_end|>\n",
     both},
    {CHAT_CALLS_OLMO,
     "Ok.<function_calls>get_weather(city=\"Pau \\\"x\\\"\", days=2, opts={\"a\": true, \"n\": "
     "null})\npython()</function_calls>",
     both},
    {CHAT_CALLS_TOOL_CALLS,
     "Ok.\n<tool_calls>[{\"name\": \"get_weather\", \"arguments\": {'city': 'Pau \"x\"', "
     "'days': "
     "2, 'opts': {'a': True, 'n': None}}, \"id\": \"c1\"}, {\"name\": \"python\", "
     "\"arguments\": "
     "{}, \"id\": \"c2\"}]</tool_calls>",
     both},
    {CHAT_CALLS_TOOL_CALLS,
     "Ok.\n<tool_calls>\n{\"name\": \"get_weather\", \"arguments\": " JSON_ARGS
     "}\n{\"name\": \"python\", \"arguments\": {}}\n</tool_calls>",
     both},
    {CHAT_CALLS_COHERE,
     "<|START_RESPONSE|>Ok.<|END_RESPONSE|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", "
     "\"tool_name\": \"get_weather\", \"parameters\": " JSON_ARGS
     "},\n    {\"tool_call_id\": \"1\", \"tool_name\": \"python\", \"parameters\": {}}\n]<|END_"
     "ACTION|>",
     both},
    {CHAT_CALLS_APERTUS,
     "Ok.<|tools_prefix|>[{\"get_weather\": " JSON_ARGS "}, {\"python\": {}}]<|tools_suffix|>",
     both},
    {CHAT_CALLS_GIGACHAT,
     "Ok.<|function_call|>{\"name\": \"get_weather\", \"arguments\": " JSON_ARGS "}", alone},
    {CHAT_CALLS_INTERN,
     "Ok.<|action_start|><|plugin|>\n{\"name\": \"get_weather\", \"parameters\": " JSON_ARGS
     "}\n<|action_end|>\n<|action_start|><|plugin|>\n{\"name\": \"python\", \"parameters\": "
     "{}}\n<|action_end|>",
     both},
    {CHAT_CALLS_LLAMA,
     "[get_weather(city='Pau \"x\"', days=2, opts={'a': True, 'n': None}), python()]", both + 6},
    {CHAT_CALLS_LLAMA,
     "[{\"name\": \"get_weather\", \"arguments\": " JSON_ARGS
     "}, {\"name\": \"python\", \"arguments\": {}}]",
     both + 6},
    {CHAT_CALLS_LLAMA, "[see the docs](x)", "C([see the docs](x))"},
    {CHAT_CALLS_LLAMA, "[1, 2]", "C([1, 2])"},
    {CHAT_CALLS_LLAMA, "[unknown(a=1)]", "C([unknown(a=1)])"},
};

static void test_forms(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct setup s = {forms[i].calls, false, false, false, false};
        size_t n_text = strlen(forms[i].text);
        for (size_t k = 0; k <= n_text; k += k ? 11 : 1) {
            char *log = run(&s, forms[i].text, n_text, k, n_text, k == 0);
            assert_string_equal(log, forms[i].expected);
            mem_free(log);
        }
        if (forms[i].expected[0] != 'C' || strchr(forms[i].expected, '[') == NULL) continue;
        size_t n = strlen(forms[i].text); /* cut: run asserts that no arguments are complete */
        for (size_t k = 0; k < n; k += 3) {
            s.is_cut = true;
            mem_free(run(&s, forms[i].text, k, 0, 0, true));
        }
    }
}

/* What models write by mistake: one call, its arguments as meant. */
static void test_repairs(void **state) {
    (void)state;
#define CALL(args) "<tool_call>\n{\"name\": \"f\", \"arguments\": " args
    check(&hermes, CALL("{\"s\": \"\\d+\\.txt\"}}\n</tool_call>"),
          "[0 f {\"s\":\"\\\\d+\\\\.txt\"}]");
    check(&hermes, CALL("{\"n\": 115792089237316195423570985008687907853269984665640564039457}}"),
          "[0 f {\"n\":115792089237316195423570985008687907853269984665640564039457}]");
    check(&hermes, CALL("{\"n\": 1}}}\n</tool_call>\nDone"), "[0 f {\"n\":1}]C(\nDone)");
    check(&hermes, CALL("{\"n\": 1}} } no"), "[0 f {\"n\":1}]C( } no)");
    check(&hermes, CALL("{\"n\": 1}\n</tool_call>"), "[0 f {\"n\":1}]");
    check(&hermes,
          "<tool_call>\n```json\n{\"name\": \"f\", \"arguments\": {\"n\": 1}}\n```\n</tool_call>",
          "[0 f {\"n\":1}]");
    check(&hermes, "<tool_call>\n" CALL("{\"n\": 1}}\n</tool_call>\nDone"),
          "[0 f {\"n\":1}]C(\nDone)");
    check(&hermes, "<tool_call>" CALL("{\"n\": 1}}</tool_call></tool_call>"), "[0 f {\"n\":1}]");
    check(&hermes, "<tool_call><tool_call>no</tool_call>",
          "M(no call behind the mark)C(<tool_call><tool_call>no</tool_call>)");
    check(&hermes, "<tool_call>{'name': 'f', 'arguments': {'a': True, 'b': 'it\\'s', 'c': None,}}",
          "[0 f {\"a\":true,\"b\":\"it's\",\"c\":null}]");
    check(&nemotron,
          "<TOOLCALL>[\"{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {\\\"n\\\": 1}}\"]</TOOLCALL>",
          "[0 f {\"n\":1}]");
    check(&nemotron, "<TOOLCALL>[\"text\"]", "M(JSON that is not valid)C(<TOOLCALL>[\"text\"])");
    check(
        &xml,
        "<tool_call>\n<function name=\"get_weather\">\n<parameter name=\"days\">\n1\n</parameter>\n"
        "</function>\n</tool_call>",
        "[0 get_weather {\"days\":1}]");
    check(&xml,
          "<tool_call>\n<tool_call>\n<function=get_weather>\n<parameter=days>\n1\n</parameter>\n"
          "</function>\n</tool_call>",
          "[0 get_weather {\"days\":1}]");
    check(&xml,
          "<tool_call>\r\n<function=get_weather>\r\n<parameter=city>\r\nf\r\n</parameter>\r\n"
          "</function>\r\n</tool_call>",
          "[0 get_weather {\"city\":\"f\"}]");
}

/* A value that quotes a call, markup included; a value that only mentions one. */
static void test_quoted_call(void **state) {
    (void)state;
#define OPEN "<tool_call>\n<function=get_weather>\n<parameter=city>\n"
#define CLOSE "\n</parameter>\n</function>\n</tool_call>"
    check(&xml, OPEN "Use <tool_call>\n<function=x>\n<parameter=y>\n1" CLOSE "\nlike so." CLOSE,
          "[0 get_weather {\"city\":\"Use <tool_call>\\n<function=x>\\n<parameter=y>\\n1\\n</"
          "parameter>\\n</function>\\n</tool_call>\\nlike so.\"}]");
    check(&xml, OPEN "the tag <function=x> opens" CLOSE "\nDone.",
          "[0 get_weather {\"city\":\"the tag <function=x> opens\"}]C(\nDone.)");
    check(&xml, OPEN "the tag <function=x>" CLOSE "\n" XML_CALL,
          "[0 get_weather {\"city\":\"the tag <function=x>\"}][1 get_weather {\"city\":\"Pau\"}]");
}

static int on_nothing(void *arg, const struct chat_event *ev) {
    (void)arg, (void)ev;
    return 0;
}

static void test_repaired_count(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int n;
    } rows[] = {{CALL("{\"n\": 1}}\n</tool_call>"), 0},
                {CALL("{\"n\": 1}\n</tool_call>"), 1},
                {CALL("{\"n\": 1}}}\n</tool_call>"), 1},
                {CALL("{\"n\": True}}\n</tool_call>"), 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct chat_parse_spec spec = {.calls = CHAT_CALLS_HERMES, .on_event = on_nothing};
        struct chat_parser *p;
        struct chat_result r;
        assert_int_equal(chat_parser_new(&p, &spec, NULL), 0);
        assert_int_equal(chat_parser_push(p, rows[i].text, strlen(rows[i].text)), 0);
        assert_int_equal(chat_parser_finish(p, false), 0);
        chat_parser_result(p, &r);
        assert_int_equal(r.n_call, 1);
        assert_int_equal(r.n_repaired, rows[i].n);
        chat_parser_free(p);
    }
}

/* JSON that jansson refuses: read as near as it can hold; what is no JSON is refused still. */
static void test_json_read(void **state) {
    (void)state;
    static const struct {
        const char *text, *expected; /* NULL: refused */
    } rows[] = {
        {"{\"a\": \"x\\u0000y\", \"b\": 1}", "{\"a\":\"x\\ufffdy\",\"b\":1}"},
        {"{\"a\": \"x\\ud83d\", \"\\udc00\": 1}", "{\"a\":\"x\\ufffd\",\"\\ufffd\":1}"},
        {"{\"a\": 18446744073709551616, \"b\": 7}", "{\"a\":1.8446744073709552e19,\"b\":7}"},
        {"{\"a\": [-1e999, 2.50]}", "{\"a\":[-1.7976931348623157e308,2.5]}"},
        {"{\"a\": 99999999999999999999,}", NULL},
        {"{'a': 99999999999999999999}", NULL},
        {"{\"a\": 099999999999999999999}", NULL},
        {"{\"a\": \"\\u0000", NULL},
        {"{\"a\": \"\\ud83d\n\"}", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err e = {0};
        json_t *j = chat_json_object(rows[i].text, strlen(rows[i].text), "body", &e),
               *expected = rows[i].expected ? json_loads(rows[i].expected, 0, NULL) : NULL;
        if (!json_equal(j, expected) && (j || expected)) fail_msg("%s: %s", rows[i].text, e.text);
        json_decref(j);
        json_decref(expected);
    }
}

static void check_history(const char *arguments, const char *template_text, const char *expected) {
    struct chat_template *t;
    struct chat_prompt p;
    struct err e = {0};
    json_t *context = json_pack("{s:[{s:s,s:s},{s:s,s:[{s:s,s:{s:s,s:s}}]}]}", "messages", "role",
                                "user", "content", "q", "role", "assistant", "tool_calls", "type",
                                "function", "function", "name", "f", "arguments", arguments);
    assert_int_equal(chat_template_new(&t, template_text, strlen(template_text), NULL), 0);
    if (chat_render(t, context, false, NULL, &p, &e)) fail_msg("%s", e.text);
    assert_string_equal(p.out.text.p, expected);
    size_t sum = 0;
    for (size_t i = 0; i < p.out.n_run; i++) sum += p.out.runs[i].n;
    assert_int_equal(sum, strlen(expected));
    chat_prompt_fini(&p);
    chat_template_free(t);
    json_decref(context);
}

/* A template that renders tools and calls without marks has calls as JSON. */
static void test_unmarked_forms(void **state) {
    (void)state;
#define LOOP                                                                                       \
    "{% for t in tools %}{{ t | tojson }}{% endfor %}{% for m in messages %}{{ m.content }}"       \
    "{% for c in m.tool_calls %}%s{{ c.function.name }} {{ c.function.arguments | tojson }}"       \
    "{% endfor %}{% endfor %}"
    static const struct {
        const char *mark;
        enum chat_calls calls;
    } rows[] = {{"", CHAT_CALLS_LLAMA},
                {"<|start|>assistant<|channel|>commentary to=", CHAT_CALLS_HARMONY}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct chat_template *t;
        static const char loop[] = LOOP;
        const char *at = strstr(loop, "%s");
        char text[512];
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - loop), loop, rows[i].mark, at + 2);
        assert_int_equal(chat_template_new(&t, text, strlen(text), NULL), 0);
        assert_true(chat_template_caps(t)->has_tools);
        assert_int_equal(chat_template_caps(t)->calls, rows[i].calls);
        chat_template_free(t);
    }
}

/* A number that a call of the history holds stands in the prompt as it was written. */
static void test_history_numbers(void **state) {
    (void)state;
#define CALL_ARGS "messages[1].tool_calls[0].function.arguments"
    check_history("{\"n\": 12345678901234567890123, \"w\": [1e400, 1.50, -7]}",
                  "{{ " CALL_ARGS " | tojson }}",
                  "{\"n\": 12345678901234567890123, \"w\": [1e400, 1.5, -7]}");
    check_history("{\"n\": 12345678901234567890123}",
                  "{% for k, v in " CALL_ARGS ".items() %}{{ k }}={{ v }};{% endfor %}",
                  "n=12345678901234567890123;");
    check_history("{\"s\": \"a\\u0000\\ud800b\"}", "{{ " CALL_ARGS ".s }}",
                  "a\xef\xbf\xbd\xef\xbf\xbd"
                  "b");
}

/* ---- prompts to ids ---- */

#define N_TOY 260
#define ID_END 256
#define ID_START 257
#define ID_AB 258
#define ID_USER 259

/* Bytes, two control tokens, a user-defined one, and the merge of a and b. */
static struct tok *toy_tok(void) {
    static char text[256][4];
    struct slice pieces[N_TOY] = {{0}}, merges[1] = {SLICE("a b")};
    uint8_t kinds[N_TOY];
    uint32_t n_moved = 0;
    for (uint32_t b = 0; b < 256; b++) {
        bool own = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        int k = utf8_encode(own ? b : 256 + n_moved++, text[b]);
        pieces[b] = (struct slice){text[b], (size_t)k};
        kinds[b] = TOK_NORMAL;
    }
    pieces[ID_END] = SLICE("<|end|>");
    pieces[ID_START] = SLICE("<|start|>");
    pieces[ID_AB] = SLICE("ab");
    pieces[ID_USER] = SLICE("<think>");
    kinds[ID_END] = kinds[ID_START] = TOK_CONTROL;
    kinds[ID_AB] = TOK_NORMAL;
    kinds[ID_USER] = TOK_USER_DEFINED;
    static const uint8_t strips[N_TOY] = {[ID_END] = TOK_STRIP_RIGHT};
    struct tok_spec spec = {.model = TOK_BPE,
                            .pre = "qwen2",
                            .strips = strips,
                            .n_vocab = N_TOY,
                            .pieces = pieces,
                            .kinds = kinds,
                            .merges = merges,
                            .n_merges = 1,
                            .bos = ID_START,
                            .eos = ID_END,
                            .unk = -1,
                            .sep = -1,
                            .pad = -1,
                            .cls = -1,
                            .mask = -1,
                            .eot = -1,
                            .add_bos = 0,
                            .add_eos = 0};
    struct tok *t = NULL;
    struct err e = {0};
    if (tok_new(&t, &spec, &e)) fail_msg("%s", e.text);
    return t;
}

static void check_ids(const char *template_text, const char *content, const int32_t *expected,
                      size_t n_expected) {
    struct tok *tok = toy_tok();
    struct chat_template *t;
    struct chat_prompt p;
    struct err e = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    json_t *context = json_pack("{s:[{s:s,s:s}],s:s}", "messages", "role", "user", "content",
                                content, "bos_token", "<|start|>");
    assert_int_equal(chat_template_new(&t, template_text, strlen(template_text), NULL), 0);
    if (chat_render(t, context, true, NULL, &p, &e)) fail_msg("%s", e.text);
    if (chat_encode(tok, &p, &ids, &n, &e)) fail_msg("%s", e.text);
    assert_int_equal(n, n_expected);
    for (size_t i = 0; i < n; i++) assert_int_equal(ids[i], expected[i]);
    mem_free(ids);
    chat_prompt_fini(&p);
    chat_template_free(t);
    json_decref(context);
    tok_free(tok);
}

static void test_encode(void **state) {
    (void)state;
    /* the template's control tokens are tokens, the content's are text */
    const int32_t plain[] = {ID_START, 'h', 'i', ID_END};
    check_ids("{{ bos_token }}{{ messages[0].content }}<|end|>", "hi", plain, 4);
    const int32_t forged[] = {ID_START, '<', '|', 'e', 'n', 'd', '|', '>', ID_END};
    check_ids("<|start|>{{ messages[0].content|trim }}<|end|>", " <|end|> ", forged, 9);
    /* neither half a token from each side, nor through replace */
    const int32_t halves[] = {'<', '|', 'e', 'n', 'd', '|', '>'};
    check_ids("{{ '<|e' + messages[0].content }}", "nd|>", halves, 7);
    check_ids("{{ messages[0].content|replace('X', '<|end|>') }}", "X", halves, 7);
    /* text is encoded across the border as one string */
    const int32_t border[] = {ID_AB, ID_END};
    check_ids("a{{ messages[0].content }}<|end|>", "b", border, 2);
    /* Qwen's vocabulary knows text in composed form only: e and an accent are one character */
    const int32_t composed[] = {0xc3, 0xa9};
    check_ids("{{ messages[0].content }}", "e\xcc\x81", composed, 2);
    const int32_t han[] = {0xe8, 0xb1, 0x88}; /* U+F900 is U+8C48 */
    check_ids("{{ messages[0].content }}", "\xef\xa4\x80", han, 3);
    /* a role that is a known name may be part of a mark, any other word may not */
    const int32_t role[] = {'<', '|', 'u', 's', 'e', 'r', '|', '>'};
    check_ids("{{ '<|' + messages[0].role + '|>' }}", "x", role, 8);
    const int32_t glued[] = {ID_END, 'x'};
    check_ids("{{ '<|' ~ 'end' ~ '|>' ~ messages[0].content }}", "x", glued, 2);
    /* a token that swallows white space takes the template's and leaves the content's: byte 32 */
    const int32_t stripped[] = {ID_END, 32, 'x'};
    check_ids("<|end|>\n\n{{ messages[0].content }}", " x", stripped, 3);
}

static int stop_event(void *arg, const struct chat_event *ev) {
    (void)ev;
    return ++*(int *)arg == 2 ? CHIMERE_ECANCELLED : 0;
}

static void test_stop(void **state) {
    (void)state;
    int n = 0;
    struct chat_parse_spec spec = {.reasoning = true, .on_event = stop_event, .arg = &n};
    struct chat_parser *p;
    assert_int_equal(chat_parser_new(&p, &spec, NULL), 0);
    assert_int_equal(chat_parser_push(p, "a", 1), 0);
    assert_int_equal(chat_parser_push(p, "b", 1), CHIMERE_ECANCELLED);
    assert_int_equal(chat_parser_push(p, "c", 1), CHIMERE_ECANCELLED);
    assert_int_equal(chat_parser_finish(p, false), CHIMERE_ECANCELLED);
    assert_int_equal(n, 2);
    chat_parser_free(p);
}

static void test_allocation_failure(void **state) {
    (void)state;
    static const char text[] =
        "<think>a</think>b\n" XML_CALL
        "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":[1,2]}}</tool_call>c";
    for (int nth = 1; nth < 200; nth++) {
        json_t *tools = json_loads(tools_text, 0, NULL);
        struct chat_parse_spec spec = {
            .calls = CHAT_CALLS_QWEN_XML, .reasoning = true, .tools = tools};
        struct chat_parser *p = NULL;
        mem_fail_nth(nth);
        int rc = chat_parser_new(&p, &spec, NULL);
        for (size_t i = 0; !rc && i < sizeof text - 1; i++) rc = chat_parser_push(p, text + i, 1);
        if (!rc) rc = chat_parser_finish(p, false);
        mem_fail_nth(0);
        assert_true(rc == 0 || rc == CHIMERE_ENOMEM);
        chat_parser_free(p);
        json_decref(tools);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_and_reasoning),
        cmocka_unit_test(test_xml),
        cmocka_unit_test(test_xml_in_reasoning),
        cmocka_unit_test(test_xml_malformed),
        cmocka_unit_test(test_cut_anywhere),
        cmocka_unit_test(test_cut_bare),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_llama),
        cmocka_unit_test(test_mistral),
        cmocka_unit_test(test_deepseek),
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_repairs),
        cmocka_unit_test(test_quoted_call),
        cmocka_unit_test(test_repaired_count),
        cmocka_unit_test(test_json_read),
        cmocka_unit_test(test_harmony),
        cmocka_unit_test(test_unmarked_forms),
        cmocka_unit_test(test_history_numbers),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_allocation_failure),
        cmocka_unit_test(test_encode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

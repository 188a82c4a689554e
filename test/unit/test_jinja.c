/* test_jinja.c: the template language against what Jinja2 gave (test/data/jinja/cases.json), provenance,
 * limits, threads, allocation failure; and what chat_template learns from shipped templates. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/file.h"
#include "base/mem.h"
#include "text/chat/chat.h"

static const struct tm now = {.tm_year = 126,
                              .tm_mon = 2,
                              .tm_mday = 14,
                              .tm_hour = 9,
                              .tm_min = 26,
                              .tm_sec = 53,
                              .tm_wday = 6,
                              .tm_yday = 72};

static int render(const char *text, json_t *context, const struct jinja_env *env,
                  struct jinja_output *out, struct err *e) {
    struct jinja *j = NULL;
    *out = (struct jinja_output){0};
    int rc = jinja_compile(&j, text, strlen(text), e);
    if (!rc) rc = jinja_render(j, context, env, out, e);
    jinja_free(j);
    return rc;
}

static size_t check_cases(const char *path) {
    json_error_t je;
    json_t *all = json_load_file(path, 0, &je);
    assert_non_null(all);
    json_t *context = json_object_get(all, "context"), *c;
    struct jinja_env env = {.now = &now};
    size_t i, n_bad = 0, n_error = 0;
    json_array_foreach(json_object_get(all, "cases"), i, c) {
        const char *text = json_string_value(json_array_get(c, 0));
        json_t *expected = json_array_get(c, 1);
        struct jinja_output out;
        struct err e = {0};
        int rc = render(text, context, &env, &out, &e);
        bool good = json_is_null(expected)
                        ? rc < 0 && e.text[0]
                        : rc == 0 && out.text.n == json_string_length(expected) &&
                              memcmp(out.text.p, json_string_value(expected), out.text.n) == 0;
        if (!good) print_error("%s\n  got %s%s\n", text, rc ? e.text : "", rc ? "" : out.text.p);
        n_bad += !good;
        n_error += json_is_null(expected);
        jinja_output_fini(&out);
    }
    assert_true(n_error > 5);
    assert_int_equal(n_bad, 0);
    json_decref(all);
    return i;
}

static void test_cases(void **state) {
    (void)state;
    assert_true(check_cases(TEST_DATA "/jinja/cases.json") > 700);
    assert_true(check_cases(TEST_DATA "/jinja/scopes.json") > 100); /* white space and scopes */
}

/* The parser's array of names grows at 64, 128 and 256: whatever name comes next must be found, also one
 * that first appears as a keyword argument, a parameter or a loop's variable. */
static void test_names_grow(void **state) {
    (void)state;
    static const struct {
        const char *text, *expected;
    } rows[] = {
        {"{{ namespace(fresh=1).fresh }}", "1"},
        {"{{ dict(fresh=7).fresh }}", "7"},
        {"{% macro fresh(fresh2) %}{{ fresh2 }}{% endmacro %}{{ fresh(fresh2=3) }}", "3"},
        {"{% for fresh in [4] %}{{ fresh }}{% endfor %}", "4"},
        {"{% set fresh, fresh2 = 5, 6 %}{{ fresh }}{{ fresh2 }}", "56"},
    };
    json_t *context = json_object();
    struct jinja_env env = {.now = &now};
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++)
        for (int n = 0; n < 264; n++) {
            struct buf b;
            struct jinja_output out;
            struct err e = {0};
            buf_init(&b, 1 << 20);
            buf_puts(&b, "{% if false %}");
            for (int i = 0; i < n; i++) buf_printf(&b, "{{ v%d }}", i);
            buf_puts(&b, "{% endif %}");
            buf_puts(&b, rows[row].text);
            assert_int_equal(render(b.p, context, &env, &out, &e), 0);
            assert_string_equal(out.text.p, rows[row].expected);
            jinja_output_fini(&out);
            buf_fini(&b);
        }
    json_decref(context);
}

/* ---- provenance ---- */

static bool trust_bos(const char *top, const char *key, const char *s, size_t n) {
    (void)key, (void)s, (void)n;
    return strcmp(top, "bos") == 0;
}

/* Output with context text in []. */
static void check_runs(const char *text, const char *expected) {
    json_t *context = json_loads(
        "{\"bos\": \"<s>\", \"u\": \" <x> \", \"d\": {\"k\": \"<x>\"}, \"l\": [\"<a>\", \"<b>\"]}",
        0, NULL);
    struct jinja_env env = {.is_trusted = trust_bos};
    struct jinja_output out;
    struct err e = {0};
    char shown[1024];
    size_t at = 0, n = 0;
    assert_int_equal(render(text, context, &env, &out, &e), 0);
    for (size_t i = 0; i < out.n_run; i++) {
        assert_true(out.runs[i].n > 0);
        assert_true(i == 0 || out.runs[i].is_template != out.runs[i - 1].is_template);
        n += (size_t)snprintf(shown + n, sizeof shown - n,
                              out.runs[i].is_template ? "%.*s" : "[%.*s]", (int)out.runs[i].n,
                              out.text.p + at);
        at += out.runs[i].n;
    }
    shown[n] = 0;
    assert_int_equal(at, out.text.n);
    assert_string_equal(shown, expected);
    jinja_output_fini(&out);
    json_decref(context);
}

static void test_provenance(void **state) {
    (void)state;
    check_runs("a{{ u }}b{{ bos }}", "a[ <x> ]b<s>");
    check_runs("{{ '<t>' + u + '</t>' }}", "<t>[ <x> ]</t>");
    check_runs("{{ ('<t>' ~ u)|trim }}", "<t>[ <x>]");
    check_runs("{{ '<t>'|upper ~ u|upper }}", "<T>[ <X> ]");
    check_runs("{{ l|join('<sep>') }}", "[<a>]<sep>[<b>]");
    check_runs("{{ '<sep>'.join(l) }}", "[<a>]<sep>[<b>]");
    check_runs("{{ ('<t>' + u + '<t>').split('<t>') |join('|') }}", "|[ <x> ]|");
    check_runs("{{ ('<t>' + u)[1:6] }}", "t>[ <x]");
    check_runs("{{ '%s<e>' % u }}{{ '{}<e>'.format(u) }}", "[ <x> ]<e>[ <x> ]<e>");
    check_runs("{% set x %}<t>{{ u }}{% endset %}{{ x }}", "<t>[ <x> ]");
    check_runs("{% macro m(a) %}<t>{{ a }}{% endmacro %}{{ m(d.k) }}", "<t>[<x>]");
    check_runs("{% set ns = namespace(s='') %}{% for x in l %}{% set ns.s = ns.s + x + '<i>' %}{% "
               "endfor %}{{ ns.s }}",
               "[<a>]<i>[<b>]<i>");
    /* computed from values, or written into context text where its author wants it */
    check_runs("{{ d|tojson }}{{ [1, '<t>'] }}", "[{\"k\": \"<x>\"}[1, '<t>']]");
    check_runs("{{ u|replace('x', '<t>') }}", "[ <<t>> ]");
    check_runs("{{ 'a x'|replace('x', u) }}", "a [ <x> ]");
    check_runs("{{ d.keys()|first }}", "[k]");
}

/* ---- limits ---- */

static void check_limit(const char *text, const char *words) {
    struct jinja_limits limits = {200000, 100, 1 << 20, 8 << 20};
    struct jinja_env env = {.limits = &limits};
    struct jinja_output out;
    struct err e = {0};
    json_t *context = json_object();
    int rc = render(text, context, &env, &out, &e);
    if (rc != CHIMERE_ELIMIT || !strstr(e.text, words)) fail_msg("%s: %d %s", text, rc, e.text);
    jinja_output_fini(&out);
    json_decref(context);
}

static void test_limits(void **state) {
    (void)state;
    check_limit("{% for i in range(1000) %}{% for j in range(1000) %}{% endfor %}{% endfor %}",
                "steps");
    check_limit("{{ 'a' * 100000000 }}", "bytes");
    check_limit("{{ '%99999999d' % 1 }}", "wide");
    check_limit("{{ [0] * 100000000 }}", "");
    check_limit("{{ 'x'.ljust(100000000) }}", "");
    check_limit(
        "{% for i in range(99999) %}{{ 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' }}{% endfor %}", "");
    check_limit("{% set ns = namespace(l=[]) %}{% for i in range(300) %}{% set ns.l = [ns.l] %}{% "
                "endfor %}{{ ns.l }}",
                "deep");
    check_limit("{% set ns = namespace(l=[]) %}{% for i in range(300) %}{% set ns.l = [ns.l] %}{% "
                "endfor %}{{ ns.l == [ns.l] }}",
                "deep");
    check_limit("{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}", "deep");
    check_limit("{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}", "deep");
    check_limit("{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}", "deep");
    check_limit("{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = "
                "ns.s.replace('', ns.s) %}{% endfor %}",
                "");
    check_limit("{% for i in range(100000) %}{% set x = 'a' ~ i ~ "
                "'bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb' %}{% endfor %}",
                "");
}

/* Building a long text piece by piece takes memory in proportion to it. */
static void test_growing_text(void **state) {
    (void)state;
    struct jinja_limits limits = {20000000, 100, 1 << 22, 40 << 20};
    struct jinja_env env = {.limits = &limits};
    struct jinja_output out;
    struct err e = {0};
    json_t *context = json_pack("{s:s}", "u", "0123456789");
    int rc = render("{% set ns = namespace(s='') %}{% for i in range(100000) %}{% set ns.s = ns.s "
                    "+ 'x' + u %}{% endfor %}{{ ns.s }}",
                    context, &env, &out, &e);
    if (rc) fail_msg("%s", e.text);
    assert_int_equal(out.text.n, 1100000);
    assert_int_equal(out.n_run, 200000);
    jinja_output_fini(&out);
    json_decref(context);
}

/* ---- threads and memory ---- */

static char *read_data(const char *name, size_t *n) {
    char path[512], *text = NULL;
    snprintf(path, sizeof path, "%s/%s", TEST_DATA, name);
    assert_int_equal(file_read(path, 1 << 24, &text, n, NULL), 0);
    return text;
}

struct job {
    const struct jinja *j;
    json_t *context;
    const char *expected;
    int n_bad;
};
static void *render_often(void *arg) {
    struct job *job = arg;
    for (int i = 0; i < 50; i++) {
        struct jinja_output out;
        struct jinja_env env = {.now = &now};
        int rc = jinja_render(job->j, job->context, &env, &out, NULL);
        job->n_bad += rc != 0 || strcmp(out.text.p, job->expected) != 0;
        jinja_output_fini(&out);
    }
    return NULL;
}

static void test_threads(void **state) {
    (void)state;
    size_t n;
    char *text = read_data("templates/Qwen3.5-4B.jinja", &n);
    json_t *cases = json_load_file(TEST_DATA "/templates/Qwen3.5-4B.cases.json", 0, NULL);
    struct jinja *j;
    assert_int_equal(jinja_compile(&j, text, n, NULL), 0);
    pthread_t threads[4];
    struct job jobs[4];
    for (size_t i = 0; i < 4; i++) {
        json_t *c = json_array_get(cases, 5 + i / 2);
        jobs[i] = (struct job){j, json_object_get(c, "context"),
                               json_string_value(json_object_get(c, "expected")), 0};
        pthread_create(&threads[i], NULL, render_often, &jobs[i]);
    }
    for (size_t i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(jobs[i].n_bad, 0);
    }
    jinja_free(j);
    json_decref(cases);
    mem_free(text);
}

static void test_allocation_failure(void **state) {
    (void)state;
    static const char text[] =
        "{% macro m(a, b=[1]) %}{{ a|upper }}{{ b }}{{ caller() }}{% endmacro %}{% for x in l|sort "
        "%}"
        "{% call m(x) %}{{ '%5s' % x ~ '{}'.format(x) ~ l|tojson }}{% endcall %}{% endfor %}";
    json_t *context = json_pack("{s:[s,s]}", "l", "b", "a");
    bool passed = false;
    for (int nth = 1; nth < 60 && !passed; nth++) {
        struct jinja_output out;
        struct err e = {0};
        mem_fail_nth(nth);
        int rc = render(text, context, NULL, &out, &e);
        mem_fail_nth(0);
        assert_true(rc == 0 || rc == CHIMERE_ENOMEM || rc == CHIMERE_ELIMIT);
        passed = rc == 0;
        jinja_output_fini(&out);
    }
    assert_true(passed);
    json_decref(context);
}

/* ---- chat templates ---- */

static struct chat_template *load(const char *name) {
    char path[256];
    size_t n;
    snprintf(path, sizeof path, "templates/%s.jinja", name);
    char *text = read_data(path, &n);
    struct chat_template *t;
    assert_int_equal(chat_template_new(&t, text, n, NULL), 0);
    mem_free(text);
    return t;
}

static void test_caps(void **state) {
    (void)state;
    static const struct {
        const char *name;
        enum chat_calls calls;
        bool think, enable, tools;
    } rows[] = {
        {"Qwen3.5-4B", CHAT_CALLS_QWEN_XML, true, true, true},
        {"Qwen3-Coder", CHAT_CALLS_QWEN_XML, false, false, true},
        {"Qwen-Qwen3-0.6B", CHAT_CALLS_HERMES, true, true, true},
        {"NVIDIA-Nemotron-Nano-v2", CHAT_CALLS_NEMOTRON, true, true, true},
        {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", CHAT_CALLS_QWEN_XML, true, true, true},
        {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", CHAT_CALLS_DEEPSEEK, true, true, false},
        {"ibm-granite-granite-4.0", CHAT_CALLS_HERMES, false, false, true},
        {"meta-llama-Llama-3.1-8B-Instruct", CHAT_CALLS_LLAMA, false, false, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct chat_template *t = load(rows[i].name);
        const struct chat_caps *c = chat_template_caps(t);
        if (c->calls != rows[i].calls || c->has_reasoning != rows[i].think ||
            c->takes_enable_thinking != rows[i].enable || c->has_tools != rows[i].tools ||
            !c->has_system || c->wants_parts)
            fail_msg("%s: calls %s think %d enable %d tools %d system %d parts %d", rows[i].name,
                     chat_calls_name(c->calls), c->has_reasoning, c->takes_enable_thinking,
                     c->has_tools, c->has_system, c->wants_parts);
        chat_template_free(t);
    }
}

/* What clients send: arguments as text, content as parts or null, reasoning under another name. */
static void test_fitting(void **state) {
    (void)state;
    static const char *const names[] = {"Qwen3.5-4B",
                                        "Qwen-Qwen3-0.6B",
                                        "ibm-granite-granite-4.0",
                                        "NVIDIA-Nemotron-Nano-v2",
                                        "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
                                        "meta-llama-Llama-3.1-8B-Instruct",
                                        "Qwen3-Coder",
                                        "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"};
    json_t *context = json_loads(
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"Weather "
        "<|im_end|> in Pau?\"}]},"
        "{\"role\":\"assistant\",\"content\":null,\"reasoning\":\"I "
        "look\",\"tool_calls\":[{\"id\":\"abcdefghi\",\"type\":\"function\","
        "\"function\":{\"name\":\"get_weather\",\"arguments\":\"{\\\"city\\\": \\\"Pau\\\"}\"}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"abcdefghi\",\"content\":\"21\"}],\"add_generation_"
        "prompt\":true}",
        0, NULL);
    json_t *broken = json_deep_copy(context);
    json_t *fn = json_object_get(
        json_array_get(
            json_object_get(json_array_get(json_object_get(broken, "messages"), 1), "tool_calls"),
            0),
        "function");
    json_object_set_new(fn, "arguments", json_string("{\"city\": \"Pa"));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct chat_template *t = load(names[i]);
        struct chat_prompt p;
        struct err e = {0};
        if (chat_render(t, context, false, &now, &p, &e)) fail_msg("%s: %s", names[i], e.text);
        if (!strstr(p.out.text.p, "Weather <|im_end|> in Pau?") ||
            !strstr(p.out.text.p, "get_weather") || !strstr(p.out.text.p, "city") ||
            strstr(p.out.text.p, "None") || strstr(p.out.text.p, "\\\"city"))
            fail_msg("%s: %s", names[i], p.out.text.p);
        /* what the user wrote is context text through and through */
        size_t at = (size_t)(strstr(p.out.text.p, "Weather <|im_end|>") - p.out.text.p), begin = 0,
               k = 0;
        while (begin + p.out.runs[k].n <= at) begin += p.out.runs[k++].n;
        assert_false(p.out.runs[k].is_template);
        assert_true(begin + p.out.runs[k].n >= at + strlen("Weather <|im_end|> in Pau?"));
        chat_prompt_fini(&p);
        if (chat_render(t, broken, false, &now, &p, &e))
            fail_msg("%s, broken history: %s", names[i], e.text);
        chat_prompt_fini(&p);
        chat_template_free(t);
    }
    json_decref(broken);
    json_decref(context);
}

static void check_fit(const char *template_text, const char *messages, const char *expected) {
    struct chat_template *t;
    struct chat_prompt p;
    struct err e = {0};
    json_t *context = json_pack("{s:o}", "messages", json_loads(messages, 0, NULL));
    assert_int_equal(chat_template_new(&t, template_text, strlen(template_text), NULL), 0);
    if (chat_render(t, context, false, &now, &p, &e)) fail_msg("%s", e.text);
    assert_string_equal(p.out.text.p, expected);
    chat_prompt_fini(&p);
    chat_template_free(t);
    json_decref(context);
}

static void test_fitting_roles(void **state) {
    (void)state;
    static const char plain[] =
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{{ tools is none }}";
    static const char no_system[] = "{% for m in messages %}{% if m.role == 'system' %}{{ "
                                    "raise_exception('no system') }}{% endif %}"
                                    "<{{ m.role }}>{{ m.content }}{% endfor %}";
    static const char parts[] = "{% for m in messages %}<{{ m.role }}>{% for p in m.content %}{{ "
                                "p.text }}{% endfor %}{% endfor %}";
    static const char args[] = "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ '<c>' + "
                               "c.function.arguments }}{% endfor %}{% endfor %}";
    static const char two[] =
        "[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"u\"}]";
    check_fit(plain, two, "<system>s<user>uTrue");
    check_fit(plain, "[{\"role\":\"developer\",\"content\":\"d\"}]", "<system>dTrue");
    check_fit(no_system, two, "<user>s\n\nu");
    check_fit(parts, two, "<system>s<user>u");
    check_fit(args,
              "[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":{\"name\":"
              "\"f\",\"arguments\":{\"a\":1}}}]}]",
              "<c>{\"a\": 1}");
    check_fit("{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments.a "
              "}}{% endfor %}{% endfor %}",
              "[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":{\"name\":"
              "\"f\",\"arguments\":\"{\\\"a\\\":1}\"}}]}]",
              "1");
}

static void test_in_think(void **state) {
    (void)state;
    struct chat_template *t = load("Qwen3.5-4B");
    struct chat_prompt p;
    json_t *context = json_loads(
        "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"add_generation_prompt\":true}", 0,
        NULL);
    assert_int_equal(chat_render(t, context, true, &now, &p, NULL), 0);
    assert_true(p.in_think);
    chat_prompt_fini(&p);
    json_object_set_new(context, "enable_thinking", json_false());
    assert_int_equal(chat_render(t, context, true, &now, &p, NULL), 0);
    assert_false(p.in_think);
    chat_prompt_fini(&p);
    json_decref(context);
    chat_template_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_names_grow),
        cmocka_unit_test(test_provenance),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_growing_text),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_allocation_failure),
        cmocka_unit_test(test_caps),
        cmocka_unit_test(test_fitting),
        cmocka_unit_test(test_in_think),
        cmocka_unit_test(test_fitting_roles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

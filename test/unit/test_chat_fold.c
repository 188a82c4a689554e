/* test_chat_fold.c: system and developer messages anywhere, over templates that take them, refuse them, skip them
 * or know none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/mem.h"
#include "text/chat/chat.h"

#define LOOP(body) "{% for m in messages %}" body "{% endfor %}"
#define LINE "{{ m.role[0] }}:{{ m.content | trim }};"
static const char takes_all[] = LOOP(LINE);
static const char refuses[] = LOOP("{% if m.role == 'system' and not loop.first %}{{ "
                                   "raise_exception('first only') }}{% endif %}" LINE);
static const char skips[] = LOOP("{% if m.role != 'system' or loop.first %}" LINE "{% endif %}");
static const char knows_none[] =
    LOOP("{% if m.role == 'system' %}{{ raise_exception('none') }}{% endif %}" LINE);
static const char takes_parts[] =
    LOOP("{% if m.role == 'system' and not loop.first %}{{ raise_exception('no') }}"
         "{% endif %}{{ m.role[0] }}:{% if m.content is string %}{{ m.content }}"
         "{% else %}{% for p in m.content %}<{{ p.text }}>{% endfor %}{% endif %};");

static void check(const char *text, const char *messages, const char *want) {
    struct chat_template *t;
    struct chat_prompt prompt;
    struct err e = {0};
    json_t *context = json_pack("{s:o}", "messages", json_loads(messages, 0, NULL));
    assert_int_equal(chat_template_new(&t, text, strlen(text), &e), 0);
    int rc = chat_render(t, context, false, &(struct tm){.tm_mday = 1}, &prompt, &e);
    if (want) {
        if (rc) print_error("%s\n", e.text);
        assert_int_equal(rc, 0);
        assert_string_equal(prompt.out.text.p, want);
    } else {
        assert_int_not_equal(rc, 0);
        assert_true(e.text[0]);
    }
    chat_prompt_fini(&prompt);
    chat_template_free(t);
    json_decref(context);
}

#define S(t) "{\"role\":\"system\",\"content\":\"" t "\"}"
#define D(t) "{\"role\":\"developer\",\"content\":\"" t "\"}"
#define U(t) "{\"role\":\"user\",\"content\":\"" t "\"}"
#define A(t) "{\"role\":\"assistant\",\"content\":\"" t "\"}"

static void test_taken(void **state) {
    (void)state;
    check(takes_all, "[" S("AA") "," U("q") "," S("BB") "," A("r") "]", "s:AA;u:q;s:BB;a:r;");
    check(takes_all, "[" D("AA") "," D("BB") "," U("q") "]",
          "s:AA;s:BB;u:q;"); /* developer: as system */
}

static void test_refused(void **state) {
    (void)state;
    const char *const templates[] = {refuses, skips};
    for (size_t i = 0; i < 2; i++) {
        const char *t = templates[i];
        check(t, "[" S("AA") "," U("q") "]", "s:AA;u:q;");
        check(t, "[" S("AA") "," D("BB") "," U("q") "]", "s:AA\n\nBB;u:q;");
        check(t, "[" U("q") "," S("AA") "]", "u:q\n\nAA;");
        check(t, "[" U("q") "," A("r") "," S("AA") "," S("BB") "," U("p") "]",
              "u:q;a:r;u:AA\n\nBB\n\np;");
        check(t, "[" U("q") "," A("r") "," S("AA") "]", "u:q;a:r;u:AA;");
        check(t, "[" A("r") "," S("AA") "," U("q") "," S("BB") "," A("t") "]",
              "s:AA;a:r;u:q\n\nBB;a:t;");
        check(t, "[" S("AA") "," S("BB") "]", "s:AA\n\nBB;");
    }
}

static void test_none_known(void **state) {
    (void)state;
    check(knows_none, "[" S("AA") "," U("q") "]", "u:AA\n\nq;");
    check(knows_none, "[" S("AA") "," U("q") "," D("BB") "," A("r") "]", "u:AA\n\nq\n\nBB;a:r;");
    check(knows_none, "[" S("AA") "]", "u:AA;");
}

static void test_parts(void **state) {
    (void)state;
    check(takes_parts,
          "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"q\"},{\"type\":\"text\","
          "\"text\":\"p\"}]},"
          "{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\","
          "\"text\":\"b\"}]}]",
          "u:<q><p><\n\nab>;");
}

static void test_other_refusals_stay(void **state) {
    (void)state;
    check(LOOP("{{ raise_exception('never') }}"), "[" U("q") "]", NULL);
    check(LOOP("{{ raise_exception('never') }}"), "[" U("q") "," S("AA") "]", NULL);
    check(takes_all, "{}", NULL);
    check(refuses, "[" U("q") ",7]", NULL);
}

static void test_allocation_failure(void **state) {
    (void)state;
    struct chat_template *t;
    assert_int_equal(chat_template_new(&t, refuses, strlen(refuses), NULL), 0);
    json_t *context = json_pack(
        "{s:o}", "messages",
        json_loads("[" S("AA") "," U("q") "," S("BB") "," A("r") "," S("CC") "]", 0, NULL));
    for (int nth = 1; nth < 300; nth++) {
        struct chat_prompt prompt;
        mem_fail_nth(nth);
        int rc = chat_render(t, context, false, &(struct tm){.tm_mday = 1}, &prompt, NULL);
        mem_fail_nth(0);
        if (!rc) assert_string_equal(prompt.out.text.p, "s:AA;u:q\n\nBB;a:r;u:CC;");
        chat_prompt_fini(&prompt);
    }
    json_decref(context);
    chat_template_free(t);
}

/* Firefunction's templates read the tools as a text and the date, both by names of their own. */
static void test_functions(void **state) {
    static const char text[] =
        "{% for m in messages %}{{ m.content }}{% endfor %}|{{ functions }}|{{ datetime }}";
    static const struct tm day = {.tm_year = 126, .tm_mon = 10, .tm_mday = 26};
    struct chat_template *t;
    (void)state;
    assert_int_equal(chat_template_new(&t, text, strlen(text), NULL), 0);
    assert_true(chat_template_caps(t)->has_tools);
    for (int tools = 0; tools < 2; tools++) {
        struct chat_prompt p;
        struct err e = {0};
        json_t *c = json_pack("{s:[{s:s,s:s}]}", "messages", "role", "user", "content", "hi");
        if (tools) json_object_set_new(c, "tools", json_pack("[{s:s}]", "type", "function"));
        if (chat_render(t, c, false, &day, &p, &e)) fail_msg("%s", e.text);
        static const char *const want[] = {"hi||Nov 26 2026 00:00:00",
                                           "hi|[\n  {\n    \"type\": \"function\"\n  }\n]|Nov 26"};
        assert_memory_equal(p.out.text.p, want[tools], strlen(want[tools]));
        assert_null(json_object_get(c, "functions")); /* the caller's context is untouched */
        chat_prompt_fini(&p);
        json_decref(c);
    }
    chat_template_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_functions),
        cmocka_unit_test(test_taken),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_none_known),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_other_refusals_stay),
        cmocka_unit_test(test_allocation_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_lark.c: grammars in Lark's syntax as regular expressions; expected texts were written by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "serve/api/lark.h"

static void check(const char *text, const char *want) {
    char *pattern;
    struct err e = {0};
    int rc = lark_pattern(text, strlen(text), &pattern, &e);
    if (rc) print_error("%s\n", e.text);
    assert_int_equal(rc, 0);
    assert_string_equal(pattern, want);
    mem_free(pattern);
}

static void refused(const char *text, const char *why) {
    char *pattern;
    struct err e = {0};
    assert_int_not_equal(lark_pattern(text, strlen(text), &pattern, &e), 0);
    assert_null(pattern);
    if (!strstr(e.text, why)) print_error("%s: got %s\n", why, e.text);
    assert_non_null(strstr(e.text, why));
}

static void test_forms(void **state) {
    (void)state;
    check("start: \"a.b\"", "^(?:(?:a\\.b))$");
    check("start: /[0-9]+/", "^(?:(?:[0-9]+))$");
    check("start: A B?\nA: \"x\"\nB.2: \"y\"", "^(?:(?:(?:x))(?:(?:y))?)$");
    check("start: (\"a\" | \"b\")* [\"c\"]", "^(?:(?:(?:a)|(?:b))*(?:(?:c))?)$");
    check("start: \"a\"..\"f\"~2..3", "^(?:[a-f]{2,3})$");
    check("start: \"ab\"i~2", "^(?:(?:[aA][bB]){2,2})$");
    check("start: \"\\n\\\"\\x41\"", "^(?:(?:\\n\"\\x41))$");
    check("// note\n?start: a -> one\n     | \"b\" // other\n!a: \"a\"\n", "^(?:(?:(?:a))|(?:b))$");
    check("start: LF\n%import common.LF", "^(?:(?:\\n))$");
    check("start: N\n%import common.INT -> N", "^(?:(?:[0-9]+))$");
}

static void test_refused(void **state) {
    (void)state;
    refused("start: start", "start contains itself");
    refused("start: a\na: b\nb: a", "a contains itself");
    refused("a: \"x\"", "start is not defined");
    refused("start: b", "b is not defined");
    refused("%ignore \" \"\nstart: \"a\"", "%ignore is not supported");
    refused("%declare X\nstart: \"a\"", "%declare is not supported");
    refused("start: N\n%import common.NOPE", "not known");
    refused("start: N\n%import python.NAME", "%import common");
    refused("start: /a/i", "flags");
    refused("start: sep{a}", "templates");
    refused("start: (\"a\"", "without its end");
    refused("start: \"a", "without its end");
    refused("start: /a", "without its end");
    refused("start: \"\\q\"", "escape");
    refused("start: \"a\"~9999", "count");
    refused("= x", "expected NAME");
    /* doubling: 2^20 times what one rule says */
    refused("start: a0\na0: a1 a1\na1: a2 a2\na2: a3 a3\na3: a4 a4\na4: a5 a5\na5: a6 a6\na6: a7 "
            "a7\na7: a8 a8\n"
            "a8: a9 a9\na9: b0 b0\nb0: b1 b1\nb1: b2 b2\nb2: b3 b3\nb3: b4 b4\nb4: b5 b5\nb5: b6 "
            "b6\nb6: b7 b7\n"
            "b7: b8 b8\nb8: b9 b9\nb9: \"x\"",
            "too large");
}

static void test_any_bytes(void **state) {
    (void)state;
    static const char seeds[] =
        "start: (\"a\"..\"z\" /x/ [b]~2) | c -> d\n%import common.LF\nb: LF?\nc: \"\\x41\"i\n";
    char text[sizeof seeds];
    uint32_t x = 1;
    for (int i = 0; i < 20000; i++) {
        memcpy(text, seeds, sizeof seeds);
        for (int k = 0; k < 3; k++) {
            x = x * 1664525 + 1013904223;
            text[(x >> 8) % (sizeof seeds - 1)] = (char)"\\\"/()[]~.%:\n \0|ab"[(x >> 20) % 17];
        }
        char *pattern;
        size_t n = (x >> 5) % sizeof seeds;
        char *exact = mem_alloc(n + 1); /* so that sanitizers see the end */
        memcpy(exact, text, n);
        if (!lark_pattern(exact, n, &pattern, NULL)) mem_free(pattern);
        mem_free(exact);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_any_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

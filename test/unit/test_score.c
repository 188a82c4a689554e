/* Scoring rules of eval/README.md, case by case, and statistics against published values. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "eval/kl_base.h"
#include "eval/score.h"
#include "eval/stats.h"

/* ---- texts ---- */

static void normal_is(const char *text, const char *want) {
    struct buf b;
    buf_init(&b, 4096);
    score_normal(&b, text, strlen(text));
    assert_string_equal(b.n ? b.p : "", want);
    buf_fini(&b);
}

static void test_normal(void **state) {
    (void)state;
    normal_is("  The\t CAT\n sat. ", "the cat sat");
    normal_is("\"Quoted.\"", "quoted");
    normal_is("'\"both\"'...", "both\"'"); /* quotes go first, then full stops, once */
    normal_is("end .", "end");
    normal_is("...", "");
    normal_is("\xc3\x89t\xc3\xa9\xc2\xa0\xe3\x80\x80no",
              "\xc3\x89t\xc3\xa9 no"); /* only ASCII shrinks */
    normal_is("", "");
}

static void test_visible(void **state) {
    (void)state;
    const char *text = "<think>a</think> b </think>\n c \xc2\xa0";
    struct slice s = score_visible(text, strlen(text));
    assert_int_equal(s.n, 1);
    assert_memory_equal(s.p, "c", 1);
}

static void number_is(const char *text, bool found, double want) {
    double got = 0;
    assert_int_equal(score_last_number(text, strlen(text), &got), found);
    if (found) assert_float_equal(got, want, 1e-12);
}

static void test_numbers(void **state) {
    (void)state;
    number_is("17 and 25.", true, 25);
    number_is("1,234,567 left", true, 1234567);
    number_is("1,23", true, 23); /* no group of three */
    number_is("5-3", true, -3);
    number_is("-0.50 kg", true, -0.5);
    number_is("3.", true, 3);
    number_is("a - b", false, 0);
}

static void value_is(const char *text, bool is_one, double want) {
    double got = 0;
    assert_int_equal(score_expression(text, strlen(text), &got), is_one);
    if (is_one) assert_float_equal(got, want, 1e-9);
}

static void test_expressions(void **state) {
    (void)state;
    value_is("2 + 3 x 4", true, 14);
    value_is("(2+3)*4 - -1", true, 21);
    value_is("6 \xc3\xb7 4", true, 1.5);
    value_is("8/2/2", true, 2);
    value_is(".5+1.", true, 1.5);
    value_is("1/0", false, 0);
    value_is("012", false, 0);
    value_is("2(3)", false, 0);
    value_is("()", false, 0);
    value_is("1 2", false, 0);
    value_is("1e3", false, 0);
    value_is("", false, 0);
    char deep[128];
    memset(deep, '(', 80);
    deep[80] = 0;
    value_is(deep, false, 0);
    memset(deep, '1', 81);
    deep[81] = 0;
    value_is(deep, false, 0); /* longer than 80 */
}

/* ---- kinds ---- */

#define TOOLS                                                                                      \
    "\"tools\": [{\"function\": {\"name\": \"calc\", \"parameters\": {\"properties\": "            \
    "{\"e\": {\"type\": \"string\"}, \"n\": {\"type\": \"integer\"}}, \"required\": [\"e\"]}}}], "
#define CALL(name, key, value)                                                                     \
    "<tool_call>\n<function=" name ">\n<parameter=" key ">\n" value                                \
    "\n</parameter>\n</function>\n</tool_call>"

static const struct {
    const char *check, *text;
    int right, valid; /* valid -1: the kind says nothing */
} cases[] = {
    {"{\"kind\": \"exact\", \"answer\": [\"Mia\", \"the cat\"]}", "<think>no</think>The  cat.", 1,
     -1},
    {"{\"kind\": \"exact\", \"answer\": [\"Mia\"]}", "Mia is", 0, -1},
    {"{\"kind\": \"exact\", \"answer\": [\"\"]}", " ", 1, -1},
    {"{\"kind\": \"number\", \"answer\": 1200}", "It is 1,200 kg.", 1, -1},
    {"{\"kind\": \"number\", \"answer\": 0.5}", "0.50001", 0, -1},
    {"{\"kind\": \"number\", \"answer\": 3000000}", "3000002", 1, -1},
    {"{\"kind\": \"number\", \"answer\": 3}", "three", 0, -1},
    {"{\"kind\": \"choice\", \"answer\": \"code\", \"choices\": [\"code\", \"kine\"]}", "Code!", 1,
     1},
    {"{\"kind\": \"choice\", \"answer\": \"code\", \"choices\": [\"code\", \"kine\"]}",
     "*kine* code", 0, 1},
    {"{\"kind\": \"choice\", \"answer\": \"code\", \"choices\": [\"code\"]}", "codes", 0, 0},
    {"{\"kind\": \"choice\", \"answer\": \"code\", \"choices\": [\"code\"]}", "12", 0, 0},
    {"{\"kind\": \"contains\", \"answer\": [\"Ghent\", \"-5\"]}", "In ghent: -5 degrees", 1, -1},
    {"{\"kind\": \"contains\", \"answer\": [\"Ghent\", \"-5\"]}", "In Ghent: 5 degrees", 0, -1},
    {"{\"kind\": \"citation\", \"answer\": [\"1246\"], \"source\": 3}", "In 1246 [3].", 1, 1},
    {"{\"kind\": \"citation\", \"answer\": [\"1246\"], \"source\": 3}", "In 1246 [3][3]", 1, 1},
    {"{\"kind\": \"citation\", \"answer\": [\"1246\"], \"source\": 3}", "In 1246 [1][3]", 0, 1},
    {"{\"kind\": \"citation\", \"answer\": [\"1246\"], \"source\": 3}", "In 1246", 0, 1},
    {"{\"kind\": \"citation\", \"answer\": [\"1246\"], \"source\": 3}", "In 1247 [3]", 0, 0},
    {"{\"kind\": \"citation\", \"answer\": [\"1246\"], \"source\": 3}", "1246 [03]", 0, 1},
    {"{\"kind\": \"refusal\", \"answer\": [\"not in the sources\"]}", "That is Not in the Sources.",
     1, -1},
    {"{\"kind\": \"refusal\", \"answer\": [\"not in the sources\"]}", "Noah keeps a cat [1].", 0,
     -1},
    {"{\"kind\": \"json_schema\", \"schema\": {\"type\": \"object\", \"properties\": {\"y\": "
     "{\"type\": "
     "\"number\"}}, \"required\": [\"y\"]}, \"answer\": {\"y\": 161}}",
     "{\"y\": 161.0}", 1, 1},
    {"{\"kind\": \"json_schema\", \"schema\": {\"type\": \"object\", \"properties\": {\"y\": "
     "{\"type\": "
     "\"integer\"}}, \"required\": [\"y\"]}, \"answer\": {\"y\": 161}}",
     "{\"y\": 161.0}", 0, 0},
    {"{\"kind\": \"json_schema\", \"schema\": {\"type\": \"object\", \"properties\": {\"y\": "
     "{\"type\": "
     "\"integer\"}}, \"required\": [\"y\"]}, \"answer\": {\"y\": 161}}",
     "{\"y\": 162}", 0, 1},
    {"{\"kind\": \"json_schema\", \"schema\": {\"type\": \"object\", \"properties\": {\"y\": "
     "{\"type\": "
     "\"integer\"}}}, \"answer\": {\"y\": 1}}",
     "{\"y\": 1, \"z\": 2}", 0, 0},
    {"{\"kind\": \"json_schema\", \"schema\": {\"type\": \"object\"}, \"answer\": {}}", "```{}```",
     0, 0},
    {"{\"kind\": \"json_schema\", \"schema\": {\"type\": \"string\", \"enum\": [\"a\"]}, "
     "\"answer\": \"a\"}",
     "\"b\"", 0, 0},
    {"{\"kind\": \"array\", \"n\": 2, \"has\": \"cat\"}", "[\"Cat food\", \"a cat\"]", 1, 1},
    {"{\"kind\": \"array\", \"n\": 2, \"has\": \"cat\"}", "[\"cat\", \"cat\"]", 0, 1},
    {"{\"kind\": \"array\", \"n\": 2, \"has\": \"cat\"}", "[\"cat\", \"dog\"]", 0, 1},
    {"{\"kind\": \"array\", \"n\": 2, \"has\": \"cat\"}", "[\"cat\", 2]", 0, 0},
    {"{\"kind\": \"array\", \"n\": 2, \"has\": \"cat\"}", "[\"cat\"]", 0, 1},
    {"{\"kind\": \"verdict\", \"answer\": \"no\", \"steps\": [\"correct\", \"incorrect\"]}",
     "\\boxed{correct} \\boxed{incorrect}", 1, 1},
    {"{\"kind\": \"verdict\", \"answer\": \"no\", \"steps\": [\"correct\", \"incorrect\"]}",
     "\\boxed{incorrect}", 1, 0},
    {"{\"kind\": \"verdict\", \"answer\": \"yes\", \"steps\": [\"correct\"]}", "\\boxed{correct}",
     1, 1},
    {"{\"kind\": \"verdict\", \"answer\": \"yes\", \"steps\": [\"correct\"]}", "correct", 0, 0},
    {"{\"kind\": \"copy\", \"answer\": \" A b\\n\"}", "A b", 1, -1},
    {"{\"kind\": \"copy\", \"answer\": \"A b\"}", "a b", 0, -1},
    {"{\"kind\": \"toolcall\", \"answer\": []}", "Hello.", 1, 1},
    {"{\"kind\": \"toolcall\", \"answer\": []}", "Hello </tool_call>", 0, 0},
    {"{\"kind\": \"toolcall\", \"answer\": [{\"name\": \"calc\", \"arguments\": {\"e\": "
     "{\"value\": 7}}}]}",
     "Let me see.\n" CALL("calc", "e", "3 + 4"), 1, 1},
    {"{\"kind\": \"toolcall\", \"answer\": [{\"name\": \"calc\", \"arguments\": {\"e\": "
     "{\"value\": 7}}}]}",
     CALL("calc", "e", "3 + 5"), 0, 1},
    {"{\"kind\": \"toolcall\", \"answer\": [{\"name\": \"calc\", \"arguments\": {\"e\": {\"has\": "
     "\"Cat\"}}}]}",
     CALL("calc", "e", "my cat\nsat"), 1, 1},
    {"{\"kind\": \"toolcall\", \"answer\": [{\"name\": \"calc\", \"arguments\": {\"e\": \"a\"}}]}",
     CALL("calc", "e", "a") " and more", 0, 0},
    {"{\"kind\": \"toolcall\", \"answer\": [{\"name\": \"calc\", \"arguments\": {\"e\": \"a\"}}]}",
     CALL("clac", "e", "a"), 0, 0},
    {"{\"kind\": \"toolcall\", \"answer\": [{\"name\": \"calc\", \"arguments\": {\"e\": \"a\"}}]}",
     CALL("calc", "n", "1"), 0, 0}, /* e is required */
    {"{\"kind\": \"toolcall\", \"answer\": [{\"name\": \"calc\", \"arguments\": {\"e\": \"a\"}}]}",
     "<tool_call>\n<function=calc>\n<parameter=e>\na\n</parameter>\n<parameter=n>\n1.5\n</"
     "parameter>\n"
     "</function>\n</tool_call>",
     0, 0}, /* 1.5 is no integer */
    {"{\"kind\": \"toolcall\", \"answer\": [{\"name\": \"calc\", \"arguments\": {\"e\": \"a\"}}, "
     "{\"name\": "
     "\"calc\", \"arguments\": {\"e\": \"b\", \"n\": 2}}]}",
     "<tool_call>\n<function=calc>\n<parameter=e>\nb\n</parameter>\n<parameter=n>\n2\n</"
     "parameter>\n"
     "</function>\n</tool_call>\n" CALL("calc", "e", "a"),
     1, 1}, /* any order */
};

static void test_kinds(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf b;
        struct score s;
        struct err e = {0};
        buf_init(&b, 65536);
        buf_printf(&b, "{" TOOLS "\"check\": %s}", cases[i].check);
        json_t *item = json_loadb(b.p, b.n, 0, NULL);
        assert_non_null(item);
        int rc = score_answer(item, cases[i].text, strlen(cases[i].text), &s, &e);
        if (rc || s.right != cases[i].right || (s.has_valid ? s.valid : -1) != cases[i].valid)
            fail_msg("case %zu (%s): right %d, valid %d, %s", i, cases[i].text, s.right, s.valid,
                     e.text);
        json_decref(item);
        buf_fini(&b);
    }
}

static void test_foreign_items(void **state) {
    (void)state;
    static const char *const items[] = {
        "{}",
        "{\"check\": 3}",
        "{\"check\": {\"kind\": \"guess\"}}",
        "{\"check\": {\"kind\": \"exact\", \"answer\": [3]}}",
        "{\"check\": {\"kind\": \"number\", \"answer\": \"3\"}}",
        "{\"check\": {\"kind\": \"citation\", \"answer\": [\"a\"]}}",
        "{\"check\": {\"kind\": \"toolcall\"}}",
        "{\"check\": {\"kind\": \"json_schema\"}}",
        "{\"check\": {\"kind\": \"array\", \"n\": 3}}",
        "{\"check\": {\"kind\": \"verdict\"}}"};
    for (size_t i = 0; i < sizeof items / sizeof *items; i++) {
        struct score s;
        struct err e = {0};
        json_t *item = json_loads(items[i], 0, NULL);
        assert_true(score_answer(item, "x", 1, &s, &e) < 0);
        assert_non_null(strstr(e.text, "check."));
        json_decref(item);
    }
}

/* ---- statistics ---- */

static void test_stats(void **state) {
    (void)state;
    /* Wilson's intervals as tables have them */
    struct share s = stats_share(8, 10);
    assert_float_equal(s.low, 0.4902, 1e-4);
    assert_float_equal(s.high, 0.9433, 1e-4);
    s = stats_share(0, 20);
    assert_float_equal(s.low, 0, 0);
    assert_float_equal(s.high, 0.1611, 1e-4);
    assert_float_equal(stats_share(20, 20).high, 1, 0);
    assert_float_equal(stats_share(0, 0).value, 0, 0);
    s = stats_mean(stats_share(10, 10), stats_share(0, 10));
    assert_float_equal(s.value, 0.5, 1e-12);
    assert_true(s.low > 0.3 && s.low < 0.5 && s.high > 0.5 && s.high < 0.7);
    /* 1 against 9 of 10 fair coins: 2 (1 + 10) / 1024 */
    assert_float_equal(stats_mcnemar(1, 9), 22.0 / 1024, 1e-9);
    assert_float_equal(stats_mcnemar(5, 5), 1, 1e-12);
    assert_float_equal(stats_mcnemar(0, 0), 1, 0);
    assert_float_equal(stats_mcnemar(0, 6), 2.0 / 64, 1e-9);
}

/* ---- bases of divergence ---- */

static void test_base(void **state) {
    (void)state;
    enum { VOCAB = 7, CTX = 8, FIRST = 4, ROWS = 3 };
    char path[] = "chimere-base-XXXXXX", *data;
    assert_true(mkstemp(path) >= 0);
    const struct kl_base_shape shape = {
        .n_vocab = VOCAB, .ctx = CTX, .first = FIRST, .n_window = 2, .tok_hash = 99};
    int32_t tokens[2 * CTX];
    float x[VOCAB], got[VOCAB];
    struct kl_base_writer *w;
    struct kl_base *b;
    struct err e = {0};
    size_t n;
    for (int i = 0; i < 2 * CTX; i++) tokens[i] = i % VOCAB;
    assert_int_equal(kl_base_create(&w, path, &shape, tokens, &e), 0);
    for (int r = 2 * ROWS - 1; r >= 0; r--) { /* any order */
        double sum = 0;
        for (int i = 0; i < VOCAB; i++) sum += exp((double)(x[i] = (float)(r - 3 * i)));
        assert_int_equal(kl_base_put(w, (uint64_t)(r / ROWS), r % ROWS, x, log(sum), &e), 0);
    }
    assert_int_equal(kl_base_commit(w, &e), 0);
    assert_int_equal(kl_base_open(&b, path, &e), 0);
    assert_memory_equal(b->tokens, tokens, sizeof tokens);
    for (int r = 0; r < 2 * ROWS; r++) {
        double sum = 0;
        for (int i = 0; i < VOCAB; i++) sum += exp(-3.0 * i);
        kl_base_row(b, (uint64_t)(r / ROWS), r % ROWS, got);
        for (int i = 0; i < VOCAB; i++)
            assert_float_equal(got[i], -3.0 * i - log(sum), i ? 5e-4 : 1e-6);
    }
    kl_base_close(b);
    /* every shorter or longer file, and every flipped bit of the header, is refused */
    assert_int_equal(file_read(path, 1 << 20, &data, &n, &e), 0);
    for (size_t k = 0; k < n; k++) assert_true(kl_base_open_memory(&b, data, k, "cut", &e) < 0);
    for (size_t k = 0; k < 44 * 8; k++) {
        data[k / 8] ^= (char)(1 << k % 8);
        assert_true(kl_base_open_memory(&b, data, n, "flipped", &e) < 0);
        data[k / 8] ^= (char)(1 << k % 8);
    }
    assert_int_equal(kl_base_open_memory(&b, data, n, "whole", &e), 0);
    kl_base_close(b);
    mem_free(data);
    remove(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_normal),  cmocka_unit_test(test_visible),
        cmocka_unit_test(test_numbers), cmocka_unit_test(test_expressions),
        cmocka_unit_test(test_kinds),   cmocka_unit_test(test_foreign_items),
        cmocka_unit_test(test_stats),   cmocka_unit_test(test_base),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

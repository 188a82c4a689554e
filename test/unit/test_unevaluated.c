/* test_unevaluated.c: unevaluatedProperties in grammars; the cases agree with the Python package jsonschema. Also integers
 * beyond 64 bits, from a request's text to an answer's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/err.h"
#include "call_forms.h"
#include "serve/api/json_out.h"
#include "text/chat/chat.h"
#include "text/grammar/grammar.h"
#include "text/grammar/grammar_mask.h"

/* A schema, a text, and where the grammar stops: -1 if the text matches. */
static void names_are_closed(void **state) {
    (void)state;
    static const struct {
        const char *schema, *text;
        long stop;
    } rows[] = {
        {"{\"properties\":{\"a\":true},\"unevaluatedProperties\":false}", "{\"a\":1}", -1},
        {"{\"properties\":{\"a\":true},\"unevaluatedProperties\":false}", "{\"b\":1}", 2},
        {"{\"allOf\":[{\"properties\":{\"a\":true}}],\"properties\":{\"b\":true},"
         "\"unevaluatedProperties\":false}",
         "{\"a\":1,\"b\":2}", -1},
        {"{\"allOf\":[{\"properties\":{\"a\":true}}],\"properties\":{\"b\":true},"
         "\"unevaluatedProperties\":false}",
         "{\"c\":1}", 2},
        {"{\"$ref\":\"#/$defs/"
         "x\",\"unevaluatedProperties\":{\"type\":\"null\"},\"$defs\":{\"x\":{\"properties\":{"
         "\"a\":{\"type\":\"integer\"}}}}}",
         "{\"a\":1,\"z\":null}", -1},
        {"{\"$ref\":\"#/$defs/"
         "x\",\"unevaluatedProperties\":{\"type\":\"null\"},\"$defs\":{\"x\":{\"properties\":{"
         "\"a\":{\"type\":\"integer\"}}}}}",
         "{\"z\":1}", 5},
        {"{\"anyOf\":[{\"properties\":{\"a\":{\"const\":1}},\"required\":[\"a\"]},{\"properties\":{"
         "\"b\":{\"const\":2}},\"required\":[\"b\"]}],\"unevaluatedProperties\":false}",
         "{\"a\":1}", -1},
        {"{\"anyOf\":[{\"properties\":{\"a\":{\"const\":1}},\"required\":[\"a\"]},{\"properties\":{"
         "\"b\":{\"const\":2}},\"required\":[\"b\"]}],\"unevaluatedProperties\":false}",
         "{\"a\":1,\"b\":2}", -1},
        {"{\"anyOf\":[{\"properties\":{\"a\":{\"const\":1}},\"required\":[\"a\"]},{\"properties\":{"
         "\"b\":{\"const\":2}},\"required\":[\"b\"]}],\"unevaluatedProperties\":false}",
         "{\"a\":1,\"b\":3}", 11},
        {"{\"if\":{\"properties\":{\"k\":{\"const\":\"x\"}},\"required\":[\"k\"]},\"then\":{"
         "\"properties\":{\"v\":true}},\"unevaluatedProperties\":false}",
         "{\"k\":\"x\",\"v\":1}", -1},
        {"{\"if\":{\"properties\":{\"k\":{\"const\":\"x\"}},\"required\":[\"k\"]},\"then\":{"
         "\"properties\":{\"v\":true}},\"unevaluatedProperties\":false}",
         "{\"k\":\"y\"}", 6},
        {"{\"if\":{\"properties\":{\"k\":{\"const\":\"x\"}},\"required\":[\"k\"]},\"then\":{"
         "\"properties\":{\"v\":true}},\"unevaluatedProperties\":false}",
         "{}", -1},
        {"{\"dependentSchemas\":{\"a\":{\"properties\":{\"b\":true}}},\"properties\":{\"a\":true},"
         "\"unevaluatedProperties\":false}",
         "{\"a\":1,\"b\":2}", -1},
        {"{\"dependentSchemas\":{\"a\":{\"properties\":{\"b\":true}}},\"properties\":{\"a\":true},"
         "\"unevaluatedProperties\":false}",
         "{\"b\":2}", 6},
        {"{\"allOf\":[{\"properties\":{\"a\":true},\"additionalProperties\":true}],"
         "\"unevaluatedProperties\":false}",
         "{\"z\":1}", -1},
        {"{\"oneOf\":[{\"properties\":{\"a\":{\"type\":\"null\"}},\"required\":[\"a\"]},{"
         "\"properties\":{\"b\":{\"type\":\"null\"}},\"required\":[\"b\"]}],"
         "\"unevaluatedProperties\":false}",
         "{\"a\":null}", -1},
        {"{\"oneOf\":[{\"properties\":{\"a\":{\"type\":\"null\"}},\"required\":[\"a\"]},{"
         "\"properties\":{\"b\":{\"type\":\"null\"}},\"required\":[\"b\"]}],"
         "\"unevaluatedProperties\":false}",
         "{\"a\":null,\"b\":1}", 9},
    };
    struct tok *tok = toy_tok((const char *const[]){NULL});
    struct grammar_vocab *v;
    assert_int_equal(grammar_vocab_from_tok(&v, tok, NULL, NULL), 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct grammar *g;
        struct grammar_matcher *m;
        struct grammar_state *s;
        struct err e = {0};
        size_t at;
        if (grammar_from_schema(&g, rows[i].schema, strlen(rows[i].schema), NULL, &e))
            fail_msg("%s: %s", rows[i].schema, e.text);
        assert_int_equal(grammar_matcher_new(&m, g, v, 1 << 20, &e), 0);
        assert_int_equal(grammar_state_new(&s, m, &e), 0);
        int rc = grammar_accept_bytes(s, rows[i].text, strlen(rows[i].text), &at);
        long stop = !rc && grammar_is_complete(s) ? -1 : (long)at;
        if (stop != rows[i].stop)
            fail_msg("%s: %s: %ld, expected %ld", rows[i].schema, rows[i].text, stop, rows[i].stop);
        grammar_state_free(s);
        grammar_matcher_free(m);
        grammar_free(g);
    }
    grammar_vocab_free(v);
    tok_free(tok);
}

/* More ways than are kept, and such keywords within each other: refused by name. */
static void what_is_not_small_is_refused(void **state) {
    (void)state;
    static const char *const schemas[] = {
        "{\"anyOf\":[{\"anyOf\":[{\"properties\":{\"a\":true}},{\"properties\":{\"b\":true}}]},"
        "{\"properties\":{\"c\":true}}],\"unevaluatedProperties\":false}",
        "{\"anyOf\":[{\"properties\":{\"a\":true}},{\"properties\":{\"b\":true}},{\"properties\":{"
        "\"c\":true}},"
        "{\"properties\":{\"d\":true}},{\"properties\":{\"e\":true}},{\"properties\":{\"f\":true}},"
        "{\"properties\":{\"g\":true}}],\"unevaluatedProperties\":false}",
    };
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
        struct grammar *g;
        struct err e = {0};
        assert_int_equal(grammar_from_schema(&g, schemas[i], strlen(schemas[i]), NULL, &e),
                         CHIMERE_EUNSUPPORTED);
        assert_non_null(strstr(e.text, "unevaluatedProperties"));
    }
}

/* Integers that no 64 bits hold keep their digits, behind a NUL; a text with such digits is a text. */
static void integers_keep_their_digits(void **state) {
    (void)state;
    static const char text[] =
        "{\"n\":[1180591620717411303425,-9223372036854775809,9223372036854775807],"
        "\"s\":\"11805916207174113034250\"}";
    struct buf out;
    json_t *o = chat_json_exact(text, strlen(text)), *list = json_object_get(o, "n");
    assert_int_equal(json_string_length(json_array_get(list, 0)), 23);
    assert_true(json_integer_value(json_array_get(list, 2)) == INT64_MAX);
    assert_string_equal(json_string_value(json_object_get(o, "s")), "11805916207174113034250");
    buf_init(&out, 1024);
    json_out_value(&out, o);
    assert_string_equal(out.p, text);
    buf_fini(&out);
    json_decref(o);
    assert_null(chat_json_exact("{\"n\": 123456789012345678}", 25));
    assert_null(chat_json_exact("{\"n\": 12345678901234567890", 26));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_closed),
        cmocka_unit_test(what_is_not_small_is_refused),
        cmocka_unit_test(integers_keep_their_digits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The query that a question of a conversation becomes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "odo/decide/query.h"

static void test_follow_up(void **state) {
    (void)state;
    static const struct {
        const char *before, *question, *query;
    } rows[] = {
        {"How do I stash changes in git?", "And how do I get them back later?",
         "How do I stash changes in git?\nAnd how do I get them back later?"},
        {"How do I stash changes in git?", "What about branches?",
         "How do I stash changes in git?\nWhat about branches?"},
        {"Comment trier un fichier avec sort ?", "Et comment l'enregistrer dans celui-ci ?",
         "Comment trier un fichier avec sort ?\nEt comment l'enregistrer dans celui-ci ?"},
        {"How do I stash changes in git?", "Which Python module reads ZIP archives?",
         "Which Python module reads ZIP archives?"},
        {NULL, "How do I undo it?", "How do I undo it?"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
        json_t *m = json_array();
        if (rows[i].before) {
            json_array_append_new(
                m, json_pack("{s:s, s:s}", "role", "user", "content", rows[i].before));
            json_array_append_new(
                m, json_pack("{s:s, s:s}", "role", "assistant", "content", "Like this."));
        }
        json_array_append_new(m,
                              json_pack("{s:s, s:s}", "role", "user", "content", rows[i].question));
        struct buf b;
        query_write(&b, m, rows[i].question);
        assert_string_equal(b.p, rows[i].query);
        buf_fini(&b);
        json_decref(m);
    }
}

static void test_chain_is_bounded(void **state) {
    (void)state;
    json_t *m = json_array();
    for (int i = 0; i < 20; ++i)
        json_array_append_new(m, json_pack("{s:s, s:s}", "role", "user", "content", "And this?"));
    struct buf b;
    query_write(&b, m, "And this?");
    assert_string_equal(b.p, "And this?\nAnd this?\nAnd this?");
    buf_fini(&b);
    json_decref(m);
}

static void test_objects(void **state) {
    (void)state;
    assert_true(query_has_object("Sum the prices in {\"a\": 3, \"b\": [1, {\"c\": 2}]} please"));
    assert_true(query_has_object("{x} and then {\"name\": \"Anna\"}"));
    assert_false(query_has_object("What does {} mean in C?"));
    assert_false(query_has_object("for (;;) { x = 1; }"));
    assert_false(query_has_object("Which git command shows a log?"));
    assert_false(query_has_object("{\"cut\": "));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_follow_up),
                                       cmocka_unit_test(test_chain_is_bounded),
                                       cmocka_unit_test(test_objects)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

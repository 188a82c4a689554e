/* test_playbook.c: rules that a night learned: how they change, their file, and DSPy's programs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "backend/learned.h"
#include "base/mem.h"
#include "learn/step/playbook.h"
#include "scratch.h"

static void playbooks_change_by_one_bullet(void **state) {
    (void)state;
    char *text;
    json_t *none = json_array();
    json_t *a = playbook_with(none, "Be brief."), *b = playbook_with(a, "Name the town.");
    assert_int_equal(json_array_size(none), 0);
    assert_int_equal(json_array_size(a), 1); /* a change leaves the old version as it is */
    assert_null(playbook_with(b, "be BRIEF"));
    assert_null(playbook_with(b, ""));
    assert_null(playbook_with(b, "\xff"));
    json_t *c = playbook_with(none, "End with thanks."), *all = playbook_merge(c, b);
    text = playbook_text(all);
    assert_string_equal(text, "- End with thanks.\n- Be brief.\n- Name the town.");
    mem_free(text);
    json_t *less = playbook_without(all, 1);
    assert_null(playbook_without(all, 3));
    text = playbook_text(less);
    assert_string_equal(text, "- End with thanks.\n- Name the town.");

    /* a request's own system message stays alone */
    json_t *user = json_pack("[{s:s,s:s}]", "role", "user", "content", "q");
    json_t *own = json_pack("[{s:s,s:s}]", "role", "system", "content", "s");
    json_t *ruled = learned_messages(text, NULL, user), *kept = learned_messages(text, NULL, own);
    assert_int_equal(json_array_size(ruled), 2);
    assert_string_equal(json_string_value(json_object_get(json_array_get(ruled, 0), "content")),
                        text);
    assert_ptr_equal(kept, own);
    json_t *plain = learned_messages(NULL, NULL, user);
    assert_ptr_equal(plain, user);
    mem_free(text);
    json_t *made[] = {none, a, b, c, all, less, user, own, ruled, kept, plain};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) json_decref(made[i]);
}

static const char *text_at(const json_t *o, const char *key) {
    return json_string_value(json_object_get(o, key));
}

/* One list for each pipeline, in one file; a file without pipelines, of an earlier version, can be read. */
static void playbooks_have_a_list_per_pipeline(void **state) {
    (void)state;
    char path[256];
    json_t *back, *texts, *none = json_array();
    json_t *p = json_pack("{s:o,s:o,s:O}", "", playbook_with(none, "Be brief."), "kine",
                          playbook_with(none, "Name the phase."), "code", none);
    snprintf(path, sizeof path, "%s/playbook.json", scratch);
    assert_int_equal(playbook_save(p, path, NULL), 0);
    assert_int_equal(playbook_load(&back, path, NULL), 0);
    json_object_del(p, "code"); /* an empty list is not kept */
    assert_true(json_equal(back, p));
    assert_int_equal(playbook_read(&texts, path, NULL), 0);
    assert_int_equal(json_object_size(texts), 2);
    assert_string_equal(text_at(texts, ""), "- Be brief.");
    assert_string_equal(text_at(texts, "kine"), "- Name the phase.");

    static const char old[] = "{\"version\":1,\"bullets\":[{\"id\":\"b1\",\"text\":\"Be kind.\"}]}";
    json_t *older;
    scratch_put_bytes("playbook.json", old, strlen(old));
    assert_int_equal(playbook_read(&older, path, NULL), 0);
    assert_int_equal(json_object_size(older), 1);
    assert_string_equal(text_at(older, ""), "- Be kind.");
    json_t *made[] = {p, back, texts, none, older};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) json_decref(made[i]);

    static const char *const damaged[] = {"",
                                          "[]",
                                          "{\"version\":1}",
                                          "{\"version\":2,\"bullets\":[]}",
                                          "{\"version\":1,\"bullets\":[{\"text\":7}]}",
                                          "{\"version\":1,\"bullets\":[],\"pipelines\":[]}",
                                          "{\"version\":1,\"bullets\":[],\"pipelines\":{\"a\":7}}",
                                          "{\"version\":1,\"bullets\":[],\"pipelines\":{\"\":[]}}"};
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        scratch_put_bytes("playbook.json", damaged[i], strlen(damaged[i]));
        assert_int_equal(playbook_load(&back, path, NULL), CHIMERE_EFORMAT);
        assert_null(back);
    }
}

/* A program as DSPy writes it, with what a playbook cannot use. */
static void playbooks_are_programs_of_dspy(void **state) {
    (void)state;
    static const char text[] =
        "{\"a\":{\"demos\":[{\"question\":\"Who?\",\"answer\":\"Ann.\"},{\"question\":\"x\"}],"
        "\"signature\":{\"instructions\":\"Be brief.\\n\\nBe kind.\",\"fields\":[]},\"lm\":null},"
        "\"metadata\":{\"dependency_versions\":{}},\"odd\":7}";
    json_t *program = json_loads(text, 0, NULL), *texts = playbook_from_dspy(program);
    assert_int_equal(json_object_size(texts), 1);
    assert_int_equal(json_array_size(json_object_get(texts, "a")), 3);
    json_t *bullets = json_array(), *row;
    size_t i;
    json_array_foreach(json_object_get(texts, "a"), i, row) {
        json_t *next = playbook_with(bullets, json_string_value(row));
        assert_non_null(next);
        json_decref(bullets);
        bullets = next;
    }
    json_t *playbook = json_pack("{s:[],s:O}", "", "a", bullets); /* a pipeline is a predictor */
    json_t *out = playbook_to_dspy(playbook), *answer = json_object_get(out, "a");
    const json_t *signature = json_object_get(answer, "signature");
    assert_string_equal(json_string_value(json_object_get(signature, "instructions")),
                        "Be brief.\nBe kind.");
    const json_t *demo = json_array_get(json_object_get(answer, "demos"), 0);
    assert_string_equal(json_string_value(json_object_get(demo, "question")), "Who?");
    assert_string_equal(json_string_value(json_object_get(demo, "answer")), "Ann.");
    const json_t *bare = json_object_get(json_object_get(out, "answer"), "signature");
    assert_string_equal(text_at(bare, "instructions"), "");
    json_t *back = playbook_from_dspy(out);
    assert_true(json_equal(back, texts));
    json_t *made[] = {program, texts, bullets, playbook, out, back};
    for (i = 0; i < sizeof made / sizeof *made; i++) json_decref(made[i]);
}

static void playbooks_are_bounded(void **state) {
    (void)state;
    char text[PLAYBOOK_MAX_BULLET + 2];
    json_t *p = json_array();
    memset(text, 'a', sizeof text);
    text[PLAYBOOK_MAX_BULLET + 1] = 0;
    assert_null(playbook_with(p, text));
    for (int i = 0; i < PLAYBOOK_MAX_BULLETS; i++) {
        snprintf(text, sizeof text, "rule %d", i);
        json_t *next = playbook_with(p, text);
        assert_non_null(next);
        json_decref(p);
        p = next;
    }
    assert_null(playbook_with(p, "one more"));
    json_decref(p);
}

/* The rules of a pipeline are those of the version that the conversation takes. */
static void rules_are_read_by_pipeline(void **state) {
    (void)state;
    struct learned *l;
    struct learned_version *v = mem_zalloc(sizeof *v);
    int64_t night = 9;
    assert_null(learned_rules(NULL, 1, "kine", &night));
    assert_int_equal(night, 0);
    assert_int_equal(learned_new(&l, NULL), 0);
    assert_null(learned_rules(l, 1, "kine", &night));
    v->night = 7;
    v->rules = json_pack("{s:s,s:s}", "", "- Be brief.", "kine", "- Name the phase.");
    learned_switch(l, v, NULL, 0);
    char *rules = learned_rules(l, 1, "kine", &night);
    assert_int_equal(night, 7);
    assert_string_equal(rules, "- Name the phase.");
    assert_null(learned_rules(l, 1, "code", &night));
    assert_null(learned_rules(l, 1, NULL, &night));
    learned_switch(l, NULL, NULL, 0);
    assert_true(learned_sweep(l)); /* reading holds no version */
    mem_free(rules);
    learned_free(l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(playbooks_change_by_one_bullet),
        cmocka_unit_test(playbooks_have_a_list_per_pipeline),
        cmocka_unit_test(playbooks_are_bounded),
        cmocka_unit_test(playbooks_are_programs_of_dspy),
        cmocka_unit_test(rules_are_read_by_pipeline),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}

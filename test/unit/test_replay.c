/* test_replay.c: prompts that contain past answers continue their tokens, on the server that gave them and on others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "serve_rig.h"

/* An agent's second step: the prompt must continue the first prompt and the tokens that were sampled, though
 * the template spells the call in another way. */
static const char spelt[] = "\n\n<tool_call>\n<function=calculator>\n<parameter=expression>\n"
                            "12 * 34\n</parameter>\n</function>\n</tool_call>";
static const char second_step[] =
    "[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\",\"content\":null,"
    "\"tool_calls\":[{\"id\":\"x\",\"type\":\"function\",\"function\":{\"name\":"
    "\"calculator\",\"arguments\":\"{ \\\"expression\\\" : \\\"12 * 34\\\" }\"}}]},"
    "{\"role\":\"tool\",\"tool_call_id\":\"x\",\"content\":\"408\"}]";

/* Ids of a prompt with the calculator, of that client. */
static int32_t *rendered(const struct rig *r, const char *messages, const char *client, size_t *n) {
    struct err e = {0};
    struct request a;
    int32_t *ids = NULL;
    request_init(&a);
    a.scope = request_scope(client, NULL);
    json_t *calc = json_loads("{" CALC "}", 0, NULL);
    a.tools = json_incref(json_object_get(calc, "tools"));
    json_decref(calc);
    a.messages = json_loads(messages, 0, NULL);
    assert_int_equal(r->backend->ops->render(r->backend, &a, NULL, &ids, n, &e), 0);
    request_fini(&a);
    return ids;
}

static bool are_same(const int32_t *a, size_t n_a, const int32_t *b, size_t n_b) {
    return n_a == n_b && !memcmp(a, b, n_a * sizeof *a);
}

static void test_replay(void **state) {
    struct rig r;
    (void)state;
    rig_open(&r, spelt, 0, (struct serve_params){0}, 4);
    json_t *j = body_of(call(&r, CHAT, "{" HI "," CALC "}"));
    assert_string_equal(text_at(j, "choices.0.finish_reason"), "tool_calls");
    json_decref(j);
    size_t n_first, n_second, n_stranger, n = r.n_script;
    int32_t *first =
                rendered(&r, "[{\"role\":\"user\",\"content\":\"Hi\"}]", "127.0.0.1", &n_first),
            *second = rendered(&r, second_step, "127.0.0.1", &n_second),
            *stranger = rendered(&r, second_step, "10.0.0.1", &n_stranger);
    assert_true(n_second > n_first + n);
    assert_memory_equal(second, first, n_first * sizeof *first);
    assert_memory_equal(second + n_first, r.script, n * sizeof *first);
    assert_true(tok_is_eog(tok, second[n_first + n]));
    assert_false(
        are_same(stranger, n_stranger, second, n_second)); /* another's answers are not used */
    mem_free(first);
    mem_free(second);
    mem_free(stranger);
    rig_close(&r);
}

static void remove_last_byte(const char *folder) {
    char command[128];
    snprintf(command, sizeof command, "truncate -s -1 %s/answers/*.ids", folder);
    assert_int_equal(system(command), 0);
}

/* What a server leaves that is killed while it writes, a quarter of an hour ago and two hours ago. */
static void leave_partial(const char *folder) {
    char command[256];
    snprintf(command, sizeof command,
             "mkdir -p %s/answers && cd %s/answers && k=$(printf a%%.0s $(seq 64)) &&"
             " touch -d '2 hours ago' $k.ids.tmp.1.0 notes.tmp.1.0 &&"
             " touch -d '15 minutes ago' $k.ids.tmp.2.0",
             folder, folder);
    assert_int_equal(system(command), 0);
}

/* Through a folder, another server knows the tokens of an answer that the text does not give. */
static void test_replay_is_shared(void **state) {
    char folder[] = "replay.XXXXXX", command[96];
    struct rig one, other;
    size_t n, n_plain, n_other, n_stranger, n_damaged;
    (void)state;
    assert_non_null(mkdtemp(folder));
    rig_open(&other, NULL, 0, (struct serve_params){0}, 4);
    int32_t *plain = rendered(&other, second_step, "127.0.0.1", &n_plain);
    rig_close(&other);
    rig_shared = folder;
    leave_partial(folder);
    rig_open(&one, spelt, 0, (struct serve_params){0}, 4);
    json_decref(body_of(call(&one, CHAT, "{" HI "," CALC "}")));
    int32_t *own = rendered(&one, second_step, "127.0.0.1", &n);
    rig_close(&one); /* writes the file */
    snprintf(command, sizeof command, "cd %s/answers && ls *.ids.tmp.2.0 notes.tmp.1.0", folder);
    assert_int_equal(system(command), 0);
    snprintf(command, sizeof command, "cd %s/answers && ! ls *.ids.tmp.1.0 && rm *.tmp.*", folder);
    assert_int_equal(system(command), 0);
    rig_open(&other, "Hi", 0, (struct serve_params){0}, 4);
    int32_t *theirs = rendered(&other, second_step, "127.0.0.1", &n_other),
            *stranger = rendered(&other, second_step, "10.0.0.1", &n_stranger);
    assert_false(are_same(own, n, plain, n_plain));
    assert_true(are_same(own, n, theirs, n_other));
    assert_true(are_same(stranger, n_stranger, plain, n_plain));
    /* an answer whose text gives its tokens needs no file */
    json_decref(body_of(call(&other, CHAT, "{" HI "}")));
    rig_close(&other);
    snprintf(command, sizeof command, "test $(ls %s/answers | wc -l) = 1", folder);
    assert_int_equal(system(command), 0);
    remove_last_byte(folder);
    rig_open(&other, NULL, 0, (struct serve_params){0}, 4);
    int32_t *damaged = rendered(&other, second_step, "127.0.0.1", &n_damaged);
    assert_true(are_same(damaged, n_damaged, plain, n_plain));
    rig_close(&other);
    rig_shared = NULL;
    mem_free(plain);
    mem_free(own);
    mem_free(theirs);
    mem_free(stranger);
    mem_free(damaged);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replay),
        cmocka_unit_test(test_replay_is_shared),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}

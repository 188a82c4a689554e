/* test_api.c: chimere.h as a program uses it, on nano: answers, forms, calls, cancelling, many sessions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "chimere.h"

static struct chimere_model *model;

static int begin(void **s) {
    (void)s;
    struct chimere_model_options o;
    struct chimere_error e = {0};
    chimere_model_options_init(&o);
    o.path = TEST_NANO;
    o.context = 512;
    o.threads = 2;
    if (chimere_model_open(&model, &o, &e)) fail_msg("%s", e.text);
    return 0;
}

static int end(void **s) {
    (void)s;
    chimere_model_close(model);
    return 0;
}

static struct chimere_session *session(void) {
    struct chimere_session *s;
    assert_int_equal(chimere_session_new(&s, model, NULL), 0);
    return s;
}

static struct chimere_options greedy(void) {
    struct chimere_options o;
    chimere_options_init(&o);
    o.temperature = 0;
    o.max_tokens = 60;
    return o;
}

#define ASK(text) "[{\"role\": \"user\", \"content\": \"" text "\"}]"

struct heard {
    char text[2000];
    size_t n;
    int n_event, n_prefill, stop_after;
};

static int hear(void *ud, const struct chimere_event *ev) {
    struct heard *h = ud;
    h->n_event++;
    if (ev->kind == CHIMERE_PREFILL) h->n_prefill++;
    if (ev->kind == CHIMERE_TEXT && h->n + ev->n < sizeof h->text) {
        memcpy(h->text + h->n, ev->text, ev->n);
        h->n += ev->n;
    }
    return h->stop_after && h->n_event >= h->stop_after;
}

static void an_answer_comes_in_pieces_and_whole(void **state) {
    (void)state;
    struct chimere_session *s = session();
    struct chimere_options o = greedy();
    struct chimere_answer a;
    struct chimere_error e = {0};
    struct heard h = {0};
    o.on_event = hear;
    o.ud = &h;
    if (chimere_chat(s, ASK("What is 12 plus 30?"), &o, &a, &e)) fail_msg("%s", e.text);
    assert_non_null(strstr(a.text, "42"));
    assert_string_equal(a.text, h.text);
    assert_int_equal(a.finish, CHIMERE_FINISHED);
    assert_true(a.n_prompt > 5 && a.n_generated > 0 && h.n_prefill > 0);
    json_t *m = json_loads(a.message, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(m, "role")), "assistant");
    assert_string_equal(json_string_value(json_object_get(m, "content")), a.text);
    json_decref(m);
    chimere_answer_free(&a);
    o.max_tokens = 1;
    o.on_event = NULL;
    assert_int_equal(chimere_chat(s, ASK("What is 12 plus 30?"), &o, &a, &e), 0);
    assert_int_equal(a.finish, CHIMERE_LENGTH);
    assert_int_equal(a.n_generated, 1);
    chimere_answer_free(&a);
    chimere_session_free(s);
}

static void a_tool_is_called_and_answered(void **state) {
    (void)state;
    static const char tools[] =
        "[{\"type\": \"function\", \"function\": {\"name\": \"calculator\", \"description\": "
        "\"Calculator.\", \"parameters\": {\"type\": \"object\", \"properties\": {\"expression\": "
        "{\"type\": \"string\"}}, \"required\": [\"expression\"]}}}]";
    struct chimere_session *s = session();
    struct chimere_options o = greedy();
    struct chimere_answer a;
    struct chimere_error e = {0};
    char messages[4000];
    o.tools = tools;
    o.max_tokens = 120;
    if (chimere_chat(s, ASK("Please evaluate 6157 - 7343."), &o, &a, &e)) fail_msg("%s", e.text);
    assert_int_equal(a.finish, CHIMERE_CALLS);
    json_t *m = json_loads(a.message, 0, NULL),
           *call = json_array_get(json_object_get(m, "tool_calls"), 0);
    const char *id = json_string_value(json_object_get(call, "id"));
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(call, "function"), "name")),
        "calculator");
    snprintf(
        messages, sizeof messages,
        "[{\"role\": \"user\", \"content\": \"Please evaluate 6157 - 7343.\"}, %s, "
        "{\"role\": \"tool\", \"tool_call_id\": \"%s\", \"content\": \"6157 - 7343 = -1186\"}]",
        a.message, id);
    json_decref(m);
    chimere_answer_free(&a);
    if (chimere_chat(s, messages, &o, &a, &e)) fail_msg("%s", e.text);
    assert_non_null(strstr(a.text, "-1186"));
    chimere_answer_free(&a);
    chimere_session_free(s);
}

static void forms_hold(void **state) {
    (void)state;
    struct chimere_session *s = session();
    struct chimere_options o = greedy();
    struct chimere_answer a;
    o.temperature = 1;
    o.grammar = "root ::= \"yes\" | \"no\"";
    assert_int_equal(chimere_chat(s, ASK("Is it?"), &o, &a, NULL), 0);
    assert_true(!strcmp(a.text, "yes") || !strcmp(a.text, "no"));
    chimere_answer_free(&a);
    o.grammar = NULL;
    o.json_schema = "{\"enum\": [\"red\", \"blue\"]}";
    assert_int_equal(chimere_chat(s, ASK("Which?"), &o, &a, NULL), 0);
    assert_true(!strcmp(a.text, "\"red\"") || !strcmp(a.text, "\"blue\""));
    chimere_answer_free(&a);
    chimere_session_free(s);
}

/* A seed decides; none is another answer each time. */
static void seeds_decide(void **state) {
    (void)state;
    struct chimere_session *s = session();
    struct chimere_options o = greedy();
    struct chimere_answer a, b;
    o.temperature = 3;
    o.top_k = 0;
    o.top_p = 1;
    o.max_tokens = 24;
    for (uint64_t seed = 0; seed <= 5; seed += 5) {
        o.seed = seed;
        assert_int_equal(chimere_complete(s, "Once upon a time", &o, &a, NULL), 0);
        assert_int_equal(chimere_complete(s, "Once upon a time", &o, &b, NULL), 0);
        assert_int_equal(strcmp(a.text, b.text) == 0, seed != 0);
        chimere_answer_free(&a);
        chimere_answer_free(&b);
    }
    chimere_session_free(s);
}

static void mistakes_are_named(void **state) {
    (void)state;
    struct chimere_session *s = session();
    struct chimere_answer a;
    static const struct {
        const char *messages, *says;
    } cases[] = {{"", "messages"},
                 {"{}", "messages"},
                 {"[]", "messages"},
                 {NULL, "messages"},
                 {"[{\"role\": \"nobody\", \"content\": \"x\"}]", "role"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct chimere_error e = {0};
        assert_int_not_equal(chimere_chat(s, cases[i].messages, NULL, &a, &e), 0);
        assert_non_null(strstr(e.text, cases[i].says));
        assert_null(a.text);
    }
    struct chimere_error e = {0};
    struct chimere_options o = greedy();
    o.temperature = -1;
    assert_int_equal(chimere_chat(s, ASK("x"), &o, &a, &e), CHIMERE_EINVAL);
    assert_non_null(strstr(e.text, "temperature"));
    o = greedy();
    o.more = "{\"nonsense\": 1}";
    assert_int_not_equal(chimere_chat(s, ASK("x"), &o, &a, &e), 0);
    assert_non_null(strstr(e.text, "nonsense"));
    o = (struct chimere_options){0};
    assert_int_equal(chimere_chat(s, ASK("x"), &o, &a, &e), CHIMERE_EINVAL);
    assert_non_null(strstr(e.text, "_init"));
    o = greedy();
    o.json_schema = "nonsense";
    assert_int_equal(chimere_chat(s, ASK("x"), &o, &a, &e), CHIMERE_EINVAL);
    assert_int_equal(chimere_complete(s, "\xff", NULL, &a, &e), CHIMERE_EINVAL);
    chimere_session_free(s);
    struct chimere_model *none;
    struct chimere_model_options mo;
    chimere_model_options_init(&mo);
    mo.path = "/nowhere.gguf";
    assert_int_equal(chimere_model_open(&none, &mo, &e), CHIMERE_ENOENT);
    assert_null(none);
    mo.path = TEST_NANO;
    mo.memory_bytes = 1 << 20;
    assert_int_equal(chimere_model_open(&none, &mo, &e), CHIMERE_ELIMIT);
    assert_non_null(strstr(e.text, "does not fit"));
}

/* A program of an older header has a shorter struct: what lies behind it is not read. */
static void older_programs_go_on(void **state) {
    (void)state;
    struct chimere_session *s = session();
    struct chimere_options o = greedy();
    struct chimere_answer a;
    o.size = offsetof(struct chimere_options, stops);
    o.n_stop = 1000000;
    o.json_schema = (const char *)(uintptr_t)1;
    assert_int_equal(chimere_chat(s, ASK("What is 12 plus 30?"), &o, &a, NULL), 0);
    assert_non_null(strstr(a.text, "42"));
    chimere_answer_free(&a);
    chimere_session_free(s);
}

/* What a session has read and said is not read again. */
static void a_session_goes_on_from_its_state(void **state) {
    (void)state;
    struct chimere_session *s = session();
    struct chimere_options o = greedy();
    struct chimere_answer a, b;
    char text[2000] = "", messages[4000];
    for (int i = 0; i < 60; i++) strcat(text, "The cat sleeps. ");
    strcat(text, "What is 12 plus 30?");
    snprintf(messages, sizeof messages, ASK("%s"), text);
    assert_int_equal(chimere_chat(s, messages, &o, &a, NULL), 0);
    snprintf(messages, sizeof messages,
             "[{\"role\": \"user\", \"content\": \"%s\"}, %s, {\"role\": \"user\", \"content\": "
             "\"And plus 3?\"}]",
             text, a.message);
    assert_int_equal(chimere_chat(s, messages, &o, &b, NULL), 0);
    assert_true(a.n_prompt > 200);
    assert_in_range(b.n_cached, a.n_prompt - 80, b.n_prompt);
    chimere_answer_free(&a);
    chimere_answer_free(&b);
    chimere_session_free(s);
}

/* ---- threads ---- */

struct talk {
    struct chimere_session *s;
    int rc;
    enum chimere_finish finish;
    int32_t n;
};

static void *talk_for_long(void *arg) {
    struct talk *t = arg;
    struct chimere_options o = greedy();
    struct chimere_answer a = {0};
    o.max_tokens = 0;
    o.more = "{\"ignore_eos\": true}";
    t->rc = chimere_complete(t->s, "One, two,", &o, &a, NULL);
    t->finish = a.finish;
    t->n = a.n_generated;
    chimere_answer_free(&a);
    return NULL;
}

static void an_answer_can_be_cancelled(void **state) {
    (void)state;
    struct talk t = {.s = session()};
    pthread_t thread;
    struct chimere_answer a;
    pthread_create(&thread, NULL, talk_for_long, &t);
    int rc = 0;
    for (int i = 0; i < 1000 && rc != CHIMERE_EBUSY; i++) { /* until it has begun */
        struct chimere_options o = greedy();
        o.max_tokens = 1;
        rc = chimere_complete(t.s, "x", &o, &a, NULL);
        if (!rc) chimere_answer_free(&a);
    }
    if (rc == CHIMERE_EBUSY) chimere_session_cancel(t.s);
    pthread_join(thread, NULL);
    assert_true(t.rc == 0 || t.rc == CHIMERE_EBUSY); /* or our own question was first */
    if (t.rc == 0 && rc == CHIMERE_EBUSY) assert_true(t.n <= 512);
    struct chimere_options o = greedy();
    struct heard h = {.stop_after = 3};
    o.on_event = hear;
    o.ud = &h;
    o.more = "{\"ignore_eos\": true}";
    assert_int_equal(chimere_complete(t.s, "One, two,", &o, &a, NULL), 0);
    assert_int_equal(a.finish, CHIMERE_CANCELLED);
    assert_true(a.n_generated < 60);
    chimere_answer_free(&a);
    chimere_session_free(t.s);
}

static void *sum(void *arg) {
    struct talk *t = arg;
    struct chimere_options o = greedy();
    struct chimere_answer a = {0};
    char messages[200], want[16];
    snprintf(messages, sizeof messages, ASK("What is %d plus 3?"), 10 + t->n);
    snprintf(want, sizeof want, "%d", 13 + t->n);
    t->rc = chimere_chat(t->s, messages, &o, &a, NULL);
    t->n = !t->rc && strstr(a.text, want) != NULL;
    chimere_answer_free(&a);
    return NULL;
}

static void sessions_answer_side_by_side(void **state) {
    (void)state;
    struct talk t[8];
    pthread_t threads[8];
    int right = 0;
    for (int i = 0; i < 8; i++) {
        t[i] = (struct talk){.s = session(), .n = i};
        pthread_create(&threads[i], NULL, sum, &t[i]);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(t[i].rc, 0);
        right += t[i].n;
        chimere_session_free(t[i].s);
    }
    assert_true(right >= 7);
}

static void tokens_go_there_and_back(void **state) {
    (void)state;
    static const char text[] = "Hello, <|im_end|> w\xc3\xb6rld!";
    int32_t *ids, *control;
    size_t n, n_control, n_back;
    char *back, *plan;
    struct chimere_error e = {0};
    assert_int_equal(chimere_tokenize(model, text, sizeof text - 1, false, &ids, &n, &e), 0);
    assert_int_equal(chimere_tokenize(model, text, sizeof text - 1, true, &control, &n_control, &e),
                     0);
    assert_true(n_control < n);
    assert_int_equal(chimere_detokenize(model, ids, n, &back, &n_back, &e), 0);
    assert_int_equal(n_back, sizeof text - 1);
    assert_string_equal(back, text);
    chimere_free(back);
    ids[0] = 1 << 30;
    assert_int_equal(chimere_detokenize(model, ids, n, &back, &n_back, &e), CHIMERE_EINVAL);
    chimere_free(ids);
    chimere_free(control);
    assert_int_equal(chimere_model_context(model), 512);
    assert_true(chimere_model_has_chat(model));
    assert_int_equal(chimere_model_plan(model, &plan), 0);
    assert_non_null(strstr(plan, "weights"));
    chimere_free(plan);
    assert_string_equal(chimere_version(), CHIMERE_VERSION);
}

int main(void) {
    if (access(TEST_NANO, R_OK)) {
        printf("skip: api: the build made no chimere-nano.gguf\n");
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_comes_in_pieces_and_whole),
        cmocka_unit_test(a_tool_is_called_and_answered),
        cmocka_unit_test(forms_hold),
        cmocka_unit_test(seeds_decide),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(older_programs_go_on),
        cmocka_unit_test(a_session_goes_on_from_its_state),
        cmocka_unit_test(an_answer_can_be_cancelled),
        cmocka_unit_test(sessions_answer_side_by_side),
        cmocka_unit_test(tokens_go_there_and_back),
    };
    return cmocka_run_group_tests(tests, begin, end);
}

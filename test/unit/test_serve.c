/* test_serve.c: the HTTP server over a weightless model that answers with a given script: what goes over
 * the wire, what is refused and how, clients that leave, dawdle, or send nonsense. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "backend/queue.h"

#include "scratch.h"
#include "serve_rig.h"
#include "store/store_impl.h"
#include "tiny_bert.h"

static const char script[] = "The answer is 42, naturally \xe2\x80\x94 said the \"model\".";
static const char call_script[] = "<tool_call>\n<function=calculator>\n<parameter=expression>\n"
                                  "12 * 34\n</parameter>\n</function>\n</tool_call>";

/* ---- answers ---- */

static void test_whole(void **state) {
    struct rig r;
    (void)state;
    rig_open(&r, script, 0, (struct serve_params){0}, 4);
    json_t *j = body_of(call(&r, CHAT, "{" HI "}"));
    assert_string_equal(text_at(j, "choices.0.message.content"), script);
    assert_string_equal(text_at(j, "choices.0.finish_reason"), "stop");
    json_t *usage = json_object_get(j, "usage");
    assert_int_equal(json_integer_value(json_object_get(usage, "completion_tokens")),
                     (int)r.n_script + 1);
    json_decref(j);
    j = body_of(call(&r, CHAT, "{" HI ",\"stop\":[\"42\"],\"n\":3}"));
    assert_string_equal(text_at(j, "choices.2.message.content"), "The answer is ");
    json_decref(j);
    j = body_of(call(&r, CHAT, "{" HI ",\"max_tokens\":2}"));
    assert_string_equal(text_at(j, "choices.0.finish_reason"), "length");
    json_decref(j);
    j = body_of(call(&r, "/v1/messages", "{\"max_tokens\":99," HI "}"));
    assert_string_equal(text_at(j, "content.0.text"), script);
    assert_string_equal(text_at(j, "stop_reason"), "end_turn");
    json_decref(j);
    j = body_of(call(&r, "/v1/responses", "{\"input\":\"Hi\"}"));
    assert_string_equal(text_at(j, "output.0.content.0.text"), script);
    assert_string_equal(text_at(j, "status"), "completed");
    json_decref(j);
    j = body_of(call(&r, "/v1/completions", "{\"prompt\":\"Hi\",\"echo\":true,\"max_tokens\":3}"));
    assert_non_null(text_at(j, "choices.0.text"));
    assert_memory_equal(text_at(j, "choices.0.text"), "Hi", 2);
    json_decref(j);
    rig_close(&r);
}

static void test_stream(void **state) {
    struct rig r;
    char text[256] = "";
    int n_done = 0;
    (void)state;
    rig_open(&r, script, 0, (struct serve_params){0}, 4);
    const char *at =
        call(&r, CHAT, "{" HI ",\"stream\":true,\"stream_options\":{\"include_usage\":true}}");
    assert_int_equal(status_of(at), 200);
    assert_non_null(strstr(at, "text/event-stream"));
    bool has_usage = false, has_finish = false;
    for (json_t *j; (j = next_frame(&at)); json_decref(j)) {
        const char *piece = text_at(j, "choices.0.delta.content");
        if (piece) strncat(text, piece, sizeof text - strlen(text) - 1);
        if (strncmp(at, "[DONE]", 6) == 0) n_done++;
        has_finish |= text_at(j, "choices.0.finish_reason") != NULL;
        has_usage |= json_is_object(json_object_get(j, "usage"));
    }
    assert_string_equal(text, script);
    assert_true(has_usage && has_finish && n_done == 1);
    rig_close(&r);
}

static void test_calls(void **state) {
    struct rig r;
    char args[256] = "", input[256] = "";
    int n_piece = 0;
    (void)state;
    rig_open(&r, call_script, 0, (struct serve_params){0}, 4);
    json_t *j = body_of(call(&r, CHAT, "{" HI "," CALC "}"));
    assert_string_equal(text_at(j, "choices.0.message.tool_calls.0.function.arguments"),
                        "{\"expression\":\"12 * 34\"}");
    assert_string_equal(text_at(j, "choices.0.finish_reason"), "tool_calls");
    json_decref(j);
    const char *at = call(&r, CHAT, "{" HI ",\"stream\":true," CALC "}");
    for (; (j = next_frame(&at)); json_decref(j)) {
        const char *piece = text_at(j, "choices.0.delta.tool_calls.0.function.arguments");
        if (!piece) continue;
        n_piece += piece[0] != 0;
        strncat(args, piece, sizeof args - strlen(args) - 1);
    }
    assert_string_equal(args, "{\"expression\":\"12 * 34\"}");
    assert_true(n_piece > 2); /* they grow */
    at = call(&r, "/v1/messages",
              "{\"max_tokens\":99,\"stream\":true," HI ",\"tools\":[{\"name\":\"calculator\","
              "\"input_schema\":{\"type\":\"object\",\"properties\":{\"expression\":{\"type\":"
              "\"string\"}}}}]}");
    for (; (j = next_frame(&at)); json_decref(j)) {
        const char *piece = text_at(j, "delta.partial_json");
        if (piece) strncat(input, piece, sizeof input - strlen(input) - 1);
    }
    assert_string_equal(input, "{\"expression\":\"12 * 34\"}");
    rig_close(&r);

    /* a model that calls twice, and a client that takes one call at a time */
    char two[800], body[800];
    snprintf(two, sizeof two, "%s\n%s", call_script, call_script);
    rig_open(&r, two, 0, (struct serve_params){0}, 4);
    for (int parallel = 0; parallel < 2; parallel++) {
        snprintf(body, sizeof body, "{" HI "," CALC ",\"parallel_tool_calls\":%s}",
                 parallel ? "true" : "false");
        j = body_of(call(&r, CHAT, body));
        json_t *choice = json_array_get(json_object_get(j, "choices"), 0);
        assert_int_equal(
            json_array_size(json_object_get(json_object_get(choice, "message"), "tool_calls")),
            1 + parallel);
        assert_string_equal(text_at(j, "choices.0.finish_reason"), "tool_calls");
        json_decref(j);
    }
    rig_close(&r);
}

/* A model that would say something else is held to the form. */
static void test_forced(void **state) {
    struct rig r;
    (void)state;
    rig_open(&r, NULL, 0, (struct serve_params){0}, 4);
    json_t *j = body_of(call(
        &r, CHAT,
        "{" HI
        ",\"max_tokens\":3000,\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"w\","
        "\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"enum\":[\"Rome\","
        "\"Oslo\"]},\"n\":{\"type\":\"integer\",\"minimum\":5,\"maximum\":6}},\"required\":["
        "\"city\",\"n\"]}}}],\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"w\"}"
        "}}"));
    const char *args = text_at(j, "choices.0.message.tool_calls.0.function.arguments");
    assert_non_null(args);
    json_t *a = json_loads(args, 0, NULL);
    const char *city = json_string_value(json_object_get(a, "city"));
    double n = json_number_value(json_object_get(a, "n"));
    assert_true(city && (strcmp(city, "Rome") == 0 || strcmp(city, "Oslo") == 0));
    assert_true(n == 5 || n == 6);
    json_decref(a);
    json_decref(j);
    j = body_of(call(&r, CHAT,
                     "{" HI ",\"max_tokens\":3000,\"response_format\":{\"type\":\"json_schema\","
                     "\"json_schema\":{\"name\":\"x\",\"schema\":{\"enum\":[\"a\",\"b\"]}}}}"));
    const char *text = text_at(j, "choices.0.message.content");
    json_t *v = text ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL; /* may be spelt "\\u0061" */
    const char *letter = json_string_value(v);
    assert_true(letter && (strcmp(letter, "a") == 0 || strcmp(letter, "b") == 0));
    json_decref(v);
    json_decref(j);
    rig_close(&r);
}

/* ---- refusals ---- */

static const struct {
    const char *path, *body;
    int status;
    const char *param; /* "": none is named */
} refusals[] = {
    {CHAT, "", 400, "body"},
    {CHAT, "[]", 400, "body"},
    {CHAT, "{", 400, "body"},
    {CHAT, "{\"messages\":[]}", 400, "messages"},
    {CHAT, "{}", 400, "messages"},
    {CHAT, "{\"messages\":\"Hi\"}", 400, "messages"},
    {CHAT, "{\"messages\":[{\"role\":\"alien\",\"content\":\"x\"}]}", 400, "messages[0].role"},
    {CHAT, "{\"messages\":[{\"role\":\"user\"}]}", 400, "messages[0].content"},
    {CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}", 400,
     "messages[0].content[0]"},
    {CHAT,
     "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{"
     "\"url\":\"data:image/png;base64,AAAA\"}}]}]}",
     400, "messages[0].content[0].type"},
    {CHAT, "{" HI ",\"temperature\":NaN}", 400, "body"},
    {CHAT, "{" HI ",\"temperature\":-1}", 400, "temperature"},
    {CHAT, "{" HI ",\"temperature\":\"hot\"}", 400, "temperature"},
    {CHAT, "{" HI ",\"temperature\":1e999}", 400, "temperature"},
    {CHAT, "{" HI ",\"max_tokens\":-5}", 400, "max_tokens"},
    {CHAT, "{" HI ",\"max_tokens\":1.5}", 400, "max_tokens"},
    {CHAT, "{" HI ",\"n\":1000}", 400, "n"},
    {CHAT, "{" HI ",\"seed\":1.5}", 400, "seed"},
    {CHAT, "{" HI ",\"seed\":1e300}", 400, "seed"},
    {CHAT, "{" HI ",\"top_logprobs\":3}", 400, "top_logprobs"},
    {CHAT, "{" HI ",\"logprobs\":true,\"top_logprobs\":21}", 400, "top_logprobs"},
    {CHAT, "{" HI ",\"stop\":[7]}", 400, "stop[0]"},
    {CHAT, "{" HI ",\"logit_bias\":{\"x\":\"a\"}}", 400, "logit_bias"},
    {CHAT, "{" HI ",\"logit_bias\":{\"99999999\":1}}", 400, "logit_bias"},
    {CHAT, "{" HI ",\"logit_bias\":{\"99999999999\":1}}", 400, "logit_bias"},
    {CHAT, "{" HI ",\"logit_bias\":{\"-1\":1}}", 400, "logit_bias"},
    {"/api/generate", "{\"a\":[{}]}", 400, ""},
    {CHAT, "{" HI ",\"colour\":\"red\"}", 400, "colour"},
    {CHAT, "{" HI ",\"input\":\"x\"}", 400, "input"},
    {CHAT, "{" HI ",\"functions\":[{}]}", 400, "functions[0].name"},
    {CHAT, "{" HI ",\"model\":\"other\"}", 404, "model"},
    {CHAT, "{" HI ",\"tool_choice\":\"required\"}", 400, "tool_choice"},
    {CHAT, "{" HI ",\"lora\":[{\"id\":0,\"scale\":1}]}", 400, "lora"},
    {CHAT, "{" HI ",\"experts\":0}", 400, "experts"},
    {CHAT, "{" HI ",\"experts\":1.5}", 400, "experts"},
    {CHAT, "{" HI ",\"experts\":{\"min\":2}}", 400, "experts"},
    {CHAT, "{" HI ",\"experts\":{\"mass\":0.9,\"min\":0}}", 400, "experts.min"},
    {CHAT, "{" HI ",\"experts\":{\"mass\":0.9,\"entropy\":-1}}", 400, "experts.entropy"},
    {CHAT, "{" HI ",\"experts\":{\"mass\":0.9,\"entropy\":\"2\"}}", 400, "experts.entropy"},
    {CHAT, "{" HI ",\"grammar\":\"root ::= x\"}", 400, "grammar"},
    {CHAT,
     "{" HI ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{\"type\":"
     "\"array\",\"uniqueItems\":true}}}}",
     400, "response_format"},
    {CHAT,
     "{" HI ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{\"type\":"
     "\"string\",\"pattern\":\"^(a{1,1000}){1,1000}$\"}}}}",
     400, "response_format"},
    {"/v1/messages", "{" HI "}", 400, ""},
    {"/v1/messages", "{\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":7}]}", 400,
     ""},
    {"/v1/responses", "{\"input\":[{\"type\":\"web\"}]}", 400, "input[0].type"},
    {"/v1/responses", "{\"input\":\"x\",\"previous_response_id\":\"r\"}", 400,
     "previous_response_id"},
    {"/v1/completions", "{\"prompt\":[\"a\",{}]}", 400, "prompt[1]"},
    {"/v1/completions", "{\"prompt\":[\"a\",\"\"]}", 400, "prompt"},
    {"/v1/completions", "{\"prompt\":[[1],[1.5]]}", 400, "prompt[1]"},
    {"/v1/completions", "{\"prompt\":[7,{}]}", 400, "prompt"},
    {"/v1/completions", "{\"prompt\":\"a\",\"suffix\":\"b\"}", 400, "suffix"},
    {"/v1/completions", "{\"prompt\":\"a\",\"best_of\":2}", 400, "best_of"},
    {"/v1/completions", "{\"prompt\":\"a\",\"tools\":[]}", 400, "tools"},
    {"/v1/completions", "{\"prompt\":\"a\",\"id_slot\":-2}", 400, "id_slot"},
    {CHAT, "{" HI ",\"reasoning_effort\":\"much\"}", 400, "reasoning_effort"},
    {CHAT, "{" HI ",\"chat_template_kwargs\":{\"messages\":[]}}", 400,
     "chat_template_kwargs.messages"},
    {CHAT, "{" HI ",\"parallel_tool_calls\":1}", 400, "parallel_tool_calls"},
    {"/v1/completions", "{\"prompt\":[-1]}", 400, "prompt"},
    {"/v1/completions", "{\"prompt\":[123456789]}", 400, "prompt"},
    {"/tokenize", "{}", 400, "content"},
    {"/nowhere", "{}", 404, ""},
    {"/health", "{}", 405, ""},
};

static void test_refusals(void **state) {
    struct rig r;
    (void)state;
    rig_open(&r, script, 0, (struct serve_params){0}, 4);
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const char *answer = call(&r, refusals[i].path, refusals[i].body);
        if (status_of(answer) != refusals[i].status)
            fail_msg("%s: expected %d, got %.400s", refusals[i].body, refusals[i].status, answer);
        json_t *j = body_of(answer);
        const char *param = text_at(j, "error.param");
        bool ollama = strncmp(refusals[i].path, "/api/", 5) == 0;
        assert_non_null(text_at(j, ollama ? "error" : "error.message"));
        if (strcmp(param ? param : "", refusals[i].param) != 0)
            fail_msg("%s: expected the field %s, got %s", refusals[i].body, refusals[i].param,
                     param ? param : "none");
        bool anthropic = strcmp(refusals[i].path, "/v1/messages") == 0;
        assert_int_equal(text_at(j, "type") != NULL, anthropic);
        json_decref(j);
    }
    json_t *j = body_of(call(&r, CHAT, "{" HI "}")); /* and nothing else was disturbed */
    assert_string_equal(text_at(j, "choices.0.message.content"), script);
    json_decref(j);
    rig_close(&r);
}

/* Several prompts in one request: choices of the first prompt come first; all end, whatever happens. */
static void test_prompts(void **state) {
    struct rig r;
    (void)state;
    rig_open(&r, script, 0, (struct serve_params){.max_waiting = 9}, 2);
    static const char list[] =
        "{\"echo\":true,\"n\":2,\"prompt\":[\"One\",\"Two two\",\"Three\"]%s}";
    char body[200], want[300];
    int n_prompt = 0;
    static const char *const prompts[] = {"One", "Two two", "Three"};
    for (int i = 0; i < 3; i++) {
        snprintf(body, sizeof body, "{\"prompt\":\"%s\"}", prompts[i]);
        json_t *one = body_of(call(&r, "/v1/completions", body));
        n_prompt += (int)json_integer_value(
            json_object_get(json_object_get(one, "usage"), "prompt_tokens"));
        json_decref(one);
    }
    snprintf(body, sizeof body, list, "");
    json_t *all = body_of(call(&r, "/v1/completions", body));
    json_t *choices = json_object_get(all, "choices");
    assert_int_equal(json_array_size(choices), 6);
    for (int i = 0; i < 6; i++) {
        snprintf(want, sizeof want, "%s%s", prompts[i / 2], script);
        json_t *c = json_array_get(choices, (size_t)i);
        assert_int_equal(json_integer_value(json_object_get(c, "index")), i);
        assert_string_equal(text_at(c, "text"), want);
    }
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(all, "usage"), "prompt_tokens")),
        n_prompt);
    json_decref(all);

    snprintf(body, sizeof body, list, ",\"stream\":true");
    const char *at = call(&r, "/v1/completions", body);
    char texts[6][300] = {{0}};
    int n_end = 0;
    for (json_t *f; (f = next_frame(&at)); json_decref(f)) {
        json_t *c = json_array_get(json_object_get(f, "choices"), 0);
        if (!c) continue;
        int64_t i = json_integer_value(json_object_get(c, "index"));
        assert_in_range(i, 0, 5);
        strncat(texts[i], text_at(c, "text"), 200);
        n_end += text_at(c, "finish_reason") != NULL;
    }
    for (int i = 0; i < 6; i++) {
        snprintf(want, sizeof want, "%s%s", prompts[i / 2], script);
        assert_string_equal(texts[i], want);
    }
    assert_int_equal(n_end, 6);
    rig_close(&r);

    /* more than the queue takes: all or nothing */
    rig_open(&r, NULL, 1000, (struct serve_params){.max_waiting = 1}, 2);
    static const char many[] = "{\"ignore_eos\":true,\"prompt\":[\"a\",\"b\",\"c\",\"d\",\"e\"]%s}";
    for (int stream = 0; stream < 2; stream++) {
        snprintf(body, sizeof body, many, stream ? ",\"stream\":true" : "");
        const char *answer = call(&r, "/v1/completions", body);
        assert_int_equal(status_of(answer), 429);
        assert_non_null(strstr(answer, "Retry-After: "));
        assert_true(wait_active(&r, 0));
    }
    rig_close(&r);

    /* its client leaves while some run and some wait */
    rig_open(&r, NULL, 1000, (struct serve_params){0}, 2);
    snprintf(body, sizeof body, many, "");
    int fd = dial(&r);
    post(fd, "/v1/completions", body, strlen(body), NULL);
    assert_true(wait_active(&r, 2));
    close(fd);
    assert_true(wait_active(&r, 0));
    assert_int_equal(status_of(call(&r, "/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":1}")),
                     200);
    rig_close(&r);
}

static void test_large(void **state) {
    struct rig r;
    size_t n = 100000;
    char *deep = malloc(n + 1), head[200];
    (void)state;
    rig_open(&r, script, 0, (struct serve_params){.max_body_bytes = 1 << 20}, 4);
    memset(deep, '[', n);
    deep[n] = 0;
    assert_int_equal(status_of(call(&r, CHAT, deep)), 400);
    int fd = dial(&r); /* 100 MB announced: refused before it is sent */
    int k =
        snprintf(head, sizeof head,
                 "POST " CHAT " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000\r\n\r\n");
    say(fd, head, (size_t)k);
    assert_int_equal(status_of(hear(fd)), 413);
    fd = dial(&r); /* 2^63 bytes announced */
    k = snprintf(head, sizeof head,
                 "POST " CHAT
                 " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9223372036854775808\r\n\r\n");
    say(fd, head, (size_t)k);
    assert_int_equal(status_of(hear(fd)), 413);
    fd = dial(&r); /* 3 MB in pieces of unknown number */
    say(fd, head,
        (size_t)snprintf(head, sizeof head,
                         "POST " CHAT " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                         "Transfer-Encoding: chunked\r\n\r\n"));
    for (int i = 0; i < 30; i++) {
        say(fd, "186a0\r\n", 7);
        say(fd, deep, n);
        say(fd, "\r\n", 2);
    }
    say(fd, "0\r\n\r\n", 5);
    assert_int_equal(status_of(hear(fd)), 413);
    free(deep);
    rig_close(&r);
}

/* ---- clients that leave or dawdle ---- */

static void leave_early(bool stream) {
    struct rig r;
    char piece[200];
    const char *body =
        stream ? "{" HI ",\"stream\":true,\"ignore_eos\":true}" : "{" HI ",\"ignore_eos\":true}";
    rig_open(&r, NULL, 20000, (struct serve_params){0}, 4);
    int fd = dial(&r);
    post(fd, CHAT, body, strlen(body), NULL);
    assert_true(wait_active(&r, 1));
    if (stream) assert_true(recv(fd, piece, sizeof piece, 0) > 0);
    int64_t before = n_generated(&r);
    close(fd);
    assert_true(wait_active(&r, 0));
    assert_true(n_generated(&r) - before < 100 * TEST_SLOWNESS); /* of the 16,000 that it could */
    rig_close(&r);
}

/* A client that leaves while its prompt is read: on other threads, which ThreadSanitizer watches. */
static void test_leave_prompt(void **state) {
    struct rig r;
    enum { N = 200000 };
    static char body[N + 64];
    (void)state;
    int n = snprintf(body, sizeof body, "{\"messages\":[{\"role\":\"user\",\"content\":\"");
    for (; n < N; n++) body[n] = "ab c,1"[(n * 7 + n / 5) % 6];
    snprintf(body + n, 64, "\"}],\"stream\":true}");
    rig_open(&r, script, 0, (struct serve_params){0}, 4);
    for (int i = 0; i < 20; i++) {
        int fd = dial(&r);
        post(fd, CHAT, body, strlen(body), NULL);
        usleep((useconds_t)i * 1000 * TEST_SLOWNESS);
        close(fd);
    }
    assert_int_equal(status_of(call(&r, CHAT, "{" HI "}")), 200);
    rig_close(&r);
}

static void test_leave_stream(void **state) { (void)state, leave_early(true); }
static void test_leave_whole(void **state) { (void)state, leave_early(false); }

static void test_leave_queue(void **state) {
    struct rig r;
    static const char body[] = "{" HI ",\"ignore_eos\":true}";
    (void)state;
    rig_open(&r, NULL, 2000, (struct serve_params){0}, 1);
    int first = dial(&r), second = dial(&r);
    post(first, CHAT, body, strlen(body), NULL);
    assert_true(wait_active(&r, 1));
    post(second, CHAT, body, strlen(body), NULL);
    wait_waiting(&r, 1);
    close(second);
    wait_waiting(&r, 0);
    close(first);
    assert_true(wait_active(&r, 0));
    rig_close(&r);
}

static void test_slow_reader(void **state) {
    struct rig r;
    static const char body[] = "{" HI ",\"stream\":true,\"ignore_eos\":true,\"max_tokens\":16000}";
    int small = 4096;
    (void)state;
    rig_open(&r, NULL, 0, (struct serve_params){.max_out_bytes = 1 << 17}, 4);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)r.port)};
    inet_pton(AF_INET, "127.0.0.1", &a.sin_addr);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    post(fd, CHAT, body, strlen(body), NULL); /* and reads nothing */
    AWAIT(n_generated(&r));                   /* it may be cut before anybody sees it run */
    assert_true(n_generated(&r) > 0);
    json_t *j = body_of(call(&r, CHAT, "{" HI ",\"max_tokens\":50,\"ignore_eos\":true}"));
    assert_string_equal(text_at(j, "choices.0.finish_reason"), "length");
    json_decref(j);
    assert_true(wait_active(&r, 0)); /* cut, long before its 16,000 tokens */
    assert_true(n_generated(&r) < 16000);
    close(fd);
    rig_close(&r);
}

static void test_trickle(void **state) {
    struct rig r;
    char byte;
    (void)state;
    rig_open(&r, script, 0, (struct serve_params){.receive_s = 1}, 4);
    int head = dial(&r), body = dial(&r), idle = dial(&r);
    say(head, "POST /v1/chat/comp", 18);
    post(body, CHAT, "{", 1, "Content-Length: 50\r\nX-Ignored: ");
    int64_t start = clock_ns();
    assert_true(recv(head, &byte, 1, 0) <= 0);
    while (recv(body, &byte, 1, 0) > 0) {}
    assert_true(clock_ms_since(start) < 15000 * TEST_SLOWNESS); /* before the sockets' own limit */
    post(idle, CHAT, "{" HI "}", strlen("{" HI "}"), NULL); /* waiting in silence is no offence */
    assert_int_equal(status_of(hear(idle)), 200);
    close(head);
    close(body);
    rig_close(&r);
}

static void test_half_closed(void **state) {
    struct rig r;
    char byte;
    (void)state;
    rig_open(&r, NULL, 2000, (struct serve_params){0}, 4);
    int fd = dial(&r);
    say(fd, "POST " CHAT " HTTP/1.1\r\nContent-Length: 100\r\n\r\n{", 60);
    shutdown(fd, SHUT_WR); /* in the middle of the body */
    while (recv(fd, &byte, 1, 0) > 0) {}
    close(fd);
    fd = dial(&r);
    post(fd, CHAT, "{" HI ",\"ignore_eos\":true}", strlen("{" HI ",\"ignore_eos\":true}"), NULL);
    assert_true(wait_active(&r, 1));
    shutdown(fd, SHUT_WR);
    assert_true(wait_active(&r, 0));
    close(fd);
    /* in one packet with a request: it may be answered, and no other can come */
    static const char whole[] = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    int many[8];
    for (int i = 0; i < 8; i++) {
        many[i] = dial(&r);
        setsockopt(many[i], IPPROTO_TCP, TCP_CORK, &(int){1}, sizeof(int));
        say(many[i], whole, strlen(whole));
        shutdown(many[i], SHUT_WR);
    }
    for (int i = 0; i < 8; i++) {
        ssize_t k;
        while ((k = recv(many[i], &byte, 1, 0)) > 0) {}
        assert_int_equal(k, 0); /* its end, not that of the client's patience */
        close(many[i]);
    }
    assert_int_equal(status_of(get(&r, "/health", NULL)), 200);
    rig_close(&r);
}

static void test_keep_alive(void **state) {
    struct rig r;
    char piece[4096];
    (void)state;
    rig_open(&r, script, 0, (struct serve_params){0}, 4);
    int fd = dial(&r);
    for (int i = 0; i < 3; i++) {
        size_t n = 0;
        post(fd, CHAT, "{" HI "}", strlen("{" HI "}"), "");
        for (;;) { /* the whole body is one object: its last byte ends it */
            ssize_t k = recv(fd, piece + n, sizeof piece - n - 1, 0);
            assert_true(k > 0);
            n += (size_t)k;
            piece[n] = 0;
            if (strstr(piece, "\"system_fingerprint\":\"chimere\"}")) break;
        }
        assert_int_equal(status_of(piece), 200);
    }
    close(fd);
    rig_close(&r);
}

static void test_ping(void **state) {
    struct rig r;
    (void)state;
    rig_open(&r, "a", 1800000, (struct serve_params){.ping_s = 1}, 4);
    const char *answer = call(&r, CHAT, "{" HI ",\"stream\":true}");
    assert_non_null(strstr(answer, ": ping\n\n"));
    assert_non_null(strstr(answer, "[DONE]"));
    rig_close(&r);
}

/* ---- queue, keys, origins, stopping ---- */

static void test_queue_full(void **state) {
    struct rig r;
    static const char body[] = "{" HI ",\"ignore_eos\":true}";
    (void)state;
    rig_open(&r, NULL, 2000, (struct serve_params){.max_waiting = 1}, 1);
    int a = dial(&r), b = dial(&r);
    post(a, CHAT, body, strlen(body), NULL);
    assert_true(wait_active(&r, 1));
    post(b, CHAT, body, strlen(body), NULL);
    wait_waiting(&r, 1);
    const char *answer = call(&r, CHAT, "{" HI ",\"stream\":true}");
    assert_int_equal(status_of(answer), 429);
    assert_non_null(strstr(answer, "Retry-After: "));
    close(a);
    close(b);
    assert_true(wait_active(&r, 0));
    rig_close(&r);
}

static struct queue_item *started[16];
static int n_order;
static void remember(struct queue_item *it) { started[n_order++] = it; }

static void test_turns(void **state) {
    struct queue *g;
    struct queue_item items[6];
    struct err e;
    int retry;
    (void)state;
    n_order = 0;
    assert_int_equal(queue_new(&g, 1, 4, &e), 0);
    for (int i = 0; i < 5; i++) { /* four of one owner, then one of another */
        items[i] = (struct queue_item){.start = remember, .owner = i < 4 ? 1 : 2, .n_slot = 1};
        assert_int_equal(queue_enter(g, &items[i], &retry, &e), 0);
    }
    items[5] = (struct queue_item){.start = remember, .owner = 3, .n_slot = 1};
    assert_int_equal(queue_enter(g, &items[5], &retry, &e), CHIMERE_EBUSY);
    assert_int_equal(n_order, 1);
    for (int i = 0; i < 5; i++) queue_leave(g, started[i]);
    assert_int_equal(n_order, 5);
    assert_ptr_equal(started[1], &items[4]); /* who came last but had no turn yet */
    assert_ptr_equal(started[2], &items[1]);
    queue_free(g);
}

static void test_keys(void **state) {
    struct rig r;
    (void)state;
    rig_open(&r, script, 0,
             (struct serve_params){.keys = "secret-one alice per-minute=2\n# none\nsecret-two bob"},
             4);
    assert_int_equal(status_of(get(&r, "/v1/models", NULL)), 401);
    assert_int_equal(status_of(get(&r, "/health", NULL)), 200);
    assert_int_equal(status_of(get(&r, "/v1/models", "Authorization: Bearer secret\r\n")), 401);
    assert_int_equal(status_of(get(&r, "/v1/models", "x-api-key: secret-two\r\n")), 200);
    static const char alice[] = "Authorization: Bearer secret-one\r\n";
    assert_int_equal(status_of(get(&r, "/v1/models", alice)), 200);
    assert_int_equal(status_of(get(&r, "/v1/models", alice)), 200);
    const char *answer = get(&r, "/v1/models", alice);
    assert_int_equal(status_of(answer), 429);
    assert_non_null(strstr(answer, "Retry-After: "));
    assert_null(strstr(answer, "secret"));
    rig_close(&r);
}

/* A key file that changed: counts of keys that stay, and a file that is refused. */
static void test_reload(void **state) {
    struct rig r;
    struct err e = {0};
    static const char alice[] = "Authorization: Bearer secret-one\r\n";
    (void)state;
    rig_open(&r, script, 0, (struct serve_params){0}, 4);
    assert_int_equal(status_of(get(&r, "/v1/models", NULL)), 200); /* no keys yet */
    struct serve_params p = {.keys = "secret-one alice per-minute=2\nsecret-two bob"};
    assert_int_equal(serve_reload(r.s, &p, &e), 0);
    assert_int_equal(status_of(get(&r, "/v1/models", NULL)), 401);
    assert_int_equal(status_of(get(&r, "/v1/models", alice)), 200);
    assert_int_equal(status_of(get(&r, "/v1/models", alice)), 200);
    p.keys = "secret-one alice per-minute=2\nsecret-three carol";
    assert_int_equal(serve_reload(r.s, &p, &e), 0);
    assert_int_equal(status_of(get(&r, "/v1/models", alice)), 429); /* what she used still counts */
    assert_int_equal(status_of(get(&r, "/v1/models", "x-api-key: secret-two\r\n")), 401);
    assert_int_equal(status_of(get(&r, "/v1/models", "x-api-key: secret-three\r\n")), 200);
    p.keys = "secret-two bob\nshort";
    assert_int_not_equal(serve_reload(r.s, &p, &e), 0);
    assert_non_null(strstr(e.text, "line 2"));
    assert_int_equal(status_of(get(&r, "/v1/models", "x-api-key: secret-two\r\n")), 401);
    assert_int_equal(status_of(get(&r, "/v1/models", "x-api-key: secret-three\r\n")), 200);
    p.keys = "secret-two bob";
    assert_int_equal(serve_reload(r.s, &p, &e), 0); /* a key that was there before */
    assert_int_equal(status_of(get(&r, "/v1/models", "x-api-key: secret-two\r\n")), 200);
    p.keys = NULL;
    assert_int_equal(serve_reload(r.s, &p, &e), 0); /* no keys at all never opens a server */
    assert_int_equal(status_of(get(&r, "/v1/models", NULL)), 401);
    rig_close(&r);
}

static void test_origins(void **state) {
    struct rig r;
    const char *const origins[] = {"http://good.example"};
    (void)state;
    rig_open(&r, script, 0, (struct serve_params){.origins = origins, .n_origin = 1}, 4);
    assert_int_equal(status_of(get(&r, "/health", "Origin: http://evil.example\r\n")), 403);
    const char *answer = get(&r, "/health", "Origin: http://good.example\r\n");
    assert_int_equal(status_of(answer), 200);
    assert_non_null(strstr(answer, "Access-Control-Allow-Origin: http://good.example"));
    assert_null(strstr(get(&r, "/health", NULL), "Access-Control-Allow-Origin"));
    int fd = dial(&r); /* a name that was bound to this address */
    static const char rebound[] = "GET /health HTTP/1.1\r\nHost: evil.example\r\n"
                                  "Connection: close\r\n\r\n";
    say(fd, rebound, strlen(rebound));
    assert_int_equal(status_of(hear(fd)), 403);
    rig_close(&r);
}

/* A client that takes the server for a proxy sends the whole address; of other hosts there is nothing here. */
static void test_whole_address(void **state) {
    static const struct {
        const char *address;
        int status;
    } rows[] = {{"http://localhost/health", 200},    {"HTTP://LOCALHOST/v1/models", 200},
                {"http://localhost", 200},           {"http://localhost.evil.example/health", 404},
                {"http://evil.example/health", 404}, {"ftp://localhost/health", 404},
                {"//localhost/health", 404}};
    struct rig r;
    char head[200];
    (void)state;
    rig_open(&r, script, 0, (struct serve_params){0}, 4);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int fd = dial(&r);
        say(fd, head,
            (size_t)snprintf(head, sizeof head,
                             "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
                             rows[i].address));
        int status = status_of(hear(fd));
        if (status != rows[i].status) fail_msg("%s: %d", rows[i].address, status);
    }
    rig_close(&r);
}

struct stream {
    int fd;
    struct buf text;
};
static void *read_all(void *arg) {
    struct stream *s = arg;
    char piece[4096];
    ssize_t k;
    while ((k = recv(s->fd, piece, sizeof piece, 0)) > 0) buf_put(&s->text, piece, (size_t)k);
    return NULL;
}

static void test_stop(void **state) {
    struct rig r;
    pthread_t t;
    static const char body[] = "{" HI ",\"stream\":true,\"ignore_eos\":true}";
    (void)state;
    rig_open(&r, NULL, 2000, (struct serve_params){0}, 4);
    struct stream s = {.fd = dial(&r)};
    buf_init(&s.text, 64 << 20);
    post(s.fd, CHAT, body, strlen(body), NULL);
    assert_true(wait_active(&r, 1));
    pthread_create(&t, NULL, read_all, &s);
    serve_stop(r.s);
    pthread_join(t, NULL);
    assert_non_null(strstr(s.text.p, "the server is stopping"));
    assert_non_null(strstr(s.text.p, "[DONE]"));
    assert_string_equal(s.text.p + s.text.n - 5, "0\r\n\r\n"); /* the last chunk: a proper end */
    buf_fini(&s.text);
    close(s.fd);
    rig_close(&r);
}

static int drain(const struct rig *r, const char *method) {
    char head[128];
    int fd = dial(r);
    int k = snprintf(head, sizeof head,
                     "%s /drain HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                     "Content-Length: 0\r\n\r\n",
                     method);
    say(fd, head, (size_t)k);
    return status_of(hear(fd));
}

/* A drained server refuses new work and finishes what it began, and can take requests again. */
static void test_drain(void **state) {
    struct rig r;
    static const char body[] = "{" HI ",\"max_tokens\":40,\"ignore_eos\":true}";
    (void)state;
    rig_open(&r, NULL, 30000 * TEST_SLOWNESS, (struct serve_params){0}, 4);
    assert_int_equal(status_of(get(&r, "/health/ready", NULL)), 200);
    int fd = dial(&r);
    post(fd, CHAT, body, strlen(body), NULL);
    assert_true(wait_active(&r, 1));
    assert_int_equal(drain(&r, "POST"), 202);
    assert_int_equal(status_of(get(&r, "/health/live", NULL)), 200);
    assert_int_equal(status_of(get(&r, "/health/ready", NULL)), 503);
    assert_non_null(strstr(reply.p, "{\"status\":\"draining\"}"));
    int other = dial(&r);
    post(other, CHAT, body, strlen(body), ""); /* keep-alive, which must not hold the client here */
    assert_int_equal(status_of(hear(other)), 503);
    assert_non_null(strstr(reply.p, "Retry-After: 1"));
    assert_non_null(strstr(reply.p, "retry on another replica"));
    assert_int_equal(status_of(hear(fd)), 200); /* the answer that had begun */
    assert_non_null(strstr(reply.p, "\"completion_tokens\":40"));
    int status;
    AWAIT((status = drain(&r, "POST")) == 200);
    assert_int_equal(status, 200);
    assert_int_equal(drain(&r, "DELETE"), 200);
    assert_int_equal(status_of(call(&r, CHAT, "{" HI ",\"max_tokens\":2}")), 200);
    rig_close(&r);
}

static bool becomes(const struct rig *r, int status, const char *text) {
    AWAIT(status_of(get(r, "/health/ready", NULL)) == status);
    return status_of(reply.p) == status && strstr(reply.p, text);
}

static void limit_pages(struct store *s, const char *pragma) {
    pthread_mutex_lock(&s->lock);
    assert_int_equal(sql_exec(s, pragma), SQL_OK);
    pthread_mutex_unlock(&s->lock);
}

/* A store without room: answers continue, /health/ready returns 503, and all is stored once there is room. */
static void test_store_full(void **state) {
    struct rig r;
    struct err e = {0};
    struct store *store;
    struct store_usage u;
    char path[64];
    enum { N = 200 }; /* more than fits into the free part of a page */
    assert_int_equal(scratch_make(state), 0);
    snprintf(path, sizeof path, "%s/full.db", scratch);
    assert_int_equal(store_open(&store, path, &e), 0);
    rig_open(&r, NULL, 0, (struct serve_params){.store = store}, 4);
    assert_true(becomes(&r, 200, "ready"));
    limit_pages(store, "PRAGMA max_page_count = 1"); /* as many as there are */
    for (int i = 0; i < N; i++)
        assert_int_equal(status_of(call(&r, CHAT, "{" HI ",\"max_tokens\":1}")), 200);
    assert_true(becomes(&r, 503, "store full"));
    assert_int_equal(status_of(get(&r, "/health/live", NULL)), 200);
    limit_pages(store, "PRAGMA max_page_count = 100000");
    assert_true(becomes(&r, 200, "ready"));
    rig_close(&r);
    assert_int_equal(store_usage_since(store, 0, 0, &u, &e), 0);
    assert_int_equal(u.n_request, N);
    store_close(store);
    scratch_drop(state);
}

static void test_drain_is_admins(void **state) {
    struct rig r;
    (void)state;
    rig_open(&r, script, 0, (struct serve_params){.keys = "secret-one alice"}, 4);
    int fd = dial(&r);
    post(fd, "/drain", "", 0, "Authorization: Bearer secret-one\r\nConnection: close\r\n");
    assert_int_equal(status_of(hear(fd)), 403);
    assert_int_equal(drain(&r, "POST"), 401);
    assert_int_equal(status_of(get(&r, "/health/ready", NULL)), 200);
    rig_close(&r);
}

/* A device that failed stays failed: probes say so, and only a restart helps. */
static void test_engine_failed(void **state) {
    struct rig r;
    static const char body[] = "{" HI ",\"max_tokens\":2}";
    (void)state;
    rig_n_run_ok = 2;
    rig_open(&r, script, 0, (struct serve_params){0}, 4);
    rig_n_run_ok = 0;
    assert_int_equal(status_of(get(&r, "/health/ready", NULL)), 200);
    for (int i = 0; i < 4; i++) assert_true(status_of(call(&r, CHAT, body)) == (i ? 500 : 200));
    assert_true(becomes(&r, 503, "engine failed"));
    assert_int_equal(status_of(get(&r, "/health/live", NULL)), 503);
    assert_int_equal(status_of(get(&r, "/health", NULL)), 200);
    rig_close(&r);
}

static void test_ready_queue(void **state) {
    struct rig r;
    static const char body[] = "{" HI ",\"ignore_eos\":true}";
    int fds[2];
    (void)state;
    rig_open(&r, NULL, 2000, (struct serve_params){.max_waiting = 1}, 1);
    for (int i = 0; i < 2; i++) {
        fds[i] = dial(&r);
        post(fds[i], CHAT, body, strlen(body), NULL);
        if (!i) assert_true(wait_active(&r, 1));
    }
    assert_true(becomes(&r, 503, "queue full"));
    assert_int_equal(status_of(get(&r, "/health/live", NULL)), 200);
    for (int i = 0; i < 2; i++) close(fds[i]);
    assert_true(becomes(&r, 200, "ready"));
    rig_close(&r);
}

/* A step that takes longer than stopping waits for. */
static void test_stop_stuck(void **state) {
    struct rig r;
    (void)state;
    rig_open(&r, NULL, 7000000, (struct serve_params){0}, 4);
    int fd = dial(&r);
    post(fd, CHAT, "{" HI "}", strlen("{" HI "}"), NULL);
    assert_true(wait_active(&r, 1));
    rig_close(&r); /* must not abort, nor leave anything behind */
    close(fd);
}

static void test_timeout(void **state) {
    struct rig r;
    (void)state;
    rig_open(&r, NULL, 2000, (struct serve_params){.timeout_s = 1}, 4);
    assert_int_equal(status_of(call(&r, CHAT, "{" HI ",\"ignore_eos\":true}")), 504);
    rig_close(&r);
}

/* ---- vectors and pairs ---- */

static const struct tiny_word words[] = {
    {"gold", 0}, {"car", 1}, {"automobile", 1}, {"oil", 2}, {"museum", 3}};

static void tiny(struct brain *b, const char *name, bool ranks) {
    char path[64];
    struct err e = {0};
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    if (tiny_bert_write(path, words, 5, ranks, &e) || brain_open(b, path, ranks, &e))
        fail_msg("%s", e.text);
}

/* Order and scores of the texts that a question ranks: "2:0.73 0:0.50 ". */
static const char *ranked(const struct rig *r, const char *model) {
    static char out[100];
    char body[300];
    size_t i;
    json_t *row;
    int n = 0;
    snprintf(body, sizeof body,
             "{%s\"query\":\"car\",\"documents\":[\"museum\",{\"text\":\"automobile\"},"
             "\"gold gold gold\"],\"top_n\":2}",
             model);
    json_t *j = body_of(call(r, "/v1/rerank", body));
    if (text_at(j, "error.message")) n = snprintf(out, 100, "%s", text_at(j, "error.message"));
    else
        assert_true(
            json_integer_value(json_object_get(json_object_get(j, "usage"), "total_tokens")) > 3);
    json_array_foreach(json_object_get(j, "results"), i, row) n +=
        snprintf(out + n, sizeof out - (size_t)n, "%d:%.2f ",
                 (int)json_integer_value(json_object_get(row, "index")),
                 json_real_value(json_object_get(row, "relevance_score")));
    json_decref(j);
    return out;
}

/* Pairs go to the cross-encoder where there is one, else to the vectors' cosines; a name picks between them. */
static void test_vectors(void **state) {
    struct brain e, c;
    struct rig r;
    assert_int_equal(scratch_make(state), 0);
    tiny(&e, "e.gguf", false);
    tiny(&c, "c.gguf", true);
    struct serve_params p = {
        .embed = e.embed, .embed_name = "e", .rerank = c.rerank, .rerank_name = "c"};
    rig_open(&r, NULL, 0, p, 1);
    json_t *j = body_of(call(&r, "/v1/embeddings", "{\"input\":[\"car\",\"automobile\"]}"));
    json_t *data = json_object_get(j, "data");
    assert_int_equal(json_array_size(data), 2);
    assert_true(json_equal(json_object_get(json_array_get(data, 0), "embedding"),
                           json_object_get(json_array_get(data, 1), "embedding")));
    json_decref(j);
    /* the vocabulary's first word after five marks: a list of ids and texts is one text */
    j = body_of(call(&r, "/v1/embeddings", "{\"input\":[[6],[6,\" gold\"],\"car gold\"]}"));
    data = json_object_get(j, "data");
    assert_int_equal(json_array_size(data), 3);
    assert_false(json_equal(json_object_get(json_array_get(data, 0), "embedding"),
                            json_object_get(json_array_get(data, 1), "embedding")));
    assert_true(json_equal(json_object_get(json_array_get(data, 1), "embedding"),
                           json_object_get(json_array_get(data, 2), "embedding")));
    json_decref(j);
    /* its score is the share of the first meaning: [CLS] car [SEP] gold gold gold [SEP] */
    const char *both = ranked(&r, "");
    assert_memory_equal(both, "2:", 2);
    assert_true(atof(both + 2) > 0.5 && atof(both + 2) < 1);
    assert_int_equal(strncmp(ranked(&r, "\"model\":\"c\","), "2:", 2), 0);
    assert_int_equal(strncmp(ranked(&r, "\"model\":\"e\","), "1:1.00 ", 7), 0);
    assert_non_null(strstr(ranked(&r, "\"model\":\"x\","), "no embedding model 'x'"));
    assert_int_equal(status_of(call(&r, "/v1/rerank", "{\"query\":7,\"documents\":[\"a\"]}")), 400);
    assert_int_equal(status_of(call(&r, "/v1/rerank", "{\"query\":\"a\",\"documents\":[7]}")), 400);
    rig_close(&r);
    p.rerank = NULL;
    rig_open(&r, NULL, 0, p, 1);
    assert_int_equal(strncmp(ranked(&r, ""), "1:1.00 ", 7), 0);
    rig_close(&r);
    p = (struct serve_params){.rerank = c.rerank, .rerank_name = "c"};
    rig_open(&r, NULL, 0, p, 1);
    assert_int_equal(strncmp(ranked(&r, ""), "2:", 2), 0);
    assert_int_equal(status_of(call(&r, "/v1/embeddings", "{\"input\":\"car\"}")), 400);
    rig_close(&r);
    brain_close(&e);
    brain_close(&c);
    scratch_drop(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),         cmocka_unit_test(test_stream),
        cmocka_unit_test(test_calls),         cmocka_unit_test(test_forced),
        cmocka_unit_test(test_refusals),      cmocka_unit_test(test_prompts),
        cmocka_unit_test(test_large),         cmocka_unit_test(test_leave_prompt),
        cmocka_unit_test(test_leave_stream),  cmocka_unit_test(test_leave_whole),
        cmocka_unit_test(test_leave_queue),   cmocka_unit_test(test_slow_reader),
        cmocka_unit_test(test_trickle),       cmocka_unit_test(test_half_closed),
        cmocka_unit_test(test_keep_alive),    cmocka_unit_test(test_ping),
        cmocka_unit_test(test_queue_full),    cmocka_unit_test(test_turns),
        cmocka_unit_test(test_keys),          cmocka_unit_test(test_origins),
        cmocka_unit_test(test_whole_address), cmocka_unit_test(test_stop),
        cmocka_unit_test(test_timeout),       cmocka_unit_test(test_stop_stuck),
        cmocka_unit_test(test_vectors),       cmocka_unit_test(test_drain),
        cmocka_unit_test(test_store_full),    cmocka_unit_test(test_drain_is_admins),
        cmocka_unit_test(test_ready_queue),   cmocka_unit_test(test_engine_failed),
        cmocka_unit_test(test_reload),
    };
    int rc = cmocka_run_group_tests(tests, open_model, close_model);
    buf_fini(&reply);
    return rc;
}

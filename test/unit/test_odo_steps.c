/* Steps of pipelines: conditions, loops, retries, typed outputs, approval, and the limits of tokens and time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "backend/remote.h"
#include "base/clock.h"
#include "odo/confirm.h"
#include "odo/pipeline/pipeline_steps.h"

#include "loopback.h"
#include "odo_bed.h"
#include "scratch.h"

static int setup(void **state) {
    assert_int_equal(scratch_make(state), 0);
    scratch_put("intent.yaml", "routes:\n  - name: default\n");
    scratch_put("default.yaml", "name: default\n");
    scratch_put(
        "cond.yaml",
        "name: cond\nrun_steps: always\nsteps:\n"
        "  - {agent: sort, output: {type: object, properties: {kind: {enum: [bug, wish]}},"
        " required: [kind], additionalProperties: false}}\n"
        "  - {agent: fix, prompt: FIX, if: {step: sort, field: kind, equals: BUG}}\n"
        "  - {agent: plan, prompt: PLAN, if: {step: sort, field: kind, equals: bug, not: true}}\n"
        "  - {agent: tell, prompt: TELL}\n");
    scratch_put("loop.yaml",
                "name: loop\nrun_steps: always\nsteps:\n"
                "  - loop:\n      most: 3\n      until: {step: critic, contains: approved}\n"
                "      steps:\n        - {agent: author, prompt: WRITE}\n"
                "        - {agent: critic, prompt: JUDGE}\n"
                "  - {agent: editor, prompt: EDIT}\n");
    scratch_put("retry.yaml",
                "name: retry\nrun_steps: always\nsteps:\n"
                "  - {agent: count, retries: 2, output: {type: array, items: {type: integer}}}\n"
                "  - {agent: last, retries: 1, output: {type: object}}\n");
    scratch_put("ask.yaml", "name: ask\nrun_steps: always\nsteps:\n  - {agent: draft}\n"
                            "  - {agent: send, approve: true}\n");
    scratch_put(
        "wide.yaml",
        "name: wide\nrun_steps: always\nplan: {enabled: true, max_tokens: 500}\nsteps:\n"
        "  - parallel: [{agent: a}, {agent: b}, {agent: c}]\n  - {agent: d}\n  - {agent: e}\n");
    return 0;
}

static void run(struct bed *b, const char *route, const char *const *replies, int n) {
    struct odo_params p = {.pipelines = scratch};
    char wish[80];
    bed_open(b, replies, n, &p);
    say(b, "user", "What now?");
    snprintf(wish, sizeof wish, "{\"odo\": {\"route\": \"%s\", \"mode\": \"quality\"}}", route);
    b->request.extra = json_loads(wish, 0, NULL);
}

static int n_asked(const struct bed *b) { return (int)json_array_size(b->script.asked); }

static void test_conditions(void **state) {
    (void)state;
    static const char *const bug[] = {"{\"kind\": \"bug\"}", "Fixed.", "Told."},
                             *const wish[] = {"{ \"kind\": \"wish\" }", "Planned.", "Told."};
    struct bed b;
    run(&b, "cond", bug, 3);
    assert_int_equal(ask_it(&b, NULL), 0);
    assert_int_equal(n_asked(&b), 3);
    assert_non_null(strstr(script_text(&b.script, 1, 0), "FIX"));
    assert_non_null(strstr(script_text(&b.script, 2, -1), "[fix]\nFixed."));
    assert_string_equal(content(&b), "Told.");
    assert_non_null(strstr(notes(&b), "\"agent\":\"plan\",\"state\":\"skipped\""));
    /* the first step's output is demanded as JSON of its schema */
    assert_int_equal(
        json_integer_value(json_object_get(json_array_get(b.script.asked, 0), "format")),
        REQUEST_JSON_SCHEMA);
    bed_close(&b);
    run(&b, "cond", wish, 3);
    assert_int_equal(ask_it(&b, NULL), 0);
    assert_non_null(strstr(script_text(&b.script, 1, 0), "PLAN"));
    bed_close(&b);
    static const struct {
        struct pipeline_cond c;
        const char *text;
        bool holds;
    } rows[] = {
        {{.contains = "Yes"}, "well, YES", true},
        {{.contains = "yes", .negated = true}, "no", true},
        {{.equals = "yes"}, " Yes\n", true},
        {{.equals = "yes"}, "yes, sir", false},
        {{.equals = "yes"}, NULL, false},
        {{.equals = "yes", .negated = true}, NULL, true},
        {{.field = "n", .equals = "3"}, "{\"n\": 3}", true},
        {{.field = "n", .equals = "true"}, "{\"n\": true}", true},
        {{.field = "n", .contains = "3"}, "[3]", false},
        {{.field = "n", .contains = "3"}, "n is 3", false},
        {{0}, NULL, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i)
        if (pipeline_holds(&rows[i].c, rows[i].text) != rows[i].holds) fail_msg("row %zu", i);
}

static void test_loop(void **state) {
    (void)state;
    static const char *const soon[] = {"One.", "Bad.", "Two.", "Approved!", "Done."},
                             *const never[] = {"One.",   "Bad.", "Two.", "Bad.",
                                               "Three.", "Bad.", "Done."};
    struct bed b;
    run(&b, "loop", soon, 5);
    assert_int_equal(ask_it(&b, NULL), 0);
    assert_int_equal(n_asked(&b), 5);
    assert_string_equal(content(&b), "Done.");
    /* an agent sees the newest work of each other agent only */
    assert_non_null(strstr(script_text(&b.script, 2, -1), "[critic]\nBad."));
    assert_non_null(strstr(script_text(&b.script, 4, -1), "[author]\nTwo."));
    assert_null(strstr(script_text(&b.script, 4, -1), "One."));
    bed_close(&b);
    run(&b, "loop", never, 7);
    assert_int_equal(ask_it(&b, NULL), 0);
    assert_int_equal(n_asked(&b), 7); /* three times, although it is never approved */
    assert_string_equal(content(&b), "Done.");
    bed_close(&b);
}

static void test_retries(void **state) {
    (void)state;
    static const char *const second[] = {"one, two", "[1, 2]", "no", "{\"n\": 2}"},
                             *const failing[] = {"fail", "[1]", "{}"},
                             *const wrong[] = {"a", "b", "c", "d"};
    struct bed b;
    run(&b, "retry", second, 4);
    assert_int_equal(ask_it(&b, NULL), 0);
    assert_int_equal(n_asked(&b), 4);
    /* what is wrong is said, and the client never sees the attempt that failed */
    assert_non_null(strstr(script_text(&b.script, 1, -1), "not JSON of the step's schema"));
    assert_string_equal(script_text(&b.script, 1, -2), "one, two");
    assert_string_equal(content(&b), "{\"n\": 2}");
    assert_non_null(strstr(notes(&b), "\"attempts\":2"));
    bed_close(&b);
    run(&b, "retry", failing, 3);
    assert_int_equal(ask_it(&b, NULL), 0);
    assert_int_equal(n_asked(&b), 3);
    assert_string_equal(content(&b), "{}");
    bed_close(&b);
    run(&b, "retry", wrong, 4);
    struct err e = {0};
    assert_int_equal(ask_it(&b, &e), CHIMERE_EFORMAT);
    assert_int_equal(n_asked(&b), 3); /* one attempt and two retries */
    bed_close(&b);
}

static void test_fits(void **state) {
    (void)state;
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\"}},"
        "\"required\":[\"n\"]}";
    static const struct {
        const char *text;
        bool fits;
    } rows[] = {
        {"{\"n\": 1}", true},      {"  {\"n\":1}\n", true}, {"```json\n{\"n\": 1}\n```", true},
        {"{\"n\": \"1\"}", false}, {"{}", false},           {"", false},
        {"{\"n\": 1", false},      {"{\"n\": 1} x", false}, {"```", false},
        {"``````", false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
        struct err e = {0};
        if (pipeline_fits(schema, rows[i].text, strlen(rows[i].text), &e) != rows[i].fits)
            fail_msg("%s", rows[i].text);
        if (!rows[i].fits) assert_true(e.text[0] != 0);
    }
}

struct person {
    struct odo *odo;
    bool allow;
    int n_seen;
};

static int answer_asked(void *ud, const struct backend_event *ev) {
    struct person *p = ud;
    if (ev->kind != EVENT_NOTE || strcmp(ev->name, "confirm")) return 0;
    json_t *o = json_loads(ev->text, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(o, "name")), "step send");
    assert_non_null(strstr(json_string_value(json_object_get(o, "arguments")), "The draft."));
    assert_int_equal(confirm_answer(odo_confirms(p->odo), "anna",
                                    json_string_value(json_object_get(o, "id")), p->allow, NULL),
                     0);
    ++p->n_seen;
    json_decref(o);
    return 0;
}

static void test_approval(void **state) {
    (void)state;
    static const char *const replies[] = {"The draft.", "Sent."};
    for (int allow = 0; allow < 2; ++allow) {
        struct bed b;
        run(&b, "ask", replies, 2);
        b.request.owner = "anna";
        struct person anna = {.odo = b.odo, .allow = allow};
        struct call c = {.backend = odo_find(b.odo, "odo"),
                         .request = &b.request,
                         .on_event = answer_asked,
                         .ud = &anna};
        assert_int_equal(call_run(&c, &b.out, NULL), 0);
        assert_int_equal(anna.n_seen, 1);
        assert_int_equal(n_asked(&b), 1 + allow);
        if (allow) assert_string_equal(content(&b), "Sent.");
        else assert_non_null(strstr(content(&b), "The draft.")); /* what there is, marked */
        bed_close(&b);
    }
}

/* All calls together never generate more than the request allows; a scripted answer takes five tokens, or as many as
 * it may. */
static void test_tokens(void **state) {
    (void)state;
    static const char *const replies[] = {"p", "A.", "B.", "C.", "D.", "E.", "F."};
    for (int most = 1; most < 60; ++most) {
        struct bed b;
        run(&b, "wide", replies, 7);
        b.request.max_tokens = most;
        struct err e = {0};
        if (ask_it(&b, &e)) fail_msg("%s", e.text);
        int used = 0;
        for (int i = 0; i < n_asked(&b); ++i) {
            int may = (int)json_integer_value(
                json_object_get(json_array_get(b.script.asked, (size_t)i), "max_tokens"));
            if (may < 1 || may > most) fail_msg("%d: call %d may write %d", most, i, may);
            used += may < 5 ? may : 5;
        }
        if (used > most) fail_msg("%d: %d tokens", most, used);
        if (most >= 30) assert_int_equal(n_asked(&b), 6);
        bed_close(&b);
    }
}

/* A step does not begin after the deadline. */
static void test_time(void **state) {
    (void)state;
    static const char *const replies[] = {"A."};
    struct bed b;
    run(&b, "loop", replies, 1);
    b.request.deadline_ns = clock_ns() - 1;
    struct err e = {0};
    ask_it(&b, &e);
    assert_true(n_asked(&b) <= 1);
    bed_close(&b);
}

/* ---- a server that keeps what it is sent ---- */

static char sent[1 << 16];
static _Atomic int n_sent;

static void collect(struct loopback *l, int fd, const char *path, const char *request) {
    const char *body = strstr(request, "\r\n\r\n");
    (void)l;
    snprintf(sent, sizeof sent, "%s", body ? body + 4 : "");
    ++n_sent;
    if (!strcmp(path, "/v1/traces")) loopback_reply(fd, "200 OK", "application/json", "{}");
    else
        loopback_reply(fd, "200 OK", "text/event-stream",
                       "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"},"
                       "\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n");
}

static const char *text_of(const json_t *o, const char *key) {
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static bool has_span(const json_t *spans, const char *key, const char *value) {
    json_t *s;
    size_t i;
    json_array_foreach((json_t *)spans, i, s) if (!strcmp(text_of(s, key), value)) return true;
    return false;
}

/* One trace per run; each span lies in its parent's time; no text of the conversation is sent. */
static void test_trace(void **state) {
    (void)state;
    static const char *const replies[] = {"{\"kind\": \"bug\"}", "SECRET work.", "Told."};
    struct loopback l;
    char url[64];
    struct bed b;
    loopback_open(&l, collect);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", l.port);
    struct odo_params p = {.pipelines = scratch, .otlp = url};
    bed_open(&b, replies, 3, &p);
    say(&b, "user", "A SECRET question?");
    b.request.extra = json_loads("{\"odo\": {\"route\": \"cond\"}}", 0, NULL);
    assert_int_equal(ask_it(&b, NULL), 0);
    bed_close(&b); /* sends what is queued */
    assert_int_equal(n_sent, 1);
    json_t *o = json_loads(sent, 0, NULL);
    assert_non_null(o);
    assert_null(strstr(sent, "SECRET"));
    const json_t *scope = json_array_get(
        json_object_get(json_array_get(json_object_get(o, "resourceSpans"), 0), "scopeSpans"), 0);
    const json_t *spans = json_object_get(scope, "spans"), *first = json_array_get(spans, 0);
    static const char *const names[] = {"odo", "decide", "step", "model"};
    for (size_t i = 0; i < 4; ++i) assert_true(has_span(spans, "name", names[i]));
    assert_int_equal(json_array_size(spans), 8); /* odo, decide, three steps, three calls */
    int n_root = 0;
    json_t *s;
    size_t i;
    json_array_foreach((json_t *)spans, i, s) {
        assert_int_equal(strlen(text_of(s, "traceId")), 32);
        assert_int_equal(strlen(text_of(s, "spanId")), 16);
        assert_string_equal(text_of(s, "traceId"), text_of(first, "traceId"));
        assert_true(strtoll(text_of(s, "startTimeUnixNano"), NULL, 10) <=
                    strtoll(text_of(s, "endTimeUnixNano"), NULL, 10));
        if (!*text_of(s, "parentSpanId")) ++n_root;
        else assert_true(has_span(spans, "spanId", text_of(s, "parentSpanId")));
    }
    assert_int_equal(n_root, 1);
    json_decref(o);
    loopback_close(&l);
    /* a collector that is away costs the answer nothing */
    bed_open(&b, replies, 3, &p);
    say(&b, "user", "Again?");
    b.request.extra = json_loads("{\"odo\": {\"route\": \"cond\"}}", 0, NULL);
    assert_int_equal(ask_it(&b, NULL), 0);
    assert_string_equal(content(&b), "Told.");
    bed_close(&b);
    /* one that takes connections and never answers does not keep the program from ending */
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n_at = sizeof at;
    int deaf = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(deaf, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(deaf, 8), 0);
    assert_int_equal(getsockname(deaf, (struct sockaddr *)&at, &n_at), 0);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", ntohs(at.sin_port));
    bed_open(&b, replies, 3, &p);
    say(&b, "user", "And again?");
    b.request.extra = json_loads("{\"odo\": {\"route\": \"cond\"}}", 0, NULL);
    assert_int_equal(ask_it(&b, NULL), 0);
    int64_t start = clock_ns();
    bed_close(&b);
    assert_true(clock_ms_since(start) < 10000);
    close(deaf);
    p.otlp = "ftp://x";
    struct odo *odo;
    p.tools = NULL;
    assert_int_equal(odo_open(&odo, &p, NULL), CHIMERE_EINVAL);
}

/* A remote server keeps its own sampling defaults, unless the client or a pipeline chooses. */
static void test_remote_defaults(void **state) {
    (void)state;
    struct loopback l;
    char url[64];
    struct backend *remote;
    loopback_open(&l, collect);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", l.port);
    assert_int_equal(backend_remote_open(&remote, url, NULL, "far", NULL), 0);
    for (int i = 0; i < 3; ++i) {
        struct request a;
        struct call_result out;
        request_init(&a);
        a.messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "Hello");
        a.has_temperature = i == 1; /* named, although with our default's value */
        if (i == 2) a.sampling.top_p = 0.5f;
        struct call c = {.backend = remote, .request = &a};
        assert_int_equal(call_run(&c, &out, NULL), 0);
        call_fini(&out);
        request_fini(&a);
        json_t *o = json_loads(sent, 0, NULL);
        assert_int_equal(json_object_get(o, "temperature") != NULL, i == 1);
        assert_int_equal(json_object_get(o, "top_p") != NULL, i == 2);
        json_decref(o);
    }
    remote->ops->close(remote);
    loopback_close(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conditions),
        cmocka_unit_test(test_loop),
        cmocka_unit_test(test_retries),
        cmocka_unit_test(test_fits),
        cmocka_unit_test(test_approval),
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_time),
        cmocka_unit_test(test_trace),
        cmocka_unit_test(test_remote_defaults),
    };
    return cmocka_run_group_tests(tests, setup, scratch_drop);
}

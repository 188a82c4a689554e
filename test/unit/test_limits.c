/* test_limits.c: what one client of the server can take from, do to and learn of another. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>

#include "serve/metrics.h"
#include "serve_rig.h"

#define ALICE "Connection: close\r\nAuthorization: Bearer secret-one\r\n"
#define BOB "Connection: close\r\nAuthorization: Bearer secret-two\r\n"
#define ADMIN "Connection: close\r\nAuthorization: Bearer secret-all\r\n"
static const char keys[] = "secret-one alice\nsecret-two bob\nsecret-all root admin\n";

static const char *post_as(const struct rig *r, const char *path, const char *who,
                           const char *body) {
    int fd = dial(r);
    post(fd, path, body, strlen(body), who);
    return hear(fd);
}

/* ---- one user's prompts and another's guesses ---- */

/* A letter with a number in it, as its writer's client sends it; extra: further fields. */
static int64_t cached(const struct rig *r, const char *who, int pin, const char *extra) {
    char body[2048];
    snprintf(
        body, sizeof body,
        "{\"messages\":[{\"role\":\"user\",\"content\":\"Dear bank, the PIN of my card is %04d "
        "and I would like to change it soon, so that nobody else can use the card. Please "
        "answer by letter to my address in the old town, number nine, third floor, and do not "
        "call me before noon, thank you very much for your help and all the best to your "
        "family and friends in the village, whom I have not seen for such a long time. I "
        "hope that the harvest was good, that the bridge stands again and that the children "
        "have grown, and I remain with kind regards your faithful old customer.\"}],"
        "\"max_tokens\":1%s}",
        pin, extra);
    json_t *j = body_of(post_as(r, CHAT, who, body));
    json_t *usage = json_object_get(j, "usage");
    json_t *details = json_object_get(usage, "prompt_tokens_details");
    int64_t n = json_integer_value(json_object_get(details, "cached_tokens"));
    assert_true(json_integer_value(json_object_get(usage, "prompt_tokens")) > 128);
    json_decref(j);
    return n;
}

static void prompts_of_others_leave_no_trace(void **state) {
    struct rig r;
    (void)state;
    rig_cache_bytes = 1 << 24;
    rig_open(&r, NULL, 0, (struct serve_params){.keys = keys}, 4);
    assert_int_equal(cached(&r, ALICE, 4271, ""), 0);
    assert_true(cached(&r, ALICE, 4271, "") >= 64); /* the cache works */
    for (int pin = 4268; pin < 4275; pin++) assert_int_equal(cached(&r, BOB, pin, ""), 0);
    /* two users of one key are strangers too, and neither sees what has no user */
    assert_int_equal(cached(&r, BOB, 1111, ",\"user\":\"carol\""), 0);
    assert_true(cached(&r, BOB, 1111, ",\"user\":\"carol\"") >= 64);
    assert_int_equal(cached(&r, BOB, 1111, ",\"user\":\"dave\""), 0);
    assert_int_equal(cached(&r, BOB, 1111, ""), 0);
    rig_close(&r);
}

static void sharing_is_an_option(void **state) {
    struct rig r;
    (void)state;
    rig_cache_bytes = 1 << 24;
    rig_open(&r, NULL, 0, (struct serve_params){.keys = keys, .scope = SCOPE_KEY}, 4);
    assert_int_equal(cached(&r, BOB, 1111, ",\"user\":\"carol\""), 0);
    assert_true(cached(&r, BOB, 1111, ",\"user\":\"dave\"") >= 64);
    assert_int_equal(cached(&r, ALICE, 1111, ""), 0);
    rig_close(&r);
    rig_open(&r, NULL, 0, (struct serve_params){.keys = keys, .scope = SCOPE_ALL}, 4);
    assert_int_equal(cached(&r, BOB, 1111, ""), 0);
    assert_true(cached(&r, ALICE, 1111, "") >= 64);
    rig_close(&r);
    /* without keys an address is one caller, whatever users it names */
    rig_open(&r, NULL, 0, (struct serve_params){0}, 4);
    assert_int_equal(cached(&r, NULL, 1111, ",\"user\":\"carol\""), 0);
    assert_true(cached(&r, NULL, 1111, ",\"user\":\"dave\"") >= 64);
    rig_close(&r);
}

/* ---- roles ---- */

static void administration_needs_the_role(void **state) {
    static const char *const paths[] = {"/metrics", "/slots", "/v1/status"};
    struct rig r;
    (void)state;
    rig_open(&r, NULL, 0, (struct serve_params){.keys = keys}, 4);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        assert_int_equal(status_of(get(&r, paths[i], &ALICE[19])), 403);
        assert_int_equal(status_of(get(&r, paths[i], &ADMIN[19])), 200);
        assert_int_equal(status_of(get(&r, paths[i], NULL)), 401);
    }
    assert_int_equal(status_of(post_as(&r, "/models/load", ALICE, "{\"model\":\"x\"}")), 403);
    assert_int_equal(status_of(post_as(&r, "/models/unload", ALICE, "{\"model\":\"x\"}")), 403);
    assert_int_not_equal(status_of(post_as(&r, "/models/load", ADMIN, "{\"model\":\"x\"}")), 403);
    assert_int_equal(status_of(get(&r, "/v1/models", &ALICE[19])), 200);
    rig_close(&r);
    rig_open(&r, NULL, 0, (struct serve_params){0}, 4); /* no keys: this machine administers */
    assert_int_equal(status_of(get(&r, "/metrics", NULL)), 200);
    rig_close(&r);
}

/* Readers of the format refuse a second TYPE of a metric, and lines of it that lie apart. */
static void lines_of_a_metric_are_together(void **state) {
    static const char text[] = "# HELP a of one\n# TYPE a gauge\na{m=\"x\"} 1\n"
                               "# TYPE h histogram\nh_bucket{le=\"1\"} 2\nh_sum 3\nh_count 4\n"
                               "b_count 5\nab 6\n"
                               "# HELP a of two\n# TYPE a gauge\na{m=\"y z\"} 7\n"
                               "h_bucket{le=\"1\",m=\"y\"} 8\n# TYPE b_count counter\nb_count 9\n";
    struct buf out;
    (void)state;
    buf_init(&out, 4096);
    assert_int_equal(metrics_group(text, &out), 0);
    assert_string_equal(out.p, "# HELP a of one\n# TYPE a gauge\na{m=\"x\"} 1\na{m=\"y z\"} 7\n"
                               "# TYPE h histogram\nh_bucket{le=\"1\"} 2\nh_sum 3\nh_count 4\n"
                               "h_bucket{le=\"1\",m=\"y\"} 8\n# TYPE b_count counter\nb_count 5\n"
                               "b_count 9\nab 6\n");
    buf_fini(&out);
}

/* A scraper without a key, which gets nothing else; and the names that gateways know. */
static void metrics_may_be_open(void **state) {
    struct rig r;
    (void)state;
    rig_open(
        &r, NULL, 0,
        (struct serve_params){.keys = keys, .metrics_open = true, .metrics_compat = COMPAT_VLLM},
        4);
    const char *text = get(&r, "/metrics", NULL);
    assert_int_equal(status_of(text), 200);
    assert_non_null(strstr(text, "chimere_load{model=\"fake\"} 0\n"));
    assert_non_null(strstr(text, "vllm:num_requests_waiting{model_name=\"fake\"} 0\n"));
    assert_non_null(strstr(text, "vllm:num_requests_running{model_name=\"fake\"} 0\n"));
    assert_non_null(strstr(text, "vllm:kv_cache_usage_perc{model_name=\"fake\"} "));
    /* the rig has 65536 positions, in pages of 64 */
    assert_non_null(strstr(text, "block_size=\"64\",num_gpu_blocks=\"1024\"} 1\n"));
    assert_int_equal(status_of(get(&r, "/v1/status", NULL)), 401);
    assert_int_equal(status_of(get(&r, "/v1/status", &ALICE[19])), 403);
    rig_close(&r);
    rig_open(&r, NULL, 0, (struct serve_params){0}, 4);
    assert_null(strstr(get(&r, "/metrics", NULL), "vllm:"));
    rig_close(&r);
}

/* ---- bodies ---- */

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { IS_MEASURED = 0 }; /* these keep what was freed */
#else
enum { IS_MEASURED = 1 };
#endif

static long rss_kib(void) {
    char line[256];
    long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "VmRSS:", 6) == 0) kib = atol(line + 6);
    if (f) fclose(f);
    return kib;
}

/* {"messages":[HEAD, item, item, ... 1]...} of about n_bytes. */
static char *many(const char *head, const char *item, size_t n_bytes) {
    size_t n = strlen(item), at = strlen(head);
    char *s = malloc(n_bytes + 64);
    memcpy(s, head, at);
    for (; at + n < n_bytes; at += n) memcpy(s + at, item, n);
    strcpy(s + at, "1]}");
    return s;
}

/* A body of 8 MB must not become gigabytes of values, and what it took is given back. */
static void bodies_cost_what_they_may(void **state) {
    static const struct {
        const char *head, *item;
        int status;
    } rows[] = {
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"metadata\":[", "{},", 400},
        {"{\"messages\":[", "[],", 400},
        {"{\"x\":[", "{\"a\":1},", 400},
        {"{\"x\":[", "0,", 400},
        {"{\"messages\":[", "\"\\\"[[[[,,,,\",", 400}, /* openers in strings are none */
    };
    struct rig r;
    (void)state;
    rig_open(&r, NULL, 0, (struct serve_params){0}, 4);
    long before = rss_kib();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *body = many(rows[i].head, rows[i].item, (size_t)8 << 20);
        const char *answer = call(&r, CHAT, body);
        if (status_of(answer) != rows[i].status) fail_msg("row %zu: %.300s", i, answer);
        if (i < 4) assert_non_null(strstr(answer, "too many values"));
        else assert_null(strstr(answer, "too many values"));
        free(body);
    }
    AWAIT(!IS_MEASURED || rss_kib() - before <= 30000);
    assert_true(!IS_MEASURED || rss_kib() - before <= 30000);
    char *large = many("{\"x\":[", "\"0123456789\",", (size_t)17 << 20);
    assert_int_equal(status_of(call(&r, CHAT, large)), 413); /* 16 MiB are the default */
    free(large);
    rig_close(&r);
}

static void all_bodies_together_have_a_budget(void **state) {
    struct rig r;
    (void)state;
    rig_open(&r, NULL, 0, (struct serve_params){.max_bodies_bytes = 3 << 20}, 4);
    int slow[3];
    for (int i = 0; i < 3; i++) { /* each holds nearly a MiB, and waits */
        slow[i] = dial(&r);
        static const char head[] = "POST " CHAT " HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                                   "1000000\r\n\r\n{";
        say(slow[i], head, strlen(head));
    }
    char *body = many(
        "{\"x\":[",
        "\"01234567890123456789012345678901234567890123456789012345678901234567890123456789\",",
        900000);
    const char *answer;
    AWAIT(status_of(answer = call(&r, CHAT, body)) == 503); /* from when all three hold theirs */
    assert_int_equal(status_of(answer), 503);
    assert_non_null(strstr(answer, "Retry-After: 1"));
    assert_int_equal(status_of(get(&r, "/health", NULL)), 200);
    for (int i = 0; i < 3; i++) close(slow[i]);
    AWAIT(status_of(answer = call(&r, CHAT, body)) != 503);
    assert_int_equal(status_of(answer), 400); /* x is no field: it was read */
    free(body);
    rig_close(&r);
}

/* Reading large prompts takes seconds; it leaves workers to those with small ones. */
static void large_prompts_leave_room(void **state) {
    struct rig r;
    enum { N = 8 };
    int fd[N];
    (void)state;
    rig_open(&r, NULL, 0, (struct serve_params){0}, 4);
    size_t n = (size_t)3 << 20;
    char *body = malloc(n + 64);
    snprintf(body, 64, "{\"content\":\"");
    size_t at = strlen(body);
    for (size_t i = at; i < n; i++) body[i] = "ab c,1"[(i * 7 + i / 5) % 6];
    strcpy(body + n, "\"}");
    int64_t start =
        clock_ns(); /* most are tokenized before all are sent where processors are busy */
    for (int i = 0; i < N; i++) {
        fd[i] = dial(&r);
        post(fd[i], "/tokenize", body, strlen(body), NULL);
    }
    int64_t small_start = clock_ns();
    assert_int_equal(status_of(call(&r, CHAT, "{" HI ",\"max_tokens\":1}")), 200);
    double small_ms = clock_ms_since(small_start);
    for (int i = 0; i < N; i++) assert_int_equal(status_of(hear(fd[i])), 200);
    double all_ms = clock_ms_since(start);
    if (small_ms > all_ms / 2) fail_msg("%.0f ms of %.0f", small_ms, all_ms);
    free(body);
    rig_close(&r);
}

/* ---- connections ---- */

/* The server has not closed it; as long as the client has patience, or as things are now. */
static bool is_open(int fd, bool is_now) {
    char byte;
    ssize_t n = recv(fd, &byte, 1, is_now ? MSG_DONTWAIT : 0);
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK));
}

static void one_address_has_limits(void **state) {
    struct rig r;
    int fd[5];
    (void)state;
    rig_open(&r, NULL, 0, (struct serve_params){.max_per_address = 6, .max_half_open = 3}, 4);
    for (int i = 0; i < 5; i++) {
        fd[i] = dial(&r);
        say(fd[i], "POST /v1/chat", 13);
    }
    for (int i = 4; i >= 0; i--) assert_int_equal(is_open(fd[i], i < 3), i < 3);
    for (int i = 0; i < 5; i++) close(fd[i]);
    int status;
    AWAIT((status = status_of(get(&r, "/health", NULL))));
    assert_int_equal(status, 200);
    rig_close(&r);
}

/* Who leaves the queue was cancelled, not failed. */
static void leaving_the_queue_is_cancelling(void **state) {
    static const char body[] = "{" HI ",\"ignore_eos\":true}";
    struct rig r;
    (void)state;
    rig_open(&r, NULL, 2000, (struct serve_params){0}, 1);
    int first = dial(&r), second = dial(&r);
    post(first, CHAT, body, strlen(body), NULL);
    assert_true(wait_active(&r, 1));
    post(second, CHAT, body, strlen(body), NULL);
    wait_waiting(&r, 1);
    close(second);
    const char *answer;
    AWAIT(strstr(answer = get(&r, "/metrics", NULL), "chimere_cancelled_total 1"));
    assert_non_null(strstr(answer, "chimere_cancelled_total 1"));
    assert_non_null(strstr(answer, "outcome=\"failed\"} 0"));
    close(first);
    assert_true(wait_active(&r, 0));
    rig_close(&r);
}

/* ---- framing and names ---- */

static const struct {
    const char *head; /* after the request line */
    int status;
} heads[] = {
    {"Host: localhost\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}", 400},
    {"Host: localhost\r\nContent-Length: 2\r\nContent-Length: 40\r\n\r\n{}", 400},
    {"Host: localhost\r\nContent-Length: 2, 2\r\n\r\n{}", 400},
    {"Host: localhost\r\nContent-Length: +2\r\n\r\n{}", 400},
    {"Host: localhost\r\nContent-Length: 0x2\r\n\r\n{}", 400},
    {"Host: localhost\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
    {"Host: localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n", 400},
    {"Host: localhost\r\nTransfer-Encoding: identity\r\n\r\n", 400},
    {"Host: localhost\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400},
    {"Host: localhost\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
     400},
    {"Host: localhost\r\nContent-Length : 2\r\n\r\n{}", 400},
    {"Host: localhost\r\nTransfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n", 400},
    {"Host: localhost\r\nX Y: 2\r\n\r\n", 400},
    {"Host: localhost\r\nHost: evil.example\r\n\r\n", 400},
    {"Host: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 0}, /* good */
    {"Host: localhost\r\nContent-Length: 2\r\n\r\n{}", 0},
    {"Host: 127.0.0.1:8081\r\nContent-Length: 2\r\n\r\n{}", 0},
    {"Host: [::1]:8081\r\nContent-Length: 2\r\n\r\n{}", 0},
    {"Host: studio.localhost\r\nContent-Length: 2\r\n\r\n{}", 0},
    {"Host: api.example\r\nContent-Length: 2\r\n\r\n{}", 0},         /* by --allowed-host */
    {"Host: a.below.example:443\r\nContent-Length: 2\r\n\r\n{}", 0}, /* by *.below.example */
    {"Host: below.example\r\nContent-Length: 2\r\n\r\n{}", 403},
    {"Host: .below.example\r\nContent-Length: 2\r\n\r\n{}", 403},
    {"Host: abelow.example\r\nContent-Length: 2\r\n\r\n{}", 403},
    {"Host: a.below.example.evil.example\r\nContent-Length: 2\r\n\r\n{}", 403},
    {"Host: evil.example\r\nContent-Length: 2\r\n\r\n{}", 403},
    {"Host: [evil.example]\r\nContent-Length: 2\r\n\r\n{}", 403},
    {"Host: 127.0.0.1.evil.example\r\nContent-Length: 2\r\n\r\n{}", 403},
    {"Host: localhost.evil.example\r\nContent-Length: 2\r\n\r\n{}", 403},
    {"Host: localhost:80@evil.example\r\nContent-Length: 2\r\n\r\n{}", 403},
};

static void requests_have_one_reading(void **state) {
    const char *const hosts[] = {"api.example", "*.below.example"}, *const binds[] = {"127.0.0.1",
                                                                                      "0.0.0.0"};
    (void)state;
    for (int b = 0; b < 2; b++) {
        struct rig r;
        struct serve_params p = {.host = binds[b], .allowed_hosts = hosts, .n_allowed_host = 2};
        rig_open(&r, NULL, 0, p, 4);
        for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
            char text[1024];
            int fd = dial(&r);
            /* what follows a refused request must not be read as a second one */
            bool is_bad = heads[i].status == 400;
            int n = snprintf(text, sizeof text, "POST /detokenize HTTP/1.1\r\n%s%s%s",
                             is_bad ? "" : "Connection: close\r\n", heads[i].head,
                             is_bad ? "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" : "");
            say(fd, text, (size_t)n);
            const char *answer = hear(fd);
            int got = status_of(answer), want = heads[i].status;
            bool good = want ? got == want
                             : got != 403 && !strstr(answer, "expected digits") &&
                                   (got == 0 || strstr(answer, "tokens"));
            if (!good) fail_msg("bind %s, head %zu: %.300s", binds[b], i, answer);
            /* libmicrohttpd writes the head of its own refusals twice */
            for (const char *at = answer; want == 400 && (at = strstr(at, "HTTP/1.1 ")); at += 9)
                assert_int_equal(status_of(at), 400);
        }
        rig_close(&r);
    }
}

/* ---- what pages may read ---- */

/* Every header of a response that is not a browser's own is readable by an allowed page. */
static void pages_may_read_every_header(void **state) {
    static const char *const own[] = {"Date",
                                      "Connection",
                                      "Content-Length",
                                      "Content-Type",
                                      "Vary",
                                      "Access-Control-Allow-Origin",
                                      "Access-Control-Expose-Headers",
                                      "Cache-Control",
                                      "Transfer-Encoding",
                                      "X-Accel-Buffering"};
    const char *const origins[] = {"http://good.example"};
    struct rig r;
    (void)state;
    rig_open(&r, NULL, 0, (struct serve_params){.origins = origins, .n_origin = 1}, 4);
    const char *answer = post_as(&r, CHAT, "Connection: close\r\nOrigin: http://good.example\r\n",
                                 "{" HI ",\"max_tokens\":1}");
    assert_int_equal(status_of(answer), 200);
    const char *list = strstr(answer, "Access-Control-Expose-Headers: ");
    assert_non_null(list);
    char exposed[1024];
    snprintf(exposed, sizeof exposed, "%.*s", (int)strcspn(list, "\r"), list);
    for (const char *at = strstr(answer, "\r\n") + 2; strncmp(at, "\r\n", 2) != 0;
         at = strstr(at, "\r\n") + 2) {
        char name[128];
        bool is_own = false;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, ":"), at);
        for (size_t i = 0; i < sizeof own / sizeof *own; i++) is_own |= !strcmp(own[i], name);
        if (!is_own && !strstr(exposed, name)) fail_msg("%s is not in %s", name, exposed);
    }
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_of_others_leave_no_trace),
        cmocka_unit_test(sharing_is_an_option),
        cmocka_unit_test(administration_needs_the_role),
        cmocka_unit_test(metrics_may_be_open),
        cmocka_unit_test(lines_of_a_metric_are_together),
        cmocka_unit_test(bodies_cost_what_they_may),
        cmocka_unit_test(all_bodies_together_have_a_budget),
        cmocka_unit_test(large_prompts_leave_room),
        cmocka_unit_test(one_address_has_limits),
        cmocka_unit_test(leaving_the_queue_is_cancelling),
        cmocka_unit_test(requests_have_one_reading),
        cmocka_unit_test(pages_may_read_every_header),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}

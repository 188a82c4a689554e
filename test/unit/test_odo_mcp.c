/* MCP client: a server on a pipe (Python) and one over HTTP, good and bad. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "tools/mcp.h"
#include "tools/mcp_serve.h"
#include "tools/mcp_session.h"
#include "tools/tool.h"

#include "await.h"
#include "loopback.h"

static const char program[] =
    "import sys, json, time, os\n"
    "for line in sys.stdin:\n"
    "    m = json.loads(line)\n"
    "    if 'id' not in m or 'method' not in m: continue\n"
    "    r = {}\n"
    "    if m['method'] == 'initialize':\n"
    "        r = {'protocolVersion': '2025-06-18', 'capabilities': {'tools': {}}, 'serverInfo': "
    "{'name': 't', 'version': '1'}}\n"
    "    elif m['method'] == 'tools/list':\n"
    "        print('not json at all'); print(json.dumps({'jsonrpc': '2.0', 'id': 99, 'method': "
    "'roots/list'}))\n"
    "        if 'cursor' not in m.get('params', {}):\n"
    "            r = {'tools': [{'name': 'add', 'description': 'Add.', 'inputSchema': {'type': "
    "'object', 'properties': {'a': {'type': 'integer'}, 'b': {'type': 'integer'}}, 'required': "
    "['a', 'b']}}], 'nextCursor': 'x'}\n"
    "        else:\n"
    "            r = {'tools': [{'name': n, 'inputSchema': {'type': 'object'}} for n in ('hang', "
    "'slow', 'flood', 'fail', 'die', 'env', 'a.b c', 'a_b_c')]}\n"
    "    elif m['method'] == 'tools/call':\n"
    "        n, a = m['params']['name'], m['params']['arguments']\n"
    "        if n == 'add': r = {'content': [{'type': 'text', 'text': str(a['a'] + a['b'])}]}\n"
    "        t = m['params'].get('_meta', {}).get('progressToken')\n"
    "        for i in (1, 2) if t is not None and n in ('slow', 'hang') else (): "
    "print(json.dumps({'jsonrpc': '2.0', 'method': 'notifications/progress', 'params': "
    "{'progressToken': t, 'progress': i, 'total': 2, 'message': 'step'}}), flush=True)\n"
    "        if n == 'slow': r = {'content': [{'type': 'text', 'text': 'slow'}]}\n"
    "        if n == 'hang': time.sleep(60)\n"
    "        if n == 'fail': r = {'content': [{'type': 'text', 'text': 'no luck'}], 'isError': "
    "True}\n"
    "        if n == 'die': sys.exit(1)\n"
    "        if n == 'env': r = {'content': [{'type': 'text', 'text': ' '.join(sorted(os.environ)) "
    "+ "
    "' fds ' + str(len(os.listdir('/proc/self/fd')))}]}\n"
    "        if n == 'flood':\n"
    "            while True: sys.stdout.write('x' * 65536)\n"
    "    print(json.dumps({'jsonrpc': '2.0', 'id': m['id'], 'result': r}), flush=True)\n";

static char path[64];

static int setup(void **state) {
    (void)state;
    snprintf(path, sizeof path, "test_odo_mcp.XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, program, sizeof program - 1) == (ssize_t)sizeof program - 1);
    close(fd);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    return unlink(path);
}

/* A server and its tools. */
struct peer {
    struct mcp *m;
    struct tool_set *s;
};

static const char *const names[] = {"t=CHIMERE_TEST_NAMED", "other=CHIMERE_TEST_SECRET"};

static void peer_open(struct peer *p, const char *spec) {
    struct err e = {0};
    if (mcp_open(&p->m, spec, names, 2, &e) || tool_set_new(&p->s, &e) ||
        mcp_add_tools(p->m, p->s, &e))
        fail_msg("%s", e.text);
}

static void peer_close(struct peer *p) {
    tool_set_free(p->s);
    mcp_close(p->m);
}

static int call(struct tool_set *s, const char *name, const char *args, int64_t ms, char *out,
                size_t size) {
    struct buf b;
    struct tool_env env = {.deadline_ns = clock_ns() + ms * 1000000};
    const struct tool *t = tool_find(s, name);
    assert_non_null(t);
    buf_init(&b, 1 << 20);
    int rc = tool_run(t, args, &env, &b);
    snprintf(out, size, "%s", b.n ? b.p : "");
    buf_fini(&b);
    return rc;
}

static void test_program(void **state) {
    (void)state;
    if (access("/usr/bin/python3", X_OK)) {
        print_message("skip: MCP over a pipe: apt-get install python3\n");
        skip();
    }
    char spec[128], out[512];
    struct peer p;
    snprintf(spec, sizeof spec, "t=/usr/bin/python3 %s", path);
    peer_open(&p, spec);
    assert_int_equal(mcp_n_tool(p.m), 9); /* both pages of the list */
    assert_non_null(tool_find(p.s, "t_add"));
    assert_null(tool_find(p.s, "add"));
    assert_non_null(tool_find(p.s, "t_a_b_c")); /* "a.b c", and not a second time as "a_b_c" */
    assert_string_equal(tool_find(p.s, "t_add")->server, "t");
    assert_int_equal(call(p.s, "t_add", "{\"a\": 20, \"b\": 22}", 60000, out, sizeof out), 0);
    assert_string_equal(out, "42");
    assert_int_equal(call(p.s, "t_add", "{\"a\": 20}", 60000, out, sizeof out),
                     CHIMERE_EINVAL); /* checked before */
    assert_int_equal(call(p.s, "t_fail", "{}", 60000, out, sizeof out), CHIMERE_EINVAL);
    assert_non_null(strstr(out, "no luck"));
    struct tool_env tainted = {.tainted = true};
    assert_false(tool_allowed(tool_find(p.s, "t_add"), &tainted, NULL));
    assert_int_equal(call(p.s, "t_flood", "{}", 60000, out, sizeof out), CHIMERE_ELIMIT);
    assert_int_equal(call(p.s, "t_add", "{\"a\": 1, \"b\": 1}", 60000, out, sizeof out),
                     CHIMERE_EIO); /* given up */
    peer_close(&p);
    /* one that hangs keeps its deadline; one that dies says so */
    peer_open(&p, spec);
    int64_t start = clock_ns();
    assert_int_equal(call(p.s, "t_hang", "{}", 200, out, sizeof out), CHIMERE_ETIMEOUT);
    assert_true(clock_ms_since(start) < 30000);
    peer_close(&p);
    peer_open(&p, spec);
    assert_int_equal(call(p.s, "t_die", "{}", 60000, out, sizeof out), CHIMERE_EIO);
    peer_close(&p);
}

static void keep_progress(void *ud, const char *text, size_t n) { buf_put(ud, text, n); }

/* What a server reports of a call while it runs reaches whoever waits. */
static void test_progress(void **state) {
    (void)state;
    char spec[128];
    struct peer p;
    struct buf seen, out;
    if (access("/usr/bin/python3", X_OK)) skip();
    snprintf(spec, sizeof spec, "t=/usr/bin/python3 %s", path);
    peer_open(&p, spec);
    buf_init(&seen, 1 << 16);
    buf_init(&out, 1 << 16);
    struct tool_env env = {
        .deadline_ns = clock_ns() + (int64_t)60e9, .progress = keep_progress, .ud = &seen};
    assert_int_equal(tool_run(tool_find(p.s, "t_slow"), "{}", &env, &out), 0);
    assert_string_equal(out.p, "slow");
    assert_string_equal(seen.p, "1 / 2 step\n2 / 2 step\n");
    buf_fini(&seen);
    buf_fini(&out);
    peer_close(&p);
}

/* A server gets six variables, and what is named for it; no descriptors but its streams. */
static void test_environment(void **state) {
    (void)state;
    char spec[128], out[1024];
    struct peer p;
    if (access("/usr/bin/python3", X_OK)) skip();
    setenv("CHIMERE_TEST_SECRET", "x", 1), setenv("CHIMERE_TEST_NAMED", "y", 1);
    setenv("SHELL", "/bin/sh", 1), setenv("TERM", "dumb", 1), setenv("USER", "u", 1);
    setenv("LOGNAME", "u", 1), setenv("HOME", "/", 1);
    int leak = dup(0); /* without CLOEXEC */
    snprintf(spec, sizeof spec, "t=/usr/bin/python3 %s", path);
    peer_open(&p, spec);
    assert_int_equal(call(p.s, "t_env", "{}", 60000, out, sizeof out), 0);
    peer_close(&p);
    close(leak);
    char *fds = strstr(out, " fds ");
    assert_non_null(fds);
    assert_string_equal(fds, " fds 4"); /* and the one that lists them */
    *fds = 0;
    char *locale = strstr(out, "LC_CTYPE "); /* Python's own */
    if (locale) memmove(locale, locale + 9, strlen(locale + 9) + 1);
    assert_string_equal(out, "CHIMERE_TEST_NAMED HOME LOGNAME PATH SHELL TERM USER");
}

/* One that has died is started again, but not at once, and later each time. */
static void test_restart(void **state) {
    (void)state;
    char spec[128], out[512];
    struct peer p;
    if (access("/usr/bin/python3", X_OK)) skip();
    snprintf(spec, sizeof spec, "t=/usr/bin/python3 %s", path);
    peer_open(&p, spec);
    for (int round = 0; round < 2; ++round) {
        int64_t start = clock_ns();
        assert_int_equal(call(p.s, "t_die", "{}", 60000, out, sizeof out), CHIMERE_EIO);
        assert_int_equal(call(p.s, "t_add", "{\"a\": 1, \"b\": 1}", 60000, out, sizeof out),
                         CHIMERE_EIO);
        assert_non_null(strstr(out, round ? "again in 2 s" : "again in 1 s"));
        int rc;
        while ((rc = call(p.s, "t_add", "{\"a\": 1, \"b\": 1}", 60000, out, sizeof out)) &&
               clock_ms_since(start) < AWAIT_MS)
            usleep(50000);
        if (rc) fail_msg("%s", out);
        assert_string_equal(out, "2");
        assert_true(clock_ms_since(start) >= 1000 * (round + 1));
    }
    /* one that hangs is given up after two calls */
    assert_int_equal(call(p.s, "t_hang", "{}", 100, out, sizeof out), CHIMERE_ETIMEOUT);
    assert_int_equal(call(p.s, "t_hang", "{}", 100, out, sizeof out), CHIMERE_ETIMEOUT);
    assert_int_equal(call(p.s, "t_hang", "{}", 100, out, sizeof out), CHIMERE_EIO);
    peer_close(&p);
}

struct other {
    struct tool_set *s;
    _Atomic bool hangs, is_over;
    int rc;
};

static void see_hanging(void *ud, const char *text, size_t n) {
    (void)text, (void)n;
    ((struct other *)ud)->hangs = true;
}

static void *hang(void *ud) {
    struct other *o = ud;
    struct buf b;
    struct tool_env env = {.deadline_ns = clock_ns() + (int64_t)60000000000,
                           .cancelled = &o->is_over,
                           .progress = see_hanging,
                           .ud = o};
    buf_init(&b, 1 << 16);
    o->rc = tool_run(tool_find(o->s, "t_hang"), "{}", &env, &b);
    buf_fini(&b);
    return NULL;
}

/* Who waits for another's call keeps the own deadline, and can be cancelled. */
static void test_waiting(void **state) {
    (void)state;
    char spec[128], out[512];
    struct peer p;
    pthread_t t;
    if (access("/usr/bin/python3", X_OK)) skip();
    snprintf(spec, sizeof spec, "t=/usr/bin/python3 %s", path);
    peer_open(&p, spec);
    struct other o = {.s = p.s};
    assert_int_equal(pthread_create(&t, NULL, hang, &o), 0);
    AWAIT(o.hangs);
    assert_true(o.hangs);
    int64_t start = clock_ns();
    assert_int_equal(call(p.s, "t_add", "{\"a\": 1, \"b\": 1}", 200, out, sizeof out),
                     CHIMERE_ETIMEOUT);
    assert_non_null(strstr(out, "busy with other calls"));
    _Atomic bool cancelled = true;
    struct tool_env env = {.deadline_ns = clock_ns() + (int64_t)60000000000,
                           .cancelled = &cancelled};
    struct buf b;
    buf_init(&b, 1 << 16);
    assert_int_equal(tool_run(tool_find(p.s, "t_add"), "{\"a\": 1, \"b\": 1}", &env, &b),
                     CHIMERE_ECANCELLED);
    buf_fini(&b);
    assert_true(clock_ms_since(start) < 30000);
    o.is_over = true;
    pthread_join(t, NULL);
    assert_int_equal(o.rc, CHIMERE_ECANCELLED);
    peer_close(&p);
}

static void test_refused(void **state) {
    (void)state;
    struct mcp *m;
    static const char *const bad[] = {
        "", "x", "=y", "A b=y", "x=", "x=/nonexistent/program", "x=/bin/true"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i)
        assert_int_not_equal(mcp_open(&m, bad[i], NULL, 0, NULL), 0);
}

/* Streamable HTTP: the list comes as an event stream, the call as plain JSON. */
static void handle(struct loopback *l, int fd, const char *where, const char *request) {
    (void)l, (void)where;
    const char *body = strstr(request, "\r\n\r\n"), *id = body ? strstr(body, "\"id\":") : NULL;
    char text[1024];
    int n = id ? atoi(id + 5) : -1;
    if (strstr(body, "notifications/")) loopback_reply(fd, "202 Accepted", "application/json", "");
    else if (strstr(body, "\"initialize\"")) {
        snprintf(text, sizeof text,
                 "{\"jsonrpc\":\"2.0\",\"id\":%d,\"result\":{\"protocolVersion\":\"2025-06-18\"}}",
                 n);
        loopback_reply(fd, "200 OK", "application/json", text);
    } else if (strstr(body, "tools/list")) {
        snprintf(text, sizeof text,
                 ": hello\n\nevent: message\ndata: "
                 "{\"jsonrpc\":\"2.0\",\"id\":%d,\"result\":{\"tools\":[{\"name\":\"hi\","
                 "\"inputSchema\":{\"type\":\"object\"}}]}}\n\n",
                 n);
        loopback_reply(fd, "200 OK", "text/event-stream", text);
    } else {
        snprintf(text, sizeof text,
                 "{\"jsonrpc\":\"2.0\",\"id\":%d,\"result\":{\"content\":[{\"type\":\"text\","
                 "\"text\":\"hello\"}]}}",
                 n);
        loopback_reply(fd, "200 OK", "application/json", text);
    }
}

static void test_http(void **state) {
    (void)state;
    struct loopback l;
    struct peer p;
    char spec[64], out[100];
    loopback_open(&l, handle);
    snprintf(spec, sizeof spec, "web=http://127.0.0.1:%d/mcp", l.port);
    peer_open(&p, spec);
    assert_int_equal(call(p.s, "web_hi", "{}", 60000, out, sizeof out), 0);
    assert_string_equal(out, "hello");
    peer_close(&p);
    loopback_close(&l);
}

/* A server that keeps sessions: each message but the first must name the one it gave, and the version that was agreed
 * on; after two calls it forgets it once. */
static int n_session, n_call_of_session, n_ended;

static bool has_header(const char *request, const char *line) {
    const char *end = strstr(request, "\r\n\r\n"), *at = strcasestr(request, line);
    return at && at < end;
}

static void handle_sessions(struct loopback *l, int fd, const char *where, const char *request) {
    (void)l, (void)where;
    const char *body = strstr(request, "\r\n\r\n"), *id = strstr(body, "\"id\":");
    char text[1024], head[160], session[64];
    int n = id ? atoi(id + 5) : -1;
    snprintf(session, sizeof session, "Mcp-Session-Id: s%d\r\n", n_session);
    if (strstr(body, "\"initialize\"")) {
        assert_false(has_header(request, "Mcp-Session-Id:"));
        snprintf(head, sizeof head, "application/json\r\nMcp-Session-Id: s%d", ++n_session);
        snprintf(text, sizeof text,
                 "{\"jsonrpc\":\"2.0\",\"id\":%d,\"result\":{\"protocolVersion\":\"2025-03-26\"}}",
                 n);
        n_call_of_session = 0;
        loopback_reply(fd, "200 OK", head, text);
        return;
    }
    if (!has_header(request, session) ||
        !has_header(request, "MCP-Protocol-Version: 2025-03-26\r\n")) {
        loopback_reply(fd, "400 Bad Request", "text/plain", "no session");
    } else if (!strncmp(request, "DELETE", 6)) {
        ++n_ended;
        loopback_reply(fd, "200 OK", "application/json", "");
    } else if (strstr(body, "notifications/")) {
        loopback_reply(fd, "202 Accepted", "application/json", "");
    } else if (strstr(body, "tools/list")) {
        snprintf(text, sizeof text,
                 "{\"jsonrpc\":\"2.0\",\"id\":%d,\"result\":{\"tools\":[{\"name\":\"hi\","
                 "\"inputSchema\":{\"type\":\"object\"}}]}}",
                 n);
        loopback_reply(fd, "200 OK", "application/json", text);
    } else if (n_session == 1 && ++n_call_of_session > 2) {
        loopback_reply(fd, "404 Not Found", "text/plain", "who are you?");
    } else {
        snprintf(text, sizeof text,
                 "{\"jsonrpc\":\"2.0\",\"id\":%d,\"result\":{\"content\":[{\"type\":\"text\","
                 "\"text\":\"session %d\"}]}}",
                 n, n_session);
        loopback_reply(fd, "200 OK", "application/json", text);
    }
}

static void test_sessions(void **state) {
    (void)state;
    struct loopback l;
    struct peer p;
    char spec[64], out[100];
    loopback_open(&l, handle_sessions);
    snprintf(spec, sizeof spec, "web=http://127.0.0.1:%d/mcp", l.port);
    peer_open(&p, spec);
    static const char *const want[] = {"session 1", "session 1", "session 2", "session 2"};
    for (int i = 0; i < 4; ++i) {
        assert_int_equal(call(p.s, "web_hi", "{}", 60000, out, sizeof out), 0);
        assert_string_equal(out, want[i]);
    }
    peer_close(&p);
    assert_int_equal(n_ended, 1);
    loopback_close(&l);
}

/* ---- ourselves as a server: messages ---- */

static void answers(struct tool_set *tools, const char *message, const char *want) {
    json_t *m = json_loads(message, 0, NULL);
    json_t *r = mcp_answer(tools, m, &(struct tool_env){0});
    char *text = r ? json_dumps(r, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    if (!want != !text || (want && !strstr(text, want)))
        fail_msg("%s: expected %s, got %s", message, want ? want : "nothing",
                 text ? text : "nothing");
    free(text);
    json_decref(r);
    json_decref(m);
}

static void test_answers(void **state) {
    (void)state;
    struct tool_set *s;
    assert_int_equal(tool_set_new(&s, NULL), 0);
#define CALL(id, method, params) "{\"jsonrpc\":\"2.0\"," id "\"method\":\"" method "\"" params "}"
    answers(s, CALL("\"id\":1,", "initialize", ",\"params\":{\"protocolVersion\":\"2025-03-26\"}"),
            "\"protocolVersion\":\"2025-03-26\"");
    answers(s, CALL("\"id\":1,", "initialize", ",\"params\":{\"protocolVersion\":\"1999\"}"),
            "\"protocolVersion\":\"2025-06-18\"");
    answers(s, CALL("\"id\":\"a\",", "ping", ""), "\"id\":\"a\"");
    answers(s, CALL("", "notifications/initialized", ""), NULL);
    answers(s, CALL("\"id\":1,", "tools/list", ""), "\"name\":\"calculator\"");
    answers(s,
            CALL("\"id\":1,", "tools/call",
                 ",\"params\":{\"name\":\"calculator\",\"arguments\":{\"expression\":\"6*7\"}}"),
            "6*7 = 42");
    answers(s,
            CALL("\"id\":1,", "tools/call",
                 ",\"params\":{\"name\":\"calculator\",\"arguments\":{\"expression\":7}}"),
            "\"isError\":true");
    answers(s, CALL("\"id\":1,", "tools/call", ",\"params\":{\"name\":\"rm\"}"), "-32602");
    answers(s, CALL("\"id\":1,", "tools/call", ",\"params\":[]"), "-32602");
    answers(s, CALL("\"id\":1,", "resources/list", ""), "-32601");
    answers(s, "{}", NULL);
    answers(s, "{\"id\":1,\"method\":7}", NULL);
    tool_set_free(s);
    /* sessions belong to whom they were given */
    struct mcp_sessions *all;
    char id[MCP_SESSION_BYTES], other[MCP_SESSION_BYTES];
    assert_int_equal(mcp_sessions_new(&all, NULL), 0);
    assert_int_equal(mcp_session_open(all, "anna", id, NULL), 0);
    assert_true(mcp_session_use(all, id, "anna"));
    assert_false(mcp_session_use(all, id, "bert"));
    assert_false(mcp_session_end(all, id, "bert"));
    assert_false(mcp_session_use(all, "", "anna"));
    assert_false(mcp_session_use(all, NULL, "anna"));
    for (int i = 0; i < MCP_MAX_SESSIONS - 1; ++i)
        assert_int_equal(mcp_session_open(all, "bert", other, NULL), 0);
    assert_true(mcp_session_use(all, id, "anna"));
    assert_int_equal(mcp_session_open(all, "bert", other, NULL), 0); /* one goes, not the newest */
    assert_true(mcp_session_use(all, other, "bert"));
    assert_true(mcp_session_end(all, id, "anna"));
    assert_false(mcp_session_use(all, id, "anna"));
    mcp_sessions_free(all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_program),     cmocka_unit_test(test_progress),
        cmocka_unit_test(test_environment), cmocka_unit_test(test_restart),
        cmocka_unit_test(test_waiting),     cmocka_unit_test(test_refused),
        cmocka_unit_test(test_http),        cmocka_unit_test(test_sessions),
        cmocka_unit_test(test_answers),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

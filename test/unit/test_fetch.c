/* test_fetch.c: the HTTP client against a server that is honest, slow, lying or endless by turns
 * (test/net/standin.mjs, which also says what the right bytes hash to). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "net/address.h"
#include "net/download.h"
#include "net/fetch.h"
#include "net/sse.h"

static struct {
    pid_t pid;
    int in; /* its end is the server's end */
    int port, tls_port;
    char dir[256];
} server;

static int begin(void **s) {
    (void)s;
    int in[2], out[2];
    assert_int_equal(pipe(in), 0);
    assert_int_equal(pipe(out), 0);
    server.pid = fork();
    if (!server.pid) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        for (int fd = 3; fd < 64; fd++) close(fd);
        execlp("node", "node", TEST_DATA "/../net/standin.mjs", (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    server.in = in[1];
    char line[32] = "";
    ssize_t n = read(out[0], line, sizeof line - 1);
    close(out[0]);
    if (n <= 0) {
        printf("skip: fetch tests: node does not run; script/setup --test installs it\n");
        exit(0);
    }
    char *rest;
    server.port = (int)strtol(line, &rest, 10);
    server.tls_port = (int)strtol(rest, NULL, 10);
    snprintf(server.dir, sizeof server.dir, "%s/chimere-fetch-XXXXXX", P_tmpdir);
    assert_non_null(mkdtemp(server.dir));
    return 0;
}

static int end(void **s) {
    (void)s;
    close(server.in);
    waitpid(server.pid, NULL, 0);
    rmdir(server.dir); /* every test leaves it empty */
    return 0;
}

static const char *url(const char *path) {
    static char out[4][512];
    static int turn;
    char *p = out[turn++ % 4];
    snprintf(p, sizeof out[0], "http://127.0.0.1:%d%s", server.port, path);
    return p;
}

/* The status, or a negative code; the body, if any, in `text`. */
static int request(struct fetch_request r, char *text, size_t size, struct err *e) {
    struct fetch_reply reply;
    int rc = fetch(&r, &reply, e);
    if (text) snprintf(text, size, "%s", reply.body.n ? reply.body.p : "");
    int32_t status = reply.status;
    fetch_reply_fini(&reply);
    return rc ? rc : status;
}

static int get(const char *path, char *text, size_t size, struct err *e) {
    return request((struct fetch_request){.url = url(path)}, text, size, e);
}

static uint64_t hash_of(const char *p, size_t n) {
    uint64_t h = 1469598103934665603ULL;
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)p[i]) * 1099511628211ULL;
    return h;
}

static char *pattern(size_t n) {
    char *p = malloc(n);
    for (size_t i = 0; i < n; i++) p[i] = (char)(i * 7 + (i >> 8) * 13);
    return p;
}

/* ---- requests ---- */

static void a_body_and_its_headers_arrive(void **s) {
    (void)s;
    struct err e = {0};
    char text[4096];
    static const char *const heads[] = {"X-One: 1", "Content-Type: text/plain", NULL};
    struct fetch_request r = {
        .url = url("/echo?q=1"), .body = "a\0b", .n_body = 3, .headers = heads, .bearer = "sesame"};
    assert_int_equal(request(r, text, sizeof text, &e), 200);
    assert_non_null(strstr(text, "\"method\":\"POST\""));
    assert_non_null(strstr(text, "\"x-one\":\"1\""));
    assert_non_null(strstr(text, "\"authorization\":\"Bearer sesame\""));
    assert_non_null(strstr(text, "\"body\":\"a\\u0000b\""));
    struct fetch_reply reply;
    r = (struct fetch_request){.url = url("/echo")};
    assert_int_equal(fetch(&r, &reply, &e), 0);
    assert_string_equal(reply.type, "application/json");
    fetch_reply_fini(&reply);
}

static void a_range_is_asked_for_and_told(void **s) {
    (void)s;
    struct err e = {0};
    struct fetch_reply reply;
    struct fetch_request r = {.url = url("/bytes/5000"), .from = 1000, .n_range = 500};
    assert_int_equal(fetch(&r, &reply, &e), 0);
    assert_int_equal(reply.status, 206);
    assert_int_equal(reply.from, 1000);
    assert_int_equal(reply.length, 5000);
    char *want = pattern(5000);
    assert_int_equal(reply.body.n, 500);
    assert_memory_equal(reply.body.p, want + 1000, 500);
    free(want);
    fetch_reply_fini(&reply);
}

static void statuses_become_errors_that_quote_the_server(void **s) {
    (void)s;
    static const int want[][2] = {{404, CHIMERE_ENOENT},
                                  {401, CHIMERE_EREFUSED},
                                  {429, CHIMERE_EBUSY},
                                  {500, CHIMERE_EIO},
                                  {400, CHIMERE_EINVAL}};
    for (size_t i = 0; i < 5; i++) {
        struct err e = {0};
        struct fetch_reply reply;
        char path[64], says[64];
        snprintf(path, sizeof path, "/status/%d?token=hidden", want[i][0]);
        snprintf(says, sizeof says, "told you %d", want[i][0]);
        struct fetch_request r = {.url = url(path)};
        assert_int_equal(fetch_ok(&r, &reply, &e), want[i][1]);
        assert_non_null(strstr(e.text, says));
        assert_null(strstr(e.text, "hidden"));
        assert_int_equal(reply.retry_after_s, 7);
        fetch_reply_fini(&reply);
    }
}

static void redirects_are_followed_so_far(void **s) {
    (void)s;
    struct err e = {0};
    char text[2048];
    assert_int_equal(get("/hop/3", text, sizeof text, &e), 200);
    assert_non_null(strstr(text, "\"url\":\"/echo\""));
    assert_int_equal(get("/hop/5", NULL, 0, &e), CHIMERE_EREFUSED);
    assert_int_equal(get("/loop", NULL, 0, &e), CHIMERE_EREFUSED);
    struct fetch_request r = {.url = url("/hop/0"), .max_redirects = -1};
    assert_int_equal(request(r, NULL, 0, &e), 302);
    assert_int_equal(get("/away?to=file%3A%2F%2F%2Fetc%2Fpasswd", NULL, 0, &e), CHIMERE_EREFUSED);
}

static void a_secret_stays_with_the_first_host(void **s) {
    (void)s;
    struct err e = {0};
    char text[2048], path[128];
    snprintf(path, sizeof path, "/away?to=http%%3A%%2F%%2Flocalhost%%3A%d%%2Fecho", server.port);
    struct fetch_request r = {.url = url(path), .bearer = "sesame"};
    assert_int_equal(request(r, text, sizeof text, &e), 200);
    assert_non_null(strstr(text, "\"host\":\"localhost"));
    assert_null(strstr(text, "sesame"));
}

static void addresses_without_sense_are_refused(void **s) {
    (void)s;
    static const char *const bad[] = {"",
                                      "nonsense",
                                      "file:///etc/passwd",
                                      "ftp://example.org/",
                                      "http://user:secret@127.0.0.1/",
                                      "http://[::1",
                                      "http://a b/"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct err e = {0};
        int rc = request((struct fetch_request){.url = bad[i]}, NULL, 0, &e);
        assert_true(rc == CHIMERE_EINVAL || rc == CHIMERE_EREFUSED || rc == CHIMERE_EIO);
        assert_null(strstr(e.text, "secret"));
    }
    char *longest = malloc(FETCH_MAX_URL_BYTES + 100);
    memset(longest, 'a', FETCH_MAX_URL_BYTES + 99);
    memcpy(longest, "http://", 7);
    longest[FETCH_MAX_URL_BYTES + 99] = 0;
    struct err e = {0};
    assert_int_equal(request((struct fetch_request){.url = longest}, NULL, 0, &e), CHIMERE_EINVAL);
    free(longest);
    static const char *const split[] = {"A: b\r\nHost: other", NULL};
    assert_int_equal(
        request((struct fetch_request){.url = url("/echo"), .headers = split}, NULL, 0, &e),
        CHIMERE_EINVAL);
}

static void a_certificate_must_be_vouched_for(void **s) {
    (void)s;
    struct err e = {0};
    char to[64];
    snprintf(to, sizeof to, "https://127.0.0.1:%d/echo", server.tls_port);
    struct fetch_request r = {.url = to, .bearer = "sesame"};
    assert_int_equal(request(r, NULL, 0, &e), CHIMERE_EREFUSED);
    snprintf(to, sizeof to, "https://127.0.0.1:%d/echo", server.port); /* speaks no TLS at all */
    assert_int_equal(request(r, NULL, 0, &e), CHIMERE_EIO);
}

/* What goes to this machine alone needs no certificate, and goes nowhere else. */
static void this_machine_needs_no_certificate(void **s) {
    (void)s;
    struct err e = {0};
    char to[64];
    snprintf(to, sizeof to, "https://127.0.0.1:%d/echo", server.tls_port);
    setenv("https_proxy", "http://127.0.0.1:1", 1);
    assert_int_equal(request((struct fetch_request){.url = to, .local_only = true}, NULL, 0, &e),
                     200);
    unsetenv("https_proxy");
    for (const char *const *other =
             (const char *const[]){"http://192.0.2.1/", "http://[2001:db8::1]/", NULL};
         *other; other++) {
        struct fetch_request r = {.url = *other, .local_only = true};
        assert_int_equal(request(r, NULL, 0, &e), CHIMERE_EREFUSED);
        assert_non_null(strstr(e.text, "another machine"));
    }
}

/* ---- ceilings and deadlines ---- */

static void endless_bytes_end(void **s) {
    (void)s;
    struct err e = {0};
    struct fetch_request r = {.url = url("/endless/200"), .max_bytes = 1 << 20};
    assert_int_equal(request(r, NULL, 0, &e), CHIMERE_ELIMIT);
    assert_non_null(strstr(e.text, "1048576"));
    assert_int_equal(get("/endless/500", NULL, 0, &e), 500);
    assert_int_equal(get("/heads", NULL, 0, &e), CHIMERE_ELIMIT);
}

static void slowness_ends(void **s) {
    (void)s;
    struct err e = {0};
    int64_t start = clock_ns();
    struct fetch_request r = {.url = url("/drip"), .total_ms = 300};
    assert_int_equal(request(r, NULL, 0, &e), CHIMERE_ETIMEOUT);
    r = (struct fetch_request){.url = url("/drip"), .stall_ms = 300, .min_bytes = 100};
    assert_int_equal(request(r, NULL, 0, &e), CHIMERE_ETIMEOUT);
    r = (struct fetch_request){.url = url("/silent"), .stall_ms = 300};
    assert_int_equal(request(r, NULL, 0, &e), CHIMERE_ETIMEOUT);
    assert_true(clock_ms_since(start) < 30000); /* the other side never ends */
}

static bool after_200_ms(void *ud) { return clock_ms_since(*(int64_t *)ud) > 200; }
static int swallow(void *ud, const char *p, size_t n) {
    (void)ud, (void)p, (void)n;
    return 0;
}
static int refuse(void *ud, const char *p, size_t n) {
    (void)ud, (void)p, (void)n;
    return CHIMERE_EBUSY;
}

static void a_transfer_can_be_cancelled(void **s) {
    (void)s;
    struct err e = {0};
    int64_t start = clock_ns();
    struct fetch_request r = {.url = url("/silent"), .is_cancelled = after_200_ms, .ud = &start};
    assert_int_equal(request(r, NULL, 0, &e), CHIMERE_ECANCELLED);
    assert_true(clock_ms_since(start) < 30000); /* it would never end */
    start = clock_ns();
    r = (struct fetch_request){.url = url("/endless/200"),
                               .max_bytes = UINT64_MAX,
                               .on_body = swallow,
                               .is_cancelled = after_200_ms,
                               .ud = &start};
    assert_int_equal(request(r, NULL, 0, &e), CHIMERE_ECANCELLED);
    r = (struct fetch_request){.url = url("/bytes/10"), .on_body = refuse};
    assert_int_equal(request(r, NULL, 0, &e), CHIMERE_EBUSY);
}

/* ---- private addresses ---- */

static void private_addresses_are_refused_where_asked(void **s) {
    (void)s;
    struct err e = {0};
    char byname[64], mapped[64];
    snprintf(byname, sizeof byname, "http://localhost:%d/echo", server.port);
    snprintf(mapped, sizeof mapped, "http://[::ffff:127.0.0.1]:%d/echo", server.port);
    const char *const to[] = {url("/echo"), byname, mapped};
    for (size_t i = 0; i < 3; i++) {
        struct fetch_request r = {.url = to[i], .public_only = true};
        assert_int_equal(request(r, NULL, 0, &e), CHIMERE_EREFUSED);
        assert_non_null(strstr(e.text, "private"));
        r.public_only = false;
        assert_int_equal(request(r, NULL, 0, &e), 200);
    }
}

static bool is_public(const char *text) {
    struct sockaddr_in six4 = {.sin_family = AF_INET};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    if (inet_pton(AF_INET, text, &six4.sin_addr) == 1)
        return address_is_public((struct sockaddr *)&six4, sizeof six4);
    assert_int_equal(inet_pton(AF_INET6, text, &six.sin6_addr), 1);
    return address_is_public((struct sockaddr *)&six, sizeof six);
}

/* The edges of each block, as its registry states them. */
static void reserved_blocks_are_known_to_the_edge(void **s) {
    (void)s;
    static const char *const yes[] = {
        "1.1.1.1",         "9.255.255.255",   "11.0.0.0",         "100.63.255.255",
        "100.128.0.0",     "126.255.255.255", "128.0.0.0",        "169.253.255.255",
        "172.15.255.255",  "172.32.0.0",      "192.167.255.255",  "192.169.0.0",
        "198.17.255.255",  "198.20.0.0",      "223.255.255.255",  "2606:4700::1111",
        "2001:4860::8888", "::ffff:8.8.8.8",  "64:ff9b::8.8.8.8", "2002:808:808::1"};
    static const char *const no[] = {"0.0.0.0",
                                     "10.0.0.1",
                                     "10.255.255.255",
                                     "100.64.0.1",
                                     "100.127.255.255",
                                     "127.0.0.1",
                                     "127.255.255.255",
                                     "169.254.169.254",
                                     "172.16.0.1",
                                     "172.31.255.255",
                                     "192.0.0.1",
                                     "192.0.2.1",
                                     "192.168.0.1",
                                     "198.18.0.1",
                                     "198.19.255.255",
                                     "198.51.100.7",
                                     "203.0.113.7",
                                     "224.0.0.1",
                                     "240.0.0.1",
                                     "255.255.255.255",
                                     "::",
                                     "::1",
                                     "::ffff:127.0.0.1",
                                     "::ffff:10.0.0.1",
                                     "64:ff9b::a00:1",
                                     "2002:7f00:1::",
                                     "fc00::1",
                                     "fdff::1",
                                     "fe80::1",
                                     "fec0::1",
                                     "ff02::1",
                                     "2001:db8::1",
                                     "2001::1",
                                     "3fff::1",
                                     "100::1",
                                     "::127.0.0.1",
                                     "4000::1"};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        if (!is_public(yes[i])) fail_msg("%s is public", yes[i]);
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        if (is_public(no[i])) fail_msg("%s is not public", no[i]);
}

/* ---- files ---- */

struct want {
    char path[400], sha[128];
    uint64_t n_seen, stop_at;
};

static bool stop_there(void *ud) {
    struct want *w = ud;
    return w->stop_at && w->n_seen >= w->stop_at;
}
static void see(void *ud, uint64_t n) { ((struct want *)ud)->n_seen = n; }

static int download(struct want *w, const char *path, uint64_t n, bool with_sha, struct err *e) {
    char ask_sha[64];
    snprintf(w->path, sizeof w->path, "%s/file", server.dir);
    snprintf(ask_sha, sizeof ask_sha, "/sha/%llu", (unsigned long long)n);
    if (!w->sha[0]) assert_int_equal(get(ask_sha, w->sha, sizeof w->sha, e), 200);
    const struct download d = {.url = url(path),
                               .path = w->path,
                               .sha256 = with_sha ? w->sha : NULL,
                               .length = n,
                               .n_part = 4,
                               .n_try = 4,
                               .wait_ms = 10,
                               .on_bytes = see,
                               .is_cancelled = stop_there,
                               .ud = w};
    return download_file(&d, e);
}

static bool exists(const struct want *w, const char *suffix) {
    char path[512];
    snprintf(path, sizeof path, "%s%s", w->path, suffix);
    return file_exists(path);
}

/* The file holds the n right bytes, nothing lies beside it; then it is removed. */
static void assert_whole(const struct want *w, size_t n) {
    struct err e = {0};
    char *got, *want = pattern(n);
    size_t n_got;
    assert_int_equal(file_read(w->path, n + 1, &got, &n_got, &e), 0);
    assert_int_equal(n_got, n);
    assert_true(hash_of(got, n) == hash_of(want, n) && memcmp(got, want, n) == 0);
    assert_false(exists(w, ".part"));
    assert_false(exists(w, ".state"));
    free(want);
    mem_free(got);
    unlink(w->path);
}

static void files_arrive_whole(void **s) {
    (void)s;
    static const struct {
        const char *path;
        uint64_t n;
    } cases[] = {{"/bytes/20000000", 20000000}, /* four parts */
                 {"/bytes/1", 1},
                 {"/norange/20000000", 20000000},
                 {"/cut/500000", 500000}, /* several tries, each from where the last one ended */
                 {"/cut/9000000", 9000000},
                 {"/flaky/70000", 70000}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct want w = {0};
        struct err e = {0};
        if (download(&w, cases[i].path, cases[i].n, true, &e))
            fail_msg("%s: %s", cases[i].path, e.text);
        assert_int_equal(w.n_seen, cases[i].n);
        assert_whole(&w, cases[i].n);
    }
    struct want w = {0};
    struct err e = {0};
    assert_int_equal(download(&w, "/bytes/3000", 3000, false, &e), 0);
    assert_whole(&w, 3000);
}

static void a_cancelled_file_goes_on_where_it_stopped(void **s) {
    (void)s;
    struct want w = {.stop_at = 6000000};
    struct err e = {0};
    assert_int_equal(download(&w, "/slow/16000000", 16000000, true, &e), CHIMERE_ECANCELLED);
    assert_true(exists(&w, ".part") && exists(&w, ".state") && !exists(&w, ""));
    uint64_t had = w.n_seen;
    assert_true(had >= 6000000 && had < 16000000);
    w.stop_at = 0;
    w.n_seen = 0;
    struct want again = w;
    again.stop_at = 1; /* stops at its first look: what it has then is what was there before */
    assert_int_equal(download(&again, "/slow/16000000", 16000000, true, &e), CHIMERE_ECANCELLED);
    assert_true(again.n_seen >= had && again.n_seen < had + 2000000);
    assert_int_equal(download(&w, "/bytes/16000000", 16000000, true, &e), 0);
    assert_whole(&w, 16000000);
}

/* A state file that does not tile the file, or is of another one, counts for nothing. */
static void a_spoilt_state_begins_anew(void **s) {
    (void)s;
    /* what stands before and after the checksum; without an "after" there is none */
    static const char *const states[][2] = {{""},
                                            {"chimere-download 1\n"},
                                            {"chimere-download 1\n9 x\n0 9\n"},
                                            {"chimere-download 1\n9000 ", "\n0 99999999999\n"},
                                            {"chimere-download 1\n9000 ", "\n5 4\n4 9000\n"},
                                            {"chimere-download 1\n9000 ", "\n9000 9000\ntrailing"}};
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        struct want w = {.stop_at = 1};
        struct err e = {0};
        char path[512], zeros[9000] = {0};
        get("/sha/9000", w.sha, sizeof w.sha, &e);
        download(&w, "/slow/9000", 9000, true, &e); /* sets w.path */
        snprintf(path, sizeof path, "%s.part", w.path);
        FILE *f = fopen(path, "wb");
        fwrite(zeros, 1, sizeof zeros, f);
        fclose(f);
        snprintf(path, sizeof path, "%s.state", w.path);
        f = fopen(path, "wb");
        fputs(states[i][0], f);
        if (states[i][1]) fprintf(f, "%s%s", w.sha, states[i][1]);
        fclose(f);
        w.stop_at = 0;
        if (download(&w, "/bytes/9000", 9000, true, &e)) fail_msg("state %zu: %s", i, e.text);
        assert_whole(&w, 9000);
    }
}

static void lies_about_a_file_are_found(void **s) {
    (void)s;
    static const struct {
        const char *path;
        int rc;
    } cases[] = {{"/bytes/5000", CHIMERE_ECHECKSUM},  {"/bytes/4999", CHIMERE_EMISMATCH},
                 {"/bytes/5001", CHIMERE_EMISMATCH},  {"/longrange/5000", CHIMERE_EMISMATCH},
                 {"/endless/200", CHIMERE_EMISMATCH}, {"/status/404", CHIMERE_ENOENT},
                 {"/loop", CHIMERE_EREFUSED}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct want w = {0};
        struct err e = {0};
        memset(w.sha, 'a', 64);
        int rc = download(&w, cases[i].path, 5000, true, &e);
        if (rc != cases[i].rc) fail_msg("%s: %d: %s", cases[i].path, rc, e.text);
        assert_false(exists(&w, ""));
        char path[512];
        snprintf(path, sizeof path, "%s.part", w.path);
        unlink(path);
        snprintf(path, sizeof path, "%s.state", w.path);
        unlink(path);
    }
    struct want w = {0};
    struct err e = {0};
    int rc = download(&w, "/wrongrange/20000000", 20000000, true, &e);
    assert_int_equal(rc, CHIMERE_EMISMATCH);
    assert_non_null(strstr(e.text, "asked for the bytes from"));
    char path[512];
    snprintf(path, sizeof path, "%s.part", w.path);
    unlink(path);
}

/* ---- events ---- */

struct heard {
    char text[512];
};

static int hear(void *ud, const struct sse_event *ev) {
    struct heard *h = ud;
    size_t at = strlen(h->text);
    snprintf(h->text + at, sizeof h->text - at, "%s[%s]%s;", ev->name, ev->data, ev->id);
    return strcmp(ev->data, "stop") ? 0 : CHIMERE_ECANCELLED;
}

static int feed_sse(void *ud, const char *p, size_t n) { return sse_feed(ud, p, n); }

/* Examples of the standard's section 9.2, and its oddities, at every way to cut them in two. */
static void events_are_read_as_the_standard_says(void **s) {
    (void)s;
    static const struct {
        const char *in, *want;
    } cases[] = {
        {": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third "
         "event\n\n",
         "message[first event]1;message[second event];message[ third event];"},
        {"data\n\ndata\ndata\n\ndata:", "message[];message[\n];"},
        {"data:test\n\ndata: test\n\n", "message[test];message[test];"},
        {"\xEF\xBB\xBF"
         "data: a\r\n\r\ndata: b\r\rdata: c\n\n",
         "message[a];message[b];message[c];"},
        {"event: add\ndata: 1\n\nevent: x\n\ndata: 2\n\n", "add[1];message[2];"},
        {"data: YHOO\ndata: +2\ndata: 10\nother: z\nretry: 12x\nretry: 10\n\n",
         "message[YHOO\n+2\n10];"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n = strlen(cases[i].in);
        for (size_t cut = 0; cut <= n; cut++) {
            struct heard h = {0};
            struct sse r;
            sse_init(&r, 1000, hear, &h);
            assert_int_equal(sse_feed(&r, cases[i].in, cut), 0);
            assert_int_equal(sse_feed(&r, cases[i].in + cut, n - cut), 0);
            assert_string_equal(h.text, cases[i].want);
            sse_fini(&r);
        }
    }
}

static void events_have_a_ceiling_and_an_end(void **s) {
    (void)s;
    struct heard h = {0};
    struct sse r;
    sse_init(&r, 100, hear, &h);
    int rc = 0;
    for (int i = 0; i < 20 && !rc; i++) rc = sse_feed(&r, "data: 0123456789\n", 17);
    assert_int_equal(rc, CHIMERE_ELIMIT);
    assert_int_equal(sse_feed(&r, "\n", 1), CHIMERE_ELIMIT);
    sse_fini(&r);
    sse_init(&r, 100, hear, &h);
    char line[200];
    memset(line, 'x', sizeof line);
    assert_int_equal(sse_feed(&r, line, sizeof line), CHIMERE_ELIMIT);
    sse_fini(&r);
    sse_init(&r, 100, hear, &h);
    assert_int_equal(sse_feed(&r, "data: stop\n\ndata: more\n\n", 24), CHIMERE_ECANCELLED);
    assert_null(strstr(h.text, "more"));
    sse_fini(&r);
    h = (struct heard){0};
    sse_init(&r, 100, hear, &h);
    struct err e = {0};
    struct fetch_request q = {.url = url("/sse"), .on_body = feed_sse, .ud = &r};
    assert_int_equal(request(q, NULL, 0, &e), 200);
    assert_string_equal(h.text, "message[one];message[two\nlines];end[[DONE]];");
    sse_fini(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_body_and_its_headers_arrive),
        cmocka_unit_test(a_range_is_asked_for_and_told),
        cmocka_unit_test(statuses_become_errors_that_quote_the_server),
        cmocka_unit_test(redirects_are_followed_so_far),
        cmocka_unit_test(a_secret_stays_with_the_first_host),
        cmocka_unit_test(addresses_without_sense_are_refused),
        cmocka_unit_test(a_certificate_must_be_vouched_for),
        cmocka_unit_test(this_machine_needs_no_certificate),
        cmocka_unit_test(endless_bytes_end),
        cmocka_unit_test(slowness_ends),
        cmocka_unit_test(a_transfer_can_be_cancelled),
        cmocka_unit_test(private_addresses_are_refused_where_asked),
        cmocka_unit_test(reserved_blocks_are_known_to_the_edge),
        cmocka_unit_test(files_arrive_whole),
        cmocka_unit_test(a_cancelled_file_goes_on_where_it_stopped),
        cmocka_unit_test(a_spoilt_state_begins_anew),
        cmocka_unit_test(lies_about_a_file_are_found),
        cmocka_unit_test(events_are_read_as_the_standard_says),
        cmocka_unit_test(events_have_a_ceiling_and_an_end),
    };
    return cmocka_run_group_tests(tests, begin, end);
}

/* Parsers of strangers' bytes: HTML in the sandboxed child, with its limits; what happens without a sandbox. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "retrieval/extract_impl.h"

static const struct extract_how none = {0};

static void test_html(void **state) {
    (void)state;
    static const char page[] =
        "<!doctype html><title> Herons &amp; \xc3\xa9grets </title><script>var a = '<b "
        "c=d>';</script>"
        "<body><nav>menu</nav><h2>Nests</h2><p hidden>secret<p>Grey  herons\n nest <b>early</b>."
        "<ul><li>one<li>two</ul><pre>a  b</pre><p style='display:none'>unseen</body>";
    struct extract x;
    struct err e = {0};
    if (extract_text(&x, EXTRACT_HTML, page, sizeof page - 1, &none, &e)) fail_msg("%s", e.text);
    assert_string_equal(x.title, "Herons & \xc3\xa9grets");
    assert_non_null(strstr(x.text.p, "## Nests\nGrey herons nest early."));
    assert_non_null(strstr(x.text.p, "- one\n- two\n"));
    assert_non_null(strstr(x.text.p, "a  b"));
    assert_null(strstr(x.text.p, "secret"));
    assert_null(strstr(x.text.p, "unseen"));
    assert_null(strstr(x.text.p, "menu"));
    assert_null(strstr(x.text.p, "var a"));
    assert_false(x.cut);
    extract_fini(&x);
    /* the child's output is no better than its input */
    if (extract_text(&x, EXTRACT_HTML,
                     "<title>a\x01"
                     "b</title>x\x02y",
                     22, &none, &e))
        fail_msg("%s", e.text);
    for (const char *c = x.title; *c; ++c) assert_true((unsigned char)*c >= 32);
    extract_fini(&x);
    extract_text(&x, EXTRACT_HTML, "", 0, &none, &e); /* an error or nothing */
    extract_fini(&x);
}

/* How each ends, and within which time; the form of the page decides, not its size. */
static void test_attributes(void **state) {
    (void)state;
    enum { N = 300000 };
    static const struct {
        const char *before, *first, *last, *after; /* first, number, last: 300,000 times */
        int rc;
    } rows[] = {
        {"<p", " a", "", ">x</p>", CHIMERE_EFORMAT},
        {"<p ", "a", "=1 ", ">x</p>", CHIMERE_EFORMAT},
        {"<p ", "a", "='>'\n", ">x</p>", CHIMERE_EFORMAT},
        {"<p \"", " a", "", ">x</p>", CHIMERE_EFORMAT},
        {"<p", "/a", "", ">x</p>", CHIMERE_EFORMAT},
        {"<p", " a", "", "", CHIMERE_EFORMAT},
        {"<p>", " a", "", "</p>", 0},
        {"", "<p a=", ">", "", 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
        struct extract x;
        struct err e = {0};
        struct buf b;
        buf_init(&b, 16 << 20);
        buf_puts(&b, rows[i].before);
        for (int k = 0; k < N; ++k) buf_printf(&b, "%s%d%s", rows[i].first, k, rows[i].last);
        buf_puts(&b, rows[i].after);
        int64_t start = clock_ns();
        int rc = extract_text(&x, EXTRACT_HTML, b.p, b.n, &none, &e);
        double ms = clock_ms_since(start);
        if (rc != rows[i].rc || ms > 4000.0 * TEST_SLOWNESS)
            fail_msg("row %zu: %d in %.0f ms: %s", i, rc, ms, e.text);
        if (rc) assert_non_null(strstr(e.text, "attributes"));
        extract_fini(&x);
        buf_fini(&b);
    }
}

static void *cancel_soon(void *ud) {
    usleep(150000);
    *(_Atomic bool *)ud = true;
    return NULL;
}

/* A page that takes long: many tags, each just below the limit. */
static void slow_page(struct buf *b) {
    buf_init(b, EXTRACT_MAX_BYTES);
    while (b->n < (24 << 20)) {
        buf_puts(b, "<p");
        for (int k = 0; k < 4000; ++k) buf_printf(b, " a%d", k);
        buf_puts(b, ">");
    }
    assert_int_equal(b->failed, 0);
}

static void test_time(void **state) {
    (void)state;
    _Atomic bool cancelled = false;
    struct extract x;
    struct err e = {0};
    struct buf b;
    pthread_t t;
    slow_page(&b);
    int64_t start = clock_ns();
    struct extract_how how = {.deadline_ns = clock_ns() + 200000000};
    assert_int_equal(extract_text(&x, EXTRACT_HTML, b.p, b.n, &how, &e), CHIMERE_ETIMEOUT);
    extract_fini(&x);
    assert_true(clock_ms_since(start) < 2000.0 * TEST_SLOWNESS);
    start = clock_ns();
    how = (struct extract_how){.cancelled = &cancelled};
    assert_int_equal(pthread_create(&t, NULL, cancel_soon, &cancelled), 0);
    assert_int_equal(extract_text(&x, EXTRACT_HTML, b.p, b.n, &how, &e), CHIMERE_ECANCELLED);
    extract_fini(&x);
    pthread_join(t, NULL);
    assert_true(clock_ms_since(start) < 2000.0 * TEST_SLOWNESS);
    buf_fini(&b);
}

/* A kernel without namespaces and Landlock. */
static int forbid(void) {
    struct sock_filter rows[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_landlock_create_ruleset, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EOPNOTSUPP),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_NEWUSER, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof rows / sizeof *rows, rows};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}

static int without_sandbox(void) {
    static const char page[] = "<p>plain</p>";
    struct extract x;
    struct err e = {0};
    if (forbid()) return 77;
    extract_allow_bare(false);
    int rc = extract_text(&x, EXTRACT_HTML, page, sizeof page - 1, &none, &e);
    int failed = rc != CHIMERE_EREFUSED || x.text.n || !strstr(e.hint, "--bare-parsing");
    extract_fini(&x);
    rc = extract_text(&x, EXTRACT_MARKDOWN, "# plain", 7, &none, &e); /* has no parser */
    failed |= (rc || strcmp(x.title, "plain") != 0) << 1;
    extract_fini(&x);
    extract_allow_bare(true);
    rc = extract_text(&x, EXTRACT_HTML, page, sizeof page - 1, &none, &e);
    failed |= (rc || !strstr(x.text.p, "plain")) << 2;
    extract_fini(&x);
    return failed;
}

static void test_refused(void **state) {
    (void)state;
    int status;
    pid_t pid = fork();
    if (!pid) _exit(without_sandbox());
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        puts("skip: no seccomp filters here, a kernel that has them");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], EXTRACT_COMMAND)) return extract_child(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_html),
        cmocka_unit_test(test_attributes),
        cmocka_unit_test(test_time),
        cmocka_unit_test(test_refused),
    };
    struct extract x;
    if (extract_text(&x, EXTRACT_HTML, "<p>x", 4, &none, NULL) == CHIMERE_EREFUSED) {
        puts("skip: sandbox: this kernel allows neither namespaces nor Landlock; parsed without");
        extract_allow_bare(true);
    }
    extract_fini(&x);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

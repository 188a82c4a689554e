/* Parsers of strangers' bytes: HTML, XML, office files and books in the sandboxed child, with its limits; what happens without a sandbox. */
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
#include "base/file.h"
#include "base/mem.h"
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
    enum { N = 100000 };
    static const struct {
        const char *before, *first, *last, *after; /* first, number, last: N times */
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
        /* what takes quadratic time takes longer than the parser has: CHIMERE_ETIMEOUT */
        int rc = extract_text(&x, EXTRACT_HTML, b.p, b.n, &none, &e);
        if (rc != rows[i].rc) fail_msg("row %zu: %d: %s", i, rc, e.text);
        if (rc) assert_non_null(strstr(e.text, "attributes"));
        extract_fini(&x);
        buf_fini(&b);
    }
}

/* ---- archives and XML ---- */

static char *read_fixture(const char *name, size_t *n) {
    char path[512], *data;
    struct err e = {0};
    snprintf(path, sizeof path, "%s/documents/%s", TEST_DATA, name);
    if (file_read(path, EXTRACT_MAX_BYTES, &data, n, &e)) fail_msg("%s", e.text);
    return data;
}

/* Files that Python's zipfile wrote: what they contain, in which order. */
static void test_documents(void **state) {
    (void)state;
    static const struct {
        const char *name, *title, *text[5], *absent;
    } rows[] = {
        {"herons.docx",
         "Herons of the delta",
         {"## Nests\nGrey herons nest early.\n", "left\tright\nbelow\n",
          "Row 0 holds 21 eggs & 0 feathers\n", "Row 89401 holds 318 eggs & 667 feathers\n"},
         "removed"},
        {"herons.pptx", "", {"the first\n", "the second\n", "the tenth\n"}, "x"},
        {"herons.xlsx", "", {"bird\tnumber\n", "grey heron\t42\t\n"}, "no"},
        {"herons.odt",
         "Herons of the delta",
         {"### Nests\nGrey herons nest   early.\n"},
         "removed"},
        {"herons.epub",
         "Herons of the delta",
         {"# First\n", "Reeds.\n", "# Second\n", "Third\n"},
         "one"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
        struct extract x;
        struct err e = {0};
        size_t n;
        char *data = read_fixture(rows[i].name, &n);
        if (extract_text(&x, extract_kind_of(rows[i].name), data, n, &none, &e))
            fail_msg("%s: %s", rows[i].name, e.text);
        assert_string_equal(x.title, rows[i].title);
        const char *at = x.text.p;
        for (int k = 0; k < 5 && rows[i].text[k]; ++k) {
            const char *found = strstr(at, rows[i].text[k]);
            if (!found) fail_msg("%s: no '%s' in '%.300s'", rows[i].name, rows[i].text[k], at);
            at = found + strlen(rows[i].text[k]);
        }
        if (i != 2 && strstr(x.text.p, rows[i].absent))
            fail_msg("%s: '%s' in the text", rows[i].name, rows[i].absent);
        extract_fini(&x);
        /* cut anywhere: a sentence, or nothing; never a crash */
        for (size_t cut = 0; cut < n; cut += n / 23 + 1) {
            int rc = extract_parse(&x, extract_kind_of(rows[i].name), data, cut, &e);
            assert_true(rc < 0 && e.text[0]);
            extract_fini(&x);
        }
        mem_free(data);
    }
}

static void test_bombs(void **state) {
    (void)state;
    static const struct {
        const char *name, *says;
    } rows[] = {{"bomb.epub", "more than"}, {"deep.docx", "too deep"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
        struct extract x;
        struct err e = {0};
        size_t n;
        char *data = read_fixture(rows[i].name, &n);
        int rc = extract_text(&x, extract_kind_of(rows[i].name), data, n, &none, &e);
        if (rc != CHIMERE_EFORMAT || !strstr(e.text, rows[i].says))
            fail_msg("%s: %d %s", rows[i].name, rc, e.text);
        extract_fini(&x);
        mem_free(data);
    }
    /* entities that grow a billionfold: refused, or left as they are */
    struct extract x;
    struct err e = {0};
    size_t n;
    char *data = read_fixture("entities.docx", &n);
    if (!extract_text(&x, EXTRACT_DOCX, data, n, &none, &e)) assert_true(x.text.n < 1000);
    extract_fini(&x);
    mem_free(data);
}

static void test_xml(void **state) {
    (void)state;
    static const char feed[] =
        "<?xml version='1.0'?><!DOCTYPE rss [<!ENTITY f SYSTEM 'file:///etc/passwd'>]>"
        "<rss><channel><title>Birds &amp; reeds</title><item><title>Other</title>"
        "<d>Grey   herons &f;<![CDATA[nest <b>early</b>]]></d></item></channel></rss>";
    struct extract x;
    struct err e = {0};
    assert_int_equal(extract_kind_of("a/feed.XML"), EXTRACT_XML);
    assert_int_equal(extract_kind_of_type("text/xml; charset=utf-8"), EXTRACT_XML);
    if (extract_text(&x, EXTRACT_XML, feed, sizeof feed - 1, &none, &e)) fail_msg("%s", e.text);
    assert_string_equal(x.title, "Birds & reeds");
    assert_non_null(strstr(x.text.p, "Birds & reeds\nOther\nGrey herons nest <b>early</b>\n"));
    assert_null(strstr(x.text.p, "root:"));
    extract_fini(&x);
    /* 300,000 attributes, also where a name does not begin with a letter, and in UTF-16 */
    static const char *const begins[] = {"<p", "<_p", "<\xc3\xa9", "<:p"};
    for (size_t k = 0; k < 4; ++k) {
        struct buf b;
        buf_init(&b, 16 << 20);
        buf_puts(&b, begins[k]);
        for (int i = 0; i < 300000; ++i) buf_printf(&b, " a%d='1'", i);
        buf_puts(&b, "/>");
        assert_int_equal(extract_text(&x, EXTRACT_XML, b.p, b.n, &none, &e), CHIMERE_EFORMAT);
        assert_non_null(strstr(e.text, "attributes"));
        extract_fini(&x);
        buf_fini(&b);
    }
    assert_int_equal(extract_text(&x, EXTRACT_XML, "\xff\xfe<\0a\0>\0", 8, &none, &e),
                     CHIMERE_EFORMAT);
    assert_non_null(strstr(e.text, "zero byte"));
    extract_fini(&x);
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
    assert_true(clock_ms_since(start) < 8000); /* less than the parser's own limit */
    start = clock_ns();
    how = (struct extract_how){.cancelled = &cancelled};
    assert_int_equal(pthread_create(&t, NULL, cancel_soon, &cancelled), 0);
    assert_int_equal(extract_text(&x, EXTRACT_HTML, b.p, b.n, &how, &e), CHIMERE_ECANCELLED);
    extract_fini(&x);
    pthread_join(t, NULL);
    assert_true(clock_ms_since(start) < 8000); /* less than the parser's own limit */
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
    for (int kind = EXTRACT_XML; kind < EXTRACT_N_KIND; ++kind) {
        rc = extract_text(&x, (enum extract_kind)kind, page, sizeof page - 1, &none, &e);
        failed |= (rc != CHIMERE_EREFUSED || !strstr(e.hint, "--bare-parsing")) << 3;
        extract_fini(&x);
    }
    extract_allow_bare(true);
    rc = extract_text(&x, EXTRACT_XML, page, sizeof page - 1, &none, &e);
    failed |= (rc || !strstr(x.text.p, "plain")) << 4;
    extract_fini(&x);
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
        cmocka_unit_test(test_html),      cmocka_unit_test(test_attributes),
        cmocka_unit_test(test_documents), cmocka_unit_test(test_bombs),
        cmocka_unit_test(test_xml),       cmocka_unit_test(test_time),
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

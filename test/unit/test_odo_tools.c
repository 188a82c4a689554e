/* Tools that touch the machine: paths that try to leave the root, and programs that try to leave the sandbox. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "odo/sandbox.h"
#include "odo/tool_files.h"

static char dir[64];
static struct tool_set *tools;

static int setup(void **state) {
    (void)state;
    char path[160], outside[160];
    snprintf(dir, sizeof dir, "test_odo_tools.XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/root", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(tool_set_new(&tools, NULL), 0);
    assert_int_equal(tool_files_add(tools, path, NULL), 0);
    assert_int_equal(tool_code_add(tools, NULL), 0);
    snprintf(outside, sizeof outside, "%s/secret", dir);
    FILE *f = fopen(outside, "w");
    fputs("secret", f);
    fclose(f);
    snprintf(path, sizeof path, "%s/root/link", dir);
    assert_int_equal(symlink("../secret", path), 0);
    snprintf(path, sizeof path, "%s/root/hard", dir);
    assert_int_equal(link(outside, path), 0);
    snprintf(path, sizeof path, "%s/root/out", dir);
    assert_int_equal(symlink("..", path), 0);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    char command[128];
    tool_set_free(tools);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

static int call(const char *name, const char *args, char *out, size_t size) {
    struct buf b;
    struct tool_env env = {0};
    buf_init(&b, 1 << 20);
    int rc = tool_run(tool_find(tools, name), args, &env, &b);
    snprintf(out, size, "%s", b.n ? b.p : "");
    buf_fini(&b);
    return rc;
}

static void test_paths(void **state) {
    (void)state;
    char out[4096];
    assert_int_equal(
        call("write_file", "{\"path\":\"a/b/c.txt\",\"content\":\"h\\u00e9\"}", out, sizeof out),
        0);
    assert_int_equal(call("read_file", "{\"path\":\"a/b/c.txt\"}", out, sizeof out), 0);
    assert_string_equal(out, "h\xc3\xa9");
    assert_int_equal(
        call("write_file", "{\"path\":\"a/b/c.txt\",\"content\":\"x\"}", out, sizeof out), 0);
    assert_int_equal(call("read_file", "{\"path\":\"a/b/c.txt\"}", out, sizeof out), 0);
    assert_string_equal(out, "x");
    assert_int_equal(call("read_file", "{\"path\":\".\"}", out, sizeof out), 0);
    assert_non_null(strstr(out, "a/\n"));
    static const char *const bad[] = {"../secret",  "/etc/passwd",       "link",
                                      "out/secret", "a/../../secret",    "out/../out/secret",
                                      "",           "/proc/self/environ"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) {
        char args[200];
        snprintf(args, sizeof args, "{\"path\":\"%s\"}", bad[i]);
        if (!call("read_file", args, out, sizeof out)) fail_msg("read %s: %s", bad[i], out);
        snprintf(args, sizeof args, "{\"path\":\"%s\",\"content\":\"evil\"}", bad[i]);
        if (!call("write_file", args, out, sizeof out)) fail_msg("wrote %s: %s", bad[i], out);
    }
    /* a hard link's other name lies outside: not written */
    assert_int_equal(
        call("write_file", "{\"path\":\"hard\",\"content\":\"evil\"}", out, sizeof out),
        CHIMERE_EREFUSED);
    assert_int_not_equal(
        call("write_file", "{\"path\":\"../new/x\",\"content\":\"evil\"}", out, sizeof out), 0);
    char path[160], *text;
    size_t n;
    snprintf(path, sizeof path, "%s/secret", dir);
    assert_int_equal(file_read(path, 100, &text, &n, NULL), 0);
    assert_string_equal(text, "secret");
    mem_free(text);
    snprintf(path, sizeof path, "%s/new", dir);
    assert_false(file_exists(path));
}

static bool can_run(void) {
    char out[256];
    if (!call("run_code", "{\"language\":\"shell\",\"code\":\"echo yes\"}", out, sizeof out)) {
        assert_string_equal(out, "yes\n");
        return true;
    }
    assert_non_null(
        strstr(out, "sandbox: this kernel or container forbids it")); /* refused, not weakened */
    print_message("skip: sandbox: unprivileged user namespaces are forbidden here\n");
    return false;
}

static void test_sandbox(void **state) {
    (void)state;
    char out[8192];
    if (!can_run()) skip();
    static const struct {
        const char *code, *want, *never;
    } rows[] = {
        {"cat /etc/passwd || echo none", "none", "root:"},
        {"ls /home /root /srv 2>&1; echo done", "done", "Permission"},
        {"echo x > /usr/evil && echo wrote || echo no", "no", "wrote"},
        {"cd; echo x > mine && cat mine", "x", NULL},
        {"cat /proc/1/environ 2>/dev/null | tr -d '\\\\0' | grep -c SECRET; echo end", "end",
         "1\n"},
        {"id -u", "1000", NULL},
        {"exit 3", "[exit status 3]", NULL},
        {"mount -t tmpfs x /usr 2>/dev/null && echo mounted || echo no", "no", "mounted"},
        {"ls /proc/self/fd | wc -l", "", "7"},
    };
    setenv("SECRET", "SECRET", 1);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
        char args[600];
        snprintf(args, sizeof args, "{\"language\":\"shell\",\"code\":\"%s\"}", rows[i].code);
        if (call("run_code", args, out, sizeof out) || !strstr(out, rows[i].want) ||
            (rows[i].never && strstr(out, rows[i].never)))
            fail_msg("%s: %s", rows[i].code, out);
    }
}

static void test_limits(void **state) {
    (void)state;
    char out[TOOL_MAX_OUTPUT + 1];
    if (!can_run()) skip();
    int64_t start = clock_ns();
    assert_int_equal(call("run_code", "{\"language\":\"shell\",\"code\":\"yes\"}", out, sizeof out),
                     0);
    assert_non_null(strstr(out, "too much output"));
    assert_true(strlen(out) < 40000);
    /* children that stay behind end too, and do not hold the call */
    assert_int_equal(
        call("run_code",
             "{\"language\":\"shell\",\"code\":\"sleep 1000 >/dev/null 2>&1 & echo ok\"}", out,
             sizeof out),
        0);
    assert_true(clock_ms_since(start) < 5000.0 * TEST_SLOWNESS);
    struct sandbox_job job = {
        .argv = (const char *const[]){"/bin/sh", "-c", "while :; do :; done", NULL}};
    struct sandbox_result r;
    struct buf b;
    buf_init(&b, 1 << 16);
    sandbox_defaults(&job.limits);
    job.limits.wall_ms = 300;
    start = clock_ns();
    assert_int_equal(sandbox_run(&job, &b, &r, NULL), 0);
    assert_true(r.timed_out && clock_ms_since(start) < 3000.0 * TEST_SLOWNESS);
    job.argv = (const char *const[]){"/bin/sh", "-c",
                                     "(:|:|:|:|:|:|:|:|:|:|:|:|:|:|:|:|:|:|:|:|:|:|:|:|:|:|:|:|:|:|"
                                     ":|:|:|:|:|:|:|:|:|:) 2>&1; echo after",
                                     NULL};
    job.limits.wall_ms = 5000;
    assert_int_equal(sandbox_run(&job, &b, &r, NULL), 0);
    job.argv = (const char *const[]){"/nonexistent", NULL};
    assert_int_equal(sandbox_run(&job, &b, &r, NULL), CHIMERE_ENOENT);
    buf_fini(&b);
    if (access("/usr/bin/python3", X_OK)) return;
    assert_int_equal(
        call("run_code",
             "{\"code\":\"import socket\\nsocket.create_connection(('127.0.0.1', 80), 1)\"}", out,
             sizeof out),
        0);
    assert_non_null(strstr(out, "Error"));
    assert_int_equal(
        call("run_code", "{\"code\":\"x = 'a' * (1 << 31)\\nprint(len(x))\"}", out, sizeof out), 0);
    assert_non_null(strstr(out, "MemoryError"));
    assert_int_equal(call("run_code", "{\"code\":\"print(sum(range(10)))\"}", out, sizeof out), 0);
    assert_string_equal(out, "45\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_sandbox),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

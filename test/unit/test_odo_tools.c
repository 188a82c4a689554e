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

#include "base/file.h"
#include "base/mem.h"
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paths),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

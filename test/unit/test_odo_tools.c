/* Tools that touch the machine: paths that try to leave the root, files that others execute, backups, quotas. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "tools/tool_files_impl.h"

static char dir[64];
static struct tool_set *tools, *building;

static int setup(void **state) {
    (void)state;
    char path[160], outside[160];
    snprintf(dir, sizeof dir, "test_odo_tools.XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/root", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    struct tool_files files = {.root = path, .quota_bytes = 1 << 20};
    assert_int_equal(tool_set_new(&tools, NULL), 0);
    assert_int_equal(tool_files_add(tools, &files, NULL), 0);
    files.build_files = files.trusted = true;
    assert_int_equal(tool_set_new(&building, NULL), 0);
    assert_int_equal(tool_files_add(building, &files, NULL), 0);
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
    tool_set_free(building);
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

/* What other programs execute or load is never written, however the name is spelled. */
static void test_refused_names(void **state) {
    (void)state;
    char out[4096], args[300], path[160];
    static const char *const never[] = {".git/config",
                                        "proj/.git/hooks/post-checkout",
                                        ".envrc",
                                        "a/.bashrc",
                                        ".GIT/config",
                                        "./.git/config",
                                        "a//.vscode/tasks.json",
                                        ".x",
                                        "proj/..x/y",
                                        ".chimere-backup/x"};
    static const char *const built[] = {"Makefile",       "a/makefile",     "GNUmakefile",
                                        "package.json",   "CMakeLists.txt", "setup.py",
                                        "x/conftest.py",  "x.PTH",          "Dockerfile",
                                        "vite.config.ts", "a.desktop",      "bare/HEAD"};
    for (size_t i = 0; i < sizeof never / sizeof *never + sizeof built / sizeof *built; ++i) {
        size_t n = sizeof never / sizeof *never;
        const char *name = i < n ? never[i] : built[i - n];
        snprintf(args, sizeof args, "{\"path\":\"%s\",\"content\":\"evil\"}", name);
        int rc = call("write_file", args, out, sizeof out);
        if (rc != CHIMERE_EREFUSED) fail_msg("wrote %s: %s", name, out);
        snprintf(path, sizeof path, "%s/root/%s", dir, name);
        if (file_exists(path)) fail_msg("%s is there", name);
        if (i < n) continue; /* a dot is refused even so */
        struct buf b;
        buf_init(&b, 4096);
        rc = tool_run(tool_find(building, "write_file"), args, &(struct tool_env){0}, &b);
        buf_fini(&b);
        if (rc) fail_msg("--files-build: %s: %d", name, rc);
    }
    /* an executable stays what it is */
    snprintf(path, sizeof path, "%s/root/run.txt", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fclose(f);
    assert_int_equal(chmod(path, 0755), 0);
    assert_int_equal(
        call("write_file", "{\"path\":\"run.txt\",\"content\":\"evil\"}", out, sizeof out),
        CHIMERE_EREFUSED);
}

static int count_files(const char *folder) {
    char path[160];
    int n = 0;
    snprintf(path, sizeof path, "%s/root/%s", dir, folder);
    DIR *d = opendir(path);
    for (const struct dirent *t; d && (t = readdir(d));) n += t->d_name[0] != '.';
    if (d) closedir(d);
    return n;
}

static void test_backup(void **state) {
    (void)state;
    char out[4096], args[300], path[200], *text;
    size_t size;
    int before = count_files(TOOL_FILES_BACKUP_DIR);
    assert_int_equal(call("write_file",
                          "{\"path\":\"n.txt\",\"content\":\"1\\n2\\n3\\n4\\n5\\n6\"}", out,
                          sizeof out),
                     0);
    assert_string_equal(out, "11 bytes written to n.txt (new)\n");
    assert_int_equal(count_files(TOOL_FILES_BACKUP_DIR), before);
    snprintf(path, sizeof path, "%s/root/n.txt", dir);
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(call("write_file",
                          "{\"path\":\"n.txt\",\"content\":\"1\\n2\\n3\\n4\\nfive\\n6\"}", out,
                          sizeof out),
                     0);
    assert_string_equal(out,
                        "14 bytes written to n.txt\n--- n.txt\n+++ n.txt\n@@ -2,5 +2,5 @@\n 2\n 3\n"
                        " 4\n-5\n+five\n 6\n\\ No newline at end of file\n");
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    /* the newest backup is what it held, and their number is limited */
    for (int i = 0; i < 8; ++i) {
        snprintf(args, sizeof args, "{\"path\":\"n.txt\",\"content\":\"%d\"}", i);
        assert_int_equal(call("write_file", args, out, sizeof out), 0);
    }
    assert_int_equal(count_files(TOOL_FILES_BACKUP_DIR), before + TOOL_FILES_BACKUPS);
    snprintf(path, sizeof path, "cat %s/root/" TOOL_FILES_BACKUP_DIR "/*-n.txt.1 >%s/last", dir,
             dir);
    assert_int_equal(system(path), 0);
    snprintf(path, sizeof path, "%s/last", dir);
    assert_int_equal(file_read(path, 100, &text, &size, NULL), 0);
    assert_string_equal(text, "6");
    mem_free(text);
    assert_int_equal(call("write_file", "{\"path\":\"n.txt\",\"content\":\"7\"}", out, sizeof out),
                     0);
    assert_non_null(strstr(out, "(unchanged)"));
}

/* The diffs of random edits, applied by patch, give the new text. */
static void test_diff(void **state) {
    (void)state;
    if (system("patch --version >/dev/null 2>&1")) {
        puts("skip: diffs against patch: apt-get install patch");
        skip();
    }
    unsigned seed = 7;
    for (int round = 0; round < 40; ++round) {
        struct buf old, text, diff;
        char command[300];
        const char *names[] = {"old", "new", "diff"};
        buf_init(&old, 4096), buf_init(&text, 4096), buf_init(&diff, 16384);
        for (struct buf *b = &old;; b = &text) {
            int n = (int)(seed = seed * 1103515245 + 12345) % 12;
            for (int i = 0; i < (n < 0 ? -n : n); ++i)
                buf_printf(b, "%d\n", (seed = seed * 1103515245 + 12345) >> 16 & 1);
            if (b == &text) break;
        }
        tool_put_diff(&diff, "f", old.n ? old.p : "", old.n, text.n ? text.p : "", text.n);
        const struct buf *all[] = {&old, &text, &diff};
        for (int i = 0; i < 3; ++i) {
            snprintf(command, sizeof command, "%s/%s", dir, names[i]);
            FILE *f = fopen(command, "w");
            fwrite(all[i]->p, 1, all[i]->n, f);
            fclose(f);
        }
        snprintf(command, sizeof command,
                 "cd %s && touch old && { grep -q unchanged diff || patch -s old diff; } && touch "
                 "old && cmp old new",
                 dir);
        if (system(command)) fail_msg("round %d:\n%s", round, diff.p);
        buf_fini(&old), buf_fini(&text), buf_fini(&diff);
    }
}

static void test_quota(void **state) {
    (void)state;
    char out[4096], path[160];
    struct tool_set *few;
    struct tool_env env = {0};
    struct buf b;
    snprintf(path, sizeof path, "%s/root", dir);
    struct tool_files files = {.root = path, .quota_bytes = 3 * 4096 + 100};
    assert_int_equal(tool_set_new(&few, NULL), 0);
    assert_int_equal(tool_files_add(few, &files, NULL), 0);
    int rc = 0, n = 0;
    buf_init(&b, 1 << 16);
    while (!rc && n < 10)
        rc = tool_run(tool_find(few, "write_file"), "{\"path\":\"q.txt\",\"content\":\"x\"}", &env,
                      &b),
        n += !rc;
    snprintf(out, sizeof out, "%s", b.p);
    buf_fini(&b);
    tool_set_free(few);
    assert_int_equal(rc, CHIMERE_ELIMIT);
    assert_int_equal(n, 3);
    assert_non_null(strstr(out, "--files-quota"));
}

/* A write that fails half-way: the old content stays, whole, and nothing is left beside it. */
static void test_fault(void **state) {
    (void)state;
    char out[4096], path[160], *text;
    size_t n;
    struct rlimit old, few = {.rlim_cur = 8};
    int before;
    assert_int_equal(
        call("write_file", "{\"path\":\"f/f.txt\",\"content\":\"old\"}", out, sizeof out), 0);
    before = count_files("f");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    few.rlim_max = old.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
    int rc = call("write_file", "{\"path\":\"f/f.txt\",\"content\":\"more than eight bytes\"}", out,
                  sizeof out);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(rc, CHIMERE_EIO);
    snprintf(path, sizeof path, "%s/root/f/f.txt", dir);
    assert_int_equal(file_read(path, 100, &text, &n, NULL), 0);
    assert_string_equal(text, "old");
    mem_free(text);
    assert_int_equal(count_files("f"), before);
    snprintf(path, sizeof path, "ls -A %s/root/f | grep -q tmp", dir);
    assert_int_not_equal(system(path), 0);
}

/* What may run after which text. */
static void test_taint(void **state) {
    (void)state;
    const struct tool *write = tool_find(tools, "write_file"),
                      *read = tool_find(tools, "read_file");
    const char *confirmed[] = {"run_code", "write_file"};
    struct tool_env clean = {0}, local = {.tainted_local = true}, strange = {.tainted = true};
    struct tool sends = {.name = "write_file", .flags = TOOL_EFFECT | TOOL_SENDS};
    assert_true(tool_allowed(write, &clean, NULL));
    assert_false(tool_allowed(write, &local, NULL));
    assert_false(tool_allowed(write, &strange, NULL));
    assert_true(tool_needs_confirmation(write, &local) && tool_needs_confirmation(write, &strange));
    local.confirmed = strange.confirmed = confirmed, local.n_confirmed = strange.n_confirmed = 1;
    assert_false(tool_allowed(write, &strange, NULL));
    local.n_confirmed = strange.n_confirmed = 2;
    assert_true(tool_allowed(write, &local, NULL) && tool_allowed(write, &strange, NULL));
    assert_false(tool_allowed(&sends, &strange, NULL)); /* what leaves the machine: never */
    assert_true(read->flags & TOOL_TAINTS_LOCAL);
    assert_false(tool_find(building, "read_file")->flags & TOOL_TAINTS_LOCAL); /* trusted */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paths),  cmocka_unit_test(test_refused_names),
        cmocka_unit_test(test_backup), cmocka_unit_test(test_diff),
        cmocka_unit_test(test_quota),  cmocka_unit_test(test_fault),
        cmocka_unit_test(test_taint),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

/* The sandbox: programs that try to outlive their limits, to leave, or to take more than their share. */
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
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "tools/sandbox.h"
#include "tools/tool_files.h"

#include "await.h"

static struct tool_set *tools;

static int setup(void **state) {
    (void)state;
    return tool_set_new(&tools, NULL) || tool_code_add(tools, NULL);
}

static int teardown(void **state) {
    (void)state;
    tool_set_free(tools);
    return 0;
}

/* run_code, as a model calls it. */
static int run_code(const char *language, const char *code, char *out, size_t size) {
    struct buf b;
    struct tool_env env = {0};
    json_t *args = json_pack("{s:s, s:s}", "language", language, "code", code);
    char *text = json_dumps(args, 0);
    buf_init(&b, 1 << 20);
    int rc = tool_run(tool_find(tools, "run_code"), text, &env, &b);
    snprintf(out, size, "%s", b.n ? b.p : "");
    buf_fini(&b);
    free(text);
    json_decref(args);
    return rc;
}

static bool can_run(void) {
    char out[256];
    if (!run_code("shell", "echo yes", out, sizeof out)) {
        assert_string_equal(out, "yes\n");
        return true;
    }
    /* refused, not weakened */
    assert_non_null(strstr(out, "sandbox: this kernel or container forbids it"));
    print_message("skip: sandbox: unprivileged user namespaces are forbidden here\n");
    return false;
}

static void job_init(struct sandbox_job *j, const char *const *argv, int wall_ms) {
    *j = (struct sandbox_job){.argv = argv};
    sandbox_defaults(&j->limits);
    j->limits.wall_ms = wall_ms;
}

/* Runs a job that must succeed; its output to out. */
static void run(const struct sandbox_job *j, struct sandbox_result *r, char *out, size_t size) {
    struct buf b;
    struct err e = {0};
    buf_init(&b, 1 << 20);
    if (sandbox_run(j, &b, r, &e)) fail_msg("%s", e.text);
    snprintf(out, size, "%s", b.n ? b.p : "");
    buf_fini(&b);
}

/* How long programs sleep that must not outlive a test: a number of this process alone. */
static const char *seconds(void) {
    static char text[24];
    snprintf(text, sizeof text, "9876%07ld", (long)getpid());
    return text;
}

/* Whether a process sleeps that long. */
static bool is_asleep(void) {
    char command[200];
    snprintf(command, sizeof command,
             "for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$f; echo; done 2>/dev/null | "
             "grep -v grep | grep -q '^[^ ]*sleep %s'",
             seconds());
    return !system(command);
}

static void test_confined(void **state) {
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
        {"cat /proc/1/environ 2>/dev/null | tr -d '\\0' | grep -c SECRET; echo end", "end", "1\n"},
        {"id -u", "1000", NULL},
        {"exit 3", "[exit status 3]", NULL},
        {"kill -9 $$; sh -c 'kill -9 $$'; echo $?", "137", NULL},
        {"mount -t tmpfs x /usr 2>/dev/null && echo mounted || echo no", "no", "mounted"},
        {"ls /proc/self/fd | wc -l", "", "7"},
        {"echo x | /usr/bin/sort -; mkfifo p; (echo y >p &); cat p", "x\ny", NULL},
    };
    setenv("SECRET", "SECRET", 1);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i)
        if (run_code("shell", rows[i].code, out, sizeof out) || !strstr(out, rows[i].want) ||
            (rows[i].never && strstr(out, rows[i].never)))
            fail_msg("%s: %s", rows[i].code, out);
}

static void test_doors(void **state) {
    (void)state;
    char out[8192], *code;
    size_t n;
    if (!can_run()) skip();
    if (access("/usr/bin/python3", X_OK)) {
        puts("skip: doors of the sandbox: apt-get install python3");
        skip();
    }
    assert_int_equal(file_read(TEST_DATA "/sandbox/escape.py", 1 << 20, &code, &n, NULL), 0);
    assert_int_equal(run_code("python", code, out, sizeof out), 0);
    mem_free(code);
    assert_string_equal(out, "done 3\n");
}

/* Whatever a program closes, forks or ignores, its wall limit holds, and no descendant survives. */
static void test_wall(void **state) {
    (void)state;
    static const char *const codes[] = {
        "exec >&- 2>&-; sleep $0",
        "exec <&- >&- 2>&-; trap '' TERM INT HUP; while :; do sleep $0; done",
        "exec >&- 2>&-; setsid sleep $0 & exec sleep $0",
        "exec >&- 2>&-; (setsid sh -c 'sleep $0' $0 &) ; sleep $0",
        "while :; do :; done",
        "exec >log 2>&1; sleep $0 & sleep $0 & wait",
    };
    struct sandbox_job job;
    struct sandbox_result r;
    char out[4096];
    if (!can_run()) skip();
    for (size_t i = 0; i < sizeof codes / sizeof *codes; ++i) {
        job_init(&job, (const char *const[]){"/bin/sh", "-c", codes[i], seconds(), NULL}, 300);
        int64_t start = clock_ns();
        run(&job, &r, out, sizeof out);
        double ms = clock_ms_since(start);
        if (!r.timed_out || ms < 290 || ms > 30000)
            fail_msg("%s: %.0f ms, timed_out %d", codes[i], ms, r.timed_out);
    }
    assert_false(is_asleep());
    /* a program that ends well leaves nothing behind either, and its children do not hold the call */
    const char *leaves[] = {"/bin/sh", "-c", "setsid sleep $0 & echo ok", seconds(), NULL};
    job_init(&job, leaves, 60000);
    int64_t start = clock_ns();
    run(&job, &r, out, sizeof out);
    assert_string_equal(out, "ok\n");
    assert_true(clock_ms_since(start) < 30000);
    assert_false(r.timed_out);
    assert_false(is_asleep());
}

static void *cancel_soon(void *ud) {
    usleep(200000);
    *(_Atomic bool *)ud = true;
    return NULL;
}

static void test_cancel(void **state) {
    (void)state;
    _Atomic bool cancelled = false;
    struct sandbox_job job;
    struct sandbox_result r;
    pthread_t t;
    char out[256];
    if (!can_run()) skip();
    const char *argv[] = {"/bin/sh", "-c", "exec >&- 2>&-; sleep $0 & sleep $0", seconds(), NULL};
    job_init(&job, argv, 60000);
    job.cancelled = &cancelled;
    int64_t start = clock_ns();
    assert_int_equal(pthread_create(&t, NULL, cancel_soon, &cancelled), 0);
    run(&job, &r, out, sizeof out);
    pthread_join(t, NULL);
    assert_true(r.cancelled && !r.timed_out);
    assert_true(clock_ms_since(start) < 30000);
    assert_false(is_asleep());
}

/* When the server is killed without warning, so are its programs. */
static void test_orphans(void **state) {
    (void)state;
    if (!can_run()) skip();
    const char *number = seconds();
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        struct sandbox_job job;
        struct sandbox_result r;
        struct buf b;
        buf_init(&b, 1 << 16);
        job_init(&job, (const char *const[]){"/bin/sleep", number, NULL}, 2 * AWAIT_MS);
        sandbox_run(&job, &b, &r, NULL);
        _exit(0);
    }
    AWAIT(is_asleep());
    assert_true(is_asleep());
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    AWAIT(!is_asleep());
    assert_false(is_asleep());
}

static void test_limits(void **state) {
    (void)state;
    char out[TOOL_MAX_OUTPUT + 1];
    struct sandbox_job job;
    struct sandbox_result r;
    if (!can_run()) skip();
    assert_int_equal(run_code("shell", "yes", out, sizeof out), 0);
    assert_non_null(strstr(out, "too much output"));
    assert_true(strlen(out) < 40000);
    /* as many processes as the limit, and not one more; as root as well */
    job_init(&job,
             (const char *const[]){"/bin/sh", "-c",
                                   "i=0; while [ $i -lt 60 ]; do sleep 9 & i=$((i+1)); done; "
                                   "ls -d /proc/[0-9]* | wc -l",
                                   NULL},
             10000);
    job.limits.n_process = 20;
    run(&job, &r, out, sizeof out);
    assert_non_null(strstr(out, "fork"));
    assert_true(strtol(out, NULL, 10) <= 20);
    job_init(&job, (const char *const[]){"/nonexistent", NULL}, 1000);
    struct buf b;
    buf_init(&b, 100);
    assert_int_equal(sandbox_run(&job, &b, &r, NULL), CHIMERE_ENOENT);
    buf_fini(&b);
}

/* Memory that is held counts, however it was got; addresses that are only reserved do not. */
static void test_memory(void **state) {
    (void)state;
    static const struct {
        const char *code, *want;
    } rows[] = {
        {"x = 'a' * (1 << 31)\nprint(len(x))", "MemoryError"},
        {"import mmap, time\nm = mmap.mmap(-1, 1 << 30)\nfor i in range(0, 1 << 30, 4096): m[i] = "
         "1\n"
         "time.sleep(5)\nprint('kept')",
         "[stopped: more than 512 MiB of memory]"},
        {"import os, time\nfor i in range(8):\n  if not os.fork():\n    x = bytearray(120 << 20)\n"
         "    time.sleep(5)\n    os._exit(0)\ntime.sleep(5)\nprint('kept')",
         "[stopped: more than 512 MiB of memory]"},
        {"import os, time\nx = bytearray(100 << 20)\nfor i in range(8):\n  if not os.fork():\n"
         "    time.sleep(.3)\n    os._exit(0)\ntime.sleep(.3)\nprint('shared')",
         "shared\n"},
        {"import mmap\nm = mmap.mmap(-1, 1 << 36, flags=mmap.MAP_PRIVATE | 32, "
         "prot=mmap.PROT_READ)\nprint('reserved')",
         "reserved\n"},
        {"import ctypes, os\nc = ctypes.CDLL(None, use_errno=True)\n"
         "print(c.shmget(0, 256 << 20, 0o1600), os.strerror(ctypes.get_errno()))",
         "-1 Function not implemented\n"},
    };
    char out[8192];
    if (!can_run()) skip();
    if (access("/usr/bin/python3", X_OK)) skip();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
        assert_int_equal(run_code("python", rows[i].code, out, sizeof out), 0);
        if (!strstr(out, rows[i].want)) fail_msg("%s\n%s", rows[i].code, out);
    }
}

static void test_javascript(void **state) {
    (void)state;
    char out[4096];
    if (!can_run()) skip();
    if (access("/usr/bin/node", X_OK)) {
        puts("skip: JavaScript: apt-get install nodejs");
        skip();
    }
    assert_int_equal(run_code("javascript", "console.log(1+1)", out, sizeof out), 0);
    assert_string_equal(out, "2\n");
    assert_int_equal(run_code("javascript",
                              "const a = []; for (;;) a.push(new Array(1e6).fill(7));", out,
                              sizeof out),
                     0);
    assert_non_null(strstr(out, "["));
}

/* ---- turns ---- */

struct many {
    struct sandbox_job job;
    pthread_t thread;
    int rc;
    struct err e;
    _Atomic bool is_over;
};

static void *run_one(void *ud) {
    struct many *m = ud;
    struct sandbox_result r;
    struct buf b;
    buf_init(&b, 1 << 16);
    m->rc = sandbox_run(&m->job, &b, &r, &m->e);
    m->is_over = true;
    buf_fini(&b);
    return NULL;
}

static void describe(struct many *m, const char *owner, const char *const *argv) {
    job_init(&m->job, argv, 2 * AWAIT_MS);
    m->job.owner = owner;
}

static void start(struct many *m) {
    assert_int_equal(pthread_create(&m->thread, NULL, run_one, m), 0);
}

static _Atomic int n_begun;
static void count_begun(void *ud, const char *bytes, size_t n) {
    (void)ud, (void)bytes;
    n_begun += n == 1;
}

/* One owner's programs wait for each other, until their deadline; another owner's do not wait for them. */
static void test_turns(void **state) {
    (void)state;
    enum { WAITS = SANDBOX_MAX_EACH, LATE, OTHER, N };
    static struct many m[N];
    _Atomic bool is_enough = false;
    const char *endless[] = {"/bin/sh", "-c", "echo; exec sleep $0", seconds(), NULL},
               *quick[] = {"/bin/true", NULL};
    if (!can_run()) skip();
    n_begun = 0;
    for (int i = 0; i < N; ++i)
        describe(&m[i], i == OTHER ? "two" : "one", i < WAITS ? endless : quick);
    for (int i = 0; i < WAITS; ++i) {
        m[i].job.cancelled = &is_enough;
        m[i].job.output = count_begun;
        start(&m[i]);
    }
    AWAIT(n_begun == WAITS);
    assert_int_equal(n_begun, WAITS);
    m[LATE].job.deadline_ns = clock_ns() + 300000000;
    for (int i = WAITS; i < N; ++i) start(&m[i]);
    pthread_join(m[OTHER].thread, NULL);
    pthread_join(m[LATE].thread, NULL);
    assert_int_equal(m[OTHER].rc, 0);
    assert_int_equal(m[LATE].rc, CHIMERE_ETIMEOUT);
    assert_non_null(strstr(m[LATE].e.text, "run already"));
    for (int i = 0; i <= WAITS; ++i) assert_false(m[i].is_over);
    is_enough = true;
    for (int i = 0; i <= WAITS; ++i) {
        pthread_join(m[i].thread, NULL);
        assert_int_equal(m[i].rc, 0);
    }
}

/* ---- kernels that forbid ---- */

/* Namespaces as a container without them has them. */
static int forbid(bool landlock) {
    struct sock_filter rows[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_landlock_create_ruleset, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, landlock ? SECCOMP_RET_ERRNO | EOPNOTSUPP : SECCOMP_RET_ALLOW),
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

/* How it was confined; -1: refused. */
static int level_of(enum sandbox_least least, const char *const *argv) {
    struct sandbox_job job;
    struct sandbox_result r;
    struct buf out;
    job_init(&job, argv, 5000);
    job.input = "through", job.n_input = 7, job.least = least;
    buf_init(&out, 1 << 16);
    int rc = sandbox_run(&job, &out, &r, NULL);
    bool good = !rc && !r.status && out.n == 7;
    buf_fini(&out);
    return rc == CHIMERE_EREFUSED ? -1 : good ? (int)r.level : -2;
}

/* Without namespaces a model's program is refused; a parser runs if Landlock confines it, or if that is waived. */
static int without_namespaces(bool landlock) {
    const char *cat[] = {"/bin/cat", NULL};
    int failed = 0;
    if (forbid(!landlock)) return 77;
    landlock &= syscall(SYS_landlock_create_ruleset, NULL, 0, 1) > 0;
    failed |= (level_of(SANDBOX_NAMESPACES, cat) != -1) << 0;
    failed |= (level_of(SANDBOX_FILTERED, cat) != (landlock ? SANDBOX_FILTERED : -1)) << 1;
    failed |= (level_of(SANDBOX_BARE, cat) != (landlock ? SANDBOX_FILTERED : SANDBOX_BARE)) << 2;
    /* no new processes, no files but the system's */
    const char *fork_one[] = {"/bin/sh", "-c", "exec cat", NULL};
    const char *fork_two[] = {"/bin/sh", "-c", "cat; :", NULL};
    failed |= (level_of(SANDBOX_BARE, fork_one) < 0) << 3;
    failed |= (level_of(SANDBOX_BARE, fork_two) != -2) << 4;
    const char *other[] = {"/bin/sh", "-c", "read l </etc/hostname && echo -n through", NULL};
    if (landlock && file_exists("/etc/hostname"))
        failed |= (level_of(SANDBOX_FILTERED, other) != -2) << 5;
    return failed;
}

static void test_less(void **state) {
    (void)state;
    for (int landlock = 0; landlock < 2; ++landlock) {
        int status;
        pid_t pid = fork();
        if (!pid) _exit(without_namespaces(landlock));
        assert_true(pid > 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        if (WEXITSTATUS(status) == 77) {
            puts("skip: no seccomp filters here, a kernel that has them");
            skip();
        }
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

/* A program that ends before it has read its input: an error or a status, no signal in us. */
static void test_early_end(void **state) {
    (void)state;
    const char *argv[] = {"/bin/true", NULL};
    static char input[1 << 20];
    for (int i = 0; i < 20; ++i) {
        struct sandbox_job job;
        struct sandbox_result r;
        char out[16];
        job_init(&job, argv, 10000);
        job.input = input, job.n_input = sizeof input, job.least = SANDBOX_BARE;
        run(&job, &r, out, sizeof out);
        assert_int_equal(r.status, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_confined),  cmocka_unit_test(test_doors),
        cmocka_unit_test(test_wall),      cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_orphans),   cmocka_unit_test(test_limits),
        cmocka_unit_test(test_memory),    cmocka_unit_test(test_javascript),
        cmocka_unit_test(test_turns),     cmocka_unit_test(test_less),
        cmocka_unit_test(test_early_end),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

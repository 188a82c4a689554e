#include "odo/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"

enum {
    EXIT_SETUP = 120
}; /* status of a child that could not build its cage; with a line on the pipe */

void sandbox_defaults(struct sandbox_limits *l) {
    *l = (struct sandbox_limits){.wall_ms = 10000,
                                 .cpu_s = 8,
                                 .memory_bytes = (uint64_t)512 << 20,
                                 .file_bytes = 16 << 20,
                                 .n_process = 32,
                                 .output_bytes = 32 << 10};
}

/* ---- in the child: system calls alone, as other threads' locks may be held for ever ---- */

struct plan { /* all that the child needs, made before the fork */
    const struct sandbox_job *job;
    char uid_map[64], gid_map[64];
    int in, out, told; /* descriptors; told: what failed */
    bool bare;         /* no namespaces: limits alone */
};

static void give_up(const struct plan *p, const char *what) {
    ssize_t n = write(p->told, what, strlen(what));
    (void)n;
    _exit(EXIT_SETUP);
}

static bool put_file(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0) close(fd);
    return good;
}

/* /etc/alternatives holds where /usr/bin/awk and others of several makers lead. */
static const char *const shown[] = {
    "usr", "bin", "sbin", "lib", "lib64", "lib32", "etc/alternatives"};
static const char no_program[] = "starting the program";
static const char *const devices[] = {"dev/null", "dev/zero", "dev/urandom"};

/* The job's folder; opened before /tmp is covered, as it may lie there. */
static void bind_folder(const struct plan *p, int fd) {
    char from[40] = "/proc/self/fd/";
    size_t n = strlen(from), digits = 1;
    for (int k = fd; k >= 10; k /= 10) ++digits;
    for (size_t i = 0; i < digits; ++i, fd /= 10) from[n + digits - 1 - i] = (char)('0' + fd % 10);
    if (mkdir(SANDBOX_FOLDER + 1, 0755) || mount(from, SANDBOX_FOLDER + 1, NULL, MS_BIND, NULL) ||
        mount(NULL, SANDBOX_FOLDER + 1, NULL,
              MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL))
        give_up(p, "binding its folder");
}

/* A root of its own: a tmpfs at /tmp of the new namespace becomes "/", with the system bound in. */
static void build_root(const struct plan *p) {
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) give_up(p, "making mounts private");
    int folder = p->job->folder ? open(p->job->folder, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    if (p->job->folder && folder < 0) give_up(p, "opening its folder");
    if (mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=64m,mode=755"))
        give_up(p, "mounting a root");
    if (chdir("/tmp") || mkdir("old", 0700) || mkdir("tmp", 0777) || mkdir("proc", 0755) ||
        mkdir("dev", 0755) || mkdir("etc", 0755))
        give_up(p, "making folders");
    for (size_t i = 0; i < sizeof shown / sizeof *shown; ++i) {
        char from[32] = "/", link[64];
        memcpy(from + 1, shown[i], strlen(shown[i]));
        ssize_t n = readlink(from, link, sizeof link - 1);
        if (n > 0) { /* merged /usr: bin -> usr/bin */
            link[n] = 0;
            if (symlink(link, shown[i])) give_up(p, "linking a folder");
            continue;
        }
        if (access(from, F_OK)) continue;
        if (mkdir(shown[i], 0755) || mount(from, shown[i], NULL, MS_BIND | MS_REC, NULL) ||
            mount(NULL, shown[i], NULL,
                  MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_REC, NULL))
            give_up(p, "binding the system's programs");
    }
    for (size_t i = 0; i < sizeof devices / sizeof *devices; ++i) {
        char from[32] = "/";
        memcpy(from + 1, devices[i], strlen(devices[i]));
        int fd = open(devices[i], O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
        if (fd < 0 || close(fd) || mount(from, devices[i], NULL, MS_BIND, NULL))
            give_up(p, "binding a device");
    }
    if (folder >= 0) {
        bind_folder(p, folder);
        close(folder);
    }
    mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY,
          NULL); /* may be refused */
    if (syscall(SYS_pivot_root, ".", "old") || chdir("/") || umount2("/old", MNT_DETACH) ||
        rmdir("/old") || chdir("/tmp"))
        give_up(p, "entering the root");
}

static bool limit(int what, uint64_t value) {
    struct rlimit l = {.rlim_cur = value, .rlim_max = value};
    return !setrlimit((__rlimit_resource_t)what, &l);
}

static void inner(const struct plan *p) {
    const struct sandbox_limits *l = &p->job->limits;
    static char *const environment[] = {"PATH=/usr/bin:/bin", "HOME=/tmp", "LANG=C.UTF-8",
                                        "PYTHONDONTWRITEBYTECODE=1", NULL};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!p->bare) build_root(p);
    /* processes are counted by user: outside of a namespace ours would count, too */
    if (!limit(RLIMIT_CPU, (uint64_t)l->cpu_s) || !limit(RLIMIT_AS, l->memory_bytes) ||
        !limit(RLIMIT_FSIZE, l->file_bytes) || !limit(RLIMIT_NOFILE, 64) ||
        !limit(RLIMIT_CORE, 0) || (!p->bare && !limit(RLIMIT_NPROC, (uint64_t)l->n_process)))
        give_up(p, "setting limits");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) give_up(p, "giving up privileges");
    if (dup2(p->in, 0) < 0 || dup2(p->out, 1) < 0 || dup2(p->out, 2) < 0) give_up(p, "its pipes");
    close(p->in); /* told closes at exec */
    close(p->out);
    umask(077);
    execve(p->job->argv[0], (char *const *)p->job->argv, environment);
    give_up(p, no_program);
}

/* Leaves standard descriptors and those of the plan: a pipe of ours or of another run that stayed open here would
 * keep its reader waiting. */
static void close_others(const struct plan *p) {
    int keep[3] = {p->in, p->out, p->told};
    for (int i = 0; i < 2; ++i)
        for (int k = 0; k < 2 - i; ++k)
            if (keep[k] > keep[k + 1]) {
                int t = keep[k];
                keep[k] = keep[k + 1];
                keep[k + 1] = t;
            }
    unsigned from = 3;
    for (int i = 0; i < 3; ++i) {
        if (keep[i] > (int)from) syscall(SYS_close_range, from, keep[i] - 1, 0);
        from = (unsigned)keep[i] + 1;
    }
    syscall(SYS_close_range, from, ~0U, 0);
}

static void outer(const struct plan *p) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close_others(p);
    if (p->bare) inner(p);
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC |
                CLONE_NEWUTS))
        give_up(p, "making namespaces");
    put_file("/proc/self/setgroups", "deny"); /* absent on old kernels */
    if (!put_file("/proc/self/uid_map", p->uid_map) || !put_file("/proc/self/gid_map", p->gid_map))
        give_up(p, "mapping the user");
    pid_t pid = fork(); /* process 1 of the new namespace: when it ends, all of it ends */
    if (pid < 0) give_up(p, "starting a process");
    if (!pid) inner(p);
    close(p->in);
    close(p->out);
    close(p->told);
    int status;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

/* ---- in the parent ---- */

/* Writing to a pipe whose reader has died raises a signal: it is held back and taken. A socket in the pipe's place
 * would raise none, but programs cannot open it again as /dev/stdin. */
static ssize_t write_quietly(int fd, const char *p, size_t n) {
    static const struct timespec now = {0};
    sigset_t pipe, old, waiting;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigpending(&waiting);
    pthread_sigmask(SIG_BLOCK, &pipe, &old);
    ssize_t k = write(fd, p, n);
    if (k < 0 && errno == EPIPE && !sigismember(&waiting, SIGPIPE))
        while (sigtimedwait(&pipe, NULL, &now) < 0 && errno == EINTR) {}
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return k;
}

static void pump(const struct sandbox_job *job, int in, int out, struct buf *text,
                 struct sandbox_result *r) {
    int64_t end = clock_ns() + (int64_t)job->limits.wall_ms * 1000000;
    size_t sent = 0, from = text->n;
    for (;;) {
        int64_t left_ms = (end - clock_ns()) / 1000000;
        if (left_ms <= 0 || (job->cancelled && *job->cancelled)) {
            r->timed_out = true;
            break;
        }
        struct pollfd fds[2] = {{.fd = out, .events = POLLIN}, {.fd = in, .events = POLLOUT}};
        int n = poll(fds, in >= 0 ? 2 : 1, left_ms < 50 ? (int)left_ms : 50);
        if (n < 0 && errno != EINTR) break;
        if (n <= 0) continue;
        if (in >= 0 && fds[1].revents) {
            ssize_t k = sent < job->n_input
                            ? write_quietly(in, job->input + sent, job->n_input - sent)
                            : -1;
            if (k > 0) sent += (size_t)k;
            if (k <= 0 || sent == job->n_input) {
                close(in);
                in = -1;
            }
        }
        if (fds[0].revents) {
            char part[4096];
            ssize_t k = read(out, part, sizeof part);
            if (k <= 0) break;
            size_t room = job->limits.output_bytes - (text->n - from);
            buf_put(text, part, (size_t)k < room ? (size_t)k : room);
            if ((size_t)k >= room) {
                r->cut = true;
                break;
            }
        }
    }
    if (in >= 0) close(in);
}

static int run(const struct sandbox_job *job, bool bare, struct buf *out, struct sandbox_result *r,
               struct err *e) {
    *r = (struct sandbox_result){.bare = bare};
    int in[2], text[2], told[2];
    struct plan p = {.job = job, .bare = bare};
    /* not root inside: capabilities end with exec */
    snprintf(p.uid_map, sizeof p.uid_map, "1000 %u 1", geteuid());
    snprintf(p.gid_map, sizeof p.gid_map, "1000 %u 1", getegid());
    if (pipe2(in, O_CLOEXEC)) return err_set(e, CHIMERE_EIO, "sandbox: no pipe");
    if (pipe2(text, O_CLOEXEC)) {
        close(in[0]), close(in[1]);
        return err_set(e, CHIMERE_EIO, "sandbox: no pipe");
    }
    if (pipe2(told, O_CLOEXEC)) {
        close(in[0]), close(in[1]), close(text[0]), close(text[1]);
        return err_set(e, CHIMERE_EIO, "sandbox: no pipe");
    }
    fcntl(in[1], F_SETFL, O_NONBLOCK);
    p.in = in[0], p.out = text[1], p.told = told[1];
    pid_t pid = fork();
    if (!pid) outer(&p);
    close(in[0]), close(text[1]), close(told[1]);
    char why[64] = "";
    int status = 0, rc = 0;
    if (pid < 0) {
        close(in[1]);
        rc = err_set(e, CHIMERE_EIO, "sandbox: no process");
    } else {
        pump(job, in[1], text[0], out, r);
        if (r->timed_out || r->cut) kill(pid, SIGKILL); /* and with it everything inside */
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
        ssize_t n = read(told[0], why, sizeof why - 1);
        why[n > 0 ? n : 0] = 0;
    }
    close(text[0]), close(told[0]);
    if (!strcmp(why, no_program)) {
        rc = err_set(e, CHIMERE_ENOENT,
                     "sandbox: cannot start %.200s: it is not there, or no program", job->argv[0]);
    } else if (why[0]) {
        rc = err_set(e, CHIMERE_EREFUSED, "sandbox: this kernel or container forbids it (%s)", why);
        err_hint(e, "unprivileged user namespaces must be allowed");
    }
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    r->status = code > 128 ? 128 - code : code;
    return rc;
}

int sandbox_run(const struct sandbox_job *job, struct buf *out, struct sandbox_result *r,
                struct err *e) {
    int rc = run(job, false, out, r, e);
    return rc == CHIMERE_EREFUSED && job->may_be_bare ? run(job, true, out, r, e) : rc;
}

void sandbox_text(struct buf *out, const struct buf *raw, const struct sandbox_job *job,
                  const struct sandbox_result *r) {
    for (size_t i = 0; i < raw->n;) {
        int len = utf8_valid_len(raw->p + i, raw->n - i);
        bool good = len > 0 && raw->p[i];
        buf_put(out, good ? raw->p + i : "?", good ? (size_t)len : 1);
        i += good ? (size_t)len : 1;
    }
    if (r->timed_out) buf_printf(out, "\n[stopped after %d ms]", job->limits.wall_ms);
    else if (r->cut) buf_puts(out, "\n[stopped: too much output]");
    else if (r->status) buf_printf(out, "\n[exit status %d]", r->status);
}

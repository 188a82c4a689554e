#include "tools/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"
#include "base/thread.h"
#include "tools/sandbox_impl.h"

enum { TICK_MS = 20, DEATH_MS = 5000 };

void sandbox_defaults(struct sandbox_limits *l) {
    *l = (struct sandbox_limits){.wall_ms = 10000,
                                 .cpu_s = 8,
                                 .memory_bytes = (uint64_t)512 << 20,
                                 .file_bytes = 16 << 20,
                                 .n_process = 32,
                                 .output_bytes = 32 << 10};
}

/* State of one run in the parent process. Descriptors are -1 once closed. */
struct sandbox_watch {
    const struct sandbox_job *job;
    struct sandbox_result *r;
    int pid, pidfd;
    int in, out, control;
    bool has_namespaces;
    bool started, ended;
    char why[96]; /* what the child reported; "": exec succeeded */
    struct buf *text;
    size_t from, n_sent;
    int64_t end_ns, looked_ns;
};

static void close_fd(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

/* Writes without SIGPIPE: writing to a pipe whose reader has died raises a signal, so the signal is blocked and
 * consumed. A socket would raise none, but programs cannot open a socket again as /dev/stdin. */
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

static void feed(struct sandbox_watch *w) {
    const struct sandbox_job *job = w->job;
    ssize_t k = w->n_sent < job->n_input
                    ? write_quietly(w->in, job->input + w->n_sent, job->n_input - w->n_sent)
                    : -1;
    if (k < 0 && (errno == EAGAIN || errno == EINTR) && w->n_sent < job->n_input) return;
    if (k > 0) w->n_sent += (size_t)k;
    if (k <= 0 || w->n_sent == job->n_input) close_fd(&w->in);
}

/* Reads output. A program may close its output and continue to run. */
static void take_output(struct sandbox_watch *w) {
    char part[4096];
    ssize_t k = read(w->out, part, sizeof part);
    if (k < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (k <= 0) {
        close_fd(&w->out);
        return;
    }
    size_t room = w->job->limits.output_bytes - (w->text->n - w->from);
    size_t n = (size_t)k < room ? (size_t)k : room;
    buf_put(w->text, part, n);
    if (w->job->output) w->job->output(w->job->ud, part, n);
    w->r->cut = (size_t)k > room || w->text->failed;
}

static void take_control(struct sandbox_watch *w) {
    ssize_t n = read(w->control, w->why, sizeof w->why - 1);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n > 0) w->why[n] = 0;
    w->started = n <= 0;
    close_fd(&w->control);
}

/* Returns true if a limit or the caller ends the run. */
static bool is_over(struct sandbox_watch *w) {
    const struct sandbox_job *job = w->job;
    struct sandbox_result *r = w->r;
    int64_t now = clock_ns();
    r->cancelled = job->cancelled && *job->cancelled;
    r->timed_out = now >= w->end_ns;
    if (w->started && now - w->looked_ns >= (int64_t)TICK_MS * 1000000) {
        w->looked_ns = now;
        r->too_large = sandbox_exceeds(w->pid, w->has_namespaces, job->limits.memory_bytes);
    }
    return r->cancelled || r->timed_out || r->too_large || r->cut;
}

/* Waits until process 1 is dead and its output is read. All descendants die with process 1, so the pipe ends too. */
static void watch(struct sandbox_watch *w) {
    while (!is_over(w) && !(w->ended && w->out < 0)) {
        struct pollfd fds[] = {{.fd = w->out, .events = POLLIN},
                               {.fd = w->in, .events = POLLOUT},
                               {.fd = w->control, .events = POLLIN},
                               {.fd = w->ended ? -1 : w->pidfd, .events = POLLIN}};
        if (poll(fds, sizeof fds / sizeof *fds, TICK_MS) <= 0) continue;
        if (fds[2].revents) take_control(w);
        if (fds[1].revents) feed(w);
        if (fds[0].revents) take_output(w);
        if (fds[3].revents) w->ended = true;
    }
}

/* Kills process 1 if it still runs, and reaps it. Gives up after DEATH_MS, because a process can be in a state in
 * which it cannot be killed. */
static int reap(struct sandbox_watch *w, int *status) {
    if (!w->ended) syscall(SYS_pidfd_send_signal, w->pidfd, SIGKILL, NULL, 0);
    int64_t end = clock_ns() + (int64_t)DEATH_MS * 1000000;
    pid_t got = 0;
    while (got == 0 && clock_ns() < end) {
        struct pollfd p = {.fd = w->pidfd, .events = POLLIN};
        poll(&p, 1, TICK_MS);
        while ((got = waitpid(w->pid, status, WNOHANG)) < 0 && errno == EINTR) {}
    }
    if (w->control >= 0) take_control(w); /* the child ended before its report was read */
    return got == w->pid ? 0 : CHIMERE_EIO;
}

static bool put_file(int pid, const char *name, const char *text) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0) close(fd);
    return good;
}

/* Maps the sandbox's user. It is not root inside, so capabilities end at exec. If this process is root, the user
 * is mapped to nobody, because process limits do not apply to root. If that user is not mapped, as in a container
 * with a single user, this root is not the machine's root anyway, and is mapped itself. */
static bool map_user(int pid) {
    char uid[64], gid[64];
    snprintf(uid, sizeof uid, "%d %d 1", SANDBOX_UID, SANDBOX_NOBODY);
    if (!geteuid() && put_file(pid, "gid_map", uid)) return put_file(pid, "uid_map", uid);
    snprintf(uid, sizeof uid, "%d %u 1", SANDBOX_UID, geteuid());
    snprintf(gid, sizeof gid, "%d %u 1", SANDBOX_UID, getegid());
    put_file(pid, "setgroups", "deny");
    return put_file(pid, "gid_map", gid) && put_file(pid, "uid_map", uid);
}

/* Like fork, but also returns a pidfd: a signal to a process id could hit another process. */
static int start(const struct sandbox_plan *p, int *pidfd) {
    unsigned long flags = CLONE_PIDFD | SIGCHLD;
    if (p->level == SANDBOX_NAMESPACES)
        flags |=
            CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;
    *pidfd = -1;
    long pid = syscall(SYS_clone, flags, NULL, pidfd, NULL, NULL);
    if (!pid) sandbox_child(p);
    return (int)pid;
}

struct sandbox_pipes {
    int in[2], out[2], control[2];
};

static int open_pipes(struct sandbox_pipes *f, struct err *e) {
    *f = (struct sandbox_pipes){{-1, -1}, {-1, -1}, {-1, -1}};
    if (pipe2(f->in, O_CLOEXEC) || pipe2(f->out, O_CLOEXEC) ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, f->control))
        return err_set(e, CHIMERE_EIO, "sandbox: no pipe (%s)", strerror(errno));
    fcntl(f->in[1], F_SETFL, O_NONBLOCK);
    fcntl(f->out[0], F_SETFL, O_NONBLOCK);
    return 0;
}

static int explain(const struct sandbox_job *job, const char *why, struct err *e) {
    if (!strcmp(why, sandbox_no_program))
        return err_set(e, CHIMERE_ENOENT,
                       "sandbox: cannot start %.200s: it is missing, or not a program",
                       job->argv[0]);
    err_set(e, CHIMERE_EREFUSED, "sandbox: this kernel or container forbids it (%s)", why);
    err_hint(e, "unprivileged user namespaces must be allowed");
    return CHIMERE_EREFUSED;
}

/* Runs the child. The parent's copies of the child's pipe ends are closed first. */
static int run_child(struct sandbox_watch *w, const struct sandbox_plan *p, struct err *e) {
    int status = 0;
    const char go = 1;
    if (p->level == SANDBOX_NAMESPACES && !map_user(w->pid))
        snprintf(w->why, sizeof w->why, "mapping the user");
    else if (send(w->control, &go, 1, MSG_NOSIGNAL) == 1) {
        fcntl(w->control, F_SETFL, O_NONBLOCK);
        watch(w);
    }
    if (reap(w, &status))
        return err_set(e, CHIMERE_EIO, "sandbox: %.200s cannot be ended", w->job->argv[0]);
    if (w->why[0]) return explain(w->job, w->why, e);
    w->r->status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    return w->text->failed == CHIMERE_ENOMEM ? err_set(e, CHIMERE_ENOMEM, "out of memory") : 0;
}

static int run(const struct sandbox_job *job, enum sandbox_least level, struct buf *out,
               struct sandbox_result *r, struct err *e) {
    *r = (struct sandbox_result){.level = level};
    int64_t end = clock_ns() + (int64_t)job->limits.wall_ms * 1000000;
    struct sandbox_plan p = {
        .job = job, .level = level, .folder = -1, .program = -1, .shed_root = !geteuid()};
    p.n_filter = sandbox_filter(p.filter, SANDBOX_MAX_FILTER, level != SANDBOX_NAMESPACES);
    struct sandbox_pipes f;
    int rc = open_pipes(&f, e), pid = -1;
    if (!rc && job->folder && (p.folder = open(job->folder, O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0)
        rc = err_set(e, CHIMERE_ENOENT, "sandbox: %.200s: cannot open the folder", job->folder);
    if (!rc && job->self && (p.program = open("/proc/self/exe", O_PATH | O_CLOEXEC)) < 0)
        rc = err_set(e, CHIMERE_EIO, "sandbox: cannot open this program's own file");
    struct sandbox_watch w = {
        .job = job,
        .r = r,
        .pidfd = -1,
        .has_namespaces = level == SANDBOX_NAMESPACES,
        .text = out,
        .from = out->n,
        .end_ns = job->deadline_ns && job->deadline_ns < end ? job->deadline_ns : end};
    p.in = f.in[0], p.out = f.out[1], p.control = f.control[1];
    if (!rc) {
        pid = start(&p, &w.pidfd);
        if (pid < 0 && errno == EAGAIN)
            rc = err_set(e, CHIMERE_EBUSY, "sandbox: no more processes");
        else if (pid < 0) rc = explain(job, "making namespaces", e);
    }
    close_fd(&f.in[0]), close_fd(&f.out[1]), close_fd(&f.control[1]);
    close_fd(&p.folder), close_fd(&p.program);
    w.pid = pid, w.in = f.in[1], w.out = f.out[0], w.control = f.control[0];
    if (!rc) rc = run_child(&w, &p, e);
    close_fd(&w.in), close_fd(&w.out), close_fd(&w.control), close_fd(&w.pidfd);
    return rc;
}

int sandbox_run(const struct sandbox_job *job, struct buf *out, struct sandbox_result *r,
                struct err *e) {
    struct sandbox_turn turn;
    *r = (struct sandbox_result){0};
    int rc = sandbox_turn_take(&turn, job, e);
    if (rc) return rc;
    size_t from = out->n;
    rc = run(job, SANDBOX_NAMESPACES, out, r, e);
    if (rc == CHIMERE_EREFUSED && job->least >= SANDBOX_FILTERED && sandbox_has_landlock())
        rc = run(job, SANDBOX_FILTERED, out, r, e);
    else if (rc == CHIMERE_EREFUSED && job->least == SANDBOX_BARE)
        rc = run(job, SANDBOX_BARE, out, r, e);
    if (rc && out->n > from) buf_cut(out, from);
    sandbox_turn_give(&turn);
    return rc;
}

bool sandbox_succeeded(const struct sandbox_result *r) {
    return !r->status && !r->timed_out && !r->cut && !r->cancelled && !r->too_large;
}

void sandbox_text(struct buf *out, const struct buf *raw, const struct sandbox_job *job,
                  const struct sandbox_result *r) {
    for (size_t i = 0; i < raw->n;) {
        int len = utf8_valid_len(raw->p + i, raw->n - i);
        bool good = len > 0 && raw->p[i];
        buf_put(out, good ? raw->p + i : "?", good ? (size_t)len : 1);
        i += good ? (size_t)len : 1;
    }
    if (r->cancelled) buf_puts(out, "\n[stopped: cancelled]");
    else if (r->too_large)
        buf_printf(out, "\n[stopped: more than %llu MiB of memory]",
                   (unsigned long long)job->limits.memory_bytes >> 20);
    else if (r->timed_out) buf_printf(out, "\n[stopped after %d ms]", job->limits.wall_ms);
    else if (r->cut) buf_puts(out, "\n[stopped: too much output]");
    else if (r->status) buf_printf(out, "\n[exit status %d]", r->status);
}

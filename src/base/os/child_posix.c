#include "base/os/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/os/fs.h"

enum { CHILD_FD = 3, CHILD_SHARED = 4 };

static void close_ends(struct child *c) {
    if (c->map) munmap(c->map, c->n_map);
    if (c->fd >= 0) close(c->fd);
    if (c->shared >= 0) close(c->shared);
    c->map = NULL;
    c->fd = c->shared = -1;
}

int child_close_from(void *actions, int from) {
#if __GLIBC_PREREQ(2, 34)
    return posix_spawn_file_actions_addclosefrom_np(actions, from);
#else /* what other threads open meanwhile has FD_CLOEXEC */
    struct fs_folder *d = fs_open("/proc/self/fd");
    if (!d) d = fs_open("/dev/fd"); /* macOS */
    const char *name;
    int rc = d ? 0 : errno;
    while (!rc && (name = fs_next(d))) {
        int fd;
        if (sscanf(name, "%d", &fd) == 1 && fd >= from && !(fcntl(fd, F_GETFD) & FD_CLOEXEC))
            rc = posix_spawn_file_actions_addclose(actions, fd);
    }
    fs_close(d);
    return rc;
#endif
}

static int spawn(struct child *c, int theirs, const char *path, const char *command) {
    char name[] = "chimere", argument[64];
    snprintf(argument, sizeof argument, "%s", command);
    char *argv[] = {name, argument, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none;
    pid_t pid = 0;
    sigemptyset(&none);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attr);
    /* a separate process group: an interrupt from the terminal reaches only the parent, which then ends the child */
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawn_file_actions_adddup2(&actions, theirs, CHILD_FD);
    posix_spawn_file_actions_adddup2(&actions, c->shared, CHILD_SHARED);
    child_close_from(&actions, CHILD_SHARED + 1);
    int rc = posix_spawn(&pid, path, &actions, &attr, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    c->pid = pid;
    return rc;
}

/* Duplicates a descriptor to a number above those of the child's ends, so that these do not overwrite each other. */
static int above(int fd) {
    int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 16);
    if (fd >= 0) close(fd);
    return high;
}

int child_start(struct child *c, const char *command, struct err *e) {
    char path[4096];
    int ends[2] = {-1, -1};
    *c = (struct child){.fd = -1, .shared = -1};
    int rc = file_program(path, sizeof path, e);
    if (rc) return rc;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        return err_set(e, CHIMERE_EIO, "a process: no socket: %s", strerror(errno));
    c->fd = above(ends[0]);
    ends[1] = above(ends[1]);
    c->shared = above(memfd_create("chimere", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    bool ok = c->fd >= 0 && ends[1] >= 0 && c->shared >= 0;
    int failed = ok ? spawn(c, ends[1], path, command) : errno;
    if (ends[1] >= 0) close(ends[1]);
    if (!failed) return 0;
    close_ends(c);
    return err_set(e, CHIMERE_EIO, "a process: %s cannot be started: %s", path, strerror(failed));
}

void child_self(struct child *c) {
    *c = (struct child){.fd = CHILD_FD, .shared = CHILD_SHARED};
    fcntl(CHILD_FD, F_SETFD, FD_CLOEXEC);
    fcntl(CHILD_SHARED, F_SETFD, FD_CLOEXEC);
}

bool child_write(struct child *c, const void *data, size_t n) {
    for (const char *p = data; n;) {
        ssize_t k = send(c->fd, p, n, MSG_NOSIGNAL);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

bool child_read(struct child *c, void *data, size_t n) {
    for (char *p = data; n;) {
        ssize_t k = recv(c->fd, p, n, 0);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

int child_share(struct child *c, size_t n, struct err *e) {
    /* sealed, so that the other side cannot shrink the memory while it is being read */
    if (c->pid) {
        if (ftruncate(c->shared, (off_t)n) ||
            fcntl(c->shared, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW))
            return err_set(e, CHIMERE_ENOMEM, "a process: no shared memory of %zu bytes", n);
    }
    void *map = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, c->shared, 0);
    if (map == MAP_FAILED)
        return err_set(e, CHIMERE_ENOMEM, "a process: no shared memory of %zu bytes", n);
    c->map = map;
    c->n_map = n;
    return 0;
}

void child_end(struct child *c, char *how, size_t n) {
    int status = 0;
    close_ends(c);
    if (how) snprintf(how, n, "ended");
    if (!c->pid) return;
    while (waitpid((pid_t)c->pid, &status, 0) < 0 && errno == EINTR) {}
    if (how && WIFSIGNALED(status))
        snprintf(how, n, "was ended by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else if (how) snprintf(how, n, "ended with status %d", WEXITSTATUS(status));
    c->pid = 0;
}

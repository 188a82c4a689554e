#include "tools/mcp_child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/os/child.h"
#include "base/str.h"

enum { MAX_ARGS = 32, MAX_ENV = 64 };

/* Variables that the MCP client libraries also pass on. Others are withheld, because a server is a foreign program
 * and this process's environment may contain keys. */
static const char *const inherited[] = {"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"};

static bool is_named(const char *row, const char *server, const char *const *names, size_t n_name) {
    size_t n = strcspn(row, "="), n_server = strlen(server);
    for (size_t i = 0; i < sizeof inherited / sizeof *inherited; ++i)
        if (strlen(inherited[i]) == n && !memcmp(row, inherited[i], n)) return true;
    for (size_t i = 0; i < n_name; ++i) {
        if (!str_starts(names[i], server) || names[i][n_server] != '=') continue;
        const char *name = names[i] + n_server + 1;
        if (strlen(name) == n && !memcmp(row, name, n)) return true;
    }
    return false;
}

static int spawn(struct mcp_child *c, char **argv, char **env, int in, int out) {
    posix_spawn_file_actions_t acts;
    posix_spawnattr_t attr;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    if (posix_spawn_file_actions_init(&acts)) return CHIMERE_ENOMEM;
    if (posix_spawnattr_init(&attr)) {
        posix_spawn_file_actions_destroy(&acts);
        return CHIMERE_ENOMEM;
    }
    int rc = posix_spawn_file_actions_adddup2(&acts, in, 0);
    if (!rc) rc = posix_spawn_file_actions_adddup2(&acts, out, 1);
    if (!rc) rc = posix_spawn_file_actions_addopen(&acts, 2, "/dev/null", O_WRONLY, 0);
    if (!rc) rc = child_close_from(&acts, 3);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setpgroup(&attr, 0);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                        POSIX_SPAWN_SETPGROUP);
    if (!rc) rc = posix_spawnp(&c->pid, argv[0], &acts, &attr, argv, env);
    posix_spawn_file_actions_destroy(&acts);
    posix_spawnattr_destroy(&attr);
    if (rc) c->pid = 0;
    return rc ? CHIMERE_ENOENT : 0;
}

int mcp_child_start(struct mcp_child *c, const char *server, const char *command,
                    const char *const *names, size_t n_name, struct err *e) {
    char *argv[MAX_ARGS + 1], *env[MAX_ENV + 1], *word;
    char *words = mem_strdup(command), *rest = words;
    int n = 0, n_env = 0, to[2] = {-1, -1}, from[2] = {-1, -1}, rc = 0;
    *c = (struct mcp_child){.in = -1, .out = -1};
    while (words && (word = strsep(&rest, " ")))
        if (*word && n < MAX_ARGS) argv[n++] = word;
    argv[n] = NULL;
    for (char **row = environ; *row && n_env < MAX_ENV; ++row)
        if (is_named(*row, server, names, n_name)) env[n_env++] = *row;
    env[n_env] = NULL;
    if (!words) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    else if (!n) rc = err_set(e, CHIMERE_EINVAL, "mcp %s: expected a command", server);
    /* input is a socket, because writing to a pipe whose reader has died raises a signal */
    else if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, to) || pipe2(from, O_CLOEXEC))
        rc = err_set(e, CHIMERE_EIO, "mcp %s: no pipe", server);
    if (!rc && (rc = spawn(c, argv, env, to[0], from[1])))
        err_set(e, rc, "mcp %s: cannot start %s", server, argv[0]);
    mem_free(words);
    if (to[0] >= 0) close(to[0]);
    if (from[1] >= 0) close(from[1]);
    c->in = to[1], c->out = from[0];
    if (rc) mcp_child_stop(c, 1);
    else fcntl(c->in, F_SETFL, O_NONBLOCK);
    return rc;
}

void mcp_child_stop(struct mcp_child *c, int at_once) {
    int status;
    if (c->in >= 0) close(c->in); /* a closed input asks the server to end by itself */
    if (c->pid > 0) {
        bool over = false;
        for (int i = 0; i < 20 && !at_once && !over; ++i) {
            over = waitpid(c->pid, &status, WNOHANG) != 0;
            if (i == 10 && !over) kill(-c->pid, SIGTERM);
            if (!over) poll(NULL, 0, 50);
        }
        if (!over) {
            kill(-c->pid, SIGKILL);
            waitpid(c->pid, &status, 0);
        }
    }
    if (c->out >= 0) close(c->out);
    *c = (struct mcp_child){.in = -1, .out = -1};
}

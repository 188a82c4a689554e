#include "serve/http/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "base/str.h"

enum { BACKLOG = 256, OLLAMA_PORT = 11434 };

const char *listen_unix_path(const char *host) {
    return str_starts(host, "unix:") ? host + strlen("unix:") : NULL;
}

int listen_read_address(const char *host, int port, struct sockaddr_storage *out, struct err *e) {
    struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)out;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)(void *)out;
    memset(out, 0, sizeof *out);
    if (strcmp(host, "localhost") == 0) host = "127.0.0.1";
    if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)port);
        return 0;
    }
    if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons((uint16_t)port);
        return 0;
    }
    return err_set(e, CHIMERE_EINVAL,
                   "host: expected an address such as 127.0.0.1, or unix:PATH, got %.80s", host);
}

static int read_unix(const char *path, struct sockaddr_un *out, struct err *e) {
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (!path[0] || strlen(path) >= sizeof out->sun_path)
        return err_set(e, CHIMERE_EINVAL, "host: expected unix: and a path of 1 to %zu bytes",
                       sizeof out->sun_path - 1);
    memcpy(out->sun_path, path, strlen(path) + 1);
    return 0;
}

int listen_check(const char *host, int port, struct err *e) {
    struct sockaddr_storage address;
    struct sockaddr_un local;
    const char *path = listen_unix_path(host);
    return path ? read_unix(path, &local, e) : listen_read_address(host, port, &address, e);
}

/* ---- sockets ---- */

static int listen_tcp(const char *host, int port, int *out, struct err *e) {
    struct sockaddr_storage addr;
    int rc = listen_read_address(host, port, &addr, e), one = 1;
    if (rc) return rc;
    bool v6 = addr.ss_family == AF_INET6;
    socklen_t n = v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    int fd = socket(addr.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    bool ok = fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) &&
              (!v6 || !setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one)) &&
              !bind(fd, (struct sockaddr *)&addr, n) && !listen(fd, BACKLOG);
    if (ok) {
        *out = fd;
        return 0;
    }
    err_set(e, CHIMERE_EIO, "cannot listen on %s port %d: %s", host, port, strerror(errno));
    err_hint(e, port == OLLAMA_PORT ? "Ollama itself may be running"
                                    : "another program may use the port");
    if (fd >= 0) close(fd);
    return CHIMERE_EIO;
}

/* The file of a Unix socket remains after a server is killed. It is removed only if no server listens on it. */
static int clear_stale(const char *path, const struct sockaddr_un *addr, struct err *e) {
    struct stat st;
    if (lstat(path, &st)) return 0;
    if (!S_ISSOCK(st.st_mode))
        return err_set(e, CHIMERE_EINVAL, "host: %s is there, and is no socket", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return err_set(e, CHIMERE_EIO, "cannot open a socket: %s", strerror(errno));
    bool stale = connect(fd, (const struct sockaddr *)addr, sizeof *addr) && errno == ECONNREFUSED;
    close(fd);
    if (!stale) return err_set(e, CHIMERE_EIO, "host: another program listens on %s", path);
    if (unlink(path)) return err_set(e, CHIMERE_EIO, "cannot remove %s: %s", path, strerror(errno));
    return 0;
}

static int listen_unix(const char *path, struct listener *out, struct err *e) {
    struct sockaddr_un addr;
    struct stat st;
    int rc = read_unix(path, &addr, e);
    if (!rc) rc = clear_stale(path, &addr, e);
    if (rc) return rc;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    /* set the mode before bind: Linux applies it to the file, so that no other user can connect in between */
    bool ok = fd >= 0 && !fchmod(fd, 0600) && !bind(fd, (struct sockaddr *)&addr, sizeof addr) &&
              !chmod(path, 0600) && !listen(fd, BACKLOG) && !lstat(path, &st);
    if (!ok) {
        err_set(e, CHIMERE_EIO, "cannot listen on %s: %s", path, strerror(errno));
        if (fd >= 0) close(fd);
        return CHIMERE_EIO;
    }
    *out = (struct listener){.fd = fd, .path = path, .inode = (uint64_t)st.st_ino};
    return 0;
}

/* ---- the listeners of a server ---- */

static int add(struct server *s, const char *host, int port, struct err *e) {
    struct listener l = {.fd = -1};
    const char *path = listen_unix_path(host);
    if (s->n_listener == LISTEN_MAX)
        return err_set(e, CHIMERE_ELIMIT, "host: expected at most %d", LISTEN_MAX);
    int fd = -1, rc = path ? listen_unix(path, &l, e) : listen_tcp(host, port, &fd, e);
    if (rc) return rc;
    if (!path) l.fd = fd;
    s->listeners[s->n_listener] = l;
    struct epoll_event ev = {.events = EPOLLIN, .data.fd = l.fd};
    s->n_listener++; /* before the watcher can report it */
    if (epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, l.fd, &ev))
        return err_set(e, CHIMERE_EIO, "cannot watch %s", host);
    return 0;
}

int listen_open(struct server *s, struct err *e) {
    int rc = 0, port = serve_port(s) ? serve_port(s) : s->p.port;
    if (listen_unix_path(s->p.host)) rc = add(s, s->p.host, port, e);
    for (size_t i = 0; i < s->p.n_more_host && !rc; i++) rc = add(s, s->p.more_hosts[i], port, e);
    if (!rc && s->p.ollama) rc = add(s, "127.0.0.1", OLLAMA_PORT, e);
    return rc;
}

static void watch_for(struct server *s, int fd, uint32_t events) {
    struct epoll_event ev = {.events = events, .data.fd = fd};
    epoll_ctl(s->epoll_fd, EPOLL_CTL_MOD, fd, &ev);
}

bool listen_accept(struct server *s, int fd) {
    struct sockaddr_storage from = {.ss_family = AF_UNIX};
    socklen_t n = sizeof from;
    int i = 0;
    while (i < s->n_listener && s->listeners[i].fd != fd) i++;
    if (i == s->n_listener) return false;
    int conn = accept4(fd, (struct sockaddr *)&from, &n, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (conn < 0) {
        if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return true;
        log_warn("no file descriptor is left for another connection (ulimit -n)");
        /* until listen_resume: a waiting connection would be reported again and again */
        watch_for(s, fd, 0);
        s->listeners[i].paused = true;
        return true;
    }
    if (s->listeners[i].path) from.ss_family = AF_UNIX, n = sizeof(struct sockaddr_un);
    /* on failure, libmicrohttpd has closed the socket already */
    if (MHD_add_connection(s->mhd, conn, (struct sockaddr *)&from, n) != MHD_YES)
        log_debug("http: a connection was refused");
    return true;
}

void listen_resume(struct server *s) {
    for (int i = 0; i < s->n_listener; i++) {
        if (!s->listeners[i].paused) continue;
        s->listeners[i].paused = false;
        watch_for(s, s->listeners[i].fd, EPOLLIN);
    }
}

void listen_stop(struct server *s) {
    for (int i = 0; i < s->n_listener; i++) {
        const struct listener *l = &s->listeners[i];
        struct stat st;
        epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, l->fd, NULL);
        /* another server may have replaced the file */
        if (l->path && !lstat(l->path, &st) && (uint64_t)st.st_ino == l->inode) unlink(l->path);
        shutdown(l->fd, SHUT_RDWR);
    }
}

void listen_close(struct server *s) {
    for (int i = 0; i < s->n_listener; i++) close(s->listeners[i].fd);
    s->n_listener = 0;
}

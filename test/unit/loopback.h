/* A web server of a few lines on a loopback port, for tests: a handler writes the whole response. */
#ifndef CHIMERE_TEST_LOOPBACK_H
#define CHIMERE_TEST_LOOPBACK_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct loopback {
    int fd, port;
    pthread_t thread;
    /* Answers one request: path with query, all its head and body; writes to the socket. */
    void (*handle)(struct loopback *l, int fd, const char *path, const char *request);
    _Atomic int n_request;
    char log[64][300];
};

static inline void loopback_reply(int fd, const char *status, const char *type, const char *body) {
    char head[400];
    int n = snprintf(
        head, sizeof head,
        "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
        status, type, strlen(body));
    ssize_t k = send(fd, head, (size_t)n, MSG_NOSIGNAL);
    k = send(fd, body, strlen(body), MSG_NOSIGNAL);
    (void)k;
}

struct loopback_one {
    struct loopback *l;
    int fd;
};

static inline void *loopback_serve(void *ud) {
    struct loopback_one o = *(struct loopback_one *)ud;
    free(ud);
    char request[16384], path[2048] = "";
    size_t n = 0;
    while (n < sizeof request - 1) {
        ssize_t k = recv(o.fd, request + n, sizeof request - 1 - n, 0);
        if (k <= 0) break;
        n += (size_t)k;
        request[n] = 0;
        char *end = strstr(request, "\r\n\r\n"), *len = strcasestr(request, "content-length:");
        if (end &&
            n >= (size_t)(end + 4 - request) + (len && len < end ? (size_t)atoi(len + 15) : 0))
            break;
    }
    if (n) sscanf(request, "%*s %2047s", path);
    int at = o.l->n_request++;
    if (at < 64) snprintf(o.l->log[at], sizeof o.l->log[at], "%.299s", path);
    o.l->handle(o.l, o.fd, path, request);
    shutdown(o.fd, SHUT_RDWR);
    close(o.fd);
    return NULL;
}

static inline void *loopback_accept(void *ud) {
    struct loopback *l = ud;
    for (int fd; (fd = accept(l->fd, NULL, NULL)) >= 0;) {
        struct loopback_one *o = malloc(sizeof *o);
        pthread_t t;
        *o = (struct loopback_one){l, fd};
        pthread_create(&t, NULL, loopback_serve, o);
        pthread_detach(t);
    }
    return NULL;
}

static inline void loopback_open(struct loopback *l, void (*handle)(struct loopback *, int,
                                                                    const char *, const char *)) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    memset(l, 0, sizeof *l);
    l->handle = handle;
    l->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(l->fd, (struct sockaddr *)&a, sizeof a) || listen(l->fd, 64) ||
        getsockname(l->fd, (struct sockaddr *)&a, &n))
        abort();
    l->port = ntohs(a.sin_port);
    pthread_create(&l->thread, NULL, loopback_accept, l);
}

static inline void loopback_close(struct loopback *l) {
    shutdown(l->fd, SHUT_RDWR);
    close(l->fd);
    pthread_join(l->thread, NULL);
}

#endif

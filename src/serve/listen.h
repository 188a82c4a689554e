/* listen.h: addresses beside the one that libmicrohttpd listens on: further hosts, Unix sockets.
 *
 * The thread of watch.c accepts what comes there and passes it to libmicrohttpd, so that limits, TLS and requests are
 * those of every connection. */
#ifndef CHIMERE_SERVE_LISTEN_H
#define CHIMERE_SERVE_LISTEN_H

#include <sys/socket.h>

#include "serve/http_impl.h"

enum { LISTEN_MAX = SERVE_MAX_LISTENER };

/* The path of "unix:PATH", or NULL. */
const char *listen_unix_path(const char *host);
/* A numeric address, or "localhost". */
int listen_read_address(const char *host, int port, struct sockaddr_storage *out, struct err *e);
/* What either of the two above would refuse, without listening. */
int listen_check(const char *host, int port, struct err *e);
/* Opens all but the first host of the server's list (and that one if it is a Unix socket) and, with params.ollama,
 * 127.0.0.1:11434. After libmicrohttpd and the watcher have started. */
int listen_open(struct server *s, struct err *e);
/* On the watcher's thread: true if fd is one of these; then a connection was accepted. */
bool listen_accept(struct server *s, int fd);
/* On the watcher's thread, now and then: listens again after descriptors had run out. */
void listen_resume(struct server *s);
/* No further connections; Unix sockets are removed. Once. */
void listen_stop(struct server *s);
/* After the watcher, which may be accepting until it ends. */
void listen_close(struct server *s);

#endif

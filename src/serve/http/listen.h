/* listen.h: additional addresses besides the one on which libmicrohttpd listens: further hosts, Unix sockets.
 *
 * The thread of watch.c accepts their connections and passes them to libmicrohttpd, so that limits, TLS and requests
 * work as for all other connections. */
#ifndef CHIMERE_SERVE_LISTEN_H
#define CHIMERE_SERVE_LISTEN_H

#include <sys/socket.h>

#include "serve/http/http_impl.h"

enum { LISTEN_MAX = SERVE_MAX_LISTENER };

/* Returns the path in "unix:PATH", or NULL. */
const char *listen_unix_path(const char *host);
/* Reads a numeric address, or "localhost". */
int listen_read_address(const char *host, int port, struct sockaddr_storage *out, struct err *e);
/* Reports what the two functions above would refuse, without listening. */
int listen_check(const char *host, int port, struct err *e);
/* Opens all hosts of the server's list except the first (and that one too if it is a Unix socket). With params.ollama,
 * also 127.0.0.1:11434. Call after libmicrohttpd and the watcher have started. */
int listen_open(struct server *s, struct err *e);
/* On the watcher's thread: returns true if fd is one of these listeners; a connection was then accepted. */
bool listen_accept(struct server *s, int fd);
/* On the watcher's thread, periodically: listens again after file descriptors had run out. */
void listen_resume(struct server *s);
/* Accepts no further connections and removes Unix sockets. Call once. */
void listen_stop(struct server *s);
/* Call after the watcher has ended, because it may be accepting until then. */
void listen_close(struct server *s);

#endif

/* watch.c: a thread that handles timeouts (pings, deadlines, requests that arrive too slowly) and notices at once when
 * a client leaves, because libmicrohttpd does not watch a suspended connection.
 *
 * A client that closes its sending side counts as gone: a closed socket looks the same to the server. */
#include <errno.h>
#include <malloc.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "serve/http/http_impl.h"
#include "serve/http/listen.h"

uint64_t http_bytes_received(int fd);

enum { TICK_MS = 500, N_EVENT = 32 };
enum { LEFT_NS = 1000000000 }; /* for requests that libmicrohttpd has read, but not begun */

void watch_add(struct http_request *r) {
    pthread_mutex_lock(&r->s->live_lock);
    if (r->sock) {
        struct epoll_event ev = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.fd = r->sock->fd};
        if (epoll_ctl(r->s->epoll_fd, EPOLL_CTL_ADD, r->sock->fd, &ev) && errno == EEXIST)
            epoll_ctl(r->s->epoll_fd, EPOLL_CTL_MOD, r->sock->fd, &ev);
    }
    pthread_mutex_unlock(&r->s->live_lock);
}

void watch_remove(struct http_request *r) {
    pthread_mutex_lock(&r->s->live_lock);
    if (r->sock) epoll_ctl(r->s->epoll_fd, EPOLL_CTL_DEL, r->sock->fd, NULL);
    pthread_mutex_unlock(&r->s->live_lock);
}

/* Call with live_lock held; keeps r alive until http_unref. */
static bool hold(struct http_request *r) {
    pthread_mutex_lock(&r->lock);
    bool alive = r->n_ref > 0;
    if (alive) r->n_ref++;
    pthread_mutex_unlock(&r->lock);
    return alive;
}

static void leave(struct http_request *r) {
    pthread_mutex_lock(&r->lock);
    r->gone = true;
    http_unlock_and_wake(r); /* libmicrohttpd sees that it is closed and completes it */
    http_tell_gone(r);
}

static void client_left(struct server *s, int fd) {
    struct http_request *found = NULL;
    pthread_mutex_lock(&s->live_lock);
    for (struct http_request *r = s->live; r && !found; r = r->next)
        if (r->sock && r->sock->fd == fd && hold(r)) found = r;
    /* in the middle of a request: libmicrohttpd would wait for its rest */
    if (found && found->sock->reading) shutdown(fd, SHUT_RDWR);
    pthread_mutex_unlock(&s->live_lock);
    if (!found) return;
    leave(found);
    http_unref(found);
}

enum due { DUE_NOTHING, DUE_PING, DUE_STOP };

static enum due look(struct http_request *r, int64_t now) {
    enum due due = DUE_NOTHING;
    pthread_mutex_lock(&r->lock);
    int64_t silent = now - r->last_ns;
    if (r->job_open && r->deadline_ns && now > r->deadline_ns && !r->told) due = DUE_STOP;
    else if (r->job_open && r->state == HTTP_STREAM && r->job.ping &&
             silent > (int64_t)r->s->ping_s * 1000000000)
        due = DUE_PING;
    if (due && r->n_ref > 0) r->n_ref++;
    else due = DUE_NOTHING;
    pthread_mutex_unlock(&r->lock);
    return due;
}

static void check_requests(struct server *s, int64_t now) {
    enum { BATCH = 64 };
    struct http_request *todo[BATCH];
    enum due dues[BATCH];
    int n = 0;
    pthread_mutex_lock(&s->live_lock);
    for (struct http_request *r = s->live; r && n < BATCH; r = r->next) {
        dues[n] = look(r, now);
        if (dues[n]) todo[n++] = r;
    }
    pthread_mutex_unlock(&s->live_lock);
    for (int i = 0; i < n; i++) {
        if (dues[i] == DUE_PING) http_put(todo[i], todo[i]->job.ping, strlen(todo[i]->job.ping));
        else http_tell_gone(todo[i]);
        http_unref(todo[i]);
    }
}

/* Where the end of a client's data comes with its request, libmicrohttpd does not hear of it: it would keep the connection
 * until the idle timeout. */
static bool has_left(const struct http_conn *c) {
    char byte;
    return recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* Returns true for a socket that has sent part of a request and is too slow with the rest, or that will send no more. */
static bool is_over(struct http_conn *c, int64_t now) {
    int64_t limit = (int64_t)c->s->p.receive_s * 1000000000;
    if (c->busy || c->fd < 0) return false;
    if (c->reading) return now - c->since_ns > limit;
    bool left = has_left(c);
    if (!left && http_bytes_received(c->fd) <= c->n_byte) return false;
    if (!c->partial_ns) c->partial_ns = now;
    return now - c->partial_ns > (left ? LEFT_NS : limit);
}

static void check_sockets(struct server *s, int64_t now) {
    pthread_mutex_lock(&s->live_lock);
    for (struct http_conn *c = s->conns; c; c = c->next)
        if (is_over(c, now)) shutdown(c->fd, SHUT_RDWR);
    pthread_mutex_unlock(&s->live_lock);
}

static void *watch(void *arg) {
    struct server *s = arg;
    struct epoll_event events[N_EVENT];
    int64_t tick = clock_ns();
    for (;;) {
        int n = epoll_wait(s->epoll_fd, events, N_EVENT, TICK_MS);
        for (int i = 0; i < n; i++) {
            if (events[i].data.fd == s->wake_fd) return NULL;
            if (!listen_accept(s, events[i].data.fd)) client_left(s, events[i].data.fd);
        }
        int64_t now = clock_ns();
        if (now - tick < (int64_t)TICK_MS * 1000000) continue;
        tick = now;
        check_requests(s, now);
        check_sockets(s, now);
        listen_resume(s);
        auth_refresh(s->auth);
        if (s->wants_trim) {
            s->wants_trim = false;
            malloc_trim(0);
        }
    }
}

int watch_start(struct server *s, struct err *e) {
    s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    s->wake_fd = eventfd(0, EFD_CLOEXEC);
    struct epoll_event ev = {.events = EPOLLIN, .data.fd = s->wake_fd};
    if (s->epoll_fd < 0 || s->wake_fd < 0 ||
        epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, s->wake_fd, &ev) ||
        pthread_create(&s->watcher, NULL, watch, s))
        return err_set(e, CHIMERE_EIO, "cannot watch connections");
    s->has_watcher = true;
    return 0;
}

void watch_stop(struct server *s) {
    uint64_t one = 1;
    if (s->has_watcher && write(s->wake_fd, &one, sizeof one) == sizeof one)
        pthread_join(s->watcher, NULL);
    if (s->epoll_fd >= 0) close(s->epoll_fd);
    if (s->wake_fd >= 0) close(s->wake_fd);
    s->has_watcher = false;
    s->epoll_fd = s->wake_fd = -1;
}

/* epoll_win.c: sys/epoll.h and sys/eventfd.h. One set for the process, because the program has one server. Changes are
 * noticed within SLICE_MS, so that no socket pair is needed to wake WSAPoll. */
#include <sys/epoll.h>
#include <sys/socket.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include <sys/eventfd.h>

enum { MAX_FD = 4096, SLICE_MS = 20, EPOLL_FD = 0x7ffffff0, EVENT_FD };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct epoll_event watched[MAX_FD];
static int n_watched;
static _Atomic bool signalled;

int epoll_create1(int flags) {
    (void)flags;
    n_watched = 0;
    atomic_store(&signalled, false);
    return EPOLL_FD;
}

int eventfd(unsigned value, int flags) {
    (void)value, (void)flags;
    return EVENT_FD;
}

int epoll_signal(int event) {
    (void)event;
    atomic_store(&signalled, true);
    return 0;
}

int epoll_close(int fd) {
    (void)fd;
    return 0;
}

int epoll_ctl(int epoll, int what, int fd, struct epoll_event *ev) {
    (void)epoll;
    if (fd == EVENT_FD) return 0;
    pthread_mutex_lock(&lock);
    int i = 0, failed = 0;
    while (i < n_watched && watched[i].data.fd != fd) i++;
    bool has = i < n_watched;
    if (what == EPOLL_CTL_ADD && has) failed = EEXIST;
    else if (what != EPOLL_CTL_ADD && !has) failed = ENOENT;
    else if (what == EPOLL_CTL_DEL) watched[i] = watched[--n_watched];
    else if (i == MAX_FD) failed = ENOSPC;
    else {
        watched[i] = *ev;
        n_watched += !has;
    }
    pthread_mutex_unlock(&lock);
    if (failed) errno = failed;
    return failed ? -1 : 0;
}

/* A closed connection is readable, and has no bytes. */
static bool has_left(SOCKET fd) {
    char byte;
    return recv(fd, &byte, 1, MSG_PEEK) <= 0 && WSAGetLastError() != WSAEWOULDBLOCK;
}

static int look(struct epoll_event *out, int n, int ms) {
    static WSAPOLLFD fds[MAX_FD];
    int n_fd = 0, found = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n_watched; i++)
        if (watched[i].events & (EPOLLIN | EPOLLRDHUP))
            fds[n_fd++] = (WSAPOLLFD){.fd = (SOCKET)watched[i].data.fd, .events = POLLRDNORM};
    pthread_mutex_unlock(&lock);
    if (n_fd) WSAPoll(fds, (ULONG)n_fd, ms);
    else Sleep((DWORD)ms);
    pthread_mutex_lock(&lock);
    for (int k = 0; k < n_fd && found < n; k++) {
        if (!fds[k].revents) continue;
        int i = 0;
        while (i < n_watched && (SOCKET)watched[i].data.fd != fds[k].fd) i++;
        if (i == n_watched) continue;
        struct epoll_event *w = &watched[i];
        /* What was seen may be of a connection that has ended, whose number another has now. */
        if (!(w->events & EPOLLIN) && !has_left(fds[k].fd)) continue;
        out[found++] = *w;
        if (w->events & EPOLLONESHOT) w->events = EPOLLONESHOT;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

int epoll_wait(int epoll, struct epoll_event *out, int n, int ms) {
    (void)epoll;
    for (int spent = 0;; spent += SLICE_MS) {
        if (atomic_load(&signalled)) {
            out[0] = (struct epoll_event){.events = EPOLLIN, .data.fd = EVENT_FD};
            return 1;
        }
        int found = spent < ms ? look(out, n, SLICE_MS) : 0;
        if (found || spent >= ms) return found;
        if (spent + SLICE_MS < ms) Sleep(1); /* readable sockets that are not reported would spin */
    }
}

#undef socket

int win_socket(int family, int kind, int protocol) {
    u_long yes = 1;
    SOCKET s = socket(family, kind & ~SOCK_NONBLOCK, protocol);
    if (s == INVALID_SOCKET) {
        errno = EAFNOSUPPORT;
        return -1;
    }
    if (kind & SOCK_NONBLOCK) ioctlsocket(s, FIONBIO, &yes);
    return (int)s;
}

int win_accept4(int fd, struct sockaddr *from, socklen_t *n, int flags) {
    u_long yes = 1;
    SOCKET s = accept((SOCKET)fd, from, n);
    if (s == INVALID_SOCKET) {
        errno = EAGAIN;
        return -1;
    }
    if (flags & SOCK_NONBLOCK) ioctlsocket(s, FIONBIO, &yes);
    return (int)s;
}

int win_close_socket(int fd) { return closesocket((SOCKET)fd); }

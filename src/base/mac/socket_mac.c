/* socket_mac.c: flags of sockets and pipes, sys/epoll.h and sys/eventfd.h. */
#undef socket
#undef socketpair

#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/event.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int with_flags(int fd, int flags) {
    if (fd < 0) return fd;
    if (flags & (SOCK_CLOEXEC | O_CLOEXEC)) fcntl(fd, F_SETFD, FD_CLOEXEC);
    if (flags & (SOCK_NONBLOCK | O_NONBLOCK)) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    return fd;
}

enum { FLAGS = SOCK_CLOEXEC | SOCK_NONBLOCK };

int mac_socket(int family, int kind, int protocol) {
    return with_flags(socket(family, kind & ~FLAGS, protocol), kind & FLAGS);
}

int mac_socketpair(int family, int kind, int protocol, int out[2]) {
    if (socketpair(family, kind & ~FLAGS, protocol, out)) return -1;
    with_flags(out[0], kind & FLAGS);
    with_flags(out[1], kind & FLAGS);
    return 0;
}

int mac_accept4(int fd, struct sockaddr *from, socklen_t *n, int flags) {
    return with_flags(accept(fd, from, n), flags);
}

int mac_pipe2(int out[2], int flags) {
    if (pipe(out)) return -1;
    with_flags(out[0], flags);
    with_flags(out[1], flags);
    return 0;
}

int epoll_create1(int flags) {
    (void)flags; /* a kqueue is not inherited */
    return kqueue();
}

/* Bytes do not wake whoever waits for the end of a connection: no buffer reaches that mark. */
int epoll_ctl(int epoll, int what, int fd, struct epoll_event *ev) {
    struct kevent k;
    bool ends = ev && ev->events & EPOLLRDHUP && !(ev->events & EPOLLIN);
    int flags = EV_ADD | EV_ENABLE;
    if (what == EPOLL_CTL_DEL) flags = EV_DELETE;
    else if (!(ev->events & (EPOLLIN | EPOLLRDHUP))) flags = EV_ADD | EV_DISABLE;
    else if (ev->events & EPOLLONESHOT) flags |= EV_DISPATCH;
    EV_SET(&k, fd, EVFILT_READ, flags, ends ? NOTE_LOWAT : 0, ends ? INT32_MAX : 0, NULL);
    return kevent(epoll, &k, 1, NULL, 0, NULL);
}

int epoll_wait(int epoll, struct epoll_event *out, int n, int ms) {
    enum { MAX = 64 };
    struct kevent got[MAX];
    struct timespec limit = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    int found = kevent(epoll, NULL, 0, got, n < MAX ? n : MAX, ms < 0 ? NULL : &limit);
    for (int i = 0; i < found; i++) {
        uint32_t end = got[i].flags & EV_EOF ? EPOLLRDHUP : 0;
        out[i] = (struct epoll_event){.events = EPOLLIN | end, .data.fd = (int)got[i].ident};
    }
    return found;
}

/* A datagram socket that sends to itself. */
int eventfd(unsigned value, int flags) {
    struct sockaddr_in self = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof self;
    (void)value, (void)flags;
    int fd = mac_socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return fd;
    if (bind(fd, (struct sockaddr *)&self, n) || getsockname(fd, (struct sockaddr *)&self, &n) ||
        connect(fd, (struct sockaddr *)&self, n)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* epoll.h: the part of Linux' epoll that the server uses: over WSAPoll, and on macOS over kqueue. */
#ifndef CHIMERE_BASE_WIN_SYS_EPOLL_H
#define CHIMERE_BASE_WIN_SYS_EPOLL_H

#include <stdint.h>

enum {
    EPOLLIN = 1,
    EPOLLRDHUP = 2,
    EPOLLONESHOT = 4,
    EPOLL_CTL_ADD = 1,
    EPOLL_CTL_DEL,
    EPOLL_CTL_MOD,
    EPOLL_CLOEXEC = 0,
};

struct epoll_event {
    uint32_t events;
    struct {
        int fd;
    } data;
};

int epoll_create1(int flags);
int epoll_ctl(int epoll, int what, int fd, struct epoll_event *ev);
int epoll_wait(int epoll, struct epoll_event *out, int n, int ms);

#endif

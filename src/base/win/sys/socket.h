/* socket.h: sockets of Windows under POSIX's names. */
#ifndef CHIMERE_BASE_WIN_SYS_SOCKET_H
#define CHIMERE_BASE_WIN_SYS_SOCKET_H

#include <winsock2.h>
#include <ws2tcpip.h>

#undef interface
#undef near
#undef far
#undef ERROR

enum {
    SHUT_RDWR = SD_BOTH,
    MSG_NOSIGNAL = 0,
    MSG_DONTWAIT = 0,
    SOCK_NONBLOCK = 0x10000,
    SOCK_CLOEXEC = 0
};

int win_socket(int family, int kind, int protocol);
int win_accept4(int fd, struct sockaddr *from, socklen_t *n, int flags);
int win_close_socket(int fd);
#define socket win_socket
#define accept4 win_accept4
#define setsockopt(fd, level, name, value, n) setsockopt(fd, level, name, (const char *)(value), n)
#define getsockopt(fd, level, name, value, n) getsockopt(fd, level, name, (char *)(value), n)

#endif

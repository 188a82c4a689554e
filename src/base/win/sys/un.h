/* un.h: addresses of Unix sockets, which this program does not offer on Windows. */
#ifndef CHIMERE_BASE_WIN_SYS_UN_H
#define CHIMERE_BASE_WIN_SYS_UN_H

struct sockaddr_un {
    unsigned short sun_family;
    char sun_path[108];
};

/* The file that includes this closes sockets alone. */
#define close win_close_socket
#define lstat stat
#define S_ISSOCK(mode) ((void)(mode), 0)

#endif

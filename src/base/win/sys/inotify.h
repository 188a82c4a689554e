/* inotify.h: Windows has another way to watch folders, which is not used: the first call fails with ENOSYS. */
#ifndef CHIMERE_BASE_WIN_SYS_INOTIFY_H
#define CHIMERE_BASE_WIN_SYS_INOTIFY_H

#include <errno.h>

enum {
    IN_CLOEXEC = 0,
    IN_NONBLOCK = 0,
    IN_CLOSE_WRITE = 1,
    IN_CREATE = 2,
    IN_DELETE = 4,
    IN_MOVED_FROM = 8,
    IN_MOVED_TO = 16,
    IN_MODIFY = 32,
    IN_ATTRIB = 64,
    IN_ONLYDIR = 128,
    IN_MOVE = 24,
    IN_DELETE_SELF = 256,
    IN_MOVE_SELF = 512,
};

#define inotify_init1(flags) (errno = ENOSYS, -1)
#define inotify_add_watch(fd, path, what) ((void)(fd), (void)(path), (void)(what), -1)

#endif

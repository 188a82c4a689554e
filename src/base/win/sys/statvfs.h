/* statvfs.h: free space of a file system. */
#ifndef CHIMERE_BASE_WIN_SYS_STATVFS_H
#define CHIMERE_BASE_WIN_SYS_STATVFS_H

#include <stdint.h>

struct statvfs {
    uint64_t f_bavail, f_frsize;
};

int statvfs(const char *path, struct statvfs *out);

#endif

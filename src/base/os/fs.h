/* fs.h: what the file system reports about a path: kind and size, entries of a folder, locks. */
#ifndef CHIMERE_BASE_FS_H
#define CHIMERE_BASE_FS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct fs_info {
    uint64_t bytes;
    uint64_t bytes_on_disk; /* smaller than bytes if the file has holes */
    int64_t mtime_ns;       /* wall-clock time */
    uint64_t device, inode; /* equal for two names of the same file */
    bool is_file, is_folder;
    uint32_t mode; /* POSIX permission bits; 0 on other systems */
};

int fs_stat(const char *path, struct fs_info *out);
int fs_stat_fd(int fd, struct fs_info *out); /* of an open file */
/* does not follow links; a link is neither file nor folder */
int fs_lstat(const char *path, struct fs_info *out);
static inline bool fs_is_folder(const char *path) {
    struct fs_info i;
    return !fs_stat(path, &i) && i.is_folder;
}
int fs_remove(const char *path); /* removes a file */
int fs_make_private(FILE *f);    /* only the owner may read and write it */
int fs_touch(const char *path);  /* creates an empty private file if it does not exist */
int fs_use(const char *path); /* sets the time of an existing file to now; does not follow links */
bool fs_can_run(const char *path);
int fs_remove_folder(const char *path); /* removes an empty folder */

/* Takes an exclusive lock on a file, which is created if missing. Returns a descriptor for fs_unlock, or -1 with errno
 * EWOULDBLOCK if another process holds the lock. The kernel releases it when the process ends. */
int fs_lock(const char *path);
void fs_unlock(int lock); /* -1 is allowed */

/* The entries of a folder, in the order of the file system. */
struct fs_folder;
struct fs_folder *fs_open(const char *path); /* NULL: cannot be read; errno has the reason */
/* Returns the next name, without "." and ".."; NULL at the end. Valid until the next call. */
const char *fs_next(struct fs_folder *d);
void fs_close(struct fs_folder *d); /* NULL is allowed */

#endif

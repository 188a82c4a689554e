/* fs.h: what the file system says of a path: its kind and size, the entries of a folder, locks.
 *
 * Functions that return an int return 0, or -1 with errno set. */
#ifndef CHIMERE_BASE_FS_H
#define CHIMERE_BASE_FS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct fs_info {
    uint64_t bytes;
    uint64_t bytes_on_disk; /* less than bytes if the file has holes */
    int64_t mtime_ns;       /* of the wall clock */
    uint64_t device, inode; /* equal for two names of one file */
    bool is_file, is_folder;
    uint32_t mode; /* permission bits of POSIX; 0 elsewhere */
};

int fs_stat(const char *path, struct fs_info *out);
int fs_stat_open(FILE *f, struct fs_info *out);
int fs_lstat(const char *path, struct fs_info *out); /* a link is neither file nor folder */
bool fs_is_folder(const char *path);
int fs_remove(const char *path); /* a file */
int fs_make_private(FILE *f);    /* for its owner alone */
int fs_touch(const char *path);  /* makes an empty file for its owner alone if there is none */
bool fs_can_run(const char *path);
int fs_remove_folder(const char *path); /* an empty one */

/* An exclusive lock on a file that is made if need be: a descriptor for fs_unlock, -1 with EWOULDBLOCK if
 * another process holds it. The kernel drops it when the process ends. */
int fs_lock(const char *path);
void fs_unlock(int lock); /* -1 is fine */

/* The entries of a folder, in the order of the file system. */
struct fs_folder;
struct fs_folder *fs_open(const char *path); /* NULL: it cannot be read; errno says why */
/* The next name, without "." and ".."; NULL at the end. Valid until the next call. */
const char *fs_next(struct fs_folder *d);
void fs_close(struct fs_folder *d); /* NULL is fine */

#endif

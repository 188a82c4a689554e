/* fs_posix.c: fs.h for POSIX. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/os/fs.h"

static void fill(struct fs_info *out, const struct stat *st) {
    *out =
        (struct fs_info){.bytes = (uint64_t)st->st_size,
                         .bytes_on_disk = (uint64_t)st->st_blocks * 512,
                         .mtime_ns = st->st_mtim.tv_sec * INT64_C(1000000000) + st->st_mtim.tv_nsec,
                         .device = (uint64_t)st->st_dev,
                         .inode = (uint64_t)st->st_ino,
                         .is_file = S_ISREG(st->st_mode),
                         .is_folder = S_ISDIR(st->st_mode),
                         .mode = st->st_mode & 07777};
}

int fs_stat(const char *path, struct fs_info *out) {
    struct stat st;
    if (stat(path, &st)) return -1;
    fill(out, &st);
    return 0;
}

int fs_stat_fd(int fd, struct fs_info *out) {
    struct stat st;
    if (fstat(fd, &st)) return -1;
    fill(out, &st);
    return 0;
}

int fs_lstat(const char *path, struct fs_info *out) {
    struct stat st;
    if (lstat(path, &st)) return -1;
    fill(out, &st);
    return 0;
}

int fs_remove(const char *path) { return unlink(path); }

int fs_remove_folder(const char *path) { return rmdir(path); }

int fs_make_private(FILE *f) { return fchmod(fileno(f), 0600); }

int fs_touch(const char *path) {
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    return fd < 0 ? -1 : close(fd);
}

int fs_use(const char *path) { return utimensat(AT_FDCWD, path, NULL, AT_SYMLINK_NOFOLLOW); }

bool fs_can_run(const char *path) { return !access(path, X_OK); }

int fs_lock(const char *path) {
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || !flock(fd, LOCK_EX | LOCK_NB)) return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

void fs_unlock(int lock) {
    if (lock >= 0) close(lock);
}

/* A struct fs_folder is a DIR, without additional state. */
struct fs_folder *fs_open(const char *path) {
    return (struct fs_folder *)opendir(path);
}

const char *fs_next(struct fs_folder *d) {
    const struct dirent *x;
    do x = readdir((DIR *)d);
    while (x && (!strcmp(x->d_name, ".") || !strcmp(x->d_name, "..")));
    return x ? x->d_name : NULL;
}

void fs_close(struct fs_folder *d) {
    if (d) closedir((DIR *)d);
}

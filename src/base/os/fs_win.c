/* fs_win.c: fs.h for Windows. */
#include "base/os/fs.h"

#include <errno.h>
#include <windows.h>

#include "base/mem.h"
#include "base/win/path_win.h"

enum { LOCK_AT = 0x40000000 }; /* far above the content, which stays readable */

static int fill(HANDLE h, struct fs_info *out) {
    BY_HANDLE_FILE_INFORMATION i;
    FILE_STANDARD_INFO size = {0};
    if (!GetFileInformationByHandle(h, &i)) {
        win_errno();
        return -1;
    }
    GetFileInformationByHandleEx(h, FileStandardInfo, &size, sizeof size);
    uint64_t ticks =
        (uint64_t)i.ftLastWriteTime.dwHighDateTime << 32 | i.ftLastWriteTime.dwLowDateTime;
    bool folder = i.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY,
         link = i.dwFileAttributes & FILE_ATTRIBUTE_REPARSE_POINT;
    *out = (struct fs_info){
        .bytes = (uint64_t)i.nFileSizeHigh << 32 | i.nFileSizeLow,
        .bytes_on_disk = (uint64_t)size.AllocationSize.QuadPart,
        .mtime_ns = ((int64_t)ticks - INT64_C(116444736000000000)) * 100, /* from 1601 to 1970 */
        .device = i.dwVolumeSerialNumber,
        .inode = (uint64_t)i.nFileIndexHigh << 32 | i.nFileIndexLow,
        .is_file = !folder && !link,
        .is_folder = folder && !link,
    };
    return 0;
}

static int stat_path(const char *path, DWORD flags, struct fs_info *out) {
    wchar_t wide[WIN_PATH];
    if (!win_wide(path, wide)) return -1;
    HANDLE h = CreateFileW(wide, FILE_READ_ATTRIBUTES,
                           FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                           OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS | flags, NULL);
    if (h == INVALID_HANDLE_VALUE) {
        win_errno();
        return -1;
    }
    int rc = fill(h, out);
    CloseHandle(h);
    return rc;
}

int fs_stat(const char *path, struct fs_info *out) { return stat_path(path, 0, out); }

int fs_lstat(const char *path, struct fs_info *out) {
    return stat_path(path, FILE_FLAG_OPEN_REPARSE_POINT, out);
}

int fs_stat_fd(int fd, struct fs_info *out) {
    HANDLE h = (HANDLE)_get_osfhandle(fd);
    if (GetFileType(h) == FILE_TYPE_DISK) return fill(h, out);
    *out = (struct fs_info){0};
    return 0;
}

int fs_remove(const char *path) { return unlink(path); }

int fs_remove_folder(const char *path) { return rmdir(path); }

int fs_make_private(FILE *f) { /* the user's folder is private by its access list */
    (void)f;
    return 0;
}

int fs_touch(const char *path) {
    int fd = open(path, O_RDWR | O_CREAT);
    return fd < 0 ? -1 : close(fd);
}

int fs_use(const char *path) {
    wchar_t wide[WIN_PATH];
    FILETIME now;
    if (!win_wide(path, wide)) return -1;
    HANDLE h = CreateFileW(wide, FILE_WRITE_ATTRIBUTES,
                           FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                           OPEN_EXISTING, FILE_FLAG_OPEN_REPARSE_POINT, NULL);
    GetSystemTimeAsFileTime(&now);
    bool ok = h != INVALID_HANDLE_VALUE && SetFileTime(h, NULL, NULL, &now);
    if (!ok) win_errno();
    if (h != INVALID_HANDLE_VALUE) CloseHandle(h);
    return ok ? 0 : -1;
}

bool fs_can_run(const char *path) {
    size_t n = strlen(path);
    return n > 4 && _stricmp(path + n - 4, ".exe") == 0 && !access(path, F_OK);
}

int fs_lock(const char *path) {
    int fd = open(path, O_RDWR | O_CREAT);
    OVERLAPPED at = {.OffsetHigh = LOCK_AT};
    if (fd < 0 || LockFileEx((HANDLE)_get_osfhandle(fd),
                             LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &at))
        return fd;
    close(fd);
    errno = EWOULDBLOCK;
    return -1;
}

void fs_unlock(int lock) {
    if (lock >= 0) close(lock);
}

struct fs_folder {
    HANDLE find;
    bool has_next;
    WIN32_FIND_DATAW next;
    char name[WIN_PATH];
};

struct fs_folder *fs_open(const char *path) {
    wchar_t wide[WIN_PATH];
    if (!win_wide(path, wide)) return NULL;
    size_t n = wcslen(wide);
    if (n + 3 > WIN_PATH) {
        errno = ENAMETOOLONG;
        return NULL;
    }
    wcscpy(wide + n, L"\\*");
    struct fs_folder *d = mem_zalloc(sizeof *d);
    if (!d) {
        errno = ENOMEM;
        return NULL;
    }
    d->find = FindFirstFileW(wide, &d->next);
    d->has_next = d->find != INVALID_HANDLE_VALUE;
    if (d->has_next) return d;
    win_errno();
    mem_free(d);
    return NULL;
}

const char *fs_next(struct fs_folder *d) {
    while (d->has_next) {
        bool ok = win_narrow(d->next.cFileName, d->name, sizeof d->name);
        d->has_next = FindNextFileW(d->find, &d->next) != 0;
        if (ok && strcmp(d->name, ".") != 0 && strcmp(d->name, "..") != 0) return d->name;
    }
    return NULL;
}

void fs_close(struct fs_folder *d) {
    if (!d) return;
    FindClose(d->find);
    mem_free(d);
}

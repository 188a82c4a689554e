/* path_win.c: the functions of posix.h that take paths. */
#include "base/win/path_win.h"

#include <errno.h>
#include <sys/random.h>
#include <windows.h>

enum { LONG_FROM = 240 };

int win_errno(void) {
    static const struct {
        DWORD win;
        int posix;
    } table[] = {{ERROR_FILE_NOT_FOUND, ENOENT},
                 {ERROR_PATH_NOT_FOUND, ENOENT},
                 {ERROR_INVALID_NAME, ENOENT},
                 {ERROR_BAD_NETPATH, ENOENT},
                 {ERROR_INVALID_DRIVE, ENOENT},
                 {ERROR_ACCESS_DENIED, EACCES},
                 {ERROR_SHARING_VIOLATION, EACCES},
                 {ERROR_LOCK_VIOLATION, EACCES},
                 {ERROR_FILE_EXISTS, EEXIST},
                 {ERROR_ALREADY_EXISTS, EEXIST},
                 {ERROR_DISK_FULL, ENOSPC},
                 {ERROR_HANDLE_DISK_FULL, ENOSPC},
                 {ERROR_NOT_ENOUGH_MEMORY, ENOMEM},
                 {ERROR_OUTOFMEMORY, ENOMEM},
                 {ERROR_COMMITMENT_LIMIT, ENOMEM},
                 {ERROR_DIR_NOT_EMPTY, ENOTEMPTY},
                 {ERROR_DIRECTORY, ENOTDIR},
                 {ERROR_TOO_MANY_OPEN_FILES, EMFILE},
                 {ERROR_FILENAME_EXCED_RANGE, ENAMETOOLONG}};
    DWORD code = GetLastError();
    errno = EIO;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].win == code) errno = table[i].posix;
    return errno;
}

bool win_wide(const char *path, wchar_t out[WIN_PATH]) {
    static const wchar_t prefix[] = L"\\\\?\\";
    enum { N_PREFIX = 4 };
    int n = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, out, WIN_PATH);
    if (n <= 0) {
        errno = GetLastError() == ERROR_INSUFFICIENT_BUFFER ? ENAMETOOLONG : EINVAL;
        return false;
    }
    for (wchar_t *p = out; *p; p++)
        if (*p == L'/') *p = L'\\';
    if (n < LONG_FROM || wcsncmp(out, L"\\\\", 2) == 0) return true;
    wchar_t full[WIN_PATH];
    DWORD m = GetFullPathNameW(out, WIN_PATH - N_PREFIX, full, NULL);
    if (!m || m >= WIN_PATH - N_PREFIX) {
        errno = ENAMETOOLONG;
        return false;
    }
    wcscpy(out, prefix);
    wcscpy(out + N_PREFIX, full);
    return true;
}

bool win_narrow(const wchar_t *path, char *out, size_t out_size) {
    if (wcsncmp(path, L"\\\\?\\", 4) == 0) path += 4;
    if (!WideCharToMultiByte(CP_UTF8, 0, path, -1, out, (int)out_size, NULL, NULL)) return false;
    for (char *p = out; *p; p++)
        if (*p == '\\') *p = '/';
    return true;
}

#undef fopen
#undef open
#undef unlink
#undef rename
#undef mkdir
#undef rmdir
#undef access
#undef fsync

/* Like POSIX, lets others read, replace and remove the file while it is open. */
static HANDLE open_shared(const wchar_t *path, int flags) {
    DWORD rights = (flags & O_ACCMODE) == O_RDONLY   ? GENERIC_READ
                   : (flags & O_ACCMODE) == O_WRONLY ? GENERIC_WRITE
                                                     : GENERIC_READ | GENERIC_WRITE;
    DWORD how = flags & O_CREAT   ? flags & O_EXCL    ? CREATE_NEW
                                    : flags & O_TRUNC ? CREATE_ALWAYS
                                                      : OPEN_ALWAYS
                : flags & O_TRUNC ? TRUNCATE_EXISTING
                                  : OPEN_EXISTING;
    return CreateFileW(
        path, rights, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL, how,
        flags & (O_WRONLY | O_RDWR) ? FILE_ATTRIBUTE_NORMAL : FILE_FLAG_BACKUP_SEMANTICS, NULL);
}

int win_open(const char *path, int flags, ...) {
    wchar_t wide[WIN_PATH];
    if (flags & O_DIRECT) {
        errno = EINVAL;
        return -1;
    }
    if (strcmp(path, "/dev/null") == 0) path = "NUL";
    if (!win_wide(path, wide)) return -1;
    HANDLE h = open_shared(wide, flags);
    if (h == INVALID_HANDLE_VALUE) {
        win_errno();
        DWORD is = GetFileAttributesW(wide);
        if (is != INVALID_FILE_ATTRIBUTES && (is & FILE_ATTRIBUTE_DIRECTORY)) errno = EISDIR;
        return -1;
    }
    int fd =
        _open_osfhandle((intptr_t)h, (flags & (O_ACCMODE | O_APPEND)) | O_BINARY | O_NOINHERIT);
    if (fd < 0) CloseHandle(h);
    return fd;
}

FILE *win_fopen(const char *path, const char *mode) {
    static const struct {
        char mode[4];
        int flags;
    } modes[] = {{"r", O_RDONLY},
                 {"r+", O_RDWR},
                 {"w", O_WRONLY | O_CREAT | O_TRUNC},
                 {"w+", O_RDWR | O_CREAT | O_TRUNC},
                 {"a", O_WRONLY | O_CREAT | O_APPEND},
                 {"a+", O_RDWR | O_CREAT | O_APPEND}};
    char plain[4] = {mode[0], strchr(mode, '+') ? '+' : 0}, binary[8];
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        if (strcmp(modes[i].mode, plain) != 0) continue;
        int fd = win_open(path, modes[i].flags);
        snprintf(binary, sizeof binary, "%sb", plain);
        FILE *f = fd < 0 ? NULL : _fdopen(fd, binary);
        if (!f && fd >= 0) _close(fd);
        return f;
    }
    errno = EINVAL;
    return NULL;
}

static int done(BOOL ok) {
    if (ok) return 0;
    win_errno();
    return -1;
}

int win_unlink(const char *path) {
    wchar_t wide[WIN_PATH];
    return win_wide(path, wide) ? done(DeleteFileW(wide)) : -1;
}

/* Removes the files that `replace` moved aside for this path and that no process maps any more. */
static void remove_old(const wchar_t *path) {
    wchar_t old[WIN_PATH];
    WIN32_FIND_DATAW found;
    int n = swprintf(old, WIN_PATH, L"%ls.old-*", path);
    HANDLE find = n > 0 ? FindFirstFileW(old, &found) : INVALID_HANDLE_VALUE;
    if (find == INVALID_HANDLE_VALUE) return;
    const wchar_t *slash = wcsrchr(path, L'\\');
    int n_folder = slash ? (int)(slash - path) + 1 : 0;
    do {
        n = swprintf(old, WIN_PATH, L"%.*ls%ls", n_folder, path, found.cFileName);
        if (n > 0) DeleteFileW(old);
    } while (FindNextFileW(find, &found));
    FindClose(find);
}

/* Files that are open or mapped cannot be replaced, but can get another name, under which their readers keep them. */
static bool replace(const wchar_t *from, const wchar_t *to) {
    wchar_t old[WIN_PATH];
    const DWORD how = MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH;
    if (MoveFileExW(from, to, how)) return true;
    DWORD code = GetLastError();
    unsigned unique = (unsigned)GetTickCount64() ^ (unsigned)GetCurrentProcessId() << 16;
    if ((code == ERROR_ACCESS_DENIED || code == ERROR_SHARING_VIOLATION) &&
        !(GetFileAttributesW(to) & FILE_ATTRIBUTE_DIRECTORY) && /* also set if there is none */
        swprintf(old, WIN_PATH, L"%ls.old-%08x", to, unique) > 0 && MoveFileExW(to, old, 0)) {
        if (MoveFileExW(from, to, how)) {
            DeleteFileW(old);
            return true;
        }
        code = GetLastError();
        MoveFileExW(old, to, 0);
    }
    SetLastError(code);
    return false;
}

int win_rename(const char *from, const char *to) {
    wchar_t a[WIN_PATH], b[WIN_PATH];
    if (!win_wide(from, a) || !win_wide(to, b)) return -1;
    remove_old(b);
    for (int i = 0; i < 50; i++) { /* a virus scanner may hold the old file for a moment */
        if (replace(a, b)) return 0;
        DWORD code = GetLastError();
        if (code != ERROR_SHARING_VIOLATION && code != ERROR_ACCESS_DENIED) break;
        if (GetFileAttributesW(b) & FILE_ATTRIBUTE_DIRECTORY) break; /* also if there is none */
        Sleep(10);
        SetLastError(code);
    }
    return done(FALSE);
}

int win_mkdir(const char *path) {
    wchar_t wide[WIN_PATH];
    if (!win_wide(path, wide)) return -1;
    if (CreateDirectoryW(wide, NULL)) return 0;
    win_errno();
    DWORD is = GetFileAttributesW(wide); /* a drive cannot be created, and is there */
    if (is != INVALID_FILE_ATTRIBUTES) errno = EEXIST;
    wchar_t *last = wcsrchr(wide, L'\\');
    if (last && errno == ENOENT) {
        *last = 0;
        is = GetFileAttributesW(wide);
        if (is != INVALID_FILE_ATTRIBUTES && !(is & FILE_ATTRIBUTE_DIRECTORY)) errno = ENOTDIR;
    }
    return -1;
}

int win_rmdir(const char *path) {
    wchar_t wide[WIN_PATH];
    return win_wide(path, wide) ? done(RemoveDirectoryW(wide)) : -1;
}

int win_access(const char *path, int mode) {
    wchar_t wide[WIN_PATH];
    if (!win_wide(path, wide)) return -1;
    DWORD is = GetFileAttributesW(wide);
    if (is == INVALID_FILE_ATTRIBUTES) return done(FALSE);
    if ((mode & W_OK) && (is & FILE_ATTRIBUTE_READONLY) && !(is & FILE_ATTRIBUTE_DIRECTORY)) {
        errno = EACCES;
        return -1;
    }
    return 0;
}

ssize_t win_read(int fd, void *to, size_t n) {
    return _read(fd, to, n < 1 << 30 ? (unsigned)n : 1 << 30);
}

int win_fsync(int fd) { return done(FlushFileBuffers((HANDLE)_get_osfhandle(fd))); }

/* Replaces the six X at the end by random letters, until `make` succeeds. */
static int make_temp(char *template, int (*make)(const char *)) {
    size_t n = strlen(template);
    for (int i = 0; n >= 6 && i < 100; i++) {
        for (size_t k = n - 6; k < n; k++) {
            unsigned char r = 0;
            getrandom(&r, 1, 0);
            template[k] = (char)('a' + r % 26);
        }
        int made = make(template);
        if (made >= 0 || errno != EEXIST) return made;
    }
    return -1;
}

static int make_file(const char *path) { return win_open(path, O_RDWR | O_CREAT | O_EXCL); }

char *win_mkdtemp(char *template) { return make_temp(template, win_mkdir) < 0 ? NULL : template; }

int win_mkstemp(char *template) { return make_temp(template, make_file); }

/* The final name, with links resolved; out has 4096 bytes. */
char *win_realpath(const char *path, char *out) {
    wchar_t wide[WIN_PATH], full[WIN_PATH];
    if (!win_wide(path, wide)) return NULL;
    HANDLE h = CreateFileW(wide, 0, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                           OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, NULL);
    DWORD n = 0;
    if (h != INVALID_HANDLE_VALUE) {
        n = GetFinalPathNameByHandleW(h, full, WIN_PATH, 0);
        CloseHandle(h);
    }
    if (!n || n >= WIN_PATH) {
        win_errno();
        return NULL;
    }
    if (win_narrow(full, out, 4096)) return out;
    errno = ENAMETOOLONG;
    return NULL;
}

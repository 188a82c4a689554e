/* libc_win.c: libc.h. */
#include <errno.h>
#include <stdint.h>
#include <windows.h>

#include "base/os/sort_order.h"

void *memmem(const void *text, size_t n, const void *part, size_t n_part) {
    const char *p = text, *first = part;
    if (!n_part) return (void *)p;
    for (; n >= n_part; p++, n--) {
        const char *hit = memchr(p, *first, n - n_part + 1);
        if (!hit) return NULL;
        n -= (size_t)(hit - p);
        p = hit;
        if (memcmp(p, part, n_part) == 0) return (void *)p;
    }
    return NULL;
}

void *memrchr(const void *text, int c, size_t n) {
    const unsigned char *p = text;
    while (n--)
        if (p[n] == (unsigned char)c) return (void *)(p + n);
    return NULL;
}

char *strcasestr(const char *text, const char *part) {
    size_t n = strlen(part);
    for (; *text; text++)
        if (_strnicmp(text, part, n) == 0) return (char *)text;
    return n ? NULL : (char *)text;
}

char *stpcpy(char *to, const char *from) {
    size_t n = strlen(from);
    memcpy(to, from, n + 1);
    return to + n;
}

char *strsignal(int signal) {
    static _Thread_local char name[24];
    snprintf(name, sizeof name, "signal %d", signal);
    return name;
}

void explicit_bzero(void *p, size_t n) { SecureZeroMemory(p, n); }

void qsort_r(void *base, size_t n, size_t size, int (*compare)(const void *, const void *, void *),
             void *context) {
    struct sort_order o = {compare, context};
    if (n) qsort_s(base, n, size, sort_order_compare, &o); /* UCRT's: the context comes first */
}

time_t timegm(struct tm *tm) { return _mkgmtime(tm); }

static const char *number(const char *s, int digits, int low, int high, int *out) {
    int v = 0, n = 0;
    for (; n < digits && *s >= '0' && *s <= '9'; n++) v = v * 10 + (*s++ - '0');
    *out = v;
    return n && v >= low && v <= high ? s : NULL;
}

char *strptime(const char *s, const char *format, struct tm *tm) {
    for (; s && *format; format++) {
        if (*format != '%') {
            s = *s == *format ? s + 1 : NULL;
            continue;
        }
        switch (*++format) {
        case 'Y':
            s = number(s, 4, 0, 9999, &tm->tm_year);
            tm->tm_year -= 1900;
            break;
        case 'm':
            s = number(s, 2, 1, 12, &tm->tm_mon);
            tm->tm_mon -= 1;
            break;
        case 'd': s = number(s, 2, 1, 31, &tm->tm_mday); break;
        case 'H': s = number(s, 2, 0, 23, &tm->tm_hour); break;
        case 'M': s = number(s, 2, 0, 59, &tm->tm_min); break;
        case 'S': s = number(s, 2, 0, 60, &tm->tm_sec); break;
        default: return NULL;
        }
    }
    return (char *)s;
}

/* Unlike POSIX, these move the file's position, which our callers do not use. */
ssize_t pread(int fd, void *to, size_t n, off_t at) {
    OVERLAPPED where = {.Offset = (DWORD)at, .OffsetHigh = (DWORD)((uint64_t)at >> 32)};
    DWORD got = 0;
    if (n > 1 << 30) n = 1 << 30;
    if (ReadFile((HANDLE)_get_osfhandle(fd), to, (DWORD)n, &got, &where)) return (ssize_t)got;
    if (GetLastError() == ERROR_HANDLE_EOF) return 0;
    errno = EIO;
    return -1;
}

ssize_t pwrite(int fd, const void *from, size_t n, off_t at) {
    OVERLAPPED where = {.Offset = (DWORD)at, .OffsetHigh = (DWORD)((uint64_t)at >> 32)};
    DWORD got = 0;
    if (n > 1 << 30) n = 1 << 30;
    if (WriteFile((HANDLE)_get_osfhandle(fd), from, (DWORD)n, &got, &where)) return (ssize_t)got;
    errno = GetLastError() == ERROR_DISK_FULL ? ENOSPC : EIO;
    return -1;
}

int setenv(const char *name, const char *value, int overwrite) {
    if (!overwrite && getenv(name)) return 0;
    return _putenv_s(name, value) ? -1 : 0;
}

int unsetenv(const char *name) { return _putenv_s(name, "") ? -1 : 0; }

int posix_fallocate(int fd, off_t at, off_t n) {
    HANDLE h = (HANDLE)_get_osfhandle(fd);
    LARGE_INTEGER now, end = {.QuadPart = (int64_t)at + n};
    if (!GetFileSizeEx(h, &now)) return EBADF;
    FILE_END_OF_FILE_INFO info = {.EndOfFile = end};
    if (now.QuadPart >= end.QuadPart ||
        SetFileInformationByHandle(h, FileEndOfFileInfo, &info, sizeof info))
        return 0;
    return GetLastError() == ERROR_DISK_FULL ? ENOSPC : EIO;
}

int fchmod(int fd, int mode) {
    (void)fd, (void)mode;
    return 0;
}

int flock(int fd, int how) {
    OVERLAPPED at = {.OffsetHigh = 0x40000000};
    (void)how;
    if (LockFileEx((HANDLE)_get_osfhandle(fd), LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY,
                   0, 1, 0, &at))
        return 0;
    errno = EWOULDBLOCK;
    return -1;
}

void malloc_trim(size_t n) { (void)n; }

int mallopt(int what, int value) {
    (void)what, (void)value;
    return 1;
}

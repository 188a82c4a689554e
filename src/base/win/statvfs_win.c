/* statvfs_win.c: sys/statvfs.h. */
#include <sys/statvfs.h>

#include <windows.h>

#include "base/win/path_win.h"

int statvfs(const char *path, struct statvfs *out) {
    wchar_t wide[WIN_PATH];
    ULARGE_INTEGER free_bytes;
    if (!win_wide(path, wide) || !GetDiskFreeSpaceExW(wide, &free_bytes, NULL, NULL)) return -1;
    *out = (struct statvfs){.f_bavail = free_bytes.QuadPart, .f_frsize = 1};
    return 0;
}

/* path_win.h: UTF-8 paths as Windows wants them; for the files of this folder and base/os. */
#ifndef CHIMERE_BASE_WIN_PATH_WIN_H
#define CHIMERE_BASE_WIN_PATH_WIN_H

#include <stdbool.h>
#include <stddef.h>
#include <wchar.h>

enum { WIN_PATH = 4096 };
/* Long paths are made absolute and get the prefix that lifts the limit of 260. Sets errno and returns false if the path is
 * not UTF-8 or too long. */
bool win_wide(const char *path, wchar_t out[WIN_PATH]);
/* UTF-8 with slashes; returns false if out is too small. */
bool win_narrow(const wchar_t *path, char *out, size_t out_size);
int win_errno(void); /* GetLastError as errno; sets and returns it */

#endif

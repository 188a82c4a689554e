/* posix.h: included first in every file of a build for Windows: the functions of POSIX that our code uses and UCRT lacks.
 *
 * Paths are UTF-8, with slashes or backslashes, and may be longer than 260 characters; the functions of UCRT with the same
 * names expect the code page of the system. Functions that Windows cannot provide fail with ENOSYS. */
#ifndef CHIMERE_BASE_WIN_POSIX_H
#define CHIMERE_BASE_WIN_POSIX_H

#define WIN32_LEAN_AND_MEAN
#define NOGDI
#define NOMINMAX
/* names that our files use for functions of their own */
#define read hidden_read
#define tell hidden_tell
#include <direct.h>
#include <fcntl.h>
#include <io.h>
#undef read
#undef tell
#include <malloc.h>
#include <process.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

#define O_CLOEXEC O_NOINHERIT
#define O_NONBLOCK 0
#define O_DIRECTORY 0
#define O_NOFOLLOW 0
#define O_DIRECT 0x4000000 /* refused with EINVAL, as by file systems without it */
#undef P_tmpdir
#define P_tmpdir "."

FILE *win_fopen(const char *path, const char *mode);
int win_open(const char *path, int flags, ...);
int win_unlink(const char *path);
int win_rename(const char *from, const char *to);
int win_mkdir(const char *path);
int win_rmdir(const char *path);
int win_access(const char *path, int mode);
int win_fsync(int fd);
ssize_t win_read(int fd, void *to, size_t n);
#define fopen win_fopen
#define open win_open
#define unlink win_unlink
#define rename win_rename
#define mkdir(path, mode) win_mkdir(path)
#define rmdir win_rmdir
#define access win_access
#define fsync win_fsync

char *win_mkdtemp(char *template);
int win_mkstemp(char *template);
char *win_realpath(const char *path, char *out);
#define mkdtemp win_mkdtemp
#define mkstemp win_mkstemp
#define realpath win_realpath

#include "base/win/libc.h"

#endif

/* posix.h: included first in every file of a build for Windows: the functions of POSIX that our code uses and UCRT lacks.
 *
 * Paths are UTF-8, with slashes or backslashes, and may be longer than 260 characters; the functions of UCRT with the same
 * names expect the code page of the system. Functions that Windows cannot provide fail with ENOSYS. */
#ifndef CHIMERE_BASE_WIN_POSIX_H
#define CHIMERE_BASE_WIN_POSIX_H

#include <direct.h>
#include <fcntl.h>
#include <io.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define O_CLOEXEC O_NOINHERIT
#define O_NONBLOCK 0
#define O_DIRECTORY 0
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
#define fopen(path, mode) win_fopen(path, mode)
#define open(...) win_open(__VA_ARGS__)
#define unlink(path) win_unlink(path)
#define rename(from, to) win_rename(from, to)
#define mkdir(path, mode) win_mkdir(path)
#define rmdir(path) win_rmdir(path)
#define access(path, mode) win_access(path, mode)
#define fsync(fd) win_fsync(fd)

char *win_mkdtemp(char *template);
int win_mkstemp(char *template);
char *win_realpath(const char *path, char *out);
#define mkdtemp win_mkdtemp
#define mkstemp win_mkstemp
#define realpath win_realpath

#include "base/win/libc.h"

#endif

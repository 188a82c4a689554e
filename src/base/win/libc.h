/* libc.h: string, time and sorting functions of glibc that UCRT lacks; part of posix.h. */
#ifndef CHIMERE_BASE_WIN_LIBC_H
#define CHIMERE_BASE_WIN_LIBC_H

#include <stddef.h>

enum { LOCK_EX = 2, LOCK_NB = 4, M_MMAP_THRESHOLD = -3, M_TRIM_THRESHOLD = -1 };
#include <stdio.h>
#include <sys/types.h>
#include <time.h>

void *memmem(const void *text, size_t n, const void *part, size_t n_part);
void *memrchr(const void *text, int c, size_t n);
char *strcasestr(const char *text, const char *part);
char *stpcpy(char *to, const char *from);
char *strsignal(int signal);
void explicit_bzero(void *p, size_t n);
void qsort_r(void *base, size_t n, size_t size, int (*compare)(const void *, const void *, void *),
             void *context);
time_t timegm(struct tm *tm);
/* Understands %Y %m %d %H %M %S and literal characters. */
char *strptime(const char *text, const char *format, struct tm *tm);
int posix_fallocate(int fd, off_t at, off_t n);
int fchmod(int fd, int mode); /* does nothing */
int flock(int fd, int how);
void malloc_trim(size_t n);
int mallopt(int what, int value);
ssize_t pread(int fd, void *to, size_t n, off_t at);
ssize_t pwrite(int fd, const void *from, size_t n, off_t at);
int setenv(const char *name, const char *value, int overwrite);
int unsetenv(const char *name);

#endif

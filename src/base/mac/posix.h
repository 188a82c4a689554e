/* posix.h: included first in every file of a build for macOS: the functions and flags of Linux that our code uses and macOS
 * lacks. Compiled as a check; it was never run on macOS. */
#ifndef CHIMERE_BASE_MAC_POSIX_H
#define CHIMERE_BASE_MAC_POSIX_H

#define _DARWIN_C_SOURCE
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>

#define O_DIRECT 0 /* files are read through the cache */
#define MADV_HUGEPAGE MADV_NORMAL
#define st_mtim st_mtimespec
#define sincosf __sincosf
#define __GLIBC_PREREQ(major, minor) 0

/* flags of socket, accept4 and pipe2 */
#define SOCK_NONBLOCK 0x10000
#define SOCK_CLOEXEC 0x20000
struct sockaddr;
int mac_socket(int family, int kind, int protocol);
int mac_socketpair(int family, int kind, int protocol, int out[2]);
int mac_accept4(int fd, struct sockaddr *from, uint32_t *n, int flags);
int mac_pipe2(int out[2], int flags);
#define socket(family, kind, protocol) mac_socket(family, kind, protocol)
#define socketpair(family, kind, protocol, out) mac_socketpair(family, kind, protocol, out)
#define accept4 mac_accept4
#define pipe2(out, flags) mac_pipe2(out, flags)

/* Shared memory without a name. Its size can be set only once, so it needs no seal. */
#define MFD_CLOEXEC 0
#define MFD_ALLOW_SEALING 0
#define F_ADD_SEALS F_SETFD
#define F_SEAL_SHRINK FD_CLOEXEC
#define F_SEAL_GROW FD_CLOEXEC
int memfd_create(const char *name, unsigned flags);

ssize_t getrandom(void *out, size_t n, unsigned flags);
void *memrchr(const void *text, int c, size_t n);
void explicit_bzero(void *p, size_t n);
extern char **environ;
char *mkdtemp(char *path); /* in unistd.h there, but in stdlib.h by POSIX */
int posix_fallocate(int fd, off_t at, off_t n);
void mac_qsort_r(void *base, size_t n, size_t size,
                 int (*compare)(const void *, const void *, void *), void *context);
#define qsort_r mac_qsort_r

#endif

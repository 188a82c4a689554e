/* uring.h: a queue of reads in the kernel (io_uring of Linux 5.11 or later), by system calls alone.
 *
 * A read needs no thread while it is in progress. Many systems refuse io_uring: filters of system calls in containers,
 * kernel.io_uring_disabled, older kernels. uring_open then returns NULL, and the caller reads with threads. The caller's
 * lock protects uring_read and uring_next; one other thread may be in uring_wait at the same time. */
#ifndef CHIMERE_BASE_URING_H
#define CHIMERE_BASE_URING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct uring;

/* depth: the most reads in progress, a power of two. NULL: refused, or out of memory. */
struct uring *uring_open(unsigned depth);
void uring_close(struct uring *u); /* no read is in progress; NULL is allowed */
/* Starts a read of n bytes at `at` of fd. False: the kernel did not accept it. */
bool uring_read(struct uring *u, int fd, void *to, uint32_t n, uint64_t at, uint64_t tag);
/* Waits until a read has ended. May return early. */
void uring_wait(struct uring *u);
/* Takes a read that has ended, if there is one: its tag, and the bytes read or a negative errno. */
bool uring_next(struct uring *u, uint64_t *tag, int32_t *result);

#endif

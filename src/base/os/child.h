/* child.h: starts this program again as a child process, for work that may end its process. The two processes share a
 * socket and memory.
 *
 * The parent starts the child with a hidden command; the child opens both with child_self. Messages are bytes whose
 * meaning the caller defines. Reading and writing block, and fail if the other side has ended. One thread at a time. */
#ifndef CHIMERE_BASE_CHILD_H
#define CHIMERE_BASE_CHILD_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct child {
    long pid;       /* the child's process id; 0 in the child itself */
    int fd, shared; /* owned: a socket, and an anonymous memory file */
    void *map;      /* owned [n_map]; NULL: not mapped */
    size_t n_map;
};

/* For other programs: adds to a posix_spawn_file_actions_t that the child closes the descriptors from `from` on. */
int child_close_from(void *actions, int from);
/* Starts this program's file with the single argument `command`. The child writes to the same standard error. */
int child_start(struct child *c, const char *command, struct err *e);
/* Call in the child process. */
void child_self(struct child *c);
/* Return false if the other side has ended. */
bool child_write(struct child *c, const void *data, size_t n);
bool child_read(struct child *c, void *data, size_t n);
/* Creates n bytes of zeroed memory that both sides see. The parent sets the size before the child maps it. */
int child_share(struct child *c, size_t n, struct err *e);
/* Closes the socket, waits for the child's end, and frees the memory. how [n]: "ended with status 1", "was ended by
 * signal 6 (Aborted)"; may be NULL. */
void child_end(struct child *c, char *how, size_t n);

#endif

/* child.h: this program started once more, for work that may end its process; a socket and shared memory between.
 *
 * The parent starts it with a hidden command; the child takes both ends by child_self. Messages are bytes: what they
 * mean is the caller's. Reading and writing block, and fail once the other side has ended. One thread at a time. */
#ifndef CHIMERE_BASE_CHILD_H
#define CHIMERE_BASE_CHILD_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct child {
    long pid;       /* of the other side; 0 in the child itself */
    int fd, shared; /* owned: socket, and memory without a name */
    void *map;      /* owned [n_map]; NULL: not mapped */
    size_t n_map;
};

/* Starts this program's own file with the one argument `command`. Its standard error is ours. */
int child_start(struct child *c, const char *command, struct err *e);
/* In the process that was started. */
void child_self(struct child *c);
/* False: the other side has ended. */
bool child_write(struct child *c, const void *data, size_t n);
bool child_read(struct child *c, void *data, size_t n);
/* Memory of n bytes that both sides see, zeroed at first; the parent sizes it before the child maps it. */
int child_share(struct child *c, size_t n, struct err *e);
/* Closes the socket, waits for its end, and frees. how [n]: "ended with status 1", "was ended by signal 6 (Aborted)"; may
 * be NULL. */
void child_end(struct child *c, char *how, size_t n);

#endif

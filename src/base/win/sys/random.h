/* random.h: random bytes of the system. */
#ifndef CHIMERE_BASE_WIN_SYS_RANDOM_H
#define CHIMERE_BASE_WIN_SYS_RANDOM_H

#include <stddef.h>
#include <sys/types.h>

ssize_t getrandom(void *out, size_t n, unsigned flags);

#endif

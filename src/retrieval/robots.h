/* robots.h: decides whether a robot may read a path, by RFC 9309. Pure; linear in the file for each pattern
 * without '*'. */
#ifndef CHIMERE_RETRIEVAL_ROBOTS_H
#define CHIMERE_RETRIEVAL_ROBOTS_H

#include <stdbool.h>
#include <stddef.h>

enum { ROBOTS_MAX_BYTES = 512 << 10 };

/* path begins with '/'. The group of `agent` applies, or the group '*' if there is none. The longest matching
 * pattern decides; of two equally long ones, Allow. A missing file allows everything. */
bool robots_allow(const char *text, size_t n, const char *agent, const char *path);

#endif

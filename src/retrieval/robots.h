/* robots.h: may a robot read this path? RFC 9309. Pure; linear in the file for each pattern without '*'. */
#ifndef CHIMERE_RETRIEVAL_ROBOTS_H
#define CHIMERE_RETRIEVAL_ROBOTS_H

#include <stdbool.h>
#include <stddef.h>

enum { ROBOTS_MAX_BYTES = 512 << 10 };

/* path begins with '/'. The group of `agent` counts, else that of '*'; the longest pattern decides, Allow
 * where two are as long. No file: allowed. */
bool robots_allow(const char *text, size_t n, const char *agent, const char *path);

#endif

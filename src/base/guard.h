/* guard.h: maps of files whose pages may become unreadable, because another process truncates the file or the disk fails.
 *
 * Access to such a page ends the process with SIGBUS. In a guarded map, once the program has called guard_begin, that page
 * and the rest of the map become zeros instead, and the map counts as damaged. Only for users that ask guard_is_damaged
 * before they use a result. Any thread. */
#ifndef CHIMERE_BASE_GUARD_H
#define CHIMERE_BASE_GUARD_H

#include <stdbool.h>
#include <stddef.h>

void guard_begin(void); /* handles SIGBUS; for programs, at their start */
/* Returns the number of a guard for [at, at + n), which begins at a page; 0: there are too many. */
int guard_add(const void *at, size_t n);
bool guard_is_damaged(int guard); /* guard may be 0: false */
void guard_remove(int guard);     /* before the map is removed; guard may be 0 */

#endif

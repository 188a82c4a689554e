/* auth.h: API keys. A file of lines "KEY [NAME] [parallel=N] [per-minute=N]"; '#' begins a comment.
 *
 * Keys are kept as SHA-256 and compared in constant time against all, so that time tells nothing. */
#ifndef CHIMERE_SERVE_AUTH_H
#define CHIMERE_SERVE_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct auth;
struct auth_key;

int auth_open(struct auth **out, const char *text, struct err *e);
void auth_close(struct auth *a);
/* The key that the client sent ("Bearer K" or K), or NULL. */
struct auth_key *auth_find(struct auth *a, const char *sent);
const char *auth_name(const struct auth_key *k);
/* One more request under k: 0, or CHIMERE_EBUSY with the seconds to wait in *retry_s. */
int auth_enter(struct auth *a, struct auth_key *k, int *retry_s, struct err *e);
void auth_leave(struct auth *a, struct auth_key *k);

#endif

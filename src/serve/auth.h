/* auth.h: API keys: of a file of lines "KEY [NAME] [admin] [parallel=N] [per-minute=N]" ('#' begins a
 * comment), and of the store, where `chimere key` puts them.
 *
 * Keys are known as SHA-256 and compared in constant time with all, so that timing reveals nothing. Changes
 * in the store take effect within a second (auth_refresh). Whatever is kept for a caller is kept under the
 * key's identity, which a new key of the same name does not inherit. Any thread. */
#ifndef CHIMERE_SERVE_AUTH_H
#define CHIMERE_SERVE_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { AUTH_HASH_BYTES = 32, AUTH_SECRET_BYTES = 80, AUTH_IDENTITY_BYTES = 24 };

struct auth;
struct auth_key; /* valid until auth_close, also when it was removed */
struct store;

/* text: of the key file, or NULL; s: borrowed until auth_close, or NULL. */
int auth_open(struct auth **out, const char *text, struct store *s, struct err *e);
void auth_close(struct auth *a);
/* False: there are no keys, nobody is asked for one. True once there was one, whatever becomes of it. */
bool auth_is_needed(struct auth *a);
/* text takes the place of the key file, or NULL: of no file. A key that is still there keeps its counts;
 * one that is not is refused from now on. Nothing changes if the text is refused. */
int auth_reload(struct auth *a, const char *text, struct err *e);
/* Takes over what another process changed in the store. */
void auth_refresh(struct auth *a);
/* The same of what this process has changed in it. */
int auth_reread(struct auth *a, struct err *e);
struct auth_who {                       /* as of one request */
    char identity[AUTH_IDENTITY_BYTES]; /* "key-" and 16 hexadecimal digits of the key's hash */
    bool is_admin;
};
/* The key that the client sent ("Bearer K" or K), or NULL. */
struct auth_key *auth_find(struct auth *a, const char *sent, struct auth_who *who);
const char *auth_name(const struct auth_key *k);
int64_t auth_id(const struct auth_key *k); /* its row of the store; 0: of the file */
/* One more request under k: 0, or CHIMERE_EBUSY with the seconds to wait in *retry_s. */
int auth_enter(struct auth *a, struct auth_key *k, int *retry_s, struct err *e);
void auth_leave(struct auth *a, struct auth_key *k);
/* An answer has cost n_tok tokens of prompt and text. */
void auth_spend(struct auth *a, struct auth_key *k, int64_t n_tok);

/* A new secret of 256 random bits, and the hash that is stored of one. */
void auth_secret(char out[AUTH_SECRET_BYTES]);
void auth_hash(const char *secret, unsigned char out[AUTH_HASH_BYTES]);
void auth_identity(const unsigned char hash[AUTH_HASH_BYTES], char out[AUTH_IDENTITY_BYTES]);

#endif

/* auth.h: API keys. They come from a file with lines "KEY [NAME] [admin] [parallel=N] [per-minute=N]" ('#' begins a
 * comment), and from the store, to which `chimere key` adds them.
 *
 * Keys are stored as SHA-256. A key is compared in constant time with all of them, so that the timing does not reveal
 * anything. Changes in the store take effect within a second (auth_refresh). Data of a caller is stored under the
 * identity of the key; a new key with the same name has a different identity. Any thread may call this. */
#ifndef CHIMERE_SERVE_AUTH_H
#define CHIMERE_SERVE_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { AUTH_HASH_BYTES = 32, AUTH_SECRET_BYTES = 80, AUTH_IDENTITY_BYTES = 24 };

struct auth;
struct auth_key; /* valid until auth_close, even if the key is removed */
struct store;

/* text: content of the key file, or NULL. s: borrowed until auth_close, or NULL. */
int auth_open(struct auth **out, const char *text, struct store *s, struct err *e);
void auth_close(struct auth *a);
/* Returns false if there has never been a key: then no key is required. Once there was a key, it stays true, even if
 * all keys are removed. */
bool auth_is_needed(struct auth *a);
/* text replaces the content of the key file; NULL: no file. A key that remains keeps its counts; a key that is missing
 * is refused from now on. If the text is invalid, nothing changes. */
int auth_reload(struct auth *a, const char *text, struct err *e);
/* Reads the changes that another process made in the store. */
void auth_refresh(struct auth *a);
/* Like auth_refresh, for changes that this process made. */
int auth_reread(struct auth *a, struct err *e);
struct auth_who {                       /* a snapshot for one request */
    char identity[AUTH_IDENTITY_BYTES]; /* "key-" and 16 hexadecimal digits of the key's hash */
    bool is_admin;
};
/* Returns the key that the client sent ("Bearer K" or K), or NULL. */
struct auth_key *auth_find(struct auth *a, const char *sent, struct auth_who *who);
const char *auth_name(const struct auth_key *k);
int64_t auth_id(const struct auth_key *k); /* its row in the store; 0: the key is from the file */
/* Counts the start of a request with key k. Returns 0, or CHIMERE_EBUSY and sets *retry_s to the seconds to wait. */
int auth_enter(struct auth *a, struct auth_key *k, int *retry_s, struct err *e);
void auth_leave(struct auth *a, struct auth_key *k);
/* Adds n_tok tokens (prompt and answer) to the usage of k. */
void auth_spend(struct auth *a, struct auth_key *k, int64_t n_tok);

/* auth_secret: a new secret of 256 random bits. auth_hash: the hash that is stored of a secret. */
void auth_secret(char out[AUTH_SECRET_BYTES]);
void auth_hash(const char *secret, unsigned char out[AUTH_HASH_BYTES]);
void auth_identity(const unsigned char hash[AUTH_HASH_BYTES], char out[AUTH_IDENTITY_BYTES]);

#endif

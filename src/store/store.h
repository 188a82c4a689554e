/* store.h: chimere.db or a PostgreSQL server: what the program remembers between runs. One function per query.
 *
 * Hides SQLite and PostgreSQL (sql.h): write-ahead log, schema and migrations, prepared statements. What a
 * function has stored survives if the process is killed at any moment. A loss of power may lose the last commits
 * but does not damage the file. Any thread: an internal lock serialises the calls. A call waits up to
 * STORE_BUSY_MS for other processes. A file that is damaged, has a newer version or belongs to another program is
 * refused unchanged. Texts passed in are borrowed for the call. Times are milliseconds since 1970 (UTC). */
#ifndef CHIMERE_STORE_STORE_H
#define CHIMERE_STORE_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum { STORE_BUSY_MS = 5000, STORE_MAX_NAME = 64, STORE_MAX_TEXT = 1 << 28 };

struct store;

/* Creates the file (mode 0600) if necessary and migrates it to the newest schema. Folders must exist. path may
 * also be "postgres://USER:PASSWORD@HOST/DATABASE": a PostgreSQL server that several machines share; a lost
 * connection is restored. */
int store_open(struct store **out, const char *path, struct err *e);
void store_close(struct store *s);
int64_t store_now_ms(void);
/* Reads every page. Returns 0, or CHIMERE_EFORMAT with what is wrong. Takes seconds per gigabyte. */
int store_check(struct store *s, struct err *e);

/* Returns a number that changes when another connection has written; 0: not available. */
int64_t store_version(struct store *s);

/* ---- requests ---- */

struct store_request {
    int64_t at_ms;       /* arrival; 0: now */
    int64_t key_id;      /* 0: no key */
    const char *api;     /* view; "openai.chat", ... */
    const char *model;   /* view */
    const char *session; /* view, or NULL */
    const char *finish;  /* view: "stop", "length", "cancelled", "error", ... */
    int32_t status;      /* HTTP status */
    int32_t n_prompt, n_cached, n_generated, n_reasoning;
    double queue_ms, prefill_ms, decode_ms;
    const char *request, *response; /* view: JSON, or NULL if contents are not kept */
};
int store_request_add(struct store *s, const struct store_request *r, int64_t *id, struct err *e);

/* Lists the newest requests first, with ids below `before` (0: all), without contents. If `each` returns nonzero,
 * the list stops and returns that value. */
int store_request_list(struct store *s, int64_t before, int32_t most,
                       int (*each)(void *ud, int64_t id, const struct store_request *r), void *ud,
                       struct err *e);

struct store_usage {
    int64_t n_request, n_failed, n_prompt, n_cached, n_generated;
};
/* Returns the usage of one key (0: of all) since from_ms. A request with status 400 or above counts as failed. */
int store_usage_since(struct store *s, int64_t key_id, int64_t from_ms, struct store_usage *u,
                      struct err *e);
/* Deletes requests that arrived before before_ms. Returns their number, or CHIMERE_E*. */
int64_t store_requests_forget(struct store *s, int64_t before_ms, struct err *e);

/* ---- API keys: only the SHA-256 hash of a secret is stored ---- */

struct store_key {
    int64_t id;
    char name[STORE_MAX_NAME + 1];
    unsigned char hash[32];
    int64_t created_ms, expires_ms; /* expires_ms 0: never */
    bool revoked;
    bool is_admin;          /* may load and unload models and see all users' activity */
    int32_t max_active;     /* concurrent requests; 0: no limit */
    int32_t per_minute;     /* requests per minute; 0: no limit */
    int64_t tokens_per_day; /* prompt and generated tokens; 0: no limit */
};
/* Reads name, hash, expires_ms and limits from k; sets id and created_ms. CHIMERE_EINVAL: the name or the secret
 * is in use. The name of a revoked key may be used again and keeps its id. */
int store_key_add(struct store *s, struct store_key *k, struct err *e);
/* Sets expiry, limits and role of the key with that name. CHIMERE_ENOENT: unknown or revoked. */
int store_key_limit(struct store *s, const struct store_key *k, struct err *e);
/* CHIMERE_ENOENT: unknown, revoked or expired. */
int store_key_find(struct store *s, const unsigned char hash[32], struct store_key *k,
                   struct err *e);
/* Lists all keys by name, including revoked and expired ones. If `each` returns nonzero, the list stops and
 * returns that value. */
int store_key_list(struct store *s, int (*each)(void *ud, const struct store_key *k), void *ud,
                   struct err *e);
/* CHIMERE_ENOENT: no such key */
int store_key_revoke(struct store *s, const char *name, struct err *e);

#endif

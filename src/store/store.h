/* store.h: chimere.db or a PostgreSQL server, what the program remembers between runs. One function per question asked of it.
 *
 * Hides SQLite and PostgreSQL (sql.h): write-ahead log, schema and migrations, prepared statements. What a function
 * has stored survives a kill of the process at any moment; a loss of power may cost the last commits
 * but never the file. Any thread: a lock inside serialises them; other processes are waited for up to
 * STORE_BUSY_MS. A file that is damaged, of a newer version or somebody else's is refused, unchanged.
 * Texts handed in are borrowed for the call. Times are milliseconds since 1970 (UTC). */
#ifndef CHIMERE_STORE_STORE_H
#define CHIMERE_STORE_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum { STORE_BUSY_MS = 5000, STORE_MAX_NAME = 64, STORE_MAX_TEXT = 1 << 28 };

struct store;

/* Makes the file (mode 0600) and migrates it to the newest schema. Folders must exist. path may also be
 * "postgres://USER:PASSWORD@HOST/DATABASE": a PostgreSQL server that several machines share, whose connection is made
 * again after it was lost. */
int store_open(struct store **out, const char *path, struct err *e);
void store_close(struct store *s);
int64_t store_now_ms(void);
/* Reads every page: 0, or CHIMERE_EFORMAT with what is wrong. Seconds a gigabyte. */
int store_check(struct store *s, struct err *e);

/* A number that changes when another connection has written; 0: cannot tell. */
int64_t store_version(struct store *s);

/* ---- requests ---- */

struct store_request {
    int64_t at_ms;       /* arrival; 0: now */
    int64_t key_id;      /* 0: no key */
    const char *api;     /* view; "openai.chat", ... */
    const char *model;   /* view */
    const char *session; /* view, or NULL */
    const char *finish;  /* view: "stop", "length", "cancelled", "error", ... */
    int32_t status;      /* HTTP */
    int32_t n_prompt, n_cached, n_generated, n_reasoning;
    double queue_ms, prefill_ms, decode_ms;
    const char *request, *response; /* view: JSON, or NULL where contents are not kept */
};
int store_request_add(struct store *s, const struct store_request *r, int64_t *id, struct err *e);

/* The newest first, from before an id (0: from the last), without contents. Nonzero from each stops, and is returned. */
int store_request_list(struct store *s, int64_t before, int32_t most,
                       int (*each)(void *ud, int64_t id, const struct store_request *r), void *ud,
                       struct err *e);

struct store_usage {
    int64_t n_request, n_failed, n_prompt, n_cached, n_generated;
};
/* What one key (0: everybody) has used since from_ms. Failed: status 400 and above. */
int store_usage_since(struct store *s, int64_t key_id, int64_t from_ms, struct store_usage *u,
                      struct err *e);
/* Forgets requests that arrived before; returns how many, or CHIMERE_E*. */
int64_t store_requests_forget(struct store *s, int64_t before_ms, struct err *e);

/* ---- API keys: only SHA-256 of the secret is stored ---- */

struct store_key {
    int64_t id;
    char name[STORE_MAX_NAME + 1];
    unsigned char hash[32];
    int64_t created_ms, expires_ms; /* expires 0: never */
    bool revoked;
    bool is_admin;          /* may load and unload models and see what everybody does */
    int32_t max_active;     /* requests at once; 0: no limit */
    int32_t per_minute;     /* requests; 0: no limit */
    int64_t tokens_per_day; /* prompt and generated; 0: no limit */
};
/* name, hash, expires and limits in; id and created out. CHIMERE_EINVAL: name or secret is taken; the name
 * of a revoked key may be used again, and keeps its id. */
int store_key_add(struct store *s, struct store_key *k, struct err *e);
/* Sets expires, limits and role of the key of that name. CHIMERE_ENOENT: none, or revoked. */
int store_key_limit(struct store *s, const struct store_key *k, struct err *e);
/* CHIMERE_ENOENT: unknown, revoked or expired. */
int store_key_find(struct store *s, const unsigned char hash[32], struct store_key *k,
                   struct err *e);
/* Revoked and expired ones too, by name. Nonzero from each stops, and is returned. */
int store_key_list(struct store *s, int (*each)(void *ud, const struct store_key *k), void *ud,
                   struct err *e);
int store_key_revoke(struct store *s, const char *name, struct err *e); /* CHIMERE_ENOENT */

#endif

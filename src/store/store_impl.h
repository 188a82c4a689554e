/* store_impl.h: prepared statements and the lock, shared by the files of the store. */
#ifndef CHIMERE_STORE_STORE_IMPL_H
#define CHIMERE_STORE_STORE_IMPL_H

#include <sqlite3.h>

#include "base/thread.h"
#include "store/queries_impl.h"
#include "store/sql.h"
#include "store/store.h"

enum store_query {
#define X(name, text) Q_##name,
    STORE_QUERIES(X)
#undef X
        Q_N
};

struct store {
    const struct sql_ops *ops;
    sqlite3 *db;                /* owned; NULL: not SQLite's */
    struct postgres *pg;        /* owned; NULL: not PostgreSQL's */
    char *path;                 /* owned; for messages: an address without its password */
    struct sql_stmt *stmt[Q_N]; /* owned; NULL until first used */
    pthread_mutex_t lock;       /* guards db and statements */
};

/* Takes the lock; not so on failure. */
int store_begin(struct store *s, enum store_query q, struct sql_stmt **st, struct err *e);
/* Resets the statement and gives the lock back. rc: what sql_step returned last. Returns 0 or CHIMERE_E*. */
int store_end(struct store *s, struct sql_stmt *st, int rc, struct err *e);
/* A transaction. The first takes the lock, not so on failure. The second commits, or rolls back if rc is set, and gives
 * the lock back; returns rc or why the commit failed. doing: for messages. */
int store_transaction(struct store *s, const char *doing, struct err *e);
int store_transaction_end(struct store *s, int rc, const char *doing, struct err *e);
/* A column's text, "" for NULL; a view as sql_text's. */
const char *store_string(struct sql_stmt *st, int i);
/* Runs a statement that changes rows, and ends it as store_end does. How many, or CHIMERE_E*. */
int64_t store_change(struct store *s, struct sql_stmt *st, struct err *e);
/* Runs a statement that deletes the rows before a time. How many, or CHIMERE_E*. */
int64_t store_forget(struct store *s, enum store_query q, int64_t before_ms, struct err *e);
/* Fills e from the database's own message. */
int store_fail(const struct store *s, int rc, const char *doing, struct err *e);

/* One step of the schema. The file's user_version is how many were applied. Rows are only ever added at
 * the end; a later module adds its tables as a row of its own. */
struct store_migration {
    const char *name; /* what it brings, for messages */
    const char *sql;
};
extern const struct store_migration store_migrations[];
extern const int store_n_migration;
/* Brings db from its user_version to n rows of the table; each row is one transaction. For tests, too. */
int store_is_newer(const struct store *s, int n, int64_t version, struct err *e);
int store_migrate_server(struct store *s, struct err *e); /* of PostgreSQL, to its newest row */
int store_migrate(struct store *s, const struct store_migration *table, int n, struct err *e);

#endif

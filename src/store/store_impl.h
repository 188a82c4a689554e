/* store_impl.h: prepared statements and the lock, shared by the files of the store. */
#ifndef CHIMERE_STORE_STORE_IMPL_H
#define CHIMERE_STORE_STORE_IMPL_H

#include <sqlite3.h>

#include "base/thread.h"
#include "store/sql/queries_impl.h"
#include "store/sql/sql.h"
#include "store/store.h"

enum store_query {
#define X(name, text) Q_##name,
    STORE_QUERIES(X)
#undef X
        Q_N
};

struct store {
    const struct sql_ops *ops;
    sqlite3 *db;                /* owned; NULL: not SQLite */
    struct postgres *pg;        /* owned; NULL: not PostgreSQL */
    char *path;                 /* owned; for messages; an address has no password */
    struct sql_stmt *stmt[Q_N]; /* owned; NULL before the first use */
    pthread_mutex_t lock;       /* protects db, statements and led */
    bool has_vectors;           /* the server searches vectors (server/doc_near.h) */
    uint64_t
        led; /* the connection on which this process took the lead (server/lead.h); 0: it does not lead */
};

/* "HOST:PID/START": the name of this process in a store that several machines share; without a host in a file. */
enum { STORE_HOST_BYTES = 64, STORE_PROCESS_BYTES = STORE_HOST_BYTES + 1 + 48 };
void store_process_name(const struct store *s, char out[STORE_PROCESS_BYTES]);

/* Takes the lock; on failure the lock is not held. */
int store_begin(struct store *s, enum store_query q, struct sql_stmt **st, struct err *e);
/* Resets the statement and releases the lock. rc: last result of sql_step. Returns 0 or CHIMERE_E*. */
int store_end(struct store *s, struct sql_stmt *st, int rc, struct err *e);
/* A transaction. store_transaction takes the lock; on failure the lock is not held. store_transaction_end commits,
 * or rolls back if rc is set, and releases the lock. It returns rc, or the reason why the commit failed. doing:
 * for messages. */
int store_transaction(struct store *s, const char *doing, struct err *e);
int store_transaction_end(struct store *s, int rc, const char *doing, struct err *e);
/* Returns a column's text, "" for NULL; a view like sql_text's. */
const char *store_string(struct sql_stmt *st, int i);
/* Runs a statement that changes rows, and ends it like store_end. Returns the number of rows, or CHIMERE_E*. */
int64_t store_change(struct store *s, struct sql_stmt *st, struct err *e);
/* Runs a statement that deletes the rows before a time. Returns their number, or CHIMERE_E*. */
int64_t store_forget(struct store *s, enum store_query q, int64_t before_ms, struct err *e);
/* Sets e from the database's error message. */
int store_fail(const struct store *s, int rc, const char *doing, struct err *e);

/* One migration of the schema. The file's user_version is the number of applied migrations. Rows are only added at
 * the end; a later module adds its tables as a new row. */
struct store_migration {
    const char *name; /* what it adds, for messages */
    const char *sql;
};
extern const struct store_migration store_migrations[];
extern const int store_n_migration;
/* store_migrate applies rows of the table from the user_version of db to n, one transaction per row. Also used by
 * tests. */
int store_is_newer(const struct store *s, int n, int64_t version, struct err *e);
/* migrates a PostgreSQL server to its newest row */
int store_migrate_server(struct store *s, struct err *e);
int store_migrate(struct store *s, const struct store_migration *table, int n, struct err *e);

#endif

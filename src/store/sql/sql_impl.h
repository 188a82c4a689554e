/* sql_impl.h: the functions of a driver of sql.h. */
#ifndef CHIMERE_STORE_SQL_SQL_IMPL_H
#define CHIMERE_STORE_SQL_SQL_IMPL_H

#include <stdbool.h>

#include "store/sql/sql.h"

struct sql_stmt {    /* first member of each driver's own struct */
    struct store *s; /* view */
    /* a value could not be bound or read for lack of memory: every later step returns this, until a reset */
    int failed;
};

struct sql_ops {
    int (*prepare)(struct store *s, const char *text, struct sql_stmt **out);
    void (*finalize)(struct sql_stmt *st);
    void (*reset)(struct sql_stmt *st);
    void (*bind_int64)(struct sql_stmt *st, int i, int64_t v);
    void (*bind_double)(struct sql_stmt *st, int i, double v);
    void (*bind_text)(struct sql_stmt *st, int i, const char *text);
    void (*bind_blob)(struct sql_stmt *st, int i, const void *data, size_t n);
    int (*step)(struct sql_stmt *st);
    int64_t (*int64)(struct sql_stmt *st, int i);
    double (*dbl)(struct sql_stmt *st, int i);
    const char *(*text)(struct sql_stmt *st, int i);
    const void *(*blob)(struct sql_stmt *st, int i, int32_t *n);
    int (*exec)(struct store *s, const char *text);
    int64_t (*changes)(struct store *s);
    int (*fail)(const struct store *s, int rc, const char *doing, struct err *e);
    int64_t (*version)(struct store *s); /* changes when another connection has written */
    int (*check)(struct store *s, struct err *e);
    /* Called before a statement outside a transaction: restores a lost connection. */
    int (*ready)(struct store *s);
    bool (*is_up)(const struct store *s);         /* any thread, without the lock */
    uint64_t (*n_connect)(const struct store *s); /* connections made so far; 0: a file */
    void (*close)(struct store *s);
};

extern const struct sql_ops sql_sqlite_ops, sql_postgres_ops;

/* Lets a connection find the extension pgvector, in whichever schema it is. */
#define SQL_POSTGRES_PATH                                                                          \
    "SELECT set_config('search_path', concat_ws(', ', current_setting('search_path'),"             \
    " (SELECT quote_ident(n.nspname) FROM pg_extension x JOIN pg_namespace n"                      \
    " ON n.oid = x.extnamespace WHERE x.extname = 'vector')), false)"

/* Each sets s->ops and the driver's own members. sql_sqlite.c: path as in store_open. sql_postgres.c: url of a
 * server. */
int sql_sqlite_open(struct store *s, const char *path, struct err *e);
int sql_postgres_open(struct store *s, const char *url, struct err *e);

#endif

/* sql.h: statements for SQLite or PostgreSQL, used only by the files of the store.
 *
 * One text serves both: parameters are ?1, ?2, ...; numbers are BIGINT and DOUBLE PRECISION; insertions end with
 * RETURNING id. If the two need different texts (search for words), sql_postgres.c has its own. Call these
 * functions with the store's lock held. Bound texts and blobs are borrowed until the statement is reset; columns
 * are views until the next step. */
#ifndef CHIMERE_STORE_SQL_SQL_H
#define CHIMERE_STORE_SQL_SQL_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct store;
struct sql_stmt;

/* The values of SQLite. Any other result of these functions is a driver error, to be passed to store_fail. */
enum { SQL_OK = 0, SQL_ROW = 100, SQL_DONE = 101 };

int sql_prepare(struct store *s, const char *text, struct sql_stmt **out); /* SQL_OK */
void sql_finalize(struct sql_stmt *st);                                    /* NULL is allowed */
void sql_reset(struct sql_stmt *st); /* afterwards the statement can be bound and run again */
/* Parameters are numbered from 1; a parameter that the text does not use is ignored. */
void sql_bind_int64(struct sql_stmt *st, int i, int64_t v);
void sql_bind_double(struct sql_stmt *st, int i, double v);                 /* NaN: NULL */
void sql_bind_text(struct sql_stmt *st, int i, const char *text);           /* NULL: NULL */
void sql_bind_blob(struct sql_stmt *st, int i, const void *data, size_t n); /* NULL: NULL */
int sql_step(struct sql_stmt *st); /* SQL_ROW or SQL_DONE */
/* Runs an insertion to its end; *id is its first column, unchanged if there is no row. id may be NULL. */
int sql_insert(struct sql_stmt *st, int64_t *id);
/* Columns are numbered from 0. */
int64_t sql_int64(struct sql_stmt *st, int i);
double sql_double(struct sql_stmt *st, int i);                /* NULL: NaN */
const char *sql_text(struct sql_stmt *st, int i);             /* NULL: NULL */
const void *sql_blob(struct sql_stmt *st, int i, int32_t *n); /* NULL: NULL */
int sql_exec(struct store *s, const char *text);              /* one or more statements; SQL_OK */
/* number of rows that the last change affected */
int64_t sql_changes(struct store *s);

#endif

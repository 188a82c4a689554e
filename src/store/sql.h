/* sql.h: statements over SQLite or PostgreSQL, for the files of the store alone.
 *
 * One text serves both: parameters are ?1, ?2, ..., numbers are BIGINT and DOUBLE PRECISION, insertions end on
 * RETURNING id. Where the two differ (search for words), sql_postgres.c has a text of its own. With the store's lock
 * held. Texts and blobs that are bound are borrowed until the statement is reset; columns are views until the next
 * step. */
#ifndef CHIMERE_STORE_SQL_H
#define CHIMERE_STORE_SQL_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct store;
struct sql_stmt;

/* As SQLite counts them; any other result of these functions is an error of the driver, for store_fail. */
enum { SQL_OK = 0, SQL_ROW = 100, SQL_DONE = 101 };

int sql_prepare(struct store *s, const char *text, struct sql_stmt **out); /* SQL_OK */
void sql_finalize(struct sql_stmt *st);                                    /* NULL is allowed */
void sql_reset(struct sql_stmt *st); /* to be bound and run again */
/* Parameters from 1; one that the text does not name is ignored. */
void sql_bind_int64(struct sql_stmt *st, int i, int64_t v);
void sql_bind_double(struct sql_stmt *st, int i, double v);                 /* NaN: NULL */
void sql_bind_text(struct sql_stmt *st, int i, const char *text);           /* NULL: NULL */
void sql_bind_blob(struct sql_stmt *st, int i, const void *data, size_t n); /* NULL: NULL */
int sql_step(struct sql_stmt *st); /* SQL_ROW or SQL_DONE */
/* Runs an insertion to its end; *id is its first column, unchanged if there is no row. id may be NULL. */
int sql_insert(struct sql_stmt *st, int64_t *id);
/* Columns from 0. */
int64_t sql_int64(struct sql_stmt *st, int i);
double sql_double(struct sql_stmt *st, int i);                /* NULL: NaN */
const char *sql_text(struct sql_stmt *st, int i);             /* NULL: NULL */
const void *sql_blob(struct sql_stmt *st, int i, int32_t *n); /* NULL: NULL */
int sql_exec(struct store *s, const char *text);              /* one or more statements; SQL_OK */
int64_t sql_changes(struct store *s);                         /* rows of the last change */

#endif

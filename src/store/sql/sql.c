/* sql.c: passes statements to the driver of their store. */
#include "store/sql/sql.h"

#include "store/sql/sql_impl.h"
#include "store/store_impl.h"

int sql_prepare(struct store *s, const char *text, struct sql_stmt **out) {
    *out = NULL;
    return s->ops->prepare(s, text, out);
}

void sql_finalize(struct sql_stmt *st) {
    if (st) st->s->ops->finalize(st);
}

void sql_reset(struct sql_stmt *st) {
    st->failed = SQL_OK;
    st->s->ops->reset(st);
}

void sql_bind_int64(struct sql_stmt *st, int i, int64_t v) { st->s->ops->bind_int64(st, i, v); }

void sql_bind_double(struct sql_stmt *st, int i, double v) { st->s->ops->bind_double(st, i, v); }

void sql_bind_text(struct sql_stmt *st, int i, const char *text) {
    st->s->ops->bind_text(st, i, text);
}

void sql_bind_blob(struct sql_stmt *st, int i, const void *data, size_t n) {
    st->s->ops->bind_blob(st, i, data, n);
}

int sql_step(struct sql_stmt *st) { return st->failed ? st->failed : st->s->ops->step(st); }

int sql_insert(struct sql_stmt *st, int64_t *id) {
    int rc = sql_step(st);
    if (rc == SQL_ROW && id) *id = sql_int64(st, 0);
    while (rc == SQL_ROW) rc = sql_step(st); /* run to the end, because SQLite commits only then */
    return rc;
}

int64_t sql_int64(struct sql_stmt *st, int i) { return st->s->ops->int64(st, i); }

double sql_double(struct sql_stmt *st, int i) { return st->s->ops->dbl(st, i); }

const char *sql_text(struct sql_stmt *st, int i) { return st->s->ops->text(st, i); }

const void *sql_blob(struct sql_stmt *st, int i, int32_t *n) {
    *n = 0;
    return st->s->ops->blob(st, i, n);
}

int sql_exec(struct store *s, const char *text) { return s->ops->exec(s, text); }

int64_t sql_changes(struct store *s) { return s->ops->changes(s); }

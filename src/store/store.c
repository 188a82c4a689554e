/* store.c: opening, statements, errors. */
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "store/place.h"
#include "store/sql/sql_impl.h"
#include "store/store_impl.h"

enum { APPLICATION_ID = 0x4348494d }; /* "CHIM" */

static const char *const query_text[Q_N] = {
#define X(name, text) text,
    STORE_QUERIES(X)
#undef X
};

int64_t store_now_ms(void) {
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

int store_fail(const struct store *s, int rc, const char *doing, struct err *e) {
    return s->ops->fail(s, rc, doing, e);
}

const char *store_string(struct sql_stmt *st, int i) {
    const char *text = sql_text(st, i);
    return text ? text : "";
}

int store_transaction(struct store *s, const char *doing, struct err *e) {
    pthread_mutex_lock(&s->lock);
    int rc = s->ops->ready(s);
    if (!rc) rc = sql_exec(s, "BEGIN IMMEDIATE");
    if (rc == SQL_OK) return 0;
    int code = store_fail(s, rc, doing, e);
    pthread_mutex_unlock(&s->lock);
    return code;
}

int store_transaction_end(struct store *s, int rc, const char *doing, struct err *e) {
    if (!rc) {
        int got = sql_exec(s, "COMMIT");
        if (got != SQL_OK) rc = store_fail(s, got, doing, e);
    }
    if (rc) sql_exec(s, "ROLLBACK");
    pthread_mutex_unlock(&s->lock);
    return rc;
}

int store_begin(struct store *s, enum store_query q, struct sql_stmt **st, struct err *e) {
    pthread_mutex_lock(&s->lock);
    int rc = s->ops->ready(s);
    if (!rc && !s->stmt[q]) rc = sql_prepare(s, query_text[q], &s->stmt[q]);
    *st = s->stmt[q];
    if (rc == SQL_OK) return 0;
    int code = store_fail(s, rc, "prepare a statement", e);
    pthread_mutex_unlock(&s->lock);
    return code;
}

int store_end(struct store *s, struct sql_stmt *st, int rc, struct err *e) {
    if (rc == SQL_DONE || rc == SQL_ROW) rc = st->failed;
    int code = rc == SQL_OK ? 0 : store_fail(s, rc, "read or write", e);
    sql_reset(st);
    pthread_mutex_unlock(&s->lock);
    return code;
}

int64_t store_change(struct store *s, struct sql_stmt *st, struct err *e) {
    int rc = sql_step(st);
    int64_t n = rc == SQL_DONE ? sql_changes(s) : 0;
    int code = store_end(s, st, rc, e);
    return code ? code : n;
}

int64_t store_forget(struct store *s, enum store_query q, int64_t before_ms, struct err *e) {
    struct sql_stmt *st;
    int code = store_begin(s, q, &st, e);
    if (code) return code;
    sql_bind_int64(st, 1, before_ms);
    return store_change(s, st, e);
}

static int pragma_int(struct store *s, const char *sql, int64_t *v, struct err *e) {
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(s->db, sql, -1, &st, NULL);
    if (rc == SQLITE_OK) rc = sqlite3_step(st);
    *v = rc == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
    int code = rc == SQLITE_ROW ? 0 : store_fail(s, rc, "read", e);
    sqlite3_finalize(st);
    return code;
}

static int check_id(struct store *s, int64_t *id, int64_t *version, int64_t *n_table,
                    struct err *e) {
    int rc = pragma_int(s, "PRAGMA application_id", id, e);
    if (!rc) rc = pragma_int(s, "PRAGMA user_version", version, e);
    if (!rc) rc = pragma_int(s, "SELECT count(*) FROM sqlite_schema", n_table, e);
    if (!rc && *id != APPLICATION_ID && (*id || *version || *n_table)) {
        rc = err_set(e, CHIMERE_EMISMATCH, "%s: a database of another program", s->path);
        err_hint(e, "name another file");
    }
    return rc;
}

static int set_up(struct store *s, struct err *e) {
    int64_t id = 0, version = 0, n_table = 0;
    int rc = check_id(s, &id, &version, &n_table, e);
    char sql[128];
    sqlite3_snprintf(sizeof sql, sql,
                     "PRAGMA application_id = %d; PRAGMA journal_mode = WAL;"
                     "PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON;",
                     (int)APPLICATION_ID);
    if (!rc) {
        int got = sqlite3_exec(s->db, sql, NULL, NULL, NULL);
        if (got != SQLITE_OK) rc = store_fail(s, got, "set up", e);
    }
    return rc ? rc : store_migrate(s, store_migrations, store_n_migration, e);
}

bool store_is_server(const char *path) {
    return str_starts(path, "postgres://") || str_starts(path, "postgresql://");
}

/* Returns an address without the password: "postgres://user@host/db". */
static char *shown(const char *path) {
    char *copy = mem_strdup(path);
    if (!copy || !store_is_server(path)) return copy;
    copy[strcspn(copy, "?")] = 0; /* parameters may contain secrets too */
    char *begin = strstr(copy, "://") + 3, *at = strrchr(begin, '@'),
         *colon = at ? memchr(begin, ':', (size_t)(at - begin)) : NULL;
    if (colon) memmove(colon, at, strlen(at) + 1);
    return copy;
}

int store_open(struct store **out, const char *path, struct err *e) {
    *out = NULL;
    bool is_server = store_is_server(path);
    struct store *s = mem_zalloc(sizeof *s);
    if (!s) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    pthread_mutex_init(&s->lock, NULL);
    s->ops = &sql_sqlite_ops;
    s->path = shown(path);
    int rc = s->path ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = is_server ? sql_postgres_open(s, path, e) : sql_sqlite_open(s, path, e);
    if (!rc) rc = is_server ? store_migrate_server(s, e) : set_up(s, e);
    if (rc) {
        store_close(s);
        return rc;
    }
    *out = s;
    return 0;
}

int store_open_existing(struct store **out, const char *path, struct err *e) {
    *out = NULL;
    if (!store_is_server(path) && !file_exists(path))
        return err_set(e, CHIMERE_ENOENT, "%s: no such file", path);
    return store_open(out, path, e);
}

int store_probe(const char *path, struct err *e) {
    struct store s = {.ops = &sql_sqlite_ops, .path = (char *)path};
    if (store_is_server(path))
        return 0; /* a server is checked at start; before that it may not be running yet */
    int64_t id = 0, version = 0, n_table = 0;
    int got = sqlite3_open_v2(path, &s.db, SQLITE_OPEN_READONLY | SQLITE_OPEN_EXRESCODE, NULL);
    int rc = got == SQLITE_OK ? check_id(&s, &id, &version, &n_table, e) : 0;
    if (got != SQLITE_OK && (got & 0xff) != SQLITE_CANTOPEN) rc = store_fail(&s, got, "open", e);
    else if (got != SQLITE_OK && file_exists(path)) rc = store_fail(&s, got, "open", e);
    if (!rc && version > store_n_migration) rc = store_is_newer(&s, store_n_migration, version, e);
    sqlite3_close(s.db);
    return rc;
}

void store_close(struct store *s) {
    if (!s) return;
    for (int q = 0; q < Q_N; q++) sql_finalize(s->stmt[q]);
    s->ops->close(s);
    pthread_mutex_destroy(&s->lock);
    mem_free(s->path);
    mem_free(s);
}

bool store_is_up(const struct store *s) { return s->ops->is_up(s); }

int64_t store_version(struct store *s) {
    pthread_mutex_lock(&s->lock);
    int64_t v = s->ops->version(s);
    pthread_mutex_unlock(&s->lock);
    return v;
}

int store_check(struct store *s, struct err *e) {
    pthread_mutex_lock(&s->lock);
    int code = s->ops->ready(s) ? store_fail(s, 1, "check", e) : s->ops->check(s, e);
    pthread_mutex_unlock(&s->lock);
    return code;
}

/* store.c: opening, statements, errors. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
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
    static const struct {
        int sqlite, code;
    } map[] = {{SQLITE_BUSY, CHIMERE_EBUSY},      {SQLITE_LOCKED, CHIMERE_EBUSY},
               {SQLITE_NOMEM, CHIMERE_ENOMEM},    {SQLITE_CORRUPT, CHIMERE_EFORMAT},
               {SQLITE_NOTADB, CHIMERE_EFORMAT},  {SQLITE_CONSTRAINT, CHIMERE_EINVAL},
               {SQLITE_TOOBIG, CHIMERE_ELIMIT},   {SQLITE_ERROR, CHIMERE_EINTERNAL},
               {SQLITE_MISUSE, CHIMERE_EINTERNAL}};
    int code = CHIMERE_EIO;
    for (size_t i = 0; i < sizeof map / sizeof *map; i++)
        if (map[i].sqlite == (rc & 0xff)) code = map[i].code;
    err_set(e, code, "%s: cannot %s: %s", s->path, doing,
            s->db ? sqlite3_errmsg(s->db) : sqlite3_errstr(rc));
    if (code == CHIMERE_EFORMAT)
        err_hint(e, "move the file aside, with its -wal and -shm; a new one is made");
    if (code == CHIMERE_EBUSY) err_hint(e, "another process is writing to it");
    return code;
}

int store_begin(struct store *s, enum store_query q, sqlite3_stmt **st, struct err *e) {
    pthread_mutex_lock(&s->lock);
    int rc = s->stmt[q] ? SQLITE_OK
                        : sqlite3_prepare_v3(s->db, query_text[q], -1, SQLITE_PREPARE_PERSISTENT,
                                             &s->stmt[q], NULL);
    *st = s->stmt[q];
    if (rc == SQLITE_OK) return 0;
    int code = store_fail(s, rc, "prepare a statement", e);
    pthread_mutex_unlock(&s->lock);
    return code;
}

int store_end(struct store *s, sqlite3_stmt *st, int rc, struct err *e) {
    int code = rc == SQLITE_DONE || rc == SQLITE_ROW
                   ? 0
                   : store_fail(s, rc, sqlite3_stmt_readonly(st) ? "read" : "write", e);
    sqlite3_reset(st);
    sqlite3_clear_bindings(st);
    pthread_mutex_unlock(&s->lock);
    return code;
}

int64_t store_forget(struct store *s, enum store_query q, int64_t before_ms, struct err *e) {
    sqlite3_stmt *st;
    int code = store_begin(s, q, &st, e);
    if (code) return code;
    sqlite3_bind_int64(st, 1, before_ms);
    int rc = sqlite3_step(st);
    int64_t n = rc == SQLITE_DONE ? sqlite3_changes64(s->db) : 0;
    code = store_end(s, st, rc, e);
    return code ? code : n;
}

void store_bind_text(sqlite3_stmt *st, int i, const char *text) {
    if (text) sqlite3_bind_text(st, i, text, -1, SQLITE_STATIC);
    else sqlite3_bind_null(st, i);
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

int store_open(struct store **out, const char *path, struct err *e) {
    *out = NULL;
    bool in_file = strcmp(path, ":memory:") != 0;
    if (in_file) { /* SQLite would make it readable by everybody */
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0)
            return err_set(e, errno == ENOENT ? CHIMERE_ENOENT : CHIMERE_EIO, "%s: cannot open: %s",
                           path, strerror(errno));
        close(fd);
    }
    struct store *s = mem_zalloc(sizeof *s);
    if (!s) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    pthread_mutex_init(&s->lock, NULL);
    s->path = mem_strdup(path);
    int rc = s->path ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) {
        int got = sqlite3_open_v2(path, &s->db,
                                  SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX |
                                      SQLITE_OPEN_EXRESCODE,
                                  NULL);
        if (got != SQLITE_OK) rc = store_fail(s, got, "open", e);
    }
    if (!rc) {
        sqlite3_busy_timeout(s->db, STORE_BUSY_MS);
        sqlite3_limit(s->db, SQLITE_LIMIT_LENGTH, STORE_MAX_TEXT);
        sqlite3_db_config(s->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
        sqlite3_db_config(s->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
        rc = set_up(s, e);
    }
    if (rc) {
        store_close(s);
        return rc;
    }
    *out = s;
    return 0;
}

int store_probe(const char *path, struct err *e) {
    struct store s = {.path = (char *)path};
    int64_t id = 0, version = 0, n_table = 0;
    int got = sqlite3_open_v2(path, &s.db, SQLITE_OPEN_READONLY | SQLITE_OPEN_EXRESCODE, NULL);
    int rc = got == SQLITE_OK ? check_id(&s, &id, &version, &n_table, e) : 0;
    if (got != SQLITE_OK && (got & 0xff) != SQLITE_CANTOPEN) rc = store_fail(&s, got, "open", e);
    else if (got != SQLITE_OK && access(path, F_OK) == 0) rc = store_fail(&s, got, "open", e);
    if (!rc && version > store_n_migration) rc = store_is_newer(&s, store_n_migration, version, e);
    sqlite3_close(s.db);
    return rc;
}

void store_close(struct store *s) {
    if (!s) return;
    for (int q = 0; q < Q_N; q++) sqlite3_finalize(s->stmt[q]);
    sqlite3_close(s->db);
    pthread_mutex_destroy(&s->lock);
    mem_free(s->path);
    mem_free(s);
}

int64_t store_version(struct store *s) {
    sqlite3_stmt *st;
    if (store_begin(s, Q_VERSION, &st, NULL)) return 0;
    int rc = sqlite3_step(st);
    int64_t v = rc == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
    return store_end(s, st, rc, NULL) ? 0 : v;
}

int store_check(struct store *s, struct err *e) {
    pthread_mutex_lock(&s->lock);
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(s->db, "PRAGMA integrity_check(1)", -1, &st, NULL);
    if (rc == SQLITE_OK) rc = sqlite3_step(st);
    int code = 0;
    if (rc != SQLITE_ROW) {
        code = store_fail(s, rc, "check", e);
    } else if (strcmp((const char *)sqlite3_column_text(st, 0), "ok") != 0) {
        code = err_set(e, CHIMERE_EFORMAT, "%s: damaged: %s", s->path,
                       (const char *)sqlite3_column_text(st, 0));
    }
    sqlite3_finalize(st);
    pthread_mutex_unlock(&s->lock);
    return code;
}

/* sql_sqlite.c: the driver over a file: write-ahead log, one connection. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/os/fs.h"
#include "base/mem.h"
#include "store/sql/sql_impl.h"
#include "store/store_impl.h"

struct lite {
    struct sql_stmt base;
    sqlite3_stmt *st; /* owned */
};

static sqlite3_stmt *of(struct sql_stmt *st) { return ((struct lite *)st)->st; }

/* Keeps the failure of a bind or of a column. A parameter that the text does not use (SQLITE_RANGE) is no failure. */
static void keep(struct sql_stmt *st, int rc) {
    if ((rc & 0xff) == SQLITE_NOMEM || (rc & 0xff) == SQLITE_TOOBIG) st->failed = rc;
}

static int prepare(struct store *s, const char *text, struct sql_stmt **out) {
    struct lite *l = mem_zalloc(sizeof *l);
    if (!l) return SQLITE_NOMEM;
    l->base.s = s;
    int rc = sqlite3_prepare_v3(s->db, text, -1, SQLITE_PREPARE_PERSISTENT, &l->st, NULL);
    if (rc == SQLITE_OK) *out = &l->base;
    else mem_free(l);
    return rc;
}

static void finalize(struct sql_stmt *st) {
    sqlite3_finalize(of(st));
    mem_free(st);
}

static void reset(struct sql_stmt *st) {
    sqlite3_reset(of(st));
    sqlite3_clear_bindings(of(st));
}

static void bind_int64(struct sql_stmt *st, int i, int64_t v) {
    keep(st, sqlite3_bind_int64(of(st), i, v));
}

static void bind_double(struct sql_stmt *st, int i, double v) {
    keep(st, sqlite3_bind_double(of(st), i, v)); /* SQLite stores NaN as NULL */
}

static void bind_text(struct sql_stmt *st, int i, const char *text) {
    keep(st, text ? sqlite3_bind_text(of(st), i, text, -1, SQLITE_STATIC)
                  : sqlite3_bind_null(of(st), i));
}

static void bind_blob(struct sql_stmt *st, int i, const void *data, size_t n) {
    keep(st, data ? sqlite3_bind_blob64(of(st), i, data, n, SQLITE_STATIC)
                  : sqlite3_bind_null(of(st), i));
}

static int step(struct sql_stmt *st) { return sqlite3_step(of(st)); }

static int64_t int64(struct sql_stmt *st, int i) { return sqlite3_column_int64(of(st), i); }

static double dbl(struct sql_stmt *st, int i) {
    return sqlite3_column_type(of(st), i) == SQLITE_NULL ? NAN : sqlite3_column_double(of(st), i);
}

static const char *text(struct sql_stmt *st, int i) {
    const char *p = (const char *)sqlite3_column_text(of(st), i);
    if (!p) keep(st, sqlite3_errcode(st->s->db));
    return p;
}

static const void *blob(struct sql_stmt *st, int i, int32_t *n) {
    const void *data = sqlite3_column_blob(of(st), i);
    if (!data) keep(st, sqlite3_errcode(st->s->db));
    *n = sqlite3_column_bytes(of(st), i);
    return data;
}

static int exec(struct store *s, const char *sql) {
    return sqlite3_exec(s->db, sql, NULL, NULL, NULL);
}

static int64_t changes(struct store *s) { return sqlite3_changes64(s->db); }

static int fail(const struct store *s, int rc, const char *doing, struct err *e) {
    static const struct {
        int sqlite, code;
    } map[] = {{SQLITE_BUSY, CHIMERE_EBUSY},      {SQLITE_LOCKED, CHIMERE_EBUSY},
               {SQLITE_NOMEM, CHIMERE_ENOMEM},    {SQLITE_CORRUPT, CHIMERE_EFORMAT},
               {SQLITE_NOTADB, CHIMERE_EFORMAT},  {SQLITE_CONSTRAINT, CHIMERE_EINVAL},
               {SQLITE_TOOBIG, CHIMERE_ELIMIT},   {SQLITE_FULL, CHIMERE_ELIMIT},
               {SQLITE_ERROR, CHIMERE_EINTERNAL}, {SQLITE_MISUSE, CHIMERE_EINTERNAL}};
    int code = CHIMERE_EIO;
    for (size_t i = 0; i < sizeof map / sizeof *map; i++)
        if (map[i].sqlite == (rc & 0xff)) code = map[i].code;
    err_set(e, code, "%s: cannot %s: %s", s->path, doing,
            s->db ? sqlite3_errmsg(s->db) : sqlite3_errstr(rc));
    if (code == CHIMERE_EFORMAT)
        err_hint(e, "move the file aside, with its -wal and -shm; a new one is created");
    if ((rc & 0xff) == SQLITE_FULL) err_hint(e, "make room on its volume");
    if (code == CHIMERE_EBUSY) err_hint(e, "another process is writing to it");
    return code;
}

static int64_t scalar(struct store *s, const char *sql, int *rc) {
    sqlite3_stmt *st = NULL;
    *rc = sqlite3_prepare_v2(s->db, sql, -1, &st, NULL);
    if (*rc == SQLITE_OK) *rc = sqlite3_step(st);
    int64_t v = *rc == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
    sqlite3_finalize(st);
    return v;
}

static int64_t version(struct store *s) {
    int rc;
    return scalar(s, "PRAGMA data_version", &rc);
}

static int check(struct store *s, struct err *e) {
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
    return code;
}

static int ready(struct store *s) {
    (void)s;
    return SQL_OK;
}

static bool is_up(const struct store *s) {
    (void)s;
    return true;
}

static uint64_t n_connect(const struct store *s) {
    (void)s;
    return 0;
}

static void close_db(struct store *s) {
    sqlite3_close(s->db);
    s->db = NULL;
}

const struct sql_ops sql_sqlite_ops = {
    prepare, finalize, reset, bind_int64, bind_double, bind_text, bind_blob,
    step,    int64,    dbl,   text,       blob,        exec,      changes,
    fail,    version,  check, ready,      is_up,       n_connect, close_db};

int sql_sqlite_open(struct store *s, const char *path, struct err *e) {
    s->ops = &sql_sqlite_ops;
    /* create the file first, because SQLite would make it readable for all users */
    if (strcmp(path, ":memory:") != 0) {
        if (fs_touch(path))
            return err_set(e, errno == ENOENT ? CHIMERE_ENOENT : CHIMERE_EIO, "%s: cannot open: %s",
                           path, strerror(errno));
    }
    int got = sqlite3_open_v2(path, &s->db,
                              SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX |
                                  SQLITE_OPEN_EXRESCODE,
                              NULL);
    if (got != SQLITE_OK) return store_fail(s, got, "open", e);
    sqlite3_busy_timeout(s->db, STORE_BUSY_MS);
    sqlite3_limit(s->db, SQLITE_LIMIT_LENGTH, STORE_MAX_TEXT);
    sqlite3_db_config(s->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(s->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    return 0;
}

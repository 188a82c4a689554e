#include "store/copy.h"

#include <stdio.h>
#include <string.h>

#include "store/store_impl.h"

/* The kind of each column, in order: i integer, d double, t text, b blob. serial: new ids must continue after the
 * copied ones. */
static const struct table {
    const char *name, *columns, *kinds;
    bool serial;
} tables[] = {
    {"api_keys",
     "id, name, hash, created_ms, expires_ms, revoked, max_active, per_minute, tokens_per_day,"
     " role",
     "itbiiiiiii", true},
    {"requests",
     "id, at_ms, key_id, api, model, session, finish, status, n_prompt, n_cached, n_generated,"
     " n_reasoning, queue_ms, prefill_ms, decode_ms, request, response",
     "iiittttiiiiidddtt", true},
    {"doc_files", "id, collection, path, title, n_bytes, mtime_ns, n_chunk, embedder", "itttiiii",
     true},
    {"doc_chunks", "id, file, from_byte, to_byte, page, line, vec", "iiiiiib", true},
    {"doc_fts", "rowid, title, heading, body", "ittt", false},
    {"doc_roots", "collection, path, is_excluded", "tti", false},
    {"odo_decisions", "id, at_ms, route, how, pipeline, mode, ms, failed, record", "iittttdit",
     true},
    {"examples", "id, domain, question, answer, source, score, at_ms, embedder, vec", "ittttdiib",
     true},
    {"example_domains", "domain, embedder, n_change, centres", "tiib", false},
    {"odo_memory", "id, owner, at_ms, kind, text, pinned, tainted, replaced_by", "itiitiii", true},
    {"odo_memory_fts", "rowid, text", "it", false},
    {"quality",
     "id, at_ms, parent, name, route, model, origin, question, answer, score, judge, feedback,"
     " comment, owner, night",
     "iiittttttdtitti", true},
    {"personas", "id, owner, name, text", "ittt", true},
    {"conversations",
     "id, owner, name, title, project, metadata, settings, pinned, created_ms, updated_ms,"
     " version, n_item, n_bytes",
     "ittttttiiiiii", true},
    {"conversation_items", "id, conversation, name, parent, at_ms, n_bytes, body", "iitiiit", true},
    {"conversation_usage", "owner, n_bytes, n", "tii", false},
    {"conversation_fts", "rowid, text", "it", false},
    {"answers", "id, owner, name, at_ms, n_bytes, input, response", "ittiitt", true},
    {"jobs",
     "id, kind, name, state, started_ms, ended_ms, n_done, n_total, progress, error, owner,"
     " priority, body, person, n_try",
     "itttiiiitttitti", true},
};

static int run(struct store *s, const char *sql, const char *doing, struct err *e) {
    int rc = sql_exec(s, sql);
    return rc == SQL_OK ? 0 : store_fail(s, rc, doing, e);
}

static void move_column(struct sql_stmt *from, struct sql_stmt *to, int i, char kind) {
    int32_t n;
    switch (kind) {
    case 'i': sql_bind_int64(to, i + 1, sql_int64(from, i)); break;
    case 'd': sql_bind_double(to, i + 1, sql_double(from, i)); break;
    case 't': sql_bind_text(to, i + 1, sql_text(from, i)); break;
    default: {
        const void *data = sql_blob(from, i, &n);
        sql_bind_blob(to, i + 1, data, (size_t)n);
    }
    }
}

static int prepare_insert(struct store *to, const struct table *t, struct sql_stmt **out) {
    char sql[1024];
    size_t n_column = strlen(t->kinds);
    int n = snprintf(sql, sizeof sql, "INSERT INTO %s(%s) VALUES(", t->name, t->columns);
    for (size_t i = 0; i < n_column; i++)
        n += snprintf(sql + n, sizeof sql - (size_t)n, "%s?%zu", i ? "," : "", i + 1);
    snprintf(sql + n, sizeof sql - (size_t)n, ")");
    return sql_prepare(to, sql, out);
}

/* Copies the rows of one table from `offset` on, in the order of its key. One batch only, so that a long table is
 * not held in memory. */
static int copy_batch(struct store *from, struct store *to, const struct table *t, int64_t offset,
                      int64_t *n, struct err *e) {
    enum { BATCH = 1000 };
    char sql[512];
    struct sql_stmt *read = NULL, *write = NULL;
    snprintf(sql, sizeof sql, "SELECT %s FROM %s ORDER BY 1, 2 LIMIT %d OFFSET %lld", t->columns,
             t->name, BATCH, (long long)offset);
    int rc = sql_prepare(from, sql, &read), code = 0;
    *n = 0;
    if (rc == SQL_OK && (rc = sql_step(read)) != SQL_ROW && rc != SQL_DONE) code = 1;
    if (rc != SQL_ROW && rc != SQL_DONE) code = store_fail(from, rc, "read", e);
    if (!code && rc == SQL_ROW) {
        int got = prepare_insert(to, t, &write);
        if (got != SQL_OK) code = store_fail(to, got, "write", e);
    }
    while (!code && rc == SQL_ROW) {
        for (int i = 0; t->kinds[i]; i++) move_column(read, write, i, t->kinds[i]);
        int got = sql_step(write);
        if (got != SQL_DONE) code = store_fail(to, got, "write", e);
        sql_reset(write);
        ++*n;
        if (code) break;
        rc = sql_step(read);
        if (rc != SQL_ROW && rc != SQL_DONE) code = store_fail(from, rc, "read", e);
    }
    sql_finalize(read);
    sql_finalize(write);
    return code;
}

static int64_t count(struct store *s, const char *table, struct err *e) {
    char sql[96];
    struct sql_stmt *st = NULL;
    snprintf(sql, sizeof sql, "SELECT count(*) FROM %s", table);
    int rc = sql_prepare(s, sql, &st);
    if (rc == SQL_OK) rc = sql_step(st);
    int64_t n = rc == SQL_ROW ? sql_int64(st, 0) : store_fail(s, rc, "count", e);
    sql_finalize(st);
    return n;
}

/* Makes new rows get ids after the copied ones. SQLite does this by itself. */
static int continue_ids(struct store *to, const struct table *t, struct err *e) {
    char sql[256];
    if (!t->serial || !to->pg) return 0;
    snprintf(sql, sizeof sql,
             "SELECT setval(pg_get_serial_sequence('%s', 'id'), coalesce(max(id), 0) + 1, false)"
             " FROM %s",
             t->name, t->name);
    return run(to, sql, "continue its ids", e);
}

static int copy_table(struct store *from, struct store *to, const struct table *t, int64_t *sum,
                      struct err *e) {
    int64_t n = count(from, t->name, e), at = 0;
    if (n <= 0) return (int)n;
    n = count(to, t->name, e);
    if (n < 0) return (int)n;
    if (n) {
        err_set(e, CHIMERE_EINVAL, "%s: expected an empty store, %s has %lld rows", to->path,
                t->name, (long long)n);
        err_hint(e, "copy into a new file, database or schema");
        return CHIMERE_EINVAL;
    }
    int rc = 0;
    do {
        rc = copy_batch(from, to, t, at, &n, e);
        at += n;
    } while (!rc && n);
    *sum += at;
    return rc ? rc : continue_ids(to, t, e);
}

int64_t store_copy(struct store *from, struct store *to, struct err *e) {
    int64_t sum = 0;
    pthread_mutex_lock(&from->lock);
    pthread_mutex_lock(&to->lock);
    int rc = run(to, "BEGIN IMMEDIATE", "begin", e);
    for (size_t i = 0; !rc && i < sizeof tables / sizeof *tables; i++)
        rc = copy_table(from, to, &tables[i], &sum, e);
    if (!rc) rc = run(to, "UPDATE doc_version SET n = n + 1", "write", e);
    if (!rc) rc = run(to, "COMMIT", "end", e);
    if (rc) sql_exec(to, "ROLLBACK");
    pthread_mutex_unlock(&to->lock);
    pthread_mutex_unlock(&from->lock);
    return rc ? rc : sum;
}

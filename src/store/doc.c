#include "store/doc.h"

#include <string.h>

#include "store/doc_scope_impl.h"

static const char doing[] = "write documents";

/* Call it with the lock held. Prepares its own statement, because the transaction runs several. */
static int run(struct store *s, const char *sql, const char *collection, const char *path,
               struct err *e) {
    struct sql_stmt *st = NULL;
    int rc = sql_prepare(s, sql, &st);
    if (rc == SQL_OK) {
        sql_bind_text(st, 1, collection);
        sql_bind_text(st, 2, path);
        rc = sql_step(st);
    }
    int code = rc == SQL_DONE ? 0 : store_fail(s, rc, "remove a document", e);
    sql_finalize(st);
    return code;
}

static int remove_file(struct store *s, const char *collection, const char *path, struct err *e) {
    int rc =
        run(s,
            "DELETE FROM doc_fts WHERE rowid IN (SELECT c.id FROM doc_chunks c JOIN doc_files f"
            " ON c.file = f.id WHERE f.collection = ?1 AND f.path = ?2)",
            collection, path, e);
    if (!rc)
        rc = run(s,
                 "DELETE FROM doc_chunks WHERE file IN (SELECT id FROM doc_files"
                 " WHERE collection = ?1 AND path = ?2)",
                 collection, path, e);
    if (!rc)
        rc = run(s, "DELETE FROM doc_files WHERE collection = ?1 AND path = ?2", collection, path,
                 e);
    int got = rc ? SQL_OK : sql_exec(s, "UPDATE doc_version SET n = n + 1");
    if (got != SQL_OK) rc = store_fail(s, got, doing, e);
    return rc;
}

static int put_chunks(struct store *s, const struct store_doc *d, const struct store_chunk *chunks,
                      int32_t n, int64_t file, struct err *e) {
    struct sql_stmt *meta = NULL, *text = NULL;
    int64_t id;
    int rc = sql_prepare(s,
                         "INSERT INTO doc_chunks(file, from_byte, to_byte, page, line, vec)"
                         " VALUES(?1,?2,?3,?4,?5,?6) RETURNING id",
                         &meta);
    if (rc == SQL_OK)
        rc = sql_prepare(s, "INSERT INTO doc_fts(rowid, title, heading, body) VALUES(?1,?2,?3,?4)",
                         &text);
    for (int32_t i = 0; i < n && rc == SQL_OK; ++i) {
        const struct store_chunk *c = &chunks[i];
        sql_reset(meta);
        sql_bind_int64(meta, 1, file);
        const int32_t v[] = {c->from, c->to, c->page, c->line};
        for (int k = 0; k < 4; ++k) sql_bind_int64(meta, 2 + k, v[k]);
        sql_bind_blob(meta, 6, c->vec, (size_t)c->n_vec * sizeof *c->vec);
        if ((rc = sql_insert(meta, &id)) != SQL_DONE) break;
        sql_reset(text);
        sql_bind_int64(text, 1, id);
        sql_bind_text(text, 2, d->title);
        sql_bind_text(text, 3, c->heading);
        sql_bind_text(text, 4, c->text);
        rc = sql_step(text);
        if (rc == SQL_DONE) rc = SQL_OK;
    }
    int code = rc == SQL_OK ? 0 : store_fail(s, rc, "write a document's text", e);
    sql_finalize(meta);
    sql_finalize(text);
    return code;
}

int store_doc_put(struct store *s, const struct store_doc *d, const struct store_chunk *chunks,
                  int32_t n, struct err *e) {
    if (n > STORE_MAX_CHUNKS)
        return err_set(e, CHIMERE_ELIMIT, "%s: expected at most %d chunks, got %d", d->path,
                       STORE_MAX_CHUNKS, n);
    int rc = store_doc_check_quota(s, d->collection, n, e);
    if (!rc) rc = store_transaction(s, doing, e);
    if (rc) return rc;
    rc = remove_file(s, d->collection, d->path, e);
    struct sql_stmt *st = NULL;
    int64_t file = 0;
    if (!rc) {
        int sql = sql_prepare(s,
                              "INSERT INTO doc_files(collection, path, title, n_bytes,"
                              " mtime_ns, n_chunk, embedder) VALUES(?1,?2,?3,?4,?5,?6,?7)"
                              " RETURNING id",
                              &st);
        if (sql == SQL_OK) {
            sql_bind_text(st, 1, d->collection);
            sql_bind_text(st, 2, d->path);
            sql_bind_text(st, 3, d->title ? d->title : "");
            sql_bind_int64(st, 4, d->n_bytes);
            sql_bind_int64(st, 5, d->mtime_ns);
            sql_bind_int64(st, 6, n);
            sql_bind_int64(st, 7, d->embedder);
            sql = sql_insert(st, &file);
        }
        if (sql != SQL_DONE) rc = store_fail(s, sql, "write a document", e);
        sql_finalize(st);
    }
    if (!rc) rc = put_chunks(s, d, chunks, n, file, e);
    return store_transaction_end(s, rc, doing, e);
}

int store_doc_remove(struct store *s, const char *collection, const char *path, struct err *e) {
    int rc = store_transaction(s, doing, e);
    return rc ? rc : store_transaction_end(s, remove_file(s, collection, path, e), doing, e);
}

int store_doc_list(struct store *s, const char *scope,
                   int (*each)(void *ud, const struct store_doc *d), void *ud, struct err *e) {
    return store_doc_page(s, scope, NULL, each, ud, e);
}

int store_doc_page(struct store *s, const char *scope, const struct store_doc_place *after,
                   int (*each)(void *ud, const struct store_doc *d), void *ud, struct err *e) {
    struct sql_stmt *st;
    char before[STORE_DOC_SCOPE_BYTES];
    int code = store_begin(s, Q_DOC_LIST, &st, e), rc, stop = 0;
    if (code) return code;
    store_doc_bind(st, 1, 4, scope, before);
    sql_bind_text(st, 2, after ? after->collection : NULL);
    sql_bind_text(st, 3, after ? after->path : NULL);
    while ((rc = sql_step(st)) == SQL_ROW && !stop) {
        struct store_doc d = {.id = sql_int64(st, 0),
                              .collection = store_string(st, 1),
                              .path = store_string(st, 2),
                              .title = store_string(st, 3),
                              .n_bytes = sql_int64(st, 4),
                              .mtime_ns = sql_int64(st, 5),
                              .n_chunk = (int32_t)sql_int64(st, 6),
                              .embedder = sql_int64(st, 7)};
        stop = each(ud, &d);
    }
    code = store_end(s, st, rc, e);
    return code ? code : stop;
}

static int send(struct sql_stmt *st, int (*each)(void *, const struct store_chunk *), void *ud) {
    struct store_chunk c = {.id = sql_int64(st, 0),
                            .from = (int32_t)sql_int64(st, 1),
                            .to = (int32_t)sql_int64(st, 2),
                            .page = (int32_t)sql_int64(st, 3),
                            .line = (int32_t)sql_int64(st, 4),
                            .heading = store_string(st, 5),
                            .text = store_string(st, 6),
                            .path = store_string(st, 7),
                            .title = store_string(st, 8),
                            .collection = store_string(st, 9),
                            .score = sql_double(st, 10)};
    return each(ud, &c);
}

int store_doc_match(struct store *s, const char *expression, const char *scope, int32_t k,
                    int (*each)(void *ud, const struct store_chunk *c), void *ud, struct err *e) {
    struct sql_stmt *st;
    char before[STORE_DOC_SCOPE_BYTES];
    int code = store_begin(s, Q_DOC_MATCH, &st, e), rc, stop = 0;
    if (code) return code;
    sql_bind_text(st, 1, expression);
    store_doc_bind(st, 2, 4, scope, before);
    sql_bind_int64(st, 3, k);
    while ((rc = sql_step(st)) == SQL_ROW && !stop) stop = send(st, each, ud);
    code = store_end(s, st, rc, e);
    return code ? code : stop;
}

int store_doc_chunk(struct store *s, int64_t id, int (*each)(void *ud, const struct store_chunk *c),
                    void *ud, struct err *e) {
    struct sql_stmt *st;
    int code = store_begin(s, Q_DOC_CHUNK, &st, e), stop = 0;
    if (code) return code;
    sql_bind_int64(st, 1, id);
    int rc = sql_step(st);
    if (rc == SQL_ROW) stop = send(st, each, ud);
    code = store_end(s, st, rc, e);
    return code ? code : stop;
}

int64_t store_doc_count(struct store *s, const char *expression, int32_t most, struct err *e) {
    struct sql_stmt *st;
    int code = store_begin(s, Q_DOC_COUNT, &st, e);
    if (code) return code;
    sql_bind_text(st, 1, expression);
    sql_bind_int64(st, 2, most);
    int rc = sql_step(st);
    int64_t n = rc == SQL_ROW ? sql_int64(st, 0) : 0;
    code = store_end(s, st, rc, e);
    return code ? code : n;
}

static int64_t one_integer(struct store *s, enum store_query query, struct err *e) {
    struct sql_stmt *st;
    int code = store_begin(s, query, &st, e);
    if (code) return code;
    int rc = sql_step(st);
    int64_t n = rc == SQL_ROW ? sql_int64(st, 0) : 0;
    code = store_end(s, st, rc, e);
    return code ? code : n;
}

int64_t store_doc_version(struct store *s, struct err *e) {
    return one_integer(s, Q_DOC_VERSION, e);
}

int64_t store_doc_passages(struct store *s, struct err *e) {
    return one_integer(s, Q_DOC_PASSAGES, e);
}

int store_doc_vectors(struct store *s, const char *scope, int64_t embedder,
                      int (*each)(void *ud, const struct store_chunk *c), void *ud, struct err *e) {
    struct sql_stmt *st;
    char before[STORE_DOC_SCOPE_BYTES];
    int code = store_begin(s, Q_DOC_VECTORS, &st, e), rc, stop = 0;
    if (code) return code;
    store_doc_bind(st, 1, 3, scope, before);
    sql_bind_int64(st, 2, embedder);
    while ((rc = sql_step(st)) == SQL_ROW && !stop) {
        struct store_chunk c = {.id = sql_int64(st, 0)};
        c.vec = sql_blob(st, 1, &c.n_vec);
        c.n_vec /= (int32_t)sizeof *c.vec;
        if (c.vec) stop = each(ud, &c);
    }
    code = store_end(s, st, rc, e);
    return code ? code : stop;
}

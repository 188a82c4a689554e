#include "store/doc.h"

#include <string.h>

#include "store/store_impl.h"

static int simple(struct store *s, const char *sql, struct err *e) {
    int rc = sqlite3_exec(s->db, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK ? 0 : store_fail(s, rc, "write documents", e);
}

/* With the lock held: a statement of its own, as the transaction holds several. */
static int run(struct store *s, const char *sql, const char *collection, const char *path,
               struct err *e) {
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(s->db, sql, -1, &st, NULL);
    if (rc == SQLITE_OK) {
        store_bind_text(st, 1, collection);
        store_bind_text(st, 2, path);
        rc = sqlite3_step(st);
    }
    int code = rc == SQLITE_DONE ? 0 : store_fail(s, rc, "remove a document", e);
    sqlite3_finalize(st);
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
    if (!rc) rc = simple(s, "UPDATE doc_version SET n = n + 1", e);
    return rc;
}

static int put_chunks(struct store *s, const struct store_doc *d, const struct store_chunk *chunks,
                      int32_t n, int64_t file, struct err *e) {
    sqlite3_stmt *meta = NULL, *text = NULL;
    int rc = sqlite3_prepare_v2(s->db,
                                "INSERT INTO doc_chunks(file, from_byte, to_byte, page, line, vec)"
                                " VALUES(?1,?2,?3,?4,?5,?6)",
                                -1, &meta, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_prepare_v2(
            s->db, "INSERT INTO doc_fts(rowid, title, heading, body) VALUES(?1,?2,?3,?4)", -1,
            &text, NULL);
    for (int32_t i = 0; i < n && rc == SQLITE_OK; ++i) {
        const struct store_chunk *c = &chunks[i];
        sqlite3_reset(meta);
        sqlite3_bind_int64(meta, 1, file);
        const int32_t v[] = {c->from, c->to, c->page, c->line};
        for (int k = 0; k < 4; ++k) sqlite3_bind_int(meta, 2 + k, v[k]);
        if (c->vec)
            sqlite3_bind_blob(meta, 6, c->vec, (int)((size_t)c->n_vec * sizeof *c->vec),
                              SQLITE_STATIC);
        else sqlite3_bind_null(meta, 6);
        if ((rc = sqlite3_step(meta)) != SQLITE_DONE) break;
        sqlite3_reset(text);
        sqlite3_bind_int64(text, 1, sqlite3_last_insert_rowid(s->db));
        store_bind_text(text, 2, d->title);
        store_bind_text(text, 3, c->heading);
        store_bind_text(text, 4, c->text);
        rc = sqlite3_step(text) == SQLITE_DONE ? SQLITE_OK : sqlite3_errcode(s->db);
    }
    int code = rc == SQLITE_OK ? 0 : store_fail(s, rc, "write a document's text", e);
    sqlite3_finalize(meta);
    sqlite3_finalize(text);
    return code;
}

int store_doc_put(struct store *s, const struct store_doc *d, const struct store_chunk *chunks,
                  int32_t n, struct err *e) {
    if (n > STORE_MAX_CHUNKS)
        return err_set(e, CHIMERE_ELIMIT, "%s: expected at most %d chunks, got %d", d->path,
                       STORE_MAX_CHUNKS, n);
    pthread_mutex_lock(&s->lock);
    int rc = simple(s, "BEGIN IMMEDIATE", e);
    if (rc) {
        pthread_mutex_unlock(&s->lock);
        return rc;
    }
    rc = remove_file(s, d->collection, d->path, e);
    sqlite3_stmt *st = NULL;
    if (!rc) {
        int sql = sqlite3_prepare_v2(s->db,
                                     "INSERT INTO doc_files(collection, path, title, n_bytes,"
                                     " mtime_ns, n_chunk, embedder) VALUES(?1,?2,?3,?4,?5,?6,?7)",
                                     -1, &st, NULL);
        if (sql == SQLITE_OK) {
            store_bind_text(st, 1, d->collection);
            store_bind_text(st, 2, d->path);
            store_bind_text(st, 3, d->title ? d->title : "");
            sqlite3_bind_int64(st, 4, d->n_bytes);
            sqlite3_bind_int64(st, 5, d->mtime_ns);
            sqlite3_bind_int(st, 6, n);
            sqlite3_bind_int64(st, 7, d->embedder);
            sql = sqlite3_step(st);
        }
        if (sql != SQLITE_DONE) rc = store_fail(s, sql, "write a document", e);
        sqlite3_finalize(st);
    }
    if (!rc) rc = put_chunks(s, d, chunks, n, sqlite3_last_insert_rowid(s->db), e);
    if (!rc) rc = simple(s, "COMMIT", e);
    if (rc) sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

int store_doc_remove(struct store *s, const char *collection, const char *path, struct err *e) {
    pthread_mutex_lock(&s->lock);
    int rc = simple(s, "BEGIN IMMEDIATE", e);
    if (!rc) rc = remove_file(s, collection, path, e);
    if (!rc) rc = simple(s, "COMMIT", e);
    if (rc) sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

static const char *text_of(sqlite3_stmt *st, int i) {
    const char *t = (const char *)sqlite3_column_text(st, i);
    return t ? t : "";
}

int store_doc_list(struct store *s, const char *collection,
                   int (*each)(void *ud, const struct store_doc *d), void *ud, struct err *e) {
    sqlite3_stmt *st;
    int code = store_begin(s, Q_DOC_LIST, &st, e), rc, stop = 0;
    if (code) return code;
    store_bind_text(st, 1, collection);
    while ((rc = sqlite3_step(st)) == SQLITE_ROW && !stop) {
        struct store_doc d = {.id = sqlite3_column_int64(st, 0),
                              .collection = text_of(st, 1),
                              .path = text_of(st, 2),
                              .title = text_of(st, 3),
                              .n_bytes = sqlite3_column_int64(st, 4),
                              .mtime_ns = sqlite3_column_int64(st, 5),
                              .n_chunk = sqlite3_column_int(st, 6),
                              .embedder = sqlite3_column_int64(st, 7)};
        stop = each(ud, &d);
    }
    code = store_end(s, st, rc, e);
    return code ? code : stop;
}

static int send(sqlite3_stmt *st, int (*each)(void *, const struct store_chunk *), void *ud) {
    struct store_chunk c = {.id = sqlite3_column_int64(st, 0),
                            .from = sqlite3_column_int(st, 1),
                            .to = sqlite3_column_int(st, 2),
                            .page = sqlite3_column_int(st, 3),
                            .line = sqlite3_column_int(st, 4),
                            .heading = text_of(st, 5),
                            .text = text_of(st, 6),
                            .path = text_of(st, 7),
                            .title = text_of(st, 8),
                            .collection = text_of(st, 9),
                            .score = sqlite3_column_double(st, 10)};
    return each(ud, &c);
}

int store_doc_match(struct store *s, const char *expression, const char *collection, int32_t k,
                    int (*each)(void *ud, const struct store_chunk *c), void *ud, struct err *e) {
    sqlite3_stmt *st;
    int code = store_begin(s, Q_DOC_MATCH, &st, e), rc, stop = 0;
    if (code) return code;
    store_bind_text(st, 1, expression);
    store_bind_text(st, 2, collection);
    sqlite3_bind_int(st, 3, k);
    while ((rc = sqlite3_step(st)) == SQLITE_ROW && !stop) stop = send(st, each, ud);
    code = store_end(s, st, rc, e);
    return code ? code : stop;
}

int store_doc_chunk(struct store *s, int64_t id, int (*each)(void *ud, const struct store_chunk *c),
                    void *ud, struct err *e) {
    sqlite3_stmt *st;
    int code = store_begin(s, Q_DOC_CHUNK, &st, e), stop = 0;
    if (code) return code;
    sqlite3_bind_int64(st, 1, id);
    int rc = sqlite3_step(st);
    if (rc == SQLITE_ROW) stop = send(st, each, ud);
    code = store_end(s, st, rc, e);
    return code ? code : stop;
}

int64_t store_doc_count(struct store *s, const char *expression, int32_t most, struct err *e) {
    sqlite3_stmt *st;
    int code = store_begin(s, Q_DOC_COUNT, &st, e);
    if (code) return code;
    store_bind_text(st, 1, expression);
    sqlite3_bind_int(st, 2, most);
    int rc = sqlite3_step(st);
    int64_t n = rc == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
    code = store_end(s, st, rc, e);
    return code ? code : n;
}

static int64_t one_integer(struct store *s, enum store_query query, struct err *e) {
    sqlite3_stmt *st;
    int code = store_begin(s, query, &st, e);
    if (code) return code;
    int rc = sqlite3_step(st);
    int64_t n = rc == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
    code = store_end(s, st, rc, e);
    return code ? code : n;
}

int64_t store_doc_version(struct store *s, struct err *e) {
    return one_integer(s, Q_DOC_VERSION, e);
}

int64_t store_doc_passages(struct store *s, struct err *e) {
    return one_integer(s, Q_DOC_PASSAGES, e);
}

int store_doc_vectors(struct store *s, const char *collection, int64_t embedder,
                      int (*each)(void *ud, const struct store_chunk *c), void *ud, struct err *e) {
    sqlite3_stmt *st;
    int code = store_begin(s, Q_DOC_VECTORS, &st, e), rc, stop = 0;
    if (code) return code;
    store_bind_text(st, 1, collection);
    sqlite3_bind_int64(st, 2, embedder);
    while ((rc = sqlite3_step(st)) == SQLITE_ROW && !stop) {
        struct store_chunk c = {.id = sqlite3_column_int64(st, 0),
                                .vec = sqlite3_column_blob(st, 1),
                                .n_vec =
                                    (int32_t)((size_t)sqlite3_column_bytes(st, 1) / sizeof(float))};
        if (c.vec) stop = each(ud, &c);
    }
    code = store_end(s, st, rc, e);
    return code ? code : stop;
}

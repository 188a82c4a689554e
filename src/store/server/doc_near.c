#include "store/server/doc_near.h"

#include "store/doc_scope_impl.h"
#include "store/sql/sql_impl.h"

/* The query is converted once, not for each row. */
static const char nearest[] =
    "WITH q AS MATERIALIZED (SELECT chimere_vector(?1) AS v)"
    " SELECT c.id, -(c.near <#> q.v) FROM q, doc_chunks c JOIN doc_files f ON f.id = c.file"
    " WHERE vector_dims(c.near) = ?2 AND f.embedder = ?3 AND " STORE_DOC_IN(
        "f.collection", "?4", "?5", "?6") " ORDER BY c.near <#> q.v, c.id LIMIT ?7";

int store_doc_nearest(struct store *s, const struct store_doc_query *q,
                      int (*each)(void *ud, const struct store_chunk *c), void *ud, struct err *e) {
    char before[STORE_DOC_SCOPE_BYTES];
    struct sql_stmt *st = NULL;
    int stop = 0;
    if (!s->has_vectors) return CHIMERE_EUNSUPPORTED;
    pthread_mutex_lock(&s->lock);
    int rc = s->ops->ready(s);
    if (rc == SQL_OK) rc = sql_prepare(s, nearest, &st);
    if (rc == SQL_OK) {
        sql_bind_blob(st, 1, q->query, (size_t)q->n_dim * sizeof *q->query);
        sql_bind_int64(st, 2, q->n_dim);
        sql_bind_int64(st, 3, q->embedder);
        store_doc_bind(st, 4, 5, q->scope, before);
        sql_bind_int64(st, 7, q->k);
        while ((rc = sql_step(st)) == SQL_ROW && !stop) {
            const struct store_chunk c = {.id = sql_int64(st, 0), .score = sql_double(st, 1)};
            stop = each(ud, &c);
        }
    }
    int code = rc == SQL_DONE || rc == SQL_ROW ? 0 : store_fail(s, rc, "search vectors", e);
    sql_finalize(st);
    pthread_mutex_unlock(&s->lock);
    return code ? code : stop;
}

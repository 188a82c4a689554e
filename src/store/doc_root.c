#include "store/doc_root.h"

#include "store/store_impl.h"

int store_doc_root_put(struct store *s, const struct store_doc_root *r, struct err *e) {
    struct sql_stmt *st;
    int code = store_begin(s, Q_DOC_ROOT_PUT, &st, e);
    if (code) return code;
    sql_bind_text(st, 1, r->collection);
    sql_bind_text(st, 2, r->path);
    sql_bind_int64(st, 3, r->is_excluded);
    int64_t n = store_change(s, st, e);
    return n < 0 ? (int)n : 0;
}

int store_doc_root_drop(struct store *s, const char *collection, const char *path, struct err *e) {
    struct sql_stmt *st;
    int code = store_begin(s, Q_DOC_ROOT_DROP, &st, e);
    if (code) return code;
    sql_bind_text(st, 1, collection);
    sql_bind_text(st, 2, path);
    int64_t n = store_change(s, st, e);
    return n < 0 ? (int)n : 0;
}

int store_doc_root_list(struct store *s, const char *collection,
                        int (*each)(void *ud, const struct store_doc_root *r), void *ud,
                        struct err *e) {
    struct sql_stmt *st;
    int code = store_begin(s, Q_DOC_ROOT_LIST, &st, e), rc, stop = 0;
    if (code) return code;
    sql_bind_text(st, 1, collection);
    while ((rc = sql_step(st)) == SQL_ROW && !stop) {
        const struct store_doc_root r = {.collection = store_string(st, 0),
                                         .path = store_string(st, 1),
                                         .is_excluded = sql_int64(st, 2) != 0};
        stop = each(ud, &r);
    }
    code = store_end(s, st, rc, e);
    return code ? code : stop;
}

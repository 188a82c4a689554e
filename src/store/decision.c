#include "store/decision.h"

#include "store/store_impl.h"

int store_decision_add(struct store *s, const struct store_decision *d, struct err *e) {
    struct sql_stmt *st;
    int code = store_begin(s, Q_DECISION_ADD, &st, e);
    if (code) return code;
    sql_bind_int64(st, 1, d->at_ms ? d->at_ms : store_now_ms());
    sql_bind_text(st, 2, d->route);
    sql_bind_text(st, 3, d->how);
    sql_bind_text(st, 4, d->pipeline);
    sql_bind_text(st, 5, d->mode);
    sql_bind_double(st, 6, d->ms);
    sql_bind_int64(st, 7, d->failed);
    sql_bind_text(st, 8, d->record);
    return store_end(s, st, sql_step(st), e);
}

int store_decision_list(struct store *s, int32_t most,
                        int (*each)(void *ud, const struct store_decision *d), void *ud,
                        struct err *e) {
    struct sql_stmt *st;
    int code = store_begin(s, Q_DECISION_LIST, &st, e), rc, stop = 0;
    if (code) return code;
    sql_bind_int64(st, 1, most);
    while ((rc = sql_step(st)) == SQL_ROW && !stop) {
        struct store_decision d = {.id = sql_int64(st, 0),
                                   .at_ms = sql_int64(st, 1),
                                   .route = store_string(st, 2),
                                   .how = store_string(st, 3),
                                   .pipeline = store_string(st, 4),
                                   .mode = store_string(st, 5),
                                   .ms = sql_double(st, 6),
                                   .failed = (int32_t)sql_int64(st, 7),
                                   .record = store_string(st, 8)};
        stop = each(ud, &d);
    }
    code = store_end(s, st, rc, e);
    return code ? code : stop;
}

int64_t store_decision_forget(struct store *s, int64_t before_ms, struct err *e) {
    return store_forget(s, Q_DECISION_FORGET, before_ms, e);
}

#include "store/decision.h"

#include "store/store_impl.h"

int store_decision_add(struct store *s, const struct store_decision *d, struct err *e) {
    sqlite3_stmt *st;
    int code = store_begin(s, Q_DECISION_ADD, &st, e);
    if (code) return code;
    sqlite3_bind_int64(st, 1, d->at_ms ? d->at_ms : store_now_ms());
    store_bind_text(st, 2, d->route);
    store_bind_text(st, 3, d->how);
    store_bind_text(st, 4, d->pipeline);
    store_bind_text(st, 5, d->mode);
    sqlite3_bind_double(st, 6, d->ms);
    sqlite3_bind_int(st, 7, d->failed);
    store_bind_text(st, 8, d->record);
    return store_end(s, st, sqlite3_step(st), e);
}

static const char *text_of(sqlite3_stmt *st, int i) {
    const char *t = (const char *)sqlite3_column_text(st, i);
    return t ? t : "";
}

int store_decision_list(struct store *s, int32_t most,
                        int (*each)(void *ud, const struct store_decision *d), void *ud,
                        struct err *e) {
    sqlite3_stmt *st;
    int code = store_begin(s, Q_DECISION_LIST, &st, e), rc, stop = 0;
    if (code) return code;
    sqlite3_bind_int(st, 1, most);
    while ((rc = sqlite3_step(st)) == SQLITE_ROW && !stop) {
        struct store_decision d = {.id = sqlite3_column_int64(st, 0),
                                   .at_ms = sqlite3_column_int64(st, 1),
                                   .route = text_of(st, 2),
                                   .how = text_of(st, 3),
                                   .pipeline = text_of(st, 4),
                                   .mode = text_of(st, 5),
                                   .ms = sqlite3_column_double(st, 6),
                                   .failed = sqlite3_column_int(st, 7),
                                   .record = text_of(st, 8)};
        stop = each(ud, &d);
    }
    code = store_end(s, st, rc, e);
    return code ? code : stop;
}

int64_t store_decision_forget(struct store *s, int64_t before_ms, struct err *e) {
    return store_forget(s, Q_DECISION_FORGET, before_ms, e);
}

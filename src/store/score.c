#include "store/score.h"

#include "store/store_impl.h"

int store_score_last(struct store *s, const char *route, double *scores, size_t *n, struct err *e) {
    sqlite3_stmt *st;
    *n = 0;
    int code = store_begin(s, Q_SCORE_LAST, &st, e), rc;
    if (code) return code;
    store_bind_text(st, 1, route);
    sqlite3_bind_int(st, 2, STORE_MAX_SCORES);
    while ((rc = sqlite3_step(st)) == SQLITE_ROW && *n < STORE_MAX_SCORES)
        scores[(*n)++] = sqlite3_column_double(st, 0);
    return store_end(s, st, rc, e);
}

int64_t store_score_forget(struct store *s, int64_t before_ms, struct err *e) {
    return store_forget(s, Q_SCORE_FORGET, before_ms, e);
}

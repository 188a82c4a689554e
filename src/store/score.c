#include "store/score.h"

#include "store/store_impl.h"

int store_score_last(struct store *s, const char *route, bool judged, double *scores, size_t *n,
                     struct err *e) {
    struct sql_stmt *st;
    *n = 0;
    int code = store_begin(s, Q_SCORE_LAST, &st, e), rc;
    if (code) return code;
    sql_bind_text(st, 1, route);
    sql_bind_int64(st, 2, STORE_MAX_SCORES);
    sql_bind_int64(st, 3, judged);
    while ((rc = sql_step(st)) == SQL_ROW && *n < STORE_MAX_SCORES)
        scores[(*n)++] = sql_double(st, 0);
    return store_end(s, st, rc, e);
}

int64_t store_score_forget(struct store *s, int64_t before_ms, struct err *e) {
    return store_forget(s, Q_SCORE_FORGET, before_ms, e);
}

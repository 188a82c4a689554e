#include "store/quality.h"

#include <math.h>

#include "store/store_impl.h"

double store_quality_worth(const struct store_quality *q) {
    return q->feedback > 0 ? (q->feedback - 1) / 4.0 : q->score;
}

int store_quality_add(struct store *s, const struct store_quality *q, int64_t *id, struct err *e) {
    struct sql_stmt *st;
    int code = store_begin(s, Q_QUALITY_ADD, &st, e);
    if (code) return code;
    sql_bind_int64(st, 1, q->at_ms ? q->at_ms : store_now_ms());
    sql_bind_int64(st, 2, q->parent);
    sql_bind_text(st, 3, q->name);
    sql_bind_text(st, 4, q->route ? q->route : "");
    sql_bind_text(st, 5, q->model ? q->model : "");
    sql_bind_text(st, 6, q->origin ? q->origin : "answer");
    sql_bind_text(st, 7, q->question);
    sql_bind_text(st, 8, q->answer);
    sql_bind_double(st, 9, q->score);
    sql_bind_text(st, 10, q->judge ? q->judge : "");
    sql_bind_text(st, 11, q->owner ? q->owner : "");
    sql_bind_int64(st, 12, q->night);
    return store_end(s, st, sql_insert(st, id), e);
}

int store_quality_feedback(struct store *s, const char *name, int32_t feedback, const char *comment,
                           struct err *e) {
    if (feedback < 1 || feedback > 5)
        return err_set(e, CHIMERE_EINVAL, "score: expected 1 to 5, got %d", feedback);
    struct sql_stmt *st;
    int code = store_begin(s, Q_QUALITY_FEEDBACK, &st, e);
    if (code) return code;
    sql_bind_text(st, 1, name);
    sql_bind_int64(st, 2, feedback);
    sql_bind_text(st, 3, comment);
    int64_t n = store_change(s, st, e);
    if (!n) return err_set(e, CHIMERE_ENOENT, "answer: there is none of this name");
    return n < 0 ? (int)n : 0;
}

int store_quality_correct(struct store *s, const char *name, const char *correction, int64_t at_ms,
                          struct err *e) {
    struct sql_stmt *st;
    int code = store_begin(s, Q_QUALITY_CORRECT, &st, e);
    if (code) return code;
    sql_bind_text(st, 1, name);
    sql_bind_int64(st, 2, at_ms ? at_ms : store_now_ms());
    sql_bind_text(st, 3, correction);
    int64_t n = store_change(s, st, e);
    if (!n) return err_set(e, CHIMERE_ENOENT, "answer: no text is kept under this name");
    return n < 0 ? (int)n : 0;
}

int store_quality_votes(struct store *s, int64_t night, int64_t from_ms, int64_t *n_rated,
                        int64_t *n_bad, struct err *e) {
    struct sql_stmt *st;
    *n_rated = *n_bad = 0;
    int code = store_begin(s, Q_QUALITY_VOTES, &st, e), rc;
    if (code) return code;
    sql_bind_int64(st, 1, night);
    sql_bind_int64(st, 2, from_ms);
    while ((rc = sql_step(st)) == SQL_ROW) {
        *n_rated = sql_int64(st, 0);
        *n_bad = sql_int64(st, 1);
    }
    return store_end(s, st, rc, e);
}

static struct store_quality row_at(struct sql_stmt *st, int i) {
    return (struct store_quality){
        .id = sql_int64(st, i),
        .at_ms = sql_int64(st, i + 1),
        .parent = sql_int64(st, i + 2),
        .name = sql_text(st, i + 3),
        .route = sql_text(st, i + 4),
        .model = sql_text(st, i + 5),
        .origin = sql_text(st, i + 6),
        .question = sql_text(st, i + 7),
        .answer = sql_text(st, i + 8),
        .score = sql_double(st, i + 9),
        .feedback = (int32_t)sql_int64(st, i + 10),
        .comment = sql_text(st, i + 11),
        .judge = sql_text(st, i + 12),
        .owner = sql_text(st, i + 13),
    };
}

int store_quality_judge(struct store *s, int64_t id, double score, const char *judge,
                        struct err *e) {
    struct sql_stmt *st;
    int code = store_begin(s, Q_QUALITY_JUDGE, &st, e);
    if (code) return code;
    sql_bind_int64(st, 1, id);
    sql_bind_double(st, 2, score);
    sql_bind_text(st, 3, judge);
    int64_t n = store_change(s, st, e);
    if (!n) return err_set(e, CHIMERE_ENOENT, "answer: there is none of this number");
    return n < 0 ? (int)n : 0;
}

int store_quality_list(struct store *s, int64_t from_ms,
                       int (*each)(void *ud, const struct store_quality *q), void *ud,
                       struct err *e) {
    struct sql_stmt *st;
    int code = store_begin(s, Q_QUALITY_LIST, &st, e), rc, stop = 0;
    if (code) return code;
    sql_bind_int64(st, 1, from_ms);
    while ((rc = sql_step(st)) == SQL_ROW && !stop) {
        struct store_quality q = row_at(st, 0);
        stop = each(ud, &q);
    }
    code = store_end(s, st, rc, e);
    return code ? code : stop;
}

int store_quality_pairs(struct store *s, int64_t from_ms, double gap,
                        int (*each)(void *ud, const struct store_quality *better,
                                    const struct store_quality *worse),
                        void *ud, struct err *e) {
    struct sql_stmt *st;
    int code = store_begin(s, Q_QUALITY_PAIRS, &st, e), rc, stop = 0;
    if (code) return code;
    sql_bind_int64(st, 1, from_ms);
    while ((rc = sql_step(st)) == SQL_ROW && !stop) {
        struct store_quality a = row_at(st, 0), b = row_at(st, 14);
        double x = store_quality_worth(&a), y = store_quality_worth(&b);
        if (isnan(x) || isnan(y) || fabs(x - y) < gap || x == y) continue;
        stop = x > y ? each(ud, &a, &b) : each(ud, &b, &a);
    }
    code = store_end(s, st, rc, e);
    return code ? code : stop;
}

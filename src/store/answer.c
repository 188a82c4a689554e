#include "store/answer.h"

#include <string.h>

#include "store/store_impl.h"

int store_answer_add(struct store *s, const struct store_answer *a, int64_t oldest_ms,
                     int64_t most_bytes, struct err *e) {
    struct sql_stmt *st;
    size_t n = strlen(a->name) + strlen(a->input) + strlen(a->response);
    int code = store_begin(s, Q_ANSWER_ADD, &st, e);
    if (code) return code;
    sql_bind_text(st, 1, a->owner);
    sql_bind_text(st, 2, a->name);
    sql_bind_int64(st, 3, a->at_ms ? a->at_ms : store_now_ms());
    sql_bind_int64(st, 4, (int64_t)n);
    sql_bind_text(st, 5, a->input);
    sql_bind_text(st, 6, a->response);
    code = store_end(s, st, sql_step(st), e);
    if (!code) code = store_begin(s, Q_ANSWER_CROP, &st, e);
    if (code) return code;
    sql_bind_text(st, 1, a->owner);
    sql_bind_int64(st, 2, most_bytes);
    sql_bind_int64(st, 3, oldest_ms);
    return store_end(s, st, sql_step(st), e);
}

int store_answer_find(struct store *s, const char *owner, const char *name, int64_t oldest_ms,
                      void (*each)(void *ud, const struct store_answer *a), void *ud,
                      struct err *e) {
    struct sql_stmt *st;
    int code = store_begin(s, Q_ANSWER_FIND, &st, e);
    if (code) return code;
    sql_bind_text(st, 1, owner);
    sql_bind_text(st, 2, name);
    sql_bind_int64(st, 3, oldest_ms);
    int rc = sql_step(st);
    bool found = rc == SQL_ROW;
    if (found) {
        struct store_answer a = {.owner = owner, .name = name, .at_ms = sql_int64(st, 0)};
        a.input = store_string(st, 1);
        a.response = store_string(st, 2);
        each(ud, &a);
        rc = sql_step(st);
    }
    code = store_end(s, st, rc, e);
    if (!code && !found) code = err_set(e, CHIMERE_ENOENT, "there is no answer %.80s", name);
    return code;
}

int store_answer_drop(struct store *s, const char *owner, const char *name, struct err *e) {
    struct sql_stmt *st;
    int code = store_begin(s, Q_ANSWER_DROP, &st, e);
    if (code) return code;
    sql_bind_text(st, 1, owner);
    sql_bind_text(st, 2, name);
    int64_t n = store_change(s, st, e);
    if (!n) return err_set(e, CHIMERE_ENOENT, "there is no answer %.80s", name);
    return n < 0 ? (int)n : 0;
}

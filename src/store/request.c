/* request.c: stores requests and their cost. */
#include "store/store_impl.h"

int store_request_add(struct store *s, const struct store_request *r, int64_t *id, struct err *e) {
    struct sql_stmt *st;
    int code = store_begin(s, Q_REQUEST_ADD, &st, e);
    if (code) return code;
    sql_bind_int64(st, 1, r->at_ms ? r->at_ms : store_now_ms());
    sql_bind_int64(st, 2, r->key_id);
    sql_bind_text(st, 3, r->api ? r->api : "");
    sql_bind_text(st, 4, r->model ? r->model : "");
    sql_bind_text(st, 5, r->session);
    sql_bind_text(st, 6, r->finish ? r->finish : "");
    const int32_t n[] = {r->status, r->n_prompt, r->n_cached, r->n_generated, r->n_reasoning};
    for (int i = 0; i < 5; i++) sql_bind_int64(st, 7 + i, n[i]);
    sql_bind_double(st, 12, r->queue_ms);
    sql_bind_double(st, 13, r->prefill_ms);
    sql_bind_double(st, 14, r->decode_ms);
    sql_bind_text(st, 15, r->request);
    sql_bind_text(st, 16, r->response);
    return store_end(s, st, sql_insert(st, id), e);
}

int store_request_list(struct store *s, int64_t before, int32_t most,
                       int (*each)(void *ud, int64_t id, const struct store_request *r), void *ud,
                       struct err *e) {
    struct sql_stmt *st;
    int code = store_begin(s, Q_REQUEST_LIST, &st, e), rc, stop = 0;
    if (code) return code;
    sql_bind_int64(st, 1, before);
    sql_bind_int64(st, 2, most);
    while ((rc = sql_step(st)) == SQL_ROW && !stop) {
        const struct store_request r = {.at_ms = sql_int64(st, 1),
                                        .key_id = sql_int64(st, 2),
                                        .api = store_string(st, 3),
                                        .model = store_string(st, 4),
                                        .finish = store_string(st, 5),
                                        .status = (int)sql_int64(st, 6),
                                        .n_prompt = (int)sql_int64(st, 7),
                                        .n_cached = (int)sql_int64(st, 8),
                                        .n_generated = (int)sql_int64(st, 9),
                                        .n_reasoning = (int)sql_int64(st, 10),
                                        .queue_ms = sql_double(st, 11),
                                        .prefill_ms = sql_double(st, 12),
                                        .decode_ms = sql_double(st, 13)};
        stop = each(ud, sql_int64(st, 0), &r);
    }
    code = store_end(s, st, rc, e);
    return code ? code : stop;
}

int store_usage_since(struct store *s, int64_t key_id, int64_t from_ms, struct store_usage *u,
                      struct err *e) {
    *u = (struct store_usage){0};
    struct sql_stmt *st;
    int code = store_begin(s, key_id ? Q_USAGE_KEY : Q_USAGE_ALL, &st, e);
    if (code) return code;
    sql_bind_int64(st, 1, from_ms);
    if (key_id) sql_bind_int64(st, 2, key_id);
    int rc = sql_step(st);
    if (rc == SQL_ROW) {
        int64_t *out[] = {&u->n_request, &u->n_failed, &u->n_prompt, &u->n_cached, &u->n_generated};
        for (int i = 0; i < 5; i++) *out[i] = sql_int64(st, i);
    }
    return store_end(s, st, rc, e);
}

int64_t store_requests_forget(struct store *s, int64_t before_ms, struct err *e) {
    return store_forget(s, Q_REQUESTS_FORGET, before_ms, e);
}

/* state.c: the index of saved sequence states. */
#include "store/state.h"

#include <string.h>

#include "store/store_impl.h"

int store_state_add(struct store *s, struct store_state *x, struct err *e) {
    if (x->n_tok < 0 || x->n_tok > STORE_MAX_STATE_TOK || strchr(x->file, '/'))
        return err_set(e, CHIMERE_EINVAL, "saved state: tokens or file name out of range");
    struct sql_stmt *st;
    int code = store_begin(s, Q_STATE_ADD, &st, e);
    if (code) return code;
    sql_bind_int64(st, 1, (int64_t)x->layout);
    sql_bind_int64(st, 2, (int64_t)x->session);
    sql_bind_blob(st, 3, x->tokens ? (const void *)x->tokens : "", x->n_tok * 4);
    sql_bind_int64(st, 4, x->n_bytes);
    sql_bind_int64(st, 5, x->used_ms ? x->used_ms : store_now_ms());
    sql_bind_text(st, 6, x->file);
    sql_bind_int64(st, 7, (int64_t)x->scope);
    sql_bind_int64(st, 8, (int64_t)x->owner);
    return store_end(s, st, sql_insert(st, &x->id), e);
}

int store_state_list(struct store *s, uint64_t layout,
                     int (*each)(void *ud, const struct store_state *st), void *ud, struct err *e) {
    struct sql_stmt *st;
    int code = store_begin(s, Q_STATE_LIST, &st, e);
    if (code) return code;
    sql_bind_int64(st, 1, (int64_t)layout);
    int rc, stop = 0;
    while ((rc = sql_step(st)) == SQL_ROW && !stop) {
        int32_t n_bytes;
        const int32_t *tokens = sql_blob(st, 3, &n_bytes);
        struct store_state x = {.id = sql_int64(st, 0),
                                .layout = (uint64_t)sql_int64(st, 1),
                                .session = (uint64_t)sql_int64(st, 2),
                                .tokens = tokens,
                                .n_tok = n_bytes / 4,
                                .n_bytes = sql_int64(st, 4),
                                .used_ms = sql_int64(st, 5),
                                .file = sql_text(st, 6),
                                .scope = (uint64_t)sql_int64(st, 7),
                                .owner = (uint64_t)sql_int64(st, 8)};
        if (x.file && n_bytes % 4 == 0) stop = each(ud, &x);
    }
    code = store_end(s, st, rc, e);
    return stop ? stop : code;
}

int store_state_used(struct store *s, int64_t id, int64_t used_ms, struct err *e) {
    struct sql_stmt *st;
    int code = store_begin(s, Q_STATE_USED, &st, e);
    if (code) return code;
    sql_bind_int64(st, 1, id);
    sql_bind_int64(st, 2, used_ms ? used_ms : store_now_ms());
    return store_end(s, st, sql_step(st), e);
}

int store_state_remove(struct store *s, int64_t id, struct err *e) {
    struct sql_stmt *st;
    int code = store_begin(s, Q_STATE_REMOVE, &st, e);
    if (code) return code;
    sql_bind_int64(st, 1, id);
    return store_end(s, st, sql_step(st), e);
}

int store_state_bytes(struct store *s, uint64_t owner, int64_t *n_bytes, struct err *e) {
    *n_bytes = 0;
    struct sql_stmt *st;
    int code = store_begin(s, Q_STATE_BYTES, &st, e);
    if (code) return code;
    sql_bind_int64(st, 1, (int64_t)owner);
    int rc = sql_step(st);
    if (rc == SQL_ROW) *n_bytes = sql_int64(st, 0);
    return store_end(s, st, rc, e);
}

int store_state_oldest(struct store *s, uint64_t owner, int64_t *id, char *file, size_t file_size,
                       struct err *e) {
    struct sql_stmt *st;
    int code = store_begin(s, Q_STATE_OLDEST, &st, e);
    if (code) return code;
    sql_bind_int64(st, 1, (int64_t)owner);
    int rc = sql_step(st);
    bool found = rc == SQL_ROW;
    if (found) {
        *id = sql_int64(st, 0);
        const char *name = sql_text(st, 1);
        size_t n = name ? strlen(name) : 0;
        if (n >= file_size) n = 0;
        if (n) memcpy(file, name, n);
        file[n] = 0;
    }
    code = store_end(s, st, rc, e);
    return code || found ? code : err_set(e, CHIMERE_ENOENT, "no saved states");
}

bool store_state_has_file(struct store *s, const char *file) {
    struct sql_stmt *st;
    if (store_begin(s, Q_STATE_HAS_FILE, &st, NULL)) return false;
    sql_bind_text(st, 1, file);
    int rc = sql_step(st);
    return store_end(s, st, rc, NULL) == 0 && rc == SQL_ROW;
}

/* key.c: API keys. A stolen database reveals no key: secrets are 256 random bits and are stored as hashes. */
#include <string.h>

#include "store/store_impl.h"

static int check(const struct store_key *k, struct err *e) {
    size_t n = strnlen(k->name, sizeof k->name);
    if (!n || n == sizeof k->name)
        return err_set(e, CHIMERE_EINVAL, "key name: expected 1 to %d bytes", STORE_MAX_NAME);
    if (k->max_active < 0 || k->per_minute < 0 || k->tokens_per_day < 0 || k->expires_ms < 0)
        return err_set(e, CHIMERE_EINVAL, "key limits: expected numbers from 0");
    return 0;
}

int store_key_add(struct store *s, struct store_key *k, struct err *e) {
    struct sql_stmt *st;
    int code = check(k, e);
    if (!code) code = store_begin(s, Q_KEY_ADD, &st, e);
    if (code) return code;
    k->created_ms = store_now_ms();
    sql_bind_text(st, 1, k->name);
    sql_bind_blob(st, 2, k->hash, sizeof k->hash);
    sql_bind_int64(st, 3, k->created_ms);
    sql_bind_int64(st, 4, k->expires_ms);
    sql_bind_int64(st, 5, k->max_active);
    sql_bind_int64(st, 6, k->per_minute);
    sql_bind_int64(st, 7, k->tokens_per_day);
    sql_bind_int64(st, 8, k->is_admin);
    k->id = 0;
    int rc = sql_insert(st, &k->id);
    bool added = k->id != 0;
    code = store_end(s, st, rc, e);
    if (!code && !added) code = CHIMERE_EINVAL;
    if (code == CHIMERE_EINVAL) err_set(e, code, "key %s: a key of that name exists", k->name);
    return code;
}

int store_key_limit(struct store *s, const struct store_key *k, struct err *e) {
    struct sql_stmt *st;
    int code = check(k, e);
    if (!code) code = store_begin(s, Q_KEY_LIMIT, &st, e);
    if (code) return code;
    sql_bind_text(st, 1, k->name);
    sql_bind_int64(st, 2, k->expires_ms);
    sql_bind_int64(st, 3, k->max_active);
    sql_bind_int64(st, 4, k->per_minute);
    sql_bind_int64(st, 5, k->tokens_per_day);
    sql_bind_int64(st, 6, k->is_admin);
    int64_t n = store_change(s, st, e);
    if (!n) return err_set(e, CHIMERE_ENOENT, "key %s: not found", k->name);
    return n < 0 ? (int)n : 0;
}

static void take_key(struct sql_stmt *st, struct store_key *k) {
    *k = (struct store_key){.id = sql_int64(st, 0),
                            .created_ms = sql_int64(st, 3),
                            .expires_ms = sql_int64(st, 4),
                            .revoked = (int32_t)sql_int64(st, 5) != 0,
                            .max_active = (int32_t)sql_int64(st, 6),
                            .per_minute = (int32_t)sql_int64(st, 7),
                            .tokens_per_day = sql_int64(st, 8),
                            .is_admin = (int32_t)sql_int64(st, 9) != 0};
    int32_t n = 0;
    const char *name = sql_text(st, 1);
    const void *hash = sql_blob(st, 2, &n);
    if (name) memcpy(k->name, name, strnlen(name, STORE_MAX_NAME));
    if (hash && n == (int32_t)sizeof k->hash) memcpy(k->hash, hash, sizeof k->hash);
}

int store_key_find(struct store *s, const unsigned char hash[32], struct store_key *k,
                   struct err *e) {
    struct sql_stmt *st;
    int code = store_begin(s, Q_KEY_FIND, &st, e);
    if (code) return code;
    sql_bind_blob(st, 1, hash, 32);
    sql_bind_int64(st, 2, store_now_ms());
    int rc = sql_step(st);
    if (rc == SQL_ROW) take_key(st, k);
    code = store_end(s, st, rc, e);
    if (code || rc == SQL_ROW) return code;
    return err_set(e, CHIMERE_ENOENT, "key: unknown, revoked or expired");
}

int store_key_list(struct store *s, int (*each)(void *ud, const struct store_key *k), void *ud,
                   struct err *e) {
    struct sql_stmt *st;
    int code = store_begin(s, Q_KEY_LIST, &st, e);
    if (code) return code;
    int rc, stop = 0;
    while ((rc = sql_step(st)) == SQL_ROW && !stop) {
        struct store_key k;
        take_key(st, &k);
        stop = each(ud, &k);
    }
    code = store_end(s, st, rc, e);
    return stop ? stop : code;
}

int store_key_revoke(struct store *s, const char *name, struct err *e) {
    struct sql_stmt *st;
    int code = store_begin(s, Q_KEY_REVOKE, &st, e);
    if (code) return code;
    sql_bind_text(st, 1, name);
    int64_t n = store_change(s, st, e);
    if (!n) return err_set(e, CHIMERE_ENOENT, "key %s: not found", name);
    return n < 0 ? (int)n : 0;
}

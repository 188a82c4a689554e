#include "serve/http/keys.h"

#include <string.h>

#include "base/digest.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "serve/api/api.h"
#include "serve/http/http_impl.h"
#include "serve/http/http_target.h"
#include "serve/api/json_out.h"
#include "store/store.h"

enum { DAY_MS = 86400000, MONTH_DAYS = 30, MAX_LISTED = 4096, MAX_OUT = 8 << 20 };

static int store_of(struct http_request *r, struct store **s, struct err *e) {
    *s = r->s->p.no_store_keys ? NULL : r->s->p.store;
    return *s ? 0
              : err_set(e, CHIMERE_EUNSUPPORTED,
                        "this server keeps no API keys; start it with --state-dir DIR");
}

static void answer(struct http_request *r, int rc, struct buf *out, const struct err *e) {
    struct buf h;
    buf_init(&h, 256);
    buf_puts(&h, "Cache-Control: no-store");
    http_headers(r, &h);
    buf_fini(&h);
    if (rc) http_fail(r, e);
    else http_reply(r, 200, NULL, out);
    buf_fini(out);
}

/* ---- fields of a request ---- */

static int read_count(const json_t *q, const char *name, int64_t most, int64_t *out,
                      struct err *e) {
    const json_t *v = json_object_get(q, name);
    if (!v) return 0;
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > most)
        return err_set(e, CHIMERE_EINVAL, "%s: expected a whole number of 0 (no limit) to %lld",
                       name, (long long)most);
    *out = json_integer_value(v);
    return 0;
}

/* Reads the limits that the body has; others stay unchanged. */
static int read_limits(const json_t *q, struct store_key *k, struct err *e) {
    int64_t active = k->max_active, minute = k->per_minute, days = -1;
    const json_t *role = json_object_get(q, "role");
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)q, name, v) {
        if (strcmp(name, "name") && strcmp(name, "role") && strcmp(name, "active") &&
            strcmp(name, "per_minute") && strcmp(name, "tokens_per_day") && strcmp(name, "days"))
            return err_set(e, CHIMERE_EINVAL, "%.64s: unknown field", name);
    }
    int rc = read_count(q, "active", 1 << 20, &active, e);
    if (!rc) rc = read_count(q, "per_minute", 1 << 30, &minute, e);
    if (!rc) rc = read_count(q, "tokens_per_day", INT64_C(1000000000000000), &k->tokens_per_day, e);
    if (!rc) rc = read_count(q, "days", 36500, &days, e);
    const char *text = json_string_value(role);
    if (!rc && role && (!text || (strcmp(text, "user") && strcmp(text, "admin"))))
        rc = err_set(e, CHIMERE_EINVAL, "role: expected user or admin");
    if (rc) return rc;
    k->max_active = (int32_t)active;
    k->per_minute = (int32_t)minute;
    if (text) k->is_admin = strcmp(text, "admin") == 0;
    if (days >= 0) k->expires_ms = days ? store_now_ms() + days * DAY_MS : 0;
    return 0;
}

static int take_name(struct store_key *k, const char *name, struct err *e) {
    size_t n = name ? strlen(name) : 0;
    if (!n || n > STORE_MAX_NAME || name[strcspn(name, " \t\r\n/")] || !utf8_is_valid(name, n))
        return err_set(e, CHIMERE_EINVAL, "name: expected 1 to %d bytes without blanks and slashes",
                       STORE_MAX_NAME);
    memcpy(k->name, name, n + 1);
    return 0;
}

/* ---- listing ---- */

struct listing {
    struct store_key *rows; /* owned [MAX_LISTED] */
    size_t n;
};

static int collect(void *ud, const struct store_key *k) {
    struct listing *l = ud;
    if (l->n == MAX_LISTED) return 1;
    l->rows[l->n++] = *k;
    return 0;
}

static void put_usage(struct buf *out, const char *name, const struct store_usage *u) {
    buf_printf(out,
               "\"%s\":{\"requests\":%lld,\"failed\":%lld,\"prompt\":%lld,\"cached\":%lld,"
               "\"generated\":%lld}",
               name, (long long)u->n_request, (long long)u->n_failed, (long long)u->n_prompt,
               (long long)u->n_cached, (long long)u->n_generated);
}

static void put_key(struct buf *out, const struct store_key *k) {
    char identity[AUTH_IDENTITY_BYTES];
    auth_identity(k->hash, identity);
    bool expired = k->expires_ms && k->expires_ms <= store_now_ms();
    buf_puts(out, "\"name\":");
    json_out_string(out, k->name);
    buf_printf(out,
               ",\"identity\":\"%s\",\"state\":\"%s\",\"role\":\"%s\",\"created_ms\":%lld,"
               "\"expires_ms\":%lld,\"active\":%d,\"per_minute\":%d,\"tokens_per_day\":%lld",
               identity, k->revoked ? "revoked" : (expired ? "expired" : "valid"),
               k->is_admin ? "admin" : "user", (long long)k->created_ms, (long long)k->expires_ms,
               k->max_active, k->per_minute, (long long)k->tokens_per_day);
}

static int put_keys(struct store *s, struct buf *out, struct err *e) {
    struct listing l = {.rows = mem_alloc_array(MAX_LISTED, sizeof *l.rows)};
    if (!l.rows) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    int rc = store_key_list(s, collect, &l, e);
    int64_t today = store_now_ms() / DAY_MS * DAY_MS;
    for (size_t i = 0; i < l.n && rc >= 0; i++) {
        struct store_usage day, month;
        rc = store_usage_since(s, l.rows[i].id, today, &day, e);
        if (!rc)
            rc = store_usage_since(s, l.rows[i].id, today - (MONTH_DAYS - 1) * (int64_t)DAY_MS,
                                   &month, e);
        if (rc) break;
        buf_puts(out, i ? ",{" : "{");
        put_key(out, &l.rows[i]);
        buf_putc(out, ',');
        put_usage(out, "today", &day);
        buf_putc(out, ',');
        put_usage(out, "month", &month);
        buf_putc(out, '}');
    }
    mem_free(l.rows);
    return rc < 0 ? rc : 0;
}

void keys_list(struct http_request *r) {
    struct err e = {0};
    struct buf out;
    struct store *s;
    buf_init(&out, MAX_OUT);
    int rc = store_of(r, &s, &e);
    buf_printf(&out, "{\"object\":\"list\",\"asks_keys\":%s,\"data\":[",
               r->s->asks_keys ? "true" : "false");
    if (!rc) rc = put_keys(s, &out, &e);
    buf_puts(&out, "]}");
    answer(r, rc, &out, &e);
}

/* ---- changes ---- */

void keys_create(struct http_request *r) {
    struct err e = {0};
    struct buf out;
    struct store *s;
    struct store_key k = {.id = 0};
    char secret[AUTH_SECRET_BYTES];
    json_t *q = api_json(r);
    if (!q) return;
    buf_init(&out, 1 << 14);
    int rc = store_of(r, &s, &e);
    if (!rc) rc = take_name(&k, json_string_value(json_object_get(q, "name")), &e);
    if (!rc) rc = read_limits(q, &k, &e);
    /* the first key makes the server require keys, so the person who creates it must still be admitted */
    if (!rc && !r->s->asks_keys && (!k.is_admin || k.expires_ms))
        rc = err_set(&e, CHIMERE_EINVAL,
                     "role: the first key must be an administrator's that does not expire");
    auth_secret(secret);
    auth_hash(secret, k.hash);
    if (!rc) rc = store_key_add(s, &k, &e);
    if (!rc) rc = auth_reread(r->s->auth, &e);
    if (!rc) log_info("api keys: '%s' was created by %s", k.name, http_owner(r));
    buf_puts(&out, "{\"object\":\"key\",");
    put_key(&out, &k);
    buf_printf(&out, ",\"key\":\"%s\"}", secret);
    digest_wipe(secret, sizeof secret);
    answer(r, rc, &out, &e);
    json_decref(q);
}

static int find_name(void *ud, const struct store_key *k) {
    struct store_key *want = ud;
    if (k->revoked || strcmp(k->name, want->name) != 0) return 0;
    *want = *k;
    return 1;
}

/* Finds the key that the path names. */
static int key_of(struct http_request *r, struct store **s, struct store_key *k, struct err *e) {
    int rc = store_of(r, s, e);
    if (!rc) rc = take_name(k, http_rest(r), e);
    if (rc) return rc;
    rc = store_key_list(*s, find_name, k, e);
    return rc < 0 ? rc : (rc ? 0 : err_set(e, CHIMERE_ENOENT, "key %s: not found", k->name));
}

/* The caller's own key must stay an administrator's. Otherwise there might be no administrator left to undo the
 * change. */
static int keep_own(struct http_request *r, const struct store_key *k, bool stays, struct err *e) {
    char identity[AUTH_IDENTITY_BYTES];
    auth_identity(k->hash, identity);
    return stays || strcmp(identity, http_owner(r)) != 0
               ? 0
               : err_set(e, CHIMERE_EINVAL,
                         "key %s: it is the one that you use; another administrator's can do this",
                         k->name);
}

void keys_change(struct http_request *r) {
    struct err e = {0};
    struct buf out;
    struct store *s;
    struct store_key k = {.id = 0};
    json_t *q = api_json(r);
    if (!q) return;
    buf_init(&out, 1 << 14);
    int rc = key_of(r, &s, &k, &e);
    if (!rc && json_object_get(q, "name"))
        rc = err_set(&e, CHIMERE_EINVAL, "name: a key keeps its name");
    if (!rc) rc = read_limits(q, &k, &e);
    if (!rc) rc = keep_own(r, &k, k.is_admin && !k.expires_ms, &e);
    if (!rc) rc = store_key_limit(s, &k, &e);
    if (!rc) rc = auth_reread(r->s->auth, &e);
    buf_puts(&out, "{\"object\":\"key\",");
    put_key(&out, &k);
    buf_putc(&out, '}');
    answer(r, rc, &out, &e);
    json_decref(q);
}

void keys_revoke(struct http_request *r) {
    struct err e = {0};
    struct buf out;
    struct store *s;
    struct store_key k = {.id = 0};
    buf_init(&out, 1 << 14);
    int rc = key_of(r, &s, &k, &e);
    if (!rc) rc = keep_own(r, &k, false, &e);
    if (!rc) rc = store_key_revoke(s, k.name, &e);
    if (!rc) rc = auth_reread(r->s->auth, &e);
    if (!rc) log_info("api keys: '%s' was revoked by %s", k.name, http_owner(r));
    buf_puts(&out, "{\"object\":\"key.deleted\",\"name\":");
    json_out_string(&out, k.name);
    buf_puts(&out, ",\"deleted\":true}");
    answer(r, rc, &out, &e);
}

#include "store/persona.h"

#include "store/store_impl.h"

static const char doing[] = "change personas";

/* ?1 owner, ?2 id, ?3 name, ?4 text. Call it with the lock held, inside a transaction. *out: the first column of the
 * first row, or the number of changed rows. */
static int step(struct store *s, const char *sql, const char *owner, const struct store_persona *p,
                int64_t *out, struct err *e) {
    struct sql_stmt *st = NULL;
    int rc = sql_prepare(s, sql, &st);
    if (rc == SQL_OK) {
        sql_bind_text(st, 1, owner); /* a parameter that the statement does not use is ignored */
        sql_bind_int64(st, 2, p->id);
        sql_bind_text(st, 3, p->name);
        sql_bind_text(st, 4, p->text);
        rc = sql_step(st);
        *out = rc == SQL_ROW ? sql_int64(st, 0) : sql_changes(s);
        while (rc == SQL_ROW) rc = sql_step(st);
    }
    int code = rc == SQL_DONE ? 0 : store_fail(s, rc, doing, e);
    sql_finalize(st);
    return code;
}

static int gone(int64_t id, struct err *e) {
    return err_set(e, CHIMERE_ENOENT, "persona: there is no number %lld", (long long)id);
}

static int change(struct store *s, const char *owner, const struct store_persona *p, int64_t *id,
                  struct err *e) {
    int64_t n = 0;
    int rc = step(s, "SELECT count(*) FROM personas WHERE owner = ?1 AND name = ?3 AND id <> ?2",
                  owner, p, &n, e);
    if (!rc && n)
        rc = err_set(e, CHIMERE_EINVAL, "name: another persona is called '%.64s'", p->name);
    if (rc) return rc;
    *id = p->id;
    if (p->id) {
        rc = step(s, "UPDATE personas SET name = ?3, text = ?4 WHERE owner = ?1 AND id = ?2", owner,
                  p, &n, e);
        return rc || n ? rc : gone(p->id, e);
    }
    rc = step(s, "SELECT count(*) FROM personas WHERE owner = ?1", owner, p, &n, e);
    if (!rc && n >= STORE_MAX_PERSONAS)
        rc = err_set(e, CHIMERE_ELIMIT, "personas: expected at most %d", STORE_MAX_PERSONAS);
    if (rc) return rc;
    return step(s, "INSERT INTO personas(owner, name, text) VALUES(?1,?3,?4) RETURNING id", owner,
                p, id, e);
}

int store_persona_put(struct store *s, const char *owner, const struct store_persona *p,
                      int64_t *id, struct err *e) {
    int rc = store_transaction(s, doing, e);
    return rc ? rc : store_transaction_end(s, change(s, owner, p, id, e), doing, e);
}

int store_persona_list(struct store *s, const char *owner,
                       int (*each)(void *ud, const struct store_persona *p), void *ud,
                       struct err *e) {
    struct sql_stmt *st;
    int code = store_begin(s, Q_PERSONA_LIST, &st, e), rc, stop = 0;
    if (code) return code;
    sql_bind_text(st, 1, owner);
    while ((rc = sql_step(st)) == SQL_ROW && !stop) {
        const struct store_persona p = {
            .id = sql_int64(st, 0), .name = store_string(st, 1), .text = store_string(st, 2)};
        stop = each(ud, &p);
    }
    code = store_end(s, st, rc, e);
    return code ? code : stop;
}

int store_persona_remove(struct store *s, const char *owner, int64_t id, struct err *e) {
    struct sql_stmt *st;
    int code = store_begin(s, Q_PERSONA_REMOVE, &st, e);
    if (code) return code;
    sql_bind_text(st, 1, owner);
    sql_bind_int64(st, 2, id);
    int64_t n = store_change(s, st, e);
    return n < 0 ? (int)n : n ? 0 : gone(id, e);
}

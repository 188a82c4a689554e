#include "store/memory.h"

#include <stdio.h>
#include <string.h>

#include "store/store_impl.h"

static const char doing[] = "write what is remembered";

/* Parameters of one statement: ?1 owner, ?2 a number, ?3 a time or a flag, ?4 text. step runs it; call step with
 * the lock held, inside a transaction. *out: the first column of the first row, or the number of changed rows. */
struct change {
    const char *owner, *text; /* view */
    int64_t id, number;
    const struct store_memory *m; /* view */
};

static int step(struct store *s, const char *sql, const struct change *c, int64_t *out,
                struct err *e) {
    struct sql_stmt *st = NULL;
    int rc = sql_prepare(s, sql, &st);
    if (rc == SQL_OK) {
        sql_bind_text(st, 1, c->owner); /* a parameter that the statement does not use is ignored */
        sql_bind_int64(st, 2, c->id);
        sql_bind_int64(st, 3, c->number);
        sql_bind_text(st, 4, c->text);
        if (c->m) {
            sql_bind_int64(st, 5, (int)c->m->kind);
            sql_bind_int64(st, 6, c->m->pinned);
            sql_bind_int64(st, 7, c->m->tainted);
        }
        rc = sql_step(st);
        if (out) *out = rc == SQL_ROW ? sql_int64(st, 0) : sql_changes(s);
        while (rc == SQL_ROW) rc = sql_step(st);
    }
    int code = rc == SQL_DONE ? 0 : store_fail(s, rc, doing, e);
    sql_finalize(st);
    return code;
}

/* Call it with the lock held, inside a transaction. */
static int check_quota(struct store *s, const struct store_memory *m, struct err *e) {
    char key[128];
    int64_t n = 0;
    snprintf(key, sizeof key, "%.*s", (int)strcspn(m->owner, "\t"), m->owner);
    struct change c = {.owner = key};
    int rc = step(s,
                  "SELECT count(*) FROM odo_memory WHERE owner = ?1"
                  " OR (owner >= ?1 || '\t' AND owner < ?1 || '\n')",
                  &c, &n, e);
    if (rc || n < STORE_MAX_MEMORIES_OF_KEY) return rc;
    err_set(e, CHIMERE_ELIMIT, "memory: expected at most %d entries for one key",
            STORE_MAX_MEMORIES_OF_KEY);
    err_hint(e, "DELETE /v1/memory/all forgets what one user has");
    return CHIMERE_ELIMIT;
}

int store_memory_add(struct store *s, const struct store_memory *m, int64_t *id, struct err *e) {
    struct change c = {
        .owner = m->owner, .text = m->text, .number = m->at_ms ? m->at_ms : store_now_ms(), .m = m};
    int64_t n_gone = 0;
    int rc = store_transaction(s, doing, e);
    if (rc) return rc;
    rc = check_quota(s, m, e);
    if (!rc)
        rc = step(s,
                  "INSERT INTO odo_memory(owner, at_ms, text, kind, pinned, tainted)"
                  " VALUES(?1,?3,?4,?5,?6,?7) ON CONFLICT(owner, text) DO UPDATE SET"
                  " replaced_by = 0, at_ms = excluded.at_ms, pinned = CASE WHEN excluded.pinned = "
                  "1 THEN 1"
                  " ELSE odo_memory.pinned END, tainted = CASE WHEN excluded.tainted = 0 THEN 0"
                  " ELSE odo_memory.tainted END RETURNING id",
                  &c, &c.id, e);
    if (!rc) rc = step(s, "DELETE FROM odo_memory_fts WHERE rowid = ?2", &c, NULL, e);
    if (!rc) rc = step(s, "INSERT INTO odo_memory_fts(rowid, text) VALUES(?2, ?4)", &c, NULL, e);
    struct change crop = {.owner = m->owner, .number = STORE_MAX_MEMORIES};
    if (!rc)
        rc = step(s,
                  "DELETE FROM odo_memory WHERE owner = ?1 AND pinned = 0 AND id IN (SELECT id"
                  " FROM odo_memory WHERE owner = ?1 AND pinned = 0 ORDER BY at_ms DESC, id DESC"
                  " LIMIT 2147483647 OFFSET ?3)",
                  &crop, &n_gone, e);
    if (!rc && n_gone)
        rc = step(s, "DELETE FROM odo_memory_fts WHERE rowid NOT IN (SELECT id FROM odo_memory)",
                  &crop, NULL, e);
    if (id) *id = c.id;
    return store_transaction_end(s, rc, doing, e);
}

static int each_row(struct store *s, struct sql_stmt *st, const char *owner,
                    int (*each)(void *ud, const struct store_memory *m), void *ud, struct err *e) {
    int rc, stop = 0;
    while ((rc = sql_step(st)) == SQL_ROW && !stop) {
        struct store_memory m = {.id = sql_int64(st, 0),
                                 .at_ms = sql_int64(st, 1),
                                 .owner = owner,
                                 .kind = (enum store_memory_kind)(int32_t)sql_int64(st, 2),
                                 .text = store_string(st, 3),
                                 .pinned = (int32_t)sql_int64(st, 4),
                                 .tainted = (int32_t)sql_int64(st, 5),
                                 .score = sql_double(st, 6),
                                 .replaced_by = sql_int64(st, 7)};
        stop = each(ud, &m);
    }
    int code = store_end(s, st, rc, e);
    return code ? code : stop;
}

int store_memory_list(struct store *s, const char *owner, enum store_memory_which which,
                      int32_t most, int (*each)(void *ud, const struct store_memory *m), void *ud,
                      struct err *e) {
    struct sql_stmt *st;
    int code = store_begin(s, Q_MEMORY_LIST, &st, e);
    if (code) return code;
    sql_bind_text(st, 1, owner);
    sql_bind_int64(st, 2, which == STORE_PINS);
    sql_bind_int64(st, 3, most);
    sql_bind_int64(st, 4, which == STORE_WITH_HISTORY);
    return each_row(s, st, owner, each, ud, e);
}

int store_memory_match(struct store *s, const char *owner, const char *words, int32_t most,
                       int (*each)(void *ud, const struct store_memory *m), void *ud,
                       struct err *e) {
    struct sql_stmt *st;
    int code = store_begin(s, Q_MEMORY_MATCH, &st, e);
    if (code) return code;
    sql_bind_text(st, 1, owner);
    sql_bind_text(st, 2, words);
    sql_bind_int64(st, 3, most);
    return each_row(s, st, owner, each, ud, e);
}

static int found(int rc, int64_t n, int64_t id, struct err *e) {
    if (rc || n) return rc;
    return err_set(e, CHIMERE_ENOENT, "memory: there is no number %lld", (long long)id);
}

int store_memory_pin(struct store *s, const char *owner, int64_t id, bool pinned, struct err *e) {
    struct change c = {.owner = owner, .id = id, .number = pinned};
    int64_t n = 0;
    int rc = store_transaction(s, doing, e);
    if (rc) return rc;
    rc = step(s,
              "UPDATE odo_memory SET pinned = ?3 WHERE owner = ?1 AND id = ?2 AND replaced_by = 0",
              &c, &n, e);
    return found(store_transaction_end(s, rc, doing, e), n, id, e);
}

int store_memory_edit(struct store *s, const char *owner, int64_t id, const char *text,
                      struct err *e) {
    struct change c = {.owner = owner, .id = id, .number = store_now_ms(), .text = text};
    int64_t n = 0, same = 0;
    int rc = store_transaction(s, doing, e);
    if (rc) return rc;
    rc = step(s, "SELECT count(*) FROM odo_memory WHERE owner = ?1 AND id <> ?2 AND text = ?4", &c,
              &same, e);
    if (!rc && same) rc = err_set(e, CHIMERE_EINVAL, "text: another entry has it already");
    if (!rc)
        rc = step(s,
                  "UPDATE odo_memory SET text = ?4, at_ms = ?3 WHERE owner = ?1 AND id = ?2"
                  " AND replaced_by = 0",
                  &c, &n, e);
    if (!rc && n) rc = step(s, "DELETE FROM odo_memory_fts WHERE rowid = ?2", &c, NULL, e);
    if (!rc && n)
        rc = step(s, "INSERT INTO odo_memory_fts(rowid, text) VALUES(?2, ?4)", &c, NULL, e);
    return found(store_transaction_end(s, rc, doing, e), n, id, e);
}

int store_memory_replace(struct store *s, const char *owner, int64_t old, int64_t now,
                         struct err *e) {
    struct change c = {.owner = owner, .id = old, .number = now};
    int64_t n = 0;
    int rc = store_transaction(s, doing, e);
    if (rc) return rc;
    rc = step(s,
              "UPDATE odo_memory SET pinned = 1 WHERE owner = ?1 AND id = ?3 AND EXISTS (SELECT 1"
              " FROM odo_memory o WHERE o.owner = ?1 AND o.id = ?2 AND o.pinned = 1)",
              &c, NULL, e);
    if (!rc)
        rc = step(s,
                  "UPDATE odo_memory SET replaced_by = ?3, pinned = 0 WHERE owner = ?1"
                  " AND (id = ?2 OR replaced_by = ?2) AND id <> ?3",
                  &c, &n, e);
    if (!rc) rc = step(s, "DELETE FROM odo_memory_fts WHERE rowid = ?2", &c, NULL, e);
    return found(store_transaction_end(s, rc, doing, e), n, old, e);
}

int store_memory_remove(struct store *s, const char *owner, int64_t id, struct err *e) {
    struct change c = {.owner = owner, .id = id};
    int64_t n = 0;
    int rc = store_transaction(s, doing, e);
    if (rc) return rc;
    rc = step(s, "DELETE FROM odo_memory WHERE owner = ?1 AND (id = ?2 OR replaced_by = ?2)", &c,
              &n, e);
    if (!rc && n) rc = step(s, "DELETE FROM odo_memory_fts WHERE rowid = ?2", &c, NULL, e);
    return found(store_transaction_end(s, rc, doing, e), n, id, e);
}

int64_t store_memory_forget(struct store *s, const char *owner, int64_t before_ms, bool pins,
                            struct err *e) {
    struct change c = {.owner = owner, .id = pins, .number = before_ms};
    int64_t n = 0;
    int rc = store_transaction(s, doing, e);
    if (rc) return rc;
    rc = step(s,
              "DELETE FROM odo_memory_fts WHERE rowid IN (SELECT id FROM odo_memory"
              " WHERE owner = ?1 AND at_ms < ?3 AND (?2 = 1 OR pinned = 0))",
              &c, NULL, e);
    if (!rc)
        rc = step(
            s, "DELETE FROM odo_memory WHERE owner = ?1 AND at_ms < ?3 AND (?2 = 1 OR pinned = 0)",
            &c, &n, e);
    rc = store_transaction_end(s, rc, doing, e);
    return rc ? rc : n;
}

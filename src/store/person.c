#include "store/person.h"

#include <stdio.h>
#include <string.h>

#include "store/doc_scope_impl.h"

enum { MAX_OWNER = 1024 };

/* ?1: the owner as in the rows. Users of a whole key are the range from ?2 to before ?3. */
#define MINE "(owner = ?1 OR (owner >= ?2 AND owner < ?3))"

static const struct {
    const char *sql;
    bool counts; /* the rows are a person's data, not an index of it */
} of_owner[] = {
    {"DELETE FROM quality WHERE " MINE, true},
    {"DELETE FROM answers WHERE " MINE, true},
    {"DELETE FROM jobs WHERE person <> '' AND (person = ?1 OR (person >= ?2 AND person < ?3))",
     true},
    {"DELETE FROM odo_memory_fts WHERE rowid IN (SELECT id FROM odo_memory WHERE " MINE ")", false},
    {"DELETE FROM odo_memory WHERE " MINE, true},
    {"DELETE FROM conversation_fts WHERE rowid IN (SELECT i.id FROM conversation_items i"
     " JOIN conversations c ON c.id = i.conversation WHERE " MINE ")"
     " OR rowid IN (SELECT -id FROM conversations WHERE " MINE ")",
     false},
    {"DELETE FROM conversation_items WHERE conversation IN"
     " (SELECT id FROM conversations WHERE " MINE ")",
     true},
    {"DELETE FROM conversations WHERE " MINE, true},
    {"DELETE FROM personas WHERE " MINE, true},
    {"DELETE FROM conversation_usage WHERE " MINE, false},
};

/* Recomputes the usage of a key from the remaining rows; parameters as above. */
static const char usage[] =
    "UPDATE conversation_usage SET"
    " n_bytes = (SELECT coalesce(sum(c.n_bytes), 0) FROM conversations c WHERE " MINE "),"
    " n = (SELECT count(*) FROM conversations c WHERE " MINE ") WHERE owner = ?1";

static const char requests[] =
    "DELETE FROM requests WHERE key_id = ?4 AND (?5 IS NULL OR session = ?5)";
static const char states_of_owner[] = "DELETE FROM states WHERE owner = ?4";
static const char states_of_scope[] = "DELETE FROM states WHERE scope = ?4";

struct whose {
    const char *owner, *from, *before, *user;
    int64_t number;
};

static int change(struct store *s, const char *sql, const struct whose *w, int64_t *n,
                  struct err *e) {
    struct sql_stmt *st = NULL;
    int rc = sql_prepare(s, sql, &st);
    if (rc == SQL_OK) {
        sql_bind_text(st, 1, w->owner); /* a parameter that the statement does not use is ignored */
        sql_bind_text(st, 2, w->from);
        sql_bind_text(st, 3, w->before);
        sql_bind_int64(st, 4, w->number);
        sql_bind_text(st, 5, w->user);
        rc = sql_step(st);
        if (rc == SQL_DONE && n) *n += sql_changes(s);
    }
    int code = rc == SQL_DONE ? 0 : store_fail(s, rc, "forget", e);
    sql_finalize(st);
    return code;
}

static int remove_documents(struct store *s, const struct store_person *p, int64_t *n,
                            struct err *e) {
    char from[STORE_DOC_SCOPE_BYTES], before[STORE_DOC_SCOPE_BYTES];
    int64_t n_file = 0;
    store_doc_range(p->owner, strlen(p->owner), p->user, from, before);
    int rc = store_doc_drop_range(s, from, before, &n_file, e);
    *n += n_file;
    return rc;
}

static int remove_rows(struct store *s, const struct store_person *p, int64_t *n, struct err *e) {
    char owner[MAX_OWNER], from[MAX_OWNER], before[MAX_OWNER];
    snprintf(owner, sizeof owner, "%s%s%s", p->owner, p->user ? "\t" : "", p->user ? p->user : "");
    snprintf(from, sizeof from, "%s\t", p->owner);
    snprintf(before, sizeof before, "%s\n", p->owner);
    const struct whose all = {p->owner, from, before, NULL, 0};
    struct whose w = all;
    if (p->user) w = (struct whose){owner, "", "", p->user, 0};
    int rc = 0;
    for (size_t i = 0; !rc && i < sizeof of_owner / sizeof *of_owner; i++)
        rc = change(s, of_owner[i].sql, &w, of_owner[i].counts ? n : NULL, e);
    if (!rc && p->user) rc = change(s, usage, &all, NULL, e);
    if (!rc && *p->owner) rc = remove_documents(s, p, n, e);
    w.number = p->key_id;
    if (!rc && *p->owner) rc = change(s, requests, &w, n, e);
    for (int i = 0; !rc && i < p->n_state; i++) {
        if (!(w.number = (int64_t)p->states[i])) continue;
        rc = change(s, p->states_are_scopes ? states_of_scope : states_of_owner, &w, n, e);
    }
    return rc;
}

/* Removes deleted bytes from the file. Deleted words stay in an index until it is merged, deleted rows stay in
 * pages until these are reused, and old pages stay in the log until it is emptied. Readers in other processes can
 * only delay the last part. */
static int overwrite(struct store *s, bool *done, struct err *e) {
    static const char sql[] =
        "INSERT INTO odo_memory_fts(odo_memory_fts) VALUES('rebuild');"
        "INSERT INTO doc_fts(doc_fts) VALUES('rebuild');"
        "INSERT INTO conversation_fts(conversation_fts) VALUES('rebuild');VACUUM";
    struct sql_stmt *st = NULL;
    *done = false;
    int rc = sql_exec(s, sql);
    if (rc == SQL_OK) rc = sql_prepare(s, "PRAGMA wal_checkpoint(TRUNCATE)", &st);
    if (rc == SQL_OK) rc = sql_step(st);
    if (rc == SQL_ROW) *done = sql_int64(st, 0) == 0;
    sql_finalize(st);
    return rc == SQL_ROW ? 0 : store_fail(s, rc, "write the file anew", e);
}

int store_person_forget(struct store *s, const struct store_person *p, struct store_forgotten *out,
                        struct err *e) {
    *out = (struct store_forgotten){.n_row = 0};
    if (strlen(p->owner) + (p->user ? strlen(p->user) : 0) + 3 > MAX_OWNER)
        return err_set(e, CHIMERE_ELIMIT, "user: expected a name of fewer bytes");
    int rc = store_transaction(s, "forget", e);
    if (rc) return rc;
    rc = remove_rows(s, p, &out->n_row, e);
    rc = store_transaction_end(s, rc, "forget", e);
    if (rc || s->pg) return rc;
    pthread_mutex_lock(&s->lock);
    rc = overwrite(s, &out->is_overwritten, e);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

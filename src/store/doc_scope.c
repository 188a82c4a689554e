#include "store/doc_scope.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "store/doc_scope_impl.h"

#define MINE "my:"

static bool has_control(const char *s) {
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f) return true;
    return false;
}

/* Owners are "KEY" or "KEY<tab>USER". A user with control characters could imitate another owner's prefix. */
static bool is_plain(const char *owner) {
    const char *user = strchr(owner, '\t');
    return *owner && !has_control(user ? user + 1 : owner);
}

int store_doc_scope(const char *owner, const char *name, char out[STORE_DOC_SCOPE_BYTES],
                    struct err *e) {
    bool all = !name || !*name;
    bool mine = all || str_starts(name, MINE) || str_starts(name, STORE_DOC_CHAT);
    if (!all && (has_control(name) || !utf8_is_valid(name, strlen(name))))
        return err_set(e, CHIMERE_EINVAL, "collection: expected a name without control characters");
    if (!all && mine && !strchr(name, ':')[1])
        return err_set(e, CHIMERE_EINVAL, "collection: expected a name after '%s'", name);
    if (all && !is_plain(owner)) {
        snprintf(out, STORE_DOC_SCOPE_BYTES, STORE_DOC_SHARED);
        return 0;
    }
    if (mine && !is_plain(owner))
        return err_set(e, CHIMERE_EINVAL, "user: expected a name without control characters");
    int n = mine ? snprintf(out, STORE_DOC_SCOPE_BYTES, "\001%s\001%s", owner, all ? MINE : name)
                 : snprintf(out, STORE_DOC_SCOPE_BYTES, "%s", name);
    return n < STORE_DOC_SCOPE_BYTES
               ? 0
               : err_set(e, CHIMERE_EINVAL, "collection: expected a shorter name");
}

bool store_doc_is_private(const char *collection) { return *collection == '\001'; }

const char *store_doc_shown(const char *collection) {
    const char *last = strrchr(collection, '\001');
    return last ? last + 1 : collection;
}

static bool adds_own(const char *scope) {
    return store_doc_is_private(scope) && !strcmp(store_doc_shown(scope), MINE);
}

/* Writes the end of the range of names that begin with a scope that adds "my:": they go on after its colon. */
static void end_of_own(const char *scope, char before[STORE_DOC_SCOPE_BYTES]) {
    snprintf(before, STORE_DOC_SCOPE_BYTES, "%s", scope);
    before[strlen(before) - 1] = ':' + 1;
}

void store_doc_bind(struct sql_stmt *st, int collection, int shared, const char *scope,
                    char before[STORE_DOC_SCOPE_BYTES]) {
    bool own = scope && adds_own(scope);
    if (own) end_of_own(scope, before);
    sql_bind_text(st, collection, scope);
    sql_bind_int64(st, shared, own || (scope && !strcmp(scope, STORE_DOC_SHARED)));
    sql_bind_text(st, shared + 1, own ? before : NULL);
}

/* Returns the number of files and passages in a range of collections, or CHIMERE_E*. */
static int64_t usage(struct store *s, const char *from, const char *before, struct err *e) {
    struct sql_stmt *st;
    int code = store_begin(s, Q_DOC_USAGE, &st, e);
    if (code) return code;
    sql_bind_text(st, 1, from);
    sql_bind_text(st, 2, before);
    int rc = sql_step(st);
    int64_t n = rc == SQL_ROW ? sql_int64(st, 0) : 0;
    code = store_end(s, st, rc, e);
    return code ? code : n;
}

const char *store_doc_narrow(struct store *s, const char *scope) {
    char before[STORE_DOC_SCOPE_BYTES];
    if (!scope || !adds_own(scope)) return scope;
    end_of_own(scope, before);
    return usage(s, scope, before, NULL) ? scope : STORE_DOC_SHARED;
}

void store_doc_range(const char *key, size_t n_key, const char *user,
                     char from[STORE_DOC_SCOPE_BYTES], char before[STORE_DOC_SCOPE_BYTES]) {
    int n = (int)n_key;
    if (user) {
        snprintf(from, STORE_DOC_SCOPE_BYTES, "\001%.*s\t%s\001", n, key, user);
        snprintf(before, STORE_DOC_SCOPE_BYTES, "\001%.*s\t%s\002", n, key, user);
    } else { /* its own and, after a tab, those of its users */
        snprintf(from, STORE_DOC_SCOPE_BYTES, "\001%.*s\001", n, key);
        snprintf(before, STORE_DOC_SCOPE_BYTES, "\001%.*s\n", n, key);
    }
}

int store_doc_check_quota(struct store *s, const char *collection, int32_t n_chunk, struct err *e) {
    char from[STORE_DOC_SCOPE_BYTES], before[STORE_DOC_SCOPE_BYTES];
    if (!store_doc_is_private(collection)) return 0;
    store_doc_range(collection + 1, strcspn(collection + 1, "\001\t"), NULL, from, before);
    int64_t n = usage(s, from, before, e);
    if (n < 0) return (int)n;
    if (n + n_chunk < STORE_MAX_DOCS_OF_KEY) return 0;
    err_set(e, CHIMERE_ELIMIT,
            "documents: expected at most %d files and passages of one key, got %lld",
            STORE_MAX_DOCS_OF_KEY, (long long)(n + n_chunk + 1));
    err_hint(e, "remove documents that are no longer needed");
    return CHIMERE_ELIMIT;
}

/* ?1 to before ?2 */
#define RANGE "collection >= ?1 AND collection < ?2"

int store_doc_drop_range(struct store *s, const char *from, const char *before, int64_t *n,
                         struct err *e) {
    static const char *const sql[] = {
        "DELETE FROM doc_fts WHERE rowid IN (SELECT c.id FROM doc_chunks c JOIN doc_files f"
        " ON c.file = f.id WHERE f." RANGE ")",
        "DELETE FROM doc_chunks WHERE file IN (SELECT id FROM doc_files WHERE " RANGE ")",
        "DELETE FROM doc_roots WHERE " RANGE,
        "DELETE FROM doc_files WHERE " RANGE,
    };
    int rc = SQL_OK;
    for (size_t i = 0; i < sizeof sql / sizeof *sql && rc == SQL_OK; i++) {
        struct sql_stmt *st = NULL;
        if ((rc = sql_prepare(s, sql[i], &st)) != SQL_OK) break;
        sql_bind_text(st, 1, from);
        sql_bind_text(st, 2, before);
        if ((rc = sql_step(st)) == SQL_DONE) rc = SQL_OK;
        if (rc == SQL_OK) *n = sql_changes(s); /* of the last one: files */
        sql_finalize(st);
    }
    if (rc == SQL_OK) rc = sql_exec(s, "UPDATE doc_version SET n = n + 1");
    return rc == SQL_OK ? 0 : store_fail(s, rc, "remove documents", e);
}

int store_doc_drop(struct store *s, const char *collection, struct err *e) {
    char before[STORE_DOC_SCOPE_BYTES + 1];
    int64_t n;
    snprintf(before, sizeof before, "%s\001", collection); /* the name that follows it */
    int rc = store_transaction(s, "remove documents", e);
    if (rc) return rc;
    rc = store_doc_drop_range(s, collection, before, &n, e);
    return store_transaction_end(s, rc, "remove documents", e);
}

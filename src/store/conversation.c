#include "store/conversation.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "store/store_impl.h"

static const char doing[] = "write a conversation";

enum { ROW_BYTES = 128, MAX_WORDS = 16 }; /* ROW_BYTES: approximate size of a row's fixed columns */

/* ---- statements ---- */

struct arg { /* value of a parameter of a statement, in the order of the parameters */
    const char *text;
    int64_t number;
    bool is_text;
};
#define TEXT(x)                                                                                    \
    (struct arg) { .text = (x), .is_text = true }
#define NUMBER(x)                                                                                  \
    (struct arg) { .number = (x) }
#define ARGS(...)                                                                                  \
    (const struct arg[]){__VA_ARGS__},                                                             \
        (int)(sizeof((const struct arg[]){__VA_ARGS__}) / sizeof(struct arg))

static int prepare(struct store *s, const char *sql, const struct arg *a, int n,
                   struct sql_stmt **st, struct err *e) {
    int rc = sql_prepare(s, sql, st);
    for (int i = 0; i < n && rc == SQL_OK; i++) {
        if (a[i].is_text) sql_bind_text(*st, i + 1, a[i].text);
        else sql_bind_int64(*st, i + 1, a[i].number);
    }
    return rc == SQL_OK ? 0 : store_fail(s, rc, "prepare a statement", e);
}

/* Call it with the lock held. *out: the first column of the first row, 0 if there is no row. */
static int run(struct store *s, const char *sql, const struct arg *a, int n, int64_t *out,
               struct err *e) {
    struct sql_stmt *st = NULL;
    int code = prepare(s, sql, a, n, &st, e), rc = SQL_DONE;
    if (!code) rc = sql_step(st);
    if (out) *out = rc == SQL_ROW ? sql_int64(st, 0) : 0;
    while (!code && rc == SQL_ROW) rc = sql_step(st);
    if (!code && rc != SQL_DONE) code = store_fail(s, rc, doing, e);
    sql_finalize(st);
    return code;
}

/* ---- rows ---- */

struct found {
    int64_t id, version, n_item, n_bytes;
};

/* Call it with the lock held. */
static int find(struct store *s, const char *owner, const char *name, struct found *f,
                struct err *e) {
    struct sql_stmt *st = NULL;
    int code = prepare(s,
                       "SELECT id, version, n_item, n_bytes FROM conversations"
                       " WHERE owner = ?1 AND name = ?2",
                       ARGS(TEXT(owner), TEXT(name)), &st, e);
    int rc = code ? SQL_DONE : sql_step(st);
    if (rc == SQL_ROW) {
        *f = (struct found){sql_int64(st, 0), sql_int64(st, 1), sql_int64(st, 2), sql_int64(st, 3)};
    } else if (!code && rc != SQL_DONE) {
        code = store_fail(s, rc, "read a conversation", e);
    } else if (!code) {
        code = err_set(e, CHIMERE_ENOENT, "conversation: there is no '%.80s'", name);
    }
    sql_finalize(st);
    return code;
}

/* Begins a transaction on the conversation that the caller named. If it fails, no transaction is open. */
static int begin_change(struct store *s, const struct store_conversation_key *k, struct found *f,
                        struct err *e) {
    int rc = store_transaction(s, doing, e);
    if (rc) return rc;
    rc = find(s, k->owner, k->name, f, e);
    if (!rc && k->version && k->version != f->version)
        rc = err_set(e, CHIMERE_EMISMATCH,
                     "If-Match: version %lld is expected, the conversation has %lld now",
                     (long long)k->version, (long long)f->version);
    return rc ? store_transaction_end(s, rc, doing, e) : 0;
}

static int find_item(struct store *s, int64_t conversation, const char *name, int64_t *id,
                     struct err *e) {
    return run(s, "SELECT id FROM conversation_items WHERE conversation = ?1 AND name = ?2",
               ARGS(NUMBER(conversation), TEXT(name)), id, e);
}

static int need_item(struct store *s, int64_t conversation, const char *name, int64_t *id,
                     struct err *e) {
    int rc = find_item(s, conversation, name, id, e);
    return rc || *id ? rc : err_set(e, CHIMERE_ENOENT, "item: there is no '%.80s'", name);
}

/* ---- usage of an owner ---- */

static int use_one(struct store *s, const char *name, int64_t n_bytes, int64_t n, int64_t most,
                   const char *whose, struct err *e) {
    int64_t full = 0;
    int rc = run(
        s,
        "INSERT INTO conversation_usage(owner, n_bytes, n) VALUES(?1, ?2, ?3)"
        " ON CONFLICT(owner) DO UPDATE SET n_bytes = conversation_usage.n_bytes + ?2,"
        " n = conversation_usage.n + ?3"
        " RETURNING CASE WHEN ?2 > 0 AND n_bytes > ?4 THEN 1"
        " WHEN ?3 > 0 AND n > ?5 THEN 2 ELSE 0 END",
        ARGS(TEXT(name), NUMBER(n_bytes), NUMBER(n), NUMBER(most), NUMBER(STORE_MAX_CONVERSATIONS)),
        &full, e);
    if (rc || !full) return rc;
    if (full == 1)
        err_set(e, CHIMERE_ELIMIT, "conversations: expected at most %lld MiB for one %s",
                (long long)(most >> 20), whose);
    else
        err_set(e, CHIMERE_ELIMIT, "conversations: expected at most %d for one %s",
                STORE_MAX_CONVERSATIONS, whose);
    err_hint(e, "delete some of them");
    return CHIMERE_ELIMIT;
}

/* Adds to the usage sums of the owner and of its key. */
static int use(struct store *s, const char *owner, int64_t n_bytes, int64_t n, struct err *e) {
    char key[128], user[STORE_MAX_TITLE + 256];
    snprintf(key, sizeof key, "%.*s", (int)strcspn(owner, "\t"), owner);
    snprintf(user, sizeof user, "%s%s", owner, strchr(owner, '\t') ? "" : "\t");
    int rc = use_one(s, user, n_bytes, n, STORE_MAX_USER_BYTES, "user", e);
    return rc ? rc : use_one(s, key, n_bytes, n, STORE_MAX_KEY_BYTES, "key", e);
}

/* Updates the conversation's own row and the usage sums. is_new: items were added or changed, so updated_ms is
 * set. */
static int touch(struct store *s, struct store_conversation_key *k, const struct found *f,
                 int64_t n_bytes, int64_t n_item, bool is_new, struct err *e) {
    int rc = use(s, k->owner, n_bytes, 0, e);
    if (!rc)
        rc = run(s,
                 "UPDATE conversations SET version = version + 1, n_bytes = n_bytes + ?2,"
                 " n_item = n_item + ?3, updated_ms = CASE WHEN ?4 > updated_ms THEN ?4"
                 " ELSE updated_ms END WHERE id = ?1"
                 " RETURNING version",
                 ARGS(NUMBER(f->id), NUMBER(n_bytes), NUMBER(n_item),
                      NUMBER(is_new ? store_now_ms() : 0)),
                 &k->version, e);
    return rc;
}

static int64_t item_bytes(const struct store_item *x) {
    return ROW_BYTES + (int64_t)strlen(x->body) + (int64_t)strlen(x->text ? x->text : "");
}

static int64_t text_bytes(const char *const text[4]) {
    int64_t n = 0;
    for (int i = 0; i < 4; i++) n += text[i] ? (int64_t)strlen(text[i]) : 0;
    return n;
}

/* Indexes the words by which rowid is found. rowid is the id of an item, or the negative id of a conversation for
 * its title. */
static int index_text(struct store *s, int64_t rowid, const char *text, struct err *e) {
    int rc = run(s, "DELETE FROM conversation_fts WHERE rowid = ?1", ARGS(NUMBER(rowid)), NULL, e);
    if (rc || !text || !text[0]) return rc;
    return run(s, "INSERT INTO conversation_fts(rowid, text) VALUES(?1, ?2)",
               ARGS(NUMBER(rowid), TEXT(text)), NULL, e);
}

/* ---- items ---- */

static int find_parent(struct store *s, int64_t conversation, const struct store_item *x, int32_t i,
                       int64_t *parent, struct err *e) {
    *parent = 0;
    if (x->is_root) return 0;
    if (!x->parent)
        return run(s, "SELECT coalesce(max(id), 0) FROM conversation_items WHERE conversation = ?1",
                   ARGS(NUMBER(conversation)), parent, e);
    int rc = find_item(s, conversation, x->parent, parent, e);
    if (rc || *parent) return rc;
    return err_set(e, CHIMERE_EINVAL, "items[%d].parent: expected an earlier item, got '%.80s'", i,
                   x->parent);
}

static int add_item(struct store *s, int64_t conversation, const struct store_item *x, int32_t i,
                    struct err *e) {
    int64_t parent, id = 0;
    int rc = find_parent(s, conversation, x, i, &parent, e);
    if (!rc)
        rc = run(s,
                 "INSERT INTO conversation_items(conversation, name, parent, at_ms, n_bytes, body)"
                 " VALUES(?1,?2,?3,?4,?5,?6) ON CONFLICT DO NOTHING RETURNING id",
                 ARGS(NUMBER(conversation), TEXT(x->name), NUMBER(parent),
                      NUMBER(x->at_ms ? x->at_ms : store_now_ms()), NUMBER(item_bytes(x)),
                      TEXT(x->body)),
                 &id, e);
    if (!rc && !id) rc = err_set(e, CHIMERE_EINVAL, "items[%d].id: '%.80s' is taken", i, x->name);
    return rc ? rc : index_text(s, id, x->text, e);
}

static int add_items(struct store *s, const struct found *f, const struct store_item *items,
                     int32_t n, int64_t *n_bytes, struct err *e) {
    int rc = 0;
    *n_bytes = 0;
    if (f->n_item + n > STORE_MAX_ITEMS)
        return err_set(e, CHIMERE_ELIMIT, "items: expected at most %d in a conversation",
                       STORE_MAX_ITEMS);
    for (int32_t i = 0; i < n && !rc; i++) {
        if (strlen(items[i].body) > STORE_MAX_ITEM_BYTES)
            return err_set(e, CHIMERE_ELIMIT, "items[%d]: expected at most %d MiB", i,
                           STORE_MAX_ITEM_BYTES >> 20);
        rc = add_item(s, f->id, &items[i], i, e);
        *n_bytes += item_bytes(&items[i]);
    }
    return rc;
}

int store_items_add(struct store *s, struct store_conversation_key *k,
                    const struct store_item *items, int32_t n, struct err *e) {
    struct found f;
    int64_t n_bytes = 0;
    int rc = begin_change(s, k, &f, e);
    if (rc) return rc;
    rc = add_items(s, &f, items, n, &n_bytes, e);
    if (!rc) rc = touch(s, k, &f, n_bytes, n, true, e);
    return store_transaction_end(s, rc, doing, e);
}

int store_item_change(struct store *s, struct store_conversation_key *k,
                      const struct store_item *item, struct err *e) {
    struct found f;
    int64_t id = 0, before = 0;
    int rc = begin_change(s, k, &f, e);
    if (rc) return rc;
    rc = need_item(s, f.id, item->name, &id, e);
    if (!rc && strlen(item->body) > STORE_MAX_ITEM_BYTES)
        rc =
            err_set(e, CHIMERE_ELIMIT, "item: expected at most %d MiB", STORE_MAX_ITEM_BYTES >> 20);
    if (!rc)
        rc = run(s, "SELECT n_bytes FROM conversation_items WHERE id = ?1", ARGS(NUMBER(id)),
                 &before, e);
    if (!rc)
        rc = run(s, "UPDATE conversation_items SET body = ?2, n_bytes = ?3 WHERE id = ?1",
                 ARGS(NUMBER(id), TEXT(item->body), NUMBER(item_bytes(item))), NULL, e);
    if (!rc) rc = index_text(s, id, item->text, e);
    if (!rc) rc = touch(s, k, &f, item_bytes(item) - before, 0, true, e);
    return store_transaction_end(s, rc, doing, e);
}

#define BELOW                                                                                      \
    "WITH RECURSIVE gone(id) AS (SELECT ?1 UNION ALL SELECT i.id FROM conversation_items i"        \
    " JOIN gone ON i.parent = gone.id WHERE ?2 = 1) "

int store_item_remove(struct store *s, struct store_conversation_key *k, const char *item,
                      bool below, struct err *e) {
    struct found f;
    int64_t id = 0, n_bytes = 0, n = 0;
    int rc = begin_change(s, k, &f, e);
    if (rc) return rc;
    rc = need_item(s, f.id, item, &id, e);
    const struct arg a[] = {NUMBER(id), NUMBER(below)};
    if (!rc && !below)
        rc = run(s,
                 "UPDATE conversation_items SET parent = (SELECT parent FROM conversation_items"
                 " WHERE id = ?1) WHERE parent = ?1",
                 a, 1, NULL, e);
    if (!rc)
        rc = run(s,
                 BELOW "SELECT CAST(coalesce(sum(n_bytes), 0) AS BIGINT) FROM conversation_items "
                       "WHERE id IN (SELECT id FROM"
                       " gone)",
                 a, 2, &n_bytes, e);
    if (!rc) rc = run(s, BELOW "SELECT count(*) FROM gone", a, 2, &n, e);
    if (!rc)
        rc = run(s, BELOW "DELETE FROM conversation_fts WHERE rowid IN (SELECT id FROM gone)", a, 2,
                 NULL, e);
    if (!rc)
        rc = run(s, BELOW "DELETE FROM conversation_items WHERE id IN (SELECT id FROM gone)", a, 2,
                 NULL, e);
    if (!rc) rc = touch(s, k, &f, -n_bytes, -n, true, e);
    return store_transaction_end(s, rc, doing, e);
}

static int each_item(struct store *s, struct sql_stmt *st, store_item_each each, void *ud,
                     int64_t *n_row, struct err *e) {
    int rc, stop = 0;
    *n_row = 0;
    while ((rc = sql_step(st)) == SQL_ROW && !stop) {
        struct store_item x = {.name = sql_text(st, 0),
                               .parent = sql_text(st, 1),
                               .at_ms = sql_int64(st, 2),
                               .body = sql_text(st, 3)};
        x.is_root = !x.parent;
        stop = x.name && x.body ? each(ud, &x) : CHIMERE_ENOMEM;
        ++*n_row;
    }
    return rc == SQL_ROW || rc == SQL_DONE ? stop : store_fail(s, rc, "read a conversation", e);
}

#define ITEM_COLUMNS                                                                               \
    "SELECT i.name, p.name, i.at_ms, i.body FROM conversation_items i"                             \
    " LEFT JOIN conversation_items p ON p.id = i.parent WHERE i.conversation = ?1 AND "

int store_items_list(struct store *s, const char *owner, const char *name, const char *after,
                     bool newest_first, store_item_each each, void *ud, struct err *e) {
    struct found f;
    struct sql_stmt *st = NULL;
    int64_t from = newest_first ? INT64_MAX : 0, n;
    pthread_mutex_lock(&s->lock);
    int rc = find(s, owner, name, &f, e);
    if (!rc && after) rc = need_item(s, f.id, after, &from, e);
    if (!rc)
        rc = prepare(s,
                     newest_first ? ITEM_COLUMNS "i.id < ?2 ORDER BY i.id DESC"
                                  : ITEM_COLUMNS "i.id > ?2 ORDER BY i.id",
                     ARGS(NUMBER(f.id), NUMBER(from)), &st, e);
    if (!rc) rc = each_item(s, st, each, ud, &n, e);
    sql_finalize(st);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

int store_item_find(struct store *s, const char *owner, const char *name, const char *item,
                    store_item_each each, void *ud, struct err *e) {
    struct found f;
    struct sql_stmt *st = NULL;
    int64_t n = 0;
    pthread_mutex_lock(&s->lock);
    int rc = find(s, owner, name, &f, e);
    if (!rc) rc = prepare(s, ITEM_COLUMNS "i.name = ?2", ARGS(NUMBER(f.id), TEXT(item)), &st, e);
    if (!rc) {
        rc = each_item(s, st, each, ud, &n, e);
        if (!rc && !n) rc = err_set(e, CHIMERE_ENOENT, "item: there is no '%.80s'", item);
    }
    sql_finalize(st);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

/* ---- conversations ---- */

int store_conversation_add(struct store *s, const char *owner, const struct store_conversation *c,
                           const struct store_item *items, int32_t n, struct err *e) {
    const char *const texts[] = {c->title, c->project, c->metadata, c->settings};
    struct found f = {0};
    int64_t now = store_now_ms(), n_bytes = 0, own = ROW_BYTES + text_bytes(texts);
    int rc = store_transaction(s, doing, e);
    if (rc) return rc;
    rc = run(s,
             "INSERT INTO conversations(owner, name, title, project, metadata, settings, pinned,"
             " created_ms, updated_ms, version, n_item, n_bytes)"
             " VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?8,1,?9,0) RETURNING id",
             ARGS(TEXT(owner), TEXT(c->name), TEXT(c->title), TEXT(c->project), TEXT(c->metadata),
                  TEXT(c->settings), NUMBER(c->pinned), NUMBER(now), NUMBER(n)),
             &f.id, e);
    if (!rc) rc = index_text(s, -f.id, c->title, e);
    if (!rc) rc = add_items(s, &f, items, n, &n_bytes, e);
    if (!rc) rc = use(s, owner, own + n_bytes, 1, e);
    if (!rc)
        rc = run(s, "UPDATE conversations SET n_bytes = ?2 WHERE id = ?1",
                 ARGS(NUMBER(f.id), NUMBER(own + n_bytes)), NULL, e);
    return store_transaction_end(s, rc, doing, e);
}

static int64_t own_bytes(struct store *s, int64_t id, struct err *e) {
    int64_t n = 0;
    int rc = run(s,
                 "SELECT length(CAST(title || project || metadata || settings AS BLOB))"
                 " FROM conversations WHERE id = ?1",
                 ARGS(NUMBER(id)), &n, e);
    return rc ? rc : n;
}

int store_conversation_change(struct store *s, struct store_conversation_key *k,
                              const struct store_conversation_change *c, struct err *e) {
    struct found f;
    int rc = begin_change(s, k, &f, e);
    if (rc) return rc;
    int64_t before = own_bytes(s, f.id, e), after = 0;
    if (before < 0) rc = (int)before;
    if (!rc)
        rc = run(s,
                 "UPDATE conversations SET title = coalesce(?2, title),"
                 " project = coalesce(?3, project), metadata = coalesce(?4, metadata),"
                 " settings = coalesce(?5, settings),"
                 " pinned = CASE WHEN ?6 < 0 THEN pinned ELSE ?6 END WHERE id = ?1",
                 ARGS(NUMBER(f.id), TEXT(c->title), TEXT(c->project), TEXT(c->metadata),
                      TEXT(c->settings), NUMBER(c->pinned)),
                 NULL, e);
    if (!rc && c->title) rc = index_text(s, -f.id, c->title, e);
    if (!rc && (after = own_bytes(s, f.id, e)) < 0) rc = (int)after;
    if (!rc) rc = touch(s, k, &f, after - before, 0, false, e);
    return store_transaction_end(s, rc, doing, e);
}

int store_conversation_remove(struct store *s, struct store_conversation_key *k, struct err *e) {
    struct found f;
    int rc = begin_change(s, k, &f, e);
    if (rc) return rc;
    const struct arg id = NUMBER(f.id);
    rc = run(s,
             "DELETE FROM conversation_fts WHERE rowid = -?1 OR rowid IN"
             " (SELECT id FROM conversation_items WHERE conversation = ?1)",
             &id, 1, NULL, e);
    if (!rc) rc = run(s, "DELETE FROM conversation_items WHERE conversation = ?1", &id, 1, NULL, e);
    if (!rc) rc = run(s, "DELETE FROM conversations WHERE id = ?1", &id, 1, NULL, e);
    if (!rc) rc = use(s, k->owner, -f.n_bytes, -1, e);
    return store_transaction_end(s, rc, doing, e);
}

/* ---- lists ---- */

#define CONVERSATION_COLUMNS                                                                       \
    "SELECT c.id, c.name, c.title, c.project, c.metadata, c.settings, c.pinned, c.created_ms,"     \
    " c.updated_ms, c.version, c.n_item FROM conversations c WHERE c.owner = ?1"

/* Builds the query, for FTS5 or PostgreSQL, from words that a user typed: one text must contain all of them, the
 * last one as a prefix. Everything except letters and digits separates words, so that the user cannot enter
 * operators. */
static bool expression(const struct store *s, const char *words, struct buf *out) {
    int n = 0;
    for (const char *p = words; n < MAX_WORDS;) {
        while (*p && (unsigned char)*p < 0x80 && !isalnum((unsigned char)*p)) p++;
        const char *from = p;
        while ((unsigned char)*p >= 0x80 || isalnum((unsigned char)*p)) p++;
        if (p == from) break;
        const char *quote = s->pg ? "'" : "\"", *between = s->pg ? " & " : " ";
        buf_printf(out, "%s%s%.*s%s", n++ ? between : "", quote, (int)(p - from), from, quote);
    }
    if (n) buf_puts(out, s->pg ? ":*" : "*");
    return n > 0;
}

/* Returns some words around the match in one conversation; the caller finalizes *st. */
static const char *match_of(struct store *s, int64_t id, const char *fts, struct sql_stmt **st) {
    int rc = prepare(s,
                     "SELECT snippet(conversation_fts, 0, '', '', '\xe2\x80\xa6', 12)"
                     " FROM conversation_fts WHERE conversation_fts MATCH ?2 AND rowid IN"
                     " (SELECT id FROM conversation_items WHERE conversation = ?1) LIMIT 1",
                     ARGS(NUMBER(id), TEXT(fts)), st, NULL);
    if (rc || sql_step(*st) != SQL_ROW) return NULL;
    return sql_text(*st, 0);
}

static int each_conversation(struct store *s, struct sql_stmt *st, const char *fts,
                             store_conversation_each each, void *ud, int64_t *n_row,
                             struct err *e) {
    int rc, stop = 0;
    *n_row = 0;
    while ((rc = sql_step(st)) == SQL_ROW && !stop) {
        const char *text[5];
        bool ok = true;
        for (int i = 0; i < 5; i++) ok &= (text[i] = sql_text(st, i + 1)) != NULL;
        struct sql_stmt *around = NULL;
        struct store_conversation c = {.name = text[0],
                                       .title = text[1],
                                       .project = text[2],
                                       .metadata = text[3],
                                       .settings = text[4],
                                       .pinned = (int32_t)sql_int64(st, 6),
                                       .created_ms = sql_int64(st, 7),
                                       .updated_ms = sql_int64(st, 8),
                                       .version = sql_int64(st, 9),
                                       .n_item = sql_int64(st, 10)};
        if (fts) c.match = match_of(s, sql_int64(st, 0), fts, &around);
        stop = ok ? each(ud, &c) : CHIMERE_ENOMEM;
        sql_finalize(around);
        ++*n_row;
    }
    return rc == SQL_ROW || rc == SQL_DONE ? stop : store_fail(s, rc, "read conversations", e);
}

int store_conversation_find(struct store *s, const char *owner, const char *name,
                            store_conversation_each each, void *ud, struct err *e) {
    struct sql_stmt *st = NULL;
    int64_t n = 0;
    pthread_mutex_lock(&s->lock);
    int rc =
        prepare(s, CONVERSATION_COLUMNS " AND c.name = ?2", ARGS(TEXT(owner), TEXT(name)), &st, e);
    if (!rc) {
        rc = each_conversation(s, st, NULL, each, ud, &n, e);
        if (!rc && !n) rc = err_set(e, CHIMERE_ENOENT, "conversation: there is no '%.80s'", name);
    }
    sql_finalize(st);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

int store_conversation_list(struct store *s, const struct store_conversation_query *q,
                            store_conversation_each each, void *ud, struct err *e) {
    static const char sql[] = CONVERSATION_COLUMNS
        " AND (?2 IS NULL OR c.project = ?2)"
        " AND (?3 = 0 OR (c.pinned, c.updated_ms, c.id) <"
        " (SELECT a.pinned, a.updated_ms, a.id FROM conversations a WHERE a.id = ?3))"
        " AND (?4 IS NULL OR c.id IN"
        " (SELECT CASE WHEN f.rowid < 0 THEN -f.rowid ELSE i.conversation END"
        " FROM conversation_fts f LEFT JOIN conversation_items i ON i.id = f.rowid"
        " WHERE conversation_fts MATCH ?4))"
        " ORDER BY c.pinned DESC, c.updated_ms DESC, c.id DESC LIMIT ?5";
    struct found f = {0};
    struct buf fts;
    struct sql_stmt *st = NULL;
    int64_t n;
    int rc = 0;
    buf_init(&fts, 1 << 16);
    /* a query without words finds nothing */
    if (q->words && !expression(s, q->words, &fts)) return 0;
    if (fts.failed) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    pthread_mutex_lock(&s->lock);
    if (q->after) rc = find(s, q->owner, q->after, &f, e);
    if (!rc)
        rc = prepare(
            s, sql,
            ARGS(TEXT(q->owner), TEXT(q->project), NUMBER(f.id), TEXT(fts.p), NUMBER(q->limit)),
            &st, e);
    if (!rc) rc = each_conversation(s, st, fts.p, each, ud, &n, e);
    sql_finalize(st);
    pthread_mutex_unlock(&s->lock);
    buf_fini(&fts);
    return rc;
}

#include "store/server/lead.h"

#include <stdio.h>

#include "store/sql/sql_impl.h"
#include "store/store_impl.h"

/* The key of the lock: a number of ours, and the schema, because two stores may share a database. */
#define SCHEMA "hashtext(CAST(current_schema() AS TEXT))"
#define KEY "4849996, " SCHEMA

/* Runs a statement and reads the first column of its first row, as a number or as a text. Returns SQL_ROW. */
static int ask(struct store *s, const char *sql, int64_t *number, char *text, size_t size) {
    struct sql_stmt *st;
    int rc = sql_prepare(s, sql, &st);
    if (rc == SQL_OK) rc = sql_step(st);
    if (rc == SQL_ROW && number) *number = sql_int64(st, 0);
    if (rc == SQL_ROW && text) snprintf(text, size, "%s", store_string(st, 0));
    sql_finalize(st);
    return rc;
}

/* Call it with the lock held. Returns SQL_OK and sets s->led if the lock was free. */
static int take(struct store *s) {
    int64_t got = 0;
    int rc = s->ops->ready(s);
    if (rc == SQL_OK) rc = ask(s, "SELECT pg_try_advisory_lock(" KEY ")", &got, NULL, 0);
    s->led = rc == SQL_ROW && got ? s->ops->n_connect(s) : 0;
    return rc == SQL_ROW ? SQL_OK : rc;
}

int store_lead(struct store *s, struct err *e) {
    char who[64] = "another process";
    if (!s->pg) return 0;
    pthread_mutex_lock(&s->lock);
    int rc = take(s), code = 0;
    if (rc != SQL_OK) code = store_fail(s, rc, "take the lead", e);
    else if (!s->led) {
        ask(s,
            "SELECT a.application_name FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid"
            " JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()"
            " WHERE l.locktype = 'advisory' AND l.granted AND l.classid = 4849996"
            " AND CAST(l.objid AS BIGINT) = (CAST(" SCHEMA " AS BIGINT) & 4294967295)",
            NULL, who, sizeof who);
        code = err_set(e, CHIMERE_EBUSY, "%s: %s leads the nights of this store", s->path, who);
        err_hint(e, "only one process at a time learns from a shared store");
    }
    pthread_mutex_unlock(&s->lock);
    return code;
}

bool store_leads(struct store *s) {
    if (!s->pg) return true;
    pthread_mutex_lock(&s->lock);
    /* Only an answer shows that the connection, and with it the lock, still exists: a server that ended it may have
     * left bytes to read. */
    if (sql_exec(s, "SELECT 1") != SQL_OK) s->ops->ready(s);
    bool leads = s->led == s->ops->n_connect(s) || !s->ops->is_up(s);
    if (!leads && s->led) leads = take(s) != SQL_OK || s->led;
    pthread_mutex_unlock(&s->lock);
    return leads;
}

void store_unlead(struct store *s) {
    if (!s->pg) return;
    pthread_mutex_lock(&s->lock);
    if (s->led && s->led == s->ops->n_connect(s) && s->ops->is_up(s))
        ask(s, "SELECT pg_advisory_unlock(" KEY ")", NULL, NULL, 0);
    s->led = 0;
    pthread_mutex_unlock(&s->lock);
}

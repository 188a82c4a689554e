#include "store/job.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/os/os.h"
#include "base/os/process.h"

#include "store/sql/sql_impl.h"
#include "store/store_impl.h"

/* Writes "HOST:" if several machines share the store, otherwise "". The name goes into texts of statements. */
static void host_prefix(const struct store *s, char out[STORE_HOST_BYTES]) {
    char name[STORE_HOST_BYTES - 1] = "";
    if (s->pg) os_host_name(name, sizeof name);
    for (char *p = name; *p; p++)
        if (*p == '\'' || *p == '\\') *p = '_';
    snprintf(out, STORE_HOST_BYTES, "%s%s", name, name[0] ? ":" : "");
}

_Static_assert(PROCESS_MAX_NAME <= STORE_PROCESS_BYTES - STORE_HOST_BYTES, "room for a process");

void store_process_name(const struct store *s, char out[STORE_PROCESS_BYTES]) {
    host_prefix(s, out);
    process_self(out + strlen(out));
}

static void bind_progress(struct sql_stmt *st, const struct store_job *j) {
    sql_bind_text(st, 1, j->state);
    sql_bind_int64(st, 2, j->ended_ms);
    sql_bind_int64(st, 3, j->n_done);
    sql_bind_int64(st, 4, j->n_total);
    sql_bind_text(st, 5, j->progress ? j->progress : "");
    sql_bind_text(st, 6, j->error ? j->error : "");
}

int store_job_add(struct store *s, const struct store_job *j, int64_t *id, struct err *e) {
    struct sql_stmt *st;
    int code = store_begin(s, Q_JOB_ADD, &st, e);
    if (code) return code;
    bind_progress(st, j);
    sql_bind_text(st, 7, j->kind);
    sql_bind_text(st, 8, j->name);
    sql_bind_int64(st, 9, j->started_ms ? j->started_ms : store_now_ms());
    char owner[STORE_PROCESS_BYTES];
    store_process_name(s, owner);
    sql_bind_text(st, 10, owner);
    sql_bind_int64(st, 11, j->priority);
    sql_bind_text(st, 12, j->body);
    sql_bind_text(st, 13, j->person ? j->person : "");
    return store_end(s, st, sql_insert(st, id), e);
}

int store_job_update(struct store *s, const struct store_job *j, struct err *e) {
    struct sql_stmt *st;
    int code = store_begin(s, Q_JOB_UPDATE, &st, e);
    if (code) return code;
    bind_progress(st, j);
    sql_bind_int64(st, 7, j->id);
    char owner[STORE_PROCESS_BYTES];
    store_process_name(s, owner);
    sql_bind_text(st, 8, owner);
    return store_end(s, st, sql_step(st), e);
}

int store_job_list(struct store *s, const char *kind, int32_t most,
                   int (*each)(void *ud, const struct store_job *j), void *ud, struct err *e) {
    struct sql_stmt *st;
    int code = store_begin(s, Q_JOB_LIST, &st, e), rc, stop = 0;
    if (code) return code;
    sql_bind_text(st, 1, kind);
    sql_bind_int64(st, 2, most);
    while ((rc = sql_step(st)) == SQL_ROW && !stop) {
        const struct store_job j = {.id = sql_int64(st, 0),
                                    .kind = store_string(st, 1),
                                    .name = store_string(st, 2),
                                    .state = store_string(st, 3),
                                    .started_ms = sql_int64(st, 4),
                                    .ended_ms = sql_int64(st, 5),
                                    .n_done = sql_int64(st, 6),
                                    .n_total = sql_int64(st, 7),
                                    .progress = store_string(st, 8),
                                    .error = store_string(st, 9)};
        stop = each(ud, &j);
    }
    code = store_end(s, st, rc, e);
    return code ? code : stop;
}

/* Finds the next running job after *id whose process, on this machine, has ended; *id becomes 0 if there is none. */
static int next_orphan(struct store *s, int64_t *id, struct err *e) {
    struct sql_stmt *st;
    int code = store_begin(s, Q_JOB_RUNNING, &st, e), rc;
    if (code) return code;
    sql_bind_int64(st, 1, *id);
    *id = 0;
    while ((rc = sql_step(st)) == SQL_ROW && !*id)
        if (!process_is_alive(store_string(st, 1))) *id = sql_int64(st, 0);
    return store_end(s, st, rc, e);
}

/* On a server, a process whose connections have all ended holds no lock of its name (sql_postgres.c). Of replicas that
 * start together, each skips the rows that another one is changing. */
static int interrupt_lost(struct store *s, struct err *e) {
    static const char sql[] =
        "UPDATE jobs SET " STORE_JOB_LOST " WHERE id IN (SELECT j.id FROM jobs j"
        " WHERE j.state = 'running' AND NOT EXISTS (SELECT 1 FROM pg_locks l JOIN pg_database d"
        " ON d.oid = l.database AND d.datname = current_database() WHERE l.locktype = 'advisory'"
        " AND l.classid = 4849997"
        " AND CAST(l.objid AS BIGINT) = (CAST(hashtext(j.owner) AS BIGINT) & 4294967295))"
        " FOR UPDATE SKIP LOCKED)";
    pthread_mutex_lock(&s->lock);
    int rc = s->ops->ready(s);
    if (rc == SQL_OK) rc = sql_exec(s, sql);
    int code = rc == SQL_OK ? 0 : store_fail(s, rc, "find interrupted jobs", e);
    pthread_mutex_unlock(&s->lock);
    return code;
}

int store_job_interrupt(struct store *s, struct err *e) {
    int64_t id = 0;
    if (s->pg) return interrupt_lost(s, e);
    int code = next_orphan(s, &id, e);
    while (!code && id) {
        struct sql_stmt *st;
        code = store_begin(s, Q_JOB_INTERRUPT, &st, e);
        if (code) break;
        sql_bind_int64(st, 1, id);
        code = store_end(s, st, sql_step(st), e);
        if (!code) code = next_orphan(s, &id, e);
    }
    return code;
}

int64_t store_job_forget(struct store *s, int64_t before_ms, struct err *e) {
    return store_forget(s, Q_JOB_FORGET, before_ms, e);
}

/* ---- the queue ---- */

int store_job_share(struct store *s, const struct store_job *j, struct err *e) {
    struct sql_stmt *st;
    int64_t id = 0;
    int code = store_begin(s, Q_JOB_SHARE, &st, e);
    if (code) return code;
    sql_bind_text(st, 1, j->kind);
    sql_bind_text(st, 2, j->name);
    sql_bind_int64(st, 3, store_now_ms());
    sql_bind_int64(st, 4, j->priority);
    sql_bind_text(st, 5, j->body);
    sql_bind_text(st, 6, j->person ? j->person : "");
    sql_bind_int64(st, 7, STORE_JOB_MAX_QUEUED);
    code = store_end(s, st, sql_insert(st, &id), e);
    if (code || id) return code;
    return err_set(e, CHIMERE_EBUSY, "jobs: %d of kind %s are queued in the store",
                   STORE_JOB_MAX_QUEUED, j->kind);
}

/* Returns 1 if a job of that kind is queued, 0, or CHIMERE_E*. Unlike the statement that takes one, it does not wait for
 * other writers of a file. */
static int is_waiting(struct store *s, const char *kind, struct err *e) {
    struct sql_stmt *st;
    int code = store_begin(s, Q_JOB_WAITS, &st, e);
    if (code) return code;
    sql_bind_text(st, 1, kind);
    int rc = sql_step(st);
    code = store_end(s, st, rc, e);
    return code ? code : rc == SQL_ROW;
}

int store_job_take(struct store *s, const char *kind, struct store_job_taken *out, struct err *e) {
    struct sql_stmt *st;
    char owner[STORE_PROCESS_BYTES];
    *out = (struct store_job_taken){.id = 0};
    int code = is_waiting(s, kind, e), rc;
    if (code <= 0) return code;
    code = store_begin(s, Q_JOB_TAKE, &st, e);
    if (code) return code;
    store_process_name(s, owner);
    sql_bind_text(st, 1, owner);
    sql_bind_int64(st, 2, store_now_ms());
    sql_bind_text(st, 3, kind);
    while ((rc = sql_step(st)) == SQL_ROW && !out->id) {
        out->id = sql_int64(st, 0);
        out->name = mem_strdup(store_string(st, 1));
        out->body = mem_strdup(store_string(st, 2));
    }
    code = store_end(s, st, rc, e);
    if (!code && out->id && out->name && out->body) return 1;
    if (!code && out->id) code = err_set(e, CHIMERE_ENOMEM, "out of memory");
    mem_free(out->name);
    mem_free(out->body);
    *out = (struct store_job_taken){.id = 0};
    return code;
}

int store_job_return(struct store *s, int64_t id, struct err *e) {
    struct sql_stmt *st;
    char owner[STORE_PROCESS_BYTES];
    int code = store_begin(s, Q_JOB_RETURN, &st, e);
    if (code) return code;
    store_process_name(s, owner);
    sql_bind_int64(st, 1, id);
    sql_bind_text(st, 2, owner);
    return store_end(s, st, sql_step(st), e);
}

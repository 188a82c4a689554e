#include "store/job.h"

#include <stdio.h>
#include <string.h>

#include "base/os/os.h"
#include "base/os/process.h"

#include "store/store_impl.h"

enum { HOST_BYTES = 64, OWNER_BYTES = HOST_BYTES + 1 + PROCESS_MAX_NAME };

/* Writes "HOST:" if several machines share the store, otherwise "". */
static void host_prefix(const struct store *s, char out[HOST_BYTES]) {
    char name[HOST_BYTES - 1] = "";
    if (s->pg) os_host_name(name, sizeof name);
    snprintf(out, HOST_BYTES, "%s%s", name, name[0] ? ":" : "");
}

static void own_name(const struct store *s, char out[OWNER_BYTES]) {
    host_prefix(s, out);
    process_self(out + strlen(out));
}

/* Returns true if the process that owns a job ran on this machine and has ended. Processes of other machines are
 * unknown. */
static bool is_orphan(const struct store *s, const char *owner) {
    char host[HOST_BYTES];
    host_prefix(s, host);
    size_t n = strlen(host);
    return strncmp(owner, host, n) == 0 && !process_is_alive(owner + n);
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
    char owner[OWNER_BYTES];
    own_name(s, owner);
    sql_bind_text(st, 10, owner);
    return store_end(s, st, sql_insert(st, id), e);
}

int store_job_update(struct store *s, const struct store_job *j, struct err *e) {
    struct sql_stmt *st;
    int code = store_begin(s, Q_JOB_UPDATE, &st, e);
    if (code) return code;
    bind_progress(st, j);
    sql_bind_int64(st, 7, j->id);
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

/* Finds the next running job after *id whose process has ended; *id becomes 0 if there is none. */
static int next_orphan(struct store *s, int64_t *id, struct err *e) {
    struct sql_stmt *st;
    int code = store_begin(s, Q_JOB_RUNNING, &st, e), rc;
    if (code) return code;
    sql_bind_int64(st, 1, *id);
    *id = 0;
    while ((rc = sql_step(st)) == SQL_ROW && !*id)
        if (is_orphan(s, store_string(st, 1))) *id = sql_int64(st, 0);
    return store_end(s, st, rc, e);
}

int store_job_interrupt(struct store *s, struct err *e) {
    int64_t id = 0;
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

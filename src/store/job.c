#include "store/job.h"

#include "base/process.h"

#include "store/store_impl.h"

static void bind_progress(sqlite3_stmt *st, const struct store_job *j) {
    store_bind_text(st, 1, j->state);
    sqlite3_bind_int64(st, 2, j->ended_ms);
    sqlite3_bind_int64(st, 3, j->n_done);
    sqlite3_bind_int64(st, 4, j->n_total);
    store_bind_text(st, 5, j->progress ? j->progress : "");
    store_bind_text(st, 6, j->error ? j->error : "");
}

int store_job_add(struct store *s, const struct store_job *j, int64_t *id, struct err *e) {
    sqlite3_stmt *st;
    int code = store_begin(s, Q_JOB_ADD, &st, e);
    if (code) return code;
    bind_progress(st, j);
    store_bind_text(st, 7, j->kind);
    store_bind_text(st, 8, j->name);
    sqlite3_bind_int64(st, 9, j->started_ms ? j->started_ms : store_now_ms());
    char owner[PROCESS_MAX_NAME];
    process_self(owner);
    store_bind_text(st, 10, owner);
    int rc = sqlite3_step(st);
    if (rc == SQLITE_DONE) *id = sqlite3_last_insert_rowid(s->db);
    return store_end(s, st, rc, e);
}

int store_job_update(struct store *s, const struct store_job *j, struct err *e) {
    sqlite3_stmt *st;
    int code = store_begin(s, Q_JOB_UPDATE, &st, e);
    if (code) return code;
    bind_progress(st, j);
    sqlite3_bind_int64(st, 7, j->id);
    return store_end(s, st, sqlite3_step(st), e);
}

static const char *text_of(sqlite3_stmt *st, int i) {
    const char *t = (const char *)sqlite3_column_text(st, i);
    return t ? t : "";
}

int store_job_list(struct store *s, const char *kind, int32_t most,
                   int (*each)(void *ud, const struct store_job *j), void *ud, struct err *e) {
    sqlite3_stmt *st;
    int code = store_begin(s, Q_JOB_LIST, &st, e), rc, stop = 0;
    if (code) return code;
    store_bind_text(st, 1, kind);
    sqlite3_bind_int(st, 2, most);
    while ((rc = sqlite3_step(st)) == SQLITE_ROW && !stop) {
        const struct store_job j = {.id = sqlite3_column_int64(st, 0),
                                    .kind = text_of(st, 1),
                                    .name = text_of(st, 2),
                                    .state = text_of(st, 3),
                                    .started_ms = sqlite3_column_int64(st, 4),
                                    .ended_ms = sqlite3_column_int64(st, 5),
                                    .n_done = sqlite3_column_int64(st, 6),
                                    .n_total = sqlite3_column_int64(st, 7),
                                    .progress = text_of(st, 8),
                                    .error = text_of(st, 9)};
        stop = each(ud, &j);
    }
    code = store_end(s, st, rc, e);
    return code ? code : stop;
}

/* The next running job after *id whose process is gone; *id 0: there is none. */
static int next_orphan(struct store *s, int64_t *id, struct err *e) {
    sqlite3_stmt *st;
    int code = store_begin(s, Q_JOB_RUNNING, &st, e), rc;
    if (code) return code;
    sqlite3_bind_int64(st, 1, *id);
    *id = 0;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW && !*id)
        if (!process_is_alive(text_of(st, 1))) *id = sqlite3_column_int64(st, 0);
    return store_end(s, st, rc, e);
}

int store_job_interrupt(struct store *s, struct err *e) {
    int64_t id = 0;
    int code = next_orphan(s, &id, e);
    while (!code && id) {
        sqlite3_stmt *st;
        code = store_begin(s, Q_JOB_INTERRUPT, &st, e);
        if (code) break;
        sqlite3_bind_int64(st, 1, id);
        code = store_end(s, st, sqlite3_step(st), e);
        if (!code) code = next_orphan(s, &id, e);
    }
    return code;
}

int64_t store_job_forget(struct store *s, int64_t before_ms, struct err *e) {
    return store_forget(s, Q_JOB_FORGET, before_ms, e);
}

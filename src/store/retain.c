#include "store/retain.h"

#include <stdio.h>

#include "store/decision.h"
#include "store/job.h"
#include "store/score.h"
#include "store/store_impl.h"

enum { DAY_MS = 86400000 };

static const struct {
    int64_t (*forget)(struct store *s, int64_t before_ms, struct err *e);
    /* bytes: SQL for the size of one row; the size of fixed columns is approximate */
    const char *table, *bytes;
} kinds[] = {
    {store_requests_forget, "requests",
     "160 + coalesce(length(session), 0) + coalesce(length(request), 0) +"
     " coalesce(length(response), 0)"},
    {store_decision_forget, "odo_decisions", "120 + length(record)"},
    {store_score_forget, "quality",
     "160 + coalesce(length(question), 0) + coalesce(length(answer), 0) +"
     " coalesce(length(comment), 0)"},
    {store_job_forget, "jobs",
     "120 + length(kind) + length(name) + length(progress) + length(error)"},
};

/* Deletes all but the newest rows that together take at most most_bytes. */
static int64_t cap(struct store *s, const char *table, const char *bytes, int64_t most_bytes,
                   struct err *e) {
    char sql[1024];
    snprintf(sql, sizeof sql,
             "DELETE FROM %s WHERE id <= (SELECT max(id) FROM (SELECT id,"
             " sum(%s) OVER (ORDER BY id DESC) AS n FROM %s) AS sums WHERE n > %lld)",
             table, bytes, table, (long long)most_bytes);
    pthread_mutex_lock(&s->lock);
    int rc = sql_exec(s, sql);
    int64_t n = rc == SQL_OK ? sql_changes(s) : store_fail(s, rc, "delete old records", e);
    pthread_mutex_unlock(&s->lock);
    return n;
}

int64_t store_retain(struct store *s, int32_t days, int64_t most_bytes, struct err *e) {
    int64_t sum = 0, n = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && n >= 0; i++) {
        if (days > 0) n = kinds[i].forget(s, store_now_ms() - (int64_t)days * DAY_MS, e);
        if (n >= 0) sum += n;
        if (n >= 0 && most_bytes > 0) n = cap(s, kinds[i].table, kinds[i].bytes, most_bytes, e);
        if (n >= 0 && most_bytes > 0) sum += n;
    }
    return n < 0 ? n : sum;
}

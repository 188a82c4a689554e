/* job_queries_impl.h: the statements of the table of jobs (job.h); part of queries_impl.h. */
#ifndef CHIMERE_STORE_SQL_JOB_QUERIES_IMPL_H
#define CHIMERE_STORE_SQL_JOB_QUERIES_IMPL_H

/* What becomes of a running job whose process has ended. One with a body is queued again, unless it has ended the processes
 * that ran it. */
#define STORE_JOB_LOST                                                                             \
    "state = CASE WHEN body IS NULL THEN 'interrupted' WHEN n_try < 3 THEN 'queued'"               \
    " ELSE 'failed' END, owner = CASE WHEN body IS NULL THEN owner ELSE '' END,"                   \
    " error = CASE WHEN body IS NULL OR n_try < 3 THEN error ELSE"                                 \
    " 'each process that ran it has ended' END,"                                                   \
    " person = CASE WHEN n_try < 3 THEN person ELSE '' END,"                                       \
    " body = CASE WHEN n_try < 3 THEN body END"

/* clang-format off */
#define STORE_JOB_QUERIES(X)                                                                       \
    X(JOB_ADD,                                                                                     \
      "INSERT INTO jobs(state, ended_ms, n_done, n_total, progress, error, kind, name, started_ms," \
      " owner, priority, body, person, n_try)"                                                     \
      " VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,1) RETURNING id")                        \
    X(JOB_UPDATE,                                                                                  \
      "UPDATE jobs SET state = ?1, ended_ms = ?2, n_done = ?3, n_total = ?4, progress = ?5,"       \
      " error = ?6, body = CASE ?1 WHEN 'running' THEN body END,"                                  \
      " person = CASE ?1 WHEN 'running' THEN person ELSE '' END WHERE id = ?7 AND owner = ?8")     \
    X(JOB_SHARE,                                                                                   \
      "INSERT INTO jobs(state, ended_ms, n_done, n_total, progress, error, kind, name, started_ms," \
      " priority, body, person) SELECT 'queued', 0, 0, 0, '', '', CAST(?1 AS TEXT),"               \
      " CAST(?2 AS TEXT), CAST(?3 AS BIGINT), CAST(?4 AS BIGINT), CAST(?5 AS TEXT),"               \
      " CAST(?6 AS TEXT) WHERE (SELECT count(*) FROM jobs WHERE state = 'queued' AND kind = ?1)"   \
      " < ?7 RETURNING id")                                                                        \
    X(JOB_WAITS, "SELECT 1 FROM jobs WHERE state = 'queued' AND kind = ?1 LIMIT 1")                 \
    X(JOB_TAKE,                                                                                    \
      "UPDATE jobs SET state = 'running', owner = ?1, started_ms = ?2, n_try = n_try + 1"          \
      " WHERE id = (SELECT id FROM jobs WHERE state = 'queued' AND kind = ?3"                      \
      " ORDER BY priority DESC, id LIMIT 1) RETURNING id, name, body")                             \
    X(JOB_RETURN,                                                                                  \
      "UPDATE jobs SET state = 'queued', owner = '', n_try = n_try - 1"                            \
      " WHERE id = ?1 AND owner = ?2 AND state = 'running'")                                       \
    X(JOB_LIST,                                                                                    \
      "SELECT id, kind, name, state, started_ms, ended_ms, n_done, n_total, progress, error"       \
      " FROM jobs WHERE ?1 IS NULL OR kind = ?1 ORDER BY id DESC LIMIT ?2")                        \
    X(JOB_RUNNING, "SELECT id, owner FROM jobs WHERE state = 'running' AND id > ?1 ORDER BY id")   \
    X(JOB_INTERRUPT,                                                                               \
      "UPDATE jobs SET " STORE_JOB_LOST " WHERE state = 'running' AND id = ?1")                    \
    X(JOB_FORGET, "DELETE FROM jobs WHERE started_ms < ?1 AND state <> 'running'")
/* clang-format on */

#endif

/* queries_impl.h: the statements that run more than once; included by store_impl.h. */
#ifndef CHIMERE_STORE_SQL_QUERIES_IMPL_H
#define CHIMERE_STORE_SQL_QUERIES_IMPL_H

#include "store/sql/job_queries_impl.h"

#define STORE_KEY_COLUMNS                                                                          \
    "SELECT id, name, hash, created_ms, expires_ms, revoked, max_active, per_minute,"              \
    " tokens_per_day, role FROM api_keys"

/* The sums are cast to whole numbers, because in PostgreSQL a sum has another type than its terms. */
#define STORE_USAGE_COLUMNS                                                                        \
    "SELECT count(*), CAST(coalesce(sum(CASE WHEN status >= 400 THEN 1 ELSE 0 END), 0) AS "        \
    "BIGINT),"                                                                                     \
    " CAST(coalesce(sum(n_prompt), 0) AS BIGINT), CAST(coalesce(sum(n_cached), 0) AS BIGINT),"     \
    " CAST(coalesce(sum(n_generated), 0) AS BIGINT)"

/* Whether a collection is in a scope (doc_scope.h): a collection; shared is 1: all shared ones; all from the scope to
 * `before`. Private names begin with \001. */
#define STORE_DOC_IN(name, scope, shared, before)                                                  \
    "(" scope " IS NULL OR " name " = " scope " OR (" name " >= " scope " AND " name " < " before  \
    ") OR (" shared " = 1 AND (" name " < '\001' OR " name " >= '\002')))"

#define STORE_CHUNK_COLUMNS                                                                        \
    "SELECT c.id, c.from_byte, c.to_byte, c.page, c.line, doc_fts.heading, doc_fts.body, f.path,"  \
    " f.title, f.collection"

#define STORE_EXAMPLE_COLUMNS                                                                      \
    "SELECT id, domain, question, answer, source, score, at_ms, embedder FROM examples"

#define STORE_QUALITY_COLUMNS(t)                                                                   \
    t ".id, " t ".at_ms, " t ".parent, " t ".name, " t ".route, " t ".model, " t ".origin, " t     \
      ".question, " t ".answer, " t ".score, " t ".feedback, " t ".comment, " t ".judge, " t       \
      ".owner"

/* Every statement that runs more than once: name, text. It is prepared at its first use. */
/* clang-format off */
#define STORE_QUERIES(X)                                                                           \
    X(REQUEST_ADD,                                                                                 \
      "INSERT INTO requests(at_ms, key_id, api, model, session, finish, status, n_prompt,"         \
      " n_cached, n_generated, n_reasoning, queue_ms, prefill_ms, decode_ms, request, response)"   \
      " VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16) RETURNING id")              \
    X(REQUEST_LIST,                                                                                \
      "SELECT id, at_ms, key_id, api, model, finish, status, n_prompt, n_cached, n_generated,"     \
      " n_reasoning, queue_ms, prefill_ms, decode_ms FROM requests"                                \
      " WHERE ?1 = 0 OR id < ?1 ORDER BY id DESC LIMIT ?2")                                        \
    X(USAGE_ALL,                                                                                   \
      STORE_USAGE_COLUMNS " FROM requests WHERE at_ms >= ?1")                                       \
    X(USAGE_KEY,                                                                                   \
      STORE_USAGE_COLUMNS " FROM requests WHERE key_id = ?2 AND at_ms >= ?1")                       \
    X(REQUESTS_FORGET, "DELETE FROM requests WHERE at_ms < ?1")                                    \
    X(KEY_ADD,                                                                                     \
      "INSERT INTO api_keys(name, hash, created_ms, expires_ms, max_active, per_minute,"           \
      " tokens_per_day, role) VALUES(?1,?2,?3,?4,?5,?6,?7,?8) ON CONFLICT(name) DO UPDATE SET"     \
      " hash = ?2, created_ms = ?3, expires_ms = ?4, max_active = ?5, per_minute = ?6,"            \
      " tokens_per_day = ?7, role = ?8, revoked = 0 WHERE api_keys.revoked = 1 RETURNING id")               \
    X(KEY_FIND, STORE_KEY_COLUMNS " WHERE hash = ?1 AND revoked = 0"                               \
      " AND (expires_ms = 0 OR expires_ms > ?2)")                                                  \
    X(KEY_LIST, STORE_KEY_COLUMNS " ORDER BY name")                                                \
    X(KEY_REVOKE, "UPDATE api_keys SET revoked = 1 WHERE name = ?1 AND revoked = 0")               \
    X(KEY_LIMIT,                                                                                   \
      "UPDATE api_keys SET expires_ms = ?2, max_active = ?3, per_minute = ?4, tokens_per_day = ?5," \
      " role = ?6 WHERE name = ?1 AND revoked = 0")                                                          \
    X(STATE_ADD,                                                                                   \
      "INSERT INTO states(layout, session, tokens, n_bytes, used_ms, file, scope, owner)" \
      " VALUES(?1,?2,?3,?4,?5,?6,?7,?8) ON CONFLICT(file) DO UPDATE SET layout = ?1, session = ?2," \
      " tokens = ?3, n_bytes = ?4, used_ms = ?5, scope = ?7, owner = ?8 RETURNING id")                                                                \
    X(STATE_LIST,                                                                                  \
      "SELECT id, layout, session, tokens, n_bytes, used_ms, file, scope, owner FROM states"       \
      " WHERE layout = ?1 ORDER BY used_ms, id")                                                   \
    X(STATE_USED, "UPDATE states SET used_ms = ?2 WHERE id = ?1")                                  \
    X(STATE_REMOVE, "DELETE FROM states WHERE id = ?1")                                            \
    X(STATE_BYTES, "SELECT CAST(coalesce(sum(n_bytes), 0) AS BIGINT) FROM states WHERE ?1 IN (0, owner)")          \
    X(STATE_OLDEST,                                                                                \
      "SELECT id, file FROM states WHERE ?1 IN (0, owner) ORDER BY used_ms, id LIMIT 1")           \
    X(STATE_HAS_FILE, "SELECT 1 FROM states WHERE file = ?1")                                      \
    X(DOC_LIST,                                                                                    \
      "SELECT id, collection, path, title, n_bytes, mtime_ns, n_chunk, embedder FROM doc_files"              \
      " WHERE " STORE_DOC_IN("collection", "?1", "?4", "?5")                                       \
      " AND (?2 IS NULL OR (collection, path) > (?2, ?3)) ORDER BY collection, path")              \
    X(DOC_MATCH, STORE_CHUNK_COLUMNS                                                               \
      ", -bm25(doc_fts, 4.0, 2.0, 1.0) AS score FROM doc_fts"                                      \
      " JOIN doc_chunks c ON c.id = doc_fts.rowid JOIN doc_files f ON f.id = c.file"               \
      " WHERE doc_fts MATCH ?1 AND " STORE_DOC_IN("f.collection", "?2", "?4", "?5")                \
      " ORDER BY score DESC, c.id LIMIT ?3")                                                       \
    X(DOC_CHUNK, STORE_CHUNK_COLUMNS                                                               \
      ", CAST(0 AS DOUBLE PRECISION) FROM doc_fts JOIN doc_chunks c ON c.id = doc_fts.rowid"                               \
      " JOIN doc_files f ON f.id = c.file WHERE doc_fts.rowid = ?1")                               \
    X(DOC_COUNT,                                                                                   \
      "SELECT count(*) FROM (SELECT 1 FROM doc_fts WHERE doc_fts MATCH ?1 LIMIT ?2) AS found")              \
    X(DECISION_ADD,                                                                                \
      "INSERT INTO odo_decisions(at_ms, route, how, pipeline, mode, ms, failed, record)"           \
      " VALUES(?1,?2,?3,?4,?5,?6,?7,?8)")                                                          \
    X(DECISION_LIST,                                                                               \
      "SELECT id, at_ms, route, how, pipeline, mode, ms, failed, record FROM odo_decisions"        \
      " ORDER BY id DESC LIMIT ?1")                                                                \
    X(DECISION_FORGET, "DELETE FROM odo_decisions WHERE at_ms < ?1")                               \
    X(SCORE_LAST,                                                                                  \
      "SELECT CASE WHEN feedback > 0 THEN feedback ELSE 1 + 4 * score END FROM quality"            \
      " WHERE route = ?1 AND parent = 0 AND (feedback > 0 OR (?3 = 1 AND score IS NOT NULL))"      \
      " ORDER BY at_ms DESC, id DESC LIMIT ?2")                                                    \
    X(SCORE_FORGET, "DELETE FROM quality WHERE at_ms < ?1")                                        \
    X(QUALITY_ADD,                                                                                 \
      "INSERT INTO quality(at_ms, parent, name, route, model, origin, question, answer, score,"    \
      " judge, owner, night) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12)"                       \
      " ON CONFLICT(name) DO NOTHING RETURNING id")                                                \
    X(QUALITY_JUDGE, "UPDATE quality SET score = ?2, judge = ?3 WHERE id = ?1")                    \
    X(QUALITY_FEEDBACK, "UPDATE quality SET feedback = ?2, comment = ?3 WHERE name = ?1")          \
    X(QUALITY_CORRECT,                                                                             \
      "INSERT INTO quality(at_ms, parent, route, model, origin, question, answer, judge, owner,"   \
      " feedback) SELECT CAST(?2 AS BIGINT), id, route, model, 'correction', question,"            \
      " CAST(?3 AS TEXT), '', owner, 5 FROM quality WHERE name = ?1 AND question IS NOT NULL")     \
    X(QUALITY_VOTES,                                                                               \
      "SELECT count(*), CAST(coalesce(sum(CASE WHEN feedback IN (1, 2) OR corrected THEN 1 ELSE 0"  \
      " END), 0) AS BIGINT) FROM (SELECT q.feedback AS feedback, EXISTS(SELECT 1 FROM quality c"   \
      " WHERE c.parent = q.id AND c.origin = 'correction') AS corrected FROM quality q"            \
      " WHERE q.at_ms >= ?2 AND q.night = ?1 AND q.origin = 'answer') AS answers"                 \
      " WHERE feedback > 0 OR corrected")                                                          \
    X(QUALITY_LIST, "SELECT " STORE_QUALITY_COLUMNS("q") " FROM quality q WHERE q.at_ms >= ?1"     \
      " ORDER BY q.id")                                                                            \
    X(QUALITY_PAIRS, "SELECT " STORE_QUALITY_COLUMNS("a") ", " STORE_QUALITY_COLUMNS("b")          \
      " FROM quality a JOIN quality b ON b.parent = a.id"                                          \
      " WHERE a.at_ms >= ?1 AND a.answer IS NOT NULL AND b.answer IS NOT NULL ORDER BY b.id")      \
    STORE_JOB_QUERIES(X)                                                                           \
    X(ANSWER_ADD,                                                                                  \
      "INSERT INTO answers(owner, name, at_ms, n_bytes, input, response)"                          \
      " VALUES(?1,?2,?3,?4,?5,?6)")                                                                \
    X(ANSWER_CROP,                                                                                 \
      "DELETE FROM answers WHERE at_ms < ?3 OR (owner = ?1 AND id IN (SELECT id FROM (SELECT id,"  \
      " sum(n_bytes) OVER (ORDER BY id DESC) AS total FROM answers WHERE owner = ?1) AS a"         \
      " WHERE total > ?2))")                                                                       \
    X(ANSWER_FIND,                                                                                 \
      "SELECT at_ms, input, response FROM answers WHERE owner = ?1 AND name = ?2 AND at_ms >= ?3") \
    X(ANSWER_DROP, "DELETE FROM answers WHERE owner = ?1 AND name = ?2")                           \
    X(DOC_USAGE,                                                                                   \
      "SELECT CAST(count(*) + coalesce(sum(n_chunk), 0) AS BIGINT) FROM doc_files"                 \
      " WHERE collection >= ?1 AND collection < ?2")                                               \
    X(DOC_VERSION, "SELECT n FROM doc_version")                                                    \
    X(DOC_ROOT_LIST,                                                                               \
      "SELECT collection, path, is_excluded FROM doc_roots WHERE collection = ?1 ORDER BY path")   \
    X(DOC_ROOT_PUT,                                                                                \
      "INSERT INTO doc_roots(collection, path, is_excluded) VALUES(?1,?2,?3)"                      \
      " ON CONFLICT(collection, path) DO UPDATE SET is_excluded = ?3")                             \
    X(DOC_ROOT_DROP,                                                                               \
      "DELETE FROM doc_roots WHERE collection = ?1 AND (path = ?2 OR"                              \
      " substr(path, 1, length(CAST(?2 AS TEXT)) + 1) = CAST(?2 AS TEXT) || '/')")                 \
    X(PERSONA_LIST, "SELECT id, name, text FROM personas WHERE owner = ?1 ORDER BY name")          \
    X(PERSONA_REMOVE, "DELETE FROM personas WHERE owner = ?1 AND id = ?2")                         \
    X(DOC_PASSAGES, "SELECT coalesce(max(id), 0) FROM doc_chunks")                                 \
    X(EXAMPLE_LIST, STORE_EXAMPLE_COLUMNS " WHERE ?1 IS NULL OR domain = ?1 ORDER BY id")          \
    X(EXAMPLE_ONE, STORE_EXAMPLE_COLUMNS " WHERE id = ?1")                                         \
    X(EXAMPLE_CHANGE,                                                                              \
      "SELECT n_change FROM example_domains WHERE domain = ?1 AND embedder = ?2")                  \
    X(EXAMPLE_COUNT, "SELECT count(*) FROM examples WHERE domain = ?1 AND embedder = ?2")          \
    X(EXAMPLE_IDS,                                                                                 \
      "SELECT id FROM examples WHERE domain = ?1 AND embedder = ?2 AND id > ?3 ORDER BY id")       \
    X(EXAMPLE_VECTORS,                                                                             \
      "SELECT id, vec FROM examples WHERE domain = ?1 AND embedder = ?2 AND id > ?3"               \
      " ORDER BY id")                                                                              \
    X(EXAMPLE_PUT_INDEX,                                                                           \
      "UPDATE example_domains SET centres = ?3 WHERE domain = ?1 AND embedder = ?2")               \
    X(EXAMPLE_GET_INDEX,                                                                           \
      "SELECT centres FROM example_domains WHERE domain = ?1 AND embedder = ?2")                   \
    X(MEMORY_LIST,                                                                                 \
      "SELECT id, at_ms, kind, text, pinned, tainted, CAST(0 AS DOUBLE PRECISION), replaced_by"    \
      " FROM odo_memory WHERE owner = ?1 AND (pinned = 1 OR ?2 = 0) AND (replaced_by = 0 OR ?4 = 1)" \
      " ORDER BY pinned DESC, at_ms DESC, id DESC LIMIT ?3")                                       \
    X(MEMORY_MATCH,                                                                                \
      "SELECT m.id, m.at_ms, m.kind, m.text, m.pinned, m.tainted, -bm25(odo_memory_fts) AS score," \
      " m.replaced_by FROM odo_memory_fts JOIN odo_memory m ON m.id = odo_memory_fts.rowid"        \
      " WHERE odo_memory_fts MATCH ?2 AND m.owner = ?1 AND m.pinned = 0 AND m.replaced_by = 0"                           \
      " ORDER BY score DESC, m.at_ms DESC LIMIT ?3")                                               \
    X(DOC_VECTORS,                                                                                 \
      "SELECT c.id, c.vec FROM doc_chunks c JOIN doc_files f ON f.id = c.file"                     \
      " WHERE c.vec IS NOT NULL AND f.embedder = ?2 AND "                                          \
      STORE_DOC_IN("f.collection", "?1", "?3", "?4")                                               \
      " ORDER BY c.id")
/* clang-format on */

#endif

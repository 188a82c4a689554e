/* schema.c: the tables of chimere.db, as a list of migrations. */
#include "base/mem.h"
#include "store/store_impl.h"

const struct store_migration store_migrations[] = {
    {"requests, keys and states",
     "CREATE TABLE api_keys("
     "  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, hash BLOB NOT NULL UNIQUE,"
     "  created_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL, revoked INTEGER NOT NULL DEFAULT "
     "0,"
     "  max_active INTEGER NOT NULL, per_minute INTEGER NOT NULL, tokens_per_day INTEGER NOT NULL,"
     "  CHECK(length(hash) = 32)) STRICT;"
     "CREATE TABLE requests("
     "  id INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, key_id INTEGER NOT NULL,"
     "  api TEXT NOT NULL, model TEXT NOT NULL, session TEXT, finish TEXT NOT NULL,"
     "  status INTEGER NOT NULL, n_prompt INTEGER NOT NULL, n_cached INTEGER NOT NULL,"
     "  n_generated INTEGER NOT NULL, n_reasoning INTEGER NOT NULL, queue_ms REAL NOT NULL,"
     "  prefill_ms REAL NOT NULL, decode_ms REAL NOT NULL, request TEXT, response TEXT) STRICT;"
     "CREATE INDEX requests_at ON requests(at_ms);"
     "CREATE INDEX requests_key ON requests(key_id, at_ms);"
     "CREATE TABLE states("
     "  id INTEGER PRIMARY KEY, layout INTEGER NOT NULL, session INTEGER NOT NULL,"
     "  tokens BLOB NOT NULL, n_bytes INTEGER NOT NULL, used_ms INTEGER NOT NULL,"
     "  file TEXT NOT NULL UNIQUE) STRICT;"
     "CREATE INDEX states_used ON states(used_ms);"
     "CREATE INDEX states_layout ON states(layout);"},
    {"documents",
     "CREATE TABLE doc_files("
     "  id INTEGER PRIMARY KEY, collection TEXT NOT NULL, path TEXT NOT NULL, title TEXT NOT NULL,"
     "  n_bytes INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, n_chunk INTEGER NOT NULL,"
     "  UNIQUE(collection, path)) STRICT;"
     "CREATE TABLE doc_chunks("
     "  id INTEGER PRIMARY KEY, file INTEGER NOT NULL, from_byte INTEGER NOT NULL,"
     "  to_byte INTEGER NOT NULL, page INTEGER NOT NULL, line INTEGER NOT NULL, vec BLOB) STRICT;"
     "CREATE INDEX doc_chunks_file ON doc_chunks(file);"
     "CREATE VIRTUAL TABLE doc_fts USING fts5(title, heading, body,"
     "  tokenize = 'porter unicode61 remove_diacritics 2');"},
    {"decisions of the orchestrator",
     "CREATE TABLE odo_decisions("
     "  id INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, route TEXT NOT NULL, how TEXT NOT NULL,"
     "  pipeline TEXT NOT NULL, mode TEXT NOT NULL, ms REAL NOT NULL, failed INTEGER NOT NULL,"
     "  record TEXT NOT NULL) STRICT;"
     "CREATE INDEX odo_decisions_at ON odo_decisions(at_ms);"},
    {"whose vectors documents have, and how often they changed",
     "ALTER TABLE doc_files ADD COLUMN embedder INTEGER NOT NULL DEFAULT 0;"
     "CREATE TABLE doc_version(n INTEGER NOT NULL) STRICT;"
     "INSERT INTO doc_version VALUES(1);"},
    {"validated examples",
     "CREATE TABLE examples("
     "  id INTEGER PRIMARY KEY AUTOINCREMENT, domain TEXT NOT NULL, question TEXT NOT NULL,"
     "  answer TEXT NOT NULL, source TEXT, score REAL NOT NULL, at_ms INTEGER NOT NULL,"
     "  embedder INTEGER NOT NULL, vec BLOB NOT NULL, UNIQUE(domain, question)) STRICT;"
     "CREATE INDEX examples_embedder ON examples(domain, embedder);"
     "CREATE TABLE example_domains("
     "  domain TEXT NOT NULL, embedder INTEGER NOT NULL, n_change INTEGER NOT NULL, centres BLOB,"
     "  PRIMARY KEY(domain, embedder)) STRICT;"},
    {"scores of answers",
     "CREATE TABLE odo_scores("
     "  id INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, route TEXT NOT NULL, judge TEXT NOT NULL,"
     "  score REAL NOT NULL) STRICT;"
     "CREATE INDEX odo_scores_route ON odo_scores(route, at_ms);"},
    {"what each user wants remembered",
     "CREATE TABLE odo_memory("
     "  id INTEGER PRIMARY KEY AUTOINCREMENT, owner TEXT NOT NULL, at_ms INTEGER NOT NULL,"
     "  kind INTEGER NOT NULL, text TEXT NOT NULL, pinned INTEGER NOT NULL,"
     "  tainted INTEGER NOT NULL, UNIQUE(owner, text)) STRICT;"
     "CREATE INDEX odo_memory_owner ON odo_memory(owner, pinned, at_ms);"
     "CREATE VIRTUAL TABLE odo_memory_fts USING fts5(text,"
     "  tokenize = 'porter unicode61 remove_diacritics 2');"},
    {"answers and what they were worth",
     "CREATE TABLE quality("
     "  id INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, parent INTEGER NOT NULL, name TEXT UNIQUE,"
     "  route TEXT NOT NULL, model TEXT NOT NULL, origin TEXT NOT NULL, question TEXT, answer TEXT,"
     "  score REAL, judge TEXT NOT NULL, feedback INTEGER NOT NULL DEFAULT 0, comment TEXT) STRICT;"
     "CREATE INDEX quality_route ON quality(route, at_ms);"
     "CREATE INDEX quality_parent ON quality(parent);"
     "INSERT INTO quality(at_ms, parent, route, model, origin, score, judge)"
     "  SELECT at_ms, 0, route, '', 'score', (score - 1) / 4.0, judge FROM odo_scores ORDER BY id;"
     "DROP TABLE odo_scores;"},
    {"roles of keys, and whose each state and memory is",
     "ALTER TABLE api_keys ADD COLUMN role INTEGER NOT NULL DEFAULT 0;"
     "ALTER TABLE states ADD COLUMN scope INTEGER NOT NULL DEFAULT 0;"
     "ALTER TABLE states ADD COLUMN owner INTEGER NOT NULL DEFAULT 0;"
     "CREATE INDEX states_owner ON states(owner, used_ms);"
     /* memories used to be stored under a key's name, which can be assigned again */
     "UPDATE OR IGNORE odo_memory SET owner = (SELECT 'key-' || lower(hex(substr(k.hash, 1, 8)))"
     "  || substr(odo_memory.owner, length(k.name) + 1) FROM api_keys k WHERE k.revoked = 0"
     "  AND (odo_memory.owner = k.name OR substr(odo_memory.owner, 1, length(k.name) + 1)"
     "  = k.name || char(9))) WHERE EXISTS (SELECT 1 FROM api_keys k WHERE k.revoked = 0"
     "  AND (odo_memory.owner = k.name OR substr(odo_memory.owner, 1, length(k.name) + 1)"
     "  = k.name || char(9)));"},
    {"the history of background jobs",
     "CREATE TABLE jobs("
     "  id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, name TEXT NOT NULL,"
     "  state TEXT NOT NULL, started_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL,"
     "  n_done INTEGER NOT NULL, n_total INTEGER NOT NULL, progress TEXT NOT NULL,"
     "  error TEXT NOT NULL) STRICT;"},
    {"the process that runs a job", "ALTER TABLE jobs ADD COLUMN owner TEXT NOT NULL DEFAULT '';"},
    {"conversations",
     "CREATE TABLE conversations("
     "  id INTEGER PRIMARY KEY AUTOINCREMENT, owner TEXT NOT NULL, name TEXT NOT NULL UNIQUE,"
     "  title TEXT NOT NULL, project TEXT NOT NULL, metadata TEXT NOT NULL,"
     "  settings TEXT NOT NULL, pinned INTEGER NOT NULL, created_ms INTEGER NOT NULL,"
     "  updated_ms INTEGER NOT NULL, version INTEGER NOT NULL, n_item INTEGER NOT NULL,"
     "  n_bytes INTEGER NOT NULL) STRICT;"
     "CREATE INDEX conversations_owner ON conversations(owner, pinned, updated_ms, id);"
     "CREATE TABLE conversation_items("
     "  id INTEGER PRIMARY KEY AUTOINCREMENT, conversation INTEGER NOT NULL, name TEXT NOT NULL,"
     "  parent INTEGER NOT NULL, at_ms INTEGER NOT NULL, n_bytes INTEGER NOT NULL,"
     "  body TEXT NOT NULL, UNIQUE(conversation, name), CHECK(parent < id)) STRICT;"
     "CREATE INDEX conversation_items_at ON conversation_items(conversation, id);"
     "CREATE INDEX conversation_items_parent ON conversation_items(parent);"
     /* owner "KEY": all users of the key; "KEY<tab>USER" and "KEY<tab>": one user */
     "CREATE TABLE conversation_usage("
     "  owner TEXT PRIMARY KEY, n_bytes INTEGER NOT NULL, n INTEGER NOT NULL) STRICT;"
     /* rowid: the id of an item, or the negative id of a conversation for its title */
     "CREATE VIRTUAL TABLE conversation_fts USING fts5(text,"
     "  tokenize = 'unicode61 remove_diacritics 2');"},
    {"answers that requests continue",
     "CREATE TABLE answers("
     "  id INTEGER PRIMARY KEY AUTOINCREMENT, owner TEXT NOT NULL, name TEXT NOT NULL,"
     "  at_ms INTEGER NOT NULL, n_bytes INTEGER NOT NULL, input TEXT NOT NULL,"
     "  response TEXT NOT NULL, UNIQUE(owner, name)) STRICT;"
     "CREATE INDEX answers_at ON answers(at_ms);"},
    {"whose each kept answer is", "ALTER TABLE quality ADD COLUMN owner TEXT NOT NULL DEFAULT '';"
                                  "CREATE INDEX quality_owner ON quality(owner);"},
    /* a fact that a newer one contradicts: the newer fact's id */
    {"facts that were replaced",
     "ALTER TABLE odo_memory ADD COLUMN replaced_by INTEGER NOT NULL DEFAULT 0;"
     "CREATE INDEX odo_memory_replaced ON odo_memory(replaced_by);"},
    {"the night whose files each answer used",
     "ALTER TABLE quality ADD COLUMN night INTEGER NOT NULL DEFAULT 0;"},
    {"the folders of documents",
     "CREATE TABLE doc_roots("
     "  collection TEXT NOT NULL, path TEXT NOT NULL, is_excluded INTEGER NOT NULL,"
     "  PRIMARY KEY(collection, path)) STRICT;"},
    {"personas of users",
     "CREATE TABLE personas("
     "  id INTEGER PRIMARY KEY AUTOINCREMENT, owner TEXT NOT NULL, name TEXT NOT NULL,"
     "  text TEXT NOT NULL, UNIQUE(owner, name)) STRICT;"},
    {"jobs that any process may do",
     "ALTER TABLE jobs ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;"
     "ALTER TABLE jobs ADD COLUMN body TEXT;"
     "ALTER TABLE jobs ADD COLUMN person TEXT NOT NULL DEFAULT '';"
     "ALTER TABLE jobs ADD COLUMN n_try INTEGER NOT NULL DEFAULT 0;"
     "CREATE INDEX jobs_queued ON jobs(kind, priority DESC, id) WHERE state = 'queued';"},
};
const int store_n_migration = (int)(sizeof store_migrations / sizeof *store_migrations);

static int exec(struct store *s, const char *sql, const char *doing, struct err *e) {
    int rc = sqlite3_exec(s->db, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK ? 0 : store_fail(s, rc, doing, e);
}

static int user_version(struct store *s, int64_t *v, struct err *e) {
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(s->db, "PRAGMA user_version", -1, &st, NULL);
    if (rc == SQLITE_OK) rc = sqlite3_step(st);
    *v = rc == SQLITE_ROW ? sqlite3_column_int64(st, 0) : -1;
    int code = rc == SQLITE_ROW ? 0 : store_fail(s, rc, "read its version", e);
    sqlite3_finalize(st);
    return code;
}

/* Applies row v of the table in a transaction, unless another process has already applied it. */
static int apply(struct store *s, const struct store_migration *table, int64_t v, struct err *e) {
    int rc = exec(s, "BEGIN IMMEDIATE", "begin a migration", e);
    if (rc) return rc;
    int64_t now = 0;
    rc = user_version(s, &now, e);
    if (!rc && now == v) {
        char pragma[64];
        sqlite3_snprintf(sizeof pragma, pragma, "PRAGMA user_version = %lld", (long long)v + 1);
        char doing[128];
        sqlite3_snprintf(sizeof doing, doing, "add its tables for %s", table[v].name);
        rc = exec(s, table[v].sql, doing, e);
        if (!rc) rc = exec(s, pragma, "set its version", e);
    }
    if (!rc) rc = exec(s, "COMMIT", "end a migration", e);
    if (rc) sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

int store_is_newer(const struct store *s, int n, int64_t version, struct err *e) {
    err_set(e, CHIMERE_EUNSUPPORTED, "%s: schema version: expected at most %d, got %lld", s->path,
            n, (long long)version);
    err_hint(e, "it was written by a newer chimere: update this one, or name another file");
    return CHIMERE_EUNSUPPORTED;
}

int store_migrate(struct store *s, const struct store_migration *table, int n, struct err *e) {
    int64_t v = 0;
    int rc = user_version(s, &v, e);
    while (!rc && v < n) {
        rc = apply(s, table, v, e);
        if (!rc) rc = user_version(s, &v, e);
    }
    return !rc && v > n ? store_is_newer(s, n, v, e) : rc;
}

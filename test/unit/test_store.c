/* test_store.c: the database: answers, migrations, kills, damage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/rng.h"
#include "scratch.h"
#include "store/copy.h"
#include "store/decision.h"
#include "store/doc.h"
#include "store/doc_scope.h"
#include "store/example.h"
#include "store/job.h"
#include "store/memory.h"
#include "store/person.h"
#include "store/persona.h"
#include "store/quality.h"
#include "store/retain.h"
#include "store/state.h"
#include "store/sql/sql_impl.h"
#include "store/answer.h"
#include "store/store_impl.h"

#include "await.h"

static const char *in_dir(const char *name) {
    static char path[2][128];
    static int turn;
    char *p = path[turn ^= 1];
    snprintf(p, sizeof path[0], "%s/%s", scratch, name);
    return p;
}

/* The server that the suite runs on; NULL: files. */
static const char *server_url(void) { return getenv("CHIMERE_TEST_STORE"); }

/* A fresh place for a store: a file, or a schema of the server that holds nothing. */
static const char *fresh(const char *name) {
    static char url[1024];
    char sql[256];
    struct store *s;
    struct err e = {0};
    if (!server_url()) return strcmp(name, "memory") ? in_dir(name) : ":memory:";
    if (store_open(&s, server_url(), &e)) fail_msg("%s", e.text);
    snprintf(sql, sizeof sql, "DROP SCHEMA IF EXISTS %s CASCADE; CREATE SCHEMA %s", name, name);
    assert_int_equal(sql_exec(s, sql), SQL_OK);
    store_close(s);
    snprintf(url, sizeof url, "%s&options=-csearch_path%%3D%s", server_url(), name);
    return url;
}

static struct store *open_ok(const char *path) {
    struct store *s;
    struct err e = {0};
    if (store_open(&s, path, &e)) fail_msg("%s", e.text);
    return s;
}

static void requests_are_counted_by_key_and_time(void **state) {
    (void)state;
    struct store *s = open_ok(fresh("memory"));
    struct err e = {0};
    int64_t first = 0, id;
    for (int i = 0; i < 100; i++) {
        struct store_request r = {.at_ms = 1000 + i,
                                  .key_id = i % 3,
                                  .api = "openai.chat",
                                  .model = "nano",
                                  .session = i % 2 ? "it's \"quoted\"" : NULL,
                                  .finish = "stop",
                                  .status = i % 10 ? 200 : 500,
                                  .n_prompt = 10,
                                  .n_cached = 4,
                                  .n_generated = i};
        assert_int_equal(store_request_add(s, &r, &id, &e), 0);
        if (!first) first = id;
        assert_int_equal(id, first + i);
    }
    struct store_usage u;
    assert_int_equal(store_usage_since(s, 0, 0, &u, &e), 0);
    assert_int_equal(u.n_request, 100);
    assert_int_equal(u.n_failed, 10);
    assert_int_equal(u.n_prompt, 1000);
    assert_int_equal(u.n_cached, 400);
    assert_int_equal(u.n_generated, 4950);
    assert_int_equal(store_usage_since(s, 2, 1050, &u, &e), 0); /* 50, 53, ... 98 */
    assert_int_equal(u.n_request, 17);
    assert_int_equal(u.n_generated, 17 * 74);
    assert_int_equal(store_requests_forget(s, 1050, &e), 50);
    assert_int_equal(store_usage_since(s, 0, 0, &u, &e), 0);
    assert_int_equal(u.n_request, 50);
    store_close(s);
}

static int count_key(void *ud, const struct store_key *k) {
    strncat(ud, k->name, 200);
    strncat(ud, k->revoked ? "- " : "+ ", 200);
    return 0;
}

static void keys_are_found_by_hash_until_revoked_or_expired(void **state) {
    (void)state;
    struct store *s = open_ok(fresh("memory"));
    struct err e = {0};
    struct store_key k = {.name = "editor", .per_minute = 60, .tokens_per_day = 1000000}, got;
    memset(k.hash, 7, 32);
    assert_int_equal(store_key_add(s, &k, &e), 0);
    struct store_key twin = k;
    assert_int_equal(store_key_add(s, &twin, &e), CHIMERE_EINVAL); /* name taken */
    struct store_key old = {.name = "old", .expires_ms = store_now_ms() - 1};
    memset(old.hash, 8, 32);
    assert_int_equal(store_key_add(s, &old, &e), 0);
    struct store_key empty = {.name = ""};
    assert_int_equal(store_key_add(s, &empty, &e), CHIMERE_EINVAL);

    assert_int_equal(store_key_find(s, k.hash, &got, &e), 0);
    assert_string_equal(got.name, "editor");
    assert_int_equal(got.id, k.id);
    assert_int_equal(got.per_minute, 60);
    assert_int_equal(got.tokens_per_day, 1000000);
    assert_memory_equal(got.hash, k.hash, 32);
    assert_int_equal(store_key_find(s, old.hash, &got, &e), CHIMERE_ENOENT);
    unsigned char foreign[32] = {1};
    assert_int_equal(store_key_find(s, foreign, &got, &e), CHIMERE_ENOENT);

    k.per_minute = 0;
    k.max_active = 3;
    assert_int_equal(store_key_limit(s, &k, &e), 0);
    assert_int_equal(store_key_find(s, k.hash, &got, &e), 0);
    assert_int_equal(got.per_minute, 0);
    assert_int_equal(got.max_active, 3);
    assert_int_equal(got.tokens_per_day, 1000000);

    assert_int_equal(store_key_revoke(s, "editor", &e), 0);
    assert_int_equal(store_key_revoke(s, "editor", &e), CHIMERE_ENOENT);
    assert_int_equal(store_key_limit(s, &k, &e), CHIMERE_ENOENT);
    assert_int_equal(store_key_revoke(s, "nobody", &e), CHIMERE_ENOENT);
    assert_int_equal(store_key_find(s, k.hash, &got, &e), CHIMERE_ENOENT);
    char names[256] = "";
    assert_int_equal(store_key_list(s, count_key, names, &e), 0);
    assert_string_equal(names, "editor- old+ ");
    struct store_key next = {.name = "editor"}; /* a removed name, another secret, the same row */
    memset(next.hash, 9, 32);
    assert_int_equal(store_key_add(s, &next, &e), 0);
    assert_int_equal(next.id, k.id);
    assert_int_equal(store_key_find(s, next.hash, &got, &e), 0);
    assert_int_equal(got.max_active, 0);
    assert_int_equal(store_key_find(s, k.hash, &got, &e), CHIMERE_ENOENT);
    store_close(s);
}

struct seen {
    int n;
    int64_t last_used;
    char files[64];
};

static int64_t rows_of(struct store *s, const char *table) {
    char sql[128];
    struct sql_stmt *st;
    snprintf(sql, sizeof sql, "SELECT count(*) FROM %s", table);
    assert_int_equal(sql_prepare(s, sql, &st), SQL_OK);
    assert_int_equal(sql_step(st), SQL_ROW);
    int64_t n = sql_int64(st, 0);
    sql_finalize(st);
    return n;
}

/* Records of use do not grow for ever: by age, then by size, the newest stay. */
static void old_records_are_deleted(void **state) {
    static const char *const tables[] = {"requests", "odo_decisions", "quality", "jobs"};
    const int64_t day = 86400000, now = store_now_ms();
    struct err e = {0};
    struct store *s;
    char large[1001];
    (void)state;
    memset(large, 'x', 1000);
    large[1000] = 0;
    s = open_ok(fresh("retain"));
    for (int i = 0; i < 100; i++) { /* one a day, the newest of today */
        int64_t at = now - (99 - i) * day - 1000;
        struct store_request r = {.at_ms = at, .api = "x", .request = large};
        struct store_decision d = {
            .at_ms = at, .route = "r", .how = "h", .pipeline = "p", .mode = "m", .record = large};
        struct store_quality q = {.at_ms = at,
                                  .route = "r",
                                  .model = "m",
                                  .origin = "o",
                                  .judge = "j",
                                  .question = large};
        struct store_job j = {.kind = "k",
                              .name = "n",
                              .state = "failed",
                              .started_ms = at,
                              .ended_ms = at,
                              .error = large};
        int64_t id;
        assert_int_equal(store_job_add(s, &j, &id, &e), 0);
        assert_int_equal(store_request_add(s, &r, NULL, &e), 0);
        assert_int_equal(store_decision_add(s, &d, &e), 0);
        assert_int_equal(store_quality_add(s, &q, NULL, &e), 0);
    }
    assert_int_equal(store_retain(s, 0, 0, &e), 0);
    for (int i = 0; i < 4; i++) assert_int_equal(rows_of(s, tables[i]), 100);
    assert_int_equal(store_retain(s, 30, 0, &e), 4 * 70);
    for (int i = 0; i < 4; i++) assert_int_equal(rows_of(s, tables[i]), 30);
    assert_true(store_retain(s, 30, 13000, &e) > 0);
    for (int i = 0; i < 4; i++) assert_in_range(rows_of(s, tables[i]), 8, 13);
    struct sql_stmt *st; /* what stays is the newest */
    sql_prepare(s, "SELECT max(at_ms) FROM requests", &st);
    assert_int_equal(sql_step(st), SQL_ROW);
    assert_true(sql_int64(st, 0) == now - 1000);
    sql_finalize(st);
    store_close(s);
}

/* Memories that were kept under a key's name belong to that key only, by its hash. */
static void memories_follow_their_key(void **state) {
    struct err e = {0};
    char path[4096];
    sqlite3 *db;
    struct store *s;
    (void)state;
    snprintf(path, sizeof path, "%s/names.db", scratch);
    assert_int_equal(store_open(&s, path, &e), 0);
    store_close(s);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    static const char before[] =
        "DROP TABLE personas; DROP TABLE doc_roots; ALTER TABLE quality DROP COLUMN night;"
        "DROP INDEX odo_memory_replaced; ALTER TABLE odo_memory DROP COLUMN replaced_by;"
        "DROP INDEX quality_owner; ALTER TABLE quality DROP COLUMN owner;"
        "DROP TABLE answers; DROP TABLE conversations; DROP TABLE conversation_items; DROP TABLE "
        "conversation_usage;"
        "DROP TABLE conversation_fts; DROP TABLE jobs; DROP INDEX states_owner; ALTER TABLE states "
        "DROP COLUMN owner;"
        "ALTER TABLE states DROP COLUMN scope; ALTER TABLE api_keys DROP COLUMN role;"
        "PRAGMA user_version = 8;"
        "INSERT INTO api_keys(name, hash, created_ms, expires_ms, max_active, per_minute,"
        " tokens_per_day) VALUES('al', x'0123456789abcdef"
        "000000000000000000000000000000000000000000000000', 1, 0, 0, 0, 0);"
        "INSERT INTO odo_memory(owner, at_ms, kind, text, pinned, tainted) VALUES"
        " ('al', 1, 0, 'a', 0, 0), ('al'||char(9)||'bo', 1, 0, 'b', 0, 0),"
        " ('alice', 1, 0, 'c', 0, 0), ('local', 1, 0, 'd', 0, 0);";
    if (sqlite3_exec(db, before, NULL, NULL, NULL)) fail_msg("%s", sqlite3_errmsg(db));
    sqlite3_close(db);
    assert_int_equal(store_open(&s, path, &e), 0);
    store_close(s);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    static const char *const want[] = {"key-0123456789abcdef", "key-0123456789abcdef\tbo", "alice",
                                       "local"};
    sqlite3_stmt *st;
    assert_int_equal(
        sqlite3_prepare_v2(db, "SELECT owner FROM odo_memory ORDER BY text", -1, &st, NULL), 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(sqlite3_step(st), SQLITE_ROW);
        assert_string_equal((const char *)sqlite3_column_text(st, 0), want[i]);
    }
    sqlite3_finalize(st);
    sqlite3_close(db);
}

static int see_state(void *ud, const struct store_state *st) {
    struct seen *s = ud;
    assert_true(st->used_ms >= s->last_used);
    s->last_used = st->used_ms;
    assert_int_equal(st->n_tok, 3);
    assert_int_equal(st->tokens[2], -3);
    strncat(s->files, st->file, 32);
    return ++s->n == 9 ? 1 : 0;
}

static void states_are_listed_by_use(void **state) {
    (void)state;
    struct store *s = open_ok(fresh("memory"));
    struct err e = {0};
    const int32_t tokens[] = {1, 2, -3};
    int64_t ids[4];
    for (int i = 0; i < 4; i++) {
        char file[16];
        snprintf(file, sizeof file, "f%d", i);
        struct store_state st = {.layout = i == 3 ? 5 : UINT64_MAX,
                                 .tokens = tokens,
                                 .n_tok = 3,
                                 .n_bytes = 100 + i,
                                 .used_ms = 10 - i,
                                 .file = file};
        assert_int_equal(store_state_add(s, &st, &e), 0);
        ids[i] = st.id;
    }
    struct seen seen = {0};
    assert_int_equal(store_state_list(s, UINT64_MAX, see_state, &seen, &e), 0);
    assert_string_equal(seen.files, "f2f1f0");
    assert_int_equal(store_state_used(s, ids[2], 99, &e), 0);
    seen = (struct seen){0};
    assert_int_equal(store_state_list(s, UINT64_MAX, see_state, &seen, &e), 0);
    assert_string_equal(seen.files, "f1f0f2");
    int64_t n_bytes, id;
    assert_int_equal(store_state_bytes(s, 0, &n_bytes, &e), 0);
    assert_int_equal(n_bytes, 406);
    char file[16];
    assert_int_equal(store_state_oldest(s, 0, &id, file, sizeof file, &e), 0);
    assert_string_equal(file, "f3");
    assert_int_equal(id, ids[3]);
    for (int i = 0; i < 4; i++) assert_int_equal(store_state_remove(s, ids[i], &e), 0);
    assert_int_equal(store_state_oldest(s, 0, &id, file, sizeof file, &e), CHIMERE_ENOENT);
    assert_false(store_state_has_file(s, "f1"));
    struct store_state bad = {.file = "../evil"};
    assert_int_equal(store_state_add(s, &bad, &e), CHIMERE_EINVAL);
    store_close(s);
}

/* ---- schema ---- */

/* What a later module would add: full text search, and a step that fails half way. */
static const struct store_migration later[] = {
    {"first", "CREATE TABLE a(x INTEGER)"},
    {"documents", "CREATE VIRTUAL TABLE docs USING fts5(title, body);"
                  "INSERT INTO docs VALUES('state', 'recurrent layers remember')"},
    {"broken", "CREATE TABLE b(x INTEGER); INSERT INTO b VALUES(1); SELECT nonsense FROM nowhere"},
};

static int64_t scalar(struct store *s, const char *sql) {
    sqlite3_stmt *st = NULL;
    int64_t v = -1;
    if (sqlite3_prepare_v2(s->db, sql, -1, &st, NULL) == SQLITE_OK &&
        sqlite3_step(st) == SQLITE_ROW)
        v = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return v;
}

static void migrations_apply_once_and_whole(void **state) {
    (void)state;
    struct err e = {0};
    struct store s = {.ops = &sql_sqlite_ops, .path = (char *)"memory"};
    assert_int_equal(sqlite3_open(":memory:", &s.db), SQLITE_OK);
    assert_int_equal(store_migrate(&s, later, 1, &e), 0);
    assert_int_equal(store_migrate(&s, later, 2, &e), 0);
    assert_int_equal(store_migrate(&s, later, 2, &e), 0);
    assert_int_equal(scalar(&s, "SELECT count(*) FROM docs WHERE docs MATCH 'recurrent'"), 1);
    assert_true(store_migrate(&s, later, 3, &e) < 0);
    assert_string_equal(e.text, "memory: cannot add its tables for broken: no such table: nowhere");
    assert_int_equal(scalar(&s, "PRAGMA user_version"), 2);
    assert_int_equal(scalar(&s, "SELECT count(*) FROM sqlite_schema WHERE name = 'b'"), 0);
    assert_int_equal(store_migrate(&s, later, 1, &e),
                     CHIMERE_EUNSUPPORTED); /* of a newer program */
    sqlite3_close(s.db);
}

static void put_file(const char *path, const void *data, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
}

static void foreign_and_damaged_files_are_refused(void **state) {
    (void)state;
    struct err e = {0};
    struct store *s;
    assert_int_equal(store_open(&s, in_dir("no/such/folder.db"), &e), CHIMERE_ENOENT);
    assert_true(store_open(&s, scratch, &e) < 0);

    char junk[8192];
    memset(junk, 'x', sizeof junk);
    put_file(in_dir("junk.db"), junk, sizeof junk);
    assert_int_equal(store_open(&s, in_dir("junk.db"), &e), CHIMERE_EFORMAT);

    sqlite3 *db;
    assert_int_equal(sqlite3_open(in_dir("other.db"), &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "CREATE TABLE mine(x)", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    assert_int_equal(store_open(&s, in_dir("other.db"), &e), CHIMERE_EMISMATCH);

    s = open_ok(in_dir("good.db"));
    struct stat st;
    assert_int_equal(stat(in_dir("good.db"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(stat(in_dir("good.db-wal"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(sqlite3_exec(s->db, "PRAGMA user_version = 1000", NULL, NULL, NULL),
                     SQLITE_OK);
    store_close(s);
    assert_int_equal(store_open(&s, in_dir("good.db"), &e), CHIMERE_EUNSUPPORTED);
}

/* Bytes changed anywhere: opened or refused, answers or errors, never a crash. */
static void any_damage_ends_in_an_answer_or_an_error(void **state) {
    (void)state;
    struct err e = {0};
    struct store *s = open_ok(in_dir("whole.db"));
    for (int i = 0; i < 200; i++) {
        struct store_request r = {.at_ms = i + 1, .api = "a", .model = "m", .request = "{\"x\":1}"};
        assert_int_equal(store_request_add(s, &r, NULL, &e), 0);
        char name[16];
        snprintf(name, sizeof name, "f%d", i);
        int32_t tokens[3] = {1, 2, -3};
        struct store_state x = {.tokens = tokens, .n_tok = 3, .file = name};
        assert_int_equal(store_state_add(s, &x, &e), 0);
    }
    store_close(s);
    static char whole[1 << 19], bent[1 << 19];
    FILE *f = fopen(in_dir("whole.db"), "rb");
    size_t n = fread(whole, 1, sizeof whole, f);
    fclose(f);
    assert_in_range(n, 8192, sizeof whole - 1);
    struct rng r;
    rng_seed(&r, 5);
    int n_open = 0, n_refused = 0;
    for (int round = 0; round < 60; round++) {
        memcpy(bent, whole, n);
        for (int k = 0; k < 1 + round % 20; k++) bent[rng_next(&r) % n] = (char)rng_next(&r);
        size_t cut = round % 5 ? n : rng_next(&r) % n;
        char name[32];
        snprintf(name, sizeof name, "bent%d.db", round);
        put_file(in_dir(name), bent, cut);
        if (store_open(&s, in_dir(name), &e)) {
            n_refused++;
            continue;
        }
        n_open++;
        struct store_usage u;
        struct store_request q = {.api = "a"};
        int64_t n_bytes;
        store_usage_since(s, 0, 0, &u, &e);
        store_request_add(s, &q, NULL, &e);
        store_state_bytes(s, 0, &n_bytes, &e);
        store_check(s, &e);
        store_close(s);
    }
    assert_true(n_open > 0 && n_refused > 0);
}

/* ---- words, vectors, memories: what each kind of database searches in its own way ---- */

static int take_chunk(void *ud, const struct store_chunk *c) {
    snprintf(ud, 64, "%s", c->text);
    return 1;
}

static int take_vec(void *ud, const struct store_chunk *c) {
    float *sum = ud;
    assert_int_equal(c->n_vec, 3);
    for (int i = 0; i < 3; i++) sum[i] += c->vec[i];
    return 0;
}

static int see_doc(void *ud, const struct store_doc *d) {
    strncat(ud, d->path, 32);
    strncat(ud, " ", 2);
    return 0;
}

static void documents_are_found_by_words(void **state) {
    static const float v[2][3] = {{1, 2, 3}, {0.5f, -4, 1e-20f}};
    const struct store_chunk chunks[] = {{.to = 10,
                                          .heading = "Rivers",
                                          .text = "The otters were swimming",
                                          .vec = v[0],
                                          .n_vec = 3},
                                         {.from = 10,
                                          .to = 30,
                                          .heading = "Hills",
                                          .text = "It's dry up there",
                                          .vec = v[1],
                                          .n_vec = 3}};
    struct store_doc d = {
        .collection = "c", .path = "b.txt", .title = "Animals", .n_bytes = 30, .embedder = -7};
    struct err e = {0};
    char found[64] = "", names[128] = "";
    float sum[3] = {0};
    (void)state;
    struct store *s = open_ok(fresh("docs"));
    int64_t before = store_doc_version(s, &e);
    if (store_doc_put(s, &d, chunks, 2, &e)) fail_msg("%s", e.text);
    d.path = "a.txt";
    assert_int_equal(store_doc_put(s, &d, chunks, 1, &e), 0);
    assert_true(store_doc_version(s, &e) > before);
    assert_int_equal(store_doc_list(s, "c", see_doc, names, &e), 0);
    assert_string_equal(names, "a.txt b.txt "); /* by bytes */
    assert_int_equal(store_doc_match(s, "\"dry\" OR \"nothing\"", NULL, 5, take_chunk, found, &e),
                     1);
    assert_string_equal(found, "It's dry up there");
    /* another form of the word: both stem English */
    assert_int_equal(store_doc_match(s, "\"otter\" OR \"swim\"", "c", 5, take_chunk, found, &e), 1);
    assert_string_equal(found, "The otters were swimming");
    assert_int_equal(store_doc_match(s, "\"otter\"", "elsewhere", 5, take_chunk, found, &e), 0);
    assert_int_equal(store_doc_count(s, "\"otter\"", 10, &e), 2);
    assert_int_equal(store_doc_count(s, "\"otter\"", 1, &e), 1);
    assert_int_equal(store_doc_vectors(s, "c", -7, take_vec, sum, &e), 0);
    assert_true(sum[0] == 2.5f && sum[1] == 0 &&
                sum[2] == 6);                               /* 1 + 0.5 + 1, 2 - 4 + 2, 3 + 0 + 3 */
    assert_int_equal(store_doc_put(s, &d, NULL, 0, &e), 0); /* replaced, its chunk is gone */
    assert_int_equal(store_doc_count(s, "\"otter\"", 10, &e), 1);
    assert_int_equal(store_doc_remove(s, "c", "b.txt", &e), 0);
    assert_int_equal(store_doc_count(s, "\"otter\"", 10, &e), 0);
    store_close(s);
}

static int count_chunk(void *ud, const struct store_chunk *c) {
    (void)c;
    ++*(int *)ud;
    return 0;
}

/* What an owner reads without and with a collection: by list, by words, by vectors. */
static void reads(struct store *s, const char *owner, const char *collection, const char *want) {
    char scope[STORE_DOC_SCOPE_BYTES], names[256] = "";
    struct err e = {0};
    int n = 0, by_words = 0, by_vectors = 0;
    if (store_doc_scope(owner, collection, scope, &e)) fail_msg("%s", e.text);
    assert_int_equal(store_doc_list(s, scope, see_doc, names, &e), 0);
    assert_string_equal(names, want);
    for (const char *p = want; *p; p++) n += *p == ' ';
    assert_int_equal(store_doc_match(s, "\"otter\"", scope, 99, count_chunk, &by_words, &e), 0);
    assert_int_equal(store_doc_vectors(s, scope, 9, count_chunk, &by_vectors, &e), 0);
    assert_int_equal(by_words, n);
    assert_int_equal(by_vectors, n);
}

static void private_documents_belong_to_their_owner(void **state) {
    static const char *const owners[] = {"key-a", "key-a\tann", "key-a\tann2", "key-ab", "z"};
    static const char *const bad[] = {"my:", "chat:", "\001", "\001key-a\001my:x", "a\tb"};
    static const float v[] = {1, 2};
    const struct store_chunk c = {.text = "otters", .heading = "", .vec = v, .n_vec = 2};
    struct store_forgotten gone;
    char scope[STORE_DOC_SCOPE_BYTES], path[8];
    struct store_doc d = {.collection = "all", .path = "s", .title = "", .embedder = 9};
    struct err e = {0};
    (void)state;
    struct store *s = open_ok(fresh("scopes"));
    assert_int_equal(store_doc_put(s, &d, &c, 1, &e), 0);
    d.collection = scope, d.path = path;
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < 2; k++) {
            snprintf(path, sizeof path, "%d%c", i, "mc"[k]);
            assert_int_equal(store_doc_scope(owners[i], k ? "chat:1" : "my:1", scope, &e), 0);
            if (store_doc_put(s, &d, &c, 1, &e)) fail_msg("%s", e.text);
        }
    for (int i = 0; i < 5; i++) {
        char own[16], all[16], chat[16];
        snprintf(own, sizeof own, "%dm ", i), snprintf(chat, sizeof chat, "%dc ", i);
        snprintf(all, sizeof all, "%dm s ", i);
        reads(s, owners[i], NULL, all);
        reads(s, owners[i], "my:1", own);
        reads(s, owners[i], "chat:1", chat);
        reads(s, owners[i], "my:2", "");
        reads(s, owners[i], "all", "s ");
        assert_int_equal(store_doc_scope(owners[i], bad[i], scope, &e), CHIMERE_EINVAL);
    }
    reads(s, "key-a\tann\001my:1", NULL, "s "); /* a user's name imitates a prefix */
    reads(s, "nobody", NULL, "s ");
    assert_int_equal(store_doc_scope("key-a\tx\001y", "my:1", scope, &e), CHIMERE_EINVAL);
    assert_int_equal(store_doc_scope("key-a", NULL, scope, &e), 0);
    assert_ptr_equal(store_doc_narrow(s, scope), scope);
    assert_int_equal(store_doc_scope("nobody", NULL, scope, &e), 0);
    assert_string_equal(store_doc_narrow(s, scope), STORE_DOC_SHARED);

    assert_int_equal(store_doc_scope("key-ab", "chat:1", scope, &e), 0);
    assert_int_equal(store_doc_drop(s, scope, &e), 0);
    reads(s, "key-ab", "chat:1", "");
    reads(s, "key-ab", NULL, "3m s ");
    struct store_person who = {.owner = "key-a", .user = "ann"};
    assert_int_equal(store_person_forget(s, &who, &gone, &e), 0);
    assert_int_equal(gone.n_row, 2);
    reads(s, "key-a\tann", NULL, "s ");
    reads(s, "key-a\tann2", NULL, "2m s ");
    who.user = NULL;
    assert_int_equal(store_person_forget(s, &who, &gone, &e), 0);
    assert_int_equal(gone.n_row, 4);
    assert_int_equal(store_doc_count(s, "\"otter\"", 99, &e), 4); /* s, 3m, 4m, 4c */
    store_close(s);
}

static int take_memory(void *ud, const struct store_memory *m) {
    char line[96];
    snprintf(line, sizeof line, "%s%s%s;", m->text, m->pinned ? "!" : "", m->tainted ? "?" : "");
    strncat(ud, line, 200);
    return 0;
}

static void memories_belong_to_their_owner(void **state) {
    struct err e = {0};
    char all[512] = "";
    int64_t id[3];
    (void)state;
    struct store *s = open_ok(fresh("memories"));
    struct store_memory m = {.owner = "ann", .kind = STORE_FACT, .text = "likes teas", .at_ms = 5};
    assert_int_equal(store_memory_add(s, &m, &id[0], &e), 0);
    m.pinned = true, m.tainted = true;
    m.text = "drives a tram", m.at_ms = 6;
    assert_int_equal(store_memory_add(s, &m, &id[1], &e), 0);
    m.owner = "bob", m.text = "likes teas", m.pinned = false;
    assert_int_equal(store_memory_add(s, &m, &id[2], &e), 0);
    m.tainted = false, m.pinned = true; /* the same again: pinned stays or comes, taint goes */
    int64_t again;
    assert_int_equal(store_memory_add(s, &m, &again, &e), 0);
    assert_true(again == id[2]);
    assert_int_equal(store_memory_list(s, "ann", STORE_HOLDING, 9, take_memory, all, &e), 0);
    assert_string_equal(all, "drives a tram!?;likes teas;");
    all[0] = 0;
    assert_int_equal(store_memory_list(s, "bob", STORE_PINS, 9, take_memory, all, &e), 0);
    assert_string_equal(all, "likes teas!;");
    all[0] = 0;
    assert_int_equal(store_memory_match(s, "ann", "\"tea\" OR \"tram\"", 9, take_memory, all, &e),
                     0);
    assert_string_equal(all, "likes teas;"); /* pinned ones are listed anyway */
    assert_int_equal(store_memory_remove(s, "bob", id[0], &e), CHIMERE_ENOENT);
    assert_int_equal(store_memory_pin(s, "ann", id[1], false, &e), 0);
    assert_int_equal(store_memory_forget(s, "ann", 100, false, &e), 2);
    store_close(s);
}

static int take_example(void *ud, const struct store_example *x) {
    snprintf(ud, 64, "%s/%s/%.2f", x->question, x->answer, x->score);
    return 0;
}

static int count_example(void *ud, const struct store_example *x) {
    assert_true(x->n_vec == 2 && x->vec[0] == 0.25f);
    ++*(int *)ud;
    return 0;
}

static void take_answer(void *ud, const struct store_answer *a) {
    snprintf(ud, 64, "%s>%s", a->input, a->response);
}

static void answers_belong_to_their_owner_and_age(void **state) {
    struct err e = {0};
    char text[64] = "", name[16], big[101];
    (void)state;
    memset(big, 'x', 100);
    big[100] = 0;
    struct store *s = open_ok(fresh("answers"));
    const struct store_answer one = {
        .owner = "ann", .name = "r", .input = "[1]", .response = "{}", .at_ms = 1000};
    if (store_answer_add(s, &one, 0, 1 << 20, &e)) fail_msg("%s", e.text);
    assert_int_equal(store_answer_find(s, "ann", "r", 0, take_answer, text, &e), 0);
    assert_string_equal(text, "[1]>{}");
    assert_int_equal(store_answer_find(s, "bob", "r", 0, take_answer, text, &e), CHIMERE_ENOENT);
    assert_int_equal(store_answer_find(s, "ann", "r", 1001, take_answer, text, &e), CHIMERE_ENOENT);
    assert_int_equal(store_answer_drop(s, "bob", "r", &e), CHIMERE_ENOENT);
    assert_int_not_equal(store_answer_add(s, &one, 0, 1 << 20, &e), 0); /* a name is used once */
    for (int i = 0; i < 9; i++) {                                       /* three fit */
        snprintf(name, sizeof name, "b%d", i);
        const struct store_answer a = {
            .owner = "bob", .name = name, .input = big, .response = big, .at_ms = 2000 + i};
        assert_int_equal(store_answer_add(s, &a, 0, 700, &e), 0);
    }
    for (int i = 0; i < 9; i++) {
        snprintf(name, sizeof name, "b%d", i);
        assert_int_equal(store_answer_find(s, "bob", name, 0, take_answer, text, &e),
                         i < 6 ? CHIMERE_ENOENT : 0);
    }
    assert_int_equal(store_answer_find(s, "ann", "r", 0, take_answer, text, &e), 0);
    const struct store_answer last = {
        .owner = "eve", .name = "r", .input = "", .response = "", .at_ms = 3000};
    assert_int_equal(store_answer_add(s, &last, 2008, 700, &e), 0); /* everybody's old ones go */
    assert_int_equal(store_answer_find(s, "ann", "r", 0, take_answer, text, &e), CHIMERE_ENOENT);
    assert_int_equal(store_answer_find(s, "bob", "b8", 0, take_answer, text, &e), 0);
    assert_int_equal(store_answer_drop(s, "bob", "b8", &e), 0);
    assert_int_equal(store_answer_find(s, "bob", "b8", 0, take_answer, text, &e), CHIMERE_ENOENT);
    store_close(s);
}

static void examples_are_replaced_by_question(void **state) {
    static const float v[2] = {0.25f, 8};
    struct err e = {0};
    struct store_example x[2] = {{.domain = "d",
                                  .question = "q1",
                                  .answer = "a",
                                  .score = 0.5,
                                  .embedder = UINT64_MAX,
                                  .vec = v,
                                  .n_vec = 2},
                                 {.domain = "d",
                                  .question = "q2",
                                  .answer = "b",
                                  .score = 1,
                                  .embedder = UINT64_MAX,
                                  .vec = v,
                                  .n_vec = 2}};
    int64_t ids[2];
    char one[64] = "";
    int n = 0;
    (void)state;
    struct store *s = open_ok(fresh("examples"));
    if (store_example_put(s, x, 2, ids, &e)) fail_msg("%s", e.text);
    x[0].answer = "better";
    assert_int_equal(store_example_put(s, x, 1, ids, &e), 0);
    assert_int_equal(store_example_one(s, ids[0], take_example, one, &e), 0);
    assert_string_equal(one, "q1/better/0.50");
    struct store_example_state st;
    assert_int_equal(store_example_state(s, "d", UINT64_MAX, true, &st, &e), 0);
    assert_int_equal(st.n, 2);
    assert_int_equal(store_example_vectors(s, "d", UINT64_MAX, 0, true, count_example, &n, &e), 0);
    assert_int_equal(n, 2);
    void *data;
    size_t size;
    assert_int_equal(store_example_put_index(s, "d", UINT64_MAX, "\0\1\377", 3, &e), 0);
    assert_int_equal(store_example_get_index(s, "d", UINT64_MAX, &data, &size, &e), 0);
    assert_int_equal(size, 3);
    assert_memory_equal(data, "\0\1\377", 3);
    mem_free(data);
    assert_int_equal(store_example_remove(s, "d", ids[0], &e), 0);
    assert_int_equal(store_example_remove(s, "d", ids[0], &e), CHIMERE_ENOENT);
    store_close(s);
}

/* What one connection writes to the keys, another one hears of. */
static void other_connections_are_noticed(void **state) {
    struct err e = {0};
    (void)state;
    const char *place = fresh("notice");
    struct store *a = open_ok(place), *b = open_ok(place);
    int64_t before = store_version(a);
    assert_true(store_version(a) == before);
    struct store_key k = {.name = "new"};
    assert_int_equal(store_key_add(b, &k, &e), 0);
    AWAIT(store_version(a) != before);
    assert_true(store_version(a) != before);
    store_close(a);
    store_close(b);
}

static int count_owner(void *ud, const struct store_quality *q) {
    int *n = ud;
    n[!strcmp(q->owner, "key-1\tann") ? 0 : !strcmp(q->owner, "key-1") ? 1 : 2]++;
    return 0;
}

/* Rated answers of one night: bad ones are rated 1 or 2, or corrected. */
static void votes_of_a_night_are_counted(void **state) {
    struct err e = {0};
    int64_t n, bad;
    (void)state;
    struct store *s = open_ok(fresh("votes"));
    for (int i = 0; i < 8; i++) {
        char name[16];
        snprintf(name, sizeof name, "v%d", i);
        struct store_quality q = {.at_ms = i < 7 ? 1000 : 10,
                                  .name = name,
                                  .route = i == 6 ? "r" : "",
                                  .night = i == 5 ? 4 : 3,
                                  .score = NAN,
                                  .question = "q",
                                  .answer = "a"};
        assert_int_equal(store_quality_add(s, &q, NULL, &e), 0);
        if (i != 3 && i != 4)
            assert_int_equal(store_quality_feedback(s, name, i + 1 < 5 ? i + 1 : 1, NULL, &e), 0);
    }
    assert_int_equal(store_quality_correct(s, "v3", "better", 1000, &e), 0);
    assert_int_equal(store_quality_votes(s, 3, 1000, &n, &bad, &e), 0);
    /* rated 1, 2, 3, and 1 by a pipeline's route, and corrected; one is not rated, one old */
    assert_int_equal(n, 5);
    assert_int_equal(bad, 4);
    assert_int_equal(store_quality_votes(s, 9, 0, &n, &bad, &e), 0);
    assert_int_equal(n, 0);
    assert_int_equal(bad, 0);
    store_close(s);
}

/* One user, then the whole key; a key whose name begins alike is another. */
static void a_person_is_forgotten(void **state) {
    static const char *const owners[] = {"key-1\tann", "key-1", "key-11", "key-1\tann"};
    struct store_person p = {.owner = "key-1", .user = "ann", .key_id = 7};
    struct store_forgotten gone;
    struct err e = {0};
    int64_t id;
    int n[3] = {0};
    char place[1024];
    (void)state;
    snprintf(place, sizeof place, "%s", fresh("person"));
    struct store *s = open_ok(place);
    for (int i = 0; i < 4; i++) {
        char name[16], text[16];
        snprintf(name, sizeof name, "n%d", i);
        snprintf(text, sizeof text, "tea %d", i);
        struct store_quality q = {.route = "r", .score = 1, .name = name, .owner = owners[i]};
        struct store_memory m = {.owner = owners[i], .text = text};
        struct store_answer a = {.owner = owners[i], .name = name, .input = "i", .response = "o"};
        struct store_request r = {.at_ms = 1, .key_id = 7, .api = "a", .model = "m"};
        r.session = i ? NULL : "ann";
        assert_int_equal(store_quality_add(s, &q, NULL, &e), 0);
        assert_int_equal(store_memory_add(s, &m, &id, &e), 0);
        assert_int_equal(store_answer_add(s, &a, 0, 1 << 20, &e), 0);
        assert_int_equal(store_request_add(s, &r, &id, &e), 0);
        const struct store_persona who = {.name = name, .text = text};
        assert_int_equal(store_persona_put(s, owners[i], &who, &id, &e), 0);
    }
    if (store_person_forget(s, &p, &gone, &e)) fail_msg("%s", e.text);
    assert_int_equal(gone.n_row, 9); /* four kinds of two, and a request */
    assert_int_equal(store_quality_list(s, 0, count_owner, n, &e), 0);
    assert_int_equal(n[0], 0);
    assert_int_equal(n[1], 1);
    assert_int_equal(n[2], 1);
    p.user = NULL;
    if (store_person_forget(s, &p, &gone, &e)) fail_msg("%s", e.text);
    assert_int_equal(gone.n_row, 4 + 3);
    assert_int_equal(store_quality_list(s, 0, count_owner, n, &e), 0);
    assert_int_equal(n[1], 1);
    assert_int_equal(n[2], 2);
    store_close(s);
}

/* Everything arrives in the other kind of store and comes back the same; new rows do not meet old ids. */
static void a_store_is_copied_there_and_back(void **state) {
    static const float v[2] = {0.25f, 8};
    const struct store_chunk chunk = {
        .to = 9, .heading = "h", .text = "otters swim", .vec = v, .n_vec = 2};
    struct store_doc d = {.collection = "c", .path = "p", .title = "t", .embedder = 3};
    struct store_example x = {
        .domain = "d", .question = "q", .answer = "a", .embedder = 3, .vec = v, .n_vec = 2};
    struct store_memory m = {.owner = "ann", .text = "likes tea"};
    struct store_quality q = {.route = "r", .question = NULL, .score = NAN, .name = "n"};
    const struct store_answer kept = {.owner = "ann", .name = "r", .input = "i", .response = "o"};
    struct store_key k = {.name = "ann", .tokens_per_day = 1 << 20};
    struct err e = {0};
    int64_t id, last = 0;
    char text[64] = "", place[1024];
    (void)state;
    snprintf(place, sizeof place, "%s", fresh("copied"));
    struct store *a = open_ok(in_dir("from.db")), *b = open_ok(place);
    assert_int_equal(store_key_add(a, &k, &e), 0);
    for (int i = 0; i < 2500; i++) { /* more than a batch */
        struct store_request r = {
            .at_ms = i + 1, .api = "a", .model = "m", .n_prompt = 2, .decode_ms = 0.1};
        assert_int_equal(store_request_add(a, &r, &last, &e), 0);
    }
    assert_int_equal(store_doc_put(a, &d, &chunk, 1, &e), 0);
    assert_int_equal(store_example_put(a, &x, 1, &id, &e), 0);
    assert_int_equal(store_memory_add(a, &m, &id, &e), 0);
    assert_int_equal(store_quality_add(a, &q, &id, &e), 0);
    assert_int_equal(store_answer_add(a, &kept, 0, 1 << 20, &e), 0);
    int64_t n = store_copy(a, b, &e);
    if (n < 0) fail_msg("%s", e.text);
    assert_int_equal(n, 1 + 2500 + 3 + 2 + 2 +
                            2); /* a document is three rows, the others with words two */
    assert_int_equal(store_copy(a, b, &e), CHIMERE_EINVAL);
    assert_non_null(strstr(e.text, "expected an empty store"));
    struct store_request r = {.at_ms = 1, .api = "a", .model = "m"};
    assert_int_equal(store_request_add(b, &r, &id, &e), 0);
    assert_true(id > last);
    assert_int_equal(store_doc_match(b, "\"otter\"", NULL, 5, take_chunk, text, &e), 1);
    assert_string_equal(text, "otters swim");
    struct store *c = open_ok(in_dir("back.db"));
    assert_int_equal(store_copy(b, c, &e), n + 1);
    struct store_key got;
    assert_int_equal(store_key_find(c, k.hash, &got, &e), 0);
    assert_int_equal(got.tokens_per_day, 1 << 20);
    struct store_usage u;
    assert_int_equal(store_answer_find(c, "ann", "r", 0, take_answer, text, &e), 0);
    assert_string_equal(text, "i>o");
    assert_int_equal(store_usage_since(c, 0, 0, &u, &e), 0);
    assert_int_equal(u.n_request, 2501);
    assert_int_equal(u.n_prompt, 5000);
    store_close(a);
    store_close(b);
    store_close(c);
}

/* ---- kills ---- */

/* A child that stores and, after each success, writes the id to a pipe; killed at a random moment. What it
 * has acknowledged is there, and the file is whole. */
static void acknowledged_rows_survive_kill_9(void **state) {
    (void)state;
    struct rng r;
    rng_seed(&r, 11);
    int64_t n_before = 0, n_told = 0; /* acknowledged in all rounds */
    char place[1024];
    snprintf(place, sizeof place, "%s", fresh("kill"));
    for (int round = 0; round < 12; round++) {
        int fd[2];
        assert_int_equal(pipe(fd), 0);
        pid_t pid = fork();
        if (pid == 0) {
            struct store *s;
            struct err e;
            close(fd[0]);
            if (store_open(&s, place, &e)) _exit(3);
            static char text[20000];
            memset(text, 'y', sizeof text - 1);
            for (int i = 0;; i++) {
                struct store_request q = {.at_ms = 1, .api = "a", .model = "m", .request = text};
                int64_t id;
                if (store_request_add(s, &q, &id, &e)) _exit(4);
                if (write(fd[1], &id, sizeof id) != sizeof id) _exit(5);
            }
        }
        close(fd[1]);
        int64_t id;
        int least = 5 + (int)(rng_next(&r) % 20);
        for (int i = 0; i < least && read(fd[0], &id, sizeof id) == sizeof id; i++) n_told++;
        usleep((useconds_t)(rng_next(&r) % 5000));
        kill(pid, SIGKILL);
        int status;
        waitpid(pid, &status, 0);
        assert_true(WIFSIGNALED(status)); /* and not by an error of its own */
        while (read(fd[0], &id, sizeof id) == sizeof id) n_told++;
        close(fd[0]);
        struct store *s = open_ok(place);
        struct store_usage u;
        struct err e = {0};
        if (store_check(s, &e)) fail_msg("%s", e.text);
        assert_int_equal(store_usage_since(s, 0, 0, &u, &e), 0);
        assert_true(u.n_request >= n_told && u.n_request >= n_before);
        n_before = u.n_request;
        store_close(s);
    }
    assert_true(n_before > 50);
}

/* ---- threads and processes ---- */

struct writer {
    struct store *s;
    int n, failed;
};

static void *write_many(void *arg) {
    struct writer *w = arg;
    struct err e;
    for (int i = 0; i < w->n; i++) {
        struct store_request q = {.api = "a", .model = "m"};
        struct store_usage u;
        w->failed += store_request_add(w->s, &q, NULL, &e) != 0;
        if (i % 16 == 0) w->failed += store_usage_since(w->s, 0, 0, &u, &e) != 0;
    }
    return NULL;
}

static void threads_and_connections_write_together(void **state) {
    (void)state;
    const char *place = fresh("many");
    struct store *s[2] = {open_ok(place), open_ok(place)};
    pthread_t t[4];
    struct writer w[4];
    for (int i = 0; i < 4; i++) {
        w[i] = (struct writer){.s = s[i % 2], .n = 200};
        pthread_create(&t[i], NULL, write_many, &w[i]);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(t[i], NULL);
        assert_int_equal(w[i].failed, 0);
    }
    struct store_usage u;
    struct err e;
    assert_int_equal(store_usage_since(s[1], 0, 0, &u, &e), 0);
    assert_int_equal(u.n_request, 800);
    store_close(s[0]);
    store_close(s[1]);
}

int main(void) {
    const struct CMUnitTest both[] = {
        cmocka_unit_test(requests_are_counted_by_key_and_time),
        cmocka_unit_test(keys_are_found_by_hash_until_revoked_or_expired),
        cmocka_unit_test(states_are_listed_by_use),
        cmocka_unit_test(old_records_are_deleted),
        cmocka_unit_test(documents_are_found_by_words),
        cmocka_unit_test(private_documents_belong_to_their_owner),
        cmocka_unit_test(memories_belong_to_their_owner),
        cmocka_unit_test(answers_belong_to_their_owner_and_age),
        cmocka_unit_test(examples_are_replaced_by_question),
        cmocka_unit_test(other_connections_are_noticed),
        cmocka_unit_test(a_store_is_copied_there_and_back),
        cmocka_unit_test(a_person_is_forgotten),
        cmocka_unit_test(votes_of_a_night_are_counted),
        cmocka_unit_test(acknowledged_rows_survive_kill_9),
        cmocka_unit_test(threads_and_connections_write_together),
    };
    const struct CMUnitTest files[] = {
        cmocka_unit_test(memories_follow_their_key),
        cmocka_unit_test(migrations_apply_once_and_whole),
        cmocka_unit_test(foreign_and_damaged_files_are_refused),
        cmocka_unit_test(any_damage_ends_in_an_answer_or_an_error),
    };
    int rc = cmocka_run_group_tests(both, scratch_make, scratch_drop);
    if (!server_url()) rc += cmocka_run_group_tests(files, scratch_make, scratch_drop);
    return rc;
}

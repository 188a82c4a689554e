/* sql_postgres.c: the driver for a PostgreSQL server, for replicas that share a store.
 *
 * libpq is loaded when a store of this kind is opened, so other programs do not need the library. One connection
 * per store; a lost connection is restored. A transaction that loses its connection fails as a whole. Values are
 * transferred in binary, except numbers that are sent. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/os/library.h"
#include "base/mem.h"
#include "base/str.h"
#include "store/sql/sql_impl.h"
#include "store/store_impl.h"

/* The part of libpq's interface that is used (PostgreSQL's manual, chapter "libpq"). */
typedef struct pg_conn pg_conn;
typedef struct pg_result pg_result;
struct pg_notify;
enum { PG_CONNECTION_OK = 0, PG_COMMAND_OK = 1, PG_TUPLES_OK = 2, PG_DIAG_SQLSTATE = 'C' };
enum {
    OID_BOOL = 16,
    OID_BYTEA = 17,
    OID_INT8 = 20,
    OID_INT4 = 23,
    OID_TEXT = 25,
    OID_FLOAT8 = 701
};

#define FUNCTIONS(X)                                                                               \
    X(pg_conn *, connectdbParams,                                                                  \
      (const char *const *names, const char *const *values, int expand))                           \
    X(void, finish, (pg_conn * c))                                                                 \
    X(void, reset, (pg_conn * c))                                                                  \
    X(int, status, (const pg_conn *c))                                                             \
    X(char *, errorMessage, (const pg_conn *c))                                                    \
    X(char *, host, (const pg_conn *c))                                                            \
    X(char *, db, (const pg_conn *c))                                                              \
    X(pg_result *, exec, (pg_conn * c, const char *text))                                          \
    X(pg_result *, prepare,                                                                        \
      (pg_conn * c, const char *name, const char *text, int n, const unsigned *types))             \
    X(pg_result *, execPrepared,                                                                   \
      (pg_conn * c, const char *name, int n, const char *const *values, const int *sizes,          \
       const int *formats, int format))                                                            \
    X(int, resultStatus, (const pg_result *r))                                                     \
    X(char *, resultErrorField, (const pg_result *r, int field))                                   \
    X(char *, resultErrorMessage, (const pg_result *r))                                            \
    X(int, ntuples, (const pg_result *r))                                                          \
    X(char *, getvalue, (const pg_result *r, int row, int column))                                 \
    X(int, getlength, (const pg_result *r, int row, int column))                                   \
    X(int, getisnull, (const pg_result *r, int row, int column))                                   \
    X(unsigned, ftype, (const pg_result *r, int column))                                           \
    X(char *, cmdTuples, (pg_result * r))                                                          \
    X(void, clear, (pg_result * r))                                                                \
    X(int, consumeInput, (pg_conn * c))                                                            \
    X(struct pg_notify *, notifies, (pg_conn * c))                                                 \
    X(void, freemem, (void *p))                                                                    \
    X(void *, setNoticeProcessor, (pg_conn * c, void (*f)(void *ud, const char *text), void *ud))

struct libpq {
    struct library *library;
#define X(type, name, args) type(*name) args;
    FUNCTIONS(X)
#undef X
};

enum { MAX_PARAM = 20, NUMBER_BYTES = 32, RETRY_NS = 1000000000 };

struct postgres {
    struct libpq pq;
    pg_conn *conn; /* owned */
    int64_t n_change, n_notified;
    uint64_t n_prepared, n_connect; /* counters for names of statements and for connections */
    bool in_transaction;
    _Atomic bool is_down;           /* the last attempt to reach the server failed */
    int64_t tried_ns;               /* time of the last attempt */
    char sqlstate[8], message[400]; /* details of the last failure */
};

struct stmt {
    struct sql_stmt base;
    char *sql; /* owned; in the syntax of PostgreSQL */
    char name[24];
    uint64_t connect; /* the connection on which it is prepared; 0: none */
    int n_param;
    const char *values[MAX_PARAM]; /* views; numbers point into `number` */
    char number[MAX_PARAM][NUMBER_BYTES];
    int sizes[MAX_PARAM], formats[MAX_PARAM];
    unsigned types[MAX_PARAM];
    pg_result *rows; /* owned; NULL: not run */
    int row, n_row;
};

static struct libpq *pq_of(const struct store *s) { return &s->pg->pq; }

/* Complete texts, for statements that cannot be converted by replacing parameters. The rank is PostgreSQL's, not
 * BM25. */
static const struct {
    const char *sqlite, *postgres;
} texts[] = {
    {"doc_fts MATCH ?1 AND", STORE_CHUNK_COLUMNS
     ", CAST(ts_rank_cd('{0, 0.25, 0.5, 1}', doc_fts.words, q) AS DOUBLE PRECISION) AS score FROM"
     " websearch_to_tsquery('english', $1) q, doc_fts JOIN doc_chunks c ON c.id = doc_fts.rowid"
     " JOIN doc_files f ON f.id = c.file WHERE doc_fts.words @@ q AND " STORE_DOC_IN(
         "f.collection", "$2::text", "$4", "$5") " ORDER BY score DESC, c.id LIMIT $3"},
    {"doc_fts MATCH ?1 LIMIT", "SELECT count(*) FROM (SELECT 1 FROM doc_fts WHERE words @@ "
                               "websearch_to_tsquery('english', $1)"
                               " LIMIT $2) AS found"},
    {"odo_memory_fts MATCH",
     "SELECT m.id, m.at_ms, m.kind, m.text, m.pinned, m.tainted,"
     " CAST(ts_rank_cd(odo_memory_fts.words, q) AS DOUBLE PRECISION) AS score, m.replaced_by"
     " FROM websearch_to_tsquery('english', $2) q, odo_memory_fts JOIN odo_memory m"
     " ON m.id = odo_memory_fts.rowid WHERE odo_memory_fts.words @@ q AND m.owner = $1"
     " AND m.pinned = 0 AND m.replaced_by = 0 ORDER BY score DESC, m.at_ms DESC LIMIT $3"},
};

/* Parts of texts. */
static const struct {
    const char *sqlite, *postgres;
} parts[] = {
    {"length(CAST(title || project || metadata || settings AS BLOB))",
     "CAST(octet_length(title || project || metadata || settings) AS BIGINT)"},
    {"snippet(conversation_fts, 0, '', '', '\xe2\x80\xa6', 12)",
     "ts_headline('simple', text, to_tsquery('simple', ?2),"
     " 'StartSel=\"\", StopSel=\"\", MinWords=6, MaxWords=12')"},
    {"conversation_fts MATCH ?2", "words @@ to_tsquery('simple', ?2)"},
    {"priority DESC, id LIMIT 1", "priority DESC, id LIMIT 1 FOR UPDATE SKIP LOCKED"},
    {"conversation_fts MATCH ?4", "f.words @@ to_tsquery('simple', ?4)"},
};

static char *translate(const char *text) {
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strstr(text, texts[i].sqlite)) return mem_strdup(texts[i].postgres);
    struct buf out;
    buf_init(&out, 1 << 16);
    while (*text) {
        size_t i = 0, n = sizeof parts / sizeof *parts;
        while (i < n && !str_starts(text, parts[i].sqlite)) i++;
        if (i < n) buf_puts(&out, parts[i].postgres);
        else buf_putc(&out, *text);
        text += i < n ? strlen(parts[i].sqlite) : 1;
    }
    for (char *p = out.p; p && *p; p++)
        if (*p == '?') *p = '$';
    char *sql = out.failed || !out.p ? NULL : mem_strdup(out.p);
    buf_fini(&out);
    return sql;
}

static int highest_param(const char *sql) {
    int most = 0;
    for (const char *p = sql; (p = strchr(p, '$')); p++) {
        long n = strtol(p + 1, NULL, 10);
        if (n > most && n <= MAX_PARAM) most = (int)n;
    }
    return most;
}

/* ---- failures ---- */

enum { AWAY = 2 }; /* the server cannot be reached: no statement was sent */

static int note(struct store *s, pg_result *r) {
    struct postgres *g = s->pg;
    if (g->pq.status(g->conn) != PG_CONNECTION_OK) g->is_down = true;
    const char *state = r ? g->pq.resultErrorField(r, PG_DIAG_SQLSTATE) : NULL,
               *text = r ? g->pq.resultErrorMessage(r) : g->pq.errorMessage(g->conn);
    snprintf(g->sqlstate, sizeof g->sqlstate, "%s", state ? state : "");
    snprintf(g->message, sizeof g->message, "%s", text && *text ? text : "the connection is lost");
    char *to = g->message;
    for (const char *p = g->message; *p; p++) /* libpq breaks and indents its lines */
        if (*p != '\n' && *p != '\t') *to++ = *p;
        else if (to > g->message && to[-1] != ' ') *to++ = ' ';
    while (to > g->message && to[-1] == ' ') to--;
    *to = 0;
    return 1;
}

static int fail(const struct store *s, int rc, const char *doing, struct err *e) {
    static const struct {
        const char *state; /* prefix of the SQLSTATE */
        int code;
    } map[] = {{"23", CHIMERE_EINVAL},   {"40", CHIMERE_EBUSY},     {"55P03", CHIMERE_EBUSY},
               {"53", CHIMERE_ELIMIT},   {"57", CHIMERE_EIO},       {"08", CHIMERE_EIO},
               {"28", CHIMERE_EREFUSED}, {"42", CHIMERE_EINTERNAL}, {"22", CHIMERE_EINVAL}};
    const struct postgres *g = s->pg;
    int code = CHIMERE_EIO;
    if (rc == AWAY) {
        err_set(e, CHIMERE_EBUSY, "%s: the database does not answer: %s", s->path, g->message);
        err_hint(e, "it is asked again every second");
        return CHIMERE_EBUSY;
    }
    for (size_t i = 0; g && i < sizeof map / sizeof *map; i++)
        if (g->sqlstate[0] && str_starts(g->sqlstate, map[i].state)) {
            code = map[i].code;
            break;
        }
    err_set(e, code, "%s: cannot %s: %s", s->path, doing, g ? g->message : "out of memory");
    if (code == CHIMERE_EIO) err_hint(e, "the connection is made again with the next request");
    return code;
}

/* ---- statements ---- */

static int prepare(struct store *s, const char *text, struct sql_stmt **out) {
    struct stmt *st = mem_zalloc(sizeof *st);
    if (st) st->sql = translate(text);
    if (!st || !st->sql) {
        mem_free(st);
        return 1;
    }
    st->base.s = s;
    st->n_param = highest_param(st->sql);
    snprintf(st->name, sizeof st->name, "q%llu", (unsigned long long)++s->pg->n_prepared);
    for (int i = 0; i < MAX_PARAM; i++) st->types[i] = OID_TEXT;
    *out = &st->base;
    return SQL_OK;
}

static void drop_rows(struct stmt *st) {
    if (st->rows) pq_of(st->base.s)->clear(st->rows);
    st->rows = NULL;
    st->row = st->n_row = 0;
}

static void reset(struct sql_stmt *base) {
    struct stmt *st = (struct stmt *)base;
    drop_rows(st);
    memset(st->values, 0, sizeof st->values);
}

static void finalize(struct sql_stmt *base) {
    struct stmt *st = (struct stmt *)base;
    struct postgres *g = base->s->pg;
    char text[48];
    drop_rows(st);
    if (st->connect == g->n_connect && g->pq.status(g->conn) == PG_CONNECTION_OK) {
        snprintf(text, sizeof text, "DEALLOCATE %s", st->name);
        g->pq.clear(g->pq.exec(g->conn, text)); /* has no effect within a failed transaction */
    }
    mem_free(st->sql);
    mem_free(st);
}

static void bind(struct sql_stmt *base, int i, const char *value, size_t n, unsigned type) {
    struct stmt *st = (struct stmt *)base;
    if (i < 1 || i > st->n_param) return;
    drop_rows(st);
    st->values[i - 1] = value;
    st->sizes[i - 1] = (int)n;
    st->formats[i - 1] = type == OID_BYTEA;
    st->types[i - 1] = type;
}

static void bind_int64(struct sql_stmt *base, int i, int64_t v) {
    struct stmt *st = (struct stmt *)base;
    if (i < 1 || i > st->n_param) return;
    snprintf(st->number[i - 1], NUMBER_BYTES, "%lld", (long long)v);
    bind(base, i, st->number[i - 1], 0, OID_INT8);
}

static void bind_double(struct sql_stmt *base, int i, double v) {
    struct stmt *st = (struct stmt *)base;
    if (i < 1 || i > st->n_param) return;
    snprintf(st->number[i - 1], NUMBER_BYTES, "%.17g", v);
    bind(base, i, isnan(v) ? NULL : st->number[i - 1], 0, OID_FLOAT8);
}

static void bind_text(struct sql_stmt *st, int i, const char *text) {
    bind(st, i, text, 0, OID_TEXT);
}

static void bind_blob(struct sql_stmt *st, int i, const void *data, size_t n) {
    bind(st, i, data, n, OID_BYTEA);
}

/* Prepares the statement on the current connection. The parameter types are those of the first bound values and do
 * not change later. */
static int ensure_prepared(struct stmt *st) {
    struct postgres *g = st->base.s->pg;
    if (st->connect == g->n_connect) return SQL_OK;
    pg_result *r = g->pq.prepare(g->conn, st->name, st->sql, st->n_param, st->types);
    int rc = r && g->pq.resultStatus(r) == PG_COMMAND_OK ? SQL_OK : note(st->base.s, r);
    g->pq.clear(r);
    if (!rc) st->connect = g->n_connect;
    return rc;
}

static int run(struct stmt *st) {
    struct postgres *g = st->base.s->pg;
    int rc = ensure_prepared(st);
    if (rc) return rc;
    pg_result *r =
        g->pq.execPrepared(g->conn, st->name, st->n_param, st->values, st->sizes, st->formats, 1);
    int status = r ? g->pq.resultStatus(r) : -1;
    if (status != PG_COMMAND_OK && status != PG_TUPLES_OK) {
        rc = note(st->base.s, r);
        g->pq.clear(r);
        return rc;
    }
    const char *n = g->pq.cmdTuples(r);
    g->n_change = n && *n ? strtoll(n, NULL, 10) : 0;
    st->rows = r;
    st->row = -1;
    st->n_row = g->pq.ntuples(r);
    return SQL_OK;
}

static int step(struct sql_stmt *base) {
    struct stmt *st = (struct stmt *)base;
    if (!st->rows) {
        int rc = run(st);
        if (rc) return rc;
    }
    return ++st->row < st->n_row ? SQL_ROW : SQL_DONE;
}

/* ---- columns ---- */

/* Returns the bytes of a column; NULL for SQL's NULL. */
static const unsigned char *bytes_of(struct stmt *st, int i, int *n) {
    struct libpq *pq = pq_of(st->base.s);
    *n = 0;
    if (!st->rows || st->row < 0 || st->row >= st->n_row || pq->getisnull(st->rows, st->row, i))
        return NULL;
    *n = pq->getlength(st->rows, st->row, i);
    return (const unsigned char *)pq->getvalue(st->rows, st->row, i);
}

static uint64_t big_endian(const unsigned char *p, int n) {
    uint64_t v = 0;
    for (int i = 0; i < n; i++) v = v << 8 | p[i];
    return v;
}

static int64_t int64(struct sql_stmt *base, int i) {
    struct stmt *st = (struct stmt *)base;
    int n;
    const unsigned char *p = bytes_of(st, i, &n);
    if (!p) return 0;
    switch (pq_of(base->s)->ftype(st->rows, i)) {
    case OID_INT8: return n == 8 ? (int64_t)big_endian(p, 8) : 0;
    case OID_INT4: return n == 4 ? (int32_t)(uint32_t)big_endian(p, 4) : 0;
    case OID_BOOL: return n == 1 && p[0];
    default: return 0;
    }
}

static double dbl(struct sql_stmt *base, int i) {
    struct stmt *st = (struct stmt *)base;
    int n;
    double v = NAN;
    const unsigned char *p = bytes_of(st, i, &n);
    if (!p) return NAN;
    if (pq_of(base->s)->ftype(st->rows, i) != OID_FLOAT8) return (double)int64(base, i);
    uint64_t bits = big_endian(p, 8);
    if (n == 8) memcpy(&v, &bits, sizeof v);
    return v;
}

static const char *text(struct sql_stmt *base, int i) {
    int n;
    /* libpq terminates it with a zero byte */
    return (const char *)bytes_of((struct stmt *)base, i, &n);
}

static const void *blob(struct sql_stmt *base, int i, int32_t *n) {
    return bytes_of((struct stmt *)base, i, n);
}

/* ---- the connection ---- */

static int exec(struct store *s, const char *sql) {
    struct postgres *g = s->pg;
    bool begins = strcmp(sql, "BEGIN IMMEDIATE") == 0;
    /* One writer at a time, as with a file: what a transaction has read is still valid when it writes. */
    pg_result *r =
        g->pq.exec(g->conn, begins ? "BEGIN; SELECT pg_advisory_xact_lock(4849994)" : sql);
    int status = r ? g->pq.resultStatus(r) : -1, rc = SQL_OK;
    if (status != PG_COMMAND_OK && status != PG_TUPLES_OK) rc = note(s, r);
    const char *n = rc ? NULL : g->pq.cmdTuples(r);
    g->n_change = n && *n ? strtoll(n, NULL, 10) : 0;
    g->pq.clear(r);
    if (begins && !rc) g->in_transaction = true;
    if (strcmp(sql, "COMMIT") == 0 || strcmp(sql, "ROLLBACK") == 0) g->in_transaction = false;
    return rc;
}

static int64_t changes(struct store *s) { return s->pg->n_change; }

static int check(struct store *s, struct err *e) {
    return exec(s, "SELECT 1") ? fail(s, 1, "check", e) : 0;
}

static int greet(struct store *s) {
    struct postgres *g = s->pg;
    g->n_connect++;
    g->n_notified++; /* as if everything had changed meanwhile */
    int rc = exec(s, "SET client_min_messages = warning; SET statement_timeout = '30s';"
                     "SET idle_in_transaction_session_timeout = '60s'; LISTEN chimere");
    /* While this connection exists, other machines know that the owner of its jobs runs (job.c). */
    char sql[STORE_PROCESS_BYTES + 96], name[STORE_PROCESS_BYTES];
    store_process_name(s, name);
    snprintf(sql, sizeof sql, "SELECT pg_advisory_lock_shared(4849997, hashtext('%s'))", name);
    if (!rc) rc = exec(s, sql);
    if (!rc) rc = exec(s, SQL_POSTGRES_PATH);
    g->is_down = rc != 0;
    return rc;
}

static int ready(struct store *s) {
    struct postgres *g = s->pg;
    if (g->in_transaction || g->pq.status(g->conn) == PG_CONNECTION_OK) return SQL_OK;
    int64_t now = clock_ns();
    if (g->tried_ns && now - g->tried_ns < RETRY_NS) return AWAY;
    g->tried_ns = now;
    g->pq.reset(g->conn);
    if (g->pq.status(g->conn) == PG_CONNECTION_OK && !greet(s)) return SQL_OK;
    note(s, NULL);
    return AWAY;
}

/* Every writer of keys or documents notifies the channel, so no query is sent here. A lost connection is detected
 * and restored. */
static int64_t version(struct store *s) {
    struct postgres *g = s->pg;
    struct pg_notify *n;
    if (ready(s) || !g->pq.consumeInput(g->conn)) {
        if (!g->is_down) note(s, NULL);
        return 1 + g->n_notified;
    }
    while ((n = g->pq.notifies(g->conn))) {
        g->n_notified++;
        g->pq.freemem(n);
    }
    return 1 + g->n_notified;
}

static bool is_up(const struct store *s) { return !s->pg->is_down; }

static uint64_t n_connect(const struct store *s) { return s->pg->n_connect; }

static void close_db(struct store *s) {
    struct postgres *g = s->pg;
    if (!g) return;
    if (g->conn) g->pq.finish(g->conn);
    mem_free(g);
    s->pg = NULL;
}

const struct sql_ops sql_postgres_ops = {
    prepare, finalize, reset, bind_int64, bind_double, bind_text, bind_blob,
    step,    int64,    dbl,   text,       blob,        exec,      changes,
    fail,    version,  check, ready,      is_up,       n_connect, close_db};

static int load(struct libpq *pq, struct err *e) {
    static const char *const names[] = {"libpq.so.5", "libpq.so"};
    for (size_t i = 0; i < 2 && !pq->library; i++)
        library_open_system(&pq->library, names[i], NULL);
    if (!pq->library) {
        err_set(e, CHIMERE_EUNSUPPORTED, "PostgreSQL: libpq is not installed");
        err_hint(e, "apt-get install libpq5");
        return CHIMERE_EUNSUPPORTED;
    }
    bool whole = true;
#define X(type, name, args)                                                                        \
    pq->name = (type(*) args)(uintptr_t)library_symbol(pq->library, "PQ" #name);                   \
    whole &= pq->name != NULL;
    FUNCTIONS(X)
#undef X
    return whole ? 0 : err_set(e, CHIMERE_EUNSUPPORTED, "PostgreSQL: libpq lacks a function");
}

static void say_nothing(void *ud, const char *notice) { (void)ud, (void)notice; }

int sql_postgres_open(struct store *s, const char *url, struct err *e) {
    s->ops = &sql_postgres_ops;
    struct postgres *g = s->pg = mem_zalloc(sizeof *g);
    if (!g) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    int rc = load(&g->pq, e);
    if (rc) return rc;
    char name[STORE_PROCESS_BYTES + 8] = "chimere ";
    store_process_name(s, name + strlen(name));
    /* defaults, which the address can override */
    const char *const names[] = {"connect_timeout", "fallback_application_name", "dbname", NULL},
                      *const values[] = {"3", name, url, NULL};
    g->conn = g->pq.connectdbParams(names, values, 1);
    if (!g->conn) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (g->pq.status(g->conn) != PG_CONNECTION_OK) {
        note(s, NULL);
        err_set(e, CHIMERE_EIO, "%s: cannot connect: %s", s->path, g->message);
        err_hint(e, "expected postgres://USER:PASSWORD@HOST:PORT/DATABASE, with / @ : %% of a "
                    "password as %%2F %%40 %%3A %%25");
        return CHIMERE_EIO;
    }
    g->pq.setNoticeProcessor(g->conn, say_nothing, NULL);
    return greet(s) ? store_fail(s, 1, "set up", e) : 0;
}

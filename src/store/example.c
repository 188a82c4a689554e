#include "store/example.h"

#include <string.h>

#include "base/mem.h"
#include "store/store_impl.h"

static const char doing[] = "write examples";

/* Call it with the lock held: prepares one statement of a transaction. */
static struct sql_stmt *prepare(struct store *s, const char *sql, int *rc, struct err *e) {
    struct sql_stmt *st = NULL;
    int got = sql_prepare(s, sql, &st);
    *rc = got == SQL_OK ? 0 : store_fail(s, got, "prepare a statement", e);
    return st;
}

/* The statements of a change, which may contain many examples. */
struct change {
    struct store *s;
    struct sql_stmt *take, *insert, *touch; /* owned; insert is NULL if nothing is put */
};

static void change_fini(struct change *c) {
    sql_finalize(c->take);
    sql_finalize(c->insert);
    sql_finalize(c->touch);
}

/* Prepares the statements. There is an index for each of the two ways to identify an example; one statement for
 * both ways would read the whole domain. */
static int change_init(struct change *c, struct store *s, bool is_put, struct err *e) {
    int rc;
    *c = (struct change){.s = s};
    c->take = prepare(s,
                      is_put ? "DELETE FROM examples WHERE domain = ?1 AND question = ?2"
                               " RETURNING embedder"
                             : "DELETE FROM examples WHERE domain = ?1 AND id = ?2"
                               " RETURNING embedder",
                      &rc, e);
    if (!rc)
        c->touch = prepare(s,
                           "INSERT INTO example_domains(domain, embedder, n_change)"
                           " VALUES(?1, ?2, 1) ON CONFLICT(domain, embedder)"
                           " DO UPDATE SET n_change = example_domains.n_change + 1",
                           &rc, e);
    if (!rc && is_put)
        c->insert = prepare(s,
                            "INSERT INTO examples(domain, question, answer, source, score,"
                            " at_ms, embedder, vec) VALUES(?1,?2,?3,?4,?5,?6,?7,?8)"
                            " RETURNING id",
                            &rc, e);
    return rc;
}

/* got: result of the last step of st. */
static int finish(struct change *c, struct sql_stmt *st, int got, struct err *e) {
    int rc = got == SQL_DONE ? 0 : store_fail(c->s, got, doing, e);
    sql_reset(st);
    return rc;
}

/* Increments the change counter of a domain. */
static int touch(struct change *c, const char *domain, int64_t embedder, struct err *e) {
    sql_bind_text(c->touch, 1, domain);
    sql_bind_int64(c->touch, 2, embedder);
    return finish(c, c->touch, sql_step(c->touch), e);
}

/* Deletes the example that the bound statement identifies; *found: it existed. */
static int take_away(struct change *c, const char *domain, bool *found, struct err *e) {
    sql_bind_text(c->take, 1, domain);
    int got = sql_step(c->take);
    *found = got == SQL_ROW;
    int64_t embedder = *found ? sql_int64(c->take, 0) : 0;
    if (*found) got = sql_step(c->take);
    int rc = finish(c, c->take, got, e);
    return !rc && *found ? touch(c, domain, embedder, e) : rc;
}

static int insert(struct change *c, const struct store_example *x, int64_t *id, struct err *e) {
    struct sql_stmt *st = c->insert;
    sql_bind_text(st, 1, x->domain);
    sql_bind_text(st, 2, x->question);
    sql_bind_text(st, 3, x->answer);
    sql_bind_text(st, 4, x->source);
    sql_bind_double(st, 5, x->score);
    sql_bind_int64(st, 6, x->at_ms ? x->at_ms : store_now_ms());
    sql_bind_int64(st, 7, (int64_t)x->embedder);
    sql_bind_blob(st, 8, x->vec, (int)((size_t)x->n_vec * sizeof *x->vec));
    return finish(c, st, sql_insert(st, id), e);
}

static int end(struct change *c, int rc, struct err *e) {
    change_fini(c);
    return store_transaction_end(c->s, rc, doing, e);
}

int store_example_put(struct store *s, const struct store_example *x, size_t n, int64_t *ids,
                      struct err *e) {
    struct change c = {.s = s};
    bool found;
    int rc = store_transaction(s, doing, e);
    if (rc) return rc;
    rc = change_init(&c, s, true, e);
    for (size_t i = 0; i < n && !rc; i++) {
        sql_bind_text(c.take, 2, x[i].question);
        rc = take_away(&c, x[i].domain, &found, e);
        if (!rc) rc = insert(&c, &x[i], &ids[i], e);
        if (!rc) rc = touch(&c, x[i].domain, (int64_t)x[i].embedder, e);
    }
    return end(&c, rc, e);
}

int store_example_remove(struct store *s, const char *domain, int64_t id, struct err *e) {
    struct change c = {.s = s};
    bool found = false;
    int rc = store_transaction(s, doing, e);
    if (rc) return rc;
    rc = change_init(&c, s, false, e);
    if (!rc) {
        sql_bind_int64(c.take, 2, id);
        rc = take_away(&c, domain, &found, e);
    }
    if (!rc && !found)
        rc = err_set(e, CHIMERE_ENOENT, "%s: there is no example %lld", domain, (long long)id);
    return end(&c, rc, e);
}

/* ---- reading ---- */

static int walk(struct store *s, struct sql_stmt *st,
                int (*each)(void *ud, const struct store_example *x), void *ud, struct err *e) {
    int rc, stop = 0;
    while ((rc = sql_step(st)) == SQL_ROW && !stop) {
        struct store_example x = {.id = sql_int64(st, 0),
                                  .domain = store_string(st, 1),
                                  .question = store_string(st, 2),
                                  .answer = store_string(st, 3),
                                  .source = store_string(st, 4),
                                  .score = sql_double(st, 5),
                                  .at_ms = sql_int64(st, 6),
                                  .embedder = (uint64_t)sql_int64(st, 7)};
        stop = each(ud, &x);
    }
    int code = store_end(s, st, rc, e);
    return code ? code : stop;
}

int store_example_list(struct store *s, const char *domain,
                       int (*each)(void *ud, const struct store_example *x), void *ud,
                       struct err *e) {
    struct sql_stmt *st;
    int code = store_begin(s, Q_EXAMPLE_LIST, &st, e);
    if (code) return code;
    sql_bind_text(st, 1, domain);
    return walk(s, st, each, ud, e);
}

int store_example_one(struct store *s, int64_t id,
                      int (*each)(void *ud, const struct store_example *x), void *ud,
                      struct err *e) {
    struct sql_stmt *st;
    int code = store_begin(s, Q_EXAMPLE_ONE, &st, e);
    if (code) return code;
    sql_bind_int64(st, 1, id);
    return walk(s, st, each, ud, e);
}

int store_example_state(struct store *s, const char *domain, uint64_t embedder, bool count,
                        struct store_example_state *out, struct err *e) {
    static const enum store_query queries[] = {Q_EXAMPLE_CHANGE, Q_EXAMPLE_COUNT};
    int64_t value[2] = {0, 0};
    for (int i = 0; i <= (int)count; i++) {
        struct sql_stmt *st;
        int code = store_begin(s, queries[i], &st, e);
        if (code) return code;
        sql_bind_text(st, 1, domain);
        sql_bind_int64(st, 2, (int64_t)embedder);
        int rc = sql_step(st);
        if (rc == SQL_ROW) value[i] = sql_int64(st, 0);
        code = store_end(s, st, rc, e);
        if (code) return code;
    }
    *out = (struct store_example_state){value[0], value[1]};
    return 0;
}

int store_example_vectors(struct store *s, const char *domain, uint64_t embedder, int64_t after_id,
                          bool with_vec, int (*each)(void *ud, const struct store_example *x),
                          void *ud, struct err *e) {
    struct sql_stmt *st;
    int code = store_begin(s, with_vec ? Q_EXAMPLE_VECTORS : Q_EXAMPLE_IDS, &st, e), rc, stop = 0;
    if (code) return code;
    sql_bind_text(st, 1, domain);
    sql_bind_int64(st, 2, (int64_t)embedder);
    sql_bind_int64(st, 3, after_id);
    while ((rc = sql_step(st)) == SQL_ROW && !stop) {
        struct store_example x = {.id = sql_int64(st, 0), .embedder = embedder};
        if (with_vec) {
            x.vec = sql_blob(st, 1, &x.n_vec);
            x.n_vec /= (int32_t)sizeof *x.vec;
        }
        stop = each(ud, &x);
    }
    code = store_end(s, st, rc, e);
    return code ? code : stop;
}

int store_example_put_index(struct store *s, const char *domain, uint64_t embedder,
                            const void *data, size_t n, struct err *e) {
    struct sql_stmt *st;
    int code = store_begin(s, Q_EXAMPLE_PUT_INDEX, &st, e);
    if (code) return code;
    sql_bind_text(st, 1, domain);
    sql_bind_int64(st, 2, (int64_t)embedder);
    sql_bind_blob(st, 3, data, n);
    return store_end(s, st, sql_step(st), e);
}

int store_example_get_index(struct store *s, const char *domain, uint64_t embedder, void **out,
                            size_t *n, struct err *e) {
    struct sql_stmt *st;
    *out = NULL;
    *n = 0;
    int code = store_begin(s, Q_EXAMPLE_GET_INDEX, &st, e);
    if (code) return code;
    sql_bind_text(st, 1, domain);
    sql_bind_int64(st, 2, (int64_t)embedder);
    int rc = sql_step(st);
    int32_t n_blob = 0;
    const void *blob = rc == SQL_ROW ? sql_blob(st, 0, &n_blob) : NULL;
    bool short_of_memory = false;
    if (blob) {
        *n = (size_t)n_blob;
        *out = mem_alloc(*n);
        if (*out) memcpy(*out, blob, *n);
        else short_of_memory = true;
    }
    code = store_end(s, st, rc, e);
    return short_of_memory && !code ? err_set(e, CHIMERE_ENOMEM, "out of memory") : code;
}

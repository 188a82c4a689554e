/* test_shared.c: what several processes do with one store: who leads, whose jobs were interrupted, which passages are near. The store is a file, or
 * the server of CHIMERE_TEST_STORE. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "base/os/os.h"
#include "base/rng.h"
#include "scratch.h"
#include "store/server/doc_near.h"
#include "store/doc_scope.h"
#include "store/copy.h"
#include "store/doc_root.h"
#include "store/job.h"
#include "store/persona.h"
#include "store/server/lead.h"
#include "store/sql/sql_impl.h"
#include "store/store_impl.h"

static const char *server_url(void) { return getenv("CHIMERE_TEST_STORE"); }

static struct store *open_ok(const char *path) {
    struct store *s;
    struct err e = {0};
    if (store_open(&s, path, &e)) fail_msg("%s", e.text);
    return s;
}

/* A fresh place for a store: a file, or an empty schema of the server. */
static const char *fresh(const char *name) {
    static char place[1024], sql[256];
    snprintf(place, sizeof place, "%s/%s", scratch, name);
    if (!server_url()) return place;
    struct store *s = open_ok(server_url());
    snprintf(sql, sizeof sql, "DROP SCHEMA IF EXISTS %s CASCADE; CREATE SCHEMA %s", name, name);
    assert_int_equal(sql_exec(s, sql), SQL_OK);
    store_close(s);
    snprintf(place, sizeof place, "%s&options=-csearch_path%%3D%s", server_url(), name);
    return place;
}

/* A server notices the end of a connection after a moment. */
static void lead_soon(struct store *s) {
    struct err e = {0};
    int rc = CHIMERE_EBUSY;
    for (int i = 0; i < 500 && rc == CHIMERE_EBUSY; i++)
        if ((rc = store_lead(s, &e))) os_sleep_ms(10);
    if (rc) fail_msg("%s", e.text);
}

static void one_process_leads_at_a_time(void **state) {
    char place[1024];
    struct err e = {0};
    (void)state;
    snprintf(place, sizeof place, "%s", fresh("led"));
    struct store *one = open_ok(place), *two = open_ok(place), *other = open_ok(fresh("apart"));
    assert_int_equal(store_lead(one, &e), 0);
    assert_true(store_leads(one));
    assert_int_equal(store_lead(other, &e), 0); /* another store of the same database */
    if (server_url()) {
        assert_int_equal(store_lead(two, &e), CHIMERE_EBUSY);
        assert_non_null(strstr(e.text, "leads the nights of this store"));
        assert_non_null(strstr(e.text, " chimere ")); /* who leads, by the name of its process */
        assert_false(store_leads(two));
    } else {
        assert_int_equal(store_lead(two, &e), 0); /* the folder of the nights has a lock */
    }
    store_unlead(one);
    assert_int_equal(store_lead(two, &e), 0);
    if (server_url()) { /* the leader's connection is lost, and another process takes the lead */
        struct store *admin = open_ok(server_url());
        char sql[256];
        snprintf(sql, sizeof sql,
                 "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"
                 " AND classid = 4849996 AND CAST(objid AS BIGINT) ="
                 " (CAST(hashtext('led') AS BIGINT) & 4294967295)");
        assert_int_equal(sql_exec(admin, sql), SQL_OK);
        store_close(admin);
        lead_soon(one);
        assert_false(store_leads(two));
    } else {
        lead_soon(one);
    }
    assert_true(store_leads(one));
    store_close(one); /* ends its lead */
    lead_soon(two);
    store_close(two);
    store_close(other);
}

static int see_job(void *ud, const struct store_job *j) {
    strncat(ud, j->name, 20);
    strncat(ud, *j->state == 'i' ? "! " : " ", 3);
    return 0;
}

static void jobs_of_processes_that_ended_are_interrupted(void **state) {
    struct err e = {0};
    char seen[128] = "", place[1024], sql[256];
    (void)state;
    snprintf(place, sizeof place, "%s", fresh("jobs_of"));
    struct store *s = open_ok(place);
    static const char *const names[] = {"mine", "other", "done"};
    int64_t id[3];
    for (int i = 0; i < 3; i++) {
        struct store_job j = {.kind = "k", .name = names[i], .state = i == 2 ? "done" : "running"};
        assert_int_equal(store_job_add(s, &j, &id[i], &e), 0);
    }
    /* a process of another machine, or one of this machine that does not exist */
    snprintf(sql, sizeof sql, "UPDATE jobs SET owner = '%s999999/1' WHERE name <> 'mine'",
             server_url() ? "elsewhere:" : "");
    assert_int_equal(sql_exec(s, sql), SQL_OK);
    struct store *next = open_ok(place);
    assert_int_equal(store_job_interrupt(next, &e), 0);
    assert_int_equal(store_job_list(next, NULL, 9, see_job, seen, &e), 0);
    assert_string_equal(seen, "done other! mine ");
    store_close(next);
    store_close(s);
}

/* ---- vectors ---- */

enum { N_DIM = 24, N_DOC = 300, N_NEAR = 10 };

struct near {
    const float *query;
    int64_t ids[N_DOC];
    double scores[N_DOC];
    int n;
};

static int take_near(void *ud, const struct store_chunk *c) {
    struct near *n = ud;
    n->ids[n->n] = c->id;
    n->scores[n->n++] = c->score;
    return 0;
}

/* Brute force: keeps the best, in order. */
static int compare_near(void *ud, const struct store_chunk *c) {
    struct near *n = ud;
    double score = 0;
    if (c->n_vec != N_DIM || isinf(c->vec[0])) return 0;
    for (int i = 0; i < N_DIM; i++) score += (double)c->vec[i] * (double)n->query[i];
    int at = n->n++;
    for (; at > 0 && n->scores[at - 1] < score; at--) {
        n->ids[at] = n->ids[at - 1];
        n->scores[at] = n->scores[at - 1];
    }
    n->ids[at] = c->id;
    n->scores[at] = score;
    return 0;
}

static void unit_vector(struct rng *r, float *v) {
    double square = 0;
    for (int i = 0; i < N_DIM; i++) {
        v[i] = (float)((double)rng_below(r, 2000001) * 1e-6 - 1);
        square += (double)v[i] * (double)v[i];
    }
    for (int i = 0; i < N_DIM; i++) v[i] = (float)((double)v[i] / sqrt(square));
}

static void nearest_passages_are_those_of_brute_force(void **state) {
    static const char *const owners[] = {NULL, "key-a", "key-b"};
    char scope[STORE_DOC_SCOPE_BYTES], path[16];
    float v[N_DIM], bad[2] = {1, 2}, infinite[N_DIM] = {INFINITY};
    struct err e = {0};
    struct rng r;
    (void)state;
    struct store *s = open_ok(fresh("near"));
    rng_seed(&r, 5);
    for (int i = 0; i < N_DOC; i++) {
        unit_vector(&r, v);
        snprintf(path, sizeof path, "%d", i);
        struct store_doc d = {.collection = "all", .path = path, .embedder = i % 7 ? 9 : 8};
        struct store_chunk c = {.text = "t", .heading = "", .vec = v, .n_vec = N_DIM};
        if (i % 50 == 49) c.vec = bad, c.n_vec = 2; /* damaged, or of another model */
        if (i % 50 == 48) c.vec = infinite;
        if (i % 50 == 47) c.vec = NULL, c.n_vec = 0;
        if (i % 3) {
            assert_int_equal(store_doc_scope(owners[i % 3], "my:x", scope, &e), 0);
            d.collection = scope;
        }
        if (store_doc_put(s, &d, &c, 1, &e)) fail_msg("%s", e.text);
    }
    bool can = getenv("CHIMERE_TEST_VECTORS") != NULL;
    for (int i = 0; i < 30; i++) {
        unit_vector(&r, v);
        assert_int_equal(
            store_doc_scope(i % 2 ? "key-a" : "key-b", i % 3 ? NULL : "my:x", scope, &e), 0);
        struct near got = {.query = v}, want = {.query = v};
        const struct store_doc_query q = {.scope = i % 5 ? scope : NULL,
                                          .embedder = i % 2 ? 9 : 8,
                                          .query = v,
                                          .n_dim = N_DIM,
                                          .k = N_NEAR};
        int rc = store_doc_nearest(s, &q, take_near, &got, &e);
        assert_int_equal(rc, can ? 0 : CHIMERE_EUNSUPPORTED);
        if (!can) break;
        assert_int_equal(store_doc_vectors(s, q.scope, q.embedder, compare_near, &want, &e), 0);
        assert_int_equal(got.n, want.n < N_NEAR ? want.n : N_NEAR);
        for (int k = 0; k < got.n; k++) {
            assert_int_equal(got.ids[k], want.ids[k]);
            assert_float_equal(got.scores[k], want.scores[k], 1e-6);
        }
    }
    store_close(s);
}

static int see_root(void *ud, const struct store_doc_root *r) {
    strncat(ud, r->path, 20);
    strncat(ud, r->is_excluded ? "! " : " ", 3);
    return 0;
}

/* Without them, new files of these folders would not be found after a move to a server. */
static void the_folders_of_documents_are_copied(void **state) {
    const struct store_doc_root roots[] = {
        {.collection = "c", .path = "/a"},
        {.collection = "c", .path = "/a/b", .is_excluded = true}};
    struct err e = {0};
    char seen[64] = "", place[1024];
    (void)state;
    snprintf(place, sizeof place, "%s", fresh("roots"));
    struct store *from = open_ok(place), *to = open_ok(fresh("roots_copy"));
    for (int i = 0; i < 2; i++) assert_int_equal(store_doc_root_put(from, &roots[i], &e), 0);
    assert_int_equal(store_copy(from, to, &e), 2);
    assert_int_equal(store_doc_root_list(to, "c", see_root, seen, &e), 0);
    assert_string_equal(seen, "/a /a/b! ");
    store_close(from);
    /* then the other file of a server, whose rows are of other kinds; rows of the same kind are not mixed */
    const struct store_persona p = {.name = "pirate", .text = "Speak so."};
    int64_t id;
    snprintf(place, sizeof place, "%s", fresh("personas"));
    from = open_ok(place);
    assert_int_equal(store_persona_put(from, "ann", &p, &id, &e), 0);
    assert_int_equal(store_copy(from, to, &e), 1);
    assert_int_equal(store_copy(from, to, &e), CHIMERE_EINVAL);
    assert_non_null(strstr(e.text, "personas has 1 rows"));
    store_close(from);
    store_close(to);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_process_leads_at_a_time),
        cmocka_unit_test(nearest_passages_are_those_of_brute_force),
        cmocka_unit_test(the_folders_of_documents_are_copied),
        cmocka_unit_test(jobs_of_processes_that_ended_are_interrupted),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}

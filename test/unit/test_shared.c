/* test_shared.c: what several processes do with one store: who leads, whose jobs were interrupted. The store is a file, or
 * the server of CHIMERE_TEST_STORE. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/os/os.h"
#include "scratch.h"
#include "store/job.h"
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_process_leads_at_a_time),
        cmocka_unit_test(jobs_of_processes_that_ended_are_interrupted),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}

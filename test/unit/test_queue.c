/* test_queue.c: jobs that processes share through one store: each is done once, and those of a process that was killed are
 * done by another. The store is a file, or the server of CHIMERE_TEST_STORE. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/os/os.h"
#include "jobs/jobs.h"
#include "await.h"
#include "scratch.h"
#include "store/person.h"
#include "store/job.h"
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

static void put(struct store *s, const char *name, int priority) {
    struct err e = {0};
    const struct store_job j = {.kind = "k",
                                .name = name,
                                .priority = priority,
                                .body = "{\"a\":\"\xc3\xa9\"}",
                                .person = "ann"};
    if (store_job_share(s, &j, &e)) fail_msg("%s", e.text);
}

/* Takes a job and frees its texts. Returns its id; 0: there is none. */
static int64_t take(struct store *s, const char *name) {
    struct store_job_taken t;
    struct err e = {0};
    int rc = store_job_take(s, "k", &t, &e);
    if (rc < 0) fail_msg("%s", e.text);
    if (!rc) return 0;
    if (name) assert_string_equal(t.name, name);
    assert_string_equal(t.body, "{\"a\":\"\xc3\xa9\"}");
    mem_free(t.name);
    mem_free(t.body);
    return t.id;
}

static int note(void *ud, const struct store_job *j) {
    char *all = ud;
    size_t n = strlen(all);
    snprintf(all + n, 512 - n, "%s %s%s%s; ", j->name, j->state, *j->error ? ": " : "", j->error);
    return 0;
}
static const char *history(struct store *s) {
    static char text[512];
    struct err e = {0};
    *text = 0;
    assert_int_equal(store_job_list(s, NULL, 16, note, text, &e), 0);
    return text;
}

static int64_t count(struct store *s, const char *sql) {
    struct sql_stmt *st = NULL;
    pthread_mutex_lock(&s->lock); /* a runner may use the store too */
    assert_int_equal(sql_prepare(s, sql, &st), SQL_OK);
    assert_int_equal(sql_step(st), SQL_ROW);
    int64_t n = sql_int64(st, 0);
    sql_finalize(st);
    pthread_mutex_unlock(&s->lock);
    return n;
}

/* ---- the table ---- */

static void jobs_are_taken_in_order_and_end(void **state) {
    struct err e = {0};
    (void)state;
    struct store *s = open_ok(fresh("taken"));
    assert_int_equal(take(s, NULL), 0);
    put(s, "low", -1);
    put(s, "first", 0);
    put(s, "second", 0);
    put(s, "high", 5);
    int64_t high = take(s, "high"), first = take(s, "first");
    struct store_job end = {.id = high, .state = "done", .ended_ms = 1};
    assert_int_equal(store_job_update(s, &end, &e), 0);
    assert_int_equal(store_job_return(s, first, &e), 0);
    assert_int_equal(store_job_return(s, high, &e), 0); /* it has ended */
    take(s, "first");
    take(s, "second");
    take(s, "low");
    assert_int_equal(take(s, NULL), 0);
    assert_string_equal(history(s), "high done; second running; first running; low running; ");
    assert_int_equal(count(s, "SELECT count(*) FROM jobs WHERE body IS NOT NULL"), 3);
    /* the texts of a person are forgotten with the person */
    struct store_forgotten gone;
    const struct store_person ann = {.owner = "ann"};
    assert_int_equal(store_person_forget(s, &ann, &gone, &e), 0);
    assert_string_equal(history(s), "high done; ");
    store_close(s);
}

static void a_kind_has_a_ceiling(void **state) {
    struct err e = {0};
    char sql[400];
    (void)state;
    struct store *s = open_ok(fresh("ceiling"));
    snprintf(sql, sizeof sql,
             "INSERT INTO jobs(state, ended_ms, n_done, n_total, progress, error, kind, name,"
             " started_ms, body) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n"
             " WHERE i < %d) SELECT 'queued', 0, 0, 0, '', '', 'k', 'x', 1, 'y' FROM n",
             STORE_JOB_MAX_QUEUED - 1);
    assert_int_equal(sql_exec(s, sql), SQL_OK);
    put(s, "last", 9);
    const struct store_job more = {.kind = "k", .name = "more", .body = "b"},
                           other = {.kind = "other", .name = "more", .body = "b"};
    assert_int_equal(store_job_share(s, &more, &e), CHIMERE_EBUSY);
    assert_int_equal(store_job_share(s, &other, &e), 0);
    take(s, "last");
    assert_int_equal(store_job_share(s, &more, &e), 0);
    store_close(s);
}

/* A process that ended is one of another machine, or of this machine that does not exist. */
static void lose(struct store *s) {
    char sql[128];
    snprintf(sql, sizeof sql, "UPDATE jobs SET owner = '%s999999/1' WHERE state = 'running'",
             server_url() ? "elsewhere:" : "");
    assert_int_equal(sql_exec(s, sql), SQL_OK);
}

static void jobs_of_processes_that_ended_are_taken_over(void **state) {
    struct err e = {0};
    char place[1024];
    (void)state;
    snprintf(place, sizeof place, "%s", fresh("lost"));
    struct store *s = open_ok(place), *next = open_ok(place);
    put(s, "one", 0);
    int64_t id = take(s, "one");
    assert_int_equal(store_job_interrupt(next, &e), 0); /* its process lives */
    assert_int_equal(take(next, NULL), 0);
    lose(s);
    assert_int_equal(store_job_interrupt(next, &e), 0);
    assert_int_equal(take(next, "one"), id);
    /* what the first process says now does not count: it is no longer its job */
    lose(s);
    const struct store_job late = {.id = id, .state = "done", .ended_ms = 1};
    assert_int_equal(store_job_update(s, &late, &e), 0);
    assert_string_equal(history(s), "one running; ");
    assert_int_equal(store_job_interrupt(next, &e), 0);
    take(next, "one");
    lose(s); /* for the third time */
    assert_int_equal(store_job_interrupt(next, &e), 0);
    assert_int_equal(take(next, NULL), 0);
    assert_string_equal(history(s), "one failed: each process that ran it has ended; ");
    assert_int_equal(count(s, "SELECT count(*) FROM jobs WHERE body IS NOT NULL OR person <> ''"),
                     0);
    store_close(s);
    store_close(next);
}

enum { N_TAKER = 4, N_TAKEN = 120 };
static _Atomic int n_of[N_TAKEN];

static void *take_all(void *place) {
    struct store *s = open_ok(place);
    struct store_job_taken t;
    struct err e = {0};
    int64_t n = 0;
    while (store_job_take(s, "k", &t, &e) > 0) {
        n_of[atoi(t.name)]++;
        mem_free(t.name);
        mem_free(t.body);
        n++;
    }
    store_close(s);
    return (void *)(intptr_t)n;
}

static void no_job_is_taken_twice(void **state) {
    char place[1024], name[8];
    pthread_t taker[N_TAKER];
    (void)state;
    snprintf(place, sizeof place, "%s", fresh("race"));
    struct store *s = open_ok(place);
    for (int i = 0; i < N_TAKEN; i++) {
        snprintf(name, sizeof name, "%d", i);
        put(s, name, 0);
    }
    for (int i = 0; i < N_TAKER; i++)
        assert_int_equal(pthread_create(&taker[i], NULL, take_all, place), 0);
    for (int i = 0; i < N_TAKER; i++) pthread_join(taker[i], NULL);
    for (int i = 0; i < N_TAKEN; i++) assert_int_equal(n_of[i], 1);
    /* a row that another transaction has locked is skipped without a wait */
    if (server_url()) {
        put(s, "held", 1);
        put(s, "free", 0);
        struct store *holder = open_ok(place);
        assert_int_equal(sql_exec(holder, "BEGIN"), SQL_OK);
        count(holder, "SELECT 1 FROM jobs WHERE name = 'held' FOR UPDATE");
        take(s, "free");
        assert_int_equal(take(s, NULL), 0);
        assert_int_equal(sql_exec(holder, "ROLLBACK"), SQL_OK);
        take(s, "held");
        store_close(holder);
    }
    store_close(s);
}

/* ---- runners ---- */

/* A process with a runner: what its jobs did. */
struct place {
    struct store *store;
    struct jobs *jobs;
    _Atomic int n_run, n_drop;
    _Atomic bool hold; /* work continues until this is false, or it is cancelled */
    struct jobs_kind kind;
};
struct parcel {
    struct place *p;
    char name[16];
};

static int work(struct jobs_run *run, void *arg, struct err *e) {
    struct parcel *x = arg;
    (void)e;
    while (x->p->hold && jobs_continue(run)) os_sleep_ms(2);
    if (!jobs_continue(run)) return CHIMERE_ECANCELLED;
    x->p->n_run++;
    return 0;
}
static void drop(void *arg) {
    struct parcel *x = arg;
    x->p->n_drop++;
    mem_free(x);
}
static struct parcel *parcel_of(struct place *p, const char *name) {
    struct parcel *x = mem_zalloc(sizeof *x);
    assert_non_null(x);
    x->p = p;
    snprintf(x->name, sizeof x->name, "%s", name);
    return x;
}
static int read_parcel(void *ud, const char *name, const char *body, struct jobs_spec *out,
                       struct err *e) {
    if (strcmp(body, "text")) return err_set(e, CHIMERE_EFORMAT, "expected a text");
    *out = (struct jobs_spec){.work = work, .drop = drop, .arg = parcel_of(ud, name)};
    return 0;
}

static void place_open(struct place *p, const char *path) {
    struct err e = {0};
    *p = (struct place){.store = open_ok(path)};
    p->kind = (struct jobs_kind){"k", read_parcel, p};
    const struct jobs_params params = {.store = p->store, .kinds = &p->kind, .n_kind = 1};
    if (jobs_open(&p->jobs, &params, &e)) fail_msg("%s", e.text);
}
static void place_close(struct place *p) {
    jobs_close(p->jobs);
    store_close(p->store);
}
static void post(struct place *p, const char *name) {
    struct err e = {0};
    const struct jobs_spec spec = {.kind = "k",
                                   .name = name,
                                   .work = work,
                                   .drop = drop,
                                   .arg = parcel_of(p, name),
                                   .body = "text"};
    if (jobs_post(p->jobs, &spec, NULL, &e)) fail_msg("%s", e.text);
}
static void await(const struct place *p, int n) {
    AWAIT(p->n_run >= n);
    assert_int_equal(p->n_run, n);
}

static void a_free_process_helps_a_busy_one(void **state) {
    char path[1024];
    struct err e = {0};
    struct place busy, idle;
    (void)state;
    snprintf(path, sizeof path, "%s", fresh("help"));
    place_open(&busy, path);
    place_open(&idle, path);
    busy.hold = true;
    post(&busy, "long");
    AWAIT(count(busy.store, "SELECT count(*) FROM jobs"));
    for (int i = 0; i < 6; i++) post(&busy, "short");
    await(&idle, 6);
    AWAIT(busy.n_drop >= 6);
    assert_int_equal(busy.n_drop, 6); /* what was handed over is freed here */
    place_close(&idle);
    busy.hold = false;
    jobs_wait(busy.jobs, 0);
    assert_int_equal(busy.n_run, 1);
    /* what cannot be read is said and given up, and does not stop the queue */
    const struct store_job odd = {.kind = "k", .name = "odd", .body = "of another version"};
    assert_int_equal(store_job_share(busy.store, &odd, &e), 0);
    jobs_wait(busy.jobs, 0);
    assert_non_null(strstr(history(busy.store), "odd failed: expected a text"));
    place_close(&busy);
}

static void closing_leaves_shared_jobs_to_others(void **state) {
    char path[1024];
    struct place one, two;
    (void)state;
    snprintf(path, sizeof path, "%s", fresh("closing"));
    place_open(&one, path);
    one.hold = true;
    post(&one, "runs");
    post(&one, "waits");
    os_sleep_ms(50);
    place_close(&one);
    assert_int_equal(one.n_run, 0);
    assert_int_equal(one.n_drop, 2);
    place_open(&two, path);
    jobs_wait(two.jobs, 0);
    assert_int_equal(two.n_run, 2);
    assert_int_equal(count(two.store, "SELECT count(*) FROM jobs WHERE state = 'done'"), 2);
    place_close(&two);
}

static void a_killed_process_loses_no_job(void **state) {
    char path[1024];
    struct place p;
    int fd[2];
    char byte;
    (void)state;
    snprintf(path, sizeof path, "%s", fresh("killed"));
    store_close(open_ok(path));
    assert_int_equal(pipe(fd), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        place_open(&p, path);
        p.hold = true;
        for (int i = 0; i < 5; i++) post(&p, "job");
        while (count(p.store, "SELECT count(*) FROM jobs") < 5) os_sleep_ms(2);
        if (write(fd[1], "x", 1) != 1) _exit(1);
        for (;;) os_sleep_ms(1000);
    }
    assert_int_equal(read(fd[0], &byte, 1), 1);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    struct store *s = open_ok(path);
    struct err e = {0};
    for (int i = 0; i < 250; i++) { /* a server notices the end of a connection after a moment */
        assert_int_equal(store_job_interrupt(s, &e), 0);
        if (!count(s, "SELECT count(*) FROM jobs WHERE state = 'running'")) break;
        os_sleep_ms(20);
    }
    store_close(s);
    place_open(&p, path);
    jobs_wait(p.jobs, 0);
    assert_int_equal(p.n_run, 5);
    place_close(&p);
    close(fd[0]);
    close(fd[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_are_taken_in_order_and_end),
        cmocka_unit_test(a_kind_has_a_ceiling),
        cmocka_unit_test(jobs_of_processes_that_ended_are_taken_over),
        cmocka_unit_test(no_job_is_taken_twice),
        cmocka_unit_test(a_free_process_helps_a_busy_one),
        cmocka_unit_test(closing_leaves_shared_jobs_to_others),
        cmocka_unit_test(a_killed_process_loses_no_job),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}

/* test_jobs.c: the runner of background work: order, exclusion, cancellation, history, shutdown. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "jobs/jobs.h"
#include "store/job.h"

#include "await.h"
#include "scratch.h"

static void sleep_ms(int ms) {
    nanosleep(&(struct timespec){ms / 1000, (long)(ms % 1000) * 1000000}, NULL);
}

/* Work checks every 2 ms whether to continue; the rest of the time is for threads that wait for a processor. */
enum { SOON_MS = 10000 };

/* What the work of these tests is told and leaves behind. */
struct probe {
    _Atomic int n_run, n_drop, n_now, most_now;
    _Atomic bool hold; /* work runs until this is false, or it is cancelled */
    char order[64];    /* the letters of jobs that ran; one worker writes */
    size_t n_order;
};

struct task {
    struct probe *p;
    char letter;
    int rc;
    const char *why;
};

static int work(struct jobs_run *run, void *arg, struct err *e) {
    struct task *t = arg;
    struct probe *p = t->p;
    int now = ++p->n_now;
    if (now > p->most_now) p->most_now = now;
    p->n_run++;
    if (t->letter) p->order[p->n_order++] = t->letter;
    jobs_progress(run, 1, 4, "a quarter");
    bool go = jobs_continue(run);
    while (go && p->hold) {
        sleep_ms(2);
        go = jobs_continue(run);
    }
    p->n_now--;
    if (!go) return CHIMERE_ECANCELLED;
    return t->rc ? err_set(e, t->rc, "%s", t->why) : 0;
}

static void drop(void *arg) { ((struct task *)arg)->p->n_drop++; }

static struct jobs *open_ok(struct jobs_params p) {
    struct jobs *j;
    struct err e = {0};
    if (jobs_open(&j, &p, &e)) fail_msg("%s", e.text);
    return j;
}

static int64_t post(struct jobs *j, struct task *t, const char *name, int priority) {
    int64_t id = 0;
    struct err e = {0};
    const struct jobs_spec spec = {
        .kind = "test", .name = name, .priority = priority, .work = work, .drop = drop, .arg = t};
    if (jobs_post(j, &spec, &id, &e)) fail_msg("%s", e.text);
    return id;
}

static enum jobs_state state_of(struct jobs *j, int64_t id) {
    struct jobs_status s;
    assert_true(jobs_status(j, id, &s));
    return s.state;
}

static void await_running(struct jobs *j, int64_t id) {
    AWAIT(state_of(j, id) != JOBS_QUEUED);
    assert_int_equal(state_of(j, id), JOBS_RUNNING);
}

static void higher_priorities_run_first_and_equals_in_order(void **state) {
    (void)state;
    struct probe p = {0};
    struct task t[5];
    const int priority[5] = {0, 5, -1, 5, 0};
    struct jobs *j = open_ok((struct jobs_params){0});
    jobs_pause(j, true);
    for (int i = 0; i < 5; i++) {
        char name[8];
        snprintf(name, sizeof name, "%d", i);
        t[i] = (struct task){.p = &p, .letter = (char)('a' + i)};
        post(j, &t[i], name, priority[i]);
    }
    sleep_ms(20);
    assert_int_equal(p.n_run, 0); /* paused */
    struct jobs_status rows[3];
    assert_int_equal(jobs_list(j, rows, 3), 5);
    assert_string_equal(rows[2].name, "2");
    assert_int_equal(rows[2].state, JOBS_QUEUED);
    jobs_pause(j, false);
    jobs_wait(j, 0);
    assert_string_equal(p.order, "bdaec");
    assert_int_equal(p.n_drop, 5);
    jobs_close(j);
}

static void one_name_runs_once_at_a_time(void **state) {
    (void)state;
    struct probe same = {0}, other = {.hold = true};
    struct task a = {.p = &same}, b = {.p = &other};
    struct jobs *j = open_ok((struct jobs_params){.n_worker = 4});
    jobs_pause(j, true);
    for (int i = 0; i < 8; i++) post(j, &a, "same", 0);
    int64_t id = post(j, &b, "other", 0); /* the lock of one name does not hold up others */
    int64_t two = post(j, &b, "another", 0);
    jobs_pause(j, false);
    await_running(j, id);
    await_running(j, two);
    AWAIT(other.n_now == 2);
    assert_int_equal(other.n_now, 2);
    other.hold = false;
    jobs_wait(j, 0);
    assert_int_equal(same.n_run, 8);
    assert_int_equal(same.most_now, 1);
    jobs_close(j);
}

static void cancelled_work_ends_soon(void **state) {
    (void)state;
    struct probe p = {.hold = true};
    struct task t = {.p = &p};
    struct err e = {0};
    struct jobs *j = open_ok((struct jobs_params){0});
    int64_t runs = post(j, &t, "runs", 0), waits = post(j, &t, "waits", 0);
    await_running(j, runs);
    assert_int_equal(jobs_cancel(j, waits, &e), 0); /* at once, without having run */
    assert_int_equal(state_of(j, waits), JOBS_CANCELLED);
    assert_int_equal(p.n_drop, 1);
    jobs_pause(j, true); /* paused work hears of it, too */
    sleep_ms(10);
    int64_t start = clock_ns();
    assert_int_equal(jobs_cancel(j, runs, &e), 0);
    jobs_wait(j, runs);
    assert_true(clock_ms_since(start) < SOON_MS);
    assert_int_equal(state_of(j, runs), JOBS_CANCELLED);
    assert_int_equal(jobs_cancel(j, runs, &e), CHIMERE_ENOENT);
    assert_int_equal(jobs_cancel(j, 99, &e), CHIMERE_ENOENT);
    assert_non_null(strstr(e.text, "99"));
    assert_int_equal(p.n_run, 1);
    assert_int_equal(p.n_drop, 2);
    jobs_close(j);
}

static void a_failure_keeps_its_text_and_progress(void **state) {
    (void)state;
    struct probe p = {0};
    struct task t = {.p = &p, .rc = CHIMERE_EIO, .why = "disk: expected room, got none"};
    struct jobs *j = open_ok((struct jobs_params){0});
    int64_t id = post(j, &t, "x", 0);
    struct jobs_status s;
    jobs_wait(j, id);
    assert_true(jobs_status(j, id, &s));
    assert_int_equal(s.state, JOBS_FAILED);
    assert_string_equal(s.error, t.why);
    assert_string_equal(s.text, "a quarter");
    assert_int_equal(s.n_done, 1);
    assert_int_equal(s.n_total, 4);
    assert_true(s.started_ms > 0 && s.ended_ms >= s.started_ms);
    for (int i = 0; i < 2 * JOBS_KEPT; i++) post(j, &t, "x", 0);
    jobs_wait(j, 0);
    assert_int_equal(jobs_list(j, NULL, 0), JOBS_KEPT); /* old ones are forgotten */
    assert_false(jobs_status(j, id, &s));
    jobs_close(j);
}

struct seen {
    int n;
    char text[16][160];
};

static int see(void *ud, const struct store_job *r) {
    struct seen *s = ud;
    assert_true(s->n < 16);
    snprintf(s->text[s->n++], sizeof s->text[0], "%s %s %s %lld/%lld [%s] [%s]%s", r->kind, r->name,
             r->state, (long long)r->n_done, (long long)r->n_total, r->progress, r->error,
             r->ended_ms >= r->started_ms && r->started_ms ? "" : " open");
    return 0;
}

/* Leaves a row "running" as a process does that is killed. */
static void leave_running(const char *path) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        struct store *store;
        int64_t id;
        const struct store_job lost = {
            .kind = "old", .name = "x", .state = "running", .started_ms = 1};
        _exit(store_open(&store, path, NULL) || store_job_add(store, &lost, &id, NULL));
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void the_store_has_the_history(void **state) {
    (void)state;
    struct err e = {0};
    struct store *store;
    char path[4096];
    snprintf(path, sizeof path, "%s/jobs.db", scratch);
    assert_int_equal(store_open(&store, path, &e), 0);
    store_close(store);
    leave_running(path); /* by a process that is gone */
    assert_int_equal(store_open(&store, path, &e), 0);
    int64_t id; /* by a process that lives, as far as another runner knows */
    const struct store_job live = {.kind = "live", .name = "x", .state = "running"};
    assert_int_equal(store_job_add(store, &live, &id, &e), 0);
    struct probe p = {0}, held = {.hold = true};
    struct task good = {.p = &p}, bad = {.p = &p, .rc = CHIMERE_EIO, .why = "broke"},
                long_one = {.p = &held};
    struct jobs *j = open_ok((struct jobs_params){.store = store});
    post(j, &good, "good", 0);
    post(j, &bad, "bad", 0);
    await_running(j, post(j, &long_one, "long", -1));
    struct seen s = {0};
    AWAIT(
        (s.n = 0, store_job_list(store, NULL, 16, see, &s, &e) || s.n == 5)); /* its row follows */
    assert_int_equal(s.n, 5);
    assert_string_equal(s.text[0], "test long running 0/0 [] [] open");
    int64_t waits = post(j, &good, "waits", 0);
    assert_int_equal(jobs_cancel(j, waits, &e), 0);
    jobs_close(j);
    s.n = 0;
    assert_int_equal(store_job_list(store, NULL, 16, see, &s, &e), 0);
    assert_int_equal(s.n, 6);
    assert_string_equal(s.text[0], "test waits cancelled 0/0 [] []");
    assert_string_equal(s.text[1], "test long cancelled 1/4 [a quarter] []");
    assert_string_equal(s.text[2], "test bad failed 1/4 [a quarter] [broke]");
    assert_string_equal(s.text[3], "test good done 1/4 [a quarter] []");
    assert_string_equal(s.text[4], "live x running 0/0 [] [] open");
    assert_string_equal(s.text[5], "old x interrupted 0/0 [] [] open");
    s.n = 0;
    assert_int_equal(store_job_list(store, "old", 16, see, &s, &e), 0);
    assert_int_equal(s.n, 1);
    store_close(store);
}

static void closing_stops_what_runs_and_drops_what_waits(void **state) {
    (void)state;
    for (int round = 0; round < 20; round++) {
        struct probe p = {.hold = true};
        struct task t = {.p = &p};
        struct jobs *j = open_ok((struct jobs_params){.n_worker = 3, .max_queued = 200});
        if (round % 4 == 1) jobs_pause(j, true);
        for (int i = 0; i < 150; i++) {
            char name[16];
            snprintf(name, sizeof name, "%d", i % 7);
            post(j, &t, name, i % 3);
        }
        if (round % 4 == 2) sleep_ms(5);
        int64_t start = clock_ns();
        jobs_close(j);
        assert_true(clock_ms_since(start) < SOON_MS);
        assert_int_equal(p.n_drop, 150);
        assert_true(p.n_run <= 3);
    }
}

static void a_full_queue_and_bad_names_are_refused(void **state) {
    (void)state;
    struct probe p = {0};
    struct task t = {.p = &p};
    struct err e = {0};
    struct jobs *j = open_ok((struct jobs_params){.max_queued = 2});
    struct jobs_spec spec = {.kind = "test", .name = "x", .work = work, .drop = drop, .arg = &t};
    jobs_pause(j, true);
    post(j, &t, "x", 0);
    post(j, &t, "x", 0);
    assert_int_equal(jobs_post(j, &spec, NULL, &e), CHIMERE_EBUSY);
    char name[JOBS_MAX_NAME + 2];
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = 0;
    spec.name = name;
    assert_int_equal(jobs_post(j, &spec, NULL, &e), CHIMERE_ELIMIT);
    jobs_close(j);
    assert_int_equal(p.n_drop, 2); /* of refused jobs the argument stays the caller's */
    assert_int_equal(jobs_open(&j, &(struct jobs_params){.n_worker = 99}, &e), CHIMERE_EINVAL);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    struct probe p = {0};
    struct task t = {.p = &p};
    const struct jobs_spec spec = {
        .kind = "test", .name = "x", .work = work, .drop = drop, .arg = &t};
    bool whole = false;
    int n;
    for (n = 1; !whole && n < 20; n++) {
        struct jobs *j = NULL;
        struct err e = {0};
        mem_fail_nth(n);
        int rc = jobs_open(&j, &(struct jobs_params){0}, &e), opened = !rc;
        if (opened) rc = jobs_post(j, &spec, NULL, &e);
        mem_fail_nth(0);
        if (opened && !rc) jobs_wait(j, 0);
        jobs_close(j);
        whole = !rc;
        if (rc) assert_int_equal(rc, CHIMERE_ENOMEM);
    }
    assert_int_equal(n, 4); /* the runner, the job, then all is well */
    assert_int_equal(p.n_run, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(higher_priorities_run_first_and_equals_in_order),
        cmocka_unit_test(one_name_runs_once_at_a_time),
        cmocka_unit_test(cancelled_work_ends_soon),
        cmocka_unit_test(a_failure_keeps_its_text_and_progress),
        cmocka_unit_test(the_store_has_the_history),
        cmocka_unit_test(closing_stops_what_runs_and_drops_what_waits),
        cmocka_unit_test(a_full_queue_and_bad_names_are_refused),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}

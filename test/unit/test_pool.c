/* test_pool.c: which threads compute: the size of a team under load, shares of work. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/pool.h"
#include "base/team.h"

/* A machine whose speed with n threads is rate[n], on which threads wait for wait[n] of the time. */
struct machine {
    double rate[5], wait[5];
};

/* Runs jobs of 0.1 ms at full speed for s seconds; returns the work done per second. */
static double simulate(struct team *t, const struct machine *m, double s, int64_t *now) {
    double work = 0;
    int64_t end = *now + (int64_t)(s * 1e9);
    while (*now < end) {
        int n = t->kind[0].size;
        int64_t ns = (int64_t)(1e5 / m->rate[n]);
        *now += ns;
        work += 100;
        team_report(t, 0, 100, ns, (int64_t)((double)ns * m->wait[n]), *now);
    }
    return work / s;
}

static void teams_find_the_fastest_size(void **state) {
    (void)state;
    static const struct machine quiet = {{0, 1, 1.9, 2.7, 3.4}, {0, 0, .04, .05, .06}};
    static const struct machine two_busy = {{0, 22, 12, 9, 8}, {0, 0, .6, .7, .8}};
    static const struct machine one_busy = {{0, 1, 1.9, 2.7, 1.5}, {0, 0, .05, .05, .5}};
    struct team t;
    int64_t now = 0;
    team_init(&t, 2);
    double full = simulate(&t, &quiet, 5, &now);
    assert_true(full > 0.999 * 1.9e6); /* nothing is tried */
    simulate(&t, &two_busy, 1, &now);
    double alone = simulate(&t, &two_busy, 20, &now);
    if (alone < 0.97 * 22e6) fail_msg("beside two busy processes: %g of 22e6", alone);
    simulate(&t, &quiet, 10, &now);
    double again = simulate(&t, &quiet, 10, &now);
    if (again < 0.999 * 1.9e6) fail_msg("after the load: %g of 1.9e6", again);
    team_init(&t, 4);
    simulate(&t, &one_busy, 5, &now);
    double three = simulate(&t, &one_busy, 20, &now);
    if (three < 0.97 * 2.7e6) fail_msg("beside one busy process: %g of 2.7e6", three);
    team_init(&t, 1);
    simulate(&t, &two_busy, 1, &now);
    assert_int_equal(t.kind[0].size, 1);
}

enum { UNITS = 1000 };
struct shares {
    struct pool *pool;
    int64_t next;
    _Atomic int seen[UNITS];
    _Atomic int members;
    int size[8];
};

static void take_all(void *arg, int ith, int n_thread) {
    struct shares *s = arg;
    int64_t mine, last;
    atomic_fetch_add(&s->members, 1);
    s->size[ith] = n_thread;
    pool_barrier(s->pool, ith);
    while (pool_take(&s->next, UNITS, n_thread, &mine, &last))
        for (; mine < last; mine++) {
            atomic_fetch_add(&s->seen[mine], 1);
            if ((mine * 7 + ith) % 97 == 0) nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
        }
}

/* Work is reported so that trials of every size happen while jobs run. */
static void every_unit_once_in_teams_of_any_size(void **state) {
    (void)state;
    static struct shares shares;
    struct shares *s = &shares;
    s->pool = pool_new(4);
    int sizes = 0;
    int64_t end = clock_ns() + 2000000000;
    for (int round = 1; clock_ns() < end; round++) {
        s->next = 0;
        atomic_store(&s->members, 0);
        pool_work(s->pool, take_all, s, round / 64 % 2, (size_t)(round * 7919 % 5));
        assert_int_equal(s->members, pool_team(s->pool));
        sizes |= 1 << pool_team(s->pool);
        for (int i = 0; i < s->members; i++) assert_int_equal(s->size[i], s->members);
        for (int i = 0; i < UNITS; i++) assert_int_equal(s->seen[i], round);
    }
    assert_true(sizes & 1 << 4);
    pool_free(s->pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(teams_find_the_fastest_size),
        cmocka_unit_test(every_unit_once_in_teams_of_any_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

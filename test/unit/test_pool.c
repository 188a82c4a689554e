/* test_pool.c: which threads compute: topologies of machines, the size of a team under load, shares of work. */
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
#include "base/file.h"
#include "base/pool.h"
#include "base/team.h"
#include "base/os/topology.h"
#include "scratch.h"

static void put(const char *tree, const char *name, const char *text) {
    char path[512], dir[512];
    snprintf(path, sizeof path, "%s/%s/devices/%s", scratch, tree, name);
    snprintf(dir, sizeof dir, "%s", path);
    *strrchr(dir, '/') = 0;
    assert_int_equal(file_mkdirs(dir, NULL), 0);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void put_of_cpu(const char *tree, int cpu, const char *file, const char *text) {
    char name[128];
    snprintf(name, sizeof name, "system/cpu/cpu%d/%s", cpu, file);
    put(tree, name, text);
}

/* n_pair cores with two hardware threads each (2 i, 2 i + 1), then n_single with one. */
static void cores(const char *tree, int n_pair, int n_single, const char *file, const char *of_pair,
                  const char *of_single) {
    char list[32];
    for (int i = 0; i < 2 * n_pair + n_single; i++) {
        bool pair = i < 2 * n_pair;
        if (pair) snprintf(list, sizeof list, "%d-%d\n", i / 2 * 2, i / 2 * 2 + 1);
        else snprintf(list, sizeof list, "%d\n", i);
        put_of_cpu(tree, i, "topology/thread_siblings_list", list);
        if (file) put_of_cpu(tree, i, file, pair ? of_pair : of_single);
    }
}

static void threads_of_many_machines(void **state) {
    (void)state;
    cores("hybrid", 6, 8, NULL, NULL, NULL); /* 14600KF */
    put("hybrid", "cpu_core/cpus", "0-11\n");
    put("hybrid", "cpu_atom/cpus", "12-19\n");
    cores("hidden", 6, 8, "cpufreq/cpuinfo_max_freq", "5300000\n",
          "4000000\n");                      /* no cpu_core in a container */
    cores("laptop", 2, 8, NULL, NULL, NULL); /* 2 P and 8 E */
    put("laptop", "cpu_core/cpus", "0-3\n");
    cores("arm", 0, 8, "cpu_capacity", "", "1024\n");
    for (int i = 0; i < 4; i++) put_of_cpu("arm", i, "cpu_capacity", "440\n");
    cores("server", 32, 0, "cpufreq/cpuinfo_max_freq", "3700000\n", "");
    put("server", "system/node/online", "0-1\n");
    cores("turbo", 4, 0, "cpufreq/cpuinfo_max_freq", "5000000\n", "");
    put_of_cpu("turbo", 0, "cpufreq/cpuinfo_max_freq", "5500000\n");
    put("odd", "cpu_core/cpus", "7-3,x\n");
    put_of_cpu("odd", 1, "topology/thread_siblings_list", "99999999999999999999\n");
    static const struct {
        const char *tree, *cpus;
        double quota;
        int n_core, n_fast, n_thread;
        const char *why;
    } rows[] = {
        {"hybrid", "0-19", 0, 14, 6, 6,
         "6: one per performance core (8 efficiency cores unused), 6 SMT siblings unused"},
        {"hybrid", "12-19", 0, 8, 0, 8, "8: one per core"}, /* bound to E cores */
        {"hybrid", "0-3,12-13", 0, 4, 2, 2, NULL},
        {"hybrid", "1,3,5", 0, 3, 3, 3, "3: one per core"}, /* second siblings alone */
        {"hybrid", "0-19", 4, 14, 6, 4,
         "4: the control group's quota of 4 processors (14 cores), 6 SMT siblings unused"},
        {"hidden", "0-19", 0, 14, 6, 6, NULL},
        {"laptop", "0-11", 0, 10, 2, 10, NULL}, /* slow cores are most of the machine */
        {"arm", "0-7", 0, 8, 4, 4, NULL},
        {"server", "0-63", 0, 32, 32, 32, "32: one per core, 32 SMT siblings unused, 2 NUMA nodes"},
        {"server", "0-63", 1.5, 32, 32, 2, NULL},
        {"server", "0-63", 0.5, 32, 32, 1, NULL},
        {"server", "0-63", 100, 32, 32, 32, NULL},
        {"turbo", "0-7", 0, 4, 4, 4, NULL},
        {"absent", "0-3", 0, 4, 4, 4, NULL},
        {"odd", "0-3", 0, 4, 0, 4, NULL},
        {"absent", "", 0, 0, 0, 1, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char root[512], why[160];
        struct topology t;
        snprintf(root, sizeof root, "%s/%s", scratch, rows[i].tree);
        topology_read(root, rows[i].cpus, rows[i].quota, &t);
        topology_explain(&t, why, sizeof why);
        if (t.n_core != rows[i].n_core || t.n_fast != rows[i].n_fast ||
            t.n_thread != rows[i].n_thread)
            fail_msg("%s, %s: %d cores, %d fast, %s", rows[i].tree, rows[i].cpus, t.n_core,
                     t.n_fast, why);
        if (rows[i].why) assert_string_equal(why, rows[i].why);
    }
    struct topology own;
    topology_read(NULL, NULL, -1, &own);
    assert_true(own.n_thread >= 1 && own.n_thread <= own.n_cpu);
}

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
        cmocka_unit_test(threads_of_many_machines),
        cmocka_unit_test(teams_find_the_fastest_size),
        cmocka_unit_test(every_unit_once_in_teams_of_any_size),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}

/* test_topology.c: how many threads compute, by the topologies of machines; the features of this machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/os/features.h"
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

static void features_are_those_that_the_kernel_lists(void **state) {
    (void)state;
    char line[8192] = "";
#if defined(__x86_64__)
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f) && strncmp(line, "flags", 5) != 0) line[0] = 0;
    if (f) fclose(f);
#endif
    if (!line[0]) skip(); /* an emulator shows the flags of another processor */
    line[strcspn(line, "\n")] = ' ';
    for (int i = 0; features_name(i); i++) {
        char word[32];
        snprintf(word, sizeof word, " %s ", features_name(i));
        if (strcmp(features_name(i), "avx_vnni") == 0 && !strstr(line, word))
            continue; /* a name since Linux 5.12 */
        if (features_has(features_name(i)) != (strstr(line, word) != NULL))
            fail_msg("%s: %d", features_name(i), features_has(features_name(i)));
    }
    assert_false(features_has("no such feature"));
    assert_null(features_name(-1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(features_are_those_that_the_kernel_lists),
        cmocka_unit_test(threads_of_many_machines),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}

/* test_cgroup.c: limits of control groups in the trees that systemd, containers and version 1 make. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/os/cgroup.h"
#include "base/file.h"
#include "scratch.h"

static void put(const char *tree, const char *name, const char *text) {
    char path[512], dir[512];
    snprintf(path, sizeof path, "%s/%s/%s", scratch, tree, name);
    snprintf(dir, sizeof dir, "%s", path);
    *strrchr(dir, '/') = 0;
    assert_int_equal(file_mkdirs(dir, NULL), 0);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static struct cgroup_limits limits(const char *tree) {
    char self[512], root[512];
    struct cgroup_limits l;
    snprintf(self, sizeof self, "%s/%s/self", scratch, tree);
    snprintf(root, sizeof root, "%s/%s", scratch, tree);
    cgroup_read(self, root, &l);
    return l;
}

static void quotas_of_every_layout(void **state) {
    static const struct {
        const char *tree, *self, *file, *text;
        double n_cpu;
    } rows[] = {
        {"root2", "0::/\n", "cpu.max", "150000 100000\n", 1.5},
        {"unit2", "0::/system.slice/chimere.service\n", "system.slice/chimere.service/cpu.max",
         "200000 100000\n", 2},
        {"slice2", "0::/system.slice/chimere.service\n", "system.slice/cpu.max", "50000 100000\n",
         0.5},
        {"none2", "0::/a\n", "a/cpu.max", "max 100000\n", 0},
        {"odd2", "0::/a\n", "a/cpu.max", "nonsense\n", 0},
        {"zero2", "0::/a\n", "a/cpu.max", "100000 0\n", 0},
        {"hybrid", "4:cpu,cpuacct:/\n0::/u\n", "unified/u/cpu.max", "100000 100000\n", 1},
        {"outside", "0::/docker/0123\n", "cpu.max", "300000 100000\n", 3}, /* no own namespace */
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        put(rows[i].tree, "self", rows[i].self);
        put(rows[i].tree, rows[i].file, rows[i].text);
        double n = limits(rows[i].tree).n_cpu;
        if (n < rows[i].n_cpu - 1e-9 || n > rows[i].n_cpu + 1e-9)
            fail_msg("%s: %g", rows[i].tree, n);
    }
    static const char *const mounts[] = {"cpu,cpuacct", "cpu"};
    for (int i = 0; i < 2; i++) { /* version 1, mounted under either name */
        char tree[32], file[128];
        snprintf(tree, sizeof tree, "v1-%d", i);
        put(tree, "self", "5:memory:/x\n4:cpu,cpuacct:/pod/x\n1:name=systemd:/\n");
        snprintf(file, sizeof file, "%s/pod/x/cpu.cfs_quota_us", mounts[i]);
        put(tree, file, "100000\n");
        snprintf(file, sizeof file, "%s/pod/x/cpu.cfs_period_us", mounts[i]);
        put(tree, file, "50000\n");
        assert_true(limits(tree).n_cpu > 1.99 && limits(tree).n_cpu < 2.01);
        put(tree, "cpu/pod/x/cpu.cfs_period_us", "50000\n");
        put(tree, "cpu/pod/x/cpu.cfs_quota_us", "-1\n");
        snprintf(file, sizeof file, "%s/pod/x/cpu.cfs_quota_us", mounts[i]);
        if (i) assert_true(limits(tree).n_cpu == 0);
    }
}

static void the_tightest_memory_counts(void **state) {
    (void)state;
    put("m2", "self", "0::/a/b\n");
    put("m2", "a/b/memory.max", "max\n");
    assert_true(limits("m2").memory_bytes == UINT64_MAX);
    put("m2", "a/memory.max", "1000000\n");
    put("m2", "a/memory.current", "600000\n");
    put("m2", "a/memory.stat", "anon 1\nfile 500000\n"); /* cache is given back */
    assert_true(limits("m2").memory_bytes == 900000);
    put("m2", "a/b/memory.max", "300000\n");
    put("m2", "a/b/memory.current", "400000\n");
    assert_true(limits("m2").memory_bytes == 0);
    put("m1", "self", "9:memory:/user\n");
    put("m1", "memory/user/memory.limit_in_bytes", "9223372036854771712\n");
    put("m1", "memory/memory.limit_in_bytes", "314572800\n");
    assert_true(limits("m1").memory_bytes == 314572800);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quotas_of_every_layout),
        cmocka_unit_test(the_tightest_memory_counts),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}

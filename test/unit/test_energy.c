/* energy: a fake powercap tree and a fake NVML. The oracle is arithmetic on the numbers written there. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/os/energy.h"

static char root[] = "test_energy.XXXXXX";

static void put(const char *dir, const char *file, const char *text) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", root, dir);
    mkdir(path, 0755);
    snprintf(path, sizeof path, "%s/%s/%s", root, dir, file);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void domain(const char *dir, const char *name, const char *uj, const char *range) {
    char line[64];
    snprintf(line, sizeof line, "%s\n", name);
    put(dir, "name", line);
    put(dir, "energy_uj", uj);
    if (range) put(dir, "max_energy_range_uj", range);
}

static void near(double got, double want) {
    if (fabs(got - want) > 1e-9) fail_msg("expected %.9f, got %.9f", want, got);
}

static void test_rapl(void **state) {
    (void)state;
    domain("intel-rapl:0", "package-0", "1000000\n", "5000000\n");
    domain("intel-rapl:1", "package-1", "0\n", "5000000\n");
    domain("intel-rapl:0:0", "core", "0\n", "5000000\n");
    domain("intel-rapl:0:1", "dram", "7000000\n", "9000000\n");
    domain("intel-rapl:2", "psys", "0\n", "5000000\n");
    domain("intel-rapl-mmio:0", "package-0", "0\n", "5000000\n");
    struct energy *g = energy_open(root, "");
    struct energy_joules j;
    assert_non_null(g);
    assert_true(energy_read(g, &j));
    assert_true(j.has_cpu && j.has_memory && !j.has_gpu);
    near(energy_total(&j), 0);
    put("intel-rapl:0", "energy_uj", "1500000\n"); /* +0.5 J */
    put("intel-rapl:1", "energy_uj", "250000\n");  /* +0.25 J */
    put("intel-rapl:0:0", "energy_uj", "400000\n");
    put("intel-rapl:2", "energy_uj", "4000000\n");
    put("intel-rapl-mmio:0", "energy_uj", "4000000\n");
    put("intel-rapl:0:1", "energy_uj", "8000000\n"); /* +1 J */
    assert_true(energy_read(g, &j));
    near(j.cpu, 0.75);
    near(j.memory, 1);
    put("intel-rapl:0", "energy_uj", "500000\n"); /* wrapped: 5.0 - 1.5 + 0.5 = 4 J */
    assert_true(energy_read(g, &j));
    near(j.cpu, 4.75);
    assert_true(energy_read(g, &j)); /* reading twice counts nothing twice */
    near(j.cpu, 4.75);
    energy_close(g);
}

static void test_hostile(void **state) {
    (void)state;
    struct energy_joules j;
    put("intel-rapl:0", "energy_uj", "ten joules\n"); /* left out */
    put("intel-rapl:1", "energy_uj", "100\n");
    put("intel-rapl:1", "max_energy_range_uj", "50\n"); /* below the counter: not believed */
    struct energy *g = energy_open(root, "");
    assert_true(energy_read(g, &j));
    put("intel-rapl:1", "energy_uj", "40\n"); /* went back: unknown, so nothing */
    assert_true(energy_read(g, &j));
    near(j.cpu, 0);
    put("intel-rapl:1", "energy_uj", "");
    assert_true(energy_read(g, &j));
    near(j.cpu, 0);
    put("intel-rapl:1", "energy_uj", "1000040\n");
    assert_true(energy_read(g, &j));
    near(j.cpu, 1);
    energy_close(g);
    g = energy_open("no such folder", "no-such-library.so.1");
    assert_non_null(g);
    assert_false(energy_read(g, &j));
    near(energy_total(&j), 0);
    energy_close(g);
    energy_close(NULL);
}

#ifdef FAKE_NVML
static void test_nvml(void **state) {
    (void)state;
    struct energy_joules j;
    struct energy *g = energy_open("no such folder", FAKE_NVML);
    assert_non_null(g);
    /* Three devices: two count, the one in between has no counter. Each read of a device adds 1,500 mJ. */
    assert_true(energy_read(g, &j));
    assert_true(j.has_gpu && !j.has_cpu);
    near(j.gpu, 3);
    assert_true(energy_read(g, &j));
    near(j.gpu, 6);
    energy_close(g);
}
#endif

static void test_shared(void **state) {
    (void)state;
    struct energy_joules a, b;
    char about[160];
    bool readable = energy_now(&a);
    assert_int_equal(readable, energy_now(&b));
    assert_true(energy_total(&b) >= energy_total(&a));
    energy_about(about, sizeof about);
    assert_int_equal(readable, strstr(about, "RAPL domains, ") != NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rapl),
        cmocka_unit_test(test_hostile),
#ifdef FAKE_NVML
        cmocka_unit_test(test_nvml),
#endif
        cmocka_unit_test(test_shared),
    };
    if (!mkdtemp(root)) return 1;
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", root);
    return system(command) ? 1 : rc;
}

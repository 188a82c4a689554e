/* test_config.c: where option values come from, and what is refused with which words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/config.h"
#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"

static const struct cfg_opt options[] = {
    {"port", 'p', CFG_INT, "N", "8081", 1, 65535, NULL, "port"},
    {"fit", 0, CFG_BOOL, NULL, "true", 0, 0, NULL, "fit"},
    {"kv-type", 0, CFG_ENUM, "T", "f16", 0, 0, "f16|q8_0", "kv"},
    {"scale", 's', CFG_FLOAT, "X", "0.5", 0, 1, NULL, "scale"},
    {"cache", 0, CFG_BYTES, "SIZE", NULL, 0, 0, NULL, "cache"},
    {"api-key", 0, CFG_STR, "KEY", NULL, 0, 0, NULL, "key"},
    {"lora", 0, CFG_LIST, "F", NULL, 0, 0, NULL, "adapters"},
    {0}};

static char dir[64];

static int make_dir(void **state) {
    (void)state;
    unsetenv("CHIMERE_CONFIG");
    snprintf(dir, sizeof dir, "test_config.XXXXXX");
    if (!mkdtemp(dir)) return -1;
    return setenv("XDG_CONFIG_HOME", dir, 1);
}

static const char *in_dir(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static int drop_dir(void **state) {
    (void)state;
    unlink(in_dir("c.yaml"));
    unlink(in_dir("chimere/config.yaml"));
    rmdir(in_dir("chimere"));
    return rmdir(dir);
}

static void save(const char *name, const char *text) {
    struct file_writer w;
    assert_int_equal(file_writer_open(&w, in_dir(name), NULL), 0);
    fputs(text, w.f);
    assert_int_equal(file_writer_commit(&w, NULL), 0);
}

#define PARSE(c, e, ...) parse_list(c, e, (char *[]){"x", __VA_ARGS__, NULL})
static int parse_list(struct cfg **c, struct err *e, char **argv) {
    const struct cfg_opt *const tables[] = {options, NULL};
    int argc = 0;
    while (argv[argc]) argc++;
    *e = (struct err){0};
    return cfg_parse(c, tables, "usage", argc, argv, e);
}

static void stronger_sources_win(void **state) {
    (void)state;
    struct cfg *c;
    struct err e;
    setenv("CHIMERE_KV_TYPE", "q8_0", 1);
    setenv("CHIMERE_PORT", "9000", 1);
    save("c.yaml", "port: 1234\nkv-type: f16\nscale: 0.25\nlora: [one, two]\n");
    char config[160];
    snprintf(config, sizeof config, "--config=%s", in_dir("c.yaml"));
    assert_int_equal(
        PARSE(&c, &e, config, "-p", "7", "--no-fit", "file", "--lora=a", "--lora", "b", "--", "-z"),
        0);
    assert_int_equal(cfg_int(c, "port"), 7);
    assert_int_equal(cfg_origin(c, "port"), CFG_FLAG);
    assert_string_equal(cfg_str(c, "kv-type"), "q8_0");
    assert_int_equal(cfg_origin(c, "kv-type"), CFG_ENV);
    assert_true(cfg_float(c, "scale") == 0.25);
    assert_int_equal(cfg_origin(c, "scale"), CFG_FILE);
    assert_false(cfg_bool(c, "fit"));
    assert_false(cfg_is_set(c, "cache"));
    assert_int_equal(cfg_origin(c, "cache"), CFG_DEFAULT);
    const char *const *items;
    assert_int_equal(cfg_list(c, "lora", &items), 2); /* the flags' list replaces the file's */
    assert_string_equal(items[0], "a");
    assert_string_equal(items[1], "b");
    assert_int_equal(cfg_n_pos(c), 2);
    assert_string_equal(cfg_pos(c, 0), "file");
    assert_string_equal(cfg_pos(c, 1), "-z");
    assert_null(cfg_pos(c, 2));
    assert_null(cfg_pos(c, -1));
    cfg_free(c);
    unsetenv("CHIMERE_KV_TYPE");
    unsetenv("CHIMERE_PORT");
}

static void values_are_shown_but_keys_are_not(void **state) {
    (void)state;
    struct cfg *c;
    struct err e;
    assert_int_equal(PARSE(&c, &e, "--api-key", "secret", "--cache", "1.5G", "-s1"), 0);
    assert_string_equal(cfg_text(c, "api-key"), "(hidden)");
    assert_string_equal(cfg_str(c, "api-key"), "secret");
    assert_int_equal(cfg_bytes(c, "cache"), 1610612736);
    assert_string_equal(cfg_text(c, "lora"), "");
    cfg_free(c);
}

static void bad_flags_are_refused_by_name(void **state) {
    (void)state;
    static const struct {
        const char *a, *b, *text;
    } cases[] = {
        {"--port", "0", "--port: expected a whole number from 1 to 65535, got '0'"},
        {"--port", "99999999999999999999", "--port: expected a whole number"},
        {"--port=12x", NULL, "--port=12x: expected a whole number"},
        {"--prot=3", NULL, "unknown option '--prot=3'"},
        {"-q", NULL, "unknown option '-q'"},
        {"--no-port", NULL, "unknown option '--no-port'"},
        {"--fit=maybe", NULL, "expected true or false, got 'maybe'"},
        {"--kv-type", "f1", "--kv-type: expected one of f16|q8_0, got 'f1'"},
        {"--kv-type", "f16|q8_0", "expected one of"},
        {"--scale", "nan", "--scale: expected a number from 0 to 1, got 'nan'"},
        {"--scale", "1.01", "expected a number from 0 to 1"},
        {"--cache", "5X", "--cache: expected a size such as 512M or 15.3GiB, got '5X'"},
        {"--cache", "-1", "expected a size"},
        {"--lora", NULL, "--lora: expected a value"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cfg *c;
        struct err e;
        assert_int_equal(PARSE(&c, &e, (char *)cases[i].a, (char *)cases[i].b), CHIMERE_EINVAL);
        if (!strstr(e.text, cases[i].text)) fail_msg("%s: got '%s'", cases[i].a, e.text);
    }
    struct cfg *c;
    struct err e;
    setenv("CHIMERE_PORT", "many", 1);
    assert_int_equal(PARSE(&c, &e, NULL), CHIMERE_EINVAL);
    assert_non_null(strstr(e.text, "CHIMERE_PORT: expected a whole number"));
    unsetenv("CHIMERE_PORT");
}

static void bad_files_are_refused_with_their_line(void **state) {
    (void)state;
    static const struct {
        const char *yaml, *text;
    } cases[] = {
        {"fit: true\nport: 70000\n", "c.yaml:2: port: expected a whole number from 1 to 65535"},
        {"\n\nprot: 1\n", "c.yaml:3: unknown option 'prot'"},
        {"- port\n", "c.yaml: expected a mapping of options"},
        {"port: [1, 2]\n", "c.yaml:1: port: expected a plain value"},
        {"port: {a: b}\n", "c.yaml:1: port: expected a plain value"},
        {"fit: no\nlora:\n  - a\n  - [b]\n", "c.yaml:2: lora: expected plain values"},
        {"? [a]\n: 1\n", "c.yaml:1: expected an option name"},
        {"port: 1\n\tfit: true\n", "c.yaml:2: "},
        {"fit: \"open\n", "c.yaml:2: "},
        {"port: \xff\n", "c.yaml:"},
    };
    char config[128];
    snprintf(config, sizeof config, "%s", in_dir("c.yaml"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cfg *c;
        struct err e;
        save("c.yaml", cases[i].yaml);
        int rc = PARSE(&c, &e, "--config", config);
        assert_true(rc == CHIMERE_EINVAL || rc == CHIMERE_EFORMAT);
        if (!strstr(e.text, cases[i].text)) fail_msg("case %zu: got '%s'", i, e.text);
    }
    struct cfg *c;
    struct err e;
    assert_int_equal(PARSE(&c, &e, "--config", "no such file"), CHIMERE_ENOENT);
    save("c.yaml", "");
    assert_int_equal(PARSE(&c, &e, "--config", config), 0);
    cfg_free(c);
}

static void the_users_own_file_may_serve_other_commands(void **state) {
    (void)state;
    struct cfg *c;
    struct err e;
    assert_int_equal(file_mkdirs(in_dir("chimere"), &e), 0);
    save("chimere/config.yaml", "something-else: 1\nport: 5\n");
    assert_int_equal(PARSE(&c, &e, NULL), 0);
    assert_int_equal(cfg_int(c, "port"), 5);
    cfg_free(c);
    save("chimere/config.yaml", "something-else: 1\nport: none\n");
    assert_int_equal(PARSE(&c, &e, NULL), CHIMERE_EINVAL);
    assert_non_null(strstr(e.text, "config.yaml:2: port: expected"));
    save("chimere/config.yaml", "");
}

static void failed_allocations_are_reported(void **state) {
    (void)state;
    save("c.yaml", "port: 1234\nlora: [one, two]\n");
    char config[128];
    snprintf(config, sizeof config, "%s", in_dir("c.yaml"));
    int n_failed = 0;
    for (int64_t nth = 1;; nth++) {
        struct cfg *c;
        struct err e;
        int64_t before = mem_alloc_count();
        mem_fail_nth(nth);
        int rc = PARSE(&c, &e, "--config", config, "--lora", "x", "--port=3");
        int64_t n_alloc = mem_alloc_count() - before;
        mem_fail_nth(0);
        if (!rc) {
            cfg_free(c);
            assert_true(n_alloc < nth); /* nothing failed, so nothing was left to fail */
            break;
        }
        assert_int_equal(rc, CHIMERE_ENOMEM);
        assert_null(c);
        n_failed++;
    }
    assert_true(n_failed > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stronger_sources_win),
        cmocka_unit_test(values_are_shown_but_keys_are_not),
        cmocka_unit_test(bad_flags_are_refused_by_name),
        cmocka_unit_test(bad_files_are_refused_with_their_line),
        cmocka_unit_test(the_users_own_file_may_serve_other_commands),
        cmocka_unit_test(failed_allocations_are_reported),
    };
    return cmocka_run_group_tests(tests, make_dir, drop_dir);
}

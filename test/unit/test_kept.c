/* test_kept.c: answers that are kept: owners, age, budget, memory that runs out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "serve/api/kept.h"

static int has(struct kept *k, const char *owner, const char *id) {
    json_t *input, *response;
    int rc = kept_find(k, owner, id, &input, &response);
    if (!rc) {
        assert_int_equal(json_array_size(input), 1);
        assert_true(json_is_object(response));
    }
    json_decref(input);
    json_decref(response);
    return rc == 0;
}

static struct kept *open_kept(struct store *store, int64_t max_bytes, int64_t seconds) {
    struct kept *k;
    struct err e = {0};
    if (kept_open(&k, store, max_bytes, seconds, &e)) fail_msg("%s", e.text);
    return k;
}

static void test_owners(void **state) {
    (void)state;
    struct kept *k = open_kept(NULL, 1 << 20, 60);
    assert_int_equal(kept_put(k, "ann", "r1", "[1]", "{}"), 0);
    assert_int_equal(kept_put(k, "bob", "r2", "[2]", "{}"), 0);
    assert_true(has(k, "ann", "r1") && has(k, "bob", "r2"));
    assert_false(has(k, "bob", "r1"));
    assert_int_equal(kept_drop(k, "bob", "r1"), CHIMERE_ENOENT);
    assert_int_equal(kept_drop(k, "ann", "r1"), 0);
    assert_false(has(k, "ann", "r1"));
    assert_int_equal(kept_drop(k, "bob", "r2"), 0);
    assert_int_equal(kept_put(k, "bob", "r3", "[3]", "{}"), 0);
    assert_true(has(k, "bob", "r3"));
    kept_close(k);
}

static void test_budget_and_age(void **state) {
    (void)state;
    char id[16], big[400];
    struct kept *k = open_kept(NULL, 4000, 60);
    snprintf(big, sizeof big, "[\"%0300d\"]", 7);
    assert_int_equal(kept_put(k, "b", "r0", "[1]", "{}"), 0);
    for (int i = 0; i < 100; i++) {
        snprintf(id, sizeof id, "r%d", i);
        assert_int_equal(kept_put(k, "a", id, big, "{}"), 0);
        assert_true(has(k, "a", id));
    }
    assert_false(has(k, "a", "r0"));
    assert_true(has(k, "a", "r95"));
    assert_true(has(k, "b", "r0")); /* one owner's answers do not push out another's */
    kept_close(k);
    k = open_kept(NULL, 600, 60);
    assert_int_equal(kept_put(k, "a", "r", big, "{}"), CHIMERE_ELIMIT); /* one may not take all */
    kept_close(k);
    k = open_kept(NULL, 1 << 20, 0);
    kept_put(k, "a", "r", "[1]", "{}");
    usleep(3000);
    assert_false(has(k, "a", "r"));
    kept_close(k);
}

/* Another server on the same store finds them. */
static void test_restart(void **state) {
    struct store *s;
    struct err e = {0};
    (void)state;
    assert_int_equal(store_open(&s, ":memory:", &e), 0);
    struct kept *k = open_kept(s, 1 << 20, 60);
    assert_int_equal(kept_put(k, "a", "r", "[1]", "{}"), 0);
    kept_close(k);
    k = open_kept(s, 1 << 20, 60);
    assert_true(has(k, "a", "r"));
    kept_close(k);
    store_close(s);
}

static void test_allocation_failure(void **state) {
    (void)state;
    for (int nth = 1; nth < 12; nth++) {
        struct kept *k = NULL;
        struct err e = {0};
        mem_fail_nth(nth);
        int rc = kept_open(&k, NULL, 1 << 20, 60, &e);
        if (!rc) rc = kept_put(k, "a", "r", "[1]", "{}");
        mem_fail_nth(0);
        if (k && !rc) assert_true(has(k, "a", "r"));
        kept_close(k);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_owners),
        cmocka_unit_test(test_budget_and_age),
        cmocka_unit_test(test_restart),
        cmocka_unit_test(test_allocation_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

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
#include "serve/kept.h"

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

static void test_owners(void **state) {
    (void)state;
    struct kept *k = kept_new(1 << 20, 60);
    assert_int_equal(kept_put(k, "ann", "r1", "[1]", "{}"), 0);
    assert_int_equal(kept_put(k, "bob", "r2", "[2]", "{}"), 0);
    assert_true(has(k, "ann", "r1") && has(k, "bob", "r2"));
    assert_false(has(k, "bob", "r1"));
    assert_int_equal(kept_drop(k, "bob", "r1"), CHIMERE_ENOENT);
    assert_int_equal(kept_drop(k, "ann", "r1"), 0);
    assert_false(has(k, "ann", "r1"));
    assert_int_equal(kept_drop(k, "bob", "r2"), 0);
    assert_int_equal(kept_put(k, "bob", "r3", "[3]", "{}"), 0); /* after the last one went */
    assert_true(has(k, "bob", "r3"));
    kept_free(k);
}

static void test_budget_and_age(void **state) {
    (void)state;
    char id[16], big[400];
    struct kept *k = kept_new(4000, 60);
    snprintf(big, sizeof big, "[\"%0300d\"]", 7);
    for (int i = 0; i < 100; i++) {
        snprintf(id, sizeof id, "r%d", i);
        assert_int_equal(kept_put(k, "a", id, big, "{}"), 0);
        assert_true(has(k, "a", id));
    }
    assert_false(has(k, "a", "r0"));
    assert_true(has(k, "a", "r95"));
    kept_free(k);
    k = kept_new(600, 60);
    assert_int_not_equal(kept_put(k, "a", "r", big, "{}"), 0); /* one may not take all */
    kept_free(k);
    k = kept_new(1 << 20, 0);
    kept_put(k, "a", "r", "[1]", "{}");
    usleep(1000);
    assert_false(has(k, "a", "r"));
    kept_free(k);
}

static void test_allocation_failure(void **state) {
    (void)state;
    for (int nth = 1; nth < 12; nth++) {
        mem_fail_nth(nth);
        struct kept *k = kept_new(1 << 20, 60);
        int rc = k ? kept_put(k, "a", "r", "[1]", "{}") : -1;
        mem_fail_nth(0);
        if (k) assert_int_equal(has(k, "a", "r"), rc == 0);
        kept_free(k);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_owners),
        cmocka_unit_test(test_budget_and_age),
        cmocka_unit_test(test_allocation_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

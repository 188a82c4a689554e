/* cmocka.h: stands in for the part of cmocka that our tests use, where only libc is at hand: tests of
 * base, format and kernels cross-compiled and run under an emulator. A failed assertion ends its test,
 * not the program; the exit status is the number of failed tests. */
#ifndef CHIMERE_TEST_CROSS_CMOCKA_H
#define CHIMERE_TEST_CROSS_CMOCKA_H

#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
};

static jmp_buf cross_end;

static inline void cross_check(int ok, const char *text, const char *file, int line) {
    if (ok) return;
    printf("%s:%d: error: %s\n", file, line, text);
    longjmp(cross_end, 1);
}

static inline int cross_run(const char *group, const struct CMUnitTest *tests, size_t n,
                            int (*setup)(void **), int (*teardown)(void **)) {
    volatile int n_failed = 0;
    void *shared = NULL;
    if (setup && setup(&shared)) return printf("%s: setup failed\n", group), 1;
    for (volatile size_t i = 0; i < n; i++) {
        void *state = shared;
        if (setjmp(cross_end) == 0) {
            tests[i].run(&state);
        } else {
            printf("[  FAILED  ] %s: %s\n", group, tests[i].name);
            n_failed++;
        }
    }
    if (teardown && teardown(&shared)) n_failed++;
    printf("%s: %zu tests, %d failed\n", group, n, n_failed);
    return n_failed;
}

#define cmocka_unit_test(f)                                                                        \
    { #f, f }
#define cmocka_run_group_tests(tests, setup, teardown)                                             \
    cross_run(#tests, tests, sizeof(tests) / sizeof *(tests), setup, teardown)

#define assert_true(x) cross_check(!!(x), #x, __FILE__, __LINE__)
#define assert_false(x) cross_check(!(x), "not " #x, __FILE__, __LINE__)
#define assert_null(x) assert_true((x) == NULL)
#define assert_non_null(x) assert_true((x) != NULL)
#define assert_ptr_equal(a, b) assert_true((const void *)(a) == (const void *)(b))
#define assert_int_equal(a, b) assert_true((uintmax_t)(a) == (uintmax_t)(b))
#define assert_int_not_equal(a, b) assert_true((uintmax_t)(a) != (uintmax_t)(b))
#define assert_in_range(x, low, high)                                                              \
    assert_true((uintmax_t)(x) >= (uintmax_t)(low) && (uintmax_t)(x) <= (uintmax_t)(high))
#define assert_string_equal(a, b) assert_true(strcmp(a, b) == 0)
#define assert_memory_equal(a, b, n) assert_true(memcmp(a, b, n) == 0)
#define fail_msg(...)                                                                              \
    do {                                                                                           \
        printf(__VA_ARGS__);                                                                       \
        cross_check(0, "failed", __FILE__, __LINE__);                                              \
    } while (0)
#define print_message(...) printf(__VA_ARGS__)
#define print_error(...) printf(__VA_ARGS__)
#define fail() cross_check(0, "failed", __FILE__, __LINE__)
#define skip() return

#endif

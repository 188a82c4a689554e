/* test_base.c: UTF-8, numbers, buffers, arenas, maps, errors, thread pool. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/rng.h"
#include "base/str.h"

static void utf8_accepts_exactly_the_well_formed(void **s) {
    (void)s;
    uint32_t cp;
    assert_int_equal(utf8_decode("\xF0\x9F\x98\x80", 4, &cp), 4);
    assert_int_equal(cp, 0x1F600);
    assert_int_equal(utf8_decode("\xF0\x9F\x98", 3, &cp), 0);
    assert_int_equal(utf8_decode("\xC0\x80", 2, &cp), -1);     /* overlong */
    assert_int_equal(utf8_decode("\xED\xA0\x80", 3, &cp), -1); /* surrogate */
    assert_int_equal(utf8_decode("\xF4\x90\x80\x80", 4, &cp), -1);
    assert_int_equal(utf8_decode("\x80", 1, &cp), -1);
    for (uint32_t c = 0; c <= 0x10FFFF; c++) {
        char out[4];
        int n = utf8_encode(c, out);
        if (c >= 0xD800 && c <= 0xDFFF) {
            assert_int_equal(n, 0);
            continue;
        }
        uint32_t back;
        assert_int_equal(utf8_decode(out, (size_t)n, &back), n);
        assert_int_equal(back, c);
    }
}

static void numbers_read_back(void **s) {
    (void)s;
    struct rng r;
    rng_seed(&r, 7);
    for (int i = 0; i < 20000; i++) {
        uint64_t bits = rng_next(&r);
        double x;
        memcpy(&x, &bits, 8);
        if (!isfinite(x)) continue;
        char out[32];
        str_f64(out, x);
        assert_true(strtod(out, NULL) == x);
    }
    char out[32];
    str_f64(out, 0.1);
    assert_string_equal(out, "0.1");
    str_f64(out, 1e22);
    assert_string_equal(out, "1e+22");
    int64_t v;
    assert_true(str_to_i64("-12", -20, 20, &v));
    assert_int_equal(v, -12);
    assert_false(str_to_i64("12x", -20, 20, &v));
    assert_false(str_to_i64("99999999999999999999", INT64_MIN, INT64_MAX, &v));
    uint64_t b;
    assert_true(str_to_bytes("1.5G", &b));
    assert_int_equal(b, 1610612736);
    assert_true(str_to_bytes("200MiB", &b));
    assert_int_equal(b, 209715200);
    assert_false(str_to_bytes("5X", &b));
}

static void buffers_stop_at_their_ceiling(void **s) {
    (void)s;
    struct buf b;
    buf_init(&b, 10);
    assert_int_equal(buf_puts(&b, "0123456789"), 0);
    assert_int_equal(buf_putc(&b, 'x'), CHIMERE_ELIMIT);
    assert_int_equal(buf_puts(&b, ""), CHIMERE_ELIMIT); /* errors stick */
    assert_null(buf_take(&b));
    buf_clear(&b);
    assert_int_equal(buf_printf(&b, "%d", 42), 0);
    char *p = buf_take(&b);
    assert_string_equal(p, "42");
    mem_free(p);
    buf_fini(&b);
}

static void arenas_stop_at_their_ceiling(void **s) {
    (void)s;
    struct arena a;
    arena_init(&a, 1000);
    assert_non_null(arena_alloc(&a, 900));
    assert_null(arena_alloc(&a, 200));
    assert_null(arena_alloc(&a, SIZE_MAX));
    arena_fini(&a);
}

static void maps_find_what_was_put(void **s) {
    (void)s;
    struct map m;
    map_init(&m, 1 << 24);
    for (uint32_t i = 0; i < 100000; i++) {
        char key[16];
        int n = snprintf(key, sizeof key, "k%u", i);
        assert_int_equal(map_put(&m, key, (size_t)n, i), 0);
    }
    uint32_t v;
    assert_int_equal(map_put(&m, "k5", 2, 77), 1);
    assert_true(map_find(&m, "k5", 2, &v));
    assert_int_equal(v, 77);
    assert_true(map_find(&m, "k99999", 6, &v));
    assert_int_equal(v, 99999);
    assert_false(map_find(&m, "k100000", 7, &v));
    map_fini(&m);
}

static void failed_allocations_leave_a_map_whole(void **s) {
    (void)s;
    int n_failed = 0;
    for (int nth = 1; nth < 30; nth++) {
        struct map m;
        bool has[2000] = {false};
        map_init(&m, 1 << 20);
        mem_fail_nth(nth);
        for (uint32_t i = 0; i < 2000; i++) {
            int rc = map_put(&m, (const char *)&i, 4, i);
            if (rc) assert_true(rc == CHIMERE_ENOMEM || rc == CHIMERE_ELIMIT);
            n_failed += rc != 0;
            has[i] = rc == 0;
        }
        mem_fail_nth(0);
        for (uint32_t i = 0; i < 2000; i++) {
            uint32_t v = 0;
            assert_int_equal(map_find(&m, (const char *)&i, 4, &v), has[i]);
            if (has[i]) assert_int_equal(v, i);
        }
        map_fini(&m);
    }
    assert_true(n_failed >= 10);
}

static void failed_allocations_stick_to_a_buffer(void **s) {
    (void)s;
    for (int nth = 1; nth <= 4; nth++) {
        struct buf b;
        buf_init(&b, 1 << 20);
        mem_fail_nth(nth);
        int rc = 0;
        for (int i = 0; i < 1000; i++) rc = buf_puts(&b, "0123456789");
        mem_fail_nth(0);
        assert_int_equal(rc, CHIMERE_ENOMEM);
        assert_null(buf_take(&b));
        buf_clear(&b);
        assert_int_equal(buf_puts(&b, "again"), 0);
        buf_fini(&b);
    }
}

static void sizes_that_overflow_are_refused(void **s) {
    (void)s;
    assert_null(mem_alloc_array(SIZE_MAX / 2, 3));
    assert_null(mem_aligned(64, SIZE_MAX - 3));
    assert_null(mem_strndup("x", SIZE_MAX));
    void *p = mem_aligned(4096, 1);
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % 4096, 0);
    mem_free(p);
    struct buf b;
    buf_init(&b, 100);
    assert_int_equal(buf_reserve(&b, SIZE_MAX), CHIMERE_ELIMIT);
    buf_fini(&b);
}

static void pools_survive_failed_allocations(void **s) {
    (void)s;
    for (int nth = 1; nth <= 4; nth++) { /* the pool, its threads, and two workers' arguments */
        mem_fail_nth(nth);
        assert_null(pool_new(3));
        mem_fail_nth(0);
    }
}

static void meet(void *arg, int ith, int n) {
    struct {
        struct pool *pool;
        int rounds[8];
    } *m = arg;
    for (int round = 0; round < 300; round++) {
        m->rounds[ith] = round;
        pool_barrier(m->pool, ith);
        for (int i = 0; i < n; i++)
            if (m->rounds[i] != round) m->rounds[7] = -1;
        pool_barrier(m->pool, ith);
    }
}

static void barriers_hold_everybody(void **s) {
    (void)s;
    struct {
        struct pool *pool;
        int rounds[8];
    } m = {pool_new(4), {0}};
    pool_run(m.pool, meet, &m);
    assert_int_equal(m.rounds[7], 0);
    pool_free(m.pool);
}

static void errors_hold_clean_text(void **s) {
    (void)s;
    struct err e;
    assert_int_equal(err_set(&e, CHIMERE_EFORMAT, "a\n%s", "\xff\xC3\xA9"), CHIMERE_EFORMAT);
    assert_string_equal(e.text, "a??\xC3\xA9");
    err_prefix(&e, "%s", "file.gguf");
    assert_string_equal(e.text, "file.gguf: a??\xC3\xA9");
    assert_int_equal(err_set(NULL, CHIMERE_EIO, "x"), CHIMERE_EIO);
}

static void crc32c_matches_rfc3720(void **s) {
    (void)s;
    unsigned char zeros[32] = {0};
    assert_int_equal(hash_crc32c(0, zeros, 32), 0x8a9136aa); /* RFC 3720, B.4 */
    assert_int_equal(hash_crc32c(0, "123456789", 9), 0xe3069283);
}

static void count(void *arg, int ith, int n) {
    (void)ith;
    (void)n;
    atomic_fetch_add((_Atomic int *)arg, 1);
}

static void pools_run_every_thread_once(void **s) {
    (void)s;
    for (int n = 1; n <= 5; n++) {
        struct pool *p = pool_new(n);
        assert_non_null(p);
        _Atomic int sum = 0;
        for (int i = 0; i < 2000; i++) pool_run(p, count, &sum);
        assert_int_equal(sum, n * 2000);
        pool_free(p);
    }
}

static void base64_is_read_with_and_without_padding(void **state) {
    static const struct {
        const char *text, *bytes;
        size_t n;
    } rows[] = {{"", "", 0},
                {"AA==", "\0", 1},
                {"AA", "\0", 1},
                {"/+8=", "\xff\xef", 2},
                {"Zm9vYmFy", "foobar", 6},
                {"Zm9vYmE=rest", "fooba", 5}};
    char out[16];
    size_t n;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct slice text = {rows[i].text, strlen(rows[i].text)};
        assert_true(str_base64(text, out, &n));
        assert_int_equal(n, rows[i].n);
        assert_memory_equal(out, rows[i].bytes, n);
    }
    assert_false(str_base64(SLICE("Zm9v\nYmFy"), out, &n));
    assert_false(str_base64(SLICE("Zm\0v"), out, &n));
    assert_false(str_base64(SLICE("Zm-_"), out, &n));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(utf8_accepts_exactly_the_well_formed),
        cmocka_unit_test(base64_is_read_with_and_without_padding),
        cmocka_unit_test(numbers_read_back),
        cmocka_unit_test(buffers_stop_at_their_ceiling),
        cmocka_unit_test(arenas_stop_at_their_ceiling),
        cmocka_unit_test(maps_find_what_was_put),
        cmocka_unit_test(failed_allocations_leave_a_map_whole),
        cmocka_unit_test(failed_allocations_stick_to_a_buffer),
        cmocka_unit_test(sizes_that_overflow_are_refused),
        cmocka_unit_test(errors_hold_clean_text),
        cmocka_unit_test(crc32c_matches_rfc3720),
        cmocka_unit_test(pools_run_every_thread_once),
        cmocka_unit_test(pools_survive_failed_allocations),
        cmocka_unit_test(barriers_hold_everybody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

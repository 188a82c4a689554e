/* The calculator: values computed by Python's fractions and 128-bit arithmetic, and what it refuses. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "tools/calc.h"

static int eval(const char *text, char *out, size_t size, struct err *e) {
    struct calc_value v;
    struct buf b;
    buf_init(&b, 8192);
    int rc = calc_eval(&v, text, strlen(text), e);
    if (!rc) calc_write(&b, &v);
    snprintf(out, size, "%s", b.n ? b.p : "");
    buf_fini(&b);
    return rc;
}

static void test_values(void **state) {
    (void)state;
    static const struct {
        const char *text, *want;
    } rows[] = {
        {"2+2", "4"},
        {"123 + 456 =", "579"},
        {"7 - 12", "-5"},
        {"2 + 3 * 4", "14"},
        {"(2 + 3) * 4", "20"},
        {"490 x 7", "3430"},
        {"3x4", "12"},
        {"914 \xc3\x97 408", "372912"},
        {"8410 \xc3\xb7 58", "145"},
        {"512 minus 986", "-474"},
        {"7380 times 2916", "21520080"},
        {"1332 divided by 37", "36"},
        {"570 fois 306", "174420"},
        {"-2^2", "-4"},
        {"(-2)^2", "4"},
        {"2^3^2", "512"},
        {"2**-2", "0.25"},
        {"2^200", "1606938044258990275541962092341162602522202993782792835301376"},
        {"0.1 + 0.2", "0.3"},
        {"1/8", "0.125"},
        {"10/3", "3.33333333333333 (10/3)"},
        {"1/3 + 1/6", "0.5"},
        {"3 - -3", "6"},
        {"15% of 80", "12"},
        {"15% de 80", "12"},
        {"200 + 10%", "200.1"},
        {"17 % 5", "2"},
        {"-7 mod 3", "2"},
        {"5!", "120"},
        {"50!", "30414093201713378043612608166064768844377641568960512000000000000"},
        {"sqrt(144)", "12"},
        {"sqrt(2.25)", "1.5"},
        {"sqrt(2)", "1.4142135623731 (rounded)"},
        {"sqrt(10000000000000000000200000000000000000001)", "100000000000000000001"},
        {"gcd(123456789012345678901234567890,987654321098765432109876543210)",
         "9000000000900000000090"},
        {"lcm(4, 6, 10)", "60"},
        {"floor(123456789^10 / 987654321^3)",
         "853758159513678096272895010824035922519989662942075199"},
        {"123456789^10 mod 987654321^3", "137327491860631166680547562"},
        {"min(3, 1, 2) + max(1,234)", "235"},
        {"mean(1, 2, 3, 4)", "2.5"},
        {"round(2.5) + round(-2.5) + floor(-0.5) + ceil(-0.5)", "-1"},
        {"abs(-3.5)", "3.5"},
        {"1,234,567 + 1", "1234568"},
        {"1 234 567 + 1", "1234568"},
        {"3,5 + 1", "4.5"},
        {"1.5e3", "1500"},
        {"2(3+4)", "14"},
        {"cos(0)", "1 (rounded)"},
        {"pi", "3.1415926535898 (rounded)"},
        {"0^0", "1"},
        {"[1 + 2] * 3", "9"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
        char out[512];
        struct err e = {0};
        if (eval(rows[i].text, out, sizeof out, &e)) fail_msg("%s: %s", rows[i].text, e.text);
        if (strcmp(out, rows[i].want))
            fail_msg("%s: expected %s, got %s", rows[i].text, rows[i].want, out);
    }
}

static void test_refused(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int code;
    } rows[] = {
        {"", CHIMERE_EFORMAT},
        {"1 +", CHIMERE_EFORMAT},
        {"1 2", CHIMERE_EFORMAT},
        {"(1", CHIMERE_EFORMAT},
        {"1)", CHIMERE_EFORMAT},
        {"system(1)", CHIMERE_EFORMAT},
        {"__import__('os')", CHIMERE_EFORMAT},
        {"1/0", CHIMERE_EINVAL},
        {"1 mod 0", CHIMERE_EINVAL},
        {"0^-1", CHIMERE_EINVAL},
        {"9^9^9", CHIMERE_ELIMIT},
        {"9^9^9^9^9", CHIMERE_ELIMIT},
        {"5000!", CHIMERE_ELIMIT},
        {"1e9999", CHIMERE_ELIMIT},
        {"ln(0)", CHIMERE_ENUMERIC},
        {"sqrt(-1)", CHIMERE_ENUMERIC},
        {"gcd(1.5, 2)", CHIMERE_EINVAL},
        {"(-1)!", CHIMERE_EINVAL},
        {"min()", CHIMERE_EFORMAT},
        {"sqrt(1, 2)", CHIMERE_EFORMAT},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
        char out[512];
        struct err e = {0};
        int rc = eval(rows[i].text, out, sizeof out, &e);
        if (rc != rows[i].code)
            fail_msg("\"%s\": expected %d, got %d (%s) %s", rows[i].text, rows[i].code, rc, e.text,
                     out);
    }
    char deep[600], out[64];
    memset(deep, '(', 200);
    strcpy(deep + 200, "1");
    assert_int_equal(eval(deep, out, sizeof out, NULL), CHIMERE_ELIMIT);
    memset(deep, '-', 300);
    strcpy(deep + 300, "1");
    assert_int_equal(eval(deep, out, sizeof out, NULL), CHIMERE_ELIMIT);
}

/* Fractions against 128-bit integers: a/b op c/d = the cross product, reduced by Euclid here. */
static void test_random(void **state) {
    (void)state;
    struct rng r;
    rng_seed(&r, 7);
    for (int i = 0; i < 20000; ++i) {
        int64_t a = (int64_t)(rng_next(&r) % 2000001) - 1000000,
                c = (int64_t)(rng_next(&r) % 2000001) - 1000000;
        int64_t b = 1 + (int64_t)(rng_next(&r) % 1000), d = 1 + (int64_t)(rng_next(&r) % 1000);
        struct ratio x, y, z, got, want;
        ratio_set(&x, a), ratio_set(&y, b);
        assert_int_equal(ratio_div(&x, &x, &y), 0);
        ratio_set(&y, c), ratio_set(&z, d);
        assert_int_equal(ratio_div(&y, &y, &z), 0);
        int op = (int)(rng_next(&r) % 4);
        if (op == 3 && !c) continue;
        int rc = op == 0   ? ratio_add(&got, &x, &y)
                 : op == 1 ? ratio_sub(&got, &x, &y)
                 : op == 2 ? ratio_mul(&got, &x, &y)
                           : ratio_div(&got, &x, &y);
        assert_int_equal(rc, 0);
        int64_t num = op == 0 ? a * d + c * b : op == 1 ? a * d - c * b : op == 2 ? a * c : a * d;
        int64_t den = op == 3 ? b * c : b * d;
        ratio_set(&z, den), ratio_set(&want, num);
        if (den < 0) ratio_set(&want, -num), ratio_set(&z, -den);
        int64_t u = llabs(num), v = llabs(den);
        while (v) {
            int64_t t = u % v;
            u = v;
            v = t;
        }
        int64_t n1 = 0, d1 = 0;
        struct ratio part = got;
        ratio_set(&y, 1);
        part.den = y.den;
        assert_true(ratio_to_i64(&part, &n1));
        part.num = got.den, part.minus = false;
        assert_true(ratio_to_i64(&part, &d1));
        assert_int_equal(d1, llabs(den) / u);
        assert_int_equal(n1, (den < 0 ? -num : num) / u);
    }
}

/* Long fractions; the expected values are from exact fractions in another language, rounded once. */
static void test_long(void **state) {
    (void)state;
    static const struct {
        const char *text;
        double want;
    } rows[] = {
        {"4e50 / 82", 4.8780487804878e+48},
        {"0.287^100", 6.14030117599419e-55},
        {"1e-41 / 0.658", 1.51975683890578e-41},
        {"4 / 4956899497681563785", 8.06956042153139e-19},
        {"(2^200 * 3^50) / (2^100 * 3^80)", 6.1568975182743e+15},
        {"(2^100 * 3^80) / (2^200 * 3^50)", 1 / 6.1568975182743e+15},
        {"(2^4095 + 2^4094) / 2^4090", 48},
        {"0.5e-1200 * 2e1200", 1},
        {"0 * 1e-1200 - 0", 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
        char out[4096];
        struct err e = {0};
        if (eval(rows[i].text, out, sizeof out, &e)) fail_msg("%s: %s", rows[i].text, e.text);
        double got = strtod(out, NULL);
        if (fabs(got - rows[i].want) > 1e-14 * fabs(rows[i].want))
            fail_msg("%s: %s", rows[i].text, out);
    }
    /* rounding of the last of 15 digits */
    struct ratio a, b;
    struct buf text;
    buf_init(&text, 100);
    assert_int_equal(ratio_parse(&a, "4e50", 4), 0);
    ratio_set(&b, 82);
    assert_int_equal(ratio_div(&a, &a, &b), 0);
    assert_false(ratio_write(&text, &a));
    buf_putc(&text, 0);
    assert_string_equal(text.p, "4.8780487804878e+48");
    buf_fini(&text);
    /* the limit on both sides of 4096 bits */
    ratio_set(&a, 2);
    assert_int_equal(ratio_pow(&b, &a, RATIO_BITS - 1), 0);
    assert_int_equal(ratio_pow(&b, &a, RATIO_BITS), CHIMERE_ELIMIT);
    assert_int_equal(ratio_pow(&b, &a, 1 - RATIO_BITS), 0);
    assert_int_equal(ratio_add(&a, &b, &b), 0);
    assert_int_equal(ratio_cmp(&a, &b), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_long),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "tools/ratio.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"

/* Decimal digits of numbers and powers of ten that ratio_parse takes; places that ratio_write prints. */
enum { WIDE = 2 * RATIO_LIMBS + 4, MAX_DIGITS = 1234, MAX_PLACES = 40 };

struct wide { /* a product that is not yet reduced */
    mp_size_t n;
    mp_limb_t limb[WIDE];
};

static void trim(struct wide *w) {
    while (w->n > 0 && !w->limb[w->n - 1]) --w->n;
}

static int compare(const struct wide *a, const struct wide *b) {
    if (a->n != b->n) return a->n < b->n ? -1 : 1;
    return a->n ? mpn_cmp(a->limb, b->limb, a->n) : 0;
}

static void add(struct wide *r, const struct wide *a, const struct wide *b) {
    const struct wide *l = a->n >= b->n ? a : b, *s = a->n >= b->n ? b : a;
    mp_size_t n = l->n;
    mp_limb_t carry = n ? mpn_add(r->limb, l->limb, n, s->limb, s->n) : 0;
    if (carry) r->limb[n++] = carry;
    r->n = n;
}

/* r = a - b, for a >= b */
static void subtract(struct wide *r, const struct wide *a, const struct wide *b) {
    r->n = a->n;
    if (a->n) mpn_sub(r->limb, a->limb, a->n, b->limb, b->n);
    trim(r);
}

static void multiply(struct wide *r, const struct ratio_int *a, const struct ratio_int *b) {
    const struct ratio_int *l = a->n >= b->n ? a : b, *s = a->n >= b->n ? b : a;
    r->n = s->n ? l->n + s->n : 0;
    if (r->n) mpn_mul(r->limb, l->limb, l->n, s->limb, s->n);
    trim(r);
}

/* *q = a / b, *a = a mod b. b is not zero. */
static void divide(struct wide *q, struct wide *a, const struct wide *b) {
    q->n = a->n >= b->n ? a->n - b->n + 1 : 0;
    if (!q->n) return;
    mpn_tdiv_qr(q->limb, a->limb, 0, a->limb, a->n, b->limb, b->n);
    a->n = b->n;
    trim(q);
    trim(a);
}

static struct wide widen(const struct ratio_int *a) {
    struct wide w = {.n = a->n};
    memcpy(w.limb, a->limb, (size_t)a->n * sizeof *a->limb);
    return w;
}

static int narrow(struct ratio_int *r, const struct wide *w) {
    if (w->n > RATIO_LIMBS) return CHIMERE_ELIMIT;
    r->n = w->n;
    memcpy(r->limb, w->limb, (size_t)w->n * sizeof *r->limb);
    return 0;
}

static bool is_one(const struct wide *w) { return w->n == 1 && w->limb[0] == 1; }

/* w /= 2^k, for a k that divides w */
static void shift_right(struct wide *w, mp_bitcnt_t k) {
    mp_size_t whole = (mp_size_t)(k / GMP_NUMB_BITS);
    unsigned rest = (unsigned)(k % GMP_NUMB_BITS);
    w->n -= whole;
    if (rest) mpn_rshift(w->limb, w->limb + whole, w->n, rest);
    else memmove(w->limb, w->limb + whole, (size_t)w->n * sizeof *w->limb);
    trim(w);
}

/* Divides num and den, which are not zero, by their greatest common divisor. */
static void cancel(struct wide *num, struct wide *den) {
    mp_bitcnt_t twos_n = mpn_scan1(num->limb, 0), twos_d = mpn_scan1(den->limb, 0);
    mp_bitcnt_t both = twos_n < twos_d ? twos_n : twos_d;
    shift_right(num, both);
    shift_right(den, both);
    /* mpn_gcd needs odd numbers, the longer one first, and destroys them */
    struct wide a = *num, b = *den, g, n, d;
    shift_right(&a, twos_n - both);
    shift_right(&b, twos_d - both);
    bool swap = compare(&a, &b) < 0;
    struct wide *l = swap ? &b : &a, *s = swap ? &a : &b;
    g.n = mpn_gcd(g.limb, l->limb, l->n, s->limb, s->n);
    if (is_one(&g)) return;
    divide(&n, num, &g);
    divide(&d, den, &g);
    *num = n;
    *den = d;
}

/* Sets r to num / den in lowest terms. */
static int reduce(struct ratio *r, bool minus, struct wide *num, struct wide *den) {
    if (!den->n) return CHIMERE_EINVAL;
    if (!num->n) den->n = den->limb[0] = 1;
    else if (!is_one(den)) cancel(num, den);
    r->minus = minus && num->n;
    int rc = narrow(&r->num, num);
    return rc ? rc : narrow(&r->den, den);
}

static void set_u64(struct ratio_int *r, uint64_t x) {
    r->limb[0] = x;
    r->n = x ? 1 : 0;
}

void ratio_set(struct ratio *r, int64_t x) {
    r->minus = x < 0;
    set_u64(&r->num, x < 0 ? 0 - (uint64_t)x : (uint64_t)x);
    set_u64(&r->den, 1);
}

int ratio_add(struct ratio *r, const struct ratio *a, const struct ratio *b) {
    struct wide x, y, den, num;
    multiply(&x, &a->num, &b->den);
    multiply(&y, &b->num, &a->den);
    multiply(&den, &a->den, &b->den);
    bool minus = a->minus;
    if (a->minus == b->minus) {
        add(&num, &x, &y);
    } else if (compare(&x, &y) >= 0) {
        subtract(&num, &x, &y);
    } else {
        subtract(&num, &y, &x);
        minus = b->minus;
    }
    return reduce(r, minus, &num, &den);
}

int ratio_sub(struct ratio *r, const struct ratio *a, const struct ratio *b) {
    struct ratio minus_b = *b;
    minus_b.minus = !b->minus;
    return ratio_add(r, a, &minus_b);
}

int ratio_mul(struct ratio *r, const struct ratio *a, const struct ratio *b) {
    struct wide num, den;
    multiply(&num, &a->num, &b->num);
    multiply(&den, &a->den, &b->den);
    return reduce(r, a->minus != b->minus, &num, &den);
}

int ratio_div(struct ratio *r, const struct ratio *a, const struct ratio *b) {
    struct wide num, den;
    multiply(&num, &a->num, &b->den);
    multiply(&den, &a->den, &b->num);
    return reduce(r, a->minus != b->minus, &num, &den);
}

int ratio_pow(struct ratio *r, const struct ratio *a, int64_t k) {
    struct ratio base = *a, out;
    int rc = 0;
    if (k < 0) {
        struct ratio one;
        ratio_set(&one, 1);
        rc = ratio_div(&base, &one, a);
        if (k == INT64_MIN) return CHIMERE_ELIMIT;
        k = -k;
    }
    ratio_set(&out, 1);
    bool unit = base.num.n <= 1 && (!base.num.n || base.num.limb[0] == 1) && ratio_is_int(&base);
    if (!unit && k > RATIO_BITS) return CHIMERE_ELIMIT;
    for (; !rc && k; k >>= 1) {
        if (k & 1) rc = ratio_mul(&out, &out, &base);
        if (!rc && k > 1) rc = ratio_mul(&base, &base, &base);
    }
    if (!rc) *r = out;
    return rc;
}

int ratio_floor(struct ratio *r, const struct ratio *a) {
    struct wide num = widen(&a->num), den = widen(&a->den), q, one = {.n = 1, .limb = {1}};
    divide(&q, &num, &den);
    if (a->minus && num.n) add(&q, &q, &one);
    return reduce(r, a->minus, &q, &one);
}

/* Returns true if the root is exact. */
static bool root(struct ratio_int *r, const struct ratio_int *a) {
    r->n = (a->n + 1) / 2;
    return !a->n || !mpn_sqrtrem(r->limb, NULL, a->limb, a->n);
}

bool ratio_sqrt(struct ratio *r, const struct ratio *a) {
    struct ratio out = {0};
    if (a->minus || !root(&out.num, &a->num) || !root(&out.den, &a->den)) return false;
    *r = out;
    return true;
}

int ratio_cmp(const struct ratio *a, const struct ratio *b) {
    if (a->minus != b->minus) return a->minus ? -1 : 1;
    struct wide x, y;
    multiply(&x, &a->num, &b->den);
    multiply(&y, &b->num, &a->den);
    int c = compare(&x, &y);
    return a->minus ? -c : c;
}

bool ratio_is_int(const struct ratio *a) { return a->den.n == 1 && a->den.limb[0] == 1; }

bool ratio_to_i64(const struct ratio *a, int64_t *out) {
    if (!ratio_is_int(a) || a->num.n > 1) return false;
    uint64_t x = a->num.n ? a->num.limb[0] : 0;
    if (x > INT64_MAX) return false;
    *out = a->minus ? -(int64_t)x : (int64_t)x;
    return true;
}

static long double leading(const struct ratio_int *a, int *exponent) {
    long double x = 0;
    mp_size_t low = a->n > 2 ? a->n - 2 : 0;
    for (mp_size_t i = a->n; i-- > low;) x = ldexpl(x, GMP_NUMB_BITS) + (long double)a->limb[i];
    *exponent = (int)(GMP_NUMB_BITS * low);
    return x;
}

double ratio_to_f64(const struct ratio *a) {
    int en, ed;
    long double n = leading(&a->num, &en), d = leading(&a->den, &ed);
    double x = (double)ldexpl(n / d, en - ed);
    return a->minus ? -x : x;
}

/* Sets w to the number with n decimal digits, each 0 to 9, the first one not zero. */
static void from_digits(struct wide *w, const unsigned char *digits, size_t n) {
    w->n = n ? mpn_set_str(w->limb, digits, n, 10) : 0;
}

static void power_of_ten(struct wide *w, size_t k) {
    unsigned char digits[MAX_DIGITS + 1] = {1};
    from_digits(w, digits, k + 1);
}

/* Reads [eE][+-]digits, at most 4, at *s. */
static int parse_exponent(const char **s, const char *end, int *exponent) {
    const char *p = *s;
    *exponent = 0;
    if (p == end || (*p != 'e' && *p != 'E')) return 0;
    bool minus = ++p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+')) ++p;
    const char *from = p;
    for (; p < end && *p >= '0' && *p <= '9' && p - from < 4; ++p)
        *exponent = *exponent * 10 + (*p - '0');
    if (p == from) return CHIMERE_EFORMAT;
    if (minus) *exponent = -*exponent;
    *s = p;
    return 0;
}

int ratio_parse(struct ratio *r, const char *s, size_t n) {
    unsigned char digits[MAX_DIGITS];
    const char *end = s + n;
    bool dot = false, any = false;
    int n_digit = 0, scale = 0, exponent; /* the value is digits * 10^scale */
    for (; s < end; ++s) {
        if (*s == '.' && !dot) {
            dot = true;
            continue;
        }
        if (*s < '0' || *s > '9') break;
        any = true;
        if (n_digit == MAX_DIGITS || scale <= -MAX_DIGITS) return CHIMERE_ELIMIT;
        if (n_digit || *s > '0') digits[n_digit++] = (unsigned char)(*s - '0');
        if (dot) --scale;
    }
    if (!any) return CHIMERE_EFORMAT;
    int rc = parse_exponent(&s, end, &exponent);
    if (rc) return rc;
    if (s != end) return CHIMERE_EFORMAT;
    scale += exponent;
    if (scale < -MAX_DIGITS || n_digit + (scale > 0 ? scale : 0) > MAX_DIGITS)
        return CHIMERE_ELIMIT;
    struct wide num, den;
    for (; n_digit && scale > 0; --scale) digits[n_digit++] = 0;
    from_digits(&num, digits, (size_t)n_digit);
    power_of_ten(&den, scale < 0 ? (size_t)-scale : 0);
    return reduce(r, false, &num, &den);
}

bool ratio_write(struct buf *b, const struct ratio *a) {
    /* a finite decimal times 10^MAX_PLACES is an integer */
    struct wide num, den = widen(&a->den), q;
    struct ratio_int scale;
    power_of_ten(&q, MAX_PLACES);
    narrow(&scale, &q);
    multiply(&num, &a->num, &scale);
    divide(&q, &num, &den);
    if (num.n) {
        char text[40];
        snprintf(text, sizeof text, "%.15g", ratio_to_f64(a));
        buf_puts(b, text);
        return false;
    }
    unsigned char digits[MAX_PLACES + WIDE * 20];
    size_t lead = q.n > 3 ? 0 : MAX_PLACES + 1,
           n; /* zeros, so that there is a digit before the dot */
    memset(digits, 0, lead);
    n = lead + (q.n ? mpn_get_str(digits + lead, 10, q.limb, q.n) : 0);
    size_t first = 0, last = n;
    while (last > n - MAX_PLACES && !digits[last - 1]) --last;
    while (first + 1 < n - MAX_PLACES && !digits[first]) ++first;
    if (a->minus) buf_putc(b, '-');
    for (size_t i = first; i < last; ++i) {
        if (i == n - MAX_PLACES) buf_putc(b, '.');
        buf_putc(b, (char)('0' + digits[i]));
    }
    return true;
}

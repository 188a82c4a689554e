#include "tools/ratio.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"

enum { WIDE = 2 * RATIO_LIMBS + 2 };

struct wide { /* a product that is not yet reduced */
    int32_t n;
    uint32_t limb[WIDE];
};

static void trim(const uint32_t *p, int32_t *n) {
    while (*n > 0 && !p[*n - 1]) --*n;
}

static int compare(const uint32_t *a, int32_t na, const uint32_t *b, int32_t nb) {
    if (na != nb) return na < nb ? -1 : 1;
    for (int32_t i = na; i-- > 0;)
        if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
    return 0;
}

static void add(struct wide *r, const struct wide *a, const struct wide *b) {
    const struct wide *l = a->n >= b->n ? a : b, *s = a->n >= b->n ? b : a;
    uint64_t carry = 0;
    int32_t n = l->n;
    for (int32_t i = 0; i < n; ++i) {
        carry += (uint64_t)l->limb[i] + (i < s->n ? s->limb[i] : 0);
        r->limb[i] = (uint32_t)carry;
        carry >>= 32;
    }
    if (carry) r->limb[n++] = (uint32_t)carry;
    r->n = n;
}

/* r = a - b, for a >= b */
static void subtract(struct wide *r, const struct wide *a, const struct wide *b) {
    int64_t borrow = 0;
    int32_t n = a->n;
    for (int32_t i = 0; i < n; ++i) {
        int64_t d = (int64_t)a->limb[i] - (i < b->n ? b->limb[i] : 0) + borrow;
        r->limb[i] = (uint32_t)d;
        borrow = d < 0 ? -1 : 0;
    }
    r->n = n;
    trim(r->limb, &r->n);
}

static void multiply(struct wide *r, const struct ratio_int *a, const struct ratio_int *b) {
    memset(r->limb, 0, sizeof r->limb);
    for (int32_t i = 0; i < a->n; ++i) {
        uint64_t carry = 0;
        for (int32_t j = 0; j < b->n; ++j) {
            carry += (uint64_t)a->limb[i] * b->limb[j] + r->limb[i + j];
            r->limb[i + j] = (uint32_t)carry;
            carry >>= 32;
        }
        r->limb[i + b->n] = (uint32_t)carry;
    }
    r->n = a->n + b->n;
    trim(r->limb, &r->n);
}

static uint32_t divide_small(uint32_t *p, int32_t *n, uint32_t d) {
    uint64_t rest = 0;
    for (int32_t i = *n; i-- > 0;) {
        rest = rest << 32 | p[i];
        p[i] = (uint32_t)(rest / d);
        rest %= d;
    }
    trim(p, n);
    return (uint32_t)rest;
}

/* Long division in base 2^32 (Knuth's algorithm D): *q = a / b, *a = a mod b. b is not zero. */
static void divide(struct wide *q, struct wide *a, const struct wide *b) {
    if (compare(a->limb, a->n, b->limb, b->n) < 0) {
        q->n = 0;
        return;
    }
    if (b->n == 1) {
        *q = *a;
        uint32_t rest = divide_small(q->limb, &q->n, b->limb[0]);
        a->n = rest ? 1 : 0;
        a->limb[0] = rest;
        return;
    }
    int shift = __builtin_clz(b->limb[b->n - 1]);
    static _Thread_local uint32_t u[WIDE + 1], v[WIDE];
    int32_t n = b->n, m = a->n - b->n;
    for (int32_t i = n; i-- > 0;)
        v[i] = b->limb[i] << shift |
               (shift && i ? (uint32_t)((uint64_t)b->limb[i - 1] >> (32 - shift)) : 0);
    u[a->n] = shift ? (uint32_t)((uint64_t)a->limb[a->n - 1] >> (32 - shift)) : 0;
    for (int32_t i = a->n; i-- > 0;)
        u[i] = a->limb[i] << shift |
               (shift && i ? (uint32_t)((uint64_t)a->limb[i - 1] >> (32 - shift)) : 0);
    for (int32_t j = m; j >= 0; --j) {
        uint64_t top = (uint64_t)u[j + n] << 32 | u[j + n - 1];
        uint64_t guess = top / v[n - 1], rest = top % v[n - 1];
        while (guess >> 32 || guess * v[n - 2] > (rest << 32 | u[j + n - 2])) {
            --guess;
            rest += v[n - 1];
            if (rest >> 32) break;
        }
        int64_t borrow = 0;
        uint64_t carry = 0;
        for (int32_t i = 0; i < n; ++i) {
            carry += guess * v[i];
            int64_t d = (int64_t)u[i + j] - (int64_t)(uint32_t)carry + borrow;
            u[i + j] = (uint32_t)d;
            borrow = d < 0 ? -1 : 0;
            carry >>= 32;
        }
        int64_t d = (int64_t)u[j + n] - (int64_t)carry + borrow;
        u[j + n] = (uint32_t)d;
        if (d < 0) {
            --guess;
            uint64_t c = 0;
            for (int32_t i = 0; i < n; ++i) {
                c += (uint64_t)u[i + j] + v[i];
                u[i + j] = (uint32_t)c;
                c >>= 32;
            }
            u[j + n] += (uint32_t)c;
        }
        q->limb[j] = (uint32_t)guess;
    }
    q->n = m + 1;
    trim(q->limb, &q->n);
    for (int32_t i = 0; i < n; ++i)
        a->limb[i] = u[i] >> shift | (shift ? (uint32_t)((uint64_t)u[i + 1] << (32 - shift)) : 0);
    a->n = n;
    trim(a->limb, &a->n);
}

static struct wide widen(const struct ratio_int *a) {
    struct wide w;
    w.n = a->n;
    memcpy(w.limb, a->limb, (size_t)a->n * sizeof *a->limb);
    return w;
}

static int narrow(struct ratio_int *r, const struct wide *w) {
    if (w->n > RATIO_LIMBS) return CHIMERE_ELIMIT;
    r->n = w->n;
    memcpy(r->limb, w->limb, (size_t)w->n * sizeof *r->limb);
    return 0;
}

/* Sets r to num / den in lowest terms. */
static int reduce(struct ratio *r, bool minus, const struct wide *num, const struct wide *den) {
    if (!den->n) return CHIMERE_EINVAL;
    if (den->n == 1 && den->limb[0] == 1) {
        int rc = narrow(&r->num, num);
        if (!rc) rc = narrow(&r->den, den);
        r->minus = minus && num->n;
        return rc;
    }
    struct wide a = *num, b = *den, q;
    while (b.n) { /* Euclid's algorithm */
        divide(&q, &a, &b);
        struct wide t = a;
        a = b;
        b = t;
    }
    struct wide n = *num, d = *den, qn, qd;
    if (!num->n) {
        qn.n = 0;
        qd.n = 1, qd.limb[0] = 1;
    } else {
        divide(&qn, &n, &a);
        divide(&qd, &d, &a);
    }
    int rc = narrow(&r->num, &qn);
    if (!rc) rc = narrow(&r->den, &qd);
    r->minus = minus && num->n;
    return rc;
}

static void set_u64(struct ratio_int *r, uint64_t x) {
    r->limb[0] = (uint32_t)x;
    r->limb[1] = (uint32_t)(x >> 32);
    r->n = 2;
    trim(r->limb, &r->n);
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
    } else if (compare(x.limb, x.n, y.limb, y.n) >= 0) {
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

/* Integer square root by Newton's iteration from above. Returns true if the root is exact. */
static bool root(struct ratio_int *r, const struct ratio_int *a) {
    if (!a->n) {
        r->n = 0;
        return true;
    }
    struct wide x = {.n = 0}, n = widen(a);
    int bits = 32 * a->n - __builtin_clz(a->limb[a->n - 1]);
    int top = (bits + 1) / 2; /* 2^top >= root */
    memset(x.limb, 0, sizeof x.limb);
    x.limb[top / 32] = 1u << (top % 32);
    x.n = top / 32 + 1;
    for (;;) {
        struct wide rest = n, q, sum;
        divide(&q, &rest, &x);
        add(&sum, &q, &x);
        divide_small(sum.limb, &sum.n, 2);
        if (compare(sum.limb, sum.n, x.limb, x.n) >= 0) break;
        x = sum;
    }
    struct wide square;
    if (narrow(r, &x)) return false;
    multiply(&square, r, r);
    return !compare(square.limb, square.n, a->limb, a->n);
}

bool ratio_sqrt(struct ratio *r, const struct ratio *a) {
    if (a->minus) return false;
    struct ratio out = {0};
    if (!root(&out.num, &a->num) || !root(&out.den, &a->den)) return false;
    *r = out;
    return true;
}

int ratio_cmp(const struct ratio *a, const struct ratio *b) {
    if (a->minus != b->minus) return a->minus ? -1 : 1;
    struct wide x, y;
    multiply(&x, &a->num, &b->den);
    multiply(&y, &b->num, &a->den);
    int c = compare(x.limb, x.n, y.limb, y.n);
    return a->minus ? -c : c;
}

bool ratio_is_int(const struct ratio *a) { return a->den.n == 1 && a->den.limb[0] == 1; }

bool ratio_to_i64(const struct ratio *a, int64_t *out) {
    if (!ratio_is_int(a) || a->num.n > 2) return false;
    uint64_t x = 0;
    for (int32_t i = a->num.n; i-- > 0;) x = x << 32 | a->num.limb[i];
    if (x > INT64_MAX) return false;
    *out = a->minus ? -(int64_t)x : (int64_t)x;
    return true;
}

static double as_double(const struct ratio_int *a, int *exponent) {
    double x = 0;
    int32_t low = a->n > 4 ? a->n - 4 : 0;
    for (int32_t i = a->n; i-- > low;) x = x * 4294967296.0 + a->limb[i];
    *exponent = 32 * low;
    return x;
}

double ratio_to_f64(const struct ratio *a) {
    int en, ed;
    double n = as_double(&a->num, &en), d = as_double(&a->den, &ed);
    double x = ldexp(n / d, en - ed);
    return a->minus ? -x : x;
}

static void times_ten_plus(struct wide *w, uint32_t digit) {
    uint64_t carry = digit;
    for (int32_t i = 0; i < w->n; ++i) {
        carry += (uint64_t)w->limb[i] * 10;
        w->limb[i] = (uint32_t)carry;
        carry >>= 32;
    }
    if (carry) w->limb[w->n++] = (uint32_t)carry;
}

int ratio_parse(struct ratio *r, const char *s, size_t n) {
    struct wide num = {.n = 0}, den = {.n = 1, .limb = {1}};
    bool dot = false, any = false;
    size_t i = 0;
    for (; i < n; ++i) {
        if (s[i] == '.' && !dot) {
            dot = true;
            continue;
        }
        if (s[i] < '0' || s[i] > '9') break;
        any = true;
        if (num.n >= RATIO_LIMBS || den.n >= RATIO_LIMBS) return CHIMERE_ELIMIT;
        times_ten_plus(&num, (uint32_t)(s[i] - '0'));
        if (dot) times_ten_plus(&den, 0);
    }
    if (!any) return CHIMERE_EFORMAT;
    int exponent = 0;
    if (i < n && (s[i] == 'e' || s[i] == 'E')) {
        bool minus = ++i < n && s[i] == '-';
        if (i < n && (s[i] == '-' || s[i] == '+')) ++i;
        size_t from = i;
        for (; i < n && s[i] >= '0' && s[i] <= '9' && i - from < 4; ++i)
            exponent = exponent * 10 + (s[i] - '0');
        if (i == from) return CHIMERE_EFORMAT;
        if (minus) exponent = -exponent;
    }
    if (i != n) return CHIMERE_EFORMAT;
    for (int k = exponent; k; k += k > 0 ? -1 : 1) {
        struct wide *w = k > 0 ? &num : &den;
        if (w->n >= RATIO_LIMBS) return CHIMERE_ELIMIT;
        times_ten_plus(w, 0);
    }
    return reduce(r, false, &num, &den);
}

static void put_integer(struct buf *b, const struct wide *a) {
    struct wide w = *a;
    char digits[WIDE * 10];
    size_t n = 0;
    do {
        uint32_t nine = divide_small(w.limb, &w.n, 1000000000u);
        for (int k = 0; k < 9 && (w.n || nine || !n); ++k, nine /= 10)
            digits[n++] = (char)('0' + nine % 10);
    } while (w.n);
    while (n > 0) buf_putc(b, digits[--n]);
}

bool ratio_write(struct buf *b, const struct ratio *a) {
    struct wide num = widen(&a->num), den = widen(&a->den), q;
    int places = 0;
    /* a decimal is finite if the denominator's only prime factors are 2 and 5 */
    struct wide rest = den;
    int twos = 0, fives = 0;
    for (uint32_t p = 2; p <= 5; p += 3)
        for (;;) {
            struct wide t = rest;
            if (divide_small(t.limb, &t.n, p)) break;
            rest = t;
            ++*(p == 2 ? &twos : &fives);
        }
    places = twos > fives ? twos : fives;
    bool exact = rest.n == 1 && rest.limb[0] == 1 && places <= 40;
    if (!exact) {
        char text[40];
        snprintf(text, sizeof text, "%.15g", ratio_to_f64(a));
        buf_puts(b, text);
        return false;
    }
    if (a->minus) buf_putc(b, '-');
    divide(&q, &num, &den);
    put_integer(b, &q);
    if (places) buf_putc(b, '.');
    for (int i = 0; i < places; ++i) {
        times_ten_plus(&num, 0);
        divide(&q, &num, &den);
        buf_putc(b, (char)('0' + (q.n ? q.limb[0] : 0)));
    }
    return true;
}

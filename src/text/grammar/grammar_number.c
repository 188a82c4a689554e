/* grammar_number.c: compares decimal numbers with bounds digit by digit while they are read.
 *
 * A state contains: the sign; how many integer and fraction digits were read (up to one more than any bound has);
 * how the digits compare with the first digits of each bound; whether any digit was not zero; and the remainder
 * for multipleOf. States are found by exploring from the start. */
#include "text/grammar/grammar_number.h"

#include <string.h>

#include "base/mem.h"
#include "base/str.h"

/* ---- decimals ---- */

/* Parses a number like "-12.5e-3", as printed by str_f64, or an integer. */
static bool parse_decimal(const char *s, struct decimal *d) {
    char digits[64];
    int n = 0, point = 0, exponent = 0, exponent_sign = 1;
    *d = (struct decimal){.is_negative = *s == '-'};
    s += *s == '-';
    for (; *s >= '0' && *s <= '9' && n < 60; s++) digits[n++] = *s, point++;
    if (*s == '.')
        for (s++; *s >= '0' && *s <= '9' && n < 60; s++) digits[n++] = *s;
    if (*s == 'e' || *s == 'E') {
        s++;
        if (*s == '-') exponent_sign = -1;
        if (*s == '-' || *s == '+') s++;
        for (; *s >= '0' && *s <= '9' && exponent < 10000; s++)
            exponent = exponent * 10 + (*s - '0');
    }
    if (*s || n == 0) return false;
    point += exponent_sign * exponent;
    int first = 0;
    while (first < n && digits[first] == '0') first++;
    while (n > first && digits[n - 1] == '0') n--;
    if (first == n) { /* zero */
        d->is_negative = false;
        return true;
    }
    /* value = 0.digits * 10^point, counted from the first kept digit */
    int lead = point - first, n_kept = n - first;
    int n_int = lead > 0 ? lead : 0, pad = lead < 0 ? -lead : 0;
    int n_frac = n_kept - lead > 0 ? n_kept - lead : 0;
    if (n_int + n_frac > DECIMAL_MAX_DIGIT) return false;
    d->n_int = (uint32_t)n_int, d->n_frac = (uint32_t)n_frac;
    memset(d->digits, '0', (size_t)(n_int + n_frac));
    memcpy(d->digits + pad, digits + first, (size_t)n_kept);
    return true;
}

bool decimal_from_json(const json_t *x, struct decimal *out) {
    char text[64];
    if (json_is_integer(x)) {
        long long v = json_integer_value(x);
        unsigned long long u = v < 0 ? 0ULL - (unsigned long long)v : (unsigned long long)v;
        char *end = text + sizeof text - 1;
        *end = 0;
        do *--end = (char)('0' + u % 10);
        while (u /= 10);
        if (v < 0) *--end = '-';
        return parse_decimal(end, out);
    }
    if (!json_is_real(x)) return false;
    str_f64(text, json_real_value(x));
    return parse_decimal(text, out);
}

static int compare_magnitude(const struct decimal *x, const struct decimal *y) {
    if (x->n_int != y->n_int) return x->n_int < y->n_int ? -1 : 1;
    uint32_t nx = x->n_int + x->n_frac, ny = y->n_int + y->n_frac, n = nx < ny ? nx : ny;
    int c = memcmp(x->digits, y->digits, n);
    return c ? (c < 0 ? -1 : 1) : nx < ny ? -1 : nx > ny;
}

int decimal_compare(const struct decimal *x, const struct decimal *y) {
    if (x->is_negative != y->is_negative) return x->is_negative ? -1 : 1;
    return x->is_negative ? -compare_magnitude(x, y) : compare_magnitude(x, y);
}

bool decimal_is_int(const struct decimal *x) { return x->n_frac == 0; }

static uint64_t gcd(uint64_t a, uint64_t b) {
    while (b) {
        uint64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

bool number_add_multiple(struct number_spec *s, const struct decimal *x, bool negate) {
    uint64_t p = 0, q = s->multiple[negate].n;
    uint32_t old = s->multiple[negate].shift, shift = x->n_frac > old ? x->n_frac : old;
    if (x->is_negative || x->n_int + x->n_frac == 0 || x->n_frac > 300) return false;
    for (uint32_t i = 0; i < x->n_int + x->n_frac; i++) {
        p = p * 10 + (uint64_t)(x->digits[i] - '0');
        if (p > NUMBER_MAX_MULTIPLE) return false;
    }
    if (q && negate) return false;
    if (q) { /* combine both into a common multiple */
        for (uint32_t i = x->n_frac; i < shift; i++)
            if ((p *= 10) > NUMBER_MAX_MULTIPLE) return false;
        for (uint32_t i = old; i < shift; i++)
            if ((q *= 10) > NUMBER_MAX_MULTIPLE) return false;
        p = p / gcd(p, q) * q;
        if (p > NUMBER_MAX_MULTIPLE) return false;
    }
    s->multiple[negate].n = (uint32_t)p;
    s->multiple[negate].shift = shift;
    return true;
}

bool number_is_empty(const struct number_spec *s) {
    if (!s->is_int && !s->is_fraction) return true;
    if (!s->has_min || !s->has_max) return false;
    int c = decimal_compare(&s->min, &s->max);
    return c > 0 || (c == 0 && (s->min_excluded || s->max_excluded));
}

/* ---- the automaton ---- */

#define MAX_PLAIN_DIGIT                                                                            \
    16 /* with limits.plain: digits before and after the point, unless a bound has more */
#define MAX_EXP_DIGIT 2
#define MAX_COUNTED_MULTIPLE 256

enum phase { AT_START, AT_SIGN, AT_ZERO, IN_INT, AT_POINT, IN_FRAC, AT_EXP, AT_EXP_SIGN, IN_EXP };
enum order { SAME, LESS, MORE };

/* has no padding, because it is compared as bytes */
struct place {
    uint16_t n_int, n_frac; /* digits read, up to a maximum */
    /* has_digit, has_fraction: a digit, a fraction digit was not 0 */
    uint8_t phase, is_negative, has_digit, has_fraction;
    /* enum order compared with |min| and |max| */
    uint8_t order[2];
    uint8_t is_finer[2]; /* a digit after the multiple's last place was not 0 */
    uint32_t rest[2];    /* remainder for multiple[i] */
};

struct explorer {
    struct grammar_builder *b;
    const struct number_spec *s;
    struct map seen;
    struct grammar_vec places; /* struct place */
    struct grammar_vec nodes;  /* entry node of each place; its G_BYTES node is found through it */
    uint32_t cap_int, cap_frac;
    uint32_t max_int, max_frac; /* limits of the number of digits; 0: no limit */
    bool has_exponent;
};

static const struct decimal *bound(const struct explorer *x, int i) {
    return i == 0 ? (x->s->has_min ? &x->s->min : NULL) : x->s->has_max ? &x->s->max : NULL;
}

/* Compares |number| with |bound i| as if the text ended here. */
static enum order final_order(const struct explorer *x, const struct place *p, int i) {
    const struct decimal *d = bound(x, i);
    uint32_t n_int = p->phase == AT_ZERO ? 0 : p->n_int; /* the text 0 has no digits as a decimal */
    if (p->phase <= IN_INT) {
        if (n_int != d->n_int) return n_int < d->n_int ? LESS : MORE;
    }
    if (p->order[i] != SAME) return (enum order)p->order[i];
    return (p->phase <= IN_INT ? 0 : p->n_frac) < d->n_frac ? LESS : SAME;
}

/* Compares the number with bound i, including signs. */
static enum order signed_order(const struct explorer *x, const struct place *p, int i) {
    const struct decimal *d = bound(x, i);
    bool is_zero = !p->has_digit, negative = p->is_negative && !is_zero;
    if (negative != d->is_negative) return negative ? LESS : MORE;
    enum order o = final_order(x, p, i);
    return o == SAME || !negative ? o : o == LESS ? MORE : LESS;
}

static bool accepts(const struct explorer *x, const struct place *p) {
    const struct number_spec *s = x->s;
    if (p->phase == IN_EXP) return true;
    if (p->phase != AT_ZERO && p->phase != IN_INT && p->phase != IN_FRAC) return false;
    if (p->has_fraction ? !s->is_fraction : !s->is_int) return false;
    if (s->has_min) {
        enum order o = signed_order(x, p, 0);
        if (o == LESS || (o == SAME && s->min_excluded)) return false;
    }
    if (s->has_max) {
        enum order o = signed_order(x, p, 1);
        if (o == MORE || (o == SAME && s->max_excluded)) return false;
    }
    for (int i = 0; i < 2; i++) {
        if (s->multiple[i].n == 0) continue;
        uint64_t rest = p->rest[i];
        for (uint32_t k = p->phase == IN_FRAC ? p->n_frac : 0; k < s->multiple[i].shift; k++)
            rest = rest * 10 % s->multiple[i].n;
        if ((rest == 0 && !p->is_finer[i]) == (i == 1)) return false;
    }
    return true;
}

static uint32_t place_node(struct explorer *x, const struct place *p) {
    uint32_t i;
    if (map_find(&x->seen, (const char *)p, sizeof *p, &i)) return ((uint32_t *)x->nodes.p)[i];
    i = grammar_vec_add(x->b, &x->places, 1, sizeof *p, "states of number ranges",
                        x->b->lim.n_node);
    uint32_t k =
        grammar_vec_add(x->b, &x->nodes, 1, 4, "states of number ranges", x->b->lim.n_node);
    if (k == GRAMMAR_NONE) return 0;
    ((struct place *)x->places.p)[i] = *p;
    uint32_t node = ((uint32_t *)x->nodes.p)[i] = grammar_reserve(x->b);
    if (map_put(&x->seen, (const char *)p, sizeof *p, i) < 0) grammar_nomem(x->b);
    return node;
}

/* Compares a digit with the digits of the bounds at the same place. */
static void read_digit(const struct explorer *x, struct place *p, char digit) {
    bool in_int = p->phase == IN_INT;
    uint32_t at = in_int ? p->n_int : p->n_frac;
    for (int i = 0; i < 2; i++) {
        const struct decimal *d = bound(x, i);
        if (!d || p->order[i] != SAME) continue;
        char other =
            at < (in_int ? d->n_int : d->n_frac) ? d->digits[in_int ? at : d->n_int + at] : '0';
        p->order[i] = digit == other ? SAME : digit < other ? LESS : MORE;
    }
    if (in_int && p->n_int < x->cap_int) p->n_int++;
    if (!in_int && p->n_frac < x->cap_frac) p->n_frac++;
    for (int i = 0; i < 2; i++) {
        if (x->s->multiple[i].n == 0) continue;
        if (in_int || at < x->s->multiple[i].shift)
            p->rest[i] = (p->rest[i] * 10 + (uint32_t)(digit - '0')) % x->s->multiple[i].n;
        else p->is_finer[i] |= digit != '0';
    }
    p->has_digit |= digit != '0';
    if (!in_int) p->has_fraction |= digit != '0';
}

/* At the point, the length of the integer part is known; it decides before any digit does. */
static void end_int(const struct explorer *x, struct place *p) {
    for (int i = 0; i < 2; i++) {
        const struct decimal *d = bound(x, i);
        uint32_t n = p->phase == AT_ZERO ? 0 : p->n_int;
        if (d && n != d->n_int) p->order[i] = n < d->n_int ? LESS : MORE;
    }
    p->n_int = 0;
}

/* Computes the place after `digit`; false: the digit is not allowed. */
static bool after_digit(const struct explorer *x, const struct place *p, char digit,
                        struct place *out) {
    *out = *p;
    switch ((enum phase)p->phase) {
    case AT_START:
    case AT_SIGN:
        out->phase = digit == '0' ? AT_ZERO : IN_INT;
        if (digit != '0') read_digit(x, out, digit);
        return true;
    case IN_INT:
        if (x->max_int && p->n_int == x->max_int) return false;
        read_digit(x, out, digit);
        return true;
    case AT_POINT:
    case IN_FRAC:
        if (x->max_frac && p->n_frac == x->max_frac) return false;
        out->phase = IN_FRAC;
        if (digit != '0' && !x->s->is_fraction) return false;
        read_digit(x, out, digit);
        return true;
    case AT_EXP:
    case AT_EXP_SIGN:
    case IN_EXP:
        out->phase = IN_EXP;
        if (x->max_int && ++out->n_int > MAX_EXP_DIGIT) return false;
        return true;
    default: return false; /* AT_ZERO: no leading zeros */
    }
}

static void define_place(struct explorer *x, uint32_t i) {
    struct grammar_builder *b = x->b;
    struct place p = ((struct place *)x->places.p)[i], next;
    uint32_t node = ((uint32_t *)x->nodes.p)[i];
    struct grammar_edge e[16];
    uint32_t n = 0;
    for (int digit = '0'; digit <= '9'; digit++)
        if (after_digit(x, &p, digit, &next))
            e[n++] = (struct grammar_edge){(uint8_t)digit, (uint8_t)digit, 0, place_node(x, &next)};
    next = p;
    if (p.phase == AT_START) {
        next.phase = AT_SIGN, next.is_negative = 1;
        e[n++] = (struct grammar_edge){'-', '-', 0, place_node(x, &next)};
    }
    bool has_point = x->s->is_fraction || !b->lim.plain;
    if (has_point && (p.phase == AT_ZERO || p.phase == IN_INT)) {
        end_int(x, &next);
        next.phase = AT_POINT;
        e[n++] = (struct grammar_edge){'.', '.', 0, place_node(x, &next)};
    }
    if (x->has_exponent && (p.phase == AT_ZERO || p.phase == IN_INT || p.phase == IN_FRAC)) {
        next = (struct place){.phase = AT_EXP};
        uint32_t to = place_node(x, &next);
        e[n++] = (struct grammar_edge){'e', 'e', 0, to};
        e[n++] = (struct grammar_edge){'E', 'E', 0, to};
    }
    if (p.phase == AT_EXP) {
        next = (struct place){.phase = AT_EXP_SIGN};
        uint32_t to = place_node(x, &next);
        e[n++] = (struct grammar_edge){'+', '+', 0, to};
        if (x->s->is_fraction) e[n++] = (struct grammar_edge){'-', '-', 0, to};
    }
    if (accepts(x, &p)) {
        uint32_t to[2] = {grammar_add_bytes(b, e, n), b->ret};
        grammar_define_alt(b, node, to, 2);
    } else {
        grammar_define_bytes(b, node, e, n, GRAMMAR_NONE);
    }
}

/* Limits the number of digits, because a small model may write digits without end. Each digit needs its own
 * states, so there is no limit with a large multipleOf. */
static void limit_digits(struct explorer *x) {
    if (x->s->multiple[0].n > MAX_COUNTED_MULTIPLE || x->s->multiple[1].n > MAX_COUNTED_MULTIPLE)
        return;
    if (x->cap_int < MAX_PLAIN_DIGIT) x->cap_int = MAX_PLAIN_DIGIT;
    if (x->cap_frac < MAX_PLAIN_DIGIT) x->cap_frac = MAX_PLAIN_DIGIT;
    x->max_int = x->cap_int;
    x->max_frac = x->cap_frac;
}

uint32_t grammar_add_number(struct grammar_builder *b, const struct number_spec *s) {
    struct explorer x = {.b = b, .s = s};
    uint32_t node = 0;
    for (int i = 0; i < 2; i++) {
        const struct decimal *d = bound(&x, i);
        if (d && d->n_int > x.cap_int) x.cap_int = d->n_int;
        if (d && d->n_frac > x.cap_frac) x.cap_frac = d->n_frac;
    }
    for (int i = 0; i < 2; i++)
        if (s->multiple[i].shift > x.cap_frac) x.cap_frac = s->multiple[i].shift;
    if (s->has_min || s->has_max) x.cap_int++;
    /* integers may have an exponent, but not a fraction with one: 1.5e1 is not allowed */
    x.has_exponent = s->is_int && !s->has_min && !s->has_max && !s->multiple[0].n &&
                     !s->multiple[1].n && (s->is_fraction || !b->lim.plain);
    if (b->lim.plain) limit_digits(&x);
    map_init(&x.seen, (size_t)b->lim.n_node * 32);
    if (!b->rc) {
        struct place start;
        memset(&start, 0, sizeof start);
        start.phase = AT_START;
        node = place_node(&x, &start);
    }
    for (uint32_t i = 0; i < x.places.n && !b->rc; i++) define_place(&x, i);
    mem_free(x.places.p), mem_free(x.nodes.p);
    map_fini(&x.seen);
    return node;
}

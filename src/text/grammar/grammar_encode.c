/* grammar_encode.c: converts ranges of code points to transitions over the bytes that encode them.
 *
 * A code point is a number in mixed radix: UTF-8 of three bytes has digits of 4, 6 and 6 bits; an escape \uXXXX
 * has four of 4 bits; a surrogate pair has 2,4,4 | 2,4,4. Each digit is one byte (two or three ranges of bytes for
 * a hexadecimal digit, because of upper and lower case). Ranges of numbers are split into ranges of digits, level
 * by level. Nodes with equal content are shared, so that a large range needs only a chain of nodes. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/grammar/grammar_impl.h"

enum digit_form { BYTE, HEX };

struct radix {
    uint32_t base, n_value; /* code points base..base+n_value-1 */
    uint32_t n_digit;
    struct {
        uint8_t bits;
        uint8_t form;     /* enum digit_form */
        uint8_t add;      /* added to the digit before it is written */
        bool is_low_pair; /* "\uD" is written before this digit */
    } digit[6];
};

static const struct radix utf8[4] = {
    {0, 0x80, 1, {{7, BYTE, 0, false}}},
    {0, 0x800, 2, {{5, BYTE, 0xC0, false}, {6, BYTE, 0x80, false}}},
    {0, 0x10000, 3, {{4, BYTE, 0xE0, false}, {6, BYTE, 0x80, false}, {6, BYTE, 0x80, false}}},
    {0,
     0x200000,
     4,
     {{3, BYTE, 0xF0, false},
      {6, BYTE, 0x80, false},
      {6, BYTE, 0x80, false},
      {6, BYTE, 0x80, false}}},
};
static const struct radix escape = {
    0,
    0x10000,
    4,
    {{4, HEX, 0, false}, {4, HEX, 0, false}, {4, HEX, 0, false}, {4, HEX, 0, false}}};
static const struct radix pair = {0x10000,
                                  0x100000,
                                  6,
                                  {{2, HEX, 8, false},
                                   {4, HEX, 0, false},
                                   {4, HEX, 0, false},
                                   {2, HEX, 12, true},
                                   {4, HEX, 0, false},
                                   {4, HEX, 0, false}}};

static void put_edge(struct grammar_builder *b, struct grammar_edges *out, uint32_t lo, uint32_t hi,
                     uint32_t to) {
    if (out->n == sizeof out->e / sizeof *out->e)
        grammar_fail(b, CHIMERE_EINTERNAL, "grammar: more transitions than bytes");
    else out->e[out->n++] = (struct grammar_edge){(uint8_t)lo, (uint8_t)hi, 0, to};
}

static void put_hex(struct grammar_builder *b, struct grammar_edges *out, uint32_t lo, uint32_t hi,
                    uint32_t to) {
    if (lo < 10) put_edge(b, out, '0' + lo, '0' + (hi < 10 ? hi : 9), to);
    if (hi < 10) return;
    if (lo < 10) lo = 10;
    put_edge(b, out, 'A' + lo - 10, 'A' + hi - 10, to);
    put_edge(b, out, 'a' + lo - 10, 'a' + hi - 10, to);
}

static void radix_edges(struct grammar_builder *b, const struct radix *x, uint32_t level,
                        const struct grammar_range *r, uint32_t n, struct grammar_edges *out);

static uint32_t radix_node(struct grammar_builder *b, const struct radix *x, uint32_t level,
                           const struct grammar_range *r, uint32_t n) {
    if (level == x->n_digit) return r[0].to;
    struct grammar_edges edges = {.n = 0};
    radix_edges(b, x, level, r, n, &edges);
    uint32_t node = grammar_add_bytes(b, edges.e, edges.n);
    if (x->digit[level].is_low_pair) {
        struct grammar_edge d[2] = {{'D', 'D', 0, node}, {'d', 'd', 0, node}};
        node = grammar_add_literal(b, "\\u", 2, grammar_add_bytes(b, d, 2));
    }
    return node;
}

/* Adds the edges for the digit at `level` of the numbers in r[n], which are relative to the digits before. */
static void radix_edges(struct grammar_builder *b, const struct radix *x, uint32_t level,
                        const struct grammar_range *r, uint32_t n, struct grammar_edges *out) {
    uint32_t shift = 0;
    for (uint32_t i = level + 1; i < x->n_digit; i++) shift += x->digit[i].bits;
    uint32_t low_mask = (1u << shift) - 1;
    /* sub: the parts of the ranges that begin with the current digit */
    struct grammar_range *sub = mem_alloc_array(n + 1, sizeof *sub);
    if (!sub) {
        grammar_nomem(b);
        return;
    }
    uint32_t n_sub = 0, digit = 0;
    for (uint32_t i = 0; i <= n && !b->rc; i++) {
        uint32_t lo = i < n ? r[i].lo : 0, hi = i < n ? r[i].hi : 0;
        for (bool more = true; more && !b->rc;) {
            if (n_sub && (i == n || lo >> shift != digit)) {
                uint32_t to = radix_node(b, x, level + 1, sub, n_sub),
                         d = digit + x->digit[level].add;
                if (x->digit[level].form == HEX) put_hex(b, out, d, d, to);
                else put_edge(b, out, d, d, to);
                n_sub = 0;
            }
            if (i == n) break;
            uint32_t first = lo >> shift, last = hi >> shift;
            bool starts_full = (lo & low_mask) == 0;
            if (starts_full && (first < last || (hi & low_mask) == low_mask)) {
                /* digits first..z are completely in the range */
                uint32_t z = (hi & low_mask) == low_mask ? last : last - 1;
                struct grammar_range all = {0, low_mask, r[i].to};
                uint32_t to = radix_node(b, x, level + 1, &all, 1), add = x->digit[level].add;
                if (x->digit[level].form == HEX) put_hex(b, out, first + add, z + add, to);
                else put_edge(b, out, first + add, z + add, to);
                more = z < last;
                lo = (z + 1) << shift;
            } else {
                digit = first;
                uint32_t end = first < last ? low_mask : hi & low_mask;
                sub[n_sub++] = (struct grammar_range){lo & low_mask, end, r[i].to};
                more = first < last;
                lo = (first + 1) << shift;
            }
        }
    }
    mem_free(sub);
}

/* Writes the part of r[n] within lo..hi, relative to base, to out; returns the number of ranges. */
static uint32_t clip(const struct grammar_range *r, uint32_t n, uint32_t lo, uint32_t hi,
                     uint32_t base, struct grammar_range *out) {
    uint32_t k = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (r[i].hi < lo || r[i].lo > hi) continue;
        out[k++] = (struct grammar_range){(r[i].lo > lo ? r[i].lo : lo) - base,
                                          (r[i].hi < hi ? r[i].hi : hi) - base, r[i].to};
    }
    return k;
}

static void utf8_edges(struct grammar_builder *b, const struct grammar_range *r, uint32_t n,
                       struct grammar_range *part, struct grammar_edges *out) {
    static const uint32_t first[] = {0, 0x80, 0x800, 0x10000, 0x110000};
    for (int len = 0; len < 4; len++) {
        uint32_t k = clip(r, n, first[len], first[len + 1] - 1, 0, part);
        if (len == 2) { /* without surrogates */
            k = clip(r, n, 0x800, 0xD7FF, 0, part);
            k += clip(r, n, 0xE000, 0xFFFF, 0, part + k);
        }
        if (k) radix_edges(b, &utf8[len], 0, part, k, out);
    }
}

static int by_lo(const void *a, const void *b) {
    const struct grammar_range *x = a, *y = b;
    return (x->lo > y->lo) - (x->lo < y->lo);
}

void grammar_tidy_ranges(struct grammar_builder *b, struct grammar_vec *ranges, uint32_t first,
                         bool negate, uint32_t limit) {
    if (b->rc) return;
    struct grammar_range *r = (struct grammar_range *)ranges->p + first;
    uint32_t n = ranges->n - first, k = 0;
    if (n > 1) qsort(r, n, sizeof *r, by_lo);
    for (uint32_t i = 1; i < n; i++) {
        if (r[i].lo > r[k].hi + 1) r[++k] = r[i];
        else if (r[i].hi > r[k].hi) r[k].hi = r[i].hi;
    }
    if (n) ranges->n = first + k + 1;
    if (!negate) return;
    n = ranges->n - first;
    /* the inverse can have one more range */
    if (grammar_vec_add(b, ranges, 1, sizeof *r, "ranges", limit) == GRAMMAR_NONE) return;
    r = (struct grammar_range *)ranges->p + first;
    uint32_t lo = 0, out = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct grammar_range now = r[i];
        if (now.lo > lo) r[out++] = (struct grammar_range){lo, now.lo - 1, 0};
        lo = now.hi + 1;
    }
    if (lo <= 0x10FFFF) r[out++] = (struct grammar_range){lo, 0x10FFFF, 0};
    ranges->n = first + out;
}

void grammar_utf8_edges(struct grammar_builder *b, const struct grammar_range *r, uint32_t n,
                        struct grammar_edges *out) {
    if (!grammar_tick(b, n)) return;
    struct grammar_range *part = mem_alloc_array((size_t)n * 2 + 2, sizeof *part);
    if (part) utf8_edges(b, r, n, part, out);
    else grammar_nomem(b);
    mem_free(part);
}

/* Returns the node after "\u". Code points from D800 on start with the digit D, like surrogates. */
static uint32_t hex_node(struct grammar_builder *b, const struct grammar_range *r, uint32_t n,
                         struct grammar_range *part) {
    struct grammar_edges top = {.n = 0}, d = {.n = 0};
    uint32_t k = clip(r, n, 0, 0xCFFF, 0, part);
    k += clip(r, n, 0xE000, 0xFFFF, 0, part + k);
    radix_edges(b, &escape, 0, part, k, &top);
    k = clip(r, n, 0xD000, 0xD7FF, 0xD000, part);
    radix_edges(b, &escape, 1, part, k, &d);
    k = clip(r, n, 0x10000, 0x10FFFF, pair.base, part);
    radix_edges(b, &pair, 0, part, k, &d);
    if (d.n) put_hex(b, &top, 13, 13, grammar_add_bytes(b, d.e, d.n));
    return top.n ? grammar_add_bytes(b, top.e, top.n) : GRAMMAR_NONE;
}

/* Adds the edges for the spellings of characters in a JSON string. known: a character is escaped only if JSON requires
 * it, with its short escape if it has one. */
static void json_edges(struct grammar_builder *b, const struct grammar_range *r, uint32_t n,
                       bool known, struct grammar_edges *out) {
    static const char shorts[][2] = {{'"', '"'},  {'\\', '\\'}, {'b', '\b'}, {'f', '\f'},
                                     {'n', '\n'}, {'r', '\r'},  {'t', '\t'}, {'/', '/'}};
    size_t n_short = sizeof shorts / sizeof *shorts - known;
    if (!grammar_tick(b, n) || n == 0) return;
    struct grammar_range *part = mem_alloc_array((size_t)n * 3 + 6, sizeof *part);
    struct grammar_range *raw = mem_alloc_array((size_t)n * 3 + 4, sizeof *raw);
    if (part && raw) {
        uint32_t k = clip(r, n, 0x20, '"' - 1, 0, raw);
        k += clip(r, n, '"' + 1, '\\' - 1, 0, raw + k);
        k += clip(r, n, '\\' + 1, 0x10FFFF, 0, raw + k);
        utf8_edges(b, raw, k, part, out);
        struct grammar_edges esc = {.n = 0};
        for (size_t s = 0; s < n_short; s++)
            if (clip(r, n, (uint8_t)shorts[s][1], (uint8_t)shorts[s][1], 0, part))
                put_edge(b, &esc, (uint8_t)shorts[s][0], (uint8_t)shorts[s][0], part[0].to);
        if (known) {
            k = clip(r, n, 0, '\b' - 1, 0, raw);
            k += clip(r, n, '\v', '\v', 0, raw + k);
            k += clip(r, n, '\r' + 1, 0x1F, 0, raw + k);
            r = raw, n = k;
        }
        uint32_t hex = n ? hex_node(b, r, n, part) : GRAMMAR_NONE;
        if (hex != GRAMMAR_NONE) put_edge(b, &esc, 'u', 'u', hex);
        if (esc.n) put_edge(b, out, '\\', '\\', grammar_add_bytes(b, esc.e, esc.n));
    } else {
        grammar_nomem(b);
    }
    mem_free(raw);
    mem_free(part);
}

void grammar_json_edges(struct grammar_builder *b, const struct grammar_range *r, uint32_t n,
                        struct grammar_edges *out) {
    json_edges(b, r, n, false, out);
}

void grammar_known_edges(struct grammar_builder *b, const struct grammar_range *r, uint32_t n,
                         struct grammar_edges *out) {
    json_edges(b, r, n, true, out);
}

/* quant_refine.c: see quant_refine.h.
 *
 * With g = C e, changing the values of a unit's weights by d changes e C e by d C d - 2 d g. For a single weight k the
 * best value is the one nearest to y + g / C[k, k]; it is searched only if g is beyond the bounds within which the
 * current one is nearest. In a unit of several weights, the values are f b: proportional to an entry b of a code book.
 * The codes tried there are those whose entries are nearest to the current one. g is updated incrementally: a change
 * costs one pass over a row of C. Codes of iq4_kss are bound by parity in groups of four, so one changes if its parity
 * stays, and two change together.
 *
 * Loops over rows of C have no sums across elements, so wider instructions give the same bits. */
#include "format/quant_refine.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "base/os/features.h"
#include "base/thread.h"
#include "format/quant.h"
#include "format/quant_code.h"
#include "format/quant_ik.h"
#include "format/v4.h"

enum {
    BLOCK = QUANT_REFINE_BLOCK,
    SWEEPS = 16,         /* over one part; fewer if a sweep changes nothing */
    ROUNDS = 6,          /* over both parts, each with a sweep */
    MAX_BYTES = 320 + 8, /* 256 weights in any type here, plus a row's scale */
    MAX_UNIT = 8,
    WORD = 4,    /* codes that share their parity */
    REACH = 2,   /* steps by which a code of a word changes */
    N_NEAR = 48, /* codes tried for a unit of several weights */
};

/* What the codes of a part mean whose units have several weights. Made once, from a block that is always the same. */
struct book {
    int n, n_code, wide; /* weights per unit; codes; n, at least 4 */
    float values[QUANT_CODE_MAX *
                 MAX_UNIT]; /* [n_code, wide]: of a unit, up to a factor per weight */
    uint16_t near[QUANT_CODE_MAX][N_NEAR]; /* codes by the distance of their values */
    const struct quant_part *_Atomic part; /* NULL: not made yet */
};

struct refine {
    const struct quant_traits *t;
    const struct quant_code *code;
    const float *c; /* view [n, BLOCK] */
    const float *x; /* view [n] */
    int n;          /* current number of weights, at most BLOCK */
    bool even;      /* words of four codes have even parity */
    float *points;  /* owned [BLOCK, n_code]: value of each single weight for each code */
    const struct book *book[QUANT_CODE_PARTS]; /* views; NULL for single weights */
    int n_bit;                                 /* of a single weight's code */
    uint8_t *bits;          /* owned [n_bit, MAX_BYTES]: where bit i of the codes is in `row` */
    uint8_t row[MAX_BYTES]; /* the row's scale, then the current blocks */
    float y[BLOCK], e[BLOCK], g[BLOCK];
    float low[BLOCK], high[BLOCK]; /* of g, within which a single weight's code is the best */
};

static uint8_t *block_of(struct refine *r, int element) {
    return r->row + r->t->head_bytes + (size_t)element / r->t->block_elements * r->t->block_bytes;
}

static double dot(const float *a, const float *b, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

/* ---- rows of C ---- */

V4_INLINE void add_row(float *g, const float *row, float d) {
    for (int j = 0; j < BLOCK; j++) g[j] += d * row[j];
}

V4_INLINE void add_rows(float *g, const float *c, const float *e, int n) {
    for (int k = 0; k < n; k++) add_row(g, c + (size_t)k * BLOCK, e[k]);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void add_rows_wide(float *g, const float *c, const float *e,
                                                          int n) {
    add_rows(g, c, e, n);
}

/* -1: not known yet. Every thread finds the same. */
static bool has_wide(void) {
    static _Atomic int known = -1;
    int v = atomic_load_explicit(&known, memory_order_relaxed);
    if (v >= 0) return v;
    v = features_has("avx2");
    atomic_store_explicit(&known, v, memory_order_relaxed);
    return v;
}
#endif

/* g += C e over n rows; always whole rows of C, so that the loop has a fixed length. */
static void add(float *g, const float *c, const float *e, int n) {
#if defined(__x86_64__)
    if (has_wide()) {
        add_rows_wide(g, c, e, n);
        return;
    }
#endif
    add_rows(g, c, e, n);
}

/* out = C e */
static void multiply(const float *c, const float *e, int n, float *out) {
    memset(out, 0, BLOCK * sizeof *out);
    add(out, c, e, n);
}

static double measure(struct refine *r) {
    r->t->decode(r->row, r->y, (size_t)r->n);
    for (int k = 0; k < r->n; k++) r->e[k] = r->x[k] - r->y[k];
    multiply(r->c, r->e, r->n, r->g);
    return dot(r->e, r->g, r->n);
}

/* Increases the value of weight k by d. */
static void move(struct refine *r, int k, float d) {
    const float back = -d;
    r->y[k] += d;
    add(r->g, r->c + (size_t)k * BLOCK, &back, 1);
}

/* ---- single weights ---- */

/* Marks where the codes of single weights are stored, bit by bit. */
static void fill_bits(struct refine *r, const struct quant_part *p) {
    int per_block = (int)r->t->block_elements;
    memset(r->row, 0, sizeof r->row);
    for (int i = 0; i < r->n_bit; i++) {
        for (int k = 0; k < BLOCK; k++) quant_code_write(p, block_of(r, k), k % per_block, 1u << i);
        memcpy(r->bits + i * MAX_BYTES, r->row, MAX_BYTES);
    }
}

static void fill_points(struct refine *r, int n_code) {
    uint8_t kept[MAX_BYTES], rest[MAX_BYTES];
    float y[BLOCK];
    memcpy(kept, r->row, sizeof kept);
    memcpy(rest, r->row, sizeof rest);
    for (int i = 0; i < r->n_bit; i++)
        for (int at = 0; at < MAX_BYTES; at++) rest[at] &= (uint8_t)~r->bits[i * MAX_BYTES + at];
    for (int c = 0; c < n_code; c++) {
        memcpy(r->row, rest, sizeof rest);
        for (int i = 0; i < r->n_bit; i++)
            for (int at = 0; at < MAX_BYTES && c >> i & 1; at++)
                r->row[at] |= r->bits[i * MAX_BYTES + at];
        r->t->decode(r->row, y, (size_t)r->n);
        for (int k = 0; k < r->n; k++) r->points[(size_t)k * (size_t)n_code + (size_t)c] = y[k];
    }
    memcpy(r->row, kept, sizeof kept);
}

static float distance(float a, float b) { return a < b ? b - a : a - b; }

/* Sets the bounds of g beyond which the code before or after `now` is better: values ascend or descend with it. */
static void set_bounds(struct refine *r, int k, int n_code, uint32_t now) {
    const float *p = r->points + (size_t)k * (size_t)n_code;
    float half = .5f * r->c[(size_t)k * BLOCK + (size_t)k];
    float before = now ? half * (p[now - 1] - r->y[k]) : 0,
          after = (int)now + 1 < n_code ? half * (p[now + 1] - r->y[k]) : 0;
    bool descends = before > 0 || after < 0;
    if (!now) before = descends ? INFINITY : -INFINITY;
    if ((int)now + 1 == n_code) after = descends ? -INFINITY : INFINITY;
    r->low[k] = descends ? after : before;
    r->high[k] = descends ? before : after;
}

/* Values ascend or descend with the code, so the nearest is found stepwise. */
static uint32_t best_single(const struct refine *r, int k, int n_code, uint32_t now) {
    const float *p = r->points + (size_t)k * (size_t)n_code;
    float own = r->c[(size_t)k * BLOCK + (size_t)k];
    if (!(own > 0)) return now;
    float target = r->y[k] + r->g[k] / own, least = distance(p[now], target);
    uint32_t best = now;
    for (int step = -1; step <= 1; step += 2)
        for (int c = (int)now + step; c >= 0 && c < n_code; c += step) {
            float d = distance(p[c], target);
            if (!(d < least)) break;
            least = d;
            best = (uint32_t)c;
        }
    return best;
}

static bool sweep_singles(struct refine *r, int part) {
    const struct quant_part *p = &r->code->part[part];
    int per_block = (int)r->t->block_elements, n_code = 1 << r->n_bit;
    bool changed = false;
    for (int k = 0; k < r->n; k++) {
        if (r->g[k] >= r->low[k] && r->g[k] <= r->high[k]) continue;
        uint8_t *block = block_of(r, k);
        uint32_t now = quant_code_read(p, block, k % per_block),
                 best = best_single(r, k, n_code, now);
        if (best == now) continue;
        quant_code_write(p, block, k % per_block, best);
        move(r, k, r->points[(size_t)k * (size_t)n_code + best] - r->y[k]);
        set_bounds(r, k, n_code, best);
        changed = true;
    }
    return changed;
}

/* ---- units of several weights ---- */

/* d C d - 2 d g for a unit of n = 4 h weights; c: [n, n]. */
V4_INLINE float change_of(const float *c, const float *g2, const v4 *d, int h) {
    v4 sum = {0};
    for (int i = 0; i < h; i++) {
        v4 s = -v4_load(g2 + 4 * i);
        for (int j = 0; j < 4 * h; j++) s += v4_load(c + j * 4 * h + 4 * i) * d[j / 4][j % 4];
        sum += s * d[i];
    }
    return v4_sum(sum);
}

V4_INLINE uint32_t best_near(const struct book *b, const float *c, const float *g2,
                             const float *factor, uint32_t now, int h) {
    v4 own[2] = {{0}}, f[2] = {{0}}, d[2];
    uint32_t best = now;
    float least = 0;
    for (int i = 0; i < h; i++) {
        own[i] = v4_load(b->values + (size_t)now * 4 * (size_t)h + 4 * i);
        f[i] = v4_load(factor + 4 * i);
    }
    for (int k = 0; k < N_NEAR && k < b->n_code; k++) {
        uint32_t code = b->near[now][k];
        for (int i = 0; i < h; i++)
            d[i] = f[i] * (v4_load(b->values + (size_t)code * 4 * (size_t)h + 4 * i) - own[i]);
        float change = change_of(c, g2, d, h);
        if (!(change < least)) continue;
        least = change;
        best = code;
    }
    return best;
}

/* Tries the codes nearest to that of a unit from weight k on; a pair is a unit of four whose others stay. */
static uint32_t best_vector(const struct refine *r, const struct book *b, int k, uint32_t now) {
    float factor[MAX_UNIT] = {0}, c[MAX_UNIT * MAX_UNIT] = {0}, g2[MAX_UNIT] = {0};
    int wide = b->wide;
    for (int j = 0; j < b->n; j++) {
        factor[j] = r->y[k + j] / b->values[(size_t)now * (size_t)wide + (size_t)j];
        g2[j] = 2 * r->g[k + j];
        for (int i = 0; i < b->n; i++)
            c[j * wide + i] = r->c[(size_t)(k + j) * BLOCK + (size_t)(k + i)];
    }
    return wide == 4 ? best_near(b, c, g2, factor, now, 1) : best_near(b, c, g2, factor, now, 2);
}

static void move_unit(struct refine *r, const struct book *b, int k, uint32_t from, uint32_t to) {
    for (int j = 0; j < b->n; j++) {
        float was = b->values[from * (size_t)b->wide + (size_t)j],
              is = b->values[to * (size_t)b->wide + (size_t)j], d = r->y[k + j] * (is / was - 1);
        if (d < 0 || d > 0) move(r, k + j, d);
    }
}

static bool sweep_units(struct refine *r, int part) {
    const struct quant_part *p = &r->code->part[part];
    int per_block = (int)r->t->block_elements / p->n;
    bool changed = false;
    for (int u = 0; u < r->n / p->n; u++) {
        int k = u * p->n;
        uint8_t *block = block_of(r, k);
        uint32_t now = quant_code_read(p, block, u % per_block),
                 best = best_vector(r, r->book[part], k, now);
        if (best == now) continue;
        quant_code_write(p, block, u % per_block, best);
        move_unit(r, r->book[part], k, now, best);
        changed = true;
    }
    return changed;
}

/* ---- words of iq4_kss ---- */

struct pair { /* weights of a word and their codes; the same weight twice: one change */
    int k[2];
    uint32_t code[2];
    float change; /* of e C e */
};

static float step_of(const struct refine *r, int k, uint32_t code) {
    return r->points[(size_t)k * 16 + code] - r->y[k];
}

static bool has_odd_change(uint32_t a, uint32_t b) {
    uint32_t v = a ^ b;
    v ^= v >> 2;
    return (v ^ v >> 1) & 1;
}

/* Tries all changes of one code, if its parity stays, or of that code and another of the word. */
static void try_code(const struct refine *r, const int *k, const uint32_t *now, int a, uint32_t to,
                     struct pair *best) {
    const float *row = r->c + (size_t)k[a] * BLOCK;
    float d = step_of(r, k[a], to), alone = d * (d * row[k[a]] - 2 * r->g[k[a]]);
    if (!has_odd_change(now[a], to)) {
        if (alone < best->change) *best = (struct pair){{k[a], k[a]}, {to, to}, alone};
        return;
    }
    for (int b = a + 1; b < WORD; b++)
        for (int i = -REACH; i <= REACH; i++) {
            int other = (int)now[b] + i;
            if (other < 0 || other > 15 || !has_odd_change(now[b], (uint32_t)other)) continue;
            float own = r->c[(size_t)k[b] * BLOCK + (size_t)k[b]],
                  e = step_of(r, k[b], (uint32_t)other),
                  both = alone + e * (e * own + 2 * d * row[k[b]] - 2 * r->g[k[b]]);
            if (both < best->change)
                *best = (struct pair){{k[a], k[b]}, {to, (uint32_t)other}, both};
        }
}

/* One pass over the words of iq4_kss, in the layout of iq4_ks: word w has two bytes, thus codes 16 apart. */
static bool sweep_words(struct refine *r) {
    const struct quant_part *p = &r->code->part[0];
    uint8_t *block = block_of(r, 0);
    bool changed = false;
    for (int w = 0; w < BLOCK / WORD; w++) {
        int k[WORD];
        uint32_t now[WORD];
        struct pair best = {{0, 0}, {0, 0}, 0};
        for (int i = 0; i < WORD; i++) {
            k[i] = w / 8 * 32 + w % 8 * 2 + i % 2 + i / 2 * 16;
            now[i] = quant_code_read(p, block, k[i]);
        }
        for (int a = 0; a < WORD; a++)
            for (int i = -REACH; i <= REACH; i++)
                if (i && (int)now[a] + i >= 0 && (int)now[a] + i <= 15)
                    try_code(r, k, now, a, (uint32_t)((int)now[a] + i), &best);
        if (!(best.change < 0)) continue;
        for (int i = 0; i < (best.k[0] == best.k[1] ? 1 : 2); i++) {
            float d = step_of(r, best.k[i], best.code[i]);
            quant_code_write(p, block, best.k[i], best.code[i]);
            move(r, best.k[i], d);
        }
        changed = true;
    }
    return changed;
}

static bool refine_part(struct refine *r, int part, int n_sweep) {
    const struct quant_part *p = &r->code->part[part];
    if (!p->n) return false;
    int i = 0, n_code = 1 << r->n_bit;
    if (p->n == 1) fill_points(r, n_code);
    for (int k = 0; k < r->n && p->n == 1; k++) {
        int per_block = (int)r->t->block_elements;
        set_bounds(r, k, n_code, quant_code_read(p, block_of(r, k), k % per_block));
    }
    while (i < n_sweep && (r->even     ? sweep_words(r)
                           : p->n == 1 ? sweep_singles(r, part)
                                       : sweep_units(r, part)))
        i++;
    return i > 0;
}

static void refine_block(struct refine *r, uint8_t *blocks, size_t n_bytes) {
    memcpy(r->row + r->t->head_bytes, blocks, n_bytes);
    double before = measure(r);
    bool single = r->code->part[1].n == 0;
    int n_round = single ? 1 : ROUNDS;
    for (int i = 0; i < n_round; i++) {
        bool changed = refine_part(r, 0, single ? SWEEPS : 1);
        changed |= refine_part(r, 1, 1);
        if (!changed) break;
    }
    for (int k = 0; k < r->n; k++) r->e[k] = r->x[k] - r->y[k];
    if (dot(r->e, r->g, r->n) < before) memcpy(blocks, r->row + r->t->head_bytes, n_bytes);
}

static void refine_words(struct refine *r, uint8_t *block) {
    uint8_t ks[136];
    quant_ik_kss_open(block, ks);
    refine_block(r, ks, sizeof ks);
    quant_ik_kss_close(ks, block);
}

/* ---- code books ---- */

/* Distances count each weight's values relative to its largest, so that they depend on the codes alone. */
static void list_near(struct book *b) {
    float most[MAX_UNIT] = {0};
    for (int c = 0; c < b->n_code; c++)
        for (int j = 0; j < b->n; j++) most[j] = fmaxf(most[j], fabsf(b->values[c * b->wide + j]));
    for (int c = 0; c < b->n_code; c++) {
        float least[N_NEAR];
        int count = 0;
        for (int o = 0; o < b->n_code; o++) {
            float sum = 0;
            for (int j = 0; j < b->n; j++) {
                float d = (b->values[c * b->wide + j] - b->values[o * b->wide + j]) / most[j];
                sum += d * d;
            }
            if (o == c || (count == N_NEAR && sum >= least[N_NEAR - 1])) continue;
            int at = count < N_NEAR ? count++ : N_NEAR - 1;
            for (; at > 0 && least[at - 1] > sum; at--) {
                least[at] = least[at - 1];
                b->near[c][at] = b->near[c][at - 1];
            }
            least[at] = sum;
            b->near[c][at] = (uint16_t)o;
        }
    }
}

/* Decodes every code of the first unit of a block without zeros. */
static void make_book(struct book *b, uint32_t type, const struct quant_part *p) {
    const struct quant_traits *t = quant_traits(type);
    uint8_t row[MAX_BYTES];
    float x[BLOCK], w[BLOCK], y[BLOCK];
    for (int i = 0; i < BLOCK; i++) {
        x[i] = 1 + .125f * (float)(i % 8);
        w[i] = 1;
    }
    b->n = p->n;
    b->wide = p->n < 4 ? 4 : p->n;
    b->n_code = quant_code_count(p);
    t->encode(x, row, BLOCK, w);
    for (int c = 0; c < b->n_code; c++) {
        quant_code_write(p, row + t->head_bytes, 0, (uint32_t)c);
        t->decode(row, y, BLOCK);
        memcpy(b->values + c * b->wide, y, (size_t)b->n * sizeof *y);
    }
    list_near(b);
}

static const struct book *book_of(uint32_t type, const struct quant_part *p) {
    static struct book books[10]; /* the parts of quant_code.c with units of several weights */
    static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
    struct book *b = books;
    const struct quant_part *own;
    while ((own = atomic_load_explicit(&b->part, memory_order_acquire)) && own != p) b++;
    if (own) return b;
    pthread_mutex_lock(&making);
    while ((own = atomic_load_explicit(&b->part, memory_order_relaxed)) && own != p) b++;
    if (!own) make_book(b, type, p);
    atomic_store_explicit(&b->part, p, memory_order_release);
    pthread_mutex_unlock(&making);
    return b;
}

static bool prepare(struct refine *r, uint32_t type) {
    bool ok = true;
    for (int i = 0; i < QUANT_CODE_PARTS; i++) {
        const struct quant_part *p = &r->code->part[i];
        if (p->n > 1) r->book[i] = book_of(type, p);
        if (p->n != 1) continue;
        r->n_bit = p->field[0].bits + p->field[1].bits;
        r->bits = mem_alloc_array((size_t)r->n_bit, MAX_BYTES);
        r->points = mem_alloc_array((size_t)BLOCK << r->n_bit, sizeof *r->points);
        ok = r->bits && r->points;
        if (ok) fill_bits(r, p);
    }
    return ok;
}

static bool refine_row(uint32_t type, const float *src, uint8_t *dst, size_t n,
                       const float *correlation) {
    bool even = type == QUANT_IQ4_KSS;
    uint32_t as = even ? QUANT_IQ4_KS : type;
    if (!quant_code(as)) return true;
    struct refine *r = mem_zalloc(sizeof *r);
    if (!r) return false;
    r->t = quant_traits(as);
    r->code = quant_code(as);
    r->even = even;
    uint8_t *blocks = dst + r->t->head_bytes;
    bool ok = prepare(r, as);
    memcpy(r->row, dst, r->t->head_bytes);
    for (size_t i = 0; ok && i < n; i += BLOCK) {
        r->n = n - i < BLOCK ? (int)(n - i) : BLOCK;
        r->x = src + i;
        r->c = correlation + i * BLOCK;
        if (even) refine_words(r, blocks + i / BLOCK * quant_traits(type)->block_bytes);
        else
            refine_block(r, blocks + i / r->t->block_elements * r->t->block_bytes,
                         (size_t)r->n / r->t->block_elements * r->t->block_bytes);
    }
    mem_free(r->bits);
    mem_free(r->points);
    mem_free(r);
    return ok;
}

bool quant_refine_is_possible(uint32_t type) {
    return quant_code(type) != NULL || type == QUANT_IQ4_KSS;
}

bool quant_refine_encode(uint32_t type, const float *src, void *dst, size_t n,
                         const struct quant_hints *hints) {
    if (!quant_traits(type)->encode(src, dst, n, hints->weights)) return false;
    return !hints->correlation || refine_row(type, src, dst, n, hints->correlation);
}

double quant_refine_error(const float *e, size_t n, const struct quant_hints *hints) {
    double sum = 0;
    if (!hints->correlation) {
        for (size_t i = 0; i < n; i++)
            sum += (hints->weights ? (double)hints->weights[i] : 1) * (double)e[i] * (double)e[i];
        return sum;
    }
    for (size_t i = 0; i < n; i += BLOCK) {
        float g[BLOCK];
        int now = n - i < BLOCK ? (int)(n - i) : BLOCK;
        multiply(hints->correlation + i * BLOCK, e + i, now, g);
        sum += dot(e + i, g, now);
    }
    return sum;
}

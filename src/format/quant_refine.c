/* quant_refine.c: see quant_refine.h.
 *
 * With g = C e, changing the values of a unit's weights by d changes e C e by d C d - 2 d g. For a single weight k the
 * best value is the one nearest to y + g / C[k, k]. In a unit of several weights, the values are f b: proportional to
 * an entry b of a code book. So the change is a polynomial in b whose terms are tabulated, and every code is tried. g
 * is updated incrementally: a change costs one pass over a row of C. Codes of iq4_kss are bound by parity in groups of
 * four, so one changes if its parity stays, and two change together. */
#include "format/quant_refine.h"

#include <string.h>

#include "base/mem.h"
#include "format/quant.h"
#include "format/quant_code.h"
#include "format/quant_ik.h"

enum {
    BLOCK = QUANT_REFINE_BLOCK,
    SWEEPS = 16,         /* over one part; fewer if a sweep changes nothing */
    ROUNDS = 6,          /* over both parts, each with a sweep */
    MAX_BYTES = 320 + 8, /* 256 weights in any type here, plus a row's scale */
    MAX_UNIT = 8,
    WORD = 4,  /* codes that share their parity */
    REACH = 2, /* steps by which a code of a word changes */
};

/* Values of a unit of n weights for each code, and the pairwise products of the values. */
struct book {
    int n, n_code;
    float *values; /* owned [n + n (n + 1) / 2, n_code]; NULL for single weights */
};

struct refine {
    const struct quant_traits *t;
    const struct quant_code *code;
    const float *c; /* view [n, BLOCK] */
    const float *x; /* view [n] */
    int n;          /* current number of weights, at most BLOCK */
    bool even;      /* words of four codes have even parity */
    float *points;  /* owned [BLOCK, n_code]: value of each single weight for each code */
    struct book book[QUANT_CODE_PARTS];
    uint8_t row[MAX_BYTES]; /* the row's scale, then the current blocks */
    float y[BLOCK], e[BLOCK], g[BLOCK];
};

static uint8_t *block_of(struct refine *r, int element) {
    return r->row + r->t->head_bytes + (size_t)element / r->t->block_elements * r->t->block_bytes;
}

static double dot(const float *a, const float *b, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

/* out = C e; always whole rows of C, so that the loop has a fixed length. */
static void multiply(const float *c, const float *e, int n, float *out) {
    memset(out, 0, BLOCK * sizeof *out);
    for (int k = 0; k < n; k++) {
        float v = e[k];
        const float *row = c + (size_t)k * BLOCK;
        for (int j = 0; j < BLOCK; j++) out[j] += v * row[j];
    }
}

static double measure(struct refine *r) {
    r->t->decode(r->row, r->y, (size_t)r->n);
    for (int k = 0; k < r->n; k++) r->e[k] = r->x[k] - r->y[k];
    multiply(r->c, r->e, r->n, r->g);
    return dot(r->e, r->g, r->n);
}

/* Increases the value of weight k by d. */
static void move(struct refine *r, int k, float d) {
    const float *row = r->c + (size_t)k * BLOCK;
    r->y[k] += d;
    for (int j = 0; j < BLOCK; j++) r->g[j] -= d * row[j];
}

static void fill_points(struct refine *r, const struct quant_part *p, int n_code) {
    uint8_t kept[MAX_BYTES];
    float y[BLOCK];
    int per_block = (int)r->t->block_elements / p->n, n_unit = r->n / p->n;
    memcpy(kept, r->row, sizeof kept);
    for (int c = 0; c < n_code; c++) {
        for (int u = 0; u < n_unit; u++)
            quant_code_write(p, block_of(r, u * p->n), u % per_block, (uint32_t)c);
        r->t->decode(r->row, y, (size_t)r->n);
        for (int k = 0; k < r->n; k++) r->points[(size_t)k * (size_t)n_code + (size_t)c] = y[k];
    }
    memcpy(r->row, kept, sizeof kept);
}

static float distance(float a, float b) { return a < b ? b - a : a - b; }

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

static float *term(const struct book *b, int i) {
    return b->values + (size_t)i * (size_t)b->n_code;
}

/* Tries every code of a unit of several weights from k on. Terms: each value, then products of values i <= j. */
static uint32_t best_vector(const struct refine *r, const struct book *b, int k, uint32_t now) {
    float factor[MAX_UNIT] = {0}, own[MAX_UNIT] = {0}, score[QUANT_CODE_MAX] = {0};
    float linear[MAX_UNIT] = {0}, square[MAX_UNIT * (MAX_UNIT + 1) / 2] = {0};
    int n_square = 0;
    for (int j = 0; j < b->n; j++) {
        own[j] = term(b, j)[now];
        if (!(own[j] < 0) && !(own[j] > 0)) return now;
        factor[j] = r->y[k + j] / own[j];
        linear[j] = -2 * factor[j] * r->g[k + j];
    }
    for (int j = 0; j < b->n; j++)
        for (int i = 0; i <= j; i++) {
            float c = r->c[(size_t)(k + j) * BLOCK + (size_t)(k + i)] * factor[i] * factor[j];
            square[n_square++] = i == j ? c : 2 * c;
            linear[j] -= 2 * c * own[i];
            if (i != j) linear[i] -= 2 * c * own[j];
        }
    for (int t = 0; t < b->n + n_square; t++) {
        float by = t < b->n ? linear[t] : square[t - b->n];
        const float *x = term(b, t);
        for (int c = 0; c < b->n_code; c++) score[c] += by * x[c];
    }
    uint32_t best = now;
    float least = score[now] - 1e-6f * (score[now] < 0 ? -score[now] : score[now]);
    for (int c = 0; c < b->n_code; c++)
        if (score[c] < least) {
            least = score[c];
            best = (uint32_t)c;
        }
    return best;
}

static void move_unit(struct refine *r, int part, int k, uint32_t from, uint32_t to) {
    const struct book *b = &r->book[part];
    for (int j = 0; j < b->n; j++) {
        float d;
        if (b->n == 1) d = r->points[(size_t)k * (size_t)b->n_code + to] - r->y[k];
        else d = r->y[k + j] * (term(b, j)[to] / term(b, j)[from] - 1);
        if (d < 0 || d > 0) move(r, k + j, d);
    }
}

static bool sweep(struct refine *r, int part) {
    const struct quant_part *p = &r->code->part[part];
    int per_block = (int)r->t->block_elements / p->n, n_code = r->book[part].n_code;
    bool changed = false;
    for (int u = 0; u < r->n / p->n; u++) {
        int k = u * p->n;
        uint8_t *block = block_of(r, k);
        uint32_t now = quant_code_read(p, block, u % per_block);
        uint32_t best =
            p->n == 1 ? best_single(r, k, n_code, now) : best_vector(r, &r->book[part], k, now);
        if (best == now) continue;
        quant_code_write(p, block, u % per_block, best);
        move_unit(r, part, k, now, best);
        changed = true;
    }
    return changed;
}

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
    if (p->n == 1) fill_points(r, p, r->book[part].n_code);
    int i = 0;
    while (i < n_sweep && (r->even ? sweep_words(r) : sweep(r, part))) i++;
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
    if (measure(r) < before) memcpy(blocks, r->row + r->t->head_bytes, n_bytes);
}

static void refine_words(struct refine *r, uint8_t *block) {
    uint8_t ks[136];
    quant_ik_kss_open(block, ks);
    refine_block(r, ks, sizeof ks);
    quant_ik_kss_close(ks, block);
}

/* Reads the code book of a part from a unit with nonzero weights; returns false if the block has none. */
static bool fill_book(struct refine *r, int part, const uint8_t *block) {
    const struct quant_part *p = &r->code->part[part];
    struct book *b = &r->book[part];
    int k = 0, at = b->n;
    r->n = (int)r->t->block_elements;
    memcpy(r->row + r->t->head_bytes, block, r->t->block_bytes);
    r->t->decode(r->row, r->y, (size_t)r->n);
    while (k < r->n && !(r->y[k] < 0) && !(r->y[k] > 0)) k += p->n;
    if (k == r->n) return false;
    for (int c = 0; c < b->n_code; c++) {
        quant_code_write(p, r->row + r->t->head_bytes, k / p->n, (uint32_t)c);
        r->t->decode(r->row, r->y, (size_t)r->n);
        for (int j = 0; j < b->n; j++) term(b, j)[c] = r->y[k + j];
    }
    for (int j = 0; j < b->n; j++)
        for (int i = 0; i <= j; i++, at++)
            for (int c = 0; c < b->n_code; c++) term(b, at)[c] = term(b, i)[c] * term(b, j)[c];
    return true;
}

static bool fill_books(struct refine *r, const uint8_t *blocks, size_t n_block) {
    bool ok = true;
    for (int part = 0; part < QUANT_CODE_PARTS && ok; part++) {
        if (r->book[part].n < 2) continue;
        ok = false;
        for (size_t i = 0; i < n_block && !ok; i++)
            ok = fill_book(r, part, blocks + i * r->t->block_bytes);
    }
    return ok;
}

static bool allocate(struct refine *r) {
    int most = 0;
    bool ok = true;
    for (int i = 0; i < QUANT_CODE_PARTS; i++) {
        const struct quant_part *p = &r->code->part[i];
        struct book *b = &r->book[i];
        if (!p->n) continue;
        b->n = p->n;
        b->n_code = quant_code_count(p);
        if (p->n == 1 && b->n_code > most) most = b->n_code;
        if (p->n == 1) continue;
        size_t n_term = (size_t)(p->n + p->n * (p->n + 1) / 2);
        b->values = mem_alloc_array(n_term * (size_t)b->n_code, sizeof *b->values);
        ok &= b->values != NULL;
    }
    r->points = mem_alloc_array((size_t)most * BLOCK, sizeof *r->points);
    return ok && r->points;
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
    memcpy(r->row, dst, r->t->head_bytes);
    uint8_t *blocks = dst + r->t->head_bytes;
    bool ok = allocate(r);
    bool is_zero = ok && !fill_books(r, blocks, n / r->t->block_elements);
    for (size_t i = 0; ok && !is_zero && i < n; i += BLOCK) {
        r->n = n - i < BLOCK ? (int)(n - i) : BLOCK;
        r->x = src + i;
        r->c = correlation + i * BLOCK;
        if (even) refine_words(r, blocks + i / BLOCK * quant_traits(type)->block_bytes);
        else
            refine_block(r, blocks + i / r->t->block_elements * r->t->block_bytes,
                         (size_t)r->n / r->t->block_elements * r->t->block_bytes);
    }
    for (int i = 0; i < QUANT_CODE_PARTS; i++) mem_free(r->book[i].values);
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

/* quant_grid.c: see quant_grid.h. */
#include "format/quant_grid.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/thread.h"
#include "format/quant_codebook.h"
#include "format/quant_impl.h"
#include "format/quant_search.h"
#include "format/v4.h"

/* ---- grids and their neighbour lists ---- */

enum {
    N_NEAR = 16,      /* candidates per cell; 32 gain 0.1 % of the error and halve the speed */
    N_NEAR_ROUGH = 8, /* while scanning for a scale */
    CELLS_8 = 6561,   /* 3^8 */
    CELLS_4 = 4096,   /* 8^4 */
    HALF_8 = 108,     /* 9 rows of 9 pairs, padded to 12 for whole vectors */
    HALF_4 = 64,
    OFF_GRID = 65535, /* no point is at the cell's centre */
};
enum {
    POINTS_IQ2_XXS,
    POINTS_IQ2_XS,
    POINTS_IQ2_S,
    POINTS_IQ1,
    POINTS_IQ3_XXS,
    POINTS_IQ3_S,
    N_GRID
};

/* Points in 8 dimensions have 3 values per coordinate, points in 4 dimensions have 8. A cell is the set of positions
 * whose coordinates round to the same values. A point is two "halves": the indices of its first and its last
 * coordinates in a table of costs with HALF_8 or HALF_4 entries. */
struct grid {
    const void *codebook; /* view: uint64_t or uint32_t each, in quant_codebook.c */
    int n_points, dims;
    float values[8];
    float points[2048 * 8];           /* [n_points, dims] */
    uint16_t own[CELLS_8];            /* the point at the cell's centre, or OFF_GRID */
    uint16_t near[CELLS_8][N_NEAR];   /* points by distance from the centre */
    uint8_t half[CELLS_8][N_NEAR][2]; /* their halves */
    atomic_bool ready;
};

static struct grid grids[N_GRID] = {
    [POINTS_IQ2_XXS] = {.codebook = quant_grid_iq2xxs,
                        .n_points = 256,
                        .dims = 8,
                        .values = {8, 25, 43}},
    [POINTS_IQ2_XS] = {.codebook = quant_grid_iq2xs,
                       .n_points = 512,
                       .dims = 8,
                       .values = {8, 25, 43}},
    [POINTS_IQ2_S] = {.codebook = quant_grid_iq2s,
                      .n_points = 1024,
                      .dims = 8,
                      .values = {8, 25, 43}},
    [POINTS_IQ1] = {.codebook = quant_grid_iq1, .n_points = 2048, .dims = 8, .values = {-1, 0, 1}},
    [POINTS_IQ3_XXS] = {.codebook = quant_grid_iq3xxs,
                        .n_points = 256,
                        .dims = 4,
                        .values = {4, 12, 20, 28, 36, 44, 52, 62}},
    [POINTS_IQ3_S] = {.codebook = quant_grid_iq3s,
                      .n_points = 512,
                      .dims = 4,
                      .values = {1, 3, 5, 7, 9, 11, 13, 15}},
};
static pthread_mutex_t building = PTHREAD_MUTEX_INITIALIZER;

const struct grid_format quant_format_iq2_xxs = {POINTS_IQ2_XXS, GRID_SIGNS_EVEN, 32, 15, 0.125f};
const struct grid_format quant_format_iq2_xs = {POINTS_IQ2_XS, GRID_SIGNS_EVEN, 16, 15, 0.125f};
const struct grid_format quant_format_iq2_s = {POINTS_IQ2_S, GRID_SIGNS, 16, 15, 0.125f};
const struct grid_format quant_format_iq3_xxs = {POINTS_IQ3_XXS, GRID_SIGNS_EVEN, 32, 15, 0.25f};
const struct grid_format quant_format_iq3_s = {POINTS_IQ3_S, GRID_SIGNS, 32, 15, 1};
const struct grid_format quant_format_iq1_s = {POINTS_IQ1, GRID_SHIFT_SUB, 32, 7, 1};
const struct grid_format quant_format_iq1_m = {POINTS_IQ1, GRID_SHIFT_OCTET, 16, 7, 1};

/* Coordinate j of point i. */
static int coordinate(const struct grid *g, int i, int j) {
    if (g->dims == 4) return (int)(((const uint32_t *)g->codebook)[i] >> 8 * j & 255);
    return (int8_t)(((const uint64_t *)g->codebook)[i] >> 8 * j);
}

static int level_of(const struct grid *g, int value) {
    int l = 0;
    while ((int)g->values[l] != value) l++;
    return l;
}

static int half_8(const int level[4]) {
    return (level[0] * 3 + level[1]) * 12 + level[2] * 3 + level[3];
}
static int half_4(const int level[2]) { return level[0] * 8 + level[1]; }

/* Squared distances between halves, for the lists. */
static void half_distances(const struct grid *g, int32_t *d, int n_half) {
    int per = g->dims / 2, n_level = g->dims == 8 ? 3 : 8, n = g->dims == 8 ? 81 : 64;
    for (int a = 0; a < n; a++)
        for (int b = 0; b < n; b++) {
            int la[4], lb[4], sum = 0, ra = a, rb = b;
            for (int j = per - 1; j >= 0; j--, ra /= n_level, rb /= n_level) {
                la[j] = ra % n_level;
                lb[j] = rb % n_level;
                int diff = (int)(g->values[la[j]] - g->values[lb[j]]);
                sum += diff * diff;
            }
            int ha = per == 4 ? half_8(la) : half_4(la), hb = per == 4 ? half_8(lb) : half_4(lb);
            d[ha * n_half + hb] = sum;
        }
}

/* Cells are numbered like halves without padding: 81 (or 64) times the first half, plus the second. */
static void list_neighbours(struct grid *g, const uint8_t (*half)[2], const int32_t *d,
                            int n_half) {
    int n = g->dims == 8 ? 81 : 64;
    for (int cell = 0; cell < n * n; cell++) {
        int c0 = cell / n, c1 = cell % n, count = 0;
        if (n == 81) c0 = c0 / 9 * 12 + c0 % 9, c1 = c1 / 9 * 12 + c1 % 9;
        int32_t best[N_NEAR];
        uint16_t *list = g->near[cell];
        for (int i = 0; i < g->n_points; i++) {
            int32_t dist = d[c0 * n_half + half[i][0]] + d[c1 * n_half + half[i][1]];
            if (count == N_NEAR && dist >= best[N_NEAR - 1]) continue;
            int at = count < N_NEAR ? count++ : N_NEAR - 1;
            for (; at > 0 && best[at - 1] > dist; at--) {
                best[at] = best[at - 1];
                list[at] = list[at - 1];
            }
            best[at] = dist;
            list[at] = (uint16_t)i;
        }
        for (int k = 0; k < N_NEAR; k++) memcpy(g->half[cell][k], half[list[k]], 2);
        g->own[cell] = best[0] == 0 ? list[0] : OFF_GRID;
    }
}

static void build(struct grid *g) {
    static int32_t distance[HALF_8 * HALF_8]; /* both are protected by the lock */
    static uint8_t half[2048][2];
    int per = g->dims / 2, n_half = per == 4 ? HALF_8 : HALF_4;
    for (int i = 0; i < g->n_points; i++)
        for (int h = 0; h < 2; h++) {
            int level[4] = {0};
            for (int j = 0; j < per; j++) {
                int v = coordinate(g, i, h * per + j);
                level[j] = level_of(g, v);
                g->points[i * g->dims + h * per + j] = (float)v;
            }
            half[i][h] = (uint8_t)(per == 4 ? half_8(level) : half_4(level));
        }
    half_distances(g, distance, n_half);
    list_neighbours(g, half, distance, n_half);
}

static void grid_ready(int which) {
    struct grid *g = &grids[which];
    if (!atomic_load_explicit(&g->ready, memory_order_acquire)) {
        pthread_mutex_lock(&building);
        if (!atomic_load_explicit(&g->ready, memory_order_relaxed)) {
            build(g);
            atomic_store_explicit(&g->ready, true, memory_order_release);
        }
        pthread_mutex_unlock(&building);
    }
}

/* ---- nearest point of one group ---- */

/* Costs are not negative, so their bits compare like integers. A candidate's number replaces the lowest bits,
 * so the minimum needs no branches. */
V4_INLINE int least_of(const struct grid *g, int cell, uint32_t n_near, const float *first,
                       const float *second) {
    uint32_t least = UINT32_MAX;
    for (uint32_t i = 0; i < n_near; i++) {
        const uint8_t *half = g->half[cell][i];
        float cost = first[half[0]] + second[half[1]];
        uint32_t bits;
        memcpy(&bits, &cost, sizeof bits);
        bits = (bits & ~(uint32_t)(N_NEAR - 1)) | i;
        least = bits < least ? bits : least;
    }
    return g->near[cell][least & (N_NEAR - 1)];
}

/* Costs of the 81 encodings of 4 elements, in HALF_8 order. */
V4_INLINE void half_costs_8(const float *x, const float *w, const float *values, float *cost) {
    float c[3][4], second[12] = {0};
    for (int l = 0; l < 3; l++) {
        v4 rest = v4_load(x) - values[l];
        v4_store(c[l], v4_load(w) * rest * rest);
    }
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 3; b++) second[a * 3 + b] = c[a][2] + c[b][3];
    v4 s0 = v4_load(second), s1 = v4_load(second + 4), s2 = v4_load(second + 8);
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 3; b++) {
            float *row = cost + (a * 3 + b) * 12, pair = c[a][0] + c[b][1];
            v4_store(row, s0 + pair);
            v4_store(row + 4, s1 + pair);
            v4_store(row + 8, s2 + pair);
        }
}

/* Place value of each coordinate in a cell's number, if the coordinate is above the middle of two levels; else 0. */
V4_INLINE v4 above(v4 x, float mid, v4 place) { return (v4)((x > mid) & (v4i)place); }

/* x: 8 elements; values: the three levels, scaled and shifted like x. */
V4_INLINE int nearest_8(const struct grid *g, uint32_t n_near, const float *x, const float *w,
                        const float *values) {
    const v4 place0 = {2187, 729, 243, 81}, place1 = {27, 9, 3, 1};
    float mid0 = 0.5f * (values[0] + values[1]), mid1 = 0.5f * (values[1] + values[2]);
    v4 x0 = v4_load(x), x1 = v4_load(x + 4);
    int cell = (int)v4_sum(above(x0, mid0, place0) + above(x0, mid1, place0) +
                           above(x1, mid0, place1) + above(x1, mid1, place1));
    if (g->own[cell] != OFF_GRID) return g->own[cell];
    float first[HALF_8], second[HALF_8];
    half_costs_8(x, w, values, first);
    half_costs_8(x + 4, w + 4, values, second);
    return least_of(g, cell, n_near, first, second);
}

V4_INLINE void half_costs_4(const float *x, const float *w, const float *values, float *cost) {
    float c[8];
    v4 s0 = v4_load(values) - x[1], s1 = v4_load(values + 4) - x[1];
    s0 = s0 * s0 * w[1];
    s1 = s1 * s1 * w[1];
    for (int l = 0; l < 8; l += 4) {
        v4 rest = v4_load(values + l) - x[0];
        v4_store(c + l, rest * rest * w[0]);
    }
    for (int a = 0; a < 8; a++) {
        v4_store(cost + a * 8, s0 + c[a]);
        v4_store(cost + a * 8 + 4, s1 + c[a]);
    }
}

V4_INLINE int nearest_4(const struct grid *g, uint32_t n_near, const float *x, const float *w,
                        const float *values) {
    const v4 place = {512, 64, 8, 1};
    float step = values[1] - values[0], inverse = step > 1e-20f ? 1 / step : 0;
    v4 level = (v4_load(x) - values[0]) * inverse;
    v4i low = level<0.0f, high = level> 7.0f;
    level = (v4)((high & (v4i)(v4){7, 7, 7, 7}) | (~high & ~low & (v4i)level));
    level = (level + 12582912.0f) - 12582912.0f; /* round to the nearest integer */
    int cell = (int)v4_sum(level * place);
    if (g->own[cell] != OFF_GRID) return g->own[cell];
    float first[HALF_4], second[HALF_4];
    half_costs_4(x, w, values, first);
    half_costs_4(x + 2, w + 2, values, second);
    return least_of(g, cell, n_near, first, second);
}

/* ---- one sub-block at a given scale ---- */

struct trial {
    struct fit fit;
    struct grid_code code[4];
};

/* Encodes one octet: target x is magnitudes if the format has signs. */
V4_INLINE struct fit try_octet(const struct grid *g, uint32_t n_near, const float *x,
                               const float *w, float scale, float shift, struct grid_code *code) {
    float values[8];
    for (int l = 0; l < 8; l += 4) v4_store(values + l, (v4_load(g->values + l) + shift) * scale);
    code->down = shift < 0;
    code->index[0] = (uint16_t)(g->dims == 8 ? nearest_8(g, n_near, x, w, values)
                                             : nearest_4(g, n_near, x, w, values));
    if (g->dims == 4) code->index[1] = (uint16_t)nearest_4(g, n_near, x + 4, w + 4, values);
    v4 wqq = {0}, wxq = {0}, error = {0};
    for (int j = 0; j < 8; j += 4) {
        const float *point =
            g->dims == 8 ? g->points + code->index[0] * 8 + j : g->points + code->index[j / 4] * 4;
        v4 q = v4_load(point) + shift, vx = v4_load(x + j), vw = v4_load(w + j), wq = vw * q;
        v4 rest = vx - q * scale;
        wqq += wq * q;
        wxq += wq * vx;
        error += vw * rest * rest;
    }
    return (struct fit){.wqq = v4_sum(wqq), .wxq = v4_sum(wxq), .error = v4_sum(error)};
}

static void add_fit(struct fit *sum, const struct fit *f) {
    sum->wqq += f->wqq;
    sum->wxq += f->wxq;
    sum->error += f->error;
}

V4_INLINE void try_shift(const struct grid *g, uint32_t n_near, const float *x, const float *w,
                         int len, float scale, enum grid_rule rule, float shift, struct trial *t) {
    t->fit = (struct fit){.scale = scale};
    for (int o = 0; o < len / 8; o++) {
        struct fit f = try_octet(g, n_near, x + o * 8, w + o * 8, scale, shift, &t->code[o]);
        if (rule == GRID_SHIFT_OCTET) {
            struct grid_code other;
            struct fit down = try_octet(g, n_near, x + o * 8, w + o * 8, scale, -shift, &other);
            if (down.error < f.error) {
                f = down;
                t->code[o] = other;
            }
        }
        add_fit(&t->fit, &f);
    }
}

V4_INLINE void try_scale_of(const struct grid_format *f, uint32_t n_near, const float *x,
                            const float *w, float scale, struct trial *t) {
    const struct grid *g = &grids[f->points];
    if (f->rule <= GRID_SIGNS_EVEN) {
        try_shift(g, n_near, x, w, f->len, scale, f->rule, 0, t);
        return;
    }
    try_shift(g, n_near, x, w, f->len, scale, f->rule, 0.125f, t);
    if (f->rule == GRID_SHIFT_SUB) {
        struct trial down;
        try_shift(g, n_near, x, w, f->len, scale, f->rule, -0.125f, &down);
        if (down.fit.error < t->fit.error) *t = down;
    }
}

static void try_scale(const struct grid_format *f, const float *x, const float *w, float scale,
                      struct trial *t) {
    try_scale_of(f, N_NEAR, x, w, scale, t);
}

static void try_scale_roughly(const struct grid_format *f, const float *x, const float *w,
                              float scale, struct trial *t) {
    try_scale_of(f, N_NEAR_ROUGH, x, w, scale, t);
}

/* ---- scales ---- */

/* As quant_search_symmetric: scans, then improves codes and scale in turn. */
static struct fit ideal_scale(const struct grid_format *f, const float *x, const float *w) {
    enum { COARSE = 6, FLAT = 2, FINE = 2 };
    const struct grid *g = &grids[f->points];
    float top = 0, low = INFINITY, end = g->values[g->dims == 8 ? 2 : 7], start[COARSE + FLAT];
    for (int j = 0; j < f->len; j++) {
        top = fabsf(x[j]) > top ? fabsf(x[j]) : top;
        low = fabsf(x[j]) < low ? fabsf(x[j]) : low;
    }
    struct fit best = {0};
    if (top < 1e-15f) return best;
    int n_start = 0;
    for (int k = 0; k < COARSE; k++) start[n_start++] = top / end * (0.5f + 0.12f * (float)k);
    if (low > 0.5f * top &&
        g->values[0] > 0) /* flat, like binary weights: try the low levels too */
        for (int k = 0; k < FLAT; k++) start[n_start++] = 0.5f * (low + top) / g->values[k];
    float gain = 0;
    for (int k = 0; k < n_start + FINE; k++) {
        float scale = k < n_start ? start[k] : best.scale;
        if (!(scale > 1e-20f)) break;
        struct trial t;
        try_scale_roughly(f, x, w, scale, &t);
        float won = t.fit.wxq > 0 ? t.fit.wxq * t.fit.wxq / t.fit.wqq : 0;
        if (won > gain) {
            gain = won;
            best = t.fit;
            best.scale = t.fit.wxq / t.fit.wqq;
        } else if (k >= n_start) {
            break;
        }
    }
    return best;
}

static int nearest_odd(float scale, float unit, int top) {
    float t = unit > 0 ? (scale / unit - 1) * 0.5f : 0;
    return t <= 0 ? 0 : t >= (float)top ? top : (int)lrintf(t);
}

/* The f16 of which odd multiples are nearest to the ideal scales. */
static uint16_t choose_d(const struct grid_format *f, const struct fit *ideal, int n_sub) {
    float top = 0, least = INFINITY;
    uint16_t best = 0;
    for (int b = 0; b < n_sub; b++) top = ideal[b].scale > top ? ideal[b].scale : top;
    for (int k = -6; k <= 6; k++) {
        float odd = (float)(2 * f->top + 1) * (1 + 0.03f * (float)k);
        uint16_t half = quant_search_f16(top / (f->unit * odd));
        float unit = quant_f16_to_f32(half) * f->unit, cost = 0;
        for (int b = 0; b < n_sub; b++) {
            int odd_b = 2 * nearest_odd(ideal[b].scale, unit, f->top) + 1;
            float miss = ideal[b].scale - unit * (float)odd_b;
            cost += ideal[b].wqq * miss * miss;
        }
        if (cost < least) {
            least = cost;
            best = half;
        }
    }
    return best;
}

/* Chooses codes of every sub-block for out->d, and k: the odd multiple nearest to the ideal scale or the one on its
 * other side; `again`: k stays. Returns the error, and the d that fits the codes best. */
static float settle(const struct grid_format *f, const float *x, const float *w,
                    const struct fit *ideal, bool again, struct grid_result *out, float *refit) {
    float unit = quant_f16_to_f32(out->d) * f->unit, total = 0, num = 0, den = 0;
    for (int b = 0; b < QUANT_SUPER / f->len; b++) {
        struct trial best = {.fit = {.error = INFINITY}};
        int mid = again ? out->k[b] : nearest_odd(ideal[b].scale, unit, f->top), chosen = mid;
        int other = unit * (float)(2 * mid + 1) < ideal[b].scale ? mid + 1 : mid - 1;
        for (int i = 0; i < (again ? 1 : 2); i++) {
            int k = i ? other : mid;
            struct trial t;
            if (k < 0 || k > f->top) continue;
            try_scale(f, x + b * f->len, w + b * f->len, unit * (float)(2 * k + 1), &t);
            if (t.fit.error < best.fit.error) {
                best = t;
                chosen = k;
            }
        }
        out->k[b] = (uint8_t)chosen;
        memcpy(out->code + b * f->len / 8, best.code, (size_t)f->len / 8 * sizeof *best.code);
        float odd = (float)(2 * chosen + 1) * f->unit;
        total += best.fit.error;
        num += best.fit.wxq * odd;
        den += best.fit.wqq * odd * odd;
    }
    *refit = den > 0 ? num / den : 0;
    return total;
}

/* Converts x to magnitudes and signs. If the number of negative elements must be even and the octet's is odd, the
 * element with the least effect gets the wrong sign: its magnitude becomes negative. */
static void take_signs(float *x, const float *w, bool even, uint8_t *signs) {
    for (int o = 0; o < QUANT_SUPER / 8; o++, x += 8, w += 8) {
        int bits = 0, flip = 0;
        for (int j = 0; j < 8; j++) {
            bits |= (x[j] < 0) << j;
            x[j] = fabsf(x[j]);
        }
        for (int j = 1; j < 8; j++)
            if (w[j] * x[j] * x[j] < w[flip] * x[flip] * x[flip]) flip = j;
        if (even && __builtin_parity((unsigned)bits)) {
            x[flip] = -x[flip];
            bits ^= 1 << flip;
        }
        signs[o] = (uint8_t)bits;
    }
}

void quant_grid_encode(const struct grid_format *f, const float *src, const float *weights,
                       struct grid_result *out) {
    float x[QUANT_SUPER], w[QUANT_SUPER];
    int n_sub = QUANT_SUPER / f->len;
    memset(out, 0, sizeof *out);
    if (!(quant_search_load(src, weights, QUANT_SUPER, x, w) > 0)) return;
    grid_ready(f->points);
    uint8_t signs[QUANT_SUPER / 8] = {0};
    if (f->rule <= GRID_SIGNS_EVEN) take_signs(x, w, f->rule == GRID_SIGNS_EVEN, signs);
    struct fit ideal[16] = {0};
    for (int b = 0; b < n_sub; b++) ideal[b] = ideal_scale(f, x + b * f->len, w + b * f->len);
    out->d = choose_d(f, ideal, n_sub);
    float refit, least = settle(f, x, w, ideal, false, out, &refit);
    for (int round = 0; round < 2; round++) {
        struct grid_result next = *out;
        next.d = quant_search_f16(refit);
        if (next.d == out->d || !(refit > 0)) break;
        float error = settle(f, x, w, ideal, true, &next, &refit);
        if (!(error < least)) break;
        least = error;
        *out = next;
    }
    for (int o = 0; o < QUANT_SUPER / 8; o++) out->code[o].signs = signs[o];
}

/* repack.c: converts rows of blocks, as stored in files, to planes. Block layouts: format/quant_*.c. */
#include "kernels/cuda/repack.h"

#include <math.h>
#include <string.h>

#include "format/quant.h"
#include "format/quant_codebook.h"
#include "format/quant_ik.h"

/* clang-format off */
static const struct form_row {
    struct plane_sizes size;
    uint32_t type;
} forms[N_FORM] = {
#define X(F, codes, more, sub, top, top_units, type) [F] = {{codes, more, sub, top, top_units}, type},
    PLANE_FORMS(X)
#undef X
};
/* clang-format on */

enum plane_form cuda_repack_form(uint32_t type, uint32_t layout) {
    for (int f = 1; f < N_FORM; f++)
        if (forms[f].type == type && (f != FORM_O4 || layout == PLANES_WIDE))
            return (enum plane_form)f;
    if (type == QUANT_IQ4_KSS) return FORM_X4S;
    if (type == QUANT_IQ2_KL) return FORM_X3S;
    if (type == QUANT_IQ1_KT) return FORM_K2;
    if (type == QUANT_IQ1_M || type == QUANT_TQ1_0 || type == QUANT_TQ2_0) return FORM_I8X;
    return FORM_NONE;
}

struct plane_sizes cuda_repack_sizes(enum plane_form f) {
    return forms[f].size;
}

static bool is_float(enum plane_form f) { return f == FORM_F32 || f == FORM_F16 || f == FORM_BF16; }

static size_t aligned(size_t n) { return (n + 255) & ~(size_t)255; }

size_t cuda_repack_parts(const struct weight *w, struct plane_part out[4]) {
    enum plane_form f = cuda_repack_form(w->type, w->layout);
    struct plane_sizes s = forms[f].size;
    size_t n_row = (size_t)w->n_out * (size_t)w->n_mat, n_unit = (size_t)w->n_in / 32, at = 0;
    size_t bytes[4] = {n_unit * s.codes, n_unit * s.more, n_unit * s.sub,
                       n_unit / (s.top_units ? s.top_units : 1) * s.top};
    if (is_float(f)) bytes[0] = (size_t)w->n_in * (f == FORM_F32 ? 4 : 2);
    for (int i = 0; i < 4; i++) {
        out[i] = (struct plane_part){at, bytes[i]};
        at += aligned(n_row * bytes[i]);
    }
    return at;
}

size_t cuda_repack_bytes(const struct weight *w) {
    struct plane_part part[4];
    return cuda_repack_parts(w, part);
}

struct planes cuda_repack_of(const struct weight *w) {
    struct plane_part part[4];
    const uint8_t *p = w->data;
    cuda_repack_parts(w, part);
    return (struct planes){.codes = p,
                           .more = p + part[1].at,
                           .sub = p + part[2].at,
                           .top = p + part[3].at,
                           .n_row = w->n_out,
                           .n_in = (int32_t)w->n_in,
                           .n_unit = (int32_t)(w->n_in / 32),
                           .form = cuda_repack_form(w->type, w->layout)};
}

/* ---- fields of a unit ---- */

/* Functions that are inlined with a constant form: each form gets its own loop without branches on the form. */
#define OF_FORM static inline __attribute__((always_inline))

struct unit { /* destinations of a unit's fields; top is shared by a group of units */
    uint8_t *codes, *more, *sub, *top;
};

/* 32 quants as 8 words: element 4 i + b is byte b of word i, so that one operation processes four quants. */
static void words(const uint8_t *p, uint32_t w[8]) { memcpy(w, p, 32); }

/* The low bits of 32 quants as nibbles; one bit of each as third bits; two bits of each as pairs. */
static void put_nibbles(const uint32_t q[8], uint8_t *out) {
    uint32_t w[4];
    for (int i = 0; i < 4; i++) w[i] = (q[i] & 0x0f0f0f0f) | (q[i + 4] & 0x0f0f0f0f) << 4;
    memcpy(out, w, sizeof w);
}
static void put_bits(const uint32_t q[8], int shift, uint8_t *out) {
    uint32_t w = 0;
    for (int i = 0; i < 8; i++) w |= (q[i] >> shift & 0x01010101) << i;
    memcpy(out, &w, sizeof w);
}
static void put_pairs(const uint32_t q[8], int shift, uint8_t *out) {
    uint32_t w[2] = {0, 0};
    for (int i = 0; i < 8; i++) w[i / 4] |= (q[i] >> shift & 0x03030303) << i % 4 * 2;
    memcpy(out, w, sizeof w);
}

/* Quants of 5 and 6 bits: codes, and in `more` the bits of words 4 to 7 that do not fit there. */
static void put_fives(const uint32_t q[8], const struct unit *u) {
    uint32_t w[4], rest = 0;
    for (int i = 0; i < 4; i++) {
        w[i] = (q[i] & 0x1f1f1f1f) | (q[i + 4] & 0x1c1c1c1c) << 3;
        rest |= (q[i + 4] & 0x03030303) << 2 * i;
    }
    memcpy(u->codes, w, sizeof w);
    memcpy(u->more, &rest, sizeof rest);
}
static void put_sixes(const uint32_t q[8], const struct unit *u) {
    uint32_t w[4], rest[2] = {0, 0};
    for (int i = 0; i < 4; i++) {
        w[i] = (q[i] & 0x3f3f3f3f) | (q[i + 4] & 0x30303030) << 2;
        rest[i / 2] |= (q[i + 4] & 0x0f0f0f0f) << i % 2 * 4;
    }
    memcpy(u->codes, w, sizeof w);
    memcpy(u->more, rest, sizeof rest);
}

static void fifths(const uint8_t *nibbles, const uint8_t *qh, uint8_t *q) {
    for (int j = 0; j < 16; j++) {
        q[j] = (uint8_t)((nibbles[j] & 15) | (qh[j / 8] >> j % 8 & 1) << 4);
        q[j + 16] = (uint8_t)(nibbles[j] >> 4 | (qh[2 + j / 8] >> j % 8 & 1) << 4);
    }
}

static void scale_min_6(const uint8_t *s, int b, uint8_t *scale, uint8_t *min) {
    *scale = (uint8_t)(b < 4 ? s[b] & 63 : (s[b + 4] & 15) | s[b - 4] >> 6 << 4);
    *min = (uint8_t)(b < 4 ? s[b + 4] & 63 : s[b + 4] >> 4 | s[b] >> 6 << 4);
}

/* Legacy blocks: a block is a unit. */
OF_FORM void pack_small(enum plane_form f, const uint8_t *b, struct unit u) {
    uint8_t q[32];
    uint32_t w[8];
    switch (f) {
    case FORM_I8:
        memcpy(u.codes, b + 2, 32);
        memcpy(u.top, b, 2);
        break;
    case FORM_N4:
    case FORM_T4:
        memcpy(u.codes, b + 2, 16);
        memcpy(u.top, b, 2);
        break;
    case FORM_N4M:
        memcpy(u.codes, b + 4, 16);
        memcpy(u.top, b, 4);
        break;
    case FORM_N5:
    case FORM_N5M: {
        int head = f == FORM_N5 ? 2 : 4;
        fifths(b + head + 4, b + head, q);
        words(q, w);
        put_fives(w, &u);
        memcpy(u.top, b, (size_t)head);
        break;
    }
    default: /* FORM_TFP4 */ memcpy(u.codes, b + 1, 16); u.sub[0] = b[0];
    }
}

/* Super-blocks: writes unit k of 8 to u. */
OF_FORM void pack_k(enum plane_form f, const uint8_t *b, int k, struct unit u) {
    uint32_t low[8], high[8], q[8];
    int half = k / 4, part = k % 4; /* which 128 elements, and which 32 of them */
    switch (f) {
    case FORM_N4K:
    case FORM_N5K:
        words(b + (f == FORM_N4K ? 16 : 48) + k / 2 * 32, low);
        for (int i = 0; i < 8; i++) q[i] = low[i] >> k % 2 * 4 & 0x0f0f0f0f;
        if (f == FORM_N5K) {
            words(b + 16, high);
            for (int i = 0; i < 8; i++) q[i] |= (high[i] >> k & 0x01010101) << 4;
            put_fives(q, &u);
        } else put_nibbles(q, u.codes);
        scale_min_6(b + 4, k, &u.sub[0], &u.sub[1]);
        memcpy(u.top, b, 4);
        break;
    case FORM_N6K:
        words(b + 64 * half + part % 2 * 32, low);
        words(b + 128 + 32 * half, high);
        for (int i = 0; i < 8; i++)
            q[i] = (low[i] >> part / 2 * 4 & 0x0f0f0f0f) | (high[i] >> 2 * part & 0x03030303) << 4;
        put_sixes(q, &u);
        memcpy(u.sub, b + 192 + 2 * k, 2);
        memcpy(u.top, b + 208, 2);
        break;
    case FORM_N3K:
        words(b + 32 + 32 * half, low);
        words(b, high);
        put_pairs(low, 2 * part, u.codes);
        put_bits(high, k, u.more);
        for (int i = 0; i < 2; i++) {
            int s = 2 * k + i, bits = s < 8 ? b[96 + s] & 15 : b[96 + s - 8] >> 4;
            u.sub[i] = (uint8_t)((bits | (b[104 + s % 4] >> s / 4 * 2 & 3) << 4) - 32);
        }
        memcpy(u.top, b + 108, 2);
        break;
    case FORM_N2K:
        words(b + 16 + 32 * half, low);
        put_pairs(low, 2 * part, u.codes);
        memcpy(u.sub, b + 2 * k, 2);
        memcpy(u.top, b + 80, 4);
        break;
    default: break;
    }
}

/* Four points of the IQ3_S grid (odd numbers up to 15) with signs (the low bits of `signs`), as nibbles (v + 15) / 2.
 * The nibble of -v is the complement of the nibble of v. */
static uint32_t odd_nibbles(uint32_t grid, uint32_t signs) {
    return ((grid >> 1 & 0x07070707) | 0x08080808) ^
           ((signs & 15) * 0x00204081 & 0x01010101) * 0x0f;
}

/* Whole super-blocks; u: destination of the first of 8 units. Most fields have the same layout in file and plane. */
OF_FORM void pack_grid(enum plane_form f, const uint8_t *b, struct unit u) {
    memcpy(u.top, b, 2);
    switch (f) {
    case FORM_T4K:
        memcpy(u.codes, b + 8, 128);
        for (int k = 0; k < 8; k++)
            u.sub[k] = (uint8_t)(((b[4 + k / 2] >> k % 2 * 4 & 15) |
                                  ((b[2] | b[3] << 8) >> 2 * k & 3) << 4) -
                                 32);
        break;
    case FORM_O4:
        for (int k = 0; k < 8; k++) {
            uint32_t q[8], high = b[66 + k], signs;
            memcpy(&signs, b + 74 + 4 * k, 4);
            for (int i = 0; i < 8; i++)
                q[i] = odd_nibbles(quant_grid_iq3s[b[2 + 8 * k + i] | (high << (8 - i) & 256)],
                                   signs >> 4 * i);
            put_nibbles(q, u.codes + 16 * k);
            u.sub[k] = b[106 + k / 2] >> k % 2 * 4 & 15;
        }
        break;
    case FORM_G3S:
        memcpy(u.codes, b + 2, 64);
        memcpy(u.more, b + 74, 32);
        for (int k = 0; k < 8; k++) {
            u.sub[2 * k] = b[66 + k];
            u.sub[2 * k + 1] = b[106 + k / 2] >> k % 2 * 4 & 15;
        }
        break;
    case FORM_G3XXS:
        memcpy(u.codes, b + 2, 64);
        memcpy(u.more, b + 66, 32);
        break;
    case FORM_G2XXS:
        for (int k = 0; k < 8; k++) {
            memcpy(u.codes + 4 * k, b + 2 + 8 * k, 4);
            memcpy(u.more + 4 * k, b + 6 + 8 * k, 4);
        }
        break;
    case FORM_G2XS:
        memcpy(u.codes, b + 2, 64);
        memcpy(u.sub, b + 66, 8);
        break;
    default: /* FORM_G2S */
        memcpy(u.codes, b + 2, 32);
        memcpy(u.more, b + 34, 32);
        for (int k = 0; k < 8; k++) {
            u.sub[2 * k] = b[66 + k];
            u.sub[2 * k + 1] = b[74 + k];
        }
    }
}

/* Repacks the values of a decoder, for types that have no form. In each half of a unit every value is a multiple of one
 * step; the largest such step becomes the scale, and the multiples become the codes. */
static void pack_exact(const float *x, struct unit u) {
    for (int half = 0; half < 2; half++) {
        const float *v = x + 16 * half;
        float step = 0;
        for (int j = 0; j < 16; j++) {
            float a = fabsf(v[j]);
            if (a > 0 && (step == 0 || a < step)) step = a;
        }
        /* IQ1: values are (g +- 1/8) s, that is 7, 8, 9 or 1 eighths; TQ: 0 and s. */
        float best = step;
        for (int div = 1; div <= 9; div++) {
            float s = step / (float)div;
            bool ok = s > 0;
            for (int j = 0; j < 16 && ok; j++) {
                float r = v[j] / s;
                ok = fabsf(r - rintf(r)) < 1e-3f && fabsf(r) < 120;
            }
            if (ok) {
                best = s;
                break;
            }
        }
        for (int j = 0; j < 16; j++)
            u.codes[16 * half + j] = (uint8_t)(int8_t)(best > 0 ? rintf(v[j] / best) : 0);
        memcpy(u.top + 4 * half, &best, 4);
    }
}

/* Codes of the values of a table, and of those of its shifted version, which have SHIFTED set. The two have no value
 * in common. */
enum { SHIFTED = 0x80 };
static void invert_table(enum plane_form f, uint8_t code[256]) {
    const int8_t *table = f <= FORM_X5S   ? quant_ik_5
                          : f <= FORM_X4S ? quant_ik_4
                          : f <= FORM_X3S ? quant_ik_3
                                          : quant_ik_2;
    int n = f <= FORM_X5S ? 32 : f <= FORM_X4S ? 16 : f <= FORM_X3S ? 8 : 4;
    for (int i = 0; i < 2 * n && f != FORM_X6K; i++)
        code[(uint8_t)table[i]] = (uint8_t)(i < n ? i : (i - n) | SHIFTED);
    for (int i = 0; i < 128 && f == FORM_X6K; i++)
        code[(uint8_t)quant_ik_6_integer(i % 64, i / 64)] =
            (uint8_t)(i < 64 ? i : (i - 64) | SHIFTED);
}

/* 32 codes of up to 4 bits. */
static void put_indexes(enum plane_form f, const uint8_t c[32], struct unit u) {
    uint32_t word[4] = {0}, third = 0;
    for (int i = 0; i < 32; i++) {
        int j = i / 8, nibble = i % 8 * 4;
        if (forms[f].size.codes == 16) word[j] |= (uint32_t)c[i] << nibble;
        else {
            word[j / 2] |= (c[i] & 3u) << (nibble + j % 2 * 2);
            third |= (uint32_t)c[i] >> 2 << (nibble + j);
        }
    }
    memcpy(u.codes, word, forms[f].size.codes);
    if (forms[f].size.more) memcpy(u.more, &third, sizeof third);
}

static void pack_table(enum plane_form f, const struct quant_ik_block *q, int unit,
                       const uint8_t code[256], struct unit u) {
    const int8_t *value = q->value + 32 * unit;
    uint8_t c[32];
    uint32_t w[8];
    for (int i = 0; i < 32; i++) c[i] = code[(uint8_t)value[i]] & (uint8_t)~SHIFTED;
    words(c, w);
    if (f == FORM_X6K) put_sixes(w, &u);
    else if (f <= FORM_X5S) put_fives(w, &u);
    else put_indexes(f, c, u);
    for (int i = 0; i < forms[f].size.sub; i++) {
        int scale = q->scale[2 * unit + i];
        int shifted = code[(uint8_t)value[16 * i]] & SHIFTED ? 1 : 0;
        bool is_row = f == FORM_X5S || f == FORM_X4S;
        u.sub[i] =
            (uint8_t)(f == FORM_X6K ? scale : (is_row ? scale + 127 : (scale + 64) * 2) | shifted);
    }
}

/* One unit of a trellis type. signs: 32 bytes whose bit `unit` negates an element; NULL: none. */
static void pack_trellis(const struct quant_ik_block *q, const uint16_t index[64], size_t n,
                         const uint8_t *signs, int unit, struct unit u) {
    uint32_t word = 0;
    memcpy(u.codes, index + (size_t)unit * n, n * sizeof *index);
    u.sub[0] = (uint8_t)q->scale[2 * unit];
    if (!signs) return;
    for (int i = 0; i < 32; i++) word |= (uint32_t)(signs[i] >> unit & 1) << i;
    memcpy(u.more, &word, sizeof word);
}

static void pack_ik_row(enum plane_form f, uint32_t type, const uint8_t *row, size_t n_block,
                        struct unit u) {
    const struct plane_sizes s = forms[f].size;
    const struct quant_traits *t = quant_traits(type);
    const uint8_t *b = row + t->head_bytes;
    uint8_t code[256] = {0};
    uint16_t index[64];
    if (f < FORM_K4) invert_table(f, code);
    for (; n_block > 0; n_block--, b += t->block_bytes) {
        struct quant_ik_block q;
        quant_ik_read(type, b, &q);
        float d = t->head_bytes ? quant_ik_row_scale(type, row) : q.d;
        memcpy(u.top, &d, sizeof d);
        if (f == FORM_X6K) memcpy(u.top, b, 4); /* as in the file: f16 d, shifts */
        if (f >= FORM_K4) quant_ik_trellis_indexes(type, b, index);
        for (int k = 0; k < 8; k++) {
            if (f >= FORM_K4)
                pack_trellis(&q, index, s.codes / 2, f == FORM_K3 ? b + 68 : NULL, k, u);
            else pack_table(f, &q, k, code, u);
            u.codes += s.codes;
            u.more += s.more;
            u.sub += s.sub;
        }
        u.top += s.top;
    }
}

/* Converts n_block blocks of a row; u: destination of the first unit. */
OF_FORM void pack_row(enum plane_form f, const struct quant_traits *t, const uint8_t *b,
                      size_t n_block, struct unit u) {
    const struct plane_sizes s = forms[f].size;
    size_t per = (size_t)t->block_elements / 32; /* units per block: 1 or 8 */
    for (; n_block > 0; n_block--, b += t->block_bytes) {
        float x[256];
        if (f == FORM_T4K || f >= FORM_O4) pack_grid(f, b, u);
        else if (f == FORM_I8X) t->decode(b, x, t->block_elements);
        else if (f < FORM_N4K || f > FORM_N2K) pack_small(f, b, u);
        for (size_t k = 0; k < per; k++) {
            struct unit at = {u.codes + k * s.codes, u.more + k * s.more, u.sub + k * s.sub,
                              u.top + k / s.top_units * s.top};
            if (f == FORM_I8X) pack_exact(x + k * 32, at);
            else if (f >= FORM_N4K && f <= FORM_N2K) pack_k(f, b, (int)k, at);
        }
        u.codes += per * s.codes;
        u.more += per * s.more;
        u.sub += per * s.sub;
        u.top += per / s.top_units * s.top;
    }
}

bool cuda_repack_pack(const struct weight *w, int64_t first, int64_t n, uint8_t *const to[4]) {
    enum plane_form f = cuda_repack_form(w->type, w->layout);
    struct plane_sizes s = forms[f].size;
    const struct quant_traits *t = quant_traits(w->type);
    size_t n_unit = (size_t)w->n_in / 32, n_block = (size_t)w->n_in / t->block_elements;
    bool is_finite = true;
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *src = (const uint8_t *)w->data +
                             (size_t)((first + i) / w->n_out) * w->mat_bytes +
                             (size_t)((first + i) % w->n_out) * w->row_bytes;
        size_t at = (size_t)i * n_unit;
        struct unit u = {to[0] + at * s.codes, to[1] + at * s.more, to[2] + at * s.sub,
                         to[3] + at / s.top_units * s.top};
        is_finite &= quant_is_finite(w->type, src, (uint64_t)w->n_in);
        if (w->type >= QUANT_IQ2_K) {
            pack_ik_row(f, w->type, src, n_block, u);
            continue;
        }
        switch (f) {
        default: break;
        case FORM_F32:
        case FORM_F16:
        case FORM_BF16: { /* rows of any length */
            size_t row = (size_t)w->n_in * (f == FORM_F32 ? 4 : 2);
            memcpy(to[0] + (size_t)i * row, src, row);
            break;
        }
#define X(F)                                                                                       \
    case F: pack_row(F, t, src, n_block, u); break;
            X(FORM_I8)
            X(FORM_I8X)
            X(FORM_N4)
            X(FORM_N4M)
            X(FORM_N5)
            X(FORM_N5M)
            X(FORM_N4K)
            X(FORM_N5K)
            X(FORM_N6K)
            X(FORM_N3K)
            X(FORM_N2K)
            X(FORM_T4)
            X(FORM_T4K)
            X(FORM_TFP4)
            X(FORM_O4)
            X(FORM_G3S)
            X(FORM_G3XXS)
            X(FORM_G2XXS)
            X(FORM_G2XS)
            X(FORM_G2S)
#undef X
        }
    }
    return is_finite;
}

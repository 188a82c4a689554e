/* repack.c: the form of each type, and the repacking of rows to tiles. */
#include "kernels/cpu/gemm/repack.h"

#include <string.h>

#include "format/quant.h"
#include "format/quant_ik.h"
#include "kernels/cpu/gemm/repack_read.h"

#define IQ3_S_VALUES                                                                               \
    { -15, -13, -11, -9, -7, -5, -3, -1, 1, 3, 5, 7, 9, 11, 13, 15 }
#define IQ3_XXS_VALUES                                                                             \
    { -62, -52, -44, -36, -28, -20, -12, -4, 4, 12, 20, 28, 36, 44, 52, 62 }
#define IQ2_VALUES                                                                                 \
    { -43, -25, -8, 8, 25, 43 }
#define IQ4_VALUES                                                                                 \
    { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 }
#define IK_2_VALUES                                                                                \
    { -31, -13, 1, 17 }
#define IK_3_VALUES                                                                                \
    { -63, -40, -23, -10, 1, 13, 28, 47 }
#define IK_5_VALUES                                                                                \
    {                                                                                              \
        -126, -114, -103, -92, -83, -74, -65, -57, -50, -43, -36, -30, -24, -18, -12, -6, -1, 5,   \
            11, 17, 23, 29, 36, 43, 51, 59, 68, 77, 87, 97, 109, 121                               \
    }
/* quant_ik_6 rounded to integers */
#define IK_6_VALUES                                                                                \
    {                                                                                              \
        -127, -121, -115, -109, -104, -98, -93, -88, -84, -79, -74, -70, -66, -62, -58, -54, -51,  \
            -47, -44, -40, -37, -34, -31, -28, -25, -22, -19, -16, -13, -11, -8, -5, -2, 0, 3, 6,  \
            9, 12, 14, 17, 20, 23, 27, 30, 33, 36, 40, 44, 47, 51, 55, 59, 63, 68, 72, 77, 82, 87, \
            92, 98, 103, 109, 115, 121                                                             \
    }
#define MXFP4_VALUES                                                                               \
    { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 }
#define Q4_0_VALUES                                                                                \
    { -8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7 }
#define Q3_K_VALUES                                                                                \
    { -4, -3, -2, -1, 0, 1, 2, 3 }
#define IQ1_VALUES                                                                                 \
    { -9, -7, -1, 1, 7, 9 }
#define TQ_VALUES                                                                                  \
    { -1, 0, 1, 2 }

/* Of types with a float scale per row. That of usual weights, 1e-5, would be subnormal as f16. */
#define ROW_FACTOR (1.f / 4096)

static const struct repack_form forms[QUANT_N_ID] = {
    [QUANT_Q4_0] = {PLANES_4, SCALE_F16, true, Q4_0_VALUES, 0, 1, 4, 128, 0},
    [QUANT_Q4_1] = {PLANES_4, SCALE_F16_MIN, false, {0}, 0, 1, 4, 256, 0},
    [QUANT_Q5_0] = {PLANES_5, SCALE_F16, true, {0}, 16, 1, 4, 128, 0},
    [QUANT_Q5_1] = {PLANES_5, SCALE_F16_MIN, false, {0}, 0, 1, 4, 256, 0},
    [QUANT_Q8_0] = {PLANES_8, SCALE_F16, true, {0}, 0, 1, 4, 128, 0},
    [QUANT_IQ4_NL] = {PLANES_4, SCALE_F16, true, IQ4_VALUES, 0, 1, 4, 128, 0},
    [QUANT_MXFP4] = {PLANES_4, SCALE_E8, true, MXFP4_VALUES, 0, 1, 4, 64, 0},
    [QUANT_Q2_K] = {PLANES_2, SCALE_K4X2, false, {0}, 0, 1, 8, 320, 0},
    [QUANT_Q3_K] = {PLANES_3, SCALE_S8X2, true, Q3_K_VALUES, 0, 1, 8, 288, 0},
    [QUANT_Q4_K] = {PLANES_4, SCALE_K6, false, {0}, 0, 1, 8, 256, 0},
    [QUANT_Q5_K] = {PLANES_5, SCALE_K6, false, {0}, 0, 1, 8, 256, 0},
    [QUANT_Q6_K] = {PLANES_6, SCALE_S8X2, true, {0}, 32, 1, 8, 288, 0},
    [QUANT_IQ4_XS] = {PLANES_4, SCALE_S8, true, IQ4_VALUES, 0, 1, 8, 160, 0},
    [QUANT_IQ3_S] = {PLANES_4, SCALE_U4, true, IQ3_S_VALUES, 0, 1, 8, 96, 0},
    [QUANT_IQ3_XXS] = {PLANES_4, SCALE_U4, true, IQ3_XXS_VALUES, 0, .25f, 8, 96, 0},
    [QUANT_IQ2_XXS] = {PLANES_3, SCALE_U4, true, IQ2_VALUES, 0, .125f, 8, 96, 0},
    [QUANT_IQ2_XS] = {PLANES_3, SCALE_U4X2, true, IQ2_VALUES, 0, .125f, 8, 160, 0},
    [QUANT_IQ2_S] = {PLANES_3, SCALE_U4X2, true, IQ2_VALUES, 0, .125f, 8, 160, 0},
    [QUANT_IQ1_S] = {PLANES_3, SCALE_U4, true, IQ1_VALUES, 0, .125f, 8, 96, 0},
    [QUANT_IQ1_M] = {PLANES_3, SCALE_U4X2, true, IQ1_VALUES, 0, .125f, 8, 160, 0},
    [QUANT_TQ1_0] = {PLANES_2, SCALE_ONE, true, TQ_VALUES, 0, 1, 8, 32, 0},
    [QUANT_TQ2_0] = {PLANES_2, SCALE_ONE, true, TQ_VALUES, 0, 1, 8, 32, 0},
/* The trellis types: values of 8 bits. */
#define IK_KT                                                                                      \
    { PLANES_8, SCALE_S8, true, {0}, 0, ROW_FACTOR, 8, 160, 0 }
    [QUANT_IQ2_K] = {PLANES_2, SCALE_S8X2, true, IK_2_VALUES, 0, 1, 8, 320, 5},
    [QUANT_IQ3_K] = {PLANES_3, SCALE_S8X2, true, IK_3_VALUES, 0, 1, 8, 320, 4},
    [QUANT_IQ4_K] = {PLANES_4, SCALE_S8X2, true, IQ4_VALUES, 0, 1, 8, 320, 4},
    [QUANT_IQ5_K] = {PLANES_5, SCALE_S8X2, true, IK_5_VALUES, 0, 1, 8, 320, 2},
    [QUANT_IQ6_K] = {PLANES_6, SCALE_S8X2, true, IK_6_VALUES, 0, 1, 8, 320, 1},
    [QUANT_IQ2_KS] = {PLANES_2, SCALE_S8, true, IK_2_VALUES, 0, 1, 8, 176, 5},
    [QUANT_IQ3_KS] = {PLANES_3, SCALE_S8, true, IK_3_VALUES, 0, 1, 8, 176, 4},
    [QUANT_IQ2_KL] = {PLANES_3, SCALE_S8, true, IK_3_VALUES, 0, 1, 8, 160, 0},
    [QUANT_IQ4_KS] = {PLANES_4, SCALE_S8, true, IQ4_VALUES, 0, ROW_FACTOR, 8, 176, 4},
    [QUANT_IQ4_KSS] = {PLANES_4, SCALE_S8, true, IQ4_VALUES, 0, ROW_FACTOR, 8, 176, 4},
    [QUANT_IQ5_KS] = {PLANES_5, SCALE_S8, true, IK_5_VALUES, 0, ROW_FACTOR, 8, 176, 2},
    [QUANT_IQ1_KT] = IK_KT,
    [QUANT_IQ2_KT] = IK_KT,
    [QUANT_IQ3_KT] = IK_KT,
    [QUANT_IQ4_KT] = IK_KT,
};

const struct repack_form *repack_form_of(uint32_t type) {
    return type < QUANT_N_ID && forms[type].group_blocks ? &forms[type] : NULL;
}

static size_t group_bytes(const struct repack_form *f) {
    return (size_t)(f->header_bytes + f->group_blocks * repack_block_bytes(f));
}

size_t repack_tile_bytes(const struct repack_form *f, int64_t n_in) {
    int64_t n_block = n_in / PACK_BLOCK,
            n_group = (n_block + f->group_blocks - 1) / f->group_blocks;
    return (size_t)n_group * group_bytes(f);
}

size_t repack_bytes(const struct weight *w) {
    const struct repack_form *f = repack_form_of(w->type);
    if (!f) return 0;
    return (size_t)w->n_mat * (size_t)repack_n_tile(w->n_out) * repack_tile_bytes(f, w->n_in);
}

static void put_u16(uint8_t *p, uint16_t v) { memcpy(p, &v, 2); }

/* Stores the scales of 16 rows in h, the header of a group. */
static void put_scales(const struct repack_form *f, const struct repack_codes *c, uint8_t *h) {
    bool of_32 = f->group_blocks == 4;
    for (int r = 0; r < PACK_ROWS; r++, c++) {
        bool has_min = !f->is_signed;
        uint8_t *d = h + 2 * r, *s = h + r + 32 + (has_min ? 32 : 0);
        if (of_32) {
            for (int i = 0; i < 4; i++) {
                if (f->scale == SCALE_E8) h[16 * i + r] = c->s[i];
                else put_u16(d + 32 * i, c->d[i]);
                if (f->scale == SCALE_F16_MIN) put_u16(d + 128 + 32 * i, c->dmin[i]);
            }
            continue;
        }
        put_u16(d, c->d[0]);
        uint8_t *end = h + f->header_bytes + r; /* of the arrays of bits */
        bool x2 = f->scale >= SCALE_S8X2;
        if (f->shift && x2) end[-32] = c->shifted[0], end[-16] = c->shifted[1];
        else if (f->shift) end[-16] = c->shifted[0];
        if (has_min) put_u16(d + 32, c->dmin[0]);
        for (int i = 0; i < 16; i++) {
            uint8_t *at = s + 16 * i, *half = s + 16 * (i / 2), *high = s + 128 + 16 * (i / 2);
            int odd = i % 2 * 4;
            if (f->scale == SCALE_S8X2 || (f->scale == SCALE_S8 && i < 8)) *at = c->s[i];
            if (f->scale == SCALE_K4X2) *at = (uint8_t)(c->s[i] | c->m[i] << 4);
            if (f->scale == SCALE_U4X2 || (f->scale == SCALE_U4 && i < 8))
                *half = (uint8_t)((odd ? *half : 0) | c->s[i] << odd);
            if (f->scale == SCALE_K6 && i < 8) {
                *at = (uint8_t)((c->s[i] & 15) | (c->m[i] & 15) << 4);
                *high = (uint8_t)((odd ? *high : 0) | (c->s[i] >> 4 | c->m[i] >> 4 << 2) << odd);
            }
        }
    }
}

/* Stores the codes of one row of one block, four at a time: word j of the row goes to lane r of vector j. */
static void put_codes(enum repack_planes planes, const uint8_t *q, int r, uint8_t *block) {
    uint32_t v[8], *out = (uint32_t *)(void *)block + r;
    memcpy(v, q, sizeof v);
    if (planes == PLANES_8) {
        for (int j = 0; j < 8; j++) out[16 * j] = v[j];
        return;
    }
    if (planes >= PLANES_4) {
        for (int i = 0; i < 4; i++)
            out[16 * i] = (v[2 * i] & 0x0f0f0f0fu) | (v[2 * i + 1] & 0x0f0f0f0fu) << 4;
        for (int j = 0; j < 8; j++) v[j] = v[j] >> 4 & 0x0f0f0f0fu;
        out += 64;
    }
    if (planes != PLANES_4 && planes != PLANES_5)
        for (int i = 0; i < 8; i += 4, out += 16)
            *out = (v[i] & 0x03030303u) | (v[i + 1] & 0x03030303u) << 2 |
                   (v[i + 2] & 0x03030303u) << 4 | (v[i + 3] & 0x03030303u) << 6;
    int top = planes == PLANES_3 ? 2 : 0;
    if (planes != PLANES_3 && planes != PLANES_5) return;
    uint32_t bits = 0;
    for (int j = 0; j < 8; j++) bits |= (v[j] >> top & 0x01010101u) << j;
    *out = bits;
}

/* Codes of values; with SHIFTED, of values plus the shift. Both sets are disjoint in all forms. */
enum { SHIFTED = 128 };
static void invert(const struct repack_form *f, uint8_t code_of[256]) {
    memset(code_of, 0, 256);
    for (int i = 0; f->planes <= PLANES_6 && i < 1 << f->planes; i++) {
        if (f->shift) code_of[(uint8_t)(f->values[i] + f->shift)] = (uint8_t)(i | SHIFTED);
        code_of[(uint8_t)f->values[i]] = (uint8_t)i;
    }
}

/* Types of ik_llama.cpp: values and scales of 8 bits; the values are converted to codes if the form has them. The scale
 * of a row is stored as f16: exact for files from Chimère's encoders, within 2^-11 for others. */
static void read_ik(uint32_t type, const uint8_t *row, const uint8_t *block,
                    const uint8_t code_of[256], struct repack_codes *c) {
    const struct repack_form *f = &forms[type];
    struct quant_ik_block k;
    quant_ik_read(type, block, &k);
    float d = quant_traits(type)->head_bytes ? quant_ik_row_scale(type, row) : k.d;
    c->d[0] = quant_f32_to_f16(d / f->factor);
    bool of_32 = f->scale == SCALE_S8;
    for (int i = 0; i < 16; i++) c->s[i] = (uint8_t)k.scale[of_32 ? 2 * i % 16 : i];
    if (f->planes == PLANES_8) {
        memcpy(c->q, k.value, sizeof k.value);
        return;
    }
    c->shifted[0] = c->shifted[1] = 0;
    for (int i = 0; i < 256; i++) {
        uint8_t code = code_of[(uint8_t)k.value[i]];
        c->q[i] = code & (SHIFTED - 1);
        if (i % 16 == 0 && (code & SHIFTED)) c->shifted[i / 16 % 2] |= (uint8_t)(1 << i / 32);
    }
}

/* Repacks a tile. Returns whether its rows are finite, which is cheap to check while they are in the cache. */
static bool repack_tile(const struct weight *w, const struct repack_form *f, int64_t mat,
                        int64_t tile, uint8_t *dst) {
    const struct quant_traits *t = quant_traits(w->type);
    repack_read *read = repack_reader(w->type);
    struct repack_codes c[PACK_ROWS];
    uint8_t code_of[256];
    invert(f, code_of);
    memset(c, 0, sizeof c);
    int per_block = (int)t->block_elements / PACK_BLOCK, block_bytes = repack_block_bytes(f);
    int64_t n_block = w->n_in / PACK_BLOCK, n_row = w->n_out - tile * PACK_ROWS;
    if (n_row > PACK_ROWS) n_row = PACK_ROWS;
    const uint8_t *rows = (const uint8_t *)w->data + (size_t)mat * w->mat_bytes +
                          (size_t)(tile * PACK_ROWS) * w->row_bytes;
    for (int64_t b = 0; b < n_block; b += f->group_blocks, dst += group_bytes(f)) {
        int n = n_block - b < f->group_blocks ? (int)(n_block - b) : f->group_blocks;
        for (int64_t r = 0; r < n_row; r++) {
            const uint8_t *row = rows + (size_t)r * w->row_bytes, *src = row + t->head_bytes;
            if (!read) {
                read_ik(w->type, row, src + (size_t)(b / per_block) * t->block_bytes, code_of,
                        &c[r]);
                continue;
            }
            for (int i = 0; i < n; i += per_block)
                read(src + (size_t)((b + i) / per_block) * t->block_bytes, i, &c[r]);
        }
        put_scales(f, c, dst);
        for (int i = 0; i < n; i++)
            for (int r = 0; r < PACK_ROWS; r++)
                put_codes(f->planes, c[r].q + i * PACK_BLOCK, r,
                          dst + f->header_bytes + i * block_bytes);
    }
    return quant_rows_are_finite(w->type, rows, (uint64_t)n_row, (uint64_t)w->n_in);
}

bool repack_tiles(const struct weight *w, int64_t first, int64_t last, uint8_t *dst) {
    const struct repack_form *f = repack_form_of(w->type);
    int64_t n_tile = repack_n_tile(w->n_out);
    size_t bytes = repack_tile_bytes(f, w->n_in);
    bool is_finite = true;
    for (int64_t i = first; i < last; i++)
        is_finite &= repack_tile(w, f, i / n_tile, i % n_tile, dst + (size_t)i * bytes);
    return is_finite;
}

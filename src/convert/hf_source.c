/* hf_source.c: see hf_source.h. Formulas are at each form's function. */
#include "convert/hf_source.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "format/quant.h"

enum { NAME_BUF = ST_MAX_NAME + 48 };

/* ---- elements ---- */

/* 4 exponent bits, 3 mantissa bits, no infinity; 2^-9 is the smallest. */
static float e4m3(uint8_t b) {
    int exponent = b >> 3 & 15, mantissa = b & 7;
    float x = exponent ? ldexpf(1 + (float)mantissa / 8, exponent - 7) : (float)mantissa / 512;
    if (exponent == 15 && mantissa == 7) x = NAN;
    return b & 0x80 ? -x : x;
}

static float e5m2(uint8_t b) { return quant_f16_to_f32((uint16_t)(b << 8)); }

static float e8m0(uint8_t b) { return b == 255 ? NAN : ldexpf(1, (int)b - 127); }

static float e2m1(uint8_t code) {
    static const float values[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    return code & 8 ? -values[code & 7] : values[code & 7];
}

static float element(const struct st_tensor *t, uint64_t i) {
    float x = 0;
    const struct quant_traits *q;
    switch (t->dtype) {
    case ST_F8_E4M3: return e4m3(t->data[i]);
    case ST_F8_E5M2: return e5m2(t->data[i]);
    case ST_F8_E8M0: return e8m0(t->data[i]);
    case ST_U8: return t->data[i];
    case ST_I8: return (int8_t)t->data[i];
    default:
        q = quant_traits((uint32_t)safetensors_dtype_quant(t->dtype));
        q->decode(t->data + i * q->block_bytes, &x, 1);
        return x;
    }
}

static uint32_t word(const struct st_tensor *t, uint64_t i) {
    uint32_t v;
    memcpy(&v, t->data + i * 4, 4);
    return v;
}

static bool has_floats(const struct st_tensor *t) {
    int q = safetensors_dtype_quant(t->dtype);
    return q >= 0 && quant_traits((uint32_t)q)->decode;
}

static bool is_fp8(const struct st_tensor *t) {
    return t->dtype == ST_F8_E4M3 || t->dtype == ST_F8_E5M2;
}

/* ---- names ---- */

/* The name with its last ".weight", ".qweight" and so on replaced by another ending. */
static const struct st_tensor *sibling(const struct safetensors *st, const char *name,
                                       size_t n_stem, const char *ending) {
    char full[NAME_BUF];
    snprintf(full, sizeof full, "%.*s%s", (int)n_stem, name, ending);
    return safetensors_find(st, full);
}

const struct st_tensor *hf_source_find(const struct safetensors *st, const char *name) {
    const struct st_tensor *t = safetensors_find(st, name);
    size_t n = strlen(name);
    if (t) return t;
    if ((t = sibling(st, name, n, "_blocks"))) return t;
    if (!str_ends(name, ".weight")) return NULL;
    n -= 6;
    if ((t = sibling(st, name, n, "qweight"))) return t;
    return sibling(st, name, n, "weight_packed");
}

/* ---- opening ---- */

struct opening {
    struct hf_source *s;
    const struct safetensors *st;
    const char *name;
    size_t n_stem; /* of the name, with the dot */
    const json_t *quantization;
    struct err *e;
};

static const struct st_tensor *part(const struct opening *o, const char *ending) {
    return sibling(o->st, o->name, o->n_stem, ending);
}

static int bad(const struct opening *o, const char *expected) {
    const char *method = json_string_value(json_object_get(o->quantization, "quant_method"));
    return err_set(o->e, CHIMERE_EUNSUPPORTED, "tensor %s (%s%s%s): expected %s", o->name,
                   method ? method : "", method ? ", " : "", safetensors_dtype_name(o->s->t->dtype),
                   expected);
}

static bool is_2d(const struct st_tensor *t) { return t && t->n_dims == 2 && t->shape[1] > 0; }

static void set_shape(struct hf_source *s, uint64_t rows, uint64_t cols) {
    s->n_dims = 2;
    s->shape[0] = rows;
    s->shape[1] = cols;
}

/* Rows and columns per scale: from the configured block size, or from the shape of the scales. */
static int find_block(struct opening *o) {
    struct hf_source *s = o->s;
    const struct st_tensor *scale = s->part[0];
    uint64_t rows = s->shape[0], cols = s->n_dims > 1 ? s->shape[1] : 1;
    const json_t *configured = json_object_get(o->quantization, "weight_block_size");
    if (!has_floats(scale) && !is_fp8(scale) && scale->dtype != ST_F8_E8M0)
        return bad(o, "scales that are floats");
    s->block[0] = rows;
    s->block[1] = cols;
    if (scale->n_elements == 1) return 0;
    uint64_t n_row = scale->shape[0], n_col = scale->n_dims > 1 ? scale->shape[1] : 1;
    if (s->n_dims != 2 || scale->n_dims > 2 || !n_row || !n_col)
        return bad(o, "one scale per block");
    for (int d = 0; d < 2; d++) {
        uint64_t size = s->shape[d], n = d ? n_col : n_row;
        int64_t said = json_integer_value(json_array_get(configured, (size_t)d));
        /* blocks of 128 need not divide the matrix; the last one is smaller */
        s->block[d] = n == size  ? 1
                      : n == 1   ? size
                      : said > 0 ? (uint64_t)said
                                 : (size + n - 1) / n;
        if (size % n && said <= 0) s->block[d] = 128;
        if ((size + s->block[d] - 1) / s->block[d] != n) return bad(o, "as many scales as blocks");
    }
    return 0;
}

static int open_scaled(struct opening *o) {
    static const struct {
        const char *ending;
        float times;
    } names[] = {{"weight_scale_inv", 1}, {"weight_scale", 1}, {"scales", 1}, {"SCB", 1.0f / 127}};
    struct hf_source *s = o->s;
    for (size_t i = 0; !s->part[0] && i < sizeof names / sizeof *names; i++) {
        s->part[0] = part(o, names[i].ending);
        s->scale = names[i].times;
    }
    if (!s->part[0]) return bad(o, "a tensor of scales beside it (weight_scale_inv, weight_scale)");
    s->form = HF_SCALED;
    s->part[1] = part(o, "weight_zero_point");
    if (s->part[1] && (s->part[1]->n_elements != s->part[0]->n_elements ||
                       (s->part[1]->dtype != ST_I8 && !has_floats(s->part[1]))))
        return bad(o, "as many zero points as scales");
    return find_block(o);
}

static int open_packed(struct opening *o) {
    struct hf_source *s = o->s;
    const struct st_tensor *shape = part(o, "weight_shape"), *scale = part(o, "weight_scale");
    const struct st_tensor *zero = part(o, "weight_zero_point"), *t = s->t;
    if (part(o, "weight_g_idx")) return bad(o, "no weight_g_idx");
    if (!is_2d(t) || !is_2d(scale) || !has_floats(scale) || !shape || shape->n_elements != 2 ||
        (shape->dtype != ST_I64 && shape->dtype != ST_I32))
        return bad(o, "weight_scale and weight_shape beside a matrix");
    int64_t size[2] = {0, 0};
    for (size_t i = 0; i < 2; i++) {
        if (shape->dtype == ST_I64) memcpy(&size[i], shape->data + i * 8, 8);
        else size[i] = (int32_t)word(shape, i);
    }
    if (size[0] < 1 || size[1] < 1 || (uint64_t)size[0] != t->shape[0] || size[1] > 1 << 24)
        return bad(o, "a weight_shape that suits the codes");
    uint64_t cols = (uint64_t)size[1], per_word = (cols + t->shape[1] - 1) / t->shape[1];
    if ((per_word != 4 && per_word != 8) || (cols + per_word - 1) / per_word != t->shape[1])
        return bad(o, "codes of 4 or 8 bits");
    s->form = HF_PACKED;
    s->bits = (uint32_t)(32 / per_word);
    s->part[0] = scale;
    s->part[1] = zero;
    set_shape(s, t->shape[0], cols);
    if (zero && (!is_2d(zero) || zero->dtype != ST_I32 || zero->shape[1] != scale->shape[1] ||
                 zero->shape[0] != (scale->shape[0] + per_word - 1) / per_word))
        return bad(o, "packed zero points, one per scale");
    if (scale->shape[0] != s->shape[0] || cols % scale->shape[1])
        return bad(o, "one scale per group of columns");
    s->block[1] = cols / scale->shape[1];
    return 0;
}

/* GPTQ packs codes along the inputs, AWQ along the outputs; both store the transposed matrix. */
static int open_gptq_awq(struct opening *o) {
    struct hf_source *s = o->s;
    const struct st_tensor *scale = part(o, "scales"), *zero = part(o, "qzeros"), *t = s->t;
    if (!is_2d(t) || !is_2d(scale) || !has_floats(scale) || !is_2d(zero) || zero->dtype != ST_I32 ||
        t->dtype != ST_I32 || zero->shape[0] != scale->shape[0])
        return bad(o, "scales and qzeros beside 32-bit words");
    uint64_t n_out = scale->shape[1], n_group = scale->shape[0], n_in;
    s->part[0] = scale;
    s->part[1] = zero;
    s->part[2] = part(o, "g_idx");
    if (t->shape[1] == n_out) {
        uint64_t per_word = n_out / zero->shape[1];
        s->form = HF_GPTQ;
        s->bits = per_word ? (uint32_t)(32 / per_word) : 0;
        if ((s->bits != 2 && s->bits != 4 && s->bits != 8) || n_out % per_word)
            return bad(o, "codes of 2, 4 or 8 bits");
        n_in = t->shape[0] * per_word;
        const char *format =
            json_string_value(json_object_get(o->quantization, "checkpoint_format"));
        s->zero_offset = format && strcmp(format, "gptq_v2") == 0 ? 0 : 1;
    } else {
        s->form = HF_AWQ;
        s->bits = 4;
        n_in = t->shape[0];
        if (t->shape[1] * 8 != n_out || zero->shape[1] * 8 != n_out)
            return bad(o, "codes of 4 bits in AWQ's gemm order");
    }
    set_shape(s, n_out, n_in);
    if (!n_group || n_in % n_group) return bad(o, "groups that divide the inputs");
    s->block[1] = n_in / n_group;
    if (!s->part[2]) return 0;
    if (s->part[2]->dtype != ST_I32 || s->part[2]->n_elements != n_in)
        return bad(o, "one g_idx per input");
    for (uint64_t i = 0; i < n_in; i++)
        if (word(s->part[2], i) >= n_group) return bad(o, "g_idx below the number of groups");
    return 0;
}

/* NAME_blocks [.., rows, groups, 16] and NAME_scales [.., rows, groups]. */
static int open_mxfp4(struct opening *o) {
    struct hf_source *s = o->s;
    const struct st_tensor *t = s->t;
    size_t n = strlen(o->name) - strlen("_blocks");
    const struct st_tensor *scale = sibling(o->st, o->name, n, "_scales");
    if (!scale || scale->dtype != ST_U8 || t->dtype != ST_U8 || t->n_dims < 3 || t->n_dims > 4 ||
        t->shape[t->n_dims - 1] != 16 || scale->n_elements != t->n_elements / 16)
        return bad(o, "blocks of 16 bytes and one scale each");
    s->form = HF_MXFP4;
    s->part[0] = scale;
    s->n_dims = t->n_dims - 1;
    for (uint32_t d = 0; d + 1 < s->n_dims; d++) s->shape[d] = t->shape[d];
    s->shape[s->n_dims - 1] = t->shape[t->n_dims - 2] * 32;
    return 0;
}

/* Scales are FP8, one per 16 columns; in compressed-tensors the scale of the whole matrix is a divisor. */
static int open_nvfp4(struct opening *o) {
    struct hf_source *s = o->s;
    const struct st_tensor *t = s->t, *scale = part(o, "weight_scale"),
                           *whole = part(o, "weight_scale_2"),
                           *divisor = part(o, "weight_global_scale");
    if (!is_2d(t) || !is_2d(scale) || scale->dtype != ST_F8_E4M3 || (!whole && !divisor) ||
        scale->shape[0] != t->shape[0] || scale->shape[1] * 8 != t->shape[1])
        return bad(o, "FP8 scales per 16 columns and one scale of the whole");
    const struct st_tensor *one = whole ? whole : divisor;
    if (one->n_elements != 1 || !has_floats(one)) return bad(o, "one scale of the whole");
    s->form = HF_NVFP4;
    s->part[0] = scale;
    s->scale = whole ? element(one, 0) : 1 / element(one, 0);
    set_shape(s, t->shape[0], t->shape[1] * 2);
    return 0;
}

static const struct st_tensor *quant_state(const struct opening *o) {
    const struct st_tensor *t = part(o, "weight.quant_state.bitsandbytes__nf4");
    return t ? t : part(o, "weight.quant_state.bitsandbytes__fp4");
}

/* A table of 16 values, and scales per block of elements; the scales may be codes of a second table. */
static int open_bnb4(struct opening *o) {
    struct hf_source *s = o->s;
    const struct st_tensor *state = quant_state(o), *absmax = part(o, "weight.absmax");
    json_t *told = json_loadb((const char *)state->data, state->n_bytes, 0, NULL);
    const json_t *shape = json_object_get(told, "shape");
    int64_t block = json_integer_value(json_object_get(told, "blocksize"));
    int64_t rows = json_integer_value(json_array_get(shape, 0));
    int64_t cols = json_integer_value(json_array_get(shape, 1));
    int64_t nested = json_integer_value(json_object_get(told, "nested_blocksize"));
    s->nested_offset = (float)json_number_value(json_object_get(told, "nested_offset"));
    bool is_matrix = json_array_size(shape) == 2;
    json_decref(told);
    if (!is_matrix || rows < 1 || cols < 1 || rows > 1 << 24 || cols > 1 << 24 || block < 1 ||
        s->t->n_elements != ((uint64_t)rows * (uint64_t)cols + 1) / 2)
        return bad(o, "a quant_state whose shape suits the codes");
    s->form = HF_BNB4;
    s->block[1] = (uint64_t)block;
    s->part[0] = absmax;
    s->part[1] = part(o, "weight.quant_map");
    s->part[2] = part(o, "weight.nested_absmax");
    s->part[3] = part(o, "weight.nested_quant_map");
    set_shape(s, (uint64_t)rows, (uint64_t)cols);
    uint64_t n_block = ((uint64_t)rows * (uint64_t)cols + s->block[1] - 1) / s->block[1];
    if (!absmax || absmax->n_elements != n_block || !s->part[1] || s->part[1]->n_elements != 16 ||
        !has_floats(s->part[1]))
        return bad(o, "absmax per block and a quant_map of 16 values");
    if (has_floats(absmax) && absmax->dtype != ST_I8) return 0;
    s->nested_block = nested > 0 ? (uint64_t)nested : 1;
    if (absmax->dtype != ST_U8 || !s->part[2] || !s->part[3] || s->part[3]->n_elements != 256 ||
        !has_floats(s->part[2]) || !has_floats(s->part[3]) ||
        s->part[2]->n_elements != (n_block + s->nested_block - 1) / s->nested_block)
        return bad(o, "nested_absmax and nested_quant_map of 256 values");
    return 0;
}

int hf_source_open(struct hf_source *s, const struct safetensors *st, const struct st_tensor *t,
                   const json_t *quantization, struct err *e) {
    *s = (struct hf_source){.t = t, .n_dims = t->n_dims, .scale = 1};
    memcpy(s->shape, t->shape, sizeof s->shape);
    const char *dot = strrchr(t->name, '.');
    struct opening o = {.s = s,
                        .st = st,
                        .name = t->name,
                        .n_stem = dot ? (size_t)(dot + 1 - t->name) : 0,
                        .quantization = quantization,
                        .e = e};
    if (str_ends(t->name, "_blocks")) return open_mxfp4(&o);
    if (str_ends(t->name, ".qweight")) return open_gptq_awq(&o);
    if (str_ends(t->name, ".weight_packed"))
        return t->dtype == ST_U8 ? open_nvfp4(&o) : open_packed(&o);
    if (t->dtype == ST_U8 && quant_state(&o)) return open_bnb4(&o);
    if (t->dtype == ST_U8 && part(&o, "weight_scale")) return open_nvfp4(&o);
    if (is_fp8(t) || t->dtype == ST_I8) return open_scaled(&o);
    if (has_floats(t)) return 0;
    return bad(&o, "floats, or codes of FP8, MXFP4, NVFP4, GPTQ, AWQ, bitsandbytes or "
                   "compressed-tensors with their scales");
}

/* ---- rows ---- */

/* (value - zero point) * scale of the block; a row has n columns */
static float scaled(const struct hf_source *s, uint64_t r, uint64_t c, uint64_t n) {
    const struct st_tensor *scale = s->part[0], *zero = s->part[1];
    uint64_t per_row = (n + s->block[1] - 1) / s->block[1];
    uint64_t at = scale->n_elements == 1 ? 0 : r / s->block[0] * per_row + c / s->block[1];
    float x = element(s->t, r * n + c);
    return (x - (zero ? element(zero, at) : 0)) * (element(scale, at) * s->scale);
}
static void scaled_row(const struct hf_source *s, uint64_t r, float *out, uint64_t n) {
    for (uint64_t c = 0; c < n; c++) out[c] = scaled(s, r, c, n);
}

/* Codes and zero points are stored plus half their range. */
static void packed_row(const struct hf_source *s, uint64_t r, float *out, uint64_t n) {
    uint64_t per_word = 32 / s->bits, n_word = s->t->shape[1], n_group = s->part[0]->shape[1];
    uint32_t mask = (1u << s->bits) - 1;
    int32_t half = 1 << (s->bits - 1);
    for (uint64_t c = 0; c < n; c++) {
        uint64_t g = c / s->block[1];
        uint32_t code = word(s->t, r * n_word + c / per_word) >> c % per_word * s->bits & mask;
        int32_t zero = half;
        if (s->part[1])
            zero =
                (int32_t)(word(s->part[1], r / per_word * n_group + g) >> r % per_word * s->bits &
                          mask);
        out[c] = (float)((int32_t)code - zero) * element(s->part[0], r * n_group + g);
    }
}

/* W[in, out] = (code - zero) * scale per group of inputs; row r is an output. */
static void gptq_row(const struct hf_source *s, uint64_t r, float *out, uint64_t n) {
    uint64_t per_word = 32 / s->bits, n_out = s->shape[0], n_zero = s->part[1]->shape[1];
    uint32_t mask = (1u << s->bits) - 1;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t g = s->part[2] ? word(s->part[2], i) : i / s->block[1];
        uint32_t code = word(s->t, i / per_word * n_out + r) >> i % per_word * s->bits & mask;
        uint32_t zero =
            word(s->part[1], g * n_zero + r / per_word) >> r % per_word * s->bits & mask;
        int32_t d = (int32_t)code - ((int32_t)zero + s->zero_offset);
        out[i] = (float)d * element(s->part[0], g * n_out + r);
    }
}

static void awq_row(const struct hf_source *s, uint64_t r, float *out, uint64_t n) {
    static const uint8_t places[] = {0, 4, 1, 5, 2, 6, 3, 7}; /* order of outputs within a word */
    uint64_t n_out = s->shape[0], n_word = n_out / 8;
    unsigned by = places[r % 8] * 4u;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t g = i / s->block[1];
        int32_t code = (int32_t)(word(s->t, i * n_word + r / 8) >> by & 15);
        int32_t zero = (int32_t)(word(s->part[1], g * n_word + r / 8) >> by & 15);
        out[i] = (float)(code - zero) * element(s->part[0], g * n_out + r);
    }
}

/* The low four bits are the first element. */
static void fp4_row(const struct hf_source *s, uint64_t r, float *out, uint64_t n, uint64_t group,
                    float (*scale_of)(uint8_t)) {
    for (uint64_t c = 0; c < n; c++) {
        uint8_t byte = s->t->data[(r * n + c) / 2];
        float scale = scale_of(s->part[0]->data[(r * n + c) / group]);
        out[c] = e2m1(c % 2 ? byte >> 4 : byte & 15) * (scale * s->scale);
    }
}

/* The high four bits are the first element. */
static void bnb4_row(const struct hf_source *s, uint64_t r, float *out, uint64_t n) {
    for (uint64_t c = 0; c < n; c++) {
        uint64_t i = r * n + c, b = i / s->block[1];
        uint8_t byte = s->t->data[i / 2];
        float scale = element(s->part[0], b);
        if (s->nested_block)
            scale =
                element(s->part[3], (uint64_t)scale) * element(s->part[2], b / s->nested_block) +
                s->nested_offset;
        out[c] = element(s->part[1], i % 2 ? byte & 15u : byte >> 4) * scale;
    }
}

void hf_source_row(const struct hf_source *s, uint64_t r, float *out, uint64_t n_col) {
    const struct quant_traits *q;
    switch (s->form) {
    case HF_PLAIN:
        q = quant_traits((uint32_t)safetensors_dtype_quant(s->t->dtype));
        q->decode(s->t->data + r * n_col * q->block_bytes, out, (size_t)n_col);
        return;
    case HF_SCALED: scaled_row(s, r, out, n_col); return;
    case HF_PACKED: packed_row(s, r, out, n_col); return;
    case HF_GPTQ: gptq_row(s, r, out, n_col); return;
    case HF_AWQ: awq_row(s, r, out, n_col); return;
    case HF_MXFP4: fp4_row(s, r, out, n_col, 32, e8m0); return;
    case HF_NVFP4: fp4_row(s, r, out, n_col, 16, e4m3); return;
    case HF_BNB4: bnb4_row(s, r, out, n_col); return;
    }
}

void hf_source_column(const struct hf_source *s, uint64_t r, uint64_t n, uint64_t c, float *out,
                      uint64_t n_col) {
    for (uint64_t i = 0; i < n; i++)
        out[i] =
            s->form == HF_SCALED ? scaled(s, r + i, c, n_col) : element(s->t, (r + i) * n_col + c);
}

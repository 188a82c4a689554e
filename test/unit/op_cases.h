/* op_cases.h: the cases of each op, one table per op. The tests of the CPU devices (test_ops.c, test_ops_ssm.c), of a
 * GPU and of the emulator (test/gpu) run them all: a row added here is tested on every device. */
#ifndef CHIMERE_TEST_OP_CASES_H
#define CHIMERE_TEST_OP_CASES_H

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "format/quant.h"
#include "kernels/ops.h"

#define N_CASES(table) ((int)(sizeof(table) / sizeof *(table)))

/* ---- linear, embed ---- */

static const uint32_t types[] = {
    QUANT_F32,    QUANT_F16,     QUANT_BF16,   QUANT_Q8_0,    QUANT_Q4_0,    QUANT_Q4_1,
    QUANT_Q5_0,   QUANT_Q5_1,    QUANT_Q2_K,   QUANT_Q3_K,    QUANT_Q4_K,    QUANT_Q5_K,
    QUANT_Q6_K,   QUANT_IQ2_XXS, QUANT_IQ2_XS, QUANT_IQ2_S,   QUANT_IQ3_XXS, QUANT_IQ3_S,
    QUANT_IQ1_S,  QUANT_IQ1_M,   QUANT_IQ4_NL, QUANT_IQ4_XS,  QUANT_TQ1_0,   QUANT_TQ2_0,
    QUANT_MXFP4,  QUANT_IQ2_K,   QUANT_IQ3_K,  QUANT_IQ4_K,   QUANT_IQ5_K,   QUANT_IQ2_KS,
    QUANT_IQ3_KS, QUANT_IQ4_KS,  QUANT_IQ2_KL, QUANT_IQ4_KSS, QUANT_IQ5_KS,  QUANT_IQ6_K,
    QUANT_IQ1_KT, QUANT_IQ2_KT,  QUANT_IQ3_KT, QUANT_IQ4_KT,
};
enum { N_TYPE = sizeof types / sizeof *types };

/* n_in of a type with blocks of 1, 32 and 256 elements. */
static const struct linear_case {
    int64_t n_in[3], n_out;
    int32_t n_tok;
} linear_cases[] = {
    {{70, 32, 256}, 17, 1},   {{70, 32, 256}, 17, 2},    {{70, 32, 256}, 17, 5},
    {{70, 32, 256}, 17, 8},   {{133, 96, 768}, 1, 1},    {{133, 96, 768}, 50, 3},
    {{133, 96, 512}, 33, 16}, {{133, 96, 256}, 130, 19}, {{133, 96, 768}, 50, 33},
};

static inline int64_t linear_n_in(const struct linear_case *c, uint32_t type) {
    uint32_t block = quant_traits(type)->block_elements;
    return c->n_in[block == 1 ? 0 : block == 32 ? 1 : 2];
}

/* By how much n products may differ from those of decoded rows: values of IQ6_K are rounded to integers, and few products
 * may all cancel. */
static inline double type_rounding(uint32_t type, size_t n) {
    return type != QUANT_IQ6_K ? 0 : n > 50 ? 1e-2 : 1e-1;
}

/* Several matrices that read the same rows in one call. */
enum { LINEAR_GROUP = 4 };
static const uint32_t linear_groups[][LINEAR_GROUP] = {
    {QUANT_Q8_0, QUANT_F32, QUANT_Q6_K, QUANT_F16},
    {QUANT_Q5_K, QUANT_Q5_K, QUANT_Q8_0, QUANT_BF16},
    {QUANT_F32, QUANT_Q4_K, QUANT_Q4_0, QUANT_Q8_0},
    {QUANT_IQ4_XS, QUANT_Q8_0, QUANT_F32, QUANT_Q5_K},
};

/* Matrices in two parts. */
enum { TAIL_ROWS = 96, TAIL_EXPERTS = 6, TAIL_USED = 3 };
static const struct tail_case {
    uint32_t type, tail;
    int64_t n_in, n_tail;
} tail_cases[] = {
    {QUANT_IQ3_K, QUANT_IQ4_NL, 512, 128}, {QUANT_Q6_K, QUANT_Q8_0, 256, 64},
    {QUANT_Q4_K, QUANT_Q5_0, 256, 32},     {QUANT_IQ4_KS, QUANT_Q4_0, 512, 160},
    {QUANT_Q8_0, QUANT_F16, 96, 32},       {QUANT_F32, QUANT_Q8_0, 64, 32},
};

/* ---- rms_norm, layer_norm, act_mul ---- */

static const int64_t norm_sizes[] = {1, 7, 64, 100, 1000, 2048, 2080, 4096, 5120};
static const float act_edges[] = {100, -100, 0, -0.0f, 1e-8f};

/* ---- qkv_store and attn, attn_full ---- */

static const struct attn_case {
    uint32_t k_type, v_type;
    int32_t n_head, n_kv_head, d_k, d_v;
    enum rope_mode rope;
    bool norm, gate, sinks, rotate;
    int32_t window, n_keep;
    float softcap;
    bool queries_again; /* the queries are made once more, without keys */
    bool latent;        /* rotary elements lead and are apart; values are the rest of the keys */
} attn_cases[] = {
    {QUANT_F32, QUANT_F32, 4, 2, 64, 64, ROPE_NEOX, true, true, false, false, 0, 0, 0, false,
     false},
    {QUANT_F16, QUANT_F16, 4, 4, 96, 96, ROPE_NORM, false, false, true, false, 70, 0, 0, false,
     false},
    {QUANT_F16, QUANT_F16, 8, 1, 256, 256, ROPE_NEOX, true, true, false, false, 0, 0, 30, false,
     false},
    {QUANT_F32, QUANT_F32, 2, 1, 40, 24, ROPE_NONE, false, false, false, false, 50, 3, 0, false,
     false},
    {QUANT_Q8_0, QUANT_Q8_0, 4, 2, 128, 128, ROPE_NEOX, true, true, false, true, 0, 0, 0, false,
     false},
    {QUANT_Q8_0, QUANT_Q4_0, 6, 2, 64, 64, ROPE_NEOX, true, false, false, true, 0, 0, 0, false,
     false},
    {QUANT_F16, QUANT_F16, 12, 1, 64, 64, ROPE_NORM, false, true, true, false, 100, 0, 0, false,
     false},
    {QUANT_F16, QUANT_F16, 3, 3, 128, 128, ROPE_NEOX, true, false, false, false, 50, 3, 0, false,
     false},
    {QUANT_Q4_0, QUANT_Q4_0, 8, 1, 256, 256, ROPE_NEOX, true, true, false, true, 0, 0, 0, false,
     false},
    {QUANT_Q8_0, QUANT_Q8_0, 2, 2, 256, 256, ROPE_NEOX, true, true, false, true, 0, 0, 20, false,
     false},
    {QUANT_Q4_0, QUANT_Q4_0, 2, 2, 96, 32, ROPE_NORM, false, false, false, true, 100, 0, 0, false,
     false},
    {QUANT_F32, QUANT_F32, 5, 1, 16, 32, ROPE_NEOX, false, false, false, false, 33, 7, 0, true,
     false},
    {QUANT_F16, QUANT_F16, 4, 2, 64, 64, ROPE_NEOX, false, false, false, false, 50, 70, 0, false,
     false},
    {QUANT_Q8_0, QUANT_Q8_0, 4, 2, 64, 64, ROPE_NEOX, false, false, true, true, 20, 128, 0, true,
     false},
    {QUANT_F16, QUANT_F16, 6, 2, 512, 512, ROPE_NEOX, true, true, true, false, 70, 0, 0, false,
     false},
    {QUANT_Q8_0, QUANT_Q8_0, 5, 1, 512, 512, ROPE_NEOX, true, false, false, true, 0, 0, 0, false,
     false},
    {QUANT_F32, QUANT_F32, 2, 1, 320, 300, ROPE_NORM, false, true, false, false, 0, 0, 0, false,
     false},
    {QUANT_F32, QUANT_F32, 5, 1, 48, 32, ROPE_NORM, false, false, false, false, 0, 0, 0, false,
     true},
    {QUANT_F16, QUANT_F16, 6, 1, 576, 512, ROPE_NORM, true, false, false, false, 0, 0, 0, false,
     true},
    {QUANT_Q8_0, QUANT_Q8_0, 3, 1, 96, 64, ROPE_NEOX, true, false, false, true, 0, 0, 0, true,
     true},
};
enum { N_ATTN = sizeof attn_cases / sizeof *attn_cases };

/* The case's cache: kv, or its keys alone. */
static inline struct kv_view attn_case_view(const struct attn_case *c, struct kv_view kv) {
    uint64_t lead = 0;
    if (!c->latent) return kv;
    quant_row_bytes(c->k_type, (uint64_t)(c->d_k - c->d_v), &lead);
    kv.v_in_k = true;
    kv.v = (char *)kv.k + lead;
    kv.v_page_bytes = kv.k_page_bytes;
    return kv;
}
/* In a latent case, the rows of q and k have the rotary elements last. */
static inline void attn_case_store(const struct attn_case *c, struct qkv_store_args *a) {
    a->kv = attn_case_view(c, a->kv);
    if (!c->latent) return;
    a->rope.n_rot = c->d_k - c->d_v;
    a->q_lead = a->q + c->d_v;
    a->k_lead = a->k + c->d_v;
    a->q_lead_tok_stride = a->q_tok_stride, a->q_lead_head_stride = a->q_head_stride;
    a->v = NULL;
}

/* Three sequences; the bias reaches 9 positions either way. */
enum { FULL_SPAN = 3, FULL_HEAD = 3, FULL_BIAS = 9 };
static const struct full_case {
    int32_t d, n[FULL_SPAN], window;
    bool bias;
} full_cases[] = {
    {40, {65, 1, 24}, 0, false},  {40, {65, 1, 24}, 0, true}, {40, {65, 1, 24}, 5, false},
    {40, {65, 1, 24}, 70, true},  {20, {40, 1, 16}, 0, true}, {20, {40, 1, 16}, 5, true},
    {20, {40, 1, 16}, 70, false},
};

/* The arguments of a case without rows, bias and output. s: [FULL_SPAN], filled in. */
static inline struct attn_full_args full_args(const struct full_case *c, struct span *s) {
    int32_t n_tok = 0;
    for (int k = 0; k < FULL_SPAN; n_tok += c->n[k++])
        s[k] = (struct span){.row = n_tok, .n_tok = c->n[k]};
    return (struct attn_full_args){.spans = s,
                                   .n_span = FULL_SPAN,
                                   .n_tok = n_tok,
                                   .n_head = FULL_HEAD,
                                   .d_head = c->d,
                                   .scale = .2f,
                                   .window = c->window,
                                   .n_bias = FULL_BIAS};
}

/* ---- conv, gdn, ssd, ssm ---- */

enum scan_op { SCAN_CONV, SCAN_GDN, SCAN_SSD, SCAN_SSM, SCAN_CONV_SSD };

/* inner: channels in all; n_group: of keys, or of B and C. `variant`: grouped heads, betas up to 2 (gdn), norm before gate (ssd), no
 * activation (conv). */
static const struct scan_case {
    const char *name;
    enum scan_op op;
    int32_t inner, d_state, d_head, n_group, d_conv, n_norm;
    bool gate, variant, bias;
    float dt_min, dt_max;
} scan_cases[] = {
    {"conv", SCAN_CONV, 150, 0, 0, 0, 4, 0, false, false, true, 0, 0},
    {"conv odd", SCAN_CONV, 37, 0, 0, 0, 3, 0, false, false, false, 0, 0},
    {"conv raw", SCAN_CONV, 33, 0, 0, 0, 2, 0, false, true, false, 0, 0},
    {"gdn", SCAN_GDN, 512, 128, 128, 2, 4, 0, true, false, false, 0, 0},
    {"gdn grouped", SCAN_GDN, 288, 32, 48, 2, 4, 0, true, true, true, 0, 0},
    {"gdn odd", SCAN_GDN, 36, 20, 12, 3, 4, 0, true, false, true, 0, 0},
    {"gdn of three", SCAN_GDN, 384, 128, 128, 1, 4, 0, true, true, true, 0, 0},
    {"gdn wide", SCAN_GDN, 400, 160, 200, 1, 3, 0, true, false, false, 0, 0},
    {"ssd", SCAN_SSD, 256, 128, 64, 2, 4, 2, true, false, false, .05f, INFINITY},
    {"ssd norm first", SCAN_SSD, 144, 32, 48, 1, 4, 1, true, true, false, .1f, .9f},
    {"ssd bare", SCAN_SSD, 64, 16, 32, 2, 4, 0, false, false, false, 0, INFINITY},
    {"ssd gate alone", SCAN_SSD, 64, 16, 16, 4, 4, 0, true, false, false, 0, INFINITY},
    {"ssd odd", SCAN_SSD, 30, 7, 10, 3, 4, 3, true, false, false, 0, INFINITY},
    {"ssd wide", SCAN_SSD, 160, 200, 80, 1, 4, 2, true, false, false, 0, INFINITY},
    {"conv and ssd", SCAN_CONV_SSD, 384, 128, 64, 2, 4, 2, true, false, true, .05f, INFINITY},
    {"conv and ssd of one group", SCAN_CONV_SSD, 576, 128, 64, 1, 4, 1, true, false, false, .05f,
     INFINITY},
    {"conv and ssd odd", SCAN_CONV_SSD, 216, 20, 72, 1, 4, 1, true, true, true, .05f, .9f},
    {"ssm", SCAN_SSM, 80, 16, 0, 0, 0, 0, true, false, false, 0, 0},
    {"ssm wide", SCAN_SSM, 16, 24, 0, 0, 0, 0, false, false, false, 0, 0},
    {"ssm odd", SCAN_SSM, 21, 5, 0, 0, 0, 0, true, false, false, 0, 0},
};
enum { N_SCAN = sizeof scan_cases / sizeof *scan_cases };

static inline struct span whole(int32_t row, int32_t n, int32_t slot, int64_t pos) {
    return (struct span){.row = row, .n_tok = n, .slot = slot, .n_commit = n, .pos = pos};
}

/* ---- ffn, moe ---- */

static const uint32_t ffn_types[] = {QUANT_F32, QUANT_Q8_0, QUANT_Q4_0, QUANT_Q5_K, QUANT_BF16};

enum { MOE_EXPERTS = 16, MOE_MAX_USED = 8 };
static const struct moe_case {
    uint32_t type, sh_type;
    enum moe_gating gating;
    bool normalise, bias, shared, shared_gate, has_gate;
    enum act act;
    int64_t sh_ff, ff;
    int32_t n_used, n;
    bool expert_bias;
    int32_t n_group, n_group_used;
} moe_cases[] = {
    {QUANT_F32, QUANT_F32, MOE_SOFTMAX, true, false, true, true, true, ACT_SILU, 256, 256, 3, 256,
     false, 0, 0},
    {QUANT_Q8_0, QUANT_F16, MOE_SIGMOID, true, true, true, false, false, ACT_RELU2, 320, 352, 6,
     128, false, 0, 0},
    {QUANT_IQ3_S, QUANT_Q5_K, MOE_SOFTMAX, true, false, true, true, true, ACT_SILU, 512, 512, 5,
     256, false, 0, 0},
    {QUANT_Q4_K, QUANT_Q6_K, MOE_SOFTMAX, false, false, false, false, true, ACT_SILU, 256, 256, 3,
     256, false, 0, 0},
    {QUANT_Q4_0, QUANT_Q8_0, MOE_SOFTMAX_CHOSEN, false, true, true, false, true, ACT_SILU, 32, 32,
     7, 128, false, 0, 0},
    {QUANT_Q6_K, QUANT_Q8_0, MOE_SOFTMAX, true, false, true, true, true, ACT_SILU, 256, 512, 1, 256,
     false, 0, 0},
    {QUANT_IQ3_K, QUANT_IQ4_KS, MOE_SOFTMAX, true, false, true, false, true, ACT_SILU, 256, 256, 3,
     256, false, 0, 0},
    {QUANT_IQ5_K, QUANT_IQ5_KS, MOE_SOFTMAX, true, false, true, false, true, ACT_SILU, 256, 256, 3,
     256, false, 0, 0},
    {QUANT_IQ3_S, QUANT_Q5_K, MOE_SOFTMAX, true, false, true, true, true, ACT_SILU, 512, 768, 8,
     256, false, 0, 0},
    {QUANT_IQ4_NL, QUANT_Q8_0, MOE_SOFTMAX, true, false, false, false, true, ACT_SILU, 32, 512, 8,
     128, false, 0, 0},
    {QUANT_MXFP4, QUANT_Q8_0, MOE_SOFTMAX_CHOSEN, false, false, false, false, true, ACT_GELU, 32,
     256, 3, 256, false, 0, 0},
    {QUANT_MXFP4, QUANT_Q8_0, MOE_SOFTMAX_CHOSEN, false, false, false, false, true, ACT_CLAMPED, 32,
     256, 4, 128, true, 0, 0},
    {QUANT_F32, QUANT_F32, MOE_SIGMOID, true, true, true, false, true, ACT_CLAMPED, 256, 256, 3,
     256, true, 0, 0},
    {QUANT_Q8_0, QUANT_Q8_0, MOE_SOFTMAX_CHOSEN, false, false, false, false, false, ACT_SILU, 32,
     256, 3, 128, true, 0, 0},
    {QUANT_Q8_0, QUANT_Q8_0, MOE_SIGMOID, true, true, true, false, true, ACT_SILU, 256, 256, 5, 128,
     false, 4, 2},
    {QUANT_F32, QUANT_F32, MOE_SIGMOID, true, false, false, false, true, ACT_SILU, 32, 64, 3, 128,
     false, 8, 3},
};

/* ---- comparisons ---- */

/* Largest difference relative to the largest |b|; NaN if either has one. */
static inline double apart(const float *a, const float *b, size_t n) {
    double most = 0, range = 1e-30;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(a[i]) || !isfinite(b[i])) return NAN;
        double d = fabs((double)a[i] - b[i]);
        most = d > most ? d : most;
        range = fabs(b[i]) > range ? fabs(b[i]) : range;
    }
    return most / range;
}

#define check_near(a, b, n, tolerance, ...)                                                        \
    do {                                                                                           \
        double apart_ = apart(a, b, n);                                                            \
        if (!(apart_ <= (tolerance))) {                                                            \
            print_error(__VA_ARGS__);                                                              \
            fail_msg(": off by %g, allowed %g", apart_, (double)(tolerance));                      \
        }                                                                                          \
    } while (0)
#define check_same(a, b, n, ...)                                                                   \
    do {                                                                                           \
        if (memcmp(a, b, (n) * sizeof(float))) {                                                   \
            print_error(__VA_ARGS__);                                                              \
            fail_msg(": bits differ");                                                             \
        }                                                                                          \
    } while (0)

#endif

/* ref.h: the scalar reference of every op: the specification that the other versions are tested against.
 *
 * Sums are computed in double and rounded to float once, so that the error of a faster version can be distinguished
 * from that of the reference. Every op works row by row, so the independence of rows that ops.h promises holds by
 * construction. The context is also the base of the CPU device, whose missing ops use these functions. Scratch is
 * allocated by reserve(); an op that finds too little fails, and the failure is sticky. */
#ifndef CHIMERE_KERNELS_REF_REF_H
#define CHIMERE_KERNELS_REF_REF_H

#include "kernels/ops.h"

struct ref {
    struct dev dev;
    struct dev_need need;
    float *scratch; /* owned */
    size_t n_scratch, used;
    bool round8;    /* activations are rounded (ref_quantise8) in products with quantized weights */
    struct err err; /* code 0, or the first failure */
};

extern const struct ops ref_ops;

/* Like cpu_open_ref, but activations are rounded if weights are quantized, as in a fast linear. */
int ref_open_round8(struct dev **out, struct err *e);

/* n floats of scratch for the current op; NULL, with a sticky failure, if too little is left. */
float *ref_take(struct ref *r, size_t n);
void ref_fail(struct ref *r, int code, const char *what);
static inline bool ref_begin(struct ref *r) {
    r->used = 0;
    return r->err.code == 0;
}

/* memory and status; shared by every CPU device */
void *ref_alloc(struct dev *d, size_t n);
void ref_free(struct dev *d, void *p);
void ref_copy(struct dev *d, void *dst, const void *src, size_t n);
void ref_zero(struct dev *d, void *dst, size_t n);
size_t ref_scratch(const struct dev_need *need); /* floats */
int ref_reserve(struct dev *d, const struct dev_need *need, struct err *e);
int ref_status(struct dev *d, struct err *e);

/* Quantizes one block of 32 activations: scale amax / 127, values rounded to nearest even. If the block contains
 * infinity or NaN, the scale is NaN, and so is the whole result of the row. */
float ref_quantise8(const float *x, int8_t *q);
/* x[n] quantized by ref_quantise8 and converted back; n a multiple of 32. */
void ref_round8_row(const float *x, float *out, int64_t n);
bool ref_is_quantised(uint32_t type);

double ref_act(enum act act, double x);
double ref_glu(enum act act, double gate, double up);         /* act(gate) * up */
void ref_hadamard_heads(float *x, int64_t n_head, int64_t d); /* orthonormal; its own inverse */

void ref_embed(struct dev *d, float *out, const struct weight *w, const int32_t *ids, int32_t n_tok,
               float scale);
void ref_rms_norm(struct dev *d, float *out, const float *x, const float *w, int64_t n_row,
                  int64_t n, float eps);
void ref_layer_norm(struct dev *d, float *out, const float *x, const float *w, const float *b,
                    int64_t n_row, int64_t n, float eps);
void ref_linear(struct dev *d, const struct linear_out *o, int32_t n_o, const float *x,
                int64_t x_stride, int32_t n_tok);
void ref_qkv_store(struct dev *d, const struct qkv_store_args *a);
void ref_attn(struct dev *d, const struct attn_args *a);
void ref_attn_full(struct dev *d, const struct attn_full_args *a);
void ref_gdn(struct dev *d, const struct gdn_args *a);
void ref_conv(struct dev *d, const struct conv_args *a);
void ref_ssm(struct dev *d, const struct ssm_args *a);
void ref_ssd(struct dev *d, const struct ssd_args *a);
void ref_ffn(struct dev *d, const struct ffn_args *a);
void ref_moe(struct dev *d, const struct moe_args *a);
const float *ref_route(struct dev *d, const struct moe_args *a);
void ref_act_mul(struct dev *d, float *out, const float *a, const float *b, int64_t n,
                 enum act act);
void ref_axpby(struct dev *d, float *y, float alpha, const float *x, float beta, int64_t n);
void ref_gather_rows(struct dev *d, float *out, const float *x, const int32_t *rows, int32_t n_row,
                     int64_t n);
void ref_select(struct dev *d, const struct select_args *a);

/* dst[0..n_out) = matrix mat of w times x, in double; row: scratch of n_in floats. */
void ref_matvec(struct ref *r, const struct weight *w, int64_t mat, const float *x, float *row,
                double scale, float *dst);
/* Sets *x to the row as products with w use it: the row itself, or a rounded copy in buf. */
const float *ref_rounded(const struct ref *r, const struct weight *w, const float *x, float *buf);
/* Chooses experts from scores, and their weights, by the rule at moe_args. Returns false if scores are not finite. */
bool ref_moe_choose(const struct moe_args *a, const struct moe_keep *keep, int64_t n_expert,
                    const float *logits, float *scores, int32_t *ids, float *weights);
/* Restores the dropped experts in a given choice of one token; returns false if the choice
 * marks its scores as not finite. */
bool ref_moe_given(int32_t n_used, int32_t *ids);
/* Marks in ids the experts that keep drops. weights: before the division. */
void ref_moe_leave_out(const struct moe_keep *keep, int32_t n_used, const float *weights,
                       int32_t *ids);

#endif

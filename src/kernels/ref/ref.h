/* ref.h: the scalar reference of every op: the specification that the other versions are tested against.
 *
 * Sums run in double and are rounded to float once, so that a faster version's error can be told from
 * the reference's. Everything is per row, so the promises of ops.h on independence of rows hold by
 * construction. The context is also the base of the SIMD device, whose missing ops fall back to these.
 * Scratch comes from reserve(); an op that finds too little fails the device stickily. */
#ifndef CHIMERE_KERNELS_REF_REF_H
#define CHIMERE_KERNELS_REF_REF_H

#include "kernels/ops.h"

struct ref {
    struct dev dev;
    struct dev_need need;
    float *scratch; /* owned */
    size_t n_scratch, used;
    bool round8; /* products with quantised weights see activations rounded as ref_quantise8 does */
    struct err err; /* code 0, or the first failure */
};

extern const struct ops ref_ops;

/* As cpu_open_ref, with activations rounded where weights are quantised: what a fast linear computes. */
int ref_open_round8(struct dev **out, struct err *e);

/* n floats of the scratch that this op has not yet taken; NULL (and sticky failure) when short. */
float *ref_take(struct ref *r, size_t n);
void ref_fail(struct ref *r, int code, const char *what);
static inline bool ref_begin(struct ref *r) {
    r->used = 0;
    return r->err.code == 0;
}

/* memory and status, shared by every CPU device */
void *ref_alloc(struct dev *d, size_t n);
void ref_free(struct dev *d, void *p);
void ref_copy(struct dev *d, void *dst, const void *src, size_t n);
void ref_zero(struct dev *d, void *dst, size_t n);
size_t ref_scratch(const struct dev_need *need); /* floats */
int ref_reserve(struct dev *d, const struct dev_need *need, struct err *e);
int ref_status(struct dev *d, struct err *e);

/* One activation block of 32: scale amax / 127, values rounded to nearest even. An infinity or NaN in
 * the block makes the scale not finite, so that it spreads to the whole result of its row. */
float ref_quantise8(const float *x, int8_t *q);
/* x[n] through ref_quantise8 and back; n a multiple of 32. */
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
/* Points *x at the row as products with w see it: itself, or rounded into buf. */
const float *ref_rounded(const struct ref *r, const struct weight *w, const float *x, float *buf);
/* Scores to chosen experts and their weights, by the rule at moe_args. False: scores not finite. */
bool ref_moe_choose(const struct moe_args *a, const struct moe_keep *keep, int64_t n_expert,
                    const float *logits, float *scores, int32_t *ids, float *weights);
/* One token's choice that was given, as if none had been left out; false: not finite. */
bool ref_moe_given(int32_t n_used, int32_t *ids);
/* Marks in ids those that keep leaves out. weights: not yet divided. */
void ref_moe_leave_out(const struct moe_keep *keep, int32_t n_used, const float *weights,
                       int32_t *ids);

#endif

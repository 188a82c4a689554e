/* cpu_impl.h: the CPU device's context and scratch, shared by the files of this folder. */
#ifndef CHIMERE_KERNELS_CPU_CPU_IMPL_H
#define CHIMERE_KERNELS_CPU_CPU_IMPL_H

#include "base/pool.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/ref/ref.h"
#include "kernels/cpu/simd_ops.h"

/* Buffers of one thread. */
struct cpu_thread {
    float *y, *tail_y;      /* [GEMM_ROWS][GEMM_Y]; tail_y: products with tails */
    uint8_t *room;          /* GEMM_ROOM */
    uint8_t *acts;          /* quantized rows of small batches; each thread quantizes all of them */
    int32_t *ids;           /* [2 n_pair]: experts of small batches; rows sorted by expert */
    float *weights;         /* [2 n_pair] */
    struct ffn_task *tasks; /* [n_expert + 1] */
    float *room_f;          /* gdn_room() */
    float *attn;            /* simd_attn_room() */
};

enum { CPU_OWN_ACTS = 8192 }; /* elements; below, each thread quantizes, saving a barrier */

struct cpu {
    struct ref ref; /* must be first; ops without a faster version run as the reference */
    struct ops ops;
    enum cpu_isa isa;
    const struct gemm *gemm; /* NULL: reference only; the same for simd */
    struct {
        const struct simd_elem *elem;
        const struct simd_attn *attn;
    } simd;
    struct pool *pool; /* owned */
    int n_thread;
    void (*observe)(void *ud, const struct weight *w, int32_t mat, const float *x, int64_t x_stride,
                    int32_t n_row);
    void *observe_ud;

    /* scratch, allocated by reserve for batches of ref.need.n_tok */
    void *block;                /* owned; contains everything below */
    struct cpu_thread *threads; /* [n_thread] */
    uint8_t *acts;              /* quantized inputs; n_acts bytes */
    uint8_t *hidden_acts;       /* quantized hidden rows */
    float *hidden;              /* [n_pair][n_ff] */
    float *logits;              /* [n_tok][n_expert] */
    float *shared_gate;         /* [n_tok] */
    int32_t *ids;               /* [n_tok][n_used] */
    float *weights;             /* [n_tok][n_used] */
    size_t n_acts, n_hidden_acts, n_hidden, n_pair;
};

/* Whether the kernels here can multiply w, repacked or as floats; if not, the reference does. */
bool cpu_multiplies(const struct cpu *c, const struct weight *w);
/* Product of 16 or 32 rows of matrix mat, from row0 on, into y[i][0..rows). In `call`, the caller sets rows, n_row
 * (<= GEMM_ROWS) and n_tile; cpu_tiles fills the rest in place, because a copy of fields just written would stall on
 * the stores. Repacked weights use acts (whole rows), float weights use x (rows x_stride apart). */
struct cpu_product {
    const struct weight *w;
    int64_t mat, row0;
    const float *x;
    int64_t x_stride;
    const uint8_t *acts;
    struct gemm_call call;
};
void cpu_tiles(const struct cpu *c, const struct cpu_thread *t, struct cpu_product *p, float *y);
/* Writes tile row0 / 16 of p->w (gate) to y[..][0..16) and that of `other`, of the same type, to y[..][16..32). Neither
 * has a tail. */
void cpu_two_tiles(const struct cpu *c, const struct cpu_thread *t, struct cpu_product *p,
                   const struct weight *other, float *y);
/* Quantizes rows [first, last) of x into the same rows of dst. */
void cpu_round_rows(const struct cpu *c, const float *x, int64_t x_stride, int64_t n_in,
                    int64_t first, int64_t last, uint8_t *dst);
size_t cpu_row_cost(const struct weight *w); /* weight bytes that 16 rows read */
bool cpu_rounds(const struct weight *w);     /* whether products read quantized activations */
void cpu_observed(const struct cpu *c, const struct weight *w, int64_t mat, const float *x,
                  int64_t x_stride, int64_t n_row);

void cpu_linear(struct dev *d, const struct linear_out *o, int32_t n_o, const float *x,
                int64_t x_stride, int32_t n_tok);
void cpu_ffn(struct dev *d, const struct ffn_args *a);
void cpu_moe(struct dev *d, const struct moe_args *a);
const float *cpu_route(struct dev *d, const struct moe_args *a);
void cpu_qkv_store(struct dev *d, const struct qkv_store_args *a);
void cpu_attn(struct dev *d, const struct attn_args *a);
void cpu_attn_full(struct dev *d, const struct attn_full_args *a);
void cpu_gdn(struct dev *d, const struct gdn_args *a);
void cpu_conv(struct dev *d, const struct conv_args *a);
void cpu_ssm(struct dev *d, const struct ssm_args *a);
void cpu_ssd(struct dev *d, const struct ssd_args *a);
int32_t cpu_state_lanes(int64_t n_channel, int32_t d_head, int32_t d_state);
void cpu_rms_norm(struct dev *d, float *out, const float *x, const float *w, int64_t n_row,
                  int64_t n, float eps);
void cpu_layer_norm(struct dev *d, float *out, const float *x, const float *w, const float *b,
                    int64_t n_row, int64_t n, float eps);
void cpu_act_mul(struct dev *d, float *out, const float *a, const float *b, int64_t n,
                 enum act act);
void cpu_axpby(struct dev *d, float *y, float alpha, const float *x, float beta, int64_t n);
size_t cpu_prepared_bytes(struct dev *d, const struct weight *w);
int cpu_prepare(struct dev *d, const struct weight *w, void *dst, struct weight *w2);
double cpu_read_bandwidth(struct dev *d);
int cpu_reserve(struct dev *d, const struct dev_need *need, struct err *e);

#endif

/* arch_impl.h: shared by the arch_*.c files: weight slots, row macros, key readers. */
#ifndef CHIMERE_MODEL_ARCH_IMPL_H
#define CHIMERE_MODEL_ARCH_IMPL_H

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/arch/arch.h"
#include "model/weights.h"

/* Row builders. MAT(gguf, hf, slot, where, flags, transform, ne0, ne1, ne2), VEC likewise. */
#define MAT(gguf_, hf_, slot_, where_, flags_, tf_, a, b, c)                                       \
    {                                                                                              \
        gguf_, hf_, NULL, offsetof(struct layer_weights, slot_), false, where_, flags_, tf_,       \
            TF_NONE, {                                                                             \
            a, b, c                                                                                \
        }                                                                                          \
    }
#define VEC(gguf_, hf_, slot_, where_, flags_, tf_, a)                                             \
    {                                                                                              \
        gguf_, hf_, NULL, offsetof(struct layer_weights, slot_), true, where_, (flags_) | TS_F32,  \
            tf_, TF_NONE, {                                                                        \
            a, D_NONE, D_NONE                                                                      \
        }                                                                                          \
    }
/* Two dimensions, but used as a vector of floats. */
#define VEC2(gguf_, hf_, slot_, where_, flags_, tf_, a, b)                                         \
    {                                                                                              \
        gguf_, hf_, NULL, offsetof(struct layer_weights, slot_), true, where_, (flags_) | TS_F32,  \
            tf_, TF_NONE, {                                                                        \
            a, b, D_NONE                                                                           \
        }                                                                                          \
    }
#define GMAT(gguf_, hf_, slot_, flags_, a, b)                                                      \
    {                                                                                              \
        gguf_, hf_, NULL, offsetof(struct global_weights, slot_), false, AT_GLOBAL, flags_,        \
            TF_NONE, TF_NONE, {                                                                    \
            a, b, D_NONE                                                                           \
        }                                                                                          \
    }
#define GVEC(gguf_, hf_, slot_, flags_, tf_, a)                                                    \
    {                                                                                              \
        gguf_, hf_, NULL, offsetof(struct global_weights, slot_), true, AT_GLOBAL,                 \
            (flags_) | TS_F32, tf_, TF_NONE, {                                                     \
            a, D_NONE, D_NONE                                                                      \
        }                                                                                          \
    }
/* A Mamba-2 mixer whose Hugging Face tensors begin with hf_. */
#define ROWS_MAMBA2(hf_)                                                                           \
    MAT("blk.%d.ssm_in.weight", hf_ "in_proj.weight", ssm.in, AT_MIX(MAMBA2), 0, TF_NONE, D_EMBD,  \
        D_SSM_IN, D_NONE),                                                                         \
        VEC("blk.%d.ssm_in.bias", hf_ "in_proj.bias", ssm.in_b, AT_MIX(MAMBA2), TS_OPTIONAL,       \
            TF_NONE, D_SSM_IN),                                                                    \
        VEC2("blk.%d.ssm_conv1d.weight", hf_ "conv1d.weight", ssm.conv, AT_MIX(MAMBA2), 0,         \
             TF_NONE, D_SSM_TAPS, D_SSM_CONV),                                                     \
        VEC("blk.%d.ssm_conv1d.bias", hf_ "conv1d.bias", ssm.conv_b, AT_MIX(MAMBA2), TS_OPTIONAL,  \
            TF_NONE, D_SSM_CONV),                                                                  \
        VEC("blk.%d.ssm_dt.bias", hf_ "dt_bias", ssm.dt_b, AT_MIX(MAMBA2), 0, TF_NONE,             \
            D_SSM_HEAD),                                                                           \
        VEC2("blk.%d.ssm_a", hf_ "A_log", ssm.a, AT_MIX(MAMBA2), 0, TF_NEG_EXP, D_ONE,             \
             D_SSM_HEAD),                                                                          \
        VEC2("blk.%d.ssm_d", hf_ "D", ssm.d, AT_MIX(MAMBA2), 0, TF_NONE, D_ONE, D_SSM_HEAD),       \
        VEC2("blk.%d.ssm_norm.weight", hf_ "norm.weight", ssm.norm, AT_MIX(MAMBA2), TS_OPTIONAL,   \
             TF_RESHAPE, D_SSM_PART, D_SSM_NORM),                                                  \
        MAT("blk.%d.ssm_out.weight", hf_ "out_proj.weight", ssm.out, AT_MIX(MAMBA2), 0, TF_NONE,   \
            D_SSM_INNER, D_EMBD, D_NONE),                                                          \
        VEC("blk.%d.ssm_out.bias", hf_ "out_proj.bias", ssm.out_b, AT_MIX(MAMBA2), TS_OPTIONAL,    \
            TF_NONE, D_EMBD)

/* The same for a Mamba-1 mixer. */
#define ROWS_MAMBA1(hf_)                                                                           \
    MAT("blk.%d.ssm_in.weight", hf_ "in_proj.weight", ssm.in, AT_MIX(MAMBA1), 0, TF_NONE, D_EMBD,  \
        D_SSM_IN, D_NONE),                                                                         \
        VEC("blk.%d.ssm_in.bias", hf_ "in_proj.bias", ssm.in_b, AT_MIX(MAMBA1), TS_OPTIONAL,       \
            TF_NONE, D_SSM_IN),                                                                    \
        VEC2("blk.%d.ssm_conv1d.weight", hf_ "conv1d.weight", ssm.conv, AT_MIX(MAMBA1), 0,         \
             TF_NONE, D_SSM_TAPS, D_SSM_CONV),                                                     \
        VEC("blk.%d.ssm_conv1d.bias", hf_ "conv1d.bias", ssm.conv_b, AT_MIX(MAMBA1), TS_OPTIONAL,  \
            TF_NONE, D_SSM_CONV),                                                                  \
        MAT("blk.%d.ssm_x.weight", hf_ "x_proj.weight", ssm.x, AT_MIX(MAMBA1), TS_F32, TF_NONE,    \
            D_SSM_INNER, D_SSM_X, D_NONE),                                                         \
        MAT("blk.%d.ssm_dt.weight", hf_ "dt_proj.weight", ssm.dt, AT_MIX(MAMBA1), TS_F32, TF_NONE, \
            D_SSM_RANK, D_SSM_INNER, D_NONE),                                                      \
        VEC("blk.%d.ssm_dt.bias", hf_ "dt_proj.bias", ssm.dt_b, AT_MIX(MAMBA1), 0, TF_NONE,        \
            D_SSM_INNER),                                                                          \
        VEC2("blk.%d.ssm_a", hf_ "A_log", ssm.a, AT_MIX(MAMBA1), 0, TF_NEG_EXP, D_SSM_STATE,       \
             D_SSM_INNER),                                                                         \
        VEC("blk.%d.ssm_d", hf_ "D", ssm.d, AT_MIX(MAMBA1), 0, TF_NONE, D_SSM_INNER),              \
        MAT("blk.%d.ssm_out.weight", hf_ "out_proj.weight", ssm.out, AT_MIX(MAMBA1), 0, TF_NONE,   \
            D_SSM_INNER, D_EMBD, D_NONE),                                                          \
        VEC("blk.%d.ssm_out.bias", hf_ "out_proj.bias", ssm.out_b, AT_MIX(MAMBA1), TS_OPTIONAL,    \
            TF_NONE, D_EMBD)

/* Attention projections whose Hugging Face tensors start with hf_. GGUF files may fuse q, k and v. */
#define ROWS_ATTN(hf_, tf_q, tf_k)                                                                 \
    MAT("blk.%d.attn_q.weight", hf_ "q_proj.weight", attn.q, AT_ATTN, TS_OR_FUSED, tf_q, D_EMBD,   \
        D_Q, D_NONE),                                                                              \
        MAT("blk.%d.attn_k.weight", hf_ "k_proj.weight", attn.k, AT_ATTN, TS_OR_FUSED, tf_k,       \
            D_EMBD, D_K, D_NONE),                                                                  \
        MAT("blk.%d.attn_v.weight", hf_ "v_proj.weight", attn.v, AT_ATTN, TS_OR_FUSED, TF_NONE,    \
            D_EMBD, D_V, D_NONE),                                                                  \
        MAT("blk.%d.attn_qkv.weight", NULL, attn.qkv, AT_ATTN, TS_OPTIONAL, TF_NONE, D_EMBD,       \
            D_QKV, D_NONE),                                                                        \
        MAT("blk.%d.attn_output.weight", hf_ "o_proj.weight", attn.out, AT_ATTN, 0, TF_NONE,       \
            D_ATTN_OUT, D_EMBD, D_NONE),                                                           \
        VEC("blk.%d.attn_q.bias", hf_ "q_proj.bias", attn.q_b, AT_ATTN, TS_OPTIONAL, tf_q, D_Q),   \
        VEC("blk.%d.attn_k.bias", hf_ "k_proj.bias", attn.k_b, AT_ATTN, TS_OPTIONAL, tf_k, D_K),   \
        VEC("blk.%d.attn_v.bias", hf_ "v_proj.bias", attn.v_b, AT_ATTN, TS_OPTIONAL, TF_NONE,      \
            D_V),                                                                                  \
        VEC("blk.%d.attn_qkv.bias", NULL, attn.qkv_b, AT_ATTN, TS_OPTIONAL, TF_NONE, D_QKV),       \
        VEC("blk.%d.attn_output.bias", hf_ "o_proj.bias", attn.out_b, AT_ATTN, TS_OPTIONAL,        \
            TF_NONE, D_EMBD)

#define ROWS_END                                                                                   \
    { .gguf = NULL }

extern const struct arch *const drafter_table[]; /* arch_dflash.c; NULL-terminated */

/* Tables shared by families (arch_llama.c). */
extern const struct tensor_row rows_embd[]; /* token_embd, output_norm, output (tied if absent) */
extern const struct tensor_row
    rows_attn[]; /* attn_norm, q, k, v, o, optional biases and q/k norms */
extern const struct tensor_row rows_ffn_norm[];
extern const struct tensor_row rows_ffn[]; /* dense SwiGLU */
extern const struct tensor_row rows_moe[]; /* routed experts, per-expert Hugging Face names */
extern const struct key_row keys_llama[];

extern const struct tensor_row rows_granite_experts[]; /* arch_granite_hybrid.c */

/* Typed keys "ARCH.suffix". An absent optional key leaves *out unchanged. Errors name the key. */
int key_i32(const struct hparams *hp, const struct gguf *g, const char *suffix, bool required,
            int64_t min, int64_t max, int32_t *out, struct err *e);
int key_f32(const struct hparams *hp, const struct gguf *g, const char *suffix, bool required,
            double min, double max, float *out, struct err *e);
int key_bool(const struct hparams *hp, const struct gguf *g, const char *suffix, bool *out,
             struct err *e);
/* A scalar for all layers, or an array with n items, one per layer; out[i * stride_i32]. */
int key_i32_per_layer(const struct hparams *hp, const struct gguf *g, const char *suffix,
                      bool required, int64_t min, int64_t max, int32_t n, int32_t *out,
                      size_t stride, struct err *e);
const struct gguf_kv *key_find(const struct hparams *hp, const struct gguf *g, const char *suffix);

/* Parts of `read` that many families share. */
int read_layers(struct hparams *hp, const struct gguf *g,
                struct err *e); /* block_count, nextn, sizes */
/* The same for a family of which no prediction blocks are known: refuses them. */
int read_trunk(struct hparams *hp, const struct gguf *g, struct err *e);
int read_attention(struct hparams *hp, const struct gguf *g, struct err *e);
int read_rope(struct hparams *hp, const struct gguf *g, enum rope_mode mode, struct err *e);
/* Attention and a dense or mixture-of-experts feed-forward block in every layer. */
int read_plain(struct hparams *hp, const struct gguf *g, enum rope_mode rope, struct err *e);
int read_moe(struct hparams *hp, const struct gguf *g, struct err *e);
int read_granite_scales(struct hparams *hp, const struct gguf *g, struct err *e);
/* ssm.* of Mamba-1 and Mamba-2 mixers (arch_mamba.c); the norm has one part per group. */
int read_mamba1(struct hparams *hp, const struct gguf *g, struct err *e);
int read_mamba2(struct hparams *hp, const struct gguf *g, struct err *e);
int read_gdn(struct hparams *hp, const struct gguf *g, struct err *e); /* arch_qwen35.c: sizes */

#endif

/* arch_impl.h: what the arch_*.c files share: weight slots, row macros, key readers. */
#ifndef CHIMERE_MODEL_ARCH_IMPL_H
#define CHIMERE_MODEL_ARCH_IMPL_H

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/arch.h"
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
#define ROWS_END                                                                                   \
    { .gguf = NULL }

/* Tables shared by families (arch_rows.c). */
extern const struct tensor_row rows_embd[]; /* token_embd, output_norm, output (tied if absent) */
extern const struct tensor_row
    rows_attn[]; /* attn_norm, q, k, v, o, optional biases and q/k norms */
extern const struct tensor_row rows_ffn_norm[];
extern const struct tensor_row rows_ffn[]; /* dense SwiGLU */
extern const struct tensor_row rows_moe[]; /* routed experts, per-expert Hugging Face names */

/* Typed keys "ARCH.suffix". Absent optional keys leave *out as it is. Errors name the key. */
int key_i32(const struct hparams *hp, const struct gguf *g, const char *suffix, bool required,
            int64_t min, int64_t max, int32_t *out, struct err *e);
int key_f32(const struct hparams *hp, const struct gguf *g, const char *suffix, bool required,
            double min, double max, float *out, struct err *e);
int key_bool(const struct hparams *hp, const struct gguf *g, const char *suffix, bool *out,
             struct err *e);
/* A scalar for all layers or an array with one item each of n; out[i * stride_i32]. */
int key_i32_per_layer(const struct hparams *hp, const struct gguf *g, const char *suffix,
                      bool required, int64_t min, int64_t max, int32_t n, int32_t *out,
                      size_t stride, struct err *e);
const struct gguf_kv *key_find(const struct hparams *hp, const struct gguf *g, const char *suffix);

/* Parts of `read` that many families share. */
int read_layers(struct hparams *hp, const struct gguf *g,
                struct err *e); /* block_count, nextn, sizes */
int read_attention(struct hparams *hp, const struct gguf *g, struct err *e);
int read_rope(struct hparams *hp, const struct gguf *g, enum rope_mode mode, struct err *e);
int read_moe(struct hparams *hp, const struct gguf *g, struct err *e);

#endif

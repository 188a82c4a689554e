/* arch_encoder.h: rows of the tensor tables that encoder families share, and the function that reads their keys.
 *
 * Constant data and a pure function; any thread. Part of the arch_*.c files. */
#ifndef CHIMERE_MODEL_ARCH_ENCODER_H
#define CHIMERE_MODEL_ARCH_ENCODER_H

#include "model/arch/arch_impl.h"

/* A global row with a second name; optional. */
#define ENCODER_OR(gguf_, hf_, other_, slot_, vector_, dim0, dim1)                                 \
    {                                                                                              \
        gguf_, hf_, other_, offsetof(struct global_weights, slot_), vector_, AT_GLOBAL,            \
            TS_OPTIONAL | ((vector_) ? TS_F32 : 0), TF_NONE, TF_NONE, {                            \
            dim0, dim1, D_NONE                                                                     \
        }                                                                                          \
    }

/* Learned positions. RoBERTa checkpoints have padding rows before the first position. */
#define ENCODER_POSITIONS(hf_)                                                                     \
    {                                                                                              \
        "position_embd.weight", hf_, NULL, offsetof(struct global_weights, pos_embd), false,       \
            AT_GLOBAL, 0, TF_LAST_ROWS, TF_NONE, {                                                 \
            D_EMBD, D_CTX, D_NONE                                                                  \
        }                                                                                          \
    }

/* Embedding of tokens and segments, and its norm. */
#define ENCODER_EMBEDDINGS(norm_)                                                                  \
    GMAT("token_embd.weight", "embeddings.word_embeddings.weight", token_embd, 0, D_EMBD,          \
         D_VOCAB),                                                                                 \
        GMAT("token_types.weight", "embeddings.token_type_embeddings.weight", type_embd,           \
             TS_OPTIONAL, D_EMBD, D_TOKEN_TYPE),                                                   \
        GVEC("token_embd_norm.weight", norm_ ".weight", embd_norm, 0, TF_NONE, D_EMBD),            \
        GVEC("token_embd_norm.bias", norm_ ".bias", embd_norm_b, 0, TF_NONE, D_EMBD)

/* Queries, keys and values from matrices of their own. */
#define ENCODER_QKV(q_, k_, v_)                                                                    \
    MAT("blk.%d.attn_q.weight", q_ ".weight", attn.q, AT_ATTN, TS_OR_FUSED, TF_NONE, D_EMBD, D_Q,  \
        D_NONE),                                                                                   \
        MAT("blk.%d.attn_k.weight", k_ ".weight", attn.k, AT_ATTN, TS_OR_FUSED, TF_NONE, D_EMBD,   \
            D_K, D_NONE),                                                                          \
        MAT("blk.%d.attn_v.weight", v_ ".weight", attn.v, AT_ATTN, TS_OR_FUSED, TF_NONE, D_EMBD,   \
            D_V, D_NONE),                                                                          \
        MAT("blk.%d.attn_qkv.weight", NULL, attn.qkv, AT_ATTN, TS_OPTIONAL, TF_NONE, D_EMBD,       \
            D_QKV, D_NONE),                                                                        \
        VEC("blk.%d.attn_q.bias", q_ ".bias", attn.q_b, AT_ATTN, TS_OPTIONAL, TF_NONE, D_Q),       \
        VEC("blk.%d.attn_k.bias", k_ ".bias", attn.k_b, AT_ATTN, TS_OPTIONAL, TF_NONE, D_K),       \
        VEC("blk.%d.attn_v.bias", v_ ".bias", attn.v_b, AT_ATTN, TS_OPTIONAL, TF_NONE, D_V),       \
        VEC("blk.%d.attn_qkv.bias", NULL, attn.qkv_b, AT_ATTN, TS_OPTIONAL, TF_NONE, D_QKV)

/* The same from one matrix. */
#define ENCODER_FUSED_QKV(qkv_)                                                                    \
    MAT("blk.%d.attn_q.weight", NULL, attn.q, AT_ATTN, TS_OR_FUSED, TF_NONE, D_EMBD, D_Q, D_NONE), \
        MAT("blk.%d.attn_k.weight", NULL, attn.k, AT_ATTN, TS_OR_FUSED, TF_NONE, D_EMBD, D_K,      \
            D_NONE),                                                                               \
        MAT("blk.%d.attn_v.weight", NULL, attn.v, AT_ATTN, TS_OR_FUSED, TF_NONE, D_EMBD, D_V,      \
            D_NONE),                                                                               \
        MAT("blk.%d.attn_qkv.weight", qkv_ ".weight", attn.qkv, AT_ATTN, TS_OPTIONAL, TF_NONE,     \
            D_EMBD, D_QKV, D_NONE),                                                                \
        VEC("blk.%d.attn_qkv.bias", qkv_ ".bias", attn.qkv_b, AT_ATTN, TS_OPTIONAL, TF_NONE,       \
            D_QKV)

/* Projections after attention and in the feed-forward block. */
#define ENCODER_BLOCKS(out_, up_, down_)                                                           \
    MAT("blk.%d.attn_output.weight", out_ ".weight", attn.out, AT_ATTN, 0, TF_NONE, D_ATTN_OUT,    \
        D_EMBD, D_NONE),                                                                           \
        VEC("blk.%d.attn_output.bias", out_ ".bias", attn.out_b, AT_ATTN, TS_OPTIONAL, TF_NONE,    \
            D_EMBD),                                                                               \
        MAT("blk.%d.ffn_up.weight", up_ ".weight", ffn.up, AT_FFN_DENSE, 0, TF_NONE, D_EMBD,       \
            D_FF_UP, D_NONE),                                                                      \
        VEC("blk.%d.ffn_up.bias", up_ ".bias", ffn.up_b, AT_FFN_DENSE, TS_OPTIONAL, TF_NONE,       \
            D_FF_UP),                                                                              \
        MAT("blk.%d.ffn_down.weight", down_ ".weight", ffn.down, AT_FFN_DENSE, 0, TF_NONE, D_FF,   \
            D_EMBD, D_NONE),                                                                       \
        VEC("blk.%d.ffn_down.bias", down_ ".bias", ffn.down_b, AT_FFN_DENSE, TS_OPTIONAL, TF_NONE, \
            D_EMBD)

/* Norms of the sums after both blocks. */
#define ENCODER_NORMS(norm_, norm2_)                                                               \
    VEC("blk.%d.attn_output_norm.weight", norm_ ".weight", attn_norm, AT_LAYER, 0, TF_NONE,        \
        D_EMBD),                                                                                   \
        VEC("blk.%d.attn_output_norm.bias", norm_ ".bias", attn_norm_b, AT_LAYER, 0, TF_NONE,      \
            D_EMBD),                                                                               \
        VEC("blk.%d.layer_output_norm.weight", norm2_ ".weight", ffn_norm, AT_LAYER, 0, TF_NONE,   \
            D_EMBD),                                                                               \
        VEC("blk.%d.layer_output_norm.bias", norm2_ ".bias", ffn_norm_b, AT_LAYER, 0, TF_NONE,     \
            D_EMBD)

/* Layers of sentence-transformers after pooling. */
extern const struct tensor_row rows_dense_modules[];
/* Their sizes and activations. */
int arch_encoder_read_dense(struct hparams *hp, const struct gguf *g, struct err *e);
/* Attention and a dense feed-forward block per layer; neither positions nor windows. */
int arch_encoder_read(struct hparams *hp, const struct gguf *g, struct err *e);
/* Reads classifier.pooling_type into hp, which holds the family's default. */
int arch_encoder_read_rank(struct hparams *hp, const struct gguf *g, struct err *e);
/* attention.causal and pooling_type; a classifier is refused unless the family has rows for it. */
int arch_encoder_put_pooling(const json_t *config, const char *arch, bool ranks,
                             struct gguf_writer *w, struct err *e);

#endif

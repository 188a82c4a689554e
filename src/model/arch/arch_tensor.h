/* arch_tensor.h: rows that describe a family's keys and tensors: names, shapes as symbols, transforms on conversion.
 *
 * Constant data; part of arch.h. */
#ifndef CHIMERE_MODEL_ARCH_TENSOR_H
#define CHIMERE_MODEL_ARCH_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Layers of an encoder's pooled row: widths of the results; 0: none. */
struct arch_dense {
    int32_t n[2];
    bool has_tanh[2];
};

/* Symbols in shapes, evaluated per layer by arch_dim(). */
enum arch_dim {
    D_NONE,
    D_ONE,
    D_EMBD,
    D_EMBD2,
    D_VOCAB,
    D_CTX,
    D_HEAD,
    D_HEAD_K,
    D_Q,
    D_K,
    D_V,
    D_ATTN_OUT,
    D_QKV,
    D_FF,
    D_FF_UP, /* rows of ffn_up, which may include those of the gate */
    D_BUCKET,
    D_LABEL, /* answers of a reranker */
    D_DENSE, /* layers after pooling: width between them, and of the result */
    D_DENSE2,
    D_EXPERT,
    D_EXP_IN, /* what routed experts read and write: the residual stream or a projection of it */
    D_LATENT,
    D_FF_EXP,
    D_FF_EXP2,
    D_FF_SHARED,
    D_GDN_CONV,
    D_GDN_INNER,
    D_GDN_V_HEAD,
    D_GDN_V_DIM,
    D_GDN_QKVZ,
    D_GDN_BA,
    D_CONV_TAPS,
    D_SSM_IN, /* rows of ssm_in: Mamba-1 [x | z], Mamba-2 [z | x | B | C | dt] */
    D_SSM_INNER,
    D_SSM_CONV, /* convolved channels */
    D_SSM_TAPS,
    D_SSM_STATE,
    D_SSM_HEAD,
    D_SSM_RANK,
    D_SSM_X,    /* rows of ssm_x: [dt | B | C] */
    D_SSM_NORM, /* parts of the gated norm, and elements per part */
    D_SSM_PART,
    D_ADAPTER, /* rank of a layer's low-rank additions to shared matrices */
    D_META,
    D_EMBD3,
    D_TOKEN_TYPE,
    D_PLE, /* embedding of a layer, of all layers */
    D_PLE_ALL,
    D_MLA_Q, /* latent attention: all heads' queries, and the width before them */
    D_MLA_Q_RANK,
    D_MLA_RANK, /* the latent */
    D_MLA_NOPE, /* of a head: elements of keys without positions, values; values of all heads */
    D_MLA_V,
    D_MLA_OUT,
    D_TAPS, /* floats of the hidden states that a drafter reads per token */
    D_MARKOV,
    D_SURE, /* what a drafter's confidence reads */
};

enum tensor_where { /* which layers have the row */
                    AT_GLOBAL,
                    AT_LAYER,
                    AT_ATTN,     /* layers with attention weights of their own */
                    AT_ATTN_KV,  /* and with keys and values of their own */
                    AT_SHARED,   /* layers that use a block shared with others */
                    AT_MIXER,    /* layers with any mixer */
                    AT_FFN,      /* layers with any feed-forward block */
                    AT_FFN_ONLY, /* layers with a feed-forward block and no mixer */
                    AT_FFN_DENSE,
                    AT_FFN_MOE,
                    AT_FFN_SHARED,
                    AT_FFN_LATENT, /* projections around the routed experts */
                    AT_FFN_BOTH,   /* a dense block beside experts */
                    AT_PLE,
                    AT_MLA_Q,     /* latent attention whose queries are one product */
                    AT_MLA_LOW_Q, /* or two */
                    AT_NEXTN,
                    AT_MIX_BIT = 64,
};
/* Layers with the mixer MIX_kind. */
#define AT_MIX(kind) (AT_MIX_BIT + MIX_##kind)

/* What conversion does to the Hugging Face tensor. Numbers of heads are in hparams. */
enum tensor_transform {
    TF_NONE,
    TF_NORM_PLUS_1, /* zero-centred norm weights */
    TF_NEG_EXP,     /* x -> -exp(x), with the value-head order of TF_V_HEAD */
    TF_V_HEAD,      /* rows (or elements) of value heads: grouped -> tiled, one row per head */
    TF_V_HEAD_ROWS, /* the same, d_v rows per head (z) */
    TF_V_HEAD_COLS, /* columns, d_v per head (out_proj) */
    TF_QKV_V_ROWS,  /* rows of [q|k|v], only the v part reordered */
    TF_CONV,        /* [C, 1, K] -> [C, K] with the order of TF_QKV_V_ROWS */
    TF_ROPE_PERMUTE_Q,
    TF_ROPE_PERMUTE_K, /* half-split rotary pairs -> adjacent (llama) */
    TF_FIRST_HALF,
    TF_SECOND_HALF, /* half of the rows of each matrix: fused gate|up */
    TF_LAST_ROWS,   /* as many rows as needed, from the end */
    TF_LABEL_ROWS,  /* of a reranker's head: the rows of its answers */
    TF_RESHAPE,     /* the same elements in another shape */
    TF_OF_QKV,      /* rows of a fused matrix [q | k | v | rest]: the first */
    TF_BEHIND_Q,    /* or those after one, two or three parts */
    TF_BEHIND_QK,
    TF_BEHIND_QKV,
    /* Of a matrix with rows [keys | values] per head: the keys' part, transposed; the values' part. */
    TF_LATENT_KEYS,
    TF_LATENT_VALUES,
    /* Experts of gpt-oss: rows of gate and up are interleaved. Floats are stored with one row per input; MXFP4 blocks
     * with one row per output, as in GGUF. */
    TF_EXPERT_GATE,
    TF_EXPERT_UP,
    TF_EXPERT_DOWN,
    TF_EVEN_ITEMS, /* of each row: biases of the gate */
    TF_ODD_ITEMS,  /* and of up */
};

enum tensor_flag {
    TS_OPTIONAL = 1,
    TS_F32 = 2,      /* always f32 in the file (norms, biases, routers, decay) */
    TS_TIED = 4,     /* if absent, token_embd is used */
    TS_OR_FUSED = 8, /* a file may fuse it with its neighbours; a checkpoint has it separately */
};

struct tensor_row {
    const char *gguf; /* name; %d: layer. NULL ends a table */
    /* Hugging Face name, NULL: none; %d: layer, %e: one tensor per expert, %o: layer that holds the shared block, %h:
     * how many layers use one before this, %p: q, k and v, one tensor each, whose rows follow one another */
    const char *hf;
    const char *hf_fused; /* alternative: one tensor for all experts, or fused with a neighbour */
    size_t slot;          /* offset in struct layer_weights (AT_GLOBAL: struct global_weights) */
    bool is_vector;       /* slot is const float *, else struct weight */
    uint8_t where, flags, transform, fused_transform;
    uint8_t dims[3]; /* enum arch_dim, ne order */
};

/* A part of a Hugging Face name, and its spelling in some checkpoints or layers. */
struct name_alias {
    const char *part, *also; /* NULL ends a table */
};

/* A key of a file, and where config.json has its value. */
enum key_type { KEY_U32, KEY_F32, KEY_BOOL, KEY_U32_ARRAY };
struct key_row {
    const char *gguf; /* key without "ARCH."; NULL ends a table */
    const char *hf;   /* path in config.json; '.' descends, '|' separates alternatives */
    enum key_type type;
    bool required;
    double def; /* used if the key is absent; NaN: no default */
};

#endif

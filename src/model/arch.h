/* arch.h: what a model family is: a row of arch_table, its file of keys and tensor names.
 *
 * A family says which GGUF keys fill struct hparams, which tensors a layer has under which GGUF and
 * Hugging Face names, with which shape and, on conversion, which transform. It holds no arithmetic:
 * block_*.c computes from hparams and bound weights alone. Everything here is constant data or pure
 * functions; any thread. */
#ifndef CHIMERE_MODEL_ARCH_H
#define CHIMERE_MODEL_ARCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/gguf.h"
#include "kernels/ops.h"

enum {
    ARCH_MAX_LAYERS = 512,
    ARCH_MAX_EXPERTS = 4096,
    ARCH_MAX_EMBD = 1 << 16,
    ARCH_MAX_VOCAB = 1 << 21
};

enum mixer_kind { MIX_NONE, MIX_ATTN, MIX_GDN };
enum ffn_kind { FFN_NONE, FFN_DENSE, FFN_MOE };
enum pooling { POOL_NONE, POOL_MEAN, POOL_CLS, POOL_LAST, POOL_RANK };

struct layer_shape {
    uint8_t mixer, ffn; /* enum mixer_kind, ffn_kind */
    bool is_nextn;      /* a multi-token prediction block behind the trunk */
    int32_t n_head, n_kv_head, n_ff;
};

/* The blueprint, filled from a file's keys and checked against the ceilings above. */
struct hparams {
    const struct arch *arch;
    int32_t n_layer; /* trunk */
    int32_t n_nextn; /* prediction blocks; layer[n_layer + i] */
    int32_t n_embd, n_vocab, n_ctx_train;
    struct layer_shape layer[ARCH_MAX_LAYERS];

    int32_t d_k, d_v; /* attention head sizes */
    bool has_q_gate;  /* attn_q gives [q | gate] per head */
    float attn_scale; /* d_k^-1/2 unless a key says otherwise */
    enum rope_mode rope_mode;
    int32_t n_rot;
    float rope_base, rope_factor, rope_magnitude; /* factor: linear scaling of positions */
    bool rope_yarn;
    int32_t rope_n_ctx_orig;
    float eps;

    struct {
        int32_t n_k_head, n_v_head, d_k, d_v, d_conv;
        bool is_grouped; /* value heads of one key head are neighbours */
    } gdn;
    struct {
        int32_t n_expert, n_used, n_ff, n_ff_shared;
        enum moe_gating gating;
        bool normalise;
        float scale;
    } moe;
    enum act act;
    float embd_scale, logit_scale; /* 1 unless the family scales */
    bool is_causal;
    enum pooling pooling;
    int32_t n_token_type; /* encoders */
};

/* ---- tensors ---- */

/* Symbols of shapes, evaluated per layer by arch_dim(). */
enum arch_dim {
    D_NONE,
    D_ONE,
    D_EMBD,
    D_EMBD2,
    D_VOCAB,
    D_CTX,
    D_HEAD_K,
    D_Q,
    D_K,
    D_V,
    D_ATTN_OUT,
    D_QKV,
    D_FF,
    D_EXPERT,
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
    D_TOKEN_TYPE,
};

enum tensor_where { /* which layers have the row */
                    AT_GLOBAL,
                    AT_LAYER,
                    AT_ATTN,
                    AT_GDN,
                    AT_FFN_DENSE,
                    AT_FFN_MOE,
                    AT_FFN_SHARED,
                    AT_NEXTN,
};

/* What conversion does to the Hugging Face tensor. Numbers of heads come from hparams. */
enum tensor_transform {
    TF_NONE,
    TF_NORM_PLUS_1, /* zero-centred norm weights */
    TF_NEG_EXP,     /* x -> -exp(x), with the value-head order of TF_V_HEAD */
    TF_V_HEAD,      /* rows (or elements) of value heads: grouped -> tiled, one row a head */
    TF_V_HEAD_ROWS, /* the same, d_v rows a head (z) */
    TF_V_HEAD_COLS, /* columns, d_v a head (out_proj) */
    TF_QKV_V_ROWS,  /* rows of [q|k|v], only the v part reordered */
    TF_CONV,        /* [C, 1, K] -> [C, K] with the order of TF_QKV_V_ROWS */
    TF_ROPE_PERMUTE_Q,
    TF_ROPE_PERMUTE_K, /* half-split rotary pairs -> neighbours (llama) */
    TF_FIRST_HALF,
    TF_SECOND_HALF, /* of the rows of each matrix: fused gate|up */
};

enum tensor_flag {
    TS_OPTIONAL = 1,
    TS_F32 = 2,  /* stays f32 whatever the file's type (norms, biases, routers, decay) */
    TS_TIED = 4, /* absent: token_embd serves */
    TS_NO_SUFFIX = 8,
};

struct tensor_row {
    const char *gguf;     /* name; %d: layer. NULL ends a table */
    const char *hf;       /* Hugging Face name; %d: layer, %e: one tensor an expert. NULL: none */
    const char *hf_fused; /* second choice: one tensor for all experts, or fused with a neighbour */
    size_t slot;          /* offset in struct layer_weights (AT_GLOBAL: struct global_weights) */
    bool is_vector;       /* slot is const float *, else struct weight */
    uint8_t where, flags, transform, fused_transform;
    uint8_t dims[3]; /* enum arch_dim, ne order */
};

/* ---- conversion of keys ---- */

enum key_type { KEY_U32, KEY_F32, KEY_BOOL, KEY_U32_ARRAY };
struct key_row {
    const char *gguf; /* suffix behind "ARCH."; NULL ends a table */
    const char *hf;   /* path in config.json, '.' descends, '|' separates alternatives */
    enum key_type type;
    bool required;
    double def; /* used when absent and not NaN */
};

struct arch {
    const char *name; /* general.architecture */
    const char *const
        *hf_model_types; /* config.json model_type, NULL-terminated; text_config's too */
    const struct tensor_row *const *tensors; /* NULL-terminated list of tables */
    const struct key_row *keys;
    /* Keys that a table cannot say: written from config.json. May be NULL. */
    int (*derive)(const json_t *config, struct gguf_writer *w, struct err *e);
    /* Fills hp (zeroed, defaults set) from the file. */
    int (*read)(struct hparams *hp, const struct gguf *g, struct err *e);
};

extern const struct arch *const arch_table[]; /* NULL-terminated */

const struct arch *arch_find(const char *name); /* by general.architecture */
const struct arch *arch_find_hf(const char *model_type);
/* Reads and checks all keys. Unknown architectures are refused by name. */
int hparams_read(struct hparams *hp, const struct gguf *g, struct err *e);
/* Value of a dimension symbol for layer il (ignored by global ones). */
int64_t arch_dim(const struct hparams *hp, enum arch_dim d, int32_t il);
/* True if layer il (or the model, AT_GLOBAL) has the tensors of `where`. */
bool arch_has(const struct hparams *hp, enum tensor_where where, int32_t il);
/* First and one-past-last layer in which rows of `where` may stand. */
int32_t arch_n_layer_all(const struct hparams *hp);

#endif

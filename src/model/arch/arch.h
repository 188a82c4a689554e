/* arch.h: what defines a model family: a row of arch_table, and its file of keys and tensor names.
 *
 * A family lists which GGUF keys fill struct hparams, which tensors a layer has, their GGUF and Hugging Face names,
 * their shapes, and the transform on conversion. It has no arithmetic: block_*.c computes from hparams and bound
 * weights alone. Everything here is constant data or pure functions; any thread. */
#ifndef CHIMERE_MODEL_ARCH_H
#define CHIMERE_MODEL_ARCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/gguf.h"
#include "kernels/ops.h"
#include "model/arch/arch_tensor.h"

enum {
    ARCH_MAX_LAYERS = 512,
    ARCH_MAX_EXPERTS = 4096,
    ARCH_MAX_EMBD = 1 << 16,
    ARCH_MAX_VOCAB = 1 << 21
};

/* Bits: a layer may have an attention and a recurrent mixer in parallel, which read the same normalized rows. */
enum mixer_kind {
    MIX_NONE,
    MIX_ATTN = 1,
    MIX_GDN = 2,
    MIX_MAMBA1 = 4,
    MIX_MAMBA2 = 8,
    MIX_CONV = 16,
    MIX_MLA = 32 /* latent attention */
};
enum { MLA_MAX_HEAD = 256 };
enum ffn_kind { FFN_NONE, FFN_DENSE, FFN_MOE, FFN_BOTH /* side by side, each with norms */ };
/* What encoders add to a score by the distance of key and query. */
enum position_bias { BIAS_NONE, BIAS_BUCKETS /* a table, by buckets */, BIAS_ALIBI };
enum { BIAS_N_BUCKET = 32, BIAS_BUCKET_REACH = 128 }; /* all larger distances share a bucket */

enum pooling { POOL_NONE, POOL_MEAN, POOL_CLS, POOL_LAST, POOL_RANK };

/* How a layer with two mixers, or two feed-forward blocks, combines them. */
enum mixer_join {
    JOIN_SUM, /* each adds its own projection to the residual stream */
    /* attention in a block shared with other layers; the other mixer reads its result */
    JOIN_SHARED,
    JOIN_MEAN,  /* one projection of the mean of their normalized results */
    JOIN_BESIDE /* of the feed-forward blocks of FFN_BOTH: the sum of their normalized results */
};

/* Halves of a layer whose result is a sum over devices (slice.h). */
enum { SUM_MIXERS = 1, SUM_FEED_FORWARD = 2 };

struct layer_shape {
    uint8_t mixer, ffn; /* bits of enum mixer_kind; enum ffn_kind */
    /* bits of the enum above; includes halves whose block is on other devices only */
    uint8_t sums;
    uint8_t join;  /* enum mixer_join */
    bool is_nextn; /* a multi-token prediction block after the trunk */
    bool has_ple;  /* a per-layer embedding */
    int32_t n_head, n_kv_head, n_ff;
    int32_t d_k, d_v; /* attention head sizes */
    float out_scale;  /* of the residual stream after the layer; 0: none */
    /* positions visible to attention, including the own one; encoders: on each side, without it; 0: all */
    int32_t window;
    int32_t kv_back;    /* reads keys and values of the layer this many layers before; 0: its own */
    int32_t share_back; /* the shared block's weights are in the layer this many layers before */
};

/* The hyperparameters, read from a file's keys and checked against the limits above. */
struct hparams {
    const struct arch *arch;
    int32_t n_layer; /* trunk */
    int32_t n_nextn; /* prediction blocks; layer[n_layer + i] */
    int32_t n_embd, n_vocab, n_ctx_train;
    int32_t n_logit, first_logit; /* rows of the head: n_vocab from 0, or a slice of it */
    struct layer_shape layer[ARCH_MAX_LAYERS];

    int32_t d_k, d_v;      /* attention head sizes of the widest layer */
    bool has_q_gate;       /* attn_q produces [q | gate] per head */
    bool has_wide_qk_norm; /* queries and keys are normalized over all heads together */
    float attn_scale;      /* d_k^-1/2 unless a key sets it */
    /* queries are multiplied by 1 + this * ln(1 + floor(position / rope_n_ctx_orig)) */
    float temp_scale;
    enum rope_mode rope_mode;
    int32_t n_rot, n_rot_window; /* of layers with a window; 0: n_rot */
    bool has_v_norm;             /* values are normalized, without weights */
    float rope_base_window;      /* of layers with a window, unscaled; 0: as in other layers */
    bool has_post_norm;          /* a block's result is normalized before it is added */
    float rope_base, rope_factor, rope_magnitude; /* factor: linear scaling of positions */
    bool rope_yarn, rope_truncate;        /* truncate: YaRN's ramp starts and ends at whole pairs */
    float rope_beta_fast, rope_beta_slow; /* YaRN: turns over the original context */
    int32_t rope_n_ctx_orig;
    float eps;

    struct {
        int32_t n_k_head, n_v_head, d_k, d_v, d_conv;
        bool is_grouped;                 /* value heads of one key head are adjacent */
        float eps, norm_eps, beta_scale; /* eps: of queries and keys; norm_eps: of the result */
    } gdn;
    /* Latent attention. d_k and d_v of the layer are those of the cache; these are of a head as trained. */
    struct {
        int32_t n_q_rank; /* width between the two products that make queries; 0: one product */
        int32_t d_k, d_v;
    } mla;
    struct { /* Mamba-1 and Mamba-2 */
        int32_t n_inner, d_state, d_conv;
        int32_t dt_rank;                 /* Mamba-1 */
        int32_t n_head, n_group, n_norm; /* Mamba-2; n_norm: parts of the gated norm, 0: no norm */
        bool norm_dt_bc;                 /* Mamba-1: norms of dt, B and C without weights */
        bool norm_first;                 /* Mamba-2: norm before gate */
        float dt_min, dt_max;
    } ssm;
    struct {
        int32_t n_expert, n_used, n_ff, n_ff_shared;
        int32_t n_group, n_group_used; /* of which experts are chosen; n_group below 2: of all */
        int32_t n_latent;              /* width that routed experts work in; 0: n_embd */
        enum moe_gating gating;
        bool normalise;
        float scale;
    } moe;
    enum act act;
    float embd_scale, logit_scale; /* 1 unless the family scales */
    float logit_cap;               /* logits are cap * tanh(logit / cap); 0: not capped */
    int32_t n_ple;        /* width of the embedding that each layer has per token; 0: none */
    float residual_scale; /* applied to what each block adds to the residual stream */
    /* of the low-rank additions that layers make to shared matrices */
    int32_t adapter_rank;
    int32_t n_meta; /* learned rows at the first positions of every sequence */
    struct {        /* a drafter that reads another model's hidden states (dflash.h) */
        int32_t n_tap, taps[16], n_block, mask; /* taps: layers of the other model, from 0 */
        int64_t n_in;                           /* floats of all taps of a token */
        int32_t n_vocab, n_markov, n_sure;      /* 0: not said, no such head */
        bool from_anchor; /* the known token's row drafts too, as each for the position after it */
    } dflash;
    bool is_causal;
    enum pooling pooling, rank_pooling; /* rank_pooling: of a classifier, POOL_CLS or POOL_MEAN */
    enum act rank_act;                  /* after a classifier's dense layer */
    int32_t n_token_type;               /* encoders */
    struct arch_dense dense;
    bool norm_first;  /* encoders: blocks read normalized rows; else their sums are normalized */
    bool is_up_fused; /* ffn_up has the gate's rows, then its own */
    enum position_bias position_bias;
    bool no_head; /* the following layers are on another device (hparams_cut) */
    bool *marks;  /* borrowed while keys are read: [gguf_n_kv], which were looked up */
};

/* Layers [first, end) of the trunk; end 0: all. */
struct layer_part {
    int32_t first, end;
};

struct arch {
    const char *name;                        /* general.architecture */
    const char *const *hf_model_types;       /* model_type of checkpoints; NULL-terminated */
    const struct tensor_row *const *tensors; /* NULL-terminated list of tables */
    const struct key_row *keys;
    /* Fields of config.json that `keys` does not list, separated by spaces. "NAME" is read, or does not change the
     * result; "NAME=VALUE|VALUE" must have one of the values; "rope:NAME" is a field of rope_parameters. */
    const char *fields;
    bool scales_scores; /* YaRN's mscale_all_dim multiplies scores, not sines and cosines */
    /* Writes keys that need code, from config.json. May be NULL. */
    int (*derive)(const json_t *config, struct gguf_writer *w, struct err *e);
    /* Fills hp (zeroed, defaults set) from the file. */
    int (*read)(struct hparams *hp, const struct gguf *g, struct err *e);
    /* Distinguishes rows with the same model_type; NULL: always matches. */
    bool (*suits)(const json_t *config);
    /* Factor of row j of the row's source on conversion; NULL: 1. */
    double (*row_scale)(const json_t *config, const struct hparams *hp,
                        const struct tensor_row *row, uint64_t j);
    const struct name_alias *aliases; /* tried in order if a name is not found; may be NULL */
};

extern const struct arch *const arch_table[]; /* NULL-terminated */

const struct arch *arch_find(const char *name); /* by general.architecture */
bool arch_is_drafter(const struct arch *a);
/* Whether the file's architecture is in the table; true if it names none. */
bool arch_is_known(const struct gguf *g);
const struct arch *arch_find_hf(const char *model_type, const json_t *config);
/* Reads and checks all keys. Reports an unknown architecture by name. marks, unless NULL: set for the keys read. */
int hparams_read(struct hparams *hp, const struct gguf *g, struct err *e);
int hparams_read_marking(struct hparams *hp, const struct gguf *g, bool *marks, struct err *e);
/* The same for a drafter's file; its families (arch_dflash.c) do not run alone. n_vocab 0: the file does not say. */
int hparams_read_drafter(struct hparams *hp, const struct gguf *g, struct err *e);
/* Keeps the given layers and removes the blocks of the others: the part of a model that one device computes. The last
 * part has the head and the prediction blocks. CHIMERE_EUNSUPPORTED if layers read more of others than the stream. */
int hparams_cut(struct hparams *hp, struct layer_part part, struct err *e);
/* Value of a dimension symbol for layer il (which global dimensions ignore). */
int64_t arch_dim(const struct hparams *hp, enum arch_dim d, int32_t il);
/* True if layer il (or the model, AT_GLOBAL) has the tensors of `where`. */
bool arch_has(const struct hparams *hp, enum tensor_where where, int32_t il);
/* Writes the tensor's name in a file: the row's name with %d replaced by il. */
void arch_tensor_name(const struct tensor_row *row, int32_t il, char *name, size_t size);
bool arch_reads_tensor(const struct hparams *hp, const char *name); /* a file's tensor */
int32_t arch_n_vector(const struct hparams *hp);                    /* width of a text's vector */
int32_t arch_n_layer_all(const struct hparams *hp);                 /* prediction blocks included */

#endif

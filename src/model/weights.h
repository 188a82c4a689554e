/* weights.h: binds a file's tensors to slots by name, checks their shapes, places them on a device.
 *
 * Owned by the model; immutable after loading. Matrices are views of the mapped file or, if the device uses its own
 * form, prepared memory. Vectors are f32 on the device. */
#ifndef CHIMERE_MODEL_WEIGHTS_H
#define CHIMERE_MODEL_WEIGHTS_H

#include "kernels/tensor.h"
#include "model/arch/arch.h"
#include "model/experts/experts.h"

/* The last columns of the matrix NAME, in a type of their own, are in NAME.tail. Both parts have a multiple of so many
 * columns. */
#define WEIGHT_TAIL ".tail"
enum { WEIGHT_TAIL_BLOCK = 32 };

struct global_weights {
    struct weight token_embd; /* always layout 0 */
    struct weight output;     /* may be token_embd's data in the device's form */
    struct weight pos_embd, type_embd, cls, cls_out; /* encoders */
    struct weight dense[2];                          /* of the pooled row; or none */
    struct weight fc; /* drafters: for the other model's hidden states */
    /* and what follows a token: a table (layout 0) times a matrix; the confidence in a draft */
    struct weight markov_in, markov_out, sure;
    struct weight meta_embd;          /* rows that precede every sequence; layout 0 */
    struct weight ple_embd, ple_proj; /* per-layer embeddings: a table (layout 0), a projection */
    const float *fc_norm, *output_norm, *output_norm_b, *embd_norm, *embd_norm_b, *rope_freqs,
        *cls_b, *cls_norm, *cls_norm_b, *cls_out_b, *dense_b[2], *rel_bias, *ple_norm, *sure_b;
};

struct layer_weights {
    const float *attn_norm, *attn_norm_b, *ffn_norm, *ffn_norm_b; /* [n_embd] */
    const float *attn_post_norm, *ffn_post_norm; /* of what the block adds; or NULL */
    struct {
        struct weight q, k, v, out, qkv; /* qkv: fused, then q, k, v are unused */
        const float *q_b, *k_b, *v_b, *out_b, *qkv_b, *q_norm, *k_norm, *sinks;
    } attn;
    struct {
        struct weight qkv, z, alpha, beta, out, qkvz, ba; /* qkvz, ba: fused by key head */
        const float *conv, *conv_b, *a, *dt_b, *norm;
    } gdn;
    struct {
        struct weight in, x, dt, out;
        struct weight x_dt, x_b, x_c; /* views of x's rows */
        const float *in_b, *out_b, *conv, *conv_b, *a, *d, *dt_b, *norm, *dt_norm, *b_norm, *c_norm;
    } ssm;
    struct { /* JOIN_SHARED: norm is in the block's layer, the rest is per layer */
        struct weight q_a, q_b, k_a, k_b, v_a, v_b, ffn_a, gate_b, up_b; /* low-rank additions */
        struct weight out;                                               /* after the block */
        const float *norm;                                               /* [2 n_embd] */
    } shared;
    struct { /* JOIN_MEAN, [n_inner] */
        const float *attn_norm, *ssm_norm;
    } mean;
    struct {
        struct weight gate, up, down;
        const float *gate_b, *up_b, *down_b;
    } ffn;
    struct {
        struct weight router, gate, up, down, gate_up, sh_gate, sh_up, sh_down;
        struct weight latent_in, latent_out; /* around the routed experts; or none */
        const float *select_b, *shared_gate, *expert_scale;
        /* FFN_BOTH: of the router, the experts and the dense block */
        const float *router_norm, *pre_norm, *post_norm, *dense_norm;
        struct moe_bias bias;
    } moe;
    struct {
        struct weight q_a, q, kv_a, out;
        struct weight k_b, v_b; /* stacks of the file; unused once `heads` is filled */
        struct weight *heads;   /* owned [2 n_head]: matrices for keys, then for values */
        int32_t n_head;
        const float *q_norm, *kv_norm;
    } mla;
    struct { /* what the layer makes of its embedding */
        struct weight gate, proj;
        const float *norm, *out_scale; /* out_scale: also in hparams */
    } ple;
    struct {
        struct weight eh_proj, embd, head;
        const float *enorm, *hnorm, *head_norm;
    } nextn;
};

/* A matrix as stored in the file, and the slot that holds its device form: what swap.h replaces. */
struct weight_source {
    struct weight *slot;              /* view */
    const struct gguf_tensor *tensor; /* view of the file's directory */
    struct weight file;               /* layout 0: rows of the tensor's data */
    struct weight ready;              /* the slot's original content */
    bool is_table;                    /* rows are looked up; never prepared */
};

struct model_slice;

struct weights {
    struct global_weights global;
    struct weight_source
        *sources; /* owned [n_source]; rows gathered from fused tensors are not listed */
    size_t n_source;
    struct layer_weights *layer; /* owned [n_layer], prediction blocks included */
    int32_t n_layer;
    size_t prepared_bytes; /* memory used in addition to the mapped file */
    struct dev *dev;       /* borrowed */
    struct expert_store experts;
    void **owned; /* device allocations */
    size_t n_owned;
    struct weight **tails; /* owned [n_tail], each owned */
    size_t n_tail;
    uint64_t bytes_per_tok;      /* weight bytes that decoding one token reads */
    uint64_t host_bytes_per_tok; /* of these, read by the processor beside the device */
    uint64_t direct_bytes;       /* read without the page cache */
};

/* slice: the device's part of each tensor; hp is the slice's; NULL: the whole tensors. */
int weights_bind(struct weights *w, const struct hparams *hp, const struct gguf *g, struct dev *dev,
                 const struct expert_placement *where, const struct model_slice *slice, bool quiet,
                 struct err *e);
void weights_release(struct weights *w);

/* Converts a Hugging Face position of a value head to Chimère's (grouped -> tiled): returns the source head of
 * output head j. Shared with conversion. */
int32_t gdn_source_head(int32_t j, int32_t n_k_head, int32_t n_v_head);

#endif

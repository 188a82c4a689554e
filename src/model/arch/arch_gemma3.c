/* arch_gemma3.c: Gemma 3 (text): norms before and after each block, windows in five of six layers with a RoPE base of
 * their own, gated GELU, embeddings scaled by the square root of their width. EmbeddingGemma is the same as an encoder:
 * every token reads both sides, and dense layers follow the pooled row. */
#include <stddef.h>
#include <stdio.h>

#include "base/err.h"
#include "model/arch/arch_config.h"
#include "model/arch/arch_encoder.h"

#define HF "model.layers.%d."
#define P1 TF_NORM_PLUS_1

static const struct tensor_row rows_globals[] = {
    GMAT("token_embd.weight", "model.embed_tokens.weight", token_embd, 0, D_EMBD, D_VOCAB),
    GVEC("output_norm.weight", "model.norm.weight", output_norm, 0, P1, D_EMBD),
    GMAT("output.weight", "lm_head.weight", output, TS_TIED, D_EMBD, D_VOCAB), ROWS_END};

static const struct tensor_row rows_layer[] = {
    VEC("blk.%d.attn_norm.weight", HF "input_layernorm.weight", attn_norm, AT_LAYER, 0, P1, D_EMBD),
    VEC("blk.%d.post_attention_norm.weight", HF "post_attention_layernorm.weight", attn_post_norm,
        AT_LAYER, 0, P1, D_EMBD),
    VEC("blk.%d.ffn_norm.weight", HF "pre_feedforward_layernorm.weight", ffn_norm, AT_LAYER, 0, P1,
        D_EMBD),
    VEC("blk.%d.post_ffw_norm.weight", HF "post_feedforward_layernorm.weight", ffn_post_norm,
        AT_LAYER, 0, P1, D_EMBD),
    ROWS_ATTN(HF "self_attn.", TF_NONE, TF_NONE),
    VEC("blk.%d.attn_q_norm.weight", HF "self_attn.q_norm.weight", attn.q_norm, AT_ATTN, 0, P1,
        D_HEAD_K),
    VEC("blk.%d.attn_k_norm.weight", HF "self_attn.k_norm.weight", attn.k_norm, AT_ATTN, 0, P1,
        D_HEAD_K),
    ROWS_END};

/* Published configurations omit the family's defaults. */
static const struct key_row keys[] = {
    {"context_length", "max_position_embeddings", KEY_U32, false, 131072},
    {"embedding_length", "hidden_size", KEY_U32, true, NAN},
    {"block_count", "num_hidden_layers", KEY_U32, true, NAN},
    {"feed_forward_length", "intermediate_size", KEY_U32, true, NAN},
    {"attention.head_count", "num_attention_heads", KEY_U32, false, 8},
    {"attention.head_count_kv", "num_key_value_heads", KEY_U32, false, 4},
    {"attention.key_length", "head_dim", KEY_U32, false, 256},
    {"attention.value_length", "head_dim", KEY_U32, false, 256},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", KEY_F32, false, 1e-6},
    {"rope.freq_base", "rope_parameters.full_attention.rope_theta|rope_theta", KEY_F32, false, 1e6},
    {"rope.freq_base_swa", "rope_parameters.sliding_attention.rope_theta|rope_local_base_freq",
     KEY_F32, false, 10000},
    {.gguf = NULL}};

static int derive_as(const json_t *config, const char *arch, struct gguf_writer *w, struct err *e) {
    char key[80];
#define KEY(suffix) (snprintf(key, sizeof key, "%s.%s", arch, suffix), key)
    double scalar = arch_config_number(config, "query_pre_attn_scalar", 256);
    const json_t *local =
        json_object_get(json_object_get(config, "rope_parameters"), "sliding_attention");
    int64_t period = arch_config_int(config, "sliding_window_pattern",
                                     arch_config_int(config, "_sliding_window_pattern", 6));
    const json_t *kind = json_object_get(local, "rope_type");
    if (!(scalar > 0) || (kind && !arch_config_is(local, "rope_type", "default")))
        return err_set(e, CHIMERE_EUNSUPPORTED,
                       "config.json: expected query_pre_attn_scalar above 0 and the default "
                       "rope_type in sliding_attention");
    gguf_put_f32(w, KEY("attention.scale"), (float)(1 / sqrt(scalar)));
    if (json_array_size(json_object_get(config, "layer_types")))
        return arch_config_put_windows(config, arch, WINDOW_EVERYWHERE, w, e);
    if (period < 1 || period > ARCH_MAX_LAYERS)
        return err_set(e, CHIMERE_EFORMAT, "config.json: sliding_window_pattern: expected 1 to %d",
                       ARCH_MAX_LAYERS);
    gguf_put_u32(w, KEY("attention.sliding_window"),
                 (uint32_t)arch_config_int(config, "sliding_window", 4096));
    gguf_put_u32(w, KEY("attention.sliding_window_pattern"), (uint32_t)period);
#undef KEY
    return 0;
}

static int derive(const json_t *config, struct gguf_writer *w, struct err *e) {
    return derive_as(config, "gemma3", w, e);
}
static int derive_encoder(const json_t *config, struct gguf_writer *w, struct err *e) {
    int rc = derive_as(config, "gemma-embedding", w, e);
    return rc ? rc : arch_encoder_put_pooling(config, "gemma-embedding", false, w, e);
}
static bool is_encoder(const json_t *config) {
    return json_is_true(json_object_get(config, "use_bidirectional_attention"));
}
static bool is_decoder(const json_t *config) { return !is_encoder(config); }

/* Files of llama.cpp contain neither the window pattern nor the attention scale of the largest model. */
static void read_defaults(struct hparams *hp, const struct gguf *g) {
    if (!key_find(hp, g, "attention.sliding_window_pattern"))
        for (int32_t il = 5; il < hp->n_layer; il += 6) hp->layer[il].window = 0;
    if (!key_find(hp, g, "attention.scale") && hp->n_layer == 62 && hp->layer[0].n_head > 0)
        hp->attn_scale = 1 / sqrtf((float)hp->n_embd / (float)hp->layer[0].n_head);
}

static int read(struct hparams *hp, const struct gguf *g, struct err *e) {
    int rc = read_layers(hp, g, e);
    for (int32_t il = 0; !rc && il < arch_n_layer_all(hp); il++) {
        hp->layer[il].mixer = MIX_ATTN;
        hp->layer[il].ffn = FFN_DENSE;
        if (hp->layer[il].n_ff < 1)
            rc = err_set(e, CHIMERE_EFORMAT,
                         "key %s.feed_forward_length: expected at least 1, got %d", hp->arch->name,
                         hp->layer[il].n_ff);
    }
    if (!rc) rc = read_attention(hp, g, e);
    if (!rc) rc = read_rope(hp, g, ROPE_NEOX, e);
    hp->rope_base_window = 10000;
    if (!rc) rc = key_f32(hp, g, "rope.freq_base_swa", false, 1, 1e12, &hp->rope_base_window, e);
    if (!rc) rc = key_f32(hp, g, "attention.layer_norm_rms_epsilon", true, 0, 1, &hp->eps, e);
    if (rc) return rc;
    read_defaults(hp, g);
    hp->act = ACT_GELU;
    hp->has_post_norm = true;
    hp->embd_scale = sqrtf((float)hp->n_embd);
    return 0;
}

/* The key has the width of both sides together. Attention has a key head per query head, or one for all. */
static int read_encoder(struct hparams *hp, const struct gguf *g, struct err *e) {
    int rc = read(hp, g, e);
    if (!rc) rc = arch_encoder_read_dense(hp, g, e);
    for (int32_t il = 0; !rc && il < hp->n_layer; il++) {
        struct layer_shape *l = &hp->layer[il];
        if (l->window) l->window = l->window / 2 > 0 ? l->window / 2 : 1;
        if ((l->n_kv_head != 1 && l->n_kv_head != l->n_head) || hp->d_k != hp->d_v)
            rc = err_set(e, CHIMERE_EUNSUPPORTED,
                         "layer %d: expected one key head, or as many as query heads, of one size",
                         il);
    }
    hp->is_causal = false;
    if (hp->pooling == POOL_NONE) hp->pooling = POOL_MEAN;
    return rc;
}

static const char *const hf_types[] = {"gemma3_text", NULL};
static const struct tensor_row *const tables[] = {rows_globals, rows_layer, rows_ffn, NULL};
static const struct tensor_row *const tables_encoder[] = {rows_globals, rows_dense_modules,
                                                          rows_layer, rows_ffn, NULL};

#define FIELDS                                                                                     \
    "hidden_activation=gelu_pytorch_tanh hidden_act=gelu_pytorch_tanh attention_bias "             \
    "query_pre_attn_scalar layer_types sliding_window sliding_window_pattern "                     \
    "_sliding_window_pattern rope_local_base_freq use_bidirectional_attention "                    \
    "cache_implementation rope:full_attention rope:sliding_attention"

const struct arch arch_gemma3 = {.name = "gemma3",
                                 .hf_model_types = hf_types,
                                 .tensors = tables,
                                 .keys = keys,
                                 .fields = FIELDS,
                                 .derive = derive,
                                 .read = read,
                                 .suits = is_decoder};
const struct arch arch_gemma_embedding = {.name = "gemma-embedding",
                                          .hf_model_types = hf_types,
                                          .tensors = tables_encoder,
                                          .keys = keys,
                                          .fields = FIELDS,
                                          .derive = derive_encoder,
                                          .read = read_encoder,
                                          .suits = is_encoder};

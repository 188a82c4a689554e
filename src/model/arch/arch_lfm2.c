/* arch_lfm2.c: LFM2 and LFM2-MoE: gated short convolutions, attention in some layers, each followed by a feed-forward
 * block; in the mixture of experts the first layers are dense. */
#include <stddef.h>

#include "base/err.h"
#include "model/arch/arch_config.h"
#include "model/arch/arch_impl.h"

#define HF "model.layers.%d."

static const struct tensor_row rows_globals[] = {
    GMAT("token_embd.weight", "model.embed_tokens.weight", token_embd, 0, D_EMBD, D_VOCAB),
    /* the name in files of llama.cpp */
    GVEC("token_embd_norm.weight", "model.embedding_norm.weight", output_norm, 0, TF_NONE, D_EMBD),
    GMAT("output.weight", "lm_head.weight", output, TS_TIED, D_EMBD, D_VOCAB), ROWS_END};

static const struct tensor_row rows_mixers[] = {
    VEC("blk.%d.attn_norm.weight", HF "operator_norm.weight", attn_norm, AT_LAYER, 0, TF_NONE,
        D_EMBD),
    VEC("blk.%d.ffn_norm.weight", HF "ffn_norm.weight", ffn_norm, AT_LAYER, 0, TF_NONE, D_EMBD),
    ROWS_ATTN(HF "self_attn.", TF_NONE, TF_NONE),
    VEC("blk.%d.attn_q_norm.weight", HF "self_attn.q_layernorm.weight", attn.q_norm, AT_ATTN, 0,
        TF_NONE, D_HEAD_K),
    VEC("blk.%d.attn_k_norm.weight", HF "self_attn.k_layernorm.weight", attn.k_norm, AT_ATTN, 0,
        TF_NONE, D_HEAD_K),
    MAT("blk.%d.shortconv.in_proj.weight", HF "conv.in_proj.weight", ssm.in, AT_MIX(CONV), 0,
        TF_NONE, D_EMBD, D_EMBD3, D_NONE),
    VEC("blk.%d.shortconv.in_proj.bias", HF "conv.in_proj.bias", ssm.in_b, AT_MIX(CONV),
        TS_OPTIONAL, TF_NONE, D_EMBD3),
    VEC2("blk.%d.shortconv.conv.weight", HF "conv.conv.weight", ssm.conv, AT_MIX(CONV), 0, TF_NONE,
         D_SSM_TAPS, D_EMBD),
    VEC("blk.%d.shortconv.conv.bias", HF "conv.conv.bias", ssm.conv_b, AT_MIX(CONV), TS_OPTIONAL,
        TF_NONE, D_EMBD),
    MAT("blk.%d.shortconv.out_proj.weight", HF "conv.out_proj.weight", ssm.out, AT_MIX(CONV), 0,
        TF_NONE, D_EMBD, D_EMBD, D_NONE),
    VEC("blk.%d.shortconv.out_proj.bias", HF "conv.out_proj.bias", ssm.out_b, AT_MIX(CONV),
        TS_OPTIONAL, TF_NONE, D_EMBD),
    ROWS_END};

static const struct tensor_row rows_feed[] = {
    MAT("blk.%d.ffn_gate.weight", HF "feed_forward.w1.weight", ffn.gate, AT_FFN_DENSE, 0, TF_NONE,
        D_EMBD, D_FF, D_NONE),
    MAT("blk.%d.ffn_up.weight", HF "feed_forward.w3.weight", ffn.up, AT_FFN_DENSE, 0, TF_NONE,
        D_EMBD, D_FF, D_NONE),
    MAT("blk.%d.ffn_down.weight", HF "feed_forward.w2.weight", ffn.down, AT_FFN_DENSE, 0, TF_NONE,
        D_FF, D_EMBD, D_NONE),
    MAT("blk.%d.ffn_gate_inp.weight", HF "feed_forward.gate.weight", moe.router, AT_FFN_MOE, TS_F32,
        TF_NONE, D_EMBD, D_EXPERT, D_NONE),
    VEC("blk.%d.exp_probs_b.bias", HF "feed_forward.expert_bias", moe.select_b, AT_FFN_MOE,
        TS_OPTIONAL, TF_NONE, D_EXPERT),
    MAT("blk.%d.ffn_gate_exps.weight", HF "feed_forward.experts.%e.w1.weight", moe.gate, AT_FFN_MOE,
        0, TF_NONE, D_EMBD, D_FF_EXP, D_EXPERT),
    MAT("blk.%d.ffn_up_exps.weight", HF "feed_forward.experts.%e.w3.weight", moe.up, AT_FFN_MOE, 0,
        TF_NONE, D_EMBD, D_FF_EXP, D_EXPERT),
    MAT("blk.%d.ffn_down_exps.weight", HF "feed_forward.experts.%e.w2.weight", moe.down, AT_FFN_MOE,
        0, TF_NONE, D_FF_EXP, D_EMBD, D_EXPERT),
    ROWS_END};

#define COMMON_KEYS                                                                                \
    {"context_length", "max_position_embeddings", KEY_U32, true, NAN},                             \
        {"embedding_length", "hidden_size", KEY_U32, true, NAN},                                   \
        {"block_count", "num_hidden_layers", KEY_U32, true, NAN},                                  \
        {"attention.head_count", "num_attention_heads", KEY_U32, true, NAN},                       \
        {"attention.layer_norm_rms_epsilon", "norm_eps|block_norm_eps", KEY_F32, true, NAN},       \
        {"rope.freq_base", "rope_parameters.rope_theta|rope_theta", KEY_F32, false, 1e6}, {        \
        "shortconv.l_cache", "conv_L_cache", KEY_U32, true, NAN                                    \
    }

static const struct key_row keys_dense[] = {COMMON_KEYS, {.gguf = NULL}};
static const struct key_row keys_moe[] = {
    COMMON_KEYS,
    {"feed_forward_length", "intermediate_size", KEY_U32, true, NAN},
    {"leading_dense_block_count", "num_dense_layers", KEY_U32, true, NAN},
    {"expert_count", "num_experts", KEY_U32, true, NAN},
    {"expert_used_count", "num_experts_per_tok", KEY_U32, true, NAN},
    {"expert_feed_forward_length", "moe_intermediate_size", KEY_U32, true, NAN},
    {"expert_weights_norm", "norm_topk_prob", KEY_BOOL, false, 1},
    {"expert_weights_scale", "routed_scaling_factor", KEY_F32, false, 1},
    {.gguf = NULL}};

static bool attends(const json_t *config, int64_t il) {
    const json_t *kinds = json_object_get(config, "layer_types"), *at;
    const char *kind = json_string_value(json_array_get(kinds, (size_t)il));
    size_t i;
    if (kind) return strcmp(kind, "full_attention") == 0;
    json_array_foreach(json_object_get(config, "full_attn_idxs"), i, at) {
        if (json_integer_value(at) == il) return true;
    }
    return false;
}

/* Writes the key heads of each layer: none if the mixer is a convolution. */
static int put_heads(const json_t *config, const char *key, struct gguf_writer *w, struct err *e) {
    int64_t n_layer = arch_config_int(config, "num_hidden_layers", 0);
    int64_t n_kv = arch_config_int(config, "num_key_value_heads", 0);
    uint32_t kv[ARCH_MAX_LAYERS];
    if (n_layer < 1 || n_layer > ARCH_MAX_LAYERS || n_kv < 1 || n_kv > 4096)
        return err_set(e, CHIMERE_EFORMAT,
                       "config.json: num_hidden_layers or num_key_value_heads: expected sizes of a "
                       "model");
    for (int64_t il = 0; il < n_layer; il++) kv[il] = attends(config, il) ? (uint32_t)n_kv : 0;
    gguf_put_array(w, key, GGUF_U32, kv, (size_t)n_layer);
    return 0;
}

/* The published width is adjusted: two thirds of it, times a factor, rounded up. */
static int derive_dense(const json_t *config, struct gguf_writer *w, struct err *e) {
    double n = arch_config_number(config, "block_ff_dim",
                                  arch_config_number(config, "intermediate_size", 0));
    int64_t multiple = arch_config_int(config, "block_multiple_of", 256);
    if (multiple < 1 || !(n >= 1 && n <= 1 << 24))
        return err_set(e, CHIMERE_EFORMAT,
                       "config.json: intermediate_size or block_multiple_of: expected sizes of a "
                       "model");
    if (!json_is_false(json_object_get(config, "block_auto_adjust_ff_dim"))) {
        n = floor(2 * n / 3);
        n = floor(arch_config_number(config, "block_ffn_dim_multiplier", 1) * n);
        n = ceil(n / (double)multiple) * (double)multiple;
    }
    gguf_put_u32(w, "lfm2.feed_forward_length", (uint32_t)n);
    return put_heads(config, "lfm2.attention.head_count_kv", w, e);
}

static int derive_moe(const json_t *config, struct gguf_writer *w, struct err *e) {
    gguf_put_u32(w, "lfm2moe.expert_gating_func", 2);
    return put_heads(config, "lfm2moe.attention.head_count_kv", w, e);
}

static int read(struct hparams *hp, const struct gguf *g, struct err *e) {
    int32_t n_dense = ARCH_MAX_LAYERS, n_expert = 0;
    int rc = read_layers(hp, g, e);
    if (!rc)
        rc = key_i32_per_layer(hp, g, "attention.head_count_kv", true, 0, 4096, hp->n_layer,
                               &hp->layer[0].n_kv_head, sizeof hp->layer[0], e);
    if (!rc) rc = key_i32(hp, g, "expert_count", false, 0, ARCH_MAX_EXPERTS, &n_expert, e);
    if (!rc && n_expert)
        rc = key_i32(hp, g, "leading_dense_block_count", true, 0, ARCH_MAX_LAYERS, &n_dense, e);
    for (int32_t il = 0; !rc && il < hp->n_layer; il++) {
        struct layer_shape *l = &hp->layer[il];
        l->mixer = l->n_kv_head ? MIX_ATTN : MIX_CONV;
        l->ffn = n_expert && il >= n_dense ? FFN_MOE : FFN_DENSE;
        if (l->ffn == FFN_DENSE && l->n_ff < 1)
            rc = err_set(e, CHIMERE_EFORMAT,
                         "key %s.feed_forward_length: expected at least 1, got %d", hp->arch->name,
                         l->n_ff);
    }
    hp->moe.gating = MOE_SIGMOID;
    hp->moe.normalise = true;
    if (!rc && n_expert) rc = read_moe(hp, g, e);
    if (!rc) rc = read_attention(hp, g, e);
    if (!rc) rc = read_rope(hp, g, ROPE_NEOX, e);
    if (!rc) rc = key_i32(hp, g, "shortconv.l_cache", true, 2, 16, &hp->ssm.d_conv, e);
    if (!rc) rc = key_f32(hp, g, "attention.layer_norm_rms_epsilon", true, 0, 1, &hp->eps, e);
    return rc;
}

#define FIELDS                                                                                     \
    "layer_types full_attn_idxs num_key_value_heads conv_bias intermediate_size block_ff_dim "     \
    "block_auto_adjust_ff_dim block_ffn_dim_multiplier block_multiple_of "                         \
    "block_mlp_init_scale block_out_init_scale block_use_swiglu=true block_use_xavier_init "       \
    "block_dim conv_dim conv_dim_out conv_use_xavier_init num_heads use_pos_enc=true norm_eps "    \
    "use_expert_bias theta tie_embedding"

static const char *const hf_dense[] = {"lfm2", NULL};
static const char *const hf_moe[] = {"lfm2_moe", NULL};
static const struct name_alias aliases[] = {{"self_attn.o_proj.", "self_attn.out_proj."},
                                            {NULL, NULL}};
static const struct tensor_row *const tables[] = {rows_globals, rows_mixers, rows_feed, NULL};

const struct arch arch_lfm2 = {.name = "lfm2",
                               .hf_model_types = hf_dense,
                               .tensors = tables,
                               .keys = keys_dense,
                               .fields = FIELDS,
                               .derive = derive_dense,
                               .read = read,
                               .aliases = aliases};
const struct arch arch_lfm2_moe = {.name = "lfm2moe",
                                   .hf_model_types = hf_moe,
                                   .tensors = tables,
                                   .keys = keys_moe,
                                   .fields = FIELDS,
                                   .derive = derive_moe,
                                   .read = read,
                                   .aliases = aliases};

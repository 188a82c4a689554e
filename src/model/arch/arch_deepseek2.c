/* arch_deepseek2.c: DeepSeek V3 and R1, Kimi K2, GLM-4.7-Flash: latent attention, experts chosen by sigmoid scores with
 * a bias, by groups in DeepSeek V3. The first layers have a dense feed-forward block.
 *
 * kv_b_proj of a checkpoint, which makes a head's keys and values from the latent, is two stacks of matrices in a file,
 * one for keys (transposed) and one for values. Prediction blocks are left out: conversion drops
 * them, and those of a file are not read. */
#include <math.h>
#include <stddef.h>

#include "base/err.h"
#include "model/arch/arch_config.h"
#include "model/arch/arch_impl.h"

#define HF "model.layers.%d."
#define ATTN HF "self_attn."

/* Shapes by which files of GLM-4.7-Flash are known that lack the key of the gating function. */
enum { GLM_LAYERS = 47, GLM_VOCAB = 154880 };

static const struct tensor_row rows_layer[] = {
    VEC("blk.%d.attn_norm.weight", HF "input_layernorm.weight", attn_norm, AT_LAYER, 0, TF_NONE,
        D_EMBD),
    MAT("blk.%d.attn_q.weight", ATTN "q_proj.weight", mla.q, AT_MLA_Q, 0, TF_NONE, D_EMBD, D_MLA_Q,
        D_NONE),
    MAT("blk.%d.attn_q_a.weight", ATTN "q_a_proj.weight", mla.q_a, AT_MLA_LOW_Q, 0, TF_NONE, D_EMBD,
        D_MLA_Q_RANK, D_NONE),
    VEC("blk.%d.attn_q_a_norm.weight", ATTN "q_a_layernorm.weight", mla.q_norm, AT_MLA_LOW_Q, 0,
        TF_NONE, D_MLA_Q_RANK),
    MAT("blk.%d.attn_q_b.weight", ATTN "q_b_proj.weight", mla.q, AT_MLA_LOW_Q, 0, TF_NONE,
        D_MLA_Q_RANK, D_MLA_Q, D_NONE),
    MAT("blk.%d.attn_kv_a_mqa.weight", ATTN "kv_a_proj_with_mqa.weight", mla.kv_a, AT_MIX(MLA), 0,
        TF_NONE, D_EMBD, D_HEAD_K, D_NONE),
    VEC("blk.%d.attn_kv_a_norm.weight", ATTN "kv_a_layernorm.weight", mla.kv_norm, AT_MIX(MLA), 0,
        TF_NONE, D_MLA_RANK),
    MAT("blk.%d.attn_k_b.weight", ATTN "kv_b_proj.weight", mla.k_b, AT_MIX(MLA), 0, TF_LATENT_KEYS,
        D_MLA_NOPE, D_MLA_RANK, D_HEAD),
    MAT("blk.%d.attn_v_b.weight", ATTN "kv_b_proj.weight", mla.v_b, AT_MIX(MLA), 0,
        TF_LATENT_VALUES, D_MLA_RANK, D_MLA_V, D_HEAD),
    MAT("blk.%d.attn_output.weight", ATTN "o_proj.weight", mla.out, AT_MIX(MLA), 0, TF_NONE,
        D_MLA_OUT, D_EMBD, D_NONE),
    VEC("blk.%d.exp_probs_b.bias", HF "mlp.gate.e_score_correction_bias", moe.select_b, AT_FFN_MOE,
        TS_OPTIONAL, TF_NONE, D_EXPERT),
    MAT("blk.%d.ffn_gate_shexp.weight", HF "mlp.shared_experts.gate_proj.weight", moe.sh_gate,
        AT_FFN_SHARED, 0, TF_NONE, D_EMBD, D_FF_SHARED, D_NONE),
    MAT("blk.%d.ffn_up_shexp.weight", HF "mlp.shared_experts.up_proj.weight", moe.sh_up,
        AT_FFN_SHARED, 0, TF_NONE, D_EMBD, D_FF_SHARED, D_NONE),
    MAT("blk.%d.ffn_down_shexp.weight", HF "mlp.shared_experts.down_proj.weight", moe.sh_down,
        AT_FFN_SHARED, 0, TF_NONE, D_FF_SHARED, D_EMBD, D_NONE),
    ROWS_END};

static const struct key_row keys[] = {
    {"context_length", "max_position_embeddings", KEY_U32, true, NAN},
    {"embedding_length", "hidden_size", KEY_U32, true, NAN},
    {"block_count", "num_hidden_layers", KEY_U32, true, NAN},
    {"feed_forward_length", "intermediate_size", KEY_U32, true, NAN},
    {"attention.head_count", "num_attention_heads", KEY_U32, true, NAN},
    {"attention.head_count_kv", "-", KEY_U32, false, 1},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", KEY_F32, true, NAN},
    {"attention.q_lora_rank", "q_lora_rank", KEY_U32, false, NAN},
    {"attention.kv_lora_rank", "kv_lora_rank", KEY_U32, true, NAN},
    {"attention.value_length", "kv_lora_rank", KEY_U32, true, NAN},
    {"attention.value_length_mla", "v_head_dim", KEY_U32, true, NAN},
    {"rope.dimension_count", "qk_rope_head_dim", KEY_U32, true, NAN},
    {"rope.freq_base", "rope_parameters.rope_theta|rope_theta", KEY_F32, false, 10000},
    {"expert_count", "n_routed_experts", KEY_U32, true, NAN},
    {"expert_used_count", "num_experts_per_tok", KEY_U32, true, NAN},
    {"expert_feed_forward_length", "moe_intermediate_size", KEY_U32, true, NAN},
    {"expert_shared_count", "n_shared_experts", KEY_U32, true, NAN},
    {"expert_weights_scale", "routed_scaling_factor", KEY_F32, true, NAN},
    {"expert_weights_norm", "norm_topk_prob", KEY_BOOL, true, NAN},
    {"expert_group_count", "n_group", KEY_U32, false, 1},
    {"expert_group_used_count", "topk_group", KEY_U32, false, 1},
    {.gguf = NULL}};

/* Number of dense layers at the start; -1: they are not at the start. */
static int64_t n_dense(const json_t *config) {
    const json_t *types = json_object_get(config, "mlp_layer_types");
    int64_t n = arch_config_int(config, "first_k_dense_replace", 1);
    if (!json_is_array(types)) return n;
    size_t dense = 0;
    for (size_t il = 0; il < json_array_size(types); il++) {
        const char *type = json_string_value(json_array_get(types, il));
        bool is_dense = type && strcmp(type, "dense") == 0;
        if (is_dense && dense < il) return -1;
        dense += is_dense;
    }
    return (int64_t)dense;
}

static int derive(const json_t *config, struct gguf_writer *w, struct err *e) {
    int64_t rank = arch_config_int(config, "kv_lora_rank", 0), dense = n_dense(config);
    int64_t rot = arch_config_int(config, "qk_rope_head_dim", 0);
    int64_t rest = arch_config_int(config, "qk_nope_head_dim", 0);
    if (rank < 1 || rot < 1 || rest < 1 || rank > 4096 || rot > 4096 || rest > 4096)
        return err_set(e, CHIMERE_EFORMAT,
                       "config.json: kv_lora_rank, qk_rope_head_dim, qk_nope_head_dim: expected 1 "
                       "to 4096");
    if (dense < 0 || dense > ARCH_MAX_LAYERS)
        return err_set(e, CHIMERE_EUNSUPPORTED,
                       "config.json: mlp_layer_types or first_k_dense_replace: expected dense "
                       "layers at the start");
    const json_t *rope = json_object_get(config, "rope_scaling");
    if (!json_is_object(rope)) rope = json_object_get(config, "rope_parameters");
    bool is_yarn =
        arch_config_is(rope, "type", "yarn") || arch_config_is(rope, "rope_type", "yarn");
    double all = arch_config_number(rope, "mscale_all_dim", 0);
    if (is_yarn && !(all > 0 && arch_config_number(rope, "mscale", 0) == all))
        return err_set(e, CHIMERE_EUNSUPPORTED,
                       "config.json: rope_scaling: expected equal values of mscale and "
                       "mscale_all_dim for yarn");
    gguf_put_u32(w, "deepseek2.attention.key_length", (uint32_t)(rank + rot));
    gguf_put_u32(w, "deepseek2.attention.key_length_mla", (uint32_t)(rest + rot));
    gguf_put_u32(w, "deepseek2.leading_dense_block_count", (uint32_t)dense);
    gguf_put_u32(w, "deepseek2.expert_gating_func", 2);
    return 0;
}

static int bad_heads(struct err *e) {
    return err_set(e, CHIMERE_EUNSUPPORTED,
                   "keys deepseek2.attention.*: expected 1 to %d query heads, one key head whose "
                   "length is that of values plus rotary dimensions, and longer heads of queries",
                   MLA_MAX_HEAD);
}

static int read_heads(struct hparams *hp, const struct gguf *g, struct err *e) {
    int rc = key_i32(hp, g, "attention.q_lora_rank", false, 0, 1 << 16, &hp->mla.n_q_rank, e);
    if (!rc && !key_find(hp, g, "attention.key_length_mla")) {
        err_set(e, CHIMERE_EUNSUPPORTED,
                "key deepseek2.attention.key_length_mla: expected, got nothing");
        err_hint(e, "files made before llama.cpp split attn_kv_b must be converted again");
        return CHIMERE_EUNSUPPORTED;
    }
    if (!rc) rc = key_i32(hp, g, "attention.key_length_mla", true, 1, 4096, &hp->mla.d_k, e);
    if (!rc) rc = key_i32(hp, g, "attention.value_length_mla", true, 1, 4096, &hp->mla.d_v, e);
    if (rc) return rc;
    bool fits = hp->d_k == hp->d_v + hp->n_rot && hp->mla.d_k > hp->n_rot && hp->n_rot > 0;
    for (int32_t il = 0; il < hp->n_layer; il++)
        fits &= hp->layer[il].n_head >= 1 && hp->layer[il].n_head <= MLA_MAX_HEAD &&
                hp->layer[il].n_kv_head == 1;
    return fits ? 0 : bad_heads(e);
}

/* Scores are scaled for heads as trained. YaRN multiplies them, not sines and cosines. */
static int read_scale(struct hparams *hp, const struct gguf *g, struct err *e) {
    float log_multiplier = 0;
    hp->attn_scale = 1.0f / sqrtf((float)hp->mla.d_k);
    if (!hp->rope_yarn) return 0;
    int rc = key_f32(hp, g, "rope.scaling.yarn_log_multiplier", true, 0, 1e3, &log_multiplier, e);
    hp->rope_magnitude /= 0.1f * logf(hp->rope_factor) + 1.0f;
    float scale = hp->rope_magnitude * (log_multiplier * logf(hp->rope_factor) + 1.0f);
    hp->attn_scale *= scale * scale;
    return rc;
}

static int read_experts(struct hparams *hp, const struct gguf *g, struct err *e) {
    int32_t n_shared = 0, n_dense_layers = 0;
    if (hp->n_layer == GLM_LAYERS && hp->n_vocab == GLM_VOCAB) hp->moe.gating = MOE_SIGMOID;
    int rc = read_moe(hp, g, e);
    if (!rc) rc = key_i32(hp, g, "expert_shared_count", false, 0, 1024, &n_shared, e);
    if (!rc)
        rc = key_i32(hp, g, "leading_dense_block_count", false, 0, ARCH_MAX_LAYERS, &n_dense_layers,
                     e);
    if (rc) return rc;
    if (n_shared && hp->moe.n_ff > (1 << 24) / n_shared)
        return err_set(e, CHIMERE_EFORMAT,
                       "key deepseek2.expert_shared_count: expected a product with "
                       "expert_feed_forward_length of at most 2^24, got %d",
                       n_shared);
    hp->moe.n_ff_shared = n_shared * hp->moe.n_ff;
    for (int32_t il = 0; il < hp->n_layer; il++) {
        struct layer_shape *l = &hp->layer[il];
        l->ffn = il < n_dense_layers ? FFN_DENSE : FFN_MOE;
        if (l->ffn == FFN_DENSE && l->n_ff < 1)
            return err_set(e, CHIMERE_EFORMAT,
                           "key deepseek2.feed_forward_length: expected at least 1, got %d",
                           l->n_ff);
    }
    return 0;
}

static int read(struct hparams *hp, const struct gguf *g, struct err *e) {
    int rc = read_layers(hp, g, e);
    hp->n_nextn = 0;
    for (int32_t il = 0; !rc && il < hp->n_layer; il++) hp->layer[il].mixer = MIX_MLA;
    if (!rc) rc = read_attention(hp, g, e);
    if (!rc) rc = read_rope(hp, g, ROPE_NORM, e);
    if (!rc) rc = read_heads(hp, g, e);
    if (!rc) rc = read_scale(hp, g, e);
    if (!rc) rc = read_experts(hp, g, e);
    if (!rc) rc = key_f32(hp, g, "attention.layer_norm_rms_epsilon", true, 0, 1, &hp->eps, e);
    return rc;
}

static const char *const hf_types[] = {"deepseek_v3", "kimi_k2", "glm4_moe_lite", NULL};
static const struct tensor_row *const tables[] = {rows_embd, rows_layer, rows_ffn_norm,
                                                  rows_ffn,  rows_moe,   NULL};

const struct arch arch_deepseek2 = {
    .name = "deepseek2",
    .hf_model_types = hf_types,
    .tensors = tables,
    .keys = keys,
    .fields = "hidden_act=silu attention_bias=false qk_nope_head_dim qk_head_dim head_dim "
              "num_key_value_heads first_k_dense_replace mlp_layer_types moe_layer_freq=1 "
              "rope_interleave=true scoring_func=sigmoid topk_method=noaux_tc ep_size seq_aux "
              "aux_loss_alpha num_nextn_predict_layers num_mtp_layers num_local_experts",
    .scales_scores = true,
    .derive = derive,
    .read = read};

/* arch_granite_hybrid.c: Granite 4 H (dense and mixture of experts) and Bamba: Mamba-2 or attention, each followed by
 * a feed-forward block. Granite scales embeddings, what blocks add, attention and logits. The Granite 4 models with
 * attention in every layer are in arch_granite.c. */
#include <stddef.h>

#include "base/err.h"
#include "model/arch/arch_config.h"
#include "model/arch/arch_impl.h"

#define HF "model.layers.%d."

/* A row with two Hugging Face names, Granite's and Bamba's; the second may be a part of a fused tensor. */
#define EITHER(gguf_, hf_, other_, slot_, vector_, where_, flags_, other_tf_, a, b, c)             \
    {                                                                                              \
        gguf_, hf_, other_, offsetof(struct layer_weights, slot_), vector_, where_, flags_,        \
            TF_NONE, other_tf_, {                                                                  \
            a, b, c                                                                                \
        }                                                                                          \
    }

static const struct tensor_row rows_globals[] = {
    GMAT("token_embd.weight", "model.embed_tokens.weight", token_embd, 0, D_EMBD, D_VOCAB),
    {"output_norm.weight",
     "model.norm.weight",
     "model.final_layernorm.weight",
     offsetof(struct global_weights, output_norm),
     true,
     AT_GLOBAL,
     TS_F32,
     TF_NONE,
     TF_NONE,
     {D_EMBD, D_NONE, D_NONE}},
    GMAT("output.weight", "lm_head.weight", output, TS_TIED, D_EMBD, D_VOCAB),
    GVEC("rope_freqs.weight", NULL, rope_freqs, TS_OPTIONAL, TF_NONE, D_NONE),
    ROWS_END};

static const struct tensor_row rows_norms[] = {
    VEC("blk.%d.attn_norm.weight", HF "input_layernorm.weight", attn_norm, AT_LAYER, 0, TF_NONE,
        D_EMBD),
    EITHER("blk.%d.ffn_norm.weight", HF "post_attention_layernorm.weight",
           HF "pre_ff_layernorm.weight", ffn_norm, true, AT_LAYER, TS_F32, TF_NONE, D_EMBD, D_NONE,
           D_NONE),
    ROWS_END};

static const struct tensor_row rows_mamba[] = {ROWS_MAMBA2(HF "mamba."), ROWS_END};

static const struct tensor_row rows_attention[] = {
    ROWS_ATTN(HF "self_attn.", TF_ROPE_PERMUTE_Q, TF_ROPE_PERMUTE_K), ROWS_END};

/* Granite's dense models use the shared expert's names. */
static const struct tensor_row rows_dense[] = {
    EITHER("blk.%d.ffn_gate.weight", HF "feed_forward.gate_proj.weight",
           HF "shared_mlp.input_linear.weight", ffn.gate, false, AT_FFN_DENSE, 0, TF_FIRST_HALF,
           D_EMBD, D_FF, D_NONE),
    EITHER("blk.%d.ffn_up.weight", HF "feed_forward.up_proj.weight",
           HF "shared_mlp.input_linear.weight", ffn.up, false, AT_FFN_DENSE, 0, TF_SECOND_HALF,
           D_EMBD, D_FF, D_NONE),
    EITHER("blk.%d.ffn_down.weight", HF "feed_forward.down_proj.weight",
           HF "shared_mlp.output_linear.weight", ffn.down, false, AT_FFN_DENSE, 0, TF_NONE, D_FF,
           D_EMBD, D_NONE),
    VEC("blk.%d.ffn_gate.bias", HF "feed_forward.gate_proj.bias", ffn.gate_b, AT_FFN_DENSE,
        TS_OPTIONAL, TF_NONE, D_FF),
    VEC("blk.%d.ffn_up.bias", HF "feed_forward.up_proj.bias", ffn.up_b, AT_FFN_DENSE, TS_OPTIONAL,
        TF_NONE, D_FF),
    VEC("blk.%d.ffn_down.bias", HF "feed_forward.down_proj.bias", ffn.down_b, AT_FFN_DENSE,
        TS_OPTIONAL, TF_NONE, D_EMBD),
    ROWS_END};

const struct tensor_row rows_granite_experts[] = {
    MAT("blk.%d.ffn_gate_inp.weight", HF "block_sparse_moe.router.layer.weight", moe.router,
        AT_FFN_MOE, TS_F32, TF_NONE, D_EMBD, D_EXPERT, D_NONE),
    MAT("blk.%d.ffn_gate_exps.weight", HF "block_sparse_moe.input_linear.weight", moe.gate,
        AT_FFN_MOE, 0, TF_FIRST_HALF, D_EMBD, D_FF_EXP, D_EXPERT),
    MAT("blk.%d.ffn_up_exps.weight", HF "block_sparse_moe.input_linear.weight", moe.up, AT_FFN_MOE,
        0, TF_SECOND_HALF, D_EMBD, D_FF_EXP, D_EXPERT),
    MAT("blk.%d.ffn_down_exps.weight", HF "block_sparse_moe.output_linear.weight", moe.down,
        AT_FFN_MOE, 0, TF_NONE, D_FF_EXP, D_EMBD, D_EXPERT),
    MAT("blk.%d.ffn_gate_shexp.weight", HF "shared_mlp.input_linear.weight", moe.sh_gate,
        AT_FFN_SHARED, 0, TF_FIRST_HALF, D_EMBD, D_FF_SHARED, D_NONE),
    MAT("blk.%d.ffn_up_shexp.weight", HF "shared_mlp.input_linear.weight", moe.sh_up, AT_FFN_SHARED,
        0, TF_SECOND_HALF, D_EMBD, D_FF_SHARED, D_NONE),
    MAT("blk.%d.ffn_down_shexp.weight", HF "shared_mlp.output_linear.weight", moe.sh_down,
        AT_FFN_SHARED, 0, TF_NONE, D_FF_SHARED, D_EMBD, D_NONE),
    ROWS_END};

static const struct key_row keys[] = {
    {"context_length", "max_position_embeddings", KEY_U32, true, NAN},
    {"embedding_length", "hidden_size", KEY_U32, true, NAN},
    {"block_count", "num_hidden_layers", KEY_U32, true, NAN},
    {"attention.head_count", "num_attention_heads", KEY_U32, true, NAN},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", KEY_F32, true, NAN},
    {"attention.scale", "attention_multiplier", KEY_F32, false, NAN},
    {"embedding_scale", "embedding_multiplier", KEY_F32, false, NAN},
    {"residual_scale", "residual_multiplier", KEY_F32, false, NAN},
    {"logit_scale", "logits_scaling", KEY_F32, false, NAN},
    {"rope.freq_base", "rope_parameters.rope_theta|rope_theta", KEY_F32, false, 10000},
    {"ssm.conv_kernel", "mamba_d_conv", KEY_U32, true, NAN},
    {"ssm.state_size", "mamba_d_state", KEY_U32, true, NAN},
    {"ssm.group_count", "mamba_n_groups", KEY_U32, true, NAN},
    {"ssm.time_step_rank", "mamba_n_heads", KEY_U32, true, NAN},
    {.gguf = NULL}};

/* Whether layer il has attention: from a list of kinds, a list of indices, or a period. */
static bool attends(const json_t *config, size_t il) {
    const json_t *kinds = json_object_get(config, "layer_types"), *at;
    if (!kinds) kinds = json_object_get(config, "layers_block_type");
    const char *kind = json_string_value(json_array_get(kinds, il));
    if (kind) return strcmp(kind, "attention") == 0 || strcmp(kind, "full_attention") == 0;
    size_t i;
    json_array_foreach(json_object_get(config, "attn_layer_indices"), i,
                       at) if (json_integer_value(at) == (json_int_t)il) return true;
    double period = arch_config_number(config, "attn_layer_period", 0);
    return period >= 1 &&
           fmod((double)il, period) == arch_config_number(config, "attn_layer_offset", -1);
}

static int put_sizes(const json_t *config, bool is_bamba, struct gguf_writer *w, struct err *e) {
    double inner = arch_config_number(config, "hidden_size", 0) *
                   arch_config_number(config, "mamba_expand", 2);
    double n_expert = is_bamba ? 0 : arch_config_number(config, "num_local_experts", 0);
    double n_ff = arch_config_number(config, "intermediate_size", 0);
    double shared = arch_config_number(config, "shared_intermediate_size", 0);
    if (!is_bamba && n_expert == 0 && shared > 0) n_ff = shared;
    if (!(inner >= 1 && inner <= 1 << 20) || !(n_ff >= 1 && n_ff <= 1 << 24) ||
        !(n_expert >= 0 && n_expert <= ARCH_MAX_EXPERTS) || !(shared >= 0 && shared <= 1 << 24))
        return err_set(e, CHIMERE_EFORMAT,
                       "config.json: hidden_size, intermediate_size, shared_intermediate_size or "
                       "num_local_experts: expected sizes of a model");
    gguf_put_u32(w, "granitehybrid.ssm.inner_size", (uint32_t)inner);
    gguf_put_u32(w, "granitehybrid.feed_forward_length", (uint32_t)n_ff);
    if (n_expert == 0) return 0;
    double n_used = arch_config_number(config, "num_experts_per_tok", 0);
    if (!(n_used >= 1 && n_used <= n_expert))
        return err_set(e, CHIMERE_EFORMAT,
                       "config.json: num_experts_per_tok: expected 1 to %g, got %g", n_expert,
                       n_used);
    gguf_put_u32(w, "granitehybrid.expert_count", (uint32_t)n_expert);
    gguf_put_u32(w, "granitehybrid.expert_used_count", (uint32_t)n_used);
    gguf_put_u32(w, "granitehybrid.expert_shared_feed_forward_length", (uint32_t)shared);
    return 0;
}

/* Writes the heads of each layer, and how much of a head rotates: half in Bamba, all or nothing in Granite. */
static int derive(const json_t *config, struct gguf_writer *w, struct err *e) {
    const char *type = json_string_value(json_object_get(config, "model_type"));
    const char *position = json_string_value(json_object_get(config, "position_embedding_type"));
    bool is_bamba = type && strcmp(type, "bamba") == 0;
    double n_layer = arch_config_number(config, "num_hidden_layers", 0);
    double n_head = arch_config_number(config, "num_attention_heads", 0);
    double n_kv = arch_config_number(config, "num_key_value_heads", n_head);
    if (!(n_layer >= 1 && n_layer <= ARCH_MAX_LAYERS) || !(n_head >= 1 && n_head <= 4096) ||
        !(n_kv >= 1 && n_kv <= n_head))
        return err_set(e, CHIMERE_EFORMAT,
                       "config.json: num_hidden_layers, num_attention_heads or "
                       "num_key_value_heads: expected sizes of a model");
    int rc = put_sizes(config, is_bamba, w, e);
    if (rc) return rc;
    uint32_t kv[ARCH_MAX_LAYERS] = {0};
    for (size_t il = 0; il < (size_t)n_layer; il++)
        if (attends(config, il)) kv[il] = (uint32_t)n_kv;
    gguf_put_array(w, "granitehybrid.attention.head_count_kv", GGUF_U32, kv, (size_t)n_layer);
    bool rotates = is_bamba || (position && strcmp(position, "rope") == 0);
    double d_head = arch_config_number(config, "hidden_size", 0) / n_head;
    double n_rot = is_bamba ? arch_config_number(config, "attn_rotary_emb", d_head / 2) : d_head;
    gguf_put_bool(w, "granitehybrid.rope.scaling.finetuned", rotates);
    if (n_rot >= 2 && n_rot <= d_head)
        gguf_put_u32(w, "granitehybrid.rope.dimension_count", (uint32_t)n_rot);
    return 0;
}

int read_granite_scales(struct hparams *hp, const struct gguf *g, struct err *e) {
    float logit = 1;
    int rc = key_f32(hp, g, "embedding_scale", false, 0, 1e6, &hp->embd_scale, e);
    if (!rc) rc = key_f32(hp, g, "residual_scale", false, 0, 1e6, &hp->residual_scale, e);
    if (!rc) rc = key_f32(hp, g, "logit_scale", false, 1e-6, 1e6, &logit, e);
    hp->logit_scale = 1 / logit; /* the key divides */
    if (!rc) rc = key_f32(hp, g, "attention.layer_norm_rms_epsilon", true, 0, 1, &hp->eps, e);
    return rc;
}

static int read_blocks(struct hparams *hp, const struct gguf *g, struct err *e) {
    int32_t n_expert = 0;
    int rc = key_i32(hp, g, "expert_count", false, 0, ARCH_MAX_EXPERTS, &n_expert, e);
    if (!rc)
        rc = key_i32_per_layer(hp, g, "attention.head_count_kv", true, 0, 4096, hp->n_layer,
                               &hp->layer[0].n_kv_head, sizeof hp->layer[0], e);
    for (int32_t il = 0; !rc && il < hp->n_layer; il++) {
        struct layer_shape *l = &hp->layer[il];
        l->mixer = l->n_kv_head ? MIX_ATTN : MIX_MAMBA2;
        l->ffn = n_expert ? FFN_MOE : FFN_DENSE;
        if (l->n_ff < 1)
            rc = err_set(e, CHIMERE_EFORMAT,
                         "key %s.feed_forward_length: expected at least 1, got %d", hp->arch->name,
                         l->n_ff);
    }
    hp->moe.n_ff = hp->layer[0].n_ff;
    hp->moe.normalise = true;
    return rc || !n_expert ? rc : read_moe(hp, g, e);
}

static int read_granite(struct hparams *hp, const struct gguf *g, struct err *e) {
    bool rotates = true;
    int rc = read_trunk(hp, g, e);
    if (!rc) rc = read_blocks(hp, g, e);
    if (!rc) rc = read_attention(hp, g, e);
    if (!rc) rc = key_bool(hp, g, "rope.scaling.finetuned", &rotates, e);
    if (!rc) rc = read_rope(hp, g, rotates ? ROPE_NORM : ROPE_NONE, e);
    if (!rc) rc = read_mamba2(hp, g, e);
    if (!rc) rc = read_granite_scales(hp, g, e);
    return rc;
}

static const char *const hf_types[] = {"granitemoehybrid", "bamba", NULL};

static const struct tensor_row *const tables[] = {
    rows_globals, rows_norms, rows_mamba, rows_attention, rows_dense, rows_granite_experts, NULL};

const struct arch arch_granite_hybrid = {
    .name = "granitehybrid",
    .hf_model_types = hf_types,
    .tensors = tables,
    .keys = keys,
    .fields =
        "hidden_act=silu|swish attention_bias mlp_bias layer_types layers_block_type "
        "attn_layer_indices attn_layer_period attn_layer_offset attn_rotary_emb "
        "partial_rotary_factor position_embedding_type num_key_value_heads intermediate_size "
        "shared_intermediate_size num_local_experts num_experts_per_tok mamba_expand mamba_d_head "
        "mamba_conv_bias mamba_proj_bias mamba_chunk_size time_step_limit time_step_min "
        "time_step_max time_step_floor normalization_function=rmsnorm init_method",
    .derive = derive,
    .read = read_granite};

/* arch_qwen35.c: Qwen3.5 (dense and mixture of experts) and Qwen3-Next: gated delta-net layers, gated full attention
 * every few layers, and multi-token prediction blocks after the trunk. */
#include <stddef.h>

#include "model/arch/arch_config.h"
#include "model/arch/arch_impl.h"

#define HF "model.layers.%d."
#define P1 TF_NORM_PLUS_1

static const struct tensor_row rows_globals[] = {
    GMAT("token_embd.weight", "model.embed_tokens.weight", token_embd, 0, D_EMBD, D_VOCAB),
    GVEC("output_norm.weight", "model.norm.weight", output_norm, 0, P1, D_EMBD),
    GMAT("output.weight", "lm_head.weight", output, TS_TIED, D_EMBD, D_VOCAB), ROWS_END};

static const struct tensor_row rows_mixers[] = {
    VEC("blk.%d.attn_norm.weight", HF "input_layernorm.weight", attn_norm, AT_LAYER, 0, P1, D_EMBD),
    VEC("blk.%d.post_attention_norm.weight", HF "post_attention_layernorm.weight", ffn_norm,
        AT_LAYER, 0, P1, D_EMBD),
    ROWS_ATTN(HF "self_attn.", TF_NONE, TF_NONE),
    VEC("blk.%d.attn_q_norm.weight", HF "self_attn.q_norm.weight", attn.q_norm, AT_ATTN, 0, P1,
        D_HEAD_K),
    VEC("blk.%d.attn_k_norm.weight", HF "self_attn.k_norm.weight", attn.k_norm, AT_ATTN, 0, P1,
        D_HEAD_K),
    ROWS_END};

/* Qwen3.5: conversion tiles the value heads over the key heads. */
static const struct tensor_row rows_gdn[] = {
    MAT("blk.%d.attn_qkv.weight", HF "linear_attn.in_proj_qkv.weight", gdn.qkv, AT_MIX(GDN), 0,
        TF_QKV_V_ROWS, D_EMBD, D_GDN_CONV, D_NONE),
    MAT("blk.%d.attn_gate.weight", HF "linear_attn.in_proj_z.weight", gdn.z, AT_MIX(GDN), 0,
        TF_V_HEAD_ROWS, D_EMBD, D_GDN_INNER, D_NONE),
    MAT("blk.%d.ssm_beta.weight", HF "linear_attn.in_proj_b.weight", gdn.beta, AT_MIX(GDN), 0,
        TF_V_HEAD, D_EMBD, D_GDN_V_HEAD, D_NONE),
    MAT("blk.%d.ssm_alpha.weight", HF "linear_attn.in_proj_a.weight", gdn.alpha, AT_MIX(GDN), 0,
        TF_V_HEAD, D_EMBD, D_GDN_V_HEAD, D_NONE),
    {"blk.%d.ssm_conv1d.weight",
     HF "linear_attn.conv1d.weight",
     NULL,
     offsetof(struct layer_weights, gdn.conv),
     true,
     AT_MIX(GDN),
     TS_F32,
     TF_CONV,
     TF_NONE,
     {D_CONV_TAPS, D_GDN_CONV, D_NONE}},
    VEC("blk.%d.ssm_dt.bias", HF "linear_attn.dt_bias", gdn.dt_b, AT_MIX(GDN), 0, TF_V_HEAD,
        D_GDN_V_HEAD),
    VEC("blk.%d.ssm_a", HF "linear_attn.A_log", gdn.a, AT_MIX(GDN), 0, TF_NEG_EXP, D_GDN_V_HEAD),
    VEC("blk.%d.ssm_norm.weight", HF "linear_attn.norm.weight", gdn.norm, AT_MIX(GDN), 0, TF_NONE,
        D_GDN_V_DIM),
    MAT("blk.%d.ssm_out.weight", HF "linear_attn.out_proj.weight", gdn.out, AT_MIX(GDN), 0,
        TF_V_HEAD_COLS, D_GDN_INNER, D_EMBD, D_NONE),
    ROWS_END};

/* Qwen3-Next: heads stay grouped as published; projections are fused by key head, or split into qkv and gate. */
static const struct tensor_row rows_gdn_grouped[] = {
    MAT("blk.%d.ssm_in.weight", HF "linear_attn.in_proj_qkvz.weight", gdn.qkvz, AT_MIX(GDN),
        TS_OPTIONAL, TF_NONE, D_EMBD, D_GDN_QKVZ, D_NONE),
    MAT("blk.%d.attn_qkv.weight", NULL, gdn.qkv, AT_MIX(GDN), TS_OPTIONAL, TF_NONE, D_EMBD,
        D_GDN_CONV, D_NONE),
    MAT("blk.%d.attn_gate.weight", NULL, gdn.z, AT_MIX(GDN), TS_OPTIONAL, TF_NONE, D_EMBD,
        D_GDN_INNER, D_NONE),
    MAT("blk.%d.ssm_ba.weight", HF "linear_attn.in_proj_ba.weight", gdn.ba, AT_MIX(GDN), 0, TF_NONE,
        D_EMBD, D_GDN_BA, D_NONE),
    {"blk.%d.ssm_conv1d.weight",
     HF "linear_attn.conv1d.weight",
     NULL,
     offsetof(struct layer_weights, gdn.conv),
     true,
     AT_MIX(GDN),
     TS_F32,
     TF_CONV,
     TF_NONE,
     {D_CONV_TAPS, D_GDN_CONV, D_NONE}},
    VEC("blk.%d.ssm_dt.bias", HF "linear_attn.dt_bias", gdn.dt_b, AT_MIX(GDN), 0, TF_NONE,
        D_GDN_V_HEAD),
    VEC("blk.%d.ssm_a", HF "linear_attn.A_log", gdn.a, AT_MIX(GDN), 0, TF_NEG_EXP, D_GDN_V_HEAD),
    VEC("blk.%d.ssm_norm.weight", HF "linear_attn.norm.weight", gdn.norm, AT_MIX(GDN), 0, TF_NONE,
        D_GDN_V_DIM),
    MAT("blk.%d.ssm_out.weight", HF "linear_attn.out_proj.weight", gdn.out, AT_MIX(GDN), 0, TF_NONE,
        D_GDN_INNER, D_EMBD, D_NONE),
    ROWS_END};

static const struct tensor_row rows_shared[] = {
    MAT("blk.%d.ffn_gate_shexp.weight", HF "mlp.shared_expert.gate_proj.weight", moe.sh_gate,
        AT_FFN_SHARED, 0, TF_NONE, D_EMBD, D_FF_SHARED, D_NONE),
    MAT("blk.%d.ffn_up_shexp.weight", HF "mlp.shared_expert.up_proj.weight", moe.sh_up,
        AT_FFN_SHARED, 0, TF_NONE, D_EMBD, D_FF_SHARED, D_NONE),
    MAT("blk.%d.ffn_down_shexp.weight", HF "mlp.shared_expert.down_proj.weight", moe.sh_down,
        AT_FFN_SHARED, 0, TF_NONE, D_FF_SHARED, D_EMBD, D_NONE),
    VEC("blk.%d.ffn_gate_inp_shexp.weight", HF "mlp.shared_expert_gate.weight", moe.shared_gate,
        AT_FFN_SHARED, 0, TF_NONE, D_EMBD),
    ROWS_END};

static const struct tensor_row rows_nextn[] = {
    MAT("blk.%d.nextn.eh_proj.weight", "mtp.fc.weight", nextn.eh_proj, AT_NEXTN, 0, TF_NONE,
        D_EMBD2, D_EMBD, D_NONE),
    VEC("blk.%d.nextn.enorm.weight", "mtp.pre_fc_norm_embedding.weight", nextn.enorm, AT_NEXTN, 0,
        P1, D_EMBD),
    VEC("blk.%d.nextn.hnorm.weight", "mtp.pre_fc_norm_hidden.weight", nextn.hnorm, AT_NEXTN, 0, P1,
        D_EMBD),
    VEC("blk.%d.nextn.shared_head_norm.weight", "mtp.norm.weight", nextn.head_norm, AT_NEXTN,
        TS_OPTIONAL, P1, D_EMBD),
    MAT("blk.%d.nextn.embed_tokens.weight", NULL, nextn.embd, AT_NEXTN, TS_OPTIONAL, TF_NONE,
        D_EMBD, D_VOCAB, D_NONE),
    MAT("blk.%d.nextn.shared_head_head.weight", NULL, nextn.head, AT_NEXTN, TS_OPTIONAL, TF_NONE,
        D_EMBD, D_VOCAB, D_NONE),
    ROWS_END};

#define COMMON_KEYS                                                                                \
    {"context_length", "max_position_embeddings", KEY_U32, true, NAN},                             \
        {"embedding_length", "hidden_size", KEY_U32, true, NAN},                                   \
        {"attention.head_count", "num_attention_heads", KEY_U32, true, NAN},                       \
        {"attention.head_count_kv", "num_key_value_heads", KEY_U32, true, NAN},                    \
        {"attention.key_length", "head_dim", KEY_U32, true, NAN},                                  \
        {"attention.value_length", "head_dim", KEY_U32, true, NAN},                                \
        {"attention.layer_norm_rms_epsilon", "rms_norm_eps", KEY_F32, true, NAN},                  \
        {"rope.freq_base", "rope_parameters.rope_theta|rope_theta", KEY_F32, true, NAN},           \
        {"ssm.conv_kernel", "linear_conv_kernel_dim", KEY_U32, true, NAN},                         \
        {"ssm.state_size", "linear_key_head_dim", KEY_U32, true, NAN},                             \
        {"ssm.group_count", "linear_num_key_heads", KEY_U32, true, NAN}, {                         \
        "ssm.time_step_rank", "linear_num_value_heads", KEY_U32, true, NAN                         \
    }

static const struct key_row keys_dense[] = {
    COMMON_KEYS, {"feed_forward_length", "intermediate_size", KEY_U32, true, NAN}, {.gguf = NULL}};
static const struct key_row keys_moe[] = {
    COMMON_KEYS,
    {"expert_count", "num_experts", KEY_U32, true, NAN},
    {"expert_used_count", "num_experts_per_tok", KEY_U32, true, NAN},
    {"expert_feed_forward_length", "moe_intermediate_size", KEY_U32, true, NAN},
    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size", KEY_U32, true, NAN},
    {"expert_weights_norm", "norm_topk_prob", KEY_BOOL, false, NAN},
    {.gguf = NULL}};

/* Which layers are recurrent: from layer_types if present; else every
 * full_attention_interval-th layer has attention. */
static int derive(const json_t *config, struct gguf_writer *w, struct err *e, const char *arch) {
    char key[80];
#define KEY(suffix) (snprintf(key, sizeof key, "%s.%s", arch, suffix), key)
    int64_t n_layer = arch_config_int(config, "num_hidden_layers", 0);
    int64_t n_nextn = arch_config_int(config, "mtp_num_hidden_layers", 0);
    int64_t d_v = arch_config_int(config, "linear_value_head_dim", 0);
    int64_t n_v = arch_config_int(config, "linear_num_value_heads", 0);
    int64_t d_head = arch_config_int(config, "head_dim", 0);
    if (n_layer < 1 || n_nextn < 0 || n_layer + n_nextn > ARCH_MAX_LAYERS || d_v < 1 || n_v < 1)
        return err_set(e, CHIMERE_EFORMAT,
                       "config.json: num_hidden_layers, mtp_num_hidden_layers or "
                       "linear value heads: expected positive sizes");
    gguf_put_u32(w, KEY("block_count"), (uint32_t)(n_layer + n_nextn));
    if (n_nextn) gguf_put_u32(w, KEY("nextn_predict_layers"), (uint32_t)n_nextn);
    gguf_put_u32(w, KEY("ssm.inner_size"), (uint32_t)(d_v * n_v));
    const json_t *rope = json_object_get(config, "rope_parameters");
    const json_t *part = json_object_get(rope ? rope : config, "partial_rotary_factor");
    if (!part) part = json_object_get(config, "partial_rotary_factor");
    double factor = json_is_number(part) ? json_number_value(part) : 0.25;
    int64_t n_rot = (int64_t)((double)d_head * factor);
    gguf_put_u32(w, KEY("rope.dimension_count"), (uint32_t)n_rot);
    const json_t *sections = json_object_get(rope, "mrope_section");
    int32_t sec[4] = {0};
    if (json_array_size(sections) >= 3) {
        for (size_t i = 0; i < 3; i++)
            sec[i] = (int32_t)json_integer_value(json_array_get(sections, i));
    } else {
        sec[1] = sec[2] = (int32_t)(n_rot / 6);
        sec[0] = (int32_t)(n_rot / 2) - sec[1] - sec[2];
    }
    gguf_put_array(w, KEY("rope.dimension_sections"), GGUF_I32, sec, 4);
    uint8_t recurrent[ARCH_MAX_LAYERS] = {0};
    int64_t interval = arch_config_int(config, "full_attention_interval", 4);
    if (interval < 1) interval = 4;
    const json_t *types = json_object_get(config, "layer_types");
    for (int64_t il = 0; il < n_layer; il++) {
        const char *t = json_string_value(json_array_get(types, (size_t)il));
        recurrent[il] = t ? strcmp(t, "linear_attention") == 0 : (il + 1) % interval != 0;
    }
    gguf_put_u32(w, KEY("full_attention_interval"), (uint32_t)interval);
    gguf_put_array(w, KEY("attention.recurrent_layers"), GGUF_BOOL, recurrent,
                   (size_t)(n_layer + n_nextn));
#undef KEY
    return 0;
}

static int derive_qwen35moe(const json_t *config, struct gguf_writer *w, struct err *e) {
    return derive(config, w, e, "qwen35moe");
}
static int derive_qwen35(const json_t *config, struct gguf_writer *w, struct err *e) {
    return derive(config, w, e, "qwen35");
}
static int derive_qwen3next(const json_t *config, struct gguf_writer *w, struct err *e) {
    return derive(config, w, e, "qwen3next");
}

static int read_layer_kinds(struct hparams *hp, const struct gguf *g, enum ffn_kind ffn,
                            struct err *e) {
    const struct gguf_kv *flags = key_find(hp, g, "attention.recurrent_layers");
    int32_t interval = 4;
    int rc = key_i32(hp, g, "full_attention_interval", false, 1, ARCH_MAX_LAYERS, &interval, e);
    if (rc) return rc;
    if (flags && (flags->type != GGUF_ARR || flags->n < (uint64_t)hp->n_layer))
        return err_set(e, CHIMERE_EFORMAT,
                       "key %s.attention.recurrent_layers: expected %d items, got %llu",
                       hp->arch->name, hp->n_layer, (unsigned long long)flags->n);
    for (int32_t il = 0; il < arch_n_layer_all(hp); il++) {
        bool recurrent = (il + 1) % interval != 0;
        if (flags && il < hp->n_layer && !gguf_item_bool(flags, (uint64_t)il, &recurrent))
            return err_set(e, CHIMERE_EFORMAT,
                           "key %s.attention.recurrent_layers: expected booleans", hp->arch->name);
        hp->layer[il].mixer = recurrent && il < hp->n_layer ? MIX_GDN : MIX_ATTN;
        hp->layer[il].ffn = (uint8_t)ffn;
    }
    return 0;
}

int read_gdn(struct hparams *hp, const struct gguf *g, struct err *e) {
    int32_t inner = 0;
    int rc = key_i32(hp, g, "ssm.conv_kernel", true, 2, 16, &hp->gdn.d_conv, e);
    if (!rc) rc = key_i32(hp, g, "ssm.state_size", true, 1, 1024, &hp->gdn.d_k, e);
    if (!rc) rc = key_i32(hp, g, "ssm.group_count", true, 1, 1024, &hp->gdn.n_k_head, e);
    if (!rc) rc = key_i32(hp, g, "ssm.time_step_rank", true, 1, 1024, &hp->gdn.n_v_head, e);
    if (!rc) rc = key_i32(hp, g, "ssm.inner_size", true, 1, 1 << 20, &inner, e);
    if (rc) return rc;
    if (inner % hp->gdn.n_v_head || hp->gdn.n_v_head % hp->gdn.n_k_head)
        return err_set(
            e, CHIMERE_EFORMAT,
            "key %s.ssm.inner_size: expected a multiple of %d value heads, themselves a multiple "
            "of %d key heads, got %d",
            hp->arch->name, hp->gdn.n_v_head, hp->gdn.n_k_head, inner);
    hp->gdn.d_v = inner / hp->gdn.n_v_head;
    return 0;
}

static int read_family(struct hparams *hp, const struct gguf *g, enum ffn_kind ffn, struct err *e) {
    hp->has_q_gate = true;
    hp->moe.normalise = true;
    int rc = read_layers(hp, g, e);
    if (!rc) rc = read_layer_kinds(hp, g, ffn, e);
    if (!rc) rc = read_attention(hp, g, e);
    if (!rc) rc = read_gdn(hp, g, e);
    if (!rc) rc = read_rope(hp, g, ROPE_NEOX, e);
    if (!rc && ffn == FFN_MOE) rc = read_moe(hp, g, e);
    if (!rc) rc = key_f32(hp, g, "attention.layer_norm_rms_epsilon", true, 0, 1, &hp->eps, e);
    hp->gdn.eps = hp->gdn.norm_eps = hp->eps;
    return rc;
}

static int read_qwen35moe(struct hparams *hp, const struct gguf *g, struct err *e) {
    return read_family(hp, g, FFN_MOE, e);
}
static int read_qwen35(struct hparams *hp, const struct gguf *g, struct err *e) {
    return read_family(hp, g, FFN_DENSE, e);
}
static int read_qwen3next(struct hparams *hp, const struct gguf *g, struct err *e) {
    hp->gdn.is_grouped = true;
    return read_family(hp, g, FFN_MOE, e);
}

#define FIELDS                                                                                     \
    "num_hidden_layers hidden_act=silu|swish attention_bias linear_value_head_dim "                \
    "linear_num_value_heads "                                                                      \
    "partial_rotary_factor full_attention_interval layer_types mtp_num_hidden_layers "             \
    "mtp_use_dedicated_embeddings=false attn_output_gate=true decoder_sparse_step=1 "              \
    "mlp_only_layers=[] intermediate_size use_sliding_window=false sliding_window "                \
    "max_window_layers output_gate_type=sigmoid|swish"

static const char *const hf_qwen35moe[] = {"qwen3_5_moe", "qwen3_5_moe_text", NULL};
static const char *const hf_qwen35[] = {"qwen3_5", "qwen3_5_text", NULL};
static const char *const hf_qwen3next[] = {"qwen3_next", NULL};

static const struct tensor_row *const t_qwen35moe[] = {
    rows_globals, rows_mixers, rows_gdn, rows_moe, rows_shared, rows_nextn, NULL};
static const struct tensor_row *const t_qwen35[] = {rows_globals, rows_mixers, rows_gdn,
                                                    rows_ffn,     rows_nextn,  NULL};
static const struct tensor_row *const t_qwen3next[] = {
    rows_globals, rows_mixers, rows_gdn_grouped, rows_moe, rows_shared, rows_nextn, NULL};

const struct arch arch_qwen35moe = {.name = "qwen35moe",
                                    .hf_model_types = hf_qwen35moe,
                                    .tensors = t_qwen35moe,
                                    .keys = keys_moe,
                                    .fields = FIELDS,
                                    .derive = derive_qwen35moe,
                                    .read = read_qwen35moe};
const struct arch arch_qwen35 = {.name = "qwen35",
                                 .hf_model_types = hf_qwen35,
                                 .tensors = t_qwen35,
                                 .keys = keys_dense,
                                 .fields = FIELDS,
                                 .derive = derive_qwen35,
                                 .read = read_qwen35};
const struct arch arch_qwen3next = {.name = "qwen3next",
                                    .hf_model_types = hf_qwen3next,
                                    .tensors = t_qwen3next,
                                    .keys = keys_moe,
                                    .fields = FIELDS,
                                    .derive = derive_qwen3next,
                                    .read = read_qwen3next};

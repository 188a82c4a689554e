/* arch_nemotron_h.c: Nemotron-H (dense) and Nemotron 3 (mixture of experts): every layer is one of Mamba-2, attention
 * without positions, or a feed-forward block with squared ReLU and no gate. The routed experts of Nemotron 3 Super
 * work in a projection of the residual stream. */
#include <stddef.h>

#include "base/err.h"
#include "model/arch/arch_config.h"
#include "model/arch/arch_impl.h"

#define HF "model.layers.%d."

static const struct tensor_row rows_globals[] = {
    GMAT("token_embd.weight", "model.embeddings.weight", token_embd, 0, D_EMBD, D_VOCAB),
    GVEC("output_norm.weight", "model.norm_f.weight", output_norm, 0, TF_NONE, D_EMBD),
    GMAT("output.weight", "lm_head.weight", output, TS_TIED, D_EMBD, D_VOCAB), ROWS_END};

/* One norm per layer, before its only block. */
static const struct tensor_row rows_norm[] = {
    VEC("blk.%d.attn_norm.weight", HF "norm.weight", attn_norm, AT_MIXER, 0, TF_NONE, D_EMBD),
    VEC("blk.%d.attn_norm.weight", HF "norm.weight", ffn_norm, AT_FFN_ONLY, 0, TF_NONE, D_EMBD),
    ROWS_END};

/* The prediction block is attention and experts in one layer. */
static const struct tensor_row rows_nextn[] = {
    VEC("blk.%d.post_attention_norm.weight", NULL, ffn_norm, AT_NEXTN, 0, TF_NONE, D_EMBD),
    MAT("blk.%d.nextn.eh_proj.weight", NULL, nextn.eh_proj, AT_NEXTN, 0, TF_NONE, D_EMBD2, D_EMBD,
        D_NONE),
    VEC("blk.%d.nextn.enorm.weight", NULL, nextn.enorm, AT_NEXTN, 0, TF_NONE, D_EMBD),
    VEC("blk.%d.nextn.hnorm.weight", NULL, nextn.hnorm, AT_NEXTN, 0, TF_NONE, D_EMBD),
    VEC("blk.%d.nextn.shared_head_norm.weight", NULL, nextn.head_norm, AT_NEXTN, TS_OPTIONAL,
        TF_NONE, D_EMBD),
    MAT("blk.%d.nextn.embed_tokens.weight", NULL, nextn.embd, AT_NEXTN, TS_OPTIONAL, TF_NONE,
        D_EMBD, D_VOCAB, D_NONE),
    MAT("blk.%d.nextn.shared_head_head.weight", NULL, nextn.head, AT_NEXTN, TS_OPTIONAL, TF_NONE,
        D_EMBD, D_VOCAB, D_NONE),
    ROWS_END};

static const struct tensor_row rows_mamba[] = {ROWS_MAMBA2(HF "mixer."), ROWS_END};

static const struct tensor_row rows_attention[] = {ROWS_ATTN(HF "mixer.", TF_NONE, TF_NONE),
                                                   ROWS_END};

static const struct tensor_row rows_mlp[] = {
    MAT("blk.%d.ffn_up.weight", HF "mixer.up_proj.weight", ffn.up, AT_FFN_DENSE, 0, TF_NONE, D_EMBD,
        D_FF, D_NONE),
    MAT("blk.%d.ffn_down.weight", HF "mixer.down_proj.weight", ffn.down, AT_FFN_DENSE, 0, TF_NONE,
        D_FF, D_EMBD, D_NONE),
    VEC("blk.%d.ffn_up.bias", HF "mixer.up_proj.bias", ffn.up_b, AT_FFN_DENSE, TS_OPTIONAL, TF_NONE,
        D_FF),
    VEC("blk.%d.ffn_down.bias", HF "mixer.down_proj.bias", ffn.down_b, AT_FFN_DENSE, TS_OPTIONAL,
        TF_NONE, D_EMBD),
    ROWS_END};

static const struct tensor_row rows_experts[] = {
    MAT("blk.%d.ffn_gate_inp.weight", HF "mixer.gate.weight", moe.router, AT_FFN_MOE, TS_F32,
        TF_NONE, D_EMBD, D_EXPERT, D_NONE),
    VEC("blk.%d.exp_probs_b.bias", HF "mixer.gate.e_score_correction_bias", moe.select_b,
        AT_FFN_MOE, 0, TF_NONE, D_EXPERT),
    MAT("blk.%d.ffn_up_exps.weight", HF "mixer.experts.%e.up_proj.weight", moe.up, AT_FFN_MOE, 0,
        TF_NONE, D_EXP_IN, D_FF_EXP, D_EXPERT),
    MAT("blk.%d.ffn_down_exps.weight", HF "mixer.experts.%e.down_proj.weight", moe.down, AT_FFN_MOE,
        0, TF_NONE, D_FF_EXP, D_EXP_IN, D_EXPERT),
    MAT("blk.%d.ffn_latent_down.weight", HF "mixer.fc1_latent_proj.weight", moe.latent_in,
        AT_FFN_LATENT, 0, TF_NONE, D_EMBD, D_LATENT, D_NONE),
    MAT("blk.%d.ffn_latent_up.weight", HF "mixer.fc2_latent_proj.weight", moe.latent_out,
        AT_FFN_LATENT, 0, TF_NONE, D_LATENT, D_EMBD, D_NONE),
    MAT("blk.%d.ffn_up_shexp.weight", HF "mixer.shared_experts.up_proj.weight", moe.sh_up,
        AT_FFN_SHARED, 0, TF_NONE, D_EMBD, D_FF_SHARED, D_NONE),
    MAT("blk.%d.ffn_down_shexp.weight", HF "mixer.shared_experts.down_proj.weight", moe.sh_down,
        AT_FFN_SHARED, 0, TF_NONE, D_FF_SHARED, D_EMBD, D_NONE),
    ROWS_END};

/* Attention has no positions, so the context is unbounded; the value is the one in other files. */
#define COMMON_KEYS                                                                                \
    {"context_length", "-", KEY_U32, false, 1 << 20},                                              \
        {"embedding_length", "hidden_size", KEY_U32, true, NAN},                                   \
        {"attention.head_count", "num_attention_heads", KEY_U32, true, NAN},                       \
        {"attention.key_length", "head_dim|attention_head_dim", KEY_U32, true, NAN},               \
        {"attention.value_length", "head_dim|attention_head_dim", KEY_U32, true, NAN},             \
        {"attention.layer_norm_epsilon", "layer_norm_epsilon|rms_norm_eps", KEY_F32, true, NAN},   \
        {"attention.layer_norm_rms_epsilon", "layer_norm_epsilon|rms_norm_eps", KEY_F32, true,     \
         NAN},                                                                                     \
        {"ssm.conv_kernel", "conv_kernel", KEY_U32, true, NAN},                                    \
        {"ssm.state_size", "ssm_state_size", KEY_U32, true, NAN},                                  \
        {"ssm.group_count", "n_groups", KEY_U32, true, NAN}, {                                     \
        "ssm.time_step_rank", "mamba_num_heads", KEY_U32, true, NAN                                \
    }

static const struct key_row keys_dense[] = {COMMON_KEYS, {.gguf = NULL}};
static const struct key_row keys_moe[] = {
    COMMON_KEYS,
    {"expert_count", "n_routed_experts", KEY_U32, true, NAN},
    {"expert_used_count", "num_experts_per_tok", KEY_U32, true, NAN},
    {"expert_feed_forward_length", "moe_intermediate_size", KEY_U32, true, NAN},
    {"expert_shared_feed_forward_length", "moe_shared_expert_intermediate_size", KEY_U32, true,
     NAN},
    {"expert_shared_count", "n_shared_experts", KEY_U32, false, 1},
    {"expert_weights_norm", "norm_topk_prob", KEY_BOOL, true, NAN},
    {"expert_weights_scale", "routed_scaling_factor", KEY_F32, true, NAN},
    {"expert_group_count", "n_group", KEY_U32, false, 1},
    {"expert_group_used_count", "topk_group", KEY_U32, false, 1},
    {"moe_latent_size", "moe_latent_size", KEY_U32, false, NAN},
    {.gguf = NULL}};

/* Kind of layer il: M Mamba-2, * attention, - feed-forward, E experts; 0: after the last layer; ?: unknown. */
static char layer_kind(const json_t *config, size_t il) {
    static const struct {
        const char *name;
        char kind;
    } kinds[] = {{"linear_attention", 'M'}, {"mamba", 'M'}, {"full_attention", '*'},
                 {"attention", '*'},        {"mlp", '-'},   {"moe", 'E'}};
    const json_t *list = json_object_get(config, "layers_block_type");
    if (!list) list = json_object_get(config, "layer_types");
    const json_t *pattern = json_object_get(config, "hybrid_override_pattern");
    if (json_is_string(pattern)) {
        char c = il < json_string_length(pattern) ? json_string_value(pattern)[il] : 0;
        return !c || strchr("M*-E", c) ? c : '?';
    }
    if (il >= json_array_size(list)) return 0;
    const char *name = json_string_value(json_array_get(list, il));
    for (size_t i = 0; name && i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(name, kinds[i].name) == 0) return kinds[i].kind;
    return '?';
}

static bool has_experts(const json_t *config) {
    for (size_t il = 0; layer_kind(config, il); il++)
        if (layer_kind(config, il) == 'E') return true;
    return false;
}
static bool has_no_experts(const json_t *config) { return !has_experts(config); }

static int64_t config_size(const json_t *config, const char *key) {
    int64_t i = arch_config_int(config, key, 0);
    return i < 1 << 24 ? i : 0;
}

static int derive(const json_t *config, struct gguf_writer *w, struct err *e, const char *arch,
                  const char *ff_key) {
    uint32_t ff[ARCH_MAX_LAYERS], kv[ARCH_MAX_LAYERS], n = 0;
    int64_t n_ff = config_size(config, ff_key), n_kv = config_size(config, "num_key_value_heads");
    if (!n_kv) n_kv = config_size(config, "num_attention_heads");
    int64_t inner = config_size(config, "mamba_num_heads") * config_size(config, "mamba_head_dim");
    if (inner < 1 || inner > 1 << 20 || n_ff < 1 || n_kv < 1)
        return err_set(e, CHIMERE_EFORMAT,
                       "config.json: mamba_num_heads * mamba_head_dim, %s or num_key_value_heads: "
                       "expected positive sizes",
                       ff_key);
    for (char k; n < ARCH_MAX_LAYERS && (k = layer_kind(config, n)); n++) {
        if (k == '?')
            return err_set(e, CHIMERE_EUNSUPPORTED,
                           "config.json: layer %u: expected mamba, attention, mlp or moe", n);
        ff[n] = k == '-' || k == 'E' ? (uint32_t)n_ff : 0;
        kv[n] = k == '*' ? (uint32_t)n_kv : 0;
    }
    if (!n)
        return err_set(e, CHIMERE_EFORMAT,
                       "config.json: hybrid_override_pattern or layers_block_type: expected the "
                       "kinds of all layers, got none");
    char key[80];
#define KEY(suffix) (snprintf(key, sizeof key, "%s.%s", arch, suffix), key)
    gguf_put_u32(w, KEY("block_count"), n);
    gguf_put_u32(w, KEY("ssm.inner_size"), (uint32_t)inner);
    gguf_put_array(w, KEY("feed_forward_length"), GGUF_U32, ff, n);
    gguf_put_array(w, KEY("attention.head_count_kv"), GGUF_U32, kv, n);
#undef KEY
    return 0;
}

static int derive_dense(const json_t *config, struct gguf_writer *w, struct err *e) {
    return derive(config, w, e, "nemotron_h", "intermediate_size");
}
static int derive_moe(const json_t *config, struct gguf_writer *w, struct err *e) {
    return derive(config, w, e, "nemotron_h_moe", "moe_intermediate_size");
}

/* A layer with key heads is attention, one with hidden values is feed-forward, the others are recurrent. */
static int read_kinds(struct hparams *hp, const struct gguf *g, enum ffn_kind ffn, struct err *e) {
    int32_t n_all = arch_n_layer_all(hp);
    int rc = key_i32_per_layer(hp, g, "attention.head_count_kv", true, 0, 4096, n_all,
                               &hp->layer[0].n_kv_head, sizeof hp->layer[0], e);
    for (int32_t il = 0; !rc && il < n_all; il++) {
        struct layer_shape *l = &hp->layer[il];
        if (l->is_nextn && (!l->n_kv_head || !l->n_ff))
            return err_set(e, CHIMERE_EUNSUPPORTED,
                           "layer %d: expected a prediction block with attention and experts", il);
        l->mixer = l->n_kv_head ? MIX_ATTN : l->n_ff ? MIX_NONE : MIX_MAMBA2;
        l->ffn = (uint8_t)(l->n_ff ? ffn : FFN_NONE);
    }
    return rc;
}

static int read_experts(struct hparams *hp, const struct gguf *g, struct err *e) {
    hp->moe.gating = MOE_SIGMOID;
    int rc = read_moe(hp, g, e);
    if (!rc) rc = key_i32(hp, g, "moe_latent_size", false, 0, hp->n_embd, &hp->moe.n_latent, e);
    return rc;
}

static int read_family(struct hparams *hp, const struct gguf *g, enum ffn_kind ffn, struct err *e) {
    hp->act = ACT_RELU2;
    int rc = read_layers(hp, g, e);
    if (!rc) rc = read_kinds(hp, g, ffn, e);
    if (!rc) rc = read_attention(hp, g, e);
    if (!rc) rc = read_mamba2(hp, g, e);
    if (!rc && ffn == FFN_MOE) rc = read_experts(hp, g, e);
    /* files contain one of the two names, or both */
    bool has_rms = key_find(hp, g, "attention.layer_norm_rms_epsilon") != NULL;
    const char *eps = has_rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon";
    if (!rc) rc = key_f32(hp, g, eps, true, 0, 1, &hp->eps, e);
    return rc;
}

static int read_dense(struct hparams *hp, const struct gguf *g, struct err *e) {
    return read_family(hp, g, FFN_DENSE, e);
}
static int read_moe_family(struct hparams *hp, const struct gguf *g, struct err *e) {
    return read_family(hp, g, FFN_MOE, e);
}

#define FIELDS                                                                                     \
    "mlp_hidden_act=relu2 mamba_hidden_act=silu hybrid_override_pattern layers_block_type "        \
    "layer_types num_hidden_layers attention_bias mlp_bias use_bias mamba_proj_bias "              \
    "use_conv_bias mamba_head_dim chunk_size expand num_key_value_heads intermediate_size "        \
    "time_step_limit time_step_min time_step_max time_step_floor time_step_rank "                  \
    "residual_in_fp32 rescale_prenorm_residual partial_rotary_factor num_nextn_predict_layers "    \
    "mtp_layers_block_type mtp_hybrid_override_pattern mtp_num_hidden_layers topk_group "          \
    "n_routed_experts n_shared_experts num_experts_per_tok moe_intermediate_size "                 \
    "moe_shared_expert_intermediate_size n_group norm_topk_prob routed_scaling_factor "            \
    "moe_shared_expert_overlap norm_eps use_mamba_kernels num_query_groups"

static const char *const hf_types[] = {"nemotron_h", NULL};

static const struct tensor_row *const t_dense[] = {rows_globals,   rows_norm, rows_mamba,
                                                   rows_attention, rows_mlp,  NULL};
static const struct tensor_row *const t_moe[] = {
    rows_globals, rows_norm, rows_mamba, rows_attention, rows_experts, rows_nextn, NULL};

const struct arch arch_nemotron_h = {.name = "nemotron_h",
                                     .hf_model_types = hf_types,
                                     .tensors = t_dense,
                                     .keys = keys_dense,
                                     .fields = FIELDS,
                                     .derive = derive_dense,
                                     .read = read_dense,
                                     .suits = has_no_experts};
const struct arch arch_nemotron_h_moe = {.name = "nemotron_h_moe",
                                         .hf_model_types = hf_types,
                                         .tensors = t_moe,
                                         .keys = keys_moe,
                                         .fields = FIELDS,
                                         .derive = derive_moe,
                                         .read = read_moe_family,
                                         .suits = has_experts};

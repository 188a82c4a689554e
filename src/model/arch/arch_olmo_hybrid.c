/* arch_olmo_hybrid.c: Olmo-Hybrid: gated delta-net layers with a projection each for q, k, v, gate, decay and beta, and
 * layers of full attention that normalize what their blocks add. */
#include <stddef.h>

#include "base/err.h"
#include "model/arch/arch_config.h"
#include "model/arch/arch_impl.h"

#define HF "model.layers.%d."

static const struct tensor_row rows_mixers[] = {
    VEC("blk.%d.attn_norm.weight", HF "input_layernorm.weight", attn_norm, AT_MIX(GDN), 0, TF_NONE,
        D_EMBD),
    VEC("blk.%d.ffn_norm.weight", HF "post_attention_layernorm.weight", ffn_norm, AT_MIX(GDN), 0,
        TF_NONE, D_EMBD),
    VEC("blk.%d.post_attention_norm.weight", HF "post_attention_layernorm.weight", attn_post_norm,
        AT_ATTN, 0, TF_NONE, D_EMBD),
    VEC("blk.%d.post_ffw_norm.weight", HF "post_feedforward_layernorm.weight", ffn_post_norm,
        AT_ATTN, 0, TF_NONE, D_EMBD),
    ROWS_ATTN(HF "self_attn.", TF_NONE, TF_NONE),
    VEC("blk.%d.attn_q_norm.weight", HF "self_attn.q_norm.weight", attn.q_norm, AT_ATTN, 0, TF_NONE,
        D_Q),
    VEC("blk.%d.attn_k_norm.weight", HF "self_attn.k_norm.weight", attn.k_norm, AT_ATTN, 0, TF_NONE,
        D_K),
    ROWS_END};

static const struct tensor_row rows_gdn[] = {
    MAT("blk.%d.attn_qkv.weight", HF "linear_attn.%p_proj.weight", gdn.qkv, AT_MIX(GDN), 0, TF_NONE,
        D_EMBD, D_GDN_CONV, D_NONE),
    MAT("blk.%d.attn_gate.weight", HF "linear_attn.g_proj.weight", gdn.z, AT_MIX(GDN), 0, TF_NONE,
        D_EMBD, D_GDN_INNER, D_NONE),
    MAT("blk.%d.ssm_beta.weight", HF "linear_attn.b_proj.weight", gdn.beta, AT_MIX(GDN), 0, TF_NONE,
        D_EMBD, D_GDN_V_HEAD, D_NONE),
    MAT("blk.%d.ssm_alpha.weight", HF "linear_attn.a_proj.weight", gdn.alpha, AT_MIX(GDN), 0,
        TF_NONE, D_EMBD, D_GDN_V_HEAD, D_NONE),
    {"blk.%d.ssm_conv1d.weight",
     HF "linear_attn.%p_conv1d.weight",
     HF "linear_attn.conv1d.weight",
     offsetof(struct layer_weights, gdn.conv),
     true,
     AT_MIX(GDN),
     TS_F32,
     TF_NONE,
     TF_NONE,
     {D_CONV_TAPS, D_GDN_CONV, D_NONE}},
    VEC("blk.%d.ssm_dt.bias", HF "linear_attn.dt_bias", gdn.dt_b, AT_MIX(GDN), 0, TF_NONE,
        D_GDN_V_HEAD),
    VEC("blk.%d.ssm_a", HF "linear_attn.A_log", gdn.a, AT_MIX(GDN), 0, TF_NEG_EXP, D_GDN_V_HEAD),
    VEC("blk.%d.ssm_norm.weight", HF "linear_attn.o_norm.weight", gdn.norm, AT_MIX(GDN), 0, TF_NONE,
        D_GDN_V_DIM),
    MAT("blk.%d.ssm_out.weight", HF "linear_attn.o_proj.weight", gdn.out, AT_MIX(GDN), 0, TF_NONE,
        D_GDN_INNER, D_EMBD, D_NONE),
    ROWS_END};

static const struct key_row keys[] = {
    {"context_length", "max_position_embeddings", KEY_U32, true, NAN},
    {"embedding_length", "hidden_size", KEY_U32, true, NAN},
    {"block_count", "num_hidden_layers", KEY_U32, true, NAN},
    {"feed_forward_length", "intermediate_size", KEY_U32, true, NAN},
    {"attention.head_count", "num_attention_heads", KEY_U32, true, NAN},
    {"attention.head_count_kv", "num_key_value_heads", KEY_U32, false, NAN},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", KEY_F32, true, NAN},
    {"rope.freq_base", "rope_parameters.rope_theta|rope_theta", KEY_F32, false, NAN},
    {"ssm.conv_kernel", "linear_conv_kernel_dim", KEY_U32, true, NAN},
    {"ssm.negative_eigenvalues", "linear_allow_neg_eigval", KEY_BOOL, false, 1},
    {.gguf = NULL}};

/* As in transformers, a null as rope_theta means no rotation, and no value means the default. */
static bool has_rope(const json_t *config) {
    const json_t *rope = json_object_get(config, "rope_parameters");
    const json_t *theta = json_object_get(json_is_object(rope) ? rope : config, "rope_theta");
    return !json_is_null(theta);
}

/* A checkpoint may leave sizes to the number of attention heads. */
static int derive(const json_t *config, struct gguf_writer *w, struct err *e) {
    int64_t n_layer = arch_config_int(config, "num_hidden_layers", 0);
    int64_t n_head = arch_config_int(config, "num_attention_heads", 0);
    int64_t n_k = arch_config_int(config, "linear_num_key_heads", n_head);
    int64_t n_v = arch_config_int(config, "linear_num_value_heads", n_head);
    int64_t d_k = arch_config_int(config, "linear_key_head_dim", 0);
    int64_t n_embd = arch_config_int(config, "hidden_size", 0);
    if (d_k == 0 && n_k > 0 && n_embd > 0 && n_embd <= ARCH_MAX_EMBD) d_k = 3 * n_embd / (4 * n_k);
    int64_t d_v = arch_config_int(config, "linear_value_head_dim", 2 * (d_k < 1024 ? d_k : 0));
    if (n_layer < 1 || n_layer > ARCH_MAX_LAYERS || n_k < 1 || n_k > 1024 || n_v < 1 ||
        n_v > 1024 || d_k < 1 || d_k > 1024 || d_v < 1 || d_v > 1024)
        return err_set(e, CHIMERE_EFORMAT,
                       "config.json: num_hidden_layers, or heads and their sizes of linear "
                       "attention: expected sizes of a model");
    gguf_put_u32(w, "olmo-hybrid.ssm.group_count", (uint32_t)n_k);
    gguf_put_u32(w, "olmo-hybrid.ssm.time_step_rank", (uint32_t)n_v);
    gguf_put_u32(w, "olmo-hybrid.ssm.state_size", (uint32_t)d_k);
    gguf_put_u32(w, "olmo-hybrid.ssm.inner_size", (uint32_t)(d_v * n_v));
    gguf_put_bool(w, "olmo-hybrid.rope.scaling.finetuned", has_rope(config));
    const json_t *types = json_object_get(config, "layer_types");
    uint8_t recurrent[ARCH_MAX_LAYERS] = {0};
    for (int64_t il = 0; il < n_layer; il++) {
        const char *type = json_string_value(json_array_get(types, (size_t)il));
        recurrent[il] = type ? strcmp(type, "linear_attention") == 0
                             : il % 4 != 3 && !(n_layer < 4 && il + 1 == n_layer);
        if (type && !recurrent[il] && strcmp(type, "full_attention") != 0)
            return err_set(e, CHIMERE_EUNSUPPORTED,
                           "config.json: layer_types: expected linear_attention or "
                           "full_attention, got '%s'",
                           type);
    }
    gguf_put_array(w, "olmo-hybrid.attention.recurrent_layers", GGUF_BOOL, recurrent,
                   (size_t)n_layer);
    return 0;
}

static int read_layer_kinds(struct hparams *hp, const struct gguf *g, struct err *e) {
    const struct gguf_kv *flags = key_find(hp, g, "attention.recurrent_layers");
    if (!flags || flags->type != GGUF_ARR || flags->n < (uint64_t)hp->n_layer)
        return err_set(e, CHIMERE_EFORMAT, "key %s.attention.recurrent_layers: expected %d items",
                       hp->arch->name, hp->n_layer);
    for (int32_t il = 0; il < hp->n_layer; il++) {
        struct layer_shape *l = &hp->layer[il];
        bool recurrent = false;
        if (!gguf_item_bool(flags, (uint64_t)il, &recurrent))
            return err_set(e, CHIMERE_EFORMAT,
                           "key %s.attention.recurrent_layers: expected booleans", hp->arch->name);
        l->mixer = recurrent ? MIX_GDN : MIX_ATTN;
        l->ffn = FFN_DENSE;
        if (l->n_ff < 1)
            return err_set(e, CHIMERE_EFORMAT,
                           "key %s.feed_forward_length: expected at least 1, got %d",
                           hp->arch->name, l->n_ff);
    }
    return 0;
}

static int read_olmo_hybrid(struct hparams *hp, const struct gguf *g, struct err *e) {
    bool rotates = true, negative = true;
    int rc = read_trunk(hp, g, e);
    if (!rc) rc = read_layer_kinds(hp, g, e);
    if (!rc) rc = read_attention(hp, g, e);
    if (!rc) rc = key_bool(hp, g, "rope.scaling.finetuned", &rotates, e);
    if (!rc) rc = read_rope(hp, g, rotates ? ROPE_NEOX : ROPE_NONE, e);
    if (!rc) rc = read_gdn(hp, g, e);
    if (!rc) rc = key_bool(hp, g, "ssm.negative_eigenvalues", &negative, e);
    if (!rc) rc = key_f32(hp, g, "attention.layer_norm_rms_epsilon", true, 0, 1, &hp->eps, e);
    hp->has_wide_qk_norm = hp->has_post_norm = true;
    hp->gdn.is_grouped = true;
    hp->gdn.beta_scale = negative ? 2 : 1;
    hp->gdn.eps = 1e-6f; /* constants of the published code */
    hp->gdn.norm_eps = 1e-5f;
    return rc;
}

static const char *const hf_types[] = {"olmo_hybrid", NULL};

/* The names in published checkpoints of the norms before the blocks of recurrent layers. */
static const struct name_alias aliases[] = {
    {"input_layernorm.", "attention_layer_norm."},
    {"post_attention_layernorm.", "feedforward_layer_norm."},
    {NULL, NULL}};

static const struct tensor_row *const tables[] = {rows_embd, rows_mixers, rows_gdn, rows_ffn, NULL};

const struct arch arch_olmo_hybrid = {
    .name = "olmo-hybrid",
    .hf_model_types = hf_types,
    .tensors = tables,
    .keys = keys,
    .fields = "hidden_act=silu|swish attention_bias layer_types linear_num_key_heads "
              "linear_num_value_heads linear_key_head_dim linear_value_head_dim linear_a_log_min "
              "linear_a_log_max linear_dt_min linear_dt_max linear_dt_init_floor",
    .derive = derive,
    .read = read_olmo_hybrid,
    .aliases = aliases};

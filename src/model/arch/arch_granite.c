/* arch_granite.c: Granite 3, and the Granite 4 models whose layers all have attention; dense and mixture of experts.
 * The blocks are llama's; embeddings, attention, residual sums and logits are scaled. */
#include <stddef.h>

#include "base/err.h"
#include "model/arch/arch_config.h"
#include "model/arch/arch_impl.h"

#define HF "model.layers.%d."

static const struct tensor_row rows_layer[] = {
    VEC("blk.%d.attn_norm.weight", HF "input_layernorm.weight", attn_norm, AT_LAYER, 0, TF_NONE,
        D_EMBD),
    ROWS_ATTN(HF "self_attn.", TF_ROPE_PERMUTE_Q, TF_ROPE_PERMUTE_K), ROWS_END};

/* The dense models of Granite 4 use the shared expert's names. */
#define HALF(gguf_, hf_, slot_, half_)                                                             \
    {                                                                                              \
        gguf_, hf_, HF "shared_mlp.input_linear.weight", offsetof(struct layer_weights, slot_),    \
            false, AT_FFN_DENSE, 0, TF_NONE, half_, {                                              \
            D_EMBD, D_FF, D_NONE                                                                   \
        }                                                                                          \
    }
static const struct tensor_row rows_dense[] = {
    HALF("blk.%d.ffn_gate.weight", HF "mlp.gate_proj.weight", ffn.gate, TF_FIRST_HALF),
    HALF("blk.%d.ffn_up.weight", HF "mlp.up_proj.weight", ffn.up, TF_SECOND_HALF),
    {"blk.%d.ffn_down.weight",
     HF "mlp.down_proj.weight",
     HF "shared_mlp.output_linear.weight",
     offsetof(struct layer_weights, ffn.down),
     false,
     AT_FFN_DENSE,
     0,
     TF_NONE,
     TF_NONE,
     {D_FF, D_EMBD, D_NONE}},
    VEC("blk.%d.ffn_gate.bias", HF "mlp.gate_proj.bias", ffn.gate_b, AT_FFN_DENSE, TS_OPTIONAL,
        TF_NONE, D_FF),
    VEC("blk.%d.ffn_up.bias", HF "mlp.up_proj.bias", ffn.up_b, AT_FFN_DENSE, TS_OPTIONAL, TF_NONE,
        D_FF),
    VEC("blk.%d.ffn_down.bias", HF "mlp.down_proj.bias", ffn.down_b, AT_FFN_DENSE, TS_OPTIONAL,
        TF_NONE, D_EMBD),
    ROWS_END};

#define COMMON_KEYS                                                                                \
    {"context_length", "max_position_embeddings", KEY_U32, true, NAN},                             \
        {"embedding_length", "hidden_size", KEY_U32, true, NAN},                                   \
        {"block_count", "num_hidden_layers", KEY_U32, true, NAN},                                  \
        {"attention.head_count", "num_attention_heads", KEY_U32, true, NAN},                       \
        {"attention.head_count_kv", "num_key_value_heads|num_attention_heads", KEY_U32, true,      \
         NAN},                                                                                     \
        {"attention.layer_norm_rms_epsilon", "rms_norm_eps", KEY_F32, true, NAN},                  \
        {"attention.scale", "attention_multiplier", KEY_F32, false, 1},                            \
        {"embedding_scale", "embedding_multiplier", KEY_F32, false, 1},                            \
        {"residual_scale", "residual_multiplier", KEY_F32, false, 1},                              \
        {"logit_scale", "logits_scaling", KEY_F32, false, 1}, {                                    \
        "rope.freq_base", "rope_parameters.rope_theta|rope_theta", KEY_F32, false, 10000           \
    }

static const struct key_row keys_dense[] = {COMMON_KEYS, {.gguf = NULL}};
static const struct key_row keys_moe[] = {
    COMMON_KEYS,
    {"feed_forward_length", "intermediate_size", KEY_U32, true, NAN},
    {"expert_count", "num_local_experts", KEY_U32, true, NAN},
    {"expert_used_count", "num_experts_per_tok", KEY_U32, true, NAN},
    {"expert_shared_feed_forward_length", "shared_intermediate_size", KEY_U32, false, NAN},
    {.gguf = NULL}};

static bool is_hybrid_type(const json_t *config) {
    return arch_config_is(config, "model_type", "granitemoehybrid");
}

/* Whether every layer has attention. */
static bool only_attends(const json_t *config) {
    const json_t *kinds = json_object_get(config, "layer_types"), *kind;
    size_t i;
    if (!kinds) kinds = json_object_get(config, "layers_block_type");
    if (!is_hybrid_type(config)) return true;
    json_array_foreach((json_t *)kinds, i, kind) {
        const char *name = json_string_value(kind);
        if (!name || (strcmp(name, "attention") != 0 && strcmp(name, "full_attention") != 0))
            return false;
    }
    return json_array_size(kinds) > 0;
}

static bool suits_dense(const json_t *config) {
    return only_attends(config) && arch_config_int(config, "num_local_experts", 0) == 0;
}
static bool suits_moe(const json_t *config) {
    return only_attends(config) && arch_config_int(config, "num_local_experts", 0) > 0;
}

static void put_rope(const json_t *config, const char *key, struct gguf_writer *w) {
    gguf_put_bool(w, key,
                  !is_hybrid_type(config) ||
                      arch_config_is(config, "position_embedding_type", "rope"));
}

static int derive_dense(const json_t *config, struct gguf_writer *w, struct err *e) {
    const char *name = is_hybrid_type(config) ? "shared_intermediate_size" : "intermediate_size";
    int64_t n_ff = arch_config_int(config, name, 0);
    if (n_ff < 1 || n_ff > 1 << 24)
        return err_set(e, CHIMERE_EFORMAT, "config.json: %s: expected 1 to %d, got %lld", name,
                       1 << 24, (long long)n_ff);
    gguf_put_u32(w, "granite.feed_forward_length", (uint32_t)n_ff);
    put_rope(config, "granite.rope.scaling.finetuned", w);
    return 0;
}

static int derive_moe(const json_t *config, struct gguf_writer *w, struct err *e) {
    (void)e;
    put_rope(config, "granitemoe.rope.scaling.finetuned", w);
    return 0;
}

static int read(struct hparams *hp, const struct gguf *g, struct err *e) {
    bool rotates = true;
    int32_t n_expert = 0;
    int rc = read_layers(hp, g, e);
    if (!rc) rc = key_i32(hp, g, "expert_count", false, 0, ARCH_MAX_EXPERTS, &n_expert, e);
    for (int32_t il = 0; !rc && il < arch_n_layer_all(hp); il++) {
        hp->layer[il].mixer = MIX_ATTN;
        hp->layer[il].ffn = n_expert ? FFN_MOE : FFN_DENSE;
        if (hp->layer[il].n_ff < 1)
            rc = err_set(e, CHIMERE_EFORMAT,
                         "key %s.feed_forward_length: expected at least 1, got %d", hp->arch->name,
                         hp->layer[il].n_ff);
    }
    hp->moe.n_ff = hp->layer[0].n_ff;
    hp->moe.normalise = true;
    if (!rc && n_expert) rc = read_moe(hp, g, e);
    if (!rc) rc = read_attention(hp, g, e);
    if (!rc) rc = key_bool(hp, g, "rope.scaling.finetuned", &rotates, e);
    if (!rc) rc = read_rope(hp, g, rotates ? ROPE_NORM : ROPE_NONE, e);
    if (!rc) rc = read_granite_scales(hp, g, e);
    return rc;
}

#define FIELDS                                                                                     \
    "hidden_act=silu|swish attention_bias mlp_bias layer_types layers_block_type "                 \
    "position_embedding_type intermediate_size shared_intermediate_size num_local_experts "        \
    "num_experts_per_tok normalization_function=rmsnorm init_method mamba_expand mamba_d_head "    \
    "mamba_d_conv mamba_d_state mamba_n_heads mamba_n_groups mamba_conv_bias mamba_proj_bias "     \
    "mamba_chunk_size time_step_limit time_step_min time_step_max"

static const char *const hf_dense[] = {"granite", "granitemoehybrid", NULL};
static const char *const hf_moe[] = {"granitemoe", "granitemoeshared", "granitemoehybrid", NULL};

static const struct tensor_row *const t_dense[] = {rows_embd, rows_layer, rows_ffn_norm, rows_dense,
                                                   NULL};
static const struct tensor_row *const t_moe[] = {rows_embd, rows_layer, rows_ffn_norm,
                                                 rows_granite_experts, NULL};

const struct arch arch_granite = {.name = "granite",
                                  .hf_model_types = hf_dense,
                                  .tensors = t_dense,
                                  .keys = keys_dense,
                                  .fields = FIELDS,
                                  .derive = derive_dense,
                                  .read = read,
                                  .suits = suits_dense};
const struct arch arch_granite_moe = {.name = "granitemoe",
                                      .hf_model_types = hf_moe,
                                      .tensors = t_moe,
                                      .keys = keys_moe,
                                      .fields = FIELDS,
                                      .derive = derive_moe,
                                      .read = read,
                                      .suits = suits_moe};

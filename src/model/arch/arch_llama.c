/* arch_llama.c: plain decoder families: llama (with Mixtral), qwen2, qwen3, qwen3moe. */
#include <stddef.h>

#include "model/arch/arch_config.h"
#include "model/arch/arch_impl.h"

#define HF "model.layers.%d."

const struct tensor_row rows_embd[] = {
    GMAT("token_embd.weight", "model.embed_tokens.weight", token_embd, 0, D_EMBD, D_VOCAB),
    GVEC("output_norm.weight", "model.norm.weight", output_norm, 0, TF_NONE, D_EMBD),
    GMAT("output.weight", "lm_head.weight", output, TS_TIED, D_EMBD, D_VOCAB),
    GVEC("rope_freqs.weight", NULL, rope_freqs, TS_OPTIONAL, TF_NONE, D_NONE), ROWS_END};

const struct tensor_row rows_attn[] = {VEC("blk.%d.attn_norm.weight", HF "input_layernorm.weight",
                                           attn_norm, AT_ATTN, 0, TF_NONE, D_EMBD),
                                       ROWS_ATTN(HF "self_attn.", TF_NONE, TF_NONE), ROWS_END};

/* In llama files RoPE rotates adjacent elements; Hugging Face pairs the two halves. */
static const struct tensor_row rows_attn_permuted[] = {
    VEC("blk.%d.attn_norm.weight", HF "input_layernorm.weight", attn_norm, AT_ATTN, 0, TF_NONE,
        D_EMBD),
    ROWS_ATTN(HF "self_attn.", TF_ROPE_PERMUTE_Q, TF_ROPE_PERMUTE_K), ROWS_END};

static const struct tensor_row rows_qk_norm[] = {
    VEC("blk.%d.attn_q_norm.weight", HF "self_attn.q_norm.weight", attn.q_norm, AT_ATTN, 0, TF_NONE,
        D_HEAD_K),
    VEC("blk.%d.attn_k_norm.weight", HF "self_attn.k_norm.weight", attn.k_norm, AT_ATTN, 0, TF_NONE,
        D_HEAD_K),
    ROWS_END};

/* Of a reranker: the head's rows of its two answers. */
static const struct tensor_row rows_judge[] = {{"cls.output.weight",
                                                "lm_head.weight",
                                                "model.embed_tokens.weight",
                                                offsetof(struct global_weights, cls_out),
                                                false,
                                                AT_GLOBAL,
                                                TS_OPTIONAL,
                                                TF_LABEL_ROWS,
                                                TF_LABEL_ROWS,
                                                {D_EMBD, D_LABEL, D_NONE}},
                                               ROWS_END};

const struct tensor_row rows_ffn_norm[] = {VEC("blk.%d.ffn_norm.weight",
                                               HF "post_attention_layernorm.weight", ffn_norm,
                                               AT_LAYER, 0, TF_NONE, D_EMBD),
                                           ROWS_END};

const struct tensor_row rows_ffn[] = {MAT("blk.%d.ffn_gate.weight", HF "mlp.gate_proj.weight",
                                          ffn.gate, AT_FFN_DENSE, 0, TF_NONE, D_EMBD, D_FF, D_NONE),
                                      MAT("blk.%d.ffn_up.weight", HF "mlp.up_proj.weight", ffn.up,
                                          AT_FFN_DENSE, 0, TF_NONE, D_EMBD, D_FF, D_NONE),
                                      MAT("blk.%d.ffn_down.weight", HF "mlp.down_proj.weight",
                                          ffn.down, AT_FFN_DENSE, 0, TF_NONE, D_FF, D_EMBD, D_NONE),
                                      VEC("blk.%d.ffn_gate.bias", HF "mlp.gate_proj.bias",
                                          ffn.gate_b, AT_FFN_DENSE, TS_OPTIONAL, TF_NONE, D_FF),
                                      VEC("blk.%d.ffn_up.bias", HF "mlp.up_proj.bias", ffn.up_b,
                                          AT_FFN_DENSE, TS_OPTIONAL, TF_NONE, D_FF),
                                      VEC("blk.%d.ffn_down.bias", HF "mlp.down_proj.bias",
                                          ffn.down_b, AT_FFN_DENSE, TS_OPTIONAL, TF_NONE, D_EMBD),
                                      ROWS_END};

#define EXPERTS(name_, hf_, fused_, slot_, tf_, a, b)                                              \
    {                                                                                              \
        name_, hf_, fused_, offsetof(struct layer_weights, slot_), false, AT_FFN_MOE, TS_OPTIONAL, \
            TF_NONE, tf_, {                                                                        \
            a, b, D_EXPERT                                                                         \
        }                                                                                          \
    }

const struct tensor_row rows_moe[] = {
    MAT("blk.%d.ffn_gate_inp.weight", HF "mlp.gate.weight", moe.router, AT_FFN_MOE, TS_F32, TF_NONE,
        D_EMBD, D_EXPERT, D_NONE),
    EXPERTS("blk.%d.ffn_gate_exps.weight", HF "mlp.experts.%e.gate_proj.weight",
            HF "mlp.experts.gate_up_proj", moe.gate, TF_FIRST_HALF, D_EMBD, D_FF_EXP),
    EXPERTS("blk.%d.ffn_up_exps.weight", HF "mlp.experts.%e.up_proj.weight",
            HF "mlp.experts.gate_up_proj", moe.up, TF_SECOND_HALF, D_EMBD, D_FF_EXP),
    EXPERTS("blk.%d.ffn_gate_up_exps.weight", NULL, NULL, moe.gate_up, TF_NONE, D_EMBD, D_FF_EXP2),
    {"blk.%d.ffn_down_exps.weight",
     HF "mlp.experts.%e.down_proj.weight",
     HF "mlp.experts.down_proj",
     offsetof(struct layer_weights, moe.down),
     false,
     AT_FFN_MOE,
     0,
     TF_NONE,
     TF_NONE,
     {D_FF_EXP, D_EMBD, D_EXPERT}},
    ROWS_END};

static const struct tensor_row rows_moe_mixtral[] = {
    MAT("blk.%d.ffn_gate_inp.weight", HF "block_sparse_moe.gate.weight", moe.router, AT_FFN_MOE,
        TS_F32, TF_NONE, D_EMBD, D_EXPERT, D_NONE),
    MAT("blk.%d.ffn_gate_exps.weight", HF "block_sparse_moe.experts.%e.w1.weight", moe.gate,
        AT_FFN_MOE, 0, TF_NONE, D_EMBD, D_FF_EXP, D_EXPERT),
    MAT("blk.%d.ffn_up_exps.weight", HF "block_sparse_moe.experts.%e.w3.weight", moe.up, AT_FFN_MOE,
        0, TF_NONE, D_EMBD, D_FF_EXP, D_EXPERT),
    MAT("blk.%d.ffn_down_exps.weight", HF "block_sparse_moe.experts.%e.w2.weight", moe.down,
        AT_FFN_MOE, 0, TF_NONE, D_FF_EXP, D_EMBD, D_EXPERT),
    ROWS_END};

#define COMMON_KEYS                                                                                \
    {"context_length", "max_position_embeddings", KEY_U32, true, NAN},                             \
        {"embedding_length", "hidden_size", KEY_U32, true, NAN},                                   \
        {"block_count", "num_hidden_layers", KEY_U32, true, NAN},                                  \
        {"feed_forward_length", "intermediate_size", KEY_U32, true, NAN},                          \
        {"attention.head_count", "num_attention_heads", KEY_U32, true, NAN},                       \
        {"attention.head_count_kv", "num_key_value_heads|num_attention_heads", KEY_U32, true,      \
         NAN},                                                                                     \
        {"attention.key_length", "head_dim", KEY_U32, false, NAN},                                 \
        {"attention.value_length", "head_dim", KEY_U32, false, NAN},                               \
        {"attention.layer_norm_rms_epsilon", "rms_norm_eps", KEY_F32, true, NAN}, {                \
        "rope.freq_base", "rope_parameters.rope_theta|rope_theta", KEY_F32, false, 10000           \
    }

const struct key_row keys_llama[] = {COMMON_KEYS, {.gguf = NULL}};

static const struct key_row keys_mixtral[] = {
    COMMON_KEYS,
    {"expert_count", "num_local_experts", KEY_U32, true, NAN},
    {"expert_used_count", "num_experts_per_tok", KEY_U32, true, NAN},
    {.gguf = NULL}};

static const struct key_row keys_moe[] = {
    COMMON_KEYS,
    {"expert_count", "num_experts|num_local_experts", KEY_U32, true, NAN},
    {"expert_used_count", "num_experts_per_tok", KEY_U32, true, NAN},
    {"expert_feed_forward_length", "moe_intermediate_size", KEY_U32, true, NAN},
    {"expert_weights_norm", "norm_topk_prob", KEY_BOOL, false, 0},
    {.gguf = NULL}};

static int derive_llama(const json_t *config, struct gguf_writer *w, struct err *e) {
    /* the reference implementation ignores windows */
    if (arch_config_is(config, "model_type", "llama")) return 0;
    return arch_config_put_windows(config, "llama", WINDOW_EVERYWHERE, w, e);
}
/* Ministral 3: queries are scaled up with their distance from the start. */
static int derive_mistral3(const json_t *config, struct gguf_writer *w, struct err *e) {
    const json_t *rope = json_object_get(config, "rope_parameters");
    double beta = arch_config_number(rope, "llama_4_scaling_beta", 0);
    if (beta > 0) gguf_put_f32(w, "mistral3.attention.temperature_scale", (float)beta);
    return arch_config_put_windows(config, "mistral3", WINDOW_EVERYWHERE, w, e);
}
static int derive_qwen2(const json_t *config, struct gguf_writer *w, struct err *e) {
    return arch_config_put_windows(config, "qwen2", WINDOW_IF_USED_LATE, w, e);
}
static int derive_qwen3(const json_t *config, struct gguf_writer *w, struct err *e) {
    return arch_config_put_windows(config, "qwen3", WINDOW_IF_USED_LATE, w, e);
}
static int derive_qwen3moe(const json_t *config, struct gguf_writer *w, struct err *e) {
    return arch_config_put_windows(config, "qwen3moe", WINDOW_IF_USED, w, e);
}

int read_plain(struct hparams *hp, const struct gguf *g, enum rope_mode rope, struct err *e) {
    int rc = read_layers(hp, g, e);
    for (int32_t il = 0; !rc && il < arch_n_layer_all(hp); il++) {
        hp->layer[il].mixer = MIX_ATTN;
        hp->layer[il].ffn = hp->moe.n_expert ? FFN_MOE : FFN_DENSE;
        if (!hp->moe.n_expert && hp->layer[il].n_ff < 1)
            return err_set(e, CHIMERE_EFORMAT,
                           "key %s.feed_forward_length: expected at least 1, got %d",
                           hp->arch->name, hp->layer[il].n_ff);
    }
    if (!rc) rc = read_attention(hp, g, e);
    if (!rc) rc = read_rope(hp, g, rope, e);
    if (!rc) rc = key_f32(hp, g, "attention.layer_norm_rms_epsilon", true, 0, 1, &hp->eps, e);
    return rc;
}

static int read_llama(struct hparams *hp, const struct gguf *g, struct err *e) {
    int32_t n_expert = 0;
    int rc = key_i32(hp, g, "expert_count", false, 0, ARCH_MAX_EXPERTS, &n_expert, e);
    if (!rc && n_expert > 0) {
        /* Mixtral: experts have the dense width; weights of the chosen are normalized */
        hp->moe.normalise = true;
        rc = key_i32(hp, g, "feed_forward_length", true, 1, 1 << 24, &hp->moe.n_ff, e);
        if (!rc) rc = read_moe(hp, g, e);
    }
    return rc ? rc : read_plain(hp, g, ROPE_NORM, e);
}

static int read_mistral3(struct hparams *hp, const struct gguf *g, struct err *e) {
    float all_dim = 0;
    int rc = read_llama(hp, g, e);
    if (!rc) rc = key_f32(hp, g, "attention.temperature_scale", false, 0, 1e3, &hp->temp_scale, e);
    if (!rc) rc = key_f32(hp, g, "rope.scaling.yarn_log_multiplier", false, 0, 1e3, &all_dim, e);
    if (!rc && hp->rope_yarn && all_dim > 0)
        hp->rope_magnitude /= 0.1f * all_dim * logf(hp->rope_factor) + 1.0f;
    return rc;
}

static int read_neox(struct hparams *hp, const struct gguf *g, struct err *e) {
    return read_plain(hp, g, ROPE_NEOX, e);
}

static int read_qwen3moe(struct hparams *hp, const struct gguf *g, struct err *e) {
    hp->moe.normalise = true;
    int rc = read_moe(hp, g, e);
    return rc ? rc : read_plain(hp, g, ROPE_NEOX, e);
}

static const char *const hf_llama[] = {"llama", "mistral", NULL};
static const char *const hf_mixtral[] = {"mixtral", NULL};
static const char *const hf_mistral3[] = {"ministral3", NULL};
static const char *const hf_qwen2[] = {"qwen2", NULL};
static const char *const hf_qwen3[] = {"qwen3", NULL};
static const char *const hf_qwen3moe[] = {"qwen3_moe", NULL};

static const struct tensor_row *const t_llama[] = {rows_embd, rows_attn_permuted, rows_ffn_norm,
                                                   rows_ffn,  rows_moe,           NULL};
static const struct tensor_row *const t_mixtral[] = {rows_embd, rows_attn_permuted, rows_ffn_norm,
                                                     rows_moe_mixtral, NULL};
static const struct tensor_row *const t_qwen2[] = {rows_embd, rows_attn, rows_ffn_norm, rows_ffn,
                                                   NULL};
static const struct tensor_row *const t_qwen3[] = {
    rows_embd, rows_judge, rows_attn, rows_qk_norm, rows_ffn_norm, rows_ffn, NULL};
static const struct tensor_row *const t_qwen3moe[] = {rows_embd,     rows_attn, rows_qk_norm,
                                                      rows_ffn_norm, rows_moe,  NULL};

const struct arch arch_llama = {
    .name = "llama",
    .hf_model_types = hf_llama,
    .tensors = t_llama,
    .keys = keys_llama,
    .fields =
        "hidden_act=silu|swish attention_bias mlp_bias head_dim sliding_window use_sliding_window "
        "layer_types rope_interleaved=false is_llama_config",
    .derive = derive_llama,
    .read = read_llama};
/* Converted files have llama's form; only the checkpoints differ. */
const struct arch arch_mixtral = {.name = "llama",
                                  .hf_model_types = hf_mixtral,
                                  .tensors = t_mixtral,
                                  .keys = keys_mixtral,
                                  .fields =
                                      "hidden_act=silu|swish sliding_window layer_types head_dim",
                                  .derive = derive_llama,
                                  .read = read_llama};
const struct arch arch_mistral3 = {
    .name = "mistral3",
    .hf_model_types = hf_mistral3,
    .tensors = t_llama,
    .keys = keys_llama,
    .fields = "hidden_act=silu|swish head_dim sliding_window layer_types rope:llama_4_scaling_beta "
              "rope:max_position_embeddings",
    .derive = derive_mistral3,
    .read = read_mistral3};
const struct arch arch_qwen2 = {
    .name = "qwen2",
    .hf_model_types = hf_qwen2,
    .tensors = t_qwen2,
    .keys = keys_llama,
    .fields =
        "hidden_act=silu|swish sliding_window use_sliding_window max_window_layers layer_types "
        "attention_bias",
    .derive = derive_qwen2,
    .read = read_neox};
const struct arch arch_qwen3 = {
    .name = "qwen3",
    .hf_model_types = hf_qwen3,
    .tensors = t_qwen3,
    .keys = keys_llama,
    .fields =
        "hidden_act=silu|swish sliding_window use_sliding_window max_window_layers layer_types "
        "attention_bias",
    .derive = derive_qwen3,
    .read = read_neox};
const struct arch arch_qwen3moe = {
    .name = "qwen3moe",
    .hf_model_types = hf_qwen3moe,
    .tensors = t_qwen3moe,
    .keys = keys_moe,
    .fields =
        "hidden_act=silu|swish sliding_window use_sliding_window max_window_layers layer_types "
        "attention_bias decoder_sparse_step=1 mlp_only_layers=[]",
    .derive = derive_qwen3moe,
    .read = read_qwen3moe};

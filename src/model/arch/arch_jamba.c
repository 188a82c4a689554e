/* arch_jamba.c: Jamba (Lieber et al., arXiv:2403.19887; AI21): Mamba-1 layers with norms of dt, B and C; every few
 * layers attention without positions instead; after each, a SwiGLU or experts.
 *
 * Files of other programs do not list the layers with experts; the presence of a router shows it. Chimère's files also
 * list them in jamba.expert_layers, an array of booleans. */
#include <stddef.h>

#include "base/err.h"
#include "model/arch/arch_config.h"
#include "model/arch/arch_impl.h"

#define HF "model.layers.%d."
#define FF HF "feed_forward."

static const struct tensor_row rows_globals[] = {
    GMAT("token_embd.weight", "model.embed_tokens.weight", token_embd, 0, D_EMBD, D_VOCAB),
    GVEC("output_norm.weight", "model.final_layernorm.weight", output_norm, 0, TF_NONE, D_EMBD),
    GMAT("output.weight", "lm_head.weight", output, TS_TIED, D_EMBD, D_VOCAB), ROWS_END};

static const struct tensor_row rows_mixers[] = {
    VEC("blk.%d.attn_norm.weight", HF "input_layernorm.weight", attn_norm, AT_LAYER, 0, TF_NONE,
        D_EMBD),
    ROWS_ATTN(HF "self_attn.", TF_NONE, TF_NONE),
    ROWS_MAMBA1(HF "mamba."),
    VEC("blk.%d.ssm_dt_norm.weight", HF "mamba.dt_layernorm.weight", ssm.dt_norm, AT_MIX(MAMBA1), 0,
        TF_NONE, D_SSM_RANK),
    VEC("blk.%d.ssm_b_norm.weight", HF "mamba.b_layernorm.weight", ssm.b_norm, AT_MIX(MAMBA1), 0,
        TF_NONE, D_SSM_STATE),
    VEC("blk.%d.ssm_c_norm.weight", HF "mamba.c_layernorm.weight", ssm.c_norm, AT_MIX(MAMBA1), 0,
        TF_NONE, D_SSM_STATE),
    ROWS_END};

#define EXPERTS(name_, part_, fused_, slot_, tf_, a, b)                                            \
    {                                                                                              \
        name_, FF "experts.%e." part_, FF "experts." fused_,                                       \
            offsetof(struct layer_weights, slot_), false, AT_FFN_MOE, 0, TF_NONE, tf_, {           \
            a, b, D_EXPERT                                                                         \
        }                                                                                          \
    }

static const struct tensor_row rows_feed[] = {
    VEC("blk.%d.ffn_norm.weight", HF "pre_ff_layernorm.weight", ffn_norm, AT_LAYER, 0, TF_NONE,
        D_EMBD),
    MAT("blk.%d.ffn_gate.weight", FF "gate_proj.weight", ffn.gate, AT_FFN_DENSE, 0, TF_NONE, D_EMBD,
        D_FF, D_NONE),
    MAT("blk.%d.ffn_up.weight", FF "up_proj.weight", ffn.up, AT_FFN_DENSE, 0, TF_NONE, D_EMBD, D_FF,
        D_NONE),
    MAT("blk.%d.ffn_down.weight", FF "down_proj.weight", ffn.down, AT_FFN_DENSE, 0, TF_NONE, D_FF,
        D_EMBD, D_NONE),
    MAT("blk.%d.ffn_gate_inp.weight", FF "router.weight", moe.router, AT_FFN_MOE, TS_F32, TF_NONE,
        D_EMBD, D_EXPERT, D_NONE),
    EXPERTS("blk.%d.ffn_gate_exps.weight", "gate_proj.weight", "gate_up_proj", moe.gate,
            TF_FIRST_HALF, D_EMBD, D_FF_EXP),
    EXPERTS("blk.%d.ffn_up_exps.weight", "up_proj.weight", "gate_up_proj", moe.up, TF_SECOND_HALF,
            D_EMBD, D_FF_EXP),
    EXPERTS("blk.%d.ffn_down_exps.weight", "down_proj.weight", "down_proj", moe.down, TF_NONE,
            D_FF_EXP, D_EMBD),
    ROWS_END};

/* The first checkpoints use other names for some parts; a layer without experts has a single expert. */
static const struct name_alias aliases[] = {{"feed_forward.", "moe."},
                                            {"feed_forward.", "moe.experts.0."},
                                            {"feed_forward.", "feed_forward.experts.0."},
                                            {"pre_ff_layernorm", "pre_moe_layernorm"},
                                            {"b_layernorm", "B_layernorm"},
                                            {"c_layernorm", "C_layernorm"},
                                            {NULL, NULL}};

static const struct key_row keys[] = {
    {"context_length", "max_position_embeddings|n_ctx", KEY_U32, true, NAN},
    {"embedding_length", "hidden_size", KEY_U32, true, NAN},
    {"block_count", "num_hidden_layers", KEY_U32, true, NAN},
    {"feed_forward_length", "intermediate_size", KEY_U32, true, NAN},
    {"attention.head_count", "num_attention_heads", KEY_U32, true, NAN},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps|layer_norm_epsilon", KEY_F32, false, 1e-6},
    {"expert_count", "num_experts", KEY_U32, true, NAN},
    {"expert_used_count", "num_experts_per_tok", KEY_U32, true, NAN},
    {"ssm.conv_kernel", "mamba_d_conv", KEY_U32, false, 4},
    {"ssm.state_size", "mamba_d_state", KEY_U32, false, 16},
    {.gguf = NULL}};

static int derive(const json_t *config, struct gguf_writer *w, struct err *e) {
    int64_t n_layer = arch_config_int(config, "num_hidden_layers", 0);
    int64_t d = arch_config_int(config, "hidden_size", 0),
            expand = arch_config_int(config, "mamba_expand", 2);
    int64_t n_kv = arch_config_int(config, "num_key_value_heads", 0);
    int64_t attn_period = arch_config_int(config, "attn_layer_period", 8);
    int64_t attn_offset = arch_config_int(config, "attn_layer_offset", 4);
    int64_t moe_period = arch_config_int(config, "expert_layer_period", 2);
    int64_t moe_offset = arch_config_int(config, "expert_layer_offset", 1);
    if (n_layer < 1 || n_layer > ARCH_MAX_LAYERS || d < 1 || d > ARCH_MAX_EMBD || expand < 1 ||
        expand > 16 || n_kv < 1 || n_kv > 4096 || attn_period < 1 || moe_period < 1 ||
        attn_offset < 0 || moe_offset < 0)
        return err_set(e, CHIMERE_EFORMAT,
                       "config.json: sizes and periods of layers: expected positive numbers");
    uint32_t kv[ARCH_MAX_LAYERS];
    uint8_t experts[ARCH_MAX_LAYERS];
    for (int64_t il = 0; il < n_layer; il++) {
        kv[il] = il % attn_period == attn_offset ? (uint32_t)n_kv : 0;
        experts[il] =
            arch_config_int(config, "num_experts", 1) > 1 && il % moe_period == moe_offset;
    }
    gguf_put_array(w, "jamba.attention.head_count_kv", GGUF_U32, kv, (size_t)n_layer);
    gguf_put_array(w, "jamba.expert_layers", GGUF_BOOL, experts, (size_t)n_layer);
    gguf_put_u32(w, "jamba.ssm.inner_size", (uint32_t)(d * expand));
    gguf_put_u32(w, "jamba.ssm.time_step_rank",
                 (uint32_t)arch_config_int(config, "mamba_dt_rank", (d + 15) / 16));
    return 0;
}

static int read_experts(struct hparams *hp, const struct gguf *g, struct err *e) {
    const struct gguf_kv *flags = key_find(hp, g, "expert_layers");
    bool any = false;
    for (int32_t il = 0; il < hp->n_layer; il++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.ffn_gate_inp.weight", il);
        bool has = gguf_find_tensor(g, name) != NULL;
        if (flags && (flags->type != GGUF_ARR || !gguf_item_bool(flags, (uint64_t)il, &has)))
            return err_set(e, CHIMERE_EFORMAT, "key jamba.expert_layers: expected %d booleans",
                           hp->n_layer);
        hp->layer[il].ffn = has ? FFN_MOE : FFN_DENSE;
        any |= has;
    }
    if (!any) return 0;
    hp->moe.n_ff = hp->layer[0].n_ff;
    return read_moe(hp, g, e);
}

static int read(struct hparams *hp, const struct gguf *g, struct err *e) {
    int rc = read_layers(hp, g, e);
    if (!rc)
        rc = key_i32_per_layer(hp, g, "attention.head_count_kv", true, 0, 4096, hp->n_layer,
                               &hp->layer[0].n_kv_head, sizeof hp->layer[0], e);
    for (int32_t il = 0; !rc && il < hp->n_layer; il++) {
        hp->layer[il].mixer = hp->layer[il].n_kv_head ? MIX_ATTN : MIX_MAMBA1;
        if (hp->layer[il].n_ff < 1)
            return err_set(e, CHIMERE_EFORMAT,
                           "key jamba.feed_forward_length: expected at least 1, got %d",
                           hp->layer[il].n_ff);
    }
    if (!rc) rc = read_experts(hp, g, e);
    if (!rc) rc = read_attention(hp, g, e);
    if (!rc) rc = read_mamba1(hp, g, e);
    if (!rc) rc = key_f32(hp, g, "attention.layer_norm_rms_epsilon", true, 0, 1, &hp->eps, e);
    return rc;
}

static const char *const hf_types[] = {"jamba", NULL};
static const struct tensor_row *const tables[] = {rows_globals, rows_mixers, rows_feed, NULL};

const struct arch arch_jamba = {
    .name = "jamba",
    .hf_model_types = hf_types,
    .tensors = tables,
    .keys = keys,
    .fields = "hidden_act=silu|swish mamba_expand mamba_dt_rank mamba_conv_bias mamba_proj_bias "
              "mamba_inner_layernorms=true attn_layer_offset attn_layer_period expert_layer_offset "
              "expert_layer_period num_key_value_heads calc_logits_for_entire_prompt n_ctx",
    .derive = derive,
    .read = read,
    .aliases = aliases};

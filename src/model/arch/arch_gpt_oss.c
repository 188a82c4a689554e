/* arch_gpt_oss.c: gpt-oss: windows in every second layer, a sink per head, experts with biases and a clamped gate.
 *
 * Published files differ in YaRN. config.json states that its ramp is not rounded to whole pairs; files of llama.cpp,
 * which always rounds it, have no key for that. The model was trained without rounding. */
#include <stddef.h>

#include "model/arch/arch_config.h"
#include "model/arch/arch_impl.h"

#define HF "model.layers.%d."
#define EXPERTS HF "mlp.experts."

static const struct tensor_row rows_layer[] = {
    VEC("blk.%d.post_attention_norm.weight", HF "post_attention_layernorm.weight", ffn_norm,
        AT_LAYER, 0, TF_NONE, D_EMBD),
    VEC("blk.%d.attn_sinks.weight", HF "self_attn.sinks", attn.sinks, AT_ATTN, 0, TF_NONE, D_HEAD),
    MAT("blk.%d.ffn_gate_inp.weight", HF "mlp.router.weight", moe.router, AT_FFN_MOE, TS_F32,
        TF_NONE, D_EMBD, D_EXPERT, D_NONE),
    VEC("blk.%d.ffn_gate_inp.bias", HF "mlp.router.bias", moe.bias.router, AT_FFN_MOE, 0, TF_NONE,
        D_EXPERT),
    MAT("blk.%d.ffn_gate_exps.weight", EXPERTS "gate_up_proj", moe.gate, AT_FFN_MOE, 0,
        TF_EXPERT_GATE, D_EMBD, D_FF_EXP, D_EXPERT),
    MAT("blk.%d.ffn_up_exps.weight", EXPERTS "gate_up_proj", moe.up, AT_FFN_MOE, 0, TF_EXPERT_UP,
        D_EMBD, D_FF_EXP, D_EXPERT),
    MAT("blk.%d.ffn_down_exps.weight", EXPERTS "down_proj", moe.down, AT_FFN_MOE, 0, TF_EXPERT_DOWN,
        D_FF_EXP, D_EMBD, D_EXPERT),
    VEC2("blk.%d.ffn_gate_exps.bias", EXPERTS "gate_up_proj_bias", moe.bias.gate, AT_FFN_MOE, 0,
         TF_EVEN_ITEMS, D_FF_EXP, D_EXPERT),
    VEC2("blk.%d.ffn_up_exps.bias", EXPERTS "gate_up_proj_bias", moe.bias.up, AT_FFN_MOE, 0,
         TF_ODD_ITEMS, D_FF_EXP, D_EXPERT),
    VEC2("blk.%d.ffn_down_exps.bias", EXPERTS "down_proj_bias", moe.bias.down, AT_FFN_MOE, 0,
         TF_NONE, D_EMBD, D_EXPERT),
    ROWS_END};

static const struct key_row keys[] = {
    {"context_length", "max_position_embeddings", KEY_U32, true, NAN},
    {"embedding_length", "hidden_size", KEY_U32, true, NAN},
    {"block_count", "num_hidden_layers", KEY_U32, true, NAN},
    {"feed_forward_length", "intermediate_size", KEY_U32, true, NAN},
    {"expert_feed_forward_length", "intermediate_size", KEY_U32, true, NAN},
    {"expert_count", "num_local_experts|num_experts", KEY_U32, true, NAN},
    {"expert_used_count", "num_experts_per_tok|experts_per_token", KEY_U32, true, NAN},
    {"attention.head_count", "num_attention_heads", KEY_U32, true, NAN},
    {"attention.head_count_kv", "num_key_value_heads", KEY_U32, true, NAN},
    {"attention.key_length", "head_dim", KEY_U32, false, 64},
    {"attention.value_length", "head_dim", KEY_U32, false, 64},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", KEY_F32, true, NAN},
    {"rope.freq_base", "rope_parameters.rope_theta|rope_theta", KEY_F32, false, 150000},
    {.gguf = NULL}};

static int derive(const json_t *config, struct gguf_writer *w, struct err *e) {
    if (!json_array_size(json_object_get(config, "layer_types")))
        return err_set(e, CHIMERE_EFORMAT, "config.json: layer_types: expected a list, got none");
    return arch_config_put_windows(config, "gpt-oss", WINDOW_EVERYWHERE, w, e);
}

static int read(struct hparams *hp, const struct gguf *g, struct err *e) {
    int rc = read_layers(hp, g, e);
    for (int32_t il = 0; !rc && il < arch_n_layer_all(hp); il++) {
        hp->layer[il].mixer = MIX_ATTN;
        hp->layer[il].ffn = FFN_MOE;
    }
    hp->moe.gating = MOE_SOFTMAX_CHOSEN;
    if (!rc) rc = read_moe(hp, g, e);
    if (!rc) rc = read_attention(hp, g, e);
    if (!rc) rc = read_rope(hp, g, ROPE_NEOX, e);
    if (!rc) rc = key_f32(hp, g, "attention.layer_norm_rms_epsilon", true, 0, 1, &hp->eps, e);
    if (rc) return rc;
    /* defaults that files of llama.cpp omit */
    if (!key_find(hp, g, "attention.sliding_window_pattern"))
        for (int32_t il = 1; il < hp->n_layer; il += 2) hp->layer[il].window = 0;
    if (!key_find(hp, g, "rope.scaling.yarn_truncate")) hp->rope_truncate = false;
    hp->act = ACT_CLAMPED;
    return 0;
}

static const char *const hf_types[] = {"gpt_oss", NULL};
static const struct tensor_row *const tables[] = {rows_embd, rows_attn, rows_layer, NULL};

const struct arch arch_gpt_oss = {
    .name = "gpt-oss",
    .hf_model_types = hf_types,
    .tensors = tables,
    .keys = keys,
    .fields = "hidden_act=silu attention_bias layer_types sliding_window swiglu_alpha=1.702 "
              "swiglu_limit=7 initial_context_length",
    .derive = derive,
    .read = read};

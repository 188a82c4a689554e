/* arch_falcon_h1.c: Falcon-H1 (Technology Innovation Institute, arXiv:2507.22448). In every layer, attention and a
 * Mamba-2 mixer read the same normalized rows and both add to the residual stream; a SwiGLU follows.
 *
 * The published multipliers (embedding, attention in and out, key, ssm in and out, the five parts of ssm_in, gate,
 * down, head) scale rows of matrices. As in other GGUF files of the family, conversion multiplies the weights by them,
 * and no key stores them. */
#include <stddef.h>

#include "base/err.h"
#include "model/arch/arch_config.h"
#include "model/arch/arch_impl.h"

#define HF "model.layers.%d."

static const struct tensor_row rows_globals[] = {
    GMAT("token_embd.weight", "model.embed_tokens.weight", token_embd, 0, D_EMBD, D_VOCAB),
    GVEC("output_norm.weight", "model.final_layernorm.weight", output_norm, 0, TF_NONE, D_EMBD),
    /* tied embeddings have two multipliers and become two matrices */
    {"output.weight",
     "lm_head.weight",
     "model.embed_tokens.weight",
     offsetof(struct global_weights, output),
     false,
     AT_GLOBAL,
     TS_TIED,
     TF_NONE,
     TF_NONE,
     {D_EMBD, D_VOCAB, D_NONE}},
    GVEC("rope_freqs.weight", NULL, rope_freqs, TS_OPTIONAL, TF_NONE, D_NONE),
    ROWS_END};

static const struct tensor_row rows_layer[] = {
    ROWS_MAMBA2(HF "mamba."),
    /* without ".weight", as in other files of the family */
    VEC("blk.%d.ffn_norm", HF "pre_ff_layernorm.weight", ffn_norm, AT_LAYER, 0, TF_NONE, D_EMBD),
    MAT("blk.%d.ffn_gate.weight", HF "feed_forward.gate_proj.weight", ffn.gate, AT_LAYER, 0,
        TF_NONE, D_EMBD, D_FF, D_NONE),
    MAT("blk.%d.ffn_up.weight", HF "feed_forward.up_proj.weight", ffn.up, AT_LAYER, 0, TF_NONE,
        D_EMBD, D_FF, D_NONE),
    MAT("blk.%d.ffn_down.weight", HF "feed_forward.down_proj.weight", ffn.down, AT_LAYER, 0,
        TF_NONE, D_FF, D_EMBD, D_NONE),
    VEC("blk.%d.ffn_gate.bias", HF "feed_forward.gate_proj.bias", ffn.gate_b, AT_LAYER, TS_OPTIONAL,
        TF_NONE, D_FF),
    VEC("blk.%d.ffn_up.bias", HF "feed_forward.up_proj.bias", ffn.up_b, AT_LAYER, TS_OPTIONAL,
        TF_NONE, D_FF),
    VEC("blk.%d.ffn_down.bias", HF "feed_forward.down_proj.bias", ffn.down_b, AT_LAYER, TS_OPTIONAL,
        TF_NONE, D_EMBD),
    ROWS_END};

static const struct key_row keys[] = {
    {"context_length", "max_position_embeddings", KEY_U32, true, NAN},
    {"embedding_length", "hidden_size", KEY_U32, true, NAN},
    {"block_count", "num_hidden_layers", KEY_U32, true, NAN},
    {"feed_forward_length", "intermediate_size", KEY_U32, true, NAN},
    {"attention.head_count", "num_attention_heads", KEY_U32, true, NAN},
    {"attention.head_count_kv", "num_key_value_heads|num_attention_heads", KEY_U32, true, NAN},
    {"attention.key_length", "head_dim", KEY_U32, false, NAN},
    {"attention.value_length", "head_dim", KEY_U32, false, NAN},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", KEY_F32, true, NAN},
    {"rope.freq_base", "rope_parameters.rope_theta|rope_theta", KEY_F32, true, NAN},
    {"ssm.conv_kernel", "mamba_d_conv", KEY_U32, true, NAN},
    {"ssm.state_size", "mamba_d_state", KEY_U32, true, NAN},
    {"ssm.group_count", "mamba_n_groups", KEY_U32, true, NAN},
    {"ssm.time_step_rank", "mamba_n_heads", KEY_U32, true, NAN},
    {.gguf = NULL}};

static double inner_size(const json_t *config) {
    return arch_config_number(config, "mamba_d_ssm",
                              floor(arch_config_number(config, "mamba_expand", 2) *
                                    arch_config_number(config, "hidden_size", 0)));
}

static int derive(const json_t *config, struct gguf_writer *w, struct err *e) {
    double inner = inner_size(config);
    if (!(inner >= 1 && inner <= 1 << 20))
        return err_set(e, CHIMERE_EFORMAT, "config.json: mamba_d_ssm: expected 1 to %d, got %g",
                       1 << 20, inner);
    if (json_is_true(json_object_get(config, "mamba_rms_norm")) &&
        json_is_true(json_object_get(config, "mamba_norm_before_gate")))
        return err_set(e, CHIMERE_EUNSUPPORTED,
                       "config.json: mamba_norm_before_gate: expected false, got true (files of "
                       "this family cannot say it)");
    static const char *const biases[] = {"attention_bias", "mlp_bias", "projectors_bias",
                                         "mamba_proj_bias"};
    for (size_t i = 0; i < sizeof biases / sizeof *biases; i++)
        if (json_is_true(json_object_get(config, biases[i])))
            return err_set(e, CHIMERE_EUNSUPPORTED, "config.json: %s: expected false, got true",
                           biases[i]);
    gguf_put_u32(w, "falcon-h1.ssm.inner_size", (uint32_t)inner);
    return 0;
}

/* The factor of row j of a source matrix on conversion. */
static double row_scale(const json_t *config, const struct hparams *hp,
                        const struct tensor_row *row, uint64_t j) {
    static const struct {
        size_t slot;
        const char *key[2];
    } scales[] = {
        {offsetof(struct layer_weights, attn.q), {"attention_in_multiplier", NULL}},
        {offsetof(struct layer_weights, attn.k), {"attention_in_multiplier", "key_multiplier"}},
        {offsetof(struct layer_weights, attn.v), {"attention_in_multiplier", NULL}},
        {offsetof(struct layer_weights, attn.out), {"attention_out_multiplier", NULL}},
        {offsetof(struct layer_weights, ssm.out), {"ssm_out_multiplier", NULL}},
    };
    if (row->where == AT_GLOBAL) {
        if (row->slot == offsetof(struct global_weights, token_embd))
            return arch_config_number(config, "embedding_multiplier", 1);
        if (row->slot == offsetof(struct global_weights, output))
            return arch_config_number(config, "lm_head_multiplier", 1);
        return 1;
    }
    if (row->slot == offsetof(struct layer_weights, ffn.gate))
        return arch_config_item(config, "mlp_multipliers", 0, 1);
    if (row->slot == offsetof(struct layer_weights, ffn.down))
        return arch_config_item(config, "mlp_multipliers", 1, 1);
    if (row->slot == offsetof(struct layer_weights, ssm.in)) { /* z, x, B, C, dt */
        uint64_t inner = (uint64_t)hp->ssm.n_inner;
        uint64_t bc = (uint64_t)hp->ssm.n_group * (uint64_t)hp->ssm.d_state;
        size_t part = j < 2 * inner          ? j / inner
                      : j < 2 * inner + bc   ? 2
                      : j < 2 * (inner + bc) ? 3
                                             : 4;
        return arch_config_number(config, "ssm_in_multiplier", 1) *
               arch_config_item(config, "ssm_multipliers", part, 1);
    }
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++)
        if (row->slot == scales[i].slot)
            return arch_config_number(config, scales[i].key[0], 1) *
                   (scales[i].key[1] ? arch_config_number(config, scales[i].key[1], 1) : 1);
    return 1;
}

static int read(struct hparams *hp, const struct gguf *g, struct err *e) {
    int rc = read_layers(hp, g, e);
    for (int32_t il = 0; !rc && il < hp->n_layer; il++) {
        hp->layer[il].mixer = MIX_ATTN | MIX_MAMBA2;
        hp->layer[il].ffn = FFN_DENSE;
        if (hp->layer[il].n_ff < 1)
            return err_set(e, CHIMERE_EFORMAT,
                           "key falcon-h1.feed_forward_length: expected at least 1, got %d",
                           hp->layer[il].n_ff);
    }
    if (!rc) rc = read_attention(hp, g, e);
    if (!rc) rc = read_rope(hp, g, ROPE_NEOX, e);
    if (!rc) rc = read_mamba2(hp, g, e);
    if (!rc) rc = key_f32(hp, g, "attention.layer_norm_rms_epsilon", true, 0, 1, &hp->eps, e);
    return rc;
}

static const char *const hf_types[] = {"falcon_h1", NULL};
static const struct tensor_row *const tables[] = {rows_globals, rows_attn, rows_layer, NULL};

const struct arch arch_falcon_h1 = {
    .name = "falcon-h1",
    .hf_model_types = hf_types,
    .tensors = tables,
    .keys = keys,
    .fields =
        "hidden_act=silu|swish mamba_d_ssm mamba_expand mamba_d_head mamba_chunk_size "
        "mamba_conv_bias mamba_norm_before_gate mamba_rms_norm mamba_proj_bias=false "
        "mamba_use_mlp=true attention_bias=false mlp_bias=false projectors_bias=false "
        "attention_in_multiplier attention_out_multiplier embedding_multiplier key_multiplier "
        "lm_head_multiplier mlp_multipliers ssm_in_multiplier ssm_multipliers ssm_out_multiplier "
        "mlp_expansion_factor time_step_limit time_step_min time_step_max time_step_floor",
    .derive = derive,
    .read = read,
    .row_scale = row_scale};

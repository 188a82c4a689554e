/* arch_olmo2.c: OLMo 2 and Olmo 3: dense decoders whose blocks read the residual stream itself and normalize what they
 * add. Norms of queries and keys cover all heads together. In Olmo 3, all layers except each fourth have a window. */
#include <stddef.h>

#include "base/err.h"
#include "model/arch/arch_config.h"
#include "model/arch/arch_impl.h"

#define HF "model.layers.%d."

enum { FULL_EVERY = 4 }; /* if no list says which layers have a window */

static const struct tensor_row rows_layer[] = {
    VEC("blk.%d.post_attention_norm.weight", HF "post_attention_layernorm.weight", attn_post_norm,
        AT_LAYER, 0, TF_NONE, D_EMBD),
    VEC("blk.%d.post_ffw_norm.weight", HF "post_feedforward_layernorm.weight", ffn_post_norm,
        AT_LAYER, 0, TF_NONE, D_EMBD),
    ROWS_ATTN(HF "self_attn.", TF_NONE, TF_NONE),
    VEC("blk.%d.attn_q_norm.weight", HF "self_attn.q_norm.weight", attn.q_norm, AT_ATTN, 0, TF_NONE,
        D_Q),
    VEC("blk.%d.attn_k_norm.weight", HF "self_attn.k_norm.weight", attn.k_norm, AT_ATTN, 0, TF_NONE,
        D_K),
    ROWS_END};

static const struct key_row keys[] = {
    {"context_length", "max_position_embeddings", KEY_U32, true, NAN},
    {"embedding_length", "hidden_size", KEY_U32, true, NAN},
    {"block_count", "num_hidden_layers", KEY_U32, true, NAN},
    {"feed_forward_length", "intermediate_size", KEY_U32, true, NAN},
    {"attention.head_count", "num_attention_heads", KEY_U32, true, NAN},
    {"attention.head_count_kv", "num_key_value_heads", KEY_U32, false, NAN},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", KEY_F32, true, NAN},
    {"rope.freq_base_swa", "rope_parameters.sliding_attention.rope_theta", KEY_F32, false, NAN},
    {.gguf = NULL}};

static int derive(const json_t *config, struct gguf_writer *w, struct err *e) {
    bool has_window = arch_config_is(config, "model_type", "olmo3");
    const json_t *rope = json_object_get(config, "rope_parameters");
    const json_t *full = json_object_get(rope, "full_attention");
    if (full) rope = full;
    double base = arch_config_number(config, "rope_theta", has_window ? 500000 : 10000);
    gguf_put_f32(w, "olmo2.rope.freq_base", (float)arch_config_number(rope, "rope_theta", base));
    if (!has_window) return 0;
    if (json_array_size(json_object_get(config, "layer_types")))
        return arch_config_put_windows(config, "olmo2", WINDOW_EVERYWHERE, w, e);
    int64_t window = arch_config_int(config, "sliding_window", 4096);
    if (window < 1 || window > INT32_MAX)
        return err_set(e, CHIMERE_EFORMAT, "config.json: sliding_window: expected 1 to 2^31 - 1");
    gguf_put_u32(w, "olmo2.attention.sliding_window", (uint32_t)window);
    gguf_put_u32(w, "olmo2.attention.sliding_window_pattern", FULL_EVERY);
    return 0;
}

static int read(struct hparams *hp, const struct gguf *g, struct err *e) {
    int rc = read_trunk(hp, g, e);
    for (int32_t il = 0; !rc && il < hp->n_layer; il++) {
        hp->layer[il].mixer = MIX_ATTN;
        hp->layer[il].ffn = FFN_DENSE;
        if (hp->layer[il].n_ff < 1)
            rc = err_set(e, CHIMERE_EFORMAT,
                         "key olmo2.feed_forward_length: expected at least 1, got %d",
                         hp->layer[il].n_ff);
    }
    if (!rc) rc = read_attention(hp, g, e);
    if (!rc) rc = read_rope(hp, g, ROPE_NEOX, e);
    if (!rc) rc = key_f32(hp, g, "attention.layer_norm_rms_epsilon", true, 0, 1, &hp->eps, e);
    hp->rope_base_window = hp->rope_base; /* layers with a window do not scale positions */
    if (!rc) rc = key_f32(hp, g, "rope.freq_base_swa", false, 1, 1e12, &hp->rope_base_window, e);
    if (rc) return rc;
    if (!key_find(hp, g, "attention.sliding_window_pattern"))
        for (int32_t il = FULL_EVERY - 1; il < hp->n_layer; il += FULL_EVERY)
            hp->layer[il].window = 0;
    hp->has_wide_qk_norm = hp->has_post_norm = true;
    return 0;
}

static const char *const hf_types[] = {"olmo2", "olmo3", NULL};
static const struct tensor_row *const tables[] = {rows_embd, rows_layer, rows_ffn, NULL};

const struct arch arch_olmo2 = {
    .name = "olmo2",
    .hf_model_types = hf_types,
    .tensors = tables,
    .keys = keys,
    .fields = "hidden_act=silu|swish attention_bias layer_types sliding_window "
              "rope:full_attention rope:sliding_attention",
    .derive = derive,
    .read = read};

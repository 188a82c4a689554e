/* arch_hymba.c: Hymba (Dong et al., arXiv:2411.13676; NVIDIA). In every layer, attention heads and Mamba-1 heads read
 * the same rows; one projection is applied to the mean of their normalized results. Learned meta tokens precede every
 * sequence. Most layers attend to a window (and to the meta tokens); some of them read the keys and values of an
 * earlier layer.
 *
 * No other program writes the family as GGUF. In addition to the contents of Mamba-1 files, Chimère's files have:
 *
 *   key hymba.meta_token_count               u32
 *   key hymba.attention.sliding_window       u32: visible positions, the own one included; absent: all
 *   key hymba.attention.sliding_window_pattern   bool [n_layer]: the layer has the window
 *   key hymba.attention.kv_source            i32 [n_layer]: layer whose keys and values this one reads
 *   key hymba.rope.freq_base                 after stretching ("ntk")
 *
 *   meta_embd.weight              [n_embd, meta tokens]
 *   blk.N.attn_q.weight           [n_embd, heads * key size]; attn_k, attn_v: absent if the layer reads another's
 *   blk.N.ssm_in.weight           [n_embd, 2 * inner]: conv input, gate
 *   blk.N.ssm_x, ssm_dt, ssm_a, ssm_d, ssm_conv1d and ssm_dt_norm, ssm_b_norm, ssm_c_norm   as in Jamba
 *   blk.N.attn_sub_norm.weight, ssm_norm.weight   [inner]: of the heads' results, before the mean
 *   blk.N.ssm_out.weight          [inner, n_embd], after the mean
 *
 * inner = heads * value size. Position 0 is the first meta token. */
#include <stddef.h>

#include "base/err.h"
#include "model/arch/arch_config.h"
#include "model/arch/arch_impl.h"

#define HF "model.layers.%d."
#define MIX HF "mamba."
#define FF HF "moe.experts.0."

static const struct tensor_row rows_globals[] = {
    GMAT("token_embd.weight", "model.embed_tokens.weight", token_embd, 0, D_EMBD, D_VOCAB),
    GMAT("meta_embd.weight", "model.memory_tokens", meta_embd, 0, D_EMBD, D_META),
    GVEC("output_norm.weight", "model.final_layernorm.weight", output_norm, 0, TF_NONE, D_EMBD),
    GMAT("output.weight", "lm_head.weight", output, TS_TIED, D_EMBD, D_VOCAB), ROWS_END};

/* One projection of the checkpoint produces [q | k | v | conv input | gate]. */
#define PART(name_, slot_, where_, tf_, rows_)                                                     \
    MAT(name_, MIX "in_proj.weight", slot_, where_, 0, tf_, D_EMBD, rows_, D_NONE)

static const struct tensor_row rows_mixers[] = {
    VEC("blk.%d.attn_norm.weight", HF "input_layernorm.weight", attn_norm, AT_LAYER, 0, TF_NONE,
        D_EMBD),
    PART("blk.%d.attn_q.weight", attn.q, AT_ATTN, TF_OF_QKV, D_Q),
    PART("blk.%d.attn_k.weight", attn.k, AT_ATTN_KV, TF_BEHIND_Q, D_K),
    PART("blk.%d.attn_v.weight", attn.v, AT_ATTN_KV, TF_BEHIND_QK, D_V),
    PART("blk.%d.ssm_in.weight", ssm.in, AT_MIX(MAMBA1), TF_BEHIND_QKV, D_SSM_IN),
    VEC("blk.%d.attn_q_norm.weight", MIX "self_attn.q_norm.weight", attn.q_norm, AT_ATTN,
        TS_OPTIONAL, TF_NONE, D_HEAD_K),
    VEC("blk.%d.attn_k_norm.weight", MIX "self_attn.k_norm.weight", attn.k_norm, AT_ATTN_KV,
        TS_OPTIONAL, TF_NONE, D_HEAD_K),
    VEC2("blk.%d.ssm_conv1d.weight", MIX "conv1d.weight", ssm.conv, AT_MIX(MAMBA1), 0, TF_NONE,
         D_SSM_TAPS, D_SSM_CONV),
    VEC("blk.%d.ssm_conv1d.bias", MIX "conv1d.bias", ssm.conv_b, AT_MIX(MAMBA1), TS_OPTIONAL,
        TF_NONE, D_SSM_CONV),
    MAT("blk.%d.ssm_x.weight", MIX "x_proj.0.weight", ssm.x, AT_MIX(MAMBA1), TS_F32, TF_NONE,
        D_SSM_INNER, D_SSM_X, D_NONE),
    MAT("blk.%d.ssm_dt.weight", MIX "dt_proj.0.weight", ssm.dt, AT_MIX(MAMBA1), TS_F32, TF_NONE,
        D_SSM_RANK, D_SSM_INNER, D_NONE),
    VEC("blk.%d.ssm_dt.bias", MIX "dt_proj.0.bias", ssm.dt_b, AT_MIX(MAMBA1), 0, TF_NONE,
        D_SSM_INNER),
    VEC2("blk.%d.ssm_a", MIX "A_log.0", ssm.a, AT_MIX(MAMBA1), 0, TF_NEG_EXP, D_SSM_STATE,
         D_SSM_INNER),
    VEC("blk.%d.ssm_d", MIX "D.0", ssm.d, AT_MIX(MAMBA1), 0, TF_NONE, D_SSM_INNER),
    VEC("blk.%d.ssm_dt_norm.weight", MIX "dt_layernorm.weight", ssm.dt_norm, AT_MIX(MAMBA1),
        TS_OPTIONAL, TF_NONE, D_SSM_RANK),
    VEC("blk.%d.ssm_b_norm.weight", MIX "B_layernorm.weight", ssm.b_norm, AT_MIX(MAMBA1),
        TS_OPTIONAL, TF_NONE, D_SSM_STATE),
    VEC("blk.%d.ssm_c_norm.weight", MIX "C_layernorm.weight", ssm.c_norm, AT_MIX(MAMBA1),
        TS_OPTIONAL, TF_NONE, D_SSM_STATE),
    VEC("blk.%d.attn_sub_norm.weight", MIX "pre_avg_layernorm1.weight", mean.attn_norm, AT_LAYER, 0,
        TF_NONE, D_SSM_INNER),
    VEC("blk.%d.ssm_norm.weight", MIX "pre_avg_layernorm2.weight", mean.ssm_norm, AT_LAYER, 0,
        TF_NONE, D_SSM_INNER),
    MAT("blk.%d.ssm_out.weight", MIX "out_proj.weight", ssm.out, AT_MIX(MAMBA1), 0, TF_NONE,
        D_SSM_INNER, D_EMBD, D_NONE),
    ROWS_END};

static const struct tensor_row rows_feed[] = {
    VEC("blk.%d.ffn_norm.weight", HF "pre_moe_layernorm.weight", ffn_norm, AT_FFN, 0, TF_NONE,
        D_EMBD),
    MAT("blk.%d.ffn_gate.weight", FF "gate_proj.weight", ffn.gate, AT_FFN_DENSE, 0, TF_NONE, D_EMBD,
        D_FF, D_NONE),
    MAT("blk.%d.ffn_up.weight", FF "up_proj.weight", ffn.up, AT_FFN_DENSE, 0, TF_NONE, D_EMBD, D_FF,
        D_NONE),
    MAT("blk.%d.ffn_down.weight", FF "down_proj.weight", ffn.down, AT_FFN_DENSE, 0, TF_NONE, D_FF,
        D_EMBD, D_NONE),
    ROWS_END};

static const struct key_row keys[] = {
    {"context_length", "max_position_embeddings", KEY_U32, true, NAN},
    {"embedding_length", "hidden_size", KEY_U32, true, NAN},
    {"block_count", "num_hidden_layers", KEY_U32, true, NAN},
    {"feed_forward_length", "intermediate_size", KEY_U32, true, NAN},
    {"attention.head_count", "num_attention_heads", KEY_U32, true, NAN},
    {"attention.head_count_kv", "num_key_value_heads", KEY_U32, true, NAN},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", KEY_F32, false, 1e-6},
    {"attention.sliding_window", "sliding_window", KEY_U32, false, NAN},
    {"meta_token_count", "num_memory_tokens", KEY_U32, true, NAN},
    {"ssm.conv_kernel", "mamba_d_conv", KEY_U32, false, 4},
    {"ssm.state_size", "mamba_d_state", KEY_U32, false, 16},
    {.gguf = NULL}};

/* Refuses options of the configuration that no published checkpoint uses. */
static int check_config(const json_t *config, struct err *e) {
    static const struct {
        const char *key, *expected[2];
    } words[] = {{"kq_norm", {"none", "rms"}},
                 {"mlp_hidden_act", {"silu", "silu"}},
                 {"hidden_act", {"silu", "silu"}},
                 {"rope_type", {"ntk", "default"}}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const char *v = json_string_value(json_object_get(config, words[i].key));
        if (v && strcmp(v, words[i].expected[0]) != 0 && strcmp(v, words[i].expected[1]) != 0)
            return err_set(e, CHIMERE_EUNSUPPORTED, "config.json: %s: expected %s or %s, got '%s'",
                           words[i].key, words[i].expected[0], words[i].expected[1], v);
    }
    if (json_is_true(json_object_get(config, "mamba_proj_bias")) ||
        arch_config_int(config, "memory_tokens_interspersed_every", 0) > 0 ||
        arch_config_int(config, "num_mamba", 1) != 1 ||
        arch_config_int(config, "attn_hidden_size", -1) > 0)
        return err_set(e, CHIMERE_EUNSUPPORTED,
                       "config.json: expected no mamba_proj_bias, memory_tokens_interspersed_every "
                       "0, num_mamba 1 and no attn_hidden_size");
    return 0;
}

/* The layer whose keys and values layer il reads. */
static int32_t kv_source(const json_t *config, int32_t il) {
    const json_t *groups = json_object_get(config, "kv_reuse_group"), *group, *item;
    int64_t every = arch_config_int(config, "kv_reuse_every_i_layer", -1);
    size_t i, k;
    json_array_foreach((json_t *)groups, i, group) {
        json_array_foreach((json_t *)group, k, item) {
            if (k && json_integer_value(item) == il)
                return (int32_t)json_integer_value(json_array_get(group, 0));
        }
    }
    return json_array_size(groups) || every < 1 ? il : il - (int32_t)(il % every);
}

static bool is_global(const json_t *config, int32_t il) {
    const json_t *ids = json_object_get(config, "global_attn_idx"), *id;
    size_t i;
    json_array_foreach((json_t *)ids, i, id) if (json_integer_value(id) == il) return true;
    return !json_is_integer(json_object_get(config, "sliding_window"));
}

static int derive(const json_t *config, struct gguf_writer *w, struct err *e) {
    int64_t n_layer = arch_config_int(config, "num_hidden_layers", 0);
    int64_t d = arch_config_int(config, "hidden_size", 0),
            expand = arch_config_int(config, "mamba_expand", 2);
    int64_t n_head = arch_config_int(config, "num_attention_heads", 0);
    int rc = check_config(config, e);
    if (rc) return rc;
    int64_t d_k = n_head > 0 ? d / n_head : 0, said = arch_config_int(config, "kq_head_dim", -1);
    if (n_layer < 1 || n_layer > ARCH_MAX_LAYERS || d < 1 || d > ARCH_MAX_EMBD || expand < 1 ||
        expand > 16 || n_head < 1 || d % n_head || (said > 0 && said != d_k))
        return err_set(e, CHIMERE_EFORMAT,
                       "config.json: sizes of layers: expected positive numbers, hidden_size a "
                       "multiple of num_attention_heads, and kq_head_dim their quotient");
    const json_t *theta = json_object_get(config, "rope_theta");
    if (!theta) theta = json_object_get(json_object_get(config, "rope_parameters"), "rope_theta");
    double base = json_is_number(theta) ? json_number_value(theta) : 10000.0;
    const char *type = json_string_value(json_object_get(config, "rope_type"));
    if (type && strcmp(type, "ntk") == 0) {
        double longer = (double)arch_config_int(config, "max_position_embeddings", 0) /
                        (double)arch_config_int(config, "orig_max_position_embeddings", 1);
        if (!(longer >= 1 && longer <= 1e6) || d_k <= 2)
            return err_set(e, CHIMERE_EFORMAT,
                           "config.json: max_position_embeddings and orig_max_position_embeddings: "
                           "expected the first to be the larger, got a ratio of %g",
                           longer);
        base *= pow(2 * longer - 1, (double)d_k / (double)(d_k - 2));
    }
    int32_t source[ARCH_MAX_LAYERS];
    uint8_t local[ARCH_MAX_LAYERS];
    for (int32_t il = 0; il < n_layer; il++) {
        source[il] = kv_source(config, il);
        local[il] = !is_global(config, il);
    }
    const json_t *rope = json_object_get(config, "rope");
    gguf_put_u32(w, "hymba.rope.dimension_count", json_is_false(rope) ? 0 : (uint32_t)d_k);
    gguf_put_f32(w, "hymba.rope.freq_base", (float)base);
    gguf_put_u32(w, "hymba.attention.key_length", (uint32_t)d_k);
    gguf_put_u32(w, "hymba.attention.value_length", (uint32_t)(d * expand / n_head));
    gguf_put_array(w, "hymba.attention.sliding_window_pattern", GGUF_BOOL, local, (size_t)n_layer);
    gguf_put_array(w, "hymba.attention.kv_source", GGUF_I32, source, (size_t)n_layer);
    gguf_put_u32(w, "hymba.ssm.inner_size", (uint32_t)(d * expand));
    gguf_put_u32(w, "hymba.ssm.time_step_rank",
                 (uint32_t)arch_config_int(config, "mamba_dt_rank", (d + 15) / 16));
    return 0;
}

static int read_sharing(struct hparams *hp, const struct gguf *g, struct err *e) {
    const struct gguf_kv *local = key_find(hp, g, "attention.sliding_window_pattern");
    int32_t source[ARCH_MAX_LAYERS], window = 0;
    int rc = key_i32(hp, g, "attention.sliding_window", false, 1, 1 << 30, &window, e);
    for (int32_t il = 0; il < hp->n_layer; il++) source[il] = il;
    if (!rc)
        rc = key_i32_per_layer(hp, g, "attention.kv_source", false, 0, hp->n_layer - 1, hp->n_layer,
                               source, sizeof source[0], e);
    for (int32_t il = 0; !rc && il < hp->n_layer; il++) {
        bool has = window > 0;
        if (has && local && (local->type != GGUF_ARR || !gguf_item_bool(local, (uint64_t)il, &has)))
            return err_set(e, CHIMERE_EFORMAT,
                           "key hymba.attention.sliding_window_pattern: expected %d booleans",
                           hp->n_layer);
        if (source[il] > il || source[source[il]] != source[il])
            return err_set(e, CHIMERE_EFORMAT,
                           "key hymba.attention.kv_source: expected in layer %d an earlier layer "
                           "that stores its own, got %d",
                           il, source[il]);
        hp->layer[il].window = has ? window + 1 : 0; /* plus the own position */
        hp->layer[il].kv_back = il - source[il];
    }
    return rc;
}

static int read(struct hparams *hp, const struct gguf *g, struct err *e) {
    int rc = read_layers(hp, g, e);
    for (int32_t il = 0; !rc && il < hp->n_layer; il++) {
        hp->layer[il].mixer = MIX_ATTN | MIX_MAMBA1;
        hp->layer[il].join = JOIN_MEAN;
        hp->layer[il].ffn = hp->layer[il].n_ff ? FFN_DENSE : FFN_NONE;
    }
    if (!rc) rc = read_attention(hp, g, e);
    if (!rc) rc = read_sharing(hp, g, e);
    if (!rc) rc = read_rope(hp, g, ROPE_NEOX, e);
    if (!rc) rc = read_mamba1(hp, g, e);
    if (!rc) rc = key_i32(hp, g, "meta_token_count", true, 1, 1 << 16, &hp->n_meta, e);
    if (!rc) rc = key_f32(hp, g, "attention.layer_norm_rms_epsilon", true, 0, 1, &hp->eps, e);
    for (int32_t il = 0; !rc && il < hp->n_layer; il++)
        if ((int64_t)hp->layer[il].n_head * hp->d_v != hp->ssm.n_inner ||
            hp->layer[il].n_kv_head != hp->layer[il - hp->layer[il].kv_back].n_kv_head)
            return err_set(e, CHIMERE_EFORMAT,
                           "layer %d: expected attention heads as wide as the other heads together "
                           "(%d), and as many key heads as where its keys come from",
                           il, hp->ssm.n_inner);
    return rc;
}

static const char *const hf_types[] = {"hymba", NULL};
static const struct tensor_row *const tables[] = {rows_globals, rows_mixers, rows_feed, NULL};

const struct arch arch_hymba = {
    .name = "hymba",
    .hf_model_types = hf_types,
    .tensors = tables,
    .keys = keys,
    .fields =
        "hidden_act=silu mlp_hidden_act=silu kq_norm kq_head_dim v_head_dim attn_hidden_size "
        "attn_implementation_new global_attn_idx kv_reuse_group kv_reuse_every_i_layer "
        "kv_reuse_type "
        "kv_weight_reuse=false sliding_window rope rope_type orig_max_position_embeddings "
        "seq_length "
        "num_mamba mamba_expand mamba_dt_rank mamba_conv_bias mamba_proj_bias=false "
        "mamba_inner_layernorms=true mamba_multi_branch conv_dim calc_logits_for_entire_prompt "
        "memory_tokens_interspersed_every=0 num_experts=1 num_experts_per_tok=1 layer_type "
        "num_attention_layers",
    .derive = derive,
    .read = read};

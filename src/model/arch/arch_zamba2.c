/* arch_zamba2.c: Zamba2 (Glorioso et al., arXiv:2411.15242; Zyphra): Mamba-2 layers, some of which first use a
 * transformer block that reads [residual stream | token embedding]. There are few such blocks, used in turn by these
 * layers. Each of the layers has low-rank additions of its own to the block's matrices.
 *
 * No other program writes the family as GGUF. In addition to the contents of Mamba-2 files, Chimère's files have:
 *
 *   key zamba2.shared_layers      i32 [n_layer]: layer that holds the weights of the block that this layer
 *                                 uses (the first to use it), -1: the layer uses none
 *   key zamba2.adapter_rank       u32
 *   key zamba2.ssm.time_step_min  f32, smallest step
 *   key zamba2.attention.scale    f32, (head size / 2)^-1/2
 *   key zamba2.rope.dimension_count   0 if the block has no positions
 *
 * In the layer that holds a block's weights, n_embd2 = 2 n_embd:
 *
 *   blk.N.shared_norm.weight      [n_embd2]
 *   blk.N.attn_q|k|v.weight       [n_embd2, heads * head size]
 *   blk.N.attn_output.weight      [heads * head size, n_embd]
 *   blk.N.ffn_norm.weight, ffn_gate, ffn_up, ffn_down    of a GELU-gated feed-forward block
 *
 * In every layer that uses one, a [n_in, rank], b [rank, n_out]; their product is added to the product with W:
 *
 *   blk.N.attn_q_a|b.weight, attn_k_a|b, attn_v_a|b      may be absent
 *   blk.N.ffn_a.weight, ffn_gate_b.weight, ffn_up_b.weight
 *   blk.N.shared_output.weight    [n_embd, n_embd], applied to the block's result
 *
 * A layer computes t = shared_output(ffn(norm(attention(shared_norm [x | embedding])))), then x +=
 * mamba2(attn_norm(x + t)); t is 0 if it uses no block. */
#include <stddef.h>

#include "base/err.h"
#include "model/arch/arch_config.h"
#include "model/arch/arch_impl.h"

#define HF "model.layers.%d."
#define SHARED HF "shared_transformer."
#define SELF "model.layers.%o.shared_transformer.self_attn.linear_"
#define FEED "model.layers.%o.shared_transformer.feed_forward.gate_up_proj_adapter_list.%h."

static const struct tensor_row rows_globals[] = {
    GMAT("token_embd.weight", "model.embed_tokens.weight", token_embd, 0, D_EMBD, D_VOCAB),
    GVEC("output_norm.weight", "model.final_layernorm.weight", output_norm, 0, TF_NONE, D_EMBD),
    GMAT("output.weight", "lm_head.weight", output, TS_TIED, D_EMBD, D_VOCAB), ROWS_END};

static const struct tensor_row rows_mamba[] = {VEC("blk.%d.attn_norm.weight",
                                                   HF "input_layernorm.weight", attn_norm, AT_LAYER,
                                                   0, TF_NONE, D_EMBD),
                                               ROWS_MAMBA2(HF "mamba."), ROWS_END};

static const struct tensor_row rows_shared[] = {
    VEC("blk.%d.shared_norm.weight", SHARED "input_layernorm.weight", shared.norm, AT_ATTN, 0,
        TF_NONE, D_EMBD2),
    MAT("blk.%d.attn_q.weight", SHARED "self_attn.q_proj.weight", attn.q, AT_ATTN, 0, TF_NONE,
        D_EMBD2, D_Q, D_NONE),
    MAT("blk.%d.attn_k.weight", SHARED "self_attn.k_proj.weight", attn.k, AT_ATTN, 0, TF_NONE,
        D_EMBD2, D_K, D_NONE),
    MAT("blk.%d.attn_v.weight", SHARED "self_attn.v_proj.weight", attn.v, AT_ATTN, 0, TF_NONE,
        D_EMBD2, D_V, D_NONE),
    MAT("blk.%d.attn_output.weight", SHARED "self_attn.o_proj.weight", attn.out, AT_ATTN, 0,
        TF_NONE, D_ATTN_OUT, D_EMBD, D_NONE),
    VEC("blk.%d.ffn_norm.weight", SHARED "pre_ff_layernorm.weight", ffn_norm, AT_FFN_DENSE, 0,
        TF_NONE, D_EMBD),
    MAT("blk.%d.ffn_gate.weight", SHARED "feed_forward.gate_up_proj.weight", ffn.gate, AT_FFN_DENSE,
        0, TF_FIRST_HALF, D_EMBD, D_FF, D_NONE),
    MAT("blk.%d.ffn_up.weight", SHARED "feed_forward.gate_up_proj.weight", ffn.up, AT_FFN_DENSE, 0,
        TF_SECOND_HALF, D_EMBD, D_FF, D_NONE),
    MAT("blk.%d.ffn_down.weight", SHARED "feed_forward.down_proj.weight", ffn.down, AT_FFN_DENSE, 0,
        TF_NONE, D_FF, D_EMBD, D_NONE),
    ROWS_END};

static const struct tensor_row rows_own[] = {
    MAT("blk.%d.attn_q_a.weight", SELF "q_adapter_list.%h.0.weight", shared.q_a, AT_SHARED,
        TS_OPTIONAL, TF_NONE, D_EMBD2, D_ADAPTER, D_NONE),
    MAT("blk.%d.attn_q_b.weight", SELF "q_adapter_list.%h.1.weight", shared.q_b, AT_SHARED,
        TS_OPTIONAL, TF_NONE, D_ADAPTER, D_Q, D_NONE),
    MAT("blk.%d.attn_k_a.weight", SELF "k_adapter_list.%h.0.weight", shared.k_a, AT_SHARED,
        TS_OPTIONAL, TF_NONE, D_EMBD2, D_ADAPTER, D_NONE),
    MAT("blk.%d.attn_k_b.weight", SELF "k_adapter_list.%h.1.weight", shared.k_b, AT_SHARED,
        TS_OPTIONAL, TF_NONE, D_ADAPTER, D_K, D_NONE),
    MAT("blk.%d.attn_v_a.weight", SELF "v_adapter_list.%h.0.weight", shared.v_a, AT_SHARED,
        TS_OPTIONAL, TF_NONE, D_EMBD2, D_ADAPTER, D_NONE),
    MAT("blk.%d.attn_v_b.weight", SELF "v_adapter_list.%h.1.weight", shared.v_b, AT_SHARED,
        TS_OPTIONAL, TF_NONE, D_ADAPTER, D_V, D_NONE),
    MAT("blk.%d.ffn_a.weight", FEED "0.weight", shared.ffn_a, AT_SHARED, 0, TF_NONE, D_EMBD,
        D_ADAPTER, D_NONE),
    MAT("blk.%d.ffn_gate_b.weight", FEED "1.weight", shared.gate_b, AT_SHARED, 0, TF_FIRST_HALF,
        D_ADAPTER, D_FF, D_NONE),
    MAT("blk.%d.ffn_up_b.weight", FEED "1.weight", shared.up_b, AT_SHARED, 0, TF_SECOND_HALF,
        D_ADAPTER, D_FF, D_NONE),
    MAT("blk.%d.shared_output.weight", HF "linear.weight", shared.out, AT_SHARED, 0, TF_NONE,
        D_EMBD, D_EMBD, D_NONE),
    ROWS_END};

/* In layers that use a block, the Mamba-2 layer's names have a prefix. */
static const struct name_alias aliases[] = {
    {".mamba.", ".mamba_decoder.mamba."},
    {".input_layernorm.", ".mamba_decoder.input_layernorm."},
    {NULL, NULL}};

static const struct key_row keys[] = {
    {"context_length", "max_position_embeddings", KEY_U32, true, NAN},
    {"embedding_length", "hidden_size", KEY_U32, true, NAN},
    {"block_count", "num_hidden_layers", KEY_U32, true, NAN},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", KEY_F32, false, 1e-5},
    {"adapter_rank", "adapter_rank", KEY_U32, true, NAN},
    {"ssm.conv_kernel", "mamba_d_conv", KEY_U32, false, 4},
    {"ssm.state_size", "mamba_d_state", KEY_U32, true, NAN},
    {"ssm.group_count", "mamba_ngroups", KEY_U32, false, 1},
    {"ssm.time_step_rank", "n_mamba_heads", KEY_U32, true, NAN},
    {"ssm.time_step_min", "time_step_min", KEY_F32, false, 0.001},
    {.gguf = NULL}};

/* Whether a layer uses a block, from its type or its number. */
static bool is_hybrid(const json_t *config, int64_t il) {
    const json_t *types = json_object_get(config, "layers_block_type");
    const char *t = json_string_value(json_array_get(types, (size_t)il));
    if (t) return strcmp(t, "hybrid") == 0;
    const json_t *ids = json_object_get(config, "hybrid_layer_ids"), *id;
    size_t i;
    json_array_foreach((json_t *)ids, i, id) if (json_integer_value(id) == il) return true;
    return false;
}

static int derive(const json_t *config, struct gguf_writer *w, struct err *e) {
    int64_t n_layer = arch_config_int(config, "num_hidden_layers", 0), n_hybrid = 0;
    int64_t n_block = arch_config_int(config, "num_mem_blocks", 1);
    int64_t d = arch_config_int(config, "hidden_size", 0);
    int64_t n_head = arch_config_int(config, "num_attention_heads", 0);
    int64_t n_kv = arch_config_int(config, "num_key_value_heads", n_head);
    int64_t n_ff = arch_config_int(config, "intermediate_size", 4 * d);
    int64_t d_head = arch_config_int(config, "attention_head_dim", n_head > 0 ? 2 * d / n_head : 0);
    int64_t expand = arch_config_int(config, "mamba_expand", 2);
    if (n_layer < 1 || n_layer > ARCH_MAX_LAYERS || d < 1 || d > ARCH_MAX_EMBD || n_head < 1 ||
        n_head > 4096 || n_kv < 1 || n_ff < 1 || n_ff > 1 << 24 || d_head < 1 || n_block < 1 ||
        n_block > n_layer || expand < 1 || expand > 16)
        return err_set(e, CHIMERE_EFORMAT,
                       "config.json: sizes of layers: expected positive numbers");
    const char *act = json_string_value(json_object_get(config, "hidden_act"));
    if (act && strcmp(act, "gelu") != 0)
        return err_set(e, CHIMERE_EUNSUPPORTED, "config.json: hidden_act: expected gelu, got '%s'",
                       act);
    if (json_is_true(json_object_get(config, "add_bias_linear")))
        return err_set(e, CHIMERE_EUNSUPPORTED,
                       "config.json: add_bias_linear: expected false, got true");
    if (json_is_true(json_object_get(config, "use_long_context")))
        return err_set(e, CHIMERE_EUNSUPPORTED,
                       "config.json: use_long_context: expected false, got true");
    int32_t shared[ARCH_MAX_LAYERS], first[ARCH_MAX_LAYERS];
    uint32_t kv[ARCH_MAX_LAYERS], ff[ARCH_MAX_LAYERS];
    for (int64_t il = 0; il < n_layer; il++) {
        bool asks = is_hybrid(config, il);
        if (asks && n_hybrid < n_block) first[n_hybrid] = (int32_t)il;
        shared[il] = asks ? first[n_hybrid++ % n_block] : -1;
        kv[il] = asks ? (uint32_t)n_kv : 0;
        ff[il] = asks ? (uint32_t)n_ff : 0;
    }
    gguf_put_array(w, "zamba2.shared_layers", GGUF_I32, shared, (size_t)n_layer);
    gguf_put_array(w, "zamba2.attention.head_count_kv", GGUF_U32, kv, (size_t)n_layer);
    gguf_put_array(w, "zamba2.feed_forward_length", GGUF_U32, ff, (size_t)n_layer);
    gguf_put_u32(w, "zamba2.attention.head_count", (uint32_t)n_head);
    gguf_put_u32(w, "zamba2.attention.key_length", (uint32_t)d_head);
    gguf_put_u32(w, "zamba2.attention.value_length", (uint32_t)d_head);
    gguf_put_f32(w, "zamba2.attention.scale", (float)(1 / sqrt((double)d_head / 2)));
    bool rope = json_is_true(json_object_get(config, "use_mem_rope"));
    gguf_put_u32(w, "zamba2.rope.dimension_count", rope ? (uint32_t)d_head : 0);
    const json_t *base = json_object_get(json_object_get(config, "rope_parameters"), "rope_theta");
    if (!base) base = json_object_get(config, "rope_theta");
    gguf_put_f32(w, "zamba2.rope.freq_base",
                 json_is_number(base) ? (float)json_number_value(base) : 10000.0f);
    gguf_put_u32(w, "zamba2.ssm.inner_size", (uint32_t)(d * expand));
    return 0;
}

static int read_shared(struct hparams *hp, const struct gguf *g, struct err *e) {
    int32_t shared[ARCH_MAX_LAYERS];
    int rc = key_i32_per_layer(hp, g, "shared_layers", true, -1, ARCH_MAX_LAYERS, hp->n_layer,
                               shared, sizeof shared[0], e);
    for (int32_t il = 0; !rc && il < hp->n_layer; il++) {
        struct layer_shape *l = &hp->layer[il];
        l->mixer = MIX_MAMBA2;
        if (shared[il] < 0) continue;
        if (shared[il] > il || shared[shared[il]] != shared[il] || l->n_ff < 1)
            return err_set(e, CHIMERE_EFORMAT,
                           "key zamba2.shared_layers: expected in layer %d a layer up to it that "
                           "holds a block, got %d",
                           il, shared[il]);
        l->mixer |= MIX_ATTN;
        l->ffn = FFN_DENSE;
        l->join = JOIN_SHARED;
        l->share_back = il - shared[il];
        if (l->n_ff != hp->layer[shared[il]].n_ff)
            return err_set(e, CHIMERE_EFORMAT,
                           "key zamba2.feed_forward_length: expected the same in layers %d and %d",
                           shared[il], il);
    }
    return rc;
}

static int read(struct hparams *hp, const struct gguf *g, struct err *e) {
    int rc = read_layers(hp, g, e);
    if (!rc) rc = read_shared(hp, g, e);
    if (!rc) rc = read_attention(hp, g, e);
    for (int32_t il = 0; !rc && il < hp->n_layer; il++)
        if (hp->layer[il].n_kv_head != hp->layer[il - hp->layer[il].share_back].n_kv_head ||
            hp->layer[il].n_head != hp->layer[il - hp->layer[il].share_back].n_head)
            return err_set(e, CHIMERE_EFORMAT,
                           "layer %d: expected as many heads as where its block stands", il);
    if (!rc) rc = read_rope(hp, g, ROPE_NEOX, e);
    if (!rc) rc = read_mamba2(hp, g, e);
    if (!rc) rc = key_i32(hp, g, "adapter_rank", true, 1, 4096, &hp->adapter_rank, e);
    if (!rc) rc = key_f32(hp, g, "attention.layer_norm_rms_epsilon", true, 0, 1, &hp->eps, e);
    hp->act = ACT_GELU_ERF;
    return rc;
}

static const char *const hf_types[] = {"zamba2", NULL};
static const struct tensor_row *const tables[] = {rows_globals, rows_mamba, rows_shared, rows_own,
                                                  NULL};

const struct arch arch_zamba2 = {
    .name = "zamba2",
    .hf_model_types = hf_types,
    .tensors = tables,
    .keys = keys,
    .fields =
        "hidden_act=gelu add_bias_linear=false use_long_context=false use_mem_rope "
        "hybrid_layer_ids "
        "layers_block_type layer_types num_mem_blocks num_attention_heads num_key_value_heads "
        "intermediate_size ffn_hidden_size attention_head_dim attention_hidden_size kv_channels "
        "num_query_groups mamba_expand mamba_headdim chunk_size time_step_max time_step_floor "
        "use_conv_bias use_mem_eff_path use_shared_attention_adapter "
        "use_shared_mlp_adapter=true use_shared_block_lora=true lora_rank rope num_hidden_layers",
    .derive = derive,
    .read = read,
    .aliases = aliases};

/* arch_gemma4.c: Gemma 4 (text): Gemma 3's layers, with wider heads in layers without a window, normalized values,
 * values that are keys, keys and values shared with an earlier layer, per-layer embeddings, and experts beside a dense
 * block. */
#include <stddef.h>

#include "base/err.h"
#include "model/arch/arch_config.h"
#include "model/arch/arch_impl.h"

#define HF "model.layers.%d."

static const struct tensor_row rows_globals[] = {
    GVEC("rope_freqs.weight", NULL, rope_freqs, TS_OPTIONAL, TF_NONE, D_NONE),
    GMAT("per_layer_token_embd.weight", "model.embed_tokens_per_layer.weight", ple_embd,
         TS_OPTIONAL, D_PLE_ALL, D_VOCAB),
    GMAT("per_layer_model_proj.weight", "model.per_layer_model_projection.weight", ple_proj,
         TS_OPTIONAL, D_EMBD, D_PLE_ALL),
    GVEC("per_layer_proj_norm.weight", "model.per_layer_projection_norm.weight", ple_norm,
         TS_OPTIONAL, TF_NONE, D_PLE),
    ROWS_END};

#define NORM(gguf_, hf_, slot_, where_)                                                            \
    VEC("blk.%d." gguf_ ".weight", HF hf_ ".weight", slot_, where_, 0, TF_NONE, D_EMBD)

static const struct tensor_row rows_layer[] = {
    NORM("attn_norm", "input_layernorm", attn_norm, AT_LAYER),
    NORM("post_attention_norm", "post_attention_layernorm", attn_post_norm, AT_LAYER),
    NORM("ffn_norm", "pre_feedforward_layernorm", ffn_norm, AT_LAYER),
    NORM("post_ffw_norm", "post_feedforward_layernorm", ffn_post_norm, AT_LAYER),
    VEC("blk.%d.layer_output_scale.weight", HF "layer_scalar", ple.out_scale, AT_LAYER, TS_OPTIONAL,
        TF_NONE, D_ONE),
    MAT("blk.%d.attn_q.weight", HF "self_attn.q_proj.weight", attn.q, AT_ATTN, 0, TF_NONE, D_EMBD,
        D_Q, D_NONE),
    MAT("blk.%d.attn_k.weight", HF "self_attn.k_proj.weight", attn.k, AT_ATTN_KV, 0, TF_NONE,
        D_EMBD, D_K, D_NONE),
    MAT("blk.%d.attn_v.weight", HF "self_attn.v_proj.weight", attn.v, AT_ATTN_KV, TS_OPTIONAL,
        TF_NONE, D_EMBD, D_V, D_NONE),
    MAT("blk.%d.attn_output.weight", HF "self_attn.o_proj.weight", attn.out, AT_ATTN, 0, TF_NONE,
        D_ATTN_OUT, D_EMBD, D_NONE),
    VEC("blk.%d.attn_q_norm.weight", HF "self_attn.q_norm.weight", attn.q_norm, AT_ATTN, 0, TF_NONE,
        D_HEAD_K),
    VEC("blk.%d.attn_k_norm.weight", HF "self_attn.k_norm.weight", attn.k_norm, AT_ATTN_KV, 0,
        TF_NONE, D_HEAD_K),
    MAT("blk.%d.inp_gate.weight", HF "per_layer_input_gate.weight", ple.gate, AT_PLE, 0, TF_NONE,
        D_EMBD, D_PLE, D_NONE),
    MAT("blk.%d.proj.weight", HF "per_layer_projection.weight", ple.proj, AT_PLE, 0, TF_NONE, D_PLE,
        D_EMBD, D_NONE),
    NORM("post_norm", "post_per_layer_input_norm", ple.norm, AT_PLE),
    ROWS_END};

static const struct tensor_row rows_experts[] = {
    NORM("post_ffw_norm_1", "post_feedforward_layernorm_1", moe.dense_norm, AT_FFN_BOTH),
    NORM("pre_ffw_norm_2", "pre_feedforward_layernorm_2", moe.pre_norm, AT_FFN_BOTH),
    NORM("post_ffw_norm_2", "post_feedforward_layernorm_2", moe.post_norm, AT_FFN_BOTH),
    MAT("blk.%d.ffn_gate_inp.weight", HF "router.proj.weight", moe.router, AT_FFN_MOE, TS_F32,
        TF_NONE, D_EMBD, D_EXPERT, D_NONE),
    VEC("blk.%d.ffn_gate_inp.scale", HF "router.scale", moe.router_norm, AT_FFN_MOE, 0, TF_NONE,
        D_EMBD),
    {"blk.%d.ffn_gate_up_exps.weight",
     HF "experts.gate_up_proj",
     NULL,
     offsetof(struct layer_weights, moe.gate_up),
     false,
     AT_FFN_MOE,
     0,
     TF_NONE,
     TF_NONE,
     {D_EMBD, D_FF_EXP2, D_EXPERT}},
    MAT("blk.%d.ffn_down_exps.weight", HF "experts.down_proj", moe.down, AT_FFN_MOE, 0, TF_NONE,
        D_FF_EXP, D_EMBD, D_EXPERT),
    VEC("blk.%d.ffn_down_exps.scale", HF "router.per_expert_scale", moe.expert_scale, AT_FFN_MOE, 0,
        TF_NONE, D_EXPERT),
    ROWS_END};

/* Published configurations omit the family's defaults. */
static const struct key_row keys[] = {
    {"context_length", "max_position_embeddings", KEY_U32, false, 131072},
    {"embedding_length", "hidden_size", KEY_U32, true, NAN},
    {"block_count", "num_hidden_layers", KEY_U32, true, NAN},
    {"attention.head_count", "num_attention_heads", KEY_U32, false, 8},
    {"attention.key_length_swa", "head_dim", KEY_U32, false, 256},
    {"attention.value_length_swa", "head_dim", KEY_U32, false, 256},
    {"attention.shared_kv_layers", "num_kv_shared_layers", KEY_U32, false, 0},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", KEY_F32, false, 1e-6},
    {"embedding_length_per_layer_input", "hidden_size_per_layer_input", KEY_U32, false, 256},
    {"final_logit_softcapping", "final_logit_softcapping", KEY_F32, false, NAN},
    {"rope.freq_base", "rope_parameters.full_attention.rope_theta", KEY_F32, false, 1e6},
    {"rope.freq_base_swa", "rope_parameters.sliding_attention.rope_theta", KEY_F32, false, 10000},
    {"rope.dimension_count_swa", "head_dim", KEY_U32, false, 256},
    {"expert_count", "num_experts", KEY_U32, false, NAN},
    {"expert_used_count", "top_k_experts", KEY_U32, false, NAN},
    {"expert_feed_forward_length", "moe_intermediate_size", KEY_U32, false, NAN},
    {.gguf = NULL}};

static bool is_full(const json_t *types, int64_t il, int64_t n) {
    const char *type = json_string_value(json_array_get(types, (size_t)il));
    return type ? strcmp(type, "full_attention") == 0 : (il + 1) % 6 == 0 || il + 1 == n;
}

/* A field of layer il, which transformers 5 lists per layer; else def. */
static int64_t own_field(const json_t *config, int64_t il, const char *name, int64_t def) {
    char number[24];
    snprintf(number, sizeof number, "%lld", (long long)il);
    const json_t *own = json_object_get(json_object_get(config, "per_layer_config"), number);
    return arch_config_int(own, name, def);
}

/* Head sizes of layers without a window. */
static int put_head_size(const json_t *config, const json_t *types, int64_t n,
                         struct gguf_writer *w, struct err *e) {
    int64_t usual = arch_config_int(config, "head_dim", 256);
    int64_t own = arch_config_int(config, "global_head_dim", 512), d = 0;
    bool listed = json_object_get(config, "per_layer_config") != NULL;
    for (int64_t il = 0; il < n; il++) {
        bool full = is_full(types, il, n);
        int64_t got = own_field(config, il, "head_dim", full && !listed ? own : usual);
        if (got < 1 || got > 4096 || (full && d && got != d) || (!full && got != usual))
            return err_set(e, CHIMERE_EUNSUPPORTED,
                           "config.json: per_layer_config: expected one head size for each of the "
                           "two kinds of layers");
        if (full) d = got;
    }
    if (!d) d = usual;
    gguf_put_u32(w, "gemma4.attention.key_length", (uint32_t)d);
    gguf_put_u32(w, "gemma4.attention.value_length", (uint32_t)d);
    gguf_put_u32(w, "gemma4.rope.dimension_count", (uint32_t)d);
    return 0;
}

/* Sizes that differ between layers. */
static int derive(const json_t *config, struct gguf_writer *w, struct err *e) {
    int64_t n = arch_config_int(config, "num_hidden_layers", 0);
    int64_t n_shared = arch_config_int(config, "num_kv_shared_layers", 0);
    int64_t n_ff = arch_config_int(config, "intermediate_size", 9216);
    int64_t n_kv = arch_config_int(config, "num_key_value_heads", 4), n_kv_full = n_kv;
    const json_t *types = json_object_get(config, "layer_types");
    const json_t *rope = json_object_get(config, "rope_parameters");
    const json_t *local = json_object_get(rope, "sliding_attention");
    const json_t *global = json_object_get(rope, "full_attention");
    if (json_is_true(json_object_get(config, "attention_k_eq_v")))
        n_kv_full = arch_config_int(config, "num_global_key_value_heads", n_kv);
    bool wide = json_is_true(json_object_get(config, "use_double_wide_mlp"));
    if (n < 1 || n > ARCH_MAX_LAYERS || n_shared < 0 || n_shared > n || n_ff < 1 ||
        n_ff > 1 << 23 || n_kv < 1 || n_kv > 4096 || n_kv_full < 1 || n_kv_full > 4096)
        return err_set(e, CHIMERE_EFORMAT,
                       "config.json: numbers of layers, shared layers, hidden rows or key heads: "
                       "out of range");
    if ((local && !arch_config_is(local, "rope_type", "default")) ||
        (global && !arch_config_is(global, "rope_type", "proportional")))
        return err_set(e, CHIMERE_EUNSUPPORTED,
                       "config.json: rope_type: expected default in sliding_attention and "
                       "proportional in full_attention");
    uint32_t ff[ARCH_MAX_LAYERS], kv[ARCH_MAX_LAYERS];
    uint8_t windowed[ARCH_MAX_LAYERS];
    for (int64_t il = 0; il < n; il++) {
        bool full = is_full(types, il, n);
        ff[il] = (uint32_t)(wide && il >= n - n_shared ? 2 * n_ff : n_ff);
        int64_t n_own = own_field(config, il, "num_key_value_heads", full ? n_kv_full : n_kv);
        if (n_own < 1 || n_own > 4096)
            return err_set(e, CHIMERE_EFORMAT, "config.json: num_key_value_heads: out of range");
        kv[il] = (uint32_t)n_own;
        windowed[il] = !full;
    }
    gguf_put_array(w, "gemma4.feed_forward_length", GGUF_U32, ff, (size_t)n);
    gguf_put_array(w, "gemma4.attention.head_count_kv", GGUF_U32, kv, (size_t)n);
    gguf_put_array(w, "gemma4.attention.sliding_window_pattern", GGUF_BOOL, windowed, (size_t)n);
    gguf_put_u32(w, "gemma4.attention.sliding_window",
                 (uint32_t)arch_config_int(config, "sliding_window", 512));
    return put_head_size(config, types, n, w, e);
}

/* Head sizes, and layers that read the keys of the last layer before them that has its own and the same window. */
static int read_heads(struct hparams *hp, const struct gguf *g, struct err *e) {
    int32_t d_k = hp->d_k, d_v = hp->d_v, n_shared = 0;
    int rc = key_i32(hp, g, "attention.key_length_swa", false, 2, 4096, &d_k, e);
    if (!rc) rc = key_i32(hp, g, "attention.value_length_swa", false, 2, 4096, &d_v, e);
    if (!rc)
        rc = key_i32(hp, g, "attention.shared_kv_layers", false, 0, hp->n_layer - 1, &n_shared, e);
    if (rc) return rc;
    int32_t first = hp->n_layer - n_shared, last[2] = {-1, -1};
    for (int32_t il = 0; il < hp->n_layer; il++) {
        struct layer_shape *l = &hp->layer[il];
        if (l->window) l->d_k = d_k, l->d_v = d_v;
        if (il < first) {
            last[l->window > 0] = il;
            continue;
        }
        if (last[l->window > 0] < 0)
            return err_set(e, CHIMERE_EFORMAT,
                           "layer %d: expected an earlier layer of its kind to share keys with",
                           il);
        l->kv_back = il - last[l->window > 0];
        l->n_kv_head = hp->layer[last[l->window > 0]].n_kv_head;
    }
    hp->d_k = d_k > hp->d_k ? d_k : hp->d_k;
    hp->d_v = d_v > hp->d_v ? d_v : hp->d_v;
    if (d_k % 2 || d_k != d_v)
        return err_set(e, CHIMERE_EFORMAT, "head size: expected an even number, got %d and %d", d_k,
                       d_v);
    return 0;
}

/* The factor of a layer's result is a tensor of one number. */
static int read_scales(struct hparams *hp, const struct gguf *g, struct err *e) {
    for (int32_t il = 0; il < hp->n_layer; il++) {
        char name[64];
        float scale;
        snprintf(name, sizeof name, "blk.%d.layer_output_scale.weight", il);
        const struct gguf_tensor *t = gguf_find_tensor(g, name);
        if (!t) continue;
        if (t->type != 0 || t->n_elements != 1 || !t->data)
            return err_set(e, CHIMERE_EFORMAT, "tensor %s: expected one f32", name);
        memcpy(&scale, t->data, sizeof scale);
        if (!(fabsf(scale) > 0) || !isfinite(scale))
            return err_set(e, CHIMERE_EFORMAT, "tensor %s: expected a number that is not 0", name);
        hp->layer[il].out_scale = scale == 1 ? 0 : scale;
    }
    return 0;
}

static int read_experts(struct hparams *hp, const struct gguf *g, struct err *e) {
    int32_t n_expert = 0;
    int rc = key_i32(hp, g, "expert_count", false, 0, ARCH_MAX_EXPERTS, &n_expert, e);
    if (rc || !n_expert) return rc;
    for (int32_t il = 0; il < hp->n_layer; il++) {
        hp->layer[il].ffn = FFN_BOTH;
        hp->layer[il].join = JOIN_BESIDE;
    }
    hp->moe.normalise = true;
    return read_moe(hp, g, e);
}

static int read(struct hparams *hp, const struct gguf *g, struct err *e) {
    int rc = read_trunk(hp, g, e);
    for (int32_t il = 0; !rc && il < hp->n_layer; il++) {
        hp->layer[il].mixer = MIX_ATTN;
        hp->layer[il].ffn = FFN_DENSE;
        if (hp->layer[il].n_ff < 1)
            rc = err_set(e, CHIMERE_EFORMAT,
                         "key gemma4.feed_forward_length: expected at least 1, got %d",
                         hp->layer[il].n_ff);
    }
    if (!rc) rc = read_experts(hp, g, e);
    if (!rc) rc = read_attention(hp, g, e);
    if (!rc) rc = read_rope(hp, g, ROPE_NEOX, e);
    if (!rc) rc = read_heads(hp, g, e);
    hp->rope_base_window = 10000;
    hp->n_rot_window = hp->n_layer ? hp->layer[0].d_k : 0;
    for (int32_t il = 0; !rc && il < hp->n_layer; il++)
        if (hp->layer[il].window) hp->n_rot_window = hp->layer[il].d_k;
    if (!rc) rc = key_f32(hp, g, "rope.freq_base_swa", false, 1, 1e12, &hp->rope_base_window, e);
    if (!rc)
        rc = key_i32(hp, g, "rope.dimension_count_swa", false, 2, hp->n_rot_window,
                     &hp->n_rot_window, e);
    if (!rc) rc = key_f32(hp, g, "attention.layer_norm_rms_epsilon", true, 0, 1, &hp->eps, e);
    if (!rc) rc = key_f32(hp, g, "final_logit_softcapping", false, 0, 1e6, &hp->logit_cap, e);
    if (!rc)
        rc = key_i32(hp, g, "embedding_length_per_layer_input", false, 0, 1 << 14, &hp->n_ple, e);
    if (!rc) rc = read_scales(hp, g, e);
    if (rc) return rc;
    for (int32_t il = 0; il < hp->n_layer; il++) hp->layer[il].has_ple = hp->n_ple > 0;
    hp->act = ACT_GELU;
    hp->attn_scale = 1;
    hp->has_v_norm = true;
    hp->has_post_norm = true;
    hp->embd_scale = sqrtf((float)hp->n_embd);
    return 0;
}

static const char *const hf_types[] = {"gemma4_text", NULL};
static const struct tensor_row *const tables[] = {rows_embd, rows_globals, rows_layer,
                                                  rows_ffn,  rows_experts, NULL};

const struct arch arch_gemma4 = {
    .name = "gemma4",
    .hf_model_types = hf_types,
    .tensors = tables,
    .keys = keys,
    .fields = "hidden_activation=gelu_pytorch_tanh hidden_act=gelu_pytorch_tanh "
              "attention_bias=false layer_types sliding_window intermediate_size "
              "num_key_value_heads num_global_key_value_heads global_head_dim attention_k_eq_v "
              "use_double_wide_mlp "
              "enable_moe_block vocab_size_per_layer_input per_layer_config "
              "use_bidirectional_attention=vision cache_implementation rope:full_attention "
              "rope:sliding_attention",
    .derive = derive,
    .read = read};

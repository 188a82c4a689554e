/* arch_nomic_bert.c: encoders without learned positions: Nomic-BERT and Jina v3 (RoPE), ModernBERT (RoPE, windows,
 * norms before the blocks), Jina v2 (ALiBi). */
#include <stddef.h>

#include "base/err.h"
#include "model/arch/arch_config.h"
#include "model/arch/arch_encoder.h"

/* Nomic and Jina v3: names of the program they were trained with. */
#define LAYER "encoder.layers.%d."
static const struct tensor_row rows_globals[] = {ENCODER_EMBEDDINGS("emb_ln"), ROWS_END};
static const struct tensor_row rows_nomic[] = {
    ENCODER_FUSED_QKV(LAYER "attn.Wqkv"),
    ENCODER_BLOCKS(LAYER "attn.out_proj", LAYER "mlp.fc11", LAYER "mlp.fc2"),
    MAT("blk.%d.ffn_gate.weight", LAYER "mlp.fc12.weight", ffn.gate, AT_FFN_DENSE, 0, TF_NONE,
        D_EMBD, D_FF, D_NONE),
    ENCODER_NORMS(LAYER "norm1", LAYER "norm2"), ROWS_END};
static const struct tensor_row rows_jina3[] = {
    ENCODER_FUSED_QKV(LAYER "mixer.Wqkv"),
    ENCODER_BLOCKS(LAYER "mixer.out_proj", LAYER "mlp.fc1", LAYER "mlp.fc2"),
    ENCODER_NORMS(LAYER "norm1", LAYER "norm2"), ROWS_END};

#define BERT "encoder.layer.%d."
static const struct tensor_row rows_jina2_globals[] = {ENCODER_EMBEDDINGS("embeddings.LayerNorm"),
                                                       ROWS_END};
static const struct tensor_row rows_jina2[] = {
    ENCODER_QKV(BERT "attention.self.query", BERT "attention.self.key",
                BERT "attention.self.value"),
    ENCODER_BLOCKS(BERT "attention.output.dense", BERT "mlp.gated_layers", BERT "mlp.wo"),
    /* files of older converters have the gate on its own */
    MAT("blk.%d.ffn_gate.weight", NULL, ffn.gate, AT_FFN_DENSE, TS_OPTIONAL, TF_NONE, D_EMBD, D_FF,
        D_NONE),
    ENCODER_NORMS(BERT "attention.output.LayerNorm", BERT "mlp.layernorm"), ROWS_END};

static const struct tensor_row rows_modern_globals[] = {
    GMAT("token_embd.weight", "embeddings.tok_embeddings.weight", token_embd, 0, D_EMBD, D_VOCAB),
    GVEC("token_embd_norm.weight", "embeddings.norm.weight", embd_norm, 0, TF_NONE, D_EMBD),
    GVEC("token_embd_norm.bias", "embeddings.norm.bias", embd_norm_b, TS_OPTIONAL, TF_NONE, D_EMBD),
    GVEC("output_norm.weight", "final_norm.weight", output_norm, 0, TF_NONE, D_EMBD),
    GVEC("output_norm.bias", "final_norm.bias", output_norm_b, TS_OPTIONAL, TF_NONE, D_EMBD),
    ENCODER_OR("cls.weight", "head.dense.weight", NULL, cls, false, D_EMBD, D_EMBD),
    ENCODER_OR("cls.bias", "head.dense.bias", NULL, cls_b, true, D_EMBD, D_NONE),
    ENCODER_OR("cls.norm.weight", "head.norm.weight", NULL, cls_norm, true, D_EMBD, D_NONE),
    ENCODER_OR("cls.norm.bias", "head.norm.bias", NULL, cls_norm_b, true, D_EMBD, D_NONE),
    ENCODER_OR("cls.output.weight", "classifier.weight", NULL, cls_out, false, D_EMBD, D_ONE),
    ENCODER_OR("cls.output.bias", "classifier.bias", NULL, cls_out_b, true, D_ONE, D_NONE),
    ROWS_END};
/* The first layer reads the embedding's norm and has none of its own. */
static const struct tensor_row rows_modern[] = {
    ENCODER_FUSED_QKV("layers.%d.attn.Wqkv"),
    ENCODER_BLOCKS("layers.%d.attn.Wo", "layers.%d.mlp.Wi", "layers.%d.mlp.Wo"),
    VEC("blk.%d.attn_norm.weight", "layers.%d.attn_norm.weight", attn_norm, AT_LAYER, TS_OPTIONAL,
        TF_NONE, D_EMBD),
    VEC("blk.%d.attn_norm.bias", "layers.%d.attn_norm.bias", attn_norm_b, AT_LAYER, TS_OPTIONAL,
        TF_NONE, D_EMBD),
    VEC("blk.%d.ffn_norm.weight", "layers.%d.mlp_norm.weight", ffn_norm, AT_LAYER, 0, TF_NONE,
        D_EMBD),
    VEC("blk.%d.ffn_norm.bias", "layers.%d.mlp_norm.bias", ffn_norm_b, AT_LAYER, TS_OPTIONAL,
        TF_NONE, D_EMBD),
    ROWS_END};

#define SIZES                                                                                      \
    {"embedding_length", "hidden_size|n_embd", KEY_U32, true, NAN},                                \
        {"block_count", "num_hidden_layers|n_layer", KEY_U32, true, NAN},                          \
        {"feed_forward_length", "intermediate_size|n_inner", KEY_U32, true, NAN}, {                \
        "attention.head_count", "num_attention_heads|n_head", KEY_U32, true, NAN                   \
    }

/* The published context of Nomic is that of a scaled RoPE, which starts after the length trained on. */
static const struct key_row keys_nomic[] = {
    SIZES,
    {"context_length", "max_trained_positions|max_position_embeddings|n_positions", KEY_U32, true,
     NAN},
    {"attention.layer_norm_epsilon", "layer_norm_eps|layer_norm_epsilon", KEY_F32, false, 1e-12},
    {"rope.freq_base", "rope_parameters.rope_theta|rotary_emb_base", KEY_F32, false, 1000},
    {.gguf = NULL}};
static const struct key_row keys_jina3[] = {
    SIZES,
    {"context_length", "max_position_embeddings", KEY_U32, true, NAN},
    {"attention.layer_norm_epsilon", "layer_norm_eps", KEY_F32, false, 1e-5},
    {"rope.freq_base", "rope_parameters.rope_theta|rotary_emb_base", KEY_F32, false, 20000},
    {.gguf = NULL}};
static const struct key_row keys_jina2[] = {
    SIZES,
    {"context_length", "max_position_embeddings", KEY_U32, true, NAN},
    {"attention.layer_norm_epsilon", "layer_norm_eps", KEY_F32, false, 1e-12},
    {.gguf = NULL}};
static const struct key_row keys_modern[] = {
    SIZES,
    {"context_length", "max_position_embeddings", KEY_U32, true, NAN},
    {"attention.layer_norm_epsilon", "norm_eps", KEY_F32, false, 1e-5},
    {"attention.sliding_window", "local_attention", KEY_U32, false, 128},
    {"rope.freq_base", "rope_parameters.full_attention.rope_theta|global_rope_theta", KEY_F32,
     false, 160000},
    {"rope.freq_base_swa", "rope_parameters.sliding_attention.rope_theta|local_rope_theta", KEY_F32,
     false, 10000},
    {.gguf = NULL}};

static int derive_nomic(const json_t *config, struct gguf_writer *w, struct err *e) {
    return arch_encoder_put_pooling(config, "nomic-bert", false, w, e);
}
static int derive_jina2(const json_t *config, struct gguf_writer *w, struct err *e) {
    return arch_encoder_put_pooling(config, "jina-bert-v2", false, w, e);
}
static int derive_jina3(const json_t *config, struct gguf_writer *w, struct err *e) {
    return arch_encoder_put_pooling(config, "jina-bert-v3", false, w, e);
}

/* All layers have a window except the first of each period, or those that layer_types lists. */
static int derive_modern(const json_t *config, struct gguf_writer *w, struct err *e) {
    const json_t *types = json_object_get(config, "layer_types"), *item;
    int64_t period = arch_config_int(config, "global_attn_every_n_layers", 3);
    uint8_t windowed[ARCH_MAX_LAYERS];
    size_t i, n = json_array_size(types);
    const json_t *local =
        json_object_get(json_object_get(config, "rope_parameters"), "sliding_attention");
    if (json_object_get(local, "rope_type") && !arch_config_is(local, "rope_type", "default"))
        return err_set(e, CHIMERE_EUNSUPPORTED,
                       "config.json: expected the default rope_type in sliding_attention");
    if (period < 1 || n > ARCH_MAX_LAYERS)
        return err_set(e, CHIMERE_EFORMAT,
                       "config.json: global_attn_every_n_layers or layer_types: expected 1 to %d",
                       ARCH_MAX_LAYERS);
    json_array_foreach(types, i, item) {
        const char *type = json_string_value(item);
        windowed[i] = type && strcmp(type, "sliding_attention") == 0;
        if (!type || (!windowed[i] && strcmp(type, "full_attention") != 0))
            return err_set(e, CHIMERE_EUNSUPPORTED,
                           "config.json: layer_types: expected full_attention or "
                           "sliding_attention, got '%s'",
                           type ? type : "(none)");
    }
    if (n)
        gguf_put_array(w, "modern-bert.attention.sliding_window_pattern", GGUF_BOOL, windowed, n);
    else gguf_put_u32(w, "modern-bert.attention.sliding_window_pattern", (uint32_t)period);
    bool by_mean = arch_config_is(config, "classifier_pooling", "mean");
    gguf_put_u32(w, "modern-bert.classifier.pooling_type", by_mean ? POOL_MEAN : POOL_CLS);
    return arch_encoder_put_pooling(config, "modern-bert", true, w, e);
}

static int read_nomic(struct hparams *hp, const struct gguf *g, struct err *e) {
    int rc = arch_encoder_read(hp, g, e);
    hp->act = ACT_SILU;
    return rc ? rc : read_rope(hp, g, ROPE_NEOX, e);
}

static int read_jina2(struct hparams *hp, const struct gguf *g, struct err *e) {
    hp->position_bias = BIAS_ALIBI;
    hp->is_up_fused = !gguf_find_tensor(g, "blk.0.ffn_gate.weight");
    return arch_encoder_read(hp, g, e);
}

static int read_jina3(struct hparams *hp, const struct gguf *g, struct err *e) {
    int rc = arch_encoder_read(hp, g, e);
    return rc ? rc : read_rope(hp, g, ROPE_NEOX, e);
}

static int read_modern(struct hparams *hp, const struct gguf *g, struct err *e) {
    int32_t period = 3, window = 0;
    const struct gguf_kv *list;
    int rc = arch_encoder_read(hp, g, e);
    if (!rc) rc = read_rope(hp, g, ROPE_NEOX, e);
    hp->rope_base_window = hp->rope_base;
    if (!rc) rc = key_f32(hp, g, "rope.freq_base_swa", false, 1, 1e12, &hp->rope_base_window, e);
    hp->norm_first = hp->is_up_fused = true;
    hp->rank_pooling = POOL_MEAN; /* files of llama.cpp do not name it */
    hp->rank_act = ACT_GELU_ERF;
    if (!rc) rc = arch_encoder_read_rank(hp, g, e);
    list = key_find(hp, g, "attention.sliding_window_pattern");
    bool has_list = list && list->type == GGUF_ARR;
    if (!rc && !has_list)
        rc = key_i32(hp, g, "attention.sliding_window_pattern", false, 1, ARCH_MAX_LAYERS, &period,
                     e);
    if (!rc) rc = key_i32(hp, g, "attention.sliding_window", false, 0, INT32_MAX, &window, e);
    /* the key has the width of both sides together */
    for (int32_t il = 0; !rc && il < hp->n_layer; il++) {
        struct layer_shape *l = &hp->layer[il];
        if (!has_list) l->window = il % period ? window : 0;
        if (l->window) l->window = l->window / 2 > 0 ? l->window / 2 : 1;
    }
    return rc;
}

static const char *const hf_nomic[] = {"nomic_bert", NULL};
static const char *const hf_modern[] = {"modernbert", NULL};
static const char *const hf_jina2[] = {"bert", "jina_bert", NULL};
static const char *const hf_jina3[] = {"jina_embeddings_v3", NULL};
static const struct tensor_row *const t_nomic[] = {rows_globals, rows_nomic, NULL};
static const struct tensor_row *const t_modern[] = {rows_modern_globals, rows_modern, NULL};
static const struct tensor_row *const t_jina2[] = {rows_jina2_globals, rows_jina2, NULL};
static const struct tensor_row *const t_jina3[] = {rows_globals, rows_jina3, NULL};

static bool has_alibi(const json_t *config) {
    return arch_config_is(config, "position_embedding_type", "alibi");
}

const struct arch arch_nomic_bert = {
    .name = "nomic-bert",
    .hf_model_types = hf_nomic,
    .tensors = t_nomic,
    .keys = keys_nomic,
    .fields =
        "hidden_act=silu activation_function=swiglu head_dim type_vocab_size n_positions "
        "max_trained_positions causal=false dense_seq_output fused_bias_fc "
        "fused_dropout_add_ln mlp_fc1_bias=false mlp_fc2_bias=false pad_vocab_size_multiple "
        "parallel_block=false parallel_block_tied_norm prenorm=false qkv_proj_bias=false "
        "reorder_and_upcast_attn rotary_emb_fraction=1 rotary_emb_interleaved=false "
        "rotary_emb_scale_base rotary_scaling_factor scale_attn_by_inverse_layer_idx=false "
        "scale_attn_weights=true summary_activation summary_first_dropout "
        "summary_proj_to_labels summary_type summary_use_proj use_rms_norm=false use_xentropy "
        "layer_norm_epsilon num_experts=0 expert_choice_router ffn_div",
    .derive = derive_nomic,
    .read = read_nomic};
const struct arch arch_modern_bert = {
    .name = "modern-bert",
    .hf_model_types = hf_modern,
    .tensors = t_modern,
    .keys = keys_modern,
    .fields = "hidden_activation=gelu layer_types global_attn_every_n_layers norm_bias "
              "attention_bias mlp_bias mlp_dropout decoder_bias classifier_pooling=cls|mean "
              "classifier_bias "
              "classifier_activation=gelu deterministic_flash_attn sparse_prediction "
              "sparse_pred_ignore_index initializer_cutoff_factor reference_compile "
              "repad_logits_with_grad position_embedding_type layer_norm_eps causal_mask=false "
              "compile_mode rope:full_attention rope:sliding_attention",
    .derive = derive_modern,
    .read = read_modern};
const struct arch arch_jina_bert2 = {
    .name = "jina-bert-v2",
    .hf_model_types = hf_jina2,
    .tensors = t_jina2,
    .keys = keys_jina2,
    .fields = "hidden_act=gelu position_embedding_type=alibi feed_forward_type=geglu emb_pooler "
              "model_max_length type_vocab_size directionality",
    .derive = derive_jina2,
    .read = read_jina2,
    .suits = has_alibi};
/* The form without adapters per task. */
const struct arch arch_jina_bert3 = {
    .name = "jina-bert-v3",
    .hf_model_types = hf_jina3,
    .tensors = t_jina3,
    .keys = keys_jina3,
    .fields = "hidden_act=gelu head_dim type_vocab_size position_embedding_type=rotary",
    .derive = derive_jina3,
    .read = read_jina3};

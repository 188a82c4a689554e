/* arch_bert.c: BERT encoders (BERT, RoBERTa, XLM-RoBERTa, DistilBERT): embedding models and cross-encoders. */
#include <stddef.h>

#include "base/err.h"
#include "model/arch/arch_config.h"
#include "model/arch/arch_impl.h"

/* RoBERTa checkpoints have padding rows before the first position, and a dense layer inside their classifier. */
#define OR(gguf_, hf_, other_, slot_, vector_, dim0, dim1)                                         \
    {                                                                                              \
        gguf_, hf_, other_, offsetof(struct global_weights, slot_), vector_, AT_GLOBAL,            \
            TS_OPTIONAL | ((vector_) ? TS_F32 : 0), TF_NONE, TF_NONE, {                            \
            dim0, dim1, D_NONE                                                                     \
        }                                                                                          \
    }

static const struct tensor_row rows_globals[] = {
    GMAT("token_embd.weight", "embeddings.word_embeddings.weight", token_embd, 0, D_EMBD, D_VOCAB),
    {"position_embd.weight",
     "embeddings.position_embeddings.weight",
     NULL,
     offsetof(struct global_weights, pos_embd),
     false,
     AT_GLOBAL,
     0,
     TF_LAST_ROWS,
     TF_NONE,
     {D_EMBD, D_CTX, D_NONE}},
    GMAT("token_types.weight", "embeddings.token_type_embeddings.weight", type_embd, TS_OPTIONAL,
         D_EMBD, D_TOKEN_TYPE),
    GVEC("token_embd_norm.weight", "embeddings.LayerNorm.weight", embd_norm, 0, TF_NONE, D_EMBD),
    GVEC("token_embd_norm.bias", "embeddings.LayerNorm.bias", embd_norm_b, 0, TF_NONE, D_EMBD),
    OR("cls.weight", "pooler.dense.weight", "classifier.dense.weight", cls, false, D_EMBD, D_EMBD),
    OR("cls.bias", "pooler.dense.bias", "classifier.dense.bias", cls_b, true, D_EMBD, D_NONE),
    OR("cls.output.weight", "classifier.weight", "classifier.out_proj.weight", cls_out, false,
       D_EMBD, D_ONE),
    OR("cls.output.bias", "classifier.bias", "classifier.out_proj.bias", cls_out_b, true, D_ONE,
       D_NONE),
    ROWS_END};

/* A layer's rows from the names of its parts. Norms follow the residual sums. */
#define ROWS_ENCODER(hf_, q_, k_, v_, out_, norm_, up_, down_, norm2_)                             \
    MAT("blk.%d.attn_q.weight", hf_ q_ ".weight", attn.q, AT_ATTN, TS_OR_FUSED, TF_NONE, D_EMBD,   \
        D_Q, D_NONE),                                                                              \
        MAT("blk.%d.attn_k.weight", hf_ k_ ".weight", attn.k, AT_ATTN, TS_OR_FUSED, TF_NONE,       \
            D_EMBD, D_K, D_NONE),                                                                  \
        MAT("blk.%d.attn_v.weight", hf_ v_ ".weight", attn.v, AT_ATTN, TS_OR_FUSED, TF_NONE,       \
            D_EMBD, D_V, D_NONE),                                                                  \
        MAT("blk.%d.attn_qkv.weight", NULL, attn.qkv, AT_ATTN, TS_OPTIONAL, TF_NONE, D_EMBD,       \
            D_QKV, D_NONE),                                                                        \
        VEC("blk.%d.attn_q.bias", hf_ q_ ".bias", attn.q_b, AT_ATTN, TS_OPTIONAL, TF_NONE, D_Q),   \
        VEC("blk.%d.attn_k.bias", hf_ k_ ".bias", attn.k_b, AT_ATTN, TS_OPTIONAL, TF_NONE, D_K),   \
        VEC("blk.%d.attn_v.bias", hf_ v_ ".bias", attn.v_b, AT_ATTN, TS_OPTIONAL, TF_NONE, D_V),   \
        VEC("blk.%d.attn_qkv.bias", NULL, attn.qkv_b, AT_ATTN, TS_OPTIONAL, TF_NONE, D_QKV),       \
        MAT("blk.%d.attn_output.weight", hf_ out_ ".weight", attn.out, AT_ATTN, 0, TF_NONE,        \
            D_ATTN_OUT, D_EMBD, D_NONE),                                                           \
        VEC("blk.%d.attn_output.bias", hf_ out_ ".bias", attn.out_b, AT_ATTN, TS_OPTIONAL,         \
            TF_NONE, D_EMBD),                                                                      \
        VEC("blk.%d.attn_output_norm.weight", hf_ norm_ ".weight", attn_norm, AT_LAYER, 0,         \
            TF_NONE, D_EMBD),                                                                      \
        VEC("blk.%d.attn_output_norm.bias", hf_ norm_ ".bias", attn_norm_b, AT_LAYER, 0, TF_NONE,  \
            D_EMBD),                                                                               \
        MAT("blk.%d.ffn_up.weight", hf_ up_ ".weight", ffn.up, AT_FFN_DENSE, 0, TF_NONE, D_EMBD,   \
            D_FF, D_NONE),                                                                         \
        VEC("blk.%d.ffn_up.bias", hf_ up_ ".bias", ffn.up_b, AT_FFN_DENSE, TS_OPTIONAL, TF_NONE,   \
            D_FF),                                                                                 \
        MAT("blk.%d.ffn_down.weight", hf_ down_ ".weight", ffn.down, AT_FFN_DENSE, 0, TF_NONE,     \
            D_FF, D_EMBD, D_NONE),                                                                 \
        VEC("blk.%d.ffn_down.bias", hf_ down_ ".bias", ffn.down_b, AT_FFN_DENSE, TS_OPTIONAL,      \
            TF_NONE, D_EMBD),                                                                      \
        VEC("blk.%d.layer_output_norm.weight", hf_ norm2_ ".weight", ffn_norm, AT_LAYER, 0,        \
            TF_NONE, D_EMBD),                                                                      \
        VEC("blk.%d.layer_output_norm.bias", hf_ norm2_ ".bias", ffn_norm_b, AT_LAYER, 0, TF_NONE, \
            D_EMBD)

static const struct tensor_row rows_bert[] = {
    ROWS_ENCODER("encoder.layer.%d.", "attention.self.query", "attention.self.key",
                 "attention.self.value", "attention.output.dense", "attention.output.LayerNorm",
                 "intermediate.dense", "output.dense", "output.LayerNorm"),
    ROWS_END};
static const struct tensor_row rows_distilbert[] = {
    ROWS_ENCODER("transformer.layer.%d.", "attention.q_lin", "attention.k_lin", "attention.v_lin",
                 "attention.out_lin", "sa_layer_norm", "ffn.lin1", "ffn.lin2", "output_layer_norm"),
    ROWS_END};

#define COMMON_KEYS                                                                                \
    {"embedding_length", "hidden_size|dim", KEY_U32, true, NAN},                                   \
        {"block_count", "num_hidden_layers|n_layers", KEY_U32, true, NAN},                         \
        {"feed_forward_length", "intermediate_size|hidden_dim", KEY_U32, true, NAN},               \
        {"attention.head_count", "num_attention_heads|n_heads", KEY_U32, true, NAN}, {             \
        "attention.layer_norm_epsilon", "layer_norm_eps", KEY_F32, false, 1e-12                    \
    }

static const struct key_row keys[] = {
    COMMON_KEYS, {"context_length", "max_position_embeddings", KEY_U32, true, NAN}, {.gguf = NULL}};
static const struct key_row keys_roberta[] = {COMMON_KEYS, {.gguf = NULL}};

static bool ranks(const json_t *config) {
    const char *kind =
        json_string_value(json_array_get(json_object_get(config, "architectures"), 0));
    return kind && strstr(kind, "SequenceClassification");
}

static int derive(const json_t *config, struct gguf_writer *w, struct err *e) {
    (void)e;
    gguf_put_bool(w, "bert.attention.causal", false);
    gguf_put_u32(w, "bert.pooling_type", ranks(config) ? POOL_RANK : POOL_MEAN);
    return 0;
}

/* The first position is the padding token's id plus one. */
static int derive_roberta(const json_t *config, struct gguf_writer *w, struct err *e) {
    int64_t n = arch_config_int(config, "max_position_embeddings", 0);
    int64_t pad = arch_config_int(config, "pad_token_id", 1);
    if (pad < 0 || n - pad - 1 < 1 || n > 1 << 24)
        return err_set(e, CHIMERE_EFORMAT,
                       "config.json: max_position_embeddings: expected more than pad_token_id + 1");
    gguf_put_u32(w, "bert.context_length", (uint32_t)(n - pad - 1));
    return derive(config, w, e);
}

static int derive_distilbert(const json_t *config, struct gguf_writer *w, struct err *e) {
    if (ranks(config))
        return err_set(e, CHIMERE_EUNSUPPORTED,
                       "config.json: architectures: expected an encoder without classifier");
    return derive(config, w, e);
}

static int read_bert(struct hparams *hp, const struct gguf *g, struct err *e) {
    int rc = read_layers(hp, g, e);
    for (int32_t il = 0; !rc && il < hp->n_layer; il++) {
        hp->layer[il].mixer = MIX_ATTN;
        hp->layer[il].ffn = FFN_DENSE;
        if (hp->layer[il].n_ff < 1)
            return err_set(e, CHIMERE_EFORMAT,
                           "key bert.feed_forward_length: expected at least 1, got %d",
                           hp->layer[il].n_ff);
    }
    if (!rc) rc = read_attention(hp, g, e);
    if (!rc) rc = key_f32(hp, g, "attention.layer_norm_epsilon", true, 0, 1, &hp->eps, e);
    if (rc) return rc;
    for (int32_t il = 0; il < hp->n_layer; il++) {
        if (hp->layer[il].n_kv_head != hp->layer[il].n_head)
            return err_set(e, CHIMERE_EUNSUPPORTED,
                           "layer %d: expected as many key heads as query heads", il);
    }
    const struct gguf_tensor *types = gguf_find_tensor(g, "token_types.weight");
    hp->n_token_type = types && types->ne[1] < 65536 ? (int32_t)types->ne[1] : 0;
    hp->rope_mode = ROPE_NONE;
    hp->act = ACT_GELU_ERF;
    hp->is_causal = false;
    /* Rerankers from llama.cpp's converter have the classifier but no pooling key. */
    if (hp->pooling == POOL_NONE)
        hp->pooling = gguf_find_tensor(g, "cls.output.weight") ? POOL_RANK : POOL_MEAN;
    return 0;
}

static const char *const hf_bert[] = {"bert", NULL};
static const char *const hf_roberta[] = {"roberta", "xlm-roberta", "camembert", NULL};
static const char *const hf_distilbert[] = {"distilbert", NULL};
static const struct tensor_row *const t_bert[] = {rows_globals, rows_bert, NULL};
static const struct tensor_row *const t_distilbert[] = {rows_globals, rows_distilbert, NULL};

#define FIELDS                                                                                     \
    "hidden_act=gelu position_embedding_type=absolute type_vocab_size directionality "             \
    "pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head "         \
    "pooler_type sentence_transformers sbert_ce_default_activation_function adapters"

const struct arch arch_bert = {.name = "bert",
                               .hf_model_types = hf_bert,
                               .tensors = t_bert,
                               .keys = keys,
                               .fields = FIELDS,
                               .derive = derive,
                               .read = read_bert};
/* Converted files have BERT's form; only the checkpoints differ. */
const struct arch arch_roberta = {.name = "bert",
                                  .hf_model_types = hf_roberta,
                                  .tensors = t_bert,
                                  .keys = keys_roberta,
                                  .fields = FIELDS,
                                  .derive = derive_roberta,
                                  .read = read_bert};
const struct arch arch_distilbert = {
    .name = "bert",
    .hf_model_types = hf_distilbert,
    .tensors = t_distilbert,
    .keys = keys,
    .fields = "activation=gelu sinusoidal_pos_embds=false qa_dropout seq_classif_dropout "
              "position_embedding_type=absolute tie_weights_ output_past",
    .derive = derive_distilbert,
    .read = read_bert};

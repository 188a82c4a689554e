/* arch_bert.c: BERT encoders: embeddings and cross-encoders (bge, MiniLM and their like). */
#include <stddef.h>

#include "model/arch_impl.h"

#define HF "encoder.layer.%d."

static const struct tensor_row rows[] = {
    GMAT("token_embd.weight", "embeddings.word_embeddings.weight", token_embd, 0, D_EMBD, D_VOCAB),
    GMAT("position_embd.weight", "embeddings.position_embeddings.weight", pos_embd, 0, D_EMBD,
         D_CTX),
    GMAT("token_types.weight", "embeddings.token_type_embeddings.weight", type_embd, TS_OPTIONAL,
         D_EMBD, D_TOKEN_TYPE),
    GVEC("token_embd_norm.weight", "embeddings.LayerNorm.weight", embd_norm, 0, TF_NONE, D_EMBD),
    GVEC("token_embd_norm.bias", "embeddings.LayerNorm.bias", embd_norm_b, 0, TF_NONE, D_EMBD),
    GMAT("cls.weight", "pooler.dense.weight", cls, TS_OPTIONAL, D_EMBD, D_EMBD),
    GVEC("cls.bias", "pooler.dense.bias", cls_b, TS_OPTIONAL, TF_NONE, D_EMBD),
    GMAT("cls.output.weight", "classifier.weight", cls_out, TS_OPTIONAL, D_EMBD, D_ONE),
    GVEC("cls.output.bias", "classifier.bias", cls_out_b, TS_OPTIONAL, TF_NONE, D_ONE),
    MAT("blk.%d.attn_q.weight", HF "attention.self.query.weight", attn.q, AT_ATTN, TS_OR_FUSED,
        TF_NONE, D_EMBD, D_Q, D_NONE),
    MAT("blk.%d.attn_k.weight", HF "attention.self.key.weight", attn.k, AT_ATTN, TS_OR_FUSED,
        TF_NONE, D_EMBD, D_K, D_NONE),
    MAT("blk.%d.attn_v.weight", HF "attention.self.value.weight", attn.v, AT_ATTN, TS_OR_FUSED,
        TF_NONE, D_EMBD, D_V, D_NONE),
    MAT("blk.%d.attn_qkv.weight", NULL, attn.qkv, AT_ATTN, TS_OPTIONAL, TF_NONE, D_EMBD, D_QKV,
        D_NONE),
    VEC("blk.%d.attn_q.bias", HF "attention.self.query.bias", attn.q_b, AT_ATTN, TS_OPTIONAL,
        TF_NONE, D_Q),
    VEC("blk.%d.attn_k.bias", HF "attention.self.key.bias", attn.k_b, AT_ATTN, TS_OPTIONAL, TF_NONE,
        D_K),
    VEC("blk.%d.attn_v.bias", HF "attention.self.value.bias", attn.v_b, AT_ATTN, TS_OPTIONAL,
        TF_NONE, D_V),
    VEC("blk.%d.attn_qkv.bias", NULL, attn.qkv_b, AT_ATTN, TS_OPTIONAL, TF_NONE, D_QKV),
    MAT("blk.%d.attn_output.weight", HF "attention.output.dense.weight", attn.out, AT_ATTN, 0,
        TF_NONE, D_ATTN_OUT, D_EMBD, D_NONE),
    VEC("blk.%d.attn_output.bias", HF "attention.output.dense.bias", attn.out_b, AT_ATTN,
        TS_OPTIONAL, TF_NONE, D_EMBD),
    /* norms stand behind the residual sums */
    VEC("blk.%d.attn_output_norm.weight", HF "attention.output.LayerNorm.weight", attn_norm,
        AT_LAYER, 0, TF_NONE, D_EMBD),
    VEC("blk.%d.attn_output_norm.bias", HF "attention.output.LayerNorm.bias", attn_norm_b, AT_LAYER,
        0, TF_NONE, D_EMBD),
    MAT("blk.%d.ffn_up.weight", HF "intermediate.dense.weight", ffn.up, AT_FFN_DENSE, 0, TF_NONE,
        D_EMBD, D_FF, D_NONE),
    VEC("blk.%d.ffn_up.bias", HF "intermediate.dense.bias", ffn.up_b, AT_FFN_DENSE, TS_OPTIONAL,
        TF_NONE, D_FF),
    MAT("blk.%d.ffn_down.weight", HF "output.dense.weight", ffn.down, AT_FFN_DENSE, 0, TF_NONE,
        D_FF, D_EMBD, D_NONE),
    VEC("blk.%d.ffn_down.bias", HF "output.dense.bias", ffn.down_b, AT_FFN_DENSE, TS_OPTIONAL,
        TF_NONE, D_EMBD),
    VEC("blk.%d.layer_output_norm.weight", HF "output.LayerNorm.weight", ffn_norm, AT_LAYER, 0,
        TF_NONE, D_EMBD),
    VEC("blk.%d.layer_output_norm.bias", HF "output.LayerNorm.bias", ffn_norm_b, AT_LAYER, 0,
        TF_NONE, D_EMBD),
    ROWS_END};

static const struct key_row keys[] = {
    {"context_length", "max_position_embeddings", KEY_U32, true, NAN},
    {"embedding_length", "hidden_size", KEY_U32, true, NAN},
    {"block_count", "num_hidden_layers", KEY_U32, true, NAN},
    {"feed_forward_length", "intermediate_size", KEY_U32, true, NAN},
    {"attention.head_count", "num_attention_heads", KEY_U32, true, NAN},
    {"attention.layer_norm_epsilon", "layer_norm_eps", KEY_F32, true, NAN},
    {.gguf = NULL}};

static int derive(const json_t *config, struct gguf_writer *w, struct err *e) {
    (void)e;
    const json_t *kinds = json_object_get(config, "architectures");
    const char *kind = json_string_value(json_array_get(kinds, 0));
    bool ranks = kind && strstr(kind, "SequenceClassification");
    gguf_put_bool(w, "bert.attention.causal", false);
    gguf_put_u32(w, "bert.pooling_type", ranks ? POOL_RANK : POOL_MEAN);
    return 0;
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
    /* Rerankers of llama.cpp's converter have the head and no key. */
    if (hp->pooling == POOL_NONE)
        hp->pooling = gguf_find_tensor(g, "cls.output.weight") ? POOL_RANK : POOL_MEAN;
    return 0;
}

static const char *const hf_types[] = {"bert", NULL};
static const struct tensor_row *const tensors[] = {rows, NULL};
const struct arch arch_bert = {
    .name = "bert",
    .hf_model_types = hf_types,
    .tensors = tensors,
    .keys = keys,
    .fields = "hidden_act=gelu position_embedding_type=absolute type_vocab_size directionality "
              "pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head "
              "pooler_type sentence_transformers",
    .derive = derive,
    .read = read_bert};

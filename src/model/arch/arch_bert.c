/* arch_bert.c: encoders with learned positions (BERT, RoBERTa, XLM-RoBERTa, DistilBERT, MPNet): embedding models and
 * cross-encoders. */
#include <stddef.h>

#include "base/err.h"
#include "model/arch/arch_config.h"
#include "model/arch/arch_encoder.h"

/* RoBERTa checkpoints have a dense layer inside their classifier. */
static const struct tensor_row rows_globals[] = {
    ENCODER_EMBEDDINGS("embeddings.LayerNorm"),
    ENCODER_POSITIONS("embeddings.position_embeddings.weight"),
    ENCODER_OR("cls.weight", "pooler.dense.weight", "classifier.dense.weight", cls, false, D_EMBD,
               D_EMBD),
    ENCODER_OR("cls.bias", "pooler.dense.bias", "classifier.dense.bias", cls_b, true, D_EMBD,
               D_NONE),
    ENCODER_OR("cls.output.weight", "classifier.weight", "classifier.out_proj.weight", cls_out,
               false, D_EMBD, D_ONE),
    ENCODER_OR("cls.output.bias", "classifier.bias", "classifier.out_proj.bias", cls_out_b, true,
               D_ONE, D_NONE),
    ROWS_END};

const struct tensor_row rows_dense_modules[] = {
    ENCODER_OR("dense_2.weight", "2_Dense.linear.weight", NULL, dense[0], false, D_EMBD, D_DENSE),
    ENCODER_OR("dense_2.bias", "2_Dense.linear.bias", NULL, dense_b[0], true, D_DENSE, D_NONE),
    ENCODER_OR("dense_3.weight", "3_Dense.linear.weight", NULL, dense[1], false, D_DENSE, D_DENSE2),
    ENCODER_OR("dense_3.bias", "3_Dense.linear.bias", NULL, dense_b[1], true, D_DENSE2, D_NONE),
    ROWS_END};

/* Scores depend on the distance of keys: one number per head and bucket of distances. */
static const struct tensor_row rows_buckets[] = {{"attn_rel_b.weight",
                                                  "encoder.relative_attention_bias.weight",
                                                  NULL,
                                                  offsetof(struct global_weights, rel_bias),
                                                  true,
                                                  AT_GLOBAL,
                                                  TS_F32,
                                                  TF_NONE,
                                                  TF_NONE,
                                                  {D_HEAD, D_BUCKET, D_NONE}},
                                                 ROWS_END};

#define BERT "encoder.layer.%d."
static const struct tensor_row rows_bert[] = {
    ENCODER_QKV(BERT "attention.self.query", BERT "attention.self.key",
                BERT "attention.self.value"),
    ENCODER_BLOCKS(BERT "attention.output.dense", BERT "intermediate.dense", BERT "output.dense"),
    ENCODER_NORMS(BERT "attention.output.LayerNorm", BERT "output.LayerNorm"), ROWS_END};
static const struct tensor_row rows_mpnet[] = {
    ENCODER_QKV(BERT "attention.attn.q", BERT "attention.attn.k", BERT "attention.attn.v"),
    ENCODER_BLOCKS(BERT "attention.attn.o", BERT "intermediate.dense", BERT "output.dense"),
    ENCODER_NORMS(BERT "attention.LayerNorm", BERT "output.LayerNorm"), ROWS_END};

static const struct tensor_row rows_distil_globals[] = {
    ENCODER_EMBEDDINGS("embeddings.LayerNorm"),
    ENCODER_POSITIONS("embeddings.position_embeddings.weight"),
    ENCODER_OR("cls.weight", "pre_classifier.weight", NULL, cls, false, D_EMBD, D_EMBD),
    ENCODER_OR("cls.bias", "pre_classifier.bias", NULL, cls_b, true, D_EMBD, D_NONE),
    ENCODER_OR("cls.output.weight", "classifier.weight", NULL, cls_out, false, D_EMBD, D_ONE),
    ENCODER_OR("cls.output.bias", "classifier.bias", NULL, cls_out_b, true, D_ONE, D_NONE),
    ROWS_END};

#define DISTIL "transformer.layer.%d."
static const struct tensor_row rows_distilbert[] = {
    ENCODER_QKV(DISTIL "attention.q_lin", DISTIL "attention.k_lin", DISTIL "attention.v_lin"),
    ENCODER_BLOCKS(DISTIL "attention.out_lin", DISTIL "ffn.lin1", DISTIL "ffn.lin2"),
    ENCODER_NORMS(DISTIL "sa_layer_norm", DISTIL "output_layer_norm"), ROWS_END};

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

static bool has_classifier(const json_t *config) {
    const char *kind =
        json_string_value(json_array_get(json_object_get(config, "architectures"), 0));
    return kind && strstr(kind, "SequenceClassification");
}

int arch_encoder_put_pooling(const json_t *config, const char *arch, bool ranks,
                             struct gguf_writer *w, struct err *e) {
    char key[80];
    bool is_ranker = has_classifier(config);
    if (is_ranker && !ranks)
        return err_set(e, CHIMERE_EUNSUPPORTED,
                       "config.json: architectures: expected an encoder without classifier");
    snprintf(key, sizeof key, "%s.attention.causal", arch);
    gguf_put_bool(w, key, false);
    snprintf(key, sizeof key, "%s.pooling_type", arch);
    gguf_put_u32(w, key, is_ranker ? POOL_RANK : POOL_MEAN);
    return 0;
}

static int derive(const json_t *config, struct gguf_writer *w, struct err *e) {
    return arch_encoder_put_pooling(config, "bert", true, w, e);
}

/* The first position is the padding token's id plus one. */
static int put_context(const json_t *config, const char *key, int64_t pad, struct gguf_writer *w,
                       struct err *e) {
    int64_t n = arch_config_int(config, "max_position_embeddings", 0);
    if (pad < 0 || n - pad - 1 < 1 || n > 1 << 24)
        return err_set(e, CHIMERE_EFORMAT,
                       "config.json: max_position_embeddings: expected more than pad_token_id + 1");
    gguf_put_u32(w, key, (uint32_t)(n - pad - 1));
    return 0;
}

static int derive_roberta(const json_t *config, struct gguf_writer *w, struct err *e) {
    int64_t pad = arch_config_int(config, "pad_token_id", 1);
    int rc = put_context(config, "bert.context_length", pad, w, e);
    return rc ? rc : derive(config, w, e);
}

static int derive_distilbert(const json_t *config, struct gguf_writer *w, struct err *e) {
    if (has_classifier(config)) gguf_put_str(w, "bert.classifier.activation", "relu", 4);
    return arch_encoder_put_pooling(config, "bert", true, w, e);
}

/* Its first position is 2, whatever the padding token is. */
static int derive_mpnet(const json_t *config, struct gguf_writer *w, struct err *e) {
    int rc = put_context(config, "mpnet.context_length", 1, w, e);
    return rc ? rc : arch_encoder_put_pooling(config, "mpnet", false, w, e);
}

/* Files of llama.cpp have no activation, and the result of the second layer is as wide as the model. */
int arch_encoder_read_dense(struct hparams *hp, const struct gguf *g, struct err *e) {
    static const struct {
        const char *n, *act;
    } keys_of[] = {{"dense_2_feat_out", "dense_2_activation"},
                   {"dense_3_feat_out", "dense_3_activation"}};
    if (key_find(hp, g, "dense_3_feat_in")) hp->dense.n[1] = hp->n_embd;
    int rc = 0;
    for (int i = 0; !rc && i < 2; i++) {
        struct slice name = {NULL, 0};
        uint64_t at = 0;
        rc = key_i32(hp, g, keys_of[i].n, false, 1, ARCH_MAX_EMBD, &hp->dense.n[i], e);
        const struct gguf_kv *kv = key_find(hp, g, keys_of[i].act);
        if (rc || !kv) continue;
        hp->dense.has_tanh[i] =
            gguf_next_str(kv, &at, &name) && name.n == 4 && memcmp(name.p, "tanh", 4) == 0;
        if (!hp->dense.has_tanh[i])
            rc = err_set(e, CHIMERE_EUNSUPPORTED, "key %s.%s: expected tanh", hp->arch->name,
                         keys_of[i].act);
    }
    if (!rc && hp->dense.n[1] && !hp->dense.n[0])
        rc = err_set(e, CHIMERE_EFORMAT, "key %s.dense_2_feat_out: expected with dense_3_feat_in",
                     hp->arch->name);
    return rc;
}

int arch_encoder_read(struct hparams *hp, const struct gguf *g, struct err *e) {
    int rc = read_layers(hp, g, e);
    for (int32_t il = 0; !rc && il < hp->n_layer; il++) {
        hp->layer[il].mixer = MIX_ATTN;
        hp->layer[il].ffn = FFN_DENSE;
        if (hp->layer[il].n_ff < 1)
            return err_set(e, CHIMERE_EFORMAT,
                           "key %s.feed_forward_length: expected at least 1, got %d",
                           hp->arch->name, hp->layer[il].n_ff);
    }
    if (!rc) rc = read_attention(hp, g, e);
    if (!rc) rc = arch_encoder_read_dense(hp, g, e);
    if (!rc) rc = key_f32(hp, g, "attention.layer_norm_epsilon", true, 0, 1, &hp->eps, e);
    if (rc) return rc;
    for (int32_t il = 0; il < hp->n_layer; il++) {
        if (hp->layer[il].n_kv_head != hp->layer[il].n_head || hp->d_k != hp->d_v)
            return err_set(e, CHIMERE_EUNSUPPORTED,
                           "layer %d: expected as many key heads as query heads, all of one size",
                           il);
    }
    const struct gguf_tensor *types = gguf_find_tensor(g, "token_types.weight");
    hp->n_token_type = types && types->ne[1] < 65536 ? (int32_t)types->ne[1] : 0;
    hp->rope_mode = ROPE_NONE;
    hp->act = ACT_GELU_ERF;
    hp->is_causal = false;
    /* Rerankers from llama.cpp's converter have the classifier but no pooling key. */
    if (hp->pooling == POOL_NONE)
        hp->pooling = gguf_find_tensor(g, "cls.output.weight") ? POOL_RANK : POOL_MEAN;
    hp->rank_pooling = POOL_CLS;
    hp->rank_act = ACT_TANH;
    return 0;
}

int arch_encoder_read_rank(struct hparams *hp, const struct gguf *g, struct err *e) {
    int32_t kind = (int32_t)hp->rank_pooling;
    int rc = key_i32(hp, g, "classifier.pooling_type", false, POOL_MEAN, POOL_CLS, &kind, e);
    hp->rank_pooling = (enum pooling)kind;
    return rc;
}

/* DistilBERT's classifier differs from BERT's in its activation. */
static int read_bert(struct hparams *hp, const struct gguf *g, struct err *e) {
    int rc = arch_encoder_read(hp, g, e);
    const struct gguf_kv *kv = key_find(hp, g, "classifier.activation");
    struct slice name;
    uint64_t at = 0;
    if (rc || !kv) return rc;
    bool known = gguf_next_str(kv, &at, &name) && name.n == 4;
    if (known && memcmp(name.p, "relu", 4) == 0) hp->rank_act = ACT_RELU;
    else if (!known || memcmp(name.p, "tanh", 4) != 0)
        return err_set(e, CHIMERE_EUNSUPPORTED,
                       "key bert.classifier.activation: expected relu or tanh");
    return 0;
}

static int read_mpnet(struct hparams *hp, const struct gguf *g, struct err *e) {
    hp->position_bias = BIAS_BUCKETS;
    return arch_encoder_read(hp, g, e);
}

static const char *const hf_bert[] = {"bert", NULL};
static const char *const hf_roberta[] = {"roberta", "xlm-roberta", "camembert", NULL};
static const char *const hf_distilbert[] = {"distilbert", NULL};
static const char *const hf_mpnet[] = {"mpnet", NULL};
static const struct tensor_row *const t_bert[] = {rows_globals, rows_dense_modules, rows_bert,
                                                  NULL};
static const struct tensor_row *const t_distilbert[] = {rows_distil_globals, rows_dense_modules,
                                                        rows_distilbert, NULL};
static const struct tensor_row *const t_mpnet[] = {rows_globals, rows_dense_modules, rows_buckets,
                                                   rows_mpnet, NULL};

#define FIELDS                                                                                     \
    "hidden_act=gelu position_embedding_type=absolute type_vocab_size directionality "             \
    "pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head "         \
    "pooler_type sentence_transformers sbert_ce_default_activation_function adapters output_past"

static bool has_positions(const json_t *config) {
    return !arch_config_is(config, "position_embedding_type", "alibi");
}

const struct arch arch_bert = {.name = "bert",
                               .hf_model_types = hf_bert,
                               .tensors = t_bert,
                               .keys = keys,
                               .fields = FIELDS,
                               .derive = derive,
                               .read = read_bert,
                               .suits = has_positions};
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
/* llama.cpp has no format for it; keys and names are those of bert, and attn_rel_b. */
const struct arch arch_mpnet = {.name = "mpnet",
                                .hf_model_types = hf_mpnet,
                                .tensors = t_mpnet,
                                .keys = keys_roberta,
                                .fields = FIELDS " relative_attention_num_buckets=32",
                                .derive = derive_mpnet,
                                .read = read_mpnet};

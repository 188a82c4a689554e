/* arch_dflash.c: drafters that read hidden states (DFlash, Chen et al., arXiv:2602.06036), from two programs: "dflash"
 * files number the layers whose input is read, "dflash-draft" files those whose output is read. Layers are Qwen3's.
 * Both may have the heads of DSpark (deepseek-ai/DeepSpec): a low-rank table of what follows a token, and a
 * confidence. Hugging Face folders become "dflash" files. */
#include <string.h>

#include "base/str.h"
#include "model/arch/arch_config.h"
#include "model/arch/arch_impl.h"
#include "model/taps.h"

#define HF "model.layers.%d."

/* The same tensors in both dialects. */
#define ROWS_HEADS                                                                                 \
    GMAT("markov_w1.weight", "markov_head.markov_w1.weight", markov_in, TS_OPTIONAL, D_MARKOV,     \
         D_VOCAB),                                                                                 \
        GMAT("markov_w2.weight", "markov_head.markov_w2.weight", markov_out, TS_OPTIONAL,          \
             D_MARKOV, D_VOCAB),                                                                   \
        GMAT("conf_proj.weight", "confidence_head.proj.weight", sure, TS_OPTIONAL | TS_F32,        \
             D_SURE, D_ONE),                                                                       \
        GVEC("conf_proj.bias", "confidence_head.proj.bias", sure_b, TS_OPTIONAL, TF_NONE, D_ONE)

static const struct tensor_row rows_dflash[] = {
    GMAT("fc.weight", "fc.weight", fc, 0, D_TAPS, D_EMBD),
    GVEC("enc.output_norm.weight", "hidden_norm.weight", fc_norm, 0, TF_NONE, D_EMBD),
    GVEC("output_norm.weight", "norm.weight", output_norm, 0, TF_NONE, D_EMBD),
    VEC("blk.%d.ffn_norm.weight", HF "post_attention_layernorm.weight", ffn_norm, AT_LAYER, 0,
        TF_NONE, D_EMBD),
    ROWS_HEADS,
    ROWS_END};

static const struct tensor_row rows_dflash_draft[] = {
    GMAT("dflash_fc.weight", NULL, fc, 0, D_TAPS, D_EMBD),
    GVEC("dflash_hidden_norm.weight", NULL, fc_norm, 0, TF_NONE, D_EMBD),
    GVEC("output_norm.weight", NULL, output_norm, 0, TF_NONE, D_EMBD),
    VEC("blk.%d.post_attention_norm.weight", NULL, ffn_norm, AT_LAYER, 0, TF_NONE, D_EMBD),
    ROWS_HEADS,
    ROWS_END};

static const struct tensor_row rows_head_norm[] = {
    VEC("blk.%d.attn_q_norm.weight", HF "self_attn.q_norm.weight", attn.q_norm, AT_ATTN, 0, TF_NONE,
        D_HEAD_K),
    VEC("blk.%d.attn_k_norm.weight", HF "self_attn.k_norm.weight", attn.k_norm, AT_ATTN, 0, TF_NONE,
        D_HEAD_K),
    ROWS_END};

static const struct tensor_row *const t_dflash[] = {rows_dflash, rows_attn, rows_head_norm,
                                                    rows_ffn, NULL};
static const struct tensor_row *const t_dflash_draft[] = {rows_dflash_draft, rows_attn,
                                                          rows_head_norm, rows_ffn, NULL};

/* Sizes of the heads, and what follows from them. */
static int read_heads(struct hparams *hp, const struct gguf *g, struct err *e) {
    const struct gguf_tensor *in = gguf_find_tensor(g, "markov_w1.weight");
    const struct gguf_tensor *out = gguf_find_tensor(g, "markov_w2.weight");
    const struct gguf_tensor *sure = gguf_find_tensor(g, "conf_proj.weight");
    if (!in != !out)
        return err_set(e, CHIMERE_EFORMAT, "tensor %s: expected beside %s, got nothing",
                       in ? "markov_w2.weight" : "markov_w1.weight",
                       in ? "markov_w1.weight" : "markov_w2.weight");
    if (in && (in->ne[0] < 1 || in->ne[0] > ARCH_MAX_EMBD || in->ne[1] > ARCH_MAX_VOCAB))
        return err_set(e, CHIMERE_EFORMAT, "tensor %s: expected at most %d columns", in->name,
                       ARCH_MAX_EMBD);
    hp->dflash.n_markov = in ? (int32_t)in->ne[0] : 0;
    hp->dflash.from_anchor = in != NULL;
    if (in && !hp->dflash.n_vocab) hp->dflash.n_vocab = (int32_t)in->ne[1];
    if (hp->dflash.n_vocab) hp->n_vocab = hp->n_logit = hp->dflash.n_vocab;
    uint64_t n_wide = (uint64_t)hp->n_embd + (uint64_t)hp->dflash.n_markov;
    if (sure && sure->ne[0] != n_wide && sure->ne[0] != (uint64_t)hp->n_embd)
        return err_set(e, CHIMERE_EFORMAT, "tensor %s: expected %d or %llu columns, got %llu",
                       sure->name, hp->n_embd, (unsigned long long)n_wide,
                       (unsigned long long)sure->ne[0]);
    hp->dflash.n_sure = sure ? (int32_t)sure->ne[0] : 0;
    return key_bool(hp, g, "sample_from_anchor", &hp->dflash.from_anchor, e);
}

/* A drafter's own copies of the model's embedding and head, which are frozen in training: drafts come through the
 * model's. */
static bool is_copy(const char *name) {
    return strcmp(name, "token_embd.weight") == 0 || strcmp(name, "output.weight") == 0;
}

/* Refuses what changes the result and is not implemented here. */
static int refuse_others(const struct hparams *hp, const struct gguf *g, struct err *e) {
    static const char *const one[] = {"embedding_scale", "logit_scale", "attention.value_scale"};
    bool causal = false;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        float x = 1;
        int rc = key_f32(hp, g, one[i], false, 1, 1, &x, e);
        if (rc) return rc;
    }
    int rc = key_bool(hp, g, "attention.causal", &causal, e);
    if (rc) return rc;
    if (causal)
        return err_set(e, CHIMERE_EUNSUPPORTED, "key %s.attention.causal: expected false",
                       hp->arch->name);
    for (size_t i = 0; i < gguf_n_tensors(g); i++)
        if (!arch_reads_tensor(hp, gguf_tensor_at(g, i)->name) &&
            !is_copy(gguf_tensor_at(g, i)->name))
            return err_set(e, CHIMERE_EUNSUPPORTED,
                           "tensor %s: has no place in the drafters that we run",
                           gguf_tensor_at(g, i)->name);
    return 0;
}

/* Reads the numbers of the tapped layers, in the order of fc's columns; together they have as
 * many floats as fc has columns. */
static int read_taps(struct hparams *hp, const struct gguf *g, const char *key, int32_t first,
                     const char *fc, struct err *e) {
    const struct gguf_kv *kv = key_find(hp, g, key);
    const struct gguf_tensor *t = gguf_find_tensor(g, fc);
    if (!kv || kv->type != GGUF_ARR || kv->n < 1 || kv->n > TAPS_MAX)
        return err_set(e, CHIMERE_EFORMAT, "key %s.%s: expected 1 to %d layers", hp->arch->name,
                       key, TAPS_MAX);
    if (!t) return err_set(e, CHIMERE_EFORMAT, "tensor %s: expected in a drafter, got nothing", fc);
    hp->dflash.n_tap = (int32_t)kv->n;
    hp->dflash.n_in = (int64_t)t->ne[0];
    int rc = key_i32_per_layer(hp, g, key, true, first, ARCH_MAX_LAYERS, hp->dflash.n_tap,
                               hp->dflash.taps, sizeof *hp->dflash.taps, e);
    for (int32_t i = 0; !rc && i < hp->dflash.n_tap; i++) hp->dflash.taps[i] -= first;
    return rc;
}

static int read_dflash(struct hparams *hp, const struct gguf *g, struct err *e) {
    const struct gguf_kv *mask = gguf_find(g, "tokenizer.ggml.mask_token_id");
    int64_t id = -1;
    if (!mask || !gguf_item_i64(mask, 0, &id) || id < 0 || id >= ARCH_MAX_VOCAB)
        return err_set(e, CHIMERE_EFORMAT,
                       "key tokenizer.ggml.mask_token_id: expected a token in a drafter");
    hp->dflash.mask = (int32_t)id;
    hp->dflash.n_block = 16;
    int rc = read_plain(hp, g, ROPE_NEOX, e);
    if (!rc) rc = key_i32(hp, g, "block_size", false, 2, 64, &hp->dflash.n_block, e);
    if (!rc) rc = read_taps(hp, g, "target_layers", 1, "fc.weight", e);
    if (!rc) rc = read_heads(hp, g, e);
    return rc ? rc : refuse_others(hp, g, e);
}

static int read_dflash_draft(struct hparams *hp, const struct gguf *g, struct err *e) {
    hp->dflash.n_block = 16;
    int rc = read_plain(hp, g, ROPE_NEOX, e);
    if (!rc) rc = key_i32(hp, g, "dflash.block_size", false, 2, 64, &hp->dflash.n_block, e);
    if (!rc)
        rc = key_i32(hp, g, "dflash.mask_token_id", true, 0, ARCH_MAX_VOCAB - 1, &hp->dflash.mask,
                     e);
    if (!rc) rc = read_taps(hp, g, "dflash.target_layer_ids", 0, "dflash_fc.weight", e);
    if (!rc) rc = read_heads(hp, g, e);
    return rc ? rc : refuse_others(hp, g, e);
}

/* ---- Hugging Face folders ---- */

static const char *class_of(const json_t *config) {
    return json_string_value(json_array_get(json_object_get(config, "architectures"), 0));
}

static bool is_drafter(const json_t *config) {
    const char *name = class_of(config);
    return name && (strstr(name, "DFlash") || strstr(name, "DSpark"));
}

/* A field that some checkpoints have in dflash_config, others beside it. */
static const json_t *field(const json_t *config, const char *name) {
    const json_t *v = json_object_get(json_object_get(config, "dflash_config"), name);
    return v && !json_is_null(v) ? v : json_object_get(config, name);
}

/* Refuses drafters that have more than an attention over the model's hidden states and DSpark's first heads. */
static int check_kind(const json_t *config, struct err *e) {
    static const char *const known[] = {"block_size",
                                        "mask_token_id",
                                        "target_layer_ids",
                                        "projector_type",
                                        "markov_rank",
                                        "markov_head_type",
                                        "enable_confidence_head",
                                        "confidence_head_with_markov",
                                        "confidence_head_alpha",
                                        "attention_mode"};
    const json_t *more = json_object_get(config, "dflash_config");
    const char *type = json_string_value(field(config, "markov_head_type")), *name;
    const char *mode = json_string_value(field(config, "attention_mode"));
    json_t *v;
    json_object_foreach((json_t *)more, name, v) {
        size_t i = 0;
        while (i < sizeof known / sizeof *known && strcmp(name, known[i]) != 0) i++;
        if (i == sizeof known / sizeof *known)
            return err_set(e, CHIMERE_EUNSUPPORTED,
                           "config.json: dflash_config.%.60s: not known; this kind of drafter "
                           "(%.60s) is not one that we run",
                           name, class_of(config));
    }
    if (json_integer_value(field(config, "markov_rank")) > 0 && type &&
        strcmp(type, "vanilla") != 0)
        return err_set(e, CHIMERE_EUNSUPPORTED,
                       "config.json: markov_head_type: expected vanilla, got '%.60s'", type);
    if (mode && strcmp(mode, "gqa") != 0)
        return err_set(e, CHIMERE_EUNSUPPORTED,
                       "config.json: dflash_config.attention_mode: expected gqa, got '%.60s'",
                       mode);
    return 0;
}

static int derive_dflash(const json_t *config, struct gguf_writer *w, struct err *e) {
    const json_t *mask = field(config, "mask_token_id"), *taps = field(config, "target_layer_ids");
    const json_t *block = field(config, "block_size");
    int32_t layers[TAPS_MAX];
    size_t n = json_array_size(taps);
    int rc = check_kind(config, e);
    if (rc) return rc;
    if (!json_is_integer(mask) || json_integer_value(mask) < 0 ||
        json_integer_value(mask) >= ARCH_MAX_VOCAB)
        return err_set(e, CHIMERE_EFORMAT,
                       "config.json: mask_token_id: expected a token in a drafter");
    if (n < 1 || n > TAPS_MAX)
        return err_set(e, CHIMERE_EFORMAT, "config.json: target_layer_ids: expected 1 to %d layers",
                       TAPS_MAX);
    for (size_t i = 0; i < n; i++) {
        json_int_t at = json_integer_value(json_array_get(taps, i));
        if (!json_is_integer(json_array_get(taps, i)) || at < 0 || at >= ARCH_MAX_LAYERS)
            return err_set(e, CHIMERE_EFORMAT,
                           "config.json: target_layer_ids: expected numbers of layers from 0");
        layers[i] = (int32_t)at + 1; /* the layer whose input is read */
    }
    if (json_is_integer(block)) {
        if (json_integer_value(block) < 2 || json_integer_value(block) > 64)
            return err_set(e, CHIMERE_EFORMAT, "config.json: block_size: expected 2 to 64");
        gguf_put_u32(w, "dflash.block_size", (uint32_t)json_integer_value(block));
    }
    gguf_put_u32(w, "tokenizer.ggml.mask_token_id", (uint32_t)json_integer_value(mask));
    gguf_put_array(w, "dflash.target_layers", GGUF_I32, layers, n);
    bool lists = json_array_size(json_object_get(config, "layer_types")) > 0;
    return arch_config_put_windows(config, "dflash",
                                   lists ? WINDOW_EVERYWHERE : WINDOW_IF_USED_LATE, w, e);
}

static const char *const hf_dflash[] = {"qwen3", NULL};
static const char *const hf_none[] = {NULL};

static const struct arch arch_dflash = {
    .name = "dflash",
    .hf_model_types = hf_dflash,
    .tensors = t_dflash,
    .keys = keys_llama,
    .fields =
        "dflash_config num_target_layers block_size mask_token_id target_layer_ids "
        "markov_rank markov_head_type enable_confidence_head confidence_head_with_markov "
        "num_anchors target_hidden_size hidden_act=silu|swish head_dim sliding_window layer_types "
        "use_sliding_window max_window_layers attention_bias",
    .derive = derive_dflash,
    .read = read_dflash,
    .suits = is_drafter};
static const struct arch arch_dflash_draft = {.name = "dflash-draft",
                                              .hf_model_types = hf_none,
                                              .tensors = t_dflash_draft,
                                              .read = read_dflash_draft};

const struct arch *const drafter_table[] = {&arch_dflash, &arch_dflash_draft, NULL};

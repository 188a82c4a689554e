/* arch_table.c: the table of families, the evaluation of shapes, and the shared readers of keys. */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "model/arch/arch_impl.h"
#include "model/arch/arch_missing.h"

/* one family per line */
/* clang-format off */
extern const struct arch arch_qwen35moe;
extern const struct arch arch_qwen35;
extern const struct arch arch_qwen3next;
extern const struct arch arch_olmo_hybrid;
extern const struct arch arch_olmo2;
extern const struct arch arch_llama;
extern const struct arch arch_mixtral;
extern const struct arch arch_qwen2;
extern const struct arch arch_qwen3;
extern const struct arch arch_qwen3moe;
extern const struct arch arch_bert;
extern const struct arch arch_roberta;
extern const struct arch arch_distilbert;
extern const struct arch arch_mpnet;
extern const struct arch arch_nomic_bert;
extern const struct arch arch_modern_bert;
extern const struct arch arch_jina_bert2;
extern const struct arch arch_jina_bert3;
extern const struct arch arch_mamba;
extern const struct arch arch_mamba2;
extern const struct arch arch_nemotron_h;
extern const struct arch arch_nemotron_h_moe;
extern const struct arch arch_granite;
extern const struct arch arch_granite_moe;
extern const struct arch arch_granite_hybrid;
extern const struct arch arch_mistral3;
extern const struct arch arch_lfm2;
extern const struct arch arch_lfm2_moe;
extern const struct arch arch_gemma3;
extern const struct arch arch_gemma_embedding;
extern const struct arch arch_gemma4;
extern const struct arch arch_gpt_oss;
extern const struct arch arch_falcon_h1;
extern const struct arch arch_jamba;
extern const struct arch arch_zamba2;
extern const struct arch arch_hymba;
extern const struct arch arch_deepseek2;

const struct arch *const arch_table[] = {
    &arch_qwen35moe,
    &arch_qwen35,
    &arch_qwen3next,
    &arch_olmo_hybrid,
    &arch_olmo2,
    &arch_llama,
    &arch_mixtral,
    &arch_qwen2,
    &arch_qwen3,
    &arch_qwen3moe,
    &arch_bert,
    &arch_roberta,
    &arch_distilbert,
    &arch_mpnet,
    &arch_nomic_bert,
    &arch_modern_bert,
    &arch_jina_bert2,
    &arch_jina_bert3,
    &arch_mamba,
    &arch_mamba2,
    &arch_nemotron_h,
    &arch_nemotron_h_moe,
    &arch_granite,
    &arch_granite_moe,
    &arch_granite_hybrid,
    &arch_mistral3,
    &arch_lfm2,
    &arch_lfm2_moe,
    &arch_gemma3,
    &arch_gemma_embedding,
    &arch_gemma4,
    &arch_gpt_oss,
    &arch_falcon_h1,
    &arch_jamba,
    &arch_zamba2,
    &arch_hymba,
    &arch_deepseek2,
    NULL,
};
/* clang-format on */

const struct arch *arch_find(const char *name) {
    for (const struct arch *const *a = arch_table; *a; a++)
        if (strcmp((*a)->name, name) == 0) return *a;
    return NULL;
}

static const struct arch *find_hf(const struct arch *const *a, const char *model_type,
                                  const json_t *config) {
    for (; *a; a++)
        for (const char *const *t = (*a)->hf_model_types; *t; t++)
            if (strcmp(*t, model_type) == 0 && (!(*a)->suits || (*a)->suits(config))) return *a;
    return NULL;
}

const struct arch *arch_find_hf(const char *model_type, const json_t *config) {
    const struct arch *a = find_hf(drafter_table, model_type, config);
    return a ? a : find_hf(arch_table, model_type, config);
}

bool arch_is_drafter(const struct arch *a) {
    const struct arch *const *d = drafter_table;
    while (*d && *d != a) d++;
    return *d != NULL;
}

int32_t arch_n_vector(const struct hparams *hp) {
    return hp->dense.n[1] ? hp->dense.n[1] : hp->dense.n[0] ? hp->dense.n[0] : hp->n_embd;
}

int32_t arch_n_layer_all(const struct hparams *hp) { return hp->n_layer + hp->n_nextn; }

void arch_tensor_name(const struct tensor_row *row, int32_t il, char *name, size_t size) {
    const char *number = strstr(row->gguf, "%d");
    if (number)
        snprintf(name, size, "%.*s%d%s", (int)(number - row->gguf), row->gguf, il, number + 2);
    else snprintf(name, size, "%s", row->gguf);
}

bool arch_reads_tensor(const struct hparams *hp, const char *name) {
    char own[GGUF_MAX_NAME];
    for (const struct tensor_row *const *table = hp->arch->tensors; *table; table++)
        for (const struct tensor_row *row = *table; row->gguf; row++)
            for (int32_t il = -1; il < arch_n_layer_all(hp); il++) {
                if (!arch_has(hp, (enum tensor_where)row->where, il)) continue;
                arch_tensor_name(row, il, own, sizeof own);
                if (strcmp(own, name) == 0) return true;
            }
    return false;
}

int64_t arch_dim(const struct hparams *hp, enum arch_dim d, int32_t il) {
    const struct layer_shape *l = &hp->layer[il < 0 ? 0 : il];
    int64_t key_dim = (int64_t)hp->gdn.n_k_head * hp->gdn.d_k;
    int64_t value_dim = (int64_t)hp->gdn.n_v_head * hp->gdn.d_v;
    int64_t inner = hp->ssm.n_inner, n_bc = 2 * (int64_t)hp->ssm.n_group * hp->ssm.d_state;
    int64_t q_dim = (int64_t)l->n_head * l->d_k * (hp->has_q_gate ? 2 : 1);
    int64_t n_kv_head = l->kv_back ? 0 : l->n_kv_head;
    switch (d) {
    case D_NONE:
    case D_ONE: return 1;
    case D_EMBD: return hp->n_embd;
    case D_EMBD2: return 2 * (int64_t)hp->n_embd;
    case D_VOCAB: return hp->n_vocab;
    case D_CTX: return hp->n_ctx_train;
    case D_HEAD: return l->n_head;
    case D_HEAD_K: return l->d_k;
    case D_Q: return q_dim;
    case D_K: return n_kv_head * l->d_k;
    case D_V: return n_kv_head * l->d_v;
    case D_ATTN_OUT: return (int64_t)l->n_head * l->d_v;
    case D_QKV: return q_dim + n_kv_head * (l->d_k + l->d_v);
    case D_FF: return l->n_ff;
    case D_FF_UP: return hp->is_up_fused ? 2 * (int64_t)l->n_ff : l->n_ff;
    case D_BUCKET: return BIAS_N_BUCKET;
    case D_LABEL: return 2;
    case D_DENSE: return hp->dense.n[0];
    case D_DENSE2: return hp->dense.n[1];
    case D_EXPERT: return hp->moe.n_expert;
    case D_EXP_IN: return hp->moe.n_latent ? hp->moe.n_latent : hp->n_embd;
    case D_LATENT: return hp->moe.n_latent;
    case D_FF_EXP: return hp->moe.n_ff;
    case D_FF_EXP2: return 2 * (int64_t)hp->moe.n_ff;
    case D_FF_SHARED: return hp->moe.n_ff_shared;
    case D_GDN_CONV: return 2 * key_dim + value_dim;
    case D_GDN_INNER: return value_dim;
    case D_GDN_V_HEAD: return hp->gdn.n_v_head;
    case D_GDN_V_DIM: return hp->gdn.d_v;
    case D_GDN_QKVZ: return 2 * key_dim + 2 * value_dim;
    case D_GDN_BA: return 2 * (int64_t)hp->gdn.n_v_head;
    case D_CONV_TAPS: return hp->gdn.d_conv;
    case D_SSM_IN: return 2 * inner + (l->mixer & MIX_MAMBA2 ? n_bc + hp->ssm.n_head : 0);
    case D_SSM_INNER: return inner;
    case D_SSM_CONV: return inner + (l->mixer & MIX_MAMBA2 ? n_bc : 0);
    case D_SSM_TAPS: return hp->ssm.d_conv;
    case D_SSM_STATE: return hp->ssm.d_state;
    case D_SSM_HEAD: return hp->ssm.n_head;
    case D_SSM_RANK: return hp->ssm.dt_rank;
    case D_SSM_X: return hp->ssm.dt_rank + 2 * (int64_t)hp->ssm.d_state;
    case D_SSM_NORM: return hp->ssm.n_norm;
    case D_SSM_PART: return hp->ssm.n_norm ? inner / hp->ssm.n_norm : 0;
    case D_ADAPTER: return hp->adapter_rank;
    case D_META: return hp->n_meta;
    case D_EMBD3: return 3 * (int64_t)hp->n_embd;
    case D_TOKEN_TYPE: return hp->n_token_type;
    case D_PLE: return hp->n_ple;
    case D_PLE_ALL: return (int64_t)hp->n_ple * hp->n_layer;
    case D_MLA_Q: return (int64_t)l->n_head * hp->mla.d_k;
    case D_MLA_Q_RANK: return hp->mla.n_q_rank;
    case D_MLA_RANK: return l->d_v;
    case D_MLA_NOPE: return hp->mla.d_k - hp->n_rot;
    case D_MLA_V: return hp->mla.d_v;
    case D_MLA_OUT: return (int64_t)l->n_head * hp->mla.d_v;
    case D_TAPS: return hp->dflash.n_in;
    case D_MARKOV: return hp->dflash.n_markov;
    case D_SURE: return hp->dflash.n_sure;
    }
    return 0;
}

bool arch_has(const struct hparams *hp, enum tensor_where where, int32_t il) {
    const struct layer_shape *l = &hp->layer[il < 0 ? 0 : il];
    if (where & AT_MIX_BIT) return il >= 0 && l->mixer & where;
    switch (where) {
    case AT_MIX_BIT: break;
    case AT_GLOBAL: return il < 0;
    case AT_LAYER: return il >= 0 && (l->mixer != MIX_NONE || l->ffn != FFN_NONE);
    case AT_ATTN: return il >= 0 && l->mixer & MIX_ATTN && !l->share_back;
    case AT_ATTN_KV: return il >= 0 && l->mixer & MIX_ATTN && !l->share_back && !l->kv_back;
    case AT_SHARED: return il >= 0 && l->join == JOIN_SHARED;
    case AT_MIXER: return il >= 0 && l->mixer != MIX_NONE;
    case AT_FFN: return il >= 0 && l->ffn != FFN_NONE;
    case AT_FFN_ONLY: return il >= 0 && l->mixer == MIX_NONE && l->ffn != FFN_NONE;
    case AT_FFN_DENSE: return il >= 0 && l->ffn & FFN_DENSE && !l->share_back;
    case AT_FFN_MOE: return il >= 0 && l->ffn & FFN_MOE;
    case AT_FFN_SHARED: return il >= 0 && l->ffn & FFN_MOE && hp->moe.n_ff_shared > 0;
    case AT_FFN_LATENT: return il >= 0 && l->ffn & FFN_MOE && hp->moe.n_latent > 0;
    case AT_FFN_BOTH: return il >= 0 && l->ffn == FFN_BOTH;
    case AT_MLA_Q: return il >= 0 && l->mixer & MIX_MLA && !hp->mla.n_q_rank;
    case AT_MLA_LOW_Q: return il >= 0 && l->mixer & MIX_MLA && hp->mla.n_q_rank;
    case AT_PLE: return il >= 0 && hp->n_ple > 0;
    case AT_NEXTN: return il >= 0 && l->is_nextn;
    }
    return false;
}

int hparams_cut(struct hparams *hp, struct layer_part part, struct err *e) {
    if (!part.end) return 0;
    if (part.first < 0 || part.first >= part.end || part.end > hp->n_layer)
        return err_set(e, CHIMERE_EINVAL, "layers: expected a part of %d, got %d to %d",
                       hp->n_layer, part.first, part.end);
    bool reads_more = hp->n_meta > 0 || hp->n_ple > 0;
    for (int32_t il = 0; il < hp->n_layer; il++)
        reads_more |=
            hp->layer[il].join == JOIN_SHARED || hp->layer[il].share_back || hp->layer[il].kv_back;
    if (reads_more)
        return err_set(e, CHIMERE_EUNSUPPORTED,
                       "layers of a %s model read of each other and cannot be on different cards",
                       hp->arch->name);
    int32_t n_all = arch_n_layer_all(hp);
    hp->no_head = part.end < hp->n_layer;
    if (hp->no_head) hp->n_nextn = 0;
    for (int32_t il = 0; il < n_all; il++)
        if (il < part.first || (il >= part.end && hp->no_head))
            hp->layer[il] = (struct layer_shape){.mixer = 0};
    return 0;
}

/* ---- keys ---- */

const struct gguf_kv *key_find(const struct hparams *hp, const struct gguf *g, const char *suffix) {
    char name[GGUF_MAX_NAME];
    snprintf(name, sizeof name, "%s.%s", hp->arch->name, suffix);
    const struct gguf_kv *kv = gguf_find(g, name);
    if (kv && hp->marks) hp->marks[kv - gguf_kv_at(g, 0)] = true;
    return kv;
}

static int missing(const struct hparams *hp, const char *suffix, struct err *e) {
    return err_set(e, CHIMERE_EFORMAT, "key %s.%s: expected in a %s model, got nothing",
                   hp->arch->name, suffix, hp->arch->name);
}

static int check_i64(const struct hparams *hp, const char *suffix, const struct gguf_kv *kv,
                     uint64_t i, int64_t min, int64_t max, int64_t *v, struct err *e) {
    if (!gguf_item_i64(kv, i, v))
        return err_set(e, CHIMERE_EFORMAT, "key %s.%s: expected a whole number, got %s",
                       hp->arch->name, suffix,
                       gguf_type_name(kv->type == GGUF_ARR ? kv->item_type : kv->type));
    if (*v < min || *v > max)
        return err_set(e, CHIMERE_EFORMAT, "key %s.%s: expected %lld to %lld, got %lld",
                       hp->arch->name, suffix, (long long)min, (long long)max, (long long)*v);
    return 0;
}

int key_i32(const struct hparams *hp, const struct gguf *g, const char *suffix, bool required,
            int64_t min, int64_t max, int32_t *out, struct err *e) {
    const struct gguf_kv *kv = key_find(hp, g, suffix);
    if (!kv) return required ? missing(hp, suffix, e) : 0;
    if (kv->type == GGUF_ARR)
        return err_set(e, CHIMERE_EFORMAT, "key %s.%s: expected one number, got an array",
                       hp->arch->name, suffix);
    int64_t v;
    int rc = check_i64(hp, suffix, kv, 0, min, max, &v, e);
    if (!rc) *out = (int32_t)v;
    return rc;
}

int key_i32_per_layer(const struct hparams *hp, const struct gguf *g, const char *suffix,
                      bool required, int64_t min, int64_t max, int32_t n, int32_t *out,
                      size_t stride, struct err *e) {
    const struct gguf_kv *kv = key_find(hp, g, suffix);
    if (!kv) return required ? missing(hp, suffix, e) : 0;
    if (kv->type == GGUF_ARR && kv->n < (uint64_t)n)
        return err_set(e, CHIMERE_EFORMAT, "key %s.%s: expected %d items, got %llu", hp->arch->name,
                       suffix, n, (unsigned long long)kv->n);
    for (int32_t i = 0; i < n; i++) {
        int64_t v;
        int rc = check_i64(hp, suffix, kv, kv->type == GGUF_ARR ? (uint64_t)i : 0, min, max, &v, e);
        if (rc) return rc;
        *(int32_t *)((char *)out + (size_t)i * stride) = (int32_t)v;
    }
    return 0;
}

int key_f32(const struct hparams *hp, const struct gguf *g, const char *suffix, bool required,
            double min, double max, float *out, struct err *e) {
    const struct gguf_kv *kv = key_find(hp, g, suffix);
    if (!kv) return required ? missing(hp, suffix, e) : 0;
    double v;
    if (kv->type == GGUF_ARR || !gguf_item_f64(kv, 0, &v))
        return err_set(e, CHIMERE_EFORMAT, "key %s.%s: expected a number, got %s", hp->arch->name,
                       suffix, gguf_type_name(kv->type));
    if (!(v >= min && v <= max))
        return err_set(e, CHIMERE_EFORMAT, "key %s.%s: expected %g to %g, got %g", hp->arch->name,
                       suffix, min, max, v);
    *out = (float)v;
    return 0;
}

int key_bool(const struct hparams *hp, const struct gguf *g, const char *suffix, bool *out,
             struct err *e) {
    const struct gguf_kv *kv = key_find(hp, g, suffix);
    if (!kv) return 0;
    if (!gguf_item_bool(kv, 0, out))
        return err_set(e, CHIMERE_EFORMAT, "key %s.%s: expected true or false, got %s",
                       hp->arch->name, suffix, gguf_type_name(kv->type));
    return 0;
}

int read_layers(struct hparams *hp, const struct gguf *g, struct err *e) {
    int32_t n_all = 0;
    int rc = key_i32(hp, g, "block_count", true, 1, ARCH_MAX_LAYERS, &n_all, e);
    if (!rc) rc = key_i32(hp, g, "nextn_predict_layers", false, 0, n_all - 1, &hp->n_nextn, e);
    if (!rc) rc = key_i32(hp, g, "embedding_length", true, 1, ARCH_MAX_EMBD, &hp->n_embd, e);
    hp->n_ctx_train = 4096;
    if (!rc) rc = key_i32(hp, g, "context_length", false, 1, 1 << 30, &hp->n_ctx_train, e);
    if (rc) return rc;
    hp->n_layer = n_all - hp->n_nextn;
    for (int32_t il = 0; il < n_all; il++) hp->layer[il].is_nextn = il >= hp->n_layer;
    int32_t pooling = POOL_NONE;
    rc = key_i32(hp, g, "pooling_type", false, POOL_NONE, POOL_RANK, &pooling, e);
    if (rc) return rc;
    hp->pooling = (enum pooling)pooling;
    return key_i32_per_layer(hp, g, "feed_forward_length", false, 0, 1 << 24, n_all,
                             &hp->layer[0].n_ff, sizeof hp->layer[0], e);
}

int read_trunk(struct hparams *hp, const struct gguf *g, struct err *e) {
    int rc = read_layers(hp, g, e);
    if (rc || !hp->n_nextn) return rc;
    return err_set(e, CHIMERE_EUNSUPPORTED, "key %s.nextn_predict_layers: expected 0, got %d",
                   hp->arch->name, hp->n_nextn);
}

/* Which layers have a window: all; those of a list of booleans; or, with a period p, all except each p-th. */
static int read_windows(struct hparams *hp, const struct gguf *g, struct err *e) {
    int32_t window = 0, period = 0;
    const struct gguf_kv *list = key_find(hp, g, "attention.sliding_window_pattern");
    int rc = key_i32(hp, g, "attention.sliding_window", false, 0, INT32_MAX, &window, e);
    if (rc || !window) return rc;
    if (list && list->type != GGUF_ARR) {
        rc = key_i32(hp, g, "attention.sliding_window_pattern", true, 1, ARCH_MAX_LAYERS, &period,
                     e);
        if (rc) return rc;
    }
    for (int32_t il = 0; il < arch_n_layer_all(hp); il++) {
        bool sees = period ? (il + 1) % period != 0 : true;
        if (list && list->type == GGUF_ARR && !gguf_item_bool(list, (uint64_t)il, &sees))
            return err_set(e, CHIMERE_EFORMAT,
                           "key %s.attention.sliding_window_pattern: expected %d booleans",
                           hp->arch->name, arch_n_layer_all(hp));
        if (sees && hp->layer[il].mixer & MIX_ATTN) hp->layer[il].window = window;
    }
    return 0;
}

int read_attention(struct hparams *hp, const struct gguf *g, struct err *e) {
    int32_t n_all = arch_n_layer_all(hp);
    size_t stride = sizeof hp->layer[0];
    int rc = key_i32_per_layer(hp, g, "attention.head_count", true, 0, 4096, n_all,
                               &hp->layer[0].n_head, stride, e);
    for (int32_t il = 0; !rc && il < n_all; il++) hp->layer[il].n_kv_head = hp->layer[il].n_head;
    if (!rc)
        rc = key_i32_per_layer(hp, g, "attention.head_count_kv", false, 0, 4096, n_all,
                               &hp->layer[0].n_kv_head, stride, e);
    if (rc) return rc;
    int32_t n_head = 0;
    for (int32_t il = 0; il < n_all; il++) {
        struct layer_shape *l = &hp->layer[il];
        if (!(l->mixer & MIX_ATTN)) continue;
        if (!n_head) n_head = l->n_head;
        if (l->n_head < 1 || l->n_kv_head < 1 || l->n_head % l->n_kv_head)
            return err_set(
                e, CHIMERE_EFORMAT,
                "layer %d: expected query heads in multiples of key heads, got %d and %d", il,
                l->n_head, l->n_kv_head);
    }
    hp->d_k = n_head ? hp->n_embd / n_head : 0;
    rc = key_i32(hp, g, "attention.key_length", false, 1, 4096, &hp->d_k, e);
    hp->d_v = hp->d_k;
    if (!rc) rc = key_i32(hp, g, "attention.value_length", false, 1, 4096, &hp->d_v, e);
    if (rc) return rc;
    if (n_head && (hp->d_k < 1 || hp->d_k % 2))
        return err_set(e, CHIMERE_EFORMAT, "head size: expected a positive even number, got %d",
                       hp->d_k);
    for (int32_t il = 0; il < n_all; il++) hp->layer[il].d_k = hp->d_k, hp->layer[il].d_v = hp->d_v;
    hp->attn_scale = hp->d_k ? 1.0f / sqrtf((float)hp->d_k) : 1.0f;
    rc = key_f32(hp, g, "attention.scale", false, 0, 1e6, &hp->attn_scale, e);
    if (!rc && hp->attn_scale == 0) hp->attn_scale = 1.0f / sqrtf((float)hp->d_k);
    return rc ? rc : read_windows(hp, g, e);
}

/* YaRN parameters that the file sets: where the ramp starts and ends, and the factor of attention. */
static int read_yarn(struct hparams *hp, const struct gguf *g, struct err *e) {
    float extrapolation = 1;
    hp->rope_beta_fast = 32;
    hp->rope_beta_slow = 1;
    hp->rope_truncate = true;
    hp->rope_magnitude = 0.1f * logf(hp->rope_factor) + 1.0f;
    int rc =
        key_f32(hp, g, "rope.scaling.yarn_beta_fast", false, 1e-3, 1e6, &hp->rope_beta_fast, e);
    if (!rc)
        rc =
            key_f32(hp, g, "rope.scaling.yarn_beta_slow", false, 1e-3, 1e6, &hp->rope_beta_slow, e);
    if (!rc) rc = key_bool(hp, g, "rope.scaling.yarn_truncate", &hp->rope_truncate, e);
    if (!rc) rc = key_f32(hp, g, "rope.scaling.yarn_ext_factor", false, 1, 1, &extrapolation, e);
    return rc;
}

int read_rope(struct hparams *hp, const struct gguf *g, enum rope_mode mode, struct err *e) {
    hp->rope_mode = mode;
    hp->n_rot = hp->d_k;
    hp->rope_base = 10000.0f;
    int rc = key_i32(hp, g, "rope.dimension_count", false, 0, hp->d_k, &hp->n_rot, e);
    if (!rc) rc = key_f32(hp, g, "rope.freq_base", false, 1, 1e12, &hp->rope_base, e);
    if (rc) return rc;
    if (hp->n_rot % 2)
        return err_set(e, CHIMERE_EFORMAT,
                       "key %s.rope.dimension_count: expected an even number, got %d",
                       hp->arch->name, hp->n_rot);
    const struct gguf_kv *kind = key_find(hp, g, "rope.scaling.type");
    if (kind) {
        uint64_t cursor = 0;
        struct slice s = {NULL, 0};
        gguf_next_str(kind, &cursor, &s);
        bool is_linear = s.n == 6 && memcmp(s.p, "linear", 6) == 0;
        hp->rope_yarn = s.n == 4 && memcmp(s.p, "yarn", 4) == 0;
        if (is_linear || hp->rope_yarn) {
            rc = key_f32(hp, g, "rope.scaling.factor", true, 1e-3, 1e6, &hp->rope_factor, e);
        } else if (!(s.n == 4 && memcmp(s.p, "none", 4) == 0)) {
            return err_set(e, CHIMERE_EUNSUPPORTED,
                           "key %s.rope.scaling.type: expected none, linear or yarn, got '%.*s'",
                           hp->arch->name, (int)(s.n < 40 ? s.n : 40), s.p ? s.p : "");
        }
        hp->rope_n_ctx_orig = hp->n_ctx_train;
        if (!rc)
            rc = key_i32(hp, g, "rope.scaling.original_context_length", false, 1, 1 << 30,
                         &hp->rope_n_ctx_orig, e);
        if (!rc && hp->rope_yarn) rc = read_yarn(hp, g, e);
        float attn_factor = 1;
        if (!rc) rc = key_f32(hp, g, "rope.scaling.attn_factor", false, 0, 1e3, &attn_factor, e);
        hp->rope_magnitude *= attn_factor;
    }
    return rc;
}

/* The choice of experts by groups of adjacent ones. */
static int read_groups(struct hparams *hp, const struct gguf *g, struct err *e) {
    int32_t n_expert = hp->moe.n_expert, n_group = 0, n_used = 0;
    int rc = key_i32(hp, g, "expert_group_count", false, 0, n_expert, &n_group, e);
    if (!rc) rc = key_i32(hp, g, "expert_group_used_count", false, 0, n_expert, &n_used, e);
    if (rc || n_group < 2) return rc;
    if (n_group > MOE_MAX_GROUP || n_expert > MOE_MAX_GROUPED || n_expert % n_group ||
        n_expert / n_group < 2)
        return err_set(e, CHIMERE_EUNSUPPORTED,
                       "key %s.expert_group_count: expected at most %d equal groups of two or more "
                       "experts, got %d of %d experts",
                       hp->arch->name, MOE_MAX_GROUP, n_group, n_expert);
    if (hp->moe.gating != MOE_SIGMOID)
        return err_set(e, CHIMERE_EUNSUPPORTED,
                       "key %s.expert_group_count: expected 1 if experts are not weighted by a "
                       "sigmoid, got %d",
                       hp->arch->name, n_group);
    if (n_used < 1 || n_used > n_group || n_used * (n_expert / n_group) < hp->moe.n_used)
        return err_set(e, CHIMERE_EFORMAT,
                       "key %s.expert_group_used_count: expected 1 to %d, with %d experts or more, "
                       "got %d",
                       hp->arch->name, n_group, hp->moe.n_used, n_used);
    hp->moe.n_group = n_group;
    hp->moe.n_group_used = n_used;
    return 0;
}

int read_moe(struct hparams *hp, const struct gguf *g, struct err *e) {
    int32_t gating = 0;
    int rc = key_i32(hp, g, "expert_count", true, 1, ARCH_MAX_EXPERTS, &hp->moe.n_expert, e);
    if (!rc)
        rc = key_i32(hp, g, "expert_used_count", true, 1, hp->moe.n_expert, &hp->moe.n_used, e);
    if (!rc) rc = key_i32(hp, g, "expert_feed_forward_length", false, 1, 1 << 24, &hp->moe.n_ff, e);
    if (!rc)
        rc = key_i32(hp, g, "expert_shared_feed_forward_length", false, 0, 1 << 24,
                     &hp->moe.n_ff_shared, e);
    if (!rc) rc = key_i32(hp, g, "expert_gating_func", false, 0, 3, &gating, e);
    if (!rc) rc = key_bool(hp, g, "expert_weights_norm", &hp->moe.normalise, e);
    if (!rc) rc = key_f32(hp, g, "expert_weights_scale", false, 0, 1e6, &hp->moe.scale, e);
    if (rc) return rc;
    if (gating == 2) hp->moe.gating = MOE_SIGMOID;
    if (gating == 3) hp->moe.gating = MOE_SOFTMAX_CHOSEN;
    if (hp->moe.scale == 0) hp->moe.scale = 1;
    if (hp->moe.n_used > 64)
        return err_set(e, CHIMERE_EUNSUPPORTED,
                       "key %s.expert_used_count: expected at most 64, got %d", hp->arch->name,
                       hp->moe.n_used);
    if (hp->moe.n_ff < 1) return missing(hp, "expert_feed_forward_length", e);
    return read_groups(hp, g, e);
}

/* Vocabulary size: the number of embedding rows, which every family has. */
static int read_vocab_size(struct hparams *hp, const struct gguf *g, struct err *e) {
    const struct gguf_tensor *t = gguf_find_tensor(g, "token_embd.weight");
    if (!t) {
        err_set(e, CHIMERE_EFORMAT,
                "tensor token_embd.weight: expected in every model, got nothing");
        err_hint(e, "a vocabulary-only file holds no model");
        return CHIMERE_EFORMAT;
    }
    if (t->n_dims != 2 || t->ne[1] < 1 || t->ne[1] > ARCH_MAX_VOCAB)
        return err_set(
            e, CHIMERE_EFORMAT,
            "tensor token_embd.weight: expected a matrix of at most %d rows, got %u dimensions "
            "and %llu rows",
            ARCH_MAX_VOCAB, t->n_dims, (unsigned long long)t->ne[1]);
    hp->n_vocab = hp->n_logit = (int32_t)t->ne[1];
    return 0;
}

static int unknown_arch(struct slice name, struct err *e) {
    const struct arch_missing *missing = arch_missing_find(name, NULL);
    if (missing)
        return err_set(
            e, CHIMERE_EUNSUPPORTED,
            "general.architecture: '%.*s' is not a family we run: %s needs %s; README.md "
            "lists all such families",
            (int)name.n, name.p, missing->title, missing->lacks);
    err_set(e, CHIMERE_EUNSUPPORTED, "general.architecture: '%.*s' is not a family we run",
            (int)(name.n < 64 ? name.n : 64), name.p ? name.p : "");
    char list[140] = "known: ";
    for (const struct arch *const *a = arch_table; *a; a++) {
        size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, "%s%s", a == arch_table ? "" : ", ", (*a)->name);
    }
    err_hint(e, "%s", list);
    return CHIMERE_EUNSUPPORTED;
}

static bool read_arch(const struct gguf *g, struct slice *name) {
    const struct gguf_kv *kv = gguf_find(g, "general.architecture");
    uint64_t cursor = 0;
    return kv && gguf_next_str(kv, &cursor, name);
}

static const struct arch *find_slice(struct slice s) {
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)(s.n < 63 ? s.n : 63), s.p);
    return arch_find(name);
}

bool arch_is_known(const struct gguf *g) {
    struct slice s;
    return !read_arch(g, &s) || find_slice(s);
}

static void set_defaults(struct hparams *hp, const struct arch *arch) {
    *hp = (struct hparams){.arch = arch};
    hp->rope_factor = hp->rope_magnitude = hp->embd_scale = hp->logit_scale = hp->moe.scale = 1;
    hp->residual_scale = 1;
    hp->gdn.beta_scale = 1;
    hp->ssm.dt_max = INFINITY;
    hp->is_causal = true;
    hp->act = ACT_SILU;
}

int hparams_read_marking(struct hparams *hp, const struct gguf *g, bool *marks, struct err *e) {
    struct slice s;
    set_defaults(hp, NULL);
    if (!read_arch(g, &s))
        return err_set(e, CHIMERE_EFORMAT,
                       "key general.architecture: expected a string, got nothing");
    hp->arch = find_slice(s);
    if (!hp->arch) return unknown_arch(s, e);
    hp->marks = marks;
    int rc = read_vocab_size(hp, g, e);
    if (!rc) rc = hp->arch->read(hp, g, e);
    hp->marks = NULL;
    return rc;
}

int hparams_read(struct hparams *hp, const struct gguf *g, struct err *e) {
    return hparams_read_marking(hp, g, NULL, e);
}

int hparams_read_drafter(struct hparams *hp, const struct gguf *g, struct err *e) {
    struct slice s = {NULL, 0};
    set_defaults(hp, NULL);
    read_arch(g, &s);
    for (const struct arch *const *a = drafter_table; *a; a++)
        if (strlen((*a)->name) == s.n && memcmp((*a)->name, s.p, s.n) == 0) hp->arch = *a;
    if (!hp->arch)
        return err_set(
            e, CHIMERE_EUNSUPPORTED,
            "general.architecture: expected dflash or dflash-draft of a drafter, got '%.*s'",
            (int)(s.n < 64 ? s.n : 64), s.p ? s.p : "");
    const struct gguf_kv *tokens = gguf_find(g, "tokenizer.ggml.tokens");
    if (tokens && tokens->type == GGUF_ARR && tokens->n <= ARCH_MAX_VOCAB)
        hp->n_vocab = hp->n_logit = (int32_t)tokens->n;
    int rc = key_i32(hp, g, "vocab_size", false, 1, ARCH_MAX_VOCAB, &hp->dflash.n_vocab, e);
    return rc ? rc : hp->arch->read(hp, g, e);
}

/* synth_family.c: small shapes of the hybrid families, and a dense one of 27 billion weights. A shape is a list of
 * keys; the family's rows (model/arch/arch.h) define the tensors and their shapes from these, as they do for the
 * loader. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/str.h"
#include "convert/synth_impl.h"
#include "format/quant.h"
#include "model/arch/arch.h"

enum value { V_U32, V_F32, V_BOOL, V_U32_EACH, V_I32_EACH, V_BOOL_EACH };

struct key {
    const char *name; /* key after "ARCH."; NULL ends a list */
    enum value type;
    double v;
    const int16_t *each; /* one per layer */
};

struct synth_family {
    const char *name, *arch;
    uint32_t n_layer, n_vocab, n_expert, n_used;
    struct key keys[24];
};

#define MAMBA2(inner, head, group, state)                                                          \
    {"ssm.inner_size", V_U32, inner, NULL}, {"ssm.time_step_rank", V_U32, head, NULL},             \
        {"ssm.group_count", V_U32, group, NULL}, {"ssm.state_size", V_U32, state, NULL}, {         \
        "ssm.conv_kernel", V_U32, 4, NULL                                                          \
    }
#define MAMBA1(inner, rank, state)                                                                 \
    {"ssm.inner_size", V_U32, inner, NULL}, {"ssm.time_step_rank", V_U32, rank, NULL},             \
        {"ssm.state_size", V_U32, state, NULL}, {                                                  \
        "ssm.conv_kernel", V_U32, 4, NULL                                                          \
    }
#define SIZES(embd)                                                                                \
    {"embedding_length", V_U32, embd, NULL}, {"context_length", V_U32, 32768, NULL}, {             \
        "attention.layer_norm_rms_epsilon", V_F32, 1e-5, NULL                                      \
    }
#define HEADS(n, d)                                                                                \
    {"attention.head_count", V_U32, n, NULL}, {"attention.key_length", V_U32, d, NULL}, {          \
        "attention.value_length", V_U32, d, NULL                                                   \
    }

/* each layer of Nemotron-H is one block: M - M A M - M - M A - M */
static const int16_t nemotron_kv[] = {0, 0, 0, 2, 0, 0, 0, 0, 0, 2, 0, 0};
static const int16_t nemotron_ff[] = {0, 4096, 0, 0, 4096, 0, 0, 4096, 0, 0, 4096, 0};
static const int16_t granite_kv[] = {0, 0, 2, 0, 0, 0, 0, 2, 0, 0, 0, 0};
static const int16_t jamba_kv[] = {0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0};
static const int16_t jamba_experts[] = {0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1};
static const int16_t zamba_shared[] = {-1, -1, 2, -1, -1, 5, -1, -1, 2, -1, -1, 5};
static const int16_t zamba_kv[] = {0, 0, 16, 0, 0, 16, 0, 0, 16, 0, 0, 16};
static const int16_t zamba_ff[] = {0, 0, 4096, 0, 0, 4096, 0, 0, 4096, 0, 0, 4096};
static const int16_t lfm2_kv[] = {0, 0, 2, 0, 0, 2, 0, 0, 2, 0, 2, 0};
/* M E M A E M E M E A M E: experts of 512 rows */
static const int16_t super_kv[] = {0, 0, 0, 2, 0, 0, 0, 0, 0, 2, 0, 0};
static const int16_t super_ff[] = {0, 512, 0, 0, 512, 0, 512, 0, 512, 0, 0, 512};
static const int16_t gemma4_local[] = {1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 0};
static const int16_t gemma4_kv[] = {4, 4, 4, 4, 4, 1, 4, 4, 4, 4, 4, 1};
static const int16_t olmo_recurrent[] = {1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0};
static const int16_t hymba_local[] = {0, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 0};
static const int16_t hymba_source[] = {0, 1, 1, 3, 3, 5, 6, 6, 6, 9, 9, 11};

/* the four scales of Granite 3.3 2B */
#define GRANITE_SCALES                                                                             \
    {"attention.scale", V_F32, 1.0 / 64, NULL}, {"embedding_scale", V_F32, 12, NULL},              \
        {"residual_scale", V_F32, 0.22, NULL}, {                                                   \
        "logit_scale", V_F32, 8, NULL                                                              \
    }
/* head sizes and RoPE of Gemma 4: layers with a window have heads of 256 */
#define GEMMA4_HEADS                                                                               \
    HEADS(8, 512), {"attention.key_length_swa", V_U32, 256, NULL},                                 \
        {"attention.value_length_swa", V_U32, 256, NULL},                                          \
        {"attention.sliding_window", V_U32, 512, NULL},                                            \
        {"attention.sliding_window_pattern", V_BOOL_EACH, 0, gemma4_local},                        \
        {"rope.dimension_count", V_U32, 512, NULL},                                                \
        {"rope.dimension_count_swa", V_U32, 256, NULL}, {"rope.freq_base", V_F32, 1e6, NULL}, {    \
        "rope.freq_base_swa", V_F32, 1e4, NULL                                                     \
    }

static const struct synth_family families[] = {
    {"qwen35-27b",
     "qwen35",
     64,
     248320,
     0,
     0,
     {SIZES(5120),
      HEADS(24, 256),
      MAMBA2(6144, 48, 16, 128),
      {"attention.head_count_kv", V_U32, 4, NULL},
      {"full_attention_interval", V_U32, 4, NULL},
      {"feed_forward_length", V_U32, 17408, NULL},
      {"rope.dimension_count", V_U32, 64, NULL},
      {"rope.freq_base", V_F32, 1e7, NULL}}},
    {"mamba-mini", "mamba", 16, 32768, 0, 0, {SIZES(1024), MAMBA1(2048, 64, 16)}},
    {"mamba2-mini", "mamba2", 16, 32768, 0, 0, {SIZES(1024), MAMBA2(2048, 32, 4, 128)}},
    {"nemotron-mini",
     "nemotron_h",
     12,
     32768,
     0,
     0,
     {SIZES(1024),
      HEADS(8, 128),
      MAMBA2(2048, 32, 4, 128),
      {"attention.head_count_kv", V_U32_EACH, 0, nemotron_kv},
      {"feed_forward_length", V_U32_EACH, 0, nemotron_ff}}},
    {"granite-h-mini",
     "granitehybrid",
     12,
     32768,
     16,
     4,
     {SIZES(1024),
      HEADS(8, 128),
      MAMBA2(2048, 32, 1, 128),
      {"attention.head_count_kv", V_U32_EACH, 0, granite_kv},
      {"attention.scale", V_F32, 1.0 / 128, NULL},
      {"embedding_scale", V_F32, 12, NULL},
      {"residual_scale", V_F32, 0.22, NULL},
      {"logit_scale", V_F32, 3, NULL},
      {"rope.scaling.finetuned", V_BOOL, 0, NULL},
      {"feed_forward_length", V_U32, 512, NULL},
      {"expert_shared_feed_forward_length", V_U32, 1024, NULL}}},
    {"falcon-h1-mini",
     "falcon-h1",
     12,
     32768,
     0,
     0,
     {SIZES(1024),
      HEADS(8, 128),
      MAMBA2(1536, 24, 1, 256),
      {"attention.head_count_kv", V_U32, 2, NULL},
      {"feed_forward_length", V_U32, 2048, NULL},
      {"rope.freq_base", V_F32, 1e11, NULL}}},
    {"jamba-mini",
     "jamba",
     12,
     32768,
     8,
     2,
     {SIZES(1024),
      HEADS(8, 128),
      MAMBA1(2048, 64, 16),
      {"attention.head_count_kv", V_U32_EACH, 0, jamba_kv},
      {"expert_layers", V_BOOL_EACH, 0, jamba_experts},
      {"feed_forward_length", V_U32, 2048, NULL}}},
    {"zamba2-mini",
     "zamba2",
     12,
     32768,
     0,
     0,
     {SIZES(1024),
      HEADS(16, 128),
      MAMBA2(2048, 32, 1, 64),
      {"attention.head_count_kv", V_U32_EACH, 0, zamba_kv},
      {"attention.scale", V_F32, 0.125, NULL},
      {"feed_forward_length", V_U32_EACH, 0, zamba_ff},
      {"shared_layers", V_I32_EACH, 0, zamba_shared},
      {"adapter_rank", V_U32, 128, NULL},
      {"rope.dimension_count", V_U32, 128, NULL},
      {"ssm.time_step_min", V_F32, 0.001, NULL}}},
    {"hymba-mini",
     "hymba",
     12,
     32768,
     0,
     0,
     {SIZES(1024),
      {"attention.head_count", V_U32, 16, NULL},
      {"attention.key_length", V_U32, 64, NULL},
      {"attention.value_length", V_U32, 128, NULL},
      MAMBA1(2048, 64, 16),
      {"attention.head_count_kv", V_U32, 4, NULL},
      {"attention.sliding_window", V_U32, 1024, NULL},
      {"attention.sliding_window_pattern", V_BOOL_EACH, 0, hymba_local},
      {"attention.kv_source", V_I32_EACH, 0, hymba_source},
      {"meta_token_count", V_U32, 128, NULL},
      {"feed_forward_length", V_U32, 2816, NULL}}},
    {"granite-mini",
     "granite",
     12,
     32768,
     0,
     0,
     {SIZES(1024),
      HEADS(8, 128),
      {"attention.head_count_kv", V_U32, 2, NULL},
      GRANITE_SCALES,
      {"rope.freq_base", V_F32, 1e7, NULL},
      {"feed_forward_length", V_U32, 4096, NULL}}},
    {"granite-moe-mini",
     "granitemoe",
     12,
     32768,
     16,
     4,
     {SIZES(1024),
      HEADS(8, 128),
      {"attention.head_count_kv", V_U32, 2, NULL},
      GRANITE_SCALES,
      {"rope.freq_base", V_F32, 1e4, NULL},
      {"feed_forward_length", V_U32, 512, NULL}}},
    {"ministral-mini",
     "mistral3",
     12,
     32768,
     0,
     0,
     {SIZES(1024),
      HEADS(8, 128),
      {"attention.head_count_kv", V_U32, 2, NULL},
      {"attention.temperature_scale", V_F32, 0.1, NULL},
      {"rope.freq_base", V_F32, 1e6, NULL},
      {"feed_forward_length", V_U32, 4096, NULL}}},
    {"lfm2-mini",
     "lfm2",
     12,
     32768,
     0,
     0,
     {SIZES(1024),
      HEADS(16, 64),
      {"attention.head_count_kv", V_U32_EACH, 0, lfm2_kv},
      {"shortconv.l_cache", V_U32, 3, NULL},
      {"rope.freq_base", V_F32, 1e6, NULL},
      {"feed_forward_length", V_U32, 4608, NULL}}},
    {"lfm2-moe-mini",
     "lfm2moe",
     12,
     32768,
     16,
     4,
     {SIZES(1024),
      HEADS(16, 64),
      {"attention.head_count_kv", V_U32_EACH, 0, lfm2_kv},
      {"shortconv.l_cache", V_U32, 3, NULL},
      {"rope.freq_base", V_F32, 1e6, NULL},
      {"feed_forward_length", V_U32, 4608, NULL},
      {"leading_dense_block_count", V_U32, 2, NULL},
      {"expert_feed_forward_length", V_U32, 512, NULL},
      {"expert_weights_norm", V_BOOL, 1, NULL},
      {"expert_gating_func", V_U32, 2, NULL}}},
    {"nemotron-super-mini",
     "nemotron_h_moe",
     12,
     32768,
     32,
     8,
     {SIZES(1024),
      {"attention.layer_norm_epsilon", V_F32, 1e-5, NULL},
      HEADS(8, 128),
      MAMBA2(2048, 32, 4, 128),
      {"attention.head_count_kv", V_U32_EACH, 0, super_kv},
      {"feed_forward_length", V_U32_EACH, 0, super_ff},
      {"expert_feed_forward_length", V_U32, 512, NULL},
      {"expert_shared_feed_forward_length", V_U32, 1024, NULL},
      {"expert_shared_count", V_U32, 1, NULL},
      {"expert_weights_norm", V_BOOL, 1, NULL},
      {"expert_weights_scale", V_F32, 5, NULL},
      {"expert_gating_func", V_U32, 2, NULL},
      {"moe_latent_size", V_U32, 256, NULL}}},
    {"gpt-oss-mini",
     "gpt-oss",
     12,
     32768,
     16,
     4,
     {SIZES(1024),
      HEADS(16, 64),
      {"attention.head_count_kv", V_U32, 2, NULL},
      {"attention.sliding_window", V_U32, 128, NULL},
      {"rope.freq_base", V_F32, 150000, NULL},
      {"expert_feed_forward_length", V_U32, 1024, NULL}}},
    {"gemma3-mini",
     "gemma3",
     12,
     32768,
     0,
     0,
     {SIZES(1024),
      HEADS(4, 256),
      {"attention.head_count_kv", V_U32, 1, NULL},
      {"attention.sliding_window", V_U32, 512, NULL},
      {"rope.freq_base", V_F32, 1e6, NULL},
      {"rope.freq_base_swa", V_F32, 1e4, NULL},
      {"feed_forward_length", V_U32, 4096, NULL}}},
    {"gemma4-mini", /* the form of E2B: per-layer embeddings, half of the layers share keys */
     "gemma4",
     12,
     32768,
     0,
     0,
     {SIZES(1024),
      GEMMA4_HEADS,
      {"attention.head_count_kv", V_U32, 1, NULL},
      {"attention.shared_kv_layers", V_U32, 6, NULL},
      {"embedding_length_per_layer_input", V_U32, 256, NULL},
      {"final_logit_softcapping", V_F32, 30, NULL},
      {"feed_forward_length", V_U32, 4096, NULL}}},
    {"gemma4-moe-mini", /* the form of 26B-A4B: experts beside a dense block */
     "gemma4",
     12,
     32768,
     16,
     4,
     {SIZES(1024),
      GEMMA4_HEADS,
      {"attention.head_count_kv", V_U32_EACH, 0, gemma4_kv},
      {"attention.shared_kv_layers", V_U32, 0, NULL},
      {"embedding_length_per_layer_input", V_U32, 0, NULL},
      {"final_logit_softcapping", V_F32, 30, NULL},
      {"feed_forward_length", V_U32, 1024, NULL},
      {"expert_feed_forward_length", V_U32, 512, NULL}}},
    {"olmo-hybrid-mini",
     "olmo-hybrid",
     12,
     32768,
     0,
     0,
     {SIZES(1024),
      HEADS(8, 128),
      MAMBA2(1536, 8, 8, 96),
      {"attention.recurrent_layers", V_BOOL_EACH, 0, olmo_recurrent},
      {"rope.scaling.finetuned", V_BOOL, 0, NULL},
      {"feed_forward_length", V_U32, 2816, NULL}}},
    {"glm-flash-mini",
     "deepseek2",
     12,
     32768,
     16,
     4,
     {SIZES(1024),
      {"attention.head_count", V_U32, 8, NULL},
      {"attention.key_length", V_U32, 576, NULL},
      {"attention.value_length", V_U32, 512, NULL},
      {"attention.head_count_kv", V_U32, 1, NULL},
      {"attention.q_lora_rank", V_U32, 384, NULL},
      {"attention.kv_lora_rank", V_U32, 512, NULL},
      {"attention.key_length_mla", V_U32, 256, NULL},
      {"attention.value_length_mla", V_U32, 256, NULL},
      {"rope.dimension_count", V_U32, 64, NULL},
      {"rope.freq_base", V_F32, 1e6, NULL},
      {"feed_forward_length", V_U32, 2816, NULL},
      {"leading_dense_block_count", V_U32, 1, NULL},
      {"expert_feed_forward_length", V_U32, 512, NULL},
      {"expert_shared_count", V_U32, 1, NULL},
      {"expert_weights_norm", V_BOOL, 1, NULL},
      {"expert_weights_scale", V_F32, 1.8, NULL},
      {"expert_gating_func", V_U32, 2, NULL}}},
};

const struct synth_family *synth_family_find(const char *name) {
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (strcmp(families[i].name, name) == 0) return &families[i];
    return NULL;
}

/* ---- keys ---- */

static void put_each(struct gguf_writer *w, const char *name, const struct key *k, uint32_t n) {
    int32_t wide[SYNTH_MAX_LAYERS];
    uint8_t flags[SYNTH_MAX_LAYERS];
    for (uint32_t il = 0; il < n; il++) {
        wide[il] = k->each[il];
        flags[il] = k->each[il] != 0;
    }
    if (k->type == V_BOOL_EACH) gguf_put_array(w, name, GGUF_BOOL, flags, n);
    else gguf_put_array(w, name, k->type == V_U32_EACH ? GGUF_U32 : GGUF_I32, wide, n);
}

static void put_keys(const struct synth_family *f, const struct synth_sizes *z,
                     struct gguf_writer *w) {
    char name[96];
    int n = snprintf(name, sizeof name, "synthetic %s", f->name);
    gguf_put_str(w, "general.architecture", f->arch, strlen(f->arch));
    gguf_put_str(w, "general.name", name, (size_t)n);
    for (const struct key *k = f->keys; k->name; k++) {
        snprintf(name, sizeof name, "%s.%s", f->arch, k->name);
        switch (k->type) {
        case V_U32: gguf_put_u32(w, name, (uint32_t)k->v); break;
        case V_F32: gguf_put_f32(w, name, (float)k->v); break;
        case V_BOOL: gguf_put_bool(w, name, k->v != 0); break;
        default: put_each(w, name, k, z->n_layer);
        }
    }
    snprintf(name, sizeof name, "%s.block_count", f->arch);
    gguf_put_u32(w, name, z->n_layer);
    snprintf(name, sizeof name, "%s.vocab_size", f->arch);
    gguf_put_u32(w, name, z->n_vocab);
    if (!f->n_expert) return;
    snprintf(name, sizeof name, "%s.expert_count", f->arch);
    gguf_put_u32(w, name, z->n_expert);
    snprintf(name, sizeof name, "%s.expert_used_count", f->arch);
    gguf_put_u32(w, name, f->n_used < z->n_expert ? f->n_used : z->n_expert);
}

/* ---- tensors ---- */

static enum synth_role role_of(const struct tensor_row *row) {
    if (row->is_vector || row->flags & TS_F32) return R_F32;
    if (strcmp(row->gguf, "token_embd.weight") == 0) return R_EMBED;
    if (strcmp(row->gguf, "output.weight") == 0) return R_OUTPUT;
    if (strstr(row->gguf, "meta_embd")) return R_F32;
    if (strstr(row->gguf, "_exps.")) return R_EXPERT;
    if (strstr(row->gguf, "_shexp.")) return R_SHARED;
    bool is_qkv = strstr(row->gguf, "attn_q.") || strstr(row->gguf, "attn_k.") ||
                  strstr(row->gguf, "attn_v.");
    return is_qkv ? R_QK : R_MIX;
}

/* Whether a file of the family usually has the tensor: no fused forms, no factor per layer, no biases except the
 * convolution's, those of a router's choice and gpt-oss's. */
static bool is_usual(const struct hparams *hp, const struct tensor_row *row, int32_t il) {
    if (!row->hf || str_ends(row->gguf, "layer_output_scale.weight")) return false;
    for (int d = 0; d < 3 && row->dims[d] != D_NONE; d++)
        if (arch_dim(hp, row->dims[d], il) == 0) return false;
    return !(row->flags & TS_OPTIONAL) || !str_ends(row->gguf, ".bias") ||
           strstr(row->gguf, "ssm_conv1d") || strstr(row->gguf, "exp_probs_b") ||
           strcmp(hp->arch->name, "gpt-oss") == 0;
}

static void fill_tensor(const struct hparams *hp, const struct tensor_row *row, int32_t il,
                        struct synth_tensor *t) {
    *t = (struct synth_tensor){.role = role_of(row), .ne = {1, 1, 1}};
    arch_tensor_name(row, il, t->name, sizeof t->name);
    for (int d = 0; d < 3 && row->dims[d] != D_NONE; d++) {
        t->ne[d] = (uint64_t)arch_dim(hp, row->dims[d], il);
        t->n_dims++;
    }
    if (strstr(row->gguf, "norm") || str_ends(row->gguf, ".scale")) t->fill = F_ONES;
    else if (str_ends(row->gguf, "ssm_a")) t->fill = F_DECAY;
    else if (str_ends(row->gguf, "ssm_d") || str_ends(row->gguf, "ssm_dt.bias")) t->deviation = 1;
    else if (str_ends(row->gguf, ".bias")) t->deviation = 0.1f;
    else if (str_ends(row->gguf, "_embd.weight")) t->deviation = 0.02f;
}

/* Fills hp by reading the keys back; the embedding's rows are read too, so a placeholder is added. */
static int read_back(const struct synth_family *f, const struct synth_sizes *z, struct hparams *hp,
                     struct err *e) {
    struct gguf_writer *w;
    struct gguf *g = NULL;
    struct buf image;
    buf_init(&image, 1 << 20);
    int rc = gguf_writer_new(&w, f->name, 0, 0, e);
    if (rc) return rc;
    put_keys(f, z, w);
    gguf_add_tensor(w, "token_embd.weight", QUANT_I8, 2, (uint64_t[]){1, z->n_vocab});
    rc = gguf_render(w, &image, e);
    if (!rc) rc = gguf_open_memory(&g, image.p, image.n, f->name, e);
    if (!rc) rc = hparams_read(hp, g, e);
    gguf_close(g);
    gguf_writer_abort(w);
    buf_fini(&image);
    return rc;
}

static size_t list(const struct hparams *hp, struct synth_tensor *out) {
    size_t n = 0;
    for (int32_t il = -1; il < hp->n_layer; il++)
        for (const struct tensor_row *const *table = hp->arch->tensors; *table; table++)
            for (const struct tensor_row *row = *table; row->gguf; row++) {
                bool is_global = row->where == AT_GLOBAL;
                if (is_global != (il < 0) || !arch_has(hp, row->where, il) ||
                    !is_usual(hp, row, il))
                    continue;
                if (out) fill_tensor(hp, row, il, &out[n]);
                n++;
            }
    if (strcmp(hp->arch->name, "gemma4") != 0) return n;
    /* llama.cpp requires it, and all pairs of layers without a window rotate here */
    if (out)
        out[n] = (struct synth_tensor){.name = "rope_freqs.weight",
                                       .role = R_F32,
                                       .ne = {(uint64_t)hp->n_rot / 2, 1, 1},
                                       .n_dims = 1,
                                       .fill = F_ONES};
    return n + 1;
}

int synth_family_plan(const struct synth_family *f, struct synth_sizes *z, struct gguf_writer *w,
                      struct synth_tensor **out, size_t *n, struct err *e) {
    *out = NULL;
    if (!z->n_layer) z->n_layer = f->n_layer;
    if (!z->n_vocab) z->n_vocab = f->n_vocab;
    if (!z->n_expert) z->n_expert = f->n_expert;
    if (z->n_layer > f->n_layer)
        return err_set(e, CHIMERE_EINVAL, "layers: expected at most %u for %s, got %u", f->n_layer,
                       f->name, z->n_layer);
    struct hparams *hp = mem_zalloc(sizeof *hp);
    if (!hp) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    int rc = read_back(f, z, hp, e);
    if (!rc) {
        put_keys(f, z, w);
        *n = list(hp, NULL);
        *out = mem_alloc_array(*n, sizeof **out);
        if (*out) list(hp, *out);
        else rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    }
    mem_free(hp);
    return rc;
}

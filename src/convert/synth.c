/* synth.c: synthetic models: shapes as tables of rows, weights as repeated tiles of random blocks.
 *
 * A shape is a list of sizes and, for each kind of layer, a list of tensor rows. A row has a name, a role (which the
 * mix turns into a type), dimensions as names of sizes, and a distribution of values. Blocks are random bytes whose
 * scale fields are set so that the decoded weights have the wanted deviation. Large tensors repeat a tile, each from
 * another offset. */
#include "convert/synth.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"
#include "convert/synth_impl.h"
#include "format/gguf.h"
#include "format/quant.h"

/* ---- mixes ---- */

static const struct mix {
    const char *name;
    uint32_t file_type;
    uint8_t type[N_ROLE];
} mixes[] = {
    {"ramp3",
     26,
     {QUANT_F32, QUANT_IQ3_S, QUANT_Q5_K, QUANT_Q6_K, QUANT_Q5_K, QUANT_Q8_0, QUANT_Q5_K,
      QUANT_Q6_K}},
    {"iq2_k",
     26,
     {QUANT_F32, QUANT_IQ2_K, QUANT_Q5_K, QUANT_Q6_K, QUANT_Q5_K, QUANT_Q8_0, QUANT_Q5_K,
      QUANT_Q6_K}},
    {"iq3_k",
     26,
     {QUANT_F32, QUANT_IQ3_K, QUANT_Q5_K, QUANT_Q6_K, QUANT_Q5_K, QUANT_Q8_0, QUANT_Q5_K,
      QUANT_Q6_K}},
    {"iq4_k",
     26,
     {QUANT_F32, QUANT_IQ4_K, QUANT_Q5_K, QUANT_Q6_K, QUANT_Q5_K, QUANT_Q8_0, QUANT_Q5_K,
      QUANT_Q6_K}},
    {"q4km",
     15,
     {QUANT_F32, QUANT_Q4_K, QUANT_Q6_K, QUANT_Q6_K, QUANT_Q6_K, QUANT_Q8_0, QUANT_Q4_K,
      QUANT_Q6_K}},
    {"q8",
     7,
     {QUANT_F32, QUANT_Q8_0, QUANT_Q8_0, QUANT_Q8_0, QUANT_Q8_0, QUANT_Q8_0, QUANT_Q8_0,
      QUANT_Q8_0}},
    {"q4_0",
     2,
     {QUANT_F32, QUANT_Q4_0, QUANT_Q4_0, QUANT_Q4_0, QUANT_Q4_0, QUANT_Q4_0, QUANT_Q4_0,
      QUANT_Q4_0}},
};

/* Scale fields: random blocks of a type decode to weights of the wanted deviation if the half-precision field at `at`
 * holds `unit` times that deviation. min_at, min_unit: a second field, which centres the weights. */
static const struct scale {
    uint8_t type;
    uint16_t at;
    float unit;
    int min_at; /* -1: none */
    float min_unit;
} scales[] = {
    {QUANT_Q4_0, 0, 1 / 4.6f, -1, 0},           {QUANT_Q8_0, 0, 1 / 74.0f, -1, 0},
    {QUANT_Q4_K, 0, 1 / 258.0f, 2, 7.5f / 258}, {QUANT_Q5_K, 0, 1 / 527.0f, 2, 15.5f / 527},
    {QUANT_Q6_K, 208, 1 / 1369.0f, -1, 0},      {QUANT_IQ3_S, 0, 1 / 150.0f, -1, 0},
    {QUANT_IQ2_K, 0, 1 / 87.0f, -1, 0},         {QUANT_IQ3_K, 0, 1 / 632.0f, -1, 0},
    {QUANT_IQ4_K, 0, 1 / 1247.0f, -1, 0},
};

/* ---- shapes ---- */

enum size {
    S_ONE,
    S_EMBD,
    S_VOCAB,
    S_EXPERT,
    S_FF,     /* per routed expert */
    S_SHARED, /* of the shared expert */
    S_Q,      /* query rows of attn_q; both halves if attention is gated */
    S_KV,
    S_ATTN, /* number of heads times head size */
    S_HEAD,
    S_CONV, /* kernel */
    S_CONV_CH,
    S_INNER,
    S_STATE,
    S_STATE_HEADS,
    S_SSM_IN,
    S_NORM_GROUP,
    S_GROUPS,
    N_SIZE
};

struct row {
    const char *name; /* name after "blk.N." in layers */
    enum synth_role role;
    enum size ne[3]; /* S_ONE for unused dimensions */
    uint8_t n_dims;
    enum synth_fill fill;
    float deviation; /* 0: 1 / sqrt(ne[0]) */
};

static const struct row global_rows[] = {
    {"token_embd.weight", R_EMBED, {S_EMBD, S_VOCAB}, 2, F_NORMAL, 0.02f},
    {"output.weight", R_OUTPUT, {S_EMBD, S_VOCAB}, 2, F_NORMAL, 0},
    {"output_norm.weight", R_F32, {S_EMBD}, 1, F_ONES, 0},
    {0},
};
static const struct row qwen_attn_rows[] = {
    {"attn_norm.weight", R_F32, {S_EMBD}, 1, F_ONES, 0},
    {"post_attention_norm.weight", R_F32, {S_EMBD}, 1, F_ONES, 0},
    {"attn_q.weight", R_QK, {S_EMBD, S_Q}, 2, F_NORMAL, 0},
    {"attn_k.weight", R_QK, {S_EMBD, S_KV}, 2, F_NORMAL, 0},
    {"attn_v.weight", R_QK, {S_EMBD, S_KV}, 2, F_NORMAL, 0},
    {"attn_output.weight", R_MIX, {S_ATTN, S_EMBD}, 2, F_NORMAL, 0},
    {"attn_q_norm.weight", R_F32, {S_HEAD}, 1, F_ONES, 0},
    {"attn_k_norm.weight", R_F32, {S_HEAD}, 1, F_ONES, 0},
    {0},
};
static const struct row qwen_gdn_rows[] = {
    {"attn_norm.weight", R_F32, {S_EMBD}, 1, F_ONES, 0},
    {"post_attention_norm.weight", R_F32, {S_EMBD}, 1, F_ONES, 0},
    {"attn_qkv.weight", R_MIX, {S_EMBD, S_CONV_CH}, 2, F_NORMAL, 0},
    {"attn_gate.weight", R_MIX, {S_EMBD, S_INNER}, 2, F_NORMAL, 0},
    {"ssm_conv1d.weight", R_F32, {S_CONV, S_CONV_CH}, 2, F_NORMAL, 0},
    {"ssm_dt.bias", R_F32, {S_STATE_HEADS}, 1, F_NORMAL, 1},
    {"ssm_a", R_F32, {S_STATE_HEADS}, 1, F_DECAY, 0},
    {"ssm_beta.weight", R_GATE, {S_EMBD, S_STATE_HEADS}, 2, F_NORMAL, 0},
    {"ssm_alpha.weight", R_GATE, {S_EMBD, S_STATE_HEADS}, 2, F_NORMAL, 0},
    {"ssm_norm.weight", R_F32, {S_STATE}, 1, F_ONES, 0},
    {"ssm_out.weight", R_MIX, {S_INNER, S_EMBD}, 2, F_NORMAL, 0},
    {0},
};
static const struct row qwen_moe_rows[] = {
    {"ffn_gate_inp.weight", R_F32, {S_EMBD, S_EXPERT}, 2, F_NORMAL, 0},
    {"ffn_gate_exps.weight", R_EXPERT, {S_EMBD, S_FF, S_EXPERT}, 3, F_NORMAL, 0},
    {"ffn_up_exps.weight", R_EXPERT, {S_EMBD, S_FF, S_EXPERT}, 3, F_NORMAL, 0},
    {"ffn_down_exps.weight", R_EXPERT, {S_FF, S_EMBD, S_EXPERT}, 3, F_NORMAL, 0},
    {"ffn_gate_inp_shexp.weight", R_F32, {S_EMBD}, 1, F_NORMAL, 0},
    {"ffn_gate_shexp.weight", R_SHARED, {S_EMBD, S_SHARED}, 2, F_NORMAL, 0},
    {"ffn_up_shexp.weight", R_SHARED, {S_EMBD, S_SHARED}, 2, F_NORMAL, 0},
    {"ffn_down_shexp.weight", R_SHARED, {S_SHARED, S_EMBD}, 2, F_NORMAL, 0},
    {0},
};
static const struct row nemotron_mamba_rows[] = {
    {"attn_norm.weight", R_F32, {S_EMBD}, 1, F_ONES, 0},
    {"ssm_in.weight", R_MIX, {S_EMBD, S_SSM_IN}, 2, F_NORMAL, 0},
    {"ssm_conv1d.weight", R_F32, {S_CONV, S_CONV_CH}, 2, F_NORMAL, 0},
    {"ssm_conv1d.bias", R_F32, {S_CONV_CH}, 1, F_NORMAL, 0.1f},
    {"ssm_dt.bias", R_F32, {S_STATE_HEADS}, 1, F_NORMAL, 1},
    {"ssm_a", R_F32, {S_ONE, S_STATE_HEADS}, 2, F_DECAY, 0},
    {"ssm_d", R_F32, {S_ONE, S_STATE_HEADS}, 2, F_NORMAL, 1},
    {"ssm_norm.weight", R_F32, {S_NORM_GROUP, S_GROUPS}, 2, F_ONES, 0},
    {"ssm_out.weight", R_MIX, {S_INNER, S_EMBD}, 2, F_NORMAL, 0},
    {0},
};
static const struct row nemotron_attn_rows[] = {
    {"attn_norm.weight", R_F32, {S_EMBD}, 1, F_ONES, 0},
    {"attn_q.weight", R_QK, {S_EMBD, S_Q}, 2, F_NORMAL, 0},
    {"attn_k.weight", R_QK, {S_EMBD, S_KV}, 2, F_NORMAL, 0},
    {"attn_v.weight", R_QK, {S_EMBD, S_KV}, 2, F_NORMAL, 0},
    {"attn_output.weight", R_MIX, {S_ATTN, S_EMBD}, 2, F_NORMAL, 0},
    {0},
};
static const struct row nemotron_moe_rows[] = {
    {"attn_norm.weight", R_F32, {S_EMBD}, 1, F_ONES, 0},
    {"ffn_gate_inp.weight", R_F32, {S_EMBD, S_EXPERT}, 2, F_NORMAL, 0},
    {"exp_probs_b.bias", R_F32, {S_EXPERT}, 1, F_NORMAL, 0.01f},
    {"ffn_up_exps.weight", R_EXPERT, {S_EMBD, S_FF, S_EXPERT}, 3, F_NORMAL, 0},
    {"ffn_down_exps.weight", R_EXPERT, {S_FF, S_EMBD, S_EXPERT}, 3, F_NORMAL, 0},
    {"ffn_up_shexp.weight", R_SHARED, {S_EMBD, S_SHARED}, 2, F_NORMAL, 0},
    {"ffn_down_shexp.weight", R_SHARED, {S_SHARED, S_EMBD}, 2, F_NORMAL, 0},
    {0},
};

struct shape {
    const char *name, *arch;
    /* One letter per layer, repeated if layers are added: A attention and MoE, G gated delta net and MoE, M
     * Mamba-2, * attention alone, E MoE alone. */
    const char *layers;
    uint32_t n_layer, n_embd, n_head, n_kv_head, d_head, n_expert, n_used, n_ff, n_ff_shared,
        n_vocab;
    uint32_t d_state, n_group, n_state_head, d_inner;
    bool gated_q;
};

static const struct shape shapes[] = {
    {.name = "qwen35moe-35b",
     .arch = "qwen35moe",
     .layers = "GGGA",
     .n_layer = 40,
     .n_embd = 2048,
     .n_head = 16,
     .n_kv_head = 2,
     .d_head = 256,
     .n_expert = 256,
     .n_used = 8,
     .n_ff = 512,
     .n_ff_shared = 512,
     .n_vocab = 248320,
     .d_state = 128,
     .n_group = 16,
     .n_state_head = 32,
     .d_inner = 4096,
     .gated_q = true},
    /* Qwen3.5-122B-A10B, from descriptions by others, as its config.json was not at hand: layers, hidden size, query heads
     * and experts (docs.vultr.com, model page). Not found, so taken from the shape below: key heads, head size, widths of
     * experts. The delta net's heads are inferred: with 64 value heads the weights add up to 122 billion. */
    {.name = "qwen35moe-122b",
     .arch = "qwen35moe",
     .layers = "GGGA",
     .n_layer = 48,
     .n_embd = 3072,
     .n_head = 32,
     .n_kv_head = 2,
     .d_head = 256,
     .n_expert = 256,
     .n_used = 8,
     .n_ff = 1024,
     .n_ff_shared = 1024,
     .n_vocab = 248320,
     .d_state = 128,
     .n_group = 16,
     .n_state_head = 64,
     .d_inner = 8192,
     .gated_q = true},
    /* Qwen3.5-397B-A17B, from a training script (THUDM/slime, scripts/models), except for the delta net's heads, which are
     * inferred as above: with 64 value heads the weights add up to 396 billion. */
    {.name = "qwen35moe-397b",
     .arch = "qwen35moe",
     .layers = "GGGA",
     .n_layer = 60,
     .n_embd = 4096,
     .n_head = 32,
     .n_kv_head = 2,
     .d_head = 256,
     .n_expert = 512,
     .n_used = 10,
     .n_ff = 1024,
     .n_ff_shared = 1024,
     .n_vocab = 248320,
     .d_state = 128,
     .n_group = 16,
     .n_state_head = 64,
     .d_inner = 8192,
     .gated_q = true},
    {.name = "qwen35moe-mini",
     .arch = "qwen35moe",
     .layers = "GGGA",
     .n_layer = 16,
     .n_embd = 1024,
     .n_head = 8,
     .n_kv_head = 2,
     .d_head = 256,
     .n_expert = 64,
     .n_used = 8,
     .n_ff = 256,
     .n_ff_shared = 256,
     .n_vocab = 32768,
     .d_state = 128,
     .n_group = 8,
     .n_state_head = 16,
     .d_inner = 2048,
     .gated_q = true},
    {.name = "nemotron-30b",
     .arch = "nemotron_h_moe",
     .layers = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
     .n_layer = 52,
     .n_embd = 2688,
     .n_head = 32,
     .n_kv_head = 2,
     .d_head = 128,
     .n_expert = 128,
     .n_used = 6,
     .n_ff = 1856,
     .n_ff_shared = 3712,
     .n_vocab = 131072,
     .d_state = 128,
     .n_group = 8,
     .n_state_head = 64,
     .d_inner = 4096},
};

enum { CONV_KERNEL = 4, CONTEXT = 262144, TILE_BYTES = 4 << 20, MAX_LAYERS = SYNTH_MAX_LAYERS };

struct synth {
    struct shape shape; /* with the caller's numbers */
    struct mix mix;
    uint64_t size[N_SIZE];
    struct gguf_writer *w;
    struct rng rng;
    unsigned char *tile; /* owned, TILE_BYTES */
    uint8_t tile_type;
    float tile_deviation; /* 0: no tile made yet */
    uint64_t n_weights, n_bytes, written;
    const struct synth_family *family; /* view; if set, shape is not used */
    struct synth_tensor *planned;      /* owned [n_planned], of a family */
    size_t n_planned;
    bool is_hollow; /* data is not written */
};

static char layer_kind(const struct synth *s, uint32_t il) {
    return s->shape.layers[il % strlen(s->shape.layers)];
}

static void derive_sizes(struct synth *s) {
    const struct shape *h = &s->shape;
    bool is_mamba = !h->gated_q;
    uint64_t bc = 2ull * h->n_group * h->d_state; /* q and k of a delta net, B and C of Mamba-2 */
    uint64_t *z = s->size;
    z[S_ONE] = 1;
    z[S_EMBD] = h->n_embd;
    z[S_VOCAB] = h->n_vocab;
    z[S_EXPERT] = h->n_expert;
    z[S_FF] = h->n_ff;
    z[S_SHARED] = h->n_ff_shared;
    z[S_ATTN] = (uint64_t)h->n_head * h->d_head;
    z[S_Q] = z[S_ATTN] * (h->gated_q ? 2 : 1);
    z[S_KV] = (uint64_t)h->n_kv_head * h->d_head;
    z[S_HEAD] = h->d_head;
    z[S_CONV] = CONV_KERNEL;
    z[S_INNER] = h->d_inner;
    z[S_CONV_CH] = h->d_inner + bc;
    z[S_STATE] = h->d_state;
    z[S_STATE_HEADS] = h->n_state_head;
    z[S_SSM_IN] = is_mamba ? 2ull * h->d_inner + bc + h->n_state_head : 0;
    z[S_NORM_GROUP] = h->d_inner / h->n_group;
    z[S_GROUPS] = h->n_group;
}

/* ---- keys ---- */

static const char *key(const struct synth *s, const char *name) {
    static _Thread_local char text[96];
    snprintf(text, sizeof text, "%s.%s", s->shape.arch, name);
    return text;
}

static void put_u32(struct synth *s, const char *name, uint64_t v) {
    gguf_put_u32(s->w, key(s, name), (uint32_t)v);
}

static void put_qwen_keys(struct synth *s) {
    static const int32_t sections[4] = {11, 11, 10, 0};
    put_u32(s, "feed_forward_length", s->shape.n_ff);
    put_u32(s, "full_attention_interval", 4);
    put_u32(s, "attention.head_count_kv", s->shape.n_kv_head);
    gguf_put_f32(s->w, key(s, "attention.layer_norm_rms_epsilon"), 1e-6f);
    gguf_put_f32(s->w, key(s, "rope.freq_base"), 1e7f);
    put_u32(s, "rope.dimension_count", s->shape.d_head / 4);
    gguf_put_array(s->w, key(s, "rope.dimension_sections"), GGUF_I32, sections, 4);
}

static void put_nemotron_keys(struct synth *s) {
    uint32_t ff[MAX_LAYERS], kv[MAX_LAYERS];
    for (uint32_t il = 0; il < s->shape.n_layer; il++) {
        ff[il] = layer_kind(s, il) == 'E' ? s->shape.n_ff : 0;
        kv[il] = layer_kind(s, il) == '*' ? s->shape.n_kv_head : 0;
    }
    gguf_put_array(s->w, key(s, "feed_forward_length"), GGUF_U32, ff, s->shape.n_layer);
    gguf_put_array(s->w, key(s, "attention.head_count_kv"), GGUF_U32, kv, s->shape.n_layer);
    gguf_put_f32(s->w, key(s, "attention.layer_norm_rms_epsilon"), 1e-5f);
    gguf_put_f32(s->w, key(s, "attention.layer_norm_epsilon"), 1e-5f);
    put_u32(s, "expert_shared_count", 1);
    gguf_put_bool(s->w, key(s, "expert_weights_norm"), true);
    gguf_put_f32(s->w, key(s, "expert_weights_scale"), 2.5f);
    put_u32(s, "expert_gating_func", 2);
    put_u32(s, "rope.dimension_count", 84);
}

static int put_keys(struct synth *s, struct err *e) {
    const struct shape *h = &s->shape;
    char name[64];
    int n = snprintf(name, sizeof name, "synthetic %s", h->name);
    gguf_put_str(s->w, "general.architecture", h->arch, strlen(h->arch));
    gguf_put_str(s->w, "general.name", name, (size_t)n);
    gguf_put_u32(s->w, "general.file_type", s->mix.file_type);
    gguf_put_u32(s->w, "general.quantization_version", 2);
    put_u32(s, "block_count", h->n_layer);
    put_u32(s, "context_length", CONTEXT);
    put_u32(s, "embedding_length", h->n_embd);
    put_u32(s, "vocab_size", h->n_vocab);
    put_u32(s, "expert_count", h->n_expert);
    put_u32(s, "expert_used_count", h->n_used);
    put_u32(s, "expert_feed_forward_length", h->n_ff);
    put_u32(s, "expert_shared_feed_forward_length", h->n_ff_shared);
    put_u32(s, "attention.head_count", h->n_head);
    put_u32(s, "attention.key_length", h->d_head);
    put_u32(s, "attention.value_length", h->d_head);
    put_u32(s, "ssm.conv_kernel", CONV_KERNEL);
    put_u32(s, "ssm.state_size", h->d_state);
    put_u32(s, "ssm.group_count", h->n_group);
    put_u32(s, "ssm.time_step_rank", h->n_state_head);
    put_u32(s, "ssm.inner_size", h->d_inner);
    if (h->gated_q) put_qwen_keys(s);
    else put_nemotron_keys(s);
    return synth_put_vocab(s->w, h->n_vocab, e);
}

/* ---- values ---- */

static const struct scale *scale_of(uint32_t type) {
    for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++)
        if (scales[i].type == type) return &scales[i];
    return NULL;
}

/* Random blocks of a type with the given decoded deviation; returns the number of whole blocks in the tile. */
static size_t make_tile(struct synth *s, uint8_t type, float deviation) {
    const struct quant_traits *q = quant_traits(type);
    const struct scale *z = scale_of(type);
    size_t n = TILE_BYTES / q->block_bytes;
    if (s->tile_type == type && s->tile_deviation == deviation) return n;
    for (size_t i = 0; i + 8 <= TILE_BYTES; i += 8) {
        uint64_t r = rng_next(&s->rng);
        memcpy(s->tile + i, &r, 8);
    }
    uint16_t d = quant_f32_to_f16(z->unit * deviation),
             m = quant_f32_to_f16(z->min_unit * deviation);
    for (size_t i = 0; i < n; i++) {
        unsigned char *block = s->tile + i * q->block_bytes;
        memcpy(block + z->at, &d, 2);
        if (z->min_at >= 0) memcpy(block + z->min_at, &m, 2);
    }
    s->tile_type = type;
    s->tile_deviation = deviation;
    return n;
}

static int write_blocks(struct synth *s, uint8_t type, float deviation, uint64_t bytes,
                        struct err *e) {
    size_t n = make_tile(s, type, deviation), block = quant_traits(type)->block_bytes;
    size_t at = (size_t)rng_below(&s->rng, n) * block, end = n * block;
    while (bytes > 0) {
        size_t part = end - at < bytes ? end - at : (size_t)bytes;
        int rc = gguf_write_data(s->w, s->tile + at, part, e);
        if (rc) return rc;
        bytes -= part;
        s->written += part;
        at = 0;
        progress_step(s->written);
    }
    return 0;
}

static int write_floats(struct synth *s, enum synth_fill fill, float deviation, uint64_t n,
                        struct err *e) {
    float x[1024];
    while (n > 0) {
        size_t part = n < 1024 ? (size_t)n : 1024;
        for (size_t i = 0; i < part; i++)
            x[i] = fill == F_ONES    ? 1.0f
                   : fill == F_DECAY ? -(float)(0.05 + 7.95 * rng_uniform(&s->rng))
                                     : deviation * (float)rng_normal(&s->rng);
        int rc = gguf_write_data(s->w, x, part * sizeof x[0], e);
        if (rc) return rc;
        n -= part;
        s->written += part * sizeof x[0];
    }
    return 0;
}

static int write_tensor(struct synth *s, const struct synth_tensor *t, struct err *e) {
    float deviation = t->deviation > 0 ? t->deviation : 1.0f / sqrtf((float)t->ne[0]);
    uint64_t n = t->ne[0] * t->ne[1] * t->ne[2], bytes;
    if (s->is_hollow)
        return quant_row_bytes(t->type, n, &bytes) ? gguf_write_data(s->w, NULL, (size_t)bytes, e)
                                                   : 0;
    if (t->type == QUANT_F32) return write_floats(s, t->fill, deviation, n, e);
    quant_row_bytes(t->type, n, &bytes);
    return write_blocks(s, (uint8_t)t->type, deviation, bytes, e);
}

/* ---- iteration over all tensors: once for the directory, once for the data ---- */

/* Adds a tensor to the directory, or writes its data. */
static int put_tensor(struct synth *s, const struct synth_tensor *t, bool is_data, struct err *e) {
    if (is_data) return write_tensor(s, t, e);
    uint64_t n = t->ne[0] * t->ne[1] * t->ne[2], bytes;
    gguf_add_tensor(s->w, t->name, t->type, t->n_dims, t->ne);
    if (quant_row_bytes(t->type, n, &bytes)) s->n_bytes += bytes;
    s->n_weights += n;
    return 0;
}

static int walk_rows(struct synth *s, const struct row *rows, const char *prefix, bool is_data,
                     struct err *e) {
    int rc = 0;
    for (const struct row *r = rows; !rc && r->name; r++) {
        struct synth_tensor t = {.role = r->role,
                                 .type = s->mix.type[r->role],
                                 .ne = {1, 1, 1},
                                 .n_dims = r->n_dims,
                                 .fill = r->fill,
                                 .deviation = r->deviation};
        for (int d = 0; d < r->n_dims; d++) t.ne[d] = s->size[r->ne[d]];
        snprintf(t.name, sizeof t.name, "%s%s", prefix, r->name);
        rc = put_tensor(s, &t, is_data, e);
    }
    return rc;
}

static const struct row *const *rows_of(char kind) {
    static const struct row *const attn[] = {qwen_attn_rows, qwen_moe_rows, NULL};
    static const struct row *const gdn[] = {qwen_gdn_rows, qwen_moe_rows, NULL};
    static const struct row *const mamba[] = {nemotron_mamba_rows, NULL};
    static const struct row *const plain[] = {nemotron_attn_rows, NULL};
    static const struct row *const moe[] = {nemotron_moe_rows, NULL};
    switch (kind) {
    case 'A': return attn;
    case 'G': return gdn;
    case 'M': return mamba;
    case '*': return plain;
    default: return moe;
    }
}

static int walk(struct synth *s, bool is_data, struct err *e) {
    int rc = 0;
    for (size_t i = 0; !rc && i < s->n_planned; i++) rc = put_tensor(s, &s->planned[i], is_data, e);
    if (s->family) return rc;
    rc = walk_rows(s, global_rows, "", is_data, e);
    for (uint32_t il = 0; il < s->shape.n_layer; il++) {
        char prefix[24];
        snprintf(prefix, sizeof prefix, "blk.%" PRIu32 ".", il);
        for (const struct row *const *rows = rows_of(layer_kind(s, il)); !rc && *rows; rows++)
            rc = walk_rows(s, *rows, prefix, is_data, e);
    }
    return rc;
}

/* Rows of 2688 and 1856 are not multiples of 256: uses the nearest types in blocks of 32. */
static void fit_types(struct synth *s) {
    bool small_rows = s->shape.n_embd % 256 || s->shape.n_ff % 256;
    if (!small_rows) return;
    if (quant_traits(s->mix.type[R_EXPERT])->block_elements == 256)
        s->mix.type[R_EXPERT] = QUANT_Q4_0;
    for (int r = 0; r < N_ROLE; r++)
        if (quant_traits(s->mix.type[r])->block_elements == 256) s->mix.type[r] = QUANT_Q8_0;
}

static int choose(struct synth *s, const struct synth_options *o, struct err *e) {
    const struct shape *shape = NULL;
    const struct mix *mix = NULL;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        if (strcmp(shapes[i].name, o->shape) == 0) shape = &shapes[i];
    for (size_t i = 0; i < sizeof mixes / sizeof mixes[0]; i++)
        if (strcmp(mixes[i].name, o->mix) == 0) mix = &mixes[i];
    s->family = synth_family_find(o->shape);
    if (!shape && !s->family)
        return err_set(e, CHIMERE_EINVAL, "shape: expected one of " SYNTH_SHAPES ", got '%s'",
                       o->shape);
    if (!mix)
        return err_set(e, CHIMERE_EINVAL, "mix: expected one of " SYNTH_MIXES ", got '%s'", o->mix);
    s->mix = *mix;
    if (!shape) return 0;
    s->shape = *shape;
    if (o->n_layer) s->shape.n_layer = o->n_layer;
    if (o->n_expert) s->shape.n_expert = o->n_expert;
    if (o->n_vocab) s->shape.n_vocab = o->n_vocab;
    if (s->shape.n_used > s->shape.n_expert) s->shape.n_used = s->shape.n_expert;
    if (s->shape.n_layer > MAX_LAYERS)
        return err_set(e, CHIMERE_EINVAL, "layers: expected at most %d, got %" PRIu32, MAX_LAYERS,
                       s->shape.n_layer);
    fit_types(s);
    derive_sizes(s);
    return 0;
}

/* If a type's blocks do not divide the row: a type with blocks of 32, or floats. */
static uint32_t fit_row(uint32_t type, uint64_t n) {
    if (n % quant_traits(type)->block_elements == 0) return type;
    return n % 32 ? QUANT_F32 : type == QUANT_Q6_K || type == QUANT_Q8_0 ? QUANT_Q8_0 : QUANT_Q4_0;
}

static int plan_family(struct synth *s, const struct synth_options *o, struct err *e) {
    struct synth_sizes z = {o->n_layer, o->n_expert, o->n_vocab};
    int rc = synth_family_plan(s->family, &z, s->w, &s->planned, &s->n_planned, e);
    if (rc) return rc;
    gguf_put_u32(s->w, "general.file_type", s->mix.file_type);
    gguf_put_u32(s->w, "general.quantization_version", 2);
    for (size_t i = 0; i < s->n_planned; i++)
        s->planned[i].type = fit_row(s->mix.type[s->planned[i].role], s->planned[i].ne[0]);
    return synth_put_vocab(s->w, z.n_vocab, e);
}

int synth_write(const struct synth_options *options, struct synth_result *result, struct err *e) {
    struct synth s = {.is_hollow = options->is_hollow};
    int rc = choose(&s, options, e);
    if (!rc) rc = gguf_writer_new(&s.w, options->out, 0, 0, e);
    if (rc) return rc;
    rng_seed(&s.rng, 1);
    s.tile = mem_alloc(TILE_BYTES);
    if (!s.tile) rc = err_set(e, CHIMERE_ENOMEM, "%s: out of memory", options->out);
    if (!rc) rc = s.family ? plan_family(&s, options, e) : put_keys(&s, e);
    if (!rc) rc = walk(&s, false, e);
    progress_begin("write", s.n_bytes, true);
    if (!rc) rc = walk(&s, true, e);
    progress_end();
    if (rc) gguf_writer_abort(s.w);
    else rc = gguf_writer_close(s.w, e);
    mem_free(s.tile);
    mem_free(s.planned);
    *result = (struct synth_result){s.n_weights, s.n_bytes};
    return rc;
}

/* arch_mamba.c: Mamba (state-spaces, -hf checkpoints; Falcon-Mamba) and Mamba-2 (Codestral-Mamba): one recurrent
 * mixer per layer and no other block. */
#include <stddef.h>

#include "base/err.h"
#include "model/arch/arch_config.h"
#include "model/arch/arch_impl.h"

#define HF "model.layers.%d."

static const struct tensor_row rows_globals[] = {
    GMAT("token_embd.weight", "model.embeddings.weight", token_embd, 0, D_EMBD, D_VOCAB),
    GVEC("output_norm.weight", "model.norm_f.weight", output_norm, 0, TF_NONE, D_EMBD),
    GMAT("output.weight", "lm_head.weight", output, TS_TIED, D_EMBD, D_VOCAB), ROWS_END};

static const struct tensor_row rows_norm[] = {
    VEC("blk.%d.attn_norm.weight", HF "norm.weight", attn_norm, AT_LAYER, 0, TF_NONE, D_EMBD),
    ROWS_END};

static const struct tensor_row rows_mamba1[] = {ROWS_MAMBA1(HF "mixer."), ROWS_END};
static const struct tensor_row rows_mamba2[] = {ROWS_MAMBA2(HF "mixer."), ROWS_END};

/* The context is unbounded; the value is the one in other files. */
#define COMMON_KEYS                                                                                \
    {"context_length", "max_position_embeddings", KEY_U32, false, 1 << 20},                        \
        {"embedding_length", "hidden_size|d_model", KEY_U32, true, NAN},                           \
        {"feed_forward_length", "-", KEY_U32, false, 0},                                           \
        {"attention.head_count", "-", KEY_U32, false, 0},                                          \
        {"block_count", "num_hidden_layers|n_layer", KEY_U32, true, NAN},                          \
        {"ssm.conv_kernel", "conv_kernel|d_conv", KEY_U32, false, 4}, {                            \
        "attention.layer_norm_rms_epsilon", "layer_norm_epsilon|rms_norm_eps", KEY_F32, false,     \
            1e-5                                                                                   \
    }

static const struct key_row keys_mamba[] = {
    COMMON_KEYS, {"ssm.state_size", "state_size|d_state", KEY_U32, false, 16}, {.gguf = NULL}};
static const struct key_row keys_mamba2[] = {
    COMMON_KEYS,
    {"ssm.state_size", "state_size|d_state", KEY_U32, false, 128},
    {"ssm.group_count", "n_groups", KEY_U32, false, 1},
    {.gguf = NULL}};

/* Checks the inner width, and resolves values of "auto". */
static int check_inner(double inner, struct err *e) {
    if (inner >= 1 && inner <= 1 << 20) return 0;
    return err_set(e, CHIMERE_EFORMAT,
                   "config.json: intermediate_size (or expand * hidden_size): expected 1 to %d, "
                   "got %g",
                   1 << 20, inner);
}

static int derive_mamba(const json_t *config, struct gguf_writer *w, struct err *e) {
    double d = arch_config_number(config, "hidden_size", arch_config_number(config, "d_model", 0));
    double inner = arch_config_number(config, "intermediate_size",
                                      floor(d * arch_config_number(config, "expand", 2)));
    double rank = arch_config_number(config, "time_step_rank", ceil(d / 16));
    const char *type = json_string_value(json_object_get(config, "model_type"));
    int rc = check_inner(inner, e);
    if (!rc && !(rank >= 1 && rank <= 1 << 20))
        rc = err_set(e, CHIMERE_EFORMAT, "config.json: time_step_rank: expected 1 to %d, got %g",
                     1 << 20, rank);
    if (rc) return rc;
    gguf_put_u32(w, "mamba.ssm.inner_size", (uint32_t)inner);
    gguf_put_u32(w, "mamba.ssm.time_step_rank", (uint32_t)rank);
    gguf_put_bool(w, "mamba.ssm.dt_b_c_rms", type && strcmp(type, "falcon_mamba") == 0);
    return 0;
}

static int derive_mamba2(const json_t *config, struct gguf_writer *w, struct err *e) {
    double d = arch_config_number(config, "hidden_size", 0);
    double inner = floor(d * arch_config_number(config, "expand", 2));
    double d_head = arch_config_number(config, "head_dim", 64);
    int rc = check_inner(inner, e);
    if (!rc && !(d_head >= 1 && d_head <= inner))
        rc = err_set(e, CHIMERE_EFORMAT, "config.json: head_dim: expected 1 to %g, got %g", inner,
                     d_head);
    if (rc) return rc;
    gguf_put_u32(w, "mamba2.ssm.inner_size", (uint32_t)inner);
    gguf_put_u32(w, "mamba2.ssm.time_step_rank", (uint32_t)(inner / d_head));
    return 0;
}

static int read_sizes(struct hparams *hp, const struct gguf *g, struct err *e) {
    int rc = key_i32(hp, g, "ssm.conv_kernel", true, 2, 16, &hp->ssm.d_conv, e);
    if (!rc) rc = key_i32(hp, g, "ssm.state_size", true, 1, 1024, &hp->ssm.d_state, e);
    if (!rc) rc = key_i32(hp, g, "ssm.inner_size", true, 1, 1 << 20, &hp->ssm.n_inner, e);
    return rc;
}

int read_mamba1(struct hparams *hp, const struct gguf *g, struct err *e) {
    int rc = read_sizes(hp, g, e);
    if (!rc) rc = key_i32(hp, g, "ssm.time_step_rank", true, 1, 1 << 20, &hp->ssm.dt_rank, e);
    if (!rc) rc = key_bool(hp, g, "ssm.dt_b_c_rms", &hp->ssm.norm_dt_bc, e);
    return rc;
}

int read_mamba2(struct hparams *hp, const struct gguf *g, struct err *e) {
    int rc = read_sizes(hp, g, e);
    if (!rc) rc = key_i32(hp, g, "ssm.time_step_rank", true, 1, 1 << 16, &hp->ssm.n_head, e);
    hp->ssm.n_group = 1;
    if (!rc) rc = key_i32(hp, g, "ssm.group_count", false, 1, 1024, &hp->ssm.n_group, e);
    if (!rc) rc = key_f32(hp, g, "ssm.time_step_min", false, 0, 1e3, &hp->ssm.dt_min, e);
    if (!rc) rc = key_f32(hp, g, "ssm.time_step_max", false, 0, 1e38, &hp->ssm.dt_max, e);
    if (rc) return rc;
    if (hp->ssm.n_inner % hp->ssm.n_head || hp->ssm.n_head % hp->ssm.n_group)
        return err_set(e, CHIMERE_EFORMAT,
                       "key %s.ssm.inner_size: expected a multiple of %d heads, themselves a "
                       "multiple of %d groups, got %d",
                       hp->arch->name, hp->ssm.n_head, hp->ssm.n_group, hp->ssm.n_inner);
    hp->ssm.n_norm = hp->ssm.n_group;
    return 0;
}

static int read_family(struct hparams *hp, const struct gguf *g, enum mixer_kind mixer,
                       struct err *e) {
    int rc = read_layers(hp, g, e);
    for (int32_t il = 0; !rc && il < hp->n_layer; il++) hp->layer[il].mixer = (uint8_t)mixer;
    if (!rc) rc = mixer == MIX_MAMBA1 ? read_mamba1(hp, g, e) : read_mamba2(hp, g, e);
    if (!rc) rc = key_f32(hp, g, "attention.layer_norm_rms_epsilon", true, 0, 1, &hp->eps, e);
    return rc;
}

static int read_mamba_keys(struct hparams *hp, const struct gguf *g, struct err *e) {
    return read_family(hp, g, MIX_MAMBA1, e);
}
static int read_mamba2_keys(struct hparams *hp, const struct gguf *g, struct err *e) {
    return read_family(hp, g, MIX_MAMBA2, e);
}

static const char *const hf_mamba[] = {"mamba", "falcon_mamba", NULL};
static const char *const hf_mamba2[] = {"mamba2", NULL};

static const struct tensor_row *const t_mamba[] = {rows_globals, rows_norm, rows_mamba1, NULL};
static const struct tensor_row *const t_mamba2[] = {rows_globals, rows_norm, rows_mamba2, NULL};

const struct arch arch_mamba = {
    .name = "mamba",
    .hf_model_types = hf_mamba,
    .tensors = t_mamba,
    .keys = keys_mamba,
    .fields =
        "hidden_act=silu|swish expand intermediate_size d_model d_inner n_layer d_intermediate=0 "
        "time_step_rank time_step_scale time_step_floor time_step_init_scheme time_step_max "
        "time_step_min use_bias use_conv_bias residual_in_fp32 rescale_prenorm_residual "
        "mixer_rms_eps use_falcon_mambapy fused_add_norm rms_norm=true pad_vocab_size_multiple "
        "ssm_cfg attn_cfg "
        "attn_layer_idx=[]",
    .derive = derive_mamba,
    .read = read_mamba_keys};
const struct arch arch_mamba2 = {
    .name = "mamba2",
    .hf_model_types = hf_mamba2,
    .tensors = t_mamba2,
    .keys = keys_mamba2,
    .fields =
        "hidden_act=silu|swish expand intermediate_size d_model d_inner n_layer d_intermediate=0 "
        "head_dim num_heads chunk_size time_step_rank time_step_limit time_step_floor "
        "time_step_max "
        "time_step_min use_bias use_conv_bias residual_in_fp32 rescale_prenorm_residual "
        "rms_norm=true norm_before_gate pad_vocab_size_multiple ssm_cfg fused_add_norm attn_cfg "
        "attn_layer_idx=[]",
    .derive = derive_mamba2,
    .read = read_mamba2_keys};

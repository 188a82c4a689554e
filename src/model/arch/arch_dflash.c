/* arch_dflash.c: drafters that read hidden states (DFlash, Chen et al., arXiv:2602.06036), from two programs: "dflash"
 * files number the layers whose input is read, "dflash-draft" files those whose output is read. Layers are Qwen3's. */
#include <string.h>

#include "model/arch/arch_impl.h"
#include "model/taps.h"

static const struct tensor_row rows_dflash[] = {
    GMAT("fc.weight", NULL, fc, 0, D_TAPS, D_EMBD),
    GVEC("enc.output_norm.weight", NULL, fc_norm, 0, TF_NONE, D_EMBD),
    GVEC("output_norm.weight", NULL, output_norm, 0, TF_NONE, D_EMBD),
    VEC("blk.%d.ffn_norm.weight", NULL, ffn_norm, AT_LAYER, 0, TF_NONE, D_EMBD), ROWS_END};

static const struct tensor_row rows_dflash_draft[] = {
    GMAT("dflash_fc.weight", NULL, fc, 0, D_TAPS, D_EMBD),
    GVEC("dflash_hidden_norm.weight", NULL, fc_norm, 0, TF_NONE, D_EMBD),
    GVEC("output_norm.weight", NULL, output_norm, 0, TF_NONE, D_EMBD),
    VEC("blk.%d.post_attention_norm.weight", NULL, ffn_norm, AT_LAYER, 0, TF_NONE, D_EMBD),
    ROWS_END};

static const struct tensor_row rows_head_norm[] = {
    VEC("blk.%d.attn_q_norm.weight", NULL, attn.q_norm, AT_ATTN, 0, TF_NONE, D_HEAD_K),
    VEC("blk.%d.attn_k_norm.weight", NULL, attn.k_norm, AT_ATTN, 0, TF_NONE, D_HEAD_K), ROWS_END};

static const struct tensor_row *const t_dflash[] = {rows_dflash, rows_attn, rows_head_norm,
                                                    rows_ffn, NULL};
static const struct tensor_row *const t_dflash_draft[] = {rows_dflash_draft, rows_attn,
                                                          rows_head_norm, rows_ffn, NULL};

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
        if (!arch_reads_tensor(hp, gguf_tensor_at(g, i)->name))
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
    return rc ? rc : refuse_others(hp, g, e);
}

static const struct arch arch_dflash = {.name = "dflash", .tensors = t_dflash, .read = read_dflash};
static const struct arch arch_dflash_draft = {
    .name = "dflash-draft", .tensors = t_dflash_draft, .read = read_dflash_draft};

const struct arch *const drafter_table[] = {&arch_dflash, &arch_dflash_draft, NULL};

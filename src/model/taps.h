/* taps.h: hidden states of a model's layers, written to files that drafters are trained from.
 *
 * A folder of shards, each of whole texts and complete from the moment it has its name: a run that was cut off goes on
 * behind the last one. Memory is that of one batch. One thread.
 *
 * A shard, taps-NNNNNN.bin, little-endian:
 *     char magic[8] "chtaps01"; u32 n_embd, n_vocab, n_tap, n_text; u64 n_tok; u64 model; u64 content;
 *     u32 type; u32 n_batch; u64 0
 *     u32 layer[n_tap]
 *     { u32 n_tok, n_prompt } text[n_text]     the first n_prompt tokens of a text were not answered by the model
 *     i32 token[n_tok]
 *     row[n_tok][n_tap]                        n_embd values of type (ids of GGUF: 0 f32, 1 f16, 30 bf16)
 * A row is the residual stream behind a layer, before any norm. Each text is a sequence of its own. */
#ifndef CHIMERE_MODEL_TAPS_H
#define CHIMERE_MODEL_TAPS_H

#include "model/forward.h"

/* From here on, runs keep the residual rows behind each of n layers (0-based, ascending), for drafters and for
 * training them: taps_kept(f, i) is [n_tok, n_embd] of layers[i] on the device, as forward_hidden. Once. */
enum { TAPS_MAX = 16 };
int taps_keep(struct forward *f, const int32_t *layers, int32_t n, struct err *e);
const float *taps_kept(const struct forward *f, int32_t i);
uint64_t taps_bytes(const struct model *m, int32_t n, int32_t n_tok_max);

/* ---- files ---- */

enum { TAPS_HEADER_BYTES = 64 };

struct taps_text {
    const int32_t *tokens; /* borrowed */
    int32_t n_tok, n_prompt;
};

struct taps_params {
    const char *dir;
    int32_t layers[TAPS_MAX], n_layer;
    uint32_t type;     /* QUANT_F32, QUANT_F16 or QUANT_BF16 */
    int32_t n_batch;   /* tokens of one forward */
    int64_t shard_tok; /* a shard ends with the text that reaches so many tokens */
    uint32_t k_type, v_type;
};

struct taps_result {
    int64_t n_tok;          /* of all shards */
    int32_t n_shard, n_old; /* n_old: that were there already */
};

/* CHIMERE_EMISMATCH: the folder has a shard of another model, of other texts or layers. */
int taps_record(struct model *m, const struct taps_params *p, const struct taps_text *texts,
                size_t n_text, struct taps_result *r, struct err *e);

/* The n layers in ascending order that drafters of this model are trained on if nobody names any: 1/3 and 2/3 of the way
 * and the last; returns n. */
int32_t taps_default_layers(const struct hparams *hp, int32_t layers[TAPS_MAX]);

#endif

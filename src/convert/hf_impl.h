/* hf_impl.h: shared by the parts of the conversion. */
#ifndef CHIMERE_CONVERT_HF_IMPL_H
#define CHIMERE_CONVERT_HF_IMPL_H

#include <jansson.h>

#include "base/pool.h"
#include "base/str.h"
#include "convert/hf.h"
#include "convert/hf_source.h"
#include "convert/quantize_mix.h"
#include "format/gguf.h"
#include "format/safetensors.h"
#include "model/arch/arch.h"

struct hf {
    const struct hf_options *options; /* borrowed */
    json_t *root;                     /* owned: config.json */
    json_t *config;                   /* view: its text model */
    const json_t *quantization;       /* view: how matrices are quantized; NULL: they are floats */
    const struct arch *arch;
    const struct quantize_mix *mix; /* NULL: types as in the source */
    struct safetensors *st;         /* owned */
    struct gguf_writer *out;        /* owned until closed */
    struct hparams *hp;             /* owned */
    struct quantize_shape shape;
    struct pool *pool; /* owned */
    uint32_t n_vocab;  /* rows of the embedding */
    uint32_t n_token_type;
    bool *used; /* owned [n tensors of st] */
    struct {    /* layers after pooling; folder "": none */
        char folder[64];
        uint32_t n_in, n_out;
        bool has_tanh;
    } dense[2];
    bool is_drafter;    /* has no embedding, head or tokenizer of its own */
    bool embeds;        /* the folder defines how token vectors are pooled */
    bool judges;        /* the model answers "yes" or "no" to a question about a text */
    uint32_t labels[2]; /* ids of these answers */
    struct hf_result result;
};

/* ---- hf_config.c ---- */

/* Reads DIR/name as JSON of at most max bytes. If it is absent and not required, *out = NULL. */
int hf_read_json(const char *dir, const char *name, size_t max, bool required, json_t **out,
                 struct err *e);
/* Finds the text model's part of config.json, and the family. */
int hf_read_config(struct hf *h, struct err *e);
/* Writes all keys except the card's and the tokenizer's. */
int hf_put_keys(struct hf *h, struct gguf_writer *w, struct err *e);
/* Value at "a.b|c.d": the first path that leads to a value that is not null. */
const json_t *hf_config_find(const json_t *config, const char *paths);

/* ---- hf_modules.c ---- */

/* Reads modules.json of a sentence-transformers folder and adds the tensors of its dense layers to h->st. Refuses
 * modules that would otherwise be dropped silently. */
int hf_read_modules(struct hf *h, struct err *e);
/* Writes the sizes and activations of the dense layers. */
void hf_put_dense(const struct hf *h, struct gguf_writer *w);

/* ---- hf_card.c ---- */

/* Writes the folder's name, and what its parts and the model card say of the model. */
int hf_put_card(const struct hf *h, struct gguf_writer *w, struct err *e);
/* Writes the number of weights as "8.0B" or, of one of n_expert experts and the rest, "8x7B". */
void hf_put_size_label(struct gguf_writer *w, uint64_t n_shared, uint64_t n_in_experts,
                       uint32_t n_expert);

/* ---- hf_fields.c ---- */

/* Refuses fields of config.json that are not read and not known to be harmless. */
int hf_check_fields(const struct hf *h, struct err *e);

/* ---- hf_tensor.c ---- */

/* The source tensor of a row's name pattern; layer < 0: global. NULL: absent. */
const struct st_tensor *hf_find(const struct hf *h, const char *pattern, int32_t il,
                                int32_t expert);
/* Parts of a checkpoint that text models do not have, and parts that quantized checkpoints keep for their own
 * kernels. */
bool hf_is_foreign(const char *name);
int hf_add_tensors(struct hf *h, struct err *e); /* plans and streams all tensors */

#endif

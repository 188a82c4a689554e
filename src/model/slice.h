/* slice.h: a model in slices: which rows and columns of each tensor each of several devices has.
 *
 * Every device computes every layer on its slice: attention heads with their keys and values, delta-net and Mamba-2
 * heads with their convolution and state, columns of feed-forward blocks and of each expert, rows of the head. The
 * results of half a layer are summed over the devices. Slices end at block boundaries of the quantized types. A kind of
 * block that cannot be divided (Mamba-1, short convolutions, latent attention, a norm over all heads, too few blocks)
 * stays whole: one device has it, in each layer the next device. Immutable once made; any thread. */
#ifndef CHIMERE_MODEL_SLICE_H
#define CHIMERE_MODEL_SLICE_H

#include "model/arch/arch.h"

enum { SLICE_MAX_PARTS = 66 }; /* per dimension: q, k and the value heads of up to 64 tiles */

enum slice_kind {
    SLICE_ATTN,
    SLICE_GDN,
    SLICE_MAMBA1,
    SLICE_MAMBA2,
    SLICE_CONV,
    SLICE_MLA,
    SLICE_DENSE,
    SLICE_MOE,
    SLICE_N_KIND
};

/* Elements [first, first + n) of a dimension. */
struct slice_part {
    int64_t first, n;
};

struct model_slice;

/* hp: the whole model's on entry, those of slice `rank` of n on return. Prediction blocks are divided like layers, or
 * belong to no slice if that is not possible. CHIMERE_ELIMIT: fewer heads than devices. CHIMERE_EUNSUPPORTED: layers read more of
 * other layers or heads than sums. */
int slice_new(struct model_slice **out, struct hparams *hp, const struct gguf *g, int32_t rank,
              int32_t n, struct err *e);
void slice_free(struct model_slice *s);

/* Hyperparameters of the whole model, against which a file's tensors are checked. */
const struct hparams *slice_whole(const struct model_slice *s);
/* Whether all layers with that kind of block have it divided; if not, one device has it whole. */
bool slice_is_cut(const struct model_slice *s, enum slice_kind kind);
/* Kinds of block in the model that stay whole, as words of a sentence; empty: none. */
void slice_whole_kinds(const struct model_slice *s, char *text, size_t size);

/* The device's elements of a dimension of that row in layer il, in order; returns the
 * number of parts. 0: all elements. */
int32_t slice_parts(const struct model_slice *s, const struct tensor_row *row, enum arch_dim d,
                    int32_t il, struct slice_part out[SLICE_MAX_PARTS]);
/* The device's rows and columns of the whole matrix `all` (layout 0); returns false if it has all. dst NULL:
 * out->data is set only if they are contiguous in `all`; otherwise they are copied to dst. */
bool slice_weight(const struct model_slice *s, const struct tensor_row *row, int32_t il,
                  const struct weight *all, void *dst, struct weight *out);
/* Whether only another device has it: the bias of a sum, which one device adds. */
bool slice_is_elsewhere(const struct model_slice *s, const struct tensor_row *row);
/* Shape and bytes of the device's part of a file's tensor; returns false if it has none. */
bool slice_tensor(const struct model_slice *s, const struct gguf_tensor *t,
                  struct gguf_tensor *out);
/* The same for the head, if the token embeddings serve as head. */
void slice_head(const struct model_slice *s, const struct gguf_tensor *embd,
                struct gguf_tensor *out);

#endif

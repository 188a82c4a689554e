/* slice.h: a model in slices: which rows and columns of each tensor one of several devices has.
 *
 * Every device computes every layer on its slice: attention heads with their keys and values, delta-net and Mamba-2
 * heads with their convolution and state, columns of feed-forward blocks and of each expert, rows of the head. What
 * the blocks of half a layer add is a sum over devices. Slices end where blocks of the quantized types do. A kind of
 * block that cannot be cut so (Mamba-1, short convolutions, a norm over all heads, too few blocks) stays whole: one
 * device has it, in each layer the next one. Immutable once made; any thread. */
#ifndef CHIMERE_MODEL_SLICE_H
#define CHIMERE_MODEL_SLICE_H

#include "model/arch.h"

enum { SLICE_MAX_PARTS = 66 }; /* of a dimension: q, k and the value heads of up to 64 tiles */

enum slice_kind {
    SLICE_ATTN,
    SLICE_GDN,
    SLICE_MAMBA1,
    SLICE_MAMBA2,
    SLICE_CONV,
    SLICE_DENSE,
    SLICE_MOE,
    SLICE_N_KIND
};

/* Elements [first, first + n) of a dimension. */
struct slice_part {
    int64_t first, n;
};

struct model_slice;

/* hp: of the whole model, which becomes that of the rank-th of n slices; prediction blocks belong to none.
 * CHIMERE_ELIMIT: fewer heads than devices. CHIMERE_EUNSUPPORTED: layers that read more of others, or of other heads,
 * than sums. */
int slice_new(struct model_slice **out, struct hparams *hp, const struct gguf *g, int32_t rank,
              int32_t n, struct err *e);
void slice_free(struct model_slice *s);

/* Of the whole model: what a file's tensors are checked against. */
const struct hparams *slice_whole(const struct model_slice *s);
/* Whether all layers with that kind of block have it cut; else one device has it whole. */
bool slice_is_cut(const struct model_slice *s, enum slice_kind kind);
/* Kinds of block that the model has and that stay whole, as words of a sentence; empty: none. */
void slice_whole_kinds(const struct model_slice *s, char *text, size_t size);

/* The device's elements of a dimension of that row in layer il, in their order; returns how many parts. 0: all. */
int32_t slice_parts(const struct model_slice *s, const struct tensor_row *row, enum arch_dim d,
                    int32_t il, struct slice_part out[SLICE_MAX_PARTS]);
/* The device's rows and columns of all of that matrix (layout 0): false: all. dst NULL: out->data is set only where
 * they are neighbours in all; else they are copied there. */
bool slice_weight(const struct model_slice *s, const struct tensor_row *row, int32_t il,
                  const struct weight *all, void *dst, struct weight *out);
/* Whether another device has it: a bias of what is summed, which one device adds. */
bool slice_is_elsewhere(const struct model_slice *s, const struct tensor_row *row);
/* A file's tensor as the device has it, shape and bytes; false: it has nothing of it. */
bool slice_tensor(const struct model_slice *s, const struct gguf_tensor *t,
                  struct gguf_tensor *out);
/* The head, where the token embeddings serve: likewise. */
void slice_head(const struct model_slice *s, const struct gguf_tensor *embd,
                struct gguf_tensor *out);

#endif

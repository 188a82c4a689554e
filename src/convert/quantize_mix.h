/* quantize_mix.h: the type of each tensor of a model in a named quantization recipe ("mix").
 *
 * A mix is a base type, types for the output matrix and the token embedding, and rules by the role of a tensor and the
 * position of its layer. Names and file types are those of llama.cpp's files. Every plain type is a mix too. Constant
 * data and pure functions; any thread. */
#ifndef CHIMERE_CONVERT_QUANTIZE_MIX_H
#define CHIMERE_CONVERT_QUANTIZE_MIX_H

#include <stdbool.h>
#include <stdint.h>

#include "format/gguf.h"

struct quantize_mix;

/* Properties of the model that rules depend on. */
struct quantize_shape {
    uint32_t n_layer, n_expert;
    uint32_t n_gqa;  /* query heads per key head */
    bool has_output; /* if not, the token embedding is also the output matrix */
    bool has_imatrix;
};

void quantize_mix_shape(struct quantize_shape *s, const struct gguf *g, bool has_imatrix);
/* Case-insensitive; returns NULL if there is no such mix. */
const struct quantize_mix *quantize_mix_find(const char *name);
/* Names of mixes, then of plain types; NULL after the last. */
const char *quantize_mix_name(int i);
uint32_t quantize_mix_file_type(const struct quantize_mix *m);
uint32_t quantize_mix_base(const struct quantize_mix *m);

/* Whether a tensor is a weight matrix: two or more dimensions, named *.weight, and none of those that are small,
 * sensitive or not used in products (norms, routers, convolutions, positions). */
bool quantize_mix_is_matrix(const struct gguf_tensor *t);
/* The type that the mix gives a matrix; pure: the base type for all. */
uint32_t quantize_mix_type(const struct quantize_mix *m, const struct quantize_shape *shape,
                           const struct gguf_tensor *t, bool pure);
/* The type itself if rows of n elements are whole blocks of it; else the nearest type in size with blocks of 32 (IQ
 * -> iq4_nl, q2_K q3_K tq -> q4_0, q4_K -> q5_0, q5_K -> q5_1, q6_K -> q8_0); else f16. */
uint32_t quantize_mix_fit(uint32_t type, uint64_t n);

/* How a tensor is stored: all columns in one type, or the last ones in a type of their own, in NAME.tail (weights.h). */
struct quantize_columns {
    uint32_t type, tail; /* tail: of the columns from n_first on; unused if there are none */
    uint64_t n_first, n_bytes,
        tail_bytes; /* n_bytes: of the first columns; tail_bytes 0: all are */
};
/* The columns of a tensor that is to have the type. If its rows are no whole blocks, divide selects between two parts,
 * of which the second gets quantize_mix_fit's type, and that type for all columns. Returns false if a size overflows. */
bool quantize_mix_columns(struct quantize_columns *out, const struct gguf_tensor *t, uint32_t type,
                          bool divide);

#endif

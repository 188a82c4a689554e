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
/* Number of the first columns that the type can hold if rows of n elements are divided (weights.h), a multiple of its
 * block; the others get quantize_mix_fit's type. 0: rows are not divided, because they fit or cannot be. */
uint64_t quantize_mix_divide(uint32_t type, uint64_t n);

#endif

/* card.h: which card a CUDA device is. A header of its own, because cuda.h is included by every kernel. */
#ifndef CHIMERE_KERNELS_CUDA_CARD_H
#define CHIMERE_KERNELS_CUDA_CARD_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct dev;

/* A number of what the last bits of results depend on: the card's name, compute capability and multiprocessors (a part of
 * a card has fewer), the layout of weights, and whether activations are rounded. */
uint64_t cuda_card(const struct dev *d);

#ifdef __cplusplus
}
#endif

#endif

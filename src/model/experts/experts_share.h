/* experts_share.h: divides the memory of experts among the layers.
 *
 * A router that spreads its choices needs more slots for the same hits than one that prefers few experts. Each layer gets
 * as many slots as it uses different experts in T tokens, for the T with which all memory is used: what one eviction
 * order over all layers would keep. By the counts alone, as if choices did not depend on earlier ones; a layer without
 * counts counts as one that uses all experts equally. */
#ifndef CHIMERE_MODEL_EXPERTS_EXPERTS_SHARE_H
#define CHIMERE_MODEL_EXPERTS_EXPERTS_SHARE_H

#include <stddef.h>
#include <stdint.h>

struct share_layer {
    const uint32_t *uses; /* view [n_expert]: tokens that used each expert */
    size_t record;        /* bytes of a slot; 0: the layer has no experts */
    int32_t n;            /* out: slots, from `least` to n_expert */
};
/* n_used: experts per token. bytes: for all slots, at least `least` of each layer. */
void experts_share(struct share_layer *l, int32_t n_layer, int32_t n_expert, int32_t n_used,
                   int32_t least, uint64_t bytes);

#endif

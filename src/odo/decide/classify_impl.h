/* classify_impl.h: the weights that classify.h uses. */
#ifndef CHIMERE_ODO_CLASSIFY_IMPL_H
#define CHIMERE_ODO_CLASSIFY_IMPL_H

#include "odo/decide/classify.h"

enum {
    CLASSIFY_N_BUCKET = 8192,
    CLASSIFY_N_SHAPE = 6,
    CLASSIFY_N_OUT = CLASSIFY_N_ROUTE + CLASSIFY_N_LEVEL
};

extern const float classify_scale[2]; /* scale of the route weights, scale of the level weights */
extern const float classify_bias[CLASSIFY_N_OUT];
extern const float classify_shape[CLASSIFY_N_SHAPE][CLASSIFY_N_LEVEL];
extern const signed char classify_weights[CLASSIFY_N_BUCKET][CLASSIFY_N_OUT];

#endif

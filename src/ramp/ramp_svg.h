/* ramp_svg.h: pictures of a choice, as SVG files in the work folder. */
#ifndef CHIMERE_RAMP_RAMP_SVG_H
#define CHIMERE_RAMP_RAMP_SVG_H

#include "ramp/ramp_set.h"

/* pareto.svg: predicted divergence over bits per weight: the curve of the best choices, uniform types, mixes
 * of llama-quantize, and this choice. measured: its measured divergence, 0: none. */
int ramp_svg_pareto(const struct ramp_set *s, const uint8_t *choice, double measured,
                    const char *work, struct err *e);
/* heat.svg: bits per weight by layer and role. */
int ramp_svg_heat(const struct ramp_set *s, const uint8_t *choice, const char *work, struct err *e);

#endif

/* ramp_type.h: the types that a search may give a tensor, and the read speed of each. Constant data. */
#ifndef CHIMERE_RAMP_RAMP_TYPE_H
#define CHIMERE_RAMP_RAMP_TYPE_H

#include "ramp/ramp.h"

enum { RAMP_NO_TYPE = UINT32_MAX };

/* Candidates for rows of n_in elements; the list ends with RAMP_NO_TYPE. */
const uint32_t *ramp_types(enum ramp_mode mode, uint64_t n_in);

/* A graphics card: memory that a program can use, and what its maker states. */
struct ramp_card {
    const char *name;
    double memory_gib, bandwidth; /* bytes per second */
    int32_t n_sm;                 /* multiprocessors */
    double clock;                 /* Hz, the highest that its maker states */
    int32_t tensor;               /* 8-bit tensor core operations per clock and multiprocessor */
};
const struct ramp_card *ramp_card_find(const char *name); /* NULL: none of that name */
const char *ramp_card_name(int i);                        /* NULL after the last */
#define RAMP_BANDWIDTH 0.92 /* share of the stated bandwidth that reads reach at best */
/* Bytes of the file per second that products of one row read on the card: what its memory allows, or what its
 * multiprocessors calculate, if a clock of them does as much as one of an H200's. */
double ramp_type_speed(const struct ramp_card *card, uint32_t type);
double ramp_type_cost(uint32_t type, bool correlated); /* of encoding: s per weight, one core */

#endif

/* ramp_type.h: which types a search may give a tensor, and how fast each is read. Constant data. */
#ifndef CHIMERE_RAMP_RAMP_TYPE_H
#define CHIMERE_RAMP_RAMP_TYPE_H

#include "ramp/ramp.h"

enum { RAMP_NO_TYPE = UINT32_MAX };

/* Candidates for rows of n_in elements, ended by RAMP_NO_TYPE. */
const uint32_t *ramp_types(enum ramp_mode mode, uint64_t n_in);

/* A graphics card: memory that a program can use, bandwidth, and the share of it that the product of one
 * row with a type reaches (bench/ramp_speed.sh measures it). */
struct ramp_card {
    const char *name;
    double memory_gib, bandwidth; /* bytes per second */
};
const struct ramp_card *ramp_card_find(const char *name); /* NULL: none of that name */
const char *ramp_card_name(int i);                        /* NULL after the last */
double ramp_type_speed(uint32_t type);                    /* share of bandwidth, 0..1 */

#endif

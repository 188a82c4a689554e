/* repack_read.h: reads one row's codes and scales from a file block, for repack.c. */
#ifndef CHIMERE_KERNELS_CPU_REPACK_READ_H
#define CHIMERE_KERNELS_CPU_REPACK_READ_H

#include <stdint.h>

/* Up to 256 inputs of one row. f16 as bits; s and m as named at repack_scale, unpacked. */
struct repack_codes {
    _Alignas(64) uint8_t q[256];
    uint8_t s[16], m[16];
    uint16_t d[4], dmin[4];
    uint8_t shifted[2]; /* per half of the inputs: bit b: the shift is added in block b */
};

/* Reads one block of the type to c; `at` is the block's index within the group (types of 32). */
typedef void repack_read(const uint8_t *block, int at, struct repack_codes *c);
repack_read *repack_reader(uint32_t type); /* NULL: none */

#endif

/* mutate_fields.h: a change that keeps the form of a binary file: one integer of its header, or of the tables after it,
 * gets a value that matters. */
#ifndef MUTATE_FIELDS_H
#define MUTATE_FIELDS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Sets an aligned integer of 4 or 8 bytes of data [n]; half of the time one of the first n_head bytes. */
static inline void mutate_field(uint8_t *data, size_t n, size_t n_head, unsigned seed) {
    size_t width = seed % 2 ? 4 : 8;
    size_t room = (seed / 2 % 2 && n_head < n ? n_head : n) / width;
    if (!room) return;
    uint8_t *at = data + seed / 64 % room * width;
    uint64_t v = 0, left = n - (uint64_t)(at - data);
    memcpy(&v, at, width);
    const uint64_t values[16] = {
        0,         1, v + 1, v - 1,      left,      left - 1,   n,         v * 2,
        v + width, 8, v / 2, UINT32_MAX, INT64_MAX, UINT64_MAX, INT32_MAX, (uint64_t)1 << 32};
    memcpy(at, &values[seed / 4 % 16], width);
}

#endif

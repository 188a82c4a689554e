/* v4.h: four lanes of floats, for the encoders. Always four, so that results are the same on every machine. */
#ifndef CHIMERE_FORMAT_V4_H
#define CHIMERE_FORMAT_V4_H

#include <stdint.h>
#include <string.h>

#define V4_INLINE static inline __attribute__((always_inline))

typedef float v4 __attribute__((vector_size(16)));
typedef int32_t v4i __attribute__((vector_size(16)));

V4_INLINE v4 v4_load(const float *p) {
    v4 v;
    memcpy(&v, p, sizeof v);
    return v;
}

V4_INLINE void v4_store(float *p, v4 v) { memcpy(p, &v, sizeof v); }
V4_INLINE float v4_sum(v4 v) { return (v[0] + v[2]) + (v[1] + v[3]); }

#endif

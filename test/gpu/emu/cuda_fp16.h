/* cuda_fp16.h: half floats for the emulator, by the codecs of src/format. */
#ifndef EMULATE_CUDA_FP16_H
#define EMULATE_CUDA_FP16_H

#include <stdint.h>

extern "C" {
#include "format/quant.h"
}

struct __half {
    uint16_t bits;
};
struct __half2 {
    __half x, y;
};
typedef __half half;

static inline float __half2float(__half h) { return quant_f16_to_f32(h.bits); }
static inline __half __float2half(float f) { return __half{quant_f32_to_f16(f)}; }
static inline __half __float2half_rn(float f) { return __float2half(f); }
static inline __half2 __floats2half2_rn(float a, float b) {
    return __half2{__float2half(a), __float2half(b)};
}
static inline __half2 __hsub2(__half2 a, __half2 b) {
    return __floats2half2_rn(__half2float(a.x) - __half2float(b.x),
                             __half2float(a.y) - __half2float(b.y));
}
static inline __half2 __hmul2(__half2 a, __half2 b) {
    return __floats2half2_rn(__half2float(a.x) * __half2float(b.x),
                             __half2float(a.y) * __half2float(b.y));
}
static inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
    return __floats2half2_rn(__half2float(a.x) * __half2float(b.x) + __half2float(c.x),
                             __half2float(a.y) * __half2float(b.y) + __half2float(c.y));
}

#endif

/* gemm_avx2.h: functions shared by the tables of AVX2 and AVX-VNNI. */
#ifndef CHIMERE_KERNELS_CPU_GEMM_AVX2_H
#define CHIMERE_KERNELS_CPU_GEMM_AVX2_H

#include "kernels/cpu/gemm/gemm.h"

void gemm_avx2_quantise(const float *x, int64_t n_in, uint8_t *row);
void gemm_avx2_floats(uint32_t type, const void *w, size_t row_bytes, int n_w, int64_t n_in,
                      const float *x, int64_t x_stride, int n_x, float *y, int64_t y_stride);

#endif

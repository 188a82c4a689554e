/* cpu.h: the CPU device: SIMD kernels, selected once for the processor, on a pool of threads.
 *
 * Quantized weights are multiplied in a form of 16 interleaved rows that prepare() makes (lossless, repack.h). gemm.h
 * describes the products, and why a row's result does not depend on its batch, bit for bit. Any SIMD level that the
 * processor has can be forced. */
#ifndef CHIMERE_KERNELS_CPU_CPU_H
#define CHIMERE_KERNELS_CPU_CPU_H

#include "kernels/ops.h"

enum cpu_isa {
    CPU_ISA_BEST,
    CPU_ISA_SCALAR,
    CPU_ISA_AVX2,
    CPU_ISA_AVXVNNI,
    CPU_ISA_AVX512,
    CPU_ISA_NEON,
    CPU_N_ISA,
};
#define CPU_ISA_CHOICES "best|scalar|avx2|avxvnni|avx512|neon"

/* n_thread as in pool_new. isa: BEST, or one that the processor has (else CHIMERE_EUNSUPPORTED). */
int cpu_open(struct dev **out, int n_thread, enum cpu_isa isa, struct err *e);
const char *cpu_isa_name(const struct dev *d);
const char *cpu_isa_best_name(void);       /* the level that BEST selects here */
enum cpu_isa cpu_isa_of(const char *name); /* one of CPU_ISA_CHOICES; BEST for any other */

/* Bytes that reserve() will allocate for this need; n_thread as in pool_new. */
size_t cpu_scratch_bytes(const struct dev_need *need, int n_thread);

/* A device whose every op is the scalar reference, with one thread: the specification. */
int cpu_open_ref(struct dev **out, struct err *e);

/* Calls fn with the input rows of every matrix product before it is computed (for importance matrices). mat: index in
 * a stack, else 0. fn NULL switches it off. fn runs on the calling thread. */
void cpu_observe(struct dev *d,
                 void (*fn)(void *ud, const struct weight *w, int32_t mat, const float *x,
                            int64_t x_stride, int32_t n_row),
                 void *ud);

#endif

/* importance.h: collects an importance matrix: for every weight matrix (and every expert), the sum of squares of
 * each input over a text, and the number of rows in the sum.
 *
 * Written as GGUF in the form that other quantizers read: general.type "imatrix", imatrix.datasets,
 * imatrix.chunk_count, imatrix.chunk_size, and for each matrix NAME, in the order of names, the tensors
 * NAME.in_sum2 f32 [n_in, n_mat] and NAME.counts f32 [1, n_mat]. With correlations also NAME.in_corr f16 [256,
 * n_in, n_mat]: the correlation of each input with each input of its block of 256, sum x y / sqrt(sum x x sum y
 * y). A matrix has no correlations if they would exceed IMPORTANCE_MATRIX_CORR bytes, or IMPORTANCE_ALL_CORR bytes
 * together with those of earlier matrices. */
#ifndef CHIMERE_EVAL_IMPORTANCE_H
#define CHIMERE_EVAL_IMPORTANCE_H

#include "eval/windows.h"

#define IMPORTANCE_MATRIX_CORR ((uint64_t)128 << 20)
#define IMPORTANCE_ALL_CORR ((uint64_t)2 << 30)

struct importance_params {
    struct windows_params windows;
    /* also collect for the output matrix, which requires logits at every position */
    bool output;
    bool correlations; /* needs memory of up to three times the file's size */
    /* of a matrix of experts on average; with fewer, it has no correlations: in most directions they are unknown */
    int32_t least_rows;
    int32_t n_thread; /* for the correlations; as in pool_new */
};

struct importance;

/* Runs the text's windows through the model, whose device must be the CPU. Free *out with importance_free. */
int importance_run(struct importance **out, struct model *m, const struct windows_text *t,
                   const struct importance_params *p, struct err *e);
void importance_free(struct importance *s);

size_t importance_n(const struct importance *s); /* number of matrices that were used */
size_t importance_n_correlated(const struct importance *s);
/* Returns how many experts the text never used, and how many there are. */
void importance_unreached(const struct importance *s, uint64_t *n_unreached, uint64_t *n_expert);
/* A sum that is not finite is refused with the name of its matrix. dataset: name of the text. */
int importance_write(const struct importance *s, const char *path, const char *dataset,
                     struct err *e);

#endif

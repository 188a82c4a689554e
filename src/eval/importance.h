/* importance.h: collects an importance matrix: for every weight matrix the sum of squares of each of its
 * inputs over a text, and how many rows were summed; for each expert where there are several.
 *
 * Written as GGUF, in the form that the field's quantisers read: general.type "imatrix", imatrix.datasets,
 * imatrix.chunk_count, imatrix.chunk_size, and for each matrix NAME the tensors NAME.in_sum2 f32
 * [n_in, n_mat] and NAME.counts f32 [1, n_mat], in the order of names; with correlations also NAME.in_corr f16
 * [256, n_in, n_mat]: for each input its correlation, sum x y / sqrt(sum x x sum y y), with each input of its block of
 * 256. A matrix of more than IMPORTANCE_MATRIX_CORR bytes of them, or behind IMPORTANCE_ALL_CORR, has none. */
#ifndef CHIMERE_EVAL_IMPORTANCE_H
#define CHIMERE_EVAL_IMPORTANCE_H

#include "eval/windows.h"

#define IMPORTANCE_MATRIX_CORR ((uint64_t)128 << 20)
#define IMPORTANCE_ALL_CORR ((uint64_t)2 << 30)

struct importance_params {
    struct windows_params windows;
    bool output;       /* the output matrix too, which costs logits of every position */
    bool correlations; /* takes twice the file's bytes of memory */
};

struct importance;

/* Runs the text's windows through the model, whose device must be the CPU. *out by importance_free. */
int importance_run(struct importance **out, struct model *m, const struct windows_text *t,
                   const struct importance_params *p, struct err *e);
void importance_free(struct importance *s);

size_t importance_n(const struct importance *s); /* matrices that were reached */
size_t importance_n_correlated(const struct importance *s);
/* Experts that the text never reached, of how many. */
void importance_unreached(const struct importance *s, uint64_t *n_unreached, uint64_t *n_expert);
/* A sum that is no finite number is refused by the matrix's name. dataset: what the text is called. */
int importance_write(const struct importance *s, const char *path, const char *dataset,
                     struct err *e);

#endif

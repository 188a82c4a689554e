/* imatrix_read.h: importance matrices: for each weight matrix, or each expert of it, the mean square of each of its
 * inputs over a calibration text.
 *
 * Two file formats are read, distinguished by the GGUF magic:
 *   GGUF: tensors NAME.in_sum2 f32 [n_column, n_matrix] and NAME.counts f32 [1, n_matrix]; hints.h reads more;
 *   legacy .dat: i32 n_entry, then per entry i32 n_name, name, i32 n_call, i32 n_value, f32 values;
 *   then, in newer ones, i32 n_chunk, i32 n_dataset, dataset name.
 * The file stays mapped and values are read on demand: those of an experts' matrix take hundreds of
 * megabytes. Immutable once open; any thread. */
#ifndef CHIMERE_CONVERT_IMATRIX_READ_H
#define CHIMERE_CONVERT_IMATRIX_READ_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "format/gguf.h"

enum { IMATRIX_MAX_ENTRIES = 1 << 20, IMATRIX_PRIOR = 64 };

struct imatrix;

int imatrix_open(struct imatrix **out, const char *path, struct err *e);
/* The same for bytes that stay valid until imatrix_close; name is for error messages. */
int imatrix_open_memory(struct imatrix **out, const void *data, size_t n, const char *name,
                        struct err *e);
void imatrix_close(struct imatrix *m);
const struct gguf *imatrix_gguf(const struct imatrix *m); /* NULL: the legacy form */
size_t imatrix_n_entries(const struct imatrix *m);
int64_t imatrix_n_chunks(const struct imatrix *m);    /* -1: not stored in the file */
const char *imatrix_dataset(const struct imatrix *m); /* of calibration; "" if not stored */

/* Whether a tensor has an entry, and of its shape: 0, CHIMERE_ENOENT without a message, or
 * CHIMERE_EMISMATCH. n_matrix: number of experts. */
int imatrix_check(const struct imatrix *m, const char *tensor, uint64_t n_column, uint64_t n_matrix,
                  struct err *e);
/* Returns for how many of the experts no row was counted. Call only after imatrix_check returned 0. */
uint64_t imatrix_n_unseen(const struct imatrix *m, const char *tensor);
/* Fills weights [n_matrix, n_column]: mean squares, or ones if nothing was counted. If the entry counts each expert's
 * rows, the mean over all experts is added as IMATRIX_PRIOR further rows, because rare experts have few. Negative
 * values and values that are not finite are refused. Call only after imatrix_check returned 0. */
int imatrix_weights(const struct imatrix *m, const char *tensor, uint64_t n_column,
                    uint64_t n_matrix, float *weights, struct err *e);

#endif

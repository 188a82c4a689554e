/* encode.h: converts a tensor to another type, on all threads, streamed.
 *
 * Rows are decoded to floats, encoded, and passed on in slabs of at most 4 M elements, in file order. The result does
 * not depend on the number of threads. Called by one thread. */
#ifndef CHIMERE_CONVERT_ENCODE_H
#define CHIMERE_CONVERT_ENCODE_H

#include "convert/hints.h"
#include "format/gguf.h"

struct encoder;

int encode_new(struct encoder **out, int n_thread, struct err *e); /* n_thread as in pool_new */
void encode_free(struct encoder *x);

/* Receives n encoded bytes; source: bytes of the tensor consumed so far. A nonzero return ends the run. */
typedef int encode_sink(void *ud, const void *data, size_t n, uint64_t source, struct err *e);

/* Encodes columns [first, first + n) of every row, n and first multiples of the type's blocks, as a tensor of their own.
 * hints: of the tensor, or NULL; if they have correlations, those of one matrix are in memory, ne0 kB. A value that
 * is not finite is reported with its position. The caller has checked that rows fit the type. */
int encode_run(struct encoder *x, const struct gguf_tensor *t, uint64_t first, uint64_t n,
               uint32_t type, const struct hints *hints, encode_sink *sink, void *ud,
               struct err *e);

#endif

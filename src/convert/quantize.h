/* quantize.h: converts GGUF to GGUF with other tensor types.
 *
 * Opening makes the plan: the type of every tensor, checked to be possible before anything is written. Running streams:
 * slabs of a tensor are decoded, encoded on all threads and written. At most one slab (16 MB of floats), one tensor's
 * hints (hints.h) and the key directory are in memory; source pages are released after the slab. The result gets its
 * name only when complete. Called by one thread; not reentrant per plan. */
#ifndef CHIMERE_CONVERT_QUANTIZE_H
#define CHIMERE_CONVERT_QUANTIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "convert/quantize_mix.h"
#include "format/gguf.h"

enum { QUANTIZE_BY_MIX = UINT32_MAX };

/* A caller's choice of types; used by ramp. */
struct quantize_choice {
    const uint32_t *types; /* one per tensor in file order, QUANTIZE_BY_MIX: the mix decides */
    /* The whole tensor encoded earlier, the first columns before the tail; NULL: encode it. May be NULL. */
    const void *(*ready)(void *ud, const struct gguf_tensor *t, const struct quantize_columns *to);
    void (*put_keys)(void *ud, struct gguf_writer *w); /* further metadata; may be NULL */
    void *ud;
};

struct quantize_options {
    const char *type;    /* a mix or a plain type of quantize_mix.h */
    const char *imatrix; /* path or NULL */
    const char *const
        *tensor_types; /* REGEX=TYPE, matched anywhere in the name; the first match wins */
    size_t n_tensor_types;
    bool pure;            /* the base type for every matrix, including output and embedding */
    bool tails;           /* rows that are no whole blocks are divided (quantize_mix_columns) */
    int n_thread;         /* 0: one per core */
    uint64_t split_bytes; /* 0: one file */
    const struct quantize_choice *choice; /* borrowed until quantize_close; NULL: mix and rules */
};

struct quantize_item {
    const struct gguf_tensor *tensor; /* view of the source */
    struct quantize_columns to;
    bool is_weighted; /* the importance matrix has an entry */
    bool is_refitted; /* rows are not a multiple of the wanted type's block */
};

struct quantize;

int quantize_open(struct quantize **out, const char *path, const struct quantize_options *options,
                  struct err *e);
void quantize_close(struct quantize *q);
size_t quantize_n_items(const struct quantize *q);
const struct quantize_item *quantize_item_at(const struct quantize *q, size_t i);
/* Totals of the plan. */
void quantize_sizes(const struct quantize *q, uint64_t *n_elements, uint64_t *bytes_before,
                    uint64_t *bytes_after);
/* Whether a result may get this name: it is neither a folder nor a file of the source. */
int quantize_check_target(const struct gguf *source, const char *path, struct err *e);
/* Writes the file (or the split set). A value that is not finite is reported with its tensor and position. path is
 * checked as above. show_progress: a progress bar on a terminal. */
int quantize_run(struct quantize *q, const char *path, bool show_progress, struct err *e);

#endif

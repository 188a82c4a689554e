/* safetensors.h: the tensors of a Hugging Face model: one file, or several with an index. Reading only.
 *
 * Files are mapped; names are copied; data are views, valid until safetensors_close, and may be unaligned. Headers are
 * untrusted: they are scanned without a tree, and every offset is checked against shape, type and file. Tensors must
 * fill the data section without gap or overlap, as the format requires. Immutable once open: any number of threads may
 * read. */
#ifndef CHIMERE_FORMAT_SAFETENSORS_H
#define CHIMERE_FORMAT_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* X(NAME, bits per element, quant.h id that has the same bytes or -1) */
#define ST_DTYPES(X)                                                                               \
    X(BOOL, 8, -1)                                                                                 \
    X(U8, 8, -1)                                                                                   \
    X(I8, 8, QUANT_I8)                                                                             \
    X(F8_E4M3, 8, -1)                                                                              \
    X(F8_E5M2, 8, -1)                                                                              \
    X(F8_E8M0, 8, -1)                                                                              \
    X(I16, 16, QUANT_I16)                                                                          \
    X(U16, 16, -1)                                                                                 \
    X(F16, 16, QUANT_F16)                                                                          \
    X(BF16, 16, QUANT_BF16)                                                                        \
    X(I32, 32, QUANT_I32)                                                                          \
    X(U32, 32, -1)                                                                                 \
    X(F32, 32, QUANT_F32)                                                                          \
    X(I64, 64, QUANT_I64)                                                                          \
    X(U64, 64, -1)                                                                                 \
    X(F64, 64, QUANT_F64)

enum st_dtype {
#define X(name, bits, quant) ST_##name,
    ST_DTYPES(X)
#undef X
        ST_N_DTYPE
};

enum {
    ST_MAX_DIMS = 8,
    ST_MAX_NAME = 256,
    ST_MAX_TENSORS = 1 << 16,
    ST_MAX_FILES = 1024,
    ST_MAX_HEADER = 100 * 1000 * 1000, /* the format's own limit */
};

struct st_tensor {
    const char *name; /* NUL-terminated UTF-8 without control bytes */
    enum st_dtype dtype;
    uint32_t n_dims;             /* 0: one element */
    uint64_t shape[ST_MAX_DIMS]; /* slowest first, as Python prints it */
    uint64_t n_elements, n_bytes;
    const unsigned char *data; /* view, may be unaligned */
    uint32_t file;
    uint64_t offset; /* of data in that file */
};

struct safetensors;

/* path: a .safetensors file, an index (*.safetensors.index.json), or a folder with
 * model.safetensors.index.json or model.safetensors. */
int safetensors_open(struct safetensors **out, const char *path, struct err *e);
/* The same for the bytes of one file, valid until close (fuzzing, tests). */
int safetensors_open_memory(struct safetensors **out, const void *data, size_t n, const char *name,
                            struct err *e);
/* Adds the tensors of a further file, named prefix + their names. */
int safetensors_add(struct safetensors *s, const char *path, const char *prefix, struct err *e);
void safetensors_close(struct safetensors *s);

uint32_t safetensors_n_files(const struct safetensors *s);
const char *safetensors_path(const struct safetensors *s, uint32_t file);
uint64_t safetensors_file_bytes(const struct safetensors *s, uint32_t file);
size_t safetensors_n_tensors(const struct safetensors *s);
const struct st_tensor *safetensors_at(const struct safetensors *s, size_t i);
const struct st_tensor *safetensors_find(const struct safetensors *s, const char *name);
/* Releases the memory of a tensor's pages after use. */
void safetensors_drop(const struct safetensors *s, const struct st_tensor *t);
const char *safetensors_dtype_name(enum st_dtype t);
int safetensors_dtype_quant(enum st_dtype t); /* quant.h id with the same bytes, -1: none */

#endif

/* gguf.h: GGUF containers, versions 2 and 3, little-endian, one file or split into several.
 *
 * Reading maps the files and copies only the directory: strings, arrays and tensor data are views, valid until
 * gguf_close. Every length, count, offset and dimension is checked against the file and the limits below before it is
 * used; tensors may not overlap or exceed the file. A reader is immutable once open: any number of threads may use
 * it. */
#ifndef CHIMERE_FORMAT_GGUF_H
#define CHIMERE_FORMAT_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STR,
    GGUF_ARR,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_N_TYPE
};

enum {
    GGUF_MAX_DIMS = 4,
    GGUF_MAX_NAME = 256, /* bytes of a key or tensor name */
    GGUF_MAX_KV = 65536,
    GGUF_MAX_TENSORS = 1 << 16,
    GGUF_MAX_STRINGS = 1 << 22, /* items per array of strings */
    GGUF_MAX_SPLITS = 1024,
    GGUF_MIN_ALIGN = 8,
    GGUF_MAX_ALIGN = 1 << 20,
    GGUF_DEFAULT_ALIGN = 32,
    GGUF_MAX_HEADER = 128 << 20, /* bytes of keys and tensor directory per file */
};

struct gguf_kv {
    struct slice key;
    enum gguf_type type, item_type; /* item_type: of arrays (never nested) */
    uint64_t n;                     /* items of an array, else 1 */
    const unsigned char *data; /* view of the encoded value(s); for strings the u64 length first */
    uint64_t n_bytes;          /* of data */
};

struct gguf_tensor {
    const char *name; /* NUL-terminated, valid UTF-8 without control bytes */
    uint32_t type;    /* quant.h id, always one that quant_traits knows */
    uint32_t n_dims;
    uint64_t ne[GGUF_MAX_DIMS]; /* ne[0] is the row length; unused dimensions are 1 */
    uint64_t n_elements, n_bytes;
    const unsigned char *data; /* view into the map, aligned to general.alignment */
    uint32_t file;             /* which split holds it */
    uint64_t offset;           /* of data in that file */
};

struct gguf;

/* Opens a file; given the first file of a split set (NAME-00001-of-0000N.gguf), opens all of them. Keys are those of
 * the first file. Reads only the headers; rejecting a file takes at most 64 MB and a fraction of a second. */
int gguf_open(struct gguf **out, const char *path, struct err *e);
/* The same for bytes that stay valid until gguf_close (fuzzing, tests). `name` is for error messages. */
int gguf_open_memory(struct gguf **out, const void *data, size_t n, const char *name,
                     struct err *e);
void gguf_close(struct gguf *g);
/* For readers that call gguf_check before they use what they computed (guard.h). */
void gguf_guard(struct gguf *g);
/* CHIMERE_EIO: a file was truncated, or could not be read, since gguf_guard. */
int gguf_check(const struct gguf *g, struct err *e);
/* Releases the memory of the pages inside data[0..n) of a tensor; the next access reads them again. */
void gguf_release(const struct gguf *g, const void *data, size_t n);

uint32_t gguf_version(const struct gguf *g);
uint32_t gguf_alignment(const struct gguf *g);
uint32_t gguf_n_files(const struct gguf *g);
const char *gguf_path(const struct gguf *g, uint32_t file);
uint64_t gguf_file_bytes(const struct gguf *g, uint32_t file);
size_t gguf_n_kv(const struct gguf *g);
const struct gguf_kv *gguf_kv_at(const struct gguf *g, size_t i);
const struct gguf_kv *gguf_find(const struct gguf *g, const char *key); /* NULL: absent */
size_t gguf_n_tensors(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i);
uint64_t gguf_tensor_bytes(const struct gguf *g); /* of all together */
const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name);

/* Typed access to key/value i (i = 0 for scalars). Integers are converted if in range; else returns false. */
bool gguf_item_u64(const struct gguf_kv *kv, uint64_t i, uint64_t *out);
bool gguf_item_i64(const struct gguf_kv *kv, uint64_t i, int64_t *out);
bool gguf_item_f64(const struct gguf_kv *kv, uint64_t i, double *out); /* integers too */
bool gguf_item_bool(const struct gguf_kv *kv, uint64_t i, bool *out);
/* Iterates over a string array: start with *cursor = 0; returns false after the last item.
 * Also accepts a scalar string. */
bool gguf_next_str(const struct gguf_kv *kv, uint64_t *cursor, struct slice *out);
const char *gguf_type_name(enum gguf_type t);

/* ---- writing ---- */

/* Collects keys and a tensor directory, then streams data in directory order to PATH (a temporary file in the same
 * folder, renamed at close). With split_bytes > 0 tensors are distributed over files of about that size,
 * STEM-0000i-of-0000N.gguf if PATH is STEM.gguf; what fits in one file is written to PATH. Putting a key again replaces
 * its value. Errors are sticky and returned by close. alignment 0: the default. */
struct gguf_writer;
int gguf_writer_new(struct gguf_writer **out, const char *path, uint32_t alignment,
                    uint64_t split_bytes, struct err *e);
void gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t v);
void gguf_put_i32(struct gguf_writer *w, const char *key, int32_t v);
void gguf_put_u64(struct gguf_writer *w, const char *key, uint64_t v);
void gguf_put_f32(struct gguf_writer *w, const char *key, float v);
void gguf_put_bool(struct gguf_writer *w, const char *key, bool v);
void gguf_put_str(struct gguf_writer *w, const char *key, const char *s, size_t n);
/* data: n little-endian items of a fixed-size type (bool: bytes) */
void gguf_put_array(struct gguf_writer *w, const char *key, enum gguf_type item, const void *data,
                    size_t n);
void gguf_put_strings(struct gguf_writer *w, const char *key, const struct slice *s, size_t n);
void gguf_put_kv(struct gguf_writer *w, const struct gguf_kv *kv); /* copies one from a reader */
void gguf_drop(struct gguf_writer *w, const char *key);            /* removes a key put before */
void gguf_add_tensor(struct gguf_writer *w, const char *name, uint32_t type, uint32_t n_dims,
                     const uint64_t *ne);
/* Writes the next n bytes of tensor data. Tensors follow each other in the order of gguf_add_tensor; the writer adds
 * the padding between them. data NULL: zeros, written as a hole in the file. */
int gguf_write_data(struct gguf_writer *w, const void *data, size_t n, struct err *e);
/* The file so far as bytes, with zeros as data: to check it with a reader before anything is written. */
int gguf_render(struct gguf_writer *w, struct buf *out, struct err *e);
int gguf_writer_close(struct gguf_writer *w, struct err *e); /* commits; frees w in any case */
void gguf_writer_abort(struct gguf_writer *w);

#endif

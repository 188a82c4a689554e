/* gguf_write.c: the GGUF writer, version 3. Layout: gguf_read.c.
 *
 *   collecting --first gguf_write_data or close--> streaming --close--> renamed
 *
 * Keys and directory are kept in memory. File by file, the header is written, then tensor data as it arrives. All
 * files have temporary names until close, so a failed run leaves no files. */
#include "format/gguf.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/map.h"
#include "base/mem.h"
#include "format/quant.h"

struct out_kv {
    char *key;           /* owned; NULL: dropped */
    unsigned char *data; /* owned: type and value as in the file */
    size_t n;
};

struct out_tensor {
    char *name; /* owned */
    uint32_t type, n_dims, file;
    uint64_t ne[GGUF_MAX_DIMS];
    uint64_t n_bytes, offset;
};

struct gguf_writer {
    char *path; /* owned */
    uint32_t alignment;
    uint64_t split_bytes;
    struct out_kv *kv;          /* owned [cap_kv] */
    struct out_tensor *tensors; /* owned [cap_tensors] */
    size_t n_kv, cap_kv, n_tensors, cap_tensors;
    struct map kv_index, tensor_index;
    struct file_writer *files; /* owned [n_files]; those below n_open are open */
    uint32_t n_files, n_open;
    size_t at;           /* tensor being written */
    uint64_t at_written; /* bytes of it written */
    struct err err;      /* the first failure; sticky */
};

static int stick(struct gguf_writer *w, int code, const char *what, const char *name) {
    if (!w->err.code)
        err_set(&w->err, code, "%s: %s '%s': %s", w->path, what, name, err_name(code));
    return w->err.code;
}

/* With the system's reason, e.g. a full disk. */
static int cannot_write(struct gguf_writer *w) {
    return err_set(&w->err, CHIMERE_EIO, "%s: cannot write: %s", w->path, strerror(errno));
}

static bool grow(void **table, size_t *cap, size_t n, size_t size) {
    if (n < *cap) return true;
    size_t more = *cap ? *cap * 2 : 64, bytes;
    void *p = size_mul(more, size, &bytes) ? mem_realloc(*table, bytes) : NULL;
    if (!p) return false;
    *table = p;
    *cap = more;
    return true;
}

static bool good_name(const char *s, size_t n) {
    if (n == 0 || n > GGUF_MAX_NAME || !utf8_is_valid(s, n)) return false;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f) return false;
    return true;
}

int gguf_writer_new(struct gguf_writer **out, const char *path, uint32_t alignment,
                    uint64_t split_bytes, struct err *e) {
    *out = NULL;
    if (alignment == 0) alignment = GGUF_DEFAULT_ALIGN;
    if (alignment < GGUF_MIN_ALIGN || alignment > GGUF_MAX_ALIGN || (alignment & (alignment - 1)))
        return err_set(e, CHIMERE_EINVAL,
                       "%s: alignment: expected a power of two from %d to %d, got %" PRIu32, path,
                       GGUF_MIN_ALIGN, GGUF_MAX_ALIGN, alignment);
    struct gguf_writer *w = mem_zalloc(sizeof *w);
    if (w) w->path = mem_strdup(path);
    if (!w || !w->path) {
        mem_free(w);
        return err_set(e, CHIMERE_ENOMEM, "%s: out of memory", path);
    }
    w->alignment = alignment;
    w->split_bytes = split_bytes;
    map_init(&w->kv_index, (size_t)GGUF_MAX_KV * (GGUF_MAX_NAME + 16));
    map_init(&w->tensor_index, (size_t)GGUF_MAX_TENSORS * (GGUF_MAX_NAME + 16));
    *out = w;
    return 0;
}

/* ---- keys ---- */

static void kv_clear(struct out_kv *kv) {
    mem_free(kv->key);
    mem_free(kv->data);
    *kv = (struct out_kv){.key = NULL};
}

/* Takes ownership of data (type and value); NULL: out of memory. */
static void put_taken(struct gguf_writer *w, const char *key, size_t n_key, unsigned char *data,
                      size_t n) {
    char *copy = data ? mem_strndup(key, n_key) : NULL;
    uint32_t at = (uint32_t)w->n_kv;
    int rc = !copy                                                        ? CHIMERE_ENOMEM
             : !good_name(key, n_key) || w->files                         ? CHIMERE_EINVAL
             : w->n_kv >= GGUF_MAX_KV                                     ? CHIMERE_ELIMIT
             : !grow((void **)&w->kv, &w->cap_kv, w->n_kv, sizeof *w->kv) ? CHIMERE_ENOMEM
                                                                          : 0;
    bool known = !rc && map_find(&w->kv_index, key, n_key, &at);
    if (!rc && !known) rc = map_put(&w->kv_index, key, n_key, at);
    if (rc) {
        stick(w, rc, "key", copy ? copy : "?");
        mem_free(copy);
        mem_free(data);
        return;
    }
    if (known) kv_clear(&w->kv[at]);
    else w->n_kv++;
    w->kv[at] = (struct out_kv){copy, data, n};
}

static void put_scalar(struct gguf_writer *w, const char *key, uint32_t type, const void *v,
                       size_t n) {
    unsigned char *data = mem_alloc(4 + n);
    if (data) {
        memcpy(data, &type, 4);
        memcpy(data + 4, v, n);
    }
    put_taken(w, key, strlen(key), data, 4 + n);
}

void gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t v) {
    put_scalar(w, key, GGUF_U32, &v, sizeof v);
}
void gguf_put_i32(struct gguf_writer *w, const char *key, int32_t v) {
    put_scalar(w, key, GGUF_I32, &v, sizeof v);
}
void gguf_put_u64(struct gguf_writer *w, const char *key, uint64_t v) {
    put_scalar(w, key, GGUF_U64, &v, sizeof v);
}
void gguf_put_f32(struct gguf_writer *w, const char *key, float v) {
    put_scalar(w, key, GGUF_F32, &v, sizeof v);
}

void gguf_put_bool(struct gguf_writer *w, const char *key, bool v) {
    unsigned char b = v;
    put_scalar(w, key, GGUF_BOOL, &b, 1);
}

void gguf_put_str(struct gguf_writer *w, const char *key, const char *s, size_t n) {
    uint32_t type = GGUF_STR;
    uint64_t len = n;
    unsigned char *data = n < SIZE_MAX - 12 ? mem_alloc(12 + n) : NULL;
    if (data) {
        memcpy(data, &type, 4);
        memcpy(data + 4, &len, 8);
        if (n) memcpy(data + 12, s, n);
    }
    put_taken(w, key, strlen(key), data, 12 + n);
}

enum { ARRAY_HEAD = 4 + 4 + 8 };

static unsigned char *new_array(enum gguf_type item, uint64_t n, size_t bytes) {
    uint32_t head[2] = {GGUF_ARR, item};
    unsigned char *data = bytes < SIZE_MAX - ARRAY_HEAD ? mem_alloc(ARRAY_HEAD + bytes) : NULL;
    if (data) {
        memcpy(data, head, 8);
        memcpy(data + 8, &n, 8);
    }
    return data;
}

static size_t item_size(enum gguf_type t) {
    switch (t) {
    case GGUF_U8:
    case GGUF_I8:
    case GGUF_BOOL: return 1;
    case GGUF_U16:
    case GGUF_I16: return 2;
    case GGUF_U32:
    case GGUF_I32:
    case GGUF_F32: return 4;
    case GGUF_U64:
    case GGUF_I64:
    case GGUF_F64: return 8;
    default: return 0;
    }
}

void gguf_put_array(struct gguf_writer *w, const char *key, enum gguf_type item, const void *data,
                    size_t n) {
    size_t bytes, size = item_size(item);
    if (!size) {
        stick(w, CHIMERE_EINVAL, "key", key);
        return;
    }
    unsigned char *copy = size_mul(n, size, &bytes) ? new_array(item, n, bytes) : NULL;
    if (copy && bytes) memcpy(copy + ARRAY_HEAD, data, bytes);
    put_taken(w, key, strlen(key), copy, ARRAY_HEAD + bytes);
}

void gguf_put_strings(struct gguf_writer *w, const char *key, const struct slice *s, size_t n) {
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        if (size_add(bytes, 8, &bytes) && size_add(bytes, s[i].n, &bytes)) continue;
        stick(w, CHIMERE_ELIMIT, "key", key);
        return;
    }
    unsigned char *data = new_array(GGUF_STR, n, bytes), *p = data ? data + ARRAY_HEAD : NULL;
    for (size_t i = 0; p && i < n; i++) {
        uint64_t len = s[i].n;
        memcpy(p, &len, 8);
        if (len) memcpy(p + 8, s[i].p, s[i].n);
        p += 8 + len;
    }
    put_taken(w, key, strlen(key), data, ARRAY_HEAD + bytes);
}

void gguf_put_kv(struct gguf_writer *w, const struct gguf_kv *kv) {
    size_t head = kv->type == GGUF_ARR ? ARRAY_HEAD : 4;
    uint32_t type = kv->type;
    unsigned char *data;
    if (kv->type == GGUF_ARR) {
        data = new_array(kv->item_type, kv->n, (size_t)kv->n_bytes);
    } else {
        data = mem_alloc(head + (size_t)kv->n_bytes);
        if (data) memcpy(data, &type, 4);
    }
    if (data) memcpy(data + head, kv->data, (size_t)kv->n_bytes);
    put_taken(w, kv->key.p, kv->key.n, data, head + (size_t)kv->n_bytes);
}

void gguf_drop(struct gguf_writer *w, const char *key) {
    uint32_t at;
    if (!map_find(&w->kv_index, key, strlen(key), &at)) return;
    kv_clear(&w->kv[at]); /* the index entry stays: a later put reuses it */
}

/* ---- tensors ---- */

void gguf_add_tensor(struct gguf_writer *w, const char *name, uint32_t type, uint32_t n_dims,
                     const uint64_t *ne) {
    const struct quant_traits *q = quant_traits(type);
    if (!q || n_dims < 1 || n_dims > GGUF_MAX_DIMS || !good_name(name, strlen(name)) || w->files) {
        stick(w, CHIMERE_EINVAL, "tensor", name);
        return;
    }
    struct out_tensor t = {.type = type, .n_dims = n_dims, .ne = {1, 1, 1, 1}};
    uint64_t rows = 1;
    bool fits = true;
    for (uint32_t d = 0; d < n_dims; d++) {
        t.ne[d] = ne[d];
        fits = fits && ne[d] > 0 && (d == 0 || u64_mul(rows, ne[d], &rows));
    }
    fits = fits && quant_row_bytes(type, ne[0], &t.n_bytes) &&
           u64_mul(t.n_bytes, rows, &t.n_bytes) && t.n_bytes <= INT64_MAX;
    int rc = !fits                                                                  ? CHIMERE_EINVAL
             : w->n_tensors >= GGUF_MAX_TENSORS                                     ? CHIMERE_ELIMIT
             : !grow((void **)&w->tensors, &w->cap_tensors, w->n_tensors, sizeof t) ? CHIMERE_ENOMEM
                                                                                    : 0;
    if (!rc) rc = map_put(&w->tensor_index, name, strlen(name), (uint32_t)w->n_tensors);
    if (rc == 1) rc = CHIMERE_EINVAL; /* duplicate name */
    if (!rc && !(t.name = mem_strdup(name))) rc = CHIMERE_ENOMEM;
    if (rc) {
        stick(w, rc, "tensor", name);
        return;
    }
    w->tensors[w->n_tensors++] = t;
}

/* ---- streaming ---- */

static uint64_t padded(uint64_t n, uint32_t alignment) {
    return (n + alignment - 1) & ~(uint64_t)(alignment - 1);
}

/* Assigns each tensor a file and an offset; returns the number of files. */
static uint32_t place_tensors(struct gguf_writer *w) {
    uint32_t file = 0;
    uint64_t offset = 0;
    for (size_t i = 0; i < w->n_tensors; i++) {
        struct out_tensor *t = &w->tensors[i];
        if (w->split_bytes && offset > 0 &&
            t->n_bytes > w->split_bytes - (offset < w->split_bytes ? offset : w->split_bytes)) {
            file++;
            offset = 0;
        }
        t->file = file;
        t->offset = offset;
        offset += padded(t->n_bytes, w->alignment);
    }
    return file + 1;
}

static void put_u64_str(struct buf *b, const char *s) {
    uint64_t n = strlen(s);
    buf_put(b, &n, 8);
    buf_put(b, s, (size_t)n);
}

static void put_split_keys(struct buf *b, uint32_t file, uint32_t n_files, size_t n_tensors) {
    uint32_t u16 = GGUF_U16, i32 = GGUF_I32;
    uint16_t no = (uint16_t)file, count = (uint16_t)n_files;
    int32_t tensors = (int32_t)n_tensors;
    put_u64_str(b, "split.no");
    buf_put(b, &u16, 4);
    buf_put(b, &no, 2);
    put_u64_str(b, "split.count");
    buf_put(b, &u16, 4);
    buf_put(b, &count, 2);
    put_u64_str(b, "split.tensors.count");
    buf_put(b, &i32, 4);
    buf_put(b, &tensors, 4);
}

static bool is_key(const struct out_kv *kv, const char *name) {
    return kv->key && strcmp(kv->key, name) == 0;
}

/* Keys that a copied file may contain, but that the writer sets itself. */
static bool is_own_key(const struct out_kv *kv) {
    return is_key(kv, "general.alignment") || is_key(kv, "split.no") || is_key(kv, "split.count") ||
           is_key(kv, "split.tensors.count");
}

/* Renders the padded header of one file; b fails if it is too long. */
static void render_header(const struct gguf_writer *w, uint32_t file, struct buf *b) {
    uint32_t version = 3, u32 = GGUF_U32;
    uint64_t n_tensors = 0, n_kv = 0;
    bool aligned = w->alignment != GGUF_DEFAULT_ALIGN, split = w->n_files > 1;
    for (size_t i = 0; i < w->n_tensors; i++) n_tensors += w->tensors[i].file == file;
    for (size_t i = 0; file == 0 && i < w->n_kv; i++)
        n_kv += w->kv[i].key && !is_own_key(&w->kv[i]);
    n_kv += (aligned ? 1u : 0u) + (split ? 3u : 0u);
    buf_puts(b, "GGUF");
    buf_put(b, &version, 4);
    buf_put(b, &n_tensors, 8);
    buf_put(b, &n_kv, 8);
    for (size_t i = 0; file == 0 && i < w->n_kv; i++) {
        if (!w->kv[i].key || is_own_key(&w->kv[i])) continue;
        put_u64_str(b, w->kv[i].key);
        buf_put(b, w->kv[i].data, w->kv[i].n);
    }
    if (aligned) {
        put_u64_str(b, "general.alignment");
        buf_put(b, &u32, 4);
        buf_put(b, &w->alignment, 4);
    }
    if (split) put_split_keys(b, file, w->n_files, w->n_tensors);
    for (size_t i = 0; i < w->n_tensors; i++) {
        const struct out_tensor *t = &w->tensors[i];
        if (t->file != file) continue;
        put_u64_str(b, t->name);
        buf_put(b, &t->n_dims, 4);
        buf_put(b, t->ne, t->n_dims * sizeof t->ne[0]);
        buf_put(b, &t->type, 4);
        buf_put(b, &t->offset, 8);
    }
    while (!b->failed && b->n % w->alignment) buf_putc(b, 0);
}

static int write_header(struct gguf_writer *w, uint32_t file) {
    struct buf b;
    buf_init(&b, GGUF_MAX_HEADER);
    render_header(w, file, &b);
    int rc = b.failed;
    if (rc) stick(w, rc, "header of file", w->path);
    else if (fwrite(b.p, 1, b.n, w->files[file].f) != b.n) rc = cannot_write(w);
    buf_fini(&b);
    return rc;
}

int gguf_render(struct gguf_writer *w, struct buf *out, struct err *e) {
    if (!w->err.code && place_tensors(w) > 1) stick(w, CHIMERE_EINVAL, "split file", w->path);
    if (!w->err.code) {
        uint64_t n = 0;
        w->n_files = 1;
        render_header(w, 0, out);
        for (size_t i = 0; i < w->n_tensors; i++)
            n = w->tensors[i].offset + padded(w->tensors[i].n_bytes, w->alignment);
        if (n > out->max) stick(w, CHIMERE_ELIMIT, "size of", w->path);
        else if (buf_reserve(out, (size_t)n) == 0) {
            if (n) memset(out->p + out->n, 0, (size_t)n);
            out->n += (size_t)n;
        }
        if (!w->err.code && out->failed) stick(w, out->failed, "size of", w->path);
    }
    if (w->err.code && e) *e = w->err;
    return w->err.code;
}

static int open_file(struct gguf_writer *w, uint32_t file) {
    size_t n = strlen(w->path), size = n + 64;
    if (w->n_files == 1) {
        int rc = file_writer_open(&w->files[0], w->path, &w->err);
        if (!rc) w->n_open = 1;
        return rc ? rc : write_header(w, 0);
    }
    if (str_ends(w->path, ".gguf")) n -= 5;
    char *path = mem_alloc(size);
    if (!path) return stick(w, CHIMERE_ENOMEM, "write to", w->path);
    snprintf(path, size, "%.*s-%05u-of-%05u.gguf", (int)n, w->path, file + 1, w->n_files);
    int rc = file_writer_open(&w->files[file], path, &w->err);
    mem_free(path);
    if (!rc) w->n_open = file + 1;
    return rc ? rc : write_header(w, file);
}

/* Switches from collecting to streaming. */
static int start(struct gguf_writer *w) {
    if (w->err.code || w->files) return w->err.code;
    w->n_files = place_tensors(w);
    if (w->n_files > GGUF_MAX_SPLITS)
        return stick(w, CHIMERE_ELIMIT, "number of files of", w->path);
    w->files = mem_alloc_array(w->n_files, sizeof *w->files);
    if (!w->files) return stick(w, CHIMERE_ENOMEM, "write to", w->path);
    return open_file(w, 0);
}

/* After the last byte of a tensor: writes its padding, and switches to the next tensor's file. */
static int finish_tensor(struct gguf_writer *w) {
    static const unsigned char zeros[4096];
    const struct out_tensor *t = &w->tensors[w->at];
    uint64_t pad = padded(t->n_bytes, w->alignment) - t->n_bytes;
    while (pad) {
        size_t n = pad < sizeof zeros ? (size_t)pad : sizeof zeros;
        if (fwrite(zeros, 1, n, w->files[t->file].f) != n) return cannot_write(w);
        pad -= n;
    }
    w->at++;
    w->at_written = 0;
    if (w->at < w->n_tensors && w->tensors[w->at].file != t->file)
        return open_file(w, w->tensors[w->at].file);
    return 0;
}

/* Writes n bytes, or (p NULL) a hole that ends with a zero byte. */
static bool put_bytes(FILE *f, const unsigned char *p, size_t n) {
    if (p) return fwrite(p, 1, n, f) == n;
    return n == 0 || (fseeko(f, (off_t)n - 1, SEEK_CUR) == 0 && fputc(0, f) == 0);
}

static int stream(struct gguf_writer *w, const unsigned char *p, size_t n) {
    int rc = start(w);
    while (!rc && n > 0) {
        if (w->at >= w->n_tensors)
            return stick(w, CHIMERE_EINVAL, "data behind the last tensor of", w->path);
        const struct out_tensor *t = &w->tensors[w->at];
        uint64_t room = t->n_bytes - w->at_written;
        size_t part = n < room ? n : (size_t)room;
        if (!put_bytes(w->files[t->file].f, p, part)) return cannot_write(w);
        if (p) p += part;
        n -= part;
        w->at_written += part;
        if (w->at_written == t->n_bytes) rc = finish_tensor(w);
    }
    return rc;
}

int gguf_write_data(struct gguf_writer *w, const void *data, size_t n, struct err *e) {
    int rc = stream(w, data, n);
    if (rc && e) *e = w->err;
    return rc;
}

static void release(struct gguf_writer *w) {
    for (uint32_t i = 0; i < w->n_open; i++) file_writer_abort(&w->files[i]);
    for (size_t i = 0; i < w->n_kv; i++) kv_clear(&w->kv[i]);
    for (size_t i = 0; i < w->n_tensors; i++) mem_free(w->tensors[i].name);
    mem_free(w->kv);
    mem_free(w->tensors);
    mem_free(w->files);
    mem_free(w->path);
    map_fini(&w->kv_index);
    map_fini(&w->tensor_index);
    mem_free(w);
}

int gguf_writer_close(struct gguf_writer *w, struct err *e) {
    int rc = start(w);
    if (!rc && w->at < w->n_tensors)
        rc = err_set(&w->err, CHIMERE_EINVAL,
                     "%s: tensor '%s': expected %" PRIu64 " bytes of data, got %" PRIu64, w->path,
                     w->tensors[w->at].name, w->tensors[w->at].n_bytes, w->at_written);
    for (uint32_t i = 0; !rc && i < w->n_files; i++) {
        rc = file_writer_commit(&w->files[i], &w->err);
    }
    if (rc && e) *e = w->err;
    release(w);
    return rc;
}

void gguf_writer_abort(struct gguf_writer *w) {
    if (w) release(w);
}

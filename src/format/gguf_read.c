/* gguf_read.c: the GGUF reader.
 *
 * Layout of one file, all integers little-endian, nothing aligned before the data:
 *
 *   u8[4]  "GGUF"
 *   u32    version: 2 or 3
 *   u64    n_tensors
 *   u64    n_kv
 *   n_kv times:       string key, u32 type, value
 *   n_tensors times:  string name, u32 n_dims, u64 ne[n_dims], u32 type, u64 offset
 *   padding to general.alignment, then tensor data; offsets count from here
 *
 *   string = u64 length, bytes     array = u32 item type, u64 n, items     bool = u8, 0 or 1
 *
 * Parsing moves a cursor over the map. Counts are first compared with the remaining bytes, so a table is never larger
 * than a small multiple of what the file contains. Pages already parsed are released every few megabytes. */
#include "format/gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/guard.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "format/quant.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "values are read in place");

enum { DROP_BYTES = 8 << 20, MIN_KV_BYTES = 8 + 1 + 4 + 1, MIN_INFO_BYTES = 8 + 1 + 4 + 8 + 4 + 8 };

static const struct {
    const char *name;
    uint8_t size; /* of a value; 0: variable */
} types[GGUF_N_TYPE] = {
    [GGUF_U8] = {"u8", 1},     [GGUF_I8] = {"i8", 1},     [GGUF_U16] = {"u16", 2},
    [GGUF_I16] = {"i16", 2},   [GGUF_U32] = {"u32", 4},   [GGUF_I32] = {"i32", 4},
    [GGUF_F32] = {"f32", 4},   [GGUF_BOOL] = {"bool", 1}, [GGUF_STR] = {"str", 0},
    [GGUF_ARR] = {"array", 0}, [GGUF_U64] = {"u64", 8},   [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};

struct part {
    struct file_map map; /* data NULL if the bytes are the caller's */
    int guard;           /* of the map; 0: none */
    char *path;          /* owned */
    uint64_t size;
};

/* Open addressing over indices into a table of names; 0: empty, else index + 1. */
struct index {
    uint32_t *slots; /* owned [mask + 1] */
    size_t mask;
};

struct gguf {
    uint32_t version, alignment, n_files;
    struct part *files;          /* owned [n_files] */
    struct gguf_kv *kv;          /* owned [n_kv] */
    struct gguf_tensor *tensors; /* owned [n_tensors] */
    size_t n_kv, n_tensors;
    struct arena names; /* of tensors */
    struct index kv_index, tensor_index;
};

/* ---- cursor ---- */

struct cursor {
    const char *path;           /* view */
    const struct file_map *map; /* NULL: the pages belong to the caller */
    const unsigned char *base;  /* view */
    uint64_t pos, size, dropped;
    struct slice key; /* the key whose value is being read; for error messages */
    struct err *e;
};

static uint64_t left(const struct cursor *c) { return c->size - c->pos; }

static int take_failed(struct cursor *c, uint64_t n, const char *what) {
    const char *open = c->key.n ? "key '" : "", *shut = c->key.n ? "': " : "";
    if (n > left(c))
        return err_set(c->e, CHIMERE_EFORMAT,
                       "%s: %s%.*s%struncated: %s at byte %" PRIu64 " needs %" PRIu64
                       " bytes, %" PRIu64 " are left",
                       c->path, open, (int)c->key.n, c->key.p ? c->key.p : "", shut, what, c->pos,
                       n, left(c));
    return err_set(c->e, CHIMERE_ELIMIT,
                   "%s: %s%.*s%sheader: expected at most %d bytes, %s goes on to byte %" PRIu64,
                   c->path, open, (int)c->key.n, c->key.p ? c->key.p : "", shut,
                   (int)GGUF_MAX_HEADER, what, c->pos + n);
}

/* Advances over n bytes; what: the field, for error messages. */
static int take(struct cursor *c, uint64_t n, const char *what, const unsigned char **p) {
    if (n > left(c) || n > GGUF_MAX_HEADER || c->pos > GGUF_MAX_HEADER - n)
        return take_failed(c, n, what);
    if (p) *p = c->base + c->pos;
    c->pos += n;
    if (c->map && c->pos - c->dropped > DROP_BYTES) {
        file_map_drop(c->map, c->dropped, c->pos);
        c->dropped = c->pos;
    }
    return 0;
}

static int take_u32(struct cursor *c, const char *what, uint32_t *v) {
    const unsigned char *p = NULL;
    int rc = take(c, 4, what, &p);
    if (!rc) memcpy(v, p, 4);
    return rc;
}

static int take_u64(struct cursor *c, const char *what, uint64_t *v) {
    const unsigned char *p = NULL;
    int rc = take(c, 8, what, &p);
    if (!rc) memcpy(v, p, 8);
    return rc;
}

/* A key or tensor name: 1 to GGUF_MAX_NAME bytes of UTF-8 without control characters. */
static int take_name(struct cursor *c, const char *what, struct slice *name) {
    uint64_t n, at = c->pos;
    const unsigned char *p = NULL;
    int rc = take_u64(c, what, &n);
    if (rc) return rc;
    if (n == 0 || n > GGUF_MAX_NAME)
        return err_set(c->e, CHIMERE_EFORMAT,
                       "%s: %s at byte %" PRIu64 ": expected a length of 1 to %d, got %" PRIu64,
                       c->path, what, at, GGUF_MAX_NAME, n);
    if ((rc = take(c, n, what, &p))) return rc;
    *name = (struct slice){(const char *)p, (size_t)n};
    bool ok = utf8_is_valid(name->p, name->n);
    for (size_t i = 0; ok && i < n; i++) ok = p[i] >= 0x20 && p[i] != 0x7f;
    if (!ok)
        return err_set(c->e, CHIMERE_EFORMAT,
                       "%s: %s at byte %" PRIu64
                       ": expected UTF-8 without control characters, got '%.*s'",
                       c->path, what, at, (int)n, name->p);
    return 0;
}

/* ---- names ---- */

static uint64_t name_hash(const char *s, size_t n) { return hash_bytes(s, n, rng_process_seed()); }

static struct slice kv_name(const struct gguf_kv *kv, uint32_t i) { return kv[i].key; }
static struct slice tensor_name(const struct gguf_tensor *t, uint32_t i) {
    return (struct slice){t[i].name, strlen(t[i].name)};
}

static bool same(struct slice a, const char *s, size_t n) {
    return a.n == n && memcmp(a.p, s, n) == 0;
}

static int index_init(struct index *ix, size_t n) {
    size_t cap = 16;
    while (cap < n * 2) cap *= 2;
    ix->slots = mem_alloc_array(cap, sizeof *ix->slots);
    ix->mask = cap - 1;
    return ix->slots ? 0 : CHIMERE_ENOMEM;
}

/* The slot that holds the name, or the free slot for it. A macro, for two tables. */
#define DEFINE_INDEX(table, item, name_of)                                                         \
    static uint32_t *table##_slot(const struct index *ix, const item *items, const char *s,        \
                                  size_t n) {                                                      \
        size_t i = name_hash(s, n) & ix->mask;                                                     \
        while (ix->slots[i] && !same(name_of(items, ix->slots[i] - 1), s, n))                      \
            i = (i + 1) & ix->mask;                                                                \
        return &ix->slots[i];                                                                      \
    }
DEFINE_INDEX(kv, struct gguf_kv, kv_name)
DEFINE_INDEX(tensor, struct gguf_tensor, tensor_name)

static const struct gguf_kv *find_kv(const struct index *ix, const struct gguf_kv *kv,
                                     const char *key) {
    if (!ix->slots) return NULL;
    uint32_t i = *kv_slot(ix, kv, key, strlen(key));
    return i ? &kv[i - 1] : NULL;
}

/* ---- key/value section ---- */

static int bad_kv(struct cursor *c, const struct gguf_kv *kv, const char *expected, uint64_t got) {
    return err_set(c->e, CHIMERE_EFORMAT, "%s: key '%.*s': expected %s, got %" PRIu64, c->path,
                   (int)kv->key.n, kv->key.p, expected, got);
}

/* Checks the lengths of n strings; the limits on items and header bound the time. */
static int walk_strings(struct cursor *c, const struct gguf_kv *kv, uint64_t n) {
    if (n > GGUF_MAX_STRINGS) return bad_kv(c, kv, "at most 4194304 strings", n);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t bytes;
        int rc = take_u64(c, "a string's length", &bytes);
        if (!rc) rc = take(c, bytes, "a string", NULL);
        if (rc) return rc;
    }
    return 0;
}

static int take_array(struct cursor *c, struct gguf_kv *kv) {
    uint32_t type;
    int rc = take_u32(c, "an array's item type", &type);
    if (!rc) rc = take_u64(c, "an array's length", &kv->n);
    if (rc) return rc;
    if (type == GGUF_ARR)
        return bad_kv(c, kv, "an array of plain values (nested arrays are not supported), type",
                      type);
    if (type >= GGUF_N_TYPE) return bad_kv(c, kv, "an item type below 13", type);
    kv->item_type = (enum gguf_type)type;
    kv->data = c->base + c->pos;
    if (type == GGUF_STR) return walk_strings(c, kv, kv->n);
    uint64_t bytes;
    if (!u64_mul(kv->n, types[type].size, &bytes))
        return bad_kv(c, kv, "an array that fits the file, items", kv->n);
    return take(c, bytes, "an array", NULL);
}

static int take_kv(struct cursor *c, struct gguf_kv *kv) {
    uint32_t type;
    int rc = take_name(c, "key", &kv->key);
    if (rc) return rc;
    c->key = kv->key;
    if ((rc = take_u32(c, "a value's type", &type))) return rc;
    if (type >= GGUF_N_TYPE) return bad_kv(c, kv, "a value type below 13", type);
    kv->type = kv->item_type = (enum gguf_type)type;
    kv->n = 1;
    kv->data = c->base + c->pos;
    if (type == GGUF_ARR) rc = take_array(c, kv);
    else if (type == GGUF_STR) rc = walk_strings(c, kv, 1);
    else rc = take(c, types[type].size, "a value", NULL);
    if (rc) return rc;
    if (type == GGUF_BOOL && kv->data[0] > 1)
        return bad_kv(c, kv, "a boolean, 0 or 1", kv->data[0]);
    kv->n_bytes = (uint64_t)(c->base + c->pos - kv->data);
    c->key.n = 0;
    return 0;
}

struct header {
    uint32_t version, alignment;
    uint64_t n_tensors, n_kv;
    struct gguf_kv *kv; /* owned */
    struct index index; /* owned slots */
};

static void header_fini(struct header *h) {
    mem_free(h->kv);
    mem_free(h->index.slots);
}

/* Guesses what a file is that is not GGUF. */
static const char *guess(const unsigned char *p, uint64_t n) {
    if (n >= 4 && (!memcmp(p, "lmgg", 4) || !memcmp(p, "tjgg", 4) || !memcmp(p, "fmgg", 4)))
        return "a GGML file from before GGUF";
    if (n >= 4 && !memcmp(p, "FUGG", 4)) return "a big-endian GGUF file";
    if (n >= 2 && !memcmp(p, "PK", 2)) return "a zip archive or PyTorch checkpoint";
    if (n >= 7 && !memcmp(p, "version", 7)) return "a Git LFS pointer, not the file itself";
    if (n >= 9 && p[8] == '{') return "a safetensors file";
    if (n >= 1 && p[0] == '<') return "a web page";
    return "something else";
}

static int take_magic(struct cursor *c, struct header *h) {
    if (c->size < 4 || memcmp(c->base, "GGUF", 4) != 0)
        return err_set(c->e, CHIMERE_EFORMAT, "%s: magic: expected 'GGUF', got %s", c->path,
                       c->size ? guess(c->base, c->size) : "an empty file");
    c->pos = 4;
    int rc = take_u32(c, "version", &h->version);
    if (rc) return rc;
    if (h->version && (h->version & 0xffff) == 0)
        return err_set(c->e, CHIMERE_EUNSUPPORTED,
                       "%s: version: expected little-endian 2 or 3, got big-endian %" PRIu32
                       " (big-endian GGUF files are not supported)",
                       c->path, __builtin_bswap32(h->version));
    if (h->version != 2 && h->version != 3)
        return err_set(c->e, CHIMERE_EUNSUPPORTED, "%s: version: expected 2 or 3, got %" PRIu32,
                       c->path, h->version);
    return 0;
}

static int check_count(struct cursor *c, const char *field, uint64_t n, uint64_t max,
                       uint64_t min_bytes) {
    if (n > max)
        return err_set(c->e, CHIMERE_ELIMIT, "%s: %s: expected at most %" PRIu64 ", got %" PRIu64,
                       c->path, field, max, n);
    if (n > left(c) / min_bytes)
        return err_set(c->e, CHIMERE_EFORMAT,
                       "%s: %s: expected at most %" PRIu64 " in the %" PRIu64
                       " bytes that are left, got %" PRIu64,
                       c->path, field, left(c) / min_bytes, left(c), n);
    return 0;
}

static int read_alignment(struct cursor *c, struct header *h) {
    h->alignment = GGUF_DEFAULT_ALIGN;
    const struct gguf_kv *kv = find_kv(&h->index, h->kv, "general.alignment");
    if (!kv) return 0;
    uint64_t v = 0;
    if (!gguf_item_u64(kv, 0, &v) || v < GGUF_MIN_ALIGN || v > GGUF_MAX_ALIGN || (v & (v - 1)))
        return bad_kv(c, kv, "a power of two from 8 to 1048576", v);
    h->alignment = (uint32_t)v;
    return 0;
}

/* Parses everything before the tensor directory. After a failure, header_fini must release what h holds. */
static int take_header(struct cursor *c, struct header *h) {
    *h = (struct header){.version = 0};
    int rc = take_magic(c, h);
    if (!rc) rc = take_u64(c, "n_tensors", &h->n_tensors);
    if (!rc) rc = take_u64(c, "n_kv", &h->n_kv);
    if (!rc) rc = check_count(c, "n_tensors", h->n_tensors, GGUF_MAX_TENSORS, MIN_INFO_BYTES);
    if (!rc) rc = check_count(c, "n_kv", h->n_kv, GGUF_MAX_KV, MIN_KV_BYTES);
    if (rc) return rc;
    h->kv = mem_alloc_array((size_t)h->n_kv, sizeof *h->kv);
    if (!h->kv || index_init(&h->index, (size_t)h->n_kv))
        return err_set(c->e, CHIMERE_ENOMEM, "%s: out of memory", c->path);
    for (uint32_t i = 0; i < h->n_kv; i++) {
        if ((rc = take_kv(c, &h->kv[i]))) return rc;
        struct slice key = h->kv[i].key;
        uint32_t *slot = kv_slot(&h->index, h->kv, key.p, key.n);
        if (*slot)
            return err_set(c->e, CHIMERE_EFORMAT, "%s: key '%.*s': expected once, got twice",
                           c->path, (int)key.n, key.p);
        *slot = i + 1;
    }
    return read_alignment(c, h);
}

/* ---- tensor directory ---- */

static int bad_tensor(struct cursor *c, const struct gguf_tensor *t, const char *field,
                      const char *expected, uint64_t got) {
    return err_set(c->e, CHIMERE_EFORMAT, "%s: tensor '%s': %s: expected %s, got %" PRIu64, c->path,
                   t->name, field, expected, got);
}

/* Computes sizes from dimensions and type. */
static int measure(struct cursor *c, struct gguf_tensor *t) {
    const struct quant_traits *q = quant_traits(t->type);
    int base = quant_interleaved_base(t->type);
    if (!q && base >= 0)
        return err_set(
            c->e, CHIMERE_EUNSUPPORTED,
            "%s: tensor '%s': type: expected rows in sequence, got interleaved rows of %s "
            "(id %" PRIu32 ")",
            c->path, t->name, quant_traits((uint32_t)base)->name, t->type);
    if (!q)
        return err_set(c->e, CHIMERE_EUNSUPPORTED,
                       "%s: tensor '%s': type: expected a known one, got id %" PRIu32, c->path,
                       t->name, t->type);
    uint64_t rows = t->ne[1], row_bytes;
    if (!u64_mul(rows, t->ne[2], &rows) || !u64_mul(rows, t->ne[3], &rows) ||
        !u64_mul(rows, t->ne[0], &t->n_elements) || t->n_elements > INT64_MAX)
        return err_set(c->e, CHIMERE_EFORMAT,
                       "%s: tensor '%s': dimensions: expected a product below 2^63, got %" PRIu64
                       " x %" PRIu64 " x %" PRIu64 " x %" PRIu64,
                       c->path, t->name, t->ne[0], t->ne[1], t->ne[2], t->ne[3]);
    if (t->ne[0] % q->block_elements)
        return err_set(c->e, CHIMERE_EFORMAT,
                       "%s: tensor '%s': row length: expected a multiple of %" PRIu32
                       " for %s, got %" PRIu64,
                       c->path, t->name, q->block_elements, q->name, t->ne[0]);
    if (!quant_row_bytes(t->type, t->ne[0], &row_bytes) || !u64_mul(row_bytes, rows, &t->n_bytes))
        return bad_tensor(c, t, "size", "fewer than 2^64 bytes, elements", t->n_elements);
    return 0;
}

static int take_tensor(struct cursor *c, struct gguf *g, struct gguf_tensor *t) {
    struct slice name;
    int rc = take_name(c, "tensor name", &name);
    if (rc) return rc;
    t->name = arena_strndup(&g->names, name.p, name.n);
    if (!t->name) return err_set(c->e, CHIMERE_ENOMEM, "%s: out of memory", c->path);
    if ((rc = take_u32(c, "a tensor's n_dims", &t->n_dims))) return rc;
    if (t->n_dims < 1 || t->n_dims > GGUF_MAX_DIMS)
        return bad_tensor(c, t, "n_dims", "1 to 4", t->n_dims);
    for (uint32_t d = 0; d < GGUF_MAX_DIMS; d++) {
        t->ne[d] = 1;
        if (d < t->n_dims && (rc = take_u64(c, "a tensor's dimension", &t->ne[d]))) return rc;
        if (t->ne[d] == 0) return bad_tensor(c, t, "dimension", "at least 1", 0);
    }
    if ((rc = take_u32(c, "a tensor's type", &t->type))) return rc;
    if ((rc = take_u64(c, "a tensor's offset", &t->offset))) return rc;
    return measure(c, t);
}

/* Makes offsets absolute, once the end of the directory is known. */
static int place_tensor(struct cursor *c, struct gguf_tensor *t, uint64_t data_start,
                        uint32_t alignment) {
    if (t->offset % alignment)
        return err_set(c->e, CHIMERE_EFORMAT,
                       "%s: tensor '%s': offset: expected a multiple of %" PRIu32 ", got %" PRIu64,
                       c->path, t->name, alignment, t->offset);
    uint64_t begin, end;
    if (!u64_add(data_start, t->offset, &begin) || !u64_add(begin, t->n_bytes, &end) ||
        end > c->size)
        return err_set(c->e, CHIMERE_EFORMAT,
                       "%s: tensor '%s': expected its %" PRIu64 " bytes at offset %" PRIu64
                       " of the data inside the file of %" PRIu64
                       " bytes, got a file that is too short",
                       c->path, t->name, t->n_bytes, t->offset, c->size);
    t->offset = begin;
    t->data = c->base + begin;
    return 0;
}

static void sift_down(uint32_t *order, size_t n, size_t i, const struct gguf_tensor *t) {
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && t[order[child + 1]].offset > t[order[child]].offset) child++;
        if (t[order[i]].offset >= t[order[child]].offset) return;
        uint32_t swap = order[i];
        order[i] = order[child];
        order[child] = swap;
    }
}

/* Tensors t[0..n) of one file may not share bytes. Heap sort: it needs no memory except the order, and
 * no file can trigger a worst case. */
static int check_overlap(struct cursor *c, const struct gguf_tensor *t, size_t n) {
    uint32_t *order = mem_alloc_array(n, sizeof *order);
    if (!order) return err_set(c->e, CHIMERE_ENOMEM, "%s: out of memory", c->path);
    for (size_t i = 0; i < n; i++) order[i] = (uint32_t)i;
    for (size_t i = n / 2; i-- > 0;) sift_down(order, n, i, t);
    for (size_t i = n; i-- > 1;) {
        uint32_t swap = order[0];
        order[0] = order[i];
        order[i] = swap;
        sift_down(order, i, 0, t);
    }
    int rc = 0;
    for (size_t i = 1; i < n && !rc; i++) {
        const struct gguf_tensor *a = &t[order[i - 1]], *b = &t[order[i]];
        if (b->offset < a->offset + a->n_bytes)
            rc = err_set(c->e, CHIMERE_EFORMAT,
                         "%s: tensor '%s': expected its data after byte %" PRIu64
                         " where '%s' ends, got an overlap at byte %" PRIu64,
                         c->path, b->name, a->offset + a->n_bytes, a->name, b->offset);
    }
    mem_free(order);
    return rc;
}

/* Appends the n tensors of file `part` to the table. */
static int take_directory(struct cursor *c, struct gguf *g, uint32_t part, const struct header *h) {
    size_t n = (size_t)h->n_tensors, total = g->n_tensors + n;
    if (n == 0) return 0;
    if (total > GGUF_MAX_TENSORS)
        return err_set(c->e, CHIMERE_ELIMIT,
                       "%s: n_tensors: expected at most %d in all files, got %zu", c->path,
                       GGUF_MAX_TENSORS, total);
    struct gguf_tensor *grown = mem_realloc(g->tensors, total * sizeof *grown);
    if (!grown) return err_set(c->e, CHIMERE_ENOMEM, "%s: out of memory", c->path);
    g->tensors = grown;
    struct gguf_tensor *t = grown + g->n_tensors;
    memset(t, 0, n * sizeof *t);
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        t[i].file = part;
        rc = take_tensor(c, g, &t[i]);
    }
    uint64_t start = (c->pos + h->alignment - 1) / h->alignment * h->alignment;
    for (size_t i = 0; i < n && !rc; i++) rc = place_tensor(c, &t[i], start, h->alignment);
    if (!rc) rc = check_overlap(c, t, n);
    if (!rc) g->n_tensors = total;
    return rc;
}

static int index_tensors(struct gguf *g, struct err *e) {
    if (index_init(&g->tensor_index, g->n_tensors))
        return err_set(e, CHIMERE_ENOMEM, "%s: out of memory", g->files[0].path);
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const char *name = g->tensors[i].name;
        uint32_t *slot = tensor_slot(&g->tensor_index, g->tensors, name, strlen(name));
        if (*slot)
            return err_set(e, CHIMERE_EFORMAT, "%s: tensor '%s': expected once, got twice",
                           g->files[g->tensors[i].file].path, name);
        *slot = i + 1;
    }
    return 0;
}

/* ---- files ---- */

static bool header_u64(const struct header *h, const char *key, uint64_t *v) {
    const struct gguf_kv *kv = find_kv(&h->index, h->kv, key);
    return kv && gguf_item_u64(kv, 0, v);
}

/* Checks that split.no and split.count say: file i of n. A merged file keeps the keys, with a count of 0. */
static int check_split(struct cursor *c, const struct header *h, uint64_t i, uint64_t n) {
    uint64_t no = UINT64_MAX, count = UINT64_MAX;
    bool has_no = header_u64(h, "split.no", &no), has_count = header_u64(h, "split.count", &count);
    if (n == 1 && (!has_count || count <= 1)) return 0;
    if (n == 1) {
        err_set(c->e, CHIMERE_EFORMAT, "%s: split.count: expected one file, got %" PRIu64, c->path,
                count);
        err_hint(c->e,
                 "the first part's name must end in -00001-of-%05" PRIu64
                 ".gguf, beside the others",
                 count);
        return CHIMERE_EFORMAT;
    }
    if (!has_no || !has_count)
        return err_set(c->e, CHIMERE_EFORMAT,
                       "%s: split.no and split.count: expected %" PRIu64 " and %" PRIu64
                       ", got none",
                       c->path, i, n);
    if (no == i && count == n) return 0;
    return err_set(c->e, CHIMERE_EFORMAT,
                   "%s: split.no and split.count: expected %" PRIu64 " and %" PRIu64
                   ", got %" PRIu64 " and %" PRIu64,
                   c->path, i, n, no, count);
}

/* Parses file `part` of n_split. The keys of the first file go to g. */
static int read_part(struct gguf *g, uint32_t part, const unsigned char *data, uint64_t n_split,
                     uint64_t *split_tensors, struct err *e) {
    struct part *f = &g->files[part];
    struct cursor c = {.path = f->path,
                       .map = f->map.data ? &f->map : NULL,
                       .base = data,
                       .size = f->size,
                       .e = e};
    struct header h;
    int rc = take_header(&c, &h);
    if (!rc) rc = check_split(&c, &h, part, n_split);
    if (!rc) rc = take_directory(&c, g, part, &h);
    if (rc || !split_tensors) {
        header_fini(&h);
        return rc;
    }
    *split_tensors = UINT64_MAX;
    header_u64(&h, "split.tensors.count", split_tensors);
    g->version = h.version;
    g->alignment = h.alignment;
    g->kv = h.kv;
    g->n_kv = (size_t)h.n_kv;
    g->kv_index = h.index;
    return 0;
}

/* Recognizes STEM-00001-of-00003.gguf; *stem: number of bytes before "-00001-of". */
static bool split_name(const char *path, size_t *stem, unsigned *no, unsigned *count) {
    enum { TAIL = sizeof "-00001-of-00003.gguf" - 1 };
    size_t n = strlen(path);
    if (n < TAIL) return false;
    const char *p = path + n - TAIL;
    for (int i = 0; i < TAIL; i++) {
        bool digit = (i >= 1 && i <= 5) || (i >= 10 && i <= 14);
        if (digit ? p[i] < '0' || p[i] > '9' : p[i] != "-00001-of-00003.gguf"[i]) return false;
    }
    *no = *count = 0;
    for (int i = 1; i <= 5; i++) *no = *no * 10 + (unsigned)(p[i] - '0');
    for (int i = 10; i <= 14; i++) *count = *count * 10 + (unsigned)(p[i] - '0');
    *stem = n - TAIL;
    return true;
}

static int map_part(struct gguf *g, uint32_t part, const char *path, struct err *e) {
    struct part *f = &g->files[part];
    f->path = mem_strdup(path);
    if (!f->path) return err_set(e, CHIMERE_ENOMEM, "%s: out of memory", path);
    g->n_files = part + 1;
    int rc = file_map(&f->map, path, e);
    f->size = f->map.size;
    return rc;
}

static int open_rest(struct gguf *g, size_t stem, uint32_t n_split, uint64_t expected_tensors,
                     struct err *e) {
    const char *first = g->files[0].path;
    size_t size = stem + 64;
    char *path = mem_alloc(size);
    if (!path) return err_set(e, CHIMERE_ENOMEM, "%s: out of memory", first);
    int rc = 0;
    for (uint32_t i = 1; i < n_split && !rc; i++) {
        snprintf(path, size, "%.*s-%05u-of-%05u.gguf", (int)stem, first, i + 1, n_split);
        rc = map_part(g, i, path, e);
        if (rc == CHIMERE_ENOENT) err_prefix(e, "part %u of %u is missing", i + 1, n_split);
        if (!rc) rc = read_part(g, i, g->files[i].map.data, n_split, NULL, e);
    }
    mem_free(path);
    if (!rc && expected_tensors != UINT64_MAX && expected_tensors != g->n_tensors)
        rc = err_set(e, CHIMERE_EFORMAT,
                     "%s: split.tensors.count: expected %" PRIu64 " tensors in all files, got %zu",
                     g->files[0].path, expected_tensors, g->n_tensors);
    return rc;
}

static int gguf_new(struct gguf **out, size_t n_files, const char *name, struct err *e) {
    *out = NULL;
    struct gguf *g = mem_zalloc(sizeof *g);
    if (g) g->files = mem_alloc_array(n_files, sizeof *g->files);
    if (!g || !g->files) {
        mem_free(g);
        return err_set(e, CHIMERE_ENOMEM, "%s: out of memory", name);
    }
    arena_init(&g->names, (size_t)GGUF_MAX_TENSORS * (GGUF_MAX_NAME + 16));
    *out = g;
    return 0;
}

int gguf_open(struct gguf **out, const char *path, struct err *e) {
    size_t stem = 0;
    unsigned no = 1, n_split = 1;
    *out = NULL;
    if (!split_name(path, &stem, &no, &n_split)) no = n_split = 1;
    if (n_split < 1 || n_split > GGUF_MAX_SPLITS || no < 1 || no > n_split)
        return err_set(e, CHIMERE_EINVAL,
                       "%s: expected a part from 1 to at most %d in the name, got %u of %u", path,
                       GGUF_MAX_SPLITS, no, n_split);
    if (no != 1) {
        err_set(e, CHIMERE_EINVAL, "%s: expected the first part of a split set, got part %u of %u",
                path, no, n_split);
        err_hint(e, "open the file that ends in -00001-of-%05u.gguf", n_split);
        return CHIMERE_EINVAL;
    }
    struct gguf *g;
    int rc = gguf_new(&g, n_split, path, e);
    if (rc) return rc;
    uint64_t tensors = 0;
    rc = map_part(g, 0, path, e);
    if (!rc) rc = read_part(g, 0, g->files[0].map.data, n_split, &tensors, e);
    if (!rc && n_split > 1) rc = open_rest(g, stem, n_split, tensors, e);
    if (!rc) rc = index_tensors(g, e);
    if (rc) gguf_close(g);
    else *out = g;
    return rc;
}

int gguf_open_memory(struct gguf **out, const void *data, size_t n, const char *name,
                     struct err *e) {
    struct gguf *g;
    int rc = gguf_new(&g, 1, name, e);
    if (rc) return rc;
    g->n_files = 1;
    g->files[0].size = n;
    g->files[0].path = mem_strdup(name);
    uint64_t tensors = 0;
    if (!g->files[0].path) rc = err_set(e, CHIMERE_ENOMEM, "%s: out of memory", name);
    if (!rc) rc = read_part(g, 0, data, 1, &tensors, e);
    if (!rc) rc = index_tensors(g, e);
    if (rc) {
        gguf_close(g);
        *out = NULL;
    } else {
        *out = g;
    }
    return rc;
}

void gguf_close(struct gguf *g) {
    if (!g) return;
    for (uint32_t i = 0; i < g->n_files; i++) {
        guard_remove(g->files[i].guard);
        file_unmap(&g->files[i].map);
        mem_free(g->files[i].path);
    }
    mem_free(g->files);
    mem_free(g->kv);
    mem_free(g->tensors);
    mem_free(g->kv_index.slots);
    mem_free(g->tensor_index.slots);
    arena_fini(&g->names);
    mem_free(g);
}

void gguf_guard(struct gguf *g) {
    for (uint32_t i = 0; i < g->n_files; i++) {
        struct part *f = &g->files[i];
        if (f->map.data && !f->guard) f->guard = guard_add(f->map.data, (size_t)f->map.size);
    }
}

int gguf_check(const struct gguf *g, struct err *e) {
    for (uint32_t i = 0; i < g->n_files; i++) {
        if (!guard_is_damaged(g->files[i].guard)) continue;
        err_set(e, CHIMERE_EIO, "%s: the file was truncated or cannot be read while it is in use",
                g->files[i].path);
        err_hint(e, "load the model again");
        return CHIMERE_EIO;
    }
    return 0;
}

void gguf_release(const struct gguf *g, const void *data, size_t n) {
    const unsigned char *at = data;
    for (uint32_t i = 0; i < g->n_files; i++) {
        const struct file_map *map = &g->files[i].map;
        if (!map->data || at < map->data || at >= map->data + map->size) continue;
        uint64_t from = (uint64_t)(at - map->data);
        file_map_drop(map, from, from + n);
    }
}

/* ---- access ---- */

uint32_t gguf_version(const struct gguf *g) { return g->version; }
uint32_t gguf_alignment(const struct gguf *g) { return g->alignment; }
uint32_t gguf_n_files(const struct gguf *g) { return g->n_files; }
const char *gguf_path(const struct gguf *g, uint32_t file) {
    return file < g->n_files ? g->files[file].path : NULL;
}
uint64_t gguf_file_bytes(const struct gguf *g, uint32_t file) {
    return file < g->n_files ? g->files[file].size : 0;
}
size_t gguf_n_kv(const struct gguf *g) { return g->n_kv; }
const struct gguf_kv *gguf_kv_at(const struct gguf *g, size_t i) {
    return i < g->n_kv ? &g->kv[i] : NULL;
}
const struct gguf_kv *gguf_find(const struct gguf *g, const char *key) {
    return find_kv(&g->kv_index, g->kv, key);
}
size_t gguf_n_tensors(const struct gguf *g) { return g->n_tensors; }

uint64_t gguf_tensor_bytes(const struct gguf *g) {
    uint64_t n = 0;
    for (size_t i = 0; i < g->n_tensors; i++) n += g->tensors[i].n_bytes;
    return n;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i) {
    return i < g->n_tensors ? &g->tensors[i] : NULL;
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name) {
    uint32_t i = *tensor_slot(&g->tensor_index, g->tensors, name, strlen(name));
    return i ? &g->tensors[i - 1] : NULL;
}

const char *gguf_type_name(enum gguf_type t) {
    return (unsigned)t < GGUF_N_TYPE ? types[t].name : "unknown";
}

/* Item i as sign and magnitude; returns false for strings, floats and indices beyond the end. */
static bool item_int(const struct gguf_kv *kv, uint64_t i, bool *negative, uint64_t *magnitude) {
    if (i >= kv->n) return false;
    int64_t s = 0;
    const unsigned char *p = kv->data + i * types[kv->item_type].size;
    uint64_t u = 0;
    bool is_signed = true;
#define AS(type, to)                                                                               \
    {                                                                                              \
        type v;                                                                                    \
        memcpy(&v, p, sizeof v);                                                                   \
        to = v;                                                                                    \
        break;                                                                                     \
    }
    switch (kv->item_type) {
    case GGUF_U8: is_signed = false; AS(uint8_t, u)
    case GGUF_U16: is_signed = false; AS(uint16_t, u)
    case GGUF_U32: is_signed = false; AS(uint32_t, u)
    case GGUF_U64: is_signed = false; AS(uint64_t, u)
    case GGUF_I8: AS(int8_t, s)
    case GGUF_I16: AS(int16_t, s)
    case GGUF_I32: AS(int32_t, s)
    case GGUF_I64: AS(int64_t, s)
    default: return false;
    }
#undef AS
    *negative = is_signed && s < 0;
    *magnitude = !is_signed ? u : s < 0 ? 0 - (uint64_t)s : (uint64_t)s;
    return true;
}

bool gguf_item_u64(const struct gguf_kv *kv, uint64_t i, uint64_t *out) {
    bool negative;
    uint64_t v;
    if (!item_int(kv, i, &negative, &v) || negative) return false;
    *out = v;
    return true;
}

bool gguf_item_i64(const struct gguf_kv *kv, uint64_t i, int64_t *out) {
    bool negative;
    uint64_t v;
    if (!item_int(kv, i, &negative, &v)) return false;
    if (v > (uint64_t)INT64_MAX + negative) return false;
    *out = negative ? (int64_t)(0 - v) : (int64_t)v;
    return true;
}

bool gguf_item_f64(const struct gguf_kv *kv, uint64_t i, double *out) {
    if (i >= kv->n) return false;
    if (kv->item_type == GGUF_F32) {
        float f;
        memcpy(&f, kv->data + i * 4, 4);
        *out = (double)f;
        return true;
    }
    if (kv->item_type == GGUF_F64) {
        memcpy(out, kv->data + i * 8, 8);
        return true;
    }
    bool negative;
    uint64_t v;
    if (!item_int(kv, i, &negative, &v)) return false;
    *out = negative ? -(double)v : (double)v;
    return true;
}

bool gguf_item_bool(const struct gguf_kv *kv, uint64_t i, bool *out) {
    if (kv->item_type != GGUF_BOOL || i >= kv->n || kv->data[i] > 1) return false;
    *out = kv->data[i] == 1;
    return true;
}

bool gguf_next_str(const struct gguf_kv *kv, uint64_t *cursor, struct slice *out) {
    if (kv->item_type != GGUF_STR || *cursor >= kv->n_bytes) return false;
    uint64_t n; /* lengths were checked when the file was opened */
    memcpy(&n, kv->data + *cursor, 8);
    *out = (struct slice){(const char *)kv->data + *cursor + 8, (size_t)n};
    *cursor += 8 + n;
    return true;
}

/* safetensors.c. Layout of one file:
 *
 *   u64    n, length of the header, little-endian
 *   n      JSON: {"NAME": {"dtype": "BF16", "shape": [..], "data_offsets": [begin, end]}, ...,
 *                 "__metadata__": {"key": "value"}}
 *   rest   tensor data; offsets count from here
 *
 * An index is {"metadata": ..., "weight_map": {"NAME": "FILE", ...}}; FILE is in the folder of the index. */
#include "format/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/os/fs.h"
#include "base/map.h"
#include "base/mem.h"
#include "format/json_scan.h"
#include "format/quant.h"

static const struct {
    const char *name;
    uint32_t bits;
    int quant;
} dtypes[ST_N_DTYPE] = {
#define X(name, bits, quant) {#name, bits, quant},
    ST_DTYPES(X)
#undef X
};

struct part {
    struct file_map map; /* data NULL if the bytes are the caller's */
    char *path;          /* owned */
    uint64_t size;
};

struct safetensors {
    struct part *files; /* owned [cap_files] */
    uint32_t n_files, cap_files;
    struct st_tensor *tensors; /* owned [cap_tensors] */
    size_t n_tensors, cap_tensors;
    struct arena names;
    struct map index;   /* name -> tensor */
    const char *prefix; /* of the names of the file that is read; NULL: none */
};

enum { NAME_BYTES = ST_MAX_NAME + 16 };

static int out_of_memory(struct err *e, const char *path) {
    return err_set(e, CHIMERE_ENOMEM, "%s: out of memory", path);
}

/* Reports the scanner's error. */
static int bad_json(const struct json_scan *s, const char *path, struct err *e) {
    char got[16] = "the end";
    if (s->p < s->end) snprintf(got, sizeof got, "'%c'", *s->p);
    return err_set(e, CHIMERE_EFORMAT, "%s: header: byte %zu: expected %s, got %s", path,
                   (size_t)(s->p - s->start), s->expected ? s->expected : "a value", got);
}

/* A name or file name: copied to out[ST_MAX_NAME + 1] with escapes resolved. */
static int read_name(struct slice raw, const char *path, char *out, struct err *e) {
    size_t n = 0;
    bool ok = raw.n > 0 && raw.n <= ST_MAX_NAME && json_unescape(raw, out, &n);
    for (size_t i = 0; ok && i < n; i++) ok = (unsigned char)out[i] >= 0x20 && out[i] != 0x7f;
    if (!ok)
        return err_set(
            e, CHIMERE_EFORMAT,
            "%s: header: expected a name of 1 to %d bytes without control characters, got '%.*s'",
            path, ST_MAX_NAME, (int)(raw.n < 100 ? raw.n : 100), raw.p);
    out[n] = 0;
    return 0;
}

/* ---- one tensor's entry ---- */

struct entry {
    bool has_dtype, has_shape, has_offsets;
    uint64_t begin, end;
};

static bool is(struct slice s, const char *word) {
    return s.n == strlen(word) && memcmp(s.p, word, s.n) == 0;
}

static int read_dtype(struct json_scan *s, const char *path, struct st_tensor *t, struct err *e) {
    struct slice raw;
    if (!json_raw_string(s, &raw)) return bad_json(s, path, e);
    for (int i = 0; i < ST_N_DTYPE; i++) {
        if (!is(raw, dtypes[i].name)) continue;
        t->dtype = (enum st_dtype)i;
        return 0;
    }
    return err_set(e, CHIMERE_EUNSUPPORTED,
                   "%s: tensor '%s': dtype: expected a known one, got '%.*s'", path, t->name,
                   (int)(raw.n < 40 ? raw.n : 40), raw.p);
}

static int read_shape(struct json_scan *s, const char *path, struct st_tensor *t, struct err *e) {
    bool first = true;
    t->n_dims = 0;
    json_open(s, '[');
    while (json_more(s, ']', &first)) {
        if (t->n_dims == ST_MAX_DIMS)
            return err_set(e, CHIMERE_EFORMAT,
                           "%s: tensor '%s': shape: expected at most %d dimensions, got more", path,
                           t->name, ST_MAX_DIMS);
        json_u64(s, &t->shape[t->n_dims++]);
    }
    return s->expected ? bad_json(s, path, e) : 0;
}

static void read_offsets(struct json_scan *s, struct entry *entry) {
    bool first = true;
    int n = 0;
    json_open(s, '[');
    while (json_more(s, ']', &first)) {
        uint64_t v;
        if (!json_u64(s, &v)) return;
        if (n == 0) entry->begin = v;
        else entry->end = v;
        if (++n > 2) break;
    }
    entry->has_offsets = n == 2;
}

static int read_fields(struct json_scan *s, const char *path, struct st_tensor *t,
                       struct entry *entry, struct err *e) {
    bool first = true;
    struct slice key;
    int rc = 0;
    json_open(s, '{');
    while (!rc && json_more(s, '}', &first)) {
        if (!json_key(s, &key)) break;
        bool *seen = is(key, "dtype")          ? &entry->has_dtype
                     : is(key, "shape")        ? &entry->has_shape
                     : is(key, "data_offsets") ? &entry->has_offsets
                                               : NULL;
        if (!seen || *seen)
            return err_set(
                e, CHIMERE_EFORMAT,
                "%s: tensor '%s': expected dtype, shape and data_offsets once each, got '%.*s'",
                path, t->name, (int)(key.n < 40 ? key.n : 40), key.p);
        *seen = true;
        if (seen == &entry->has_dtype) {
            rc = read_dtype(s, path, t, e);
        } else if (seen == &entry->has_shape) {
            rc = read_shape(s, path, t, e);
        } else {
            read_offsets(s, entry);
        }
    }
    if (s->expected) return bad_json(s, path, e);
    return rc;
}

static int check_entry(const struct st_tensor *t, const struct entry *entry, const char *path,
                       struct err *e) {
    if (!entry->has_dtype || !entry->has_shape || !entry->has_offsets)
        return err_set(e, CHIMERE_EFORMAT,
                       "%s: tensor '%s': expected dtype, shape and two data_offsets, got less",
                       path, t->name);
    if (entry->begin > entry->end || entry->end - entry->begin != t->n_bytes)
        return err_set(e, CHIMERE_EFORMAT,
                       "%s: tensor '%s': data_offsets: expected %" PRIu64
                       " bytes of %s, got %" PRIu64 " to %" PRIu64,
                       path, t->name, t->n_bytes, dtypes[t->dtype].name, entry->begin, entry->end);
    return 0;
}

static int measure(struct st_tensor *t, const char *path, struct err *e) {
    uint64_t n = 1, bytes;
    for (uint32_t d = 0; d < t->n_dims; d++)
        if (!u64_mul(n, t->shape[d], &n) || n > INT64_MAX / 8)
            return err_set(e, CHIMERE_EFORMAT,
                           "%s: tensor '%s': shape: expected a product below 2^60, got more", path,
                           t->name);
    bytes = n * (dtypes[t->dtype].bits / 8);
    t->n_elements = n;
    t->n_bytes = bytes;
    return 0;
}

static int add_tensor(struct safetensors *st, const struct st_tensor *t, const char *path,
                      struct err *e) {
    if (st->n_tensors >= ST_MAX_TENSORS)
        return err_set(e, CHIMERE_ELIMIT, "%s: expected at most %d tensors, got more", path,
                       ST_MAX_TENSORS);
    if (st->n_tensors == st->cap_tensors) {
        size_t cap = st->cap_tensors ? st->cap_tensors * 2 : 256;
        struct st_tensor *grown = mem_realloc(st->tensors, cap * sizeof *grown);
        if (!grown) return out_of_memory(e, path);
        st->tensors = grown;
        st->cap_tensors = cap;
    }
    int rc = map_put(&st->index, t->name, strlen(t->name), (uint32_t)st->n_tensors);
    if (rc == 1)
        return err_set(e, CHIMERE_EFORMAT, "%s: tensor '%s': expected once, got twice", path,
                       t->name);
    if (rc) return out_of_memory(e, path);
    st->tensors[st->n_tensors] = *t;
    st->tensors[st->n_tensors].name = arena_strndup(&st->names, t->name, strlen(t->name));
    if (!st->tensors[st->n_tensors].name) return out_of_memory(e, path);
    st->n_tensors++;
    return 0;
}

/* ---- one file ---- */

static int by_offset(const void *a, const void *b) {
    const struct st_tensor *x = *(const struct st_tensor *const *)a,
                           *y = *(const struct st_tensor *const *)b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return x->n_bytes < y->n_bytes ? -1 : x->n_bytes > y->n_bytes;
}

/* Tensors from `from` on, of one file, must fill [start, size) exactly. */
static int check_cover(const struct safetensors *st, size_t from, uint64_t start,
                       const struct part *f, struct err *e) {
    size_t n = st->n_tensors - from;
    const struct st_tensor **order = mem_alloc_array(n, sizeof *order);
    if (!order) return out_of_memory(e, f->path);
    for (size_t i = 0; i < n; i++) order[i] = &st->tensors[from + i];
    qsort(order, n, sizeof *order, by_offset);
    int rc = 0;
    uint64_t at = start;
    for (size_t i = 0; i < n && !rc; i++) {
        if (order[i]->offset != at)
            rc = err_set(e, CHIMERE_EFORMAT,
                         "%s: tensor '%s': expected its data at byte %" PRIu64
                         " after the one before, got %" PRIu64 " (%s)",
                         f->path, order[i]->name, at, order[i]->offset,
                         order[i]->offset < at ? "overlap" : "gap");
        at = order[i]->offset + order[i]->n_bytes;
    }
    if (!rc && at != f->size)
        rc = err_set(e, CHIMERE_EFORMAT,
                     "%s: expected a file of %" PRIu64 " bytes as its tensors need, got %" PRIu64,
                     f->path, at, f->size);
    mem_free(order);
    return rc;
}

static int read_tensor(struct safetensors *st, struct json_scan *s, uint32_t file, uint64_t start,
                       const unsigned char *base, struct slice raw, struct err *e) {
    const struct part *f = &st->files[file];
    char name[ST_MAX_NAME + 1];
    struct st_tensor t = {.name = name, .file = file};
    struct entry entry = {.has_dtype = false};
    int rc = read_name(raw, f->path, name, e);
    size_t n_prefix = st->prefix ? strlen(st->prefix) : 0;
    if (!rc && n_prefix > ST_MAX_NAME - strlen(name))
        rc = err_set(e, CHIMERE_ELIMIT, "%s: tensor '%s': expected a shorter name", f->path, name);
    if (!rc && n_prefix) {
        memmove(name + n_prefix, name, strlen(name) + 1);
        memcpy(name, st->prefix, n_prefix);
    }
    if (!rc) rc = read_fields(s, f->path, &t, &entry, e);
    if (!rc) rc = measure(&t, f->path, e);
    if (!rc) rc = check_entry(&t, &entry, f->path, e);
    if (rc) return rc;
    if (entry.end > f->size - start)
        return err_set(e, CHIMERE_EFORMAT,
                       "%s: tensor '%s': data_offsets: expected at most the %" PRIu64
                       " bytes of data, got %" PRIu64,
                       f->path, name, f->size - start, entry.end);
    t.offset = start + entry.begin;
    t.data = base + t.offset;
    return add_tensor(st, &t, f->path, e);
}

static int read_header(struct safetensors *st, uint32_t file, const unsigned char *base,
                       struct err *e) {
    const struct part *f = &st->files[file];
    uint64_t n;
    if (f->size < 8)
        return err_set(e, CHIMERE_EFORMAT,
                       "%s: truncated: expected 8 bytes of header length, got %" PRIu64, f->path,
                       f->size);
    memcpy(&n, base, 8);
    if (n > ST_MAX_HEADER || n > f->size - 8)
        return err_set(e, CHIMERE_EFORMAT,
                       "%s: header length: expected at most %" PRIu64 " bytes, got %" PRIu64,
                       f->path, f->size - 8 < ST_MAX_HEADER ? f->size - 8 : ST_MAX_HEADER, n);
    struct json_scan s;
    json_scan_init(&s, (const char *)base + 8, (size_t)n);
    size_t from = st->n_tensors, dropped = 0;
    bool first = true, seen_metadata = false;
    int rc = 0;
    json_open(&s, '{');
    while (!rc && json_more(&s, '}', &first)) {
        struct slice raw;
        if (!json_key(&s, &raw)) break;
        if (!is(raw, "__metadata__")) rc = read_tensor(st, &s, file, 8 + n, base, raw, e);
        else if (seen_metadata) s.expected = "__metadata__ once";
        else seen_metadata = json_skip(&s);
        if (f->map.data && (size_t)(s.p - s.start) - dropped > 8 << 20) {
            file_map_drop(&f->map, dropped, (uint64_t)(s.p - s.start));
            dropped = (size_t)(s.p - s.start);
        }
    }
    if (!rc && (s.expected || !json_end(&s))) rc = bad_json(&s, f->path, e);
    return rc ? rc : check_cover(st, from, 8 + n, f, e);
}

/* ---- opening ---- */

static int new_reader(struct safetensors **out, const char *path, struct err *e) {
    *out = NULL;
    struct safetensors *st = mem_zalloc(sizeof *st);
    if (!st) return out_of_memory(e, path);
    arena_init(&st->names, (size_t)ST_MAX_TENSORS * NAME_BYTES);
    map_init(&st->index, (size_t)ST_MAX_TENSORS * NAME_BYTES);
    *out = st;
    return 0;
}

static int add_file(struct safetensors *st, const char *path, struct err *e) {
    if (st->n_files == st->cap_files) {
        uint32_t cap = st->cap_files ? st->cap_files * 2 : 16;
        struct part *grown = mem_realloc(st->files, cap * sizeof *grown);
        if (!grown) return out_of_memory(e, path);
        st->files = grown;
        st->cap_files = cap;
    }
    struct part *f = &st->files[st->n_files];
    *f = (struct part){.path = mem_strdup(path)};
    if (!f->path) return out_of_memory(e, path);
    st->n_files++;
    return 0;
}

static int open_one(struct safetensors *st, const char *path, struct err *e) {
    int rc = add_file(st, path, e);
    if (rc) return rc;
    struct part *f = &st->files[st->n_files - 1];
    if ((rc = file_map(&f->map, path, e))) return rc;
    f->size = f->map.size;
    return read_header(st, st->n_files - 1, f->map.data, e);
}

/* Calls fn for each entry of the index's weight_map. */
static int each_weight(const struct file_map *m, const char *path, struct err *e,
                       int (*fn)(void *ctx, struct slice name, struct slice file, struct err *e),
                       void *ctx) {
    struct json_scan s;
    json_scan_init(&s, (const char *)m->data, (size_t)m->size);
    bool first = true, found = false;
    int rc = 0;
    json_open(&s, '{');
    while (!rc && json_more(&s, '}', &first)) {
        struct slice key, name, file;
        if (!json_key(&s, &key)) break;
        if (!is(key, "weight_map")) {
            json_skip(&s);
            continue;
        }
        bool in_first = true;
        found = json_open(&s, '{');
        while (!rc && json_more(&s, '}', &in_first))
            if (json_key(&s, &name) && json_raw_string(&s, &file)) rc = fn(ctx, name, file, e);
    }
    if (!rc && (s.expected || !json_end(&s))) rc = bad_json(&s, path, e);
    if (!rc && !found)
        rc = err_set(e, CHIMERE_EFORMAT, "%s: weight_map: expected an object, got none", path);
    return rc;
}

struct index_walk {
    struct safetensors *st;
    const char *path; /* of the index */
    struct map files; /* file name -> index */
};

/* Opens a file when its name first occurs. A name may not lead out of the folder. */
static int open_mentioned(void *ctx, struct slice name, struct slice file, struct err *e) {
    (void)name;
    struct index_walk *w = ctx;
    char base[ST_MAX_NAME + 1];
    uint32_t known;
    int rc = read_name(file, w->path, base, e);
    if (rc) return rc;
    if (map_find(&w->files, base, strlen(base), &known)) return 0;
    if (strchr(base, '/') || base[0] == '.')
        return err_set(e, CHIMERE_EREFUSED,
                       "%s: weight_map: expected a file name beside the index, got '%s'", w->path,
                       base);
    if (w->st->n_files >= ST_MAX_FILES)
        return err_set(e, CHIMERE_ELIMIT, "%s: weight_map: expected at most %d files, got more",
                       w->path, ST_MAX_FILES);
    if (map_put(&w->files, base, strlen(base), w->st->n_files) < 0)
        return out_of_memory(e, w->path);
    const char *slash = strrchr(w->path, '/');
    size_t dir = slash ? (size_t)(slash - w->path) + 1 : 0, size = dir + strlen(base) + 1;
    char *path = mem_alloc(size);
    if (!path) return out_of_memory(e, w->path);
    snprintf(path, size, "%.*s%s", (int)dir, w->path, base);
    rc = open_one(w->st, path, e);
    mem_free(path);
    return rc;
}

/* Each tensor of the index must be in its file. */
static int check_mentioned(void *ctx, struct slice name, struct slice file, struct err *e) {
    struct index_walk *w = ctx;
    char tensor[ST_MAX_NAME + 1], base[ST_MAX_NAME + 1];
    int rc = read_name(name, w->path, tensor, e);
    if (!rc) rc = read_name(file, w->path, base, e);
    if (rc) return rc;
    const struct st_tensor *t = safetensors_find(w->st, tensor);
    uint32_t number = 0;
    map_find(&w->files, base, strlen(base), &number);
    if (t && t->file == number) return 0;
    return err_set(e, CHIMERE_EFORMAT, "%s: weight_map: expected tensor '%s' in %s, got %s",
                   w->path, tensor, base, t ? safetensors_path(w->st, t->file) : "none");
}

static int open_index(struct safetensors *st, const char *path, struct err *e) {
    struct file_map m;
    struct index_walk w = {.st = st, .path = path};
    int rc = file_map(&m, path, e);
    if (rc) return rc;
    map_init(&w.files, (size_t)ST_MAX_FILES * NAME_BYTES);
    if (m.size > ST_MAX_HEADER)
        rc = err_set(e, CHIMERE_ELIMIT, "%s: expected at most %d bytes, got %" PRIu64, path,
                     ST_MAX_HEADER, m.size);
    if (!rc) rc = each_weight(&m, path, e, open_mentioned, &w);
    if (!rc) rc = each_weight(&m, path, e, check_mentioned, &w);
    map_fini(&w.files);
    file_unmap(&m);
    return rc;
}

static int open_folder(struct safetensors *st, const char *path, struct err *e) {
    size_t size = strlen(path) + 64;
    char *file = mem_alloc(size);
    if (!file) return out_of_memory(e, path);
    int rc;
    snprintf(file, size, "%s/model.safetensors.index.json", path);
    if (file_exists(file)) {
        rc = open_index(st, file, e);
    } else {
        snprintf(file, size, "%s/model.safetensors", path);
        rc =
            file_exists(file)
                ? open_one(st, file, e)
                : err_set(
                      e, CHIMERE_ENOENT,
                      "%s: expected model.safetensors or model.safetensors.index.json, got neither",
                      path);
    }
    mem_free(file);
    return rc;
}

int safetensors_open(struct safetensors **out, const char *path, struct err *e) {
    struct safetensors *st;
    *out = NULL;
    int rc = new_reader(&st, path, e);
    if (rc) return rc;
    if (fs_is_folder(path)) rc = open_folder(st, path, e);
    else if (str_ends(path, ".json")) rc = open_index(st, path, e);
    else rc = open_one(st, path, e);
    if (rc) safetensors_close(st);
    else *out = st;
    return rc;
}

int safetensors_open_memory(struct safetensors **out, const void *data, size_t n, const char *name,
                            struct err *e) {
    struct safetensors *st;
    *out = NULL;
    int rc = new_reader(&st, name, e);
    if (rc) return rc;
    rc = add_file(st, name, e);
    if (!rc) {
        st->files[0].size = n;
        rc = read_header(st, 0, data, e);
    }
    if (rc) safetensors_close(st);
    else *out = st;
    return rc;
}

int safetensors_add(struct safetensors *s, const char *path, const char *prefix, struct err *e) {
    s->prefix = prefix;
    int rc = open_one(s, path, e);
    s->prefix = NULL;
    return rc;
}

void safetensors_close(struct safetensors *st) {
    if (!st) return;
    for (uint32_t i = 0; i < st->n_files; i++) {
        file_unmap(&st->files[i].map);
        mem_free(st->files[i].path);
    }
    mem_free(st->files);
    mem_free(st->tensors);
    arena_fini(&st->names);
    map_fini(&st->index);
    mem_free(st);
}

/* ---- access ---- */

uint32_t safetensors_n_files(const struct safetensors *s) { return s->n_files; }
const char *safetensors_path(const struct safetensors *s, uint32_t file) {
    return file < s->n_files ? s->files[file].path : NULL;
}
uint64_t safetensors_file_bytes(const struct safetensors *s, uint32_t file) {
    return file < s->n_files ? s->files[file].size : 0;
}
size_t safetensors_n_tensors(const struct safetensors *s) { return s->n_tensors; }
const struct st_tensor *safetensors_at(const struct safetensors *s, size_t i) {
    return i < s->n_tensors ? &s->tensors[i] : NULL;
}
const struct st_tensor *safetensors_find(const struct safetensors *s, const char *name) {
    uint32_t i;
    return map_find(&s->index, name, strlen(name), &i) ? &s->tensors[i] : NULL;
}
void safetensors_drop(const struct safetensors *s, const struct st_tensor *t) {
    if (s->files[t->file].map.data)
        file_map_drop(&s->files[t->file].map, t->offset, t->offset + t->n_bytes);
}
const char *safetensors_dtype_name(enum st_dtype t) {
    return (unsigned)t < ST_N_DTYPE ? dtypes[t].name : "unknown";
}
int safetensors_dtype_quant(enum st_dtype t) {
    return (unsigned)t < ST_N_DTYPE ? dtypes[t].quant : -1;
}

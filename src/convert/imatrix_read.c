/* imatrix_read.c: see imatrix_read.h. */
#include "convert/imatrix_read.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/str.h"
#include "format/gguf.h"
#include "format/quant.h"

struct entry {
    const unsigned char *sums;   /* view: n_value floats, unaligned */
    const unsigned char *counts; /* view: n_count floats; NULL: `count` for all */
    uint64_t n_value, n_count;
    float count;
};

struct imatrix {
    struct gguf *gguf;     /* owned; NULL for the legacy form */
    struct file_map map;   /* empty if the caller owns the memory */
    struct entry *entries; /* owned */
    size_t n_entry;
    struct map index;
    int64_t n_chunk;
    char dataset[256];
};

static float float_at(const unsigned char *p, uint64_t i) {
    float f;
    memcpy(&f, p + i * sizeof f, sizeof f);
    return f;
}

static int add_entry(struct imatrix *m, const char *name, size_t n_name, const struct entry *entry,
                     struct err *e) {
    int rc = map_put(&m->index, name, n_name, (uint32_t)m->n_entry);
    if (rc == 1)
        return err_set(e, CHIMERE_EFORMAT, "importance matrix: entry %.*s: given twice",
                       (int)n_name, name);
    if (rc) return err_set(e, rc, "importance matrix: out of memory");
    m->entries[m->n_entry++] = *entry;
    return 0;
}

/* ---- GGUF ---- */

static int check_sums(const struct gguf_tensor *sums, const struct gguf_tensor *counts,
                      struct err *e) {
    if (!counts)
        return err_set(e, CHIMERE_EFORMAT, "tensor %s: expected a tensor of counts beside it",
                       sums->name);
    if (sums->type != QUANT_F32 || counts->type != QUANT_F32)
        return err_set(e, CHIMERE_EFORMAT, "tensor %s: expected f32 sums and counts", sums->name);
    if (sums->n_elements == 0 || counts->n_elements == 0 ||
        sums->n_elements % counts->n_elements != 0)
        return err_set(e, CHIMERE_EFORMAT,
                       "tensor %s: expected a multiple of its %" PRIu64 " counts, got %" PRIu64
                       " sums",
                       sums->name, counts->n_elements, sums->n_elements);
    return 0;
}

static void read_keys(struct imatrix *m) {
    const struct gguf_kv *kv = gguf_find(m->gguf, "imatrix.chunk_count");
    uint64_t n;
    if (kv && gguf_item_u64(kv, 0, &n) && n <= INT64_MAX) m->n_chunk = (int64_t)n;
    kv = gguf_find(m->gguf, "imatrix.datasets");
    struct slice s;
    uint64_t cursor = 0;
    if (kv && kv->type == GGUF_ARR && kv->item_type == GGUF_STR && gguf_next_str(kv, &cursor, &s) &&
        s.n < sizeof m->dataset && utf8_is_valid(s.p, s.n))
        memcpy(m->dataset, s.p, s.n);
}

static int read_gguf(struct imatrix *m, struct err *e) {
    static const char suffix[] = ".in_sum2";
    int rc = 0;
    size_t n = gguf_n_tensors(m->gguf);
    if (n > 3 * (size_t)IMATRIX_MAX_ENTRIES) n = 3 * (size_t)IMATRIX_MAX_ENTRIES;
    m->entries = mem_alloc_array(n + 1, sizeof *m->entries);
    if (!m->entries) return err_set(e, CHIMERE_ENOMEM, "importance matrix: out of memory");
    for (size_t i = 0; i < n && !rc; i++) {
        const struct gguf_tensor *sums = gguf_tensor_at(m->gguf, i);
        if (!str_ends(sums->name, suffix)) continue;
        size_t n_name = strlen(sums->name) - (sizeof suffix - 1);
        char name[GGUF_MAX_NAME + 16];
        memcpy(name, sums->name, n_name);
        memcpy(name + n_name, ".counts", sizeof ".counts");
        const struct gguf_tensor *counts = gguf_find_tensor(m->gguf, name);
        rc = check_sums(sums, counts, e);
        if (!rc) {
            struct entry entry = {sums->data, counts->data, sums->n_elements, counts->n_elements,
                                  0};
            rc = add_entry(m, name, n_name, &entry, e);
        }
    }
    if (!rc) read_keys(m);
    return rc;
}

/* ---- legacy ---- */

struct cursor {
    const unsigned char *p;
    uint64_t left;
};

static bool take_i32(struct cursor *c, int32_t *v) {
    if (c->left < sizeof *v) return false;
    memcpy(v, c->p, sizeof *v);
    c->p += sizeof *v;
    c->left -= sizeof *v;
    return true;
}

static bool take_bytes(struct cursor *c, uint64_t n, const unsigned char **p) {
    if (c->left < n) return false;
    *p = c->p;
    c->p += n;
    c->left -= n;
    return true;
}

static int read_entry(struct imatrix *m, struct cursor *c, int32_t i, struct err *e) {
    int32_t n_name, n_call, n_value;
    const unsigned char *name, *values;
    if (!take_i32(c, &n_name))
        return err_set(e, CHIMERE_EFORMAT, "entry %" PRId32 ": the file ends", i);
    if (n_name < 1 || n_name > GGUF_MAX_NAME)
        return err_set(e, CHIMERE_EFORMAT,
                       "entry %" PRId32 ": length of its name: expected 1 to %d, got %" PRId32, i,
                       GGUF_MAX_NAME, n_name);
    if (!take_bytes(c, (uint64_t)n_name, &name) || !take_i32(c, &n_call) || !take_i32(c, &n_value))
        return err_set(e, CHIMERE_EFORMAT, "entry %" PRId32 ": the file ends", i);
    if (!utf8_is_valid((const char *)name, (size_t)n_name) || memchr(name, 0, (size_t)n_name))
        return err_set(e, CHIMERE_EFORMAT, "entry %" PRId32 ": its name is not text", i);
    if (n_call < 0 || n_value < 1)
        return err_set(e, CHIMERE_EFORMAT,
                       "entry %.*s: expected calls and values, got %" PRId32 " and %" PRId32,
                       (int)n_name, (const char *)name, n_call, n_value);
    if (!take_bytes(c, (uint64_t)n_value * sizeof(float), &values))
        return err_set(e, CHIMERE_EFORMAT,
                       "entry %.*s: expected %" PRId32 " values, got a file that ends", (int)n_name,
                       (const char *)name, n_value);
    struct entry entry = {values, NULL, (uint64_t)n_value, 1, n_call ? (float)n_call : 1};
    return add_entry(m, (const char *)name, (size_t)n_name, &entry, e);
}

static int read_legacy(struct imatrix *m, const void *data, size_t size, struct err *e) {
    struct cursor c = {data, size};
    int32_t n_entry = 0, n_chunk, n_dataset;
    if (!take_i32(&c, &n_entry) || n_entry < 1 || n_entry > IMATRIX_MAX_ENTRIES)
        return err_set(e, CHIMERE_EFORMAT,
                       "expected an importance matrix: GGUF, or from 1 to %d entries; got %" PRId32,
                       IMATRIX_MAX_ENTRIES, n_entry);
    /* an entry takes at least 17 bytes: bounds the allocation by the file's size */
    if ((uint64_t)n_entry > c.left / 17)
        return err_set(e, CHIMERE_EFORMAT, "%" PRId32 " entries do not fit in the file's %zu bytes",
                       n_entry, size);
    m->entries = mem_alloc_array((size_t)n_entry, sizeof *m->entries);
    if (!m->entries) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    int rc = 0;
    for (int32_t i = 0; i < n_entry && !rc; i++) rc = read_entry(m, &c, i, e);
    const unsigned char *name;
    if (rc || !take_i32(&c, &n_chunk)) return rc; /* older files end here */
    m->n_chunk = n_chunk >= 0 ? n_chunk : -1;
    if (take_i32(&c, &n_dataset) && n_dataset > 0 && (size_t)n_dataset < sizeof m->dataset &&
        take_bytes(&c, (uint64_t)n_dataset, &name) &&
        utf8_is_valid((const char *)name, (size_t)n_dataset))
        memcpy(m->dataset, name, (size_t)n_dataset);
    return 0;
}

/* ---- both ---- */

static int read_any(struct imatrix *m, const void *data, size_t n, const char *name,
                    struct err *e) {
    static const char magic[] = "GGUF";
    int rc;
    if (n >= 4 && memcmp(data, magic, 4) == 0) {
        rc = gguf_open_memory(&m->gguf, data, n, name, e);
        if (!rc) rc = read_gguf(m, e);
        if (!rc && m->n_entry == 0)
            rc = err_set(e, CHIMERE_EFORMAT, "%s: expected tensors NAME.in_sum2, got none", name);
    } else {
        rc = read_legacy(m, data, n, e);
        if (rc) err_prefix(e, "%s", name);
    }
    return rc;
}

int imatrix_open_memory(struct imatrix **out, const void *data, size_t n, const char *name,
                        struct err *e) {
    struct imatrix *m = mem_zalloc(sizeof *m);
    if (!m) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    map_init(&m->index, (size_t)IMATRIX_MAX_ENTRIES * GGUF_MAX_NAME);
    m->n_chunk = -1;
    int rc = read_any(m, data, n, name, e);
    if (rc) {
        imatrix_close(m);
        return rc;
    }
    *out = m;
    return 0;
}

int imatrix_open(struct imatrix **out, const char *path, struct err *e) {
    struct file_map map;
    int rc = file_map(&map, path, e);
    if (rc) return rc;
    rc = imatrix_open_memory(out, map.data, map.size, path, e);
    if (rc) file_unmap(&map);
    else (*out)->map = map;
    return rc;
}

void imatrix_close(struct imatrix *m) {
    if (!m) return;
    if (m->gguf) gguf_close(m->gguf);
    file_unmap(&m->map);
    map_fini(&m->index);
    mem_free(m->entries);
    mem_free(m);
}

const struct gguf *imatrix_gguf(const struct imatrix *m) { return m->gguf; }
size_t imatrix_n_entries(const struct imatrix *m) { return m->n_entry; }
int64_t imatrix_n_chunks(const struct imatrix *m) { return m->n_chunk; }
const char *imatrix_dataset(const struct imatrix *m) { return m->dataset; }

static const struct entry *find(const struct imatrix *m, const char *tensor) {
    uint32_t at;
    return map_find(&m->index, tensor, strlen(tensor), &at) ? &m->entries[at] : NULL;
}

/* One matrix's values may serve all experts; there is one count for all, or one per expert. */
int imatrix_check(const struct imatrix *m, const char *tensor, uint64_t n_column, uint64_t n_matrix,
                  struct err *e) {
    const struct entry *entry = find(m, tensor);
    if (!entry) return CHIMERE_ENOENT;
    uint64_t n_all = 0;
    if (n_column == 0 || n_matrix == 0 || !u64_mul(n_column, n_matrix, &n_all) ||
        (entry->n_value != n_column && entry->n_value != n_all) ||
        (entry->n_count != 1 && entry->n_count != entry->n_value / n_column))
        return err_set(e, CHIMERE_EMISMATCH,
                       "importance matrix: entry %s: expected %" PRIu64 " x %" PRIu64
                       " values, as the tensor has columns and matrices, got %" PRIu64
                       " with %" PRIu64 " counts",
                       tensor, n_column, n_matrix, entry->n_value, entry->n_count);
    return 0;
}

uint64_t imatrix_n_unseen(const struct imatrix *m, const char *tensor) {
    const struct entry *entry = find(m, tensor);
    uint64_t n = 0;
    for (uint64_t i = 0; entry->counts && entry->n_count > 1 && i < entry->n_count; i++)
        n += !(float_at(entry->counts, i) > 0);
    return n;
}

static int read_count(const struct entry *entry, const char *tensor, uint64_t own, float *count,
                      struct err *e) {
    *count = entry->counts ? float_at(entry->counts, entry->n_count == 1 ? 0 : own) : entry->count;
    if (*count >= 0 && isfinite(*count)) return 0;
    return err_set(e, CHIMERE_ENUMERIC,
                   "importance matrix: entry %s: expected counts from 0, got %g", tensor,
                   (double)*count);
}

static int read_sum(const struct entry *entry, const char *tensor, uint64_t at, float *sum,
                    struct err *e) {
    *sum = float_at(entry->sums, at);
    if (*sum >= 0 && isfinite(*sum)) return 0;
    return err_set(e, CHIMERE_ENUMERIC,
                   "importance matrix: entry %s, value %" PRIu64
                   ": expected a number from 0, got %g",
                   tensor, at, (double)*sum);
}

/* The mean square of each column over the rows of all experts, [n_column]; ones if there were no rows. */
static int pool_experts(const struct entry *entry, const char *tensor, uint64_t n_column,
                        double *mean, struct err *e) {
    uint64_t n_own = entry->n_value / n_column;
    double total = 0;
    int rc = 0;
    for (uint64_t k = 0; k < n_own && !rc; k++) {
        float count, sum;
        rc = read_count(entry, tensor, k, &count, e);
        total += (double)count;
        for (uint64_t j = 0; j < n_column && !rc; j++) {
            rc = read_sum(entry, tensor, k * n_column + j, &sum, e);
            mean[j] += (double)sum;
        }
    }
    for (uint64_t j = 0; j < n_column; j++) mean[j] = total > 0 ? mean[j] / total : 1;
    return rc;
}

int imatrix_weights(const struct imatrix *m, const char *tensor, uint64_t n_column,
                    uint64_t n_matrix, float *weights, struct err *e) {
    const struct entry *entry = find(m, tensor);
    uint64_t n_own = entry->n_value / n_column;
    bool shrinks = n_own > 1 && entry->counts && entry->n_count == n_own;
    double prior = shrinks ? IMATRIX_PRIOR : 0, *mean = NULL;
    int rc = 0;
    if (shrinks) {
        mean = mem_alloc_array((size_t)n_column, sizeof *mean);
        rc = mean ? pool_experts(entry, tensor, n_column, mean, e)
                  : err_set(e, CHIMERE_ENOMEM, "importance matrix: out of memory");
    }
    for (uint64_t k = 0; k < n_matrix && !rc; k++) {
        uint64_t own = n_own == 1 ? 0 : k;
        float count = 0, sum;
        rc = read_count(entry, tensor, own, &count, e);
        for (uint64_t j = 0; j < n_column && !rc; j++) {
            rc = read_sum(entry, tensor, own * n_column + j, &sum, e);
            double n = (double)count + prior;
            weights[k * n_column + j] =
                n > 0 ? (float)(((double)sum + (mean ? prior * mean[j] : 0)) / n) : 1;
        }
    }
    mem_free(mean);
    return rc;
}

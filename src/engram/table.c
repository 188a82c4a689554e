/* table.c: opens and checks a table; see table_impl.h for the format. */
#include "engram/table.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/os/os.h"
#include "engram/sort_impl.h"

static int bad(const struct engram_table *t, struct err *e, const char *what) {
    err_set(e, CHIMERE_EFORMAT, "%s: damaged n-gram table: %s", t->name, what);
    err_hint(e, "build it again from its texts: chimere engram build");
    return CHIMERE_EFORMAT;
}

/* ---- header ---- */

static int check_section(const struct engram_table *t, uint64_t off, uint64_t n, uint64_t size,
                         uint64_t *end, const char *what, struct err *e) {
    uint64_t bytes;
    if (off % ENGRAM_ALIGN || off < *end || !u64_mul(n, size, &bytes) ||
        !u64_add(off, bytes, end) || *end > t->size)
        return bad(t, e, what);
    return 0;
}

static int check_header(struct engram_table *t, struct err *e) {
    struct engram_header *h = &t->h;
    uint64_t claimed = h->header_hash, end = ENGRAM_HEADER_BYTES;
    h->header_hash = 0;
    uint64_t hash = hash_bytes(h, sizeof *h, 0);
    h->header_hash = claimed;
    if (hash != claimed)
        return err_set(e, CHIMERE_ECHECKSUM,
                       "%s: damaged n-gram table: the header's checksum differs", t->name);
    if (h->file_bytes != t->size)
        return err_set(e, CHIMERE_EFORMAT, "%s: cut n-gram table: expected %llu bytes, got %llu",
                       t->name, (unsigned long long)h->file_bytes, (unsigned long long)t->size);
    if (h->header_bytes != ENGRAM_HEADER_BYTES || h->order_min != ENGRAM_MIN_ORDER ||
        h->order_max != ENGRAM_MAX_ORDER || h->n_vocab < 1 || h->n_vocab > ENGRAM_MAX_VOCAB)
        return bad(t, e, "orders or vocabulary");
    if (h->n_text < 1 || h->n_text >= UINT32_MAX || h->n_doc > ENGRAM_MAX_DOC ||
        h->n_source > h->n_doc || h->n_weight > ENGRAM_N_WEIGHT || h->n_bucket < 1 ||
        h->max_probe < 1 || h->max_probe > ENGRAM_MAX_PROBE || h->record_bytes / 8 > UINT32_MAX)
        return bad(t, e, "counts");
    int rc = check_section(t, h->off_text, h->n_text, 4, &end, "section of the text", e);
    if (!rc)
        rc = check_section(t, h->off_doc, h->n_doc, sizeof *t->docs, &end, "section of documents",
                           e);
    if (!rc)
        rc = check_section(t, h->off_source, h->n_source, sizeof *t->sources, &end,
                           "section of sources", e);
    if (!rc) rc = check_section(t, h->off_name, h->name_bytes, 1, &end, "section of names", e);
    if (!rc)
        rc = check_section(t, h->off_record, h->record_bytes, 1, &end, "section of records", e);
    if (!rc)
        rc = check_section(t, h->off_slot, h->n_bucket, ENGRAM_BUCKET * sizeof *t->slots, &end,
                           "section of slots", e);
    if (!rc && h->n_order)
        rc = check_section(t, h->off_order, h->n_order, 4, &end, "section of the order", e);
    for (uint32_t i = 0; !rc && i < h->n_weight; i++)
        if (!(h->weights[i] > -1e6f && h->weights[i] < 1e6f)) rc = bad(t, e, "mixture weights");
    return rc;
}

/* Checks that documents cover the text: a boundary, then tokens, and so on; and that names and sources are within
 * their sections. */
static int check_docs(struct engram_table *t, struct err *e) {
    const struct engram_header *h = &t->h;
    uint64_t at = 1, n_wanted = 0;
    if (t->text[0] != ENGRAM_BOUNDARY) return bad(t, e, "the text does not start at a boundary");
    for (uint32_t i = 0; i < h->n_doc; i++) {
        const struct engram_doc_disk *d = &t->docs[i];
        if (d->begin != at || d->n_tok >= h->n_text - at || d->source >= h->n_source ||
            d->weight < 1 || d->weight > ENGRAM_UNIT)
            return bad(t, e, "a document lies outside of the text");
        at += d->n_tok + 1;
        n_wanted += d->n_tok > ENGRAM_MIN_ORDER ? d->n_tok - ENGRAM_MIN_ORDER : 0;
        if (t->text[at - 1] != ENGRAM_BOUNDARY)
            return bad(t, e, "a document does not end at a boundary");
    }
    if (at != h->n_text) return bad(t, e, "text that belongs to no document");
    if (h->n_order && h->n_order != n_wanted) return bad(t, e, "the number of ordered positions");
    for (uint32_t i = 0; i < h->n_source; i++) {
        const struct engram_source_disk *s = &t->sources[i];
        if (s->name_at > h->name_bytes || s->n_name > h->name_bytes - s->name_at ||
            s->n_name > ENGRAM_MAX_SOURCE_NAME || !utf8_is_valid(t->names + s->name_at, s->n_name))
            return bad(t, e, "the name of a source");
    }
    return 0;
}

/* Checks the token ids of the text, because other code uses them as array indices. A table with an invalid
 * checksum is never opened, but one with a forged checksum must not cause an access out of bounds. */
static int check_text(const struct engram_table *t, struct err *e) {
    uint32_t top = 0;
    for (uint64_t i = 0; i < t->h.n_text; i++) {
        uint32_t x = t->text[i] + 1; /* a boundary becomes 0 */
        top = x > top ? x : top;
    }
    return top > t->h.n_vocab ? bad(t, e, "a token beyond the vocabulary") : 0;
}

static int open_current(struct engram_table *t, uint64_t tok_hash, struct err *e) {
    memcpy(&t->h, t->data, sizeof t->h);
    int rc = check_header(t, e);
    if (rc) return rc;
    if (tok_hash && t->h.tok_hash != tok_hash) {
        err_set(e, CHIMERE_EMISMATCH,
                "%s: built for another tokenizer (expected %016llx, got %016llx)", t->name,
                (unsigned long long)tok_hash, (unsigned long long)t->h.tok_hash);
        err_hint(e,
                 "build a table for this model from the same texts: chimere engram build -m MODEL");
        return CHIMERE_EMISMATCH;
    }
    const unsigned char *body = t->data + ENGRAM_HEADER_BYTES;
    if (hash_bytes(body, (size_t)(t->size - ENGRAM_HEADER_BYTES), 0) != t->h.body_hash)
        return err_set(e, CHIMERE_ECHECKSUM, "%s: damaged n-gram table: the checksum differs",
                       t->name);
    t->text = (const uint32_t *)(t->data + t->h.off_text);
    t->docs = (const struct engram_doc_disk *)(t->data + t->h.off_doc);
    t->sources = (const struct engram_source_disk *)(t->data + t->h.off_source);
    t->names = (const char *)(t->data + t->h.off_name);
    t->records = t->data + t->h.off_record;
    t->slots = (const struct engram_slot *)(t->data + t->h.off_slot);
    if (t->h.n_order) t->order = (const uint32_t *)(t->data + t->h.off_order);
    rc = check_docs(t, e);
    return rc ? rc : check_text(t, e);
}

/* ---- opening ---- */

static int open_data(struct engram_table *t, uint64_t tok_hash, uint32_t n_vocab, struct err *e) {
    uint32_t magic = 0, version = 0;
    if (t->size >= 20) {
        memcpy(&magic, t->data, 4);
        memcpy(&version, t->data + 4, 4);
    }
    if (magic == 0x454e4752 && version == 1) {
        if (!tok_hash)
            return err_set(e, CHIMERE_EUNSUPPORTED,
                           "%s: a version 1 table does not say which tokenizer it belongs to",
                           t->name);
        t->h.tok_hash = tok_hash;
        return engram_legacy_open(t, n_vocab, e);
    }
    if (t->size < ENGRAM_HEADER_BYTES || memcmp(t->data, ENGRAM_MAGIC, 8) != 0)
        return err_set(e, CHIMERE_EFORMAT, "%s: not an n-gram table", t->name);
    memcpy(&version, t->data + 8, 4);
    if (version != ENGRAM_VERSION)
        return err_set(e, CHIMERE_EUNSUPPORTED, "%s: expected a table of version %d, got %u",
                       t->name, ENGRAM_VERSION, version);
    return open_current(t, tok_hash, e);
}

static int open_any(struct engram_table **out, struct engram_table *t, const char *name,
                    uint64_t tok_hash, uint32_t n_vocab, struct err *e) {
    t->name = mem_strdup(name);
    int rc =
        t->name ? open_data(t, tok_hash, n_vocab, e) : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (rc) {
        engram_table_close(t);
        return rc;
    }
    *out = t;
    return 0;
}

int engram_table_open_memory(struct engram_table **out, const void *data, size_t n,
                             const char *name, uint64_t tok_hash, uint32_t n_vocab, struct err *e) {
    *out = NULL;
    struct engram_table *t = mem_zalloc(sizeof *t);
    if (!t) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    t->data = data;
    t->size = n;
    return open_any(out, t, name, tok_hash, n_vocab, e);
}

int engram_table_open(struct engram_table **out, const char *path, uint64_t tok_hash,
                      uint32_t n_vocab, struct err *e) {
    *out = NULL;
    struct engram_table *t = mem_zalloc(sizeof *t);
    if (!t) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    int rc = file_map(&t->map, path, e);
    if (rc) {
        mem_free(t);
        return rc;
    }
    t->data = t->map.data;
    t->size = t->map.size;
    return open_any(out, t, path, tok_hash, n_vocab, e);
}

void engram_table_close(struct engram_table *t) {
    if (!t) return;
    if (t->loaded) munmap(t->loaded, t->loaded_bytes);
    file_unmap(&t->map);
    mem_free((char *)t->name);
    mem_free(t);
}

enum { LARGE_PAGE = 2 << 20 };

/* Reads the whole file into private memory; uses large pages if the file has at least two megabytes. */
static int read_all(struct engram_table *t, const char *path, int fd, uint64_t size,
                    struct err *e) {
    unsigned char *p =
        mmap(NULL, size + LARGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return err_set(e, CHIMERE_ENOMEM, "%s: out of memory", path);
    t->loaded = p;
    t->loaded_bytes = size + LARGE_PAGE;
    p = (unsigned char *)(((uintptr_t)p + LARGE_PAGE - 1) & ~(uintptr_t)(LARGE_PAGE - 1));
#ifdef MADV_HUGEPAGE
    if (size >= LARGE_PAGE) madvise(p, size, MADV_HUGEPAGE);
#endif
    for (uint64_t at = 0; at < size;) {
        ssize_t got = read(fd, p + at, size - at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return err_set(e, CHIMERE_EIO, "%s: cannot read: %s", path, strerror(errno));
        if (!got) return err_set(e, CHIMERE_EFORMAT, "%s: cut while it was read", path);
        at += (uint64_t)got;
    }
    mprotect(t->loaded, t->loaded_bytes, PROT_READ);
    t->data = p;
    t->size = size;
    return 0;
}

/* Lookups do not need the order, so its pages are freed. It is the last section. */
static void drop_order(struct engram_table *t) {
    if (!t->order) return;
    t->order = NULL;
    uintptr_t page = (uintptr_t)os_page_bytes(), end = (uintptr_t)t->loaded + t->loaded_bytes;
    uintptr_t from = ((uintptr_t)t->data + t->h.off_order + page - 1) / page * page;
    if (from < end && munmap((void *)from, end - from) == 0) t->loaded_bytes -= end - from;
}

int engram_table_load(struct engram_table **out, const char *path, uint64_t max_bytes,
                      uint64_t tok_hash, uint32_t n_vocab, struct err *e) {
    *out = NULL;
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool fits = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 &&
                (uint64_t)st.st_size <= max_bytes;
    if (!fits) { /* the file is mapped instead, or refused with a reason */
        if (fd >= 0) close(fd);
        return engram_table_open(out, path, tok_hash, n_vocab, e);
    }
    struct engram_table *t = mem_zalloc(sizeof *t);
    int rc = t ? read_all(t, path, fd, (uint64_t)st.st_size, e)
               : err_set(e, CHIMERE_ENOMEM, "out of memory");
    close(fd);
    if (rc) {
        engram_table_close(t);
        return rc;
    }
    rc = open_any(out, t, path, tok_hash, n_vocab, e);
    if (!rc) drop_order(t);
    return rc;
}

/* ---- queries ---- */

void engram_table_info(const struct engram_table *t, struct engram_info *out) {
    const struct engram_header *h = &t->h;
    *out = (struct engram_info){.version = t->old.order ? 1 : ENGRAM_VERSION,
                                .tok_hash = h->tok_hash,
                                .n_tok = t->old.order ? 0 : h->n_text - 1 - h->n_doc,
                                .n_entry = h->n_entry,
                                .n_bytes = t->size,
                                .n_vocab = h->n_vocab,
                                .n_doc = h->n_doc,
                                .n_source = h->n_source,
                                .order_min = h->order_min,
                                .order_max = h->order_max,
                                .decayed_at = h->decayed_at,
                                .n_weight = h->n_weight};
    memcpy(out->weights, h->weights, sizeof out->weights);
}

bool engram_table_doc(const struct engram_table *t, uint32_t i, struct engram_doc *out) {
    if (i >= t->h.n_doc) return false;
    const struct engram_doc_disk *d = &t->docs[i];
    *out = (struct engram_doc){.tokens = (const int32_t *)t->text + d->begin,
                               .n_tok = d->n_tok,
                               .source = d->source,
                               .weight = d->weight,
                               .time = d->time,
                               .hash = d->hash,
                               .begin = d->begin};
    return true;
}

bool engram_table_doc_at(const struct engram_table *t, uint32_t pos, struct engram_doc *out) {
    uint32_t low = 0, high = t->h.n_doc; /* find the last document that begins at or before pos */
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (t->docs[mid].begin <= pos) low = mid + 1;
        else high = mid;
    }
    return low && engram_table_doc(t, low - 1, out) && pos - out->begin < out->n_tok;
}

struct slice engram_table_source(const struct engram_table *t, uint32_t i, uint64_t *content_hash) {
    if (i >= t->h.n_source) return (struct slice){"", 0};
    const struct engram_source_disk *s = &t->sources[i];
    if (content_hash) *content_hash = s->content_hash;
    return (struct slice){t->names + s->name_at, s->n_name};
}

/* ---- verification ---- */

/* Checks that the context of `order` tokens before pos is in one document and that its hash matches the slot. */
static bool is_slot_right(const struct engram_table *t, const struct engram_slot *s,
                          uint64_t bucket) {
    int order = s->order & ~ENGRAM_SLOT_UNIQUE;
    if (order < ENGRAM_MIN_ORDER || order > ENGRAM_MAX_ORDER || s->pos >= t->h.n_text ||
        s->pos <= (uint32_t)order || t->text[s->pos] == ENGRAM_BOUNDARY || !s->count)
        return false;
    uint64_t acc = 0;
    for (int i = 1; i <= order; i++) {
        if (t->text[s->pos - (uint32_t)i] == ENGRAM_BOUNDARY) return false;
        acc = engram_hash_step(acc, t->text[s->pos - (uint32_t)i]);
    }
    uint64_t key = engram_key(acc, order), home = engram_bucket(key, t->h.n_bucket);
    uint64_t away = (bucket + t->h.n_bucket - home) % t->h.n_bucket;
    return (uint32_t)key == s->tag && away < t->h.max_probe;
}

static bool is_record_right(const struct engram_table *t, uint32_t record) {
    uint64_t at = (uint64_t)record * 8, sum = 0;
    uint32_t head[2], last = UINT32_MAX;
    if (at + 8 > t->h.record_bytes) return false;
    memcpy(head, t->records + at, 8);
    if (head[1] < 1 || head[1] > ENGRAM_MAX_NEXT || (t->h.record_bytes - at - 8) / 8 < head[1])
        return false;
    const struct engram_next *n = (const struct engram_next *)(t->records + at + 8);
    for (uint32_t i = 0; i < head[1]; i++) {
        if (n[i].token >= t->h.n_vocab || !n[i].count || n[i].count > last) return false;
        last = n[i].count;
        sum += last;
    }
    return sum <= head[0];
}

/* Checks that all positions are present, in strictly ascending order. */
static bool is_order_right(const struct engram_table *t) {
    int shared;
    for (uint64_t i = 0; i < t->h.n_order; i++)
        if (t->order[i] >= t->h.n_text || !engram_is_wanted(t->text, t->order[i]) ||
            (i && engram_compare(t->text, t->order[i - 1], t->order[i], &shared) >= 0))
            return false;
    return true;
}

int engram_table_verify(const struct engram_table *t, struct err *e) {
    if (t->old.order) return engram_legacy_verify(t, e);
    uint64_t n = 0;
    for (uint64_t b = 0; b < t->h.n_bucket; b++) {
        for (int k = 0; k < ENGRAM_BUCKET; k++) {
            const struct engram_slot *s = &t->slots[b * ENGRAM_BUCKET + (uint64_t)k];
            if (!s->order) continue;
            n++;
            if (!is_slot_right(t, s, b)) return bad(t, e, "a slot points to another context");
            if (s->record && !is_record_right(t, s->record)) return bad(t, e, "a record");
        }
    }
    if (n != t->h.n_entry) return bad(t, e, "the number of entries");
    if (t->order && !is_order_right(t)) return bad(t, e, "the order of the positions");
    for (uint32_t i = 0; i < t->h.n_doc; i++)
        if (hash_bytes(t->text + t->docs[i].begin, 4 * (size_t)t->docs[i].n_tok, 0) !=
            t->docs[i].hash)
            return bad(t, e, "the hash of a document");
    return 0;
}

/* ---- weights ---- */

int engram_table_set_weights(const char *path, const float *weights, uint32_t n, struct err *e) {
    struct engram_table *t;
    if (n > ENGRAM_N_WEIGHT)
        return err_set(e, CHIMERE_ELIMIT, "mixture: %u weights are too many", n);
    int rc = engram_table_open(&t, path, 0, 0, e);
    if (rc) return rc;
    struct engram_header h = t->h;
    struct file_writer w;
    h.n_weight = n;
    memset(h.weights, 0, sizeof h.weights);
    memcpy(h.weights, weights, n * sizeof *weights);
    h.header_hash = 0;
    h.header_hash = hash_bytes(&h, sizeof h, 0);
    rc = file_writer_open(&w, path, e);
    if (!rc) {
        fwrite(&h, sizeof h, 1, w.f);
        fwrite(t->data + sizeof h, 1, (size_t)(t->size - sizeof h), w.f);
        rc = file_writer_commit(&w, e);
    }
    engram_table_close(t);
    return rc;
}

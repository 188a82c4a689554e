/* build.c: writes a table. Text, documents and sources are written to the output first. Records follow while the
 * sorted positions are read. Slots are written last, when their number is known, through a memory map of the file. */
#include "engram/build.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/map.h"
#include "base/mem.h"
#include "engram/sort_impl.h"
#include "engram/table_impl.h"

enum { MAX_NAMES = 1 << 28, PROGRESS_EVERY = 1 << 16, AHEAD = 12 };

/* An existing table whose order of positions is reused. */
struct reused {
    struct engram_kept kept; /* owns begin and near */
    struct known {
        uint64_t key; /* hash of a document's tokens and the name of its source */
        uint32_t doc;
    } * known; /* owned [n_doc], ascending */
    /* number of the next document that may match: reused documents must be in the same sequence */
    uint32_t next;
};

struct range {
    uint32_t begin, end; /* range of positions in the text */
};

struct engram_builder {
    struct file_writer w;
    struct engram_build_params p;
    struct engram_header h;
    struct engram_doc_disk *docs; /* owned [cap_doc] */
    size_t cap_doc;
    struct engram_source_disk *sources; /* owned [cap_source] */
    size_t cap_source;
    struct buf names;
    struct map source_ids, seen; /* seen: hashes of the documents of each source */
    struct reused *reused;       /* owned [n_reused] */
    size_t n_reused, cap_reused;
    struct range *fresh; /* owned [n_fresh]: ranges that must be sorted */
    size_t n_fresh, cap_fresh;
    uint64_t n_fresh_doc, n_fresh_tok;
};

/* Counts of the current context, one group per order. */
struct group {
    uint32_t *count; /* owned [n_vocab]: weight per continuation; zero if not in the list */
    uint32_t *list;  /* owned: continuations seen so far */
    /* owned [n_doc]: serial number of the last group that counted the document */
    uint32_t *doc_seen;
    uint32_t n_list, cap_list, n_doc, serial, first_pos;
    uint64_t total;
};

struct spooled {
    uint64_t key;
    struct engram_slot slot;
};

struct indexing {
    struct engram_builder *b;
    const uint32_t *text;
    const uint32_t *near; /* from engram_near_new */
    FILE *spool;          /* one struct spooled per entry */
    FILE *order;          /* all positions in sorted order */
    struct group groups[ENGRAM_MAX_ORDER + 1];
    struct engram_next *sorted; /* owned [n_vocab] */
    uint64_t record_at;         /* bytes of records written so far */
};

static int no_memory(struct err *e) { return err_set(e, CHIMERE_ENOMEM, "out of memory"); }

static int write_failed(const struct engram_builder *b, struct err *e) {
    return err_set(e, CHIMERE_EIO, "%s: cannot write: %s", b->w.temp, strerror(errno));
}

/* ---- documents ---- */

int engram_builder_new(struct engram_builder **out, const char *path,
                       const struct engram_build_params *p, struct err *e) {
    *out = NULL;
    if (p->n_vocab < 1 || p->n_vocab > ENGRAM_MAX_VOCAB)
        return err_set(e, CHIMERE_ELIMIT, "vocabulary: expected 1 to %d tokens, got %u",
                       ENGRAM_MAX_VOCAB, p->n_vocab);
    struct engram_builder *b = mem_zalloc(sizeof *b);
    if (!b) return no_memory(e);
    b->p = *p;
    if (!b->p.memory_bytes) b->p.memory_bytes = (size_t)256 << 20;
    if (b->p.memory_bytes < 1 << 20) b->p.memory_bytes = 1 << 20;
    memcpy(b->h.magic, ENGRAM_MAGIC, sizeof b->h.magic);
    b->h.version = ENGRAM_VERSION;
    b->h.header_bytes = ENGRAM_HEADER_BYTES;
    b->h.tok_hash = p->tok_hash;
    b->h.n_vocab = p->n_vocab;
    b->h.order_min = ENGRAM_MIN_ORDER;
    b->h.order_max = ENGRAM_MAX_ORDER;
    b->h.decayed_at = p->decayed_at;
    b->h.n_weight = p->n_weight < ENGRAM_N_WEIGHT ? p->n_weight : ENGRAM_N_WEIGHT;
    if (p->weights) memcpy(b->h.weights, p->weights, b->h.n_weight * sizeof *p->weights);
    buf_init(&b->names, MAX_NAMES);
    map_init(&b->source_ids, MAX_NAMES);
    map_init(&b->seen, MAX_NAMES);
    int rc = file_writer_open(&b->w, path, e);
    if (!rc) {
        const uint32_t boundary = ENGRAM_BOUNDARY;
        fwrite(&b->h, sizeof b->h, 1, b->w.f); /* placeholder, replaced at the end */
        if (fwrite(&boundary, 4, 1, b->w.f) != 1) rc = write_failed(b, e);
        b->h.off_text = ENGRAM_HEADER_BYTES;
        b->h.n_text = 1;
    }
    if (rc) engram_builder_abort(b);
    else *out = b;
    return rc;
}

/* Makes room for one more element after n elements. */
static bool grow(void **p, size_t *cap, size_t n, size_t size) {
    if (n < *cap) return true;
    size_t more = *cap ? 2 * *cap : 64;
    void *q = mem_realloc(*p, more * size);
    if (!q) return false;
    *p = q;
    *cap = more;
    return true;
}

int engram_builder_source(struct engram_builder *b, struct slice name, uint64_t content_hash,
                          uint32_t *id, struct err *e) {
    if (name.n > ENGRAM_MAX_SOURCE_NAME || !utf8_is_valid(name.p, name.n))
        return err_set(e, CHIMERE_EINVAL, "source: expected a name in UTF-8 of at most %d bytes",
                       ENGRAM_MAX_SOURCE_NAME);
    if (map_find(&b->source_ids, name.p, name.n, id)) return 0;
    if (!grow((void **)&b->sources, &b->cap_source, b->h.n_source, sizeof *b->sources))
        return no_memory(e);
    *id = b->h.n_source;
    b->sources[*id] =
        (struct engram_source_disk){content_hash, (uint32_t)b->names.n, (uint32_t)name.n};
    int rc = buf_put(&b->names, name.p, name.n);
    if (!rc) rc = map_put(&b->source_ids, name.p, name.n, *id);
    if (rc < 0) return err_set(e, rc, "names of sources: %s", err_name(rc));
    b->h.n_source++;
    return 0;
}

/* ---- reusing the order of an existing table ---- */

static uint64_t known_key(uint64_t doc_hash, struct slice source) {
    return hash_mix(doc_hash ^ hash_bytes(source.p, source.n, 1));
}

static int by_key(const void *a, const void *b) {
    const struct known *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->doc < y->doc ? -1 : x->doc > y->doc;
}

int engram_builder_reuse(struct engram_builder *b, const struct engram_table *t, struct err *e) {
    if (!t->order) return 0;
    if (!grow((void **)&b->reused, &b->cap_reused, b->n_reused, sizeof *b->reused))
        return no_memory(e);
    struct reused *r = &b->reused[b->n_reused++];
    *r = (struct reused){.kept = {.t = t,
                                  .begin = mem_alloc_array(t->h.n_doc, sizeof *r->kept.begin),
                                  .near = engram_near_new(t->docs, t->h.n_doc, t->h.n_text)},
                         .known = mem_alloc_array(t->h.n_doc, sizeof *r->known)};
    if (!r->kept.begin || !r->kept.near || !r->known) return no_memory(e);
    for (uint32_t i = 0; i < t->h.n_doc; i++) {
        struct slice source = engram_table_source(t, t->docs[i].source, NULL);
        r->known[i] = (struct known){known_key(t->docs[i].hash, source), i};
    }
    qsort(r->known, t->h.n_doc, sizeof *r->known, by_key);
    return 0;
}

/* Returns the first document of r, from r->next on, that has this key; UINT32_MAX: none. */
static uint32_t known_doc(const struct reused *r, uint64_t key) {
    const struct known want = {key, r->next};
    uint32_t low = 0, high = r->kept.t->h.n_doc;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (by_key(&r->known[mid], &want) < 0) low = mid + 1;
        else high = mid;
    }
    return low < r->kept.t->h.n_doc && r->known[low].key == key ? r->known[low].doc : UINT32_MAX;
}

/* Returns true if an existing table has already sorted the new document. */
static bool keep(struct engram_builder *b, const int32_t *tokens, size_t n,
                 const struct engram_doc_disk *d) {
    const struct engram_source_disk *s = &b->sources[d->source];
    uint64_t key = known_key(d->hash, (struct slice){b->names.p + s->name_at, s->n_name});
    for (size_t i = 0; i < b->n_reused; i++) {
        struct reused *r = &b->reused[i];
        uint32_t doc = known_doc(r, key);
        if (doc == UINT32_MAX || r->kept.t->docs[doc].n_tok != n ||
            memcmp(r->kept.t->text + r->kept.t->docs[doc].begin, tokens, n * sizeof *tokens) != 0)
            continue;
        r->kept.begin[doc] = d->begin;
        r->next = doc + 1;
        return true;
    }
    return false;
}

/* Marks the next n tokens as a range that must be sorted. */
static bool put_fresh(struct engram_builder *b, size_t n) {
    uint32_t begin = (uint32_t)b->h.n_text, end = (uint32_t)(begin + n);
    b->n_fresh_doc++;
    b->n_fresh_tok += n;
    if (b->n_fresh && b->fresh[b->n_fresh - 1].end + 1 == begin) {
        b->fresh[b->n_fresh - 1].end = end;
        return true;
    }
    if (!grow((void **)&b->fresh, &b->cap_fresh, b->n_fresh, sizeof *b->fresh)) return false;
    b->fresh[b->n_fresh++] = (struct range){begin, end};
    return true;
}

void engram_builder_count(const struct engram_builder *b, uint64_t *n_doc, uint64_t *n_fresh) {
    *n_doc = b->h.n_doc;
    *n_fresh = b->n_fresh_doc;
}

int engram_builder_doc(struct engram_builder *b, const int32_t *tokens, size_t n, uint32_t source,
                       int64_t time, uint32_t weight, struct err *e) {
    if (!n) return 0;
    if (b->h.n_text + n + 1 >= UINT32_MAX || b->h.n_doc == ENGRAM_MAX_DOC)
        return err_set(e, CHIMERE_ELIMIT,
                       "a table holds at most 4 G tokens and %d documents; split the text",
                       ENGRAM_MAX_DOC);
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= b->p.n_vocab)
            return err_set(e, CHIMERE_EINVAL, "token %d is none of the %u of the vocabulary",
                           tokens[i], b->p.n_vocab);
    uint64_t id[2] = {hash_bytes(tokens, n * sizeof *tokens, 0), source};
    int rc = map_put(&b->seen, (const char *)id, sizeof id, 0);
    if (rc == 1) return 0;
    if (rc || !grow((void **)&b->docs, &b->cap_doc, b->h.n_doc, sizeof *b->docs))
        return no_memory(e);
    b->docs[b->h.n_doc++] = (struct engram_doc_disk){.hash = id[0],
                                                     .time = time,
                                                     .begin = (uint32_t)b->h.n_text,
                                                     .n_tok = (uint32_t)n,
                                                     .source = source,
                                                     .weight = weight};
    if (!keep(b, tokens, n, &b->docs[b->h.n_doc - 1]) && !put_fresh(b, n)) return no_memory(e);
    const uint32_t boundary = ENGRAM_BOUNDARY;
    fwrite(tokens, sizeof *tokens, n, b->w.f);
    if (fwrite(&boundary, 4, 1, b->w.f) != 1) return write_failed(b, e);
    b->h.n_text += n + 1;
    return 0;
}

/* ---- sections ---- */

static int align(struct engram_builder *b, uint64_t *at, struct err *e) {
    static const char zero[ENGRAM_ALIGN];
    off_t here = ftello(b->w.f);
    if (here < 0) return write_failed(b, e);
    size_t n = (ENGRAM_ALIGN - (size_t)here % ENGRAM_ALIGN) % ENGRAM_ALIGN;
    if (n && fwrite(zero, n, 1, b->w.f) != 1) return write_failed(b, e);
    *at = (uint64_t)here + n;
    return 0;
}

/* Drops sources without documents. */
static void pack_sources(struct engram_builder *b) {
    uint32_t n = 0;
    uint32_t *to = mem_alloc_array((size_t)b->h.n_source + 1, sizeof *to);
    if (!to) return; /* without memory the sources stay, which is harmless */
    for (uint32_t i = 0; i < b->h.n_doc; i++) to[b->docs[i].source] = 1;
    for (uint32_t i = 0; i < b->h.n_source; i++) {
        if (!to[i]) continue;
        b->sources[n] = b->sources[i];
        to[i] = n++;
    }
    for (uint32_t i = 0; i < b->h.n_doc; i++) b->docs[i].source = to[b->docs[i].source];
    b->h.n_source = n;
    mem_free(to);
}

static int write_plain(struct engram_builder *b, struct err *e) {
    pack_sources(b);
    int rc = align(b, &b->h.off_doc, e);
    if (!rc) fwrite(b->docs, sizeof *b->docs, b->h.n_doc, b->w.f);
    if (!rc) rc = align(b, &b->h.off_source, e);
    if (!rc) fwrite(b->sources, sizeof *b->sources, b->h.n_source, b->w.f);
    if (!rc) rc = align(b, &b->h.off_name, e);
    if (!rc) fwrite(b->names.n ? b->names.p : "", 1, b->names.n, b->w.f);
    b->h.name_bytes = b->names.n;
    if (!rc) rc = align(b, &b->h.off_record, e);
    if (!rc && (fflush(b->w.f) || ferror(b->w.f))) rc = write_failed(b, e);
    return rc;
}

/* ---- counting ---- */

static int group_add(struct group *g, uint32_t pos, uint32_t token, uint32_t doc, uint32_t weight) {
    if (!g->total) {
        g->first_pos = pos;
        g->n_doc = 0;
        g->serial++;
    }
    if (pos < g->first_pos) g->first_pos = pos;
    g->total += weight;
    if (!g->count[token]) {
        size_t cap = g->cap_list;
        if (!grow((void **)&g->list, &cap, g->n_list, sizeof *g->list)) return CHIMERE_ENOMEM;
        g->cap_list = (uint32_t)cap;
        g->list[g->n_list++] = token;
    }
    uint64_t sum = (uint64_t)g->count[token] + weight;
    g->count[token] = sum > UINT32_MAX ? UINT32_MAX : (uint32_t)sum;
    if (g->doc_seen[doc] != g->serial) {
        g->doc_seen[doc] = g->serial;
        g->n_doc++;
    }
    return 0;
}

static int by_count(const void *a, const void *b) {
    const struct engram_next *x = a, *y = b;
    if (x->count != y->count) return x->count > y->count ? -1 : 1;
    return x->token < y->token ? -1 : x->token > y->token;
}

static int put_record(struct indexing *x, struct group *g, uint32_t *record) {
    uint32_t n = 0, head[2];
    for (uint32_t i = 0; i < g->n_list; i++)
        x->sorted[n++] = (struct engram_next){g->list[i], g->count[g->list[i]]};
    qsort(x->sorted, n, sizeof *x->sorted, by_count);
    if (n > ENGRAM_MAX_NEXT) n = ENGRAM_MAX_NEXT;
    head[0] = g->total > UINT32_MAX ? UINT32_MAX : (uint32_t)g->total;
    head[1] = n;
    if (x->record_at / 8 > UINT32_MAX - 1) return CHIMERE_ELIMIT;
    *record = (uint32_t)(x->record_at / 8);
    fwrite(head, sizeof head, 1, x->b->w.f);
    if (fwrite(x->sorted, sizeof *x->sorted, n, x->b->w.f) != n) return CHIMERE_EIO;
    x->record_at += 8 + 8 * (uint64_t)n;
    return 0;
}

static int put_entry(struct indexing *x, uint32_t pos, int order, struct engram_slot slot) {
    uint64_t acc = 0;
    for (int i = 1; i <= order; i++) acc = engram_hash_step(acc, x->text[pos - (uint32_t)i]);
    struct spooled s = {.key = engram_key(acc, order), .slot = slot};
    s.slot.tag = (uint32_t)s.key;
    s.slot.pos = pos;
    x->b->h.n_entry++;
    return fwrite(&s, sizeof s, 1, x->spool) == 1 ? 0 : CHIMERE_EIO;
}

static int group_close(struct indexing *x, struct group *g, int order) {
    struct engram_slot s = {.order = (uint8_t)order,
                            .n_doc = (uint8_t)(g->n_doc < 255 ? g->n_doc : 255),
                            .count = (uint16_t)(g->total < UINT16_MAX ? g->total : UINT16_MAX)};
    int rc = 0;
    if (g->n_list > 1 || g->total > UINT16_MAX) rc = put_record(x, g, &s.record);
    if (!rc) rc = put_entry(x, g->first_pos, order, s);
    for (uint32_t i = 0; i < g->n_list; i++) g->count[g->list[i]] = 0;
    g->n_list = 0;
    g->total = 0;
    return rc;
}

static int context_length(const uint32_t *text, uint32_t pos) {
    int n = 0;
    while (n < ENGRAM_MAX_ORDER && text[pos - 1 - (uint32_t)n] != ENGRAM_BOUNDARY) n++;
    return n;
}

/* Counts one position. with_last and with_next: number of context tokens that it shares with its neighbours in
 * sorted order. */
static int count_position(struct indexing *x, uint32_t pos, int with_last, int with_next) {
    int shared = with_last > with_next ? with_last : with_next, rc = 0;
    uint32_t doc = engram_near_doc(x->near, x->b->docs, x->b->h.n_doc, pos);
    uint32_t weight = x->b->docs[doc].weight;
    for (int k = ENGRAM_MIN_ORDER; k <= shared && !rc; k++) {
        rc = group_add(&x->groups[k], pos, x->text[pos], doc, weight);
        if (!rc && k > with_next) rc = group_close(x, &x->groups[k], k);
    }
    int unique = shared + 1 > ENGRAM_MIN_ORDER ? shared + 1 : ENGRAM_MIN_ORDER;
    if (rc || unique > ENGRAM_MAX_ORDER || context_length(x->text, pos) < unique) return rc;
    return put_entry(x, pos, unique,
                     (struct engram_slot){.order = (uint8_t)(unique | ENGRAM_SLOT_UNIQUE),
                                          .n_doc = 1,
                                          .count = (uint16_t)weight});
}

static int count_all(struct indexing *x, struct engram_sort *s) {
    uint32_t pos = 0, next = 0;
    int with_last = 0, more = engram_sort_next(s, &pos), rc = more < 0 ? more : 0;
    uint64_t done = 0;
    for (; more > 0 && !rc; done++) {
        int with_next = 0;
        if (fwrite(&pos, sizeof pos, 1, x->order) != 1) return CHIMERE_EIO;
        more = engram_sort_next(s, &next);
        if (more < 0) return more;
        /* check the order, because a reused table may be damaged */
        if (more && engram_compare(x->text, pos, next, &with_next) >= 0) return CHIMERE_EFORMAT;
        rc = count_position(x, pos, with_last, with_next);
        with_last = with_next;
        pos = next;
        if (x->b->p.progress && done % PROGRESS_EVERY == 0)
            x->b->p.progress(x->b->p.ud, done, x->b->h.n_order);
    }
    return rc || done == x->b->h.n_order ? rc : CHIMERE_EFORMAT;
}

static int groups_new(struct indexing *x) {
    size_t n_vocab = x->b->p.n_vocab, n_doc = x->b->h.n_doc;
    x->sorted = mem_alloc_array(n_vocab, sizeof *x->sorted);
    for (int k = ENGRAM_MIN_ORDER; k <= ENGRAM_MAX_ORDER; k++) {
        struct group *g = &x->groups[k];
        g->count = mem_alloc_array(n_vocab, sizeof *g->count);
        g->doc_seen = mem_alloc_array(n_doc + 1, sizeof *g->doc_seen);
        if (!g->count || !g->doc_seen) return CHIMERE_ENOMEM;
    }
    return x->sorted ? 0 : CHIMERE_ENOMEM;
}

static void groups_free(struct indexing *x) {
    mem_free(x->sorted);
    for (int k = ENGRAM_MIN_ORDER; k <= ENGRAM_MAX_ORDER; k++) {
        mem_free(x->groups[k].count);
        mem_free(x->groups[k].list);
        mem_free(x->groups[k].doc_seen);
    }
}

/* ---- slots ---- */

/* Fills n_bucket zeroed buckets from the spool. Returns 1 if they are too full. */
static int fill_slots(FILE *spool, struct engram_slot *slots, struct engram_header *h) {
    struct spooled batch[512];
    size_t n;
    uint32_t longest = 1;
    rewind(spool);
    while ((n = fread(batch, sizeof *batch, 512, spool)) > 0) {
        for (size_t i = 0; i < n; i++) {
            size_t ahead = i + AHEAD < n ? i + AHEAD : n - 1;
            __builtin_prefetch(slots + engram_bucket(batch[ahead].key, h->n_bucket) * ENGRAM_BUCKET,
                               1);
            uint64_t bucket = engram_bucket(batch[i].key, h->n_bucket);
            uint32_t probe = 1;
            int k = 0;
            for (;; probe++) {
                struct engram_slot *s = slots + bucket * ENGRAM_BUCKET;
                for (k = 0; k < ENGRAM_BUCKET && s[k].order; k++) {}
                if (k < ENGRAM_BUCKET) break;
                if (probe == ENGRAM_MAX_PROBE) return 1;
                if (++bucket == h->n_bucket) bucket = 0;
            }
            slots[bucket * ENGRAM_BUCKET + (uint64_t)k] = batch[i].slot;
            if (probe > longest) longest = probe;
        }
    }
    h->max_probe = longest;
    return ferror(spool) ? CHIMERE_EIO : 0;
}

static int write_slots(struct engram_builder *b, FILE *spool, FILE *order, struct err *e) {
    struct engram_header *h = &b->h;
    int rc = align(b, &h->off_slot, e);
    /* flush first, because rewind() does not report write errors */
    if (!rc && (fflush(b->w.f) || fflush(spool) || fflush(order))) rc = write_failed(b, e);
    if (rc) return rc;
    int fd = open(b->w.temp, O_RDWR | O_CLOEXEC); /* the writer's descriptor cannot be read from */
    if (fd < 0) return write_failed(b, e);
    h->n_bucket = h->n_entry / 3 + 1; /* three of four slots are used */
    for (rc = 1; rc == 1; h->n_bucket += rc == 1 ? h->n_bucket / 4 + 1 : 0) {
        h->off_order = h->off_slot + h->n_bucket * ENGRAM_BUCKET * sizeof(struct engram_slot);
        h->file_bytes = h->off_order + 4 * h->n_order;
        unsigned char *map = MAP_FAILED;
        /* Allocate all blocks: if the disk is full, writing to a hole of the map would end the program with a
         * signal. */
        rc = ftruncate(fd, (off_t)h->off_slot) ? errno : 0;
        if (!rc) rc = posix_fallocate(fd, (off_t)h->off_slot, (off_t)(h->file_bytes - h->off_slot));
        if (rc) errno = rc;
        else map = mmap(NULL, (size_t)h->file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (map == MAP_FAILED) {
            close(fd);
            return write_failed(b, e);
        }
        rc = fill_slots(spool, (struct engram_slot *)(map + h->off_slot), h);
        rewind(order);
        if (!rc && fread(map + h->off_order, 4, h->n_order, order) != h->n_order) rc = CHIMERE_EIO;
        if (!rc) {
            h->body_hash = hash_bytes(map + ENGRAM_HEADER_BYTES,
                                      (size_t)(h->file_bytes - ENGRAM_HEADER_BYTES), 0);
            h->header_hash = hash_bytes(h, sizeof *h, 0);
            memcpy(map, h, sizeof *h);
        }
        munmap(map, (size_t)h->file_bytes);
    }
    close(fd);
    return rc ? err_set(e, rc, "%s: entries: %s", b->w.temp, err_name(rc)) : 0;
}

/* ---- finishing ---- */

struct scratches {
    FILE *spool, *spill, *order;
};

/* Opens a temporary file without a name in the folder of the output. */
static FILE *scratch(const struct engram_builder *b) {
    char path[4096];
    if ((size_t)snprintf(path, sizeof path, "%s.XXXXXX", b->w.temp) >= sizeof path) return NULL;
    int fd = mkstemp(path);
    if (fd < 0) return NULL;
    unlink(path);
    FILE *f = fdopen(fd, "w+b");
    if (!f) close(fd);
    return f;
}

static int sort_text(struct engram_builder *b, const uint32_t *text, FILE *spill,
                     struct engram_sort **s) {
    int rc = engram_sort_new(s, text, b->n_fresh_tok, b->p.memory_bytes, spill);
    for (size_t i = 0; i < b->n_reused && !rc; i++)
        if (b->reused[i].next) rc = engram_sort_keep(*s, &b->reused[i].kept);
    for (size_t i = 0; i < b->n_fresh && !rc; i++)
        rc = engram_sort_add(*s, b->fresh[i].begin, b->fresh[i].end);
    return rc ? rc : engram_sort_begin(*s);
}

static int index_text(struct engram_builder *b, struct scratches *f, struct err *e) {
    struct file_map map;
    int rc = file_map(&map, b->w.temp, e);
    if (rc) return rc;
    uint32_t *near = engram_near_new(b->docs, b->h.n_doc, b->h.n_text);
    struct indexing x = {.b = b,
                         .text = (const uint32_t *)(map.data + ENGRAM_HEADER_BYTES),
                         .near = near,
                         .spool = f->spool,
                         .order = f->order,
                         .record_at = 8}; /* record 0 means "no record" */
    struct engram_sort *s = NULL;
    static const char zero[8];
    fwrite(zero, sizeof zero, 1, b->w.f);
    rc = near ? groups_new(&x) : CHIMERE_ENOMEM;
    if (!rc) rc = sort_text(b, x.text, f->spill, &s);
    if (!rc) rc = count_all(&x, s);
    if (rc == CHIMERE_ENOMEM) no_memory(e);
    else if (rc == CHIMERE_EFORMAT)
        err_set(e, rc, "damaged n-gram table: its positions are not in order; build it anew");
    else if (rc == CHIMERE_EIO) write_failed(b, e);
    else if (rc) err_set(e, rc, "%s: index: %s", b->w.temp, err_name(rc));
    b->h.record_bytes = x.record_at;
    engram_sort_free(s);
    groups_free(&x);
    mem_free(near);
    file_unmap(&map);
    return rc;
}

static void release(struct engram_builder *b) {
    for (size_t i = 0; i < b->n_reused; i++) {
        mem_free(b->reused[i].kept.begin);
        mem_free(b->reused[i].kept.near);
        mem_free(b->reused[i].known);
    }
    mem_free(b->reused);
    mem_free(b->fresh);
    mem_free(b->docs);
    mem_free(b->sources);
    buf_fini(&b->names);
    map_fini(&b->source_ids);
    map_fini(&b->seen);
    mem_free(b);
}

int engram_builder_finish(struct engram_builder *b, struct err *e) {
    struct scratches f = {scratch(b), scratch(b), scratch(b)};
    for (uint32_t i = 0; i < b->h.n_doc; i++)
        b->h.n_order +=
            b->docs[i].n_tok > ENGRAM_MIN_ORDER ? b->docs[i].n_tok - ENGRAM_MIN_ORDER : 0;
    int rc = f.spool && f.spill && f.order ? write_plain(b, e) : write_failed(b, e);
    if (!rc && b->p.refuse_empty && !b->h.n_order)
        rc = err_set(e, CHIMERE_EINVAL,
                     "the table would be empty: expected a text of more than %d tokens",
                     ENGRAM_MIN_ORDER);
    if (!rc) rc = index_text(b, &f, e);
    if (!rc) rc = write_slots(b, f.spool, f.order, e);
    if (f.spool) fclose(f.spool);
    if (f.spill) fclose(f.spill);
    if (f.order) fclose(f.order);
    if (rc) file_writer_abort(&b->w);
    else rc = file_writer_commit(&b->w, e);
    release(b);
    return rc;
}

void engram_builder_abort(struct engram_builder *b) {
    if (!b) return;
    file_writer_abort(&b->w);
    release(b);
}

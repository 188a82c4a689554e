/* table_impl.h: version 2 of the table format, little-endian throughout.
 *
 * The file contains the text itself, as tokens, and an index over its contexts. This has three uses. The key of a
 * context need not be stored, because a slot points to a position where the context occurs. Every record knows the
 * documents that it comes from (provenance, time stamp and weight belong to documents). And merge, decay and
 * forget only choose documents and build a new index.
 *
 *   offset  size            section
 *   0       512             header, struct engram_header
 *   512     4 * n_text      text: token ids; ENGRAM_BOUNDARY before, between and after documents
 *   ...     40 * n_doc      documents, struct engram_doc_disk, in the order of the text
 *   ...     16 * n_source   sources, struct engram_source_disk
 *   ...     name_bytes      names of the sources, UTF-8 without terminators
 *   ...     record_bytes    records: uint32 total, uint32 n_next, n_next * {uint32 token, uint32 count}
 *   ...     64 * n_bucket   slots, struct engram_slot; a bucket has four and is one cache line
 *   ...     4 * n_order     order: the positions with two preceding tokens or more, sorted by context, newest
 *                           token first, then by position; size 0: absent. A table built from this one need
 *                           not sort the documents that it keeps. Lookups never read it
 *
 * Sections start at multiples of 64; gaps are zero. body_hash is hash_bytes of everything after the header,
 * header_hash is the hash of the header with that field zero.
 *
 * A position p stands for the context that ends before text[p] and for its continuation text[p]. An entry is one
 * context of `order` tokens. Its key is engram_key() over them, newest first. Its bucket is key * n_bucket >> 64,
 * or one of the next max_probe - 1; a bucket with a free slot ends the search. There is an entry for every context
 * of order 2..8 that occurs at two positions or more. If the context of a position is unique, only the shortest
 * unique one has an entry (order 2 at least); the longer ones are checked against the text. That limits the table
 * to about two entries per token.
 *
 * If a context has one continuation and its weight fits 16 bits, the slot itself contains it (record 0). Otherwise
 * the continuations are in the record at 8 * record: by weight, descending, then by token; at most
 * ENGRAM_MAX_NEXT. */
#ifndef CHIMERE_ENGRAM_TABLE_IMPL_H
#define CHIMERE_ENGRAM_TABLE_IMPL_H

#include "base/file.h"
#include "base/hash.h"
#include "engram/table.h"

#define ENGRAM_MAGIC "CHENGRAM"
enum {
    ENGRAM_VERSION = 2,
    ENGRAM_HEADER_BYTES = 512,
    ENGRAM_ALIGN = 64,
    ENGRAM_BUCKET = 4,
    ENGRAM_MAX_PROBE = 64,
    ENGRAM_MAX_SOURCE_NAME = 4096,
    ENGRAM_SLOT_UNIQUE = 0x80, /* in slot.order: the context occurs at one position */
};

struct engram_header {
    char magic[8];
    uint32_t version, header_bytes;
    uint64_t file_bytes, tok_hash;
    uint32_t n_vocab;
    uint16_t order_min, order_max;
    uint64_t n_text, n_entry, n_bucket;
    uint32_t n_doc, n_source, max_probe, n_weight;
    uint64_t record_bytes, name_bytes;
    uint64_t off_text, off_doc, off_source, off_name, off_record, off_slot;
    int64_t decayed_at;
    uint64_t body_hash, header_hash;
    float weights[ENGRAM_N_WEIGHT];
    uint64_t off_order, n_order;
    unsigned char zero[ENGRAM_HEADER_BYTES - 312];
};
_Static_assert(sizeof(struct engram_header) == ENGRAM_HEADER_BYTES, "header layout");

struct engram_doc_disk {
    uint64_t hash;
    int64_t time;
    uint32_t begin, n_tok, source, weight;
    uint64_t zero;
};
_Static_assert(sizeof(struct engram_doc_disk) == 40, "document layout");

struct engram_source_disk {
    uint64_t content_hash;
    uint32_t name_at, n_name;
};
_Static_assert(sizeof(struct engram_source_disk) == 16, "source layout");

struct engram_slot { /* all zero: free */
    uint32_t tag;    /* low half of the key */
    uint32_t pos;
    /* in units of 8 bytes, the first is never used; 0: the continuation is at pos in the text */
    uint32_t record;
    uint16_t count; /* weight if record is 0 */
    uint8_t n_doc;  /* at most 255 */
    uint8_t order;
};
_Static_assert(sizeof(struct engram_slot) == 16, "slot layout");

struct engram_table {
    struct file_map map;       /* owned; empty if the table is in loaded or borrowed memory */
    const char *name;          /* owned */
    const unsigned char *data; /* view of map or loaded, or borrowed until engram_table_close */
    uint64_t size;
    struct engram_header h;
    const uint32_t *text; /* views of data, as the following */
    const struct engram_doc_disk *docs;
    const struct engram_source_disk *sources;
    const char *names;
    const unsigned char *records;
    const struct engram_slot *slots;
    const uint32_t *order; /* NULL: the file has none, or it was freed after loading */
    void *loaded;          /* owned, freed by munmap; NULL: not allocated here */
    size_t loaded_bytes;
    struct { /* version 1 */
        uint32_t order, n_slot;
        const unsigned char *slots, *data;
        uint64_t data_bytes;
    } old;
};

/* Extends the hash of a context by one token, from the newest token backwards. The key of the first k tokens is
 * engram_key(acc, k). */
static inline uint64_t engram_hash_step(uint64_t acc, uint32_t token) {
    acc = (acc ^ token) * 0x9e3779b97f4a7c15ULL;
    return acc ^ acc >> 29;
}
static inline uint64_t engram_key(uint64_t acc, int order) {
    return hash_mix(acc + (uint64_t)order * 0xd6e8feb86659fd93ULL);
}
static inline uint64_t engram_bucket(uint64_t key, uint64_t n_bucket) {
    return (uint64_t)((unsigned __int128)key * n_bucket >> 64);
}

/* Version 1: legacy.c. */
int engram_legacy_open(struct engram_table *t, uint32_t n_vocab, struct err *e);
int engram_legacy_lookup(const struct engram_table *t, const int32_t *ctx, int32_t n_ctx,
                         struct engram_hit *hit);
int engram_legacy_verify(const struct engram_table *t, struct err *e);

#endif

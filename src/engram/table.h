/* table.h: an n-gram memory on disk: what followed each context of 2 to 8 tokens in the user's texts.
 *
 * Hides the file format (table_impl.h) and the hashing. A table is immutable: it is replaced by rename, and an
 * open one continues to use the file that it mapped or loaded. Contexts are verified token by token, never only by
 * their hash. The bytes are untrusted: opening checks the checksum, the bounds of every section and all documents.
 * Other data is checked when it is read, so a forged file can cause wrong counts but no invalid access. Any number
 * of threads may read an open table.
 *
 * Version 1 files (.engr: one order, hashes without keys) open as unverified tables if the caller says which
 * tokenizer they belong to. Rebuild them from the text to upgrade. */
#ifndef CHIMERE_ENGRAM_TABLE_H
#define CHIMERE_ENGRAM_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

enum {
    ENGRAM_MIN_ORDER = 2,
    ENGRAM_MAX_ORDER = 8,
    ENGRAM_N_ORDER = 7,
    ENGRAM_UNIT = 16, /* counts are in sixteenths of an occurrence, so that decay needs no floats */
    ENGRAM_MAX_NEXT = 128, /* continuations stored per context; the total counts all of them */
    ENGRAM_N_WEIGHT = 32,  /* room in the header for the mixture's weights */
    ENGRAM_MAX_VOCAB = (1 << 21) - 1,
    ENGRAM_MAX_DOC = 1 << 22,
};

#define ENGRAM_BOUNDARY UINT32_MAX /* separates documents; no token has this value */

struct engram_next {
    uint32_t token, count; /* count in 1/ENGRAM_UNIT occurrences */
};

/* What followed one context. */
struct engram_hit {
    int32_t order; /* tokens of the context that agree; 0: none */
    /* occurrences, in 1/ENGRAM_UNIT, including continuations that are not stored */
    uint32_t total;
    uint32_t n_doc;                 /* documents that contain the context; 255: 255 or more */
    uint32_t n_next;                /* continuations, most frequent first */
    uint32_t pos;                   /* text position of one continuation; UINT32_MAX in version 1 */
    bool is_unique;                 /* the context occurs once in the text */
    float unit;                     /* count of one occurrence: ENGRAM_UNIT; 1 in version 1 */
    struct engram_next one;         /* the continuation, if there is only one */
    const struct engram_next *list; /* view of the table; NULL: use `one` */
};
static inline const struct engram_next *engram_hit_next(const struct engram_hit *h) {
    return h->list ? h->list : &h->one;
}

struct engram_table;

/* tok_hash: hash of the tokenizer in use (tok_hash()); a table of another tokenizer is CHIMERE_EMISMATCH. 0: any,
 * for tools that only show the table. For version 1 files it cannot be checked and must not be 0; n_vocab limits
 * the token ids. */
int engram_table_open(struct engram_table **out, const char *path, uint64_t tok_hash,
                      uint32_t n_vocab, struct err *e);
/* For a process that makes many lookups: reads a file of at most max_bytes into private memory, so that later
 * changes of the file have no effect. It uses large pages, because then a cache miss is not also a miss of address
 * translation: this saves half of a lookup's time on a virtual machine. A larger file is mapped. */
int engram_table_load(struct engram_table **out, const char *path, uint64_t max_bytes,
                      uint64_t tok_hash, uint32_t n_vocab, struct err *e);
/* Opens a table in memory that the caller owns. name: used in messages. */
int engram_table_open_memory(struct engram_table **out, const void *data, size_t n,
                             const char *name, uint64_t tok_hash, uint32_t n_vocab, struct err *e);
void engram_table_close(struct engram_table *t);

/* Checks every slot, record and position against what the writer produces. Slow. */
int engram_table_verify(const struct engram_table *t, struct err *e);

/* Finds the contexts of orders 8 to 2 at the end of ctx [n_ctx] that the table knows, longest first, each with the
 * length of its match. If a context occurs once in the text, its hit has the number of tokens that agree, and there
 * are no hits for the shorter contexts that also occur once. Returns the number of hits. */
int engram_lookup(const struct engram_table *t, const int32_t *ctx, int32_t n_ctx,
                  struct engram_hit hits[ENGRAM_N_ORDER]);

struct engram_query {
    const struct engram_table *table; /* borrowed for the call, like the other members */
    const int32_t *ctx;               /* [n_ctx] */
    int32_t n_ctx;
    int32_t n_hit;           /* out */
    struct engram_hit *hits; /* out: [ENGRAM_N_ORDER] */
};
/* Runs n independent lookups in any tables, so that their cache misses overlap. */
void engram_lookup_many(struct engram_query *q, size_t n);

/* ---- content of a table ---- */

struct engram_info {
    uint32_t version; /* 2; or 1, which is unverified */
    uint64_t tok_hash, n_tok, n_entry, n_bytes;
    uint32_t n_vocab, n_doc, n_source, order_min, order_max;
    int64_t decayed_at; /* seconds since 1970; 0: never */
    uint32_t n_weight;  /* 0: the mixture was not fitted */
    float weights[ENGRAM_N_WEIGHT];
};
void engram_table_info(const struct engram_table *t, struct engram_info *out);

struct engram_doc {
    const int32_t *tokens;          /* view of the table */
    uint32_t n_tok, source, weight; /* weight in 1/ENGRAM_UNIT */
    int64_t time;                   /* seconds since 1970 */
    uint64_t hash;                  /* of the tokens */
    uint32_t begin;                 /* position of its first token in the text */
};
bool engram_table_doc(const struct engram_table *t, uint32_t i, struct engram_doc *out);
/* Finds the document that contains position pos of the text; false: none. */
bool engram_table_doc_at(const struct engram_table *t, uint32_t pos, struct engram_doc *out);
struct slice engram_table_source(const struct engram_table *t, uint32_t i, uint64_t *content_hash);
/* Replaces the file, by rename, with a copy that has other weights of the mixture. */
int engram_table_set_weights(const char *path, const float *weights, uint32_t n, struct err *e);

#endif

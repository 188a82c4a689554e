/* build.h: builds a table from texts as tokens.
 *
 * Documents are written to disk as they are added. Finishing sorts their positions by context and writes the index
 * in one pass. It sorts in memory up to memory_bytes, otherwise in runs on disk next to the output. The same
 * documents in the same order give the same bytes. A document that the same source already added is dropped, so
 * building from overlapping tables counts nothing twice. One thread. The output appears by rename, or not at all. */
#ifndef CHIMERE_ENGRAM_BUILD_H
#define CHIMERE_ENGRAM_BUILD_H

#include "engram/table.h"

struct engram_build_params {
    uint64_t tok_hash;
    uint32_t n_vocab;
    size_t memory_bytes; /* memory for sorting, at least 1 MiB; 0: 256 MiB */
    /* weights of the mixture, borrowed during engram_builder_new; NULL: none */
    const float *weights;
    uint32_t n_weight;
    int64_t decayed_at;
    bool refuse_empty; /* a table without any context is CHIMERE_EINVAL, and is not written */
    /* Called from time to time while the index is written; may be NULL. */
    void (*progress)(void *ud, uint64_t done, uint64_t total);
    void *ud;
};

struct engram_builder;

int engram_builder_new(struct engram_builder **out, const char *path,
                       const struct engram_build_params *p, struct err *e);
/* Sets the name of a source; *id is passed to engram_builder_doc. A name that was already given keeps its id. */
int engram_builder_source(struct engram_builder *b, struct slice name, uint64_t content_hash,
                          uint32_t *id, struct err *e);
/* weight: in 1/ENGRAM_UNIT, 1 to ENGRAM_UNIT; time: seconds since 1970. Empty documents are dropped. */
int engram_builder_doc(struct engram_builder *b, const int32_t *tokens, size_t n, uint32_t source,
                       int64_t time, uint32_t weight, struct err *e);
/* Reuses the order of t: documents that t also has, from a source of the same name and in the same sequence, are
 * not sorted again. A small change then costs one pass over the rest. The output has the same bytes as without
 * reuse. Call it before the first document; t is borrowed until the builder ends. */
int engram_builder_reuse(struct engram_builder *b, const struct engram_table *t, struct err *e);
/* Returns the number of documents so far, and how many of them must be sorted. */
void engram_builder_count(const struct engram_builder *b, uint64_t *n_doc, uint64_t *n_fresh);
/* Either function frees the builder. */
int engram_builder_finish(struct engram_builder *b, struct err *e);
void engram_builder_abort(struct engram_builder *b);

#endif

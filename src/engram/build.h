/* build.h: texts as tokens -> a table.
 *
 * Documents go to disk as they come; finishing sorts their positions by context, in memory as far as
 * memory_bytes goes and else in runs on disk beside the output, and writes the index in one pass. The
 * same documents in the same order give the same bytes. A document that came before from the same source
 * is left out, so that building from overlapping tables counts nothing twice. One thread; the output
 * appears by rename, or not at all. */
#ifndef CHIMERE_ENGRAM_BUILD_H
#define CHIMERE_ENGRAM_BUILD_H

#include "engram/table.h"

struct engram_build_params {
    uint64_t tok_hash;
    uint32_t n_vocab;
    size_t memory_bytes;  /* for sorting, at least 1 MiB; 0: 256 MiB */
    const float *weights; /* of the mixture, borrowed during engram_builder_new; NULL: none */
    uint32_t n_weight;
    int64_t decayed_at;
    /* Called now and then while the index is written; may be NULL. */
    void (*progress)(void *ud, uint64_t done, uint64_t total);
    void *ud;
};

struct engram_builder;

int engram_builder_new(struct engram_builder **out, const char *path,
                       const struct engram_build_params *p, struct err *e);
/* Names where the following documents come from; *id for engram_builder_doc. A name that was given before
 * keeps its id. */
int engram_builder_source(struct engram_builder *b, struct slice name, uint64_t content_hash,
                          uint32_t *id, struct err *e);
/* weight in 1/ENGRAM_UNIT, 1 to ENGRAM_UNIT; time in seconds since 1970. Empty documents are left out. */
int engram_builder_doc(struct engram_builder *b, const int32_t *tokens, size_t n, uint32_t source,
                       int64_t time, uint32_t weight, struct err *e);
/* Documents that stand in t too, from a source of the same name and in the same sequence, are not sorted anew: what
 * a small change costs is one pass over the rest. The bytes are those that the same documents give without.
 * Before the first document; t is borrowed until the builder ends. */
int engram_builder_reuse(struct engram_builder *b, const struct engram_table *t, struct err *e);
/* Documents so far, and those of them that will be sorted. */
void engram_builder_count(const struct engram_builder *b, uint64_t *n_doc, uint64_t *n_fresh);
/* Either of the two ends the builder. */
int engram_builder_finish(struct engram_builder *b, struct err *e);
void engram_builder_abort(struct engram_builder *b);

#endif

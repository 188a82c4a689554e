/* doc.h: the user's documents: files, their chunks, and a full-text index over these (FTS5, BM25).
 *
 * A file's chunks are replaced in one transaction, and removed with it. Words are compared without case,
 * accents and English endings. */
#ifndef CHIMERE_STORE_DOC_H
#define CHIMERE_STORE_DOC_H

#include <stddef.h>

#include "store/store.h"

enum { STORE_MAX_CHUNKS = 20000 }; /* of one file */

struct store_doc {
    int64_t id;
    const char *collection, *path, *title; /* view */
    int64_t n_bytes, mtime_ns;
    int64_t embedder; /* names the model that made the vectors; 0: there are none */
    int32_t n_chunk;
};
struct store_chunk {
    int64_t id;
    int32_t from, to;           /* bytes within the file's text */
    int32_t page, line;         /* from 1; 0: unknown */
    const char *heading, *text; /* view */
    /* results of a search */
    const char *path, *title, *collection; /* view */
    double score;                          /* larger is better */
    const float *vec;                      /* view; [n_vec], or NULL */
    int32_t n_vec;
};

/* Puts a file in place of what its path held before. Vectors are optional. */
int store_doc_put(struct store *s, const struct store_doc *d, const struct store_chunk *chunks,
                  int32_t n, struct err *e);
int store_doc_remove(struct store *s, const char *collection, const char *path, struct err *e);
/* Files of a collection (NULL: all) by path. Nonzero from each stops, and is returned. */
int store_doc_list(struct store *s, const char *collection,
                   int (*each)(void *ud, const struct store_doc *d), void *ud, struct err *e);
/* The k best chunks for an FTS5 expression. */
int store_doc_match(struct store *s, const char *expression, const char *collection, int32_t k,
                    int (*each)(void *ud, const struct store_chunk *c), void *ud, struct err *e);
/* Chunks (at most `most` are counted) that an expression matches, or CHIMERE_E*. */
int64_t store_doc_count(struct store *s, const char *expression, int32_t most, struct err *e);
/* Every chunk that has a vector of that model, with neither text nor names, by id. */
int store_doc_vectors(struct store *s, const char *collection, int64_t embedder,
                      int (*each)(void *ud, const struct store_chunk *c), void *ud, struct err *e);
/* Passages of all collections, removed ones included: a bound, found without a scan; CHIMERE_E* below zero. */
int64_t store_doc_passages(struct store *s, struct err *e);
/* Another number after every change, by whatever process; CHIMERE_E* below zero. */
int64_t store_doc_version(struct store *s, struct err *e);
int store_doc_chunk(struct store *s, int64_t id, int (*each)(void *ud, const struct store_chunk *c),
                    void *ud, struct err *e);

#endif

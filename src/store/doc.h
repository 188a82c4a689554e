/* doc.h: the user's documents: files, their chunks, and a full-text index of the chunks (FTS5, BM25).
 *
 * The chunks of a file are replaced in one transaction, and are removed together with the file. Words are compared
 * ignoring case, accents and English endings. */
#ifndef CHIMERE_STORE_DOC_H
#define CHIMERE_STORE_DOC_H

#include <stddef.h>

#include "store/store.h"

enum { STORE_MAX_CHUNKS = 20000 }; /* chunks per file */

struct store_doc {
    int64_t id;
    const char *collection, *path, *title; /* view */
    int64_t n_bytes, mtime_ns;
    int64_t embedder; /* identifies the model that made the vectors; 0: no vectors */
    int32_t n_chunk;
};
struct store_chunk {
    int64_t id;
    int32_t from, to;           /* byte range in the file's text */
    int32_t page, line;         /* from 1; 0: unknown */
    const char *heading, *text; /* view */
    /* set by a search: */
    const char *path, *title, *collection; /* view */
    double score;                          /* larger is better */
    const float *vec;                      /* view; [n_vec], or NULL */
    int32_t n_vec;
};

/* Stores a file and replaces what was stored for its path. Vectors are optional. CHIMERE_ELIMIT: the
 * key of a private collection has too many documents. */
int store_doc_put(struct store *s, const struct store_doc *d, const struct store_chunk *chunks,
                  int32_t n, struct err *e);
int store_doc_remove(struct store *s, const char *collection, const char *path, struct err *e);
struct store_doc_place {
    const char *collection, *path; /* view */
};
/* Lists the files of a scope (doc_scope.h) by collection and path. If `each` returns nonzero, the list stops and returns that value. */
int store_doc_list(struct store *s, const char *scope,
                   int (*each)(void *ud, const struct store_doc *d), void *ud, struct err *e);
/* The same, from the first file after that place, whether or not the place has a file; NULL: all. */
int store_doc_page(struct store *s, const char *scope, const struct store_doc_place *after,
                   int (*each)(void *ud, const struct store_doc *d), void *ud, struct err *e);
/* Finds the k best chunks for an FTS5 expression. */
int store_doc_match(struct store *s, const char *expression, const char *scope, int32_t k,
                    int (*each)(void *ud, const struct store_chunk *c), void *ud, struct err *e);
/* Returns how many chunks match an expression, counting at most `most`, or CHIMERE_E*. */
int64_t store_doc_count(struct store *s, const char *expression, int32_t most, struct err *e);
/* Lists every chunk that has a vector of that model, in order of id, without texts and names. */
int store_doc_vectors(struct store *s, const char *scope, int64_t embedder,
                      int (*each)(void *ud, const struct store_chunk *c), void *ud, struct err *e);
/* Returns an upper bound of the number of passages in all collections, which includes removed ones, without a
 * scan; CHIMERE_E* (below zero) on failure. */
int64_t store_doc_passages(struct store *s, struct err *e);
/* Returns a number that every change by any process changes; CHIMERE_E* (below zero) on failure. */
int64_t store_doc_version(struct store *s, struct err *e);
int store_doc_chunk(struct store *s, int64_t id, int (*each)(void *ud, const struct store_chunk *c),
                    void *ud, struct err *e);

#endif

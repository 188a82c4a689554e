/* docs.h: the user's documents: a folder -> an index -> the passages that a question needs.
 *
 * Indexing is incremental: a file whose size and time are known is left alone, a changed one is read
 * again, one that is gone is forgotten. Passages are ranked by BM25, and where an embedding model is given
 * by its vectors too (nearest by FAISS), the two lists fused by reciprocal ranks; a cross-encoder, where
 * given, then orders the best of them. What could not take part is said in the hits. Links are not followed,
 * hidden files are not read. Any thread; the models are asked by one at a time. */
#ifndef CHIMERE_RETRIEVAL_DOCS_H
#define CHIMERE_RETRIEVAL_DOCS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct docs;
struct embed;
struct remote_embed;
struct rerank;
struct store;
struct tool_set;

enum { DOCS_MAX_FILES = 100000, DOCS_MAX_DEPTH = 32, DOCS_MAX_HITS = 32, DOCS_MAX_QUERY = 4096 };

struct docs_models {             /* borrowed until docs_close, and nobody else's */
    struct embed *embed;         /* a model here ... */
    struct remote_embed *remote; /* ... or a server's; both NULL: BM25 alone */
    struct rerank *rerank;       /* NULL: the fused order stays */
    /* Folders into which nobody else writes [n_trusted]; their passages do not taint. */
    const char *const *trusted;
    size_t n_trusted;
};
/* s: borrowed until docs_close; models may be NULL. */
int docs_open(struct docs **out, struct store *s, const struct docs_models *models, struct err *e);
void docs_close(struct docs *d);
bool docs_is_empty(const struct docs *d); /* or NULL */
bool docs_has_vectors(const struct docs *d);
int32_t docs_n_vec(const struct docs *d);    /* values of a vector; 0: no embedding model */
int64_t docs_embedder(const struct docs *d); /* names that model; 0: none */
float docs_near_from(const struct docs *d);  /* cosine from which two texts are about one thing */
bool docs_has_reranker(const struct docs *d);
/* By the cross-encoder: how well a text answers a question; larger is better. */
int docs_score(struct docs *d, const char *question, const char *text, float *score, struct err *e);
/* The vector of a text, of length 1, to out [docs_n_vec]. */
int docs_embed(struct docs *d, const char *text, float *out, struct err *e);

struct docs_report {
    int32_t n_seen, n_read, n_kept, n_removed, n_skipped, n_failed, n_chunk;
    char first_failure[480]; /* of n_failed */
    char skipped[480];       /* names of the first of n_skipped, between commas */
};
/* Brings the index of a folder (or one file) up to date. What is gone is forgotten, the folder itself too. */
int docs_index(struct docs *d, const char *path, const char *collection, struct docs_report *r,
               struct err *e);

struct docs_hit {
    char *path, *title, *heading, *text; /* owned by the hits */
    int32_t from, to, page, line;
    double score;
    bool trusted; /* its file is in a trusted folder */
    double coverage,
        title_coverage; /* 0..1: of the question's rare words, those that it, its title holds */
    bool named;         /* holds one of the question's names, if there are any */
    bool strong;        /* is about the question: chance would hardly find as much */
};
struct docs_hits {
    struct docs_hit v[DOCS_MAX_HITS];
    int32_t n;
    double coverage; /* 0..1: how much of the question's rare words the best passage holds */
    bool strong;     /* one of them is */
    bool by_vectors, reranked; /* vectors, the cross-encoder took part */
    char why[160]; /* why one of them did not; "": none is configured, or nothing is wrong */
};
/* "bm25 alone", "bm25+vectors", "bm25+vectors+reranker", ... */
const char *docs_ranking(const struct docs_hits *h);
/* deadline_ns: 0, and cancelled: NULL, if there is none. The k best passages, at most those worth showing: none where coverage is too low to be about it. */
int docs_search(struct docs *d, const char *question, const char *collection, int32_t k,
                int64_t deadline_ns, _Atomic bool *cancelled, struct docs_hits *out, struct err *e);
void docs_hits_fini(struct docs_hits *h);
/* The tool "documents". */
int docs_add_tool(struct docs *d, struct tool_set *tools, struct err *e);

#endif

/* docs.h: the user's documents: indexes a folder and finds the passages that a question needs.
 *
 * Indexing is incremental: a file with unchanged size and time is skipped, a changed file is read again, a deleted
 * file is removed from the index. Passages are ranked by BM25. If there is an embedding model, they are also
 * ranked by its vectors (nearest neighbours by FAISS), and the two rankings are fused by reciprocal ranks. If
 * there is a cross-encoder, it then orders the best passages. The hits report which of these failed. Links are not
 * followed, hidden files are not read. Any thread; a lock protects the models. */
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

struct docs_models {             /* borrowed until docs_close; must not be used by others */
    struct embed *embed;         /* a local model ... */
    struct remote_embed *remote; /* ... or a server's; both NULL: only BM25 */
    struct rerank *rerank;       /* NULL: the fused order is final */
    /* Folders that only the owner writes to [n_trusted]; their passages do not taint. */
    const char *const *trusted;
    size_t n_trusted;
};
/* s: borrowed until docs_close; models may be NULL. */
int docs_open(struct docs **out, struct store *s, const struct docs_models *models, struct err *e);
void docs_close(struct docs *d);
bool docs_is_empty(const struct docs *d); /* d may be NULL */
bool docs_has_vectors(const struct docs *d);
int32_t docs_n_vec(const struct docs *d);    /* dimensions of a vector; 0: no embedding model */
int64_t docs_embedder(const struct docs *d); /* identifies the embedding model; 0: none */
/* cosine from which two texts are about the same subject */
float docs_near_from(const struct docs *d);
bool docs_has_reranker(const struct docs *d);
/* Scores with the cross-encoder how well a text answers a question; larger is better. */
int docs_score(struct docs *d, const char *question, const char *text, float *score, struct err *e);
/* Writes the vector of a text, of length 1, to out [docs_n_vec]. */
int docs_embed(struct docs *d, const char *text, float *out, struct err *e);

struct docs_report {
    /* n_new: those of n_read that were not in the index */
    int32_t n_seen, n_read, n_new, n_kept, n_removed, n_skipped, n_failed, n_chunk;
    char first_failure[480]; /* the first of the n_failed errors */
    char skipped[480];       /* names of the first of the n_skipped files, separated by commas */
};
/* Updates the index of a folder or of one file. Deleted files are removed from the index; so is the folder itself
 * if it is gone. */
int docs_index(struct docs *d, const char *path, const char *collection, struct docs_report *r,
               struct err *e);

struct docs_hit {
    char *path, *title, *heading, *text; /* owned by the hits */
    int32_t from, to, page, line;
    double score;
    bool trusted; /* its file is in a trusted folder */
    double coverage,
        /* 0..1: weighted share of the question's rare words that the passage contains, that its title contains */
        title_coverage;
    bool named; /* contains one of the question's names, or the question has none */
    /* is about the question: a match as good as this is unlikely to be chance */
    bool strong;
};
struct docs_hits {
    struct docs_hit v[DOCS_MAX_HITS];
    int32_t n;
    double coverage;           /* 0..1: best coverage of a passage */
    bool strong;               /* at least one hit is strong */
    bool by_vectors, reranked; /* whether vectors and the cross-encoder were used */
    char why[160];             /* why one of them was not used; "": none configured, or no error */
};
/* Returns "bm25 alone", "bm25+vectors", "bm25+vectors+reranker", ... */
const char *docs_ranking(const struct docs_hits *h);
/* Finds the k best passages that are worth showing; none if the coverage is too low for them to be about the
 * question. scope: what the caller may read (store/doc_scope.h). deadline_ns 0: no deadline. cancelled may be NULL. */
int docs_search(struct docs *d, const char *question, const char *scope, int32_t k,
                int64_t deadline_ns, _Atomic bool *cancelled, struct docs_hits *out, struct err *e);
void docs_hits_fini(struct docs_hits *h);
/* Adds the tool "documents". */
int docs_add_tool(struct docs *d, struct tool_set *tools, struct err *e);

#endif

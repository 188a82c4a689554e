/* revise.h: makes a table from the documents of other tables, with a new index. All functions replace the output
 * by rename; the output may be one of the inputs. */
#ifndef CHIMERE_ENGRAM_REVISE_H
#define CHIMERE_ENGRAM_REVISE_H

#include "engram/build.h"
#include "engram/table.h"

struct engram_revision {
    /* NULL, or: false drops a document. Its tokens are a view of a table. */
    bool (*keeps)(void *ud, const struct engram_doc *d);
    void *ud;
    const char *forget; /* name of a source whose documents are dropped; NULL: none */
    bool forget_below;  /* also drop sources whose names begin with it and "/" */
    bool strict; /* CHIMERE_ENOENT: forget names no source; CHIMERE_EINVAL: no text would be left */
    bool decay;  /* compute weights from age: */
    int64_t now; /*   seconds since 1970 */
    /* seconds: age at which the weight halves; age from which documents are dropped */
    double half_life, drop;
    size_t memory_bytes; /* as engram_build_params */
};

struct engram_revised {
    uint64_t n_doc, n_dropped; /* documents left, documents dropped */
};

/* Combines the documents of n tables, which must share a tokenizer, into one table. The same document of the same
 * source counts once, so merging again changes nothing. Weights by age depend only on the date and on the time
 * stamps of the documents: decaying twice for one date is the same as decaying once. The weights of the mixture
 * are those of the first table that has some. */
int engram_revise(const char *out, const char *const *tables, size_t n,
                  const struct engram_revision *r, struct engram_revised *result, struct err *e);

#endif

/* revise.h: tables from tables: a choice among their documents, and a new index. All replace the output by
 * rename; the output may be one of the inputs. */
#ifndef CHIMERE_ENGRAM_REVISE_H
#define CHIMERE_ENGRAM_REVISE_H

#include "engram/build.h"

struct engram_revision {
    const char *forget;     /* name of a source whose documents go; NULL: none */
    bool forget_below;      /*   and of all whose names begin with it and "/" */
    bool decay;             /* weights by age: */
    int64_t now;            /*   seconds since 1970 */
    double half_life, drop; /*   seconds: weight halves; older ones go */
    size_t memory_bytes;    /* as engram_build_params */
};

struct engram_revised {
    uint64_t n_doc, n_dropped; /* documents left, and gone */
};

/* The documents of n tables, which must share a tokenizer, as one table. The same document of the same
 * source counts once, so that merging again changes nothing. Weights by age depend on the date and on the
 * documents' own time stamps alone: decaying twice for one date is decaying once. Weights of the mixture:
 * those of the first table that has some. */
int engram_revise(const char *out, const char *const *tables, size_t n,
                  const struct engram_revision *r, struct engram_revised *result, struct err *e);

#endif

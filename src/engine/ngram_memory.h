/* ngram_memory.h: the n-gram memory that one request uses: leases on its tables, and what they recall.
 *
 * Opened before the job is posted, on the caller's thread; immutable then; closed after the job is done. */
#ifndef CHIMERE_ENGINE_NGRAM_MEMORY_H
#define CHIMERE_ENGINE_NGRAM_MEMORY_H

#include <jansson.h>

#include "engine/sampler.h"
#include "engram/mix.h"
#include "engram/store.h"
#include "text/tok/tok.h"

struct ngram_memory;

struct ngram_memory_params {
    struct engram_store *store;
    const char *const *tables; /* names; paths where they hold a slash and is_trusted */
    size_t n_table;
    const char *owner; /* whose own tables may be named; NULL: nobody's */
    float alpha;
    bool is_trusted; /* the names come from the machine's user */
    bool recall,
        is_optional; /* is_optional: tables that are not there, or of another tokenizer, are left out */
    const json_t *messages; /* the question is the last one; NULL: nothing is recalled */
    const char *question;   /* instead of the last message, or NULL */
    const struct engram_table
        *own; /* one more table, borrowed until ngram_memory_close; NULL: none */
    const struct tok *tok;
};

int ngram_memory_open(struct ngram_memory **out, const struct ngram_memory_params *p,
                      struct err *e);
void ngram_memory_close(struct ngram_memory *m);
/* The mixture as a row of the sampler's chain; m is borrowed until the sampler is freed. */
struct sampler_hook ngram_memory_hook(struct engram_mixer *m);
const struct engram_use *ngram_memory_use(const struct ngram_memory *m); /* NULL for NULL */

#endif

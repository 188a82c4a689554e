/* ngram_memory.h: the n-gram memory that one request uses: leases on its tables, and the texts that they recall.
 *
 * It is opened on the caller's thread before the job is posted, is immutable from then on, and is closed after the job
 * is done. */
#ifndef CHIMERE_ENGINE_NGRAM_MEMORY_H
#define CHIMERE_ENGINE_NGRAM_MEMORY_H

#include <jansson.h>

#include "engine/sampler/sampler.h"
#include "engram/mix.h"
#include "engram/store.h"
#include "text/tok/tok.h"

struct ngram_memory;

struct ngram_memory_params {
    struct engram_store *store;
    const char *const *tables; /* names; paths if they contain a slash and is_trusted is set */
    size_t n_table;
    const char *owner; /* owner whose private tables may be named; NULL: no private tables */
    float alpha;
    bool is_trusted; /* the names come from the user of this machine */
    /* tables that are missing, or made with another tokenizer, are skipped */
    bool recall, is_optional;
    const json_t *messages; /* the last message is the question; NULL: nothing is recalled */
    const char *question;   /* the question, instead of the last message; or NULL */
    /* additional tables, borrowed until ngram_memory_close; NULL: none */
    const struct engram_table *own[2];
    const struct tok *tok;
};

int ngram_memory_open(struct ngram_memory **out, const struct ngram_memory_params *p,
                      struct err *e);
void ngram_memory_close(struct ngram_memory *m);
/* Returns a hook that adds the mixer to the sampler chain; m is borrowed until the sampler is freed. */
struct sampler_hook ngram_memory_hook(struct engram_mixer *m);
/* returns NULL if m is NULL */
const struct engram_use *ngram_memory_use(const struct ngram_memory *m);

#endif

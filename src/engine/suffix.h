/* suffix.h: which token followed which contexts, in all sequences of an engine.
 *
 * A table of fixed size, indexed by hashes of the last 1 to 13 tokens: the two latest favourites of each context and how
 * often they came. New contexts displace others, so memory is bounded and old texts fade. Contexts are hashed with a
 * salt: texts of one scope draft for that scope alone. The table can be saved, so that an engine starts warm; the file
 * names the model it belongs to and is refused for another. Learning and looking up allocate nothing. One thread. */
#ifndef CHIMERE_ENGINE_SUFFIX_H
#define CHIMERE_ENGINE_SUFFIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { SUFFIX_N_ORDER = 6, SUFFIX_BYTES = 5 << 20 };

struct suffix;

int suffix_new(struct suffix **out, struct err *e);
void suffix_free(struct suffix *x);
/* text[n - 1] came after text[0..n - 1). */
void suffix_learn(struct suffix *x, uint64_t salt, const int32_t *text, int32_t n);

/* What may come after text[0..n), by one order. */
struct suffix_next {
    int32_t token;
    int32_t order; /* 0..SUFFIX_N_ORDER - 1: of the longest known context */
    float share;   /* of the token among what followed that context */
};
bool suffix_next(const struct suffix *x, uint64_t salt, const int32_t *text, int32_t n,
                 struct suffix_next *out);

/* layout: of the model and its tokens. A file of another layout or a damaged one is refused, and x stays empty. */
int suffix_save(const struct suffix *x, const char *path, uint64_t layout, struct err *e);
int suffix_load(struct suffix *x, const char *path, uint64_t layout, struct err *e);

#endif

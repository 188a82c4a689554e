/* suffix.h: the suffix store: which token followed which contexts, in all sequences of an engine.
 *
 * A table of fixed size, indexed by hashes of the last 1 to 13 tokens. Each entry has the two most frequent recent
 * successors of its context and their counts. New contexts replace old ones, so memory is bounded and old texts fade.
 * The hashes include a salt, so that texts of one scope draft only for that scope. The table can be saved, so that an
 * engine starts with known contexts; the file identifies its model and is refused for others. Learning and lookup do
 * not allocate. Use from one thread. */
#ifndef CHIMERE_ENGINE_SUFFIX_H
#define CHIMERE_ENGINE_SUFFIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { SUFFIX_N_ORDER = 6, SUFFIX_BYTES = 5 << 20 };

struct suffix;
#define SUFFIX_ALL 0 /* salt of a store that drafts for every scope; scopes are hashes */

int suffix_new(struct suffix **out, struct err *e);
void suffix_free(struct suffix *x);
/* Learns that text[n - 1] followed text[0..n - 1). */
void suffix_learn(struct suffix *x, uint64_t salt, const int32_t *text, int32_t n);

/* The likely token after text[0..n), from the longest known context. */
struct suffix_next {
    int32_t token;
    int32_t order; /* index of that context's length, 0..SUFFIX_N_ORDER - 1 */
    float share;   /* share of the token among all successors of that context */
};
bool suffix_next(const struct suffix *x, uint64_t salt, const int32_t *text, int32_t n,
                 struct suffix_next *out);

/* layout identifies the model and its tokenizer. A file with another layout or a damaged file is refused, and x stays
 * empty. */
int suffix_save(const struct suffix *x, const char *path, uint64_t layout, struct err *e);
int suffix_load(struct suffix *x, const char *path, uint64_t layout, struct err *e);

#endif

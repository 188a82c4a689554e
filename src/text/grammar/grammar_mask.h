/* grammar_mask.h: which tokens may come next.
 *
 * vocab    index of a tokenizer's pieces: a trie in byte order. Built once, immutable, any thread.
 * matcher  one grammar on one vocabulary: interned automaton states and the mask caches, of a size
 *          fixed at creation. Shared by all sequences under that grammar; one thread at a time (the
 *          engine's). Allocates only in grammar_matcher_new.
 * state    one sequence's place in the grammar: a number in its matcher and the numbers of its last
 *          GRAMMAR_MAX_REWIND tokens, so that mark, rewind and fork cost nothing.
 *
 * Masks: bit id of word id / 64 is set iff the text so far followed by the token's bytes is the
 * beginning of a text of the grammar (or, for end-of-generation ids, iff the text is one). Special
 * tokens and empty pieces are never allowed. The tokens that never leave the automaton's current rule
 * are the same whatever the stack: their masks are kept per node, as lists or bitmaps; only the trie
 * branches that leave the rule are walked against the real stack. A whole mask is kept per state. */
#ifndef CHIMERE_TEXT_GRAMMAR_GRAMMAR_MASK_H
#define CHIMERE_TEXT_GRAMMAR_GRAMMAR_MASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "text/grammar/grammar.h"
#include "text/tok/tok.h"

#define GRAMMAR_MAX_REWIND 256
#define GRAMMAR_MARK_BYTE '\xff' /* in no UTF-8 text */

enum grammar_token { GRAMMAR_TOKEN_TEXT, GRAMMAR_TOKEN_SPECIAL, GRAMMAR_TOKEN_EOG };

struct grammar_vocab;
struct grammar_matcher;
struct grammar_state;

/* pieces[n_vocab] as bytes and kinds[n_vocab] of enum grammar_token are borrowed during the call. */
int grammar_vocab_new(struct grammar_vocab **out, uint32_t n_vocab, const struct slice *pieces,
                      const uint8_t *kinds, struct err *e);
/* The same from a tokenizer: control, unknown and unused tokens are special, but for those whose texts are
 * among marks (ends with NULL; NULL: none). The bytes of a mark are GRAMMAR_MARK_BYTE and its text, so
 * that it stands only where the grammar asks for it, never in a string. Nothing of t is kept. */
int grammar_vocab_from_tok(struct grammar_vocab **out, const struct tok *t,
                           const char *const *marks, struct err *e);
void grammar_vocab_free(struct grammar_vocab *v);

/* Borrows g and v until grammar_matcher_free. cache_bytes: ceiling of all caches, 0 for 64 MiB (touched
 * only as needed); the least useful entries go first. */
int grammar_matcher_new(struct grammar_matcher **out, const struct grammar *g,
                        const struct grammar_vocab *v, size_t cache_bytes, struct err *e);
void grammar_matcher_free(struct grammar_matcher *m); /* after all its states */

/* A state borrows its matcher. It starts before the first byte. */
int grammar_state_new(struct grammar_state **out, struct grammar_matcher *m, struct err *e);
int grammar_state_fork(struct grammar_state **out, const struct grammar_state *from, struct err *e);
void grammar_state_free(struct grammar_state *s);
/* Back before the first byte; nothing can be rewound then. Allocates nothing. */
void grammar_state_restart(struct grammar_state *s);

/* 0; CHIMERE_EREFUSED when the grammar does not go on this way, CHIMERE_ELIMIT when the automaton
 * outgrows its matcher: both leave the state as it was. An end-of-generation id is accepted iff the
 * text is complete; after it nothing but end-of-generation ids is. */
int grammar_accept_token(struct grammar_state *s, int32_t id);
/* *n_good: how many bytes could be taken (all of them on success). Counts as one token for rewind. */
int grammar_accept_bytes(struct grammar_state *s, const char *bytes, size_t n, size_t *n_good);
bool grammar_is_complete(const struct grammar_state *s);

/* Fills bits[(n_vocab + 63) / 64]. 0 or CHIMERE_ELIMIT. */
int grammar_mask(struct grammar_state *s, uint64_t *bits);

/* Number of accepted tokens so far; rewinding to an earlier one: 0, or CHIMERE_EINVAL when it lies ahead
 * or more than GRAMMAR_MAX_REWIND tokens back. */
uint64_t grammar_mark(const struct grammar_state *s);
int grammar_rewind(struct grammar_state *s, uint64_t mark);

/* The bytes that must come next whatever the model wants: writes at most max, returns how many (0 when
 * there is a choice or the text may end here). Does not advance the state. */
size_t grammar_forced(struct grammar_state *s, char *out, size_t max);
/* The longest token whose bytes all must come next, -1 if there is none. Shorter ones are allowed too: a guess of
 * how the text is cut. Does not advance the state, allocates nothing. */
int32_t grammar_forced_token(struct grammar_state *s);

#endif

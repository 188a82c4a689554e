/* grammar_mask.h: which tokens may come next.
 *
 * vocab    index of a tokenizer's pieces: a trie in byte order. Built once, immutable, any thread.
 * matcher  one grammar on one vocabulary: interned automaton states and the mask caches, whose size is
 *          fixed at creation. Shared by all sequences with that grammar; one thread at a time (the
 *          engine's). Only grammar_matcher_new allocates.
 * state    the position of one sequence in the grammar: a number in its matcher, and the numbers before its
 *          last GRAMMAR_MAX_REWIND tokens, so that mark, rewind and fork are cheap.
 *
 * Masks: bit id of word id / 64 is set iff the text so far followed by the token's bytes is the beginning of a
 * text of the grammar (or, for end-of-generation ids, iff the text is complete). Special tokens and empty pieces
 * are never allowed. Tokens that do not leave the automaton's current rule are the same for any stack: their masks
 * are stored per node, as lists or bitmaps. Only the trie branches that leave the rule are walked with the real
 * stack. A whole mask is stored per state. */
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
#define GRAMMAR_MARK_BYTE '\xff' /* never occurs in UTF-8 text */

enum grammar_token { GRAMMAR_TOKEN_TEXT, GRAMMAR_TOKEN_SPECIAL, GRAMMAR_TOKEN_EOG };

struct grammar_vocab;
struct grammar_matcher;
struct grammar_state;

/* pieces[n_vocab] (bytes) and kinds[n_vocab] (enum grammar_token) are borrowed during the call. */
int grammar_vocab_new(struct grammar_vocab **out, uint32_t n_vocab, const struct slice *pieces,
                      const uint8_t *kinds, struct err *e);
/* Builds the index from a tokenizer. Control, unknown and unused tokens are special, except those whose texts are
 * in marks (ends with NULL; NULL: none). The bytes of a mark are GRAMMAR_MARK_BYTE and its text, so that it is
 * allowed only where the grammar names it, never in a string. t is not referenced afterwards. */
int grammar_vocab_from_tok(struct grammar_vocab **out, const struct tok *t,
                           const char *const *marks, struct err *e);
void grammar_vocab_free(struct grammar_vocab *v);

/* Borrows g and v until grammar_matcher_free. cache_bytes: upper limit of all caches, 0 for 64 MiB (memory is used
 * only as needed); the least useful entries are replaced first. */
int grammar_matcher_new(struct grammar_matcher **out, const struct grammar *g,
                        const struct grammar_vocab *v, size_t cache_bytes, struct err *e);
void grammar_matcher_free(struct grammar_matcher *m); /* call it after all its states were freed */

/* A state borrows its matcher. It starts before the first byte. */
int grammar_state_new(struct grammar_state **out, struct grammar_matcher *m, struct err *e);
int grammar_state_fork(struct grammar_state **out, const struct grammar_state *from, struct err *e);
void grammar_state_free(struct grammar_state *s);
/* Resets the state to before the first byte; rewinding is not possible then. Does not allocate. */
void grammar_state_restart(struct grammar_state *s);

/* Returns 0; CHIMERE_EREFUSED if the grammar does not allow the token; CHIMERE_ELIMIT if the automaton exceeds its
 * matcher's memory. On an error the state does not change. An end-of-generation id is accepted iff the text is
 * complete; after it only end-of-generation ids are accepted. */
int grammar_accept_token(struct grammar_state *s, int32_t id);
/* *n_good: number of bytes that could be accepted (all of them on success). Counts as one token for rewind. */
int grammar_accept_bytes(struct grammar_state *s, const char *bytes, size_t n, size_t *n_good);
bool grammar_is_complete(const struct grammar_state *s);
/* Checks a whole text, without a tokenizer. Returns 0 if it belongs to the grammar; CHIMERE_EREFUSED without a
 * sentence if it does not, with the offset of the first byte that cannot stand there in *n_good; or another error. */
int grammar_check(const struct grammar *g, const char *text, size_t n, size_t *n_good,
                  struct err *e);

/* Fills bits[(n_vocab + 63) / 64]. Returns 0 or CHIMERE_ELIMIT. */
int grammar_mask(struct grammar_state *s, uint64_t *bits);

/* grammar_mark returns the number of tokens accepted so far. grammar_rewind returns to an earlier number: 0, or
 * CHIMERE_EINVAL if it is in the future or more than GRAMMAR_MAX_REWIND tokens ago. */
uint64_t grammar_mark(const struct grammar_state *s);
int grammar_rewind(struct grammar_state *s, uint64_t mark);

/* Writes the bytes that must come next because the grammar allows no other, at most max. Returns their number; 0
 * if there is a choice or the text may end here. Does not advance the state. */
size_t grammar_forced(struct grammar_state *s, char *out, size_t max);
/* Returns the longest token whose bytes must all come next, -1 if there is none. Shorter tokens are allowed too,
 * so this guesses how the text is tokenized. Does not advance the state and does not allocate. */
int32_t grammar_forced_token(struct grammar_state *s);

#endif

/* grammar_dfa.h: deterministic automata over code points, for strings in schemas.
 *
 * The alphabet is divided into intervals. Intervals that no transition distinguishes share an atom, and the table
 * has one column per atom. State 0 is the start; GRAMMAR_NONE in the table means no transition. Errors are sticky
 * in the builder. */
#ifndef CHIMERE_TEXT_GRAMMAR_GRAMMAR_DFA_H
#define CHIMERE_TEXT_GRAMMAR_GRAMMAR_DFA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "text/grammar/grammar_impl.h"

#define DFA_MAX_STATE 40000
#define DFA_MAX_TABLE (4u << 20)

struct dfa {
    uint32_t n_state, n_atom, n_interval;
    struct grammar_range *intervals; /* owned: sorted, cover 0..10FFFF; `to` is the atom */
    uint32_t *next;                  /* owned [n_state, n_atom] */
    bool *accepts;                   /* owned [n_state] */
};

void dfa_free(struct dfa *d);
/* Compiles an ECMA-262 pattern with flag u. search: a match anywhere in the text; otherwise the whole text must
 * match. `what` names the place in errors. */
void dfa_from_regex(struct grammar_builder *b, struct slice pattern, bool search, const char *what,
                    struct dfa *out);
/* Accepts exactly the given texts (UTF-8). */
void dfa_from_texts(struct grammar_builder *b, const struct slice *texts, uint32_t n,
                    struct dfa *out);
/* Accepts min..max code points; max UINT32_MAX: no limit. */
void dfa_from_length(struct grammar_builder *b, uint32_t min, uint32_t max, struct dfa *out);
/* Accepts the texts of x that are (negate: are not) texts of y. Dead states are removed. */
void dfa_intersect(struct grammar_builder *b, const struct dfa *x, const struct dfa *y, bool negate,
                   struct dfa *out);
bool dfa_is_empty(const struct dfa *d);
bool dfa_matches(const struct dfa *d, struct slice text);
/* Returns true if the state accepts every continuation. */
bool dfa_is_universal(const struct dfa *d, uint32_t state);

/* For grammar_regex.c: the caller fills the tables, then removes dead states. */
bool dfa_alloc(struct grammar_builder *b, struct dfa *d, uint32_t n_state, uint32_t n_atom,
               uint32_t n_interval);
void dfa_trim(struct grammar_builder *b, struct dfa *d);

#endif

/* grammar_dfa.h: deterministic automata over code points, for strings in schemas.
 *
 * The alphabet is cut into intervals; intervals that no transition tells apart share an atom, and the
 * table has one column per atom. State 0 is the start; GRAMMAR_NONE in the table: no way on. Errors
 * stick in the builder. */
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
/* ECMA-262 pattern with flag u. search: a match anywhere; else of the whole text. `what` names the
 * place in errors. */
void dfa_from_regex(struct grammar_builder *b, struct slice pattern, bool search, const char *what,
                    struct dfa *out);
/* Exactly the given texts (UTF-8). */
void dfa_from_texts(struct grammar_builder *b, const struct slice *texts, uint32_t n,
                    struct dfa *out);
/* min..max code points; max UINT32_MAX: no end. */
void dfa_from_length(struct grammar_builder *b, uint32_t min, uint32_t max, struct dfa *out);
/* Texts of x that are (negate: are not) texts of y. States that lead nowhere are dropped. */
void dfa_intersect(struct grammar_builder *b, const struct dfa *x, const struct dfa *y, bool negate,
                   struct dfa *out);
bool dfa_is_empty(const struct dfa *d);
bool dfa_matches(const struct dfa *d, struct slice text);
/* The state accepts every text from here on. */
bool dfa_is_universal(const struct dfa *d, uint32_t state);

/* For dfa_regex.c: tables are filled by the caller, who then drops dead states. */
bool dfa_alloc(struct grammar_builder *b, struct dfa *d, uint32_t n_state, uint32_t n_atom,
               uint32_t n_interval);
void dfa_trim(struct grammar_builder *b, struct dfa *d);

#endif

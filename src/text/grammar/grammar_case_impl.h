/* grammar_case_impl.h: queries about a case, which is a list of plain constraints (see grammar_schema_impl.h).
 *
 * Errors are sticky in the builder. Nothing is cached. */
#ifndef CHIMERE_TEXT_GRAMMAR_GRAMMAR_CASE_IMPL_H
#define CHIMERE_TEXT_GRAMMAR_GRAMMAR_CASE_IMPL_H

#include "text/grammar/grammar_schema_impl.h"

struct type_facts {
    uint32_t types;
    struct number_spec number;
    uint32_t min_length, max_length, min_items, max_items, min_props, max_props;
};
void case_facts(struct schema *s, const struct item *items, uint32_t n, struct type_facts *out);
/* Returns the product of patterns, formats and sets of texts; *has_dfa is false if there are none. May lower
 * facts->max_length. */
void case_string_dfa(struct schema *s, const struct item *items, uint32_t n,
                     struct type_facts *facts, bool *has_dfa, struct dfa *out);
/* Appends to out the literals for item i of an array, or for the value of a named property. */
void case_item_literals(struct schema *s, const struct item *items, uint32_t n, uint32_t i,
                        struct grammar_vec *out);
/* Returns the schema of the case's only item of this kind, or NULL; two such items are refused. */
const json_t *case_special(struct schema *s, const struct item *items, uint32_t n,
                           enum item_kind kind);
uint32_t case_n_prefix(struct schema *s, const struct item *items, uint32_t n);
void case_prop_literals(struct schema *s, const struct item *items, uint32_t n, struct slice name,
                        struct grammar_vec *out);
/* Collects all names that the case mentions, without duplicates, as struct slice in out. */
void case_names(struct schema *s, const struct item *items, uint32_t n, struct grammar_vec *out);
bool case_is_required(const struct item *items, uint32_t n, struct slice name);
/* Returns true if the name matches this key of patternProperties. */
bool case_name_matches(struct schema *s, const char *pattern, struct slice name);
/* Computes the texts that satisfy all I_NAMES items of the case; *has_dfa is false if any text does. */
void case_names_dfa(struct schema *s, const struct item *items, uint32_t n, bool *has_dfa,
                    struct dfa *out);
bool case_is_empty(struct schema *s, const struct item *items, uint32_t n, int depth);

/* ---- grammar_schema_string.c ---- */

enum spelling { SPELL_JSON, SPELL_KNOWN, SPELL_VALUE, SPELL_NAME };
void schema_emit_free_string(struct schema *s);
/* Adds a string that the automaton accepts. */
uint32_t schema_emit_dfa(struct schema *s, const struct dfa *d, enum spelling spelling);
/* Adds the names of d that can be written in an XML call. */
uint32_t schema_emit_names(struct schema *s, const struct dfa *d);
/* Returns the rule for the strings of a case. raw 0: in JSON; otherwise: as a parameter of an XML call that may
 * have these types. */
uint32_t schema_string_rule(struct schema *s, const struct item *items, uint32_t n,
                            struct type_facts *f, uint32_t raw);

#endif

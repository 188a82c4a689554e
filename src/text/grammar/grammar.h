/* grammar.h: GBNF and JSON Schema -> an immutable compiled grammar.
 *
 * Hides a pushdown automaton over bytes: rules of nodes with byte ranges, alternatives, calls and
 * frames that carry a counter or the set of properties seen. Character classes are compiled down to
 * UTF-8 byte ranges, so that text may be cut anywhere, inside a character too. Every state that can be
 * reached can be completed: what leads nowhere is removed at compile time.
 *
 * GBNF: as llama.cpp documents it (rules, literals, classes, `.`, groups, `* + ? {m,n}`, comments);
 * `root` is the start. Left recursion, undefined rules and token references are refused by name.
 *
 * JSON Schema, draft 2020-12: type, enum, const, properties, required, additionalProperties,
 * patternProperties, propertyNames, min/maxProperties, dependentRequired, dependentSchemas, items,
 * prefixItems, min/maxItems, minLength, maxLength, pattern, format, minimum, maximum, exclusive*,
 * multipleOf, allOf, anyOf, oneOf, not, if/then/else, local $ref and $defs, boolean schemas; contains with
 * its counts under small bounds; uniqueItems if the items have few values or there is at most one.
 * Unknown keywords are annotations and unknown formats assert nothing; known formats are asserted. Forms of
 * drafts 3 to 7 and `nullable` are read (grammar_schema_draft.c). What cannot be enforced exactly is
 * refused by its name. The text form of a value:
 *   - properties in any order; a property named in the schema at most once;
 *   - up to GRAMMAR_MAX_SPACE whitespace characters where JSON allows whitespace;
 *   - strings in any spelling (escapes, surrogate pairs); lone surrogates are refused;
 *   - numbers under minimum, maximum, multipleOf, const or enum are written without exponent.
 * Under limits.plain, for texts that a model generates, so that a small model cannot run away:
 *   - nothing before and after the whole value; elsewhere no blank, one space, or a line end and its
 *     indent; none before a comma or a colon, and no line end after a colon;
 *   - property names, const and enum in one spelling, with no more escapes than JSON needs;
 *   - values that must be integers as digits, without point and exponent;
 *   - at most 16 digits before and after the point and 2 in an exponent, unless a bound has more;
 *   - at most 4,096 items in an array without a bound. Strings have no limit.
 *
 * Immutable once built: any thread. Nothing is kept of the inputs. Failures are CHIMERE_EFORMAT (not
 * GBNF, not JSON, wrong keyword value), CHIMERE_EUNSUPPORTED (names the keyword and its place),
 * CHIMERE_EREFUSED (no text can match) and CHIMERE_ELIMIT (one of the limits below). */
#ifndef CHIMERE_TEXT_GRAMMAR_GRAMMAR_H
#define CHIMERE_TEXT_GRAMMAR_GRAMMAR_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define GRAMMAR_MAX_SPACE 128 /* a line end and 31 levels of 4 spaces */

struct grammar_limits { /* 0 in a field: the default */
    size_t text_bytes;  /* longest input, 1 MiB */
    uint32_t depth;     /* nesting of groups, schemas and rules in the source, 256 */
    uint32_t n_rule;    /* 65,536 */
    uint32_t n_node;    /* nodes of the automaton, 1,000,000 */
    uint32_t time_ms;   /* CPU time of compiling, 800 */
    uint32_t space;     /* whitespace characters where JSON allows any, GRAMMAR_MAX_SPACE */
    bool plain; /* values are spelled as most writers do: for texts that a model generates */
};

struct grammar;

/* `lim` may be NULL. *out is owned by the caller. */
int grammar_from_gbnf(struct grammar **out, const char *text, size_t n,
                      const struct grammar_limits *lim, struct err *e);
int grammar_from_schema(struct grammar **out, const char *text, size_t n,
                        const struct grammar_limits *lim, struct err *e);
int grammar_from_json(struct grammar **out, const json_t *schema, const struct grammar_limits *lim,
                      struct err *e);
/* How a model writes calls: mark head (open NAME middle ARGUMENTS end) (between open NAME ...)* close. With tags the
 * arguments are parameters: a text stands as it is, and a value is not a text that the parser would read as another type
 * (chat_types.h). Static strings. */
struct grammar_call_form {
    const char *mark, *head, *open, *middle, *end;
    const char *between; /* between calls of one block; NULL: one call per block */
    const char *close;
    const struct grammar_tags *tags; /* NULL: the arguments are JSON */
};
/* Parameters as tags: a line end, then (begin name_open NAME name_close between value_open VALUE value_close end)*. The four bytes
 * stand next to a text; patterns are regular expressions of JSON Schema. */
struct grammar_tags {
    const char *begin, *between, *end;
    const char
        *between_text; /* in place of between, for a parameter that is a text; NULL: the same */
    char name_open, name_close, value_open, value_close;
    const char *name; /* pattern: names that a tag can carry */
    const char *ends; /* pattern: what would end a value early, or is not kept by the parser */
};
extern const struct grammar_tags
    grammar_tags_qwen; /* <parameter=NAME>, a line, VALUE, a line, </parameter> */
/* Answers that are tool calls and nothing else. Arguments follow each tool's own schema. */
struct grammar_calls {
    const json_t *tools; /* OpenAI tool list; borrowed during the call, as everything here */
    const char *only;    /* name of the one tool, NULL: any */
    const struct grammar_call_form *forms;
    size_t n_form;
    bool many;         /* several calls in one block */
    const char *again; /* between blocks; NULL: one block */
};
int grammar_from_calls(struct grammar **out, const struct grammar_calls *c,
                       const struct grammar_limits *lim, struct err *e);
void grammar_free(struct grammar *g);

struct grammar_stats {
    uint32_t n_rule, n_node, n_edge;
    size_t n_bytes;
    double compile_ms;
};
void grammar_stats(const struct grammar *g, struct grammar_stats *out);

#endif

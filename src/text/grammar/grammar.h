/* grammar.h: compiles GBNF and JSON Schema to an immutable grammar.
 *
 * Hides a pushdown automaton over bytes. Its rules consist of nodes: byte ranges, alternatives and calls of rules. A
 * frame of its stack has a counter or the set of properties seen. Character classes are compiled to UTF-8 byte ranges,
 * so that text may be cut anywhere, even inside a character. Every reachable state can be completed, because dead ends
 * are removed at compile time.
 *
 * GBNF: as documented by llama.cpp (rules, literals, classes, `.`, groups, `* + ? {m,n}`, comments); `root` is the
 * start. Left recursion, undefined rules and token references are refused by name.
 *
 * JSON Schema, draft 2020-12: type, enum, const, properties, required, additionalProperties, patternProperties,
 * propertyNames, min/maxProperties, dependentRequired, dependentSchemas, items, prefixItems, min/maxItems,
 * minLength, maxLength, pattern, format, minimum, maximum, exclusive*, multipleOf, allOf, anyOf, oneOf, not,
 * if/then/else, local $ref and $defs, boolean schemas; contains with its counts if the bounds are small;
 * uniqueItems if the items have few values or there is at most one. Unknown keywords are annotations and unknown
 * formats assert nothing; known formats are asserted. Forms of drafts 3 to 7 and `nullable` are accepted
 * (grammar_schema_draft.c). What cannot be enforced exactly is refused by name. The text form of a value:
 *   - properties in any order; a property named in the schema at most once;
 *   - up to GRAMMAR_MAX_SPACE whitespace characters where JSON allows whitespace;
 *   - strings in any spelling (escapes, surrogate pairs); lone surrogates are refused;
 *   - numbers under minimum, maximum, multipleOf, const or enum are written without exponent.
 * With limits.plain, for texts that a model generates, so that a small model cannot run away:
 *   - nothing before and after the whole value; elsewhere no blank, one space, or a line end and its
 *     indent; none before a comma or a colon, and no line end after a colon;
 *   - property names, const and enum in one spelling, with no more escapes than JSON needs;
 *   - values that must be integers as digits, without point and exponent;
 *   - at most 16 digits before and after the point and 2 in an exponent, unless a bound has more;
 *   - at most 4,096 items in an array without a bound. Strings have no limit.
 *
 * Immutable once built: any thread. The inputs are not referenced afterwards. Errors: CHIMERE_EFORMAT (not GBNF,
 * not JSON, wrong keyword value), CHIMERE_EUNSUPPORTED (names the keyword and its place), CHIMERE_EREFUSED (no
 * text can match) and CHIMERE_ELIMIT (one of the limits below). */
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
    uint32_t time_ms;   /* CPU time for compiling, 800 */
    uint32_t space;     /* whitespace characters where JSON allows any number, GRAMMAR_MAX_SPACE */
    bool plain;         /* values have the most common spelling: for texts that a model generates */
};

struct grammar;

/* `lim` may be NULL. *out is owned by the caller. */
int grammar_from_gbnf(struct grammar **out, const char *text, size_t n,
                      const struct grammar_limits *lim, struct err *e);
int grammar_from_schema(struct grammar **out, const char *text, size_t n,
                        const struct grammar_limits *lim, struct err *e);
int grammar_from_json(struct grammar **out, const json_t *schema, const struct grammar_limits *lim,
                      struct err *e);
/* How a model writes calls: mark head (open NAME middle ARGUMENTS end) (between open NAME ...)* close. With tags
 * the arguments are parameters. A string is written as it is, and must not be a text that the parser would read as
 * another type (chat_types.h). Static strings. */
struct grammar_call_form {
    const char *mark, *head, *open, *middle, *end;
    const char *between; /* between the calls of one block; NULL: one call per block */
    const char *close;
    const struct grammar_tags *tags; /* NULL: the arguments are JSON */
};
/* Parameters as tags: a line end, then (begin name_open NAME name_close between value_open VALUE value_close end)*. The
 * four char members are directly before and after NAME and VALUE. Patterns are regular expressions of JSON Schema. */
struct grammar_tags {
    const char *begin, *between, *end;
    const char *between_text; /* replaces `between` if the parameter is a string; NULL: the same */
    char name_open, name_close, value_open, value_close;
    const char *name; /* pattern: names that can be written in a tag */
    /* pattern: texts that would end a value early, or that the parser does not keep */
    const char *ends;
};
extern const struct grammar_tags
    grammar_tags_qwen; /* <parameter=NAME>, a line, VALUE, a line, </parameter> */
/* Answers that consist only of tool calls. Arguments follow the schema of each tool. */
struct grammar_calls {
    const json_t *tools; /* OpenAI tool list; borrowed during the call, like all members */
    const char *only;    /* name of the only tool that may be called; NULL: any */
    const struct grammar_call_form *forms;
    size_t n_form;
    bool many;         /* allow several calls in one block */
    const char *again; /* text between blocks; NULL: only one block */
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

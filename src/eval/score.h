/* score.h: decides whether an answer is right, by the rules of eval/README.md.
 *
 * Texts come from a model and may contain anything. Items are trusted; one with a missing or unknown field is
 * refused by name. Pure functions; any thread. */
#ifndef CHIMERE_EVAL_SCORE_H
#define CHIMERE_EVAL_SCORE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

struct score {
    bool right;
    /* has_valid: for this kind, `valid` states whether the form of the answer is valid */
    bool has_valid, valid;
    bool is_verdict;
    bool wants_yes; /* verdict: the expected answer is yes; used for balanced accuracy */
    bool
        is_program; /* python: right only if the program passes the tests, which are not run here */
};

/* item: one line of eval/X.jsonl; text: everything that the model wrote, including thinking. */
int score_answer(const json_t *item, const char *text, size_t n, struct score *out, struct err *e);

/* ---- parts, for the rules and their tests ---- */

/* Appends the text to out: runs of blanks become one, ASCII letters are lower case, outer quotes and closing full
 * stops are removed. */
void score_normal(struct buf *out, const char *text, size_t n);
/* Returns a view of the text after the last </think>, without blanks at both ends. */
struct slice score_visible(const char *text, size_t n);
/* Finds the last number, ignoring commas between thousands; false: none. */
bool score_last_number(const char *text, size_t n, double *out);
/* Evaluates an expression of + - * / ( ), numbers, x and the division sign; false: not an expression. */
bool score_expression(const char *text, size_t n, double *out);
/* Validates a JSON value with the subset of JSON Schema that the items use. */
bool score_schema(const json_t *value, const json_t *schema);

/* Parses the tool calls of a text in the XML form into an array of {name, arguments: {key: text}}. *well_formed:
 * everything from the first mark on has exactly that form. NULL: out of memory. */
json_t *score_calls(const char *text, size_t n, bool *well_formed);
bool score_calls_valid(const json_t *calls, const json_t *tools);
bool score_calls_right(const json_t *calls, const json_t *answer);

#endif

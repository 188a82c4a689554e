/* score.h: is an answer right? The rules of eval/README.md, one function.
 *
 * Texts come from a model and may hold anything; items are ours, and one with a missing or foreign field
 * is refused by name. Pure functions; any thread. */
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
    bool has_valid, valid; /* the kind also says whether the answer's form is valid */
    bool is_verdict;
    bool wants_yes; /* verdict: the answer wanted, for balanced accuracy */
    bool
        is_program; /* python: right only if its program passes the tests, which are not run here */
};

/* item: one line of eval/X.jsonl; text: all that the model wrote, thinking included. */
int score_answer(const json_t *item, const char *text, size_t n, struct score *out, struct err *e);

/* ---- parts, for the rules and their tests ---- */

/* Blanks collapsed, ASCII letters small, outer quotes and closing full stops gone. Appends to out. */
void score_normal(struct buf *out, const char *text, size_t n);
/* What stands behind the last </think>, without blanks at both ends: a view. */
struct slice score_visible(const char *text, size_t n);
/* The last number, thousands' commas left out; false: none. */
bool score_last_number(const char *text, size_t n, double *out);
/* Value of an expression of + - * / ( ), numbers, x and the division sign; false: it is none. */
bool score_expression(const char *text, size_t n, double *out);
/* A JSON value against the subset of schemas that items use. */
bool score_schema(const json_t *value, const json_t *schema);

/* Tool calls of a text in the XML form: an array of {name, arguments: {key: text}}. *well_formed: all from
 * the first mark on has exactly that form. NULL: out of memory. */
json_t *score_calls(const char *text, size_t n, bool *well_formed);
bool score_calls_valid(const json_t *calls, const json_t *tools);
bool score_calls_right(const json_t *calls, const json_t *answer);

#endif

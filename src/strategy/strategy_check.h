/* strategy_check.h: verifiers that are not a model: agreement of texts, and unit tests of programs. */
#ifndef CHIMERE_STRATEGY_STRATEGY_CHECK_H
#define CHIMERE_STRATEGY_STRATEGY_CHECK_H

#include "base/buf.h"
#include "base/str.h"
#include "strategy/strategy_impl.h"

enum { STRATEGY_MAX_TESTS = 32 };

/* Returns a view of the program in an answer: its last fenced block of Python, or its last fenced block, or the
 * whole answer. */
struct slice strategy_program(const char *text, size_t n);
/* Finds the lines of a text that are an assert statement of Python; views into the text. Returns their number, at
 * most STRATEGY_MAX_TESTS. */
int strategy_tests(const char *text, size_t n, struct slice tests[STRATEGY_MAX_TESTS]);
/* Returns how much two texts have in common, 0..1: twice the number of shared words by the number of all words. */
double strategy_overlap(const char *a, size_t n_a, const char *b, size_t n_b);

/* n answers; the one that has most in common with the others. Its score is the mean overlap. */
int strategy_consistent(const struct strategy_use *u, struct strategy_result *r, struct err *e);
/* n programs; the one that passes most of the tests in the question, or of tests that the model writes if the
 * question has none. Its score is the share of tests passed. CHIMERE_ENOENT: Python is not installed. */
int strategy_tested(const struct strategy_use *u, struct strategy_result *r, struct err *e);

#endif

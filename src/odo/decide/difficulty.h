/* difficulty.h: how difficult a question looks, before anything is generated.
 *
 * The value is the expected class of the classifier (classify.h; 0 low, 0.5 medium, 1 high) plus 0.4 * (history -
 * 0.5). history is computed from the scores of earlier answers of this route. The limits between the classes are
 * those of backend/limits.h. No state; any thread. */
#ifndef CHIMERE_ODO_DIFFICULTY_H
#define CHIMERE_ODO_DIFFICULTY_H

#include <stddef.h>

#include "backend/limits.h"

enum difficulty_class { DIFFICULTY_LOW, DIFFICULTY_MEDIUM, DIFFICULTY_HIGH };
enum difficulty_mode { DIFFICULTY_FAST, DIFFICULTY_QUALITY, DIFFICULTY_ULTRA };

struct difficulty {
    enum difficulty_class class;
    enum difficulty_mode mode; /* the mode that fits the class */
    double score, complexity, history;
};

/* scores [n]: earlier scores of this route, 1..5, in any order. limits NULL: the defaults. */
void difficulty_of(const char *text, size_t n, const double *scores, size_t n_score,
                   const struct limits *limits, struct difficulty *out);
double difficulty_history(const double *scores, size_t n);
const char *difficulty_class_name(enum difficulty_class c);
const char *difficulty_mode_name(enum difficulty_mode m);
int difficulty_mode_from(const char *name); /* -1: no such mode */

#endif

/* difficulty.h: how hard a question looks, before anything is generated.
 *
 * The expected class by the classifier (classify.h): 0 low, 0.5 medium, 1 high; plus 0.4 * (history - 0.5), where history
 * comes from the scores that answers of this route got. Low below 0.30, high from 0.70. No state; any thread. */
#ifndef CHIMERE_ODO_DIFFICULTY_H
#define CHIMERE_ODO_DIFFICULTY_H

#include <stddef.h>

enum difficulty_class { DIFFICULTY_LOW, DIFFICULTY_MEDIUM, DIFFICULTY_HIGH };
enum difficulty_mode { DIFFICULTY_FAST, DIFFICULTY_QUALITY, DIFFICULTY_ULTRA };

struct difficulty {
    enum difficulty_class class;
    enum difficulty_mode mode; /* what the class asks for */
    double score, complexity, history;
};

/* scores [n]: 1..5, of this route, any order. */
void difficulty_of(const char *text, size_t n, const double *scores, size_t n_score,
                   struct difficulty *out);
double difficulty_history(const double *scores, size_t n);
const char *difficulty_class_name(enum difficulty_class c);
const char *difficulty_mode_name(enum difficulty_mode m);
int difficulty_mode_from(const char *name); /* -1: no such mode */

#endif

/* difficulty.h: how hard a question looks, before anything is generated.
 *
 * 0.45 * complexity of the text + 0.30 * (1 - confidence of the route) + 0.25 * history, where history
 * comes from the scores that answers of this route got. Low up to 0.28, high from 0.52. No state; any
 * thread; linear in the text. */
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
void difficulty_of(const char *text, size_t n, double route_confidence, const double *scores,
                   size_t n_score, struct difficulty *out);
double difficulty_history(const double *scores, size_t n);
const char *difficulty_class_name(enum difficulty_class c);
const char *difficulty_mode_name(enum difficulty_mode m);
int difficulty_mode_from(const char *name); /* -1: no such mode */

#endif

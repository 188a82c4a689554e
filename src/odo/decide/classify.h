/* classify.h: route and difficulty of a question by a linear classifier over hashed n-grams.
 *
 * The weights are compiled in (classify_table.c, written by train/intent/train.py). No state; any thread. Only the
 * first 256 words are read, so a call takes some tens of microseconds for any text. */
#ifndef CHIMERE_ODO_CLASSIFY_H
#define CHIMERE_ODO_CLASSIFY_H

#include <stddef.h>

enum { CLASSIFY_N_ROUTE = 5, CLASSIFY_N_LEVEL = 3 };

struct classified {
    double route[CLASSIFY_N_ROUTE]; /* probabilities, in the order of classify_routes */
    double level[CLASSIFY_N_LEVEL]; /* probabilities of low, medium, high */
};

extern const char *const classify_routes[CLASSIFY_N_ROUTE];

void classify_text(const char *text, size_t n, struct classified *out);

#endif

/* classify.h: route and difficulty of a question by a linear classifier over hashed n-grams.
 *
 * The weights are part of the program (classify_table.c, written by train/intent/train.py). No state; any thread; some
 * tens of microseconds, whatever the text: its first 256 words are read. */
#ifndef CHIMERE_ODO_CLASSIFY_H
#define CHIMERE_ODO_CLASSIFY_H

#include <stddef.h>

enum { CLASSIFY_N_ROUTE = 5, CLASSIFY_N_LEVEL = 3 };

struct classified {
    double route[CLASSIFY_N_ROUTE]; /* probabilities, by classify_routes */
    double level[CLASSIFY_N_LEVEL]; /* of low, medium, high */
};

extern const char *const classify_routes[CLASSIFY_N_ROUTE];

void classify_text(const char *text, size_t n, struct classified *out);

#endif

/* words.h: the words of a question that are worth looking for: folded, without those that every text has. */
#ifndef CHIMERE_ODO_WORDS_H
#define CHIMERE_ODO_WORDS_H

#include <stddef.h>

enum { WORDS_MAX = 48, WORDS_MAX_BYTES = 40 };

struct words {
    char v[WORDS_MAX][WORDS_MAX_BYTES];
    size_t n;
};

/* Letters and digits, small, without accents; each once; English and French stop words left out. */
void words_of(struct words *w, const char *text, size_t n);

#endif

/* words.h: the words of a question that are useful for a search: folded, without words that every text contains. */
#ifndef CHIMERE_RETRIEVAL_WORDS_H
#define CHIMERE_RETRIEVAL_WORDS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

enum { WORDS_MAX = 48, WORDS_MAX_BYTES = 40 };

struct words {
    char v[WORDS_MAX][WORDS_MAX_BYTES];
    bool is_name[WORDS_MAX]; /* begins with a capital within a sentence, or before a colon */
    size_t n;
};

/* Collects words of letters and digits in lower case without accents, each once. English and French stop words are
 * left out. */
void words_of(struct words *w, const char *text, size_t n);
/* Appends all words of a text except stop words, folded: " word word word ". */
void words_fold(struct buf *out, const char *text, size_t n);
/* Counts how often a text from words_fold contains a word. Endings may differ: the last two letters of a
 * word of more than five letters are not compared, and a word of the text may be up to three letters longer. Numbers
 * must be equal. */
int words_count(const char *folded, const char *word);
int words_n_name(const struct words *w);
/* Returns true if such a text contains one of the names, or if there are no names. A text without them is about
 * another person, place or thing, however many other words it shares. */
bool words_has_name(const struct words *w, const char *folded);
bool words_is_number(const char *word);
/* Returns the share of passages of general English text that contain a word; 0: the word is rare. Defined in
 * words_table.c. */
double words_general_share(const char *word);

#endif

/* words.h: the words of a question that are worth looking for: folded, without those that every text has. */
#ifndef CHIMERE_RETRIEVAL_WORDS_H
#define CHIMERE_RETRIEVAL_WORDS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

enum { WORDS_MAX = 48, WORDS_MAX_BYTES = 40 };

struct words {
    char v[WORDS_MAX][WORDS_MAX_BYTES];
    bool is_name[WORDS_MAX]; /* with a capital within a sentence, or before its colon */
    size_t n;
};

/* Letters and digits, small, without accents; each once; English and French stop words left out. */
void words_of(struct words *w, const char *text, size_t n);
/* Appends all words of a text that are worth it, folded: " word word word ". */
void words_fold(struct buf *out, const char *text, size_t n);
/* How often such a text has a word. Endings may differ: a word of the text may go on for three letters behind the
 * beginning of the one asked for; numbers must be equal. */
int words_count(const char *folded, const char *word);
int words_n_name(const struct words *w);
/* Does such a text have one of the names? True where there are none. What a text without them is about is another
 * person, place or thing, however many other words it shares. */
bool words_has_name(const struct words *w, const char *folded);
bool words_is_number(const char *word);
/* Share of passages of general English text that hold a word; 0: it is rare in them. words_table.c */
double words_general_share(const char *word);

#endif

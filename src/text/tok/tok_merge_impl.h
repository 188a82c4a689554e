/* tok_merge_impl.h: merging, shared by byte-pair and SentencePiece tokenizers, and the byte forms that it uses. */
#ifndef CHIMERE_TEXT_TOK_TOK_MERGE_IMPL_H
#define CHIMERE_TEXT_TOK_TOK_MERGE_IMPL_H

#include "text/tok/tok_impl.h"

/* Appends the ids of the words of text[from..ends[last]), using the cache of words. */
int tok_merge_words(struct enc *c, const char *text, uint32_t from, const struct tok_ids *ends);
/* Encodes one word, merging the leftmost best pair first. linear: by the simple quadratic loop, otherwise by a
 * heap. The result is the same, which a test checks. */
int tok_merge_word(struct enc *c, const char *word, uint32_t n, bool linear);
/* Appends the byte tokens of s[0..n), or the unknown token for a byte without one. */
int tok_put_bytes(struct enc *c, const char *s, size_t n);
/* Converts a piece of the byte-level alphabet to bytes; false if it contains another character. */
bool tok_alphabet_decode(struct slice s, char *out, size_t *n);
/* Copies s with a space for each U+2581; returns the length. out may be s.p itself. */
size_t tok_unmark(struct slice s, char *out);
/* Returns the length of the well-formed UTF-8 at the start of s[0..n); 0: the first byte is not part of a
 * character. */
size_t tok_valid_run(const char *s, size_t n);
/* For raw BPE and SPM: finds the characters that occur before a space inside a string. */
int tok_cross_build(struct tok *t);
/* Splits before every space that does not follow such a character, because no merge can cross it. Appends. */
int tok_cross_split(const struct tok *t, const char *text, uint32_t from, uint32_t to,
                    struct tok_ids *ends);

#endif

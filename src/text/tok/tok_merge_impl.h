/* tok_merge_impl.h: merging, which byte-pair and SentencePiece tokenizers share, and the forms of
 * bytes that it works on. */
#ifndef CHIMERE_TEXT_TOK_TOK_MERGE_IMPL_H
#define CHIMERE_TEXT_TOK_TOK_MERGE_IMPL_H

#include "text/tok/tok_impl.h"

/* Appends the ids of the words of text[from..ends[last]), through the cache of words. */
int tok_merge_words(struct enc *c, const char *text, uint32_t from, const struct tok_ids *ends);
/* One word, leftmost best pair first. linear: by the plain quadratic loop, else by a heap; the result
 * is the same (the test's business). */
int tok_merge_word(struct enc *c, const char *word, uint32_t n, bool linear);
/* Appends the byte tokens of s[0..n), or the unknown token where there is none. */
int tok_put_bytes(struct enc *c, const char *s, size_t n);
/* Bytes that a piece of the byte-level alphabet stands for; false if it has a foreign character. */
bool tok_alphabet_decode(struct slice s, char *out, size_t *n);
/* Copies s with each U+2581 as a space; the length. out may be s.p itself. */
size_t tok_unmark(struct slice s, char *out);
/* Length of the stretch of well-formed UTF-8 at s[0..n); where it is 0, one byte is foreign. */
size_t tok_valid_run(const char *s, size_t n);
/* Raw BPE and SPM: finds the characters that may stand before a space inside a string, so that */
int tok_cross_build(struct tok *t);
/* this may split before every other space: no merge can reach across. Appends. */
int tok_cross_split(const struct tok *t, const char *text, uint32_t from, uint32_t to,
                    struct tok_ids *ends);

#endif

/* tok_models_impl.h: the functions of each kind of tokenizer that tok.c calls; included only by tok_impl.h. */
#ifndef CHIMERE_TEXT_TOK_TOK_MODELS_IMPL_H
#define CHIMERE_TEXT_TOK_TOK_MODELS_IMPL_H

#include "text/tok/tok_impl.h"

/* Builders are called after the strings, kinds and both maps of t are complete. Encoders append the ids of
 * text[0..n), which contains no special token. */
int tok_bpe_build(struct tok *t, const struct tok_spec *spec, struct err *e);
int tok_bpe_encode(struct enc *c, const char *text, uint32_t n);
int tok_spm_build(struct tok *t, const struct tok_spec *spec, struct err *e);
int tok_spm_encode(struct enc *c, const char *text, uint32_t n, bool space_prefix);
int tok_wordpiece_build(struct tok *t, struct err *e);
int tok_wordpiece_encode(struct enc *c, const char *text, uint32_t n);
int tok_unigram_build(struct tok *t, const struct tok_spec *spec, struct err *e);
int tok_unigram_encode(struct enc *c, const char *text, uint32_t n);
void tok_unigram_free(struct tok *t); /* frees what the two builders above made */

#endif

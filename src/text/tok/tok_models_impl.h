/* tok_models_impl.h: what each kind of tokenizer offers tok.c;
 * included by tok_impl.h only. */
#ifndef CHIMERE_TEXT_TOK_TOK_MODELS_IMPL_H
#define CHIMERE_TEXT_TOK_TOK_MODELS_IMPL_H

#include "text/tok/tok_impl.h"

/* Builders run once the strings, kinds and both maps of t are in place. Encoders append the ids of
 * text[0..n), which holds no special token. */
int tok_bpe_build(struct tok *t, const struct tok_spec *spec, struct err *e);
int tok_bpe_encode(struct enc *c, const char *text, uint32_t n);
int tok_spm_build(struct tok *t, const struct tok_spec *spec, struct err *e);
int tok_spm_encode(struct enc *c, const char *text, uint32_t n, bool space_prefix);
int tok_wordpiece_build(struct tok *t, struct err *e);
int tok_wordpiece_encode(struct enc *c, const char *text, uint32_t n);
int tok_unigram_build(struct tok *t, const struct tok_spec *spec, struct err *e);
int tok_unigram_encode(struct enc *c, const char *text, uint32_t n);
void tok_unigram_free(struct tok *t); /* what the two builders above made */

#endif

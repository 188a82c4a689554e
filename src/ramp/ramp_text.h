/* ramp_text.h: the tokens on which a search measures: cut from a text, or written by the model itself. */
#ifndef CHIMERE_RAMP_RAMP_TEXT_H
#define CHIMERE_RAMP_RAMP_TEXT_H

#include "eval/windows.h"
#include "model/model.h"

enum { RAMP_CTX = 256 }; /* tokens of a window */

/* Up to n_tok tokens in windows spread evenly over the text. */
int ramp_text_read(struct windows_text *out, const struct model *m, const char *path, size_t n_tok,
                   struct err *e);
/* The model continues from nothing, or from a random token, by sampling at temperature 1. The same seed
 * and device give the same tokens. */
int ramp_text_generate(struct windows_text *out, struct model *m, size_t n_tok, uint64_t seed,
                       bool quiet, struct err *e);
/* Tokens as a file of the work folder; load returns CHIMERE_ENOENT without text if it is not there or
 * belongs to another key. */
int ramp_text_save(const struct windows_text *t, const char *path, uint64_t key, struct err *e);
int ramp_text_load(struct windows_text *out, const char *path, uint64_t key, int32_t n_vocab);

#endif

/* synth_impl.h: what the two halves of synth share. */
#ifndef CHIMERE_CONVERT_SYNTH_IMPL_H
#define CHIMERE_CONVERT_SYNTH_IMPL_H

#include <stdint.h>

#include "base/err.h"
#include "format/gguf.h"

/* synth_vocab.c: tokenizer.* keys of a byte-level vocabulary of n_vocab tokens. */
int synth_put_vocab(struct gguf_writer *w, uint32_t n_vocab, struct err *e);

#endif

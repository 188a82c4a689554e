/* mask.h: takes secrets out of text before anything learns from it. Pure functions. */
#ifndef CHIMERE_LEARN_MASK_H
#define CHIMERE_LEARN_MASK_H

#include <stddef.h>

#include "base/buf.h"

/* Appends text to out with every match replaced by its kind: [mail], [card] (Luhn's check holds), [iban]
 * (mod 97 holds), [key] (private key blocks, tokens with a known prefix, JWT, and words of 24 characters
 * and more that mix letters and digits as random ones do). Returns how many were replaced. */
size_t mask_secrets(struct buf *out, const char *text, size_t n);

#endif

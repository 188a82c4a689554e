/* mask.h: removes secrets from texts before they are used for learning. Pure functions. */
#ifndef CHIMERE_LEARN_DATA_MASK_H
#define CHIMERE_LEARN_DATA_MASK_H

#include <stddef.h>

#include "base/buf.h"

/* Appends text to out and replaces each secret by its kind: [mail], [card] (valid by Luhn's check), [iban] (valid
 * mod 97), [key] (private key blocks, tokens with a known prefix, JWT, and words of at least 24 characters that
 * mix letters and digits like random ones). Returns the number of replacements. */
size_t mask_secrets(struct buf *out, const char *text, size_t n);

#endif

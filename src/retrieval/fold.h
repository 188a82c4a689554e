/* fold.h: text without accents, for comparisons in French and English. Any thread. */
#ifndef CHIMERE_RETRIEVAL_FOLD_H
#define CHIMERE_RETRIEVAL_FOLD_H

#include <stdbool.h>

#include "base/buf.h"

/* Appends s [n] with Latin letters freed of their accents, typographic quotes and dashes made plain, and
 * bytes that are no UTF-8 left out; squeeze: runs of blanks become one, none at the ends. */
void fold_text(struct buf *out, const char *s, size_t n, bool squeeze);

#endif

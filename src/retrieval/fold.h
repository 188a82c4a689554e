/* fold.h: removes accents from text, for comparisons in French and English. Any thread. */
#ifndef CHIMERE_RETRIEVAL_FOLD_H
#define CHIMERE_RETRIEVAL_FOLD_H

#include <stdbool.h>

#include "base/buf.h"

/* Appends s [n]. Latin letters lose their accents, typographic quotes and dashes become ASCII, and bytes that are
 * not UTF-8 are dropped. squeeze: runs of blanks become one, and blanks at both ends are dropped. */
void fold_text(struct buf *out, const char *s, size_t n, bool squeeze);

#endif

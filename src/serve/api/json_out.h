/* json_out.h: writes JSON directly to a buffer, for output that is produced for every token. */
#ifndef CHIMERE_SERVE_JSON_OUT_H
#define CHIMERE_SERVE_JSON_OUT_H

#include <jansson.h>

#include "base/buf.h"

/* Writes a string with quotes; invalid UTF-8 becomes U+FFFD. s may be NULL if n is 0. */
void json_out_text(struct buf *out, const char *s, size_t n);
void json_out_string(struct buf *out, const char *s); /* NULL: null */
void json_out_number(struct buf *out, double x);      /* shortest form; null if it is not finite */
/* Strings that begin with NUL are written as numbers (chat_json_exact). */
void json_out_value(struct buf *out, const json_t *v);

#endif

/* json_out.h: JSON text straight into a buffer, for what is written for every token. */
#ifndef CHIMERE_SERVE_JSON_OUT_H
#define CHIMERE_SERVE_JSON_OUT_H

#include <jansson.h>

#include "base/buf.h"

/* A string with its quotes; bytes that are no UTF-8 become U+FFFD. s may be NULL where n is 0. */
void json_out_text(struct buf *out, const char *s, size_t n);
void json_out_string(struct buf *out, const char *s); /* NULL: null */
void json_out_number(struct buf *out, double x); /* shortest form; null for what is not finite */
/* Strings that begin with NUL are numbers as chat_json_exact reads them. */
void json_out_value(struct buf *out, const json_t *v);

#endif
